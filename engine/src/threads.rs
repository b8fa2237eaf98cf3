//! Read access to threads: registry rows and transcripts. Nothing is changed and no lock is taken.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use rye_compiler::plan::PlanLimits;

use crate::error::DriveError;
use crate::event::{CommandSettings, Event, EventBody, Opened, Recovered, ThreadHead};
use crate::machine::state::OpenApprovalRequest;
use crate::machine::{ThreadState, apply, limit_mut, needs_raise};
use crate::parent_thread::ParentThread;
use crate::store::registry::{Liveness, RepairReport, fold_row, repair};
use crate::store::spilled::{restore_event, take_event};
use crate::store::{
    Disk, ObjectId, Objects, RealDisk, Registry, StoreError, ThreadRow, TranscriptContents, layout, owner, transcript,
};
use crate::thread::{RunError, RunResult, Status};
use crate::thread_id::ThreadId;

mod chain;
mod run_tree;
pub mod verify;
mod wait;

pub use chain::SearchMatch;
pub use wait::WaitOutcome;

/// The threads of a project. If the registry is unusable, only the transcripts are read.
#[derive(Debug, Clone)]
pub struct Threads {
    disk: Arc<dyn Disk>,
    objects: Arc<Objects>,
    /// The registry of the threads; `None` if no thread was ever started, or if the registry is unusable.
    registry: Option<Arc<Registry>>,
    registry_error: Option<Arc<StoreError>>,
}

/// A thread's registry row and the state of the process that owns the thread.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedThread {
    pub row: ThreadRow,
    pub liveness: Liveness,
}

/// A thread with all of its events.
pub struct LoadedThread {
    pub entry: ListedThread,
    pub reading: TranscriptContents,
    pub events: Vec<Event>,
}

impl ListedThread {
    /// Returns true if the thread has not ended and no live process owns it.
    pub fn is_orphaned(&self) -> bool {
        self.liveness == Liveness::Orphaned
    }

    /// Returns the name of the status, or `orphaned` if the thread is orphaned.
    pub fn status_name(&self) -> &'static str {
        if self.is_orphaned() { "orphaned" } else { self.row.status.as_str() }
    }
}

impl Threads {
    /// Opens the threads of a project for reading.
    ///
    /// # Errors
    /// The folder or the registry cannot be read.
    pub fn open(project: &Path) -> Result<Self, StoreError> {
        let mut threads = Self::open_lenient(project)?;
        match threads.registry_error.take().and_then(Arc::into_inner) {
            Some(error) => Err(error),
            None => Ok(threads),
        }
    }

