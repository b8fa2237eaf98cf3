//! Stored sessions of a project: lists them, reads the conversation of a session, and deletes a session.

use std::collections::BTreeSet;

use agent_client_protocol::v1::schema::{ListSessionsResponse, SessionId, SessionInfo};
use rye_engine::event::{Event, EventBody, ThreadHead};
use rye_engine::session_tree::{StoredSession, is_session_thread, session_title, stored_sessions};
use rye_engine::store::StoreError;
use rye_engine::store::prune::prune;
use rye_engine::store::registry::Liveness;
use rye_engine::thread_id::ThreadId;
use rye_engine::threads::{ListedThread, Threads};

use crate::CommandError;
use crate::command::threads::prune::group_related;
use crate::present::{format_date, truncate_line};
use crate::thread_reader::ThreadReader;
use crate::workspace::Spaces;

/// Maximum number of sessions in a response.
const PAGE_SIZE: usize = 50;
/// Maximum length of a title, in characters.
const MAX_TITLE_CHARS: usize = 80;

/// Returns one page of the sessions of a project, the most recently changed first. A cursor is the id of the last
/// session of the previous page, so that new sessions do not move the start of the next page.
pub fn list_sessions(spaces: &Spaces, cursor: Option<&str>) -> Result<ListSessionsResponse, CommandError> {
    let reader = ThreadReader::open(&spaces.project)?;
    let sessions = stored_sessions(&reader)?;
    let first = match cursor {
        Some(cursor) => {
            let at = sessions.iter().position(|session| session.id.as_str() == cursor);
            let unknown = || CommandError::usage(format!("unknown cursor `{}`", cursor.escape_debug()));
            at.ok_or_else(unknown)? + 1
        }
        None => 0,
    };
    let page: Vec<&StoredSession> = sessions.iter().skip(first).take(PAGE_SIZE).collect();
    let last = page.last().filter(|_| sessions.len() > first + PAGE_SIZE).map(|session| session.id.to_string());
    let info = |session: &&StoredSession| {
        // A session with a damaged transcript is listed without a title. The damage is reported when the session is
        // opened.
        let title = session_title(&reader, &session.last.row.id).ok().flatten();
        SessionInfo::new(SessionId::new(session.id.as_str()), spaces.project.clone())
            .title(title.map(|title| truncate_line(&title, MAX_TITLE_CHARS)))
            .updated_at(format_date(session.last.row.updated_at))
    };
    Ok(ListSessionsResponse::new(page.iter().map(info).collect()).next_cursor(last))
}

/// Deletes the session `id` from the project that has it. Does nothing if none of `projects` has a thread with this id.
///
/// # Errors
/// The thread is not a session, several projects have a session with this id, the session is open in a process, or a
/// store cannot be read or written.
pub fn delete_session(projects: &[Spaces], id: &str) -> Result<(), CommandError> {
    let Ok(thread) = ThreadId::parse(id) else { return Ok(()) };
    let (mut holders, mut is_known) = (Vec::new(), false);
    for spaces in projects {
        let reader = ThreadReader::open(&spaces.project)?;
        let (entries, _) = reader.list_readable()?;
        if let Some(entry) = entries.iter().find(|entry| entry.row.id == thread) {
            is_known = true;
            if is_session_thread(&reader, entry) {
                holders.push(spaces);
            }
        }
    }
    match holders.as_slice() {
        [] if is_known => Err(CommandError::usage(format!("unknown session `{thread}`"))
            .with_help("the thread is not a session of a chat; `rye threads prune` removes threads of runs")),
        [] => Ok(()),
        [spaces] => delete_session_of(spaces, &thread),
        [..] => {
            let folders: Vec<String> = holders.iter().map(|spaces| spaces.project.display().to_string()).collect();
            Err(CommandError::usage(format!("several projects have a session `{thread}`: {}", folders.join(", ")))
                .with_help("delete the session with a client that has opened only one of these projects"))
        }
    }
}

/// Removes a session of a project with its threads and their children.
fn delete_session_of(spaces: &Spaces, thread: &ThreadId) -> Result<(), CommandError> {
    let reader = ThreadReader::open(&spaces.project)?;
    let (entries, _) = reader.list_readable()?;
    let mut families = group_related(entries).into_iter();
    let Some(family) = families.find(|family| family.iter().any(|entry| entry.row.id == *thread)) else {
        return Ok(());
    };
    let is_live = |entry: &&ListedThread| entry.liveness == Liveness::Alive;
    if let Some(live) = family.iter().find(is_live) {
        let failure = CommandError::usage(format!("the thread `{}` of the session is still open", live.row.id));
        return Err(failure.with_help("close the session first"));
    }
    let ids: Vec<ThreadId> = family.into_iter().map(|entry| entry.row.id).collect();
    prune(&reader.shared_disk(), &ids)?;
    Ok(())
}

/// Returns the events of the conversation that ends with the thread `last`, oldest first. The conversation consists of
/// `last` and the threads that it continues, one after another. Of a continued thread, only the events before the
/// continuation are included.
pub fn conversation_events(threads: &Threads, last: &ThreadId) -> Result<Vec<Event>, StoreError> {
    let mut found: Vec<Event> = Vec::new();
    let (mut next, mut seen) = (Some((last.clone(), u64::MAX)), BTreeSet::new());
    while let Some((thread, through)) = next.take() {
        if !seen.insert(thread.clone()) {
            break;
        }
        let events = threads.transcript(&thread)?;
        let continues = ThreadHead::of(&events).continues;
        // Messages that waited in the earlier thread were accepted there, but are sent in this thread.
        let mut waited = Vec::new();
        if let Some(link) = continues.filter(|link| !link.queue.is_empty()) {
            let before = ThreadId::parse(link.after.as_ref().unwrap_or(&link.thread));
            let accepted = before.map_or_else(|_| Ok(Vec::new()), |before| threads.transcript(&before))?;
            waited.extend(accepted.into_iter().filter(|event| {
                let EventBody::UserInput(input) = &event.body else { return false };
                link.queue.iter().any(|message| message.id == input.id)
            }));
        }
        next = continues.and_then(|link| Some((ThreadId::parse(&link.thread).ok()?, link.at_seq)));
        let own = events.into_iter().filter(|event| event.seq <= through);
        found.splice(..0, waited.into_iter().chain(own));
    }
    Ok(found)
}
