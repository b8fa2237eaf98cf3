import json
import sys

__tool_description__ = "Counts the characters of a text."
CONFIG_SCHEMA = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}


def execute(params, project_path):
    return {"count": len(json.load(sys.stdin)["text"]), "given": params}
