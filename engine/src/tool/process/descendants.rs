//! The descendants of a process: listing, counting, ending. The files of `/proc` are opened before the program starts
//! and stay open, so that a shortage of descriptors cannot hide a process. If a list cannot be read, the result is an
//! error, never an empty list.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process};

/// Maximum number of processes of one program.
pub(super) const MAX_PROCESSES: usize = 512;
/// Number of samples of the task count that are kept: half a second, at one sample per [`super::supervise`] tick.
const RECENT_SAMPLES: usize = 25;
/// Maximum number of rounds in which running descendants are found and stopped. Each round finds the processes that
/// were started during the previous round.
const STOP_ROUNDS: usize = 64;
/// Number of extra passes that list only the children of known processes, after each pass over all processes. A pass
/// over all processes is too slow to find a process that repeatedly forks and exits: its process id changes before the
/// pass ends.
const QUICK_PASSES: usize = 64;
/// Maximum time to wait for killed processes to disappear. A process that remains after this time is stuck in the
/// kernel with its `SIGKILL` pending.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// A table of the machine's processes, in which the descendants of one process are found.
pub(super) struct ProcessTable {
    #[cfg(target_os = "linux")]
    files: linux::ProcFiles,
    root: Pid,
}

impl ProcessTable {
    /// Opens the table for the descendants of this process.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub(super) fn open() -> io::Result<Self> {
        Self::open_for(getpid())
    }

    /// Opens a table for the descendants of the process `root`, which need not be this process.
    pub(super) fn open_for(root: Pid) -> io::Result<Self> {
        Ok(Self {
            #[cfg(target_os = "linux")]
            files: linux::ProcFiles::open(root)?,
            root,
        })
    }

    /// Lists the living descendants, including orphans, which the helper adopts.
    ///
    /// # Errors
    ///
    /// Fails if a file of `/proc` cannot be read, because the list would be incomplete.
    pub(super) fn descendants(&mut self) -> io::Result<Vec<Pid>> {
        let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for (pid, parent) in self.living()? {
            children.entry(parent).or_default().push(pid);
        }
        let mut found = Vec::new();
        let mut parents = vec![self.root.as_raw_nonzero().get()];
        while let Some(parent) = parents.pop() {
            for child in children.remove(&parent).unwrap_or_default() {
                found.extend(Pid::from_raw(child));
                parents.push(child);
            }
        }
        Ok(found)
    }

    /// Ends every descendant, including those in other groups and sessions. First stops all descendants, so that none
    /// of them starts another process meanwhile, and then kills them. Returns when no descendant is left, or when the
    /// remaining descendants have not ended within `KILL_TIMEOUT` after their `SIGKILL`.
    pub(super) fn end_all(&mut self) {
        let mut stopped = BTreeSet::new();
        for _ in 0..STOP_ROUNDS {
            let running: Vec<Pid> = self.reachable().filter(|pid| stopped.insert(pid.as_raw_nonzero())).collect();
            if running.is_empty() {
                break;
            }
            signal_each(running, Signal::STOP);
        }
        let mut killed = BTreeSet::new();
        let mut deadline = Instant::now() + KILL_TIMEOUT;
        loop {
            let found: Vec<Pid> = self.reachable().collect();
            let is_done = if self.root == getpid() { !has_children() } else { found.is_empty() };
            let is_pending = !found.is_empty() && found.iter().all(|pid| killed.contains(&pid.as_raw_nonzero()));
            if is_done || (is_pending && Instant::now() > deadline) {
                return;
            }
            if !is_pending {
                deadline = Instant::now() + KILL_TIMEOUT;
            }
            killed.extend(found.iter().map(|pid| pid.as_raw_nonzero()));
            signal_each(found, Signal::KILL);
            for _ in 0..QUICK_PASSES {
                signal_each(self.children(), Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Reaps orphans that have ended, but not the `program` itself, whose exit status is read elsewhere. Unreaped
    /// processes stay in the process table of the machine, which a program that forks all the time would fill.
    pub(super) fn reap_orphans(&self, program: Option<Pid>) {
        for child in self.children().into_iter().filter(|child| Some(*child) != program) {
            // With `NOHANG`, a child that still runs is skipped. An error means that the process is no longer a child.
            rustix::process::waitpid(Some(child), WaitOptions::NOHANG).ok();
        }
    }

    /// Returns all descendants that can be found. If the list of all processes cannot be read, returns only the
    /// children. That is enough to kill all descendants one after another, because the children of a killed child
    /// become children of the helper.
    fn reachable(&mut self) -> impl Iterator<Item = Pid> + use<> {
        let mut found: BTreeSet<_> =
            self.descendants().unwrap_or_default().into_iter().map(Pid::as_raw_nonzero).collect();
        found.extend(self.children().into_iter().map(Pid::as_raw_nonzero));
        found.into_iter().filter_map(|pid| Pid::from_raw(pid.get()))
    }

    #[cfg(target_os = "linux")]
    fn living(&mut self) -> io::Result<Vec<(i32, i32)>> {
        self.files.living()
    }

    #[cfg(target_os = "linux")]
    fn children(&self) -> Vec<Pid> {
        self.files.children()
    }

    /// Returns no processes. On systems other than Linux, processes are ended only by process group.
    #[cfg(not(target_os = "linux"))]
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "the Linux variant can fail and uses `self`")]
    fn living(&mut self) -> io::Result<Vec<(i32, i32)>> {
        Ok(Vec::new())
    }

    #[cfg(not(target_os = "linux"))]
    #[expect(clippy::unused_self, reason = "the same function reads the table on Linux")]
    fn children(&self) -> Vec<Pid> {
        Vec::new()
    }
}

/// Reaps children that have ended. Returns true if any child lives.
pub(super) fn has_children() -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => return true,
            // The kernel returns no other error here than `ECHILD`: there is no child.
            Err(_) => return false,
        }
    }
}

