//! The tree of a session: its threads, their prompts, and the prompts at which threads branch off.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::event::{
    AcceptedInput, Event, EventBody, MessageSource, PromptBounds, PromptStatus, ThreadHead, ThreadOrigin,
};
use crate::image::ImageRef;
use crate::message::{Message, text_of};
use crate::store::{StoreError, ThreadRow};
use crate::thread::Status;
use crate::thread_id::ThreadId;
use crate::threads::Threads;

/// A thread of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionThread {
    pub thread_id: String,
    pub origin: ThreadOrigin,
    pub status: Status,
    /// The thread whose conversation this one continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continues: Option<String>,
    /// The previous thread of the session. A fork may continue an earlier thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    pub model: String,
    pub prompts: Vec<SessionPrompt>,
}

/// A prompt of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionPrompt {
    /// Number of the prompt in the session, from 1. Prompts of different branches can have the same number.
    pub number: u64,
    /// The text that the user typed.
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageRef>,
    #[serde(default, skip_serializing_if = "PromptBounds::is_empty")]
    pub bounds: PromptBounds,
    /// `None` while the prompt runs.
    pub status: Option<PromptStatus>,
}

/// Returns the threads of the session that a thread belongs to, oldest first.
///
/// # Errors
/// A transcript or the registry cannot be read.
pub fn session_tree(threads: &Threads, thread: &ThreadId) -> Result<Vec<SessionThread>, StoreError> {
    let mut found: Vec<SessionThread> = Vec::new();
    // A message can be accepted in one thread and sent in the next.
    let mut accepted = Vec::new();
    for row in session_rows(threads, thread)? {
        let events = threads.transcript(&row.id)?;
        let after = found.last().map(|before| before.thread_id.clone());
        found.push(read_thread(&row.id, &events, row.status, after, &mut accepted));
    }
    Ok(found)
}

/// Returns the title of the session that a thread belongs to: the title that the user has set, else the first prompt;
/// `None` if there is neither.
///
/// # Errors
/// A transcript or the registry cannot be read.
pub fn session_title(threads: &Threads, thread: &ThreadId) -> Result<Option<String>, StoreError> {
    let (mut named, mut first) = (None, None);
    for row in session_rows(threads, thread)? {
        for event in threads.transcript(&row.id)? {
            if let EventBody::Named(set) = event.body {
                named = Some(set.name);
            } else if let EventBody::UserInput(input) = event.body {
                first.get_or_insert(input.raw);
            }
        }
    }
    Ok(named.or(first))
}

/// Returns the registry rows of the session that a thread belongs to, oldest first.
///
/// # Errors
/// The registry cannot be read.
pub fn session_rows(threads: &Threads, thread: &ThreadId) -> Result<Vec<ThreadRow>, StoreError> {
    let mut rows: BTreeMap<ThreadId, ThreadRow> =
        threads.list()?.into_iter().map(|entry| (entry.row.id.clone(), entry.row)).collect();
    let mut first = thread.clone();
    // A thread has one predecessor, whose row names it.
    while let Some(before) = rows.values().find(|row| row.continued_by.as_ref() == Some(&first)) {
        if before.id == first {
            break;
        }
        first = before.id.clone();
    }
    let (mut found, mut next) = (Vec::new(), rows.remove(&first));
    while let Some(row) = next {
        next = row.continued_by.as_ref().and_then(|id| rows.remove(id));
        found.push(row);
    }
    Ok(found)
}

fn read_thread(
    id: &ThreadId,
    events: &[Event],
    status: Status,
    after: Option<String>,
    accepted: &mut Vec<AcceptedInput>,
) -> SessionThread {
    let head = ThreadHead::of(events);
    let mut prompts: Vec<SessionPrompt> = Vec::new();
    let mut model = String::new();
    for event in events {
        if let EventBody::PromptStarted(started) = &event.body {
            prompts.push(SessionPrompt {
                number: started.prompt,
                text: String::new(),
                images: Vec::new(),
                bounds: PromptBounds::default(),
                status: None,
            });
        } else if let EventBody::AttemptIntended(intended) = &event.body {
            model.clone_from(&intended.model);
        } else if let EventBody::UserInput(input) = &event.body {
            accepted.push((**input).clone());
        }
        let Some(prompt) = prompts.last_mut() else { continue };
        if let EventBody::CognitionIn(input) = &event.body
            && let (MessageSource::Prompt, Message::User { content }) = (input.source, &input.message)
        {
            set_text(prompt, &text_of(content), accepted);
        } else if let EventBody::PromptEnded(ended) = &event.body {
            prompt.status = Some(ended.status);
            // The message of a prompt that ended before its first request was not sent.
            if let Some(unsent) = ended.unsent.first().filter(|_| prompt.text.is_empty()) {
                set_text(prompt, unsent, accepted);
            }
        }
    }
    SessionThread {
        thread_id: id.to_string(),
        origin: head.opened.map_or(ThreadOrigin::Chat, |opened| opened.origin),
        status,
        continues: head.continues.map(|continues| continues.thread.clone()),
        after,
        model,
        prompts,
    }
}

/// Sets the text of a prompt to the text that the user typed. In the first message of a thread, layers precede that
/// text.
fn set_text(prompt: &mut SessionPrompt, sent: &str, accepted: &[AcceptedInput]) {
    let typed = accepted.iter().rev().find(|input| !input.handled && sent.ends_with(&input.text));
    prompt.text = typed.map_or_else(|| sent.to_owned(), |input| input.raw.clone());
    prompt.images = typed.map(|input| input.images.clone()).unwrap_or_default();
    prompt.bounds = typed.map(|input| input.bounds.clone()).unwrap_or_default();
}
