//! Tests of inputs in hook files, literal calls in bodies, and grants that allow no call.

use super::*;

const REGIONS: &str =
    "<inputs><input name=\"region\" enum=\"eu,us\" required=\"true\"/><input name=\"n\" type=\"integer\"/></inputs>";

#[test]
fn hook_file_condition_on_inputs_is_checked_over_all_directives() {
    let world = || directive(project(), "leaf", "", REGIONS, "{input:region} {input:n?}");
    let found = |condition: &str| {
        let action = "action: {primary: fetch, item_type: knowledge, item_id: lib/identity}";
        let hook = format!("{{id: h, event: thread_started, condition: '{condition}', {action}}}");
        codes(&hooks(world(), &format!("hooks: [{hook}]")))
    };
    for never in [
        "inputs.region == \"mars\"",
        "inputs.n > 5 && inputs.n < 3",
        "inputs.region == \"eu\" && inputs.region == \"us\"",
    ] {
        assert_eq!(found(never), ["hook::never"], "{never}");
    }
    assert_eq!(found("inputs.reggion == \"eu\""), ["interface::unknown-input"]);
    assert_eq!(found("inputs.n > \"x\""), ["syntax::condition"]);
    for fine in ["inputs.region == \"eu\"", "inputs.n > 5", "!exists(inputs.n)"] {
        assert_eq!(found(fine), Vec::<&str>::new(), "{fine}");
    }
    // A directive of another space declares the input.
    let other =
        "```xml\n<directive name=\"o\"><inputs><input name=\"place\"/></inputs></directive>\n```\n\n{input:place?}\n";
    let yaml = "hooks: [{id: h, event: thread_started, condition: 'inputs.place == \"x\"', action: {primary: fetch, item_type: knowledge, item_id: lib/identity}}]";
    let world = hooks(world(), yaml).with(Space::System, ".ai/directives/o.md", other);
    assert_eq!(codes(&world), Vec::<&str>::new());
}

#[test]
fn literal_arguments_of_a_body_call_are_checked() {
    let inputs =
        "<inputs><input name=\"n\" type=\"integer\" required=\"true\"/><input name=\"c\" enum=\"a,b\"/></inputs>";
    let tool = "description: Does it.\nkind: builtin\nbuiltin: grep\nparameters: {type: object, additionalProperties: false, required: [path], properties: {path: {type: string}, mode: {enum: [fast, slow]}}}\n";
    let found = |body: &str| {
        let world = directive(project(), "callee", "", inputs, "{input:n} {input:c?}").with(
            Space::System,
            ".ai/tools/lib/find.yaml",
            tool,
        );
        let grants = "<permissions><execute><directive>callee</directive><tool>lib.find</tool><tool>rye.agent.*</tool></execute>\
            <acknowledge risk=\"elevated\">Fine.</acknowledge></permissions>";
        let mut codes = codes(&directive(world, "leaf", "", grants, body));
        codes.retain(|code| code.starts_with("interface::"));
        codes
    };
    let execute = |kind: &str, id: &str, parameters: &str| {
        found(&format!("Call `rye_execute(item_type=\"{kind}\", item_id=\"{id}\", parameters={parameters})`."))
    };
    for (parameters, code) in [
        ("{}", "interface::missing-input"),
        ("{\"n\": 1, \"m\": 2}", "interface::unknown-input"),
        ("{'n': 'x'}", "interface::type"),
        ("{\"n\": 1, \"c\": \"z\"}", "interface::type"),
    ] {
        assert_eq!(execute("directive", "callee", parameters), [code], "{parameters}");
    }
    for parameters in ["{\"n\": 1, \"c\": \"b\"}", "{\"n\": <number>}", "{\"n\": 1, …}", "{…}", "the inputs"] {
        assert_eq!(execute("directive", "callee", parameters), Vec::<&str>::new(), "{parameters}");
    }
    let start = "Call `rye_execute(item_id=\"rye/agent/threads/thread_directive\", parameters={\"directive_name\": \"callee\", \"inputs\": {\"n\": \"x\"}})`.";
    assert_eq!(found(start), ["interface::type"]);
    assert_eq!(execute("tool", "lib/find", "{}"), ["interface::missing-input"]);
    assert_eq!(execute("tool", "lib/find", "{\"path\": 3}"), ["interface::type"]);
    for text in ["\"{'path': 'a'}\"", "\"path=a\"", "[1]", "3"] {
        assert_eq!(execute("tool", "lib/find", text), ["interface::type"], "{text}");
    }
    assert_eq!(execute("tool", "lib/find", "{\"path\": \"x\", \"mode\": \"slwo\"}"), ["interface::type"]);
    assert_eq!(found("Call `lib_find`, or `rye_lib_find`."), Vec::<&str>::new());
}

