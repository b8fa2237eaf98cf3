//! Comparison with version 0.1 (commit 4a8be86). `snapshots/baseline/projects.jsonl` holds the cases and examples of
//! that version, `snapshots/baseline/recorded.jsonl` the results of its binary: exit codes, diagnostics, plans,
//! transcripts and requests. `snapshots/baseline/renamed.json` translates renamed fields,
//! `snapshots/baseline/differences.md` lists every other difference with its reason, and
//! `snapshots/baseline/refused.jsonl` lists the runs that a limit ends today but did not end in version 0.1.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/recorder.rs"]
mod recorder;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use recorder::{ApiFormat, Recorder};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// Strings with more bytes are compared by their hash.
const MAX_RECORDED_BYTES: usize = 60;

/// Keys of JSON Schemas.
const SCHEMA_KEYS: [&str; 4] = ["schema", "parameters", "input_schema", "parametersJsonSchema"];

/// Value of a fact that differs between two runs of one binary.
const VARIES: &str = "<varies>";

/// A project of version 0.1, with the settings of its case.
#[derive(Deserialize)]
struct BaselineProject {
    case: String,
    plan: Option<String>,
    run: Option<String>,
    script: Option<String>,
    #[serde(default)]
    inputs: Map<String, Value>,
    files: BTreeMap<String, String>,
    #[serde(default)]
    links: BTreeMap<String, String>,
    /// Files that are not text, in hexadecimal digits.
    #[serde(default)]
    bytes: BTreeMap<String, String>,
}

/// The results of one project.
#[derive(Serialize, Deserialize)]
struct Recorded {
    case: String,
    check: Value,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    plan: Value,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    run: Value,
    /// The requests of a run, by API format.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    requests: Value,
}

/// Leaves of a recorded value by dotted path.
type Facts = BTreeMap<String, Value>;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../snapshots/baseline")
}

