//! Tests of edits after which the item of a blocking hook can fail or return another answer. The edits themselves are
//! narrowed or neutral.

use super::super::diff;
use super::edits::{ERRORS, Files, HOOKS, RESILIENCE, ROOT, RULES, compare, directive, edited, printed, text};

const CHILD: &str = ".ai/directives/child.md";
const JUDGE: &str = ".ai/directives/judge.md";
const HELPER: &str = ".ai/directives/helper.md";
const GATE: &str = ".ai/tools/p/gate.yaml";
const SERVER: &str = ".ai/tools/p/gate_http.yaml";
const OTHER: &str = ".ai/tools/p/other.yaml";
const VERDICT: &str = ".ai/knowledge/verdict.md";

/// Returns a project with hooks that refuse calls with the answer of a tool, a directive or knowledge.
fn base() -> Files {
    let root = "<model provider=\"anthropic\" tier=\"fast\"/>\n\
        <limits turns=\"8\" spend=\"0.40\" spawns=\"4\" depth=\"3\" duration_seconds=\"600\"/>\n\
        <permissions>\n<execute><tool>p.other</tool><tool>p.plain</tool><tool net=\"a.test\">p.gate</tool><tool>rye.file-system.read</tool>\n\
        <tool net=\"a.test,b.test\">p.gate_http</tool>\n<directive>child</directive><directive>helper</directive></execute>\n</permissions>\n\
        <hooks><hook id=\"own\" event=\"tool_call\"><when>call.input.path == \"own\"</when>\
        <execute item_type=\"tool\" item_id=\"p/other\"/></hook></hooks>";
    let inputs =
        "<inputs><input name=\"target\" type=\"string\" enum=\"staging,canary\" default=\"staging\">t</input></inputs>";
    let what = "<inputs><input name=\"target\" type=\"string\">t</input><input name=\"what\">w</input></inputs>";
    let metadata = |limits: &str, grants: &str| {
        format!(
            "<model provider=\"anthropic\" tier=\"fast\"/>\n<limits {limits}/>\n<permissions><execute>{grants}</execute></permissions>"
        )
    };
    let judge = metadata(
        "turns=\"4\" spend=\"0.10\"",
        "<tool>rye.file-system.read</tool><tool>p.other</tool><directive>helper</directive>",
    ) + "\n<context><before>rules</before></context>";
    let hooks = "hooks:\n\
        \x20 - id: guard\n    event: tool_call\n    condition: 'call.input.path == \"a\"'\n    action: { execute: { item_type: tool, item_id: p/gate, params: { file: \"${directive}\" } } }\n\
        \x20 - id: placed\n    event: tool_call\n    condition: 'call.input.path == \"b\"'\n    grants: [rye.execute.tool.p.gate]\n    action: { execute: { item_type: tool, item_id: \"p/ga${call.input.gate}\", params: {} } }\n\
        \x20 - id: asked\n    event: tool_call\n    condition: 'call.input.path == \"c\" && directive == \"child\"'\n    action: { execute: { item_type: directive, item_id: judge, params: { what: \"${call.name}\" } } }\n\
        \x20 - id: remote\n    event: tool_call\n    condition: 'call.input.path == \"d\"'\n    action: { execute: { item_type: tool, item_id: p/gate_http, params: {} } }\n\
        \x20 - id: fixed\n    event: tool_call\n    condition: 'call.input.path == \"e\"'\n    action: { execute: { item_type: knowledge, item_id: verdict, params: {} } }\n\
        \x20 - id: plain\n    event: tool_call\n    condition: 'call.input.path == \"f\"'\n    action: { execute: { item_type: tool, item_id: p/plain, params: {} } }\n";
    let gate = "description: Gate.\nkind: command\ncommand: [gate]\npersistent: true\ntimeout_seconds: 60\n\
        environment: [GATE_TOKEN]\nneeds: { net: [a.test] }\nparameters: { type: object, properties: { file: { type: string } } }\n";
    let files = [
        (ROOT, directive("root", root, inputs)),
        (CHILD, directive("child", &metadata("turns=\"4\"", "<tool>rye.file-system.read</tool>"), inputs)),
        (JUDGE, directive("judge", &judge, what)),
        (HELPER, directive("helper", &metadata("turns=\"4\"", "<tool>p.other</tool>"), inputs)),
        (HOOKS, hooks.to_owned()),
        (GATE, gate.to_owned()),
        (SERVER, "description: Asks.\nkind: http\nmethod: GET\nurl: https://a.test/x\nneeds: { net: [a.test] }\n".to_owned()),
        (OTHER, "description: Other.\nkind: command\ncommand: [other]\nparameters: { type: object, properties: { x: { type: string } } }\n".to_owned()),
        (".ai/tools/p/plain.yaml", "description: Plain.\nkind: command\ncommand: [plain]\n".to_owned()),
        (RULES, "Be careful.\n".to_owned()),
        (VERDICT, "{\"action\": \"block\", \"reason\": \"no\"}\n".to_owned()),
        (RESILIENCE, "retry: { max_retries: 3 }\nconcurrency: { max_concurrent_children: 4 }\n".to_owned()),
    ];
    files.into_iter().collect()
}

