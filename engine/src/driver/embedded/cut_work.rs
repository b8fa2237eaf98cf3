//! The partial results of work that an interruption or a kill stops: the output of running calls, and the text of a
//! streaming reply.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::EmbeddedDriver;
use crate::error::DriveError;
use crate::machine::signal::{InterruptedReply, ToolFinished};
use crate::machine::{Fact, Signal};
use crate::provider::CallProgress;
use crate::tool::ToolOutcome;
use crate::tool::process::SharedOutput;

/// The size of a piece of the text of a streaming reply. A piece is allocated with the first text of a reply.
const PIECE_BYTES: usize = 4 * 1024;

/// A call in progress: a call of the model's reply, or a shell command of the user.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RunningCall {
    /// The index of a call of the reply.
    Reply(usize),
    /// The id of a command of the user.
    Command(String),
}

#[derive(Debug)]
struct CallOutput {
    /// The start of the call, in milliseconds since 1970.
    began: i64,
    written: SharedOutput,
}

/// The partial results of the effects that run.
#[derive(Debug, Default)]
pub(super) struct CutWork {
    calls: Mutex<BTreeMap<RunningCall, CallOutput>>,
    /// The text of the streaming reply, in pieces, because a single growing string would be copied repeatedly.
    reply: Mutex<Vec<String>>,
    model_call: Mutex<Arc<CallProgress>>,
}

impl CutWork {
    /// Registers a call that starts at the time `began`. Returns the receiver of the output of its program.
    pub(super) fn begin_call(&self, call: RunningCall, began: i64) -> SharedOutput {
        let written = SharedOutput::default();
        let output = CallOutput { began, written: written.clone() };
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).insert(call, output);
        written
    }

    /// Removes a call that has a result.
    pub(super) fn end_call(&self, call: &RunningCall) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).remove(call);
    }

    /// Returns an empty record for the facts that the provider reports about the next model call. This record replaces
    /// the record of the last call.
    pub(super) fn begin_model_call(&self) -> Arc<CallProgress> {
        let progress = Arc::<CallProgress>::default();
        *self.model_call.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&progress);
        progress
    }

    /// Returns the facts that the provider has reported about the current model call.
    fn model_call(&self) -> Arc<CallProgress> {
        Arc::clone(&self.model_call.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn add_text(&self, text: &str) {
        let mut pieces = self.reply.lock().unwrap_or_else(PoisonError::into_inner);
        match pieces.last_mut() {
            Some(piece) if piece.len() + text.len() <= piece.capacity() => piece.push_str(text),
            Some(_) | None => {
                let mut piece = String::with_capacity(PIECE_BYTES.max(text.len()));
                piece.push_str(text);
                pieces.push(piece);
            }
        }
    }

    /// Drops the text of the reply so far.
    pub(super) fn clear_text(&self) {
        self.reply.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns the text of the reply so far, and starts again with an empty text.
    fn take_text(&self) -> String {
        std::mem::take(&mut *self.reply.lock().unwrap_or_else(PoisonError::into_inner)).concat()
    }
}

/// Returns the result of a call that ended early: the output of its program so far, then `status`.
pub(super) fn early_end(written: &SharedOutput, status: &str) -> ToolOutcome {
    let mut text = written.take().text;
    if text.is_empty() {
        return ToolOutcome::error(status);
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    ToolOutcome::error(format!("{text}[{status}]"))
}

impl EmbeddedDriver {
    /// Returns the results of the effects that were dropped since the last call of this function. A call of the reply
    /// whose program has written nothing has no result in this list, because the machine records the interruption of
    /// the call.
    pub(super) async fn take_cut_work(&self) -> Result<Vec<Signal>, DriveError> {
        const STATUS: &str = "interrupted: outcome unknown";
        let calls = std::mem::take(&mut *self.cut_work.calls.lock().unwrap_or_else(PoisonError::into_inner));
        let mut signals = Vec::new();
        for (call, CallOutput { began, written }) in calls {
            let outcome = early_end(&written, STATUS);
            let is_silent = outcome.content == STATUS;
            let duration_ms = u64::try_from(self.engine.clock.now().saturating_sub(began)).unwrap_or(0);
            let fact = match call {
                RunningCall::Reply(_) if is_silent => continue,
                RunningCall::Reply(index) => {
                    let answer = self.guarded(outcome).await?;
                    Fact::ToolInterrupted(Box::new(ToolFinished { index, answer, duration_ms }))
                }
                RunningCall::Command(id) => {
                    let answer = Box::new(self.guarded(outcome).await?);
                    Fact::ShellRan { id, answer, exit_code: -1, duration_ms }
                }
            };
            signals.push(self.at(fact));
        }
        let progress = self.cut_work.model_call();
        if let Some(refusal) = progress.take_refusal() {
            signals.push(self.at(Fact::ModelFailed(Box::new(refusal))));
        }
        let text = Some(self.cut_work.take_text()).filter(|text| !text.trim().is_empty()).unwrap_or_default();
        let reply = InterruptedReply { text, usage: progress.take_final_usage() };
        if reply != InterruptedReply::default() {
            signals.push(self.at(Fact::ReplyInterrupted(Box::new(reply))));
        }
        Ok(signals)
    }
}
