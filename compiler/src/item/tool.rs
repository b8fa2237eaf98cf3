//! A tool item: its file and its declaration.

mod command_code;
mod parameter_schema;
mod request_variables;
mod script_parameters;

use std::sync::Arc;

use rye_grammar::Span;
use rye_grammar::data::Node;
use rye_grammar::tool_header::{self, ScriptReader, ToolLanguage, ToolTree};

use super::FileRef;
use crate::diagnostics::{Diagnostic, Diagnostics, ItemError, ParameterUser, closest, help_for_tool_word};
use crate::tool_spec::{ArgvPlaceholder, ENGINE_TOOLS, ToolKind, ToolSpec, ToolSpecErrorKind, builtins, placeholders};

pub(crate) use request_variables::plain_variable;

#[derive(Debug, Clone)]
pub struct Tool {
    pub file: FileRef,
    pub spec: Arc<ToolSpec>,
}

/// Reads a tool file; `scripts` reads the constants of a script. Returns `None` for a file that is only a module of a
/// tool, and for invalid metadata.
pub fn read(file: FileRef, text: &str, scripts: &dyn ScriptReader, found: &mut Diagnostics) -> Option<Tool> {
    let language = ToolLanguage::of_path(&file.path)?;
    let parsed = tool_header::parse(file.source, text, language, scripts);
    let unread = !parsed.errors.is_empty();
    found.syntax(parsed.errors);
    if !unread && is_module(&parsed.tree) {
        found.extend(foreign_tool(&file, text, language).or_else(|| unexported_tool(&file, text, language)));
        return None;
    }
    found.extend(unknown_builtin(&file, &parsed.tree));
    found.extend(misspelled_constants(&parsed.tree));
    found.extend(shell_syntax(&parsed.tree));
    found.extend(odd_program(&parsed.tree));
    found.extend(request_variables::check(&parsed.tree));
    found.extend(command_code::check(&parsed.tree));
    found.extend(parameter_schema::check(&parsed.tree));
    if !unread {
        found.extend(script_parameters::check(&parsed.tree, file.source, text));
        found.extend(script_parameters::lost_result(&parsed.tree));
        found.extend(carriage_returns(&parsed.tree, &file, text));
    }
    match ToolSpec::read(&parsed.tree) {
        Ok(spec) => {
            found.extend(unused_parameters(&spec, &parsed.tree));
            // A misspelt read, or a schema that cannot be read, is the reason for an unused parameter.
            let is_cause = |one: &Diagnostic| {
                let is_read = matches!(one, Diagnostic::Item(ItemError::ScriptParameter { .. }));
                (is_read || one.is_error()) && one.labels().iter().any(|label| label.span.source == file.source)
            };
            if !found.iter().any(is_cause) {
                found.extend(script_parameters::unused(&parsed.tree, text));
            }
            Some(Tool { file, spec: Arc::new(spec) })
        }
        Err(faults) => {
            // Unparsed metadata has no keys; reporting missing keys as well would hide the first error.
            if !unread {
                for fault in faults {
                    let word = fault.word.as_deref();
                    let is_kind = fault.code == ToolSpecErrorKind::BadValue;
                    let translated = word.and_then(|word| help_for_tool_word(is_kind, word)).map(str::to_owned);
                    let is_header = fault.code == ToolSpecErrorKind::MissingKey && language == ToolLanguage::Shell;
                    let late = if is_header { late_header(text) } else { None };
                    let help = late.or(translated).or(fault.help);
                    let (message, span, label) = (fault.message, fault.span, fault.label);
                    found.push(match fault.code {
                        ToolSpecErrorKind::UnknownKey => ItemError::ToolKey { message, span, label, help },
                        ToolSpecErrorKind::MissingKey => ItemError::ToolMissing { message, span, label, help },
                        ToolSpecErrorKind::BadValue => ItemError::ToolValue { message, span, label, help },
                        ToolSpecErrorKind::ServerSchema => {
                            let id = file.id.to_string();
                            ItemError::ServerSchema { id, reason: message, span, label }
                        }
                        ToolSpecErrorKind::ServerTask => ItemError::ServerTask { id: file.id.to_string(), span, label },
                    });
                }
            }
            None
        }
    }
}

