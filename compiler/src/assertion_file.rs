//! Reads `assertions.yaml`: conditions that may also call functions about a thread ([`AssertionFunction`]). Each
//! function is evaluated before the condition, which reads the result as a fact.

use std::collections::{BTreeMap, BTreeSet};

use rye_grammar::capability::Pattern;
use rye_grammar::condition::{Path, Segment};
use rye_grammar::data::{Kind, Node};
use rye_grammar::{ItemId, Span, Spanned, capability, condition};

use crate::diagnostics::{ConfigError, Diagnostics, ItemError, Severity, closest};
use crate::item::{Items, data};
use crate::semantics::condition::{Condition, PatternBudget};
use crate::semantics::money::Nanos;

/// Id of the settings file that contains the assertions.
pub const ASSERTIONS_ID: &str = "agent/assertions";

#[derive(Debug, Clone, Default)]
pub struct Assertions {
    pub list: Vec<Assertion>,
    pub trifecta: Trifecta,
    /// The directives whose outputs count as free of untrusted text. The search for flows of text stops at these
    /// outputs.
    pub declassifying: Vec<Spanned<String>>,
}

impl Assertions {
    /// Returns the ids of the hooks that the assertions name as gates.
    pub fn gates(&self) -> BTreeSet<String> {
        let functions = self.list.iter().flat_map(|assertion| &assertion.functions);
        let gate = |function: &AssertionFunction| match function {
            AssertionFunction::Passes(gate) => Some(gate.clone()),
            AssertionFunction::Reaches(_)
            | AssertionFunction::Flows(..)
            | AssertionFunction::SpendsAtMost(_)
            | AssertionFunction::Survives(_) => None,
        };
        functions.filter_map(gate).collect()
    }
}

#[derive(Debug, Clone)]
pub struct Assertion {
    pub id: String,
    pub description: String,
    pub severity: Severity,
    /// True for `never`, if the condition must not hold. False for `always`, if the condition must hold.
    pub never: bool,
    pub condition: Condition,
    /// The functions that the condition calls, in order. Their results are the facts `assertion.c0`, `assertion.c1` and
    /// so on, which the compiled condition reads.
    pub functions: Vec<AssertionFunction>,
    /// The condition that selects the directives to which the assertion applies; `None` selects all directives.
    pub only: Option<Condition>,
    /// The span of `for`, or the span of the condition if there is no `for`.
    pub only_span: Span,
    /// The span of the condition.
    pub span: Span,
}

#[derive(Debug, Clone, PartialEq)]
pub enum AssertionFunction {
    /// The thread may use a capability that matches the pattern.
    Reaches(String),
    /// The thread or a thread of its spawn chain has the gate with this name. The gate `ask` exists if a call needs an
    /// approval. Any other name is the id of a hook, and this gate exists if the hook can fire.
    Passes(String),
    SpendsAtMost(Nanos),
    /// Text from a use of the first pattern in any thread can reach a use of the second pattern in this thread. A use
    /// is a call whose capability matches the pattern.
    Flows(String, String),
    /// Every continuation of the thread contains the knowledge item.
    Survives(ItemId),
}

impl Assertion {
    /// Returns the capability patterns that the functions of the assertion contain.
    pub fn patterns(&self) -> Vec<Pattern> {
        let patterns = |function: &AssertionFunction| match function {
            AssertionFunction::Reaches(pattern) => vec![Pattern(pattern.clone())],
            AssertionFunction::Flows(from, to) => vec![Pattern(from.clone()), Pattern(to.clone())],
            AssertionFunction::Passes(_) | AssertionFunction::SpendsAtMost(_) | AssertionFunction::Survives(_) => {
                Vec::new()
            }
        };
        self.functions.iter().flat_map(patterns).collect()
    }
}

/// The severity of the built-in assertion `lethal_trifecta`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Trifecta {
    Off,
    #[default]
    Warning,
    Error,
}

/// Names of the functions that an assertion can call.
const FUNCTIONS: [&str; 5] = ["reaches", "passes", "spends_at_most", "flows", "survives"];
/// Words of the condition language that may precede a parenthesis. They are not functions of an assertion.
const CONDITION_WORDS: [&str; 8] = ["exists", "length", "and", "or", "not", "in", "contains", "matches"];
/// Keys of an assertion.
pub(crate) const KEYS: [&str; 6] = ["id", "description", "for", "always", "never", "severity"];
/// Keys of `assertions.yaml`.
pub(crate) const TOP_KEYS: [&str; 3] = ["assertions", "lethal_trifecta", "declassifying"];

