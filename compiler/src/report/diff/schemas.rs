//! The order between JSON Schemas: which of two schemas accepts fewer values. Both schemas are converted to a normal
//! form, in which notations with the same meaning are equal. Inclusion is then proved keyword by keyword. Without a
//! proof of inclusion, a schema counts as possibly accepting more values.

mod normal_form;

use std::cell::Cell;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::change::Direction;
use normal_form::{anything, normal_form};

/// Maximum number of steps of one comparison. Resolved references and combined schemas can multiply the work.
const MAX_STEPS: u32 = 20_000;

/// Floats represent every integer below this number exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;

const TYPES: [&str; 6] = ["array", "boolean", "null", "number", "object", "string"];

/// Returns the direction in which a schema changed. Narrowed if the new schema provably accepts fewer values, widened
/// if it accepts more, neutral if it accepts the same values, else unknown. `None` if both schemas are equal.
pub fn compare_schemas(before: &Value, after: &Value) -> Option<Direction> {
    if before == after {
        return None;
    }
    let (Some(old), Some(new)) = (normal_form(before), normal_form(after)) else { return Some(Direction::Unknown) };
    let (narrower, wider) = (is_included(&new, &old), is_included(&old, &new));
    Some(match (narrower, wider) {
        (true, true) => Direction::Neutral,
        (true, false) => Direction::Narrowed,
        (false, true) => Direction::Widened,
        (false, false) => Direction::Unknown,
    })
}

fn is_included(inner: &Value, outer: &Value) -> bool {
    Comparison { steps: Cell::new(MAX_STEPS) }.is_within(inner, outer)
}

/// Returns the type of values that a keyword restricts; `None` if the keyword restricts all values.
fn type_of_keyword(key: &str) -> Option<&'static str> {
    Some(match key {
        "minLength" | "maxLength" | "pattern" | "format" => "string",
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => "number",
        "items" | "prefixItems" | "contains" | "minContains" | "maxContains" | "minItems" | "maxItems"
        | "uniqueItems" => "array",
        "properties"
        | "patternProperties"
        | "additionalProperties"
        | "propertyNames"
        | "required"
        | "minProperties"
        | "maxProperties"
        | "dependentRequired"
        | "dependentSchemas" => "object",
        _ => return None,
    })
}

/// Returns true if the type `name` is `kind` or is included in it, as `integer` is included in `number`.
fn is_kind(name: &Value, kind: &str) -> bool {
    name == kind || (name == "integer" && kind == "number")
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|float| float.fract() == 0.0)
}

fn has_type(value: &Value, types: &Value) -> bool {
    let is_one =
        |name: &Value| name == type_name(value) || (name == "integer" && value.is_number() && is_integer(value));
    types.as_array().is_some_and(|types| types.iter().any(is_one))
}

/// Returns the types of the values that a schema in normal form can accept, with `number` for integers.
fn types_of(schema: &Value) -> BTreeSet<&'static str> {
    let Value::Object(map) = schema else {
        return if *schema == Value::Bool(false) { BTreeSet::new() } else { TYPES.into() };
    };
    let mut found: BTreeSet<&'static str> = TYPES.into();
    if let Some(Value::Array(own)) = map.get("type") {
        found.retain(|kind| own.iter().any(|name| is_kind(name, kind)));
    }
    if let Some(Value::Array(values)) = map.get("enum") {
        found.retain(|kind| values.iter().any(|value| type_name(value) == *kind));
    }
    for part in list_of(map, "allOf") {
        let own = types_of(part);
        found.retain(|kind| own.contains(kind));
    }
    for choice in ["anyOf", "oneOf"] {
        if map.contains_key(choice) {
            let own: BTreeSet<&str> = list_of(map, choice).iter().flat_map(types_of).collect();
            found.retain(|kind| own.contains(kind));
        }
    }
    found
}

fn list_of<'m>(map: &'m Map<String, Value>, key: &str) -> &'m [Value] {
    map.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A proof that one schema accepts every value that another schema accepts. `steps` is the number of steps that are