#[test]
fn field_that_changes_the_type_of_its_base_is_reported() {
    let field = |kind: &str| format!("<outputs><output name=\"x\" type=\"{kind}\"/></outputs>");
    let found = |base: &str, own: &str| {
        let world = directive(project(), "root", "", &field(base), "");
        codes(&directive(world, "leaf", "extends=\"root\"", &field(own), ""))
    };
    assert_eq!(found("string", "integer"), ["interface::retyped"]);
    assert_eq!(found("number", "integer"), Vec::<&str>::new());
    assert_eq!(found("string", "string"), Vec::<&str>::new());
}

#[test]
fn output_of_a_hook_condition_has_its_declared_type() {
    let hook = |condition: &str| {
        leaf(
            &format!(
                "<hooks><hook id=\"h\" event=\"directive_return\"><when>{condition}</when><execute item_type=\"tool\" item_id=\"rye/file-system/read\"/></hook></hooks>\
                 <outputs><output name=\"url\" required=\"true\"/></outputs>"
            ),
            "x",
        )
    };
    assert_eq!(hook("outputs.url &gt; 5"), ["syntax::condition"]);
    assert_eq!(hook("outputs.url == \"x\""), Vec::<&str>::new());
}

#[test]
fn grant_whose_needs_are_not_met_is_dead() {
    let tool = "description: Does it.\nkind: command\ncommand: [ls]\nneeds: {write: [notes/], net: [a.test]}\n";
    let found = |attributes: &str| {
        let grants = format!(
            "<permissions><execute><tool {attributes}>own</tool></execute><acknowledge risk=\"elevated\">Fine.</acknowledge></permissions>"
        );
        let mut codes = codes(&directive(project().project(".ai/tools/own.yaml", tool), "leaf", "", &grants, "x"));
        codes.retain(|code| *code == "capability::dead-grant");
        codes.len()
    };
    assert_eq!(found(""), 1);
    assert_eq!(found("write=\"notes/\""), 1);
    assert_eq!(found("write=\"notes/\" net=\"a.test\""), 0);
    assert_eq!(found("write=\".\" net=\"*\""), 0);
    let none = "<limits depth=\"0\"/><permissions><execute><directive>base</directive></execute><acknowledge risk=\"elevated\">x</acknowledge></permissions>";
    let world = directive(project(), "leaf", "", none, "x").with(
        Space::System,
        ".ai/config/agent/providers/p.yaml",
        "id: p\nwire: scripted\ndefault_tier: general\ntiers: {general: m}\nmodels:\n  - {id: m, context_window: 100000, max_output: 8192, prices: {input: '0.1', output: '0.5'}}\n",
    );
    assert_eq!(codes(&world), ["capability::dead-grant"]);
}

#[test]
fn hook_grant_beside_a_literal_item_is_dead() {
    let yaml = |item: &str| {
        format!(
            "hooks: [{{id: h, event: thread_started, grants: [rye.fetch.knowledge.lib.*], action: {{primary: fetch, item_type: knowledge, item_id: '{item}'}}}}]"
        )
    };
    assert_eq!(with_hooks(&yaml("lib/identity")), ["capability::dead-grant"]);
    assert_eq!(with_hooks(&yaml("lib/${directive}")), Vec::<&str>::new());
}

