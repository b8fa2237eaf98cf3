//! The connections of the HTTP transport. Their number is bounded. If the maximum is reached, a new connection replaces
//! the connection that has waited the longest for a request.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::Instant;

/// The state of a connection: waiting for a request, answering a request, or evicted.
#[derive(Debug)]
pub(super) struct ConnectionUse(Mutex<Waiting>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    /// Waiting for a request since this time. The head of the request has not arrived completely.
    Since(Instant),
    /// A request is being answered.
    Answering,
    Evicted,
}

/// A guard. Until the guard is dropped, its connection counts as answering a request and is not evicted.
pub(super) struct Answering(Arc<ConnectionUse>);

impl ConnectionUse {
    fn new() -> Self {
        Self(Mutex::new(Waiting::Since(Instant::now())))
    }

    /// Marks the connection as answering a request, until the returned guard is dropped.
    pub fn answer(self: &Arc<Self>) -> Answering {
        self.replace(Waiting::Answering);
        Answering(Arc::clone(self))
    }

    fn waiting_since(&self) -> Option<Instant> {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Waiting::Since(since) => Some(since),
            Waiting::Answering | Waiting::Evicted => None,
        }
    }

    /// Evicts the connection and returns true if it waits for a request. Returns false if the connection is answering a
    /// request, or is already evicted.
    fn evict(&self) -> bool {
        let mut own = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_waiting = matches!(*own, Waiting::Since(_));
        if is_waiting {
            *own = Waiting::Evicted;
        }
        is_waiting
    }

    fn replace(&self, next: Waiting) {
        let mut own = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *own != Waiting::Evicted {
            *own = next;
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.replace(Waiting::Since(Instant::now()));
    }
}

/// The open connections. Dropping the value closes them.
pub(super) struct Connections {
    max: usize,
    tasks: JoinSet<()>,
    open: BTreeMap<Id, (AbortHandle, Arc<ConnectionUse>)>,
}

impl Connections {
    pub fn new(max: usize) -> Self {
        Self { max, tasks: JoinSet::new(), open: BTreeMap::new() }
    }

    /// Serves a new connection. If the maximum number of connections is open, first closes the connection that has
    /// waited the longest for a request. If all connections are answering a request, waits until a connection ends.
    pub async fn serve<F>(&mut self, connection: impl FnOnce(Arc<ConnectionUse>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            self.forget(ended);
        }
        while self.open.len() >= self.max && !self.evict_longest_waiting() {
            if let Some(ended) = self.tasks.join_next_with_id().await {
                self.forget(ended);
            }
        }
        let state = Arc::new(ConnectionUse::new());
        let task = self.tasks.spawn(connection(Arc::clone(&state)));
        self.open.insert(task.id(), (task, state));
    }

    fn forget(&mut self, ended: Result<(Id, ()), tokio::task::JoinError>) {
        let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
        self.open.remove(&id);
    }

    /// Evicts the connection that has waited the longest for a request. Returns false if every connection is answering
    /// a request, or if a request has just arrived on this connection.
    fn evict_longest_waiting(&mut self) -> bool {
        let waiting = self.open.iter().filter_map(|(id, (_, state))| Some((state.waiting_since()?, *id)));
        let Some((_, id)) = waiting.min() else { return false };
        if !self.open.get(&id).is_some_and(|(_, state)| state.evict()) {
            // A request has arrived on this connection meanwhile.
            return false;
        }
        if let Some((task, _)) = self.open.remove(&id) {
            task.abort();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use tokio::sync::oneshot;

    /// Serves a connection that ends when the returned sender is dropped.
    async fn open(connections: &mut Connections, answers: bool) -> (oneshot::Sender<()>, Arc<ConnectionUse>) {
        let (ends, ended) = oneshot::channel::<()>();
        let mut seen = None;
        connections
            .serve(|state| {
                seen = Some(Arc::clone(&state));
                let answering = answers.then(|| state.answer());
                async move {
                    ended.await.ok();
                    drop(answering);
                }
            })
            .await;
        (ends, seen.unwrap())
    }

    #[tokio::test]
    async fn longest_waiting_connection_makes_room_and_answering_ones_stay() {
        let mut connections = Connections::new(3);
        let first = open(&mut connections, true).await;
        let second = open(&mut connections, false).await;
        let third = open(&mut connections, false).await;
        let fourth = open(&mut connections, true).await;
        tokio::task::yield_now().await;
        assert!(second.0.is_closed(), "the connection that has waited the longest is closed");
        assert!(!first.0.is_closed() && !third.0.is_closed() && !fourth.0.is_closed());
        assert!(second.1.waiting_since().is_none() && third.1.waiting_since().is_some());
        // Connections with an answer under way are not evicted: the next one waits for the end of one of them.
        let fifth = open(&mut connections, true).await;
        tokio::task::yield_now().await;
        assert!(third.0.is_closed());
        drop(first.0);
        let sixth = open(&mut connections, false).await;
        assert!(!fourth.0.is_closed() && !fifth.0.is_closed() && !sixth.0.is_closed());
    }
}
