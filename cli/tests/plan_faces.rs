//! Tests of other outputs of a plan: contexts, graphs, HTML, lock, and runs of exactly the planned plan.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use rye::TestProject;
use serde_json::Value;

#[test]
fn every_context_of_a_directive_is_listed() {
    let place = TestProject::example("deploy");
    let (code, found) = place.json(&["plan", "deploy_staging", "--all"]);
    assert_eq!(code, Some(0));
    assert_eq!(found["inputs"]["target"], serde_json::json!(["staging", "canary"]), "{found}");
    assert_eq!(found["contexts"].as_array().unwrap().len(), 2, "{found}");
    let shown = place.rye(&["plan", "deploy_staging", "--all"]);
    assert!(
        shown.stdout.contains("target == \"canary\"") && shown.stdout.contains("project/deploy/canary-rules"),
        "{}",
        shown.stdout
    );
    assert!(shown.stderr.contains("2 contexts"), "{}", shown.stderr);
    let (_, one) = place.json(&["plan", "deploy_staging", "--all", "--input", "target=staging"]);
    assert_eq!(one["contexts"].as_array().unwrap().len(), 1);
}

#[test]
fn plan_without_arguments_uses_the_inputs_of_a_run() {
    let place = TestProject::own();
    let write = |inputs: &str| {
        let inside = "<metadata><model provider=\"scripted\"/><permissions/></metadata>";
        let text = format!(
            "# A\n\nSays a.\n\n```xml\n<directive name=\"a\">{inside}<inputs>{inputs}</inputs></directive>\n```\n\nSay {{input:word}} {{input:more?}}.\n"
        );
        place.write(".ai/directives/a.md", &text);
    };
    write("<input name=\"word\" default=\"yes\"/><input name=\"more\"/>");
    place.write("script.yaml", "steps:\n  - Done.\n");
    let (_, plan) = place.json(&["plan", "a"]);
    let (code, done) = place.json(&["run", "a", "--script", "script.yaml"]);
    assert_eq!((code, &done["plan_id"]), (Some(0), &plan["plan_id"]), "{done}");
    place.write("plan.json", &place.run_ok(&["plan", "a", "--format", "json"]));
    assert_eq!(place.rye(&["run", "--plan", "plan.json", "--script", "script.yaml"]).code, Some(0));
    let (_, open) = place.json(&["plan", "a", "--unknown-inputs"]);
    assert_ne!(open["plan_id"], plan["plan_id"]);
    assert_eq!((&open["call"]["inputs"], &plan["call"]["inputs"]), (&Value::Null, &serde_json::json!({})));
    // A required input without a value: the plan shows every call.
    write("<input name=\"word\" required=\"true\"/><input name=\"more\" default=\"x\"/>");
    let (code, open) = place.json(&["plan", "a"]);
    assert_eq!((code, &open["call"]["inputs"]), (Some(0), &Value::Null));
}

/// Lines too wide for a terminal are folded at a column or a word; nothing is cut off, and plain output is not folded.
#[test]
fn a_narrow_terminal_gets_folded_lines() {
    let place = TestProject::example("deploy");
    let call = ["plan", "deploy_staging", "--input", "service=billing"];
    let whole = place.run_ok(&call);
    let narrow = place.command(&call).env("COLUMNS", "60").output().unwrap();
    let narrow = String::from_utf8(narrow.stdout).unwrap();
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&narrow), words(&whole));
    let wide = |text: &str| text.lines().filter(|line| line.chars().count() > 60).count();
    assert!(wide(&whole) > 20, "{whole}");
    let alone = |line: &&str| line.chars().count() > 60 && line.split_whitespace().count() > 1;
    assert_eq!(narrow.lines().find(alone), None, "{narrow}");
    let plain = place.command(&[&call[..], &["--format", "plain"]].concat()).env("COLUMNS", "60").output().unwrap();
    assert!(wide(&String::from_utf8(plain.stdout).unwrap()) > 20);
}

#[test]
fn narrow_terminal_gets_folded_contexts() {
    let place = TestProject::example("deploy");
    let narrow = place.command(&["plan", "deploy_staging", "--all"]).env("COLUMNS", "60").output().unwrap();
    let narrow = String::from_utf8(narrow.stdout).unwrap();
    let alone = |line: &&str| line.chars().count() > 60 && line.split_whitespace().count() > 1;
    assert_eq!(narrow.lines().find(alone), None, "{narrow}");
    assert!(narrow.contains("EXTRA PARTS") && narrow.contains("project/deploy/canary-rules"), "{narrow}");
}

