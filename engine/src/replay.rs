//! Conversion of a transcript to a script (`docs/reference/scripted.md`). The script has a step for every reply and
//! every failed attempt. A step can also hold the contents of the recorded request. A replay then reports the first
//! request that differs from the recorded request. The conversion is a pure function of the plan and the events.

use rye_compiler::plan::Plan;

use crate::event::{AttemptFailed, CognitionOut, Event, EventBody};
use crate::exchange::{FailedStage, RequestTurns, StopReason, Usage};
use crate::machine::{Effect, ThreadState, apply, build_request, next, thread_position};
use crate::message::{ContentBlock, MALFORMED_KEY, ToolCall, reply_text};
use crate::provider::scripted::{
    Expectation, IdPlaceholders, RecordedRequest, ScriptStep, ScriptedArguments, ScriptedCall, ScriptedErrorBody,
    ScriptedFailure, ScriptedFault, ScriptedReply, ScriptedUsage,
};

/// Converts the attempts of a thread to steps of a script, in order. If `exact` is true, every step expects the request
/// that the thread sent in the attempt.
pub fn script_steps(plan: &Plan, events: &[Event], exact: bool) -> Vec<ScriptStep> {
    let mut state = ThreadState::new();
    let mut steps = Vec::new();
    // `requested` is the request of the current attempt, `answered` the request of the last reply.
    let (mut requested, mut answered): (Option<RecordedRequest>, Option<RecordedRequest>) = (None, None);
    for event in events {
        let expect = || {
            let recorded = requested.clone().filter(|_| exact).unwrap_or_default();
            Expectation { recorded: recorded.without_unchanged(answered.as_ref()), ..Expectation::default() }
        };
        match &event.body {
            EventBody::CognitionOut(out) => {
                let ids = IdPlaceholders::of(&thread_position(plan, &state));
                steps.push(ScriptStep::Reply(reply(out, expect(), &ids)));
                answered = requested.take();
            }
            EventBody::AttemptFailed(failed) => steps.push(ScriptStep::Fault(fault(failed, expect()))),
            EventBody::Opened(_)
            | EventBody::PlanBound(_)
            | EventBody::Continues(_)
            | EventBody::SystemPrompt(_)
            | EventBody::ContextInjected(_)
            | EventBody::CognitionIn(_)
            | EventBody::AttemptIntended(_)
            | EventBody::Reserved(_)
            | EventBody::Settled(_)
            | EventBody::HookPoint(_)
            | EventBody::ToolStarted(_)
            | EventBody::ToolCallResult(_)
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
            | EventBody::Ended(_) => {}
        }
        apply(&mut state, event);
        if matches!(event.body, EventBody::Reserved(_))
            && let Effect::CallModel { call, .. } = next(plan, &state)
        {
            let request = build_request(plan, &state, call, RequestTurns::All);
            requested = Some(RecordedRequest::from_request(&request));
        }
    }
    steps
}

fn reply(out: &CognitionOut, expect: Expectation, ids: &IdPlaceholders) -> ScriptedReply {
    let thinking: Vec<&str> = out
        .content
        .iter()
        .filter_map(|block| match block {
            ContentBlock::Thinking { text, .. } => Some(text.as_str()),
            ContentBlock::Text { .. }
            | ContentBlock::Image { .. }
            | ContentBlock::ToolCall(_)
            | ContentBlock::Other { .. } => None,
        })
        .filter(|text| !text.is_empty())
        .collect();
    let tool_calls: Vec<ScriptedCall> = out
        .content
        .iter()
        .filter_map(|block| match block {
            ContentBlock::ToolCall(call) => Some(scripted(call, ids)),
            ContentBlock::Text { .. }
            | ContentBlock::Thinking { .. }
            | ContentBlock::Image { .. }
            | ContentBlock::Other { .. } => None,
        })
        .collect();
    let natural = if tool_calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
    ScriptedReply {
        expect,
        thinking: (!thinking.is_empty()).then(|| thinking.join("\n\n")),
        text: reply_text(&out.content).into_string(),
        tool_calls,
        usage: usage(&out.usage),
        stop: (out.stop != natural).then(|| out.stop.clone()),
        ..ScriptedReply::default()
    }
}

