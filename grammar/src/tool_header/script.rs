//! The constants by which a Python or JavaScript tool declares itself: their names, and what becomes of values that are
//! not constant. Who reads the syntax tree is given from outside: the parsers are heavy (decision 0006).

use crate::Parsed;
use crate::data::{Entry, Kind, Node};
use crate::error::{SyntaxError, SyntaxKind};
use crate::span::{SourceId, Span, Spanned};

use super::ToolLanguage;

/// Reads the syntax tree of a script. Never runs it, never fails: a smaller answer and more errors.
pub trait ScriptReader {
    /// Every assignment of a name at the top level, in order, and the names others can call. Offsets are of `text`.
    fn read(&self, source: SourceId, text: &str, language: ToolLanguage) -> Parsed<Script>;
}

/// What a script says of itself.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Script {
    pub constants: Vec<Constant>,
    pub names: Vec<String>,
}

/// A name that gets a value at the top level of a script.
#[derive(Debug, Clone, PartialEq)]
pub struct Constant {
    pub name: Spanned<String>,
    /// The value, or the part of it that only a run could know.
    pub value: Result<Node, Span>,
}

/// Reads no language: every script is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unread;

impl ScriptReader for Unread {
    fn read(&self, source: SourceId, _: &str, language: ToolLanguage) -> Parsed<Script> {
        let error = SyntaxKind::Script.error(
            Span::new(source, 0, 0),
            format!("tools in {} cannot be read here", language.name()),
            "its constants are not read",
        );
        Parsed { tree: Script::default(), errors: vec![error] }
    }
}

/// The names that declare something, and the key each has in a YAML tool.
const NAMES: [(&str, &str); 15] = [
    ("__tool_description__", "description"),
    ("__version__", "version"),
    ("__category__", "category"),
    ("__executor_id__", "executor"),
    ("__title__", "title"),
    ("__author__", "author"),
    ("__tags__", "tags"),
    ("__timeout_seconds__", "timeout_seconds"),
    ("__parallel__", "parallel"),
    ("__idempotent__", "idempotent"),
    ("__needs__", "needs"),
    ("__environment__", "environment"),
    ("CONFIG_SCHEMA", "parameters"),
    ("CONFIG_RESOLVE", "config"),
    ("__tool_name__", "name"),
];

/// The names of the constants by which a script declares itself.
pub fn declaring() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(|(name, _)| *name)
}

/// Names in the manner of those that declare something, and none of them.
pub(super) fn others(constants: &[Constant]) -> Vec<Spanned<String>> {
    let is_like = |name: &str| (name.starts_with("__") && name.ends_with("__")) || name.starts_with("CONFIG");
    let names = constants.iter().map(|constant| &constant.name);
    names.filter(|name| is_like(&name.node) && !declaring().any(|known| known == name.node)).cloned().collect()
}

/// The declaring constants as one mapping; a program's other names are its own.
pub(super) fn metadata(constants: Vec<Constant>, empty: &Node) -> (Node, Vec<SyntaxError>) {
    let mut entries: Vec<Entry> = Vec::new();
    let mut errors = Vec::new();
    for constant in constants {
        let name = constant.name;
        let Some((_, key)) = NAMES.iter().find(|(known, _)| *known == name.node) else { continue };
        match constant.value {
            _ if entries.iter().any(|e| e.key.node == *key) => errors.push(
                SyntaxKind::Constant
                    .error(name.span, format!("`{}` gets a value twice", name.node), "a second value")
                    .with_help("keep one of them: which one counts would depend on a run"),
            ),
            Ok(value) => entries.push(Entry { key: Spanned::new((*key).to_owned(), name.span), value }),
            Err(span) => {
                // The key is known, its value is not: what is missing is then not said a second time.
                errors.push(
                    SyntaxKind::Constant
                        .error(span, format!("`{}` is not constant", name.node), "only a run could tell")
                        .with_help("write the value out: strings, numbers, booleans, null, lists and mappings of them"),
                );
            }
        }
    }
    (Node::new(Kind::Map(entries), empty.span), errors)
}
