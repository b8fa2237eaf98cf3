//! Schemas for Gemini's `parametersJsonSchema`: the documented keywords, without references.
//!
//! References are replaced by their targets. A recursive schema is repeated for the number of levels in [`EFFORTS`];
//! below them, a description names the definition. `anyOf` is the only keyword of its schema, as the API requires.

use std::borrow::Cow;

use crate::tool_spec::resolve_pointer;
use serde_json::{Map, Value, json};

use super::complete::bound_tuple;
use super::merge::{EXACTLY_ONE, are_disjoint, closing_rule, merge_all};
use super::{add_notes, is_wire_name, remove_unnameable_properties, types_of};

/// Limits for following references: the levels of a recursive definition, and the total depth. If the result is too
/// large, the next entry, with smaller limits, is tried.
const EFFORTS: [(usize, usize); 6] = [(3, 24), (2, 16), (1, 12), (1, 8), (1, 6), (1, 4)];
/// Maximum number of schemas in a result. If a result is larger even with the smallest limits (the last entry of
/// `EFFORTS`), each schema beyond the maximum is reduced to its type and a note.
const MAX_SCHEMAS: usize = 500;
/// Values of the keyword `format` that the API documents.
const FORMATS: [&str; 3] = ["date-time", "date", "time"];
/// Keywords that are copied unchanged to the converted schema.
const COPIED_KEYWORDS: [&str; 6] = ["title", "description", "minimum", "maximum", "minItems", "maxItems"];
/// Keywords that become text in the description, because the API does not document them.
const DESCRIBED_KEYWORDS: [&str; 29] = [
    "default",
    "examples",
    "pattern",
    "minLength",
    "maxLength",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "uniqueItems",
    "contains",
    "minContains",
    "maxContains",
    "unevaluatedItems",
    "unevaluatedProperties",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "dependentSchemas",
    "not",
    "if",
    "then",
    "else",
    "anyOf",
    "oneOf",
    "contentEncoding",
    "contentMediaType",
    "readOnly",
];

/// Converts the root of a schema, which [`super::root::flatten_root`] returned, to the keywords that Gemini documents.
/// References point into `original`. Rules that the result cannot express are added to `notes`.
pub(super) fn convert_root(original: &Value, mut root: Map<String, Value>, notes: &mut Vec<String>) -> Value {
    root.shift_remove("$defs");
    root.shift_remove("definitions");
    notes.extend(remove_unnameable_properties(&mut root));
    let (mut result, mut rules_of_root) = (Map::new(), Vec::new());
    for (levels, depth) in EFFORTS {
        let mut converter = SubsetConverter { original, levels, depth, schemas: 0, references: Vec::new() };
        let (map, rules) = converter.convert_flat(root.clone(), 0);
        result = map;
        rules_of_root = rules;
        if converter.schemas <= MAX_SCHEMAS {
            break;
        }
    }
    notes.extend(rules_of_root);
    Value::Object(result)
}

struct SubsetConverter<'v> {
    original: &'v Value,
    levels: usize,
    depth: usize,
    schemas: usize,
    /// The references followed from the root to the current schema. A reference that occurs here `levels` times is
    /// not followed again.
    references: Vec<String>,
}

/// The result of removing references and `allOf` from the top level of a schema. `Map` holds the resulting schema, and
/// the rules that it cannot express. `Cut` stands for a recursive reference that is not followed any further, and holds
/// only the name and the types of its definition.
enum FlatSchema {
    Map(Map<String, Value>, Vec<String>),
    Cut { name: String, types: Vec<String> },
}

