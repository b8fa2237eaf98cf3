//! The data model of a script: read from YAML, written by an export, and looked up by turn and attempt.

use indexmap::IndexMap;
use rye_grammar::{Source, Sources, yaml};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{RecordedRequest, scripted_usage, sent_bytes, turn_text, turns};
use crate::exchange::{CallError, CutStream, FailedStage, Request, StopReason, ThreadPosition};
use crate::message::ProviderMessage;
use crate::provider::wire::length;

/// A script that replaces the model: the reply or failure of each attempt (see the scripts reference).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The steps for the threads of every directive that has no branch in `threads`.
    #[serde(default)]
    pub steps: Vec<ScriptStep>,
    /// The branches of the script. A key is the full id of a directive (`project/review`), or the id with the number of
    /// a spawn (`project/review#2`). The value holds the steps for the threads that match the key.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub threads: IndexMap<String, Vec<ScriptStep>>,
}

/// The outcome of one attempt.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ScriptStep {
    Fault(ScriptedFault),
    Reply(ScriptedReply),
}

/// The reply of a successful attempt.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedReply {
    #[serde(default, skip_serializing_if = "Expectation::is_empty")]
    pub expect: Expectation,
    /// Delay before the first word, in milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delay_ms: u64,
    /// Delay after each word, in milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pace_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ScriptedCall>,
    #[serde(default, skip_serializing_if = "ScriptedUsage::is_empty")]
    pub usage: ScriptedUsage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopReason>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, from = "CallFields", into = "CallFields")]
pub struct ScriptedCall {
    /// The id of the call. If `None`, the id is `call_<turn>_<n>`, with both numbers counted from 1.
    pub id: Option<String>,
    /// The tool's palette name.
    pub name: String,
    pub arguments: ScriptedArguments,
}

/// The arguments of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum ScriptedArguments {
    Input(Value),
    /// The text of the arguments as a model would send it, possibly invalid JSON.
    Raw(String),
}

/// A call as a script file writes it: with `input` as a value, or with `arguments` as raw text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallFields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    arguments: Option<String>,
}

impl From<CallFields> for ScriptedCall {
    fn from(fields: CallFields) -> Self {
        let arguments = match (fields.arguments, fields.input) {
            (Some(text), _) => ScriptedArguments::Raw(text),
            (None, input) => ScriptedArguments::Input(input.unwrap_or_else(|| Value::Object(Map::new()))),
        };
        Self { id: fields.id, name: fields.name, arguments }
    }
}

impl From<ScriptedCall> for CallFields {
    fn from(call: ScriptedCall) -> Self {
        let (input, arguments) = match call.arguments {
            ScriptedArguments::Input(input) => (Some(input), None),
            ScriptedArguments::Raw(text) => (None, Some(text)),
        };
        Self { id: call.id, name: call.name, input, arguments }
    }
}

/// Token counts. Omitted input and output counts are estimated, and omitted cache counts are 0.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedUsage {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<u64>,
}

/// A step of a script in which an attempt fails.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedFault {
    #[serde(default, skip_serializing_if = "Expectation::is_empty")]
    pub expect: Expectation,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delay_ms: u64,
    /// Delay after each word of `after`, in milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pace_ms: u64,
    /// Number of consecutive attempts that fail with this fault.
    #[serde(default = "default_times", skip_serializing_if = "is_once")]
    pub times: u32,
    /// Text that streams before the failure.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub after: String,
    pub fault: ScriptedFailure,
}

