//! Corrections of the text of provider events, for all wires. A server may split a character above U+FFFF over two
//! events. Each event then contains a lone surrogate escape (`"\ud83d"`), which JSON parsers refuse. The two halves are
//! joined, and a half without a partner becomes U+FFFD. Repeated keys of usage reports are merged.
//!
//! Some wires send the arguments of a call as a JSON object. A parser rounds large integers in such an object and drops
//! repeated keys. The text of arguments with such a fault is kept, and the call in the reply is marked as malformed.

use super::repeated_keys::merge_repeated_keys;
use super::unknown_counts::add_unknown_counts;
use super::{ReplyDecoder, UnreadKinds};
use crate::exchange::{CallError, Delta, Reply, Usage};
use crate::json_faults::faulty_values;
use crate::message::{ContentBlock, ToolCall};
use crate::provider::sse::SseEvent;
use crate::surrogates::{HIGH, from_mark, join_halves, join_in_value, mark_lone_halves, parse_lenient, to_mark};

/// The keys under which events hold the arguments of a call as an object: `args` for Gemini, and `input` for Anthropic.
const ARGUMENT_KEYS: [&str; 2] = ["args", "input"];
/// Maximum number of faulty arguments whose text is kept. Further arguments are used as the parser returns them.
const MAX_FAULTY_ARGUMENTS: usize = 1_000;

/// A decoder that also reads events with lone surrogate escapes and with repeated keys in usage reports.
#[derive(Debug, Default)]
pub struct SurrogateDecoder<D> {
    decoder: D,
    /// True once an event had a lone surrogate.
    repaired: bool,
    /// The first surrogate of a pair, if the last displayed piece ended between the two surrogates of the pair.
    pending: Option<u32>,
    /// The texts of the arguments that a parser would change without an error (see `json_faults`). Only events that
    /// hold the arguments as an object contain such arguments.
    faulty_arguments: Vec<String>,
    /// The names of fields that a usage report contained more than once, or that no decoder reads. The reply lists
    /// these names together with the kinds of events and content that the decoder does not know.
    unread_usage: UnreadKinds,
}

impl<D> SurrogateDecoder<D> {
    pub fn new(decoder: D) -> Self {
        Self {
            decoder,
            repaired: false,
            pending: None,
            faulty_arguments: Vec::new(),
            unread_usage: UnreadKinds::default(),
        }
    }
}

impl<D: ReplyDecoder> ReplyDecoder for SurrogateDecoder<D> {
    fn push(&mut self, event: &SseEvent) -> Vec<Delta> {
        let marked = mark_lone_halves(&event.data);
        self.repaired |= marked.is_some();
        for key in ARGUMENT_KEYS {
            let faulty = faulty_values(&event.data, key).into_iter().map(str::to_owned);
            self.faulty_arguments.extend(faulty.take(MAX_FAULTY_ARGUMENTS.saturating_sub(self.faulty_arguments.len())));
        }
        add_unknown_counts(marked.as_deref().unwrap_or(&event.data), &mut self.unread_usage);
        let merged = merge_repeated_keys(marked.as_deref().unwrap_or(&event.data), &mut self.unread_usage);
        let deltas = match merged.or(marked) {
            Some(data) => self.decoder.push(&SseEvent { name: event.name.clone(), data }),
            None => self.decoder.push(event),
        };
        if !self.repaired {
            return deltas;
        }
        deltas.into_iter().filter_map(|delta| self.displayed(delta)).collect()
    }

    fn is_done(&self) -> bool {
        self.decoder.is_done()
    }

    fn lacks_only_end_marker(&self) -> bool {
        self.decoder.lacks_only_end_marker()
    }

    fn usage(&self) -> Option<Usage> {
        self.decoder.usage()
    }

    fn is_usage_final(&self) -> bool {
        self.decoder.is_usage_final()
    }

    fn finish(self) -> Result<Reply, CallError> {
        let repaired = self.repaired;
        let mut reply = self.decoder.finish()?;
        if repaired {
            reply.content.iter_mut().for_each(join_in_block);
        }
        for text in &self.faulty_arguments {
            let parsed = parse_lenient(text).ok();
            for block in &mut reply.content {
                if let ContentBlock::ToolCall(call) = block
                    && parsed.as_ref().is_some_and(|parsed| call.input == *parsed)
                {
                    call.input = ToolCall::parse("", "", text).input;
                }
            }
        }
        reply.unread.extend(self.unread_usage.into_vec());
        Ok(reply)
    }
}

impl<D> SurrogateDecoder<D> {
    /// Returns the piece to display, with the surrogates of each pair joined. A high surrogate at the end of the piece
    /// waits for the next piece. `None` if no text remains to display.
    fn displayed(&mut self, delta: Delta) -> Option<Delta> {
        let mut join = |text: String| {
            let mut whole: String = self.pending.take().and_then(to_mark).into_iter().collect();
            whole.push_str(&text);
            self.pending = whole.chars().next_back().and_then(from_mark).filter(|half| HIGH.contains(half));
            if self.pending.is_some() {
                whole.pop();
            }
            join_halves(&whole)
        };
        let joined = match delta {
            Delta::Text(text) => Delta::Text(join(text)),
            Delta::Thinking(text) => Delta::Thinking(join(text)),
            Delta::ToolCallInput { id, fragment } => Delta::ToolCallInput { id, fragment: join(fragment) },
            started @ Delta::ToolCallStarted { .. } => started,
        };
        let empty = matches!(&joined, Delta::Text(text) | Delta::Thinking(text) if text.is_empty());
        (!empty).then_some(joined)
    }
}

fn join_in_block(block: &mut ContentBlock) {
    match block {
        ContentBlock::Text { text } | ContentBlock::Thinking { text, .. } => *text = join_halves(text).into(),
        ContentBlock::ToolCall(ToolCall { input: value, .. }) | ContentBlock::Other { value, .. } => {
            join_in_value(value);
        }
        ContentBlock::Image(_) => {}
    }
}

#[cfg(test)]
mod tests;
