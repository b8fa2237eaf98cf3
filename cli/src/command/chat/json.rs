//! JSON Lines of a session: requests on stdin, responses to them on stdout between the events.

use std::io::Write;

use rye_engine::event::{ChatMode, Delivery};
use rye_engine::json_faults::find_fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::leaving::LeftChildren;
use super::rewind::RewindFiles;
use crate::report::escape_json_controls;

/// A line of stdin with `--format json`.
#[derive(Debug, JsonSchema, Serialize)]
pub struct ChatRequest {
    /// Id of the request, repeated in the response.
    #[serde(default)]
    pub id: Value,
    #[serde(flatten)]
    pub verb: ChatVerb,
}

/// A request: `type` and its fields.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ChatVerb {
    /// The next prompt. While a prompt runs, the message is delivered as `delivery` states; without `delivery`, the
    /// message waits for the end of the prompt.
    Prompt {
        /// Text, or the call of a skill or a prompt template.
        message: String,
        /// Paths of images, relative to the working folder.
        #[serde(default)]
        images: Vec<std::path::PathBuf>,
        /// Delivery if a prompt runs; if absent, the message waits for the end of the prompt.
        #[serde(default)]
        delivery: Option<DeliveryArg>,
        /// The highest cost of the prompt in dollars, children included.
        #[serde(default)]
        spend: Option<Value>,
        /// Capability patterns: the prompt uses only those capabilities of the session that one of the patterns
        /// matches. With an empty list, the prompt uses no capability; without the field, all capabilities of the
        /// session.
        #[serde(default)]
        with: Option<Vec<String>>,
    },
    /// A message that the model reads before its next turn; while the session is idle, the next prompt.
    Steer {
        /// Text, or the call of a skill or a prompt template.
        message: String,
    },
    /// A message that the model reads when it would otherwise end the prompt; while the session is idle, the next
    /// prompt.
    FollowUp {
        /// Text, or the call of a skill or a prompt template.
        message: String,
    },
    /// A message that follows the user message of the next prompt. The message does not start a prompt.
    NextTurn {
        /// Text, or the call of a skill or a prompt template.
        message: String,
    },
    /// Ends the current prompt.
    Interrupt {},
    /// Withdraws a message that waits for its delivery.
    Retract {
        /// The id of the message, as in the response to its request.
        input: String,
    },
    /// Withdraws all messages that wait for their delivery.
    ClearQueue {},
    /// Answers the request of an `approval_asked` event. If a limit was reached, `approve` raises the limit to the
    /// value that the event states in `raise`. The response contains the raise. If the client has already raised the
    /// limit with the request `raise`, that raise stays, and the response contains none.
    Answer {
        /// The number (`seq`) of the `approval_asked` event.
        question: u64,
        /// True to approve, false to refuse.
        approve: bool,
        /// The thread that needs the approval, if that thread is a child.
        #[serde(default)]
        thread: Option<String>,
    },
    /// Raises a limit of the current prompt, within the limits of the session.
    Raise {
        /// Name of the limit: `turns`, `tokens`, `spend`, `spawns` or `duration_seconds`.
        limit: String,
        /// The new value, in the unit of the limit; dollars for `spend`.
        value: Value,
    },
    /// The state of the session: thread, model, mode, `idle`, number of prompts, waiting messages, open approval
    /// request.
    State {},
    /// The messages of the conversation.
    Messages {},
    /// The parts of the next request, with their tokens. If `part` is given, the response contains the effect of a
    /// change on the tokens and the cost of the next request. The change removes the part, or restores it if it was
    /// removed before. `confirm` applies the change at the next idle step.
    Context {
        /// Id of a part: a layer, a hook, `skill/NAME`, or the name of a tool.
        #[serde(default)]
        part: Option<String>,
        /// True to remove or restore the part.
        #[serde(default)]
        confirm: bool,
    },
    /// The price of the request that a message would cause, and the request itself. Sends nothing.
    Preview {
        /// Text, or the call of a skill or a prompt template.
        message: String,
        /// The highest cost of the prompt in dollars, children included, as in the request `prompt`.
        #[serde(default)]
        spend: Option<Value>,
        /// Capability patterns that bound the prompt, as in the request `prompt`.
        #[serde(default)]
        with: Option<Vec<String>>,
    },
    /// The plan of the session, in the format of `rye plan --format json`.
    Plan {},
    /// The origin of a part of the plan. Without `part`, a comparison of the last message as it was typed with the text
    /// that was sent to the model.
    Why {
        /// Name of a part of the plan, as in `/why`: `limit.spend`, `model`, the name of a tool. If absent, the last
        /// message is explained.
        #[serde(default)]
        part: Option<String>,
    },
    /// The cost of the session, of its current prompt, of each prompt, and of each child with the prompt that started
    /// it.
    Cost {},
    /// Lists what a message can call: the commands of `agent/chat`, prompt templates and skills. Built-in commands work
    /// only without `--format json`, so they are left out.
    Commands {},
    /// Continues the session with another model, at the next idle step. A plan that allows more needs `confirm`.
    Model {
        /// A tier, or the id of a model.
        model: String,
        /// True to accept a plan that allows more than the current one.
        #[serde(default)]
        confirm: bool,
    },
    /// Sets the calls that the next prompts may make. A mode that allows more needs `confirm`; without it, the response
    /// lists the changes.
    Mode {
        /// The mode of the next prompts.
        mode: ModeArg,
        /// True to accept a mode that allows more than the current one.
        #[serde(default)]
        confirm: bool,
    },
    /// Sets the `spend` limit of each prompt, at the next idle step. A higher limit needs `confirm`.
    Budget {
        /// The new limit, in dollars.
        spend: Value,
        /// True to accept a higher limit.
        #[serde(default)]
        confirm: bool,
    },
    /// Compiles the directive again and continues with the new plan, at the next idle step. A plan that allows more
    /// needs `confirm`; without it, the response lists the changes.
    Reload {
        /// True to accept a plan that allows more than the current one.
        #[serde(default)]
        confirm: bool,
    },
    /// Continues from the state before `prompt`, at the next idle step. If `thread` is given, `prompt` is the number of
    /// a prompt in the branch of that thread.
    Fork {
        /// Number of the prompt, from 1. If absent, the session continues from the end of `thread`.
        #[serde(default)]
        prompt: Option<u64>,
        /// Id of a thread of the session whose branch contains the prompt; if absent, the current branch.
        #[serde(default)]
        thread: Option<String>,
    },
    /// Continues from the state before a prompt, and restores the files that file tools have changed since this prompt.
    Rewind {
        /// Number of the prompt, from 1.
        prompt: u64,
        /// The treatment of changed files: `keep`, `preview`, `restore` or `only`.
        #[serde(default)]
        files: RewindFiles,
    },
    /// Sends the last prompt again. The conversation continues from the state before this prompt.
    Retry {},
    /// Replaces the conversation with a summary, at the next idle step. The response states the messages that are
    /// removed, the messages that are kept, and the price of the summary.
    Compact {
        /// The topic that the summary covers in detail.
        #[serde(default)]
        focus: Option<String>,
        /// True to return the effect and the price without a compaction.
        #[serde(default)]
        preview: bool,
    },
    /// Runs a command of the user. The next prompt sends its output to the model, unless `excluded` is true.
    Bash {
        /// Command line for bash.
        command: String,
        /// True if the model does not get the output.
        #[serde(default)]
        excluded: bool,
    },
    /// Sets the title of the session.
    Name {
        /// The new title.
        name: String,
    },
    /// The threads of the session, each with its first prompt.
    Tree {},
    /// Closes the session and starts a new one with the same directive. Not possible while a prompt runs. Needs
    /// `children` while asynchronous children run.
    New {
        /// The treatment of asynchronous children that still run when the session closes: `wait` or `cancel`.
        #[serde(default)]
        children: Option<LeftChildren>,
    },
    /// Closes the session and reopens another closed session; without an id, lists the closed sessions. Not possible
    /// while a prompt runs. Needs `children` while asynchronous children run.
    Resume {
        /// Id of a thread of the session to reopen; if absent, the closed sessions are listed.
        #[serde(default)]
        thread: Option<String>,
        /// The treatment of asynchronous children that still run when the session closes: `wait` or `cancel`.
        #[serde(default)]
        children: Option<LeftChildren>,
    },
    /// Closes the session after the waiting prompts, as the end of the input does.
    Close {
        /// The treatment of asynchronous children that still run.
        #[serde(default)]
        children: LeftChildren,
    },
}

