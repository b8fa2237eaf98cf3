//! Tests of the spawn graph: edges, cycles, permissions, budgets and outputs (`language.md` 7, 9 and 11).
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use crate::diagnostics::Diagnostic;
use crate::validate::{Selection, check};
use crate::world::{MapWorld, Space};

/// A directive: its id, its metadata, its outputs, its body.
type DirectiveSource = (&'static str, &'static str, &'static str, &'static str);

/// Returns the spawn diagnostics of some directives, as `code: message`.
fn spawn_messages(directives: &[DirectiveSource], hooks: &str) -> Vec<String> {
    let mut world = MapWorld::new().with(
        Space::System,
        ".ai/config/agent/providers/p.yaml",
        "id: p\nwire: scripted\ndefault_tier: general\ntiers: {general: m}\nmodels:\n  - {id: m, context_window: 100000, max_output: 8192, prices: {input: '0.1', output: '0.5'}}\n",
    );
    for (id, metadata, outputs, body) in directives {
        let name = id.rsplit('/').next().unwrap();
        let outputs: Vec<String> =
            outputs.split_whitespace().map(|name| format!("<output name=\"{name}\"/>")).collect();
        let outputs =
            if outputs.is_empty() { String::new() } else { format!("<outputs>{}</outputs>", outputs.concat()) };
        let text = format!(
            "```xml\n<directive name=\"{name}\"><metadata><description>{id}</description>{metadata}</metadata>{outputs}</directive>\n```\n\n{body}\n"
        );
        world.insert(Space::Project, &format!(".ai/directives/{id}.md"), text);
    }
    if !hooks.is_empty() {
        world.insert(Space::Project, ".ai/config/agent/hooks.yaml", hooks);
    }
    let report = check(&world, &Selection::All);
    let of_spawns = |d: &&Diagnostic| d.code().starts_with("spawn::") || d.code() == "hook::starts-more";
    let spawns = report.diagnostics.iter().filter(of_spawns);
    spawns.map(|d| format!("{}: {}", d.code(), d.message())).collect()
}

fn spawn_codes(directives: &[DirectiveSource], hooks: &str) -> Vec<String> {
    spawn_messages(directives, hooks).into_iter().map(|t| t.split(": ").next().unwrap().to_owned()).collect()
}

const ALL: &str = "<permissions><execute><directive>*</directive></execute></permissions>";
const START_B: &str = "Call `rye_execute(item_type=\"directive\", item_id=\"b\")`.";
const START_A: &str = "Call `rye_execute(item_type=\"directive\", item_id=\"a\")`.";
const NOTHING: &[String] = &[];

#[test]
fn unbounded_spawn_cycle_is_reported_and_bounded_is_not() {
    assert_eq!(spawn_codes(&[("a", ALL, "", START_B), ("b", ALL, "", START_A)], ""), ["spawn::cycle"]);
    assert_eq!(spawn_codes(&[("a", ALL, "", START_A)], ""), ["spawn::cycle"]);
    let bounded = "<limits depth=\"2\"/><permissions><execute><directive>*</directive></execute></permissions>";
    assert_eq!(spawn_codes(&[("a", bounded, "", START_B), ("b", ALL, "", START_A)], ""), NOTHING);
    // Without an edge back there is no cycle, and a grant alone is no edge.
    assert_eq!(spawn_codes(&[("a", ALL, "", START_B), ("b", ALL, "", "Do it.")], ""), NOTHING);
    // A call of the thread tool can close a cycle, and so can a hook that always fires.
    let by_tool =
        "Call `rye_execute(item_id=\"rye/agent/threads/thread_directive\", parameters={\"directive_name\": \"a\"})`.";
    let tool = "<permissions><execute><directive>*</directive><tool>rye.agent.threads.*</tool></execute></permissions>";
    assert_eq!(spawn_codes(&[("a", tool, "", by_tool)], ""), ["spawn::cycle"]);
    let always = "hooks: [{id: again, event: agent_end, action: {primary: execute, item_type: directive, item_id: b}}]";
    assert!(spawn_codes(&[("b", ALL, "", "Do it.")], always).contains(&"spawn::cycle".to_owned()));
    // A hook that does not fire in every thread can end the recursion.
    let perhaps = "hooks: [{id: again, event: agent_end, condition: 'cost.turns < 3', action: {primary: execute, item_type: directive, item_id: b}}]";
    assert!(!spawn_codes(&[("b", ALL, "", "Do it.")], perhaps).contains(&"spawn::cycle".to_owned()));
}

