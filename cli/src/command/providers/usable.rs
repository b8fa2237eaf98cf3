//! Checks, before a new session starts, that the model of the session has a key. An error lists the places where a key
//! or a local server could be.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
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
    let mut missing = None;
    let mut keys: Vec<String> = Vec::new();
    for id in provider_ids(&items) {
        let Some(node) = items.config_by_name(&format!("{PROVIDER_FOLDER}{id}")) else { continue };
        let Ok(definition) = ProviderDefinition::from_value(&node.to_value()) else { continue };
        let settings = definition.settings(&environment, &spaces.project);
        let Some(variable) = definition.key_env.clone() else { continue };
        let is_set = settings.key.is_some();
        if id == model.provider && !is_set {
            missing = Some(variable.clone());
        }
        let line = format!("  {variable} ({id}): {}", if is_set { "set" } else { "not set" });
        keys.push(line);
    }
    let Some(variable) = missing else { return Ok(()) };
    let servers = LOCAL_SERVERS.map(|(name, port)| {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let is_there = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).is_ok();
        format!("  {name} at {address}: {}", if is_there { "a server listens" } else { "no server" })
    });
    let message = format!(
        "no usable model: `{}` of `{}` needs a key in `{variable}`\nvariables:\n{}\nlocal servers:\n{}",
        model.id,
        model.provider,
        keys.join("\n"),
        servers.join("\n")
    );
    let help = "set a variable and choose its provider with `--model`, add a provider file for a local server, or play a \
                script in place of a model: `rye chat --script FILE`";
    Err(CommandError::failed(message).with_help(help))
}
