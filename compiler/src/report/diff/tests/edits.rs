//! Tests of edits to a project with guards, tools, settings and a child: each is reported with its direction and line.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rye_grammar::ItemId;

use super::super::{DiffSide, Direction, PlanChange, PlanDiff, diff_trees};
use crate::compile::tests::compile_without_inputs;
use crate::compile::tests::world::{DEPLOY as DEPLOY_EXAMPLE, stdlib_world};
use crate::compile::{Compilation, CompileRequest, compile};
use crate::report::render::diff::{format_markdown, lines};
use crate::report::render::json::{PlanReport, render};
use crate::world::{MapWorld, Space};

pub(super) type Files = BTreeMap<&'static str, String>;

pub(super) const ROOT: &str = ".ai/directives/root.md";
pub(super) const CHILD: &str = ".ai/directives/child.md";
pub(super) const HOOKS: &str = ".ai/config/agent/hooks.yaml";
const DEPLOY: &str = ".ai/tools/p/deploy.yaml";
const PROBE: &str = ".ai/tools/p/probe.sh";
pub(super) const RESILIENCE: &str = ".ai/config/agent/resilience.yaml";
const RISKS: &str = ".ai/config/agent/capability_risk.yaml";
const AGENT: &str = ".ai/config/agent/agent.yaml";
pub(super) const PROVIDER: &str = ".ai/config/agent/providers/anthropic.yaml";
pub(super) const ERRORS: &str = ".ai/config/agent/error_classification.yaml";
pub(super) const RULES: &str = ".ai/knowledge/rules.md";

pub(super) fn directive(name: &str, metadata: &str, rest: &str) -> String {
    format!(
        "# {name}\n\n```xml\n<directive name=\"{name}\" version=\"1.0.0\">\n<metadata>\n<description>d</description>\n{metadata}\n\
         </metadata>\n{rest}\n</directive>\n```\n\nDo it at {{input:target}}.\n"
    )
}

pub(super) fn base() -> Files {
    let root = "<model provider=\"anthropic\" tier=\"fast\"/>\n<limits turns=\"8\" spend=\"0.40\"/>\n\
        <context><before>rules</before></context>\n<permissions>\n<execute><tool>p.deploy</tool><tool>p.probe</tool>\n\
        <tool net=\"a.test\" write=\"out/\">rye.bash.*</tool><directive>child</directive></execute>\n\
        </permissions>";
    let inputs =
        "<inputs><input name=\"target\" type=\"string\" enum=\"staging,canary\" default=\"staging\">t</input></inputs>";
    let child = "<model provider=\"anthropic\" tier=\"fast\"/>\n<limits turns=\"4\"/>\n\
        <permissions><execute><tool>p.probe</tool></execute></permissions>";
    let hooks = "hooks:\n\
        \x20 - id: no_rm\n    event: tool_call\n    condition: 'call.input.command contains \"rm\"'\n    action: { block: { reason: no } }\n\
        \x20 - id: enough\n    event: after_step\n    condition: 'cost.turns >= 5'\n    action: terminate\n\
        \x20 - id: more\n    event: limit\n    condition: 'limit_code == \"turns_exceeded\"'\n    action: { raise: { limit: turns, value: 12 } }\n\
        \x20 - id: hide\n    event: tool_result\n    condition: 'call.item_id == \"p/probe\"'\n    action: { modify: { content: hidden } }\n";
    let files = [
        (ROOT, directive("root", root, inputs)),
        (CHILD, directive("child", child, inputs)),
        (HOOKS, hooks.to_owned()),
        (DEPLOY, "description: Deploys.\nkind: command\ncommand: [deploy, staging]\ntimeout_seconds: 60\n\
            parameters: { type: object, properties: { size: { type: integer, maximum: 3 }, mode: { type: string, enum: [a, b] } } }\n".to_owned()),
        (PROBE, "# rye: { description: Probes. }\necho one\n".to_owned()),
        (RESILIENCE, "retry: { max_retries: 3 }\nconcurrency: { max_concurrent_children: 4 }\n".to_owned()),
        (AGENT, "approvals: { headless: deny }\n".to_owned()),
        (RULES, "Be careful.\n".to_owned()),
    ];
    files.into_iter().collect()
}

/// Replaces a text in a file. An empty `from` appends the text, or creates the file.
pub(super) fn edited(files: &Files, path: &'static str, from: &str, to: &str) -> Files {
    let mut files = files.clone();
    let text = files.entry(path).or_default();
    if from.is_empty() {
        text.push_str(to);
    } else {
        assert!(text.contains(from), "{path} holds `{from}`");
        *text = text.replacen(from, to, 1);
    }
    files
}

