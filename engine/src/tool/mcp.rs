//! Tools of MCP servers. A plan contains the tools whose items `rye mcp refresh` wrote. A server is started on the
//! first call, and a tool whose definition differs from its item is not called. Only this module and the CLI's `mcp`
//! command depend on the protocol.

pub mod config;
mod connection;
pub mod listing;
mod task_support;
mod task_support_http;
mod variables;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::process::{BoundedOutput, MAX_KEPT_BYTES};
use super::{Invocation, Tool, ToolOutcome};
use crate::BoxFuture;
pub use connection::{McpConnection, McpError};
pub use rye_compiler::mcp_servers::McpServer;

/// Timeout for a server to start and list its tools.
pub(crate) const MCP_START_TIMEOUT: Duration = Duration::from_secs(30);

/// The MCP servers of a process: one connection for each, opened on the first call and reopened after a loss.
#[derive(Default)]
pub struct McpServers {
    slots: Mutex<BTreeMap<String, Arc<ConnectionSlot>>>,
}

/// The connection to a server, if it is open.
type ConnectionSlot = Mutex<Option<Arc<McpConnection>>>;

/// A tool of a server, ready to be called.
pub struct McpTool {
    pub servers: Arc<McpServers>,
    pub server: McpServer,
    pub folder: PathBuf,
    /// The server's own name of the tool.
    pub tool: String,
    /// SHA-256 of the definition that the plan was made with.
    pub sha256: String,
    pub timeout: Duration,
}

impl McpServers {
    /// Returns the connection to a server; opens it if there is none.
    async fn connection(&self, server: &McpServer, folder: &std::path::Path) -> Result<Arc<McpConnection>, McpError> {
        let slot = {
            let mut slots = self.slots.lock().await;
            // Two servers with the same name may have different settings, so the key contains all settings.
            Arc::clone(slots.entry(server.key()).or_default())
        };
        let mut held = slot.lock().await;
        if let Some(connection) = held.as_ref().filter(|c| !c.is_closed()) {
            return Ok(Arc::clone(connection));
        }
        let connection = Arc::new(McpConnection::open(server, folder).await?);
        *held = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// Returns the reason why a message of this server was dropped after `start`, as the end of an error message;
    /// `None` if the connection is not open.
    async fn dropped_message(&self, server: &McpServer, start: std::time::Instant) -> Option<String> {
        let slot = Arc::clone(self.slots.lock().await.get(&server.key())?);
        Some(slot.try_lock().ok()?.as_ref()?.dropped.cause_since(start))
    }
}

impl Tool for McpTool {
    fn run(&self, invocation: Invocation) -> BoxFuture<'_, ToolOutcome> {
        Box::pin(async move {
            let timeout = self.timeout.min(invocation.timeout);
            let start = Instant::now();
            let until = start + timeout.min(Duration::from_hours(24));
            match timeout_at(until, self.call(invocation.parameters)).await {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(error)) => ToolOutcome::error(error.to_string()),
                Err(_) => {
                    let cause = self.servers.dropped_message(&self.server, start.into_std()).await.unwrap_or_default();
                    ToolOutcome::error(format!(
                        "the server `{}` did not answer within {} seconds{cause}; the outcome of the call is unknown",
                        self.server.name,
                        timeout.as_secs_f64()
                    ))
                }
            }
        })
    }
}

impl McpTool {
    async fn call(&self, parameters: Value) -> Result<ToolOutcome, McpError> {
        let connection = self.servers.connection(&self.server, &self.folder).await?;
        let now = connection.definition(&self.tool).await?;
        match now {
            None => return Err(McpError::Gone { server: self.server.name.clone(), tool: self.tool.clone() }),
            Some(now) if now.sha256 != self.sha256 => {
                return Err(McpError::Drift { server: self.server.name.clone(), tool: self.tool.clone() });
            }
            Some(_) => {}
        }
        let answer = connection.call(&self.tool, parameters).await?;
        Ok(mcp_outcome(answer))
    }
}

/// Converts a server's response to the result of the call: the structured content of the response, or else its text.
/// Other parts, such as images, are left out, and the result lists them. Of a very long result, only the start and the
/// end are kept.
fn mcp_outcome(answer: connection::McpResult) -> ToolOutcome {
    let mut details = serde_json::Map::new();
    let mut content = answer.structured.unwrap_or_else(|| match serde_json::from_str::<Value>(&answer.text) {
        Ok(value @ (Value::Object(_) | Value::Array(_))) => value,
        Ok(_) | Err(_) => Value::String(answer.text),
    });
    let mut text = match &content {
        Value::String(text) => text.clone(),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            other.to_string()
        }
    };
    if text.len() > 2 * MAX_KEPT_BYTES {
        let mut kept = BoundedOutput::new(MAX_KEPT_BYTES);
        kept.push(text.as_bytes());
        let kept = kept.finish();
        details.insert("dropped_bytes".into(), json!(kept.dropped));
        text = kept.text;
        content = Value::String(text.clone());
    }
    if !answer.omitted.is_empty() {
        let separator = if text.is_empty() { "" } else { "\n" };
        content = Value::String(format!("{text}{separator}[omitted: {}]", answer.omitted.join("; ")));
        details.insert("omitted_parts".into(), json!(answer.omitted));
    }
    let details = if details.is_empty() { Value::Null } else { Value::Object(details) };
    ToolOutcome { content, is_error: answer.is_error, details, was_refused: false }
}

#[cfg(test)]
mod tests;
