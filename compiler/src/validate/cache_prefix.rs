//! Checks of prompt caching. A provider's cache covers a request only up to the first difference from an earlier
//! request, so a part that changes often makes every later part expensive (`engine.md` 6).

use std::cell::RefCell;
use std::collections::BTreeMap;

use rye_grammar::Span;
use rye_grammar::condition::{Path, Segment};

use crate::compose::{Composed, ComposedHook, ContextItem};
use crate::diagnostics::{ContextError, Diagnostics, Severity};
use crate::hook::{HookAction, HookPoint, Position};
use crate::item::{HookFactPlaceholder, Knowledge};
use crate::plan::{PlannedModel, Tokenizer};
use crate::semantics::change_frequency::ChangeFrequency;
use crate::semantics::hook_point;
use crate::semantics::money::Nanos;
use crate::semantics::template;
use crate::world::Space;

use super::incremental::Merge;

/// Minimum number of constant tokens after a changing part of the first message. A changing part that fewer constant
/// tokens follow is not reported: providers do not cache so few tokens, and only threads that start while the cache of
/// an earlier thread lasts could reuse them.
const MIN_STABLE_TOKENS: u64 = 1_024;

/// A memo of the change frequency of the texts that hooks provide, by the span of the text and the hook point. The
/// directives of a project share most of these texts.
#[derive(Debug, Default)]
pub struct TextFrequencies(RefCell<BTreeMap<(Span, HookPoint), ChangeFrequency>>);

impl TextFrequencies {
    /// Returns the change frequency of the text that a hook provides.
    fn of(&self, hook: &ComposedHook) -> ChangeFrequency {
        // Without knowledge, the text is the result of a tool, or an item chosen at run time.
        let Some(knowledge) = &hook.knowledge else { return ChangeFrequency::PerThread };
        let key = (knowledge.body.span, hook.decl.event);
        if let Some(known) = self.0.borrow().get(&key) {
            return *known;
        }
        let frequency = knowledge_frequency(knowledge, hook.decl.event);
        self.0.borrow_mut().insert(key, frequency);
        frequency
    }
}

/// Reports of parts of the prompt that change, so that the provider cannot cache the start of a request. The key of a
/// report is the span of the changing part. If several directives use the part, the report names only the first of
/// them.
#[derive(Default)]
pub struct CachePrefixChecks {
    reported: BTreeMap<Span, ContextError>,
}

impl CachePrefixChecks {
    pub fn add(&mut self, composed: &Composed, model: &PlannedModel, frequencies: &TextFrequencies) {
        let points =
            [HookPoint::BuildSystemPrompt, HookPoint::ThreadStarted, HookPoint::Context, HookPoint::BeforeAgentStart];
        let ours = |hook: &ComposedHook| hook.decl.space == Space::Project && points.contains(&hook.decl.event);
        let is_new =
            |hook: &&ComposedHook| ours(hook) && hook.is_live() && !self.reported.contains_key(&hook.decl.span);
        if composed.hooks.iter().any(|hook| is_new(&hook)) {
            self.check_system_prompt(composed, model, frequencies);
            self.check_messages(composed, model);
        }
        self.check_first_message(composed, model, frequencies);
    }

    pub fn finish(self, found: &mut Diagnostics) {
        found.extend(self.reported.into_values());
    }

    /// Reports a part of the system prompt that changes per thread and precedes constant parts. The provider's cache
    /// outlives a thread, so the next thread could read the constant parts from the cache if they came first.
    fn check_system_prompt(&mut self, composed: &Composed, model: &PlannedModel, frequencies: &TextFrequencies) {
        let at = |position: Position| {
            let at = move |hook: &&ComposedHook| {
                hook.is_live() && hook.decl.event == HookPoint::BuildSystemPrompt && hook.decl.position == position
            };
            composed.hooks.iter().filter(at)
        };
        let by = model.counted_by;
        // Each part with its change frequency, its tokens, and the hook that provides it.
        let of_hook = |hook| (frequencies.of(hook), hook_tokens(hook, by), Some(hook));
        let before = at(Position::Before).map(of_hook);
        let chain = composed.system.iter().map(|item| (ChangeFrequency::Never, item.knowledge.size(by).tokens, None));
        let parts: Vec<_> = before.chain(chain).chain(at(Position::After).map(of_hook)).collect();
        for (i, (changes, _, hook)) in parts.iter().enumerate() {
            let Some(hook) = hook.filter(|_| *changes > ChangeFrequency::Never) else { continue };
            let tokens_after = parts.iter().skip(i + 1).filter(|(c, ..)| *c == ChangeFrequency::Never);
            let tokens_after = tokens_after.fold(0_u64, |sum, (_, tokens, _)| sum.saturating_add(*tokens));
            if tokens_after > 0 {
                self.report_hook(hook, "with each thread", tokens_after, "turns that start a thread", composed, model);
            }
            // Parts after the first changing part are not cached anyway.
            break;
        }
    }

