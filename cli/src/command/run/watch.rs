//! From a started thread to its end: everything that happens goes to the screen, Ctrl-C to the thread.

use rye_compiler::plan::Asked;
use rye_engine::driver::{Live, Sender};
use rye_engine::engine::Handle;
use rye_engine::event::{EventBody, Letter};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::ending::exit;
use super::screen::Screen;
use crate::exit::Exit;
use crate::report::Report;

pub async fn to_the_end(mut handle: Handle, screen: Screen, report: &Report) -> Exit {
    let mut stops = match Stops::new(handle.control()) {
        Ok(stops) => stops,
        Err(error) => {
            report.note(&format!("Ctrl-C will not stop the thread cleanly: {error}"));
            Stops { signals: None, control: handle.control(), asked: 0 }
        }
    };
    let mut asked = None;
    loop {
        tokio::select! {
            live = handle.live.next() => match live {
                Some(live) => {
                    asked = last_asked(&live).or(asked);
                    screen.live(live);
                }
                None => break,
            },
            stop = stops.next() => if stops.pass_on(stop, &screen) { return Exit::Cancelled },
        }
    }
    let result = loop {
        tokio::select! {
            result = handle.join() => break result,
            stop = stops.next() => if stops.pass_on(stop, &screen) { return Exit::Cancelled },
        }
    };
    let exit = exit(&result, asked);
    tokio::select! {
        () = screen.end(result) => exit,
        // The thread is over; only its reader is not.
        () = stops.next() => exit,
    }
}

fn last_asked(live: &Live) -> Option<Asked> {
    let Live::Event { event, .. } = live else { return None };
    if let EventBody::ApprovalAsked(asked) = &event.body { Some(asked.asked) } else { None }
}

/// Ctrl-C and what else asks a process to end.
struct Stops {
    signals: Option<(Signal, Signal)>,
    control: Sender,
    asked: u32,
}

impl Stops {
    fn new(control: Sender) -> std::io::Result<Self> {
        let signals = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { signals: Some(signals), control, asked: 0 })
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

    /// Once: stop after this step. Twice: stop now. A third time nothing is waited for any more, and true is answered.
    fn pass_on(&mut self, (): (), screen: &Screen) -> bool {
        self.asked += 1;
        match self.asked {
            1 => {
                screen.note("stopping after the step under way; Ctrl-C again stops now");
                self.control.send(Letter::Cancel);
            }
            2 => {
                screen.note("stopping now");
                self.control.send(Letter::Kill);
            }
            _ => return true,
        }
        false
    }
}
