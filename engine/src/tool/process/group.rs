//! The process group of a running program. Dropping a [`ProcessGroup`] ends every process in it.

use std::io::PipeWriter;
use std::sync::LazyLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpgid, kill_process_group};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::descendants::ProcessTable;

/// Time that the helper process (`supervise.rs`) has to end every process of its program. After this time, the owner of
/// the group kills them.
const HELPER_TIMEOUT: Duration = Duration::from_secs(3);

/// Interval between two checks whether a helper has ended.
const HELPER_CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum time to wait until all programs have ended. The time is longer than [`HELPER_TIMEOUT`], so that on a slow
/// machine the helpers can still be killed before the wait ends.
const PROGRAMS_END_TIMEOUT: Duration = Duration::from_secs(4);

/// The number of [`LiveGroup`]s of this process.
static LIVE_GROUPS: LazyLock<watch::Sender<usize>> = LazyLock::new(|| watch::Sender::new(0));

/// A guard that exists while a program of this process runs, or while the helper of the program ends it.
struct LiveGroup;

impl LiveGroup {
    fn new() -> Self {
        LIVE_GROUPS.send_modify(|count| *count += 1);
        Self
    }
}

impl Drop for LiveGroup {
    fn drop(&mut self) {
        LIVE_GROUPS.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// Waits until the programs of all calls have ended, at most for `PROGRAMS_END_TIMEOUT`. Returns false if programs
/// still run. Ignores long-lived programs whose handle still exists.
pub async fn wait_programs_ended() -> bool {
    let mut live = LIVE_GROUPS.subscribe();
    timeout(PROGRAMS_END_TIMEOUT, live.wait_for(|count| *count == 0)).await.is_ok()
}

/// The process group of a program. If the group has a helper process (see `supervise.rs`), the helper runs the program
/// and is the leader of the group; `owner` is then the pipe to the helper.
pub(super) struct ProcessGroup {
    live: Option<LiveGroup>,
    pid: Option<Pid>,
    owner: Option<PipeWriter>,
    has_helper: bool,
    leader_lives: bool,
}

impl ProcessGroup {
    /// Creates the group of a program that runs for one call only. `wait_programs_ended` waits for such a program.
    pub(super) fn new(leader: Option<u32>, owner: Option<PipeWriter>) -> Self {
        let mut group = Self::long_lived(leader, owner);
        group.live = Some(LiveGroup::new());
        group
    }

    /// Creates the group of a program that runs until its handle is dropped.
    pub(super) fn long_lived(leader: Option<u32>, owner: Option<PipeWriter>) -> Self {
        let pid = leader.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Self { live: None, pid, has_helper: owner.is_some(), owner, leader_lives: true }
    }

    pub(super) fn leader_has_ended(&mut self) {
        self.leader_lives = false;
    }

    pub(super) fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid {
            // The group may have ended already.
            kill_process_group(pid, signal).ok();
        }
    }

    /// Ends the group. If a helper process runs the program, closes the pipe to the helper and returns true. The helper
    /// then ends the group within a moment, and also the processes that left the group. Without a helper, kills the
    /// group with `SIGKILL` and returns false.
    pub(super) fn end(&mut self) -> bool {
        self.owner = None;
        let helped = self.has_helper && self.leader_lives;
        // The program may have stopped its helper with a signal. A stopped helper cannot end the group.
        self.signal(if helped { Signal::CONT } else { Signal::KILL });
        helped
    }

    /// Kills the group. If a helper process (`supervise.rs`) runs the program, kills all descendants of the helper
    /// first.
    pub(super) fn kill(&self) {
        match self.pid {
            Some(pid) if self.has_helper && self.leader_lives => kill_helper_tree(pid),
            Some(_) | None => self.signal(Signal::KILL),
        }
    }
}

/// Kills a helper process (`supervise.rs`) and everything below it: first its descendants, then the helper and its
/// group.
fn kill_helper_tree(helper: Pid) {
    if let Ok(mut table) = ProcessTable::open_for(helper) {
        table.end_all();
    }
    kill_process_group(helper, Signal::KILL).ok();
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let (true, Some(pid)) = (self.end(), self.pid) else { return };
        // Without a Tokio runtime, this process is ending, so no task waits for the helper.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let live = self.live.take().unwrap_or_else(LiveGroup::new);
            runtime.spawn(async move {
                let started = Instant::now();
                while getpgid(Some(pid)).is_ok_and(|group| group == pid) {
                    if started.elapsed() >= HELPER_TIMEOUT {
                        kill_helper_tree(pid);
                        break;
                    }
                    sleep(HELPER_CHECK_INTERVAL).await;
                }
                drop(live);
            });
        }
    }
}
