//! A prompt template: a text that a user calls as `/name`, with placeholders for the arguments of the call.

mod arguments;
mod fill;

use rye_grammar::{Span, Spanned};

use super::FileRef;
use super::front_matter::FrontMatter;
use crate::diagnostics::{Diagnostics, ItemError, TemplateError};

pub(crate) use arguments::split_arguments;
pub(crate) use fill::MAX_FILLED_BYTES;
pub use fill::{FilledTemplate, fill};

/// Texts that the author probably meant as placeholders. The check reports them, because they are sent as they are.
const MISSPELT_PLACEHOLDERS: &[&str] = &["$0", "$ARGUMENT", "$ARGS", "$Arguments", "$arguments"];
/// Number of test arguments with which a template is filled, to find out which arguments its placeholders use.
const MAX_HINTED_ARGUMENTS: usize = 20;
/// The built-in commands of all front ends. A declared command cannot have one of these names.
pub const BUILT_IN_COMMANDS: [&str; 30] = [
    "help",
    "exit",
    "quit",
    "model",
    "mode",
    "with",
    "reload",
    "fork",
    "rewind",
    "retry",
    "compact",
    "name",
    "tree",
    "context",
    "preview",
    "cost",
    "queue",
    "clear",
    "budget",
    "new",
    "resume",
    "plan",
    "why",
    "hooks",
    "skills",
    "approvals",
    "export",
    "copy",
    "steer",
    "follow-up",
];

/// Maximum length in bytes of the name in a placeholder with braces, such as `{{name}}`.
const MAX_NAME_BYTES: usize = 160;

/// Keys of the front matter.
const KEYS: [&str; 2] = ["description", "argument-hint"];

#[derive(Debug, Clone)]
pub struct PromptTemplate {
    pub file: FileRef,
    /// SHA-256 of the whole file, in lowercase hex.
    pub sha256: String,
    pub description: Option<String>,
    pub argument_hint: Option<String>,
    /// The text with its placeholders, without front matter.
    pub body: Spanned<String>,
}

impl PromptTemplate {
    /// Returns the name that a user types after the slash: `a:b` for the id `a/b`.
    pub fn command(&self) -> String {
        self.file.id.as_str().replace('/', ":")
    }
}

/// Reads a template. Reports commands, imports and placeholders in the syntax of other clients, because rye sends them
/// as text.
pub fn read(file: FileRef, sha256: String, text: &str, found: &mut Diagnostics) -> PromptTemplate {
    let front = FrontMatter::read(&file, text, &KEYS, found);
    let description = front.string("description", found).map(|text| text.node);
    let hint = front.string("argument-hint", found);
    let (body, is_broken) = (front.body, front.is_broken);
    if body.node.trim().is_empty() && !is_broken {
        let span = Span::new(file.source, 0, 0);
        found.push(ItemError::NoText { what: "prompt template", id: file.id.to_string(), span });
    }
    let has_foreign = check_foreign_syntax(&body, found);
    check_arguments(hint.as_ref(), &body, has_foreign, found);
    let argument_hint = hint.map(|text| text.node);
    let name = file.id.as_str();
    if BUILT_IN_COMMANDS.contains(&name) {
        found.push(TemplateError::Hidden {
            name: name.to_owned(),
            is_built_in: true,
            span: Span::new(file.source, 0, text.lines().next().map_or(0, str::len)),
        });
    }
    PromptTemplate { file, sha256, description, argument_hint, body }
}

/// Reports misspelt placeholders in the body, and differences between the `argument-hint` and the placeholders.
/// `has_foreign` is true if the body contains placeholders of another syntax, which [`check_foreign_syntax`] reports.
/// If all placeholders of the body are misspelt or foreign, the hint is not checked, because the author may have meant
/// these placeholders.
fn check_arguments(hint: Option<&Spanned<String>>, body: &Spanned<String>, has_foreign: bool, found: &mut Diagnostics) {
    let mut is_misspelled = has_foreign;
    let before = found.len();
    let start = body.span.range().start;
    for word in MISSPELT_PLACEHOLDERS {
        let is_word = |at: usize| {
            let mut after = body.node.get(at + word.len()..).unwrap_or_default().chars();
            let next = after.next();
            // `$0.50` is an amount.
            let is_amount = next == Some('.') && after.next().is_some_and(|c| c.is_ascii_digit());
            let is_escaped = body.node.get(..at).is_some_and(|before| before.ends_with('$'));
            !next.is_some_and(|c| c.is_alphanumeric() || c == '_') && !is_amount && !is_escaped
        };
        if let Some((at, _)) = body.node.match_indices(word).find(|(at, _)| is_word(*at)) {
            let span = Span::new(body.span.source, start + at, start + at + word.len());
            found.push(TemplateError::MisspelledPlaceholder { text: (*word).to_owned(), span });
            is_misspelled = true;
        }
    }
    let filled = fill(&body.node, &vec![String::new(); MAX_HINTED_ARGUMENTS]);
    let used: Vec<usize> = (1..=MAX_HINTED_ARGUMENTS).filter(|number| !filled.unused.contains(number)).collect();
    check_hint(hint, used.last().copied(), is_misspelled, found);
    // `$ARGUMENTS` and `${@:2}` use all arguments, so they are no sign of a gap before the last argument.
    let last = used.last().filter(|last| **last < MAX_HINTED_ARGUMENTS);
    let Some(later) = last.filter(|_| found.len() == before && !is_misspelled) else { return };
    if let Some(number) = (1..*later).find(|number| !used.contains(number)) {
        let word = format!("${later}");
        let (at, length) = body.node.find(&word).map_or((0, 0), |at| (at, word.len()));
        let span = Span::new(body.span.source, start + at, start + at + length);
        found.push(TemplateError::SkippedArgument { number, later: *later, span });
    }
}

