//! Environment variables that a tool file or a server's settings request by name. Names of provider keys are refused
//! before anything starts.

use std::collections::BTreeMap;

pub use rye_compiler::mcp_servers::provider_keys;

/// Returns the environment variables `names` with their values, without variables that are unset or not valid Unicode.
pub(crate) fn declared_variables(names: &[String]) -> BTreeMap<String, String> {
    names.iter().filter_map(|name| Some((name.clone(), std::env::var(name).ok()?))).collect()
}
