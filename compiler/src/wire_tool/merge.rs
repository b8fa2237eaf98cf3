//! Combination of schemas: all of them apply (`allOf`), or any of them (`anyOf`).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::types_of;

/// The rule in the description of a schema whose `oneOf` is sent as `anyOf`.
pub(super) const EXACTLY_ONE: &str = "oneOf: exactly one of the alternatives";

/// Adds the constraints of `other` to `map`, so that a value has to match both. Annotations of `other` replace those of
/// `map`. Constraints that cannot be combined are added to `conflicts`.
pub(super) fn merge_all(map: &mut Map<String, Value>, mut other: Map<String, Value>, conflicts: &mut Vec<Value>) {
    let differ = |key: &&str| map.get(*key).zip(other.get(*key)).is_some_and(|(one, other)| one != other);
    if ["unevaluatedProperties", "unevaluatedItems"].iter().any(differ) {
        // These keywords depend on all other keywords of their schema, so the two schemas cannot be merged.
        conflicts.push(Value::Object(other));
        return;
    }
    conflicts.extend(split_groups(map, &mut other));
    for (key, value) in other {
        let Some(before) = map.get(&key).cloned() else {
            map.insert(key, value);
            continue;
        };
        if before == value {
            continue;
        }
        let merged = match key.as_str() {
            "title" | "description" | "default" | "examples" | "$comment" | "$id" | "$anchor" => Some(value.clone()),
            "properties" | "patternProperties" | "$defs" | "definitions" => merge_maps(&before, &value),
            "required" => Some(union(&before, &value)),
            "enum" => intersection(&before, &value),
            "type" => intersect_types(map, &value),
            "items" | "additionalProperties" | "propertyNames" => Some(merge_schemas(&before, &value)),
            "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties" => {
                Some(if number(&value) > number(&before) { value.clone() } else { before.clone() })
            }
            "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties" => {
                Some(if number(&value) < number(&before) { value.clone() } else { before.clone() })
            }
            "uniqueItems" | "deprecated" | "readOnly" | "writeOnly" => {
                Some(json!(before == Value::Bool(true) || value == Value::Bool(true)))
            }
            _ => None,
        };
        match merged {
            Some(merged) => {
                map.insert(key, merged);
            }
            None => conflicts.push(json!({ key: value })),
        }
    }
}

/// Returns a rule that is lost if the properties of `map` and of a member of its `allOf` are merged; `None` if no rule
/// is lost.
///
/// A rule is lost if one of the two schemas restricts undeclared properties (`additionalProperties`) and does not
/// declare a property of the other schema: the merged schema then does not restrict this property.
pub(super) fn closing_rule(map: &Map<String, Value>, member: &Map<String, Value>) -> Option<String> {
    let names = |map: &Map<String, Value>| -> BTreeSet<String> {
        map.get("properties").and_then(Value::as_object).into_iter().flatten().map(|(name, _)| name.clone()).collect()
    };
    let is_closed =
        |map: &Map<String, Value>| !matches!(map.get("additionalProperties"), None | Some(Value::Bool(true)));
    let (own, others) = (names(map), names(member));
    let leaves_out = |closed: &Map<String, Value>, declared: &BTreeSet<String>, names: &BTreeSet<String>| {
        is_closed(closed) && !names.is_subset(declared)
    };
    if leaves_out(member, &others, &own) {
        return Some(format!("allOf {}", json!([member])));
    }
    leaves_out(map, &own, &others).then(|| {
        format!(
            "additionalProperties {} beside the properties {}",
            map.get("additionalProperties").unwrap_or(&Value::Null),
            json!(own)
        )
    })
}

/// Groups of keywords that depend on each other.
const KEYWORD_GROUPS: [&[&str]; 3] =
    [&["if", "then", "else"], &["contains", "minContains", "maxContains"], &["prefixItems", "items"]];

/// Removes from `other` each group of keywords of which `map` also contains a keyword. Returns the removed groups. The
/// keywords of a group depend on each other, so the keywords of `other` would change their meaning beside those of
/// `map`. A group that is equal in both schemas stays. `items` stays if neither schema has `prefixItems`.
fn split_groups(map: &Map<String, Value>, other: &mut Map<String, Value>) -> Vec<Value> {
    let mut split = Vec::new();
    for group in KEYWORD_GROUPS {
        let has_any = |map: &Map<String, Value>| group.iter().any(|key| map.contains_key(*key));
        let is_same = group.iter().all(|key| map.get(*key) == other.get(*key));
        let is_list =
            group.contains(&"items") && !map.contains_key("prefixItems") && !other.contains_key("prefixItems");
        if is_same || is_list || !has_any(map) || !has_any(other) {
            continue;
        }
        let keywords = group.iter().filter_map(|key| Some(((*key).to_owned(), other.shift_remove(*key)?)));
        split.push(Value::Object(keywords.collect()));
    }
    split
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_default()
}