/// The failure, with the fields of [`CallError`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedFailure {
    /// The stage at which the call fails. The default is `truncated` if `cut` is true, else `status` if a status is
    /// given, else `stream_error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<FailedStage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub headers: IndexMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ScriptedErrorBody>,
    /// True if the stream ends before its final event, as after a lost connection.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// Usage that the provider reported before the failure; `None` if it reported none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<ScriptedUsage>,
    /// True if the stream is cut after the final usage, so that the cost is known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub usage_is_final: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedErrorBody {
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Fragments that the request must contain, so that an outdated script is noticed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Fragments that the system prompt must contain.
    #[serde(default, skip_serializing_if = "Fragments::is_empty")]
    pub system: Fragments,
    /// Fragments that the last user message must contain.
    #[serde(default, skip_serializing_if = "Fragments::is_empty")]
    pub user: Fragments,
    /// Fragments that the tool results since the last reply must contain. The results are searched as one text.
    #[serde(default, skip_serializing_if = "Fragments::is_empty")]
    pub results: Fragments,
    /// Names that the palette must contain.
    #[serde(default, skip_serializing_if = "Fragments::is_empty")]
    pub tools: Fragments,
    /// Texts of a recording. The texts of a request must equal them exactly.
    #[serde(default, skip_serializing_if = "RecordedRequest::is_empty")]
    pub recorded: RecordedRequest,
}

/// Texts that a request must contain, written as one text or a list of texts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "OneOrMany", into = "Vec<String>")]
pub struct Fragments(pub Vec<String>);

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl From<OneOrMany> for Fragments {
    fn from(fragments: OneOrMany) -> Self {
        match fragments {
            OneOrMany::One(text) => Self(vec![text]),
            OneOrMany::Many(texts) => Self(texts),
        }
    }
}

impl From<Fragments> for Vec<String> {
    fn from(fragments: Fragments) -> Self {
        fragments.0
    }
}

impl Fragments {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The reason why a text is not a valid script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScriptError(pub String);

impl Script {
    /// Reads a script from YAML (or JSON).
    ///
    /// # Errors
    /// The first error, and the step that contains it.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let mut sources = Sources::default();
        let source = sources.add(Source::new("script", text));
        let parsed = yaml::parse(source, text);
        if let Some(error) = parsed.errors.first() {
            let line = sources.get(source).map_or(1, |source| source.position(error.span.start).line);
            return Err(ScriptError(format!("line {line}: {error}")));
        }
        let line_of = |place: ScriptPlace<'_>| {
            let node = match place {
                ScriptPlace::Key(key) => {
                    parsed.tree.entries().iter().find(|entry| entry.key.node == key).map(|entry| entry.key.span)
                }
                ScriptPlace::Step { branch, index } => {
                    let steps = match branch {
                        None => parsed.tree.get("steps"),
                        Some(directive) => parsed.tree.get("threads").and_then(|threads| threads.get(directive)),
                    };
                    steps.and_then(|steps| steps.items().get(index)).map(|step| step.span)
                }
            };
            Some(sources.get(source)?.position(node?.start).line)
        };
        Self::read(&parsed.tree.to_value(), &line_of)
    }

    /// Reads a script from parsed data.
    ///
    /// # Errors
    /// The first error, and the step that contains it.
    pub fn from_value(value: &Value) -> Result<Self, ScriptError> {
        Self::read(value, &|_| None)
    }

    /// Reads a script. `line_of` returns the line of a place in the script's file, for error messages; `None` if the
    /// script is not a file.
    fn read(value: &Value, line_of: &dyn Fn(ScriptPlace<'_>) -> Option<u32>) -> Result<Self, ScriptError> {
        let Value::Object(map) = value else {
            let hint = if value.is_array() { ": write `steps:` above the list" } else { "" };
            return Err(ScriptError(format!("a script must be a mapping with `steps`{hint}")));
        };
        let mut script = Self::default();
        for (key, value) in map {
            let fault = |message: String| ScriptError(with_line(line_of(ScriptPlace::Key(key)), &message));
            match (key.as_str(), value) {
                ("steps", value) => {
                    let line = |index| line_of(ScriptPlace::Step { branch: None, index });
                    script.steps = steps(value, "`steps`", &fault, &line)?;
                }
                ("threads", Value::Object(threads)) => {
                    for (directive, value) in threads {
                        let line = |index| line_of(ScriptPlace::Step { branch: Some(directive), index });
                        let steps = steps(value, &format!("`threads.{directive}`"), &fault, &line)?;
                        script.threads.insert(directive.clone(), steps);
                    }
                }
                ("threads", _) => return Err(fault("`threads` must map directive ids to steps".to_owned())),
                (other, _) => return Err(fault(format!("unknown key `{other}`: a script has `steps` and `threads`"))),
            }
        }
        Ok(script)
    }

    /// Returns the step of the script for a model call of the thread at the position `cue`, after `turn` replies of the
    /// thread. The step comes from the branch for this child thread (such as `project/review#2`, the second child that
    /// its parent started), else from the branch for the directive, else from the common steps. `None` if the script
    /// has no step left.
    pub fn step_for(&self, cue: &ThreadPosition, turn: u32) -> Option<&ScriptStep> {
        self.step(&self.branch_of(cue), turn, cue.attempt)
    }

    /// Returns the number of replies for a thread.
    pub fn replies_for(&self, cue: &ThreadPosition) -> usize {
        let steps = self.threads.get(&self.branch_of(cue)).unwrap_or(&self.steps);
        steps.iter().filter(|step| matches!(step, ScriptStep::Reply(_))).count()
    }

    /// Returns the key of the steps for a thread: the directive, or the directive with the number of the spawn if the
    /// script has steps for this spawn.
    fn branch_of(&self, cue: &ThreadPosition) -> String {
        let own = cue.spawn.map(|spawn| format!("{}#{spawn}", cue.directive));
        own.filter(|own| self.threads.contains_key(own)).unwrap_or_else(|| cue.directive.clone())
    }

    /// Returns the step for attempt `attempt` (from 0) of the reply that follows `turn` replies. The faults that
    /// precede a reply in the script are the results of the first attempts of that reply. Every later attempt gets the
    /// reply. `None` if the script has no step left.
    pub fn step(&self, directive: &str, turn: u32, attempt: u32) -> Option<&ScriptStep> {
        let steps = self.threads.get(directive).unwrap_or(&self.steps);
        let mut replies = 0;
        let mut attempts = 0;
        for step in steps {
            match step {
                ScriptStep::Fault(fault) if replies == turn => {
                    attempts += u64::from(fault.times);
                    if u64::from(attempt) < attempts {
                        return Some(step);
                    }
                }
                ScriptStep::Reply(_) if replies == turn => return Some(step),
                ScriptStep::Reply(_) => replies += 1,
                ScriptStep::Fault(_) => {}
            }
        }
        None
    }
}

