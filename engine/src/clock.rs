//! The time as a dependency: the system clock, or a clock that tests move.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::BoxFuture;

/// The source of a driver's time.
pub trait Clock: Send + Sync {
    /// Returns the current time in milliseconds since 1970.
    fn now(&self) -> i64;
    /// Completes at the time `until`, in milliseconds since 1970.
    fn sleep_until(&self, until: i64) -> BoxFuture<'_, ()>;
    /// Completes after `ms` milliseconds. Callers use the future as the timeout of other work. A clock that skips
    /// sleeps returns a future that never completes, so no timeout expires.
    fn elapse(&self, ms: u64) -> BoxFuture<'_, ()>;
    /// Returns the time at which the operating system started, according to this clock, in milliseconds since 1970. Two
    /// processes get different values if the wall clock was changed between their starts.
    fn offset(&self) -> i64;
}

/// The system clock. A process reads the wall clock once and then adds the elapsed time, so that a correction of the
/// wall clock does not move a deadline (decision 0247).
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

/// The wall clock and the time since the start of the system, both read at the same moment.
struct ClockAnchor {
    wall: Duration,
    uptime: Duration,
}

/// Latest time that the clock of a process can have: 9999-12-30T20:00:00Z. Texts such as signature lines cannot hold a
/// time after 9999-12-30T22:00:00Z.
const LATEST: Duration = Duration::from_hours(70_389_500);
/// The latest time of the clock at the start of a process: a year before `LATEST`, so that the clock can still advance
/// (see `ClockAnchor::new`).
const LATEST_START: Duration = LATEST.saturating_sub(Duration::from_hours(365 * 24));

impl ClockAnchor {
    fn read() -> Self {
        Self::new(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(), uptime())
    }

    /// Creates an anchor. A wall-clock time after [`LATEST_START`] is replaced by `LATEST_START`, because the
    /// timestamps of rye end with the year 9999. The clock still advances from there, so that deadlines are reached
    /// (decision 0270).
    fn new(wall: Duration, uptime: Duration) -> Self {
        Self { wall: wall.min(LATEST_START), uptime }
    }

    /// Returns the time at a moment after this anchor was read, in milliseconds since 1970. `uptime` is the time from
    /// the start of the system to that moment.
    fn time_at(&self, uptime: Duration) -> i64 {
        let now = self.wall.saturating_add(uptime.saturating_sub(self.uptime)).min(LATEST);
        i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
    }

    /// Returns the time at which the operating system started, according to this clock, in milliseconds since 1970.
    fn offset(&self) -> i64 {
        let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        ms(self.wall).saturating_sub(ms(self.uptime))
    }

    /// Returns the anchor of this process, which is read from the system's clocks at the first call.
    fn of_process() -> &'static Self {
        static ANCHOR: OnceLock<ClockAnchor> = OnceLock::new();
        ANCHOR.get_or_init(Self::read)
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
        ClockAnchor::of_process().time_at(uptime())
    }

    fn offset(&self) -> i64 {
        ClockAnchor::of_process().offset()
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

    fn offset(&self) -> i64 {
        0
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
pub(crate) struct ManualClock {
    time: std::sync::Arc<tokio::sync::watch::Sender<i64>>,
    offset: i64,
}

#[cfg(test)]
impl ManualClock {
    pub fn starting_at(now: i64) -> Self {
        Self { time: std::sync::Arc::new(tokio::sync::watch::Sender::new(now)), offset: 0 }
    }

    /// Returns a clock that runs with this clock but shows `ms` milliseconds more, such as the clock of a process that
    /// started after the wall clock was set forward.
    pub(crate) fn stepped_by(&self, ms: i64) -> Self {
        Self { time: std::sync::Arc::clone(&self.time), offset: self.offset + ms }
    }

    pub fn advance(&self, ms: i64) {
        self.time.send_modify(|now| *now += ms);
    }

    fn wait_until(&self, until: i64) -> BoxFuture<'_, ()> {
        let mut time = self.time.subscribe();
        Box::pin(async move {
            // The wait cannot fail: the sender lives as long as the clock.
            let _ = time.wait_for(|now| now + self.offset >= until).await;
        })
    }
}

#[cfg(test)]
impl Clock for ManualClock {
    fn now(&self) -> i64 {
        *self.time.borrow() + self.offset
    }

    fn offset(&self) -> i64 {
        self.offset
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
        let anchor = ClockAnchor::new(Duration::from_secs(1_000), Duration::from_secs(50));
        assert_eq!(anchor.time_at(Duration::from_millis(50_250)), 1_000_250);
        assert_eq!(anchor.time_at(Duration::from_secs(40)), 1_000_000, "the time never goes back");
        let wall = ClockAnchor::read().wall.as_millis();
        let distance = i128::from(SystemClock.now()) - i128::try_from(wall).unwrap_or(i128::MAX);
        assert!(distance.abs() < 60_000, "{distance} ms from the wall clock");
    }

    #[test]
    fn time_of_a_clock_beyond_the_year_9999_passes_and_can_be_written() {
        for wall in [253_402_300_800, 6_000_000_000_000, u64::MAX] {
            let anchor = ClockAnchor::new(Duration::from_secs(wall), Duration::from_secs(50));
            let start = anchor.time_at(Duration::from_secs(50));
            assert_eq!(anchor.time_at(Duration::from_secs(61)) - start, 11_000, "{wall}");
            for uptime in [Duration::from_secs(50), Duration::from_hours(24 * 400), Duration::MAX] {
                let text = jiff::Timestamp::from_millisecond(anchor.time_at(uptime)).unwrap().to_string();
                assert!(text.starts_with("999"), "{text}");
            }
        }
    }
}
