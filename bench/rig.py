#!/usr/bin/env python3
"""Compares one turn and one tool turn of `rye run` with an agent of the library rig, which stores nothing.

bench/rig.py RYE RUNS TURNS: only runs `rye`, with TURNS tool turns, for a profiler.
bench/rig.py RYE [RUNS]: builds `bench/rig-agent`, and runs both programs alternately against the same model server on loopback,
with one turn and with 50 tool turns (a call that reads a file). Prints medians and ratios of the CPU time of the process, its children
included, and of the elapsed time, which includes the server's. rye runs in a project with earlier runs, and records, signs and syncs every turn."""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from reading_project import write_project

RYE = str(Path(sys.argv[1]).resolve())
RUNS = int(sys.argv[2]) if len(sys.argv) > 2 else 15
TOOL_TURNS = 50
# Tool turns of the runs for a profiler.
PROFILED = int(sys.argv[3]) if len(sys.argv) > 3 else None
HERE = Path(__file__).resolve().parent


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    # Tool turns before the last reply of the current run, and the requests that the run has sent.
    tool_turns = requests = 0

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        Server.requests += 1
        last = Server.requests > Server.tool_turns
        function = {"name": "rye_file_system_read", "arguments": json.dumps({"path": "note.txt"})}
        call = {"id": f"call_{Server.requests}", "type": "function", "function": function}
        reply = {"role": "assistant", "content": "done"} if last else {"role": "assistant", "content": None, "tool_calls": [call]}
        reason = "stop" if last else "tool_calls"
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        head = {"id": "reply", "object": "chat.completion", "created": 1, "model": "model"}
        if request.get("stream"):
            if "tool_calls" in reply:
                reply["tool_calls"] = [{"index": 0, **call}]
            chunks = [{**head, "choices": [{"index": 0, "delta": reply}]},
                      {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}, {**head, "choices": [], "usage": usage}]
            text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
            kind = "text/event-stream"
        else:
            text = json.dumps({**head, "choices": [{"index": 0, "message": reply, "finish_reason": reason}], "usage": usage})
            kind = "application/json"
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


def measure(command, env, tool_turns):
    """CPU milliseconds of a command and of the processes that it has waited for, and its elapsed milliseconds."""
    Server.tool_turns, Server.requests = tool_turns, 0
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, env=env, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    if Server.requests != tool_turns + 1:
        sys.exit(f"{command[0]} sent {Server.requests} requests instead of {tool_turns + 1}")
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime), 1000 * (ended - began)


def main():
    build = ["cargo", "build", "--quiet", "--release", "--manifest-path", HERE / "rig-agent/Cargo.toml"]
    folder = Path(tempfile.mkdtemp())
    target = Path(os.environ.get("CARGO_TARGET_DIR", HERE / "rig-agent/target"))
    if PROFILED is None:
        subprocess.run(build, check=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    env = write_project(folder, RYE, server.server_port)
    programs = {
        "rye": lambda _: [RYE, "run", "loop", "--project", folder],
        "rig": lambda turns: [target / "release/rig-agent", f"http://127.0.0.1:{server.server_port}/v1", folder, str(turns)],
    }
    if PROFILED is not None:
        figures = [measure(programs["rye"](PROFILED), env, PROFILED)[0] for _ in range(RUNS)]
        print(f"{RUNS} runs with {PROFILED} tool turns: {statistics.median(figures):.2f} ms CPU")
        return
    measured = {(name, turns): [] for name in programs for turns in (0, TOOL_TURNS)}
    for number in range(RUNS + 1):
        for (name, turns), times in measured.items():
            figures = measure(programs[name](turns + 2), env, turns)
            # The first round is not counted: rye prepares its storage in it.
            if number:
                times.append(figures)
    for place, kind in enumerate(("CPU", "elapsed")):
        of = {key: [figures[place] for figures in times] for key, times in measured.items()}
        rows = {"one turn": {name: of[name, 0] for name in programs}}
        rows["tool turn"] = {name: [(late - early) / TOOL_TURNS for early, late in zip(of[name, 0], of[name, TOOL_TURNS])]
                             for name in programs}
        for row, times in rows.items():
            rye, rig = (statistics.median(times[name]) for name in ("rye", "rig"))
            print(f"{row}, {kind}: rye {rye:.2f} ms, rig {rig:.2f} ms, ratio {rye / rig:.2f}")


main()
