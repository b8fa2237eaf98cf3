//! Runs a case: copies its project into a temporary folder, plays its script with a fixed clock and fixed ids, and
//! renders every thread's transcript, one line per event.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rye_compiler::compile::{CompileRequest, compile};
use rye_compiler::diagnostics::Diagnostic;
use rye_engine::clock::JumpingClock;
use rye_engine::engine::{ApprovalPolicy, Engine, EngineOptions, StartOptions};
use rye_engine::event::{Event, EventBody};
use rye_engine::provider::scripted::{Script, Scripted};
use rye_engine::trust::Trust;
use rye_grammar::ItemId;
use serde_json::{Map, Value};

use super::bounds::check_run_bounds;
use super::format_event::format_event;

/// Start time of every run: 2026-01-01, in milliseconds since 1970.
const START_TIME_MS: i64 = 1_767_225_600_000;

/// The inputs of a case run.
pub struct CaseRun<'c> {
    pub project: &'c Path,
    pub user: &'c Path,
    pub directive: &'c ItemId,
    pub inputs: &'c Map<String, Value>,
    /// The script that replaces every model, relative to the project's folder; `None` uses the plan's own models.
    pub script: Option<&'c str>,
    /// True if the sent texts are shown in full.
    pub whole: bool,
}

/// Runs a case and renders its transcripts.
///
/// # Errors
/// Fails if a folder cannot be copied, a script cannot be read, the store fails, or the run exceeds a bound of its
/// plan.
pub fn run_case(play: &CaseRun<'_>) -> Result<String, String> {
    let folder = tempfile::tempdir().map_err(text)?;
    let place = folder.path().canonicalize().map_err(text)?;
    let (project, user) = (place.join("project"), place.join("user"));
    copy(play.project, &project).map_err(text)?;
    if play.user.is_dir() {
        copy(play.user, &user).map_err(text)?;
    }
    // Cases are part of this repository, so their content is trusted.
    let mut options =
        EngineOptions::with_trust(&project, Some(&user), rye_stdlib::files(), Trust::Everything, ApprovalPolicy::Allow)
            .map_err(text)?;
    options.clock = Arc::new(JumpingClock::starting_at(START_TIME_MS));
    if let Some(script) = play.script {
        let written = fs::read_to_string(project.join(script)).map_err(text)?;
        options.providers = Arc::new(Arc::new(Scripted::new(Script::parse(&written).map_err(text)?)));
    }
    let compilation = {
        let world = (options.world)()?;
        let compiled = compile(&*world, &CompileRequest::new(play.directive.clone()).with_inputs(play.inputs.clone()));
        let why = || compiled.diagnostics.iter().map(Diagnostic::message).collect::<Vec<_>>().join("\n");
        match compiled.value {
            Some(compilation) => compilation,
            None => return Ok(format!("nothing runs: {}\n", why())),
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(text)?;
    let engine = runtime.block_on(async {
        let engine = Engine::open(&project, options).map_err(text)?;
        let handle = engine.start(&compilation, StartOptions::default()).await.map_err(text)?;
        handle.join().await;
        Ok::<_, String>(engine)
    })?;
    let mut out = String::new();
    let threads = engine.threads();
    check_run_bounds(&compilation.plan, &threads)?;
    for listed in threads.list().map_err(text)? {
        let _ = writeln!(out, "{}", listed.row.id);
        let mut events = threads.transcript(&listed.row.id).map_err(text)?;
        in_source_order(&mut events);
        for event in events {
            for line in format_event(&event, play.whole) {
                let _ = writeln!(out, "  {line}");
            }
        }
    }
    Ok(out.replace(&project.display().to_string(), "<project>"))
}

/// Sorts the results of the calls in each group, because the calls end in any order.
fn in_source_order(events: &mut [Event]) {
    let index =
        |event: &Event| if let EventBody::ToolCallResult(result) = &event.body { Some(result.index) } else { None };
    for group in events.chunk_by_mut(|a, b| index(a).is_some() && index(b).is_some()) {
        group.sort_by_key(index);
    }
}

/// Converts an error to text, for `map_err`.
#[expect(clippy::needless_pass_by_value, reason = "`map_err` hands the error over")]
fn text(error: impl ToString) -> String {
    error.to_string()
}

/// Copies files and folders except `.ai/state`, which earlier runs may have left.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() && !path.ends_with(".ai/state") {
            copy(&path, &target)?;
        } else if kind.is_file() {
            fs::copy(&path, &target)?;
        }
    }
    Ok(())
}
