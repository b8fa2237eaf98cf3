//! Ed25519 keys of the user, and the signature line of `language.md` 3. The signed message is the start of the line,
//! `rye:signed:TIMESTAMP:SHA256_HEX`, so neither content nor time can be replaced. Keys are stored in the user space. A
//! file of a project is never read as a key.

mod sign_file;
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

pub use sign_file::sign_in_place;
pub use store::{KeyError, KeyFolder, TrustedKey, TrustedKeys};

/// The user's signing key. The secret half is never printed, not even in debug output.
pub struct SigningIdentity {
    key: SigningKey,
    public_pem: String,
    key_id: String,
}

/// The public keys that a user trusts, by key id.
#[derive(Debug, Clone, Default)]
pub struct TrustStore(BTreeMap<String, VerifyingKey>);

/// The signature status of a file: unsigned, or signed with a valid signature. An invalid signature is an error
/// instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignatureStatus {
    Unsigned,
    Signed { key_id: String, timestamp: String },
}

/// The reason why a file with a signature line must not be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    #[error("the signature line is malformed")]
    Malformed,
    #[error("the content does not match the signature")]
    Altered,
    #[error("it was signed with the key `{key_id}`, which is not trusted")]
    UnknownKey { key_id: String },
    #[error("the signature was not made with the key `{key_id}`")]
    Forged { key_id: String },
}

/// The comment syntax of a file's language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommentSyntax {
    Markup,
    Hash,
    Slashes,
}

impl CommentSyntax {
    /// Returns the comment syntax of files with this extension; `None` if such files cannot be signed.
    pub(crate) fn of_extension(extension: &str) -> Option<Self> {
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

impl SigningIdentity {
    fn new(key: SigningKey) -> Result<Self, KeyError> {
        let public_pem = encode_pem(&key.verifying_key())?;
        let key_id = key_id(&public_pem);
        Ok(Self { key, public_pem, key_id })
    }

    /// Creates a temporary key of this process. Signatures of this key cannot be verified after the process has ended.
    ///
    /// # Errors
    /// The system cannot provide random numbers.
    pub(crate) fn ephemeral() -> Result<Self, KeyError> {
        let mut secret = [0_u8; 32];
        getrandom::fill(&mut secret).map_err(|e| KeyError::NoRandomness { reason: e.to_string() })?;
        Self::new(SigningKey::from_bytes(&secret))
    }

    /// Returns the public key, base64url without padding.
    pub(crate) fn public_text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.key.verifying_key().as_bytes())
    }

    /// Returns the key id: the first 16 hex digits of SHA-256 over the public key's PEM.
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    #[cfg(test)]
    pub(crate) fn public_pem(&self) -> &str {
        &self.public_pem
    }

    /// Signs `message` and returns the signature in base64url without padding.
    pub fn sign(&self, message: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(self.key.sign(message).to_bytes())
    }

    /// Returns the file with a new signature line as its first line. An old signature line is replaced. `timestamp` is
    /// in RFC 3339 format.
    pub(crate) fn sign_file(&self, bytes: &[u8], comment: CommentSyntax, timestamp: &str) -> Vec<u8> {
        let content = without_signature_line(bytes);
        let mut out = self.signature_line(&[content], comment, timestamp).into_bytes();
        out.extend_from_slice(content);
        out
    }

    /// Signs a file and returns its signature line, including the line end. `parts` are the contents of the file in
    /// pieces, without a signature line.
    pub(crate) fn signature_line(&self, parts: &[&[u8]], comment: CommentSyntax, timestamp: &str) -> String {
        let hash = parts.iter().fold(Sha256::new(), Sha256::chain_update);
        let head = format!("rye:signed:{timestamp}:{}", hex(&hash.finalize()));
        let line = format!("{head}:{}:{}", self.sign(head.as_bytes()), self.key_id);
        comment.wrap(&line)
    }
}