    /// Variant of [`Self::open`] that keeps the error of an unusable registry in [`Self::registry_error`] instead of
    /// failing.
    pub fn open_lenient(project: &Path) -> Result<Self, StoreError> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(project).map_err(StoreError::io("open", project))?);
        let (registry, registry_error) = match Registry::open_read_only(Arc::clone(&disk)) {
            Ok(registry) => (registry.map(Arc::new), None),
            Err(error) => (None, Some(Arc::new(error))),
        };
        Ok(Self { registry_error, ..Self::new(disk, registry) })
    }

    /// Rebuilds the registry of a project from the transcripts alone.
    ///
    /// # Errors
    /// Fails if any process works on a thread of the project, or on I/O errors.
    pub fn repair(project: &Path) -> Result<RepairReport, StoreError> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(project).map_err(StoreError::io("open", project))?);
        repair(&disk)
    }

    pub(crate) fn new(disk: Arc<dyn Disk>, registry: Option<Arc<Registry>>) -> Self {
        Self { objects: Arc::new(Objects::new(Arc::clone(&disk))), disk, registry, registry_error: None }
    }

    /// Returns the error that makes the registry unusable: the registry is damaged, or it is missing although threads
    /// exist. `None` if there is no such error.
    pub fn registry_error(&self) -> Option<&StoreError> {
        self.registry_error.as_deref()
    }

    pub fn registry(&self) -> Option<&Registry> {
        self.registry.as_deref()
    }

    pub fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// Returns a shared handle of the disk, for a caller that writes.
    pub fn shared_disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.disk)
    }

    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Returns the state of a thread's owner. Without the registry, a thread that has not ended counts as owned if any
    /// live process owns threads.
    pub fn liveness(&self, row: &ThreadRow) -> Result<Liveness, StoreError> {
        match &self.registry {
            Some(registry) => registry.liveness(row),
            None if row.status.has_ended() => Ok(Liveness::Over),
            None if owner::live_owners(&*self.disk)?.is_empty() => Ok(Liveness::Orphaned),
            None => Ok(Liveness::Alive),
        }
    }

    /// Lists every thread, sorted by id.
    ///
    /// # Errors
    /// A thread cannot be read.
    pub fn list(&self) -> Result<Vec<ListedThread>, StoreError> {
        let (threads, unreadable) = self.list_readable()?;
        unreadable.into_iter().next().map_or(Ok(threads), Err)
    }

    /// Lists every thread that can be read, sorted by id. Also returns the errors of the threads that cannot be read.
    pub fn list_readable(&self) -> Result<(Vec<ListedThread>, Vec<StoreError>), StoreError> {
        if let Some(registry) = &self.registry {
            let threads: Result<_, StoreError> = registry.threads()?.into_iter().map(|row| self.listed(row)).collect();
            return Ok((threads?, Vec::new()));
        }
        let (mut threads, mut unreadable) = (Vec::new(), Vec::new());
        for thread in layout::find_threads(&*self.disk)? {
            match self.read(&thread, 0).map(|(_, events)| fold_row(&thread, &events)) {
                Ok(Some(row)) => threads.push(self.listed(row)?),
                Ok(None) => {}
                Err(error) => unreadable.push(error),
            }
        }
        Ok((threads, unreadable))
    }

    /// Returns the ids of all threads, also of threads that cannot be read.
    pub fn ids(&self) -> Result<Vec<ThreadId>, StoreError> {
        match &self.registry {
            Some(registry) => Ok(registry.threads()?.into_iter().map(|row| row.id).collect()),
            None => layout::find_threads(&*self.disk),
        }
    }

    /// Returns one thread; `None` if the thread is unknown. Without a registry, `None` also if the transcript of the
    /// thread cannot be read.
    pub fn show(&self, thread: &ThreadId) -> Result<Option<ListedThread>, StoreError> {
        let row = match &self.registry {
            Some(registry) => registry.thread(thread)?,
            None => self.read(thread, 0).ok().and_then(|(_, events)| fold_row(thread, &events)),
        };
        row.map(|row| self.listed(row)).transpose()
    }

    /// Returns true if a thread has a registry row or a transcript, whatever its state.
    pub fn is_stored(&self, thread: &ThreadId) -> Result<bool, StoreError> {
        let registered = self.registry.as_ref().map(|registry| registry.thread(thread)).transpose()?.flatten();
        Ok(registered.is_some() || self.has_transcript(thread))
    }

    pub fn has_transcript(&self, thread: &ThreadId) -> bool {
        self.disk.exists(&layout::transcript(thread)).unwrap_or(false)
    }

    /// Returns a thread with its transcript, which is empty if the thread never started; `None` if it is unknown.
    /// Status and cost come from the transcript, which is newer than the registry row.
    pub fn load(&self, thread: &ThreadId) -> Result<Option<LoadedThread>, StoreError> {
        let Some(mut entry) = self.show(thread)? else { return Ok(None) };
        let (reading, events) = match self.read(&entry.row.id, entry.row.synced) {
            // The process died before it wrote the first line of the transcript, so only the registry row exists.
            Err(StoreError::UnknownThread { .. }) if entry.row.synced == 0 => {
                (TranscriptContents::default(), Vec::new())
            }
            read => read?,
        };
        if let Some(recorded) = fold_row(&entry.row.id, &events) {
            entry.row.cost = recorded.cost;
            entry.row.updated_at = entry.row.updated_at.max(recorded.updated_at);
            if recorded.status.has_ended() {
                entry.row.status = recorded.status;
                entry.liveness = Liveness::Over;
            }
        }
        Ok(Some(LoadedThread { entry, reading, events }))
    }

    /// Reads the events recorded so far in a thread's transcript.
    pub fn transcript(&self, thread: &ThreadId) -> Result<Vec<Event>, StoreError> {
        let mut reading = transcript::read(&*self.disk, thread, 0)?;
        reading.records.iter_mut().map(|record| take_event(record, thread, &self.objects)).collect()
    }

    /// Reads the first events of a thread, which contain its start and its plan.
    pub fn head(&self, thread: &ThreadId) -> Result<Vec<Event>, StoreError> {
        let mut reading = transcript::read_head(&*self.disk, thread)?;
        reading.records.iter_mut().map(|record| take_event(record, thread, &self.objects)).collect()
    }

    /// Returns the first `length` bytes of a transcript.
    pub fn raw_transcript(&self, thread: &ThreadId, length: u64) -> Result<Vec<u8>, StoreError> {
        let path = layout::transcript(thread);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        self.disk.read_range(&path, 0, length).map_err(StoreError::io("read", &path))
    }

    /// Returns the number of threads with a transcript but without a registry row; 0 if there is no registry. `listed`
    /// are the threads of the registry.
    pub fn count_unregistered(&self, listed: &[ListedThread]) -> Result<usize, StoreError> {
        if self.registry.is_none() {
            return Ok(0);
        }
        let known: BTreeSet<&str> = listed.iter().map(|entry| entry.row.id.as_str()).collect();
        Ok(layout::find_threads_outside(&*self.disk, &known)?.len())
    }

    fn listed(&self, row: ThreadRow) -> Result<ListedThread, StoreError> {
        Ok(ListedThread { liveness: self.liveness(&row)?, row })
    }

    fn read(&self, thread: &ThreadId, synced: u64) -> Result<(TranscriptContents, Vec<Event>), StoreError> {
        let reading = transcript::read(&*self.disk, thread, synced)?;
        let events: Result<Vec<Event>, StoreError> =
            reading.records.iter().map(|record| restore_event(record, thread, &self.objects)).collect();
        Ok((reading, events?))
    }

    /// Returns the settings of the command that started a thread, or the defaults if nothing was recorded.
    pub fn settings(&self, thread: &ThreadId) -> Result<CommandSettings, StoreError> {
        let head = match transcript::read_head(&*self.disk, thread) {
            Err(StoreError::UnknownThread { .. }) => return Ok(CommandSettings::default()),
            head => head?,
        };
        let first = head.records.first().map(|record| restore_event(record, thread, &self.objects)).transpose()?;
        Ok(match first.map(|event| event.body) {
            Some(EventBody::Opened(opened)) => opened.settings,
            _ => CommandSettings::default(),
        })
    }

    /// Returns a thread as the parent of new children: its id, its start and its plan. The start and the plan bound the
    /// children. `None` if the transcript records no start or no plan.
    pub fn parent(&self, thread: &ThreadId) -> Result<Option<ParentThread>, DriveError> {
        let events = self.head(thread)?;
        let ThreadHead { opened: Some(launch), plan_id: Some(plan_id), .. } = ThreadHead::of(&events) else {
            return Ok(None);
        };
        let bytes = self.objects.get(&ObjectId::parse(plan_id)?)?;
        let plan = serde_json::from_slice(&bytes).map_err(|error| DriveError::Plan(error.to_string()))?;
        Ok(Some(ParentThread { id: thread.clone(), launch: launch.clone(), plan }))
    }

    /// Returns the result of a thread that has ended; `None` before that. A tool's result is returned in full, even if
    /// the guard truncated it in the transcript.
    pub fn result(&self, thread: &ThreadId) -> Result<Option<RunResult>, StoreError> {
        let events = self.transcript(thread)?;
        let Some(mut result) = result_of(thread, &events) else { return Ok(None) };
        // If a hook has changed the result, the changed result is returned, not the stored object.
        let unchanged = |(content, _): &(&str, &str)| result.result.as_deref() == Some(*content);
        if result.tool.is_some()
            && let Some((_, object)) = events.iter().find_map(|event| event.body.shortened_result()).filter(unchanged)
        {
            let whole = self.objects.get(&ObjectId::parse(object)?)?;
            result.result = Some(String::from_utf8_lossy(&whole).into_owned().into());
        }
        Ok(Some(result))
    }
}

