//! All diagnostics of a compilation: a closed enum over one enum per topic. Variants hold data and spans. Only this
//! module produces their text, and callers choose how to print it.

mod capability;
pub mod codes;
mod config;
mod consequence;
mod context;
mod extends;
mod faulty_value;
mod foreign_words;
mod hook;
mod interface;
mod item;
mod limit;
mod misplaced_key;
mod model;
mod palette;
mod parameter_user;
mod plan;
mod report;
mod skill;
mod spawn;
mod suggest;
mod syntax;
mod template;
mod unread_part;

use std::collections::{BTreeMap, BTreeSet};

use rye_grammar::{SourceId, Sources, Span, SyntaxError};
use serde::{Deserialize, Serialize};

pub use capability::{CapabilityError, RouteOfGrants};
pub use codes::CODES;
pub use config::ConfigError;
pub use context::ContextError;
pub use extends::ExtendsError;
pub(crate) use foreign_words::{help_for_tool, help_for_tool_word, known_tool};
pub use hook::HookError;
pub use interface::InterfaceError;
pub use item::ItemError;
pub use limit::LimitError;
pub use model::ModelError;
pub use palette::PaletteError;
pub use parameter_user::ParameterUser;
pub use plan::PlanError;
pub(crate) use report::sanitize;
pub use report::{Report, ReportHeader};
pub use report::{breaks_line, is_unprintable};
pub use skill::SkillError;
pub use spawn::SpawnError;
pub use suggest::closest;
pub use template::TemplateError;