/// A place in a script file.
#[derive(Clone, Copy)]
enum ScriptPlace<'t> {
    Key(&'t str),
    /// A step of `steps`, or of a branch of `threads`.
    Step {
        branch: Option<&'t str>,
        index: usize,
    },
}

fn with_line(line: Option<u32>, message: &str) -> String {
    line.map_or_else(|| message.to_owned(), |line| format!("line {line}: {message}"))
}

/// Reads a list of steps. `fault` creates an error about the list, and `line` returns the line of a step.
fn steps(
    value: &Value,
    place: &str,
    fault: &dyn Fn(String) -> ScriptError,
    line: &dyn Fn(usize) -> Option<u32>,
) -> Result<Vec<ScriptStep>, ScriptError> {
    let Value::Array(items) = value else {
        return Err(fault(format!("{place} must be a list of steps")));
    };
    let read = |(n, item): (usize, &Value)| {
        let fault = |message: String| ScriptError(with_line(line(n), &format!("step {} of {place}: {message}", n + 1)));
        if item.get("tool_calls").is_some_and(|calls| !calls.is_array()) {
            return Err(fault("`tool_calls` must be a list of calls: `[{ name: …, input: { … } }]`".to_owned()));
        }
        step(item).map_err(|error| fault(error.to_string()))
    };
    items.iter().enumerate().map(read).collect()
}

