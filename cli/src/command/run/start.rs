//! Runs a new, recovered, resumed, forked or handed-off thread to its end. Used by `rye run`, and by the commands of
//! `rye threads` that start a thread.

use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rye_compiler::approvals::HeadlessPolicy;
use rye_compiler::compile::Compilation;
use rye_compiler::plan::{PlanMode, PlannedModel};
use rye_compiler::report::lock::Lock;
use rye_compiler::world::World;
use rye_engine::control::ControlSender;
use rye_engine::engine::ParentThread;
use rye_engine::engine::{ApprovalPolicy, Engine, EngineError, StartOptions, ThreadHandle, UserMessage};
use rye_engine::event::{ChatMode, ControlMessage, Event};
use rye_engine::image::{ImageNotAccepted, ValidatedImage};
use rye_engine::live::EventStream;
use rye_engine::process::start_session;
use rye_engine::session_tree::session_rows;
use rye_engine::thread_id::ThreadId;
use rye_engine::threads::held_messages;
use tokio::runtime::Handle;

use super::ask::{self, ThreadGrant};
use super::effective_settings::EffectiveSettings;
use super::renderer::{Renderer, RendererMessages, RendererSender};
use super::resumed_limits::ResumedLimits;
use super::{detach, limit_hint, locked, resume_notice, sandbox, watch};
use crate::CommandError;
use crate::command::chat::client_approver::ClientApprover;
use crate::command::chat::leaving::BackgroundChoice;
use crate::command::chat::raw_mode::restore_terminal;
use crate::command::chat::recap::Recap;
use crate::command::chat::replan::{SentMode, SentPlan};
use crate::command::chat::requests::RequestHandler;
use crate::command::chat::session::{ChatInput, SessionInput};
use crate::command::chat::status::SessionStatus;
use crate::command::chat::terminal::{TerminalSession, run_terminal};
use crate::command::chat::{ChatFace, FaceInput, approvals};
use crate::exit::Exit;
use crate::options::Format;
use crate::report::{Printer, printable};
use crate::runtime;
use crate::workspace::Spaces;

/// The way in which a command starts a thread.
pub enum ThreadStart {
    Fresh {
        compilation: Box<Compilation>,
        parent: Option<Box<ParentThread>>,
    },
    /// Recovers a thread: an interrupted or suspended thread, the thread of a closed session, or a thread whose
    /// continuation was not started. The recovered thread handles `messages` before anything else.
    Recover {
        thread: ThreadId,
        messages: Vec<ControlMessage>,
    },
    /// Resumes a finished thread with a message.
    Resume {
        thread: ThreadId,
        message: String,
    },
    /// Forks a thread at the end of a turn.
    Fork {
        thread: ThreadId,
        turn: u64,
        message: String,
    },
    /// Continues a finished thread in a new thread that starts with the last messages only.
    Handoff {
        thread: ThreadId,
    },
}

impl ThreadStart {
    /// Returns the origins of the limits, by name of the limit; empty for a thread that is recovered.
    fn limit_origins(&self, limits: Option<&ResumedLimits>) -> Vec<(String, String)> {
        match self {
            Self::Fresh { compilation, .. } => limit_hint::limit_origins(compilation),
            Self::Resume { thread, .. } | Self::Fork { thread, .. } => {
                limit_hint::resumed_limit_origins(thread, limits.map_or(&[], |limits| limits.given.as_slice()))
            }
            Self::Recover { .. } | Self::Handoff { .. } => Vec::new(),
        }
    }

    /// Returns the thread that is recovered, resumed, forked or handed off; `None` for a new thread. The transcript of
    /// the returned thread determines the permissions.
    pub fn existing_thread(&self) -> Option<&ThreadId> {
        match self {
            Self::Fresh { .. } => None,
            Self::Recover { thread, .. }
            | Self::Resume { thread, .. }
            | Self::Fork { thread, .. }
            | Self::Handoff { thread } => Some(thread),
        }
    }

