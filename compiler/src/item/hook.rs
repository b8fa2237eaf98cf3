//! A hook as declared in YAML or XML (`language.md`, Hooks), independent of the thread that runs it.

pub mod action;
mod lookalikes;
pub mod read;

use std::cell::OnceCell;
use std::sync::Arc;

use rye_grammar::capability::Pattern;
use rye_grammar::condition::{Expr, Path};
use rye_grammar::xml::Element;
use rye_grammar::{ItemId, Span, Spanned, SyntaxError, SyntaxKind};
use serde_json::Value;

use super::FileRef;
use crate::diagnostics::Diagnostics;
use crate::hook::{HookAction, HookPoint, HookSource, OnFailure, Position};
use crate::semantics::condition::{Condition, ConditionError};
use crate::semantics::hook_table::{self, HookCandidate, HookPlace};
use crate::world::Space;

#[derive(Debug, Clone)]
pub struct HookDecl {
    pub id: Spanned<String>,
    pub event: HookPoint,
    /// The declared `layer:`. If `None`, the default layer of the source applies.
    pub layer: Option<f64>,
    pub position: Position,
    pub wrap: bool,
    pub enabled: bool,
    /// The condition as the file writes it, a mapping or a one-line text. The plan stores this form. `None` if the hook
    /// has no condition.
    pub condition_source: Option<Value>,
    /// The parsed condition; `None` if the hook has no condition and so always fires.
    pub condition: Option<Spanned<Expr>>,
    /// The compiled condition; `None` if the hook has no condition.
    pub compiled: Option<Condition>,
    /// The action; `None` only if the hook is disabled.
    pub action: Option<Spanned<HookAction>>,
    pub placeholders: HookPlaceholders,
    /// The knowledge that the hook fetches; `None` if there is none, or if its id contains a placeholder.
    pub fetched: Option<ItemId>,
    pub grants: Vec<Spanned<Pattern>>,
    pub on_failure: OnFailure,
    pub description: Option<String>,
    /// The kind of source that declares the hook. The source determines the default layer.
    pub source: HookSource,
    pub space: Space,
    /// The span of the hook's id, for the labels of diagnostics.
    pub span: Span,
}

/// The placeholders in the strings of an action, and the spans of its item and parameters.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HookPlaceholders {
    /// The span of the `item_id`, or of the `limit` of `raise`; `None` for other actions.
    pub item: Option<Span>,
    /// The parameters of the action: the name of each parameter, and the span of its value.
    pub params: Vec<(Spanned<String>, Span)>,
    /// The `${…}` placeholders in the hook's texts.
    pub facts: Vec<HookFactPlaceholder>,
    /// The `{input:…}` placeholders of the action.
    pub inputs: Vec<HookInputPlaceholder>,
    /// The texts that look like placeholders but stay text.
    pub(crate) lookalikes: Vec<HookLookalike>,
}

/// A text of an action such as `{turn}` or `$turn`, with the path of the fact that it may name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HookLookalike {
    pub text: String,
    pub path: Path,
    pub span: Span,
}

/// An `{input:…}` placeholder of an action, and the field that contains it.
#[derive(Debug, Clone, PartialEq)]
pub struct HookInputPlaceholder {
    pub name: String,
    pub span: Span,
    /// The field that contains the placeholder, such as `item_id` or `params.command`.
    pub field: String,
}

/// A `${…}` placeholder of an action, and the field that contains it.
#[derive(Debug, Clone, PartialEq)]
pub struct HookFactPlaceholder {
    pub path: Path,
    pub span: Span,
    /// The field that contains the placeholder: `item_id`, `params.command`, `reason`.
    pub field: String,
}

impl HookPlaceholders {
    /// Returns true if a field contains no placeholder.
    fn is_literal_field(&self, field: &str) -> bool {
        let facts = self.facts.iter().map(|h| &h.field);
        facts.chain(self.inputs.iter().map(|h| &h.field)).all(|f| f != field)
    }
}

impl HookDecl {
    /// Returns the span of the item that the action names. If the action names no item, returns the span of the action;
    /// if the hook has no action, the span of the hook's id.
    pub(crate) fn item_span(&self) -> Span {
        self.placeholders.item.or(self.action.as_ref().map(|a| a.span)).unwrap_or(self.span)
    }

    /// Returns true if the id of the item that the action names contains no placeholder.
    pub(crate) fn has_static_id(&self) -> bool {
        self.placeholders.is_literal_field("item_id")
    }

    /// Returns the properties of the hook that determine its place in the evaluation order.
    pub(crate) fn to_candidate(&self) -> HookCandidate<'_> {
        HookCandidate { id: &self.id.node, layer: self.layer, source: &self.source, enabled: self.enabled }
    }
}

