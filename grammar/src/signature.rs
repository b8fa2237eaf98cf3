//! The signature line: `rye:signed:TIMESTAMP:SHA256_HEX:ED25519_B64URL:KEYID` in a comment, first line of a file.

/// A signature line taken apart; nothing here says whether it verifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureLine {
    /// As written, RFC 3339.
    pub timestamp: String,
    /// SHA-256 of every byte after the signature line, lowercase hex.
    pub sha256: String,
    /// Ed25519 signature, base64url without padding.
    pub signature: String,
    /// First 16 hex digits of SHA-256 over the public key PEM.
    pub key_id: String,
    /// Byte offset at which the signed content begins.
    pub content_start: usize,
}
