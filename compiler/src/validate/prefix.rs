//! Checks of prompt caching. A provider's cache covers only the prefix before the first difference, so a part that
//! changes often makes every later part expensive (`engine.md` 6).

use std::collections::BTreeMap;

use rye_grammar::Span;
use rye_grammar::condition::{Path, Segment};

use crate::compose::{Composed, ComposedHook};
use crate::diagnostics::{ContextError, Diagnostics};
use crate::hook::{HookAction, HookPoint, Position};
use crate::item::{HookFactPlaceholder, Knowledge};
use crate::plan::{PlannedModel, Tokenizer};
use crate::semantics::hook_point;
use crate::semantics::money::Nanos;
use crate::semantics::template;
use crate::world::Space;

use super::incremental::Merge;

/// The frequency at which a part of the request changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ChangeFrequency {
    Never,
    PerThread,
    PerTurn,
}

/// Facts that are constant for all threads of a directive.
const CONSTANT_FACTS: [&str; 5] = ["directive", "category", "model", "project_path", "limits"];
/// Facts that are constant within a thread.
const THREAD_CONSTANT_FACTS: [&str; 8] = [
    "thread_id",
    "inputs",
    "directive_body",
    "parent_thread_id",
    "previous_thread_id",
    "depth",
    "spend_limit",
    "max_turns",
];

/// The reported hooks. The first affected directive of each hook is the example.
#[derive(Default)]
pub struct CachePrefixChecks {
    reported: BTreeMap<Span, ContextError>,
}

impl CachePrefixChecks {
    pub fn add(&mut self, composed: &Composed, model: &PlannedModel) {
        let points = [HookPoint::BuildSystemPrompt, HookPoint::Context, HookPoint::BeforeAgentStart];
        let ours = |hook: &ComposedHook| hook.decl.space == Space::Project && points.contains(&hook.decl.event);
        if !composed
            .hooks
            .iter()
            .any(|hook| ours(hook) && hook.is_live() && !self.reported.contains_key(&hook.decl.span))
        {
            return;
        }
        self.check_system_prompt(composed, model);
        self.check_messages(composed, model);
    }

    pub fn finish(self, found: &mut Diagnostics) {
        found.extend(self.reported.into_values());
    }

    /// Checks the system prompt for a part that changes per thread and precedes constant parts, because the cache
    /// outlives a thread.
    fn check_system_prompt(&mut self, composed: &Composed, model: &PlannedModel) {
        let at = |position: Position| {
            let at = move |hook: &&ComposedHook| {
                hook.is_live() && hook.decl.event == HookPoint::BuildSystemPrompt && hook.decl.position == position
            };
            composed.hooks.iter().filter(at)
        };
        let by = model.counted_by;
        // Each part with its change frequency, its tokens, and the hook that provides it.
        let of_hook = |hook| (hook_text_frequency(hook), hook_tokens(hook, by), Some(hook));
        let before = at(Position::Before).map(of_hook);
        let chain =
            composed.system.iter().map(|item| (ChangeFrequency::Never, by.count(&item.knowledge.body.node), None));
        let parts: Vec<_> = before.chain(chain).chain(at(Position::After).map(of_hook)).collect();
        for (i, (changes, _, hook)) in parts.iter().enumerate() {
            let Some(hook) = hook.filter(|_| *changes > ChangeFrequency::Never) else { continue };
            let behind = parts.iter().skip(i + 1).filter(|(c, ..)| *c == ChangeFrequency::Never);
            let behind = behind.fold(0_u64, |sum, (_, tokens, _)| sum.saturating_add(*tokens));
            if behind > 0 {
                self.report(hook, "with each thread", behind, "turns that start a thread", composed, model);
            }
            // Parts behind the first change are not cached anyway.
            break;
        }
    }

