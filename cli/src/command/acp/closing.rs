//! Closes all sessions after the end of the connection or a stop signal. Every wait is bounded.

use std::future::Future;
use std::time::Duration;

use crate::command::run::watch::StopSignal;

/// Time for the task of each session to close the session. After this time, the remaining sessions are closed directly.
const CLOSE_GRACE: Duration = Duration::from_secs(2);
/// Maximum time, after the end of the input, for children that outlive their session. Equal to the default duration
/// limit of a thread.
const OUTLIVE_TIMEOUT: Duration = Duration::from_mins(10);
/// Maximum time from a stop signal until the threads that still run are killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time from the kill of the threads to the end of this process.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// The sessions of an agent that is closing them, and the ways to end the sessions.
pub trait ClosingSessions {
    /// Waits until no thread and no program runs.
    fn wait_closed(&self) -> impl Future<Output = ()> + Send;
    /// Closes the sessions that are still open, such as a session whose task had not started when the closing began.
    fn close_directly(&self);
    /// Kills all threads.
    fn kill(&self);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The input has ended.
    Closing,
    /// A stop signal has arrived.
    Stopped,
    Killed,
}

/// Waits until the sessions are closed. After a stop signal (`is_stopped`), kills the threads that do not end in time.
/// A further signal other than SIGHUP kills the threads at once. Returns false if threads do not end even after a kill.
pub async fn close(
    sessions: &impl ClosingSessions,
    is_stopped: bool,
    mut next_signal: impl AsyncFnMut() -> StopSignal,
    sleep: impl AsyncFn(Duration),
) -> bool {
    let mut closed = std::pin::pin!(sessions.wait_closed());
    let mut stage = if is_stopped { Stage::Stopped } else { Stage::Closing };
    let mut waited = Duration::ZERO;
    loop {
        let signal = tokio::select! {
            biased;
            () = &mut closed => return true,
            signal = next_signal() => Some(signal),
            () = sleep(CLOSE_GRACE) => None,
        };
        waited += CLOSE_GRACE;
        stage = match (signal, stage) {
            // If a terminal closes, both the kernel and the shell may send SIGHUP, so a second SIGHUP kills nothing.
            (Some(StopSignal::Hangup), Stage::Closing) => {
                waited = Duration::ZERO;
                Stage::Stopped
            }
            (Some(StopSignal::Hangup), Stage::Stopped | Stage::Killed) | (Some(_), Stage::Killed) => {
                waited -= CLOSE_GRACE;
                continue;
            }
            (None, Stage::Closing) if waited < OUTLIVE_TIMEOUT => {
                sessions.close_directly();
                Stage::Closing
            }
            (None, Stage::Stopped) if waited < STOP_TIMEOUT => {
                sessions.close_directly();
                Stage::Stopped
            }
            (None | Some(_), Stage::Closing | Stage::Stopped) => {
                sessions.kill();
                waited = Duration::ZERO;
                Stage::Killed
            }
            (None, Stage::Killed) if waited < KILL_TIMEOUT => Stage::Killed,
            (None, Stage::Killed) => return false,
        };
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::future::{pending, ready};
    use std::sync::Mutex;

    use tokio::sync::watch;

    use super::*;

    /// Sessions that close after an action.
    struct FakeSessions {
        ends_after: &'static str,
        actions: Mutex<Vec<&'static str>>,
        closed: watch::Sender<bool>,
    }

    impl FakeSessions {
        fn act(&self, action: &'static str) {
            self.actions.lock().unwrap().push(action);
            if action == self.ends_after {
                self.closed.send_replace(true);
            }
        }
    }

    impl ClosingSessions for FakeSessions {
        async fn wait_closed(&self) {
            self.closed.subscribe().wait_for(|closed| *closed).await.unwrap();
        }

        fn close_directly(&self) {
            self.act("close");
        }

        fn kill(&self) {
            self.act("kill");
        }
    }

    /// Closes sessions that end after an action. Every sleep ends at once, after the signals.
    async fn close_all(
        ends_after: &'static str,
        is_stopped: bool,
        signals: &[StopSignal],
    ) -> (bool, Vec<&'static str>) {
        let sessions = FakeSessions { ends_after, actions: Mutex::default(), closed: watch::Sender::new(false) };
        let signals = RefCell::new(VecDeque::from(signals.to_vec()));
        let next = async || {
            let signal = signals.borrow_mut().pop_front();
            match signal {
                Some(signal) => signal,
                None => pending().await,
            }
        };
        let closed = close(&sessions, is_stopped, next, async |_| ready(()).await).await;
        (closed, sessions.actions.into_inner().unwrap())
    }

    #[tokio::test]
    async fn session_whose_task_does_not_close_it_is_closed_directly() {
        assert_eq!(close_all("close", false, &[]).await, (true, vec!["close"]));
        assert_eq!(close_all("close", true, &[]).await, (true, vec!["close"]));
    }

    #[tokio::test]
    async fn stopped_session_that_does_not_close_is_killed() {
        let (closed, actions) = close_all("kill", true, &[]).await;
        assert_eq!((closed, actions), (true, vec!["close", "close", "close", "close", "kill"]));
    }

    #[tokio::test]
    async fn children_that_outlive_the_input_too_long_are_killed() {
        let (closed, actions) = close_all("kill", false, &[]).await;
        let grace = OUTLIVE_TIMEOUT.as_secs() / CLOSE_GRACE.as_secs();
        assert_eq!((closed, actions.len() as u64, actions.last()), (true, grace, Some(&"kill")));
    }

    #[tokio::test]
    async fn process_ends_although_a_killed_session_does_not() {
        let (closed, actions) = close_all("never", true, &[]).await;
        assert_eq!((closed, actions), (false, vec!["close", "close", "close", "close", "kill"]));
    }

    #[tokio::test]
    async fn second_signal_kills_at_once_and_a_repeated_hangup_does_not() {
        let killed = (true, vec!["kill"]);
        assert_eq!(close_all("kill", true, &[StopSignal::Terminate]).await, killed);
        assert_eq!(close_all("kill", false, &[StopSignal::Interrupt]).await, killed);
        let hangups = [StopSignal::Hangup, StopSignal::Hangup];
        let after_grace = (true, vec!["close", "close", "close", "close", "kill"]);
        assert_eq!(close_all("kill", false, &hangups).await, after_grace);
    }
}