#[test]
fn literal_places_outside_of_the_grants_are_reported() {
    let fetch = "description: Gets it.\nkind: builtin\nbuiltin: web_fetch\nparameters: {type: object, properties: {url: {type: string}}}\n";
    let write = "description: Writes it.\nkind: builtin\nbuiltin: write\nparameters: {type: object, properties: {path: {type: string}}}\n";
    let found = |body: &str| {
        let grants = "<permissions><execute><tool net=\"*.example.com\">rye.web.fetch</tool>\
            <tool write=\"out/,x\">rye.file-system.write</tool><tool>rye.file-system.read</tool></execute>\
            <acknowledge risk=\"elevated\">Fine.</acknowledge></permissions>";
        let world = project().with(Space::System, ".ai/tools/rye/web/fetch.yaml", fetch).with(
            Space::System,
            ".ai/tools/rye/file-system/write.yaml",
            write,
        );
        let read = write.replace("builtin: write", "builtin: read");
        let world = world.with(Space::System, ".ai/tools/rye/file-system/read.yaml", read);
        codes(&directive(world, "leaf", "", grants, body))
    };
    for body in [
        "Call `rye_web_fetch(url=\"https://example.org/x\")`.",
        "Call `rye_file_system_write(path=\"../x\")`.",
        "Call `rye_file_system_write(path=\"a/.env\")`.",
        "Call `rye_file_system_write(path=\"a/b\")`.",
        "Call `rye_file_system_write(path=\"outer/b\")`.",
        "Call `rye_file_system_write(path=\"out/../a.txt\")`.",
        "Call `rye_file_system_write(path=\"/tmp/x\")`.",
        "Call `rye_file_system_read(path=\"../x\")`.",
        "Call `rye_file_system_read(path=\"/etc/passwd\")`.",
        "Call `rye_web_fetch(url=\"https://user@api.example.com/\")`.",
        "Call `rye_web_fetch(url=\"ftp://api.example.com/\")`.",
    ] {
        assert_eq!(found(body), ["capability::outside-grant"], "{body}");
    }
    for body in [
        "Call `rye_web_fetch(url=\"https://api.example.com:443/x\")`.",
        "Call `rye_web_fetch(url=\"{input:x?}\")`.",
        "Call `rye_file_system_write(path=\"a/../x\")`.",
        "Call `rye_file_system_write(path=\"out/a/b\")`.",
        "Call `rye_file_system_write(path=\"out/a/../b\")`.",
        "Call `rye_file_system_write(path=\"/tmp/project/out/b\")`.",
        "Call `rye_file_system_read(path=\"/{input:x?}\")`.",
        "Call `rye_web_fetch(url=\"HTTPS://api.example.com/a@b\")`.",
        "Call `rye_file_system_write(path=\"{input:x?}/b\")`.",
    ] {
        assert!(!found(body).contains(&"capability::outside-grant"), "{body}");
    }
}