impl SubsetConverter<'_> {
    fn convert(&mut self, schema: &Value, depth: usize) -> Value {
        self.schemas += 1;
        if self.schemas > MAX_SCHEMAS {
            return shorten_note("the schema", &schema.as_object().map(types_of).unwrap_or_default());
        }
        let entered = self.references.len();
        let map = match schema {
            Value::Object(map) => map.clone(),
            Value::Bool(false) => return json!({"description": "Leave this out."}),
            Value::Null | Value::Bool(true) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
        };
        if depth > self.depth {
            return shorten_note("the schema", &types_of(&map));
        }
        let converted = match self.flatten(map, 0) {
            FlatSchema::Cut { name, types } => {
                shorten_note(&name, &types.iter().map(String::as_str).collect::<Vec<_>>())
            }
            FlatSchema::Map(map, mut notes) => {
                let (mut converted, rules) = self.convert_flat(map, depth);
                notes.extend(rules);
                match first_alternative(&mut converted) {
                    Some(first) => add_notes(first, &notes),
                    None => add_notes(&mut converted, &notes),
                }
                Value::Object(converted)
            }
        };
        self.references.truncate(entered);
        converted
    }

    /// Replaces references by their targets and merges `allOf`. Returns the resulting schema, with a note for each part
    /// that it cannot express. Returns `Cut` where the conversion stops: at a reference that contains itself more often
    /// than `levels` allows, or that is nested deeper than `depth`.
    fn flatten(&mut self, mut map: Map<String, Value>, nesting: usize) -> FlatSchema {
        let (mut notes, mut conflicts) = (Vec::new(), Vec::new());
        for key in ["$ref", "$dynamicRef"] {
            let Some(reference) = map.shift_remove(key) else { continue };
            let Some(name) = reference.as_str() else { continue };
            let Some(target) = resolve_pointer(self.original, name) else {
                notes.push(format!("{key} {reference}"));
                continue;
            };
            let target = target.as_object().cloned().unwrap_or_default();
            let seen = self.references.iter().filter(|before| *before == name).count();
            if seen >= self.levels || nesting > self.depth {
                let types = types_of(&target).into_iter().map(str::to_owned).collect();
                let name = name.rsplit('/').next().unwrap_or(name).to_owned();
                return FlatSchema::Cut { name, types };
            }
            self.references.push(name.to_owned());
            match self.flatten(target, nesting + 1) {
                FlatSchema::Map(mut target, more) => {
                    notes.extend(more);
                    merge_all(&mut target, map, &mut conflicts);
                    map = target;
                }
                cut @ FlatSchema::Cut { .. } => return cut,
            }
        }
        if let Some(Value::Array(all)) = map.shift_remove("allOf") {
            for member in all {
                let Value::Object(member) = member else { continue };
                match self.flatten(member, nesting + 1) {
                    FlatSchema::Map(mut member, more) => {
                        notes.extend(more);
                        if map.contains_key("description") {
                            member.shift_remove("description");
                        }
                        notes.extend(closing_rule(&map, &member));
                        merge_all(&mut map, member, &mut conflicts);
                    }
                    FlatSchema::Cut { name, .. } => notes.push(format!("also a `{name}` as above")),
                }
            }
        }
        let conflicts = conflicts.iter().filter_map(Value::as_object).flatten();
        notes.extend(conflicts.map(|(key, value)| format!("{key} {value}")));
        FlatSchema::Map(map, notes)
    }

    /// Converts a schema whose own references are resolved. The result contains only the keywords that the API
    /// documents. Also returns the rules of the schema that the result cannot express.
    fn convert_flat(&mut self, mut map: Map<String, Value>, depth: usize) -> (Map<String, Value>, Vec<String>) {
        if let Some(key) = ["anyOf", "oneOf"].into_iter().find(|key| map.get(*key).is_some_and(Value::is_array))
            && let Some(Value::Array(any)) = map.shift_remove(key)
        {
            let base = map.clone();
            let (converted, mut rules) = self.convert_any(base, &any, depth);
            if key == "oneOf" && !are_disjoint(&any) {
                rules.push(EXACTLY_ONE.to_owned());
            }
            return (converted, rules);
        }
        let values = match map.shift_remove("const") {
            Some(value) => Some(vec![value]),
            None => map.get("enum").and_then(Value::as_array).cloned(),
        };
        if let Some(values) = values {
            return convert_enum(&map, &values);
        }
        let types: Vec<String> = infer_types(&map).into_iter().map(str::to_owned).collect();
        let plain: Vec<&String> = types.iter().filter(|name| *name != "null").collect();
        if let [_, _, ..] = plain.as_slice() {
            let any: Vec<Value> = types.iter().map(|name| json!({ "type": name })).collect();
            map.shift_remove("type");
            return self.convert_any(map, &any, depth);
        }
        self.convert_typed(map, &types, depth)
    }

    /// Converts a schema with the alternatives `any` (`anyOf`). `base` is the rest of the schema; its constraints apply
    /// to each alternative. Also returns the rules that the result cannot express.
    fn convert_any(
        &mut self,
        mut base: Map<String, Value>,
        any: &[Value],
        depth: usize,
    ) -> (Map<String, Value>, Vec<String>) {
        let annotations = ["title", "description", "default", "examples"].map(|key| (key, base.shift_remove(key)));
        let mut nullable = false;
        let mut branches: Vec<Value> = Vec::new();
        for branch in any {
            let mut merged = base.clone();
            let mut conflicts = Vec::new();
            merge_all(&mut merged, branch.as_object().cloned().unwrap_or_default(), &mut conflicts);
            if !conflicts.is_empty() {
                let all = merged.entry("allOf".to_owned()).or_insert_with(|| json!([]));
                if let Some(all) = all.as_array_mut() {
                    all.append(&mut conflicts);
                }
            }
            match self.convert(&Value::Object(merged), depth + 1) {
                Value::Object(map) if types_of(&map) == ["null"] && map.len() == 1 => nullable = true,
                Value::Object(mut map) => match map.shift_remove("anyOf") {
                    // Nested alternatives become alternatives of the outer schema.
                    Some(Value::Array(inner)) if map.is_empty() => branches.extend(inner),
                    Some(inner) => {
                        map.insert("anyOf".to_owned(), inner);
                        branches.push(Value::Object(map));
                    }
                    None => branches.push(Value::Object(map)),
                },
                other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                    branches.push(other);
                }
            }
        }
        branches.dedup();
        let mut outer = Map::new();
        let mut notes = Vec::new();
        for (key, value) in annotations {
            match (key, value) {
                (_, None) => {}
                ("title" | "description", Some(value)) => {
                    outer.insert(key.to_owned(), value);
                }
                (key, Some(value)) => notes.push(format!("{key} {value}")),
            }
        }
        let mut result = match branches.as_slice() {
            [] => json!({"type": "null"}),
            [only] => only.clone(),
            several => merge_enums(several).unwrap_or_else(|| json!({ "anyOf": several })),
        };
        if nullable {
            result = or_null(result);
        }
        let mut result = if let Value::Object(map) = result { map } else { Map::new() };
        match first_alternative(&mut result) {
            Some(first) => describe_alternative(first, outer),
            None => describe_alternative(&mut result, outer),
        }
        (result, notes)
    }

    fn convert_typed(
        &mut self,
        mut map: Map<String, Value>,
        types: &[String],
        depth: usize,
    ) -> (Map<String, Value>, Vec<String>) {
        let mut converted = Map::new();
        let mut notes = Vec::new();
        match types {
            [] => {}
            [only] => {
                converted.insert("type".to_owned(), only.as_str().into());
            }
            several => {
                converted.insert("type".to_owned(), json!(several));
            }
        }
        let is = |name: &str| types.iter().any(|t| t == name);
        for key in COPIED_KEYWORDS {
            if let Some(value) = map.get(key) {
                converted.insert(key.to_owned(), value.clone());
            }
        }
        if let Some(format) = map.get("format").and_then(Value::as_str) {
            if is("string") && FORMATS.contains(&format) {
                converted.insert("format".to_owned(), format.into());
            } else {
                notes.push(format!("format {}", json!(format)));
            }
        }
        if is("object") {
            self.convert_object(&mut map, &mut converted, &mut notes, depth);
        }
        if is("array") {
            bound_tuple(&mut map);
            if let Some(most) = map.get("maxItems") {
                converted.insert("maxItems".to_owned(), most.clone());
            }
            let items = map.get("items").cloned().unwrap_or_else(|| json!({}));
            converted.insert("items".to_owned(), self.convert(&items, depth + 1));
            if let Some(tuple) = map.get("prefixItems").and_then(Value::as_array) {
                let tuple: Vec<Value> = tuple.iter().map(|item| self.convert(item, depth + 1)).collect();
                converted.insert("prefixItems".to_owned(), Value::Array(tuple));
            }
        }
        for key in DESCRIBED_KEYWORDS {
            if let Some(value) = map.get(key) {
                notes.push(format!("{key} {value}"));
            }
        }
        (converted, notes)
    }

    fn convert_object(
        &mut self,
        map: &mut Map<String, Value>,
        converted: &mut Map<String, Value>,
        notes: &mut Vec<String>,
        depth: usize,
    ) {
        notes.extend(remove_unnameable_properties(map));
        let mut properties = Map::new();
        for (name, schema) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
            properties.insert(name.clone(), self.convert(schema, depth + 1));
        }
        let required: Vec<Value> = map.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        let (required, unnameable): (Vec<Value>, Vec<Value>) =
            required.into_iter().partition(|name| name.as_str().is_none_or(is_wire_name));
        notes.extend(unnameable.iter().map(|name| format!("the property {name} is required")));
        for name in required.iter().filter_map(Value::as_str) {
            // The API refuses a required property that is not declared.
            properties.entry(name).or_insert_with(|| json!({}));
        }
        if depth == 0 || !properties.is_empty() {
            converted.insert("properties".to_owned(), Value::Object(properties));
        }
        if !required.is_empty() {
            converted.insert("required".to_owned(), Value::Array(required));
        }
        let has_patterns = map.contains_key("patternProperties");
        match map.get("additionalProperties").cloned() {
            // Names that a pattern declares are no additional properties.
            Some(rest) if has_patterns && rest != Value::Bool(true) => {
                notes.push(format!("additionalProperties {rest}"));
            }
            Some(rest @ Value::Object(_)) => {
                converted.insert("additionalProperties".to_owned(), self.convert(&rest, depth + 1));
            }
            Some(Value::Bool(rest)) => {
                converted.insert("additionalProperties".to_owned(), rest.into());
            }
            Some(_) | None => {}
        }
    }
}

