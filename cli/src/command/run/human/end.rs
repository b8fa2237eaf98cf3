//! The end of a run or session in human and plain output: result, cost, and the way to continue.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write;

use anstyle::{AnsiColor, Style};
use rye_compiler::semantics::money::Nanos;
use rye_engine::event::{ChildEnded, Ended, Opened};
use rye_engine::thread::{PrintedCost, RunResult, Status};
use rye_engine::thread_id::ThreadId;
use serde_json::Value;

use super::{HumanRenderer, MAX_ERROR_CHARS, io_err, message_without_code};
use crate::command::providers::usable::usable_models;
use crate::present::wrap::fold_for_stderr;
use crate::present::{DIM, color_style, format_count, format_spend, status_style, truncate_line};
use crate::report::printable;

/// The parents of threads, and the threads that have ended.
#[derive(Debug, Default)]
pub(super) struct EndedParents {
    parents: BTreeMap<ThreadId, ThreadId>,
    ended: BTreeSet<ThreadId>,
}

impl EndedParents {
    pub fn insert(&mut self, thread: &ThreadId, opened: &Opened) {
        let parent = opened.parent.as_ref().and_then(|parent| ThreadId::parse(&parent.thread_id).ok());
        self.parents.extend(parent.map(|parent| (thread.clone(), parent)));
    }

    /// Returns the parent of a thread if the parent has ended.
    fn ended_parent(&self, thread: &ThreadId) -> Option<ThreadId> {
        self.parents.get(thread).filter(|parent| self.ended.contains(*parent)).cloned()
    }
}

/// Maximum number of names in the line about parts of replies that were not understood, at the end of a run.
const MAX_UNREAD_NAMES: usize = 3;

impl HumanRenderer {
    /// Prints the end of a chat, without its replies, which were printed before. If `session_cost` is `None`, prints
    /// the cost in `result`.
    pub(super) fn chat(&mut self, result: &RunResult, session_cost: Option<&PrintedCost>, reached_limit: Option<&str>) {
        if result.status != Status::Idle {
            return self.human(&RunResult { result: None, ..result.clone() }, reached_limit, &[]);
        }
        if !self.quiet {
            let again = format!("open the session again with `rye chat --resume {}`", result.thread_id);
            let cost = self.cost(session_cost.unwrap_or(&result.cost));
            if let Some(line) = unread_line(&result.unread) {
                writeln!(io_err(), "{line}").ok();
            }
            writeln!(io_err(), "session closed  {cost}\n{DIM}{again}{DIM:#}").ok();
        }
    }

    /// Prints the end of a run. `reached_limit` is the limit that a suspended thread waits for. `waiting` are the
    /// suspended descendants, each with the limit that it has reached.
    pub(super) fn human(
        &mut self,
        result: &RunResult,
        reached_limit: Option<&str>,
        waiting: &[(ThreadId, Option<String>)],
    ) {
        self.outputs(result);
        let mut lines = String::new();
        self.add_end(&mut lines, result, reached_limit, waiting);
        write!(io_err(), "{}", fold_for_stderr(&lines)).ok();
    }

