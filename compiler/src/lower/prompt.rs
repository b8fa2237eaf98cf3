//! The layers of the prompt, their order and their text (`language.md`, Composition). `plan/prompt.rs` renders them,
//! for `plan` and `run` alike.

mod body;
mod fill;

use std::collections::BTreeSet;

use crate::compose::{Composed, ComposedHook, ContextItem};
use crate::context_files::{CONTEXT_PREFIX, appended_layers, context_layers, given_layer};
use crate::diagnostics::Diagnostics;
use crate::hook::{HookAction, HookCall, HookPoint, PlanVerdict, Position};
use crate::item::{Items, Knowledge, Skill};
use crate::plan::{
    AppendedText, Layer, LayerKind, Origin, OriginCause, Origins, Prompt, RuntimePlaceholder, Segment, SourcePlace,
    Tokenizer,
};
use crate::skill_list::{SkillAccess, SkillList};
use crate::world::{ItemKind, Space};

use super::facts::PlanTimeFacts;
use super::hooks;
pub(crate) use body::lower_body;
pub use fill::{MAX_VALUE_BYTES, ValueBudget};

/// A knowledge item that is not sent again because an earlier layer contains it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepeatedKnowledge {
    pub id: String,
    /// Id of the hook or directive that would have provided the item.
    pub by: String,
}

/// Returns the prompt of a directive. Knowledge that an earlier layer already contains is left out and added to
/// `repeats`. `body` is the layer of the directive's own body. `alone` contains the same text without the element that
/// encloses it in the prompt. `session` contains the layers at the end of the system prompt: tools, appended prompts,
/// context files and skills.
pub fn lower(
    frame: &PlanTimeFacts<'_>,
    body: Layer,
    alone: Vec<Segment>,
    budget: &mut ValueBudget,
    repeats: &mut Vec<RepeatedKnowledge>,
    session: Vec<Layer>,
) -> Prompt {
    let composed = frame.composed;
    let mut collect = LayerCollector { frame, seen: BTreeSet::new(), layers: Vec::new(), budget, repeats };
    collect.add_hooks(HookPoint::BuildSystemPrompt, Position::Before);
    collect.add_items(&composed.system, None);
    let suppressed = |layer: &Layer| composed.suppressions.iter().any(|one| one.id == layer.id);
    collect.layers.extend(session.into_iter().filter(|layer| !suppressed(layer)));
    collect.add_hooks(HookPoint::BuildSystemPrompt, Position::After);
    let system = std::mem::take(&mut collect.layers);
    let before_message = collect.seen.clone();

    collect.add_hooks(HookPoint::ThreadStarted, Position::Before);
    collect.add_items(&composed.before, Some(Position::Before));
    collect.layers.push(body);
    collect.add_items(&composed.after, Some(Position::After));
    collect.add_hooks(HookPoint::ThreadStarted, Position::After);
    let first_message = std::mem::take(&mut collect.layers);

    collect.seen = before_message;
    collect.add_hooks(HookPoint::ThreadContinued, Position::Before);
    collect.add_hooks(HookPoint::ThreadContinued, Position::After);
    Prompt { system, first_message, continued: collect.layers, body: alone }
}

/// Returns the layers of a chat's system prompt that follow the layer `tools`: appended system prompts, context files
/// and the list of skills. Records in `origins` where the context files and the list come from. `given` is the text
/// that the user appends with `--append-system`.
pub(crate) fn chat_layers(
    (composed, given): (&Composed, Option<&AppendedText>),
    items: &Items<'_>,
    tokenizer: Tokenizer,
    access: &SkillAccess,
    origins: &mut Origins,
    found: &mut Diagnostics,
) -> Vec<Layer> {
    let mut layers = appended_layers(items, found);
    if let Some(given) = given.map(given_layer) {
        origins.insert(format!("layer.{}", given.id), Origin { place: None, cause: OriginCause::GivenWithCall });
        layers.push(given);
    }
    let is_suppressed = |layer: &Layer| composed.suppressions.iter().any(|one| one.id == layer.id);
    let files = context_layers(items, &Space::ALL, tokenizer, found);
    for layer in files.iter().filter(|layer| !is_suppressed(layer)) {
        let file = layer.id.trim_start_matches(CONTEXT_PREFIX).to_owned();
        let place = Some(SourcePlace { file, line: 1, column: 1 });
        origins.insert(format!("layer.{}", layer.id), Origin { place, cause: OriginCause::ContextFile });
    }
    layers.extend(files);
    let suppressed = |id: &str| composed.suppressions.iter().any(|one| one.id.strip_prefix("skill/") == Some(id));
    let omits = |skill: &Skill| suppressed(skill.file.id.as_str()) || !access.allows(skill);
    let skills = SkillList::read(items, &Space::ALL, tokenizer, &omits);
    let list = skills_layer(&skills, matches!(access, SkillAccess::Fetch(_)));
    if let Some(layer) = list.as_ref().filter(|layer| !is_suppressed(layer)) {
        let cause = OriginCause::SkillList { count: skills.listed.len() };
        origins.insert(format!("layer.{}", layer.id), Origin { place: None, cause });
    }
    layers.extend(list);
    layers
}

/// Adds the placeholder for the first prompt of a chat, at the end of the first user message.
pub(crate) fn add_first_prompt(prompt: &mut Prompt) {
    prompt.first_message.push(first_prompt());
}

fn first_prompt() -> Layer {
    let pending = RuntimePlaceholder::Fact { path: "prompt".to_owned(), fallback: None };
    let why = "the first prompt of the session".to_owned();
    Layer::new("prompt", LayerKind::Prompt, vec![Segment::Pending { pending, why }])
}

