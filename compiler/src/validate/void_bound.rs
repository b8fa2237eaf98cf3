//! Reports grants whose `write` bounds nothing: another grant of the same `<permissions>` allows the same file tools and
//! names no folder, so that these tools may write in the whole project (`language.md` 9).

use crate::diagnostics::{CapabilityError, Diagnostics};
use crate::item::{GrantDecl, Items, Permissions};
use crate::sandbox::{Opening, SandboxKind, unused_opening};
use crate::semantics::capability::ItemType;
use crate::semantics::glob::Glob;

pub fn check(items: &Items<'_>, permissions: &Permissions, found: &mut Diagnostics) {
    if permissions.grants.iter().all(|grant| !grant.write.is_empty()) {
        return;
    }
    for grant in permissions.grants.iter().filter(|grant| !grant.write.is_empty()) {
        if let Some((tool, wide)) = unbounded_tool(items, permissions, grant) {
            found.push(CapabilityError::VoidBound {
                entries: grant.write.join(","),
                wide: wide.pattern.0.clone(),
                tool,
                span: grant.span,
                wide_span: wide.span,
            });
        }
    }
}

/// Returns the first tool that uses the folders of a grant, and the grant that lets it write everywhere. `None` if no
/// tool uses the folders, or if the folders bound or open a tool.
fn unbounded_tool<'p>(
    items: &Items<'_>,
    permissions: &'p Permissions,
    grant: &GrantDecl,
) -> Option<(String, &'p GrantDecl)> {
    let reached = Glob::new(&grant.pattern.0);
    let mut first = None;
    for entry in items.list(ItemType::Tool.kind()).iter() {
        let capability = format!("rye.execute.tool.{}", entry.id.dotted());
        if !reached.matches(&capability) {
            continue;
        }
        let tool = items.tool(&entry.id)?;
        if grant.write.iter().all(|folder| unused_opening(&tool.spec, Opening::Write, folder).is_some()) {
            continue;
        }
        // The folders of a program are added up.
        if SandboxKind::of(&tool.spec.kind) != SandboxKind::Files {
            return None;
        }
        let is_wide = |other: &&GrantDecl| other.write.is_empty() && Glob::new(&other.pattern.0).matches(&capability);
        let wide = permissions.grants.iter().find(is_wide)?;
        first = first.or(Some((entry.id.to_string(), wide)));
    }
    first
}

/// Returns the element to write for a grant: `add` lists the missing folders and hosts as attributes of a `<tool>`, and
/// the result names those of the grant too. Any other element is returned unchanged.
pub fn complete_openings(grant: &GrantDecl, add: String) -> String {
    let Some(missing) = add.strip_prefix("<tool ").and_then(|rest| rest.strip_suffix('>')) else { return add };
    let mut attributes = Vec::new();
    for (name, granted) in [("write", &grant.write), ("net", &grant.net)] {
        let added = missing.split_once(&format!("{name}=\"")).and_then(|(_, rest)| rest.split('"').next());
        let entries: Vec<&str> = granted.iter().map(String::as_str).chain(added).collect();
        if !entries.is_empty() {
            attributes.push(format!("{name}=\"{}\"", entries.join(",")));
        }
    }
    format!("<tool {}>", attributes.join(" "))
}
