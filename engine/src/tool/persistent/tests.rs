//! Tests of persistent tools: one process for all calls, its failures, its restarts and the messages that it submits.
//! Tests of a language are skipped with a message if it is not installed.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stderr, reason = "tests")]

use rye_compiler::tool_spec::ToolSpec;
use rye_grammar::SourceId;
use rye_grammar::tool_header::{self, ToolLanguage};

use super::*;
use crate::event::Delivery;
use crate::scripts::SyntaxTreeReader;
use crate::tool::cancellation::CancellationSource;
use crate::tool::registry::{PreparedTool, ToolRegistry};

mod attacks;

/// A project with one persistent tool, and the processes of one thread.
struct PersistentProject {
    dir: tempfile::TempDir,
    tool: PreparedTool,
    processes: Arc<PersistentProcesses>,
}

impl PersistentProject {
    fn new(name: &str, text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        let text = text.replace("PROJECT", dir.path().to_str().unwrap());
        std::fs::write(&path, &text).unwrap();
        let parsed = tool_header::parse(SourceId(0), &text, ToolLanguage::of_path(name).unwrap(), &SyntaxTreeReader);
        assert_eq!(parsed.errors, []);
        let spec = ToolSpec::read(&parsed.tree).unwrap();
        let file = ToolFile { path: Some(path), item_path: name.into(), text: text.into(), ..ToolFile::default() };
        let tool = ToolRegistry::standard().prepare(&spec, &file).unwrap();
        Self { dir, tool, processes: Arc::default() }
    }

    fn invocation(&self, parameters: Value) -> Invocation {
        Invocation {
            event: "tool_result",
            persistent: Arc::clone(&self.processes),
            timeout: Duration::from_mins(1),
            ..Invocation::sample("team/helper", self.dir.path(), parameters)
        }
    }

    async fn call(&self, parameters: Value) -> ToolOutcome {
        self.tool.run(self.invocation(parameters)).await
    }
}

fn has(program: &str) -> bool {
    let found = std::process::Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success());
    if !found {
        eprintln!("skipped: `{program}` is not installed");
    }
    found
}

/// Returns true if node can strip the types of TypeScript (22.13 or newer).
fn has_typescript() -> bool {
    let strips = "process.exit(require('module').stripTypeScriptTypes ? 0 : 1)";
    let found = std::process::Command::new("node").args(["-e", strips]).status().is_ok_and(|status| status.success());
    if !found {
        eprintln!("skipped: no node with TypeScript");
    }
    found
}

/// Returns the tool file of a persistent command: a bash loop that runs `body` for each line. In `body`, `$id` is the
/// id of the line, and `$n` is its number.
fn shell_tool(keys: &str, body: &str) -> String {
    let head = format!("description: d\nkind: command\npersistent: true\n{keys}command:\n  - bash\n  - -c\n  - |\n");
    let read = "    n=0\n    while IFS= read -r line; do\n      n=$((n+1))\n      id=$(sed 's/.*\"id\":\\([0-9]*\\).*/\\1/' <<< \"$line\")\n";
    format!("{head}{read}{body}    done\n")
}

const COUNT: &str =
    "      printf '{{\"id\":%s,\"action\":\"transform\",\"text\":\"%s of %s\"}}\\n' \"$id\" \"$n\" \"$$\"\n";

#[tokio::test]
async fn one_process_answers_all_calls_of_a_thread() {
    let project = PersistentProject::new("helper.yaml", &shell_tool("", COUNT));
    let mut texts = Vec::new();
    for _ in 0..3 {
        let outcome = project.call(json!({})).await;
        assert!(!outcome.is_error, "{outcome:?}");
        assert_eq!(outcome.content["action"], "transform");
        assert!(outcome.content.get("id").is_none());
        texts.push(outcome.content["text"].as_str().unwrap().to_owned());
    }
    let process = texts[0].strip_prefix("1 of ").unwrap();
    assert_eq!(texts[1..], [format!("2 of {process}"), format!("3 of {process}")]);
}

#[tokio::test]
async fn line_holds_id_event_and_facts() {
    let body = "      printf '{{\"id\":%s,\"result\":%s}}\\n' \"$id\" \"$line\"\n";
    let project = PersistentProject::new("helper.yaml", &shell_tool("parameters: {properties: {text: {}}}\n", body));
    let outcome = project.call(json!({"text": "a\n\"b\""})).await;
    assert_eq!(outcome.content, json!({"id": 1, "event": "tool_result", "facts": {"text": "a\n\"b\""}}));
}

