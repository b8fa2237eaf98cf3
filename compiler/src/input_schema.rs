//! JSON Schemas of the files that people write, for editors. The schemas are derived from the tables that `rye check`
//! uses. Names of items and types of facts are not in the schemas: only `rye check` checks them.

use serde_json::{Map, Value, json};

use crate::assertion_file as assertions;
use crate::diagnostics::CODES;
use crate::hook::{END_STATUSES, MESSAGE_KINDS, TERMINATE_SCOPES};
use crate::item::hook::read::KEYS as HOOK_KEYS;
use crate::item::{HOOK_LISTS, knowledge};
use crate::key_bindings::BOUND_ACTIONS;
use crate::semantics::hook_point::{ActionName, HOOK_POINTS, HookPointRow, event_names};
use crate::semantics::limits::LimitName;
use crate::severity_overrides::LEVEL_WORDS;
use crate::tool_spec::{KIND_KEYS, MAX_SNIPPET_CHARS, MAX_TIMEOUT_SECONDS, TOOL_KEYS};
use crate::validate::settings::schema::{FILES, MAX_SECONDS, SettingField, SettingShape, SettingsFile};
use crate::world::ItemKind;
use rye_grammar::condition::OPERATORS;

/// The dialect of the schemas.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// The schema of one kind of file.
#[derive(Debug, Clone, PartialEq)]
pub struct InputSchema {
    /// The name of the schema: `tool`, `knowledge`, or the name of a settings file such as `hooks` or `providers`.
    pub name: String,
    /// The files, as a pattern below the project: `.ai/config/agent/hooks.yaml`.
    pub files: String,
    pub schema: Value,
}

/// A kind of file that has a schema.
#[derive(Clone, Copy)]
enum FileKind {
    Tool,
    Knowledge,
    Settings(&'static SettingsFile),
}

impl FileKind {
    fn all() -> impl Iterator<Item = Self> {
        [Self::Tool, Self::Knowledge].into_iter().chain(FILES.iter().filter_map(Self::of_settings))
    }

    /// Returns the kind of a settings file; `None` for a documentation file, which is never read.
    fn of_settings(file: &'static SettingsFile) -> Option<Self> {
        (!matches!(file.shape, SettingShape::Documentation(_))).then_some(Self::Settings(file))
    }

    /// Returns the kind of the file at a path below the project; `None` if it has no schema.
    fn of_path(path: &str) -> Option<Self> {
        let (kind, id) = ItemKind::of_path(path)?;
        let extension = path.rsplit_once('.').map(|(_, extension)| extension);
        match kind {
            ItemKind::Tool if matches!(extension, Some("yaml" | "yml")) => Some(Self::Tool),
            ItemKind::Knowledge if extension == Some("md") => Some(Self::Knowledge),
            ItemKind::Config => Self::of_settings(crate::validate::settings::schema::find_file(id.as_str())?),
            ItemKind::Directive | ItemKind::Tool | ItemKind::Knowledge | ItemKind::Prompt | ItemKind::Skill => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Knowledge => "knowledge",
            Self::Settings(file) => file.id.trim_end_matches('/').trim_start_matches("agent/"),
        }
    }

    fn files(self) -> String {
        match self {
            Self::Tool => format!("{}**/*.yaml", ItemKind::Tool.folder()),
            Self::Knowledge => format!("{}**/*.md", ItemKind::Knowledge.folder()),
            Self::Settings(file) => {
                let every = if file.id.ends_with('/') { "*" } else { "" };
                format!("{}{}{every}.yaml", ItemKind::Config.folder(), file.id)
            }
        }
    }

    fn schema(self) -> InputSchema {
        let schema = match self {
            Self::Tool => build_tool_schema(),
            Self::Knowledge => knowledge_metadata(),
            Self::Settings(file) => build_settings_schema(file),
        };
        InputSchema { name: self.name().to_owned(), files: self.files(), schema }
    }
}

/// Returns the schemas of all files: tools, knowledge metadata, and settings by id.
pub fn input_schemas() -> Vec<InputSchema> {
    FileKind::all().map(FileKind::schema).collect()
}

/// Returns the name of the schema of the file at a path below the project; `None` if the file has no schema. Builds no
/// schema.
pub fn schema_name_of_path(path: &str) -> Option<&'static str> {
    FileKind::of_path(path).map(FileKind::name)
}

