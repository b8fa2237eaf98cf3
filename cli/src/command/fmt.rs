//! `rye fmt [PATH…]`: formats the metadata of directives and knowledge, and YAML files. With `--check`, only reports
//! what would change.

use std::path::{Path, PathBuf};

use clap::Args;
use rye_compiler::edit::{FormatRefusal, Formatted, format, format_data, format_knowledge};
use rye_compiler::world::{Entry, ItemKind, Space, World};
use rye_grammar::knowledge::KnowledgeFormat;
use schemars::JsonSchema;
use serde::Serialize;

use crate::CommandError;
use crate::exit::Exit;
use crate::options::{Format, Global};
use crate::path_filter::{PathFilter, resolve_path_filter};
use crate::report::{Printer, printable};
use crate::rewrite::FileRewrite;
use crate::workspace::Spaces;

#[derive(Debug, Args)]
pub struct FmtArgs {
    /// Files, folders or item ids to format (default: the whole project)
    #[arg(value_name = "PATH|ID")]
    paths: Vec<PathBuf>,
    /// Change nothing; print what would change, and fail if anything would
    #[arg(long)]
    check: bool,
}

/// Output of `rye fmt --format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FmtOutput {
    /// The files that were changed; with `--check`, the files that would be changed.
    pub changed: Vec<String>,
    pub skipped: Vec<SkippedOutput>,
    /// Number of files examined.
    pub files: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct SkippedOutput {
    pub file: String,
    pub because: String,
}

pub fn run(args: &FmtArgs, global: &Global, report: &Printer) -> Result<Exit, CommandError> {
    let spaces = match Spaces::find(global.project.as_deref()) {
        Ok(spaces) => {
            spaces.print_project(report);
            spaces
        }
        Err(failure) if global.project.is_some() => return Err(failure),
        Err(failure) if args.paths.is_empty() => {
            return Err(
                failure.with_help("name files to format: `rye fmt FILE`, or select a project with `--project DIR`")
            );
        }
        Err(_) => return format_loose_files(args, report),
    };
    let world = spaces.open()?;
    let narrowed = resolve_path_filter(&args.paths, &spaces.project, &world)?;
    let mut output = FmtOutput { changed: Vec::new(), skipped: Vec::new(), files: 0 };
    let mut rewrites = Vec::new();
    let mut broken = false;
    for (kind, entry) in formattable_items(&world)? {
        if entry.space != Space::Project || !is_selected(&narrowed, &entry.path) {
            continue;
        }
        let Some(layout) = formatter_of(kind, &entry.path) else { continue };
        output.files += 1;
        let file = entry.path.to_string();
        let skip = |because: String| SkippedOutput { file: file.clone(), because };
        let found = world.candidates(kind, &entry.id).map_err(|error| error.to_string());
        let located = found.map(|all| all.into_iter().find(|located| located.space == Space::Project));
        let text = located.and_then(|located| {
            let bytes = located.map(|located| located.bytes).unwrap_or_default();
            rye_grammar::source::decode(&bytes).map(str::to_owned).map_err(|error| error.to_string())
        });
        let text = match text {
            Ok(text) => text,
            Err(because) => {
                broken = true;
                output.skipped.push(skip(because));
                continue;
            }
        };
        broken |= format_text(&file, text, layout, &mut rewrites, &mut output);
    }
    finish(args, &spaces.project, &rewrites, output, broken, report)
}

/// Formats files outside of a project. The extension and the content of each file determine the formatter.
fn format_loose_files(args: &FmtArgs, report: &Printer) -> Result<Exit, CommandError> {
    let here = std::env::current_dir()?;
    let mut output = FmtOutput { changed: Vec::new(), skipped: Vec::new(), files: 0 };
    let mut rewrites = Vec::new();
    let mut broken = false;
    for path in &args.paths {
        let shown = path.display().to_string();
        let failed = |error: &dyn std::fmt::Display| CommandError::failed(format!("`{shown}` cannot be read: {error}"));
        let bytes = std::fs::read(path).map_err(|error| failed(&error))?;
        let text = rye_grammar::source::decode(&bytes).map_err(|error| failed(&error))?.to_owned();
        let Some(layout) = formatter_of_loose_file(&shown, &text) else {
            return Err(CommandError::usage(format!("`{shown}` is neither Markdown nor YAML")));
        };
        output.files += 1;
        broken |= format_text(&shown, text, layout, &mut rewrites, &mut output);
    }
    finish(args, &here, &rewrites, output, broken, report)
}

