//! `rye explain [CODE]`: prints the page of a diagnostic code, the contents of a capability group, or the list of all
//! codes.

use clap::Args;
use rye_compiler::diagnostics::{CODES, closest, codes};
use rye_compiler::item::Items;
use rye_compiler::validate::groups::{self, CapabilityGroup};
use rye_compiler::world::{MapWorld, Space};
use schemars::JsonSchema;
use serde::Serialize;

use crate::CommandError;
use crate::exit::Exit;
use crate::options::Format;
use crate::report::{Printer, first_sentence};

#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// A code as diagnostics print it (`rye::extends::cycle` or `extends::cycle`) or its last part (`dead-grant`), a
    /// group of capabilities (`fs.read`), or `capabilities` for all groups (default: list all codes)
    code: Option<String>,
}

/// Output of `rye explain --format json`: a page, groups of capabilities, or every code.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ExplainOutput {
    Page {
        code: &'static str,
        /// The page in Markdown.
        text: String,
    },
    Groups(Vec<GroupOutput>),
    Codes(Vec<&'static str>),
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct GroupOutput {
    pub group: String,
    pub description: String,
    /// The capability patterns of the group.
    pub patterns: Vec<String>,
}

pub fn run(args: &ExplainArgs, report: &Printer) -> Result<Exit, CommandError> {
    let Some(requested) = &args.code else {
        return print_codes(report);
    };
    let code = requested.trim().trim_start_matches("rye::").replace('/', "::");
    let groups = standard_groups();
    if code == "capabilities" {
        return print_groups(&groups, report);
    }
    if let Some(group) = groups::find_group(&groups, &code) {
        return print_groups(std::slice::from_ref(group), report);
    }
    let Some(page) = find_page(&code) else {
        let failure = CommandError::usage(format!("unknown code `{code}`"));
        let names = CODES.iter().copied().chain(groups.iter().map(|group| group.name.as_str()));
        let topic = format!("{code}::");
        let ends_alike: Vec<String> =
            CODES.iter().filter(|name| is_last_part(name, &code)).map(|name| format!("`{name}`")).collect();
        if !ends_alike.is_empty() {
            return Err(failure.with_help(format!("did you mean {}?", ends_alike.join(" or "))));
        }
        let near = closest(&code, names.clone())
            .or_else(|| names.clone().find(|name| name.starts_with(&topic)).map(str::to_owned));
        return Err(match near {
            Some(near) => failure.with_help(format!("did you mean `{near}`?")),
            None => failure.with_help("`rye explain` lists all codes, `rye explain capabilities` all groups"),
        });
    };
    match report.format() {
        Format::Json => report.json(&ExplainOutput::Page { code: page.code, text: page.titled_page() })?,
        Format::Human | Format::Plain => report.line(page.titled_page().trim_end())?,
    }
    Ok(Exit::Success)
}

/// Returns the page of a code such as `extends::cycle`. The last part of a code (`cycle`) suffices if no other code
/// ends with it.
fn find_page(code: &str) -> Option<&'static codes::Code> {
    let exact = codes::ALL.iter().find(|page| page.code == code);
    exact.or_else(|| {
        let mut same = codes::ALL.iter().filter(|page| is_last_part(page.code, code));
        same.next().filter(|_| same.next().is_none())
    })
}

/// Returns true if `name` is the last part of a code: `cycle` of `extends::cycle`.
fn is_last_part(code: &str, name: &str) -> bool {
    code.rsplit("::").next() == Some(name)
}

/// Returns the capability groups of the standard library, which `rye explain` shows outside of a project too.
fn standard_groups() -> Vec<CapabilityGroup> {
    let mut world = MapWorld::new();
    for (path, bytes) in rye_stdlib::files().into_iter().filter(|(path, _)| path.starts_with(GROUPS_FOLDER)) {
        world.insert(Space::System, &path, bytes);
    }
    groups::all_groups(&Items::new(&world))
}

const GROUPS_FOLDER: &str = ".ai/config/agent/capabilities/";

fn print_groups(groups: &[CapabilityGroup], report: &Printer) -> Result<Exit, CommandError> {
    match report.format() {
        Format::Json => {
            let shown = |g: &CapabilityGroup| GroupOutput {
                group: g.name.clone(),
                description: g.description.clone(),
                patterns: g.patterns.clone(),
            };
            report.json(&ExplainOutput::Groups(groups.iter().map(shown).collect()))?;
        }
        Format::Human | Format::Plain => {
            for group in groups {
                report.line(&format!("{}: {}", group.name, group.description))?;
                for pattern in &group.patterns {
                    report.line(&format!("  {pattern}"))?;
                }
            }
        }
    }
    Ok(Exit::Success)
}

fn print_codes(report: &Printer) -> Result<Exit, CommandError> {
    match report.format() {
        Format::Json => report.json(&ExplainOutput::Codes(CODES.to_vec()))?,
        Format::Human | Format::Plain => {
            let width = CODES.iter().map(|code| code.len()).max().unwrap_or(0);
            for page in codes::ALL {
                let sentence = first_sentence(page.page);
                report.line(&format!("{:width$}  {}", page.code, sentence.trim_end_matches('.')))?;
            }
        }
    }
    Ok(Exit::Success)
}
