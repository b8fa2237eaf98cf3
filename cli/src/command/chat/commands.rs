//! Typed commands of a session: `/model fast`, `!ls`. Each command corresponds to a request of the JSON protocol.

use rye_compiler::commands::read_commands;
use rye_compiler::diagnostics::{Diagnostics, closest};
use rye_compiler::item::Items;
use rye_compiler::semantics::money::Nanos;
use rye_compiler::world::{ItemKind, World};
use rye_engine::event::{ChatMode, Delivery, UserInput};
use rye_engine::session::rewind::{FileRewind, RewindState};
use rye_engine::session_tree::{SessionThread, current_prompts, other_branches};
use serde::Serialize;
use serde_json::Value;

use super::bounds::split_bounds;
use super::context_change::format_context_change;
use super::help::built_in_commands;
use super::inquiry::{CurrentValue, Inquiry};
use super::json::{ChatResponse, ChatVerb};
use super::leaving::LeftChildren;
use super::replan::CONFIRM_HINT;
use super::rewind::RewindFiles;
use super::session_cost::format_cost;
use crate::present::{format_count, format_date, truncate_line};

/// Maximum characters of a message, prompt or call in a list that a command prints.
const MAX_TEXT_CHARS: usize = 60;

/// Maximum characters of a title in the list of sessions.
const MAX_SESSION_TITLE_CHARS: usize = 30;

/// A text that the user typed, with its effect on the session.
#[derive(Debug)]
pub enum TypedText {
    /// Prints help: an overview, or the help of the given topic.
    Help(Option<String>),
    /// Closes the session. The value is the treatment of children that still run, if the command names one.
    Leave(Option<LeftChildren>),
    /// A command that sends a request to the session.
    Request(ChatVerb),
    /// A question about the session.
    Inquiry(Inquiry),
    /// A command that opens another session. The second value is the treatment of children that still run, if the
    /// command names one.
    Switch(ChatVerb, Option<LeftChildren>),
    /// A command with invalid arguments, and the reason.
    Invalid(String),
    /// A prompt, or the call of a skill, a prompt template or a command of the settings (a `command` hook).
    Message(UserInput),
    /// A message that is typed after `/steer` or `/follow-up`, with the delivery that the command names.
    Delivered(UserInput, Delivery),
}

impl TypedText {
    /// Parses a text that the user typed in a chat: a command of the session, or else a message.
    pub fn parse(text: &str) -> Self {
        if let Some(command) = text.strip_prefix('!') {
            let (command, excluded) = command.strip_prefix('!').map_or((command, false), |rest| (rest, true));
            let command = command.trim().to_owned();
            return if command.is_empty() {
                Self::Invalid(
                    "`!` needs a command: `!ls`; to send the text itself, type a blank before the `!`".to_owned(),
                )
            } else {
                Self::Request(ChatVerb::Bash { command, excluded })
            };
        }
        match text.trim() {
            "/" => return Self::Help(None),
            "//" => return Self::Invalid("`//` needs a text, which is sent with one `/`: `//tmp is full`".to_owned()),
            _ => {}
        }
        match split_bounds(text) {
            Some(Ok((bounds, text))) => return Self::Message(UserInput { bounds, ..UserInput::text(text) }),
            Some(Err(reason)) => return Self::Invalid(reason),
            None => {}
        }
        let Some(name) = command_name(text) else { return Self::Message(UserInput::text(text)) };
        let rest = text.get(name.len() + 1..).unwrap_or_default().trim();
        if let Some(value) = CurrentValue::of_command(name).filter(|_| rest.is_empty()) {
            return Self::Inquiry(Inquiry::Current(value));
        }
        match name {
            "help" => Self::Help(Some(rest.to_owned()).filter(|topic| !topic.is_empty())),
            "exit" | "quit" => match (rest, LeftChildren::parse(rest)) {
                ("", _) => Self::Leave(None),
                (_, Some(children)) => Self::Leave(Some(children)),
                (_, None) => Self::Invalid(format!(
                    "/{name} accepts `wait`, `detach`, `cancel` or no argument: {}",
                    nearest_call(name, rest, &["wait", "detach", "cancel"], "cancel")
                )),
            },
            "new" => match (rest, split_children(rest)) {
                ("", _) => Self::Switch(ChatVerb::New { children: None }, None),
                (_, ("", children @ Some(_))) => Self::Switch(ChatVerb::New { children: None }, children),
                _ => Self::Invalid(format!(
                    "/new accepts `wait`, `cancel` or no argument: {}",
                    nearest_call("new", rest, &["wait", "cancel"], "cancel")
                )),
            },
            "steer" | "follow-up" if rest.is_empty() => {
                Self::Invalid(format!("/{name} needs a text: `/{name} also update the docs`"))
            }
            "steer" => Self::Delivered(UserInput::text(rest), Delivery::Steer),
            "follow-up" => Self::Delivered(UserInput::text(rest), Delivery::FollowUp),
            "resume" if !rest.is_empty() => {
                let (thread, children) = split_children(rest);
                Self::Switch(ChatVerb::Resume { thread: Some(thread.to_owned()), children: None }, children)
            }
            _ => match parse_request(name, rest)
                .map(|parsed| parsed.map(Self::Request))
                .or_else(|| Some(Inquiry::parse(name, rest)?.map(Self::Inquiry)))
            {
                Some(Ok(typed)) => typed,
                Some(Err(reason)) => Self::Invalid(reason),
                None => Self::Message(UserInput::text(text)),
            },
        }
    }
}

