//! The registry of tools, which creates a runnable tool from the declaration in a tool file. The gate authorizes calls
//! before the tool runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "mcp")]
use rye_compiler::mcp_servers::ServerDrift;
use rye_compiler::tool_spec::{RESOLVED_CONFIG, ToolKind, ToolSpec};
use rye_compiler::world::Space;
use serde_json::Value;

use super::builtin::{BashTool, FileTool, GitTool, WebFetchTool};
use super::command::CommandTool;
use super::http::HttpTool;
use super::persistent::{PersistentProgram, PersistentTool};
use super::schema::{SchemaError, ToolSchema};
use super::script::ScriptTool;
use super::{Invocation, Tool, ToolOutcome};

/// A tool with its schema. Call [`PreparedTool::check`] before [`PreparedTool::run`].
pub struct PreparedTool {
    pub spec: ToolSpec,
    schema: ToolSchema,
    tool: Arc<dyn Tool>,
    /// Settings that the tool requested; `None` if the tool requested no settings. The settings are added to the
    /// parameters of a call after the parameters were checked.
    config: Option<Value>,
}

/// The registry of tools: the built-in tools by the name that tool files use, the MCP servers, and the root of the user
/// space.
pub struct ToolRegistry {
    builtins: BTreeMap<String, ToolFactory>,
    user: Option<PathBuf>,
    #[cfg(feature = "mcp")]
    servers: Arc<super::mcp::McpServers>,
}

/// The file that a tool was read from, with its contents at that time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolFile {
    /// Path of the tool's file on the disk; `None` for an embedded file of the standard library.
    pub path: Option<PathBuf>,
    /// Path of the tool's file, relative to the root of its space.
    pub item_path: Arc<str>,
    pub text: Arc<str>,
    /// Root of the project in which the tool is called.
    pub project: PathBuf,
    /// The settings of the tool's MCP server; `None` for a tool of another kind, or if the server is not configured.
    #[cfg(feature = "mcp")]
    pub server: Option<super::mcp::McpServer>,
}

impl Default for ToolFile {
    fn default() -> Self {
        Self {
            path: None,
            item_path: "".into(),
            text: "".into(),
            project: PathBuf::new(),
            #[cfg(feature = "mcp")]
            server: None,
        }
    }
}

type ToolFactory = Arc<dyn Fn(&ToolSpec) -> Arc<dyn Tool> + Send + Sync>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    #[error("no built-in tool is named `{name}`; the built-in tools are {known}")]
    UnknownBuiltin { name: String, known: String },
    #[cfg(feature = "mcp")]
    #[error("{drift}; {}", .drift.help())]
    Server { drift: ServerDrift },
    #[cfg(not(feature = "mcp"))]
    #[error("rye was built without tools of MCP servers")]
    WithoutMcp,
}

impl ToolRegistry {
    /// Creates a registry of the built-in tools that need nothing but the project: files, git, `web_fetch` and `bash`.
    pub fn standard() -> Self {
        let mut registry = Self {
            builtins: BTreeMap::new(),
            user: None,
            #[cfg(feature = "mcp")]
            servers: Arc::default(),
        };
        for tool in FileTool::ALL {
            registry.add(tool.name(), move |_| Arc::new(tool));
        }
        for tool in GitTool::ALL {
            registry.add(tool.name(), move |_| Arc::new(tool));
        }
        registry.add("web_fetch", |spec| Arc::new(WebFetchTool { timeout: Duration::from_secs(spec.timeout_seconds) }));
        registry.add("bash", |spec| Arc::new(BashTool { default_timeout: Duration::from_secs(spec.timeout_seconds) }));
        registry
    }

    /// Adds or replaces a built-in tool.
    pub fn add(&mut self, name: &str, make: impl Fn(&ToolSpec) -> Arc<dyn Tool> + Send + Sync + 'static) {
        self.builtins.insert(name.to_owned(), Arc::new(make));
    }

    fn unknown(&self, name: &str) -> RegistryError {
        let known: Vec<&str> = self.builtins.keys().map(String::as_str).collect();
        RegistryError::UnknownBuiltin { name: name.to_owned(), known: known.join(", ") }
    }

    /// Sets the user space, so that tools of the user space know the paths of their files.
    #[must_use]
    pub fn with_user_space(mut self, root: Option<&Path>) -> Self {
        self.user = root.map(Path::to_path_buf);
        self
    }