/// The time at which a message is delivered during a prompt.
#[derive(Debug, Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryArg {
    Prompt,
    Steer,
    FollowUp,
    NextTurn,
}

/// The mode of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ModeArg {
    /// Only calls whose capability has the tier `safe` in the risk table, and no calls of `rye_sign`.
    ReadOnly,
    /// The calls that the plan grants, with approval requests.
    Ask,
    /// The calls that the plan grants, without approval requests.
    Auto,
}

impl From<ModeArg> for ChatMode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::ReadOnly => Self::ReadOnly,
            ModeArg::Ask => Self::Ask,
            ModeArg::Auto => Self::Auto,
        }
    }
}

impl From<ChatMode> for ModeArg {
    fn from(mode: ChatMode) -> Self {
        match mode {
            ChatMode::ReadOnly => Self::ReadOnly,
            ChatMode::Ask => Self::Ask,
            ChatMode::Auto => Self::Auto,
        }
    }
}

impl From<DeliveryArg> for Delivery {
    fn from(delivery: DeliveryArg) -> Self {
        match delivery {
            DeliveryArg::Prompt => Self::Prompt,
            DeliveryArg::Steer => Self::Steer,
            DeliveryArg::FollowUp => Self::FollowUp,
            DeliveryArg::NextTurn => Self::NextTurn,
        }
    }
}