/// Splits the arguments of a command. The last argument can be `wait` or `cancel`, the treatment of children that still
/// run. If it is, returns the other arguments and the treatment. Otherwise returns all arguments and `None`.
fn split_children(rest: &str) -> (&str, Option<LeftChildren>) {
    let (before, last) = rest.rsplit_once(char::is_whitespace).unwrap_or(("", rest));
    match LeftChildren::parse(last) {
        Some(children @ (LeftChildren::Wait | LeftChildren::Cancel)) => (before.trim_end(), Some(children)),
        Some(LeftChildren::Detach) | None => (rest, None),
    }
}

/// Returns the name of a command if the text starts with `/name` and the name contains only lower-case letters, digits,
/// `:`, `_` and `-`; `None` for any other text.
pub(super) fn command_name(text: &str) -> Option<&str> {
    let name = text.strip_prefix('/')?.split_whitespace().next()?;
    let is_name = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b':' | b'_' | b'-'));
    (is_name && !text.starts_with("/ ")).then_some(name)
}

/// Returns the request of a command, or the reason why its arguments are invalid; `None` for an unknown name.
fn parse_request(name: &str, rest: &str) -> Option<Result<ChatVerb, String>> {
    let text = (!rest.is_empty()).then(|| rest.to_owned());
    let (argument, confirm) = match rest.strip_suffix("confirm") {
        Some(before) if before.is_empty() || before.ends_with(char::is_whitespace) => (before.trim(), true),
        Some(_) | None => (rest, false),
    };
    Some(match name {
        "model" if argument.is_empty() => Err("/model needs a tier or the id of a model: `/model fast`".to_owned()),
        "model" => Ok(ChatVerb::Model { model: argument.to_owned(), confirm }),
        "mode" => match ChatMode::parse(argument) {
            Some(mode) => Ok(ChatVerb::Mode { mode: mode.into(), confirm }),
            None => Err(format!(
                "/mode needs `read-only`, `ask` or `auto`: {}",
                nearest_call("mode", argument, &["read-only", "ask", "auto"], "read-only")
            )),
        },
        "budget" => match Nanos::parse(argument.strip_prefix('$').unwrap_or(argument)) {
            Ok(spend) => Ok(ChatVerb::Budget { spend: spend.to_json(), confirm }),
            Err(_) => Err("/budget needs an amount of dollars: `/budget 0.20`".to_owned()),
        },
        "resume" => Ok(ChatVerb::Resume { thread: None, children: None }),
        "reload" => Ok(ChatVerb::Reload { confirm }),
        "fork" => parse_fork(rest),
        "rewind" => parse_rewind(rest),
        "retry" => Ok(ChatVerb::Retry {}),
        "compact" => {
            let focus = (!argument.is_empty()).then(|| argument.to_owned());
            Ok(ChatVerb::Compact { focus, preview: !confirm })
        }
        "name" => text.map(|name| ChatVerb::Name { name }).ok_or_else(|| "/name needs a title".to_owned()),
        "tree" => Ok(ChatVerb::Tree {}),
        "context" if argument.is_empty() && confirm => {
            Err("/context needs the part whose change you confirm: `/context tools confirm`".to_owned())
        }
        "context" => Ok(ChatVerb::Context { part: (!argument.is_empty()).then(|| argument.to_owned()), confirm }),
        "preview" => match split_bounds(rest) {
            Some(Ok((bounds, message))) => {
                let spend = bounds.spend.map(|spend| Nanos::from_u64(spend).to_json());
                Ok(ChatVerb::Preview { message, spend, with: bounds.with })
            }
            Some(Err(reason)) => Err(reason),
            None => Ok(ChatVerb::Preview { message: rest.to_owned(), spend: None, with: None }),
        },
        "cost" => Ok(ChatVerb::Cost {}),
        "queue" => Ok(ChatVerb::State {}),
        "clear" => Ok(ChatVerb::ClearQueue {}),
        _ => return None,
    })
}

