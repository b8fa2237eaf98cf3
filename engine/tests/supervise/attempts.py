"""Runs attempts to leave a sandbox and reports each on a line of its own: `refused NAME`, `missing NAME` (this machine
cannot try it) or `PASSED NAME: result`.
"""
import ctypes
import os
import platform
import signal

X86 = platform.machine() == "x86_64"
libc = ctypes.CDLL(None, use_errno=True)


class Missing(Exception):
    pass


def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def system_call(numbers, *arguments):
    """Makes a system call by its numbers: on x86-64 and in the generic table."""
    return check(libc.syscall(ctypes.c_long(numbers[0 if X86 else 1]), *(
        ctypes.c_long(a) if isinstance(a, int) else a for a in arguments)))


def run_attempts(attempts, refusals):
    for name, what in attempts.items():
        attempt(name, what, refusals)


def attempt(name, what, refusals):
    """Tries in a child, which an attempt may end."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            text = f"PASSED {name}: {what()}"
        except OSError as error:
            text = f"refused {name}" if error.errno in refusals else f"PASSED {name}: {error}"
        except ValueError as error:
            text = f"refused {name}" if "limit" in str(error) else f"PASSED {name}: {error}"
        except Missing:
            text = f"missing {name}"
        os.write(writer, text.encode()[:4000])
        os._exit(0)
    os.close(writer)
    text = os.read(reader, 4096).decode()
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    if not text and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSYS:
        text = f"refused {name}"
    print(text or f"PASSED {name}: status {status}", flush=True)
