/* Attempts that the filter refuses. Prints `NAME: done`, `NAME: ERROR` or `NAME: signal N` for each attempt.
 * `attempts calls FILE` makes the calls of the lines `NAME NUMBER ERROR [ARGUMENT...]` and compares the errors. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <mqueue.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pid_t victim;
static char byte[1] = "x";
static struct iovec vector = { byte, 1 };

static long trace(void) { return ptrace(PTRACE_ATTACH, victim, 0, 0); }
static long seize(void) { return ptrace(PTRACE_SEIZE, victim, 0, 0); }
static long read_memory(void) { return process_vm_readv(victim, &vector, 1, &vector, 1, 0); }
static long write_memory(void) { return process_vm_writev(victim, &vector, 1, &vector, 1, 0); }
static long take_descriptor(void) { return syscall(SYS_pidfd_getfd, syscall(SYS_pidfd_open, victim, 0), 0, 0); }
static long compare(void) { return syscall(SYS_kcmp, getpid(), victim, 1, 0, 0); }
static long list_locks(void) { long a, b; return syscall(SYS_get_robust_list, victim, &a, &b); }
static long limit(void) { struct rlimit now; return prlimit(victim, RLIMIT_NOFILE, 0, &now); }
static long affinity(void) {
    unsigned long mask = 1;
    return syscall(SYS_sched_setaffinity, victim, sizeof mask, &mask);
}
static long priority(void) { return setpriority(PRIO_PROCESS, victim, 5); }
static long group_priority(void) { return setpriority(PRIO_PGRP, 0, 5); }
static long keyring(void) { return syscall(SYS_keyctl, 0, -4, 1); }
static long new_key(void) { return syscall(SYS_add_key, "user", "attempt", "x", 1, -2); }
static long new_map(void) {
    union bpf_attr map = { .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1 };
    return syscall(SYS_bpf, BPF_MAP_CREATE, &map, sizeof map);
}
static long ring(void) { struct io_uring_params none = { 0 }; return syscall(SYS_io_uring_setup, 4, &none); }
static long fault_descriptor(void) { return syscall(SYS_userfaultfd, O_CLOEXEC); }
static long counter(void) {
    struct perf_event_attr clock = { .type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_CPU_CLOCK };
    clock.size = sizeof clock;
    return syscall(SYS_perf_event_open, &clock, 0, -1, -1, 0);
}
static long mount_folder(void) { return mount("none", "/mnt", "tmpfs", 0, 0); }
static long mount_high(void) { return syscall(SYS_mount | 1L << 32, "none", "/mnt", "tmpfs", 0, 0); }
static long open_filesystem(void) { return syscall(SYS_fsopen, "tmpfs", 0); }
static long open_mount(void) { return syscall(SYS_open_tree, AT_FDCWD, "/tmp", 1); }
static long change_root(void) { return chroot("/tmp"); }
static long new_user(void) { return unshare(CLONE_NEWUSER); }
static long new_mounts(void) { return unshare(CLONE_NEWNS); }
static long new_network(void) { return unshare(CLONE_NEWNET); }
static long fork_with(unsigned long flags) {
    long child = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (!child) _exit(0);
    return child;
}
static long clone_user(void) { return fork_with(CLONE_NEWUSER); }
static long clone_processes(void) { return fork_with(CLONE_NEWPID); }
static long clone_mounts(void) { return fork_with(CLONE_NEWNS); }
static long clone_newer(void) {
    struct clone_args options = { .flags = CLONE_NEWUSER, .exit_signal = SIGCHLD };
    long child = syscall(SYS_clone3, &options, sizeof options);
    if (!child) _exit(0);
    return child;
}
static long join_namespace(void) { return setns(open("/proc/self/ns/uts", O_RDONLY), 0); }
static long load_kernel(void) { return syscall(SYS_kexec_load, 0, 0, 0, 0); }
static long load_module(void) { return syscall(SYS_finit_module, -1, "", 0); }
static struct { struct file_handle head; char bytes[128]; } handle = { .head.handle_bytes = 128 };
static long find_handle(void) { int id; return name_to_handle_at(AT_FDCWD, "/tmp", &handle.head, &id, 0); }
static long open_handle(void) {
    find_handle();
    return open_by_handle_at(open("/tmp", O_RDONLY), &handle.head, O_RDONLY);
}
static long watch_files(void) { return syscall(SYS_fanotify_init, 0, 0); }
static long typed_input(void) { return ioctl(open("/dev/ptmx", O_RDWR), TIOCSTI, byte); }
static long typed_input_high(void) { return syscall(SYS_ioctl, open("/dev/ptmx", O_RDWR), TIOCSTI | 1L << 32, byte); }
static long executable_memory(void) { return personality(READ_IMPLIES_EXEC); }
static long hide(void) { return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); }
static long lease(void) { return fcntl(open("/tmp/leased", O_CREAT | O_RDONLY, 0600), F_SETLEASE, F_RDLCK); }
static long memory(void) { return shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600); }
static long semaphores(void) { return semget(IPC_PRIVATE, 1, IPC_CREAT | 0600); }
static long queue(void) { return msgget(IPC_PRIVATE, IPC_CREAT | 0600); }
static long posix_queue(void) { return mq_open("/attempt", O_CREAT | O_RDWR, 0600, 0); }
static long secret_memory(void) { return syscall(SYS_memfd_secret, 0); }
static long set_time(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return clock_settime(CLOCK_REALTIME, &now);
}
static long adjust_time(void) { struct timex none = { 0 }; return adjtimex(&none); }
static long set_name(void) { return sethostname("attempt", 7); }
static long kernel_log(void) { return syscall(SYS_syslog, 10, 0, 0); }
static long local_socket(void) { return socket(AF_UNIX, SOCK_STREAM, 0); }
static long internet_socket(void) { return socket(AF_INET, SOCK_STREAM, 0); }
static long netlink_socket(void) { return socket(AF_NETLINK, SOCK_RAW, 0); }
static long datagram_pair(void) { int ends[2]; return socketpair(AF_UNIX, SOCK_DGRAM, 0, ends); }
static long old_program(void) { return execl("/bin/busybox-armhf", "busybox-armhf", "true", (char *)0); }

static const struct { const char *name; long (*make)(void); } ATTEMPTS[] = {
    { "ptrace attach", trace }, { "ptrace seize", seize }, { "process_vm_readv", read_memory },
    { "process_vm_writev", write_memory }, { "pidfd_getfd", take_descriptor }, { "kcmp", compare },
    { "get_robust_list", list_locks }, { "prlimit64 of another process", limit },
    { "sched_setaffinity of another process", affinity }, { "setpriority of another process", priority },
    { "setpriority of a group", group_priority }, { "keyctl", keyring }, { "add_key", new_key }, { "bpf", new_map },
    { "io_uring_setup", ring }, { "userfaultfd", fault_descriptor }, { "perf_event_open", counter },
    { "mount", mount_folder }, { "mount with a high bit", mount_high }, { "fsopen", open_filesystem }, { "open_tree", open_mount }, { "chroot", change_root },
    { "unshare user", new_user }, { "unshare mounts", new_mounts }, { "unshare network", new_network },
    { "clone user", clone_user }, { "clone processes", clone_processes }, { "clone mounts", clone_mounts },
    { "clone3 user", clone_newer }, { "setns", join_namespace }, { "kexec_load", load_kernel },
    { "finit_module", load_module }, { "name_to_handle_at", find_handle }, { "open_by_handle_at", open_handle },
    { "fanotify_init", watch_files }, { "TIOCSTI", typed_input }, { "TIOCSTI with a high bit", typed_input_high },
    { "personality", executable_memory }, { "PR_SET_DUMPABLE", hide }, { "F_SETLEASE", lease }, { "shmget", memory },
    { "semget", semaphores }, { "msgget", queue }, { "mq_open", posix_queue }, { "memfd_secret", secret_memory },
    { "clock_settime", set_time }, { "adjtimex", adjust_time }, { "sethostname", set_name }, { "syslog", kernel_log },
    { "Unix socket", local_socket }, { "internet socket", internet_socket }, { "netlink socket", netlink_socket },
    { "datagram pair", datagram_pair }, { "AArch32 program", old_program },
};

/* Makes one attempt in a child, which the attempt may end. */
static void attempt(const char *name, long (*make)(void)) {
    int status;
    pid_t child = fork();
    if (!child) {
        long result = make();
        _exit(result < 0 ? errno : 0);
    }
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) printf("%s: signal %d\n", name, WTERMSIG(status));
    else printf("%s: %s\n", name, WEXITSTATUS(status) ? strerrorname_np(WEXITSTATUS(status)) : "done");
}

