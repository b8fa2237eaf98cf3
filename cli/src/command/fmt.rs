//! `rye fmt [PATH…]`: formats the metadata of directives and knowledge, and YAML files. With `--check`, only reports
//! what would change.

use std::path::PathBuf;

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
    /// Files, folders or ids; without one, the whole project
    #[arg(value_name = "PATH|ID")]
    paths: Vec<PathBuf>,
    /// Change nothing; print what would change, and fail if anything would
    #[arg(long)]
    check: bool,
}

/// Output of `rye fmt --format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FmtOutput {
    /// Files that were changed, or would be with `--check`.
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
    let spaces = Spaces::find(global.project.as_deref())?;
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
        match layout(&text) {
            Ok(formatted) if formatted.text == text => {}
            Ok(formatted) => rewrites.push(FileRewrite { path: file, before: text, after: formatted.text }),
            Err(refused) => {
                broken |= refused == FormatRefusal::Broken;
                output.skipped.push(skip(refused.to_string()));
            }
        }
    }
    for rewrite in &rewrites {
        if !args.check {
            rewrite.write(&spaces.project)?;
        }
        output.changed.push(rewrite.path.clone());
    }
    match report.format() {
        Format::Json => report.json(&output)?,
        Format::Human | Format::Plain => {
            for rewrite in &rewrites {
                let text = if args.check { rewrite.diff() } else { rewrite.path.clone() };
                report.line(printable(&text).trim_end())?;
            }
            for skipped in &output.skipped {
                report.note(&printable(&format!("left unchanged: {}: {}", skipped.file, skipped.because)));
            }
            report.note(&summary(&output, args.check));
        }
    }
    let failed = broken || (args.check && !output.changed.is_empty());
    Ok(if failed { Exit::Failed } else { Exit::Fine })
}

/// Returns every item, by kind. Exports of threads are not formatted.
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

/// Returns the formatter for a file; `None` for scripts.
fn formatter_of(kind: ItemKind, path: &str) -> Option<Formatter> {
    let is_yaml = matches!(path.rsplit_once('.'), Some((_, "yaml" | "yml")));
    match kind {
        ItemKind::Directive => Some(format),
        ItemKind::Knowledge if is_yaml => Some(|text| format_knowledge(text, KnowledgeFormat::Yaml)),
        ItemKind::Knowledge => Some(|text| format_knowledge(text, KnowledgeFormat::Markdown)),
        ItemKind::Tool | ItemKind::Config => is_yaml.then_some(format_data as Formatter),
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

fn summary(output: &FmtOutput, check: bool) -> String {
    let files = crate::present::format_count(output.files as u64, "file");
    let changed = output.changed.len();
    match (changed, check) {
        (0, _) => format!("checked {files}: already formatted"),
        (_, true) => format!("checked {files}: {changed} would change"),
        (_, false) => format!("checked {files}: {changed} changed"),
    }
}
