//! Tests of the order between JSON Schemas, also against a validator.

use jsonschema::{Draft, Validator};
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn direction(before: &Value, after: &Value) -> Option<Direction> {
    compare_schemas(before, after)
}

#[test]
fn schemas_that_accept_the_same_values_are_neutral() {
    for (one, other) in [
        (json!({"enum": ["a", "b"]}), json!({"enum": ["b", "a"]})),
        (json!({"const": 1}), json!({"enum": [1.0]})),
        (json!({"type": "object"}), json!({"type": "object", "additionalProperties": true})),
        (json!({"type": "integer", "exclusiveMinimum": 0}), json!({"type": "integer", "minimum": 1})),
        (json!({"type": ["string", "integer"]}), json!({"anyOf": [{"type": "integer"}, {"type": "string"}]})),
        (json!({"oneOf": [{"const": "a"}, {"const": "b"}]}), json!({"type": "string", "enum": ["a", "b"]})),
        (json!({"type": "string", "description": "a"}), json!({"type": "string", "minLength": 0, "maximum": 4})),
        (
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}),
            json!({"allOf": [{"type": "string"}], "required": []}),
        ),
        (json!({"items": true, "uniqueItems": false}), json!({"properties": {"x": {}}})),
    ] {
        assert_eq!(direction(&one, &other), Some(Direction::Neutral), "{one} {other}");
        assert_eq!(direction(&one, &one), None);
    }
}

#[test]
fn schema_that_accepts_fewer_values_is_narrower() {
    for (wide, narrow) in [
        (json!({"type": "number"}), json!({"type": "integer"})),
        (json!({"type": "string"}), json!({"const": "a"})),
        (json!({"type": "string"}), json!({"type": "string", "pattern": "^a"})),
        (json!({"type": "string"}), json!({"type": "string", "not": {"const": "rm"}})),
        (json!({"not": {"const": "rm"}}), json!({"not": {"enum": ["rm", "dd"]}})),
        (json!({"maxLength": 6}), json!({"maxLength": 5, "minLength": 1})),
        (json!({"minimum": 0}), json!({"exclusiveMinimum": 0})),
        (json!({"multipleOf": 2}), json!({"multipleOf": 4})),
        (json!({"properties": {"x": {}}}), json!({"properties": {"x": {}}, "additionalProperties": false})),
        (json!({}), json!({"required": ["x"]})),
        (json!({"properties": {"x": {"type": "string"}}}), json!({"properties": {"x": {"enum": ["a"]}}})),
        (json!({"additionalProperties": {"type": "string"}}), json!({"additionalProperties": false})),
        (json!({"items": {"type": "string"}}), json!({"items": {"enum": ["a"]}, "maxItems": 2})),
        (json!({"anyOf": [{"type": "string"}, {"type": "null"}]}), json!({"type": "string", "format": "email"})),
        (json!({"type": "string"}), json!({"oneOf": [{"maxLength": 2}, {"pattern": "a"}], "type": "string"})),
        (json!({"enum": ["a", 1, null]}), json!({"type": "null"})),
        (json!({}), json!({"if": {"required": ["a"]}, "then": {"required": ["b"]}})),
    ] {
        assert_eq!(direction(&wide, &narrow), Some(Direction::Narrowed), "{wide} {narrow}");
        assert_eq!(direction(&narrow, &wide), Some(Direction::Widened), "{narrow} {wide}");
    }
}

#[test]
fn schemas_without_a_proved_order_are_unknown() {
    let tree =
        |kind: &str| json!({"$ref": "#/$defs/t", "$defs": {"t": {"type": kind, "items": {"$ref": "#/$defs/t"}}}});
    for (one, other) in [
        (json!({"pattern": "^a"}), json!({"pattern": "^(a|b)"})),
        (json!({"enum": ["a", "b"]}), json!({"enum": ["b", "c"]})),
        (json!({"$id": "a"}), json!({"$id": "b"})),
        (tree("array"), tree("object")),
    ] {
        assert_eq!(direction(&one, &other), Some(Direction::Unknown), "{one} {other}");
    }
    let mut deep = json!({"type": "string"});
    for _ in 0..400 {
        deep = json!({"items": deep});
    }
    assert_eq!(direction(&deep, &json!({})), Some(Direction::Unknown));
}