/// Parses the arguments of `/fork`: the number of a prompt, a thread, or both. The error is a message for the user.
fn parse_fork(rest: &str) -> Result<ChatVerb, String> {
    let words: Vec<&str> = rest.split_whitespace().collect();
    let number = |word: &str| word.parse::<u64>().ok();
    let (prompt, thread) = match words.as_slice() {
        [one] => number(one).map_or((None, Some(*one)), |prompt| (Some(prompt), None)),
        [one, other] if number(one).is_some() => (number(one), Some(*other)),
        [other, one] if number(one).is_some() => (number(one), Some(*other)),
        _ => (None, None),
    };
    // A thread id has the form `DIRECTIVE-SECONDS`.
    let is_thread = |id: &str| id.contains('-') && !id.starts_with('-');
    if prompt.is_none() && thread.is_none() || thread.is_some_and(|id| !is_thread(id)) {
        let reason = "/fork needs the number of a prompt or the id of a thread: `/fork 2`; /tree lists both";
        return Err(reason.to_owned());
    }
    Ok(ChatVerb::Fork { prompt, thread: thread.map(str::to_owned) })
}

/// Parses the arguments of `/rewind`: the number of a prompt, and optionally `conversation`, `files` or `both`. With
/// the number alone, the request only lists the files. The error is a message for the user.
fn parse_rewind(rest: &str) -> Result<ChatVerb, String> {
    if rest.is_empty() {
        // `/rewind` without a number shows the tree, which lists the numbers of the prompts.
        return Ok(ChatVerb::Tree {});
    }
    let (number, part) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let invalid = |example: String| {
        format!("/rewind needs the number of a prompt, and optionally `conversation`, `files` or `both`: {example}")
    };
    let prompt = number.parse().map_err(|_| invalid("`/rewind 2 both`".to_owned()))?;
    match part.trim() {
        "" => Ok(ChatVerb::Rewind { prompt, files: RewindFiles::Preview }),
        "conversation" => Ok(ChatVerb::Fork { prompt: Some(prompt), thread: None }),
        "files" => Ok(ChatVerb::Rewind { prompt, files: RewindFiles::Only }),
        "both" => Ok(ChatVerb::Rewind { prompt, files: RewindFiles::Restore }),
        part => {
            let call = format!("rewind {number}");
            Err(invalid(nearest_call(&call, part, &["conversation", "files", "both"], "both")))
        }
    }
}

