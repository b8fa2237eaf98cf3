"""Greets."""

__tool_description__ = "Greets a person."
CONFIG_SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}


def execute(*, name):
    return f"Hello, {name}"
