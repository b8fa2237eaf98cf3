//! Scripts that do not read their parameters as a call passes them, and functions that return nothing. Reported are:
//!
//! - a function with one parameter for each value: a call passes all values as one object
//! - a function that reads a parameter that the tool does not declare
//! - a script that reads the command line, or a function other than `main` that reads the standard input
//! - a shell script that reads an argument such as `$1`, which a call does not pass, or a variable with the plain name
//!   of a parameter

use rye_grammar::data::Node;
use rye_grammar::tool_header::{EntrySignature, ToolLanguage, ToolTree, ValueSource};
use rye_grammar::{SourceId, Span, Spanned};

use crate::diagnostics::{ItemError, ParameterUser, closest};

/// Maximum number of arguments that a call passes to `execute`: the object of parameters and the project's folder.
const MOST_ARGUMENTS: usize = 2;

/// Returns an error if the script does not read its parameters as a call passes them: in another form, or with another
/// name. Only the first such place is reported.
pub fn check(tree: &ToolTree, source: SourceId, text: &str) -> Option<ItemError> {
    let script = tree.script.as_ref()?;
    let declared = DeclaredParameters::of(tree);
    match script.language {
        ToolLanguage::Shell => shell_read(text, &declared).map(|read| ItemError::ScriptParameter {
            read: text.get(read.start..read.end).unwrap_or_default().to_owned(),
            why: read.why,
            help: read.help,
            span: Span::new(source, read.start, read.end),
        }),
        ToolLanguage::Python | ToolLanguage::JavaScript | ToolLanguage::TypeScript | ToolLanguage::Yaml => {
            let signature = script.entry.as_ref()?;
            let is_python = script.language == ToolLanguage::Python;
            match signature_fault(signature, is_python, &declared.names) {
                Some(why) => Some(ItemError::ScriptParameter {
                    read: format!("{}({})", signature.function, signature.names.join(", ")),
                    why,
                    help: signature_help(signature, is_python),
                    span: signature.span,
                }),
                None => other_source(signature, is_python, &declared.names)
                    .or_else(|| undeclared_read(signature, is_python, &declared)),
            }
        }
    }
}

/// Names of a parameter that holds the parameters of a call.
const OBJECT_NAMES: [&str; 6] = ["params", "parameters", "args", "arguments", "input", "inputs"];

/// Returns the warning about a function that returns nothing, although it prints or computes a result. `None` for a
/// persistent tool, because the hooks that call it may need no result.
pub fn lost_result(tree: &ToolTree) -> Option<ItemError> {
    let script = tree.script.as_ref().filter(|_| tree.metadata.get("persistent").is_none())?;
    let entry = script.entry.as_ref()?;
    let lost = entry.lost_result.as_ref()?;
    let is_expression = lost.node.starts_with(['{', '[', '(', '`', '"', '\'']);
    Some(ItemError::LostResult {
        function: if entry.function == "default" { "the default function" } else { "`execute`" },
        label: if is_expression { "this value is lost" } else { "this text is a log, not the result" },
        span: lost.span,
    })
}

/// Returns the declared parameters that the script never reads. Empty unless the reader knows every key that the
/// function reads, and the file contains the name of the parameter nowhere else.
pub fn unused(tree: &ToolTree, text: &str) -> Vec<ItemError> {
    let entry = tree.script.as_ref().and_then(|script| script.entry.as_ref());
    let reads_all = entry.is_some_and(|entry| {
        entry.reads_are_complete && entry.function != "main" && !entry.names.is_empty() && !entry.is_variadic
    });
    if !reads_all || tree.metadata.get("persistent").is_some() {
        return Vec::new();
    }
    let properties = tree.metadata.get("parameters").and_then(|parameters| parameters.get("properties"));
    // The schema names a parameter in `properties`, and once more in `required`.
    let required = tree.metadata.get("parameters").and_then(|parameters| parameters.get("required"));
    let is_required =
        |name: &str| required.is_some_and(|list| list.items().iter().any(|one| one.as_str() == Some(name)));
    let is_unused = |name: &str| {
        let own = 1 + usize::from(is_required(name));
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$');
        let words = text.match_indices(name).filter(|(at, _)| {
            let before = text.get(..*at).and_then(|before| before.chars().next_back());
            let after = text.get(at + name.len()..).and_then(|after| after.chars().next());
            !before.is_some_and(is_part) && !after.is_some_and(is_part)
        });
        words.count() <= own
    };
    let declared = properties.map(Node::entries).unwrap_or_default();
    let keys = declared.iter().map(|entry| &entry.key).filter(|key| is_unused(&key.node));
    let user = ParameterUser::Script;
    keys.map(|key| ItemError::UnusedParameter { name: key.node.clone(), user, span: key.span }).collect()
}

