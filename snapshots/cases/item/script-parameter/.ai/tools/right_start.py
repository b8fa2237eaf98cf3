import sys

__tool_description__ = "Counts the characters of a text."
CONFIG_SCHEMA = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}


def execute(params, project_path):
    return {"count": len(params["text"])}


def main():
    print(execute({"text": sys.argv[1]}, "."))


if __name__ == "__main__":
    main()
