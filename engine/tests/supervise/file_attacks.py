"""Attempts to reach files, services and privileges outside the sandbox: `file_attacks.py ROOT ABSTRACT NET`.

Runs in the project of the simulated machine at ROOT, where only `out/` is writable.
"""
import errno
import mmap
import os
import resource
import signal
import socket
import stat
import subprocess
import sys

from attempts import Missing, check, libc, run_attempts, system_call

ROOT, ABSTRACT, NET = sys.argv[1], sys.argv[2], sys.argv[3] == "net"
HOME, USER, OTHER, PROJECT = (os.path.join(ROOT, name) for name in ("home", "user", "other", "project"))
SECRET = f"{HOME}/.ssh/id_ed25519"
AT_FDCWD, AT_EMPTY_PATH, RENAME_EXCHANGE = -100, 0x1000, 2
# The number on x86-64, the number in the generic table.
NR = {"openat2": (437, 437), "execveat": (322, 281), "mknodat": (259, 33), "renameat2": (316, 276), "capset": (126, 91),
      "setns": (308, 268), "setgroups": (116, 159)}


def call(name, *arguments):
    return system_call(NR[name], *arguments)


def read(path):
    with open(path, "rb") as file:
        return file.read(100)


def read_if_there(path):
    if not os.path.lexists(path):
        raise Missing
    return read(path)


def private_settings():
    """Reads the files of /etc that not every user can read."""
    found = [os.path.join(folder, name) for folder, _, names in os.walk("/etc") for name in names]
    private = [path for path in found if not os.path.islink(path) and not os.stat(path).st_mode & stat.S_IROTH]
    if not private:
        raise Missing
    for path in private:
        try:
            return path, read(path)
        except PermissionError:
            pass
    raise PermissionError(errno.EACCES, f"{len(private)} files")


def list_if_there(path):
    if not os.path.isdir(path):
        raise Missing
    return os.listdir(path)


def scratch(name):
    return f"out/{os.getpid()}-{name}"


def by_link(path):
    link = scratch("link")
    os.symlink(path, link)
    return read(link)


def by_linked_folder(path):
    link = scratch("folder")
    os.symlink(os.path.dirname(path), link)
    return read(f"{link}/{os.path.basename(path)}")


def by_hard_link(path):
    link = scratch("hard")
    os.link(path, link)
    return read(link)


def by_handle(path):
    """Opens a handle without rights, and a file through it."""
    fd = os.open(path, os.O_PATH)
    return read(f"/proc/self/fd/{fd}")


def by_hard_link_of_a_handle(path):
    fd, link = os.open(path, os.O_PATH), scratch("handle")
    check(libc.linkat(fd, b"", AT_FDCWD, link.encode(), AT_EMPTY_PATH))
    return read(link)


def by_rename(path):
    to = scratch("moved")
    os.rename(path, to)
    return read(to)


def by_exchange(path):
    own = scratch("exchanged")
    open(own, "w").close()
    call("renameat2", AT_FDCWD, path.encode(), AT_FDCWD, own.encode(), RENAME_EXCHANGE)
    return read(own)


def by_folder_handle(path):
    fd = os.open(os.path.dirname(path), os.O_PATH)
    return os.open(os.path.basename(path), os.O_RDONLY, dir_fd=fd)


def by_openat2(path):
    return call("openat2", AT_FDCWD, path.encode(), bytes(24), 24)


def by_folder_change(path):
    os.chdir(os.path.dirname(path))
    return read(os.path.basename(path))


def race(path, attempt):
    """Exchanges a file and a link to the target while the attempt opens the name; ends at the first result."""
    name, link, own = scratch("race"), scratch("race-link"), scratch("race-file")
    os.symlink(path, link)
    open(own, "w").close()
    os.link(own, name)
    child = os.fork()
    if child == 0:
        while True:
            call("renameat2", AT_FDCWD, name.encode(), AT_FDCWD, link.encode(), RENAME_EXCHANGE)
    refused = 0
    try:
        while refused < 200:
            try:
                result = attempt(name)
                if result:
                    return result
            except PermissionError:
                refused += 1
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    raise PermissionError(errno.EACCES, "every time")


def by_race(path):
    return race(path, read)


def output_of(*argv, **options):
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, **options)
    if b"the secret key" in done.stdout:
        return done.stdout
    raise PermissionError(errno.EACCES, "no secret")


def by_program_in_memory(path):
    """Executes a copy of a program that has no path."""
    fd = os.memfd_create("x")
    with open("/bin/cat", "rb") as program:
        os.write(fd, program.read())
    return output_of(f"/proc/self/fd/{fd}", path, pass_fds=[fd])


