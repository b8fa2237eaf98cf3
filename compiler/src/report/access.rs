//! The access of a thread: the files that its own calls and its hooks can write, the programs that they can run, the
//! hosts that they can reach, and the directives that they can start. The access is an upper bound: a call may still
//! need an approval, or be refused by a hook. Child threads are not included, because their grants are attenuated by
//! the spawn chain.

use std::collections::BTreeSet;

use rye_grammar::ItemId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hook::HookCall;
use crate::item::Items;
use crate::plan::{PalettePrimary, Plan};
use crate::report::closure::collect_starts;
use crate::sandbox::{SandboxKind, ToolSandbox, only_reads_files, tool_sandbox};
use crate::world::{ItemKind, World, WorldError};

/// The entry of [`PlanAccess::write`] that represents all files of the project.
const WHOLE_PROJECT: &str = "the project";
/// The entry of [`PlanAccess::reach`] that represents all hosts of the public internet.
const ANY_HOST: &str = "any host";
/// The entry of [`PlanAccess::write`] for the program of an MCP server that runs without a sandbox.
const UNSANDBOXED: &str = "anything (no sandbox)";

/// The access of a thread, in four lists of names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanAccess {
    /// Folders that tools can write. `the project` stands for all files of the project, `signatures` for the signature
    /// lines of items, and `anything (no sandbox)` for all files.
    pub write: Vec<String>,
    /// Ids of the tools that run programs.
    pub run: Vec<String>,
    /// Hosts that tools can reach; `any host` for the whole internet.
    pub reach: Vec<String>,
    /// Ids of the directives that the thread can start.
    pub start: Vec<String>,
}

/// Collects the access of a plan: of the tools in its palette, of further tools that its grants allow, and of the tools
/// that its hooks execute.
///
/// # Errors
/// The list of directives cannot be read.
pub(crate) fn collect_access(world: &dyn World, plan: &Plan) -> Result<PlanAccess, WorldError> {
    let items = Items::new(world);
    let (mut write, mut run, mut reach) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for id in reachable_tools(plan) {
        let ToolSandbox { kind, write: folders, net, .. } = tool_sandbox(&items, plan, id.as_str(), Some(&id));
        match kind {
            SandboxKind::Engine => {}
            SandboxKind::Files if only_reads_files(&items, &id) => {}
            SandboxKind::Files if folders.is_empty() => {
                write.insert(WHOLE_PROJECT.to_owned());
            }
            SandboxKind::Files => write.extend(folders),
            SandboxKind::Requests => reach.extend(net.into_iter().map(name_host)),
            SandboxKind::Process => {
                run.insert(id.to_string());
                write.extend(folders);
                // The sandbox of a process cannot distinguish hosts, so one allowed host opens all hosts.
                reach.extend(net.first().map(|_| ANY_HOST.to_owned()));
            }
            SandboxKind::None => {
                run.insert(id.to_string());
                write.insert(UNSANDBOXED.to_owned());
                reach.insert(ANY_HOST.to_owned());
            }
        }
    }
    if can_sign(plan) {
        write.insert("signatures".to_owned());
    }
    if reach.contains(ANY_HOST) {
        reach.retain(|host| host == ANY_HOST);
    }
    let start = collect_starts(world, plan)?.iter().map(ToString::to_string).collect();
    let list = |names: BTreeSet<String>| names.into_iter().collect();
    Ok(PlanAccess { write: list(write), run: list(run), reach: list(reach), start })
}

/// Returns the tools that a thread can call: the tools of its palette, the tools that did not fit into the palette, and
/// the tools of the hooks that a run evaluates.
fn reachable_tools(plan: &Plan) -> BTreeSet<ItemId> {
    let palette = plan.palette.iter().filter_map(|tool| tool.item_id.clone());
    let dropped = plan.dropped_tools.iter().filter(|tool| !tool.refused).map(|tool| tool.item_id.clone());
    let hooks = plan.hooks.iter().filter(|hook| hook.is_live()).filter_map(|hook| match hook.action.call() {
        Some(HookCall::Execute { item_type: ItemKind::Tool, item_id, .. }) => ItemId::parse(item_id).ok(),
        Some(HookCall::Execute { .. } | HookCall::Fetch { .. } | HookCall::Sign { .. }) | None => None,
    });
    palette.chain(dropped).chain(hooks).collect()
}

/// Returns true if the model or a hook can sign items.
fn can_sign(plan: &Plan) -> bool {
    // A root thread without `<permissions>` has no capability, so its calls of `rye_sign` are denied.
    let is_granted = plan.capabilities.declared;
    is_granted && plan.palette.iter().any(|tool| tool.primary == PalettePrimary::Sign)
        || plan.hooks.iter().any(|hook| hook.is_live() && matches!(hook.action.call(), Some(HookCall::Sign { .. })))
}

fn name_host(host: String) -> String {
    if host == "*" { ANY_HOST.to_owned() } else { host }
}
