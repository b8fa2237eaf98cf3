//! Waits for a started thread and all threads it started; signals of the process are forwarded to every thread.

use rye_engine::engine::{Engine, ThreadHandle};
use rye_engine::event::ControlMessage;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::ending::{exit_of_run, stopping_limit};
use super::renderer::Renderer;
use crate::exit::Exit;
use crate::report::Printer;

/// Result of waiting for a run.
pub struct WatchOutcome {
    pub exit: Exit,
    /// Id of the thread with the limit that stopped it.
    pub limit: Option<(String, String)>,
}

impl From<Exit> for WatchOutcome {
    fn from(exit: Exit) -> Self {
        Self { exit, limit: None }
    }
}

pub async fn wait_until_end(engine: &Engine, handle: ThreadHandle, screen: Renderer, report: &Printer) -> WatchOutcome {
    let mut stops = match SignalForwarder::new(engine) {
        Ok(stops) => stops,
        Err(error) => {
            report.note(&format!("Ctrl-C will not stop the thread cleanly: {error}"));
            SignalForwarder { signals: None, engine, asked: 0 }
        }
    };
    let result = loop {
        tokio::select! {
            result = handle.join() => break result,
            stop = stops.next() => if stops.forward(stop, &screen) { return Exit::Cancelled.into() },
        }
    };
    // Wait for the threads that this one started.
    loop {
        tokio::select! {
            () = engine.wait_idle() => break,
            stop = stops.next() => if stops.forward(stop, &screen) { return Exit::Cancelled.into() },
        }
    }
    let (ended, so_far) = (result.clone(), exit_of_run(&result, None));
    let limit = stopping_limit(&result).map(|limit| (result.thread_id.clone(), limit.to_owned()));
    let exit = tokio::select! {
        shown = screen.end(result) => {
            let exit = exit_of_run(&ended, shown.asked);
            match shown.trouble {
                // A closed pipe is no failure.
                Some(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                    report.note(&format!("the result cannot be written: {error}"));
                    if exit == Exit::Fine { Exit::Failed } else { exit }
                }
                Some(_) | None => exit,
            }
        }
        // The thread has ended; only its output is incomplete.
        () = stops.next() => so_far,
    };
    WatchOutcome { exit, limit }
}

/// SIGINT and SIGTERM of this process.
struct SignalForwarder<'a> {
    signals: Option<(Signal, Signal)>,
    engine: &'a Engine,
    asked: u32,
}

impl<'a> SignalForwarder<'a> {
    fn new(engine: &'a Engine) -> std::io::Result<Self> {
        let signals = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { signals: Some(signals), engine, asked: 0 })
    }

    async fn next(&mut self) {
        match &mut self.signals {
            Some((interrupt, terminate)) => {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            }
            None => std::future::pending().await,
        }
    }

    /// Forwards a signal: the first one cancels after the current step, the second one kills. Returns true for a third
    /// one, which ends the process without waiting.
    fn forward(&mut self, (): (), screen: &Renderer) -> bool {
        self.asked += 1;
        match self.asked {
            1 => {
                screen.note("stopping after the current step; press Ctrl-C again to stop now");
                self.engine.broadcast(&ControlMessage::Cancel);
            }
            2 => {
                screen.note("stopping now");
                self.engine.broadcast(&ControlMessage::Kill);
            }
            _ => return true,
        }
        false
    }
}
