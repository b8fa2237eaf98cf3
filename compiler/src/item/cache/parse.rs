//! Parsers from a file's text to an item, with the diagnostics of that file.

use rye_grammar::data::{Kind, Node};
use rye_grammar::knowledge::KnowledgeFormat;
use rye_grammar::{SourceId, Span, SyntaxKind};
use sha2::{Digest, Sha256};

use super::HookFiles;
use crate::diagnostics::{Diagnostics, ItemError};
use crate::hook::HookSource;
use crate::item::front_matter::unread_front_matter;
use crate::item::hook::read as hook_reader;
use crate::item::{Directive, FileRef, Knowledge, data, directive, knowledge};
use crate::plan::hex;
use crate::world::{ItemKind, Space, WorldError};

pub(super) fn parse_directive(file: FileRef, text: &str, found: &mut Diagnostics) -> Option<Directive> {
    let mut debris = Diagnostics::new();
    let parsed = rye_grammar::directive::parse(file.source, text);
    // If there is no fence, the help of the error about the missing fence also describes the front matter.
    if parsed.tree.fence.is_some() {
        found.extend(front_matter_of_directive(&file, text));
    }
    // Broken XML would cause follow-up diagnostics about its fragments.
    let broken = parsed.errors.iter().any(|e| e.kind == SyntaxKind::Xml);
    // If a file has two directive blocks, the intended block is unknown, so neither block is compiled.
    let twice = parsed.errors.iter().any(|e| e.kind == SyntaxKind::Fence && e.other.is_some());
    found.syntax(parsed.errors);
    if twice {
        return None;
    }
    directive::read(file, parsed.tree, if broken { &mut debris } else { found })
}

pub(super) fn parse_knowledge(file: FileRef, text: &str, found: &mut Diagnostics) -> Knowledge {
    let format = if file.path.ends_with(".md") { KnowledgeFormat::Markdown } else { KnowledgeFormat::Yaml };
    if format == KnowledgeFormat::Markdown {
        found.extend(unread_front_matter(&file, text));
    }
    let parsed = rye_grammar::knowledge::parse(file.source, text, format);
    found.syntax(parsed.errors);
    knowledge::read(file, parsed.tree, found)
}

/// Returns an error for front matter at the start of a directive, because such front matter is never read. `None` for
/// any other file.
fn front_matter_of_directive(file: &FileRef, text: &str) -> Option<ItemError> {
    let start = rye_grammar::signature::parse(file.source, text).map_or(0, |line| line.node.content_start);
    let content = text.get(start..)?;
    let trimmed = content.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']);
    let at = start + content.len() - trimmed.len();
    let mark = ["---", "+++"].into_iter().find(|mark| trimmed.lines().next().is_some_and(|l| l.trim_end() == *mark))?;
    let inside: Vec<&str> = trimmed.lines().skip(1).take_while(|line| line.trim_end() != mark).collect();
    let closed = trimmed.lines().nth(inside.len() + 1).is_some();
    let says = |line: &&str| {
        let key = line.split([':', '=']).next().unwrap_or_default();
        key.len() < line.len()
            && !key.is_empty()
            && key.trim().chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
    };
    (closed && inside.iter().any(says)).then(|| ItemError::FrontMatter {
        mark: mark.to_owned(),
        kind: ItemKind::Directive,
        because: "this text is documentation only, like all text before the fence",
        help: "the metadata of a directive belongs in its `xml` fence: `<metadata><model tier=\"…\"/></metadata>`",
        span: Span::new(file.source, at, at + mark.len()),
    })
}

/// The keys of a hook file that hold lists of hooks.
pub(crate) const HOOK_LISTS: [&str; 4] = ["hooks", "builtin_hooks", "context_hooks", "infra_hooks"];

pub(super) fn read_hook_file(node: &Node, space: Space, files: &mut HookFiles, found: &mut Diagnostics) {
    let entries = match &node.kind {
        Kind::Null => return,
        Kind::Map(entries) => entries,
        Kind::Bool(_) | Kind::Number(_) | Kind::String(_) | Kind::List(_) => {
            data::report_invalid(found, "hooks", node, "a mapping with a list `hooks`");
            return;
        }
    };
    data::check_keys(found, entries, &HOOK_LISTS, "a hook file");
    for entry in entries {
        let (source, into) = match (entry.key.node.as_str(), space) {
            ("infra_hooks", _) => (HookSource::Infrastructure, &mut files.infra),
            ("hooks" | "builtin_hooks" | "context_hooks", Space::User) => (HookSource::User, &mut files.user),
            ("hooks" | "builtin_hooks" | "context_hooks", Space::Project) => (HookSource::Project, &mut files.project),
            ("hooks" | "builtin_hooks" | "context_hooks", Space::System) => (HookSource::Builtin, &mut files.builtin),
            _ => continue,
        };
        into.extend(hook_reader::read_hooks(&entry.value, &source, space, found));
    }
}

pub(super) fn world_error(kind: ItemKind, error: WorldError) -> ItemError {
    match error {
        WorldError::Unreadable { path, reason } => ItemError::Unreadable { path, reason, span: None },
        WorldError::Ambiguous { id, first, second } => ItemError::Ambiguous { kind, id, first, second },
        WorldError::Escapes { path } => {
            ItemError::Unreadable { path, reason: "it leaves its space".into(), span: None }
        }
        WorldError::Signature { path, reason } => ItemError::Signature { path, reason, span: None },
        WorldError::Unsigned { path } => ItemError::Unsigned { path, span: None },
        WorldError::UntrustedKey { path, key_id } => ItemError::UntrustedKey { path, key_id, others: Vec::new() },
    }
}

/// Returns the error for a file whose content does not match the hash in its signature; `None` if the hash matches or
/// there is no signature. The `World` checks if the key is trusted.
pub(super) fn broken_signature(source: SourceId, path: String, text: &str) -> Option<ItemError> {
    let line = rye_grammar::signature::parse(source, text)?;
    let content = text.as_bytes().get(line.node.content_start..).unwrap_or_default();
    let fits = hex(&Sha256::digest(content)) == line.node.sha256;
    (!fits).then(|| ItemError::Signature {
        path,
        reason: "the content does not match the signature".into(),
        span: Some(Span { ..line.span }),
    })
}
