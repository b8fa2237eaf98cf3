__tool_description__ = "Count lines."
CONFIG_SCHEMA = {"type": "object"}
