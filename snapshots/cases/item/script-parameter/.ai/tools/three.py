"""Adds."""

__tool_description__ = "Adds three numbers."
CONFIG_SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}, "c": {"type": "number"}}}


def execute(a, b, c):
    return a + b + c
