//! The event table: name, fields, criticality, durability and readers of each kind of event.

use serde::{Deserialize, Serialize};

/// The kind of an event: the variants of [`super::EventBody`], without their fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    Opened,
    PlanBound,
    Continues,
    SystemPrompt,
    ContextInjected,
    CognitionIn,
    AttemptIntended,
    Reserved,
    CognitionOut,
    AttemptFailed,
    Settled,
    HookPoint,
    ToolStarted,
    FileChanged,
    ToolCallResult,
    ChildIntended,
    ChildSpawned,
    ChildEnded,
    Mail,
    Limit,
    ApprovalAsked,
    ApprovalGiven,
    StateSet,
    Compacted,
    Recovered,
    Checkpoint,
    UserInput,
    Retracted,
    ShellRan,
    CommandRan,
    Named,
    PromptStarted,
    PromptEnded,
    Ended,
}

/// The importance of an event to watchers. There is no level for data that may be dropped, such as the deltas of a
/// reply, because such data never becomes an event of a transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Criticality {
    Critical,
    Normal,
}

/// The time by which an event must be on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// The event must be on disk before the next side effect. The event states the intent of that side effect, or a
    /// fact that cannot be derived again.
    Barrier,
    /// The event may wait for the next barrier. After a crash, the event can be derived again from the registry or the
    /// state.
    Lazy,
}

/// A consumer that folds or shows an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventReader {
    /// The machine, which folds the event into the state with `apply`: resume and recovery depend on the event.
    Machine,
    /// The code that builds the conversation from the events, for exports and for threads that continue this thread.
    Conversation,
    /// The repair of the registry and the ledger from transcripts.
    Repair,
    /// Commands that print the event: `run --events`, `threads transcript`, the viewer.
    View,
}

/// A row of the event table: the names and fields of one kind of event, its durability, and the parts of the program
/// that read it.
#[derive(Debug, Clone, Copy)]
pub struct EventRow {
    pub kind: EventKind,
    /// The value of `type` in a transcript line.
    pub name: &'static str,
    /// The name of the event in JSON Lines, in lists of events, and for hooks.
    pub reader_name: &'static str,
    pub criticality: Criticality,
    pub durability: Durability,
    pub fields: &'static [&'static str],
    pub readers: &'static [EventReader],
}

const fn build_row(
    kind: EventKind,
    names: (&'static str, &'static str),
    weight: (Criticality, Durability),
    fields: &'static [&'static str],
    readers: &'static [EventReader],
) -> EventRow {
    let (name, reader_name) = names;
    let (criticality, durability) = weight;
    EventRow { kind, name, reader_name, criticality, durability, fields, readers }
}

const CRITICAL: (Criticality, Durability) = (Criticality::Critical, Durability::Barrier);
const BARRIER: (Criticality, Durability) = (Criticality::Normal, Durability::Barrier);
const LAZY: (Criticality, Durability) = (Criticality::Normal, Durability::Lazy);
const STATE: &[EventReader] = &[EventReader::Machine, EventReader::View];
const CONVERSATION: &[EventReader] = &[EventReader::Machine, EventReader::Conversation, EventReader::View];
const LEDGER: &[EventReader] = &[EventReader::Machine, EventReader::Repair, EventReader::View];