/// Returns the help for a shell script whose `# rye:` comment follows a command, where the comment is not read; `None`
/// if there is no such comment.
fn late_header(text: &str) -> Option<String> {
    let is_code = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let mut after_code = text.lines().enumerate().skip_while(|(_, line)| !is_code(line));
    let is_header = |line: &str| {
        line.trim_start()
            .strip_prefix('#')
            .and_then(|comment| comment.trim_start().strip_prefix("rye:"))
            .is_some_and(|header| header.starts_with([' ', '{']) || header.is_empty())
    };
    let (index, _) = after_code.find(|(_, line)| is_header(line))?;
    Some(format!("move the `# rye:` header of line {} above the first command", index + 1))
}

/// Returns an error for each declared parameter of a command or request that no part of it uses, because the program
/// or server would never receive the value. A command with the placeholder `params_json` uses all parameters, and a
/// persistent command gets them as the facts of each line.
fn unused_parameters(spec: &ToolSpec, tree: &ToolTree) -> Vec<ItemError> {
    if spec.persistent {
        return Vec::new();
    }
    let (texts, user) = match &spec.kind {
        ToolKind::Command { argv } => (argv.iter().map(String::as_str).collect(), ParameterUser::Command),
        ToolKind::Http(_) => (request_variables::request_texts(tree), ParameterUser::Request),
        ToolKind::Script { .. } | ToolKind::Builtin { .. } | ToolKind::Mcp { .. } => return Vec::new(),
    };
    let all = texts.into_iter().filter_map(|template| placeholders(template).ok()).flatten();
    let named: Vec<&str> = all
        .filter_map(|placeholder| match placeholder {
            ArgvPlaceholder::Parameter(name) => Some(name),
            ArgvPlaceholder::Variable(_) => None,
        })
        .collect();
    if named.contains(&"params_json") {
        return Vec::new();
    }
    let properties = tree.metadata.get("parameters").and_then(|parameters| parameters.get("properties"));
    let declared = properties.map(Node::entries).unwrap_or_default().iter().map(|entry| &entry.key);
    let is_placeholder = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !name.is_empty();
    let unused = declared.filter(|name| is_placeholder(&name.node) && !named.contains(&name.node.as_str()));
    unused.map(|name| ItemError::UnusedParameter { name: name.node.clone(), user, span: name.span }).collect()
}

/// Returns the error for a built-in tool that the engine does not have, or that is reserved for another item; `None` if
/// the item may use the tool. A program that embeds the engine may add built-in tools, so this error must not prevent a
/// run.
fn unknown_builtin(file: &FileRef, tree: &ToolTree) -> Option<ItemError> {
    tree.metadata.get("kind").filter(|kind| kind.as_str() == Some("builtin"))?;
    let named = tree.metadata.get("builtin")?;
    let name = named.as_str().filter(|name| !builtins().contains(name))?;
    let own_item = ENGINE_TOOLS.contains(&name).then(|| format!("rye/agent/threads/{name}"));
    if own_item.as_deref() == Some(file.id.as_str()) {
        return None;
    }
    let suggestion = closest(name, builtins());
    Some(ItemError::UnknownBuiltin { name: name.to_owned(), own_item, suggestion, span: named.span })
}

/// Operators that a shell reads between words.
const SHELL_OPERATORS: [&str; 10] = ["|", "||", "&&", "&", ">", ">>", "<", "2>", "2>&1", "&>"];
/// Programs that take some of [`SHELL_OPERATORS`] as ordinary arguments. Commands of these programs are not checked for
/// shell syntax.
const OPERATOR_READERS: [&str; 4] = ["[", "awk", "expr", "test"];

/// Programs that read each argument as a path and expand no wildcards.
const PATH_READERS: [&str; 14] =
    ["cat", "chmod", "cp", "du", "head", "ls", "mkdir", "mv", "rm", "sort", "stat", "tail", "touch", "wc"];

