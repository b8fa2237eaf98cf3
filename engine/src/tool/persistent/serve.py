# Runs one persistent tool. The first line of the input holds the planned source; each further line is a call. What the
# tool prints joins the log; what `execute` returns is the answer, one line of JSON.
import sys

# Nothing is imported from the folder that is worked in: a `json.py` of a project would run within every tool.
if sys.path[:1] == [""]:
    del sys.path[0]
import asyncio, inspect, json, linecache, os, traceback, types


def _rye():
    held = sys.stdin
    lines = held.buffer
    given = json.loads(lines.readline())
    path, source, project = given["path"], given["source"], given["project_path"]
    answers = os.dup(1)
    os.dup2(2, 1)
    sys.stdin = open(os.devnull)
    sys.argv = [path]
    sys.path.insert(0, os.path.dirname(path))
    linecache.cache[path] = (len(source), None, source.splitlines(True), path)
    module = types.ModuleType("rye_tool")
    module.__file__ = path
    sys.modules["rye_tool"] = module

    def write(value):
        text = json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n"
        data = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode()
        while data:
            data = data[os.write(answers, data):]

    def submit(text, delivery="prompt"):
        write({"submit": {"text": text, "delivery": delivery}})

    module.submit = submit
    exec(compile(source, path, "exec"), module.__dict__)
    takes_project = True
    try:
        inspect.signature(module.execute).bind({}, project)
    except TypeError:
        takes_project = False
    loop = None

    async def wait(value):
        return await value

    for line in iter(lines.readline, b""):
        call = json.loads(line)
        try:
            result = module.execute(call["facts"], project) if takes_project else module.execute(call["facts"])
            if inspect.isawaitable(result):
                loop = loop or asyncio.new_event_loop()
                result = loop.run_until_complete(wait(result))
            json.dumps(result, allow_nan=False)
            answer = {"id": call["id"], "result": result}
        except Exception as error:
            traceback.print_exc()
            answer = {"id": call["id"], "error": f"{type(error).__name__}: {error}"}
        write(answer)


_rye()
