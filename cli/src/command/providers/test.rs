//! `rye providers test`: sends a small request to a provider and prints the reply.

use std::time::{Duration, Instant};

use clap::Args;
use rye_compiler::diagnostics::Problem;
use rye_compiler::item::Items;
use rye_compiler::lower::cache::LowerContext;
use rye_compiler::model::ModelOverride;
use rye_compiler::plan::{PlannedModel, Sampling};
use rye_compiler::semantics::money::Nanos;
use rye_compiler::world::ItemKind;
use rye_engine::engine::ApprovalPolicy;
use rye_engine::exchange::cost;
use rye_engine::exchange::{CallError, FailedStage, Reply, Request, ThreadPosition};
use rye_engine::message::{Message, reply_text};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{PROVIDER_FOLDER, default_provider, print_diagnostics, provider_ids, unknown_provider};
use crate::CommandError;
use crate::exit::Exit;
use crate::options::Format;
use crate::present::{format_money, truncate_line};
use crate::report::{Printer, printable};
use crate::workspace::Spaces;

/// Maximum output tokens of the test request, with room for a model that thinks before it answers.
const MAX_OUTPUT_TOKENS: u64 = 1_024;

#[derive(Debug, Args)]
pub struct TestArgs {
    /// The provider (default: `default_provider` of the settings)
    #[arg(value_name = "PROVIDER")]
    provider: Option<String>,
    /// A model or tier of the provider (default: its default tier)
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Seconds after which a reply that is not complete counts as a failure
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    timeout: u64,
}

/// Output of `rye providers test --format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProviderTestOutput {
    pub ok: bool,
    pub provider: String,
    pub model: String,
    /// Model that answered, as named by the provider.
    pub answered_by: Option<String>,
    pub text: Option<String>,
    pub milliseconds: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// Cost in dollars; null if the price is unknown.
    #[schemars(with = "Option<f64>")]
    pub cost: Value,
    pub error: Option<String>,
}

pub fn run(args: &TestArgs, spaces: &Spaces, report: &Printer) -> Result<Exit, CommandError> {
    spaces.print_project(report);
    let world = spaces.open()?;
    let items = Items::new(&world);
    let known = provider_ids(&items);
    let provider = args.provider.clone().or_else(|| default_provider(&items));
    if let Some(id) = provider.as_ref().filter(|id| !known.contains(id)) {
        return Err(unknown_provider(id, &known));
    }
    let (found, wrong) = {
        let shared = LowerContext::new(&items);
        let wanted = ModelOverride { model: args.model.clone(), provider, ..ModelOverride::default() };
        (shared.catalog().resolve(None, &wanted), shared.diagnostics())
    };
    let failed = wrong.has_errors();
    let file = found.as_ref().map(|model| provider_file(&items, &model.provider)).unwrap_or_default();
    print_diagnostics(&wrong, items, report);
    let model = match found {
        Ok(model) => model,
        Err(_) if failed => return Ok(Exit::Failed),
        Err(error) => {
            let failure = CommandError { code: Some("model::unknown"), ..CommandError::failed(error.to_string()) };
            return Err(match error.help() {
                Some(help) => failure.with_help(help),
                None => failure,
            });
        }
    };
    let options = spaces.engine_options(ApprovalPolicy::Deny)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let started = Instant::now();
    let reply = runtime.block_on(async {
        let provider = options.providers.connect(&model)?;
        let request = test_request(&model);
        let call = provider.call(&request, &|_| {});
        tokio::time::timeout(Duration::from_secs(args.timeout), call).await.unwrap_or_else(|_| {
            let message = format!("no complete reply within {} s", args.timeout);
            Err(CallError::new(FailedStage::Timeout, message))
        })
    });
    let is_untrusted = reply.as_ref().is_err_and(|error| error.code.as_deref() == Some("untrusted_provider"));
    let milliseconds = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let output = test_output(&model, &file, reply, milliseconds);
    let exit = match (output.ok, is_untrusted) {
        (true, _) => Exit::Success,
        (false, true) => Exit::Refused,
        (false, false) => Exit::Failed,
    };
    match report.format() {
        Format::Json => report.json(&output)?,
        Format::Human | Format::Plain => report.line(&printable(&format_line(&output)))?,
    }
    Ok(exit)
}