/// Returns the error for the first argument of a command that only a shell would expand or read as an operator: a
/// variable, the home folder, a substitution, a wildcard or quotes. `None` if there is no such argument.
fn shell_syntax(tree: &ToolTree) -> Option<ItemError> {
    tree.metadata.get("kind").filter(|kind| kind.as_str() == Some("command"))?;
    let mut arguments = tree.metadata.get("command")?.items().iter();
    let program = arguments.next()?.as_str()?;
    if OPERATOR_READERS.contains(&program) {
        return None;
    }
    let is_variable = |text: &str| {
        text.strip_prefix('$')
            .is_some_and(|name| name.starts_with(|c: char| c.is_ascii_uppercase() || c.is_ascii_digit()))
    };
    let is_quoted = |text: &str| text.len() > 2 && text.starts_with('\'') && text.ends_with('\'');
    let is_substitution = |text: &str| {
        (text.starts_with("$(") && text.ends_with(')'))
            || (text.len() > 2 && text.starts_with('`') && text.ends_with('`'))
    };
    let is_wildcard = |text: &str| PATH_READERS.contains(&program) && text.contains('*');
    let is_shell_word = |text: &str| {
        let is_word = SHELL_OPERATORS.contains(&text) || is_variable(text) || text.starts_with("~/");
        is_word || is_quoted(text) || is_substitution(text) || is_wildcard(text)
    };
    let argument = arguments
        .take_while(|argument| argument.as_str() != Some("-c"))
        .find(|a| a.as_str().is_some_and(is_shell_word))?;
    let word = argument.as_str()?.to_owned();
    Some(ItemError::ShellSyntax { word, program: program.to_owned(), span: argument.span })
}

/// Commands of a shell that change only the shell itself. If a program with such a name exists, running it has no
/// effect.
const SHELL_BUILTINS: [&str; 12] =
    [".", "alias", "cd", "declare", "eval", "export", "popd", "pushd", "set", "shopt", "source", "unset"];

/// Returns the error for a `command` whose first word is not the name of a program: it contains a backslash or an argument
/// after a space (`git status`), or it is a command of a shell. `None` for any other name. A path may contain spaces.
fn odd_program(tree: &ToolTree) -> Option<ItemError> {
    tree.metadata.get("kind").filter(|kind| kind.as_str() == Some("command"))?;
    let node = tree.metadata.get("command")?.items().first()?;
    let program = node.as_str().filter(|program| !program.contains(['{', '$']))?.trim();
    if SHELL_BUILTINS.contains(&program) {
        return Some(ItemError::OddText {
            code: "item::shell-syntax",
            message: format!("`{program}` is a command of a shell, not a program"),
            label: "no shell reads the command",
            help: "run a shell: `command: [sh, -c, \"…\"]`, or write a script; each call starts in the folder of the project"
                .to_owned(),
            span: node.span,
        });
    }
    let meant = if program.contains('\\') {
        program.replace('\\', "/")
    } else if program.contains(' ') && !program.contains('/') {
        format!("command: [{}, …]", program.split_whitespace().collect::<Vec<_>>().join(", "))
    } else {
        return None;
    };
    Some(ItemError::OddText {
        code: "item::shell-syntax",
        message: format!("`{program}` is not the name of a program"),
        label: "cannot be started",
        help: format!("write `{meant}`"),
        span: node.span,
    })
}

/// Returns the error for a shell script whose lines end with a carriage return; `None` for any other file.
fn carriage_returns(tree: &ToolTree, file: &FileRef, text: &str) -> Option<ItemError> {
    tree.script.as_ref().filter(|script| script.language == ToolLanguage::Shell)?;
    let end = text.find("\r\n")?;
    let start = text.get(..end)?.rfind('\n').map_or(0, |at| at + 1);
    Some(ItemError::OddText {
        code: "item::shell-syntax",
        message:
            "the lines of this script end with a carriage return, which the shell reads as a part of the last word"
                .to_owned(),
        label: "the first line",
        help: "save the file with the line ends of Unix (LF)".to_owned(),
        span: Span::new(file.source, start, end),
    })
}

/// Name of the constant in a script that holds the description of the tool.
const DESCRIPTION: &str = "__tool_description__";