#[test]
fn graphs_are_drawn_in_three_languages() {
    let place = TestProject::example("deploy");
    assert!(place.run_ok(&["graph"]).starts_with("flowchart"));
    assert!(place.run_ok(&["graph", "deploy_staging", "--to", "dot"]).starts_with("digraph items"));
    let svg = place.run_ok(&["graph", "--to", "svg"]);
    assert!(svg.starts_with("<svg ") && svg.contains("extends: hook route_deploy"), "{svg}");
    let (code, graph) = place.json(&["graph", "deploy_staging"]);
    assert_eq!(code, Some(0));
    assert!(graph["edges"].as_array().unwrap().iter().any(|e| e["relation"] == "shadows"));
    assert_eq!(place.rye(&["graph", "nope"]).code, Some(1));
    assert!(place.run_ok(&["plan", "deploy_staging", "--graph"]).contains("n_gate -->|allowed| n_tools"));
    assert!(place.run_ok(&["plan", "deploy_staging", "--graph=dot"]).starts_with("digraph plan"));
    assert!(place.run_ok(&["plan", "deploy_staging", "--graph=svg"]).starts_with("<svg "));
}

#[test]
fn html_is_standalone_and_escapes_text() {
    let place = TestProject::own();
    let body = "</pre></body><script>alert(1)</script> & \"x\"";
    place.write(
        ".ai/directives/a.md",
        &format!("# A\n\nSays a.\n\n```xml\n<directive name=\"a\"><metadata><model provider=\"scripted\"/><permissions/></metadata></directive>\n```\n\n{body}\n"),
    );
    let page = place.run_ok(&["plan", "a", "--format", "html"]);
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;alert(1)"), "{page}");
    assert!(!page.contains("src=") && !page.contains("href="), "nothing is loaded");
    assert_eq!(page.matches("<svg ").count(), 1);
    assert_eq!(page.matches("</body>").count(), 1);
    assert!(!page.contains("<th></th><th>") && page.contains("<td data-as=\"because\">"), "every column has its word");
}

#[test]
fn html_of_a_part_of_a_plan_is_refused() {
    let place = TestProject::example("hello");
    for option in ["--all", "--graph", "--prompt"] {
        let done = place.rye(&["plan", "hello", option, "--format", "html"]);
        assert_eq!((done.code, done.stdout.as_str()), (Some(2), ""), "{option}: {}", done.stderr);
        let message = format!("`{option}` supports only the formats `human`, `plain` and `json`");
        assert!(done.stderr.contains(&message), "{option}: {}", done.stderr);
    }
}

#[test]
fn a_lock_names_what_drifted() {
    let place = TestProject::example("deploy");
    assert_eq!(place.rye(&["run", "deploy_staging", "--locked", "--input", "service=x"]).code, Some(1), "no lock yet");
    place.run_ok(&["lock"]);
    assert_eq!(place.rye(&["lock", "--check"]).code, Some(0));
    let lock: Value = serde_json::from_str(&place.read(".ai/lock.json")).unwrap();
    let entry = &lock["directives"]["deploy_staging"][0];
    for part in ["model", "prices", "tokenizer", "message", "tool rye_execute", "hook route_deploy", "limits"] {
        assert_eq!(entry["parts"][part].as_str().map(str::len), Some(64), "{part}");
    }
    assert!(entry["manifest"].as_object().unwrap().contains_key("config agent/hooks (project)"), "{entry}");
    let run = ["run", "deploy_staging", "--locked", "--input", "service=billing", "--script", "script.yaml"];
    assert_eq!(place.rye(&run).code, Some(0));

    let rules = ".ai/knowledge/project/deploy/environment-rules.md";
    place.write(rules, &(place.read(rules) + "\nOne more rule.\n"));
    let refused = place.rye(&run);
    assert_eq!(refused.code, Some(5), "{}{}", refused.stdout, refused.stderr);
    assert!(
        refused.stderr.contains("knowledge project/deploy/environment-rules (project) changed, message changed"),
        "{}",
        refused.stderr
    );
    let (code, drift) = place.json(&["lock", "--check"]);
    assert_eq!((code, &drift["drift"][0]["how"]), (Some(5), &Value::from("changed")));
    place.run_ok(&["lock", "deploy_staging"]);
    assert_eq!(place.rye(&["lock", "--check", "deploy_staging"]).code, Some(0));
    assert_eq!(place.rye(&["lock", "--check"]).code, Some(5), "its base has changed too");
    place.run_ok(&["lock"]);
    assert_eq!(place.rye(&["lock", "--check"]).code, Some(0));
    // Input values of the call are not drift.
    let other = ["run", "deploy_staging", "--locked", "--input", "service=web", "--script", "script.yaml"];
    assert_eq!(place.rye(&other).code, Some(0));
}