def by_copied_program(path):
    program = scratch("cat")
    with open("/bin/cat", "rb") as source, open(program, "wb") as copy:
        copy.write(source.read())
    os.chmod(program, 0o6755)
    return output_of(program, path)


def by_preloaded_library(path):
    """Executes a program with a library that reads the file before `main`."""
    source, library = scratch("x.c"), scratch("x.so")
    with open(source, "w") as file:
        file.write('#include <stdio.h>\n__attribute__((constructor)) void f(void) { char b[99]; FILE *f = fopen("%s", "r");'
                   ' if (f && fgets(b, 99, f)) puts(b); }\n' % path)
    try:
        done = subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], capture_output=True)
    except OSError:
        raise Missing
    if done.returncode != 0:
        raise Missing
    return output_of("/bin/true", env={"LD_PRELOAD": os.path.abspath(library)})


def by_interpreter_line(path):
    script = scratch("script")
    with open(script, "w") as file:
        file.write(f"#!/bin/cat {path}\n")
    os.chmod(script, 0o755)
    return output_of(script)


def by_detached_session(path):
    return output_of("setsid", "-f", "-w", "cat", path)


WAYS = {
    "by its path": read,
    "by a path with ..": lambda path: read(f"{PROJECT}/../project/src/../../{os.path.relpath(path, ROOT)}"),
    "below /proc/self/root": lambda path: read(f"/proc/self/root{path}"),
    "below /proc/self/cwd": lambda path: read(f"/proc/self/cwd/../{os.path.relpath(path, ROOT)}"),
    "by a double slash": lambda path: read("/" + path.replace("/", "//./")),
    "by a symbolic link": by_link,
    "below a linked folder": by_linked_folder,
    "by a hard link": by_hard_link,
    "by a handle": by_handle,
    "by a hard link of a handle": by_hard_link_of_a_handle,
    "by a rename": by_rename,
    "by an exchange": by_exchange,
    "below a handle of its folder": by_folder_handle,
    "by openat2": by_openat2,
    "after a change of the folder": by_folder_change,
    "by a race of links": by_race,
    "by a program in memory": by_program_in_memory,
    "by a copied setuid program": by_copied_program,
    "by a preloaded library": by_preloaded_library,
    "by an interpreter line": by_interpreter_line,
    "in a session of its own": by_detached_session,
    "by executing it": lambda path: os.execv(path, ["x"]),
}

# Planted by the test, one path a line.
CREDENTIALS = open("credentials.txt").read().split()
OUTSIDE = [f"{USER}/.ai/keys/private.pem", f"{USER}/.ai/trust/x.json", f"{OTHER}/file.txt",
           f"{PROJECT}/.ai/state/threads/t/transcript.jsonl", f"{PROJECT}/.ai/keys/k"]
# Of this machine: refused, or missing.
SYSTEM = [
    "/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssl/private/ssl-cert-snakeoil.key", "/etc/ssh/ssh_host_ed25519_key",
    "/etc/ssh/ssh_host_rsa_key", "/etc/krb5.keytab", "/etc/kubernetes/admin.conf", "/etc/security/opasswd",
    "/etc/mysql/debian.cnf", "/etc/apt/auth.conf", "/var/lib/dpkg/status", "/var/log/dpkg.log", "/var/lib/dbus/machine-id",
    "/run/secrets/x", "/var/run/secrets/kubernetes.io/serviceaccount/token", "/root/.bashrc", "/proc/kcore", "/proc/1/environ",
    "/proc/1/mem", "/sys/kernel/debug/tracing", "/sys/firmware/efi/vars", "/dev/mem", "/dev/kmem", "/dev/port",
    "/dev/sda", "/dev/vda", "/dev/kvm", "/dev/fuse", "/dev/net/tun", "/dev/ptmx", "/dev/tty", "/dev/tty1", "/dev/input/event0",
    "/dev/snd/timer", "/dev/video0",
]
SYSTEM_FOLDERS = ["/root", "/home", "/tmp", "/var/tmp", "/dev/shm", "/run", "/var/log", "/var/spool", "/boot", "/mnt", "/srv",
                  "/sys/kernel", "/dev", HOME, f"{HOME}/.ssh", OTHER, ROOT]


def create(path):
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600))


def create_if_there(path):
    if not os.path.isdir(os.path.dirname(path)):
        raise Missing
    create(path)


def append(path):
    with open(path, "ab") as file:
        file.write(b"x")


def onto(path):
    own = scratch("own")
    open(own, "w").close()
    os.rename(own, path)


def exchange(path):
    own = scratch("own")
    os.makedirs(own) if os.path.isdir(path) else open(own, "w").close()
    call("renameat2", AT_FDCWD, own.encode(), AT_FDCWD, path.encode(), RENAME_EXCHANGE)