/// Returns the warning about a script that reads its values from a source that calls leave empty.
fn other_source(signature: &EntrySignature, is_python: bool, declared: &[&str]) -> Option<ItemError> {
    let (source, place) = signature.other_source.as_ref()?;
    let name = declared.first().copied().unwrap_or("NAME");
    let is_main = signature.function == "main";
    Some(ItemError::ScriptParameter {
        read: place.node.clone(),
        why: match source {
            ValueSource::CommandLine => "a call passes no arguments to the program".to_owned(),
            ValueSource::StandardInput => "only `main` gets the parameters on the standard input".to_owned(),
        },
        help: match (is_python, is_main) {
            (true, true) => format!("write `json.load(sys.stdin)[\"{name}\"]`"),
            (true, false) => format!("write `params[\"{name}\"]` in `def execute(params, project_path):`"),
            (false, _) => format!("write `params.{name}` in `export function execute(params, projectPath)`"),
        },
        span: place.span,
    })
}

/// Prefix of the environment variables that pass the parameters to a shell tool.
const PARAMETER_PREFIX: &str = "RYE_PARAM_";

/// The parameters that a tool declares.
struct DeclaredParameters<'t> {
    names: Vec<&'t str>,
    /// True if the schema allows parameters besides `names`, or has a form that this check does not read.
    is_open: bool,
}

impl<'t> DeclaredParameters<'t> {
    fn of(tree: &'t ToolTree) -> Self {
        /// Keys of a schema that permit no parameters beyond those in `properties`. A schema with any other key counts
        /// as open, except for `additionalProperties: false`.
        const CLOSED_KEYS: [&str; 8] =
            ["type", "properties", "required", "description", "title", "examples", "$schema", "$comment"];
        let parameters = tree.metadata.get("parameters");
        let properties = parameters.and_then(|parameters| parameters.get("properties"));
        let mut names: Vec<&str> =
            properties.map(Node::entries).unwrap_or_default().iter().map(|entry| entry.key.node.as_str()).collect();
        if tree.metadata.get("config").is_some() {
            names.push("resolved_config");
        }
        let is_closing = |key: &str, value: &Node| {
            CLOSED_KEYS.contains(&key) || (key == "additionalProperties" && value.as_bool() == Some(false))
        };
        let is_open = parameters.is_some_and(|schema| {
            schema.entries().is_empty() || !schema.entries().iter().all(|e| is_closing(&e.key.node, &e.value))
        });
        // The set of parameters is open in two more cases: a persistent tool also gets the facts of events, and a
        // misspelt constant may contain the schema.
        let has_misspelt = tree.script.as_ref().is_some_and(|script| !script.others.is_empty());
        let is_open = is_open || has_misspelt || tree.metadata.get("persistent").is_some();
        Self { names, is_open }
    }
}

/// Returns the reason why the parameters of a script's entry function do not match the arguments that a call passes;
/// `None` if they match. `declared` are the names of the tool's parameters.
fn signature_fault(signature: &EntrySignature, is_python: bool, declared: &[&str]) -> Option<String> {
    if signature.function == "main" && is_python {
        let takes_any = signature.required > 0 || signature.requires_names;
        return takes_any.then(|| "a call passes no arguments to `main`".to_owned());
    }
    if signature.requires_names {
        return Some("a call passes no keyword arguments".to_owned());
    }
    if signature.required > MOST_ARGUMENTS {
        return Some(format!(
            "a call passes two arguments, the parameters as one object and the project's folder, not {}",
            signature.required
        ));
    }
    // JavaScript ignores arguments that a function does not take.
    if is_python && signature.names.is_empty() && !signature.is_variadic {
        return Some("a call passes the parameters as one object, but the function accepts no argument".to_owned());
    }
    let first = signature.names.first()?;
    let is_value = declared.contains(&first.as_str()) && !matches!(first.as_str(), "params" | "parameters");
    let is_object = |name: &String| OBJECT_NAMES.contains(&name.as_str());
    let is_second = !is_object(first) && signature.names.get(1).is_some_and(is_object);
    (is_value || is_second).then(|| format!("`{first}` gets all parameters as one object"))
}

fn signature_help(signature: &EntrySignature, is_python: bool) -> String {
    if signature.function == "main" && is_python {
        return "write `def execute(params, project_path):`, or read the JSON object from standard input".to_owned();
    }
    if is_python {
        return "write `def execute(params, project_path):` and read `params[\"NAME\"]`".to_owned();
    }
    let function = if signature.function == "default" { "" } else { signature.function.as_str() };
    if signature.names.get(1).is_some_and(|name| OBJECT_NAMES.contains(&name.as_str())) {
        return format!("write `function {function}(params, projectPath)`");
    }
    let names = if signature.names.is_empty() { "NAME".to_owned() } else { signature.names.join(", ") };
    format!("write `function {function}({{ {names} }}, projectPath)`")
}

