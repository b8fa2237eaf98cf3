//! Hooks of one point, evaluated in order.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::sync::Mutex;

use serde_json::json;

use super::*;
use crate::machine::HookBounds;
use crate::machine::fixture::{plan, with_hook};

/// A runner that answers every call with the same value and records the actions.
struct FixedRunner(Value, Mutex<Vec<HookAction>>);

impl HookRunner for FixedRunner {
    fn run_action<'a>(
        &'a self,
        _: &'a ReadyHook,
        action: HookAction,
        _: &'a HookRun,
        _: u64,
    ) -> BoxFuture<'a, Result<HookCallResult, String>> {
        self.1.lock().unwrap().push(action);
        // As a script's result with the status `error`.
        let is_error = self.0["status"] == "error" || self.0["success"] == false;
        let outcome = if self.0 == json!("fail") {
            ToolOutcome::error("broken")
        } else {
            ToolOutcome { is_error, ..ToolOutcome::ok(self.0.clone()) }
        };
        Box::pin(std::future::ready(Ok(outcome.into())))
    }

    fn read_images<'a>(
        &'a self,
        _: &'a ReadyHook,
        images: Vec<ImageSource>,
        _: &'a HookRun,
    ) -> BoxFuture<'a, Result<Vec<ImageRef>, String>> {
        let read = images.into_iter().map(|source| match source {
            ImageSource::Kept(image) => Ok(image),
            ImageSource::File(path) => Err(format!("no file {path}")),
            ImageSource::Bytes(bytes) => Ok(image(u32::try_from(bytes.len()).unwrap())),
        });
        Box::pin(std::future::ready(read.collect()))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "facts are written where they are used")]
fn run_point(
    plan: &Plan,
    point: HookPoint,
    facts: Value,
    says: Value,
) -> (Vec<HookVerdict>, HookOutcome, Vec<HookAction>) {
    let table = HookTable::compile(plan, json!({"who": "${cost.spend}"}).as_object().unwrap()).unwrap();
    let facts = facts.as_object().unwrap().clone();
    let bounds =
        HookBounds { limits: plan.limits, spawned: 0, turn_reserve: 0, unsettled: Vec::new(), prompt_spend: None };
    let store = std::sync::Arc::default();
    let can_hand_off = facts.get("can_hand_off") != Some(&json!(false));
    let turn = facts.get("turn").and_then(Value::as_u64).unwrap_or(1);
    let run = HookRun {
        point,
        subject: None,
        facts,
        turn,
        remaining_ms: 1000,
        store,
        nth: 0,
        bounds,
        ended: None,
        can_hand_off,
    };
    let act = FixedRunner(says, Mutex::default());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let HookPointResult { considered, answer, .. } = runtime.block_on(table.run(&run, &act));
    (considered.into_iter().map(|c| c.verdict).collect(), answer, act.1.into_inner().unwrap())
}

fn image(width: u32) -> ImageRef {
    let (media_type, sha256) = ("image/png".to_owned(), format!("{width:064}"));
    ImageRef { media_type, sha256, bytes: 1, width, height: 1, data: String::new() }
}

#[test]
fn transform_keeps_replaces_and_removes_images_for_later_hooks() {
    let facts = json!({"text": "a", "images": [image(1), image(2)]});
    let transform = |text: &str, images: Value| HookAction::Transform { text: text.into(), images: Some(images) };
    for (images, expected) in [
        (json!("${images}"), vec![image(1), image(2)]),
        (json!(["${images.1}"]), vec![image(2)]),
        (json!(["${images.1}", {"data": "YWJj"}]), vec![image(2), image(3)]),
        (json!([]), vec![]),
    ] {
        let mut plan = plan();
        with_hook(&mut plan, HookPoint::Input, transform("b", images));
        // The second hook gives no images, so the message keeps the images of the first hook. The third hook sees these
        // images.
        with_hook(&mut plan, HookPoint::Input, HookAction::Transform { text: "${text}c".into(), images: None });
        with_hook(&mut plan, HookPoint::Input, transform("${text}d", json!("${images}")));
        let (verdicts, answer, _) = run_point(&plan, HookPoint::Input, facts.clone(), json!(null));
        assert_eq!(verdicts, [HookVerdict::Fired; 3]);
        assert_eq!(answer, HookOutcome::Transformed { text: "bcd".into(), images: Some(expected) });
    }
}

