//! No sockets, and none of the system calls that lead around a wall: a filter that the program and all it starts cannot
//! take off. Pairs of connected sockets, which reach nobody else, stay.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

/// `EACCES`.
const REFUSED: u32 = 13;
/// On x86-64 the same calls exist a second time, with this bit set.
const X32: i64 = 0x4000_0000;

/// Refuses sockets from here on.
pub fn refuse() -> io::Result<()> {
    let filter = filter().map_err(io::Error::other)?;
    seccompiler::apply_filter(&filter).map_err(io::Error::other)
}

/// The filter for this processor.
pub fn filter() -> Result<BpfProgram, String> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
    let mut rules = BTreeMap::new();
    for call in calls(arch) {
        rules.insert(*call, Vec::new());
        if arch == TargetArch::x86_64 {
            rules.insert(*call | X32, Vec::new());
        }
    }
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(REFUSED), arch);
    filter.and_then(BpfProgram::try_from).map_err(|error| error.to_string())
}

/// `socket`; `io_uring_setup`, which makes sockets of its own; the keyring (`add_key`, `request_key`, `keyctl`).
fn calls(arch: TargetArch) -> &'static [i64] {
    match arch {
        TargetArch::x86_64 => &[41, 425, 248, 249, 250],
        // Newer architectures share one table.
        TargetArch::aarch64 | TargetArch::riscv64 => &[198, 425, 217, 218, 219],
    }
}
