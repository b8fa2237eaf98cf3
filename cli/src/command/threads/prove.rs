//! `rye threads prove THREAD`: verifies that the plan of a thread compiles from its sources, and that the first request
//! of the thread equals the request in the plan, byte for byte. With `--prompts`, also compares each prompt of the
//! session.

use clap::Args;
use rye_compiler::compile::{CompileRequest, SpawnParent, compile};
use rye_compiler::expand::expand;
use rye_compiler::item::Items;
use rye_compiler::model::ModelOverride;
use rye_compiler::plan::{ContextFileRead, Plan, PlanMode, hex};
use rye_compiler::semantics::limits::{LimitName, LimitValue, Limits};
use rye_compiler::world::{ItemKind, MapWorld, Space, World};
use rye_engine::attest::{OpeningCheck, PromptChecker, check_opening};
use rye_engine::event::{AcceptedInput, Opened, ThreadHead};
use rye_engine::session_tree::session_rows;
use rye_engine::store::Disk;
use rye_engine::store::sources::{read_copies, read_copy};
use rye_engine::thread_id::ThreadId;
use rye_engine::threads::Threads;
use rye_grammar::ItemId;
use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::CommandError;
use crate::exit::Exit;
use crate::git::Revision;
use crate::options::Format;
use crate::report::{Printer, printable};
use crate::thread_reader::ThreadReader;
use crate::thread_reader::reference::ThreadArg;
use crate::workspace::Spaces;

#[derive(Debug, Args)]
pub struct ProveArgs {
    #[command(flatten)]
    thread: ThreadArg,
    /// Read the project's files at this git revision
    #[arg(long, value_name = "REV")]
    at: Option<String>,
    /// Also derive each prompt of the session again, in all of its threads, from the typed text, the recorded answers
    /// of the hooks and the files of skills and templates, and compare it with the sent text
    #[arg(long)]
    prompts: bool,
}

/// Output of `rye threads prove THREAD --format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProveOutput {
    pub thread: String,
    pub plan_id: String,
    /// True if the first request matches the stored plan, the sources compile to the same plan, and the compared
    /// prompts match the recorded prompts.
    pub proved: bool,
    /// Bytes of system prompt and first message, if the first request matches the stored plan.
    pub first_request: Option<usize>,
    /// Sentence that names the first part of the first request that differs from the plan (`system prompt`,
    /// `contributors` or `message`), or states that no request was sent; null if the request matches.
    pub differs: Option<String>,
    /// Manifest entries of the plan that have changed, missing files included.
    pub changed: Vec<String>,
    /// True if the sources compile to the same plan. Null if sources have changed and their stored copies are missing
    /// or, with `--at`, are not used.
    pub recompiled: Option<bool>,
    /// Origin of the sources: `files` (current), `kept` (copies stored when the thread started) or `revision`.
    pub sources: String,
    /// The prompts of the session, with `--prompts`.
    pub prompts: Vec<ProvedPrompt>,
}

/// The result of deriving a prompt of a session again and comparing it with the recorded prompt.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProvedPrompt {
    /// The thread that ran the prompt.
    pub thread: String,
    /// Number of the prompt in the session, from 1. Prompts of different branches can have the same number.
    pub prompt: u64,
    /// Bytes of the matching messages: the user message and, for the first prompt of a thread, the system prompt.
    pub bytes: usize,
    /// Differences between the derived messages and the recorded messages; empty if all match.
    pub differs: Vec<String>,
}

