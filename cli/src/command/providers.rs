//! `rye providers`: lists model providers with keys, models and prices, tests them, and adds models and prices.

mod add;
mod entry;
mod list;
mod refresh;
mod test;
pub mod usable;

use clap::{Args, Subcommand};
use rye_compiler::diagnostics::{Diagnostics, closest};
use rye_compiler::item::Items;
use rye_compiler::model;
use rye_compiler::world::ItemKind;
use rye_grammar::data::Node;

use crate::CommandError;
use crate::exit::Exit;
use crate::options::Global;
use crate::report::Printer;
use crate::workspace::Spaces;

pub use list::ProvidersOutput;
pub use test::ProviderTestOutput;

/// Id prefix of provider files.
const PROVIDER_FOLDER: &str = "agent/providers/";

#[derive(Debug, Args)]
pub struct ProvidersArgs {
    #[command(subcommand)]
    command: ProvidersCommand,
}

#[derive(Debug, Subcommand)]
enum ProvidersCommand {
    /// List providers: address, key status, tiers, models and prices
    List,
    /// Send a small request, which may cost a fraction of a cent, and print the reply
    Test(test::TestArgs),
    /// Add a model that the provider file does not list, or change its prices, in your user space
    Add(add::AddModelArgs),
    /// Update prices from a dated file, in your user space
    RefreshPrices(refresh::RefreshArgs),
}

pub fn run(args: &ProvidersArgs, global: &Global, report: &Printer) -> Result<Exit, CommandError> {
    let (spaces, _) = Spaces::find_or_here(global.project.as_deref())?;
    match &args.command {
        ProvidersCommand::List => list::run(&spaces, report),
        ProvidersCommand::Test(args) => test::run(args, &spaces, report),
        ProvidersCommand::Add(args) => add::run(args, &spaces, report),
        ProvidersCommand::RefreshPrices(args) => refresh::run(args, &spaces, report),
    }
}

/// Returns the ids of all provider files, sorted.
fn provider_ids(items: &Items<'_>) -> Vec<String> {
    let listed = items.list(ItemKind::Config);
    let mut ids: Vec<String> = listed
        .iter()
        .filter_map(|entry| entry.id.as_str().strip_prefix(PROVIDER_FOLDER))
        .filter(|id| !id.contains('/'))
        .map(str::to_owned)
        .collect();
    ids.sort();
    ids.dedup();
    ids
}

/// Returns the entry of a model in the merged provider file; `None` if the file does not list the model.
fn find_model(items: &Items<'_>, provider: &str, id: &str) -> Option<Node> {
    let file = items.config_by_name(&format!("{PROVIDER_FOLDER}{provider}"))?;
    file.get("models")?.items().iter().find(|model| model.get("id").and_then(Node::as_str) == Some(id)).cloned()
}

/// Returns the ids of the models in a provider file, each with the tiers that select the model. Empty if there is no
/// valid file for the provider.
///
/// # Errors
///
/// The files cannot be read.
pub fn model_choices(spaces: &Spaces, provider: &str) -> Result<Vec<(String, Vec<String>)>, CommandError> {
    let world = spaces.open()?;
    let items = Items::new(&world);
    let Some(file) = items.config_by_name(&format!("{PROVIDER_FOLDER}{provider}")) else { return Ok(Vec::new()) };
    // Faults of the provider file are not reported here, because `rye check` reports them.
    let read = model::read_provider(provider, &file, &items.sources(), &mut Diagnostics::new());
    let Some(read) = read else { return Ok(Vec::new()) };
    let tiers_of = |id: &str| read.tiers.iter().filter(|(_, of)| *of == id).map(|(tier, _)| tier.clone()).collect();
    Ok(read.models.iter().map(|model| (model.id.clone(), tiers_of(&model.id))).collect())
}

fn unknown_provider(id: &str, known: &[String]) -> CommandError {
    let failure = CommandError::usage(format!("unknown provider `{}`", id.escape_debug()));
    match closest(id, known.iter().map(String::as_str)) {
        Some(near) => failure.with_help(format!("did you mean `{near}`?")),
        None => failure.with_help(format!("available: {}", known.join(", "))),
    }
}

/// Returns the default provider of the settings; `None` if the settings name no default provider.
fn default_provider(items: &Items<'_>) -> Option<String> {
    let settings = items.config_by_name("agent/models")?;
    settings.get("default_provider")?.as_str().map(str::to_owned)
}

/// Prints the diagnostics of the files that were read.
fn print_diagnostics(diagnostics: &Diagnostics, items: Items<'_>, report: &Printer) {
    report.diagnostics(diagnostics, &items.into_sources());
}
