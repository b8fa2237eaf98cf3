//! Severity overrides per code: `.ai/config/check.yaml`, `--allow`, `--deny-warnings`. An error rejects a plan and
//! cannot be overridden; warnings and advice can be raised, lowered or hidden (`allow`).

use std::collections::BTreeMap;

use rye_grammar::data::{Kind, Node};

use crate::diagnostics::{CODES, ConfigError, Diagnostic, Diagnostics, ItemError, Severity, closest};
use crate::item::{Items, data};

/// Id of the settings file that contains the overrides.
pub(crate) const CHECK_CONFIG_ID: &str = "check";

/// The values that a code can have in `check.yaml`.
pub(crate) const LEVEL_WORDS: [&str; 4] = ["error", "warning", "advice", "allow"];

/// The severity that a project or an option sets for a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeverityOverride {
    Shown(Severity),
    /// Diagnostics with the code are not shown at all.
    Allowed,
}

/// The overrides of a check. Without an override, a diagnostic keeps its own severity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeverityOverrides {
    by_code: BTreeMap<&'static str, SeverityOverride>,
    deny_warnings: bool,
}

/// The error for an override of a code that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown code `{code}`")]
pub struct UnknownCode {
    pub code: String,
    pub suggestion: Option<String>,
}

impl SeverityOverrides {
    /// Reads the overrides of `check.yaml`.
    pub fn read(items: &Items<'_>, found: &mut Diagnostics) -> Self {
        let mut levels = Self::default();
        let Some(config) = items.config_by_name(CHECK_CONFIG_ID) else { return levels };
        for entry in config.entries() {
            match entry.key.node.as_str() {
                "levels" => levels.read_codes(&entry.value, found),
                "deny_warnings" => match &entry.value.kind {
                    Kind::Bool(deny) => levels.deny_warnings = *deny,
                    Kind::Null | Kind::Number(_) | Kind::String(_) | Kind::List(_) | Kind::Map(_) => {
                        found.push(invalid("deny_warnings", &entry.value, "`true` or `false`"));
                    }
                },
                key => found.push(ItemError::UnknownKey {
                    what: "key",
                    key: key.to_owned(),
                    of: "`check.yaml`".into(),
                    span: entry.key.span,
                    suggestion: closest(key, ["levels", "deny_warnings"]),
                    known: vec!["levels".into(), "deny_warnings".into()],
                }),
            }
        }
        if !matches!(config.kind, Kind::Map(_) | Kind::Null) {
            found.push(invalid("check", &config, "a mapping with `levels` and `deny_warnings`"));
        }
        levels
    }

    fn read_codes(&mut self, node: &Node, found: &mut Diagnostics) {
        if !matches!(node.kind, Kind::Map(_) | Kind::Null) {
            found.push(invalid("levels", node, "a mapping from codes to `error`, `warning`, `advice` or `allow`"));
        }
        for entry in node.entries() {
            let code = match find_code(&entry.key.node) {
                Ok(code) => code,
                Err(unknown) => {
                    found.push(ItemError::UnknownKey {
                        what: "code",
                        key: entry.key.node.clone(),
                        of: "`levels`".into(),
                        span: entry.key.span,
                        suggestion: unknown.suggestion,
                        known: Vec::new(),
                    });
                    continue;
                }
            };
            let level = match entry.value.as_str() {
                Some("error") => SeverityOverride::Shown(Severity::Error),
                Some("warning") => SeverityOverride::Shown(Severity::Warning),
                Some("advice") => SeverityOverride::Shown(Severity::Advice),
                Some("allow") => SeverityOverride::Allowed,
                Some(_) | None => {
                    let key = format!("levels.{}", entry.key.node);
                    found.push(invalid(&key, &entry.value, "`error`, `warning`, `advice` or `allow`"));
                    continue;
                }
            };
            self.by_code.insert(code, level);
        }
    }

    /// Hides the warnings and the advice of a code, even if `check.yaml` sets another severity. Errors are never
    /// hidden.
    ///
    /// # Errors
    /// There is no such code.
    pub fn allow(&mut self, code: &str) -> Result<(), UnknownCode> {
        self.by_code.insert(find_code(code)?, SeverityOverride::Allowed);
        Ok(())
    }

    /// Makes an error of every warning, except the warnings that an override hides.
    pub fn deny_warnings(&mut self) {
        self.deny_warnings = true;
    }

    /// Returns the severity of a diagnostic; `None` if an override hides its code. An error stays an error.
    pub fn severity(&self, diagnostic: &Diagnostic) -> Option<Severity> {
        let own = diagnostic.severity();
        if own == Severity::Error {
            return Some(own);
        }
        let shown = match self.by_code.get(diagnostic.code()) {
            Some(SeverityOverride::Allowed) => return None,
            Some(SeverityOverride::Shown(severity)) => *severity,
            None => own,
        };
        Some(if self.deny_warnings && shown == Severity::Warning { Severity::Error } else { shown })
    }

    /// Returns true if an override would hide an error or lower its severity. The override then has no effect on the
    /// error.
    pub fn is_error_despite_override(&self, diagnostic: &Diagnostic) -> bool {
        let lowered = match self.by_code.get(diagnostic.code()) {
            Some(SeverityOverride::Allowed) => true,
            Some(SeverityOverride::Shown(severity)) => *severity != Severity::Error,
            None => false,
        };
        diagnostic.is_error() && lowered
    }
}

fn find_code(code: &str) -> Result<&'static str, UnknownCode> {
    let plain = code.trim().trim_start_matches("rye::").replace('/', "::");
    CODES
        .iter()
        .copied()
        .find(|known| *known == plain)
        .ok_or_else(|| UnknownCode { suggestion: suggest_code(&plain), code: plain })
}

/// Returns the code that the author of an unknown code probably meant: the only code with the same name in another
/// topic, else the most similar code. `None` if no code is similar.
fn suggest_code(written: &str) -> Option<String> {
    let name = written.rsplit("::").next().unwrap_or(written);
    let mut same = CODES.iter().filter(|code| code.split_once("::").is_some_and(|(_, known)| known == name));
    match (same.next(), same.next()) {
        (Some(only), None) => Some((*only).to_owned()),
        _ => closest(written, CODES.iter().copied()),
    }
}

fn invalid(key: &str, node: &Node, expected: &str) -> ConfigError {
    ConfigError::Invalid {
        file: CHECK_CONFIG_ID.into(),
        key: key.to_owned(),
        found: data::describe(node),
        expected: expected.to_owned(),
        span: Some(node.span),
    }
}
