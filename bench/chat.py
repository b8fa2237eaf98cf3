#!/usr/bin/env python3
"""Response times, CPU time and memory of `rye chat`.

bench/chat.py RYE [NAME...]: starts a model server on loopback and measures sessions against it, in a pseudoterminal and
with JSON lines. The names are those of the functions in MEASUREMENTS; without names, all run."""

import fcntl
import json
import os
import pty
import select
import signal
import socketserver
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path

RYE = str(Path(sys.argv[1]).resolve())
TICK = os.sysconf("SC_CLK_TCK")

DIRECTIVE = """# Talk

```xml
<directive name="talk" version="1.0.0">
  <metadata>
    <description>Talk.</description>
    <model provider="local" tier="fast"/>
    <limits turns="4" spend="0.50"/>
    <permissions><execute><tool>rye.file-system.read</tool></execute></permissions>
  </metadata>
</directive>
```

Answer briefly.
"""
COMMANDS = """commands:
  - id: where
    execute: { item_type: tool, item_id: team/answer, params: { text: "of ${args}" } }
"""
ANSWER = """#!/bin/sh
# rye: {description: Answers a command., parameters: {type: object, properties: {text: {type: string}}}}
printf '{"action":"show","text":"%s"}' "$RYE_PARAM_text"
"""
HOOKS = """hooks:
  - { id: plain, event: input, condition: "text == 'plain'", action: handled }
  - { id: process, event: input, condition: "text == 'process'", action: { primary: execute, item_type: tool, item_id: team/persistent } }
"""
PERSISTENT = """#!/usr/bin/env python3
# rye: {description: Handles messages., persistent: true}
import json, sys
for line in sys.stdin:
    print(json.dumps({"id": json.loads(line)["id"], "action": "handled"}), flush=True)
"""
CHUNK = "data: " + json.dumps({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [
    {"index": 0, "delta": {"role": "assistant", "content": "word "}, "finish_reason": None}]}) + "\n\n"
