//! `/export`: the conversation of a session as a file.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rye_compiler::diagnostics::closest;
use rye_compiler::report::render::html::escape_html;
use rye_engine::event::{AcceptedInput, CognitionIn, Event, EventBody, MessageSource};
use rye_engine::message::{Message, calls_in, text_of};
use rye_engine::rooted_dir::create_user_file;
use rye_engine::secrets::mask_secrets;
use rye_engine::thread_id::ThreadId;

use super::inquiry::reply_text;
use super::requests::RequestHandler;
use crate::command::threads::export::collect_script;
use crate::command::threads::transcript::format_json_line;
use crate::present::event::{event_view, format_call};

/// The format of an exported conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// Prompts, calls and replies of the current branch as Markdown.
    Markdown,
    /// Prompts, calls and replies as an HTML page without scripts.
    Html,
    /// Every event of the session's threads, one JSON object per line.
    JsonLines,
    /// A script that replays the newest thread.
    Script,
}

impl ExportFormat {
    /// Returns the format with this name or file extension; `None` for any other text.
    fn parse(name: &str) -> Option<Self> {
        match name {
            "md" => Some(Self::Markdown),
            "html" | "htm" => Some(Self::Html),
            "jsonl" => Some(Self::JsonLines),
            "script" | "yaml" | "json" => Some(Self::Script),
            _ => None,
        }
    }

    fn extension(self) -> &'static str {
        match self {
            Self::Markdown => "md",
            Self::Html => "html",
            Self::JsonLines => "jsonl",
            Self::Script => "script.yaml",
        }
    }
}

/// The format and the file of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportTarget {
    pub format: ExportFormat,
    /// The path, relative to the project; `None` for a file with the name of the thread.
    pub file: Option<PathBuf>,
}

impl ExportTarget {
    /// Parses the argument of `/export`: a format, or a file whose extension names the format.
    ///
    /// # Errors
    /// Returns the reason why the argument is invalid.
    pub fn parse(argument: &str) -> Result<Self, String> {
        if matches!(argument, "" | "md" | "html" | "jsonl" | "script") {
            let format = ExportFormat::parse(argument).unwrap_or(ExportFormat::Markdown);
            return Ok(Self { format, file: None });
        }
        let extension = Path::new(argument).extension().and_then(|extension| extension.to_str());
        let format = extension.and_then(ExportFormat::parse).ok_or_else(|| {
            let near = closest(argument, ["md", "html", "jsonl", "script"]);
            let near = near.map(|near| format!("; did you mean `/export {near}`?")).unwrap_or_default();
            format!(
                "/export needs `md`, `html`, `jsonl`, `script` or a file with a matching extension: `/export notes.html`{near}"
            )
        })?;
        Ok(Self { format, file: Some(argument.into()) })
    }
}

impl RequestHandler {
    /// Writes the conversation to a new file. Returns a message for the user that names the file.
    pub(super) async fn export(&self, target: &ExportTarget) -> Result<String, String> {
        let live = self.control.started_state().await;
        let thread = ThreadId::parse(live.thread_id().unwrap_or_default()).map_err(|invalid| invalid.reason)?;
        let text = match target.format {
            ExportFormat::Markdown => to_markdown(&self.conversation_events().await?),
            ExportFormat::Html => to_html(&self.conversation_events().await?, thread.as_str()),
            ExportFormat::JsonLines => {
                let lines: Vec<String> = self.session_events().await?.iter().map(format_json_line).collect();
                lines.join("\n")
            }
            ExportFormat::Script => {
                let (script, _) = collect_script(&self.engine.threads(), &thread, true, &mut |_| ())
                    .map_err(|failure| failure.message)?;
                serde_json::to_string_pretty(&script).map_err(|error| error.to_string())?
            }
        };
        let name = thread.as_str().rsplit('/').next().unwrap_or("chat");
        let own_name = || PathBuf::from(format!("{name}.{}", target.format.extension()));
        let path = self.spaces.project.join(target.file.clone().unwrap_or_else(own_name));
        if text.trim().is_empty() {
            return Err("nothing to export: the session has no conversation yet".to_owned());
        }
        let text = format!("{}\n", mask_secrets(text.trim_end()));
        // An existing file is not replaced, because the user may have edited an earlier export.
        create_user_file(&self.spaces.project, &path, text.as_bytes()).map_err(|error| {
            let path = path.display();
            if error.kind() == ErrorKind::AlreadyExists {
                return format!("`{path}` exists, and an export replaces no file: choose another name");
            }
            format!("`{path}` cannot be written: {error}")
        })?;
        // The file exists, so its path can be shown without `..`.
        let path = path.canonicalize().unwrap_or(path);
        Ok(format!("written to `{}`", path.display()))
    }
}

/// Maximum characters of a call in an export.
const MAX_CALL_CHARS: usize = 400;

/// A part of an exported conversation.
enum ExportPart {
    Title(String),
    Prompt(String),
    Reply(String),
    /// A summary of a call, a command or the end of a prompt.
    Line(String),
}

