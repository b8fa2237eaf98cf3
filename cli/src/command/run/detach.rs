//! `--detach`: runs the same command again in a background process. When the background process has recorded the thread
//! and acquired its owner lock, it prints a [`DetachOutput`] as its first line. The foreground process then exits.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use rye_engine::thread_id::ThreadId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::CommandError;
use crate::exit::Exit;
use crate::options::Format;
use crate::report::Printer;

/// Hidden flag of the background process.
pub const DETACHED_FLAG: &str = "--detached";

/// Output of `rye run --detach --format json`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct DetachOutput {
    pub thread_id: String,
    pub pid: u32,
    /// The status of the thread, always `running`.
    pub status: String,
}

/// Returns the line that the background process prints first on stdout: a [`DetachOutput`] as JSON.
pub fn format_announcement(thread: &ThreadId) -> String {
    let (thread_id, pid) = (thread.to_string(), std::process::id());
    let output = DetachOutput { thread_id, pid, status: "running".into() };
    serde_json::to_string(&output).unwrap_or_default()
}

/// Starts the same command in a background process, and waits until the thread of the background process runs. If
/// `reads_stdin` is true, the background process inherits stdin.
pub fn start_detached(reads_stdin: bool, report: &Printer) -> Result<Exit, CommandError> {
    let arguments =
        std::env::args_os().skip(1).map(|arg| if arg == "--detach" { OsString::from(DETACHED_FLAG) } else { arg });
    let stdin = if reads_stdin { Stdio::inherit() } else { Stdio::null() };
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    let fail = |error| CommandError::failed(format!("the background process cannot be started: {error}"));
    let mut child = command.spawn().map_err(fail)?;
    let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(CommandError::failed("the output of the background process cannot be read"));
    };
    // Forwards errors that occur before the thread runs.
    let relay = std::thread::spawn(move || relay(err));
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line)?;
    let Ok(detached) = serde_json::from_str::<DetachOutput>(&line) else {
        if report.format() == Format::Json && !line.is_empty() {
            report.line(line.trim_end())?;
        }
        let status = child.wait()?;
        // Wait until the rest of the stderr output of the process is forwarded.
        relay.join().ok();
        return Ok(status.code().map_or(Exit::Failed, Exit::from_code));
    };
    match report.format() {
        Format::Json => report.json(&detached)?,
        Format::Human | Format::Plain => {
            report.line(&detached.thread_id)?;
            report.note(&format!(
                "running in the background as process {}; follow it with `rye threads tail -f {}`",
                detached.pid, detached.thread_id
            ));
        }
    }
    Ok(Exit::Success)
}

fn relay(mut from: impl Read) {
    let mut chunk = [0_u8; 4096];
    while let Ok(n @ 1..) = from.read(&mut chunk) {
        let written = std::io::stderr().lock().write_all(chunk.get(..n).unwrap_or_default());
        if written.is_err() {
            return;
        }
    }
}
