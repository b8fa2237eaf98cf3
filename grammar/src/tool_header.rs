//! Tool headers: metadata parsed from a tool file without running it.

mod script;

use crate::Parsed;
use crate::data::{Kind, Node};
use crate::error::{SyntaxError, SyntaxKind};
use crate::markdown::lines;
use crate::signature::{self, SignatureLine};
use crate::span::{SourceId, Span, Spanned};
use crate::yaml;

pub use script::{Constant, EntrySignature, NoScriptReader, Script, ScriptReader, ValueSource, declaring_names};

/// The parsed declaration of a tool. `metadata` is one mapping with the keys of YAML tools, whatever the language of
/// the tool is.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolTree {
    pub signature: Option<Spanned<SignatureLine>>,
    pub metadata: Node,
    /// The declarations of a script; `None` for YAML.
    pub script: Option<ScriptDeclarations>,
}

/// The declarations of a tool whose file is the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptDeclarations {
    pub language: ToolLanguage,
    /// Names that another file can call: top-level names in Python, exported names in JavaScript. A shell script has
    /// none.
    pub names: Vec<String>,
    /// The function that a call runs, if the reader knows its parameters.
    pub entry: Option<EntrySignature>,
    /// Constants that look like a declaration, such as `__so__` or `CONFIG_SO`, but are not in [`declaring_names`].
    pub others: Vec<Spanned<String>>,
}

/// The language of a tool file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolLanguage {
    /// `.yaml`, `.yml`: the whole file is the metadata.
    Yaml,
    /// `.sh`: the metadata is in a `# rye: {…}` comment at the start.
    Shell,
    /// `.py`: the metadata is in module constants.
    Python,
    /// `.js`, `.mjs`: the metadata is in exported constants.
    JavaScript,
    /// `.ts`: the metadata is in exported constants.
    TypeScript,
}

impl ToolLanguage {
    pub const ALL: [Self; 5] = [Self::Yaml, Self::Shell, Self::Python, Self::JavaScript, Self::TypeScript];

    /// Returns the language of a path's extension; `None` if tools do not have this extension.
    pub fn of_path(path: &str) -> Option<Self> {
        match path.rsplit_once('.')?.1 {
            "yaml" | "yml" => Some(Self::Yaml),
            "sh" => Some(Self::Shell),
            "py" => Some(Self::Python),
            "js" | "mjs" => Some(Self::JavaScript),
            "ts" => Some(Self::TypeScript),
            _ => None,
        }
    }

    /// Returns the display name of the language.
    pub fn name(self) -> &'static str {
        match self {
            Self::Yaml => "YAML",
            Self::Shell => "a shell script",
            Self::Python => "Python",
            Self::JavaScript => "JavaScript",
            Self::TypeScript => "TypeScript",
        }
    }
}

/// Parses the metadata of a tool file (`language.md`, Tools). `scripts` reads the constants of Python and JavaScript
/// from their syntax trees; the text of these scripts is not searched.
pub fn parse(source: SourceId, text: &str, language: ToolLanguage, scripts: &dyn ScriptReader) -> Parsed<ToolTree> {
    let signature = signature::parse(source, text);
    let start = signature::content_start(signature.as_ref());
    let empty = |at: usize| Node::new(Kind::Map(Vec::new()), Span::new(source, at, at));
    let mut names = Vec::new();
    let mut entry = None;
    let mut others = Vec::new();
    let metadata = match language {
        ToolLanguage::Yaml => yaml::parse_at(source, text.get(start..).unwrap_or_default(), start),
        ToolLanguage::Shell => match shell_header(text, start) {
            Some(header) => {
                let mut parsed = yaml::parse_at(source, &header.yaml, header.start);
                parsed.errors.extend(repeated_header(source, text, header.start + header.yaml.len()));
                parsed
            }
            None => Parsed::ok(empty(start)),
        },
        ToolLanguage::Python | ToolLanguage::JavaScript | ToolLanguage::TypeScript => {
            let read = scripts.read(source, text, language);
            names = read.tree.names;
            entry = read.tree.entry;
            others = script::unknown_constants(&read.tree.constants);
            let (node, mut errors) = script::read_metadata(read.tree.constants, &empty(start));
            errors.splice(0..0, read.errors);
            Parsed { tree: node, errors }
        }
    };
    let script = match language {
        ToolLanguage::Yaml => None,
        ToolLanguage::Shell | ToolLanguage::Python | ToolLanguage::JavaScript | ToolLanguage::TypeScript => {
            Some(ScriptDeclarations { language, names, entry, others })
        }
    };
    let mut errors = metadata.errors;
    let metadata = match metadata.tree {
        node @ Node { kind: Kind::Map(_), .. } => node,
        node => {
            if node.kind != Kind::Null {
                errors.push(
                    SyntaxKind::Yaml
                        .error(
                            node.span,
                            format!("the metadata of a tool must be a mapping, not {}", node.describe()),
                            "not a mapping",
                        )
                        .with_help("write `description: …` and the tool's other keys"),
                );
            }
            empty(node.span.range().start)
        }
    };
    Parsed { tree: ToolTree { signature, metadata, script }, errors }
}

