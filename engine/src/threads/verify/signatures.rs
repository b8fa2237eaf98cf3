//! Validity of signatures. A trusted key may sign at any time. A temporary key may sign only before the first signature
//! of a trusted key.

use std::collections::BTreeSet;

use crate::event::Checkpoint;
use crate::keys::{SignatureError, SignatureStatus, TrustStore};
use crate::signer::{CheckpointPosition, TEMPORARY_KEY_PREFIX, line_signing_input};
use crate::store::TranscriptRecord;
use crate::store::transcript::Seal;
use crate::thread_id::ThreadId;

/// The kind of key behind a valid signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum KeyKind {
    Ephemeral,
    Trusted,
}

pub(super) struct SignatureChecker<'t> {
    trust: &'t TrustStore,
    /// Temporary keys of processes that ran this thread.
    temporary_keys: TrustStore,
    best: Option<KeyKind>,
    names: BTreeSet<String>,
}

impl<'t> SignatureChecker<'t> {
    pub fn new(trust: &'t TrustStore) -> Self {
        Self { trust, temporary_keys: TrustStore::default(), best: None, names: BTreeSet::new() }
    }

    /// Returns `Trusted` if a trusted key made any valid signature so far, `Ephemeral` if only temporary keys did, and
    /// `None` if there is no valid signature.
    pub fn best(&self) -> Option<KeyKind> {
        self.best
    }

    pub fn names(&self) -> Vec<String> {
        self.names.iter().cloned().collect()
    }

    pub fn checkpoint(&mut self, checkpoint: &Checkpoint, place: &CheckpointPosition<'_>) -> Result<KeyKind, String> {
        self.bytes(&checkpoint.key_id, place.signing_input().as_bytes(), &checkpoint.signature)
    }

    /// Verifies the seal of a line. Returns the kind of the key, or the reason why the seal is invalid.
    pub fn line(&mut self, thread: &ThreadId, record: &TranscriptRecord, seal: &Seal) -> Result<KeyKind, String> {
        self.mark(line_signing_input(thread, record.seq, seal.link).as_bytes(), &seal.mark)
    }

    /// Returns true if this verifier has the key of this name.
    pub fn can_verify(&self, name: &str) -> bool {
        name.starts_with(TEMPORARY_KEY_PREFIX) || self.trust.trusts(name)
    }

    /// Verifies `bytes` against a signature of the form `name:signature`, in which `name` is the name of the key.
    /// Returns the kind of the key, or the reason why the signature is invalid.
    pub fn mark(&mut self, bytes: &[u8], mark: &str) -> Result<KeyKind, String> {
        let (name, signature) = mark.split_once(':').ok_or("its signature is incomplete")?;
        self.bytes(name, bytes, signature)
    }

    /// Verifies a file with a signature line. Returns the kind of the key (`None` if the file has no signature), or the
    /// reason why the signature is invalid.
    pub fn file(&mut self, bytes: &[u8]) -> Result<Option<KeyKind>, String> {
        let trusted = self.trust.verify_file(bytes);
        let signature = match &trusted {
            Err(SignatureError::UnknownKey { .. }) => {
                self.temporary_keys.verify_file(bytes).map(|signature| (signature, KeyKind::Ephemeral))
            }
            Ok(_) | Err(SignatureError::Malformed | SignatureError::Altered | SignatureError::Forged { .. }) => {
                trusted.clone().map(|signature| (signature, KeyKind::Trusted))
            }
        };
        match signature {
            Ok((SignatureStatus::Unsigned, _)) => Ok(None),
            // A temporary key is named by its whole public key, not by `key_id`. Its name is already known from the
            // transcript.
            Ok((SignatureStatus::Signed { key_id, .. }, whose)) => {
                self.accept_signature((whose == KeyKind::Trusted).then_some(key_id), whose).map(Some)
            }
            Err(fault) => Err(fault.to_string()),
        }
    }

    fn bytes(&mut self, name: &str, bytes: &[u8], signature: &str) -> Result<KeyKind, String> {
        let whose = match name.strip_prefix(TEMPORARY_KEY_PREFIX) {
            None => {
                self.trust.verify(name, bytes, signature).map_err(|fault| fault.to_string())?;
                KeyKind::Trusted
            }
            Some(public) => {
                let key_id = self.temporary_keys.add_text(public).ok_or("it was signed with an invalid key")?;
                self.temporary_keys.verify(&key_id, bytes, signature).map_err(|fault| fault.to_string())?;
                KeyKind::Ephemeral
            }
        };
        self.accept_signature(Some(name.to_owned()), whose)
    }

    /// Records a valid signature and returns the kind of its key. Fails if a temporary key signs after a trusted key.
    fn accept_signature(&mut self, name: Option<String>, whose: KeyKind) -> Result<KeyKind, String> {
        if self.best > Some(whose) {
            return Err("it was signed with a temporary key after a trusted key had signed".into());
        }
        self.best = Some(whose);
        self.names.extend(name);
        Ok(whose)
    }
}
