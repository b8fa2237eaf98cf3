__tool_description__ = "Counts the sheep of a field."

def execute(params, project_path:
    return 3
