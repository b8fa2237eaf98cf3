//! `rye run ID`: compiles a directive and runs its plan; `rye run --resume THREAD` resumes a thread. Prints events
//! during the run, and the result at the end.

pub mod ask;
mod call_lines;
mod command_shape;
pub mod detach;
mod effective_settings;
pub mod ending;
mod file_diff;
mod grant_line;
pub mod human;
pub mod images;
mod json;
mod limit_hint;
mod locked;
mod painted_lines;
mod pinned_plan;
pub mod progress;
pub mod renderer;
mod request_counter;
mod resume_notice;
pub mod resumed_limits;
pub mod sandbox;
pub mod start;
mod stdout;
mod typed_answer;
pub mod watch;

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use rye_compiler::approvals::HeadlessPolicy;
use rye_compiler::compile::{Compilation, CompileRequest, compile, compile_with_sources};
use rye_compiler::diagnostics::{Diagnostic, Diagnostics, Severity};
use rye_compiler::model::ModelOverride;
use rye_compiler::plan::PlannedModel;
use rye_engine::disk_world::DiskWorld;
use rye_engine::engine::EngineError;
use rye_engine::engine::ParentThread;
use rye_engine::error::DriveError;
use rye_engine::event::ControlMessage;
use rye_engine::image::ImageNotAccepted;
use rye_engine::store::{StoreError, layout};
use rye_engine::thread::Status;
use rye_engine::threads::Threads;
use rye_grammar::Sources;

use crate::CommandError;
use crate::command::check::{CheckOutput, CheckSummary};
use crate::command::threads::accepts_messages;
use crate::command::trust;
use crate::exit::Exit;
use crate::lockfile;
use crate::options::{Format, Global};
use crate::report::Printer;
use crate::report::bounded;
use crate::run_request::{ChatRequestArgs, RunRequestArgs, parse_directive_id};
use crate::thread_reader::ThreadReader;
use crate::workspace::Spaces;
use ask::HeadlessPolicyArg;
use resumed_limits::ResumedLimits;
use start::{RunOptions, ThreadStart};

pub use detach::DetachOutput;
pub use ending::RunOutput;
pub use json::{DeltaOutput, EventOutput};

/// Environment variable set for the tools of a thread: a run that such a tool starts becomes a child of the thread.
const PARENT_VARIABLE: &str = "RYE_PARENT_THREAD_ID";

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).multiple(true).args(["directive", "resume", "plan"]))]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct RunArgs {
    /// Id of the directive
    #[arg(value_name = "ID", conflicts_with = "resume")]
    directive: Option<String>,
    #[command(flatten)]
    call: RunRequestArgs,
    /// Run the plan in this file, written by `rye plan ID --format json`; refuse if the directive now compiles to
    /// another plan
    #[arg(long, value_name = "FILE", conflicts_with_all = ["resume", "parent", "input", "inputs", "model", "limit"])]
    plan: Option<String>,
    /// Refuse every thread whose directive differs from `.ai/lock.json`
    #[arg(long, conflicts_with_all = ["plan", "model", "limit"])]
    locked: bool,
    /// Replace every model with this script
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Run as a child of this thread, within its limits, capabilities and budget
    #[arg(long, value_name = "THREAD", conflicts_with = "resume")]
    parent: Option<String>,
    /// Resume a thread: an interrupted one as it was, a finished one with a new message
    #[arg(long, value_name = "THREAD", conflicts_with_all = ["input", "inputs"])]
    resume: Option<String>,
    /// Message to the resumed thread
    #[arg(long, value_name = "TEXT", requires = "resume")]
    message: Option<String>,
    /// Add this image (PNG, JPEG, GIF, WebP) before the first message, or before the message to the resumed thread
    /// (repeatable)
    #[arg(long, value_name = "FILE")]
    image: Vec<PathBuf>,
    /// Fork the resumed thread at the end of this turn; later turns are left out
    #[arg(long, value_name = "TURN", requires_all = ["resume", "message"])]
    fork_at: Option<u64>,
    /// Accept a transcript that none of your keys signed; a damaged one is still refused
    #[arg(long, conflicts_with = "plan")]
    trust_record: bool,
    /// Run in the background; print the thread's id once it runs
    #[arg(long, conflicts_with = "events")]
    detach: bool,
    #[arg(long, hide = true)]
    detached: bool,
    /// Policy for calls that need approval when there is no terminal (default: `approvals.headless` of the settings,
    /// else `allow`)
    #[arg(long, value_enum, value_name = "POLICY", env = "RYE_UNATTENDED", hide_env_values = true)]
    unattended: Option<HeadlessPolicyArg>,
    /// Complete the thread although required outputs are missing
    #[arg(long, conflicts_with = "resume")]
    allow_missing_outputs: bool,
    /// Print every event; with `--format json`, one JSON object per line before the result
    #[arg(long)]
    events: bool,
}

