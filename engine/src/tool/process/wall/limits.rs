//! Bounds on what one program can use up, and what is left of root's privileges. The number of processes counts for the
//! whole user, and not at all for root: the helper counts as well.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// Bytes of one file.
const FILE: u64 = 4 << 30;
/// Bytes of memory one process writes to.
const DATA: u64 = 8 << 30;
const OPEN_FILES: u64 = 4096;
const NICE: i32 = 5;
/// Processes and threads beside those that are there already.
const MORE_PROCESSES: u64 = 1024;

pub fn set() -> io::Result<()> {
    let processes = all_tasks().map(|there| there + MORE_PROCESSES);
    let bounds = [
        (Resource::Core, Some(0)),
        (Resource::Fsize, Some(FILE)),
        (Resource::Data, Some(DATA)),
        (Resource::Nofile, Some(OPEN_FILES)),
        (Resource::Nproc, processes),
    ];
    for (resource, bound) in bounds {
        let Some(bound) = bound else { continue };
        // What was lower stays lower.
        let most = getrlimit(resource).maximum.map_or(bound, |most| most.min(bound));
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    // Whoever watches over a program has to get its turn before it.
    rustix::process::nice(NICE)?;
    // When memory is short, a tool goes before what runs it. Not every container lets this be written.
    std::fs::write("/proc/self/oom_score_adj", "500").ok();
    Ok(())
}

/// Root's programs keep what concerns files, which the wall bounds, and lose the rest: tracing and reading other
/// processes, loading modules, mounting, the network's configuration.
pub fn give_up_privileges() -> io::Result<()> {
    let files = CapabilitySet::CHOWN | CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER | CapabilitySet::FSETID;
    let permitted = capabilities(None)?.permitted & files;
    let inheritable = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: permitted, permitted, inheritable })?)
}

/// Processes and threads of the machine: the second half of the fourth field.
fn all_tasks() -> Option<u64> {
    let line = std::fs::read_to_string("/proc/loadavg").ok()?;
    line.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}