fn world(files: &Files) -> MapWorld<'static> {
    let errors = include_str!("../../../../../stdlib/.ai/config/agent/error_classification.yaml");
    let world = stdlib_world().with(Space::System, ERRORS, errors);
    files.iter().fold(world, |world, (path, text)| world.project(path, text))
}

fn compiled(world: &MapWorld<'_>) -> Compilation {
    compile_without_inputs(world, "root")
}

pub(super) fn printed(files: &Files) -> PlanReport {
    render(&compiled(&world(files)), Vec::new())
}

pub(super) fn compare(before: &Files, after: &Files) -> PlanDiff {
    let (old, new) = (world(before), world(after));
    let (was, is) = (compiled(&old), compiled(&new));
    diff_trees(Some(DiffSide { world: &old, compilation: &was }), Some(DiffSide { world: &new, compilation: &is }))
        .unwrap()
}

/// Renders a comparison, and checks that every change has a direction and a place.
pub(super) fn text(name: &str, found: &PlanDiff) -> String {
    fn check(name: &str, found: &PlanDiff) {
        let places = found.changes.iter().map(|change| (&change.what, &change.source));
        for (what, source) in places.chain(found.hooks.iter().map(|hook| (&hook.id, &hook.source))) {
            assert!(source.as_ref().is_some_and(|s| !s.file.is_empty() && s.line > 0), "{name}: {what} has no place");
        }
        found.starts.iter().for_each(|start| check(name, start));
    }
    check(name, found);
    assert!(format_markdown(found).contains(&found.directive));
    lines(found).into_iter().map(|line| line.text).collect::<Vec<_>>().join("\n")
}

/// The direction of the reverse edit.
#[derive(PartialEq)]
enum Back {
    /// Narrowed or neutral.
    Clean,
    /// Not proved to be narrowed.
    Unknown,
}

