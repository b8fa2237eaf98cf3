//! The compiler's front door: one directive and what it is called with, to a plan. `check`, `plan` and `run` all come
//! through here, so what is checked is what is run. Pure: the same sources and the same request give the same bytes.

mod note;

use std::collections::BTreeMap;

use rye_grammar::{ItemId, Sources};
use serde_json::{Map, Value};

use crate::approvals::{self, AskedGrant, Unattended};
use crate::compose::compose;
use crate::diagnostics::{Checked, Diagnostics};
use crate::item::Items;
use crate::lower::shared::Shared;
use crate::lower::{HookTrace, Lowered, lower};
use crate::model::ModelOverride;
use crate::plan::provenance::Why;
use crate::plan::{Capabilities, FieldType, Origins, Plan, PlanLimits, Read};
use crate::resolve::{Inputs, Launch};
use crate::semantics::limits::Written;
use crate::trust::{self, Executes};
use crate::validate::check_composed;
use crate::wall::{self, ToolWall};
use crate::world::{ItemKind, Recording, World};
pub use note::Note;

/// What to compile.
#[derive(Debug, Clone)]
pub struct Request {
    pub directive: ItemId,
    /// `None` = not known: every `{input:…}` stays pending. Given ones are checked, and defaults fill in.
    pub inputs: Option<Map<String, Value>>,
    /// Limits that stand above the directive's own, by name.
    pub limits: Vec<(String, Written)>,
    pub model: ModelOverride,
    /// The thread that spawns this one.
    pub parent: Option<Parent>,
}

/// What a child is bound by.
#[derive(Debug, Clone, PartialEq)]
pub struct Parent {
    pub limits: PlanLimits,
    /// Taken over where the child's chain declares none.
    pub capabilities: Capabilities,
}

impl Request {
    /// A directive alone: no inputs known, nothing overridden, no parent.
    pub fn new(directive: ItemId) -> Self {
        Self { directive, inputs: None, limits: Vec::new(), model: ModelOverride::default(), parent: None }
    }

    /// The same with these inputs.
    #[must_use]
    pub fn with_inputs(mut self, inputs: Map<String, Value>) -> Self {
        self.inputs = Some(inputs);
        self
    }
}

/// A plan and everything that explains it.
#[derive(Debug, Clone)]
pub struct Compilation {
    /// What was asked for.
    pub request: Request,
    pub plan: Plan,
    /// SHA-256 of the plan's bytes, lowercase hex.
    pub plan_id: String,
    pub origins: Origins,
    pub sources: Sources,
    /// Why each hook of the plan has its verdict, in the plan's order.
    pub hooks: Vec<HookTrace>,
    pub notes: Vec<Note>,
    /// What the directive or its caller says it may spend, in nano-dollars; a child that asks for more than is left is
    /// refused. A default or a parent's limit is nobody's wish.
    pub named_spend: Option<u64>,
    /// What of it runs only where the user trusts the project's files.
    pub executes: Vec<Executes>,
    /// What stands between each tool of the palette and the machine, in the palette's order.
    pub walls: Vec<ToolWall>,
    /// Grants whose calls want a person's word, because nobody acknowledged their risk.
    pub asked: Vec<AskedGrant>,
    /// What becomes of such a call where nobody can be asked; whoever shows the plan reads it from the settings.
    pub unattended: Unattended,
    /// Programs are started in bubblewrap; read like the one before.
    pub bubblewrap: bool,
    /// Tokens of what is absent, where [`crate::plan::absent::weigh`] has looked them up.
    pub weights: BTreeMap<(Why, String), u64>,
    /// Files that were parsed: only what the directive reaches.
    pub parsed_files: usize,
}

/// The types of the inputs that a directive takes when it is called with these: its own, its ancestors', and those of a
/// parent that only a routing hook gives it.
pub fn declared_inputs(
    world: &dyn World,
    directive: &ItemId,
    given: &Map<String, Value>,
) -> BTreeMap<String, FieldType> {
    let items = Items::new(world);
    let shared = Shared::new(&items);
    let model = |asked: Option<&crate::item::ModelRequest>| {
        shared.catalog().resolve(asked, &ModelOverride::default()).ok().map(|model| model.id)
    };
    let composed = compose(&items, directive, &Launch { inputs: Inputs::Given(given), model: &model });
    let inputs = composed.value.map(|composed| composed.inputs).unwrap_or_default();
    inputs.into_iter().map(|(name, field)| (name, field.value.kind)).collect()
}

/// Compiles a directive. There is a value only where nothing is wrong: a plan with an error in it would not be what
/// was written. Warnings and advice stand beside the value.
pub fn compile(world: &dyn World, request: &Request) -> Checked<Compilation> {
    compile_showing(world, request, &mut Sources::default())
}

/// The same for who shows the diagnostics: where there is no value, `shown` gets the texts that they speak of.
pub fn compile_showing(world: &dyn World, request: &Request, shown: &mut Sources) -> Checked<Compilation> {
    let recording = Recording::new(world);
    let items = Items::new(&recording);
    let mut diagnostics = Diagnostics::new();
    let lowered = {
        let shared = Shared::new(&items);
        let mut lowered = compile_in(&shared, request, &mut diagnostics);
        if let Some(lowered) = &mut lowered {
            lowered.plan.settings.clone_from(shared.frozen());
        }
        diagnostics.append(shared.diagnostics());
        lowered
    };
    diagnostics.append(items.diagnostics());
    diagnostics.sort(&items.sources());
    let parsed_files = items.parsed_files();
    let Some(Lowered { mut plan, origins, hooks, mut notes, named_spend }) =
        lowered.filter(|_| !diagnostics.has_errors())
    else {
        *shown = items.into_sources();
        return Checked::new(None, diagnostics);
    };
    for link in &mut plan.chain {
        link.sha256 = recording.sha256(ItemKind::Directive, &link.id, link.space).unwrap_or_default();
    }
    plan.manifest = recording.manifest();
    let mut executes = trust::of_plan(&plan, &hooks);
    executes.extend(trust::of_tools(&items, &plan));
    let walls = wall::of_plan(&items, &plan);
    let asked = approvals::asked(&items, &plan);
    let sources = items.into_sources();
    notes.extend(shadowed(&plan.manifest));
    // A plan is data of our own making: there is nothing in it that JSON cannot hold.
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
        named_spend,
        executes,
        walls,
        asked,
        unattended: Unattended::default(),
        bubblewrap: false,
        weights: BTreeMap::new(),
        parsed_files,
    };
    Checked::new(Some(compilation), diagnostics)
}

/// Composes, checks and lowers one directive. Check does the same with every directive of a project, along every route.
fn compile_in(shared: &Shared<'_, '_>, request: &Request, diagnostics: &mut Diagnostics) -> Option<Lowered> {
    let model = |asked: Option<&crate::item::ModelRequest>| {
        shared.catalog().resolve(asked, &request.model).ok().map(|model| model.id)
    };
    let inputs = request.inputs.as_ref().map_or(Inputs::Unknown, Inputs::Given);
    let composed = compose(shared.items, &request.directive, &Launch { inputs, model: &model });
    diagnostics.append(composed.diagnostics);
    let composed = composed.value?;
    check_composed(shared, &composed, diagnostics);
    lower(shared, &composed, request, diagnostics)
}

/// Items that more than one space has. Settings are merged, so none of theirs is hidden.
fn shadowed(manifest: &[Read]) -> Vec<Note> {
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