    /// Adds the lines at the end of a run to `err`: error, missing outputs, status with cost, and help. Ignores the
    /// results of the writes, because writing to a string cannot fail.
    fn add_end(
        &self,
        err: &mut String,
        result: &RunResult,
        reached_limit: Option<&str>,
        waiting: &[(ThreadId, Option<String>)],
    ) {
        // An error whose code equals the status (such as `cancelled`) is not printed, because the status is printed
        // below.
        let is_status = |code: &str| !self.quiet && code == result.status.as_str();
        if let Some(error) = result.error.as_ref().filter(|error| !is_status(&error.code)) {
            let red = color_style(AnsiColor::Red).bold();
            writeln!(err, "{red}error{red:#}: {}: {}", error.code, printable(message_without_code(error))).ok();
            if self.main.as_ref().is_some_and(|main| self.missing_key.contains(main)) {
                writeln!(err, "  {}", self.missing_key_help()).ok();
            }
            if self.worst_case > 0 && matches!(error.code.as_str(), "spend_exceeded" | "tokens_exceeded") {
                let amount = format_spend(self.worst_case, self.unpriced);
                writeln!(
                    err,
                    "  help: a call had no reported usage, so its maximum tokens and cost were charged: {amount}; \
                     `budget.unknown_outcome: estimate` in `agent/resilience` charges by the size of the exchange instead"
                )
                .ok();
            }
        }
        if self.quiet {
            return;
        }
        // The error `missing_outputs` already names the missing outputs.
        let is_named = result.error.as_ref().is_some_and(|error| error.code == "missing_outputs");
        if !self.missing.is_empty() && !is_named {
            writeln!(err, "missing outputs: {}", self.missing.join(", ")).ok();
        }
        if let Some(line) = unread_line(&result.unread) {
            writeln!(err, "{line}").ok();
        }
        let style = status_style(result.status);
        let word = result.status.as_str();
        writeln!(err, "{style}{word}{style:#}  {}  {DIM}{}{DIM:#}", self.cost(&result.cost), result.thread_id).ok();
        let cut_off = result.error.as_ref().is_some_and(|error| error.code == "engine_failed");
        if cut_off || matches!(result.status, Status::Created | Status::Running | Status::Suspended) {
            let then = if result.status == Status::Suspended {
                let id = &result.thread_id;
                let raise = reached_limit.map(|limit| format!(" --raise {limit}=N")).unwrap_or_default();
                format!("approve with `rye threads approve {id}{raise}`, deny with `rye threads approve {id} --deny`")
            } else if self.is_chat {
                format!("open the session again with `rye chat --resume {}`", result.thread_id)
            } else {
                format!("continue with `rye run --resume {}`", result.thread_id)
            };
            writeln!(err, "  help: {then}").ok();
        }
        if is_named {
            let id = &result.thread_id;
            writeln!(err, "  help: ask the model again with `rye run --resume {id} --message TEXT`").ok();
        }
        for (id, limit) in waiting {
            let raise = limit.as_ref().map(|limit| format!(" --raise {limit}=N")).unwrap_or_default();
            writeln!(err, "  help: `{id}` waits for your answer: `rye threads approve {id}{raise}`").ok();
        }
    }

    /// Handles the end of a thread. The end of a child is usually printed when its parent records the end. If the
    /// parent has already ended, the end of the child is printed at once.
    pub(super) fn thread_ended(&mut self, thread: &ThreadId, ended: &Ended) {
        if self.main.as_ref() == Some(thread) {
            self.missing.clone_from(&ended.missing);
        } else {
            self.errors.extend(ended.error.clone().map(|error| (thread.to_string(), error)));
            if let Some(parent) = self.parents.ended_parent(thread).filter(|_| !self.is_chat) {
                let (thread_id, status) = (thread.to_string(), ended.status);
                self.child_ended(&parent, &ChildEnded { spawn: 0, thread_id, status, cost: ended.cost });
            }
        }
        // The continuation of a thread records the ends of the children.
        if ended.status != Status::Continued {
            self.parents.ended.insert(thread.clone());
        }
    }

    /// Prints the end of a child, with its error.
    pub(super) fn child_ended(&mut self, thread: &ThreadId, child: &ChildEnded) {
        let line = format!("child {} {}", child.thread_id, child.status.as_str());
        self.thread_line(thread, status_style(child.status), &line);
        let Some(error) = self.errors.remove(&child.thread_id) else { return };
        let message = truncate_line(message_without_code(&error), MAX_ERROR_CHARS);
        self.thread_line(thread, color_style(AnsiColor::Red), &format!("  {}: {message}", error.code));
        if self.missing_key.iter().any(|child_id| child_id.as_str() == child.thread_id) {
            let help = self.missing_key_help();
            self.thread_line(thread, Style::new(), &format!("  {help}"));
        }
    }

    /// Returns the help for a thread whose provider has no key. The help names the scripted model and, if there is one,
    /// a model whose key is set.
    pub(super) fn missing_key_help(&self) -> String {
        let usable = self.spaces.as_ref().and_then(|spaces| usable_models(spaces).ok()).unwrap_or_default();
        let scripted = "`--model scripted/fast`, which plays a script and needs no key";
        match usable.first() {
            Some(model) => format!("help: use `--model {model}`, whose key is set, or {scripted}"),
            None => format!("help: use {scripted}"),
        }
    }

