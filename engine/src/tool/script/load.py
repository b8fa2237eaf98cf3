# Loads the source of a tool as a module. What the tool prints joins the log.
import sys

# Nothing is imported from the working folder: a `json.py` of a project would run within every tool.
if sys.path[:1] == [""]:
    del sys.path[0]
import asyncio, importlib.machinery, inspect, io, json, linecache, os, traceback, types


class _FromSource(importlib.machinery.SourceFileLoader):
    """Compiles each module: a compiled file beside it could hold other code than the source that the user trusts."""

    def path_stats(self, path):
        raise OSError


def _read_sources_only(project):
    """Lets imports from the folders of the project read no compiled files."""
    machinery = importlib.machinery
    find = machinery.FileFinder.path_hook(
        (_FromSource, machinery.SOURCE_SUFFIXES), (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES)
    )

    def hook(folder):
        # Installed packages are not part of what the user trusts.
        if not (folder + os.sep).startswith(project + os.sep) or "site-packages" in folder:
            raise ImportError
        return find(folder)

    sys.path_hooks.insert(0, hook)


def _load(given):
    """Returns the module of the tool, and a function that writes a text to the engine."""
    path, source = given["path"], given["source"]
    answers = os.dup(1)
    os.dup2(2, 1)
    sys.stdin = open(os.devnull)
    sys.argv = [path]
    _read_sources_only(given["project_path"])
    # Last: a file of the project must not replace a module that an installed package imports.
    sys.path.append(os.path.dirname(path))
    linecache.cache[path] = (len(source), None, source.splitlines(True), path)
    module = types.ModuleType("rye_tool")
    module.__file__ = path
    sys.modules["rye_tool"] = module

    def write(text):
        data = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode()
        while data:
            data = data[os.write(answers, data):]

    return module, write


def _run_source(module, given):
    exec(compile(given["source"], given["path"], "exec"), module.__dict__)


def _takes_project(module, project):
    """Returns true if `execute` accepts the path of the project beside its parameters."""
    try:
        inspect.signature(module.execute).bind({}, project)
    except TypeError:
        return False
    return True


async def _wait(value):
    return await value
