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
use crate::threads::{ListedThread, Threads};

/// Number of events at the start of a transcript that describe the thread.
const HEAD_EVENTS: usize = 3;

/// A thread of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionThread {
    pub thread_id: String,
    pub origin: ThreadOrigin,
    pub status: Status,
    /// The thread whose conversation this thread continues; `None` for the first thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continues: Option<String>,
    /// The thread of the session that was current before this thread; `None` for the first thread. A fork continues an
    /// earlier thread, so that `continues` then names another thread than `after`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    pub model: String,
    /// Number of prompts in the conversation before this thread.
    #[serde(default)]
    pub prompts_before: u64,
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
    /// The end status of the prompt; `None` while the prompt runs.
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
        let mut thread = read_thread(&row.id, &events, row.status, after, &mut accepted);
        if thread.origin == ThreadOrigin::Handoff {
            join_handoff(&mut found, &mut thread);
        }
        found.push(thread);
    }
    Ok(found)
}

/// Returns the title of the session that a thread belongs to: the title that the user has set, else the first prompt;
/// `None` if there is neither.
///
/// # Errors
/// A transcript or the registry cannot be read.
pub fn session_title(threads: &Threads, thread: &ThreadId) -> Result<Option<String>, StoreError> {
    title_of(threads, session_rows(threads, thread)?)
}

/// Returns the title of a session, like [`session_title`]. `listed` contains the threads of the project, so that the
/// titles of several sessions need only one read of the registry.
///
/// # Errors
/// A transcript cannot be read.
pub fn listed_session_title(
    threads: &Threads,
    listed: &[ListedThread],
    thread: &ThreadId,
) -> Result<Option<String>, StoreError> {
    title_of(threads, rows_of_chain(listed.iter().map(|entry| entry.row.clone()), thread))
}

fn title_of(threads: &Threads, rows: Vec<ThreadRow>) -> Result<Option<String>, StoreError> {
    let (mut named, mut first) = (None, None);
    for row in rows {
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
    Ok(rows_of_chain(threads.list()?.into_iter().map(|entry| entry.row), thread))
}

/// Selects the rows of the continuation chain that contains `thread`, oldest first.
fn rows_of_chain(rows: impl Iterator<Item = ThreadRow>, thread: &ThreadId) -> Vec<ThreadRow> {
    let mut rows: BTreeMap<ThreadId, ThreadRow> = rows.map(|row| (row.id.clone(), row)).collect();
    let mut first = thread.clone();
    // The chain is no longer than the list, so the loop ends even if damaged rows form a cycle.
    for _ in 0..rows.len() {
        // A thread has at most one predecessor: the thread whose `continued_by` names it.
        let Some(before) = rows.values().find(|row| row.continued_by.as_ref() == Some(&first)) else { break };
        first = before.id.clone();
    }
    let (mut found, mut next) = (Vec::new(), rows.remove(&first));
    while let Some(row) = next {
        next = row.continued_by.as_ref().and_then(|id| rows.remove(id));
        found.push(row);
    }
    found
}

/// A session that can be opened again or is open.
#[derive(Debug, Clone)]
pub struct StoredSession {
    /// The first thread, whose id is also the id of the session.
    pub id: ThreadId,
    /// The last thread of the session.
    pub last: ListedThread,
}

/// Returns the sessions of a project, the most recently changed first. Lists only chats that are open or can be opened
/// again.
///
/// # Errors
/// The registry cannot be read.
pub fn stored_sessions(threads: &Threads) -> Result<Vec<StoredSession>, StoreError> {
    let entries = threads.list()?;
    let before: BTreeMap<ThreadId, ThreadId> =
        entries.iter().filter_map(|entry| Some((entry.row.continued_by.clone()?, entry.row.id.clone()))).collect();
    let first_of = |last: &ThreadId| {
        let mut first = last;
        // The chain is no longer than the list, even if damaged rows form a cycle.
        for _ in 0..entries.len() {
            let Some(earlier) = before.get(first) else { break };
            first = earlier;
        }
        first.clone()
    };
    let is_last = |entry: &&ListedThread| entry.row.parent.is_none() && entry.row.continued_by.is_none();
    let mut sessions: Vec<StoredSession> = entries
        .iter()
        .filter(is_last)
        .filter(|entry| is_open_chat(threads, entry))
        .map(|entry| StoredSession { id: first_of(&entry.row.id), last: entry.clone() })
        .collect();
    // Sessions that changed in the same millisecond are ordered by the id of their last thread.
    sessions.sort_by(|a, b| (b.last.row.updated_at, &b.last.row.id).cmp(&(a.last.row.updated_at, &a.last.row.id)));
    Ok(sessions)
}

/// Returns true if a thread belongs to a session: the thread is a chat and has no parent. The plan in the first events
/// shows that a thread is a chat. If these events cannot be read, returns true only for a closed session.
pub fn is_session_thread(threads: &Threads, entry: &ListedThread) -> bool {
    entry.row.parent.is_none() && (entry.row.status == Status::Idle || has_chat_plan(threads, entry))
}

/// Returns true if a thread is a chat that is open or can be opened again. Returns false for a running thread whose
/// first events cannot be read.
fn is_open_chat(threads: &Threads, entry: &ListedThread) -> bool {
    let status = entry.row.status;
    if status == Status::Idle || status.has_ended() {
        return status == Status::Idle;
    }
    has_chat_plan(threads, entry)
}

/// Returns true if the first events of a thread record the plan of a chat.
fn has_chat_plan(threads: &Threads, entry: &ListedThread) -> bool {
    let events = threads.head(&entry.row.id).unwrap_or_default();
    let is_chat = |body: &EventBody| if let EventBody::PlanBound(bound) = body { bound.chat } else { false };
    events.iter().take(HEAD_EVENTS).any(|event| is_chat(&event.body))
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
        prompts_before: head.continues.map_or(0, |continues| continues.prompts),
        prompts,
    }
}

