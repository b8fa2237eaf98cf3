//! Checks of command tools that pass code to an interpreter (such as `sh -c "ls {path}"`). A parameter inside the code
//! is an error, because the interpreter would run the value of the parameter as code.

use rye_grammar::data::Node;
use rye_grammar::tool_header::ToolTree;

use crate::command_files::code_arguments;
use crate::diagnostics::ItemError;
use crate::tool_spec::{ArgvPlaceholder, placeholders};

/// Returns the error for the first parameter inside code. Code that consists of one parameter only (`sh -c {script}`)
/// is allowed: the tool is meant to run code of the model.
pub fn check(tree: &ToolTree) -> Option<ItemError> {
    tree.metadata.get("kind").filter(|kind| kind.as_str() == Some("command"))?;
    let arguments: Vec<&Node> = tree.metadata.get("command")?.items().iter().collect();
    let words: Vec<String> = arguments.iter().map(|node| node.as_str().unwrap_or_default().to_owned()).collect();
    code_arguments(&words).into_iter().find_map(|(program, at)| {
        let text = words.get(at)?;
        let parameter = placeholders(text).ok()?.into_iter().find_map(|placeholder| match placeholder {
            ArgvPlaceholder::Parameter(name) => Some(name.to_owned()),
            ArgvPlaceholder::Variable(_) => None,
        })?;
        let is_whole = text.trim() == format!("{{{parameter}}}");
        let (program, span) = (words.get(program)?.clone(), arguments.get(at)?.span);
        (!is_whole).then_some(ItemError::CodeParameter { parameter, program, span })
    })
}