fn read_lines<T: for<'d> Deserialize<'d>>(file: &str) -> Vec<T> {
    let text = fs::read_to_string(folder().join(file)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A project of version 0.1 in a temporary folder, and the binary to run.
struct Workspace {
    folder: tempfile::TempDir,
    binary: PathBuf,
}

impl Workspace {
    fn new(project: &BaselineProject, binary: &Path) -> Self {
        let space = Self { folder: tempfile::tempdir().unwrap(), binary: binary.to_path_buf() };
        let digit = |byte: u8| (byte as char).to_digit(16).unwrap();
        let hex = |text: &String| -> Vec<u8> {
            text.as_bytes().chunks(2).map(|pair| u8::try_from(digit(pair[0]) * 16 + digit(pair[1])).unwrap()).collect()
        };
        fs::create_dir_all(space.project()).unwrap();
        fs::create_dir_all(space.user().join(".ai")).unwrap();
        for (path, text) in &project.files {
            space.write(path, text.as_bytes());
        }
        for (path, digits) in &project.bytes {
            space.write(path, &hex(digits));
        }
        for (path, target) in &project.links {
            let link = space.project().join(path);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(target, link).unwrap();
        }
        space
    }

    fn project(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("project")
    }

    fn user(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("user")
    }

    /// Writes a file of the project, or of the user space below `user/`.
    fn write(&self, path: &str, bytes: &[u8]) {
        let path = if path.starts_with("user/") { self.folder.path().join(path) } else { self.project().join(path) };
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Runs a command; returns its exit code and its output.
    fn run(&self, args: &[String], variables: &[(String, String)]) -> (Option<i32>, String) {
        let mut command = Command::new(&self.binary);
        command.args(args).current_dir(self.project()).stdin(Stdio::null()).env_clear();
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", self.folder.path());
        command.env("RYE_USER_SPACE", self.user()).envs(variables.iter().cloned());
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs a command with `--format json`; returns its exit code and the JSON value of the last line.
    fn json(&self, args: &[&str]) -> (Option<i32>, Value) {
        let args: Vec<String> = args.iter().copied().chain(["--format", "json"]).map(str::to_owned).collect();
        let (code, text) = self.run(&args, &[]);
        (code, text.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or(Value::Null))
    }

    /// Replaces paths and the numbers of thread ids, which differ between two folders and two starts.
    fn normalized(&self, text: &str) -> String {
        let text = text.replace(&self.project().display().to_string(), "<project>");
        let mut out = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find('-') {
            let (before, after) = rest.split_at(at + 1);
            out.push_str(before);
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            if digits == 10 {
                out.push_str("<time>");
            }
            rest = if digits == 10 { &after[digits..] } else { after };
        }
        out + rest
    }

    /// Normalizes every string of a value, and replaces each long string by its hash.
    fn recorded(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => {
                let text = self.normalized(text);
                Value::String(if text.len() > MAX_RECORDED_BYTES { hash(&text) } else { text })
            }
            Value::Array(list) => list.iter().map(|value| self.recorded(value)).collect(),
            Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), self.recorded(value))).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }
}

fn hash(text: &str) -> String {
    let digest = Sha256::digest(text).iter().take(6).fold(0_u64, |digest, byte| digest << 8 | u64::from(*byte));
    format!("{} bytes, sha256 {digest:012x}", text.len())
}

/// Records the results of a project with a binary: check, plan, run, and the requests in every API format.
fn record(project: &BaselineProject, binary: &Path) -> Recorded {
    let check = record_check(&Workspace::new(project, binary));
    let plan =
        project.plan.as_ref().map_or(Value::Null, |id| record_plan(&Workspace::new(project, binary), id, project));
    let run = project.run.as_ref().map_or(Value::Null, |id| record_run(&Workspace::new(project, binary), id, project));
    let sent = |id: &String| -> Value {
        let wires = ApiFormat::ALL.iter().map(|wire| {
            let requests = record_requests(&Workspace::new(project, binary), *wire, id, project);
            (wire.names().0.to_owned(), requests)
        });
        Value::Object(wires.collect())
    };
    let requests = project.run.as_ref().map_or(Value::Null, sent);
    Recorded { case: project.case.clone(), check, plan, run, requests }
}

/// Records code, file and span of each diagnostic, and its severity.
fn record_check(space: &Workspace) -> Value {
    let (code, output) = space.json(&["check"]);
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for diagnostic in output["diagnostics"].as_array().into_iter().flatten() {
        let label = &diagnostic["labels"][0];
        let numbers = ["line", "column", "end_line", "end_column"].map(|key| label[key].to_string());
        let span = format!("{}:{}-{}:{}", numbers[0], numbers[1], numbers[2], numbers[3]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let place = if label.is_null() { "no file".to_owned() } else { format!("{} {span}", text(&label["file"])) };
        found.entry(format!("{} {place}", text(&diagnostic["code"]))).or_default().push(text(&diagnostic["severity"]));
    }
    json!({ "exit": code, "diagnostics": found })
}

fn input_arguments(project: &BaselineProject) -> Vec<String> {
    let value = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    project.inputs.iter().flat_map(|(name, given)| ["--input".to_owned(), format!("{name}={}", value(given))]).collect()
}

fn record_plan(space: &Workspace, id: &str, project: &BaselineProject) -> Value {
    let inputs = input_arguments(project);
    let inputs = inputs.iter().map(String::as_str);
    let (code, plan) = space.json(&["plan", id].into_iter().chain(inputs).collect::<Vec<_>>());
    let mut plan = space.recorded(&plan);
    // Diagnostics are part of the record of `check`.
    plan.as_object_mut().map(|plan| plan.remove("diagnostics"));
    json!({ "exit": code, "plan": plan })
}

/// Records the exit code of a run and the events of every thread. The order of events is one fact; each event is
/// recorded by its type and its number among the events of this type.
fn record_run(space: &Workspace, id: &str, project: &BaselineProject) -> Value {
    space.json(&["trust"]);
    let inputs = input_arguments(project);
    let script = project.script.iter().flat_map(|script| ["--script", script.as_str()]);
    let args = ["run", id].into_iter().chain(inputs.iter().map(String::as_str)).chain(script);
    let (code, result) = space.json(&args.collect::<Vec<_>>());
    let (_, listed) = space.json(&["threads", "list", "--limit", "1000"]);
    let mut threads = Map::new();
    for thread in listed["threads"].as_array().into_iter().flatten() {
        let id = thread["thread_id"].as_str().unwrap();
        let args = ["threads", "transcript", id, "--json"].map(str::to_owned);
        let (_, text) = space.run(&args, &[]);
        let mut order = Vec::new();
        let mut events: Map<String, Value> = Map::new();
        for line in text.lines() {
            let mut event = space.recorded(&serde_json::from_str(line).unwrap());
            let fields = event.as_object_mut().unwrap();
            let kind = fields.remove("type").unwrap().as_str().unwrap().to_owned();
            // Positions, hashes, signatures, random numbers and durations differ between runs; other tests check them.
            for key in ["seq", "h", "s", "b", "key_id", "signature", "seed", "spawn", "duration_ms"] {
                fields.remove(key);
            }
            fields.get_mut("parent").and_then(Value::as_object_mut).map(|parent| parent.remove("spawn"));
            order.push(kind.clone());
            // Parallel calls end in any order, so their events are identified by the id of the call.
            let call = fields.get("call_id").and_then(Value::as_str).map(str::to_owned);
            let number = order.iter().filter(|known| **known == kind).count();
            events.insert(format!("{kind} {}", call.unwrap_or_else(|| number.to_string())), event);
        }
        let number = threads.keys().filter(|key| key.starts_with(&space.normalized(id))).count();
        threads.insert(
            format!("{}{}", space.normalized(id), "+".repeat(number)),
            json!({ "order": order.join(" "), "events": events }),
        );
    }
    json!({ "exit": code, "result": space.recorded(&result["result"]), "status": result["status"], "outputs": space.recorded(&result["outputs"]), "threads": threads })
}

/// Records the requests of a run whose model first calls a tool that does not exist, and then replies without a call.
fn record_requests(space: &Workspace, wire: ApiFormat, id: &str, project: &BaselineProject) -> Value {
    let (name, _, variables) = wire.names();
    let provider = format!(
        "id: baseline\nwire: {name}\nbase_url: http://127.0.0.1:1\nbase_url_env: {variables}_BASE_URL\n\
         key_env: {variables}_API_KEY\nkey_header: x-key\ndefault_tier: general\ntiers: {{ general: model-1 }}\nmodels:\n  \
         - {{ id: model-1, context_window: 200000, max_output: 8192, tool_use: native, \
         prices: {{ input: \"0.1\", output: \"0.5\", cache_read: \"0.01\", cache_write: \"0.1\" }} }}\n"
    );
    space.write(".ai/config/agent/providers/baseline.yaml", provider.as_bytes());
    space.json(&["trust"]);
    let recorder = Recorder::start(vec![wire.call_reply(), wire.text_reply()]);
    let mut args: Vec<String> =
        ["run", id, "--model", "baseline/general", "--format", "json"].map(str::to_owned).into();
    args.extend(input_arguments(project));
    let variables = [
        (format!("{variables}_API_KEY"), "secret-of-the-test".to_owned()),
        (format!("{variables}_BASE_URL"), recorder.url.clone()),
    ];
    let (code, _) = space.run(&args, &variables);
    let requests = recorder.requests.lock().unwrap();
    let bodies = requests.iter().map(|request| {
        let text = String::from_utf8_lossy(&request.body);
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        json!({ "line": space.normalized(&request.line), "bytes": hash(&space.normalized(&text)), "body": space.recorded(&body) })
    });
    json!({ "exit": code, "sent": bodies.collect::<Vec<_>>() })
}

/// Adds the leaves of a value under a path. Empty lists and objects are leaves, and so are JSON Schemas, which are
/// compared by their hash. Members of a list are identified by their names if they have any, else by their positions.
fn flatten(path: &str, value: &Value, facts: &mut Facts) {
    match value {
        Value::Array(list) if !list.is_empty() => {
            let mut seen: BTreeMap<String, usize> = BTreeMap::new();
            for (at, value) in list.iter().enumerate() {
                let name = member_name(value).unwrap_or_else(|| at.to_string());
                let repeats = seen.entry(name.clone()).or_default();
                flatten(&format!("{path}/{name}{}", "+".repeat(*repeats)), value, facts);
                *repeats += 1;
            }
        }
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                let is_schema = SCHEMA_KEYS.contains(&key.as_str()) && value.is_object();
                let path = format!("{path}/{key}");
                if is_schema {
                    facts.insert(path, json!(hash(&value.to_string())));
                } else {
                    flatten(&path, value, facts);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            facts.insert(path.to_owned(), value.clone());
        }
    }
}

fn member_name(value: &Value) -> Option<String> {
    let text = |key: &str| value[key].as_str();
    if let (Some(from), Some(to)) = (text("from"), text("to")) {
        return Some(format!("{from} {} {to}", text("outcome").unwrap_or_default()));
    }
    if let Some(name) = value["function"]["name"].as_str() {
        return Some(name.to_owned());
    }
    let kind = text("event").or(text("kind")).map(|kind| format!("{kind} ")).unwrap_or_default();
    let name = text("id").or(text("name")).or(text("pattern"))?;
    Some(format!("{kind}{name}"))
}

fn facts(recorded: &Recorded) -> Facts {
    let mut found = Facts::new();
    let parts = [
        ("check", &recorded.check),
        ("plan", &recorded.plan),
        ("run", &recorded.run),
        ("requests", &recorded.requests),
    ];
    for (name, value) in parts.into_iter().filter(|(_, value)| !value.is_null()) {
        flatten(name, value, &mut found);
    }
    found
}

/// Renames since version 0.1. The recorded results are translated before the comparison.
#[derive(Deserialize)]
struct Renamed {
    /// Fields of JSON outputs and transcripts.
    fields: BTreeMap<String, String>,
    /// Replacements in the settings files of the projects: the start of a path, the old text and the new text.
    settings: Vec<(String, String, String)>,
}

impl Renamed {
    fn read() -> Self {
        serde_json::from_str(&fs::read_to_string(folder().join("renamed.json")).unwrap()).unwrap()
    }

    /// Renames the fields of a value.
    fn translate(&self, value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let name = |key: &String| self.fields.get(key).unwrap_or(key).clone();
                map.iter().map(|(key, value)| (name(key), self.translate(value))).collect()
            }
            Value::Array(list) => list.iter().map(|value| self.translate(value)).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
        }
    }

    /// Renames the settings in the files of a project.
    fn translate_files(&self, project: &mut BaselineProject) {
        for (folder, old, new) in &self.settings {
            for (_, text) in project.files.iter_mut().filter(|(path, _)| path.starts_with(folder.as_str())) {
                *text = text.replace(old.as_str(), new);
            }
        }
    }
}

