//! The settings of MCP servers: `.mcp.json` of the project and `.ai/config/mcp.yaml` of the three spaces. A server of
//! `mcp.yaml` overrides a server of the same name in `.mcp.json`. The engine fills in `${NAME}` when it starts a server.

mod drift;
mod mcp_json;
mod report;
mod secrets;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rye_grammar::data::{Kind, Node};
use rye_grammar::{Source, Sources, Span, yaml};
use serde::Serialize;
use sha2::{Digest, Sha256};
use url::Url;

use crate::diagnostics::closest;
use crate::item::Items;
use crate::semantics::needs::needed_folder_error;
use crate::tool_spec::ServerSandbox;
use crate::world::{ItemKind, hex};
pub(crate) use drift::ConfiguredServers;
pub use drift::ServerDrift;
pub(crate) use report::{check_servers, report_drift};
pub use secrets::{FaultyServerValue, ServerValueFault, find_faulty_values};
use values::{is_disabled, read_string_map, read_strings};

/// Timeout of a call if the settings contain none.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(1);

/// A configured server, with templates not filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct McpServer {
    /// Name of the server, which is a valid segment of an id.
    pub name: String,
    pub transport: McpTransport,
    #[serde(rename = "timeout_seconds", serialize_with = "seconds")]
    pub timeout: Duration,
    /// The file that configures the server.
    pub origin: String,
    /// True if a file of the project configures the server. Such a server requires the user's trust.
    pub of_project: bool,
    /// Requested variables that hold a provider's key. If there are any, the server is not started.
    pub keys: Vec<String>,
}

/// The transport of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum McpTransport {
    /// A program that speaks the protocol on its standard streams. The program runs in a sandbox, unless `sandbox` is
    /// `None`.
    Stdio {
        command: Vec<String>,
        environment: BTreeMap<String, String>,
        /// The folders, hosts and paths that the program may use in spite of the sandbox. The field is serialized as
        /// `wall`, its name in version 0.1: tool files store the hash of the serialized transport, and another name
        /// would change the hash.
        #[serde(rename = "wall")]
        sandbox: Option<SandboxOpenings>,
    },
    /// Streamable HTTP.
    Http { url: String, headers: BTreeMap<String, String> },
}

/// The folders, hosts and paths that the sandbox of a server's program opens. A grant of any tool of the server must
/// name all of these folders and hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SandboxOpenings {
    /// Project folders that the server may write.
    pub write: Vec<String>,
    /// Hosts that the server is meant to reach. If there are any, the whole network is open.
    pub net: Vec<String>,
    /// Paths outside the project that the server may read: absolute, or below `~/`. Only the settings of the server can
    /// permit these paths; a grant cannot. The trust prompt shows the paths.
    pub read: Vec<String>,
}

/// Converts the name of an MCP server to a segment of an id: invalid characters become `_` (`language.md`, Spaces and
/// items). `None` if the name is empty or too long.
pub fn id_segment(name: &str) -> Option<String> {
    let text: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' }).collect();
    (!text.is_empty() && text.len() <= 128).then_some(text)
}

/// Returns the variables that hold a provider's key. The provider files of all spaces are read, so that a project
/// cannot remove a variable by overriding a file of the standard library.
pub fn provider_keys(items: &Items<'_>) -> BTreeSet<String> {
    let list = items.list(ItemKind::Config);
    let files = list.iter().filter(|entry| entry.id.as_str().starts_with("agent/providers/"));
    let mut names = BTreeSet::new();
    for file in files {
        let layers = items.config_layers(&file.id);
        let variables = layers.iter().filter_map(|(_, node)| node.get("key_env")?.as_str());
        names.extend(variables.map(str::to_owned));
    }
    names
}

/// Escapes the non-ASCII characters of an address, which can look like the characters of a known name.
pub(crate) fn escape_non_ascii(address: &str) -> String {
    let spelt = |c: char| if c.is_ascii() { c.to_string() } else { c.escape_unicode().to_string() };
    address.chars().map(spelt).collect()
}

fn seconds<S: serde::Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(value.as_secs())
}

impl McpServer {
    /// Returns the SHA-256 of the transport (command line or URL) in lowercase hex. A tool file stores the hash of the
    /// server that listed the tool. If the hash of the current server differs, the configuration of the server has
    /// changed since then.
    pub fn transport_sha256(&self) -> String {
        let text = serde_json::to_string(&self.transport).unwrap_or_default();
        hex(&Sha256::digest(text.as_bytes()))
    }

