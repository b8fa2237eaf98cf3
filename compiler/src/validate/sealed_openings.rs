//! Compares `write` and `net` of a directive's grants with its sealed base. Reports folders and hosts to which a grant
//! gives a tool access, and to which the base gives the tool no access (`language.md` 9).

use rye_grammar::Span;

use super::capability::{granted_places, write_bound};
use crate::diagnostics::{CapabilityError, Diagnostics};
use crate::item::{GrantDecl, Items, Permissions, Tool};
use crate::sandbox::{Opening, SandboxKind, unused_opening};
use crate::semantics::glob::Glob;
use crate::semantics::needs::{allows_host, is_folder_inside, suggest_host, write_path_error};
use crate::world::ItemKind;

/// The grants of a sealed base, and the ids that a report names.
pub struct SealedBase<'c> {
    pub leaf: &'c str,
    pub base: &'c str,
    pub permissions: &'c Permissions,
}

/// The folders or hosts to which one grant gives a tool access beyond the access that the base gives. `entries` is
/// empty if a file tool may write everywhere because the grant names no folder.
struct WiderOpening {
    opening: Opening,
    entries: Vec<String>,
    /// The entries of the base for the same tool.
    granted: Vec<String>,
}

impl SealedBase<'_> {
    /// Reports the folders and hosts of a grant to which the base gives no access. Skips tools that the base does not
    /// grant, because the pattern of the grant is then reported elsewhere. Each attribute is reported once, for the
    /// first tool.
    pub fn check_openings(&self, items: &Items<'_>, grant: &GrantDecl, found: &mut Diagnostics) {
        let reached = Glob::new(&grant.pattern.0);
        let mut reported: Vec<Opening> = Vec::new();
        for entry in items.list(ItemKind::Tool).iter() {
            let capability = format!("rye.execute.tool.{}", entry.id.dotted());
            let is_granted = |base: &GrantDecl| Glob::new(&base.pattern.0).matches(&capability);
            if !reached.matches(&capability) || !self.permissions.grants.iter().any(is_granted) {
                continue;
            }
            let Some(tool) = items.tool(&entry.id) else { continue };
            let wider = [self.wider_folders(&tool, grant), self.wider_hosts(&tool, grant)];
            for WiderOpening { opening, entries, granted } in wider.into_iter().flatten() {
                if reported.contains(&opening) {
                    continue;
                }
                reported.push(opening);
                found.push(CapabilityError::OpensMoreThanBase {
                    leaf: self.leaf.to_owned(),
                    base: self.base.to_owned(),
                    tool: entry.id.to_string(),
                    opening: opening.as_str(),
                    entries: entries.join(","),
                    granted: granted.join(","),
                    span: grant.span,
                    base_span: self.base_place(&capability),
                });
            }
        }
    }

    fn wider_folders(&self, tool: &Tool, grant: &GrantDecl) -> Option<WiderOpening> {
        let opening = Opening::Write;
        let writes_files = SandboxKind::of(&tool.spec.kind) == SandboxKind::Files;
        let granted = if writes_files {
            let bound = write_bound(self.permissions, &tool.file.id);
            // There is nothing to report if the base lets the tool write in the whole project, or if the tool writes no
            // files.
            if bound.is_empty() || unused_opening(&tool.spec, opening, ".").is_some() {
                return None;
            }
            bound
        } else {
            granted_places(self.permissions, &tool.file.id).0
        };
        let granted: Vec<String> = granted.into_iter().map(str::to_owned).collect();
        if writes_files && grant.write.is_empty() {
            return Some(WiderOpening { opening, entries: Vec::new(), granted });
        }
        let is_outside = |path: &&String| {
            write_path_error(path).is_none()
                && unused_opening(&tool.spec, opening, path).is_none()
                && !granted.iter().any(|outer| is_folder_inside(path, outer))
        };
        let entries: Vec<String> = grant.write.iter().filter(is_outside).cloned().collect();
        (!entries.is_empty()).then_some(WiderOpening { opening, entries, granted })
    }

    fn wider_hosts(&self, tool: &Tool, grant: &GrantDecl) -> Option<WiderOpening> {
        let opening = Opening::Net;
        let granted: Vec<String> =
            granted_places(self.permissions, &tool.file.id).1.into_iter().map(str::to_owned).collect();
        let is_outside = |host: &&String| {
            suggest_host(host).is_none()
                && unused_opening(&tool.spec, opening, host).is_none()
                && !granted.iter().any(|outer| allows_host(host, outer))
        };
        let entries: Vec<String> = grant.net.iter().filter(is_outside).cloned().collect();
        (!entries.is_empty()).then_some(WiderOpening { opening, entries, granted })
    }

    /// Returns the place of the base's first grant of a capability.
    fn base_place(&self, capability: &str) -> Span {
        let mut grants = self.permissions.grants.iter();
        let grant = grants.find(|grant| Glob::new(&grant.pattern.0).matches(capability));
        grant.map_or(self.permissions.span, |grant| grant.span)
    }
}
