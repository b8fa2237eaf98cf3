//! Persistent tools: one process answers all calls of a thread, a JSON line for each. A line is
//! `{"id", "event", "facts"}`, its answer `{"id", "action", …}`, `{"id", "result": …}` or `{"id", "error": …}`. The
//! process runs in the sandbox of the tool and ends with its thread.

mod line_process;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rye_compiler::tool_spec::{FillValues, Idempotence, ScriptLanguage, fill_argv};
use serde_json::{Map, Value, json};

use super::command::{resolve_program, template_values};
use super::process::{LongLivedProgram, Sandbox, base_environment};
use super::registry::ToolFile;
use super::script::reports_failure;
use super::{Invocation, Tool, ToolOutcome, environment};
use crate::BoxFuture;
use line_process::{LineFailure, LineProcess};
pub use line_process::{PushHandler, PushedMessage};

const PYTHON_SERVER: &str = concat!(include_str!("script/load.py"), include_str!("persistent/serve.py"));
const JAVASCRIPT_SERVER: &str = concat!(include_str!("script/load.mjs"), include_str!("persistent/serve.mjs"));

/// Maximum number of persistent processes of a thread.
const MAX_PROCESSES: usize = 16;
/// Maximum number of restarts of a failed process within one prompt.
const MAX_RESTARTS: u64 = 1;

/// The program of a persistent tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PersistentProgram {
    /// A command that implements the line protocol of persistent tools.
    Command { argv: Vec<String> },
    /// A script whose function `execute` runs once for each call of the tool.
    Script { language: ScriptLanguage },
}

/// A persistent tool, ready to be called.
#[derive(Debug, Clone)]
pub struct PersistentTool {
    pub program: PersistentProgram,
    pub file: ToolFile,
    /// Maximum time for the process to answer a line.
    pub timeout: Duration,
    pub idempotent: Idempotence,
    /// Names of the environment variables that the tool file declares.
    pub environment: Vec<String>,
    /// The folders that the program can write but not read.
    pub write_only: Vec<String>,
    /// True if the process may submit messages to the chat.
    pub pushes: bool,
}

/// The persistent processes of one thread. Dropping this value ends the processes.
#[derive(Default)]
pub struct PersistentProcesses {
    slots: Mutex<BTreeMap<ProcessKey, Arc<tokio::sync::Mutex<ProcessSlot>>>>,
    /// The number of the current prompt.
    prompt: Arc<AtomicU64>,
    /// The handler of the messages that persistent processes submit to a chat; `None` if the thread accepts no messages
    /// from processes.
    pushes: Option<PushHandler>,
}

/// The key of a process: the tool, and the folders and hosts that its sandbox allows. A call therefore never reaches a
/// process with more access than the call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ProcessKey {
    tool: String,
    write: Vec<String>,
    net: Vec<String>,
}

/// The running process for a [`ProcessKey`], and the failures of earlier processes for this key.
#[derive(Default)]
struct ProcessSlot {
    running: Option<LineProcess>,
    /// The failure of the last process, which ended, missed a deadline, or wrote something other than an answer; `None`
    /// if it did not fail, or was replaced.
    failure: Option<String>,
    /// The prompt in which processes were last restarted, and the number of restarts in that prompt.
    restarts: (u64, u64),
    last_id: u64,
}

impl std::fmt::Debug for PersistentProcesses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PersistentProcesses").field("prompt", &self.prompt).finish_non_exhaustive()
    }
}

impl PersistentProcesses {
    /// Creates the set of the persistent processes of a thread. The handler `pushes` accepts the messages that these
    /// processes submit.
    pub(crate) fn with_pushes(pushes: PushHandler) -> Self {
        Self { pushes: Some(pushes), ..Self::default() }
    }

    /// Sets the number of the current prompt. The limits on restarts and on submitted messages apply to each prompt
    /// separately.
    pub(crate) fn set_prompt(&self, prompt: u64) {
        self.prompt.store(prompt, Ordering::Relaxed);
    }

    fn slot(&self, key: ProcessKey) -> Result<Arc<tokio::sync::Mutex<ProcessSlot>>, String> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.len() >= MAX_PROCESSES && !slots.contains_key(&key) {
            return Err(format!("a thread has at most {MAX_PROCESSES} persistent processes"));
        }
        Ok(Arc::clone(slots.entry(key).or_default()))
    }
}