    /// Returns the number of runtime workers. A new thread that cannot start other threads gets the workers for one
    /// thread. Any other run gets the workers for several threads, because an existing thread may already have
    /// children.
    fn worker_count(&self) -> usize {
        match self {
            Self::Fresh { compilation, .. } if !compilation.plan.can_start_threads() => runtime::WORKERS_FOR_ONE_THREAD,
            Self::Fresh { .. }
            | Self::Recover { .. }
            | Self::Resume { .. }
            | Self::Fork { .. }
            | Self::Handoff { .. } => runtime::WORKERS_FOR_SEVERAL_THREADS,
        }
    }
}

/// Options of a run.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "the options are independent of each other")]
pub struct RunOptions<'a> {
    /// True to print every event.
    pub events: bool,
    pub script: Option<&'a Path>,
    /// True in the background process that `--detach` starts.
    pub detached: bool,
    /// True to print nothing during the run. `rye threads cancel` and `kill` set it: they resume a thread only to end
    /// it.
    pub silent: bool,
    /// Policy for calls that need approval when there is no terminal. If it is `None`, the policy of the resumed thread
    /// applies, else `unattended_default`, else the policy of the settings.
    pub unattended: Option<HeadlessPolicy>,
    /// The headless policy if neither the command nor the resumed thread sets a policy; `None` for the policy of the
    /// settings.
    pub unattended_default: Option<HeadlessPolicy>,
    /// A capability that the user has approved for the rest of a thread; `None` if there is none.
    pub given: Option<&'a ThreadGrant>,
    /// True to accept transcripts that no key of the user signed.
    pub trust_record: bool,
    /// Images of the first message.
    pub images: &'a [ValidatedImage],
    /// The lock file with which the plan of every thread must agree; `None` if plans are not compared with a lock file.
    pub lock: Option<&'a Lock>,
    /// Model of a resumed thread; `None` to keep the thread's own model.
    pub model: Option<&'a PlannedModel>,
    /// Limits of a resumed thread; `None` to keep the thread's own limits.
    pub limits: Option<&'a ResumedLimits>,
    /// True to complete a new thread although required outputs are missing. A resumed thread keeps its recorded value.
    pub allow_missing_outputs: bool,
    /// The user interface of a chat; `None` for a run.
    pub chat: Option<&'a ChatFace>,
    /// The mode in which a new chat starts.
    pub mode: ChatMode,
}

