//! The hooks of a composition: orders the hooks, evaluates their conditions with the known facts, and removes hooks
//! whose knowledge the chain already provides (`language.md`, Hooks, and Composition, steps 4 and 5).

use std::borrow::Cow;
use std::sync::Arc;

use rye_grammar::ItemId;

use super::context::record_suppression;
use super::{Composed, ComposedHook, DuplicateContext, HookScope, Suppression};
use crate::hook::{HookAction, HookPoint, HookSource, PlanVerdict, Position};
use crate::item::{DeclaredOrigin, Directive, HookDecl, Items, OrderedHooks};
use crate::plan::OriginKind;
use crate::resolve::{Inputs, KnownFacts, Launch};
use crate::semantics::condition::Verdict;
use crate::semantics::hook_point::{self, Mode};
use crate::semantics::hook_table::{self, RemovalReason};

/// Fills `hooks` of a composition, with the verdict of each hook. The knowledge of the chain (`system`, `before`,
/// `after`) must be filled before, because knowledge that both the chain and a hook provide is kept only once.
pub fn collect(items: &Items<'_>, composed: &mut Composed, launch: &Launch<'_>) {
    let Some(leaf) = composed.leaf().cloned() else { return };
    let line = ordered_hooks(items, composed);
    let mut suppressions = std::mem::take(&mut composed.suppressions);
    let request = composed.model.as_ref().map(|m| &m.value);
    let of_chain = || KnownFacts::for_chain(&leaf, request, composed.inputs.values().map(|f| &f.value), launch);
    let (mut known, mut at_routing) = (None, None);
    let explain = matches!(launch.inputs, Inputs::Given(_));
    // A suppression counts as used even if it removes only a hook that never fires, so all hooks are needed.
    let is_shared = matches!(line, Cow::Borrowed(_)) && suppressions.is_empty();
    if !is_shared {
        composed.scope = HookScope::All;
    }
    let excluded = match composed.scope {
        HookScope::All => Vec::new(),
        HookScope::Possible => line.excluded(leaf.id().as_str()),
    };
    let mut hooks = Vec::with_capacity(line.places.len() - excluded.iter().filter(|is_excluded| **is_excluded).count());
    for place in &line.places {
        if excluded.get(place.index) == Some(&true) {
            continue;
        }
        let Some(decl) = line.hooks.get(place.index) else { continue };
        let removed = match place.removed {
            Some(RemovalReason::Disabled) => Some("`enabled: false`".to_owned()),
            Some(RemovalReason::Replaced { by }) => line.hooks.get(by).map(replacement_reason),
            None => suppression_reason(&mut suppressions, decl).or_else(|| ignored_answer_reason(decl, place.layer)),
        };
        let verdict = match removed {
            Some(because) => PlanVerdict::Removed { because },
            None if decl.event == HookPoint::ResolveExtends => {
                let known = at_routing.get_or_insert_with(|| {
                    let mut known = KnownFacts::for_routing(&leaf, launch);
                    if matches!(launch.inputs, Inputs::Unknown) {
                        known.limit_inputs(composed.inputs.keys());
                    }
                    known
                });
                routing_verdict(composed, decl, known, explain)
            }
            // The facts are built for the first condition that needs more than the id of the directive.
            None if decl.compiled.is_none() => PlanVerdict::Fires,
            None if !explain && is_ruled_out(decl, &leaf) => PlanVerdict::Never { because: String::new() },
            None => evaluate_before_run(decl, known.get_or_insert_with(of_chain), explain),
        };
        let (decl, source) = (decl.clone(), decl.source.clone());
        hooks.push(ComposedHook { decl, layer: place.layer, source, verdict, knowledge: None });
    }
    composed.suppressions = suppressions;
    remove_shadowed(&mut hooks);
    dedupe_context(composed, &mut hooks);
    for hook in hooks.iter_mut().filter(|h| h.is_live()) {
        hook.knowledge = hook.decl.fetched.as_ref().and_then(|id| items.knowledge(id));
    }
    composed.hooks = hooks;
}

