//! Parses YAML to [`crate::data::Node`] with byte spans. Only this module uses the library serde-saphyr and its parser
//! of events, granit-parser. The options of the library bound the nesting, the values and the aliases of a document.

mod error;
mod events;
mod flat;
mod node;

use serde_saphyr::{Options, Spanned};

use crate::Parsed;
use crate::data::{Kind, Node};
use crate::span::SourceId;
use node::{RawValue, SpanConverter};

/// Maximum nesting depth. The bound keeps recursive traversals from overflowing the stack.
pub const MAX_DEPTH: usize = 64;
/// Maximum number of values in a document, including the values that aliases expand to.
pub(crate) const MAX_NODES: usize = 250_000;
/// Maximum number of aliases in a document.
pub(crate) const MAX_ALIASES: usize = 1_000;

/// Minimum of free stack, in bytes, for reading [`MAX_DEPTH`] levels. The library recurses with large frames.
const MIN_STACK_BYTES: usize = 6 * 1024 * 1024;
/// Size in bytes of the new stack on which the YAML library runs if the current stack has less than [`MIN_STACK_BYTES`]
/// free. The stack of a thread other than the main thread has only two megabytes.
const GROWN_STACK_BYTES: usize = 16 * 1024 * 1024;

/// Parses one YAML document. Returns null for an empty text, and null with errors for an invalid document.
pub fn parse(source: SourceId, text: &str) -> Parsed<Node> {
    parse_at(source, text, 0)
}

/// Parses a YAML document at offset `base` of its source. Spans are offsets into the source.
pub fn parse_at(source: SourceId, text: &str, base: usize) -> Parsed<Node> {
    let spans = SpanConverter { source, text, base };
    match flat::parse_flat_mapping(&spans).or_else(|| events::read_document(&spans)) {
        Some(tree) => Parsed { tree, errors: Vec::new() },
        None => parse_with_library(&spans),
    }
}

fn parse_with_library(spans: &SpanConverter<'_>) -> Parsed<Node> {
    let read = || serde_saphyr::from_str_with_options::<Spanned<RawValue>>(spans.text, options());
    match stacker::maybe_grow(MIN_STACK_BYTES, GROWN_STACK_BYTES, read) {
        Ok(raw) => spans.node(raw),
        Err(error) => Parsed {
            tree: Node::new(Kind::Null, spans.span(0, spans.text.len())),
            errors: vec![error::to_syntax_error(spans, &error)],
        },
    }
}

fn options() -> Options {
    serde_saphyr::options! {
        strict_booleans: true,
        underscored_numbers_as_strings: true,
        leading_zero_numbers_as_strings: true,
        reject_unsupported_tags: true,
        emit_comments: false,
        with_snippet: false,
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_NODES,
            max_replay_stack_depth: MAX_DEPTH,
        },
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_aliases: MAX_ALIASES,
        },
    }
}
