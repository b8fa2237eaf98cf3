//! `rye providers refresh-prices`: writes the prices that a file lists, and the date of these prices, into the provider
//! files of the user space.

use std::path::PathBuf;

use clap::Args;
use jiff::civil::Date;
use rye_compiler::diagnostics::closest;
use rye_compiler::item::Items;
use rye_engine::rooted_dir::read_user_file;
use rye_grammar::data::Node;
use rye_grammar::{SourceId, yaml};
use serde_json::{Map, Value};

use super::add::split_model;
use super::entry::{Entries, complete_prices, write_entries};
use super::{PROVIDER_FOLDER, find_model, list, provider_ids, unknown_provider};
use crate::CommandError;
use crate::exit::Exit;
use crate::report::{Printer, printable};
use crate::workspace::Spaces;

/// Maximum size in bytes of a file of prices.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Keys of a file of prices.
const KEYS: [&str; 3] = ["priced_at", "source", "models"];

#[derive(Debug, Args)]
pub struct RefreshArgs {
    /// YAML or JSON file with `priced_at` (a date), `source`, and `models`: prices by `provider/model`
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub fn run(args: &RefreshArgs, spaces: &Spaces, report: &Printer) -> Result<Exit, CommandError> {
    let read = read_user_file(&args.file, MAX_FILE_BYTES);
    let text =
        read.map_err(|error| CommandError::usage(format!("`{}` cannot be read: {error}", args.file.display())))?;
    let invalid = |why: String| CommandError::usage(format!("`{}`: {why}", args.file.display())).with_help(FORM);
    let parsed = yaml::parse(SourceId(0), &text);
    if let Some(error) = parsed.errors.first() {
        return Err(invalid(error.to_string()));
    }
    let file = parsed.tree;
    if let Some(entry) = file.entries().iter().find(|entry| !KEYS.contains(&entry.key.node.as_str())) {
        return Err(invalid(format!("unknown key `{}`", entry.key.node.escape_debug())));
    }
    let day = file.get("priced_at").and_then(Node::as_str).ok_or_else(|| invalid("`priced_at` is missing".into()))?;
    let day: Date = day.parse().map_err(|_| invalid(format!("`priced_at` is not a date: `{}`", day.escape_debug())))?;
    let models = file.get("models").map(Node::entries).unwrap_or_default();
    if models.is_empty() {
        return Err(invalid("`models` has no prices".into()));
    }
    let world = spaces.open()?;
    let items = Items::new(&world);
    let known = provider_ids(&items);
    let mut entries = Entries::new();
    for model in models {
        let (provider, id) = split_model(&model.key.node)?;
        if !known.iter().any(|name| name == provider) {
            return Err(unknown_provider(provider, &known));
        }
        let Some(listed) = find_model(&items, provider, id) else {
            return Err(unlisted(&items, provider, id));
        };
        let listed_day = listed.get("priced_at").and_then(Node::as_str).and_then(|day| day.parse::<Date>().ok());
        if let Some(newer) = listed_day.filter(|listed| *listed > day) {
            report.note(&printable(&format!("left unchanged: {provider}/{id} has newer prices (dated {newer})")));
            continue;
        }
        let mut fields = Map::new();
        let prices = match model.value.to_value() {
            Value::Object(prices) => complete_prices(prices, Some(&listed)),
            // Other values are kept as they are. `write_entries` reports an invalid value when it reads the written
            // file.
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => other,
        };
        fields.insert("prices".into(), prices);
        fields.insert("priced_at".into(), day.to_string().into());
        fields.extend(file.get("source").map(|source| ("source".to_owned(), source.to_value())));
        entries.insert((provider.to_owned(), id.to_owned()), fields);
    }
    drop(items);
    if entries.is_empty() {
        report.note("nothing to update: no prices in the file are newer");
        return Ok(Exit::Success);
    }
    write_entries(&entries, spaces, report)?;
    let changed: Vec<(String, String)> = entries.into_keys().collect();
    list::print_models(spaces, &changed, report)
}

const FORM: &str = "write `priced_at: \"2026-12-01\"`, `source: URL`, and `models: { provider/model: { input: \"3\", output: \"15\" } }`";

fn unlisted(items: &Items<'_>, provider: &str, id: &str) -> CommandError {
    let file = items.config_by_name(&format!("{PROVIDER_FOLDER}{provider}"));
    let models = file.as_ref().and_then(|file| file.get("models")).map(Node::items).unwrap_or_default();
    let ids = models.iter().filter_map(|model| model.get("id").and_then(Node::as_str));
    let failure = CommandError::usage(format!("`{provider}` does not list `{}`", id.escape_debug()));
    failure.with_help(match closest(id, ids) {
        Some(near) => format!("did you mean `{provider}/{near}`?"),
        None => format!("add the model with `rye providers add {provider}/{id}`"),
    })
}