pub fn run(args: &ProveArgs, reader: &ThreadReader, spaces: &Spaces, report: &Printer) -> Result<Exit, CommandError> {
    let record = reader.load(args.thread.select(reader)?.as_str())?;
    let ThreadHead { opened: Some(opened), plan_id: Some(plan_id), .. } = ThreadHead::of(&record.events) else {
        return Err(CommandError::failed(format!(
            "the thread `{}` never started: it has no transcript",
            record.entry.row.id
        )));
    };
    if let Some(tool) = opened.tool() {
        let message = format!("`{}` runs the tool `{tool}`, which sends no request", record.entry.row.id);
        let help = |parent: &str| format!("prove the thread that started it instead: `rye threads prove {parent}`");
        let above = opened.parent.as_ref().map(|link| help(link.thread_id.as_str()));
        return Err(CommandError::usage(message).with_help(above.unwrap_or_default()));
    }
    let plan = read_plan(reader, plan_id)?;
    let (first_request, differs) = match check_opening(&plan, &record.events) {
        OpeningCheck::AsPlanned { bytes } => (Some(bytes), None),
        OpeningCheck::Differs { what, at } => {
            (None, Some(format!("the {what} of the first request differs from the plan from byte {at} on")))
        }
        OpeningCheck::NotYet => (None, Some("the thread has sent no request".to_owned())),
    };
    let parent = opened.parent.as_ref().map(|link| parent_bounds(&link.thread_id, spaces)).transpose()?;
    let call = RecordedCall { plan: &plan, plan_id, opened, parent };
    let (changed, recompiled, sources) = if let Some(revision) = &args.at {
        let revision = Revision::read(&spaces.project, revision)?;
        let (changed, recompiled) = call.recompile(&revision.over_spaces(&spaces.open_without_project()?))?;
        (changed, recompiled, "revision")
    } else {
        let (changed, recompiled) = call.recompile(&spaces.open()?)?;
        // If the current files do not lead to the recorded plan, compile the copies that were stored when the thread
        // started. A new file (such as another skill) can change the plan although no recorded source has changed.
        let is_same = changed.is_empty() && recompiled == Some(true);
        let then = if is_same { None } else { call.recompile_copies(reader, spaces)? };
        match then {
            Some(recompiled) if recompiled || !changed.is_empty() => (changed, Some(recompiled), "kept"),
            Some(_) | None => (changed, recompiled, "files"),
        }
    };
    let prompts = if args.prompts { prove_prompts(&record.entry.row.id, args, reader, spaces)? } else { Vec::new() };
    let same_prompts = prompts.iter().all(|prompt| prompt.differs.is_empty());
    let proved = first_request.is_some() && recompiled == Some(true) && same_prompts;
    let (thread, plan_id) = (record.entry.row.id.to_string(), plan_id.to_owned());
    let sources = sources.into();
    let output = ProveOutput { thread, plan_id, proved, first_request, differs, changed, recompiled, sources, prompts };
    match report.format() {
        Format::Json => report.json(&output)?,
        Format::Human | Format::Plain => report.line(printable(&output.to_string()).trim_end())?,
    }
    Ok(if proved { Exit::Success } else { Exit::Failed })
}

/// Reads a stored plan. Fails unless the hash of its bytes is `plan_id`.
fn read_plan(reader: &ThreadReader, plan_id: &str) -> Result<Plan, CommandError> {
    serde_json::from_slice(&reader.object(plan_id)?)
        .map_err(|error| CommandError::failed(format!("the plan of the thread cannot be read: {error}")))
}

/// Derives the prompts of all threads of a session again, oldest first, and compares them with the recorded prompts.
fn prove_prompts(
    thread: &ThreadId,
    args: &ProveArgs,
    reader: &ThreadReader,
    spaces: &Spaces,
) -> Result<Vec<ProvedPrompt>, CommandError> {
    let revision = args.at.as_deref().map(|revision| Revision::read(&spaces.project, revision)).transpose()?;
    let others = spaces.open_without_project()?;
    let current;
    let of_revision;
    let world: &dyn World = if let Some(revision) = &revision {
        of_revision = revision.over_spaces(&others);
        &of_revision
    } else {
        current = spaces.open()?;
        &current
    };
    let expand = |input: &AcceptedInput, typed: &str| expand_again(reader.disk(), world, input, typed);
    let (mut checker, mut proved) = (PromptChecker::default(), Vec::new());
    for row in session_rows(&Threads::open(&spaces.project)?, thread)? {
        let record = reader.load(row.id.as_str())?;
        let Some(plan_id) = ThreadHead::of(&record.events).plan_id else { continue };
        for check in checker.check(&read_plan(reader, plan_id)?, &record.events, &expand) {
            let differs = check
                .differences
                .iter()
                .map(|one| format!("{} differs from byte {} on (event {})", one.what, one.at, one.seq));
            let (thread, differs) = (row.id.to_string(), differs.collect());
            proved.push(ProvedPrompt { thread, prompt: check.prompt, bytes: check.bytes, differs });
        }
    }
    Ok(proved)
}