/// Returns the types that `type` names; without `type`, the type that the other keywords imply; empty if they imply
/// none.
fn infer_types(map: &Map<String, Value>) -> Vec<&str> {
    let named = types_of(map);
    let has = |keys: &[&str]| keys.iter().any(|key| map.contains_key(*key));
    if !named.is_empty() {
        named
    } else if has(&["properties", "additionalProperties", "patternProperties", "required", "propertyNames"]) {
        vec!["object"]
    } else if has(&["items", "prefixItems", "contains", "uniqueItems", "minItems", "maxItems"]) {
        vec!["array"]
    } else if has(&["pattern", "minLength", "maxLength"]) {
        vec!["string"]
    } else if has(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]) {
        vec!["number"]
    } else {
        Vec::new()
    }
}

/// Converts an `enum`. The API documents only text and numbers in an `enum`, so of other values the result contains
/// only the types. Also returns the rules that the result cannot express, such as the list of those values.
fn convert_enum(map: &Map<String, Value>, values: &[Value]) -> (Map<String, Value>, Vec<String>) {
    let named = types_of(map);
    let allowed = |value: &&Value| named.is_empty() || named.iter().any(|name| is_of_type(value, name));
    let values: Vec<&Value> = values.iter().filter(allowed).collect();
    let listed =
        |kind: &str| -> Vec<&Value> { values.iter().copied().filter(|value| type_of(value) == kind).collect() };
    let mut notes = Vec::new();
    let mut branches: Vec<Value> = Vec::new();
    for kind in ["string", "integer", "number"] {
        let values = listed(kind);
        if !values.is_empty() {
            branches.push(json!({"type": kind, "enum": values}));
        }
    }
    for kind in ["boolean", "object", "array"] {
        let values = listed(kind);
        match (kind, values.len()) {
            (_, 0) => continue,
            ("boolean", 2) => {}
            (_, _) => notes.push(format!("one of {}", json!(values))),
        }
        branches.push(if kind == "array" { json!({"type": kind, "items": {}}) } else { json!({ "type": kind }) });
    }
    let mut converted = match branches.as_slice() {
        [] => json!({"type": "null"}),
        [only] => only.clone(),
        several => json!({ "anyOf": several }),
    };
    if !listed("null").is_empty() && !branches.is_empty() {
        converted = or_null(converted);
    }
    let mut converted = if let Value::Object(converted) = converted { converted } else { Map::new() };
    let mut outer = Map::new();
    for key in ["title", "description"] {
        outer.extend(map.get(key).map(|value| (key.to_owned(), value.clone())));
    }
    // Other constraints can only exclude some of the values.
    for (key, value) in map.iter().filter(|(key, _)| DESCRIBED_KEYWORDS.contains(&key.as_str())) {
        notes.push(format!("{key} {value}"));
    }
    match first_alternative(&mut converted) {
        Some(first) => describe_alternative(first, outer),
        None => describe_alternative(&mut converted, outer),
    }
    (converted, notes)
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() || number.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_of_type(value: &Value, name: &str) -> bool {
    let whole = value.as_f64().is_some_and(|n| n.fract() == 0.0);
    type_of(value) == name || (name == "number" && value.is_number()) || (name == "integer" && whole)
}

/// Merges alternatives into one `enum`. `None` unless every alternative consists of an `enum` and a `type`, and all
/// have the same type.
fn merge_enums(branches: &[Value]) -> Option<Value> {
    let kind = branches.first()?.get("type")?;
    let mut values: Vec<Value> = Vec::new();
    for branch in branches {
        let map = branch.as_object().filter(|map| map.len() == 2 && map.get("type") == Some(kind))?;
        for value in map.get("enum")?.as_array()? {
            if !values.contains(value) {
                values.push(value.clone());
            }
        }
    }
    Some(json!({"type": kind, "enum": values}))
}

/// Returns a schema that accepts null and every value that `schema` accepts.
fn or_null(schema: Value) -> Value {
    let Value::Object(mut map) = schema else { return schema };
    if let Some(Value::Array(any)) = map.get_mut("anyOf") {
        any.push(json!({"type": "null"}));
        return Value::Object(map);
    }
    if map.contains_key("enum") {
        return json!({"anyOf": [Value::Object(map), {"type": "null"}]});
    }
    let types: Vec<Value> = types_of(&map).into_iter().map(Value::from).collect();
    if !types.is_empty() && !types.contains(&json!("null")) {
        let types: Vec<Value> = types.into_iter().chain([json!("null")]).collect();
        map.insert("type".to_owned(), Value::Array(types));
    }
    Value::Object(map)
}

/// Returns the first alternative in `anyOf`, to which callers add the annotations of the whole schema. `None` for a
/// schema without alternatives.
fn first_alternative(map: &mut Map<String, Value>) -> Option<&mut Map<String, Value>> {
    map.get_mut("anyOf")?.as_array_mut()?.first_mut()?.as_object_mut()
}

/// Adds `outer`, the annotations of a whole schema, to `map`, one of its alternatives. The description of the whole
/// schema precedes the description of the alternative. All other annotations of the whole schema replace those of the
/// alternative.
fn describe_alternative(map: &mut Map<String, Value>, outer: Map<String, Value>) {
    for (key, value) in outer {
        let both = match (key.as_str(), value.as_str(), map.get(&key).and_then(Value::as_str)) {
            ("description", Some(outer), Some(inner)) if outer != inner => {
                Cow::Owned(Value::String(format!("{outer}\n{inner}")))
            }
            _ => Cow::Borrowed(&value),
        };
        map.insert(key, both.into_owned());
    }
}

/// Returns the schema that replaces a schema at which the conversion stops: at a recursion, at the maximum depth or at
/// the maximum number of schemas. The replacement has only the type, if there is exactly one, and a description. The
/// description refers the model to the schema `name` at an outer level, which has the same form.
fn shorten_note(name: &str, types: &[&str]) -> Value {
    let description = format!("Continues like `{name}` above.");
    let mut map = Map::new();
    if let [only] = types {
        map.insert("type".to_owned(), json!(only));
    }
    if types == ["array"] {
        map.insert("items".to_owned(), json!({}));
    }
    map.insert("description".to_owned(), description.into());
    Value::Object(map)
}
