//! Checks `docs/guides/first-mistakes.md`: each project is followed by what `rye check` prints about it.

use std::fs;

use rye_compiler::world::{MapWorld, Space};
use rye_snapshots::{check, render_diagnostics, standard_library};

use super::{PagePart, parts};

#[test]
fn documented_mistakes_produce_the_documented_output() {
    let path = super::reference("../guides/first-mistakes.md");
    let old = fs::read_to_string(&path).unwrap();
    let mut new = String::new();
    let mut world: Option<MapWorld<'static>> = None;
    let mut checked = 0;
    for part in parts(&old) {
        let block = match part {
            PagePart::Line(_, line) => {
                new.push_str(&line);
                new.push('\n');
                continue;
            }
            PagePart::Block(block) => block,
        };
        let mut content = block.content;
        if let Some(file) = block.info.split_whitespace().find_map(|word| word.strip_prefix("file=")) {
            world.get_or_insert_with(standard_library).insert(Space::Project, file, &content);
        } else if block.info == "check" {
            let (found, sources) = check(&world.take().unwrap_or_else(|| panic!("line {}: no files", block.line)));
            assert!(!found.is_empty(), "line {}: nothing is found", block.line);
            assert!(found.iter().all(|d| d.help().is_some()), "line {}: a diagnostic without help", block.line);
            content = render_diagnostics(&found, &sources).trim_start().to_owned();
            checked += 1;
        }
        let fence = if content.lines().any(|line| line.starts_with("```")) { "````" } else { "```" };
        for part in [fence, &block.info, "\n", &content, fence, "\n"] {
            new.push_str(part);
        }
    }
    assert!(checked >= 10, "{checked}");
    if std::env::var_os("ACCEPT_DOCS").is_some() {
        fs::write(&path, &new).unwrap();
    } else {
        assert!(
            old == new,
            "docs/guides/first-mistakes.md is out of date: run this test once with ACCEPT_DOCS=1, and read what changed"
        );
    }
}
