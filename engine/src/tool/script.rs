//! Tools that are scripts: Python, JavaScript, TypeScript, shell. The script runs with the bytes that were read for the
//! plan. These bytes are passed on standard input together with the parameters, and the file is not opened again. The
//! result is the value that `execute` returns, the value that `main` returns or prints, or the output of a shell
//! script. Standard error, and the text that `execute` prints, form the log.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use rye_compiler::tool_spec::{ScriptEntry, ScriptLanguage};
use serde_json::{Value, json};

use super::command::blocked::explain;
use super::command::{describe_exit, exit_details};
use super::process::{self, Program, ProgramExit, ProgramResult, Sandbox, StderrMode};
use super::registry::ToolFile;
use super::{Invocation, Tool, ToolOutcome, environment};
use crate::BoxFuture;
use crate::json_faults::find_fault;

const PYTHON_RUNNER: &str = concat!(include_str!("script/load.py"), include_str!("script/run.py"));
const JAVASCRIPT_RUNNER: &str = concat!(include_str!("script/load.mjs"), include_str!("script/run.mjs"));
/// A shell program that reads the source of a script up to a zero byte, and runs the source. The rest of the input
/// holds the parameters, which the script reads.
const SHELL_RUNNER: &str = "IFS= read -r -d '' RYE_SOURCE; eval \"$RYE_SOURCE\"";
/// Maximum size in bytes of a parameter that a shell script also gets as a variable. Longer parameters are only in the
/// input of the script.
const MAX_VARIABLE_BYTES: usize = 64 * 1024;
/// Maximum bytes of a script's log, or of an answer that is not JSON, in the result of a call. The end of the text is
/// kept.
const MAX_LOG_BYTES: usize = 8 * 1024;

/// A script, ready to run.
#[derive(Debug, Clone)]
pub struct ScriptTool {
    pub language: ScriptLanguage,
    pub entry: ScriptEntry,
    pub file: ToolFile,
    pub timeout: Duration,
    /// Names of the environment variables that the tool file declares.
    pub environment: Vec<String>,
    /// The folders that the program can write but not read.
    pub write_only: Vec<String>,
}

impl Tool for ScriptTool {
    fn run(&self, invocation: Invocation) -> BoxFuture<'_, ToolOutcome> {
        Box::pin(async move {
            let program = match self.program(&invocation) {
                Ok(program) => program,
                Err(message) => return ToolOutcome::error(message),
            };
            match process::run(&program).await {
                Ok(finished) => self.outcome(&finished, &program),
                Err(e) => ToolOutcome::error(format!("`{}` cannot be started: {e}", program.program.display())),
            }
        })
    }

    fn stops_itself(&self) -> bool {
        true
    }
}

impl ScriptTool {
    fn program(&self, invocation: &Invocation) -> Result<Program, String> {
        let path = self.file.path.clone().unwrap_or_else(|| PathBuf::from(&*self.file.item_path));
        let mut variables: Vec<(OsString, OsString)> =
            environment::declared_variables(&self.environment).into_iter().map(|(n, v)| (n.into(), v.into())).collect();
        let entry = match self.entry {
            ScriptEntry::Execute => "execute",
            ScriptEntry::Main | ScriptEntry::Whole => "main",
        };
        let bundle = |typescript: bool| {
            let given = json!({
                "source": &*self.file.text,
                "path": path.to_string_lossy(),
                "params": invocation.parameters,
                "project_path": invocation.project_root.to_string_lossy(),
                "entry": entry,
                "typescript": typescript,
            });
            given.to_string().into_bytes()
        };
        let (program, arguments, input): (&str, Vec<OsString>, Vec<u8>) = match self.language {
            ScriptLanguage::Python => {
                let arguments = ["-X", "utf8", "-B", "-c", PYTHON_RUNNER].map(OsString::from).to_vec();
                ("python3", arguments, bundle(false))
            }
            ScriptLanguage::JavaScript | ScriptLanguage::TypeScript => {
                let arguments =
                    ["--no-warnings", "--input-type=module", "-e", JAVASCRIPT_RUNNER].map(OsString::from).to_vec();
                ("node", arguments, bundle(self.language == ScriptLanguage::TypeScript))
            }
            ScriptLanguage::Shell => {
                if self.file.text.contains('\0') {
                    return Err("the script contains a zero byte".into());
                }
                variables.extend(shell_variables(&invocation.parameters));
                let mut input = self.file.text.as_bytes().to_vec();
                input.push(0);
                input.extend(invocation.parameters.to_string().bytes());
                ("bash", vec!["-c".into(), SHELL_RUNNER.into(), path.into_os_string()], input)
            }
        };
        Ok(Program {
            program: program.into(),
            arguments,
            folder: invocation.project_root.clone(),
            thread_id: invocation.thread_id.clone(),
            timeout: self.timeout.min(invocation.timeout),
            halt: invocation.halt.clone(),
            sandbox: Some(
                Sandbox::new(&invocation.project_root, invocation.write.clone(), &invocation.net)
                    .with_write_only(&self.write_only),
            ),
            input,
            environment: variables,
            streams: StderrMode::Apart,
            written: invocation.written.clone(),
        })
    }

