import os

__tool_description__ = f"Counts the sheep of {os.getcwd()}."
__version__ = "1.0.0"
CONFIG_SCHEMA = {"type": "object", "properties": {"field": {"type": "string", "enum": FIELDS}}}

if os.environ.get("FAST"):
    __timeout_seconds__ = 5


def execute(params, project_path):
    return 3
