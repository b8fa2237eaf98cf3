//! A bound on the number of checks that a validation takes. References in a schema can multiply the checks: if each of
//! thirty definitions refers three times to the next definition, one value takes 3³⁰ checks. The number of checks is
//! therefore computed before the validation. The computation visits each pair of a schema and a value only once.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// Maximum number of checks of a validation. A validation with this number of checks takes a few seconds.
const MAX_CHECKS: u64 = 1_000_000;
/// Maximum nesting depth of the checks. Deeper checks could exhaust the stack of a thread.
const MAX_DEPTH: usize = 400;

/// Keywords that hold a schema which applies to the checked value itself, not to its parts.
const SAME_VALUE: [&str; 4] = ["not", "if", "then", "else"];
/// Keywords that hold a list of schemas which apply to the checked value itself.
const SAME_VALUE_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords that hold a map of schemas which apply to the checked value itself.
const SAME_VALUE_MAPS: [&str; 2] = ["dependentSchemas", "dependencies"];
/// Keywords that hold a schema which applies to each element of a list.
const EACH_ITEM: [&str; 4] = ["items", "additionalItems", "contains", "unevaluatedItems"];
/// Keywords that hold a schema which applies to each field of an object.
const EACH_FIELD: [&str; 2] = ["additionalProperties", "unevaluatedProperties"];
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Keywords for which the validator checks the value itself a second time, to find its unevaluated parts.
const UNEVALUATED: [&str; 2] = ["unevaluatedItems", "unevaluatedProperties"];

/// The address of a schema or of a value in memory.
type Address = usize;

/// The error for a validation that takes more than [`MAX_CHECKS`] checks, nests deeper than [`MAX_DEPTH`], or never
/// ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unbounded;

/// Fails if the validation of a value against a schema takes too many checks.
pub(super) fn bound_checks(schema: &Value, value: &Value) -> Result<(), Unbounded> {
    // Without references, each schema checks a value once.
    if !has_reference(schema) {
        return Ok(());
    }
    let mut places = HashMap::new();
    collect_places(schema, &mut places);
    let mut count = CheckCount { places, known: HashMap::new() };
    count.checks(schema, value, schema, 0).map(|_| ())
}

