//! The state of a running chat, as other tasks of the process read it.

use std::sync::{Arc, OnceLock};

use rye_compiler::plan::Plan;
use tokio::sync::watch;

use crate::machine::ThreadState;

/// A plan with the state of its thread at one moment.
#[derive(Debug, Clone)]
pub struct LiveState {
    pub plan: Arc<Plan>,
    pub state: Arc<ThreadState>,
    /// The final state of an earlier thread of the session: the latest one that sent a request to the model. `None` if
    /// this process ran no such thread.
    pub previous: Option<Arc<LiveState>>,
}

impl LiveState {
    /// Returns true if the session waits for the user: no prompt, command or change of the session is pending.
    pub fn is_settled(&self) -> bool {
        self.state.is_settled_chat()
    }

    /// Returns the state of the thread that sent the session's last request to the model: this state, or `previous` if
    /// this thread has sent none. `None` if the provider did not count the tokens of that request, or if the
    /// conversation was compacted or edited since.
    pub fn last_request(&self) -> Option<&Self> {
        // A thread that has sent a request determines the cache, even if its request was not counted.
        let last = if self.state.cost.turns > 0 { self } else { self.previous.as_deref()? };
        last.state.conversation.measured.is_some().then_some(last)
    }

    /// Returns the value of the field `previous` for a thread that continues this thread: this state, or its `previous`
    /// state if this thread has sent no request.
    fn into_previous(self) -> Option<Arc<Self>> {
        if self.state.cost.turns == 0 { self.previous } else { Some(Arc::new(Self { previous: None, ..self })) }
    }

    /// Returns the id of the thread; `None` if the state does not contain the event `opened` yet.
    pub fn thread_id(&self) -> Option<&str> {
        self.state.launch.as_ref().map(|launch| launch.thread_id.as_str())
    }
}

/// A cell in which a thread publishes its state. Clones share the cell.
#[derive(Debug, Clone)]
pub struct StateCell {
    published: Arc<watch::Sender<Option<LiveState>>>,
    /// The value of the field `previous` in the published states. Empty until [`Self::continue_from`] sets the value.
    previous: Arc<OnceLock<Arc<LiveState>>>,
}

impl Default for StateCell {
    fn default() -> Self {
        Self { published: Arc::new(watch::Sender::new(None)), previous: Arc::default() }
    }
}

impl StateCell {
    /// Replaces the published state.
    pub(crate) fn publish(&self, plan: &Arc<Plan>, state: &ThreadState) {
        let (plan, state) = (Arc::clone(plan), Arc::new(state.clone()));
        self.published.send_replace(Some(LiveState { plan, state, previous: self.previous.get().cloned() }));
    }

    /// Adds the last state of `earlier`, the thread that this thread continues, to the published states.
    pub(crate) fn continue_from(&self, earlier: &Self) {
        let Some(previous) = earlier.read().and_then(LiveState::into_previous) else { return };
        // A thread continues one thread only, so the cell is empty.
        self.previous.set(Arc::clone(&previous)).ok();
        self.published.send_modify(|live| {
            if let Some(live) = live {
                live.previous = Some(previous);
            }
        });
    }

    /// Returns the state that was published last; `None` if no state was published yet.
    pub fn read(&self) -> Option<LiveState> {
        self.published.borrow().clone()
    }

    /// Wakes the readers that wait for a change, without a change of the state.
    pub(crate) fn wake(&self) {
        self.published.send_modify(|_| {});
    }

    /// Returns a receiver of the published state. The receiver is notified of each later state. Before the first
    /// publication, the state is `None`.
    pub fn subscribe(&self) -> watch::Receiver<Option<LiveState>> {
        self.published.subscribe()
    }
}
