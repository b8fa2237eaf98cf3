//! The sandbox of each tool of a plan (`language.md` 9): its kind, and the access that grants add. The engine
//! determines how strong the sandbox is on a machine.

use rye_grammar::ItemId;
use serde::Serialize;

use crate::hook::HookCall;
use crate::item::Items;
use crate::plan::{PaletteTool, Plan};
use crate::primary::{ItemType, Primary, format_capability};
use crate::semantics::capability::CapabilitySet;
use crate::semantics::needs::{is_folder_inside, is_host_inside};
use crate::tool_spec::builtin::BUILT_IN_TOOLS;
pub use crate::tool_spec::builtin::SandboxKind;
use crate::tool_spec::{ServerSandbox, ToolKind, ToolSpec};
use crate::world::{ItemKind, Space, World};

/// Built-in tools that only read files of the project. A tool item may declare one of these tools under any id, because
/// a read-only tool is harmless under every id ([`disguises_built_in`]).
const READ_ONLY_TOOLS: [&str; 4] = ["read", "ls", "glob", "grep"];

/// The sandbox of one tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolSandbox {
    /// The tool's name in the palette.
    pub name: String,
    pub kind: SandboxKind,
    /// Folders of the project that the tool may write. A process may also write its scratch folder. For a tool that
    /// edits files without a process ([`SandboxKind::Files`]), an empty list means the whole project.
    pub write: Vec<String>,
    /// Granted hosts. Requests that the engine sends go to these hosts only. A process with a granted host can reach
    /// the whole network, because the sandbox cannot distinguish hosts.
    pub net: Vec<String>,
    /// True if one process answers all calls of a thread.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub persistent: bool,
}

impl SandboxKind {
    /// Returns the kind of sandbox for a kind of tool.
    pub fn of(kind: &ToolKind) -> Self {
        match kind {
            ToolKind::Command { .. } | ToolKind::Script { .. } => Self::Process,
            ToolKind::Http(_) => Self::Requests,
            ToolKind::Builtin { name } => {
                BUILT_IN_TOOLS.iter().find(|(known, ..)| known == name).map_or(Self::Engine, |(_, _, sandbox)| *sandbox)
            }
            ToolKind::Mcp { sandbox, .. } => match sandbox {
                ServerSandbox::Net => Self::Requests,
                ServerSandbox::Process => Self::Process,
                ServerSandbox::None => Self::None,
            },
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Files => "files",
            Self::Requests => "requests",
            Self::Process => "process",
            Self::None => "none",
        }
    }
}

/// Returns true if an item is a tool that only reads files of the project.
pub(crate) fn only_reads_files(items: &Items<'_>, id: &ItemId) -> bool {
    items.tool(id).is_some_and(|found| is_read_only(&found.spec.kind))
}

/// Returns true if the plan's tool of this id is a tool of the standard library that only reads files.
pub fn is_standard_read_tool(plan: &Plan, id: &ItemId) -> bool {
    let is_known = |(name, own, _): &(&str, &str, SandboxKind)| *own == id.as_str() && READ_ONLY_TOOLS.contains(name);
    let mut files = plan.manifest.iter().filter(|read| read.kind == ItemKind::Tool && read.id == id.as_str());
    // The manifest must list exactly one file for this id, a file of the standard library. A tool of another space with
    // the same id may do anything.
    BUILT_IN_TOOLS.iter().any(is_known)
        && files.next().is_some_and(|read| read.space == Some(Space::System))
        && files.next().is_none()
}

/// An attribute of a grant that gives the granted tools access to folders or hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// The attribute `write`: folders of the project.
    Write,
    /// The attribute `net`: hosts.
    Net,
}

impl Opening {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Net => "net",
        }
    }
}

/// Returns the reason why an entry of `write` or `net` in a grant has no effect on a tool; `None` if the tool can use
/// the entry.
pub(crate) fn unused_opening(spec: &ToolSpec, opening: Opening, entry: &str) -> Option<String> {
    let is_write = opening == Opening::Write;
    let reason = match (&spec.kind, SandboxKind::of(&spec.kind)) {
        (ToolKind::Mcp { server, .. }, kind) => {
            let needs = &spec.needs;
            let needed = match opening {
                Opening::Write => needs.write.iter().any(|need| is_folder_inside(need, entry)),
                Opening::Net => needs.net.iter().any(|need| is_host_inside(need, entry)),
            };
            return match kind {
                _ if needed => None,
                SandboxKind::None => Some(format!("the server `{server}` runs without a sandbox")),
                SandboxKind::Requests if is_write => Some(format!("the server `{server}` runs on another machine")),
                SandboxKind::Engine | SandboxKind::Files | SandboxKind::Requests | SandboxKind::Process => {
                    Some(format!("the `needs` of the server `{server}` do not include this attribute"))
                }
            };
        }
        (ToolKind::Builtin { name }, SandboxKind::Process) if name.starts_with("git_") => {
            "the git tools only read, so no grant extends their sandbox"
        }
        (kind, SandboxKind::Files) => match opening {
            Opening::Write if is_read_only(kind) => "the tool only reads files",
            Opening::Write => return None,
            Opening::Net => "the tool uses only files of the project",
        },
        (_, SandboxKind::Requests) if is_write => "the tool sends requests and writes no files",
        (_, SandboxKind::Process | SandboxKind::Requests | SandboxKind::None) => return None,
        (_, SandboxKind::Engine) => "the tool uses neither files nor hosts",
    };
    Some(reason.to_owned())
}

