//! Facts that the hooks of a point can read at run time (`language.md` 7).

use rye_compiler::hook::HookPoint;
use rye_compiler::plan::Plan;
use rye_grammar::ItemId;
use serde_json::{Map, Value, json};

use super::state::{Observation, ThreadState};
use super::{prompt, request};
use crate::message::{ContentBlock, Message, text_of};
use crate::thread::dollars;

/// Returns the facts of a hook point. If the hook point is about a call, `subject` is the index of the call.
pub(super) fn point_facts(
    plan: &Plan,
    state: &ThreadState,
    point: HookPoint,
    subject: Option<&str>,
) -> Map<String, Value> {
    let mut facts = common_facts(plan, state);
    let mut put = |name: &str, value: Value| {
        facts.insert(name.to_owned(), value);
    };
    match point {
        HookPoint::ResolveExtends => put("inputs", inputs(state)),
        HookPoint::BuildSystemPrompt => {
            put("directive_body", prompt::body(plan).into());
            put("limits", limits(plan, state));
            put("inputs", inputs(state));
        }
        HookPoint::ThreadStarted | HookPoint::ThreadContinued => started(&mut facts, plan, state),
        HookPoint::BeforeAgentStart => {
            put("prompt", text_of(prompt_content(state)).into());
            put("system_prompt", state.conversation.system.as_deref().unwrap_or_default().into());
            put("images", images(state));
        }
        HookPoint::Context => {
            put("messages", serde_json::to_value(&state.conversation.messages).unwrap_or(Value::Null));
            put("usage_ratio", usage_ratio(plan, state));
            put("turn", state.turn().into());
        }
        HookPoint::ToolCall => {
            put("call", call(plan, state, subject));
            put("turn", state.cost.turns.into());
        }
        HookPoint::ToolResult => {
            put("call", call(plan, state, subject));
            put("result", result(state, subject));
        }
        HookPoint::AfterStep => put("turn", state.cost.turns.into()),
        HookPoint::AgentEnd => {
            put("turn", state.cost.turns.into());
            put("result", state.last_text().unwrap_or_default().as_str().into());
            // `partial_outputs` holds the valid outputs of the last call of `rye_directive_return` that lacked a
            // required output. After a call with all outputs, the hooks of this point do not run.
            put("outputs", state.partial_outputs.clone().map_or(Value::Null, Value::Object));
        }
        HookPoint::Limit => {
            if let Some(hit) = &state.limit {
                put("limit_code", hit.limit_code.clone().into());
                put("current_value", hit.current_value.clone());
                put("current_max", hit.current_max.clone());
            }
        }
        HookPoint::Error => error(&mut facts, plan, state, subject),
        HookPoint::ContextLimitReached => {
            put("usage_ratio", usage_ratio(plan, state));
            put("tokens_used", request::tokens_used(plan, state).into());
            put("tokens_limit", state.model(plan).context_window.into());
        }
        HookPoint::DirectiveReturn => {
            let outputs = state.returned.as_ref().map(|r| Value::Object(r.outputs.clone()));
            put("outputs", outputs.unwrap_or(Value::Null));
        }
        HookPoint::AfterComplete => put("project_path", project(state)),
        // The callers add the remaining facts: the fields of the event at observing points, the message at `input`, and
        // the result at the points of the end.
        HookPoint::Input
        | HookPoint::Command
        | HookPoint::ToolExecutionStart
        | HookPoint::ToolExecutionEnd
        | HookPoint::CognitionIn
        | HookPoint::CognitionOut
        | HookPoint::ToolCallResult
        | HookPoint::ThreadCompleted
        | HookPoint::ThreadError
        | HookPoint::ThreadCancelled
        | HookPoint::ThreadResumed => {}
    }
    facts
}

