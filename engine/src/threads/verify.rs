//! Verification of a thread's files: the hash chain of its lines, the signatures of its checkpoints, the objects that
//! its events name, the stored sources, and the artifacts beside the transcript. Changes nothing.

mod artifacts;
mod ledger;
pub(crate) mod resume;
mod signatures;
mod sources;

use crate::store::spilled::restore_event;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::Threads;
use crate::event::{Event, EventBody, ThreadHead};
use crate::keys::TrustStore;
use crate::signer;
use crate::store::{
    Disk, ObjectId, Objects, StoreError, ThreadRow, TranscriptContents, TranscriptRecord, layout, transcript,
};
use crate::thread_id::ThreadId;
use ledger::TreeMoney;
use signatures::{KeyKind, SignatureChecker};
use sources::CopyStates;

/// The words with which the reason of a fault ends if the key of a signature is not trusted
/// ([`SignatureError::UnknownKey`]).
///
/// [`SignatureError::UnknownKey`]: crate::keys::SignatureError::UnknownKey
pub const UNTRUSTED_KEY: &str = "which is not trusted";

/// The result of verifying one thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ThreadVerification {
    pub thread_id: String,
    pub verdict: ThreadVerdict,
    /// Number of events in the transcript.
    pub events: u64,
    pub checkpoints: u64,
    /// Number of events, counted from the first, that a valid signature covers.
    #[serde(rename = "vouched")]
    pub signed_events: u64,
    /// Names of the keys with valid signatures.
    pub signed_by: Vec<String>,
    pub faults: Vec<VerificationFault>,
    /// Observations that are not faults.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadVerdict {
    /// Every check passed, and signatures of trusted keys cover every line.
    Sound,
    /// Every check passed, but signatures of trusted keys do not cover every line, or a source has no stored copy.
    Unproven,
    Damaged,
}

/// A failed check of a stored file of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VerificationFault {
    /// Path of the faulty file, relative to the project.
    pub file: String,
    /// Line number from 1, if the fault is about a line.
    pub line: Option<u64>,
    pub reason: String,
}

/// The verification of one thread in progress: its inputs, and the results so far.
struct Verifier<'t> {
    disk: &'t dyn Disk,
    objects: Objects,
    thread: &'t ThreadId,
    signatures: SignatureChecker<'t>,
    found: ThreadVerification,
    /// True if a source that the thread names has no stored copy.
    is_source_missing: bool,
}

/// The transcript, against which the artifacts are checked.
struct TranscriptView<'e> {
    reading: &'e TranscriptContents,
    events: &'e [Event],
    head: ThreadHead<'e>,
}

impl Threads {
    /// Verifies one thread against the keys of a trust store.
    ///
    /// # Errors
    /// The disk cannot be read. Faults of the thread are part of the result instead.
    pub fn verify(&self, thread: &ThreadId, trust: &TrustStore) -> Result<ThreadVerification, StoreError> {
        let found = self.verify_all(std::slice::from_ref(thread), trust)?;
        found.into_iter().next().ok_or_else(|| StoreError::UnknownThread { thread: thread.to_string() })
    }

    /// Verifies threads against the keys of a trust store. Returns the results in the order of `threads`. A thread that
    /// another process removes meanwhile has no result.
    ///
    /// # Errors
    /// The disk cannot be read. Faults of the threads are part of the results instead.
    pub fn verify_all(&self, threads: &[ThreadId], trust: &TrustStore) -> Result<Vec<ThreadVerification>, StoreError> {
        let rows = self.registry.as_ref().map(|registry| registry.threads()).transpose()?.unwrap_or_default();
        let by_id: BTreeMap<&ThreadId, &ThreadRow> = rows.iter().map(|row| (&row.id, row)).collect();
        let mut trees: BTreeMap<&ThreadId, Option<TreeMoney>> = BTreeMap::new();
        let mut found = Vec::with_capacity(threads.len());
        let mut copies = CopyStates::default();
        for thread in threads {
            let row = by_id.get(thread);
            let mut scan = Verifier::new(&self.disk, thread, trust);
            scan.check_transcript(row.map_or(0, |row| row.synced), &mut copies)?;
            if let Some(row) = row {
                if !trees.contains_key(&row.root) {
                    trees.insert(&row.root, self.tree_money(&row.root, &rows)?);
                }
                if let Some(Some(money)) = trees.get(&row.root) {
                    scan.check_ledger(money);
                }
            }
            let verified = scan.finish();
            let is_suspicious = verified.events == 0 || !verified.faults.is_empty();
            if !is_suspicious || !self.is_removed(thread, row.is_some())? {
                found.push(verified);
            }
        }
        Ok(found)
    }

