//! Common parts of the wire formats over HTTP: a POST request, and the decoding of the streamed reply.
//!
//! Each wire format has a file of its own.

use std::time::Duration;

use serde_json::{Number, Value};
use tokio::time::Instant;

use surrogate_decoder::SurrogateDecoder;

use super::http::Endpoint;
use super::sse::{SseError, SseEvent, SseParser};
use super::{CallProgress, Sampling};
use crate::exchange::{BYTES_PER_TOKEN, CallError, CutStream, Delta, FailedStage, MORE_NAMES, Reply, Usage};

/// Maximum size of a reply's stream, in bytes.
const MAX_STREAM_BYTES: usize = 64 * 1024 * 1024;
/// Maximum size in bytes of an error document that a server sends in place of a stream, under the content type of a
/// stream.
const MAX_ERROR_DOCUMENT_BYTES: usize = 64 * 1024;
/// If a reply lacks only an optional end marker, the reply is complete after this time without an event.
const OPTIONAL_END_TIMEOUT: Duration = Duration::from_secs(2);

/// A decoder of a stream's events: a state machine without clock, network or randomness.
pub trait ReplyDecoder: Send {
    /// Processes an event; returns the deltas to display. After the final event or an error, usage reports are still
    /// read.
    fn push(&mut self, event: &SseEvent) -> Vec<Delta>;

    /// Returns true after the final event, or an error.
    fn is_done(&self) -> bool;

    /// Returns true if the reply is complete except for an end marker that servers may omit.
    fn lacks_only_end_marker(&self) -> bool {
        false
    }

    /// Returns the usage that the provider has reported so far; `None` if it has reported none.
    fn usage(&self) -> Option<Usage>;

    /// Returns true if [`Self::usage`] counts the whole reply. Usage reported during the stream is not final.
    fn is_usage_final(&self) -> bool;

    /// Returns the reply.
    ///
    /// # Errors
    /// The error that the stream contained, or [`FailedStage::Truncated`] if its final event is missing.
    fn finish(self) -> Result<Reply, CallError>;
}

/// Makes one attempt: sends `body` to `endpoint` and decodes the stream.
///
/// If the provider reports no usable final usage, the reply has [`Reply::uncounted`] set. An error status and the final
/// usage are recorded in `progress` as soon as they are known.
///
/// # Errors
///
/// The error that ended the attempt, with the usage that the stream reported before it. If the stream has started and
/// has reported no final usage, the error has [`CallError::cut`] set. An error that is the only event of the stream is
/// an exception: the provider refused the request, so `cut` is not set.
pub async fn run<D: ReplyDecoder>(
    endpoint: &Endpoint,
    body: Vec<u8>,
    decoder: D,
    live: &(dyn Fn(Delta) + Send + Sync),
    progress: &CallProgress,
) -> Result<Reply, CallError> {
    attempt(endpoint, body, SurrogateDecoder::new(decoder), live, progress)
        .await
        .map_err(|error| endpoint.sanitize_error(error))
}

