#!/usr/bin/env python3
"""Synced writes and system calls of runs, counted by strace.

bench/syncs.py RYE: runs one turn in a new project, one turn in the same project again, and runs of 5 and 45 tool turns,
each as a whole process below strace. Prints the calls of fsync, fdatasync, sync_file_range and syncfs, how many of them
are on the registry, and all system calls. The figures of one tool turn are the difference of the last two runs, divided
by 40. The syncs do not depend on the machine's speed or on the build profile; the system calls of a debug build are more
than those of a release build."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SYNCS = ("fsync", "fdatasync", "sync_file_range", "syncfs")
FEW, MANY = 5, 45

DIRECTIVE = """# {name}

```xml
<directive name="{name}" version="1.0.0">
  <metadata>
    <description>Read a note.</description>
    <model provider="scripted"/>
    <limits turns="60" tokens="1000000" spend="5"/>
    <permissions><execute><tool>rye.file-system.read</tool></execute></permissions>
    <nudge>never</nudge>
  </metadata>
</directive>
```

Read the note {turns} times.
"""


def make_project(folder, turns):
    """Writes a project with one directive that reads a note in each of `turns` turns and ends in the next one."""
    name = f"turns{turns}"
    (folder / ".ai/directives").mkdir(parents=True)
    (folder / ".ai/directives" / f"{name}.md").write_text(DIRECTIVE.format(name=name, turns=turns))
    (folder / "note.txt").write_text("a note\n")
    read = "  - tool_calls: [ { name: rye_file_system_read, input: { path: note.txt } } ]\n" \
        "    usage: { input: 500, output: 20 }\n"
    (folder / "script.yaml").write_text("steps:\n" + read * turns + "  - text: done\n    usage: { input: 300, output: 5 }\n")
    return name


def count(rye, folder, name, environment):
    """Runs a directive below strace; returns its syncs, those on the registry, and all its system calls."""
    trace = folder / "trace.txt"
    command = ["strace", "-f", "-qq", "-y", "-o", str(trace), rye, "run", name, "--project", str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"`{' '.join(command)}` ended with {done.returncode}:\n{done.stderr}")
    # A call that another thread interrupts takes two lines; the second one is `<... name resumed>`.
    calls = [match for match in map(re.compile(r"^\d+\s+(\w+)\((.*)").match, trace.read_text().splitlines()) if match]
    syncs = [match[2] for match in calls if match[1] in SYNCS]
    trace.unlink()
    return len(syncs), sum("registry" in argument for argument in syncs), len(calls)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if not shutil.which("strace"):
        sys.exit("strace is missing; install the package `strace`")
    rye = str(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        (work / "user/.ai").mkdir(parents=True)
        environment = {**os.environ, "RYE_USER_SPACE": str(work / "user"), "NO_COLOR": "1"}
        rows = {}
        for turns in (0, FEW, MANY):
            folder = work / str(turns)
            name = make_project(folder, turns)
            subprocess.run([rye, "trust", "--project", str(folder)], env=environment, check=True, capture_output=True)
            rows[turns] = count(rye, folder, name, environment)
            if turns == 0:
                rows["known"] = count(rye, folder, name, environment)
        print(f"{'':28} {'syncs':>8} {'registry':>9} {'system calls':>13}")
        named = {"one turn, new project": rows[0], "one turn, known project": rows["known"]}
        for label, figures in named.items():
            print(f"{label:28} {figures[0]:8} {figures[1]:9} {figures[2]:13}")
        turn = [(many - few) / (MANY - FEW) for few, many in zip(rows[FEW], rows[MANY])]
        print(f"{'one tool turn':28} {turn[0]:8.1f} {turn[1]:9.1f} {turn[2]:13.1f}")


if __name__ == "__main__":
    main()
