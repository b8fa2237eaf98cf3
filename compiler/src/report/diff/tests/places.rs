//! Tests of the places and the texts of changes: tools, hooks and ceilings.

use super::super::{DiffSide, Direction, PlanDiff, diff_trees};
use crate::compile::tests::compile_without_inputs;
use crate::compile::tests::world::{stdlib_world, with_directives};
use crate::world::MapWorld;

const TOOL: &str = "description: D\nkind: command\ncommand: [echo, one, \"{x}\"]\nparameters:\n  type: object\n  \
    properties:\n    y: { type: string }\n    x: { type: string, enum: [a, b] }\ntimeout_seconds: 30\n";
const HTTP: &str = "description: D\nkind: http\nmethod: GET\nurl: https://api.test/x\nheaders: { a: b }\n";
const SCRIPT: &str = "# rye: { description: Probes. }\necho one\necho two\n";
const HOOKS: &str = "hooks:\n  - id: more\n    event: limit\n    condition: 'limit_code == \"turns_exceeded\"'\n    \
    action: { raise: { limit: turns, value: 12 } }\n  - id: stop\n    event: after_step\n    condition: turn > 3\n    \
    action: { terminate: { status: error } }\n";
const AGENT: &str = "limits: { max: { turns: 40 } }\n";

fn world(edit: (&str, &str)) -> MapWorld<'static> {
    let metadata =
        "<metadata><limits turns=\"3\"/><permissions><execute><tool>t.*</tool></execute></permissions></metadata>";
    let world = with_directives(stdlib_world(), &[("leaf", "", metadata, "Do it.")]);
    let files = [
        (".ai/tools/t/cmd.yaml", TOOL),
        (".ai/tools/t/http.yaml", HTTP),
        (".ai/tools/t/probe.sh", SCRIPT),
        (".ai/config/agent/hooks.yaml", HOOKS),
        (".ai/config/agent/agent.yaml", AGENT),
    ];
    files.iter().fold(world, |world, (path, text)| world.project(path, text.replacen(edit.0, edit.1, 1)))
}

fn compare(before: (&str, &str), after: (&str, &str)) -> PlanDiff {
    let (old, new) = (world(before), world(after));
    let (was, is) = (compile_without_inputs(&old, "leaf"), compile_without_inputs(&new, "leaf"));
    diff_trees(Some(DiffSide { world: &old, compilation: &was }), Some(DiffSide { world: &new, compilation: &is }))
        .unwrap()
}

/// Returns the changes as `direction what file:line:column`, without the changes of whole files.
fn shown(found: &PlanDiff) -> Vec<String> {
    let place = |source: &Option<crate::plan::source::SourceReport>| {
        source.as_ref().map_or_else(String::new, |s| format!("{}:{}:{}", s.file, s.line, s.column))
    };
    let changes = found.changes.iter().map(|c| (c.direction, c.what.clone(), place(&c.source)));
    let hooks = found.hooks.iter().map(|h| (h.direction, format!("{}: {}", h.id, h.why), place(&h.source)));
    changes.chain(hooks).map(|(direction, what, place)| format!("{} {what} {place}", direction.as_str())).collect()
}

