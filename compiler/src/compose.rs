//! A directive with everything that makes it what it is: its chain walked, its context ordered, its hooks in line
//! (`language.md` 8). What a run needs on top of this is lowered from it.

use std::sync::Arc;

use indexmap::IndexMap;
use rye_grammar::{ItemId, Span};

use crate::hook::{HookSource, PlanVerdict, PlannedHook};
use crate::item::{Directive, Field, HookDecl, Knowledge, LimitText, ModelRequest, Permissions};
use crate::plan::NudgePolicy;

/// INVARIANT: `chain` is root first, without repeats, and not empty; its last link is the directive itself.
#[derive(Debug, Clone)]
pub struct Composed {
    pub id: ItemId,
    pub chain: Vec<Arc<Directive>>,
    /// The `resolve_extends` hook that set the leaf's parent, where one did.
    pub route: Option<Route>,
    /// Root first, each item once, suppressed ones left out. What a hook brings is in `hooks`.
    pub system: Vec<ContextItem>,
    pub before: Vec<ContextItem>,
    pub after: Vec<ContextItem>,
    pub suppressions: Vec<Suppression>,
    pub duplicates: Vec<Duplicate>,
    /// The leaf's, else the nearest ancestor's; `None` where no link has any.
    pub permissions: Option<Sourced<Permissions>>,
    pub limits: LimitLayers,
    /// The leaf's `<model>`, else the nearest ancestor's.
    pub model: Option<Sourced<ModelRequest>>,
    pub inputs: IndexMap<String, Sourced<Field>>,
    pub outputs: IndexMap<String, Sourced<Field>>,
    pub continuation: Option<Sourced<ItemId>>,
    pub nudge: Sourced<NudgePolicy>,
    /// Every hook that could apply, in evaluation order within its event; removed ones stay with their reason.
    pub hooks: Vec<ComposedHook>,
}

/// A value and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Sourced<T> {
    pub value: T,
    pub origin: Origin,
}

/// The file and place that put something here.
#[derive(Debug, Clone, PartialEq)]
pub struct Origin {
    pub by: By,
    /// `None` for what is built in.
    pub span: Option<Span>,
}

/// Who put it here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum By {
    /// A link of the chain.
    Directive(ItemId),
    Hook(String),
    /// A settings file: `agent/resilience`.
    Config(ItemId),
    /// Nobody wrote it.
    BuiltIn,
}

#[derive(Debug, Clone)]
pub struct Route {
    pub hook: Arc<HookDecl>,
    pub to: ItemId,
}

/// One knowledge item of the chain.
#[derive(Debug, Clone)]
pub struct ContextItem {
    pub id: ItemId,
    pub knowledge: Arc<Knowledge>,
    /// False for `<system>` items.
    pub wrap: bool,
    pub origin: Origin,
}

/// A `<suppress>` of the chain and what it took out.
#[derive(Debug, Clone, PartialEq)]
pub struct Suppression {
    /// A knowledge id or a hook id.
    pub id: String,
    pub origin: Origin,
    pub removed: Vec<Origin>,
}

/// A knowledge item that was brought twice.
#[derive(Debug, Clone, PartialEq)]
pub struct Duplicate {
    pub id: ItemId,
    pub kept: Origin,
    pub dropped: Origin,
}

/// Limits by layer, lowest first; the resolution is `semantics::limits`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LimitLayers {
    /// From `agent/resilience`.
    pub defaults: Vec<LimitSetting>,
    /// From the chain: per name, the leaf's, else the nearest ancestor's.
    pub directive: Vec<LimitSetting>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LimitSetting {
    pub name: String,
    pub written: LimitText,
    pub origin: Origin,
}

/// A hook with the place it has in this directive's order.
#[derive(Debug, Clone)]
pub struct ComposedHook {
    pub decl: Arc<HookDecl>,
    /// Effective: the written one, the replaced built-in's, or the source's own.
    pub layer: f64,
    /// Effective: a project hook that takes a built-in's place stands where that stood, and is still the project's.
    pub source: HookSource,
    /// What is known of it before the run.
    pub verdict: PlanVerdict,
    /// The knowledge it fetches, where the id is static and the hook is live.
    pub knowledge: Option<Arc<Knowledge>>,
    pub origin: Origin,
}

impl Composed {
    /// The directive itself: the last link.
    pub fn leaf(&self) -> Option<&Arc<Directive>> {
        self.chain.last()
    }
}

impl ComposedHook {
    /// As the plan keeps it; `None` where the hook has no action because it is disabled.
    pub fn planned(&self) -> Option<PlannedHook> {
        let action = self.decl.action.as_ref()?.node.clone();
        Some(PlannedHook {
            id: self.decl.id.node.clone(),
            event: self.decl.event,
            layer: self.layer,
            source: self.source.clone(),
            space: self.decl.space,
            position: self.decl.position,
            wrap: self.decl.wrap,
            condition: self.decl.condition_source.clone(),
            action,
            grants: self.decl.grants.iter().map(|g| g.node.0.clone()).collect(),
            on_failure: self.decl.on_failure,
            verdict: self.verdict.clone(),
        })
    }
}
