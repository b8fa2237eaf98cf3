//! The verification before a resume, recovery, fork or continuation of a thread. Only two signatures are checked: the
//! last seal of the transcript, which covers every line, and the signature of `thread.json`.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::signatures::SignatureChecker;
use super::{TranscriptView, Verifier};
use crate::event::{Event, EventBody, ThreadHead};
use crate::keys::TrustStore;
use crate::store::thread_files::SIGNATURE;
use crate::store::{Disk, StoreError, TranscriptContents, layout};
use crate::thread::Status;
use crate::thread_id::ThreadId;

/// The holder of the key that signed a transcript or `thread.json`, or the first line without a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SignatureHolder {
    /// A key whose signatures this user can verify, by its id.
    Trusted(String),
    /// A temporary key, which ended with its process.
    Temporary,
    /// A key whose signatures this user cannot verify, by its id.
    Unknown(String),
    /// Line number `line` (from 1) and all later lines have no signature.
    Unsigned { line: u64 },
}

/// The signers of a transcript, and of `thread.json` if it exists.
#[derive(Debug)]
pub(crate) struct SignatureHolders {
    pub transcript: SignatureHolder,
    pub snapshot: Option<SignatureHolder>,
}

/// Verifies the last seal and `thread.json`, and returns the holders of the keys that signed them. `events` are the
/// events in `reading`.
///
/// # Errors
///
/// [`StoreError::Damaged`] or [`StoreError::Altered`]: a signature does not verify, or `thread.json` contradicts the
/// transcript.
pub(crate) fn list_signers(
    disk: &Arc<dyn Disk>,
    thread: &ThreadId,
    trust: &TrustStore,
    reading: &TranscriptContents,
    events: &[Event],
) -> Result<SignatureHolders, StoreError> {
    let mut scan = Verifier::new(disk, thread, trust);
    let transcript = scan.last_seal(reading);
    // After a power failure, `thread.json` may be older than the transcript. A new checker accepts its temporary key,
    // even if a trusted key has signed the transcript since.
    scan.signatures = SignatureChecker::new(trust);
    let view = TranscriptView { reading, events, head: ThreadHead::of(events) };
    let snapshot = scan.resumed_snapshot(&view)?;
    match scan.found.faults.into_iter().next() {
        None => Ok(SignatureHolders { transcript, snapshot }),
        Some(fault) => Err(match fault.line {
            Some(line) => StoreError::Damaged { path: fault.file.into(), line, reason: fault.reason },
            None => StoreError::Altered { path: fault.file.into(), reason: fault.reason },
        }),
    }
}

impl Verifier<'_> {
    fn last_seal(&mut self, reading: &TranscriptContents) -> SignatureHolder {
        let sealed = reading.sealed_count();
        let last = sealed.checked_sub(1).and_then(|last| reading.records.get(last));
        let Some((record, seal)) = last.and_then(|record| record.seal.as_ref().map(|seal| (record, seal))) else {
            return SignatureHolder::Unsigned { line: 1 };
        };
        if sealed < reading.records.len() {
            return SignatureHolder::Unsigned { line: sealed as u64 + 1 };
        }
        let signer = self.signer(&seal.mark);
        if !matches!(signer, SignatureHolder::Unknown(_)) {
            self.check_seal(record);
        }
        signer
    }

    /// Returns the holder of the key that a signature names, without checking the signature.
    fn signer(&self, mark: &str) -> SignatureHolder {
        let name = mark.split_once(':').map_or(mark, |(name, _)| name);
        if !self.signatures.can_verify(name) {
            SignatureHolder::Unknown(name.to_owned())
        } else if name.starts_with(crate::signer::TEMPORARY_KEY_PREFIX) {
            SignatureHolder::Temporary
        } else {
            SignatureHolder::Trusted(name.to_owned())
        }
    }

    /// Verifies `thread.json` and returns its signer; `None` if there is no such file, or it has no signature. Ignores
    /// a file that is not JSON, because the file is never synced and a power failure can truncate it.
    fn resumed_snapshot(&mut self, view: &TranscriptView<'_>) -> Result<Option<SignatureHolder>, StoreError> {
        let path = layout::snapshot(self.thread);
        let read = self.disk.read(&path);
        let Some(fields) = read.ok().and_then(|bytes| serde_json::from_slice::<Map<String, Value>>(&bytes).ok()) else {
            return Ok(None);
        };
        let signer = fields.get(SIGNATURE).and_then(Value::as_str).map(|mark| self.signer(mark));
        if !matches!(signer, Some(SignatureHolder::Unknown(_))) {
            let ended = match view.events.last().map(|event| &event.body) {
                Some(EventBody::Ended(ended)) => Some(&**ended),
                Some(_) | None => None,
            };
            let before = self.found.faults.len();
            self.check_snapshot(view, ended)?;
            // A snapshot with status `running` may name a line that was lost in a power failure, so faults of lines are
            // ignored.
            if fields.get("status").and_then(Value::as_str) == Some(Status::Running.as_str()) {
                let found = self.found.faults.split_off(before);
                self.found.faults.extend(found.into_iter().filter(|fault| fault.line.is_none()));
            }
        }
        Ok(signer)
    }
}
