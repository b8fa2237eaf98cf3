//! Finds added and removed capabilities, with proofs that one glob pattern includes another (`language.md` 9).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::change::Direction;
use crate::plan::source::SourceReport;
use crate::report::render::json::{CapabilityReport, DroppedReport, PlanReport, ToolReport, VerdictReport};
use crate::sandbox::SandboxKind;
use crate::semantics::glob::{Coverage, covers};
use crate::semantics::needs::{HostCoverage, host_coverage, is_folder_inside};

/// A grant of one plan that the other plan does not cover.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CapabilityChange {
    pub direction: Direction,
    /// A capability pattern such as `rye.execute.tool.…`, `net HOST for PATTERN`, or `write FOLDER for PATTERN`. The
    /// text ends with `, at local addresses as well` if the other plan allows the host only at public addresses.
    pub what: String,
    /// An example of a capability that only one of the plans allows: the capability of a tool in its palette or, if
    /// there is no such tool, the shortest capability. Null if the search takes too long.
    pub example: Option<String>,
    /// The declaration of the capability as text, such as `` declared by `project/deploy/base` ``, or the hook that has
    /// the grant.
    pub by: String,
    pub source: Option<SourceReport>,
}

impl CapabilityChange {
    /// Returns the capability pattern that the change concerns: the pattern itself, or the pattern of a host or folder.
    /// `None` if the change concerns every capability.
    pub(super) fn pattern(&self) -> Option<&str> {
        let what = self.what.strip_suffix(AT_LOCAL_ADDRESSES).unwrap_or(&self.what);
        let pattern = what.rsplit_once(" for ").map_or(what, |(_, pattern)| pattern);
        (!pattern.contains(' ')).then_some(pattern)
    }
}

/// The end of the text of a change that adds the local addresses of a host.
const AT_LOCAL_ADDRESSES: &str = ", at local addresses as well";

pub fn compare_capabilities(before: Option<&PlanReport>, after: Option<&PlanReport>) -> Vec<CapabilityChange> {
    let mut changes = one_way(before, after, Direction::Widened);
    changes.extend(one_way(after, before, Direction::Narrowed));
    changes
}

/// Lists the capabilities of the plan `to` that the plan `from` does not cover, each as a change with the given
/// direction. Without `from`, no capability is covered; without `to`, the list is empty.
fn one_way(from: Option<&PlanReport>, to: Option<&PlanReport>, direction: Direction) -> Vec<CapabilityChange> {
    let Some(to) = to else { return Vec::new() };
    let held: &[CapabilityReport] = from.map_or(&[], |plan| &plan.capabilities);
    let patterns: Vec<&str> = held.iter().map(|grant| grant.pattern.as_str()).collect();
    let mut changes = Vec::new();
    // If no link of a chain has `<permissions>`, the thread inherits the set of its spawn parent, which can be any set.
    if !to.permissions_declared && from.is_some_and(|plan| plan.permissions_declared) {
        changes.push(CapabilityChange {
            direction,
            what: "the parent's grants: no directive of the extends chain declares `<permissions>`".into(),
            example: None,
            by: "inherited at spawn".into(),
            source: None,
        });
    }
    for grant in &to.capabilities {
        let change = |what: String, example: Option<String>| CapabilityChange {
            direction,
            what,
            example,
            by: grant.via.clone(),
            source: grant.source.clone(),
        };
        if let Some(how) = find_uncovered(&patterns, &grant.pattern) {
            let known = find_added_tool(to, &patterns, &grant.pattern);
            changes.push(change(grant.pattern.clone(), known.or_else(|| example(how))));
        }
        // A host or folder is covered only if grants with this host or folder cover the pattern.
        let is_covered = |has_item: &dyn Fn(&CapabilityReport) -> bool| {
            let reach: Vec<&str> = held.iter().filter(|g| has_item(g)).map(|g| g.pattern.as_str()).collect();
            find_uncovered(&reach, &grant.pattern).is_none()
        };
        for host in &grant.net {
            let covers_host = |least| is_covered(&|g| g.net.iter().any(|outer| host_coverage(host, outer) >= least));
            if covers_host(HostCoverage::Complete) {
                continue;
            }
            let mut one = change(format!("net {host} for {}", grant.pattern), None);
            if covers_host(HostCoverage::PublicAddresses) {
                // The addresses of a name are unknown before a request resolves the name.
                one.what.push_str(AT_LOCAL_ADDRESSES);
                if direction == Direction::Widened {
                    one.direction = Direction::Unknown;
                }
            }
            changes.push(one);
        }
        let lacks = |folder: &&String| !is_covered(&|g| g.write.iter().any(|outer| is_folder_inside(folder, outer)));
        for folder in grant.write.iter().filter(lacks) {
            // If all granted tools are file tools that could write everywhere before, the folder narrows the grant, so
            // the folder is not an added capability.
            if from.is_none_or(|plan| !has_only_unbounded_file_tools(plan, to, &grant.pattern)) {
                changes.push(change(format!("write {folder} for {}", grant.pattern), None));
            }
        }
    }
    for tool in to.palette.iter().filter(|tool| written_folders(tool).is_some_and(<[String]>::is_empty)) {
        let was = from.and_then(|plan| plan.palette.iter().find(|was| was.id == tool.id));
        if was.and_then(written_folders).is_some_and(|folders| !folders.is_empty()) {
            let what = format!("write the whole project for {}", capability_of(tool));
            let source = tool.source.clone();
            changes.push(CapabilityChange { direction, what, example: None, by: tool.via.clone(), source });
        }
    }
    changes.extend(compare_hook_grants(from, to, &patterns, direction));
    changes
}