/// Reports differences between the `argument-hint` and the placeholders. `most` is the number of the last argument that
/// a placeholder names.
fn check_hint(hint: Option<&Spanned<String>>, most: Option<usize>, is_misspelled: bool, found: &mut Diagnostics) {
    let Some(hint) = hint.filter(|hint| !hint.node.trim().is_empty()) else { return };
    let hinted = match hint.node.matches(['<', '[']).count() {
        0 => capital_words(&hint.node),
        brackets => brackets,
    };
    match most {
        None if is_misspelled => {}
        None => found.push(TemplateError::UnusedArguments { span: hint.span }),
        Some(most) => {
            let is_open = most == MAX_HINTED_ARGUMENTS || hint.node.contains("...") || hint.node.contains('…');
            if hinted > 0 && most > hinted && !is_open {
                found.push(TemplateError::UnhintedArgument { number: most, hinted, span: hint.span });
            } else if hinted > most && !is_open && !is_misspelled {
                found.push(TemplateError::UnusedArgument { hinted, used: most, span: hint.span });
            }
        }
    }
}

/// Returns the number of words in a hint of the form `FILE FOCUS`; the result is 0 if the hint has another form.
fn capital_words(hint: &str) -> usize {
    let is_name = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-'))
    };
    if hint.split_whitespace().all(is_name) { hint.split_whitespace().count() } else { 0 }
}

/// Reports `` !`command` ``, lines that import a file, and placeholders of another syntax. Code fences are skipped.
/// Returns true if the body has placeholders of another syntax.
fn check_foreign_syntax(body: &Spanned<String>, found: &mut Diagnostics) -> bool {
    let mut has_placeholders = false;
    let mut at = body.span.range().start;
    let mut fence: Option<&str> = None;
    for line in body.node.split_inclusive('\n') {
        let start = at;
        at += line.len();
        let text = line.trim();
        match fence {
            Some(mark) => {
                if text.starts_with(mark) {
                    fence = None;
                }
                continue;
            }
            None => fence = ["```", "~~~"].into_iter().find(|mark| text.starts_with(mark)),
        }
        for (offset, length) in shell_commands(line) {
            let span = Span::new(body.span.source, start + offset, start + offset + length);
            found.push(TemplateError::Shell { span });
        }
        for (offset, length) in foreign_placeholders(line) {
            let span = Span::new(body.span.source, start + offset, start + offset + length);
            let text = line.get(offset..offset + length).unwrap_or_default().to_owned();
            found.push(TemplateError::Placeholder { text, span });
            has_placeholders = true;
        }
        if let Some(path) = imported_path(text) {
            let offset = start + (line.len() - line.trim_start().len());
            let span = Span::new(body.span.source, offset, offset + text.len());
            found.push(TemplateError::Import { path: path.to_owned(), span });
            continue;
        }
        for (offset, word) in mentioned_files(line) {
            let span = Span::new(body.span.source, start + offset, start + offset + word.len());
            found.push(TemplateError::Import { path: word.get(1..).unwrap_or_default().to_owned(), span });
        }
    }
    has_placeholders
}

/// Returns the paths of the lines that import a file, outside of code fences.
pub(crate) fn imported_paths(text: &str) -> Vec<&str> {
    let mut is_code = false;
    let lines = text.lines().map(str::trim).filter(|line| {
        let is_fence = line.starts_with("```") || line.starts_with("~~~");
        is_code ^= is_fence;
        !is_fence && !is_code
    });
    lines.filter_map(imported_path).collect()
}