/// Runs a thread to its end, with all threads that it starts.
pub fn run_to_end(
    start: ThreadStart,
    how: RunOptions<'_>,
    spaces: &Spaces,
    report: &Printer,
) -> Result<Exit, CommandError> {
    // Open the world once: the settings are read from it several times.
    let world = spaces.open()?;
    sandbox::apply_run_settings(&world, spaces)?;
    let mut options = spaces.engine_options(ApprovalPolicy::Deny)?;
    let policy = HeadlessPolicy::from_settings(&world);
    let kept = EffectiveSettings::merge(&start, how, policy, &options, spaces)?;
    if let Some(providers) = kept.script_providers(how)? {
        options.providers = Arc::new(providers);
    }
    options.settings = kept.settings.clone();
    // A background process cannot ask at the terminal.
    let format = if how.detached { Format::Json } else { report.format() };
    if how.detached {
        start_session()?;
    }
    let unattended = kept.settings.unattended.unwrap_or(policy);
    if let ThreadStart::Fresh { compilation, .. } = &start
        && !ask::has_terminal(format)
        && !asks_client(how, &kept, format)
        && !how.silent
        && let Some(text) = ask::headless_warning(&compilation.approvals_required, unattended)
    {
        report.note(&printable(&text));
    }
    let limits = start.limit_origins(how.limits);
    let refused = how.lock.or(kept.lock.as_ref()).map(|lock| locked::check_against_lock(&mut options, lock));
    let (sender, messages) = RendererSender::channel();
    let (answer, typed) = approvals::answer_channel();
    let lines = how.chat.map(|face| face.lines().map_or(typed, |lines| lines.answer_reader()));
    options.approvals = ask::approval_handler(format, spaces, unattended, how.given.cloned(), sender.clone(), lines);
    if asks_client(how, &kept, format)
        && let Some(lines) = how.chat.and_then(ChatFace::lines)
    {
        options.approvals = ClientApprover::policy(lines, options.approvals);
    }
    let runtime = runtime::start_runtime(start.worker_count())?;
    let ended = runtime.block_on(async {
        let engine = Engine::open(&spaces.project, options)?;
        if how.trust_record {
            engine.accept_unverified();
        }
        print_resumed(&engine, &start, how, (&kept, unattended, format), &world, report).await?;
        if let Some(why) = engine.signer().fallback_reason().filter(|_| !how.detached && !how.silent) {
            report.note(&format!("{why}: using a temporary key; create a permanent key with `rye keys generate`"));
        }
        let reopened = start.existing_thread().filter(|_| how.chat.is_some());
        let past = reopened.map(|thread| PastSession::read(&engine, thread)).unwrap_or_default();
        let is_chat = start.existing_thread().is_some_and(|thread| is_chat(&engine, thread));
        let Some((mut handle, signals)) = start_unless_stopped(&engine, start, how, report).await? else {
            return Ok(Exit::Cancelled);
        };
        if is_chat && how.chat.is_none() {
            // Only the interface of a chat sends further prompts.
            handle.send(ControlMessage::Close);
        }
        note_script(&kept, how, format, report);
        let channel = (sender, messages);
        let control = handle.control();
        let requests = || request_handler(&control, &engine, spaces, how);
        let keys = how.chat.and_then(ChatFace::keys);
        if keys.is_none() {
            print_past_session(&past, how, report);
        }
        let terminal = keys.map(|keys| TerminalSession {
            requests: Arc::new(requests()),
            thread: handle.thread_id.clone(),
            answers: answer,
            status: past
                .status
                .unwrap_or_else(|| session_status(&engine, &handle.thread_id, &[]))
                .scripted(kept.settings.script.is_some()),
            unsent: past.unsent,
            recap: past.recap,
            events: how.events,
            keys,
        });
        let live = (handle.live.take(), channel, &engine);
        let screen = start_renderer(how, terminal, (spaces, report), live, runtime.handle());
        if how.detached {
            let announcement = detach::format_announcement(&handle.thread_id);
            // The parent process may be gone; the thread runs anyway.
            writeln!(std::io::stdout().lock(), "{announcement}").ok();
        }
        let input = how.chat.map(|face| chat_input(face, requests(), format));
        let watched = (how.detached, input, background_choice(how));
        let ended = watch::wait_until_end(&engine, handle, screen?, signals, watched, report).await;
        if let Some(text) = ended.limit.filter(|_| !how.silent && !how.detached) {
            report.note(&printable(&limit_hint::limit_hint(&text, &limits, ended.is_handed_over)));
        }
        engine.wait_programs_ended().await;
        engine.remove_owner_file();
        Ok::<Exit, CommandError>(ended.exit)
    });
    restore_terminal();
    // Do not wait for blocked output: the reader may never read the rest.
    runtime.shutdown_background();
    match refused.and_then(|refused| refused.take()) {
        Some(failure) => Err(failure),
        None => ended,
    }
}

/// Verifies a thread that is resumed, and prints the permissions and the settings that the thread keeps.
async fn print_resumed(
    engine: &Engine,
    start: &ThreadStart,
    how: RunOptions<'_>,
    (kept, unattended, format): (&EffectiveSettings, HeadlessPolicy, Format),
    world: &dyn World,
    report: &Printer,
) -> Result<(), CommandError> {
    let Some(thread) = start.existing_thread().filter(|_| !how.silent) else { return Ok(()) };
    let recorded = resume_notice::verify_transcript(engine, thread, ask::has_terminal(format)).await?;
    let Some(recorded) = recorded.filter(|_| !how.detached) else { return Ok(()) };
    let is_answered = ask::has_terminal(format) || asks_client(how, kept, format);
    let alone = (!is_answered).then_some(unattended);
    let text = match alone {
        None if how.chat.is_some() => resume_notice::format_session(&recorded),
        None | Some(_) => resume_notice::format_permissions(&recorded, world, alone),
    };
    report.note(&printable(&text));
    if let Some(text) = kept.describe() {
        report.note(&printable(&text));
    }
    Ok(())
}