    /// Reports hooks that make the prefix of every request change: hooks that insert a text before the messages, or
    /// replace the system prompt, if the text contains a fact that changes in each turn. The provider caches nothing
    /// after such a text.
    fn check_messages(&mut self, composed: &Composed, model: &PlannedModel) {
        let by = model.counted_by;
        let body = composed.leaf().map_or(0, |leaf| leaf.body_size(by).tokens);
        let items = composed.before.iter().chain(&composed.after);
        let first = items.fold(body, |sum, item| sum.saturating_add(item.knowledge.size(by).tokens));
        let system = composed.system.iter().fold(0_u64, |sum, i| sum.saturating_add(i.knowledge.size(by).tokens));
        for hook in composed.hooks.iter().filter(|h| h.is_live()) {
            let placeholders = &hook.decl.placeholders.facts;
            let of_turn = placeholders
                .iter()
                .any(|placeholder| ChangeFrequency::of_path(&placeholder.path) == ChangeFrequency::PerTurn);
            match hook.decl.action.as_ref().map(|a| &a.node) {
                Some(HookAction::Inject { position: Position::Before, .. }) if of_turn => {
                    self.report_hook(hook, "with each call", first, "turns", composed, model);
                }
                Some(HookAction::SystemPrompt { text, .. }) if of_turn => {
                    // If the text includes the previous system prompt, the provider can still cache that prompt.
                    let kept = if text.is_none() || includes_previous_prompt(placeholders) { 0 } else { system };
                    let tokens_after = first.saturating_add(kept);
                    self.report_hook(hook, "with each prompt", tokens_after, "prompts", composed, model);
                }
                Some(_) | None => {}
            }
        }
    }

    /// Reports a hook or an input whose text differs between threads and stands before long constant parts of the first
    /// message. The provider then cannot cache these constant parts across threads.
    fn check_first_message(&mut self, composed: &Composed, model: &PlannedModel, frequencies: &TextFrequencies) {
        let is_brought = |hook: &&ComposedHook| hook.is_live() && hook.decl.event == HookPoint::ThreadStarted;
        let at = |position: Position| {
            composed.hooks.iter().filter(is_brought).filter(move |hook| hook.decl.position == position)
        };
        let by = model.counted_by;
        let items =
            |items: &[ContextItem]| items.iter().fold(0_u64, |sum, i| sum.saturating_add(i.knowledge.size(by).tokens));
        let tokens_of_hooks = |position| {
            let stable = at(position).filter(|hook| frequencies.of(hook) == ChangeFrequency::Never);
            stable.fold(0_u64, |sum, hook| sum.saturating_add(hook_tokens(hook, by)))
        };
        let Some(leaf) = composed.leaf() else { return };
        let changing = at(Position::Before).find(|hook| frequencies.of(hook) > ChangeFrequency::Never);
        if let Some(hook) = changing {
            if hook.decl.space != Space::Project || self.reported.contains_key(&hook.decl.span) {
                return;
            }
            let before = at(Position::Before).skip_while(|one| one.decl.span != hook.decl.span);
            let before = before.filter(|hook| frequencies.of(hook) == ChangeFrequency::Never);
            let tokens_after = before.fold(0_u64, |sum, hook| sum.saturating_add(hook_tokens(hook, by)));
            let parts = [
                items(&composed.before),
                leaf.body_size(by).tokens,
                items(&composed.after),
                tokens_of_hooks(Position::After),
            ];
            let tokens_after = parts.into_iter().fold(tokens_after, u64::saturating_add);
            if tokens_after >= MIN_STABLE_TOKENS {
                self.report_hook(hook, "with each thread", tokens_after, "threads", composed, model);
            }
            return;
        }
        let Some(input) = template::input_placeholders(&leaf.body_template).next() else { return };
        if self.reported.contains_key(&input.span) {
            return;
        }
        let offset = input.span.range().end.saturating_sub(leaf.body.span.range().start);
        let rest = leaf.body.node.get(offset..).unwrap_or_default();
        let parts = [
            if rest.is_empty() { 0 } else { by.count(rest) },
            items(&composed.after),
            tokens_of_hooks(Position::After),
        ];
        let tokens_after = parts.into_iter().fold(0, u64::saturating_add);
        if tokens_after >= MIN_STABLE_TOKENS {
            let part = (format!("the input `{}` in the body", input.name), input.span, input.span);
            self.report(part, Severity::Advice, "with each thread", tokens_after, "threads", composed, model);
        }
    }

