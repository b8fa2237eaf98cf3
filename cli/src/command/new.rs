//! `rye new directive|knowledge|tool ID`: creates an item in the project from a template that passes `rye check`. Never
//! overwrites a file.

use std::path::Path;

use clap::{Args, ValueEnum};
use rye_compiler::report::workspace_trust::requirements_of_workspace;
use rye_compiler::trust::TrustRequirement;
use rye_compiler::world::{ItemKind, World};
use rye_grammar::ItemId;
use schemars::JsonSchema;
use serde::Serialize;

use crate::CommandError;
use crate::exit::Exit;
use crate::file_set::FileSet;
use crate::input_schemas;
use crate::node_version::installed_typescript_problem;
use crate::options::{Format, Global};
use crate::report::Printer;
use crate::run_request::parse_item_id;
use crate::workspace::Spaces;

mod templates;

#[derive(Debug, Args)]
pub struct NewArgs {
    /// Type of the item
    #[arg(value_enum, value_name = "TYPE")]
    kind: NewItemKind,
    /// The id: folders and a name, `project/count`
    #[arg(value_name = "ID")]
    id: String,
    /// The language of a tool (default: `command`)
    #[arg(long, value_enum, value_name = "LANGUAGE")]
    language: Option<ToolLanguageArg>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum NewItemKind {
    Directive,
    Knowledge,
    Tool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ToolLanguageArg {
    /// YAML: a program and its arguments
    Command,
    /// YAML: an HTTP request
    Http,
    Python,
    Javascript,
    Typescript,
    Shell,
}

/// Output of `rye new --format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct NewOutput {
    pub item_type: String,
    pub item_id: String,
    /// Path of the new file, relative to the project.
    pub path: String,
}

pub fn run(args: &NewArgs, global: &Global, report: &Printer) -> Result<Exit, CommandError> {
    let spaces = Spaces::find(global.project.as_deref())?;
    spaces.print_project(report);
    let kind = match args.kind {
        NewItemKind::Directive => ItemKind::Directive,
        NewItemKind::Knowledge => ItemKind::Knowledge,
        NewItemKind::Tool => ItemKind::Tool,
    };
    if args.language.is_some() && kind != ItemKind::Tool {
        return Err(CommandError::usage(format!("`--language` is for tools only, not for {} items", kind.as_str())));
    }
    let id = parse_item_id(&args.id, kind)?;
    let (extension, text) = match args.kind {
        NewItemKind::Directive => ("md", templates::directive_template(&id)),
        NewItemKind::Knowledge => ("md", templates::knowledge_template(&id)),
        NewItemKind::Tool => templates::tool_template(&id, args.language.unwrap_or(ToolLanguageArg::Command)),
    };
    // With another extension, the id would have two files, which is an error.
    let found = spaces.open()?.candidates(kind, &id)?;
    if let Some(first) = found.first().filter(|f| f.space == rye_compiler::world::Space::Project) {
        return Err(CommandError::failed(format!(
            "the project has a {} `{id}` already: `{}`",
            kind.as_str(),
            first.path
        )));
    }
    let path = format!("{}{id}.{extension}", kind.folder());
    let text = input_schemas::annotate(&path, text);
    let mut files = FileSet::open(&spaces.project, report)?;
    files.create(Path::new(&path), text.as_bytes())?;
    input_schemas::write_schema_of(&mut files, &path)?;
    trust(kind, &id, &spaces)?;
    files.keep();
    if let Some(below) = found.first() {
        report.note(&format!("the new item shadows `{id}` of the {} space", below.space.as_str()));
    }
    if args.language == Some(ToolLanguageArg::Typescript)
        && let Some(problem) = installed_typescript_problem(&spaces.project)
    {
        report.note(&format!("{problem}: the tool cannot run on this machine"));
    }
    let output = NewOutput { item_type: kind.as_str().to_owned(), item_id: id.to_string(), path };
    match report.format() {
        Format::Json => report.json(&output)?,
        Format::Human | Format::Plain => report.line(&output.path)?,
    }
    if report.format() == Format::Human {
        report.note(&format!("\nNext:\n  edit {}\n  {}", output.path, next_step(args.kind, &id)));
    }
    Ok(Exit::Success)
}

/// Returns a suggestion: the grant and the commands that use the new item.
fn next_step(kind: NewItemKind, id: &ItemId) -> String {
    match kind {
        NewItemKind::Directive => format!("rye check {id}\n  rye plan {id}"),
        NewItemKind::Knowledge => format!("rye fetch knowledge {id}"),
        NewItemKind::Tool => {
            let grant = id.as_str().replace('/', ".");
            format!(
                "grant it in a directive: <permissions><execute><tool>{grant}</tool></execute></permissions>\n  rye check"
            )
        }
    }
}

/// Trusts a file that this program has just written, so that a new tool runs without a question until the file is
/// changed.
fn trust(kind: ItemKind, id: &ItemId, spaces: &Spaces) -> Result<(), CommandError> {
    if spaces.user.is_none() {
        return Ok(());
    }
    let made = |one: &TrustRequirement| one.subjects.iter().all(|file| file.kind == kind && file.id == id.as_str());
    let all: Vec<TrustRequirement> = requirements_of_workspace(&spaces.open()?).into_iter().filter(made).collect();
    if all.is_empty() { Ok(()) } else { Ok(spaces.trust().record_trust(&all)?) }
}
