//! Consequences of a value of the wrong form: a number that is cut at its comma, a list where names are expected, or a
//! key that only tools of another kind have. Only the value itself is reported.

#![expect(clippy::wildcard_enum_match_arm, reason = "few diagnostics are a consequence of others")]

use std::collections::BTreeSet;

use rye_grammar::{SourceId, Span};

use super::{ConfigError, Diagnostic, ItemError, ModelError};

/// Returns true for a key that is probably the rest of a number: the `000` of `1,000` in a flow mapping.
pub(super) fn is_digit_group(key: &str) -> bool {
    key.len() == 3 && key.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the help for a key that is probably the rest of a number; `None` for any other key.
pub(super) fn separator_help(key: &str) -> Option<String> {
    is_digit_group(key).then(|| "a number has no separators, such as the comma of `1,000`".to_owned())
}

/// Returns the indexes of diagnostics that disappear once a value of the wrong form is corrected.
pub(super) fn consequences(all: &[Diagnostic]) -> BTreeSet<usize> {
    let causes = FaultyValues::of(all);
    all.iter().enumerate().filter(|(_, one)| causes.explain(one)).map(|(index, _)| index).collect()
}

/// The values of the wrong form.
#[derive(Default)]
struct FaultyValues {
    /// Places of digit groups that became keys.
    digit_groups: Vec<Span>,
    /// Settings files in which a blank other than a space indents a key, so that the key does not belong to the
    /// intended mapping.
    indented: BTreeSet<SourceId>,
    /// Models with an implausible context window.
    windows: BTreeSet<String>,
    /// Provider files whose `models` is not a list.
    model_files: BTreeSet<String>,
    /// Tools whose `properties` is not a mapping.
    properties: BTreeSet<SourceId>,
    /// Tools whose file sets a key that only tools of another `kind` have.
    kinds: BTreeSet<SourceId>,
    /// Scripts whose header is below their first command.
    headers: BTreeSet<SourceId>,
}

impl FaultyValues {
    fn of(all: &[Diagnostic]) -> Self {
        let mut causes = Self::default();
        for one in all {
            match one {
                Diagnostic::Item(ItemError::UnknownKey { what: "key", key, span, .. }) if is_digit_group(key) => {
                    causes.digit_groups.push(*span);
                }
                Diagnostic::Item(ItemError::UnknownKey { what: "key", key, span, .. })
                    if key.starts_with(|c: char| c != ' ' && c.is_whitespace()) =>
                {
                    causes.indented.insert(span.source);
                }
                Diagnostic::Config(ConfigError::Implausible { key, .. }) => {
                    let model = key.strip_prefix("models.").and_then(|key| key.strip_suffix(".context_window"));
                    causes.windows.extend(model.map(str::to_owned));
                }
                Diagnostic::Config(ConfigError::Invalid { file, key, found, .. })
                    if key == "models" && found != "missing" =>
                {
                    causes.model_files.insert(file.clone());
                }
                Diagnostic::Item(ItemError::ToolValue { message, span, .. }) => {
                    if message.starts_with("`properties` must be") {
                        causes.properties.insert(span.source);
                    }
                    if message.starts_with("a tool of kind `") && message.contains("` has no key `") {
                        causes.kinds.insert(span.source);
                    }
                }
                Diagnostic::Item(ItemError::ToolMissing { help: Some(help), span, .. })
                    if help.starts_with("move the `") =>
                {
                    causes.headers.insert(span.source);
                }
                _ => {}
            }
        }
        causes
    }

    fn explain(&self, one: &Diagnostic) -> bool {
        match one {
            Diagnostic::Config(ConfigError::Implausible { span, .. }) => self.is_before_digit_group(*span),
            Diagnostic::Config(ConfigError::Invalid { file, key, found, span, .. }) => {
                let is_emptied = |span: Span| found == "null" && self.indented.contains(&span.source);
                span.is_some_and(|span| self.is_before_digit_group(span) || is_emptied(span))
                    || (key.starts_with("tiers.") && self.model_files.contains(file))
            }
            Diagnostic::Model(ModelError::SmallWindow { model, .. }) => self.windows.contains(model),
            Diagnostic::Item(ItemError::ToolValue { message, span, .. }) => {
                let is_about_a_name = message.ends_with("is not a parameter of this tool")
                    || message.ends_with("is required but not declared");
                is_about_a_name && self.properties.contains(&span.source)
            }
            Diagnostic::Item(ItemError::ToolMissing { span, .. }) => self.kinds.contains(&span.source),
            Diagnostic::Item(ItemError::ScriptParameter { span, .. }) => self.headers.contains(&span.source),
            _ => false,
        }
    }

    /// Returns true for the place of a number that a comma separates from a digit group.
    fn is_before_digit_group(&self, number: Span) -> bool {
        let follows = |group: &Span| (1..=2).contains(&group.start.saturating_sub(number.end));
        self.digit_groups.iter().any(|group| group.source == number.source && follows(group))
    }
}