/// Returns every hook that could apply, with the evaluation order. If the chain has no hooks, the result is the same
/// for every directive, so a shared value is borrowed.
fn ordered_hooks<'i>(items: &'i Items<'_>, composed: &Composed) -> Cow<'i, OrderedHooks> {
    let files = items.hook_files();
    let of_chain: Vec<&Arc<HookDecl>> = composed
        .chain
        .iter()
        .rev()
        .enumerate()
        .flat_map(|(i, directive)| {
            // Routing runs before the chain is walked, so an ancestor's routing hooks do not apply.
            directive.hooks.iter().filter(move |h| i == 0 || h.event != HookPoint::ResolveExtends)
        })
        .collect();
    if of_chain.is_empty() {
        return Cow::Borrowed(&files.line);
    }
    let all = files.user.iter().chain(of_chain).chain(&files.builtin).chain(&files.project).chain(&files.infra);
    Cow::Owned(OrderedHooks::new(all.cloned().collect()))
}

fn replacement_reason(by: &Arc<HookDecl>) -> String {
    match by.source {
        HookSource::User => "replaced by the user's hook with the same id".into(),
        HookSource::Project | HookSource::Builtin | HookSource::Infrastructure | HookSource::Directive { .. } => {
            "replaced by the project's hook with the same id".into()
        }
    }
}

/// Returns the reason to report for a hook whose only effect is an answer, if answers of hooks in its layer are ignored
/// at its hook point. `None` for any other hook.
fn ignored_answer_reason(decl: &HookDecl, layer: f64) -> Option<String> {
    let answers = decl.action.as_ref().is_some_and(|action| action.node.only_answers());
    (answers && hook_table::is_answer_ignored(decl.event, layer))
        .then(|| format!("at `{}`, hooks of layer 4 and above never answer", hook_point::row_of(decl.event).name))
}

/// Returns the reason to report if a suppression removes the hook; `None` if no suppression does. At events that
/// collect text, a suppression removes the hooks with the suppressed id and the hooks that fetch the knowledge with
/// this id. Hooks at other events guard or steer a run: a suppression must name the id of the hook itself, and a
/// directive of the chain must declare the hook. One exception exists: the user of a chat can also suppress a hook
/// that only changes the system prompt.
fn suppression_reason(suppressions: &mut [Suppression], decl: &HookDecl) -> Option<String> {
    if suppressions.is_empty() {
        return None;
    }
    let collects = hook_point::row_of(decl.event).mode == Mode::Collect;
    let own = matches!(decl.source, HookSource::Directive { .. });
    if !collects && !own && !is_left_out(suppressions, decl) {
        return None;
    }
    let origin = DeclaredOrigin::hook(decl);
    let by_id = record_suppression(suppressions, &decl.id.node, &origin).then(|| decl.id.node.clone());
    let knowledge = decl.fetched.as_ref().filter(|_| collects).map(ToString::to_string);
    let by_knowledge = knowledge.filter(|id| record_suppression(suppressions, id, &origin));
    let id = by_id.or(by_knowledge)?;
    let by = suppressions.iter().find(|s| s.id == id).map(|s| &s.origin.by);
    Some(match by {
        Some(OriginKind::Directive(directive)) => format!("`{id}` is suppressed by `{directive}`"),
        Some(OriginKind::Hook(_) | OriginKind::Config(_) | OriginKind::BuiltIn) | None => {
            format!("`{id}` is suppressed")
        }
    })
}

/// Returns true if the user leaves out the hook `decl`, and if users may leave it out. Users may leave out hooks of the
/// user space and the project that set the system prompt before the turns of a user message.
fn is_left_out(suppressions: &[Suppression], decl: &HookDecl) -> bool {
    let action = decl.action.as_ref().map(|action| &action.node);
    let is_text = decl.event == HookPoint::BeforeAgentStart && matches!(action, Some(HookAction::SystemPrompt { .. }));
    let of_user = |one: &Suppression| one.id == decl.id.node && one.origin.by == OriginKind::BuiltIn;
    is_text && matches!(decl.source, HookSource::User | HookSource::Project) && suppressions.iter().any(of_user)
}

