//! The variables that a tool file asks for by name, from this process's environment. Names of provider keys are refused
//! before a tool is made ([`super::registry`]).

use std::collections::BTreeMap;

/// Those of the names that are set to text.
pub fn declared(names: &[String]) -> BTreeMap<String, String> {
    names.iter().filter_map(|name| Some((name.clone(), std::env::var(name).ok()?))).collect()
}
