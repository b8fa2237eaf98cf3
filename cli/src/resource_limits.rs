//! Exhausted limits of the system: OS threads, open files, disk space. An exhausted limit ends a command with an error
//! that names the limit and the remedy.

use std::io;
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::io::Errno;

/// The ends of messages that report that a process or thread could not be started. The error of the system follows.
const FAILED_STARTS: [&str; 4] = [" be started: ", "spawn worker thread: ", "spawn thread: ", "starting its writer: "];
/// Help texts for errors of the system. A help text applies to each message that contains the text of its error.
/// `EAGAIN` must also follow one of [`FAILED_STARTS`], because other operations, such as a read, can fail with `EAGAIN`
/// too.
const HELPS: [(Errno, &str); 5] = [
    (
        Errno::AGAIN,
        "the limit of processes and threads is reached (EAGAIN): raise `ulimit -u`, or `pids.max` of the control group; \
         `rye run --resume THREAD` recovers an interrupted thread",
    ),
    (Errno::MFILE, "the limit of open files is reached (EMFILE): raise `ulimit -n`"),
    (Errno::NFILE, "the system has too many open files (ENFILE): close other programs, or raise `fs.file-max`"),
    (Errno::NOSPC, FULL_DISK),
    (Errno::DQUOT, FULL_DISK),
];
/// The help for a full disk. A command can be repeated, because each command that writes files undoes or continues its
/// incomplete work.
const FULL_DISK: &str = "free some space, then repeat the command";
/// Number of OS threads that the system must allow the process to start.
const MIN_THREADS: usize = 2;

/// Returns the help text for an error whose cause is an exhausted limit; `None` for any other error. The text of the
/// message is searched, because the messages come from errors of many types.
pub fn help_for_limit(message: &str) -> Option<&'static str> {
    let is_in = |errno: Errno| {
        let text = io::Error::from(errno).to_string();
        let before = message.split_once(text.split(" (os error").next().unwrap_or(&text)).map(|(before, _)| before);
        before.is_some_and(|before| errno != Errno::AGAIN || FAILED_STARTS.iter().any(|start| before.contains(start)))
    };
    HELPS.into_iter().find(|(errno, _)| is_in(*errno)).map(|(_, help)| help)
}

/// Installs a panic hook that calls `end` with the message of a panic whose cause is an exhausted limit. For example,
/// tokio panics if the system starts no further thread. `end` must report the message and end the process. The running
/// threads of the project can be recovered, as after a kill.
pub fn set_limit_handler(end: impl Fn(&str) + Send + Sync + 'static) {
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let message = panic.payload_as_str().unwrap_or_default();
        if help_for_limit(message).is_some() {
            end(message);
        }
        previous(panic);
    }));
}

/// Checks that the process can start OS threads.
///
/// # Errors
/// The system refuses to start an OS thread.
pub fn check_threads() -> io::Result<()> {
    let (release, released) = channel::<()>();
    let released = Mutex::new(released);
    thread::scope(|scope| {
        let wait = || released.lock().unwrap_or_else(PoisonError::into_inner).recv().ok();
        let started: io::Result<Vec<_>> =
            (0..MIN_THREADS).map(|_| thread::Builder::new().spawn_scoped(scope, wait)).collect();
        drop(release);
        started.map(drop)
    })
    .map_err(|error| no_thread(&error))
}

/// Returns an error which states that no further OS thread can be started, and which contains `error`, the error of the
/// system.
pub fn no_thread(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("no further thread can be started: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_and_errors_of_exhausted_limits_name_the_remedy() {
        for (message, remedy) in [
            ("OS can't spawn worker thread: Resource temporarily unavailable (os error 11)", "ulimit -u"),
            (
                "failed to spawn thread: Os { code: 11, kind: WouldBlock, message: \"Resource temporarily unavailable\" }",
                "ulimit -u",
            ),
            ("failed to create UnixStream: Os { code: 24, message: \"Too many open files\" }", "ulimit -n"),
            ("`a` cannot be written: No space left on device (os error 28)", "free some space"),
        ] {
            assert!(help_for_limit(message).is_some_and(|help| help.contains(remedy)), "{message}");
        }
        assert_eq!(help_for_limit("index out of bounds"), None);
        assert!(help_for_limit(&no_thread(&Errno::AGAIN.into()).to_string()).is_some());
    }

    #[test]
    fn operation_that_starts_nothing_and_would_block_has_no_help_text() {
        for message in [
            "`start` cannot be read: Resource temporarily unavailable (os error 11)",
            "the output cannot be written: Resource temporarily unavailable (os error 11); nothing can be started",
            "Resource temporarily unavailable (os error 11)",
        ] {
            assert_eq!(help_for_limit(message), None, "{message}");
        }
    }
}
