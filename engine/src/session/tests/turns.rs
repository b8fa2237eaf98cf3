//! Tests of threads that stop, wait and continue: raised limits, compaction, forks, control messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rye_compiler::plan::ApprovalOrigin;
use serde_json::json;

use super::{Lab, calls, names, permit, reply_text, thread};
use crate::BoxFuture;
use crate::context::{ApprovalHandler, ApprovalPolicy, ApprovalRequest};
use crate::engine::Engine;
use crate::event::{Approval, ControlMessage, EventBody, ResultKind};
use crate::store::mailbox;
use crate::thread::{RunResult, Status};
use crate::threads::pending_approval;

const ESCALATE: &str = "hooks:\n  - { id: ask, event: limit, action: { escalate: {} } }\n";

fn reader(turns: u32) -> Lab {
    let lab = Lab::new(move |request| {
        let read = calls(&[("rye_file_system_read", json!({"path": "a.txt"}))]);
        Ok(if request.cue.turn.unwrap() < turns { read } else { reply_text("done") })
    });
    lab.write("a.txt", "a\n");
    lab
}

fn post_message(engine: &Engine, result: &RunResult, message: &ControlMessage) {
    let body = serde_json::to_value(message).unwrap();
    mailbox::send(&**engine.disk(), &thread(result), &body, 5).unwrap();
}

fn raise(limit: &str, value: u64) -> ControlMessage {
    ControlMessage::Raise { limit: limit.into(), value }
}

#[tokio::test]
async fn escalated_limit_suspends_until_it_is_raised() {
    let lab = reader(5);
    lab.write(".ai/config/agent/hooks.yaml", ESCALATE);
    lab.directive("reader", &format!("<limits turns=\"3\"/>{}", permit(&["rye.file-system.read"])), "");
    let engine = lab.engine();
    let result = lab.run(&engine, "reader").await;
    assert_eq!((result.status, result.cost.turns), (Status::Suspended, 3));
    let account = engine.account(&thread(&result)).unwrap().unwrap();
    assert_eq!(account.status(), rye_compiler::semantics::ledger::AccountStatus::Open);
    drop(engine);
    // Another process recovers the thread, with the answer in the inbox. No permanent key signed the transcript, so the
    // user accepts it.
    let engine = lab.engine();
    engine.accept_unverified();
    post_message(&engine, &result, &raise("turns", 20));
    post_message(
        &engine,
        &result,
        &ControlMessage::Approve { yes: true, question: None, message: None, raises: false },
    );
    let handle = engine.recover(&thread(&result)).await.unwrap();
    let result = handle.join().await;
    assert_eq!((result.status, result.cost.turns), (Status::Completed, 6), "{result:?}");
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let events = engine.threads().transcript(&thread(&result)).unwrap();
    let count = |name: &str| names(&events).iter().filter(|n| **n == name).count();
    assert_eq!((count("limit"), count("mail"), count("ended")), (1, 2, 2));
    let account = engine.account(&thread(&result)).unwrap().unwrap();
    assert_eq!(account.spent().to_u64(), 6 * 150_000);
}

#[tokio::test]
async fn an_ended_thread_with_the_snapshot_of_its_suspension_is_not_tampered() {
    let lab = reader(5);
    lab.write(".ai/config/agent/hooks.yaml", ESCALATE);
    lab.directive("reader", &format!("<limits turns=\"3\"/>{}", permit(&["rye.file-system.read"])), "");
    let engine = lab.engine();
    let id = thread(&lab.run(&engine, "reader").await);
    let snapshot = lab.path().join(crate::store::layout::snapshot(&id));
    let suspended = std::fs::read_to_string(&snapshot).unwrap();
    let messages =
        vec![raise("turns", 20), ControlMessage::Approve { yes: true, question: None, message: None, raises: false }];
    assert_eq!(engine.recover_with(&id, messages).await.unwrap().join().await.status, Status::Completed);
    // A power failure can lose the later snapshots, because they are not synced.
    std::fs::write(&snapshot, &suspended).unwrap();
    engine.inspect(&id).await.unwrap();
    std::fs::write(&snapshot, suspended.replace("suspended", "cancelled")).unwrap();
    engine.inspect(&id).await.map(drop).unwrap_err();
}