/// A widening edit: name, file, text before and after, expected report, and the direction of the reverse edit.
type Edit = (&'static str, &'static str, &'static str, &'static str, &'static str, Back);

const TELL: &str =
    "  - { id: tell, event: thread_started, action: { primary: fetch, item_type: knowledge, item_id: rules } }\n";

const EDITS: &[Edit] = &[
    ("guard disabled", HOOKS, "id: no_rm\n", "id: no_rm\n    enabled: false\n", "widened tool_call no_rm", Back::Clean),
    (
        "guard weakened",
        HOOKS,
        "contains \"rm\"",
        "contains \"rm -rf /\"",
        "widened tool_call no_rm: depends: the hook stops a call or thread in fewer cases",
        Back::Clean,
    ),
    (
        "guard behind more",
        HOOKS,
        "contains \"rm\"",
        "contains \"rm\" && turn > 2",
        "widened tool_call no_rm",
        Back::Clean,
    ),
    ("guard of a pattern", HOOKS, "contains \"rm\"", "matches \"^rm\"", "widened tool_call no_rm", Back::Unknown),
    ("terminate later", HOOKS, "cost.turns >= 5", "cost.turns >= 7", "widened after_step enough", Back::Clean),
    ("raise higher", HOOKS, "value: 12", "value: 20", "widened limit more", Back::Clean),
    (
        "raise of any limit",
        HOOKS,
        "'limit_code == \"turns_exceeded\"'",
        "'limit_code != \"spend_exceeded\"'",
        "limit more",
        Back::Clean,
    ),
    ("filter gone", HOOKS, "p/probe\"'", "p/other\"'", "unknown tool_result hide", Back::Unknown),
    (
        "tool's command",
        DEPLOY,
        "[deploy, staging]",
        "[deploy, production]",
        "unknown p/deploy: the command [\"deploy\",\"staging\"] →",
        Back::Unknown,
    ),
    ("tool's code", PROBE, "echo one", "echo two", "unknown p/probe: its code changed", Back::Unknown),
    (
        "tool's time",
        DEPLOY,
        "timeout_seconds: 60",
        "timeout_seconds: 600",
        "widened p/deploy: timeout_seconds 60 → 600",
        Back::Clean,
    ),
    ("tool's bound", DEPLOY, "maximum: 3", "maximum: 9", "widened p/deploy: its parameters changed", Back::Clean),
    (
        "tool's choices",
        DEPLOY,
        "enum: [a, b]",
        "enum: [a, b, c]",
        "widened p/deploy: its parameters changed",
        Back::Clean,
    ),
    (
        "tool's environment",
        DEPLOY,
        "kind: command",
        "kind: command\nenvironment: [TOKEN]",
        "widened p/deploy: environment gets TOKEN",
        Back::Clean,
    ),
    (
        "tool's needs",
        DEPLOY,
        "kind: command",
        "kind: command\nneeds: { net: [b.test] }",
        "widened p/deploy: needs.net gets b.test",
        Back::Clean,
    ),
    (
        "table of risks",
        RISKS,
        "",
        "risk_levels: { elevated: { policy: allow } }\n",
        "widened the risk table changed",
        Back::Clean,
    ),
    (
        "one risk",
        RISKS,
        "",
        "classifications:\n  - { risk: safe, patterns: [\"rye.execute.*\", \"rye.execute.tool.rye.bash.*\"] }\n",
        "widened the risk table changed",
        Back::Clean,
    ),
    (
        "acknowledgement",
        ROOT,
        "</execute>\n</permissions>",
        "</execute><acknowledge risk=\"elevated\">w</acknowledge>\n</permissions>",
        "widened `elevated` is acknowledged",
        Back::Clean,
    ),
    ("no terminal", AGENT, "deny", "allow", "widened approvals without a terminal: deny → allow", Back::Clean),
    (
        "retries",
        RESILIENCE,
        "max_retries: 3",
        "max_retries: 9",
        "widened agent/resilience retry.max_retries 3 → 9",
        Back::Clean,
    ),
    (
        "children at once",
        RESILIENCE,
        "children: 4",
        "children: 40",
        "widened agent/resilience concurrency.max_concurrent_children",
        Back::Clean,
    ),
    (
        "kind of a failure",
        ERRORS,
        "",
        "patterns: [{ id: payment, category: transient }]\n",
        "widened agent/error_classification patterns.payment.category",
        Back::Clean,
    ),
    (
        "child's grant",
        CHILD,
        "<tool>p.probe</tool>",
        "<tool>p.probe</tool><tool>rye.bash.*</tool>",
        "widened rye.execute.tool.rye.bash.*",
        Back::Clean,
    ),
    ("child's limit", CHILD, "turns=\"4\"", "turns=\"6\"", "turns raised 4 → 6", Back::Clean),
    ("host", ROOT, "net=\"a.test\"", "net=\"a.test,b.test\"", "widened net b.test", Back::Clean),
    ("folder", ROOT, "write=\"out/\"", "write=\".\"", "widened write .", Back::Clean),
    ("dearer model", ROOT, "tier=\"fast\"", "tier=\"general\"", "may spend more", Back::Clean),
    ("fallback", ROOT, "tier=\"fast\"/>", "tier=\"fast\" fallback=\"general\"/>", "may spend more", Back::Clean),
    ("other provider", ROOT, "provider=\"anthropic\"", "provider=\"openai\"", "unknown anthropic/", Back::Unknown),
    (
        "other address",
        PROVIDER,
        "",
        "base_url: https://b.test\n",
        "unknown requests and the key may be sent to another address",
        Back::Unknown,
    ),
    (
        "reminders",
        ROOT,
        "<limits turns",
        "<nudge>always</nudge>\n<limits turns",
        "widened reminders (nudge) changed",
        Back::Clean,
    ),
    ("limit", ROOT, "turns=\"8\"", "turns=\"80\"", "turns raised 8 → 80", Back::Clean),
    (
        "choices of an input",
        ROOT,
        "staging,canary",
        "staging,canary,production",
        "widened input `target` changed",
        Back::Clean,
    ),
    (
        "a hook that acts",
        HOOKS,
        "",
        "  - { id: act, event: thread_completed, action: { primary: execute, item_type: tool, item_id: p/deploy, params: {} } }\n",
        "widened thread_completed act",
        Back::Clean,
    ),
    (
        "a hook that goes on",
        HOOKS,
        "",
        "  - { id: on, event: after_step, layer: 1, condition: turn < 3, action: continue }\n",
        "widened after_step on",
        Back::Clean,
    ),
    ("a hook that steers", HOOKS, "", TELL, "widened thread_started tell", Back::Clean),
    (
        "a hook that changes results",
        HOOKS,
        "",
        "  - { id: cut, event: tool_result, action: { modify: { content: more } } }\n",
        "newly reachable: the hook changes results of tools in a thread with grants that an untrusted project may not use: the file of the hook has to be trusted",
        Back::Unknown,
    ),
    ("a guard made soft", HOOKS, "action: terminate", "action: continue", "widened after_step enough", Back::Clean),
];

#[test]
fn diff_trees_widens_for_each_edit_and_says_which() {
    for (name, path, from, to, says, back) in EDITS {
        let (before, after) = (base(), edited(&base(), path, from, to));
        let found = compare(&before, &after);
        let shown = text(name, &found);
        assert!(found.widened, "{name}\n{shown}");
        assert!(shown.contains(says), "{name}: {says}\n{shown}");
        let undone = compare(&after, &before);
        let shown = text(name, &undone);
        assert!(undone.widened == (*back == Back::Unknown), "{name} undone\n{shown}");
        assert!(!undone.is_empty() && shown.lines().count() > 1, "{name} undone\n{shown}");
    }
}

#[test]
fn changed_file_affects_only_the_id_if_no_other_change_is_listed() {
    const ONLY_ID: &str = "affects only the id";
    for (name, path, from, to, ..) in EDITS {
        let shown = text(name, &compare(&base(), &edited(&base(), path, from, to)));
        assert!(!shown.contains(ONLY_ID), "{name}: {shown}");
    }
    let reworded = compare(&base(), &edited(&base(), RULES, "careful", "very careful"));
    let shown = text("knowledge", &reworded);
    assert!(!shown.contains(ONLY_ID) && !shown.contains("knowledge rules"), "{shown}");
    let shown = text("title", &compare(&base(), &edited(&base(), ROOT, "# root", "# Root")));
    assert!(shown.contains("directive root: the change affects only the id of the plan"), "{shown}");
}

#[test]
fn diff_trees_widens_where_a_guard_is_deleted() {
    let before = base();
    let mut after = base();
    after.remove(HOOKS);
    let found = compare(&before, &after);
    let shown = text("deleted", &found);
    assert!(found.widened && shown.contains("+ widened tool_call no_rm"), "{shown}");
    assert!(shown.contains("the removed hook could stop a call or thread  .ai/config/agent/hooks.yaml:2:"), "{shown}");
    assert!(!compare(&after, &before).hooks.iter().any(|h| h.id == "no_rm" && h.direction.may_widen()));
}

/// Of many guards at one event, only the changed one is reported, and with its direction.
#[test]
fn diff_trees_reports_only_the_changed_one_of_many_guards() {
    let mut guards = String::new();
    for n in 0..20 {
        writeln!(
            guards,
            "  - {{ id: g{n}, event: tool_call, condition: 'call.input.command contains \"word{n} \"', action: {{ block: r{n} }} }}"
        )
        .unwrap();
    }
    let before = edited(&base(), HOOKS, "", &guards);
    for (from, to, says) in [
        (
            "",
            "  - { id: last, event: tool_call, condition: 'call.input.command contains \"x\"', action: { block: r } }\n",
            "- narrowed tool_call last",
        ),
        ("block: r0", "block: other", "~ neutral tool_call g0"),
        ("\"word0 \"", "\"word0\"", "- narrowed tool_call g0"),
        ("\"word0 \"", "\"word0 -f\"", "+ widened tool_call g0"),
        ("\"word0 \"'", "\"word0 \" || call.input.command contains \"y\"'", "- narrowed tool_call g0"),
    ] {
        let found = compare(&before, &edited(&before, HOOKS, from, to));
        let shown = text(to, &found);
        assert!(found.hooks.len() == 1 && shown.contains(says), "{to}: {says}\n{shown}");
    }
}

/// A block at the end of an agent's work makes the thread continue, so it can cost more. Without the block, the thread
/// may end with an answer that the block refused.
#[test]
fn diff_trees_reports_each_change_of_a_block_at_the_end() {
    let hook = "  - { id: again, event: agent_end, condition: 'result == \"\"', action: { block: again } }\n";
    let before = edited(&base(), HOOKS, "", hook);
    let after = edited(&before, HOOKS, "result == \"\"", "result == \"\" || turn < 3");
    let shown = text("more", &compare(&before, &after));
    assert!(shown.contains("+ widened agent_end again: depends: the thread now continues"), "{shown}");
    let shown = text("fewer", &compare(&after, &before));
    assert!(
        shown.contains("? unknown agent_end again: depends: an answer that the hook refused may now end"),
        "{shown}"
    );
    let shown = text("none", &compare(&before, &base()));
    assert!(shown.contains("? unknown agent_end again: depends → not there"), "{shown}");
    let follow_up = edited(&before, HOOKS, "{ block: again }", "{ follow_up: { content: again } }");
    let shown = text("follow-up", &compare(&follow_up, &base()));
    assert!(shown.contains("- narrowed agent_end again"), "{shown}");
}

/// Decision 0105: in a thread with wide grants, a hook file that changes the text for the model has an effect only if
/// the user trusts the file.
#[test]
fn diff_trees_widens_for_a_steering_hook_only_where_it_needs_trust() {
    let granted = "<tool>p.deploy</tool><tool>p.probe</tool>\n\
        <tool net=\"a.test\" write=\"out/\">rye.bash.*</tool><directive>child</directive>";
    let narrow = edited(&base(), ROOT, granted, "<tool>rye.file-system.read</tool>");
    let found = compare(&narrow, &edited(&narrow, HOOKS, "", TELL));
    let shown = text("narrow", &found);
    assert!(!found.widened && shown.contains("neutral thread_started tell"), "{shown}");
    let base_with_hook = edited(&base(), HOOKS, "", TELL);
    for edit in [
        ("fetch, item_type", "fetch,  item_type"),
        ("id: tell", "id: told"),
        ("started, action", "started, condition: depth > 0, action"),
    ] {
        let found = compare(&base_with_hook, &edited(&base_with_hook, HOOKS, edit.0, edit.1));
        assert!(!found.widened, "{edit:?}\n{}", text("told", &found));
    }
    // The new grant makes the unchanged hook a trust requirement.
    let narrow_with_hook = edited(&narrow, HOOKS, "", TELL);
    let shown = text("granted", &compare(&narrow_with_hook, &base_with_hook));
    assert!(shown.contains("widened hook `tell` has to be trusted: at thread_started: adds knowledge"), "{shown}");
    let shown = text("revoked", &compare(&base_with_hook, &narrow_with_hook));
    assert!(shown.contains("narrowed hook `tell` no longer needs trust"), "{shown}");
    let guarded =
        edited(&base(), HOOKS, "", "  - { id: too, event: tool_call, condition: turn > 6, action: { block: late } }\n");
    let shown = text("guarded", &compare(&base(), &guarded));
    assert!(
        shown.contains("narrowed tool_call too: not there → depends, newly reachable: the hook stops a call or thread")
            && shown.contains("the file of the hook has to be trusted"),
        "{shown}"
    );
}

/// Edits that are narrowing or neutral.
const HARMLESS: &[(&str, &str, &str)] = &[
    (ROOT, "Do it at", "Please do it at"),
    (ROOT, "<description>d", "<description>else"),
    (ROOT, "# root", "# Another title"),
    (ROOT, "turns=\"8\"", "turns=\"7\""),
    (ROOT, "spend=\"0.40\"", "spend=\"0.30\""),
    (ROOT, "spend=\"0.40\"", "spend=\"0.40\" tokens=\"1000\""),
    (ROOT, "<before>rules</before>", "<after>rules</after>"),
    // A guard cannot be suppressed.
    (ROOT, "<context>", "<context><suppress>no_rm</suppress>"),
    (ROOT, "<tool>p.probe</tool>", ""),
    (ROOT, "<directive>child</directive>", ""),
    (ROOT, "rye.bash.*", "rye.bash.bash"),
    (ROOT, "net=\"a.test\" ", ""),
    (ROOT, "staging,canary", "staging"),
    (ROOT, "\">t</input>", "\">the target</input>"),
    (RULES, "careful", "very careful and exact"),
    (RULES, "", "One more rule.\n"),
    (CHILD, "Do it at", "Do so at"),
    (CHILD, "<tool>p.probe</tool>", ""),
    (CHILD, "turns=\"4\"", "turns=\"3\""),
    (HOOKS, "contains \"rm\"'", "contains \"rm\" || call.input.command contains \"dd\"'"),
    (HOOKS, "contains \"rm\"'", "contains \"r\"'"),
    (HOOKS, "reason: no ", "reason: never "),
    (HOOKS, "id: no_rm", "id: no_removal"),
    (HOOKS, "cost.turns >= 5", "cost.turns > 4"),
    (HOOKS, "cost.turns >= 5", "cost.turns >= 3"),
    (HOOKS, "value: 12", "value: 10"),
    (HOOKS, "'call.item_id == \"p/probe\"'", "'call.item_id in [\"p/probe\", \"p/deploy\"]'"),
    (HOOKS, "hooks:\n", "# A comment.\nhooks:\n"),
    (HOOKS, "", "  - { id: too, event: tool_call, condition: turn > 6, action: { block: late } }\n"),
    (DEPLOY, "Deploys.", "Deploys it."),
    (DEPLOY, "kind: command", "# A comment.\nkind: command"),
    (DEPLOY, "maximum: 3", "maximum: 2"),
    (DEPLOY, "enum: [a, b]", "enum: [a]"),
    (DEPLOY, "timeout_seconds: 60", "timeout_seconds: 30"),
    (DEPLOY, "{ type: object,", "{ type: object, required: [mode],"),
    (RESILIENCE, "max_retries: 3", "max_retries: 1"),
    (RESILIENCE, "", "tool_result: { max_bytes: 1000 }\n"),
    (RESILIENCE, "", "limits: { depth: 2 }\n"),
    (RISKS, "", "risk_levels: { write: { policy: acknowledge_required } }\n"),
    (AGENT, "approvals", "# Nobody is there.\napprovals"),
];

/// The result of a tool is a text, so a shorter part occurs in each text with a longer one.
#[test]
fn diff_trees_does_not_widen_where_a_filter_looks_for_a_shorter_text() {
    let hook = "  - { id: cut, event: tool_result, condition: 'result.content contains \"SECRET\"', action: { modify: { content: cut } } }\n";
    let before = edited(&base(), HOOKS, "", hook);
    let found = compare(&before, &edited(&before, HOOKS, "\"SECRET\"", "\"SEC\""));
    assert!(!found.widened, "{}", text("shorter", &found));
    assert!(compare(&edited(&before, HOOKS, "\"SECRET\"", "\"SEC\""), &before).widened);
}

#[test]
fn diff_trees_does_not_widen_for_harmless_edits() {
    for (path, from, to) in HARMLESS {
        let name = format!("{path}: {from} → {to}");
        let found = compare(&base(), &edited(&base(), path, from, to));
        assert!(!found.widened, "{name}\n{}", text(&name, &found));
    }
}

/// Compiles without inputs; `None` if the edit broke the directive.
fn open(world: &MapWorld<'_>, id: &str) -> Option<Compilation> {
    compile(world, &CompileRequest::new(ItemId::parse(id).unwrap())).value
}

/// Removes or changes each line of each file, and compares the results that still compile. Makes only one of three
/// edits per line, selected by the line number, because each comparison compiles the project again. Returns the number
/// of comparisons.
fn holds_for_each_line(files: &Files, id: &str) -> usize {
    let old = world(files);
    let was = open(&old, id).unwrap();
    let mut compared = 0;
    for (path, text) in files {
        for (n, line) in text.lines().enumerate() {
            let digit = line.replacen(|c: char| c.is_ascii_digit(), "1", 1);
            let variants = [String::new(), digit, format!("{line} ")].into_iter().filter(|variant| variant != line);
            for variant in variants.skip(n % 3).take(1) {
                let lines = text.lines().enumerate().map(|(at, old)| if at == n { variant.as_str() } else { old });
                let mut files = files.clone();
                let mut edited = lines.collect::<Vec<_>>().join("\n");
                edited.push('\n');
                files.insert(path, edited);
                let new = world(&files);
                let Some(is) = open(&new, id) else { continue };
                let sides = (DiffSide { world: &old, compilation: &was }, DiffSide { world: &new, compilation: &is });
                let found = diff_trees(Some(sides.0), Some(sides.1)).unwrap();
                let shown = self::text(path, &found);
                compared += 1;
                assert!(was.plan_id == is.plan_id || !found.has_no_changes(), "{path}:{n} `{variant}`\n{shown}");
                let is_unnamed = |change: &PlanChange| {
                    change.what.ends_with("of the plan changed") && change.direction == Direction::Unknown
                };
                assert!(!found.changes.iter().any(is_unnamed), "{path}:{n} `{variant}`\n{shown}");
            }
        }
    }
    compared
}

#[test]
fn diff_trees_names_a_change_wherever_ids_differ() {
    assert!(holds_for_each_line(&base(), "root") > 20);
    let deploy: Files = DEPLOY_EXAMPLE.iter().map(|(path, text)| (*path, (*text).to_owned())).collect();
    assert!(holds_for_each_line(&deploy, "deploy_staging") > 20);
}
