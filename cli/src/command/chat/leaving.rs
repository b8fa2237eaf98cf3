//! Leaving a session whose asynchronous children still run: wait for them, continue in the background, or cancel them.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Signal, getpid, kill_process};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The treatment of children that still run when their session closes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LeftChildren {
    /// The process ends after the children.
    #[default]
    Wait,
    /// The process continues in the background until the children have ended. Only at a terminal.
    Detach,
    /// The children are stopped at once. Their model calls are settled at the worst case.
    Cancel,
}

impl LeftChildren {
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "wait" => Some(Self::Wait),
            "detach" => Some(Self::Detach),
            "cancel" => Some(Self::Cancel),
            _ => None,
        }
    }

    /// Returns the treatment of running children that the user selects with a key; `None` for any other key.
    pub fn of_key(key: char) -> Option<Self> {
        match key.to_ascii_lowercase() {
            'w' => Some(Self::Wait),
            'd' => Some(Self::Detach),
            'c' => Some(Self::Cancel),
            _ => None,
        }
    }
}

/// The user's choice that the process continues in the background after its session, until the running children have
/// ended. Clones share the choice.
#[derive(Debug, Clone, Default)]
pub struct BackgroundChoice(Arc<AtomicBool>);

impl BackgroundChoice {
    pub fn choose(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Returns true if the process continues in the background once its session is closed.
    pub fn is_chosen(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// The hint in the error if children still run and the user opens another session.
pub const CHILDREN_HINT: &str = "repeat the request with `children` set to `wait` or `cancel`";

/// Returns the question for a user who leaves: `2 children run`, with the keys or words that answer it.
pub fn children_question(children: usize, answers: &str) -> String {
    let subject = if children == 1 { "1 child runs".to_owned() } else { format!("{children} children run") };
    format!("{subject}. {answers}")
}

/// A shell script that waits until the process with the given id is stopped, and then resumes it. The script waits at
/// most 5 seconds, in case the process does not stop.
const RESUME_SCRIPT: &str = "n=0; while [ $n -lt 100 ] && ! grep -q '^State:.[Tt]' /proc/$1/status; do \
                             n=$((n+1)); sleep 0.05; done; kill -CONT $1";

/// Returns the terminal to the shell and continues in the background: this process closes its terminal and stops, the
/// shell takes the terminal, and a helper process resumes this process.
///
/// # Errors
/// The outputs cannot be closed, or no helper can be started. The process then stays in the foreground.
pub fn continue_in_background() -> io::Result<()> {
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    let own = getpid();
    let mut helper = Command::new("/bin/sh");
    helper.args(["-c", RESUME_SCRIPT, "sh", &own.as_raw_nonzero().to_string()]);
    helper.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut helper = helper.spawn()?;
    dup2_stdin(&nothing)?;
    dup2_stdout(&nothing)?;
    dup2_stderr(&nothing)?;
    kill_process(own, Signal::STOP)?;
    // At this point, the helper has resumed this process.
    helper.wait().map(drop)
}