#[tokio::test]
async fn an_answer_that_refuses_ends_the_thread_at_its_limit() {
    let lab = reader(5);
    lab.write(".ai/config/agent/hooks.yaml", ESCALATE);
    lab.directive("reader", &format!("<limits turns=\"3\"/>{}", permit(&["rye.file-system.read"])), "");
    let engine = lab.engine();
    let result = lab.run(&engine, "reader").await;
    let handle = engine
        .recover_with(
            &thread(&result),
            vec![ControlMessage::Approve { yes: false, question: None, message: None, raises: false }],
        )
        .await
        .unwrap();
    let result = handle.join().await;
    assert_eq!((result.status, result.error.unwrap().code.as_str()), (Status::Error, "turns_exceeded"));
}

#[tokio::test]
async fn money_that_is_raised_is_raised_in_the_ledger() {
    let mut lab = reader(5);
    std::sync::Arc::get_mut(&mut lab.model).unwrap().usage.input = 4_000;
    lab.write(".ai/config/agent/hooks.yaml", ESCALATE);
    lab.directive(
        "reader",
        &format!("<limits spend=\"0.0095\" output=\"1024\"/>{}", permit(&["rye.file-system.read"])),
        "",
    );
    let engine = lab.engine();
    let first = lab.run(&engine, "reader").await;
    assert_eq!(first.status, Status::Suspended, "{first:?}");
    let messages = vec![
        raise("spend", 2_000_000_000),
        ControlMessage::Approve { yes: true, question: None, message: None, raises: false },
    ];
    let result = engine.recover_with(&thread(&first), messages).await.unwrap().join().await;
    assert_eq!(result.status, Status::Completed, "{result:?}");
    let account = engine.account(&thread(&result)).unwrap().unwrap();
    assert_eq!(account.reserved().to_u64(), 2_000_000_000);
}

#[tokio::test]
async fn a_conversation_is_summarised_in_place() {
    let lab = Lab::new(|request| {
        let seen = serde_json::to_string(request).unwrap();
        if request.cue.directive.ends_with(".summary") {
            assert!(seen.contains("Write a summary"));
            return Ok(reply_text("it read a.txt"));
        }
        Ok(if seen.contains("<summary>") {
            reply_text("done")
        } else {
            calls(&[("rye_file_system_read", json!({"path": "a.txt"}))])
        })
    });
    lab.write("a.txt", &"word ".repeat(2000));
    lab.write(
        ".ai/config/agent/coordination.yaml",
        "continuation: { trigger_threshold: 0.0000001, resume_ceiling_tokens: 10 }\n",
    );
    lab.write(
        ".ai/config/agent/hooks.yaml",
        "hooks:\n  - { id: shorter, event: context_limit_reached, action: { compact: {} } }\n",
    );
    lab.directive("long", &permit(&["rye.file-system.read"]), "");
    let engine = lab.engine();
    let result = lab.run(&engine, "long").await;
    assert_eq!((result.status, result.result.as_deref()), (Status::Completed, Some("done")), "{result:?}");
    // The cost is that of two replies and of the summary, which does not count as a turn.
    assert_eq!(result.cost.turns, 2);
    assert_eq!(serde_json::to_value(&result.cost).unwrap()["spend"], json!(0.000_45));
    let events = engine.threads().transcript(&thread(&result)).unwrap();
    assert_eq!(names(&events).iter().filter(|name| **name == "compacted").count(), 1);
    let last = lab.model.requests.lock().unwrap().last().unwrap().clone();
    let sent = serde_json::to_string(&last).unwrap();
    assert!(sent.contains("Do it.") && sent.contains("it read a.txt") && !sent.contains("word word"), "{sent}");
    assert_eq!(engine.threads().list().unwrap().len(), 1);
}

