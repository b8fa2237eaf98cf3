//! `item::*`: faults within one file, and ids that name no item.

use rye_grammar::Span;
use thiserror::Error;

use super::faulty_value::separator_help;
use super::foreign_words::{self, WordPlace};
use super::misplaced_key;
use super::parameter_user::ParameterUser;
use super::{Label, Problem, Severity, did_you_mean, new_label, value_help};
use crate::world::{ItemKind, MCP_FILE};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ItemError {
    /// A parameter that a command tool or HTTP tool declares but never uses: no part of the command or request contains
    /// the placeholder of the parameter.
    #[error("the parameter `{name}` of this {} is never used", user.as_str())]
    UnusedParameter { name: String, user: ParameterUser, span: Span },
    /// Parts of an HTTP request that contradict each other, such as a body with the method `GET`, or a JSON body with
    /// another `Content-Type`.
    #[error("{message}")]
    RequestPart { message: String, label: &'static str, help: &'static str, span: Span },
    #[error("unknown {} `{id}`", kind.as_str())]
    Unknown { kind: ItemKind, id: String, span: Option<Span>, suggestion: Option<String> },
    /// An id that names an item of another kind where the id of a directive is needed.
    #[error("`{id}` is {}, not a directive", kind_with_article(*kind))]
    OtherKind { kind: ItemKind, id: String },
    /// An element, attribute or key outside the closed vocabulary: `what` is its category, `of` its parent.
    #[error("unknown {what} `{key}` in {of}")]
    UnknownKey {
        what: &'static str,
        key: String,
        of: String,
        span: Span,
        suggestion: Option<String>,
        known: Vec<String>,
    },
    /// The path of the file requires another `name` or `category`. `field` is `name` or `category`.
    #[error("the {field} is `{written}`, but the path of the file {}", expected_name(expected))]
    NameMismatch { field: &'static str, written: String, expected: String, span: Span },
    /// Metadata of knowledge that contradicts the path of its file. `field` is `id` or `category`.
    #[error("the {field} of this knowledge is `{written}`, but the path of the file {}", expected_name(expected))]
    KnowledgeMismatch { field: &'static str, written: String, expected: String, span: Span },
    #[error("`{text}` is not an item id: {reason}")]
    EscapesSpace { text: String, reason: String, span: Span },
    /// A value of the wrong type or outside its range.
    #[error("{what} cannot be {found}")]
    InvalidValue { what: String, found: String, expected: String, span: Span },
    /// A required attribute, key or text is missing. `what` names the missing part, and `of` names the element or item
    /// without the part.
    #[error("{of} has no {what}")]
    Missing { what: String, of: String, span: Span, help: String },
    /// An element, attribute or key that occurs twice, but may occur only once.
    #[error("{what} occurs twice")]
    Repeated { what: String, first: Span, second: Span },
    /// An error in a key of a tool file. The message comes from the reader of tool files.
    #[error("{message}")]
    ToolKey { message: String, span: Span, label: String, help: Option<String> },
    #[error("{message}")]
    ToolMissing { message: String, span: Span, label: String, help: Option<String> },
    #[error("{message}")]
    ToolValue { message: String, span: Span, label: String, help: Option<String> },
    /// A tool of an MCP server whose schema has an error that makes the tool unusable.
    #[error("the schema of `{id}` cannot be used: {reason}")]
    ServerSchema { id: String, reason: String, span: Span, label: String },
    /// A tool that its MCP server runs only as a task.
    #[error("the tool `{id}` cannot be called: its server runs it only as a task")]
    ServerTask { id: String, span: Span, label: String },
    /// A script reads a parameter that the tool does not declare. `read` is the code that reads the parameter, `why`
    /// the reason at the end of the message, and `help` the fix.
    #[error("`{read}` reads no parameter of the tool: {why}")]
    ScriptParameter { read: String, why: String, help: String, span: Span },
    /// A function that returns nothing. `label` describes the value or the printed text that is lost.
    #[error("{function} returns nothing: the result of each call is `null`")]
    LostResult { function: &'static str, label: &'static str, span: Span },
    /// A `$NAME` in the URL or a header of an HTTP tool. No shell replaces it with the value of the variable.
    #[error("no shell reads the request: `${name}` is sent as text")]
    RequestVariable { name: String, span: Span },
    /// A variable that an HTTP tool declares and does not send. No other part of the tool can read the variable.
    #[error("the variable `{name}` is never used")]
    UnusedVariable { name: String, span: Span },
    /// A parameter inside the code that a command passes to an interpreter.
    #[error("`{program}` runs the value of the parameter `{parameter}` as code")]
    CodeParameter { parameter: String, program: String, span: Span },
    #[error("no shell reads the command: `{program}` gets `{word}` as an argument")]
    ShellSyntax { word: String, program: String, span: Span },
    /// A text that its reader probably understands in another way than its author intended. The reader is a program, a
    /// shell or the model. `code` is the diagnostic code.
    #[error("{message}")]
    OddText { code: &'static str, message: String, label: &'static str, help: String, span: Span },
    /// A built-in tool that the engine does not have, or that only the item `own_item` may use. `own_item` is `None` if
    /// the engine does not have the tool.
    #[error("the engine has no built-in tool `{name}`{}", own_item.as_ref().map(|i| format!(" for items other than `{i}`")).unwrap_or_default())]
    UnknownBuiltin { name: String, own_item: Option<String>, suggestion: Option<String>, span: Span },
    #[error("`{path}` cannot be read: {reason}")]
    Unreadable { path: String, reason: String, span: Option<Span> },
    #[error("{} `{id}` has two files: `{first}` and `{second}`", kind.as_str())]
    Ambiguous { kind: ItemKind, id: String, first: String, second: String },
    /// The content of a file does not match the file's signature.
    #[error("the signature of `{path}` is invalid: {reason}")]
    Signature { path: String, reason: String, span: Option<Span> },
    /// A file without a signature, although the settings require one.
    #[error("`{path}` is not signed, but `signing.require` is `all`")]
    Unsigned { path: String, span: Option<Span> },
    /// The key of a signature is not trusted. `others` are further files with signatures of this key.
    #[error("`{path}`{} signed with the key `{key_id}`, which is not trusted", count_others(others))]
    UntrustedKey { path: String, key_id: String, others: Vec<String> },
    /// A signature that is not on the first line of its file.
    #[error("the signature in `{path}` is not on the first line, so it has no effect")]
    LateSignature { path: String, span: Span },
    /// A directive without a prompt: neither its body nor its chain nor a hook provides text, and no directive extends
    /// it.
    #[error("`{id}` has no prompt")]
    Silent { id: String, span: Span },
    /// A file with metadata and without text. `what` is `knowledge`, `prompt template` or `skill`.
    #[error("the {what} `{id}` has no text")]
    NoText { what: &'static str, id: String, span: Span },
    /// A key of knowledge metadata that is never read.
    #[error("the key `{key}` of this knowledge is never read")]
    UnreadMetadata { key: String, suggestion: Option<String>, span: Span },
    /// A `version` that is not a version number.
    #[error("`{found}` is not a version")]
    Version { found: String, span: Span },
    /// A file or folder that is never read, such as a misspelled folder in `.ai/`. `reason` is the reason at the end of
    /// the message.
    #[error("`{path}` is never read: {reason}")]
    Unrecognized { path: String, reason: String, suggestion: Option<String> },
    /// A file of another client, such as `.claude/settings.json`, whose settings do not apply. `content` names the
    /// content of the file, and `place` is a help text that names the place for this content in rye.
    #[error("`{path}` is not read: {content} of another client do not apply to rye")]
    OtherClient { path: String, content: &'static str, place: &'static str },
    /// A program in `.ai/tools/` that no tool runs. `declaration` is the file that could declare the program.
    #[error("`{path}` is never run: no tool names it")]
    UnrecognizedProgram { path: String, declaration: String },
    /// A script that declares a tool as another framework does, for example with `@tool`. `mark` is the line with this
    /// declaration.
    #[error("this file declares no tool: `{mark}` is the syntax of another framework")]
    ForeignTool { mark: String, help: &'static str, span: Span },
    /// A JavaScript file that declares a tool without exporting it. `mark` is the first line of the declaration.
    #[error("this file declares no tool: `{mark}` is not exported")]
    Unexported { mark: String, help: &'static str, span: Span },
    /// Front matter in a file whose kind has no front matter, or front matter that does not start with a `---` line.
    /// `mark` is its first line. `because` is the label, which describes the consequence.
    #[error("the `{mark}` front matter of this {} is never read", kind.as_str())]
    FrontMatter { mark: String, kind: ItemKind, because: &'static str, help: &'static str, span: Span },
    /// An unknown id in the metadata of knowledge. `key` is `extends`, `references` or `used_by`.
    #[error("`{key}` names the unknown {what} `{id}`")]
    Dangling { key: &'static str, what: &'static str, id: String, suggestion: Option<String>, span: Span },
    /// A constant of a script that is never read. Its name resembles `suggestion`, a constant of tool declarations, so
    /// the name is probably misspelled. `is_needed` is true if the script lacks the constant `suggestion` and declares
    /// no tool without it.
    #[error("the constant `{name}` is never read")]
    NearConstant { name: String, suggestion: String, is_needed: bool, span: Span },
    /// The body tells the model to use an item that does not exist. `what` is its kind.
    #[error("the body names the {what} `{id}`, which does not exist")]
    UnknownCall {
        what: &'static str,
        id: String,
        span: Span,
        suggestion: Option<String>,
        /// The kind of another item that has this id.
        other: Option<&'static str>,
    },
    /// An item of the project has the id of an item of the standard library. `tokens` are the token counts of both
    /// texts, the project's first; `None` for a tool.
    #[error("the {} `{id}` shadows an item of the standard library", kind.as_str())]
    Shadows { kind: ItemKind, id: String, tokens: Option<(u64, u64)>, span: Span },
    /// A prompt template or skill that shadows a file with the same id. `path` is the shadowed file.
    #[error("the {} `{id}` shadows `{path}`", kind.as_str())]
    ShadowsFile { kind: ItemKind, id: String, path: String, span: Span },
    /// Invalid front matter in a file of another client, such as a skill outside of `.ai/`. `reason` is the message of
    /// the parser.
    #[error("the front matter of this {} is invalid: {reason}", kind.as_str())]
    InvalidFrontMatter { kind: ItemKind, reason: String, help: Option<String>, span: Span },
}

/// Returns the part of the message after the first path: the number of further files, then the verb (` and 2 other
/// files are`).
fn count_others(others: &[String]) -> String {
    match others.len() {
        0 => " is".to_owned(),
        1 => " and 1 other file are".to_owned(),
        count => format!(" and {count} other files are"),
    }
}

/// Returns the help for a file that was signed with a key that the user does not trust. `others` are the paths of the
/// other files that were signed with this key.
fn untrusted_key_help(key_id: &str, others: &[String]) -> String {
    let also =
        if others.is_empty() { String::new() } else { format!("; this key also signed {}", list_others(others)) };
    format!("if you trust the owner of `{key_id}`, run `rye keys trust FILE` with the owner's public key{also}")
}

/// Lists the first paths, and adds the number of the other paths.
fn list_others(others: &[String]) -> String {
    const MOST: usize = 5;
    let shown: Vec<String> = others.iter().take(MOST).map(|path| format!("`{path}`")).collect();
    let more = others.len().saturating_sub(MOST);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{more}", shown.join(", "))
}

fn unknown_call_help(id: &str, suggestion: Option<&String>, other: Option<&str>) -> Option<String> {
    if let Some(other) = other {
        return Some(format!("`{id}` is a {other}: write `item_type=\"{other}\"`"));
    }
    did_you_mean(suggestion, || Some("the call will fail: correct the id, or create the item".into()))
}

impl Problem for ItemError {
    fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } | Self::OtherKind { .. } | Self::Dangling { .. } => "item::unknown",
            Self::UnknownKey { .. }
            | Self::ToolKey { .. }
            | Self::NearConstant { .. }
            | Self::UnreadMetadata { .. } => "item::unknown-key",
            Self::NameMismatch { .. } | Self::KnowledgeMismatch { .. } => "item::name-mismatch",
            Self::EscapesSpace { .. } => "item::escapes-space",
            Self::InvalidValue { .. }
            | Self::ToolValue { .. }
            | Self::Version { .. }
            | Self::RequestPart { .. }
            | Self::InvalidFrontMatter { .. } => "item::invalid-value",
            Self::Missing { .. } | Self::ToolMissing { .. } => "item::missing",
            Self::Repeated { .. } => "item::repeated",
            Self::UnusedParameter { .. } | Self::UnusedVariable { .. } => "item::unused-parameter",
            Self::Unreadable { .. } => "item::unreadable",
            Self::Ambiguous { .. } => "item::ambiguous",
            Self::Signature { .. } | Self::Unsigned { .. } | Self::UntrustedKey { .. } | Self::LateSignature { .. } => {
                "item::signature"
            }
            Self::Unrecognized { .. }
            | Self::OtherClient { .. }
            | Self::UnrecognizedProgram { .. }
            | Self::ForeignTool { .. }
            | Self::Unexported { .. }
            | Self::FrontMatter { .. } => "item::stray",
            Self::ServerSchema { .. } | Self::ServerTask { .. } => "item::server-schema",
            Self::Silent { .. } | Self::NoText { .. } => "item::silent",
            Self::OddText { code, .. } => code,
            Self::ShellSyntax { .. } | Self::RequestVariable { .. } => "item::shell-syntax",
            Self::CodeParameter { .. } => "item::untrusted-parameter",
            Self::ScriptParameter { .. } => "item::script-parameter",
            Self::LostResult { .. } => "item::script-result",
            Self::UnknownCall { .. } => "item::unknown-call",
            Self::UnknownBuiltin { .. } => "item::unknown-builtin",
            Self::Shadows { .. } | Self::ShadowsFile { .. } => "item::shadows",
        }
    }

    fn severity(&self) -> Severity {
        match self {
            // An error, because the settings in the file (such as guards and budgets) would silently not apply.
            Self::Unrecognized { path, suggestion: Some(meant), .. }
                if meant.starts_with(ItemKind::Config.folder()) || (meant == MCP_FILE && path.contains('/')) =>
            {
                Severity::Error
            }
            Self::Unrecognized { .. }
            | Self::UnrecognizedProgram { .. }
            | Self::ForeignTool { .. }
            | Self::Unexported { .. }
            | Self::FrontMatter { .. }
            | Self::KnowledgeMismatch { .. }
            | Self::Dangling { .. }
            | Self::NearConstant { is_needed: false, .. }
            | Self::UnknownCall { .. }
            | Self::UnknownBuiltin { .. }
            | Self::LateSignature { .. }
            | Self::ServerSchema { .. }
            | Self::ServerTask { .. }
            | Self::InvalidFrontMatter { .. }
            | Self::Version { .. }
            | Self::UnreadMetadata { suggestion: Some(_), .. }
            | Self::NoText { .. }
            | Self::UnusedParameter { .. }
            | Self::RequestPart { .. }
            | Self::ShellSyntax { .. }
            | Self::OddText { .. }
            | Self::RequestVariable { .. }
            | Self::UnusedVariable { .. }
            | Self::CodeParameter { .. }
            | Self::ScriptParameter { .. }
            | Self::LostResult { .. }
            | Self::Silent { .. } => Severity::Warning,
            Self::Shadows { .. }
            | Self::ShadowsFile { .. }
            | Self::OtherClient { .. }
            | Self::UnreadMetadata { suggestion: None, .. } => Severity::Advice,
            Self::Unknown { .. }
            | Self::OtherKind { .. }
            | Self::UnknownKey { .. }
            | Self::NameMismatch { .. }
            | Self::EscapesSpace { .. }
            | Self::InvalidValue { .. }
            | Self::Missing { .. }
            | Self::Repeated { .. }
            | Self::ToolKey { .. }
            | Self::NearConstant { is_needed: true, .. }
            | Self::ToolMissing { .. }
            | Self::ToolValue { .. }
            | Self::Unreadable { .. }
            | Self::Ambiguous { .. }
            | Self::Signature { .. }
            | Self::Unsigned { .. }
            | Self::UntrustedKey { .. } => Severity::Error,
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            Self::Unknown { kind, id, suggestion, .. } => did_you_mean(suggestion.as_ref(), || {
                Some(format!("create `{}{id}.{}` in the project or the user space, or name an existing item", kind.folder(), kind.extensions().first().copied().unwrap_or_default()))
            }),
            Self::OtherKind { kind, id } => Some(other_kind_help(*kind, id)),
            Self::UnknownKey { what, key, of, suggestion, known, .. } => {
                unknown_key_help(what, key, of, suggestion.as_ref(), known)
            }
            Self::NameMismatch { expected, field, .. } => Some(match (*field, expected.as_str()) {
                ("name", _) => {
                    format!("write `{field}=\"{expected}\"`, or move the file to match its {field}")
                }
                (_, "") => "remove the category, or move the file into a folder with the category's name".to_owned(),
                _ => format!("write `{expected}`, leave the category out, or move the file"),
            }),
            Self::KnowledgeMismatch { field, .. } => {
                Some(format!("remove `{field}`: the path determines the {field}, and nothing reads this value"))
            }
            Self::EscapesSpace { .. } => Some(
                "write the path below the folder of the kind, without extension: `folder/name`; each part has letters, digits, `_` and `-`".into(),
            ),
            Self::InvalidValue { what, expected, found, .. } => {
                let word = found.trim_matches('`');
                let translated = foreign_words::help_for(WordPlace::FieldType, word).filter(|_| what == "`type`");
                // For `net`, `expected` is an example of a host, so no allowed value can be suggested.
                let literal = (what == "`net` of `<tool>`").then(|| format!("write {expected}"));
                translated.map(str::to_owned).or(literal).or_else(|| value_help(found, expected))
            }
            Self::LostResult { .. } => Some("return the value: `return {\"NAME\": VALUE}`".to_owned()),
            Self::Missing { help, .. } | Self::ScriptParameter { help, .. } | Self::OddText { help, .. } => Some(help.clone()),
            Self::Repeated { .. } => Some("keep one of the two occurrences".into()),
            Self::UnusedParameter { name, user, .. } => Some(user.help_for_unused(name)),
            Self::ToolKey { help, .. } | Self::ToolMissing { help, .. } | Self::ToolValue { help, .. } => help.clone(),
            Self::ServerSchema { .. } => {
                Some("no thread gets this tool: correct the schema at its server, then run `rye mcp refresh`".into())
            }
            Self::ServerTask { .. } => Some(
                "rye does not support MCP tasks, so no thread is offered this tool: use another tool, or configure the server to allow direct calls (it declares `execution.taskSupport: required`)".into(),
            ),
            Self::Unreadable { span, reason, .. } => Some(unreadable_help(span.is_some(), reason).into()),
            Self::Unrecognized { suggestion, .. } => did_you_mean(suggestion.as_ref(), || {
                Some("move the file to `.ai/data/`, where tools keep their data, or out of `.ai/`".into())
            }),
            Self::OtherClient { place, .. } => Some((*place).to_owned()),
            Self::UnrecognizedProgram { path, declaration }
                if ["json", "json5", "jsonc", "toml", "xml"].iter().any(|ending| path.ends_with(&format!(".{ending}"))) =>
            {
                Some(format!("a tool is declared in YAML: write `{declaration}`; data of tools belongs in `.ai/data/`"))
            }
            Self::UnrecognizedProgram { path, declaration } => Some(format!(
                "declare the program in `{declaration}` with `kind: command` and `command: [PROGRAM, {path}]`: only scripts in Python, JavaScript, TypeScript or shell are tools by themselves"
            )),
            Self::FrontMatter { help, .. }
            | Self::ForeignTool { help, .. }
            | Self::RequestPart { help, .. }
            | Self::Unexported { help, .. } => Some((*help).to_owned()),
            Self::Dangling { suggestion, .. } => {
                did_you_mean(suggestion.as_ref(), || Some("correct the id, or remove it".into()))
            }
            Self::NearConstant { suggestion, .. } => Some(format!("did you mean `{suggestion}`?")),
            Self::UnknownCall { id, suggestion, other, .. } => unknown_call_help(id, suggestion.as_ref(), *other),
            Self::UnknownBuiltin { own_item: Some(item), .. } => {
                Some(format!("the name is reserved for `{item}`: call that item, or name another built-in tool"))
            }
            Self::UnknownBuiltin { suggestion, own_item: None, .. } => did_you_mean(suggestion.as_ref(), || {
                let known: Vec<String> = crate::tool_spec::builtins().into_iter().map(str::to_owned).collect();
                Some(format!("every call will fail; built-in tools: {}", super::quote_list(&known)))
            }),
            Self::Shadows { tokens, .. } => Some(token_difference_help(*tokens)),
            Self::ShadowsFile { path, .. } => Some(format!("`{path}` is not read: rename or remove one of the two files")),
            Self::InvalidFrontMatter { help, .. } => {
                help.as_ref().map(|help| format!("{help}; until then, all lines are plain text"))
            }
            Self::Ambiguous { .. } => Some("remove or rename one of the two files: an id is the path without its extension".into()),
            Self::ShellSyntax { word, .. } => Some(shell_syntax_help(word)),
            Self::RequestVariable { name, .. } => {
                Some(format!("declare `{name}` in `environment`, and write `${{{name}}}`"))
            }
            Self::UnusedVariable { name, .. } => Some(format!(
                "write `${{{name}}}` into a header, the URL or the body, or remove the variable from `environment`"
            )),
            Self::CodeParameter { parameter, .. } => Some(format!(
                "pass the value as an argument of the code: `[sh, -c, 'wc \"$1\"', sh, \"{{{parameter}}}\"]`"
            )),
            Self::NoText { .. } => Some("write the text below the metadata, or remove the file".into()),
            Self::UnreadMetadata { suggestion, .. } => {
                did_you_mean(suggestion.as_ref(), || Some("remove the key, or keep it as a note for readers".into()))
            }
            Self::Version { .. } => Some("write the version as numbers with dots: `1.0.0`".into()),
            Self::Silent { .. } => Some("write the prompt below the metadata, or let a directive extend it".into()),
            Self::LateSignature { .. } => {
                Some("remove the lines above the signature, or remove the signature and run `rye sign` again".into())
            }
            Self::UntrustedKey { key_id, others, .. } => Some(untrusted_key_help(key_id, others)),
            Self::Unsigned { .. } => Some(
                "review the file, then sign it with `rye sign ITEM` (an item of the user space with `--user`)".into(),
            ),
            Self::Signature { .. } => {
                Some("if the change is yours, sign the file again with `rye sign`; otherwise restore the signed content".into())
            }
        }
    }

    fn labels(&self) -> Vec<Label> {
        match self {
            Self::Unknown { kind, span, .. } => {
                span.iter().map(|s| new_label(*s, format!("no {} has this id", kind.as_str()))).collect()
            }
            Self::UnknownCall { what, span, .. } => vec![new_label(*span, format!("no {what} has this name"))],
            Self::FrontMatter { because, span, .. } => vec![new_label(*span, *because)],
            Self::Dangling { what, span, .. } => vec![new_label(*span, format!("no {what} has this id"))],
            Self::NearConstant { is_needed: true, suggestion, span, .. } => {
                vec![new_label(*span, format!("the script needs `{suggestion}`"))]
            }
            Self::NearConstant { span, .. } => vec![new_label(*span, "no effect")],
            Self::UnknownBuiltin { span, .. } => vec![new_label(*span, "no built-in tool has this name")],
            Self::Shadows { span, .. } => vec![new_label(*span, "shadows the standard library's")],
            Self::ShadowsFile { path, span, .. } => vec![new_label(*span, format!("read instead of `{path}`"))],
            Self::InvalidFrontMatter { span, .. } => vec![new_label(*span, "invalid")],
            Self::UnknownKey { what, of, span, .. } => vec![new_label(*span, format!("no {what} of {of}"))],
            Self::NameMismatch { field, expected, span, .. } => {
                let what = if expected.is_empty() {
                    format!("no {field} fits here")
                } else {
                    format!("expected `{expected}`")
                };
                vec![new_label(*span, what)]
            }
            Self::KnowledgeMismatch { span, .. } => vec![new_label(*span, "contradicts the path")],
            Self::EscapesSpace { span, reason, .. } => vec![new_label(*span, reason.clone())],
            Self::LateSignature { span, .. } => vec![new_label(*span, "read as text")],
            Self::ScriptParameter { span, why, .. } => vec![new_label(*span, why.clone())],
            Self::ShellSyntax { span, .. } => vec![new_label(*span, "not expanded")],
            Self::RequestVariable { span, .. } => vec![new_label(*span, "not filled in")],
            Self::UnusedVariable { span, .. } => vec![new_label(*span, "the request does not contain it")],
            Self::CodeParameter { span, .. } => vec![new_label(*span, "the model chooses a part of this code")],
            Self::ForeignTool { span, .. } | Self::Unexported { span, .. } => {
                vec![new_label(*span, "no part of rye reads this file")]
            }
            Self::NoText { span, .. } => vec![new_label(*span, "no text below the metadata")],
            Self::UnreadMetadata { span, .. } => vec![new_label(*span, "not read")],
            Self::Version { span, .. } => vec![new_label(*span, "not a version number")],
            Self::Silent { span, .. } => {
                vec![new_label(*span, "this directive has no prompt, no hook adds one, and no directive extends it")]
            }
            Self::Signature { span, .. } => span.iter().map(|s| new_label(*s, "invalid")).collect(),
            Self::Unsigned { span, .. } => span.iter().map(|s| new_label(*s, "no signature line")).collect(),
            Self::InvalidValue { span, expected, .. } => vec![new_label(*span, format!("expected {expected}"))],
            Self::Missing { what, span, .. } => vec![new_label(*span, format!("{what} is missing here"))],
            Self::UnusedParameter { span, user, .. } => vec![new_label(*span, user.label())],
            Self::RequestPart { span, label, .. }
            | Self::OddText { span, label, .. }
            | Self::LostResult { span, label, .. } => vec![new_label(*span, *label)],
            Self::Repeated { first, second, .. } => {
                vec![new_label(*second, "second occurrence"), new_label(*first, "first occurrence")]
            }
            Self::ToolKey { span, label: text, .. }
            | Self::ToolMissing { span, label: text, .. }
            | Self::ToolValue { span, label: text, .. }
            | Self::ServerSchema { span, label: text, .. }
            | Self::ServerTask { span, label: text, .. } => vec![new_label(*span, text.clone())],
            Self::Unreadable { span: Some(span), .. } => vec![new_label(*span, "the first bad byte")],
            Self::UntrustedKey { .. }
            | Self::OtherKind { .. }
            | Self::Unreadable { span: None, .. }
            | Self::Ambiguous { .. }
            | Self::UnrecognizedProgram { .. }
            | Self::OtherClient { .. }
            | Self::Unrecognized { .. } => Vec::new(),
        }
    }
}

/// Returns the help for an unknown element, attribute or key: its probable meaning, or the names that are allowed
/// there. `None` if there is no help.
fn unknown_key_help(what: &str, key: &str, of: &str, suggestion: Option<&String>, known: &[String]) -> Option<String> {
    // The suggestion `event` takes precedence over a translation of the key: usually the value of the key is the name
    // of an event.
    let is_event = of == "a hook" && suggestion.is_some_and(|meant| meant == "event");
    let translated = misplaced_key::help(what, key, of).or_else(|| foreign_words::help_for_key(what, key, of));
    translated.filter(|_| !is_event).or_else(|| {
        did_you_mean(suggestion, || {
            let known = (!known.is_empty()).then(|| format!("known here: {}", super::quote_list(known)));
            let codes = (what == "code").then(|| "`rye explain` lists the codes".to_owned());
            separator_help(key).or_else(|| foreign_words::help_for_named_field(what, key, of)).or(known).or(codes)
        })
    })
}

fn unreadable_help(is_encoding: bool, reason: &str) -> &'static str {
    if is_encoding && reason.contains("UTF-16") {
        "save the file as UTF-8: `iconv -f UTF-16 -t UTF-8 OLD > NEW` converts it"
    } else if is_encoding {
        "save the file as UTF-8, or remove it: `iconv -f WINDOWS-1252 -t UTF-8` converts Western European text"
    } else {
        "replace the file with a readable UTF-8 text file that lies inside its space, or remove it"
    }
}

/// Returns the help for [`ItemError::OtherKind`]: how an item of this kind is used.
fn other_kind_help(kind: ItemKind, id: &str) -> String {
    match kind {
        ItemKind::Tool => format!(
            "to use the tool, grant `<tool>{}</tool>` in the `<permissions>` of a directive, and run that directive",
            id.replace('/', ".")
        ),
        ItemKind::Knowledge => {
            format!(
                "to use the knowledge, write `<before>{id}</before>` in the `<context>` of a directive, and run that directive"
            )
        }
        ItemKind::Prompt => format!("type `/{id}` in a chat"),
        ItemKind::Skill => format!("type `/skill:{id}` in a chat"),
        ItemKind::Config | ItemKind::Directive => "name a directive".to_owned(),
    }
}

/// Returns the help for an item that shadows another item. `tokens` are the numbers of tokens of the shadowing and of the
/// shadowed text; `None` for a tool.
fn token_difference_help(tokens: Option<(u64, u64)>) -> String {
    let Some((over, under)) = tokens else {
        return "every grant and call of this id means the project's tool; if not intended, give the tool another id"
            .into();
    };
    let difference =
        if over >= under { format!("{} tokens more", over - under) } else { format!("{} tokens fewer", under - over) };
    format!(
        "every directive that extends a base of the standard library sends this item in place of the shadowed one: {difference} ({over} instead of {under})"
    )
}

fn shell_syntax_help(word: &str) -> String {
    match word.strip_prefix('$') {
        Some(name) => format!(
            "declare the variable in `environment` and write `${{{name}}}`, or run a shell: `command: [sh, -c, \"…\"]`"
        ),
        None => "run a shell: `command: [sh, -c, \"…\"]`, or write a script".into(),
    }
}

fn kind_with_article(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::Tool => "a tool",
        ItemKind::Knowledge => "knowledge",
        ItemKind::Config => "a settings file",
        ItemKind::Prompt => "a prompt template",
        ItemKind::Skill => "a skill",
        ItemKind::Directive => "a directive",
    }
}

/// Returns the end of a message: "requires" with the expected value, or `requires none` if `expected` is empty.
fn expected_name(expected: &str) -> String {
    if expected.is_empty() { "requires none".to_owned() } else { format!("requires `{expected}`") }
}
