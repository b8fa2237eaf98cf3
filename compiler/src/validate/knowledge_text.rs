//! Checks the text of knowledge: the text is missing, or it has placeholders that nothing fills in (`language.md` 6).
//! `{input:…}` is filled in only in bodies and hooks, `${…}` only in knowledge that a hook fetches. Code is skipped.

use rye_grammar::Span;
use rye_grammar::condition::{Path, Segment};

use super::mistyped_placeholders::lines_outside_code;
use crate::compose::Composed;
use crate::diagnostics::{ContextError, Diagnostics, ItemError};
use crate::hook::HookPoint;
use crate::item::{Items, Knowledge};
use crate::semantics::hook_point::{self, PathMeaning};
use crate::world::Space;

/// Reports knowledge without text, and placeholders for inputs (`{input:name}`) in the text of knowledge, which are
/// never filled in.
pub fn check(items: &Items<'_>, knowledge: &Knowledge, found: &mut Diagnostics) {
    let body = &knowledge.body;
    if !super::body::has_text(&body.node) && !items.is_broken(knowledge.file.source) {
        let span = knowledge.name.as_ref().map_or(Span::new(knowledge.file.source, 0, 0), |name| name.span);
        found.push(ItemError::NoText { what: "knowledge", id: knowledge.file.id.to_string(), span });
        return;
    }
    super::merge_conflict::check(body, found);
    if !body.node.contains("{input:") {
        return;
    }
    for (text, at) in placeholders(&body.node, "{input:") {
        let name = text.strip_prefix("{input:").and_then(|rest| rest.strip_suffix('}')).unwrap_or_default();
        let name = name.split([':', '|', '?']).next().unwrap_or_default();
        if is_name(name) {
            report(
                knowledge,
                text,
                at,
                "placeholders are filled in only in the bodies of directives and in hooks",
                "write the placeholder into the body of the directive; if it is an example, put it in backticks",
                found,
            );
        }
    }
}

/// Reports placeholders for facts in knowledge of the project that the chain includes. Facts are filled in only in
/// knowledge that a hook fetches.
pub fn check_chain(composed: &Composed, found: &mut Diagnostics) {
    let point = hook_point::row_of(HookPoint::ThreadStarted);
    let items = composed.system.iter().chain(&composed.before).chain(&composed.after).map(|item| &item.knowledge);
    for knowledge in items.filter(|one| one.file.space == Space::Project && one.body.node.contains("${")) {
        for (text, at) in placeholders(&knowledge.body.node, "${") {
            let path = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')).unwrap_or_default();
            let path = path.split("||").next().unwrap_or_default().trim();
            let Some(path) = read_path(path) else { continue };
            if matches!(point.resolve_path(&path), PathMeaning::Fact(_) | PathMeaning::Input) {
                report(
                    knowledge,
                    text,
                    at,
                    "`<context>` injects this knowledge; placeholders are filled in only if a hook fetches it",
                    "fetch the knowledge with a hook on `thread_started`; if it is an example, put it in backticks",
                    found,
                );
            }
        }
    }
}

fn report(
    knowledge: &Knowledge,
    text: &str,
    at: usize,
    reason: &'static str,
    help: &'static str,
    found: &mut Diagnostics,
) {
    let body = &knowledge.body;
    let start = body.span.start as usize + at;
    let is_verbatim = body.span.len() == body.node.len();
    let span = if is_verbatim { Span::new(body.span.source, start, start + text.len()) } else { body.span };
    let (text, item) = (crate::item::shorten(text), knowledge.file.id.to_string());
    found.push(ContextError::Unfilled { text, item, reason, help, span });
}

/// Returns the texts that start with `open` and end at the next `}` of the line, with their byte offsets. Omits texts
/// in code, and texts after a `\` or `$`.
fn placeholders<'t>(text: &'t str, open: &str) -> Vec<(&'t str, usize)> {
    let mut all = Vec::new();
    for (line, start) in lines_outside_code(text) {
        let mut at = 0;
        while let Some(from) = line.get(at..).and_then(|rest| rest.find(open)).map(|i| at + i) {
            at = from + open.len();
            let in_code = line.get(..from).unwrap_or_default().matches('`').count() % 2 == 1;
            let escaped = line.get(..from).unwrap_or_default().ends_with(['\\', '$']);
            let close = line.get(at..).and_then(|rest| rest.find('}')).map(|i| at + i + 1);
            let (Some(close), false) = (close, in_code || escaped) else { continue };
            all.extend(line.get(from..close).map(|text| (text, start + from)));
            at = close;
        }
    }
    all
}

fn read_path(text: &str) -> Option<Path> {
    let segments: Option<Vec<Segment>> =
        text.split('.').map(|part| is_name(part).then(|| Segment::Name(part.to_owned()))).collect();
    segments.map(|segments| Path { segments })
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        placeholders(text, "${").into_iter().map(|(text, _)| text).collect()
    }

    #[test]
    fn placeholders_in_code_are_skipped() {
        assert_eq!(texts("a ${b} `${c}` $${d} \\${e} ${f"), ["${b}"]);
        assert_eq!(texts("```\n${a}\n```\n${b}\n~~~\n${c}\n~~~"), ["${b}"]);
    }
}
