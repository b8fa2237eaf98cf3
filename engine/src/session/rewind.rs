//! Rewind of files: restores the files that file tools changed since a prompt of a chat. A file is restored only if its
//! contents are unchanged since the last recorded write.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::event::{Event, EventBody, FileChanged, ThreadHead};
use crate::message::calls_in;
use crate::store::{ObjectId, Objects, StoreError};
use crate::thread_id::ThreadId;
use crate::threads::Threads;
use crate::tool::builtin::read_contents;
use crate::tool::confine::{FileAccessError, FileVersion, ProjectFiles, ResolvedKind};

/// Maximum number of threads that a rewind reads: the threads of the session, and the descendants that their prompts
/// started.
const MAX_THREADS: usize = 10_000;
/// Maximum number of calls that a rewind lists as not undone.
const MAX_LISTED_CALLS: usize = 100;
/// A capability pattern that covers every item. A rewind writes files with this pattern as its grant: the user restores
/// the files, so the grants of the threads must not bound the writes.
const EVERY_ITEM: &str = "rye.*";

/// The result of a rewind, or its preview: the files that file tools have changed since a prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRewind {
    /// The files, sorted by path.
    pub files: Vec<RewoundFile>,
    /// Calls and commands since the prompt that may also have changed files. A rewind does not undo these changes. If
    /// the children of the prompts are too many to be read, the first entry states their number.
    pub not_undone: Vec<String>,
}

/// A file that a file tool has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RewoundFile {
    pub path: String,
    pub state: RewindState,
    /// Hash of the object with the contents before the prompt; `None` if the file did not exist then.
    pub before: Option<String>,
    /// Hash of the object with the contents after the last recorded write; `None` if that write removed the file.
    pub after: Option<String>,
}

/// The recorded changes of a file since a prompt.
struct RecordedChanges {
    first: FileChanged,
    /// Hash of the object with the contents after the last recorded change; `None` if that change removed the file.
    after: Option<String>,
    /// Hash of the object with the contents before the last recorded change. The file still has these contents if a
    /// crash prevented the recorded write.
    last_before: Option<String>,
    /// True if an unrecorded change was made to the file between two recorded changes.
    has_gap: bool,
}

/// The state of a changed file, which decides how a rewind treats the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RewindState {
    /// The file is unchanged since the last recorded write, so the rewind can restore the contents from before the
    /// prompt.
    Restorable,
    /// The file did not exist before the prompt, and nothing changed it after the last recorded write, so the rewind
    /// can remove it.
    Removable,
    /// The file already has its contents from before the prompt, so the rewind does not change the file.
    Unchanged,
    /// An unrecorded change was made to the file since the prompt, so the rewind does not change the file.
    Changed,
    /// The old contents are not stored (for example, because they were too large), or the file cannot be read.
    Unavailable,
    /// The rewind has restored or removed the file.
    Restored,
}

/// Finds the files that file tools have changed since the start of the prompt with the number `prompt`. Reads `thread`,
/// the threads that it continues, and all descendants that were started since then. `None` if the conversation has no
/// such prompt.
///
/// # Errors
/// A transcript cannot be read.
pub fn plan_rewind(
    threads: &Threads,
    project: &Path,
    thread: &ThreadId,
    prompt: u64,
) -> Result<Option<FileRewind>, StoreError> {
    let Some((events, unread)) = events_since(threads, thread, prompt)? else { return Ok(None) };
    let mut not_undone: Vec<String> = Vec::new();
    let mut paths: BTreeMap<String, RecordedChanges> = BTreeMap::new();
    let mut calls: BTreeMap<&str, &serde_json::Value> = BTreeMap::new();
    for event in &events {
        if let EventBody::CognitionOut(reply) = &event.body {
            calls.extend(calls_in(&reply.content).map(|call| (call.id.as_str(), &call.input)));
        }
        if let EventBody::FileChanged(change) = &event.body {
            match paths.entry(change.path.clone()) {
                Entry::Vacant(entry) => {
                    let (after, last_before) = (change.after.clone(), change.before.clone());
                    entry.insert(RecordedChanges { first: change.clone(), after, last_before, has_gap: false });
                }
                Entry::Occupied(mut entry) => {
                    let known = entry.get_mut();
                    known.has_gap |= ![&known.after, &known.last_before].contains(&&change.before);
                    known.after.clone_from(&change.after);
                    known.last_before.clone_from(&change.before);
                }
            }
        } else if let EventBody::ToolStarted(started) = &event.body
            && runs_programs(&started.capability)
        {
            not_undone.push(describe_call(&started.name, calls.get(started.call_id.as_str()).copied()));
        } else if let EventBody::ShellRan(ran) = &event.body {
            not_undone.push(ran.command.clone());
        }
    }
    not_undone.truncate(MAX_LISTED_CALLS);
    if unread > 0 {
        not_undone.insert(0, format!("the changes of {unread} threads beyond the first {MAX_THREADS}"));
    }
    let files = open_project(project).map_err(|error| unreadable(project, &error))?;
    let of_path = |(path, changes): (String, RecordedChanges)| {
        let RecordedChanges { first, mut after, last_before, has_gap } = changes;
        let state_after = |after: &Option<String>| {
            state_of(&files, threads.objects(), &path, first.before.as_deref(), after.as_deref())
        };
        let mut state = state_after(&after);
        if state == RewindState::Changed {
            let without_last = state_after(&last_before);
            if without_last != RewindState::Changed {
                (state, after) = (without_last, last_before);
            }
        }
        let state = if has_gap && state != RewindState::Unchanged { RewindState::Changed } else { state };
        RewoundFile { path, state, before: first.before, after }
    };
    Ok(Some(FileRewind { files: paths.into_iter().map(of_path).collect(), not_undone }))
}

