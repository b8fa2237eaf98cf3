//! The `rye why` command: explains where an item of a plan comes from, or why it was omitted.

use std::fmt;

use rye_grammar::data::Node;
use rye_grammar::{ItemId, Span};

use crate::compile::Compilation;
use crate::diagnostics::closest;
use crate::item::{Directive, Items};
use crate::lower::cache::PROVIDER_PREFIX;
use crate::lower::origin;
use crate::lower::session_limits::SESSION_LIMIT;
use crate::palette::missing_needs;
use crate::plan::{Origin, SourcePlace};
use crate::report::intake::find_skill;
use crate::report::limit_lattice::limit_lattice;
use crate::report::missing_grant::explain_missing_grants;
use crate::report::provenance::{DerivationStep, derive, derive_layer};
use crate::report::render::text::dollars;
use crate::report::render::view;
use crate::semantics::capability::Primary;
use crate::semantics::glob::Glob;
use crate::semantics::hook_point;
use crate::semantics::limits::{LimitName, Limits};
use crate::validate::granted_places;
use crate::world::World;

/// The explanation of one part of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Key of the explained part of the plan: `limit.spend`, `hook.route_deploy`, `layer.rye/agent/core/Identity`.
    pub subject: String,
    pub reason: String,
    pub place: Option<SourcePlace>,
    /// The steps of the derivation, nearest cause first.
    pub steps: Vec<DerivationStep>,
}

/// The error for a name that the plan does not contain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this plan contains nothing named `{thing}`")]
pub struct NotInPlan {
    pub thing: String,
    pub suggestion: Option<String>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.reason)?;
        if let Some(place) = &self.place {
            write!(f, "\n  {place}")?;
        }
        for step in &self.steps {
            write!(f, "\n  {} {}", step.kind.lead(), step.text)?;
            if let Some(place) = &step.place {
                write!(f, "\n    {place}")?;
            }
        }
        Ok(())
    }
}

/// Explains `thing`: a key (`limit.spend`) or a bare name (`spend`, a hook's id, an item's id, a tool's name, a
/// capability, a pattern).
///
/// # Errors
/// Fails if the plan does not contain the name; the error may suggest a similar one.
pub fn explain(world: &dyn World, compilation: &Compilation, thing: &str) -> Result<Vec<Explanation>, NotInPlan> {
    let mut found = Vec::new();
    explain_layers(compilation, thing, &mut found);
    for (key, origin) in &compilation.origins.0 {
        // Prompt layers are explained above, and hooks are explained below with their verdict, so the loop skips both.
        let has_subject = found.iter().any(|why: &Explanation| why.subject == *key) || key.starts_with("hook.");
        if !has_subject && (key == thing || key.split_once('.').is_some_and(|(_, name)| name == thing)) {
            let mut one = explain_origin(compilation, key, origin);
            if let Some(limit) = key.strip_prefix("limit.").and_then(LimitName::parse) {
                one.steps = limit_lattice(world, compilation, limit);
            }
            found.push(one);
        }
    }
    explain_declared(world, compilation, thing, &mut found);
    explain_skill(world, compilation, thing, &mut found);
    let name = thing.split_once('.').filter(|(kind, _)| ORIGIN_KINDS.contains(kind)).map_or(thing, |(_, name)| name);
    explain_hooks(compilation, name, &mut found);
    explain_tools(compilation, name, &mut found);
    if found.is_empty() {
        explain_knowledge_of_hooks(compilation, name, &mut found);
    }
    for note in compilation.notes.iter().filter(|note| note.id() == name) {
        let place = note.origin().and_then(|o| o.place.clone());
        found.push(Explanation { subject: note.id().to_owned(), reason: note.to_string(), place, steps: Vec::new() });
    }
    if found.is_empty() {
        explain_capability(compilation, name, &mut found);
    }
    if found.is_empty() && name == "extends" && compilation.plan.chain.len() == 1 {
        let id = &compilation.plan.directive;
        let reason = format!("`{id}` has no parent: it has no `extends`, and no `resolve_extends` hook sets one");
        let place = compilation.origins.get(&format!("link.{id}")).and_then(|origin| origin.place.clone());
        found.push(Explanation { subject: "extends".to_owned(), reason, place, steps: Vec::new() });
    }
    if found.is_empty() {
        let keys = compilation.origins.0.keys();
        let names = keys.clone().filter_map(|k| k.split_once('.').map(|(_, name)| name));
        let suggestion = closest(thing, keys.map(String::as_str).chain(names));
        return Err(NotInPlan { thing: thing.to_owned(), suggestion });
    }
    Ok(found)
}

