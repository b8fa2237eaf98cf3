//! Lowering of a composed directive to a plan, the last phase of the compiler. A run decides nothing again that is
//! decided here.

pub mod capabilities;
pub mod facts;
pub mod hooks;
pub mod interface;
pub mod limits;
pub mod origin;
pub mod prompt;
mod protocol;
pub mod shared;
mod unpriced;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use crate::compile::{Note, Request};
use crate::compose::{Composed, ComposedHook};
use crate::diagnostics::{Diagnostics, LimitError};
use crate::hook::{HookPoint, PlanVerdict, PlannedHook};
use crate::model::ModelOverride;
use crate::palette::Palette;
use crate::plan::graph::{Needs, Part};
use crate::plan::{
    Capabilities, Interface, Link, NudgePolicy, Origin, Origins, PLAN_FORMAT, PaletteTool, Plan, PlannedModel, Primary,
    Segment, Tokenizer,
};
use crate::primary::DIRECTIVE_RETURN_TOOL;
use crate::semantics::limits::{Limits, resolve};
use facts::PlanTimeFacts;
pub use hooks::HookTrace;
use shared::Shared;

/// Smallest output limit, in tokens, that is worth a request (`language.md` 11).
pub const LEAST_OUTPUT: u64 = 1024;

/// A plan with its origins, traces and notes. The plan's settings, manifest and link hashes are still empty.
#[derive(Debug, Clone)]
pub struct Lowered {
    pub plan: Plan,
    pub origins: Origins,
    /// Reasons for the verdict of each hook, in the plan's order.
    pub hooks: Vec<HookTrace>,
    pub notes: Vec<Note>,
    /// The `spend` limit that the directive or its caller requests explicitly, in nano-dollars, before the parent's
    /// share bounds it.
    pub named_spend: Option<u64>,
}

/// Lowers a composed directive. `None` if a part that the others need is invalid: limits, model or inputs.
pub fn lower(
    shared: &Shared<'_, '_>,
    composed: &Composed,
    request: &Request,
    diagnostics: &mut Diagnostics,
) -> Option<Lowered> {
    let mut origins = Origins::default();
    let inputs =
        request.inputs.as_ref().map(|given| interface::values(&composed.id, &composed.inputs, given, diagnostics));
    let limits = {
        let parent = request.parent.as_ref().map(|p| Limits::from(p.limits));
        let sources = shared.items.sources();
        limits::lower(&composed.limits, &request.limits, parent.as_ref(), &sources, &mut origins, diagnostics)
    };
    let asked = composed.model.as_ref().map(|m| &m.value);
    let model = match shared.catalog().resolve(asked, &request.model) {
        Ok(model) => Some(model),
        Err(error) => {
            diagnostics.push(error);
            None
        }
    };
    let parent = request.parent.as_ref().map(|p| &p.capabilities);
    let capabilities = capabilities::lower(composed, parent, &shared.items.sources(), &mut origins);
    let outputs = interface::fields(&composed.outputs);
    protocol::check(shared, composed, diagnostics);
    let mut built = palette(shared, composed, &capabilities, &mut origins, diagnostics);
    if built.add_return(&outputs) {
        origins.insert(format!("tool.{DIRECTIVE_RETURN_TOOL}"), origin::unwritten("outputs are declared"));
    }
    let (body, alone) = prompt::body(composed, inputs.as_ref(), &outputs, diagnostics);
    let (limits, model) = (limits?, model?);
    built.weigh(model.counted_by);
    let returned = |tool: &&PaletteTool| tool.primary == Primary::Return;
    let returned = built.tools.iter().find(returned).map_or(0, |tool| tool.tokens);
    let built_tokens = built.tokens().saturating_sub(returned);

    let frame = PlanTimeFacts {
        composed,
        inputs: inputs.as_ref(),
        model: &model.id,
        limits: &limits,
        capabilities: capabilities::summary(&capabilities),
        directive_body: text_without_placeholders(&alone),
    };
    let (hooks, traces) = hooks::lower(&frame, &shared.items.sources(), &mut origins);
    let mut repeats = Vec::new();
    let prompt = prompt::lower(&frame, body, alone, &mut repeats);
    layers(composed, &shared.items.sources(), &mut origins);
    record_other_origins(composed, request, &shared.items.sources(), &mut origins);

    let asks = !capabilities::unacknowledged(&capabilities, shared).is_empty();
    let (graph, broken) = shared.graph(needs(&hooks, &built.tools, composed.nudge.value, asks));
    diagnostics.extend(broken);
    let leaf = composed.leaf();
    let plan = Plan {
        format: PLAN_FORMAT,
        directive: composed.id.clone(),
        category: leaf.map_or(composed.id.category(), |l| l.category()).to_owned(),
        description: leaf.map(|l| l.description.clone()).unwrap_or_default(),
        chain: composed
            .chain
            .iter()
            .map(|link| Link { id: link.id().clone(), space: link.file.space, sha256: String::new() })
            .collect(),
        route: composed.route.as_ref().map(|r| r.hook.id.node.clone()),
        graph,
        prompt,
        palette: built.tools,
        dropped_tools: built.dropped,
        capabilities,
        limits: limits.into(),
        hooks,
        interface: Interface {
            inputs: interface::fields(&composed.inputs),
            outputs,
            values: inputs.unwrap_or_default(),
        },
        model,
        nudge: composed.nudge.value,
        continuation_directive: composed.continuation.as_ref().map(|c| c.value.clone()),
        settings: BTreeMap::new(),
        manifest: Vec::new(),
    };
    check_affordable(composed, &plan.model, &limits, built_tokens, diagnostics);
    unpriced::check(composed, &plan.model, &limits, &request.limits, diagnostics);
    let notes = notes(composed, &plan, &repeats, &shared.items.sources());
    let named_spend = limits::named_spend(&composed.limits, &request.limits);
    Some(Lowered { plan, origins, hooks: traces, notes, named_spend })
}