/// Describes a tool call that runs a program: the name of the tool, and the command or, without a command, all
/// arguments.
fn describe_call(name: &str, input: Option<&serde_json::Value>) -> String {
    let Some(input) = input else { return name.to_owned() };
    match input.get("command").and_then(serde_json::Value::as_str) {
        Some(command) => format!("{name}: {command}"),
        None => format!("{name} {input}"),
    }
}

/// Restores the contents that each file had before the prompt, and removes files that did not exist then. Leaves a file
/// unchanged if the file has changed since the last recorded write. Returns the files with their new states.
pub fn restore_files(objects: &Objects, project: &Path, rewind: FileRewind) -> Result<FileRewind, StoreError> {
    let files = open_project(project).map_err(|error| unreadable(project, &error))?;
    let restored = rewind.files.into_iter().map(|mut file| {
        if matches!(file.state, RewindState::Restorable | RewindState::Removable) {
            file.state = restore(&files, objects, &file).unwrap_or(RewindState::Unavailable);
        }
        file
    });
    Ok(FileRewind { files: restored.collect(), not_undone: rewind.not_undone })
}

fn restore(files: &ProjectFiles, objects: &Objects, file: &RewoundFile) -> Result<RewindState, FileAccessError> {
    // The file may have changed since the rewind was planned.
    let now = state_of(files, objects, &file.path, file.before.as_deref(), file.after.as_deref());
    if now != file.state {
        return Ok(now);
    }
    let place = files.locate(&file.path)?;
    let version = if let ResolvedKind::File { stat, .. } = &place.found { Some(FileVersion::of(stat)) } else { None };
    let Some(before) = &file.before else {
        files.remove(&place, version)?;
        return Ok(RewindState::Restored);
    };
    let Some(bytes) = ObjectId::parse(before).ok().and_then(|id| objects.get(&id).ok()) else {
        return Ok(RewindState::Unavailable);
    };
    files.replace(&place, &bytes, version)?;
    Ok(RewindState::Restored)
}

fn open_project(project: &Path) -> Result<ProjectFiles, FileAccessError> {
    ProjectFiles::open(project, vec![vec![EVERY_ITEM.to_owned()]])
}

fn unreadable(project: &Path, error: &FileAccessError) -> StoreError {
    StoreError::io("open", project)(std::io::Error::other(error.to_string()))
}

fn state_of(
    files: &ProjectFiles,
    objects: &Objects,
    path: &str,
    before: Option<&str>,
    after: Option<&str>,
) -> RewindState {
    let Ok(place) = files.locate(path) else { return RewindState::Unavailable };
    let now = match &place.found {
        ResolvedKind::Missing { .. } => None,
        ResolvedKind::File { .. } => match read_contents(files, &place) {
            Ok((id, _)) => Some(id),
            Err(_) => return RewindState::Unavailable,
        },
        ResolvedKind::Folder(_) | ResolvedKind::Special { .. } => return RewindState::Changed,
    };
    if now.as_deref() == before {
        return RewindState::Unchanged;
    }
    if now.as_deref() != after {
        return RewindState::Changed;
    }
    let Some(before) = before else { return RewindState::Removable };
    let is_kept = ObjectId::parse(before).is_ok_and(|id| objects.has(&id).unwrap_or(false));
    if is_kept { RewindState::Restorable } else { RewindState::Unavailable }
}

