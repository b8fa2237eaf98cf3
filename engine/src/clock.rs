//! The time as a dependency: the system clock, or a clock that tests move.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

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

/// The system clock. It reads the wall clock once in a process and then adds the time that has passed, so that a
/// correction of the wall clock neither lengthens nor shortens a deadline (decision 0247).
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

/// The wall clock and the time since the start of the system, both read at the same moment.
struct ClockAnchor {
    wall: Duration,
    uptime: Duration,
}

impl ClockAnchor {
    fn read() -> Self {
        Self { wall: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(), uptime: uptime() }
    }

    /// Returns the time at a later moment, in milliseconds since 1970. `uptime` is the time from the start of the
    /// system to that moment.
    fn time_at(&self, uptime: Duration) -> i64 {
        let now = self.wall.saturating_add(uptime.saturating_sub(self.uptime));
        i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
    }
}

/// Returns the time since the start of the system. This time never decreases, and includes the time in which the system
/// slept.
fn uptime() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

impl Clock for SystemClock {
    fn now(&self) -> i64 {
        static ANCHOR: OnceLock<ClockAnchor> = OnceLock::new();
        ANCHOR.get_or_init(ClockAnchor::read).time_at(uptime())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_the_system_follows_its_uptime() {
        let anchor = ClockAnchor { wall: Duration::from_secs(1_000), uptime: Duration::from_secs(50) };
        assert_eq!(anchor.time_at(Duration::from_millis(50_250)), 1_000_250);
        assert_eq!(anchor.time_at(Duration::from_secs(40)), 1_000_000, "the time never goes back");
        let wall = ClockAnchor::read().wall.as_millis();
        let distance = i128::from(SystemClock.now()) - i128::try_from(wall).unwrap_or(i128::MAX);
        assert!(distance.abs() < 60_000, "{distance} ms from the wall clock");
    }
}
