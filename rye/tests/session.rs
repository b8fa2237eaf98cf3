//! Sessions of the library: subscriptions, questions, errors.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use rye::{
    Answer, Approvals, CompileRequest, Delivery, EngineBuilder, Error, ItemId, LiveEvent, Project, SessionRequest,
};

const DIRECTIVE: &str = "```xml\n<directive name=\"ask\" version=\"1.0.0\">\n  <metadata><description>Run a command.</description>\n  \
     <model provider=\"scripted\" tier=\"fast\"/><limits turns=\"3\" spend=\"0.05\"/>\n  \
     <permissions><execute><tool>rye.bash.bash</tool></execute></permissions></metadata>\n</directive>\n```\n\nRun it.\n";
const SCRIPT: &str =
    "steps:\n  - tool_calls:\n      - { name: rye_bash_bash, input: { command: \"echo a\" } }\n  - text: done\n";

fn project(folder: &Path) -> Project {
    let directives = folder.join(".ai/directives");
    std::fs::create_dir_all(&directives).unwrap();
    std::fs::write(directives.join("ask.md"), DIRECTIVE).unwrap();
    std::fs::write(folder.join("script.yaml"), SCRIPT).unwrap();
    Project::open(folder).unwrap().without_user_space().trust_everything()
}

fn request() -> CompileRequest {
    CompileRequest::new(ItemId::parse("ask").unwrap()).with_inputs(serde_json::Map::new())
}

/// Runs the directive and answers every question.
async fn run(folder: &Path, answer: Answer) -> (rye::RunResult, usize) {
    let project = project(folder);
    let compilation = project.plan(&request()).unwrap();
    let builder = EngineBuilder::new(&project).approvals(Approvals::Ask).script(folder.join("script.yaml")).unwrap();
    let engine = builder.open().unwrap();
    let mut session = engine.open(SessionRequest::start(compilation)).await.unwrap();
    let (mut events, mut questions) = (session.subscribe(), 0);
    while let Some(event) = events.next().await {
        if let LiveEvent::Question(question) = event {
            questions += 1;
            assert!(!question.is_limit);
            // A later subscription receives the open question, too.
            let mut later = session.subscribe();
            assert_eq!(later.next().await, Some(LiveEvent::Question(question.clone())));
            assert!(session.answer(question.id, answer));
            assert!(!session.answer(question.id, answer), "a question is answered once");
        }
    }
    (session.join().await, questions)
}

#[tokio::test]
async fn answers_decide_about_calls() {
    for (answer, status) in
        [(Answer::Approve, "completed"), (Answer::Refuse, "completed"), (Answer::Suspend, "suspended")]
    {
        let folder = tempfile::tempdir().unwrap();
        let (result, questions) = run(folder.path(), answer).await;
        assert_eq!((result.status.as_str(), questions), (status, 1), "{answer:?}");
    }
}

#[tokio::test]
async fn suspended_thread_is_recovered_with_an_approval() {
    let folder = tempfile::tempdir().unwrap();
    let (result, _) = run(folder.path(), Answer::Suspend).await;
    let project = project(folder.path());
    let engine = EngineBuilder::new(&project).script(folder.path().join("script.yaml")).unwrap().open().unwrap();
    let thread = rye::ThreadId::parse(&result.thread_id).unwrap();
    let approve = rye::ControlMessage::Approve { yes: true, question: None, message: None, raises: false };
    let session = engine.open(SessionRequest::recover_with(thread, vec![approve])).await.unwrap();
    assert_eq!(session.join().await.result.as_deref(), Some("done"));
}

#[tokio::test]
async fn chat_answers_prompts_until_it_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let project = project(folder.path());
    let compilation = project.plan(&request().chat()).unwrap();
    let engine = EngineBuilder::new(&project)
        .approvals(Approvals::Allow)
        .script(folder.path().join("script.yaml"))
        .unwrap()
        .open()
        .unwrap();
    let session = engine.open(SessionRequest::start(compilation)).await.unwrap();
    let receipt = session.submit("do it", Delivery::Prompt).await.unwrap();
    assert!(receipt.preview.limit.is_none());
    session.close();
    let result = session.join().await;
    assert_eq!((result.status.as_str(), result.result.as_deref(), result.cost.turns), ("idle", Some("done"), 2));
}

#[test]
fn errors_say_what_is_wrong_and_where() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(Project::open(folder.path()), Err(Error::NotAProject { .. })));
    let project = project(folder.path());
    std::fs::write(folder.path().join(".ai/directives/ask.md"), DIRECTIVE.replace("turns=", "turn=")).unwrap();
    let error = project.plan(&request()).unwrap_err().to_string();
    assert!(error.starts_with("`ask` has no plan: .ai/directives/ask.md:4:"), "{error}");
    let missing = EngineBuilder::new(&project).script(folder.path().join("none.yaml")).err().unwrap();
    assert!(missing.to_string().contains("none.yaml"), "{missing}");
}
