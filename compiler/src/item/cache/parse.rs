//! A file's text to an item, and what stands in the way of that.

use rye_grammar::data::{Kind, Node};
use rye_grammar::knowledge::KnowledgeFormat;
use rye_grammar::{SourceId, Span, SyntaxKind};
use sha2::{Digest, Sha256};

use super::HookFiles;
use crate::diagnostics::{Diagnostics, ItemError};
use crate::hook::HookSource;
use crate::item::hook::read as hook_reader;
use crate::item::{Directive, FileRef, Knowledge, data, directive, knowledge};
use crate::plan::hex;
use crate::world::{ItemKind, Space, WorldError};

pub(super) fn parse_directive(file: FileRef, text: &str, found: &mut Diagnostics) -> Option<Directive> {
    let mut debris = Diagnostics::new();
    let parsed = rye_grammar::directive::parse(file.source, text);
    // Where the XML is broken, what was read of it would give rise to complaints about its own debris.
    let broken = parsed.errors.iter().any(|e| e.kind == SyntaxKind::Xml);
    // Which of two blocks is meant is not for us to say: neither is compiled.
    let twice = parsed.errors.iter().any(|e| e.kind == SyntaxKind::Fence && e.other.is_some());
    found.syntax(parsed.errors);
    if twice {
        return None;
    }
    directive::read(file, parsed.tree, if broken { &mut debris } else { found })
}

pub(super) fn parse_knowledge(file: FileRef, text: &str, found: &mut Diagnostics) -> Knowledge {
    let format = if file.path.ends_with(".md") { KnowledgeFormat::Markdown } else { KnowledgeFormat::Yaml };
    let parsed = rye_grammar::knowledge::parse(file.source, text, format);
    found.syntax(parsed.errors);
    knowledge::read(file, parsed.tree, found)
}

pub(super) fn read_hook_file(node: &Node, space: Space, files: &mut HookFiles, found: &mut Diagnostics) {
    let entries = match &node.kind {
        Kind::Null => return,
        Kind::Map(entries) => entries,
        Kind::Bool(_) | Kind::Number(_) | Kind::String(_) | Kind::List(_) => {
            data::invalid(found, "hooks", node, "a mapping with a list `hooks`");
            return;
        }
    };
    data::keys(found, entries, &["hooks", "builtin_hooks", "context_hooks", "infra_hooks"], "a hook file");
    for entry in entries {
        let (source, into) = match (entry.key.node.as_str(), space) {
            ("infra_hooks", _) => (HookSource::Infrastructure, &mut files.infra),
            ("hooks" | "builtin_hooks" | "context_hooks", Space::User) => (HookSource::User, &mut files.user),
            ("hooks" | "builtin_hooks" | "context_hooks", Space::Project) => (HookSource::Project, &mut files.project),
            ("hooks" | "builtin_hooks" | "context_hooks", Space::System) => (HookSource::Builtin, &mut files.builtin),
            _ => continue,
        };
        into.extend(hook_reader::list(&entry.value, &source, space, found));
    }
}

pub(super) fn world_error(kind: ItemKind, error: WorldError) -> ItemError {
    match error {
        WorldError::Unreadable { path, reason } => ItemError::Unreadable { path, reason },
        WorldError::Ambiguous { id, first, second } => ItemError::Ambiguous { kind, id, first, second },
        WorldError::Escapes { path } => ItemError::Unreadable { path, reason: "it leads out of its space".into() },
        WorldError::Signature { path, reason } => ItemError::Signature { path, reason, span: None },
    }
}

/// The content of a signed file has to be what was signed; whether the key is trusted is the world's business.
pub(super) fn broken_signature(source: SourceId, path: String, text: &str) -> Option<ItemError> {
    let line = rye_grammar::signature::parse(source, text)?;
    let content = text.as_bytes().get(line.node.content_start..).unwrap_or_default();
    let fits = hex(&Sha256::digest(content)) == line.node.sha256;
    (!fits).then(|| ItemError::Signature {
        path,
        reason: "the content is not what was signed".into(),
        span: Some(Span { ..line.span }),
    })
}
