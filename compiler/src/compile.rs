//! The compiler's entry point: compiles one directive and its request to a plan. `check`, `plan` and `run` share this
//! path, so a run executes exactly what was checked. The compiler is pure: equal sources and requests yield equal
//! bytes.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use rye_grammar::{ItemId, Sources};
use serde_json::{Map, Value};

use crate::approvals::{self, ApprovalRequired, HeadlessPolicy};
use crate::compose::{Composed, compose, compose_without};
use crate::diagnostics::{Checked, Diagnostic, Diagnostics};
use crate::item::{FieldDecl, Items, ModelRequest};
use crate::key_bindings::KEYS_FILE;
use crate::lower::cache::LowerContext;
use crate::lower::interface::lower_fields;
use crate::lower::{HookTrace, Lowered, lower};
use crate::model::ModelOverride;
pub use crate::plan::note::Note;
use crate::plan::{FieldType, InterfaceField, ManifestEntry, Origins, Plan};
pub use crate::request::{AssumedRoute, CompileRequest, SpawnParent};
use crate::resolve::{Inputs, Launch};
use crate::sandbox::{self, ToolSandbox};
use crate::trust::{self, TrustRequirement};
use crate::validate::groups::GROUP_PREFIX;
use crate::validate::settings::{ReportedPlaces, check_run_settings};
use crate::validate::{check_composed, reached_calls, undeclared_fields};
use crate::world::{ItemKind, RecordingWorld, World};

/// A plan with its explanation: origins, sources, notes and trust requirements.
#[derive(Debug, Clone)]
pub struct Compilation {
    /// The request that was compiled.
    pub request: CompileRequest,
    pub plan: Plan,
    /// SHA-256 of the plan's bytes, lowercase hex.
    pub plan_id: String,
    pub origins: Origins,
    pub sources: Sources,
    /// Reasons for the verdict of each hook, in the plan's order.
    pub hooks: Vec<HookTrace>,
    pub notes: Vec<Note>,
    /// The `spend` limit that the directive or its caller requests explicitly, in nano-dollars. A child that requests
    /// more than its parent has left is refused. `None` if only a default or an inherited limit applies.
    pub requested_spend: Option<u64>,
    /// Parts of the plan that run only if the user trusts the project's files.
    pub trust_requirements: Vec<TrustRequirement>,
    /// The sandbox of each tool of the palette, in the palette's order.
    pub sandboxes: Vec<ToolSandbox>,
    /// Grants whose calls need approval because their risk is not acknowledged.
    pub approvals_required: Vec<ApprovalRequired>,
    /// Policy for calls that need approval when there is no terminal, from the settings.
    pub headless_policy: HeadlessPolicy,
    /// True if the settings require bubblewrap around programs.
    pub bubblewrap: bool,
    /// Number of parsed files. Only files that the directive refers to, directly or indirectly, are parsed.
    pub parsed_files: usize,
}

/// Returns the types of the inputs that a directive declares itself or inherits from its extends chain, by the name of
/// the input. The chain can depend on the values `given`, because a routing hook can read them. Empty if the directive
/// cannot be composed.
pub fn declared_inputs(
    world: &dyn World,
    directive: &ItemId,
    given: &Map<String, Value>,
) -> BTreeMap<String, FieldType> {
    let composed = compose_with_inputs(world, directive, &ModelOverride::default(), given);
    let inputs = composed.map(|composed| composed.inputs).unwrap_or_default();
    inputs.into_iter().map(|(name, field)| (name, field.value.kind)).collect()
}

/// Returns the inputs that the extends chain of a directive declares; `None` if the directive cannot be composed. The
/// chain can depend on the values `given`, because a routing hook can read them.
pub fn declared_fields(
    world: &dyn World,
    directive: &ItemId,
    given: &Map<String, Value>,
) -> Option<IndexMap<String, InterfaceField>> {
    declared_fields_of(&LowerContext::new(&Items::new(world)), directive, given)
}

/// Variant of [`declared_fields`] that uses the parsed files of `shared`. Returns the inputs that the extends chain of
/// a directive declares.
pub(crate) fn declared_fields_of(
    shared: &LowerContext<'_, '_>,
    directive: &ItemId,
    given: &Map<String, Value>,
) -> Option<IndexMap<String, InterfaceField>> {
    let composed = compose_given(shared, directive, &ModelOverride::default(), given)?;
    Some(lower_fields(&composed.inputs))
}

impl CompileRequest {
    /// Sets the inputs as in a run without arguments, unless the inputs are set already. Each input gets its default,
    /// or no value. The inputs stay unknown if a required input has no default, or if the directive cannot be composed.
    #[must_use]
    pub fn with_default_inputs(mut self, world: &dyn World) -> Self {
        if self.inputs.is_none() && needs_no_inputs(&Items::new(world), &self) {
            self.inputs = Some(Map::new());
        }
        self
    }
}