    /// Returns a text that identifies the configuration: two servers have the same text only if their configurations
    /// are equal.
    pub fn key(&self) -> String {
        format!("{self:?}")
    }

    /// Describes the server for the trust prompt: the command line or URL, the variables that are set, the paths
    /// outside the project that the program may read, and the variables passed on from the environment.
    pub fn describe(&self) -> String {
        let mut text = match &self.transport {
            McpTransport::Stdio { command, .. } => {
                command.iter().map(|part| quoted(part)).collect::<Vec<_>>().join(" ")
            }
            McpTransport::Http { url, .. } => escape_non_ascii(url),
        };
        // Show the variables too, because a variable can select the program that runs.
        if let McpTransport::Stdio { environment, .. } = &self.transport
            && !environment.is_empty()
        {
            let set: Vec<String> = environment.iter().map(|(name, value)| quoted(&format!("{name}={value}"))).collect();
            text.push_str(", with ");
            text.push_str(&set.join(" "));
        }
        if let McpTransport::Stdio { sandbox: Some(SandboxOpenings { read, .. }), .. } = &self.transport
            && !read.is_empty()
        {
            text.push_str(", reading ");
            text.push_str(&read.join(", "));
        }
        let variables = self.variables();
        if !variables.is_empty() {
            let names: Vec<&str> = variables.iter().map(String::as_str).collect();
            text.push_str(", given ");
            text.push_str(&names.join(", "));
            text.push_str(" of the environment");
        }
        text
    }

    /// Returns the environment variables that placeholders of the transport name: `${NAME}` or `${NAME:-default}`.
    pub fn variables(&self) -> BTreeSet<String> {
        let (lone, map): (Vec<&String>, _) = match &self.transport {
            McpTransport::Stdio { command, environment, .. } => (command.iter().collect(), environment),
            McpTransport::Http { url, headers } => (vec![url], headers),
        };
        let placeholders = |text: &String| -> Vec<String> {
            let inside = text.split("${").skip(1).filter_map(|from| from.split_once('}'));
            inside
                .map(|(placeholder, _)| placeholder.split_once(":-").map_or(placeholder, |(name, _)| name).to_owned())
                .collect()
        };
        lone.into_iter().chain(map.values()).flat_map(placeholders).collect()
    }

    /// Returns the kind of sandbox that the server runs in.
    pub fn isolation(&self) -> ServerSandbox {
        match &self.transport {
            McpTransport::Http { .. } => ServerSandbox::Net,
            McpTransport::Stdio { sandbox: Some(_), .. } => ServerSandbox::Process,
            McpTransport::Stdio { sandbox: None, .. } => ServerSandbox::None,
        }
    }

    /// Returns the access of the server that the grants of its tools must name. For a server with a URL, this is the
    /// host of the URL; for a program, the folders, hosts and paths that its sandbox opens.
    pub fn required_openings(&self) -> SandboxOpenings {
        match &self.transport {
            McpTransport::Http { url, .. } => {
                let url = Url::parse(url).ok();
                let host = url.as_ref().and_then(Url::host_str).map(|h| h.trim_matches(['[', ']']).to_owned());
                SandboxOpenings { net: host.into_iter().collect(), ..SandboxOpenings::default() }
            }
            McpTransport::Stdio { sandbox, .. } => sandbox.clone().unwrap_or_default(),
        }
    }
}

/// The reason why the servers cannot be read: an unreadable file, an incomplete server, or a repeated name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ServersError {
    pub message: String,
    /// The faulty text; `None` if the file itself cannot be read.
    pub place: Option<ServersErrorPlace>,
}

/// The faulty part of a settings file, with the path and the text of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServersErrorPlace {
    pub path: String,
    pub text: String,
    /// Range of the faulty part in `text`, in bytes.
    pub range: std::ops::Range<usize>,
}

impl ServersError {
    /// Returns the message, preceded by the file, the line and the column of the fault, if they are known.
    pub fn with_line(&self) -> String {
        let Some(place) = &self.place else { return self.message.clone() };
        let start = u32::try_from(place.range.start).unwrap_or(u32::MAX);
        let position = Source::new(place.path.as_str(), place.text.as_str()).position(start);
        format!("{}:{}:{}: {}", place.path, position.line, position.column, self.message)
    }