/// Returns a suggestion for a command with an unknown word. If one of `words` is similar to `typed`, the suggestion is
/// a question with that word. Otherwise, it is the command with the arguments `example`.
fn nearest_call(command: &str, typed: &str, words: &[&str], example: &str) -> String {
    match closest(typed, words.iter().copied()) {
        Some(near) => format!("did you mean `/{command} {near}`?"),
        None => format!("`/{command} {example}`"),
    }
}

/// Names of the requests that change the thread of a session, its plan or its mode.
pub const CHANGING_COMMANDS: [&str; 7] = ["fork", "rewind", "model", "budget", "reload", "mode", "context"];

/// A command, prompt template or skill that a message can call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedCommand {
    /// The name without its slash.
    pub name: String,
    /// Kind of the command: `command`, `prompt` or `skill`.
    pub kind: &'static str,
    pub description: String,
    /// A hint for the arguments, the text after the command's name; empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub arguments: String,
}

/// Lists the commands of a session: built-in commands, and those of [`list_message_commands`].
pub fn list_commands(world: &dyn World) -> Vec<ListedCommand> {
    let own = built_in_commands().map(|one| list_row(one.name.to_owned(), "command", one.summary, one.arguments));
    own.chain(list_message_commands(world)).collect()
}

/// Lists the commands of the settings (`command` hooks), the prompt templates and the skills. The message of a JSON
/// request can call them.
pub fn list_message_commands(world: &dyn World) -> Vec<ListedCommand> {
    let items = Items::new(world);
    // Faults in the settings are ignored here, because `rye check` reports them.
    let of_settings = read_commands(&items, &mut Diagnostics::new()).into_iter().map(|command| {
        let hook = command.hook;
        let about = hook.description.as_deref().unwrap_or_default();
        list_row(hook.id.node.clone(), "command", about, command.argument_hint.as_deref().unwrap_or_default())
    });
    let mut list: Vec<ListedCommand> = of_settings.collect();
    let (templates, skills) = (items.list(ItemKind::Prompt), items.list(ItemKind::Skill));
    let templates = templates.chunk_by(|one, other| one.id == other.id).filter_map(<[_]>::first);
    let templates = templates.filter_map(|entry| items.prompt_template(&entry.id));
    let is_built_in = |name: &str| built_in_commands().any(|known| known.name == name);
    list.extend(templates.filter(|template| !is_built_in(&template.command())).map(|template| {
        let (about, hint) = (template.description.as_deref(), template.argument_hint.as_deref());
        list_row(template.command(), "prompt", about.unwrap_or_default(), hint.unwrap_or_default())
    }));
    let skills = skills.chunk_by(|one, other| one.id == other.id).filter_map(<[_]>::first);
    list.extend(
        skills
            .filter_map(|entry| items.skill(&entry.id))
            .map(|skill| list_row(format!("skill:{}", skill.file.id), "skill", &skill.description, "")),
    );
    list
}

fn list_row(name: String, kind: &'static str, description: &str, arguments: &str) -> ListedCommand {
    ListedCommand { name, kind, description: description.to_owned(), arguments: arguments.to_owned() }
}

/// Returns the note for the response to a typed command; `None` if there is nothing to show.
pub fn response_note(response: &ChatResponse) -> Option<String> {
    if let Some(error) = &response.error {
        return Some(error.replace(CONFIRM_HINT, "repeat the command with `confirm` at the end"));
    }
    let shown = format_answer(response.command?, response.data.as_ref()?);
    Some(shown).filter(|text| !text.is_empty())
}

