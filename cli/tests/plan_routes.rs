//! Tests of `rye plan` and `rye why` for a directive whose route depends on an input without a value.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use rye::TestProject;
use serde_json::json;

fn directive(name: &str, attributes: &str, inputs: &str, grants: &str) -> String {
    format!(
        "# {name}\n\n```xml\n<directive name=\"{name}\" version=\"1.0.0\"{attributes}>\n<metadata>\n\
         <permissions>{grants}</permissions>\n</metadata>\n{inputs}\n</directive>\n```\n\nGo.\n"
    )
}

/// A directive `d` that extends `wide` if its input `n` is 5.
fn project(input: &str) -> TestProject {
    let place = TestProject::new();
    place.run_ok(&["init"]);
    let inputs = format!("<inputs>{input}</inputs>");
    let read = "<execute><tool>rye.file-system.read</tool></execute>";
    place.write(".ai/directives/d.md", &directive("d", "", &inputs, "").replace("<permissions></permissions>", ""));
    place.write(".ai/directives/wide.md", &directive("wide", "", "<outputs><output name=\"o\"/></outputs>", read));
    place.write(
        ".ai/config/agent/hooks.yaml",
        "hooks:\n  - { id: r, event: resolve_extends, condition: \"directive == 'd' && inputs.n == 5\", action: { set_extends: wide } }\n",
    );
    place
}

const REQUIRED: &str = "<input name=\"n\" type=\"integer\" required=\"true\"/>";

#[test]
fn plan_without_a_required_input_of_a_route_shows_every_route() {
    let place = project(REQUIRED);
    let plan = place.run_ok(&["plan", "d"]);
    assert!(plan.contains("When n != 5:") && plan.contains("When n == 5, extends wide:"), "{plan}");
    let (code, output) = place.json(&["plan", "d"]);
    assert_eq!((code, output["routes"].as_array().unwrap().len()), (Some(0), 2), "{output}");
    let route = output["routes"].as_array().unwrap().iter().find(|one| one["when"] == json!(["n == 5"])).unwrap();
    assert_eq!(route["plan"]["chain"], json!(["wide", "d"]));
    assert!(place.run_ok(&["plan", "d", "--graph"]).contains("%% When n == 5, extends wide:"));
    assert!(place.run_ok(&["plan", "d", "--prompt"]).contains("When n == 5, extends wide:"));
    let why = place.run_ok(&["why", "extends", "--of", "d"]);
    assert!(why.contains("set by the hook `r`") && why.contains("d when n == 5"), "{why}");
    let html = place.rye(&["plan", "d", "--format", "html"]);
    assert!(html.code == Some(2) && html.stderr.contains("select a route with `--input`"), "{}", html.stderr);
    assert!(!place.run_ok(&["plan", "d", "--input", "n=5"]).contains("When n"));
}

#[test]
fn plan_with_unknown_inputs_shows_the_routes_of_an_input_with_a_default() {
    let place = project("<input name=\"n\" type=\"integer\" default=\"3\"/>");
    assert!(!place.run_ok(&["plan", "d"]).contains("When n"));
    assert!(place.run_ok(&["plan", "d", "--unknown-inputs"]).contains("When n == 5, extends wide:"));
}

#[test]
fn route_that_no_call_takes_is_not_shown() {
    let place = project("<input name=\"n\" type=\"integer\" enum=\"1,2\" required=\"true\"/>");
    assert!(!place.run_ok(&["plan", "d"]).contains("When"));
}
