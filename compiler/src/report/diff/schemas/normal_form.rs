//! The normal form of a JSON Schema, in which notations with the same meaning are equal.

use std::collections::BTreeSet;

use serde_json::{Map, Number, Value};

use super::{EXACT, MAX_STEPS, has_type, is_kind, type_name, type_of_keyword, types_of};
use crate::tool_spec::resolve_pointer;

/// Maximum depth of a schema with its references resolved.
const MAX_DEPTH: u32 = 200;

/// Keywords that describe values without restricting them.
const ANNOTATIONS: [&str; 9] =
    ["title", "description", "default", "examples", "$comment", "$schema", "deprecated", "readOnly", "writeOnly"];

/// Keywords whose effect depends on schemas outside the schema that contains them. Schemas with these keywords are only
/// compared for equality.
const DYNAMIC: [&str; 7] = [
    "$id",
    "$anchor",
    "$dynamicAnchor",
    "$dynamicRef",
    "$recursiveAnchor",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Returns a schema in normal form: without annotations, with resolved references, and with one notation for each
/// meaning. `None` if the schema has a keyword of [`DYNAMIC`] or is too large.
pub(super) fn normal_form(schema: &Value) -> Option<Value> {
    if has_dynamic_keyword(schema) {
        return None;
    }
    let mut form = NormalForm { root: schema, open: Vec::new(), depth: 0, steps: MAX_STEPS };
    form.of(schema)
}

fn has_dynamic_keyword(value: &Value) -> bool {
    match value {
        Value::Object(map) => {
            map.keys().any(|key| DYNAMIC.contains(&key.as_str())) || map.values().any(has_dynamic_keyword)
        }
        Value::Array(list) => list.iter().any(has_dynamic_keyword),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

struct NormalForm<'s> {
    root: &'s Value,
    /// The references (`$ref`) that are being resolved, to recognize a reference that contains itself.
    open: Vec<String>,
    depth: u32,
    steps: u32,
}

impl NormalForm<'_> {
    fn of(&mut self, schema: &Value) -> Option<Value> {
        self.steps = self.steps.checked_sub(1)?;
        self.depth = Some(self.depth + 1).filter(|depth| *depth <= MAX_DEPTH)?;
        let found = self.of_level(schema);
        self.depth -= 1;
        found
    }

    fn of_level(&mut self, schema: &Value) -> Option<Value> {
        let map = match schema {
            Value::Bool(true) => return Some(anything()),
            Value::Object(map) => map,
            Value::Null | Value::Bool(false) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Some(schema.clone());
            }
        };
        let mut found = Map::new();
        let mut parts: Vec<Value> = Vec::new();
        for (key, value) in map {
            match key.as_str() {
                "$defs" | "definitions" => {}
                name if ANNOTATIONS.contains(&name) => {}
                "$ref" => parts.push(self.of_reference(value)?),
                "allOf" => parts.extend(self.of_list(value)?),
                "anyOf" | "oneOf" | "prefixItems" => {
                    found.insert(key.clone(), Value::Array(self.of_list(value)?));
                }
                "properties" | "patternProperties" | "dependentSchemas" => {
                    found.insert(key.clone(), self.of_map(value)?);
                }
                "items" | "additionalProperties" | "contains" | "propertyNames" | "not" | "if" | "then" | "else" => {
                    found.insert(key.clone(), self.of(value)?);
                }
                "const" if map.contains_key("enum") => parts.push(values_of(std::slice::from_ref(value))),
                "const" => {
                    found.insert("enum".to_owned(), distinct(std::slice::from_ref(value)));
                }
                "enum" | "required" => {
                    found.insert(key.clone(), distinct(value.as_array()?));
                }
                "type" => {
                    found.insert(key.clone(), type_list(value));
                }
                _ => {
                    found.insert(key.clone(), number_form(value));
                }
            }
        }
        simplify(&mut found);
        parts.retain(|part| *part != anything());
        Some(all_of(found, parts))
    }

    fn of_list(&mut self, value: &Value) -> Option<Vec<Value>> {
        value.as_array()?.iter().map(|schema| self.of(schema)).collect()
    }

    fn of_map(&mut self, value: &Value) -> Option<Value> {
        let mut found = Map::new();
        for (name, schema) in value.as_object()? {
            found.insert(name.clone(), self.of(schema)?);
        }
        Some(Value::Object(found))
    }

    /// Returns the normal form of the schema that a reference names; `None` if there is no such schema. A recursive
    /// reference (a reference inside the schema that it names) is not replaced by the schema. It is returned with the
    /// whole root schema as its definitions, so that it equals only the same reference with an equal root schema.
    fn of_reference(&mut self, value: &Value) -> Option<Value> {
        let reference = value.as_str()?.to_owned();
        let target = resolve_pointer(self.root, &reference)?;
        if self.open.contains(&reference) {
            let entries = [("$ref".to_owned(), value.clone()), ("$defs".to_owned(), self.root.clone())];
            return Some(Value::Object(entries.into_iter().collect()));
        }
        self.open.push(reference);
        let found = self.of(target);
        self.open.pop();
        found
    }
}

pub(super) fn anything() -> Value {
    Value::Object(Map::new())
}

fn values_of(values: &[Value]) -> Value {
    Value::Object([("enum".to_owned(), distinct(values))].into_iter().collect())
}

/// Returns the schema of the values that meet both `keywords` and every schema in `parts`.
fn all_of(keywords: Map<String, Value>, mut parts: Vec<Value>) -> Value {
    if parts.is_empty() {
        return Value::Object(keywords);
    }
    if !keywords.is_empty() {
        parts.push(Value::Object(keywords));
    }
    match (parts.pop(), parts.is_empty()) {
        (Some(only), true) => only,
        (last, _) => {
            parts.extend(last);
            Value::Object([("allOf".to_owned(), distinct(&parts))].into_iter().collect())
        }
    }
}

