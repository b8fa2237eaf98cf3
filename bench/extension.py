#!/usr/bin/env python3
"""Time that a hook adds to an event, by the kind of the tool that it executes.

bench/extension.py RYE [EVENTS]: runs a script with one call a turn, with a hook at `tool_result` and without one. The runs
alternate. Prints the median of the difference in milliseconds an event: elapsed time, and CPU time of the process and of the
tools together."""

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RYE = str(Path(sys.argv[1]).resolve())
EVENTS = int(sys.argv[2]) if len(sys.argv) > 2 else 200
RUNS = 5

DIRECTIVE = f"""# Loop

```xml
<directive name="loop" version="1.0.0">
  <metadata>
    <description>Read a note many times.</description>
    <model provider="scripted"/>
    <limits turns="{EVENTS + 10}" tokens="1000000000" spend="1000"/>
    <permissions><execute><tool>rye.file-system.read</tool></execute></permissions>
    <nudge>never</nudge>
  </metadata>
</directive>
```

Read the note again and again.
"""
PYTHON = '''__tool_description__ = "Answers an event."
__persistent__ = %s
CONFIG_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


def execute(params, project_path):
    return {"action": "continue"}
'''
JAVASCRIPT = """export const __tool_description__ = "Answers an event.";
export const __persistent__ = true;
export const CONFIG_SCHEMA = { type: "object", properties: { text: { type: "string" } } };
export function execute(params, projectPath) {
  return { action: "continue" };
}
"""
HOOKS = """hooks:
  - { id: each, event: tool_result, action: { primary: execute, item_type: tool, item_id: team/each, params: { text: "${call.name}" } } }
"""
TOOLS = {
    "persistent, Python": ("each.py", PYTHON % "True"),
    "persistent, JavaScript": ("each.mjs", JAVASCRIPT),
    "a process for each event, Python": ("each.py", PYTHON % "False"),
}


def write_project(folder, tool):
    project = Path(folder)
    for path in (project / ".ai/directives", project / ".ai/tools/team", project / ".ai/config/agent"):
        path.mkdir(parents=True)
    (project / "note.txt").write_text("a note\n")
    (project / ".ai/directives/loop.md").write_text(DIRECTIVE)
    call = "  - tool_calls: [ { name: rye_file_system_read, input: { path: note.txt } } ]\n    usage: { input: 500, output: 20 }\n"
    (project / "script.yaml").write_text("steps:\n" + call * EVENTS + "  - text: done\n")
    if tool is not None:
        name, text = tool
        (project / f".ai/tools/team/{name}").write_text(text)
        (project / ".ai/config/agent/hooks.yaml").write_text(HOOKS)
    return project


def run(project, environment):
    """Elapsed and CPU milliseconds of a run."""
    shutil.rmtree(project / ".ai/state", ignore_errors=True)
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [RYE, "run", "loop", "--project", project, "--format", "json"]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    elapsed, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return elapsed * 1000, cpu * 1000


def main():
    with tempfile.TemporaryDirectory() as folder:
        user = Path(folder, "user")
        (user / ".ai").mkdir(parents=True)
        environment = {**os.environ, "RYE_USER_SPACE": str(user), "NO_COLOR": "1"}
        plain = write_project(Path(folder, "plain"), None)
        for name, tool in TOOLS.items():
            project = write_project(Path(folder, tool[0] + name.split(",")[0].replace(" ", "-")), tool)
            for one in (plain, project):
                subprocess.run([RYE, "trust", "--project", one], env=environment, check=True, capture_output=True)
                run(one, environment)
            pairs = [(run(plain, environment), run(project, environment)) for _ in range(RUNS)]
            elapsed, cpu = (
                statistics.median((hook[part] - none[part]) / EVENTS for none, hook in pairs) for part in (0, 1)
            )
            print(f"{name}: {elapsed:.2f} ms an event, {cpu:.2f} ms CPU ({EVENTS} events, {RUNS} pairs)")


main()