/// Explains `thing` like [`explain`]. If the plan does not contain `thing`, explains which grants are missing for it.
///
/// # Errors
/// Fails if the plan does not contain the name, and the name is neither a capability, the id of an item nor the tool of
/// a primary.
pub fn explain_with_missing_grants(
    world: &dyn World,
    compilation: &Compilation,
    thing: &str,
) -> Result<Vec<Explanation>, NotInPlan> {
    let explained = explain(world, compilation, thing).map(|found| with_unmet_needs(world, compilation, found));
    explained.or_else(|missing| {
        let name = thing.strip_prefix("capability.").or_else(|| thing.strip_prefix("tool.")).unwrap_or(thing);
        let mut found = explain_missing_grants(world, compilation, name);
        if let Some(primary) = Primary::ALL.into_iter().find(|primary| primary.tool_name() == name) {
            let reason = format!("not in the palette: no grant of `{}` uses this primary", compilation.plan.directive);
            let grant = format!("a grant in `<{primary}>` adds the tool to the palette");
            let steps = vec![DerivationStep::new_fix(grant, None)];
            found.push(Explanation { subject: format!("tool.{name}"), reason, place: None, steps });
        }
        if found.is_empty() { Err(missing) } else { Ok(found) }
    })
}

/// Adds a step to the explanation of each granted tool that needs a folder or host which no grant gives. The step
/// states that every call of the tool is refused.
fn with_unmet_needs(world: &dyn World, compilation: &Compilation, mut found: Vec<Explanation>) -> Vec<Explanation> {
    let items = Items::new(world);
    let declaring = compilation.plan.capabilities.from.as_ref().and_then(|id| items.directive(id));
    let Some(permissions) = declaring.as_ref().and_then(|directive| directive.permissions.as_ref()) else {
        return found;
    };
    let granted = |name: &str| {
        let tool = compilation.plan.palette.iter().find(|tool| *tool.name == *name)?;
        tool.item_id.clone()
    };
    for one in &mut found {
        let id = match one.subject.split_once('.') {
            Some(("tool", name)) => granted(name),
            Some(("capability", name)) => name.strip_prefix("rye.execute.tool.").and_then(ItemId::from_dotted),
            _ => None,
        };
        let Some(tool) = id.and_then(|id| items.tool(&id)) else { continue };
        let (write, net) = granted_places(permissions, &tool.file.id);
        if let Some(needs) = missing_needs(&tool, &write, &net) {
            let text = format!("write `<tool {needs}>` in the grant: otherwise every call is refused");
            one.steps.push(DerivationStep::new_fix(text, None));
        }
    }
    found
}

/// Explains every prompt layer with this id, including its size.
fn explain_layers(compilation: &Compilation, thing: &str, found: &mut Vec<Explanation>) {
    let name = thing.strip_prefix("layer.").unwrap_or(thing);
    let (system, first, continued) = view::view_prompt(&compilation.plan, &compilation.origins);
    let items = compilation.plan.continuation_items();
    for (message, view) in [("system prompt", system), ("first message", first), ("continuation", continued)] {
        for shown in view.layers.iter().filter(|shown| shown.layer.id == name) {
            let mut steps = derive_layer(compilation, &shown.layer);
            let first = if steps.is_empty() { None } else { Some(steps.remove(0)) };
            let (text, place) = first.map_or((shown.via.clone(), None), |step| (step.text, step.place));
            let mut reason = format!("in the {message}, {} tokens, {} bytes, {text}", shown.tokens, shown.bytes);
            if let Some(item) = items.iter().find(|item| item.id == name).filter(|_| message == "first message") {
                reason = format!("{reason}; {item}");
            }
            found.push(Explanation {
                subject: format!("layer.{name}"),
                reason,
                place: place.or(shown.place.clone()),
                steps,
            });
        }
    }
}

/// Explains a skill of a chat by its id with a prefix (`skill/tidy`), or by the text that calls it (`/skill:tidy`).
fn explain_skill(world: &dyn World, compilation: &Compilation, thing: &str, found: &mut Vec<Explanation>) {
    let prefixes = ["skill/", "/skill:", "skill."];
    let Some(name) = prefixes.into_iter().find_map(|prefix| thing.strip_prefix(prefix)) else { return };
    let Some(entry) = find_skill(world, compilation, name) else { return };
    let place = entry.source.as_ref().map(|source| SourcePlace {
        file: source.file.clone(),
        line: source.line,
        column: source.column,
    });
    let (subject, reason) = (format!("skill.{name}"), entry.describe());
    found.push(Explanation { subject, reason, place, steps: Vec::new() });
}

