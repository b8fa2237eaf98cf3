"""Counts words."""

__all__ = ["execute"]
__author__ = "somebody"
__tool_type__ = "python"
__licence__ = "MIT"
__tool_description__ = "Counts words."
__verson__ = "1.0.0"
__timeout_second__ = 5
CONFIG_SHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
CONFIG_FILE = "settings"


def execute(params):
    return {"words": len(params["text"].split())}
