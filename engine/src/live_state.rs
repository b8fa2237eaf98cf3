//! The state of a running chat, as other tasks of the process read it.

use std::sync::Arc;

use rye_compiler::plan::Plan;
use tokio::sync::watch;

use crate::machine::ThreadState;

/// A plan with the state of its thread at one moment.
#[derive(Debug, Clone)]
pub struct LiveState {
    pub plan: Arc<Plan>,
    pub state: Arc<ThreadState>,
}

impl LiveState {
    /// Returns true if the session waits for the user: no prompt, command or change of the session is pending.
    pub fn is_settled(&self) -> bool {
        self.state.is_settled_chat()
    }

    /// Returns the id of the thread; `None` if the state does not contain the event `opened` yet.
    pub fn thread_id(&self) -> Option<&str> {
        self.state.launch.as_ref().map(|launch| launch.thread_id.as_str())
    }
}

/// A cell in which a thread publishes its state. Clones share the cell.
#[derive(Debug, Clone)]
pub struct StateCell(Arc<watch::Sender<Option<LiveState>>>);

impl Default for StateCell {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl StateCell {
    /// Replaces the published state.
    pub fn publish(&self, plan: &Arc<Plan>, state: &ThreadState) {
        self.0.send_replace(Some(LiveState { plan: Arc::clone(plan), state: Arc::new(state.clone()) }));
    }

    /// Returns the state that was published last; `None` if no state was published yet.
    pub fn read(&self) -> Option<LiveState> {
        self.0.borrow().clone()
    }

    /// Wakes the readers that wait for a change, without a change of the state.
    pub fn wake(&self) {
        self.0.send_modify(|_| {});
    }

    /// Returns a receiver of the published state (`None` before the first one) that is notified of each later state.
    pub fn subscribe(&self) -> watch::Receiver<Option<LiveState>> {
        self.0.subscribe()
    }
}
