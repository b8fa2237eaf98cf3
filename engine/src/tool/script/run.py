# Runs one tool: the source that was planned, as a module at its own place. What it prints joins the log; what it
# returns is the answer, as JSON.
import sys

# Nothing is imported from the folder that is worked in: a `json.py` of a project would run within every tool.
if sys.path[:1] == [""]:
    del sys.path[0]
import asyncio, inspect, io, json, linecache, os, types


def _rye():
    given = json.loads(sys.stdin.buffer.read())
    path, source, params = given["path"], given["source"], given["params"]
    answer = os.dup(1)
    os.dup2(2, 1)
    sys.stdin = open(os.devnull)
    sys.argv = [path]
    sys.path.insert(0, os.path.dirname(path))
    linecache.cache[path] = (len(source), None, source.splitlines(True), path)
    module = types.ModuleType("rye_tool")
    module.__file__ = path
    sys.modules["rye_tool"] = module
    exec(compile(source, path, "exec"), module.__dict__)
    if given["entry"] == "execute":
        wanted = [params, given["project_path"]]
        try:
            inspect.signature(module.execute).bind(*wanted)
        except TypeError:
            wanted = wanted[:1]
        result = module.execute(*wanted)
        printed = None
    else:
        sys.stdin = io.TextIOWrapper(io.BytesIO(json.dumps(params).encode()), encoding="utf-8")
        sys.stdout = printed = io.StringIO()
        result, code = None, 0
        try:
            result = module.main()
        except SystemExit as end:
            code = end.code
        if code not in (None, 0):
            sys.stderr.write(printed.getvalue())
            raise SystemExit(code)

    async def wait(value):
        return await value

    if inspect.isawaitable(result):
        result = asyncio.run(wait(result))
    if printed is not None and result is None:
        text = printed.getvalue()
    else:
        text = json.dumps(result, ensure_ascii=False, allow_nan=False)
    data = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode()
    while data:
        data = data[os.write(answer, data):]


_rye()