/// left; without a step left, nothing further is proved.
struct Comparison {
    steps: Cell<u32>,
}

impl Comparison {
    /// Returns true if `outer` is proved to accept every value that `inner` accepts.
    fn is_within(&self, inner: &Value, outer: &Value) -> bool {
        let Some(left) = self.steps.get().checked_sub(1) else { return false };
        self.steps.set(left);
        if inner == outer || *inner == Value::Bool(false) {
            return true;
        }
        let Value::Object(map) = outer else { return false };
        if let Some(values) = values_in(inner)
            && values.iter().all(|value| accepts(outer, value) == Some(true))
        {
            return true;
        }
        let parts = conjuncts(inner);
        // If a value has to meet one of several branches, each branch is compared alone.
        for choice in ["anyOf", "oneOf"] {
            for branches in parts.iter().filter_map(|part| part.get(choice)).filter_map(Value::as_array) {
                if branches.iter().all(|branch| self.is_within(branch, outer)) {
                    return true;
                }
            }
        }
        let types = types_of(inner);
        if map.contains_key("anyOf") && types.len() > 1 {
            let is_within = |kind: &&str| self.is_within(&of_type(inner, kind), outer);
            return types.iter().all(is_within);
        }
        map.iter().all(|(key, value)| {
            let is_idle = type_of_keyword(key).is_some_and(|kind| !types.contains(kind));
            is_idle || parts.iter().any(|part| self.implies(part, &types, (key, value), map)) || {
                match key.as_str() {
                    "type" => parts.is_empty() || has_all_types(&types, &parts, value),
                    "allOf" => list_of(map, key).iter().all(|one| self.is_within(inner, one)),
                    "anyOf" => list_of(map, key).iter().any(|one| self.is_within(inner, one)),
                    _ => false,
                }
            }
        })
    }

    /// Returns true if the keywords of `part` imply one keyword of `outer`: the keyword `key` with the value `value`.
    fn implies(
        &self,
        part: &Map<String, Value>,
        types: &BTreeSet<&'static str>,
        (key, value): (&str, &Value),
        outer: &Map<String, Value>,
    ) -> bool {
        let own = part.get(key);
        match key {
            "enum" => match (own.and_then(Value::as_array), value.as_array()) {
                (Some(own), Some(all)) => own.iter().all(|one| all.contains(one)),
                (None, Some(all)) => {
                    let is_listed = |one: Value| all.contains(&one);
                    !types.is_empty()
                        && types.iter().all(|kind| match *kind {
                            "null" => is_listed(Value::Null),
                            "boolean" => is_listed(true.into()) && is_listed(false.into()),
                            _ => false,
                        })
                }
                _ => false,
            },
            "maximum" | "exclusiveMaximum" => at_most(upper(part), (exact(value), key == "exclusiveMaximum")),
            "minimum" | "exclusiveMinimum" => {
                let negated = |(bound, exclusive): (Option<f64>, bool)| (bound.map(|bound| -bound), exclusive);
                at_most(negated(lower(part)), (exact(value).map(|bound| -bound), key == "exclusiveMinimum"))
            }
            "maxLength" | "maxItems" | "maxProperties" => {
                own.and_then(Value::as_u64).zip(value.as_u64()).is_some_and(|(own, most)| own <= most)
            }
            "minLength" | "minItems" | "minProperties" => {
                own.and_then(Value::as_u64).zip(value.as_u64()).is_some_and(|(own, least)| own >= least)
            }
            "multipleOf" => match (own.and_then(Value::as_u64), value.as_u64()) {
                (Some(own), Some(step)) => step > 0 && own % step == 0,
                _ => own == Some(value),
            },
            "required" => list_of(outer, key).iter().all(|name| list_of(part, key).contains(name)),
            "properties" | "additionalProperties" => self.implies_properties(part, outer),
            "items" if !part.contains_key("prefixItems") && !outer.contains_key("prefixItems") => {
                own.is_some_and(|own| self.is_within(own, value))
            }
            "propertyNames" => own.is_some_and(|own| self.is_within(own, value)),
            // A schema that excludes more accepts less.
            "not" => own.is_some_and(|own| self.is_within(value, own)),
            "items" | "prefixItems" => {
                own == Some(value) && part.get("items") == outer.get("items") && has_same(part, outer, "prefixItems")
            }
            "if" | "then" | "else" => ["if", "then", "else"].iter().all(|one| has_same(part, outer, one)),
            "contains" | "minContains" | "maxContains" => {
                ["contains", "minContains", "maxContains"].iter().all(|one| has_same(part, outer, one))
            }
            _ => own == Some(value),
        }
    }

