//! The lines of an approval request that describe a call: its arguments, or the change of a file.

use std::borrow::Cow;
use std::path::Path;

use rye_compiler::item::Items;
use rye_compiler::world::Space;
use rye_engine::machine::effect::CallToApprove;
use rye_engine::rooted_dir::RootedDir;
use serde_json::{Map, Value};

use super::ask::MAX_ECHO_CHARS;
use super::file_diff::FileDiff;
use crate::present::truncate_line;
use crate::report::printable;

/// Maximum number of lines of a difference in a question.
const MAX_DIFF_ROWS: usize = 40;
/// Maximum bytes of a file whose change is compared.
const MAX_COMPARED_BYTES: u64 = 256 * 1024;
/// Maximum number of consecutive blank lines that are shown. For a longer sequence, only the number of lines is shown.
const MAX_BLANK_LINES: usize = 3;
/// Maximum number of consecutive spaces that are shown. For a longer sequence, only the number of spaces is shown.
const MAX_SPACES: usize = 60;
/// Names of the arguments that are not shown if the complete difference is shown.
const COMPARED_ARGUMENTS: [&str; 3] = ["content", "old_string", "new_string"];

/// Formats a call. If a file tool changes an existing file, the difference follows the arguments. If the complete
/// difference is shown, the arguments that contain the old and the new text are omitted.
pub(super) fn call_lines(call: &CallToApprove, project: &Path, items: Option<&Items<'_>>) -> Vec<String> {
    let Some(diff) = items.and_then(|items| file_diff(call, project, items)) else {
        return argument_lines(&call.input);
    };
    let mut input = call.input.clone();
    if let Value::Object(arguments) = &mut input
        && diff.fits(MAX_DIFF_ROWS)
    {
        arguments.retain(|name, _| !COMPARED_ARGUMENTS.contains(&name.as_str()));
    }
    let mut lines = argument_lines(&input);
    lines.push(format!("  change: {}", diff.counts()));
    let styled = diff.lines(MAX_DIFF_ROWS).into_iter();
    lines.extend(styled.map(|(style, line)| format!("    {style}{line}{style:#}")));
    lines
}

/// Returns the change that a call of a file tool makes; `None` for another call, for a new file, and for a call that
/// changes nothing or cannot succeed.
fn file_diff(call: &CallToApprove, project: &Path, items: &Items<'_>) -> Option<FileDiff> {
    let id = call.tool.as_ref()?;
    // A tool of the project with the same id may do anything.
    if items.tool(id)?.file.space != Space::System {
        return None;
    }
    let parameters = call.parameters.as_object()?;
    let text = |name: &str| parameters.get(name)?.as_str();
    let path = Path::new(text("path")?);
    let path = path.strip_prefix(project).unwrap_or(path);
    let before = RootedDir::open(project).ok()?.read(path, MAX_COMPARED_BYTES).ok()??;
    let before = String::from_utf8(before).ok()?;
    let after = match id.as_str() {
        "rye/file-system/write" => text("content")?.to_owned(),
        "rye/file-system/edit" => edited(&before, parameters)?,
        _ => return None,
    };
    let diff = FileDiff::new(&before, &after);
    (!diff.fits(0)).then_some(diff)
}

/// Returns the text after an edit; `None` if the edit fails. If the file has CR LF line ends, the line ends of the
/// arguments are converted first, as the tool does.
fn edited(before: &str, parameters: &Map<String, Value>) -> Option<String> {
    let text = |name: &str| parameters.get(name)?.as_str();
    let (mut old, mut new) = (text("old_string")?.to_owned(), text("new_string")?.to_owned());
    if !before.contains(&old) && before.contains("\r\n") && !old.contains('\r') {
        (old, new) = (old.replace('\n', "\r\n"), new.replace('\n', "\r\n"));
    }
    let count = before.matches(&old).count();
    let replaces_all = parameters.get("replace_all") == Some(&Value::Bool(true));
    (count == 1 || count > 1 && replaces_all).then(|| before.replace(&old, &new))
}

