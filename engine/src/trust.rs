//! The user's trust in the requirements of projects (`language.md` 7 and 9): one file per project in the user space,
//! with the hashes of everything that the user trusts. Files of a project never count as trust.

mod files;
mod git_settings;
mod inspected;
mod loaded_files;
mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::{fs, io};

use rye_compiler::trust::{Subject, TrustRequirement, TrustRequirementKind};
use rye_compiler::world::ItemKind;

use crate::user_space::project_folder_name;
pub use inspected::{InspectedRequirement, WrittenFile};
pub use record::{ApprovedCommands, TrustEntry, TrustRecord};

/// Folder of the trust records, below `.ai/` of the user space.
const RECORD_FOLDER: &str = "trust";

/// The source from which a project's trust decisions are read.
#[derive(Debug, Clone, Default)]
pub enum Trust {
    /// Nothing is trusted, because there is no user space that could hold a trust record.
    #[default]
    Nothing,
    /// Everything is trusted: the project is the user's own space, or belongs to a test.
    Everything,
    Recorded(TrustFile),
}

/// The trust record of one project.
#[derive(Debug, Clone)]
pub struct TrustFile {
    path: PathBuf,
    project: PathBuf,
    /// The files that were shipped with this program. Their hashes are computed only when the trust record does not
    /// cover a requirement.
    shipped: Arc<LazyLock<BTreeSet<Subject>, ShippedFiles>>,
}

/// Computes the hashes of the files that were shipped with this program.
type ShippedFiles = Box<dyn FnOnce() -> BTreeSet<Subject> + Send>;

/// The trust decisions at one moment.
#[derive(Debug, Clone)]
pub struct TrustSnapshot<'t> {
    trust: &'t Trust,
    record: TrustRecord,
}

/// An error while reading or recording trust.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("`{}`: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("`{}` can be written by others; run `chmod go-w` on it", path.display())]
    Exposed { path: PathBuf },
    #[error("the trust file `{}` cannot be read: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: String },
    #[error("`{}` cannot be trusted as a whole: {reason}; name files in the command, not the folder", path.display())]
    TooLarge { path: PathBuf, reason: String },
    #[error("no user space to store trust in: set `RYE_USER_SPACE` or `HOME`")]
    NoUserSpace,
}

impl Trust {
    /// Returns the trust that a user's record holds for a project. Reads no file. The record is read whenever trust is
    /// checked. `user` and `project` are roots, the folders that contain `.ai`. `shipped` returns the files compiled
    /// into this program, which the user trusts by running it.
    pub fn recorded(user: &Path, project: &Path, shipped: impl FnOnce() -> BTreeSet<Subject> + Send + 'static) -> Self {
        let name = project_folder_name(project);
        let path = user.join(".ai").join(RECORD_FOLDER).join(format!("{name}.json"));
        let shipped: ShippedFiles = Box::new(shipped);
        Self::Recorded(TrustFile { path, project: project.to_path_buf(), shipped: Arc::new(LazyLock::new(shipped)) })
    }

    /// Reads the trust records of a user, sorted by project.
    ///
    /// # Errors
    /// The folder or a record cannot be read.
    pub fn read_records(user: &Path) -> Result<Vec<TrustRecord>, TrustError> {
        let folder = user.join(".ai").join(RECORD_FOLDER);
        let fail = |source| TrustError::Io { path: folder.clone(), source };
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(fail(source)),
        };
        let mut records = Vec::new();
        for entry in entries {
            let path = entry.map_err(fail)?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                records.push(record::read(&path, Path::new(""))?);
            }
        }
        records.sort_by(|a, b| a.project.cmp(&b.project));
        Ok(records)
    }

    /// Reads the current trust. A revocation applies to all threads that start later.
    pub fn snapshot(&self) -> Result<TrustSnapshot<'_>, TrustError> {
        let record = match self {
            Self::Nothing | Self::Everything => TrustRecord::default(),
            Self::Recorded(file) => record::read(&file.path, &file.project)?,
        };
        Ok(TrustSnapshot { trust: self, record })
    }

    /// Records trust in these requirements with their current files, in addition to existing trust. If a file is new or
    /// changed, removes the capabilities and commands that were approved for the project.
    pub fn record_trust(&self, all: &[TrustRequirement]) -> Result<(), TrustError> {
        self.record_inspected(&self.inspect(all)?)
    }

    /// Records that the threads of this project may use a capability without approval. The capability is recorded
    /// literally: a wildcard in it has no effect.
    pub fn record_capability(&self, capability: &str) -> Result<(), TrustError> {
        let file = self.file()?;
        let _lock = record::lock(&file.path)?;
        let mut record = record::read(&file.path, &file.project)?;
        if !record.capabilities.iter().any(|known| known == capability) {
            record.capabilities.push(capability.to_owned());
            record.capabilities.sort();
        }
        record::write(&file.path, &record)
    }

    /// Records that the threads of this project may run these commands without approval.
    pub fn record_commands(&self, approved: ApprovedCommands) -> Result<(), TrustError> {
        let file = self.file()?;
        let _lock = record::lock(&file.path)?;
        let mut record = record::read(&file.path, &file.project)?;
        if !record.commands.contains(&approved) {
            record.commands.push(approved);
            record.commands.sort();
        }
        record::write(&file.path, &record)
    }

    /// Removes one approval: the capability with this name, or the commands that start with these words. Returns false
    /// if the project has no such approval.
    pub fn remove_approval(&self, approval: &str) -> Result<bool, TrustError> {
        let file = self.file()?;
        if !file.path.exists() {
            return Ok(false);
        }
        let _lock = record::lock(&file.path)?;
        let mut record = record::read(&file.path, &file.project)?;
        let before = record.capabilities.len() + record.commands.len();
        record.capabilities.retain(|known| known != approval);
        record.commands.retain(|known| known.starts_with.join(" ") != approval);
        let is_removed = record.capabilities.len() + record.commands.len() < before;
        if is_removed {
            record::write(&file.path, &record)?;
        }
        Ok(is_removed)
    }

    /// Deletes the trust record. Returns true if there was one.
    pub fn delete_record(&self) -> Result<bool, TrustError> {
        let file = self.file()?;
        if !file.path.exists() {
            return Ok(false);
        }
        let _lock = record::lock(&file.path)?;
        match fs::remove_file(&file.path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(TrustError::Io { path: file.path.clone(), source }),
        }
    }

    /// Returns the path at which the trust record is stored; `None` if trust is not read from a record.
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