/// Returns the schema of the file at `path`, relative to the project; `None` if there is no schema for such a file.
pub fn schema_of_path(path: &str) -> Option<InputSchema> {
    FileKind::of_path(path).map(FileKind::schema)
}

/// The shared parts of a schema (`$defs`), by name.
#[derive(Default)]
struct Definitions(Map<String, Value>);

impl Definitions {
    /// Returns a reference (`$ref`) to the shared part with this name. The first call for a name adds the part to the
    /// definitions.
    fn define(&mut self, name: &str, part: impl FnOnce(&mut Self) -> Value) -> Value {
        if !self.0.contains_key(name) {
            let part = part(self);
            self.0.insert(name.to_owned(), part);
        }
        json!({"$ref": format!("#/$defs/{name}")})
    }

    fn condition(&mut self) -> Value {
        self.define("condition", |_| build_condition_schema())
    }
}

/// Returns a mapping schema with these properties and no others.
fn close_object(properties: Map<String, Value>) -> Value {
    let properties = Value::Object(properties);
    let mut schema = json!({"type": "object"});
    if let Some(map) = schema.as_object_mut() {
        map.insert("properties".to_owned(), properties);
        map.insert("additionalProperties".to_owned(), false.into());
    }
    schema
}

fn with_header(about: &str, schema: Value, definitions: Definitions) -> Value {
    let mut whole = Map::new();
    whole.insert("$schema".into(), DIALECT.into());
    whole.insert("description".into(), about.into());
    if let Value::Object(map) = schema {
        whole.extend(map);
    }
    if !definitions.0.is_empty() {
        whole.insert("$defs".into(), Value::Object(definitions.0));
    }
    // A file that contains only comments is null.
    if whole.get("type") == Some(&json!("object")) {
        whole.insert("type".into(), json!(["object", "null"]));
    }
    Value::Object(whole)
}

fn build_settings_schema(file: &SettingsFile) -> Value {
    let mut definitions = Definitions::default();
    let schema = match file.id {
        "agent/hooks" | "agent/hook_conditions" => build_hooks_schema(&mut definitions),
        "agent/assertions" => assertion_file(),
        "check" => check_file(),
        _ => build_shape_schema(&file.shape, &mut definitions),
    };
    with_header(file.about, schema, definitions)
}

/// Converts the shape of a setting to a schema. The schema requires keys only in the mappings that are items of a list.
/// Any other mapping is merged with the mapping of another space, which may contain the missing keys. An item of a list
/// is not merged.
fn build_shape_schema(shape_of: &SettingShape, definitions: &mut Definitions) -> Value {
    match shape_of {
        SettingShape::Text => json!({"type": "string", "pattern": "\\S"}),
        SettingShape::Bool => json!({"type": "boolean"}),
        SettingShape::Integer { least } => json!({"type": "integer", "minimum": least}),
        SettingShape::Seconds => json!({"type": "number", "minimum": 0, "maximum": MAX_SECONDS}),
        SettingShape::Dollars => json!({"type": "number", "exclusiveMinimum": 0}),
        SettingShape::Fraction => json!({"type": "number", "exclusiveMinimum": 0, "maximum": 1}),
        SettingShape::Price => json!({"anyOf": [
            {"type": "number", "minimum": 0}, {"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?$"},
        ]}),
        SettingShape::OneOf(words) => json!({"enum": words}),
        SettingShape::Map(keys) => build_fields_schema(keys, definitions),
        SettingShape::MapOr(word, keys) => json!({"anyOf": [{"const": word}, build_fields_schema(keys, definitions)]}),
        SettingShape::Names(value) => {
            json!({"type": "object", "additionalProperties": build_shape_schema(value, definitions)})
        }
        SettingShape::NamedValues(names, value) => close_object(
            names.iter().map(|name| ((*name).to_owned(), build_shape_schema(value, definitions))).collect(),
        ),
        SettingShape::List(item) => {
            let mut items = build_shape_schema(item, definitions);
            if let (SettingShape::Map(keys), Some(map)) = (item, items.as_object_mut()) {
                let required: Vec<&str> =
                    keys.iter().filter(|field| field.is_required).map(|field| field.key).collect();
                map.insert("required".into(), json!(required));
            }
            json!({"type": "array", "items": items})
        }
        SettingShape::KeyBindings => {
            let keys =
                |about| add_description(json!({"type": ["string", "array"], "items": {"type": "string"}}), about);
            close_object(BOUND_ACTIONS.iter().map(|one| (one.id.to_owned(), keys(one.about))).collect())
        }
        SettingShape::Failure => definitions.condition(),
        SettingShape::Pattern => json!({"type": "string"}),
        SettingShape::Opaque | SettingShape::Documentation(_) => json!({}),
    }
}

