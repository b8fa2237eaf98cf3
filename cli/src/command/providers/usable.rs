//! Checks that the key of a model's provider is set, before a new session starts. A provider that needs no key passes.
//! The error lists the key variables of all providers and the usual local servers.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use rye_compiler::item::Items;
use rye_compiler::plan::PlannedModel;
use rye_engine::provider::catalog::ProviderDefinition;
use rye_engine::provider::environment::ProviderEnvironment;

use super::{PROVIDER_FOLDER, provider_ids};
use crate::CommandError;
use crate::workspace::Spaces;

/// Model servers that people run on their machine, with their usual ports.
const LOCAL_SERVERS: [(&str, u16); 4] = [("Ollama", 11434), ("LM Studio", 1234), ("llama.cpp", 8080), ("vLLM", 8000)];
const CONNECT_TIMEOUT: Duration = Duration::from_millis(200);

/// Checks that the provider of a model needs no key or has one.
///
/// # Errors
///
/// The key is missing. The message lists the key variables of all providers and the usual local servers, each with its
/// state.
pub fn require_usable_model(model: &PlannedModel, spaces: &Spaces) -> Result<(), CommandError> {
    let world = spaces.open()?;
    let items = Items::new(&world);
    let environment = ProviderEnvironment::read(spaces.user.as_deref())?;
    check_key((&model.provider, &model.id), &items, &environment, &spaces.project)
}

fn check_key(
    (provider, model): (&str, &str),
    items: &Items<'_>,
    environment: &ProviderEnvironment,
    project: &Path,
) -> Result<(), CommandError> {
    // Returns the key variable of a provider, and true if the variable is set.
    let key_state = |id: &str| {
        let node = items.config_by_name(&format!("{PROVIDER_FOLDER}{id}"))?;
        let definition = ProviderDefinition::from_value(&node.to_value()).ok()?;
        let settings = definition.settings(environment, project);
        definition.key_env.map(|variable| (variable, settings.key.is_some()))
    };
    // The files of the other providers are needed only for the error, so they are read below.
    let Some((variable, false)) = key_state(provider) else { return Ok(()) };
    let describe = |id: &String| {
        let (variable, is_set) = key_state(id)?;
        Some(format!("  {variable} ({id}): {}", if is_set { "set" } else { "not set" }))
    };
    let ids = provider_ids(items);
    let keys: Vec<String> = ids.iter().filter_map(describe).collect();
    let servers = LOCAL_SERVERS.map(|(name, port)| {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let is_there = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).is_ok();
        format!("  {name} at {address}: {}", if is_there { "a server listens" } else { "no server" })
    });
    let message = format!(
        "no usable model: `{model}` of `{provider}` needs a key in `{variable}`\nvariables:\n{}\nlocal servers:\n{}",
        keys.join("\n"),
        servers.join("\n")
    );
    let other =
        "add a provider file for a local server, or play a script in place of a model: `rye chat --script FILE`";
    Err(CommandError::failed(message).with_help(match models_with_key(items, environment, project).first() {
        Some(model) => format!("use a model whose key is set: `--model {model}`; or {other}"),
        None => format!("set a variable and choose its provider with `--model`, {other}"),
    }))
}

/// Returns the default tier of each provider whose key is set, as `PROVIDER/TIER`. If several providers use the same
/// key variable, only the first of these providers is listed.
pub fn usable_models(spaces: &Spaces) -> Result<Vec<String>, CommandError> {
    let world = spaces.open()?;
    let environment = ProviderEnvironment::read(spaces.user.as_deref())?;
    Ok(models_with_key(&Items::new(&world), &environment, &spaces.project))
}

fn models_with_key(items: &Items<'_>, environment: &ProviderEnvironment, project: &Path) -> Vec<String> {
    let mut variables = BTreeSet::new();
    let mut models = Vec::new();
    for id in provider_ids(items) {
        let node = items.config_by_name(&format!("{PROVIDER_FOLDER}{id}"));
        let Some(definition) = node.and_then(|node| ProviderDefinition::from_value(&node.to_value()).ok()) else {
            continue;
        };
        let is_set = definition.settings(environment, project).key.is_some();
        let (Some(variable), Some(tier)) = (definition.key_env, definition.default_tier) else { continue };
        if is_set && variables.insert(variable) {
            models.push(format!("{id}/{tier}"));
        }
    }
    models
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use rye_engine::disk_world::DiskWorld;

    use super::*;

    #[test]
    fn files_of_other_providers_are_read_only_for_the_error() {
        let world = DiskWorld::open(None, None, rye_stdlib::files(), rye_engine::keys::TrustStore::default()).unwrap();
        let model = ("anthropic", "claude");
        let items = Items::new(&world);
        let set = ProviderEnvironment::fixed([("ANTHROPIC_API_KEY".to_owned(), "key".to_owned())]);
        check_key(model, &items, &set, Path::new("/")).unwrap();
        assert_eq!(items.parsed_file_count(), 1);
        let unset = ProviderEnvironment::fixed([]);
        let error = check_key(model, &items, &unset, Path::new("/")).unwrap_err().to_string();
        assert!(error.contains("ANTHROPIC_API_KEY") && error.contains("OPENAI_API_KEY"), "{error}");
        // Two providers use the variable. The models of the first one are named.
        let other = ProviderEnvironment::fixed([("OPENAI_API_KEY".to_owned(), "key".to_owned())]);
        let help = check_key(model, &items, &other, Path::new("/")).unwrap_err().help;
        assert!(help.as_deref().is_some_and(|help| help.contains("`--model openai/general`")), "{help:?}");
        assert_eq!(models_with_key(&items, &other, Path::new("/")), ["openai/general"]);
        assert!(items.parsed_file_count() > 2);
    }
}
