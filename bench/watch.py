#!/usr/bin/env python3
"""CPU time that `rye check --watch` spends on one edited file, by the kernel's account of the process.

    bench/watch.py RYE PROJECT FILE [EDITS]

PROJECT is changed: FILE (from the project's folder) gets one line more with each edit. Prints the median and the fastest edit, and
what a second of waiting costs.
"""
import pathlib
import statistics
import subprocess
import sys
import time


def cpu(pid: int) -> float:
    """Milliseconds on a processor, of all threads."""
    tasks = pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e6


def looked(process: subprocess.Popen) -> None:
    """Waits until a check has told its sum."""
    while not process.stderr.readline().startswith("checked "):
        if process.poll() is not None:
            sys.exit("the check has ended")


def main() -> None:
    rye, project, file = sys.argv[1:4]
    edits = int(sys.argv[4]) if len(sys.argv) > 4 else 20
    process = subprocess.Popen([rye, "check", "--watch", "--project", project], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        looked(process)
        time.sleep(1)
        spent = []
        for edit in range(edits):
            before = cpu(process.pid)
            with (pathlib.Path(project) / file).open("a") as text:
                text.write(f"Edit {edit}.\n")
            looked(process)
            time.sleep(0.3)
            spent.append(cpu(process.pid) - before)
        before = cpu(process.pid)
        time.sleep(5)
        idle = (cpu(process.pid) - before) / 5
        print(f"one edited file: {statistics.median(spent):.1f} ms of CPU (fastest {min(spent):.1f}); a second of waiting: {idle:.2f} ms")
    finally:
        process.kill()


main()