/// Returns true if the client of a chat in JSON answers approval requests while its input is open.
fn asks_client(how: RunOptions<'_>, kept: &EffectiveSettings, format: Format) -> bool {
    format == Format::Json && kept.settings.unattended.is_none() && how.chat.and_then(ChatFace::lines).is_some()
}

/// Prints a note if a script replaces the model of a chat. JSON output gets no note.
fn note_script(kept: &EffectiveSettings, how: RunOptions<'_>, format: Format, report: &Printer) {
    let is_shown = how.chat.is_some() && format == Format::Human;
    if let Some(script) = kept.settings.script.as_deref().filter(|_| is_shown) {
        let text = format!("the script `{script}` replaces the model: no model is called, and costs are simulated");
        report.note(&printable(&text));
    }
}

fn request_handler(control: &ControlSender, engine: &Engine, spaces: &Spaces, how: RunOptions<'_>) -> RequestHandler {
    let next = how.chat.map(|face| face.next.clone());
    let background = how.chat.filter(|face| face.has_terminal()).map(|face| face.background.clone());
    let (control, engine, spaces) = (control.clone(), engine.clone(), spaces.clone());
    RequestHandler {
        control,
        engine,
        spaces,
        next,
        background,
        answered: Mutex::default(),
        sent_plan: SentPlan::default(),
        sent_mode: SentMode::default(),
    }
}

/// The parts of a session's transcript that the chat shows when the session is opened again.
#[derive(Debug, Default)]
struct PastSession {
    /// The status of a session that is opened again; `None` for a new session.
    status: Option<SessionStatus>,
    /// Messages that were not sent when the session was closed.
    unsent: Vec<String>,
    recap: Option<Recap>,
}

impl PastSession {
    /// Reads the past session from the transcript that was verified for the recovery. An unreadable transcript counts
    /// as empty, because the recovery reports the error.
    fn read(engine: &Engine, thread: &ThreadId) -> Self {
        let of = |events: &[Event]| Self {
            status: Some(session_status(engine, thread, events)),
            unsent: held_messages(events),
            recap: Recap::of_conversation(&engine.threads(), events),
        };
        let inspected = engine.read_inspected(thread, of);
        inspected.unwrap_or_else(|| of(&engine.threads().transcript(thread).unwrap_or_default()))
    }
}

/// Prints the messages of a reopened session that were not sent. If a user types at a terminal, first prints the last
/// prompt and its reply. Used for a chat without an editor.
fn print_past_session(past: &PastSession, how: RunOptions<'_>, report: &Printer) {
    if how.detached || how.silent {
        return;
    }
    if let Some(recap) = past.recap.as_ref().filter(|_| how.chat.is_some_and(ChatFace::has_terminal)) {
        report.note(&printable(&format!("prompt {}: {}\n{}", recap.number, recap.prompt, recap.reply)));
        if let Some(text) = recap.note() {
            report.note(&text);
        }
    }
    for text in &past.unsent {
        report.note(&printable(&format!("not sent before the session ended: {text}")));
    }
}

/// Starts the renderer of a run, or the terminal of a chat.
fn start_renderer(
    how: RunOptions<'_>,
    terminal: Option<TerminalSession>,
    (spaces, report): (&Spaces, &Printer),
    (live, channel, engine): (EventStream, (RendererSender, RendererMessages), &Engine),
    runtime: &Handle,
) -> std::io::Result<Renderer> {
    if how.detached || how.silent {
        return Renderer::null(live, channel, runtime);
    }
    if let Some(session) = terminal {
        let (sender, messages) = channel;
        let report = report.clone();
        let render = async move || run_terminal(session, report, live, messages).await;
        return Renderer::start_with(render, sender, runtime);
    }
    Renderer::start(report, (how.events, how.chat.is_some()), (spaces, engine), live, channel, runtime)
}