/// The first segments of the keys in `Origins`, such as `limit` in `limit.spend`.
const ORIGIN_KINDS: [&str; 10] =
    ["limit", SESSION_LIMIT, "capability", "hook", "layer", "tool", "input", "output", "link", "extends"];

fn explain_origin(compilation: &Compilation, key: &str, origin: &Origin) -> Explanation {
    let value = match key.split_once('.') {
        Some(("limit", name)) => explain_limit(&Limits::from(compilation.plan.limits), name),
        Some((SESSION_LIMIT, name)) => {
            compilation.plan.session_limits.and_then(|limits| explain_limit(&Limits::from(limits), name))
        }
        Some((_, _)) | None if key == "model" => {
            Some(format!("{}/{}", compilation.plan.model.provider, compilation.plan.model.id))
        }
        Some(_) | None => None,
    };
    let reason = value.map_or_else(|| origin.cause.to_string(), |value| format!("{value}, {}", origin.cause));
    Explanation { subject: key.to_owned(), reason, place: origin.place.clone(), steps: derive(compilation, key) }
}

/// Explains the parts of a plan that have no origin of their own: the model and the fallback model, the provider, the
/// reminders, the description and the category. The models have the names that `rye plan` prints.
fn explain_declared(world: &dyn World, compilation: &Compilation, thing: &str, found: &mut Vec<Explanation>) {
    let (plan, items) = (&compilation.plan, Items::new(world));
    let place = |span: Span| origin::plan_place(&items.sources(), span);
    let model_settings = items.config_by_name("agent/models");
    for one in found.iter_mut().filter(|one| one.subject == "model" && one.place.is_none()) {
        let chosen = model_settings.as_ref().and_then(|file| file.get("default_provider"));
        one.place = chosen.and_then(|node| place(node.span));
    }
    let mut add = |subject: &str, reason: String, place: Option<SourcePlace>| {
        found.push(Explanation { subject: subject.to_owned(), reason, place, steps: Vec::new() });
    };
    let declaring = |of: &dyn Fn(&Directive) -> Option<Span>| {
        plan.chain.iter().rev().find_map(|link| {
            let span = of(&*items.directive(&link.id)?)?;
            Some((link.id.clone(), place(span)))
        })
    };
    let models = [Some(("model", &plan.model)), plan.model.fallback.as_deref().map(|model| ("fallback", model))];
    for (subject, model) in models.into_iter().flatten() {
        let file = items.config_by_name(&format!("{PROVIDER_PREFIX}{}", model.provider));
        let whole = format!("{}/{}", model.provider, model.id);
        if thing == subject && subject == "fallback" {
            let by = declaring(&|directive| directive.model.as_ref()?.fallback.as_ref().map(|word| word.span));
            let reason = by.as_ref().map_or(whole.clone(), |(id, _)| format!("{whole}, declared by `{id}`"));
            add(subject, reason, by.and_then(|(_, place)| place));
        } else if thing == whole || thing == model.id {
            let is_model = |entry: &&Node| entry.get("id").and_then(Node::as_str) == Some(&model.id);
            let listed = file.as_ref().and_then(|file| file.get("models")?.items().iter().find(is_model));
            let reason = format!("the {subject} of this plan, listed by the provider `{}`", model.provider);
            add(&whole, reason, listed.and_then(|entry| place(entry.span)));
        } else if thing == model.provider && subject == "model" {
            let reason = format!("the provider of `{whole}`, the model of this plan");
            add(&format!("provider {thing}"), reason, file.and_then(|file| place(file.span)));
        }
    }
    match thing {
        "nudge" => {
            let by = declaring(&|directive| directive.nudge.as_ref().map(|word| word.span));
            let policy = serde_json::to_value(plan.nudge).unwrap_or_default();
            let policy = policy.as_str().unwrap_or_default().to_owned();
            let default = "the built-in default: no directive of the chain declares `<nudge>`";
            let cause = by.as_ref().map_or(default.to_owned(), |(id, _)| format!("declared by `{id}`"));
            // If no directive declares `<nudge>`, the place is the last directive of the chain, which can declare it.
            let leaf = || compilation.origins.get(&format!("link.{}", plan.directive))?.place.clone();
            add(thing, format!("{policy}, {cause}"), by.and_then(|(_, place)| place).or_else(leaf));
        }
        "description" | "category" => {
            let text = if thing == "category" { plan.category.clone() } else { plan.description.clone() };
            let leaf = compilation.origins.get(&format!("link.{}", plan.directive));
            add(thing, format!("{text:?}, of `{}`", plan.directive), leaf.and_then(|origin| origin.place.clone()));
        }
        _ => {}
    }
}

