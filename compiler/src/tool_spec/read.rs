//! Reads a [`ToolSpec`] from a metadata mapping, collecting every fault with its place.

use std::collections::BTreeSet;

use rye_grammar::Span;
use rye_grammar::data::{Kind, Node};
use serde_json::{Map, Value, json};

use super::{DEFAULT_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS, Needs, ToolFault, ToolFaultCode, ToolKind, ToolSpec, argv};

/// Keys of every tool; the last ones are for readers.
const KEYS: [&str; 15] = [
    "description",
    "parameters",
    "kind",
    "builtin",
    "command",
    "timeout_seconds",
    "parallel",
    "idempotent",
    "needs",
    "version",
    "category",
    "name",
    "title",
    "author",
    "tags",
];

impl ToolSpec {
    /// Reads the metadata of a tool, or says everything that is wrong with it.
    pub fn read(metadata: &Node) -> Result<Self, Vec<ToolFault>> {
        let mut r = Reader { faults: Vec::new() };
        let spec = r.spec(metadata);
        match spec {
            Some(spec) if r.faults.is_empty() => Ok(spec),
            Some(_) | None => Err(r.faults),
        }
    }
}

struct Reader {
    faults: Vec<ToolFault>,
}

impl Reader {
    fn spec(&mut self, node: &Node) -> Option<ToolSpec> {
        if !matches!(node.kind, Kind::Map(_)) {
            self.bad(node.span, format!("a tool is a mapping, not {}", node.describe()), "expected a mapping", None);
            return None;
        }
        self.known_keys(node, &KEYS, "a tool");
        let description = self.text(node, "description");
        if description.as_deref().is_none_or(|d| d.trim().is_empty())
            && node.get("description").is_none_or(|d| d.as_str().is_some())
        {
            self.missing(node, "description", "say in one sentence what the tool does; the model chooses by it");
        }
        let parameters = self.parameters(node);
        let kind = self.kind(node, &parameters);
        let spec = ToolSpec {
            description: description.unwrap_or_default().trim().to_owned(),
            parameters,
            kind: kind?,
            timeout_seconds: self.timeout(node),
            parallel: self.flag(node, "parallel"),
            idempotent: self.flag(node, "idempotent"),
            needs: self.needs(node),
            version: self.text(node, "version"),
            category: self.text(node, "category"),
        };
        for key in ["name", "title", "author"] {
            self.text(node, key);
        }
        Some(spec)
    }

    fn kind(&mut self, node: &Node, parameters: &Value) -> Option<ToolKind> {
        let Some(kind) = node.get("kind") else {
            self.missing(node, "kind", "`kind: command` runs a program, `kind: builtin` names a tool of the engine");
            return None;
        };
        match kind.as_str() {
            Some("builtin") => {
                self.stray(node, "command", "builtin");
                let Some(name) = self.text(node, "builtin") else {
                    self.missing(node, "builtin", "name the built-in tool: `builtin: read`");
                    return None;
                };
                Some(ToolKind::Builtin { name })
            }
            Some("command") => {
                self.stray(node, "builtin", "command");
                self.command(node, parameters).map(|argv| ToolKind::Command { argv })
            }
            Some(other) => {
                let help = did_you_mean(other, &["builtin", "command"]);
                self.bad(kind.span, format!("no tool is of kind `{other}`"), "unknown kind", Some(help));
                None
            }
            None => {
                self.wrong(kind, "kind", "a string");
                None
            }
        }
    }

