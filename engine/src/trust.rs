//! Whether the user trusts what a project requires (`language.md` 7 and 9): for each project one file in the user space
//! with the hashes of what was shown and allowed. Nothing that a project ships is ever read as trust.

mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::{fs, io};

use rye_compiler::plan::hex;
use rye_compiler::trust::{Executes, ExecutesKind, Subject};
use rye_compiler::world::ItemKind;
use sha2::{Digest, Sha256};

pub use record::{Entry, Record};

/// Bytes of a program's file that are hashed; a larger one cannot be trusted.
const MAX_PROGRAM: u64 = 256 << 20;

/// Where trust is looked up.
#[derive(Debug, Clone, Default)]
pub enum Trust {
    /// Nothing that a project executes is trusted: there is no user space to remember it in.
    #[default]
    Nothing,
    /// The project is the user's own space, or a test's.
    Everything,
    Recorded(TrustFile),
}

/// The record of one project.
#[derive(Debug, Clone)]
pub struct TrustFile {
    path: PathBuf,
    project: PathBuf,
    /// Files that came with this program.
    shipped: BTreeSet<Subject>,
}

/// What is trusted now.
#[derive(Debug, Clone)]
pub struct Trusted<'t> {
    trust: &'t Trust,
    record: Record,
}

/// Why trust cannot be told or kept.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("`{}`: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("`{}` can be written by others; run `chmod go-w` on it", path.display())]
    Exposed { path: PathBuf },
    #[error("`{}` is no record of trust: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: String },
    #[error("there is no user space to remember trust in: set `RYE_USER_SPACE` or `HOME`")]
    NoUserSpace,
}

impl Trust {
    /// The trust of a user in a project; both are roots, the folders that hold `.ai`. `shipped` are files compiled into
    /// this program, which its user trusts by running it.
    pub fn of(user: &Path, project: &Path, shipped: BTreeSet<Subject>) -> Self {
        let name = hex(&Sha256::digest(project.as_os_str().as_encoded_bytes()));
        let name = name.get(..32).unwrap_or(&name);
        let path = user.join(".ai").join("trust").join(format!("{name}.json"));
        Self::Recorded(TrustFile { path, project: project.to_path_buf(), shipped })
    }

    /// What is trusted at this moment: a revocation counts for everything that begins after it.
    pub fn now(&self) -> Result<Trusted<'_>, TrustError> {
        let record = match self {
            Self::Nothing | Self::Everything => Record::default(),
            Self::Recorded(file) => record::read(&file.path, &file.project)?,
        };
        Ok(Trusted { trust: self, record })
    }

    /// Remembers that all of this may be executed, beside what is trusted already.
    pub fn allow(&self, all: &[Executes]) -> Result<(), TrustError> {
        let file = self.file()?;
        let mut record = record::read(&file.path, &file.project)?;
        for one in all {
            let programs = file.programs(one)?;
            for subject in &one.subjects {
                // A directive's former text stays trusted: threads that it started can be resumed after an edit.
                let replaces = |entry: &Entry| {
                    entry.is_of(subject) && (subject.kind != ItemKind::Directive || entry.sha256 == subject.sha256)
                };
                let known = record.trusted.iter().position(replaces);
                let mut entry = Entry::new(subject);
                if let Some(at) = known {
                    let before = record.trusted.swap_remove(at);
                    if before.sha256 == entry.sha256 {
                        entry.programs = before.programs;
                    }
                }
                entry.programs.extend(programs.clone());
                record.trusted.push(entry);
            }
        }
        record.trusted.sort();
        record::write(&file.path, &record)
    }

    /// Remembers that a person lets this project's threads use a capability without being asked again. Never a pattern.
    pub fn remember(&self, capability: &str) -> Result<(), TrustError> {
        let file = self.file()?;
        let mut record = record::read(&file.path, &file.project)?;
        if !record.capabilities.iter().any(|known| known == capability) {
            record.capabilities.push(capability.to_owned());
            record.capabilities.sort();
        }
        record::write(&file.path, &record)
    }

    /// Forgets what was allowed; answers whether anything was.
    pub fn forget(&self) -> Result<bool, TrustError> {
        let file = self.file()?;
        match fs::remove_file(&file.path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(TrustError::Io { path: file.path.clone(), source }),
        }
    }

    /// The file that remembers, where there is one.
    pub fn path(&self) -> Option<&Path> {
        self.file().ok().map(|file| file.path.as_path())
    }

    fn file(&self) -> Result<&TrustFile, TrustError> {
        match self {
            Self::Recorded(file) => Ok(file),
            Self::Nothing | Self::Everything => Err(TrustError::NoUserSpace),
        }
    }
}