fn build_fields_schema(keys: &[SettingField], definitions: &mut Definitions) -> Value {
    let property = |field: &SettingField| {
        let value = if field.key == "limits" && matches!(field.shape, SettingShape::Opaque) {
            build_limits_schema()
        } else {
            build_shape_schema(&field.shape, definitions)
        };
        (field.key.to_owned(), add_description(value, field.about))
    };
    close_object(keys.iter().map(property).collect())
}

fn add_description(schema: Value, about: &str) -> Value {
    let mut schema = schema;
    if let Some(map) = schema.as_object_mut().filter(|_| !about.is_empty()) {
        map.insert("description".into(), about.into());
    }
    schema
}

/// Returns the schema of limits: numbers, or texts such as `10m`. The reader of limits checks the values.
fn build_limits_schema() -> Value {
    let names = LimitName::ALL.into_iter().map(|name| (name.to_string(), json!({"type": ["number", "string"]})));
    // Other properties are allowed, because older files name limits by an alias.
    json!({"type": "object", "properties": names.collect::<Map<_, _>>()})
}

/// Returns the JSON Schema of a condition. A condition is a text of one line, or a mapping that can contain further
/// conditions; so the schema refers to itself.
fn build_condition_schema() -> Value {
    let reference = json!({"$ref": "#/$defs/condition"});
    let list = json!({"type": "array", "items": reference});
    let mapping = json!({
        "type": ["object", "null"],
        "properties": {
            "path": {"type": "string"},
            "op": {"enum": OPERATORS},
            "value": {},
            "all": list,
            "any": list,
            "not": reference,
        },
        "additionalProperties": false,
    });
    json!({"anyOf": [{"type": "string", "minLength": 1}, {"type": "boolean"}, mapping]})
}

/// Returns the schema of a settings file that declares hooks: an object with a list of hooks under each key in
/// `HOOK_LISTS`.
fn build_hooks_schema(definitions: &mut Definitions) -> Value {
    let list = json!({"type": ["array", "null"], "items": definitions.define("hook", build_hook_schema)});
    close_object(HOOK_LISTS.iter().map(|name| ((*name).to_owned(), list.clone())).collect())
}

/// Returns the schema of a hook. The allowed actions depend on the event.
fn build_hook_schema(definitions: &mut Definitions) -> Value {
    let truth = json!({"enum": [true, false, "true", "false"]});
    let property = |key: &&str| {
        let schema = match *key {
            "id" => json!({"type": "string", "pattern": "\\S"}),
            "event" => json!({"enum": event_names()}),
            "layer" => json!({"type": ["number", "string"]}),
            "position" => json!({"enum": ["before", "after"]}),
            "wrap" | "enabled" => truth.clone(),
            "condition" => definitions.condition(),
            "action" => json!({"type": ["object", "string"]}),
            "grants" => json!({"type": "array", "items": {"type": "string"}}),
            "on_failure" => json!({"enum": ["warn", "fail"]}),
            _ => json!({"type": "string"}),
        };
        ((*key).to_owned(), schema)
    };
    let mut schema = close_object(HOOK_KEYS.iter().map(property).collect());
    let events: Vec<Value> = HOOK_POINTS
        .iter()
        .map(|point| {
            json!({
                "if": {"properties": {"event": {"const": point.name}}, "required": ["event"]},
                "then": {"properties": {"action": build_action_schema(point, definitions)}},
            })
        })
        .collect();
    if let Value::Object(map) = &mut schema {
        map.insert("required".into(), json!(["id"]));
        // `{id: …, enabled: false}` is enough to disable a hook.
        map.insert(
            "anyOf".into(),
            json!([
                {"properties": {"enabled": {"enum": [false, "false"]}}, "required": ["enabled"]},
                {"required": ["event", "action"]},
            ]),
        );
        map.insert("allOf".into(), Value::Array(events));
    }
    schema
}

