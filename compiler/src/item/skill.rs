//! A skill: a folder with a `SKILL.md`, by the Agent Skills specification. Its description is listed in the system
//! prompt, and its body is sent when the skill is called.

use std::collections::BTreeSet;

use rye_grammar::{Span, Spanned};

use super::FileRef;
use super::front_matter::{self, FrontMatter};
use crate::diagnostics::{Diagnostics, ItemError, SkillError};
use crate::plan::prompt::escape_closing_tags;

/// Keys that the front matter of a skill can have. `allowed-tools` grants nothing: `rye check` reports the tools in
/// `allowed-tools` that no directive grants.
const KEYS: [&str; 7] =
    ["name", "description", "license", "compatibility", "metadata", "allowed-tools", "disable-model-invocation"];

/// Maximum length of a name, in characters.
const MAX_NAME_LENGTH: usize = 64;

/// Maximum length of a description, in characters.
const MAX_DESCRIPTION_LENGTH: usize = 1024;

/// The tag that encloses a skill in a prompt.
pub(crate) const SKILL_TAG: &str = "skill";

#[derive(Debug, Clone)]
pub struct Skill {
    /// The `SKILL.md`. Its id is the name of the skill.
    pub file: FileRef,
    /// SHA-256 of the whole file, in lowercase hex.
    pub sha256: String,
    pub description: String,
    /// True if the model is not allowed to call the skill. Such a skill is not listed.
    pub is_hidden: bool,
    /// The entries of `allowed-tools`, such as `Bash(git:*)`; `None` if the key is missing.
    pub wanted_tools: Option<Spanned<Vec<String>>>,
    /// The text without front matter.
    pub body: Spanned<String>,
}

impl Skill {
    /// Returns the path of the `SKILL.md`, with its space if that is not the project.
    pub fn location(&self) -> String {
        self.file.space.display(&self.file.path)
    }

    /// Returns the opening tag: `<skill name="…" location="…">`.
    pub fn opening_tag(&self) -> String {
        // No escaping is needed: neither an id nor the path of a skill has characters that end an attribute.
        format!("<{SKILL_TAG} name=\"{}\" location=\"{}\">", self.file.id, self.location())
    }

    /// Returns the element that a call of the skill sends to the model, and the number of closing tags in the body that
    /// were escaped.
    pub fn element(&self) -> (String, u64) {
        let location = self.location();
        let folder = location.rsplit_once('/').map_or(location.as_str(), |(folder, _)| folder);
        let (body, escaped) = escape_closing_tags(SKILL_TAG, &self.body.node);
        let opening = self.opening_tag();
        (format!("{opening}\nReferences are relative to {folder}.\n\n{body}\n</{SKILL_TAG}>"), escaped)
    }
}

/// Reads a skill. `None` if the front matter cannot be parsed or has no description: without a description, a model
/// cannot know when to use the skill.
pub fn read(file: FileRef, sha256: String, text: &str, found: &mut Diagnostics) -> Option<Skill> {
    let front = FrontMatter::read(&file, text, &KEYS, found);
    if front.is_broken {
        return None;
    }
    let is_own = front_matter::is_own(&file);
    let name = front.string("name", found);
    let is_hidden = front.flag("disable-model-invocation", found);
    let description = front.string("description", found);
    let wanted = front.written("allowed-tools");
    let wanted_tools = wanted.map(|written| Spanned::new(split_tools(&written.node), written.span));
    let has_errors = front.has_errors;
    let body = front.body;
    let start = Span::new(file.source, 0, 0);
    let Some(description) = description else {
        // The front matter has a reported error that may be the reason for the missing description, so no second error
        // is reported.
        if has_errors {
            return None;
        }
        found.push(SkillError::NoDescription { id: file.id.to_string(), is_own, span: start });
        return None;
    };
    if !(has_errors && name.is_none()) {
        check_name(&file, name, is_own, found);
    }
    let length = description.node.chars().count();
    if length > MAX_DESCRIPTION_LENGTH {
        found.push(SkillError::Description {
            id: file.id.to_string(),
            length,
            most: MAX_DESCRIPTION_LENGTH,
            is_own,
            span: description.span,
        });
    }
    if body.node.trim().is_empty() {
        found.push(ItemError::NoText { what: "skill", id: file.id.to_string(), span: start });
    }
    Some(Skill { file, sha256, description: description.node, is_hidden, wanted_tools, body })
}

/// Splits the value of `allowed-tools` into its entries. Separators are spaces, commas, quotes and the brackets of a
/// list. A text in parentheses belongs to the tool before it: `Bash(git add:*)` is one entry. After a parenthesis that
/// is never closed, spaces do not end the entry.
fn split_tools(written: &str) -> Vec<String> {
    let (mut unclosed, mut closed) = (Vec::new(), BTreeSet::new());
    for (at, c) in written.char_indices() {
        match c {
            '(' => unclosed.push(at),
            ')' => closed.extend(unclosed.pop()),
            _ => {}
        }
    }
    let (mut depth, mut entries, mut entry) = (0_usize, Vec::new(), String::new());
    let mut is_unclosed = false;
    for (at, c) in written.char_indices() {
        match c {
            '(' if closed.contains(&at) => depth += 1,
            '(' => is_unclosed = true,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        let ends_entry = matches!(c, ',' | '[' | ']' | '"' | '\'') || (c.is_whitespace() && !is_unclosed);
        if depth == 0 && ends_entry {
            is_unclosed = false;
            entries.push(std::mem::take(&mut entry));
        } else {
            entry.push(c);
        }
    }
    entries.push(entry);
    entries.retain(|entry| !matches!(entry.as_str(), "" | "-"));
    entries
}

/// Checks that the name is valid and equal to the name of the folder. A fault is an error if `is_own` is true (a skill
/// of `.ai/skills`), else a warning.
fn check_name(file: &FileRef, name: Option<Spanned<String>>, is_own: bool, found: &mut Diagnostics) {
    let folder = file.id.as_str();
    let written = name.as_ref().map_or(folder, |name| name.node.as_str());
    let reason = match name_fault(written) {
        Some(reason) => format!("the name `{}` {reason}", super::shorten(written)),
        None if name.is_none() => format!("the skill `{folder}` declares no name"),
        None if written != folder => format!("the name `{written}` differs from the folder `{folder}`"),
        None => return,
    };
    let span = name.map_or(Span::new(file.source, 0, 0), |name| name.span);
    let expected = name_fault(folder).is_none().then(|| folder.to_owned());
    found.push(SkillError::Name { reason, expected, is_own, span });
}

/// Returns the rule that a name violates, as the end of the sentence "the name …"; `None` if the name is valid.
fn name_fault(name: &str) -> Option<String> {
    let length = name.chars().count();
    if length > MAX_NAME_LENGTH {
        return Some(format!("has {length} characters, but at most {MAX_NAME_LENGTH} are allowed"));
    }
    if !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
        return Some("has characters other than `a` to `z`, `0` to `9` and `-`".to_owned());
    }
    let is_loose = name.starts_with('-') || name.ends_with('-') || name.contains("--");
    is_loose.then(|| "starts or ends with a hyphen, or has two hyphens in a row".to_owned())
}

#[cfg(test)]
mod tests;
