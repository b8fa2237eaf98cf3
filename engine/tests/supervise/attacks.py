"""Attempts to leave the sandbox: `attacks.py HELPER VICTIM NET`."""
import ctypes
import errno
import fcntl
import os
import signal
import socket
import struct
import sys

from attempts import X86, Missing, run_attempts, system_call

HELPER, VICTIM, NET = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "net"
OWNER = int(open(f"/proc/{HELPER}/stat").read().rsplit(")", 1)[1].split()[1])
# The number on x86-64, the number in the generic table.
NR = {
    "prlimit64": (302, 261), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138), "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424), "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setattr": (314, 274), "setpriority": (141, 140), "ioprio_set": (251, 30),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "ptrace": (101, 117), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "process_mrelease": (448, 448), "move_pages": (279, 239),
    "migrate_pages": (256, 238), "get_robust_list": (274, 100), "prctl": (157, 167), "shmget": (29, 194),
    "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "io_uring_setup": (425, 425), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "unshare": (272, 97), "setns": (308, 268), "clone": (56, 220), "clone3": (435, 435),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fspick": (433, 433), "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "fanotify_init": (300, 262),
    "quotactl": (179, 60), "swapon": (167, 224), "acct": (163, 89), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266), "sethostname": (170, 161),
    "syslog": (103, 116), "kexec_load": (246, 104), "finit_module": (313, 273), "delete_module": (176, 106),
    "personality": (135, 92), "ioctl": (16, 29), "fcntl": (72, 25), "open_tree_attr": (467, 467),
}


def call(name, *arguments):
    return system_call(NR[name] if isinstance(name, str) else (name, name), *arguments)


def io_vector(size=8):
    buffer = ctypes.create_string_buffer(size)
    return struct.pack("PN", ctypes.addressof(buffer), size), buffer


def sigio(pid):
    """A pipe that sends SIGIO to another process when it can be read."""
    read, write = os.pipe()
    fcntl.fcntl(read, fcntl.F_SETOWN, pid)
    fcntl.fcntl(read, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    os.write(write, b"x")
    # The kernel drops the signal silently; the test looks whether its victim lives.
    raise PermissionError(errno.EPERM, "sent")


def pidfd(pid):
    return call("pidfd_open", pid, 0)


def vm(name, pid):
    vector, keep = io_vector()
    return call(name, pid, vector, 1, vector, 1, 0)


def old_table():
    """A call of the 32-bit table, by machine code."""
    if not X86:
        raise Missing
    import mmap
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    # mov eax, 20 (getpid); int 0x80; ret
    code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    return ctypes.CFUNCTYPE(ctypes.c_long)(address)()


def x32():
    if not X86:
        raise Missing
    return call(0x40000000 + 39)


def unix(kind, address):
    with socket.socket(socket.AF_UNIX, kind) as s:
        s.connect(address)


def pair_sends_elsewhere():
    """A datagram socket of a pair can send to any Unix address."""
    a, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    a.sendto(b"x", "/dev/log")


def write(path, text):
    if not os.path.exists(path):
        raise Missing
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, text)


def lease():
    fd = os.open(os.environ["TMPDIR"] + "/leased", os.O_CREAT | os.O_RDWR)
    return call("fcntl", fd, 1024, 0)