/// Returns true if the directive of a request can be composed without inputs, and each required input has a default.
fn needs_no_inputs(items: &Items<'_>, request: &CompileRequest) -> bool {
    let is_missing = |field: &FieldDecl| field.required && field.default.is_none();
    compose_items(items, &request.directive, &request.model, &Map::new())
        .is_some_and(|composed| !composed.inputs.values().any(|field| is_missing(&field.value)))
}

fn compose_with_inputs(
    world: &dyn World,
    directive: &ItemId,
    model: &ModelOverride,
    given: &Map<String, Value>,
) -> Option<Composed> {
    compose_items(&Items::new(world), directive, model, given)
}

fn compose_items(
    items: &Items<'_>,
    directive: &ItemId,
    model: &ModelOverride,
    given: &Map<String, Value>,
) -> Option<Composed> {
    compose_given(&LowerContext::new(items), directive, model, given)
}

fn compose_given(
    shared: &LowerContext<'_, '_>,
    directive: &ItemId,
    model: &ModelOverride,
    given: &Map<String, Value>,
) -> Option<Composed> {
    let model =
        |requested: Option<&ModelRequest>| shared.catalog().resolve(requested, model).ok().map(|model| model.id);
    compose(shared.items, directive, &Launch { inputs: Inputs::Given(given), model: &model }).value
}

/// Compiles a directive. The result has a value only if there is no error. Warnings and advice do not prevent a value.
pub fn compile(world: &dyn World, request: &CompileRequest) -> Checked<Compilation> {
    compile_with_sources(world, request, &mut Sources::default())
}

/// Compiles like [`compile`]. If there is no plan, `shown` receives the sources that the diagnostics refer to.
pub fn compile_with_sources(world: &dyn World, request: &CompileRequest, shown: &mut Sources) -> Checked<Compilation> {
    let recording = RecordingWorld::new(world);
    compile_items(world, &recording, Items::new(&recording), request, shown)
}

/// Sets the inputs of a request like [`CompileRequest::with_default_inputs`], and then compiles the request like
/// [`compile_with_sources`]. Both steps share the parsed files if possible. Also returns the request with the inputs.
pub fn compile_with_default_inputs(
    world: &dyn World,
    mut request: CompileRequest,
    shown: &mut Sources,
) -> (CompileRequest, Checked<Compilation>) {
    // The manifest of a plan must list only files that the compilation reads. If parts are omitted or a route is
    // assumed, the search for default inputs may read other files, so the two steps share no cache. Otherwise, the
    // compilation reads every file that the search reads, because it keeps all hooks and routes that a missing input
    // can select.
    if !request.omitted.is_empty() || request.route.is_some() {
        let request = request.with_default_inputs(world);
        let compiled = compile_with_sources(world, &request, shown);
        return (request, compiled);
    }
    let recording = RecordingWorld::new(world);
    let items = Items::new(&recording);
    if request.inputs.is_none() && needs_no_inputs(&items, &request) {
        request.inputs = Some(Map::new());
    }
    let compiled = compile_items(world, &recording, items, &request, shown);
    (request, compiled)
}

/// Compiles a request. `recording` wraps `world` and records its reads. `items` is the item cache over `recording`.
fn compile_items(
    world: &dyn World,
    recording: &RecordingWorld<&dyn World>,
    items: Items<'_>,
    request: &CompileRequest,
    shown: &mut Sources,
) -> Checked<Compilation> {
    let mut diagnostics = Diagnostics::new();
    let (lowered, parsed_files) = {
        let shared = LowerContext::new(&items);
        let composed = compose_request(&shared, request, &mut diagnostics);
        let lowered =
            composed.as_ref().and_then(|composed| lower_checked(&shared, composed, request, &mut diagnostics));
        let mut lowered = lowered.map(|mut lowered| {
            lowered.plan.settings.clone_from(shared.frozen_settings());
            lowered
        });
        let mut reported = ReportedPlaces::default();
        let loaded = shared.catalog().loaded();
        let loaded = loaded.iter().map(String::as_str);
        check_run_settings(&items, request.mode, loaded, &mut reported, &mut diagnostics);
        let mut read = shared.diagnostics();
        read.retain(|one| !matches!(one, Diagnostic::Config(error) if reported.contains(error)));
        diagnostics.append(read);
        if let Some(Lowered { plan, .. }) = &mut lowered {
            record_reads(plan, &items, recording);
        }
        diagnostics.append(items.diagnostics());
        let parsed_files = items.parsed_file_count();
        // These checks run after the reads are recorded, because the plan does not depend on the files that the checks
        // read. Errors inside these files do not prevent the plan.
        if let Some(Lowered { plan, .. }) = &lowered {
            undeclared_fields::check_plan(&items, world, plan, &mut diagnostics);
        }
        if let Some(composed) = &composed {
            reached_calls::check(&items, composed, request.mode, &mut diagnostics);
        }
        shared.check_tiers(&mut diagnostics);
        (lowered, parsed_files)
    };
    diagnostics.sort(&items.sources());
    let Some(Lowered { plan, origins, hooks, mut notes, requested_spend }) =
        lowered.filter(|_| !diagnostics.has_errors())
    else {
        *shown = items.into_sources();
        return Checked::new(None, diagnostics);
    };
    let mut trust_requirements = trust::requirements_of_plan(&plan, &hooks);
    trust_requirements.extend(trust::requirements_of_tools(world, &items, &plan));
    trust_requirements.extend(trust::of_user_space(&items, &plan, &hooks));
    trust_requirements.extend(trust::of_replaced_hook_items(world, &plan));
    let sandboxes = sandbox::plan_sandboxes(&items, &plan);
    let approvals_required = approvals::required_approvals(&items, &plan);
    let sources = items.into_sources();
    notes.extend(shadowed_item_notes(&plan.manifest));
    // Serializing a plan cannot fail: it holds only data that JSON can represent.
    let plan_id = plan.id().unwrap_or_default();
    let request = request.clone();
    let compilation = Compilation {
        request,
        plan,
        plan_id,
        origins,
        sources,
        hooks,
        notes,
        requested_spend,
        trust_requirements,
        sandboxes,
        approvals_required,
        headless_policy: HeadlessPolicy::from_settings(world),
        bubblewrap: sandbox::requires_bubblewrap(world),
        parsed_files,
    };
    Checked::new(Some(compilation), diagnostics)
}

