//! A parsed explain page: its code, its sections, and the files of its example.

use std::fs;
use std::path::Path;

use rye_compiler::world::{MapWorld, Space};
use rye_snapshots::standard_library;

use super::house::{root, sources};

/// An explain page.
pub struct ExplainPage {
    /// Path of the page: `<crate>/codes/<topic>/<name>.md`.
    pub path: String,
    /// The code, derived from the path: `<topic>::<name>`.
    pub code: String,
    /// The first line of the page.
    pub title: String,
    /// Headings and their texts, in order.
    pub sections: Vec<(String, String)>,
}

/// Reads every page of every crate.
pub fn pages() -> Vec<ExplainPage> {
    let folders = ["grammar/codes", "compiler/codes", "engine/codes"];
    let files = folders.iter().flat_map(|folder| sources(&root().join(folder), ".md"));
    files.map(|path| ExplainPage::parse(&path, &fs::read_to_string(&path).unwrap())).collect()
}

impl ExplainPage {
    /// Parses the text of a page. The path determines the code.
    pub fn parse(path: &Path, text: &str) -> Self {
        let shown = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
        let inside = shown.split("/codes/").nth(1).unwrap().trim_end_matches(".md");
        let mut sections: Vec<(String, String)> = Vec::new();
        let mut fence: Option<&str> = None;
        for line in text.lines() {
            let ticks = line.len() - line.trim_start_matches('`').len();
            match fence {
                None if ticks >= 3 => fence = line.get(..ticks),
                Some(open) if line.trim_end() == open => fence = None,
                None | Some(_) => {}
            }
            match line.strip_prefix("## ").filter(|_| fence.is_none()) {
                Some(heading) => sections.push((heading.to_owned(), String::new())),
                None => {
                    if let Some((_, text)) = sections.last_mut() {
                        text.push_str(line);
                        text.push('\n');
                    }
                }
            }
        }
        let title = text.lines().next().unwrap_or_default().to_owned();
        Self { code: inside.replace('/', "::"), title, sections, path: shown }
    }

    pub fn section(&self, heading: &str) -> &str {
        self.sections.iter().find(|(h, _)| h == heading).map_or("", |(_, text)| text)
    }

    /// Creates a world of the example's files and the standard library; `None` if the page has no example.
    pub fn world(&self) -> Option<MapWorld<'static>> {
        let blocks = blocks(self.section("Example"));
        let mut world = standard_library();
        for block in &blocks {
            for n in block.from..=block.to {
                let path = fill(&block.file, n);
                let (space, path) = match path.strip_prefix("user:") {
                    Some(inside) => (Space::User, inside),
                    None => (Space::Project, path.as_str()),
                };
                world.insert(space, path, block.bytes(n));
            }
        }
        (!blocks.is_empty()).then_some(world)
    }
}

/// A fenced block with the info string `markdown file=PATH n=1..64`: its file, once for each `n`.
struct ExampleBlock {
    file: String,
    hex: bool,
    from: u32,
    to: u32,
    content: String,
}

impl ExampleBlock {
    fn bytes(&self, n: u32) -> Vec<u8> {
        if self.hex {
            self.content.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
        } else {
            fill(&self.content, n).into_bytes()
        }
    }
}

fn fill(text: &str, n: u32) -> String {
    text.replace("{n}", &n.to_string()).replace("{n+1}", &(n + 1).to_string())
}

fn blocks(text: &str) -> Vec<ExampleBlock> {
    let mut found: Vec<ExampleBlock> = Vec::new();
    let mut fence: Option<&str> = None;
    for line in text.lines() {
        let ticks = line.len() - line.trim_start_matches('`').len();
        match fence {
            Some(open) if line == open => fence = None,
            Some(_) => {
                let block = found.last_mut().unwrap();
                block.content.push_str(line);
                block.content.push('\n');
            }
            None if ticks >= 3 => {
                fence = line.get(..ticks);
                let words: Vec<&str> = line.trim_start_matches('`').split_whitespace().collect();
                let value = |key: &str| words.iter().find_map(|w| w.strip_prefix(key));
                let file = value("file=").unwrap_or_else(|| panic!("`{line}` names no file")).to_owned();
                let (from, to) = value("n=").and_then(|n| n.split_once("..")).unwrap_or(("1", "1"));
                found.push(ExampleBlock {
                    file,
                    hex: words.first() == Some(&"hex"),
                    from: from.parse().unwrap(),
                    to: to.parse().unwrap(),
                    content: String::new(),
                });
            }
            None => {}
        }
    }
    found
}
