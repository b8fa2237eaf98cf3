//! The live stream of a running thread: every recorded event, and as many deltas as the watcher can follow. A watcher
//! never delays a thread.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;

use crate::event::Event;
use crate::exchange::Delta;
use crate::thread_id::ThreadId;

/// An item of the live stream.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamEvent {
    /// An event that a thread has recorded in its transcript.
    Event { thread: ThreadId, event: Arc<Event> },
    /// A piece of a streaming reply, which is not recorded. If the queue of a slow watcher is full, the piece and all
    /// further pieces of the reply are dropped, so that the watcher always has the start of the reply without gaps.
    Delta { thread: ThreadId, delta: Delta },
}

impl StreamEvent {
    /// Returns the size of a delta's text in bytes; 0 for an event.
    fn delta_bytes(&self) -> usize {
        match self {
            Self::Delta { delta: Delta::Text(text) | Delta::Thinking(text), .. } => text.len(),
            Self::Delta { delta: Delta::ToolCallInput { fragment, .. }, .. } => fragment.len(),
            Self::Event { .. } | Self::Delta { delta: Delta::ToolCallStarted { .. }, .. } => 0,
        }
    }
}

/// The sending end of the live stream, shared by a thread and its children.
#[derive(Debug)]
pub struct EventSink {
    sender: mpsc::UnboundedSender<StreamEvent>,
    waiting: Arc<AtomicUsize>,
    /// Bytes of the deltas in the queue.
    waiting_bytes: Arc<AtomicUsize>,
    dropped: Arc<AtomicU64>,
    /// Threads whose current reply has lost a piece. Further pieces of the reply are dropped too.
    incomplete: Mutex<BTreeSet<ThreadId>>,
}

/// The receiving end of the live stream. Dropping it does not affect the threads.
#[derive(Debug)]
pub struct EventStream {
    receiver: mpsc::UnboundedReceiver<StreamEvent>,
    waiting: Arc<AtomicUsize>,
    waiting_bytes: Arc<AtomicUsize>,
    dropped: Arc<AtomicU64>,
}

/// Maximum number of items in the queue. While the queue holds more items, deltas are dropped.
const MAX_QUEUED_ITEMS: usize = 1024;
/// Maximum size of the deltas in the queue, in bytes. While the queue holds more bytes, further deltas are dropped.
const MAX_QUEUED_BYTES: usize = 1 << 20;

/// Creates a live stream. Returns its sending and its receiving end.
pub(crate) fn event_channel() -> (EventSink, EventStream) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let (waiting, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
    let waiting_bytes = Arc::new(AtomicUsize::new(0));
    let sink = EventSink {
        sender,
        waiting: Arc::clone(&waiting),
        waiting_bytes: Arc::clone(&waiting_bytes),
        dropped: Arc::clone(&dropped),
        incomplete: Mutex::default(),
    };
    (sink, EventStream { receiver, waiting, waiting_bytes, dropped })
}

impl EventSink {
    pub fn emit(&self, live: StreamEvent) {
        let mut incomplete = self.incomplete.lock().unwrap_or_else(PoisonError::into_inner);
        match &live {
            StreamEvent::Event { thread, .. } => {
                incomplete.remove(thread);
            }
            StreamEvent::Delta { thread, .. } => {
                let is_full = self.waiting.load(Ordering::Relaxed) > MAX_QUEUED_ITEMS
                    || self.waiting_bytes.load(Ordering::Relaxed) > MAX_QUEUED_BYTES;
                if is_full || incomplete.contains(thread) {
                    incomplete.insert(thread.clone());
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            }
        }
        drop(incomplete);
        // The receiver decrements the counts, so the item is counted before the receiver can take it.
        let bytes = live.delta_bytes();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.sender.send(live).is_err() {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Returns true if the receiving end was dropped.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

impl EventStream {
    /// Moves the stream into the returned value. The original then yields no more items.
    #[must_use]
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, event_channel().1)
    }

    /// Waits for the next item. Returns `None` once the thread and all of its descendants have ended.
    pub async fn next(&mut self) -> Option<StreamEvent> {
        let live = self.receiver.recv().await?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.waiting_bytes.fetch_sub(live.delta_bytes(), Ordering::Relaxed);
        Some(live)
    }

    /// Returns true if the queue is empty but more items may come.
    pub fn is_idle(&self) -> bool {
        self.receiver.is_empty() && !self.receiver.is_closed()
    }

    /// Returns the number of deltas that were dropped because the reader of the stream was too slow.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::event::{EventBody, SessionNamed};

    fn delta() -> StreamEvent {
        let thread = ThreadId::parse("hello-1700000000").unwrap();
        StreamEvent::Delta { thread, delta: Delta::Text("x".into()) }
    }

    #[tokio::test]
    async fn slow_receiver_gets_the_start_of_a_reply_and_the_next_reply() {
        let (sink, mut stream) = event_channel();
        let sent = MAX_QUEUED_ITEMS + 1;
        for _ in 0..sent + 5 {
            sink.emit(delta());
        }
        for _ in 0..sent {
            assert_eq!(stream.next().await, Some(delta()));
        }
        // The queue has space again, but the reply has a gap.
        sink.emit(delta());
        assert_eq!(stream.dropped(), 6);
        let thread = ThreadId::parse("hello-1700000000").unwrap();
        let body = EventBody::Named(SessionNamed { name: "n".into() });
        sink.emit(StreamEvent::Event { thread, event: Arc::new(Event { seq: 0, ts: 0, body }) });
        sink.emit(delta());
        assert!(matches!(stream.next().await, Some(StreamEvent::Event { .. })));
        assert_eq!(stream.next().await, Some(delta()));
    }

    #[tokio::test]
    async fn queued_deltas_are_bounded_in_bytes() {
        let (sink, mut stream) = event_channel();
        let thread = ThreadId::parse("hello-1700000000").unwrap();
        let large = || Delta::Text("x".repeat(MAX_QUEUED_BYTES / 2 + 1));
        for _ in 0..10 {
            sink.emit(StreamEvent::Delta { thread: thread.clone(), delta: large() });
        }
        assert_eq!(stream.dropped(), 8);
        stream.next().await;
        stream.next().await;
        assert_eq!(stream.waiting_bytes.load(Ordering::Relaxed), 0);
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
