//! Values in the settings of MCP servers that are probably mistakes: secrets as text in place of a variable such as
//! `${TOKEN}`, variables that are never filled in, keys that are never read, and programs that fail in the sandbox.

use rye_grammar::data::{Entry, Node};
use rye_grammar::{Source, Sources, yaml};

use super::{SERVER_KEYS, ServersErrorPlace, mcp_json};
use crate::item::Items;
use crate::item::tool::plain_variable;
use crate::semantics::needs::is_unencrypted;

/// Shortest text that counts as a secret.
const MIN_SECRET_CHARS: usize = 12;

/// Beginnings of the keys of known services.
const KEY_PREFIXES: [&str; 9] = ["sk-", "sk_", "ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "AKIA"];

/// Words in the names of variables and headers that hold secrets.
const SECRET_WORDS: [&str; 8] =
    ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "APIKEY", "ACCESSKEY", "PRIVATEKEY", "AUTHORIZATION"];

/// The probable mistake in a value of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerValueFault {
    /// The value is the secret itself.
    Literal,
    /// The value contains `$NAME`, which is sent as text. Holds the name.
    PlainVariable(String),
    /// The header is sent by `http:` to a public host.
    Unencrypted,
    /// The value is a program such as `npx`, which fails in the sandbox because it writes below the home folder.
    Launcher(String),
    /// The key of the value is never read: `timeout`, or a key of another program such as `cwd`.
    UnreadKey,
}

/// A value in the settings of a server that is probably a mistake: a secret, a value that does not become the secret that
/// it names, or a program that fails in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultyServerValue {
    pub fault: ServerValueFault,
    /// The dotted path of the value: `mcpServers.github.env.TOKEN`.
    pub key: String,
    /// The name of the variable or header.
    pub name: String,
    pub place: ServersErrorPlace,
}

/// Returns the faulty values in `.mcp.json` and in the project's `.ai/config/mcp.yaml`. Files that cannot be read have none,
/// because their errors are reported.
pub fn find_faulty_values(items: &Items<'_>) -> Vec<FaultyServerValue> {
    let mut found = Vec::new();
    if let Ok(Some(text)) = mcp_json::read_text(items) {
        let mut sources = Sources::default();
        let source = sources.add(Source::new(".mcp.json", text.as_str()));
        find_in_section("mcpServers", yaml::parse(source, &text).tree.get("mcpServers"), &sources, &mut found);
    }
    if let Some(node) = items.config_by_name("mcp") {
        let mut own = Vec::new();
        find_in_section("servers", node.get("servers"), &items.sources(), &mut own);
        // Secrets in the files of the user are not reported, because these files are not shared.
        found.extend(own.into_iter().filter(|one| !one.place.path.starts_with("user:")));
    }
    found
}

fn find_in_section(section: &str, node: Option<&Node>, sources: &Sources, found: &mut Vec<FaultyServerValue>) {
    for server in node.map(Node::entries).unwrap_or_default() {
        let is_public = server.value.get("url").and_then(Node::as_str).is_some_and(is_unencrypted);
        if let Some(fault) = launcher(&server.value)
            && let Some(command) = server.value.get("command")
            && let Some(source) = sources.get(command.span.source)
        {
            let place = ServersErrorPlace {
                path: source.path.to_string(),
                text: source.text.to_string(),
                range: command.span.range(),
            };
            let (key, name) = (format!("{section}.{}.command", server.key.node), "command".to_owned());
            found.push(FaultyServerValue { fault, key, name, place });
        }
        for entry in server.value.entries().iter().filter(|entry| is_unread(&entry.key.node)) {
            let Some(source) = sources.get(entry.key.span.source) else { continue };
            let place = ServersErrorPlace {
                path: source.path.to_string(),
                text: source.text.to_string(),
                range: entry.key.span.range(),
            };
            let name = entry.key.node.clone();
            let key = format!("{section}.{}.{name}", server.key.node);
            found.push(FaultyServerValue { fault: ServerValueFault::UnreadKey, key, name, place });
        }
        for group in ["env", "environment", "headers"] {
            for entry in server.value.get(group).map(Node::entries).unwrap_or_default() {
                let text = entry.value.as_str().unwrap_or_default();
                let is_variable = text.trim_start_matches("Bearer ").starts_with('$') && !text.contains("${");
                let fault = match plain_variable(text).filter(|_| is_variable) {
                    Some(name) => ServerValueFault::PlainVariable(name.to_owned()),
                    None if is_secret(entry) => ServerValueFault::Literal,
                    None if group == "headers" && is_public && text.contains("${") => ServerValueFault::Unencrypted,
                    None => continue,
                };
                let Some(source) = sources.get(entry.value.span.source) else { continue };
                let name = entry.key.node.clone();
                let place = ServersErrorPlace {
                    path: source.path.to_string(),
                    text: source.text.to_string(),
                    range: entry.value.span.range(),
                };
                found.push(FaultyServerValue {
                    fault,
                    key: format!("{section}.{}.{group}.{name}", server.key.node),
                    name,
                    place,
                });
            }
        }
    }
}

/// Returns true for a key of a server that `rye` never reads. This includes `timeout`: the key is in `SERVER_KEYS`,
/// because other programs read it, but its unit differs between these programs.
fn is_unread(key: &str) -> bool {
    key == "timeout" || !SERVER_KEYS.contains(&key)
}

