//! The path policy of file tools (`language.md` 9): the visible and the writable paths of a project. Decisions use the
//! canonical path of a file, not the text that a model wrote.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rye_compiler::semantics::needs::{fold_case, is_protected};
use rye_compiler::world::ItemKind;
use rye_grammar::ItemId;

/// The access that file tools have to a path in the project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathAccess {
    Ordinary,
    /// Readable, never writable.
    ReadOnly,
    /// Neither readable nor listed: the engine's state, keys and trust records.
    Hidden,
    /// A file of an item: readable, and writable only with this capability.
    Item {
        capability: String,
    },
}

/// Returns the access to a canonical path, given by its segments from the project root. `.ai` and the protected names
/// match at every depth, because a folder of a project can itself be a project. These names match in every spelling
/// that a file system may treat as equal.
pub(crate) fn path_access(segments: &[OsString]) -> PathAccess {
    let names: Vec<String> = segments.iter().map(|s| fold_case(&s.to_string_lossy())).collect();
    let Some(at) = names.iter().position(|n| n == ".ai" || is_protected(n)) else { return PathAccess::Ordinary };
    let inside = names.get(at + 1..).unwrap_or_default();
    if names.get(at).is_some_and(|n| n != ".ai") {
        return PathAccess::ReadOnly;
    }
    match inside.first().map(String::as_str) {
        Some("state" | "keys" | "trust") => PathAccess::Hidden,
        Some("data") => path_access(segments.get(at + 2..).unwrap_or_default()),
        Some("directives") => item(ItemKind::Directive, segments, at),
        Some("knowledge") => item(ItemKind::Knowledge, segments, at),
        Some("tools") => item(ItemKind::Tool, segments, at),
        Some(_) | None => PathAccess::ReadOnly,
    }
}

fn item(kind: ItemKind, segments: &[OsString], at: usize) -> PathAccess {
    let rest = segments.get(at + 2..).unwrap_or_default();
    let words: Option<Vec<&str>> = rest.iter().map(|s| s.to_str()).collect();
    let Some((file, folders)) = words.as_deref().and_then(<[&str]>::split_last) else { return PathAccess::ReadOnly };
    let Some((stem, extension)) = file.rsplit_once('.') else { return PathAccess::ReadOnly };
    if !kind.extensions().contains(&extension) {
        return PathAccess::ReadOnly;
    }
    let mut text = folders.join("/");
    if !text.is_empty() {
        text.push('/');
    }
    text.push_str(stem);
    ItemId::parse(&text).map_or(PathAccess::ReadOnly, |id| PathAccess::Item {
        capability: format!("rye.sign.{}.{}", kind.as_str(), id.dotted()),
    })
}

/// Returns the path of a folder that a tool file names relative to the project.
pub(crate) fn folder_of_project(project: &Path, folder: &str) -> PathBuf {
    let parts = folder.split('/').filter(|part| !part.is_empty() && *part != ".");
    parts.fold(project.to_path_buf(), |path, part| path.join(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str) -> PathAccess {
        path_access(&path.split('/').map(OsString::from).collect::<Vec<_>>())
    }

    fn item_of(capability: &str) -> PathAccess {
        PathAccess::Item { capability: capability.into() }
    }

    #[test]
    fn skills_and_templates_of_other_clients_are_read_only() {
        for path in [".claude/skills/a/SKILL.md", ".agents/skills/a/SKILL.md", "sub/.Claude/commands/a.md", ".claude"] {
            assert_eq!(of(path), PathAccess::ReadOnly, "{path}");
        }
        assert_eq!(of("claude/a.md"), PathAccess::Ordinary);
    }

    #[test]
    fn path_access_by_location() {
        for ordinary in
            ["a", "src/main.rs", ".ai/data", ".ai/data/x/y.json", ".github/x", "env", ".gitignore", "x.ai/state"]
        {
            assert_eq!(of(ordinary), PathAccess::Ordinary, "{ordinary}");
        }
        for read_only in [
            ".ai",
            ".ai/config/agent/hooks.yaml",
            ".git",
            ".git/hooks/pre-commit",
            ".env",
            ".env.local",
            ".envrc",
            "sub/.git/config",
            "sub/.ai/config/x.yaml",
            "sub/.env",
            ".ai/trust.yaml",
            ".ai/data/.git/config",
        ] {
            assert_eq!(of(read_only), PathAccess::ReadOnly, "{read_only}");
        }
        for hidden in [
            ".ai/keys",
            ".ai/keys/private.pem",
            ".ai/trust/x.json",
            "sub/.ai/keys/private.pem",
            ".ai/data/x/.ai/trust",
            ".ai/state",
            ".ai/state/threads/x/transcript.jsonl",
            "sub/.ai/state",
            ".ai/data/x/.ai/state/y",
        ] {
            assert_eq!(of(hidden), PathAccess::Hidden, "{hidden}");
        }
    }

    #[test]
    fn path_access_ignores_spelling() {
        assert_eq!(of(".AI/State/x"), PathAccess::Hidden);
        assert_eq!(of(".ai/ſtate/x"), PathAccess::Hidden);
        assert_eq!(of(".Ai/KEYS/private.pem"), PathAccess::Hidden);
        assert_eq!(of(".GIT/config"), PathAccess::ReadOnly);
        assert_eq!(of(".ENV"), PathAccess::ReadOnly);
    }

    #[test]
    fn item_files_need_their_own_capability() {
        assert_eq!(of(".ai/directives/a/b.md"), item_of("rye.sign.directive.a.b"));
        assert_eq!(of(".ai/knowledge/x.yml"), item_of("rye.sign.knowledge.x"));
        assert_eq!(of(".ai/tools/a-b/c.sh"), item_of("rye.sign.tool.a-b.c"));
        for no_item in [
            ".ai/directives",
            ".ai/directives/x.txt",
            ".ai/tools/x",
            ".ai/tools/a.b/c.py",
            ".ai/directives/.md",
            ".ai/directives/x.md.bak",
            ".ai/tools/.git/x.py",
            ".ai/knowledge/a b.md",
        ] {
            assert_eq!(of(no_item), PathAccess::ReadOnly, "{no_item}");
        }
    }
}
