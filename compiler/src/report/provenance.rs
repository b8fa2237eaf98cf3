//! Derivations: why an item is in a plan, step by step from the directive, and why an item was omitted. The steps come
//! from the origins and notes that the compiler records beside the plan.

use schemars::JsonSchema;
use serde::Serialize;

use crate::compile::Compilation;
use crate::hook::{HookSource, PlanVerdict};
use crate::plan::note::OmissionReason;
use crate::plan::{Layer, Origin, OriginCause, OriginKind, SourcePlace};

/// A step of a derivation: a statement and the source line it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DerivationStep {
    pub kind: StepKind,
    pub text: String,
    pub place: Option<SourcePlace>,
}

/// The role of a step in the explanation of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// A reason for the explained value.
    Cause,
    /// An edit that would change the explained value, or a further condition for the effect of the edit.
    Fix,
}

impl StepKind {
    /// Returns the words that precede the text of a step in human output: `because` or `help:`.
    pub fn lead(self) -> &'static str {
        match self {
            Self::Cause => "because",
            Self::Fix => "help:",
        }
    }
}

impl DerivationStep {
    /// Creates a step of the kind [`StepKind::Cause`].
    pub fn new(text: impl Into<String>, place: Option<SourcePlace>) -> Self {
        Self { kind: StepKind::Cause, text: text.into(), place }
    }

    /// Creates a step of the kind [`StepKind::Fix`].
    pub(crate) fn new_fix(text: impl Into<String>, place: Option<SourcePlace>) -> Self {
        Self { kind: StepKind::Fix, text: text.into(), place }
    }
}

/// An item that a file declares, but that the plan omits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Omission {
    pub why: OmissionReason,
    /// Id of a knowledge item, a hook or a tool.
    pub id: String,
    pub text: String,
    /// Token estimate, if the plan contains one; `OmittedTokens` has the estimates of the other
    /// items.
    pub tokens: Option<u64>,
    pub place: Option<SourcePlace>,
}

/// Returns the derivation of an origin key (`layer.ID`, `tool.NAME`, `limit.NAME`, …), nearest step first. Empty if the
/// plan has no such key, or if the origin is the directive itself, a settings file or a built-in default.
pub fn derive(compilation: &Compilation, key: &str) -> Vec<DerivationStep> {
    let Some(origin) = compilation.origins.get(key) else { return Vec::new() };
    match key.split_once('.') {
        Some(("hook", id)) => derive_hook(compilation, id),
        Some(("tool", _)) => derive_tool(compilation, origin),
        Some(("link", id)) => derive_chain(compilation, id),
        Some(_) | None => derive_declaration(compilation, origin),
    }
}

/// Returns the derivation of one prompt layer, starting with the line that declares it.
pub(crate) fn derive_layer(compilation: &Compilation, layer: &Layer) -> Vec<DerivationStep> {
    if let Some(id) = &layer.hook {
        let place = compilation.origins.get(&format!("hook.{id}")).and_then(|o| o.place.clone());
        let mut steps = vec![DerivationStep::new(format!("added by the hook `{id}`"), place)];
        steps.extend(derive_hook(compilation, id));
        return steps;
    }
    let Some(origin) = compilation.origins.get(&format!("layer.{}", layer.id)) else { return Vec::new() };
    let mut steps = vec![DerivationStep::new(origin.cause.to_string(), origin.place.clone())];
    steps.extend(derive_declaration(compilation, origin));
    steps
}

/// Returns the steps that explain why the plan contains the declaration at `origin`. For a hook, the steps explain the
/// hook ([`derive_hook`]). For a directive, the steps are the `extends` links from this directive to the leaf. Empty
/// for any other origin.
fn derive_declaration(compilation: &Compilation, origin: &Origin) -> Vec<DerivationStep> {
    let OriginCause::Declared(kind) = &origin.cause else { return Vec::new() };
    match kind {
        OriginKind::Hook(id) => derive_hook(compilation, id),
        OriginKind::Directive(id) => derive_chain(compilation, id.as_str()),
        OriginKind::Config(_) | OriginKind::BuiltIn => Vec::new(),
    }
}

