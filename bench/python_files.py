#!/usr/bin/env python3
"""A folder of Python files for a linter that is measured beside `rye check`.

bench/python_files.py PROJECT FOLDER: writes one Python file for each file below PROJECT/.ai, with the same size to within
a line, so that both programs read the same number of files and bytes."""

import sys
from pathlib import Path

LINES = (
    "def probe_{n}(service: str, depth: int = 1) -> dict[str, int]:\n",
    "    notes = [len(part) for part in service.split('.')]\n",
    "    total = sum(notes) + depth\n",
    "    if total > {n}:\n",
    "        return {{'total': total, 'parts': len(notes)}}\n",
    "    return {{'total': 0, 'parts': len(notes)}}\n",
    "\n",
    "\n",
)


def text(size):
    """Whole functions, and comments behind them."""
    found, number = "", 0
    while True:
        function = "".join(LINES).format(n=number)
        if len(found) + len(function) > size:
            break
        found, number = found + function, number + 1
    rest = size - len(found)
    while rest > 1:
        line = min(rest, 80)
        found, rest = found + "#" + "-" * (line - 2) + "\n", rest - line
    return found


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    project, folder = Path(sys.argv[1], ".ai"), Path(sys.argv[2])
    for path in sorted(path for path in project.rglob("*") if path.is_file()):
        to = folder / path.relative_to(project).parent / f"{path.stem.replace('-', '_')}_{path.suffix[1:]}.py"
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(text(path.stat().st_size))


main()