/// The response to a request: one line of stdout.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ChatResponse {
    /// Always `response`.
    pub r#type: &'static str,
    /// The id of the request; null if the request has no id or cannot be read.
    pub id: Value,
    /// The type of the request; null if it cannot be read.
    pub command: Option<&'static str>,
    pub success: bool,
    /// The data that the request returns; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// The reason if the request was not accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl ChatRequest {
    /// Parses a line. If the line is not a request, returns the response that reports the error.
    pub fn parse(line: &str) -> Result<Self, Box<ChatResponse>> {
        let value: Value = serde_json::from_str(line).map_err(|error| {
            Box::new(ChatResponse::refused(Value::Null, None, format!("the line is not a JSON object: {error}")))
        })?;
        let Value::Object(mut fields) = value else {
            return Err(Box::new(ChatResponse::refused(Value::Null, None, "the line is not a JSON object".to_owned())));
        };
        let id = fields.remove("id").unwrap_or_default();
        if let Some(fault) = find_fault(line) {
            let reason = format!("the request is refused, because a part of it would be lost: {fault}");
            return Err(Box::new(ChatResponse::refused(id, None, reason)));
        }
        let verb = ChatVerb::read(&fields).map_err(|error| Box::new(ChatResponse::refused(id.clone(), None, error)))?;
        Ok(Self { id, verb })
    }
}

impl ChatVerb {
    /// Reads the fields of a request.
    ///
    /// # Errors
    /// Returns a message that states the invalid field and the accepted form.
    fn read(fields: &serde_json::Map<String, Value>) -> Result<Self, String> {
        let error = match serde_json::from_value::<Self>(Value::Object(fields.clone())) {
            Ok(Self::Fork { prompt: None, thread: None }) => "missing field `prompt` or `thread`".to_owned(),
            Ok(verb) => return Ok(verb),
            Err(error) => error.to_string(),
        };
        let parse = |without: &str| {
            let mut rest = fields.clone();
            rest.remove(without);
            serde_json::from_value::<Self>(Value::Object(rest)).map_err(|error| error.to_string())
        };
        // Serde does not name the field with the wrong value. A field is wrong if the request without the field is
        // valid, or if the field is then reported as missing.
        let is_wrong = |name: &&String| match parse(name) {
            Ok(_) => true,
            Err(other) => other == format!("missing field `{name}`"),
        };
        let names = || fields.keys().filter(|name| *name != "type");
        let form = error.replace("expected u64", "expected a whole number of at least 0");
        match names().find(is_wrong).filter(|_| !error.starts_with("unknown field")) {
            Some(name) => Err(format!("`{}`: {form}", name.escape_debug())),
            None => Err(form),
        }
    }
}