/// Merges two schemas; constraints that cannot be combined remain in `allOf`.
fn merge_schemas(one: &Value, other: &Value) -> Value {
    match (one, other) {
        (Value::Bool(false), _) | (_, Value::Bool(false)) => Value::Bool(false),
        (Value::Object(one), Value::Object(other)) => {
            let (mut map, mut conflicts) = (one.clone(), Vec::new());
            merge_all(&mut map, other.clone(), &mut conflicts);
            if !conflicts.is_empty() {
                match map.get_mut("allOf").and_then(Value::as_array_mut) {
                    Some(all) => all.append(&mut conflicts),
                    None => {
                        map.insert("allOf".to_owned(), Value::Array(conflicts));
                    }
                }
            }
            Value::Object(map)
        }
        (Value::Object(_), _) => one.clone(),
        (_, _) => other.clone(),
    }
}

fn merge_maps(one: &Value, other: &Value) -> Option<Value> {
    let (mut map, other) = (one.as_object()?.clone(), other.as_object()?);
    for (name, schema) in other {
        let merged = map.get(name).map_or_else(|| schema.clone(), |before| merge_schemas(before, schema));
        map.insert(name.clone(), merged);
    }
    Some(Value::Object(map))
}

fn union(one: &Value, other: &Value) -> Value {
    let mut all: Vec<Value> = Vec::new();
    for value in [one, other].into_iter().filter_map(Value::as_array).flatten() {
        if !all.contains(value) {
            all.push(value.clone());
        }
    }
    Value::Array(all)
}

/// Returns the elements that both arrays contain, as an array; `None` if there are none, or if a value is not an array.
fn intersection(one: &Value, other: &Value) -> Option<Value> {
    let (one, other) = (one.as_array()?, other.as_array()?);
    let is_equal = |one: &Value, other: &Value| one == other || (one.is_number() && one.as_f64() == other.as_f64());
    let common: Vec<Value> =
        one.iter().filter(|value| other.iter().any(|other| is_equal(value, other))).cloned().collect();
    (!common.is_empty()).then_some(Value::Array(common))
}

fn intersect_types(map: &Map<String, Value>, other: &Value) -> Option<Value> {
    let one = types_of(map);
    let holder = Map::from_iter([("type".to_owned(), other.clone())]);
    let other = types_of(&holder);
    let allows = |types: &[&str], name: &str| types.contains(&name) || (name == "integer" && types.contains(&"number"));
    let mut common: Vec<&str> = one.iter().copied().filter(|name| allows(&other, name)).collect();
    common.extend(other.iter().copied().filter(|name| allows(&one, name) && !one.contains(name)));
    match common.as_slice() {
        [] => None,
        [only] => Some(json!(only)),
        several => Some(json!(several)),
    }
}

/// Combines object schemas (the branches) to one schema that accepts every value that at least one branch accepts.
///
/// The combined schema of a property accepts every value that the property's schema in any branch accepts. For a branch
/// that does not declare the property, this schema is its `additionalProperties`; a branch without this keyword accepts
/// every value. A property is required only if all branches require it.
pub(super) fn merge_any(branches: &[Map<String, Value>]) -> Map<String, Value> {
    let mut properties: Map<String, Value> = Map::new();
    for (index, branch) in branches.iter().enumerate() {
        for (name, schema) in branch.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let others = || branches.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, other)| other);
            let merged = if others().any(|other| allows_any_value(other, name)) {
                without_constraints(schema)
            } else {
                let rest = others()
                    .filter_map(|other| undeclared_schema(other, name))
                    .fold(schema.clone(), |all, rest| either(&all, rest));
                match properties.get(name) {
                    Some(before) => either(before, &rest),
                    None => rest,
                }
            };
            // If two branches declare an unconstrained property, the first description is used.
            if properties.get(name).is_none_or(|before| *before != without_constraints(before)) {
                properties.insert(name.clone(), merged);
            }
        }
    }
    let required = |branch: &Map<String, Value>| -> BTreeSet<String> {
        let names = branch.get("required").and_then(Value::as_array).into_iter().flatten();
        names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
    };
    let common = branches.iter().map(required).reduce(|all, more| all.intersection(&more).cloned().collect());
    let mut merged = Map::new();
    if !properties.is_empty() {
        merged.insert("properties".to_owned(), Value::Object(properties));
    }
    if let Some(common) = common.filter(|common| !common.is_empty()) {
        merged.insert("required".to_owned(), json!(common));
    }
    let closed = |branch: &Map<String, Value>| {
        branch.get("additionalProperties") == Some(&Value::Bool(false)) && !has_patterns(branch)
    };
    if !branches.is_empty() && branches.iter().all(closed) {
        merged.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    merged
}

