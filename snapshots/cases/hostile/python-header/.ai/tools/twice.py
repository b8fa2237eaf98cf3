__tool_description__ = "Reads a file."
CONFIG_SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
CONFIG_SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}


def execute(params, project_path):
    return {}
