"""The date."""
__tool_description__ = "Prints the date."


def execute():
    return "today"
