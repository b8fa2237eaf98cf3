//! Ed25519 keys of the user and the signature line of `language.md` 3. What is signed is the line's own beginning,
//! `rye:signed:TIMESTAMP:SHA256_HEX`, so neither the content nor the time can be exchanged. Keys live in the user
//! space; nothing a project ships is ever read as a key.

mod in_place;
mod store;

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::pkcs8::EncodePublicKey;
use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use rye_compiler::plan::hex;
use rye_grammar::{SourceId, signature};
use sha2::{Digest, Sha256};

pub use in_place::sign_in_place;
pub use store::{KeyError, Keys, TrustedKey};

/// The key of this user, able to sign. Its secret half is never shown, not even in debug output.
pub struct Identity {
    key: SigningKey,
    public_pem: String,
    key_id: String,
}

/// The public keys a user trusts, by key id.
#[derive(Debug, Clone, Default)]
pub struct TrustStore(BTreeMap<String, VerifyingKey>);

/// What the first line of a file came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    Unsigned,
    Signed { key_id: String, timestamp: String },
}

/// Why a signed file must not be read further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureFault {
    #[error("the signature line is not whole")]
    Malformed,
    #[error("the content is not what was signed")]
    Altered,
    #[error("it was signed with the key `{key_id}`, which is not trusted")]
    UnknownKey { key_id: String },
    #[error("the signature was not made with the key `{key_id}`")]
    Forged { key_id: String },
}

/// How a file's language writes a comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comment {
    Markup,
    Hash,
    Slashes,
}

impl Comment {
    /// The comment of a file by its extension.
    pub fn of_extension(extension: &str) -> Option<Self> {
        match extension {
            "md" => Some(Self::Markup),
            "yaml" | "yml" | "py" | "sh" => Some(Self::Hash),
            "js" | "mjs" | "ts" => Some(Self::Slashes),
            _ => None,
        }
    }

    fn wrap(self, text: &str) -> String {
        match self {
            Self::Markup => format!("<!-- {text} -->\n"),
            Self::Hash => format!("# {text}\n"),
            Self::Slashes => format!("// {text}\n"),
        }
    }
}

impl Identity {
    fn new(key: SigningKey) -> Result<Self, KeyError> {
        let public_pem = pem(&key.verifying_key())?;
        let key_id = key_id(&public_pem);
        Ok(Self { key, public_pem, key_id })
    }

    /// A key of this process alone: nobody can vouch for what it signs when the process is gone.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn ephemeral() -> Result<Self, KeyError> {
        let mut secret = [0_u8; 32];
        getrandom::fill(&mut secret).map_err(|e| KeyError::NoRandomness { reason: e.to_string() })?;
        Self::new(SigningKey::from_bytes(&secret))
    }

    /// The public half, base64url without padding.
    pub fn public_text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.key.verifying_key().as_bytes())
    }

    /// The first 16 hex digits of SHA-256 over the public key's PEM.
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    pub fn public_pem(&self) -> &str {
        &self.public_pem
    }

    /// Signs bytes; base64url without padding.
    pub fn sign(&self, message: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(self.key.sign(message).to_bytes())
    }

    /// A file with a new signature line in front, an old one removed. `timestamp` is RFC 3339.
    pub fn sign_file(&self, bytes: &[u8], comment: Comment, timestamp: &str) -> Vec<u8> {
        let content = unsigned(bytes);
        let head = format!("rye:signed:{timestamp}:{}", hex(&Sha256::digest(content)));
        let line = format!("{head}:{}:{}", self.sign(head.as_bytes()), self.key_id);
        let mut out = comment.wrap(&line).into_bytes();
        out.extend_from_slice(content);
        out
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

impl TrustStore {
    /// Adds a public key; answers its id. Weak keys, with which anybody can sign anything, are refused.
    pub fn add(&mut self, key: VerifyingKey) -> Result<String, KeyError> {
        if key.is_weak() {
            return Err(KeyError::Weak);
        }
        let id = key_id(&pem(&key)?);
        self.0.insert(id.clone(), key);
        Ok(id)
    }

    /// Adds a public key as [`Identity::public_text`] writes it; answers its id. `None`: it is no key.
    pub fn add_text(&mut self, public: &str) -> Option<String> {
        let bytes: [u8; 32] = URL_SAFE_NO_PAD.decode(public).ok()?.try_into().ok()?;
        self.add(VerifyingKey::from_bytes(&bytes).ok()?).ok()
    }

    pub fn trusts(&self, key_id: &str) -> bool {
        self.0.contains_key(key_id)
    }

    pub fn key_ids(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Whether bytes carry this signature by this key.
    pub fn verify(&self, key_id: &str, message: &[u8], signature: &str) -> Result<(), SignatureFault> {
        let unknown = || SignatureFault::UnknownKey { key_id: printable(key_id) };
        let key = self.0.get(key_id).ok_or_else(unknown)?;
        let bytes = URL_SAFE_NO_PAD.decode(signature).map_err(|_| SignatureFault::Malformed)?;
        let signature = Signature::from_slice(&bytes).map_err(|_| SignatureFault::Malformed)?;
        let forged = |_| SignatureFault::Forged { key_id: key_id.to_owned() };
        key.verify_strict(message, &signature).map_err(forged)
    }

    /// Looks at a file's signature line. A file that has one and does not verify must not be read further.
    pub fn standing(&self, bytes: &[u8]) -> Result<Standing, SignatureFault> {
        let Some(first) = first_line(bytes) else { return Ok(Standing::Unsigned) };
        let Some(line) = signature::parse(SourceId(0), first).map(|s| s.node) else { return Ok(Standing::Unsigned) };
        let whole = ![&line.timestamp, &line.sha256, &line.signature, &line.key_id].iter().any(|p| p.is_empty());
        if !whole {
            return Err(SignatureFault::Malformed);
        }
        let content = bytes.get(first.len()..).unwrap_or_default();
        if hex(&Sha256::digest(content)) != line.sha256 {
            return Err(SignatureFault::Altered);
        }
        let head = format!("rye:signed:{}:{}", line.timestamp, line.sha256);
        self.verify(&line.key_id, head.as_bytes(), &line.signature)?;
        Ok(Standing::Signed { key_id: line.key_id, timestamp: line.timestamp })
    }
}

/// A file without its signature line.
pub fn unsigned(bytes: &[u8]) -> &[u8] {
    let signed = first_line(bytes).filter(|line| signature::parse(SourceId(0), line).is_some());
    signed.and_then(|line| bytes.get(line.len()..)).unwrap_or(bytes)
}

/// The first line with its end; `None` when it is no text and so no signature.
fn first_line(bytes: &[u8]) -> Option<&str> {
    let end = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1);
    std::str::from_utf8(bytes.get(..end)?).ok()
}

fn pem(key: &VerifyingKey) -> Result<String, KeyError> {
    key.to_public_key_pem(LineEnding::LF).map_err(|e| KeyError::Encoding { reason: e.to_string() })
}

fn key_id(public_pem: &str) -> String {
    hex(&Sha256::digest(public_pem)).chars().take(16).collect()
}

/// What a file claims as its key, short and on one line.
fn printable(key_id: &str) -> String {
    key_id.chars().take(32).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests;
