//! `template::*`: syntax of other clients in prompt templates, which is sent as text.

use rye_grammar::Span;
use thiserror::Error;

use super::{Label, Problem, Severity, new_label};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TemplateError {
    #[error("the command in this template does not run")]
    Shell { span: Span },
    #[error("the file `{path}` is not imported")]
    Import { path: String, span: Span },
    /// A line of a context file (`AGENTS.md`, `CLAUDE.md`), the file `within`, that imports the file `path`.
    #[error("the file `{path}` is not imported into `{within}`")]
    ImportOfContext { path: String, within: String },
    #[error("`{text}` is plain text, not a placeholder")]
    MisspelledPlaceholder { text: String, span: Span },
    /// An `argument-hint` although the text has no placeholder.
    #[error("the arguments of this template are never used")]
    UnusedArguments { span: Span },
    /// The `argument-hint` names more arguments than the placeholders use.
    #[error("the hint names {hinted} arguments, but this template uses {used} of them")]
    UnusedArgument { hinted: usize, used: usize, span: Span },
    /// A template that uses the argument `later` but not the argument `number`, so that the user's text for `number` is
    /// lost.
    #[error("this template uses argument {later}, but not argument {number}")]
    SkippedArgument { number: usize, later: usize, span: Span },
    #[error("this template uses argument {number}, but the number of arguments in its hint is {hinted}")]
    UnhintedArgument { number: usize, hinted: usize, span: Span },
    #[error("`{text}` is not a placeholder of a prompt template")]
    Placeholder { text: String, span: Span },
    #[error(
        "the prompt template `{name}` cannot be called: `/{name}` is a {}",
        if *is_built_in { "built-in command of every chat" } else { "command of `agent/chat`" }
    )]
    Hidden { name: String, is_built_in: bool, span: Span },
    /// A command that does not use the text after its name, although it has an `argument_hint` or contains a
    /// placeholder of another client for this text. `written` is the placeholder of the other client; `None` if the
    /// command contains none.
    #[error("the command `{name}` ignores the text after its name")]
    IgnoredArguments { name: String, written: Option<String>, span: Span },
}

impl Problem for TemplateError {
    fn code(&self) -> &'static str {
        match self {
            Self::Shell { .. } => "template::shell",
            Self::Import { .. } | Self::ImportOfContext { .. } => "template::import",
            Self::MisspelledPlaceholder { .. }
            | Self::UnusedArguments { .. }
            | Self::UnusedArgument { .. }
            | Self::UnhintedArgument { .. }
            | Self::SkippedArgument { .. } => "template::arguments",
            Self::Placeholder { .. } => "template::placeholder",
            Self::Hidden { .. } => "template::hidden",
            Self::IgnoredArguments { .. } => "template::ignored-arguments",
        }
    }

    fn severity(&self) -> Severity {
        match self {
            Self::Shell { .. }
            | Self::Import { .. }
            | Self::ImportOfContext { .. }
            | Self::MisspelledPlaceholder { .. }
            | Self::UnusedArguments { .. }
            | Self::UnusedArgument { .. }
            | Self::SkippedArgument { .. }
            | Self::UnhintedArgument { .. }
            | Self::Placeholder { .. }
            | Self::Hidden { .. }
            | Self::IgnoredArguments { .. } => Severity::Warning,
        }
    }

    fn help(&self) -> Option<String> {
        Some(match self {
            Self::MisspelledPlaceholder { .. } => {
                "write `$ARGUMENTS` or `$@` for all arguments and `$1` for the first one; `$$` is a literal dollar sign"
                    .into()
            }
            Self::UnusedArgument { used, .. } => {
                format!("write `${}` in the text, or remove the unused arguments from the hint", used + 1)
            }
            Self::UnusedArguments { .. } => "write `$ARGUMENTS` or `$1` in the text, or remove the hint".into(),
            Self::SkippedArgument { number, .. } => {
                format!("write `${number}` where the argument belongs, or number the placeholders without a gap")
            }
            Self::UnhintedArgument { .. } => "name each argument in the hint: `<from> <to>`".into(),
            Self::Shell { .. } => {
                "the model gets the text as written: ask it to run the command with a tool, or remove the `!`".into()
            }
            Self::Import { .. } | Self::ImportOfContext { .. } => {
                "the model gets the text as written: copy the content here, or ask the model to read the file".into()
            }
            Self::Placeholder { .. } => {
                "write `$1` for the first argument and `$ARGUMENTS` for all arguments, or put code in backticks".into()
            }
            Self::Hidden { .. } => "rename the file: the name of the file is the name of the command".into(),
            Self::IgnoredArguments { written: Some(written), .. } => {
                format!("write `${{args}}` in place of `{written}`")
            }
            Self::IgnoredArguments { written: None, .. } => {
                "write `${args}` in `params`, where the text belongs, or remove `argument_hint`".into()
            }
        })
    }

    fn labels(&self) -> Vec<Label> {
        match self {
            Self::ImportOfContext { .. } => Vec::new(),
            Self::Shell { span }
            | Self::Import { span, .. }
            | Self::MisspelledPlaceholder { span, .. }
            | Self::Placeholder { span, .. } => {
                vec![new_label(*span, "sent as text")]
            }
            Self::UnusedArgument { span, .. } => vec![new_label(*span, "more than the text uses")],
            Self::UnusedArguments { span } => vec![new_label(*span, "the text has no placeholder")],
            Self::SkippedArgument { span, .. } => vec![new_label(*span, "an earlier argument is missing")],
            Self::UnhintedArgument { span, .. } => vec![new_label(*span, "this hint")],
            Self::Hidden { span, .. } => vec![new_label(*span, "never sent")],
            Self::IgnoredArguments { span, .. } => vec![new_label(*span, "no `${args}` in this command")],
        }
    }
}