#[test]
fn refused_image_fails_the_hook_and_keeps_the_message() {
    let facts = json!({"text": "a", "images": [image(1)]});
    for images in [json!("../x.png"), json!(["${images.7}"]), json!([{"sha256": "${text}"}]), json!([{"data": "%"}])] {
        let mut plan = plan();
        let action = HookAction::Transform { text: "b".into(), images: Some(images.clone()) };
        with_hook(&mut plan, HookPoint::Input, action);
        let (verdicts, answer, _) = run_point(&plan, HookPoint::Input, facts.clone(), json!(null));
        assert_eq!((verdicts.as_slice(), answer), ([HookVerdict::Failed].as_slice(), HookOutcome::None), "{images}");
        plan.hooks[0].on_failure = OnFailure::Fail;
        let (_, answer, _) = run_point(&plan, HookPoint::Input, facts.clone(), json!(null));
        assert!(matches!(answer, HookOutcome::Failed { .. }), "{images}");
    }
}

#[test]
fn programs_answer_with_images_replies_and_scopes() {
    let answer = |point: HookPoint, says: Value| {
        let mut plan = plan();
        with_hook(&mut plan, point, execute(json!({})));
        run_point(&plan, point, json!({"text": "a", "images": [image(1)]}), says)
    };
    let (_, transformed, _) = answer(HookPoint::Input, json!({"action": "transform", "text": "b", "images": []}));
    assert_eq!(transformed, HookOutcome::Transformed { text: "b".into(), images: Some(vec![]) });
    let (_, kept, _) = answer(HookPoint::Input, json!({"action": "transform", "text": "b", "images": null}));
    assert_eq!(kept, HookOutcome::Transformed { text: "b".into(), images: None });
    let (_, handled, _) = answer(HookPoint::Input, json!({"action": "handled", "reply": 7}));
    assert_eq!(handled, HookOutcome::Handled { reply: Some("7".into()) });
    let end = |scope: &str| answer(HookPoint::AgentEnd, json!({"action": "terminate", "scope": scope}));
    assert!(matches!(end("session").1, HookOutcome::Terminate { ends_session: true, .. }));
    assert!(matches!(end("prompt").1, HookOutcome::Terminate { ends_session: false, .. }));
    let (verdicts, unknown, _) = end("project");
    assert_eq!((verdicts.as_slice(), unknown), ([HookVerdict::Failed].as_slice(), HookOutcome::None));
}

fn execute(params: Value) -> HookAction {
    HookAction::Execute { item_type: rye_compiler::world::ItemKind::Tool, item_id: "a/b".into(), params }
}

#[test]
fn control_point_uses_first_answer_and_ignores_infrastructure_hooks() {
    let mut plan = plan();
    let point = HookPoint::AfterStep;
    with_hook(&mut plan, point, HookAction::Terminate { status: None, error: Some("infra".into()), scope: None });
    plan.hooks[0].layer = 4.0;
    plan.hooks.rotate_left(1);
    with_hook(&mut plan, point, HookAction::Continue);
    with_hook(&mut plan, point, HookAction::Terminate { status: None, error: None, scope: None });
    plan.hooks[1].condition = Some(json!("cost.turns >= 3"));
    let infra = plan.hooks.remove(0);
    plan.hooks.push(infra);
    let (verdicts, answer, _) = run_point(&plan, point, json!({"cost": {"turns": 2}}), json!(null));
    assert_eq!(verdicts, [HookVerdict::False, HookVerdict::Fired, HookVerdict::Fired]);
    assert_eq!(answer, HookOutcome::Terminate { status: None, error: None, ends_session: false });
    let (verdicts, answer, _) = run_point(&plan, point, json!({"cost": {"turns": 3}}), json!(null));
    assert_eq!(verdicts, [HookVerdict::Fired, HookVerdict::Passed, HookVerdict::Fired]);
    assert_eq!(answer, HookOutcome::Continue);
}

