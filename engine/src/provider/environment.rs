//! Environment variables for providers: the process's environment, then `.env` of the user space.
//!
//! Only this module reads variables for providers. Files of the project are never read (`engine.md` 6).

use std::collections::BTreeMap;
use std::path::Path;

/// The environment variables of this process and of the user's `.env`.
#[derive(Clone, Default)]
pub struct ProviderEnvironment {
    /// The variables that replace the process's environment in tests; `None` outside of tests.
    fixed: Option<BTreeMap<String, String>>,
    file: BTreeMap<String, String>,
}

impl std::fmt::Debug for ProviderEnvironment {
    /// Prints only the names of the variables, because their values are secret keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment").field("file", &self.file.keys()).finish_non_exhaustive()
    }
}

impl ProviderEnvironment {
    /// Reads the process's environment and, if it exists, `.env` in the folder `user_space` (the one that contains
    /// `.ai/`).
    ///
    /// # Errors
    /// A `.env` that exists and cannot be read.
    pub fn read(user_space: Option<&Path>) -> std::io::Result<Self> {
        let Some(folder) = user_space else { return Ok(Self::default()) };
        match std::fs::read_to_string(folder.join(".env")) {
            Ok(text) => Ok(Self { fixed: None, file: parse(&text) }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Creates an environment with exactly these variables.
    pub fn fixed(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { fixed: Some(variables.into_iter().collect()), file: BTreeMap::new() }
    }

    /// Returns the variables of the user's `.env`.
    pub fn file_variables(&self) -> impl Iterator<Item = (String, String)> {
        self.file.iter().map(|(name, value)| (name.clone(), value.clone()))
    }

    /// Returns a variable's value; `None` if it is unset or blank.
    pub fn get(&self, name: &str) -> Option<String> {
        let process = match &self.fixed {
            Some(fixed) => fixed.get(name).cloned(),
            None => std::env::var(name).ok(),
        };
        process.or_else(|| self.file.get(name).cloned()).filter(|value| !value.trim().is_empty())
    }
}

/// Parses `NAME=value` lines, with an optional `export` and an optional pair of quotes. Ignores other lines.
fn parse(text: &str) -> BTreeMap<String, String> {
    let line = |line: &str| {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line.split_once('=')?;
        let (name, value) = (name.trim(), value.trim());
        let quoted = |quote: char| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
        let value = quoted('"').or_else(|| quoted('\'')).unwrap_or(value);
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        is_name.then(|| (name.to_owned(), value.to_owned()))
    };
    text.trim_start_matches('\u{feff}').lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_dotenv_file_is_read_line_by_line() {
        let text = "# note\n\nA_KEY=one\nexport B_KEY=\"two words\"\n C = 'three' \r\nnot a line\n=x\nD=\nE=a=b\n";
        let read = parse(text);
        let pairs: Vec<(&str, &str)> = read.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("A_KEY", "one"), ("B_KEY", "two words"), ("C", "three"), ("D", ""), ("E", "a=b")]);
    }

    #[test]
    fn user_dotenv_supplies_unset_variables() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(".env"), "RYE_TEST_ONLY_HERE=k\nRYE_TEST_EMPTY=\n").unwrap();
        let environment = ProviderEnvironment::read(Some(folder.path())).unwrap();
        assert_eq!(environment.get("RYE_TEST_ONLY_HERE").as_deref(), Some("k"));
        assert_eq!(environment.get("RYE_TEST_EMPTY"), None);
        assert!(!format!("{environment:?}").contains('k') || !format!("{environment:?}").contains("\"k\""));
        assert!(ProviderEnvironment::read(None).unwrap().get("RYE_TEST_ONLY_HERE").is_none());
    }

    #[test]
    fn missing_dotenv_is_fine_and_unreadable_fails() {
        let folder = tempfile::tempdir().unwrap();
        assert!(ProviderEnvironment::read(Some(folder.path())).is_ok());
        std::fs::create_dir(folder.path().join(".env")).unwrap();
        assert!(ProviderEnvironment::read(Some(folder.path())).is_err());
    }
}
