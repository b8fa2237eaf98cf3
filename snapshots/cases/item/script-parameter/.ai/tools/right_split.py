"""Counts words."""

__tool_description__ = "Counts words."
CONFIG_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


def execute(params, project_path):
    try:
        separator = params["separator"]
    except KeyError:
        separator = " "
    params["words"] = params["text"].split(separator)
    return len(params["words"])