    /// Checks for hooks that inject text with facts that change per turn before the messages, or that replace the
    /// system prompt with it, because everything after such a text is not cached.
    fn check_messages(&mut self, composed: &Composed, model: &PlannedModel) {
        let by = model.counted_by;
        let body = composed.leaf().map_or(0, |leaf| by.count(&leaf.body.node));
        let items = composed.before.iter().chain(&composed.after);
        let first = items.fold(body, |sum, item| sum.saturating_add(by.count(&item.knowledge.body.node)));
        let system = composed.system.iter().fold(0_u64, |sum, i| sum.saturating_add(by.count(&i.knowledge.body.node)));
        for hook in composed.hooks.iter().filter(|h| h.is_live()) {
            let placeholders = &hook.decl.placeholders.facts;
            let of_turn =
                placeholders.iter().any(|placeholder| fact_frequency(&placeholder.path) == ChangeFrequency::PerTurn);
            match hook.decl.action.as_ref().map(|a| &a.node) {
                Some(HookAction::Inject { position: Position::Before, .. }) if of_turn => {
                    self.report(hook, "with each call", first, "turns", composed, model);
                }
                Some(HookAction::SystemPrompt { text, .. }) if of_turn => {
                    // A text that includes the previous prompt keeps that prefix; a new text does not.
                    let kept = if text.is_none() || includes_previous_prompt(placeholders) { 0 } else { system };
                    let behind = first.saturating_add(kept);
                    self.report(hook, "with each prompt", behind, "prompts", composed, model);
                }
                Some(_) | None => {}
            }
        }
    }

    fn report(
        &mut self,
        hook: &ComposedHook,
        when: &'static str,
        behind: u64,
        per: &'static str,
        composed: &Composed,
        model: &PlannedModel,
    ) {
        if hook.decl.space != Space::Project || self.reported.contains_key(&hook.decl.span) {
            return;
        }
        let more = model.prices.map(|p| p.input.saturating_sub(p.cache_read));
        let price = more.and_then(|more| Nanos::from_u64(more).per_million(behind.saturating_mul(100)));
        let problem = ContextError::VolatilePrefix {
            hook: hook.decl.id.node.clone(),
            when,
            directive: composed.id.to_string(),
            tokens: behind,
            per,
            price: price.map(|p| (p.to_string(), model.id.clone())),
            span: hook.decl.item_span(),
        };
        self.reported.insert(hook.decl.span, problem);
    }
}

impl Merge for CachePrefixChecks {
    fn merge(&mut self, other: &Self) {
        for (span, problem) in &other.reported {
            self.reported.entry(*span).or_insert_with(|| problem.clone());
        }
    }
}

fn includes_previous_prompt(placeholders: &[HookFactPlaceholder]) -> bool {
    placeholders.iter().any(
        |placeholder| matches!(placeholder.path.segments.first(), Some(Segment::Name(root)) if root == "system_prompt"),
    )
}

/// Returns the change frequency of the text that a hook provides.
fn hook_text_frequency(hook: &ComposedHook) -> ChangeFrequency {
    match (&hook.knowledge, hook.decl.action.as_ref().map(|a| &a.node)) {
        (Some(knowledge), _) => knowledge_frequency(knowledge),
        // The result of a tool, or an item chosen at run time.
        (None, _) => ChangeFrequency::PerThread,
    }
}

fn knowledge_frequency(knowledge: &Knowledge) -> ChangeFrequency {
    let body = &knowledge.body;
    if !body.node.contains("${") {
        return ChangeFrequency::Never;
    }
    let read = rye_grammar::template::scan_knowledge(body.span.source, &body.node, body.span.range().start);
    let point = hook_point::row_of(HookPoint::BuildSystemPrompt);
    let is_fact = |path: &Path| matches!(path.segments.first(), Some(Segment::Name(root)) if point.has_fact(root));
    let placeholders = template::placeholders(&read).filter(|placeholder| is_fact(&placeholder.path));
    placeholders.map(|placeholder| fact_frequency(&placeholder.path)).max().unwrap_or(ChangeFrequency::Never)
}

fn hook_tokens(hook: &ComposedHook, by: Tokenizer) -> u64 {
    hook.knowledge.as_ref().map_or(0, |knowledge| by.count(&knowledge.body.node))
}

fn fact_frequency(path: &Path) -> ChangeFrequency {
    match path.segments.first() {
        Some(Segment::Name(root)) if CONSTANT_FACTS.contains(&root.as_str()) => ChangeFrequency::Never,
        Some(Segment::Name(root)) if THREAD_CONSTANT_FACTS.contains(&root.as_str()) => ChangeFrequency::PerThread,
        Some(Segment::Name(_) | Segment::Number(_)) | None => ChangeFrequency::PerTurn,
    }
}