    fn outputs(&mut self, result: &RunResult) {
        let Some(outputs) = &result.outputs else {
            let is_printed = self.printed_result.as_deref() == result.result.as_deref();
            if let Some(text) = result.result.as_deref().filter(|_| !is_printed) {
                self.out.text(text);
                self.out.end_line();
            }
            return;
        };
        for (name, value) in outputs {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            self.out.line(&format!("{name}: {text}"));
        }
    }

    /// Prints the result, one fact per line.
    pub(super) fn plain(&mut self, result: &RunResult) {
        let mut lines = vec![
            format!("thread\t{}", result.thread_id),
            format!("directive\t{}", result.directive),
            format!("status\t{}", result.status.as_str()),
        ];
        lines
            .extend(result.error.as_ref().map(|e| format!("error\t{}\t{}", e.code, truncate_line(&e.message, 10_000))));
        for (name, value) in result.outputs.iter().flatten() {
            lines.push(format!("output\t{name}\t{value}"));
        }
        if result.outputs.is_none() {
            let text = result.result.as_ref().map(|text| Value::from(text.as_str()).to_string());
            lines.extend(text.map(|text| format!("result\t{text}")));
        }
        if !result.unread.is_empty() {
            lines.push(format!("unread\t{}", printable(&result.unread.join("\t"))));
        }
        lines.push(format!("cost\t{}", self.cost(&result.cost)));
        lines.push(format!("plan\t{}", result.plan_id));
        for line in lines {
            self.out.line(&line);
        }
    }

    fn cost(&self, cost: &PrintedCost) -> String {
        let tokens = format_count(cost.input_tokens, "token");
        let spend = format_spend(printed_nanos(&cost.spend), self.unpriced || cost.unpriced);
        format!("{}, {tokens} in, {} out, {spend}", format_count(cost.turns, "turn"), cost.output_tokens)
    }
}

/// Returns the error code of a failed child, or its status if the child has no error code. `content` is the result of
/// the call that started the child. `None` for any other result.
pub(super) fn child_failure(content: &str) -> Option<String> {
    let result: RunResult = serde_json::from_str(content).ok().filter(|result: &RunResult| !result.success)?;
    Some(result.error.map_or_else(|| result.status.as_str().to_owned(), |error| error.code))
}

/// Returns the output line that states why a call failed: the last line of a failed program, else the first line. The
/// stderr of a program follows its stdout, and the tool itself adds a last line with the exit code.
pub(super) fn error_line(output: &str) -> &str {
    let mut lines = output.lines().filter(|line| !line.trim().is_empty());
    let first = lines.clone().next().unwrap_or_default();
    let is_program = lines.clone().next_back().is_some_and(|line| line.starts_with("[exit code "));
    if is_program || first.starts_with("Traceback (most recent call last)") {
        // The engine's own lines are in brackets.
        lines.rfind(|line| !line.starts_with('[')).unwrap_or(first)
    } else {
        first
    }
}

/// Returns a line with the first names in `unread`, the parts of replies that were not understood; `None` if `unread`
/// is empty.
fn unread_line(unread: &[String]) -> Option<String> {
    let (first, rest) = unread.split_at(unread.len().min(MAX_UNREAD_NAMES));
    let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
    let named = printable(&first.join(", "));
    (!first.is_empty()).then(|| format!("not understood in the replies: {named}{more}"))
}

/// Returns the nano-dollars of a printed amount. The largest amount is printed as a rounded number, which can be beyond
/// the range of amounts.
fn printed_nanos(spend: &Value) -> u64 {
    let nanos = if spend.is_null() { Ok(Nanos::default()) } else { Nanos::from_json(spend) };
    nanos.unwrap_or(Nanos::from_u64(u64::MAX)).to_u64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rye_engine::thread::Cost;

    #[test]
    fn largest_amount_is_not_printed_as_zero() {
        for spend in [0, 1, 12_000_000, i64::MAX.unsigned_abs()] {
            let printed = PrintedCost::from(Cost { spend, ..Cost::default() });
            assert_eq!(printed_nanos(&printed.spend), spend, "{printed:?}");
        }
        assert_eq!(printed_nanos(&PrintedCost::from(Cost { spend: u64::MAX, ..Cost::default() }).spend) >> 62, 1);
    }
}
