//! `rye_sign`: adds the user's signature line to an item of the project.

use std::io::Read;
use std::path::Path;

use jiff::Timestamp;
use rye_compiler::primary::{Primary, SignRequest, format_capability};
use serde_json::json;

use crate::keys::{CommentSyntax, SigningIdentity};
use crate::tool::ToolOutcome;
use crate::tool::confine::{FileAccessError, FileVersion, ProjectFiles, ResolvedKind, ResolvedPath};

/// Maximum size in bytes of an item that can be signed; equal to the maximum size that the compiler reads.
const MAX_SIGNED_ITEM_BYTES: u64 = 64 << 20;

/// Signs an item of the project. Refuses items of other spaces. The gate has authorized the call. Reads and writes
/// files, so call it where blocking is allowed.
pub fn sign(project_root: &Path, identity: &SigningIdentity, now: Timestamp, request: &SignRequest) -> ToolOutcome {
    sign_item(project_root, identity, now, request).unwrap_or_else(ToolOutcome::error)
}

fn sign_item(
    root: &Path,
    identity: &SigningIdentity,
    now: Timestamp,
    request: &SignRequest,
) -> Result<ToolOutcome, String> {
    let grant = format_capability(Primary::Sign, request.item_type, Some(&request.item_id));
    let project = ProjectFiles::open(root, vec![vec![grant]]).map_err(|e| e.to_string())?;
    let kind = request.item_type.kind();
    let mut found: Option<(ResolvedPath, CommentSyntax)> = None;
    for extension in kind.extensions() {
        let path = format!("{}{}.{extension}", kind.folder(), request.item_id);
        let place = project.locate(&path).map_err(|e| e.to_string())?;
        if matches!(place.found, ResolvedKind::Missing { .. }) {
            continue;
        }
        let comment = CommentSyntax::of_extension(extension).ok_or_else(|| {
            format!("`{path}` cannot be signed: a signature is a comment line, and its format has no comments")
        })?;
        if let Some((first, _)) = &found {
            return Err(format!("`{}` has two files: `{}` and `{path}`", request.item_id, first.path));
        }
        found = Some((place, comment));
    }
    let (place, comment) = found.ok_or_else(|| {
        format!(
            "the project has no {} `{}`; only items of the project are signed",
            request.item_type.as_str(),
            request.item_id
        )
    })?;
    let (file, metadata) = project.open_file(&place).map_err(|e| e.to_string())?;
    if metadata.len() > MAX_SIGNED_ITEM_BYTES {
        return Err(format!("`{}` is too large to be an item", place.path));
    }
    let version = if let ResolvedKind::File { stat, .. } = &place.found { Some(FileVersion::of(stat)) } else { None };
    let mut bytes = Vec::new();
    let failed = |source| FileAccessError::Io { path: place.path.to_string(), source }.to_string();
    file.take(MAX_SIGNED_ITEM_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    let timestamp = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let signed = identity.sign_file(&bytes, comment, &timestamp);
    project.replace(&place, &signed, version).map_err(|e| e.to_string())?;
    Ok(ToolOutcome::ok(json!({
        "signed": place.path.to_string(),
        "key_id": identity.key_id(),
        "timestamp": timestamp,
    })))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use std::fs;

    use rye_compiler::primary::ItemType;
    use rye_grammar::ItemId;

    use super::*;
    use crate::keys::{KeyFolder, SignatureStatus};

    fn request(item_type: ItemType, id: &str) -> SignRequest {
        SignRequest { item_type, item_id: ItemId::parse(id).unwrap() }
    }

    #[test]
    fn items_of_the_project_are_signed_in_place() {
        let base = tempfile::tempdir().unwrap();
        let keys = KeyFolder::of_user_space(&base.path().join("user"));
        let me = keys.load_or_generate().unwrap();
        let root = base.path().join("project");
        for (path, text) in
            [(".ai/directives/a/b.md", "# B\n"), (".ai/tools/t.py", "x = 1\n"), (".ai/tools/s.ts", "//\n")]
        {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), text).unwrap();
        }
        let now: Timestamp = "2026-02-14T00:27:54.9Z".parse().unwrap();
        let outcome = sign(&root, &me, now, &request(ItemType::Directive, "a/b"));
        assert!(!outcome.is_error, "{}", outcome.content);
        assert_eq!(outcome.content["timestamp"], "2026-02-14T00:27:54Z");
        let bytes = fs::read(root.join(".ai/directives/a/b.md")).unwrap();
        let status = keys.trust_store().unwrap().verify_file(&bytes).unwrap();
        assert_eq!(
            status,
            SignatureStatus::Signed { key_id: me.key_id().into(), timestamp: "2026-02-14T00:27:54Z".into() }
        );
        assert!(!sign(&root, &me, now, &request(ItemType::Tool, "t")).is_error);
        assert!(fs::read_to_string(root.join(".ai/tools/t.py")).unwrap().starts_with("# rye:signed:"));
        assert!(!sign(&root, &me, now, &request(ItemType::Tool, "s")).is_error);
        assert!(fs::read_to_string(root.join(".ai/tools/s.ts")).unwrap().starts_with("// rye:signed:"));

        assert!(sign(&root, &me, now, &request(ItemType::Knowledge, "a/b")).is_error);
        fs::write(root.join(".ai/tools/t.sh"), "").unwrap();
        let twice = sign(&root, &me, now, &request(ItemType::Tool, "t"));
        assert!(twice.content.as_str().unwrap().contains("has two files"));
        let outside = base.path().join("outside.md");
        fs::write(&outside, "secret").unwrap();
        std::os::unix::fs::symlink(&outside, root.join(".ai/directives/link.md")).unwrap();
        assert!(sign(&root, &me, now, &request(ItemType::Directive, "link")).is_error);
        assert_eq!(fs::read_to_string(&outside).unwrap(), "secret");
    }
}
