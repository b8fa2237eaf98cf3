//! Explanations of failures that the sandbox or a missing execute bit caused. The kernel reports only an error number
//! to the program, so the output of the program does not name the cause.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

use crate::path_policy::{PathAccess, path_access};
use crate::tool::confine::printable;
use crate::tool::process::{ProgramExit, Sandbox};

/// A pattern that finds the path in a program's message about a refused access: `touch: cannot touch 'a/b': Permission
/// denied`, `[Errno 13] Permission denied: 'a/b'`, `EACCES: permission denied, open '/p/a/b'`. Also finds the program
/// that the helper could not start.
static REFUSED_PATH: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let before = r#"(?:['"‘`]([^'"’`\n]+)['"’`]|([^\s:'"]+)): (?:Permission denied|Operation not permitted|Read-only)"#;
    let after = r#"(?i:permission denied|operation not permitted)[:,][^'"\n]{0,40}['"]([^'"\n]+)['"]"#;
    let start = r"`(?<program>[^`\n]+)` cannot be started: Permission denied";
    Regex::new(&format!("{start}|{before}|{after}")).ok()
});
/// Texts in the output of programs that failed because they have no access to the network.
const NETWORK: [&str; 7] = [
    "Could not resolve",
    "Temporary failure in name resolution",
    "Name or service not known",
    "Network is unreachable",
    "getaddrinfo",
    "failed to lookup address",
    "socket: Permission denied",
];

/// The exit code of a shell whose last command is a file that cannot be executed.
const NOT_EXECUTABLE: ProgramExit = ProgramExit::Code(126);

/// Explains an access that was refused to a program. Names the cause: a missing execute bit, or the path or network
/// access that the sandbox refused. Also names the grant that would allow the access, if such a grant exists. `None` if
/// the output of the program reports no refused access.
pub(in crate::tool) fn explain(output: &str, exit: ProgramExit, sandbox: &Sandbox) -> Option<String> {
    if !sandbox.net && NETWORK.iter().any(|message| output.contains(message)) {
        return Some("[blocked by the sandbox: the network needs `net=\"HOST\"` in the grant of this tool]".to_owned());
    }
    let found = REFUSED_PATH.as_ref()?.captures_iter(output).last()?;
    let path = Path::new(found.iter().skip(1).flatten().next()?.as_str());
    let absolute = sandbox.project.join(path);
    let is_start = found.name("program").is_some() || exit == NOT_EXECUTABLE;
    if is_start && lacks_execute_bit(&absolute) {
        let shown = printable(path.strip_prefix(&sandbox.project).unwrap_or(path).as_os_str());
        return Some(format!("[`{shown}` has no execute bit; set it with `chmod +x {shown}`]"));
    }
    let Some(relative) = normalized(&absolute).strip_prefix(&sandbox.project).ok().map(Path::to_path_buf) else {
        let shown = printable(path.as_os_str());
        return Some(format!("[blocked by the sandbox: `{shown}` is outside of the project]"));
    };
    let segments: Vec<_> = relative.iter().map(std::ffi::OsStr::to_owned).collect();
    let shown = printable(relative.as_os_str());
    if path_access(&segments) != PathAccess::Ordinary {
        return Some(format!("[blocked by the sandbox: `{shown}` is a protected path]"));
    }
    if sandbox.write_only.iter().any(|folder| normalized(&absolute).starts_with(folder)) {
        return Some(format!(
            "[blocked by the sandbox: `{shown}` is in a folder that the tool declares as `write_only`]"
        ));
    }
    if is_start {
        return None;
    }
    let folder = relative.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.map_or_else(|| "FOLDER/".to_owned(), |folder| format!("{}/", printable(folder.as_os_str())));
    let is_granted = sandbox.write.iter().any(|granted| relative.starts_with(granted.trim_end_matches('/')));
    (!is_granted).then(|| {
        format!("[blocked by the sandbox: writing `{shown}` needs `write=\"{folder}\"` in the grant of this tool]")
    })
}

/// Returns true if the path is a file without any execute bit.
fn lacks_execute_bit(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 == 0)
}

/// Resolves `.` and `..` in a path without reading the file system.
fn normalized(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(out.pop()),
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => out.push(part),
        }
    }
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn program_without_the_execute_bit_is_named() {
        let project = tempfile::tempdir().unwrap();
        let file = project.path().join("guard.sh");
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        let sandbox = Sandbox::new(project.path(), Vec::new(), &[]);
        for (output, code) in [
            (format!("`{}` cannot be started: Permission denied (os error 13)\n", file.display()), 127),
            ("bash: line 1: ./guard.sh: Permission denied".to_owned(), 126),
        ] {
            let hint = explain(&output, ProgramExit::Code(code), &sandbox).unwrap();
            assert!(hint.contains("guard.sh` has no execute bit; set it with `chmod +x "), "{output}: {hint}");
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
            assert_eq!(explain(&output, ProgramExit::Code(code), &sandbox), None, "{output}");
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        }
    }

    #[test]
    fn refusal_names_the_grant_that_is_missing() {
        let sandbox = Sandbox {
            project: "/p".into(),
            ..Sandbox::new(Path::new("/p"), vec!["out/".into(), "reports/".into()], &[])
        };
        let sandbox = sandbox.with_write_only(&["./reports/".into()]);
        for (output, says) in [
            ("touch: cannot touch 'a/b.txt': Permission denied\n", "needs `write=\"a/\"`"),
            ("bash: line 1: top.txt: Permission denied", "needs `write=\"FOLDER/\"`"),
            ("PermissionError: [Errno 13] Permission denied: '/p/a/b/c'", "needs `write=\"a/b/\"`"),
            ("Error: EACCES: permission denied, open '/p/x/y'", "needs `write=\"x/\"`"),
            ("cat: reports/x: Permission denied", "declares as `write_only`"),
            ("cat: /home/a/.ssh/id: Permission denied", "outside of the project"),
            ("cat: ../other: Permission denied", "outside of the project"),
            ("rm: cannot remove '.git/config': Permission denied", "is a protected path"),
            ("curl: (6) Could not resolve host: example.org", "needs `net=\"HOST\"`"),
        ] {
            let hint = explain(output, ProgramExit::Code(1), &sandbox).unwrap();
            assert!(hint.starts_with("[blocked by the sandbox: ") && hint.contains(says), "{output}: {hint}");
        }
        for output in ["error: expected `;`", "out/x: Permission denied", ""] {
            assert_eq!(explain(output, ProgramExit::Code(1), &sandbox), None, "{output}");
        }
    }
}
