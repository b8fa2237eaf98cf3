//! `rye sign` and `rye verify`: sign items of the project and the user space, and verify their signatures
//! (`language.md` 3).

use clap::Args;
use rye_compiler::semantics::glob;
use rye_compiler::world::{ItemKind, Space};
use rye_engine::disk_world::{DiskWorld, FileSignature, SignaturePolicy};
use rye_engine::keys::{SignatureStatus, sign_in_place};
use schemars::JsonSchema;
use serde::Serialize;

use super::keys::user_keys;
use crate::CommandError;
use crate::exit::Exit;
use crate::options::{Format, Global};
use crate::present::{format_count, format_date, now};
use crate::report::{Printer, printable};
use crate::workspace::Spaces;

#[derive(Debug, Args)]
pub struct SignArgs {
    /// Items to sign: a file, an id, or a pattern of ids (`project/deploy/*`), with or without its kind (`tool:lint`)
    #[arg(value_name = "ITEM|GLOB", required = true)]
    items: Vec<String>,
    /// Sign items of the user space instead of the project's
    #[arg(long)]
    user: bool,
}

#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Items to verify, written as for `rye sign` (default: all items of the project and the user space)
    #[arg(value_name = "ITEM|GLOB")]
    items: Vec<String>,
}

/// Output of `rye verify --format json`, and of `rye sign`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SignaturesOutput {
    pub files: Vec<SignatureOutput>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct SignatureOutput {
    /// Space of the file: `project` or `user`.
    pub space: &'static str,
    /// Kind of the item: `directive`, `knowledge`, `tool` or `config`.
    pub kind: &'static str,
    pub id: String,
    pub file: String,
    /// State of the signature: `signed`, `unsigned` or `refused`.
    pub state: &'static str,
    pub key_id: Option<String>,
    /// Time of the signature, RFC 3339.
    pub signed_at: Option<String>,
    /// The reason why the file is refused, if it is refused.
    pub because: Option<String>,
}

pub fn sign(args: &SignArgs, global: &Global, report: &Printer) -> Result<Exit, CommandError> {
    let spaces = Spaces::find(global.project.as_deref())?;
    spaces.print_project(report);
    let space = if args.user { Space::User } else { Space::Project };
    let root = match &spaces.user {
        _ if !args.user => &spaces.project,
        Some(user) => user,
        None => {
            return Err(CommandError::usage(
                "no user space found: create a user space with `rye keys generate`, or set `RYE_USER_SPACE`",
            ));
        }
    };
    let identity = user_keys()?.load()?.ok_or_else(|| {
        CommandError::failed("no signing key found to sign with").with_help("create a key with `rye keys generate`")
    })?;
    let all: Vec<FileSignature> =
        all_signatures(&spaces.open()?)?.into_iter().filter(|file| file.space == space).collect();
    let wanted = matching_files(&args.items, all)?;
    let now = format_date(now());
    for file in &wanted {
        sign_in_place(root, &file.path, &identity, &now)
            .map_err(|error| CommandError::failed(format!("`{}` cannot be signed: {error}", file.path)))?;
    }
    let signed = all_signatures(&spaces.open()?)?;
    let signed =
        signed.into_iter().filter(|file| wanted.iter().any(|w| (w.space, &w.path) == (file.space, &file.path)));
    print_signatures(&signed.collect::<Vec<_>>(), SignaturePolicy::Shared, report)
}

pub fn verify(args: &VerifyArgs, global: &Global, report: &Printer) -> Result<Exit, CommandError> {
    let spaces = Spaces::find_and_print(global.project.as_deref(), report)?;
    let world = spaces.open()?;
    let all = all_signatures(&world)?;
    let wanted = if args.items.is_empty() { all } else { matching_files(&args.items, all)? };
    let require = world.signature_policy().map_err(|error| CommandError::failed(error.to_string()))?;
    print_signatures(&wanted, require, report)
}

fn all_signatures(world: &DiskWorld) -> Result<Vec<FileSignature>, CommandError> {
    let mut all = Vec::new();
    for kind in ItemKind::ALL {
        all.extend(world.file_signatures(kind).map_err(|error| CommandError::failed(error.to_string()))?);
    }
    Ok(all)
}

/// Returns the files that match any of the arguments; an argument without a match is an error.
fn matching_files(words: &[String], all: Vec<FileSignature>) -> Result<Vec<FileSignature>, CommandError> {
    for word in words {
        if !all.iter().any(|file| matches_item(word, file)) {
            return Err(CommandError::usage(format!("`{}` matches no item", word.escape_debug()))
                .with_help("name a file, an id or a pattern of ids: `rye verify` lists all files"));
        }
    }
    Ok(all.into_iter().filter(|file| words.iter().any(|word| matches_item(word, file))).collect())
}

fn matches_item(word: &str, file: &FileSignature) -> bool {
    if word.trim_start_matches("./") == &*file.path {
        return true;
    }
    let (kind, pattern) = match word.split_once(':') {
        Some((kind, pattern)) => (ItemKind::from_word(kind), pattern),
        None => (Some(file.kind), word),
    };
    kind == Some(file.kind) && glob::matches(pattern, file.id.as_str())
}

fn print_signatures(files: &[FileSignature], require: SignaturePolicy, report: &Printer) -> Result<Exit, CommandError> {
    let outputs: Vec<SignatureOutput> = files.iter().map(|file| signature_output(file, require)).collect();
    let refused = outputs.iter().filter(|file| file.state == "refused").count();
    let exit = if refused > 0 { Exit::Refused } else { Exit::Success };
    if report.format() == Format::Json {
        report.json(&SignaturesOutput { files: outputs })?;
        return Ok(exit);
    }
    for file in &outputs {
        let about =
            file.because.clone().or_else(|| Some(format!("{} {}", file.key_id.clone()?, file.signed_at.clone()?)));
        let about = about.unwrap_or_default();
        report.line(&printable(&match report.format() {
            Format::Plain => format!("{}\t{}\t{about}", file.state, file.file),
            Format::Human | Format::Json => format!("{:<8}  {}  {about}", file.state, file.file).trim_end().to_owned(),
        }))?;
    }
    let signed = outputs.iter().filter(|file| file.state == "signed").count();
    let files = format_count(outputs.len() as u64, "file");
    report.note(&format!("{files}: {signed} signed, {refused} refused"));
    Ok(exit)
}

fn signature_output(file: &FileSignature, require: SignaturePolicy) -> SignatureOutput {
    let (state, key_id, signed_at, because) = match &file.status {
        Ok(SignatureStatus::Signed { key_id, timestamp }) => {
            ("signed", Some(key_id.clone()), Some(timestamp.clone()), None)
        }
        Ok(SignatureStatus::Unsigned) if require == SignaturePolicy::All => {
            ("refused", None, None, Some("it is not signed, and `signing.require` is `all`".to_owned()))
        }
        Ok(SignatureStatus::Unsigned) => ("unsigned", None, None, None),
        Err(fault) => ("refused", None, None, Some(fault.to_string())),
    };
    SignatureOutput {
        space: file.space.as_str(),
        kind: file.kind.as_str(),
        id: file.id.to_string(),
        file: file.space.display(&file.path),
        state,
        key_id,
        signed_at,
        because,
    }
}
