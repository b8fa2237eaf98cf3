//! The user's key files: `private.pem`, `public.pem`, and trusted public keys in `trusted/`. Only this module reads and
//! writes them.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{DecodePrivateKey, DecodePublicKey, EncodePrivateKey};
use ed25519_dalek::{SigningKey, VerifyingKey};

use super::{SigningIdentity, TrustStore, encode_pem};
use crate::user_space::{Watched, WatchedValue};

const MAX_KEY_FILE_BYTES: u64 = 16 * 1024;
const PRIVATE_KEY_FILE: &str = "private.pem";
const PUBLIC_KEY_FILE: &str = "public.pem";
const TRUSTED_FOLDER: &str = "trusted";

/// The key folder of a user space: `.ai/keys`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFolder {
    folder: PathBuf,
}

/// The reason why keys cannot be used. Messages never contain key material.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("the key `{}` can be read by others; run `chmod 600` on it", path.display())]
    Exposed { path: PathBuf },
    #[error("`{}` is not an Ed25519 key in PEM format", path.display())]
    NotAKey { path: PathBuf },
    #[error("`{}`: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("this key is weak: anyone could forge its signatures")]
    Weak,
    #[error("the key cannot be written: {reason}")]
    Encoding { reason: String },
    #[error("no random numbers available to generate a key: {reason}")]
    NoRandomness { reason: String },
}

impl KeyFolder {
    /// Returns the keys of a user space, given its root (the folder that contains `.ai`).
    pub fn of_user_space(root: &Path) -> Self {
        Self { folder: root.join(".ai").join("keys") }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the user's key; `None` if there is none.
    pub fn load(&self) -> Result<Option<SigningIdentity>, KeyError> {
        let path = self.folder.join(PRIVATE_KEY_FILE);
        let Some((file, text)) = read_key_file(&path)? else { return Ok(None) };
        let metadata = file.metadata().map_err(|source| KeyError::Io { path: path.clone(), source })?;
        if metadata.mode() & 0o077 != 0 {
            return Err(KeyError::Exposed { path });
        }
        let key = SigningKey::from_pkcs8_pem(&text).map_err(|_| KeyError::NotAKey { path })?;
        SigningIdentity::new(key).map(Some)
    }

    /// Returns the user's key. Generates a key if there is none. Processes that do this at the same time get the same
    /// key.
    pub fn load_or_generate(&self) -> Result<SigningIdentity, KeyError> {
        if let Some(identity) = self.load()? {
            return Ok(identity);
        }
        let identity = SigningIdentity::ephemeral()?;
        let private =
            identity.key.to_pkcs8_pem(LineEnding::LF).map_err(|e| KeyError::Encoding { reason: e.to_string() })?;
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).map_err(io_error(&self.folder))?;
        let fresh = write_new_file(&self.folder, PRIVATE_KEY_FILE, private.as_bytes(), 0o600)?;
        if !fresh {
            let path = self.folder.join(PRIVATE_KEY_FILE);
            return self.load()?.ok_or(KeyError::NotAKey { path });
        }
        write_new_file(&self.folder, PUBLIC_KEY_FILE, identity.public_pem.as_bytes(), 0o644)?;
        Ok(identity)
    }

    /// Returns the trusted keys: the user's own key and the keys in `trusted/`.
    pub fn trust_store(&self) -> Result<TrustStore, KeyError> {
        let mut store = TrustStore::default();
        if let Some(own) = self.load()? {
            store.add(own.key.verifying_key())?;
        }
        for path in self.trusted_files()? {
            store.add(read_public_key(&path)?)?;
        }
        Ok(store)
    }

    /// Trusts a public key given as PEM and returns its id.
    pub fn trust(&self, public_pem: &str) -> Result<String, KeyError> {
        let folder = self.folder.join(TRUSTED_FOLDER);
        let not_a_key = |_| KeyError::NotAKey { path: PathBuf::from("the given text") };
        let key = VerifyingKey::from_public_key_pem(public_pem.trim()).map_err(not_a_key)?;
        let id = TrustStore::default().add(key)?;
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(io_error(&folder))?;
        write_new_file(&folder, &format!("{id}.pem"), encode_pem(&key)?.as_bytes(), 0o644)?;
        Ok(id)
    }
}

/// The trusted keys of a user, which are read again only after a key file has changed.
pub struct TrustedKeys {
    keys: KeyFolder,
    known: Mutex<Option<WatchedValue<TrustStore>>>,
}

