//! JSON Lines output of a run: with `--events` a line for each event, then the result as the last line.

use std::io::{self, Write};

use rye_engine::driver::LivePiece;
use rye_engine::event::Event;
use rye_engine::live::StreamEvent;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::ending::{RunEnd, RunOutput};
use super::renderer::Render;
use crate::present::dollars::event_in_dollars;
use crate::report::{escape_json_controls, mask_controls};

/// A line of `rye run --format json --events` and `rye threads tail --format json`: an event of the transcript.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EventOutput<'e> {
    pub thread_id: &'e str,
    /// Sequence number of the event in the transcript of the thread.
    pub seq: u64,
    /// Time of the event, in milliseconds since 1970.
    pub ts: i64,
    /// The event: `type` and its fields, with money in dollars.
    #[schemars(with = "std::collections::BTreeMap<String, serde_json::Value>")]
    pub event: Value,
}

impl<'e> EventOutput<'e> {
    pub fn new(thread_id: &'e str, event: &'e Event) -> Self {
        let Event { seq, ts, body } = event;
        Self { thread_id, seq: *seq, ts: *ts, event: event_in_dollars(body) }
    }
}

/// A line of `rye run --format json --events` and `rye threads tail -f --format json` between the events: a piece of a
/// streaming reply, which is not in the transcript. A slow reader misses some pieces.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DeltaOutput<'e> {
    pub thread_id: &'e str,
    pub event: DeltaEvent,
}

impl<'e> DeltaOutput<'e> {
    pub fn new(thread_id: &'e str, piece: LivePiece) -> Self {
        Self { thread_id, event: DeltaEvent { r#type: "token_delta", piece } }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct DeltaEvent {
    /// Always `token_delta`.
    pub r#type: &'static str,
    /// `kind` (`text`, `thinking`, `tool_call` or `tool_input`) and its fields.
    #[serde(flatten)]
    #[schemars(with = "std::collections::BTreeMap<String, serde_json::Value>")]
    pub piece: LivePiece,
}

pub struct JsonRenderer {
    events: bool,
    /// The first write error, after which no more output is written.
    write_error: Option<io::Error>,
}

impl JsonRenderer {
    pub fn new(events: bool) -> Self {
        Self { events, write_error: None }
    }

    fn line(&mut self, value: &impl Serialize) {
        if self.write_error.is_some() {
            return;
        }
        let mut out = std::io::stdout().lock();
        let written = serde_json::to_string(value)
            .map_err(std::io::Error::from)
            .and_then(|line| writeln!(out, "{}", escape_json_controls(&line)));
        self.write_error = written.and_then(|()| out.flush()).err();
    }
}

impl Render for JsonRenderer {
    fn live(&mut self, live: &StreamEvent) {
        match live {
            StreamEvent::Event { thread, event } if self.events => {
                self.line(&EventOutput::new(thread.as_str(), event));
            }
            StreamEvent::Delta { thread, delta } if self.events => {
                self.line(&DeltaOutput::new(thread.as_str(), LivePiece::from(delta)));
            }
            StreamEvent::Event { .. } | StreamEvent::Delta { .. } => {}
        }
    }

    fn note(&mut self, text: &str) {
        writeln!(anstream::stderr().lock(), "{}", mask_controls(text)).ok();
    }

    fn needs_every_piece(&self) -> bool {
        self.events
    }

    fn end(&mut self, end: RunEnd) -> Option<io::Error> {
        self.line(&RunOutput::from(end.result));
        self.write_error.take()
    }
}