#[test]
fn change_of_a_tool_has_the_line_of_its_key() {
    for (edit, says) in [
        (("one, \"{x}\"", "two, \"{x}\""), "command [\"echo\",\"two\",\"{x}\"] .ai/tools/t/cmd.yaml:3:1"),
        (("enum: [a, b]", "enum: [a]"), "narrowed t/cmd: its parameters changed: `x` .ai/tools/t/cmd.yaml:8:5"),
        (
            ("enum: [a, b]", "enum: [b, a], description: d"),
            "neutral t/cmd: its parameters are declared differently, but accept the same values .ai/tools/t/cmd.yaml:4:1",
        ),
        (("timeout_seconds: 30", "timeout_seconds: 31"), "timeout_seconds 30 → 31 .ai/tools/t/cmd.yaml:9:1"),
        (("timeout_seconds: 30\n", "timeout_seconds: 30\nenvironment: [FOO]\n"), "gets FOO .ai/tools/t/cmd.yaml:10:1"),
        (
            ("method: GET", "method: POST"),
            "GET https://api.test/x → the request POST https://api.test/x .ai/tools/t/http.yaml:3:1",
        ),
        (("test/x", "test/y"), "→ the request GET https://api.test/y .ai/tools/t/http.yaml:4:1"),
        (("{ a: b }", "{ a: c }"), "t/http: its headers changed: `a` .ai/tools/t/http.yaml:5:1"),
        (("echo two", "echo three"), "unknown t/probe: its code changed .ai/tools/t/probe.sh:3:1"),
    ] {
        let found = compare(("", ""), edit);
        let lines = shown(&found);
        assert!(lines.iter().any(|line| line.ends_with(says)), "{edit:?} {says}\n{lines:#?}");
    }
    // A removed key has its place in the old file.
    let found = compare(("timeout_seconds: 30", "timeout_seconds: 30\nenvironment: [FOO]"), ("", ""));
    assert!(
        shown(&found).iter().any(|line| line.ends_with("loses FOO .ai/tools/t/cmd.yaml:10:1")),
        "{:?}",
        shown(&found)
    );
}

#[test]
fn changed_action_of_a_hook_is_described() {
    for (edit, says) in [
        (("value: 12", "value: 13"), "widened more: the hook raises the limit `turns` to 13, previously to 12"),
        (("value: 12", "value: 11"), "narrowed more: the hook raises the limit `turns` to 11, previously to 12"),
        (
            ("status: error", "status: cancelled"),
            "neutral stop: the action of the hook is `terminate` with the status `cancelled`, previously `terminate` with the status `error`",
        ),
        (
            ("{ raise: { limit: turns, value: 12 } }", "{ primary: execute, item_type: tool, item_id: t/probe }"),
            "widened more: the hook executes tool `t/probe`; previously the hook does `raise`",
        ),
    ] {
        let lines = shown(&compare(("", ""), edit));
        assert!(lines.iter().any(|line| line.starts_with(says)), "{edit:?} {says}\n{lines:#?}");
    }
}

#[test]
fn other_status_of_an_ended_thread_is_unknown_where_a_hook_may_act_on_it() {
    let status = ("status: error", "status: completed");
    assert!(!compare(("", ""), status).widened);
    let end = "  - { id: done, event: thread_completed, action: { primary: execute, item_type: tool, item_id: t/cmd, \
               params: { x: a } } }\n";
    let with_end = |edit: (&str, &str)| {
        let hooks = format!("{HOOKS}{end}").replacen(edit.0, edit.1, 1);
        world(("", "")).project(".ai/config/agent/hooks.yaml", hooks)
    };
    let (old, new) = (with_end(("", "")), with_end(status));
    let (was, is) = (compile_without_inputs(&old, "leaf"), compile_without_inputs(&new, "leaf"));
    let sides = [(&old, &was), (&new, &is)].map(|(world, compilation)| Some(DiffSide { world, compilation }));
    assert!(diff_trees(sides[0], sides[1]).unwrap().widened);
}

#[test]
fn renamed_or_split_hook_is_one_line() {
    let guard = |id: &str, condition: &str| {
        format!("  - {{ id: {id}, event: tool_call, condition: '{condition}', action: {{ block: no }} }}\n")
    };
    let secret = "call.input.path contains \"secret\"";
    let compare = |hooks: [String; 2]| {
        let [old, new] =
            hooks.map(|hooks| world(("", "")).project(".ai/config/agent/hooks.yaml", format!("{HOOKS}{hooks}")));
        let (was, is) = (compile_without_inputs(&old, "leaf"), compile_without_inputs(&new, "leaf"));
        let sides = [(&old, &was), (&new, &is)].map(|(world, compilation)| Some(DiffSide { world, compilation }));
        diff_trees(sides[0], sides[1]).unwrap()
    };
    let split = guard("a1", &format!("{secret} && call.input.path contains \"a\""))
        + &guard("a2", &format!("{secret} && !(call.input.path contains \"a\")"));
    for (now, says) in [
        (guard("other", secret), "neutral secrets: replaced by `other`, which acts in the same cases"),
        (split, "neutral secrets: replaced by `a1`, `a2`, which together act in the same cases"),
    ] {
        let found = compare([guard("secrets", secret), now]);
        let lines = shown(&found);
        assert!(!found.widened && found.hooks.len() == 1, "{lines:#?}");
        assert!(lines.iter().any(|line| line.starts_with(says)), "{says}\n{lines:#?}");
        // Each hook of the file is one line, without its keys.
        assert!(!lines.iter().any(|line| line.contains(".condition")), "{lines:#?}");
    }
    let strict = guard("secrets", secret).replace("event:", "on_failure: fail, event:");
    assert!(compare([strict, guard("other", secret)]).widened);
    let narrower = guard("other", &format!("{secret} && call.input.path contains \"a\""));
    assert!(compare([guard("secrets", secret), narrower]).widened);
}

