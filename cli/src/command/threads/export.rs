//! `rye threads export THREAD --script`: exports a thread and its children as a script. `rye run ID --script FILE`
//! replays the script and reports the first difference.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use rye_compiler::plan::PlanMode;
use rye_engine::event::{EventBody, ThreadHead};
use rye_engine::provider::environment::ProviderEnvironment;
use rye_engine::provider::scripted::{Script, ScriptStep};
use rye_engine::replay::script_steps;
use rye_engine::rooted_dir::write_user_file;
use rye_engine::secrets::{add_secrets, mask_value};
use rye_engine::thread::Status;
use rye_engine::thread_id::ThreadId;
use rye_engine::threads::Threads;

use crate::CommandError;
use crate::exit::Exit;
use crate::present::format_count;
use crate::report::{Printer, escape_json_controls};
use crate::thread_reader::ThreadReader;
use crate::thread_reader::reference::ThreadArg;
use crate::workspace::Spaces;

/// Maximum number of threads that one script replays: the exported thread and its descendants.
const MAX_THREADS: usize = 1_000;

#[derive(Debug, Args)]
pub struct ExportArgs {
    #[command(flatten)]
    thread: ThreadArg,
    /// Export a script: every reply and failure, with the expected contents of each request
    #[arg(long, required = true)]
    script: bool,
    /// Omit the expected contents, so that the script accepts any request
    #[arg(long)]
    loose: bool,
    /// Write to this file instead of stdout
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn run(args: &ExportArgs, reader: &ThreadReader, spaces: &Spaces, report: &Printer) -> Result<Exit, CommandError> {
    let record = reader.load(args.thread.select(reader)?.as_str())?;
    let threads = Threads::open(&spaces.project)?;
    let mut notes = |note: String| report.note(&note);
    let (script, exported) = collect_script(&threads, &record.entry.row.id, !args.loose, &mut notes)?;
    let mut value = serde_json::to_value(&script).map_err(std::io::Error::other)?;
    let environment = ProviderEnvironment::read(spaces.user.as_deref())?;
    add_secrets(environment.file_variables());
    // Typed and generated text may contain keys as well.
    mask_value(&mut value);
    let text = serde_json::to_string_pretty(&value).map_err(std::io::Error::other)?;
    let text = escape_json_controls(&text);
    match &args.output {
        None => report.line(&text)?,
        Some(file) => {
            write_user_file(file, format!("{text}\n").as_bytes())
                .map_err(|error| CommandError::failed(format!("`{}` cannot be written: {error}", file.display())))?;
            report.note(&format!("{} in `{}`", format_count(exported as u64, "thread"), file.display()));
        }
    }
    Ok(Exit::Success)
}

/// Returns the script that replays a thread and its descendants, and the number of these threads. `note` receives
/// remarks for the user.
///
/// # Errors
/// A transcript cannot be read, or there are too many threads.
pub fn collect_script(
    threads: &Threads,
    root: &ThreadId,
    exact: bool,
    note: &mut dyn FnMut(String),
) -> Result<(Script, usize), CommandError> {
    let mut script = Script::default();
    let mut exported = 0;
    // Children that run the same directive share a script if their steps are equal. A child with other steps gets a
    // script of its own.
    let mut waiting = vec![(root.clone(), None::<u64>)];
    while let Some((id, spawn)) = waiting.pop() {
        exported += 1;
        if exported > MAX_THREADS {
            let reason = format!("the thread and its descendants are more than {MAX_THREADS} threads");
            return Err(CommandError::failed(format!("the thread cannot be exported: {reason}")));
        }
        let ExportedThread { directive, steps, children, chain } = export_thread(threads, &id, exact)?;
        if let Some(chain) = chain.filter(|_| exact) {
            note(format!(
                "`{id}` {chain}: the script holds the requests of one thread, so its replay ends with `script_mismatch`; \
                 `rye threads chain {id}` lists the other threads"
            ));
        }
        waiting.extend(children.into_iter().rev().map(|(spawn, child)| (child, Some(spawn))));
        match spawn {
            None => script.steps = steps,
            Some(spawn) => add_child_steps(&mut script, &directive, spawn, steps, note),
        }
    }
    Ok((script, exported))
}

/// The part of an exported script that replays one thread, read from the thread's transcript.
struct ExportedThread {
    directive: String,
    steps: Vec<ScriptStep>,
    /// Children by spawn number.
    children: BTreeMap<u64, ThreadId>,
    /// The part of a sentence that states that the thread continues another thread or was handed over to one. `None` if
    /// neither is the case, and for a chat.
    chain: Option<&'static str>,
}

fn export_thread(threads: &Threads, id: &ThreadId, exact: bool) -> Result<ExportedThread, CommandError> {
    let events = threads.transcript(id)?;
    let found = threads.parent(id)?;
    let found =
        found.ok_or_else(|| CommandError::failed(format!("the thread `{id}` never started: it has no transcript")))?;
    let head = ThreadHead::of(&events);
    let directive = head.opened.map(|opened| opened.directive.clone()).unwrap_or_default();
    let is_handed_over =
        events.iter().any(|event| matches!(&event.body, EventBody::Ended(end) if end.status == Status::Continued));
    let chain = match (head.continues, is_handed_over) {
        // A replay of a chat sends the prompts of its user.
        _ if found.plan().mode == PlanMode::Chat => None,
        (Some(_), _) => Some("continues another thread"),
        (None, true) => Some("was handed over to another thread"),
        (None, false) => None,
    };
    // A child that runs a tool calls no model, so the script has no steps for it.
    let is_tool =
        |spawn: u64| events.iter().any(|event| event.body.child_intent(spawn).is_some_and(|child| child.tool));
    let spawned = events.iter().filter_map(|event| {
        let EventBody::ChildSpawned(child) = &event.body else { return None };
        if is_tool(child.spawn) {
            return None;
        }
        Some((child.spawn, ThreadId::parse(&child.thread_id).ok()?))
    });
    let children = spawned.collect();
    Ok(ExportedThread { directive, steps: script_steps(found.plan(), &events, exact), children, chain })
}

fn add_child_steps(
    script: &mut Script,
    directive: &str,
    spawn: u64,
    steps: Vec<ScriptStep>,
    note: &mut dyn FnMut(String),
) {
    match script.threads.get(directive) {
        None => {
            script.threads.insert(directive.to_owned(), steps);
        }
        Some(known) if *known == steps => {}
        Some(_) => {
            let own = format!("{directive}#{spawn}");
            if script.threads.get(&own).is_some_and(|known| *known != steps) {
                note(format!("two children of different parents are named `{own}`: only the first is exported"));
                return;
            }
            script.threads.entry(own).or_insert(steps);
        }
    }
}