    fn at(message: String, span: Span, sources: &Sources) -> Self {
        let place = sources.get(span.source).map(|source| ServersErrorPlace {
            path: source.path.to_string(),
            text: source.text.to_string(),
            range: span.range(),
        });
        Self { message, place }
    }
}

/// A fault in the settings of a server, with a message. `span` is the faulty part; `None` if the fault concerns the
/// server as a whole.
struct ServerFault {
    message: String,
    span: Option<Span>,
}

impl ServerFault {
    fn at(node: &Node, message: impl Into<String>) -> Self {
        Self { message: message.into(), span: Some(node.span) }
    }
}

impl From<String> for ServerFault {
    fn from(message: String) -> Self {
        Self { message, span: None }
    }
}

impl From<&str> for ServerFault {
    fn from(message: &str) -> Self {
        Self { message: message.to_owned(), span: None }
    }
}

/// Returns every server, by name. Reads the provider files if a server requests a variable, to find the variables that
/// hold a provider's key.
///
/// # Errors
/// A message for the user, and the place of the fault.
pub fn read_servers(items: &Items<'_>) -> Result<BTreeMap<String, McpServer>, ServersError> {
    read_with_disabled(items).map(|(servers, _)| servers)
}

/// Returns the servers like [`read_servers`], and the names of the disabled servers.
fn read_with_disabled(items: &Items<'_>) -> Result<(BTreeMap<String, McpServer>, BTreeSet<String>), ServersError> {
    let (mut all, mut disabled) = (BTreeMap::new(), BTreeSet::new());
    if let Some(text) = mcp_json::read_text(items).map_err(|message| ServersError { message, place: None })? {
        let mut sources = Sources::default();
        let source = sources.add(Source::new(".mcp.json", text.as_str()));
        let parsed = yaml::parse(source, &text);
        if let Some(error) = parsed.errors.first() {
            return Err(ServersError::at(format!("`.mcp.json` cannot be read: {error}"), error.span, &sources));
        }
        if let Some((error, at)) = mcp_json::json_error(&text) {
            let message = format!("`.mcp.json` is not JSON, so other programs cannot read it: {error}");
            return Err(ServersError::at(message, Span::new(source, at, at), &sources));
        }
        let other = parsed.tree.entries().iter().find(|entry| mcp_json::is_like_mcp_servers(&entry.key.node));
        if let Some(node) = parsed.tree.get("mcpServers") {
            read_section(node, ".mcp.json", &sources, &|_| true, &BTreeMap::new(), &mut all)?;
            disabled.extend(all.extract_if(.., |name, _| is_disabled(node, name)).map(|(name, _)| name));
        } else if let Some(entry) = other {
            let key = entry.key.node.escape_debug();
            let message = format!("`.mcp.json` has the unknown key `{key}`; write `mcpServers`");
            return Err(ServersError::at(message, entry.key.span, &sources));
        }
    }
    if let Some(node) = items.config_by_name("mcp") {
        let sources = items.sources();
        if let Some(entry) = node.entries().iter().find(|e| e.key.node != "servers") {
            let message =
                format!("`.ai/config/mcp.yaml` has the unknown key `{}`; its only key is `servers`", entry.key.node);
            return Err(ServersError::at(message, entry.key.span, &sources));
        }
        if let Some(servers) = node.get("servers") {
            let mut own = BTreeMap::new();
            // A server with any setting from the project counts as a server of the project.
            let of_project = |node: &Node| is_of_project(&sources, node);
            read_section(servers, ".ai/config/mcp.yaml", &sources, &of_project, &all, &mut own)?;
            disabled.retain(|name| !own.contains_key(name));
            all.extend(own);
            disabled.extend(all.extract_if(.., |name, _| is_disabled(servers, name)).map(|(name, _)| name));
        }
    }
    find_provider_keys(items, &mut all);
    Ok((all, disabled))
}

/// Sets `keys` of each server: the variables that the server requests and that hold the key of a provider.
fn find_provider_keys(items: &Items<'_>, servers: &mut BTreeMap<String, McpServer>) {
    // Without variables, no provider file is read.
    if servers.values().all(|server| server.variables().is_empty()) {
        return;
    }
    let keys = provider_keys(items);
    for server in servers.values_mut() {
        server.keys = server.variables().into_iter().filter(|name| keys.contains(name)).collect();
    }
}