const PYTHON: &str = "\
__tool_description__ = \"d\"
__persistent__ = True
CONFIG_SCHEMA = {\"type\": \"object\", \"properties\": {\"do\": {}}}
calls = 0

async def execute(params, project_path):
    global calls
    calls += 1
    print(\"a log line\")
    if params.get(\"do\") == \"raise\":
        raise ValueError(\"no such thing\")
    if params.get(\"do\") == \"exit\":
        raise SystemExit(3)
    return {\"action\": \"block\", \"reason\": f\"call {calls}\"}
";

const JAVASCRIPT: &str = "\
export const __tool_description__ = \"d\";
export const __persistent__ = true;
export const CONFIG_SCHEMA = { type: \"object\", properties: { do: {} } };
let calls = 0;
export async function execute(params, projectPath) {
  calls += 1;
  console.log(\"a log line\");
  if (params.do === \"raise\") throw new Error(\"no such thing\");
  if (params.do === \"exit\") process.exit(3);
  return { action: \"block\", reason: `call ${calls}` };
}
";

#[tokio::test]
async fn script_keeps_its_memory_and_survives_an_exception() {
    let typescript = JAVASCRIPT.replace("(params, projectPath)", "(params: { do?: string }, projectPath: string)");
    for (program, name, text) in
        [("python3", "helper.py", PYTHON), ("node", "helper.mjs", JAVASCRIPT), ("node", "helper.ts", &typescript)]
    {
        if !has(program) || (name == "helper.ts" && !has_typescript()) {
            continue;
        }
        let project = PersistentProject::new(name, text);
        let first = project.call(json!({})).await;
        assert_eq!(first.content, json!({"action": "block", "reason": "call 1"}), "{name}");
        assert_eq!(first.details, json!({"log": "a log line"}), "{name}");
        let raised = project.call(json!({"do": "raise"})).await;
        let text = raised.content.as_str().unwrap();
        assert!(raised.is_error && text.starts_with("a log line\n") && text.contains("no such thing"), "{raised:?}");
        let third = project.call(json!({})).await;
        assert_eq!(third.content["reason"], "call 3", "{name}");
    }
}

#[tokio::test]
async fn process_that_ends_restarts_once_a_prompt() {
    let body = "      echo gone >&2; exit 3\n";
    let project = PersistentProject::new("helper.yaml", &shell_tool("", body));
    project.processes.set_prompt(1);
    for _ in 0..2 {
        let ended = project.call(json!({})).await;
        let text = ended.content.as_str().unwrap();
        assert!(ended.is_error && text.contains("ended before it answered") && text.contains("gone"), "{text}");
    }
    let refused = project.call(json!({})).await;
    let text = refused.content.as_str().unwrap();
    assert!(text.contains("failed again") && text.ends_with("the last output of the process: gone"), "{text}");
    project.processes.set_prompt(2);
    let ended = project.call(json!({})).await;
    assert!(ended.content.as_str().unwrap().contains("ended before it answered"), "{ended:?}");
}

#[tokio::test]
async fn repeatable_call_is_sent_again_after_a_crash() {
    // The first process ends at its first line; each later process answers.
    let body = format!("      if [ ! -e PROJECT/once ]; then : > PROJECT/once; exit 1; fi\n{COUNT}");
    let project = PersistentProject::new("helper.yaml", &shell_tool("idempotent: true\n", &body));
    let outcome = project.call(json!({})).await;
    assert!(!outcome.is_error, "{outcome:?}");
    assert!(outcome.content["text"].as_str().unwrap().starts_with("1 of "), "{outcome:?}");
}

#[tokio::test]
async fn process_without_an_answer_in_time_is_stopped() {
    let project = PersistentProject::new("helper.yaml", &shell_tool("timeout_seconds: 1\n", "      sleep 600\n"));
    let outcome = project.call(json!({})).await;
    let text = outcome.content.as_str().unwrap();
    assert!(outcome.is_error && text.contains("did not answer within 1 seconds"), "{text}");
}

#[tokio::test]
async fn malformed_lines_and_foreign_ids_stop_the_process() {
    for (line, reason) in [
        ("hello", "its output has a line that is not a JSON object: hello"),
        ("[1]", "its output has a line that is not a JSON object: [1]"),
        (
            "{{\"id\":1,\"result\":36893488147419103232}}",
            "its output has a line that cannot be kept as it is: the integer 36893488147419103232 does not fit into 64 bits",
        ),
        ("{{\"id\":7}}", "its answer must have the id 1, but has the id 7"),
        ("{{\"action\":\"block\"}}", "its answer must have the id 1, but has no id"),
        ("{{\"submit\":{{\"text\":\"x\"}}}}", "it submitted a message, which needs `pushes: true`"),
        ("{{\"id\":1}}", "its answer has none of `result`, `error` and `action`"),
        ("{{\"id\":1,\"ok\":1}}", "its answer has `ok`, but none of `result`, `error` and `action`"),
        ("{{\"id\":1,\"result\":1,\"error\":\"x\"}}", "its answer has `error` beside `result`"),
        ("{{\"id\":1,\"error\":\"x\",\"foo\":1}}", "its answer has `foo` beside `error`"),
        ("{{\"id\":1,\"action\":\"continue\",\"result\":1}}", "its answer has `result` beside `action`"),
    ] {
        let body = format!("      echo '{line}'\n");
        let project = PersistentProject::new("helper.yaml", &shell_tool("", &body));
        let outcome = project.call(json!({})).await;
        assert!(outcome.is_error && outcome.content.as_str().unwrap().ends_with(reason), "{outcome:?}");
    }
}

#[tokio::test]
async fn message_that_a_run_gets_is_refused_with_the_reason() {
    let body = "      echo '{{\"submit\":{{\"text\":\"x\"}}}}'\n";
    let project = PersistentProject::new("helper.yaml", &shell_tool("pushes: true\n", body));
    let outcome = project.call(json!({})).await;
    let text = outcome.content.as_str().unwrap();
    assert!(text.ends_with("which only a chat accepts; a run accepts none"), "{text}");
}

#[tokio::test]
async fn printed_text_is_kept_for_its_own_call_and_shown_with_a_failure() {
    let body = "      echo \"line $n\" >&2\n      if [ $n = 2 ]; then key=error; else key=result; fi\n      printf '{{\"id\":%s,\"%s\":\"done\"}}\\n' \"$id\" \"$key\"\n";
    let project = PersistentProject::new("helper.yaml", &shell_tool("", body));
    let first = project.call(json!({})).await;
    assert_eq!((first.content, first.details), (json!("done"), json!({"log": "line 1"})));
    let second = project.call(json!({})).await;
    assert_eq!((second.is_error, second.content), (true, json!("line 2\ndone")));
    assert_eq!(project.call(json!({})).await.details, json!({"log": "line 3"}));
    let silent =
        PersistentProject::new("helper.yaml", &shell_tool("timeout_seconds: 1\n", "      echo why >&2; sleep 600\n"));
    let stopped = silent.call(json!({})).await;
    assert!(stopped.content.as_str().unwrap().ends_with("the last output of the process: why"), "{stopped:?}");
}

#[tokio::test]
async fn cancelled_call_stops_the_process_and_counts_no_failure() {
    let project = PersistentProject::new("helper.yaml", &shell_tool("timeout_seconds: 60\n", "      sleep 600\n"));
    for _ in 0..3 {
        let source = CancellationSource::new();
        let mut invocation = project.invocation(json!({}));
        invocation.halt = source.token();
        source.cancel();
        let outcome = project.tool.run(invocation).await;
        assert_eq!(outcome.content, json!("stopped: the thread was cancelled"));
    }
}

#[tokio::test]
async fn submitted_messages_reach_the_chat_before_the_answer() {
    let body =
        format!("      echo '{{{{\"submit\":{{{{\"text\":\"check again\",\"delivery\":\"follow_up\"}}}}}}}}'\n{COUNT}");
    let mut project = PersistentProject::new("helper.yaml", &shell_tool("pushes: true\n", &body));
    let received = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&received);
    project.processes = Arc::new(PersistentProcesses::with_pushes(Arc::new(move |message| {
        sink.lock().unwrap().push(message);
        true
    })));
    assert!(!project.call(json!({})).await.is_error);
    let message = PushedMessage { text: "check again".into(), delivery: Delivery::FollowUp };
    assert_eq!(*received.lock().unwrap(), [message]);
    for _ in 0..9 {
        assert!(!project.call(json!({})).await.is_error);
    }
    let refused = project.call(json!({})).await;
    assert!(
        refused.content.as_str().unwrap().ends_with("it submitted more than 10 messages in one prompt"),
        "{refused:?}"
    );
    assert_eq!(received.lock().unwrap().len(), 10);
}

#[tokio::test]
async fn call_with_other_access_gets_another_process() {
    let project = PersistentProject::new("helper.yaml", &shell_tool("", COUNT));
    std::fs::create_dir(project.dir.path().join("out")).unwrap();
    assert!(!project.call(json!({})).await.is_error);
    let mut wider = project.invocation(json!({}));
    wider.write = vec!["out/".to_owned()];
    let outcome = project.tool.run(wider).await;
    assert!(outcome.content["text"].as_str().unwrap().starts_with("1 of "), "{outcome:?}");
}
