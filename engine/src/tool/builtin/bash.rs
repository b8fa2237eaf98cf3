//! `rye/bash/bash`: runs a command line with bash in the project.

use std::time::Duration;

use serde::Deserialize;

use super::{ToolFailure, ToolResult, parse_parameters};
use crate::BoxFuture;
use crate::tool::command::program_outcome;
use crate::tool::confine::ProjectFiles;
use crate::tool::process::{self, Program, Sandbox, StderrMode};
use crate::tool::{Invocation, Tool, ToolOutcome};

/// The tool `rye/bash/bash`, with the default timeout of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BashTool {
    pub default_timeout: Duration,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BashParameters {
    command: String,
    #[serde(default)]
    timeout_seconds: Option<u64>,
    #[serde(default)]
    cwd: Option<String>,
}

impl BashTool {
    async fn act(&self, invocation: Invocation) -> ToolResult {
        let given: BashParameters = parse_parameters(&invocation.parameters)?;
        if given.command.contains('\0') {
            return Err(ToolFailure("`command` contains a zero byte".into()));
        }
        let root = invocation.project_root.clone();
        let cwd = given.cwd.unwrap_or_else(|| ".".into());
        let folder = tokio::task::spawn_blocking(move || {
            let project = ProjectFiles::open(&root, Vec::new())?;
            let place = project.locate(&cwd)?;
            place.folder()?;
            Ok::<_, crate::tool::confine::FileAccessError>(place.path.below(project.real_root()))
        })
        .await
        .map_err(|e| ToolFailure(format!("bash failed inside the engine: {e}")))??;
        let requested = given.timeout_seconds.map_or(self.default_timeout, Duration::from_secs);
        let sandbox = Sandbox::new(&invocation.project_root, invocation.write, &invocation.net);
        let program = Program {
            program: "bash".into(),
            arguments: vec!["-c".into(), given.command.into()],
            folder,
            thread_id: invocation.thread_id,
            timeout: requested.min(invocation.timeout),
            halt: invocation.halt,
            sandbox: Some(sandbox),
            input: Vec::new(),
            environment: Vec::new(),
            streams: StderrMode::Together,
            written: invocation.written,
        };
        let finished = process::run(&program).await.map_err(|e| ToolFailure(format!("bash cannot be started: {e}")))?;
        Ok(program_outcome(&finished, &program))
    }
}

impl Tool for BashTool {
    fn run(&self, invocation: Invocation) -> BoxFuture<'_, ToolOutcome> {
        Box::pin(async move { self.act(invocation).await.unwrap_or_else(|f| ToolOutcome::error(f.0)) })
    }

    fn stops_itself(&self) -> bool {
        true
    }
}
