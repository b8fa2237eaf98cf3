//! The list of skills in the system prompt, within a token budget. A skill is listed whole or not at all, because a
//! truncated description could omit when to use the skill.

use crate::diagnostics::{Diagnostics, SkillError, known_tool};
use crate::item::skill::SKILL_TAG;
use crate::item::{Items, Skill};
use crate::plan::prompt::escape_closing_tags;
use crate::plan::{Grant, PaletteTool, Tokenizer};
use crate::primary::{ItemType, Primary, format_capability};
use crate::semantics::capability::CapabilitySet;
use crate::world::{ItemKind, Space};
use rye_grammar::Span;

/// Default of `skills.max_tokens` in `agent/chat.yaml`.
const DEFAULT_MAX_TOKENS: u64 = 2000;

/// The name of the element that encloses the list of skills in a prompt.
const LIST_TAG: &str = "skills";

const INTRODUCTION: &str =
    "Instructions for specific tasks. Before a task that a description fits, read the skill at its location.";

/// The introduction for a thread that may fetch skills.
const FETCH_INTRODUCTION: &str = "Instructions for specific tasks. Before a task that a description fits, read the \
    skill with rye_fetch: item_type skill, item_id its name, and path for a file that it names.";

/// The way in which a thread can read skills. A skill that it cannot read is not listed.
#[derive(Debug)]
pub(crate) enum SkillAccess {
    /// The thread reads skills with `rye_fetch`, and only the skills that these grants allow.
    Fetch(CapabilitySet),
    /// The thread reads the skills of the project, with a tool that reads files of the project.
    ProjectFiles,
    None,
}

/// Ids of the tools that read any file of a project.
const FILE_READERS: [&str; 2] = ["rye/file-system/read", "rye/bash/bash"];

impl SkillAccess {
    /// Returns the access of a thread with these grants and tools. `fetches_skills` is true if `rye_fetch` offers
    /// skills.
    pub fn of(grants: &[Grant], tools: &[PaletteTool], fetches_skills: bool) -> Self {
        let reads = |tool: &PaletteTool| tool.item_id.as_ref().is_some_and(|id| FILE_READERS.contains(&id.as_str()));
        if fetches_skills {
            Self::Fetch(CapabilitySet::new(grants.iter().map(|grant| grant.pattern.clone())))
        } else if tools.iter().any(reads) {
            Self::ProjectFiles
        } else {
            Self::None
        }
    }

    /// Returns true if the thread can read a skill.
    pub fn allows(&self, skill: &Skill) -> bool {
        match self {
            Self::Fetch(granted) => {
                let capability = format_capability(Primary::Fetch, ItemType::Skill, Some(&skill.file.id));
                granted.first_match(&capability).is_some()
            }
            Self::ProjectFiles => skill.file.space == Space::Project,
            Self::None => false,
        }
    }
}

/// The list of skills in a system prompt. The user can also call loaded skills that the list omits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SkillList {
    /// The text of the prompt layer that lists the skills; empty if no skill is listed.
    pub text: String,
    pub listed: Vec<ListedSkill>,
    /// The skills that are not listed, because the list would exceed the budget.
    pub dropped: Vec<ListedSkill>,
    /// Maximum tokens of all entries of the list together, without the introduction: `skills.max_tokens`.
    pub budget: u64,
}

/// A skill, with the tokens of its entry in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedSkill {
    pub id: String,
    pub space: Space,
    pub tokens: u64,
    /// An empty span at the start of the file of the skill.
    pub span: Span,
}

impl SkillList {
    /// Lists the skills of `spaces`, highest precedence first. A skill whose entry still fits into the token budget of
    /// the list is added to `listed`, any other to `dropped`. Hidden skills, and skills that `omits` selects, are in
    /// neither list.
    pub fn read(items: &Items<'_>, spaces: &[Space], tokenizer: Tokenizer, omits: &dyn Fn(&Skill) -> bool) -> Self {
        let budget = max_tokens(items);
        let mut list = Self { text: String::new(), listed: Vec::new(), dropped: Vec::new(), budget };
        let entries = items.list(ItemKind::Skill);
        let of_id = entries.chunk_by(|one, other| one.id == other.id).filter_map(<[_]>::first);
        let skills = of_id.filter(|entry| spaces.contains(&entry.space)).filter_map(|entry| items.skill(&entry.id));
        let mut skills: Vec<_> = skills.filter(|skill| !skill.is_hidden && !omits(skill)).collect();
        skills.sort_by(|one, other| (one.file.space, &one.file.id).cmp(&(other.file.space, &other.file.id)));
        let mut used = 0_u64;
        for skill in skills {
            let entry = list_entry(&skill);
            let tokens = tokenizer.count(&entry);
            let span = Span::new(skill.file.source, 0, 0);
            let one = ListedSkill { id: skill.file.id.to_string(), space: skill.file.space, tokens, span };
            if used.saturating_add(tokens) > budget {
                list.dropped.push(one);
                continue;
            }
            used = used.saturating_add(tokens);
            list.text.push_str(&entry);
            list.listed.push(one);
        }
        if !list.text.is_empty() {
            list.text = format!("<{LIST_TAG}>\n{INTRODUCTION}\n{}</{LIST_TAG}>", list.text);
        }
        list
    }

    /// Returns the text of the layer. If `fetches_skills` is true, the introduction tells the model to read skills with
    /// `rye_fetch`, else as files.
    pub(crate) fn text_for(&self, fetches_skills: bool) -> String {
        if fetches_skills { self.text.replacen(INTRODUCTION, FETCH_INTRODUCTION, 1) } else { self.text.clone() }
    }

    /// Reports each skill that is not listed because the list would exceed its token budget.
    pub(crate) fn report_dropped(&self, found: &mut Diagnostics) {
        let listed = self.listed.iter().map(|skill| skill.tokens).sum();
        found.extend(self.dropped.iter().map(|skill| SkillError::Dropped {
            id: skill.id.clone(),
            tokens: skill.tokens,
            listed,
            budget: self.budget,
            span: skill.span,
        }));
    }
}

/// Returns the entries of a skill's `allowed-tools` whose tool no pattern of `granted` allows. A skill itself grants
/// nothing.
pub(crate) fn ungranted_tools(skill: &Skill, granted: &CapabilitySet) -> Vec<String> {
    let is_granted = |entry: &str| {
        let name = entry.split_once('(').map_or(entry, |(name, _)| name);
        let id = known_tool(name).map_or_else(|| name.replace('/', "."), str::to_owned);
        granted.first_match(&format!("rye.execute.tool.{id}")).is_some()
    };
    let wanted = skill.wanted_tools.iter().flat_map(|wanted| &wanted.node);
    wanted.filter(|entry| !is_granted(entry)).cloned().collect()
}

/// Returns the entry of a skill, with a line break at the end.
pub(crate) fn list_entry(skill: &Skill) -> String {
    let (description, _) = escape_closing_tags(SKILL_TAG, skill.description.trim());
    let (description, _) = escape_closing_tags(LIST_TAG, &description);
    format!("{}\n{description}\n</{SKILL_TAG}>\n", skill.opening_tag())
}

fn max_tokens(items: &Items<'_>) -> u64 {
    let settings = items.config_by_name("agent/chat");
    let tokens = settings.as_ref().and_then(|file| file.get("skills")).and_then(|skills| skills.get("max_tokens"));
    tokens
        .and_then(|node| crate::item::data::read_count(&mut Diagnostics::new(), "max_tokens", node))
        .unwrap_or(DEFAULT_MAX_TOKENS)
}

#[cfg(test)]
mod tests;