pub fn run(args: &RunArgs, global: &Global, report: &Printer) -> Result<Exit, CommandError> {
    let spaces = Spaces::find(global.project.as_deref())?;
    if !args.detached {
        spaces.print_project(report);
    }
    if args.detach {
        return detach::start_detached(args.call.reads_stdin(), report);
    }
    let images = images::read_images(&args.image)?;
    let lock = args.locked.then(|| lockfile::read_required(&spaces.project)).transpose()?;
    let (mut model, mut limits) = (None, None);
    let start = match (&args.directive, &args.resume) {
        (requested, _) if args.plan.is_some() => {
            // A plan file starts a thread without a parent. A tool could use such a file to start a thread without the
            // limits and capabilities of its own thread.
            if std::env::var_os(PARENT_VARIABLE).is_some_and(|id| !id.is_empty()) {
                return Err(CommandError::usage("`--plan` is not allowed in a program that a thread runs"));
            }
            let file = args.plan.as_deref().unwrap_or_default();
            match pinned_plan::compile_pinned(file, requested.as_deref(), args.script.is_some(), &spaces, report)? {
                Ok(compilation) => ThreadStart::Fresh { compilation, parent: None },
                Err(exit) => return Ok(exit),
            }
        }
        (Some(id), _) => {
            let named = args.parent.clone().or_else(|| std::env::var(PARENT_VARIABLE).ok().filter(|id| !id.is_empty()));
            let parent = named.as_deref().map(|parent| parent_of_new_thread(parent, &spaces)).transpose()?;
            if let Some(lock) = &lock {
                let drifts = lockfile::find_drift(lock, &spaces.open()?, &parse_directive_id(id)?)?;
                if !drifts.is_empty() {
                    return Err(lockfile::drift_refusal(&drifts));
                }
            }
            match compile_directive(id, &args.call, parent.as_deref(), args.script.is_some(), &spaces, report)? {
                Ok(compilation) => ThreadStart::Fresh { compilation, parent },
                Err(exit) => return Ok(exit),
            }
        }
        (None, Some(thread)) => {
            let start = select_resume(thread, args.message.clone(), args.fork_at, &spaces)?;
            model = args.call.model().map(|name| resumed_model(&start, name, &spaces)).transpose()?;
            limits = ResumedLimits::read(args.call.limits(), &start, &spaces)?;
            start
        }
        (None, None) => return Err(CommandError::usage("name a directive, or a thread with `--resume`")),
    };
    let script = args.script.as_deref();
    let unattended = args.unattended.map(HeadlessPolicy::from);
    let (events, images) = (args.events, images.as_slice());
    let (lock, trust_record) = (lock.as_ref(), args.trust_record);
    let how = RunOptions {
        trust_record,
        events,
        script,
        detached: args.detached,
        unattended,
        images,
        lock,
        model: model.as_ref(),
        limits: limits.as_ref(),
        allow_missing_outputs: args.allow_missing_outputs,
        ..RunOptions::default()
    };
    start::run_to_end(start, how, &spaces, report)
}

