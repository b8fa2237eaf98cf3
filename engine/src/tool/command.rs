//! Tools of `kind: command`: a program with an argument template, run like any other process, never through a shell.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use rye_compiler::tool_spec;
use serde_json::{Value, json};

use super::process::{self, Exit, Finished, Program, Wall};
use super::{Invocation, Tool, ToolOutcome};
use crate::provider::BoxFuture;

/// A command tool, ready to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandTool {
    pub argv: Vec<String>,
    pub timeout: Duration,
}

impl Tool for CommandTool {
    fn run(&self, invocation: Invocation) -> BoxFuture<'_, ToolOutcome> {
        Box::pin(async move {
            let program = match self.program(invocation) {
                Ok(program) => program,
                Err(message) => return ToolOutcome::error(message),
            };
            match process::run(&program).await {
                Ok(finished) => outcome(&finished, program.timeout),
                Err(e) => ToolOutcome::error(format!("`{}` cannot be started: {e}", program.program.display())),
            }
        })
    }
}

impl CommandTool {
    fn program(&self, invocation: Invocation) -> Result<Program, String> {
        let Value::Object(parameters) = &invocation.parameters else {
            return Err("the parameters must be an object".into());
        };
        let argv = tool_spec::fill(&self.argv, parameters).map_err(|e| e.to_string())?;
        let Some((name, arguments)) = argv.split_first() else {
            return Err("this tool names no program".into());
        };
        let wall = Wall::new(&invocation.project_root, invocation.write, &invocation.net);
        Ok(Program {
            program: locate(name, &invocation.project_root),
            arguments: arguments.iter().map(OsString::from).collect(),
            folder: invocation.project_root,
            thread_id: invocation.thread_id,
            timeout: self.timeout.min(invocation.timeout),
            halt: invocation.halt,
            wall: Some(wall),
        })
    }
}

/// A program of the project is named by a path from its root; any other is looked up on the path.
fn locate(name: &str, root: &Path) -> OsString {
    if name.contains('/') { root.join(name).into_os_string() } else { name.into() }
}

/// A finished program as the model sees it: its output, then how it ended if that needs saying.
pub(super) fn outcome(finished: &Finished, timeout: Duration) -> ToolOutcome {
    let mut text = finished.output.text.clone();
    let (end, exit_code) = match finished.exit {
        Exit::Code(code) => (format!("[exit code {code}]"), json!(code)),
        Exit::Signal(signal) => (format!("[killed by signal {signal}]"), Value::Null),
        Exit::TimedOut => (format!("[stopped: not done after {}]", seconds(timeout)), Value::Null),
        Exit::Cancelled => ("[stopped: the thread was cancelled]".to_owned(), Value::Null),
    };
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&end);
    ToolOutcome {
        content: Value::String(text),
        is_error: finished.exit != Exit::Code(0),
        details: json!({
            "exit_code": exit_code,
            "timed_out": finished.exit == Exit::TimedOut,
            "output_bytes": finished.output.total,
            "dropped_bytes": finished.output.dropped,
        }),
    }
}

fn seconds(timeout: Duration) -> String {
    if timeout.subsec_millis() == 0 {
        format!("{} s", timeout.as_secs())
    } else {
        format!("{} ms", timeout.as_millis())
    }
}
