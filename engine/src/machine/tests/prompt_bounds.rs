//! Tests of the bounds of a prompt: grants and spend of its message, and the mode of the session.

use proptest::prelude::*;
use rye_compiler::plan::graph::{GraphNeeds, GraphPart, build_graph};
use rye_compiler::plan::narrow::is_narrower;
use rye_compiler::plan::{Grant, PlanLimits};
use serde_json::json;

use super::chat::{chat, chat_of, ended_prompts, statuses};
use crate::event::{
    ChatMode, ControlMessage, Delivery, EventBody, PromptBounds, PromptStarted, PromptStatus, UserInput,
};
use crate::machine::fixture::{SimulatedThread, call, calls, grant, plan, set_setting, text};
use crate::machine::prompt_bounds::{prompt_grants, read_only_grants};
use crate::machine::raised_limit;

fn submit(text: &str, spend: Option<u64>, with: &[&str]) -> ControlMessage {
    let with: Vec<String> = with.iter().map(|one| (*one).to_owned()).collect();
    let bounds = PromptBounds { spend, with: Some(with).filter(|with| !with.is_empty()) };
    let input = UserInput { bounds, ..UserInput::text(text) };
    ControlMessage::Submit { input, delivery: Delivery::Steer }
}

fn started(play: &SimulatedThread) -> Vec<&PromptStarted> {
    let started = play.events.iter().filter_map(|event| match &event.body {
        EventBody::PromptStarted(started) => Some(started),
        _ => None,
    });
    started.collect()
}

fn offered(play: &SimulatedThread, request: usize) -> Vec<String> {
    play.requests[request].tools.iter().map(|tool| tool.name.to_string()).collect()
}

fn tries_to_write() -> Vec<Result<crate::exchange::Reply, crate::exchange::CallError>> {
    let both = calls(&[call("a_read", json!({})), call("a_write", json!({}))]);
    vec![both.clone(), text("one"), both, text("two")]
}

#[test]
fn empty_list_of_capabilities_leaves_a_prompt_none() {
    let mut play = chat(Vec::new(), &[]);
    play.plan.capabilities.grants = vec![grant("rye.execute.*")];
    play.start();
    let grants = |with| prompt_grants(&play.plan, &play.state, ChatMode::Ask, &PromptBounds { spend: None, with });
    assert_eq!(grants(Some(Vec::new())), Some(Vec::new()));
    assert_eq!(grants(None), None);
    let json = serde_json::to_value(PromptBounds { spend: None, with: Some(Vec::new()) });
    assert_eq!(json.and_then(serde_json::from_value::<PromptBounds>).ok().and_then(|read| read.with), Some(Vec::new()));
}

#[test]
fn grants_of_a_message_bound_its_prompt_only() {
    let mut play = chat(tries_to_write(), &["second"]);
    play.messages = vec![(0, submit("first", None, &["rye.execute.tool.a.read", "rye.fetch.*"]))];
    play.run();
    assert_eq!(offered(&play, 0), ["rye_execute", "a_read"]);
    assert_eq!(offered(&play, 2).len(), play.plan.palette.len());
    assert_eq!(
        play.dispatched.concat(),
        ["rye.execute.tool.a.read", "rye.execute.tool.a.read", "rye.execute.tool.a.write"]
    );
    let denied = play.results().into_iter().find(|(_, text)| text.contains("denied")).unwrap().1;
    assert!(denied.ends_with("a.write (the user runs this prompt without this capability)"), "{denied}");
    let grants: Vec<Option<Vec<Grant>>> = started(&play).iter().map(|started| started.grants.clone()).collect();
    assert_eq!(grants, [Some(vec![grant("rye.execute.tool.a.read")]), None]);
}

#[test]
fn message_with_bounds_during_a_prompt_is_a_prompt_of_its_own() {
    let mut play = chat(vec![calls(&[call("a_read", json!({}))]), text("one"), text("two")], &["first"]);
    play.messages = vec![(12, submit("second", Some(500_000_000), &[]))];
    play.run();
    assert_eq!(statuses(&play), [(PromptStatus::Done, None), (PromptStatus::Done, None)]);
    let capped: Vec<bool> = started(&play).iter().map(|started| started.capped).collect();
    assert_eq!(capped, [false, true]);
}

#[test]
fn modes_narrow_the_calls_or_leave_out_their_approval_requests() {
    let mut plan = plan();
    set_setting(
        &mut plan,
        "capability_risk",
        json!({
            "classifications": [
                { "risk": "elevated", "patterns": ["rye.execute.*"] },
                { "risk": "safe", "patterns": ["rye.execute.tool.a.read", "rye.fetch.*"] },
            ]
        }),
    );
    let in_mode = |mode: Option<ChatMode>| {
        let mut play = chat_of(plan.clone(), tries_to_write(), &["first"]);
        let parts = [GraphPart::Tools, GraphPart::Ask, GraphPart::Chat].into();
        play.plan.graph = build_graph(&GraphNeeds { parts, ..GraphNeeds::default() });
        play.says = crate::event::Approval::Approved;
        play.messages = mode.into_iter().map(|mode| (0, ControlMessage::Mode { mode })).collect();
        play.run();
        play
    };
    let ask = in_mode(None);
    assert_eq!((ask.dispatched.concat().len(), ask.asked.len()), (2, 1), "{:?}", ask.asked);
    let read_only = in_mode(Some(ChatMode::ReadOnly));
    assert_eq!((read_only.dispatched.concat(), read_only.asked.len()), (vec!["rye.execute.tool.a.read".into()], 0));
    assert_eq!(offered(&read_only, 0), ["rye_execute", "a_read"]);
    let auto = in_mode(Some(ChatMode::Auto));
    assert_eq!((auto.dispatched.concat().len(), auto.asked.len()), (2, 0));
    assert_eq!(started(&auto)[0].mode, ChatMode::Auto);
}