/// Formats the answer to a typed command as lines; empty if there is nothing to show.
fn format_answer(command: &str, data: &Value) -> String {
    let text = |value: &Value, key: &str| value.get(key).map_or_else(String::new, plain);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let lines: Vec<String> = match command {
        "tree" => return format_tree(data),
        "compact" => vec![text(data, "text")],
        "prompt" => {
            let loss = data.get("cache_loss").map(|loss| text(loss, "text")).filter(|text| !text.is_empty());
            list(data.get("notes").unwrap_or(&Value::Null)).iter().map(plain).chain(loss).collect()
        }
        "context" if data.is_object() => return format_context_change(data),
        "context" => format_context(&list(data)),
        "preview" if data.get("command").is_some() => vec![text(data, "command")],
        "preview" if data.get("unpriced") == Some(&Value::Bool(true)) => vec![format!(
            "{} tokens ({} cached), cost unknown: the model has no price",
            text(data, "input_tokens"),
            text(data, "cached_tokens"),
        )],
        "preview" => vec![format!(
            "{} tokens ({} cached), about ${}, at most ${}",
            text(data, "input_tokens"),
            text(data, "cached_tokens"),
            text(data, "expected"),
            text(data, "worst_case"),
        )],
        "cost" => return format_cost(data),
        "name" => vec!["the session has a new title".to_owned()],
        "state" if list(data.get("queue").unwrap_or(&Value::Null)).is_empty() => {
            vec!["no message is queued".to_owned()]
        }
        "state" => list(data.get("queue").unwrap_or(&Value::Null))
            .iter()
            .map(|one| format!("{}: {}", text(one, "delivery"), truncate_line(&text(one, "text"), MAX_TEXT_CHARS)))
            .collect(),
        "resume" if data.as_array().is_some_and(Vec::is_empty) => vec!["this project has no closed session".to_owned()],
        "resume" => list(data)
            .iter()
            .map(|session| {
                let updated = session.get("updated_at").and_then(Value::as_i64).map(format_date).unwrap_or_default();
                let title = session.get("title").and_then(Value::as_str).unwrap_or("title not read");
                let title = truncate_line(title, MAX_SESSION_TITLE_CHARS);
                format!("{}  {updated}  {title}", text(session, "thread_id"))
            })
            .collect(),
        "rewind" => return format_rewind(data),
        "clear_queue" if data.get("queued") == Some(&Value::from(0)) => {
            vec!["no message is queued; /new starts a new conversation".to_owned()]
        }
        "clear_queue" => {
            let count = data.get("queued").and_then(Value::as_u64).unwrap_or_default();
            vec![format!("withdrew {}", format_count(count, "queued message"))]
        }
        "fork" if data.get("thread").is_some() => vec![format!(
            "the session continues in `{}` after prompt {}",
            text(data, "thread"),
            text(data, "after_prompt")
        )],
        "model" | "mode" | "budget" | "reload" => {
            let effect = data.get("effect").and_then(Value::as_str).map(str::to_owned);
            // A confirmed request was refused first, and the refusal listed the changes.
            let is_known = data.get("confirmed") == Some(&Value::Bool(true));
            let changes = if is_known { Vec::new() } else { list(data.get("changes").unwrap_or(&Value::Null)) };
            let warning = data.get("warning").and_then(Value::as_str).map(str::to_owned);
            effect.into_iter().chain(warning).chain(changes.iter().map(plain)).collect()
        }
        // An inquiry is answered with a text.
        _ => data.as_str().map(str::to_owned).into_iter().collect(),
    };
    lines.join("\n")
}

/// Formats the files of a rewind, and the calls whose effects the rewind does not undo.
pub fn format_rewind(data: &Value) -> String {
    let rewind: FileRewind = serde_json::from_value(data.clone()).unwrap_or_default();
    let mut lines: Vec<String> =
        rewind.files.iter().map(|file| format!("{}  {}", describe_state(file.state), file.path)).collect();
    if lines.is_empty() {
        lines.push("no file tool has changed a file since this prompt".to_owned());
    }
    lines.extend(rewind.not_undone.iter().map(|call| format!("not undone: {}", truncate_line(call, MAX_TEXT_CHARS))));
    if let Some(prompt) = data.get("preview").and_then(Value::as_u64) {
        lines.push(format!(
            "nothing is rewound yet: add `conversation`, `files` or `both`, as in `/rewind {prompt} both`"
        ));
    }
    lines.join("\n")
}

