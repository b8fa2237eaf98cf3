//! `rye explain [CODE]`: the page behind a code, or the list of all of them.

use clap::Args;
use rye_compiler::diagnostics::{CODES, closest, codes};

use crate::Failure;
use crate::args::Format;
use crate::exit::Exit;
use crate::report::Report;

#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// As a diagnostic prints it: `rye::extends::cycle`, or `extends::cycle`; without one, all are listed
    code: Option<String>,
}

pub fn run(args: &ExplainArgs, report: &Report) -> Result<Exit, Failure> {
    let Some(asked) = &args.code else {
        return list(report);
    };
    let code = asked.trim().trim_start_matches("rye::").replace('/', "::");
    let Some(page) = codes::ALL.iter().find(|page| page.code == code) else {
        let failure = Failure::usage(format!("there is no code `{code}`"));
        return Err(match closest(&code, CODES.iter().copied()) {
            Some(near) => failure.help(format!("did you mean `{near}`?")),
            None => failure.help("`rye explain` lists all of them"),
        });
    };
    match report.format() {
        Format::Json => report.json(&serde_json::json!({ "code": page.code, "text": page.page }))?,
        Format::Human | Format::Plain => report.line(page.page.trim_end())?,
    }
    Ok(Exit::Fine)
}

fn list(report: &Report) -> Result<Exit, Failure> {
    match report.format() {
        Format::Json => report.json(&CODES)?,
        Format::Human | Format::Plain => {
            let width = CODES.iter().map(|code| code.len()).max().unwrap_or(0);
            for page in codes::ALL {
                report.line(&format!("{:width$}  {}", page.code, gist(page.page)))?;
            }
        }
    }
    Ok(Exit::Fine)
}

/// The first sentence of what a code means.
fn gist(text: &str) -> String {
    let mut paragraphs = text.split("\n\n").map(str::trim);
    let meaning = paragraphs.find(|p| !p.is_empty() && !p.starts_with('#')).unwrap_or_default();
    let joined = meaning.lines().collect::<Vec<_>>().join(" ");
    joined.split_once(". ").map_or(joined.trim_end_matches('.'), |(first, _)| first).to_owned()
}
