//! `rye providers add`: adds a model to a provider, or changes its entry.

use clap::Args;
use rye_compiler::item::Items;
use rye_grammar::data::Node;
use serde_json::{Map, Value, json};

use super::entry::{Entries, complete_prices, write_entries};
use super::{find_model, list, provider_ids, unknown_provider};
use crate::CommandError;
use crate::exit::Exit;
use crate::present::{format_day, now};
use crate::report::Printer;
use crate::workspace::Spaces;

#[derive(Debug, Args)]
pub struct AddModelArgs {
    /// Provider and id of the model, as in `--model`
    #[arg(value_name = "PROVIDER/MODEL")]
    model: String,
    /// Size of the context window in tokens
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..))]
    context_window: Option<u64>,
    /// Maximum tokens of a reply
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..))]
    max_output: Option<u64>,
    /// Dollars per million tokens of the prompt
    #[arg(long, value_name = "DOLLARS", requires = "output_price")]
    input_price: Option<String>,
    /// Dollars per million tokens of replies
    #[arg(long, value_name = "DOLLARS", requires = "input_price")]
    output_price: Option<String>,
    /// Dollars per million tokens that are read from the cache (default: the price of the prompt)
    #[arg(long, value_name = "DOLLARS", requires = "input_price")]
    cache_read_price: Option<String>,
    /// Dollars per million tokens that are written to the cache (default: the price of the prompt)
    #[arg(long, value_name = "DOLLARS", requires = "input_price")]
    cache_write_price: Option<String>,
    /// The model costs nothing, or its cost does not matter
    #[arg(long, conflicts_with = "input_price")]
    free: bool,
    /// Date of the prices, as YYYY-MM-DD (default: today)
    #[arg(long, value_name = "DATE", requires = "input_price")]
    priced_at: Option<jiff::civil::Date>,
    /// Page where the provider lists the prices
    #[arg(long, value_name = "URL", requires = "input_price")]
    source: Option<String>,
    /// The model does not support tool calls: calls are read from the text of its replies
    #[arg(long)]
    text_tools: bool,
    /// The model accepts no images
    #[arg(long)]
    no_images: bool,
}

pub fn run(args: &AddModelArgs, spaces: &Spaces, report: &Printer) -> Result<Exit, CommandError> {
    let world = spaces.open()?;
    let items = Items::new(&world);
    let (provider, id) = split_model(&args.model)?;
    let known = provider_ids(&items);
    if !known.iter().any(|name| name == provider) {
        return Err(unknown_provider(provider, &known));
    }
    let listed = find_model(&items, provider, id);
    let is_new = listed.is_none();
    if is_new && (args.context_window.is_none() || args.max_output.is_none()) {
        let message = format!("`{provider}` does not list `{id}`: its context window and maximum output are unknown");
        return Err(CommandError::usage(message)
            .with_help("add `--context-window TOKENS --max-output TOKENS`, as the provider documents them"));
    }
    let fields = fields(args, listed.as_ref());
    if fields.is_empty() {
        return Err(CommandError::usage(format!("nothing to change in `{provider}/{id}`"))
            .with_help("name new values, such as `--input-price` and `--output-price`"));
    }
    if is_new && !fields.contains_key("prices") {
        report.note(&format!(
            "`{provider}/{id}` has no price: only tokens are counted, and a run that sets a `spend` limit cannot use \
             the model"
        ));
    }
    drop(items);
    write_entries(&Entries::from([((provider.to_owned(), id.to_owned()), fields)]), spaces, report)?;
    list::print_models(spaces, &[(provider.to_owned(), id.to_owned())], report)
}

/// Splits `provider/model` at the first slash. The id of a model can contain more slashes.
pub fn split_model(text: &str) -> Result<(&str, &str), CommandError> {
    text.split_once('/').filter(|(provider, id)| !provider.is_empty() && !id.trim().is_empty()).ok_or_else(|| {
        CommandError::usage(format!("`{}` does not name a provider and a model", text.escape_debug()))
            .with_help("write `PROVIDER/MODEL`, such as `anthropic/claude-haiku-5-5`")
    })
}

fn fields(args: &AddModelArgs, listed: Option<&Node>) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut set = |key: &str, value: Option<Value>| fields.extend(value.map(|value| (key.to_owned(), value)));
    set("context_window", args.context_window.map(Value::from));
    set("max_output", args.max_output.map(Value::from));
    set("tool_use", args.text_tools.then(|| json!("text_parsed")));
    set("images", args.no_images.then(|| json!(false)));
    if args.free {
        set("prices", Some(json!("none")));
    }
    if let (Some(input), Some(output)) = (&args.input_price, &args.output_price) {
        let cached = [("cache_read", &args.cache_read_price), ("cache_write", &args.cache_write_price)];
        let given = [("input", Some(input)), ("output", Some(output))].into_iter();
        let given = given.chain(cached.map(|(key, price)| (key, price.as_ref())));
        let given = given.filter_map(|(key, price)| Some((key.to_owned(), Value::from(price?.as_str()))));
        set("prices", Some(complete_prices(given.collect(), listed)));
        let day = args.priced_at.map_or_else(today, |day| day.to_string());
        set("priced_at", Some(day.into()));
        set("source", args.source.clone().map(Value::from));
    }
    fields
}

fn today() -> String {
    format_day(now())
}
