"""Shouts."""
__tool_description__ = "Prints a text in capitals."
CONFIG_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


def execute(text):
    return text.upper()