fn has_reference(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map.iter().any(|(key, part)| REFERENCES.contains(&key.as_str()) || has_reference(part)),
        Value::Array(list) => list.iter().any(has_reference),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Collects the schemas that have an anchor or an id, by which references can name them.
fn collect_places<'s>(schema: &'s Value, places: &mut HashMap<&'s str, &'s Value>) {
    match schema {
        Value::Object(map) => {
            for name in ["$anchor", "$dynamicAnchor", "$id"].iter().filter_map(|key| map.get(*key)?.as_str()) {
                places.entry(name).or_insert(schema);
            }
            map.values().for_each(|part| collect_places(part, places));
        }
        Value::Array(list) => list.iter().for_each(|part| collect_places(part, places)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

struct CheckCount<'s> {
    places: HashMap<&'s str, &'s Value>,
    /// The number of checks for each pair of a schema and a value; `None` while the number is computed.
    known: HashMap<(Address, Address), Option<u64>>,
}

impl<'s> CheckCount<'s> {
    /// Returns the number of checks that the validation of a value against a schema takes. References of the schema are
    /// resolved in `root`.
    fn checks(&mut self, schema: &'s Value, value: &Value, root: &'s Value, depth: usize) -> Result<u64, Unbounded> {
        let Value::Object(map) = schema else { return Ok(1) };
        let key = (std::ptr::from_ref(schema) as Address, std::ptr::from_ref(value) as Address);
        if let Some(known) = self.known.get(&key) {
            // The validation would never end, because the schema checks the same value again.
            return known.ok_or(Unbounded);
        }
        if depth > MAX_DEPTH || self.known.len() as u64 > MAX_CHECKS {
            return Err(Unbounded);
        }
        self.known.insert(key, None);
        let root = if map.contains_key("$id") { schema } else { root };
        let same = self.checks_of_value(map, value, root, depth + 1)?;
        let twice = UNEVALUATED.iter().any(|keyword| map.contains_key(*keyword));
        let same = if twice { same.saturating_mul(2) } else { same };
        let total = same.saturating_add(self.checks_of_parts(map, value, root, depth + 1)?).saturating_add(1);
        if total > MAX_CHECKS {
            return Err(Unbounded);
        }
        self.known.insert(key, Some(total));
        Ok(total)
    }

    /// Counts the checks by the schemas that apply to the value itself.
    fn checks_of_value(
        &mut self,
        map: &'s Map<String, Value>,
        value: &Value,
        root: &'s Value,
        depth: usize,
    ) -> Result<u64, Unbounded> {
        let mut schemas: Vec<&'s Value> = SAME_VALUE.iter().filter_map(|keyword| map.get(*keyword)).collect();
        let lists = SAME_VALUE_LISTS.iter().filter_map(|keyword| map.get(*keyword)?.as_array());
        schemas.extend(lists.flatten());
        let maps = SAME_VALUE_MAPS.iter().filter_map(|keyword| map.get(*keyword)?.as_object());
        schemas.extend(maps.flat_map(Map::values));
        schemas.extend(REFERENCES.iter().filter_map(|keyword| self.resolve(map.get(*keyword)?.as_str()?, root)));
        self.sum(schemas.into_iter().map(|schema| (schema, value)), root, depth)
    }

    /// Counts the checks of the elements of a list or of the fields of an object.
    fn checks_of_parts(
        &mut self,
        map: &'s Map<String, Value>,
        value: &Value,
        root: &'s Value,
        depth: usize,
    ) -> Result<u64, Unbounded> {
        match value {
            Value::Array(items) => {
                let each = EACH_ITEM.iter().filter_map(|keyword| map.get(*keyword)).filter(|schema| schema.is_object());
                let each: Vec<&'s Value> = each.collect();
                let by_place = ["prefixItems", "items"].iter().filter_map(|keyword| map.get(*keyword)?.as_array());
                let by_place: Vec<(&'s Value, &Value)> =
                    by_place.flat_map(|schemas| schemas.iter().zip(items)).collect();
                let of_each = items.iter().flat_map(|item| each.iter().map(move |schema| (*schema, item)));
                self.sum(of_each.chain(by_place), root, depth)
            }
            Value::Object(fields) => {
                let mut each: Vec<&'s Value> = EACH_FIELD.iter().filter_map(|keyword| map.get(*keyword)).collect();
                each.extend(map.get("patternProperties").and_then(Value::as_object).into_iter().flat_map(Map::values));
                let named = map.get("properties").and_then(Value::as_object).into_iter().flatten();
                let named = named.filter_map(|(name, schema)| Some((schema, fields.get(name)?)));
                let of_each = fields.values().flat_map(|field| each.iter().map(move |schema| (*schema, field)));
                self.sum(of_each.chain(named), root, depth)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(0),
        }
    }

    fn sum<'v>(
        &mut self,
        pairs: impl Iterator<Item = (&'s Value, &'v Value)>,
        root: &'s Value,
        depth: usize,
    ) -> Result<u64, Unbounded> {
        let mut total = 0_u64;
        for (schema, value) in pairs {
            total = total.saturating_add(self.checks(schema, value, root, depth)?);
        }
        Ok(total)
    }

    /// Returns the schema that a reference names; `None` if the schema is not part of this document.
    fn resolve(&self, reference: &str, root: &'s Value) -> Option<&'s Value> {
        let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let root = if document.is_empty() { root } else { *self.places.get(document)? };
        if fragment.is_empty() {
            return Some(root);
        }
        if fragment.starts_with('/') {
            let pointer = percent_encoding::percent_decode_str(fragment).decode_utf8().ok()?;
            return root.pointer(&pointer);
        }
        self.places.get(fragment).copied()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tool::schema::{SchemaError, ToolSchema};

    fn chain(length: usize, part: impl Fn(&Value) -> Value) -> Value {
        let next = |n: usize| json!({ "$ref": format!("#/$defs/a{}", n + 1) });
        let mut defs: Map<String, Value> = (0..length).map(|n| (format!("a{n}"), part(&next(n)))).collect();
        defs.insert(format!("a{length}"), json!({"type": ["object", "array", "string"]}));
        json!({"$defs": defs, "$ref": "#/$defs/a0"})
    }

    fn check(schema: Value, value: &Value) -> Result<(), SchemaError> {
        ToolSchema::new(schema).check(value)
    }

    #[test]
    fn references_that_multiply_are_refused() {
        let value = json!({"a": ["x"]});
        for keyword in ["allOf", "anyOf", "oneOf"] {
            let three = |next: &Value| json!({ keyword: [next, next, next] });
            assert_eq!(check(chain(3, three), &value).is_ok(), keyword != "oneOf", "{keyword}");
            assert!(matches!(check(chain(30, three), &value), Err(SchemaError::Broken(_))), "{keyword}");
        }
        let nested = |next: &Value| json!({"allOf": [next], "if": next, "then": next});
        assert!(matches!(check(chain(30, nested), &value), Err(SchemaError::Broken(_))));
        // Each level checks the field once, so the work grows with the number of levels only.
        let fields = |next: &Value| json!({"properties": {"a": next}, "additionalProperties": next, "allOf": [next]});
        assert!(check(chain(40, fields), &value).is_ok());
        let by_anchor = json!({"$defs": {"a": {"$anchor": "a", "allOf": [{"$ref": "#b"}, {"$ref": "#b"}]},
            "b": {"$anchor": "b", "anyOf": [{"$ref": "#a"}, {"type": "string"}]}}, "$ref": "#a"});
        assert!(matches!(check(by_anchor, &value), Err(SchemaError::Broken(_))));
    }

    #[test]
    fn references_that_never_end_or_nest_too_deep_are_refused() {
        for endless in [json!({"$ref": "#"}), json!({"anyOf": [{"type": "null"}, {"$ref": "#"}]})] {
            assert!(matches!(check(endless.clone(), &json!({"a": 1})), Err(SchemaError::Broken(_))), "{endless}");
        }
        assert!(matches!(check(chain(2_000, Value::clone), &json!({})), Err(SchemaError::Broken(_))));
        assert!(check(chain(100, Value::clone), &json!({})).is_ok());
    }

    #[test]
    fn recursion_over_the_parts_of_a_value_is_checked() {
        let tree = json!({"type": "object", "additionalProperties": false,
            "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}}});
        let leaf = || json!({"name": "leaf", "children": []});
        let many = json!({"name": "root", "children": (0..10_000).map(|_| leaf()).collect::<Vec<_>>()});
        assert!(check(tree.clone(), &many).is_ok());
        assert!(matches!(check(tree, &json!({"children": [{"size": 1}]})), Err(SchemaError::Mismatch(_))));
    }
}
