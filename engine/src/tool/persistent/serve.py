# Runs one persistent tool. The first line of the input holds the planned source; each further line is a call. The
# result of `execute` is the answer, one line of JSON.
def _serve():
    # The reference keeps the input open: `_load` replaces `sys.stdin`.
    held = sys.stdin
    lines = held.buffer
    given = json.loads(lines.readline())
    module, write_text = _load(given)

    def write(value):
        write_text(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")

    def submit(text, delivery="prompt"):
        write({"submit": {"text": text, "delivery": delivery}})

    def flush():
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass

    module.submit = submit
    _run_source(module, given)
    project = given["project_path"]
    takes_project = _takes_project(module, project)
    loop = None
    for line in iter(lines.readline, b""):
        call = json.loads(line)
        try:
            result = module.execute(call["facts"], project) if takes_project else module.execute(call["facts"])
            if inspect.isawaitable(result):
                loop = loop or asyncio.new_event_loop()
                result = loop.run_until_complete(_wait(result))
            json.dumps(result, allow_nan=False)
            answer = {"id": call["id"], "result": result}
        except Exception as error:
            flush()
            traceback.print_exc()
            answer = {"id": call["id"], "error": f"{type(error).__name__}: {error}"}
        # The log of the call is complete before its answer.
        flush()
        write(answer)


_serve()
