//! Lowering of a composed directive to a plan, the last phase of the compiler. A run does not repeat the decisions of
//! this phase.

pub mod cache;
pub mod capabilities;
pub mod facts;
mod fallback;
pub mod hooks;
pub mod interface;
pub mod limits;
pub mod origin;
mod phrases;
pub mod prompt;
mod protocol;
mod provider_keys;
pub(crate) mod session_limits;
mod unpriced;

use std::collections::BTreeSet;
use std::rc::Rc;

use indexmap::IndexMap;
use rye_grammar::ItemId;

use crate::commands::composed_commands;
use crate::compose::{Composed, ComposedHook};
use crate::diagnostics::{Diagnostics, LimitError, ModelError};
use crate::hook::{HookPoint, PlanVerdict};
use crate::model::ModelOverride;
use crate::palette::{OpeningSize, Palette};
use crate::plan::graph::{GraphNeeds, GraphPart};
use crate::plan::note::Note;
use crate::plan::{
    Capabilities, ChainLink, Interface, InterfaceField, NudgePolicy, Origin, OriginCause, Origins, PLAN_FORMAT,
    PalettePrimary, PaletteTool, Plan, PlanMode, PlanSettings, PlannedModel, Segment, TextSize, Tokenizer,
};
use crate::primary::{DIRECTIVE_RETURN_TOOL, Primary};
use crate::request::CompileRequest;
use crate::semantics::limits::{LimitName, Limits};
use crate::semantics::money::Nanos;
use crate::skill_list::SkillAccess;
use crate::tool_guidance::guidance_layer;
use crate::wire_tool::instructions;
use crate::world::ItemKind;
use cache::LowerContext;
use facts::PlanTimeFacts;
pub use hooks::HookTrace;
use prompt::{MAX_VALUE_BYTES, ValueBudget};
pub(crate) use provider_keys::check as check_provider_keys;

/// Smallest output limit, in tokens, to which a run reduces a request (`language.md`, Limits). If the limits do not pay
/// for this much output, the run sends no request.
pub const MIN_OUTPUT_TOKENS: u64 = 1024;

/// A plan with its origins, the explanations of its hooks, and its notes. The plan still lacks its settings, its
/// manifest and the hashes of its chain.
#[derive(Debug, Clone)]
pub struct Lowered {
    pub plan: Plan,
    pub origins: Origins,
    /// Reasons for the verdict of each hook, in the plan's order.
    pub hooks: Vec<HookTrace>,
    pub notes: Vec<Note>,
    /// The `spend` limit that the directive or its caller sets, in nano-dollars, before the remaining amount of the
    /// parent bounds it; `None` if neither sets this limit.
    pub requested_spend: Option<u64>,
}

/// Reports a `spend` or `tokens` limit that does not suffice for the first request, and a `spend` limit on a model
/// without a price. Also checks the fallback model.
fn check_costs(
    shared: &LowerContext<'_, '_>,
    composed: &Composed,
    request: &CompileRequest,
    (plan, limits): (&Plan, &Limits),
    diagnostics: &mut Diagnostics,
) {
    let offered = offered_tools(plan);
    let opening = |model: &PlannedModel| offered.opening(model, &|tool| model.definition_size(tool));
    check_affordable(composed, &plan.model, limits, &opening, diagnostics);
    unpriced::check(shared.catalog(), composed, &plan.model, limits, &request.limits, diagnostics);
}