pub fn read(items: &Items<'_>, found: &mut Diagnostics) -> Assertions {
    let mut assertions = Assertions::default();
    let mut patterns = PatternBudget::default();
    let Some(config) = items.config_by_name(ASSERTIONS_ID) else { return assertions };
    if !matches!(config.kind, Kind::Map(_) | Kind::Null) {
        report_invalid(found, ASSERTIONS_ID, &config, "a mapping with a list `assertions`");
    }
    for entry in config.entries() {
        match entry.key.node.as_str() {
            "assertions" => {
                report_repeated_ids(&entry.value, found);
                let list = entry.value.items().iter();
                assertions.list.extend(list.filter_map(|node| read_assertion(node, &mut patterns, found)));
            }
            "lethal_trifecta" => match entry.value.as_str() {
                Some("warning") => assertions.trifecta = Trifecta::Warning,
                Some("error") => assertions.trifecta = Trifecta::Error,
                Some("off") => assertions.trifecta = Trifecta::Off,
                Some(_) | None => report_invalid(found, "lethal_trifecta", &entry.value, "`warning`, `error` or `off`"),
            },
            "declassifying" => match &entry.value.kind {
                Kind::List(items) => {
                    for node in items {
                        match node.as_str() {
                            Some(id) => assertions.declassifying.push(Spanned::new(id.to_owned(), node.span)),
                            None => report_invalid(found, "declassifying", node, "the id of a directive"),
                        }
                    }
                }
                Kind::Null => {}
                Kind::Bool(_) | Kind::Number(_) | Kind::String(_) | Kind::Map(_) => {
                    report_invalid(found, "declassifying", &entry.value, "a list of directive ids");
                }
            },
            key => report_unknown_key(found, key, entry.key.span, "`assertions.yaml`", &TOP_KEYS),
        }
        if entry.key.node == "assertions" && !matches!(entry.value.kind, Kind::List(_) | Kind::Null) {
            report_invalid(found, "assertions", &entry.value, "a list of assertions");
        }
    }
    assertions
}

fn report_repeated_ids(list: &Node, found: &mut Diagnostics) {
    let mut known: BTreeMap<&str, Span> = BTreeMap::new();
    for id in list.items().iter().filter_map(|node| node.get("id")) {
        let Some(text) = id.as_str() else { continue };
        match known.get(text) {
            Some(first) => {
                let what = format!("the assertion `{text}`");
                found.push(ItemError::Repeated { what, first: *first, second: id.span });
            }
            None => drop(known.insert(text, id.span)),
        }
    }
}

fn read_assertion(node: &Node, patterns: &mut PatternBudget, found: &mut Diagnostics) -> Option<Assertion> {
    for entry in node.entries() {
        if !KEYS.contains(&entry.key.node.as_str()) {
            report_unknown_key(found, &entry.key.node, entry.key.span, "an assertion", &KEYS);
        }
    }
    let text = |key: &str| node.get(key).and_then(Node::as_str).map(str::to_owned);
    let Some(id) = text("id") else {
        report_invalid(found, "assertions", node, "an assertion with an `id`");
        return None;
    };
    let (never, written) = match (node.get("never"), node.get("always")) {
        (Some(written), None) => (true, written),
        (None, Some(written)) => (false, written),
        (Some(_), Some(_)) | (None, None) => {
            report_invalid(found, &id, node, "exactly one of `never` and `always`");
            return None;
        }
    };
    let severity = match node.get("severity").map(|n| (n, n.as_str())) {
        None | Some((_, Some("error"))) => Severity::Error,
        Some((_, Some("warning"))) => Severity::Warning,
        Some((node, _)) => {
            report_invalid(found, "severity", node, "`error` or `warning`");
            return None;
        }
    };
    let (condition, functions) = compile_condition(&id, written, patterns, found)?;
    let only = match node.get("for") {
        Some(written) => Some(compile_condition(&id, written, patterns, found).map(|(condition, _)| condition)?),
        None => None,
    };
    let description = text("description").unwrap_or_default();
    let only_span = node.get("for").map_or(written.span, |only| only.span);
    Some(Assertion { id, description, severity, never, condition, functions, only, only_span, span: written.span })
}

/// Compiles the condition of the assertion `id`, and returns the functions that the condition calls. `None` if the
/// condition is invalid, which is reported.
fn compile_condition(
    id: &str,
    node: &Node,
    patterns: &mut PatternBudget,
    found: &mut Diagnostics,
) -> Option<(Condition, Vec<AssertionFunction>)> {
    let mut refused = |why: String| {
        let (file, key) = (ASSERTIONS_ID.to_owned(), id.to_owned());
        found.push(ConfigError::Refused { file, key, why, span: Some(node.span) });
        None
    };
    let Some(text) = node.as_str() else {
        return refused(
            "write the condition on one line, in quotes: `reaches(\"rye.execute.tool.*\") && passes(\"ask\")`".into(),
        );
    };
    let (plain, functions) = match extract_functions(text) {
        Ok(taken) => taken,
        Err(why) => return refused(why),
    };
    let expr = match condition::parse_inline(node.span.source, &plain, node.span.start as usize) {
        Ok(expr) => expr,
        Err(error) => return refused(format!("invalid condition: {error}")),
    };
    let condition = match Condition::compile_within(&expr, &|_| None, patterns) {
        Ok(condition) => condition,
        Err(faults) => return refused(faults.into_iter().map(|f| f.message).collect::<Vec<_>>().join("; ")),
    };
    let strange = |path: &&Path| !matches!(path.segments.first(), Some(Segment::Name(root)) if matches!(root.as_str(), "directive" | "category" | "assertion"));
    if condition.paths().iter().any(strange) {
        return refused(
            "an assertion may read `directive` and `category`, and call `reaches(…)`, `passes(…)`, `flows(…)`, `spends_at_most(…)` and \
             `survives(…)`"
                .into(),
        );
    }
    Some((condition, functions))
}