/// Test values that some schemas of [`schemas`] accept and others reject.
fn values() -> Vec<Value> {
    let mut found = vec![Value::Null, json!(true), json!(false), json!(1.5), json!([]), json!({})];
    found.extend((-1..=6).map(Value::from));
    found.extend(["", "a", "b", "ab", "abc"].map(Value::from));
    let lists = [json!(["a"]), json!([1, 2]), json!(["a", "a"]), json!([1.5])];
    let maps = [json!({"x": 1}), json!({"x": "a"}), json!({"x": "a", "y": 2}), json!({"y": null}), json!({"z": 1})];
    found.into_iter().chain(lists).chain(maps).collect()
}

fn schemas() -> impl Strategy<Value = Value> {
    let simple = prop_oneof![
        Just(json!({})),
        Just(json!(false)),
        prop::sample::select(vec!["string", "integer", "number", "null", "boolean", "object", "array"])
            .prop_map(|kind| json!({"type": kind})),
        (0..3_i64, 1..4_i64).prop_map(|(least, more)| json!({"minimum": least, "exclusiveMaximum": least + more})),
        (0..3_i64).prop_map(|least| json!({"type": "integer", "exclusiveMinimum": least})),
        (1..3_u8).prop_map(|step| json!({"multipleOf": step * 2})),
        (0..3_u8).prop_map(|most| json!({"maxLength": most, "type": ["string", "null"]})),
        prop::sample::subsequence(vec![json!("a"), json!("b"), json!(1), json!(2.0), Value::Null], 1..4)
            .prop_map(|values| json!({"enum": values})),
        Just(json!({"pattern": "^a"})),
        Just(json!({"const": {"x": 1}})),
    ];
    simple.prop_recursive(3, 16, 3, |inner| {
        let lists = prop::collection::vec(inner.clone(), 1..3);
        prop_oneof![
            lists.clone().prop_map(|all| json!({"allOf": all})),
            (lists.clone(), inner.clone()).prop_map(|(any, other)| json!({"anyOf": any, "not": other})),
            lists.prop_map(|one| json!({"oneOf": one, "type": ["string", "number", "object"]})),
            (inner.clone(), inner.clone()).prop_map(|(x, y)| json!({"properties": {"x": x, "y": y}})),
            (inner.clone(), inner.clone())
                .prop_map(|(x, other)| json!({"properties": {"x": x}, "additionalProperties": other})),
            inner.clone().prop_map(|x| json!({"properties": {"x": x}, "required": ["x"], "maxProperties": 1})),
            inner.clone().prop_map(|item| json!({"items": item, "uniqueItems": true, "minItems": 1})),
            inner.clone().prop_map(|one| json!({"$ref": "#/$defs/a", "$defs": {"a": one}, "title": "t"})),
            (inner.clone(), inner).prop_map(|(when, then)| json!({"if": when, "then": then})),
        ]
    })
}

fn validator(schema: &Value) -> Option<Validator> {
    jsonschema::options().with_draft(Draft::Draft202012).build(schema).ok()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// No value that a validator accepts contradicts a proved direction.
    #[test]
    fn proved_direction_holds_for_each_value((one, other) in (schemas(), schemas()), nested in any::<bool>()) {
        // A `$ref` in a nested schema names no definition, so schemas are also compared without nesting.
        let (one, other) = if nested { (json!({"allOf": [other.clone(), one]}), other) } else { (one, other) };
        let (Some(old), Some(new)) = (validator(&one), validator(&other)) else { return Ok(()) };
        let direction = compare_schemas(&one, &other);
        for value in values() {
            let (was, is) = (old.is_valid(&value), new.is_valid(&value));
            match direction {
                None | Some(Direction::Neutral) => prop_assert_eq!(was, is, "{} {} {}", one, other, value),
                Some(Direction::Narrowed) => prop_assert!(was || !is, "{} {} {}", one, other, value),
                Some(Direction::Widened) => prop_assert!(is || !was, "{} {} {}", one, other, value),
                Some(Direction::Unknown) => {}
            }
        }
    }
}