/// Returns true for a built-in tool that only reads files.
fn is_read_only(kind: &ToolKind) -> bool {
    matches!(kind, ToolKind::Builtin { name } if READ_ONLY_TOOLS.contains(&name.as_str()))
}

/// Returns true if an item declares a built-in tool under an id other than the tool's id in the standard library. The
/// gate, grants and reports use the id of the item, so the item could disguise a shell as a harmless tool.
pub(crate) fn disguises_built_in(id: &ItemId, builtin: &str) -> bool {
    let own = BUILT_IN_TOOLS.iter().find(|(known, ..)| *known == builtin).map(|(_, own, _)| *own);
    !READ_ONLY_TOOLS.contains(&builtin) && own != Some(id.as_str())
}

/// Returns true if the settings of any space require bubblewrap around programs (`sandbox` of `agent/agent`). No space
/// can relax the requirement of another space. An invalid value counts as the requirement.
pub fn requires_bubblewrap(world: &dyn World) -> bool {
    let items = Items::new(world);
    let Ok(id) = ItemId::parse("agent/agent") else { return false };
    let layers = items.config_layers(&id);
    layers.iter().filter_map(|(_, node)| node.get("sandbox")).any(|sandbox| sandbox.as_str() != Some("landlock"))
}

/// Returns the sandboxes of the tools in the palette, in palette order. After these, returns the sandboxes of
/// persistent tools that only hooks run.
pub fn plan_sandboxes(items: &Items<'_>, plan: &Plan) -> Vec<ToolSandbox> {
    let sandbox = |tool: &PaletteTool| tool_sandbox(items, plan, &tool.name, tool.item_id.as_ref());
    let mut sandboxes: Vec<ToolSandbox> = plan.palette.iter().map(sandbox).collect();
    for hook in plan.hooks.iter().filter(|hook| hook.is_live()) {
        let Some(HookCall::Execute { item_type: ItemKind::Tool, item_id, .. }) = hook.action.call() else { continue };
        let in_palette = plan.palette.iter().any(|tool| tool.item_id.as_ref().is_some_and(|id| id.as_str() == item_id));
        let Some(id) = ItemId::parse(item_id).ok().filter(|_| !in_palette) else { continue };
        let sandbox = tool_sandbox(items, plan, item_id, Some(&id));
        if sandbox.persistent && !sandboxes.contains(&sandbox) {
            sandboxes.push(sandbox);
        }
    }
    sandboxes
}

/// Returns the sandbox in which a thread of this plan runs a tool. The result contains `name` as the name of the tool.
/// `id` is `None` for a primary, because a primary is not an item.
pub fn tool_sandbox(items: &Items<'_>, plan: &Plan, name: &str, id: Option<&ItemId>) -> ToolSandbox {
    let found = id.and_then(|id| items.tool(id));
    let kind = found.as_ref().map_or(SandboxKind::Engine, |found| SandboxKind::of(&found.spec.kind));
    let mut sandbox =
        ToolSandbox { name: name.to_owned(), kind, write: Vec::new(), net: Vec::new(), persistent: false };
    let (Some(found), Some(id)) = (found, id) else { return sandbox };
    sandbox.persistent = found.spec.persistent;
    if matches!(found.spec.kind, ToolKind::Mcp { .. }) {
        // All tools of an MCP server share the sandbox that the settings of the server declare. Grants do not extend
        // the sandbox.
        sandbox.write.clone_from(&found.spec.needs.write);
        sandbox.net.clone_from(&found.spec.needs.net);
        return sandbox;
    }
    let wanted = format_capability(Primary::Execute, ItemType::Tool, Some(id));
    if kind == SandboxKind::Files && !is_read_only(&found.spec.kind) {
        let matches = |pattern: &str| CapabilitySet::new([pattern.to_owned()]).first_match(&wanted).is_some();
        let grants: Vec<_> = plan.capabilities.grants.iter().filter(|grant| matches(&grant.pattern)).collect();
        if grants.iter().all(|grant| !grant.write.is_empty()) {
            sandbox.write.extend(grants.iter().flat_map(|grant| grant.write.iter().cloned()));
        }
    }
    if matches!(kind, SandboxKind::Process | SandboxKind::Requests) {
        for grant in &plan.capabilities.grants {
            if CapabilitySet::new([grant.pattern.clone()]).first_match(&wanted).is_some() {
                let is_used = |opening, entry: &&String| unused_opening(&found.spec, opening, entry).is_none();
                sandbox.write.extend(grant.write.iter().filter(|path| is_used(Opening::Write, path)).cloned());
                sandbox.net.extend(grant.net.iter().filter(|host| is_used(Opening::Net, host)).cloned());
            }
        }
    }
    sandbox
}

