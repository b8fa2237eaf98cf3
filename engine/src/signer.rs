//! Signatures that a process makes for its threads (`engine.md` 4): of transcript lines, checkpoints, snapshots,
//! capability lists and exports. The key is the user's key or a temporary key. `threads::verify` checks the signatures.

use crate::keys::{CommentSyntax, KeyError, KeyFolder, SigningIdentity};
use crate::store::transcript::ChainHash;
use crate::thread_id::ThreadId;

/// Name prefix of a temporary key; the public key follows.
pub(crate) const TEMPORARY_KEY_PREFIX: &str = "ephemeral-";

/// The key that a process signs its threads with.
#[derive(Debug)]
pub struct Signer {
    identity: SigningIdentity,
    name: String,
    /// The reason why the user's own key is not used; `None` if it is used.
    instead: Option<String>,
    /// True if the user has no key.
    keyless: bool,
}

/// The position in a transcript that a checkpoint signs.
#[derive(Debug, Clone, Copy)]
pub struct CheckpointPosition<'t> {
    pub thread: &'t ThreadId,
    /// Number of turns at the checkpoint.
    pub turn: u64,
    /// The number of the checkpoint's own event.
    pub seq: u64,
    /// The hash of the line before the checkpoint, which covers all earlier lines as well.
    pub before: ChainHash,
}

impl Signer {
    /// Loads the user's key, or creates a temporary key if the user has none or the key cannot be loaded.
    ///
    /// # Errors
    /// Fails if the system provides no random numbers.
    pub fn load(keys: Option<&KeyFolder>) -> Result<Self, KeyError> {
        let (instead, keyless) = match keys.map(KeyFolder::load) {
            Some(Ok(Some(identity))) => {
                return Ok(Self { name: identity.key_id().to_owned(), identity, instead: None, keyless: false });
            }
            Some(Ok(None)) | None => ("no signing key found".to_owned(), true),
            Some(Err(error)) => (error.to_string(), false),
        };
        let identity = SigningIdentity::ephemeral()?;
        let name = format!("{TEMPORARY_KEY_PREFIX}{}", identity.public_text());
        Ok(Self { identity, name, instead: Some(instead), keyless })
    }

    /// Returns the reason why the user's own key is not used; `None` if the user's key is used.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.instead.as_deref()
    }

    /// Returns true if the user has no key, so that transcripts can be signed only with temporary keys.
    pub fn is_keyless(&self) -> bool {
        self.keyless
    }

    /// Returns the key's name in signatures: a key id, or `TEMPORARY_KEY_PREFIX` and the public key.
    pub(crate) fn key_name(&self) -> &str {
        &self.name
    }

    /// Returns the signature of a checkpoint.
    pub(crate) fn sign_checkpoint(&self, place: &CheckpointPosition<'_>) -> String {
        self.identity.sign(place.signing_input().as_bytes())
    }

    /// Returns the seal of a transcript's line.
    pub(crate) fn seal_line(&self, thread: &ThreadId, seq: u64, link: ChainHash) -> String {
        self.sign(line_signing_input(thread, seq, link).as_bytes())
    }

    /// Signs bytes; returns the key's name, `:`, and the signature.
    pub fn sign(&self, bytes: &[u8]) -> String {
        format!("{}:{}", self.name, self.identity.sign(bytes))
    }

    /// Returns the contents of a Markdown file: a signature line and `text`. `timestamp` has the format of RFC 3339.
    pub fn file(&self, text: &str, timestamp: &str) -> Vec<u8> {
        self.identity.sign_file(text.as_bytes(), CommentSyntax::Markup, timestamp)
    }

    /// Returns the signature line of a Markdown file. `parts` are the consecutive parts of the file's contents.
    pub(crate) fn signature_line(&self, parts: &[&[u8]], timestamp: &str) -> String {
        self.identity.signature_line(parts, CommentSyntax::Markup, timestamp)
    }
}

/// Returns the text that a line's seal signs. The signature is valid for no other thread, line, checkpoint or file.
pub(crate) fn line_signing_input(thread: &ThreadId, seq: u64, link: ChainHash) -> String {
    format!("rye:line:1:{thread}:{seq}:{link}")
}

impl CheckpointPosition<'_> {
    /// Returns the text that a checkpoint's signature signs. The signature is valid for no other thread, turn, line or
    /// file.
    pub(crate) fn signing_input(&self) -> String {
        let Self { thread, turn, seq, before } = self;
        format!("rye:checkpoint:1:{thread}:{turn}:{seq}:{before}")
    }
}