    fn report_hook(
        &mut self,
        hook: &ComposedHook,
        when: &'static str,
        tokens_after: u64,
        per: &'static str,
        composed: &Composed,
        model: &PlannedModel,
    ) {
        if hook.decl.space == Space::Project && !self.reported.contains_key(&hook.decl.span) {
            let part =
                (format!("the content of the hook `{}`", hook.decl.id.node), hook.decl.span, hook.decl.item_span());
            self.report(part, Severity::Warning, when, tokens_after, per, composed, model);
        }
    }

    /// Reports a part of the prompt that changes often, so that the provider cannot cache the `tokens_after` constant
    /// tokens that follow the part. `key` identifies the part: each part is reported once. `span` is the place of the
    /// report.
    #[expect(clippy::too_many_arguments, reason = "one argument for each field of the diagnostic")]
    fn report(
        &mut self,
        (part, key, span): (String, Span, Span),
        severity: Severity,
        when: &'static str,
        tokens_after: u64,
        per: &'static str,
        composed: &Composed,
        model: &PlannedModel,
    ) {
        let more = model.prices.map(|p| p.input.saturating_sub(p.cache_read));
        let price = more.and_then(|more| Nanos::from_u64(more).per_million(tokens_after.saturating_mul(100)));
        let problem = ContextError::VolatilePrefix {
            part,
            severity,
            when,
            directive: composed.id.to_string(),
            tokens: tokens_after,
            per,
            price: price.map(|p| (p.to_string(), model.id.clone())),
            span,
        };
        self.reported.insert(key, problem);
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

fn knowledge_frequency(knowledge: &Knowledge, point: HookPoint) -> ChangeFrequency {
    let body = &knowledge.body;
    if !body.node.contains("${") {
        return ChangeFrequency::Never;
    }
    let read = rye_grammar::template::scan_knowledge(body.span.source, &body.node, body.span.range().start);
    let point = hook_point::row_of(point);
    let is_fact = |path: &Path| matches!(path.segments.first(), Some(Segment::Name(root)) if point.has_fact(root));
    let placeholders = template::placeholders(&read).filter(|placeholder| is_fact(&placeholder.path));
    placeholders.map(|placeholder| ChangeFrequency::of_path(&placeholder.path)).max().unwrap_or(ChangeFrequency::Never)
}

fn hook_tokens(hook: &ComposedHook, by: Tokenizer) -> u64 {
    hook.knowledge.as_ref().map_or(0, |knowledge| knowledge.size(by).tokens)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use crate::compile::tests::world::{minimal_world, with_directives};
    use crate::diagnostics::{Diagnostic, Severity};
    use crate::validate::{Selection, check};

    /// Returns the severity and the message of each report, for a hook on `thread_started` that fetches `k`, and a
    /// body.
    fn reported(k: &str, body: &str) -> Vec<(Severity, String)> {
        let inside = "<metadata><context><after>long</after></context></metadata><inputs><input name=\"x\" required=\"true\">x</input></inputs>";
        let hook = "hooks:\n  - { id: h, event: thread_started, position: before, action: { primary: fetch, item_type: knowledge, item_id: k } }\n";
        let long = "A rule of the house holds.\n".repeat(400);
        let world = with_directives(minimal_world(), &[("leaf", "", inside, body)]);
        let world = world.project(".ai/knowledge/k.md", k).project(".ai/knowledge/long.md", long.as_str());
        let report = check(&world.project(".ai/config/agent/hooks.yaml", hook), &Selection::All);
        let found = report.diagnostics.iter().filter(|one| one.code() == "context::volatile-prefix");
        found.map(|one| (one.severity(), Diagnostic::message(one))).collect()
    }

    #[test]
    fn changing_text_of_the_first_message_is_reported_before_long_stable_text() {
        let of_hook = reported("Thread ${thread_id}.", "Read {input:x}.");
        assert_eq!(of_hook.len(), 1, "{of_hook:?}");
        assert!(of_hook.iter().all(|(severity, text)| *severity == Severity::Warning && text.contains("hook `h`")));
        let of_input = reported("Be brief.", "Read {input:x}.");
        assert_eq!(of_input.len(), 1, "{of_input:?}");
        assert!(of_input.iter().all(|(severity, text)| *severity == Severity::Advice && text.contains("input `x`")));
        assert_eq!(reported("Be brief.", "Read the file."), []);
    }
}
