//! Reads the constants of Python and JavaScript tools from their syntax trees (`language.md` 2), without importing or
//! running anything. Only literals are evaluated. The compiler gets the reader through its world, so that only this
//! crate depends on the parsers (decision 0006).

mod javascript;
mod javascript_values;
mod python;
mod python_values;

use rye_grammar::data::{Entry, Kind, Node};
use rye_grammar::tool_header::{Script, ScriptReader, ToolLanguage};
use rye_grammar::{Parsed, SourceId, Span, Spanned, SyntaxError, SyntaxKind};
use serde_json::Number;

/// Maximum size of a script, in bytes. A larger tool can move code into modules beside its file.
pub(crate) const MAX_SCRIPT_BYTES: usize = 256 * 1024;
/// Maximum nesting depth of a literal, equal to the maximum of YAML files.
const MAX_LITERAL_DEPTH: usize = 64;
/// Maximum number of values in all literals of a script.
const MAX_VALUES: usize = 20_000;
/// Stack size in bytes for the recursive parsers. The stack suffices for a script of maximum size that consists only of
/// nesting.
const PARSER_STACK_BYTES: usize = 512 << 20;
/// Maximum size of a small script, in bytes. Every script up to this size can be parsed with a stack of
/// [`SMALL_SCRIPT_STACK_BYTES`].
const SMALL_SCRIPT_BYTES: usize = 2 * 1024;
/// Stack size for a small script, in bytes.
const SMALL_SCRIPT_STACK_BYTES: usize = 8 << 20;

/// The [`ScriptReader`] that reads Python and JavaScript tools from their syntax trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyntaxTreeReader;

impl ScriptReader for SyntaxTreeReader {
    fn read(&self, source: SourceId, text: &str, language: ToolLanguage) -> Parsed<Script> {
        let refuse = |message: String| {
            let error = SyntaxKind::Script
                .error(Span::new(source, 0, 0), message, "not read")
                .with_help("move code from the tool's own file into modules beside it");
            Parsed { tree: Script::default(), errors: vec![error] }
        };
        if text.len() > MAX_SCRIPT_BYTES {
            return refuse(format!("the script has {} bytes, more than the maximum of {MAX_SCRIPT_BYTES}", text.len()));
        }
        let is_too_deep = match language {
            ToolLanguage::Python => python::is_too_deep(text),
            ToolLanguage::JavaScript | ToolLanguage::TypeScript => javascript::is_too_deep(text),
            ToolLanguage::Yaml | ToolLanguage::Shell => false,
        };
        if is_too_deep {
            return refuse("the script is nested too deeply to be read".to_owned());
        }
        let work = move || match language {
            ToolLanguage::Python => python::read(source, text),
            ToolLanguage::JavaScript => javascript::read(source, text, javascript::JavaScriptDialect::Plain),
            ToolLanguage::TypeScript => javascript::read(source, text, javascript::JavaScriptDialect::Typed),
            ToolLanguage::Yaml | ToolLanguage::Shell => Parsed::ok(Script::default()),
        };
        let stack = if text.len() <= SMALL_SCRIPT_BYTES { SMALL_SCRIPT_STACK_BYTES } else { PARSER_STACK_BYTES };
        std::thread::scope(|scope| {
            // The parsers recurse as deep as the text nests. An ordinary file uses only a small part of the reserved
            // stack.
            let thread = std::thread::Builder::new().stack_size(stack).spawn_scoped(scope, work);
            match thread.map(std::thread::ScopedJoinHandle::join) {
                Ok(Ok(read)) => read,
                Ok(Err(_)) => refuse("the script cannot be read: its parser panicked".to_owned()),
                Err(error) => refuse(format!("the script cannot be read: {error}")),
            }
        })
    }
}

/// Builds a syntax error of a script from the first line of a parser's message.
fn syntax_error(source: SourceId, message: &str, span: Span, language: &str) -> SyntaxError {
    let first = message.lines().next().unwrap_or_default().trim_end_matches('.');
    let mut chars = first.chars();
    let lower: String = chars.next().map(|c| c.to_lowercase().chain(chars).collect()).unwrap_or_default();
    // A parser may quote control characters verbatim.
    let shown = |c: char| if c.is_control() { format!("U+{:04X}", u32::from(c)) } else { c.to_string() };
    let lower: String = lower.chars().map(shown).collect();
    SyntaxKind::Script.error(Span { source, ..span }, format!("invalid {language}: {lower}"), "cannot be read")
}

/// A converter of the literals in a script to values with spans. It bounds the depth and the number of the values.
struct LiteralReader {
    source: SourceId,
    values: usize,
}

impl LiteralReader {
    fn new(source: SourceId) -> Self {
        Self { source, values: 0 }
    }

    fn span(&self, start: u32, end: u32) -> Span {
        Span { source: self.source, start, end }
    }

    /// Counts a value at `depth`. Fails with the span of the value if the depth or the number of values exceeds its
    /// maximum.
    fn count(&mut self, depth: usize, span: Span) -> Result<(), Span> {
        self.values += 1;
        if depth > MAX_LITERAL_DEPTH || self.values > MAX_VALUES { Err(span) } else { Ok(()) }
    }
}

fn push_entry(key: String, key_span: Span, value: Node, into: &mut Vec<Entry>) -> Result<(), Span> {
    // If a literal repeats a key, the script's language decides which value counts, so the literal has no value here.
    if into.iter().any(|e| e.key.node == key) {
        return Err(key_span);
    }
    into.push(Entry { key: Spanned::new(key, key_span), value });
    Ok(())
}

/// Parses the text of a number; `None` if JSON cannot represent the number. If `negative` is true, returns the negated
/// number.
fn parse_number(text: &str, negative: bool) -> Option<Kind> {
    let plain: String = text.chars().filter(|c| *c != '_').collect();
    let digits = if negative { format!("-{plain}") } else { plain };
    let whole = digits.parse::<i64>().map(Number::from).or_else(|_| digits.parse::<u64>().map(Number::from));
    whole.ok().or_else(|| digits.parse::<f64>().ok().and_then(Number::from_f64)).map(Kind::Number)
}

#[cfg(test)]
mod tests;
