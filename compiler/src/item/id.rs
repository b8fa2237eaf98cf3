//! Reads an item id. An id that leaves its space, such as `../x`, has its own error.

use rye_grammar::{ItemId, Spanned, SyntaxKind};

use crate::diagnostics::{Diagnostics, ItemError};
use crate::world::ItemKind;

/// Parses an item id. If the text is not a valid id, reports an error and returns `None`.
pub fn read(found: &mut Diagnostics, text: &Spanned<String>) -> Option<Spanned<ItemId>> {
    match ItemId::parse(&text.node) {
        Ok(id) => Some(Spanned::new(id, text.span)),
        Err(invalid) => {
            if escapes_space(&text.node) {
                let reason = escape_reason(&text.node).unwrap_or(invalid.reason);
                found.push(ItemError::EscapesSpace { text: text.node.clone(), reason, span: text.span });
            } else {
                let help = id_help(&text.node);
                found.push(
                    SyntaxKind::Reference
                        .error(text.span, format!("`{}` is not an item id", visible(&text.node)), invalid.reason)
                        .with_help(help),
                );
            }
            None
        }
    }
}

/// Returns a text with its control characters escaped. A backslash stays single, as the author wrote it.
fn visible(text: &str) -> String {
    let escape = |c: char| if c == '\\' { c.to_string() } else { c.escape_debug().to_string() };
    text.chars().map(escape).collect()
}

fn escapes_space(text: &str) -> bool {
    text.starts_with(['/', '~', '\\'])
        || text.split(['/', '\\']).any(|s| s == "." || s == "..")
        || text.get(1..3).is_some_and(|s| s == ":\\" || s == ":/")
}

fn escape_reason(text: &str) -> Option<String> {
    if text.starts_with(['/', '\\']) || text.get(1..2) == Some(":") {
        Some("an absolute path".into())
    } else if text.starts_with('~') {
        Some("a path into a home folder".into())
    } else {
        let up = text.split(['/', '\\']).find(|s| *s == "." || *s == "..")?;
        Some(format!("`{up}` is not a segment of an item id"))
    }
}

fn id_help(text: &str) -> String {
    let several: Vec<&str> = text.split([',', ';', ' ', '\n']).map(str::trim).filter(|part| !part.is_empty()).collect();
    if several.len() > 1 && text.contains([',', ';', '\n']) && several.iter().all(|part| ItemId::parse(part).is_ok()) {
        return "write one id here: in a `<context>`, one element for each id; a directive extends one base".into();
    }
    if several.len() > 3 {
        return "name an item here; to send this text, write it into the body or into `.ai/knowledge/NAME.md`, and name that file".into();
    }
    // If the text is a path instead of an id, drop the folder of its kind and the extension.
    let inside = text.strip_prefix(".ai/").unwrap_or(text);
    let folders = ItemKind::ALL.map(|kind| kind.folder().trim_start_matches(".ai/"));
    let text = folders.iter().find_map(|folder| inside.strip_prefix(folder)).unwrap_or(inside);
    let stem = text.strip_suffix(".md").or_else(|| text.strip_suffix(".yaml")).or_else(|| text.strip_suffix(".yml"));
    match stem.map(ItemId::parse) {
        Some(Ok(id)) => format!("write the id without extension and without the folder of its kind: `{id}`"),
        Some(Err(_)) | None => match ItemId::parse(&text.replace(['.', '\\'], "/")) {
            Ok(id) => format!("ids are written with `/`: `{id}`"),
            Err(_) => "an id is one or more parts of letters, digits, `_` and `-`, joined by `/`".into(),
        },
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use rye_grammar::{SourceId, Span};

    use super::*;

    fn code(text: &str) -> Option<&'static str> {
        let mut found = Diagnostics::new();
        let id = read(&mut found, &Spanned::new(text.into(), Span::new(SourceId(0), 0, text.len())));
        let code = found.iter().next().map(crate::diagnostics::Diagnostic::code);
        assert_eq!(id.is_some(), code.is_none());
        code
    }

    #[test]
    fn escaping_ids_differ_from_misspelled_ids() {
        for text in ["../x", "a/../b", "/etc/passwd", "~/x", "./x", "a\\..\\b", "C:\\x"] {
            assert_eq!(code(text), Some("item::escapes-space"), "{text}");
        }
        for text in ["", "a b", "a//b", "base.md", "rye.agent.core.base", "ä", "a/"] {
            assert_eq!(code(text), Some("syntax::reference"), "{text}");
        }
        assert_eq!(code("rye/agent/core/base"), None);
    }

    #[test]
    fn help_shows_the_intended_id() {
        assert!(id_help("a/b.md").contains("`a/b`"));
        assert!(id_help(".ai/directives/a/b.md").contains("`a/b`"));
        assert!(id_help("knowledge/k.yaml").contains("`k`"));
        assert!(id_help("rye.agent.core").contains("`rye/agent/core`"));
        assert!(id_help("team\\rules").contains("`team/rules`"));
        assert_eq!(visible("a\\b\u{200b}\n"), "a\\b\\u{200b}\\n");
    }
}