fn with_provider(world: MapWorld<'static>) -> MapWorld<'static> {
    let provider = "id: p\nwire: scripted\ndefault_tier: general\ntiers: {general: m}\nmodels:\n  \
        - {id: m, context_window: 100000, max_output: 8192, prices: {input: '0.1', output: '0.5'}}\n";
    world.with(Space::System, ".ai/config/agent/providers/p.yaml", provider)
}

#[test]
fn prompt_above_the_token_limit_is_reported() {
    let world = |tokens: &str| {
        let limits = format!("<limits tokens=\"{tokens}\"/>");
        with_provider(directive(project(), "leaf", "", &limits, &"word ".repeat(500)))
    };
    assert_eq!(codes(&world("50")), ["limit::cannot-afford-one-turn"]);
    assert_eq!(codes(&world("50000")), Vec::<&str>::new());
}

#[test]
fn parameter_that_the_guarded_tool_lacks_is_reported() {
    let tool = "description: Does it.\nkind: builtin\nbuiltin: grep\nparameters: {type: object, additionalProperties: false, properties: {path: {type: string}}}\n";
    let found = |condition: &str| {
        let yaml = format!("hooks: [{{id: h, event: tool_call, condition: '{condition}', action: {{block: no}}}}]");
        let world = project().with(Space::System, ".ai/tools/lib/find.yaml", tool);
        let granted = "<permissions><execute><tool>lib.*</tool><tool>rye.bash.*</tool></execute><acknowledge risk=\"elevated\">x</acknowledge></permissions>";
        codes(&hooks(directive(world, "user", "", granted, "Do it."), &yaml))
    };
    for wrong in [
        "call.item_id == \"lib/find\" && call.input.pth == \"x\"",
        "call.name == \"lib_find\" && call.input.pth == \"x\"",
        "call.item_id in [\"lib/find\"] && call.input.pth == \"x\"",
        "(call.item_id == \"lib/find\" || call.name == \"lib_find\") && call.input.pth == \"x\"",
        // The conditions require no single tool, and no tool has the parameter.
        "call.input.pth == \"x\"",
        "call.item_id == \"lib/find\" || call.input.pth == \"x\"",
        "call.item_id contains \"find\" && call.input.paht contains \"rm\"",
    ] {
        assert_eq!(found(wrong), ["hook::unknown-parameter"], "{wrong}");
    }
    for fine in [
        "call.input.path == \"x\"",
        "call.input.item_id == \"lib/find\"",
        "turn > 3 && call.input.path != \"x\"",
        "call.item_id == \"lib/find\" && call.input.path == \"x\"",
        "call.item_id == \"lib/find\" || call.input.path == \"x\"",
        "call.item_id == \"rye/bash/bash\" && call.input.pth == \"x\"",
    ] {
        assert_eq!(found(fine), Vec::<&str>::new(), "{fine}");
    }
}

#[test]
fn parameter_that_an_open_schema_does_not_list_is_reported() {
    let found = |schema: &str, condition: &str, body: &str| {
        let tool = format!("description: Counts.\nkind: command\ncommand: [wc, \"{{file}}\"]\nparameters: {schema}\n");
        let world = project().with(Space::System, ".ai/tools/lib/count.yaml", &tool);
        let granted = "<permissions><execute><tool>lib.count</tool></execute><acknowledge risk=\"elevated\">x</acknowledge></permissions>";
        let yaml = format!("hooks: [{{id: h, event: tool_call, condition: '{condition}', action: {{block: no}}}}]");
        codes(&hooks(directive(world, "user", "", granted, body), &yaml))
    };
    let listed = "{type: object, required: [file], properties: {file: {type: string}}}";
    let guard = "call.item_id == \"lib/count\" && call.input.file contains \"x\"";
    for wrong in [
        "call.item_id == \"lib/count\" && call.input.command contains \"rm\"",
        "call.name == \"lib_count\" && call.input.filename == \"x\"",
        "call.item_id in [\"lib/count\"] && exists(call.input.path)",
    ] {
        assert_eq!(found(listed, wrong, "Do it."), ["hook::unknown-parameter"], "{wrong}");
    }
    assert_eq!(found(listed, guard, "Do it."), Vec::<&str>::new());
    let call = |arguments: &str| format!("Call `rye_execute(item_type=\"tool\", item_id=\"lib/count\", {arguments})`.");
    for wrong in ["parameters={\"file\": \"a\", \"line\": true}", "parameters={\"file\": \"a\", \"x\": 1}"] {
        assert_eq!(found(listed, guard, &call(wrong)), ["interface::unknown-input"], "{wrong}");
    }
    // The missing parameter is the one that the unknown name stands for.
    assert_eq!(found(listed, guard, &call("parameters={\"path\": \"a\"}")), ["interface::missing-input"]);
    for open in [
        "{type: object, properties: {file: {type: string}}, additionalProperties: true}",
        "{type: object, properties: {file: {type: string}}, additionalProperties: {type: string}}",
        "{type: object, properties: {file: {type: string}}, patternProperties: {\"^x\": {type: string}}}",
    ] {
        let other = "call.item_id == \"lib/count\" && call.input.command contains \"rm\"";
        assert_eq!(found(open, other, &call("parameters={\"file\": \"a\", \"x\": 1}")), Vec::<&str>::new(), "{open}");
    }
}

#[test]
fn arguments_that_no_call_can_have_are_reported() {
    let found = |body: &str| {
        let granted = "<permissions><execute><tool>rye.bash.*</tool></execute><acknowledge risk=\"elevated\">x</acknowledge></permissions>";
        codes(&directive(project(), "user", "", granted, body))
    };
    let id = "item_type=\"tool\", item_id=\"rye/bash/bash\"";
    for wrong in ["params={\"command\": \"ls\"}", "arguments={}", "args=[1]", "inputs={}"] {
        assert_eq!(found(&format!("Call `rye_execute({id}, {wrong})`.")), ["interface::unknown-input"], "{wrong}");
    }
    for wrong in [
        "rye_execute(\"tool\", \"rye/bash/bash\", {\"command\": \"ls\"})",
        "rye_execute('rye/bash/bash', command='ls')",
        "rye_bash_bash(\"ls\")",
        "rye_fetch(\"rules\")",
    ] {
        assert_eq!(found(&format!("Call `{wrong}`.")), ["interface::unknown-input"], "{wrong}");
    }
    for fine in ["rye_bash_bash()", "rye_bash_bash (\"the shell\" of this project)", "rye_bash_bash(command)"] {
        assert_eq!(found(&format!("Call `{fine}`.")), Vec::<&str>::new(), "{fine}");
    }
}

#[test]
fn knowledge_metadata_that_contradicts_the_path_is_reported() {
    let found = |metadata: &str| {
        let text = format!("---\n{metadata}\n---\n\nText.\n");
        let context = "<context><before>notes/mine</before></context>";
        codes(&directive(project().project(".ai/knowledge/notes/mine.md", text), "leaf", "", context, ""))
    };
    assert_eq!(found("id: other/thing"), ["item::name-mismatch"]);
    assert_eq!(found("category: elsewhere"), ["item::name-mismatch"]);
    assert_eq!(found("references: [no/such]"), ["item::unknown"]);
    assert_eq!(found("id: notes/mine\ncategory: notes\nreferences: [lib/identity, see the wiki]"), Vec::<&str>::new());
}

#[test]
fn request_without_messages_is_rejected() {
    let keep = |n: usize| with_hooks(&format!("hooks: [{{id: h, event: context, action: {{keep_last: {n}}}}}]"));
    assert_eq!(keep(0), ["item::invalid-value"]);
    assert_eq!(keep(1), Vec::<&str>::new());
}

#[test]
fn permissions_of_a_base_bound_its_leaves_only_if_sealed() {
    let found = |seal: &str| {
        let base = format!("<permissions {seal}><execute><tool>rye.file-system.read</tool></execute></permissions>");
        let own = "<permissions><execute><tool>rye.bash.bash</tool></execute><acknowledge risk=\"elevated\">x</acknowledge></permissions>";
        codes(&directive(directive(project(), "root", "", &base, ""), "leaf", "extends=\"root\"", own, ""))
    };
    assert_eq!(found("seal=\"true\""), ["capability::exceeds-base"]);
    assert_eq!(found(""), Vec::<&str>::new());
    assert_eq!(found("seal=\"yes\""), ["item::invalid-value"]);
}

#[test]
fn unread_hook_file_is_an_error() {
    let yaml = "hooks: []\n";
    let report = report(&project().project(".ai/config/agent/resilence.yaml", yaml));
    assert_eq!((report.errors(), report.warnings()), (1, 0));
}

#[test]
fn limit_above_the_maximum_of_the_project_is_reported() {
    let world = |turns: &str, space: Space| {
        let limits = format!("<limits turns=\"{turns}\"/><permissions/>");
        let max = "limits: { max: { turns: 10 } }\n";
        let world = with_provider(directive(project(), "leaf", "", &limits, "Go."));
        codes(&world.with(space, ".ai/config/agent/agent.yaml", max))
    };
    assert_eq!(world("50", Space::Project), ["limit::never-binds"]);
    assert_eq!(world("10", Space::Project), Vec::<&str>::new());
    // Your own maximum bounds every project.
    assert_eq!(world("50", Space::User), Vec::<&str>::new());
}

#[test]
fn spend_below_one_turn_is_the_only_report() {
    let limits = "<limits turns=\"50\" spend=\"0.00001\"/><permissions/>";
    let world = with_provider(directive(project(), "leaf", "", limits, "Go."));
    assert_eq!(codes(&world), ["limit::cannot-afford-one-turn"]);
}

#[test]
fn hook_whose_comparisons_exclude_each_other_fires_for_no_directive() {
    let yaml = |condition: &str| {
        format!("hooks: [{{id: h, event: tool_call, condition: '{condition}', action: {{block: no}}}}]")
    };
    let never = yaml("call.item_id == \"rye/bash/bash\" && call.item_id == \"rye/file-system/read\"");
    let world = project().project(".ai/config/agent/hooks.yaml", never.as_str());
    let world = directive(world, "leaf", "", "<permissions/>", "Go.");
    let report = check(&world, &Selection::All);
    let found: Vec<String> = report.diagnostics.iter().map(crate::diagnostics::Diagnostic::message).collect();
    assert!(found.len() == 1 && found[0].starts_with("the hook `h` never fires"), "{found:?}");
}