/// Returns the offset and the text of each `@path` of a line outside of backticks. A path names a file with a known
/// extension, so that mentions (`@alice`), decorators (`@app.route`) and package names (`@types/node`) are not returned.
fn mentioned_files(line: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let (mut offset, mut in_code) = (0, false);
    for part in line.split_inclusive(char::is_whitespace) {
        let word = part.trim_end();
        let start = word.trim_start_matches(['(', '"', '\'', '[']);
        let path = start.trim_end_matches(['.', ',', ':', ';', ')', '"', '\'', ']', '!', '?']);
        if path.starts_with('@') && !in_code && has_file_extension(path) {
            found.push((offset + word.len() - start.len(), path));
        }
        in_code ^= part.matches('`').count() % 2 == 1;
        offset += part.len();
    }
    found
}

/// Returns true if the last segment of a path ends with the extension of a file that other clients import.
fn has_file_extension(path: &str) -> bool {
    const EXTENSIONS: [&str; 24] = [
        "md", "txt", "json", "yaml", "yml", "toml", "py", "js", "ts", "tsx", "jsx", "rs", "go", "sh", "html", "css",
        "csv", "xml", "java", "sql", "rb", "cfg", "ini", "log",
    ];
    let name = path.rsplit(['/', '@']).next().unwrap_or_default();
    name.rsplit_once('.').is_some_and(|(stem, extension)| !stem.is_empty() && EXTENSIONS.contains(&extension))
}

/// Returns the byte offset and the length of each `` !`command` `` in a line. Skips a command that directly follows a
/// word or a backtick.
fn shell_commands(line: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(start) = line.get(from..).and_then(|rest| rest.find("!`")).map(|offset| from + offset) {
        let Some(length) = line.get(start + 2..).and_then(|inside| inside.find('`')) else { break };
        let follows_word = line.get(..start).and_then(|before| before.chars().next_back());
        if length > 0 && !follows_word.is_some_and(|c| c.is_alphanumeric() || c == '`') {
            found.push((start, length + 3));
        }
        from = start + length + 3;
    }
    found
}

/// Returns the offset and the length of each placeholder of a directive (`{input:name}`) or of another template
/// language (`{{name}}`, `${name}`), outside of backticks. `${NAME}` in capitals is not returned, because it may be a
/// variable of a shell.
fn foreign_placeholders(line: &str) -> Vec<(usize, usize)> {
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let (mut found, mut at, mut counted, mut in_code) = (Vec::new(), 0, 0, false);
    while let Some(open) = line.get(at..).and_then(|rest| rest.find('{')).map(|i| at + i) {
        in_code ^= line.get(counted..open).unwrap_or_default().matches('`').count() % 2 == 1;
        (counted, at) = (open, open + 1);
        let rest = line.get(open..).unwrap_or_default();
        let is_double = rest.starts_with("{{");
        let (start, close) = if is_double { (2, "}}") } else { (1, "}") };
        let inside = rest
            .get(start..)
            .and_then(|rest| rest.get(..rest.bytes().take(MAX_NAME_BYTES).position(|byte| byte == b'}')?));
        let Some(inside) = inside.filter(|_| !in_code) else { continue };
        let length = start + inside.len() + close.len();
        let name = inside.trim();
        if let Some(before) = line.get(..open).and_then(|before| before.strip_suffix('$')) {
            let is_argument = !is_double && is_name(inside) && inside.starts_with(|c: char| c.is_ascii_lowercase());
            let is_number = !is_double && inside.starts_with(|c: char| c.is_ascii_digit()) && !is_numbered(inside);
            if (is_argument || is_number) && !before.ends_with(['$', '\\']) {
                found.push((open - 1, length + 1));
            }
            continue;
        }
        let is_input =
            name.split_once(':').is_some_and(|(word, name)| matches!(word, "input" | "inputs") && is_name(name));
        if (is_input || (is_double && is_name(name))) && rest.get(..length).is_some_and(|text| text.ends_with(close)) {
            found.push((open, length));
            at = open + length;
        }
    }
    found
}

/// Returns true for the inside of a placeholder `${1}` or `${1:-default}`.
fn is_numbered(inside: &str) -> bool {
    let rest = inside.trim_start_matches(|c: char| c.is_ascii_digit());
    rest.is_empty() || rest.starts_with(":-")
}

/// Returns the path that a line of the form `@path` or `@import path` names; `None` for other lines. A mention such as
/// `@alice` is not a path.
fn imported_path(line: &str) -> Option<&str> {
    let rest = line.strip_prefix('@')?;
    let (word, after) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    if word == "import" {
        return Some(after.trim()).filter(|path| !path.is_empty());
    }
    let is_path = word.contains('/') || word.trim_end_matches(['.', ',', ':']).contains('.');
    is_path.then_some(word)
}

#[cfg(test)]
mod tests;
