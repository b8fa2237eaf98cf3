//! `rye chat`: a session with a directive, in the terminal or with the lines of stdin as its prompts.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use rye_compiler::approvals::HeadlessPolicy;
use rye_compiler::key_bindings::KeyBindings;
use rye_engine::event::ChatMode;
use rye_engine::session_tree::{session_title, stored_sessions};
use rye_engine::store::registry::Liveness;
use rye_engine::thread_id::ThreadId;

use crate::CommandError;
use crate::command::providers::usable::require_usable_model;
use crate::command::run::ask::HeadlessPolicyArg;
use crate::command::run::compile_chat;
use crate::command::run::start::{RunOptions, ThreadStart, run_to_end};
use crate::exit::Exit;
use crate::options::{Format, Global};
use crate::report::Printer;
use crate::run_request::{ChatRequestArgs, RunRequestArgs};
use crate::thread_reader::ThreadReader;
use crate::workspace::Spaces;

pub mod approvals;
mod attach;
pub mod bounds;
mod branches;
pub mod cache_guard;
pub mod client_approver;
mod clipboard_image;
mod closed_sessions;
pub mod commands;
mod compaction;
pub mod context_change;
pub mod editor;
mod export;
mod external_editor;
pub mod help;
pub mod history;
pub mod inquiry;
pub mod json;
pub mod keys;
pub mod leaving;
pub mod lines;
pub mod markdown;
mod markdown_progress;
mod markdown_table;
pub mod next_session;
pub mod overlay;
pub mod raw_mode;
pub mod recap;
pub mod replan;
pub mod requests;
pub mod rewind;
pub mod screen;
pub mod session;
mod session_cost;
pub mod status;
pub mod terminal;
mod unsent_lines;
pub mod word_wrap;

use history::{ChatFolder, Draft};
use leaving::BackgroundChoice;
use lines::{ItemEnd, PromptLines};
use next_session::{NextSession, NextStart};
use raw_mode::KeyReader;

/// The user interface of the sessions of a process.
#[derive(Debug)]
pub struct ChatFace {
    pub input: FaceInput,
    /// The session that the user has chosen to start after the current one.
    pub next: NextSession,
    /// The user's choice, once made, to let the process continue in the background after the session.
    pub background: BackgroundChoice,
}

impl ChatFace {
    /// Returns true if a user types at a terminal.
    pub fn has_terminal(&self) -> bool {
        self.lines().is_none_or(PromptLines::is_terminal)
    }

    /// Returns the keys of the terminal; `None` if the input is lines.
    pub fn keys(&self) -> Option<Arc<KeyReader>> {
        match &self.input {
            FaceInput::Terminal(keys) => Some(Arc::clone(keys)),
            FaceInput::Lines(_) => None,
        }
    }

    /// Returns the lines of stdin; `None` if the input is a terminal with an editor.
    pub fn lines(&self) -> Option<&PromptLines> {
        match &self.input {
            FaceInput::Terminal(_) => None,
            FaceInput::Lines(lines) => Some(lines),
        }
    }
}

/// The source from which a chat reads prompts.
#[derive(Debug)]
pub enum FaceInput {
    /// The terminal with an editor.
    Terminal(Arc<KeyReader>),
    /// Lines of stdin.
    Lines(Arc<PromptLines>),
}

/// The directive of a session if the command line names no directive.
pub const DEFAULT_DIRECTIVE: &str = "rye/agent/chat";

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct ChatArgs {
    /// Id of the directive (default: `rye/agent/chat`)
    #[arg(value_name = "ID", conflicts_with_all = ["resume", "continue"])]
    directive: Option<String>,
    #[command(flatten)]
    call: RunRequestArgs,
    #[command(flatten)]
    session: ChatRequestArgs,
    /// Open the newest session again
    #[arg(
        short,
        long,
        conflicts_with_all = ["resume", "input", "inputs", "limit", "model", "session_limit", "append_system"],
    )]
    r#continue: bool,
    /// Open the session of this thread again
    #[arg(
        long,
        value_name = "THREAD",
        conflicts_with_all = ["input", "inputs", "limit", "model", "session_limit", "append_system"],
    )]
    resume: Option<String>,
    /// Watch a session that another process runs, and send it lines (default: the newest running session)
    #[arg(
        long,
        value_name = "THREAD",
        num_args = 0..=1,
        conflicts_with_all = [
            "directive", "continue", "resume", "input", "inputs", "limit", "model", "script", "session_limit",
            "append_system",
        ],
    )]
    #[expect(clippy::option_option, reason = "the option may have no value")]
    attach: Option<Option<String>>,
    /// Replace every model with this script
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Accept a transcript that none of your keys signed; a damaged one is still refused
    #[arg(long)]
    trust_record: bool,
    /// Policy for calls that need approval when there is no terminal (default: `approvals.headless` of the settings,
    /// else `allow`)
    #[arg(long, value_enum, value_name = "POLICY", env = "RYE_UNATTENDED", hide_env_values = true)]
    unattended: Option<HeadlessPolicyArg>,
    /// Print every event
    #[arg(long)]
    events: bool,
    /// Read lines and print lines, without an editor and without repainting
    #[arg(long)]
    plain: bool,
    /// End each prompt on stdin with a NUL byte instead of a line end, so that it can have several lines
    #[arg(short = '0', long)]
    null: bool,
}

