//! `--detach`: the same command once more, in a session of its own. Its first line on stdout says which thread it runs,
//! once that thread is recorded and this process's lock is held; then nobody needs to listen any more.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use rye_engine::thread_id::ThreadId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::args::Format;
use crate::exit::Exit;
use crate::report::Report;

/// The hidden flag of the process that stays.
pub const STAYS: &str = "--detached";

/// `rye run --detach --format json`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct DetachOutput {
    pub thread_id: String,
    pub pid: u32,
    /// `running`.
    pub status: String,
}

/// What the process that stays says first.
pub fn announcement(thread: &ThreadId) -> String {
    let (thread_id, pid) = (thread.to_string(), std::process::id());
    let output = DetachOutput { thread_id, pid, status: "running".into() };
    serde_json::to_string(&output).unwrap_or_default()
}

/// Starts the same command again without a terminal, and waits until its thread runs. `reads_stdin`: it gets ours.
pub fn leave(reads_stdin: bool, report: &Report) -> Result<Exit, Failure> {
    let arguments = std::env::args_os().skip(1).map(|arg| if arg == "--detach" { OsString::from(STAYS) } else { arg });
    let stdin = if reads_stdin { Stdio::inherit() } else { Stdio::null() };
    let mut command = Command::new(std::env::current_exe()?);
    let mut child = command.args(arguments).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(Failure::failed("the process that runs on cannot be listened to"));
    };
    // What it complains about before its thread runs is ours to show.
    let relay = std::thread::spawn(move || relay(err));
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line)?;
    let Ok(said) = serde_json::from_str::<DetachOutput>(&line) else {
        if report.format() == Format::Json && !line.is_empty() {
            report.line(line.trim_end())?;
        }
        let status = child.wait()?;
        // Its last words are through when it is gone.
        relay.join().ok();
        return Ok(status.code().map_or(Exit::Failed, Exit::from_code));
    };
    match report.format() {
        Format::Json => report.json(&said)?,
        Format::Human | Format::Plain => {
            report.line(&said.thread_id)?;
            report.note(&format!("runs on as process {}; `rye threads tail -f {}` shows it", said.pid, said.thread_id));
        }
    }
    Ok(Exit::Fine)
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