#[test]
fn long_spawn_cycle_is_shown_by_its_first_steps() {
    let name = |n: usize| -> &'static str { Box::leak(format!("d{:02}", n % 40).into_boxed_str()) };
    let body = |n: usize| -> &'static str {
        let text = format!("Call `rye_execute(item_type=\"directive\", item_id=\"{}\")`.", name(n + 1));
        Box::leak(text.into_boxed_str())
    };
    let forty: Vec<DirectiveSource> = (0..40).map(|n| (name(n), ALL, "", body(n))).collect();
    let messages = spawn_messages(&forty, "");
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(
        messages[0].contains("`d11` and 28 more start each other") && !messages[0].contains("`d12`"),
        "{messages:?}"
    );
}

#[test]
fn host_or_folder_that_the_parent_does_not_open_is_reported() {
    let opened = |parent: &str, child: &str| -> Vec<String> {
        let grant = |attributes: &str| {
            let tool = format!("<tool {attributes}>rye.shell.sh</tool>");
            let text = format!(
                "<permissions><execute><directive>b</directive>{tool}</execute>\
                 <acknowledge risk=\"elevated\">w</acknowledge></permissions>"
            );
            &*Box::leak(text.into_boxed_str())
        };
        spawn_messages(&[("a", grant(parent), "", START_B), ("b", grant(child), "", "Do it.")], "")
    };
    for (parent, child, attribute) in [
        ("net=\"*\"", "net=\"127.0.0.1\"", "`net=\"127.0.0.1\"`"),
        ("net=\"docs.rs\"", "net=\"docs.rs,example.org\"", "`net=\"example.org\"`"),
        ("", "net=\"docs.rs\"", "`net=\"docs.rs\"`"),
        ("write=\"posts/\"", "write=\"drafts/\"", "`write=\"drafts/\"`"),
    ] {
        let messages = opened(parent, child);
        assert!(messages.len() == 1 && messages[0].contains(attribute), "{parent} {child}: {messages:?}");
        assert!(messages[0].starts_with("spawn::exceeds-parent: "), "{messages:?}");
    }
    for (parent, child) in [
        ("net=\"*\"", "net=\"docs.rs\""),
        ("net=\"127.0.0.1\"", "net=\"127.0.0.1\""),
        ("write=\"posts/\"", "write=\"posts/new\""),
        ("", "write=\"drafts/\""),
    ] {
        assert_eq!(opened(parent, child), NOTHING, "{parent} {child}");
    }
}

#[test]
fn child_exceeding_its_parent_is_reported_with_an_example() {
    let own = "<permissions><execute><directive>b</directive></execute></permissions>";
    let more = "<permissions><execute><tool>deploy.*</tool></execute></permissions>";
    let messages = spawn_messages(&[("a", own, "", START_B), ("b", more, "", "Deploy.")], "");
    assert!(messages.len() == 1 && messages[0].contains("rye.execute.tool.deploy."), "{messages:?}");
    let less = "<permissions><execute><directive>b</directive></execute></permissions>";
    assert_eq!(spawn_codes(&[("a", own, "", START_B), ("b", less, "", "Deploy.")], ""), NOTHING);
    // A directive without `<permissions>` inherits the permissions of its parent.
    assert_eq!(spawn_codes(&[("a", own, "", START_B), ("b", "", "", "Deploy.")], ""), NOTHING);
}

