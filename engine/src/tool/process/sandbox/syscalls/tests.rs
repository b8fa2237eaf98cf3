//! Tests of the filters: the table is complete, and a small interpreter runs the filters of every architecture.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeSet;

use super::*;

const ARCHITECTURES: [TargetArch; 3] = [TargetArch::x86_64, TargetArch::aarch64, TargetArch::riscv64];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FilterAnswer {
    Kernel,
    Errno(u32),
    Killed,
}

fn audit_arch(arch: TargetArch) -> u32 {
    match arch {
        TargetArch::x86_64 => 0xc000_003e,
        TargetArch::aarch64 => 0xc000_00b7,
        TargetArch::riscv64 => 0xc000_00f3,
    }
}

/// Interprets a classic BPF program, limited to the instructions of seccomp filters.
fn run(program: &BpfProgram, arch: u32, call: u32, arguments: [u64; 6]) -> u32 {
    let word = |offset: u32| match offset {
        0 => call,
        4 => arch,
        16.. => {
            let argument = arguments[usize::try_from(offset - 16).unwrap() / 8];
            u32::try_from((argument >> (offset % 8 * 8)) & u64::from(u32::MAX)).unwrap()
        }
        _ => panic!("no word at {offset}"),
    };
    let (mut accumulator, mut at) = (0_u32, 0_usize);
    loop {
        let step = &program[at];
        at += 1;
        let jump = |holds: bool| usize::from(if holds { step.jt } else { step.jf });
        match step.code {
            0x20 => accumulator = word(step.k),
            0x54 => accumulator &= step.k,
            0x05 => at += usize::try_from(step.k).unwrap(),
            0x15 => at += jump(accumulator == step.k),
            0x25 => at += jump(accumulator > step.k),
            0x35 => at += jump(accumulator >= step.k),
            0x06 => return step.k,
            other => panic!("unknown instruction {other:#x}"),
        }
    }
}

/// The filters of one architecture.
struct Filters {
    arch: TargetArch,
    programs: [BpfProgram; 3],
}

impl Filters {
    fn new(arch: TargetArch, sockets: Sockets) -> Self {
        Self { arch, programs: filters_for(arch, sockets).unwrap() }
    }

    /// Returns the combined result of all filters: the strictest action. If several filters have this action, the
    /// filter that was installed last determines the result.
    fn answer_to(&self, audit_arch: u32, call: u32, arguments: [u64; 6]) -> FilterAnswer {
        let mut strictest = 0x7fff_0000_u32;
        for program in self.programs.iter().rev() {
            let answer = run(program, audit_arch, call, arguments);
            if (answer & 0xffff_0000).cast_signed() < (strictest & 0xffff_0000).cast_signed() {
                strictest = answer;
            }
        }
        match strictest & 0xffff_0000 {
            0x7fff_0000 => FilterAnswer::Kernel,
            0x0005_0000 => FilterAnswer::Errno(strictest & 0xffff),
            0x8000_0000 => FilterAnswer::Killed,
            other => panic!("unknown action {other:#x}"),
        }
    }

    /// Returns the result for a call by name; `None` if the architecture lacks the call.
    fn answer(&self, name: &str, arguments: &[u64]) -> Option<FilterAnswer> {
        let (x86_64, generic) = table::find(name).unwrap();
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        let call = u32::try_from(number(self.arch, x86_64, generic)?).unwrap();
        Some(self.answer_to(audit_arch(self.arch), call, all))
    }
}

#[test]
fn table_holds_every_number_of_both_architectures_once() {
    let all = || CLASSES.iter().flat_map(|class| class.calls);
    for (is_x86_64, ranges) in [(true, [0..=336, 424..=470]), (false, [0..=294, 424..=470])] {
        let mut numbers: Vec<i64> =
            all().filter_map(|(_, x86, other)| table::number(*x86, *other, is_x86_64)).collect();
        numbers.sort_unstable();
        let mut wanted: Vec<i64> = ranges.into_iter().flatten().collect();
        // The generic table reserves these numbers for other architectures.
        wanted.retain(|number| is_x86_64 || !(244..=257).contains(number));
        assert_eq!(numbers, wanted, "x86-64: {is_x86_64}");
    }
    let names: BTreeSet<&str> = all().map(|(name, ..)| *name).collect();
    assert_eq!(names.len(), all().count());
}

