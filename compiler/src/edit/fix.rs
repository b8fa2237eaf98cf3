//! Fixes that are safe to apply without a decision by the user. A misspelled word is replaced by the closest word of a
//! fixed list, and a wrong name by the name that the file's path requires. A word that may be meant as the name of
//! another item or input is never replaced.

use rye_grammar::source::Source;
use rye_grammar::xml::Element;
use rye_grammar::{SourceId, Sources, Span};

use super::Edit;
use crate::diagnostics::{Diagnostic, HookError, ItemError, LimitError};

/// Maximum edit distance between the name of a script's constant and the known name that replaces it.
const MAX_CONSTANT_DISTANCE: usize = 2;
/// Minimum number of letters of a word in which two wrong letters still count as a misspelling.
const LONG_WORD_LETTERS: usize = 8;
/// Words around the name of a limit that do not change its meaning: `max_turns` is `turns`.
const LIMIT_AFFIXES: [&str; 4] = ["max", "maximum", "limit", "limits"];

/// The fix of one diagnostic. All of its edits apply to one text, and they are applied together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fix {
    pub source: SourceId,
    pub edits: Vec<Edit>,
}

/// Returns the fix of a diagnostic; `None` if no fix is safe. A word is only replaced if the text at the span of the
/// diagnostic is exactly this word; the fix of a syntax error is the parser's suggestion without a change.
pub fn fix(diagnostic: &Diagnostic, sources: &Sources) -> Option<Fix> {
    if let Diagnostic::Syntax(error) = diagnostic {
        let source = error.replacements.first()?.0.source;
        let edits = error.replacements.iter().map(|(span, text)| Edit::new(span.range(), text)).collect();
        return Some(Fix { source, edits });
    }
    let (word, span, instead) = find_replacement(diagnostic, sources)?;
    let source = sources.get(span.source)?;
    if sources.slice(span) != word || instead.chars().any(|c| c.is_control() || "<>&\"'".contains(c)) {
        return None;
    }
    // No fix is offered if the word is not a misspelling of `instead` (such as a word of another agent system), or if
    // the help suggests another word.
    let is_wrong_name = matches!(diagnostic, Diagnostic::Item(ItemError::NameMismatch { .. }));
    if !is_wrong_name && !is_misspelling(word, instead) {
        return None;
    }
    let names = |help: &String| help.contains(&format!("`{instead}`")) || help.contains(&format!("\"{instead}\""));
    if !diagnostic.help().as_ref().is_some_and(names) {
        return None;
    }
    let mut edits = vec![Edit::new(span.range(), instead)];
    if follows_opening_bracket(source, span) {
        edits.extend(end_tag_edit(source, span, instead)?);
    }
    Some(Fix { source: span.source, edits })
}

/// Returns the wrong word of a diagnostic, its span and its replacement; `None` if the diagnostic has no replacement
/// that is safe to apply.
fn find_replacement<'d>(diagnostic: &'d Diagnostic, sources: &'d Sources) -> Option<(&'d str, Span, &'d str)> {
    if let Diagnostic::Item(error) = diagnostic {
        return match error {
            ItemError::UnknownKey { what: "element" | "attribute" | "key" | "code", key, span, suggestion, .. } => {
                Some((key, *span, suggestion.as_deref()?))
            }
            ItemError::NameMismatch { written, expected, span, .. } if !expected.is_empty() => {
                Some((written, *span, expected))
            }
            ItemError::UnknownBuiltin { name, span, suggestion, .. } => Some((name, *span, suggestion.as_deref()?)),
            // A script may define constants of any name. A name that differs in more characters is probably not a
            // misspelling.
            ItemError::NearConstant { name, span, suggestion, .. }
                if strsim::damerau_levenshtein(name, suggestion) <= MAX_CONSTANT_DISTANCE =>
            {
                Some((name, *span, suggestion))
            }
            ItemError::ToolKey { span, help, .. } => {
                let meant = help.as_deref()?.strip_prefix("did you mean `")?.strip_suffix("`?")?;
                Some((sources.slice(*span), *span, meant))
            }
            ItemError::UnreadMetadata { key, span, suggestion } => Some((key, *span, suggestion.as_deref()?)),
            ItemError::UnknownKey { .. }
            | ItemError::NameMismatch { .. }
            | ItemError::NearConstant { .. }
            | ItemError::KnowledgeMismatch { .. }
            | ItemError::Dangling { .. }
            | ItemError::ForeignTool { .. }
            | ItemError::Unexported { .. }
            | ItemError::FrontMatter { .. }
            | ItemError::Unknown { .. }
            | ItemError::OtherKind { .. }
            | ItemError::EscapesSpace { .. }
            | ItemError::InvalidValue { .. }
            | ItemError::Missing { .. }
            | ItemError::Repeated { .. }
            | ItemError::ToolMissing { .. }
            | ItemError::ToolValue { .. }
            | ItemError::ServerSchema { .. }
            | ItemError::ServerTask { .. }
            | ItemError::Unreadable { .. }
            | ItemError::Ambiguous { .. }
            | ItemError::Signature { .. }
            | ItemError::Unsigned { .. }
            | ItemError::UntrustedKey { .. }
            | ItemError::LateSignature { .. }
            | ItemError::Unrecognized { .. }
            | ItemError::OtherClient { .. }
            | ItemError::UnrecognizedProgram { .. }
            | ItemError::UnknownCall { .. }
            | ItemError::Shadows { .. }
            | ItemError::ShadowsFile { .. }
            | ItemError::InvalidFrontMatter { .. }
            | ItemError::Version { .. }
            | ItemError::NoText { .. }
            | ItemError::UnusedParameter { .. }
            | ItemError::RequestPart { .. }
            | ItemError::UnusedVariable { .. }
            | ItemError::RequestVariable { .. }
            | ItemError::CodeParameter { .. }
            | ItemError::ShellSyntax { .. }
            | ItemError::ScriptParameter { .. }
            | ItemError::OddText { .. }
            | ItemError::LostResult { .. }
            | ItemError::Silent { .. } => None,
        };
    }
    if let Diagnostic::Limit(LimitError::Unknown { name, span: Some(span), suggestion: Some(meant), .. }) = diagnostic {
        // The label of a limit covers name and value; the name comes first.
        let span = Span { end: span.start.saturating_add(u32::try_from(name.len()).ok()?), ..*span };
        return Some((name, span, meant));
    }
    if let Diagnostic::Hook(
        HookError::UnknownEvent { event: word, span, suggestion: Some(meant) }
        | HookError::UnknownFact { path: word, span, suggestion: Some(meant), .. }
        | HookError::WrongAction { action: word, span, suggestion: Some(meant), .. },
    ) = diagnostic
    {
        return Some((word, *span, meant));
    }
    None
}

