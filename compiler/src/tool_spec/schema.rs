//! Checks the JSON Schema of a tool's parameters for mistakes that make the tool unusable or that would go unnoticed:
//! the validator refuses a broken schema, a provider rejects a whole request that contains one, and an unknown keyword
//! constrains nothing.

mod keywords;
mod upgrade;

use rye_grammar::Span;
use rye_grammar::data::{Kind, Node};
use serde_json::{Map, Value, json};

use super::read::{ToolSpecReader, did_you_mean};
use super::{ToolSpecError, ToolSpecErrorKind};
use keywords::{Shape, TOP_LEVEL_KEYWORDS, TYPES, misspelled_keyword, shape_of};

pub use upgrade::{resolve_pointer, upgrade_schema};

/// Maximum depth of a checked schema.
const MAX_DEPTH: usize = 64;

/// The author of a schema, who determines which mistakes are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SchemaAuthor {
    /// The author of the tool file: every mistake is reported.
    Project,
    /// An MCP server, whose schema the user cannot change: only mistakes that make the schema unusable are reported.
    Server,
}

/// Returns true if a tool file declares its parameters at a wrong place: under another key than `parameters`, or
/// directly under `parameters` instead of below `properties`. The second case is assumed if the schema has no
/// `properties` and has faults (`has_faults`). If the result is true, placeholders that name these parameters are not
/// reported as unknown, because the wrong place is already reported.
fn are_misplaced(node: &Node, has_faults: bool) -> bool {
    match node.get("parameters") {
        Some(schema) => has_faults && schema.get("properties").is_none(),
        None => ["params", "args", "arguments", "inputs", "input_schema", "inputSchema"]
            .iter()
            .any(|key| node.get(key).is_some()),
    }
}

/// Reads the schema that covers all parameters of a tool, and converts it to JSON Schema 2020-12.
pub(super) fn read_parameters(r: &mut ToolSpecReader, node: &Node) -> Value {
    let before = r.faults.len();
    let schema = read_schema(r, node);
    r.misplaced_parameters = are_misplaced(node, r.faults.len() > before);
    schema
}

fn read_schema(r: &mut ToolSpecReader, node: &Node) -> Value {
    let Some(parameters) = node.get("parameters") else {
        return json!({"type": "object", "properties": {}, "additionalProperties": false});
    };
    let Value::Object(mut schema) = parameters.to_value() else {
        r.report_bad_value(
            parameters.span,
            format!("`parameters` must be a JSON Schema, not {}", parameters.describe()),
            "expected a mapping",
            Some("`parameters: { type: object, properties: { path: { type: string } } }`".into()),
        );
        return json!({"type": "object"});
    };
    let server = node.get("kind").and_then(Node::as_str) == Some("mcp");
    let before = r.faults.len();
    match schema.get("type") {
        None => {
            let mut typed = Map::new();
            typed.insert("type".into(), json!("object"));
            typed.append(&mut schema);
            schema = typed;
        }
        Some(Value::String(t)) if t == "object" => {}
        Some(Value::Array(types)) if server && types.contains(&json!("object")) => {
            schema.insert("type".into(), json!("object"));
        }
        Some(_) => {
            let span = parameters.get("type").map_or(parameters.span, |n| n.span);
            r.report_bad_value(span, "the parameters of a tool must be an object".into(), "must be `object`", None);
        }
    }
    let author = if server { SchemaAuthor::Server } else { SchemaAuthor::Project };
    check_parameters(r, parameters, author);
    if server {
        // Only the server can correct its schema, so its tool is left out and everything else works.
        r.faults.iter_mut().skip(before).for_each(|fault| fault.code = ToolSpecErrorKind::ServerSchema);
    }
    let mut schema = Value::Object(schema);
    upgrade_schema(&mut schema);
    schema
}

/// Checks the schema that covers all parameters of a tool.
fn check_parameters(r: &mut ToolSpecReader, parameters: &Node, author: SchemaAuthor) {
    let mut checker = SchemaChecker { r, root: parameters, author };
    if author == SchemaAuthor::Project {
        checker.check_misplaced_parameter(parameters);
    }
    checker.check_schema(parameters, Position { depth: 0, composed: false });
}

struct SchemaChecker<'a, 'n> {
    r: &'a mut ToolSpecReader,
    root: &'n Node,
    author: SchemaAuthor,
}

/// The position of a schema within the schema of all parameters: its depth, and whether the schema is a part of another
/// schema for the same value (as in `allOf`).
#[derive(Clone, Copy)]
struct Position {
    depth: usize,
    /// True if the schema is a part of another schema (`allOf`, `if` …). The other schema may declare the properties
    /// that this schema requires.
    composed: bool,
}

impl Position {
    fn within(self, composed: bool) -> Self {
        Self { depth: self.depth + 1, composed }
    }
}

