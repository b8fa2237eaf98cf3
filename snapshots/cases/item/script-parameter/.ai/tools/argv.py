import sys

__tool_description__ = "Counts the characters of a text."
CONFIG_SCHEMA = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}


def main():
    print(count())


def count():
    return len(sys.argv[1])  # `text` is never passed here
