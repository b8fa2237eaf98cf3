//! The order in which the calls of a session are queued: the order in which their messages arrived. The requests of a
//! connection are handled concurrently, so a later request can reach the queue first.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

/// The calls that have arrived and are not queued yet, by their tickets.
#[derive(Debug, Clone, Default)]
pub(super) struct CallOrder {
    waiting: Arc<watch::Sender<BTreeSet<u64>>>,
    next: Arc<AtomicU64>,
}

/// The place of a call in the order of arrival. The call gives up its place when the last clone of the ticket is
/// dropped.
#[derive(Debug, Clone)]
pub(super) struct CallTicket(Arc<TicketPlace>);

#[derive(Debug)]
struct TicketPlace {
    waiting: Arc<watch::Sender<BTreeSet<u64>>>,
    number: u64,
}

impl CallOrder {
    /// Returns the ticket of a call that has just arrived.
    pub fn ticket(&self) -> CallTicket {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.waiting.send_modify(|waiting| {
            waiting.insert(number);
        });
        CallTicket(Arc::new(TicketPlace { waiting: Arc::clone(&self.waiting), number }))
    }
}

impl CallTicket {
    /// Waits until the tickets of all earlier calls are released. A ticket is also released when its last clone is
    /// dropped.
    pub async fn turn(&self) {
        let mut waiting = self.0.waiting.subscribe();
        let is_first = |waiting: &BTreeSet<u64>| waiting.first().is_none_or(|first| *first >= self.0.number);
        // The sender exists as long as this ticket.
        waiting.wait_for(is_first).await.ok();
    }

    /// Gives up the place, also for the clones of this ticket.
    pub fn release(self) {
        self.0.release();
    }
}

impl TicketPlace {
    fn release(&self) {
        self.waiting.send_if_modified(|waiting| waiting.remove(&self.number));
    }
}

impl Drop for TicketPlace {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn ticket_waits_for_every_earlier_ticket_and_for_no_later_one() {
        let order = CallOrder::default();
        let (first, second, third, fourth) = (order.ticket(), order.ticket(), order.ticket(), order.ticket());
        let is_next = async |ticket: &CallTicket| timeout(Duration::from_millis(50), ticket.turn()).await.is_ok();
        assert!(is_next(&first).await && !is_next(&second).await);
        // A call that was cancelled before its turn.
        drop(second);
        assert!(!is_next(&third).await);
        let kept = first.clone();
        first.release();
        assert!(is_next(&third).await && !is_next(&fourth).await);
        drop((third, kept));
        assert!(is_next(&fourth).await);
    }
}