fn scripted(call: &ToolCall, ids: &IdPlaceholders) -> ScriptedCall {
    let arguments = match call.malformed() {
        Some(text) if call.input.as_object().is_some_and(|map| map.len() == 1 && map.contains_key(MALFORMED_KEY)) => {
            ScriptedArguments::Raw(text.to_owned())
        }
        Some(_) | None => ScriptedArguments::Input(ids.replace_in_arguments(&call.input)),
    };
    ScriptedCall { id: Some(call.id.clone()), name: call.name.clone(), arguments }
}

fn usage(usage: &Usage) -> ScriptedUsage {
    let Usage { input, output, cache_read, cache_write } = *usage;
    let some = |tokens: u64| (tokens > 0).then_some(tokens);
    ScriptedUsage {
        input: Some(input),
        output: Some(output),
        cache_read: some(cache_read),
        cache_write: some(cache_write),
    }
}

fn fault(failed: &AttemptFailed, expect: Expectation) -> ScriptedFault {
    let error = &failed.error;
    let streams = matches!(error.stage, FailedStage::Truncated | FailedStage::StreamError);
    ScriptedFault {
        expect,
        times: 1,
        fault: ScriptedFailure {
            stage: Some(error.stage),
            status: error.status,
            headers: error.headers.iter().cloned().collect(),
            error: Some(ScriptedErrorBody {
                kind: error.error_type.clone(),
                code: error.code.clone(),
                message: Some(error.message.clone()),
            }),
            cut: error.cut.is_some() && error.stage != FailedStage::Truncated,
            usage: error.usage.as_ref().map(usage),
            usage_is_final: error.cut.is_none() && streams,
        },
        ..ScriptedFault::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use serde_json::json;

    use super::*;
    use crate::exchange::Reply;
    use crate::machine::fixture::{SimulatedThread, call, calls, plan, status, text};
    use crate::provider::Provider;
    use crate::provider::scripted::{Script, Scripted};

    /// Returns a thread with a call, a failure and an answer.
    fn played() -> SimulatedThread {
        let replies =
            vec![calls(&[call("a_read", json!({"path": "x"}))]), status(529, &[("retry-after", "1")]), text("done")];
        let mut play = SimulatedThread::new(plan(), replies);
        play.run();
        play
    }

    #[test]
    fn every_attempt_becomes_a_step() {
        let play = played();
        let steps = script_steps(&play.plan, &play.events, true);
        let [ScriptStep::Reply(first), ScriptStep::Fault(failed), ScriptStep::Reply(last)] = &steps[..] else {
            panic!("{steps:?}")
        };
        assert_eq!(first.tool_calls[0].name, "a_read");
        assert_eq!(first.expect.recorded.system.as_deref(), Some("You are you."));
        assert_eq!((failed.fault.status, failed.fault.headers["retry-after"].as_str()), (Some(529), "1"));
        assert_eq!(last.text, "done");
        // Unchanged parts of a request are not repeated.
        assert_eq!((&last.expect.recorded.system, &last.expect.recorded.user), (&None, &None));
        assert_eq!(last.expect.recorded.results.as_ref().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn the_script_plays_the_same_thread_again() {
        let first = played();
        let script = Script { steps: script_steps(&first.plan, &first.events, true), ..Script::default() };
        let text = serde_json::to_string_pretty(&script).unwrap();
        let script = Script::parse(&text).unwrap();
        assert_eq!(script.steps, script_steps(&first.plan, &first.events, true));
        let provider = Scripted::new(script);
        let mut replies: Vec<Result<Reply, _>> = Vec::new();
        for request in &first.requests {
            replies.push(provider.call(request, &|_| {}).await);
        }
        let mut again = SimulatedThread::new(first.plan.clone(), replies);
        again.run();
        assert_eq!(again.names(), first.names());
        assert_eq!(again.ended().cost.spend, first.ended().cost.spend);
        let mut other = first.requests[0].clone();
        other.system = format!("{}!", other.system).into();
        let error = provider.call(&other, &|_| {}).await.unwrap_err();
        assert!(error.message.contains("the system prompt differs in line 1"), "{error}");
    }

    #[test]
    fn inexact_script_has_no_expectations() {
        let play = played();
        let loose = serde_json::to_string(&script_steps(&play.plan, &play.events, false)).unwrap();
        assert!(!loose.contains("expect"), "{loose}");
    }
}
