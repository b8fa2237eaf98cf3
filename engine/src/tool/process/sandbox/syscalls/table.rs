//! Every system call of Linux 6.18 on x86-64 and on the architectures that share the generic table (aarch64, riscv64),
//! by class. `docs/decisions/0014-system-calls-by-default-deny.md` states the reason for each class.

/// Placeholder for the number of a system call that an architecture does not have.
const NONE: i64 = -1;

/// The decision of the filter about the calls of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyscallVerdict {
    /// The kernel executes the call.
    Allow,
    /// The kernel executes the call, unless a rule refuses the arguments.
    Restrict,
    /// The kernel executes the call if the network is granted. Otherwise the call fails with `EACCES`.
    Network,
    /// The call fails with `EPERM`.
    Refuse,
    /// The call fails with `ENOSYS`. A system call that belongs to no [`SyscallClass`] fails in this way too.
    Absent,
}

/// System calls with the same verdict for the same reason.
#[derive(Debug, Clone, Copy)]
pub struct SyscallClass {
    pub verdict: SyscallVerdict,
    /// The name of each call, its number on x86-64, and its number on architectures that use the generic numbers of the
    /// kernel.
    pub calls: &'static [(&'static str, i64, i64)],
}

/// Returns the number of the system call `name` on x86-64, then its number on the architectures that use the generic
/// numbers of the kernel. `None` if no [`SyscallClass`] contains the call.
pub fn find(name: &str) -> Option<(i64, i64)> {
    let mut calls = CLASSES.iter().flat_map(|class| class.calls);
    calls.find(|(found, ..)| *found == name).map(|(_, x86_64, generic)| (*x86_64, *generic))
}

/// Returns the number of a system call: `x86_64` if `is_x86_64` is true, else `generic`. `None` if the architecture
/// lacks the call.
pub fn number(x86_64: i64, generic: i64, is_x86_64: bool) -> Option<i64> {
    Some(if is_x86_64 { x86_64 } else { generic }).filter(|number| *number != NONE)
}

