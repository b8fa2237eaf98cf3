//! A process that answers JSON lines. This module sends a line, waits for the answer until the deadline, and receives
//! the messages that the process submits to a chat.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rye_grammar::ItemId;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::event::Delivery;
use crate::json_faults::find_fault;
use crate::tool::cancellation::{CANCEL_GRACE, CancellationToken};
use crate::tool::process::{LongLivedProgram, ProgramHandle, RunningProgram, StderrTail, start_long_lived};

/// Maximum length of a line that a process writes, in bytes.
const MAX_LINE_BYTES: u64 = 1 << 20;
/// Maximum number of messages that a process submits within one prompt.
const MAX_PUSHES: u64 = 10;
/// Maximum number of characters that an error quotes of the output of the process.
const MAX_LOG_CHARS: usize = 2_000;
/// Time to wait, after a process has ended, for the rest of its standard error, which the error message quotes.
const LOG_TIMEOUT: Duration = Duration::from_millis(50);

/// Accepts a message that a process submits; returns false if the chat has ended.
pub type PushHandler = Arc<dyn Fn(PushedMessage) -> bool + Send + Sync>;

/// A message that a process submits: `{"submit": {"text": "…", "delivery": "follow_up"}}`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PushedMessage {
    pub text: String,
    #[serde(default)]
    pub delivery: Delivery,
}

/// A running process. Dropping this value ends the process and its descendants.
pub(super) struct LineProcess {
    input: pipe::Sender,
    lines: mpsc::Receiver<Result<Map<String, Value>, String>>,
    log: StderrTail,
    /// The position in the log up to which [`LineProcess::take_log`] has returned the log.
    log_position: u64,
    reader: AbortHandle,
    /// A line that the program receives directly before the line of the first call. `None` if there is no such line, or
    /// after it was sent.
    first_line: Option<Vec<u8>>,
    _held: ProgramHandle,
}

/// The reason why a line has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LineFailure {
    /// The process ended before it answered.
    Ended,
    TimedOut,
    /// The process wrote something other than an answer.
    Malformed {
        reason: String,
    },
    Cancelled,
}

impl LineFailure {
    /// Describes the failure. `log` is the text that the process printed during the call.
    pub fn describe(&self, tool: &ItemId, timeout: Duration, log: &str) -> String {
        let text = match self {
            Self::Ended => {
                format!("the process of `{tool}` ended before it answered; the outcome of the call is unknown")
            }
            Self::TimedOut => {
                let seconds = timeout.as_secs_f64();
                format!("the process of `{tool}` was stopped: it did not answer within {seconds} seconds")
            }
            Self::Malformed { reason } => format!("the process of `{tool}` was stopped: {reason}"),
            Self::Cancelled => return "stopped: the thread was cancelled".to_owned(),
        };
        if log.is_empty() { text } else { format!("{text}; the last output of the process: {log}") }
    }
}

impl LineProcess {
    /// Starts a program. `first_line` is sent together with the line of the first call. If `pushes` is given, the
    /// program may submit messages: `pushes` contains the handler of the messages and the number of the current prompt,
    /// or the reason why the program must not submit messages.
    pub fn start(
        program: &LongLivedProgram,
        first_line: Option<&Value>,
        pushes: Result<(PushHandler, Arc<AtomicU64>), &'static str>,
    ) -> io::Result<Self> {
        let RunningProgram { output, input, log, held } = start_long_lived(program)?;
        let (sender, lines) = mpsc::channel(1);
        let reader = tokio::spawn(read_lines(output, sender, pushes)).abort_handle();
        let first_line = first_line.map(encode_line);
        Ok(Self { input, lines, log, log_position: 0, reader, first_line, _held: held })
    }

    pub fn is_running(&self) -> bool {
        !self.reader.is_finished()
    }

    /// Returns the end of the text that the process has printed since the last call of this method.
    pub fn take_log(&mut self) -> String {
        let (text, position) = self.log.text_from(self.log_position);
        self.log_position = position;
        let skipped = text.chars().count().saturating_sub(MAX_LOG_CHARS);
        text.chars().skip(skipped).collect()
    }