impl ProcessSlot {
    /// Returns true if the process may start in the prompt with the number `prompt`. A start after a failure counts as
    /// a restart.
    ///
    /// # Errors
    /// Returns the last failure if the prompt has no restart left.
    fn start_in(&mut self, prompt: u64) -> Result<(), String> {
        let Some(failure) = self.failure.take() else { return Ok(()) };
        let used = if self.restarts.0 == prompt { self.restarts.1 } else { 0 };
        self.restarts = (prompt, used.saturating_add(1));
        if used < MAX_RESTARTS {
            return Ok(());
        }
        self.failure = Some(failure.clone());
        Err(failure)
    }
}

impl Tool for PersistentTool {
    fn run(&self, invocation: Invocation) -> BoxFuture<'_, ToolOutcome> {
        Box::pin(async move {
            let processes = Arc::clone(&invocation.persistent);
            let key = ProcessKey {
                tool: invocation.item_id.to_string(),
                write: invocation.write.clone(),
                net: invocation.net.clone(),
            };
            match processes.slot(key) {
                Ok(slot) => self.answer(&mut *slot.lock().await, invocation, &processes).await,
                Err(reason) => ToolOutcome::error(reason),
            }
        })
    }

    fn stops_itself(&self) -> bool {
        true
    }
}

impl PersistentTool {
    /// Sends the call as a line and returns the answer. Starts the process if there is none.
    async fn answer(
        &self,
        slot: &mut ProcessSlot,
        invocation: Invocation,
        processes: &PersistentProcesses,
    ) -> ToolOutcome {
        let prompt = processes.prompt.load(Ordering::Relaxed);
        let may_repeat = self.idempotent.covers(&invocation.parameters);
        let timeout = self.timeout.min(invocation.timeout);
        loop {
            let mut last = slot.running.take();
            if let Some(process) = last.as_mut().filter(|process| !process.is_running()) {
                let log = process.take_log();
                slot.failure = Some(LineFailure::Ended.describe(&invocation.item_id, timeout, &log));
            }
            let mut process = if let Some(process) = last.filter(LineProcess::is_running) {
                process
            } else {
                if let Err(failure) = slot.start_in(prompt) {
                    return ToolOutcome::error(format!(
                        "the persistent process of `{}` failed again, and starts only once more in a prompt or run; the last failure: {failure}",
                        invocation.item_id
                    ));
                }
                match self.start(&invocation, processes) {
                    Ok(process) => process,
                    Err(reason) => return ToolOutcome::error(reason),
                }
            };
            slot.last_id = slot.last_id.saturating_add(1);
            let line = json!({"id": slot.last_id, "event": invocation.event, "facts": invocation.parameters});
            // If this future is dropped, the process is dropped too. Otherwise the answer to this call could be taken
            // for the answer to the next call.
            let answer = process.exchange(slot.last_id, &line, timeout, invocation.halt.clone()).await;
            let log = process.take_log();
            let read = answer
                .and_then(|answer| parse_answer(answer, &log).map_err(|reason| LineFailure::Malformed { reason }));
            match read {
                Ok(outcome) => {
                    slot.running = Some(process);
                    return outcome;
                }
                Err(LineFailure::Cancelled) => return ToolOutcome::error("stopped: the thread was cancelled"),
                Err(failure) => {
                    let text = failure.describe(&invocation.item_id, timeout, &log);
                    slot.failure = Some(text.clone());
                    if may_repeat && failure == LineFailure::Ended {
                        continue;
                    }
                    return ToolOutcome::error(text);
                }
            }
        }
    }