/// Lowers a composed directive to a plan. Returns `None` if the values in the prompt are too long. Also returns `None`
/// if the limits or the model are invalid, because other parts of the plan depend on them.
pub fn lower(
    shared: &LowerContext<'_, '_>,
    composed: &Composed,
    request: &CompileRequest,
    diagnostics: &mut Diagnostics,
) -> Option<Lowered> {
    let mut origins = Origins::default();
    let inputs = request
        .inputs
        .as_ref()
        .map(|given| interface::resolve_inputs(&composed.id, &composed.inputs, given, diagnostics));
    let limits = {
        let parent = request.parent.as_ref().map(|p| Limits::from(p.limits));
        let sources = shared.items.sources();
        limits::lower(&composed.limits, &request.limits, parent.as_ref(), &sources, &mut origins, diagnostics)
    };
    let model = resolve_model(shared, composed, &request.model, diagnostics);
    let parent = request.parent.as_ref().map(|p| &p.capabilities);
    let capabilities = capabilities::lower(composed, parent, &shared.items.sources(), &mut origins);
    let outputs = interface::lower_fields(&composed.outputs);
    protocol::check(shared, composed, diagnostics);
    let mut built = lower_palette(shared, composed, &capabilities, &mut origins, diagnostics);
    remove_omitted(&mut built, &request.omitted, &mut origins);
    check_keys_of_tools(shared, &built, diagnostics);
    let access = offer_skills(shared, &capabilities, request.mode, &mut built, &mut origins);
    add_return_tool(shared, composed, &mut built, &outputs, &mut origins);
    let (mut budget, mut repeats) = (ValueBudget::default(), Vec::new());
    let (body, alone) = prompt::lower_body(composed, inputs.as_ref(), &outputs, &mut budget, diagnostics);
    let (limits, model) = (limits?, model?);
    built.count_tokens(&model);

    let frame = PlanTimeFacts {
        composed,
        inputs: inputs.as_ref(),
        model: &model.id,
        limits: &limits,
        capabilities: capabilities::capabilities_summary(&capabilities),
        directive_body: text_without_placeholders(&alone),
    };
    let commands = composed_commands(shared.items, request.mode, diagnostics);
    let (hooks, traces) = hooks::lower(&frame, &commands, &shared.items.sources(), &mut origins);
    let mut session = Vec::from_iter(guidance_layer(shared.items, &built.tools, model.counted_by, &mut origins));
    if request.mode == PlanMode::Chat {
        let of = (composed, request.appended.as_ref());
        session.extend(prompt::chat_layers(of, shared.items, model.counted_by, &access, &mut origins, diagnostics));
    }
    let mut prompt = prompt::lower(&frame, body, alone, &mut budget, &mut repeats, session);
    if budget.is_exceeded {
        diagnostics.push(prompt_too_long(composed));
        return None;
    }
    if let Some(layer) = instructions::instructions_layer(&model, &built.tools) {
        let cause = OriginCause::TextToolCalls { model: model.id.clone() };
        origins.insert(format!("layer.{}", layer.id), origin::origin_without_place(cause));
        prompt.system.push(layer);
    }
    if request.mode == PlanMode::Chat {
        prompt::add_first_prompt(&mut prompt);
    }
    record_layer_origins(composed, &shared.items.sources(), &mut origins);
    record_other_origins(composed, request, &shared.items.sources(), &mut origins);

    let needs_approval = !capabilities::unacknowledged_grants(&capabilities, shared).is_empty();
    let (graph, broken) = shared.graph(GraphNeeds {
        points: hooks.iter().filter(|hook| hook.is_live()).map(|hook| hook.event).collect(),
        parts: graph_parts(&built.tools, composed.nudge.value, needs_approval, request.mode),
    });
    diagnostics.extend(broken);
    let leaf = composed.leaf();
    let plan = Plan {
        format: PLAN_FORMAT,
        mode: request.mode,
        directive: composed.id.clone(),
        category: leaf.map_or(composed.id.category(), |l| l.category()).to_owned(),
        description: leaf.map(|l| l.description.clone()).unwrap_or_default(),
        chain: composed
            .chain
            .iter()
            .map(|link| ChainLink { id: link.id().clone(), space: link.file.space, sha256: String::new() })
            .collect(),
        route: composed.route.as_ref().map(|r| r.hook.id.node.clone()),
        graph,
        prompt,
        palette: built.tools,
        dropped_tools: built.dropped,
        capabilities,
        limits: limits.into(),
        session_limits: session_limits::lower(shared, composed, request, &limits, &mut origins, diagnostics),
        limit_ceilings: limits::smallest_ceilings(&composed.limits),
        hooks,
        interface: Interface {
            inputs: interface::lower_fields(&composed.inputs),
            outputs,
            values: inputs.unwrap_or_default(),
        },
        model,
        nudge: composed.nudge.value,
        continuation_directive: composed.continuation.as_ref().map(|c| c.value.clone()),
        settings: PlanSettings::default(),
        manifest: Vec::new(),
        context_files: Vec::new(),
        omitted: request.omitted.clone(),
        appended: request.appended.clone(),
    };
    check_costs(shared, composed, request, (&plan, &limits), diagnostics);
    let notes = collect_notes(composed, &plan, &repeats, &shared.items.sources());
    let requested_spend = limits::requested_spend(&composed.limits, &request.limits);
    Some(Lowered { plan, origins, hooks: traces, notes, requested_spend })
}

