//! The lines of stdin: prompts of a session, or answers to approval requests.

use std::io::{self, BufRead, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, mpsc};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

/// The lines of stdin. A line answers the open approval request if there is one; otherwise, the session receives the
/// line.
#[derive(Debug)]
pub struct PromptLines {
    prompts: tokio::sync::Mutex<UnboundedReceiver<Line>>,
    answers: Arc<AnswerLines>,
    is_terminal: bool,
    /// True once stdin has ended. Lines that were read may still wait for the session.
    read_to_end: watch::Receiver<bool>,
    /// Becomes true when stdin has ended and the session has handled every line that was read.
    ended: watch::Sender<bool>,
}

/// The byte that ends an item of stdin. An item is a prompt, an answer or a JSON request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemEnd {
    /// A line end.
    Line,
    /// A NUL byte. The item can have several lines.
    Null,
}

impl ItemEnd {
    fn byte(self) -> u8 {
        match self {
            Self::Line => b'\n',
            Self::Null => 0,
        }
    }
}

/// Maximum bytes of a line, more than any context window can hold.
pub const MAX_LINE_BYTES: usize = 16 << 20;

/// A line of stdin without its line end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub text: String,
    pub fault: Option<LineFault>,
}

/// The reason why the text of a line differs from the bytes that were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineFault {
    /// The line was not valid UTF-8 or had control characters, which are replaced in the text.
    Repaired,
    /// The line has more than [`MAX_LINE_BYTES`]; the text is empty.
    TooLong,
}

#[derive(Debug)]
struct AnswerLines {
    is_answer_expected: AtomicBool,
    receiver: std::sync::Mutex<mpsc::Receiver<String>>,
}

impl PromptLines {
    /// Starts to read stdin. The OS thread that reads lives until the process ends, because a read of a terminal cannot
    /// be cancelled.
    pub fn read_stdin(end_of_item: ItemEnd) -> Self {
        let (prompts, receiver) = unbounded_channel();
        let (answer, answers) = mpsc::channel();
        let answers = Arc::new(AnswerLines {
            is_answer_expected: AtomicBool::new(false),
            receiver: std::sync::Mutex::new(answers),
        });
        let shared = Arc::clone(&answers);
        let (end, read_to_end) = watch::channel(false);
        std::thread::spawn(move || {
            read_lines(&mut std::io::stdin().lock(), end_of_item, &prompts, &answer, &shared);
            // The send fails if `PromptLines` was dropped.
            end.send(true).ok();
        });
        let is_terminal = std::io::stdin().is_terminal();
        let prompts = tokio::sync::Mutex::new(receiver);
        Self { prompts, answers, is_terminal, read_to_end, ended: watch::Sender::new(false) }
    }

    /// Returns the next line for the session. At the end of the input, returns `None` and marks the input as ended.
    /// Call this method only after the previous line was handled: once the input is marked as ended, the client's
    /// answers to approval requests no longer count.
    pub async fn next(&self) -> Option<Line> {
        let line = self.prompts.lock().await.recv().await;
        if line.is_none() {
            self.ended.send_replace(true);
        }
        line
    }

    /// Returns the lines that were read but not handled.
    pub async fn take_rest(&self) -> Vec<String> {
        let mut lines = self.prompts.lock().await;
        std::iter::from_fn(|| lines.try_recv().ok()).map(|line| line.text).collect()
    }

    /// Waits for the end of stdin without handling further lines, and marks the input as ended.
    pub async fn skip_to_end(&self) {
        // The wait fails if the reading thread has ended, which also means that stdin has ended.
        self.read_to_end.clone().wait_for(|is_read| *is_read).await.ok();
        self.ended.send_replace(true);
    }

    /// Returns true if a user types the lines.
    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Returns a receiver whose value is true once stdin has been read to its end.
    pub fn read_to_end(&self) -> watch::Receiver<bool> {
        self.read_to_end.clone()
    }