/// Returns the concatenated text if no segment has a placeholder.
fn text_without_placeholders(segments: &[Segment]) -> Option<String> {
    let text = |segment: &Segment| match segment {
        Segment::Text { text } => Some(text.clone()),
        Segment::Pending { .. } => None,
    };
    segments.iter().map(text).collect()
}

/// Checks if a composed directive can be lowered, without making a plan. Reports the same diagnostics as [`lower`].
pub fn audit(shared: &Shared<'_, '_>, composed: &Composed, diagnostics: &mut Diagnostics) -> Option<LowerSummary> {
    // Invalid limits are reported once, with the file that sets them.
    let limits = resolve(&composed.limits.defaults, &composed.limits.directive, &[], &[]).ok().map(|r| r.limits);
    let asked = composed.model.as_ref().map(|m| &m.value);
    let model = match shared.catalog().resolve(asked, &ModelOverride::default()) {
        Ok(model) => Some(model),
        Err(error) => {
            diagnostics.push(error);
            None
        }
    };
    let capabilities = capabilities::set(composed, None);
    let built = shared.palette(composed, &capabilities);
    diagnostics.append(built.diagnostics.clone());
    protocol::check(shared, composed, diagnostics);
    let (limits, model) = (limits?, model?);
    let palette = built.palette.tokens_by(model.counted_by);
    check_affordable(composed, &model, &limits, palette, diagnostics);
    unpriced::check(composed, &model, &limits, &[], diagnostics);
    let opening = palette.saturating_add(opening(composed, model.counted_by));
    Some(LowerSummary { limits, model, opening })
}

/// The values that a plan without inputs or a parent would resolve to.
#[derive(Debug, Clone)]
pub struct LowerSummary {
    pub limits: Limits,
    pub model: PlannedModel,
    /// Tokens that the first request contains in any case.
    pub opening: u64,
}

/// Returns the palette without the return tool, and records the origin of each tool.
fn palette(
    shared: &Shared<'_, '_>,
    composed: &Composed,
    capabilities: &Capabilities,
    origins: &mut Origins,
    diagnostics: &mut Diagnostics,
) -> Palette {
    let built = shared.palette(composed, capabilities);
    diagnostics.append(built.diagnostics.clone());
    let built = built.palette.clone();
    for (name, because) in &built.grants {
        let pattern = because.strip_prefix("granted by `").and_then(|p| p.strip_suffix('`'));
        let place = pattern.and_then(|p| origins.get(&format!("capability.{p}"))).and_then(|o| o.place.clone());
        origins.insert(format!("tool.{name}"), Origin { place, because: because.clone() });
    }
    built
}

/// Reports a `spend` limit that does not pay for the smallest first request (`language.md` 11).
fn check_affordable(
    composed: &Composed,
    model: &PlannedModel,
    limits: &Limits,
    palette: u64,
    diagnostics: &mut Diagnostics,
) {
    let output = model.output(limits.output).min(LEAST_OUTPUT);
    let needed = model.worst_case(palette.saturating_add(opening(composed, model.counted_by)), output);
    if needed > limits.spend {
        let written = composed.limits.directive.iter().chain(&composed.limits.defaults);
        let span = written.filter(|s| s.name == "spend").find_map(|s| s.source.span);
        diagnostics.push(LimitError::CannotAffordOneTurn {
            limit: limits.spend.to_string(),
            needed: needed.to_string(),
            model: model.id.clone(),
            span,
        });
    }
}

/// Counts the tokens of the first request that do not depend on placeholders.
fn opening(composed: &Composed, by: Tokenizer) -> u64 {
    let items = composed.system.iter().chain(&composed.before).chain(&composed.after).map(|item| &item.knowledge);
    let brought =
        |hook: &&ComposedHook| hook.verdict == PlanVerdict::Fires && hook.decl.event != HookPoint::ThreadContinued;
    let hooks = composed.hooks.iter().filter(brought).filter_map(|hook| hook.knowledge.as_ref());
    let texts = items.chain(hooks).map(|knowledge| knowledge.body.node.as_str());
    let body = composed.leaf().map(|leaf| leaf.body.node.as_str());
    texts.chain(body).fold(0, |sum, text| sum.saturating_add(by.count(text)))
}

