//! Sessions: the commands that a chat adds to the threads of its directive, and the built-in assertion
//! `listed_is_usable` on the plan of each chat.

use rye_grammar::{ItemId, Span};

use super::route_summary::{NamedStart, hook_call, hook_starts};
use super::threads::PossibleThread;
use crate::commands::composed_commands;
use crate::compose::{Composed, compose_all};
use crate::diagnostics::Diagnostics;
use crate::hook::{HookPoint, PlannedHook};
use crate::item::Items;
use crate::lower::cache::LowerContext;
use crate::lower::lower;
use crate::plan::{Layer, LayerKind, PalettePrimary, Plan, PlanMode, Segment};
use crate::request::CompileRequest;
use crate::resolve::{Inputs, Launch};
use crate::semantics::capability::CapabilitySet;
use crate::semantics::glob::Glob;
use crate::semantics::glob::inclusion::{Witness, witness};
use crate::skill_list::SkillAccess;

/// The name of the built-in assertion that a session can use each skill, command and guideline of its plan.
pub const LISTED_IS_USABLE: &str = "listed_is_usable";

/// The calls and the starts of directives that the commands of the settings add to a session's thread.
#[derive(Debug, Default)]
pub struct SessionCommands {
    /// The capabilities of the calls that the commands make. The thread can read their results.
    calls: Vec<String>,
    /// The directives that the commands start.
    pub starts: Vec<NamedStart>,
}

impl SessionCommands {
    pub fn read(items: &Items<'_>) -> Self {
        // `rye check` reports invalid commands.
        let commands = composed_commands(items, PlanMode::Chat, &mut Diagnostics::new());
        Self {
            calls: commands.iter().filter_map(|command| hook_call(&command.decl)).collect(),
            starts: hook_starts(&commands),
        }
    }

    /// Returns true if the commands make no call and start no directive. The thread of a session then equals the thread
    /// of a run.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.starts.is_empty()
    }

    /// Converts the first thread of a run of a directive to the thread that a session of this directive has.
    pub fn to_session(&self, mut thread: PossibleThread) -> PossibleThread {
        thread.is_session = true;
        thread.hook_calls.extend(self.calls.iter().cloned());
        for step in &mut thread.trace {
            "chat".clone_into(&mut step.by);
        }
        thread
    }
}

/// The plans of a directive as a chat, and the listed skills, commands and guidelines that the session cannot use.
#[derive(Debug, Default)]
pub struct CheckedSessions {
    /// Number of plans, one for each route.
    pub plans: usize,
    pub unusable: Vec<String>,
    /// The span of the directive, for diagnostics; `None` if the directive has errors.
    pub span: Option<Span>,
}

/// Checks the plan of each route of a directive as a chat. A directive with errors has no plan.
pub fn check_sessions(shared: &LowerContext<'_, '_>, id: &ItemId) -> CheckedSessions {
    let launch = Launch { inputs: Inputs::Unknown, model: &|_| None };
    let (all, _) = compose_all(shared.items, id, &launch, &mut Diagnostics::new());
    let mut checked = CheckedSessions::default();
    for composed in &all {
        let request = CompileRequest::new(id.clone()).chat();
        let Some(lowered) = lower(shared, composed, &request, &mut Diagnostics::new()) else { continue };
        checked.plans += 1;
        checked.span = checked.span.or_else(|| place_of(composed));
        for reason in unusable_parts(shared.items, &lowered.plan) {
            if !checked.unusable.contains(&reason) {
                checked.unusable.push(reason);
            }
        }
    }
    checked
}

fn place_of(composed: &Composed) -> Option<Span> {
    composed.leaf().map(|leaf| Span::new(leaf.file.source, 0, 0))
}

/// Returns the parts that the plan of a chat lists but the session cannot use, each as a clause with the reason. The
/// check reads the finished plan, and shares no code with the functions that build these lists.
pub(super) fn unusable_parts(items: &Items<'_>, plan: &Plan) -> Vec<String> {
    let layer = |kind: LayerKind| plan.prompt.system.iter().find(|layer| layer.kind == kind).map(layer_text);
    let mut unusable = Vec::new();
    for name in listed_skills(&layer(LayerKind::Skills).unwrap_or_default()) {
        if !is_readable(items, plan, &name) {
            unusable.push(format!("the skill `{name}` is listed, but no tool of the session can read it"));
        }
    }
    for hook in plan.hooks.iter().filter(|hook| hook.event == HookPoint::Command && hook.is_live()) {
        unusable.extend(command_fault(items, plan, hook));
    }
    let guidance = layer(LayerKind::ToolGuidance).unwrap_or_default();
    let of_tools = plan.palette.iter().filter_map(|tool| Some((tool, items.tool(tool.item_id.as_ref()?)?)));
    let mut lines: Vec<String> = Vec::new();
    for (tool, item) in of_tools {
        lines.extend(item.spec.snippet.iter().map(|snippet| format!("- {}: {snippet}", tool.name)));
        lines.extend(item.spec.guidelines.iter().map(|guideline| format!("- {guideline}")));
    }
    let known: Vec<&str> = lines.iter().flat_map(|line| line.lines()).collect();
    for line in guidance.lines().filter(|line| line.starts_with("- ") && !known.contains(line)) {
        unusable.push(format!("the guideline `{}` belongs to no tool of the palette", line.trim_start_matches("- ")));
    }
    unusable
}

fn layer_text(layer: &Layer) -> String {
    let text = |segment: &Segment| if let Segment::Text { text } = segment { text.as_str() } else { "" }.to_owned();
    layer.segments.iter().map(text).collect()
}

fn listed_skills(text: &str) -> Vec<String> {
    let names = text.split("<skill name=\"").skip(1).filter_map(|rest| rest.split_once('"'));
    names.map(|(name, _)| name.to_owned()).collect()
}

fn is_readable(items: &Items<'_>, plan: &Plan, name: &str) -> bool {
    let Some(skill) = ItemId::parse(name).ok().and_then(|id| items.skill(&id)) else { return false };
    let granted = CapabilitySet::new(plan.capabilities.grants.iter().map(|grant| grant.pattern.clone()));
    let fetches = plan.palette.iter().any(|tool| tool.primary == PalettePrimary::Fetch);
    let by_fetch = fetches && SkillAccess::Fetch(granted).allows(&skill);
    by_fetch || SkillAccess::of(&plan.capabilities.grants, &plan.palette, false).allows(&skill)
}

/// Returns the reason why a command of a session cannot run; `None` if the command can run.
fn command_fault(items: &Items<'_>, plan: &Plan, hook: &PlannedHook) -> Option<String> {
    let (kind, id) = hook.action.item()?;
    let name = &hook.id;
    if let Ok(known) = ItemId::parse(id) {
        let word = kind.as_str();
        return (!items.exists(kind, &known))
            .then(|| format!("the command `/{name}` executes the missing {word} `{id}`"));
    }
    // The id contains a placeholder, so it is known only when the user types the command. The command then needs a
    // grant for the id.
    let fixed = id.split("${").next().unwrap_or_default().replace('/', ".");
    let wanted = Glob::new(&format!("rye.execute.{}.{fixed}*", kind.as_str()));
    let grants = plan.capabilities.grants.iter().map(|grant| grant.pattern.as_str());
    let mut grants = grants.chain(hook.grants.iter().map(String::as_str));
    let is_granted = grants.any(|grant| !matches!(witness(&[&wanted, &Glob::new(grant)], &[]), Witness::None));
    (!is_granted).then(|| format!("the command `/{name}` executes `{id}`, which no grant allows"))
}