/// Returns the error for the first parameter that the function reads but the tool does not declare; `None` if there is
/// none. The model does not know of such a parameter and never sets it.
fn undeclared_read(
    signature: &EntrySignature,
    is_python: bool,
    declared: &DeclaredParameters<'_>,
) -> Option<ItemError> {
    let is_undeclared = |read: &&Spanned<String>| !declared.is_open && !declared.names.contains(&read.node.as_str());
    // A key with a default may be optional on purpose. It counts only if it resembles a parameter that nothing reads.
    let is_read = |name: &str| signature.reads.iter().chain(&signature.optional_reads).any(|read| read.node == name);
    let is_misspelt = |read: &&Spanned<String>| {
        signature.reads_are_complete
            && closest(&read.node, declared.names.iter().copied()).is_some_and(|near| !is_read(&near))
    };
    let optional = || signature.optional_reads.iter().find(|read| is_undeclared(read) && is_misspelt(read));
    let read = signature.reads.iter().find(is_undeclared).or_else(optional)?;
    let is_optional = !signature.reads.contains(read);
    let name = &read.node;
    let help = match closest(name, declared.names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("declare it in `CONFIG_SCHEMA`: `\"{name}\": {{\"type\": \"string\"}}`"),
    };
    Some(ItemError::ScriptParameter {
        read: match (is_python, is_optional) {
            (true, true) => format!("params.get(\"{name}\")"),
            (true, false) => format!("params[\"{name}\"]"),
            (false, true) => format!("params.{name}"),
            (false, false) => format!("{{ {name} }}"),
        },
        why: format!("`CONFIG_SCHEMA` declares no `{name}`"),
        help,
        span: read.span,
    })
}

struct ShellRead {
    start: usize,
    end: usize,
    why: String,
    help: String,
}

/// Returns the first place where a shell script probably means to read a parameter but reads something else: an
/// argument such as `$1`, or a variable that has the name of a parameter and that no line sets. `None` if there is no
/// such place. Arguments are not reported in a script with functions or `set --`, because functions and `set --`
/// replace the arguments.
fn shell_read(text: &str, parameters: &DeclaredParameters<'_>) -> Option<ShellRead> {
    let declared = &parameters.names;
    let sets_arguments =
        text.contains("()") || text.lines().any(|line| line.contains("set --") || line.contains("function "));
    let mut in_single = false;
    let mut in_double = false;
    let mut at = 0;
    while let Some(c) = text.get(at..).and_then(|rest| rest.chars().next()) {
        let rest = text.get(at..).unwrap_or_default();
        match c {
            '\\' if !in_single => {
                at += 1 + rest.chars().nth(1).map_or(0, char::len_utf8);
                continue;
            }
            '\'' if !in_double => in_single = !in_single,
            '"' if !in_single => in_double = !in_double,
            '#' if !in_single && !in_double && is_word_start(text, at) => {
                at += rest.find('\n').unwrap_or(rest.len());
                continue;
            }
            '$' if !in_single => {
                let (name, end) = variable(rest);
                let is_argument = matches!(name, "@" | "*") || name.starts_with(|c: char| ('1'..='9').contains(&c));
                if is_argument && !sets_arguments {
                    let first = declared.first().copied().unwrap_or("NAME");
                    return Some(ShellRead {
                        start: at,
                        end: at + end,
                        why: "a call passes no arguments to a shell script".to_owned(),
                        help: format!("read `$RYE_PARAM_{first}`, or the JSON object on standard input"),
                    });
                }
                let is_declared = |name: &str| declared.contains(&name);
                if let Some(parameter) = name.strip_prefix(PARAMETER_PREFIX)
                    && !(parameter.is_empty() || parameters.is_open || is_declared(parameter))
                    && !is_assigned(text, name)
                {
                    let is_meant = |one: &&&str| one.replace(|c: char| !c.is_ascii_alphanumeric(), "_") == parameter;
                    if let Some(named) = declared.iter().find(is_meant) {
                        return Some(ShellRead {
                            start: at,
                            end: at + end,
                            why: format!("the name `{named}` cannot be a part of a variable"),
                            help: format!("rename the parameter `{named}` to `{parameter}`"),
                        });
                    }
                    let same = declared.iter().find(|one| one.eq_ignore_ascii_case(parameter)).copied();
                    let near = same.map(str::to_owned).or_else(|| closest(parameter, declared.iter().copied()));
                    return Some(ShellRead {
                        start: at,
                        end: at + end,
                        why: format!("the tool declares no parameter `{parameter}`"),
                        help: near.map_or_else(
                            || format!("declare the parameter `{parameter}`, or remove the variable"),
                            |near| format!("did you mean `${PARAMETER_PREFIX}{near}`?"),
                        ),
                    });
                }
                if declared.contains(&name) && !is_assigned(text, name) {
                    return Some(ShellRead {
                        start: at,
                        end: at + end,
                        why: "no line sets this variable".to_owned(),
                        help: format!("did you mean `$RYE_PARAM_{name}`?"),
                    });
                }
            }
            _ => {}
        }
        at += c.len_utf8();
    }
    None
}

