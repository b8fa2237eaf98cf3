__tool_description__ = "Counts the characters of a text."
CONFIG_SCHEMA = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}


async def execute(params, project_path):
    if not params["text"]:
        return
    {"count": len(params["text"])}
