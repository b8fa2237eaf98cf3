//! Schemas that the conversion widens, and keywords that must not contain such a schema.
//!
//! The conversion removes a property whose name a wire format refuses. The schema that declares the property then
//! accepts more values. If the widened schema is under `not` or `if`, in a branch of `oneOf`, or under `contains` with
//! `maxContains`, the whole schema would accept fewer values. So the conversion replaces such a keyword with a rule in
//! the description. `unevaluatedProperties` and `unevaluatedItems` also become rules if a widened schema applies to the
//! same value.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::merge::{EXACTLY_ONE, are_disjoint};
use super::{is_wire_name, types_of};
use crate::tool_spec::resolve_pointer;

/// Keywords whose schemas apply to the same value as the schema that contains them.
const IN_PLACE_KEYWORDS: [&str; 6] = ["allOf", "anyOf", "oneOf", "then", "else", "dependentSchemas"];
const REFERENCES: [&str; 2] = ["$ref", "$dynamicRef"];

/// A search for schemas that the conversion widens, in the schema before the conversion.
pub(super) struct WidenedSchemas {
    root: Value,
    has_unevaluated_items: bool,
    is_any_widened: bool,
}

impl WidenedSchemas {
    /// Creates a search for widened schemas. `root` is the schema before the conversion; references are resolved in
    /// this schema.
    pub(super) fn new(root: &Value) -> Self {
        let mut widened = Self { root: root.clone(), has_unevaluated_items: false, is_any_widened: true };
        widened.has_unevaluated_items = any_schema(root, |map| map.contains_key("unevaluatedItems"));
        widened.is_any_widened = any_schema(root, |map| widened.widens(map));
        widened
    }

    /// Removes each keyword of `map` that would accept fewer values after the conversion to the schema of a wire (`not`,
    /// for example). Returns the removed keywords as texts for the description of the tool. A `oneOf` becomes an `anyOf`
    /// if `map` has no `anyOf`. The schemas in `map` are not converted yet.
    pub(super) fn remove_narrowed_keywords(&self, map: &mut Map<String, Value>) -> Vec<String> {
        if !self.is_any_widened {
            return Vec::new();
        }
        let mut removed: Vec<&str> = Vec::new();
        let is_widened = |key: &str| map.get(key).is_some_and(|value| self.is_keyword_widened(key, value));
        if is_widened("not") {
            removed.push("not");
        }
        if is_widened("if") {
            removed.extend(["if", "then", "else"]);
        }
        if is_widened("contains") {
            removed.push("maxContains");
        }
        if self.widens(map)
            || is_widened("if")
            || IN_PLACE_KEYWORDS.iter().chain(&REFERENCES).any(|key| is_widened(key))
        {
            removed.extend(["unevaluatedProperties", "unevaluatedItems"]);
        }
        let mut notes = Vec::new();
        let is_one_of_widened = is_widened("oneOf");
        for key in removed {
            match map.shift_remove(key) {
                None | Some(Value::Bool(true)) => {}
                Some(value) => notes.push(format!("{key} {value}")),
            }
        }
        if is_one_of_widened && let Some(branches) = map.shift_remove("oneOf") {
            if map.contains_key("anyOf") {
                notes.push(format!("oneOf {branches}"));
            } else {
                if !branches.as_array().is_some_and(|branches| are_disjoint(branches)) {
                    notes.push(EXACTLY_ONE.to_owned());
                }
                map.insert("anyOf".to_owned(), branches);
            }
        }
        notes
    }

    /// Returns true if the conversion of `map` alone, without the schemas below it, accepts more values.
    fn widens(&self, map: &Map<String, Value>) -> bool {
        let mut names = map.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys);
        // The conversion adds `items` to each array. The added keyword evaluates all items, so `unevaluatedItems`
        // rejects none.
        let has_added_items =
            self.has_unevaluated_items && !map.contains_key("items") && types_of(map).contains(&"array");
        has_added_items || names.any(|name| !is_wire_name(name))
    }

    /// Returns true if the conversion widens a schema that the keyword `key` with this value holds or refers to.
    fn is_keyword_widened(&self, key: &str, value: &Value) -> bool {
        let mut found: Vec<&Map<String, Value>> = Vec::new();
        let mut followed: BTreeSet<&str> = BTreeSet::new();
        let mut references: Vec<&Value> = Vec::new();
        if REFERENCES.contains(&key) {
            references.push(value);
        } else {
            push_schemas(key, value, &mut found);
        }
        loop {
            while let Some(map) = found.pop() {
                if self.widens(map) {
                    return true;
                }
                // Definitions apply only where a reference names them.
                for (key, value) in map.iter().filter(|(key, _)| !matches!(key.as_str(), "$defs" | "definitions")) {
                    push_schemas(key, value, &mut found);
                }
                references.extend(REFERENCES.iter().filter_map(|key| map.get(*key)));
            }
            let Some(reference) = references.pop() else { return false };
            let Some(reference) = reference.as_str().filter(|reference| followed.insert(reference)) else { continue };
            match resolve_pointer(&self.root, reference) {
                Some(Value::Object(target)) => found.push(target),
                Some(_) => {}
                // A reference whose schema cannot be found counts as widened.
                None => return true,
            }
        }
    }
}

/// Returns true if the condition holds for a schema, or for a schema at any depth below it.
fn any_schema(schema: &Value, condition: impl Fn(&Map<String, Value>) -> bool) -> bool {
    let mut found: Vec<&Map<String, Value>> = schema.as_object().into_iter().collect();
    while let Some(map) = found.pop() {
        if condition(map) {
            return true;
        }
        for (key, value) in map {
            push_schemas(key, value, &mut found);
        }
    }
    false
}

/// Adds the schemas that a keyword with this value holds, without those that are `true` or `false`.
fn push_schemas<'v>(key: &str, value: &'v Value, found: &mut Vec<&'v Map<String, Value>>) {
    match (SchemaHolder::of_keyword(key), value) {
        (Some(SchemaHolder::Map), Value::Object(schemas)) => {
            found.extend(schemas.values().filter_map(Value::as_object));
        }
        (Some(SchemaHolder::List), Value::Array(schemas)) => {
            found.extend(schemas.iter().filter_map(Value::as_object));
        }
        (Some(SchemaHolder::One), Value::Object(schema)) => found.push(schema),
        (Some(_) | None, _) => {}
    }
}

/// The form of a keyword's value: one schema, a list of schemas, or a map of schemas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SchemaHolder {
    One,
    List,
    Map,
}

impl SchemaHolder {
    /// Returns the form for a keyword; `None` if the keyword holds no schemas.
    pub(super) fn of_keyword(key: &str) -> Option<Self> {
        match key {
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => Some(Self::Map),
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => Some(Self::List),
            "items"
            | "contains"
            | "not"
            | "if"
            | "then"
            | "else"
            | "propertyNames"
            | "contentSchema"
            | "additionalProperties"
            | "unevaluatedProperties"
            | "unevaluatedItems" => Some(Self::One),
            _ => None,
        }
    }
}
