//! Waits for a started thread and all of its descendants. Forwards each stop signal that this process receives to all
//! of these threads.

use std::time::Duration;

use rye_engine::engine::{Engine, ThreadHandle};
use rye_engine::event::ControlMessage;
use rye_engine::session_tree::session_rows;
use rye_engine::thread::{PrintedCost, RunResult, Status};
use rye_engine::thread_id::ThreadId;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::ending::{
    RunEnd, exit_of_run, exit_of_waiting, open_request, requested_limit, stopping_limit, suspended_descendants,
};
use super::renderer::Renderer;
use crate::command::chat::leaving::{BackgroundChoice, continue_in_background};
use crate::command::chat::session::{ChatInput, exit_of_session};
use crate::exit::Exit;
use crate::report::Printer;

/// The result of a run after its end.
pub struct WatchOutcome {
    pub exit: Exit,
    /// The id of a thread that a limit stopped, and the name of the limit; `None` if no limit stopped a thread.
    pub limit: Option<(String, String)>,
    /// True if the run ended in a thread other than its first thread, because of a handoff.
    pub is_handed_over: bool,
}

impl From<Exit> for WatchOutcome {
    fn from(exit: Exit) -> Self {
        Self { exit, limit: None, is_handed_over: false }
    }
}

/// Waits for a thread and all of its descendants, and returns the result of the run. Does not wait for the descendants
/// if the user has chosen `background`.
///
/// The caller installs `signals` before the thread starts, so that no signal is lost. `detached` is true if the process
/// has no terminal. `input` is the input of a chat.
pub async fn wait_until_end(
    engine: &Engine,
    handle: ThreadHandle,
    screen: Renderer,
    signals: Option<StopSignals>,
    (detached, mut input, background): (bool, Option<ChatInput>, BackgroundChoice),
    report: &Printer,
) -> WatchOutcome {
    let mut stops = SignalForwarder { signals, engine, detached, signal_count: 0, has_closed: false };
    let result = loop {
        tokio::select! {
            result = handle.join() => break result,
            // Waits until the note is printed. Otherwise, the events of the next line could precede the note.
            note = next_line(&mut input) => if let Some(note) = note { screen.note_and_wait(&note).await },
            stop = stops.next() => match &mut input {
                Some(input) if stop != StopSignal::Interrupt => if !input.leave() {
                    return Exit::Cancelled.into();
                },
                Some(input) => {
                    screen.stop(input.interruption_note());
                    if !input.interrupt() {
                        return Exit::Cancelled.into();
                    }
                }
                None => if stops.forward(&screen) { return Exit::Cancelled.into() },
            },
        }
    };
    if let Some(input) = input.as_ref().filter(|_| result.status.has_ended() && !result.status.is_parked()) {
        for note in input.unsent_notes().await {
            screen.note_and_wait(&note).await;
        }
    }
    // Waits for the threads that the ended thread started.
    while !background.is_chosen() {
        tokio::select! {
            () = engine.wait_idle() => break,
            _ = stops.next() => if stops.forward(&screen) { return Exit::Cancelled.into() },
        }
    }
    let request = open_request(&engine.threads(), &result);
    let exit = if input.is_some() && result.status == Status::Idle {
        exit_of_last_prompt(engine, &result)
    } else {
        exit_of_run(&result, request.as_ref().map(|request| request.origin))
    };
    // A closed session succeeds if it ran no prompt, or if its last prompt succeeded.
    let success = if result.status == Status::Idle { exit == Exit::Success } else { result.success };
    let cost = match &input {
        Some(_) => result.cost.clone(),
        None => cost_of_run(engine, &result).unwrap_or_else(|error| {
            report.note(&format!("the cost of the run cannot be read: {error}"));
            result.cost.clone()
        }),
    };
    let result = RunResult { success, cost, ..result };
    let is_handed_over = result.thread_id != handle.thread_id.as_str();
    let limit = stopping_limit(&result).map(|limit| (result.thread_id.clone(), limit.to_owned()));
    let session_cost = input.as_ref().and_then(|_| {
        let read = cost_of_session(engine, &result);
        read.inspect_err(|error| report.note(&format!("the cost of the session cannot be read: {error}"))).ok()
    });
    let waiting = if input.is_some() { Vec::new() } else { suspended_descendants(&engine.threads(), &result) };
    let exit = exit_of_waiting(exit, &waiting);
    let reached_limit = request.as_ref().and_then(requested_limit).map(str::to_owned);
    let has_background = background.is_chosen();
    let end = RunEnd { result, session_cost, reached_limit, waiting, has_background };
    let is_chat = input.is_some();
    let print_end = async {
        if let Some(input) = &mut input {
            input.wait_printed().await;
        }
        screen.end(end).await
    };
    let exit = tokio::select! {
        shown = print_end => {
            match shown.write_error {
                // A closed pipe is no failure.
                Some(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                    report.note(&format!("the result cannot be written: {error}"));
                    if exit == Exit::Success { Exit::Failed } else { exit }
                }
                Some(_) | None => exit,
            }
        }
        // A client that reads nothing does not keep a chat open that a signal has closed.
        () = tokio::time::sleep(DRAIN_TIMEOUT), if is_chat && stops.has_closed => Exit::Cancelled,
        // The thread has ended; only its output is incomplete.
        _ = stops.next() => if exit == Exit::Success { Exit::Cancelled } else { exit },
    };
    if background.is_chosen() {
        finish_in_background(engine, stops, report).await;
    }
    WatchOutcome { exit, limit, is_handed_over }
}