    /// Returns a receiver for a new session. The received value becomes true once stdin has ended and the session has
    /// handled the remaining lines.
    pub fn ended(&self) -> watch::Receiver<bool> {
        self.ended.send_replace(false);
        self.ended.subscribe()
    }

    /// Returns a function that waits for the answer to an approval request and returns it. At the end of the input, the
    /// function returns `None`.
    pub fn answer_reader(&self) -> Arc<dyn Fn() -> Option<String> + Send + Sync> {
        let answers = Arc::clone(&self.answers);
        Arc::new(move || {
            let receiver = answers.receiver.lock().unwrap_or_else(PoisonError::into_inner);
            answers.is_answer_expected.store(true, Ordering::SeqCst);
            let answer = receiver.recv().ok();
            answers.is_answer_expected.store(false, Ordering::SeqCst);
            answer
        })
    }
}

fn read_lines(
    input: &mut dyn BufRead,
    end: ItemEnd,
    prompts: &UnboundedSender<Line>,
    answers: &mpsc::Sender<String>,
    shared: &AnswerLines,
) {
    // A read error counts as the end of stdin.
    while let Ok(Some(line)) = read_item(input, end) {
        let is_received = if shared.is_answer_expected.load(Ordering::SeqCst) {
            answers.send(line.text).is_ok()
        } else {
            prompts.send(line).is_ok()
        };
        if !is_received {
            return;
        }
    }
}

/// Reads the next line; `None` at the end of the input. The rest of a line that is too long is skipped.
pub fn read_line(input: &mut dyn BufRead) -> io::Result<Option<Line>> {
    read_item(input, ItemEnd::Line)
}

/// Reads the next item; `None` at the end of the input. The rest of an item that is too long is skipped.
fn read_item(input: &mut dyn BufRead, end_of_item: ItemEnd) -> io::Result<Option<Line>> {
    let (mut bytes, mut is_too_long) = (Vec::new(), false);
    loop {
        let read = input.fill_buf()?;
        if read.is_empty() {
            let is_end = bytes.is_empty() && !is_too_long;
            return Ok((!is_end).then(|| finish_line(&bytes, end_of_item, is_too_long)));
        }
        let end = read.iter().position(|byte| *byte == end_of_item.byte());
        let (part, used) =
            (read.get(..end.unwrap_or(read.len())).unwrap_or_default(), end.map_or(read.len(), |at| at + 1));
        if bytes.len() + part.len() > MAX_LINE_BYTES {
            is_too_long = true;
            bytes = Vec::new();
        }
        if !is_too_long {
            bytes.extend_from_slice(part);
        }
        input.consume(used);
        if end.is_some() {
            return Ok(Some(finish_line(&bytes, end_of_item, is_too_long)));
        }
    }
}

fn finish_line(bytes: &[u8], end: ItemEnd, is_too_long: bool) -> Line {
    if is_too_long { Line { text: String::new(), fault: Some(LineFault::TooLong) } } else { repair(bytes, end) }
}

/// Converts an item to text and removes the line ends at its end. Invalid bytes and control characters become U+FFFD.
/// Tabs are kept. If the item ends with a NUL byte, line ends inside the item are kept too.
fn repair(bytes: &[u8], end: ItemEnd) -> Line {
    let bytes = match end {
        ItemEnd::Line => bytes.strip_suffix(b"\r").unwrap_or(bytes).to_vec(),
        ItemEnd::Null => without_carriage_returns(bytes),
    };
    let bytes = bytes.as_slice();
    let mut was_repaired = std::str::from_utf8(bytes).is_err();
    let mut text = String::with_capacity(bytes.len());
    for character in String::from_utf8_lossy(bytes).chars() {
        let is_line_end = character == '\n' && end == ItemEnd::Null;
        if character.is_control() && character != '\t' && !is_line_end {
            was_repaired = true;
            text.push(char::REPLACEMENT_CHARACTER);
        } else {
            text.push(character);
        }
    }
    Line { text, fault: was_repaired.then_some(LineFault::Repaired) }
}

