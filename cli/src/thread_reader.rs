//! Read access to the threads of a project: through the registry, or through the transcripts if the registry cannot be
//! used.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use rye_compiler::diagnostics::closest;
use rye_engine::driver::LiveLine;
use rye_engine::event::Event;
use rye_engine::store::registry::{Liveness, fold_row};
use rye_engine::store::spilled::restore_event;
use rye_engine::store::transcript::live;
use rye_engine::store::{
    Disk, ObjectId, Objects, RealDisk, Registry, StoreError, ThreadRow, TranscriptContents, layout, owner, transcript,
};
use rye_engine::thread_id::ThreadId;

use crate::CommandError;

pub mod reference;

pub struct ThreadReader {
    disk: Arc<dyn Disk>,
    objects: Objects,
    registry: Option<Registry>,
    trouble: Option<StoreError>,
}

/// A thread with its current state.
#[derive(Debug, Clone)]
pub struct ThreadEntry {
    pub row: ThreadRow,
    /// True if the thread has not ended and no live process owns it.
    pub orphaned: bool,
}

/// A thread with all of its events.
pub struct LoadedThread {
    pub entry: ThreadEntry,
    pub reading: TranscriptContents,
    pub events: Vec<Event>,
}

impl ThreadReader {
    pub fn open(project: &Path) -> Result<Self, CommandError> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(project)?);
        let (registry, trouble) = match Registry::open_read_only(Arc::clone(&disk)) {
            Ok(registry) => (registry, None),
            Err(error) => (None, Some(error)),
        };
        Ok(Self { objects: Objects::new(Arc::clone(&disk)), disk, registry, trouble })
    }

    /// Returns the error of a registry that exists but cannot be used.
    pub fn registry_error(&self) -> Option<&StoreError> {
        self.trouble.as_ref()
    }

    pub fn registry(&self) -> Option<&Registry> {
        self.registry.as_ref()
    }

    pub fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// Returns the disk, shared for writing.
    pub fn shared_disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.disk)
    }

    /// Returns the liveness of a thread. Without the registry, any live owner counts as the owner of the thread.
    pub fn liveness(&self, row: &ThreadRow) -> Result<Liveness, CommandError> {
        if let Some(registry) = &self.registry {
            return Ok(registry.liveness(row)?);
        }
        let anybody = !owner::live_owners(&*self.disk)?.is_empty();
        Ok(match (row.status.has_ended(), anybody) {
            (true, _) => Liveness::Over,
            (false, true) => Liveness::Alive,
            (false, false) => Liveness::Orphaned,
        })
    }

    /// Returns the last thread of the continuation chain of a thread, with its current state.
    pub fn last_of_chain(&self, id: &str) -> Result<ThreadEntry, CommandError> {
        let mut entry = self.find(id)?;
        let mut seen = BTreeSet::from([entry.row.id.clone()]);
        while let Some(next) = entry.row.continued_by.clone().filter(|next| seen.insert(next.clone())) {
            entry = self.find(next.as_str())?;
        }
        Ok(entry)
    }

    /// Returns the streamed pieces of the current attempt of a thread.
    pub fn streamed(&self, thread: &ThreadId) -> Result<Vec<LiveLine>, CommandError> {
        Ok(live::read(&*self.disk, thread)?)
    }

    /// Returns all threads by id, and the errors of those that cannot be read.
    pub fn threads(&self) -> Result<(Vec<ThreadEntry>, Vec<StoreError>), CommandError> {
        if let Some(registry) = &self.registry {
            let entries: Result<_, StoreError> =
                registry.threads()?.into_iter().map(|row| entry(registry, row)).collect();
            return Ok((entries?, Vec::new()));
        }
        let (mut entries, mut unreadable) = (Vec::new(), Vec::new());
        let anybody = !owner::live_owners(&*self.disk)?.is_empty();
        for thread in self.ids()? {
            match self.events(&thread, 0).map(|(_, events)| fold_row(&thread, &events)) {
                Ok(Some(row)) => entries.push(ThreadEntry { orphaned: !row.status.has_ended() && !anybody, row }),
                Ok(None) => {}
                Err(error) => unreadable.push(error),
            }
        }
        Ok((entries, unreadable))
    }

    /// Returns the thread that a reference names ([`Self::resolve`]).
    pub fn find(&self, reference: &str) -> Result<ThreadEntry, CommandError> {
        let thread = self.resolve(reference)?;
        let id = thread.as_str();
        if let Some(registry) = &self.registry {
            if let Some(row) = registry.thread(&thread)? {
                return Ok(entry(registry, row)?);
            }
        } else if let Ok((_, events)) = self.events(&thread, 0)
            && let Some(row) = fold_row(&thread, &events)
        {
            let anybody = !owner::live_owners(&*self.disk)?.is_empty();
            return Ok(ThreadEntry { orphaned: !row.status.has_ended() && !anybody, row });
        }
        Err(self.unknown_thread(id)?)
    }

    /// Returns a thread with its transcript, which is empty if the thread never started. Status and cost come from the
    /// transcript, which is newer than the registry row.
    pub fn load(&self, id: &str) -> Result<LoadedThread, CommandError> {
        let mut entry = self.find(id)?;
        let (reading, events) = match self.events(&entry.row.id, entry.row.synced) {
            // The thread died before its first line, so its row is all there is.
            Err(StoreError::UnknownThread { .. }) if entry.row.synced == 0 => {
                (TranscriptContents::default(), Vec::new())
            }
            read => read?,
        };
        if let Some(told) = fold_row(&entry.row.id, &events) {
            entry.row.cost = told.cost;
            entry.row.updated_at = entry.row.updated_at.max(told.updated_at);
            if told.status.has_ended() {
                entry.row.status = told.status;
                entry.orphaned = false;
            }
        }
        Ok(LoadedThread { entry, reading, events })
    }

    /// Returns an object, verified against its id.
    pub fn object(&self, id: &str) -> Result<Vec<u8>, CommandError> {
        Ok(self.objects.get(&ObjectId::parse(id)?)?)
    }

    /// Returns the first `length` bytes of a transcript.
    pub fn raw_lines(&self, thread: &ThreadId, length: u64) -> Result<Vec<u8>, CommandError> {
        let path = layout::transcript(thread);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        Ok(self.disk.read_range(&path, 0, length)?)
    }

    fn events(&self, thread: &ThreadId, synced: u64) -> Result<(TranscriptContents, Vec<Event>), StoreError> {
        let reading = transcript::read(&*self.disk, thread, synced)?;
        let events: Result<Vec<Event>, StoreError> =
            reading.records.iter().map(|record| restore_event(record, thread, &self.objects)).collect();
        Ok((reading, events?))
    }

    /// Returns true if a thread has a registry row or a transcript, whatever its state.
    pub fn is_stored(&self, thread: &ThreadId) -> Result<bool, CommandError> {
        let registered = self.registry.as_ref().map(|registry| registry.thread(thread)).transpose()?.flatten();
        Ok(registered.is_some() || self.disk.exists(&layout::transcript(thread)).unwrap_or(false))
    }

    fn ids(&self) -> Result<Vec<ThreadId>, StoreError> {
        match &self.registry {
            Some(registry) => Ok(registry.threads()?.into_iter().map(|row| row.id).collect()),
            None => layout::find_threads(&*self.disk),
        }
    }

    /// Returns the number of threads with a transcript but without a registry row; `listed` are the threads of the
    /// registry.
    pub fn count_unregistered(&self, listed: &[ThreadEntry]) -> Result<usize, CommandError> {
        if self.registry.is_none() {
            return Ok(0);
        }
        let known: BTreeSet<&str> = listed.iter().map(|entry| entry.row.id.as_str()).collect();
        Ok(layout::find_threads_outside(&*self.disk, &known)?.len())
    }

    pub fn unknown_thread(&self, id: &str) -> Result<CommandError, CommandError> {
        let ids = self.ids()?;
        let recorded =
            ThreadId::parse(id).is_ok_and(|thread| self.disk.exists(&layout::transcript(&thread)).unwrap_or(false));
        if recorded {
            let failure =
                CommandError::failed(format!("the thread `{id}` has a transcript, but is not in the registry"));
            return Ok(failure.with_help("rebuild the registry with `rye threads repair`"));
        }
        let failure = CommandError::usage(format!("no such thread: `{}`", id.escape_debug()));
        Ok(match closest(id, ids.iter().map(ThreadId::as_str)) {
            Some(meant) => failure.with_help(format!("did you mean `{meant}`?")),
            None if ids.is_empty() => failure.with_help("this project has no threads yet"),
            None => failure.with_help("list them with `rye threads list`"),
        })
    }
}

fn entry(registry: &Registry, row: ThreadRow) -> Result<ThreadEntry, StoreError> {
    Ok(ThreadEntry { orphaned: registry.liveness(&row)? == Liveness::Orphaned, row })
}

/// Returns the status, or `orphaned`.
pub fn status_name(entry: &ThreadEntry) -> &'static str {
    if entry.orphaned { "orphaned" } else { entry.row.status.as_str() }
}
