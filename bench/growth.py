#!/usr/bin/env python3
"""Costs that must not grow, of whole processes against a model server on loopback.

bench/growth.py RYE [ROW ...] [--children N] [--live N] [--calls N]: prints the CPU time that the operating system accounts to the process.

    serve      tools/call of a read in `rye mcp serve`: the first 100 calls, and the 100 calls after N
    children   CPU of a child at the start and at the end of N children of one root
    live       resident memory of N threads that wait for their models over HTTP at the same time
    list       `rye threads list` and `rye threads prune` of the threads of the row `children`
    reply      peak memory of a turn whose reply has 20 MB
    leftovers  files left behind by 200 runs and by 50 killed runs

`--peer 'COMMAND'` measures another MCP server in the row `serve`, beside rye: the command gets the folder as last argument."""

import argparse
import asyncio
import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROWS = ("serve", "children", "live", "list", "reply", "leftovers")
TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


def cpu_ms(pid):
    """User and system milliseconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * TICK_MS


def resident_kib(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


class ModelServer:
    """Answers requests in the form of `openai-chat`. `reply(n, body)` gives the message of the n-th request; `hold` delays all but the first."""

    def __init__(self, reply):
        self.reply, self.requests, self.marks, self.hold = reply, 0, {}, None
        self.loop, self.ready = asyncio.new_event_loop(), threading.Event()
        threading.Thread(target=self.run, daemon=True).start()
        self.ready.wait()

    def run(self):
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(asyncio.start_server(self.serve, "127.0.0.1", 0, limit=1 << 26, backlog=4096))
        self.port = server.sockets[0].getsockname()[1]
        self.ready.set()
        self.loop.run_forever()

    async def serve(self, reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                body = await reader.readexactly(length)
                self.requests += 1
                number = self.requests
                if number in self.marks:
                    self.marks[number]()
                if self.hold and number > 1:
                    await self.hold.wait()
                events = self.reply(number, body)
                text = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
                writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {len(text)}\r\n\r\n{text}".encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


def message(delta, reason):
    for choice in ({"delta": delta}, {"delta": {}, "finish_reason": reason}):
        yield {"choices": [{"index": 0, **choice}]}
    yield {"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 10}}


def done(*_):
    return message({"content": "done"}, "stop")


def make_project(folder, server):
    for path in ("project/.ai/directives", "project/.ai/config/agent/providers", "user/.ai"):
        (folder / path).mkdir(parents=True)
    head = '<model provider="local"/><nudge>never</nudge>'
    bodies = {
        "talk": f'{head}<limits turns="5" spend="0.01"/>',
        "lead": f'{head}<limits turns="5" tokens="1000000000" spend="1000" spawns="100000"/>'
                "<permissions><execute><directive>*</directive></execute></permissions>",
    }
    for name, body in bodies.items():
        text = (f'# {name}\n\n```xml\n<directive name="{name}" version="1.0.0"><metadata><description>{name}</description>'
                f"{body}</metadata></directive>\n```\n\nTalk.\n")
        (folder / f"project/.ai/directives/{name}.md").write_text(text)
    provider = (f"id: local\nwire: openai-chat\nbase_url: http://127.0.0.1:{server.port}/v1\ndefault_tier: general\ntiers: {{ general: model }}\n"
                "models:\n  - { id: model, context_window: 100000000, max_output: 4096, prices: none }\n")
    (folder / "project/.ai/config/agent/providers/local.yaml").write_text(provider)


def environment(folder):
    return {**os.environ, "RYE_USER_SPACE": str(folder / "user"), "NO_COLOR": "1"}


def rye(folder, *arguments, **options):
    return subprocess.run([RYE, *arguments, "--project", folder / "project"], env=environment(folder), check=True,
                          stdin=subprocess.DEVNULL, capture_output=True, **options)


def start(folder, *arguments):
    return subprocess.Popen([RYE, *arguments, "--project", folder / "project"], env=environment(folder), stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


# A process whose memory is small at its start: a child's peak includes the memory of its parent at the start of the child.
MEASURE = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
if done.returncode:
    sys.exit(done.stderr.decode())
print(f"{usage.ru_utime + usage.ru_stime:.3f} s CPU, peak {usage.ru_maxrss / 1024:.0f} MiB", flush=True)
"""


def used_cpu(folder, *arguments):
    """Prints the CPU seconds and the peak memory in MiB of a command of rye."""
    command = [sys.executable, "-c", MEASURE, RYE, *arguments, "--project", str(folder / "project")]
    if subprocess.run(command, env=environment(folder)).returncode:
        sys.exit("the measured command failed")


def spawning(children):
    def reply(number, _):
        if number > 1:
            return done()
        call = json.dumps({"item_type": "directive", "item_id": "talk", "async": True})
        calls = [{"index": n, "id": f"c{n}", "function": {"name": "rye_execute", "arguments": call}} for n in range(children)]
        return message({"tool_calls": calls}, "tool_calls")
    return reply


def limit_children(folder, most):
    (folder / "project/.ai/config/agent/resilience.yaml").write_text(f"concurrency: {{ max_concurrent_children: {most} }}\n")


