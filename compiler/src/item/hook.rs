//! A hook as it was written, in YAML or XML (`language.md` 7): everything about it that does not depend on which
//! thread it serves.

pub mod action;
pub mod read;

use std::sync::Arc;

use rye_grammar::capability::Pattern;
use rye_grammar::condition::{Expr, Path};
use rye_grammar::xml::Element;
use rye_grammar::{ItemId, Span, Spanned, SyntaxError, SyntaxKind};
use serde_json::Value;

use super::FileRef;
use crate::diagnostics::Diagnostics;
use crate::hook::{HookAction, HookPoint, HookSource, OnFailure, Position};
use crate::semantics::condition::{Condition, ConditionFault};
use crate::semantics::hook_table::{self, Candidate, Place};
use crate::world::Space;

#[derive(Debug, Clone)]
pub struct HookDecl {
    pub id: Spanned<String>,
    pub event: HookPoint,
    /// `layer:` where it was written; else the source's own layer counts.
    pub layer: Option<f64>,
    pub position: Position,
    pub wrap: bool,
    pub enabled: bool,
    /// The condition as written (mapping form or one-line text), for the plan.
    pub condition_source: Option<Value>,
    /// `None` = always.
    pub condition: Option<Spanned<Expr>>,
    /// [`HookDecl::condition`], ready to be evaluated.
    pub compiled: Option<Condition>,
    /// Missing only where the hook is disabled.
    pub action: Option<Spanned<HookAction>>,
    pub holes: HookHoles,
    /// The knowledge it fetches, where the id is static.
    pub fetched: Option<ItemId>,
    pub grants: Vec<Spanned<Pattern>>,
    pub on_failure: OnFailure,
    pub description: Option<String>,
    /// Where it was written: with the space, this gives its layer.
    pub source: HookSource,
    pub space: Space,
    /// The hook's own entry, for labels: its id.
    pub span: Span,
}

/// What the action's strings ask to be filled in, and where its parts stand.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HookHoles {
    /// The `item_id`, or what another action names.
    pub item: Option<Span>,
    /// Each parameter's name, and its value's place.
    pub params: Vec<(Spanned<String>, Span)>,
    /// `${…}` holes.
    pub facts: Vec<HookHole>,
    /// `{input:…}` holes.
    pub inputs: Vec<InputHole>,
}

/// One `{input:…}` of an action and where it would go.
#[derive(Debug, Clone, PartialEq)]
pub struct InputHole {
    pub name: String,
    pub span: Span,
    /// As [`HookHole::field`].
    pub field: String,
}

/// One `${…}` of an action and where it would go.
#[derive(Debug, Clone, PartialEq)]
pub struct HookHole {
    pub path: Path,
    pub span: Span,
    /// The field it stands in: `item_id`, `params.command`, `reason`.
    pub field: String,
}

impl HookHoles {
    /// Whether a field is written without holes.
    pub fn spare(&self, field: &str) -> bool {
        let facts = self.facts.iter().map(|h| &h.field);
        facts.chain(self.inputs.iter().map(|h| &h.field)).all(|f| f != field)
    }
}

impl HookDecl {
    /// Where the item stands that its action names; else the whole action.
    pub fn item_span(&self) -> Span {
        self.holes.item.or(self.action.as_ref().map(|a| a.span)).unwrap_or(self.span)
    }

    /// Whether which item it uses is known before the run.
    pub fn has_static_id(&self) -> bool {
        self.holes.spare("item_id")
    }

    /// As the table of hooks orders it.
    pub fn candidate(&self) -> Candidate<'_> {
        Candidate { id: &self.id.node, layer: self.layer, source: &self.source, enabled: self.enabled }
    }
}

/// Hooks in source order, and how they stand among each other.
#[derive(Debug, Clone, Default)]
pub struct HookLine {
    pub hooks: Vec<Arc<HookDecl>>,
    /// In evaluation order; indices into `hooks`.
    pub places: Vec<Place>,
}

impl HookLine {
    pub fn new(hooks: Vec<Arc<HookDecl>>) -> Self {
        let candidates: Vec<Candidate<'_>> = hooks.iter().map(|h| h.candidate()).collect();
        let places = hook_table::order(&candidates);
        Self { hooks, places }
    }

    /// Of hooks in source order, the live ones that route a directive, in evaluation order.
    pub fn routing<'h>(hooks: impl Iterator<Item = &'h Arc<HookDecl>>) -> Vec<Arc<HookDecl>> {
        let line = Self::new(hooks.filter(|h| h.event == HookPoint::ResolveExtends || !h.enabled).cloned().collect());
        let standing = line.places.iter().filter(|p| p.removed.is_none());
        standing.filter_map(|p| line.hooks.get(p.index)).cloned().collect()
    }
}

/// The hooks of a directive's `<hooks>`.
pub fn from_xml(element: &Element, file: &FileRef, found: &mut Diagnostics) -> Vec<Arc<HookDecl>> {
    let parsed = rye_grammar::hooks::from_xml(element);
    found.syntax(parsed.errors);
    let source = HookSource::Directive { id: file.id.to_string() };
    let hooks = read::list(&parsed.tree, &source, file.space, found);
    read::unique(&hooks, found);
    hooks
}

/// Static errors of a condition, as every other syntax error.
pub fn faults(faults: Vec<ConditionFault>) -> Vec<SyntaxError> {
    let mut errors = Vec::with_capacity(faults.len());
    for ConditionFault { span, message, help } in faults {
        errors.push(SyntaxKind::Condition.error(span, message, "in this part").with_help_if(help));
    }
    errors
}