/// Returns the facts of the hooks that observe an event: the common facts, and the fields of the event or the call with
/// its item. A field that is null does not replace a common fact.
pub(super) fn observed_facts(plan: &Plan, state: &ThreadState, seen: &Observation) -> Map<String, Value> {
    let mut facts = common_facts(plan, state);
    for (name, value) in seen.facts.clone() {
        if !value.is_null() || !facts.contains_key(&name) {
            facts.insert(name, value);
        }
    }
    if let Some(Value::Object(call)) = facts.get_mut("call") {
        let (name, input) = (call.get("name").and_then(Value::as_str), call.get("input"));
        let item = name.zip(input).and_then(|(name, input)| item_of(plan, name, input));
        call.insert("item_id".into(), item.map_or(Value::Null, |id| id.as_str().into()));
    }
    facts
}

/// Returns the facts that do not depend on the hook point: `thread_id`, `directive`, `category`, `model`, `cost` and
/// `loop_count`.
pub(super) fn common_facts(plan: &Plan, state: &ThreadState) -> Map<String, Value> {
    let thread = state.launch.as_ref().map(|l| l.thread_id.clone()).unwrap_or_default();
    let mut facts = Map::new();
    facts.insert("thread_id".into(), thread.into());
    facts.insert("directive".into(), plan.directive.as_str().into());
    facts.insert("category".into(), plan.category.clone().into());
    facts.insert("model".into(), state.model(plan).id.clone().into());
    facts.insert("cost".into(), state.cost.fact(state.clock.elapsed_ms(), state.limits.spend));
    facts.insert("loop_count".into(), state.cost.turns.into());
    facts
}

/// Returns the value at a dotted path; `None` if there is none. A segment of the path is a key, or an index in a list.
pub(super) fn lookup<'a>(facts: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let mut segments = path.split('.');
    let mut value = facts.get(segments.next()?)?;
    for segment in segments {
        value = match value {
            Value::Object(map) => map.get(segment)?,
            Value::Array(list) => list.get(segment.parse::<usize>().ok()?)?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
        };
    }
    Some(value)
}

fn started(facts: &mut Map<String, Value>, plan: &Plan, state: &ThreadState) {
    let launch = state.launch.as_deref();
    let parent = launch.and_then(|l| l.parent.as_ref()).map(|p| p.thread_id.clone());
    let own = launch.and_then(|l| l.grants.first());
    let grants: Vec<&str> = own.into_iter().flatten().map(|g| g.pattern.as_str()).collect();
    facts.insert("directive_body".into(), prompt::body(plan).into());
    facts.insert("limits".into(), limits(plan, state));
    facts.insert("inputs".into(), inputs(state));
    facts.insert("project_path".into(), project(state));
    facts.insert("depth".into(), state.limits.depth.into());
    facts.insert("parent_thread_id".into(), parent.map_or(Value::Null, Value::String));
    facts.insert("spend_limit".into(), dollars(state.limits.spend));
    facts.insert("max_turns".into(), state.limits.turns.into());
    facts.insert("capabilities_summary".into(), grants.join(", ").into());
    if let Some(continues) = &state.continues {
        facts.insert("previous_thread_id".into(), continues.thread.clone().into());
    }
}

fn inputs(state: &ThreadState) -> Value {
    Value::Object(state.launch.as_ref().map(|l| l.inputs.clone()).unwrap_or_default())
}

fn project(state: &ThreadState) -> Value {
    state.launch.as_ref().map_or(Value::Null, |l| l.project_path.clone().into())
}

fn limits(plan: &Plan, state: &ThreadState) -> Value {
    let l = &state.limits;
    json!({
        "turns": l.turns, "tokens": l.tokens, "spend": dollars(l.spend), "spawns": l.spawns, "depth": l.depth,
        "duration_seconds": stated_duration_seconds(plan, state), "output": l.output,
    })
}

/// Returns the limit `duration_seconds` that hooks and the model see: the limit of the plan, or the raised limit. The
/// remaining time of the parent also bounds the thread, but is not considered here. That time depends on the speed of
/// earlier steps, so the value would differ between equal runs.
pub(super) fn stated_duration_seconds(plan: &Plan, state: &ThreadState) -> u64 {
    let (planned, current) = (plan.limits.duration_seconds, state.thread_limits.duration_seconds);
    let at_launch = state.launch.as_ref().map_or(current, |launch| launch.limits.duration_seconds);
    if current > at_launch { planned.max(current) } else { planned }
}

