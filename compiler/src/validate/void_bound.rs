//! Reports grants whose attribute `write` has no effect: another grant of the same `<permissions>` allows the same file
//! tools and names no folder, so that these tools may write in the whole project (`language.md` 9).

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

/// Returns the first tool that uses the folders of `grant`, and the grant that lets this tool write in the whole
/// project. `None` if no tool uses the folders, or if the folders have an effect for one of the tools.
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
        // A program may write in the folders of all its grants, so the folders of `grant` have an effect.
        if SandboxKind::of(&tool.spec.kind) != SandboxKind::Files {
            return None;
        }
        let is_wide = |other: &&GrantDecl| other.write.is_empty() && Glob::new(&other.pattern.0).matches(&capability);
        let wide = permissions.grants.iter().find(is_wide)?;
        first = first.or(Some((entry.id.to_string(), wide)));
    }
    first
}

/// Returns the element that the author should write in place of `grant`. If `add` is a `<tool>` whose attributes list
/// missing folders and hosts, adds the folders and hosts of `grant`. Returns any other element unchanged.
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