/// An error, a warning or advice.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Diagnostic {
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    #[error(transparent)]
    Item(#[from] ItemError),
    #[error(transparent)]
    Extends(#[from] ExtendsError),
    #[error(transparent)]
    Context(#[from] ContextError),
    #[error(transparent)]
    Hook(#[from] HookError),
    #[error(transparent)]
    Capability(#[from] CapabilityError),
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Palette(#[from] PaletteError),
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Skill(#[from] SkillError),
    #[error(transparent)]
    Template(#[from] TemplateError),
}

/// The severity of a diagnostic: an error rejects the file, a warning does not, advice is a suggestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    Error,
    Warning,
    Advice,
}

/// A span of a source and the note that is shown at it. The first label of a diagnostic is its primary location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    pub span: Span,
    pub text: String,
}

/// The interface of the error types of diagnostics. Each topic of diagnostic codes, such as `extends` or `hook`, has
/// one error type. The message of a diagnostic is the `Display` output of its error.
pub trait Problem: std::error::Error {
    /// Returns the diagnostic code without the prefix `rye::`: the topic and the name, such as `extends::cycle`.
    fn code(&self) -> &'static str;
    fn severity(&self) -> Severity {
        Severity::Error
    }
    /// Returns the suggested fix; `None` if there is none.
    fn help(&self) -> Option<String>;
    fn labels(&self) -> Vec<Label>;
}

impl Diagnostic {
    /// Returns the diagnostic code without the prefix `rye::`: the topic and the name, such as `extends::cycle`. JSON
    /// prints [`Diagnostic::full_code`].
    pub fn code(&self) -> &'static str {
        self.problem().code()
    }

    /// Returns the code with its prefix: `rye::extends::cycle`.
    pub fn full_code(&self) -> String {
        format!("rye::{}", self.code())
    }

    pub fn severity(&self) -> Severity {
        self.problem().severity()
    }

    /// Returns the message: lower case, without a final period.
    pub fn message(&self) -> String {
        self.to_string()
    }

    /// Returns the suggested fix; `None` if there is none.
    pub fn help(&self) -> Option<String> {
        self.problem().help()
    }

    /// Returns the labels: first the label of the primary location, then the labels of related locations. Empty only if
    /// there is no text to label, as for an unreadable file.
    pub fn labels(&self) -> Vec<Label> {
        self.problem().labels()
    }

    /// Returns the path of the file, if the diagnostic concerns a whole file and therefore has no label.
    pub fn file(&self) -> Option<&str> {
        if let Self::Item(
            ItemError::Unrecognized { path, .. }
            | ItemError::OtherClient { path, .. }
            | ItemError::UnrecognizedProgram { path, .. }
            | ItemError::Unreadable { path, .. }
            | ItemError::Signature { path, .. }
            | ItemError::UntrustedKey { path, .. }
            | ItemError::Ambiguous { second: path, .. },
        )
        | Self::Config(
            ConfigError::UnknownFile { path, .. }
            | ConfigError::LockFile { path, .. }
            | ConfigError::Script { path, .. }
            | ConfigError::ScriptBranch { path, .. },
        )
        | Self::Context(ContextError::IgnoredFile { path, .. } | ContextError::FileTooLong { path, .. })
        | Self::Template(TemplateError::ImportOfContext { within: path, .. }) = self
        {
            return Some(path);
        }
        if let Self::Config(ConfigError::Invalid { file, span: None, .. }) = self {
            return file.rsplit_once(':').map(|(path, _)| path);
        }
        let Self::Config(ConfigError::Servers { why, .. }) = self else { return None };
        Some(if why.contains(MCP_SETTINGS) { MCP_SETTINGS } else { ".mcp.json" })
    }

    pub fn is_error(&self) -> bool {
        self.severity() == Severity::Error
    }

    /// Returns the kind and the id of the item that a diagnostic reports as missing, as `kind.dotted.id`; `None` for
    /// other diagnostics.
    fn missing_item(&self) -> Option<String> {
        let (kind, id) = if let Self::Item(ItemError::Unknown { kind, id, .. }) = self {
            (kind.as_str(), id)
        } else if let Self::Item(ItemError::UnknownCall { what, id, .. }) = self {
            (*what, id)
        } else if let Self::Extends(ExtendsError::Unknown { id, .. }) = self {
            ("directive", id)
        } else if let Self::Context(ContextError::UnknownItem { id, .. }) = self {
            ("knowledge", id)
        } else if let Self::Capability(CapabilityError::MatchesNothing { pattern, .. }) = self {
            let (_, item) = pattern.strip_prefix("rye.")?.split_once('.')?;
            return Some(item.to_owned());
        } else {
            return None;
        };
        Some(format!("{kind}.{}", id.replace('/', ".")))
    }

    fn problem(&self) -> &dyn Problem {
        match self {
            Self::Syntax(e) => e,
            Self::Item(e) => e,
            Self::Extends(e) => e,
            Self::Context(e) => e,
            Self::Hook(e) => e,
            Self::Capability(e) => e,
            Self::Interface(e) => e,
            Self::Limit(e) => e,
            Self::Config(e) => e,
            Self::Palette(e) => e,
            Self::Model(e) => e,
            Self::Spawn(e) => e,
            Self::Plan(e) => e,
            Self::Skill(e) => e,
            Self::Template(e) => e,
        }
    }
}

/// The settings file of MCP servers.
const MCP_SETTINGS: &str = ".ai/config/mcp.yaml";

/// The diagnostics in the order they were found, until [`Diagnostics::sort`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Diagnostics {
    all: Vec<Diagnostic>,
}

impl Diagnostics {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn push(&mut self, diagnostic: impl Into<Diagnostic>) {
        self.all.push(diagnostic.into());
    }

    pub fn append(&mut self, mut other: Self) {
        self.all.append(&mut other.all);
    }

    pub fn syntax(&mut self, errors: Vec<SyntaxError>) {
        self.all.extend(errors.into_iter().map(Diagnostic::from));
    }

    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.all.iter()
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn has_errors(&self) -> bool {
        self.all.iter().any(Diagnostic::is_error)
    }

    pub fn count(&self, severity: Severity) -> usize {
        self.all.iter().filter(|d| d.severity() == severity).count()
    }

    /// Keeps the diagnostics for which `keep` returns true.
    pub fn retain(&mut self, keep: impl FnMut(&Diagnostic) -> bool) {
        self.all.retain(keep);
    }

    /// Joins the reports about files that were signed with the same untrusted key, because the user trusts or rejects a
    /// key, not a file.
    pub(crate) fn group_untrusted_keys(&mut self) {
        let is_of_key = |one: &Diagnostic| matches!(one, Diagnostic::Item(ItemError::UntrustedKey { .. }));
        let (keyed, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.all).into_iter().partition(is_of_key);
        self.all = rest;
        let mut paths: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for one in keyed {
            if let Diagnostic::Item(ItemError::UntrustedKey { path, key_id, others }) = one {
                paths.entry(key_id).or_default().extend(others.into_iter().chain([path]));
            }
        }
        for (key_id, paths) in paths {
            let mut paths = paths.into_iter();
            if let Some(path) = paths.next() {
                self.push(ItemError::UntrustedKey { path, key_id, others: paths.collect() });
            }
        }
    }

    /// Keeps only one of the diagnostics that report the same missing item in the same file: the first error, else the
    /// first warning.
    fn drop_repeated_absences(&mut self) {
        let mut kept: BTreeMap<(SourceId, String), (Severity, u32)> = BTreeMap::new();
        let absence = |one: &Diagnostic| {
            let span = one.labels().first()?.span;
            Some(((span.source, one.missing_item()?), (one.severity(), span.start)))
        };
        for (key, rank) in self.all.iter().filter_map(absence) {
            let best = kept.entry(key).or_insert(rank);
            *best = (*best).min(rank);
        }
        self.all.retain(|one| absence(one).is_none_or(|(key, rank)| kept.get(&key) == Some(&rank)));
    }

    /// Sorts by file, then span, then code, and removes duplicates.
    pub fn sort(&mut self, sources: &Sources) {
        self.drop_repeated_absences();
        consequence::drop_consequences(&mut self.all, sources);
        let all = std::mem::take(&mut self.all);
        let mut keyed: Vec<_> = all
            .into_iter()
            .map(|d| {
                let first = d.labels().into_iter().next().map(|l| l.span);
                let file = first.and_then(|s| sources.get(s.source)).map(|s| s.path.clone());
                let place = first.map_or((0, 0), |s| (s.start, s.end));
                ((file, place, d.code(), d.message()), d)
            })
            .collect();
        keyed.sort_by(|(a, _), (b, _)| a.cmp(b));
        keyed.dedup_by(|(a, _), (b, _)| a == b);
        self.all = keyed.into_iter().map(|(_, d)| d).collect();
    }

    /// Returns the set of codes, for tests and summaries.
    pub fn codes(&self) -> BTreeSet<&'static str> {
        self.all.iter().map(Diagnostic::code).collect()
    }
}

impl IntoIterator for Diagnostics {
    type Item = Diagnostic;
    type IntoIter = std::vec::IntoIter<Diagnostic>;
    fn into_iter(self) -> Self::IntoIter {
        self.all.into_iter()
    }
}

impl<D: Into<Diagnostic>> Extend<D> for Diagnostics {
    fn extend<I: IntoIterator<Item = D>>(&mut self, iter: I) {
        self.all.extend(iter.into_iter().map(Into::into));
    }
}

/// A result with its diagnostics. `value` is `None` if the value would be wrong because of the errors.
#[derive(Debug, Clone)]
pub struct Checked<T> {
    pub value: Option<T>,
    pub diagnostics: Diagnostics,
}

impl<T> Checked<T> {
    pub fn new(value: Option<T>, diagnostics: Diagnostics) -> Self {
        Self { value, diagnostics }
    }

    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Checked<U> {
        Checked { value: self.value.map(f), diagnostics: self.diagnostics }
    }
}

fn new_label(span: Span, text: impl Into<String>) -> Label {
    Label { span, text: text.into() }
}

/// Returns "did you mean `x`?" if there is a suggestion, else the result of `otherwise`.
fn did_you_mean(suggestion: Option<&String>, otherwise: impl FnOnce() -> Option<String>) -> Option<String> {
    suggestion.map(|s| format!("did you mean `{s}`?")).or_else(otherwise)
}

/// Returns the help for a wrong value: suggests the expected word that is closest to the word that was found, or quotes
/// `expected` if no word is close. `found` and `expected` are phrases of an error message. The words are the parts in
/// backticks.
fn value_help(found: &str, expected: &str) -> Option<String> {
    let mut quoted = expected.split('`').skip(1).step_by(2);
    let near = found.split('`').nth(1).and_then(|word| closest(word, quoted.by_ref()));
    did_you_mean(near.as_ref(), || Some(format!("write {expected}")))
}

/// Joins at most `MAX_LISTED_WORDS` words, each in backticks, with commas. Appends the number of the other words.
pub(crate) fn quote_list(words: &[impl AsRef<str>]) -> String {
    quote_list_up_to(words, MAX_LISTED_WORDS)
}

/// Maximum number of words that [`quote_list`] lists.
const MAX_LISTED_WORDS: usize = 60;

/// Words for a list in a help text: the words that the list shows, and the number of the other words. The other words
/// are not stored, because a file can cause thousands of errors that each list hundreds of names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WordList {
    words: Vec<String>,
    more: usize,
}

impl WordList {
    pub fn new<'w>(words: impl ExactSizeIterator<Item = &'w String>) -> Self {
        let more = words.len().saturating_sub(MAX_LISTED_WORDS);
        Self { words: words.take(MAX_LISTED_WORDS).cloned().collect(), more }
    }

    fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Puts each word in backticks and joins the words with commas. If words were left out, adds their number.
    fn quoted(&self) -> String {
        let shown = quote_list(&self.words);
        if self.more == 0 { shown } else { format!("{shown} and {} more", self.more) }
    }
}

/// Joins the first `most` words, each in backticks. If there are more words, appends their number (such as `and 3
/// more`).
fn quote_list_up_to(words: &[impl AsRef<str>], most: usize) -> String {
    let shown: Vec<String> = words.iter().take(most).map(|w| format!("`{}`", w.as_ref())).collect();
    let more = words.len().saturating_sub(most);
    if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
}
