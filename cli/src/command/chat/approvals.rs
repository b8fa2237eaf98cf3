//! Approval requests in the terminal of a chat, answered by a single key.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::command::run::ask::ReadLine;

/// An approval request that waits for a key of the user.
#[derive(Debug)]
pub struct OpenRequest {
    /// The line that lists the keys that answer the request.
    pub keys: String,
    has_scopes: bool,
    has_shape: bool,
    is_answered: bool,
    /// The text of the request, which names the thread that waits.
    head: String,
}

impl OpenRequest {
    /// Opens a request from the text of its question. The last line of `question` lists the keys that answer the
    /// request. The other lines describe the call. Returns the request and the lines that describe the call.
    pub fn open(question: &str) -> (Self, Vec<String>) {
        let mut lines: Vec<String> = question.split('\n').map(str::to_owned).collect();
        let mut keys = lines.pop().unwrap_or_default();
        let (has_scopes, has_shape) = (keys.contains("t: "), keys.contains(" c: `"));
        if has_scopes {
            keys = keys.replacen("[y/N; ", "[y/n; N: no, with a message; ", 1);
        }
        let head = lines.first().cloned().unwrap_or_default();
        (Self { keys, has_scopes, has_shape, is_answered: false, head }, lines)
    }

    /// Returns true if a key refuses the call and lets the user write a message for the model.
    pub fn is_refusal_with_message(&self, key: KeyEvent) -> bool {
        let is_plain = (key.modifiers - KeyModifiers::SHIFT).is_empty();
        is_plain && key.code == KeyCode::Char('N') && self.has_scopes && !self.is_answered
    }

    /// Returns the hint for a key that does not answer the request. Placeholders such as `{app.interrupt}` stand for
    /// keys.
    pub fn hint(&self) -> &'static str {
        match (self.has_scopes, self.has_shape) {
            (true, true) => "y, n, N, t, p, c or C answers the question; {app.interrupt} interrupts the prompt",
            (true, false) => "y, n, N, t or p answers the question; {app.interrupt} interrupts the prompt",
            (false, _) => "y or n answers the question; {app.interrupt} interrupts the prompt",
        }
    }

    /// Returns true if the request belongs to a call of this thread.
    pub fn is_of(&self, thread: &str) -> bool {
        self.head.ends_with(&format!("thread {thread}"))
    }

    pub fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// Marks the request as answered, because the user refuses the call with a message. Returns false if the request
    /// was answered before.
    pub fn refuse(&mut self) -> bool {
        !std::mem::replace(&mut self.is_answered, true)
    }

    /// Returns the answer that a key selects, and marks the request as answered. `None` if the key selects no answer or
    /// the request is already answered.
    pub fn answer(&mut self, key: KeyEvent) -> Option<&'static str> {
        let is_plain = (key.modifiers - KeyModifiers::SHIFT).is_empty();
        let KeyCode::Char(pressed) = key.code else { return None };
        let answer = match pressed.to_ascii_lowercase() {
            'y' => "y",
            'n' => "n",
            't' if self.has_scopes => "t",
            'p' if self.has_scopes => "p",
            'c' if self.has_shape && pressed == 'C' => "C",
            'c' if self.has_shape => "c",
            _ => return None,
        };
        (is_plain && !std::mem::replace(&mut self.is_answered, true)).then_some(answer)
    }
}

/// Returns a channel for the answers to approval requests: the sender, and a function that waits for the next answer.
/// The function returns `None` once the sender is dropped.
pub fn answer_channel() -> (Sender<String>, Arc<ReadLine>) {
    let (sender, receiver) = channel();
    let receiver: Mutex<Receiver<String>> = Mutex::new(receiver);
    let read = move || receiver.lock().unwrap_or_else(PoisonError::into_inner).recv().ok();
    (sender, Arc::new(read))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(c: char) -> KeyEvent {
        KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE)
    }

    #[test]
    fn one_key_answers_a_request_once() {
        let question =
            "approval 1 of 2: thread a\n  capability: x\nAllow? [y/N; t: in this thread, p: in this project] ";
        let (mut request, lines) = OpenRequest::open(question);
        assert_eq!(lines, ["approval 1 of 2: thread a", "  capability: x"]);
        assert!(request.keys.contains("N: no, with a message"), "{}", request.keys);
        assert!(request.is_refusal_with_message(key('N')) && !request.is_refusal_with_message(key('n')));
        assert_eq!(
            (request.answer(key('q')), request.answer(key('t')), request.answer(key('y'))),
            (None, Some("t"), None)
        );
        assert!(!request.is_refusal_with_message(key('N')) && !request.refuse());
        let (mut limit, _) = OpenRequest::open("thread a reached a limit\nContinue? [y/N] ");
        assert!(!limit.is_refusal_with_message(key('N')));
        assert_eq!((limit.answer(key('p')), limit.answer(key('Y'))), (None, Some("y")));
    }

    #[test]
    fn keys_with_control_do_not_answer() {
        let (mut request, _) = OpenRequest::open("x\nAllow? [y/N] ");
        assert_eq!(request.answer(KeyEvent::new(KeyCode::Char('y'), KeyModifiers::CONTROL)), None);
        assert_eq!(request.answer(key('y')), Some("y"));
    }
}