    fn start(&self, invocation: &Invocation, processes: &PersistentProcesses) -> Result<LineProcess, String> {
        let variables = environment::declared_variables(&self.environment);
        let path = self.file.path.clone().unwrap_or_else(|| PathBuf::from(&*self.file.item_path));
        let (argv, first_line) = match &self.program {
            PersistentProgram::Command { argv } => {
                let runtime = template_values(&self.file, invocation);
                let none = Map::new();
                let given = FillValues { parameters: &none, runtime: &runtime, environment: &variables };
                let argv = fill_argv(argv, given).map_err(|error| error.to_string())?;
                (argv.into_iter().map(OsString::from).collect::<Vec<_>>(), None)
            }
            PersistentProgram::Script { language } => {
                let source = json!({
                    "source": &*self.file.text,
                    "path": path.to_string_lossy(),
                    "project_path": invocation.project_root.to_string_lossy(),
                    "typescript": *language == ScriptLanguage::TypeScript,
                });
                let argv: &[&str] = match language {
                    ScriptLanguage::Python => &["python3", "-X", "utf8", "-B", "-c", PYTHON_SERVER],
                    ScriptLanguage::JavaScript | ScriptLanguage::TypeScript => {
                        &["node", "--no-warnings", "--input-type=module", "-e", JAVASCRIPT_SERVER]
                    }
                    ScriptLanguage::Shell => return Err("a shell script cannot be persistent".to_owned()),
                };
                (argv.iter().map(OsString::from).collect(), Some(source))
            }
        };
        let mut argv = argv.into_iter();
        let program = argv.next().ok_or("this tool names no program")?;
        let program = match program.to_str() {
            Some(name) => resolve_program(name, &invocation.project_root),
            None => program,
        };
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
        let program = LongLivedProgram {
            program,
            arguments: argv.collect(),
            folder: invocation.project_root.clone(),
            sandbox: Some(
                Sandbox::new(&invocation.project_root, invocation.write.clone(), &invocation.net)
                    .with_write_only(&self.write_only),
            ),
            // The variables that every program gets are last, so that no declared variable replaces them.
            environment: variables.chain(base_environment(&invocation.thread_id)).collect(),
        };
        let pushes = match &processes.pushes {
            _ if !self.pushes => Err("it submitted a message, which needs `pushes: true`"),
            None => Err("it submitted a message, which only a chat accepts; a run accepts none"),
            Some(handler) => Ok((Arc::clone(handler), Arc::clone(&processes.prompt))),
        };
        LineProcess::start(&program, first_line.as_ref(), pushes)
            .map_err(|error| format!("`{}` cannot be started: {error}", program.program.display()))
    }
}

/// Converts a reply line to the outcome of the call: its `result`, its `error`, or the line without `id` if it has an
/// `action`. `log` is the text that the process printed during the call. An error contains the log in its message, any
/// other outcome in its details.
///
/// # Errors
/// Returns the reason why the line is not an answer. A line is not an answer if it has none of these keys or several of
/// them, or if it has further keys beside `result` or `error`.
fn parse_answer(mut answer: Map<String, Value>, log: &str) -> Result<ToolOutcome, String> {
    answer.shift_remove("id");
    let has_action = answer.contains_key("action");
    // Another key beside an action is a field of the action.
    let key = ["result", "error"].into_iter().find(|key| !has_action && answer.contains_key(*key));
    let other = answer.keys().find(|other| if has_action { *other == "result" } else { key != Some(other.as_str()) });
    if let Some(other) = other {
        let beside = if has_action { "action" } else { key.unwrap_or_default() };
        return Err(if beside.is_empty() {
            format!("its answer has `{}`, but none of `result`, `error` and `action`", other.escape_debug())
        } else {
            format!("its answer has `{}` beside `{beside}`", other.escape_debug())
        });
    }
    let content = match key {
        Some("error") => {
            let error = answer.shift_remove("error").unwrap_or_default();
            let error = error.as_str().map_or_else(|| error.to_string(), str::to_owned);
            // The trace of an exception ends with the error.
            let printed = log.strip_suffix(&error).unwrap_or(log).trim_end();
            return Ok(ToolOutcome::error(if printed.is_empty() { error } else { format!("{printed}\n{error}") }));
        }
        Some(key) => answer.shift_remove(key).unwrap_or_default(),
        None if has_action => Value::Object(answer),
        None => return Err("its answer has none of `result`, `error` and `action`".to_owned()),
    };
    let details = if log.is_empty() { Value::Null } else { json!({ "log": log }) };
    Ok(ToolOutcome { is_error: reports_failure(&content), details, ..ToolOutcome::ok(content) })
}

#[cfg(test)]
mod tests;
