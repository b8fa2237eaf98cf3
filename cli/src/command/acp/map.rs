//! Events of a session as updates of the Agent Client Protocol.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use agent_client_protocol::v1::schema::{
    ClientSessionCapabilities, CompactionStatus, CompactionUpdate, Content, ContentBlock, ContentChunk, Cost,
    CurrentModeUpdate, Diff, Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus, SessionInfoUpdate, SessionUpdate,
    StopReason, TextContent, ToolCall, ToolCallContent, ToolCallLocation, ToolCallStatus, ToolCallUpdate,
    ToolCallUpdateFields, ToolKind, UsageUpdate,
};
use rye_compiler::semantics::money::Nanos;
use rye_engine::event::{
    CognitionOut, ControlMessage, EventBody, FileChanged, PromptEnded, PromptStatus, ToolCallResult,
};
use rye_engine::exchange::Delta;
use rye_engine::message::{self, ContentBlock as ReplyBlock};
use rye_engine::store::{ObjectId, Objects};
use serde_json::Value;

use crate::present::event::{result_reason, shown_messages};

/// Maximum length of a result in an update, in characters. The transcript has the whole result.
const MAX_RESULT_CHARS: usize = 20_000;

/// The key of a thread's state under which the plan of the agent is stored. Clients show this plan. The model sets the
/// value with the tool `rye/agent/threads/state`.
const PLAN_KEY: &str = "plan";

/// Error code of a prompt whose model refused to answer.
const REFUSED_CODE: &str = "refused";

/// Error code of a prompt whose last reply reached the output limit.
const TRUNCATED_CODE: &str = "output_truncated";

/// The text for a client that does not show compactions.
const COMPACTED_NOTE: &str = "The model now reads a summary in place of the earlier conversation.\n";

/// Maximum length of a file's text before or after a change, in bytes. A change with a longer text is not sent.
const MAX_DIFF_BYTES: usize = 256 * 1024;

/// Converts the events of one session to updates of the Agent Client Protocol.
#[derive(Debug, Default)]
pub struct UpdateMapper {
    /// Text of the current reply that was already sent in pieces.
    streamed: String,
    /// True if the current model call writes a summary of the conversation, so that its text is not part of a reply.
    is_compacting: bool,
    /// Size of the context window of the session's model, in tokens.
    context_window: u64,
    /// Cost of the session, in nano-dollars.
    session_cost: u64,
    /// Arguments of the calls that have no result yet, as JSON texts, by the id of the call.
    open_calls: BTreeMap<String, String>,
    /// Changes of files by the calls that have no result yet, by the id of the call.
    changes: BTreeMap<String, Vec<FileChanged>>,
    /// The folder of the project, and the store of the texts of changed files. If `None`, the updates do not include
    /// changed files.
    files: Option<(PathBuf, Objects)>,
    /// True if the client has announced that it shows compactions.
    has_compactions: bool,
}

impl UpdateMapper {
    pub fn new(context_window: u64) -> Self {
        Self { context_window, ..Self::default() }
    }

    /// Makes the updates include changed files. `project` is the folder to which the paths of the files are relative;
    /// `objects` stores the texts of the files.
    #[must_use]
    pub fn with_files(self, project: PathBuf, objects: Objects) -> Self {
        Self { files: Some((project, objects)), ..self }
    }

    /// Limits the updates to those that the client can show, according to its capabilities.
    #[must_use]
    pub fn for_client(self, client: &ClientSessionCapabilities) -> Self {
        Self { has_compactions: client.compaction.is_some(), ..self }
    }

    /// Converts a piece of a reply to an update; `None` for a piece of a tool call or of a summary.
    pub fn delta(&mut self, delta: &Delta) -> Option<SessionUpdate> {
        match delta {
            // The pieces of a summary are not sent, because the event `Compacted` contains the whole summary.
            Delta::Text(_) | Delta::Thinking(_) if self.is_compacting => None,
            Delta::Text(text) => {
                self.streamed.push_str(text);
                Some(agent_text(text))
            }
            Delta::Thinking(text) => Some(SessionUpdate::AgentThoughtChunk(ContentChunk::new(text_block(text)))),
            Delta::ToolCallStarted { .. } | Delta::ToolCallInput { .. } => None,
        }
    }

