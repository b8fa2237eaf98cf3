//! Why something is in a plan, step by step down to the directive itself, and why something is not in it. Reads what
//! lies beside the plan; nothing is decided here.

use super::{Layer, Origin, Place};
use crate::compile::{Compilation, Note};
use crate::hook::{HookSource, PlanVerdict};

/// One step of a derivation: what is so, and the line that says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    pub text: String,
    pub place: Option<Place>,
}

impl Reason {
    fn new(text: impl Into<String>, place: Option<Place>) -> Self {
        Self { text: text.into(), place }
    }
}

impl Compilation {
    /// What the thing that a note speaks of would have weighed.
    pub fn tokens_of(&self, note: &Note) -> Option<u64> {
        self.weight(Why::of(note)?, note.id())
    }

    fn weight(&self, why: Why, id: &str) -> Option<u64> {
        self.weights.get(&(why, id.to_owned())).copied()
    }
}

/// Something that a reader of the sources would expect in the plan and that is not in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absent {
    pub why: Why,
    /// A knowledge item, a hook, a tool.
    pub id: String,
    pub text: String,
    /// What it would have weighed, where that is known.
    pub tokens: Option<u64>,
    pub place: Option<Place>,
}

/// The ways of not being there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    Suppressed,
    Shadowed,
    Deduplicated,
    ConditionFalse,
    Removed,
    DroppedForSize,
}

impl Why {
    fn of(note: &Note) -> Option<Self> {
        match note {
            Note::Suppressed { .. } => Some(Self::Suppressed),
            Note::Shadowed { .. } => Some(Self::Shadowed),
            Note::Deduplicated { .. } => Some(Self::Deduplicated),
            Note::Escaped { .. } => None,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Suppressed => "suppressed",
            Self::Shadowed => "shadowed",
            Self::Deduplicated => "deduplicated",
            Self::ConditionFalse => "condition_false",
            Self::Removed => "removed",
            Self::DroppedForSize => "dropped_for_size",
        }
    }
}

/// The steps behind a key of the origins (`layer.ID`, `tool.NAME`, `limit.NAME`, …), the nearest first; empty where the
/// directive itself is the last word.
pub fn reasons(compilation: &Compilation, key: &str) -> Vec<Reason> {
    let Some(origin) = compilation.origins.get(key) else { return Vec::new() };
    match key.split_once('.') {
        Some(("hook", id)) => hook(compilation, id),
        Some(("tool", _)) => tool(compilation, origin),
        Some(("link", id)) => chain(compilation, id),
        Some(_) | None => declared(compilation, origin),
    }
}

/// The steps behind one layer of the prompt, its own line first.
pub fn layer(compilation: &Compilation, layer: &Layer) -> Vec<Reason> {
    if let Some(id) = &layer.hook {
        let place = compilation.origins.get(&format!("hook.{id}")).and_then(|o| o.place.clone());
        let mut steps = vec![Reason::new(format!("brought by the hook `{id}`"), place)];
        steps.extend(hook(compilation, id));
        return steps;
    }
    let Some(origin) = compilation.origins.get(&format!("layer.{}", layer.id)) else { return Vec::new() };
    let mut steps = vec![Reason::new(origin.because.clone(), origin.place.clone())];
    steps.extend(declared(compilation, origin));
    steps
}

/// What an origin leads to: its hook's verdict, or the links between its directive and the leaf.
fn declared(compilation: &Compilation, origin: &Origin) -> Vec<Reason> {
    if let Some(id) = quoted(&origin.because, "brought by the hook `") {
        return hook(compilation, id);
    }
    quoted(&origin.because, "declared by `").map(|id| chain(compilation, id)).unwrap_or_default()
}

fn quoted<'t>(text: &'t str, before: &str) -> Option<&'t str> {
    text.strip_prefix(before)?.strip_suffix('`')
}

/// Why a link is one: each child down to the leaf, with the line that extends.
fn chain(compilation: &Compilation, id: &str) -> Vec<Reason> {
    let chain = &compilation.plan.chain;
    let Some(at) = chain.iter().position(|link| link.id.as_str() == id) else { return Vec::new() };
    let mut steps = Vec::new();
    for pair in chain.get(at..).unwrap_or_default().windows(2) {
        let [parent, child] = pair else { continue };
        let origin = compilation.origins.get(&format!("extends.{}", child.id));
        let routed = compilation.plan.route.as_ref().filter(|_| child.id == compilation.plan.directive);
        let Some(route) = routed else {
            let text = format!("`{}` extends `{}`", child.id, parent.id);
            steps.push(Reason::new(text, origin.and_then(|o| o.place.clone())));
            continue;
        };
        let extends = compilation.origins.get("extends").and_then(|o| o.place.clone());
        let text = format!("`{}` extends `{}`, set by the hook `{route}`", child.id, parent.id);
        steps.push(Reason::new(text, extends));
        steps.extend(hook(compilation, route));
    }
    steps
}

/// Whether a hook fires and why, and where it comes from.
fn hook(compilation: &Compilation, id: &str) -> Vec<Reason> {
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
    let mut steps = vec![Reason::new(format!("{verdict}: {}", trace.because), None)];
    if let HookSource::Directive { id } = &hook.source {
        steps.extend(chain(compilation, id));
    }
    steps
}

/// The grant behind a tool, and who grants.
fn tool(compilation: &Compilation, origin: &Origin) -> Vec<Reason> {
    let Some(pattern) = quoted(&origin.because, "granted by `") else { return Vec::new() };
    let Some(grant) = compilation.origins.get(&format!("capability.{pattern}")) else { return Vec::new() };
    let mut steps = vec![Reason::new(format!("`{pattern}`: {}", grant.because), grant.place.clone())];
    steps.extend(declared(compilation, grant));
    steps
}

/// Everything that is not in the plan although something names it.
pub fn absent(compilation: &Compilation) -> Vec<Absent> {
    let mut all = Vec::new();
    for note in &compilation.notes {
        let Some(why) = Why::of(note) else { continue };
        let place = note.origin().and_then(|o| o.place.clone());
        let id = note.id().to_owned();
        all.push(Absent { why, tokens: compilation.weight(why, &id), id, text: note.to_string(), place });
    }
    for (hook, trace) in compilation.plan.hooks.iter().zip(&compilation.hooks) {
        let why = match &hook.verdict {
            PlanVerdict::Never { .. } => Why::ConditionFalse,
            PlanVerdict::Removed { .. } => Why::Removed,
            PlanVerdict::Fires | PlanVerdict::Depends { .. } => continue,
        };
        let (id, text) = (hook.id.clone(), trace.because.clone());
        all.push(Absent { why, tokens: compilation.weight(why, &id), id, text, place: trace.place.clone() });
    }
    for tool in &compilation.plan.dropped_tools {
        let (id, text) = (tool.item_id.to_string(), tool.because.clone());
        all.push(Absent { why: Why::DroppedForSize, id, text, tokens: Some(tool.tokens), place: None });
    }
    all
}
