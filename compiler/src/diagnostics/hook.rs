//! `hook::*`: hooks that cannot work, and hooks that have no effect.

use rye_grammar::Span;
use thiserror::Error;

use super::foreign_words::{self, WordPlace};
use super::{Label, Problem, Severity, did_you_mean, new_label, quote_list};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HookError {
    /// The condition reads a parameter of a call that the called tool does not have. `tool` is the tool that the
    /// condition requires. `None` if the condition requires no tool, and no tool at all has the parameter.
    #[error("the hook `{id}` reads the parameter `{name}`, which {}", if let Some(tool) = tool { format!("`{tool}` does not have") } else { "no tool has".to_owned() })]
    UnknownParameter {
        id: String,
        tool: Option<String>,
        name: String,
        /// True if the hook looks for the name in `call.input`, as in `call.input contains "name"`.
        is_searched: bool,
        span: Span,
        suggestion: Option<String>,
        known: Vec<String>,
    },
    /// A condition compares a fact of calls with the id of an item, or the name of a tool, that does not exist.
    #[error("`{fact}` is never `{value}`: {}", if *fact == "call.name" { "no tool has this name" } else { "no item has this id" })]
    UnknownCall { id: String, fact: &'static str, value: String, suggestion: Option<String>, span: Span },
    /// A condition looks for a text or a pattern that no id of an item, or no name of a tool, contains. `verb` is
    /// `contains` or `matches`.
    #[error("`{fact}` never {verb} `{text}`: {}", if *fact == "call.name" { "no tool has such a name" } else { "no item has such an id" })]
    UnknownPart { fact: &'static str, verb: &'static str, text: String, suggestion: Option<String>, span: Span },
    /// A condition compares a fact with a text that contains wildcards. No value of the fact contains wildcards, so
    /// none equals the text.
    #[error("`{fact}` is never `{value}`: conditions compare strings without wildcards")]
    Wildcard { fact: String, value: String, span: Span },
    /// A pattern with the delimiters and flags of another language: `/rm -rf/i`.
    #[error("the pattern `{pattern}` requires its slashes in the text: a pattern has no delimiters")]
    DelimitedPattern { pattern: String, plain: String, span: Span },
    /// A pattern with an escape that the quotes around it changed, such as a backspace for `"\b"`. `required` is the
    /// character that a text needs to match.
    #[error("the pattern `{pattern}` requires {required} in the text")]
    EscapedPattern { pattern: String, required: &'static str, meant: String, span: Span },
    /// A regular expression that is probably meant as a text with wildcards: `rye/*`, `d*`.
    #[error("the pattern `{pattern}` is a regular expression: its `*` repeats the character before it")]
    WildcardPattern { pattern: String, meant: String, span: Span },
    /// A text in a condition that probably has another effect than its author intended. `why` is the reason, as the
    /// rest of the sentence, and `label` its short form.
    #[error("the text `{text}` {why}")]
    OddText { text: String, why: String, label: &'static str, help: &'static str, span: Span },
    /// A condition compares a number of tokens with a fraction of one token.
    #[error("`{fact}` is a number of tokens, but {fraction} is less than one token")]
    TokenFraction { fact: String, fraction: String, span: Span },
    /// A condition compares a fact with a value that it never has: `directive` with an unknown id, `category` without
    /// a directive, `model` with a model that no provider file lists, `classification.name` with the name of an unknown
    /// rule, or `name` with an unknown command. `is_tier` is true if the value is the name of a tier instead of a model.
    /// Only `--model` can select a model that is not listed.
    #[error("{}", match (*fact, *is_tier) {
        ("model", true) => format!("`model` is compared with `{value}`, which is the name of a tier: the fact is a model id"),
        ("model", false) => format!("`model` is compared with `{value}`, which no provider file lists"),
        ("classification.name", _) => {
            format!("`{fact}` is never `{value}`: no rule of the classification table has this name")
        }
        ("category", _) => format!("`{fact}` is never `{value}`: no directive has this category"),
        ("name", _) => format!("`{fact}` is never `{value}`: no command has this id"),
        _ => format!("`{fact}` is never `{value}`: no directive has this id"),
    })]
    UnknownValue {
        id: String,
        fact: &'static str,
        value: String,
        is_tier: bool,
        suggestion: Option<String>,
        span: Span,
    },
    /// An entry with only `enabled: false`, for an unknown hook id.
    #[error("unknown hook `{id}`")]
    RemovesNothing { id: String, suggestion: Option<String>, span: Span },
    /// A directive declares a hook with `enabled: false`, and inherits a hook with the same id from its extends chain. The
    /// plan contains both hooks, and the inherited one still fires.
    #[error("`enabled=\"false\"` does not remove the hook `{id}` of `{base}`")]
    RemovesOnlyItself { id: String, base: String, span: Span, inherited: Span },
    #[error("unknown event `{event}`")]
    UnknownEvent { event: String, span: Span, suggestion: Option<String> },
    /// A text without quotes, which is parsed as arithmetic with unknown facts: `call.item_id == rye/bash/bash`.
    #[error("the text `{text}` has no quotes")]
    UnquotedText { text: String, span: Span },
    /// A condition or a placeholder reads a fact that the event does not have. `facts` are the facts of the event.
    /// `is_placeholder` is true if a placeholder `${…}` reads the fact.
    #[error("`{event}` has no fact `{path}`")]
    UnknownFact {
        path: String,
        event: String,
        span: Span,
        is_placeholder: bool,
        suggestion: Option<String>,
        facts: Vec<String>,
        /// The events that have the fact.
        elsewhere: Vec<&'static str>,
    },
    /// The action is unknown or not allowed at the event. `allowed` lists the event's actions.
    #[error("a hook on `{event}` cannot `{action}`")]
    WrongAction { action: String, event: String, span: Span, suggestion: Option<String>, allowed: Vec<String> },
    #[error("the hook `{id}` never fires: {because}")]
    Never { id: String, because: String, span: Span },
    /// An operand of `||`, or a member of a list, that is never true. The hook can fire for the other parts.
    #[error("a part of the condition of the hook `{id}` is never true: {because}")]
    NeverPart { id: String, because: String, span: Span },
    /// The condition is true only if the thread has used several times as much as `limit` (tokens or spend) allows.
    #[error(
        "the hook `{id}` fires only if {}",
        if *limit == "spend" {
            "a provider reports a cost of several times the limit of `spend`"
        } else {
            "one turn uses several times as many tokens as the limit `tokens` allows"
        }
    )]
    PastLimit { id: String, limit: &'static str, span: Span },
    /// The hook fires only for directives of the standard library or the user space. `directive` is the first such
    /// directive.
    #[error("in this project, the hook `{id}` can fire only for `{directive}`: {because}")]
    OnlyLibrary { id: String, directive: String, because: String, span: Span },
    #[error("the condition of the hook `{id}` is always true")]
    Always { id: String, span: Span },
    /// A hook that never takes effect, because the hook `by` always answers first. `when` is the end of the sentence
    /// "`by` fires …".
    #[error("the hook `{id}` is never reached: `{by}` always answers first")]
    Shadowed { id: String, by: String, span: Span, by_span: Span, when: &'static str },
    /// A hook raises a limit to a value that is not above the current value. `current` is the smallest value of the
    /// limit among the directives that the hook applies to. `ceiling` is the maximum in `limits.max`, with its place,
    /// if only this maximum prevents the raise.
    #[error("the hook `{id}` does not raise the limit: {}", match ceiling {
        Some((most, _)) => format!("`limits.max` allows at most {most} for `{limit}`"),
        None => format!("`{limit}` is already {current} or more"),
    })]
    RaisesNothing { id: String, limit: &'static str, current: String, ceiling: Option<(String, Span)>, span: Span },
    /// A hook whose action has no effect. `why` is the reason, as a clause.
    #[error("the hook `{id}` has no effect: {why}")]
    NoEffect { id: String, why: String, span: Span },
    /// A key of a hook whose value has no effect. `why` is the reason, as a clause, and `help` the fix.
    #[error("the key `{key}` of the hook `{id}` has no effect: {why}")]
    UnusedKey { id: String, key: &'static str, why: &'static str, help: &'static str, span: Span },
    /// A hook whose answer at `event` is ignored, because of its layer. `in_infra_hooks` is true if the list
    /// `infra_hooks` declares the hook and so sets its layer.
    #[error("the hook `{id}` has no effect: at `{event}`, hooks of layer 4 and above never answer")]
    IgnoredAnswer { id: String, event: &'static str, layer: String, in_infra_hooks: bool, span: Span },
    /// A hook of the project that replaces a built-in hook of another event, because the hooks have the same id.
    #[error("the hook `{id}` on `{event}` removes the built-in hook with this id on `{removed}`")]
    RemovesOther { id: String, event: &'static str, removed: &'static str, span: Span, removed_span: Span },
    /// A hook whose action has an empty text. `text` is the name of the field: `reason` of `block`, or `error` of
    /// `terminate`.
    #[error("the `{text}` of the hook `{id}` is empty")]
    EmptyText { id: String, text: &'static str, span: Span },
    /// A hook that retries after very few milliseconds. The author probably meant seconds.
    #[error("the hook `{id}` waits only {delay_ms} ms before it repeats the call")]
    ShortDelay { id: String, delay_ms: u64, span: Span },
    /// An unconditional hook that makes the model continue after each final answer.
    #[error("the hook `{id}` fires after every final answer, so only a limit ends the thread")]
    Endless { id: String, span: Span },
    /// A hook at `input` that answers every message with `handled`, so that no message reaches the model.
    #[error("the hook `{id}` handles every message, so the model gets none of them")]
    SwallowsEverything { id: String, span: Span },
    /// A hook that can fire only in a chat, although its directive is not for chats. `because` is the reason why the
    /// hook cannot fire in a run.
    #[error("the hook `{id}` never fires in a run: {because}")]
    NeverInRun { id: String, because: &'static str, span: Span },
    /// A text with commas on the right side of `in`, where the author probably meant a list.
    #[error("the hook `{id}` tests whether `{text}` contains the fact, not whether the fact is one of several values")]
    TextList { id: String, text: String, span: Span },
    #[error(
        "two {what} of {} have the id `{id}`",
        if first.source == second.source { "one file" } else { "the hook files of one space" }
    )]
    DuplicateId { what: &'static str, id: String, first: Span, second: Span },
    /// A hook fills `parameter` with the fact `path`, whose value the model or a tool controls.
    #[error("`${{{path}}}` would let the model write the parameter `{parameter}` of a command")]
    UntrustedParameter { id: String, path: String, parameter: String, span: Span },
    #[error("the item of hook `{id}` is a placeholder, but the hook has no grants")]
    Ungranted { id: String, span: Span },
    /// A hook that a directive declares, and that needs a capability outside of the directive's permissions. `granted`
    /// is the span of these permissions.
    #[error("the hook `{id}` needs `{capability}`, which its directive does not grant")]
    Beyond { id: String, capability: String, span: Span, granted: Option<Span> },
    /// A hook starts a directive that is granted a capability which the thread of the hook lacks. `grant` is the grant
    /// of the started directive, `granted` the permissions of the thread.
    #[error("the hook `{id}` starts `{started}` with the capability `{capability}`, which `{thread}` lacks")]
    StartsMore {
        id: String,
        started: String,
        thread: String,
        capability: String,
        span: Span,
        grant: Span,
        granted: Option<Span>,
    },
}

/// Returns the help for a condition or a placeholder that names an unknown fact.
fn help_for_unknown_fact(
    path: &str,
    suggestion: Option<&String>,
    facts: &[String],
    is_placeholder: bool,
) -> Option<String> {
    let constant = match path.to_ascii_lowercase().as_str() {
        "true" => Some("true".to_owned()),
        "false" => Some("false".to_owned()),
        "none" | "nil" | "null" | "undefined" => Some("null".to_owned()),
        _ => None,
    };
    did_you_mean(constant.as_ref().or(suggestion), || {
        let quoted = if path.contains('.') || is_placeholder {
            String::new()
        } else {
            format!("to compare with this text, quote it: `\"{path}\"`; ")
        };
        Some(format!("{quoted}facts here: {}", quote_list(facts)))
    })
}

fn ignored_answer_help(in_infra_hooks: bool) -> &'static str {
    if in_infra_hooks { "move the hook to the list `hooks`" } else { "give the hook a `layer` below 4, or none" }
}

fn help_for_empty_text(field: &str) -> &'static str {
    match field {
        "reason" => "write why the call or the answer is refused: the model reads this text",
        _ => "write why the thread ends: this text becomes the error of the thread",
    }
}

/// Returns the help for a text or a pattern that occurs in no value of `fact`. `verb` is `contains` or `matches`.
fn example_of_part(fact: &str, verb: &str) -> &'static str {
    match (fact, verb) {
        ("call.name", _) => "write a part of a tool's name in the palette, such as `rye_file_system_`",
        (_, "matches") => "write a pattern of ids, such as `\"^rye/file-system/\"`",
        _ => "write a part of an id, such as `rye/file-system/`",
    }
}

