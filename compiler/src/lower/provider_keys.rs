//! Tools that request an environment variable with the key of a provider. A run refuses every call of such a tool.

use rye_grammar::{SourceId, Span};

use crate::diagnostics::{Diagnostics, ItemError};
use crate::item::{Items, Tool};
use crate::mcp_servers::provider_keys;

/// Reports the first variable of a tool that holds the key of a provider.
pub fn check(items: &Items<'_>, tool: &Tool, found: &mut Diagnostics) {
    // Without variables, no provider file is read.
    if tool.spec.environment.is_empty() {
        return;
    }
    let keys = provider_keys(items);
    let Some(name) = tool.spec.environment.iter().find(|name| keys.contains(*name)) else { return };
    found.push(ItemError::ToolValue {
        message: format!("a tool cannot request `{name}`, which holds the key of a provider"),
        span: span_of(items, tool.file.source, name),
        label: "every call of the tool would be refused".to_owned(),
        help: Some("remove it from `environment`; if the tool needs a key of its own, use another variable".to_owned()),
    });
}

/// Returns the span of the first mention of a variable in a tool file, below the key `environment` or `env`. If there
/// is none, returns the start of the file.
fn span_of(items: &Items<'_>, source: SourceId, name: &str) -> Span {
    let sources = items.sources();
    let text = sources.get(source).map(|source| source.text.to_string()).unwrap_or_default();
    let lower = text.to_ascii_lowercase();
    let declared = lower.find("environment").or_else(|| lower.find("env")).unwrap_or(0);
    let mention = text.get(declared..).and_then(|rest| rest.find(name)).map(|at| declared + at);
    mention.map_or(Span::new(source, 0, 0), |start| Span::new(source, start, start + name.len()))
}