/// Hooks in source order, with their evaluation order.
#[derive(Debug, Clone, Default)]
pub struct OrderedHooks {
    pub hooks: Vec<Arc<HookDecl>>,
    /// Evaluation order. Each entry holds an index into `hooks`.
    pub places: Vec<HookPlace>,
    excluding: OnceCell<ExcludingHooks>,
}

/// An index of the hooks whose condition is true only if the id of the directive contains a certain text of at least
/// four bytes. The index compares the last four bytes of the text: a hook is skipped for every directive whose id does
/// not contain them.
#[derive(Debug, Clone, Default)]
struct ExcludingHooks {
    /// For each hook of [`OrderedHooks`], by its index: true if `by_ending` contains the hook.
    is_excluding: Vec<bool>,
    /// The hooks of the index, each as the last bytes of the required text and the index of the hook. Sorted.
    by_ending: Vec<(TextEnding, usize)>,
}

/// The last four bytes of the text that a condition requires in the id of a directive. If the id does not contain these
/// bytes, the condition is false.
type TextEnding = [u8; 4];

impl OrderedHooks {
    pub fn new(hooks: Vec<Arc<HookDecl>>) -> Self {
        let candidates: Vec<HookCandidate<'_>> = hooks.iter().map(|h| h.to_candidate()).collect();
        let places = hook_table::order_hooks(&candidates);
        Self { hooks, places, excluding: OnceCell::new() }
    }

    /// Returns true for each hook that the check of `directive` can skip, because the id of the directive alone makes
    /// the condition of the hook false. Always false for routing hooks, removed hooks, and hooks whose condition reads
    /// the model.
    pub fn excluded(&self, directive: &str) -> Vec<bool> {
        let ExcludingHooks { is_excluding, by_ending } = self.excluding.get_or_init(|| self.find_excluding());
        let mut excluded = is_excluding.clone();
        for window in directive.as_bytes().windows(size_of::<TextEnding>()) {
            let from = by_ending.partition_point(|(ending, _)| ending.as_slice() < window);
            for (_, index) in by_ending.iter().skip(from).take_while(|(ending, _)| ending.as_slice() == window) {
                let compiled = self.hooks.get(*index).and_then(|hook| hook.compiled.as_ref());
                if let Some(is_excluded) = excluded.get_mut(*index) {
                    *is_excluded = compiled.is_some_and(|condition| condition.is_false_for(directive));
                }
            }
        }
        excluded
    }

    fn find_excluding(&self) -> ExcludingHooks {
        let mut found = ExcludingHooks { is_excluding: vec![false; self.hooks.len()], by_ending: Vec::new() };
        for place in self.places.iter().filter(|place| place.removed.is_none()) {
            let Some(hook) = self.hooks.get(place.index) else { continue };
            let Some(condition) = hook.compiled.as_ref().filter(|_| hook.event != HookPoint::ResolveExtends) else {
                continue;
            };
            let ending = condition.directive_part().and_then(|part| part.as_bytes().last_chunk::<4>());
            let Some(ending) = ending.filter(|_| !condition.roots().any(|root| root == "model")) else { continue };
            if let Some(is_excluding) = found.is_excluding.get_mut(place.index) {
                *is_excluding = true;
                found.by_ending.push((*ending, place.index));
            }
        }
        found.by_ending.sort_unstable();
        found
    }

    /// Returns the `resolve_extends` hooks among `hooks` that are neither disabled nor replaced, in evaluation order;
    /// `hooks` is in source order.
    pub fn routing<'h>(hooks: impl Iterator<Item = &'h Arc<HookDecl>>) -> Vec<Arc<HookDecl>> {
        let line = Self::new(hooks.filter(|h| h.event == HookPoint::ResolveExtends || !h.enabled).cloned().collect());
        let remaining = line.places.iter().filter(|p| p.removed.is_none());
        remaining.filter_map(|p| line.hooks.get(p.index)).cloned().collect()
    }
}

/// Reads the hooks of a directive's `<hooks>`.
pub fn from_xml(element: &Element, file: &FileRef, found: &mut Diagnostics) -> Vec<Arc<HookDecl>> {
    let parsed = rye_grammar::hooks::from_xml(element);
    found.syntax(parsed.errors);
    let source = HookSource::Directive { id: file.id.to_string() };
    let hooks = read::read_hooks(&parsed.tree, &source, file.space, found);
    read::check_unique_ids("hooks", &hooks, found);
    hooks
}

/// Converts the errors found while compiling a condition to syntax errors.
pub(crate) fn condition_errors(faults: Vec<ConditionError>) -> Vec<SyntaxError> {
    let mut errors = Vec::with_capacity(faults.len());
    for ConditionError { span, message, help } in faults {
        errors.push(SyntaxKind::Condition.error(span, message, "in this part").with_help_if(help));
    }
    errors
}