    /// Returns the file of a tool in the form that [`ToolRegistry::prepare`] takes. `item_path` is the path of the file
    /// in its space.
    pub fn file(&self, project: &Path, space: Space, item_path: Arc<str>, text: Arc<str>) -> ToolFile {
        let root = match space {
            Space::Project => Some(project),
            Space::User => self.user.as_deref(),
            Space::System => None,
        };
        let path = root.map(|root| root.join(&*item_path));
        ToolFile { path, item_path, text, project: project.to_path_buf(), ..ToolFile::default() }
    }

    /// Creates a runnable tool from its declaration and its file.
    pub fn prepare(&self, spec: &ToolSpec, file: &ToolFile) -> Result<PreparedTool, RegistryError> {
        let (timeout, environment) = (Duration::from_secs(spec.timeout_seconds), spec.environment.clone());
        let write_only = spec.needs.write_only.clone();
        let persistent = |program: PersistentProgram| PersistentTool {
            program,
            file: file.clone(),
            timeout,
            idempotent: spec.idempotent.clone(),
            environment: spec.environment.clone(),
            write_only: spec.needs.write_only.clone(),
            pushes: spec.pushes,
        };
        let tool: Arc<dyn Tool> = match &spec.kind {
            ToolKind::Command { argv } if spec.persistent => {
                Arc::new(persistent(PersistentProgram::Command { argv: argv.clone() }))
            }
            ToolKind::Script { language, .. } if spec.persistent => {
                Arc::new(persistent(PersistentProgram::Script { language: *language }))
            }
            ToolKind::Builtin { name } => {
                let make = self.builtins.get(name).ok_or_else(|| self.unknown(name))?;
                make(spec)
            }
            ToolKind::Command { argv } => {
                Arc::new(CommandTool { argv: argv.clone(), file: file.clone(), timeout, environment, write_only })
            }
            ToolKind::Script { language, entry } => {
                let (language, entry) = (*language, *entry);
                Arc::new(ScriptTool { language, entry, file: file.clone(), timeout, environment, write_only })
            }
            ToolKind::Http(http) => Arc::new(HttpTool { http: http.clone(), file: file.clone(), timeout, environment }),
            #[cfg(feature = "mcp")]
            ToolKind::Mcp { server, tool, sha256, .. } => {
                let drift = ServerDrift::of_tool(spec, file.server.as_ref());
                if let Some(drift) = drift.filter(ServerDrift::refuses_calls) {
                    return Err(RegistryError::Server { drift });
                }
                let missing = || RegistryError::Server { drift: ServerDrift::Missing { server: server.clone() } };
                let configured = file.server.clone().ok_or_else(missing)?;
                Arc::new(super::mcp::McpTool {
                    servers: Arc::clone(&self.servers),
                    server: configured,
                    folder: file.project.clone(),
                    tool: tool.clone(),
                    sha256: sha256.clone(),
                    timeout,
                })
            }
            #[cfg(not(feature = "mcp"))]
            ToolKind::Mcp { .. } => return Err(RegistryError::WithoutMcp),
        };
        Ok(PreparedTool { spec: spec.clone(), schema: ToolSchema::new(spec.parameters.clone()), tool, config: None })
    }
}

impl PreparedTool {
    /// Checks the parameters against the schema.
    pub fn check(&self, parameters: &Value) -> Result<(), SchemaError> {
        self.schema.check(parameters)
    }

    /// Sets the resolved settings that the tool requested (`CONFIG_RESOLVE`).
    #[must_use]
    pub(crate) fn with_config(mut self, config: Option<Value>) -> Self {
        self.config = config;
        self
    }

    /// Returns true if a cancelled call takes time to end ([`Tool::stops_itself`]).
    pub(crate) fn stops_itself(&self) -> bool {
        self.tool.stops_itself()
    }

    /// Runs a call. Validates the parameters again, so that no caller bypasses the schema.
    pub async fn run(&self, mut invocation: Invocation) -> ToolOutcome {
        if let Err(e) = self.check(&invocation.parameters) {
            return ToolOutcome::error(e.to_string());
        }
        if let (Some(config), Value::Object(parameters)) = (&self.config, &mut invocation.parameters) {
            parameters.insert(RESOLVED_CONFIG.to_owned(), config.clone());
        }
        self.tool.run(invocation).await
    }
}

#[cfg(test)]
mod tests;
