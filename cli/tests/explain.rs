//! `rye explain` as a process.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::process::{Command, Output};

use rye_compiler::diagnostics::CODES;

fn explain(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rye")).arg("explain").args(args).output().unwrap()
}

#[test]
fn a_page_by_any_spelling_of_its_code() {
    for spelling in ["rye::syntax::xml", "syntax::xml", "syntax/xml"] {
        let output = explain(&[spelling]);
        assert!(output.status.success(), "{spelling}");
        assert!(output.stdout.starts_with(b"# syntax::xml"), "{spelling}");
    }
    let json: serde_json::Value =
        serde_json::from_slice(&explain(&["syntax::xml", "--format", "json"]).stdout).unwrap();
    assert_eq!(json["code"], "syntax::xml");
}

#[test]
fn what_is_no_code_gets_a_suggestion() {
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
