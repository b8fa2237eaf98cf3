//! The tutorial (`docs/tutorial.md`), step by step: writes each file of the page, runs each command, and compares the
//! output with the lines below the command.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use std::fs;
use std::path::Path;

use rye::{ProcessResult, TestProject};

/// A fenced block: the words of its info string, and its lines.
struct FencedBlock<'p> {
    info: Vec<&'p str>,
    lines: Vec<&'p str>,
}

fn fenced_blocks(page: &str) -> Vec<FencedBlock<'_>> {
    let mut blocks: Vec<FencedBlock<'_>> = Vec::new();
    let mut fence: Option<&str> = None;
    for line in page.lines() {
        let ticks = line.len() - line.trim_start_matches('`').len();
        match fence {
            Some(open) if line == open => fence = None,
            Some(_) => blocks.last_mut().unwrap().lines.push(line),
            None if ticks >= 3 => {
                fence = line.get(..ticks);
                let info = line.trim_start_matches('`').split_whitespace().collect();
                blocks.push(FencedBlock { info, lines: Vec::new() });
            }
            None => {}
        }
    }
    blocks
}

#[test]
fn tutorial_prints_what_the_page_says() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/tutorial.md")).unwrap();
    let project = TestProject::new();
    let (mut commands, mut compared) = (0, 0);
    for block in fenced_blocks(&page) {
        if let Some(path) = block.info.iter().find_map(|word| word.strip_prefix("file=")) {
            project.write(path, &(block.lines.join("\n") + "\n"));
            continue;
        }
        assert_eq!(block.info, ["console"], "a block of the tutorial is a file or a console session");
        let mut last: Option<(&str, ProcessResult)> = None;
        for line in block.lines {
            if let Some(command) = line.strip_prefix("$ rye ") {
                commands += 1;
                let arguments: Vec<&str> = command.split_whitespace().collect();
                let result = project.rye(&arguments);
                let expected = if command.contains("--limit") { 4 } else { 0 };
                assert_eq!(result.code, Some(expected), "{command}\n{}\n{}", result.stdout, result.stderr);
                last = Some((command, result));
            } else {
                let (command, result) = last.as_ref().unwrap();
                let output = format!("{}\n{}", result.stdout, result.stderr);
                assert!(output.contains(line.trim()), "`rye {command}` does not print `{line}`:\n{output}");
                compared += 1;
            }
        }
    }
    assert!(commands >= 15 && compared >= 12, "the test must see the steps: {commands} commands, {compared} lines");
}