fn is_ruled_out(decl: &HookDecl, leaf: &Directive) -> bool {
    decl.compiled.as_ref().is_some_and(|condition| condition.is_false_for(leaf.id().as_str()))
}

fn evaluate_before_run(decl: &HookDecl, known: &mut KnownFacts, explain: bool) -> PlanVerdict {
    match known.verdict(decl) {
        Verdict::True => PlanVerdict::Fires,
        Verdict::Unknown(on) => PlanVerdict::Depends { on },
        Verdict::False => {
            PlanVerdict::Never { because: if explain { known.explain_false(decl) } else { String::new() } }
        }
    }
}

/// Returns the verdict of a `resolve_extends` hook after routing. The hook that set the route fires. A hook that would
/// make the directive its own parent never fires. The condition of any other hook is evaluated with the facts that were
/// known during routing. If `explain` is true, the verdict of a false condition states the reason.
fn routing_verdict(composed: &Composed, decl: &Arc<HookDecl>, known: &mut KnownFacts, explain: bool) -> PlanVerdict {
    if composed.route.as_ref().is_some_and(|r| Arc::ptr_eq(&r.hook, decl)) {
        return PlanVerdict::Fires;
    }
    if crate::resolve::route_target(decl).as_ref() == Some(&composed.id) {
        return PlanVerdict::Never {
            because: format!("the hook would set `{}` as its own extends parent", composed.id),
        };
    }
    evaluate_before_run(decl, known, explain)
}

/// Marks hooks that can never act as removed. At the event of such a hook, only the first matching hook acts, and an
/// earlier hook certainly fires.
fn remove_shadowed(hooks: &mut [ComposedHook]) {
    let mut answered: Option<String> = None;
    for hook in hooks.iter_mut() {
        if !hook.is_live() || hook_point::row_of(hook.decl.event).mode != Mode::FirstMatch {
            continue;
        }
        if let Some(by) = &answered {
            hook.verdict = PlanVerdict::Removed {
                because: format!("the hook `{by}` is evaluated first and sets the extends parent"),
            };
        } else if hook.verdict == PlanVerdict::Fires {
            answered = Some(hook.decl.id.node.clone());
        }
    }
}

/// Removes hooks whose knowledge item another part of the prompt is certain to provide. The chain and the hooks that
/// always fire are certain to provide their items.
///
/// - A hook that always fires is removed if an earlier part is certain to provide its item. This rule also applies to a
///   hook whose condition reads an input or the model, because in a run with certain values the hook always fires.
/// - Any other hook that may fire is removed if an earlier or a later part is certain to provide its item.
fn dedupe_context(composed: &mut Composed, hooks: &mut [ComposedHook]) {
    let mut live: Vec<&mut ComposedHook> = hooks.iter_mut().filter(|h| h.is_live()).collect();
    for steps in [FRESH_PROMPT.as_slice(), CONTINUATION_PROMPT.as_slice()] {
        let mut brought: Vec<Provided> = Vec::new();
        for step in steps {
            match step {
                PromptSection::Hooks(event, position) => {
                    for hook in live.iter_mut().filter(|h| h.applies_at(*event, *position)) {
                        let Some(id) = hook.decl.fetched.clone() else { continue };
                        let fires = hook.verdict == PlanVerdict::Fires;
                        if !fires && !hook.is_decided_by_request() {
                            continue;
                        }
                        if !hook.mark_provided(&brought, &id) && fires {
                            brought.push(Provided { id, hook: Some(hook.decl.id.node.clone()) });
                        }
                    }
                }
                PromptSection::Chain(part) => provide_chain_items(composed, *part, &mut brought),
            }
        }
        for step in steps {
            let PromptSection::Hooks(event, position) = step else { continue };
            for hook in live.iter_mut().filter(|h| h.applies_at(*event, *position) && !h.is_decided_by_request()) {
                if let (PlanVerdict::Depends { .. }, Some(id)) = (&hook.verdict, hook.decl.fetched.clone()) {
                    hook.mark_provided(&brought, &id);
                }
            }
        }
    }
}