/// Returns the user's choice to continue in the background after the session. In a run without a chat, the user cannot
/// make this choice, so it stays unset.
fn background_choice(how: RunOptions<'_>) -> BackgroundChoice {
    how.chat.map(|face| face.background.clone()).unwrap_or_default()
}

/// Returns the source of a chat's input: the terminal, or the lines of stdin.
fn chat_input(face: &ChatFace, requests: RequestHandler, format: Format) -> ChatInput {
    match &face.input {
        FaceInput::Terminal(_) => ChatInput::Terminal { control: requests.control, stops: 0 },
        FaceInput::Lines(lines) => {
            ChatInput::Lines(Box::new(SessionInput::new(Arc::clone(lines), requests, format == Format::Json)))
        }
    }
}

/// Returns the status of a session. If its plan cannot be read, the status is empty, because the session itself reports
/// the error.
fn session_status(engine: &Engine, thread: &ThreadId, recorded: &[Event]) -> SessionStatus {
    let threads = engine.threads();
    let parent = threads.parent(thread).ok().flatten();
    let rows = session_rows(&threads, thread).unwrap_or_default();
    let cost_before = rows.iter().filter(|row| row.id != *thread).map(|row| &row.cost).sum();
    parent.map(|parent| SessionStatus::new(parent.plan(), recorded, cost_before)).unwrap_or_default()
}

/// Returns true if the plan of a thread is a chat.
fn is_chat(engine: &Engine, thread: &ThreadId) -> bool {
    let parent = engine.threads().parent(thread).ok().flatten();
    parent.is_some_and(|parent| parent.plan().mode == PlanMode::Chat)
}

/// Installs the handlers of the stop signals, then starts the thread. Returns `None` if a signal arrives before the
/// thread has started. The thread can then be resumed if its transcript already exists.
async fn start_unless_stopped(
    engine: &Engine,
    start: ThreadStart,
    how: RunOptions<'_>,
    report: &Printer,
) -> Result<Option<(ThreadHandle, Option<watch::StopSignals>)>, CommandError> {
    let mut signals = watch::StopSignals::install(report);
    let stopped = async {
        match &mut signals {
            Some(signals) => signals.next().await,
            None => std::future::pending().await,
        }
    };
    let started = tokio::select! {
        started = start_thread(engine, start, how) => started?,
        _ = stopped, if !how.detached => return Ok(None),
    };
    Ok(Some((started, signals)))
}

async fn start_thread(engine: &Engine, start: ThreadStart, how: RunOptions<'_>) -> Result<ThreadHandle, EngineError> {
    let (images, allow_missing_outputs, model) = (how.images.to_vec(), how.allow_missing_outputs, how.model.cloned());
    let limits = how.limits.map(|resumed| resumed.limits);
    match start {
        ThreadStart::Fresh { compilation, parent } => {
            let parent = parent.map(|parent| *parent);
            let launch = StartOptions {
                parent,
                images,
                allow_missing_outputs,
                durable: how.detached,
                ..StartOptions::default()
            };
            let handle = engine.start(&compilation, launch).await?;
            if how.mode != ChatMode::default() {
                handle.send(ControlMessage::Mode { mode: how.mode });
            }
            Ok(handle)
        }
        ThreadStart::Recover { thread, .. } | ThreadStart::Handoff { thread } if !images.is_empty() => {
            Err(ImageNotAccepted::Unfinished { thread: thread.to_string() }.into())
        }
        ThreadStart::Recover { thread, messages } => engine.recover_with(&thread, messages).await,
        ThreadStart::Resume { thread, message } => {
            engine.resume(&thread, UserMessage { text: message, images, model, limits }).await
        }
        ThreadStart::Fork { thread, turn, message } => {
            engine.fork(&thread, turn, UserMessage { text: message, images, model, limits }).await
        }
        ThreadStart::Handoff { thread } => engine.hand_off(&thread).await,
    }
}
