//! Read access to threads: registry rows and transcripts. Changes nothing and takes no lock.

use crate::store::spilled::restore_event;
use std::path::Path;
use std::sync::Arc;

use rye_compiler::plan::PlanLimits;

use crate::error::DriveError;
use crate::event::{Event, EventBody, Opened, RunSettings, ThreadHead};
use crate::machine::state::OpenApprovalRequest;
use crate::machine::{ThreadState, apply, limit_mut};
use crate::parent_thread::ParentThread;
use crate::store::registry::{Liveness, RepairReport, repair};
use crate::store::transcript;
use crate::store::{Disk, ObjectId, Objects, RealDisk, Registry, StoreError, ThreadRow};
use crate::thread::{RunError, RunResult, Status};
use crate::thread_id::ThreadId;

mod chain;
pub mod verify;
mod wait;

pub use chain::SearchMatch;
pub use wait::WaitOutcome;

/// The threads of a project.
#[derive(Debug, Clone)]
pub struct Threads {
    disk: Arc<dyn Disk>,
    /// `None` if no thread was ever started, or if the registry is unusable.
    registry: Option<Arc<Registry>>,
}

/// A thread's row and the state of its owner.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedThread {
    pub row: ThreadRow,
    pub liveness: Liveness,
}

impl Threads {
    /// Opens the threads of a project for reading.
    pub fn open(project: &Path) -> Result<Self, StoreError> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(project).map_err(StoreError::io("open", project))?);
        let registry = Registry::open_read_only(Arc::clone(&disk))?.map(Arc::new);
        Ok(Self { disk, registry })
    }

    /// Variant of `open` that ignores a damaged or missing registry; only transcripts are available then.
    pub fn open_lenient(project: &Path) -> Result<Self, StoreError> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(project).map_err(StoreError::io("open", project))?);
        let registry = Registry::open_read_only(Arc::clone(&disk)).ok().flatten().map(Arc::new);
        Ok(Self { disk, registry })
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
        Self { disk, registry }
    }

    /// Lists every thread, by id.
    pub fn list(&self) -> Result<Vec<ListedThread>, StoreError> {
        let Some(registry) = &self.registry else { return Ok(Vec::new()) };
        registry.threads()?.into_iter().map(|row| listed(registry, row)).collect()
    }

    /// Returns one thread.
    pub fn show(&self, thread: &ThreadId) -> Result<Option<ListedThread>, StoreError> {
        let Some(registry) = &self.registry else { return Ok(None) };
        registry.thread(thread)?.map(|row| listed(registry, row)).transpose()
    }

    /// Reads the events recorded so far in a thread's transcript.
    pub fn transcript(&self, thread: &ThreadId) -> Result<Vec<Event>, StoreError> {
        let objects = Objects::new(Arc::clone(&self.disk));
        let reading = transcript::read(&*self.disk, thread, 0)?;
        reading.records.iter().map(|record| restore_event(record, thread, &objects)).collect()
    }

    /// Returns the settings of the command that started a thread; the default ones if nothing was recorded.
    pub fn settings(&self, thread: &ThreadId) -> Result<RunSettings, StoreError> {
        let head = match transcript::read_head(&*self.disk, thread) {
            Err(StoreError::UnknownThread { .. }) => return Ok(RunSettings::default()),
            head => head?,
        };
        let objects = Objects::new(Arc::clone(&self.disk));
        let first = head.records.first().map(|record| restore_event(record, thread, &objects)).transpose()?;
        Ok(match first.map(|event| event.body) {
            Some(EventBody::Opened(opened)) => opened.settings,
            _ => RunSettings::default(),
        })
    }

    /// Reads a thread as the parent of another; `None` if it recorded no start or no plan.
    pub fn parent(&self, thread: &ThreadId) -> Result<Option<ParentThread>, DriveError> {
        let events = self.transcript(thread)?;
        let ThreadHead { opened: Some(launch), plan_id: Some(plan_id), .. } = ThreadHead::of(&events) else {
            return Ok(None);
        };
        let bytes = Objects::new(Arc::clone(&self.disk)).get(&ObjectId::parse(plan_id)?)?;
        let plan = serde_json::from_slice(&bytes).map_err(|error| DriveError::Plan(error.to_string()))?;
        Ok(Some(ParentThread { id: thread.clone(), launch: launch.clone(), plan }))
    }

    /// Returns the result of a thread that has ended; `None` before that. A tool's result is returned in full, even if
    /// the guard truncated it in the transcript.
    pub fn result(&self, thread: &ThreadId) -> Result<Option<RunResult>, StoreError> {
        let events = self.transcript(thread)?;
        let Some(mut result) = result_of(thread, &events) else { return Ok(None) };
        // A hook may have changed the result; its version is kept.
        let unchanged = |(content, _): &(&str, &str)| result.result.as_deref() == Some(*content);
        if result.tool.is_some()
            && let Some((_, object)) = events.iter().find_map(|event| event.body.shortened_result()).filter(unchanged)
        {
            let whole = Objects::new(Arc::clone(&self.disk)).get(&ObjectId::parse(object)?)?;
            result.result = Some(String::from_utf8_lossy(&whole).into_owned());
        }
        Ok(Some(result))
    }
}

fn listed(registry: &Registry, row: ThreadRow) -> Result<ListedThread, StoreError> {
    Ok(ListedThread { liveness: registry.liveness(&row)?, row })
}

/// Returns the approval request that a transcript leaves unanswered.
pub fn pending_approval(events: &[Event]) -> Option<OpenApprovalRequest> {
    let mut state = ThreadState::new();
    for event in events {
        apply(&mut state, event);
    }
    state.question
}

/// Returns the current value of a limit and the parent's ceiling, if there is a parent; `None` if the limit cannot be
/// raised.
pub fn limit_headroom(events: &[Event], limit: &str) -> Option<(u64, Option<u64>)> {
    let mut state = ThreadState::new();
    for event in events {
        apply(&mut state, event);
    }
    let ceiling = state.launch.as_ref().and_then(|launch| launch.ceiling);
    let of = |mut limits: PlanLimits| limit_mut(&mut limits, limit).map(|value| *value);
    Some((of(state.limits)?, ceiling.and_then(of)))
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
    /// Builds the printed result from the last event.
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
            error: ended.error.clone(),
            cost: ended.cost.into(),
            plan_id: plan_id.to_owned(),
        }
    }

    /// A result for a thread that the engine could not continue. The thread itself has not ended.
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
            error: Some(RunError { code: "engine_failed".into(), message: message.to_owned() }),
            cost: crate::thread::Cost::default().into(),
            plan_id: String::new(),
        }
    }
}
