#!/usr/bin/env python3
"""Counts the measures of the naming and prose rules over the Rust sources of a repository, or draws a sample to read.

`python3 bench/words.py [FOLDER]` prints one measure a line; the default is the repository of this script.
`python3 bench/words.py [FOLDER] --sample SEED` prints 100 doc comments and 50 texts of messages, drawn with a seed.
"""

import argparse
import collections
import pathlib
import random
import re

OWN = pathlib.Path(__file__).resolve().parent.parent
ARGUMENTS = argparse.ArgumentParser()
ARGUMENTS.add_argument("folder", nargs="?", type=pathlib.Path, default=OWN)
ARGUMENTS.add_argument("--sample", type=int)
ROOT = ARGUMENTS.parse_args().folder
CRATES = ["grammar", "compiler", "engine", "stdlib", "rye", "cli", "snapshots"]
OPENINGS = re.compile(r"(What|Who|Whoever|Whether|How|It|One|Those|The same|Nobody|Somebody)\b")
LAW = (OWN / "snapshots/tests/laws/words.rs").read_text()


def words_of(name):
    """Returns the words of a list in the law, so that measure and law cannot differ."""
    found = re.search(name + r": \[&str; \d+\] =\s*\[(.*?)\];", LAW, re.DOTALL)
    return re.findall(r'"([^"]+)"', found[1])


EXCLUDED = re.compile(r"\b(" + "|".join(words_of("EXCLUDED_WORDS")) + r")\b", re.IGNORECASE)
TYPE = re.compile(r"(?:pub(?:\([^)]*\))?\s+)?(?:struct|enum|trait|union)\s+([A-Z]\w*)")
FUNCTION = re.compile(r"\s*(?:pub(?:\([^)]*\))?\s+)?(?:const\s+)?(?:async\s+)?fn\s+(\w+)")


TEST_MODULE = re.compile(r"#\[cfg\(test\)\]\n(?:#\[.*\n)*(?:pub(?:\([^)]*\))? )?mod (\w+);")


def test_modules():
    """Returns the names of modules that only tests compile, and of the templates of `rye new`."""
    return {name + ".rs" for path in sources() for name in TEST_MODULE.findall(path.read_text())} | {"templates.rs"}


def sources():
    for crate in CRATES:
        for path in sorted((ROOT / crate).rglob("*.rs")):
            if "target" not in path.parts:
                yield path


def sample(seed):
    """Prints doc comments with the line that they describe, then literals with four words or more, outside of tests."""
    comments, messages, skipped = [], [], test_modules()
    for path in sources():
        name = path.relative_to(ROOT)
        if "src" not in name.parts or "tests" in name.parts or name.name in skipped:
            continue
        code = path.read_text().split("#[cfg(test)]\nmod tests {")[0].split("#[cfg(test)]\n#[allow")[0]
        for found in re.finditer(r"((?:^ *//[/!].*\n)+)((?:^ *#\[.*\n)*)(.*)", code, re.MULTILINE):
            text = re.sub(r"\s*//[/!] ?", " ", found[1]).strip()
            comments.append(f"{name}:{code[:found.start()].count(chr(10)) + 1} {text} => {found[3].strip()}")
        for found in re.finditer(r'(reason = )?"((?:[^"\\\n]|\\.|\\\n)*)"', re.sub(r"//.*", "", code)):
            # The reason of a lint exception is not shown to users.
            if found[2].count(" ") > 3 and not found[1]:
                messages.append(f"{name} " + re.sub(r"\\\n\s*", "", found[2]))
    draw = random.Random(seed)
    print(*draw.sample(comments, 100), "", *draw.sample(messages, 50), sep="\n")


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


seed = ARGUMENTS.parse_args().sample
main() if seed is None else sample(seed)
