//! `rye explain [CODE]`: the page behind a code, or the list of all of them.

use clap::Args;
use include_dir::{Dir, include_dir};
use rye_compiler::diagnostics::closest;
use serde::Serialize;

use crate::Failure;
use crate::args::Format;
use crate::exit::Exit;
use crate::report::{Report, json, line};

/// The crates that have codes, each with a folder of pages `<topic>/<name>.md`.
static PAGES: [Dir<'static>; 1] = [include_dir!("$CARGO_MANIFEST_DIR/../grammar/codes")];

#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// As a diagnostic prints it: rye::extends::cycle, or extends::cycle; without one, all are listed
    code: Option<String>,
}

/// One page: `rye explain CODE --format json`.
#[derive(Debug, Serialize)]
struct Page {
    /// `extends::cycle`.
    code: String,
    /// Markdown.
    text: &'static str,
}

pub fn run(args: &ExplainArgs, report: &Report) -> Result<Exit, Failure> {
    let pages = pages();
    let Some(asked) = &args.code else {
        return list(&pages, report);
    };
    let code = asked.trim().trim_start_matches("rye::").replace('/', "::");
    let Some(page) = pages.iter().find(|page| page.code == code) else {
        let failure = Failure::usage(format!("there is no code `{code}`"));
        return Err(match closest(&code, pages.iter().map(|page| page.code.as_str())) {
            Some(near) => failure.help(format!("did you mean `{near}`?")),
            None => failure.help("`rye explain` lists all of them"),
        });
    };
    match report.format() {
        Format::Json => json(page)?,
        Format::Human | Format::Plain => line(page.text.trim_end())?,
    }
    Ok(Exit::Fine)
}

fn list(pages: &[Page], report: &Report) -> Result<Exit, Failure> {
    match report.format() {
        Format::Json => json(&pages.iter().map(|page| &page.code).collect::<Vec<_>>())?,
        Format::Human | Format::Plain => {
            let width = pages.iter().map(|page| page.code.len()).max().unwrap_or(0);
            for page in pages {
                line(&format!("{:width$}  {}", page.code, gist(page.text)))?;
            }
        }
    }
    Ok(Exit::Fine)
}

/// Every page, by code.
fn pages() -> Vec<Page> {
    let topics = PAGES.iter().flat_map(Dir::dirs);
    let files = topics.flat_map(Dir::files);
    let mut pages: Vec<Page> = files
        .filter_map(|file| {
            let path = file.path().to_str()?.strip_suffix(".md")?;
            Some(Page { code: path.replace(['/', '\\'], "::"), text: file.contents_utf8()? })
        })
        .collect();
    pages.sort_by(|a, b| a.code.cmp(&b.code));
    pages
}

/// The first sentence of what a code means.
fn gist(text: &str) -> String {
    let mut paragraphs = text.split("\n\n").map(str::trim);
    let meaning = paragraphs.find(|p| !p.is_empty() && !p.starts_with('#')).unwrap_or_default();
    let joined = meaning.lines().collect::<Vec<_>>().join(" ");
    joined.split_once(". ").map_or(joined.trim_end_matches('.'), |(first, _)| first).to_owned()
}