impl fmt::Debug for SigningIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

impl TrustStore {
    /// Adds a public key and returns its id. Weak keys, with which anyone could forge signatures, are refused.
    pub fn add(&mut self, key: VerifyingKey) -> Result<String, KeyError> {
        if key.is_weak() {
            return Err(KeyError::Weak);
        }
        let id = key_id(&encode_pem(&key)?);
        self.0.insert(id.clone(), key);
        Ok(id)
    }

    /// Adds a public key in the format of `SigningIdentity::public_text` and returns its id; `None` if the text is not a
    /// key.
    pub fn add_text(&mut self, public: &str) -> Option<String> {
        let bytes: [u8; 32] = URL_SAFE_NO_PAD.decode(public).ok()?.try_into().ok()?;
        self.add(VerifyingKey::from_bytes(&bytes).ok()?).ok()
    }

    pub fn trusts(&self, key_id: &str) -> bool {
        self.0.contains_key(key_id)
    }

    /// Checks that a trusted key with this id made this signature of the bytes.
    pub fn verify(&self, key_id: &str, message: &[u8], signature: &str) -> Result<(), SignatureError> {
        let unknown = || SignatureError::UnknownKey { key_id: printable_key_id(key_id) };
        let key = self.0.get(key_id).ok_or_else(unknown)?;
        let bytes = URL_SAFE_NO_PAD.decode(signature).map_err(|_| SignatureError::Malformed)?;
        let signature = Signature::from_slice(&bytes).map_err(|_| SignatureError::Malformed)?;
        let forged = |_| SignatureError::Forged { key_id: key_id.to_owned() };
        key.verify_strict(message, &signature).map_err(forged)
    }

    /// Verifies the signature line of a file. A file without a signature line is unsigned, which is not an error. If
    /// verification fails, the file must not be parsed.
    pub(crate) fn verify_file(&self, bytes: &[u8]) -> Result<SignatureStatus, SignatureError> {
        let Some(first) = first_line(bytes) else { return Ok(SignatureStatus::Unsigned) };
        let Some(line) = signature::parse(SourceId(0), first).map(|s| s.node) else {
            return Ok(SignatureStatus::Unsigned);
        };
        let whole = ![&line.timestamp, &line.sha256, &line.signature, &line.key_id].iter().any(|p| p.is_empty());
        if !whole {
            return Err(SignatureError::Malformed);
        }
        let content = bytes.get(first.len()..).unwrap_or_default();
        if hex(&Sha256::digest(content)) != line.sha256 {
            return Err(SignatureError::Altered);
        }
        let head = format!("rye:signed:{}:{}", line.timestamp, line.sha256);
        self.verify(&line.key_id, head.as_bytes(), &line.signature)?;
        Ok(SignatureStatus::Signed { key_id: line.key_id, timestamp: line.timestamp })
    }
}

/// Returns a file without its signature line.
pub(crate) fn without_signature_line(bytes: &[u8]) -> &[u8] {
    let signed = first_line(bytes).filter(|line| signature::parse(SourceId(0), line).is_some());
    signed.and_then(|line| bytes.get(line.len()..)).unwrap_or(bytes)
}

/// Returns the first line with its line end; `None` if the line is not UTF-8 and therefore no signature.
fn first_line(bytes: &[u8]) -> Option<&str> {
    let end = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1);
    std::str::from_utf8(bytes.get(..end)?).ok()
}

fn encode_pem(key: &VerifyingKey) -> Result<String, KeyError> {
    key.to_public_key_pem(LineEnding::LF).map_err(|e| KeyError::Encoding { reason: e.to_string() })
}

fn key_id(public_pem: &str) -> String {
    hex(&Sha256::digest(public_pem)).chars().take(16).collect()
}

/// Returns the key id that a file claims, truncated and escaped for display.
fn printable_key_id(key_id: &str) -> String {
    key_id.chars().take(32).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests;
