//! Renders a plan as text: a short summary, then the content of the first request and the reasons for it, section by
//! section. The text has no colors, and headings start at the left margin.

mod cost;

use super::table::{Align, group_thousands, push_table};
use super::view::{self, LayerView, MessageView};
use crate::compile::Compilation;
use crate::diagnostics::sanitize;
use crate::hook::PlanVerdict;
use crate::lower::session_limits::SESSION_LIMIT;
use crate::plan::note::OmissionReason;
use crate::plan::prompt::{LayerKind, RuntimePlaceholder};
use crate::plan::{Origins, Plan, PlanMode, PlannedModel, Prices, SourcePlace, Tokens, ToolUse};
use crate::report::continuation::{ContinuationFate, ContinuationItem};
use crate::report::intake::STAGES;
use crate::report::omissions::OmittedTokens;
use crate::report::summary::PlanSummary;
use crate::semantics::hook_point;
use crate::semantics::limits::{LimitName, Limits};
use crate::semantics::money::Nanos;
use crate::tool_guidance::ORIGIN_PREFIX;

/// Renders the whole plan.
pub fn render(compilation: &Compilation, summary: &PlanSummary) -> String {
    let plan = &compilation.plan;
    let (system, first, continued) = view::view_prompt(plan, &compilation.origins);
    let mut out = format!("{}  ·  plan {}\n", plan.directive, shorten_id(&compilation.plan_id));
    let lines: Vec<_> = summary.lines().into_iter().map(|(label, text)| vec![label.to_owned(), text]).collect();
    push_table(&mut out, &[Align::Left, Align::Left], &lines);
    if !plan.description.trim().is_empty() {
        write_heading(&mut out, "Description", "");
        for line in plan.description.trim().lines() {
            push(&mut out, &format!("  {line}"));
        }
    }
    write_chain(&mut out, compilation);
    write_model(&mut out, compilation);
    let origins = &compilation.origins;
    write_message(&mut out, "System prompt", (&plan.model, origins), &system);
    write_message(&mut out, "First message", (&plan.model, origins), &first);
    write_message(&mut out, "On continuation", (&plan.model, origins), &continued);
    write_continuation(&mut out, plan);
    left_out(&mut out, compilation, &summary.omitted_tokens);
    write_intake(&mut out, plan, summary);
    write_hooks(&mut out, compilation);
    write_trust(&mut out, compilation, summary.trusted.as_deref());
    write_palette(&mut out, compilation);
    write_sandboxes(&mut out, compilation);
    write_capabilities(&mut out, compilation);
    write_access(&mut out, summary);
    write_limits(&mut out, compilation);
    write_interface(&mut out, plan);
    cost::render(&mut out, compilation, &system, &first);
    out
}

fn write_heading(out: &mut String, title: &str, aside: &str) {
    out.push('\n');
    push(out, &if aside.is_empty() { title.to_owned() } else { format!("{title}  ·  {aside}") });
}

/// Adds a line; replaces control characters, which could manipulate a terminal.
fn push(out: &mut String, line: &str) {
    out.push_str(&sanitize(line, "\u{fffd}"));
    out.push('\n');
}