    /// Converts an event of the session's thread. Messages of the user are included only if `is_replay` is true.
    pub fn event(&mut self, body: &EventBody, is_replay: bool) -> Vec<SessionUpdate> {
        if let EventBody::UserInput(input) = body {
            let typed = || SessionUpdate::UserMessageChunk(ContentChunk::new(text_block(&input.raw)));
            return is_replay.then(typed).into_iter().chain(input.reply.as_deref().map(agent_text)).collect();
        }
        // A message of a hook is sent as a user message, because the model reads it as one.
        if let EventBody::HookPoint(run) = body {
            let chunk = |text| SessionUpdate::UserMessageChunk(ContentChunk::new(text_block(text)));
            return shown_messages(run).map(chunk).collect();
        }
        if let EventBody::CognitionOut(reply) = body {
            return self.reply(reply);
        }
        if let EventBody::PromptEnded(ended) = body
            && is_replay
            && !ended.partial_reply.is_empty()
        {
            return vec![agent_text(&ended.partial_reply)];
        }
        if let EventBody::AttemptFailed(_) = body {
            self.streamed.clear();
        }
        if let EventBody::AttemptIntended(attempt) = body {
            // If the previous model call was interrupted, no reply has cleared `streamed`.
            self.streamed.clear();
            self.is_compacting = attempt.compacts;
        }
        if let EventBody::ToolStarted(started) = body {
            let fields = ToolCallUpdateFields::new().status(ToolCallStatus::InProgress);
            return vec![SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(started.call_id.clone(), fields))];
        }
        if let EventBody::FileChanged(change) = body {
            self.changes.entry(change.call_id.clone()).or_default().push(change.clone());
        }
        if let EventBody::ToolCallResult(result) = body {
            return self.result(result);
        }
        if let EventBody::StateSet(set) = body
            && set.key == PLAN_KEY
        {
            return vec![SessionUpdate::Plan(Plan::new(plan_entries(&set.value)))];
        }
        if let EventBody::Named(named) = body {
            return vec![SessionUpdate::SessionInfoUpdate(SessionInfoUpdate::new().title(named.name.clone()))];
        }
        if let EventBody::Mail(received) = body
            && let ControlMessage::Mode { mode } = &received.message
        {
            return vec![SessionUpdate::CurrentModeUpdate(CurrentModeUpdate::new(mode.as_str()))];
        }
        if let EventBody::Compacted(compacted) = body {
            if !self.has_compactions {
                return vec![agent_text(COMPACTED_NOTE)];
            }
            let id = format!("compaction-{}", compacted.through);
            let summary = vec![text_block(&compacted.summary)];
            let update = CompactionUpdate::new(id, CompactionStatus::Completed).summary(summary);
            return vec![SessionUpdate::CompactionUpdate(update)];
        }
        if let EventBody::Settled(settled) = body {
            self.session_cost = self.session_cost.saturating_add(settled.amount);
            let used = settled.usage.whole_input().saturating_add(settled.usage.output);
            let dollars = Nanos::from_u64(self.session_cost).to_string().parse().unwrap_or_default();
            let update = UsageUpdate::new(used, self.context_window).cost(Cost::new(dollars, "USD"));
            return vec![SessionUpdate::UsageUpdate(update)];
        }
        Vec::new()
    }

    /// Returns the id of the open call that an approval question is about; `None` if there is no such call. A question
    /// ends with ` with INPUT`, so the call is found by its input.
    pub fn call_of(&self, question: &str) -> Option<String> {
        let is_question_about = |input: &str| question.ends_with(&format!(" with {input}"));
        self.open_calls.iter().find(|(_, input)| is_question_about(input)).map(|(id, _)| id.clone())
    }

    fn reply(&mut self, reply: &CognitionOut) -> Vec<SessionUpdate> {
        let streamed = std::mem::take(&mut self.streamed);
        let mut updates = Vec::new();
        let text: String = reply
            .content
            .iter()
            .filter_map(|block| if let ReplyBlock::Text { text } = block { Some(text.as_str()) } else { None })
            .collect();
        // If a streamed piece was dropped, the streamed text is no prefix of the reply, and the whole reply is sent.
        let rest = text.strip_prefix(&streamed).unwrap_or(&text);
        updates.extend((!rest.is_empty()).then(|| agent_text(rest)));
        for block in &reply.content {
            if let ReplyBlock::ToolCall(call) = block {
                self.open_calls.insert(call.id.clone(), call.input.to_string());
                updates.push(SessionUpdate::ToolCall(tool_call(
                    call,
                    self.files.as_ref().map(|(project, _)| project.as_path()),
                )));
            }
        }
        updates
    }

    /// Returns the ACP diff of a changed text file. `None` if a text is too long, not UTF-8 or not stored, if the file
    /// is removed, or if `files` is `None`.
    fn diff(&self, change: &FileChanged) -> Option<Diff> {
        let (project, objects) = self.files.as_ref()?;
        let text = |id: &str| {
            let bytes = objects.get(&ObjectId::parse(id).ok()?).ok()?;
            String::from_utf8(bytes).ok().filter(|text| text.len() <= MAX_DIFF_BYTES)
        };
        let old = match &change.before {
            Some(id) => Some(text(id)?),
            None => None,
        };
        Some(Diff::new(project.join(&change.path), text(change.after.as_ref()?)?).old_text(old))
    }

    fn result(&mut self, result: &ToolCallResult) -> Vec<SessionUpdate> {
        let changes = self.changes.remove(&result.call_id).unwrap_or_default();
        // A call that was parsed from the text of a reply was not announced to the client, so its result is not sent.
        if self.open_calls.remove(&result.call_id).is_none() {
            return Vec::new();
        }
        let failed = result.is_error || result_reason(result).is_some();
        let status = if failed { ToolCallStatus::Failed } else { ToolCallStatus::Completed };
        let text = result_reason(result).unwrap_or_else(|| result.content.clone());
        let text: String = text.chars().take(MAX_RESULT_CHARS).collect();
        let mut content = vec![ToolCallContent::Content(Content::new(text_block(&text)))];
        // `FileChanged` is recorded before the write, so a failed call may not have written the file.
        let written = changes.iter().filter(|_| !failed);
        content.extend(written.filter_map(|change| self.diff(change)).map(ToolCallContent::Diff));
        let fields = ToolCallUpdateFields::new().status(status).content(content);
        vec![SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(result.call_id.clone(), fields))]
    }
}