impl TrustSnapshot<'_> {
    /// Returns the untrusted requirements, in the given order.
    pub fn missing<'e>(&self, all: &'e [TrustRequirement]) -> Result<Vec<&'e TrustRequirement>, TrustError> {
        let mut missing = Vec::new();
        for one in all {
            if !self.covers(one)? {
                missing.push(one);
            }
        }
        Ok(missing)
    }

    /// Returns the reason why trust in a requirement covers every file of the project: a program, and how it loads or
    /// starts files. `None` if trust covers only named files.
    pub fn whole_project_reason(&self, one: &TrustRequirement) -> Option<String> {
        match self.trust {
            Trust::Nothing | Trust::Everything => None,
            Trust::Recorded(file) => file.named_files(one).ok()?.whole_project,
        }
    }

    /// Returns the paths of the files that changed, or that are new, since the user trusted a requirement whose own
    /// file is unchanged. Empty if the user never trusted it.
    pub fn changed_files(&self, one: &TrustRequirement) -> Vec<String> {
        let Trust::Recorded(file) = self.trust else { return Vec::new() };
        let Ok(programs) = file.programs(one) else { return Vec::new() };
        let is_same = |entry: &&TrustEntry| {
            one.subjects.iter().any(|subject| entry.is_for(subject) && entry.sha256 == subject.sha256)
        };
        let Some(entry) = self.record.trusted.iter().find(is_same) else { return Vec::new() };
        programs
            .into_iter()
            .filter(|(path, sha256)| entry.programs.get(path) != Some(sha256))
            .map(|(path, _)| path)
            .collect()
    }

    /// Returns true if the user has approved a capability for this project's threads.
    pub fn allows(&self, capability: &str) -> bool {
        self.record.capabilities.iter().any(|known| known == capability)
    }

    /// Returns the capabilities that the user has approved for this project's threads.
    pub fn capabilities(&self) -> &[String] {
        &self.record.capabilities
    }

    /// Returns the commands that the user has approved for this project's threads.
    pub fn commands(&self) -> &[ApprovedCommands] {
        &self.record.commands
    }

    /// Returns true if the user trusts any version of the project's file for this provider. The current version of the
    /// file is checked when a thread starts.
    pub(crate) fn trusts_provider(&self, id: &str) -> bool {
        let name = format!("agent/providers/{id}");
        matches!(self.trust, Trust::Everything) || self.record.trusted.iter().any(|entry| entry.id == name)
    }

    fn covers(&self, one: &TrustRequirement) -> Result<bool, TrustError> {
        let file = match self.trust {
            Trust::Everything => return Ok(true),
            Trust::Nothing => return Ok(false),
            Trust::Recorded(file) => file,
        };
        let programs = match file.programs(one) {
            Ok(programs) => programs,
            Err(TrustError::TooLarge { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        if one.kind == TrustRequirementKind::Script && programs.is_empty() && !file.exists(&one.name) {
            // A script that does not exist cannot replace a model, so it needs no trust.
            return Ok(true);
        }
        let is_shipped = |subject: &Subject| {
            file.shipped.contains(subject)
                && programs.iter().all(|(path, sha256)| file.shipped.contains(&shipped_file(path, sha256)))
        };
        let holds = |subject: &Subject| {
            let same = |entry: &TrustEntry| {
                entry.is_for(subject)
                    && entry.sha256 == subject.sha256
                    && programs.iter().all(|(path, sha256)| entry.programs.get(path) == Some(sha256))
            };
            self.record.trusted.iter().any(same) || is_shipped(subject)
        };
        Ok(!one.subjects.is_empty() && one.subjects.iter().all(holds))
    }
}

/// Returns the [`Subject`] by which a file that is compiled into the program is trusted. The id starts with `file:`,
/// because the file is not an item.
pub fn shipped_file(path: &str, sha256: &str) -> Subject {
    Subject { kind: ItemKind::Config, id: format!("file:{path}"), sha256: sha256.to_owned() }
}

impl TrustFile {
    fn exists(&self, path: &str) -> bool {
        fs::symlink_metadata(self.project.join(path)).is_ok()
    }

    /// Returns the files that the commands of a requirement name, with their hashes. Files outside of the project are
    /// left out, except for a script that simulates the model.
    fn programs(&self, one: &TrustRequirement) -> Result<BTreeMap<String, String>, TrustError> {
        self.named_files(one).map(|files| files.hashes)
    }

    fn named_files(&self, one: &TrustRequirement) -> Result<files::NamedFiles<'_>, TrustError> {
        let mut files = files::NamedFiles::new(&self.project);
        files.leave_out_unreadable(&one.programs);
        for word in &one.programs {
            if one.kind == TrustRequirementKind::Script {
                files.add_script(word)?;
            } else {
                files.add_word(word)?;
            }
        }
        Ok(files)
    }
}

#[cfg(test)]
mod tests;
