//! Checks of command tools that pass code to an interpreter (such as `sh -c "ls {path}"`). A parameter inside the code
//! is an error, because the interpreter would run the value of the parameter as code.

use rye_grammar::data::Node;
use rye_grammar::tool_header::ToolTree;

use crate::diagnostics::ItemError;
use crate::tool_spec::{ArgvPlaceholder, placeholders};

/// Interpreters, each with the options that precede code on the command line.
const INTERPRETERS: [(&str, &[&str]); 14] = [
    ("sh", &["-c", "-ec", "-lc"]),
    ("bash", &["-c", "-ec", "-lc"]),
    ("zsh", &["-c", "-ec", "-lc"]),
    ("dash", &["-c", "-ec"]),
    ("ksh", &["-c", "-ec"]),
    ("fish", &["-c"]),
    ("python", &["-c"]),
    ("python3", &["-c"]),
    ("node", &["-e", "--eval", "-p"]),
    ("deno", &["eval"]),
    ("perl", &["-e", "-E"]),
    ("ruby", &["-e"]),
    ("php", &["-r"]),
    ("pwsh", &["-c", "-Command"]),
];

/// Returns the error for the first parameter inside code. Code that consists of one parameter only (`sh -c {script}`)
/// is allowed: the tool is meant to run code of the model.
pub fn check(tree: &ToolTree) -> Option<ItemError> {
    tree.metadata.get("kind").filter(|kind| kind.as_str() == Some("command"))?;
    let arguments: Vec<&Node> = tree.metadata.get("command")?.items().iter().collect();
    let program = arguments.first()?.as_str()?;
    let name = program.rsplit('/').next().unwrap_or(program);
    let (_, options) = INTERPRETERS.iter().find(|(known, _)| *known == name)?;
    let at = arguments.iter().position(|argument| argument.as_str().is_some_and(|text| options.contains(&text)))?;
    let code = arguments.get(at + 1)?;
    let text = code.as_str()?;
    let parameter = placeholders(text).ok()?.into_iter().find_map(|placeholder| match placeholder {
        ArgvPlaceholder::Parameter(name) => Some(name.to_owned()),
        ArgvPlaceholder::Variable(_) => None,
    })?;
    let is_whole = text.trim() == format!("{{{parameter}}}");
    let (program, span) = (program.to_owned(), code.span);
    (!is_whole).then_some(ItemError::CodeParameter { parameter, program, span })
}