/// Returns the facts that differ, as `case path: before → after`.
fn differences(before: &Recorded, after: &Recorded) -> Vec<Difference> {
    let (old, new) = (facts(before), facts(after));
    let paths: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let shown = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
    let varies = |value: Option<&Value>| value.is_some_and(|value| value == VARIES);
    let differing = paths.into_iter().filter(|path| old.get(*path) != new.get(*path) && !varies(old.get(*path)));
    differing
        .map(|path| Difference {
            case: before.case.clone(),
            path: path.clone(),
            change: format!("{} → {}", shown(old.get(path)), shown(new.get(path))),
        })
        .collect()
}

struct Difference {
    case: String,
    path: String,
    change: String,
}

/// A row of `differences.md`: the cases and facts that changed on purpose. `*` stands for any text.
struct Reason {
    case: String,
    path: String,
}

impl Reason {
    fn read_all() -> Vec<Self> {
        let text = fs::read_to_string(folder().join("differences.md")).unwrap();
        let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
        rows.map(|row| {
            let cells: Vec<&str> = row.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
            assert!(cells.len() == 4 && !cells[2].is_empty(), "{row}");
            Self { case: cells[0].to_owned(), path: cells[1].to_owned() }
        })
        .collect()
    }

    fn covers(&self, difference: &Difference) -> bool {
        is_match(&self.case, &difference.case) && is_match(&self.path, &difference.path)
    }
}

