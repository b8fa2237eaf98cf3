//! Tools of `kind: command`: a program with an argument template, run like any other process, never through a shell.

pub(super) mod blocked;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use rye_compiler::tool_spec::{self, FillValues};
use serde_json::{Value, json};

use super::process::{self, Program, ProgramExit, ProgramResult, Sandbox, StderrMode};
use super::registry::ToolFile;
use super::{Invocation, Tool, ToolOutcome, environment};
use crate::BoxFuture;

/// A command tool, ready to run.
#[derive(Debug, Clone)]
pub struct CommandTool {
    pub argv: Vec<String>,
    pub file: ToolFile,
    pub timeout: Duration,
    /// Names of the environment variables that the tool file declares.
    pub environment: Vec<String>,
    /// The folders that the program can write but not read.
    pub write_only: Vec<String>,
}

impl Tool for CommandTool {
    fn run(&self, invocation: Invocation) -> BoxFuture<'_, ToolOutcome> {
        Box::pin(async move {
            let program = match self.program(invocation) {
                Ok(program) => program,
                Err(message) => return ToolOutcome::error(message),
            };
            match process::run(&program).await {
                Ok(finished) => program_outcome(&finished, &program),
                Err(e) => ToolOutcome::error(format!("`{}` cannot be started: {e}", program.program.display())),
            }
        })
    }

    fn stops_itself(&self) -> bool {
        true
    }
}

impl CommandTool {
    fn program(&self, invocation: Invocation) -> Result<Program, String> {
        let Value::Object(parameters) = &invocation.parameters else {
            return Err("the parameters must be an object".into());
        };
        let variables = environment::declared_variables(&self.environment);
        let runtime = template_values(&self.file, &invocation);
        let given = FillValues { parameters, runtime: &runtime, environment: &variables };
        let argv = tool_spec::fill_argv(&self.argv, given).map_err(|e| e.to_string())?;
        let Some((name, arguments)) = argv.split_first() else {
            return Err("this tool names no program".into());
        };
        let sandbox =
            Sandbox::new(&invocation.project_root, invocation.write, &invocation.net).with_write_only(&self.write_only);
        Ok(Program {
            program: resolve_program(name, &invocation.project_root),
            arguments: arguments.iter().map(OsString::from).collect(),
            folder: invocation.project_root,
            thread_id: invocation.thread_id,
            timeout: self.timeout.min(invocation.timeout),
            halt: invocation.halt,
            sandbox: Some(sandbox),
            input: Vec::new(),
            environment: variables.into_iter().map(|(n, v)| (n.into(), v.into())).collect(),
            streams: StderrMode::Together,
            written: invocation.written,
        })
    }
}

/// Returns the values of the placeholders that every argument template can use.
pub(super) fn template_values(file: &ToolFile, invocation: &Invocation) -> BTreeMap<&'static str, String> {
    let mut values = BTreeMap::from([
        ("project_path", invocation.project_root.to_string_lossy().into_owned()),
        ("params_json", invocation.parameters.to_string()),
    ]);
    if let Some(path) = &file.path {
        values.insert("tool_path", path.to_string_lossy().into_owned());
    }
    values
}

/// Resolves a program: a path with a slash is relative to the project, a bare name is looked up in `PATH`.
pub(super) fn resolve_program(name: &str, root: &Path) -> OsString {
    if name.contains('/') { root.join(name).into_os_string() } else { name.into() }
}

/// Converts a finished program to a result: its output, its exit status and, if the sandbox explains a failure, a hint.
pub(super) fn program_outcome(finished: &ProgramResult, program: &Program) -> ToolOutcome {
    let timeout = program.timeout;
    let mut text = finished.output.text.clone();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&describe_exit(finished, timeout));
    if finished.exit != ProgramExit::Code(0)
        && let Some(hint) =
            program.sandbox.as_ref().and_then(|sandbox| blocked::explain(&finished.output.text, finished.exit, sandbox))
    {
        text.push('\n');
        text.push_str(&hint);
    }
    ToolOutcome {
        content: Value::String(text),
        is_error: finished.exit != ProgramExit::Code(0),
        details: exit_details(finished),
        was_refused: false,
    }
}

/// Describes the exit, for example `[exit code 0]`.
pub(super) fn describe_exit(finished: &ProgramResult, timeout: Duration) -> String {
    match finished.exit {
        ProgramExit::Code(code) => format!("[exit code {code}]"),
        ProgramExit::Signal(signal) => format!("[killed by signal {signal}]"),
        ProgramExit::TimedOut => format!("[stopped: timed out after {}]", seconds(timeout)),
        ProgramExit::Cancelled => "[stopped: the thread was cancelled]".to_owned(),
    }
}

pub(super) fn exit_details(finished: &ProgramResult) -> Value {
    let exit_code = match finished.exit {
        ProgramExit::Code(code) => json!(code),
        ProgramExit::Signal(_) | ProgramExit::TimedOut | ProgramExit::Cancelled => Value::Null,
    };
    json!({
        "exit_code": exit_code,
        "timed_out": finished.exit == ProgramExit::TimedOut,
        "output_bytes": finished.output.total,
        "dropped_bytes": finished.output.dropped,
    })
}

fn seconds(timeout: Duration) -> String {
    if timeout.subsec_millis() == 0 {
        format!("{} s", timeout.as_secs())
    } else {
        format!("{} ms", timeout.as_millis())
    }
}
