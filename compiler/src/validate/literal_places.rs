//! Checks of the literal URLs and paths in calls that a body tells the model to make. Reports a URL or path that the
//! grants do not allow, or that is refused under any grants.

use serde_json::Value;

use super::capability::{granted_places, write_bound};
use super::interface::LiteralCall;
use crate::compose::Composed;
use crate::diagnostics::{CapabilityError, Diagnostics};
use crate::item::{Tool, shorten};
use crate::semantics::needs::{allows_host, fold_case, is_folder_inside, is_protected, url_host};
use crate::tool_spec::ToolKind;

/// Reports a call of a built-in tool whose literal URL or path would be refused: by the tool itself, or because no
/// grant allows the URL or path.
pub fn check_places(composed: &Composed, tool: &Tool, call: &LiteralCall, found: &mut Diagnostics) {
    let ToolKind::Builtin { name } = &tool.spec.kind else { return };
    for argument in &call.arguments {
        let by_default = argument.by_default.as_ref().filter(|_| argument.value.is_none());
        let known = argument.value.as_ref().or(by_default.map(|default| &default.value));
        let Some(value) = known.and_then(Value::as_str) else { continue };
        let permissions = composed.permissions.as_ref();
        let (why, granted) = match (name.as_str(), argument.name.node.as_str()) {
            ("web_fetch", "url") => {
                if let Some(why) = unsupported_url(value) {
                    (why, None)
                } else {
                    let Some(permissions) = permissions else { continue };
                    let (_, net) = granted_places(&permissions.value, &tool.file.id);
                    let host = url_host(value);
                    // If the grants allow no host, another check reports the grants.
                    if net.is_empty() || host.is_none_or(|host| net.iter().any(|outer| allows_host(host, outer))) {
                        continue;
                    }
                    (format!("the grant allows only `{}`", net.join("`, `")), Some(permissions.value.span))
                }
            }
            ("read" | "ls" | "glob" | "grep" | "write" | "edit", "path") if leaves_project(value) => {
                ("the path leaves the project".to_owned(), None)
            }
            ("write" | "edit", "path") if value.split('/').any(|part| is_protected(&fold_case(part))) => {
                ("the path is a protected path, which no tool may write".to_owned(), None)
            }
            ("write" | "edit", "path") => {
                let Some(permissions) = permissions else { continue };
                let bound = write_bound(&permissions.value, &tool.file.id);
                // A path with a placeholder and an absolute path can be compared only in a run.
                let is_known = !value.starts_with('/') && !value.contains(['{', '$']);
                let path = resolve_dots(value);
                if bound.is_empty() || !is_known || bound.iter().any(|folder| is_folder_inside(&path, folder)) {
                    continue;
                }
                (format!("the grant allows only `{}`", bound.join("`, `")), Some(permissions.value.span))
            }
            _ => continue,
        };
        let (why, span) = match by_default {
            Some(default) => (format!("it is the default of the input `{}`, and {why}", default.input), default.span),
            None => (why, argument.span),
        };
        found.push(CapabilityError::OutsideGrant { value: shorten(value), why, span, granted });
    }
}

/// Folders of the system that contain no projects.
const SYSTEM_FOLDERS: [&str; 9] = ["bin", "boot", "dev", "etc", "lib", "proc", "sbin", "sys", "usr"];

/// Returns true if no project contains a path: a relative path that goes above the folder it starts in, a path in a
/// folder of the system, or a file directly in `/` or `/tmp`.
fn leaves_project(path: &str) -> bool {
    let mut parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
    if path.starts_with('/') {
        let parts: Vec<&str> = parts.collect();
        return match parts.as_slice() {
            _ if path.contains(['{', '$']) => false,
            [first, ..] if SYSTEM_FOLDERS.contains(first) => true,
            [first, _] => *first == "tmp",
            parts => parts.len() < 2,
        };
    }
    let mut depth = 0_i32;
    !path.starts_with('~')
        && parts.any(|part| {
            depth += if part == ".." { -1 } else { 1 };
            depth < 0
        })
}

/// Returns a relative path without `.` and `..`.
fn resolve_dots(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

/// Returns the reason why a URL is refused, whatever its host is: its scheme is neither `http` nor `https`, or it
/// contains a user name or a password. `None` if neither holds.
fn unsupported_url(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let is_scheme = !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    if is_scheme && !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return Some(format!("`{scheme}:` URLs are not supported; use `https:` or `http:`"));
    }
    let authority = rest.split(['/', '?', '#']).next()?;
    authority.contains('@').then(|| "a URL with a user name or a password is refused".to_owned())
}
