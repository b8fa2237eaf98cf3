//! Renders `capabilities.md`: the capability sets of the spawn chain as trees, and the tools that the model is offered.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rye_compiler::plan::{Grant, Plan};
use rye_compiler::semantics::glob::Glob;
use rye_compiler::world::{ItemKind, Space};
use rye_grammar::ItemId;

use crate::thread_id::ThreadId;
use crate::tool::cancellation::StopCondition;
use crate::tool::confine::ProjectFiles;
use crate::tool::confine::walk::{Dotfiles, WalkEnd};

/// Maximum time to apply the ignore files to the project's tools. If more time is needed, `capabilities.md` also lists
/// ignored tools.
const IGNORE_FILES_TIMEOUT: Duration = Duration::from_millis(500);

/// Maximum number of cached texts of `capabilities.md`. Threads with the same plan and the same grants share a text.
const MAX_CACHED_TEXTS: usize = 16;

/// A cache of the texts of `capabilities.md`, by plan and grants.
#[derive(Debug, Default)]
pub(crate) struct CapabilitiesCache {
    lists: Mutex<VecDeque<Arc<CapabilitiesText>>>,
}

#[derive(Debug)]
pub(crate) struct CapabilitiesText {
    plan_id: String,
    grants: Vec<Vec<Grant>>,
    pub text: String,
}

impl CapabilitiesCache {
    pub(crate) fn list(
        &self,
        plan: &Plan,
        plan_id: &str,
        grants: &[Vec<Grant>],
        project: &Path,
    ) -> Arc<CapabilitiesText> {
        let known = |lists: &VecDeque<Arc<CapabilitiesText>>| {
            lists.iter().find(|list| list.plan_id == plan_id && list.grants == grants).map(Arc::clone)
        };
        if let Some(list) = known(&self.lists.lock().unwrap_or_else(PoisonError::into_inner)) {
            return list;
        }
        let text = render_capabilities(plan, grants, &ignored_tools(plan, project));
        let list = Arc::new(CapabilitiesText { plan_id: plan_id.to_owned(), grants: grants.to_vec(), text });
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        lists.truncate(MAX_CACHED_TEXTS - 1);
        lists.push_front(Arc::clone(&list));
        list
    }
}

/// Returns the contents of `capabilities.md` for one thread: front matter and title of the thread, then `text`, which
/// threads with equal plans and grants share.
pub(crate) fn with_front_matter(thread: &ThreadId, plan_id: &str, text: &str) -> String {
    format!("---\nthread_id: {thread}\nplan_id: {plan_id}\n---\n\n# Capabilities of `{thread}`\n\n{text}")
}

/// Renders the part of `capabilities.md` that is the same for all threads of a plan with these grants. The trees of the
/// capabilities omit the tools in `ignored`, which ignore files exclude.
fn render_capabilities(plan: &Plan, grants: &[Vec<Grant>], ignored: &BTreeSet<ItemId>) -> String {
    let mut text = String::new();
    // Writing to a `String` cannot fail.
    let out = &mut text;
    for (n, set) in grants.iter().enumerate() {
        let whose =
            if n == 0 { "Its own capabilities" } else { "Inherited capabilities, which must also allow each call" };
        _ = writeln!(out, "## {whose}\n");
        if set.is_empty() {
            _ = writeln!(out, "None: every action is denied.");
        }
        write_tree(out, plan, set, ignored);
        out.push('\n');
    }
    _ = writeln!(out, "## Tools\n");
    for tool in &plan.palette {
        let item = tool.item_id.as_ref().map(|id| format!(" (`{id}`)")).unwrap_or_default();
        let schema = serde_json::to_string_pretty(&tool.schema).unwrap_or_default();
        _ = writeln!(out, "### `{}`{item}\n\n{}\n\n```json\n{schema}\n```\n", tool.name, tool.description.trim());
    }
    if !plan.dropped_tools.is_empty() {
        _ = writeln!(out, "## Reachable only through `rye_execute`\n");
        for tool in &plan.dropped_tools {
            _ = writeln!(out, "- `{}`: {}", tool.item_id, tool.because);
        }
    }
    text
}

/// Renders a capability set as a tree: primaries, then item types, then patterns. Under each pattern, lists the tools
/// that the pattern covers, without the tools in `ignored`.
fn write_tree(out: &mut String, plan: &Plan, set: &[Grant], ignored: &BTreeSet<ItemId>) {
    let named = plan.palette.iter().filter_map(|tool| tool.item_id.as_ref());
    let mut tools: Vec<&ItemId> = named.chain(plan.dropped_tools.iter().map(|tool| &tool.item_id)).collect();
    tools.retain(|id| !ignored.contains(*id));
    tools.sort();
    tools.dedup();
    let mut grants: Vec<&Grant> = set.iter().collect();
    grants.sort_by(|a, b| a.pattern.cmp(&b.pattern));
    let mut above: Vec<&str> = Vec::new();
    for grant in grants {
        let pattern = grant.pattern.strip_prefix("rye.").unwrap_or(&grant.pattern);
        let parts: Vec<&str> = pattern.splitn(3, '.').collect();
        let same = parts.iter().zip(&above).take_while(|(a, b)| a == b).count();
        for (depth, part) in parts.iter().enumerate().skip(same.min(parts.len().saturating_sub(1))) {
            _ = write!(out, "{}- `{part}`", "  ".repeat(depth));
            if depth + 1 == parts.len() {
                for (need, list) in [("net", &grant.net), ("write", &grant.write)] {
                    if !list.is_empty() {
                        _ = write!(out, ", {need}: {}", list.join(" "));
                    }
                }
            }
            out.push('\n');
        }
        let glob = Glob::new(grant.pattern.as_str());
        for id in &tools {
            if glob.matches(&format!("rye.execute.tool.{}", id.as_str().replace('/', "."))) {
                _ = writeln!(out, "{}- {id}", "  ".repeat(parts.len()));
            }
        }
        above = parts;
    }
}

/// Returns the tools of the project that ignore files (such as `.gitignore`) exclude. `write_tree` omits these tools.
/// The result is empty if the tool folder cannot be read completely within [`IGNORE_FILES_TIMEOUT`].
fn ignored_tools(plan: &Plan, project: &Path) -> BTreeSet<ItemId> {
    let own = |kind: ItemKind, space: Option<Space>| kind == ItemKind::Tool && space == Some(Space::Project);
    let read = plan.manifest.iter().filter(|read| own(read.kind, read.space) && read.sha256.is_some());
    let mut left: BTreeSet<ItemId> = read.filter_map(|read| ItemId::parse(&read.id).ok()).collect();
    if left.is_empty() {
        return left;
    }
    let Ok(project) = ProjectFiles::open(project, Vec::new()) else { return BTreeSet::new() };
    let Ok(place) = project.locate(ItemKind::Tool.folder().trim_end_matches('/')) else { return BTreeSet::new() };
    let Ok(folder) = place.folder() else { return BTreeSet::new() };
    let (stop, _waiting) = StopCondition::after(IGNORE_FILES_TIMEOUT);
    let walked = project.walk(&place.path, folder, Dotfiles::Visit, &stop, &mut |seen| {
        if let Some((_, id)) = ItemKind::of_path(&seen.path.to_string()) {
            left.remove(&id);
        }
        if left.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    match walked {
        Ok(WalkEnd::Complete) => left,
        Ok(WalkEnd::Enough | WalkEnd::CutShort) | Err(_) => BTreeSet::new(),
    }
}