/// The rows of all event kinds, in the order in which the kinds first occur in a thread.
pub static EVENT_TABLE: [EventRow; 34] = [
    build_row(
        EventKind::Opened,
        ("opened", "thread_started"),
        CRITICAL,
        &[
            "thread_id",
            "directive",
            "origin",
            "parent",
            "root",
            "inputs",
            "limits",
            "ceiling",
            "grants",
            "seed",
            "project_path",
            "attended",
            "images",
            "call",
            "carried_ms",
            "allow_missing_outputs",
            "settings",
            "serves_client",
        ],
        LEDGER,
    ),
    build_row(EventKind::PlanBound, ("plan_bound", "plan_bound"), BARRIER, &["plan_id", "observes", "chat"], STATE),
    build_row(
        EventKind::Continues,
        ("continues", "thread_resumed"),
        CRITICAL,
        &[
            "thread",
            "at_seq",
            "at_h",
            "message",
            "prompt",
            "after",
            "prompts",
            "sent",
            "resent",
            "queue",
            "mode",
            "prompt_grants",
            "left_out",
            "children",
        ],
        CONVERSATION,
    ),
    build_row(EventKind::SystemPrompt, ("system_prompt", "system_prompt"), BARRIER, &["text", "layers"], CONVERSATION),
    build_row(
        EventKind::ContextInjected,
        ("context_injected", "context_injected"),
        LAZY,
        &["before", "after"],
        &[EventReader::View],
    ),
    build_row(EventKind::CognitionIn, ("cognition_in", "cognition_in"), BARRIER, &["source", "message"], CONVERSATION),
    build_row(
        EventKind::AttemptIntended,
        ("attempt_intended", "attempt_intended"),
        BARRIER,
        &["turn", "attempt", "model", "input_bound", "max_output", "worst_case", "compacts", "unpriced"],
        LEDGER,
    ),
    build_row(EventKind::Reserved, ("reserved", "reserved"), LAZY, &["turn", "attempt", "amount"], LEDGER),
    build_row(
        EventKind::CognitionOut,
        ("cognition_out", "cognition_out"),
        BARRIER,
        &["turn", "attempt", "content", "usage", "uncounted", "stop", "model"],
        CONVERSATION,
    ),
    build_row(
        EventKind::AttemptFailed,
        ("attempt_failed", "attempt_failed"),
        BARRIER,
        &["turn", "attempt", "error", "classification", "retry_delay_ms", "fallback"],
        STATE,
    ),
    build_row(
        EventKind::Settled,
        ("settled", "settled"),
        BARRIER,
        &["turn", "attempt", "amount", "usage", "unknown_outcome", "overspent"],
        LEDGER,
    ),
    build_row(
        EventKind::HookPoint,
        ("hook_point", "hook_point"),
        BARRIER,
        &["point", "subject", "considered", "answer", "objects"],
        STATE,
    ),
    build_row(
        EventKind::ToolStarted,
        ("tool_started", "tool_execution_start"),
        BARRIER,
        &["turn", "index", "group_end", "call_id", "name", "capability", "idempotent"],
        STATE,
    ),
    build_row(
        EventKind::FileChanged,
        ("file_changed", "file_changed"),
        BARRIER,
        &["call_id", "path", "before", "after", "mode"],
        &[EventReader::View],
    ),
    build_row(
        EventKind::ToolCallResult,
        ("tool_call_result", "tool_call_result"),
        BARRIER,
        &[
            "turn",
            "index",
            "group_end",
            "call_id",
            "name",
            "why",
            "content",
            "is_error",
            "details",
            "bytes",
            "object",
            "duration_ms",
        ],
        CONVERSATION,
    ),
    build_row(
        EventKind::ChildIntended,
        ("child_intended", "child_intended"),
        BARRIER,
        &[
            "spawn",
            "turn",
            "index",
            "group_end",
            "call_id",
            "directive",
            "inputs",
            "model",
            "limit_overrides",
            "detached",
            "tool",
        ],
        LEDGER,
    ),
    build_row(
        EventKind::ChildSpawned,
        ("child_spawned", "child_spawned"),
        LAZY,
        &["spawn", "thread_id", "spend"],
        LEDGER,
    ),
    build_row(
        EventKind::ChildEnded,
        ("child_ended", "child_ended"),
        BARRIER,
        &["spawn", "thread_id", "status", "cost"],
        LEDGER,
    ),
    build_row(EventKind::Mail, ("mail", "mail"), BARRIER, &["id", "message"], STATE),
    build_row(
        EventKind::Limit,
        ("limit", "limit"),
        BARRIER,
        &["at", "limit_code", "current_value", "current_max", "scope"],
        STATE,
    ),
    build_row(
        EventKind::ApprovalAsked,
        ("approval_asked", "approval_asked"),
        CRITICAL,
        &["asked", "what", "raise"],
        STATE,
    ),
    build_row(EventKind::ApprovalGiven, ("approval_given", "approval_given"), CRITICAL, &["asked", "answer"], STATE),
    build_row(EventKind::StateSet, ("state_set", "state_set"), BARRIER, &["key", "value"], STATE),
    build_row(EventKind::Compacted, ("compacted", "compacted"), BARRIER, &["through", "summary", "keep"], CONVERSATION),
    build_row(EventKind::Recovered, ("recovered", "recovered"), CRITICAL, &["owner", "cut_bytes"], STATE),
    build_row(
        EventKind::Checkpoint,
        ("checkpoint", "checkpoint"),
        LAZY,
        &["turn", "key_id", "signature"],
        &[EventReader::View],
    ),
    build_row(
        EventKind::UserInput,
        ("user_input", "user_input"),
        BARRIER,
        &["id", "delivery", "source", "raw", "text", "images", "expansions", "handled", "reply", "bounds"],
        CONVERSATION,
    ),
    build_row(EventKind::Retracted, ("retracted", "retracted"), BARRIER, &["input"], STATE),
    build_row(
        EventKind::ShellRan,
        ("shell_ran", "shell_ran"),
        BARRIER,
        &["id", "command", "exit_code", "output", "object", "excluded", "duration_ms"],
        CONVERSATION,
    ),
    build_row(
        EventKind::CommandRan,
        ("command_ran", "command_ran"),
        LAZY,
        &["id", "name", "args", "item", "action", "answer", "is_error"],
        STATE,
    ),
    build_row(EventKind::Named, ("named", "named"), LAZY, &["name"], STATE),
    build_row(
        EventKind::PromptStarted,
        ("prompt_started", "prompt_started"),
        BARRIER,
        &["prompt", "limits", "grants", "mode", "capped"],
        STATE,
    ),
    build_row(
        EventKind::PromptEnded,
        ("prompt_ended", "prompt_ended"),
        BARRIER,
        &["prompt", "status", "code", "message", "cost", "unsent", "partial_reply"],
        STATE,
    ),
    build_row(
        EventKind::Ended,
        ("ended", "thread_ended"),
        CRITICAL,
        &["status", "result", "outputs", "missing", "stop_reason", "unread", "error", "cost"],
        LEDGER,
    ),
];

