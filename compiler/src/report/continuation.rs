//! The state of each part of the first request after a handoff (kept, restored or lost), and the reason for it.
//!
//! A handoff sends the system prompt again. The first message is kept only while it is among the recent messages, so
//! its parts count as lost unless a `thread_continued` hook injects them again.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hook::{HookPoint, PlanVerdict};
use crate::plan::Plan;
use crate::plan::prompt::Layer;

/// A part of the first request in a continuation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContinuationItem {
    /// Id of the part: of a knowledge item, of a directive (its body), or of a hook that executes an item.
    pub id: String,
    /// The state of the item after a handoff.
    pub fate: ContinuationFate,
    /// The hook that restores the item, or may restore it; missing if no hook does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<String>,
}

/// The state of an item after a handoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ContinuationFate {
    /// Part of the system prompt, which is sent again.
    Survives,
    /// A `thread_continued` hook injects the item again.
    Restored,
    /// A hook sends the item again if its condition holds: a `thread_continued` hook, or the `build_system_prompt` hook
    /// that added the item.
    MayBeRestored,
    /// Nothing injects the item again.
    Lost,
}

impl Plan {
    /// Returns each part of the first request with its state in a continuation, in the order of sending.
    pub(crate) fn continuation_items(&self) -> Vec<ContinuationItem> {
        // If a hook always replaces the system prompt before the model is called, no layer of the system prompt is sent
        // again.
        let is_replaced = self.hooks.iter().any(|hook| {
            hook.event == HookPoint::BeforeAgentStart
                && hook.verdict == PlanVerdict::Fires
                && hook.action.replaces_system_prompt()
        });
        let sent = self.prompt.system.iter().filter(|_| !is_replaced);
        let system = sent.map(|layer| match &layer.hook {
            Some(hook) if layer.depends => item(layer, ContinuationFate::MayBeRestored, Some(hook.clone())),
            Some(_) | None => item(layer, ContinuationFate::Survives, None),
        });
        system.chain(self.prompt.first_message.iter().map(|layer| self.message_item(layer))).collect()
    }

    fn message_item(&self, layer: &Layer) -> ContinuationItem {
        let again = || self.prompt.continued.iter().filter(|one| one.id == layer.id);
        match again().find(|one| !one.depends).or_else(|| again().next()) {
            None => item(layer, ContinuationFate::Lost, None),
            Some(one) if one.depends => item(layer, ContinuationFate::MayBeRestored, one.hook.clone()),
            Some(one) => item(layer, ContinuationFate::Restored, one.hook.clone()),
        }
    }
}

fn item(layer: &Layer, fate: ContinuationFate, hook: Option<String>) -> ContinuationItem {
    ContinuationItem { id: layer.id.clone(), fate, hook }
}

impl fmt::Display for ContinuationItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hook = self.hook.as_deref().unwrap_or_default();
        match self.fate {
            ContinuationFate::Survives => f.write_str("sent again by a continuation"),
            ContinuationFate::Restored => write!(f, "restored in a continuation by the hook `{hook}`"),
            ContinuationFate::MayBeRestored => {
                write!(f, "restored in a continuation by the hook `{hook}` if it fires")
            }
            ContinuationFate::Lost => f.write_str("lost in a continuation"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use rye_grammar::ItemId;

    use crate::compile::tests::world::{minimal_world, with_directives};
    use crate::compile::{CompileRequest, compile};

    #[test]
    fn items_survive_are_restored_or_are_lost() {
        let inside = "<metadata><permissions/><context><system>s</system><before>k</before><after>l</after></context></metadata>";
        let hook = |id: &str, item: &str, event: &str, when: &str| {
            format!(
                "  - {{ id: {id}, event: {event}, {when}action: {{ primary: fetch, item_type: knowledge, item_id: {item} }} }}\n"
            )
        };
        let hooks = hook("first", "m", "thread_started", "")
            + &hook("again_l", "l", "thread_continued", "")
            + &hook("again_m", "m", "thread_continued", "condition: 'depth > 0', ");
        let mut world = with_directives(minimal_world(), &[("leaf", "", inside, "Do it.")]);
        for id in ["s", "k", "l", "m"] {
            world = world.project(&format!(".ai/knowledge/{id}.md"), "Some knowledge.");
        }
        let world = world.project(".ai/config/agent/hooks.yaml", format!("hooks:\n{hooks}"));
        let compiled = compile(&world, &CompileRequest::new(ItemId::parse("leaf").unwrap())).value.unwrap();
        let items = compiled.plan.continuation_items();
        let mut lines: Vec<String> = items.iter().map(|item| format!("{} {item}", item.id)).collect();
        lines.sort();
        assert_eq!(
            lines,
            [
                "k lost in a continuation",
                "l restored in a continuation by the hook `again_l`",
                "leaf lost in a continuation",
                "m restored in a continuation by the hook `again_m` if it fires",
                "s sent again by a continuation",
            ]
        );
    }
}