/// Returns the open approval request of a thread with these events; `None` if every request is answered. The request
/// has a raise only if an approval would still raise a limit: a message may have raised the limit after the request was
/// recorded.
pub fn pending_approval(events: &[Event]) -> Option<OpenApprovalRequest> {
    let state = state_after(events);
    let question = state.question.clone()?;
    let raise = question.raise.clone().filter(|_| needs_raise(&state));
    Some(OpenApprovalRequest { raise, ..question })
}

/// Returns the limits of a run with all raises; `None` for a chat, whose limits bound each prompt.
pub fn limits_of_run(events: &[Event]) -> Option<PlanLimits> {
    let state = state_after(events);
    state.chat.is_none().then_some(state.limits)
}

fn state_after(events: &[Event]) -> ThreadState {
    let mut state = ThreadState::new();
    for event in events {
        apply(&mut state, event);
    }
    state
}

/// Returns the current value of a limit, and the highest value that the parent allows (`None` without a parent).
/// Returns `None` if no message can raise the limit. The values of `spend` are in nano-dollars.
pub fn limit_headroom(events: &[Event], limit: &str) -> Option<(u64, Option<u64>)> {
    let state = state_after(events);
    let ceiling = state.launch.as_ref().and_then(|launch| launch.ceiling);
    let of = |mut limits: PlanLimits| limit_mut(&mut limits, limit).map(|value| *value);
    Some((of(state.limits)?, ceiling.and_then(of)))
}

