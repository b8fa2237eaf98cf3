//! Reads a [`ToolSpec`] from a metadata mapping, and collects every fault with its span.

use rye_grammar::data::{Kind, Node};
use rye_grammar::tool_header::{ScriptDeclarations, ToolLanguage, ToolTree};
use rye_grammar::{ItemId, Span};
use serde_json::Value;

use super::argv::{self, ArgvPlaceholder, RUNTIME_NAMES};
use super::{
    ConfigMode, ConfigSource, DEFAULT_LINE_TIMEOUT_SECONDS, DEFAULT_TIMEOUT_SECONDS, RESOLVED_CONFIG, ScriptEntry,
    ScriptLanguage, ServerSandbox, ToolKind, ToolNeeds, ToolSpec, ToolSpecError, ToolSpecErrorKind, help, http, schema,
};

/// Keys of every tool. The keys from `name` on are documentation only.
pub(crate) const KEYS: [&str; 18] = [
    "description",
    "parameters",
    "timeout_seconds",
    "parallel",
    "idempotent",
    "needs",
    "environment",
    "config",
    "persistent",
    "pushes",
    "snippet",
    "guidelines",
    "version",
    "category",
    "name",
    "title",
    "author",
    "tags",
];

/// Each kind of YAML tool with its own keys.
pub(crate) const KIND_KEYS: [(&str, &[&str]); 4] = [
    ("builtin", &["builtin"]),
    ("command", &["command"]),
    ("http", &["method", "url", "headers", "body"]),
    ("mcp", &["server", "tool", "sha256", "server_sha256", "runs", "sandbox", "task_support"]),
];

/// Variables that a tool file must not request: they change how every program runs, or every program gets them anyway.
const RESERVED_VARIABLES: [&str; 13] = [
    "PATH",
    "HOME",
    "LANG",
    "TERM",
    "IFS",
    "ENV",
    "BASH_ENV",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONHOME",
    "SHELLOPTS",
];

impl ToolSpec {
    /// Reads the metadata of a tool, or returns every fault in it.
    pub fn read(tree: &ToolTree) -> Result<Self, Vec<ToolSpecError>> {
        let mut r = ToolSpecReader { faults: Vec::new(), misplaced_parameters: false };
        let spec = r.spec(&tree.metadata, tree.script.as_ref());
        match spec {
            Some(spec) if r.faults.is_empty() => Ok(spec),
            Some(_) | None => Err(r.faults),
        }
    }
}

pub(super) struct ToolSpecReader {
    pub(super) faults: Vec<ToolSpecError>,
    /// True if the tool file declares its parameters at a wrong place (see `are_misplaced`). Unknown placeholders are
    /// then not reported, because the wrong place is already reported.
    pub(super) misplaced_parameters: bool,
}

impl ToolSpecReader {
    fn spec(&mut self, node: &Node, script: Option<&ScriptDeclarations>) -> Option<ToolSpec> {
        if !matches!(node.kind, Kind::Map(_)) {
            self.report_bad_value(
                node.span,
                format!("a tool must be a mapping, not {}", node.describe()),
                "expected a mapping",
                None,
            );
            return None;
        }
        // A shell script with a `kind` is declared like a YAML tool.
        let script = script.filter(|shape| shape.language != ToolLanguage::Shell || node.get("kind").is_none());
        let own: Vec<&str> = match script {
            Some(_) => vec!["executor"],
            None => {
                std::iter::once("kind").chain(KIND_KEYS.iter().flat_map(|(_, keys)| keys.iter().copied())).collect()
            }
        };
        let keys: Vec<&str> = KEYS.into_iter().take(1).chain(own).chain(KEYS.into_iter().skip(1)).collect();
        self.known_keys(node, &keys, "a tool");
        let description = self.text(node, "description");
        if description.as_deref().is_none_or(|d| d.trim().is_empty())
            && node.get("description").is_none_or(|d| d.as_str().is_some())
        {
            self.report_missing(node, "description", description_help(script));
        }
        let parameters = schema::read_parameters(self, node);
        let environment = self.environment(node);
        let mut own_needs = ToolNeeds::default();
        let kind = match script {
            Some(shape) => self.script(node, shape),
            None => self.kind(node, &parameters, &environment, &mut own_needs),
        };
        let persistent = self.persistent(node, kind.as_ref());
        let default_timeout = if persistent { DEFAULT_LINE_TIMEOUT_SECONDS } else { DEFAULT_TIMEOUT_SECONDS };
        let timeout_seconds = self.timeout(node, default_timeout);
        let (parallel, idempotent) = (self.flag(node, "parallel"), self.idempotence(node, &parameters));
        let mut needs = self.needs(node);
        // The host of a request is a need of the tool, even if the tool file does not list the host.
        own_needs.net.retain(|host| !needs.net.contains(host));
        needs.net.extend(own_needs.net);
        self.check_write_only(node, kind.as_ref());
        let spec = ToolSpec {
            description: description.unwrap_or_default().trim().to_owned(),
            config: self.config(node, &parameters),
            parameters,
            kind: kind?,
            timeout_seconds,
            parallel,
            idempotent,
            needs,
            environment,
            persistent,
            pushes: self.pushes(node, persistent),
            snippet: self.snippet(node),
            guidelines: self.guidelines(node),
            version: self.text(node, "version"),
            category: self.text(node, "category"),
        };
        for key in ["name", "title", "author"] {
            self.text(node, key);
        }
        Some(spec)
    }