END = ("data: " + json.dumps({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [
    {"index": 0, "delta": {}, "finish_reason": "stop"}]}) + "\n\ndata: " + json.dumps({
        "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}}) + "\n\ndata: [DONE]\n\n")


class Model(socketserver.BaseRequestHandler):
    """Answers each request with `chunks` pieces at `rate` pieces a second; waits for `released` before the end."""

    chunks, rate = 1, None
    released = threading.Event()
    closed = threading.Event()

    def handle(self):
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.request.recv(65536)
        head, _, body = data.partition(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
        while len(body) < length:
            body += self.request.recv(65536)
        self.request.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        try:
            begin = time.monotonic()
            for n in range(Model.chunks):
                self.request.sendall(CHUNK.encode())
                if Model.rate:
                    time.sleep(max(0, begin + (n + 1) / Model.rate - time.monotonic()))
            while not Model.released.wait(0.005):
                # The client closes the connection of an interrupted call.
                if select.select([self.request], [], [], 0)[0] and not self.request.recv(1):
                    Model.closed.set()
                    return
            self.request.sendall(END.encode())
        except OSError:
            Model.closed.set()


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


SERVER = Server(("127.0.0.1", 0), Model)
threading.Thread(target=SERVER.serve_forever, daemon=True).start()


class Project:
    def __init__(self, items=0):
        self.folder = tempfile.TemporaryDirectory()
        self.root, self.home = Path(self.folder.name) / "project", Path(self.folder.name) / "home"
        (self.home / ".ai").mkdir(parents=True)
        provider = f"id: local\nwire: openai-chat\nbase_url: http://127.0.0.1:{SERVER.server_address[1]}\ndefault_tier: fast\n" \
            "tiers: { fast: m }\nmodels:\n  - { id: m, context_window: 9000000, max_output: 2000, tool_use: native, prices: { input: 0.001, output: 0.001 } }\n"
        files = {"directives/talk.md": DIRECTIVE, "config/agent/providers/local.yaml": provider, "config/agent/chat.yaml": COMMANDS,
                 "config/agent/hooks.yaml": HOOKS, "tools/team/answer.sh": ANSWER, "tools/team/persistent.py": PERSISTENT}
        files.update({f"directives/more/item{n}.md": DIRECTIVE.replace('"talk"', f'"item{n}"') for n in range(items)})
        for name, text in files.items():
            path = self.root / ".ai" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "TERM": "xterm-256color"}
        subprocess.run([RYE, "trust"], cwd=self.root, env=self.env, check=True, capture_output=True)


class Lines:
    """A session with JSON lines."""

    def __init__(self, project, *args):
        self.project = project
        self.process = subprocess.Popen([RYE, "chat", *args, "--format", "json"], cwd=project.root, env=project.env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def write(self, **request):
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()

    def event(self, kind):
        while True:
            line = self.process.stdout.readline()
            assert line, "the session has ended"
            if f'"{kind}"'.encode() in line and json.loads(line).get("event", {}).get("type") == kind:
                return

    def timed(self, kind, **request):
        begin = time.monotonic()
        self.write(**request)
        self.event(kind)
        return 1000 * (time.monotonic() - begin)

    def end(self):
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.wait()


class Terminal:
    """A session in a pseudoterminal of 100 columns and 30 rows."""

    def __init__(self, project, *args):
        self.project, self.begin = project, time.monotonic()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(project.root)
            os.execve(RYE, [RYE, "chat", *args], project.env)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))

    def read(self, timeout):
        if not select.select([self.fd], [], [], timeout)[0]:
            return b""
        try:
            found = os.read(self.fd, 65536)
        except OSError:
            # The process has ended.
            return b""
        if b"\x1b[6n" in found:
            os.write(self.fd, b"\x1b[1;1R")
        return found

    def wait_for(self, *texts, timeout=60):
        """Reads until one of the texts was written; returns the milliseconds since the call."""
        begin, seen = time.monotonic(), b""
        while time.monotonic() < begin + timeout:
            seen = seen[-4096:] + self.read(1)
            if any(text in seen for text in texts):
                return 1000 * (time.monotonic() - begin)
        raise AssertionError(f"no {texts} in {seen[-600:]}")

    def drain(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.read(max(0, until - time.monotonic()))

    def press(self, keys):
        os.write(self.fd, keys)

    def cpu_ms(self):
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return 1000 * (int(fields[11]) + int(fields[12])) / TICK

    def peak_mb(self):
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def switches(self):
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "status").read_text().split("voluntary_ctxt_switches:")[1].split()[0]) for task in tasks)

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def show(name, values):
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    print(f"{name}: median {statistics.median(ordered):.1f} ms, p99 {p99:.1f} ms, maximum {ordered[-1]:.1f} ms ({len(ordered)} samples)", flush=True)


def command():
    """A command of the settings while a reply streams: its tool is a process."""
    Model.chunks, Model.rate = 1, None
    Model.released.clear()
    lines = Lines(Project(), "talk")
    lines.event("plan_bound")
    lines.write(type="prompt", message="go")
    lines.event("token_delta")
    show("a command while a reply streams", [lines.timed("command_ran", type="prompt", message="/where here") for _ in range(100)])
    program = [time_of(["sh", "-c", "printf x"]) for _ in range(100)]
    show("of this, a bare `sh`", program)
    Model.released.set()
    lines.event("prompt_ended")
    lines.end()


def time_of(args):
    begin = time.monotonic()
    subprocess.run(args, capture_output=True, check=True)
    return 1000 * (time.monotonic() - begin)


def hook():
    """A message that a hook handles: without a process, and with a persistent tool."""
    lines = Lines(Project(), "talk")
    lines.event("plan_bound")
    lines.timed("user_input", type="prompt", message="process")
    plain = [lines.timed("user_input", type="prompt", message="plain") for _ in range(200)]
    process = [lines.timed("user_input", type="prompt", message="process") for _ in range(200)]
    show("a message that a declarative hook handles", plain)
    show("a message that a persistent tool handles", process)
    print(f"difference of the medians: {statistics.median(process) - statistics.median(plain):.2f} ms", flush=True)
    lines.end()


