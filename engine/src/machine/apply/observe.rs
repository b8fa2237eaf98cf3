//! The queue of events for hooks that only observe events. Each event stays in the queue until its hooks have run.

use rye_compiler::hook::HookPoint;
use serde_json::{Map, Value, json};

use super::super::facts::call_fact;
use super::super::state::{Observation, ThreadState};
use crate::event::{Event, EventBody, ResultKind};

pub(super) fn queue_observations(state: &mut ThreadState, event: &Event) {
    if state.observes.is_empty() {
        return;
    }
    let points: &[HookPoint] = match &event.body {
        EventBody::CognitionIn(_) => &[HookPoint::CognitionIn],
        EventBody::CognitionOut(_) => &[HookPoint::CognitionOut],
        EventBody::ToolStarted(_) => &[HookPoint::ToolExecutionStart],
        EventBody::ToolCallResult(result) if result.why == ResultKind::Ran => {
            &[HookPoint::ToolExecutionEnd, HookPoint::ToolCallResult]
        }
        EventBody::ToolCallResult(_) => &[HookPoint::ToolCallResult],
        EventBody::Continues(_) => &[HookPoint::ThreadResumed],
        EventBody::Opened(_)
        | EventBody::PlanBound(_)
        | EventBody::SystemPrompt(_)
        | EventBody::ContextInjected(_)
        | EventBody::AttemptIntended(_)
        | EventBody::Reserved(_)
        | EventBody::AttemptFailed(_)
        | EventBody::Settled(_)
        | EventBody::HookPoint(_)
        | EventBody::ChildIntended(_)
        | EventBody::ChildSpawned(_)
        | EventBody::ChildEnded(_)
        | EventBody::Mail(_)
        | EventBody::Limit(_)
        | EventBody::ApprovalAsked(_)
        | EventBody::ApprovalGiven(_)
        | EventBody::StateSet(_)
        | EventBody::Compacted(_)
        | EventBody::Recovered(_)
        | EventBody::Checkpoint(_)
        | EventBody::UserInput(_)
        | EventBody::Retracted(_)
        | EventBody::Named(_)
        | EventBody::ShellRan(_)
        | EventBody::FileChanged(_)
        | EventBody::CommandRan(_)
        | EventBody::PromptStarted(_)
        | EventBody::PromptEnded(_)
        | EventBody::Ended(_) => &[],
    };
    for point in points.iter().filter(|point| state.observes.contains(point)).copied().collect::<Vec<_>>() {
        let facts = fields(state, point, &event.body);
        state.observations.push_back(Observation { point, seq: event.seq, facts });
    }
}

/// Returns the facts of an event for the hooks that observe the event. The facts are the fields of the event. At the
/// hook points before and after a tool runs, the facts are the call and, after the run, the size and duration of the
/// result. The facts do not contain the item of the call, because only the plan names the item. `observed_facts` adds
/// the item.
fn fields(state: &ThreadState, point: HookPoint, body: &EventBody) -> Map<String, Value> {
    let mut facts = match serde_json::to_value(body) {
        Ok(Value::Object(map)) => map,
        Ok(_) | Err(_) => Map::new(),
    };
    facts.remove("type");
    if !matches!(point, HookPoint::ToolExecutionStart | HookPoint::ToolExecutionEnd) {
        return facts;
    }
    let index = facts.get("index").and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
    let call = state.calls.list.get(index).map_or(Value::Null, |call| call_fact(&call.call, None));
    let mut around = Map::from_iter([("call".to_owned(), call)]);
    if let EventBody::ToolCallResult(result) = body {
        let size = json!({"bytes": result.bytes, "is_error": result.is_error, "duration_ms": result.duration_ms});
        around.insert("result".into(), size);
    }
    around
}