#[rustfmt::skip]
pub const CLASSES: &[SyscallClass] = &[
    // Reading, writing and watching open files.
    SyscallClass { verdict: SyscallVerdict::Allow, calls: &[
        ("read", 0, 63), ("write", 1, 64), ("open", 2, NONE), ("close", 3, 57), ("lseek", 8, 62),
        ("pread64", 17, 67), ("pwrite64", 18, 68), ("readv", 19, 65), ("writev", 20, 66),
        ("preadv", 295, 69), ("pwritev", 296, 70), ("preadv2", 327, 286), ("pwritev2", 328, 287),
        ("creat", 85, NONE), ("openat", 257, 56), ("openat2", 437, 437), ("dup", 32, 23),
        ("dup2", 33, NONE), ("dup3", 292, 24), ("pipe", 22, NONE), ("pipe2", 293, 59), ("fsync", 74, 82),
        ("fdatasync", 75, 83), ("sync", 162, 81), ("syncfs", 306, 267), ("sync_file_range", 277, 84),
        ("truncate", 76, 45), ("ftruncate", 77, 46), ("fallocate", 285, 47), ("flock", 73, 32),
        ("getdents", 78, NONE), ("getdents64", 217, 61), ("sendfile", 40, 71),
        ("copy_file_range", 326, 285), ("splice", 275, 76), ("tee", 276, 77), ("vmsplice", 278, 75),
        ("fadvise64", 221, 223), ("readahead", 187, 213), ("close_range", 436, 436),
        ("inotify_init", 253, NONE), ("inotify_init1", 294, 26), ("inotify_add_watch", 254, 27),
        ("inotify_rm_watch", 255, 28),
    ] },
    // Names and attributes of files. Landlock restricts the paths.
    SyscallClass { verdict: SyscallVerdict::Allow, calls: &[
        ("stat", 4, NONE), ("fstat", 5, 80), ("lstat", 6, NONE), ("newfstatat", 262, 79),
        ("statx", 332, 291), ("access", 21, NONE), ("faccessat", 269, 48), ("faccessat2", 439, 439),
        ("getcwd", 79, 17), ("chdir", 80, 49), ("fchdir", 81, 50), ("rename", 82, NONE),
        ("renameat", 264, 38), ("renameat2", 316, 276), ("mkdir", 83, NONE), ("mkdirat", 258, 34),
        ("rmdir", 84, NONE), ("link", 86, NONE), ("linkat", 265, 37), ("unlink", 87, NONE),
        ("unlinkat", 263, 35), ("symlink", 88, NONE), ("symlinkat", 266, 36), ("readlink", 89, NONE),
        ("readlinkat", 267, 78), ("chmod", 90, NONE), ("fchmod", 91, 52), ("fchmodat", 268, 53),
        ("fchmodat2", 452, 452), ("chown", 92, NONE), ("fchown", 93, 55), ("lchown", 94, NONE),
        ("fchownat", 260, 54), ("umask", 95, 166), ("utime", 132, NONE), ("utimes", 235, NONE),
        ("utimensat", 280, 88), ("futimesat", 261, NONE), ("mknod", 133, NONE), ("mknodat", 259, 33),
        ("statfs", 137, 43), ("fstatfs", 138, 44), ("setxattr", 188, 5), ("lsetxattr", 189, 6),
        ("fsetxattr", 190, 7), ("getxattr", 191, 8), ("lgetxattr", 192, 9), ("fgetxattr", 193, 10),
        ("listxattr", 194, 11), ("llistxattr", 195, 12), ("flistxattr", 196, 13), ("removexattr", 197, 14),
        ("lremovexattr", 198, 15), ("fremovexattr", 199, 16),
    ] },
    // Waiting, timers, and reading clocks.
    SyscallClass { verdict: SyscallVerdict::Allow, calls: &[
        ("poll", 7, NONE), ("ppoll", 271, 73), ("select", 23, NONE), ("pselect6", 270, 72),
        ("epoll_create", 213, NONE), ("epoll_create1", 291, 20), ("epoll_ctl", 233, 21),
        ("epoll_wait", 232, NONE), ("epoll_pwait", 281, 22), ("epoll_pwait2", 441, 441),
        ("eventfd", 284, NONE), ("eventfd2", 290, 19), ("signalfd", 282, NONE), ("signalfd4", 289, 74),
        ("timerfd_create", 283, 85), ("timerfd_settime", 286, 86), ("timerfd_gettime", 287, 87),
        ("pause", 34, NONE), ("nanosleep", 35, 101), ("clock_nanosleep", 230, 115), ("getitimer", 36, 102),
        ("setitimer", 38, 103), ("alarm", 37, NONE), ("time", 201, NONE), ("gettimeofday", 96, 169),
        ("clock_gettime", 228, 113), ("clock_getres", 229, 114), ("times", 100, 153),
        ("timer_create", 222, 107), ("timer_settime", 223, 110), ("timer_gettime", 224, 108),
        ("timer_getoverrun", 225, 109), ("timer_delete", 226, 111),
    ] },
    // The caller's own memory.
    SyscallClass { verdict: SyscallVerdict::Allow, calls: &[
        ("mmap", 9, 222), ("mprotect", 10, 226), ("munmap", 11, 215), ("brk", 12, 214), ("mremap", 25, 216),
        ("msync", 26, 227), ("mincore", 27, 232), ("madvise", 28, 233), ("mlock", 149, 228),
        ("munlock", 150, 229), ("mlockall", 151, 230), ("munlockall", 152, 231), ("mlock2", 325, 284),
        ("memfd_create", 319, 279), ("pkey_mprotect", 329, 288), ("pkey_alloc", 330, 289),
        ("pkey_free", 331, 290), ("mbind", 237, 235), ("set_mempolicy", 238, 237),
        ("get_mempolicy", 239, 236), ("set_mempolicy_home_node", 450, 450), ("membarrier", 324, 283),
        ("map_shadow_stack", 453, 453), ("mseal", 462, 462),
    ] },
    // Threads, processes and signals. Landlock restricts the targets of signals.
    SyscallClass { verdict: SyscallVerdict::Allow, calls: &[
        ("fork", 57, NONE), ("vfork", 58, NONE), ("execve", 59, 221), ("execveat", 322, 281),
        ("exit", 60, 93), ("exit_group", 231, 94), ("wait4", 61, 260), ("waitid", 247, 95),
        ("kill", 62, 129), ("tkill", 200, 130), ("tgkill", 234, 131), ("rt_sigqueueinfo", 129, 138),
        ("rt_tgsigqueueinfo", 297, 240), ("pidfd_open", 434, 434), ("pidfd_send_signal", 424, 424),
        ("rt_sigaction", 13, 134), ("rt_sigprocmask", 14, 135), ("rt_sigreturn", 15, 139),
        ("rt_sigpending", 127, 136), ("rt_sigtimedwait", 128, 137), ("rt_sigsuspend", 130, 133),
        ("sigaltstack", 131, 132), ("restart_syscall", 219, 128), ("futex", 202, 98),
        ("futex_waitv", 449, 449), ("futex_wake", 454, 454), ("futex_wait", 455, 455),
        ("futex_requeue", 456, 456), ("set_robust_list", 273, 99), ("set_tid_address", 218, 96),
        ("rseq", 334, 293), ("arch_prctl", 158, NONE), ("sched_yield", 24, 124), ("uretprobe", 335, NONE),
        ("uprobe", 336, NONE), ("riscv_hwprobe", NONE, 258), ("riscv_flush_icache", NONE, 259),
    ] },
    // Reading identity and limits, or lowering them for the caller alone.
    SyscallClass { verdict: SyscallVerdict::Allow, calls: &[
        ("getpid", 39, 172), ("gettid", 186, 178), ("getppid", 110, 173), ("getpgrp", 111, NONE),
        ("getpgid", 121, 155), ("getsid", 124, 156), ("setpgid", 109, 154), ("setsid", 112, 157),
        ("getuid", 102, 174), ("geteuid", 107, 175), ("getgid", 104, 176), ("getegid", 108, 177),
        ("getresuid", 118, 148), ("getresgid", 120, 150), ("getgroups", 115, 158), ("setuid", 105, 146),
        ("setgid", 106, 144), ("setreuid", 113, 145), ("setregid", 114, 143), ("setresuid", 117, 147),
        ("setresgid", 119, 149), ("setfsuid", 122, 151), ("setfsgid", 123, 152), ("setgroups", 116, 159),
        ("capget", 125, 90), ("capset", 126, 91), ("getrlimit", 97, 163), ("setrlimit", 160, 164),
        ("getrusage", 98, 165), ("getpriority", 140, 141), ("ioprio_get", 252, 31),
        ("sched_getparam", 143, 121), ("sched_getscheduler", 145, 120), ("sched_getattr", 315, 275),
        ("sched_getaffinity", 204, 123), ("sched_get_priority_max", 146, 125),
        ("sched_get_priority_min", 147, 126), ("sched_rr_get_interval", 148, 127), ("uname", 63, 160),
        ("sysinfo", 99, 179), ("getcpu", 309, 168), ("getrandom", 318, 278), ("seccomp", 317, 277),
        ("landlock_create_ruleset", 444, 444), ("landlock_add_rule", 445, 445),
        ("landlock_restrict_self", 446, 446),
    ] },
    // Sockets of granted families, and socket pairs.
    SyscallClass { verdict: SyscallVerdict::Restrict, calls: &[
        ("socket", 41, 198), ("socketpair", 53, 199),
    ] },
    // Addresses of sockets. They need a network grant.
    SyscallClass { verdict: SyscallVerdict::Network, calls: &[
        ("connect", 42, 203), ("bind", 49, 200), ("listen", 50, 201), ("accept", 43, 202),
        ("accept4", 288, 242),
    ] },
    // Sending and receiving data on existing sockets.
    SyscallClass { verdict: SyscallVerdict::Allow, calls: &[
        ("sendto", 44, 206), ("recvfrom", 45, 207), ("sendmsg", 46, 211), ("recvmsg", 47, 212),
        ("sendmmsg", 307, 269), ("recvmmsg", 299, 243), ("shutdown", 48, 210), ("getsockname", 51, 204),
        ("getpeername", 52, 205), ("setsockopt", 54, 208), ("getsockopt", 55, 209),
    ] },
    // Calls that depend on their arguments.
    SyscallClass { verdict: SyscallVerdict::Restrict, calls: &[
        ("clone", 56, 220), ("prctl", 157, 167), ("ioctl", 16, 29), ("fcntl", 72, 25),
        ("personality", 135, 92), ("prlimit64", 302, 261), ("setpriority", 141, 140),
        ("ioprio_set", 251, 30), ("sched_setparam", 142, 118), ("sched_setscheduler", 144, 119),
        ("sched_setattr", 314, 274), ("sched_setaffinity", 203, 122),
    ] },
    // Memory and state of other processes.
    SyscallClass { verdict: SyscallVerdict::Refuse, calls: &[
        ("ptrace", 101, 117), ("process_vm_readv", 310, 270), ("process_vm_writev", 311, 271),
        ("process_madvise", 440, 440), ("process_mrelease", 448, 448), ("kcmp", 312, 272),
        ("pidfd_getfd", 438, 438), ("get_robust_list", 274, 100), ("move_pages", 279, 239),
        ("migrate_pages", 256, 238),
    ] },
    // Memory, semaphores and queues shared with every process of the user.
    SyscallClass { verdict: SyscallVerdict::Refuse, calls: &[
        ("shmget", 29, 194), ("shmat", 30, 196), ("shmctl", 31, 195), ("shmdt", 67, 197),
        ("semget", 64, 190), ("semop", 65, 193), ("semctl", 66, 191), ("semtimedop", 220, 192),
        ("msgget", 68, 186), ("msgsnd", 69, 189), ("msgrcv", 70, 188), ("msgctl", 71, 187),
        ("mq_open", 240, 180), ("mq_unlink", 241, 181), ("mq_timedsend", 242, 182),
        ("mq_timedreceive", 243, 183), ("mq_notify", 244, 184), ("mq_getsetattr", 245, 185),
        ("add_key", 248, 217), ("request_key", 249, 218), ("keyctl", 250, 219),
    ] },
    // Mounts, namespaces and files by handle, which would bypass Landlock.
    SyscallClass { verdict: SyscallVerdict::Refuse, calls: &[
        ("mount", 165, 40), ("umount2", 166, 39), ("pivot_root", 155, 41), ("chroot", 161, 51),
        ("unshare", 272, 97), ("setns", 308, 268), ("open_tree", 428, 428), ("open_tree_attr", 467, 467),
        ("move_mount", 429, 429), ("fsopen", 430, 430), ("fsconfig", 431, 431), ("fsmount", 432, 432),
        ("fspick", 433, 433), ("mount_setattr", 442, 442), ("name_to_handle_at", 303, 264),
        ("open_by_handle_at", 304, 265), ("fanotify_init", 300, 262), ("fanotify_mark", 301, 263),
        ("quotactl", 179, 60), ("quotactl_fd", 443, 443), ("swapon", 167, 224), ("swapoff", 168, 225),
        ("acct", 163, 89),
    ] },
    // Large parts of the kernel that no tool needs.
    SyscallClass { verdict: SyscallVerdict::Refuse, calls: &[
        ("io_uring_setup", 425, 425), ("io_uring_enter", 426, 426), ("io_uring_register", 427, 427),
        ("bpf", 321, 280), ("perf_event_open", 298, 241), ("userfaultfd", 323, 282),
        ("modify_ldt", 154, NONE), ("iopl", 172, NONE), ("ioperm", 173, NONE), ("lookup_dcookie", 212, 18),
        ("nfsservctl", 180, 42),
    ] },
    // Calls that control the whole machine.
    SyscallClass { verdict: SyscallVerdict::Refuse, calls: &[
        ("reboot", 169, 142), ("kexec_load", 246, 104), ("kexec_file_load", 320, 294),
        ("init_module", 175, 105), ("finit_module", 313, 273), ("delete_module", 176, 106),
        ("settimeofday", 164, 170), ("clock_settime", 227, 112), ("clock_adjtime", 305, 266),
        ("adjtimex", 159, 171), ("sethostname", 170, 161), ("setdomainname", 171, 162),
        ("syslog", 103, 116), ("vhangup", 153, 58),
    ] },
    // Obsolete calls, and calls whose callers fall back when the kernel does not know them.
    SyscallClass { verdict: SyscallVerdict::Absent, calls: &[
        ("uselib", 134, NONE), ("ustat", 136, NONE), ("sysfs", 139, NONE), ("_sysctl", 156, NONE),
        ("create_module", 174, NONE), ("get_kernel_syms", 177, NONE), ("query_module", 178, NONE),
        ("getpmsg", 181, NONE), ("putpmsg", 182, NONE), ("afs_syscall", 183, NONE), ("tuxcall", 184, NONE),
        ("security", 185, NONE), ("set_thread_area", 205, NONE), ("io_setup", 206, 0),
        ("io_destroy", 207, 1), ("io_getevents", 208, 4), ("io_submit", 209, 2), ("io_cancel", 210, 3),
        ("get_thread_area", 211, NONE), ("epoll_ctl_old", 214, NONE), ("epoll_wait_old", 215, NONE),
        ("remap_file_pages", 216, 234), ("vserver", 236, NONE), ("io_pgetevents", 333, 292),
        ("clone3", 435, 435), ("memfd_secret", 447, 447), ("cachestat", 451, 451), ("statmount", 457, 457),
        ("listmount", 458, 458), ("lsm_get_self_attr", 459, 459), ("lsm_set_self_attr", 460, 460),
        ("lsm_list_modules", 461, 461), ("setxattrat", 463, 463), ("getxattrat", 464, 464),
        ("listxattrat", 465, 465), ("removexattrat", 466, 466), ("file_getattr", 468, 468),
        ("file_setattr", 469, 469), ("listns", 470, 470),
    ] },
];
