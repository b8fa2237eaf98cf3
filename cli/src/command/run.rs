//! `rye run ID`: compiles a directive and runs its plan; `rye run --resume THREAD` goes on with a thread. What happens
//! is shown while it happens, what came of it at the end.

mod ask;
mod ending;
mod json;
mod people;
mod screen;
mod script;
mod stdout;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;

use clap::{ArgGroup, Args};
use rye_compiler::compile::{Compilation, compile_showing};
use rye_compiler::diagnostics::{Diagnostics, Severity};
use rye_engine::driver::DriveError;
use rye_engine::engine::{Engine, EngineError, EngineOptions, Launch};
use rye_engine::session::below::ParentThread;
use rye_engine::thread_id::ThreadId;
use rye_engine::threads::Threads;
use rye_grammar::Sources;

use crate::Failure;
use crate::args::{Format, Global};
use crate::call::{CallArgs, directive};
use crate::command::check::{CheckOutput, CheckSummary};
use crate::command::threads::Book;
use crate::exit::Exit;
use crate::report::Report;
use crate::report::diagnostic::DiagnosticOutput;
use crate::space::Spaces;
use screen::Screen;

pub use ending::RunOutput;
pub use json::EventOutput;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["directive", "resume"]))]
pub struct RunArgs {
    /// The directive's id
    #[arg(value_name = "ID")]
    directive: Option<String>,
    #[command(flatten)]
    call: CallArgs,
    /// Play this script instead of asking a model
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Run it as a child of this thread, within its limits, capabilities and budget
    #[arg(long, value_name = "THREAD", conflicts_with = "resume")]
    parent: Option<String>,
    /// Go on with a thread: one that was cut off as it was, one that is over with a new message
    #[arg(long, value_name = "THREAD", conflicts_with_all = ["input", "inputs", "model", "limit"])]
    resume: Option<String>,
    /// What to say to the resumed thread
    #[arg(long, value_name = "TEXT", requires = "resume")]
    message: Option<String>,
    /// Show every event: with `--format json` one JSON object a line before the result
    #[arg(long)]
    events: bool,
}

/// What is started.
enum Start {
    Fresh {
        compilation: Box<Compilation>,
        parent: Option<Box<ParentThread>>,
    },
    /// It was cut off; the message, if there is one, steers it.
    Recover {
        thread: ThreadId,
        message: Option<String>,
    },
    /// It is over.
    GoOn {
        thread: ThreadId,
        message: String,
    },
}

pub fn run(args: &RunArgs, global: &Global, report: &Report) -> Result<Exit, Failure> {
    let spaces = Spaces::find(global.project.as_deref())?;
    let start = match (&args.directive, &args.resume) {
        (Some(id), _) => {
            let parent = args.parent.as_deref().map(|parent| below(parent, &spaces)).transpose()?;
            match compiled(id, &args.call, parent.as_deref(), &spaces, report)? {
                Ok(compilation) => Start::Fresh { compilation, parent },
                Err(exit) => return Ok(exit),
            }
        }
        (None, Some(thread)) => resumed(thread, args.message.clone(), &spaces)?,
        (None, None) => return Err(Failure::usage("name a directive, or a thread with `--resume`")),
    };
    let mut options = EngineOptions::standard(&spaces.project, spaces.user.as_deref(), rye_stdlib::files())?;
    if let Some(file) = &args.script {
        options.providers = Arc::new(script::Played::read(file)?);
    }
    options.asker = ask::terminal(report.format());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let screen = Screen::start(report, args.events)?;
    let ended = runtime.block_on(async {
        let engine = Engine::open(&spaces.project, options)?;
        let handle = match start {
            Start::Fresh { compilation, parent } => {
                engine.start(&compilation, Launch { parent: parent.map(|parent| *parent), ..Launch::default() }).await?
            }
            Start::Recover { thread, message } => {
                let handle = engine.recover(&thread).await?;
                if let Some(text) = message {
                    handle.send(rye_engine::event::Letter::Steer { text });
                }
                handle
            }
            Start::GoOn { thread, message } => engine.resume(&thread, &message).await?,
        };
        Ok::<Exit, EngineError>(watch::to_the_end(handle, screen, report).await)
    });
    // Whoever reads our output may never take the rest of it.
    runtime.shutdown_background();
    Ok(ended?)
}

/// The plan, with its warnings shown; or what is wrong, shown as `rye check` does, and the exit code for it.
fn compiled(
    id: &str,
    call: &CallArgs,
    parent: Option<&ParentThread>,
    spaces: &Spaces,
    report: &Report,
) -> Result<Result<Box<Compilation>, Exit>, Failure> {
    let world = spaces.open()?;
    let mut request = call.request(directive(id)?, &world)?;
    request.inputs.get_or_insert_default();
    request.parent = parent.map(ParentThread::bounds);
    let mut sources = Sources::default();
    let checked = compile_showing(&world, &request, &mut sources);
    match checked.value {
        Some(compilation) => {
            report.diagnostics(&checked.diagnostics, &compilation.sources);
            Ok(Ok(Box::new(compilation)))
        }
        None => refused(&checked.diagnostics, &sources, report).map(Err),
    }
}

fn refused(diagnostics: &Diagnostics, sources: &Sources, report: &Report) -> Result<Exit, Failure> {
    let errors = diagnostics.iter().filter(|one| one.severity() == Severity::Error);
    let (mut count, mut signature) = (0, false);
    for error in errors {
        count += 1;
        signature |= error.code() == "item::signature";
    }
    if report.format() == Format::Json {
        let warnings = diagnostics.iter().filter(|one| one.severity() == Severity::Warning).count();
        let summary = CheckSummary { errors: count, warnings, files: sources.iter().count(), directives: 1 };
        let diagnostics = diagnostics.iter().map(|one| DiagnosticOutput::new(one, sources)).collect();
        report.json(&CheckOutput { diagnostics, summary })?;
    } else {
        report.diagnostics(diagnostics, sources);
    }
    Ok(if signature { Exit::Refused } else { Exit::Failed })
}

/// The thread that a new one is started below.
fn below(id: &str, spaces: &Spaces) -> Result<Box<ParentThread>, Failure> {
    let row = Book::open(&spaces.project)?.find(id)?.row;
    if row.status.is_over() {
        return Err(Failure::usage(format!("the thread `{id}` is over and has no children any more")));
    }
    let found = Threads::open(&spaces.project)?.parent(&row.id)?;
    found.map(Box::new).ok_or_else(|| Failure::failed(format!("the thread `{id}` never began: it has no record")))
}

fn resumed(id: &str, message: Option<String>, spaces: &Spaces) -> Result<Start, Failure> {
    let row = Book::open(&spaces.project)?.find(id)?.row;
    match (row.status.is_over(), message) {
        (false, message) => Ok(Start::Recover { thread: row.id, message }),
        (true, Some(message)) => Ok(Start::GoOn { thread: row.id, message }),
        (true, None) => {
            let over = format!("the thread `{}` is over: {}", row.id, row.status.word());
            Err(Failure::usage(over).help("say how it goes on with `--message TEXT`"))
        }
    }
}

impl From<DriveError> for Failure {
    fn from(error: DriveError) -> Self {
        Self::failed(error.to_string())
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        let exit = if matches!(error, EngineError::NothingSetAside { .. }) { Exit::Limit } else { Exit::Failed };
        Self { exit, ..Self::failed(error.to_string()) }
    }
}