fn signal_each(pids: Vec<Pid>, signal: Signal) {
    for pid in pids {
        // The process may have ended by itself since.
        kill_process(pid, signal).ok();
    }
}

/// Numbers of tasks on the machine: `first` was counted at the start of the program, and `recent` holds the counts of
/// the last half second.
pub(super) struct TaskCount {
    first: Option<u64>,
    recent: VecDeque<u64>,
}

impl TaskCount {
    pub(super) fn new(table: &ProcessTable) -> Self {
        Self { first: table.all_tasks(), recent: VecDeque::new() }
    }

    /// Returns true if the program has more than [`MAX_PROCESSES`] processes. If the machine gained more than
    /// [`MAX_PROCESSES`] tasks within the last half second, the limit is an eighth of [`MAX_PROCESSES`], because
    /// processes may start faster than they can be listed.
    ///
    /// Listing the processes is slow, so the tasks of the whole machine are counted first. The processes are not listed
    /// if the machine gained at most [`MAX_PROCESSES`] tasks since the program started, and at most [`MAX_PROCESSES`]
    /// tasks within the last half second. If the tasks cannot be counted, the processes are always listed.
    ///
    /// # Errors
    ///
    /// The processes cannot be listed.
    pub(super) fn is_exceeded(&mut self, table: &mut ProcessTable) -> io::Result<bool> {
        let limit = match (self.first, table.all_tasks()) {
            (Some(first), Some(now)) => {
                self.recent.push_back(now);
                if self.recent.len() > RECENT_SAMPLES {
                    self.recent.pop_front();
                }
                let max = MAX_PROCESSES as u64;
                let is_sudden = self.recent.iter().min().is_some_and(|least| now > least.saturating_add(max));
                match (is_sudden, now > first.saturating_add(max)) {
                    (true, _) => MAX_PROCESSES / 8,
                    (false, true) => MAX_PROCESSES,
                    (false, false) => return Ok(false),
                }
            }
            (None, _) | (_, None) => MAX_PROCESSES,
        };
        Ok(table.descendants()?.len() > limit)
    }
}

impl ProcessTable {
    #[cfg(target_os = "linux")]
    fn all_tasks(&self) -> Option<u64> {
        self.files.all_tasks()
    }