pub fn text_block(text: &str) -> ContentBlock {
    ContentBlock::Text(TextContent::new(text))
}

/// Returns the ACP update that shows a text of the agent.
pub fn agent_text(text: &str) -> SessionUpdate {
    SessionUpdate::AgentMessageChunk(ContentChunk::new(text_block(text)))
}

/// Converts a call to an ACP tool call with the status `Pending`. Locations are paths in the folder `project`, because
/// the protocol requires absolute paths.
fn tool_call(call: &message::ToolCall, project: Option<&Path>) -> ToolCall {
    let paths = ["path", "file", "file_path", "to", "from"];
    let locations = paths
        .iter()
        .filter_map(|name| Some(project?.join(call.input.get(*name)?.as_str()?)))
        .map(ToolCallLocation::new)
        .collect();
    let shown = ["command", "path", "file", "query", "url", "item_id"];
    let subject = shown.iter().find_map(|name| call.input.get(*name)?.as_str());
    let title = subject.map_or_else(|| call.name.clone(), |subject| format!("{}: {subject}", call.name));
    ToolCall::new(call.id.clone(), crate::present::truncate_line(&title, 200))
        .kind(kind_of(&call.name, &call.input))
        .status(ToolCallStatus::Pending)
        .locations(locations)
        .raw_input(call.input.clone())
}

/// Returns the ACP kind of a call, derived from the last word of the tool's name and from the parameters of the call
/// (`input`).
fn kind_of(name: &str, input: &Value) -> ToolKind {
    let word = name.rsplit(['_', '.', '/', '-']).next().unwrap_or_default();
    match word {
        "write" | "edit" | "patch" => ToolKind::Edit,
        "delete" | "remove" => ToolKind::Delete,
        "move" | "rename" => ToolKind::Move,
        "grep" | "glob" | "search" | "find" => ToolKind::Search,
        "fetch" if input.get("url").is_some() => ToolKind::Fetch,
        "read" | "ls" | "list" | "fetch" => ToolKind::Read,
        "bash" | "execute" | "run" | "python" => ToolKind::Execute,
        _ => ToolKind::Other,
    }
}