#[test]
fn example_of_a_condition_on_an_output_has_the_declared_type() {
    let outputs = "<outputs><output name=\"url\" required=\"true\">u</output></outputs>";
    let hook = |text: &str| {
        format!(
            "hooks:\n  - {{ id: tell, event: directive_return, condition: 'outputs.url contains \"{text}\"', action: {{ \
             primary: execute, item_type: tool, item_id: t/cmd, params: {{ x: a }} }} }}\n"
        )
    };
    let world = |text: &str| {
        let rest =
            format!("<metadata><permissions><execute><tool>t.*</tool></execute></permissions></metadata>{outputs}");
        with_directives(stdlib_world(), &[("leaf", "", &rest, "Do it.")])
            .project(".ai/tools/t/cmd.yaml", TOOL)
            .project(".ai/config/agent/hooks.yaml", hook(text))
    };
    let (old, new) = (world("https"), world("http"));
    let (was, is) = (compile_without_inputs(&old, "leaf"), compile_without_inputs(&new, "leaf"));
    let sides = [(&old, &was), (&new, &is)].map(|(world, compilation)| Some(DiffSide { world, compilation }));
    let lines = shown(&diff_trees(sides[0], sides[1]).unwrap());
    assert!(lines.iter().any(|line| line.contains("for example where outputs.url is \"…http…\"")), "{lines:#?}");
}

#[test]
fn ceilings_of_limits_are_compared_by_their_order() {
    let lower = compare(("", ""), ("turns: 40", "turns: 2"));
    assert!(!lower.widened, "{:#?}", shown(&lower));
    let lines = shown(&lower);
    let says = "narrowed agent/agent limits.max.turns 40 → 2 .ai/config/agent/agent.yaml:1:25";
    assert!(lines.iter().any(|line| line == says), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("limit_ceilings")), "{lines:#?}");
    assert!(compare(("turns: 40", "turns: 2"), ("", "")).widened);
    let removed = compare(("", ""), (AGENT, "limits: {}\n"));
    assert!(removed.changes.iter().any(|change| change.direction == Direction::Widened), "{:#?}", shown(&removed));
}

