//! What a process puts its name to: checkpoints, snapshots, capability lists and exports of its threads (`engine.md` 4).
//! With the user's key, or with one that ends with the process. Nothing here reads or judges; that is `threads::verify`.

use crate::keys::{Comment, Identity, KeyError, Keys};
use crate::store::transcript::Hash;
use crate::thread_id::ThreadId;

/// How the name of a key begins that ended with its process; the public key follows.
pub const EPHEMERAL: &str = "ephemeral-";

/// The key that a process signs its threads with.
#[derive(Debug)]
pub struct Sealer {
    identity: Identity,
    name: String,
    /// Why the user's own key is not used, where it is not.
    instead: Option<String>,
    /// The user has no key at all.
    keyless: bool,
}

/// A place in a thread's record: what a checkpoint vouches for.
#[derive(Debug, Clone, Copy)]
pub struct Place<'t> {
    pub thread: &'t ThreadId,
    /// Turns so far.
    pub turn: u64,
    /// The number of the checkpoint's own event.
    pub seq: u64,
    /// The hash of the line before it, which vouches for every line before that.
    pub before: Hash,
}

impl Sealer {
    /// The user's key; without one, or with one that cannot be used, a new one of this process.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn of(keys: Option<&Keys>) -> Result<Self, KeyError> {
        let (instead, keyless) = match keys.map(Keys::load) {
            Some(Ok(Some(identity))) => {
                return Ok(Self { name: identity.key_id().to_owned(), identity, instead: None, keyless: false });
            }
            Some(Ok(None)) | None => ("you have no key".to_owned(), true),
            Some(Err(error)) => (error.to_string(), false),
        };
        let identity = Identity::ephemeral()?;
        let name = format!("{EPHEMERAL}{}", identity.public_text());
        Ok(Self { identity, name, instead: Some(instead), keyless })
    }

    /// Why the user's own key is not used; `None` where it is.
    pub fn instead(&self) -> Option<&str> {
        self.instead.as_deref()
    }

    /// Returns true where the user has no key, so that no record can be signed by one.
    pub fn is_keyless(&self) -> bool {
        self.keyless
    }

    /// The name that signatures stand under: a key id, or [`EPHEMERAL`] and the public key.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The signature of a checkpoint.
    pub fn checkpoint(&self, place: &Place<'_>) -> String {
        self.identity.sign(place.message().as_bytes())
    }

    /// The seal of a transcript's line.
    pub fn line(&self, thread: &ThreadId, seq: u64, link: Hash) -> String {
        self.mark(line_message(thread, seq, link).as_bytes())
    }

    /// A signature of bytes, with the name before it.
    pub fn mark(&self, bytes: &[u8]) -> String {
        format!("{}:{}", self.name, self.identity.sign(bytes))
    }

    /// A Markdown file with its signature line. `timestamp` is RFC 3339.
    pub fn file(&self, text: &str, timestamp: &str) -> Vec<u8> {
        self.identity.sign_file(text.as_bytes(), Comment::Markup, timestamp)
    }
}

/// The signed text of a line's seal: it cannot stand for another thread or line, nor for a checkpoint or a file.
pub fn line_message(thread: &ThreadId, seq: u64, link: Hash) -> String {
    format!("rye:line:1:{thread}:{seq}:{link}")
}

impl Place<'_> {
    /// What is signed: it cannot stand for another thread, turn or line, nor for a file.
    pub fn message(&self) -> String {
        let Self { thread, turn, seq, before } = self;
        format!("rye:checkpoint:1:{thread}:{turn}:{seq}:{before}")
    }
}