#[tokio::test]
async fn a_fork_begins_at_the_end_of_a_turn() {
    let lab = reader(4);
    lab.directive("reader", &permit(&["rye.file-system.read"]), "");
    let engine = lab.engine();
    let first = lab.run(&engine, "reader").await;
    assert_eq!(first.cost.turns, 5);
    let fork = engine.fork(&thread(&first), 2, "and now something else").await.unwrap().join().await;
    assert_eq!(fork.status, Status::Completed);
    let request = lab.model.requests.lock().unwrap().iter().rev().find(|r| r.cue.turn == Some(0)).unwrap().clone();
    // The request contains the prompt, two calls with their results, and the message.
    assert_eq!(request.turns.len(), 6);
    let row = engine.threads().show(&thread(&first)).unwrap().unwrap().row;
    assert_eq!(row.continued_by, None, "a fork goes its own way");
    let missing = engine.fork(&thread(&first), 9, "x").await.unwrap_err();
    assert!(missing.to_string().contains("only 5 turns"), "{missing}");
}

#[tokio::test]
async fn handoff_message_takes_effect_after_the_turn() {
    let mut lab = reader(6);
    Arc::get_mut(&mut lab.model).unwrap().pause = Duration::from_millis(20);
    lab.directive("reader", &permit(&["rye.file-system.read"]), "");
    let engine = lab.engine();
    let handle = lab.start(&engine, "reader").await;
    handle.send(ControlMessage::Handoff);
    let result = handle.join().await;
    assert_eq!(result.status, Status::Completed);
    assert_ne!(result.thread_id, handle.thread_id.as_str());
    let chain = engine.threads().chain(&thread(&result)).unwrap();
    assert_eq!(chain, [handle.thread_id.clone(), thread(&result)]);
    let found = engine.threads().search(&handle.thread_id, &regex::Regex::new("^done$").unwrap(), 9).unwrap();
    assert!(found.iter().all(|one| one.thread_id == result.thread_id) && !found.is_empty());
}

/// An approver that never answers. Counts the requests received (`put`) and dropped (`gone`).
#[derive(Default)]
struct SilentApprover {
    put: AtomicUsize,
    gone: AtomicUsize,
}

impl ApprovalHandler for SilentApprover {
    fn ask<'a>(&'a self, _: ApprovalRequest<'a>) -> BoxFuture<'a, Approval> {
        struct Gone<'a>(&'a SilentApprover);
        impl Drop for Gone<'_> {
            fn drop(&mut self) {
                self.0.gone.fetch_add(1, Ordering::SeqCst);
            }
        }
        Box::pin(async move {
            self.put.fetch_add(1, Ordering::SeqCst);
            let _gone = Gone(self);
            std::future::pending().await
        })
    }
}

/// An approver whose own answer is an approval. Before it answers, a client of the thread refuses the request.
#[derive(Default)]
struct OvertakenApprover(std::sync::OnceLock<crate::control::ControlSender>);

impl ApprovalHandler for OvertakenApprover {
    fn ask<'a>(&'a self, _: ApprovalRequest<'a>) -> BoxFuture<'a, Approval> {
        Box::pin(async move {
            while self.0.get().is_none() {
                tokio::task::yield_now().await;
            }
            let refusal = ControlMessage::Approve { yes: false, question: None, message: None, raises: false };
            assert!(self.0.get().is_some_and(|control| control.send(refusal)));
            Approval::Preapproved
        })
    }
}

#[tokio::test]
async fn refusal_sent_before_the_answer_of_the_policy_is_the_first_answer() {
    let lab = escalates();
    let approver = Arc::new(OvertakenApprover::default());
    let mut options = lab.options();
    options.approvals = ApprovalPolicy::Ask(Arc::clone(&approver) as Arc<dyn ApprovalHandler>);
    let engine = Engine::open(&lab.path(), options).unwrap();
    let handle = lab.start(&engine, "reader").await;
    assert!(approver.0.set(handle.control()).is_ok());
    let id = handle.join().await;
    let events = engine.threads().transcript(&thread(&id)).unwrap();
    let answers: Vec<Approval> = events
        .iter()
        .filter_map(|event| if let EventBody::ApprovalGiven(given) = &event.body { Some(given.answer) } else { None })
        .collect();
    assert_eq!(answers, [Approval::Refused]);
}

/// An engine whose approver never answers.
fn silent(lab: &Lab) -> (Engine, Arc<SilentApprover>) {
    let approver = Arc::new(SilentApprover::default());
    let mut options = lab.options();
    options.approvals = ApprovalPolicy::Ask(Arc::clone(&approver) as Arc<dyn ApprovalHandler>);
    (Engine::open(&lab.path(), options).unwrap(), approver)
}

