__tool_desc__ = "Counts words."


def execute(params, project_path):
    return 1
