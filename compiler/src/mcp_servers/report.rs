//! Reports of tools that do not fit the settings of their MCP server.

use std::collections::BTreeMap;

use rye_grammar::{ItemId, Span};

use super::drift::{ConfiguredServers, ServerDrift};
use crate::diagnostics::{ConfigError, Diagnostics};
use crate::item::Items;
use crate::world::{ItemKind, Space};

/// Id prefix of the tools that `rye mcp refresh` writes.
const TOOL_PREFIX: &str = "mcp/";

/// Reports every server whose settings do not fit the tool files of the project and of the user, once for each
/// difference.
pub(crate) fn check_servers(items: &Items<'_>, found: &mut Diagnostics) {
    let list = items.list(ItemKind::Tool);
    let mut ids: Vec<&ItemId> = list
        .iter()
        .filter(|e| e.space != Space::System && e.id.as_str().starts_with(TOOL_PREFIX))
        .map(|e| &e.id)
        .collect();
    ids.dedup();
    if ids.is_empty() {
        return;
    }
    let servers = ConfiguredServers::read(items);
    let drift = |id: &ItemId| Some((id.clone(), servers.drift_of(&items.tool(id)?.spec)?));
    let drifted: Vec<(ItemId, ServerDrift)> = ids.into_iter().filter_map(drift).collect();
    report_drift(items, &drifted, found);
}

/// Reports the differences between tools and the settings of their MCP servers. A difference that several tools have is
/// reported once, with the label at the first of these tools.
pub(crate) fn report_drift(items: &Items<'_>, drifted: &[(ItemId, ServerDrift)], found: &mut Diagnostics) {
    let mut by_drift: BTreeMap<&ServerDrift, Vec<&ItemId>> = BTreeMap::new();
    for (id, drift) in drifted {
        by_drift.entry(drift).or_default().push(id);
    }
    for (drift, ids) in by_drift {
        // The reader of the settings reports its own errors.
        let is_reported = matches!(drift, ServerDrift::Unreadable { .. });
        let Some(tool) = ids.first().and_then(|id| items.tool(id)).filter(|_| !is_reported) else { continue };
        found.push(ConfigError::StaleServer {
            why: drift.to_string(),
            tools: ids.len(),
            first: ids.first().map(ToString::to_string).unwrap_or_default(),
            is_refused: drift.refuses_calls(),
            help: drift.help(),
            span: tool_span(items, tool.file.source),
        });
    }
}

/// Returns the span of the line of a tool file that names the server; the start of the file if no line does.
fn tool_span(items: &Items<'_>, source: rye_grammar::SourceId) -> Span {
    let sources = items.sources();
    let text = sources.get(source).map(|source| source.text.to_string()).unwrap_or_default();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if line.starts_with("server:") {
            return Span::new(source, start, start + line.trim_end().len());
        }
        start += line.len();
    }
    Span::new(source, 0, 0)
}