/// Compiles a directive for a run, prints its warnings and checks that everything that the plan requires is trusted. If
/// the directive has errors, prints them as `rye check` does and returns the exit code. If `is_scripted` is true, a
/// script of the user replaces every model, so scripts of the project need no trust.
pub fn compile_directive(
    id: &str,
    call: &RunRequestArgs,
    parent: Option<&ParentThread>,
    is_scripted: bool,
    spaces: &Spaces,
    report: &Printer,
) -> Result<Result<Box<Compilation>, Exit>, CommandError> {
    let world = spaces.open()?;
    let mut request = call.request(parse_directive_id(id)?, &world)?;
    request.parent = parent.map(ParentThread::bounds);
    let compiled = compile_request(request, is_scripted, &world, spaces, report)?;
    Ok(compiled.map_err(|errors| errors.exit))
}

/// The errors of a directive, which are printed already.
pub struct PrintedErrors {
    pub exit: Exit,
    /// Each error as one line, for a client that does not read stderr.
    pub messages: Vec<String>,
}

/// Compiles a directive for a chat, like [`compile_directive`].
pub fn compile_chat(
    id: &str,
    (call, session): (&RunRequestArgs, &ChatRequestArgs),
    is_scripted: bool,
    spaces: &Spaces,
    report: &Printer,
) -> Result<Result<Box<Compilation>, PrintedErrors>, CommandError> {
    let world = spaces.open()?;
    let mut request = call.request(parse_directive_id(id)?, &world)?.chat();
    session.add_to(&mut request)?;
    compile_request(request, is_scripted, &world, spaces, report)
}

fn compile_request(
    mut request: CompileRequest,
    is_scripted: bool,
    world: &DiskWorld,
    spaces: &Spaces,
    report: &Printer,
) -> Result<Result<Box<Compilation>, PrintedErrors>, CommandError> {
    request.inputs.get_or_insert_default();
    let mut sources = Sources::default();
    let checked = compile_with_sources(world, &request, &mut sources);
    let Some(compilation) = checked.value else {
        let errors = checked.diagnostics.iter().filter(|one| one.is_error());
        let messages = errors.map(Diagnostic::message).collect();
        let exit = print_errors(checked.diagnostics, &sources, report)?;
        return Ok(Err(PrintedErrors { exit, messages }));
    };
    let mut diagnostics = of_own_files(checked.diagnostics, &compilation.sources);
    // At a terminal, the approval request of the call appears instead of this warning.
    diagnostics.retain(|one| one.code() != "capability::unacknowledged" || !ask::has_terminal(report.format()));
    report.brief_diagnostics(&diagnostics, &compilation.sources);
    world.signature_policy().map_err(|error| CommandError::failed(error.to_string()))?;
    trust::require_trust(&compilation.trust_requirements, is_scripted, world, spaces, report)?;
    Ok(Ok(Box::new(compilation)))
}

/// Returns the diagnostics without the warnings about files of the standard library, which the user cannot change.
pub fn of_own_files(mut diagnostics: Diagnostics, sources: &Sources) -> Diagnostics {
    diagnostics.retain(|one| {
        let place = one.labels().into_iter().next().and_then(|label| sources.get(label.span.source));
        one.is_error() || place.is_none_or(|source| !source.path.to_string().starts_with("system:"))
    });
    diagnostics
}

fn print_errors(diagnostics: Diagnostics, sources: &Sources, report: &Printer) -> Result<Exit, CommandError> {
    let errors = diagnostics.iter().filter(|one| one.severity() == Severity::Error);
    let (mut count, mut signature) = (0, false);
    for error in errors {
        count += 1;
        signature |= error.code() == "item::signature";
    }
    if report.format() == Format::Json {
        let warnings = diagnostics.iter().filter(|one| one.severity() == Severity::Warning).count();
        let summary = CheckSummary { errors: count, warnings, files: sources.iter().count(), directives: 1 };
        let (diagnostics, omitted) = bounded::diagnostic_outputs(&diagnostics, sources);
        report.json(&CheckOutput { diagnostics, omitted, summary })?;
    } else {
        report.diagnostics(&of_own_files(diagnostics, sources), sources);
    }
    Ok(if signature { Exit::Refused } else { Exit::Failed })
}

