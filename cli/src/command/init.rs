//! `rye init [DIR]`: creates a project's `.ai/` with a first runnable directive, or a copy of an example. Only creates
//! files, except that missing lines are added to an existing `.gitignore`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use rye_compiler::world::ItemKind;
use rye_engine::keys::KeyFolder;
use schemars::JsonSchema;
use serde::Serialize;

use crate::CommandError;
use crate::examples::{Files, annotated_files, starter_files};
use crate::exit::Exit;
use crate::file_set::FileSet;
use crate::input_schemas;
use crate::options::Format;
use crate::report::Printer;
use crate::workspace::user_root;

/// Files that runs create and that do not belong in version control.
const IGNORED_PATHS: [&str; 2] = [".ai/state/", ".ai/knowledge/agent/threads/"];
const GITIGNORE: &str = ".gitignore";
/// Maximum size in bytes of a `.gitignore` to extend.
const MAX_GITIGNORE_BYTES: u64 = 4 << 20;

#[derive(Debug, Args)]
pub struct InitArgs {
    /// The folder of the project, created if missing
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Start from a copy of an example
    #[arg(long, value_enum, value_name = "NAME", conflicts_with = "bare")]
    example: Option<Example>,
    /// Create the folders only, without a first directive and its script
    #[arg(long)]
    bare: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Example {
    /// A directive, a tool, a structured result
    Hello,
    /// Reads the files of a folder and writes a report
    Review,
    /// A chain of directives, routing and context hooks, a suppression
    Deploy,
}

/// Output of `rye init --format json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct InitOutput {
    pub project: String,
    /// Paths of the created files, relative to the project.
    pub files: Vec<String>,
    /// The directive to run first; null with `--bare`.
    pub directive: Option<String>,
    /// Id of the user's key, which signs threads; null if there is none.
    pub key_id: Option<String>,
}

pub fn run(args: &InitArgs, report: &Printer) -> Result<Exit, CommandError> {
    let (directive, inputs, files) = match args.example {
        None if args.bare => (None, "", Files::new()),
        None => (Some("first"), " --input topic=tea", starter_files()),
        Some(Example::Hello) => (Some("hello"), "", annotated_files("hello")),
        Some(Example::Review) => (Some("review"), "", annotated_files("review")),
        Some(Example::Deploy) => (Some("deploy_staging"), " --input service=billing", annotated_files("deploy")),
    };
    refuse_to_overwrite(&args.dir, &files)?;
    let mut set = FileSet::create_root(&args.dir, report)?;
    // Reads the file before anything is written, so that a read error is reported first.
    let (ignored, added) = extended_gitignore(&set)?.unzip();
    for (path, bytes) in &files {
        set.create(Path::new(path), bytes)?;
    }
    files.keys().try_for_each(|path| input_schemas::write_schema_of(&mut set, path))?;
    if args.bare {
        set.create_folder(Path::new(ItemKind::Directive.folder()))?;
    }
    let mut written: Vec<String> = files.into_keys().collect();
    if let Some(text) = ignored {
        set.replace(Path::new(GITIGNORE), &text)?;
        written.push(".gitignore".to_owned());
    }
    set.keep();
    let project = args.dir.canonicalize()?;
    let key_id = ensure_key_id(report);
    match report.format() {
        Format::Json => report.json(&InitOutput {
            project: project.display().to_string(),
            files: written,
            directive: directive.map(str::to_owned),
            key_id,
        })?,
        Format::Plain => written.iter().try_for_each(|file| report.line(file))?,
        Format::Human => {
            report.line(&format!("Created in {}:", project.display()))?;
            let with_lines = |file: &String| match &added {
                Some(added) if file == GITIGNORE => format!("  {file} (ignores {})", added.join(", ")),
                _ => format!("  {file}"),
            };
            written.iter().try_for_each(|file| report.line(&with_lines(file)))?;
            let there = if args.dir == Path::new(".") { "" } else { " (there)" };
            let next = match directive {
                Some(directive) => {
                    format!("rye check\n  rye plan {directive}\n  rye run {directive}{inputs}\n  rye chat")
                }
                None => "rye chat\n  rye new directive NAME\n  rye check".to_owned(),
            };
            report.note(&format!("\nNext{there}:\n  {next}"));
        }
    }
    Ok(Exit::Success)
}

/// Returns the id of the user's key; generates a key if there is none. Returns `None`, after a note, if no key can be
/// generated, because a project works without a key.
fn ensure_key_id(report: &Printer) -> Option<String> {
    let Some(root) = user_root() else {
        report.note(
            "no user space: without one, nothing of the project can be trusted, so `rye run` is refused; set `HOME` or \
             `RYE_USER_SPACE` to an existing folder",
        );
        return None;
    };
    let keys = KeyFolder::of_user_space(&root);
    let there = matches!(keys.load(), Ok(Some(_)));
    match keys.load_or_generate() {
        Ok(identity) => {
            if !there {
                let folder = keys.folder().display();
                report.note(&format!(
                    "generated your key {} in {folder}; it signs the transcripts and other files of your threads",
                    identity.key_id()
                ));
            }
            Some(identity.key_id().to_owned())
        }
        Err(error) => {
            report.note(&format!("no signing key could be generated: {error}"));
            None
        }
    }
}

/// Fails if any of the files exists, so that no project is a mixture of old and new files.
fn refuse_to_overwrite(dir: &Path, files: &Files) -> Result<(), CommandError> {
    let there = |path: &&str| fs::symlink_metadata(dir.join(path)).is_ok();
    if there(&".ai") {
        let message = format!("`{}` is already a project: it contains `.ai`", dir.display());
        return Err(CommandError::failed(message).with_help("name another folder, or add the files by hand"));
    }
    let in_the_way: Vec<&str> = files.keys().map(String::as_str).filter(there).collect();
    let [first, rest @ ..] = in_the_way.as_slice() else { return Ok(()) };
    let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
    let message = format!("`{}`{more} would be overwritten", dir.join(first).display());
    Err(CommandError::failed(message).with_help("name an empty folder, or move the file away"))
}

/// The content of a file with added lines, and these lines.
type ExtendedFile = (Vec<u8>, Vec<&'static str>);

/// Returns `.gitignore` with the missing lines added, and these lines; `None` if none are missing.
fn extended_gitignore(files: &FileSet) -> Result<Option<ExtendedFile>, CommandError> {
    let mut text = files.read(Path::new(GITIGNORE), MAX_GITIGNORE_BYTES)?.unwrap_or_default();
    let has = |line: &&str| text.split(|byte| *byte == b'\n').any(|there| there.trim_ascii() == line.as_bytes());
    let missing: Vec<&'static str> = IGNORED_PATHS.into_iter().filter(|line| !has(line)).collect();
    if missing.is_empty() {
        return Ok(None);
    }
    if text.last().is_some_and(|last| *last != b'\n') {
        text.push(b'\n');
    }
    for line in &missing {
        text.extend_from_slice(line.as_bytes());
        text.push(b'\n');
    }
    Ok(Some((text, missing)))
}