/// Returns the schema of the actions that a hook can have at a hook point.
fn build_action_schema(point: &HookPointRow, definitions: &mut Definitions) -> Value {
    let mut actions: Vec<ActionName> = point.accepted_actions().collect();
    actions.sort_unstable();
    actions.dedup();
    let spellings = actions
        .into_iter()
        .map(|action| definitions.define(&format!("action_{}", action.as_str()), |_| action_spellings(action)));
    json!({"anyOf": spellings.collect::<Vec<_>>()})
}

/// Returns a schema that accepts an action in each notation that a hook may use: the name of the action alone, or a
/// mapping.
fn action_spellings(action: ActionName) -> Value {
    let words: Vec<&str> = std::iter::once(action.as_str()).chain(action.aliases().iter().copied()).collect();
    let properties: Map<String, Value> =
        action.fields().iter().map(|field| ((*field).to_owned(), action_field(action, field))).collect();
    let mut spellings = vec![json!({"enum": words})];
    let mut add = |key: &str, properties: Map<String, Value>| {
        let mut schema = close_object(properties);
        if let Value::Object(map) = &mut schema {
            map.insert("required".into(), json!([key]));
        }
        spellings.push(schema);
    };
    for key in ["primary", "action"] {
        let mut named = properties.clone();
        named.insert(key.to_owned(), json!({"enum": words}));
        add(key, named);
    }
    // A bare value sets one of the fields.
    let value = json!({"anyOf": [close_object(properties), {"not": {"type": "object"}}]});
    for word in &words {
        add(word, Map::from_iter([((*word).to_owned(), value.clone())]));
    }
    json!({"anyOf": spellings})
}

fn action_field(action: ActionName, field: &str) -> Value {
    let count = json!({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]});
    match (action, field) {
        (_, "item_type") => json!({"enum": ["tool", "directive", "knowledge"]}),
        (_, "params") => json!({"type": ["object", "null"]}),
        (ActionName::Inject, "position") => json!({"enum": ["before", "after"]}),
        (_, "display" | "is_error") => json!({"enum": [true, false, "true", "false"]}),
        (_, "n" | "delay_ms") => count,
        (_, "kinds") => json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"enum": MESSAGE_KINDS}}]}),
        (_, "status") => json!({"anyOf": [{"enum": END_STATUSES}, {"type": "string", "pattern": "\\$\\{"}]}),
        (_, "scope") => json!({"anyOf": [{"enum": TERMINATE_SCOPES}, {"type": "string", "pattern": "\\$\\{"}]}),
        (_, "images") => json!({"type": ["array", "string", "object"], "items": {"type": ["string", "object"]}}),
        (_, "item_id" | "text" | "append" | "reason" | "error" | "limit" | "type" | "reply") => {
            json!({"type": "string"})
        }
        _ => json!({}),
    }
}