/// Expands a typed call of a skill or prompt template in the same way as the recorded expansion. Reads the current file
/// if its hash equals the recorded hash, else the stored copy.
fn expand_again(disk: &dyn Disk, now: &dyn World, input: &AcceptedInput, typed: &str) -> Result<String, String> {
    let mut world = MapWorld::with_fallback(now);
    for part in &input.expansions {
        let (Some(kind), Ok(id)) = (ItemKind::from_word(&part.kind), ItemId::parse(&part.item)) else { continue };
        let found = now.candidates(kind, &id).unwrap_or_default();
        if found.first().is_some_and(|file| hex(&Sha256::digest(&file.bytes)) == part.sha256) {
            continue;
        }
        let bytes = read_copy(disk, kind, &part.sha256);
        let bytes =
            bytes.ok_or_else(|| format!("the {} `{id}` has changed and no copy is stored: the text", part.kind))?;
        let file = if kind == ItemKind::Skill { format!("{id}/SKILL.md") } else { format!("{id}.md") };
        let path = found.first().map_or_else(|| format!("{}{file}", kind.folder()), |file| file.path.to_string());
        world.insert(found.first().map_or(Space::Project, |file| file.space), &path, bytes);
    }
    let text = expand(&Items::new(&world), typed).text;
    text.ok_or_else(|| "the call of the skill or template now expands to nothing: the text".to_owned())
}

/// Returns the bounds that a parent sets for its children, from the parent's transcript.
fn parent_bounds(parent: &str, spaces: &Spaces) -> Result<SpawnParent, CommandError> {
    let id = ThreadId::parse(parent).map_err(|invalid| CommandError::failed(invalid.reason))?;
    let found = Threads::open(&spaces.project)?.parent(&id)?;
    let parent =
        found.ok_or_else(|| CommandError::failed(format!("the parent thread `{parent}` has no transcript")))?;
    Ok(parent.bounds())
}

/// The recorded plan of a thread, and the call that started the thread.
struct RecordedCall<'c> {
    plan: &'c Plan,
    plan_id: &'c str,
    opened: &'c Opened,
    parent: Option<SpawnParent>,
}

impl RecordedCall<'_> {
    /// Compiles the stored copies of the sources, and returns true if the result is the recorded plan; `None` if copies
    /// are missing.
    fn recompile_copies(&self, reader: &ThreadReader, spaces: &Spaces) -> Result<Option<bool>, CommandError> {
        let others = spaces.open_without_project()?;
        let mut world = MapWorld::with_fallback(&others);
        read_copies(reader.disk(), self.plan).insert_into(&mut world);
        let (lost, recompiled) = self.recompile(&world)?;
        Ok(recompiled.filter(|_| lost.is_empty()))
    }

    /// Compares the sources of the plan with the files. Returns the changed sources. If no source has changed, the
    /// second value is true if the sources still compile to the same plan; if sources have changed, it is `None`.
    fn recompile(&self, world: &dyn World) -> Result<(Vec<String>, Option<bool>), CommandError> {
        let Self { plan, plan_id, opened, parent } = self;
        let changed = changed_sources(world, plan)?;
        if !changed.is_empty() {
            return Ok((changed, None));
        }
        let inputs = if opened.inputs.is_empty() { plan.interface.values.clone() } else { opened.inputs.clone() };
        let mut bare = CompileRequest::new(plan.directive.clone()).with_inputs(inputs);
        bare.parent.clone_from(parent);
        bare.mode = plan.mode;
        bare.omitted.clone_from(&plan.omitted);
        bare.appended.clone_from(&plan.appended);
        // The transcript does not record the overrides of the call, only the resulting plan. Each combination of
        // overrides that could lead to the recorded plan is tried.
        let limits = Limits::from(plan.limits);
        let limits = LimitName::ALL.map(|name| (name.to_string(), LimitValue::Json(limits.get(name)))).to_vec();
        let requested =
            |provider| ModelOverride { provider, ..ModelOverride::of_user(Some(plan.model.requested.clone())) };
        let same_model = ModelOverride::of_user(Some(format!("{}/{}", plan.model.provider, plan.model.id)));
        let of_provider = requested(Some(plan.model.provider.clone()));
        let models = [ModelOverride::default(), requested(None), of_provider, same_model];
        let calls = models.into_iter().flat_map(|model| {
            let with = CompileRequest { model, ..bare.clone() };
            [with.clone(), CompileRequest { limits: limits.clone(), ..with }]
        });
        let same = calls.into_iter().any(|call| self.compile_to_ids(world, &call).iter().any(|id| id == *plan_id));
        Ok((changed, Some(same)))
    }
}

