//! The event vocabulary (`engine.md` 4): one closed, versioned table. A transcript is a list of events and nothing
//! else. Resume, handoff, viewers, replay and tests read the transcript. An event is a fact, never a command.

mod approval;
mod body;
mod control_message;
mod ended;
mod input;
mod prompt;
mod settings;
mod table;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::image::ImageRef;

pub use approval::{Approval, ApprovalAsked, ApprovalGiven, ImpliedRaise};
pub use body::*;
pub use control_message::{ControlMessage, ReceivedMessage};
pub use ended::Ended;
pub use input::{
    AcceptedInput, CommandAction, CommandRan, Delivery, InputExpansion, InputSource, QueuedMessage, RetractedInput,
    SessionNamed, ShellRan, UserInput,
};
pub(crate) use prompt::INTERRUPTED_REPLY;
pub use prompt::{
    ChatMode, ContextInjected, ContinuedPrompt, LeftOutMessages, PromptBounds, PromptEnded, PromptStarted, PromptStatus,
};
pub use settings::CommandSettings;
pub(crate) use table::event_row;
pub use table::{Criticality, Durability, EVENT_TABLE, EventKind, EventReader, EventRow};

/// An event of a transcript. The store writes each event as one line of a hash chain.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Position in the transcript, from 0, without gaps.
    pub seq: u64,
    /// Milliseconds since 1970, by the clock of the process that wrote the event.
    pub ts: i64,
    pub body: EventBody,
}

/// An event's kind and fields, serialized with the kind's name under `type`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EventBody {
    Opened(Box<Opened>),
    PlanBound(PlanBound),
    Continues(Continues),
    SystemPrompt(SystemPrompt),
    /// Old transcripts contain the event `artifact_stored`, which is no longer defined. The event is read as a
    /// `ContextInjected` that changes nothing.
    #[serde(alias = "artifact_stored")]
    ContextInjected(ContextInjected),
    CognitionIn(CognitionIn),
    AttemptIntended(AttemptIntended),
    Reserved(Reserved),
    CognitionOut(Box<CognitionOut>),
    AttemptFailed(Box<AttemptFailed>),
    Settled(Settled),
    HookPoint(Box<HookPointRun>),
    ToolStarted(ToolStarted),
    FileChanged(FileChanged),
    ToolCallResult(Box<ToolCallResult>),
    ChildIntended(ChildIntended),
    ChildSpawned(ChildSpawned),
    ChildEnded(ChildEnded),
    Mail(ReceivedMessage),
    Limit(LimitHit),
    ApprovalAsked(ApprovalAsked),
    ApprovalGiven(ApprovalGiven),
    StateSet(StateSet),
    Compacted(Compacted),
    Recovered(Recovered),
    Checkpoint(Checkpoint),
    UserInput(Box<AcceptedInput>),
    Retracted(RetractedInput),
    ShellRan(Box<ShellRan>),
    CommandRan(Box<CommandRan>),
    Named(SessionNamed),
    PromptStarted(PromptStarted),
    PromptEnded(Box<PromptEnded>),
    Ended(Arc<Ended>),
}

/// The start of a thread, from the first events of its transcript.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThreadHead<'e> {
    pub opened: Option<&'e Opened>,
    pub plan_id: Option<&'e str>,
    pub continues: Option<&'e Continues>,
}

impl<'e> ThreadHead<'e> {
    /// Reads the start of the thread, the plan id and the continued thread from the first three events of a transcript.
    /// Later events do not contain this data.
    pub fn of(events: &'e [Event]) -> Self {
        let mut head = Self::default();
        for event in events.iter().take(3) {
            if let EventBody::Opened(opened) = &event.body {
                head.opened = Some(opened);
            } else if let EventBody::PlanBound(bound) = &event.body {
                head.plan_id = Some(&bound.plan_id);
            } else if let EventBody::Continues(continues) = &event.body {
                head.continues = Some(continues);
            }
        }
        head
    }
}

fn image_objects(images: &[ImageRef]) -> Vec<&str> {
    images.iter().map(|image| image.sha256.as_str()).collect()
}