/// Replaces the line ends CR LF by LF, and removes the line ends at the end.
fn without_carriage_returns(bytes: &[u8]) -> Vec<u8> {
    let mut lines: Vec<&[u8]> =
        bytes.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
    while lines.len() > 1 && lines.last().is_some_and(|last| last.is_empty()) {
        lines.pop();
    }
    lines.join(&b'\n')
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn input_has_ended_after_every_line_is_handled() {
        let (prompts, receiver) = unbounded_channel();
        let (_answer, answers) = mpsc::channel();
        let answers =
            AnswerLines { is_answer_expected: AtomicBool::new(false), receiver: std::sync::Mutex::new(answers) };
        let lines = PromptLines {
            prompts: tokio::sync::Mutex::new(receiver),
            answers: Arc::new(answers),
            is_terminal: false,
            read_to_end: watch::channel(true).1,
            ended: watch::Sender::new(false),
        };
        let ended = lines.ended();
        prompts.send(Line { text: "no".to_owned(), fault: None }).unwrap();
        drop(prompts);
        assert_eq!(lines.next().await.unwrap().text, "no");
        assert!(!*ended.borrow(), "the line is still being handled");
        assert_eq!((lines.next().await, *ended.borrow()), (None, true));
        let next_session = lines.ended();
        assert!(!*next_session.borrow());
        lines.skip_to_end().await;
        assert!(*next_session.borrow());
    }

    #[test]
    fn broken_characters_of_a_line_are_replaced_and_reported() {
        let line = |bytes: &[u8]| {
            let line = repair(bytes, ItemEnd::Line);
            (line.text, line.fault)
        };
        assert_eq!(line(b"hello\tyou\r"), ("hello\tyou".to_owned(), None));
        assert_eq!(line("größe".as_bytes()), ("größe".to_owned(), None));
        assert_eq!(line(b"a\0b\xff"), ("a\u{fffd}b\u{fffd}".to_owned(), Some(LineFault::Repaired)));
    }

    #[test]
    fn items_that_end_with_a_null_byte_keep_their_lines() {
        let mut input = &b"one\r\ntwo\n\n\0/tree\0\xff\0\n"[..];
        let mut items = Vec::new();
        while let Some(item) = read_item(&mut input, ItemEnd::Null).unwrap() {
            items.push((item.text, item.fault));
        }
        let whole = |text: &str| (text.to_owned(), None);
        let repaired = ("\u{fffd}".to_owned(), Some(LineFault::Repaired));
        assert_eq!(items, [whole("one\ntwo"), whole("/tree"), repaired, whole("")]);
    }

    #[test]
    fn line_beyond_the_bound_is_skipped_and_reported() {
        let long = vec![b'x'; MAX_LINE_BYTES + 1];
        let text = [b"one\n".as_slice(), &long, b"\n", &long[1..], b"\n\nlast"].concat();
        let mut input = std::io::BufReader::with_capacity(4096, text.as_slice());
        let mut lines = Vec::new();
        while let Some(line) = read_line(&mut input).unwrap() {
            lines.push((line.text.len(), line.fault));
        }
        let whole = |length| (length, None);
        assert_eq!(lines, [whole(3), (0, Some(LineFault::TooLong)), whole(MAX_LINE_BYTES), whole(0), whole(4)]);
    }

    #[test]
    fn lines_go_to_the_open_approval_request_or_to_the_session() {
        let (prompts, mut receiver) = unbounded_channel();
        let (answer, answers) = mpsc::channel();
        let shared =
            AnswerLines { is_answer_expected: AtomicBool::new(false), receiver: std::sync::Mutex::new(answers) };
        read_lines(&mut &b"first\n"[..], ItemEnd::Line, &prompts, &answer, &shared);
        shared.is_answer_expected.store(true, Ordering::SeqCst);
        read_lines(&mut &b"y\n"[..], ItemEnd::Line, &prompts, &answer, &shared);
        assert_eq!(receiver.try_recv().unwrap().text, "first");
        assert_eq!(shared.receiver.lock().unwrap().try_recv().unwrap(), "y");
        assert!(receiver.try_recv().is_err());
    }
}
