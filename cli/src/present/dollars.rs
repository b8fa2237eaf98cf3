//! Events with their money in dollars, as in all JSON output. Transcripts hold integer nano-dollars.

use rye_engine::event::{ApprovalAsked, ControlMessage, EventBody, HookOutcome, ImpliedRaise};
use rye_engine::thread::dollars;
use serde_json::{Value, json};

/// Returns an event with its `type`, its fields, and money in dollars.
pub fn event_in_dollars(body: &EventBody) -> Value {
    let mut event = serde_json::to_value(body).unwrap_or_default();
    for place in amount_pointers(body) {
        let Some((list, field)) = place.split_once("/*") else {
            convert(&mut event, place);
            continue;
        };
        let entries = event.pointer_mut(list).and_then(Value::as_array_mut);
        for entry in entries.into_iter().flatten() {
            convert(entry, field);
        }
    }
    event
}

/// Converts the nano-dollars at a JSON pointer to dollars, if there is an amount.
fn convert(value: &mut Value, pointer: &str) {
    if let Some(amount) = value.pointer_mut(pointer)
        && let Some(nanos) = amount.as_u64()
    {
        *amount = dollars(nanos);
    }
}

/// Returns the raise that an approval implies, with `spend` in dollars.
pub fn raise_in_dollars(raise: &ImpliedRaise) -> Value {
    let value = if raise.limit == "spend" { dollars(raise.value) } else { raise.value.into() };
    json!({"limit": raise.limit, "value": value})
}

/// Returns the JSON pointers to amounts in nano-dollars in a serialized event. `*` stands for each entry of a list.
fn amount_pointers(body: &EventBody) -> &'static [&'static str] {
    match body {
        EventBody::Opened(_) => &["/limits/spend", "/ceiling/spend"],
        EventBody::PromptStarted(_) => &["/limits/spend"],
        EventBody::UserInput(_) => &["/bounds/spend"],
        EventBody::Continues(_) => &["/prompt/limits/spend", "/children/*/spend"],
        EventBody::AttemptIntended(_) => &["/worst_case"],
        EventBody::Reserved(_) => &["/amount"],
        EventBody::Settled(_) => &["/amount", "/overspent"],
        EventBody::ChildSpawned(_) => &["/spend"],
        EventBody::ChildEnded(_) | EventBody::PromptEnded(_) | EventBody::Ended(_) => &["/cost/spend"],
        EventBody::Mail(mail) => match &mail.message {
            ControlMessage::Raise { limit, .. } if limit == "spend" => &["/message/value"],
            ControlMessage::Submit { .. } => &["/message/bounds/spend"],
            ControlMessage::Raise { .. }
            | ControlMessage::Cancel
            | ControlMessage::Kill
            | ControlMessage::Steer { .. }
            | ControlMessage::FollowUp { .. }
            | ControlMessage::Approve { .. }
            | ControlMessage::Handoff
            | ControlMessage::Retract { .. }
            | ControlMessage::Compact { .. }
            | ControlMessage::Replan { .. }
            | ControlMessage::Fork { .. }
            | ControlMessage::Name { .. }
            | ControlMessage::Mode { .. }
            | ControlMessage::Shell { .. }
            | ControlMessage::Interrupt
            | ControlMessage::Close
            | ControlMessage::Unreadable { .. } => &[],
        },
        EventBody::HookPoint(run) if matches!(&run.answer, HookOutcome::Raise { limit, .. } if limit == "spend") => {
            &["/answer/value"]
        }
        EventBody::ApprovalAsked(ApprovalAsked { raise: Some(raise), .. }) if raise.limit == "spend" => {
            &["/raise/value"]
        }
        EventBody::HookPoint(_)
        | EventBody::PlanBound(_)
        | EventBody::SystemPrompt(_)
        | EventBody::ContextInjected(_)
        | EventBody::CognitionIn(_)
        | EventBody::CognitionOut(_)
        | EventBody::AttemptFailed(_)
        | EventBody::ToolStarted(_)
        | EventBody::ToolCallResult(_)
        | EventBody::ChildIntended(_)
        | EventBody::Limit(_)
        | EventBody::ApprovalAsked(_)
        | EventBody::ApprovalGiven(_)
        | EventBody::StateSet(_)
        | EventBody::Compacted(_)
        | EventBody::Recovered(_)
        | EventBody::Retracted(_)
        | EventBody::Named(_)
        | EventBody::ShellRan(_)
        | EventBody::FileChanged(_)
        | EventBody::CommandRan(_)
        | EventBody::Checkpoint(_) => &[],
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn money_of_an_event_is_in_dollars() {
        let limits = json!({"turns":1,"tokens":1,"spend":2_500_000_000_u64,"spawns":1,"depth":1,"duration_seconds":1,"output":1});
        let cost = json!({"turns":1,"input_tokens":1,"output_tokens":1,"cached_tokens":0,"spend":150_000});
        for (event, place, dollars) in [
            (
                json!({"type":"opened","thread_id":"t","directive":"d","origin":"run","root":"t","limits":limits,
                       "ceiling":limits,"grants":[],"seed":1,"project_path":"p"}),
                "/ceiling/spend",
                json!(2.5),
            ),
            (json!({"type":"reserved","turn":1,"attempt":0,"amount":1}), "/amount", json!(0.000_000_001)),
            (
                json!({"type":"continues","thread":"t","at_seq":1,"at_h":"h",
                       "children":[{"spawn":1,"thread_id":"k","spend":0},{"spawn":2,"thread_id":"l","spend":500_000_000}]}),
                "/children/1/spend",
                json!(0.5),
            ),
            (json!({"type":"child_spawned","spawn":1,"thread_id":"t","spend":300_000_000}), "/spend", json!(0.3)),
            (
                json!({"type":"child_ended","spawn":1,"thread_id":"t","status":"completed","cost":cost}),
                "/cost/spend",
                json!(0.000_15),
            ),
            (
                json!({"type":"mail","id":"m","message":{"kind":"raise","limit":"spend","value":2_000_000_000_u64}}),
                "/message/value",
                json!(2),
            ),
            (
                json!({"type":"mail","id":"m","message":{"kind":"raise","limit":"turns","value":20}}),
                "/message/value",
                json!(20),
            ),
            (
                json!({"type":"approval_asked","asked":"limit","what":"w","raise":{"limit":"spend","value":500_000_000}}),
                "/raise/value",
                json!(0.5),
            ),
        ] {
            let body: EventBody = serde_json::from_value(event.clone()).unwrap();
            let printed = event_in_dollars(&body);
            assert_eq!(printed.pointer(place).unwrap().as_f64(), dollars.as_f64(), "{printed}");
            assert_eq!(printed["type"], event["type"]);
        }
    }
}