/// Returns the values without repeats, sorted by their JSON text. Numbers of equal value, such as `1` and `1.0`, count
/// as repeats.
fn distinct(values: &[Value]) -> Value {
    let mut found: Vec<Value> = values.iter().map(number_form).collect();
    found.sort_by_cached_key(Value::to_string);
    found.dedup();
    Value::Array(found)
}

/// Returns a value in which whole numbers are integers: `1.0` becomes `1`.
fn number_form(value: &Value) -> Value {
    match value {
        Value::Number(number) => {
            let float = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT);
            #[expect(clippy::cast_possible_truncation, reason = "a whole number below 2^53")]
            float.map_or_else(|| value.clone(), |float| Value::Number(Number::from(float as i64)))
        }
        Value::Array(list) => Value::Array(list.iter().map(number_form).collect()),
        Value::Object(map) => Value::Object(map.iter().map(|(key, one)| (key.clone(), number_form(one))).collect()),
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

fn type_list(value: &Value) -> Value {
    let names: Vec<Value> = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
    let has_number = names.iter().any(|name| name == "number");
    distinct(&names.into_iter().filter(|name| !(has_number && name == "integer")).collect::<Vec<_>>())
}

/// Removes keywords without an effect, and rewrites keywords with a simpler equivalent.
fn simplify(map: &mut Map<String, Value>) {
    for bound in ["minLength", "minItems", "minProperties"] {
        remove_if(map, bound, |value| value.as_u64() == Some(0));
    }
    remove_if(map, "uniqueItems", |value| *value == Value::Bool(false));
    remove_if(map, "required", |value| value.as_array().is_some_and(Vec::is_empty));
    for schema in ["additionalProperties", "items", "propertyNames"] {
        remove_if(map, schema, |value| *value == anything());
    }
    remove_if(map, "patternProperties", |value| value.as_object().is_some_and(Map::is_empty));
    if !map.contains_key("additionalProperties") && !map.contains_key("patternProperties") {
        if let Some(Value::Object(properties)) = map.get_mut("properties") {
            properties.retain(|_, schema| *schema != anything());
        }
        remove_if(map, "properties", |value| value.as_object().is_some_and(Map::is_empty));
    }
    if map.get("type").is_some_and(|types| *types == Value::Array(vec!["integer".into()])) {
        for (exclusive, bound, step) in [("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)] {
            let whole = map.get(exclusive).and_then(Value::as_i64).and_then(|limit| limit.checked_add(step));
            if let Some(limit) = whole.filter(|_| !map.contains_key(bound)) {
                map.shift_remove(exclusive);
                map.insert(bound.to_owned(), limit.into());
            }
        }
    }
    if let Some(own) = map.get("type").and_then(Value::as_array).cloned() {
        let applies = |key: &str| type_of_keyword(key).is_none_or(|kind| own.iter().any(|name| is_kind(name, kind)));
        map.retain(|key, _| applies(key));
    }
    simplify_choices(map);
    if let (Some(Value::Array(values)), Some(own)) = (map.get("enum"), map.get("type").cloned()) {
        let values: Vec<Value> = values.iter().filter(|value| has_type(value, &own)).cloned().collect();
        map.shift_remove("type");
        map.insert("enum".to_owned(), Value::Array(values));
    }
}

/// Rewrites `oneOf` as `anyOf` where no value meets two branches, and `anyOf` of values as `enum`.
fn simplify_choices(map: &mut Map<String, Value>) {
    if !map.contains_key("anyOf")
        && let Some(Value::Array(branches)) = map.get("oneOf")
        && are_disjoint(branches)
        && let Some(branches) = map.shift_remove("oneOf")
    {
        map.insert("anyOf".to_owned(), branches);
    }
    remove_if(map, "anyOf", |branches| branches.as_array().is_some_and(|all| all.contains(&anything())));
    let Some(Value::Array(branches)) = map.get("anyOf") else { return };
    let values: Option<Vec<&Vec<Value>>> = branches.iter().map(only_values).collect();
    if let Some(values) = values
        && !map.contains_key("enum")
    {
        let values: Vec<Value> = values.into_iter().flatten().cloned().collect();
        map.shift_remove("anyOf");
        map.insert("enum".to_owned(), distinct(&values));
    } else {
        let branches = distinct(branches);
        map.insert("anyOf".to_owned(), branches);
    }
}

fn remove_if(map: &mut Map<String, Value>, key: &str, is_idle: impl Fn(&Value) -> bool) {
    if map.get(key).is_some_and(is_idle) {
        map.shift_remove(key);
    }
}

/// Returns the list of values if `enum` is the only keyword of the schema; otherwise `None`.
fn only_values(schema: &Value) -> Option<&Vec<Value>> {
    let map = schema.as_object().filter(|map| map.len() == 1)?;
    map.get("enum")?.as_array()
}

/// Returns true if the types and `enum` lists of the branches prove that no value can meet two branches.
fn are_disjoint(branches: &[Value]) -> bool {
    let mut types = BTreeSet::new();
    let mut values = BTreeSet::new();
    branches.iter().all(|branch| {
        let own = types_of(branch);
        if let Some(list) = only_values(branch) {
            return list.iter().all(|value| !types.contains(type_name(value)) && values.insert(value.to_string()));
        }
        let is_new = own.iter().all(|name| !types.contains(name));
        types.extend(own);
        is_new && values.is_empty()
    })
}
