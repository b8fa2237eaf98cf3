//! The settings of a run that a resume preserves.

use rye_compiler::approvals::HeadlessPolicy;
use serde::{Deserialize, Serialize};

/// The settings of the command that started a thread. A resume keeps each setting, unless the command of the resume
/// sets another value. Children and continuations use the settings of their process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandSettings {
    /// Policy for calls that need an approval when there is no terminal; `None` if the settings files decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unattended: Option<HeadlessPolicy>,
    /// Absolute path of the script that replaces every model; `None` if the models answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// True if every thread must match `.ai/lock.json` (the option `--locked`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub locked: bool,
}

impl CommandSettings {
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
