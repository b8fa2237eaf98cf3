//! `skill::*`: skills. A violation of the specification is an error in a skill of `.ai/skills`. In a skill of another
//! client, a violation is a warning, and the skill is loaded.

use rye_grammar::Span;
use thiserror::Error;

use super::{Label, Problem, Severity, new_label, quote_list};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SkillError {
    /// A skill whose name violates a rule. `reason` is the message, without its period. `expected` is the name of the
    /// skill's folder; `None` if the name of the folder is not valid either. `is_own` is true for a skill of
    /// `.ai/skills`.
    #[error("{reason}")]
    Name { reason: String, expected: Option<String>, is_own: bool, span: Span },
    #[error("the description of the skill `{id}` has {length} characters, but at most {most} are allowed")]
    Description { id: String, length: usize, most: usize, is_own: bool, span: Span },
    #[error("the skill `{id}` has no description, so it is not loaded")]
    NoDescription { id: String, is_own: bool, span: Span },
    /// A skill that the list of skills omits, because the list with this skill would exceed `budget`. `tokens` is the
    /// size of the entry of this skill, and `listed` the size of all entries in the list. All sizes are in tokens.
    #[error("the skill `{id}` is not listed: its {tokens} tokens exceed the budget of the list")]
    Dropped { id: String, tokens: u64, listed: u64, budget: u64, span: Span },
    /// A skill whose `allowed-tools` lists tools that no directive grants. `tools` are these entries. `misspelt` is an
    /// entry that names no item, and the id of a tool with a similar name.
    #[error("the skill `{id}` asks for {}, which {} not granted", quote_list(tools), if tools.len() == 1 { "is" } else { "are" })]
    WantsMore { id: String, tools: Vec<String>, misspelt: Option<(String, String)>, span: Span },
}

impl Problem for SkillError {
    fn code(&self) -> &'static str {
        match self {
            Self::Name { .. } => "skill::name",
            Self::Description { .. } => "skill::description",
            Self::NoDescription { .. } => "skill::no-description",
            Self::Dropped { .. } => "skill::dropped",
            Self::WantsMore { .. } => "skill::wants-more",
        }
    }

    fn severity(&self) -> Severity {
        match self {
            Self::Name { is_own, .. } | Self::Description { is_own, .. } | Self::NoDescription { is_own, .. } => {
                if *is_own {
                    Severity::Error
                } else {
                    Severity::Warning
                }
            }
            Self::Dropped { .. } => Severity::Warning,
            Self::WantsMore { .. } => Severity::Advice,
        }
    }

    fn help(&self) -> Option<String> {
        Some(match self {
            Self::Name { expected: Some(folder), .. } => format!("write the name of the folder, `name: {folder}`"),
            Self::Name { expected: None, .. } => {
                "rename the folder too: at most 64 characters, each `a` to `z`, `0` to `9` or a single hyphen".into()
            }
            Self::Description { .. } => {
                "shorten the description: details belong in the body, which is sent when the skill is used".into()
            }
            Self::NoDescription { .. } => {
                "add `description: …` between two lines of `---`: when to use the skill, and for what".into()
            }
            Self::WantsMore { misspelt: Some((written, meant)), .. } => {
                format!("no tool is called `{written}`: did you mean `{meant}`?")
            }
            Self::WantsMore { misspelt: None, .. } => {
                "`allowed-tools` grants nothing: grant the tools in the `<permissions>` of the directive".into()
            }
            Self::Dropped { listed, budget, .. } => format!(
                "the other skills take {listed} of {budget} tokens: raise `skills.max_tokens` in `agent/chat.yaml`, shorten descriptions, or set `disable-model-invocation: true` in skills that only you call"
            ),
        })
    }

    fn labels(&self) -> Vec<Label> {
        match self {
            Self::Name { span, expected, .. } => {
                let text =
                    expected.as_ref().map_or("no valid name".to_owned(), |folder| format!("expected `{folder}`"));
                vec![new_label(*span, text)]
            }
            Self::Description { span, .. } => vec![new_label(*span, "too long")],
            Self::NoDescription { span, .. } => vec![new_label(*span, "no description")],
            Self::Dropped { span, .. } => vec![new_label(*span, "left out of the system prompt")],
            Self::WantsMore { span, .. } => vec![new_label(*span, "grants nothing")],
        }
    }
}