/// Returns the folders that bound the writes of a file tool, empty for the whole project; `None` for other tools.
fn written_folders(tool: &ToolReport) -> Option<&[String]> {
    tool.sandbox.as_ref().filter(|sandbox| sandbox.kind == SandboxKind::Files.as_str()).map(|sandbox| &*sandbox.write)
}

fn capability_of(tool: &ToolReport) -> String {
    tool_capability(&tool.id)
}

fn tool_capability(id: &str) -> String {
    format!("rye.execute.tool.{}", id.replace('/', "."))
}

/// Returns true if a folder in a grant of `pattern` gives no tool of the plan `to` more access than the tool has in the
/// plan `from`: each matched tool is a file tool that may write in the whole project in `from`, or uses no folders.
fn has_only_unbounded_file_tools(from: &PlanReport, to: &PlanReport, pattern: &str) -> bool {
    let is_matched = |capability: &str| covers(&[pattern], capability) == Coverage::Covered;
    // The sandbox of a tool outside of the palette is unknown.
    let is_callable = |tool: &&DroppedReport| !tool.refused && is_matched(&tool_capability(&tool.id));
    if to.dropped_tools.iter().any(|tool| is_callable(&tool)) {
        return false;
    }
    let is_engine =
        |tool: &ToolReport| tool.sandbox.as_ref().is_some_and(|sandbox| sandbox.kind == SandboxKind::Engine.as_str());
    let is_unbounded = |tool: &ToolReport| {
        let was = from.palette.iter().find(|was| was.id == tool.id);
        was.and_then(written_folders).is_some_and(<[String]>::is_empty)
    };
    let mut matched = to.palette.iter().filter(|tool| is_matched(&capability_of(tool))).peekable();
    matched.peek().is_some() && matched.all(|tool| is_unbounded(tool) || is_engine(tool))
}

/// Returns a change with the given direction for each hook grant of the plan `to` that the plan `from` does not cover.
/// Only live hooks count. A grant is covered by `own`, the thread's own grants in `from`, or by the grants of the hook
/// with the same id in `from`.
fn compare_hook_grants(
    from: Option<&PlanReport>,
    to: &PlanReport,
    own: &[&str],
    direction: Direction,
) -> Vec<CapabilityChange> {
    let live = |verdict: VerdictReport| matches!(verdict, VerdictReport::Fires | VerdictReport::Depends);
    let mut changes = Vec::new();
    for hook in to.hooks.iter().filter(|hook| live(hook.verdict)) {
        let twin = from.iter().flat_map(|plan| &plan.hooks).find(|h| h.id == hook.id && live(h.verdict));
        let held: Vec<&str> =
            own.iter().copied().chain(twin.iter().flat_map(|h| h.grants.iter().map(String::as_str))).collect();
        for grant in &hook.grants {
            if let Some(how) = find_uncovered(&held, grant) {
                let example = example(how);
                let (what, by) = (grant.clone(), format!("granted to the hook `{}`", hook.id));
                changes.push(CapabilityChange { direction, what, example, by, source: hook.source.clone() });
            }
        }
    }
    changes
}

/// Returns the reason why the patterns do not cover `wanted`; `None` if they cover it.
fn find_uncovered(patterns: &[&str], wanted: &str) -> Option<Coverage> {
    Some(covers(patterns, wanted)).filter(|coverage| *coverage != Coverage::Covered)
}

/// Returns the capability of the first tool in the palette that `pattern` matches and none of `held` covers.
fn find_added_tool(plan: &PlanReport, held: &[&str], pattern: &str) -> Option<String> {
    let tools = plan.palette.iter().map(capability_of);
    { tools }.find(|one| covers(&[pattern], one) == Coverage::Covered && find_uncovered(held, one).is_some())
}

fn example(coverage: Coverage) -> Option<String> {
    match coverage {
        Coverage::Counterexample(example) => Some(example),
        Coverage::Covered | Coverage::TooComplex => None,
    }
}
