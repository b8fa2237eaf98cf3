//! The time as a dependency: the system clock, or a clock that tests move.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::BoxFuture;

/// The source of a driver's time.
pub trait Clock: Send + Sync {
    /// Returns milliseconds since 1970.
    fn now(&self) -> i64;
    /// Completes at the time `until`, in milliseconds since 1970.
    fn sleep_until(&self, until: i64) -> BoxFuture<'_, ()>;
    /// Completes after `ms` milliseconds; used as the timeout of other work. With a clock that skips sleeps, no timeout
    /// expires.
    fn elapse(&self, ms: u64) -> BoxFuture<'_, ()>;
}

/// The system clock. Sleeps use the monotonic clock, so that a jump of the wall clock does not lengthen them.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    fn sleep_until(&self, until: i64) -> BoxFuture<'_, ()> {
        let wait = u64::try_from(until.saturating_sub(self.now())).unwrap_or(0);
        Box::pin(tokio::time::sleep(Duration::from_millis(wait)))
    }

    fn elapse(&self, ms: u64) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(Duration::from_millis(ms)))
    }
}

/// A clock that advances one millisecond per reading and skips every sleep.
#[derive(Debug)]
pub struct JumpingClock(AtomicI64);

impl JumpingClock {
    pub fn starting_at(now: i64) -> Self {
        Self(AtomicI64::new(now))
    }
}

impl Clock for JumpingClock {
    fn now(&self) -> i64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    fn sleep_until(&self, until: i64) -> BoxFuture<'_, ()> {
        self.0.fetch_max(until, Ordering::Relaxed);
        Box::pin(std::future::ready(()))
    }

    fn elapse(&self, _: u64) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// A clock that does not advance until a test advances it.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct ManualClock(tokio::sync::watch::Sender<i64>);

#[cfg(test)]
impl ManualClock {
    pub fn starting_at(now: i64) -> Self {
        Self(tokio::sync::watch::Sender::new(now))
    }

    pub fn advance(&self, ms: i64) {
        self.0.send_modify(|now| *now += ms);
    }

    fn wait_until(&self, until: i64) -> BoxFuture<'_, ()> {
        let mut time = self.0.subscribe();
        Box::pin(async move {
            // The wait cannot fail: the sender lives as long as the clock.
            let _ = time.wait_for(|now| *now >= until).await;
        })
    }
}

#[cfg(test)]
impl Clock for ManualClock {
    fn now(&self) -> i64 {
        *self.0.borrow()
    }

    fn sleep_until(&self, until: i64) -> BoxFuture<'_, ()> {
        self.wait_until(until)
    }

    fn elapse(&self, ms: u64) -> BoxFuture<'_, ()> {
        self.wait_until(self.now().saturating_add(i64::try_from(ms).unwrap_or(i64::MAX)))
    }
}