/// Returns the accepted message that a message `sent` to the model contains, and removes it from `accepted`. `None` if
/// `sent` contains no message of the user. The comparison uses the end of the texts, because the first message of a
/// thread contains layers before the text of the user.
fn take_typed<'e>(sent: &CognitionIn, accepted: &mut Vec<&'e AcceptedInput>) -> Option<&'e AcceptedInput> {
    use MessageSource::{FollowUp, NextTurn, Prompt, Steer};
    let Message::User { content } = &sent.message else { return None };
    let text = matches!(sent.source, Prompt | Steer | FollowUp | NextTurn).then(|| text_of(content))?;
    let matches = accepted.iter().enumerate().filter(|(_, input)| text.ends_with(&input.text));
    let (at, _) = matches.rev().max_by_key(|(_, input)| input.text.len())?;
    Some(accepted.remove(at))
}

fn parts(events: &[Event]) -> Vec<ExportPart> {
    let (mut parts, mut calls, mut accepted) = (Vec::new(), BTreeMap::new(), Vec::new());
    for event in events {
        if let EventBody::CognitionOut(reply) = &event.body {
            let made = calls_in(&reply.content).map(|call| (call.id.clone(), format_call(call, MAX_CALL_CHARS)));
            calls.extend(made);
        }
        if let EventBody::Named(named) = &event.body {
            parts.push(ExportPart::Title(named.name.clone()));
        } else if let EventBody::UserInput(input) = &event.body
            && !input.handled
        {
            accepted.push(&**input);
        } else if let EventBody::CognitionIn(sent) = &event.body {
            // A message that a fork left out was accepted and not sent.
            let typed = take_typed(sent, &mut accepted);
            parts.extend(typed.map(|input| ExportPart::Prompt(input.raw.clone())));
        } else if let Some(reply) = reply_text(&event.body) {
            parts.push(ExportPart::Reply(reply));
        }
        if matches!(event.body, EventBody::ToolCallResult(_) | EventBody::ShellRan(_) | EventBody::PromptEnded(_)) {
            let line = event_view(event).line;
            let shown = if let EventBody::ToolCallResult(result) = &event.body {
                calls.remove(&result.call_id).map(|call| line.replacen(&*result.name, &call, 1))
            } else {
                None
            };
            parts.push(ExportPart::Line(shown.unwrap_or(line)));
        }
    }
    parts
}

fn to_markdown(events: &[Event]) -> String {
    let (titles, parts): (Vec<_>, Vec<_>) =
        parts(events).into_iter().partition(|part| matches!(part, ExportPart::Title(_)));
    let mut text = String::new();
    // The last title of the session is the title of the document.
    for part in titles.into_iter().next_back().into_iter().chain(parts) {
        match part {
            ExportPart::Title(title) => writeln!(text, "# {title}\n"),
            ExportPart::Prompt(prompt) => writeln!(text, "## {}\n", quote(&prompt)),
            ExportPart::Reply(reply) => writeln!(text, "{reply}\n"),
            ExportPart::Line(line) => writeln!(text, "> {line}\n"),
        }
        .ok();
    }
    text
}

/// Formats a message: its first line becomes the text of a heading, further lines become a quotation.
fn quote(text: &str) -> String {
    match text.split_once('\n') {
        None => text.to_owned(),
        Some((first, rest)) => format!("{first}\n\n> {}", rest.replace('\n', "\n> ")),
    }
}

const STYLE: &str = "body{max-width:48em;margin:2em auto;padding:0 1em;font:16px/1.5 sans-serif}\
    pre{white-space:pre-wrap;overflow-wrap:anywhere;font:inherit}\
    .prompt{border-left:4px solid;padding-left:1em;font-weight:bold}.line{font-size:smaller;opacity:.7}";

/// Formats the conversation of a session as an HTML page. The page contains no scripts and loads no files. Markdown in
/// the texts is not rendered.
fn to_html(events: &[Event], thread: &str) -> String {
    let parts = parts(events);
    let named = parts
        .iter()
        .rev()
        .find_map(|part| if let ExportPart::Title(title) = part { Some(title.as_str()) } else { None });
    let title = escape_html(named.unwrap_or(thread));
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\">\n<title>{title}</title><style>{STYLE}</style></head>\n\
         <body><h1>{title}</h1>\n"
    );
    for part in &parts {
        match part {
            ExportPart::Title(_) => continue,
            ExportPart::Prompt(prompt) => writeln!(text, "<pre class=\"prompt\">{}</pre>", escape_html(prompt)),
            ExportPart::Reply(reply) => writeln!(text, "<pre>{}</pre>", escape_html(reply)),
            ExportPart::Line(line) => writeln!(text, "<pre class=\"line\">{}</pre>", escape_html(line)),
        }
        .ok();
    }
    text.push_str("</body></html>");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_is_a_format_or_a_file_with_its_extension() {
        let parsed = |argument: &str| ExportTarget::parse(argument).map(|target| (target.format, target.file));
        assert_eq!(parsed(""), Ok((ExportFormat::Markdown, None)));
        assert_eq!(parsed("html"), Ok((ExportFormat::Html, None)));
        assert_eq!(parsed("out/talk.html"), Ok((ExportFormat::Html, Some("out/talk.html".into()))));
        assert_eq!(parsed("again.yaml"), Ok((ExportFormat::Script, Some("again.yaml".into()))));
        for invalid in ["pdf", "talk.pdf", ".html", "talk"] {
            assert!(parsed(invalid).unwrap_err().contains("notes.html"), "{invalid}");
        }
    }
}