def of_process(who, pid):
    rlimit = lambda low: struct.pack("QQ", low, low)
    affinity = struct.pack("Q", 1)
    attributes = struct.pack("IIQiIQQQ", 48, 5, 0, 19, 0, 0, 0, 0)
    return {
        f"prlimit CPU of the {who}": lambda: call("prlimit64", pid, 0, rlimit(1), 0),
        f"prlimit NOFILE of the {who}": lambda: call("prlimit64", pid, 7, rlimit(0), 0),
        f"prlimit FSIZE of the {who}": lambda: call("prlimit64", pid, 1, rlimit(0), 0),
        f"prlimit query of the {who}": lambda: call("prlimit64", pid, 7, 0, ctypes.create_string_buffer(16)),
        f"kill the {who}": lambda: os.kill(pid, signal.SIGKILL),
        f"stop the {who}": lambda: os.kill(pid, signal.SIGSTOP),
        f"tgkill the {who}": lambda: call("tgkill", pid, pid, 9),
        f"rt_sigqueueinfo to the {who}": lambda: call(
            "rt_sigqueueinfo", pid, 9, struct.pack("iii", 9, 0, -1).ljust(128, b"\0")),
        f"pidfd_send_signal to the {who}": lambda: call("pidfd_send_signal", pidfd(pid), 9, 0, 0),
        f"SIGIO to the {who}": lambda: sigio(pid),
        f"sched_setaffinity of the {who}": lambda: call("sched_setaffinity", pid, 8, affinity),
        f"sched_setscheduler of the {who}": lambda: call("sched_setscheduler", pid, 5, struct.pack("i", 0)),
        f"sched_setparam of the {who}": lambda: call("sched_setparam", pid, struct.pack("i", 0)),
        f"sched_setattr of the {who}": lambda: call("sched_setattr", pid, attributes, 0),
        f"setpriority of the {who}": lambda: call("setpriority", 0, pid, 19),
        f"ioprio_set of the {who}": lambda: call("ioprio_set", 1, pid, 3 << 13),
        f"process_vm_readv of the {who}": lambda: vm("process_vm_readv", pid),
        f"process_vm_writev of the {who}": lambda: vm("process_vm_writev", pid),
        f"ptrace attach to the {who}": lambda: call("ptrace", 16, pid, 0, 0),
        f"ptrace seize of the {who}": lambda: call("ptrace", 0x4206, pid, 0, 0),
        f"kcmp of the {who}": lambda: call("kcmp", pid, os.getpid(), 1, 0, 0),
        f"pidfd_getfd of the {who}": lambda: call("pidfd_getfd", pidfd(pid), 0, 0),
        f"process_madvise of the {who}": lambda: call("process_madvise", pidfd(pid), io_vector()[0], 1, 20, 0),
        f"process_mrelease of the {who}": lambda: call("process_mrelease", pidfd(pid), 0),
        f"move_pages of the {who}": lambda: call("move_pages", pid, 0, 0, 0, 0, 0),
        f"migrate_pages of the {who}": lambda: call("migrate_pages", pid, 64, struct.pack("Q", 1), struct.pack("Q", 1)),
        f"get_robust_list of the {who}": lambda: call(
            "get_robust_list", pid, ctypes.create_string_buffer(8), ctypes.create_string_buffer(8)),
        f"core scheduling of the {who}": lambda: call("prctl", 62, 1, pid, 0, 0),
        f"memory file of the {who}": lambda: open(f"/proc/{pid}/mem", "rb"),
        f"environment of the {who}": lambda: open(f"/proc/{pid}/environ", "rb").read(),
        f"maps of the {who}": lambda: open(f"/proc/{pid}/maps", "rb").read(),
        f"link of a descriptor of the {who}": lambda: os.readlink(f"/proc/{pid}/fd/0"),
        f"descriptor of the {who}": lambda: os.open(f"/proc/{pid}/fd/0", os.O_RDONLY | os.O_NONBLOCK),
        f"root folder of the {who}": lambda: os.listdir(f"/proc/{pid}/root/"),
        f"OOM score of the {who}": lambda: write(f"/proc/{pid}/oom_score_adj", b"1000"),
        f"namespace of the {who}": lambda: os.open(f"/proc/{pid}/ns/net", os.O_RDONLY),
    }