/// Returns the formatter for a file outside of a project: Markdown with a `<directive>` is formatted as a directive,
/// other Markdown as knowledge, YAML as settings. `None` for any other file.
fn formatter_of_loose_file(path: &str, text: &str) -> Option<Formatter> {
    match path.rsplit_once('.') {
        Some((_, "md")) if text.contains("<directive") => formatter_of(ItemKind::Directive, path),
        Some((_, "md")) => formatter_of(ItemKind::Knowledge, path),
        Some((_, "yaml" | "yml")) => formatter_of(ItemKind::Config, path),
        Some(_) | None => None,
    }
}

/// Formats one file. Adds a changed text to `rewrites`, or a refused file to the skipped files of `output`. Returns
/// true if the file has syntax errors.
fn format_text(
    file: &str,
    text: String,
    layout: Formatter,
    rewrites: &mut Vec<FileRewrite>,
    output: &mut FmtOutput,
) -> bool {
    match layout(&text) {
        Ok(formatted) if formatted.text == text => false,
        Ok(formatted) => {
            rewrites.push(FileRewrite { path: file.to_owned(), before: text, after: formatted.text });
            false
        }
        Err(refused) => {
            output.skipped.push(SkippedOutput { file: file.to_owned(), because: refused.to_string() });
            refused == FormatRefusal::Broken
        }
    }
}

/// Writes the changed files below `folder`; writes nothing with `--check`. Prints the result.
fn finish(
    args: &FmtArgs,
    folder: &Path,
    rewrites: &[FileRewrite],
    mut output: FmtOutput,
    broken: bool,
    report: &Printer,
) -> Result<Exit, CommandError> {
    for rewrite in rewrites {
        if !args.check {
            rewrite.write(folder)?;
        }
        output.changed.push(rewrite.path.clone());
    }
    match report.format() {
        Format::Json => report.json(&output)?,
        Format::Human | Format::Plain => {
            for rewrite in rewrites {
                let text = if args.check { rewrite.diff() } else { rewrite.path.clone() };
                report.line(printable(&text).trim_end())?;
            }
            for skipped in &output.skipped {
                report.note(&printable(&format!("left unchanged: {}: {}", skipped.file, skipped.because)));
            }
            report.note(&format_summary(&output, args.check));
        }
    }
    let failed = broken || (args.check && !output.changed.is_empty());
    Ok(if failed { Exit::Failed } else { Exit::Success })
}

/// Returns every item with its kind, except for exports of threads, which are not formatted.
fn formattable_items(world: &dyn World) -> Result<Vec<(ItemKind, Entry)>, CommandError> {
    let mut all = Vec::new();
    for kind in ItemKind::ALL {
        let list = world.list(kind)?;
        let is_export = |entry: &Entry| kind == ItemKind::Knowledge && entry.id.as_str().starts_with("agent/threads/");
        all.extend(list.into_iter().filter(|entry| !is_export(entry)).map(|entry| (kind, entry)));
    }
    Ok(all)
}

type Formatter = fn(&str) -> Result<Formatted, FormatRefusal>;

/// Returns the formatter for a file; `None` for a script, a prompt template or a skill, which are not formatted.
fn formatter_of(kind: ItemKind, path: &str) -> Option<Formatter> {
    let is_yaml = matches!(path.rsplit_once('.'), Some((_, "yaml" | "yml")));
    match kind {
        ItemKind::Directive => Some(format),
        ItemKind::Knowledge if is_yaml => Some(|text| format_knowledge(text, KnowledgeFormat::Yaml)),
        ItemKind::Knowledge => Some(|text| format_knowledge(text, KnowledgeFormat::Markdown)),
        ItemKind::Tool | ItemKind::Config => is_yaml.then_some(format_data as Formatter),
        ItemKind::Prompt | ItemKind::Skill => None,
    }
}

fn is_selected(narrowed: &PathFilter, path: &str) -> bool {
    match narrowed {
        PathFilter::All => true,
        PathFilter::To(paths) => paths
            .iter()
            .any(|p| path.strip_prefix(p.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))),
    }
}

fn format_summary(output: &FmtOutput, check: bool) -> String {
    let files = crate::present::format_count(output.files as u64, "file");
    let changed = output.changed.len();
    match (changed, check) {
        (0, _) => format!("checked {files}: already formatted"),
        (_, true) => format!("checked {files}: formatting would change {changed}"),
        (_, false) => format!("checked {files}: {changed} changed"),
    }
}