    /// Returns true if the schemas of the properties in `part` imply those in `outer`.
    fn implies_properties(&self, part: &Map<String, Value>, outer: &Map<String, Value>) -> bool {
        const PATTERNS: &str = "patternProperties";
        if part.contains_key(PATTERNS) || outer.contains_key(PATTERNS) {
            let same = ["properties", "additionalProperties", PATTERNS];
            return same.iter().all(|key| has_same(part, outer, key));
        }
        let named = |map: &Map<String, Value>| -> Map<String, Value> {
            map.get("properties").and_then(Value::as_object).cloned().unwrap_or_default()
        };
        let other = |map: &Map<String, Value>| map.get("additionalProperties").cloned().unwrap_or_else(anything);
        let (own, all) = (named(part), named(outer));
        let (own_other, all_other) = (other(part), other(outer));
        let every: BTreeSet<&String> = own.keys().chain(all.keys()).collect();
        self.is_within(&own_other, &all_other)
            && every
                .into_iter()
                .all(|name| self.is_within(own.get(name).unwrap_or(&own_other), all.get(name).unwrap_or(&all_other)))
    }
}

fn has_same(part: &Map<String, Value>, outer: &Map<String, Value>, key: &str) -> bool {
    part.get(key) == outer.get(key)
}

/// Returns the keywords of a schema and of all members of its `allOf`.
fn conjuncts(schema: &Value) -> Vec<&Map<String, Value>> {
    let Some(map) = schema.as_object() else { return Vec::new() };
    std::iter::once(map).chain(list_of(map, "allOf").iter().flat_map(conjuncts)).collect()
}

/// Returns the values that a schema lists in `enum`, even if other keywords exclude some of them; `None` if the schema
/// lists no values.
fn values_in(schema: &Value) -> Option<&Vec<Value>> {
    conjuncts(schema).into_iter().find_map(|part| part.get("enum").and_then(Value::as_array))
}

/// Returns a schema for the values of one type that `schema` accepts.
fn of_type(schema: &Value, kind: &str) -> Value {
    let Value::Object(map) = schema else { return schema.clone() };
    let mut map = map.clone();
    let is_whole = |types: &Value| types.as_array().is_some_and(|types| types.iter().any(|name| name == "integer"));
    let name = if kind == "number" && map.get("type").is_some_and(is_whole) { "integer" } else { kind };
    if let Some(Value::Array(values)) = map.get_mut("enum") {
        values.retain(|value| type_name(value) == kind);
        return Value::Object(map);
    }
    map.insert("type".to_owned(), Value::Array(vec![name.into()]));
    map.retain(|key, _| type_of_keyword(key).is_none_or(|of| of == kind));
    Value::Object(map)
}

/// Returns true if a `type` list accepts all values that have a type in `types` and meet the keywords in `parts`. If the
/// keywords allow only whole numbers, the entry `integer` of the list accepts all of these numbers.
fn has_all_types(types: &BTreeSet<&'static str>, parts: &[&Map<String, Value>], list: &Value) -> bool {
    let allowed = list.as_array().map_or(&[][..], Vec::as_slice);
    let is_whole = |part: &&Map<String, Value>| {
        let is_number = |name: &&Value| is_kind(name, "number");
        part.contains_key("type") && list_of(part, "type").iter().filter(is_number).all(|name| name == "integer")
    };
    types.iter().all(|kind| {
        let is_allowed =
            |name: &Value| name == kind || (*kind == "number" && name == "integer" && parts.iter().any(is_whole));
        allowed.iter().any(is_allowed)
    })
}