    fn script(&mut self, node: &Node, shape: &ScriptDeclarations) -> Option<ToolKind> {
        let language = match shape.language {
            ToolLanguage::Yaml => return None,
            ToolLanguage::Shell => ScriptLanguage::Shell,
            ToolLanguage::Python => ScriptLanguage::Python,
            ToolLanguage::JavaScript => ScriptLanguage::JavaScript,
            ToolLanguage::TypeScript => ScriptLanguage::TypeScript,
        };
        // Older tool files name the runtime of a script, although the language of the script already determines the
        // runtime.
        if let Some(executor) = self.text(node, "executor")
            && !executor.starts_with("rye/core/runtimes/")
            && let Some(value) = node.get("executor")
        {
            let help = "remove the key: the file's extension selects the runtime".to_owned();
            self.report_bad_value(value.span, format!("unknown executor `{executor}`"), "unknown executor", Some(help));
        }
        let has = |name: &str| shape.names.iter().any(|n| n == name);
        let entry = match language {
            ScriptLanguage::Shell => ScriptEntry::Whole,
            ScriptLanguage::Python if has("execute") => ScriptEntry::Execute,
            ScriptLanguage::JavaScript | ScriptLanguage::TypeScript if has("execute") || has("default") => {
                ScriptEntry::Execute
            }
            ScriptLanguage::Python | ScriptLanguage::JavaScript | ScriptLanguage::TypeScript if has("main") => {
                ScriptEntry::Main
            }
            ScriptLanguage::Python => {
                self.report_missing(node, "execute", "define `def execute(params, project_path)`, or `def main()`");
                return None;
            }
            ScriptLanguage::JavaScript | ScriptLanguage::TypeScript => {
                self.report_missing(
                    node,
                    "execute",
                    "export it: `export async function execute(params, projectPath) {…}`",
                );
                return None;
            }
        };
        Some(ToolKind::Script { language, entry })
    }