/// Converts the value of the key `plan` to ACP plan entries. The value is a list of texts, or of mappings with
/// `content`, `status` and `priority`.
fn plan_entries(value: &Value) -> Vec<PlanEntry> {
    let entry = |value: &Value| {
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let content = value.as_str().or_else(|| text("content"))?;
        let status = match text("status") {
            Some("in_progress") => PlanEntryStatus::InProgress,
            Some("completed") => PlanEntryStatus::Completed,
            _ => PlanEntryStatus::Pending,
        };
        let priority = match text("priority") {
            Some("high") => PlanEntryPriority::High,
            Some("low") => PlanEntryPriority::Low,
            _ => PlanEntryPriority::Medium,
        };
        Some(PlanEntry::new(content, priority, status))
    };
    value.as_array().into_iter().flatten().filter_map(entry).collect()
}

/// Returns the reason why a prompt ended; an error message if the prompt failed.
pub fn stop_reason(ended: &PromptEnded) -> Result<StopReason, String> {
    match ended.status {
        PromptStatus::Done => Ok(StopReason::EndTurn),
        PromptStatus::Interrupted => Ok(StopReason::Cancelled),
        PromptStatus::Limit => Ok(StopReason::MaxTurnRequests),
        PromptStatus::Error if ended.code.as_deref() == Some(TRUNCATED_CODE) => Ok(StopReason::MaxTokens),
        PromptStatus::Error if ended.code.as_deref() == Some(REFUSED_CODE) => Ok(StopReason::Refusal),
        PromptStatus::Error => {
            let code = ended.code.as_deref().unwrap_or("error");
            Err(format!("{code}: {}", ended.message.as_deref().unwrap_or("the prompt failed")))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use rye_engine::exchange::{StopReason, Usage};
    use serde_json::json;

    use super::*;

    #[test]
    fn text_that_was_streamed_is_not_repeated() {
        let mut mapper = UpdateMapper::new(100);
        assert!(mapper.delta(&Delta::Text("Hel".into())).is_some());
        let reply = EventBody::CognitionOut(Box::new(CognitionOut {
            turn: 1,
            attempt: 0,
            content: vec![ReplyBlock::Text { text: "Hello".into() }],
            usage: Usage::default(),
            uncounted: None,
            stop: StopReason::EndTurn,
            model: None,
            unread: Vec::new(),
        }));
        let updates = serde_json::to_value(mapper.event(&reply, false)).unwrap();
        assert_eq!(updates[0]["content"]["text"], "lo", "{updates}");
    }

    #[test]
    fn stop_reason_follows_the_status_and_the_code_of_a_prompt() {
        let ended = |status, code: Option<&str>| PromptEnded {
            prompt: 1,
            status,
            code: code.map(str::to_owned),
            message: code.map(|code| format!("about {code}")),
            cost: rye_engine::thread::Cost::default(),
            unsent: Vec::new(),
            partial_reply: String::new(),
        };
        for (status, code, expected) in [
            (PromptStatus::Done, None, Ok(super::StopReason::EndTurn)),
            (PromptStatus::Interrupted, None, Ok(super::StopReason::Cancelled)),
            (PromptStatus::Limit, Some("turns_exceeded"), Ok(super::StopReason::MaxTurnRequests)),
            (PromptStatus::Limit, Some("spend_exceeded"), Ok(super::StopReason::MaxTurnRequests)),
            (PromptStatus::Limit, Some("duration_exceeded"), Ok(super::StopReason::MaxTurnRequests)),
            (PromptStatus::Error, Some("output_truncated"), Ok(super::StopReason::MaxTokens)),
            (PromptStatus::Error, Some("refused"), Ok(super::StopReason::Refusal)),
            (PromptStatus::Error, Some("rate_limited"), Err("rate_limited: about rate_limited".to_owned())),
            (PromptStatus::Error, None, Err("error: the prompt failed".to_owned())),
        ] {
            assert_eq!(stop_reason(&ended(status, code)), expected, "{status:?} {code:?}");
        }
    }

    #[test]
    fn kinds_follow_the_names_of_tools() {
        let kind = |name: &str| kind_of(name, &json!({}));
        assert_eq!(kind("rye_file_system_read"), ToolKind::Read);
        assert_eq!(kind("rye_bash_bash"), ToolKind::Execute);
        assert_eq!(kind("rye_file_system_edit"), ToolKind::Edit);
        assert_eq!(kind("unknown"), ToolKind::Other);
    }
}