/// The `# rye:` comment of a script, as YAML with its offset in the file.
struct ShellHeader {
    yaml: String,
    start: usize,
    /// Number of open brackets. A flow mapping ends when the number is zero.
    open: usize,
}

impl ShellHeader {
    fn push(&mut self, text: &str) {
        let mut quote = None;
        let mut before = ' ';
        for c in text.chars() {
            match (quote, c) {
                (Some(open), _) => quote = (open != c).then_some(open),
                // A quote begins a string only at the start of a value: `don't` is plain text.
                (None, '"' | '\'') if matches!(before, ' ' | '\t' | '{' | '[' | ',' | ':') => quote = Some(c),
                (None, '{' | '[') => self.open += 1,
                (None, '}' | ']') => self.open = self.open.saturating_sub(1),
                (None, _) => {}
            }
            before = c;
        }
        self.yaml.push_str(text);
    }
}

/// Returns the `# rye:` comment among the comments and blank lines at the start of a script; `None` if there is none.
/// The comment can continue in the next comment lines. Their `#` becomes a space, so that every byte keeps its offset.
fn shell_header(text: &str, start: usize) -> Option<ShellHeader> {
    let mut header: Option<ShellHeader> = None;
    for line in lines(text, start) {
        let content = text.get(line.content()).unwrap_or_default();
        let Some(comment) = content.trim_start().strip_prefix('#') else {
            if header.is_none() && content.trim().is_empty() {
                continue;
            }
            break;
        };
        let Some(header) = &mut header else {
            if let Some(yaml) = header_start(comment) {
                let mut new = ShellHeader { yaml: String::new(), start: line.content_end - yaml.len(), open: 0 };
                new.push(yaml);
                header = Some(new);
            }
            continue;
        };
        let block = !header.yaml.trim_start().starts_with('{');
        let indented = comment.starts_with("  ") || comment.starts_with(" \t");
        if header.open == 0 && !(block && indented) {
            break;
        }
        let line_break = line.start - (header.start + header.yaml.len());
        header.push(if line_break == 2 { "\r\n" } else { "\n" });
        header.push(&" ".repeat(content.len() - comment.len()));
        header.push(comment);
    }
    header
}

/// Returns the text after `rye:` if a comment starts a header. `# rye:signed:` is a misplaced signature line, not a
/// header.
fn header_start(comment: &str) -> Option<&str> {
    let yaml = comment.trim_start().strip_prefix("rye:")?;
    (yaml.is_empty() || yaml.starts_with([' ', '\t', '{'])).then_some(yaml)
}

/// Returns an error for the first further `# rye:` comment behind the header of a script, which ends at the offset `end`.
/// The keys of such a comment would not be read.
fn repeated_header(source: SourceId, text: &str, end: usize) -> Option<SyntaxError> {
    for line in lines(text, end) {
        let content = text.get(line.content()).unwrap_or_default();
        if content.trim().is_empty() {
            continue;
        }
        let comment = content.trim_start().strip_prefix('#')?;
        if header_start(comment).is_some() {
            let range = line.content();
            let error = SyntaxKind::Yaml.error(
                Span::new(source, range.start, range.end),
                "a script has only one `# rye:` comment",
                "this comment is not read",
            );
            return Some(
                error.with_help("write all keys into the first one: `# rye: {description: …, parameters: {…}}`"),
            );
        }
    }
    None
}
