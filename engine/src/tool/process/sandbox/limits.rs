//! Resource limits of a program. Also drops the Linux capabilities if the program runs as root. The process limit
//! counts all processes and threads of the operating system's user, including the sandbox's own helper process. The
//! kernel does not apply this limit to root.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// Maximum size in bytes of a file that a sandboxed program writes.
const MAX_FILE_BYTES: u64 = 4 << 30;
/// Maximum bytes of writable memory of one process.
const MAX_DATA_BYTES: u64 = 8 << 30;
const MAX_OPEN_FILES: u64 = 4096;
const NICE: i32 = 5;
/// Maximum number of new processes and threads: the limit of the sandbox is the number of tasks on the machine when the
/// sandbox starts, plus this number.
const MAX_NEW_TASKS: u64 = 1024;

pub fn apply() -> io::Result<()> {
    let processes = all_tasks().map(|there| there + MAX_NEW_TASKS);
    let bounds = [
        (Resource::Core, Some(0)),
        (Resource::Fsize, Some(MAX_FILE_BYTES)),
        (Resource::Data, Some(MAX_DATA_BYTES)),
        (Resource::Nofile, Some(MAX_OPEN_FILES)),
        (Resource::Nproc, processes),
    ];
    for (resource, bound) in bounds {
        let Some(bound) = bound else { continue };
        // A lower existing limit stays.
        let most = getrlimit(resource).maximum.map_or(bound, |most| most.min(bound));
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    // The program gets a lower priority than the helper, which must get processor time first.
    rustix::process::nice(NICE)?;
    // If memory is short, the kernel ends the tool before the engine. Some containers do not allow this write.
    std::fs::write("/proc/self/oom_score_adj", "500").ok();
    Ok(())
}

/// Drops the Linux capabilities of a program that runs as root, such as tracing, kernel modules, mounts and network
/// configuration. Keeps four capabilities for files, because the sandbox restricts the access to files.
pub fn drop_privileges() -> io::Result<()> {
    let files = CapabilitySet::CHOWN | CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER | CapabilitySet::FSETID;
    let permitted = capabilities(None)?.permitted & files;
    let inheritable = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: permitted, permitted, inheritable })?)
}

/// Returns the number of processes and threads of the machine, from the field `RUNNING/TOTAL` of `/proc/loadavg`;
/// `None` if the field cannot be read.
fn all_tasks() -> Option<u64> {
    let line = std::fs::read_to_string("/proc/loadavg").ok()?;
    line.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}
