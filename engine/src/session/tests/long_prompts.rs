//! Messages of the user that are longer than the messages that a handoff retains: the continuation gets them whole, or
//! the provider refuses them.

use std::sync::atomic::{AtomicUsize, Ordering};

use rye_compiler::compile::{CompileRequest, compile};
use rye_compiler::plan::PlanMode;
use rye_grammar::ItemId;
use serde_json::json;

use super::{Lab, calls, permit, reply_text, thread};
use crate::context::StartOptions;
use crate::engine::Engine;
use crate::event::{ControlMessage, Delivery, EventBody, PromptEnded, PromptStatus};
use crate::exchange::{CallError, FailedStage, Request};
use crate::message::ContentBlock;
use crate::session_tree::{current_prompts, other_branches, session_tree};
use crate::thread::Status;

/// A message that has more tokens than a handoff retains.
fn long_message() -> String {
    format!("start of the long message {}end of the long message", "data ".repeat(400))
}

/// Returns a project in which each request after the first turn of a thread meets a full context, and a handoff retains
/// ten tokens of earlier messages. The script gets the number of the request, from 1.
fn lab(script: impl Fn(usize, &Request) -> Result<Vec<ContentBlock>, CallError> + Send + Sync + 'static) -> Lab {
    let count = AtomicUsize::new(0);
    let lab = Lab::new(move |request| script(count.fetch_add(1, Ordering::Relaxed) + 1, request));
    lab.write("a.txt", &"content ".repeat(100));
    lab.write(
        ".ai/config/agent/coordination.yaml",
        "continuation: { trigger_threshold: 0.0000001, resume_ceiling_tokens: 10 }\n",
    );
    lab.directive("talk", &format!("<limits turns=\"20\"/>{}", permit(&["rye.file-system.read"])), "");
    lab
}

fn read() -> Vec<ContentBlock> {
    calls(&[("rye_file_system_read", json!({"path": "a.txt"}))])
}

/// Plays a chat of these prompts, and returns the ends of the prompts and the texts of the requests.
async fn chat(lab: &Lab, prompts: &[&str]) -> (Vec<PromptEnded>, Vec<String>) {
    let engine = lab.engine();
    let world = (lab.options().world)().unwrap();
    let mut request = CompileRequest::new(ItemId::parse("test/talk").unwrap()).with_inputs(serde_json::Map::new());
    request.mode = PlanMode::Chat;
    let plan = compile(&*world, &request).value.unwrap();
    let handle = engine.start(&plan, StartOptions::default()).await.unwrap();
    for prompt in prompts {
        handle.send(ControlMessage::Submit { input: (*prompt).into(), delivery: Delivery::Prompt });
    }
    handle.send(ControlMessage::Close);
    assert_eq!(handle.join().await.status, Status::Idle);
    engine.wait_idle().await;
    (ended_prompts(&engine), sent(lab))
}

/// Returns the ends of all prompts, in the order of the prompts.
fn ended_prompts(engine: &Engine) -> Vec<PromptEnded> {
    let mut ended: Vec<PromptEnded> = Vec::new();
    for thread in engine.threads().list().unwrap() {
        for event in engine.threads().transcript(&thread.row.id).unwrap() {
            if let EventBody::PromptEnded(prompt) = event.body {
                ended.push(*prompt);
            }
        }
    }
    ended.sort_by_key(|prompt| prompt.prompt);
    ended
}

fn sent(lab: &Lab) -> Vec<String> {
    let requests = lab.model.requests.lock().unwrap();
    requests.iter().map(|request| serde_json::to_string(&request.turns).unwrap()).collect()
}

fn statuses(ended: &[PromptEnded]) -> Vec<(PromptStatus, Option<&str>)> {
    ended.iter().map(|prompt| (prompt.status, prompt.code.as_deref())).collect()
}

