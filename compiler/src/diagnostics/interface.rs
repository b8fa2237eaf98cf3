//! `interface::*`: inputs, outputs and parameters that do not match their use.

use rye_grammar::Span;
use thiserror::Error;

use super::{Label, Problem, Severity, WordList, did_you_mean, new_label, quote_list, quote_list_up_to};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InterfaceError {
    /// An input that the directive does not declare. `span` is the place that names the input; `None` if the caller of
    /// the compilation passed the input, so that no file names it.
    #[error("`{directive}` has no input `{name}`")]
    UnknownInput { name: String, directive: String, span: Option<Span>, suggestion: Option<String>, declared: WordList },
    /// A hook of a hook file reads an input that no directive declares.
    #[error("no directive has an input `{name}`")]
    UndeclaredInput { name: String, span: Span, suggestion: Option<String>, declared: Vec<String> },
    /// An input or output whose type differs from the type that the directive `base` of the chain declares. `what` is
    /// `input` or `output`. `found` and `expected` are types.
    #[error("the {what} `{name}` is of the type `{found}`, but `{base}` declares `{expected}`")]
    Retyped {
        what: &'static str,
        name: String,
        found: String,
        expected: String,
        base: String,
        span: Span,
        base_span: Span,
    },
    /// Text of a body that looks like a placeholder. `input` is the declared input that was probably meant, or `None`
    /// if the text names no declared input.
    #[error("`{text}` is plain text, not a placeholder")]
    Lookalike { text: String, input: Option<String>, span: Span },
    /// Text of a hook's action that looks like a placeholder of the fact at `path`.
    #[error("`{text}` is plain text, not a placeholder")]
    FactLookalike { text: String, path: String, span: Span },
    /// A `$` directly before a placeholder of an input: `${input:name}`.
    #[error("the `$` before `{{input:{name}}}` is sent as text")]
    MarkedPlaceholder { name: String, span: Span },
    /// A default that begins with an operator of another language: `{input:name||x}`.
    #[error("the default of `{{input:{name}}}` is the text `{default}`")]
    MarkedDefault { name: String, default: String, plain: String, span: Span },
    /// A hook or a body calls a tool with a parameter that the tool's schema does not declare. `is_refused` is true if
    /// the schema allows no other parameters, so that the call is refused.
    #[error("the tool `{tool}` has no parameter `{name}`")]
    UnknownParameter {
        name: String,
        tool: String,
        span: Span,
        is_refused: bool,
        suggestion: Option<String>,
        known: Vec<String>,
    },
    /// A body calls a tool with an argument without a name.
    #[error("an argument of the tool `{tool}` has no name")]
    UnnamedArgument { tool: String, span: Span },
    /// A hook or a body calls a tool without a required parameter.
    #[error("the parameter `{name}` of the tool `{tool}` has no value")]
    MissingParameter { name: String, tool: String, span: Span },
    /// An input that is declared as required although it has a default.
    #[error("the input `{name}` has a default, so `required` has no effect")]
    RequiredDefault { name: String, span: Span },
    /// Reminders after every text answer, in a directive without outputs: no answer ends the thread.
    #[error("`nudge` is `always` and the directive declares no outputs, so only a limit ends the thread")]
    EndlessReminders { span: Span },
    /// A placeholder with a default, for an input that always has a value.
    #[error("the default `{default}` of the placeholder is never used: the input `{name}` {why}")]
    UnusedDefault { name: String, default: String, why: &'static str, span: Span, declared: Span },
    /// A placeholder for a value that may be missing (`{input:name?}`), for an input that always has a value.
    #[error("the `?` of the placeholder has no effect: the input `{name}` {why}")]
    UnusedOptional { name: String, why: &'static str, span: Span, declared: Span },
    /// An input that is declared as optional, although the body needs its value.
    #[error("the input `{name}` is optional, but the body needs its value")]
    NeededInput { name: String, span: Span, declared: Span },
    #[error("the input `{name}` is never used")]
    UnusedInput { name: String, span: Span },
    /// A required input without a value. `used` is the place of the call that omits the value; `None` if the caller of
    /// the directive must supply the value.
    #[error("the input `{name}` of `{directive}` has no value")]
    MissingInput { name: String, directive: String, declared: Option<Span>, used: Option<Span> },
    /// Inputs without a value decide the route of a directive, and have too many combinations to plan each route. `used`
    /// is the first hook that needs a value.
    #[error("inputs without a value decide the route of `{directive}`: {reason}")]
    OpenRoute { directive: String, reason: String, names: Vec<String>, used: Option<Span> },
    /// `continuation` continues threads of `directive`, and requires an input that `directive` does not declare.
    #[error("the input `{name}` of the continuation directive `{continuation}` has no value")]
    ContinuationInput { name: String, directive: String, continuation: String, declared: Span, used: Span },
    /// A hook on `directive_return` reads an output that `directive` does not declare. `directive` is `None` if no
    /// directive declares the output.
    #[error("{} output `{name}`", directive.as_ref().map_or("no directive has an".to_owned(), |d| format!("`{d}` has no")))]
    UnknownOutput {
        name: String,
        directive: Option<String>,
        span: Span,
        suggestion: Option<String>,
        declared: Vec<String>,
    },
    /// A body calls the return tool although the directive has no outputs.
    #[error("`{directive}` declares no outputs, so the model is not offered `rye_directive_return`")]
    NoOutputs { directive: String, span: Span },
    /// A body calls the return tool without a required output.
    #[error("the call of `rye_directive_return` lacks the required output `{name}`")]
    MissingOutput { name: String, span: Span, declared: Span },
    /// A value does not have its declared type. `expected` and `found` are phrases: "an integer", "the string `x`".
    #[error("{what} is {found}, not {expected}")]
    Type { what: String, expected: String, found: String, span: Option<Span>, declared: Option<Span> },
    /// Unusable choices: `of` names the input or output, `why` is the rest of the message.
    #[error("{of} {why}")]
    Choices { of: String, why: String, help: String, span: Span },
    /// A value inside an array or an object does not have its declared type. `problem` is the rest of the message.
    #[error("{what} {problem}")]
    Part { what: String, problem: String, span: Option<Span>, declared: Option<Span> },
}

impl Problem for InterfaceError {
    fn code(&self) -> &'static str {
        match self {
            Self::UnknownInput { .. }
            | Self::UndeclaredInput { .. }
            | Self::UnknownParameter { .. }
            | Self::UnnamedArgument { .. }
            | Self::MarkedPlaceholder { .. }
            | Self::MarkedDefault { .. }
            | Self::Lookalike { .. }
            | Self::FactLookalike { .. } => "interface::unknown-input",
            Self::Retyped { .. } => "interface::retyped",
            Self::UnusedInput { .. } => "interface::unused-input",
            Self::RequiredDefault { .. } | Self::UnusedDefault { .. } | Self::UnusedOptional { .. } => {
                "interface::required-default"
            }
            Self::MissingInput { .. }
            | Self::OpenRoute { .. }
            | Self::NeededInput { .. }
            | Self::ContinuationInput { .. }
            | Self::MissingParameter { .. } => "interface::missing-input",
            Self::UnknownOutput { .. } | Self::NoOutputs { .. } => "interface::unknown-output",
            Self::MissingOutput { .. } => "interface::missing-output",
            Self::EndlessReminders { .. } => "interface::endless-reminders",
            Self::Choices { .. } => "interface::choices",
            Self::Type { .. } | Self::Part { .. } => "interface::type",
        }
    }

    fn severity(&self) -> Severity {
        match self {
            Self::UnusedInput { .. }
            | Self::RequiredDefault { .. }
            | Self::EndlessReminders { .. }
            | Self::UnusedDefault { .. }
            | Self::UnusedOptional { .. }
            | Self::NeededInput { .. }
            | Self::NoOutputs { .. }
            | Self::MissingOutput { .. }
            | Self::Lookalike { .. }
            | Self::FactLookalike { .. }
            | Self::UnnamedArgument { .. }
            | Self::MarkedPlaceholder { .. }
            | Self::MarkedDefault { .. }
            | Self::UnknownParameter { is_refused: false, .. }
            | Self::Choices { .. }
            | Self::Retyped { .. } => Severity::Warning,
            Self::UnknownInput { .. }
            | Self::UndeclaredInput { .. }
            | Self::UnknownParameter { .. }
            | Self::MissingInput { .. }
            | Self::OpenRoute { .. }
            | Self::ContinuationInput { .. }
            | Self::MissingParameter { .. }
            | Self::UnknownOutput { .. }
            | Self::Type { .. }
            | Self::Part { .. } => Severity::Error,
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            Self::UnknownInput { name, suggestion, declared, .. } => did_you_mean(suggestion.as_ref(), || {
                Some(if declared.is_empty() {
                    format!("declare it: `<inputs><input name=\"{name}\" type=\"string\">…</input></inputs>`")
                } else {
                    format!("declared: {}", declared.quoted())
                })
            }),
            Self::UndeclaredInput { suggestion, declared, .. } => did_you_mean(suggestion.as_ref(), || {
                Some(if declared.is_empty() {
                    "declare the input in a directive, or remove it from the hook: without a declaration the \
                     value is always absent".into()
                } else {
                    format!("declared: {}", quote_list(declared))
                })
            }),
            Self::Retyped { what, expected, .. } => {
                Some(format!("declare the type `{expected}`, or give the {what} another name"))
            }
            Self::Choices { help, .. } => Some(help.clone()),
            Self::FactLookalike { path, .. } => Some(format!("write `${{{path}}}` to insert the fact")),
            Self::Lookalike { input: Some(name), .. } => Some(format!("write `{{input:{name}}}` to insert the input")),
            Self::Lookalike { text, input: None, .. } if text.starts_with("{%") || text.starts_with("{{#") => Some(
                "a prompt has no conditions and loops: describe the cases in words, or send a text only in some runs by a hook with a `condition`".into(),
            ),
            Self::Lookalike { text, input: None, .. } if text.trim_start_matches(['{', ' ']).starts_with("output") => Some(
                "an output has no value before the end of the run: describe it in words, or declare an input".into(),
            ),
            Self::Lookalike { input: None, .. } => Some(
                "to insert a value, declare an input, write `{input:name}` and pass the value with `--input`; if the text is code, put it in backticks".into(),
            ),
            Self::UnknownParameter { suggestion, known, .. } => did_you_mean(suggestion.as_ref(), || {
                Some(if known.is_empty() {
                    "remove the parameter: the tool takes none".into()
                } else {
                    format!("parameters: {}", quote_list(known))
                })
            }),
            Self::MarkedPlaceholder { name, .. } => Some(format!(
                "write `{{input:{name}}}`; for dollars, write `$ {{input:{name}}}` or declare the input as a number"
            )),
            Self::MarkedDefault { name, plain, .. } => Some(format!("write `{{input:{name}|{plain}}}`")),
            Self::UnnamedArgument { .. } => Some("write the name before each argument: `(name=\"value\")`".into()),
            Self::MissingParameter { name, .. } => Some(format!("add `{name}` to the parameters of the call")),
            Self::UnknownOutput { suggestion, declared, .. } => did_you_mean(suggestion.as_ref(), || {
                Some(if declared.is_empty() {
                    "declare the output in `<outputs>`, or remove the reference to it".into()
                } else {
                    format!("declared: {}", quote_list(declared))
                })
            }),
            Self::RequiredDefault { .. } => {
                Some("remove `required`, or remove `default` if the caller has to give the value".into())
            }
            Self::EndlessReminders { .. } => Some(
                "declare `<outputs>`, which the model returns when the task is done, or write `<nudge>auto</nudge>`".into(),
            ),
            Self::UnusedInput { name, .. } => {
                Some(format!("write `{{input:{name}}}` where the value belongs, or remove the declaration"))
            }
            Self::UnusedDefault { name, .. } | Self::UnusedOptional { name, .. } => Some(format!("write `{{input:{name}}}`, or change the declaration of the input")),
            Self::NeededInput { name, .. } => Some(format!(
                "write `{{input:{name}?}}` for an empty text or `{{input:{name}|…}}` for a default, or remove `required`"
            )),
            Self::MissingInput { name, .. } => {
                Some(format!("pass a value (`--input {name}=…`, or a parameter of the call), or declare a `default`"))
            }
            Self::OpenRoute { names, .. } => {
                let values: Vec<String> = names.iter().map(|name| format!("--input {name}=…")).collect();
                Some(format!("set some of the inputs: {}", quote_list_up_to(&values, 3)))
            }
            Self::ContinuationInput { name, directive, continuation, .. } => Some(format!(
                "declare `{name}` in `{directive}` too, or declare a `default` in `{continuation}`: a continuation has only the inputs of its thread"
            )),
            Self::NoOutputs { .. } => Some("declare the values in `<outputs>`, or remove the call from the body".into()),
            Self::MissingOutput { name, .. } => Some(format!(
                "add `{name}` to the call, write `…` for further outputs, or remove `required` from the output"
            )),
            Self::Type { what, expected, span: None, .. } if matches!(expected.as_str(), "an array" | "an object") => {
                let name = what.split('`').nth(1).unwrap_or("NAME");
                let value = if expected == "an array" { "[\"a\", \"b\"]" } else { "{\"key\": \"value\"}" };
                Some(format!("write {expected} in JSON, such as `--input '{name}={value}'`"))
            }
            Self::Type { expected, .. } => Some(format!("write {expected}")),
            Self::Part { .. } => Some("change the value, or the declared `<item>` and `<field>` types".into()),
        }
    }

    fn labels(&self) -> Vec<Label> {
        match self {
            Self::UnknownInput { span, .. } => {
                span.iter().map(|s| new_label(*s, "no such input is declared")).collect()
            }
            Self::UndeclaredInput { span, .. } => vec![new_label(*span, "no directive declares this input")],
            Self::Choices { span, .. } => vec![new_label(*span, "these choices")],
            Self::Retyped { found, base, expected, span, base_span, .. } => vec![
                new_label(*span, format!("`{found}` here")),
                new_label(*base_span, format!("`{expected}` in `{base}`")),
            ],
            Self::Lookalike { span, .. } | Self::FactLookalike { span, .. } => vec![new_label(*span, "sent unchanged")],
            Self::UnknownOutput { span, .. } => vec![new_label(*span, "no such output is declared")],
            Self::MarkedPlaceholder { span, .. } => vec![new_label(*span, "this sends a `$` and the value")],
            Self::MarkedDefault { span, .. } => vec![new_label(*span, "this operator becomes part of the default")],
            Self::UnnamedArgument { span, .. } => vec![new_label(*span, "calls have named arguments only")],
            Self::UnknownParameter { tool, span, .. } => vec![new_label(*span, format!("no parameter of `{tool}`"))],
            Self::MissingParameter { tool, span, .. } => {
                vec![new_label(*span, format!("required by `{tool}`"))]
            }
            Self::RequiredDefault { span, .. } => {
                vec![new_label(*span, "if the value is missing, the default is used")]
            }
            Self::EndlessReminders { span } => {
                vec![new_label(*span, "each text answer gets a reminder and costs a turn")]
            }
            Self::NoOutputs { span, .. } => vec![new_label(*span, "not offered")],
            Self::MissingOutput { span, declared, .. } => {
                vec![new_label(*span, "such a call is refused"), new_label(*declared, "declared here")]
            }
            Self::UnusedOptional { span, declared, .. } => {
                vec![new_label(*span, "never empty"), new_label(*declared, "declared here")]
            }
            Self::UnusedDefault { span, declared, .. } => {
                vec![new_label(*span, "never used"), new_label(*declared, "declared here")]
            }
            Self::NeededInput { span, declared, .. } => {
                vec![new_label(*declared, "declared as optional"), new_label(*span, "a run without a value fails")]
            }
            Self::UnusedInput { span, .. } => vec![new_label(*span, "declared here, used nowhere")],
            Self::ContinuationInput { directive, declared, used, .. } => vec![
                new_label(*used, format!("`{directive}` does not declare this input")),
                new_label(*declared, "declared here, without a default"),
            ],
            Self::OpenRoute { used, .. } => {
                used.iter().map(|s| new_label(*s, "the values of the inputs are needed here")).collect()
            }
            Self::MissingInput { declared, used, .. } => {
                let used = used.iter().map(|s| new_label(*s, "the value of the input is needed here"));
                used.chain(declared.iter().map(|s| new_label(*s, "declared here, without a default"))).collect()
            }
            Self::Type { expected, span, declared, .. } => {
                let here = span.iter().map(|s| new_label(*s, format!("expected {expected}")));
                here.chain(declared.iter().map(|s| new_label(*s, "declared here"))).collect()
            }
            Self::Part { problem, span, declared, .. } => {
                let here = span.iter().map(|s| new_label(*s, problem.clone()));
                here.chain(declared.iter().map(|s| new_label(*s, "declared here"))).collect()
            }
        }
    }
}