/// Shortens an id to a length that still distinguishes plans.
fn shorten_id(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

fn format_location(place: Option<&SourcePlace>) -> String {
    place.map(ToString::to_string).unwrap_or_default()
}

fn format_tokens(count: u64) -> String {
    if count == 1 { "1 token".to_owned() } else { format!("{} tokens", group_thousands(count)) }
}

fn write_chain(out: &mut String, compilation: &Compilation) {
    let plan = &compilation.plan;
    let extends = compilation.origins.get("extends").filter(|_| plan.route.is_some());
    let aside = extends.map(|o| format!("{} {}", o.cause, format_location(o.place.as_ref()))).unwrap_or_default();
    write_heading(out, "Chain", aside.trim_end());
    let rows: Vec<Vec<String>> = plan
        .chain
        .iter()
        .map(|link| {
            let place = compilation.origins.get(&format!("link.{}", link.id)).and_then(|o| o.place.as_ref());
            vec![link.id.to_string(), link.space.as_str().to_owned(), format_location(place)]
        })
        .collect();
    push_table(out, &[Align::Left, Align::Left, Align::Left], &rows);
}

fn write_model(out: &mut String, compilation: &Compilation) {
    let model = &compilation.plan.model;
    let origin = compilation.origins.get("model");
    write_heading(out, "Model", &origin.map(|o| o.cause.to_string()).unwrap_or_default());
    let mut rows = vec![vec![
        format!("{}/{}", model.provider, model.id),
        format!("requested as {}", model.requested),
        format_location(origin.and_then(|o| o.place.as_ref())),
    ]];
    if let Some(fallback) = &model.fallback {
        rows.push(vec![format!("{}/{}", fallback.provider, fallback.id), "fallback".to_owned()]);
    }
    push_table(out, &[Align::Left, Align::Left, Align::Left], &rows);
    let window = format!(
        "  window {}, output at most {}",
        group_thousands(model.context_window),
        group_thousands(model.max_output)
    );
    push(out, &window);
    push(out, &format!("  {}", model.prices.as_ref().map_or_else(|| "no prices".to_owned(), format_prices)));
}

/// Formats prices in dollars per million tokens.
fn format_prices(prices: &Prices) -> String {
    let dollars = |nanos: u64| dollars(Nanos::from_u64(nanos));
    let text = format!(
        "per million tokens: {} input, {} output, {} cache read, {} cache write",
        dollars(prices.input),
        dollars(prices.output),
        dollars(prices.cache_read),
        dollars(prices.cache_write)
    );
    let Some(long) = &prices.long_prompt else { return text };
    let (above, input, output) = (group_thousands(long.above), dollars(long.input), dollars(long.output));
    format!("{text}; above {above} prompt tokens: {input} input, {output} output")
}

fn write_message(out: &mut String, title: &str, (model, origins): (&PlannedModel, &Origins), view: &MessageView) {
    if view.layers.is_empty() {
        return;
    }
    write_heading(out, title, &format_tokens(model.counted_by.count(&view.text)));
    let rows: Vec<Vec<String>> = view.layers.iter().map(|view| format_layer(model, view)).collect();
    let mut lines = String::new();
    push_table(&mut lines, &[Align::Right, Align::Right, Align::Left, Align::Left, Align::Left], &rows);
    for (layer, line) in view.layers.iter().zip(lines.lines()) {
        push(out, line);
        if layer.layer.kind == LayerKind::ToolGuidance {
            write_guidance(out, origins);
        }
        let mut printed: Vec<String> = Vec::new();
        for placeholder in layer.placeholders(&view.pending) {
            let fallback = match &placeholder.pending {
                RuntimePlaceholder::Fact { fallback: Some(text), .. } => format!(", else \"{text}\""),
                RuntimePlaceholder::Fact { fallback: None, .. } | RuntimePlaceholder::Hook { .. } => String::new(),
            };
            let text = format!("         {}  {}{fallback}", placeholder.pending.marker(), placeholder.why);
            if !printed.contains(&text) {
                push(out, &text);
                printed.push(text);
            }
        }
    }
}

/// Renders which parts of the first request a handoff keeps, restores or loses. Writes nothing for a plan of one turn,
/// which has no continuation.
fn write_continuation(out: &mut String, plan: &Plan) {
    if !plan.can_continue() {
        return;
    }
    let items = plan.continuation_items();
    let named = |fate: ContinuationFate| {
        let of_fate = items.iter().filter(move |item| item.fate == fate);
        let name = |item: &ContinuationItem| match &item.hook {
            Some(hook) if *hook != item.id => format!("{} by {hook}", item.id),
            Some(_) | None => item.id.clone(),
        };
        let mut names: Vec<String> = of_fate.map(name).collect();
        names.dedup();
        names.join(", ")
    };
    let rows = [
        ("survives", ContinuationFate::Survives),
        ("restored", ContinuationFate::Restored),
        ("restored if its hook fires", ContinuationFate::MayBeRestored),
        ("lost", ContinuationFate::Lost),
    ];
    let rows = rows.map(|(label, fate)| vec![label.to_owned(), named(fate)]);
    write_heading(out, "Continuation", "the parts of the first request after a handoff");
    let rows: Vec<Vec<String>> =
        rows.into_iter().filter(|row| row.get(1).is_some_and(|names| !names.is_empty())).collect();
    push_table(out, &[Align::Left, Align::Left], &rows);
}

/// Writes a line for each tool that adds a text to the layer `tools`, with the source of the text.
fn write_guidance(out: &mut String, origins: &Origins) {
    let contributions = origins.0.iter().filter(|(key, _)| key.starts_with(ORIGIN_PREFIX));
    for (_, origin) in contributions {
        let line = format!("         {}  {}", origin.cause, format_location(origin.place.as_ref()));
        push(out, line.trim_end());
    }
}

fn format_layer(model: &PlannedModel, view: &LayerView) -> Vec<String> {
    let id = match (view.layer.kind, &view.layer.tag) {
        (
            LayerKind::Body
            | LayerKind::Answer
            | LayerKind::Tools
            | LayerKind::ToolGuidance
            | LayerKind::Prompt
            | LayerKind::Skills
            | LayerKind::ContextFile
            | LayerKind::Appended
            | LayerKind::Given
            | LayerKind::TurnText,
            _,
        )
        | (LayerKind::Knowledge, None) => view.layer.id.clone(),
        (LayerKind::Knowledge, Some(tag)) => format!("{} in <{tag}>", view.layer.id),
    };
    vec![
        group_thousands(view.tokens),
        per_turn(model, view.tokens),
        id,
        view.via.clone(),
        format_location(view.place.as_ref()),
    ]
}

fn left_out(out: &mut String, compilation: &Compilation, omitted: &OmittedTokens) {
    if compilation.notes.is_empty() {
        return;
    }
    write_heading(out, "Left out or changed", "");
    let row = |note: &crate::compile::Note| {
        let reason = OmissionReason::of(note).map(OmissionReason::as_str);
        let tokens = reason.and_then(|reason| omitted.get(reason, note.id())).map(group_thousands);
        vec![
            tokens.unwrap_or_default(),
            note.kind().to_owned(),
            note.id().to_owned(),
            note.to_string(),
            format_location(note.origin().and_then(|o| o.place.as_ref())),
        ]
    };
    let rows: Vec<Vec<String>> = compilation.notes.iter().map(row).collect();
    push_table(out, &[Align::Right, Align::Left, Align::Left, Align::Left, Align::Left], &rows);
}

/// Renders the intake of a chat: its commands, `input` hooks, skills and prompt templates, and the queue. Writes
/// nothing for a run.
fn write_intake(out: &mut String, plan: &Plan, summary: &PlanSummary) {
    match plan.mode {
        PlanMode::Run => return,
        PlanMode::Chat => {}
    }
    write_heading(out, "Intake", STAGES);
    let queue = "a prompt if the chat is idle, else a steering message or a follow-up";
    let mut rows: Vec<Vec<String>> = Vec::new();
    for entry in &summary.intake {
        let place = entry.source.as_ref().map(|source| format!("{}:{}:{}", source.file, source.line, source.column));
        let stage = entry.stage.as_str().to_owned();
        rows.push(vec![stage, entry.name.clone(), entry.describe(), place.unwrap_or_default()]);
    }
    rows.push(vec!["queue".to_owned(), String::new(), queue.to_owned()]);
    push_table(out, &[Align::Left; 4], &rows);
}

fn write_hooks(out: &mut String, compilation: &Compilation) {
    let plan = &compilation.plan;
    if plan.hooks.is_empty() {
        return;
    }
    write_heading(out, "Hooks", "in evaluation order, by event");
    let mut rows = Vec::new();
    let mut hooks: Vec<_> = plan.hooks.iter().zip(&compilation.hooks).collect();
    // Sorts by event, in the order of the language reference. The sort is stable, so the hooks of an event stay in
    // evaluation order.
    hooks.sort_by_key(|(hook, _)| hook.event);
    for (hook, trace) in hooks {
        let verdict = match &hook.verdict {
            PlanVerdict::Fires => "fires",
            PlanVerdict::Never { .. } => "never",
            PlanVerdict::Depends { .. } => "depends",
            PlanVerdict::Removed { .. } => "removed",
        };
        let starts = super::trust::describe_starts(hook).map(|starts| format!("; {starts}")).unwrap_or_default();
        let because = format!("{}{starts}", trace.because);
        rows.push(vec![
            verdict.to_owned(),
            hook_point::row_of(hook.event).name.to_owned(),
            hook.id.clone(),
            because,
            format_location(trace.place.as_ref()),
        ]);
    }
    push_table(out, &[Align::Left, Align::Left, Align::Left, Align::Left, Align::Left], &rows);
}

/// Renders the trust requirements. `states` contains one value for each requirement, true if the user trusts it; `None`
/// if the states are unknown.
fn write_trust(out: &mut String, compilation: &Compilation, states: Option<&[bool]>) {
    if compilation.trust_requirements.is_empty() {
        return;
    }
    let are_trusted = states.is_some_and(|states| states.iter().all(|trusted| *trusted));
    write_heading(out, "Runs only if trusted", if are_trusted { "" } else { "trust with `rye trust`" });
    let row = |(at, one): (usize, &crate::trust::TrustRequirement)| {
        let state = states.and_then(|states| states.get(at));
        let state = state.map(|trusted| if *trusted { "trusted" } else { "not trusted" }.to_owned());
        let (kind, place) = (one.kind.as_str().to_owned(), format_location(one.place.as_ref()));
        state.into_iter().chain([kind, one.name.clone(), one.what.clone(), place]).collect()
    };
    let rows: Vec<Vec<String>> = compilation.trust_requirements.iter().enumerate().map(row).collect();
    push_table(out, &[Align::Left; 5], &rows);
}

fn write_palette(out: &mut String, compilation: &Compilation) {
    let plan = &compilation.plan;
    let aside = match plan.model.tool_use {
        ToolUse::Native => format_tokens(plan.definition_tokens(&plan.model)),
        ToolUse::TextParsed => "sent in the system prompt".to_owned(),
    };
    write_heading(out, "Palette", &aside);
    if plan.palette.is_empty() {
        push(out, "  empty: no grant allows a tool");
    }
    let row = |tool: &crate::plan::PaletteTool| {
        let origin = compilation.origins.get(&format!("tool.{}", tool.name));
        vec![
            group_thousands(tool.tokens),
            per_turn(&plan.model, tool.tokens),
            tool.name.to_string(),
            origin.map(|o| o.cause.to_string()).unwrap_or_default(),
            format_location(origin.and_then(|o| o.place.as_ref())),
        ]
    };
    let columns = [Align::Right, Align::Right, Align::Left, Align::Left, Align::Left];
    push_table(out, &columns, &plan.palette.iter().map(row).collect::<Vec<_>>());
    for (refused, note) in [(false, "still reachable through rye_execute"), (true, "every call is refused")] {
        let row = |tool: &crate::plan::DroppedTool| {
            vec![group_thousands(tool.tokens), tool.item_id.to_string(), tool.because.clone()]
        };
        let rows: Vec<_> = plan.dropped_tools.iter().filter(|tool| tool.refused == refused).map(row).collect();
        if !rows.is_empty() {
            write_heading(out, "Not in the palette", note);
            push_table(out, &[Align::Right, Align::Left, Align::Left], &rows);
        }
    }
}

/// Renders the access of tools that use files, hosts or processes.
fn write_sandboxes(out: &mut String, compilation: &Compilation) {
    let touching = compilation.sandboxes.iter().filter(|sandbox| sandbox.kind != crate::sandbox::SandboxKind::Engine);
    let rows: Vec<Vec<String>> = touching.map(|sandbox| vec![sandbox.name.clone(), sandbox.to_string()]).collect();
    if !rows.is_empty() {
        let aside = if compilation.bubblewrap { "processes in bubblewrap; " } else { "" };
        write_heading(out, "Sandbox", &format!("{aside}`rye doctor` shows the sandbox support of this machine"));
        push_table(out, &[Align::Left, Align::Left], &rows);
    }
}

fn write_capabilities(out: &mut String, compilation: &Compilation) {
    let capabilities = &compilation.plan.capabilities;
    let aside = match (&capabilities.from, capabilities.declared, capabilities.grants.is_empty()) {
        (Some(from), _, _) => format!("permissions of {from}"),
        (None, false, false) => "inherited at spawn".to_owned(),
        (None, _, _) => {
            "none declared: a root thread is denied everything, a child thread has the capabilities of its parent"
                .to_owned()
        }
    };
    write_heading(out, "Capabilities", &aside);
    let row = |grant: &crate::plan::Grant| {
        let place = compilation.origins.get(&format!("capability.{}", grant.pattern)).and_then(|o| o.place.as_ref());
        vec![grant.pattern.clone(), grant.needs(), format_location(place)]
    };
    let rows: Vec<Vec<String>> = capabilities.grants.iter().map(row).collect();
    push_table(out, &[Align::Left, Align::Left, Align::Left], &rows);
    for (tier, why) in &capabilities.acknowledged {
        push(out, &format!("  acknowledged {tier}: {}", why.trim()));
    }
    for required in &compilation.approvals_required {
        push(out, &format!("  {}", required.describe_effect(compilation.headless_policy)));
    }
}

/// Renders everything that the thread and its hooks can access, as an upper bound. No name is left out.
fn write_access(out: &mut String, summary: &PlanSummary) {
    let lists = summary.access.lists().into_iter().filter(|(.., names)| !names.is_empty());
    let rows: Vec<Vec<String>> = lists.map(|(verb, _, names)| vec![verb.to_owned(), names.join(", ")]).collect();
    if !rows.is_empty() {
        write_heading(out, "Access", "upper bound for the thread and its hooks");
        push_table(out, &[Align::Left, Align::Left], &rows);
    }
}

fn write_limits(out: &mut String, compilation: &Compilation) {
    write_heading(out, "Limits", "");
    write_limit_table(out, compilation, &Limits::from(compilation.plan.limits), ("limit", &LimitName::ALL));
    if let Some(session) = compilation.plan.session_limits {
        write_heading(out, "Session limits", "for all prompts together");
        write_limit_table(out, compilation, &Limits::from(session), (SESSION_LIMIT, &LimitName::OF_SESSION));
    }
}

/// Writes the limits `names` as a table. `kind` is the start of their keys in the origins, such as `limit` in
/// `limit.spend`.
fn write_limit_table(
    out: &mut String,
    compilation: &Compilation,
    limits: &Limits,
    (kind, names): (&str, &[LimitName]),
) {
    let row = |name: LimitName| {
        let origin = compilation.origins.get(&format!("{kind}.{name}"));
        let value = match name {
            LimitName::Spend => dollars(limits.spend),
            LimitName::Turns
            | LimitName::Tokens
            | LimitName::Spawns
            | LimitName::Depth
            | LimitName::DurationSeconds
            | LimitName::Output => limits.get(name).as_u64().map(group_thousands).unwrap_or_default(),
        };
        vec![
            name.to_string(),
            value,
            origin.map(|o| o.cause.to_string()).unwrap_or_default(),
            format_location(origin.and_then(|o| o.place.as_ref())),
        ]
    };
    let rows: Vec<Vec<String>> = names.iter().copied().map(row).collect();
    push_table(out, &[Align::Left, Align::Right, Align::Left, Align::Left], &rows);
}

fn write_interface(out: &mut String, plan: &Plan) {
    for (title, fields) in [("Inputs", &plan.interface.inputs), ("Outputs", &plan.interface.outputs)] {
        if fields.is_empty() {
            continue;
        }
        write_heading(out, title, "");
        let row = |(name, field): (&String, &crate::plan::InterfaceField)| {
            let kind = field.describe_type();
            let state = match (plan.interface.values.get(name).filter(|_| title == "Inputs"), &field.default) {
                (Some(value), _) => format!("= {value}"),
                (None, Some(default)) => format!("default {default}"),
                (None, None) if field.required => "required".to_owned(),
                (None, None) => "optional".to_owned(),
            };
            vec![name.clone(), kind, state, field.description.lines().next().unwrap_or_default().to_owned()]
        };
        let rows: Vec<Vec<String>> = fields.iter().map(row).collect();
        push_table(out, &[Align::Left, Align::Left, Align::Left, Align::Left], &rows);
    }
}

/// Formats the cost of a part of the prompt in each request; empty if the model has no price.
fn per_turn(model: &PlannedModel, tokens: u64) -> String {
    let cost = model.cost(&Tokens { input: tokens, ..Tokens::default() });
    cost.map(round_dollars).unwrap_or_default()
}

/// Formats dollars with at least two decimals: `$0.20`.
pub(in crate::report) fn dollars(amount: Nanos) -> String {
    let text = amount.to_string();
    match text.split_once('.') {
        Some((_, places)) if places.len() > 1 => format!("${text}"),
        Some(_) => format!("${text}0"),
        None => format!("${text}.00"),
    }
}

/// Formats dollars for a reader: rounded up to four decimals and to four significant digits. Amounts below $0.001 have
/// two significant digits.
pub(in crate::report) fn round_dollars(amount: Nanos) -> String {
    const FOUR_DECIMALS: u64 = 100_000;
    let nanos = amount.to_u64();
    let digits = nanos.checked_ilog10().map_or(0, |log| log + 1);
    let unit = if nanos < 1_000_000 {
        10u64.pow(digits.saturating_sub(2))
    } else {
        10u64.pow(digits.saturating_sub(4)).max(FOUR_DECIMALS)
    };
    dollars(Nanos::from_u64(nanos.div_ceil(unit).saturating_mul(unit)))
}