fn help_for_unknown_parameter(name: &str, is_searched: bool, known: &[String]) -> Option<String> {
    if is_searched {
        let meant = format!("`call.input.command contains \"{name}\"`");
        return Some(format!("to look for a text in the value of a parameter, name the parameter: {meant}"));
    }
    (!known.is_empty()).then(|| format!("parameters: {}", quote_list(known)))
}

fn help_for_short_delay(delay_ms: u64) -> String {
    let seconds = delay_ms * 1000;
    format!(
        "write milliseconds: `delay_ms: {seconds}` waits {delay_ms} seconds; to repeat the call at once, remove `delay_ms`"
    )
}

/// Returns the help for a comparison of `fact` with the text `value`, which contains wildcards.
fn wildcard_help(fact: &str, value: &str) -> String {
    let start = value.split('*').next().unwrap_or_default();
    let end = value.strip_prefix('*').filter(|end| !end.is_empty() && !end.contains('*'));
    match (start, end) {
        ("", Some(end)) => format!("write `{fact} matches \"{}$\"`", end.replace('.', "[.]")),
        ("", None) => format!("write a pattern: `{fact} matches \"^a/.*$\"`"),
        (start, _) => format!("write `{fact} contains \"{start}\"`, or `{fact} matches \"^{start}\"`"),
    }
}

