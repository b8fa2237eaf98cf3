//! The texts of `before_agent_start` and `context` hooks in the first request. A run applies the actions of these hooks
//! before it sends the request; this module applies them to the prompt in the same way (`language.md` 7).

use rye_grammar::SourceId;
use rye_grammar::template::{Template, TemplatePart, parse};
use serde_json::Value;

use crate::hook::{HookAction, HookPoint, PlanVerdict, PlannedHook, Position};
use crate::plan::Plan;
use crate::plan::prompt::{LAYER_SEPARATOR, Layer, LayerKind, RuntimePlaceholder, Segment};

/// Path of the fact that holds the system prompt before the hooks change it.
const SYSTEM_PROMPT: &str = "system_prompt";

/// A message of the first request. `kind` is the name of the message in the action `drop`, such as `user`.
struct RequestMessage {
    kind: &'static str,
    layers: Vec<Layer>,
}

/// The layers of the first request after the `before_agent_start` and `context` hooks.
pub(crate) struct TurnLayers {
    pub system: Vec<Layer>,
    /// The layers of all messages, in the order of sending.
    pub messages: Vec<Layer>,
    /// Number of messages of the first request.
    pub count: usize,
}

/// Returns true if a hook of the plan can change the first request before it is sent.
pub(crate) fn changes_request(plan: &Plan) -> bool {
    turn_hooks(plan).next().is_some()
}

/// Applies the hooks that change the request to its layers. If only a run can decide whether a hook fires, the layer of
/// the hook's text is marked (`depends`), and the hook removes and replaces nothing here.
pub fn apply(plan: &Plan, system: Vec<Layer>, first: Vec<Layer>) -> TurnLayers {
    let mut system = system;
    let mut messages = vec![RequestMessage { kind: "user", layers: first }];
    let at = |point: HookPoint| turn_hooks(plan).filter(move |hook| hook.event == point);
    for hook in at(HookPoint::BeforeAgentStart).chain(at(HookPoint::Context)) {
        let fires = hook.verdict == PlanVerdict::Fires;
        match &hook.action {
            HookAction::SystemPrompt { text, append } => {
                if let Some(text) = text.as_deref().filter(|_| fires) {
                    system = replace_system(hook, text, system);
                }
                system.extend(append.iter().map(|text| text_layer(hook, text, &[])));
            }
            HookAction::Message { content, .. } => {
                messages.push(RequestMessage { kind: "custom", layers: vec![text_layer(hook, content, &[])] });
            }
            HookAction::Inject { content, position } => {
                let message = RequestMessage { kind: "user", layers: vec![text_layer(hook, content, &[])] };
                let index = if *position == Position::Before { 0 } else { messages.len() };
                messages.insert(index, message);
            }
            action if fires => edit_messages(hook, action, &mut messages),
            HookAction::SetExtends { .. }
            | HookAction::Fetch { .. }
            | HookAction::Execute { .. }
            | HookAction::Sign { .. }
            | HookAction::Transform { .. }
            | HookAction::Handled { .. }
            | HookAction::Drop { .. }
            | HookAction::KeepLast { .. }
            | HookAction::Replace { .. }
            | HookAction::Block { .. }
            | HookAction::Modify { .. }
            | HookAction::Retry { .. }
            | HookAction::Continue
            | HookAction::Terminate { .. }
            | HookAction::Escalate
            | HookAction::Raise { .. }
            | HookAction::Handoff
            | HookAction::Compact
            | HookAction::FollowUp { .. } => {}
        }
    }
    let count = messages.len();
    TurnLayers { system, messages: messages.into_iter().flat_map(|message| message.layers).collect(), count }
}

/// Applies an action that removes or replaces messages; other actions change nothing here.
fn edit_messages(hook: &PlannedHook, action: &HookAction, messages: &mut Vec<RequestMessage>) {
    if let HookAction::Drop { kinds, n } = action {
        let mut left = n.unwrap_or(u64::MAX);
        messages.retain(|message| {
            let is_dropped = left > 0 && kinds.iter().any(|kind| kind == message.kind);
            left -= u64::from(is_dropped);
            !is_dropped
        });
    } else if let HookAction::KeepLast { n } = action {
        let kept = usize::try_from(*n).unwrap_or(usize::MAX);
        messages.drain(..messages.len().saturating_sub(kept));
    } else if let HookAction::Replace { messages: other } = action {
        let texts = other.as_array().into_iter().flatten().map(message_text);
        let message = |text: String| RequestMessage { kind: "user", layers: vec![text_layer(hook, &text, &[])] };
        *messages = texts.map(message).collect();
    }
}