impl TrustedKeys {
    pub fn new(keys: KeyFolder) -> Self {
        Self { keys, known: Mutex::default() }
    }

    /// Returns the trusted keys in their present state.
    ///
    /// # Errors
    /// A key file cannot be read, or holds no key.
    pub fn current(&self) -> Result<TrustStore, KeyError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.as_ref().filter(|known| known.is_current()) {
            return Ok(known.value().clone());
        }
        let read = WatchedValue::read(|| self.keys.watched_paths(), || self.keys.trust_store())?;
        let store = read.value().clone();
        *known = Some(read);
        Ok(store)
    }
}

/// A trusted key with its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedKey {
    pub key_id: String,
    /// True for the user's own key.
    pub own: bool,
    pub path: PathBuf,
}

impl KeyFolder {
    /// Returns every trusted key, the user's own key first.
    pub fn list(&self) -> Result<Vec<TrustedKey>, KeyError> {
        let mut keys = Vec::new();
        if let Some(own) = self.load()? {
            keys.push(TrustedKey {
                key_id: own.key_id().to_owned(),
                own: true,
                path: self.folder.join(PRIVATE_KEY_FILE),
            });
        }
        for path in self.trusted_files()? {
            let key_id = TrustStore::default().add(read_public_key(&path)?)?;
            keys.push(TrustedKey { key_id, own: false, path });
        }
        Ok(keys)
    }

    /// Removes another user's key from the trusted keys. Returns false if the key was not trusted.
    pub fn revoke(&self, key_id: &str) -> Result<bool, KeyError> {
        let mut revoked = false;
        for key in self.list()?.into_iter().filter(|key| !key.own && key.key_id == key_id) {
            fs::remove_file(&key.path).map_err(io_error(&key.path))?;
            revoked = true;
        }
        Ok(revoked)
    }

    /// Returns the files and folders on which [`Self::trust_store`] depends.
    fn watched_paths(&self) -> BTreeMap<PathBuf, Watched> {
        let mut paths = vec![self.folder.clone(), self.folder.join(PRIVATE_KEY_FILE), self.folder.join(TRUSTED_FOLDER)];
        paths.extend(self.trusted_files().unwrap_or_default());
        paths.into_iter().map(|path| (path, Watched::Entries)).collect()
    }

    /// Returns the files in `trusted/`, sorted.
    fn trusted_files(&self) -> Result<Vec<PathBuf>, KeyError> {
        let folder = self.folder.join(TRUSTED_FOLDER);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(KeyError::Io { path: folder, source }),
        };
        let mut found = Vec::new();
        for entry in entries {
            found.push(entry.map_err(io_error(&folder))?.path());
        }
        found.retain(|path| path.extension().is_some_and(|e| e == "pem"));
        found.sort();
        Ok(found)
    }
}

/// Returns a function that converts an I/O error at this path to a [`KeyError`].
fn io_error(path: &Path) -> impl Fn(io::Error) -> KeyError + use<> {
    let path = path.to_owned();
    move |source| KeyError::Io { path: path.clone(), source }
}

fn read_public_key(path: &Path) -> Result<VerifyingKey, KeyError> {
    let not_a_key = || KeyError::NotAKey { path: path.to_owned() };
    let (_, text) = read_key_file(path)?.ok_or_else(not_a_key)?;
    VerifyingKey::from_public_key_pem(&text).map_err(|_| not_a_key())
}

fn read_key_file(path: &Path) -> Result<Option<(File, String)>, KeyError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(io_error(path)(source)),
    };
    let mut text = String::new();
    (&file)
        .take(MAX_KEY_FILE_BYTES)
        .read_to_string(&mut text)
        .map_err(|_| KeyError::NotAKey { path: path.to_owned() })?;
    Ok(Some((file, text)))
}

/// Writes a file under a temporary name, and then links the file to its final name if that name is free. Returns false
/// if the name is taken.
fn write_new_file(folder: &Path, name: &str, bytes: &[u8], mode: u32) -> Result<bool, KeyError> {
    let path = folder.join(name);
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random).map_err(|e| KeyError::NoRandomness { reason: e.to_string() })?;
    let temporary = folder.join(format!(".{name}.{:016x}.tmp", u64::from_le_bytes(random)));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&temporary)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()));
    let linked = written.and_then(|()| fs::hard_link(&temporary, &path));
    fs::remove_file(&temporary).ok();
    match linked {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(io_error(&path)(e)),
    }
}