/// Reports the tools of the palette that request a provider's key.
fn check_keys_of_tools(shared: &LowerContext<'_, '_>, built: &Palette, diagnostics: &mut Diagnostics) {
    for id in built.tools.iter().filter_map(|tool| tool.item_id.as_ref()) {
        if let Some(tool) = shared.items.tool(id) {
            check_provider_keys(shared.items, &tool, diagnostics);
        }
    }
}

/// Removes the tools that the user leaves out. Each entry of `omitted` is the name of a tool or the id of its item.
fn remove_omitted(built: &mut Palette, omitted: &[String], origins: &mut Origins) {
    let is_omitted = |tool: &PaletteTool| {
        let id = tool.item_id.as_ref().map(ToString::to_string);
        omitted.iter().any(|one| *one == *tool.name || id.as_ref() == Some(one))
    };
    for tool in built.tools.iter().filter(|tool| is_omitted(tool)) {
        origins.0.shift_remove(&format!("tool.{}", tool.name));
    }
    built.tools.retain(|tool| !is_omitted(tool));
}

/// Adds skills to the palette: the skills that a chat lists, or the skills that the grants of a run name. Returns the
/// way in which the thread can read skills.
fn offer_skills(
    shared: &LowerContext<'_, '_>,
    capabilities: &Capabilities,
    mode: PlanMode,
    built: &mut Palette,
    origins: &mut Origins,
) -> SkillAccess {
    let names_skills = capabilities.grants.iter().any(|grant| grant.pattern.starts_with("rye.fetch.skill"));
    if mode == PlanMode::Run && !names_skills {
        return SkillAccess::None;
    }
    let mut skills: Vec<ItemId> = shared.items.list(ItemKind::Skill).iter().map(|entry| entry.id.clone()).collect();
    skills.dedup();
    let offers = built.offer_skills(&capabilities.grants, &skills);
    if !built.tools.iter().any(|tool| tool.primary == PalettePrimary::Fetch) {
        origins.0.shift_remove(&format!("tool.{}", Primary::Fetch.tool_name()));
    }
    SkillAccess::of(&capabilities.grants, &built.tools, offers)
}

/// Adds the tool with which the model returns the outputs, and records the origin of the tool.
fn add_return_tool(
    shared: &LowerContext<'_, '_>,
    composed: &Composed,
    built: &mut Palette,
    outputs: &IndexMap<String, InterfaceField>,
    origins: &mut Origins,
) {
    if built.add_return(outputs) {
        let first = composed.outputs.values().find_map(|output| output.origin.span);
        let place = first.and_then(|span| origin::plan_place(&shared.items.sources(), span));
        origins.insert(format!("tool.{DIRECTIVE_RETURN_TOOL}"), Origin { place, cause: OriginCause::OutputsDeclared });
    }
}

/// Returns the offered tools whose size is checked: all except the return tool. [`lower`] must count the same tools as
/// [`try_lower`], which has no outputs and so cannot count the return tool.
fn offered_tools(plan: &Plan) -> Palette {
    let offered = plan.palette.iter().filter(|tool| tool.primary != PalettePrimary::Return).cloned();
    Palette { tools: offered.collect(), ..Palette::default() }
}

fn prompt_too_long(composed: &Composed) -> LimitError {
    LimitError::PromptTooLong {
        directive: composed.id.to_string(),
        mebibytes: MAX_VALUE_BYTES >> 20,
        span: composed.leaf().map(|leaf| leaf.body.span),
    }
}

/// Returns the texts of all segments, joined; `None` if a segment is a placeholder.
fn text_without_placeholders(segments: &[Segment]) -> Option<String> {
    let text = |segment: &Segment| match segment {
        Segment::Text { text } => Some(text.clone()),
        Segment::Pending { .. } => None,
    };
    segments.iter().map(text).collect()
}