/// Returns true if a file of the project sets any part of a node. The paths of files in other spaces begin with the
/// space's name.
fn is_of_project(sources: &Sources, node: &Node) -> bool {
    let own =
        sources.get(node.span.source).is_none_or(|s| !s.path.starts_with("user:") && !s.path.starts_with("system:"));
    own || match &node.kind {
        Kind::Map(entries) => entries.iter().any(|entry| is_of_project(sources, &entry.value)),
        Kind::List(items) => items.iter().any(|item| is_of_project(sources, item)),
        Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::String(_) => false,
    }
}

fn read_section(
    node: &Node,
    origin: &str,
    sources: &Sources,
    of_project: &dyn Fn(&Node) -> bool,
    replaced: &BTreeMap<String, McpServer>,
    into: &mut BTreeMap<String, McpServer>,
) -> Result<(), ServersError> {
    if !matches!(node.kind, Kind::Map(_)) {
        let message = format!("{origin}: the servers must be a mapping of names to settings, not {}", node.describe());
        return Err(ServersError::at(message, node.span, sources));
    }
    for entry in node.entries() {
        let written = &entry.key.node;
        let name = id_segment(written)
            .ok_or_else(|| ServersError::at(format!("{origin}: a server has no name"), entry.key.span, sources))?;
        let fault = |what: &str, span: Option<Span>| {
            let message = format!("{origin}: server `{}`: {what}", written.escape_debug());
            ServersError::at(message, span.unwrap_or(entry.key.span), sources)
        };
        let mut server = read_server(&entry.value, name.clone(), origin).map_err(|mut what| {
            let is_partial = ["command", "url"].iter().all(|key| entry.value.get(key).is_none());
            if is_partial && what.span.is_none() && replaced.contains_key(&name) {
                what.message.push_str("; it replaces the server of `.mcp.json` as a whole, so write all its settings");
            }
            fault(&what.message, what.span)
        })?;
        server.of_project = of_project(&entry.value);
        if into.insert(name.clone(), server).is_some() {
            let what = format!(
                "another server has the id `{name}` too, because invalid characters become `_`; rename one of the two servers"
            );
            return Err(fault(&what, None));
        }
    }
    Ok(())
}

/// The keys that the settings of a server may have.
const SERVER_KEYS: [&str; 13] = [
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
    "needs",
    "sandbox",
];

fn read_server(node: &Node, name: String, origin: &str) -> Result<McpServer, ServerFault> {
    const TIMEOUT_FAULT: &str = "`timeout_seconds` must be a whole number from 1 to 86400";
    if !matches!(node.kind, Kind::Map(_)) {
        return Err(ServerFault::at(node, format!("must be a mapping, not {}", node.describe())));
    }
    if let Some(wall) = node.get("wall") {
        return Err(ServerFault::at(wall, "the key `wall` is called `sandbox` now"));
    }
    if let Some(disabled) = node.get("disabled").filter(|disabled| disabled.as_bool().is_none()) {
        return Err(ServerFault::at(disabled, "`disabled` must be `true` or `false`"));
    }
    let mut unknown_keys = node.entries().iter().filter(|e| !SERVER_KEYS.contains(&e.key.node.as_str()));
    let near = unknown_keys.find_map(|entry| Some((entry, closest(&entry.key.node, SERVER_KEYS)?)));
    if let Some((entry, meant)) =
        near.filter(|_| origin == ".mcp.json" && node.get("command").or(node.get("url")).is_some())
    {
        let message = format!("unknown key `{}`; did you mean `{meant}`?", entry.key.node.escape_debug());
        return Err(ServerFault { message, span: Some(entry.key.span) });
    }
    if let Some(unknown) = node.entries().iter().find(|e| !SERVER_KEYS.contains(&e.key.node.as_str())) {
        // Other programs may add their own keys to `.mcp.json`.
        if origin != ".mcp.json" {
            let meant = match unknown.key.node.as_str() {
                "cmd" | "exec" | "program" | "run" | "executable" => Some("command".to_owned()),
                "arguments" | "argv" => Some("args".to_owned()),
                "uri" | "endpoint" | "address" | "base_url" | "httpUrl" | "serverUrl" => Some("url".to_owned()),
                "environ" | "envs" | "variables" => Some("env".to_owned()),
                "transport" | "kind" => Some("type".to_owned()),
                "enabled" | "disable" => Some("disabled".to_owned()),
                other => closest(other, SERVER_KEYS),
            };
            let help = meant.map_or_else(
                || format!("expected one of {}", SERVER_KEYS.join(", ")),
                |meant| format!("did you mean `{meant}`?"),
            );
            let message = format!("unknown key `{}`; {help}", unknown.key.node);
            return Err(ServerFault { message, span: Some(unknown.key.span) });
        }
    }
    let timeout = match node.get("timeout_seconds") {
        None => DEFAULT_TIMEOUT,
        Some(value) => match &value.kind {
            Kind::Number(n) => Duration::from_secs(
                n.as_u64().filter(|n| (1..=86_400).contains(n)).ok_or_else(|| ServerFault::at(value, TIMEOUT_FAULT))?,
            ),
            Kind::Null | Kind::Bool(_) | Kind::String(_) | Kind::List(_) | Kind::Map(_) => {
                return Err(ServerFault::at(value, TIMEOUT_FAULT));
            }
        },
    };
    let transport = read_transport(node)?;
    Ok(McpServer { name, transport, timeout, origin: origin.to_owned(), of_project: true, keys: Vec::new() })
}