/// Returns the texts of the messages that are held when the chat is recovered. Held messages are sent only if the user
/// submits them again. Empty for a thread that is not a chat.
pub fn held_messages(events: &[Event]) -> Vec<String> {
    let mut state = state_after(events);
    let last = events.last().map_or((0, 0), |event| (event.seq + 1, event.ts));
    let body = EventBody::Recovered(Recovered { owner: String::new(), cut_bytes: 0 });
    apply(&mut state, &Event { seq: last.0, ts: last.1, body });
    state.chat.into_iter().flat_map(|chat| chat.held).map(|message| message.text).collect()
}

/// Returns the result recorded in a transcript; `None` if the last event is not `ended`.
pub(crate) fn result_of(thread: &ThreadId, events: &[Event]) -> Option<RunResult> {
    let EventBody::Ended(ended) = &events.last()?.body else { return None };
    let head = ThreadHead::of(events);
    let directive = head.opened.map_or("", |opened| &opened.directive);
    let tool = head.opened.and_then(Opened::tool).map(str::to_owned);
    Some(RunResult { tool, ..RunResult::of(thread, directive, head.plan_id.unwrap_or_default(), ended) })
}

impl RunResult {
    /// Builds the result of a thread from the event that ended it.
    pub(crate) fn of(thread: &ThreadId, directive: &str, plan_id: &str, ended: &crate::event::Ended) -> Self {
        Self {
            success: ended.status == Status::Completed,
            thread_id: thread.to_string(),
            status: ended.status,
            directive: directive.to_owned(),
            tool: None,
            result: ended.result.clone(),
            outputs: ended.outputs.clone(),
            missing: ended.missing.clone(),
            stop_reason: ended.stop_reason.as_ref().map(|stop| stop.as_str().to_owned()),
            unread: ended.unread.clone(),
            error: ended.error.clone(),
            cost: ended.cost.into(),
            plan_id: plan_id.to_owned(),
        }
    }

    /// Returns a result for a thread that the engine could not continue. The thread itself has not ended.
    pub(crate) fn engine_failure(message: &str) -> Self {
        Self {
            success: false,
            thread_id: String::new(),
            status: Status::Error,
            directive: String::new(),
            tool: None,
            result: None,
            outputs: None,
            missing: Vec::new(),
            stop_reason: None,
            unread: Vec::new(),
            error: Some(RunError { code: "engine_failed".into(), message: message.to_owned() }),
            cost: crate::thread::Cost::default().into(),
            plan_id: String::new(),
        }
    }
}
