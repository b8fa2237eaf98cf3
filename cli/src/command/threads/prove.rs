//! `rye threads prove THREAD`: verifies that the plan of a thread compiles from its sources, and that the first request
//! of the thread is the planned one, byte for byte.

use clap::Args;
use rye_compiler::compile::{CompileRequest, SpawnParent, compile};
use rye_compiler::model::ModelOverride;
use rye_compiler::plan::{Plan, PlanMode};
use rye_compiler::semantics::limits::{LimitName, LimitValue, Limits};
use rye_compiler::world::{ItemKind, MapWorld, World};
use rye_engine::attest::{OpeningCheck, check_opening};
use rye_engine::event::{Opened, ThreadHead};
use rye_engine::store::sources::read_copies;
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
}

/// Output of `rye threads prove THREAD --format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProveOutput {
    pub thread: String,
    pub plan_id: String,
    /// True if the first request and the recompiled plan both match.
    pub proved: bool,
    /// Bytes of system prompt and first message, if the first request matches the stored plan.
    pub first_request: Option<usize>,
    /// First difference from the plan, in `system prompt`, `contributors` or `message`; null if the request matches.
    pub differs: Option<String>,
    /// Manifest entries of the plan that have changed, missing files included.
    pub changed: Vec<String>,
    /// True if the sources compile to the same plan; null if some have changed and no copy is stored.
    pub recompiled: Option<bool>,
    /// Origin of the sources: `files` (current), `kept` (copies stored when the thread started) or `revision`.
    pub sources: String,
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
        let above = opened.parent.as_ref().map(|link| format!("prove its caller instead: `{}`", link.thread_id));
        return Err(CommandError::usage(message).with_help(above.unwrap_or_default()));
    }
    // Reading the object fails unless its bytes match the recorded hash.
    let plan: Plan = serde_json::from_slice(&reader.object(plan_id)?)
        .map_err(|error| CommandError::failed(format!("the plan of the thread cannot be read: {error}")))?;
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
        // If files have changed, the plan is compiled from the copies that were stored when the thread started.
        let then = if changed.is_empty() { None } else { call.recompile_copies(reader, spaces)? };
        match then {
            Some(recompiled) => (changed, Some(recompiled), "kept"),
            None => (changed, recompiled, "files"),
        }
    };
    let proved = first_request.is_some() && recompiled == Some(true);
    let (thread, plan_id) = (record.entry.row.id.to_string(), plan_id.to_owned());
    let output =
        ProveOutput { thread, plan_id, proved, first_request, differs, changed, recompiled, sources: sources.into() };
    match report.format() {
        Format::Json => report.json(&output)?,
        Format::Human | Format::Plain => report.line(printable(&output.to_string()).trim_end())?,
    }
    Ok(if proved { Exit::Success } else { Exit::Failed })
}

/// Returns the bounds that a parent sets for its children, from the parent's transcript.
fn parent_bounds(parent: &str, spaces: &Spaces) -> Result<SpawnParent, CommandError> {
    let id = ThreadId::parse(parent).map_err(|invalid| CommandError::failed(invalid.reason))?;
    let found = Threads::open(&spaces.project)?.parent(&id)?;
    let parent =
        found.ok_or_else(|| CommandError::failed(format!("the parent thread `{parent}` has no transcript")))?;
    Ok(parent.bounds())
}

/// The call that started a thread, with its recorded plan.
struct RecordedCall<'c> {
    plan: &'c Plan,
    plan_id: &'c str,
    opened: &'c Opened,
    parent: Option<SpawnParent>,
}

impl RecordedCall<'_> {
    /// Recompiles the stored copies of the sources and returns true if the plan is the same; `None` if copies are
    /// missing.
    fn recompile_copies(&self, reader: &ThreadReader, spaces: &Spaces) -> Result<Option<bool>, CommandError> {
        let others = spaces.open_without_project()?;
        let mut world = MapWorld::with_fallback(&others);
        for file in read_copies(reader.disk(), self.plan) {
            world.insert(file.space, &file.path, file.bytes);
        }
        let (lost, recompiled) = self.recompile(&world)?;
        Ok(recompiled.filter(|_| lost.is_empty()))
    }

    /// Returns the changed sources. If no source has changed, also recompiles the sources, and returns true if the plan
    /// is the same.
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
        // The transcript does not record overrides of the call, only the resulting plan. Try each combination of
        // overrides that could have led to it.
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
    /// Compiles a call. Returns the id of its plan and, for a chat, the id of the plan with which a session continues
    /// after `/model` or `/budget`. These commands change one part of the plan and keep the other limits and the
    /// requested model.
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

/// Returns the manifest entries, missing files included, that differ in this world.
fn changed_sources(world: &dyn World, plan: &Plan) -> Result<Vec<String>, CommandError> {
    let mut changed = Vec::new();
    for read in &plan.manifest {
        let Ok(id) = ItemId::parse(&read.id) else { continue };
        let found = world.candidates(read.kind, &id).map_err(|error| CommandError::failed(error.to_string()))?;
        let now = match read.space {
            None => found.is_empty(),
            Some(space) => found.iter().any(|located| {
                let hash = rye_compiler::plan::hex(&Sha256::digest(&located.bytes));
                located.space == space && Some(hash) == read.sha256
            }),
        };
        if !now {
            let kind: ItemKind = read.kind;
            changed.push(format!("{} {}", kind.as_str(), read.id));
        }
    }
    Ok(changed)
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
            Some(true) if self.sources == "kept" => writeln!(
                f,
                "  the sources have changed ({}); the stored copies compile to the same plan, {plan}",
                self.changed.join(", ")
            ),
            Some(true) => writeln!(f, "  the sources compile to the same plan, {plan}"),
            Some(false) => writeln!(f, "  the sources compile to a plan other than {plan}"),
            None => writeln!(
                f,
                "  the sources have changed and no copies are stored: {} (select a revision with `--at REV`)",
                self.changed.join(", ")
            ),
        }
    }
}
