//! A run for programs: events, one JSON object a line where they are asked for, and the result as the last line.

use std::io::Write;

use rye_engine::driver::Live;
use rye_engine::event::{Event, EventBody};
use rye_engine::thread::RunResult;
use schemars::JsonSchema;
use serde::Serialize;

use super::ending::RunOutput;
use super::screen::Show;

/// One line of `rye run --format json --events`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EventOutput<'e> {
    pub thread_id: &'e str,
    /// Its number in the thread's transcript.
    pub seq: u64,
    /// Milliseconds since 1970.
    pub ts: i64,
    /// `type` and the event's own fields.
    #[schemars(with = "std::collections::BTreeMap<String, serde_json::Value>")]
    pub event: &'e EventBody,
}

pub struct Json {
    events: bool,
    /// Nobody reads any more.
    gone: bool,
}

impl Json {
    pub fn new(events: bool) -> Self {
        Self { events, gone: false }
    }

    fn line(&mut self, value: &impl Serialize) {
        if self.gone {
            return;
        }
        let mut out = std::io::stdout().lock();
        let written = serde_json::to_writer(&mut out, value).map_err(std::io::Error::from);
        self.gone = written.and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()).is_err();
    }
}

impl Show for Json {
    fn live(&mut self, live: &Live) {
        match live {
            Live::Event { thread, event } if self.events => {
                let Event { seq, ts, body } = &**event;
                self.line(&EventOutput { thread_id: thread.as_str(), seq: *seq, ts: *ts, event: body });
            }
            Live::Event { .. } | Live::Delta { .. } => {}
        }
    }

    fn note(&mut self, text: &str) {
        writeln!(anstream::stderr().lock(), "{text}").ok();
    }

    fn end(&mut self, result: RunResult) {
        self.line(&RunOutput::from(result));
    }
}