/// Completes the entry of a thread that a handoff started. The thread continues all prompts of the thread before it,
/// which is the last element of `found`. If the handoff took place during a prompt, the prompt is listed only in the
/// thread in which it started. Its end status comes from the thread after the handoff.
fn join_handoff(found: &mut [SessionThread], after: &mut SessionThread) {
    let Some(before) = found.last() else { return };
    after.prompts_before = before.prompts.last().map_or(before.prompts_before, |last| last.number);
    let Some(ended) = after.prompts.first().filter(|first| first.number == after.prompts_before) else { return };
    let mut earlier = found.iter_mut().rev().flat_map(|thread| &mut thread.prompts);
    if let Some(started) = earlier.find(|prompt| prompt.number == ended.number) {
        started.status = ended.status;
        after.prompts.remove(0);
    }
}

/// Returns the prompts of the current conversation of a session, the last one first, each with its thread. `tree` is
/// the session's tree. Prompts of other branches are left out.
pub fn current_prompts(tree: &[SessionThread]) -> Vec<(&SessionThread, &SessionPrompt)> {
    let mut found = Vec::new();
    let (mut next, mut most) = (tree.last(), u64::MAX);
    // Each step leads to an earlier thread of the list, so the loop needs at most one step per thread.
    for _ in tree {
        let Some(thread) = next else { break };
        // Prompts up to `prompts_before` belong to the thread that this thread continues.
        let first = if thread.continues.is_some() { thread.prompts_before } else { 0 };
        let own = thread.prompts.iter().rev().filter(|prompt| prompt.number > first && prompt.number <= most);
        found.extend(own.map(|prompt| (thread, prompt)));
        most = most.min(thread.prompts_before);
        next = tree.iter().find(|one| Some(&one.thread_id) == thread.continues.as_ref());
    }
    found
}

/// Returns the last thread of each branch of the session except the current branch, oldest first.
pub fn other_branches(tree: &[SessionThread]) -> Vec<&SessionThread> {
    let current = current_prompts(tree);
    let is_current = |thread: &SessionThread, last: &SessionPrompt| {
        current.iter().any(|(of, one)| of.thread_id == thread.thread_id && one.number == last.number)
    };
    let is_continued = |thread: &SessionThread, last: &SessionPrompt| {
        tree.iter().any(|one| {
            one.continues.as_ref() == Some(&thread.thread_id)
                && one.prompts_before >= last.number
                && (!one.prompts.is_empty() || one.origin == ThreadOrigin::Handoff)
        })
    };
    tree.iter()
        .filter(|thread| {
            let last = thread.prompts.last();
            last.is_some_and(|last| !is_current(thread, last) && !is_continued(thread, last))
        })
        .collect()
}

/// Sets the text, the images and the bounds of a prompt to those of the message that the user typed. `sent` is the text
/// that the model got. The first prompt of a thread starts with layers, so the typed message is the last message in
/// `accepted` with which `sent` ends. If there is no such message, the text of the prompt is `sent`.
fn set_text(prompt: &mut SessionPrompt, sent: &str, accepted: &[AcceptedInput]) {
    let typed = accepted.iter().rev().find(|input| !input.handled && sent.ends_with(&input.text));
    prompt.text = typed.map_or_else(|| sent.to_owned(), |input| input.raw.clone());
    prompt.images = typed.map(|input| input.images.clone()).unwrap_or_default();
    prompt.bounds = typed.map(|input| input.bounds.clone()).unwrap_or_default();
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_chain_are_listed_once_also_if_they_form_a_circle() {
        let id = |name: &str| ThreadId::parse(&format!("{name}-1739820456")).unwrap();
        let row = |name: &str, next: Option<&str>| {
            let mut row = ThreadRow::new(id(name), "chat", 0);
            row.continued_by = next.map(id);
            row
        };
        let listed = |rows: Vec<ThreadRow>, thread: &str| -> Vec<ThreadId> {
            rows_of_chain(rows.into_iter(), &id(thread)).into_iter().map(|row| row.id).collect()
        };
        let chain = vec![row("a", Some("b")), row("b", Some("c")), row("c", None), row("d", None)];
        assert_eq!(listed(chain, "b"), [id("a"), id("b"), id("c")]);
        let mut circle = listed(vec![row("a", Some("b")), row("b", Some("c")), row("c", Some("a"))], "b");
        circle.sort();
        assert_eq!(circle, [id("a"), id("b"), id("c")]);
        assert_eq!(listed(vec![row("a", Some("a"))], "a"), [id("a")]);
    }
}