/// Returns the parent of a new thread. Fails if the parent has ended or never started.
fn parent_of_new_thread(id: &str, spaces: &Spaces) -> Result<Box<ParentThread>, CommandError> {
    let row = ThreadReader::open(&spaces.project)?.find(id)?.row;
    if row.status.has_ended() {
        return Err(CommandError::usage(format!("the thread `{id}` has ended and cannot have children")));
    }
    if !spaces.project.join(layout::snapshot(&row.id)).exists() {
        return Err(CommandError::usage(format!("the thread `{id}` has no `thread.json`: it never started")));
    }
    let found = Threads::open(&spaces.project)?.parent(&row.id)?;
    found
        .map(Box::new)
        .ok_or_else(|| CommandError::failed(format!("the thread `{id}` never started: it has no transcript")))
}

/// Returns the start that `--resume` requests: a recovery, a resume or a fork, depending on the state of the thread.
pub fn select_resume(
    id: &str,
    message: Option<String>,
    turn: Option<u64>,
    spaces: &Spaces,
) -> Result<ThreadStart, CommandError> {
    let reader = ThreadReader::open(&spaces.project)?;
    // A turn number counts the turns of the named thread. Without a number, the last thread of the chain is resumed.
    let row = if turn.is_some() { reader.find(id)?.row } else { reader.last_of_chain(id)?.row };
    let message = message.filter(|message| !message.is_empty());
    if message.is_some() {
        accepts_messages(&row)?;
    }
    if let (Some(turn), Some(message)) = (turn, &message) {
        return Ok(ThreadStart::Fork { thread: row.id, turn, message: message.clone() });
    }
    let over = match row.status {
        Status::Suspended | Status::Idle => false,
        // The thread ended for a handoff, but the new thread was not started: recovery starts it.
        Status::Continued => message.is_some(),
        Status::Created | Status::Running | Status::Completed | Status::Error | Status::Cancelled | Status::Killed => {
            row.status.has_ended()
        }
    };
    match (over, message) {
        (false, message) => {
            let messages = message.map(|text| ControlMessage::Steer { text }).into_iter().collect();
            Ok(ThreadStart::Recover { thread: row.id, messages })
        }
        (true, Some(message)) => Ok(ThreadStart::Resume { thread: row.id, message }),
        (true, None) => {
            let named = reader.find(id)?.row.id;
            let via = if named == row.id { String::new() } else { format!(", which continues `{named}`,") };
            let over = format!("the thread `{}`{via} has ended: {}", row.id, row.status.as_str());
            Err(CommandError::usage(over).with_help("add a message with `--message TEXT`"))
        }
    }
}

/// Resolves the name of a model for a resumed thread, by compiling the thread's directive with this model.
fn resumed_model(start: &ThreadStart, name: &str, spaces: &Spaces) -> Result<PlannedModel, CommandError> {
    let thread = match start {
        ThreadStart::Resume { thread, .. } | ThreadStart::Fork { thread, .. } => thread,
        ThreadStart::Fresh { .. } | ThreadStart::Recover { .. } | ThreadStart::Handoff { .. } => {
            return Err(CommandError::usage(
                "`--model` applies only to a finished thread: an unfinished thread keeps its model",
            )
            .with_help(
                "end the thread with `rye threads cancel`, then use `rye run --resume` with `--model` and `--message`",
            ));
        }
    };
    let unknown = || CommandError::failed(format!("the thread `{thread}` never started: it has no transcript"));
    let recorded = Threads::open(&spaces.project)?.parent(thread)?.ok_or_else(unknown)?;
    let plan = recorded.plan();
    let world = spaces.open()?;
    let mut request = CompileRequest::new(plan.directive.clone()).with_inputs(plan.interface.values.clone());
    request.model = ModelOverride::of_user(Some(name.to_owned()));
    let checked = compile(&world, &request);
    let first = checked.diagnostics.iter().find(|one| one.is_error()).map(Diagnostic::message);
    let compilation = checked.value.ok_or_else(|| {
        let why = first.unwrap_or_default();
        CommandError::failed(format!("`{}` does not compile with the model `{name}`: {why}", plan.directive))
    })?;
    Ok(compilation.plan.model)
}