/// Returns an error for each constant whose name resembles the name of a tool declaration. `__tool_type__`, which older
/// tools declare, is ignored.
fn misspelled_constants(tree: &ToolTree) -> Vec<ItemError> {
    const OWN: [&str; 6] = ["__tool_type__", "__all__", "__name__", "__title__", "__file__", "__date__"];
    let others = tree.script.iter().flat_map(|script| &script.others);
    let others = others.filter(|name| !OWN.contains(&name.node.as_str()));
    let is_described = tree.metadata.get("description").is_some();
    let near = others.filter_map(|name| {
        let word = name.node.trim_matches('_');
        let is_description =
            word.starts_with("desc") || matches!(word, "tool_desc" | "tool_doc" | "tool_summary" | "summary");
        let suggestion =
            if is_description { DESCRIPTION.to_owned() } else { closest(&name.node, tool_header::declaring_names())? };
        let is_needed = suggestion == DESCRIPTION && !is_described;
        Some(ItemError::NearConstant { name: name.node.clone(), suggestion, is_needed, span: name.span })
    });
    near.collect()
}

/// Returns an error for a module that declares tools in the form of another framework, for example with `@tool`,
/// because no thread is offered these tools. `None` for any other module.
fn foreign_tool(file: &FileRef, text: &str, language: ToolLanguage) -> Option<ItemError> {
    const DECORATORS: [&str; 6] =
        ["tool", "function_tool", "beta_tool", "kernel_function", "ai_function", "structured_tool"];
    const MODULES: [&str; 6] =
        ["@langchain/", "\"ai\"", "'ai'", "@modelcontextprotocol/sdk", "@openai/agents", "@mastra/core"];
    let is_python = language == ToolLanguage::Python;
    let mark = |line: &str| {
        let code = line.trim_start();
        if is_python {
            let name = code.strip_prefix('@').map(|rest| rest.split(['(', ' ', '#']).next().unwrap_or(rest).trim());
            let is_decorator =
                name.is_some_and(|name| name.rsplit('.').next().is_some_and(|last| DECORATORS.contains(&last)));
            is_decorator || (code.starts_with("class ") && code.contains("BaseTool)"))
        } else {
            code.starts_with("import ") && MODULES.iter().any(|module| code.contains(module)) && text.contains("tool(")
        }
    };
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if mark(line) {
            let start = at + line.len() - line.trim_start().len();
            let length = line.trim().len();
            let help = if is_python {
                "write one tool per file: `__tool_description__ = \"…\"`, `CONFIG_SCHEMA = {…}` and a function `execute`"
            } else {
                "write one tool per file: `export const __tool_description__ = \"…\"` and an exported function `execute`"
            };
            let span = Span::new(file.source, start, start + length);
            return Some(ItemError::ForeignTool { mark: line.trim().to_owned(), help, span });
        }
        at += line.len();
    }
    None
}

/// Returns the error for a JavaScript or TypeScript file that declares constants of a tool without `export`; `None` for
/// any other file. Without the exports, the file is not a tool but a module.
fn unexported_tool(file: &FileRef, text: &str, language: ToolLanguage) -> Option<ItemError> {
    if !matches!(language, ToolLanguage::JavaScript | ToolLanguage::TypeScript) || text.contains("module.exports") {
        return None;
    }
    let is_declaration = |line: &str| {
        let rest = ["const ", "let ", "var "].iter().find_map(|word| line.strip_prefix(word));
        rest.is_some_and(|rest| rest.trim_start().starts_with("__tool_"))
    };
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if is_declaration(line) {
            let help = "write `export` before the constants of the tool and before the function `execute`";
            let span = Span::new(file.source, at, at + line.trim_end().len());
            return Some(ItemError::Unexported { mark: line.trim().to_owned(), help, span });
        }
        at += line.len();
    }
    None
}

/// Returns true for a script without metadata and without an entry point: a module that tools can use, not a tool.
fn is_module(tree: &ToolTree) -> bool {
    let Some(script) = &tree.script else { return false };
    let callable = script.names.iter().any(|name| matches!(name.as_str(), "execute" | "main" | "default"));
    script.language != ToolLanguage::Shell && tree.metadata.entries().is_empty() && !callable
}