impl SchemaChecker<'_, '_> {
    /// Reports a parameter that is declared at the top level of the schema, because the author forgot the key
    /// `properties`.
    fn check_misplaced_parameter(&mut self, parameters: &Node) {
        let known = |key: &str| TOP_LEVEL_KEYWORDS.contains(&key) || key.starts_with("x-");
        if parameters.get("properties").is_none()
            && let Some(unknown) = parameters.entries().iter().find(|e| !known(&e.key.node))
        {
            let name = &unknown.key.node;
            let shape = unknown.value.as_str().filter(|t| TYPES.contains(t)).unwrap_or("string");
            self.r.report_bad_value(
                unknown.key.span,
                format!("`{name}` is not a JSON Schema keyword"),
                "does not describe parameters",
                Some(format!("parameters belong under `properties`: `properties: {{ {name}: {{ type: {shape} }} }}`")),
            );
        }
    }

    fn check_schema(&mut self, node: &Node, at: Position) {
        if at.depth > MAX_DEPTH {
            let message = format!("the schema is nested deeper than {MAX_DEPTH} levels");
            return self.r.report_bad_value(node.span, message, "too deep", None);
        }
        match &node.kind {
            Kind::Map(_) => {}
            Kind::Bool(_) => return,
            Kind::Null | Kind::Number(_) | Kind::String(_) | Kind::List(_) => {
                return self.r.report_wrong_type(node, "a schema", "a mapping");
            }
        }
        for entry in node.entries() {
            let key = entry.key.node.as_str();
            match shape_of(key) {
                Some(shape) => self.check_keyword(key, shape, &entry.value, at),
                None => self.check_misspelling(key, entry.key.span, at),
            }
        }
        self.check_required(node, at);
    }

    fn check_keyword(&mut self, key: &str, shape: Shape, value: &Node, at: Position) {
        let number = if let Kind::Number(number) = &value.kind { Some(number) } else { None };
        let positive = number.and_then(serde_json::Number::as_f64).is_some_and(|n| n > 0.0);
        let count = number.and_then(serde_json::Number::as_f64).is_some_and(|n| n >= 0.0 && n.fract() == 0.0);
        let wanted = match shape {
            Shape::Any => None,
            Shape::Text => value.as_str().is_none().then_some("a string"),
            Shape::Bool => value.as_bool().is_none().then_some("`true` or `false`"),
            Shape::Number => number.is_none().then_some("a number"),
            Shape::PositiveNumber => (!positive).then_some("a number above 0"),
            // Older drafts have `exclusiveMinimum: true` beside `minimum`.
            Shape::Bound => (number.is_none() && value.as_bool().is_none()).then_some("a number"),
            Shape::Count => (!count).then_some("a whole number of at least 0"),
            Shape::List => (!matches!(value.kind, Kind::List(_))).then_some("a list of the values that are allowed"),
            Shape::Names => return self.check_names(key, value),
            Shape::NameLists => return self.check_each(key, value, |this, list| this.check_names(key, list)),
            // `read_schema` has already checked the type at the top level.
            Shape::Type if at.depth == 0 => None,
            Shape::Type => return self.check_types(value),
            Shape::Pattern => return self.check_pattern_text(key, value),
            Shape::Reference => return self.check_reference(key, value),
            Shape::Schema => return self.check_schema(value, at.within(is_composing(key))),
            Shape::SchemaOrList if !matches!(value.kind, Kind::List(_)) => {
                return self.check_schema(value, at.within(false));
            }
            Shape::Schemas | Shape::SchemaOrList => {
                if !matches!(value.kind, Kind::List(_)) {
                    return self.r.report_wrong_type(value, key, "a list of schemas");
                }
                if value.items().is_empty() && shape == Shape::Schemas {
                    return self.r.report_bad_value(value.span, format!("`{key}` names no schema"), "empty", None);
                }
                value.items().iter().for_each(|item| self.check_schema(item, at.within(is_composing(key))));
                return;
            }
            Shape::Properties => return self.check_properties(value, at),
            Shape::SchemaMap => {
                if key == "patternProperties" {
                    value.entries().iter().for_each(|entry| self.check_pattern(&entry.key.node, entry.key.span));
                }
                let composed = key == "dependentSchemas";
                return self.check_each(key, value, |this, schema| this.check_schema(schema, at.within(composed)));
            }
            Shape::Dependencies => {
                return self.check_each(key, value, |this, part| match part.kind {
                    Kind::List(_) => this.check_names(key, part),
                    Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::String(_) | Kind::Map(_) => {
                        this.check_schema(part, at.within(true));
                    }
                });
            }
        };
        if let Some(wanted) = wanted {
            self.r.report_wrong_type(value, key, wanted);
        }
    }

