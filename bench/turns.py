#!/usr/bin/env python3
"""CPU time of the turns of one long thread over real HTTP.

bench/turns.py RYE [TURNS]: starts a server on loopback that answers each request with one tool call, runs a directive
against it, and reads the CPU time of the process from the operating system at several turns. Prints the user and system
milliseconds of a turn at the start and at the end, and those of the whole run."""

import json
import os
import resource
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from reading_project import DIRECTIVE, PROVIDER

RYE = str(Path(sys.argv[1]).resolve())
TURNS = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
# Turns whose CPU time is read: each window has 50 turns, so that ticks of 10 ms are small beside it.
WINDOW = 50
MARKS = sorted({15, 15 + WINDOW, TURNS - WINDOW - 1, TURNS - 1})


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    turn = 0
    process = None
    cpu = {}
    sizes = {}


def cpu_ms(pid):
    """User and system milliseconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    tick = 1000 / os.sysconf("SC_CLK_TCK")
    return int(fields[11]) * tick, int(fields[12]) * tick


def events(turn):
    usage = {"prompt_tokens": 100 + turn, "completion_tokens": 10}
    if turn >= TURNS:
        delta, reason = {"content": "done"}, "stop"
    else:
        arguments = json.dumps({"path": f"note{turn}.txt"})
        call = {"index": 0, "id": f"call_{turn}", "function": {"name": "rye_file_system_read", "arguments": arguments}}
        delta, reason = {"tool_calls": [call]}, "tool_calls"
    for choice in ({"delta": delta}, {"delta": {}, "finish_reason": reason}):
        yield {"choices": [{"index": 0, **choice}]}
    yield {"choices": [], "usage": usage}


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while self.one():
            pass

    def one(self):
        length = 0
        while (line := self.rfile.readline()) not in (b"\r\n", b""):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        if not line:
            return False
        self.rfile.read(length)
        self.server.turn += 1
        turn = self.server.turn
        if turn in MARKS:
            self.server.cpu[turn] = cpu_ms(self.server.process.pid)
            self.server.sizes[turn] = length
        body = "".join(f"data: {json.dumps(event)}\n\n" for event in events(turn)) + "data: [DONE]\n\n"
        head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n"
        self.wfile.write((head + body).encode())
        return True


def main():
    with tempfile.TemporaryDirectory() as folder:
        project, user = Path(folder, "project"), Path(folder, "user")
        for path in (project / ".ai/directives", project / ".ai/config/agent/providers", user / ".ai"):
            path.mkdir(parents=True)
        (project / ".ai/directives/long.md").write_text(DIRECTIVE.format(name="long", turns=TURNS + 10))
        for turn in range(TURNS + 1):
            (project / f"note{turn}.txt").write_text(f"note {turn}: " + "a line of the note\n" * 10)
        server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        text = PROVIDER.format(port=server.server_address[1])
        (project / ".ai/config/agent/providers/local.yaml").write_text(text)
        environment = {**os.environ, "RYE_USER_SPACE": str(user), "NO_COLOR": "1"}
        subprocess.run([RYE, "trust", "--project", project], env=environment, check=True, capture_output=True)
        start = time.monotonic()
        command = [RYE, "run", "long", "--project", project, "--format", "json"]
        server.process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        _, errors = server.process.communicate()
        wall = time.monotonic() - start
        if server.process.returncode:
            sys.exit(errors.decode())
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        windows = [(MARKS[0], MARKS[1]), (MARKS[2], MARKS[3])]
        for first, last in windows:
            user_ms, system_ms = ((b - a) / (last - first) for a, b in zip(server.cpu[first], server.cpu[last]))
            size = server.sizes[last] / 1024
            print(f"turns {first} to {last}: {user_ms:.2f} ms user, {system_ms:.2f} ms system a turn, {size:.0f} KiB sent")
        print(f"{TURNS} turns: {before.ru_utime + before.ru_stime:.2f} s CPU, {wall:.2f} s, peak {before.ru_maxrss // 1024} MiB")


main()