fn describe_state(state: RewindState) -> &'static str {
    match state {
        RewindState::Restorable => "can be restored",
        RewindState::Removable => "can be removed ",
        RewindState::Unchanged => "as before      ",
        RewindState::Changed => "stays: changed since",
        RewindState::Unavailable => "stays: not restorable",
        RewindState::Restored => "reverted       ",
    }
}

/// Formats the parts of the next request as a table with their sum.
fn format_context(parts: &[Value]) -> Vec<String> {
    let tokens = |part: &Value| part.get("tokens").and_then(Value::as_u64).unwrap_or(0);
    let text = |part: &Value, key: &str| part.get(key).map_or_else(String::new, plain);
    let kind_width = parts.iter().map(|part| text(part, "kind").len()).max().unwrap_or(0);
    let row = |part: &Value| {
        let excerpt = text(part, "excerpt");
        let excerpt = if excerpt.is_empty() { excerpt } else { format!("  {excerpt}") };
        format!("{:>7}  {:kind_width$}  {}{excerpt}", tokens(part), text(part, "kind"), text(part, "id"))
    };
    let sum: u64 = parts.iter().map(tokens).sum();
    std::iter::once(format!("{:>7}  the next request, without your text", "tokens"))
        .chain(parts.iter().map(row))
        .chain(std::iter::once(format!("{sum:>7}  together, estimated")))
        .collect()
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn format_tree(data: &Value) -> String {
    let threads: Vec<SessionThread> = serde_json::from_value(data.clone()).unwrap_or_default();
    let mut lines = Vec::new();
    let current: Vec<(&str, u64)> =
        current_prompts(&threads).iter().map(|(thread, prompt)| (thread.thread_id.as_str(), prompt.number)).collect();
    let others = other_branches(&threads);
    for thread in &threads {
        lines.push(format!("{} {} {}", thread.thread_id, thread.status.as_str(), thread.model).trim_end().to_owned());
        for prompt in &thread.prompts {
            let is_current = current.contains(&(thread.thread_id.as_str(), prompt.number));
            let branch = if is_current { "" } else { "  (another branch)" };
            lines.push(format!("  {}  {}{branch}", prompt.number, truncate_line(&prompt.text, MAX_TEXT_CHARS)));
        }
        if others.iter().any(|other| other.thread_id == thread.thread_id) {
            lines.push(format!("  `/fork {}` goes back to the end of this branch", thread.thread_id));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use rye_compiler::commands::BUILT_IN_COMMANDS;

    use super::*;

    #[test]
    fn slash_alone_lists_the_commands_and_is_not_sent() {
        assert!(matches!(TypedText::parse("/"), TypedText::Help(None)));
        assert!(matches!(TypedText::parse("//"), TypedText::Invalid(_)));
    }

    #[test]
    fn misspelled_argument_is_answered_with_the_nearest_word() {
        for (line, near) in [
            ("/mode raed-only", "did you mean `/mode read-only`?"),
            ("/exit cancle", "did you mean `/exit cancel`?"),
            ("/new wiat", "did you mean `/new wait`?"),
            ("/rewind 2 fiels", "did you mean `/rewind 2 files`?"),
            ("/export htlm", "did you mean `/export html`?"),
            ("/mode 7", "`/mode read-only`"),
        ] {
            let TypedText::Invalid(reason) = TypedText::parse(line) else { panic!("{line}") };
            assert!(reason.ends_with(near), "{line}: {reason}");
        }
    }

    #[test]
    fn typed_commands_are_requests() {
        for (line, name) in [
            ("/model fast", "model"),
            ("/reload confirm", "reload"),
            ("/mode read-only", "mode"),
            ("/mode auto confirm", "mode"),
            ("/preview $0.10 hello", "preview"),
            ("/budget 0.20", "budget"),
            ("/budget $1 confirm", "budget"),
            ("/resume", "resume"),
            ("/fork 2", "fork"),
            ("/fork rye/agent/chat-17", "fork"),
            ("/fork 2 rye/agent/chat-17", "fork"),
            ("/rewind", "tree"),
            ("/rewind 1", "rewind"),
            ("/rewind 1 both", "rewind"),
            ("/rewind 1 conversation", "fork"),
            ("/retry", "retry"),
            ("/compact the tests", "compact"),
            ("/compact confirm", "compact"),
            ("/name my work", "name"),
            ("/tree", "tree"),
            ("/context", "context"),
            ("/preview hello", "preview"),
            ("/cost", "cost"),
            ("/queue", "state"),
            ("/clear", "clear_queue"),
            ("!ls -l", "bash"),
            ("!! git status", "bash"),
        ] {
            let TypedText::Request(verb) = TypedText::parse(line) else { panic!("{line}") };
            assert_eq!(verb.name(), name, "{line}");
        }
        for line in ["hello", "/review a", "/etc/passwd", "//model", " /model x", " !", "/ help"] {
            assert!(matches!(TypedText::parse(line), TypedText::Message(_)), "{line}");
        }
        for line in [
            "/fork",
            "/fork two",
            "/rewind -1",
            "/rewind 1 all",
            "/new now",
            "/export pdf",
            "/copy 0",
            "/name",
            "/model confirm",
            "/budget much",
            "/mode fast",
            "/with",
            "!",
            "!! ",
            "/exit now",
            "/context confirm",
            "/steer",
            "/follow-up ",
        ] {
            assert!(matches!(TypedText::parse(line), TypedText::Invalid(_)), "{line}");
        }
        assert!(matches!(TypedText::parse("/help me"), TypedText::Help(Some(topic)) if topic == "me"));
        assert!(matches!(TypedText::parse("/help"), TypedText::Help(None)));
        for (line, name) in
            [("/plan", "plan"), ("/why last", "why"), ("/export", "export"), ("/copy 2", "copy"), ("/mode", "current")]
        {
            assert!(matches!(TypedText::parse(line), TypedText::Inquiry(found) if found.name() == name), "{line}");
        }
        assert!(matches!(TypedText::parse("/new"), TypedText::Switch(ChatVerb::New { children: None }, None)));
        let cancelled = TypedText::parse("/resume talk-1 cancel");
        assert!(matches!(cancelled, TypedText::Switch(ChatVerb::Resume { .. }, Some(LeftChildren::Cancel))));
        for (line, expected) in [("/steer stop", Delivery::Steer), ("/follow-up  then /name it", Delivery::FollowUp)] {
            let TypedText::Delivered(input, delivery) = TypedText::parse(line) else { panic!("{line}") };
            assert_eq!((line.split_once(' ').unwrap().1.trim(), delivery), (input.text.as_str(), expected));
        }
        assert!(matches!(TypedText::parse("/quit"), TypedText::Leave(None)));
        assert!(matches!(TypedText::parse("/exit cancel"), TypedText::Leave(Some(LeftChildren::Cancel))));
        let TypedText::Request(ChatVerb::Model { model, confirm }) = TypedText::parse("/model my-confirm") else {
            panic!("a model")
        };
        assert_eq!((model.as_str(), confirm), ("my-confirm", false));
        // The settings cannot declare a command with a built-in name, so the list of built-in names must be complete.
        let mut names: Vec<&str> = built_in_commands().map(|one| one.name).collect();
        let mut built_in = BUILT_IN_COMMANDS.to_vec();
        names.sort_unstable();
        built_in.sort_unstable();
        assert_eq!(names, built_in);
        let TypedText::Request(ChatVerb::Bash { command, excluded }) = TypedText::parse("!!ls") else {
            panic!("a command")
        };
        assert_eq!((command.as_str(), excluded), ("ls", true));
    }
}