/// An edit: name, file, text before and after, and the expected line of a hook.
type Edit = (&'static str, &'static str, &'static str, &'static str, &'static str);

const WEAKENING: &[Edit] = &[
    (
        "schema",
        GATE,
        "file: { type: string }",
        "file: { type: string, maxLength: 3 }",
        "guard: depends: the call of the hook may fail or give another answer: p/gate: its parameters changed: `file`",
    ),
    (
        "required key",
        GATE,
        "{ type: object, properties: {",
        "{ type: object, required: [file], properties: {",
        "placed",
    ),
    ("time", GATE, "timeout_seconds: 60", "timeout_seconds: 1", "p/gate: timeout_seconds 60 → 1"),
    ("persistent program", GATE, "persistent: true\n", "", "p/gate: persistent true → false"),
    ("environment", GATE, "environment: [GATE_TOKEN]\n", "", "p/gate: environment loses GATE_TOKEN"),
    ("hosts of the tool", GATE, "needs: { net: [a.test] }\n", "", "p/gate: needs.net loses a.test"),
    ("program", GATE, "[gate]", "[pass]", "p/gate: the command"),
    (
        "request",
        SERVER,
        "method: GET",
        "method: HEAD",
        "remote: depends: the call of the hook may fail or give another answer: p/gate_http",
    ),
    (
        "host of the grant",
        ROOT,
        "a.test,b.test",
        "b.test",
        "remote: depends: the call of the hook may fail or give another answer: `root` loses net a.test",
    ),
    ("grants of the hook", HOOKS, "    grants: [rye.execute.tool.p.gate]\n", "", "placed"),
    (
        "grant for the directive's own hook",
        ROOT,
        "<tool>p.other</tool>",
        "",
        "own: depends: the call of the hook may fail or give another answer: no grant of `root` allows rye.execute.tool.p.other",
    ),
    (
        "text of an answer",
        VERDICT,
        "block",
        "blok",
        "fixed: depends: the call of the hook may fail or give another answer: knowledge verdict changed",
    ),
    (
        "choices of an input",
        JUDGE,
        "<input name=\"what\">",
        "<input name=\"what\" enum=\"a,b\">",
        "asked: depends: the call of the hook may fail or give another answer: directive judge: input `what` changed",
    ),
    ("turns of the directive", JUDGE, "turns=\"4\"", "turns=\"1\"", "directive judge: its limit `turns` is lower"),
    (
        "money of the directive",
        JUDGE,
        "spend=\"0.10\"",
        "spend=\"0.05\"",
        "directive judge: its limit `spend` is lower",
    ),
    ("grants of the directive", JUDGE, "<tool>rye.file-system.read</tool>", "", "asked"),
    ("prompt of the directive", JUDGE, "Do it", "Do nothing", "directive judge: judge changed"),
    ("knowledge of the directive", RULES, "careful", "careless", "directive judge: rules changed"),
    (
        "a tool of the directive",
        OTHER,
        "x: { type: string }",
        "x: { type: string, maxLength: 3 }",
        "directive judge: p/other",
    ),
    (
        "a directive that it starts",
        HELPER,
        "turns=\"4\"",
        "turns=\"1\"",
        "directive helper: its limit `turns` is lower",
    ),
    (
        "depth",
        ROOT,
        "depth=\"3\"",
        "depth=\"0\"",
        "asked: depends: the call of the hook may fail or give another answer: the limit `depth` of `root` is lower",
    ),
    ("spawns", ROOT, "spawns=\"4\"", "spawns=\"1\"", "the limit `spawns` of `root` is lower"),
    ("money", ROOT, "spend=\"0.40\"", "spend=\"0.30\"", "the limit `spend` of `root` is lower"),
    ("turns", ROOT, "turns=\"8\"", "turns=\"2\"", "the limit `turns` of `root` is lower"),
    ("limit of the thread with the hook", CHILD, "turns=\"4\"", "turns=\"3\"", "the limit `turns` of `child` is lower"),
    (
        "grant for the directive",
        ROOT,
        "<tool>rye.file-system.read</tool>",
        "",
        "`root` loses rye.execute.tool.rye.file-system.read",
    ),
    ("retries", RESILIENCE, "max_retries: 3", "max_retries: 0", "asked"),
    ("children at once", RESILIENCE, "children: 4", "children: 1", "asked"),
    ("failures", ERRORS, "", "patterns: [{ id: server_error, category: permanent }]\n", "asked"),
];

#[test]
fn edit_of_what_the_item_of_a_blocking_hook_needs_is_unknown() {
    for (name, path, from, to, says) in WEAKENING {
        let found = compare(&base(), &edited(&base(), path, from, to));
        let shown = text(name, &found);
        assert!(found.widened, "{name}\n{shown}");
        let is_told = |line: &str| line.contains("? unknown tool_call") && line.contains(says);
        assert!(shown.lines().any(is_told), "{name}: {says}\n{shown}");
    }
}

#[test]
fn edit_that_the_item_of_a_blocking_hook_does_not_need_keeps_its_direction() {
    for (name, path, from, to) in [
        ("description of the tool", GATE, "Gate.", "The gate."),
        ("calls at once", GATE, "persistent: true", "persistent: true\nidempotent: false"),
        ("turns above those of the item", ROOT, "turns=\"8\"", "turns=\"6\""),
        ("grant of a tool that the hook runs without it", ROOT, "<tool>p.plain</tool>", ""),
        ("title of the directive", JUDGE, "# judge", "# Judge"),
        ("another condition", HOOKS, "condition: 'call.input.path == \"a\"'", "condition: '\"a\" == call.input.path'"),
    ] {
        let found = compare(&base(), &edited(&base(), path, from, to));
        assert!(!found.widened, "{name}\n{}", text(name, &found));
    }
    // The answer of an observing hook has no effect, so its loss is not reported as unknown.
    let observing = edited(
        &without_judge(&base()),
        HOOKS,
        "id: guard\n    event: tool_call",
        "id: guard\n    event: after_complete",
    );
    let observing = edited(&observing, HOOKS, "call.input.path == \"a\"", "status == \"error\"");
    let observing = edited(&observing, HOOKS, "${directive}", "${status}");
    let observing = edited(&observing, HOOKS, "[rye.execute.tool.p.gate]", "[rye.execute.tool.p.other]");
    let observing = edited(&observing, HOOKS, "p/ga${call.input.gate}", "p/o${call.input.gate}");
    let found = compare(&observing, &edited(&observing, GATE, "timeout_seconds: 60", "timeout_seconds: 1"));
    assert!(!found.widened, "{}", text("observing", &found));
}

/// Moves the hook that starts a directive to an event that only observes.
fn without_judge(files: &Files) -> Files {
    let files = edited(files, HOOKS, "id: asked\n    event: tool_call", "id: asked\n    event: after_complete");
    let files = edited(&files, HOOKS, "'call.input.path == \"c\" && directive", "'directive");
    edited(&files, HOOKS, "${call.name}", "x")
}

#[test]
fn failing_item_of_a_hook_that_fails_the_thread_is_narrowed() {
    let strict = edited(&base(), HOOKS, "id: guard\n", "id: guard\n    on_failure: fail\n");
    let strict = edited(&strict, HOOKS, "id: placed\n", "id: placed\n    on_failure: fail\n");
    let strict = without_judge(&strict);
    for (from, to, widened) in [
        ("timeout_seconds: 60", "timeout_seconds: 1", false),
        ("file: { type: string }", "file: { type: string, maxLength: 3 }", false),
        ("environment: [GATE_TOKEN]\n", "", true),
    ] {
        let found = compare(&strict, &edited(&strict, GATE, from, to));
        assert_eq!(found.widened, widened, "{to}\n{}", text(to, &found));
    }
}

/// A printed plan contains its limits and grants, and a description of what each hook starts.
#[test]
fn lower_limit_of_a_printed_plan_with_a_blocking_hook_is_unknown() {
    let hooks = edited(&base(), HOOKS, " && directive == \"child\"", "");
    for (from, to) in [("depth=\"3\"", "depth=\"0\""), ("net=\"a.test,b.test\"", "net=\"b.test\"")] {
        let [before, after] = [hooks.clone(), edited(&hooks, ROOT, from, to)].map(|files| printed(&files));
        let found = diff(Some(&before), Some(&after));
        assert!(found.widened, "{to}\n{}", text(to, &found));
    }
}
