//! The time, as a dependency: the system's, or one that tests move.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::provider::BoxFuture;

/// Where a driver gets its time from.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970.
    fn now(&self) -> i64;
    /// Returns when that time has come.
    fn sleep_until(&self, until: i64) -> BoxFuture<'_, ()>;
}

/// The system's clock. Waits go by its steady one, so that a clock that jumps makes none of them longer.
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
}

/// A clock that moves a millisecond whenever it is read, and jumps over every wait.
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
}
