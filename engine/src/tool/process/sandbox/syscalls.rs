//! The system call filter of a sandboxed program. Calls are denied by default: a call outside the allow-list fails with
//! `ENOSYS`, so that the C library tries an older call. A dangerous call fails with `EPERM`, an ungranted socket with
//! `EACCES`. The program and its descendants cannot remove the filter. A network grant covers the internet only. Unix
//! sockets stay denied, because they lead to daemons of the same user (containers, a session bus, key agents) that
//! start programs outside the sandbox.

mod table;

use std::collections::BTreeMap;
use std::io;

use SeccompCmpArgLen::Dword;
use SeccompCmpOp::{Eq, Gt, MaskedEq, Ne};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use table::{CLASSES, SyscallVerdict};

const EPERM: u32 = 1;
const EACCES: u32 = 13;
const ENOSYS: u32 = 38;

/// The socket families of a network grant: IPv4, IPv6, and netlink for the list of interfaces.
const INTERNET_FAMILIES: [u64; 3] = [2, 10, NETLINK_FAMILY];
const NETLINK_FAMILY: u64 = 16;
const NETLINK_ROUTE: u64 = 0;
const UNIX_FAMILY: u64 = 1;
/// The allowed types of socket pairs, stream and seqpacket, which reach no other process. A datagram socket of a pair
/// can send to any address.
const PAIR_TYPES: [u64; 2] = [1, 5];
/// The bits of a socket's type without its flags.
const SOCKET_TYPE_MASK: u64 = 0xf;
/// The refused flags of `clone`, which create namespaces: `CLONE_NEWNS`, `NEWCGROUP`, `NEWUTS`, `NEWIPC`, `NEWUSER`,
/// `NEWPID` and `NEWNET`.
const NAMESPACE_FLAGS: [u64; 7] =
    [0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000];
/// The refused `ioctl` requests: `TIOCSTI` and `TIOCLINUX` send input to other programs of a terminal, `TIOCCONS`
/// redirects the output of the console, and `TIOCSETD` sets the line discipline.
const TERMINAL_REQUESTS: [u64; 4] = [0x5412, 0x541c, 0x541d, 0x5423];
/// The refused command of `fcntl`: `F_SETLEASE`. A lease on a file can block every other process that opens the file.
const FILE_COMMANDS: [u64; 1] = [1024];
/// The options of `prctl` that are refused: `SET_DUMPABLE` (hides a process from a `/proc` with `hidepid`), performance
/// counters, machine checks, `SET_MM`, system call dispatch, and core scheduling of other processes.
const PROCESS_OPTIONS: [u64; 7] = [4, 31, 32, 33, 35, 59, 62];
/// The last reviewed option of `prctl` (`FUTEX_HASH`). Options with a higher number are refused, except for
/// [`FURTHER_PROCESS_OPTIONS`].
const LAST_PROCESS_OPTION: u64 = 78;
/// The allowed options of `prctl` beyond [`LAST_PROCESS_OPTION`]: `SET_VMA` and `GET_AUXV`.
const FURTHER_PROCESS_OPTIONS: [u64; 2] = [0x5356_4d41, 0x4155_5856];
/// The allowed arguments of `personality`: Linux and 32-bit Linux, each with and without `UNAME26`;
/// `ADDR_NO_RANDOMIZE`, which sanitizers need; and `0xffff_ffff`, which only queries the current personality.
const PERSONALITIES: [u64; 6] = [0, 8, 0x0002_0000, 0x0002_0008, 0x0004_0000, 0xffff_ffff];
const PRIO_PROCESS: u64 = 0;
const IOPRIO_WHO_PROCESS: u64 = 1;

/// The sockets a program can make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sockets {
    None,
    Internet,
}

/// Filters the system calls of the calling OS thread, of the program that it executes and of all descendants.
pub fn apply(sockets: Sockets) -> io::Result<()> {
    for filter in filters(sockets).map_err(io::Error::other)? {
        seccompiler::apply_filter(&filter).map_err(io::Error::other)?;
    }
    Ok(())
}

/// Returns the filters for this processor, in the order of installation. If several filters refuse a call, the last one
/// determines the error number.
pub fn filters(sockets: Sockets) -> Result<[BpfProgram; 3], String> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
    filters_for(arch, sockets).map_err(|error| error.to_string())
}

