//! No sockets but those that are granted, and none of the system calls that lead around a wall: a filter that the program
//! and all it starts cannot take off. Pairs of connected sockets, which reach nobody else, stay. A grant of the network is
//! one of the internet: a Unix socket leads to what else runs for the same user (a container daemon, a session bus, an agent
//! that holds keys), and who may ask those for a program has left every wall.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

/// `EACCES`.
const REFUSED: u32 = 13;
/// On x86-64 the same calls exist a second time, with this bit set.
const X32: i64 = 0x4000_0000;
/// The families of a granted network: IPv4, IPv6, and netlink, by which programs learn which of the two there is.
const INTERNET: [u64; 3] = [2, 10, 16];

/// Which sockets can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sockets {
    None,
    Internet,
}

/// Refuses every other socket from here on.
pub fn allow_only(sockets: Sockets) -> io::Result<()> {
    let filter = filter(sockets).map_err(io::Error::other)?;
    seccompiler::apply_filter(&filter).map_err(io::Error::other)
}

/// The filter for this processor.
pub fn filter(sockets: Sockets) -> Result<BpfProgram, String> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
    let (socket, others) = calls(arch);
    let socket_rules = match sockets {
        // Without a rule the call itself is what is refused.
        Sockets::None => Vec::new(),
        Sockets::Internet => vec![other_family().map_err(|error| error.to_string())?],
    };
    let mut rules = BTreeMap::new();
    for (call, when) in others.iter().map(|call| (*call, Vec::new())).chain([(socket, socket_rules)]) {
        if arch == TargetArch::x86_64 {
            rules.insert(call | X32, when.clone());
        }
        rules.insert(call, when);
    }
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(REFUSED), arch);
    filter.and_then(BpfProgram::try_from).map_err(|error| error.to_string())
}

/// A socket of a family that is none of the internet's.
fn other_family() -> Result<SeccompRule, seccompiler::BackendError> {
    let is_not = |family| SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family);
    SeccompRule::new(INTERNET.into_iter().map(is_not).collect::<Result<_, _>>()?)
}

/// `socket`; then `io_uring_setup`, which makes sockets of its own, and the keyring (`add_key`, `request_key`, `keyctl`).
fn calls(arch: TargetArch) -> (i64, [i64; 4]) {
    match arch {
        TargetArch::x86_64 => (41, [425, 248, 249, 250]),
        // Newer architectures share one table.
        TargetArch::aarch64 | TargetArch::riscv64 => (198, [425, 217, 218, 219]),
    }
}