#[test]
fn risk_table_of_a_project_makes_no_shell_read_only() {
    let grants: Vec<_> =
        ["rye.execute.tool.rye.bash.bash", "rye.execute.tool.rye.file-system.*", "rye.execute.tool.a.*"]
            .map(grant)
            .into();
    let narrowed = |pattern: &str| {
        let mut plan = plan();
        let table = json!({"classifications": [{ "risk": "safe", "patterns": [pattern] }]});
        set_setting(&mut plan, "capability_risk", table);
        let kept = read_only_grants(&plan, &grants).into_iter();
        kept.map(|grant| grant.pattern.replace("rye.execute.tool.", "")).collect::<Vec<_>>()
    };
    let read = ["rye.file-system.read", "rye.file-system.ls", "rye.file-system.glob", "rye.file-system.grep"];
    let sorted = |mut patterns: Vec<String>| {
        patterns.sort();
        patterns
    };
    let mut with_own = [&read[..], &["a.*"]].concat();
    with_own.sort_unstable();
    assert_eq!(sorted(narrowed("rye.*")), with_own);
    assert_eq!(narrowed("rye.execute.tool.a.b"), ["a.b"]);
}

#[test]
fn reopened_session_keeps_read_only_and_forgets_auto() {
    for (mode, after) in [(ChatMode::ReadOnly, ChatMode::ReadOnly), (ChatMode::Auto, ChatMode::Ask)] {
        let mut play = chat(vec![text("one")], &["first"]);
        play.messages = vec![(0, ControlMessage::Mode { mode })];
        play.run();
        assert_eq!(play.state.chat.as_ref().unwrap().mode, mode);
        play.signal(crate::machine::Fact::Recovered { owner: "next".into(), cut_bytes: 0 });
        assert_eq!(play.state.chat.as_ref().unwrap().mode, after);
    }
}

#[test]
fn ceiling_of_a_message_holds_against_raises_and_is_the_limit_of_its_prompt_only() {
    let read = || calls(&[call("a_read", json!({}))]);
    let mut play = chat((0..30).map(|_| read()).collect(), &["second"]);
    play.plan.limits = PlanLimits { spend: 40_000_000, turns: 4, ..play.plan.limits };
    let raise = ControlMessage::Raise { limit: "spend".into(), value: 900_000_000 };
    let mut messages = vec![(0, submit("first", Some(20_000_000), &[]))];
    messages.extend((8..16).map(|step| (step, raise.clone())));
    play.messages = messages;
    play.run();
    let ends = ended_prompts(&play);
    assert!(ends[0].cost.spend <= 20_000_000 && ends[0].status == PromptStatus::Limit, "{:?}", ends[0]);
    let limits: Vec<u64> = started(&play).iter().map(|started| started.limits.spend).collect();
    assert_eq!(limits[0], 20_000_000);
    assert_eq!(limits[1] - ends[0].cost.spend, 40_000_000);
}

#[test]
fn raised_duration_of_a_later_prompt_excludes_the_time_before_the_prompt() {
    let mut play = chat(vec![text("one")], &["first"]);
    play.start();
    while play.state.chat.as_ref().is_none_or(|chat| chat.current.is_none()) {
        assert!(play.step());
    }
    play.state.chat.as_mut().unwrap().current.as_mut().unwrap().seconds_before = 100;
    (play.state.limits.duration_seconds, play.state.thread_limits.duration_seconds) = (110, 115);
    let raised = |value| raised_limit(&play.state, "duration_seconds", value);
    assert_eq!([raised(10), raised(12), raised(20)], [None, Some(112), Some(115)]);
}

proptest! {
    #[test]
    fn grants_of_every_message_are_covered_by_those_of_the_session(
        with in prop::collection::vec("rye\\.(fetch|execute|sign|\\*)\\.(tool|directive|knowledge|\\*)(\\.(a|\\*|b\\.c|a\\.\\*|a\\.read))?", 1..4),
        own in prop::collection::vec("rye\\.(fetch|execute|\\*)\\.(tool|directive|\\*)(\\.(a|\\*|b\\.c|a\\.\\*))?", 1..4),
        read_only in any::<bool>(),
    ) {
        let mut play = chat(Vec::new(), &[]);
        play.plan.capabilities.grants = own.iter().map(|pattern| grant(pattern)).collect();
        play.start();
        let mode = if read_only { ChatMode::ReadOnly } else { ChatMode::Ask };
        let bounds = PromptBounds { spend: None, with: Some(with.clone()) };
        let narrowed = prompt_grants(&play.plan, &play.state, mode, &bounds).unwrap();
        prop_assert!(is_narrower(&narrowed, &play.plan.capabilities.grants));
        let wanted: Vec<Grant> = with.iter().map(|pattern| grant(pattern)).collect();
        prop_assert!(is_narrower(&narrowed, &wanted));
    }
}
