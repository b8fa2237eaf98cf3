//! Directions of changed guards and of hooks that let a thread continue, compared with an enumeration of the facts at
//! which the hooks fire. A change widens if it lets a call pass, or a thread continue, at any point. Any other change
//! between conditions on numbers does not widen.

use rye_compiler::compile::{Compilation, CompileRequest, compile};
use rye_compiler::report::diff::{DiffSide, Direction, PlanDiff, diff_trees};
use rye_compiler::report::render::diff::lines;
use rye_compiler::world::{MapWorld, Space};
use rye_grammar::ItemId;
use serde_json::json;

use super::SETTINGS;
use super::condition::{OracleCondition, OracleFacts, OraclePattern, OracleTerm, Reading};
use super::project::Rng;

/// Projects of a plain test run.
const PROJECTS: u64 = 40;
const WORDS: [&str; 4] = ["rm", "rm -r", "ls", "git"];
const COMMANDS: [&str; 7] = ["", "rm", "rm -r x", "do rm", "ls", "git rm", "-"];
const DIRECTIVE: &str = "# main\n\n```xml\n<directive name=\"main\" version=\"1.0.0\">\n<metadata><limits turns=\"15\"/>\
    <permissions/></metadata>\n</directive>\n```\n\nDo it.\n";

/// A point at which hooks are evaluated.
struct OraclePoint {
    turn: u64,
    turns: u64,
    command: Option<&'static str>,
}

