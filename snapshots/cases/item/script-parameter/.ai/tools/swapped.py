__tool_description__ = "Counts the characters of a text."
CONFIG_SCHEMA = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}


def execute(project_path, params):
    return {"count": len(params["text"])}
