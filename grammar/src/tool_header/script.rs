//! The constants by which a Python or JavaScript tool declares itself: their names, and errors for values that are not
//! constant. The caller supplies the reader of syntax trees, because the parsers of these languages are large
//! dependencies (decision 0006).

use crate::Parsed;
use crate::data::{Entry, Kind, Node};
use crate::error::{SyntaxError, SyntaxKind};
use crate::span::{SourceId, Span, Spanned};

use super::ToolLanguage;

/// A reader of the declarations in a script. The reader parses the script but never runs it. Errors do not stop the
/// reader: the result then contains fewer declarations.
pub trait ScriptReader {
    /// Returns the declarations at the top level of the script: every assignment of a name, in order, and the names
    /// that other files can call. Spans are offsets into `text`.
    fn read(&self, source: SourceId, text: &str, language: ToolLanguage) -> Parsed<Script>;
}

/// The declarations of a script.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Script {
    pub constants: Vec<Constant>,
    pub names: Vec<String>,
    /// The function that a call runs, with its parameters; `None` if the parameters cannot be determined.
    pub entry: Option<EntrySignature>,
}

/// The parameters of a function that the engine calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntrySignature {
    /// Name of the function: `execute`, `main`, or `default` for the default export.
    pub function: String,
    /// The span of the parameter list.
    pub span: Span,
    /// The positional parameters as written, without types and defaults, in order.
    pub names: Vec<String>,
    /// Number of positional parameters without a default.
    pub required: usize,
    /// True if the function takes any number of positional arguments.
    pub is_variadic: bool,
    /// True if the function has a parameter without a default that a call can pass only by name.
    pub requires_names: bool,
    /// The keys that the function reads from its first argument, an object, without a default. A caller must set these
    /// keys.
    pub reads: Vec<Spanned<String>>,
    /// The keys that the function reads with a default, such as `params.get("name")`.
    pub optional_reads: Vec<Spanned<String>>,
    /// True if `reads` and `optional_reads` are all keys that the function can read from its first argument.
    pub reads_are_complete: bool,
    /// The first expression that reads a value from a source that calls leave empty: the source, and the expression as
    /// written. `None` if there is no such expression.
    pub other_source: Option<(ValueSource, Spanned<String>)>,
    /// The expression, as written, that prints or computes a result which the function does not return. `None` if the
    /// function can return a value, or if the function neither prints nor ends with a value.
    pub lost_result: Option<Spanned<String>>,
}

/// A source of values other than the arguments of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueSource {
    /// The arguments of the process, such as `sys.argv[1]`.
    CommandLine,
    /// The standard input. Only `main` gets the parameters there.
    StandardInput,
}

/// A name assigned at the top level of a script.
#[derive(Debug, Clone, PartialEq)]
pub struct Constant {
    pub name: Spanned<String>,
    /// The value, or the span of the part that is not constant.
    pub value: Result<Node, Span>,
}

/// A reader that supports no language and reports an error for every script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoScriptReader;

impl ScriptReader for NoScriptReader {
    fn read(&self, source: SourceId, _: &str, language: ToolLanguage) -> Parsed<Script> {
        let error = SyntaxKind::Script.error(
            Span::new(source, 0, 0),
            format!("no parser for tools in {} is available", language.name()),
            "the constants of this file are not read",
        );
        Parsed { tree: Script::default(), errors: vec![error] }
    }
}

/// The constants that declare a tool, each with the matching key of YAML tools.
const DECLARING_CONSTANTS: [(&str, &str); 19] = [
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
    ("__persistent__", "persistent"),
    ("__pushes__", "pushes"),
    ("__snippet__", "snippet"),
    ("__guidelines__", "guidelines"),
    ("CONFIG_SCHEMA", "parameters"),
    ("CONFIG_RESOLVE", "config"),
    ("__tool_name__", "name"),
];

/// Returns the names of the constants that declare a tool.
pub fn declaring_names() -> impl Iterator<Item = &'static str> {
    DECLARING_CONSTANTS.iter().map(|(name, _)| *name)
}

/// Returns the names of constants that look like declarations (`__name__` or `CONFIG…`), but that `declaring_names`
/// does not return.
pub(super) fn unknown_constants(constants: &[Constant]) -> Vec<Spanned<String>> {
    let is_like = |name: &str| (name.starts_with("__") && name.ends_with("__")) || name.starts_with("CONFIG");
    let names = constants.iter().map(|constant| &constant.name);
    names.filter(|name| is_like(&name.node) && !declaring_names().any(|known| known == name.node)).cloned().collect()
}

/// Converts the constants in [`DECLARING_CONSTANTS`] to one mapping with the keys of YAML tools. Ignores all other
/// constants. The mapping gets the span of the node `empty`.
pub(super) fn read_metadata(constants: Vec<Constant>, empty: &Node) -> (Node, Vec<SyntaxError>) {
    let mut entries: Vec<Entry> = Vec::new();
    let mut errors = Vec::new();
    for constant in constants {
        let name = constant.name;
        let Some((_, key)) = DECLARING_CONSTANTS.iter().find(|(known, _)| *known == name.node) else { continue };
        match constant.value {
            _ if entries.iter().any(|e| e.key.node == *key) => errors.push(
                SyntaxKind::Constant
                    .error(name.span, format!("`{}` is assigned twice", name.node), "a second value")
                    .with_help("keep one of them"),
            ),
            Ok(value) => entries.push(Entry { key: Spanned::new((*key).to_owned(), name.span), value }),
            Err(span) => {
                errors.push(
                    SyntaxKind::Constant
                        .error(span, format!("`{}` is not constant", name.node), "not a constant expression")
                        .with_help("write a literal value: a string, number, boolean, null, list or mapping"),
                );
            }
        }
    }
    (Node::new(Kind::Map(entries), empty.span), errors)
}