def key():
    """From a key to the bytes on the screen: idle, and with 2,000 deltas a second."""
    for name, rate in [("idle", None), ("with 2,000 deltas a second", 2000)]:
        Model.chunks, Model.rate = (40_000 if rate else 1), rate
        Model.released.clear()
        terminal = Terminal(Project(), "talk")
        terminal.wait_for(b"Enter sends")
        terminal.drain(0.5)
        if rate:
            terminal.press(b"go\r")
            terminal.wait_for(b"word")
            terminal.drain(1)
        before, times = terminal.cpu_ms(), []
        for n in range(200):
            mark = b"%c" % (0x41 + n % 26)
            # Each text has a letter that the screen does not show yet.
            begin = time.monotonic()
            terminal.press(mark)
            terminal.wait_for(mark)
            times.append(1000 * (time.monotonic() - begin))
            if n % 26 == 25:
                terminal.press(b"\x15")
            terminal.drain(0.02)
        show(f"key to screen, {name}", times)
        if not rate:
            print(f"CPU for each key: {(terminal.cpu_ms() - before) / 200:.2f} ms", flush=True)
        terminal.end()


def start():
    """From the start of the process to the editor, with 1,000 items."""
    project, times = Project(items=1000), []
    for _ in range(20):
        terminal = Terminal(project, "talk")
        terminal.wait_for(b"Enter sends")
        times.append(1000 * (time.monotonic() - terminal.begin))
        terminal.drain(0.3)
        size = terminal.peak_mb()
        before = terminal.switches()
        terminal.drain(3)
        wakes = (terminal.switches() - before) / 3
        terminal.end()
    show("start to the editor with 1,000 items", times)
    print(f"memory at the start: {size:.1f} MB; wake-ups while idle: {wakes:.1f} a second", flush=True)


def resume():
    """Memory after 1,000 turns, and the start of a session with them."""
    Model.chunks, Model.rate = 1, None
    Model.released.set()
    project = Project()
    lines = Lines(project, "talk", "--limit", "spend=0.01")
    lines.event("plan_bound")
    for _ in range(1000):
        lines.write(type="prompt", message="go")
        lines.event("prompt_ended")
    lines.end()
    times = []
    for _ in range(10):
        terminal = Terminal(project, "-c")
        terminal.wait_for(b"Enter sends")
        times.append(1000 * (time.monotonic() - terminal.begin))
        terminal.drain(0.5)
        size = terminal.peak_mb()
        terminal.press(b"\x04")
        terminal.drain(0.5)
        terminal.end()
    show("start of a session with 1,000 turns", times)
    print(f"memory with 1,000 turns: {size:.1f} MB", flush=True)


def delta():
    """CPU time for each streamed piece, at the start and after many."""
    Model.chunks, Model.rate = 20_000, 4000
    Model.released.clear()
    terminal = Terminal(Project(), "talk")
    terminal.wait_for(b"Enter sends")
    terminal.drain(0.5)
    terminal.press(b"go\r")
    terminal.wait_for(b"word")
    costs = []
    for _ in range(2):
        before = terminal.cpu_ms()
        terminal.drain(2)
        costs.append((terminal.cpu_ms() - before) / 8000 * 1000)
    print(f"CPU for each delta: {costs[0]:.0f} µs, later {costs[1]:.0f} µs", flush=True)
    terminal.end()


def interrupt():
    """From Esc to the end of the stream, as the server sees it."""
    times = []
    terminal = Terminal(Project(), "talk")
    terminal.wait_for(b"Enter sends")
    terminal.drain(0.5)
    for _ in range(20):
        Model.chunks, Model.rate = 3, None
        Model.released.clear()
        Model.closed.clear()
        terminal.press(b"go\r")
        terminal.wait_for(b"word")
        terminal.drain(0.2)
        begin = time.monotonic()
        terminal.press(b"\x1b")
        while not Model.closed.is_set():
            terminal.read(0.001)
        times.append(1000 * (time.monotonic() - begin))
        terminal.drain(0.5)
        terminal.press(b"\x15")
    show("Esc to the closed stream", times)
    terminal.end()


MEASUREMENTS = {f.__name__: f for f in [command, hook, key, start, resume, delta, interrupt]}
for name in sys.argv[2:] or MEASUREMENTS:
    MEASUREMENTS[name]()