/// Returns true if `word` can only be a misspelling of `meant`. The names differ only in punctuation, or have the same
/// number of words, with at most one wrong letter in a word (two in a long word). Words of [`LIMIT_AFFIXES`] in `word`
/// are ignored. Any other additional word can change the meaning (`duration` and `duration_ms`).
fn is_misspelling(word: &str, meant: &str) -> bool {
    let (written, meant) = (split_words(word), split_words(meant));
    if written.concat() == meant.concat() {
        return true;
    }
    let without_affixes: Vec<&String> = written.iter().filter(|word| !LIMIT_AFFIXES.contains(&word.as_str())).collect();
    are_misspelled(&written.iter().collect::<Vec<_>>(), &meant) || are_misspelled(&without_affixes, &meant)
}

fn are_misspelled(written: &[&String], meant: &[String]) -> bool {
    written.len() == meant.len()
        && written.iter().zip(meant).all(|(word, meant)| {
            let letters = meant.chars().count();
            let allowed = if letters >= LONG_WORD_LETTERS { 2 } else { usize::from(letters > 2) };
            *word == meant || strsim::osa_distance(word, meant) <= allowed
        })
}

/// Splits a name into its words, in lower case: at punctuation, and before a capital letter that follows a small one.
fn split_words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_small = false;
    for c in name.chars() {
        let starts_word = !c.is_alphanumeric() || (c.is_uppercase() && is_small);
        if starts_word && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
        is_small = c.is_lowercase() || c.is_numeric();
    }
    words.retain(|word| !word.is_empty());
    words
}

fn follows_opening_bracket(source: &Source, span: Span) -> bool {
    source.text.get(..span.start as usize).is_some_and(|before| before.ends_with('<'))
}

/// Returns the edit that renames an end tag to `instead`, for a fix that renames the start tag at `span`. The list is
/// empty if the element closes itself. `None` if the element cannot be found, in which case the caller offers no fix.
fn end_tag_edit(source: &Source, span: Span, instead: &str) -> Option<Vec<Edit>> {
    let parsed = rye_grammar::directive::parse(span.source, &source.text);
    let element = find_element(parsed.tree.root.as_ref()?, span)?;
    let end = element.span.end as usize;
    let whole = source.text.get(element.span.range())?;
    if whole.ends_with("/>") {
        return Some(Vec::new());
    }
    let open = element.span.start as usize + whole.rfind("</")?;
    let name = open + 2..open + 2 + element.name.node.len();
    (source.text.get(name.clone())? == element.name.node && name.end < end).then(|| vec![Edit::new(name, instead)])
}

fn find_element(element: &Element, name: Span) -> Option<&Element> {
    if element.name.span == name {
        return Some(element);
    }
    element.elements().find_map(|child| find_element(child, name))
}
