//! The lines of stdin: prompts of a session, or answers to approval requests.

use std::io::{BufRead, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, mpsc};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

/// The lines of stdin. A line goes to the open approval request, else to the session.
#[derive(Debug)]
pub struct PromptLines {
    prompts: tokio::sync::Mutex<UnboundedReceiver<Line>>,
    answers: Arc<AnswerLines>,
    is_terminal: bool,
    /// True from the end of the input on.
    ended: watch::Receiver<bool>,
}

/// A line of stdin without its line end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub text: String,
    /// The line was no valid UTF-8 or had control characters; they are replaced in `text`.
    pub was_repaired: bool,
}

#[derive(Debug)]
struct AnswerLines {
    is_asked: AtomicBool,
    receiver: std::sync::Mutex<mpsc::Receiver<String>>,
}

impl PromptLines {
    /// Starts to read stdin. The reading thread lives until the process ends: a read of a terminal cannot be cancelled.
    pub fn read_stdin() -> Self {
        let (prompts, receiver) = unbounded_channel();
        let (answer, answers) = mpsc::channel();
        let answers =
            Arc::new(AnswerLines { is_asked: AtomicBool::new(false), receiver: std::sync::Mutex::new(answers) });
        let shared = Arc::clone(&answers);
        let (end, ended) = watch::channel(false);
        std::thread::spawn(move || {
            read_lines(&mut std::io::stdin().lock(), &prompts, &answer, &shared);
            // The session may be over.
            end.send(true).ok();
        });
        let is_terminal = std::io::stdin().is_terminal();
        Self { prompts: tokio::sync::Mutex::new(receiver), answers, is_terminal, ended }
    }

    /// Returns the next line for the session; `None` at the end of the input.
    pub async fn next(&self) -> Option<Line> {
        self.prompts.lock().await.recv().await
    }

    /// Returns true if a user types the lines.
    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Returns a value that becomes true at the end of the input.
    pub fn ended(&self) -> watch::Receiver<bool> {
        self.ended.clone()
    }

    /// Returns a function that reads the answer to an approval request; `None` at the end of the input.
    pub fn answer_reader(&self) -> Arc<dyn Fn() -> Option<String> + Send + Sync> {
        let answers = Arc::clone(&self.answers);
        Arc::new(move || {
            let receiver = answers.receiver.lock().unwrap_or_else(PoisonError::into_inner);
            answers.is_asked.store(true, Ordering::SeqCst);
            let answer = receiver.recv().ok();
            answers.is_asked.store(false, Ordering::SeqCst);
            answer
        })
    }
}

fn read_lines(
    input: &mut dyn BufRead,
    prompts: &UnboundedSender<Line>,
    answers: &mpsc::Sender<String>,
    shared: &AnswerLines,
) {
    let mut bytes = Vec::new();
    // An unreadable stdin has no further lines.
    while input.read_until(b'\n', &mut bytes).is_ok_and(|count| count > 0) {
        let line = repair(&bytes);
        bytes.clear();
        let is_received = if shared.is_asked.load(Ordering::SeqCst) {
            answers.send(line.text).is_ok()
        } else {
            prompts.send(line).is_ok()
        };
        if !is_received {
            return;
        }
    }
}

/// Converts a line to text: a broken character becomes U+FFFD, and so does a control character other than a tab.
fn repair(bytes: &[u8]) -> Line {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    let mut was_repaired = std::str::from_utf8(bytes).is_err();
    let mut text = String::with_capacity(bytes.len());
    for character in String::from_utf8_lossy(bytes).chars() {
        if character.is_control() && character != '\t' {
            was_repaired = true;
            text.push(char::REPLACEMENT_CHARACTER);
        } else {
            text.push(character);
        }
    }
    Line { text, was_repaired }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn broken_characters_of_a_line_are_replaced_and_reported() {
        let line = |bytes: &[u8]| {
            let line = repair(bytes);
            (line.text, line.was_repaired)
        };
        assert_eq!(line(b"hello\tyou\r\n"), ("hello\tyou".to_owned(), false));
        assert_eq!(line("größe".as_bytes()), ("größe".to_owned(), false));
        assert_eq!(line(b"a\0b\xff\n"), ("a\u{fffd}b\u{fffd}".to_owned(), true));
    }

    #[test]
    fn lines_go_to_the_open_approval_request_or_to_the_session() {
        let (prompts, mut receiver) = unbounded_channel();
        let (answer, answers) = mpsc::channel();
        let shared = AnswerLines { is_asked: AtomicBool::new(false), receiver: std::sync::Mutex::new(answers) };
        read_lines(&mut &b"first\n"[..], &prompts, &answer, &shared);
        shared.is_asked.store(true, Ordering::SeqCst);
        read_lines(&mut &b"y\n"[..], &prompts, &answer, &shared);
        assert_eq!(receiver.try_recv().unwrap().text, "first");
        assert_eq!(shared.receiver.lock().unwrap().try_recv().unwrap(), "y");
        assert!(receiver.try_recv().is_err());
    }
}