/// Returns true if a pattern with `*` matches a whole text.
fn is_match(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    text.strip_prefix(start)
        .is_some_and(|text| (0..=text.len()).any(|at| text.get(at..).is_some_and(|end| is_match(rest, end))))
}

/// Records every project, on two threads. With `is_twice`, records each project twice and marks the facts that differ
/// between the two recordings.
fn record_all(projects: &[BaselineProject], binary: &Path, is_twice: bool) -> Vec<Recorded> {
    let queue = Mutex::new(projects.iter().enumerate());
    let done = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some((at, project)) = queue.lock().unwrap().next() else { break };
                    let mut recorded = record(project, binary);
                    if is_twice {
                        let again = record(project, binary);
                        mark_varying(&mut recorded.run, &again.run);
                        mark_varying(&mut recorded.plan, &again.plan);
                        mark_varying(&mut recorded.requests, &again.requests);
                    }
                    done.lock().unwrap().insert(at, recorded);
                }
            });
        }
    });
    done.into_inner().unwrap().into_values().collect()
}

fn mark_varying(value: &mut Value, again: &Value) {
    match (&mut *value, again) {
        (Value::Object(map), Value::Object(other)) => {
            for (key, value) in map {
                mark_varying(value, other.get(key).unwrap_or(&Value::Null));
            }
        }
        (Value::Array(list), Value::Array(other)) if list.len() == other.len() => {
            for (value, other) in list.iter_mut().zip(other) {
                mark_varying(value, other);
            }
        }
        (one, other) if one == other => {}
        _ => *value = json!(VARIES),
    }
}