/// Checks, without making a plan, that a composed directive can be lowered to a plan. Returns `None` if the limits or
/// the model of the directive are invalid. Reports the diagnostics of [`lower`] about the model, the tools and the
/// costs.
pub(crate) fn try_lower(
    shared: &LowerContext<'_, '_>,
    composed: &Composed,
    diagnostics: &mut Diagnostics,
) -> Option<LowerSummary> {
    // Invalid limits are reported once, with the file that sets them.
    let limits = limits::declared_limits(&composed.limits);
    let model = shared.declared_model(composed.model.as_ref().map(|requested| &requested.value));
    let model = model.map_err(|error| diagnostics.push(error)).ok();
    let capabilities = capabilities::initial_capabilities(composed, None);
    let built = shared.palette(composed, &capabilities);
    diagnostics.append(built.diagnostics.clone());
    protocol::check(shared, composed, diagnostics);
    let (limits, model) = (limits?, model?);
    let opening = shared.opening(&built, &model);
    check_affordable(composed, &model, &limits, &|model| shared.opening(&built, model), diagnostics);
    unpriced::check(shared.catalog(), composed, &model, &limits, &[], diagnostics);
    let opening = opening.tokens.saturating_add(first_request_size(composed, model.counted_by).tokens);
    let offers_tools = !built.palette.tools.is_empty();
    Some(LowerSummary { limits, model, opening, offers_tools })
}

/// Returns the model of a composed directive; `None` if it cannot be resolved, which is reported.
fn resolve_model(
    shared: &LowerContext<'_, '_>,
    composed: &Composed,
    model: &ModelOverride,
    diagnostics: &mut Diagnostics,
) -> Option<PlannedModel> {
    let requested = composed.model.as_ref().map(|m| &m.value);
    shared.catalog().resolve(requested, model).map_err(|error| diagnostics.push(error)).ok()
}

/// Properties of the plan that a directive has without inputs and without a parent.
#[derive(Debug, Clone)]
pub(crate) struct LowerSummary {
    pub limits: Limits,
    pub model: Rc<PlannedModel>,
    /// Tokens of the tools, the body and the knowledge that the first request of every run contains.
    pub opening: u64,
    /// True if the palette has a tool other than the return tool.
    pub offers_tools: bool,
}

/// Returns the palette without the return tool, and records the origin of each tool.
fn lower_palette(
    shared: &LowerContext<'_, '_>,
    composed: &Composed,
    capabilities: &Capabilities,
    origins: &mut Origins,
    diagnostics: &mut Diagnostics,
) -> Palette {
    let built = shared.palette(composed, capabilities);
    diagnostics.append(built.diagnostics.clone());
    built.report_refused(shared.items, diagnostics);
    let built = built.palette.clone();
    for (name, pattern) in &built.grants {
        let grant = pattern.as_ref().and_then(|p| origins.get(&format!("capability.{p}")));
        let place = grant.and_then(|o| o.place.clone());
        let cause = pattern.clone().map_or(OriginCause::NoPermissions, OriginCause::Grant);
        origins.insert(format!("tool.{name}"), Origin { place, cause });
    }
    built
}

/// Reports a first request that, by the estimate, does not fit into the model's context window together with its reply.
fn check_window(composed: &Composed, model: &PlannedModel, (prompt, reply): (u64, u64), diagnostics: &mut Diagnostics) {
    let window = model.context_window;
    if let Some(leaf) = composed.leaf().filter(|_| prompt.saturating_add(reply) > window) {
        diagnostics.push(ModelError::SmallWindow { model: model.id.clone(), prompt, reply, window, span: leaf.span });
    }
}