/// Returns a number as a float; `None` if the conversion may round the number.
fn exact(value: &Value) -> Option<f64> {
    value.as_f64().filter(|float| value.is_f64() || float.abs() < EXACT)
}

/// Returns the upper bound that a schema sets for numbers (`None` if it sets none), and true if the bound itself is
/// excluded.
fn upper(part: &Map<String, Value>) -> (Option<f64>, bool) {
    let number = |key: &str| part.get(key).and_then(exact);
    match (number("maximum"), number("exclusiveMaximum")) {
        (Some(most), Some(below)) if most < below => (Some(most), false),
        (_, Some(below)) => (Some(below), true),
        (most, None) => (most, false),
    }
}

/// Returns the lower bound that a schema sets for numbers (`None` if it sets none), and true if the bound itself is
/// excluded.
fn lower(part: &Map<String, Value>) -> (Option<f64>, bool) {
    let number = |key: &str| part.get(key).and_then(exact);
    match (number("minimum"), number("exclusiveMinimum")) {
        (Some(least), Some(above)) if least > above => (Some(least), false),
        (_, Some(above)) => (Some(above), true),
        (least, None) => (least, false),
    }
}

/// Returns true if every number that the upper bound `own` allows is also allowed by the upper bound `most`. Returns
/// false if one of the bounds is missing.
fn at_most((own, own_excluded): (Option<f64>, bool), (most, excluded): (Option<f64>, bool)) -> bool {
    #[expect(clippy::float_cmp, reason = "both bounds are literals of schemas")]
    own.zip(most).is_some_and(|(own, most)| own < most || (own == most && (own_excluded || !excluded)))
}

/// Returns true if a schema in normal form accepts a value, and false if it does not. `None` if this function cannot
/// decide, for example because of a pattern.
fn accepts(schema: &Value, value: &Value) -> Option<bool> {
    let Value::Object(map) = schema else { return Some(*schema != Value::Bool(false)) };
    let mut is_certain = true;
    for (key, rule) in map {
        if type_of_keyword(key).is_some_and(|kind| kind != type_name(value)) {
            continue;
        }
        match accepts_keyword(map, (key, rule), value) {
            Some(false) => return Some(false),
            Some(true) => {}
            None => is_certain = false,
        }
    }
    is_certain.then_some(true)
}

fn accepts_keyword(map: &Map<String, Value>, (key, rule): (&str, &Value), value: &Value) -> Option<bool> {
    let number = exact(value).zip(exact(rule));
    let length = |length: usize| rule.as_u64().map(|bound| (u64::try_from(length).unwrap_or(u64::MAX), bound));
    let text = value.as_str().map_or(0, |text| text.chars().count());
    let items = value.as_array().map_or(0, Vec::len);
    let verdicts = || list_of(map, key).iter().map(|one| accepts(one, value)).collect::<Vec<_>>();
    match key {
        "type" => Some(has_type(value, rule)),
        "enum" => Some(list_of(map, key).contains(value)),
        "minimum" => number.map(|(number, bound)| number >= bound),
        "maximum" => number.map(|(number, bound)| number <= bound),
        "exclusiveMinimum" => number.map(|(number, bound)| number > bound),
        "exclusiveMaximum" => number.map(|(number, bound)| number < bound),
        "multipleOf" => {
            value.as_i64().zip(rule.as_i64()).filter(|(_, step)| *step > 0).map(|(one, step)| one % step == 0)
        }
        "minLength" => length(text).map(|(length, bound)| length >= bound),
        "maxLength" => length(text).map(|(length, bound)| length <= bound),
        "minItems" => length(items).map(|(length, bound)| length >= bound),
        "maxItems" => length(items).map(|(length, bound)| length <= bound),
        "anyOf" if verdicts().contains(&Some(true)) => Some(true),
        "anyOf" => verdicts().iter().all(Option::is_some).then_some(false),
        "allOf" if verdicts().contains(&Some(false)) => Some(false),
        "allOf" => verdicts().iter().all(Option::is_some).then_some(true),
        "not" => accepts(rule, value).map(|accepted| !accepted),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
