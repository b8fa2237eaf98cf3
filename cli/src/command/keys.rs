//! `rye keys`: manages the user's own key and trusted keys. Keys are stored in the user space only.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use rye_engine::keys::{KeyError, KeyFolder};
use rye_engine::rooted_dir::read_user_file;
use schemars::JsonSchema;
use serde::Serialize;

use crate::CommandError;
use crate::exit::Exit;
use crate::options::Format;
use crate::report::Printer;
use crate::workspace;

/// Maximum size of a file with a public key in bytes.
const MAX_KEY_BYTES: u64 = 64 << 10;

#[derive(Debug, Args)]
pub struct KeysArgs {
    #[command(subcommand)]
    command: KeysCommand,
}

#[derive(Debug, Subcommand)]
enum KeysCommand {
    /// Generate your key, if you have none
    Generate,
    /// List the trusted keys
    List,
    /// Trust the key of another person
    Trust {
        /// The public key as a PEM file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Stop trusting the key of another person
    Revoke {
        /// Id of the key, as `rye keys list` prints it
        #[arg(value_name = "KEYID")]
        key_id: String,
    },
}

/// Output of `rye keys … --format json`: the keys that exist after the command.
#[derive(Debug, Serialize, JsonSchema)]
pub struct KeysOutput {
    pub keys: Vec<KeyOutput>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct KeyOutput {
    pub key_id: String,
    /// True for your own key, which can sign.
    pub own: bool,
    pub file: String,
}

pub fn run(args: &KeysArgs, report: &Printer) -> Result<Exit, CommandError> {
    let keys = user_keys()?;
    match &args.command {
        KeysCommand::Generate => {
            let there = keys.load()?.is_some();
            let identity = keys.load_or_generate()?;
            let action = if there { "your key is" } else { "generated your key" };
            report.note(&format!(
                "{action} {}; others trust your key with `rye keys trust FILE`, where FILE holds your public key:\n{}",
                identity.key_id(),
                read_public_key(&keys)
            ));
        }
        KeysCommand::List => {}
        KeysCommand::Trust { file } => {
            let pem = read_user_file(file, MAX_KEY_BYTES)
                .map_err(|error| CommandError::usage(format!("`{}` cannot be read: {error}", file.display())))?;
            let key_id = keys.trust(&pem)?;
            report.note(&format!("trusted the key {key_id}"));
        }
        KeysCommand::Revoke { key_id } => {
            if keys.load()?.is_some_and(|own| own.key_id() == key_id) {
                let help = format!("to stop using this key, move `{}` to another place", keys.folder().display());
                return Err(
                    CommandError::usage(format!("`{key_id}` is your own key, which is always trusted")).with_help(help)
                );
            }
            if !keys.revoke(key_id)? {
                return Err(CommandError::usage(format!("`{}` is not a trusted key", key_id.escape_debug()))
                    .with_help("`rye keys list` lists the trusted keys"));
            }
            report.note(&format!("signatures by {key_id} are not trusted from now on"));
        }
    }
    print_keys(&keys, report)
}

fn print_keys(keys: &KeyFolder, report: &Printer) -> Result<Exit, CommandError> {
    let listed = keys.list()?;
    if report.format() == Format::Json {
        let output = |key: rye_engine::keys::TrustedKey| KeyOutput {
            key_id: key.key_id,
            own: key.own,
            file: key.path.display().to_string(),
        };
        report.json(&KeysOutput { keys: listed.into_iter().map(output).collect() })?;
        return Ok(Exit::Success);
    }
    for key in &listed {
        let whose = if key.own { "own" } else { "trusted" };
        match report.format() {
            Format::Plain => report.line(&format!("{}\t{whose}\t{}", key.key_id, key.path.display()))?,
            Format::Human | Format::Json => {
                report.line(&format!("{}  {whose:<7}  {}", key.key_id, key.path.display()))?;
            }
        }
    }
    if listed.is_empty() {
        report.note("no keys found: run `rye keys generate`");
    }
    Ok(Exit::Success)
}

fn read_public_key(keys: &KeyFolder) -> String {
    format!("  {}", keys.folder().join("public.pem").display())
}

/// Returns the user's keys; the user space need not exist yet.
pub fn user_keys() -> Result<KeyFolder, CommandError> {
    workspace::check_user_root()?;
    let root = workspace::user_root().ok_or_else(|| {
        CommandError::failed("no user space to store keys in").with_help("set `RYE_USER_SPACE` or `HOME`")
    })?;
    Ok(KeyFolder::of_user_space(&root))
}

impl From<KeyError> for CommandError {
    fn from(error: KeyError) -> Self {
        Self::failed(error.to_string())
    }
}
