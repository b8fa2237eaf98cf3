//! The schemas of all settings files as data (`language.md` 1), used by the check and printed in the language
//! reference. Readers of the settings define what a value does.

use crate::model::WIRES;
use crate::plan::Tokenizer;
use crate::semantics::classify::Category;
use crate::semantics::risk::{Policy, Tier};

/// The kind of value that a key accepts.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    Text,
    Truth,
    /// A whole number, at least `least`.
    Whole {
        least: u64,
    },
    /// A number, 0 or more.
    Amount,
    /// A fraction: above 0, at most 1.
    Share,
    /// Dollars per million tokens, as text or as a number.
    Price,
    OneOf(&'static [&'static str]),
    /// A mapping of exactly these keys.
    Map(&'static [Field]),
    /// This word, or a mapping of these keys.
    MapOr(&'static str, &'static [Field]),
    /// A mapping of any names to values of this shape.
    Names(&'static Shape),
    /// A mapping of names of a closed list to values of this shape.
    Known(&'static [&'static str], &'static Shape),
    List(&'static Shape),
    /// A condition over the facts of a failure.
    Failure,
    /// A capability pattern.
    Pattern,
    /// Not checked here: its own reader checks the content, or it is written in another language.
    Elsewhere,
    /// Documentation only: nothing reads it. The text describes its subject, as a clause.
    ForReaders(&'static str),
}

/// A key of a mapping.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    pub key: &'static str,
    pub shape: Shape,
    /// Set if a mapping without the key is an error.
    pub needed: bool,
    /// The meaning, as a phrase.
    pub about: &'static str,
}

/// A settings file, or all files of a folder.
#[derive(Debug, Clone, Copy)]
pub struct File {
    /// The id; an id that ends in `/` stands for every file directly below it.
    pub id: &'static str,
    pub shape: Shape,
    pub about: &'static str,
}

const fn key(key: &'static str, shape: Shape, about: &'static str) -> Field {
    Field { key, shape, needed: false, about }
}
const fn needed(key: &'static str, shape: Shape, about: &'static str) -> Field {
    Field { key, shape, needed: true, about }
}

const TIERS: [&str; 4] =
    [Tier::Safe.as_str(), Tier::Write.as_str(), Tier::Elevated.as_str(), Tier::Unrestricted.as_str()];
const POLICIES: [&str; 3] = [Policy::Allow.as_str(), Policy::AcknowledgeRequired.as_str(), Policy::Block.as_str()];
const CATEGORIES: [&str; 4] = [
    Category::RateLimited.as_str(),
    Category::Transient.as_str(),
    Category::Permanent.as_str(),
    Category::Cancelled.as_str(),
];

const RETRY: &[Field] = &[
    key("max_retries", Shape::Whole { least: 0 }, "attempts after the first one"),
    key("base_seconds", Shape::Amount, "the first wait; it doubles with each attempt"),
    key("max_seconds", Shape::Amount, "the longest wait"),
];

const MODEL_PRICES: &[Field] = &[
    needed("input", Shape::Price, "dollars per million tokens"),
    needed("output", Shape::Price, "dollars per million tokens"),
    key("cache_read", Shape::Price, "as `input` where it is left out"),
    key("cache_write", Shape::Price, "as `input` where it is left out"),
    key("long_prompt", Shape::Map(LONG_PROMPT), "what a request with a long prompt costs instead"),
];

const LONG_PROMPT: &[Field] = &[
    needed("above", Shape::Whole { least: 1 }, "prompt tokens above which these prices hold"),
    needed("input", Shape::Price, "dollars per million tokens"),
    needed("output", Shape::Price, "dollars per million tokens"),
    key("cache_read", Shape::Price, "as `input` where it is left out"),
    key("cache_write", Shape::Price, "as `input` where it is left out"),
];

const MODEL: &[Field] = &[
    needed("id", Shape::Text, "as the provider calls it"),
    needed("context_window", Shape::Whole { least: 1 }, "tokens of prompt and answer together"),
    needed("max_output", Shape::Whole { least: 1 }, "tokens of the longest answer"),
    key("tool_use", Shape::OneOf(&["native", "text_parsed"]), "how calls are read; `native` unless it says otherwise"),
    key("images", Shape::Truth, "`false`: a message to it may hold no images; `true` unless it says otherwise"),
    key(
        "prices",
        Shape::MapOr("none", MODEL_PRICES),
        "without them tokens count and money does not; `none`: that is meant",
    ),
    key(
        "tokenizer",
        Shape::OneOf(&Tokenizer::EXACT),
        "what counts its tokens exactly; without it, and in a build without the feature `tokenizers`, characters / 4",
    ),
    key("priced_at", Shape::Text, "the day the prices were looked up"),
    key("source", Shape::Text, "where they were looked up"),
];

const RULE: &[Field] = &[
    needed("id", Shape::Text, "a rule of the same id in a higher space takes its place"),
    key("name", Shape::Text, "what hooks read as `classification.name`; the id unless it says otherwise"),
    needed("category", Shape::OneOf(&CATEGORIES), "what hooks read as `classification.category`"),
    key("retryable", Shape::Truth, "follows from the category unless it says otherwise"),
    key("retry", Shape::Map(RETRY), "a backoff of its own"),
    needed("match", Shape::Failure, "a condition over `stage`, `status`, `headers`, `error` and `attempt`"),
];

const FALLBACK: &[Field] = &[
    key("id", Shape::Text, "the name of what no rule names"),
    key("name", Shape::Text, "the same"),
    needed("category", Shape::OneOf(&CATEGORIES), "its category"),
    key("retryable", Shape::Truth, "follows from the category unless it says otherwise"),
    key("retry", Shape::Map(RETRY), "a backoff of its own"),
];

const GROUP: &[Field] = &[
    needed("description", Shape::Text, "what the group is for"),
    needed("patterns", Shape::List(&Shape::Pattern), "the capabilities in it"),
];

/// Every settings file, by id.
pub const FILES: &[File] = &[
    File {
        id: "agent/agent",
        about: "The agent system as a whole.",
        shape: Shape::Map(&[
            key(
                "signing",
                Shape::Map(&[key(
                    "require",
                    Shape::OneOf(&["none", "shared", "all"]),
                    "which files have to be signed; `shared`: those installed from elsewhere",
                )]),
                "signatures",
            ),
            key(
                "approvals",
                Shape::Map(&[key(
                    "unattended",
                    Shape::OneOf(&["allow", "queue", "deny"]),
                    "unacknowledged risky calls where nobody can be asked: the user's word, or what is stricter in the project's",
                )]),
                "a person's word",
            ),
            key(
                "sandbox",
                Shape::OneOf(&["landlock", "bubblewrap"]),
                "`bubblewrap`: the wall of a program is raised inside it; any space can ask for it",
            ),
        ]),
    },
    File { id: "agent/assertions", about: "Properties that `rye assert` proves.", shape: Shape::Elsewhere },
    File {
        id: "agent/budget_ledger_schema",
        about: "The JSON Schema of one ledger entry; for readers.",
        shape: Shape::ForReaders("it says how `rye threads show --format json` prints an account"),
    },
    File {
        id: "agent/capabilities/",
        about: "Named groups of capability patterns: for documentation, completion and suggestions. They grant nothing.",
        shape: Shape::Map(&[
            needed("description", Shape::Text, "what the file is about"),
            needed("groups", Shape::Names(&Shape::Map(GROUP)), "group name → group"),
        ]),
    },
    File {
        id: "agent/capability_risk",
        about: "How dangerous capabilities are.",
        shape: Shape::Map(&[
            key(
                "risk_levels",
                Shape::Known(
                    &TIERS,
                    &Shape::Map(&[needed("policy", Shape::OneOf(&POLICIES), "what a grant of the tier takes")]),
                ),
                "tier → policy",
            ),
            key(
                "classifications",
                Shape::List(&Shape::Map(&[
                    needed("risk", Shape::OneOf(&TIERS), "the tier"),
                    needed("patterns", Shape::List(&Shape::Pattern), "what is of this tier"),
                ])),
                "the pattern with the most literal characters decides",
            ),
        ]),
    },
    File {
        id: "agent/coordination",
        about: "How threads wait for each other and go on after one another.",
        shape: Shape::Map(&[
            key(
                "wait_threads",
                Shape::Map(&[key("default_timeout", Shape::Amount, "seconds")]),
                "waiting for other threads",
            ),
            key(
                "continuation",
                Shape::Map(&[
                    key("trigger_threshold", Shape::Share, "of the context window"),
                    key(
                        "resume_ceiling_tokens",
                        Shape::Whole { least: 1 },
                        "trailing messages that a continuation begins with",
                    ),
                ]),
                "going on when the context is full",
            ),
        ]),
    },
    File {
        id: "agent/error_classification",
        about: "What kind of failure a failure is; the first rule whose condition holds decides.",
        shape: Shape::Map(&[
            key("patterns", Shape::List(&Shape::Map(RULE)), "the rules, in order"),
            key("default", Shape::Map(FALLBACK), "what no rule names"),
        ]),
    },
    File {
        id: "agent/events",
        about: "What the engine's events are called; nothing changes it.",
        shape: Shape::ForReaders("it says what the events are called and which of them are never held back"),
    },
    File { id: "agent/hook_conditions", about: "Hooks (section 7).", shape: Shape::Elsewhere },
    File { id: "agent/hooks", about: "Hooks (section 7).", shape: Shape::Elsewhere },
    File {
        id: "agent/models",
        about: "Which provider and tier are meant where a directive names none.",
        shape: Shape::Map(&[
            key("default_provider", Shape::Text, "the id of a provider file"),
            key("default_tier", Shape::Text, "the tier of a directive and a provider that name none"),
            key("aliases", Shape::Names(&Shape::Text), "another name → tier"),
        ]),
    },
    File {
        id: "agent/providers/",
        about: "One provider: how it is reached, and its models.",
        shape: Shape::Map(&[
            key("id", Shape::Text, "the file's own name"),
            needed("wire", Shape::OneOf(&WIRES), "the shape of requests and streams"),
            key("base_url", Shape::Text, "where requests go"),
            key("base_url_env", Shape::Text, "a variable that takes its place when it is set"),
            key("key_env", Shape::Text, "the variable that holds the key; without it no key is sent"),
            key("key_header", Shape::Text, "`authorization` (a bearer token) or a header that holds the key alone"),
            key(
                "max_tokens_field",
                Shape::OneOf(&["max_tokens", "max_completion_tokens"]),
                "for `openai-chat`: the field that bounds the answer",
            ),
            key("encrypted_reasoning", Shape::Truth, "for `openai-responses`: whether sealed thoughts are asked for"),
            key("script", Shape::Text, "for `scripted`: the script, relative to the project"),
            key("default_tier", Shape::Text, "the tier of a directive that names none"),
            key("tiers", Shape::Names(&Shape::Text), "tier → model id"),
            key("models", Shape::List(&Shape::Map(MODEL)), "the models"),
        ]),
    },
    File {
        id: "agent/resilience",
        about: "What a thread may use when nothing else says so, and how it holds out against failures.",
        shape: Shape::Map(&[
            key("limits", Shape::Elsewhere, "the limits of section 11"),
            key("retry", Shape::Map(RETRY), "the backoff of failed model calls"),
            key(
                "budget",
                Shape::Map(&[key(
                    "unknown_outcome",
                    Shape::OneOf(&["worst_case", "estimate"]),
                    "what a model call costs whose stream broke off before the provider reported its final usage",
                )]),
                "money",
            ),
            key(
                "tool_preload",
                Shape::Map(&[
                    key("enabled", Shape::Truth, "whether granted tools are registered at all"),
                    key("max_tokens", Shape::Whole { least: 0 }, "what their definitions may weigh: characters / 4"),
                ]),
                "the palette (section 10)",
            ),
            key(
                "tool_result",
                Shape::Map(&[key("max_bytes", Shape::Whole { least: 1 }, "a longer result becomes a reference")]),
                "results",
            ),
            key(
                "child_policy",
                Shape::Map(&[key(
                    "on_end",
                    Shape::OneOf(&["wait", "cancel"]),
                    "what becomes of children that still run",
                )]),
                "children",
            ),
            key(
                "concurrency",
                Shape::Map(&[key("max_concurrent_children", Shape::Whole { least: 1 }, "more of them queue")]),
                "how many at once",
            ),
        ]),
    },
    File {
        id: "check",
        about: "How loud each code of `rye check` is (`docs/reference/check.md`).",
        shape: Shape::Elsewhere,
    },
    File { id: "mcp", about: "MCP servers (`docs/reference/tools.md`).", shape: Shape::Elsewhere },
];

/// Returns the schema entry of an id.
pub fn file(id: &str) -> Option<&'static File> {
    FILES.iter().find(|file| match file.id.strip_suffix('/') {
        Some(folder) => {
            id.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')).is_some_and(|n| !n.contains('/'))
        }
        None => file.id == id,
    })
}

impl Shape {
    /// Describes the expected value, as a phrase.
    pub fn expected(&self) -> String {
        match self {
            Self::Text => "a text".to_owned(),
            Self::Truth => "`true` or `false`".to_owned(),
            Self::Whole { least } => format!("a whole number, {least} or more"),
            Self::Amount => "a number, 0 or more".to_owned(),
            Self::Share => "a number above 0 and at most 1".to_owned(),
            Self::Price => "dollars per million tokens, such as \"0.25\"".to_owned(),
            Self::OneOf(words) => one_of(words),
            Self::Map(_) | Self::Names(_) | Self::Known(..) => "a mapping".to_owned(),
            Self::MapOr(word, _) => format!("a mapping, or `{word}`"),
            Self::List(_) => "a list".to_owned(),
            Self::Failure => "a condition".to_owned(),
            Self::Pattern => "a capability pattern".to_owned(),
            Self::Elsewhere | Self::ForReaders(_) => "a value".to_owned(),
        }
    }
}

fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|w| format!("`{w}`")).collect();
    match quoted.as_slice() {
        [only] => only.clone(),
        [first, second] => format!("{first} or {second}"),
        all => format!("one of {}", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_sorted_and_found() {
        assert!(FILES.is_sorted_by_key(|file| file.id));
        assert_eq!(file("agent/hooks").map(|f| f.id), Some("agent/hooks"));
        assert_eq!(file("agent/providers/mine").map(|f| f.id), Some("agent/providers/"));
        for none in ["agent/hook", "agent/providers", "agent/providers/a/b", "hooks"] {
            assert!(file(none).is_none(), "{none}");
        }
    }
}