fn explain_limit(limits: &Limits, name: &str) -> Option<String> {
    let name = LimitName::parse(name)?;
    Some(if name == LimitName::Spend { dollars(limits.spend) } else { limits.get(name).to_string() })
}

/// Explains every hook with this id, including its verdict.
fn explain_hooks(compilation: &Compilation, name: &str, found: &mut Vec<Explanation>) {
    use crate::hook::{HookSource, PlanVerdict};
    for (hook, trace) in compilation.plan.hooks.iter().zip(&compilation.hooks).filter(|(h, _)| h.id == name) {
        let verdict = match &hook.verdict {
            PlanVerdict::Fires => "fires",
            PlanVerdict::Never { .. } => "never fires",
            PlanVerdict::Depends { .. } => "may fire",
            PlanVerdict::Removed { .. } => "is removed",
        };
        let reason = format!("{verdict}: {}", describe_cause(&hook.verdict, &trace.because));
        let steps = match &hook.source {
            HookSource::Directive { id } => derive(compilation, &format!("link.{id}")),
            HookSource::User | HookSource::Builtin | HookSource::Project | HookSource::Infrastructure => Vec::new(),
        };
        found.push(Explanation { subject: format!("hook.{name}"), reason, place: trace.place.clone(), steps });
    }
}

/// Explains knowledge that only hooks add: lists each hook that fetches the knowledge, with its verdict.
fn explain_knowledge_of_hooks(compilation: &Compilation, name: &str, found: &mut Vec<Explanation>) {
    use crate::hook::PlanVerdict;
    let hooks = compilation.plan.hooks.iter().zip(&compilation.hooks);
    for (hook, trace) in hooks.filter(|(hook, _)| hook.action.knowledge() == Some(name)) {
        let id = &hook.id;
        let event = hook_point::row_of(hook.event).name;
        let because = describe_cause(&hook.verdict, &trace.because);
        let reason = match &hook.verdict {
            PlanVerdict::Fires => format!("added by the hook `{id}` at `{event}`: {because}"),
            PlanVerdict::Depends { .. } => format!("added by the hook `{id}` if it fires at `{event}`: {because}"),
            PlanVerdict::Never { .. } => {
                format!("absent: the hook `{id}` would add the layer, but never fires: {because}")
            }
            PlanVerdict::Removed { .. } => {
                format!("absent: the hook `{id}` would add the layer, but the hook is removed: {because}")
            }
        };
        let place = trace.place.clone();
        found.push(Explanation { subject: format!("layer.{name}"), reason, place, steps: Vec::new() });
    }
}

/// Returns the reason of a verdict. If the verdict is certain because of the values of inputs, adds that the reason
/// applies to the inputs of this plan.
fn describe_cause(verdict: &crate::hook::PlanVerdict, because: &str) -> String {
    let is_constant = matches!(verdict, crate::hook::PlanVerdict::Never { .. } | crate::hook::PlanVerdict::Fires);
    if is_constant && because.contains("`inputs.") {
        format!("{because}, with the inputs of this plan (`rye plan ID --all` covers other inputs)")
    } else {
        because.to_owned()
    }
}

/// Adds the explanation of each tool whose item id is `name`, including tools that were left out of the palette.
fn explain_tools(compilation: &Compilation, name: &str, found: &mut Vec<Explanation>) {
    let plan = &compilation.plan;
    for tool in plan.palette.iter().filter(|t| t.item_id.as_ref().is_some_and(|id| id.as_str() == name)) {
        let key = format!("tool.{}", tool.name);
        if let Some(origin) = compilation.origins.get(&key) {
            found.push(explain_origin(compilation, &key, origin));
        }
    }
    for tool in plan.dropped_tools.iter().filter(|t| t.item_id.as_str() == name) {
        let reason = format!("not in the palette: {}", tool.because);
        found.push(Explanation { subject: format!("tool.{name}"), reason, place: None, steps: Vec::new() });
    }
}

/// Explains the grant that allows a capability.
fn explain_capability(compilation: &Compilation, name: &str, found: &mut Vec<Explanation>) {
    if !name.starts_with("rye.") {
        return;
    }
    let grants = &compilation.plan.capabilities.grants;
    let Some(grant) = grants.iter().find(|g| Glob::new(&g.pattern).matches(name)) else { return };
    let key = format!("capability.{}", grant.pattern);
    let origin = compilation.origins.get(&key);
    let reason = format!("allowed by `{}`, {}", grant.pattern, origin.map(|o| o.cause.to_string()).unwrap_or_default());
    let place = origin.and_then(|o| o.place.clone());
    found.push(Explanation { subject: format!("capability.{name}"), reason, place, steps: derive(compilation, &key) });
}