#[test]
fn changed_model_grants_and_reminders_have_the_line_of_their_declaration() {
    let provider = "id: house\nwire: openai-chat\nbase_url: http://localhost:1/v1\ndefault_tier: general\ntiers: \
                    { general: big, fast: small }\nmodels:\n  - id: big\n    context_window: 100000\n    max_output: \
                    8000\n    prices: { input: '2', output: '8' }\n  - { id: small, context_window: 90000, max_output: \
                    8000, prices: { input: '1', output: '2' } }\n";
    let metadata = "<metadata>\n<model provider=\"house\" tier=\"general\" fallback=\"fast\"/>\n<permissions><execute>\n\
                    <tool write=\"out/\">t.cmd</tool>\n</execute></permissions>\n</metadata>";
    let world = |edit: (&str, &str)| {
        let metadata = metadata.replacen(edit.0, edit.1, 1);
        let world = with_directives(stdlib_world(), &[("leaf", "", &metadata, "Do it.")]);
        world
            .project(".ai/config/agent/providers/house.yaml", provider.replacen(edit.0, edit.1, 1))
            .project(".ai/tools/t/cmd.yaml", TOOL)
    };
    let house = ".ai/config/agent/providers/house.yaml";
    for (edit, says) in [
        (("input: '2'", "input: '3'"), format!("widened its prices changed: may spend more {house}:10:")),
        (
            ("localhost:1/v1", "localhost:2/v1"),
            format!("unknown requests and the key may be sent to another address {house}:3:"),
        ),
        (("context_window: 100000", "context_window: 110000"), format!("may spend more {house}:8:")),
        (
            ("tier=\"general\"", "tier=\"general\" temperature=\"0.5\""),
            "neutral its temperature – → 0.5 .ai/directives/leaf.md:".to_owned(),
        ),
        (
            ("</permissions>", "</permissions>\n<nudge>always</nudge>"),
            "widened reminders (nudge) changed: the thread makes more turns after text answers .ai/directives/leaf.md:10:".to_owned(),
        ),
        (("out/", "out"), "neutral `capabilities` of the plan changed .ai/directives/leaf.md:8:".to_owned()),
    ] {
        let (old, new) = (world(("", "")), world(edit));
        let (was, is) = (compile_without_inputs(&old, "leaf"), compile_without_inputs(&new, "leaf"));
        let sides = [(&old, &was), (&new, &is)].map(|(world, compilation)| Some(DiffSide { world, compilation }));
        let lines = shown(&diff_trees(sides[0], sides[1]).unwrap());
        assert!(lines.iter().any(|line| line.contains(&says)), "{edit:?} {says}\n{lines:#?}");
    }
}

#[test]
fn added_grant_of_a_child_that_its_parent_does_not_allow_is_neutral() {
    let compared = |grants: &str| {
        let world = |child: &str| {
            let permissions =
                |inside: &str| format!("<metadata><permissions><execute>{inside}</execute></permissions></metadata>");
            let root = permissions(&format!("<directive>child</directive><tool>{grants}</tool>"));
            let child = permissions(child);
            let body = "Call `rye_execute(item_type=\"directive\", item_id=\"child\")`.";
            with_directives(stdlib_world(), &[("leaf", "", &root, body), ("child", "", &child, "Do it.")])
        };
        let read = "<tool>rye.file-system.read</tool>";
        let (old, new) = (world(read), world(&format!("{read}<tool>rye.file-system.write</tool>")));
        let (was, is) = (compile_without_inputs(&old, "leaf"), compile_without_inputs(&new, "leaf"));
        let before = DiffSide { world: &old, compilation: &was };
        diff_trees(Some(before), Some(DiffSide { world: &new, compilation: &is })).unwrap()
    };
    let found = compared("rye.file-system.read");
    let [change] = found.starts[0].capabilities.as_slice() else { panic!("{:?}", found.starts) };
    assert_eq!(
        (change.direction, change.what.as_str()),
        (Direction::Neutral, "rye.execute.tool.rye.file-system.write")
    );
    assert!(compared("rye.file-system.*").widened);
}

#[test]
fn hook_moved_to_a_layer_whose_answer_is_ignored_no_longer_stops() {
    let stop = "    event: after_step\n    condition: turn > 3\n";
    let moved = |layer: &str, action: (&str, &str)| {
        let hooks = HOOKS.replacen(action.0, action.1, 1);
        let moved = hooks.replacen(stop, &format!("    layer: {layer}\n{stop}"), 1);
        let sides = [hooks, moved].map(|hooks| world(("", "")).project(".ai/config/agent/hooks.yaml", hooks));
        let compiled = [&sides[0], &sides[1]].map(|world| compile_without_inputs(world, "leaf"));
        let side = |at: usize| Some(DiffSide { world: &sides[at], compilation: &compiled[at] });
        diff_trees(side(0), side(1)).unwrap()
    };
    let action = "{ terminate: { status: error } }";
    let found = moved("4", (action, action));
    let lines = shown(&found);
    assert!(found.widened, "{lines:#?}");
    assert!(lines.iter().any(|line| line.starts_with("widened stop: the removed hook could stop")), "{lines:#?}");
    // The hook still runs its item, but the result no longer stops the thread.
    let start = "{ primary: execute, item_type: tool, item_id: t/probe }";
    let lines = shown(&moved("4.5", (action, start)));
    assert!(lines.iter().any(|line| line.starts_with("unknown stop: the result of the hook could stop")), "{lines:#?}");
    assert!(!moved("3.2", (action, action)).widened);
}