#[test]
fn every_restricted_call_has_a_rule_and_no_other_call() {
    let restricted = CLASSES.iter().filter(|class| class.verdict == SyscallVerdict::Restrict);
    let restricted: BTreeSet<&str> = restricted.flat_map(|class| class.calls).map(|(name, ..)| *name).collect();
    let rules = restrictions().unwrap().into_iter().chain(socket_restrictions(Sockets::Internet).unwrap());
    let names: BTreeSet<&str> = rules.filter(|(_, rules)| !rules.is_empty()).map(|(name, _)| name).collect();
    assert_eq!(names, restricted);
}

#[test]
fn filters_answer_as_the_table_says_on_every_architecture() {
    for arch in ARCHITECTURES {
        for sockets in [Sockets::None, Sockets::Internet] {
            let filters = Filters::new(arch, sockets);
            for (class, (name, ..)) in
                CLASSES.iter().flat_map(|class| class.calls.iter().map(move |call| (class, call)))
            {
                let wanted = match (class.verdict, sockets) {
                    (SyscallVerdict::Allow, _) | (SyscallVerdict::Network, Sockets::Internet) => FilterAnswer::Kernel,
                    (SyscallVerdict::Network, Sockets::None) => FilterAnswer::Errno(EACCES),
                    (SyscallVerdict::Refuse, _) => FilterAnswer::Errno(EPERM),
                    (SyscallVerdict::Absent, _) => FilterAnswer::Errno(ENOSYS),
                    (SyscallVerdict::Restrict, _) => continue,
                };
                if let Some(found) = filters.answer(name, &[]) {
                    assert_eq!(found, wanted, "{arch:?} {name}");
                }
            }
            for unknown in [471, 500, 999, 0x4000_0000, 0x4000_0029, 0x4000_0200, 0xffff_ffff] {
                let found = filters.answer_to(audit_arch(arch), unknown, [0; 6]);
                assert_eq!(found, FilterAnswer::Errno(ENOSYS), "{arch:?} {unknown:#x}");
            }
            // Calls of the 32-bit table of x86 kill the process, on every architecture.
            assert_eq!(filters.answer_to(0x4000_0003, 1, [0; 6]), FilterAnswer::Killed);
        }
    }
}