/// An item that a part of the prompt is certain to provide. `hook` is `None` if the chain provides the item.
struct Provided {
    id: ItemId,
    hook: Option<String>,
}

impl ComposedHook {
    fn applies_at(&self, event: HookPoint, position: Position) -> bool {
        self.decl.event == event && self.decl.position == position
    }

    /// Returns true if the verdict depends on an input or on the model. A run knows these facts before it starts.
    fn is_decided_by_request(&self) -> bool {
        let PlanVerdict::Depends { on } = &self.verdict else { return false };
        on.iter().any(|path| matches!(path.split('.').next(), Some("inputs" | "model")))
    }

    /// Marks the hook as removed if `brought`, the knowledge that other parts of the prompt provide, contains the item
    /// `id`. Returns true if the hook was marked.
    fn mark_provided(&mut self, brought: &[Provided], id: &ItemId) -> bool {
        let Some(earlier) = brought.iter().find(|b| b.id == *id) else { return false };
        let by = earlier.hook.as_ref().map_or("the chain".to_owned(), |hook| format!("the hook `{hook}`"));
        self.verdict = PlanVerdict::Removed { because: format!("{by} already adds `{id}`") };
        true
    }
}

fn provide_chain_items(composed: &mut Composed, part: ChainPart, brought: &mut Vec<Provided>) {
    let list = match part {
        ChainPart::System => &mut composed.system,
        ChainPart::Before => &mut composed.before,
        ChainPart::After => &mut composed.after,
    };
    let duplicates = &mut composed.duplicates;
    list.retain(|item| {
        let Some(earlier) = brought.iter().find(|b| b.id == item.id) else {
            brought.push(Provided { id: item.id.clone(), hook: None });
            return true;
        };
        let by = earlier.hook.clone().map_or(OriginKind::BuiltIn, OriginKind::Hook);
        duplicates.push(DuplicateContext {
            id: item.id.clone(),
            kept: DeclaredOrigin { by, span: None },
            dropped: item.origin.clone(),
        });
        false
    });
}

/// A section of the prompt. [`FRESH_PROMPT`] and [`CONTINUATION_PROMPT`] list the sections in the order of sending.
#[derive(Clone, Copy)]
enum PromptSection {
    Hooks(HookPoint, Position),
    Chain(ChainPart),
}

#[derive(Clone, Copy)]
enum ChainPart {
    System,
    Before,
    After,
}

const FRESH_PROMPT: [PromptSection; 7] = [
    PromptSection::Hooks(HookPoint::BuildSystemPrompt, Position::Before),
    PromptSection::Chain(ChainPart::System),
    PromptSection::Hooks(HookPoint::BuildSystemPrompt, Position::After),
    PromptSection::Hooks(HookPoint::ThreadStarted, Position::Before),
    PromptSection::Chain(ChainPart::Before),
    PromptSection::Chain(ChainPart::After),
    PromptSection::Hooks(HookPoint::ThreadStarted, Position::After),
];

/// The sections of the prompt of a continuation: the system prompt as in a fresh thread, and the texts of the hooks
/// that fire in continuations. The knowledge that the chain adds to the first message is missing, because the
/// conversation already contains it.
const CONTINUATION_PROMPT: [PromptSection; 4] = [
    PromptSection::Hooks(HookPoint::BuildSystemPrompt, Position::Before),
    PromptSection::Chain(ChainPart::System),
    PromptSection::Hooks(HookPoint::ThreadContinued, Position::Before),
    PromptSection::Hooks(HookPoint::ThreadContinued, Position::After),
];
