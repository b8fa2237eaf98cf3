//! Differences between two plans in the text that the model gets, and the part of a provider's cache that stays valid.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::plan::Tokenizer;
use crate::plan::source::SourceReport;
use crate::report::render::json::{LayerReport, PlanReport};

/// A layer or a tool that differs between the two plans or exists in only one of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartChange {
    /// The position of the part: `system` (system prompt), `message` (first message), `continued` (text of a
    /// continuation) or `tool`.
    pub place: String,
    pub id: String,
    /// Token count of the part before the change; null if the old plan does not have the part.
    pub before: Option<u64>,
    pub after: Option<u64>,
    pub via: String,
    pub source: Option<SourceReport>,
}

/// The prefix that the first requests of two plans share. Parts have the order in which providers cache them: tools,
/// system prompt, message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PrefixChange {
    /// Tokens of the prefix that both plans share.
    pub unchanged: u64,
    pub of: u64,
    /// The first layer or tool of the request that differs between the plans: the shared prefix ends before it. Null if
    /// the requests are equal.
    pub broken_by: Option<String>,
}

/// A layer or a tool of a plan, with the text and the attributes that are compared.
struct RequestPart<'p> {
    place: &'static str,
    id: &'p str,
    text: String,
    tokens: u64,
    via: &'p str,
    source: Option<&'p SourceReport>,
}

pub fn compare_parts(before: Option<&PlanReport>, after: Option<&PlanReport>) -> Vec<PartChange> {
    let (old, new) = (request_parts(before), request_parts(after));
    let same = |a: &RequestPart<'_>, b: &RequestPart<'_>| a.place == b.place && a.id == b.id && a.via == b.via;
    let mut changes = Vec::new();
    for part in &new {
        let was = old
            .iter()
            .find(|p| same(p, part))
            .or_else(|| old.iter().find(|p| p.place == part.place && p.id == part.id));
        if was.is_none_or(|was| was.text != part.text) {
            changes.push(part_change(part, was.map(|w| w.tokens), Some(part.tokens)));
        }
    }
    for part in &old {
        if !new.iter().any(|p| p.place == part.place && p.id == part.id) {
            changes.push(part_change(part, Some(part.tokens), None));
        }
    }
    changes
}

fn part_change(part: &RequestPart<'_>, before: Option<u64>, after: Option<u64>) -> PartChange {
    PartChange {
        place: part.place.to_owned(),
        id: part.id.to_owned(),
        before,
        after,
        via: part.via.to_owned(),
        source: part.source.cloned(),
    }
}

fn request_parts(plan: Option<&PlanReport>) -> Vec<RequestPart<'_>> {
    let Some(plan) = plan else { return Vec::new() };
    let tools = plan.palette.iter().map(|tool| RequestPart {
        place: "tool",
        id: &tool.id,
        text: format!("{} {}", tool.description, tool.schema),
        tokens: tool.tokens,
        via: &tool.via,
        source: tool.source.as_ref(),
    });
    let first = &plan.first_message;
    let message = first.before.iter().chain(&first.body).chain(&first.after);
    tools
        .chain(plan.system.layers.iter().map(|l| part("system", l, &plan.system.text)))
        .chain(message.map(|l| part("message", l, &first.text)))
        .chain(plan.continued.layers.iter().map(|l| part("continued", l, &plan.continued.text)))
        .collect()
}

fn part<'p>(place: &'static str, layer: &'p LayerReport, text: &'p str) -> RequestPart<'p> {
    // A plan that was read from a file may hold invalid offsets.
    let end = layer.offset.saturating_add(layer.bytes);
    let text = text.get(layer.offset..end).unwrap_or_default().to_owned();
    RequestPart { place, id: &layer.id, text, tokens: layer.tokens, via: &layer.via, source: layer.source.as_ref() }
}

pub fn prefix_change(before: Option<&PlanReport>, after: Option<&PlanReport>) -> PrefixChange {
    let sent = |plan| request_parts(plan).into_iter().filter(|part| part.place != "continued").collect::<Vec<_>>();
    let (old, new) = (sent(before), sent(after));
    let mut unchanged = 0u64;
    let of = new.iter().fold(0u64, |sum, part| sum.saturating_add(part.tokens));
    for (i, part) in new.iter().enumerate() {
        let was = old.get(i).filter(|was| was.place == part.place);
        if was.is_some_and(|was| was.text == part.text) {
            unchanged = unchanged.saturating_add(part.tokens);
            continue;
        }
        let by = after.and_then(|plan| Tokenizer::from_name(&plan.tokens.estimator)).unwrap_or_default();
        let common = was.map_or(0, |was| shared_tokens(&was.text, &part.text, by));
        return PrefixChange { unchanged: unchanged.saturating_add(common), of, broken_by: Some(part.id.to_owned()) };
    }
    let removed = old.get(new.len()).map(|part| part.id.to_owned());
    PrefixChange { unchanged, of, broken_by: removed }
}

/// Counts the tokens of the common start of two texts.
fn shared_tokens(a: &str, b: &str, by: Tokenizer) -> u64 {
    let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
    let text: String = b.chars().take(same).collect();
    // The common start may end within a token of both texts, so its last token does not count as shared.
    if same == 0 { 0 } else { by.count(&text).saturating_sub(1) }
}