    fn outcome(&self, finished: &ProgramResult, program: &Program) -> ToolOutcome {
        let mut details = exit_details(finished);
        let log = last_bytes(finished.errors.text.trim_end(), MAX_LOG_BYTES);
        if finished.exit != ProgramExit::Code(0) {
            let hint = program
                .sandbox
                .as_ref()
                .and_then(|sandbox| explain(&finished.errors.text, finished.exit, sandbox))
                .unwrap_or_default();
            let parts = [finished.output.text.trim_end(), log, &describe_exit(finished, program.timeout), &hint];
            let text: Vec<&str> = parts.into_iter().filter(|p| !p.is_empty()).collect();
            return ToolOutcome { details, ..ToolOutcome::error(text.join("\n")) };
        }
        if finished.output.dropped > 0 && self.entry == ScriptEntry::Execute {
            let total = finished.output.total;
            return ToolOutcome::error(format!("the tool returned {total} bytes, more than the maximum; return less"));
        }
        if !log.is_empty()
            && let Some(map) = details.as_object_mut()
        {
            map.insert("log".into(), json!(log));
        }
        let answer = finished.output.text.trim();
        let content = match serde_json::from_str::<Value>(answer) {
            // The parsed value would hide a fault of the text, so the text is the result.
            Ok(_) if find_fault(answer).is_some() => Value::String(answer.to_owned()),
            Ok(value) => value,
            Err(_) if self.entry == ScriptEntry::Execute => {
                return ToolOutcome::error(format!(
                    "the tool did not return JSON: {}",
                    last_bytes(answer, MAX_LOG_BYTES)
                ));
            }
            Err(_) if answer.is_empty() => Value::String(log.to_owned()),
            Err(_) => Value::String(finished.output.text.clone()),
        };
        ToolOutcome { is_error: reports_failure(&content), content, details, was_refused: false }
    }
}

/// Returns true for an object with `"success": false` or `"status": "error"`, by which tools report a failure.
pub(super) fn reports_failure(content: &Value) -> bool {
    content.get("success") == Some(&Value::Bool(false))
        || content.get("status").and_then(Value::as_str) == Some("error")
}

/// Returns a variable `RYE_PARAM_name` for every parameter whose name is valid in a variable. Omits parameters that are
/// null, contain a zero character or are longer than [`MAX_VARIABLE_BYTES`].
fn shell_variables(parameters: &Value) -> Vec<(OsString, OsString)> {
    let mut variables = BTreeMap::new();
    for (name, value) in parameters.as_object().into_iter().flatten() {
        let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let text = if let Value::String(s) = value { s.clone() } else { value.to_string() };
        if is_name && !value.is_null() && text.len() <= MAX_VARIABLE_BYTES && !text.contains('\0') {
            variables.insert(format!("RYE_PARAM_{name}"), text);
        }
    }
    variables.into_iter().map(|(n, v)| (n.into(), v.into())).collect()
}

fn last_bytes(text: &str, most: usize) -> &str {
    let start = (text.len().saturating_sub(most)..=text.len()).find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    text.get(start..).unwrap_or_default()
}

#[cfg(test)]
mod tests;