#[test]
fn pinned_plan_runs_or_is_refused() {
    let place = TestProject::example("deploy");
    let call = ["plan", "deploy_staging", "--input", "service=billing", "--limit", "turns=5", "--format", "json"];
    place.write("plan.json", &place.run_ok(&call));
    let run = ["run", "--plan", "plan.json", "--script", "script.yaml"];
    let (code, done) = place.json(&run);
    assert_eq!(code, Some(0), "{done}");
    let planned: Value = serde_json::from_str(&place.read("plan.json")).unwrap();
    assert_eq!(done["plan_id"], planned["plan_id"]);
    assert_eq!(place.rye(&["run", "other", "--plan", "plan.json"]).code, Some(2));
    assert_eq!(place.rye(&["run", "--plan", "plan.json", "--input", "service=x"]).code, Some(2));

    // The text that a person reviews is the plan that runs.
    let mut edited = planned.clone();
    edited["limits"]["turns"]["value"] = 4.into();
    place.write("edited.json", &edited.to_string());
    let refused = place.rye(&["run", "--plan", "edited.json", "--script", "script.yaml"]);
    assert_eq!(refused.code, Some(5), "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stderr.contains("`edited.json` was edited"), "{}", refused.stderr);

    let hooks = ".ai/config/agent/hooks.yaml";
    place.write(hooks, &(place.read(hooks) + "\n# a comment\n"));
    let refused = place.rye(&run);
    assert_eq!(refused.code, Some(5), "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stderr.contains("changed files: config agent/hooks"), "{}", refused.stderr);
    place.write("open.json", &place.run_ok(&["plan", "deploy_staging", "--format", "json"]));
    let open = place.rye(&["run", "--plan", "open.json"]);
    assert!(matches!(open.code, Some(1 | 2)), "{}{}", open.stdout, open.stderr);
}

/// The summary opens the plan, and no line of it is folded at 60 columns.
#[test]
fn plan_opens_with_a_summary_of_five_lines() {
    let place = TestProject::example("deploy");
    let call = ["plan", "deploy_staging", "--input", "service=billing"];
    let narrow = place.command(&call).env("COLUMNS", "60").output().unwrap();
    let narrow = String::from_utf8(narrow.stdout).unwrap();
    let opening: Vec<&str> = narrow.lines().take(7).collect();
    let labels: Vec<&str> = opening[1..6].iter().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!((labels, opening[6]), (vec!["model", "cost", "turns", "may", "lock"], ""), "{narrow}");
    assert!(opening.iter().all(|line| line.chars().count() <= 60), "{narrow}");
    assert!(opening[2].contains("first ≤ $") && opening[2].contains("worst $"), "{narrow}");
    let html = place.run_ok(&[&call[..], &["--format", "html"]].concat());
    // The first section of the page is the summary: the same lines in the same order.
    let first = html.split_once("<section>").unwrap().1;
    let pair = |line: &&str| {
        let (label, text) = line.trim_start().split_once(' ').unwrap();
        format!("<dt>{label}</dt><dd>{}</dd>", text.trim())
    };
    let pairs: String = opening[1..6].iter().map(pair).collect();
    assert!(first.starts_with(&format!("<h2>Summary</h2><dl>{pairs}</dl>")), "{}", &first[..600]);
    // Each heading of a column of numbers stands above its numbers.
    let cache_map = html.split_once("<th>next request</th>").unwrap().1;
    let headings: Vec<&str> = cache_map.split_once("</tr>").unwrap().0.split("</th>").take(4).collect();
    assert!(headings.iter().all(|heading| heading.starts_with("<th class=\"n\">")), "{headings:?}");
    let (_, json) = place.json(&call);
    assert_eq!(json["summary"]["cost"]["worst"], json["cost"]["worst"]["cost"], "{json}");
    let sent = json["summary"]["access"].as_object().unwrap();
    assert_eq!(sent.keys().collect::<Vec<_>>(), ["write", "run", "reach", "start"], "{json}");
}

#[test]
fn summary_states_the_difference_from_the_lock() {
    let place = TestProject::example("deploy");
    let call = ["plan", "deploy_staging", "--input", "service=billing"];
    let lock = || place.run_ok(&call).lines().nth(5).unwrap().trim_start().to_owned();
    let state = || place.json(&call).1["summary"]["lock"].clone();
    assert_eq!((lock().as_str(), &state()["state"]), ("lock   not locked", &"not_locked".into()));
    place.run_ok(&["lock"]);
    assert_eq!((lock().as_str(), &state()["state"]), ("lock   matches the lock", &"matches".into()));
    let path = ".ai/directives/deploy_staging.md";
    place.write(path, &place.read(path).replace("</limits>", "</limits> "));
    place.write(path, &format!("{}\nBe brief.\n", place.read(path)));
    let differs = lock();
    assert!(differs.starts_with("lock   differs: directive deploy_staging (project) changed"), "{differs}");
    assert_eq!(state()["drift"][0]["how"], "changed");
}

#[test]
fn prompt_is_printed_as_it_is_sent_beside_its_sources() {
    let place = TestProject::example("deploy");
    let call = ["plan", "deploy_staging", "--input", "service=billing"];
    let (_, plan) = place.json(&call);
    let prompt = |more: &[&'static str]| [&call[..], &["--prompt"], more].concat();
    let (code, sent) = place.json(&prompt(&[]));
    assert_eq!(code, Some(0));
    assert_eq!((&sent["system"], &sent["first_message"]), (&plan["system"]["text"], &plan["first_message"]["text"]));
    assert_eq!(sent["tools"].as_array().unwrap().len(), plan["palette"].as_array().unwrap().len());
    let bare = place.run_ok(&prompt(&["--format", "plain"]));
    let shown = place.run_ok(&prompt(&[]));
    for text in [&sent["system"], &sent["first_message"]] {
        let text = text.as_str().unwrap();
        assert!(bare.contains(text), "{bare}");
        let beside = text.lines().all(|line| {
            shown.lines().any(|row| row.split_once("│").is_some_and(|(_, sent)| sent.trim() == line.trim()))
        });
        assert!(beside, "{shown}");
    }
    let place_of_body = ".ai/directives/deploy_staging.md:";
    assert!(shown.lines().any(|row| row.starts_with(place_of_body) || row.contains("deploy_staging.md:")), "{shown}");
    let narrow = place.command(&prompt(&[])).env("COLUMNS", "60").output().unwrap();
    let narrow = String::from_utf8(narrow.stdout).unwrap();
    assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
    assert_eq!(place.rye(&prompt(&["--format", "html"])).code, Some(2));
}

#[test]
fn graph_of_items_is_narrowed_bundled_and_searchable() {
    let place = TestProject::example("deploy");
    let boxes = |args: &[&str]| {
        let text = place.run_ok(&[&["graph", "--to", "dot"], args].concat());
        text.lines().filter(|line| line.contains("[shape=")).count()
    };
    let (items, full) = (boxes(&["--detail", "items"]), boxes(&["--detail", "full"]));
    assert!(items < full && boxes(&["--detail", "folders"]) < items && boxes(&[]) == items, "{items} of {full}");
    assert!(boxes(&["--only", "tools"]) < items);
    let around = place.run_ok(&["graph", "--focus", "project/deploy/base", "--to", "dot"]);
    assert!(around.contains("directive deploy_staging") && !around.contains("rollout"), "{around}");
    assert!(boxes(&["--focus", "project/deploy/base", "--depth", "2"]) > boxes(&["--focus", "project/deploy/base"]));
    let unknown = place.rye(&["graph", "--focus", "project/deploy/bas"]);
    assert!(
        unknown.code == Some(1) && unknown.stderr.contains("did you mean `project/deploy/base`?"),
        "{}",
        unknown.stderr
    );
    assert_eq!(place.rye(&["graph", "--depth", "2"]).code, Some(2));
    let page = place.run_ok(&["graph", "--to", "html"]);
    assert!(page.contains("<svg ") && page.contains("id=\"find\"") && page.contains("hooks.yaml:3"), "{page}");
    assert_eq!(page.matches("<article ").count(), place.json(&["graph"]).1["nodes"].as_array().unwrap().len());
}
