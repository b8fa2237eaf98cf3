//! Which MCP servers there are: `.mcp.json` of the project and `.ai/config/mcp.yaml` of the three spaces. Settings of a
//! name in `mcp.yaml` stand above those of `.mcp.json`. Nothing is started here; `${NAME}` is filled when it is.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use rye_compiler::item::Items;
use rye_compiler::plan::hex;
use rye_grammar::data::{Kind, Node};
use rye_grammar::{SourceId, yaml};
use serde::Serialize;
use sha2::{Digest, Sha256};

/// Bytes of `.mcp.json`.
const MAX_FILE: u64 = 1 << 20;
/// What a call may take where nothing is said.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(1);

/// A server, as configured; templates unfilled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Server {
    /// A segment of an id.
    pub name: String,
    pub transport: Transport,
    #[serde(rename = "timeout_seconds", serialize_with = "seconds")]
    pub timeout: Duration,
    /// `.mcp.json`, or the space of the settings file.
    pub origin: String,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// A program that speaks on its input and output.
    Stdio { command: Vec<String>, environment: BTreeMap<String, String> },
    /// Streamable HTTP.
    Http { url: String, headers: BTreeMap<String, String> },
}

fn seconds<S: serde::Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(value.as_secs())
}

impl Server {
    /// Of how the server is reached, lowercase hex: an item that was listed under another answer is of another server.
    pub fn sha256(&self) -> String {
        let text = serde_json::to_string(&self.transport).unwrap_or_default();
        hex(&Sha256::digest(text.as_bytes()))
    }

    /// Tells servers apart by everything that makes them.
    pub(super) fn key(&self) -> String {
        format!("{self:?}")
    }

    /// What would be started or asked, for a person to judge: `npx -y server` or an address.
    pub fn describe(&self) -> String {
        match &self.transport {
            Transport::Stdio { command, .. } => command.join(" "),
            Transport::Http { url, .. } => url.clone(),
        }
    }

    /// The host of a server on the net.
    pub fn host(&self) -> Option<String> {
        let Transport::Http { url, .. } = &self.transport else { return None };
        reqwest::Url::parse(url).ok()?.host_str().map(|h| h.trim_matches(['[', ']']).to_owned())
    }
}

/// Every server, by name.
///
/// # Errors
/// A sentence for the user: a file that cannot be read, a server that says nothing, two of one name.
pub fn servers(project: &Path, items: &Items<'_>) -> Result<BTreeMap<String, Server>, String> {
    let mut all = BTreeMap::new();
    if let Some(text) = mcp_json(project)? {
        let parsed = yaml::parse(SourceId(0), &text);
        if let Some(error) = parsed.errors.first() {
            return Err(format!("`.mcp.json` cannot be read: {error}"));
        }
        if let Some(node) = parsed.tree.get("mcpServers") {
            read(node, ".mcp.json", &mut all)?;
        }
    }
    if let Some(node) = items.config_named("mcp") {
        if let Some(entry) = node.entries().iter().find(|e| e.key.node != "servers") {
            return Err(format!("`.ai/config/mcp.yaml` has no key `{}`; write `servers:`", entry.key.node));
        }
        if let Some(servers) = node.get("servers") {
            let mut own = BTreeMap::new();
            read(servers, ".ai/config/mcp.yaml", &mut own)?;
            all.extend(own);
        }
    }
    Ok(all)
}

/// The text of `.mcp.json`; `None` where there is none.
fn mcp_json(project: &Path) -> Result<Option<String>, String> {
    let path = project.join(".mcp.json");
    let metadata = match std::fs::symlink_metadata(&path) {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(format!("`.mcp.json` cannot be read: {e}")),
    };
    if !metadata.is_file() || metadata.len() > MAX_FILE {
        return Err("`.mcp.json` is no regular file of bearable size".into());
    }
    let mut text = String::new();
    let read = std::fs::File::open(&path).and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text));
    read.map_err(|e| format!("`.mcp.json` cannot be read: {e}"))?;
    Ok(Some(text))
}

fn read(node: &Node, origin: &str, into: &mut BTreeMap<String, Server>) -> Result<(), String> {
    if !matches!(node.kind, Kind::Map(_)) {
        return Err(format!("{origin}: the servers are a mapping of names, not {}", node.describe()));
    }
    for entry in node.entries() {
        let written = &entry.key.node;
        let name = super::listing::segment(written).ok_or_else(|| format!("{origin}: a server has no name"))?;
        let fault = |what: &str| format!("{origin}: server `{}`: {what}", written.escape_debug());
        let server = one(&entry.value, name.clone(), origin).map_err(|what| fault(&what))?;
        if into.insert(name.clone(), server).is_some() {
            return Err(fault(&format!(
                "another one is called `{name}` too, once other characters are written as `_`"
            )));
        }
    }
    Ok(())
}