/// Returns the row of the event table for a kind of event.
pub(crate) fn event_row(kind: EventKind) -> &'static EventRow {
    // A test checks that the table has the order of the enum.
    EVENT_TABLE.get(kind as usize).unwrap_or(&EVENT_TABLE[0])
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;
    use crate::event::EventBody;
    use crate::store::transcript::line::{self, LinePosition, RESERVED_FIELDS};
    use crate::store::transcript::{ChainHash, LineSigner};

    /// Returns a minimal line of each kind, in the table's order.
    fn samples() -> Vec<Value> {
        let limits = json!({"turns":1,"tokens":1,"spend":1,"spawns":1,"depth":1,"duration_seconds":1,"output":1});
        let usage = json!({"input":1,"output":1,"cache_read":0,"cache_write":0});
        let cost = json!({"turns":1,"input_tokens":1,"output_tokens":1,"cached_tokens":0,"spend":1});
        let error = json!({"stage":"status","status":429,"headers":[],"error_type":null,"code":null,"message":"m","usage":null});
        let first = json!([
            {"type":"opened","thread_id":"t","directive":"d","origin":"run","parent":{"thread_id":"p","spawn":1},
             "root":"t","inputs":{},"limits":limits,"ceiling":limits,"grants":[],"seed":1,"project_path":"p","attended":true,
             "images":[{"media_type":"image/png","sha256":"s","bytes":1,"width":1,"height":1}],
             "call":{"id":"c","name":"n","input":{}},"carried_ms":1,"allow_missing_outputs":true,
             "settings":{"unattended":"queue","script":"/s","locked":true},"serves_client":true},
            {"type":"plan_bound","plan_id":"x","observes":["cognition_out"],"chat":true},
            {"type":"continues","thread":"t","at_seq":1,"at_h":"h","message":"m","prompt":{"number":1,"limits":limits,"capped":true},
             "after":"u","prompts":1,"sent":["l"],"resent":["m"],
             "queue":[{"id":"i","delivery":"steer","source":"rpc","text":"t","accepted":true}],
             "mode":"auto","prompt_grants":[{"pattern":"rye.*"}],
             "left_out":{"messages":1,"tokens":1,"kept_messages":1,"kept_tokens":1},
             "children":[{"spawn":1,"thread_id":"k","spend":1}]},
            {"type":"system_prompt","text":"t","layers":[]},
            {"type":"context_injected","before":[],"after":[]},
            {"type":"cognition_in","source":"prompt","message":{"kind":"user","content":[]}},
            {"type":"attempt_intended","turn":1,"attempt":0,"model":"m","input_bound":1,"max_output":1,"worst_case":1,"compacts":true,"unpriced":true},
            {"type":"reserved","turn":1,"attempt":0,"amount":1},
            {"type":"cognition_out","turn":1,"attempt":0,"content":[],"usage":usage,
             "uncounted":{"sent":1,"received":1},"stop":"end_turn","model":null},
            {"type":"attempt_failed","turn":1,"attempt":0,"error":error,
             "classification":{"name":"n","category":"c","retryable":true},"retry_delay_ms":1,"fallback":"p/m"},
            {"type":"settled","turn":1,"attempt":0,"amount":1,"usage":usage,"unknown_outcome":false,"overspent":1},
            {"type":"hook_point","point":"tool_call","subject":"c","considered":[],"answer":{"answer":"none"},"objects":["s"]},
            {"type":"tool_started","turn":1,"index":0,"group_end":1,"call_id":"c","name":"n","capability":"c","idempotent":true},
            {"type":"file_changed","call_id":"c","path":"p","before":null,"after":"s","mode":420},
            {"type":"tool_call_result","turn":1,"index":0,"group_end":1,"call_id":"c","name":"n","why":{"kind":"ran"},"content":"",
             "is_error":false,"details":1,"bytes":1,"object":"o","duration_ms":1},
        ]);
        let last = json!([
            {"type":"child_intended","spawn":1,"turn":1,"index":0,"group_end":1,"call_id":"c","directive":"d","inputs":{},"model":"m",
             "limit_overrides":{"turns":1},"detached":true,"tool":true},
            {"type":"child_spawned","spawn":1,"thread_id":"t","spend":1},
            {"type":"child_ended","spawn":1,"thread_id":"t","status":"completed","cost":cost},
            {"type":"mail","id":"i","message":{"kind":"cancel"}},
            {"type":"limit","at":"limits","limit_code":"c","current_value":1,"current_max":1,"scope":"session"},
            {"type":"approval_asked","asked":"limit","what":"w","raise":{"limit":"turns","value":2}},
            {"type":"approval_given","asked":"limit","answer":"approved"},
            {"type":"state_set","key":"k","value":1},
            {"type":"compacted","through":1,"summary":"s","keep":1},
            {"type":"recovered","owner":"o","cut_bytes":1},
            {"type":"checkpoint","turn":1,"key_id":"k","signature":"s"},
            {"type":"user_input","id":"i","delivery":"follow_up","source":"interactive","raw":"/r","text":"t",
             "images":[{"media_type":"image/png","sha256":"s","bytes":1,"width":1,"height":1}],
             "expansions":[{"kind":"prompt","item":"r","sha256":"s","start":0,"end":1}],"handled":false,"reply":"r",
             "bounds":{"spend":1,"with":["rye.*"]}},
            {"type":"retracted","input":"i"},
            {"type":"shell_ran","id":"i","command":"c","exit_code":1,"output":"o","object":"s","excluded":true,"duration_ms":1},
            {"type":"command_ran","id":"i","name":"n","args":"a","item":"t","action":"next_turn","answer":"a","is_error":true},
            {"type":"named","name":"n"},
            {"type":"prompt_started","prompt":1,"limits":limits,"grants":[{"pattern":"rye.*"}],"mode":"read-only","capped":true},
            {"type":"prompt_ended","prompt":1,"status":"limit","code":"c","message":"m","cost":cost,"unsent":["t"],"partial_reply":"p"},
            {"type":"ended","status":"completed","result":null,"outputs":null,"missing":["m"],"stop_reason":"length","unread":["u"],"error":null,"cost":cost},
        ]);
        [first, last].iter().flat_map(|list| list.as_array().unwrap().clone()).collect()
    }

    #[test]
    fn event_table_matches_serialized_events() {
        let samples = samples();
        assert_eq!(samples.len(), EVENT_TABLE.len());
        for (row, sample) in EVENT_TABLE.iter().zip(samples) {
            let body: EventBody = serde_json::from_value(sample.clone()).unwrap();
            assert_eq!(super::event_row(body.kind()).name, row.name);
            assert_eq!(body.kind(), row.kind);
            let written = serde_json::to_value(&body).unwrap();
            assert_eq!(written, sample, "{}", row.name);
            let keys: Vec<&str> = written.as_object().unwrap().keys().map(String::as_str).collect();
            let mut fields = vec!["type"];
            fields.extend(row.fields);
            assert_eq!(keys, fields, "{}", row.name);
            assert_eq!(written["type"], row.name);
            // A transcript line contains the event's fields and the line's own fields, so no field may have a reserved
            // name.
            assert!(row.fields.iter().all(|field| !RESERVED_FIELDS.contains(&field.trim_start_matches('_'))));
        }
    }

    #[test]
    fn event_that_is_no_longer_defined_is_read_and_changes_nothing() {
        assert!(EVENT_TABLE.iter().all(|row| row.name != "artifact_stored"));
        let old = json!({"type":"artifact_stored","sha256":"s","bytes":1,"call_id":"c"});
        let body: EventBody = serde_json::from_value(old).unwrap();
        // An event without contributors changes no state.
        assert_eq!(body, EventBody::ContextInjected(crate::event::ContextInjected::default()));
    }

    #[test]
    fn event_lines_equal_lines_of_their_fields() {
        for sample in samples() {
            let body: EventBody = serde_json::from_value(sample.clone()).unwrap();
            let head = LinePosition { seq: 1, ts: 2, barrier: 0, before: [3; 32].into() };
            let sign = |seq: u64, link: ChainHash| format!("key:{seq}{link}");
            for signer in [None, Some(&sign as LineSigner<'_>)] {
                let (of_event, record) = line::write(&head, &body, signer).unwrap();
                assert_eq!(of_event, line::write(&head, &sample, signer).unwrap().0);
                assert_eq!(Value::Object(record.body), sample);
            }
        }
    }

    #[test]
    fn event_criticality_matches_the_standard_library() {
        let file = include_str!("../../../stdlib/.ai/config/agent/events.yaml");
        let parsed = rye_grammar::yaml::parse(rye_grammar::SourceId(0), file);
        assert!(parsed.errors.is_empty());
        let Value::Object(mut file) = parsed.tree.to_value() else { panic!("a mapping") };
        let mut documented: BTreeMap<String, String> = BTreeMap::new();
        for event in file["events"].as_array_mut().unwrap() {
            let field = |key: &str| event[key].as_str().unwrap().to_owned();
            assert!(!field("description").is_empty());
            assert_eq!(documented.insert(field("id"), field("criticality")), None, "{event}");
        }
        let mut known: BTreeMap<String, String> = BTreeMap::new();
        for (row, mut sample) in EVENT_TABLE.iter().zip(samples()) {
            let criticality = serde_json::to_value(row.criticality).unwrap().as_str().unwrap().to_owned();
            // The name of the last event depends on the end status.
            let ends = ["completed", "error", "cancelled", "killed", "continued", "suspended", "idle"];
            let statuses = if row.kind == EventKind::Ended { ends.as_slice() } else { &[""] };
            for status in statuses.iter().copied() {
                if !status.is_empty() {
                    sample["status"] = status.into();
                }
                let body: EventBody = serde_json::from_value(sample.clone()).unwrap();
                known.insert(body.reader_name().to_owned(), criticality.clone());
            }
        }
        // These names have no row: a point of hooks, and the deltas, which never enter a transcript.
        known.insert("context_limit_reached".into(), "critical".into());
        known.insert("token_delta".into(), "droppable".into());
        assert_eq!(documented, known);
        // The criticality of these names is fixed.
        let critical =
            "thread_started thread_completed thread_error thread_cancelled thread_resumed context_limit_reached";
        let normal = "cognition_in cognition_out tool_call_result limit";
        for (names, level) in [(critical, "critical"), (normal, "normal")] {
            assert!(names.split(' ').all(|name| documented[name] == level), "{level}");
        }
    }
}