#[test]
fn execute_hook_may_answer_only_with_actions_of_its_point() {
    let mut plan = plan();
    with_hook(&mut plan, HookPoint::ToolCall, execute(json!({"spent": "${cost.spend}", "who": "{input:who}"})));
    let facts = json!({"cost": {"spend": 0.5}});
    let block = json!("{\"action\":\"block\",\"reason\":\"no\"}\n");
    let (_, answer, recorded_actions) = run_point(&plan, HookPoint::ToolCall, facts.clone(), block);
    assert_eq!(answer, HookOutcome::Block { reason: "no".into() });
    // Input values are never parsed as templates.
    assert_eq!(recorded_actions, [execute(json!({"spent": 0.5, "who": "${cost.spend}"}))]);
    for other in [json!("text"), json!({"action": null}), json!({"note": "block"})] {
        let (verdicts, answer, _) = run_point(&plan, HookPoint::ToolCall, facts.clone(), other);
        assert_eq!((verdicts.as_slice(), answer), ([HookVerdict::Fired].as_slice(), HookOutcome::None));
    }
}

#[test]
fn envelope_around_the_answer_of_an_execute_hook_is_removed() {
    let mut plan = plan();
    with_hook(&mut plan, HookPoint::ToolCall, execute(json!({})));
    let action = json!({"action": "block", "reason": "no"});
    let envelope = json!({"status": "success", "item_id": "a/b", "data": action});
    for answer in [action.clone(), envelope.clone(), envelope.to_string().into()] {
        let (_, outcome, _) = run_point(&plan, HookPoint::ToolCall, json!({}), answer.clone());
        assert!(matches!(outcome, HookOutcome::Block { .. }), "{answer}: {outcome:?}");
    }
    // An object with other keys is no envelope.
    let other = json!({"status": "success", "item_id": "a/b", "data": action, "note": 1});
    let (_, outcome, _) = run_point(&plan, HookPoint::ToolCall, json!({}), other);
    assert!(!matches!(outcome, HookOutcome::Block { .. }), "{outcome:?}");
}

#[test]
fn answer_with_an_action_that_the_event_lacks_fails_the_hook() {
    let call = json!({"action": "execute", "item_type": "tool", "item_id": "x", "params": {}});
    for (point, says, reason) in [
        (HookPoint::Input, json!({"action": "bogus"}), "the action `bogus`, which the event `input` does not accept"),
        (HookPoint::Input, json!("{\"action\":\"block\"}\n"), "accepted: `transform`, `handled`"),
        (HookPoint::ToolCall, json!({"action": "terminate"}), "the action `terminate`"),
        (HookPoint::ToolCall, json!({"action": 7}), "the action `7`"),
        (HookPoint::ToolCall, call, "the action `execute`"),
        (HookPoint::ToolExecutionStart, json!({"action": "block"}), "accepted: none"),
        (HookPoint::Input, json!({"action": "transform"}), "cannot be read: missing field `text`"),
        (HookPoint::Input, json!({"action": "transform", "text": "x", "txt": "y"}), "has no field `txt`"),
        (HookPoint::AfterStep, json!({"action": "continue", "note": "x"}), "has no field `note`; its fields: none"),
        (HookPoint::AfterStep, json!({"action": "terminate", "status": "done"}), "unknown status `done`"),
        (HookPoint::Context, json!({"action": "drop", "kinds": ["tools"]}), "unknown kind `tools`"),
        (HookPoint::Context, json!({"action": "drop", "kinds": []}), "drops nothing"),
        (HookPoint::Context, json!({"action": "drop"}), "missing field `kinds`"),
        (HookPoint::Context, json!({"action": "keep_last", "n": 0}), "`n` of `keep_last` is 0"),
        (HookPoint::ToolResult, json!({"action": "modify"}), "names no part of the result"),
        (HookPoint::BeforeAgentStart, json!({"action": "system_prompt"}), "neither `text` nor `append`"),
        (HookPoint::Limit, json!({"action": "retry"}), "meets the same limit"),
        (HookPoint::Limit, json!({"action": "handoff"}), "only at the limit `spend`"),
    ] {
        let mut plan = plan();
        with_hook(&mut plan, point, execute(json!({})));
        let (verdicts, answer, _) = run_point(&plan, point, json!({"text": "a"}), says.clone());
        assert_eq!((verdicts.as_slice(), answer), ([HookVerdict::Failed].as_slice(), HookOutcome::None), "{says}");
        plan.hooks[0].on_failure = OnFailure::Fail;
        let (_, answer, _) = run_point(&plan, point, json!({"text": "a"}), says);
        let HookOutcome::Failed { error, .. } = answer else { panic!("{answer:?}") };
        assert!(error.contains(reason), "{error}");
    }
    let mut plan = plan();
    with_hook(&mut plan, HookPoint::ThreadStarted, execute(json!({})));
    let (verdicts, answer, _) = run_point(&plan, HookPoint::ThreadStarted, json!({}), json!({"action": "opened"}));
    assert_eq!(verdicts, [HookVerdict::Fired]);
    assert!(matches!(answer, HookOutcome::Collected { .. }), "{answer:?}");
}