fn escalates() -> Lab {
    let lab = reader(5);
    lab.write(".ai/config/agent/hooks.yaml", ESCALATE);
    lab.directive("reader", &format!("<limits turns=\"3\"/>{}", permit(&["rye.file-system.read"])), "");
    lab
}

async fn put(approver: &SilentApprover, times: usize) {
    while approver.put.load(Ordering::SeqCst) < times {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn approval_request_can_be_answered_by_another_process() {
    let lab = escalates();
    let (engine, approver) = silent(&lab);
    let handle = lab.start(&engine, "reader").await;
    put(&approver, 1).await;
    // Another process reads the open request from the disk.
    let elsewhere = crate::threads::Threads::open(&lab.path()).unwrap();
    let seen = pending_approval(&elsewhere.transcript(&handle.thread_id).unwrap()).unwrap();
    assert_eq!((seen.origin, seen.what.as_str()), (ApprovalOrigin::Limit, "continue beyond turns_exceeded: 3 of 3"));
    // A message interrupts the wait; the approval is requested again, but not recorded again.
    handle.send(raise("turns", 20));
    put(&approver, 2).await;
    assert_eq!(approver.gone.load(Ordering::SeqCst), 1);
    let approve = |yes| ControlMessage::Approve { yes, question: Some(seen.seq), message: None, raises: false };
    let first = RunResult { thread_id: handle.thread_id.to_string(), ..RunResult::engine_failure("") };
    post_message(&engine, &first, &approve(true));
    let result = handle.join().await;
    assert_eq!((result.status, result.cost.turns), (Status::Completed, 6), "{result:?}");
    assert_eq!(approver.gone.load(Ordering::SeqCst), 2, "each open approval request is withdrawn");
    let events = engine.threads().transcript(&thread(&result)).unwrap();
    let count = |name: &str| names(&events).iter().filter(|n| **n == name).count();
    assert_eq!((count("approval_asked"), count("approval_given"), count("mail")), (1, 1, 2));
}

#[test]
fn approval_request_is_repeated_after_a_crash() {
    let lab = escalates();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let id = {
        let ((engine, approver), runtime) = (silent(&lab), runtime());
        runtime.block_on(async {
            let handle = lab.start(&engine, "reader").await;
            put(&approver, 1).await;
            handle.thread_id.clone()
        })
    };
    let (engine, approver) = silent(&lab);
    runtime().block_on(async {
        let handle = engine.recover(&id).await.unwrap();
        put(&approver, 1).await;
        let asked = pending_approval(&engine.threads().transcript(&id).unwrap()).unwrap();
        handle.send(raise("turns", 20));
        handle.send(ControlMessage::Approve { yes: true, question: Some(asked.seq), message: None, raises: false });
        let result = handle.join().await;
        assert_eq!(result.status, Status::Completed, "{result:?}");
        let events = engine.threads().transcript(&id).unwrap();
        assert_eq!(names(&events).iter().filter(|name| **name == "approval_asked").count(), 1);
    });
}

/// A refusal that another process or a client sends counts, although a cancellation arrives right behind it.
#[tokio::test]
async fn call_that_a_message_refuses_is_unapproved_if_a_cancellation_follows() {
    let lab = Lab::new(|request| {
        let list = calls(&[("rye_bash_bash", json!({"command": "echo hi"}))]);
        Ok(if request.cue.turn.unwrap() == 0 { list } else { reply_text("done") })
    });
    lab.directive("reader", &permit(&["rye.bash.bash"]), "");
    let (engine, approver) = silent(&lab);
    let handle = lab.start(&engine, "reader").await;
    put(&approver, 1).await;
    handle.send(ControlMessage::Approve { yes: false, question: None, message: None, raises: false });
    handle.send(ControlMessage::Cancel);
    let result = handle.join().await;
    assert_eq!(result.status, Status::Cancelled, "{result:?}");
    let events = engine.threads().transcript(&thread(&result)).unwrap();
    let results: Vec<_> = events
        .iter()
        .filter_map(|event| if let EventBody::ToolCallResult(result) = &event.body { Some(&result.why) } else { None })
        .collect();
    assert!(matches!(results.as_slice(), [ResultKind::Unapproved { answer: Approval::Refused, .. }]), "{results:?}");
}
