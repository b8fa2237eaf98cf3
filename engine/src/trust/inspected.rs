//! Trust requirements with the hashes of their files, which are computed before the user is asked. Trust is recorded
//! for these hashes. If another program changes a file before the user answers, the new contents are not trusted.

use std::collections::BTreeMap;

use rye_compiler::plan::hex;
use rye_compiler::trust::{Subject, TrustRequirement};
use rye_compiler::world::ItemKind;
use sha2::{Digest, Sha256};

use super::{Trust, TrustEntry, TrustError, TrustSnapshot, record};

/// A trust requirement and its files, with the hash of each file at the time of the inspection.
#[derive(Debug)]
pub struct InspectedRequirement {
    subjects: Vec<Subject>,
    /// The hashes by path relative to the project. An error if the requirement covers too many files.
    programs: Result<BTreeMap<String, String>, TrustError>,
    covers_project: bool,
}

impl InspectedRequirement {
    /// Returns the paths of the files that trust in the requirement covers, relative to the project. Empty if there are
    /// too many files.
    pub fn covered_files(&self) -> impl Iterator<Item = &str> {
        self.programs.iter().flat_map(|programs| programs.keys().map(String::as_str))
    }
}

/// A file of the project that a command of the user has written or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenFile {
    /// The path relative to the project.
    path: String,
    /// The hash of the content that the command replaced; `None` if the file did not exist.
    before: Option<String>,
    /// The hash of the new content; `None` if the command removed the file.
    after: Option<String>,
}

impl WrittenFile {
    pub fn new(path: String, before: Option<&[u8]>, after: Option<&[u8]>) -> Self {
        let hash = |bytes: Option<&[u8]>| bytes.map(|bytes| hex(&Sha256::digest(bytes)));
        Self { path, before: hash(before), after: hash(after) }
    }

    /// Returns the trust subject of the file: the tool `id` with the hash of the new content. Returns `None` if the
    /// command that wrote the file removed it.
    pub fn tool(&self, id: String) -> Option<Subject> {
        Some(Subject { kind: ItemKind::Tool, id, sha256: self.after.clone()? })
    }
}

impl Trust {
    /// Computes the hashes of the files that trust in these requirements covers.
    pub fn inspect(&self, all: &[TrustRequirement]) -> Result<Vec<InspectedRequirement>, TrustError> {
        let file = self.file()?;
        let inspect = |one: &TrustRequirement| {
            let (programs, covers_project) = match file.named_files(one) {
                Ok(files) => (Ok(files.hashes), files.covers_project),
                Err(error @ TrustError::TooLarge { .. }) => (Err(error), true),
                Err(error) => return Err(error),
            };
            Ok(InspectedRequirement { subjects: one.subjects.clone(), programs, covers_project })
        };
        all.iter().map(inspect).collect()
    }

    /// Records trust in these requirements with the inspected contents of their files, in addition to existing trust.
    /// If a file is new or changed, removes the capabilities and commands that were approved for the project.
    pub fn record_inspected(&self, all: &[InspectedRequirement]) -> Result<(), TrustError> {
        let file = self.file()?;
        let _lock = record::lock(&file.path)?;
        let mut record = record::read(&file.path, &file.project)?;
        let (mut too_large, mut is_changed) = (None, false);
        for InspectedRequirement { subjects, programs, covers_project: _ } in all {
            let programs = match programs {
                Ok(programs) => programs,
                Err(error) => {
                    too_large = Some(error);
                    continue;
                }
            };
            for subject in subjects {
                // Earlier versions of a directive stay trusted, so that their threads can be resumed after an edit of
                // the directive.
                let replaces = |entry: &TrustEntry| {
                    entry.is_for(subject) && (subject.kind != ItemKind::Directive || entry.sha256 == subject.sha256)
                };
                let known = record.trusted.iter().position(replaces).map(|at| record.trusted.swap_remove(at));
                let mut entry = TrustEntry::new(subject);
                if let Some(before) = known.as_ref().filter(|before| before.sha256 == entry.sha256) {
                    entry.programs.clone_from(&before.programs);
                }
                entry.programs.extend(programs.clone());
                is_changed |= known.as_ref() != Some(&entry);
                record.trusted.push(entry);
            }
        }
        // The user approved the capabilities for the earlier files, so a change revokes these approvals.
        if is_changed {
            record.capabilities.clear();
            record.commands.clear();
        }
        record.trusted.sort();
        record::write(&file.path, &record)?;
        match too_large {
            Some(TrustError::TooLarge { path, reason }) => {
                Err(TrustError::TooLarge { path: path.clone(), reason: reason.clone() })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Keeps requirements trusted after a command of the user has written files that they cover. `held` are the
    /// requirements that were trusted before the command. Records the hash of each written file if its content before
    /// the command was trusted, or if a requirement that covers the whole project gets a new file. The recorded hash is
    /// that of the content that the command wrote. If another program changes the file, the user must trust it again.
    pub fn record_written(&self, held: &[InspectedRequirement], written: &[WrittenFile]) -> Result<(), TrustError> {
        let file = self.file()?;
        let _lock = record::lock(&file.path)?;
        let mut record = record::read(&file.path, &file.project)?;
        let earlier = record.clone();
        for one in held {
            let Ok(inspected) = &one.programs else { continue };
            let is_held = |entry: &&mut TrustEntry| {
                one.subjects.iter().any(|subject| entry.is_for(subject) && entry.sha256 == subject.sha256)
            };
            for entry in record.trusted.iter_mut().filter(is_held) {
                for WrittenFile { path, before, after } in written {
                    let Some(after) = after else { continue };
                    let was_trusted = match before {
                        Some(before) => entry.programs.get(path) == Some(before),
                        // A file that the command has created is covered if the requirement covers the whole project.
                        None => one.covers_project && !inspected.contains_key(path),
                    };
                    if was_trusted {
                        entry.programs.insert(path.clone(), after.clone());
                    }
                }
            }
        }
        if record == earlier { Ok(()) } else { record::write(&file.path, &record) }
    }
}

impl TrustSnapshot<'_> {
    /// Returns the trusted requirements in `all`, with the current hashes of their files. Empty if trust is not read
    /// from a record.
    pub fn held(&self, all: &[TrustRequirement]) -> Result<Vec<InspectedRequirement>, TrustError> {
        let Trust::Recorded(_) = self.trust else { return Ok(Vec::new()) };
        let mut held = Vec::new();
        for one in all {
            let inspected = self.trust.inspect(std::slice::from_ref(one))?;
            if self.covers(one)? {
                held.extend(inspected);
            }
        }
        Ok(held)
    }
}

#[cfg(test)]
mod tests;
