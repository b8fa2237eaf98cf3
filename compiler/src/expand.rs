//! The expansion of a typed line: a call of a skill or of a prompt template becomes the text that is sent.

use std::ops::Range;

use rye_grammar::ItemId;
use thiserror::Error;

use crate::commands::read_commands;
use crate::diagnostics::{Diagnostics, closest};
use crate::item::prompt_template::{MAX_FILLED_BYTES, fill, split_arguments};
use crate::item::{BUILT_IN_COMMANDS, Items};
use crate::world::ItemKind;

/// Prefix of the command that calls a skill.
const SKILL_PREFIX: &str = "skill:";

/// The expansion of a typed line: the text that is sent in place of the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expansion {
    /// The text to send; `None` if the line calls a skill or prompt template that cannot be expanded, for the reason in
    /// `problems`.
    pub text: Option<String>,
    pub expanded: Vec<ExpandedItem>,
    pub problems: Vec<ExpansionProblem>,
}

/// An item whose content is part of the sent text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpandedItem {
    pub kind: ItemKind,
    pub id: ItemId,
    /// SHA-256 of the item's file, in lowercase hex.
    pub sha256: String,
    /// The range of bytes in the sent text that holds the item's content, with the arguments filled in.
    pub range: Range<usize>,
}

/// A problem of a typed line, as a message to the user.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ExpansionProblem {
    /// The typed `command` is neither a prompt template nor a skill. `command` and `suggestion` include the slash. The
    /// caller may still have a built-in command with this name.
    #[error("unknown command `{command}`")]
    Unknown { command: String, suggestion: Option<String> },
    #[error("the {} `{id}` cannot be read; `rye check` reports the reason", kind.as_str())]
    Unreadable { kind: ItemKind, id: ItemId },
    #[error("`{command}` uses argument {number}, which is missing")]
    MissingArgument { command: String, number: usize },
    #[error("`{command}` does not use argument {number}: `{argument}` is not sent")]
    UnusedArgument { command: String, number: usize, argument: String },
    #[error("`{command}` expands to more than {} MiB", MAX_FILLED_BYTES >> 20)]
    TooLong { command: String },
}

/// Expands a typed line. A line is a call only if its first word is `/name` without a second slash. Every other line is
/// plain text, for example a line that starts with a space or with `//`.
pub fn expand(items: &Items<'_>, typed: &str) -> Expansion {
    let Some((name, arguments)) = parse_command(typed) else { return plain_text(typed) };
    let command = format!("/{name}");
    if let Some(skill) = name.strip_prefix(SKILL_PREFIX) {
        return expand_skill(items, &command, skill, arguments);
    }
    // A built-in command takes precedence over a template with its name, even if the caller has no built-in commands.
    let is_hidden = BUILT_IN_COMMANDS.contains(&name);
    let id = ItemId::parse(&name.replace(':', "/")).ok();
    let id = id.filter(|id| !is_hidden && items.exists(ItemKind::Prompt, id));
    match id {
        Some(id) => expand_template(items, &command, id, arguments),
        // No front end has a command with an upper-case letter, so the word is a name or a path.
        None if name.contains(|c: char| c.is_ascii_uppercase()) => plain_text(typed),
        None => unknown_command(items, command),
    }
}

/// Splits a typed command into the name after the slash and the text of the arguments. `None` for a text that is not a
/// command.
fn parse_command(typed: &str) -> Option<(&str, &str)> {
    let rest = typed.strip_prefix('/')?;
    let (name, arguments) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let starts = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    let is_name = starts && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, ':' | '_' | '-'));
    is_name.then_some((name, arguments))
}

fn expand_skill(items: &Items<'_>, command: &str, name: &str, arguments: &str) -> Expansion {
    let Some(id) = ItemId::parse(name).ok().filter(|id| items.exists(ItemKind::Skill, id)) else {
        return unknown_command(items, command.to_owned());
    };
    let Some(skill) = items.skill(&id) else {
        return refuse_expansion(ExpansionProblem::Unreadable { kind: ItemKind::Skill, id });
    };
    let (mut text, _) = skill.element();
    let item = ExpandedItem { kind: ItemKind::Skill, id, sha256: skill.sha256.clone(), range: 0..text.len() };
    let arguments = arguments.trim();
    if !arguments.is_empty() {
        text.push_str("\n\n");
        text.push_str(arguments);
    }
    Expansion { text: Some(text), expanded: vec![item], problems: Vec::new() }
}

fn expand_template(items: &Items<'_>, command: &str, id: ItemId, arguments: &str) -> Expansion {
    let Some(template) = items.prompt_template(&id) else {
        return refuse_expansion(ExpansionProblem::Unreadable { kind: ItemKind::Prompt, id });
    };
    let arguments = split_arguments(arguments);
    let filled = fill(&template.body.node, &arguments);
    let Some(text) = filled.text else {
        return refuse_expansion(ExpansionProblem::TooLong { command: command.to_owned() });
    };
    let missing = filled.missing.into_iter();
    let missing = missing.map(|number| ExpansionProblem::MissingArgument { command: command.to_owned(), number });
    let unused = filled.unused.into_iter().filter_map(|number| {
        let argument = number.checked_sub(1).and_then(|at| arguments.get(at))?.clone();
        Some(ExpansionProblem::UnusedArgument { command: command.to_owned(), number, argument })
    });
    let problems = missing.chain(unused).collect();
    let item = ExpandedItem { kind: ItemKind::Prompt, id, sha256: template.sha256.clone(), range: 0..text.len() };
    Expansion { text: Some(text), expanded: vec![item], problems }
}

fn plain_text(typed: &str) -> Expansion {
    Expansion { text: Some(typed.to_owned()), expanded: Vec::new(), problems: Vec::new() }
}

fn refuse_expansion(problem: ExpansionProblem) -> Expansion {
    Expansion { text: None, expanded: Vec::new(), problems: vec![problem] }
}

fn unknown_command(items: &Items<'_>, command: String) -> Expansion {
    let (prompts, skills) = (items.list(ItemKind::Prompt), items.list(ItemKind::Skill));
    let prompts = prompts.iter().map(|entry| format!("/{}", entry.id.as_str().replace('/', ":")));
    let skills = skills.iter().map(|entry| format!("/{SKILL_PREFIX}{}", entry.id));
    let commands = read_commands(items, &mut Diagnostics::new());
    let commands = commands.iter().map(|command| format!("/{}", command.hook.id.node));
    let built_in = BUILT_IN_COMMANDS.iter().map(|name| format!("/{name}"));
    let known: Vec<String> = prompts.chain(skills).chain(commands).chain(built_in).collect();
    let suggestion = closest(&command, known.iter().map(String::as_str));
    refuse_expansion(ExpansionProblem::Unknown { command, suggestion })
}

#[cfg(test)]
mod tests;
