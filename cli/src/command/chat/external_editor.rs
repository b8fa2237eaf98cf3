//! The text of the editor of a chat, edited with the program of `$VISUAL` or `$EDITOR`.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Maximum size of an edited text, in bytes.
const MAX_TEXT_BYTES: u64 = 16 << 20;

/// Lets the user edit a text in an external editor. Waits for the end of the editor, which uses the terminal meanwhile.
///
/// # Errors
///
/// Returns the reason why the text stays unchanged.
pub fn edit_externally(text: &str) -> Result<String, String> {
    let mut set = ["VISUAL", "EDITOR"].into_iter().filter_map(std::env::var_os);
    let program = set.find(|program| !program.is_empty());
    let program = program.ok_or("no editor: set $VISUAL or $EDITOR, as in `export VISUAL=vim`")?;
    edit_with(&program, text)
}

fn edit_with(program: &OsStr, text: &str) -> Result<String, String> {
    let file = TemporaryFile::create(text).map_err(|error| format!("the text cannot be edited: {error}"))?;
    // As in git, `$EDITOR` is a shell command and may contain arguments.
    let mut line = program.to_owned();
    line.push(" \"$1\"");
    let ended = Command::new("sh").arg("-c").arg(line).arg("rye").arg(&file.path).status();
    let name = program.to_string_lossy();
    match ended {
        Ok(status) if status.success() => file.read(),
        Ok(status) => Err(format!("`{name}` ended with {status}: the text is unchanged")),
        Err(error) => Err(format!("`{name}` cannot be started: {error}")),
    }
}

/// A file that only the user can read. It is removed when the value is dropped.
struct TemporaryFile {
    path: PathBuf,
}

impl TemporaryFile {
    fn create(text: &str) -> std::io::Result<Self> {
        let create = |path: &Path| -> std::io::Result<File> {
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
        };
        let process = std::process::id();
        let mut number = 0;
        let (path, mut file) = loop {
            let path = std::env::temp_dir().join(format!("rye-prompt-{process}-{number}.md"));
            match create(&path) {
                Ok(file) => break (path, file),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && number < 100 => number += 1,
                Err(error) => return Err(error),
            }
        };
        let made = Self { path };
        file.write_all(text.as_bytes())?;
        Ok(made)
    }

    fn read(&self) -> Result<String, String> {
        let mut text = String::new();
        let file = File::open(&self.path).map_err(|error| format!("the edited text cannot be read: {error}"))?;
        let read = file.take(MAX_TEXT_BYTES + 1).read_to_string(&mut text);
        read.map_err(|error| format!("the edited text cannot be read: {error}"))?;
        if text.len() as u64 > MAX_TEXT_BYTES {
            return Err(format!("the edited text has more than {MAX_TEXT_BYTES} bytes"));
        }
        // Editors end the last line with a line feed that is not part of the text.
        Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // The program may have removed the file.
        std::fs::remove_file(&self.path).ok();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn edit(program: &str) -> Result<String, String> {
        edit_with(OsStr::new(program), "old text")
    }

    #[test]
    fn program_with_arguments_edits_the_text() {
        assert_eq!(edit("sed -i s/old/new/").unwrap(), "new text");
        assert_eq!(edit("printf 'two\nlines\n\n' >").unwrap(), "two\nlines\n");
        assert_eq!(edit("true").unwrap(), "old text");
    }

    #[test]
    fn failed_program_leaves_the_text_and_the_reason() {
        for (program, reason) in [
            ("false", "`false` ended with exit status: 1: the text is unchanged"),
            ("no-such-editor", "`no-such-editor` ended with exit status: 127"),
            ("rm", "the edited text cannot be read"),
            ("printf '\\377' >", "the edited text cannot be read"),
        ] {
            assert!(edit(program).unwrap_err().contains(reason), "{program}");
        }
    }

    #[test]
    fn file_is_private_and_removed() {
        let file = TemporaryFile::create("secret").unwrap();
        let path = file.path.clone();
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
        assert_eq!((mode & 0o777, file.read().unwrap().as_str()), (0o600, "secret"));
        drop(file);
        assert!(!path.exists());
    }
}