#[test]
fn child_spend_above_every_ancestor_budget_is_reported() {
    let with = |spend: &str| -> &'static str {
        let text = format!("<limits spend=\"{spend}\" depth=\"3\"/>{ALL}");
        Box::leak(text.into_boxed_str())
    };
    let start_c = "Call `rye_execute(item_type=\"directive\", item_id=\"c\")`.";
    assert_eq!(
        spawn_codes(&[("a", with("0.20"), "", START_B), ("b", with("0.30"), "", "x")], ""),
        ["spawn::no-budget"]
    );
    assert_eq!(spawn_codes(&[("a", with("0.90"), "", START_B), ("b", with("0.30"), "", "x")], ""), NOTHING);
    // `b` declares no limit `spend`, so it can spend no more than `a`.
    let between = "<limits depth=\"3\"/><permissions><execute><directive>*</directive></execute></permissions>";
    let path = [("a", with("0.20"), "", START_B), ("b", between, "", start_c), ("c", with("0.40"), "", "x")];
    assert_eq!(spawn_codes(&path, ""), ["spawn::no-budget"]);
}

#[test]
fn zero_spawns_or_depth_rejects_named_children() {
    let none = "<limits spawns=\"0\"/><permissions><execute><directive>*</directive></execute></permissions>";
    assert_eq!(spawn_codes(&[("a", none, "", START_B), ("b", "", "", "x")], ""), ["spawn::no-children"]);
    let flat = "<limits depth=\"0\"/><permissions><execute><directive>*</directive></execute></permissions>";
    assert_eq!(spawn_codes(&[("a", flat, "", START_B), ("b", "", "", "x")], ""), ["spawn::no-children"]);
}

#[test]
fn output_read_by_a_body_must_be_declared_by_a_child() {
    let reads = "Call `rye_execute(item_type=\"directive\", item_id=\"b\")` and tell `result.outputs.url`.";
    assert_eq!(spawn_codes(&[("a", ALL, "", reads), ("b", "", "url", "x")], ""), NOTHING);
    assert_eq!(spawn_codes(&[("a", ALL, "", reads), ("b", "", "link", "x")], ""), ["spawn::unknown-output"]);
    let messages = spawn_messages(&[("a", ALL, "", reads), ("b", "", "urls", "x")], "");
    assert!(messages[0].contains("`url`"), "{messages:?}");
    // `a` itself declares the output `url`, so its body may mean this output. Nothing is reported.
    assert_eq!(spawn_codes(&[("a", ALL, "url", reads), ("b", "", "link", "x")], ""), NOTHING);
    // A hook of the directive itself spawns the child.
    let hooked = "<permissions><execute><directive>*</directive></execute></permissions><hooks><hook id=\"h\" event=\"after_step\"><execute item_type=\"directive\" item_id=\"b\"/></hook></hooks>";
    let body = "Wait for what `outputs[\"url\"]` says.";
    assert_eq!(
        spawn_codes(&[("a", hooked, "", body), ("b", "<limits depth=\"1\"/>", "link", "x")], ""),
        ["spawn::unknown-output"]
    );
    assert_eq!(spawn_codes(&[("a", hooked, "", body), ("b", "<limits depth=\"1\"/>", "url", "x")], ""), NOTHING);
    // If the body also starts a directive without a literal id, that directive may return the output.
    let open = "Call `rye_execute(item_type=\"directive\", item_id=\"{input:which?}\")` and `rye_execute(item_type=\"directive\", item_id=\"b\")`; tell `result.outputs.url`.";
    assert!(
        !spawn_codes(&[("a", ALL, "", open), ("b", "", "link", "x")], "").contains(&"spawn::unknown-output".to_owned())
    );
    // A hook in a settings file spawns `c`, so the body of `a` may read the outputs of `c` too.
    let file = "hooks: [{id: f, event: thread_completed, condition: 'directive == \"a\"', action: {primary: execute, item_type: directive, item_id: c}}]";
    let three = [("a", ALL, "", reads), ("b", "", "link", "x"), ("c", "", "url", "x")];
    assert_eq!(spawn_codes(&three, file), NOTHING);
}