    /// Sends a line, and waits at most the time `most` for the answer with this id.
    pub async fn exchange(
        &mut self,
        id: u64,
        line: &Value,
        most: Duration,
        mut halt: CancellationToken,
    ) -> Result<Map<String, Value>, LineFailure> {
        let halted = async {
            halt.cancelled().await;
            tokio::time::sleep(CANCEL_GRACE).await;
        };
        tokio::select! {
            answer = timeout(most, self.send(id, line)) => answer.unwrap_or(Err(LineFailure::TimedOut)),
            () = halted => Err(LineFailure::Cancelled),
        }
    }

    async fn send(&mut self, id: u64, line: &Value) -> Result<Map<String, Value>, LineFailure> {
        let mut bytes = self.first_line.take().unwrap_or_default();
        bytes.extend(encode_line(line));
        // The write fails if the process has closed its input. The output is read even then, because it may contain the
        // reason.
        let written = self.input.write_all(&bytes).await;
        let Some(answer) = self.lines.recv().await else {
            // Standard error can end later than the output, so wait for the rest of the log.
            tokio::time::sleep(LOG_TIMEOUT).await;
            return Err(LineFailure::Ended);
        };
        let answer = answer.map_err(|reason| LineFailure::Malformed { reason })?;
        if answer.get("id").and_then(Value::as_u64) != Some(id) {
            let found = answer.get("id").map_or_else(|| "no id".to_owned(), |found| format!("the id {found}"));
            return Err(LineFailure::Malformed {
                reason: format!("its answer must have the id {id}, but has {found}"),
            });
        }
        written.map_or(Err(LineFailure::Ended), |()| Ok(answer))
    }
}

impl Drop for LineProcess {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Reads the lines of a process until the process ends or writes an invalid line.
async fn read_lines(
    output: pipe::Receiver,
    answers: mpsc::Sender<Result<Map<String, Value>, String>>,
    pushes: Result<(PushHandler, Arc<AtomicU64>), &'static str>,
) {
    let mut output = BufReader::new(output);
    let mut bytes = Vec::new();
    let (mut counted_prompt, mut count) = (0, 0_u64);
    loop {
        bytes.clear();
        match (&mut output).take(MAX_LINE_BYTES).read_until(b'\n', &mut bytes).await {
            Ok(1..) => {}
            Ok(0) | Err(_) => return,
        }
        let mut line = match parse_line(&bytes) {
            Ok(line) => line,
            Err(reason) => {
                answers.send(Err(reason)).await.ok();
                return;
            }
        };
        let Some(message) = line.shift_remove("submit") else {
            if answers.send(Ok(line)).await.is_err() {
                return;
            }
            continue;
        };
        let (handler, prompt) = match &pushes {
            Ok(pushes) => pushes,
            Err(reason) => {
                answers.send(Err((*reason).to_owned())).await.ok();
                return;
            }
        };
        let now = prompt.load(Ordering::Relaxed);
        if now != counted_prompt {
            (counted_prompt, count) = (now, 0);
        }
        count = count.saturating_add(1);
        let refused = match serde_json::from_value::<PushedMessage>(message) {
            Ok(_) if count > MAX_PUSHES => Some(format!("it submitted more than {MAX_PUSHES} messages in one prompt")),
            Ok(message) if message.text.trim().is_empty() => Some("it submitted an empty message".to_owned()),
            Ok(message) => (!handler(message)).then(|| "the chat has ended".to_owned()),
            Err(error) => Some(format!("the submitted message cannot be read: {error}")),
        };
        if let Some(reason) = refused {
            answers.send(Err(reason)).await.ok();
            return;
        }
    }
}

fn encode_line(line: &Value) -> Vec<u8> {
    let mut bytes = line.to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}

fn parse_line(bytes: &[u8]) -> Result<Map<String, Value>, String> {
    if bytes.last() != Some(&b'\n') && u64::try_from(bytes.len()).is_ok_and(|length| length >= MAX_LINE_BYTES) {
        return Err(format!("it wrote a line of more than {} MiB", MAX_LINE_BYTES >> 20));
    }
    if let Ok(Value::Object(line)) = serde_json::from_slice(bytes) {
        let fault = std::str::from_utf8(bytes).ok().and_then(find_fault);
        return fault
            .map_or(Ok(line), |fault| Err(format!("its output has a line that cannot be kept as it is: {fault}")));
    }
    let shown: String = String::from_utf8_lossy(bytes).trim().chars().take(200).collect();
    Err(format!("its output has a line that is not a JSON object: {shown}"))
}