#[test]
fn results_equal_those_of_version_0_1_except_for_listed_differences() {
    let renamed = Renamed::read();
    let mut projects: Vec<BaselineProject> = read_lines("projects.jsonl");
    if let Some(binary) = std::env::var_os("RECORD_BASELINE") {
        let lines = record_all(&projects, Path::new(&binary), true);
        let lines: Vec<String> = lines.iter().map(|recorded| serde_json::to_string(recorded).unwrap() + "\n").collect();
        fs::write(folder().join("recorded.jsonl"), lines.concat()).unwrap();
    }
    for project in &mut projects {
        renamed.translate_files(project);
    }
    let before: Vec<Recorded> = read_lines("recorded.jsonl");
    let after = record_all(&projects, Path::new(env!("CARGO_BIN_EXE_rye")), false);
    assert_eq!(before.len(), after.len());
    let reasons = Reason::read_all();
    let mut used = BTreeSet::new();
    let mut unexplained = Vec::new();
    let refused = refused_runs(&before, &after);
    assert_eq!(refused, read_lines::<RefusedRun>("refused.jsonl"), "runs that a limit ends now");
    for (before, after) in before.iter().zip(&after) {
        let translated = |value: &Value| renamed.translate(value);
        let before = Recorded {
            case: before.case.clone(),
            check: before.check.clone(),
            plan: translated(&before.plan),
            run: translated(&before.run),
            requests: translated(&before.requests),
        };
        for difference in differences(&before, after) {
            let covering: Vec<usize> = (0..reasons.len()).filter(|at| reasons[*at].covers(&difference)).collect();
            if covering.is_empty() {
                unexplained.push(format!("{} {}: {}", difference.case, difference.path, difference.change));
            }
            used.extend(covering);
        }
    }
    let unused: Vec<_> = reasons.iter().enumerate().filter(|(at, _)| !used.contains(at)).collect();
    let unused: Vec<String> = unused.iter().map(|(_, reason)| format!("{} {}", reason.case, reason.path)).collect();
    assert!(unexplained.is_empty(), "{} differences without a reason:\n{}", unexplained.len(), unexplained.join("\n"));
    assert!(unused.is_empty(), "reasons without a difference:\n{}", unused.join("\n"));
}

