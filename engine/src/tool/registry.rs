//! From what a tool file declares to something that can be run. The gate has its say before this is called.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rye_compiler::tool_spec::{ToolKind, ToolSpec};
use serde_json::Value;

use super::builtin::{Bash, FileTool};
use super::command::CommandTool;
use super::schema::{Schema, SchemaError};
use super::{Invocation, Tool, ToolOutcome};

/// A tool with its schema. [`Prepared::check`] comes before [`Prepared::run`].
pub struct Prepared {
    pub spec: ToolSpec,
    schema: Schema,
    tool: Arc<dyn Tool>,
}

/// What is compiled in, by the name tool files use.
pub struct Registry {
    builtins: BTreeMap<String, Maker>,
}

type Maker = Arc<dyn Fn(&ToolSpec) -> Arc<dyn Tool> + Send + Sync>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    #[error("no tool named `{name}` is built in; there are {known}")]
    UnknownBuiltin { name: String, known: String },
}

impl Registry {
    /// The tools of the standard library that need nothing but the project.
    pub fn standard() -> Self {
        let mut registry = Self { builtins: BTreeMap::new() };
        for tool in FileTool::ALL {
            registry.add(tool.word(), move |_| Arc::new(tool));
        }
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

    /// Makes a tool from its declaration.
    pub fn prepare(&self, spec: &ToolSpec) -> Result<Prepared, RegistryError> {
        let tool: Arc<dyn Tool> = match &spec.kind {
            ToolKind::Builtin { name } => {
                let make = self.builtins.get(name).ok_or_else(|| self.unknown(name))?;
                make(spec)
            }
            ToolKind::Command { argv } => {
                Arc::new(CommandTool { argv: argv.clone(), timeout: Duration::from_secs(spec.timeout_seconds) })
            }
        };
        Ok(Prepared { spec: spec.clone(), schema: Schema::new(spec.parameters.clone()), tool })
    }
}

impl Prepared {
    /// Whether the parameters fit the schema.
    pub fn check(&self, parameters: &Value) -> Result<(), SchemaError> {
        self.schema.check(parameters)
    }

    /// Runs a call. Parameters are looked at once more, so no path leads past the schema.
    pub async fn run(&self, invocation: Invocation) -> ToolOutcome {
        if let Err(e) = self.check(&invocation.parameters) {
            return ToolOutcome::error(e.to_string());
        }
        self.tool.run(invocation).await
    }
}

#[cfg(test)]
mod tests;