fn one(node: &Node, name: String, origin: &str) -> Result<Server, String> {
    const KEYS: [&str; 11] = [
        "type",
        "command",
        "args",
        "env",
        "environment",
        "url",
        "headers",
        "timeout_seconds",
        "timeout",
        "description",
        "disabled",
    ];
    if !matches!(node.kind, Kind::Map(_)) {
        return Err(format!("is a mapping, not {}", node.describe()));
    }
    if let Some(unknown) = node.entries().iter().find(|e| !KEYS.contains(&e.key.node.as_str())) {
        // What other programs write into `.mcp.json` is theirs.
        if origin != ".mcp.json" {
            return Err(format!("unknown key `{}`; it takes {}", unknown.key.node, KEYS.join(", ")));
        }
    }
    let timeout = match node.get("timeout_seconds") {
        None => DEFAULT_TIMEOUT,
        Some(value) => match &value.kind {
            Kind::Number(n) => Duration::from_secs(
                n.as_u64().filter(|n| (1..=86_400).contains(n)).ok_or("`timeout_seconds` is no time")?,
            ),
            Kind::Null | Kind::Bool(_) | Kind::String(_) | Kind::List(_) | Kind::Map(_) => {
                return Err("`timeout_seconds` is no time".into());
            }
        },
    };
    let transport = match (node.get("command"), node.get("url").and_then(Node::as_str)) {
        (Some(_), Some(_)) => return Err("has a `command` and a `url`; keep one".into()),
        (Some(command), None) => {
            let mut all = strings(command, "command")?;
            if let Some(args) = node.get("args") {
                all.extend(strings(args, "args")?);
            }
            if all.first().is_none_or(String::is_empty) {
                return Err("`command` names no program".into());
            }
            let environment = map(node.get("env").or_else(|| node.get("environment")), "env")?;
            Transport::Stdio { command: all, environment }
        }
        (None, Some(url)) => {
            if node.get("type").and_then(Node::as_str) == Some("sse") {
                return Err("speaks the old HTTP+SSE transport, which is gone from the protocol; use its streamable HTTP address".into());
            }
            if !url.starts_with("https://") && !url.starts_with("http://") {
                return Err(format!("`{url}` is no web address"));
            }
            Transport::Http { url: url.to_owned(), headers: map(node.get("headers"), "headers")? }
        }
        (None, None) => return Err("has neither a `command` nor a `url`".into()),
    };
    Ok(Server { name, transport, timeout, origin: origin.to_owned() })
}

fn strings(node: &Node, key: &str) -> Result<Vec<String>, String> {
    match &node.kind {
        Kind::String(s) => Ok(vec![s.clone()]),
        Kind::List(items) => items
            .iter()
            .map(|i| match &i.kind {
                Kind::String(s) => Ok(s.clone()),
                Kind::Number(n) => Ok(n.to_string()),
                Kind::Null | Kind::Bool(_) | Kind::List(_) | Kind::Map(_) => {
                    Err(format!("`{key}` is a list of strings"))
                }
            })
            .collect(),
        Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::Map(_) => Err(format!("`{key}` is a list of strings")),
    }
}

fn map(node: Option<&Node>, key: &str) -> Result<BTreeMap<String, String>, String> {
    let Some(node) = node else { return Ok(BTreeMap::new()) };
    if !matches!(node.kind, Kind::Map(_)) {
        return Err(format!("`{key}` is a mapping of names to strings"));
    }
    let mut out = BTreeMap::new();
    for entry in node.entries() {
        let value = match &entry.value.kind {
            Kind::String(s) => s.clone(),
            Kind::Number(n) => n.to_string(),
            Kind::Bool(b) => b.to_string(),
            Kind::Null | Kind::List(_) | Kind::Map(_) => {
                return Err(format!("`{key}` is a mapping of names to strings"));
            }
        };
        out.insert(entry.key.node.clone(), value);
    }
    Ok(out)
}

/// Fills `${NAME}` and `${NAME:-otherwise}` from this process's environment.
///
/// # Errors
/// A variable that is not set, by name.
pub fn expand(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, from)) = rest.split_once("${") {
        out.push_str(before);
        let Some((inside, after)) = from.split_once('}') else {
            return Err("has a `${` that nothing closes".to_owned());
        };
        let (name, otherwise) = inside.split_once(":-").map_or((inside, None), |(n, o)| (n, Some(o)));
        match (std::env::var(name), otherwise) {
            (Ok(value), _) => out.push_str(&value),
            (Err(_), Some(otherwise)) => out.push_str(otherwise),
            (Err(_), None) => return Err(format!("the variable `{name}` of the environment is not set")),
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}
