//! What all HTTP wires share: send a body, read the stream, let a pure decoder make a reply of it.
//!
//! The shapes themselves are in one file per wire.

use serde_json::{Number, Value};

use super::http::Endpoint;
use super::sse::{Event, Parser, SseError};
use super::{CallError, Delta, FailedStage, Reply, Sampling, Usage};

/// The most a reply's stream may carry, in bytes.
const MAX_STREAM: usize = 64 * 1024 * 1024;

/// A stream's events to a reply: a state machine without clock, network or randomness.
pub trait Decode: Send {
    /// Takes one event; what it brought that is worth showing.
    fn push(&mut self, event: &Event) -> Vec<Delta>;

    /// Whether the final event, or an error, has come: nothing after it counts.
    fn is_done(&self) -> bool;

    /// What the provider has reported as used so far, if it has.
    fn usage(&self) -> Option<Usage>;

    /// The reply.
    ///
    /// # Errors
    /// The error the stream carried, or [`FailedStage::Truncated`] when its final event never came.
    fn finish(self) -> Result<Reply, CallError>;
}

/// One attempt: sends `body` to `endpoint` and decodes what streams back.
///
/// A provider that reports no usage is counted at four bytes a token: an attempt is never free.
///
/// # Errors
/// Whatever ended the attempt, with what had been used by then where the stream told.
pub async fn run<D: Decode>(
    endpoint: &Endpoint,
    body: Vec<u8>,
    decoder: D,
    live: &(dyn Fn(Delta) + Send + Sync),
) -> Result<Reply, CallError> {
    attempt(endpoint, body, decoder, live).await.map_err(|error| endpoint.clean(error))
}

async fn attempt<D: Decode>(
    endpoint: &Endpoint,
    body: Vec<u8>,
    mut decoder: D,
    live: &(dyn Fn(Delta) + Send + Sync),
) -> Result<Reply, CallError> {
    let sent = body.len();
    let mut stream = endpoint.post(body).await?;
    let mut parser = Parser::default();
    let mut received = 0;
    let failure = loop {
        let chunk = match stream.next().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break None,
            Err(error) => break Some(error),
        };
        received += chunk.len();
        if received > MAX_STREAM {
            let message = format!("the stream is longer than {MAX_STREAM} bytes");
            break Some(CallError::new(FailedStage::Protocol, message));
        }
        let events = match parser.push(&chunk) {
            Ok(events) => events,
            Err(error @ (SseError::TooLarge { .. } | SseError::Truncated)) => {
                break Some(CallError::new(FailedStage::Protocol, error.to_string()));
            }
        };
        for event in &events {
            decoder.push(event).into_iter().for_each(live);
        }
        if decoder.is_done() {
            stream.drain().await;
            break None;
        }
    };
    let reported = decoder.usage();
    match failure {
        Some(error) => Err(CallError { usage: reported, ..error }),
        None => decoder.finish().map(|mut reply| {
            if reported.is_none() {
                reply.usage = estimate(sent, received);
            }
            reply
        }),
    }
}

fn estimate(sent: usize, received: usize) -> Usage {
    let tokens = |bytes: usize| u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX);
    Usage { input: tokens(sent), output: tokens(received), ..Usage::default() }
}

/// The sampling fields that are set; `top_p` has its own name on each wire.
pub(super) fn sampling(sampling: &Sampling, top_p: &str) -> impl Iterator<Item = (String, Value)> {
    let field = |name: &str, number: &Option<Number>| number.clone().map(|n| (name.to_owned(), Value::Number(n)));
    [field("temperature", &sampling.temperature), field(top_p, &sampling.top_p)].into_iter().flatten()
}

/// Whether a text says nothing: servers refuse blank content.
pub(super) fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// Whether an event only keeps the connection open, or ends a stream that has said its end already.
pub(super) fn is_keep_alive(event: &Event) -> bool {
    let data = event.data.trim();
    data.is_empty() || data == "[DONE]" || event.name == "ping"
}

/// What stands for a result without text: empty content is refused by some servers.
pub(super) const NO_OUTPUT: &str = "(no output)";

mod sound;

pub(super) use sound::{plain_name, sound};

#[cfg(test)]
mod conversations;
#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod strict;
#[cfg(test)]
mod tests;
