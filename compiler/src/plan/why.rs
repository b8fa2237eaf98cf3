//! `rye why`: where something in a plan comes from, or why it is not there.

use std::fmt;

use super::{Origin, Place};
use crate::compile::Compilation;
use crate::diagnostics::closest;
use crate::semantics::glob::Glob;

/// What there is to say of one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// As the plan names it: `limit.spend`, `hook.route_deploy`, `layer.rye/agent/core/Identity`.
    pub subject: String,
    pub reason: String,
    pub place: Option<Place>,
}

/// Nothing in the plan goes by that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("nothing in this plan is called `{thing}`")]
pub struct NotThere {
    pub thing: String,
    pub suggestion: Option<String>,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.reason)?;
        if let Some(place) = &self.place {
            write!(f, "\n  {place}")?;
        }
        Ok(())
    }
}

/// Everything known of `thing`: a key (`limit.spend`), or the name alone (`spend`, a hook's id, an item's id, a tool's
/// name, a capability, a pattern).
///
/// # Errors
/// Nothing is known of it; the error may hold a name that is.
pub fn why(compilation: &Compilation, thing: &str) -> Result<Vec<Why>, NotThere> {
    let mut found = Vec::new();
    for (key, origin) in &compilation.origins.0 {
        if key == thing || key.split_once('.').is_some_and(|(_, name)| name == thing) {
            found.push(told(compilation, key, origin));
        }
    }
    let name = thing.split_once('.').filter(|(kind, _)| KINDS.contains(kind)).map_or(thing, |(_, name)| name);
    hooks(compilation, name, &mut found);
    tools(compilation, name, &mut found);
    for note in compilation.notes.iter().filter(|note| note.id() == name) {
        let place = note.origin().and_then(|o| o.place.clone());
        found.push(Why { subject: note.id().to_owned(), reason: note.to_string(), place });
    }
    if found.is_empty() {
        capability(compilation, name, &mut found);
    }
    if found.is_empty() {
        let keys = compilation.origins.0.keys();
        let names = keys.clone().filter_map(|k| k.split_once('.').map(|(_, name)| name));
        let suggestion = closest(thing, keys.map(String::as_str).chain(names));
        return Err(NotThere { thing: thing.to_owned(), suggestion });
    }
    Ok(found)
}

/// The kinds of keys in `Origins`.
const KINDS: [&str; 8] = ["limit", "capability", "hook", "layer", "tool", "input", "output", "link"];

fn told(compilation: &Compilation, key: &str, origin: &Origin) -> Why {
    let value = match key.split_once('.') {
        Some(("limit", name)) => limit(compilation, name),
        Some((_, _)) | None if key == "model" => {
            Some(format!("{}/{}", compilation.plan.model.provider, compilation.plan.model.id))
        }
        Some(_) | None => None,
    };
    let reason = value.map_or_else(|| origin.because.clone(), |value| format!("{value}, {}", origin.because));
    Why { subject: key.to_owned(), reason, place: origin.place.clone() }
}

fn limit(compilation: &Compilation, name: &str) -> Option<String> {
    use crate::semantics::limits::{LimitName, Limits};
    let limits = Limits::from(compilation.plan.limits);
    let name = LimitName::parse(name)?;
    Some(if name == LimitName::Spend { format!("${}", limits.spend) } else { limits.get(name).to_string() })
}

/// Every hook of that id, with its verdict.
fn hooks(compilation: &Compilation, name: &str, found: &mut Vec<Why>) {
    use crate::hook::PlanVerdict;
    for (hook, trace) in compilation.plan.hooks.iter().zip(&compilation.hooks).filter(|(h, _)| h.id == name) {
        let verdict = match &hook.verdict {
            PlanVerdict::Fires => "fires",
            PlanVerdict::Never { .. } => "never fires",
            PlanVerdict::Depends { .. } => "may fire",
            PlanVerdict::Removed { .. } => "is removed",
        };
        let reason = format!("{verdict}: {}", trace.because);
        found.push(Why { subject: format!("hook.{name}"), reason, place: trace.place.clone() });
    }
}

/// Tools by item id, and those that did not fit.
fn tools(compilation: &Compilation, name: &str, found: &mut Vec<Why>) {
    let plan = &compilation.plan;
    for tool in plan.palette.iter().filter(|t| t.item_id.as_ref().is_some_and(|id| id.as_str() == name)) {
        let key = format!("tool.{}", tool.name);
        if let Some(origin) = compilation.origins.get(&key) {
            found.push(told(compilation, &key, origin));
        }
    }
    for tool in plan.dropped_tools.iter().filter(|t| t.item_id.as_str() == name) {
        let reason = format!("not in the palette: {}", tool.because);
        found.push(Why { subject: format!("tool.{name}"), reason, place: None });
    }
}

/// The grant that allows a capability, or that none does.
fn capability(compilation: &Compilation, name: &str, found: &mut Vec<Why>) {
    if !name.starts_with("rye.") {
        return;
    }
    let grants = &compilation.plan.capabilities.grants;
    let Some(grant) = grants.iter().find(|g| Glob::new(&g.pattern).matches(name)) else {
        let reason = "no grant allows it".to_owned();
        found.push(Why { subject: format!("capability.{name}"), reason, place: None });
        return;
    };
    let origin = compilation.origins.get(&format!("capability.{}", grant.pattern));
    let reason = format!("allowed by `{}`, {}", grant.pattern, origin.map(|o| o.because.clone()).unwrap_or_default());
    found.push(Why { subject: format!("capability.{name}"), reason, place: origin.and_then(|o| o.place.clone()) });
}
