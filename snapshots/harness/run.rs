//! The run of a case: its project copied to a folder of its own, its script played, clock and names fixed. Then what is
//! on record of every thread, a line an event. Not a way to run anything else.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rye_compiler::compile::{Request, compile};
use rye_compiler::diagnostics::Diagnostic;
use rye_compiler::plan::PlannedModel;
use rye_engine::clock::JumpingClock;
use rye_engine::engine::{Engine, EngineOptions, Launch, Providers};
use rye_engine::event::{Event, EventBody};
use rye_engine::provider::scripted::{Script, Scripted};
use rye_engine::provider::{CallError, Provider};
use rye_engine::trust::Trust;
use rye_grammar::ItemId;
use serde_json::{Map, Value};

use super::told::told;

/// 2026-01-01, in milliseconds since 1970.
const BEGIN: i64 = 1_767_225_600_000;

/// What a run is given.
pub struct Play<'c> {
    pub project: &'c Path,
    pub user: &'c Path,
    pub directive: &'c ItemId,
    pub inputs: &'c Map<String, Value>,
    /// The script that stands for every model, from the project's folder; else the models are the plan's own.
    pub script: Option<&'c str>,
    /// Whether the texts that were sent are shown whole.
    pub whole: bool,
}

struct Played(Arc<Scripted>);

impl Providers for Played {
    fn connect(&self, _: &PlannedModel) -> Result<Arc<dyn Provider>, CallError> {
        Ok(Arc::clone(&self.0) as Arc<dyn Provider>)
    }
}

/// Plays a run and tells it.
///
/// # Errors
/// A folder that cannot be copied, a script that cannot be read, a store that does not do as it is told.
pub fn run(play: &Play<'_>) -> Result<String, String> {
    let folder = tempfile::tempdir().map_err(text)?;
    let place = folder.path().canonicalize().map_err(text)?;
    let (project, user) = (place.join("project"), place.join("user"));
    copy(play.project, &project).map_err(text)?;
    if play.user.is_dir() {
        copy(play.user, &user).map_err(text)?;
    }
    // A case is this repository's own project: what it executes is meant.
    let mut options =
        EngineOptions::trusting(&project, Some(&user), rye_stdlib::files(), Trust::Everything).map_err(text)?;
    options.clock = Arc::new(JumpingClock::starting_at(BEGIN));
    options.asker = None;
    if let Some(script) = play.script {
        let written = fs::read_to_string(project.join(script)).map_err(text)?;
        options.providers = Arc::new(Played(Arc::new(Scripted::new(Script::parse(&written).map_err(text)?))));
    }
    let compilation = {
        let world = (options.world)()?;
        let compiled = compile(&*world, &Request::new(play.directive.clone()).with_inputs(play.inputs.clone()));
        let why = || compiled.diagnostics.iter().map(Diagnostic::message).collect::<Vec<_>>().join("\n");
        match compiled.value {
            Some(compilation) => compilation,
            None => return Ok(format!("nothing runs: {}\n", why())),
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(text)?;
    let engine = runtime.block_on(async {
        let engine = Engine::open(&project, options).map_err(text)?;
        let handle = engine.start(&compilation, Launch::default()).await.map_err(text)?;
        handle.join().await;
        Ok::<_, String>(engine)
    })?;
    let mut out = String::new();
    let threads = engine.threads();
    for listed in threads.list().map_err(text)? {
        let _ = writeln!(out, "{}", listed.row.id);
        let mut events = threads.transcript(&listed.row.id).map_err(text)?;
        in_source_order(&mut events);
        for event in events {
            for line in told(&event, play.whole) {
                let _ = writeln!(out, "  {line}");
            }
        }
    }
    Ok(out.replace(&project.display().to_string(), "<project>"))
}

/// Calls of one group end in any order.
fn in_source_order(events: &mut [Event]) {
    let index =
        |event: &Event| if let EventBody::ToolCallResult(result) = &event.body { Some(result.index) } else { None };
    for group in events.chunk_by_mut(|a, b| index(a).is_some() && index(b).is_some()) {
        group.sort_by_key(index);
    }
}

/// For `map_err`.
#[expect(clippy::needless_pass_by_value, reason = "`map_err` hands the error over")]
fn text(error: impl ToString) -> String {
    error.to_string()
}

/// Files and folders; what a run has left in `.ai/state` is none of the project's.
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