impl ChatVerb {
    /// Sets the treatment of children that still run. Changes only requests that open another session.
    #[must_use]
    pub fn with_children(self, children: LeftChildren) -> Self {
        let children = Some(children);
        if let Self::New { .. } = self {
            Self::New { children }
        } else if let Self::Resume { thread, .. } = self {
            Self::Resume { thread, children }
        } else {
            self
        }
    }

    /// Returns the name of the request, which is the value of its JSON field `type`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Prompt { .. } => "prompt",
            Self::Steer { .. } => "steer",
            Self::FollowUp { .. } => "follow_up",
            Self::NextTurn { .. } => "next_turn",
            Self::Interrupt {} => "interrupt",
            Self::Retract { .. } => "retract",
            Self::ClearQueue {} => "clear_queue",
            Self::Answer { .. } => "answer",
            Self::Raise { .. } => "raise",
            Self::State {} => "state",
            Self::Messages {} => "messages",
            Self::Context { .. } => "context",
            Self::Preview { .. } => "preview",
            Self::Plan {} => "plan",
            Self::Why { .. } => "why",
            Self::Cost {} => "cost",
            Self::Commands {} => "commands",
            Self::Model { .. } => "model",
            Self::Mode { .. } => "mode",
            Self::Budget { .. } => "budget",
            Self::Reload { .. } => "reload",
            Self::Fork { .. } => "fork",
            Self::Rewind { .. } => "rewind",
            Self::Retry {} => "retry",
            Self::Compact { .. } => "compact",
            Self::Bash { .. } => "bash",
            Self::Name { .. } => "name",
            Self::Tree {} => "tree",
            Self::New { .. } => "new",
            Self::Resume { .. } => "resume",
            Self::Close { .. } => "close",
        }
    }
}