ATTEMPTS = of_process("helper", HELPER) | of_process("victim", VICTIM) | of_process("owner", OWNER) | {
    "setpriority of the group": lambda: call("setpriority", 1, 0, 19),
    "setpriority of the user": lambda: call("setpriority", 2, os.getuid(), 19),
    "ioprio_set of the group": lambda: call("ioprio_set", 2, 0, 3 << 13),
    "ioprio_set of the user": lambda: call("ioprio_set", 3, os.getuid(), 3 << 13),
    "shared memory": lambda: call("shmget", 0x52594531, 4096, 0o1600),
    "shared semaphores": lambda: call("semget", 0x52594531, 1, 0o1600),
    "message queue": lambda: call("msgget", 0x52594531, 0o1600),
    "POSIX message queue": lambda: call("mq_open", b"rye-attack", os.O_CREAT | os.O_RDWR, 0o600, 0),
    "POSIX shared memory": lambda: os.open("/dev/shm/rye-attack", os.O_CREAT | os.O_RDWR),
    "add_key": lambda: call("add_key", b"user", b"rye-attack", b"x", 1, -3),
    "request_key": lambda: call("request_key", b"user", b"rye-attack", 0, -3),
    "keyctl": lambda: call("keyctl", 0, -4, 1),
    "io_uring": lambda: call("io_uring_setup", 4, ctypes.create_string_buffer(120)),
    "bpf": lambda: call("bpf", 0, ctypes.create_string_buffer(120), 72),
    "perf_event_open": lambda: call("perf_event_open", ctypes.create_string_buffer(128), 0, -1, -1, 0),
    "userfaultfd": lambda: call("userfaultfd", 1),
    "unshare a user namespace": lambda: call("unshare", 0x10000000),
    "unshare a mount namespace": lambda: call("unshare", 0x00020000),
    "unshare a network namespace": lambda: call("unshare", 0x40000000),
    "clone with a user namespace": lambda: call("clone", 0x10000000 | 17, 0, 0, 0, 0),
    "clone with a PID namespace": lambda: call("clone", 0x20000000 | 17, 0, 0, 0, 0),
    "clone3": lambda: call("clone3", struct.pack("Q", 0x10000000).ljust(88, b"\0"), 88),
    "setns": lambda: call("setns", os.open("/proc/self/ns/net", os.O_RDONLY), 0),
    "mount": lambda: call("mount", b"none", os.environ["TMPDIR"].encode(), b"tmpfs", 0, 0),
    "umount2": lambda: call("umount2", b"/proc", 2),
    "pivot_root": lambda: call("pivot_root", b".", b"."),
    "chroot": lambda: call("chroot", b"."),
    "open_tree": lambda: call("open_tree", -100, b".", 0),
    "open_tree_attr": lambda: call("open_tree_attr", -100, b".", 0, 0, 0),
    "move_mount": lambda: call("move_mount", -100, b".", -100, b".", 0),
    "fsopen": lambda: call("fsopen", b"tmpfs", 0),
    "fspick": lambda: call("fspick", -100, b".", 0),
    "mount_setattr": lambda: call("mount_setattr", -100, b".", 0, ctypes.create_string_buffer(32), 32),
    "name_to_handle_at": lambda: call("name_to_handle_at", -100, b".", struct.pack("Ii", 128, 0).ljust(136, b"\0"),
                                      ctypes.create_string_buffer(8), 0),
    "open_by_handle_at": lambda: call("open_by_handle_at", -100, struct.pack("Iiqq", 8, 1, 2, 0), 0),
    "fanotify_init": lambda: call("fanotify_init", 0x200, 0),
    "quotactl": lambda: call("quotactl", 0x800001 << 8, 0, 0, 0),
    "swapon": lambda: call("swapon", b"/none", 0),
    "acct": lambda: call("acct", b"/none"),
    "settimeofday": lambda: call("settimeofday", 0, 0),
    "clock_settime": lambda: call("clock_settime", 99, struct.pack("qq", 1, 0)),
    "adjtimex": lambda: call("adjtimex", ctypes.create_string_buffer(256)),
    "clock_adjtime": lambda: call("clock_adjtime", 0, ctypes.create_string_buffer(256)),
    "sethostname": lambda: call("sethostname", b"x", 65),
    "syslog": lambda: call("syslog", 10, 0, 0),
    "kexec_load": lambda: call("kexec_load", 0, 99, 0, 99),
    "finit_module": lambda: call("finit_module", -1, b"", 0),
    "delete_module": lambda: call("delete_module", b"rye-attack", 0x800),
    "personality that makes memory executable": lambda: call("personality", 0x0400000),
    "a tracer for everybody": lambda: call("prctl", 0x59616D61, -1, 0, 0, 0),
    "PR_SET_MM": lambda: call("prctl", 35, 1, 0, 0, 0),
    "PR_SET_DUMPABLE": lambda: call("prctl", 4, 0, 0, 0, 0),
    "PR_SET_SYSCALL_USER_DISPATCH": lambda: call("prctl", 59, 0, 0, 0, 0),
    "unknown option of prctl": lambda: call("prctl", 0x7fffffff, 0, 0, 0, 0),
    "TIOCSTI": lambda: call("ioctl", 1, 0x5412, b"x"),
    "TIOCSTI with high bits": lambda: call("ioctl", 1, 0x5412 | 1 << 32, b"x"),
    "TIOCLINUX": lambda: call("ioctl", 1, 0x541C, b"\x03"),
    "lease on a file": lease,
    "call of the x32 table": x32,
    "call of the 32-bit table": old_table,
    "unknown call": lambda: call(999),
    "datagram pair to a Unix address": pair_sends_elsewhere,
    "raw pair": lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW),
    "stream to a Unix address": lambda: unix(socket.SOCK_STREAM, "/run/dbus/system_bus_socket"),
    "stream to an abstract address": lambda: unix(socket.SOCK_STREAM, "\0rye-attack"),
    "packet socket": lambda: socket.socket(17, socket.SOCK_RAW),
    "crypto socket": lambda: socket.socket(38, socket.SOCK_SEQPACKET),
    "machine socket": lambda: socket.socket(40, socket.SOCK_STREAM),
    "netlink between programs": lambda: socket.socket(16, socket.SOCK_RAW, 2),
    "netlink of the audit": lambda: socket.socket(16, socket.SOCK_RAW, 9),
    "terminal": lambda: os.open("/dev/tty", os.O_RDWR),
    "kernel messages": lambda: os.open("/dev/kmsg", os.O_RDONLY),
    "setting of the kernel": lambda: write("/proc/sys/kernel/core_pattern", b"x"),
    "trigger of the kernel": lambda: write("/proc/sysrq-trigger", b"h"),
} | ({} if NET else {
    "IPv4 socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
    "IPv6 datagrams": lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM),
    "netlink of the routes": lambda: socket.socket(16, socket.SOCK_RAW, 0),
    "bind of a pair": lambda: socket.socketpair()[0].bind("\0rye-attack"),
})

REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSYS)


run_attempts(ATTEMPTS, REFUSALS)