fn usage_ratio(plan: &Plan, state: &ThreadState) -> Value {
    let thousandths =
        (request::tokens_used(plan, state) * 1000).checked_div(state.model(plan).context_window).unwrap_or(0);
    crate::thread::thousandths(thousandths)
}

/// Returns references to the images of the current prompt's message, as a JSON list.
fn images(state: &ThreadState) -> Value {
    let shown = prompt_content(state).iter().filter(|block| matches!(block, ContentBlock::Image(_)));
    shown.map(|block| serde_json::to_value(block).unwrap_or(Value::Null)).collect()
}

/// Returns the content of the current prompt's message.
fn prompt_content(state: &ThreadState) -> &[ContentBlock] {
    match state.conversation.messages.get(state.conversation.prompt_index).map(|message| &**message) {
        Some(Message::User { content }) => content,
        Some(
            Message::Assistant { .. }
            | Message::ToolResult { .. }
            | Message::Custom { .. }
            | Message::Bash { .. }
            | Message::CompactionSummary { .. }
            | Message::BranchSummary { .. },
        )
        | None => &[],
    }
}

fn indexed(subject: Option<&str>) -> usize {
    subject.and_then(|s| s.parse().ok()).unwrap_or(usize::MAX)
}

/// Returns a call of the reply as the value of a fact, with the item that the call acts on. `subject` is the index of
/// the call, as a text. Null if the reply has no such call.
fn call(plan: &Plan, state: &ThreadState, subject: Option<&str>) -> Value {
    let Some(call) = state.calls.list.get(indexed(subject)) else { return Value::Null };
    call_fact(&call.call, item_of(plan, &call.call.name, &call.call.input))
}

pub(super) fn call_fact(call: &crate::message::ToolCall, item_id: Option<ItemId>) -> Value {
    let item = item_id.map_or(Value::Null, |id| id.as_str().into());
    json!({"id": call.id, "name": call.name, "item_id": item, "input": call.input})
}

/// Returns the item that a call acts on: the item of the palette entry, or a valid `item_id` in the arguments. `None`
/// if there is neither, or if the called tool is not in the palette.
fn item_of(plan: &Plan, name: &str, input: &Value) -> Option<ItemId> {
    let tool = plan.palette.iter().find(|tool| *tool.name == *name)?;
    let named = || input.get("item_id").and_then(Value::as_str).and_then(|id| ItemId::parse(id).ok());
    tool.item_id.clone().or_else(named)
}

fn result(state: &ThreadState, subject: Option<&str>) -> Value {
    let Some(result) = state.calls.list.get(indexed(subject)).and_then(|c| c.result.as_ref()) else {
        return Value::Null;
    };
    json!({"content": result.content, "is_error": result.is_error, "details": result.details,
           "bytes": result.bytes, "duration_ms": result.duration_ms})
}

fn error(facts: &mut Map<String, Value>, plan: &Plan, state: &ThreadState, subject: Option<&str>) {
    if let Some(call) = subject.and_then(|_| state.calls.list.get(indexed(subject))) {
        let message = call.result.as_ref().map(|r| r.content.clone()).unwrap_or_default();
        let item = item_of(plan, &call.call.name, &call.call.input);
        let tool = item.map_or_else(|| call.call.name.clone(), |id| id.to_string());
        facts.insert(
            "error".into(),
            json!({"type": "tool_error", "message": message, "code": null, "status": null, "tool": tool}),
        );
        facts.insert(
            "classification".into(),
            json!({"name": "tool_error", "category": "permanent", "retryable": false}),
        );
        facts.insert("attempt".into(), 1.into());
        return;
    }
    let Some(failed) = &state.failed else { return };
    let e = &failed.error;
    facts.insert(
        "error".into(),
        json!({"type": e.error_type, "message": e.message, "code": e.code, "status": e.status}),
    );
    facts.insert("classification".into(), serde_json::to_value(&failed.classification).unwrap_or(Value::Null));
    facts.insert("attempt".into(), (failed.attempt + 1).into());
}