    /// Returns true if another process has removed a thread or is removing it. `was_registered` is true if the registry
    /// contained the thread before. A removal first deletes the registry row, then the files.
    pub(crate) fn is_removed(&self, thread: &ThreadId, was_registered: bool) -> Result<bool, StoreError> {
        let row = self.registry.as_ref().map(|registry| registry.thread(thread)).transpose()?.flatten();
        Ok(row.is_none() && (was_registered || !self.has_transcript(thread)))
    }
}

impl<'t> Verifier<'t> {
    fn new(disk: &'t Arc<dyn Disk>, thread: &'t ThreadId, trust: &'t TrustStore) -> Self {
        let found = ThreadVerification {
            thread_id: thread.to_string(),
            verdict: ThreadVerdict::Sound,
            events: 0,
            checkpoints: 0,
            signed_events: 0,
            signed_by: Vec::new(),
            faults: Vec::new(),
            notes: Vec::new(),
        };
        Self {
            disk: &**disk,
            objects: Objects::new(Arc::clone(disk)),
            thread,
            signatures: SignatureChecker::new(trust),
            found,
            is_source_missing: false,
        }
    }
}

impl Verifier<'_> {
    fn check_transcript(&mut self, synced: u64, copies: &mut CopyStates) -> Result<(), StoreError> {
        let path = layout::transcript(self.thread);
        let reading = match transcript::read(self.disk, self.thread, synced) {
            Ok(reading) => reading,
            Err(StoreError::Damaged { line, reason, .. }) => {
                self.fault(&path, Some(line), reason);
                return Ok(());
            }
            Err(StoreError::UnknownThread { .. }) if synced == 0 => {
                self.note("the thread never started: it has no transcript, and no event was synced");
                return Ok(());
            }
            Err(StoreError::UnknownThread { .. }) => {
                self.fault(&path, None, "the transcript is missing");
                return Ok(());
            }
            Err(newer @ StoreError::Newer { .. }) => {
                self.fault(&path, None, newer.to_string());
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if let Some(torn) = &reading.torn {
            let (bytes, line) = (torn.bytes, torn.line);
            self.note(format!(
                "{bytes} bytes from line {line} on are a torn tail: they were never synced, and recovery cuts them"
            ));
        }
        self.found.events = reading.records.len() as u64;
        let events = self.events(&reading);
        let view = TranscriptView { reading: &reading, events: &events, head: ThreadHead::of(&events) };
        self.check_checkpoints(&view);
        self.check_objects(&view);
        self.check_sources(&view, copies);
        self.check_continued(&view)?;
        self.check_artifacts(&view)
    }

    /// Restores the events of the transcript, including the fields whose values are stored as objects. Leaves out each
    /// event that cannot be restored, and reports a fault of its line.
    fn events(&mut self, reading: &TranscriptContents) -> Vec<Event> {
        let path = layout::transcript(self.thread);
        let mut events = Vec::with_capacity(reading.records.len());
        for record in &reading.records {
            match restore_event(record, self.thread, &self.objects) {
                Ok(event) => events.push(event),
                Err(error) => self.fault(&path, Some(record.seq + 1), error.to_string()),
            }
        }
        events
    }

    /// Checks the seal of a line, which covers the line and all lines before it.
    fn check_seal(&mut self, record: &TranscriptRecord) {
        let Some(seal) = &record.seal else { return };
        match self.signatures.line(self.thread, record, seal) {
            Ok(_) => self.found.signed_events = record.seq + 1,
            Err(reason) => {
                let path = layout::transcript(self.thread);
                self.fault(&path, Some(record.seq + 1), reason);
            }
        }
    }

    /// Checks the signature of every checkpoint, and that every completed turn has a checkpoint.
    fn check_checkpoints(&mut self, view: &TranscriptView<'_>) {
        let path = layout::transcript(self.thread);
        let (mut sealed, mut unsealed) = (0, None);
        for event in view.events {
            let mut over = None;
            let record = usize::try_from(event.seq).ok().and_then(|at| view.reading.records.get(at));
            if let EventBody::Checkpoint(checkpoint) = &event.body {
                self.found.checkpoints += 1;
                let at = usize::try_from(event.seq).unwrap_or(usize::MAX).checked_sub(1);
                let Some(before) = at.and_then(|at| view.reading.records.get(at)) else { continue };
                let (thread, turn, seq, before) = (self.thread, checkpoint.turn, event.seq, before.hash);
                sealed = turn;
                match self.signatures.checkpoint(checkpoint, &signer::CheckpointPosition { thread, turn, seq, before })
                {
                    Ok(_) => self.found.signed_events = seq,
                    Err(reason) => self.fault(&path, Some(seq + 1), reason),
                }
            } else if let EventBody::AttemptIntended(attempt) = &event.body {
                over = attempt.turn.checked_sub(1);
            } else if let EventBody::Ended(ended) = &event.body {
                over = Some(ended.cost.turns);
            }
            if let Some(turn) = over.filter(|turn| *turn > sealed && unsealed.is_none()) {
                unsealed = Some((event.seq, turn));
            }
            if let Some(record) = record {
                self.check_seal(record);
            }
        }
        match unsealed {
            // Early versions of `rye` wrote no checkpoints, so a transcript without checkpoints is accepted. Later
            // versions sign every turn.
            Some((seq, turn)) if self.found.checkpoints > 0 => {
                self.fault(&path, Some(seq + 1), format!("turn {turn} ended before this line without a checkpoint"));
            }
            Some(_) => self.note("no turn is signed"),
            None => {}
        }
    }

    /// Checks that every object named by an event exists and matches its hash.
    fn check_objects(&mut self, view: &TranscriptView<'_>) {
        let mut named: BTreeMap<String, u64> = BTreeMap::new();
        for event in view.events {
            for object in event.body.objects() {
                named.entry(object.to_owned()).or_insert(event.seq + 1);
            }
        }
        for (object, line) in named {
            let read = ObjectId::parse(&object).and_then(|id| self.objects.get(&id));
            if let Err(error) = read {
                let path = Path::new(layout::OBJECTS).join(&object);
                let is_missing =
                    matches!(&error, StoreError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound);
                let reason = if is_missing { "the file is missing".to_owned() } else { error.to_string() };
                self.fault(&path, None, format!("{reason}; line {line} of the transcript names this file"));
            }
        }
    }

    /// Checks the link of a continuation: the transcript of the earlier thread must have the recorded hash at the line
    /// after which this thread continues.
    fn check_continued(&mut self, view: &TranscriptView<'_>) -> Result<(), StoreError> {
        let Some(continues) = view.head.continues else { return Ok(()) };
        let path = layout::transcript(self.thread);
        let Ok(earlier) = ThreadId::parse(&continues.thread) else {
            self.fault(&path, Some(3), format!("it continues `{}`, which is not a valid thread id", continues.thread));
            return Ok(());
        };
        match transcript::read(self.disk, &earlier, 0) {
            Ok(reading) => {
                let at = usize::try_from(continues.at_seq).unwrap_or(usize::MAX);
                let same = reading.records.get(at).is_some_and(|record| record.hash.to_string() == continues.at_h);
                if !same {
                    let line = continues.at_seq + 1;
                    let reason = format!("it continues line {line} of `{earlier}`, and that line has changed");
                    self.fault(&path, Some(3), reason);
                }
            }
            Err(StoreError::UnknownThread { .. }) => {
                self.note(format!("`{earlier}`, which this thread continues, no longer exists"));
            }
            Err(error @ (StoreError::Damaged { .. } | StoreError::Newer { .. })) => {
                self.note(format!("the thread that this thread continues cannot be read: {error}"));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn fault(&mut self, file: &Path, line: Option<u64>, reason: impl Into<String>) {
        self.found.faults.push(VerificationFault { file: file.display().to_string(), line, reason: reason.into() });
    }

    fn note(&mut self, text: impl Into<String>) {
        self.found.notes.push(text.into());
    }

    fn finish(mut self) -> ThreadVerification {
        self.found.signed_by = self.signatures.names();
        let whole = self.found.signed_events >= self.found.events && self.signatures.best() == Some(KeyKind::Trusted);
        // If an unknown key alone signed the thread, nothing contradicts its files.
        let is_foreign = self.signatures.best().is_none()
            && self.found.faults.iter().all(|fault| fault.reason.ends_with(UNTRUSTED_KEY));
        self.found.verdict = match (self.found.faults.is_empty(), whole && !self.is_source_missing) {
            (false, _) if !is_foreign => ThreadVerdict::Damaged,
            (true, true) => ThreadVerdict::Sound,
            (true | false, _) => ThreadVerdict::Unproven,
        };
        if self.found.faults.is_empty() && !whole {
            if self.signatures.best() == Some(KeyKind::Ephemeral) {
                self.note("signed with a temporary key, which can no longer be verified");
            } else {
                let (signed_events, events) = (self.found.signed_events, self.found.events);
                self.note(format!("signatures cover {signed_events} of {events} events"));
            }
        }
        self.found
    }
}

/// Returns a field of an artifact; `None` if it is missing or not a text.
fn text_field<'v>(fields: &'v serde_json::Map<String, Value>, name: &str) -> Option<&'v str> {
    fields.get(name).and_then(Value::as_str)
}