fn test_request(model: &PlannedModel) -> Request {
    Request {
        model: model.id.clone(),
        system: "You are being tested for reachability.".into(),
        turns: vec![Message::user("Answer with the one word: ready").into()],
        tools: Vec::new(),
        max_output: model.requested_output(MAX_OUTPUT_TOKENS),
        first_turn_constant: false,
        sampling: Sampling::default(),
        text_tools: false,
        cue: ThreadPosition::default(),
    }
}

fn test_output(
    model: &PlannedModel,
    file: &str,
    reply: Result<Reply, CallError>,
    milliseconds: u64,
) -> ProviderTestOutput {
    let (usage, answered_by, text, error) = match reply {
        Ok(reply) => (reply.usage, reply.model, Some(reply_text(&reply.content).into_string()), None),
        Err(error) => (error.usage.unwrap_or_default(), None, None, Some(describe_error(model, file, &error))),
    };
    ProviderTestOutput {
        ok: error.is_none(),
        provider: model.provider.clone(),
        model: model.id.clone(),
        answered_by,
        text,
        milliseconds,
        input_tokens: usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write),
        output_tokens: usage.output,
        cost: cost(model, &usage).map_or(Value::Null, Nanos::to_json),
        error,
    }
}

/// Returns the path of the file that configures `provider`, as diagnostics print it. If several spaces have such a
/// file, returns the path of the one with the highest precedence.
fn provider_file(items: &Items<'_>, provider: &str) -> String {
    let id = format!("{PROVIDER_FOLDER}{provider}");
    let listed = items.list(ItemKind::Config);
    let files = listed.iter().filter(|entry| entry.id.as_str() == id);
    let first = files.min_by_key(|entry| entry.space);
    first.map_or(id, |entry| entry.space.display(&entry.path))
}

/// Formats the error, with a hint at its cause. `file` is the path of the provider file.
fn describe_error(model: &PlannedModel, file: &str, error: &CallError) -> String {
    let hint = match (error.stage, error.status) {
        (FailedStage::Setup, _) => String::new(),
        (_, Some(401 | 403)) => match model.connection.get("key_env").and_then(Value::as_str) {
            Some(variable) if error.message.contains(&format!("`{variable}`")) => String::new(),
            Some(variable) => format!(": the key in `{variable}` is not accepted"),
            None => format!(": a key is required; set `key_env` in `{file}` to the name of its variable"),
        },
        (_, Some(300..=399)) => {
            format!(": redirects are not followed; set `base_url` in `{file}` to the final address")
        }
        (_, Some(402)) => ": the account of the provider has no credit".to_owned(),
        (_, Some(429)) => ": the rate limit or the quota of the key is used up; wait, or check the account".to_owned(),
        (_, Some(500..=599)) => ": the provider or a proxy before it has failed; try again later".to_owned(),
        (_, Some(404)) => format!(": the model or the path is wrong; check `id` and `base_url` in `{file}`"),
        (FailedStage::Connect | FailedStage::Timeout, _) => format!(": check `base_url` in `{file}`"),
        (FailedStage::Status | FailedStage::StreamError | FailedStage::Truncated | FailedStage::Protocol, _) => {
            String::new()
        }
    };
    format!("{}{hint}", error.message)
}

fn format_line(output: &ProviderTestOutput) -> String {
    let ProviderTestOutput { provider, model, milliseconds, input_tokens, output_tokens, .. } = output;
    if let Some(error) = &output.error {
        return format!("{provider}/{model}: failed after {milliseconds} ms: {error}");
    }
    let cost =
        Nanos::from_json(&output.cost).map_or_else(|_| "price unknown".to_owned(), |cost| format_money(cost.to_u64()));
    let reply = truncate_line(output.text.as_deref().unwrap_or_default(), 60);
    format!(
        "{provider}/{model}: ok in {milliseconds} ms, {input_tokens} tokens in, {output_tokens} out, {cost}: {reply}"
    )
}