impl ChatResponse {
    pub fn accepted(id: Value, command: &'static str, data: Option<Value>) -> Self {
        Self { r#type: "response", id, command: Some(command), success: true, data, error: None }
    }

    /// Returns the response to a `prompt` request. An error in `sent` is the reason why the message was not submitted.
    pub fn of_prompt(sent: Result<Value, String>) -> Self {
        match sent {
            Ok(data) => Self::accepted(Value::Null, "prompt", Some(data)),
            Err(reason) => Self::refused(Value::Null, Some("prompt"), reason),
        }
    }

    pub fn refused(id: Value, command: Option<&'static str>, error: String) -> Self {
        Self { r#type: "response", id, command, success: false, data: None, error: Some(error) }
    }

    /// Writes the response as a line of stdout. If the reader has closed the pipe, the session still runs to its end.
    pub fn print(&self) {
        let mut out = std::io::stdout().lock();
        if let Ok(line) = serde_json::to_string(self) {
            writeln!(out, "{}", escape_json_controls(&line)).and_then(|()| out.flush()).ok();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_verb_is_read_with_its_id() {
        for (fields, name) in [
            (json!({"type": "prompt", "message": "hi", "delivery": "follow_up", "images": ["a.png"]}), "prompt"),
            (json!({"type": "steer", "message": "hi"}), "steer"),
            (json!({"type": "follow_up", "message": "hi"}), "follow_up"),
            (json!({"type": "next_turn", "message": "hi"}), "next_turn"),
            (json!({"type": "interrupt"}), "interrupt"),
            (json!({"type": "retract", "input": "i"}), "retract"),
            (json!({"type": "clear_queue"}), "clear_queue"),
            (json!({"type": "answer", "question": 4, "approve": true}), "answer"),
            (json!({"type": "raise", "limit": "turns", "value": 9}), "raise"),
            (json!({"type": "state"}), "state"),
            (json!({"type": "messages"}), "messages"),
            (json!({"type": "context"}), "context"),
            (json!({"type": "preview", "message": "hi"}), "preview"),
            (json!({"type": "cost"}), "cost"),
            (json!({"type": "commands"}), "commands"),
            (json!({"type": "model", "model": "fast"}), "model"),
            (json!({"type": "prompt", "message": "hi", "spend": 0.2, "with": ["rye.fetch.*"]}), "prompt"),
            (json!({"type": "mode", "mode": "read-only"}), "mode"),
            (json!({"type": "budget", "spend": 0.2}), "budget"),
            (json!({"type": "new"}), "new"),
            (json!({"type": "resume", "thread": "t-1"}), "resume"),
            (json!({"type": "reload", "confirm": true}), "reload"),
            (json!({"type": "fork", "prompt": 2}), "fork"),
            (json!({"type": "rewind", "prompt": 2, "files": "preview"}), "rewind"),
            (json!({"type": "retry"}), "retry"),
            (json!({"type": "compact", "focus": "tests"}), "compact"),
            (json!({"type": "bash", "command": "ls", "excluded": true}), "bash"),
            (json!({"type": "name", "name": "n"}), "name"),
            (json!({"type": "tree"}), "tree"),
            (json!({"type": "close", "children": "cancel"}), "close"),
        ] {
            let mut line = fields;
            line["id"] = json!([7]);
            let request = ChatRequest::parse(&line.to_string()).unwrap();
            assert_eq!((request.id, request.verb.name()), (json!([7]), name));
        }
    }

    #[test]
    fn a_line_that_is_no_request_gets_an_error() {
        for line in ["", "hello", "[]", "{}", r#"{"type":"fly"}"#, r#"{"type":"prompt"}"#, r#"{"type":"close","x":1}"#]
        {
            let response = ChatRequest::parse(line).unwrap_err();
            assert!(!response.success && response.error.is_some(), "{line}");
        }
        assert_eq!(ChatRequest::parse(r#"{"type":"fly","id":"a"}"#).unwrap_err().id, json!("a"));
    }

    #[test]
    fn random_lines_are_answered_and_none_is_fatal() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        let pieces = [
            "{",
            "}",
            "\"type\"",
            ":",
            "\"prompt\"",
            ",",
            "\"message\"",
            "\"hi\"",
            "[",
            "]",
            "null",
            "1e999",
            "\"id\"",
            "\\u",
            "\"",
            "\u{0}",
            "\u{202e}",
            "-",
            "true",
            "\"state\"",
            "{\"type\":\"state\"}",
            "   ",
        ];
        for _ in 0..10_000 {
            let count = next() % 12;
            let mut piece = || pieces.iter().cycle().nth(usize::try_from(next() % 997).unwrap()).copied().unwrap();
            let line: String = (0..count).map(|_| piece()).collect();
            match ChatRequest::parse(&line) {
                Ok(request) => assert!(!request.verb.name().is_empty()),
                Err(response) => assert!(response.error.is_some(), "{line}"),
            }
        }
    }

    #[test]
    fn wrong_value_is_reported_with_its_field_and_the_accepted_form() {
        for (line, error) in [
            (
                r#"{"type":"fork","prompt":-1}"#,
                "`prompt`: invalid value: integer `-1`, expected a whole number of at least 0",
            ),
            (
                r#"{"type":"fork","prompt":1.5}"#,
                "`prompt`: invalid type: floating point `1.5`, expected a whole number",
            ),
            (r#"{"type":"rewind","prompt":2,"files":7}"#, "`files`: "),
            (r#"{"type":"answer","question":"4","approve":true}"#, "`question`: invalid type: string"),
            (r#"{"type":"answer","question":4,"approve":"yes"}"#, "`approve`: invalid type: string"),
            (r#"{"type":"prompt","message":7}"#, "`message`: invalid type: integer `7`, expected a string"),
            (r#"{"type":"prompt","message":"a","with":"rye.*"}"#, "`with`: "),
            (r#"{"type":"prompt","message":"a","delivery":"later"}"#, "`delivery`: unknown variant `later`"),
            (r#"{"type":"mode","mode":"all"}"#, "`mode`: unknown variant `all`"),
            (
                r#"{"type":"budget","spend":0.2,"confirm":1}"#,
                "`confirm`: invalid type: integer `1`, expected a boolean",
            ),
            (r#"{"type":"close","x":1}"#, "unknown field `x`"),
            (r#"{"type":"prompt"}"#, "missing field `message`"),
            (r#"{"type":"fork"}"#, "missing field `prompt` or `thread`"),
        ] {
            let response = ChatRequest::parse(line).unwrap_err();
            assert!(response.error.as_deref().unwrap().starts_with(error), "{line}: {response:?}");
        }
    }
}