    #[cfg(not(target_os = "linux"))]
    #[expect(clippy::unused_self, reason = "the same function reads the table on Linux")]
    fn all_tasks(&self) -> Option<u64> {
        None
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::File;
    use std::io::{self, Read};
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::FileExt;

    use rustix::fs::{CWD, Dir, Mode, OFlags};
    use rustix::io::Errno;
    use rustix::process::Pid;

    use super::living_parent;

    /// Maximum bytes that one read of the file `children` returns. A child that does not fit appears in a later read,
    /// after other children have ended.
    const MAX_CHILDREN_BYTES: usize = 64 * 1024;

    /// Files of `/proc` that are opened before the program starts and stay open.
    pub(super) struct ProcFiles {
        folder: Dir,
        load: File,
        /// The file `/proc/PID/task/PID/children`, which lists the children of the main thread; `None` if the kernel is
        /// built without this file.
        children: Option<File>,
    }

    impl ProcFiles {
        pub(super) fn open(root: Pid) -> io::Result<Self> {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let folder = rustix::fs::openat(CWD, "/proc", flags | OFlags::DIRECTORY, Mode::empty())?;
            let open =
                |path: &str| -> rustix::io::Result<OwnedFd> { rustix::fs::openat(&folder, path, flags, Mode::empty()) };
            let load = open("loadavg")?.into();
            let root = root.as_raw_nonzero();
            let children = match open(&format!("{root}/task/{root}/children")) {
                Ok(file) => Some(file.into()),
                Err(Errno::NOENT) => None,
                Err(error) => return Err(error.into()),
            };
            Ok(Self { folder: Dir::new(folder)?, load, children })
        }

        /// Lists the living processes of the machine: the id of each process and the id of its parent.
        pub(super) fn living(&mut self) -> io::Result<Vec<(i32, i32)>> {
            self.folder.rewind();
            let mut found = Vec::new();
            let mut stat = Vec::new();
            while let Some(entry) = self.folder.read() {
                let entry = entry?;
                let Some(pid) = entry.file_name().to_str().ok().and_then(|name| name.parse::<i32>().ok()) else {
                    continue;
                };
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                let file = match rustix::fs::openat(self.folder.fd()?, format!("{pid}/stat"), flags, Mode::empty()) {
                    Ok(file) => file,
                    // The process has ended, or a `/proc` with `hidepid` hides the process of another user.
                    Err(Errno::NOENT | Errno::SRCH | Errno::ACCESS | Errno::PERM) => continue,
                    Err(error) => return Err(error.into()),
                };
                stat.clear();
                match File::from(file).read_to_end(&mut stat) {
                    Ok(_) => found.extend(living_parent(&String::from_utf8_lossy(&stat)).map(|parent| (pid, parent))),
                    Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(found)
        }

        /// Returns the children of the main thread of the process; empty if the kernel does not list children. The
        /// result also contains processes that `hidepid` hides from [`super::ProcessTable::living`].
        pub(super) fn children(&self) -> Vec<Pid> {
            let Some(file) = &self.children else { return Vec::new() };
            let mut text = vec![0_u8; MAX_CHILDREN_BYTES];
            let read = file.read_at(&mut text, 0).unwrap_or(0);
            let text = String::from_utf8_lossy(text.get(..read).unwrap_or_default()).into_owned();
            // The read may end within a number, so the text after the last space is dropped.
            let whole = text.rfind(' ').and_then(|end| text.get(..end)).unwrap_or_default();
            whole.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
        }

        /// Returns the number of processes and threads of the machine, from the field `RUNNING/TOTAL` of
        /// `/proc/loadavg`; `None` if the field cannot be read.
        pub(super) fn all_tasks(&self) -> Option<u64> {
            let mut line = [0_u8; 128];
            let read = self.load.read_at(&mut line, 0).ok()?;
            let line = std::str::from_utf8(line.get(..read)?).ok()?;
            line.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
        }
    }
}

/// Returns the id of the parent process in the content of `/proc/PID/stat`; `None` if the process has ended. The name
/// of the program in parentheses may contain any character, also `)`.
fn living_parent(stat: &str) -> Option<i32> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    if matches!(state, "Z" | "X") { None } else { Some(parent) }
}

#[cfg(test)]
mod tests;
