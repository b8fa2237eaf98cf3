#!/usr/bin/env python3
"""Counts the measures of the naming and prose rules over the Rust sources of the work tree.

Prints one measure a line. `python3 bench/words.py [FOLDER]`; the default is the repository of this script.
"""

import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
CRATES = ["grammar", "compiler", "engine", "stdlib", "rye", "cli", "snapshots"]
OPENINGS = re.compile(r"(What|Who|Whoever|Whether|How|It|One|Those|The same|Nobody|Somebody)\b")
LAW = (ROOT / "snapshots/tests/laws/words.rs").read_text()


def words_of(name):
    """Returns the words of a list in the law, so that measure and law cannot differ."""
    found = re.search(name + r": \[&str; \d+\] =\s*\[(.*?)\];", LAW, re.DOTALL)
    return re.findall(r'"([^"]+)"', found[1])


EXCLUDED = re.compile(r"\b(" + "|".join(words_of("EXCLUDED_WORDS")) + r")\b", re.IGNORECASE)
TYPE = re.compile(r"(?:pub(?:\([^)]*\))?\s+)?(?:struct|enum|trait|union)\s+([A-Z]\w*)")
FUNCTION = re.compile(r"\s*(?:pub(?:\([^)]*\))?\s+)?(?:const\s+)?(?:async\s+)?fn\s+(\w+)")


def sources():
    for crate in CRATES:
        for path in sorted((ROOT / crate).rglob("*.rs")):
            if "target" not in path.parts:
                yield path


def main():
    comments = openings = excluded = code = 0
    types = collections.defaultdict(set)
    names = []
    for path in sources():
        previous = ""
        for line in path.read_text().splitlines():
            text = line.strip()
            doc = re.match(r"//[/!] ?(.*)", text)
            if doc and not re.match(r"//[/!]", previous):
                comments += 1
                openings += bool(OPENINGS.match(doc[1]))
            excluded += text.startswith("//") and bool(EXCLUDED.search(re.sub(r"`[^`]*`", "", line)))
            code += bool(text) and not text.startswith("//")
            if found := TYPE.match(text):
                types[found[1]].add(path)
            if found := FUNCTION.match(line):
                names.append(found[1])
            previous = text
    shared = sum(len(paths) > 1 for paths in types.values())
    print(f"doc comments                        {comments}")
    print(f"  with an excluded opening          {openings} ({100 * openings / comments:.1f} %)")
    print(f"comment lines with an excluded word {excluded}")
    print(f"type names                          {len(types)}")
    print(f"  in more than one file             {shared}")
    print(f"functions                           {len(names)}, {sum(map(len, names)) / len(names):.1f} letters on average")
    print(f"lines without comments and blanks   {code}")


main()
