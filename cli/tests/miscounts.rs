//! Tests of the binary with providers that report wrong token counts, in four API formats: no call is booked below the
//! cost that it may have, and no call starts beyond a limit.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/recorder.rs"]
mod recorder;
#[path = "support/rye.rs"]
mod rye;

use std::io::Write;
use std::process::Stdio;

use recorder::{ApiFormat, Recorder};
use rye::{ProcessResult, TestProject};
use serde_json::Value;

/// Prices of the test's model in nano-dollars per token of input (`INPUT`), output (`OUTPUT`) and cached input
/// (`CACHE_READ`): $1, $5 and $0.10 per million tokens.
const INPUT: u64 = 1_000;
const OUTPUT: u64 = 5_000;
const CACHE_READ: u64 = 100;
/// Output tokens of each reply.
const REPLY: u64 = 40;
/// Maximum output tokens of the model.
const MAX_OUTPUT: u64 = 2_000;

/// Token counts of a usage report: prompt, output and cached tokens, each as JSON text.
type Counts = [String; 3];

/// The price that the provider charges for a call.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Bill {
    /// Any amount up to the worst case of the request: the provider has not reported usable counts.
    Unknown,
    Nanos(u64),
}

/// An answer of the server.
#[derive(Debug, Clone)]
enum ProviderAnswer {
    /// A stream with these reports in its first and in its last event, cut after a number of events.
    Stream {
        first: Option<Counts>,
        last: Option<Counts>,
        events: usize,
    },
    Document(String),
}

/// JSON values that are not valid token counts.
const UNUSABLE: [&str; 9] = ["-1", "90.5", "90.0", "1e3", "\"90\"", "null", "true", "[90]", "18446744073709551616"];

fn counts(counts: [&dyn ToString; 3]) -> Counts {
    counts.map(ToString::to_string)
}

fn stream(first: Option<Counts>, last: Option<Counts>) -> ProviderAnswer {
    ProviderAnswer::Stream { first, last, events: usize::MAX }
}