    fn command(&mut self, node: &Node, parameters: &Value) -> Option<Vec<String>> {
        let Some(command) = node.get("command") else {
            self.missing(node, "command", "list the program and its arguments: `command: [git, status]`");
            return None;
        };
        let Kind::List(items) = &command.kind else {
            self.bad(
                command.span,
                format!("`command` must be a list, not {}", command.describe()),
                "no shell splits this",
                Some("one list item per argument: `command: [git, log, \"{path}\"]`".into()),
            );
            return None;
        };
        let mut argv = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let text = match &item.kind {
                Kind::String(s) => s.clone(),
                Kind::Number(n) => n.to_string(),
                Kind::Null | Kind::Bool(_) | Kind::List(_) | Kind::Map(_) => {
                    self.wrong(item, "command", "a list of strings");
                    continue;
                }
            };
            self.argument(index, &text, item.span, parameters);
            argv.push(text);
        }
        if items.is_empty() {
            self.bad(command.span, "`command` names no program".into(), "empty", None);
            return None;
        }
        Some(argv)
    }

    fn argument(&mut self, index: usize, text: &str, span: Span, parameters: &Value) {
        if text.contains('\0') {
            self.bad(span, "an argument holds a zero byte".into(), "no argument can", None);
        }
        match argv::holes(text) {
            Err(e) => self.bad(span, e.to_string(), "not a template", None),
            Ok(holes) if index == 0 && !holes.is_empty() => self.bad(
                span,
                "the program of a command cannot be a parameter".into(),
                "chosen by the caller",
                Some("name the program and leave only its arguments open".into()),
            ),
            Ok(_) if index == 0 && (text.is_empty() || text.split('/').any(|s| s == "..")) => {
                self.bad(span, format!("`{text}` names no program of the project or the path"), "not a program", None);
            }
            Ok(holes) => {
                let declared: Vec<&str> = parameters
                    .get("properties")
                    .and_then(Value::as_object)
                    .map(|p| p.keys().map(String::as_str).collect())
                    .unwrap_or_default();
                for hole in holes {
                    if !declared.contains(&hole) {
                        let help = did_you_mean(hole, &declared);
                        self.bad(
                            span,
                            format!("`{{{hole}}}` is no parameter of this tool"),
                            "not declared",
                            Some(help),
                        );
                    }
                }
            }
        }
    }

    fn parameters(&mut self, node: &Node) -> Value {
        let Some(parameters) = node.get("parameters") else {
            return json!({"type": "object", "properties": {}, "additionalProperties": false});
        };
        let Value::Object(mut schema) = parameters.to_value() else {
            self.bad(
                parameters.span,
                format!("`parameters` must be a JSON Schema, not {}", parameters.describe()),
                "expected a mapping",
                Some("`parameters: { type: object, properties: { path: { type: string } } }`".into()),
            );
            return json!({"type": "object"});
        };
        match schema.get("type") {
            None => {
                let mut typed = Map::new();
                typed.insert("type".into(), json!("object"));
                typed.append(&mut schema);
                schema = typed;
            }
            Some(Value::String(t)) if t == "object" => {}
            Some(_) => {
                let span = parameters.get("type").map_or(parameters.span, |n| n.span);
                self.bad(span, "the parameters of a tool are an object".into(), "must be `object`", None);
            }
        }
        if let Some(properties) = parameters.get("properties")
            && !matches!(properties.kind, Kind::Map(_))
        {
            self.wrong(properties, "properties", "a mapping of names to schemas");
        }
        self.required(parameters);
        Value::Object(schema)
    }

    /// A required parameter nobody can give is a mistake when nothing else may be given.
    fn required(&mut self, parameters: &Node) {
        let closed = parameters.get("additionalProperties").and_then(Node::as_bool) == Some(false);
        let names: BTreeSet<&str> = parameters
            .get("properties")
            .map(|p| p.entries().iter().map(|e| e.key.node.as_str()).collect())
            .unwrap_or_default();
        for item in parameters.get("required").map(Node::items).unwrap_or_default() {
            let Some(name) = item.as_str() else { continue };
            if closed && !names.contains(name) {
                let known: Vec<&str> = names.iter().copied().collect();
                let help = did_you_mean(name, &known);
                self.bad(item.span, format!("`{name}` is required but not declared"), "no such property", Some(help));
            }
        }
    }

    fn timeout(&mut self, node: &Node) -> u64 {
        let Some(value) = node.get("timeout_seconds") else { return DEFAULT_TIMEOUT_SECONDS };
        let seconds = if let Kind::Number(n) = &value.kind { n.as_u64() } else { None };
        if let Some(s @ 1..=MAX_TIMEOUT_SECONDS) = seconds {
            return s;
        }
        let message = format!("`timeout_seconds` must be a whole number from 1 to {MAX_TIMEOUT_SECONDS}");
        self.bad(value.span, message, "not a time", None);
        DEFAULT_TIMEOUT_SECONDS
    }

    fn needs(&mut self, node: &Node) -> Needs {
        let Some(needs) = node.get("needs") else { return Needs::default() };
        if !matches!(needs.kind, Kind::Map(_)) {
            self.wrong(needs, "needs", "a mapping");
            return Needs::default();
        }
        self.known_keys(needs, &["net", "write"], "`needs`");
        let write = self.strings(needs, "write");
        for (path, span) in &write {
            if path.is_empty() || path.starts_with('/') || path.split('/').any(|s| s == "..") || path.contains('\0') {
                let help = Some("name a folder inside the project: `write: [out/]`".to_owned());
                self.bad(*span, format!("`{path}` does not stay in the project"), "outside", help);
            }
        }
        Needs {
            net: self.strings(needs, "net").into_iter().map(|s| s.0).collect(),
            write: write.into_iter().map(|s| s.0).collect(),
        }
    }

    fn strings(&mut self, node: &Node, key: &str) -> Vec<(String, Span)> {
        let Some(value) = node.get(key) else { return Vec::new() };
        if let Kind::String(s) = &value.kind {
            return vec![(s.clone(), value.span)];
        }
        let Kind::List(items) = &value.kind else {
            self.wrong(value, key, "a list of strings");
            return Vec::new();
        };
        let mut out = Vec::with_capacity(items.len());
        for item in items {
            match item.as_str() {
                Some(s) => out.push((s.to_owned(), item.span)),
                None => self.wrong(item, key, "a list of strings"),
            }
        }
        out
    }

    fn known_keys(&mut self, node: &Node, keys: &[&str], what: &str) {
        for entry in node.entries() {
            if !keys.contains(&entry.key.node.as_str()) {
                self.faults.push(ToolFault {
                    code: ToolFaultCode::UnknownKey,
                    message: format!("{what} has no key `{}`", entry.key.node),
                    span: entry.key.span,
                    label: "unknown key".into(),
                    help: Some(did_you_mean(&entry.key.node, keys)),
                });
            }
        }
    }

    fn text(&mut self, node: &Node, key: &str) -> Option<String> {
        let value = node.get(key)?;
        match &value.kind {
            Kind::String(s) => Some(s.clone()),
            Kind::Number(n) if key == "version" => Some(n.to_string()),
            Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::List(_) | Kind::Map(_) => {
                self.wrong(value, key, "a string");
                None
            }
        }
    }

    fn flag(&mut self, node: &Node, key: &str) -> bool {
        let Some(value) = node.get(key) else { return false };
        value.as_bool().unwrap_or_else(|| {
            self.wrong(value, key, "`true` or `false`");
            false
        })
    }

    fn stray(&mut self, node: &Node, key: &str, kind: &str) {
        if let Some(entry) = node.entries().iter().find(|e| e.key.node == key) {
            let message = format!("a tool of kind `{kind}` has no `{key}`");
            self.bad(entry.key.span, message, "has no meaning here", Some(format!("remove it, or set `kind: {key}`")));
        }
    }

    fn missing(&mut self, node: &Node, key: &str, help: &str) {
        self.faults.push(ToolFault {
            code: ToolFaultCode::MissingKey,
            message: format!("this tool has no `{key}`"),
            span: node.span,
            label: format!("`{key}` is missing"),
            help: Some(help.to_owned()),
        });
    }

    fn wrong(&mut self, node: &Node, key: &str, wanted: &str) {
        self.bad(node.span, format!("`{key}` must be {wanted}, not {}", node.describe()), "wrong type", None);
    }

    fn bad(&mut self, span: Span, message: String, label: &str, help: Option<String>) {
        self.faults.push(ToolFault { code: ToolFaultCode::BadValue, message, span, label: label.to_owned(), help });
    }
}