fn step(value: &Value) -> Result<ScriptStep, serde_json::Error> {
    if let Value::String(text) = value {
        Ok(ScriptStep::Reply(ScriptedReply { text: text.clone(), ..ScriptedReply::default() }))
    } else if value.get("fault").is_some() {
        ScriptedFault::deserialize(value).map(ScriptStep::Fault)
    } else {
        ScriptedReply::deserialize(value).map(ScriptStep::Reply)
    }
}

impl<'de> Deserialize<'de> for ScriptStep {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        step(&Value::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl ScriptedFault {
    /// Returns the error with which the scripted attempt fails.
    pub(super) fn error(&self, request: &Request) -> CallError {
        let fault = &self.fault;
        let stage = match fault.stage {
            Some(stage) => stage,
            None if fault.cut => FailedStage::Truncated,
            None if fault.status.is_some() => FailedStage::Status,
            None => FailedStage::StreamError,
        };
        let reported = fault.error.clone().unwrap_or_default();
        let message = reported.message.unwrap_or_else(|| match (fault.status, fault.cut) {
            (Some(status), _) => format!("the script answered {status}"),
            (None, true) => "the script cut the stream off".to_owned(),
            (None, false) => "the script makes this attempt fail".to_owned(),
        });
        let streamed = match stage {
            FailedStage::Truncated => true,
            FailedStage::StreamError | FailedStage::Timeout | FailedStage::Protocol => {
                fault.cut || !self.after.is_empty()
            }
            FailedStage::Setup | FailedStage::Connect | FailedStage::Status => false,
        };
        let cut = (streamed && !fault.usage_is_final)
            .then(|| CutStream { sent: sent_bytes(request), received: length(self.after.len()) });
        let headers = fault.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).collect();
        CallError {
            status: fault.status,
            headers,
            error_type: reported.kind,
            code: reported.code,
            usage: fault.usage.as_ref().map(|reported| scripted_usage(reported, request, &[])),
            cut,
            ..CallError::new(stage, message)
        }
    }
}

impl Expectation {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks that `request` contains every fragment.
    ///
    /// # Errors
    /// The first missing fragment, and the start of the text that was searched.
    pub fn check(&self, request: &Request) -> Result<(), String> {
        let user = turns(request).rev().find(|turn| matches!(turn, ProviderMessage::User { .. }));
        let results: Vec<String> = turns(request)
            .rev()
            .take_while(|turn| !matches!(turn, ProviderMessage::Assistant { .. }))
            .filter(|turn| matches!(turn, ProviderMessage::ToolResult { .. }))
            .map(turn_text)
            .collect();
        let results: Vec<String> = results.into_iter().rev().collect();
        find(&self.system, "the system prompt", &request.system)?;
        find(&self.user, "the last user message", &user.map(turn_text).unwrap_or_default())?;
        find(&self.results, "the tool results", &results.join("\n"))?;
        let names: Vec<&str> = request.tools.iter().map(|tool| &*tool.name).collect();
        match self.tools.0.iter().find(|tool| !names.contains(&tool.as_str())) {
            Some(missing) => {
                Err(format!("the palette has no tool `{missing}`; its tools are `{}`", names.join("`, `")))
            }
            None => self.recorded.check(request),
        }
    }
}

fn find(fragments: &Fragments, place: &str, text: &str) -> Result<(), String> {
    const MAX_SEARCHED_TEXT_CHARS: usize = 400;
    match fragments.0.iter().find(|fragment| !text.contains(fragment.as_str())) {
        None => Ok(()),
        Some(missing) if text.is_empty() => Err(format!("{place} should contain `{missing}`, but is empty")),
        Some(missing) => {
            let start: String = text.chars().take(MAX_SEARCHED_TEXT_CHARS).collect();
            let more = if text.chars().nth(MAX_SEARCHED_TEXT_CHARS).is_some() { "…" } else { "" };
            Err(format!("{place} should contain `{missing}`, but is `{start}{more}`"))
        }
    }
}

impl ScriptedUsage {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn default_times() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_once(times: &u32) -> bool {
    *times == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
