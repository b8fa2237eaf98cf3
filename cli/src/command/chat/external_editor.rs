//! The text of the editor of a chat, edited with the program of `$VISUAL` or `$EDITOR`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;

use tempfile::NamedTempFile;

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
    // The file has a random name, and only the user can read the file. The file is removed when `file` is dropped.
    let file = temporary_file(text).map_err(|error| format!("the text cannot be edited: {error}"))?;
    // As in git, `$EDITOR` is a shell command and may contain arguments.
    let mut line = program.to_owned();
    line.push(" \"$1\"");
    let ended = Command::new("/bin/sh").arg("-c").arg(line).arg("rye").arg(file.path()).status();
    let name = program.to_string_lossy();
    match ended {
        Ok(status) if status.success() => read_text(file.path()),
        Ok(status) => Err(format!("`{name}` ended with {status}: the text is unchanged")),
        Err(error) => Err(format!("`{name}` cannot be started: {error}")),
    }
}

fn temporary_file(text: &str) -> std::io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new().prefix("rye-prompt-").suffix(".md").tempfile()?;
    file.write_all(text.as_bytes())?;
    Ok(file)
}

fn read_text(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let file = File::open(path).map_err(|error| format!("the edited text cannot be read: {error}"))?;
    let read = file.take(MAX_TEXT_BYTES + 1).read_to_string(&mut text);
    read.map_err(|error| format!("the edited text cannot be read: {error}"))?;
    if text.len() as u64 > MAX_TEXT_BYTES {
        return Err(format!("the edited text has more than {MAX_TEXT_BYTES} bytes"));
    }
    // Editors end the last line with a line feed that is not part of the text.
    Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
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
        let file = temporary_file("secret").unwrap();
        let path = file.path().to_owned();
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
        assert_eq!((mode & 0o777, read_text(&path).unwrap().as_str()), (0o600, "secret"));
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn each_edited_text_has_its_own_file_after_another_was_removed() {
        let removed = temporary_file("one").unwrap();
        std::fs::remove_file(removed.path()).unwrap();
        let other = temporary_file("two").unwrap();
        assert_ne!(removed.path(), other.path());
        drop(removed);
        assert_eq!(read_text(other.path()).unwrap(), "two");
    }
}
