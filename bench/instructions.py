#!/usr/bin/env python3
"""User instructions of whole processes, counted by callgrind.

bench/instructions.py RYE [DIRECTORY]: counts one turn in a project with earlier runs, against a server on loopback, a tool turn (the
difference of runs with 5 and 25 tool turns), a plan of the same directive and `--version`. With a project of `generate 1000 DIRECTORY`,
also counts a check of the project and a plan of one of its directives.

Callgrind hides the vDSO and does not know `openat2` and the SHA instructions of the processor. The script runs a copy of the program whose
requests for the vDSO fail, and the program then opens each folder of a path. The counts are higher than on the processor, but equal in
every run."""

import json
import re
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from reading_project import write_project

# The code of the request PR_GET_AUXV, and a code that no kernel knows.
AUXV, UNKNOWN = bytes.fromhex("56585541"), bytes.fromhex("57585541")
FEW, MANY = 5, 25


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Tool turns before the last reply of the current run, and the requests that the run has sent.
    tool_turns = requests = 0

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        Server.requests += 1
        if Server.requests > Server.tool_turns:
            delta, reason = {"content": "done"}, "stop"
        else:
            function = {"name": "rye_file_system_read", "arguments": json.dumps({"path": "note.txt"})}
            call = {"index": 0, "id": f"call_{Server.requests}", "type": "function", "function": function}
            delta, reason = {"tool_calls": [call]}, "tool_calls"
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        choices = [{"index": 0, "delta": delta}], [{"index": 0, "delta": {}, "finish_reason": reason}]
        chunks = [{"choices": choices[0]}, {"choices": choices[1]}, {"choices": [], "usage": usage}]
        text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


def count(command, env):
    """Instructions of a command that ends successfully."""
    counted = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *command]
    done = subprocess.run(counted, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or not found:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr}")
    return int(found[1])


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folder = Path(tempfile.mkdtemp())
    rye = folder / "rye"
    rye.write_bytes(Path(sys.argv[1]).read_bytes().replace(AUXV, UNKNOWN))
    rye.chmod(0o755)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    env = write_project(folder, rye, server.server_port)

    def run(tool_turns):
        Server.tool_turns, Server.requests = tool_turns, 0
        return count([rye, "run", "loop", "--project", folder], env)

    run(0)
    rows = {"one turn, known project": run(0), "one tool turn": (-run(FEW) + run(MANY)) / (MANY - FEW)}
    rows["plan"] = count([rye, "plan", "loop", "--project", folder], env)
    rows["--version"] = count([rye, "--version"], env)
    if len(sys.argv) == 3:
        rows["check of the project"] = count([rye, "check", "--project", sys.argv[2]], env)
        rows["plan of one of its directives"] = count([rye, "plan", "area3/task2", "--project", sys.argv[2]], env)
    for name, instructions in rows.items():
        print(f"{name:32} {instructions / 1e6:9.2f} M")


main()