async fn attempt<D: ReplyDecoder>(
    endpoint: &Endpoint,
    body: Vec<u8>,
    mut decoder: D,
    live: &(dyn Fn(Delta) + Send + Sync),
    progress: &CallProgress,
) -> Result<Reply, CallError> {
    let sent = body.len();
    let mut stream = endpoint.post(body, progress).await?;
    let mut parser = SseParser::default();
    let (mut received, mut event_count) = (0, 0);
    // The body so far, as long as the body can be an error document in place of a stream.
    let mut document = Vec::new();
    // The time at which a reply without its optional end marker is complete, unless an event arrives earlier.
    let mut quiet_end: Option<Instant> = None;
    let failure = loop {
        let chunk = match stream.next(decoder.is_done(), quiet_end).await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break None,
            // After the end of the reply, only a usage report may follow, so an error does not fail the attempt.
            Err(_) if decoder.is_done() => break None,
            Err(error) => break Some(error),
        };
        received += chunk.len();
        if received > MAX_STREAM_BYTES && decoder.is_done() {
            break None;
        }
        if received > MAX_STREAM_BYTES {
            let message = format!("the stream is longer than {MAX_STREAM_BYTES} bytes");
            break Some(CallError::new(FailedStage::Protocol, message));
        }
        if event_count == 0 && received <= MAX_ERROR_DOCUMENT_BYTES {
            document.extend_from_slice(&chunk);
        }
        let mut events = match parser.push(&chunk) {
            Ok(events) => events,
            Err(_) if decoder.is_done() => break None,
            Err(error @ (SseError::TooLarge { .. } | SseError::Truncated)) => {
                break Some(CallError::new(FailedStage::Protocol, error.to_string()));
            }
        };
        for event in &mut events {
            if let Some(key) = endpoint.key() {
                key.mask_event(event);
            }
            event_count += usize::from(!(decoder.is_done() && is_keep_alive(event)));
            decoder.push(event).into_iter().for_each(live);
        }
        if !events.is_empty() {
            progress.set_final_usage(decoder.usage().filter(|_| decoder.is_usage_final()));
            quiet_end = decoder.lacks_only_end_marker().then(|| Instant::now() + OPTIONAL_END_TIMEOUT);
        }
    };
    if event_count == 0
        && document.len() == received
        && let Some(error) = endpoint.error_in_document(length(sent), &stream, &document)
    {
        return Err(error);
    }
    let reported = decoder.usage();
    let streamed = CutStream { sent: length(sent), received: length(received) };
    let cut = (!decoder.is_usage_final()).then_some(streamed);
    let replied = match failure {
        // If the connection broke only after the whole reply, the reply is used.
        Some(error) if matches!(error.stage, FailedStage::Truncated | FailedStage::Timeout) => {
            decoder.finish().map_err(|_| error)
        }
        Some(error) => Err(error),
        None => decoder.finish(),
    };
    match replied {
        Ok(mut reply) => {
            if let Some(key) = endpoint.key() {
                key.mask_reply(&mut reply);
            }
            reply.usage = reported.unwrap_or_default();
            let plausible = reply.usage.is_plausible_for(&reply.content);
            reply.uncounted = cut.or_else(|| (!plausible).then_some(streamed));
            Ok(reply)
        }
        // If an error is the only event, the provider refused the request before any reply, as with an error status.
        Err(error) if error.stage == FailedStage::StreamError && event_count == 1 => {
            Err(CallError { usage: reported, ..error })
        }
        Err(error) => Err(CallError { usage: reported, cut, ..error }),
    }
}

/// Returns a number of bytes as `u64`.
pub(super) fn length(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

impl CutStream {
    /// Estimates the usage of the cut stream from the bytes sent and received: one token for every four bytes.
    pub fn estimate(self) -> Usage {
        let [input, output] = [self.sent, self.received].map(|bytes| bytes.div_ceil(BYTES_PER_TOKEN));
        Usage { input, output, ..Usage::default() }
    }
}

/// Returns the sampling fields that are set. `top_p` is the name that the wire uses for the field with this value.
pub(super) fn sampling(sampling: &Sampling, top_p: &str) -> impl Iterator<Item = (String, Value)> {
    let field = |name: &str, number: &Option<Number>| number.clone().map(|n| (name.to_owned(), Value::Number(n)));
    [field("temperature", &sampling.temperature), field(top_p, &sampling.top_p)].into_iter().flatten()
}

/// Reads a token count of a provider. Returns `Some(None)` if the provider sent no count, and `None` if the value at
/// `path` is not a count.
#[expect(clippy::option_option, reason = "an absent count differs from one that cannot be read")]
pub(super) fn read_count(usage: &Value, path: &str) -> Option<Option<u64>> {
    match usage.pointer(path) {
        None | Some(Value::Null) => Some(None),
        Some(count) => count.as_u64().map(Some),
    }
}

/// The usage that a stream has reported so far. The reports are cumulative: each counts the call from its start.
#[derive(Debug, Default)]
pub(super) struct UsageReports {
    pub usage: Option<Usage>,
    /// True if the last usage report is valid and came after the end of the reply, so that `usage` counts the whole
    /// reply.
    pub is_final: bool,
}

impl UsageReports {
    /// Adds a usage report of the provider. `report` is `None` if the reported counts are invalid. The earlier usage is
    /// then kept, but does not count as final. `is_complete` is true if the reply had ended before the report.
    pub fn add(&mut self, report: Option<Usage>, is_complete: bool) {
        self.usage = report.map(|usage| Usage::after(self.usage, usage)).or(self.usage);
        self.is_final = report.is_some() && is_complete;
    }
}

/// Token counts of a usage report whose prompt count includes the cached tokens, unlike the counts of [`Usage`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PromptCounts {
    pub prompt: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    pub output: u64,
    /// The part of `output` that the model used for reasoning.
    pub reasoning: u64,
    /// All tokens of the call; `None` if the server does not report this count. Some servers count tokens here that
    /// they count nowhere else, such as reasoning.
    pub total: Option<u64>,
}