impl OracleFacts for OraclePoint {
    fn read(&self, path: &str) -> Reading {
        match (path, self.command) {
            ("turn", _) => Reading::Value(json!(self.turn)),
            ("cost.turns", _) => Reading::Value(json!(self.turns)),
            ("call.input.command", Some(command)) => Reading::Value(json!(command)),
            _ => Reading::Absent,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HookRole {
    /// Blocks calls.
    Guard,
    /// Lets the thread continue after its answer.
    License,
}

#[derive(Debug, Clone)]
struct DirectedHook {
    id: String,
    role: HookRole,
    condition: OracleCondition,
}

impl DirectedHook {
    fn text(&self) -> String {
        let (event, action) = match self.role {
            HookRole::Guard => ("tool_call", json!({ "block": { "reason": "no" } })),
            HookRole::License => ("agent_end", json!({ "follow_up": { "content": "more" } })),
        };
        let hook = json!({ "id": self.id, "event": event, "condition": self.condition.inline(), "action": action });
        format!("  - {hook}\n")
    }
}

fn condition(rng: &mut Rng, role: HookRole, depth: usize) -> OracleCondition {
    if depth > 0 && rng.once_in(2) {
        let parts = vec![condition(rng, role, depth - 1), condition(rng, role, depth - 1)];
        return match rng.below(5) {
            0 => OracleCondition::Not(Box::new(parts.into_iter().next().unwrap())),
            1 | 2 => OracleCondition::Any(parts),
            _ => OracleCondition::All(parts),
        };
    }
    let number = |rng: &mut Rng| json!(1 + rng.below(9));
    let path = rng.one_of(&["turn", "cost.turns"]).to_owned();
    match (role, rng.below(6)) {
        (HookRole::Guard, 0) => {
            let word = json!(rng.one_of(&WORDS));
            OracleCondition::Compare(
                "contains",
                OracleTerm::Path("call.input.command".into()),
                OracleTerm::Literal(word),
            )
        }
        (HookRole::Guard, 1) => {
            let pattern =
                OraclePattern { from_start: rng.once_in(2), text: rng.one_of(&WORDS).to_owned(), to_end: false };
            OracleCondition::Matches("call.input.command".into(), pattern)
        }
        (_, 2) => OracleCondition::Compare(
            "in",
            OracleTerm::Path(path),
            OracleTerm::Literal(json!([number(rng), number(rng)])),
        ),
        (_, 3) => {
            let sum = OracleTerm::Sum(path, i64::try_from(1 + rng.below(3)).unwrap());
            OracleCondition::Compare(rng.one_of(&["==", ">"]), sum, OracleTerm::Literal(number(rng)))
        }
        _ => {
            let op = rng.one_of(&["==", "!=", "<", "<=", ">", ">="]);
            OracleCondition::Compare(op, OracleTerm::Path(path), OracleTerm::Literal(number(rng)))
        }
    }
}

/// Returns the hooks of a project after one change of it.
fn changed(rng: &mut Rng, before: &[DirectedHook]) -> Vec<DirectedHook> {
    let mut after = before.to_vec();
    let at = rng.below(after.len());
    let (role, old) = (after[at].role, after[at].condition.clone());
    let other = condition(rng, role, 1);
    match rng.below(6) {
        0 => drop(after.remove(at)),
        1 => after[at].condition = OracleCondition::All(vec![old, other]),
        2 => after[at].condition = OracleCondition::Any(vec![old, other]),
        3 => after[at].condition = OracleCondition::Not(Box::new(OracleCondition::Not(Box::new(old)))),
        4 => after.push(DirectedHook { id: "added".into(), role, condition: other }),
        _ => after[at].condition = other,
    }
    after
}

fn world(hooks: &[DirectedHook]) -> MapWorld<'static> {
    let mut world = MapWorld::new();
    for (path, text) in SETTINGS {
        world.insert(Space::System, &format!(".ai/config/agent/{path}"), text);
    }
    world.insert(Space::Project, ".ai/directives/main.md", DIRECTIVE);
    let hooks: String = hooks.iter().map(DirectedHook::text).collect();
    let hooks = if hooks.is_empty() { "hooks: []\n".to_owned() } else { format!("hooks:\n{hooks}") };
    world.insert(Space::Project, ".ai/config/agent/hooks.yaml", hooks);
    world
}

fn compiled(world: &MapWorld<'_>, name: &str) -> Compilation {
    let found = compile(world, &CompileRequest::new(ItemId::parse("main").unwrap()));
    let errors: Vec<String> = found.diagnostics.iter().map(rye_compiler::diagnostics::Diagnostic::message).collect();
    found.value.unwrap_or_else(|| panic!("{name}: {errors:?}"))
}

fn compare(before: &[DirectedHook], after: &[DirectedHook], name: &str) -> PlanDiff {
    let (old, new) = (world(before), world(after));
    let (was, is) = (compiled(&old, name), compiled(&new, name));
    let sides = (DiffSide { world: &old, compilation: &was }, DiffSide { world: &new, compilation: &is });
    diff_trees(Some(sides.0), Some(sides.1)).unwrap()
}

/// Returns true if a hook of a role fires at a point.
fn fires(hooks: &[DirectedHook], role: HookRole, point: &OraclePoint) -> bool {
    hooks.iter().any(|hook| hook.role == role && hook.condition.evaluate(point) == Some(true))
}

/// Returns a point at which the change lets a call pass, or the thread continue.
fn widening(before: &[DirectedHook], after: &[DirectedHook]) -> Option<OraclePoint> {
    let commands = COMMANDS.into_iter().map(Some).chain([None]);
    let all = commands.flat_map(|command| (1..=14).map(move |turn| (command, turn)));
    let mut all = all.flat_map(|(command, turn)| (0..=14).map(move |turns| OraclePoint { turn, turns, command }));
    all.find(|point| {
        let passes = fires(before, HookRole::Guard, point) && !fires(after, HookRole::Guard, point);
        // The condition of a license does not read the command, because `agent_end` has no call.
        let continues = !fires(before, HookRole::License, point) && fires(after, HookRole::License, point);
        passes || continues
    })
}

fn reads_text(hooks: &[DirectedHook]) -> bool {
    hooks.iter().any(|hook| hook.condition.inline().contains("command"))
}

#[test]
fn directions_agree_with_the_facts_at_which_hooks_fire() {
    let projects = std::env::var("RYE_DIFFERENTIAL").map_or(PROJECTS, |text| text.parse().unwrap());
    let (mut widened, mut kept, mut unknown, mut wrong) = (0, 0, 0, Vec::new());
    for seed in 0..projects {
        let rng = &mut Rng::new(seed ^ 0xd1ff);
        let before: Vec<DirectedHook> = (0..=rng.below(3))
            .map(|n| {
                let role = if rng.once_in(3) { HookRole::License } else { HookRole::Guard };
                DirectedHook { id: format!("hook{n}"), role, condition: condition(rng, role, 2) }
            })
            .collect();
        let after = changed(rng, &before);
        let name = format!("project {seed}");
        let found = compare(&before, &after, &name);
        let is_certain = found.hooks.iter().any(|hook| hook.direction == Direction::Widened);
        let shown = || {
            let hooks = |all: &[DirectedHook]| all.iter().map(DirectedHook::text).collect::<String>();
            let report: Vec<String> = lines(&found).into_iter().map(|line| line.text).collect();
            format!("before\n{}after\n{}{}\n", hooks(&before), hooks(&after), report.join("\n"))
        };
        match widening(&before, &after) {
            Some(OraclePoint { turn, turns, command }) => {
                widened += 1;
                if !found.widened {
                    let point = json!({ "turn": turn, "cost.turns": turns, "command": command });
                    wrong.push(format!("{name}: widens at {point}, and is not reported\n{}", shown()));
                }
            }
            None if reads_text(&before) || reads_text(&after) => unknown += usize::from(found.widened),
            None => {
                kept += 1;
                unknown += usize::from(found.widened);
                if is_certain {
                    wrong.push(format!("{name}: no point widens, and a widening is reported\n{}", shown()));
                }
            }
        }
    }
    println!("{widened} widen, {kept} do not, {unknown} unknown");
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
    let least = usize::try_from(projects).unwrap();
    assert!(widened * 5 >= least && kept * 8 >= least, "{widened} widen, {kept} do not");
}
