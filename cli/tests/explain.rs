//! Tests of `rye explain` as a process.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::process::{Command, Output};

use rye_compiler::diagnostics::CODES;

fn explain(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rye")).arg("explain").args(args).output().unwrap()
}

#[test]
fn page_is_found_by_any_spelling_of_its_code() {
    for spelling in ["rye::syntax::xml", "syntax::xml", "syntax/xml"] {
        let output = explain(&[spelling]);
        assert!(output.status.success(), "{spelling}");
        assert!(output.stdout.starts_with(b"# syntax::xml"), "{spelling}");
    }
    let output = explain(&["opens-nothing"]);
    assert!(output.stdout.starts_with(b"# capability::opens-nothing"), "the only code with this name");
    let json: serde_json::Value =
        serde_json::from_slice(&explain(&["syntax::xml", "--format", "json"]).stdout).unwrap();
    assert_eq!(json["code"], "syntax::xml");
}

#[test]
fn unknown_code_gets_a_suggestion() {
    let output = explain(&["syntax::xmll"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("did you mean `syntax::xml`?"));
}

#[test]
fn every_code_is_listed() {
    let listed = String::from_utf8(explain(&[]).stdout).unwrap();
    let codes: Vec<&str> = listed.lines().filter_map(|line| line.split("  ").next()).map(str::trim).collect();
    assert_eq!(codes, CODES);
}

#[test]
fn groups_of_capabilities_are_explained() {
    let group = String::from_utf8(explain(&["fs.read"]).stdout).unwrap();
    assert!(group.contains("rye.execute.tool.rye.file-system.grep"), "{group}");
    let all: serde_json::Value =
        serde_json::from_slice(&explain(&["capabilities", "--format", "json"]).stdout).unwrap();
    let names: Vec<&str> = all.as_array().unwrap().iter().filter_map(|g| g["group"].as_str()).collect();
    for file in ["agent.", "db.", "fs.", "git.", "mcp.", "net.", "primary.", "process.", "registry."] {
        assert!(names.iter().any(|name| name.starts_with(file)), "{file} in {names:?}");
    }
    let slip = String::from_utf8(explain(&["fs.raed"]).stderr).unwrap();
    assert!(slip.contains("did you mean `fs.read`?"), "{slip}");
}