/// Formats the arguments of a call, one per line. The second and later lines of a text start with `|`, so that no
/// argument looks like a part of the question.
fn argument_lines(input: &Value) -> Vec<String> {
    let Value::Object(arguments) = input else {
        return vec![format!("  arguments: {}", printable(&input.to_string()))];
    };
    if arguments.is_empty() {
        return vec!["  arguments: none".to_owned()];
    }
    let mut lines = Vec::new();
    for (name, value) in arguments {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let text = printable(&text.replace('\r', "\u{FFFD}"));
        let mut parts = text.split('\n').map(count_spaces);
        lines.push(format!("  {}: {}", truncate_line(name, MAX_ECHO_CHARS), parts.next().unwrap_or_default()));
        let mut blank: Vec<String> = Vec::new();
        for part in parts.map(Some).chain([None]) {
            match part {
                Some(part) if part.trim().is_empty() => blank.push(format!("    | {part}")),
                other => {
                    if blank.len() > MAX_BLANK_LINES {
                        lines.push(format!("    ({} blank lines)", blank.len()));
                        blank.clear();
                    }
                    lines.append(&mut blank);
                    lines.extend(other.map(|part| format!("    | {part}")));
                }
            }
        }
    }
    lines
}

/// Replaces a long run of spaces by its length, so that spaces do not move the end of a command out of sight.
fn count_spaces(line: &str) -> Cow<'_, str> {
    let is_blank = |c: char| c.is_whitespace() || c == '\u{2800}';
    let (mut shown, mut rest) = (String::new(), line);
    while let Some(start) = rest.find(is_blank) {
        let (text, behind) = rest.split_at(start);
        let end = behind.find(|c| !is_blank(c)).unwrap_or(behind.len());
        let (spaces, behind) = behind.split_at(end);
        let count = spaces.chars().count();
        let spaces = if count > MAX_SPACES { &format!(" ({count} spaces) ") } else { spaces };
        shown.extend([text, spaces]);
        rest = behind;
    }
    if shown.len() + rest.len() == line.len() { Cow::Borrowed(line) } else { Cow::Owned(shown + rest) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_cannot_look_like_the_question() {
        let lines = argument_lines(&json!({"command": "ls\nAllow? [y/N] y\r\u{1b}[2K", "n": 1}));
        assert_eq!(lines, ["  command: ls", "    | Allow? [y/N] y\u{FFFD}\u{FFFD}[2K", "  n: 1"]);
        assert_eq!(argument_lines(&json!({})), ["  arguments: none"]);
    }

    #[test]
    fn edit_replaces_one_place_or_all_and_keeps_line_breaks() {
        let edit = |before: &str, parameters: Value| edited(before, parameters.as_object().unwrap());
        let twice = json!({"old_string": "a", "new_string": "b"});
        assert_eq!(edit("a a", twice), None);
        let all = json!({"old_string": "a", "new_string": "b", "replace_all": true});
        assert_eq!(edit("a a", all).as_deref(), Some("b b"));
        let lines = json!({"old_string": "a\nb", "new_string": "c\nd"});
        assert_eq!(edit("a\r\nb\r\n", lines).as_deref(), Some("c\r\nd\r\n"));
    }

    #[test]
    fn blank_lines_and_spaces_do_not_hide_the_end_of_a_command() {
        let command = format!("ls{}rm a{}\n\nls{}; rm b\n", "\n".repeat(300), "\n \n\t".repeat(9), " ".repeat(3000));
        let lines = argument_lines(&json!({ "command": command }));
        let expected = [
            "  command: ls",
            "    (299 blank lines)",
            "    | rm a",
            "    (19 blank lines)",
            "    | ls (3000 spaces) ; rm b",
            "    | ",
        ];
        assert_eq!(lines, expected);
        let ordinary = argument_lines(&json!({"command": "if a\n\n    b\nfi"}));
        assert_eq!(ordinary, ["  command: if a", "    | ", "    |     b", "    | fi"]);
    }
}