/// Returns the answers to a request of this many bytes, each with the price that the provider charges for the request.
/// The model counts a token for each byte of the prompt.
fn answers(wire: ApiFormat, bytes: u64) -> Vec<(ProviderAnswer, Bill)> {
    let honest = || Some(counts([&bytes, &REPLY, &0]));
    let exact = Bill::Nanos(bytes * INPUT + REPLY * OUTPUT);
    let cached_apart = Bill::Nanos(bytes * INPUT + 2 * bytes * CACHE_READ + REPLY * OUTPUT);
    let mut answers = vec![
        (stream(honest(), honest()), exact),
        (stream(None, honest()), exact),
        (
            stream(Some(counts([&(2 * bytes), &(3 * REPLY), &0])), honest()),
            Bill::Nanos(2 * bytes * INPUT + 3 * REPLY * OUTPUT),
        ),
        (stream(honest(), None), Bill::Unknown),
        (stream(None, None), Bill::Unknown),
        (
            stream(None, Some(counts([&bytes, &REPLY, &(2 * bytes)]))),
            if wire == ApiFormat::Anthropic { cached_apart } else { Bill::Unknown },
        ),
    ];
    for unusable in UNUSABLE {
        answers.push((stream(None, Some(counts([&unusable, &REPLY, &0]))), Bill::Unknown));
        answers.push((stream(None, Some(counts([&bytes, &unusable, &0]))), Bill::Unknown));
    }
    let last = events(wire, honest(), honest()).len();
    for events in 0..last {
        // The final usage is in the last event, or in an event before the event that closes the stream.
        let closes = matches!(wire, ApiFormat::Anthropic | ApiFormat::Openai) && events + 1 == last;
        answers.push((
            ProviderAnswer::Stream { first: honest(), last: honest(), events },
            if closes { exact } else { Bill::Unknown },
        ));
    }
    for (document, bill) in [
        (r#"{"error":{"message":"Later."}}"#, Bill::Nanos(0)),
        (r#"[{"error":{"code":503,"message":"Later."}}]"#, Bill::Nanos(0)),
        (r#"{"error":null,"status":"completed","output":[]}"#, Bill::Unknown),
        (r#"[{"candidates":[]}]"#, Bill::Unknown),
        (r#"{"choices":[{"message":{"content":"cut"#, Bill::Unknown),
        (r#"{"error":{"message":"Later."},"usage":{"prompt_tokens":9}}"#, Bill::Unknown),
    ] {
        answers.push((ProviderAnswer::Document(document.to_owned()), bill));
    }
    answers
}

fn report(wire: ApiFormat, counts: Option<Counts>) -> String {
    let Some([prompt, output, cached]) = counts else { return "null".to_owned() };
    match wire {
        ApiFormat::Anthropic => {
            format!(r#"{{"input_tokens":{prompt},"output_tokens":{output},"cache_read_input_tokens":{cached}}}"#)
        }
        ApiFormat::Openai => format!(
            r#"{{"prompt_tokens":{prompt},"completion_tokens":{output},"prompt_tokens_details":{{"cached_tokens":{cached}}}}}"#
        ),
        ApiFormat::Responses => format!(
            r#"{{"input_tokens":{prompt},"output_tokens":{output},"input_tokens_details":{{"cached_tokens":{cached}}}}}"#
        ),
        ApiFormat::Gemini => format!(
            r#"{{"promptTokenCount":{prompt},"candidatesTokenCount":{output},"cachedContentTokenCount":{cached}}}"#
        ),
    }
}

/// Returns the data of the events of a reply that calls a tool that does not exist.
fn events(wire: ApiFormat, first: Option<Counts>, last: Option<Counts>) -> Vec<String> {
    let (first, last) = (report(wire, first), report(wire, last));
    match wire {
        ApiFormat::Anthropic => vec![
            format!(r#"{{"type":"message_start","message":{{"model":"m","usage":{first}}}}}"#),
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c","name":"absent","input":{}}}"#.to_owned(),
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#.to_owned(),
            format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"tool_use"}},"usage":{last}}}"#),
            r#"{"type":"message_stop"}"#.to_owned(),
        ],
        ApiFormat::Openai => vec![
            format!(r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{{"index":0,"id":"c","function":{{"name":"absent","arguments":"{{}}"}}}}]}}}}],"usage":{first}}}"#),
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#.to_owned(),
            format!(r#"{{"choices":[],"usage":{last}}}"#),
            "[DONE]".to_owned(),
        ],
        ApiFormat::Responses => vec![
            format!(r#"{{"type":"response.created","response":{{"usage":{first}}}}}"#),
            r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","call_id":"c","name":"absent","arguments":"{}"}}"#.to_owned(),
            format!(r#"{{"type":"response.completed","response":{{"status":"completed","usage":{last}}}}}"#),
        ],
        ApiFormat::Gemini => vec![
            format!(r#"{{"candidates":[{{"content":{{"parts":[{{"functionCall":{{"name":"absent","args":{{}}}}}}]}}}}],"usageMetadata":{first}}}"#),
            format!(r#"{{"candidates":[{{"finishReason":"STOP"}}],"usageMetadata":{last}}}"#),
        ],
    }
}

fn response(wire: ApiFormat, answer: ProviderAnswer) -> String {
    let (kind, body) = match answer {
        ProviderAnswer::Document(text) => ("application/json", text),
        ProviderAnswer::Stream { first, last, events: count } => {
            let sent = events(wire, first, last).into_iter().take(count);
            ("text/event-stream", sent.map(|event| ["data: ", &event, "\n\n"].concat()).collect())
        }
    };
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n{body}")
}

/// Returns a response that ends the thread.
fn done(wire: ApiFormat) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{}", wire.text_reply())
}

/// Returns a project with a directive whose model is at this server.
fn project(wire: ApiFormat, url: &str, spend: &str) -> TestProject {
    let place = TestProject::own();
    place.write(
        ".ai/config/agent/providers/test.yaml",
        &format!(
            "id: test\nwire: {}\nbase_url: {url}\ndefault_tier: fast\ntiers: {{ fast: m }}\nmodels:\n  - id: m\n    \
             context_window: 4000000\n    max_output: {MAX_OUTPUT}\n    tool_use: native\n    prices: {{ input: \"1\", \
             output: \"5\", cache_read: \"0.1\", cache_write: \"1\" }}\n",
            wire.names().0
        ),
    );
    place.write(
        ".ai/config/agent/resilience.yaml",
        "retry: { base_seconds: 0.001, max_seconds: 0.001, max_retries: 99 }\n",
    );
    place.write(
        ".ai/directives/work.md",
        &format!(
            "Works.\n\n```xml\n<directive name=\"work\" version=\"1.0.0\">\n<metadata><description>Work.</description>\
             <model provider=\"test\" tier=\"fast\"/><nudge>never</nudge><limits spend=\"{spend}\" turns=\"99\" tokens=\"900000000\" \
             output=\"{MAX_OUTPUT}\"/></metadata>\n</directive>\n```\n\nWork.\n"
        ),
    );
    place
}

/// Runs the directive; returns the result and the events of its thread.
fn run(place: &TestProject) -> (ProcessResult, Vec<Value>) {
    let done = place.rye(&["run", "work", "--format", "json"]);
    let last: Value = serde_json::from_str(done.stdout.lines().last().unwrap_or_default())
        .unwrap_or_else(|_| panic!("{}\n{}", done.stdout, done.stderr));
    let record = place.transcript(last["thread_id"].as_str().unwrap());
    (done, record)
}

fn of_kind<'r>(record: &'r [Value], kind: &'r str) -> impl Iterator<Item = &'r Value> {
    record.iter().map(|line| line.get("event").unwrap_or(line)).filter(move |event| event["type"] == kind)
}

#[test]
fn every_call_is_booked_at_what_it_may_cost_on_every_wire() {
    for wire in ApiFormat::ALL {
        let most = answers(wire, 1).len();
        let server = Recorder::start_with(move |n, request| {
            let answers = answers(wire, request.body.len() as u64);
            // After the last answer, a complete reply ends the thread.
            answers.get(n).map_or_else(|| done(wire), |(answer, _)| response(wire, answer.clone()))
        });
        let place = project(wire, &server.url, "9");
        let (done, record) = run(&place);
        assert_eq!(done.code, Some(0), "{wire:?}\n{}\n{}", done.stdout, done.stderr);
        let settled: Vec<&Value> = of_kind(&record, "settled").collect();
        let intended: Vec<&Value> = of_kind(&record, "attempt_intended").collect();
        let requests = server.requests.lock().unwrap();
        assert_eq!((settled.len(), intended.len(), requests.len()), (most + 1, most + 1, most + 1), "{wire:?}");
        for (n, request) in requests.iter().enumerate().take(most) {
            let bytes = request.body.len() as u64;
            let (answer, bill) = answers(wire, bytes).swap_remove(n);
            let (amount, worst) = (settled[n]["amount"].as_u64().unwrap(), intended[n]["worst_case"].as_u64().unwrap());
            let place = format!("{wire:?}, answer {n} {answer:?}: {}", settled[n]);
            match bill {
                Bill::Nanos(nanos) => {
                    assert_eq!((amount, &settled[n]["unknown_outcome"]), (nanos, &false.into()), "{place}");
                }
                Bill::Unknown => {
                    let max_output = intended[n]["max_output"].as_u64().unwrap();
                    assert!(amount >= bytes * INPUT + max_output * OUTPUT, "{place}");
                    assert_eq!((amount, &settled[n]["unknown_outcome"]), (worst, &true.into()), "{place}");
                }
            }
        }
    }
}

#[test]
fn silent_provider_is_called_only_within_the_limit() {
    for wire in ApiFormat::ALL {
        let server = Recorder::start_with(move |_, _| response(wire, stream(None, None)));
        let place = project(wire, &server.url, "0.05");
        let (done, record) = run(&place);
        assert_eq!(done.code, Some(4), "{wire:?}\n{}", done.stderr);
        let requests = server.requests.lock().unwrap();
        let billed: u64 = requests
            .iter()
            .zip(of_kind(&record, "attempt_intended"))
            .map(|(request, intended)| {
                request.body.len() as u64 * INPUT + intended["max_output"].as_u64().unwrap() * OUTPUT
            })
            .sum();
        let booked: u64 = of_kind(&record, "settled").map(|settled| settled["amount"].as_u64().unwrap()).sum();
        assert!(requests.len() > 1 && billed <= booked && booked <= 50_000_000, "{wire:?}: {billed} of {booked}");
        assert!(of_kind(&record, "limit").any(|event| event["limit_code"] == "spend_exceeded"), "{wire:?}");
    }
}

#[test]
fn count_beyond_every_limit_is_the_last_of_its_thread() {
    for wire in ApiFormat::ALL {
        for report in [counts([&u64::MAX, &REPLY, &0]), counts([&9, &u64::MAX, &0])] {
            let sent = report.clone();
            let server = Recorder::start_with(move |_, _| response(wire, stream(None, Some(sent.clone()))));
            let place = project(wire, &server.url, "1");
            let (done, record) = run(&place);
            assert_eq!(done.code, Some(4), "{wire:?} {report:?}\n{}", done.stderr);
            assert_eq!(server.requests.lock().unwrap().len(), 1, "{wire:?} {report:?}");
            // The largest amount that a ledger holds.
            let settled = of_kind(&record, "settled").next().unwrap();
            assert_eq!(settled["amount"], i64::MAX, "{wire:?}: {settled}");
            assert!(settled["overspent"].as_u64().unwrap() > 0, "{wire:?}: {settled}");
            let shown = place.rye(&["run", "work"]).stderr;
            let overrun = "(overspent: the provider counts $";
            assert!(shown.contains(overrun) && shown.contains(" more than was reserved)"), "{wire:?}: {shown}");
        }
    }
}

#[test]
fn cost_of_a_model_without_a_price_is_unknown() {
    for wire in ApiFormat::ALL {
        let honest = move || response(wire, stream(None, Some(counts([&90, &REPLY, &0]))));
        let server = Recorder::start_with(move |n, _| if n % 2 == 0 { honest() } else { done(wire) });
        let place = project(wire, &server.url, "1");
        let priced = place.rye(&["run", "work"]);
        assert!(priced.stderr.contains(" out, $0.000"), "{wire:?}\n{}", priced.stderr);
        for (file, part) in
            [(".ai/config/agent/providers/test.yaml", "    prices: "), (".ai/directives/work.md", "<limits ")]
        {
            let text = place.read(file);
            let (before, rest) = text.split_once(part).unwrap();
            let end = if part.starts_with('<') { "/>" } else { "}" };
            place.write(file, &format!("{before}{}", rest.split_once(end).unwrap().1));
        }
        for format in ["human", "plain"] {
            let done = place.rye(&["run", "work", "--format", format]);
            let output = format!("{}\n{}", done.stdout, done.stderr);
            assert!(output.contains(" out, cost unknown") && !output.contains("$0"), "{wire:?}\n{output}");
        }
        let mut child = place.command(&["chat", "work"]);
        let child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        child.stdin.take().unwrap().write_all(b"go\n/cost\n/preview hello\n").unwrap();
        let session = ProcessResult::from(child.wait_with_output().unwrap()).stderr;
        for text in [" out, cost unknown\n", "and unknown costs", "cost unknown: the model"] {
            assert!(session.contains(text), "{wire:?} {text}\n{session}");
        }
        let id = place.json(&["threads", "list", "--limit", "1"]).1["threads"][0]["thread_id"].clone();
        let listed = place.run_ok(&["threads", "list", "--limit", "1", "--format", "plain"]);
        assert!(listed.contains("\tunknown\t") && !listed.contains("$0"), "{wire:?}\n{listed}");
        let shown = place.run_ok(&["threads", "show", id.as_str().unwrap(), "--format", "plain"]);
        assert!(shown.contains(" out, cost unknown"), "{wire:?}\n{shown}");
        assert_eq!(place.json(&["threads", "show", id.as_str().unwrap()]).1["cost"]["unpriced"], true);
    }
}

#[test]
fn prompt_of_an_overspent_session_makes_no_call() {
    for wire in ApiFormat::ALL {
        let server =
            Recorder::start_with(move |_, _| response(wire, stream(None, Some(counts([&9_000_000, &REPLY, &0])))));
        let place = project(wire, &server.url, "0.10");
        let settings = place.read(".ai/config/agent/resilience.yaml");
        let limits = "session_limits: { spend: 0.5, tokens: 900000000 }\n";
        place.write(".ai/config/agent/resilience.yaml", &format!("{settings}{limits}"));
        let prompts = (0..3).map(|n| format!("{{\"type\":\"prompt\",\"id\":{n},\"message\":\"go\"}}\n"));
        let mut command = place.command(&["chat", "work", "--format", "json"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(prompts.collect::<String>().as_bytes()).unwrap();
        let done = ProcessResult::from(child.wait_with_output().unwrap());
        let events: Vec<Value> = done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let ended: Vec<&Value> = of_kind(&events, "prompt_ended").map(|event| &event["status"]).collect();
        assert_eq!(ended, ["limit"; 3], "{wire:?}\n{}", done.stderr);
        assert_eq!(server.requests.lock().unwrap().len(), 1, "{wire:?}");
    }
}