impl EventBody {
    pub fn kind(&self) -> EventKind {
        match self {
            Self::Opened(_) => EventKind::Opened,
            Self::PlanBound(_) => EventKind::PlanBound,
            Self::Continues(_) => EventKind::Continues,
            Self::SystemPrompt(_) => EventKind::SystemPrompt,
            Self::ContextInjected(_) => EventKind::ContextInjected,
            Self::CognitionIn(_) => EventKind::CognitionIn,
            Self::AttemptIntended(_) => EventKind::AttemptIntended,
            Self::Reserved(_) => EventKind::Reserved,
            Self::CognitionOut(_) => EventKind::CognitionOut,
            Self::AttemptFailed(_) => EventKind::AttemptFailed,
            Self::Settled(_) => EventKind::Settled,
            Self::HookPoint(_) => EventKind::HookPoint,
            Self::ToolStarted(_) => EventKind::ToolStarted,
            Self::FileChanged(_) => EventKind::FileChanged,
            Self::ToolCallResult(_) => EventKind::ToolCallResult,
            Self::ChildIntended(_) => EventKind::ChildIntended,
            Self::ChildSpawned(_) => EventKind::ChildSpawned,
            Self::ChildEnded(_) => EventKind::ChildEnded,
            Self::Mail(_) => EventKind::Mail,
            Self::Limit(_) => EventKind::Limit,
            Self::ApprovalAsked(_) => EventKind::ApprovalAsked,
            Self::ApprovalGiven(_) => EventKind::ApprovalGiven,
            Self::StateSet(_) => EventKind::StateSet,
            Self::Compacted(_) => EventKind::Compacted,
            Self::Recovered(_) => EventKind::Recovered,
            Self::Checkpoint(_) => EventKind::Checkpoint,
            Self::UserInput(_) => EventKind::UserInput,
            Self::Retracted(_) => EventKind::Retracted,
            Self::ShellRan(_) => EventKind::ShellRan,
            Self::CommandRan(_) => EventKind::CommandRan,
            Self::Named(_) => EventKind::Named,
            Self::PromptStarted(_) => EventKind::PromptStarted,
            Self::PromptEnded(_) => EventKind::PromptEnded,
            Self::Ended(_) => EventKind::Ended,
        }
    }

    /// Returns the objects that the event references. These objects must be retained as long as the transcript.
    pub fn objects(&self) -> Vec<&str> {
        if let Self::PlanBound(bound) = self {
            vec![&bound.plan_id]
        } else if let Self::ToolCallResult(result) = self {
            result.object.iter().map(String::as_str).collect()
        } else if let Self::FileChanged(change) = self {
            [&change.before, &change.after].into_iter().flatten().map(String::as_str).collect()
        } else if let Self::ShellRan(ran) = self {
            ran.object.iter().map(String::as_str).collect()
        } else if let Self::Opened(opened) = self {
            image_objects(&opened.images)
        } else if let Self::UserInput(input) = self {
            image_objects(&input.images)
        } else if let Self::Mail(ReceivedMessage { message: ControlMessage::Submit { input, .. }, .. }) = self {
            image_objects(&input.images)
        } else if let Self::HookPoint(run) = self {
            // If the intake of the message records a `UserInput`, this event contains the images too.
            let HookOutcome::Transformed { images, .. } = &run.answer else { return Vec::new() };
            image_objects(images.as_deref().unwrap_or_default())
        } else if let Self::Continues(continues) = self {
            continues.queue.iter().flat_map(|message| image_objects(&message.images)).collect()
        } else {
            Vec::new()
        }
    }

    /// Returns the data of this event if the event records that the child with the number `spawn` is to be created;
    /// `None` for any other event.
    pub fn child_intent(&self, spawn: u64) -> Option<&ChildIntended> {
        if let Self::ChildIntended(child) = self { Some(child).filter(|child| child.spawn == spawn) } else { None }
    }

    /// Returns the text of a shortened result, and the object that holds the whole result; `None` for any other event.
    pub(crate) fn shortened_result(&self) -> Option<(&str, &str)> {
        let Self::ToolCallResult(result) = self else { return None };
        Some((&result.content, result.object.as_deref()?))
    }

    /// Returns the name of the event for hooks, in JSON Lines and in lists of events: `thread_started`,
    /// `thread_completed`, `tool_call_result`…
    pub fn reader_name(&self) -> &'static str {
        if let Self::Ended(ended) = self { ended.reader_name() } else { event_row(self.kind()).reader_name }
    }
}
