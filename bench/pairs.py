#!/usr/bin/env python3
"""Two versions of the program beside each other, as a table with ratios.

bench/pairs.py EARLIER PRESENT [ROW ...] [--generate GENERATE] [--pairs N]: each row runs both programs on equal projects against a
model server on loopback. Rows with short commands count user instructions with callgrind, which do not depend on the load of the
machine. The other rows print the median CPU time (user and system) of N pairs that run alternately, and the median of the ratios of
the pairs. GENERATE is the program `generate` of this repository, for the rows with 1,000 and 10,000 directives.

Build both programs with the same profile. Callgrind hides the vDSO and the SHA instructions of the processor, so the counts are
higher than on the processor, but equal in every run."""

import argparse
import json
import os
import re
import shutil
import socketserver
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from reading_project import write_project

# Writes a copy of a program whose requests PR_GET_AUXV fail, because callgrind hides the vDSO.
WITHOUT_VDSO = """import pathlib, sys
bytes_ = pathlib.Path(sys.argv[1]).read_bytes()
pathlib.Path(sys.argv[2]).write_bytes(bytes_.replace(bytes.fromhex("56585541"), bytes.fromhex("57585541")))
"""
FEW, MANY = 5, 45
TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")
DIRECTIVE = """# {name}

```xml
<directive name="{name}" version="1.0.0"><metadata><description>{name}</description><model provider="local"/><nudge>never</nudge>
{body}</metadata></directive>
```

Talk.
"""
BODIES = {
    "lead": '<limits turns="5" tokens="1000000000" spend="1000" spawns="100000"/>'
            "<permissions><execute><directive>*</directive></execute></permissions>",
    "talk": '<limits turns="5" spend="0.01"/>',
}