impl PromptCounts {
    /// Returns the usage; `None` if the counts contradict each other, because more tokens are cached than the prompt
    /// has.
    pub fn usage(self) -> Option<Usage> {
        let Self { prompt, cache_read, cache_write, output, reasoning, total } = self;
        // If the reasoning tokens exceed the output tokens, the server did not count them as output tokens. An output
        // count of 0 stays 0, which makes the usage of a reply with content unusable.
        let output = if reasoning > output && output > 0 { output.saturating_add(reasoning) } else { output };
        Some(Usage {
            input: prompt.checked_sub(cache_read)?.checked_sub(cache_write)?,
            output: output.max(total.unwrap_or_default().saturating_sub(prompt)),
            cache_read,
            cache_write,
        })
    }
}

/// Returns true for blank text, which servers refuse.
pub(super) fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// Returns true for an event without a part of a reply: empty data, a `ping`, or the end marker `[DONE]`.
pub(super) fn is_keep_alive(event: &SseEvent) -> bool {
    let data = event.data.trim();
    data.is_empty() || data == "[DONE]" || event.name == "ping"
}

/// Returns a name for any event: the `type` in its data, else the name of the event, else `data`.
pub(super) fn event_kind<'e>(event: &'e SseEvent, value: &'e Value) -> &'e str {
    let kind = value.get("type").and_then(Value::as_str).filter(|kind| !kind.is_empty());
    kind.or(Some(event.name.as_str()).filter(|name| !name.is_empty())).unwrap_or("data")
}

/// The names of unknown parts of a provider's stream, which the decoder does not read: kinds of events, kinds of
/// content, and fields.
#[derive(Debug, Default)]
pub(super) struct UnreadKinds {
    names: Vec<String>,
    /// True if a name was left out, because there were too many.
    is_cut: bool,
}

impl UnreadKinds {
    /// Adds the name of an unknown kind, shortened and without control characters. Ignores a name that was added
    /// before. Once `MAX_KINDS` names were added, only records that there are more.
    pub fn add(&mut self, kind: &str) {
        const MAX_KINDS: usize = 20;
        const MAX_KIND_CHARS: usize = 80;
        let kind: String = kind.chars().filter(|c| !c.is_control()).take(MAX_KIND_CHARS).collect();
        if kind.is_empty() || self.names.contains(&kind) {
            return;
        }
        if self.names.len() < MAX_KINDS {
            self.names.push(kind);
        } else {
            self.is_cut = true;
        }
    }

    /// Adds the names of the fields of `object` that are not in `known` and have a value, each in the form
    /// `place.field`.
    pub(crate) fn add_fields(&mut self, place: &str, object: &Value, known: &[&str]) {
        for (field, value) in object.as_object().into_iter().flatten() {
            if !known.contains(&field.as_str()) && !is_empty_value(value) {
                self.add(&format!("{place}.{field}"));
            }
        }
    }

    /// Adds the names of those fields in `names` whose value in `object` is not a string, each in the form
    /// `place.field`. The decoder reads these fields only as strings. Empty values are left out.
    pub(crate) fn add_unless_strings(&mut self, place: &str, object: &Value, names: &[&str]) {
        for name in names {
            if object.get(*name).is_some_and(|value| !value.is_string() && !is_empty_value(value)) {
                self.add(&format!("{place}.{name}"));
            }
        }
    }

    /// Returns the names. If names were left out, the last element states this.
    pub fn into_vec(mut self) -> Vec<String> {
        if self.is_cut {
            self.names.push(MORE_NAMES.to_owned());
        }
        self.names
    }
}

/// Returns true for null, `false`, and an empty string, list or object.
pub(super) fn is_empty_value(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(_) => false,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// Text that replaces an empty tool result, because some servers refuse empty content.
pub(super) const NO_OUTPUT: &str = "(no output)";

mod encode;
mod normalize;
mod repeated_keys;
mod surrogate_decoder;
mod tools;
mod unknown_counts;

pub(super) use encode::{EncodedGroup, EncodedItems, TOOLS_FIELD, encode_body, encode_items};
pub(super) use normalize::{normalize_turns, plain_name, shortened_name};
pub(super) use repeated_keys::parse_event;
pub(super) use tools::encode_tools;

#[cfg(test)]
mod conversations;
#[cfg(test)]
mod cuts;
#[cfg(test)]
mod dropped;
#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod known;
#[cfg(test)]
mod marked;
#[cfg(test)]
mod stops;
#[cfg(test)]
mod strict;
#[cfg(test)]
pub(crate) mod tests;