fn fault_of_transport(kind: Option<(&Node, &str)>) -> Result<(), ServerFault> {
    let fault = kind.and_then(|(kind, word)| Some(ServerFault::at(kind, mcp_json::misspelled_transport(word)?)));
    fault.map_or(Ok(()), Err)
}

/// Reads the program or the address of a server.
fn read_transport(node: &Node) -> Result<McpTransport, ServerFault> {
    let kind = node.get("type").and_then(|kind| Some((kind, kind.as_str()?)));
    match (node.get("command"), node.get("url").and_then(Node::as_str)) {
        (Some(command), Some(_)) => {
            Err(ServerFault::at(command, "has a `command` and a `url`; keep one of the two keys"))
        }
        (Some(command), None) => {
            if let Some((kind, word @ ("http" | "streamable-http" | "sse"))) = kind {
                let message =
                    format!("`type` is `{word}`, but the server has a `command`: write its `url`, or remove `type`");
                return Err(ServerFault::at(kind, message));
            }
            fault_of_transport(kind)?;
            if let Some((args, text)) = node.get("args").and_then(|args| Some((args, args.as_str()?)))
                && text.trim().contains(char::is_whitespace)
            {
                let args_list: Vec<String> = text.split_whitespace().map(|part| format!("\"{part}\"")).collect();
                let message =
                    format!("`args` has one entry for each argument: write `args: [{}]`", args_list.join(", "));
                return Err(ServerFault::at(args, message));
            }
            check_single_program(command)?;
            let mut all = read_strings(command, "command")?;
            if let Some(args) = node.get("args") {
                all.extend(read_strings(args, "args")?);
            }
            if all.first().is_none_or(String::is_empty) {
                return Err(ServerFault::at(command, "`command` names no program"));
            }
            let environment = read_string_map(node.get("env").or_else(|| node.get("environment")), "env")?;
            let sandbox = read_openings(node)?;
            if sandbox.is_some()
                && let Some(name) = environment.keys().find(|name| controls_the_loader(name))
            {
                let message = format!(
                    "`env` of a sandboxed server cannot set `{name}`: the name is invalid or affects the sandbox"
                );
                return Err(message.into());
            }
            Ok(McpTransport::Stdio { command: all, environment, sandbox })
        }
        (None, Some(url)) => {
            if let Some((kind, "stdio")) = kind {
                let message = "`type` is `stdio`, but the server has a `url`: write its `command`, or remove `type`";
                return Err(ServerFault::at(kind, message));
            }
            fault_of_transport(kind)?;
            let fault_of_url = |message: String| ServerFault { message, span: node.get("url").map(|url| url.span) };
            if node.get("type").and_then(Node::as_str) == Some("sse") {
                return Err(
                    "uses the HTTP+SSE transport, which MCP no longer supports; use the server's streamable HTTP URL"
                        .into(),
                );
            }
            if !url.starts_with("https://") && !url.starts_with("http://") {
                return Err(fault_of_url(format!("`{url}` must start with `https://` or `http://`")));
            }
            if Url::parse(url).is_ok_and(|url| !url.username().is_empty() || url.password().is_some()) {
                return Err(fault_of_url(format!(
                    "`{url}` contains a user name or password; send credentials in `headers` instead"
                )));
            }
            // A variable must not determine the host, since grants name hosts.
            let authority =
                url.split("://").nth(1).and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
            if authority.contains("${") || !Url::parse(url).is_ok_and(|url| url.has_host()) {
                return Err(fault_of_url(format!("`{url}` must have a valid host, written without a variable")));
            }
            Ok(McpTransport::Http { url: url.to_owned(), headers: read_string_map(node.get("headers"), "headers")? })
        }
        (None, None) => {
            let near = node.entries().iter().find_map(|entry| {
                let written = entry.key.node.as_str();
                let meant = closest(written, ["command", "url"]).filter(|_| !SERVER_KEYS.contains(&written))?;
                Some((format!("; did you mean `{meant}` for `{written}`?"), entry.key.span))
            });
            let (hint, span) = near.map_or_else(Default::default, |(hint, span)| (hint, Some(span)));
            Err(ServerFault { message: format!("has neither a `command` nor a `url`{hint}"), span })
        }
    }
}

