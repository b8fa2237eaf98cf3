//! Differences between the settings of a server and the tool files that `rye mcp refresh` wrote for it. A plan and a
//! call use the same comparison, so a plan offers no tool whose server is missing or has changed. A plan does not check
//! for provider keys, because that reads all provider files.

use std::collections::{BTreeMap, BTreeSet};

use super::{McpServer, read_with_disabled};
use crate::item::Items;
use crate::tool_spec::{ToolKind, ToolSpec};

/// A reason why a tool file of an MCP server does not match the settings of the server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum ServerDrift {
    #[error("the MCP servers cannot be read: {why}")]
    Unreadable { why: String },
    #[error("no MCP server `{server}` is configured, in `.mcp.json` or `.ai/config/mcp.yaml`")]
    Missing { server: String },
    #[error("the MCP server `{server}` is disabled (`disabled: true`)")]
    Disabled { server: String },
    #[error("the settings of the MCP server `{server}` changed since its tools were listed")]
    Changed { server: String },
    /// The settings pass a variable that holds a provider's key to the server.
    #[error("the MCP server `{server}` requests `{variable}`, which holds a provider's key")]
    ProviderKey { server: String, variable: String },
    /// The timeout in the settings differs from the timeout in the tool file, both in seconds. This is the only
    /// difference for which calls are not refused. The calls have the timeout of the tool file.
    #[error("the timeout of the MCP server `{server}` is {configured} s, but its tools were listed with {listed} s")]
    Timeout { server: String, configured: u64, listed: u64 },
}

impl ServerDrift {
    /// Compares a tool with the settings of its server; `None` if they agree, or if the tool is not a server's tool.
    pub fn of_tool(spec: &ToolSpec, configured: Option<&McpServer>) -> Option<Self> {
        let ToolKind::Mcp { server, server_sha256, runs, sandbox, .. } = &spec.kind else { return None };
        let Some(configured) = configured else { return Some(Self::Missing { server: server.clone() }) };
        // The user approved the server as the tool file describes it, so any other server must not start.
        let needs = configured.required_openings();
        let shown = *runs == configured.describe() && *sandbox == configured.isolation();
        let granted = needs.write == spec.needs.write && needs.net == spec.needs.net;
        if configured.transport_sha256() != *server_sha256 || !shown || !granted {
            return Some(Self::Changed { server: server.clone() });
        }
        if let Some(variable) = configured.keys.first() {
            return Some(Self::ProviderKey { server: server.clone(), variable: variable.clone() });
        }
        let (configured, listed) = (configured.timeout.as_secs(), spec.timeout_seconds);
        (configured != listed).then(|| Self::Timeout { server: server.clone(), configured, listed })
    }

    /// Returns the fix, as an instruction.
    pub fn help(&self) -> String {
        match self {
            Self::Unreadable { .. } => "correct the settings of the servers; check with `rye mcp list`".to_owned(),
            Self::Missing { server } => format!(
                "configure the server again, for example with `rye mcp add {server}`, or delete `.ai/tools/mcp/{server}/` and the grants of its tools"
            ),
            Self::Disabled { server } => {
                format!("remove `disabled` from the settings of `{server}`, or remove the grants of its tools")
            }
            Self::Changed { server } | Self::Timeout { server, .. } => {
                format!("run `rye mcp refresh {server}`, or undo the change of the settings")
            }
            Self::ProviderKey { variable, .. } => {
                format!(
                    "remove `{variable}` from the settings of the server: provider keys are never passed to servers"
                )
            }
        }
    }

    /// Returns true if every call of the tool is refused.
    pub fn refuses_calls(&self) -> bool {
        !matches!(self, Self::Timeout { .. })
    }
}

/// The MCP servers of a project and the names of the disabled servers, read once for all tools. If the settings cannot
/// be read, holds the message of the error.
pub(crate) struct ConfiguredServers(Result<(BTreeMap<String, McpServer>, BTreeSet<String>), String>);

impl ConfiguredServers {
    /// Reads the configured MCP servers.
    pub fn read(items: &Items<'_>) -> Self {
        Self(read_with_disabled(items).map_err(|error| error.message))
    }

    /// Returns the difference between a tool and the settings of its MCP server. `None` if they agree, or if the tool
    /// is not of an MCP server.
    pub fn drift_of(&self, spec: &ToolSpec) -> Option<ServerDrift> {
        let ToolKind::Mcp { server, .. } = &spec.kind else { return None };
        match &self.0 {
            Ok((_, disabled)) if disabled.contains(server) => Some(ServerDrift::Disabled { server: server.clone() }),
            Ok((servers, _)) => ServerDrift::of_tool(spec, servers.get(server)),
            Err(why) => Some(ServerDrift::Unreadable { why: why.clone() }),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use crate::compile::tests::world::minimal_world;
    use crate::diagnostics::Diagnostic;
    use crate::validate::{Selection, check};

    #[test]
    fn tools_of_a_disabled_server_are_reported_with_the_cause() {
        let tool =
            "description: d\nkind: mcp\nserver: a\ntool: t\nsha256: x\nserver_sha256: x\nruns: x\nsandbox: net\n";
        let messages = |json: &str, yaml: &str| -> Vec<String> {
            let world = minimal_world()
                .project(".mcp.json", json)
                .project(".ai/config/mcp.yaml", yaml)
                .project(".ai/tools/mcp/a/t.yaml", tool);
            let found = check(&world, &Selection::All).diagnostics;
            found.iter().filter(|one| one.code() == "config::stale-server").map(Diagnostic::message).collect()
        };
        let off = r#"{"mcpServers": {"a": {"command": "x", "disabled": true}}}"#;
        let disabled = "every call of `mcp/a/t` is refused: the MCP server `a` is disabled (`disabled: true`)";
        assert_eq!(messages(off, "servers: {}\n"), [disabled]);
        assert_eq!(messages("{}", "servers: { a: { command: x, disabled: true } }\n"), [disabled]);
        // A server of `mcp.yaml` replaces the server of `.mcp.json`.
        let changed = messages(off, "servers: { a: { command: x } }\n");
        assert!(changed.len() == 1 && !changed.contains(&disabled.to_owned()), "{changed:?}");
    }
}