fn filters_for(arch: TargetArch, sockets: Sockets) -> Result<[BpfProgram; 3], BackendError> {
    let with_verdict = |verdicts: &[SyscallVerdict]| -> BTreeMap<i64, Vec<SeccompRule>> {
        let classes = CLASSES.iter().filter(|class| verdicts.contains(&class.verdict));
        let calls = classes.flat_map(|class| class.calls);
        calls.filter_map(|(_, x86_64, generic)| Some((number(arch, *x86_64, *generic)?, Vec::new()))).collect()
    };
    let known = with_verdict(&[
        SyscallVerdict::Allow,
        SyscallVerdict::Restrict,
        SyscallVerdict::Network,
        SyscallVerdict::Refuse,
    ]);
    let mut refused = with_verdict(&[SyscallVerdict::Refuse]);
    refused.extend(by_number(arch, restrictions()?));
    let mut network = match sockets {
        Sockets::None => with_verdict(&[SyscallVerdict::Network]),
        Sockets::Internet => BTreeMap::new(),
    };
    network.extend(by_number(arch, socket_restrictions(sockets)?));
    let refuse = |rules, errno| SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno), arch);
    Ok([
        SeccompFilter::new(known, SeccompAction::Errno(ENOSYS), SeccompAction::Allow, arch)?.try_into()?,
        refuse(refused, EPERM)?.try_into()?,
        refuse(network, EACCES)?.try_into()?,
    ])
}

type NamedRules = Vec<(&'static str, Vec<SeccompRule>)>;

fn by_number(arch: TargetArch, rules: NamedRules) -> impl Iterator<Item = (i64, Vec<SeccompRule>)> {
    rules.into_iter().filter_map(move |(name, rules)| {
        let (x86_64, generic) = table::find(name)?;
        Some((number(arch, x86_64, generic)?, rules))
    })
}

fn number(arch: TargetArch, x86_64: i64, generic: i64) -> Option<i64> {
    match arch {
        TargetArch::x86_64 => table::number(x86_64, generic, true),
        TargetArch::aarch64 | TargetArch::riscv64 => table::number(x86_64, generic, false),
    }
}

/// Returns the rules for the system calls that are refused only with certain arguments, by the name of the call. A call
/// that matches a rule is refused with `EPERM`. The kernel reads each argument that a rule compares as 32 bits.
fn restrictions() -> Result<NamedRules, BackendError> {
    // The id 0 is the calling thread. A call with another id is refused.
    let of_another = |index| rule(&[(index, Ne, 0)]);
    let any_of = |index, values: &[u64]| -> Result<Vec<_>, _> {
        values.iter().map(|value| rule(&[(index, Eq, *value)])).collect()
    };
    let mut options = any_of(0, &PROCESS_OPTIONS)?;
    let further = FURTHER_PROCESS_OPTIONS.iter().map(|option| (0, Ne, *option));
    options.push(rule(&[(0, Gt, LAST_PROCESS_OPTION)].into_iter().chain(further).collect::<Vec<_>>())?);
    let personality: Vec<_> = PERSONALITIES.iter().map(|persona| (0, Ne, *persona)).collect();
    let namespaces = NAMESPACE_FLAGS.iter().map(|flag| rule(&[(0, MaskedEq(*flag), *flag)]));
    Ok(vec![
        ("clone", namespaces.collect::<Result<_, _>>()?),
        ("prctl", options),
        ("ioctl", any_of(1, &TERMINAL_REQUESTS)?),
        ("fcntl", any_of(1, &FILE_COMMANDS)?),
        ("personality", vec![rule(&personality)?]),
        ("prlimit64", vec![of_another(0)?]),
        ("sched_setparam", vec![of_another(0)?]),
        ("sched_setscheduler", vec![of_another(0)?]),
        ("sched_setattr", vec![of_another(0)?]),
        ("sched_setaffinity", vec![of_another(0)?]),
        ("setpriority", vec![rule(&[(0, Ne, PRIO_PROCESS)])?, of_another(1)?]),
        ("ioprio_set", vec![rule(&[(0, Ne, IOPRIO_WHO_PROCESS)])?, of_another(1)?]),
    ])
}

/// Returns the rules for the system calls that create sockets, by the name of the call. A call that matches a rule, or
/// whose list of rules is empty, is refused with `EACCES`.
fn socket_restrictions(sockets: Sockets) -> Result<NamedRules, BackendError> {
    let socket = match sockets {
        // Without a rule every call is refused.
        Sockets::None => Vec::new(),
        Sockets::Internet => {
            let families: Vec<_> = INTERNET_FAMILIES.iter().map(|family| (0, Ne, *family)).collect();
            vec![rule(&families)?, rule(&[(0, Eq, NETLINK_FAMILY), (2, Ne, NETLINK_ROUTE)])?]
        }
    };
    let other_types = (0..=SOCKET_TYPE_MASK).filter(|kind| !PAIR_TYPES.contains(kind));
    let mut pairs: Vec<_> =
        other_types.map(|kind| rule(&[(1, MaskedEq(SOCKET_TYPE_MASK), kind)])).collect::<Result<_, _>>()?;
    pairs.push(rule(&[(0, Ne, UNIX_FAMILY)])?);
    Ok(vec![("socket", socket), ("socketpair", pairs)])
}

/// Returns a rule that holds if all of its conditions on 32-bit arguments hold.
fn rule(conditions: &[(u8, SeccompCmpOp, u64)]) -> Result<SeccompRule, BackendError> {
    let conditions = conditions
        .iter()
        .map(|(index, operator, value)| SeccompCondition::new(*index, Dword, operator.clone(), *value));
    SeccompRule::new(conditions.collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests;