    fn check_each(&mut self, key: &str, value: &Node, mut check: impl FnMut(&mut Self, &Node)) {
        if !matches!(value.kind, Kind::Map(_)) {
            return self.r.report_wrong_type(value, key, "a mapping");
        }
        value.entries().iter().for_each(|entry| check(self, &entry.value));
    }

    fn check_properties(&mut self, properties: &Node, at: Position) {
        if !matches!(properties.kind, Kind::Map(_)) {
            return self.r.report_wrong_type(properties, "properties", "a mapping of names to schemas");
        }
        for property in properties.entries() {
            let name = &property.key.node;
            match &property.value.kind {
                Kind::Map(_) | Kind::Bool(_) => self.check_schema(&property.value, at.within(false)),
                Kind::Null | Kind::Number(_) | Kind::String(_) | Kind::List(_) => {
                    let shape = property.value.as_str().filter(|t| TYPES.contains(t)).unwrap_or("string");
                    let help = Some(format!("`{name}: {{ type: {shape} }}`"));
                    let message = format!(
                        "the schema of the parameter `{name}` must be a mapping, not {}",
                        property.value.describe()
                    );
                    self.r.report_bad_value(property.value.span, message, "expected a mapping", help);
                }
            }
        }
    }

    fn check_names(&mut self, key: &str, value: &Node) {
        if !matches!(value.kind, Kind::List(_)) {
            let help = match value.as_str() {
                Some(name) => format!("write a list of names: `{key}: [{name}]`"),
                None => {
                    format!("write the names of the required parameters in a list beside `properties`, `{key}: […]`")
                }
            };
            return self.r.report_bad_value(
                value.span,
                format!("`{key}` is not a list of names"),
                "requires nothing",
                Some(help),
            );
        }
        let mut seen: Vec<&str> = Vec::new();
        for item in value.items() {
            match item.as_str() {
                Some(name) if seen.contains(&name) => {
                    let (message, help) = (format!("`{key}` names `{name}` twice"), "remove one of the two".to_owned());
                    self.r.report_bad_value(item.span, message, "named before", Some(help));
                }
                Some(name) => seen.push(name),
                None => self.r.report_wrong_type(item, key, "a list of names"),
            }
        }
    }

    /// Reports a required property that is not declared, if no other part of the schema could declare it.
    fn check_required(&mut self, node: &Node, at: Position) {
        const OTHER_DECLARERS: [&str; 9] = [
            "$ref",
            "$dynamicRef",
            "allOf",
            "anyOf",
            "oneOf",
            "if",
            "patternProperties",
            "dependentSchemas",
            "propertyNames",
        ];
        let closed = node.get("additionalProperties").and_then(Node::as_bool) == Some(false);
        let patterned = node.get("patternProperties").is_some();
        let elsewhere = at.composed || OTHER_DECLARERS.iter().any(|key| node.get(key).is_some());
        // An object with `additionalProperties: false` can only have properties that it declares itself.
        let mistaken = if closed { !patterned } else { !elsewhere && node.get("properties").is_some() };
        if !mistaken || (!closed && self.author == SchemaAuthor::Server) {
            return;
        }
        let typed_rest = node.get("additionalProperties").is_some_and(|rest| matches!(rest.kind, Kind::Map(_)));
        let declared: Vec<&str> =
            node.get("properties").map(Node::entries).unwrap_or_default().iter().map(|e| e.key.node.as_str()).collect();
        for item in node.get("required").map(Node::items).unwrap_or_default() {
            let Some(name) = item.as_str() else { continue };
            if !typed_rest && !declared.contains(&name) {
                let help = did_you_mean(name, &declared);
                let message = format!("`{name}` is required but not declared");
                self.r.report_bad_value(item.span, message, "no such property", Some(help));
            }
        }
    }

    fn check_types(&mut self, value: &Node) {
        match &value.kind {
            Kind::String(word) => self.check_type(word, value.span),
            Kind::List(items) if !items.is_empty() => {
                for item in items {
                    match item.as_str() {
                        Some(word) => self.check_type(word, item.span),
                        None => self.r.report_wrong_type(item, "type", "a type of JSON Schema"),
                    }
                }
            }
            Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::Map(_) | Kind::List(_) => {
                self.r.report_wrong_type(value, "type", "a type of JSON Schema");
            }
        }
    }

    fn check_type(&mut self, word: &str, span: Span) {
        if TYPES.contains(&word) {
            return;
        }
        let alike = match word {
            "str" | "text" => Some("string"),
            "int" => Some("integer"),
            "float" | "double" => Some("number"),
            "bool" => Some("boolean"),
            "list" => Some("array"),
            "dict" | "map" | "mapping" => Some("object"),
            _ => None,
        };
        let help = alike.map_or_else(|| did_you_mean(word, &TYPES), |meant| format!("did you mean `{meant}`?"));
        let message = format!("`{word}` is not a JSON Schema type");
        self.r.report_bad_value(span, message, "rejected by all providers", Some(help));
    }