/// Returns the help that shows a pattern with backslashes in both kinds of quotes.
fn quoted_pattern_help(pattern: &str) -> String {
    format!("write `'{pattern}'`, or `\"{}\"` in double quotes", pattern.replace('\\', "\\\\"))
}

impl Problem for HookError {
    fn code(&self) -> &'static str {
        match self {
            Self::UnknownEvent { .. } => "hook::unknown-event",
            Self::UnknownFact { .. } | Self::UnquotedText { .. } => "hook::unknown-fact",
            Self::WrongAction { .. } => "hook::wrong-action",
            Self::UnknownCall { .. } | Self::UnknownPart { .. } => "hook::unknown-call",
            Self::Wildcard { fact, .. } if fact.starts_with("call.") => "hook::unknown-call",
            Self::Wildcard { .. }
            | Self::DelimitedPattern { .. }
            | Self::EscapedPattern { .. }
            | Self::WildcardPattern { .. }
            | Self::OddText { .. }
            | Self::TokenFraction { .. }
            | Self::UnknownValue { .. } => "hook::unknown-value",
            Self::UnknownParameter { .. } => "hook::unknown-parameter",
            Self::RemovesNothing { .. } | Self::RemovesOnlyItself { .. } => "hook::removes-nothing",
            Self::Never { .. } | Self::NeverPart { .. } | Self::PastLimit { .. } | Self::OnlyLibrary { .. } => {
                "hook::never"
            }
            Self::RaisesNothing { .. } => "hook::raises-nothing",
            Self::Always { .. } => "hook::always",
            Self::Shadowed { .. } => "hook::shadowed",
            Self::NoEffect { .. }
            | Self::UnusedKey { .. }
            | Self::IgnoredAnswer { .. }
            | Self::EmptyText { .. }
            | Self::ShortDelay { .. } => "hook::no-effect",
            Self::Endless { .. } => "hook::endless",
            Self::SwallowsEverything { .. } => "hook::swallows-everything",
            Self::NeverInRun { .. } => "hook::never-in-run",
            Self::TextList { .. } => "hook::text-list",
            Self::DuplicateId { .. } | Self::RemovesOther { .. } => "hook::duplicate-id",
            Self::UntrustedParameter { .. } => "hook::untrusted-parameter",
            Self::Ungranted { .. } | Self::Beyond { .. } | Self::StartsMore { .. } => "hook::ungranted",
        }
    }

    fn severity(&self) -> Severity {
        match self {
            Self::UnknownEvent { .. }
            | Self::UnknownFact { .. }
            | Self::UnquotedText { .. }
            | Self::WrongAction { .. }
            | Self::DuplicateId { .. }
            | Self::UntrustedParameter { .. } => Severity::Error,
            Self::Never { .. }
            | Self::NeverPart { .. }
            | Self::PastLimit { .. }
            | Self::NoEffect { .. }
            | Self::UnusedKey { .. }
            | Self::IgnoredAnswer { .. }
            | Self::RemovesOther { .. }
            | Self::EmptyText { .. }
            | Self::ShortDelay { .. }
            | Self::Endless { .. }
            | Self::SwallowsEverything { .. }
            | Self::TextList { .. }
            | Self::UnknownCall { .. }
            | Self::UnknownPart { .. }
            | Self::Wildcard { .. }
            | Self::DelimitedPattern { .. }
            | Self::EscapedPattern { .. }
            | Self::WildcardPattern { .. }
            | Self::OddText { .. }
            | Self::TokenFraction { .. }
            | Self::UnknownParameter { .. }
            | Self::UnknownValue { .. }
            | Self::RemovesNothing { .. }
            | Self::RemovesOnlyItself { .. }
            | Self::RaisesNothing { .. }
            | Self::Shadowed { .. }
            | Self::Ungranted { .. }
            | Self::Beyond { .. }
            | Self::StartsMore { .. } => Severity::Warning,
            Self::Always { .. } | Self::OnlyLibrary { .. } | Self::NeverInRun { .. } => Severity::Advice,
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            Self::UnknownParameter { name, is_searched, suggestion, known, .. } => {
                did_you_mean(suggestion.as_ref(), || help_for_unknown_parameter(name, *is_searched, known))
            }
            Self::UnknownEvent { event, suggestion, .. } => {
                let translated = foreign_words::help_for(WordPlace::Event, event).map(str::to_owned);
                translated.or_else(|| did_you_mean(suggestion.as_ref(), || {
                    Some(format!("events: {}", quote_list(&crate::semantics::hook_point::event_names())))
                }))
            }
            Self::UnknownFact { path, facts, elsewhere, .. } if !elsewhere.is_empty() => Some(format!(
                "`{path}` is a fact of {}; facts here: {}",
                quote_list(elsewhere),
                quote_list(facts)
            )),
            Self::UnknownFact { path, suggestion, facts, is_placeholder, .. } => {
                help_for_unknown_fact(path, suggestion.as_ref(), facts, *is_placeholder)
            }
            Self::UnquotedText { text, .. } => Some(format!("write `\"{text}\"`")),
            Self::WrongAction { action, suggestion, allowed, .. } => foreign_words::help_for_action(action, allowed)
                .or_else(|| {
                    did_you_mean(suggestion.as_ref(), || Some(format!("actions here: {}", quote_list(allowed))))
                }),
            Self::UnknownCall { fact, suggestion, .. } => did_you_mean(suggestion.as_ref(), || {
                Some(match *fact {
                    "call.name" => "write the name that the tool has in the palette, such as `rye_bash_bash`, or compare `call.item_id`".into(),
                    _ => "write the id of an item, `rye/bash/bash`; for several, `call.item_id in [\"a/b\", \"a/c\"]` or `call.item_id matches \"^a/\"`".into(),
                })
            }),
            Self::UnknownPart { fact, verb, suggestion, .. } => {
                did_you_mean(suggestion.as_ref(), || Some(example_of_part(fact, verb).into()))
            }
            Self::Wildcard { fact, value, .. } => Some(wildcard_help(fact, value)),
            Self::WildcardPattern { meant, .. } => Some(format!("to use `*` as a wildcard, write the regular expression `\"{meant}\"`")),
            Self::DelimitedPattern { plain, .. } => Some(format!("write `\"{plain}\"`")),
            Self::EscapedPattern { meant, .. } => Some(quoted_pattern_help(meant)),
            Self::OddText { help, .. } | Self::UnusedKey { help, .. } => Some((*help).to_owned()),
            Self::TokenFraction { .. } => {
                Some("write a number of tokens; `usage_ratio` is the used fraction of the context window".into())
            }
            Self::UnknownValue { fact, suggestion, .. } => {
                did_you_mean(suggestion.as_ref(), || Some(possible_values(fact).to_owned()))
            }
            Self::RemovesOnlyItself { id, .. } => Some(suppression_help(id)),
            Self::RemovesNothing { suggestion, .. } => did_you_mean(suggestion.as_ref(), || {
                Some("remove the entry; to disable a hook of a directive, use `<suppress>`".into())
            }),
            Self::PastLimit { limit, .. } => {
                Some(format!("compare with a value below the limit of `{limit}`, or raise the limit"))
            }
            Self::Never { .. } => Some("correct the condition, or remove the hook".into()),
            Self::NeverPart { .. } => Some("correct this part, or remove it".into()),
            Self::OnlyLibrary { directive, .. } => Some(format!(
                "keep the hook if it guards `{directive}`; otherwise correct the condition, or remove the hook"
            )),
            Self::RaisesNothing { limit, ceiling: Some(_), .. } => Some(format!(
                "raise `limits.max.{limit}`, or remove the hook: no hook raises a limit above `limits.max`"
            )),
            Self::RaisesNothing { limit, ceiling: None, .. } => Some(format!("write the new value of `{limit}`, not the increase")),
            Self::Always { .. } => Some("remove the condition if this is intended".into()),
            Self::Shadowed { by, .. } => {
                Some(format!("give this hook a lower `layer`, or narrow the condition of `{by}`"))
            }
            Self::NoEffect { .. } => Some("correct the action or its condition, or remove the hook".into()),
            Self::IgnoredAnswer { in_infra_hooks, .. } => Some(ignored_answer_help(*in_infra_hooks).into()),
            Self::RemovesOther { removed, .. } => {
                Some(format!("give the hook another id; to remove the hook on `{removed}`, write an entry with `enabled: false`"))
            }
            Self::EmptyText { text, .. } => Some(help_for_empty_text(text).into()),
            Self::ShortDelay { delay_ms, .. } => Some(help_for_short_delay(*delay_ms)),
            Self::Endless { .. } => Some(
                "add a condition that ends the loop, such as `turn < 5` or a test of `result` or `outputs`".into(),
            ),
            Self::SwallowsEverything { .. } => Some("add a condition that names the messages, such as `text matches \"^note:\"`".into()),
            Self::NeverInRun { .. } => Some(
                "extend `rye/agent/chat` if the directive is for chats, move the hook to a hook file, or correct the hook".into(),
            ),
            Self::TextList { text, .. } => {
                let parts: Vec<String> = text.split(',').map(|part| format!("\"{}\"", part.trim())).collect();
                Some(format!("write a list: `in [{}]`", parts.join(", ")))
            }
            Self::DuplicateId { .. } => Some("give one of them another id".into()),
            Self::UntrustedParameter { .. } => Some(
                "use facts that neither the model nor a tool writes, or pass the text to a tool that does not run the text as a command".into(),
            ),
            Self::StartsMore { started, .. } => Some(format!(
                "add `grants: [pattern]` to the hook (only in a hook file), grant the capability to the thread, or grant less in `{started}`"
            )),
            Self::Beyond { capability, .. } => Some(format!(
                "grant `{capability}` in `<permissions>`, or move the hook into a hook file of the project"
            )),
            Self::Ungranted { .. } => {
                Some("add `grants: [pattern]` to the hook for the items it may use, or name one item".into())
            }
        }
    }

    fn labels(&self) -> Vec<Label> {
        match self {
            Self::UnknownParameter { tool: Some(tool), span, .. } => {
                vec![new_label(*span, format!("no parameter of `{tool}`"))]
            }
            Self::UnknownParameter { tool: None, span, .. } => vec![new_label(*span, "no tool has this parameter")],
            Self::UnknownEvent { span, .. } => vec![new_label(*span, "no such event")],
            Self::UnknownFact { event, span, .. } => {
                vec![new_label(*span, format!("`{event}` has no such fact"))]
            }
            Self::UnquotedText { span, .. } => {
                vec![new_label(*span, "without quotes, this is arithmetic with unknown facts")]
            }
            Self::WrongAction { event, span, .. } => vec![new_label(*span, format!("no action of `{event}`"))],
            Self::Wildcard { fact, span, .. } => vec![new_label(*span, format!("no value of `{fact}` contains `*`"))],
            Self::UnknownPart { fact, verb, span, .. } => {
                let name = if *fact == "call.name" { "no name" } else { "no id" };
                vec![new_label(*span, format!("{name} {verb} this"))]
            }
            Self::WildcardPattern { span, .. } => vec![new_label(*span, "not a wildcard")],
            Self::OddText { span, label, .. } => vec![new_label(*span, *label)],
            Self::TokenFraction { span, .. } => vec![new_label(*span, "less than one token")],
            Self::EscapedPattern { span, .. } => vec![new_label(*span, "the quotes change this escape")],
            Self::DelimitedPattern { span, .. } => vec![new_label(*span, "the slashes are part of the pattern")],
            Self::UnknownCall { fact, span, .. } => {
                vec![new_label(*span, format!("no call has this value of `{fact}`"))]
            }
            Self::UnknownValue { fact: "model", span, .. } => vec![new_label(*span, "not a listed model")],
            Self::UnknownValue { fact, span, .. } => vec![new_label(*span, format!("`{fact}` never has this value"))],
            Self::RaisesNothing { ceiling: Some((most, ceiling)), span, .. } => {
                vec![new_label(*span, format!("at most {most}")), new_label(*ceiling, "the maximum")]
            }
            Self::RaisesNothing { current, span, ceiling: None, .. } => {
                vec![new_label(*span, format!("not above {current}"))]
            }
            Self::RemovesNothing { span, .. } => vec![new_label(*span, "no hook has this id")],
            Self::RemovesOnlyItself { span, inherited, .. } => {
                vec![new_label(*span, "removes only itself"), new_label(*inherited, "still fires")]
            }
            Self::Never { span, .. } | Self::NeverPart { span, .. } => vec![new_label(*span, "never true")],
            Self::PastLimit { span, .. } => vec![new_label(*span, "far above the limit")],
            Self::OnlyLibrary { span, .. } => vec![new_label(*span, "never true for a directive of the project")],
            Self::Always { span, .. } => vec![new_label(*span, "never false")],
            Self::Shadowed { by, span, by_span, when, .. } => {
                vec![new_label(*span, "never reached"), new_label(*by_span, format!("`{by}` fires {when}"))]
            }
            Self::EmptyText { span, .. } => vec![new_label(*span, "empty")],
            Self::ShortDelay { span, .. } => vec![new_label(*span, "in milliseconds")],
            Self::NoEffect { span, .. } | Self::UnusedKey { span, .. } => vec![new_label(*span, "changes nothing")],
            Self::IgnoredAnswer { layer, span, .. } => vec![new_label(*span, format!("ignored in layer {layer}"))],
            Self::RemovesOther { span, removed_span, .. } => {
                vec![new_label(*span, "the same id"), new_label(*removed_span, "removed")]
            }
            Self::Endless { span, .. } | Self::SwallowsEverything { span, .. } => {
                vec![new_label(*span, "no condition")]
            }
            Self::NeverInRun { span, .. } => vec![new_label(*span, "only in a chat")],
            Self::TextList { span, .. } => vec![new_label(*span, "a string, not a list")],
            Self::DuplicateId { first, second, .. } => {
                vec![new_label(*second, "the second one"), new_label(*first, "the first one")]
            }
            Self::UntrustedParameter { span, .. } => vec![new_label(*span, "this text comes from the model or a tool")],
            Self::Ungranted { span, .. } => vec![new_label(*span, "at run time, this can name any item")],
            Self::StartsMore { span, grant, granted, .. } => {
                let mut labels = vec![
                    new_label(*span, "this directive runs under the thread's capabilities and the hook's grants"),
                    new_label(*grant, "this will be refused"),
                ];
                labels.extend(granted.map(|span| new_label(span, "the thread is granted only this")));
                labels
            }
            Self::Beyond { span, granted, .. } => {
                let granted = granted.iter().map(|s| new_label(*s, "these are the grants"));
                std::iter::once(new_label(*span, "this action is refused when the hook fires")).chain(granted).collect()
            }
        }
    }
}

fn suppression_help(id: &str) -> String {
    format!("in place of this hook, write `<suppress>{id}</suppress>` in `<context>`")
}

/// Returns the help for a comparison with a value that `fact` never has.
fn possible_values(fact: &str) -> &'static str {
    match fact {
        "classification.name" => {
            "write the name of a rule under `patterns` in `agent/error_classification`, or compare `classification.category`"
        }
        "model" => {
            "`rye providers list` lists the models; to compare a part of an id, write `model contains \"…\"`; only `--model PROVIDER/ID` selects a model that is not listed"
        }
        "category" => {
            "the category is the id of a directive without its last segment; for several, write `category matches \"^a/\"`"
        }
        "name" => "write the `id` of a command of `agent/chat`",
        _ => "write the whole id; for several, `directive in [\"a/b\", \"a/c\"]` or `directive matches \"^a/\"`",
    }
}
