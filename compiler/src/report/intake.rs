//! The intake of a chat: what happens to a typed message before the model gets it, stage by stage. The stages are
//! `command`, `input`, `skill`, `template` and `queue`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::compile::Compilation;
use crate::hook::{HookPoint, PlanVerdict, PlannedHook};
use crate::item::{Items, Skill};
use crate::plan::source::SourceReport;
use crate::plan::{LayerKind, Plan, PlanMode, Segment, SourcePlace};
use crate::semantics::capability::CapabilitySet;
use crate::skill_list::{list_entry, ungranted_tools};
use crate::world::{ItemKind, World};

/// The stages of the intake in their order, as a heading.
pub(crate) const STAGES: &str = "command → input → skill → template → queue";

/// A stage of the intake of a chat. A message that no command and no hook handles goes to the queue after the last
/// stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IntakeStage {
    /// Commands of `agent/chat`: the message does not go to the model.
    Command,
    /// `input` hooks, in evaluation order.
    Input,
    /// Calls of skills: `/skill:name`.
    Skill,
    /// Calls of prompt templates: `/name`.
    Template,
}

impl IntakeStage {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Input => "input",
            Self::Skill => "skill",
            Self::Template => "template",
        }
    }
}

/// A command, hook, skill or prompt template of the intake of a chat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IntakeEntry {
    pub stage: IntakeStage,
    /// The text that calls the entry, such as `/deploy` or `/skill:tidy`; the id of an `input` hook.
    pub name: String,
    /// Tokens that a call without arguments sends to the model; null for commands and hooks.
    pub tokens: Option<u64>,
    /// Tokens of the entry in the list of skills of the system prompt; null if it is not listed.
    pub listed_tokens: Option<u64>,
    /// The item that a command runs, the verdict of a hook, the tools of a skill that no grant allows, or the arguments
    /// that a prompt template expects.
    pub text: String,
    pub source: Option<SourceReport>,
}

impl IntakeEntry {
    /// Describes the entry in one line, without its name and source.
    pub fn describe(&self) -> String {
        let tokens = |count: u64| if count == 1 { "1 token".to_owned() } else { format!("{count} tokens") };
        let called = self.tokens.map(|count| format!("{} if called", tokens(count)));
        let listed = self.listed_tokens.map(|count| format!("{} in the list of skills", tokens(count)));
        let text = Some(self.text.clone()).filter(|text| !text.is_empty());
        called.into_iter().chain(listed).chain(text).collect::<Vec<_>>().join(", ")
    }
}

/// Returns the entries of the intake of a chat, in the order of the stages. Empty for a run.
pub fn collect_intake(world: &dyn World, compilation: &Compilation) -> Vec<IntakeEntry> {
    let plan = &compilation.plan;
    if plan.mode != PlanMode::Chat {
        return Vec::new();
    }
    let mut entries = Vec::new();
    for (hook, trace) in compilation.plan.hooks.iter().zip(&compilation.hooks) {
        entries.extend(hook_entry(hook, &trace.because, trace.place.as_ref()));
    }
    let items = Items::new(world);
    let mut skills = items.list(ItemKind::Skill).to_vec();
    skills.dedup_by(|one, other| one.id == other.id);
    entries.extend(skills.iter().filter_map(|entry| items.skill(&entry.id)).map(|skill| skill_entry(plan, &skill)));
    let mut templates = items.list(ItemKind::Prompt).to_vec();
    templates.dedup_by(|one, other| one.id == other.id);
    entries.extend(templates.iter().filter_map(|entry| items.prompt_template(&entry.id)).map(|template| IntakeEntry {
        stage: IntakeStage::Template,
        name: format!("/{}", template.command()),
        tokens: Some(plan.model.counted_by.count(&template.body.node)),
        listed_tokens: None,
        text: template.argument_hint.clone().unwrap_or_default(),
        source: Some(start_of(template.file.space.display(&template.file.path))),
    }));
    // The sort is stable, so the hooks stay in evaluation order.
    entries.sort_by_key(|entry| entry.stage);
    entries
}

/// Returns the entry of a skill of a chat; `None` if the chat has no skill with this name.
pub(crate) fn find_skill(world: &dyn World, compilation: &Compilation, name: &str) -> Option<IntakeEntry> {
    let id = rye_grammar::ItemId::parse(name).ok()?;
    let skill = Items::new(world).skill(&id)?;
    (compilation.plan.mode == PlanMode::Chat).then(|| skill_entry(&compilation.plan, &skill))
}

fn hook_entry(hook: &PlannedHook, because: &str, place: Option<&SourcePlace>) -> Option<IntakeEntry> {
    let is_command = hook.event == HookPoint::Command;
    if !is_command && hook.event != HookPoint::Input {
        return None;
    }
    let item = hook.action.item().map(|(_, id)| format!("runs `{id}`"));
    let source = place.map(SourceReport::from);
    if is_command {
        let (stage, name) = (IntakeStage::Command, format!("/{}", hook.id));
        let text = item.unwrap_or_default();
        return Some(IntakeEntry { stage, name, tokens: None, listed_tokens: None, text, source });
    }
    let verdict = match &hook.verdict {
        PlanVerdict::Fires => "fires".to_owned(),
        PlanVerdict::Depends { .. } => "depends".to_owned(),
        PlanVerdict::Never { .. } => format!("never: {because}"),
        PlanVerdict::Removed { .. } => format!("removed: {because}"),
    };
    let text = [Some(verdict), item].into_iter().flatten().collect::<Vec<_>>().join(", ");
    let (stage, name) = (IntakeStage::Input, hook.id.clone());
    Some(IntakeEntry { stage, name, tokens: None, listed_tokens: None, text, source })
}

fn skill_entry(plan: &Plan, skill: &Skill) -> IntakeEntry {
    let (element, _) = skill.element();
    let entry = list_entry(skill);
    let is_listed = plan.prompt.system.iter().filter(|layer| layer.kind == LayerKind::Skills).any(|layer| {
        layer.segments.iter().any(|segment| match segment {
            Segment::Text { text } => text.contains(&entry),
            Segment::Pending { .. } => false,
        })
    });
    let granted = CapabilitySet::new(plan.capabilities.grants.iter().map(|grant| grant.pattern.clone()));
    let ungranted = ungranted_tools(skill, &granted);
    let ungranted = (!ungranted.is_empty()).then(|| format!("asks for {}: not granted", ungranted.join(", ")));
    let unlisted = (!is_listed).then(|| "not in the list of skills".to_owned());
    let text = unlisted.into_iter().chain(ungranted).collect::<Vec<_>>().join(", ");
    IntakeEntry {
        stage: IntakeStage::Skill,
        name: format!("/skill:{}", skill.file.id),
        tokens: Some(plan.model.counted_by.count(&element)),
        listed_tokens: is_listed.then(|| plan.model.counted_by.count(&entry)),
        text,
        source: Some(start_of(skill.location())),
    }
}

/// Returns the start of a file as a source location.
fn start_of(file: String) -> SourceReport {
    SourceReport { file, line: 1, column: 1 }
}