pub fn run(args: &ChatArgs, global: &Global, report: &Printer) -> Result<Exit, CommandError> {
    let spaces = Spaces::find(global.project.as_deref())?;
    spaces.print_project(report);
    if args.call.reads_stdin() {
        return Err(CommandError::usage("`--inputs -` is not allowed here: the lines of stdin are the prompts"));
    }
    if let Some(thread) = &args.attach {
        return attach::attach(thread.as_deref(), &ThreadReader::open(&spaces.project)?, report);
    }
    let start = if let Some(start) = session_to_open(args, &spaces, report)? {
        start
    } else {
        let id = args.directive.as_deref().unwrap_or(DEFAULT_DIRECTIVE);
        let is_scripted = args.script.is_some();
        match compile_chat(id, (&args.call, &args.session), is_scripted, &spaces, report)? {
            Ok(compilation) => {
                if !is_scripted {
                    require_usable_model(&compilation.plan.model, &spaces)?;
                }
                ThreadStart::Fresh { compilation, parent: None }
            }
            Err(errors) => return Ok(errors.exit),
        }
    };
    let end_of_item = if args.null { ItemEnd::Null } else { ItemEnd::Line };
    let input = if !args.plain && !args.null && raw_mode::can_use_screen(report) {
        FaceInput::Terminal(Arc::new(KeyReader::new(KeyBindings::read(&spaces.open()?))))
    } else {
        FaceInput::Lines(Arc::new(PromptLines::read_stdin(end_of_item)))
    };
    let face = ChatFace { input, next: NextSession::default(), background: BackgroundChoice::default() };
    let how = RunOptions {
        trust_record: args.trust_record,
        events: args.events || report.format() == Format::Json,
        script: args.script.as_deref(),
        unattended: args.unattended.map(HeadlessPolicy::from),
        chat: Some(&face),
        ..RunOptions::default()
    };
    let mut exit = run_to_end(start, how, &spaces, report)?;
    while let Some(next) = face.next.take() {
        let (start, mode) = match next {
            NextStart::New(compilation, mode) => (ThreadStart::Fresh { compilation, parent: None }, mode),
            NextStart::Resume(thread) => (ThreadStart::Recover { thread, messages: Vec::new() }, ChatMode::default()),
        };
        exit = run_to_end(start, RunOptions { mode, ..how }, &spaces, report)?;
    }
    Ok(exit)
}

/// Returns the session that `--resume` names, or, with `--continue`, the newest session that no running process owns.
/// `None` without these options.
fn session_to_open(args: &ChatArgs, spaces: &Spaces, report: &Printer) -> Result<Option<ThreadStart>, CommandError> {
    if args.resume.is_none() && !args.r#continue {
        return Ok(None);
    }
    let reader = ThreadReader::open(&spaces.project)?;
    let row = if let Some(reference) = &args.resume {
        let last = reader.last_of_chain(reference)?;
        if last.liveness == Liveness::Alive {
            let pid = attach::owner_pid(&last, &reader)?;
            let running = format!("thread `{}` is owned by a running process{pid}", last.row.id);
            let help = format!("to watch the chat and send messages to it: `rye chat --attach {}`", last.row.id);
            return Err(CommandError::failed(running).with_help(help));
        }
        if let Some(note) = note_on_earlier_thread(reference, &last.row.id, &reader)? {
            report.note(&note);
        }
        last.row
    } else {
        let mut closed = stored_sessions(&reader)?;
        if let Some(open) = closed.first().filter(|session| session.last.liveness == Liveness::Alive) {
            let (id, pid) = (&open.last.row.id, attach::owner_pid(&open.last, &reader)?);
            report.note(&format!(
                "the newest session `{id}` is owned by a running process{pid}: `rye chat --attach {id}` watches it"
            ));
        }
        closed.retain(|session| session.last.liveness != Liveness::Alive);
        // Prefer a session with a prompt or with a text in its editor: any other session holds no work of the user.
        let used = closed.iter().position(|session| {
            !matches!(session_title(&reader, &session.last.row.id), Ok(None)) || has_draft(spaces, &session.last.row.id)
        });
        let closed = closed.into_iter().nth(used.unwrap_or(0));
        let none = || CommandError::usage("this project has no closed session").with_help("start one: `rye chat`");
        closed.ok_or_else(none)?.last.row
    };
    if row.status.has_ended() && !row.status.is_parked() {
        let over = format!("the thread `{}` has ended: {}", row.id, row.status.as_str());
        return Err(CommandError::usage(over).with_help("start a new session: `rye chat`"));
    }
    Ok(Some(ThreadStart::Recover { thread: row.id, messages: Vec::new() }))
}

fn has_draft(spaces: &Spaces, thread: &ThreadId) -> bool {
    let folder = ChatFolder::of_project(spaces.user_root().as_deref(), &spaces.project);
    Draft::of_session(folder, thread.as_str()).read().is_some_and(|text| !text.trim().is_empty())
}

/// Returns a note if `reference` names an earlier thread of a session instead of its last thread `last`; otherwise
/// `None`.
fn note_on_earlier_thread(
    reference: &str,
    last: &ThreadId,
    reader: &ThreadReader,
) -> Result<Option<String>, CommandError> {
    let named = reader.find(reference)?.row.id;
    Ok((named != *last).then(|| {
        format!(
            "`{named}` is an earlier thread of the session, which continues in `{last}`; `/fork {named}` goes back to \
             its end"
        )
    }))
}