/// A run that ended within its limits in version 0.1, and that a limit ends now.
#[derive(Debug, PartialEq, Deserialize)]
struct RefusedRun {
    case: String,
    /// The current value and the maximum of each limit that was hit.
    limits: BTreeMap<String, [Value; 2]>,
}

/// Returns the runs that a limit ends in `after`, but not in `before`. The rows of `differences.md` are not applied.
fn refused_runs(before: &[Recorded], after: &[Recorded]) -> Vec<RefusedRun> {
    let pairs = before.iter().zip(after).filter(|(before, _)| limit_hits(&before.run).is_empty());
    let refused = pairs.map(|(_, after)| RefusedRun { case: after.case.clone(), limits: limit_hits(&after.run) });
    refused.filter(|run| !run.limits.is_empty()).collect()
}

/// Returns the limits that the threads of a run hit, with the current value and the maximum.
fn limit_hits(run: &Value) -> BTreeMap<String, [Value; 2]> {
    let threads = run["threads"].as_object().into_iter().flatten();
    let events = threads.flat_map(|(_, thread)| thread["events"].as_object().into_iter().flatten());
    let hits = events.filter(|(name, _)| name.starts_with("limit "));
    hits.map(|(_, hit)| {
        let code = hit["limit_code"].as_str().unwrap_or_else(|| panic!("{hit}"));
        (code.to_owned(), [hit["current_value"].clone(), hit["current_max"].clone()])
    })
    .collect()
}

#[test]
fn limit_that_ends_a_run_is_found() {
    let recorded = |case: &str, events: Value| {
        let run = json!({ "threads": { "root": { "events": events } } });
        let case = case.to_owned();
        Recorded { case, check: Value::Null, plan: Value::Null, run, requests: Value::Null }
    };
    let hit = json!({ "limit 1": { "limit_code": "spend_exceeded", "current_value": 2, "current_max": 1 } });
    let before = [recorded("a", json!({})), recorded("b", hit.clone()), recorded("c", json!({}))];
    let after = [recorded("a", hit.clone()), recorded("b", hit), recorded("c", json!({ "settled 1": {} }))];
    let limits = BTreeMap::from([("spend_exceeded".to_owned(), [json!(2), json!(1)])]);
    assert_eq!(refused_runs(&before, &after), [RefusedRun { case: "a".to_owned(), limits }]);
}

#[test]
fn changed_codes_spans_fields_and_bytes_are_differences() {
    let recorded = |check: Value, plan: Value| {
        let case = "topic/case".to_owned();
        Recorded { case, check, plan, run: Value::Null, requests: Value::Null }
    };
    let before = recorded(
        json!({ "exit": 1, "diagnostics": { "rye::a a.md 1:1-1:2": ["error"] } }),
        json!({ "hooks": [{ "id": "x", "verdict": "fires" }, { "id": "y", "schema": { "type": "object" } }], "t": VARIES }),
    );
    let after = recorded(
        json!({ "exit": 0, "diagnostics": { "rye::a a.md 1:1-1:3": ["error"] } }),
        json!({ "hooks": [{ "id": "y", "schema": { "type": "string" } }, { "id": "x", "verdict": "fires" }], "t": 1 }),
    );
    let found = differences(&before, &after);
    let paths: Vec<&str> = found.iter().map(|difference| difference.path.as_str()).collect();
    let diagnostics = ["check/diagnostics/rye::a a.md 1:1-1:2/0", "check/diagnostics/rye::a a.md 1:1-1:3/0"];
    assert_eq!(paths, [diagnostics[0], diagnostics[1], "check/exit", "plan/hooks/y/schema"]);
    assert!(is_match("plan/*/schema", paths[3]) && is_match("*", paths[0]) && !is_match("check/*x", paths[2]));
    let renamed = Renamed { fields: BTreeMap::from([("hooks".to_owned(), "calls".to_owned())]), settings: Vec::new() };
    assert_eq!(renamed.translate(&json!([{ "hooks": { "hooks": 1 } }])), json!([{ "calls": { "calls": 1 } }]));
}
