//! The live stream of a running thread: every recorded event, and as many deltas as the watcher can follow. A watcher
//! never delays a thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::mpsc;

use crate::event::Event;
use crate::exchange::Delta;
use crate::thread_id::ThreadId;

/// An item of the live stream.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamEvent {
    /// An event of the transcript.
    Event { thread: ThreadId, event: Arc<Event> },
    /// A piece of a streaming reply; not recorded, and dropped if the watcher is slow.
    Delta { thread: ThreadId, delta: Delta },
}

/// The sending end of the live stream, shared by a thread and its children.
#[derive(Debug)]
pub struct EventSink {
    sender: mpsc::UnboundedSender<StreamEvent>,
    waiting: Arc<AtomicUsize>,
    dropped: Arc<AtomicU64>,
}

/// The receiving end of the live stream. Dropping it does not affect the threads.
#[derive(Debug)]
pub struct EventStream {
    receiver: mpsc::UnboundedReceiver<StreamEvent>,
    waiting: Arc<AtomicUsize>,
    dropped: Arc<AtomicU64>,
}

/// Maximum number of items in the queue; beyond it, deltas are dropped.
const MAX_QUEUED_ITEMS: usize = 1024;

/// Creates a live stream.
pub fn event_channel() -> (EventSink, EventStream) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let (waiting, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
    let sink = EventSink { sender, waiting: Arc::clone(&waiting), dropped: Arc::clone(&dropped) };
    (sink, EventStream { receiver, waiting, dropped })
}

impl EventSink {
    pub fn emit(&self, live: StreamEvent) {
        if matches!(live, StreamEvent::Delta { .. }) && self.waiting.load(Ordering::Relaxed) > MAX_QUEUED_ITEMS {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // Counted before the receiver can take the item, because the receiver subtracts it.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        if self.sender.send(live).is_err() {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns true if the receiving end was dropped.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

impl EventStream {
    /// Moves the stream into the returned value; the original then yields nothing more.
    #[must_use]
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, event_channel().1)
    }

    /// Waits for the next item; returns `None` once the thread and all of its descendants have ended.
    pub async fn next(&mut self) -> Option<StreamEvent> {
        let live = self.receiver.recv().await?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(live)
    }

    /// Returns true if the queue is empty but more items may come.
    pub fn is_idle(&self) -> bool {
        self.receiver.is_empty() && !self.receiver.is_closed()
    }

    /// Returns the number of dropped deltas.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn delta() -> StreamEvent {
        let thread = ThreadId::parse("hello-1700000000").unwrap();
        StreamEvent::Delta { thread, delta: Delta::Text("x".into()) }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn receiver_that_keeps_pace_loses_no_delta() {
        let (sink, mut stream) = event_channel();
        let received = tokio::spawn(async move {
            let mut received = 0_u32;
            while stream.next().await.is_some() {
                received += 1;
            }
            (received, stream.dropped(), stream.waiting.load(Ordering::Relaxed))
        });
        for _ in 0..20_000 {
            while sink.waiting.load(Ordering::Relaxed) >= 8 {
                tokio::task::yield_now().await;
            }
            sink.emit(delta());
        }
        drop(sink);
        assert_eq!(received.await.unwrap(), (20_000, 0, 0));
    }

    #[test]
    fn item_without_a_receiver_is_not_counted() {
        let (sink, stream) = event_channel();
        drop(stream);
        sink.emit(delta());
        assert_eq!(sink.waiting.load(Ordering::Relaxed), 0);
    }
}