/// Replaces each function call in a condition with a fact. Returns the new condition and the called functions. Does not
/// replace text inside of strings.
fn extract_functions(text: &str) -> Result<(String, Vec<AssertionFunction>), String> {
    let mut out = String::with_capacity(text.len());
    let mut functions = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if c == '"' || c == '\'' {
            let (string, after) = split_string(rest)?;
            out.push_str(string);
            rest = after;
            continue;
        }
        let word = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.')).unwrap_or(rest.len());
        if word == 0 {
            out.push(c);
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
            continue;
        }
        let (name, after) = rest.split_at(word);
        let known = FUNCTIONS.contains(&name);
        if let Some(inside) = after.trim_start().strip_prefix('(').filter(|_| known) {
            out.push_str("assertion.c");
            out.push_str(&functions.len().to_string());
            let unclosed = || format!("`{name}(` is never closed");
            if name == "flows" {
                let (from, to, after) = split_patterns(inside).ok_or_else(|| {
                    "`flows` takes two patterns: `flows(\"rye.execute.tool.rye.web.*\", \"rye.execute.tool.rye.bash.*\")`"
                        .to_owned()
                })?;
                functions.push(AssertionFunction::Flows(capability::normalize(from).0, capability::normalize(to).0));
                rest = after;
                continue;
            }
            let (argument, after) = split_argument(inside).ok_or_else(unclosed)?;
            functions.push(read_function(name, argument)?);
            rest = after;
        } else if after.trim_start().starts_with('(') && !CONDITION_WORDS.contains(&name) {
            let near = closest(name, FUNCTIONS).map(|near| format!("; did you mean `{near}(…)`?"));
            let known = FUNCTIONS.map(|known| format!("`{known}(…)`")).join(", ");
            return Err(format!(
                "unknown function `{name}`{}",
                near.unwrap_or_else(|| format!("; functions: {known}"))
            ));
        } else {
            out.push_str(name);
            rest = after;
        }
    }
    Ok((out, functions))
}

/// Splits a text into the quoted string at its start, with its quotes, and the rest. Fails if the string is never
/// closed.
fn split_string(text: &str) -> Result<(&str, &str), String> {
    let quote = text.chars().next().unwrap_or('"');
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' && quote == '"' {
            escaped = true;
        } else if c == quote {
            return Ok(text.split_at(at + 1));
        }
    }
    Err("a string is never closed".into())
}

fn split_argument(text: &str) -> Option<(&str, &str)> {
    let trimmed = text.trim_start();
    if trimmed.starts_with(['"', '\'']) {
        let (string, after) = split_string(trimmed).ok()?;
        let after = after.trim_start().strip_prefix(')')?;
        return Some((string.get(1..string.len() - 1)?, after));
    }
    let (argument, after) = trimmed.split_once(')')?;
    Some((argument.trim(), after))
}

/// Splits the arguments of a function that takes two patterns. Returns both patterns without their quotes, and the text
/// after the closing parenthesis. `None` if the arguments have another form.
fn split_patterns(text: &str) -> Option<(&str, &str, &str)> {
    let (from, after) = split_string(text.trim_start()).ok()?;
    let (to, after) = split_string(after.trim_start().strip_prefix(',')?.trim_start()).ok()?;
    let after = after.trim_start().strip_prefix(')')?;
    let inside = |quoted: &'_ str| (quoted.len() > 2).then_some(1..quoted.len() - 1);
    Some((from.get(inside(from)?)?, to.get(inside(to)?)?, after))
}

fn read_function(name: &str, argument: &str) -> Result<AssertionFunction, String> {
    if argument.is_empty() {
        return Err(format!("`{name}(…)` needs an argument"));
    }
    Ok(match name {
        "reaches" => AssertionFunction::Reaches(capability::normalize(argument).0),
        "passes" => AssertionFunction::Passes(argument.to_owned()),
        "survives" => AssertionFunction::Survives(ItemId::parse(argument).map_err(|error| error.to_string())?),
        _ => AssertionFunction::SpendsAtMost(Nanos::parse(argument).map_err(|error| error.to_string())?),
    })
}

fn report_invalid(found: &mut Diagnostics, key: &str, node: &Node, expected: &str) {
    found.push(ConfigError::Invalid {
        file: ASSERTIONS_ID.into(),
        key: key.to_owned(),
        found: data::describe(node),
        expected: expected.to_owned(),
        span: Some(node.span),
    });
}

fn report_unknown_key(found: &mut Diagnostics, key: &str, span: Span, of: &str, known: &[&str]) {
    found.push(ItemError::UnknownKey {
        what: "key",
        key: key.to_owned(),
        of: of.to_owned(),
        span,
        suggestion: closest(key, known.iter().copied()),
        known: known.iter().map(|k| (*k).to_owned()).collect(),
    });
}