/// Returns the lines of a comparison of two lists of hooks.
fn compare_orders(old: &[&str], new: &[&str]) -> Vec<String> {
    let [old, new] = [old, new].map(|hooks| {
        let hooks: Vec<String> = hooks.iter().map(|hook| format!("  - {{ {hook} }}\n")).collect();
        world(("", "")).project(".ai/config/agent/hooks.yaml", format!("hooks:\n{}", hooks.concat()))
    });
    let (was, is) = (compile_without_inputs(&old, "leaf"), compile_without_inputs(&new, "leaf"));
    let sides = [(&old, &was), (&new, &is)].map(|(world, compilation)| Some(DiffSide { world, compilation }));
    shown(&diff_trees(sides[0], sides[1]).unwrap())
}

#[test]
fn changed_order_of_hooks_is_named_at_the_hooks() {
    let guard = "id: guard, event: tool_call, condition: 'call.input.x == \"a\"', action: { block: no }";
    let other = "id: other, event: tool_call, condition: 'call.input.y == \"a\"', action: { block: never }";
    let item = "primary: execute, item_type: tool, item_id: t/cmd, params: { x: a }";
    let check = &format!("id: check, event: tool_call, action: {{ {item} }}");
    let moved = "the place of the hook in the order of the hooks changed .ai/config/agent/hooks.yaml:";
    let lines = compare_orders(&[guard, check], &[check, guard]);
    for (line, id) in [(2, "check"), (3, "guard")] {
        let says = format!("unknown {id}: {moved}{line}:");
        assert!(lines.iter().any(|one| one.starts_with(&says)), "{says}\n{lines:#?}");
    }
    // Guards refuse the same calls in each order, for another reason.
    let lines = compare_orders(&[guard, other], &[other, guard]);
    let says = "neutral guard: if two hooks block the same call, the other hook now gives the reason";
    assert!(lines.iter().any(|one| one.starts_with(says)), "{lines:#?}");
    assert!(!lines.iter().any(|one| one.starts_with("unknown")), "{lines:#?}");
    // Hooks that only observe run in their order.
    let observe = |id: &str| format!("id: {id}, event: after_complete, action: {{ {item} }}");
    let (one, two) = (observe("one"), observe("two"));
    let lines = compare_orders(&[&one, &two], &[&two, &one]);
    let says = "unknown `hooks` of the plan changed .ai/config/agent/hooks.yaml:2:";
    assert!(lines.iter().any(|one| one.starts_with(says)), "{lines:#?}");
}

#[test]
fn missing_permissions_have_the_place_of_the_directive() {
    let permissions = "<permissions><execute><tool>t.*</tool></execute></permissions>";
    let [old, new] = [permissions, ""].map(|inside| {
        let metadata = format!("<metadata>{inside}</metadata>");
        let world = with_directives(stdlib_world(), &[("leaf", "", &metadata, "Do it.")]);
        world.project(".ai/tools/t/cmd.yaml", TOOL)
    });
    let (was, is) = (compile_without_inputs(&old, "leaf"), compile_without_inputs(&new, "leaf"));
    let sides = [(&old, &was), (&new, &is)].map(|(world, compilation)| Some(DiffSide { world, compilation }));
    for [old, new] in [[sides[0], sides[1]], [sides[1], sides[0]]] {
        let found = diff_trees(old, new).unwrap();
        let inherited = found.capabilities.iter().find(|change| change.by == "inherited at spawn").unwrap();
        let place = inherited.source.as_ref().map(|source| (source.file.as_str(), source.line));
        assert_eq!(place, Some((".ai/directives/leaf.md", 1)));
    }
}
