//! Texts of an action that look like placeholders but stay text: `{turn}`, `{{turn}}` and `$turn` in place of
//! `${turn}`.

use std::ops::Range;

use rye_grammar::condition::{Path, Segment};

/// Maximum length in bytes of a path in such a text.
const MAX_PATH_BYTES: usize = 160;

/// Returns the paths that stand in one or two pairs of braces or after a `$`, with the byte range of each path and its
/// marks. Placeholders, texts in backticks, and texts after a backslash are left out.
pub fn find(text: &str) -> Vec<(Range<usize>, Path)> {
    let mut found = Vec::new();
    let (mut at, mut counted, mut in_code) = (0, 0, false);
    while let Some(open) = text.get(at..).and_then(|rest| rest.find(['{', '$'])).map(|i| at + i) {
        at = open + 1;
        // Only the backticks since the last mark are counted, so that a long text is not scanned again for each mark.
        in_code ^= text.get(counted..open).unwrap_or_default().matches('`').count() % 2 == 1;
        counted = open;
        let (before, rest) = text.split_at(open);
        let marks = ["${", "{{", "{", "$"];
        let Some(mark) = marks.into_iter().find(|mark| rest.starts_with(mark)) else { continue };
        let after = rest.get(mark.len()..).unwrap_or_default();
        if mark == "${" {
            at = open + mark.len();
            continue;
        }
        let padded = after.trim_start_matches(|c: char| c == ' ' && mark.starts_with('{'));
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
        let length = padded.bytes().take(MAX_PATH_BYTES).take_while(is_part).count();
        let (name, end) = padded.split_at(length);
        // A period that ends a sentence does not belong to the path after a `$`.
        let (name, end) = if mark == "$" {
            let name = name.trim_end_matches('.');
            (name, padded.get(name.len()..).unwrap_or_default())
        } else {
            (name, end.trim_start_matches(' '))
        };
        let close = match mark {
            "{{" => "}}",
            "{" => "}",
            _ => "",
        };
        let Some(path) = parse_path(name).filter(|_| end.starts_with(close)) else { continue };
        let stop = text.len() - end.len() + close.len();
        if !(in_code || before.ends_with('\\')) {
            found.push((open..stop, path));
        }
        at = stop;
    }
    found
}

fn parse_path(text: &str) -> Option<Path> {
    let segment = |part: &str| match part.bytes().next()? {
        b'0'..=b'9' => part.parse().ok().map(Segment::Number),
        _ => Some(Segment::Name(part.to_owned())),
    };
    let segments: Vec<Segment> = text.split('.').map(segment).collect::<Option<_>>()?;
    matches!(segments.first(), Some(Segment::Name(_))).then_some(Path { segments })
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn paths_in_the_braces_of_other_languages_are_found() {
        let paths = |text: &str| {
            let found = find(text).into_iter().map(|(range, path)| (text.get(range), path.to_string()));
            found.map(|(written, path)| format!("{} {path}", written.unwrap_or_default())).collect::<Vec<_>>()
        };
        assert_eq!(paths("It failed: {result.content}"), ["{result.content} result.content"]);
        assert_eq!(
            paths("no {call.name} {{ turn }} $turn."),
            ["{call.name} call.name", "{{ turn }} turn", "$turn turn"]
        );
        for text in [
            "${turn} ${call.input.path}",
            "{\"a\": 1}",
            "`{turn}` \\{turn}",
            "{input:turn}",
            "{",
            "$",
            "$5",
            "{}",
            "{a b}",
        ] {
            assert_eq!(paths(text), [""; 0], "{text}");
        }
    }
}
