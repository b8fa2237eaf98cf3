//! The time as a dependency: the system clock, or a clock that tests move.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::provider::BoxFuture;

/// The source of a driver's time.
pub trait Clock: Send + Sync {
    /// Returns milliseconds since 1970.
    fn now(&self) -> i64;
    /// Completes when that time has come.
    fn sleep_until(&self, until: i64) -> BoxFuture<'_, ()>;
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
}