impl Trusted<'_> {
    /// What of this is not trusted, in the order given.
    pub fn missing<'e>(&self, all: &'e [Executes]) -> Result<Vec<&'e Executes>, TrustError> {
        let mut missing = Vec::new();
        for one in all {
            if !self.covers(one)? {
                missing.push(one);
            }
        }
        Ok(missing)
    }

    /// Whether a person has let this project's threads use a capability.
    pub fn allows(&self, capability: &str) -> bool {
        self.record.capabilities.iter().any(|known| known == capability)
    }

    /// The capabilities that a person has let this project's threads use.
    pub fn capabilities(&self) -> &[String] {
        &self.record.capabilities
    }

    /// Whether a provider that a project points elsewhere is among what is trusted. Which version of its file is, has
    /// been asked when the thread began.
    pub fn knows_provider(&self, id: &str) -> bool {
        let name = format!("agent/providers/{id}");
        matches!(self.trust, Trust::Everything) || self.record.trusted.iter().any(|entry| entry.id == name)
    }

    fn covers(&self, one: &Executes) -> Result<bool, TrustError> {
        let file = match self.trust {
            Trust::Everything => return Ok(true),
            Trust::Nothing => return Ok(false),
            Trust::Recorded(file) => file,
        };
        let programs = file.programs(one)?;
        if one.kind == ExecutesKind::Script && programs.is_empty() && !file.is_there(&one.name) {
            // A script that does not exist simulates nothing.
            return Ok(true);
        }
        let shipped = programs.iter().all(|(path, sha256)| file.shipped.contains(&shipped_file(path, sha256)));
        let holds = |subject: &Subject| {
            let same = |entry: &Entry| {
                entry.is_of(subject)
                    && entry.sha256 == subject.sha256
                    && programs.iter().all(|(path, sha256)| entry.programs.get(path) == Some(sha256))
            };
            self.record.trusted.iter().any(same) || (shipped && file.shipped.contains(subject))
        };
        Ok(!one.subjects.is_empty() && one.subjects.iter().all(holds))
    }
}

/// A file compiled into this program that is no item, for the set of shipped subjects.
pub fn shipped_file(path: &str, sha256: &str) -> Subject {
    Subject { kind: ItemKind::Config, id: format!("file:{path}"), sha256: sha256.to_owned() }
}

impl TrustFile {
    fn is_there(&self, path: &str) -> bool {
        fs::symlink_metadata(self.project.join(path)).is_ok()
    }

    /// The files of the project that a command names, with their hashes. A script counts wherever it lies.
    fn programs(&self, one: &Executes) -> Result<BTreeMap<String, String>, TrustError> {
        let mut found = BTreeMap::new();
        for part in &one.programs {
            let path = self.project.join(part);
            let Ok(real) = path.canonicalize() else { continue };
            let counts = real.starts_with(&self.project) || one.kind == ExecutesKind::Script;
            if !counts || !real.is_file() {
                continue;
            }
            let fail = |source| TrustError::Io { path: path.clone(), source };
            let mut bytes = Vec::new();
            fs::File::open(&real).and_then(|file| file.take(MAX_PROGRAM).read_to_end(&mut bytes)).map_err(fail)?;
            found.insert(part.clone(), hex(&Sha256::digest(&bytes)));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests;