/// Returns true if a tool may run a program. The changes that a program makes to files are not recorded. Every tool
/// counts as running programs, except the built-in tools for files, git and knowledge.
fn runs_programs(capability: &str) -> bool {
    capability.strip_prefix("rye.execute.tool.").is_some_and(|tool| {
        !tool.starts_with("rye.file-system.") && !tool.starts_with("rye.git.") && !tool.starts_with("rye.knowledge.")
    })
}

/// Returns the events of a conversation since the start of a prompt, in the order of their times. Includes the events
/// of the descendants that were started since then, up to [`MAX_THREADS`] threads in total. Also returns the number of
/// descendants that were left out. `None` if the conversation does not contain the prompt.
fn events_since(threads: &Threads, thread: &ThreadId, prompt: u64) -> Result<Option<(Vec<Event>, u64)>, StoreError> {
    let mut found: Vec<Event> = Vec::new();
    let (mut next, mut seen) = (Some((thread.clone(), u64::MAX)), BTreeSet::new());
    let mut starts = false;
    while let Some((id, last)) = next.take() {
        if starts || !seen.insert(id.clone()) || seen.len() > MAX_THREADS {
            break;
        }
        let events = threads.transcript(&id)?;
        let head = ThreadHead::of(&events);
        next = head.continues.and_then(|link| Some((ThreadId::parse(&link.thread).ok()?, link.at_seq)));
        let start = events.iter().rposition(|event| {
            event.seq <= last && matches!(&event.body, EventBody::PromptStarted(one) if one.prompt == prompt)
        });
        starts = start.is_some();
        let part = events.into_iter().skip(start.unwrap_or(0)).filter(|event| event.seq <= last);
        found.splice(..0, part);
    }
    if !starts {
        return Ok(None);
    }
    let read = |child: &ThreadId| threads.has_transcript(child).then(|| threads.transcript(child)).transpose();
    let unread = add_descendants(&mut found, seen, MAX_THREADS, read)?;
    // The sort is stable, so events of one thread keep their order.
    found.sort_by_key(|event| event.ts);
    Ok(Some((found, unread)))
}

/// Adds the events of the threads that the events in `found` start, and of their descendants, until `seen` contains
/// `most` threads. Returns the number of started threads that were left out. `read` returns `None` for a thread without
/// a transcript.
fn add_descendants(
    found: &mut Vec<Event>,
    mut seen: BTreeSet<ThreadId>,
    most: usize,
    read: impl Fn(&ThreadId) -> Result<Option<Vec<Event>>, StoreError>,
) -> Result<u64, StoreError> {
    let mut children: VecDeque<ThreadId> = spawned(found).collect();
    let mut unread = 0;
    while let Some(child) = children.pop_front() {
        if !seen.insert(child.clone()) {
            continue;
        }
        if seen.len() > most {
            unread += 1;
        } else if let Some(events) = read(&child)? {
            children.extend(spawned(&events));
            found.extend(events);
        }
    }
    Ok(unread)
}

fn spawned(events: &[Event]) -> impl Iterator<Item = ThreadId> + '_ {
    events.iter().filter_map(|event| {
        let EventBody::ChildSpawned(child) = &event.body else { return None };
        ThreadId::parse(&child.thread_id).ok()
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::event::ChildSpawned;

    #[test]
    fn descendants_beyond_the_maximum_are_counted() {
        let id = |n: u64| ThreadId::parse(&format!("child-{}", 1_739_820_456 + n)).unwrap();
        let spawns = |numbers: &[u64]| -> Vec<Event> {
            let spawn = |n: &u64| ChildSpawned { spawn: *n, thread_id: id(*n).to_string(), spend: 0 };
            numbers.iter().map(|n| Event { seq: *n, ts: 0, body: EventBody::ChildSpawned(spawn(n)) }).collect()
        };
        for (most, expected) in [(4, 0), (3, 1), (2, 2)] {
            let mut found = spawns(&[1, 2, 2]);
            let read = |child: &ThreadId| Ok(Some(if *child == id(1) { spawns(&[3]) } else { Vec::new() }));
            let seen = BTreeSet::from([id(0)]);
            assert_eq!(add_descendants(&mut found, seen, most, read).unwrap(), expected);
        }
    }
}