#[tokio::test]
async fn long_prompt_in_a_full_context_continues_whole() {
    let lab = lab(|_, _| Ok(reply_text("done")));
    let long = long_message();
    let (ended, sent) = chat(&lab, &["first", &long, "third"]).await;
    assert_eq!(statuses(&ended), [(PromptStatus::Done, None); 3]);
    assert_eq!(sent.len(), 3);
    assert_eq!(sent[1].matches(&long).count(), 1, "{}", sent[1]);
    assert!(sent[1].find(&long) < sent[1].find("Continue where you left off"), "{}", sent[1]);
    assert!(!sent[2].contains(&long) && sent[2].contains("third"), "an answered prompt is an earlier message");
}

#[tokio::test]
async fn long_prompt_stays_in_every_thread_that_works_on_it() {
    let lab = lab(|number, _| Ok(if (2..5).contains(&number) { read() } else { reply_text("done") }));
    let long = long_message();
    let (ended, sent) = chat(&lab, &["first", &long]).await;
    assert_eq!(statuses(&ended), [(PromptStatus::Done, None); 2]);
    assert_eq!(sent.len(), 5);
    for request in &sent[1..] {
        assert_eq!(request.matches(&long).count(), 1, "{request}");
        assert!(request.matches("Continue where you left off").count() <= 2, "{request}");
    }
}

#[tokio::test]
async fn compaction_retains_a_long_unanswered_prompt() {
    let lab = lab(|_, request| {
        let is_summary = request.cue.directive.ends_with(".summary");
        Ok(reply_text(if is_summary { "a summary" } else { "done" }))
    });
    lab.write(
        ".ai/config/agent/hooks.yaml",
        "hooks:\n  - { id: shorter, event: context_limit_reached, action: { compact: {} } }\n",
    );
    let long = long_message();
    let (ended, sent) = chat(&lab, &["first", &long, "third"]).await;
    assert_eq!(statuses(&ended), [(PromptStatus::Done, None); 3]);
    let answered = &sent[2];
    assert!(answered.contains("a summary") && answered.matches(&long).count() == 1, "{answered}");
    let last = sent.last().unwrap();
    assert!(last.contains("third") && !last.contains(&long), "{last}");
}

#[tokio::test]
async fn compaction_retains_the_prompt_that_the_thread_works_on() {
    let lab = lab(|number, request| {
        let is_summary = request.cue.directive.ends_with(".summary");
        Ok(if is_summary {
            reply_text("a summary")
        } else if number == 3 {
            read()
        } else {
            reply_text("done")
        })
    });
    lab.write(
        ".ai/config/agent/hooks.yaml",
        "hooks:\n  - { id: shorter, event: context_limit_reached, action: { compact: {} } }\n",
    );
    let long = long_message();
    // The requests: first, summary, long, summary, the rest of the prompt.
    let (ended, sent) = chat(&lab, &["first", &long]).await;
    assert_eq!(statuses(&ended), [(PromptStatus::Done, None); 2]);
    assert_eq!(sent.len(), 5);
    assert_eq!(sent[4].matches(&long).count(), 1, "{}", sent[4]);
    assert!(sent[4].contains("a summary"), "{}", sent[4]);
}

#[tokio::test]
async fn refused_long_prompt_ends_in_an_error_and_leaves_the_session_usable() {
    for prompts in [["first", "long", "third"], ["long", "second", "third"]] {
        let lab = lab(|_, request| {
            let is_long = serde_json::to_string(&request.turns).unwrap().contains("start of the long message");
            let refusal = CallError::new(FailedStage::Status, "prompt is too long");
            if is_long { Err(CallError { status: Some(413), ..refusal }) } else { Ok(reply_text("done")) }
        });
        let long = long_message();
        let texts = prompts.map(|prompt| if prompt == "long" { long.as_str() } else { prompt });
        let (ended, _) = chat(&lab, &texts).await;
        let expected = prompts.map(|prompt| match prompt {
            "long" => (PromptStatus::Error, Some("prompt_too_long")),
            _ => (PromptStatus::Done, None),
        });
        assert_eq!(statuses(&ended), expected, "{prompts:?}");
    }
}