    fn kind(
        &mut self,
        node: &Node,
        parameters: &Value,
        environment: &[String],
        needs: &mut ToolNeeds,
    ) -> Option<ToolKind> {
        let Some(kind) = node.get("kind") else {
            let help = "`kind: command` runs a program, `http` sends a request, `builtin` names a tool of the engine";
            let meant = [("command", "command"), ("url", "http"), ("builtin", "builtin"), ("server", "mcp")]
                .into_iter()
                .find(|(key, _)| node.get(key).is_some());
            let help = meant.map_or_else(|| help.to_owned(), |(_, kind)| format!("add `kind: {kind}`"));
            self.report_missing(node, "kind", &help);
            return None;
        };
        let Some(word) = kind.as_str() else {
            self.report_wrong_type(kind, "kind", "a string");
            return None;
        };
        for (other, keys) in KIND_KEYS {
            for key in keys.iter().filter(|_| other != word && KIND_KEYS.iter().any(|(known, _)| *known == word)) {
                self.report_foreign_key(node, key, word, other);
            }
        }
        let scope = TemplateScope { parameters, environment };
        match word {
            "builtin" => {
                let Some(name) = self.text(node, "builtin") else {
                    self.report_missing(node, "builtin", "name the built-in tool: `builtin: read`");
                    return None;
                };
                Some(ToolKind::Builtin { name })
            }
            "command" => self.command(node, &scope).map(|argv| ToolKind::Command { argv }),
            "http" => {
                let (spec, host) = http::read(self, node, &scope)?;
                needs.net.push(host);
                Some(ToolKind::Http(spec))
            }
            "mcp" => {
                let keys = ["server", "tool", "sha256", "server_sha256", "runs", "sandbox"];
                let mut all = keys.map(|key| self.text(node, key));
                let missing: Vec<&str> = keys.into_iter().filter(|key| node.get(key).is_none()).collect();
                if !missing.is_empty() {
                    let help = "run `rye mcp refresh`, which writes the files of MCP tools";
                    self.report_missing(node, &missing.join("`, `"), help);
                }
                self.task_support(node);
                let [server, tool, sha256, server_sha256, runs, sandbox] = &mut all;
                let word = sandbox.take()?;
                let Some(sandbox) = ServerSandbox::ALL.into_iter().find(|sandbox| sandbox.as_str() == word) else {
                    let known = ServerSandbox::ALL.map(ServerSandbox::as_str);
                    let span = node.get("sandbox").map_or(node.span, |sandbox| sandbox.span);
                    let help = Some(did_you_mean(&word, &known));
                    self.report_bad_value(span, format!("unknown server sandbox `{word}`"), "unknown sandbox", help);
                    return None;
                };
                Some(ToolKind::Mcp {
                    server: server.take()?,
                    tool: tool.take()?,
                    sha256: sha256.take()?,
                    server_sha256: server_sha256.take()?,
                    runs: runs.take()?,
                    sandbox,
                })
            }
            other => {
                let help = did_you_mean(other, &KIND_KEYS.map(|(kind, _)| kind));
                self.report_bad_value(kind.span, format!("unknown tool kind `{other}`"), "unknown kind", Some(help));
                if let Some(fault) = self.faults.last_mut() {
                    fault.word = Some(other.to_owned());
                }
                None
            }
        }
    }

    /// Reports a tool that its MCP server runs only as a task, which rye does not support.
    fn task_support(&mut self, node: &Node) {
        let Some(support) = node.get("task_support") else { return };
        if self.text(node, "task_support").is_none_or(|word| word != "required") {
            let help = Some("remove the key: `rye mcp refresh` writes the key if necessary".to_owned());
            self.report_bad_value(support.span, "`task_support` must be `required`".into(), "unknown value", help);
            return;
        }
        let message = "the server runs the tool only as a task, and rye starts no tasks".to_owned();
        self.report_bad_value(support.span, message, "set by the server", None);
        if let Some(fault) = self.faults.last_mut() {
            fault.code = ToolSpecErrorKind::ServerTask;
        }
    }

