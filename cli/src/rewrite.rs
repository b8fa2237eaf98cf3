//! Safe rewriting of project files that may change concurrently: each file is replaced as a whole, and only if its
//! contents have not changed since they were read.

use std::io::Write;
use std::path::{Path, PathBuf};

use similar::TextDiff;

use crate::CommandError;

/// Maximum number of removed lines, and of added lines, that a diff compares. A longer change is shown as one block of
/// removed and added lines.
const MAX_COMPARED_LINES: usize = 2_000;
/// Number of unchanged lines that a diff shows before and after a change.
const CONTEXT_LINES: usize = 2;

/// A project file to rewrite, with its old and its new contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRewrite {
    /// Path relative to the project, with forward slashes.
    pub path: String,
    pub before: String,
    pub after: String,
}

impl FileRewrite {
    /// Returns the change as a unified diff. A change of more than [`MAX_COMPARED_LINES`] is shown as one block of
    /// removed and added lines, because a comparison takes quadratic time.
    pub fn diff(&self) -> String {
        let names = (format!("a/{}", self.path), format!("b/{}", self.path));
        let before: Vec<&str> = self.before.split_inclusive('\n').collect();
        let after: Vec<&str> = self.after.split_inclusive('\n').collect();
        let same = |(one, other): &(&&str, &&str)| one == other;
        let front = before.iter().zip(&after).take_while(same).count();
        let (before, after) = (before.get(front..).unwrap_or_default(), after.get(front..).unwrap_or_default());
        let end = before.iter().rev().zip(after.iter().rev()).take_while(same).count();
        let (removed, added) = (before.len() - end, after.len() - end);
        if removed.max(added) <= MAX_COMPARED_LINES {
            let diff = TextDiff::from_lines(&self.before, &self.after);
            return diff.unified_diff().context_radius(CONTEXT_LINES).header(&names.0, &names.1).to_string();
        }
        let range = |count: usize| format!("{},{count}", front + usize::from(count > 0));
        let mut text = format!("--- {}\n+++ {}\n@@ -{} +{} @@\n", names.0, names.1, range(removed), range(added));
        for (sign, lines) in [('-', before.iter().take(removed)), ('+', after.iter().take(added))] {
            for line in lines {
                text.push(sign);
                text.push_str(line);
                if !line.ends_with('\n') {
                    text.push_str("\n\\ No newline at end of file\n");
                }
            }
        }
        text
    }

    /// Writes the new contents: to a temporary file with the same permissions, which is renamed over the original.
    pub fn write(&self, project: &Path) -> Result<(), CommandError> {
        let path = project.join(&self.path);
        let failed = |what: &str, error: &std::io::Error| {
            CommandError::failed(format!("`{}` cannot be {what}: {error}", self.path))
        };
        let metadata = std::fs::symlink_metadata(&path).map_err(|e| failed("read", &e))?;
        if !metadata.is_file() {
            return Err(CommandError::failed(format!("`{}` is not a regular file; left unchanged", self.path)));
        }
        let now = std::fs::read(&path).map_err(|e| failed("read", &e))?;
        let (mark, text) =
            now.strip_prefix(BYTE_ORDER_MARK).map_or((&[][..], &now[..]), |text| (BYTE_ORDER_MARK, text));
        if text != self.before.as_bytes() {
            return Err(CommandError::failed(format!("`{}` has changed in the meantime; left unchanged", self.path)));
        }
        let beside = temporary_path(&path);
        let written = (|| {
            let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(&beside)?;
            file.write_all(mark)?;
            file.write_all(self.after.as_bytes())?;
            file.set_permissions(metadata.permissions())?;
            file.sync_all()?;
            std::fs::rename(&beside, &path)
        })();
        if written.is_err() {
            // Remove the incomplete file, if there is one.
            std::fs::remove_file(&beside).ok();
        }
        written.map_err(|e| failed("written", &e))
    }
}

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Returns a path beside `path` for a temporary file. The path contains the process id, so no other process uses it.
/// The name starts with a dot, so the file is no item.
fn temporary_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.rye-{}", std::process::id()))
}

#[cfg(test)]
#[allow(clippy::format_collect, reason = "tests")]
mod tests {
    use super::*;

    /// Returns a rewrite of `lines` lines between an unchanged first and last line. Every tenth of the `lines` is
    /// unchanged too.
    fn rewrite(lines: usize) -> FileRewrite {
        let text = |mark: &str| {
            let line = |n: usize| if n % 10 == 9 { format!("same {n}\n") } else { format!("{mark} {n}\n") };
            format!("first\n{}last", (0..lines).map(line).collect::<String>())
        };
        FileRewrite { path: "x.md".into(), before: text("old"), after: text("new") }
    }

    #[test]
    fn long_change_is_one_block_and_a_short_one_is_compared() {
        let short = rewrite(100).diff();
        assert_eq!(short.lines().filter(|line| line.starts_with(" same")).count(), 10, "{short}");
        let long = rewrite(20_000).diff();
        let counted = |sign: &str| long.lines().filter(|line| line.starts_with(sign)).count();
        // The last of the 20,000 lines and the line after it are unchanged, so they are not part of the change.
        assert_eq!((counted("@@"), counted("-old"), counted("+new"), counted(" ")), (1, 18_000, 18_000, 0));
        assert!(long.starts_with("--- a/x.md\n+++ b/x.md\n@@ -2,19999 +2,19999 @@\n-old 0\n"), "{long:.80}");
    }

    #[test]
    fn long_change_at_the_end_marks_a_missing_line_break() {
        let lines: String = (0..3_000).map(|n| format!("{n}\n")).collect();
        let change = FileRewrite { path: "x".into(), before: String::new(), after: lines + "end" };
        let text = change.diff();
        assert!(text.contains("@@ -0,0 +1,3001 @@\n+0\n"), "{text:.60}");
        assert!(text.ends_with("+end\n\\ No newline at end of file\n"));
    }
}