/// Returns the terminal to the shell, and waits in the background for the remaining threads.
async fn finish_in_background(engine: &Engine, mut stops: SignalForwarder<'_>, report: &Printer) {
    let process = std::process::id();
    report.note(&format!("the children continue in process {process}; `rye threads list --active` shows them"));
    // The call blocks this OS thread while the process is stopped. No work is delayed, because a stopped process runs
    // no OS thread.
    if let Err(error) = continue_in_background() {
        report.note(&format!("the process stays in the foreground: {error}"));
    }
    stops.detached = true;
    loop {
        tokio::select! {
            () = engine.wait_idle() => return,
            _ = stops.next() => {
                engine.broadcast(&ControlMessage::Cancel);
            }
        }
    }
}

/// Handles the next line of a chat and returns a note for the user, if there is one. Never returns in a run, which has
/// no input.
async fn next_line(input: &mut Option<ChatInput>) -> Option<String> {
    match input {
        Some(input) => input.next().await,
        None => std::future::pending().await,
    }
}

/// Returns the exit code of the last prompt of a closed session.
fn exit_of_last_prompt(engine: &Engine, result: &RunResult) -> Exit {
    let events = ThreadId::parse(&result.thread_id).ok().and_then(|id| engine.threads().transcript(&id).ok());
    events.map_or(Exit::Failed, |events| exit_of_session(&events))
}

/// Returns the cost of a run: of its threads and all of their descendants. Without a thread, returns the cost of the
/// result.
fn cost_of_run(engine: &Engine, result: &RunResult) -> Result<PrintedCost, String> {
    if result.thread_id.is_empty() {
        return Ok(result.cost.clone());
    }
    let thread = ThreadId::parse(&result.thread_id).map_err(|invalid| invalid.reason)?;
    Ok(engine.threads().run_cost(&thread).map_err(|error| error.to_string())?.into())
}

/// Returns the cost of all threads of a session and of their descendants.
fn cost_of_session(engine: &Engine, result: &RunResult) -> Result<PrintedCost, String> {
    let thread = ThreadId::parse(&result.thread_id).map_err(|invalid| invalid.reason)?;
    let rows = session_rows(&engine.threads(), &thread).map_err(|error| error.to_string())?;
    Ok(engine.threads().chain_cost(&rows).map_err(|error| error.to_string())?.into())
}

/// Signals that stop the threads of this process.
pub struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    /// The stream of SIGHUP; `None` if the process was started with SIGHUP ignored, as by `nohup`.
    hangup: Option<Signal>,
}

/// A signal that stops the threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGINT.
    Interrupt,
    /// SIGTERM: cancels a run as SIGINT does, and closes a chat.
    Terminate,
    /// SIGHUP: the terminal was closed. Both the kernel and the shell may send it.
    Hangup,
}

impl StopSignals {
    /// Installs the signal handlers, which stay until the process ends. If the handlers cannot be installed, prints a
    /// warning and returns `None`. A signal then ends the process at once.
    pub fn install(report: &Printer) -> Option<Self> {
        let installed = Self::handlers();
        installed.map_err(|error| report.note(&format!("Ctrl+C will not stop the thread cleanly: {error}"))).ok()
    }

    fn handlers() -> std::io::Result<Self> {
        let hangup = if is_hangup_ignored() { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())?, hangup })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> StopSignal {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => StopSignal::Interrupt,
            _ = self.terminate.recv() => StopSignal::Terminate,
            _ = hangup => StopSignal::Hangup,
        }
    }
}

/// Returns true if the process was started with SIGHUP ignored, as by `nohup`.
fn is_hangup_ignored() -> bool {
    const HANGUP: u64 = 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & HANGUP != 0)
}

/// Forwards the stop signals of this process to its threads.
struct SignalForwarder<'a> {
    signals: Option<StopSignals>,
    engine: &'a Engine,
    /// True for a background process: the threads continue if the terminal is closed.
    detached: bool,
    signal_count: u32,
    /// True after a signal that closes a chat: SIGTERM or SIGHUP.
    has_closed: bool,
}

/// Time after a signal that closes a chat in which a client can read the last lines.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

impl SignalForwarder<'_> {
    /// Waits for the next signal. A hangup after the first signal is ignored. Both the kernel and the shell may send a
    /// hangup when a terminal closes, and the second hangup must not kill the threads. A background process ignores
    /// every hangup.
    async fn next(&mut self) -> StopSignal {
        match &mut self.signals {
            Some(signals) => loop {
                match signals.next().await {
                    StopSignal::Hangup if self.detached || self.signal_count > 0 => {}
                    stop @ (StopSignal::Hangup | StopSignal::Interrupt | StopSignal::Terminate) => {
                        self.has_closed |= stop != StopSignal::Interrupt;
                        return stop;
                    }
                }
            },
            None => std::future::pending().await,
        }
    }

    /// Forwards a signal to the threads. The first signal cancels the threads after their current step, and the second
    /// signal kills them. Returns true for a further signal. The process then ends without waiting.
    fn forward(&mut self, screen: &Renderer) -> bool {
        self.signal_count += 1;
        match self.signal_count {
            1 => {
                screen.stop("waiting for the call to end; Ctrl+C again to stop now");
                self.engine.broadcast(&ControlMessage::Cancel);
            }
            2 => {
                screen.stop("stopping now");
                self.engine.broadcast(&ControlMessage::Kill);
            }
            _ => return true,
        }
        false
    }
}