impl RecordedCall<'_> {
    /// Compiles the request `call`, and returns the ids of the plans with which the recorded thread may have run; empty
    /// if the request does not compile. The first id is the id of the compiled plan. In a chat, `/model` and `/budget`
    /// can change the plan later. For a chat, the second id is therefore the id of the compiled plan with the limits
    /// and the requested model of the recorded plan.
    fn compile_to_ids(&self, world: &dyn World, call: &CompileRequest) -> Vec<String> {
        let Some(made) = compile(world, call).value else { return Vec::new() };
        let mut ids = vec![made.plan_id.clone()];
        if self.plan.mode == PlanMode::Chat {
            let mut kept = made.plan;
            (kept.limits, kept.session_limits) = (self.plan.limits, self.plan.session_limits);
            kept.model.requested.clone_from(&self.plan.model.requested);
            ids.extend(kept.id().ok());
        }
        ids
    }
}

/// Returns the entries of the plan's manifest that differ from the files of this world. An entry for a missing file
/// differs if the file exists now. For a chat, also returns the changed context files.
fn changed_sources(world: &dyn World, plan: &Plan) -> Result<Vec<String>, CommandError> {
    let mut changed = Vec::new();
    for read in &plan.manifest {
        let Ok(id) = ItemId::parse(&read.id) else { continue };
        let found = world.candidates(read.kind, &id).map_err(|error| CommandError::failed(error.to_string()))?;
        let now = match read.space {
            None => found.is_empty(),
            Some(space) => found.iter().any(|located| {
                let hash = hex(&Sha256::digest(&located.bytes));
                located.space == space && Some(hash) == read.sha256
            }),
        };
        if !now {
            let kind: ItemKind = read.kind;
            changed.push(format!("{} {}", kind.as_str(), read.id));
        }
    }
    // Runs read no context files.
    if plan.mode == PlanMode::Chat {
        changed.extend(changed_context_files(world, plan)?);
    }
    Ok(changed)
}

/// Returns the changed context files: files that the plan read and that differ or are missing in this world, then files
/// that the plan did not read.
fn changed_context_files(world: &dyn World, plan: &Plan) -> Result<Vec<String>, CommandError> {
    let found = world.context_files().map_err(|error| CommandError::failed(error.to_string()))?;
    let now: Vec<_> = found.iter().map(ContextFileRead::of).collect();
    let altered = plan.context_files.iter().filter(|read| !now.contains(read));
    let is_new = |read: &&ContextFileRead| {
        !plan.context_files.iter().any(|one| (one.space, &one.path) == (read.space, &read.path))
    };
    let changed = altered.chain(now.iter().filter(is_new));
    Ok(changed.map(|read| format!("context file {}", read.space.display(&read.path))).collect())
}

impl std::fmt::Display for ProveOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}: {}", self.thread, if self.proved { "proved" } else { "not proved" })?;
        match (self.first_request, &self.differs) {
            (Some(bytes), _) => writeln!(f, "  the first request matches the plan: {bytes} bytes of text")?,
            (None, Some(differs)) => writeln!(f, "  {differs}")?,
            (None, None) => {}
        }
        let plan = self.plan_id.get(..12).unwrap_or(&self.plan_id);
        match self.recompiled {
            Some(true) if self.sources == "kept" && self.changed.is_empty() => {
                writeln!(f, "  other files were added or removed; the stored copies compile to the same plan, {plan}")
            }
            Some(true) if self.sources == "kept" => writeln!(
                f,
                "  the sources have changed ({}); the stored copies compile to the same plan, {plan}",
                self.changed.join(", ")
            ),
            Some(true) => writeln!(f, "  the sources compile to the same plan, {plan}"),
            Some(false) => writeln!(f, "  the sources compile to a plan other than {plan}"),
            None => writeln!(
                f,
                "  the sources have changed, and no copies of them are stored: {} (select a git revision with `--at REV`)",
                self.changed.join(", ")
            ),
        }?;
        for prompt in &self.prompts {
            let place = if prompt.thread == self.thread { String::new() } else { format!(" ({})", prompt.thread) };
            match prompt.differs.as_slice() {
                [] => writeln!(f, "  prompt {}{place} matches: {} bytes of text", prompt.prompt, prompt.bytes)?,
                differs => writeln!(f, "  prompt {}{place}: {}", prompt.prompt, differs.join("; "))?,
            }
        }
        Ok(())
    }
}
