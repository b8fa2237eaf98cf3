import json
import sys

__tool_description__ = "Counts the characters of a text."
CONFIG_SCHEMA = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}


def main():
    text = sys.argv[1] if len(sys.argv) > 1 else json.load(sys.stdin)["text"]
    print(len(text))