/// A bit that the kernel ignores in an argument of 32 bits.
const HIGH: u64 = 1 << 32;
/// Calls with arguments that decide, and the result with and without a network grant.
const ARGUMENT_CASES: &[(&str, &[u64], FilterAnswer)] = &[
    ("prlimit64", &[0, 7], FilterAnswer::Kernel),
    ("prlimit64", &[HIGH, 7], FilterAnswer::Kernel),
    ("prlimit64", &[1, 7], FilterAnswer::Errno(EPERM)),
    ("prlimit64", &[u64::MAX, 7], FilterAnswer::Errno(EPERM)),
    ("clone", &[0x0120_0011], FilterAnswer::Kernel),
    ("clone", &[0x003d_0f00], FilterAnswer::Kernel),
    ("clone", &[0x1000_0011], FilterAnswer::Errno(EPERM)),
    ("clone", &[0x0002_0000], FilterAnswer::Errno(EPERM)),
    ("clone", &[0x4000_0000 | HIGH], FilterAnswer::Errno(EPERM)),
    ("prctl", &[15], FilterAnswer::Kernel),
    ("prctl", &[38], FilterAnswer::Kernel),
    ("prctl", &[0x5356_4d41], FilterAnswer::Kernel),
    ("prctl", &[4], FilterAnswer::Errno(EPERM)),
    ("prctl", &[0x23 | HIGH], FilterAnswer::Errno(EPERM)),
    ("prctl", &[62], FilterAnswer::Errno(EPERM)),
    ("prctl", &[79], FilterAnswer::Errno(EPERM)),
    ("prctl", &[0x5961_6d61], FilterAnswer::Errno(EPERM)),
    ("ioctl", &[0, 0x5401], FilterAnswer::Kernel),
    ("ioctl", &[0, 0x5412], FilterAnswer::Errno(EPERM)),
    ("ioctl", &[0, 0x5412 | HIGH], FilterAnswer::Errno(EPERM)),
    ("ioctl", &[0, 0x541c], FilterAnswer::Errno(EPERM)),
    ("fcntl", &[0, 2], FilterAnswer::Kernel),
    ("fcntl", &[0, 1024], FilterAnswer::Errno(EPERM)),
    ("personality", &[0xffff_ffff], FilterAnswer::Kernel),
    ("personality", &[0x0004_0000], FilterAnswer::Kernel),
    ("personality", &[0x0040_0000], FilterAnswer::Errno(EPERM)),
    ("sched_setaffinity", &[0], FilterAnswer::Kernel),
    ("sched_setaffinity", &[1], FilterAnswer::Errno(EPERM)),
    ("sched_setscheduler", &[1], FilterAnswer::Errno(EPERM)),
    ("setpriority", &[0, 0, 10], FilterAnswer::Kernel),
    ("setpriority", &[0, 1, 10], FilterAnswer::Errno(EPERM)),
    ("setpriority", &[1, 0, 10], FilterAnswer::Errno(EPERM)),
    ("setpriority", &[2, 0, 10], FilterAnswer::Errno(EPERM)),
    ("ioprio_set", &[1, 0, 0], FilterAnswer::Kernel),
    ("ioprio_set", &[1, 1, 0], FilterAnswer::Errno(EPERM)),
    ("ioprio_set", &[3, 0, 0], FilterAnswer::Errno(EPERM)),
    ("socketpair", &[1, 1, 0], FilterAnswer::Kernel),
    ("socketpair", &[1, 0x8_0801, 0], FilterAnswer::Kernel),
    ("socketpair", &[1, 5, 0], FilterAnswer::Kernel),
    ("socketpair", &[1, 2, 0], FilterAnswer::Errno(EACCES)),
    ("socketpair", &[1, 0x8_0003, 0], FilterAnswer::Errno(EACCES)),
    ("socketpair", &[30, 1, 0], FilterAnswer::Errno(EACCES)),
];

#[test]
fn arguments_decide_on_every_architecture() {
    let families = [(1, false), (2, true), (10, true), (16, true), (17, false), (38, false), (40, false)];
    for arch in ARCHITECTURES {
        let (none, internet) = (Filters::new(arch, Sockets::None), Filters::new(arch, Sockets::Internet));
        for (name, arguments, wanted) in ARGUMENT_CASES {
            for filters in [&none, &internet] {
                assert_eq!(filters.answer(name, arguments), Some(*wanted), "{arch:?} {name} {arguments:x?}");
            }
        }
        for (family, is_internet) in families {
            let wanted = if is_internet { FilterAnswer::Kernel } else { FilterAnswer::Errno(EACCES) };
            assert_eq!(internet.answer("socket", &[family, 1, 0]), Some(wanted), "{family}");
            assert_eq!(none.answer("socket", &[family, 1, 0]), Some(FilterAnswer::Errno(EACCES)), "{family}");
        }
        let netlink = internet.answer("socket", &[NETLINK_FAMILY, 3, 2]);
        assert_eq!(netlink, Some(FilterAnswer::Errno(EACCES)));
    }
}

/// The largest number of instructions that the kernel accepts in one filter (`BPF_MAXINSNS`).
const MAX_INSTRUCTIONS: usize = 4096;

