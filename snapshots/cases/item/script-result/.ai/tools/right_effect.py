__tool_description__ = "Counts the characters of a text."
CONFIG_SCHEMA = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}


def execute(params, project_path):
    with open(f"{project_path}/note.txt", "w") as note:
        note.write(params["text"])