static int make_calls(const char *path) {
    FILE *file = fopen(path, "r");
    char line[256], name[64];
    int made = 0, wrong = 0;
    while (file && fgets(line, sizeof line, file)) {
        unsigned long arguments[6] = { 0 };
        long number;
        int error, length, known = 0;
        if (sscanf(line, "%63s %ld %d%n", name, &number, &error, &length) != 3) return 1;
        for (char *rest = line + length, *end; known < 6; rest = end, known++) {
            arguments[known] = strtoul(rest, &end, 0);
            if (end == rest) break;
        }
        unsigned long *a = arguments;
        long result = syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
        made++;
        if (result != -1 || errno != error) wrong++, printf("WRONG %.200s", line);
    }
    printf("%d calls made, %d wrong\n", made, wrong);
    return !made || wrong;
}

int main(int count, char **arguments) {
    setvbuf(stdout, 0, _IOLBF, 0);
    if (count == 3 && !strcmp(arguments[1], "calls")) return make_calls(arguments[2]);
    victim = fork();
    if (!victim) for (;;) pause();
    for (size_t at = 0; at < sizeof ATTEMPTS / sizeof *ATTEMPTS; at++) attempt(ATTEMPTS[at].name, ATTEMPTS[at].make);
    kill(victim, SIGKILL);
    return 0;
}