/// Records the files that a plan depends on: the hashes of its chain, its manifest and its context files.
fn record_reads(plan: &mut Plan, items: &Items<'_>, recording: &RecordingWorld<&dyn World>) {
    for link in &mut plan.chain {
        link.sha256 = recording.sha256(ItemKind::Directive, &link.id, link.space).unwrap_or_default();
    }
    trust::read_tool_settings(items, recording, plan);
    plan.manifest = recording.manifest();
    plan.context_files = recording.context_file_reads();
    // Settings of capability groups are read only to suggest a fix in a diagnostic; a plan does not depend on them.
    // The keys of the user's terminal are read only to report their errors.
    let is_left_out = |id: &str| id.starts_with(GROUP_PREFIX) || id == KEYS_FILE;
    plan.manifest.retain(|read| read.kind != ItemKind::Config || !is_left_out(&read.id));
}

/// Composes, checks and lowers one directive; `None` if the directive cannot be composed or lowered. A check of the
/// project takes the same steps for every directive, on each of its routes.
pub(crate) fn compile_with_context(
    shared: &LowerContext<'_, '_>,
    request: &CompileRequest,
    diagnostics: &mut Diagnostics,
) -> Option<Lowered> {
    let composed = compose_request(shared, request, diagnostics)?;
    lower_checked(shared, &composed, request, diagnostics)
}

fn compose_request(
    shared: &LowerContext<'_, '_>,
    request: &CompileRequest,
    diagnostics: &mut Diagnostics,
) -> Option<Composed> {
    let model = |requested: Option<&ModelRequest>| {
        shared.catalog().resolve(requested, &request.model).ok().map(|model| model.id)
    };
    let inputs = request.inputs.as_ref().map_or(Inputs::Unknown, Inputs::Given);
    let launch = Launch { inputs, model: &model };
    let composed = compose_without(shared.items, &request.directive, &launch, &request.omitted, request.route.as_ref());
    diagnostics.append(composed.diagnostics);
    composed.value
}

fn lower_checked(
    shared: &LowerContext<'_, '_>,
    composed: &Composed,
    request: &CompileRequest,
    diagnostics: &mut Diagnostics,
) -> Option<Lowered> {
    check_composed(shared, composed, diagnostics);
    lower(shared, composed, request, diagnostics)
}

/// Returns a note for each item that more than one space has. Settings are skipped: they are merged, so none is
/// shadowed.
fn shadowed_item_notes(manifest: &[ManifestEntry]) -> Vec<Note> {
    let mut notes: Vec<Note> = Vec::new();
    for read in manifest.iter().filter(|r| r.kind != ItemKind::Config) {
        let Some(space) = read.space else { continue };
        match notes.last_mut() {
            Some(Note::Shadowed { kind, id, hidden, .. }) if *kind == read.kind && *id == read.id => hidden.push(space),
            _ => {
                let (kind, id) = (read.kind, read.id.clone());
                notes.push(Note::Shadowed { kind, id, used: space, hidden: Vec::new() });
            }
        }
    }
    notes.retain(|note| !matches!(note, Note::Shadowed { hidden, .. } if hidden.is_empty()));
    notes
}

#[cfg(test)]
pub(crate) mod tests;