/// Formats the sandbox on one line, for human output.
impl std::fmt::Display for ToolSandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind {
            SandboxKind::Engine => f.write_str("the engine itself"),
            SandboxKind::Files if !self.write.is_empty() => {
                write!(f, "project files only; writes only to {}", self.write.join(", "))
            }
            SandboxKind::Files => f.write_str("project files only"),
            SandboxKind::Process => {
                // The project's root is never writable as a whole, because new files in it could be protected paths.
                let shown = |folder: &String| match folder.trim_end_matches('/') {
                    "." | "" => "existing files (or deletes them), and new files in existing folders,".to_owned(),
                    _ => folder.clone(),
                };
                let folders: Vec<String> = self.write.iter().map(shown).collect();
                let write = if folders.is_empty() { "nothing".to_owned() } else { folders.join(", ") };
                let net = if self.net.is_empty() {
                    "no network".to_owned()
                } else {
                    format!("the WHOLE network, because {} is granted", self.net.join(", "))
                };
                let lives = if self.persistent { "one process for all calls" } else { "a process" };
                write!(f, "{lives}; reads the project, writes {write} in it; {net}")
            }
            SandboxKind::Requests if self.net.is_empty() => {
                f.write_str("the engine sends the requests of the tool; no host is granted")
            }
            SandboxKind::Requests if self.net.iter().any(|host| host == "*") => {
                f.write_str("the engine sends the requests of the tool, to any host of the public internet")
            }
            SandboxKind::Requests => {
                write!(f, "the engine sends the requests of the tool, only to {}", self.net.join(", "))
            }
            SandboxKind::None => f.write_str("NO SANDBOX: a server's program with all of your permissions"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use crate::compile::tests::compile_without_inputs;
    use crate::compile::tests::world::stdlib_world;
    use crate::item::Items;
    use crate::mcp_servers::read_servers;
    use crate::world::MapWorld;

    const SERVERS: &str =
        "servers:\n  s: { command: [z], needs: { write: [notes/] } }\n  t: { command: [z], sandbox: none }\n";

    /// Returns the file of a server's tool, which fits the settings of the server.
    fn server_tool(name: &str) -> String {
        let world = MapWorld::new().project(".ai/config/mcp.yaml", SERVERS);
        let server = read_servers(&Items::new(&world)).unwrap().remove(name).unwrap();
        format!(
            "description: d\nkind: mcp\nserver: {name}\ntool: t\nsha256: x\nserver_sha256: {}\nruns: {}\nsandbox: {}\n\
             needs: {{write: {:?}}}\n",
            server.transport_sha256(),
            server.describe(),
            server.isolation().as_str(),
            server.required_openings().write,
        )
    }

    #[test]
    fn plan_sandboxes_reflect_kind_and_grants() {
        let directive = "# A\n\n```xml\n<directive name=\"a\" version=\"1\"><metadata><description>d</description>\
            <model provider=\"scripted\" tier=\"fast\"/><permissions><execute><tool write=\"out/,src\">rye.bash.*</tool>\
            <tool net=\"example.test\">rye.bash.bash</tool><tool>rye.file-system.read</tool><tool write=\".\">mine</tool>\
            <tool net=\"a.test\">asks</tool><tool>mcp.*</tool><tool write=\"notes/\">mcp.s.a</tool></execute>\
            <acknowledge risk=\"unrestricted\">y</acknowledge></permissions></metadata></directive>\n```\n\nGo.\n";
        let world = stdlib_world()
            .project(".ai/directives/a.md", directive)
            .project(".ai/tools/mine.yaml", "description: d\nkind: command\ncommand: [ls]\n")
            .project(".ai/tools/asks.yaml", "description: d\nkind: http\nurl: https://a.test/\n")
            .project(".ai/config/mcp.yaml", SERVERS)
            .project(".ai/tools/mcp/s/a.yaml", server_tool("s"))
            .project(".ai/tools/mcp/t/b.yaml", server_tool("t"));
        let compilation = compile_without_inputs(&world, "a");
        let mut lines: Vec<String> =
            compilation.sandboxes.iter().map(|sandbox| format!("{}: {sandbox}", sandbox.name)).collect();
        lines.sort();
        assert_eq!(
            lines,
            [
                "asks: the engine sends the requests of the tool, only to a.test",
                "mcp_s_a: a process; reads the project, writes notes/ in it; no network",
                "mcp_t_b: NO SANDBOX: a server's program with all of your permissions",
                "mine: a process; reads the project, writes existing files (or deletes them), and new files in existing folders, in it; no network",
                "rye_bash_bash: a process; reads the project, writes out/, src in it; the WHOLE network, because example.test is granted",
                "rye_execute: the engine itself",
                "rye_file_system_read: project files only",
            ]
        );
    }
}
