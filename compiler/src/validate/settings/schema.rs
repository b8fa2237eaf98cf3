//! The schemas of all settings files as data (`language.md` 1), used by the check and printed in the language
//! reference. A schema does not state the effect of a value: the code that reads the setting defines the effect.

use crate::model::WIRE_FORMATS;
use crate::plan::Tokenizer;
use crate::semantics::classify::Category;
use crate::semantics::money::Nanos;
use crate::semantics::risk::{Policy, Tier};

/// The longest duration of a setting: ten years.
pub(crate) const MAX_SECONDS: f64 = 315_360_000.0;

/// The kind of value that a key accepts.
#[derive(Debug, Clone, Copy)]
pub enum SettingShape {
    Text,
    Bool,
    /// A whole number, at least `least`.
    Integer {
        least: u64,
    },
    /// A number of seconds, from 0 to `MAX_SECONDS`.
    Seconds,
    /// An amount of dollars above 0, in whole nano-dollars.
    Dollars,
    /// A fraction: above 0, at most 1.
    Fraction,
    /// Dollars per million tokens, as text or as a number.
    Price,
    OneOf(&'static [&'static str]),
    /// A mapping of exactly these keys.
    Map(&'static [SettingField]),
    /// Either this word, or a mapping with these keys.
    MapOr(&'static str, &'static [SettingField]),
    /// A mapping of any names to values of this shape.
    Names(&'static SettingShape),
    /// A mapping whose keys are names from this list, and whose values have this shape.
    NamedValues(&'static [&'static str], &'static SettingShape),
    List(&'static SettingShape),
    /// A mapping of the actions of a chat's terminal ([`BOUND_ACTIONS`](crate::key_bindings::BOUND_ACTIONS)) to keys.
    KeyBindings,
    /// A condition over the facts of a failure (`crate::semantics::classify::FAILURE_FACTS`).
    Failure,
    /// A capability pattern.
    Pattern,
    /// A value that the schema does not check, such as a list of hooks. The code that reads the value checks it.
    Opaque,
    /// A documentation file, which is never read. The text is a clause that describes the file: "it documents the names
    /// of events".
    Documentation(&'static str),
}

/// A key that a mapping of a settings file can have.
#[derive(Debug, Clone, Copy)]
pub struct SettingField {
    pub key: &'static str,
    pub shape: SettingShape,
    /// True if a mapping without the key is an error.
    pub is_required: bool,
    /// A phrase that states the meaning of the key, for the language reference.
    pub about: &'static str,
}

/// The schema of a settings file, or of all files in a folder.
#[derive(Debug, Clone, Copy)]
pub struct SettingsFile {
    /// The id; an id that ends in `/` stands for every file directly below it.
    pub id: &'static str,
    pub shape: SettingShape,
    pub about: &'static str,
}

const fn key(key: &'static str, shape: SettingShape, about: &'static str) -> SettingField {
    SettingField { key, shape, is_required: false, about }
}
const fn required_key(key: &'static str, shape: SettingShape, about: &'static str) -> SettingField {
    SettingField { key, shape, is_required: true, about }
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

const RETRY: &[SettingField] = &[
    key("max_retries", SettingShape::Integer { least: 0 }, "maximum number of retries"),
    key(
        "base_seconds",
        SettingShape::Seconds,
        "base of the random wait before a retry: after failure N, at most `base_seconds` × 2^N s; after 10 failures, at least 1 s",
    ),
    key(
        "max_seconds",
        SettingShape::Seconds,
        "the longest wait; a `Retry-After` header of the response takes precedence",
    ),
];

const MODEL_PRICES: &[SettingField] = &[
    required_key("input", SettingShape::Price, "dollars per million tokens"),
    required_key("output", SettingShape::Price, "dollars per million tokens"),
    key("cache_read", SettingShape::Price, "default: as `input`"),
    key("cache_write", SettingShape::Price, "default: as `input`"),
    key(
        "long_prompt",
        SettingShape::MapOr("none", LONG_PROMPT),
        "prices of a request with a long prompt; `none`: the same prices for prompts of any length",
    ),
];

const LONG_PROMPT: &[SettingField] = &[
    required_key("above", SettingShape::Integer { least: 1 }, "prompt tokens above which these prices apply"),
    required_key("input", SettingShape::Price, "dollars per million tokens"),
    required_key("output", SettingShape::Price, "dollars per million tokens"),
    key("cache_read", SettingShape::Price, "default: as `input`"),
    key("cache_write", SettingShape::Price, "default: as `input`"),
];

const MODEL: &[SettingField] = &[
    required_key("id", SettingShape::Text, "id of the model at the provider"),
    required_key("context_window", SettingShape::Integer { least: 1 }, "tokens of prompt and answer together"),
    required_key("max_output", SettingShape::Integer { least: 1 }, "tokens of the longest answer"),
    key("tool_use", SettingShape::OneOf(&["native", "text_parsed"]), "how tool calls are read (default: `native`)"),
    key("images", SettingShape::Bool, "`false` if messages may not contain images (default: `true`)"),
    key(
        "prices",
        SettingShape::MapOr("none", MODEL_PRICES),
        "without prices, only tokens are counted; `none`: the model costs nothing",
    ),
    key(
        "tokenizer",
        SettingShape::OneOf(&Tokenizer::EXACT),
        "the model's tokenizer; if absent, or if this build lacks `tokenizers`, tokens are estimated as characters / 4",
    ),
    key("priced_at", SettingShape::Text, "date of the prices"),
    key("source", SettingShape::Text, "source of the prices"),
];

const RULE: &[SettingField] = &[
    required_key("id", SettingShape::Text, "id; a rule with the same id in a higher space replaces it"),
    key("name", SettingShape::Text, "value of `classification.name` in hooks (default: the id)"),
    required_key("category", SettingShape::OneOf(&CATEGORIES), "value of `classification.category` in hooks"),
    key("retryable", SettingShape::Bool, "default: follows from the category"),
    key("retry", SettingShape::Map(RETRY), "backoff of this rule"),
    required_key(
        "match",
        SettingShape::Failure,
        "a condition over `stage`, `status`, `headers`, `error` and `attempt`",
    ),
];

const FALLBACK: &[SettingField] = &[
    key("id", SettingShape::Text, "name of a failure that no rule matches"),
    key("name", SettingShape::Text, "default: the id"),
    required_key("category", SettingShape::OneOf(&CATEGORIES), "its category"),
    key("retryable", SettingShape::Bool, "default: follows from the category"),
    key("retry", SettingShape::Map(RETRY), "backoff of this rule"),
];

const GROUP: &[SettingField] = &[
    required_key("description", SettingShape::Text, "purpose of the group"),
    required_key("patterns", SettingShape::List(&SettingShape::Pattern), "the capabilities in it"),
];

/// The keys of `limits.max`: the highest value that a file can set for each limit.
const CEILINGS: &[SettingField] = &[
    key("turns", SettingShape::Integer { least: 1 }, "the highest number of turns that a file can set"),
    key("tokens", SettingShape::Integer { least: 1 }, "the highest number of tokens that a file can set"),
    key(
        "spend",
        SettingShape::Dollars,
        "the highest amount in dollars that a file can set; `--limit spend=…` can set more",
    ),
    key("spawns", SettingShape::Integer { least: 0 }, "the highest number of children that a file can set"),
    key("depth", SettingShape::Integer { least: 0 }, "the greatest depth that a file can set"),
    key("duration_seconds", SettingShape::Integer { least: 1 }, "the longest duration that a file can set"),
];

/// Renamed keys: the file, the path with the former name, and the current name of the key.
pub(crate) const RENAMED_KEYS: [(&str, &str, &str); 1] = [("agent/agent", "approvals.unattended", "headless")];

/// Every settings file, by id.
pub const FILES: &[SettingsFile] = &[
    SettingsFile {
        id: "agent/agent",
        about: "Signing, approvals, sandbox and maximum limits of all threads.",
        shape: SettingShape::Map(&[
            key(
                "signing",
                SettingShape::Map(&[key(
                    "require",
                    SettingShape::OneOf(&["none", "shared", "all"]),
                    "`all` refuses unsigned files of the project and the user; `none` and `shared` accept them",
                )]),
                "signatures",
            ),
            key(
                "approvals",
                SettingShape::Map(&[
                    key(
                        "headless",
                        SettingShape::OneOf(&["allow", "queue", "deny"]),
                        "policy for unacknowledged risky calls without a terminal; the stricter of the user's and the project's setting applies",
                    ),
                    key(
                        "timeout_seconds",
                        SettingShape::Integer { least: 1 },
                        "an approval request without an answer suspends its thread after this time",
                    ),
                ]),
                "approvals of risky calls by a person",
            ),
            key(
                "limits",
                SettingShape::Map(&[key("max", SettingShape::Map(CEILINGS), "the ceilings")]),
                "bounds of limits",
            ),
            key(
                "sandbox",
                SettingShape::OneOf(&["landlock", "bubblewrap"]),
                "`bubblewrap` runs programs in bubblewrap, around their Landlock sandbox; any space can set this value",
            ),
        ]),
    },
    SettingsFile { id: "agent/assertions", about: "Properties that `rye assert` proves.", shape: SettingShape::Opaque },
    SettingsFile {
        id: "agent/budget_ledger_schema",
        about: "The JSON Schema of one ledger entry; documentation only.",
        shape: SettingShape::Documentation(
            "the file describes how `rye threads show --format json` prints a ledger account",
        ),
    },
    SettingsFile {
        id: "agent/capabilities/",
        about: "Named groups of capability patterns: for documentation, completion and suggestions. They grant nothing.",
        shape: SettingShape::Map(&[
            required_key("description", SettingShape::Text, "subject of the file"),
            required_key("groups", SettingShape::Names(&SettingShape::Map(GROUP)), "group name → group"),
        ]),
    },
    SettingsFile {
        id: "agent/capability_risk",
        about: "Risk tiers of capabilities.",
        shape: SettingShape::Map(&[
            key(
                "risk_levels",
                SettingShape::NamedValues(
                    &TIERS,
                    &SettingShape::Map(&[required_key(
                        "policy",
                        SettingShape::OneOf(&POLICIES),
                        "policy for grants of this tier",
                    )]),
                ),
                "tier → policy",
            ),
            key(
                "classifications",
                SettingShape::List(&SettingShape::Map(&[
                    required_key("risk", SettingShape::OneOf(&TIERS), "the tier"),
                    required_key("patterns", SettingShape::List(&SettingShape::Pattern), "patterns of this tier"),
                ])),
                "of several matching patterns, the one with the most literal characters decides",
            ),
        ]),
    },
    SettingsFile {
        id: "agent/chat",
        about: "Chats.",
        shape: SettingShape::Map(&[
            key(
                "skills",
                SettingShape::Map(&[key(
                    "max_tokens",
                    SettingShape::Integer { least: 0 },
                    "maximum tokens of the entries in the list of skills, without its introduction; a skill that does not fit is not listed",
                )]),
                "the skills of a chat",
            ),
            key(
                "context_files",
                SettingShape::Map(&[key(
                    "max_tokens",
                    SettingShape::Integer { least: 0 },
                    "maximum tokens of all context files; a file that does not fit is an error",
                )]),
                "the `AGENTS.md` and `CLAUDE.md` files of a chat",
            ),
            key(
                "cache_guard",
                SettingShape::Dollars,
                "extra cost of a request in dollars above which a chat asks before it sends cached tokens again uncached; a project can only lower the user's amount; default: 0.02",
            ),
            key(
                "append_system",
                SettingShape::Text,
                "id of knowledge appended to the system prompt of each chat, the user's item before the project's",
            ),
            key(
                "commands",
                SettingShape::List(&SettingShape::Map(&[
                    required_key("id", SettingShape::Text, "the name after the slash"),
                    key("description", SettingShape::Text, "its line in `/help`"),
                    key("argument_hint", SettingShape::Text, "a hint for the text after the name"),
                    required_key(
                        "execute",
                        SettingShape::Opaque,
                        "the item to run, as in a hook: `item_type`, `item_id` and `params`; `${args}` is the text after the name",
                    ),
                    key("grants", SettingShape::Opaque, "capabilities that the call may use, as in a hook"),
                ])),
                "commands that a user can type in a chat",
            ),
        ]),
    },
    SettingsFile {
        id: "agent/coordination",
        about: "Waiting for child threads, and continuation in new threads.",
        shape: SettingShape::Map(&[
            key(
                "wait_threads",
                SettingShape::Map(&[key("default_timeout", SettingShape::Seconds, "seconds")]),
                "waiting for other threads",
            ),
            key(
                "continuation",
                SettingShape::Map(&[
                    key(
                        "trigger_threshold",
                        SettingShape::Fraction,
                        "fraction of the context window at which a thread is continued",
                    ),
                    key(
                        "resume_ceiling_tokens",
                        SettingShape::Integer { least: 1 },
                        "maximum tokens of the earlier messages that a continuation starts with; messages of the unfinished prompt and unanswered messages do not count",
                    ),
                ]),
                "continuation when the context is full",
            ),
        ]),
    },
    SettingsFile {
        id: "agent/error_classification",
        about: "Classification of failures; the first rule whose condition is true applies.",
        shape: SettingShape::Map(&[
            key("patterns", SettingShape::List(&SettingShape::Map(RULE)), "the rules, in order"),
            key("default", SettingShape::Map(FALLBACK), "failures that no rule matches"),
        ]),
    },
    SettingsFile {
        id: "agent/events",
        about: "Names of the engine's events; documentation only.",
        shape: SettingShape::Documentation(
            "the file documents the names of events, and which of them are never delayed",
        ),
    },
    SettingsFile {
        id: "agent/hook_conditions",
        about: "Hooks (`docs/reference/language.md`, Hooks).",
        shape: SettingShape::Opaque,
    },
    SettingsFile {
        id: "agent/hooks",
        about: "Hooks (`docs/reference/language.md`, Hooks).",
        shape: SettingShape::Opaque,
    },
    SettingsFile {
        id: "agent/keys",
        about: "Keys of the terminal of a chat, as `ACTION: KEY` or `ACTION: [KEY, KEY]`; `[]` removes the keys of an action. A key is `ctrl+g`, `alt+enter`, `f2` or the like. Only the file of your user space is read; in a project, the file is an error ([guide](../guides/chat.md#keys)).",
        shape: SettingShape::KeyBindings,
    },
    SettingsFile {
        id: "agent/models",
        about: "Default provider and tier of directives that name neither.",
        shape: SettingShape::Map(&[
            key("default_provider", SettingShape::Text, "the id of a provider file"),
            key("default_tier", SettingShape::Text, "the tier if neither the directive nor the provider names a tier"),
            key("aliases", SettingShape::Names(&SettingShape::Text), "another name → tier"),
        ]),
    },
    SettingsFile {
        id: "agent/providers/",
        about: "A provider: its connection and its models.",
        shape: SettingShape::Map(&[
            key("id", SettingShape::Text, "the file's own name"),
            required_key("wire", SettingShape::OneOf(&WIRE_FORMATS), "the wire format of requests and streams"),
            key("base_url", SettingShape::Text, "base URL of requests"),
            key("base_url_env", SettingShape::Text, "environment variable that overrides `base_url`"),
            key("key_env", SettingShape::Text, "environment variable with the key; without it, no key is sent"),
            key(
                "key_header",
                SettingShape::Text,
                "`authorization` (a bearer token), or a header that contains only the key",
            ),
            key(
                "max_tokens_field",
                SettingShape::OneOf(&["max_tokens", "max_completion_tokens"]),
                "for `openai-chat`: the request field that bounds the length of the answer",
            ),
            key(
                "encrypted_reasoning",
                SettingShape::Bool,
                "for `openai-responses`: `true` requests encrypted reasoning",
            ),
            key("script", SettingShape::Text, "for `scripted`: the script, relative to the project"),
            key("default_tier", SettingShape::Text, "the tier of a directive that names no tier"),
            key("tiers", SettingShape::Names(&SettingShape::Text), "tier → model id"),
            key("models", SettingShape::List(&SettingShape::Map(MODEL)), "the models"),
        ]),
    },
    SettingsFile {
        id: "agent/resilience",
        about: "Default limits of a thread, and retry settings.",
        shape: SettingShape::Map(&[
            key("limits", SettingShape::Opaque, "the limits of a thread"),
            key(
                "session_limits",
                SettingShape::Map(&[
                    key("turns", SettingShape::Integer { least: 1 }, "default: 500"),
                    key("tokens", SettingShape::Integer { least: 1 }, "default: 10,000,000"),
                    key("spend", SettingShape::Dollars, "dollars; default: 5"),
                    key("duration_seconds", SettingShape::Integer { least: 1 }, "default: 28,800"),
                ]),
                "the limits of a whole chat; `limits` bound each of its prompts",
            ),
            key("retry", SettingShape::Map(RETRY), "the backoff of failed model calls"),
            key(
                "budget",
                SettingShape::Map(&[key(
                    "unknown_outcome",
                    SettingShape::OneOf(&["worst_case", "estimate"]),
                    "cost of a model call whose stream broke before the provider reported its final usage",
                )]),
                "money",
            ),
            key(
                "tool_preload",
                SettingShape::Map(&[
                    key("enabled", SettingShape::Bool, "`false`: granted tools are not offered to the model"),
                    key(
                        "max_tokens",
                        SettingShape::Integer { least: 0 },
                        "maximum tokens of the offered definitions, counted as characters / 4",
                    ),
                ]),
                "the tools that a model is offered",
            ),
            key(
                "tool_result",
                SettingShape::Map(&[key(
                    "max_bytes",
                    SettingShape::Integer { least: 1 },
                    "a longer result is shortened, and the model can fetch the rest",
                )]),
                "results",
            ),
            key(
                "child_policy",
                SettingShape::Map(&[key(
                    "on_end",
                    SettingShape::OneOf(&["wait", "cancel"]),
                    "policy for children that are still running when their parent ends",
                )]),
                "children",
            ),
            key(
                "concurrency",
                SettingShape::Map(&[key(
                    "max_concurrent_children",
                    SettingShape::Integer { least: 1 },
                    "maximum number of children that run at the same time; further children wait",
                )]),
                "parallel children",
            ),
        ]),
    },
    SettingsFile {
        id: "check",
        about: "Severity of each code of `rye check` (`docs/reference/check.md`).",
        shape: SettingShape::Opaque,
    },
    SettingsFile { id: "mcp", about: "MCP servers (`docs/reference/tools.md`).", shape: SettingShape::Opaque },
];

/// Returns the schema of the settings file with this id; `None` for an unknown id.
pub(crate) fn find_file(id: &str) -> Option<&'static SettingsFile> {
    FILES.iter().find(|file| match file.id.strip_suffix('/') {
        Some(folder) => {
            id.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')).is_some_and(|n| !n.contains('/'))
        }
        None => file.id == id,
    })
}

impl SettingShape {
    /// Describes the expected value, as a phrase.
    pub fn expected(&self) -> String {
        match self {
            Self::Text => "a string".to_owned(),
            Self::Bool => "`true` or `false`".to_owned(),
            Self::Integer { least } => format!("a whole number, {least} or more"),
            Self::Seconds => format!("a number of seconds, from 0 to {MAX_SECONDS}"),
            Self::Dollars => {
                format!("a number of dollars from 0.000000001 (too little for any call) to {}", Nanos(i64::MAX))
            }
            Self::Fraction => "a number above 0 and at most 1".to_owned(),
            Self::Price => "dollars per million tokens, such as \"0.25\"".to_owned(),
            Self::OneOf(words) => one_of(words),
            Self::Map(_) | Self::Names(_) | Self::NamedValues(..) => "a mapping".to_owned(),
            Self::MapOr(word, _) => format!("a mapping, or `{word}`"),
            Self::List(_) => "a list".to_owned(),
            Self::KeyBindings => "a mapping of actions to keys".to_owned(),
            Self::Failure => "a condition".to_owned(),
            Self::Pattern => "a capability pattern".to_owned(),
            Self::Opaque | Self::Documentation(_) => "a value".to_owned(),
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
        assert_eq!(find_file("agent/hooks").map(|f| f.id), Some("agent/hooks"));
        assert_eq!(find_file("agent/providers/mine").map(|f| f.id), Some("agent/providers/"));
        for none in ["agent/hook", "agent/providers", "agent/providers/a/b", "hooks"] {
            assert!(find_file(none).is_none(), "{none}");
        }
    }
}
