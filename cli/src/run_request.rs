//! Command-line arguments of a run request (inputs, a model, limits), shared by every command that compiles one
//! directive. This module only parses the arguments; the compiler validates them.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use rye_compiler::compile::{CompileRequest, declared_inputs};
use rye_compiler::item::Items;
use rye_compiler::model::ModelOverride;
use rye_compiler::plan::{AppendedText, FieldType};
use rye_compiler::semantics::limits::LimitValue;
use rye_compiler::semantics::value::parse_json;
use rye_compiler::world::{ItemKind, World};
use rye_engine::rooted_dir::{read_bounded_text, read_user_file};
use rye_grammar::ItemId;
use serde_json::{Map, Value};

use crate::CommandError;

/// Environment variable with the default of `--model`.
const MODEL_VARIABLE: &str = "RYE_MODEL";

#[derive(Debug, Clone, Args)]
pub struct RunRequestArgs {
    /// An input (repeatable); JSON if the declared type is not `string`
    #[arg(long, value_name = "NAME=VALUE")]
    input: Vec<String>,
    /// Inputs as a JSON object: a file, or `-` for stdin if the command reads nothing else from stdin; `--input`
    /// overrides single inputs
    #[arg(long, value_name = "FILE|-")]
    inputs: Option<String>,
    /// Override the model of this thread (children keep theirs): a tier, a model's id, or `provider/MODEL` (default:
    /// `RYE_MODEL`)
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Override a limit (repeatable): `turns`, `tokens`, `spend`, `spawns`, `depth`, `duration_seconds`, `output`
    #[arg(long, value_name = "NAME=VALUE")]
    limit: Vec<String>,
    /// The object of `--inputs`, read once, because stdin can be read only once and a command can make several
    /// requests.
    #[arg(skip)]
    read_inputs: OnceCell<Map<String, Value>>,
    /// Inputs that a user gave after the start of the command.
    #[arg(skip)]
    given: Box<Map<String, Value>>,
}

/// Command-line arguments that concern a whole chat.
#[derive(Debug, Clone, Args)]
pub struct ChatRequestArgs {
    /// Set a limit of the whole session (repeatable): `turns`, `tokens`, `spend`, `duration_seconds`; `--limit` bounds
    /// each prompt
    #[arg(long, value_name = "NAME=VALUE")]
    session_limit: Vec<String>,
    /// Append the text of this file to the system prompt
    #[arg(long, value_name = "FILE")]
    append_system: Option<PathBuf>,
}

impl ChatRequestArgs {
    /// Returns true if no argument is given.
    pub fn is_empty(&self) -> bool {
        self.session_limit.is_empty() && self.append_system.is_none()
    }

    /// Adds the arguments to a request. Reads the file of `--append-system`.
    pub fn add_to(&self, request: &mut CompileRequest) -> Result<(), CommandError> {
        request.session_limits = parse_limits("session-limit", &self.session_limit)?;
        request.appended = self.append_system.as_deref().map(read_appended).transpose()?;
        Ok(())
    }
}

/// Maximum size of the file of `--append-system` in bytes.
const MAX_APPENDED_BYTES: u64 = 1 << 20;