#[test]
fn handoff_that_cannot_help_at_the_spend_limit_fails_with_the_reason() {
    let mut plan = plan();
    with_hook(&mut plan, HookPoint::Limit, HookAction::Handoff);
    let at_spend = |turn: u64, can_hand_off: bool| json!({"limit_code": "spend_exceeded", "turn": turn, "can_hand_off": can_hand_off});
    assert_eq!(run_point(&plan, HookPoint::Limit, at_spend(1, true), json!({})).1, HookOutcome::Handoff);
    plan.hooks[0].on_failure = OnFailure::Fail;
    for (turn, reason) in [(1, "the money is used up"), (0, "no turn has run yet")] {
        let (verdicts, answer, _) = run_point(&plan, HookPoint::Limit, at_spend(turn, false), json!({}));
        let HookOutcome::Failed { error, .. } = answer else { panic!("{answer:?}") };
        assert!(verdicts == [HookVerdict::Failed] && error.contains(reason), "{error}");
    }
}

#[test]
fn block_with_a_superfluous_field_blocks() {
    let mut plan = plan();
    with_hook(&mut plan, HookPoint::ToolCall, execute(json!({})));
    let says = json!({"action": "block", "reason": "no", "rule": 7});
    let (_, answer, _) = run_point(&plan, HookPoint::ToolCall, json!({}), says);
    assert_eq!(answer, HookOutcome::Block { reason: "no".into() });
}

