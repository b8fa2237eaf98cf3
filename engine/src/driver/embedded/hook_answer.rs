//! Shortens the texts that answers of hooks add to the conversation. Their maximum size is the maximum size of a tool
//! result.

use rye_compiler::hook::{HookAction, HookPoint};
use rye_compiler::semantics::value::inline_text;
use serde_json::Value;

use super::EmbeddedDriver;
use crate::error::DriveError;
use crate::event::{ContextOperation, HookOutcome};
use crate::message::Message;
use crate::tool::ToolOutcome;

impl EmbeddedDriver {
    /// Shortens each text of an answer that is longer than a tool result may be. The whole text is stored, and the
    /// shortened text states how to fetch the rest. Returns the hashes of the objects with the whole texts.
    pub(super) async fn bound_answer(
        &self,
        point: HookPoint,
        answer: &mut HookOutcome,
    ) -> Result<Vec<String>, DriveError> {
        let mut objects = Vec::new();
        match answer {
            HookOutcome::Modify { content: Some(content), .. } => {
                let mut text = inline_text(content).into_owned();
                if text.len() > self.plan.settings.values().max_result_bytes {
                    self.bound_text(&mut text, &mut objects).await?;
                    *content = Value::String(text);
                }
            }
            HookOutcome::Block { reason: text } | HookOutcome::FollowUp { content: text } => {
                self.bound_text(text, &mut objects).await?;
            }
            // The answer of a command is JSON, whose text goes to the user.
            HookOutcome::Collected { .. } if point == HookPoint::Command => {}
            HookOutcome::Collected { texts, .. } => {
                for (id, text) in texts {
                    // Fetched knowledge is a part of the prompt, as knowledge in the context of a directive is.
                    let hook = self.plan.hooks.iter().find(|hook| hook.event == point && hook.id == *id);
                    if !hook.is_some_and(|hook| matches!(hook.action, HookAction::Fetch { .. })) {
                        self.bound_text(text, &mut objects).await?;
                    }
                }
            }
            HookOutcome::Prepared { messages, .. } => {
                for message in messages {
                    if let Message::Custom { content, .. } = message {
                        self.bound_text(content, &mut objects).await?;
                    }
                }
            }
            HookOutcome::Context { operations } => {
                for operation in operations {
                    if let ContextOperation::InjectBefore { content } | ContextOperation::InjectAfter { content } =
                        operation
                    {
                        self.bound_text(content, &mut objects).await?;
                    }
                }
            }
            HookOutcome::None
            | HookOutcome::Transformed { .. }
            | HookOutcome::Handled { .. }
            | HookOutcome::Modify { content: None, .. }
            | HookOutcome::Retry { .. }
            | HookOutcome::Continue
            | HookOutcome::Terminate { .. }
            | HookOutcome::Escalate
            | HookOutcome::Raise { .. }
            | HookOutcome::Handoff
            | HookOutcome::Compact
            | HookOutcome::Failed { .. } => {}
        }
        Ok(objects)
    }

    async fn bound_text(&self, text: &mut String, objects: &mut Vec<String>) -> Result<(), DriveError> {
        if text.len() > self.plan.settings.values().max_result_bytes {
            let whole = Value::String(std::mem::take(text));
            let guarded = self.guarded(ToolOutcome::ok(whole)).await?;
            *text = guarded.content;
            objects.extend(guarded.object);
        }
        Ok(())
    }
}
