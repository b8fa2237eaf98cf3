import argparse

__tool_description__ = "Counts the characters of a text."
CONFIG_SCHEMA = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("text")
    print(len(parser.parse_args().text))