fn needs(hooks: &[PlannedHook], tools: &[PaletteTool], nudge: NudgePolicy, asks: bool) -> Needs {
    let mut parts = BTreeSet::new();
    if tools.iter().any(|t| t.primary != Primary::Return) {
        parts.insert(Part::Tools);
    }
    if tools.iter().any(|t| t.primary == Primary::Return) {
        parts.insert(Part::Return);
    }
    if nudge != NudgePolicy::Never {
        parts.insert(Part::Nudge);
    }
    if asks {
        parts.insert(Part::Ask);
    }
    Needs { points: hooks.iter().filter(|h| h.is_live()).map(|h| h.event).collect(), parts }
}

/// Records the origin of each knowledge item of the chain, and of the body.
fn layers(composed: &Composed, sources: &rye_grammar::Sources, origins: &mut Origins) {
    for item in composed.system.iter().chain(&composed.before).chain(&composed.after) {
        origins.insert(format!("layer.{}", item.id), origin::of(sources, &item.origin));
    }
    for hook in &composed.hooks {
        if let Some(knowledge) = &hook.knowledge {
            let key = format!("layer.{}", knowledge.file.id);
            if origins.get(&key).is_none() {
                origins.insert(key, origin::of(sources, &hook.origin()));
            }
        }
    }
    if let Some(leaf) = composed.leaf() {
        let because = "the directive's own body".to_owned();
        origins.insert(
            format!("layer.{}", composed.id),
            Origin { place: origin::place(sources, leaf.body.span), because },
        );
    }
}

/// Records the origins of links, model, interface and routing.
fn record_other_origins(composed: &Composed, request: &Request, sources: &rye_grammar::Sources, origins: &mut Origins) {
    let count = composed.chain.len();
    for (i, link) in composed.chain.iter().enumerate() {
        let because = format!("link {} of {count}, from the {} space", i + 1, link.file.space.word());
        origins.insert(format!("link.{}", link.id()), Origin { place: origin::place(sources, link.span), because });
    }
    for pair in composed.chain.windows(2) {
        let [parent, child] = pair else { continue };
        let Some(extends) = child.extends.as_ref().filter(|e| e.node == *parent.id()) else { continue };
        let because = format!("`{}`, declared by `{}`", parent.id(), child.id());
        let place = origin::place(sources, extends.span);
        origins.insert(format!("extends.{}", child.id()), Origin { place, because });
    }
    let parents = composed.chain.iter().rev().skip(1).map(|l| l.id());
    if let (Some(leaf), Some(parent)) = (composed.leaf(), parents.into_iter().next()) {
        let extends = match &composed.route {
            Some(route) => Origin {
                place: origin::place(sources, route.hook.span),
                because: format!("`{parent}`, set by the hook `{}`", route.hook.id.node),
            },
            None => Origin {
                place: leaf.extends.as_ref().and_then(|e| origin::place(sources, e.span)),
                because: format!("`{parent}`, declared by `{}`", leaf.id()),
            },
        };
        origins.insert("extends", extends);
    }
    let overridden = request.model.model.is_some() || request.model.provider.is_some();
    let model = match &composed.model {
        _ if overridden => origin::unwritten(origin::GIVEN),
        Some(model) => {
            let asked = &model.value;
            let words = [&asked.id, &asked.tier, &asked.provider].into_iter().flatten();
            let place = words.map(|word| word.span).next().and_then(|span| origin::place(sources, span));
            let origin = origin::of(sources, &model.origin);
            Origin { place: place.or(origin.place), ..origin }
        }
        None => origin::unwritten("the default of `agent/models`"),
    };
    origins.insert("model", model);
    for (kind, fields) in [("input", &composed.inputs), ("output", &composed.outputs)] {
        for (name, field) in fields {
            origins.insert(format!("{kind}.{name}"), origin::of(sources, &field.origin));
        }
    }
}

/// Collects notes about items that were omitted or changed.
fn notes(
    composed: &Composed,
    plan: &Plan,
    repeats: &[prompt::RepeatedKnowledge],
    sources: &rye_grammar::Sources,
) -> Vec<Note> {
    let mut notes = Vec::new();
    for suppression in &composed.suppressions {
        notes.push(Note::Suppressed {
            id: suppression.id.clone(),
            by: origin::of(sources, &suppression.origin),
            removed: suppression.removed.iter().map(|o| origin::of(sources, o)).collect(),
        });
    }
    for duplicate in &composed.duplicates {
        notes.push(Note::Deduplicated {
            id: duplicate.id.to_string(),
            kept: Some(origin::of(sources, &duplicate.kept)),
            dropped: origin::of(sources, &duplicate.dropped),
        });
    }
    for repeat in repeats {
        let dropped = origin::unwritten(&format!("brought again by `{}`", repeat.by));
        notes.push(Note::Deduplicated { id: repeat.id.clone(), kept: None, dropped });
    }
    let prompt = &plan.prompt;
    for layer in prompt.system.iter().chain(&prompt.first_message).chain(&prompt.continued) {
        if layer.escaped > 0 {
            let tag = layer.tag.clone().unwrap_or_default();
            let note = Note::Escaped { id: layer.id.clone(), tag, count: layer.escaped };
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}
