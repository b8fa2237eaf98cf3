# Runs one call of a tool. The result of the function is the answer, as JSON.
def _run():
    given = json.loads(sys.stdin.buffer.read())
    params = given["params"]
    module, write = _load(given)
    _run_source(module, given)
    if given["entry"] == "execute":
        project = given["project_path"]
        result = module.execute(params, project) if _takes_project(module, project) else module.execute(params)
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
    if inspect.isawaitable(result):
        result = asyncio.run(_wait(result))
    if printed is not None and result is None:
        write(printed.getvalue())
    else:
        write(json.dumps(result, ensure_ascii=False, allow_nan=False))


_run()
