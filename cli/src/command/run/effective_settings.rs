//! Settings of a run that a resume preserves: `--unattended`, `--script` and `--locked`. A flag of the resuming command
//! overrides the recorded value.

use std::path::Path;

use rye::ScriptedProviders;
use rye_compiler::approvals::HeadlessPolicy;
use rye_compiler::report::lock::Lock;
use rye_engine::engine::{EngineError, EngineOptions};
use rye_engine::event::CommandSettings;
use rye_engine::signer::Signer;
use rye_engine::threads::Threads;

use super::start::{RunOptions, ThreadStart};
use crate::CommandError;
use crate::lockfile;
use crate::workspace::Spaces;

/// The settings of a run. An option of the command overrides the setting that the resumed thread has recorded.
pub struct EffectiveSettings {
    pub settings: CommandSettings,
    /// The lock file, if the resumed thread was started with `--locked` and the command has no lock file of its own.
    /// Always `None` in a silent run (`RunOptions::silent`).
    pub lock: Option<Lock>,
    /// The recorded settings that no option of the command overrides.
    kept: CommandSettings,
}

impl EffectiveSettings {
    /// Merges the options of the command with the settings of the resumed thread. `policy` is the headless policy of
    /// the settings files.
    pub fn merge(
        start: &ThreadStart,
        how: RunOptions<'_>,
        policy: HeadlessPolicy,
        options: &EngineOptions,
        spaces: &Spaces,
    ) -> Result<Self, CommandError> {
        let mut kept = match start.existing_thread() {
            // A damaged transcript is refused when the engine verifies it.
            Some(thread) => Threads::open_lenient(&spaces.project)?.settings(thread).unwrap_or_default(),
            None => CommandSettings::default(),
        };
        // Without a signing key, anyone could have written the transcript: its headless policy applies only if it is
        // stricter than the policy of the settings files.
        if Signer::load(options.keys.as_ref()).map_err(EngineError::from)?.is_keyless() {
            kept.unattended = kept.unattended.map(|recorded| recorded.max(policy));
        }
        kept.unattended = kept.unattended.filter(|_| how.unattended.is_none());
        // A model that the command names replaces the recorded script.
        kept.script = kept.script.filter(|_| how.script.is_none() && how.model.is_none());
        // A silent run only ends the thread, so it needs no lock file.
        kept.locked &= how.lock.is_none() && !how.silent;
        let lock = if kept.locked { Some(lockfile::read_required(&spaces.project)?) } else { None };
        let given = how.script.map(|file| std::path::absolute(file).map(|file| file.display().to_string()));
        let settings = CommandSettings {
            unattended: how.unattended.or(kept.unattended).or(how.unattended_default),
            script: given.transpose()?.or_else(|| kept.script.clone()),
            locked: how.lock.is_some() || kept.locked,
        };
        Ok(Self { settings, lock, kept })
    }

    /// Reads the script that simulates the models: the script that the command names, else the recorded script of the
    /// thread. `None` if there is neither. Fails if the recorded script cannot be read. In a silent run
    /// (`RunOptions::silent`), returns `None` in this case, because such a run only ends the thread and calls no model.
    pub fn script_providers(&self, how: RunOptions<'_>) -> Result<Option<ScriptedProviders>, CommandError> {
        if let Some(file) = how.script {
            return read_script(file).map(Some);
        }
        let Some(file) = &self.kept.script else { return Ok(None) };
        match read_script(Path::new(file)) {
            Ok(providers) => Ok(Some(providers)),
            Err(_) if how.silent => Ok(None),
            Err(failure) => {
                Err(failure.with_help("the run started with this script; name another script with `rye run --script`"))
            }
        }
    }

    /// Returns a note that lists the options that a resume keeps from the resumed thread; `None` if it keeps none.
    pub fn describe(&self) -> Option<String> {
        let CommandSettings { unattended, script, locked } = &self.kept;
        let flags = [
            unattended.map(|policy| format!("`--unattended {}`", policy.as_str())),
            script.as_ref().map(|file| format!("`--script {file}`")),
            locked.then(|| "`--locked`".to_owned()),
        ];
        let flags: Vec<String> = flags.into_iter().flatten().collect();
        (!flags.is_empty())
            .then(|| format!("the thread keeps the options with which it was started: {}", flags.join(", ")))
    }
}

fn read_script(file: &Path) -> Result<ScriptedProviders, CommandError> {
    ScriptedProviders::read(file).map_err(|error| CommandError::usage(error.to_string()))
}
