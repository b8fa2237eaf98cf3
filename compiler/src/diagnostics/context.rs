//! `context::*`: knowledge that the chain or a hook injects, and suppressions.

use rye_grammar::Span;
use thiserror::Error;

use super::{Label, Problem, Severity, did_you_mean, new_label};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ContextError {
    /// A reference to knowledge that does not exist. `by_hook` is the hook that fetches the knowledge; `None` if no
    /// hook fetches it.
    #[error("unknown knowledge `{id}`")]
    UnknownItem { id: String, span: Span, suggestion: Option<String>, by_hook: Option<String> },
    /// A context file that does not fit into the budget of context files. `left` is the number of tokens left in the
    /// budget.
    #[error("the context file `{path}` has {tokens} tokens, but only {left} tokens of the budget are left")]
    FileTooLong { path: String, tokens: u64, left: u64, budget: u64 },
    /// A context file that is not used, because its folder has a context file of a higher rank with another text (such
    /// as `CLAUDE.md` beside `AGENTS.md`). `used` is the path of the file with the higher rank; `is_empty` is true if
    /// the used file has no text.
    #[error(
        "the context file `{path}` is not used: `{used}` takes precedence and {}",
        if *is_empty { "is empty" } else { "has a different text" }
    )]
    IgnoredFile { path: String, used: String, is_empty: bool },
    /// An item that is declared twice in one chain. The first declaration sets its position.
    #[error("`{id}` is declared twice: in `<{kept}>` and in `<{dropped}>`")]
    Duplicate { id: String, kept: &'static str, dropped: &'static str, first: Span, second: Span },
    /// A suppression that removes nothing. `guard` is the place and the event of the hook in a hook file that has this
    /// id; `None` if there is no such hook.
    #[error("{}", suppresses_nothing(id, *guard))]
    SuppressesNothing { id: String, span: Span, suggestion: Option<String>, guard: Option<(Span, &'static str)> },
    #[error("`{id}` is declared and suppressed by the same file")]
    SuppressedAndDeclared { id: String, declared: Span, suppressed: Span },
    #[error("the knowledge `{id}` is never injected, and no directive may fetch it")]
    Unreached { id: String, span: Span },
    /// Knowledge that `hook` injects into a new thread, but that is not injected into a continuation. `directive` is
    /// one of the directives whose continuations lack the knowledge.
    #[error("a continuation of `{directive}` does not inject `{item}` again")]
    NotRestored { hook: String, item: String, directive: String, span: Span },
    /// A grant of a continuation directive that the continued thread does not have, so that the continuation does not
    /// get the grant either. `pattern` is the pattern of the grant.
    #[error("the grant `{pattern}` of `{continuation}` has no effect in a continuation of `{directive}`")]
    ContinuationGrants { directive: String, continuation: String, pattern: String, span: Span, granted: Span },
    /// A placeholder in knowledge that is never filled in. The placeholder is sent unchanged. `reason` states where
    /// placeholders are filled in.
    #[error("`{text}` in the knowledge `{item}` is sent unchanged: {reason}")]
    Unfilled { text: String, item: String, reason: &'static str, help: &'static str, span: Span },
    #[error("a `resume_ceiling_tokens` of {tokens} does not work for continuations")]
    Ceiling { tokens: u64, because: String, window: Option<Span>, span: Span },
    /// Equal paragraphs that a request contains twice. `directive` is an example of a directive whose requests contain
    /// both.
    #[error("`{directive}` sends the same {tokens} tokens twice")]
    RepeatedParagraph { tokens: u64, directive: String, first: Span, second: Span },
    /// A part of the prompt that changes and precedes stable tokens, so that the provider's cache cannot hold them.
    /// `part` is the changing part. `when` and `per` state how often the part changes. `price` is the additional cost
    /// without the cache, in decimal dollars per 100 `per`, with the id of the model whose prices apply.
    #[error("{part} changes {when} but precedes {tokens} stable tokens")]
    VolatilePrefix {
        part: String,
        severity: Severity,
        when: &'static str,
        directive: String,
        tokens: u64,
        per: &'static str,
        price: Option<(String, String)>,
        span: Span,
    },
}

impl Problem for ContextError {
    fn code(&self) -> &'static str {
        match self {
            Self::UnknownItem { .. } => "context::unknown-item",
            Self::FileTooLong { .. } => "context::file-too-long",
            Self::IgnoredFile { .. } => "context::ignored-file",
            Self::Duplicate { .. } => "context::duplicate",
            Self::SuppressesNothing { .. } => "context::suppresses-nothing",
            Self::SuppressedAndDeclared { .. } => "context::suppressed-and-declared",
            Self::Unreached { .. } => "context::unreached",
            Self::NotRestored { .. } => "context::not-restored",
            Self::Ceiling { .. } => "context::resume-ceiling",
            Self::ContinuationGrants { .. } => "context::continuation-grants",
            Self::Unfilled { .. } => "context::unfilled-placeholder",
            Self::RepeatedParagraph { .. } => "context::repeated-paragraph",
            Self::VolatilePrefix { .. } => "context::volatile-prefix",
        }
    }

    fn severity(&self) -> Severity {
        match self {
            Self::UnknownItem { .. } | Self::FileTooLong { .. } => Severity::Error,
            Self::IgnoredFile { .. }
            | Self::Duplicate { .. }
            | Self::SuppressesNothing { .. }
            | Self::SuppressedAndDeclared { .. }
            | Self::Unreached { .. }
            | Self::NotRestored { .. }
            | Self::Ceiling { .. }
            | Self::ContinuationGrants { .. }
            | Self::Unfilled { .. }
            | Self::RepeatedParagraph { .. } => Severity::Warning,
            Self::VolatilePrefix { severity, .. } => *severity,
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            Self::UnknownItem { id, suggestion, .. } => did_you_mean(suggestion.as_ref(), || {
                Some(format!("create `.ai/knowledge/{id}.md`, or name knowledge that exists"))
            }),
            Self::FileTooLong { budget, .. } => Some(format!(
                "context files may have {budget} tokens in total: shorten the file, move parts of it to skills, or raise `context_files.max_tokens` in `agent/chat`"
            )),
            Self::IgnoredFile { path, used, is_empty: true } => {
                Some(format!("remove `{used}`, so that `{path}` is used; or remove `{path}` if no text is intended"))
            }
            Self::IgnoredFile { path, used, is_empty: false } => Some(format!(
                "merge both texts into `{used}` and remove `{path}`, or replace `{path}` by a link to `{used}`"
            )),
            Self::Duplicate { kept, .. } => {
                Some(format!("the knowledge is sent once, in `<{kept}>`: remove the other line"))
            }
            Self::SuppressesNothing { guard: Some(_), .. } => {
                Some("remove the line; `enabled: false` in a hook file removes the hook for all directives".into())
            }
            Self::SuppressesNothing { suggestion, .. } => did_you_mean(suggestion.as_ref(), || {
                Some("remove the line, or name a hook, or knowledge that the chain or a hook injects".into())
            }),
            Self::SuppressedAndDeclared { .. } => {
                Some("the suppression takes precedence: remove one of the two lines".into())
            }
            Self::Unreached { id, .. } => Some(format!(
                "name the knowledge in a `<context>` or a hook, grant `rye.fetch.knowledge.{}`, or remove the file",
                id.replace('/', ".")
            )),
            Self::NotRestored { item, .. } => Some(format!(
                "add a hook on `thread_continued` that fetches `{item}`, or lower `tokens` so that the context never fills up"
            )),
            Self::Ceiling { because, .. } => Some(because.clone()),
            Self::ContinuationGrants { directive, .. } => Some(format!(
                "grant the pattern in `{directive}`, or remove the grant from the continuation directive: a continuation keeps the grants of its thread and uses only the text of the continuation directive"
            )),
            Self::Unfilled { help, .. } => Some((*help).to_owned()),
            Self::RepeatedParagraph { .. } => Some(
                "remove one of the two copies, or move the paragraph to a knowledge item that both places name".into(),
            ),
            Self::VolatilePrefix { per, price, .. } => Some(match price {
                Some((price, model)) => format!(
                    "move the changing part behind the stable tokens, so that the cache can hold these tokens: without the cache, the tokens cost {price} dollars more per 100 {per} of `{model}`"
                ),
                None => {
                    "move the changing part behind the stable tokens, so that the cache can hold these tokens".into()
                }
            }),
        }
    }

    fn labels(&self) -> Vec<Label> {
        match self {
            Self::UnknownItem { span, by_hook, .. } => {
                let text = by_hook.as_ref().map_or_else(
                    || "no knowledge has this id".to_owned(),
                    |hook| format!("fetched by the hook `{hook}`; no knowledge has this id"),
                );
                vec![new_label(*span, text)]
            }
            Self::FileTooLong { .. } | Self::IgnoredFile { .. } => Vec::new(),
            Self::Duplicate { kept, first, second, .. } => {
                vec![new_label(*second, "declared again here"), new_label(*first, format!("used here, in `<{kept}>`"))]
            }
            Self::SuppressesNothing { span, guard, .. } => {
                let declared = guard.map(|(declared, _)| new_label(declared, "declared here"));
                std::iter::once(new_label(*span, "no effect")).chain(declared).collect()
            }
            Self::Unreached { span, .. } => vec![new_label(*span, "never sent")],
            Self::NotRestored { hook, span, .. } => {
                vec![new_label(*span, format!("`{hook}` injects the knowledge only into a new thread"))]
            }
            Self::Ceiling { window, span, .. } => {
                let window = window.map(|window| new_label(window, "a window that is too small for this ceiling"));
                window.into_iter().chain([new_label(*span, "set here")]).collect()
            }
            Self::ContinuationGrants { span, granted, .. } => {
                vec![
                    new_label(*span, "only the text of this directive is used"),
                    new_label(*granted, "this grant has no effect in a continuation"),
                ]
            }
            Self::Unfilled { span, .. } => vec![new_label(*span, "plain text")],
            Self::RepeatedParagraph { first, second, .. } => {
                vec![new_label(*second, "repeated here"), new_label(*first, "sent first here")]
            }
            Self::VolatilePrefix { directive, span, .. } => {
                vec![new_label(*span, format!("this text differs each time, for example in `{directive}`"))]
            }
            Self::SuppressedAndDeclared { declared, suppressed, .. } => {
                vec![new_label(*suppressed, "suppressed here"), new_label(*declared, "declared here")]
            }
        }
    }
}

fn suppresses_nothing(id: &str, guard: Option<(Span, &'static str)>) -> String {
    match guard {
        Some((_, event)) => format!("no directive can suppress `{id}`, a hook of a hook file at `{event}`"),
        None => format!("`{id}` is never injected, so there is nothing to suppress"),
    }
}
