//! Numbers the approval requests that the user sees, such as "1 of 2".

use std::collections::BTreeMap;

use rye_engine::engine::ApprovalRequest;
use rye_engine::thread_id::ThreadId;

/// Counter of approval requests, for numbers such as "1 of 2". A reply may contain several calls that need approval,
/// and several threads may wait at once.
#[derive(Debug, Default)]
pub struct RequestCounter {
    answered: usize,
    /// For each thread, the number of approval requests of its current reply that have no answer yet.
    open: BTreeMap<ThreadId, usize>,
}

impl RequestCounter {
    pub fn register(&mut self, thread: &ThreadId, (number, count): (usize, usize)) {
        if number == 1 {
            // A new reply starts. The previous reply may have ended before all of its requests were made, so its count
            // is dropped.
            self.open.remove(thread);
        }
        if self.open.is_empty() {
            self.answered = number.saturating_sub(1);
        }
        self.open.insert(thread.clone(), count.saturating_sub(number) + 1);
    }

    pub fn close(&mut self, thread: &ThreadId, is_answered: bool) {
        let left = self.open.remove(thread).unwrap_or(0).saturating_sub(1);
        if is_answered {
            self.answered += 1;
            if left > 0 {
                self.open.insert(thread.clone(), left);
            }
        }
    }

    pub fn position(&self) -> (usize, usize) {
        (self.answered + 1, self.answered + self.open.values().sum::<usize>())
    }
}

/// A guard for a registered request, which removes the request from the counter when it is dropped.
pub struct CountedRequest<'a> {
    counter: &'a std::sync::Mutex<RequestCounter>,
    thread: &'a ThreadId,
    is_answered: bool,
}

impl<'a> CountedRequest<'a> {
    pub fn register(counter: &'a std::sync::Mutex<RequestCounter>, request: ApprovalRequest<'a>) -> Self {
        lock(counter).register(request.thread, request.call.map_or((1, 1), |call| (call.number, call.count)));
        Self { counter, thread: request.thread, is_answered: false }
    }

    pub fn position(&self) -> (usize, usize) {
        lock(self.counter).position()
    }

    pub fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for CountedRequest<'_> {
    fn drop(&mut self) {
        lock(self.counter).close(self.thread, self.is_answered);
    }
}

fn lock(counter: &std::sync::Mutex<RequestCounter>) -> std::sync::MutexGuard<'_, RequestCounter> {
    counter.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