/// Refuses a command line in place of a program (`npx -y server` is not the name of a program). A path may contain a
/// space.
fn check_single_program(command: &Node) -> Result<(), ServerFault> {
    let Some((program, rest)) = command.as_str().and_then(|text| text.trim().split_once(char::is_whitespace)) else {
        return Ok(());
    };
    if program.contains(['/', '\\']) {
        return Ok(());
    }
    let args: Vec<String> = rest.split_whitespace().map(|part| format!("\"{part}\"")).collect();
    let message = format!("`command` is one program: write `command: {program}` and `args: [{}]`", args.join(", "));
    Err(ServerFault::at(command, message))
}

/// Reads `needs: { write: [out/], net: [example.com] }`; returns `None` for `sandbox: none`.
fn read_openings(node: &Node) -> Result<Option<SandboxOpenings>, ServerFault> {
    let needs = node.get("needs");
    match node.get("sandbox").map(|sandbox| sandbox.as_str().unwrap_or_default()) {
        Some("none") if needs.is_some() => {
            let message = "a server without a sandbox needs no grants: keep either `sandbox: none` or `needs`";
            return Err(message.into());
        }
        Some("none") => return Ok(None),
        Some("process") | None => {}
        Some(_) => {
            let message = "`sandbox` must be `process` or `none`";
            return Err(node.get("sandbox").map_or_else(|| message.into(), |value| ServerFault::at(value, message)));
        }
    }
    let Some(needs) = needs else { return Ok(Some(SandboxOpenings::default())) };
    let known = |key: &str| matches!(key, "read" | "write" | "net");
    if !matches!(needs.kind, Kind::Map(_)) || needs.entries().iter().any(|e| !known(&e.key.node)) {
        return Err(ServerFault::at(needs, "`needs` must be a mapping with `read`, `write` and `net` only"));
    }
    let list = |key: &str| needs.get(key).map_or(Ok(Vec::new()), |node| read_strings(node, key));
    let openings = SandboxOpenings { write: list("write")?, net: list("net")?, read: list("read")? };
    if openings.read.iter().any(|path| !(path.starts_with('/') || path.starts_with("~/"))) {
        let message = "`read` needs paths that start with `/` or `~/`; the project is always readable";
        return Err(ServerFault::at(needs, message));
    }
    if let Some((path, (what, _, help))) =
        openings.write.iter().find_map(|path| Some((path, needed_folder_error(path)?)))
    {
        return Err(ServerFault::at(needs, format!("`{path}` in `write` {what}: {help}")));
    }
    Ok(Some(openings))
}

/// Returns true if the settings of a server must not set the environment variable `name`: the name is invalid, or the
/// variable controls `rye` or the dynamic loader, which runs before the sandbox applies.
fn controls_the_loader(name: &str) -> bool {
    const LOADER_PREFIXES: [&str; 5] = ["LD_", "DYLD_", "GLIBC_", "GCONV_", "RYE_"];
    name.is_empty() || name.contains(['=', '\0']) || LOADER_PREFIXES.iter().any(|front| name.starts_with(front))
}

/// Quotes a part of a command if it contains special characters.
fn quoted(part: &str) -> String {
    let plain = !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:@=+,${}%^~".contains(c));
    if plain { part.to_owned() } else { serde_json::Value::from(part).to_string() }
}