def row_children(folder, args):
    server = ModelServer(spawning(args.children))
    make_project(folder, server)
    limit_children(folder, 64)
    rye(folder, "trust")
    window = min(250, args.children // 4)
    places, found = (window, 2 * window, args.children - window, args.children), {}
    process = None
    for place in places:
        server.marks[place] = lambda place=place: found.setdefault(place, cpu_ms(process.pid))
    process = start(folder, "run", "lead")
    if process.wait():
        sys.exit("the run of the children failed")
    for first, last in (places[:2], places[2:]):
        print(f"children {first} to {last}: {(found[last] - found[first]) / (last - first):.2f} ms CPU a child")
    if "list" in args.rows:
        print("threads list: ", end="", flush=True)
        used_cpu(folder, "threads", "list")
        began = time.monotonic()
        print("threads prune: ", end="", flush=True)
        used_cpu(folder, "threads", "prune", "--older-than", "0")
        print(f"threads prune: {time.monotonic() - began:.1f} s wall, {args.children + 1} threads")


def row_live(folder, args):
    server = ModelServer(spawning(args.live))
    make_project(folder, server)
    limit_children(folder, args.live)
    rye(folder, "trust")
    server.hold, arrived = asyncio.Event(), threading.Event()
    few = max(args.live // 100, 10)
    memory, process = {}, None
    server.marks[few + 1] = lambda: memory.setdefault(few, resident_kib(process.pid))
    server.marks[args.live + 1] = arrived.set
    process = start(folder, "run", "lead")
    arrived.wait(600)
    memory[args.live] = resident_kib(process.pid)
    server.loop.call_soon_threadsafe(server.hold.set)
    process.wait()
    each = (memory[args.live] - memory[few]) / (args.live - few)
    print(f"{args.live} threads wait at the same time: {memory[args.live] / 1024:.0f} MiB, {each:.1f} KiB a thread")


def row_reply(folder, _):
    text = "a line of a long reply\n" * (20_000_000 // 23)

    def reply(*_):
        size = 4000
        for at in range(0, len(text), size):
            yield {"choices": [{"index": 0, "delta": {"content": text[at:at + size]}}]}
        yield from message({"content": "."}, "stop")

    server = ModelServer(reply)
    make_project(folder, server)
    rye(folder, "trust")
    print("reply of 20 MB: ", end="", flush=True)
    used_cpu(folder, "run", "talk")


def row_leftovers(folder, _):
    server = ModelServer(done)
    make_project(folder, server)
    rye(folder, "trust")
    for _ in range(200):
        rye(folder, "run", "talk")
    for number in range(50):
        process = start(folder, "run", "talk")
        time.sleep(0.002 * number)
        process.send_signal(signal.SIGKILL)
        process.wait()
    rye(folder, "run", "talk")
    state = folder / "project/.ai/state"
    owners = list((state / "owners").iterdir())
    temporary = [path for path in state.rglob("*") if path.name.startswith(".") or path.name.startswith("unsynced-")]
    print(f"after 200 runs, 50 killed runs and one more run: {len(owners)} files of owners, {len(temporary)} temporary files")
    for path in temporary[:5]:
        print(f"    {path.relative_to(state)}")


def serve_calls(command, call, count, cwd, env):
    process = subprocess.Popen(command, cwd=cwd, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def ask(number, method, params):
        process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n")
        process.stdin.flush()
        while True:
            answer = json.loads(process.stdout.readline())
            if answer.get("id") == number:
                return answer

    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    ask(0, "initialize", client)
    process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    cpu, wall = {}, {}
    for number in range(1, count + 101):
        if number in (1, 101, count, count + 100):
            cpu[number], wall[number] = cpu_ms(process.pid), time.monotonic()
        answer = ask(number, "tools/call", call(number))
        if "error" in answer or answer["result"].get("isError"):
            sys.exit(f"call {number}: {answer}")
    for first, last in ((1, 101), (count, count + 100)):
        calls = last - first
        print(f"    calls {first} to {last}: {(cpu[last] - cpu[first]) / calls:.2f} ms CPU a call, {calls / (wall[last] - wall[first]):.0f} calls/s")
    process.stdin.close()
    process.wait()


def row_serve(folder, args):
    server = ModelServer(done)
    make_project(folder, server)
    rye(folder, "trust")
    project = folder / "project"
    for number in range(10):
        (project / f"note{number}.txt").write_text(f"note {number}\n" + "a line of the note\n" * 10)
    print("rye mcp serve:")
    serve_calls([RYE, "mcp", "serve"], lambda n: {"name": "rye_file_system_read", "arguments": {"path": f"note{n % 10}.txt"}}, args.calls,
                project, environment(folder))
    if args.peer:
        print(f"{args.peer}:")
        serve_calls([*shlex.split(args.peer), str(project)],
                    lambda n: {"name": "read_text_file", "arguments": {"path": str(project / f"note{n % 10}.txt")}}, args.calls, project, os.environ)


def main():
    global RYE
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rye")
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []])
    parser.add_argument("--children", type=int, default=4250)
    parser.add_argument("--live", type=int, default=2000)
    parser.add_argument("--calls", type=int, default=4000)
    parser.add_argument("--peer")
    args = parser.parse_args()
    args.rows = args.rows or list(ROWS)
    RYE = str(Path(args.rye).resolve())
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    rows = {"serve": row_serve, "children": row_children, "live": row_live, "reply": row_reply, "leftovers": row_leftovers}
    for name, row in rows.items():
        if name in args.rows or (name == "children" and "list" in args.rows):
            folder = Path(tempfile.mkdtemp())
            try:
                row(folder, args)
            finally:
                shutil.rmtree(folder)


main()