/// Converts a storage error. Damaged data results in the exit code of an invalid signature.
fn storage_failure(error: StoreError) -> CommandError {
    if matches!(error, StoreError::Damaged { .. } | StoreError::Altered { .. }) {
        let help = "run `rye threads verify` for the details; restore the files, or start a new thread";
        return CommandError { exit: Exit::Refused, ..CommandError::failed(error.to_string()) }.with_help(help);
    }
    error.into()
}

/// Converts the reason why the images of a message cannot be sent. A message with too many images is a usage error.
fn image_failure(refused: &ImageNotAccepted) -> CommandError {
    let message = refused.to_string();
    match refused {
        ImageNotAccepted::NoImages { .. } | ImageNotAccepted::MediaType { .. } => {
            CommandError::failed(message).with_help("use `--model` to select a model that supports the image")
        }
        ImageNotAccepted::TooMany { .. } | ImageNotAccepted::TooLarge => CommandError::usage(message).with_help(
            "send the other images in a later message: `rye run --resume THREAD --message TEXT --image FILE`",
        ),
        ImageNotAccepted::Unfinished { thread } => CommandError::failed(message)
            .with_help(format!("resume the thread with the images after its end: `rye run --resume {thread}`")),
    }
}

impl From<DriveError> for CommandError {
    fn from(error: DriveError) -> Self {
        if let DriveError::Untrusted { .. } = error {
            let refused = Self { exit: Exit::Refused, ..Self::failed(error.to_string()) };
            return refused.with_help("run `rye trust --list` for the details, `rye trust` to trust the current files");
        }
        if let DriveError::Refused { reason } = error {
            return Self { exit: Exit::Refused, ..Self::failed(reason) };
        }
        if let DriveError::Unverified { thread, .. } = &error {
            let help = format!(
                "inspect the thread with `rye threads show {thread}`; accept the transcript with `--trust-record`"
            );
            return Self { exit: Exit::Refused, ..Self::failed(error.to_string()) }.with_help(help);
        }
        if let DriveError::Store(error) = error {
            return storage_failure(error);
        }
        if let DriveError::Changed { .. } = error {
            let refused = Self { exit: Exit::Refused, ..Self::failed(error.to_string()) };
            return refused.with_help("start a new thread with `rye run`, which compiles the current files");
        }
        Self::failed(error.to_string())
    }
}

impl From<EngineError> for CommandError {
    fn from(error: EngineError) -> Self {
        if let EngineError::Drive(error) = error {
            return error.into();
        }
        if let EngineError::Store(error) = error {
            return storage_failure(error);
        }
        if let EngineError::AncestorStopped { thread, .. } = &error {
            let help = format!("end the thread with `rye threads kill {thread}`; resume the ancestor with a message");
            return Self::failed(error.to_string()).with_help(help);
        }
        if let EngineError::NeverStarted { .. } = &error {
            return Self::failed(error.to_string()).with_help("start a new thread with `rye run`");
        }
        if let EngineError::Images(refused) = error {
            return image_failure(&refused);
        }
        let exit = if matches!(error, EngineError::NotReserved { .. }) { Exit::Limit } else { Exit::Failed };
        Self { exit, ..Self::failed(error.to_string()) }
    }
}