class Server(socketserver.ThreadingTCPServer):
    """Answers requests in the form of `openai-chat`. `reply(n)` returns the delta and the finish reason of the n-th request."""

    allow_reuse_address = daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests, self.reply, self.lock = 0, None, threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        pass


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while True:
            length = 0
            while (line := self.rfile.readline()) not in (b"\r\n", b""):
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            if not line:
                return
            self.rfile.read(length)
            with self.server.lock:
                self.server.requests += 1
                number = self.server.requests
            deltas, reason = self.server.reply(number)
            usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
            # Deltas that are the same object are encoded once, so that the peak memory of this process stays small.
            encoded = {id(delta): event({"choices": [{"index": 0, "delta": delta}]}) for delta in deltas}
            body = [encoded[id(delta)] for delta in deltas]
            body.append(event({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}))
            body.append(event({"choices": [], "usage": usage}) + b"data: [DONE]\n\n")
            length = sum(map(len, body))
            self.wfile.write(f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {length}\r\n\r\n".encode())
            for first in range(0, len(body), 100):
                self.connection.sendall(b"".join(body[first:first + 100]))


def event(data):
    return f"data: {json.dumps(data)}\n\n".encode()


def calls(number, name, arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"tool_calls": [{"index": n, "id": f"c{n}", "type": "function", "function": function} for n in range(number)]}


def reading(turns):
    """Replies with one call of a read tool in each of `turns` turns, and then with text."""
    read = [calls(1, "rye_file_system_read", {"path": "note.txt"})]
    return lambda number: (read, "tool_calls") if number <= turns else ([{"content": "done"}], "stop")


def spawning(children):
    start = [calls(children, "rye_execute", {"item_type": "directive", "item_id": "talk", "async": True})]
    return lambda number: (start, "tool_calls") if number == 1 else ([{"content": "done"}], "stop")


def long_reply(size):
    text = "a line of a long reply\n" * 174
    return lambda _: ([{"content": text}] * (size // len(text)), "stop")


class Version:
    """A program of the comparison, with its project."""

    def __init__(self, binary, folder, server):
        self.server, self.folder = server, folder
        folder.mkdir()
        self.rye, self.counted = folder / "rye", folder / "rye-counted"
        shutil.copy(binary, self.rye)
        # Another process reads the program, because the system counts the peak memory of this process to that of its children.
        subprocess.run([sys.executable, "-c", WITHOUT_VDSO, self.rye, self.counted], check=True)
        self.counted.chmod(0o755)
        self.env = {}
        self.new_project()

    def new_project(self):
        self.project = Path(tempfile.mkdtemp(dir=self.folder))
        self.env = write_project(self.project, self.rye, self.server.server_address[1])
        directive = self.project / ".ai/directives/loop.md"
        directive.write_text(directive.read_text().replace('turns="100"', 'turns="2000"'))
        for name, body in BODIES.items():
            (self.project / f".ai/directives/{name}.md").write_text(DIRECTIVE.format(name=name, body=body))
        (self.project / ".ai/config/agent/resilience.yaml").write_text("concurrency: { max_concurrent_children: 64 }\n")
        self.check("trust")

    def command(self, *arguments, program=None):
        return [program or self.rye, *arguments, "--project", self.project]

    def check(self, *arguments):
        subprocess.run(self.command(*arguments), env=self.env, check=True, stdin=subprocess.DEVNULL, capture_output=True)

    def instructions(self, *arguments, command=None):
        """User instructions of a command that ends successfully."""
        measured = command or self.command(*arguments, program=self.counted)
        counted = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *measured]
        done = subprocess.run(counted, env=self.env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        found = re.search(r"Collected : (\d+)", done.stderr)
        if done.returncode or not found:
            sys.exit(f"{' '.join(map(str, measured))} failed:\n{done.stdout}{done.stderr}")
        return int(found[1])

    def usage(self, *arguments, command=None):
        """CPU milliseconds and peak MiB of a command that ends successfully."""
        process = subprocess.Popen(command or self.command(*arguments), env=self.env, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            sys.exit(f"{arguments or command} failed")
        return (usage.ru_utime + usage.ru_stime) * 1000, usage.ru_maxrss / 1024

    def run(self, reply, measure, directive="loop"):
        self.server.reply, self.server.requests = reply, 0
        return measure("run", directive)


def cpu_ms(pid):
    """CPU milliseconds of a process, of all its threads."""
    return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e6


def served_call(version, count=2000):
    """CPU milliseconds of a call of a read tool in `rye mcp serve`."""
    process = subprocess.Popen(version.command("mcp", "serve"), cwd=version.project, env=version.env, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def ask(number, method, params):
        process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n")
        process.stdin.flush()
        while json.loads(line := process.stdout.readline() or sys.exit("the server has ended")).get("id") != number:
            pass
        if b'"error"' in line:
            sys.exit(line.decode())

    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    ask(0, "initialize", client)
    process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    for number in range(1, count + 101):
        if number == 101:
            before = cpu_ms(process.pid)
        ask(number, "tools/call", {"name": "rye_file_system_read", "arguments": {"path": "note.txt"}})
    spent = cpu_ms(process.pid) - before
    process.stdin.close()
    process.wait()
    return spent / count


def edited_file(version, project, edits=10):
    """Median CPU milliseconds of `rye check --watch` for an edited directive."""
    command = [version.rye, "check", "--watch", "--project", project]
    process = subprocess.Popen(command, env=version.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def wait():
        while not process.stderr.readline().startswith("checked "):
            if process.poll() is not None:
                sys.exit("the check has ended")
    try:
        wait()
        time.sleep(1)
        spent = []
        for edit in range(edits):
            before = cpu_ms(process.pid)
            with (project / ".ai/directives/area3/task2.md").open("a") as text:
                text.write(f"Edit {edit}.\n")
            wait()
            time.sleep(0.3)
            spent.append(cpu_ms(process.pid) - before)
        return statistics.median(spent)
    finally:
        process.kill()


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder, self.server = args, folder, Server()
        self.versions = [Version(binary, folder / name, self.server) for binary, name in ((args.earlier, "a"), (args.present, "b"))]
        self.projects = {}

    def generated(self, count):
        if not self.args.generate:
            return None
        if count not in self.projects:
            project = self.folder / f"generated{count}"
            subprocess.run([self.args.generate, str(count), project], check=True, capture_output=True)
            self.projects[count] = project
        return self.projects[count]

    def count(self, row, measure):
        """Prints a row with the instructions of both programs."""
        earlier, present = (measure(version) for version in self.versions)
        self.print(row, f"{earlier / 1e6:,.1f} M", f"{present / 1e6:,.1f} M", present / earlier)

    def time(self, row, measure, unit="ms CPU", pairs=None):
        """Prints a row with the medians of pairs that run alternately."""
        found = [[measure(version) for version in self.versions] for _ in range(pairs or self.args.pairs)]
        earlier, present = (statistics.median(values) for values in zip(*found))
        ratio = statistics.median(present / earlier for earlier, present in found)
        digits = 0 if earlier >= 20 else 2
        self.print(row, f"{earlier:,.{digits}f} {unit}", f"{present:,.{digits}f} {unit}", ratio)

    def print(self, row, earlier, present, ratio):
        print(f"| {row} | {earlier} | {present} | {ratio:.2f} |", flush=True)

    def row_version(self):
        self.count("`rye --version`", lambda v: v.instructions(command=[v.counted, "--version"]))

    def row_plan(self):
        self.count("plan of one directive", lambda v: v.instructions("plan", "loop"))

    def row_plan1000(self):
        if project := self.generated(1000):
            command = ("plan", "area3/task2", "--project", project)
            self.count("plan of one of 1,000", lambda v: v.instructions(command=[v.counted, *command]))

    def row_check1000(self):
        if project := self.generated(1000):
            self.count("check of 1,000", lambda v: v.instructions(command=[v.counted, "check", "--project", project]))

    def row_check10000(self):
        if project := self.generated(10000):
            self.time("check of 10,000", lambda v: v.usage(command=[v.rye, "check", "--project", project])[0])

    def row_new(self):
        def measure(version):
            version.new_project()
            return version.run(reading(0), version.instructions)
        self.count("run of one turn, new project", measure)

    def row_known(self):
        def measure(version):
            version.run(reading(0), version.check)
            return version.run(reading(0), version.instructions)
        self.count("run of one turn, known project", measure)

    def row_tool(self):
        def measure(version):
            version.run(reading(0), version.check)
            few, many = (version.run(reading(turns), version.instructions) for turns in (FEW, MANY))
            return (many - few) / (MANY - FEW)
        self.count("a tool turn", measure)

    def row_turns(self):
        self.time("run of 1,000 turns", lambda v: v.run(reading(999), v.usage)[0], pairs=3)

    def row_children(self):
        def count(version):
            version.new_project()
            return version.run(spawning(200), version.instructions, "lead")

        def measure(version):
            version.new_project()
            return version.run(spawning(1000), version.usage, "lead")[0]
        self.count("run of 200 children", count)
        self.time("run of 1,000 children", measure, pairs=5)
        self.count("`threads list` of them", lambda v: v.instructions("threads", "list"))
        self.count("`threads prune` of them", lambda v: v.instructions("threads", "prune", "--older-than", "0"))
        for version in self.versions:
            version.new_project()

    def row_serve(self):
        self.time("a call of `mcp serve`", served_call, pairs=3)

    def row_reply(self):
        found = []

        def measure(version):
            version.new_project()
            cpu, peak = version.run(long_reply(20_000_000), version.usage)
            found.append(peak)
            return cpu
        self.time("reply of 20 MB", measure, pairs=3)
        earlier, present = statistics.median(found[::2]), statistics.median(found[1::2])
        self.print("reply of 20 MB: peak", f"{earlier:.0f} MiB", f"{present:.0f} MiB", present / earlier)

    def row_watch(self):
        if not (project := self.generated(1000)):
            return

        def measure(version):
            copy = version.folder / "watched"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(project, copy)
            return edited_file(version, copy)
        self.time("check after an edit, among 1,000", measure, pairs=3)


ROWS = [name.removeprefix("row_") for name in vars(Bench) if name.startswith("row_")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("earlier")
    parser.add_argument("present")
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []])
    parser.add_argument("--generate")
    parser.add_argument("--pairs", type=int, default=7)
    args = parser.parse_args()
    args.generate = args.generate and str(Path(args.generate).resolve())
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, Path(folder))
        print("| row | earlier | present | ratio |\n|---|--:|--:|--:|")
        for row in args.rows or ROWS:
            getattr(bench, f"row_{row}")()


main()
