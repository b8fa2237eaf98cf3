//! The one place that reads variables for providers: the process's environment, then `.env` of the user space.
//!
//! Never a file of the project (`engine.md` 6).

use std::collections::BTreeMap;
use std::path::Path;

/// What variables are read from.
#[derive(Clone, Default)]
pub struct Environment {
    /// Set for tests: stands for the process's environment.
    fixed: Option<BTreeMap<String, String>>,
    file: BTreeMap<String, String>,
}

impl std::fmt::Debug for Environment {
    /// Names only: the values are keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment").field("file", &self.file.keys()).finish_non_exhaustive()
    }
}

impl Environment {
    /// The process's environment and, where it exists, `.env` in the folder `user_space` (the one that holds `.ai/`).
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

    /// Exactly these variables and no others.
    pub fn fixed(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { fixed: Some(variables.into_iter().collect()), file: BTreeMap::new() }
    }

    /// A variable's value; an empty one counts as not set.
    pub fn get(&self, name: &str) -> Option<String> {
        let process = match &self.fixed {
            Some(fixed) => fixed.get(name).cloned(),
            None => std::env::var(name).ok(),
        };
        process.or_else(|| self.file.get(name).cloned()).filter(|value| !value.trim().is_empty())
    }
}

/// `NAME=value` lines, `export` allowed, one pair of quotes taken off; anything else is passed over.
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
    fn the_user_space_supplies_what_the_process_has_not() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(".env"), "RYE_TEST_ONLY_HERE=k\nRYE_TEST_EMPTY=\n").unwrap();
        let environment = Environment::read(Some(folder.path())).unwrap();
        assert_eq!(environment.get("RYE_TEST_ONLY_HERE").as_deref(), Some("k"));
        assert_eq!(environment.get("RYE_TEST_EMPTY"), None);
        assert!(!format!("{environment:?}").contains('k') || !format!("{environment:?}").contains("\"k\""));
        assert!(Environment::read(None).unwrap().get("RYE_TEST_ONLY_HERE").is_none());
    }

    #[test]
    fn a_missing_file_is_no_error_and_an_unreadable_one_is() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Environment::read(Some(folder.path())).is_ok());
        std::fs::create_dir(folder.path().join(".env")).unwrap();
        assert!(Environment::read(Some(folder.path())).is_err());
    }
}
