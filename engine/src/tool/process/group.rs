//! The process group of a running program, and how all of it ends. Dropping a [`Group`] ends every process in it.

use std::io::PipeWriter;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpgid, kill_process_group};

/// How long the helper has to end everything before its whole group is killed with it.
const HELPER_TIME: Duration = Duration::from_secs(1);

/// A group, led by the helper where `owner` is its pipe.
pub(super) struct Group {
    pid: Option<Pid>,
    owner: Option<PipeWriter>,
    leader_lives: bool,
}

impl Group {
    pub(super) fn new(leader: Option<u32>, owner: Option<PipeWriter>) -> Self {
        let pid = leader.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Self { pid, owner, leader_lives: true }
    }

    pub(super) fn leader_has_ended(&mut self) {
        self.leader_lives = false;
    }

    pub(super) fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid {
            // The group may be gone already, and that is what is wanted.
            kill_process_group(pid, signal).ok();
        }
    }

    /// Ends the group: through the helper, which also finds what has left the group, else at once. True when the helper
    /// has been told and the group may live a moment longer.
    pub(super) fn end(&mut self) -> bool {
        let helped = self.owner.take().is_some() && self.leader_lives;
        // A program may have stopped its helper.
        self.signal(if helped { Signal::CONT } else { Signal::KILL });
        helped
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let (true, Some(pid)) = (self.end(), self.pid) else { return };
        // Without a runtime this process is ending, and the helper with it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(HELPER_TIME).await;
                if getpgid(Some(pid)).is_ok_and(|group| group == pid) {
                    kill_process_group(pid, Signal::KILL).ok();
                }
            });
        }
    }
}
