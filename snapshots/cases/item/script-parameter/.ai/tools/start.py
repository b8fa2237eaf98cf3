"""Starts."""

__tool_description__ = "Starts."


def main(params):
    print("started")