/// Returns the tokens that every turn sends at the end of its messages: the texts that `context` hooks inject there.
/// The next turn cannot read these tokens from the provider's cache.
pub(crate) fn trailing_tokens(plan: &Plan) -> u64 {
    let trailing = turn_hooks(plan).filter(|hook| hook.event == HookPoint::Context).filter_map(|hook| {
        let HookAction::Inject { content, position: Position::After } = &hook.action else { return None };
        Some(plan.model.counted_by.count(content))
    });
    trailing.fold(0, u64::saturating_add)
}

/// Returns the first `context` hook that adds a text at the end of the messages of every turn; `None` if there is none.
pub(crate) fn trailing_hook(plan: &Plan) -> Option<&PlannedHook> {
    turn_hooks(plan).find(|hook| {
        hook.event == HookPoint::Context && matches!(hook.action, HookAction::Inject { position: Position::After, .. })
    })
}

/// Returns true if a hook may change the first request in a way that [`apply`] does not show: the hook executes an
/// item, or the hook replaces a text and may not fire.
pub(crate) fn adds_unknown_text(hook: &PlannedHook) -> bool {
    let is_open = hook.verdict != PlanVerdict::Fires;
    let is_unknown = matches!(hook.action, HookAction::Execute { .. })
        || is_open
            && matches!(hook.action, HookAction::Replace { .. } | HookAction::SystemPrompt { text: Some(_), .. });
    is_unknown && changes_first_request(hook)
}

fn turn_hooks(plan: &Plan) -> impl Iterator<Item = &PlannedHook> {
    plan.hooks.iter().filter(|hook| changes_first_request(hook))
}

fn changes_first_request(hook: &PlannedHook) -> bool {
    hook.is_live() && matches!(hook.event, HookPoint::BeforeAgentStart | HookPoint::Context)
}

/// Returns the layers of the system prompt after a hook replaced the prompt by `text`. If `text` is `${system_prompt}`
/// with an addition, the existing layers stay, and the addition becomes a new layer.
fn replace_system(hook: &PlannedHook, text: &str, system: Vec<Layer>) -> Vec<Layer> {
    let added = text.strip_prefix("${system_prompt}").filter(|_| !system.is_empty());
    match added.and_then(|rest| if rest.is_empty() { Some(rest) } else { rest.strip_prefix(LAYER_SEPARATOR) }) {
        Some("") => system,
        Some(rest) if !rest.contains("${system_prompt}") => {
            system.into_iter().chain([text_layer(hook, rest, &[])]).collect()
        }
        Some(_) | None => vec![text_layer(hook, text, &join_segments(&system))],
    }
}

/// Joins the segments of layers, with the text that separates layers between them.
fn join_segments(layers: &[Layer]) -> Vec<Segment> {
    let mut joined: Vec<Segment> = Vec::new();
    for layer in layers {
        if !joined.is_empty() {
            joined.push(Segment::Text { text: LAYER_SEPARATOR.to_owned() });
        }
        joined.extend(layer.segments.iter().cloned());
    }
    joined
}

/// Returns the layer of a text that a hook adds. `system` replaces the placeholder `${system_prompt}`.
fn text_layer(hook: &PlannedHook, text: &str, system: &[Segment]) -> Layer {
    let literal = || Template { parts: vec![TemplatePart::Text(text.to_owned())] };
    let template = parse(SourceId(0), text, 0).unwrap_or_else(|_| literal());
    let segments = template.parts.into_iter().flat_map(|part| match part {
        TemplatePart::Text(text) => vec![Segment::Text { text }],
        TemplatePart::Placeholder(placeholder) if placeholder.path.to_string() == SYSTEM_PROMPT => system.to_vec(),
        TemplatePart::Placeholder(placeholder) => {
            let (path, fallback) = (placeholder.path.to_string(), placeholder.fallback);
            let why = format!("the hook `{}` fills in `{path}` when it fires", hook.id);
            vec![Segment::Pending { pending: RuntimePlaceholder::Fact { path, fallback }, why }]
        }
    });
    Layer {
        hook: Some(hook.id.clone()),
        depends: hook.verdict != PlanVerdict::Fires,
        ..Layer::new(hook.id.clone(), LayerKind::TurnText, segments.collect())
    }
}

/// Returns the text of a message that `replace` sends.
fn message_text(message: &Value) -> String {
    let content = message.get("content").unwrap_or(&Value::Null);
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter_map(|block| block.get("text").and_then(Value::as_str));
            texts.collect::<Vec<_>>().join("\n")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}