def link_into(path):
    own = scratch("own")
    open(own, "w").close()
    os.link(own, path)


def append_by_link(path):
    link = scratch("link")
    os.symlink(path, link)
    append(link)


def append_by_handle(path):
    append(f"/proc/self/fd/{os.open(path, os.O_PATH)}")


def append_by_mapping(path):
    fd = os.open(path, os.O_RDWR)
    mmap.mmap(fd, 0)[0] = 0


def append_by_race(path):
    race(path, append)


# The test compares the files afterwards: an attempt that is wrongly called refused is found too.
CHANGES = {
    "appending to": append,
    "truncating": lambda path: os.truncate(path, 0),
    "removing": os.unlink,
    "renaming": lambda path: os.rename(path, scratch("taken")),
    "renaming onto": onto,
    "exchanging": exchange,
    "appending by a link to": append_by_link,
    "appending by a handle to": append_by_handle,
    "writing by a mapping to": append_by_mapping,
    "appending by a race to": append_by_race,
    "replacing through /proc/self/cwd": lambda path: append(f"/proc/self/cwd/../{os.path.relpath(path, ROOT)}"),
}
FILES = [f"{PROJECT}/src/main.txt", f"{PROJECT}/.git/config", f"{PROJECT}/.git/hooks/pre-commit", f"{PROJECT}/.env",
         f"{PROJECT}/.ai/directives/a.md", f"{PROJECT}/.ai/config/agent/hooks.yaml", f"{PROJECT}/sub/deep/.git/config",
         f"{PROJECT}/.ai/state/threads/t/transcript.jsonl", f"{HOME}/.bashrc", f"{HOME}/.cargo/config.toml",
         f"{USER}/.ai/keys/private.pem", f"{USER}/.ai/trust/x.json", f"{USER}/.ai/knowledge/x.md", f"{OTHER}/file.txt"]
FOLDERS = [PROJECT, f"{PROJECT}/.git", f"{PROJECT}/.git/hooks", f"{PROJECT}/.ai", f"{PROJECT}/.ai/tools", f"{PROJECT}/.ai/state",
           f"{PROJECT}/sub", HOME, f"{HOME}/.ssh", f"{USER}/.ai/trust", OTHER, ROOT]
SYSTEM_PLACES = ["/tmp/rye-attack", "/var/tmp/rye-attack", "/dev/shm/rye-attack", "/etc/rye-attack", "/etc/cron.d/rye-attack",
                 "/usr/local/bin/rye-attack", "/opt/rye-attack", "/run/rye-attack", "/var/spool/cron/rye-attack", "/rye-attack",
                 "/sys/fs/cgroup/rye-attack"]
ENTRIES = {
    "a file": create,
    "a folder": os.mkdir,
    "a link": lambda path: os.symlink("/etc/passwd", path),
    "a hard link": link_into,
    "a pipe": os.mkfifo,
    "a moved file": onto,
}


def whole_folder(name):
    """Moves a protected folder away, and a folder of the program into its place."""
    own = scratch("tree")
    os.makedirs(f"{own}/hooks")
    os.rename(name, scratch("away"))
    os.rename(own, name)


def device(mode, number):
    check(libc.mknod(scratch("device").encode(), mode | 0o666, number))


def limit(which):
    soft, hard = resource.getrlimit(which)
    if hard == resource.RLIM_INFINITY:
        return "unlimited"
    resource.setrlimit(which, (soft, hard + 1))


def many(make):
    """Makes things until the limit refuses the next one."""
    kept = []
    for _ in range(20_000):
        kept.append(make())
    return f"{len(kept)} of them"


def growing_file():
    with open(scratch("large"), "wb") as file:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        os.ftruncate(file.fileno(), 5 << 30)


def become(change, expected):
    if os.getuid() == expected:
        raise Missing
    change(expected)


def setuid_program():
    """A program with the setuid bit of another owner gives no privileges."""
    done = subprocess.run(["./setuid-id", "-u"], capture_output=True, text=True)
    if done.returncode != 0 or not done.stdout.strip():
        raise Missing
    if int(done.stdout) == os.getuid():
        raise PermissionError(errno.EPERM, "no new privileges")
    return done.stdout


def variables():
    allowed = {"PATH", "HOME", "LANG", "TERM", "TMPDIR", "GIT_CONFIG_GLOBAL", "CARGO_HOME", "RYE_PARENT_THREAD_ID", "PWD", "OLDPWD",
               "SHLVL", "_", "LC_CTYPE", "npm_config_offline", "npm_config_cache", "UV_OFFLINE", "UV_CACHE_DIR"}
    left = set(os.environ) - allowed
    if left:
        return left
    raise PermissionError(errno.EPERM, "none")


