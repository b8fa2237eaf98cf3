//! The built-in assertion `lethal_trifecta`: a single thread must not combine untrusted text from outside, private
//! data, and a channel to send data out. The check classifies a tool by the abilities of its implementation, not by its
//! id.

use std::collections::BTreeMap;
use std::rc::Rc;

use rye_grammar::ItemId;

use super::route_summary::NetGrant;
use super::threads::{PossibleThread, ReachMemo};
use crate::item::Items;
use crate::primary::{ItemType, Primary, format_capability};
use crate::semantics::glob::Glob;
use crate::tool_spec::{ServerSandbox, ToolKind};
use crate::world::ItemKind;

/// The pattern of all capabilities to fetch knowledge.
const KNOWLEDGE: &str = "rye.fetch.knowledge.*";

/// Built-in tools that return names or contents of the project's files.
const READING_BUILTINS: [&str; 8] = ["read", "grep", "glob", "ls", "git_diff", "git_log", "git_show", "git_status"];

/// The tools of a project that can give a thread one of the three parts of the lethal trifecta: untrusted text from
/// outside, private data, a channel to send data out.
pub struct TrifectaTools {
    /// Capabilities of tools that read the project.
    private: Vec<String>,
    /// Capabilities of tools that exchange data with the hosts that the `net` of a grant names.
    network: Vec<String>,
    /// Capabilities of MCP tools. A call of an MCP tool can send data out, and its result counts as untrusted text from
    /// outside.
    servers: Vec<String>,
    memo: BTreeMap<MemoKey, Option<Vec<String>>>,
}

/// A thread's permission sets, and its grants that name hosts. Threads with equal keys have equal results.
type MemoKey = (Vec<Rc<[String]>>, Rc<[NetGrant]>);

impl TrifectaTools {
    pub fn read(items: &Items<'_>) -> Self {
        let mut all = Self { private: Vec::new(), network: Vec::new(), servers: Vec::new(), memo: BTreeMap::new() };
        let mut before: Option<&ItemId> = None;
        let list = items.list(ItemKind::Tool);
        for entry in list.iter() {
            if before.replace(&entry.id) == Some(&entry.id) {
                continue;
            }
            let Some(tool) = items.tool(&entry.id) else { continue };
            let (is_private, has_network) = match &tool.spec.kind {
                ToolKind::Builtin { name } if name == "web_fetch" => (false, true),
                ToolKind::Builtin { name } if name == "bash" => (true, true),
                ToolKind::Builtin { name } => (READING_BUILTINS.contains(&name.as_str()), false),
                ToolKind::Command { .. } | ToolKind::Script { .. } => (true, true),
                ToolKind::Http(_) => (false, true),
                ToolKind::Mcp { sandbox: ServerSandbox::Process | ServerSandbox::None, .. } => (true, false),
                ToolKind::Mcp { sandbox: ServerSandbox::Net, .. } => (false, false),
            };
            let capability = format_capability(Primary::Execute, ItemType::Tool, Some(&entry.id));
            if matches!(tool.spec.kind, ToolKind::Mcp { .. }) {
                all.servers.push(capability.clone());
            }
            if has_network {
                all.network.push(capability.clone());
            }
            if is_private {
                all.private.push(capability);
            }
        }
        all
    }

    /// Returns the reasons why a thread has the lethal trifecta: for each of the three parts, the capability that gives
    /// the part to the thread. `None` if the thread lacks a part.
    pub fn reasons(&mut self, thread: &PossibleThread, reached: &mut ReachMemo) -> Option<Vec<String>> {
        let key = (thread.sets().to_vec(), thread.net.clone());
        if let Some(known) = self.memo.get(&key) {
            return known.clone();
        }
        let found = self.find_reasons(thread, reached);
        self.memo.insert(key, found.clone());
        found
    }

    fn find_reasons(&self, thread: &PossibleThread, reached: &mut ReachMemo) -> Option<Vec<String>> {
        let globs: Vec<Vec<Glob>> =
            thread.sets().iter().map(|set| set.iter().map(|grant| Glob::new(grant)).collect()).collect();
        let allows = |capability: &str| globs.iter().all(|set| set.iter().any(|glob| glob.matches(capability)));
        let with_hosts: Vec<(Glob, &str)> =
            thread.net.iter().map(|grant| (Glob::new(&grant.pattern), grant.hosts.as_str())).collect();
        let by_network = self.network.iter().find_map(|capability| {
            let (_, hosts) = with_hosts.iter().find(|(glob, _)| glob.matches(capability))?;
            allows(capability).then(|| format!("`{capability}` with net=\"{hosts}\""))
        });
        let by_server = || Some(format!("`{}`", self.servers.iter().find(|capability| allows(capability))?));
        let outside = by_network.or_else(by_server)?;
        let by_tool = self.private.iter().find(|capability| allows(capability)).cloned();
        let private = by_tool.or_else(|| thread.reaches(KNOWLEDGE, reached))?;
        Some(vec![
            format!("untrusted text by {outside}"),
            format!("private data by `{private}`"),
            format!("outbound data by {outside}"),
        ])
    }
}
