//! From what a tool file declares to something that can be run. The gate has its say before this is called.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rye_compiler::tool_spec::{RESOLVED_CONFIG, ToolKind, ToolSpec};
use rye_compiler::world::Space;
use serde_json::Value;

use super::builtin::{Bash, FileTool, Git, WebFetch};
use super::command::CommandTool;
use super::http::HttpTool;
use super::schema::{Schema, SchemaError};
use super::script::ScriptTool;
use super::{Invocation, Tool, ToolOutcome};

/// A tool with its schema. [`Prepared::check`] comes before [`Prepared::run`].
pub struct Prepared {
    pub spec: ToolSpec,
    schema: Schema,
    tool: Arc<dyn Tool>,
    /// Settings that join the parameters, once those are found to fit.
    config: Option<Value>,
}

/// What is compiled in, by the name tool files use, and where the spaces lie.
pub struct Registry {
    builtins: BTreeMap<String, Maker>,
    user: Option<PathBuf>,
    #[cfg(feature = "mcp")]
    servers: Arc<super::mcp::McpServers>,
}

/// The file a tool was read from, as it was then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolFile {
    /// Where it lies; `None` for the standard library's, which lie nowhere.
    pub path: Option<PathBuf>,
    /// Relative to its space.
    pub item_path: Arc<str>,
    pub text: Arc<str>,
    /// The root of the project it is called in.
    pub project: PathBuf,
    /// The server a tool of one belongs to, as configured.
    #[cfg(feature = "mcp")]
    pub server: Option<super::mcp::Server>,
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

type Maker = Arc<dyn Fn(&ToolSpec) -> Arc<dyn Tool> + Send + Sync>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    #[error("no tool named `{name}` is built in; there are {known}")]
    UnknownBuiltin { name: String, known: String },
    #[cfg(feature = "mcp")]
    #[error("no MCP server `{server}` is configured, in `.mcp.json` or `.ai/config/mcp.yaml`")]
    UnknownServer { server: String },
    #[cfg(feature = "mcp")]
    #[error(
        "the settings of the MCP server `{server}` are not what they were when its tools were listed; `rye mcp refresh {server}` lists them anew"
    )]
    OtherServer { server: String },
    #[cfg(not(feature = "mcp"))]
    #[error("rye was built without tools of MCP servers")]
    WithoutMcp,
}

impl Registry {
    /// The tools of the standard library that need nothing but the project.
    pub fn standard() -> Self {
        let mut registry = Self {
            builtins: BTreeMap::new(),
            user: None,
            #[cfg(feature = "mcp")]
            servers: Arc::default(),
        };
        for tool in FileTool::ALL {
            registry.add(tool.word(), move |_| Arc::new(tool));
        }
        for tool in Git::ALL {
            registry.add(tool.word(), move |_| Arc::new(tool));
        }
        registry.add("web_fetch", |spec| Arc::new(WebFetch { timeout: Duration::from_secs(spec.timeout_seconds) }));
        registry.add("bash", |spec| Arc::new(Bash { default_timeout: Duration::from_secs(spec.timeout_seconds) }));
        registry
    }

    /// Adds a built-in tool, or replaces one.
    pub fn add(&mut self, name: &str, make: impl Fn(&ToolSpec) -> Arc<dyn Tool> + Send + Sync + 'static) {
        self.builtins.insert(name.to_owned(), Arc::new(make));
    }

    fn unknown(&self, name: &str) -> RegistryError {
        let known: Vec<&str> = self.builtins.keys().map(String::as_str).collect();
        RegistryError::UnknownBuiltin { name: name.to_owned(), known: known.join(", ") }
    }

    /// Says where the user space lies, so that its tools know their own files.
    #[must_use]
    pub fn with_user_space(mut self, root: Option<&Path>) -> Self {
        self.user = root.map(Path::to_path_buf);
        self
    }

    /// The file of a tool that was read.
    pub fn file(&self, project: &Path, space: Space, item_path: Arc<str>, text: Arc<str>) -> ToolFile {
        let root = match space {
            Space::Project => Some(project),
            Space::User => self.user.as_deref(),
            Space::System => None,
        };
        let path = root.map(|root| root.join(&*item_path));
        ToolFile { path, item_path, text, project: project.to_path_buf(), ..ToolFile::default() }
    }

    /// Makes a tool from its declaration and its file.
    pub fn prepare(&self, spec: &ToolSpec, file: &ToolFile) -> Result<Prepared, RegistryError> {
        let (timeout, environment) = (Duration::from_secs(spec.timeout_seconds), spec.environment.clone());
        let tool: Arc<dyn Tool> = match &spec.kind {
            ToolKind::Builtin { name } => {
                let make = self.builtins.get(name).ok_or_else(|| self.unknown(name))?;
                make(spec)
            }
            ToolKind::Command { argv } => {
                Arc::new(CommandTool { argv: argv.clone(), file: file.clone(), timeout, environment })
            }
            ToolKind::Script { language, entry } => {
                let (language, entry) = (*language, *entry);
                Arc::new(ScriptTool { language, entry, file: file.clone(), timeout, environment })
            }
            ToolKind::Http(http) => Arc::new(HttpTool { http: http.clone(), file: file.clone(), timeout, environment }),
            #[cfg(feature = "mcp")]
            ToolKind::Mcp { server, tool, sha256, server_sha256, runs, wall } => {
                let configured =
                    file.server.clone().ok_or_else(|| RegistryError::UnknownServer { server: server.clone() })?;
                // What a person was shown is what is started.
                let needs = configured.needs();
                let shown = *runs == configured.describe() && *wall == configured.wall();
                let granted = needs.write == spec.needs.write && needs.net == spec.needs.net;
                if configured.sha256() != *server_sha256 || !shown || !granted {
                    return Err(RegistryError::OtherServer { server: server.clone() });
                }
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
        Ok(Prepared { spec: spec.clone(), schema: Schema::new(spec.parameters.clone()), tool, config: None })
    }
}

impl Prepared {
    /// Whether the parameters fit the schema.
    pub fn check(&self, parameters: &Value) -> Result<(), SchemaError> {
        self.schema.check(parameters)
    }

    /// The same tool with the settings it asked for (`CONFIG_RESOLVE`).
    #[must_use]
    pub fn with_config(mut self, config: Option<Value>) -> Self {
        self.config = config;
        self
    }

    /// Runs a call. Parameters are looked at once more, so no path leads past the schema.
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