/// Returns the steps that put the directive `id` into the extends chain: one step for each of its descendants in the
/// chain, with the line at which the descendant extends its parent.
fn derive_chain(compilation: &Compilation, id: &str) -> Vec<DerivationStep> {
    let chain = &compilation.plan.chain;
    let Some(at) = chain.iter().position(|link| link.id.as_str() == id) else { return Vec::new() };
    let mut steps = Vec::new();
    for pair in chain.get(at..).unwrap_or_default().windows(2) {
        let [parent, child] = pair else { continue };
        let origin = compilation.origins.get(&format!("extends.{}", child.id));
        let routed = compilation.plan.route.as_ref().filter(|_| child.id == compilation.plan.directive);
        let Some(route) = routed else {
            let text = format!("`{}` extends `{}`", child.id, parent.id);
            steps.push(DerivationStep::new(text, origin.and_then(|o| o.place.clone())));
            continue;
        };
        let extends = compilation.origins.get("extends").and_then(|o| o.place.clone());
        let text = format!("`{}` extends `{}`, set by the hook `{route}`", child.id, parent.id);
        steps.push(DerivationStep::new(text, extends));
        steps.extend(derive_hook(compilation, route));
    }
    steps
}

/// Returns the steps that explain a hook: its verdict with the reason and, if a directive declares the hook, the steps
/// that put this directive into the extends chain. Empty if the plan has no hook with this id.
fn derive_hook(compilation: &Compilation, id: &str) -> Vec<DerivationStep> {
    let all = || compilation.plan.hooks.iter().zip(&compilation.hooks).filter(|(hook, _)| hook.id == id);
    let Some((hook, trace)) = all().find(|(hook, _)| hook.is_live()).or_else(|| all().next()) else {
        return Vec::new();
    };
    let verdict = match &hook.verdict {
        PlanVerdict::Fires => "it fires",
        PlanVerdict::Never { .. } => "it never fires",
        PlanVerdict::Depends { .. } => "it may fire",
        PlanVerdict::Removed { .. } => "it is removed",
    };
    let mut steps = vec![DerivationStep::new(format!("{verdict}: {}", trace.because), None)];
    if let HookSource::Directive { id } = &hook.source {
        steps.extend(derive_chain(compilation, id));
    }
    steps
}

/// Returns two steps: the grant that offers a tool, and the declaration of this grant. Empty if no grant offers the
/// tool.
fn derive_tool(compilation: &Compilation, origin: &Origin) -> Vec<DerivationStep> {
    let OriginCause::Grant(pattern) = &origin.cause else { return Vec::new() };
    let Some(grant) = compilation.origins.get(&format!("capability.{pattern}")) else { return Vec::new() };
    let mut steps = vec![DerivationStep::new(format!("`{pattern}`: {}", grant.cause), grant.place.clone())];
    steps.extend(derive_declaration(compilation, grant));
    steps
}

/// Lists the knowledge items, hooks and tools that files declare and the plan omits, each with the reason.
pub(crate) fn list_omissions(compilation: &Compilation) -> Vec<Omission> {
    let mut all = Vec::new();
    for note in &compilation.notes {
        let Some(why) = OmissionReason::of(note) else { continue };
        let place = note.origin().and_then(|o| o.place.clone());
        let id = note.id().to_owned();
        all.push(Omission { why, tokens: None, id, text: note.to_string(), place });
    }
    for (hook, trace) in compilation.plan.hooks.iter().zip(&compilation.hooks) {
        let why = match &hook.verdict {
            PlanVerdict::Never { .. } => OmissionReason::ConditionFalse,
            PlanVerdict::Removed { .. } => OmissionReason::Removed,
            PlanVerdict::Fires | PlanVerdict::Depends { .. } => continue,
        };
        let (id, text) = (hook.id.clone(), trace.because.clone());
        all.push(Omission { why, tokens: None, id, text, place: trace.place.clone() });
    }
    for tool in &compilation.plan.dropped_tools {
        let (id, text) = (tool.item_id.to_string(), tool.because.clone());
        let why = if tool.refused { OmissionReason::Refused } else { OmissionReason::DroppedForSize };
        all.push(Omission { why, id, text, tokens: Some(tool.tokens), place: None });
    }
    all
}