/// Writes the filters for another machine if `RYE_TEST_FILTERS` names a folder: `ARCH-SOCKETS-N.bpf` in the order of
/// installation, and `ARCH-refused.txt` with the calls that are refused without a network grant (`e2e/aarch64/run`).
#[test]
fn filters_fit_the_kernel_on_every_architecture() {
    let folder = std::env::var_os("RYE_TEST_FILTERS").map(std::path::PathBuf::from);
    for (arch, arch_name) in ARCHITECTURES.into_iter().zip(["x86_64", "aarch64", "riscv64"]) {
        for (sockets, sockets_name) in [(Sockets::None, "none"), (Sockets::Internet, "internet")] {
            for (position, program) in filters_for(arch, sockets).unwrap().iter().enumerate() {
                assert!(program.len() <= MAX_INSTRUCTIONS, "{arch:?} {sockets:?}: {}", program.len());
                let Some(folder) = &folder else { continue };
                let bytes = program.iter().flat_map(|step| {
                    let [code, more] = step.code.to_le_bytes();
                    [code, more, step.jt, step.jf].into_iter().chain(step.k.to_le_bytes())
                });
                let name = format!("{arch_name}-{sockets_name}-{position}.bpf");
                std::fs::write(folder.join(name), bytes.collect::<Vec<u8>>()).unwrap();
            }
        }
        if let Some(folder) = &folder {
            std::fs::write(folder.join(format!("{arch_name}-refused.txt")), refused_calls(arch)).unwrap();
        }
    }
}

/// Returns a line for each call that is refused without a network grant: its name, its number, the error number of the
/// result, and the arguments.
fn refused_calls(arch: TargetArch) -> String {
    let filters = Filters::new(arch, Sockets::None);
    let of_table = CLASSES.iter().flat_map(|class| class.calls).map(|(name, ..)| (*name, [].as_slice()));
    let with_arguments = ARGUMENT_CASES.iter().map(|(name, arguments, _)| (*name, *arguments));
    let mut lines = Vec::new();
    for (name, arguments) in of_table.chain(with_arguments) {
        let Some(FilterAnswer::Errno(error)) = filters.answer(name, arguments) else { continue };
        let (x86_64, generic) = table::find(name).unwrap();
        let mut words = vec![name.to_owned(), number(arch, x86_64, generic).unwrap().to_string(), error.to_string()];
        words.extend(arguments.iter().map(|argument| format!("{argument:#x}")));
        lines.push(words.join(" ") + "\n");
    }
    lines.concat()
}

/// The system calls of language runtimes, recorded with `strace`.
const RUNTIMES: &str = include_str!("runtimes.txt");

#[test]
fn calls_of_every_recorded_runtime_belong_to_a_class_that_runs_them() {
    let mut runtimes = 0;
    for line in RUNTIMES.lines().filter(|line| !line.starts_with('#')) {
        let (runtime, calls) = line.split_once(": ").unwrap();
        assert!(calls.split(' ').count() > 20, "{runtime}");
        runtimes += 1;
        for call in calls.split(' ') {
            let class = CLASSES.iter().find(|class| class.calls.iter().any(|(name, ..)| *name == call));
            let verdict = class.unwrap_or_else(|| panic!("{runtime}: the table lacks `{call}`")).verdict;
            let runs = matches!(verdict, SyscallVerdict::Allow | SyscallVerdict::Restrict | SyscallVerdict::Network);
            // If the filter refuses `clone3`, C libraries use `clone`.
            assert!(runs || call == "clone3", "{runtime}: `{call}` is {verdict:?}");
            if runtime.ends_with("on aarch64") {
                let (_, generic) = table::find(call).unwrap();
                assert!(number(TargetArch::aarch64, 0, generic).is_some(), "{runtime}: `{call}` has no number");
            }
        }
    }
    assert_eq!(runtimes, 16);
}
