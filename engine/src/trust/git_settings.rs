//! The files in the folder of git from which git starts programs: its settings, the files and programs that they name,
//! and its hooks. A clone does not bring these files along, but an archive can. The other files of the folder, such as
//! the index and the refs, are data, and git changes them all the time.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use rye_compiler::command_files::{PROJECT_WORD, files_of_value};

use super::TrustError;
use super::files::NamedFiles;

/// The folder of git in a project, or the file that names another folder.
pub(super) const GIT_FOLDER: &str = ".git";
/// Files with settings, relative to the folder of git.
const SETTINGS: [&str; 3] = ["config", "config.worktree", "info/attributes"];
/// Ending of the examples of hooks, which git does not start.
const EXAMPLE_ENDING: &str = "sample";
/// Maximum number of bytes of a settings file whose values are searched for files. The hash covers the whole file.
const MAX_SETTINGS_BYTES: u64 = 1 << 20;
/// Maximum depth of the folders that are searched for submodules below `modules`.
const MAX_MODULE_DEPTH: usize = 8;

impl NamedFiles<'_> {
    /// Adds the files of the project from which git starts programs.
    pub(super) fn add_git_settings(&mut self) -> Result<(), TrustError> {
        if std::mem::replace(&mut self.covers_git, true) {
            return Ok(());
        }
        let own = self.project.join(GIT_FOLDER);
        if own.is_file() {
            self.add_place(&own, false)?;
        }
        for folder in self.git_folders() {
            for path in SETTINGS.map(|name| folder.join(name)) {
                self.add_place(&path, false)?;
                for (key, value) in values_of(&path) {
                    if key.ends_with("path") {
                        self.add_place(&folder.join(&value), false)?;
                    }
                    // The value `.` alone (`remote = .`) names no program.
                    let is_code = value.contains(char::is_whitespace);
                    for word in files_of_value(&value).iter().filter(|word| is_code || *word != PROJECT_WORD) {
                        self.add_word(word)?;
                    }
                }
            }
            for hook in fs::read_dir(folder.join("hooks")).into_iter().flatten().flatten().map(|entry| entry.path()) {
                let is_example = hook.extension().is_some_and(|ending| ending == EXAMPLE_ENDING);
                let relative = hook.strip_prefix(self.project).ok().and_then(Path::to_str).map(str::to_owned);
                if let Some(relative) = relative.filter(|_| !is_example) {
                    self.add_word(&relative)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the folders in the project that git uses for the project and for its submodules: `.git`, or the folder
    /// that a file of this name names. If the project itself looks like the folder of git, git uses the project too.
    fn git_folders(&self) -> Vec<PathBuf> {
        let own = self.project.join(GIT_FOLDER);
        let mut folders = vec![own.clone()];
        if own.is_file() {
            folders.extend(folder_of_link(&own).map(|folder| self.project.join(folder)));
        }
        if ["HEAD", "objects", "refs"].iter().all(|name| self.project.join(name).exists()) {
            folders.push(self.project.to_path_buf());
        }
        for folder in folders.clone() {
            let common = fs::read_to_string(folder.join("commondir")).ok();
            folders.extend(common.map(|common| folder.join(common.trim())));
            add_modules(&folder.join("modules"), 0, &mut folders);
            let worktrees = fs::read_dir(folder.join("worktrees")).into_iter().flatten().flatten();
            folders.extend(worktrees.map(|entry| entry.path()));
        }
        folders
    }
}

/// Returns the folder that a file `.git` names: `gitdir: ../main/.git`.
fn folder_of_link(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    text.strip_prefix("gitdir:").map(|folder| folder.trim().to_owned())
}

/// Adds the folders of submodules below `folder`. A submodule can have submodules, and its name can contain slashes.
fn add_modules(folder: &Path, depth: usize, folders: &mut Vec<PathBuf>) {
    if depth > MAX_MODULE_DEPTH {
        return;
    }
    for inner in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if inner.join("HEAD").is_file() {
            add_modules(&inner.join("modules"), depth + 1, folders);
            folders.push(inner);
        } else if inner.is_dir() {
            add_modules(&inner, depth + 1, folders);
        }
    }
}

/// Returns the keys and the values of a settings file of git. A value in which a comment can begin is also returned
/// without the comment. Bytes that are not UTF-8 are replaced, as git reads the other lines of such a file.
fn values_of(path: &Path) -> Vec<(String, String)> {
    let mut bytes = Vec::new();
    let Ok(file) = File::open(path) else { return Vec::new() };
    if file.take(MAX_SETTINGS_BYTES).read_to_end(&mut bytes).is_err() {
        return Vec::new();
    }
    let joined = String::from_utf8_lossy(&bytes).replace("\\\r\n", "").replace("\\\n", "");
    let pairs = joined.lines().filter_map(|line| line.split_once('='));
    let forms = pairs.flat_map(|(key, value)| {
        let before_comment = value.split([';', '#']).next().filter(|before| before.len() < value.len());
        [Some(value), before_comment].into_iter().flatten().map(move |value| (key, value))
    });
    forms.map(|(key, value)| (key.trim().to_lowercase(), value.trim().trim_matches('"').to_owned())).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use rye_compiler::command_files::{GIT_SETTINGS, LOADED_BY, files_of_argv};

    use super::super::tests::{TestSpaces, command_requirement};
    use super::*;

    const SCRIPT: &str = ".ai/tools/ops/main.py";

    /// Returns true if trust in a command with these words ends when the content of the file `changed` changes.
    fn ends_with(words: &[&str], changed: &str) -> bool {
        let spaces = TestSpaces::new();
        let write = |path: &str, text: &str| {
            let path = spaces.project().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let config = "[core]\n\tfsmonitor = tools/watch --all\n; \x1a\n[include]\n\tpath = ../more ; a note\n\
                      [remote \"origin\"]\n\turl = git@example.test:a/b\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\
                      [branch \"main\"]\n\tremote = .\n\tmerge = refs/heads/main\n[user]\n\tname = A B\n";
        write(SCRIPT, "import subprocess\nsubprocess.run(['git', 'log'])\n");
        write(changed, "before");
        // A byte that is not UTF-8 hides no other line.
        let config: Vec<u8> = config.bytes().map(|byte| if byte == b'\x1a' { 0xff } else { byte }).collect();
        fs::create_dir_all(spaces.project().join(".git")).unwrap();
        fs::write(spaces.project().join(".git/config"), config).unwrap();
        write(".git/modules/lib/HEAD", "ref: refs/heads/main");
        let one = command_requirement("t", "11", words);
        spaces.trust().record_trust(std::slice::from_ref(&one)).unwrap();
        assert!(spaces.is_trusted(&one), "{words:?}");
        write(changed, "after");
        !spaces.is_trusted(&one)
    }

    #[test]
    fn settings_of_git_are_part_of_a_command_that_starts_git() {
        let words =
            |command: &[&str]| files_of_argv(&command.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>());
        let starters = [
            words(&["git", "log"]),
            words(&["timeout", "-k", "1", "5", "git", "log"]),
            words(&["bash", "-c", "cd lib && git log"]),
            vec![format!("{LOADED_BY}{SCRIPT}")],
            vec![PROJECT_WORD.to_owned()],
        ];
        for words in &starters {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            for changed in [
                ".git/config",
                ".git/config.worktree",
                ".git/info/attributes",
                ".git/hooks/pre-commit",
                ".git/modules/lib/config",
                ".git/modules/lib/hooks/post-checkout",
                "tools/watch",
                "more",
            ] {
                assert!(ends_with(&words, changed), "{words:?}: {changed}");
            }
            for changed in [".git/index", ".git/FETCH_HEAD", ".git/refs/heads/main", ".git/hooks/pre-commit.sample"] {
                assert!(!ends_with(&words, changed), "{words:?}: {changed}");
            }
            assert_eq!(ends_with(&words, "src/any.txt"), words == [PROJECT_WORD], "{words:?}");
        }
        let other = words(&["wc", "-l", "notes.txt"]);
        assert!(!ends_with(&other.iter().map(String::as_str).collect::<Vec<_>>(), ".git/config"));
    }

    #[test]
    fn folder_that_a_file_of_git_names_is_part_of_a_command_that_starts_git() {
        let spaces = TestSpaces::new();
        fs::create_dir_all(spaces.project().join("data/repository")).unwrap();
        fs::write(spaces.project().join(".git"), "gitdir: data/repository\n").unwrap();
        fs::write(spaces.project().join("data/repository/config"), "[core]\n").unwrap();
        for changed in [".git", "data/repository/config"] {
            let one = command_requirement("t", "11", &[GIT_SETTINGS]);
            spaces.trust().record_trust(std::slice::from_ref(&one)).unwrap();
            assert!(spaces.is_trusted(&one));
            fs::write(spaces.project().join(changed), "gitdir: data/repository\n\n").unwrap();
            assert!(!spaces.is_trusted(&one), "{changed}");
        }
    }
}