/// Reports a `spend` limit that does not pay for a first request with the shortest reply, and a `tokens` limit below
/// the tokens of the prompt (`language.md`, Limits). Also checks the fallback model. `opening_of` returns the size of
/// the tool definitions in a request to the given model.
fn check_affordable(
    composed: &Composed,
    model: &PlannedModel,
    limits: &Limits,
    opening_of: &dyn Fn(&PlannedModel) -> OpeningSize,
    diagnostics: &mut Diagnostics,
) {
    fallback::check(composed, model, limits, opening_of, diagnostics);
    let opening = opening_of(model);
    let texts = first_request_size(composed, model.counted_by);
    let prompt = texts.tokens;
    if prompt > limits.tokens {
        diagnostics.push(LimitError::PromptAboveTokens {
            limit: limits.tokens,
            needed: prompt,
            span: limits::span_of(&composed.limits, LimitName::Tokens, |value| value == limits.tokens),
        });
    }
    let output = model.requested_output(limits.output).min(MIN_OUTPUT_TOKENS);
    check_window(composed, model, (opening.tokens.saturating_add(prompt), output), diagnostics);
    let needed = model.worst_case(opening.bound.saturating_add(model.bound_message(texts.bound, 1)), output);
    let report = |limit: Nanos, span| LimitError::CannotAffordOneTurn {
        limit: limit.to_string(),
        needed: needed.to_string(),
        model: model.id.clone(),
        price: None,
        span,
    };
    if needed > limits.spend {
        // If a ceiling bounds the limit, the label points at the ceiling, because the ceiling has to be raised.
        let ceiling = limits::spend_ceiling(&composed.limits, limits.spend).and_then(|ceiling| ceiling.source.span);
        let is_effective = |value| value == limits.spend.to_u64();
        let span = ceiling.or_else(|| limits::span_of(&composed.limits, LimitName::Spend, is_effective));
        diagnostics.push(report(limits.spend, span));
        return;
    }
    // No prompt of a chat starts if the session cannot pay for a turn.
    let of_session = limits::parsed_ceilings(&composed.limits.session).filter(|(name, ..)| *name == LimitName::Spend);
    if let Some((_, most, written)) = of_session.min_by_key(|(_, most, _)| *most)
        && needed > Nanos::from_u64(most)
    {
        diagnostics.push(report(Nanos::from_u64(most), written.source.span));
    }
}

/// Returns the size of the body and the knowledge that every first request contains, without values of placeholders.
fn first_request_size(composed: &Composed, by: Tokenizer) -> TextSize {
    let items = composed.system.iter().chain(&composed.before).chain(&composed.after).map(|item| &item.knowledge);
    let brought =
        |hook: &&ComposedHook| hook.verdict == PlanVerdict::Fires && hook.decl.event != HookPoint::ThreadContinued;
    let hooks = composed.hooks.iter().filter(brought).filter_map(|hook| hook.knowledge.as_ref());
    let sizes = items.chain(hooks).map(|knowledge| knowledge.size(by));
    let body = composed.leaf().map(|leaf| leaf.body_size(by));
    sizes.chain(body).fold(TextSize::default(), TextSize::plus)
}

fn graph_parts(tools: &[PaletteTool], nudge: NudgePolicy, needs_approval: bool, mode: PlanMode) -> BTreeSet<GraphPart> {
    let mut parts = BTreeSet::new();
    if mode == PlanMode::Chat {
        parts.insert(GraphPart::Chat);
    }
    if tools.iter().any(|t| t.primary != PalettePrimary::Return) {
        parts.insert(GraphPart::Tools);
    }
    if tools.iter().any(|t| t.primary == PalettePrimary::Return) {
        parts.insert(GraphPart::Return);
    }
    if nudge != NudgePolicy::Never && mode == PlanMode::Run {
        parts.insert(GraphPart::Nudge);
    }
    if needs_approval {
        parts.insert(GraphPart::Ask);
    }
    parts
}

/// Records the origin of the body and of each knowledge item that the chain or a hook adds.
fn record_layer_origins(composed: &Composed, sources: &rye_grammar::Sources, origins: &mut Origins) {
    for item in composed.system.iter().chain(&composed.before).chain(&composed.after) {
        origins.insert(format!("layer.{}", item.id), origin::plan_origin(sources, &item.origin));
    }
    for hook in &composed.hooks {
        if let Some(knowledge) = &hook.knowledge {
            let key = format!("layer.{}", knowledge.file.id);
            if origins.get(&key).is_none() {
                origins.insert(key, origin::plan_origin(sources, &hook.origin()));
            }
        }
    }
    if let Some(leaf) = composed.leaf() {
        let place = origin::plan_place(sources, leaf.body.span);
        origins.insert(format!("layer.{}", composed.id), Origin { place, cause: OriginCause::Body });
    }
}