/// Returns the schema of a tool in YAML.
fn build_tool_schema() -> Value {
    let text = json!({"type": "string"});
    let texts = json!({"anyOf": [text, {"type": "array", "items": text}]});
    let known = |key: &str| match key {
        "version" => json!({"type": ["string", "number"]}),
        "parameters" => json!({"type": "object"}),
        "timeout_seconds" => json!({"type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_SECONDS}),
        "parallel" | "persistent" | "pushes" => json!({"type": "boolean"}),
        "snippet" => json!({"type": "string", "pattern": "\\S", "maxLength": MAX_SNIPPET_CHARS}),
        "idempotent" => json!({"anyOf": [{"type": "boolean"}, {"type": "object", "minProperties": 1}]}),
        "needs" => close_object(Map::from_iter(["net", "write"].map(|key| (key.to_owned(), texts.clone())))),
        "environment" | "guidelines" => texts.clone(),
        "config" => close_object(Map::from_iter([
            ("path".to_owned(), text.clone()),
            ("mode".to_owned(), json!({"enum": ["deep_merge", "first_match"]})),
        ])),
        "tags" | "headers" | "body" => json!({}),
        "command" => json!({"type": "array", "items": {"type": ["string", "number"]}, "minItems": 1}),
        "description" => json!({"type": "string", "pattern": "\\S"}),
        _ => text.clone(),
    };
    let kinds: Vec<&str> = KIND_KEYS.iter().map(|(kind, _)| *kind).collect();
    let own = KIND_KEYS.iter().flat_map(|(_, keys)| keys.iter().copied());
    let mut properties: Map<String, Value> =
        TOOL_KEYS.into_iter().chain(own).map(|key| (key.to_owned(), known(key))).collect();
    properties.insert("kind".into(), json!({"enum": kinds}));
    let by_kind: Vec<Value> = KIND_KEYS
        .iter()
        .map(|(kind, keys)| {
            let others = KIND_KEYS.iter().flat_map(|(_, others)| others.iter());
            let others: Map<String, Value> =
                others.filter(|key| !keys.contains(key)).map(|key| ((*key).to_owned(), Value::Bool(false))).collect();
            json!({
                "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
                "then": {"properties": others},
            })
        })
        .collect();
    let mut schema = close_object(properties);
    if let Value::Object(map) = &mut schema {
        map.insert("required".into(), json!(["description", "kind"]));
        map.insert("allOf".into(), Value::Array(by_kind));
    }
    let mut schema = with_header("A tool.", schema, Definitions::default());
    if let Value::Object(map) = &mut schema {
        map.insert("type".into(), json!("object"));
    }
    schema
}

/// Returns the schema of the metadata of knowledge, without the lines that delimit the metadata.
fn knowledge_metadata() -> Value {
    let known = |key: &&str| {
        let schema = match *key {
            "name" => json!({"type": ["string", "null"], "pattern": "^[A-Za-z_][A-Za-z0-9_.-]*$"}),
            "title" | "description" | "category" => json!({"type": ["string", "null"]}),
            _ => json!({}),
        };
        ((*key).to_owned(), schema)
    };
    let properties: Map<String, Value> = knowledge::KEYS.iter().map(known).collect();
    // The check only advises about other keys.
    let open = json!({"type": "object", "properties": properties});
    with_header("Metadata of knowledge.", open, Definitions::default())
}

/// Returns the schema of `check.yaml`: severities by code.
fn check_file() -> Value {
    let level = json!({"enum": LEVEL_WORDS});
    let codes = CODES.iter().flat_map(|code| [(*code).to_owned(), format!("rye::{code}")]);
    let levels: Map<String, Value> = codes.map(|code| (code, level.clone())).collect();
    let mut by_code = close_object(levels);
    if let Value::Object(map) = &mut by_code {
        map.insert("type".into(), json!(["object", "null"]));
    }
    close_object(Map::from_iter([
        ("levels".to_owned(), by_code),
        ("deny_warnings".to_owned(), json!({"type": "boolean"})),
    ]))
}

/// Returns the schema of `assertions.yaml`: a list of assertions.
fn assertion_file() -> Value {
    let field = |key: &&str| {
        let schema = match *key {
            "id" => json!({"type": "string", "pattern": "\\S"}),
            "severity" => json!({"enum": ["error", "warning"]}),
            _ => json!({}),
        };
        ((*key).to_owned(), schema)
    };
    let mut assertion = close_object(assertions::KEYS.iter().map(field).collect());
    if let Some(map) = assertion.as_object_mut() {
        map.insert("required".into(), json!(["id"]));
    }
    let property = |key: &&str| {
        let schema = match *key {
            "assertions" => json!({"type": ["array", "null"], "items": assertion}),
            _ => json!({}),
        };
        ((*key).to_owned(), schema)
    };
    close_object(assertions::TOP_KEYS.iter().map(property).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn every_written_file_has_a_schema() {
        let names: Vec<String> = input_schemas().into_iter().map(|schema| schema.name).collect();
        for (path, name) in [
            (".ai/tools/a/b.yaml", Some("tool")),
            (".ai/tools/a/b.py", None),
            (".ai/knowledge/a.md", Some("knowledge")),
            (".ai/config/agent/hooks.yaml", Some("hooks")),
            (".ai/config/agent/providers/mine.yaml", Some("providers")),
            (".ai/config/check.yaml", Some("check")),
            (".ai/config/elsewhere.yaml", None),
        ] {
            assert_eq!(schema_of_path(path).map(|schema| schema.name).as_deref(), name, "{path}");
        }
        let mut unique = names.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), names.len());
    }

    #[test]
    fn keys_of_hooks_and_tools_are_those_of_their_readers() {
        let hooks = schema_of_path(".ai/config/agent/hooks.yaml").unwrap().schema;
        let keys: Vec<&String> = hooks["$defs"]["hook"]["properties"].as_object().unwrap().keys().collect();
        assert_eq!(keys, HOOK_KEYS);
        let tool = schema_of_path(".ai/tools/a.yaml").unwrap().schema;
        assert!(TOOL_KEYS.iter().all(|key| tool["properties"][key] != Value::Null));
        assert_eq!(tool["additionalProperties"], false);
    }
}