/// Returns the fault of a server that a program such as `npx` starts in the sandbox: the program fetches the server and
/// writes it below the home folder, which the sandbox does not allow. `None` for any other server.
fn launcher(server: &Node) -> Option<ServerValueFault> {
    const LAUNCHERS: [&str; 3] = ["npx", "uvx", "bunx"];
    let command = server.get("command")?;
    let program = command.as_str().or_else(|| command.items().first()?.as_str())?;
    let is_off = server.get("disabled").and_then(Node::as_bool) == Some(true);
    let is_launcher = LAUNCHERS.contains(&program.split_whitespace().next()?);
    (is_launcher && !is_off && server.get("sandbox").is_none()).then(|| ServerValueFault::Launcher(program.to_owned()))
}

/// Returns true if an entry probably holds a secret as text. Two signs count: the name is one of a secret, such as
/// `API_KEY`, or the value begins like the key of a known service. A value that contains a placeholder such as
/// `${TOKEN}` is not a secret.
fn is_secret(entry: &Entry) -> bool {
    let Some(value) = entry.value.as_str() else { return false };
    let value = value.strip_prefix("Bearer ").unwrap_or(value).trim();
    if value.contains("${") || value.chars().count() < MIN_SECRET_CHARS || value.contains(char::is_whitespace) {
        return false;
    }
    // A path or an address of a secret is not a secret.
    if value.starts_with(['/', '~', '.']) || value.contains("://") {
        return false;
    }
    let name: String = entry.key.node.chars().filter(char::is_ascii_alphanumeric).collect();
    let name = name.to_ascii_uppercase();
    let is_named = SECRET_WORDS.iter().any(|word| name.ends_with(word)) || name.ends_with("KEY");
    let is_dummy = value.bytes().all(|byte| byte == b'x' || byte == b'X' || byte == b'.') || value.starts_with('<');
    (is_named && !is_dummy) || KEY_PREFIXES.iter().any(|prefix| value.starts_with(prefix))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::world::MapWorld;

    #[test]
    fn secrets_in_the_settings_of_servers_are_found_with_their_place() {
        let json = r#"{"mcpServers": {"g": {"command": "z", "env": {
            "GITHUB_TOKEN": "ghp_0123456789abcdef", "API_KEY": "${API_KEY}", "KEY_FILE": "/etc/key/of/mine",
            "MODE": "production-mode", "PLAIN": "sk-0123456789abcdef", "TOKEN": "<your token here>", "S_KEY": "xxxxxxxxxxxx"}}}}"#;
        let yaml = "servers:\n  h: { url: https://a.com, headers: { Authorization: \"Bearer 0123456789abcdef\", X-Mode: fast-and-furious } }\n";
        let world = MapWorld::new().project(".mcp.json", json).project(".ai/config/mcp.yaml", yaml);
        let found = find_faulty_values(&Items::new(&world));
        let places: Vec<_> =
            found.iter().map(|one| (one.key.as_str(), one.place.text.get(one.place.range.clone()).unwrap())).collect();
        assert_eq!(
            places,
            [
                ("mcpServers.g.env.GITHUB_TOKEN", "ghp_0123456789abcdef"),
                ("mcpServers.g.env.PLAIN", "sk-0123456789abcdef"),
                ("servers.h.headers.Authorization", "Bearer 0123456789abcdef"),
            ]
        );
    }

    #[test]
    fn variables_that_are_sent_as_text_or_without_encryption_are_found() {
        let yaml = "servers:
  a: { url: https://a.com, headers: { Authorization: \"Bearer $TOKEN\", X-Mode: \"${MODE}\" } }
  b: { command: [b], env: { API_KEY: $API_KEY_OF_B, HOME: \"${HOME}\", PRICE: \"$5\" } }
  c: { url: \"http://c.example.com/mcp\", headers: { Authorization: \"Bearer ${TOKEN}\" } }
  d: { url: \"http://localhost:8080/mcp\", headers: { Authorization: \"Bearer ${TOKEN}\" } }
  e: { command: npx, args: [server] }
  f: { command: npx, args: [server], sandbox: none }
";
        let world = MapWorld::new().project(".ai/config/mcp.yaml", yaml);
        let found = find_faulty_values(&Items::new(&world));
        let faults: Vec<_> = found.into_iter().map(|one| (one.key, one.fault)).collect();
        let plain = |name: &str| ServerValueFault::PlainVariable(name.to_owned());
        assert_eq!(
            faults,
            [
                ("servers.a.headers.Authorization".to_owned(), plain("TOKEN")),
                ("servers.b.env.API_KEY".to_owned(), plain("API_KEY_OF_B")),
                ("servers.c.headers.Authorization".to_owned(), ServerValueFault::Unencrypted),
                ("servers.e.command".to_owned(), ServerValueFault::Launcher("npx".to_owned())),
            ]
        );
    }

    #[test]
    fn keys_that_have_no_meaning_are_found() {
        let json = r#"{"mcpServers": {"a": {"command": "a", "cwd": "sub", "timeout": 2, "envFile": ".env", "disabled": true},
            "b": {"type": "http", "url": "https://b.com", "description": "b", "timeout_seconds": 2}}}"#;
        let world = MapWorld::new().project(".mcp.json", json);
        let found = find_faulty_values(&Items::new(&world));
        assert!(found.iter().all(|one| one.fault == ServerValueFault::UnreadKey), "{found:?}");
        let keys: Vec<&str> = found.iter().map(|one| one.key.as_str()).collect();
        assert_eq!(keys, ["mcpServers.a.cwd", "mcpServers.a.timeout", "mcpServers.a.envFile"]);
    }
}
