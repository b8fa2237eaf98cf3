//! Answers that a user types at the terminal. An answer counts only if it was typed after its question was printed.

use std::io::{self, Write};

use rustix::termios::{QueueSelector, tcflush};

/// Discards lines typed before a question. Does nothing if stdin is not a terminal.
pub fn discard_typed() {
    tcflush(io::stdin(), QueueSelector::IFlush).ok();
}

/// Discards lines typed before the question, prints the question, and reads the answer. Returns true if the answer is
/// yes. The caller checks that there is a terminal.
pub fn ask_yes_no(question: &str) -> io::Result<bool> {
    discard_typed();
    // The lock is released before the answer is awaited, because an interrupted question must not block other output.
    let mut out = anstream::stderr();
    write!(out, "{question}")?;
    out.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(is_yes(&answer))
}

/// Variant of [`ask_yes_no`] that other futures can interrupt. After an interruption, an OS thread still waits for a
/// line. The process exits without waiting for this OS thread.
pub async fn ask_yes_no_async(question: String) -> io::Result<bool> {
    let (sender, answer) = tokio::sync::oneshot::channel();
    // The receiver may be gone.
    std::thread::spawn(move || sender.send(ask_yes_no(&question)).ok());
    answer.await.unwrap_or(Ok(false))
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}