/// Records the origins of the chain's directives and of their `extends`, and the origins of the model, the interface
/// and the routing.
fn record_other_origins(
    composed: &Composed,
    request: &CompileRequest,
    sources: &rye_grammar::Sources,
    origins: &mut Origins,
) {
    let count = composed.chain.len();
    for (i, link) in composed.chain.iter().enumerate() {
        let cause = OriginCause::ChainLink { position: i + 1, count, space: link.file.space };
        origins.insert(format!("link.{}", link.id()), Origin { place: origin::plan_place(sources, link.span), cause });
    }
    for pair in composed.chain.windows(2) {
        let [parent, child] = pair else { continue };
        let Some(extends) = child.extends.as_ref().filter(|e| e.node == *parent.id()) else { continue };
        let cause = OriginCause::ExtendsParent { parent: parent.id().clone(), child: child.id().clone() };
        let place = origin::plan_place(sources, extends.span);
        origins.insert(format!("extends.{}", child.id()), Origin { place, cause });
    }
    let parents = composed.chain.iter().rev().skip(1).map(|l| l.id());
    if let (Some(leaf), Some(parent)) = (composed.leaf(), parents.into_iter().next()) {
        let extends = match &composed.route {
            Some(route) => Origin {
                place: origin::plan_place(sources, route.hook.span),
                cause: OriginCause::RoutedParent { parent: parent.clone(), hook: route.hook.id.node.clone() },
            },
            None => Origin {
                place: leaf.extends.as_ref().and_then(|e| origin::plan_place(sources, e.span)),
                cause: OriginCause::ExtendsParent { parent: parent.clone(), child: leaf.id().clone() },
            },
        };
        origins.insert("extends", extends);
    }
    let overridden = request.model.model.is_some() || request.model.provider.is_some();
    let model = match &composed.model {
        _ if overridden => origin::origin_without_place(OriginCause::GivenWithCall),
        Some(model) => {
            let requested = &model.value;
            let words = [&requested.id, &requested.tier, &requested.provider].into_iter().flatten();
            let place = words.map(|word| word.span).next().and_then(|span| origin::plan_place(sources, span));
            let origin = origin::plan_origin(sources, &model.origin);
            Origin { place: place.or(origin.place), ..origin }
        }
        None => origin::origin_without_place(OriginCause::DefaultModel),
    };
    origins.insert("model", model);
    for (kind, fields) in [("input", &composed.inputs), ("output", &composed.outputs)] {
        for (name, field) in fields {
            origins.insert(format!("{kind}.{name}"), origin::plan_origin(sources, &field.origin));
        }
    }
}

/// Collects notes about items that were omitted or changed.
fn collect_notes(
    composed: &Composed,
    plan: &Plan,
    repeats: &[prompt::RepeatedKnowledge],
    sources: &rye_grammar::Sources,
) -> Vec<Note> {
    let mut notes = Vec::new();
    // Suppressions without a span come from the user. They need no note, because the plan lists them in `omitted`.
    for suppression in composed.suppressions.iter().filter(|suppression| suppression.origin.span.is_some()) {
        notes.push(Note::Suppressed {
            id: suppression.id.clone(),
            by: origin::plan_origin(sources, &suppression.origin),
            removed: suppression.removed.iter().map(|o| origin::plan_origin(sources, o)).collect(),
        });
    }
    for left_out in &composed.ungranted_protocols {
        let granted = origin::plan_origin(sources, &left_out.granted);
        notes.push(Note::Suppressed {
            id: left_out.id.to_string(),
            by: Origin { cause: OriginCause::Ungranted { primary: left_out.primary }, ..granted },
            removed: vec![origin::plan_origin(sources, &left_out.declared)],
        });
    }
    for duplicate in &composed.duplicates {
        notes.push(Note::Deduplicated {
            id: duplicate.id.to_string(),
            kept: Some(origin::plan_origin(sources, &duplicate.kept)),
            dropped: origin::plan_origin(sources, &duplicate.dropped),
        });
    }
    for repeat in repeats {
        let dropped = origin::origin_without_place(OriginCause::RepeatedBy { hook: repeat.by.clone() });
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
