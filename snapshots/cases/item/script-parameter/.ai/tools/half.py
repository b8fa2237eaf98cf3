"""Halves a number."""

__tool_description__ = "Halves a number."
CONFIG_SCHEMA = {"type": "object", "properties": {"number": {"type": "number"}}}


def execute(params, project_path):
    if "digits" in params:
        return round(params["number"] / 2, params["digits"])
    return params["nubmer"] / 2