fn read_appended(path: &Path) -> Result<AppendedText, CommandError> {
    let text = read_user_file(path, MAX_APPENDED_BYTES)
        .map_err(|error| CommandError::usage(format!("`--append-system {}`: {error}", path.display())))?;
    let text = text.trim_start_matches('\u{feff}').trim().to_owned();
    if text.is_empty() {
        return Err(CommandError::usage(format!("`--append-system {}`: the file is empty", path.display())));
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(AppendedText { name, text })
}

/// Parses the id of a directive.
pub fn parse_directive_id(text: &str) -> Result<ItemId, CommandError> {
    parse_item_id(text, ItemKind::Directive).map_err(|failure| CommandError {
        message: failure.message.replacen(" is not a valid id: ", " is not a valid directive id: ", 1),
        ..failure
    })
}

/// Parses the id of an item. If the text is the path of an item's file (such as a path that the shell has completed),
/// the error suggests the id of that item.
pub fn parse_item_id(text: &str, kind: ItemKind) -> Result<ItemId, CommandError> {
    ItemId::parse(text).map_err(|invalid| {
        let failure = CommandError::usage(format!("`{}` is not a valid id: {}", text.escape_debug(), invalid.reason));
        match id_of_path(text, kind) {
            Some(id) => failure.with_help(format!("did you mean `{id}`?")),
            None => failure,
        }
    })
}

/// Returns the id that an item has if its file has this path: `./.ai/directives/deploy/web.md`, `deploy/web.md`. `None`
/// if the path is not valid as an id.
fn id_of_path(text: &str, kind: ItemKind) -> Option<ItemId> {
    let inside = text.find(kind.folder()).and_then(|at| text.get(at + kind.folder().len()..));
    let path = inside.unwrap_or_else(|| text.trim_start_matches("./"));
    let stem = kind.extensions().iter().find_map(|extension| path.strip_suffix(extension)?.strip_suffix('.'));
    ItemId::parse(stem.unwrap_or(path)).ok()
}

/// Parses the ids of directives, each of which must exist.
pub fn existing_directives(texts: &[String], world: &dyn World) -> Result<Vec<ItemId>, CommandError> {
    let items = Items::new(world);
    let there = |text: &String| {
        let id = parse_directive_id(text)?;
        if items.exists(ItemKind::Directive, &id) {
            return Ok(id);
        }
        let failure = CommandError::failed(format!("unknown directive `{id}`"));
        Err(match items.nearest(ItemKind::Directive, id.as_str()) {
            Some(near) => failure.with_help(format!("did you mean `{near}`?")),
            None => failure,
        })
    };
    texts.iter().map(there).collect()
}

impl RunRequestArgs {
    /// Returns the model that `--model` names; `None` without `--model`, even if `RYE_MODEL` names a default.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Returns the limits of the command line, as written: `NAME=VALUE`.
    pub fn limits(&self) -> &[String] {
        &self.limit
    }

    /// Returns true if inputs are read from stdin.
    pub fn reads_stdin(&self) -> bool {
        self.inputs.as_deref() == Some("-")
    }

    /// Returns true if the command line or `with_inputs` sets inputs.
    pub fn has_inputs(&self) -> bool {
        self.inputs.is_some() || !self.input.is_empty() || !self.given.is_empty()
    }

    /// Sets inputs that are used where the command line has no value for them.
    #[must_use]
    pub fn with_inputs(self, given: Map<String, Value>) -> Self {
        Self { given: Box::new(given), ..self }
    }

    /// Returns the request for a directive. The inputs in the request are `None` if neither the command line nor
    /// `with_inputs` sets inputs.
    pub fn request(&self, directive: ItemId, world: &dyn World) -> Result<CompileRequest, CommandError> {
        let mut request = CompileRequest::new(directive);
        let model = self.model.clone().or_else(|| std::env::var(MODEL_VARIABLE).ok().filter(|model| !model.is_empty()));
        if let Some(text) = model.as_deref().filter(|text| text.split('/').any(|part| part.trim().is_empty())) {
            let failure = CommandError::usage(format!("`{}` names no model", text.escape_debug()));
            return Err(failure.with_help(
                "write a tier, the id of a model, or `PROVIDER/MODEL`; `rye providers list` lists the models",
            ));
        }
        request.model = ModelOverride::of_user(model);
        request.limits = parse_limits("limit", &self.limit)?;
        if self.has_inputs() {
            request.inputs = Some(self.inputs(&request.directive, world)?);
        }
        Ok(request)
    }

    fn inputs(&self, directive: &ItemId, world: &dyn World) -> Result<Map<String, Value>, CommandError> {
        let mut values = (*self.given).clone();
        match (&self.inputs, self.read_inputs.get()) {
            (None, _) => {}
            (Some(_), Some(known)) => values.extend(known.clone()),
            (Some(from), None) => {
                let read = read_json_object(from)?;
                values.extend(self.read_inputs.get_or_init(|| read).clone());
            }
        }
        let mut written: BTreeMap<&str, &str> = BTreeMap::new();
        for input in &self.input {
            let (name, value) = split_name_value("input", input)?;
            if written.insert(name, value).is_some() {
                return Err(CommandError::usage(format!("`--input {name}` is given twice")));
            }
        }
        let declared = if written.is_empty() { BTreeMap::new() } else { declared_types(directive, world) };
        if written.keys().any(|name| !declared.contains_key(*name)) {
            return Ok(read_routed_inputs(directive, world, &values, &written));
        }
        values.extend(parse_inputs(&declared, &written));
        Ok(values)
    }
}

/// Splits limits of the form `NAME=VALUE`, the values of `--FLAG`. The compiler validates the names and the values.
///
/// # Errors
/// A text has no `=`, or a limit is given twice.
pub fn parse_limits(flag: &str, texts: &[String]) -> Result<Vec<(String, LimitValue)>, CommandError> {
    let mut limits: Vec<(String, LimitValue)> = Vec::new();
    for text in texts {
        let (name, value) = split_name_value(flag, text)?;
        if let Some((_, LimitValue::Text(first))) = limits.iter().find(|(known, _)| known == name) {
            return Err(CommandError::usage(format!(
                "the limit `{name}` is given twice: `{first}` and `{value}`; keep one of them"
            )));
        }
        limits.push((name.to_owned(), LimitValue::Text(value.to_owned())));
    }
    Ok(limits)
}

/// Parses the text of each input according to the declared type of the input.
fn parse_inputs(types: &BTreeMap<String, FieldType>, written: &BTreeMap<&str, &str>) -> Map<String, Value> {
    written.iter().map(|(name, text)| ((*name).to_owned(), parse_typed(types.get(*name).copied(), text))).collect()
}

/// Parses the inputs of a directive that does not declare all of them itself. The others may be declared by an extends
/// parent that a routing hook selects. The types of the inputs depend on this parent, and the selection of the parent
/// may depend on the values of the inputs.
///
/// The function therefore tries two assumptions, first that every input is a string, then that every input is JSON.
/// Under each assumption, parses the inputs with the types that the selected parent declares. The result is valid if
/// all inputs are declared, and if the parsed inputs select a parent with the same types. If no result is valid,
/// returns the first result.
fn read_routed_inputs(
    directive: &ItemId,
    world: &dyn World,
    values: &Map<String, Value>,
    written: &BTreeMap<&str, &str>,
) -> Map<String, Value> {
    let with = |read: Map<String, Value>| {
        let mut all = values.clone();
        all.extend(read);
        all
    };
    let text = with(written.iter().map(|(name, text)| ((*name).to_owned(), Value::from(*text))).collect());
    let looks = |text: &str| parse_json(text).unwrap_or_else(|_| Value::from(text));
    let guessed = with(written.iter().map(|(name, text)| ((*name).to_owned(), looks(text))).collect());
    let mut last = None;
    for given in [text, guessed] {
        let types = declared_inputs(world, directive, &given);
        let read = with(parse_inputs(&types, written));
        if written.keys().all(|name| types.contains_key(*name))
            && (read == given || declared_inputs(world, directive, &read) == types)
        {
            return read;
        }
        last.get_or_insert(read);
    }
    last.unwrap_or_default()
}

fn split_name_value<'t>(flag: &str, text: &'t str) -> Result<(&'t str, &'t str), CommandError> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| CommandError::usage(format!("`--{flag} {text}` has no value: write `--{flag} NAME=VALUE`")))?;
    Ok((name.trim(), value))
}