/// Returns the layer that lists the skills; `None` if no skill is listed. The introduction of the list tells the model
/// to read a skill with `rye_fetch` if `fetches_skills` is true, else as a file.
fn skills_layer(skills: &SkillList, fetches_skills: bool) -> Option<Layer> {
    let segments = vec![Segment::Text { text: skills.text_for(fetches_skills) }];
    (!skills.text.is_empty()).then(|| Layer::new("skills", LayerKind::Skills, segments))
}

struct LayerCollector<'a, 'f> {
    frame: &'a PlanTimeFacts<'f>,
    /// Ids of knowledge that is sent in every run. The knowledge of a hook whose condition depends on the run is not
    /// included: the run removes the repeats of such knowledge.
    seen: BTreeSet<String>,
    layers: Vec<Layer>,
    budget: &'a mut ValueBudget,
    repeats: &'a mut Vec<RepeatedKnowledge>,
}

impl LayerCollector<'_, '_> {
    /// Adds a layer for each of these knowledge items of the chain, except items that an earlier layer contains.
    /// `position` is `None` in the system prompt. The text of an item is used verbatim: a `${…}` in the text is not a
    /// placeholder.
    fn add_items(&mut self, items: &[ContextItem], position: Option<Position>) {
        for item in items {
            let link = match &item.origin.by {
                crate::plan::OriginKind::Directive(id) => Some(id.clone()),
                crate::plan::OriginKind::Hook(_)
                | crate::plan::OriginKind::Config(_)
                | crate::plan::OriginKind::BuiltIn => None,
            };
            if !self.is_first(item.id.as_str(), link.as_ref().map_or("", |l| l.as_str()), false) {
                continue;
            }
            let tag = item.wrap.then(|| wrapping_tag(&item.knowledge));
            let filled = fill::verbatim_layer(&item.knowledge, tag.as_deref());
            self.layers.push(Layer {
                id: item.id.to_string(),
                kind: LayerKind::Knowledge,
                position,
                hook: None,
                depends: false,
                link,
                tag,
                escaped: filled.escaped,
                segments: filled.segments,
            });
        }
    }

    fn add_hooks(&mut self, point: HookPoint, position: Position) {
        let at = |hook: &&ComposedHook| hook.decl.event == point && hook.decl.position == position;
        for hook in self.frame.composed.hooks.iter().filter(at) {
            let depends = match hooks::explain_verdict(self.frame, hook).0 {
                PlanVerdict::Fires => false,
                PlanVerdict::Depends { .. } => true,
                PlanVerdict::Never { .. } | PlanVerdict::Removed { .. } => continue,
            };
            if let Some(layer) = self.hook_layer(hook, point, depends) {
                self.layers.push(layer);
            }
        }
    }

    fn hook_layer(&mut self, hook: &ComposedHook, point: HookPoint, depends: bool) -> Option<Layer> {
        let id = &hook.decl.id.node;
        let action = &hook.decl.action.as_ref()?.node;
        if let (HookAction::Fetch { item_type: ItemKind::Knowledge, .. }, Some(knowledge)) = (action, &hook.knowledge) {
            let item = knowledge.file.id.as_str();
            if !self.is_first(item, id, depends) {
                return None;
            }
            let tag = hook.decl.wrap.then(|| wrapping_tag(knowledge));
            let filled = fill::lower_knowledge(self.frame, point, knowledge, tag.as_deref(), self.budget);
            return Some(Layer {
                id: item.to_owned(),
                kind: LayerKind::Knowledge,
                position: Some(hook.decl.position),
                hook: Some(id.clone()),
                depends,
                link: None,
                tag,
                escaped: filled.escaped,
                segments: filled.segments,
            });
        }
        // The result of an executed item, and an item fetched by a templated id, are only known at run time.
        let (item_type, item_id) = match action.call() {
            Some(HookCall::Fetch { item_type, item_id } | HookCall::Execute { item_type, item_id, .. }) => {
                (item_type, item_id)
            }
            Some(HookCall::Sign { .. }) | None => return None,
        };
        let pending = Segment::Pending {
            pending: RuntimePlaceholder::Hook { id: id.clone() },
            why: format!("the result of the hook `{id}`"),
        };
        let tag = hook.decl.wrap.then(|| fill::to_tag_name(item_id.rsplit('/').next().unwrap_or(item_id)));
        let segments = fill::enclose(tag.as_deref(), item_id, item_type, vec![pending]);
        Some(Layer {
            id: id.clone(),
            kind: LayerKind::Answer,
            position: Some(hook.decl.position),
            hook: Some(id.clone()),
            depends,
            link: None,
            tag,
            escaped: 0,
            segments,
        })
    }

    /// Returns true if a layer with the item `id` must be added: no earlier layer contains this item in every run.
    /// Otherwise records that `by` repeats the item. `depends` is true if only some runs contain the layer that would
    /// be added.
    fn is_first(&mut self, id: &str, by: &str, depends: bool) -> bool {
        if self.seen.contains(id) {
            self.repeats.push(RepeatedKnowledge { id: id.to_owned(), by: by.to_owned() });
            return false;
        }
        if !depends {
            self.seen.insert(id.to_owned());
        }
        true
    }
}

/// Returns the tag that wraps a knowledge item: the declared name, else the last segment of the item's id. If the name
/// or segment is not a valid tag, returns the segment with its invalid characters replaced.
fn wrapping_tag(knowledge: &Knowledge) -> String {
    let name = knowledge.tag();
    if fill::is_tag_name(name) { name.to_owned() } else { fill::to_tag_name(knowledge.file.id.name()) }
}