#[test]
fn answer_that_ends_the_thread_with_an_error_is_no_failure_of_the_hook() {
    let mut plan = plan();
    with_hook(&mut plan, HookPoint::BeforeAgentStart, execute(json!({})));
    let end = json!({"action": "terminate", "status": "error", "error": "stopped by the guard"});
    let (verdicts, answer, _) = run_point(&plan, HookPoint::BeforeAgentStart, json!({}), end.clone());
    assert_eq!(verdicts, [HookVerdict::Fired]);
    let HookOutcome::Terminate { error, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(error.as_deref(), Some("stopped by the guard"));
    let failures = [json!({"status": "error", "error": "no disk"}), json!({"action": "terminate", "success": false})];
    for failed in failures {
        let (verdicts, _, _) = run_point(&plan, HookPoint::BeforeAgentStart, json!({}), failed);
        assert_eq!(verdicts, [HookVerdict::Failed]);
    }
}

#[test]
fn failed_hook_fails_the_point_only_with_on_failure_fail() {
    let mut plan = plan();
    with_hook(&mut plan, HookPoint::AfterStep, execute(json!({})));
    let (verdicts, answer, _) = run_point(&plan, HookPoint::AfterStep, json!({}), json!("fail"));
    assert_eq!((verdicts.as_slice(), answer), ([HookVerdict::Failed].as_slice(), HookOutcome::None));
    plan.hooks[0].on_failure = OnFailure::Fail;
    let (_, answer, _) = run_point(&plan, HookPoint::AfterStep, json!({}), json!("fail"));
    assert_eq!(answer, HookOutcome::Failed { hook: "hook_0".into(), error: "broken".into() });
}

#[test]
fn chained_hooks_see_earlier_changes() {
    let mut plan = plan();
    with_hook(&mut plan, HookPoint::Input, HookAction::Transform { text: "<${text}>".into(), images: None });
    with_hook(&mut plan, HookPoint::Input, HookAction::Transform { text: "[${text}]".into(), images: None });
    let (_, answer, _) = run_point(&plan, HookPoint::Input, json!({"text": "a"}), json!(null));
    assert_eq!(answer, HookOutcome::Transformed { text: "[<a>]".into(), images: None });
    with_hook(
        &mut plan,
        HookPoint::ToolResult,
        HookAction::Modify { content: Some(json!("${result.content}!")), is_error: None, details: None },
    );
    with_hook(
        &mut plan,
        HookPoint::ToolResult,
        HookAction::Modify { content: Some(json!("${result.content}?")), is_error: Some(true), details: None },
    );
    let (_, answer, _) = run_point(&plan, HookPoint::ToolResult, json!({"result": {"content": "x"}}), json!(null));
    assert_eq!(answer, HookOutcome::Modify { content: Some(json!("x!?")), is_error: Some(true), details: None });
}

#[test]
fn collecting_points_gather_texts_and_money_is_read_as_dollars() {
    let mut plan = plan();
    with_hook(&mut plan, HookPoint::ThreadStarted, execute(json!({})));
    let (_, answer, _) = run_point(&plan, HookPoint::ThreadStarted, json!({}), json!({"a": 1}));
    let HookOutcome::Collected { fired, texts } = answer else { panic!("collected") };
    assert_eq!((fired[0].as_str(), texts["hook_0"].as_str()), ("hook_0", "{\"a\":1}"));
    with_hook(&mut plan, HookPoint::Limit, HookAction::Raise { limit: "spend".into(), value: json!(0.25) });
    let (_, answer, _) = run_point(&plan, HookPoint::Limit, json!({}), json!(null));
    assert_eq!(answer, HookOutcome::Raise { limit: "spend".into(), value: 250_000_000 });
}

#[test]
fn raise_accepts_text_values_and_fails_on_invalid_ones() {
    let raise = |value: Value| HookAction::Raise { limit: "turns".into(), value };
    for (action, answer) in [
        (raise(json!("20")), HookOutcome::Raise { limit: "turns".into(), value: 20 }),
        (raise(json!("${current_max}")), HookOutcome::Raise { limit: "turns".into(), value: 4 }),
        (raise(json!(-1)), HookOutcome::None),
        (raise(json!("many")), HookOutcome::None),
    ] {
        let mut plan = plan();
        with_hook(&mut plan, HookPoint::Limit, action);
        let (considered, given, _) = run_point(&plan, HookPoint::Limit, json!({"current_max": 4}), json!(null));
        assert_eq!(given, answer);
        assert_eq!(considered.contains(&HookVerdict::Failed), answer == HookOutcome::None, "{considered:?}");
    }
    let mut plan = plan();
    with_hook(
        &mut plan,
        HookPoint::Context,
        HookAction::Replace { messages: json!([{"role": "user", "content": "x"}]) },
    );
    let (considered, answer, _) = run_point(&plan, HookPoint::Context, json!({}), json!(null));
    assert_eq!(answer, HookOutcome::None);
    assert!(considered.contains(&HookVerdict::Failed), "{considered:?}");
}

#[test]
fn chain_that_doubles_a_text_fails_at_the_maximum_size() {
    let mut plan = plan();
    for _ in 0..40 {
        let content = json!("${result.content}${result.content}");
        with_hook(
            &mut plan,
            HookPoint::ToolResult,
            HookAction::Modify { content: Some(content), details: None, is_error: None },
        );
    }
    let facts = json!({"result": {"content": "x".repeat(1024)}});
    let (verdicts, answer, _) = run_point(&plan, HookPoint::ToolResult, facts, json!(null));
    // 1 KiB doubled 13 times is 8 MiB. Doubled again, the text alone has 16 MiB, so the whole action exceeds the limit.
    assert_eq!(verdicts.iter().filter(|verdict| **verdict == HookVerdict::Fired).count(), 13);
    assert!(verdicts[13..].iter().all(|verdict| *verdict == HookVerdict::Failed), "{verdicts:?}");
    let HookOutcome::Modify { content: Some(Value::String(text)), .. } = answer else { panic!("{answer:?}") };
    assert_eq!(text.len(), MAX_ACTION_BYTES / 2);
}