/// Maximum size of the inputs of a run in bytes.
const MAX_INPUTS_BYTES: u64 = 64 << 20;

/// Reads a JSON object from a file, or from stdin.
fn read_json_object(from: &str) -> Result<Map<String, Value>, CommandError> {
    let read = match from {
        "-" => read_bounded_text(&mut std::io::stdin().lock(), MAX_INPUTS_BYTES),
        path => read_user_file(path.as_ref(), MAX_INPUTS_BYTES),
    };
    let place = if from == "-" { "stdin" } else { from };
    let text = read.map_err(|error| {
        let failure = CommandError::usage(format!("the inputs in `{place}` cannot be read: {error}"));
        if place.contains('=') {
            failure.with_help(format!("`--inputs` names a file; for one input, write `--input {place}`"))
        } else {
            failure
        }
    })?;
    let value = parse_json(text.trim_start_matches('\u{feff}'));
    if let Some(name) = repeated_key(text.trim_start_matches('\u{feff}')) {
        return Err(CommandError::usage(format!(
            "the inputs in `{place}` have the name `{}` twice",
            name.escape_debug()
        )));
    }
    match value.map_err(|error| CommandError::usage(format!("the inputs in `{place}` are not valid JSON: {error}")))? {
        Value::Object(values) => Ok(values),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(CommandError::usage(format!(
                "the inputs in `{place}` are not a JSON object: expected `{{\"name\": value}}`"
            )))
        }
    }
}

