__tool_description__ = "Repeats a text."
CONFIG_SCHEMA = {
    "type": "object",
    "required": ["text", "separator"],
    "properties": {"text": {"type": "string"}, "separator": {"type": "string"}},
}


def execute(params, project_path):
    return repeat(**params)


def repeat(text, **others):
    return text + text