/// Returns true if an object schema does not declare the property `name`, and may allow every value for the property. A
/// schema with `patternProperties` counts as one that may allow every value, because its patterns are not matched here.
fn allows_any_value(branch: &Map<String, Value>, name: &str) -> bool {
    let is_declared = branch.get("properties").is_some_and(|properties| properties.get(name).is_some());
    let is_open = matches!(branch.get("additionalProperties"), None | Some(Value::Bool(true)));
    !is_declared && (is_open || has_patterns(branch))
}

fn has_patterns(branch: &Map<String, Value>) -> bool {
    branch.get("patternProperties").and_then(Value::as_object).is_some_and(|map| !map.is_empty())
}

/// Returns the schema that an object schema has for the property `name` in `additionalProperties`. `None` if the object
/// schema declares the property in `properties`, or if its `additionalProperties` is not a schema.
fn undeclared_schema<'s>(branch: &'s Map<String, Value>, name: &str) -> Option<&'s Value> {
    let is_declared = branch.get("properties").is_some_and(|properties| properties.get(name).is_some());
    branch.get("additionalProperties").filter(|rest| !is_declared && rest.is_object())
}

/// Returns a schema that matches every value, with the title and the description of `schema`.
pub(super) fn without_constraints(schema: &Value) -> Value {
    let annotations =
        schema.as_object().into_iter().flatten().filter(|(key, _)| matches!(key.as_str(), "title" | "description"));
    Value::Object(annotations.map(|(key, value)| (key.clone(), value.clone())).collect())
}

/// Returns a schema that matches every value that either of the two schemas matches.
fn either(one: &Value, other: &Value) -> Value {
    if one == other {
        return one.clone();
    }
    if let (Some(values), Some(more)) = (choices(one), choices(other)) {
        return json!({"enum": union(&values, &more)});
    }
    let mut schemas: Vec<Value> = match one.as_object() {
        Some(map) if map.len() == 1 => map.get("anyOf").and_then(Value::as_array).cloned(),
        Some(_) | None => None,
    }
    .unwrap_or_else(|| vec![one.clone()]);
    if !schemas.contains(other) {
        schemas.push(other.clone());
    }
    json!({ "anyOf": schemas })
}

/// Returns the values that `enum` or `const` allows, as an array. `None` if the schema has neither of these keywords,
/// or has other keywords besides `type` and `title`.
fn choices(schema: &Value) -> Option<Value> {
    let map = schema.as_object()?;
    if !map.keys().all(|key| matches!(key.as_str(), "type" | "const" | "enum" | "title")) {
        return None;
    }
    map.get("const").map(|value| json!([value])).or_else(|| map.get("enum").cloned())
}

/// Returns true if no value can match two of the alternatives. Recognizes alternatives without a common type, with
/// different constants, or with a required property that has a different constant in each.
pub(super) fn are_disjoint(alternatives: &[Value]) -> bool {
    let pairwise = |differ: &dyn Fn(&Value, &Value) -> bool| {
        alternatives
            .iter()
            .enumerate()
            .all(|(index, one)| alternatives.iter().skip(index + 1).all(|other| differ(one, other)))
    };
    let types = |schema: &Value| -> Vec<String> {
        let map = schema.as_object().cloned().unwrap_or_default();
        types_of(&map).into_iter().map(|name| if name == "integer" { "number" } else { name }.to_owned()).collect()
    };
    let types_differ = |one: &Value, other: &Value| {
        let (one, other) = (types(one), types(other));
        !one.is_empty() && !other.is_empty() && one.iter().all(|name| !other.contains(name))
    };
    let required_const = |schema: &Value, name: &str| {
        let is_required =
            schema.get("required").and_then(Value::as_array).is_some_and(|names| names.contains(&json!(name)));
        schema.get("properties")?.get(name)?.get("const").filter(|_| is_required).cloned()
    };
    let names = alternatives.first().and_then(|first| first.get("properties")).and_then(Value::as_object);
    let has_discriminator = names.into_iter().flatten().any(|(name, _)| {
        pairwise(&|one, other| match (required_const(one, name), required_const(other, name)) {
            (Some(one), Some(other)) => one != other,
            (_, _) => false,
        })
    });
    let values_differ = |one: &Value, other: &Value| match (one.get("const"), other.get("const")) {
        (Some(one), Some(other)) => one != other,
        (_, _) => false,
    };
    has_discriminator || pairwise(&types_differ) || pairwise(&values_differ)
}