def descriptors():
    left = [fd for fd in os.listdir("/proc/self/fd") if int(fd) > 2 and os.path.exists(f"/proc/self/fd/{fd}")
            and not os.readlink(f"/proc/self/fd/{fd}").startswith(("pipe:", "/proc/"))]
    if left:
        return [os.readlink(f"/proc/self/fd/{fd}") for fd in left]
    raise PermissionError(errno.EPERM, "none")


def unix(address):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.connect(address)


def low_port():
    if int(read("/proc/sys/net/ipv4/ip_unprivileged_port_start")) <= 80:
        raise Missing
    with socket.socket() as s:
        s.bind(("127.0.0.1", 80))


ATTEMPTS = {f"secret {way}": lambda act=act: act(SECRET) for way, act in WAYS.items()}
ATTEMPTS |= {f"credentials ~/{path}": lambda path=path: read(f"{HOME}/{path}") for path in CREDENTIALS}
ATTEMPTS |= {f"reading {path}": lambda path=path: read(path) for path in OUTSIDE}
ATTEMPTS |= {f"reading {path}": lambda path=path: read_if_there(path) for path in SYSTEM}
ATTEMPTS |= {f"listing {path}": lambda path=path: list_if_there(path) for path in SYSTEM_FOLDERS}
ATTEMPTS |= {f"{what} {path}": lambda act=act, path=path: act(path) for what, act in CHANGES.items() for path in FILES}
ATTEMPTS |= {f"creating {what} in {folder}": lambda act=act, folder=folder: act(f"{folder}/rye-attack")
             for what, act in ENTRIES.items() for folder in FOLDERS}
ATTEMPTS |= {f"creating {path}": lambda path=path: create_if_there(path) for path in SYSTEM_PLACES}
ATTEMPTS |= {f"replacing the folder {name}": lambda name=name: whole_folder(name) for name in (".git", ".ai", "src", "sub")}
ATTEMPTS |= {f"removing the folder {name}": lambda name=name: os.rmdir(name) for name in ("empty", ".ai/empty")}
ATTEMPTS |= {
    "private settings of the system": private_settings,
    "device of the memory": lambda: device(stat.S_IFCHR, os.makedev(1, 1)),
    "device of a disk": lambda: device(stat.S_IFBLK, os.makedev(8, 0)),
    "file of 5 GiB": growing_file,
    "memory of 9 GiB": lambda: mmap.mmap(-1, 9 << 30, flags=mmap.MAP_PRIVATE),
    "20,000 open files": lambda: many(lambda: os.open("/dev/null", os.O_RDONLY)),
    "higher limit of files": lambda: limit(resource.RLIMIT_NOFILE),
    "higher limit of a file": lambda: limit(resource.RLIMIT_FSIZE),
    "higher limit of memory": lambda: limit(resource.RLIMIT_DATA),
    "core dumps": lambda: limit(resource.RLIMIT_CORE),
    "higher priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, -20),
    "real-time scheduling": lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
    "protection from the OOM killer": lambda: open("/proc/self/oom_score_adj", "w").write("-1000"),
    "capabilities": lambda: call("capset", bytes([0x22, 0x05, 0x08, 0x20, 0, 0, 0, 0]), b"\xff" * 24),
    "user root": lambda: become(os.setuid, 0),
    "another user": lambda: become(os.setuid, 12_345),
    "group root": lambda: os.setresgid(12_345, 12_345, 12_345),
    "groups": lambda: os.setgroups([0, 4, 27, 999]),
    "setuid program": setuid_program,
    "variables of the owner": variables,
    "descriptors of the owner": descriptors,
    "agent of SSH": lambda: unix(f"{HOME}/.ssh/agent.sock"),
    "session bus": lambda: unix(f"{ROOT}/run/bus"),
    "socket in the project": lambda: unix(f"{PROJECT}/out/service.sock"),
    "abstract socket": lambda: unix(f"\0{ABSTRACT}"),
    "container daemon": lambda: unix("/var/run/docker.sock"),
    "raw IPv4 socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1),
    "raw IPv6 socket": lambda: socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58),
    "low port": low_port,
} | {f"socket family {family}": lambda family=family: socket.socket(family, socket.SOCK_RAW if family in (16, 17) else 1)
     for family in range(1, 46) if not (NET and family in (2, 10, 16))}

REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EXDEV, errno.EROFS, errno.EFBIG, errno.ENOMEM, errno.EMFILE)


run_attempts(ATTEMPTS, REFUSALS)