    fn check_pattern_text(&mut self, key: &str, value: &Node) {
        match value.as_str() {
            Some(text) => self.check_pattern(text, value.span),
            None => self.r.report_wrong_type(value, key, "a regular expression"),
        }
    }

    fn check_pattern(&mut self, pattern: &str, span: Span) {
        if let Some(reason) = keywords::pattern_fault(pattern) {
            let message = format!("`{pattern}` is not a regular expression: {reason}");
            self.r.report_bad_value(span, message, "cannot be matched", None);
        }
    }

    fn check_reference(&mut self, key: &str, value: &Node) {
        let Some(reference) = value.as_str() else {
            return self.r.report_wrong_type(value, key, "a string");
        };
        let Some(fragment) = reference.strip_prefix('#') else {
            let help = "copy the definition into `$defs` of this schema and write `$ref: \"#/$defs/NAME\"`".to_owned();
            let message = format!("`{reference}` refers to another document");
            return self.r.report_bad_value(value.span, message, "not followed", Some(help));
        };
        match find_target(self.root, fragment) {
            None => {
                let defined: Vec<String> = ["$defs", "definitions"]
                    .iter()
                    .flat_map(|key| {
                        let entries = self.root.get(key).map(Node::entries).unwrap_or_default();
                        entries.iter().map(move |entry| format!("#/{key}/{}", entry.key.node))
                    })
                    .collect();
                let help = did_you_mean(reference, &defined.iter().map(String::as_str).collect::<Vec<_>>());
                let message = format!("`{reference}` refers to nothing in this schema");
                self.r.report_bad_value(value.span, message, "no such definition", Some(help));
            }
            Some(target) if leads_to_itself(self.root, target) => {
                let message = format!("`{reference}` refers to itself");
                self.r.report_bad_value(value.span, message, "describes no value", None);
            }
            Some(_) => {}
        }
    }

    fn check_misspelling(&mut self, key: &str, span: Span, at: Position) {
        let stray_is_reported = at.depth == 0 && self.root.get("properties").is_none();
        if self.author == SchemaAuthor::Server || stray_is_reported {
            return;
        }
        if let Some(meant) = misspelled_keyword(key) {
            let help = Some(format!("did you mean `{meant}`?"));
            let message = format!("`{key}` is not a JSON Schema keyword");
            let (code, label) = (ToolSpecErrorKind::UnknownKey, "constrains nothing".to_owned());
            self.r.faults.push(ToolSpecError { code, message, span, label, help, word: None });
        }
    }
}

/// Returns true if the schema under a keyword applies to the whole value (`allOf`), not only to a part of the value
/// (`items`).
fn is_composing(key: &str) -> bool {
    matches!(key, "allOf" | "anyOf" | "oneOf" | "not" | "if" | "then" | "else")
}

/// Finds the schema to which a reference points, by the part of the reference after `#`: a JSON pointer or an anchor.
/// `None` if there is none.
fn find_target<'n>(root: &'n Node, fragment: &str) -> Option<&'n Node> {
    if fragment.is_empty() {
        return Some(root);
    }
    let Some(path) = fragment.strip_prefix('/') else { return find_anchor(root, fragment, 0) };
    path.split('/').try_fold(root, |node, segment| {
        let segment = upgrade::decode_segment(segment);
        match &node.kind {
            Kind::Map(_) => node.get(&segment),
            Kind::List(items) => items.get(segment.parse::<usize>().ok()?),
            Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::String(_) => None,
        }
    })
}

fn find_anchor<'n>(node: &'n Node, anchor: &str, depth: usize) -> Option<&'n Node> {
    let named = |key: &str| node.get(key).and_then(Node::as_str) == Some(anchor);
    if named("$anchor") || named("$dynamicAnchor") {
        return Some(node);
    }
    let children = node.entries().iter().map(|entry| &entry.value).chain(node.items());
    children.filter(|_| depth < MAX_DEPTH).find_map(|child| find_anchor(child, anchor, depth + 1))
}

/// Returns true if the chain of `$ref` references that starts at `target` does not lead to a schema without `$ref`: the
/// chain is a loop, or has more than [`MAX_DEPTH`] references.
fn leads_to_itself(root: &Node, target: &Node) -> bool {
    let mut node = target;
    for _ in 0..=MAX_DEPTH {
        let next = node.get("$ref").and_then(Node::as_str).and_then(|reference| reference.strip_prefix('#'));
        match next.and_then(|fragment| find_target(root, fragment)) {
            Some(next) => node = next,
            None => return false,
        }
    }
    true
}
