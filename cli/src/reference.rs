//! Tests that generate parts of the reference pages from the program: the command line and the JSON outputs.
//! `ACCEPT_DOCS=1` rewrites the pages.

mod command_line;
mod fields;
mod json;

use std::fs;
use std::path::{Path, PathBuf};

/// The variable that makes the tests rewrite the pages.
const ACCEPT: &str = "ACCEPT_DOCS";

/// Returns the root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Replaces the part of a page between `<!-- generated NAME -->` and the next `<!-- end -->`.
fn with_generated(page: &str, name: &str, content: &str) -> String {
    let mark = format!("<!-- generated {name} -->\n");
    let (head, after) = page.split_once(&mark).unwrap();
    let (_, tail) = after.split_once("<!-- end -->").unwrap();
    format!("{head}{mark}\n{content}\n<!-- end -->{tail}")
}

/// Compares the generated parts of a page with the code, or rewrites them.
fn check_page(name: &str, parts: &[(&str, String)]) {
    let path = root().join("docs/reference").join(name);
    let old = fs::read_to_string(&path).unwrap();
    let new = parts.iter().fold(old.clone(), |page, (part, content)| with_generated(&page, part, content.trim()));
    if std::env::var_os(ACCEPT).is_some() {
        fs::write(&path, &new).unwrap();
    } else {
        assert!(
            old == new,
            "docs/reference/{name} is out of date: run `ACCEPT_DOCS=1 cargo test -p rye-cli --bin rye reference`"
        );
    }
}

/// Escapes a text for a cell of a table: one line, no column separator outside code.
fn escape_cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}
