//! The `signing.require` policy (`language.md` 3), and the signature status of each file. A project can make the policy
//! of its user stricter, never looser.

use std::sync::Arc;

use rye_compiler::world::{ItemKind, Space, WorldError};
use rye_grammar::{ItemId, SourceId, yaml};

use super::{DiskWorld, Listing};
use crate::keys::{SignatureError, SignatureStatus};

/// The settings file that holds `signing.require`.
const AGENT_SETTINGS: &str = ".ai/config/agent/agent.yaml";

/// Values of `signing.require`, loosest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SignaturePolicy {
    None,
    /// The default if the user sets no policy. Files of the project and of the user may be unsigned.
    Shared,
    /// Every file of the project and of the user must be signed by a trusted key.
    All,
}

/// A file of the project or the user space, with its signature status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSignature {
    pub space: Space,
    pub kind: ItemKind,
    pub id: ItemId,
    /// Path relative to the space's root.
    pub path: Arc<str>,
    pub status: Result<SignatureStatus, SignatureError>,
}

impl DiskWorld {
    /// Returns the stricter of two policies: the user's policy (`Shared` if the user sets none) and the project's
    /// policy. A project can therefore not relax the policy.
    pub fn signature_policy(&self) -> Result<SignaturePolicy, WorldError> {
        self.require.get_or_init(|| self.read_signature_policy()).clone()
    }

    fn read_signature_policy(&self) -> Result<SignaturePolicy, WorldError> {
        let mut user = SignaturePolicy::Shared;
        let mut project = SignaturePolicy::None;
        for (space, dir) in &self.spaces {
            let Some(bytes) = self.read_file(*space, dir, AGENT_SETTINGS)? else { continue };
            let Some(written) = parse_policy(*space, &bytes)? else { continue };
            match space {
                Space::Project => project = written,
                Space::User | Space::System => user = written,
            }
        }
        Ok(user.max(project))
    }

    /// Returns the signature status of every file of a kind in the project and the user space, by space and path.
    /// Invalid signatures are reported as a status, not as an error.
    pub fn file_signatures(&self, kind: ItemKind) -> Result<Vec<FileSignature>, WorldError> {
        let mut found = Vec::new();
        for (space, dir) in &self.spaces {
            let listing = Listing::read(*space, dir, kind)?;
            for (id, path) in listing.entries() {
                let Some(bytes) = self.read_file(*space, dir, path)? else { continue };
                let status = self.trust.verify_file(&bytes);
                found.push(FileSignature { space: *space, kind, id: id.clone(), path: path.clone(), status });
            }
        }
        Ok(found)
    }
}

/// Reads the signature policy of a settings file; `None` if the file sets no policy. An unknown value is an error,
/// because the author of the file may have intended a strict policy.
fn parse_policy(space: Space, bytes: &[u8]) -> Result<Option<SignaturePolicy>, WorldError> {
    let unreadable = |reason: String| WorldError::Unreadable { path: space.display(AGENT_SETTINGS), reason };
    let text = std::str::from_utf8(bytes).map_err(|error| unreadable(error.to_string()))?;
    let parsed = yaml::parse(SourceId(0), text);
    if let Some(error) = parsed.errors.first() {
        return Err(unreadable(error.to_string()));
    }
    let Some(node) = parsed.tree.get("signing").and_then(|signing| signing.get("require")) else { return Ok(None) };
    match node.as_str() {
        Some("none") => Ok(Some(SignaturePolicy::None)),
        Some("shared") => Ok(Some(SignaturePolicy::Shared)),
        Some("all") => Ok(Some(SignaturePolicy::All)),
        Some(_) | None => Err(unreadable("`signing.require` must be `none`, `shared` or `all`".to_owned())),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::fs;
    use std::path::Path;

    use rye_compiler::world::World;

    use super::*;
    use crate::keys::{CommentSyntax, KeyFolder, TrustStore, sign_in_place};

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn world(base: &Path, trust: TrustStore) -> DiskWorld {
        let system: [(String, &[u8]); 1] = [(".ai/knowledge/s.md".to_owned(), b"system")];
        DiskWorld::open(Some(&base.join("project")), Some(&base.join("user")), system, trust).unwrap()
    }

    #[test]
    fn project_can_only_tighten_the_signature_policy() {
        use SignaturePolicy::{All, None, Shared};
        for (user, project, expected) in [
            ("", "", Shared),
            ("none", "", None),
            ("none", "none", None),
            ("", "none", Shared),
            ("all", "none", All),
            ("all", "", All),
            ("none", "all", All),
            ("", "all", All),
        ] {
            let base = tempfile::tempdir().unwrap();
            for (space, value) in [("user", user), ("project", project)] {
                fs::create_dir_all(base.path().join(space)).unwrap();
                if !value.is_empty() {
                    write(&base.path().join(space), AGENT_SETTINGS, &format!("signing: {{ require: {value} }}\n"));
                }
            }
            assert_eq!(
                world(base.path(), TrustStore::default()).signature_policy().unwrap(),
                expected,
                "{user} {project}"
            );
        }
        let base = tempfile::tempdir().unwrap();
        write(&base.path().join("project"), AGENT_SETTINGS, "signing: { require: al }\n");
        assert!(world(base.path(), TrustStore::default()).signature_policy().is_err());
    }

    #[test]
    fn unsigned_file_is_refused_under_require_all() {
        let base = tempfile::tempdir().unwrap();
        let (project, user) = (base.path().join("project"), base.path().join("user"));
        write(&user, AGENT_SETTINGS, "signing: { require: all }\n");
        write(&user, ".ai/tools/t.sh", "echo\n");
        write(&project, ".ai/knowledge/k.md", "text");
        let keys = KeyFolder::of_user_space(&user);
        let me = keys.load_or_generate().unwrap();
        let open = || world(base.path(), keys.trust_store().unwrap());
        let id = |text: &str| ItemId::parse(text).unwrap();
        for (kind, name) in [(ItemKind::Knowledge, "k"), (ItemKind::Tool, "t"), (ItemKind::Config, "agent/agent")] {
            assert!(matches!(open().candidates(kind, &id(name)), Err(WorldError::Unsigned { .. })), "{name}");
        }
        assert_eq!(open().candidates(ItemKind::Knowledge, &id("s")).unwrap().len(), 1, "the library is compiled in");
        let now = "2026-02-14T00:27:54Z";
        for (root, path) in [(&project, ".ai/knowledge/k.md"), (&user, ".ai/tools/t.sh"), (&user, AGENT_SETTINGS)] {
            sign_in_place(root, path, &me, now).unwrap();
        }
        for (kind, name) in [(ItemKind::Knowledge, "k"), (ItemKind::Tool, "t"), (ItemKind::Config, "agent/agent")] {
            assert_eq!(open().candidates(kind, &id(name)).unwrap().len(), 1, "{name}");
        }
        let status = open().file_signatures(ItemKind::Knowledge).unwrap();
        assert!(matches!(&status.first().unwrap().status, Ok(SignatureStatus::Signed { .. })));
        assert_eq!(CommentSyntax::of_extension("sh"), Some(CommentSyntax::Hash));
    }
}