fn did_you_mean(word: &str, known: &[&str]) -> String {
    let best = known.iter().map(|k| (strsim::damerau_levenshtein(word, k), *k)).min();
    match best {
        Some((distance, k)) if distance <= 2.max(k.len() / 3) => format!("did you mean `{k}`?"),
        Some(_) => format!("known here: {}", known.join(", ")),
        None => "nothing is declared".into(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use rye_grammar::SourceId;
    use rye_grammar::data::Entry;
    use rye_grammar::span::Spanned;

    use super::*;

    /// A node of this value, every span the whole (empty) source.
    fn node(value: &Value) -> Node {
        let span = Span::new(SourceId(0), 0, 0);
        let kind = match value {
            Value::Null => Kind::Null,
            Value::Bool(b) => Kind::Bool(*b),
            Value::Number(n) => Kind::Number(n.clone()),
            Value::String(s) => Kind::String(s.clone()),
            Value::Array(items) => Kind::List(items.iter().map(node).collect()),
            Value::Object(map) => Kind::Map(
                map.iter().map(|(k, v)| Entry { key: Spanned::new(k.clone(), span), value: node(v) }).collect(),
            ),
        };
        Node::new(kind, span)
    }

    fn faults(value: &Value) -> Vec<(ToolFaultCode, String)> {
        ToolSpec::read(&node(value)).unwrap_err().into_iter().map(|f| (f.code, f.message)).collect()
    }

    #[test]
    fn a_command_tool_with_defaults() {
        let spec = ToolSpec::read(&node(&json!({
            "description": " Counts. ", "kind": "command", "command": ["wc", "-l", "--", "{path}"],
            "parameters": {"properties": {"path": {"type": "string"}}}, "version": 1,
        })))
        .unwrap();
        assert_eq!(spec.description, "Counts.");
        assert_eq!(spec.timeout_seconds, DEFAULT_TIMEOUT_SECONDS);
        assert_eq!(spec.parameters["type"], "object");
        assert!(!spec.parallel && !spec.idempotent);
        let ToolKind::Command { argv } = spec.kind else { panic!("a command") };
        assert_eq!(argv, ["wc", "-l", "--", "{path}"]);
    }

    #[test]
    fn everything_wrong_is_said_at_once() {
        let found = faults(&json!({
            "descripton": "x", "kind": "command", "command": ["{path}", "{pth}", "{"],
            "parameters": {"properties": {"path": {}}, "required": ["pat"], "additionalProperties": false},
            "timeout_seconds": 0, "parallel": "yes", "needs": {"write": ["../x"], "disk": 1},
        }));
        let messages: Vec<&str> = found.iter().map(|f| f.1.as_str()).collect();
        assert_eq!(
            messages,
            [
                "a tool has no key `descripton`",
                "this tool has no `description`",
                "`pat` is required but not declared",
                "the program of a command cannot be a parameter",
                "`{pth}` is no parameter of this tool",
                "`{` has a `{` that nothing closes; write `{{` for a brace",
                "`timeout_seconds` must be a whole number from 1 to 86400",
                "`parallel` must be `true` or `false`, not a string",
                "`needs` has no key `disk`",
                "`../x` does not stay in the project",
            ]
        );
        assert_eq!(found[0].0, ToolFaultCode::UnknownKey);
        assert_eq!(found[1].0, ToolFaultCode::MissingKey);
    }

    #[test]
    fn kinds_do_not_mix_and_must_be_known() {
        assert_eq!(
            faults(&json!({"description": "x", "kind": "builtin", "builtin": "read", "command": ["ls"]})),
            [(ToolFaultCode::BadValue, "a tool of kind `builtin` has no `command`".to_owned())]
        );
        assert_eq!(
            faults(&json!({"description": "x", "kind": "comand"})),
            [(ToolFaultCode::BadValue, "no tool is of kind `comand`".to_owned())]
        );
        assert_eq!(
            faults(&json!({"description": "x", "kind": "command", "command": "rm -rf {x}"})),
            [(ToolFaultCode::BadValue, "`command` must be a list, not a string".to_owned())]
        );
        assert_eq!(faults(&json!([1]))[0].1, "a tool is a mapping, not a list");
        assert_eq!(
            faults(&json!({"description": "x", "kind": "command", "command": ["../../bin/sh"]}))[0].1,
            "`../../bin/sh` names no program of the project or the path"
        );
    }
}