    fn command(&mut self, node: &Node, scope: &TemplateScope<'_>) -> Option<Vec<String>> {
        let Some(command) = node.get("command") else {
            self.report_missing(node, "command", "list the program and its arguments: `command: [git, status]`");
            return None;
        };
        let Kind::List(items) = &command.kind else {
            self.report_bad_value(
                command.span,
                format!("`command` must be a list, not {}", command.describe()),
                "no shell splits this text into arguments",
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
                    self.report_wrong_type(item, "command", "a list of strings");
                    continue;
                }
            };
            self.check_argument(index, &text, item.span, scope);
            argv.push(text);
        }
        if items.is_empty() {
            self.report_bad_value(command.span, "`command` names no program".into(), "empty", None);
            return None;
        }
        Some(argv)
    }

    fn check_argument(&mut self, index: usize, text: &str, span: Span, scope: &TemplateScope<'_>) {
        if text.contains('\0') {
            self.report_bad_value(span, "an argument contains a zero byte".into(), "no argument can", None);
        }
        let chosen = |placeholders: &[ArgvPlaceholder<'_>]| {
            placeholders.iter().any(|placeholder| matches!(placeholder, ArgvPlaceholder::Parameter(_)))
        };
        match argv::placeholders(text) {
            Ok(placeholders) if index == 0 && chosen(&placeholders) => self.report_bad_value(
                span,
                "the program of a command cannot be a parameter".into(),
                "chosen by the caller",
                Some("name the program, and use parameters only in its arguments".into()),
            ),
            Ok(_) if index == 0 && (text.is_empty() || text.split('/').any(|s| s == "..")) => {
                self.report_bad_value(
                    span,
                    format!("`{text}` is neither a program of the project nor one in `PATH`"),
                    "not a program",
                    None,
                );
            }
            Ok(_) | Err(_) => self.check_template(text, span, scope),
        }
    }

    /// Checks that every placeholder of a template is declared.
    pub(super) fn check_template(&mut self, text: &str, span: Span, scope: &TemplateScope<'_>) {
        let placeholders = match argv::placeholders(text) {
            Ok(placeholders) => placeholders,
            Err(e) => return self.report_bad_value(span, e.to_string(), "not a template", None),
        };
        let declared: Vec<&str> = scope
            .parameters
            .get("properties")
            .and_then(Value::as_object)
            .map(|p| p.keys().map(String::as_str).collect())
            .unwrap_or_default();
        for placeholder in placeholders {
            match placeholder {
                ArgvPlaceholder::Parameter(name)
                    if !declared.contains(&name) && !RUNTIME_NAMES.contains(&name) && !self.misplaced_parameters =>
                {
                    let help = did_you_mean(name, &declared);
                    self.report_bad_value(
                        span,
                        format!("`{{{name}}}` is not a parameter of this tool"),
                        "not declared",
                        Some(help),
                    );
                }
                ArgvPlaceholder::Variable(name) if !scope.environment.iter().any(|v| v == name) => {
                    let help = help::undeclared_variable(name, &declared);
                    let message = format!("`${{{name}}}` is not a variable that this tool declares");
                    self.report_bad_value(span, message, "not declared", Some(help));
                }
                ArgvPlaceholder::Parameter(_) | ArgvPlaceholder::Variable(_) => {}
            }
        }
    }

    /// Reads the names of the environment variables that a tool requests.
    fn environment(&mut self, node: &Node) -> Vec<String> {
        let mut out = Vec::new();
        for (name, span) in self.strings(node, "environment") {
            let meant = help::meant_variable(&name);
            let prefixed = ["LD_", "DYLD_", "RYE_", "BASH_FUNC"].iter().any(|p| name.starts_with(p));
            if meant != Some(name.as_str()) {
                let help = help::variable_name(meant);
                self.report_bad_value(span, format!("`{name}` names no variable"), "not a name", Some(help));
            } else if prefixed || RESERVED_VARIABLES.contains(&name.as_str()) {
                let help = "every program gets PATH, HOME and LANG; declare a variable of your own".to_owned();
                self.report_bad_value(span, format!("a tool cannot request `{name}`"), "not for tools", Some(help));
            }
            // A reported name counts as declared, so that its uses are not reported too.
            out.extend(meant.map(str::to_owned).filter(|name| !out.contains(name)));
        }
        out
    }

    /// Reads the key `config` (in scripts `CONFIG_RESOLVE`): `{path: web/search.yaml, mode: deep_merge}`. `None` if it
    /// is missing or invalid; invalid values are reported.
    fn config(&mut self, node: &Node, parameters: &Value) -> Option<ConfigSource> {
        let config = node.get("config")?;
        if !matches!(config.kind, Kind::Map(_)) {
            self.report_wrong_type(config, "config", "a mapping with `path` and `mode`");
            return None;
        }
        self.known_keys(config, &["path", "mode"], "`config`");
        if parameters.pointer(&format!("/properties/{RESOLVED_CONFIG}")).is_some() {
            let message = format!("the parameter `{RESOLVED_CONFIG}` is reserved for the settings");
            self.report_bad_value(
                config.span,
                message,
                "name already in use",
                Some("give the parameter another name".into()),
            );
        }
        let mode = match self.text(config, "mode").as_deref() {
            None | Some("deep_merge") => ConfigMode::DeepMerge,
            Some("first_match") => ConfigMode::FirstMatch,
            Some(other) => {
                let help = Some("write `deep_merge` or `first_match`".into());
                self.report_bad_value(
                    config.span,
                    format!("`{other}` is not a `mode` of `config`"),
                    "unknown mode",
                    help,
                );
                return None;
            }
        };
        let Some(path) = self.text(config, "path") else {
            self.report_missing(config, "path", "name the settings below `.ai/config`: `path: web/search.yaml`");
            return None;
        };
        match ItemId::parse(path.strip_suffix(".yaml").unwrap_or(&path)) {
            Ok(id) => Some(ConfigSource { id, mode }),
            Err(e) => {
                self.report_bad_value(
                    config.span,
                    format!("`{path}` names no settings: {}", e.reason),
                    "no settings",
                    None,
                );
                None
            }
        }
    }

    pub(super) fn strings(&mut self, node: &Node, key: &str) -> Vec<(String, Span)> {
        let Some(value) = node.get(key) else { return Vec::new() };
        if let Kind::String(s) = &value.kind {
            return vec![(s.clone(), value.span)];
        }
        let Kind::List(items) = &value.kind else {
            self.report_wrong_type(value, key, "a list of strings");
            return Vec::new();
        };
        let mut out = Vec::with_capacity(items.len());
        for item in items {
            match item.as_str() {
                Some(s) => out.push((s.to_owned(), item.span)),
                None => self.report_wrong_type(item, key, "a list of strings"),
            }
        }
        out
    }

    pub(super) fn known_keys(&mut self, node: &Node, keys: &[&str], what: &str) {
        for entry in node.entries() {
            if !keys.contains(&entry.key.node.as_str()) {
                self.faults.push(ToolSpecError {
                    code: ToolSpecErrorKind::UnknownKey,
                    message: format!("{what} has no key `{}`", entry.key.node),
                    span: entry.key.span,
                    label: "unknown key".into(),
                    help: Some(match entry.key.node.as_str() {
                        // `wall` is the former name of `sandbox`.
                        "wall" if keys.contains(&"sandbox") => {
                            "the key is called `sandbox` now; `rye mcp refresh` writes the new key".to_owned()
                        }
                        key => did_you_mean(key, keys),
                    }),
                    word: Some(entry.key.node.clone()),
                });
            }
        }
    }

    pub(super) fn text(&mut self, node: &Node, key: &str) -> Option<String> {
        let value = node.get(key)?;
        match &value.kind {
            Kind::String(s) => Some(s.clone()),
            Kind::Number(n) if key == "version" => Some(n.to_string()),
            Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::List(_) | Kind::Map(_) => {
                self.report_wrong_type(value, key, "a string");
                None
            }
        }
    }

    pub(super) fn flag(&mut self, node: &Node, key: &str) -> bool {
        let Some(value) = node.get(key) else { return false };
        value.as_bool().unwrap_or_else(|| {
            self.report_wrong_type(value, key, "`true` or `false`");
            false
        })
    }

    fn report_foreign_key(&mut self, node: &Node, key: &str, kind: &str, other: &str) {
        if let Some(entry) = node.entries().iter().find(|e| e.key.node == key) {
            let message = format!("a tool of kind `{kind}` has no key `{key}`");
            let help = format!("remove the key, or set `kind: {other}`");
            self.report_bad_value(entry.key.span, message, "has no meaning here", Some(help));
        }
    }

    pub(super) fn report_missing(&mut self, node: &Node, key: &str, help: &str) {
        self.faults.push(ToolSpecError {
            code: ToolSpecErrorKind::MissingKey,
            message: format!("this tool has no `{key}`"),
            span: node.span,
            label: format!("`{key}` is missing"),
            help: Some(help.to_owned()),
            word: None,
        });
    }

    pub(super) fn report_wrong_type(&mut self, node: &Node, key: &str, wanted: &str) {
        self.report_bad_value(
            node.span,
            format!("`{key}` must be {wanted}, not {}", node.describe()),
            "wrong type",
            help::wrong_type(key, wanted, node),
        );
    }

    pub(super) fn report_bad_value(&mut self, span: Span, message: String, label: &str, help: Option<String>) {
        self.faults.push(ToolSpecError {
            code: ToolSpecErrorKind::BadValue,
            message,
            span,
            label: label.to_owned(),
            help,
            word: None,
        });
    }
}

/// The names of parameters and environment variables that a template of a tool may use.
pub(super) struct TemplateScope<'a> {
    pub parameters: &'a Value,
    pub environment: &'a [String],
}

fn description_help(script: Option<&ScriptDeclarations>) -> &'static str {
    match script.map(|s| s.language) {
        None | Some(ToolLanguage::Yaml) => "describe the tool in one sentence: the model selects tools by this text",
        Some(ToolLanguage::Shell) => "write it into the header: `# rye: {description: what the tool does}`",
        Some(ToolLanguage::Python) => "write `__tool_description__ = \"what the tool does\"` at the top level",
        Some(ToolLanguage::JavaScript | ToolLanguage::TypeScript) => {
            "write `export const __tool_description__ = \"what the tool does\"`"
        }
    }
}

pub(super) fn did_you_mean(word: &str, known: &[&str]) -> String {
    let best = known.iter().map(|k| (strsim::damerau_levenshtein(word, k), *k)).min();
    match best {
        Some((distance, k)) if distance <= 2.max(k.len() / 3) => format!("did you mean `{k}`?"),
        Some(_) => format!("known here: {}", known.join(", ")),
        None => format!("declare it: `parameters: {{ properties: {{ {word}: {{ type: string }} }} }}`"),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