/// Returns the first key that a JSON object has twice; `None` if the text is no JSON object, or has no such key.
fn repeated_key(text: &str) -> Option<String> {
    struct Keys;
    impl<'de> serde::de::Visitor<'de> for Keys {
        type Value = Option<String>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let (mut seen, mut repeated) = (std::collections::BTreeSet::new(), None);
            while let Some((key, _)) = map.next_entry::<String, serde::de::IgnoredAny>()? {
                if !seen.insert(key.clone()) {
                    repeated.get_or_insert(key);
                }
            }
            Ok(repeated)
        }
    }
    serde::Deserializer::deserialize_map(&mut serde_json::Deserializer::from_str(text), Keys).ok().flatten()
}

/// Returns the input types that a directive and its extends parents declare. The declaration nearest to the directive
/// applies.
fn declared_types(directive: &ItemId, world: &dyn World) -> BTreeMap<String, FieldType> {
    let items = Items::new(world);
    let mut types = BTreeMap::new();
    let mut seen = vec![directive.clone()];
    while let Some(found) = seen.last().and_then(|id| items.directive(id)) {
        for (name, field) in &found.inputs {
            types.entry(name.clone()).or_insert(field.kind);
        }
        match &found.extends {
            Some(parent) if !seen.contains(&parent.node) => seen.push(parent.node.clone()),
            Some(_) | None => break,
        }
    }
    types
}

/// Parses a text according to its declared type. A text that does not fit the type stays a string, and the compiler
/// reports the wrong type.
fn parse_typed(declared: Option<FieldType>, text: &str) -> Value {
    match declared {
        None | Some(FieldType::String) => Value::from(text),
        Some(FieldType::Integer | FieldType::Number | FieldType::Boolean | FieldType::Array | FieldType::Object) => {
            parse_json(text).unwrap_or_else(|_| Value::from(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn repeated_keys_of_inputs_are_found() {
        assert_eq!(repeated_key("{\"f\": 1, \"g\": {}, \"f\": 2}").as_deref(), Some("f"));
        for text in ["{\"f\": {\"a\": 1}, \"g\": {\"a\": 1}}", "{}", "[1]", "{\"f\": 1, \"f\""] {
            assert_eq!(repeated_key(text), None, "{text}");
        }
    }

    #[test]
    fn item_path_suggests_its_id() {
        for (text, kind, id) in [
            (".ai/directives/deploy/web.md", ItemKind::Directive, Some("deploy/web")),
            ("/home/me/shop/.ai/directives/web.md", ItemKind::Directive, Some("web")),
            ("./deploy/web.md", ItemKind::Directive, Some("deploy/web")),
            ("count.py", ItemKind::Tool, Some("count")),
            ("count.txt", ItemKind::Tool, None),
            ("../web.md", ItemKind::Directive, None),
            ("", ItemKind::Directive, None),
        ] {
            assert_eq!(id_of_path(text, kind).as_ref().map(ItemId::as_str), id, "{text}");
        }
    }

    #[test]
    fn text_is_parsed_by_its_declared_type() {
        assert_eq!(parse_typed(None, "1"), json!("1"));
        assert_eq!(parse_typed(Some(FieldType::String), "[1]"), json!("[1]"));
        assert_eq!(parse_typed(Some(FieldType::Integer), "12"), json!(12));
        assert_eq!(parse_typed(Some(FieldType::Integer), "twelve"), json!("twelve"));
        assert_eq!(parse_typed(Some(FieldType::Array), "[1, \"a\"]"), json!([1, "a"]));
    }
}