#[tokio::test]
async fn long_message_of_a_resume_continues_whole() {
    let lab = lab(|number, _| Ok(if number == 2 { read() } else { reply_text("done") }));
    let engine = lab.engine();
    let first = lab.run(&engine, "talk").await;
    assert_eq!(first.status, Status::Completed);
    let long = long_message();
    let resumed = engine.resume(&thread(&first), long.as_str()).await.unwrap().join().await;
    assert_eq!(resumed.status, Status::Completed);
    let sent = sent(&lab);
    assert_eq!(sent.len(), 3);
    for request in &sent[1..] {
        assert_eq!(request.matches(&long).count(), 1, "{request}");
    }
}

#[tokio::test]
async fn long_steering_message_continues_whole() {
    let mut lab = lab(|number, _| Ok(if number == 1 { read() } else { reply_text("done") }));
    std::sync::Arc::get_mut(&mut lab.model).unwrap().pause = std::time::Duration::from_millis(300);
    let engine = lab.engine();
    let long = long_message();
    let handle = lab.start(&engine, "talk").await;
    // The first request is answered after the message has arrived.
    while lab.model.asked.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    handle.send(ControlMessage::Steer { text: long.clone() });
    assert_eq!(handle.join().await.status, Status::Completed);
    let sent = sent(&lab);
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[1].matches(&long).count(), 1, "{}", sent[1]);
}

/// The turns of a run follow one user message. A continuation has this message and the last turns that fit, whatever the
/// length of all turns.
#[tokio::test]
async fn run_with_many_calls_continues_with_its_prompt_and_its_last_turns() {
    let lab = lab(|number, _| Ok(if number <= 6 { read() } else { reply_text("done") }));
    // The result of one call fits, the results of two do not.
    lab.write(
        ".ai/config/agent/coordination.yaml",
        "continuation: { trigger_threshold: 0.0005, resume_ceiling_tokens: 400 }\n",
    );
    let engine = lab.engine();
    let result = lab.run(&engine, "talk").await;
    assert_eq!((result.status, result.result.as_deref()), (Status::Completed, Some("done")), "{result:?}");
    assert!(engine.threads().list().unwrap().iter().any(|thread| thread.row.status == Status::Continued));
    let sent = sent(&lab);
    assert_eq!(sent.len(), 7);
    for (number, request) in sent.iter().enumerate() {
        assert_eq!(request.matches("Do it.").count(), 1, "{number}: {request}");
        assert!(number == 0 || request.contains("content content"), "{number}: {request}");
    }
    assert!(sent[6].len() < 3 * sent[1].len(), "{}", sent[6]);
}

#[tokio::test]
async fn handoff_records_the_messages_that_it_leaves_out_and_its_prompts_stay_in_the_tree() {
    let lab = lab(|number, _| Ok(if number == 2 { read() } else { reply_text("done") }));
    chat(&lab, &["first", "second", "third"]).await;
    let engine = lab.engine();
    let threads = engine.threads().list().unwrap();
    let last = &threads.iter().find(|thread| thread.row.continued_by.is_none()).unwrap().row.id;
    let tree = session_tree(&engine.threads(), last).unwrap();
    let texts: Vec<(&str, Option<PromptStatus>)> =
        current_prompts(&tree).iter().map(|(_, prompt)| (prompt.text.as_str(), prompt.status)).collect();
    let done = Some(PromptStatus::Done);
    assert_eq!(texts, [("third", done), ("second", done), ("first", done)]);
    assert_eq!(tree.iter().map(|thread| thread.prompts.len()).sum::<usize>(), 3, "{tree:#?}");
    assert!(other_branches(&tree).is_empty(), "{tree:#?}");
    let events = engine.threads().transcript(last).unwrap();
    let left_out = events
        .iter()
        .find_map(|event| if let EventBody::Continues(continues) = &event.body { continues.left_out } else { None });
    assert!(left_out.is_some_and(|left| left.messages > 0 && left.tokens > 0), "{left_out:?}");
}