#[test]
fn depth_used_up_by_an_ancestor_is_reported() {
    let start_c = "Call `rye_execute(item_type=\"directive\", item_id=\"c\")`.";
    let one = "<limits depth=\"1\"/><permissions><execute><directive>*</directive></execute></permissions>";
    let two = "<limits depth=\"2\"/><permissions><execute><directive>*</directive></execute></permissions>";
    let chain = |top| [("a", top, "", START_B), ("b", ALL, "", start_c), ("c", "", "", "x")];
    let messages = spawn_messages(&chain(one), "");
    assert!(
        messages.len() == 1 && messages[0].starts_with("spawn::no-children: `a` starts `b`, which starts `c`:"),
        "{messages:?}"
    );
    assert_eq!(spawn_codes(&chain(two), ""), NOTHING);
    // The limit `depth` ends the recursion, so the recursion is intended and is not reported.
    assert_eq!(spawn_codes(&[("a", one, "", START_A)], ""), NOTHING);
}

#[test]
fn children_are_compared_together_with_the_parents_limits() {
    let kids = |spend: &str| -> Vec<DirectiveSource> {
        let limits: &'static str = Box::leak(format!("<limits spend=\"{spend}\"/>").into_boxed_str());
        ["k1", "k2", "k3", "k4", "k5"].map(|id| (id, limits, "", "x")).to_vec()
    };
    let start = (1..=5)
        .map(|n| format!("`rye_execute(item_type=\"directive\", item_id=\"k{n}\")` "))
        .collect::<Vec<_>>()
        .concat();
    let start: &'static str = Box::leak(start.into_boxed_str());
    let parent = |limits: &str| -> DirectiveSource {
        let metadata = format!("<limits {limits}/>{ALL}");
        ("a", Box::leak(metadata.into_boxed_str()), "", start)
    };
    let with = |limits: &str, spend: &str| spawn_codes(&[vec![parent(limits)], kids(spend)].concat(), "");
    assert_eq!(with("spend=\"1.00\"", "0.30"), ["spawn::over-budget"]);
    assert_eq!(with("spend=\"1.00\"", "0.20"), NOTHING);
    assert_eq!(with("spend=\"1.00\" spawns=\"2\"", "0.10"), ["spawn::over-budget"]);
    assert_eq!(with("spend=\"1.00\" spawns=\"5\"", "0.10"), NOTHING);
}

#[test]
fn children_are_compared_with_the_budget_of_their_parent_in_the_chain() {
    let both =
        "`rye_execute(item_type=\"directive\", item_id=\"k1\")` `rye_execute(item_type=\"directive\", item_id=\"k2\")`";
    let top = |spend: &str| -> &'static str { Box::leak(format!("<limits spend=\"{spend}\"/>{ALL}").into_boxed_str()) };
    let kid = "<limits spend=\"0.20\"/>";
    let family = |spend: &str| {
        [("a", top(spend), "", START_B), ("b", ALL, "", both), ("k1", kid, "", "x"), ("k2", kid, "", "x")]
    };
    let messages = spawn_messages(&family("0.30"), "");
    assert!(
        messages.len() == 1 && messages[0].starts_with("spawn::over-budget: the children of `b` (2)"),
        "{messages:?}"
    );
    assert_eq!(spawn_codes(&family("0.45"), ""), NOTHING);
}

#[test]
fn child_duration_above_its_parents_is_reported() {
    let parent = |seconds: &str| -> &'static str {
        Box::leak(format!("<limits duration_seconds=\"{seconds}\"/>{ALL}").into_boxed_str())
    };
    let child = ("b", "<limits duration_seconds=\"900\"/>", "", "x");
    assert_eq!(spawn_codes(&[("a", parent("60"), "", START_B), child], ""), ["spawn::clipped-limit"]);
    assert_eq!(spawn_codes(&[("a", parent("1000"), "", START_B), child], ""), NOTHING);
}