fn is_word_start(text: &str, at: usize) -> bool {
    text.get(..at).and_then(|before| before.chars().next_back()).is_none_or(char::is_whitespace)
}

/// Returns the name of the variable in the expression at the start of `text`, such as `$name` or `${name}`, and the
/// length of the expression in bytes. The name is empty if no name follows the `$`.
fn variable(text: &str) -> (&str, usize) {
    let inside = text.get(1..).unwrap_or_default();
    let (offset, inside) = inside.strip_prefix('{').map_or((1, inside), |rest| (2, rest));
    let length = match inside.chars().next() {
        Some('@' | '*') => 1,
        Some(c) if c.is_ascii_digit() => 1,
        _ => inside.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(inside.len()),
    };
    let close = usize::from(offset == 2 && inside.get(length..).is_some_and(|rest| rest.starts_with('}')));
    (inside.get(..length).unwrap_or_default(), offset + length + close)
}

/// Returns true if a line of the script sets a variable: `name=`, `read name`, `for name`, `local name`.
fn is_assigned(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let before = text.get(..at).unwrap_or_default();
        let after = text.get(at + name.len()..).unwrap_or_default();
        let is_whole = is_word_start(text, at) || before.ends_with([';', '(']);
        let word = before.split_whitespace().next_back().unwrap_or_default();
        let is_name_end = !after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let is_set = after.starts_with('=') || after.starts_with("+=") || after.starts_with('[');
        let is_bound = is_name_end
            && (matches!(word, "for" | "local" | "declare" | "export" | "readonly" | "typeset" | "mapfile")
                || before.lines().next_back().is_some_and(|line| {
                    line.split_whitespace().any(|word| matches!(word, "read" | "mapfile" | "readarray" | "printf"))
                }));
        is_whole && (is_set || is_bound)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<String> {
        shell_read(text, &DeclaredParameters { names: vec!["file"], is_open: false })
            .map(|read| text.get(read.start..read.end).unwrap().to_owned())
    }

    #[test]
    fn arguments_of_a_shell_script_are_found() {
        assert_eq!(read("wc -l \"$1\"\n").as_deref(), Some("$1"));
        assert_eq!(read("for f in \"$@\"; do echo $f; done").as_deref(), Some("$@"));
        assert_eq!(read("echo ${1:-x}").as_deref(), Some("${1"));
        assert_eq!(read("cat $file").as_deref(), Some("$file"));
        assert_eq!(read("cat \"${file}\"").as_deref(), Some("${file}"));
    }

    #[test]
    fn variables_that_the_script_sets_are_no_arguments() {
        for text in [
            "wc -l \"$RYE_PARAM_file\"",
            "file=$(ls)\ncat $file",
            "read -r file\ncat $file",
            "for file in *; do cat \"$file\"; done",
            "awk '{print $1}' x",
            "# usage: $1\nls",
            "f() { echo $1; }\nf x",
            "set -- a b\necho $1",
            "echo \\$1 \"\\$file\"",
            "echo $filename $0 $# $?",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    fn signature(function: &str, names: &[&str], required: usize) -> EntrySignature {
        EntrySignature {
            function: function.to_owned(),
            span: Span::new(SourceId(0), 0, 0),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            required,
            is_variadic: false,
            requires_names: false,
            reads: Vec::new(),
            optional_reads: Vec::new(),
            reads_are_complete: false,
            other_source: None,
            lost_result: None,
        }
    }

    #[test]
    fn signatures_that_no_call_fits_are_found() {
        let fault =
            |names: &[&str], required: usize| signature_fault(&signature("execute", names, required), true, &["text"]);
        assert!(fault(&["text"], 1).unwrap().contains("all parameters"));
        assert!(fault(&[], 0).is_some() && fault(&["a", "b", "c"], 3).is_some());
        assert_eq!(fault(&["params", "project_path"], 2), None);
        assert_eq!(fault(&["data"], 1), None);
        assert_eq!(fault(&["params", "project_path", "x"], 2), None);
        let main = |required: usize| signature_fault(&signature("main", &["params"], required), true, &["text"]);
        assert!(main(1).is_some() && main(0).is_none());
        let script = |names: &[&str]| signature_fault(&signature("default", names, names.len()), false, &["text"]);
        assert!(script(&["text"]).is_some() && script(&["a", "b", "c"]).is_some());
        assert_eq!((script(&[]), script(&["params"]), script(&["{ text }"])), (None, None, None));
    }
}
