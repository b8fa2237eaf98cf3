//! Tests, with random schemas and random calls, that the converted schema accepts each call that the original schema
//! accepts.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use proptest::prelude::*;
use rye_compiler::wire_tool::{SchemaDialect, convert_tool};
use serde_json::{Value, json};

use super::rules::violation;

const NAMES: [&str; 4] = ["@x", "a", "b", "y z"];

fn validator(schema: &Value) -> jsonschema::Validator {
    jsonschema::options().with_draft(jsonschema::Draft::Draft202012).build(schema).unwrap()
}

fn accepts(schema: &Value, call: &Value) -> bool {
    validator(schema).is_valid(call)
}

/// Returns the schema of a tool as the wire format `wire` gets it, and all text that describes the tool.
fn sent(wire: &str, schema: &Value) -> (Value, String) {
    let tool = convert_tool(wire, "Does it.", schema);
    let parameters = tool.parameters.clone().map_or_else(|| json!({"type": "object"}), std::borrow::Cow::into_owned);
    (parameters, tool.text())
}

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&NAMES[..])
}

/// Returns a strategy for values of few names and literals, so that many of them match a random schema.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        Just(json!(1)),
        Just(json!(2.5)),
        Just(json!("p")),
        Just(json!("a")),
        Just(json!({})),
        Just(json!([])),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec((name(), inner), 0..3).prop_map(|members| members.into_iter().collect()),
        ]
    })
}

fn names() -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(name(), 0..2)
}

/// Returns a strategy for schemas. With `has_types`, a keyword for one type (such as `items`) stands beside this type
/// (such as `array`). With `has_references`, a schema can refer to a definition.
fn schema(has_types: bool, has_references: bool) -> impl Strategy<Value = Value> {
    let reference = if has_references { json!({"$ref": "#/$defs/D"}) } else { json!({"const": 1}) };
    let leaf = prop_oneof![
        Just(json!({})),
        Just(json!(true)),
        Just(json!({"type": "integer"})),
        Just(json!({"type": ["string", "null"]})),
        Just(json!({"type": "array"})),
        Just(json!({"type": "object"})),
        Just(json!({"const": "p"})),
        Just(json!({"enum": [1.0, "a", null]})),
        names().prop_map(|names| json!({"type": "object", "required": names})),
        Just(reference),
    ];
    let typed = move |mut schema: Value, name: &str| {
        if has_types {
            schema["type"] = json!(name);
        }
        schema
    };
    leaf.prop_recursive(3, 24, 4, move |inner| {
        let object =
            (prop::collection::vec((name(), inner.clone()), 0..3), names()).prop_map(move |(members, names)| {
                let properties: Value = members.into_iter().collect();
                typed(json!({"properties": properties, "required": names}), "object")
            });
        let rest = (name(), inner.clone(), prop_oneof![inner.clone(), Just(json!(false))]).prop_map(
            move |(name, one, rest)| typed(json!({"properties": {name: one}, "additionalProperties": rest}), "object"),
        );
        let patterns = (inner.clone(), prop_oneof![inner.clone(), Just(json!(false))]).prop_map(move |(one, rest)| {
            typed(json!({"patternProperties": {"^[@b]": one}, "additionalProperties": rest}), "object")
        });
        let array =
            (inner.clone(), inner.clone(), inner.clone(), 0usize..5).prop_map(move |(one, two, three, kind)| {
                let array = match kind {
                    0 => json!({"items": one}),
                    1 => json!({"prefixItems": [one], "items": false}),
                    2 => json!({"contains": one, "maxContains": 1, "items": two}),
                    3 => json!({"prefixItems": [one, two], "items": three}),
                    _ => json!({"contains": one, "prefixItems": [two], "unevaluatedItems": false}),
                };
                typed(array, "array")
            });
        let union = (prop::sample::select(vec!["anyOf", "oneOf", "allOf"]), inner.clone(), inner.clone())
            .prop_map(|(key, one, two)| json!({key: [one, two]}));
        let condition = (inner.clone(), inner.clone(), inner.clone())
            .prop_map(|(test, yes, no)| json!({"if": test, "then": yes, "else": no}));
        let others = (name(), inner.clone(), 0usize..3).prop_map(move |(name, one, kind)| match kind {
            0 => json!({"not": one}),
            1 => json!({"dependentSchemas": {name: one}}),
            _ => typed(json!({"propertyNames": one}), "object"),
        });
        let plain =
            prop_oneof![3 => object, 2 => rest, 1 => patterns, 2 => array, 3 => union, 2 => condition, 2 => others];
        // Merges the keywords of two schemas, and sometimes forbids unevaluated properties.
        let beside = (plain.clone(), plain.clone(), any::<bool>()).prop_map(move |(one, two, is_closed)| {
            let mut both = one;
            if let (Some(map), Some(more)) = (both.as_object_mut(), two.as_object()) {
                for (key, value) in more {
                    map.entry(key.clone()).or_insert_with(|| value.clone());
                }
                if is_closed && (!has_types || map.get("type") == Some(&json!("object"))) {
                    map.insert("unevaluatedProperties".to_owned(), json!(false));
                }
            }
            both
        });
        prop_oneof![2 => plain, 1 => beside]
    })
}

/// Returns a strategy for the schema of a tool's parameters. The property `b` can refer to the whole schema.
fn parameters(has_types: bool) -> impl Strategy<Value = Value> {
    let whole = prop_oneof![Just(json!({"not": {"$ref": "#"}})), Just(json!({"$ref": "#"})), schema(has_types, true)];
    (schema(has_types, true), schema(has_types, true), schema(has_types, false), whole).prop_map(
        |(root, member, definition, whole)| {
            let mut schema = root.as_object().cloned().unwrap_or_default();
            let properties = schema.entry("properties").or_insert_with(|| json!({}));
            properties["a"] = member;
            properties["b"] = whole;
            schema.insert("$defs".to_owned(), json!({"D": definition}));
            Value::Object(schema)
        },
    )
}

fn calls() -> impl Strategy<Value = Vec<Value>> {
    let call = prop::collection::vec((name(), value()), 0..4).prop_map(|members| members.into_iter().collect());
    prop::collection::vec(call, 24)
}

fn check(wires: &[&str], schema: &Value, calls: &[Value]) -> Result<(), TestCaseError> {
    let original = validator(schema);
    let valid: Vec<&Value> = calls.iter().filter(|call| original.is_valid(call)).collect();
    for wire in wires {
        let (sent, _) = sent(wire, schema);
        let dialect = SchemaDialect::of_wire(wire).unwrap();
        prop_assert_eq!(violation(dialect, &sent), None, "{} {}\n{}", wire, schema, sent);
        let converted = validator(&sent);
        for call in &valid {
            prop_assert!(converted.is_valid(call), "{} {}\n{}\n{}", wire, schema, sent, call);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn sent_schema_accepts_every_call_that_a_random_original_accepts(schema in parameters(false), calls in calls()) {
        check(&["anthropic"], &schema, &calls)?;
    }

    #[test]
    fn sent_schema_accepts_every_call_that_a_random_original_with_types_accepts(
        schema in parameters(true),
        calls in calls(),
    ) {
        check(&["anthropic", "openai-chat", "openai-responses"], &schema, &calls)?;
    }
}

/// Returns rows: a name, the schema of the parameter `a`, values of `a`, and a text that the tool's description must
/// contain.
fn odd_names() -> Vec<(&'static str, Value, Vec<Value>, &'static str)> {
    let person = json!({"type": "object", "required": ["@t"], "properties": {"@t": {"const": "Person"}}});
    let place = json!({"type": "object", "required": ["@t"], "properties": {"@t": {"const": "Place"}}});
    let values = || vec![json!({"@t": "Person"}), json!({"@t": "Place"}), json!({})];
    vec![
        ("oneOf", json!({"oneOf": [person, place]}), values(), "Place"),
        ("oneOf behind references", json!({"oneOf": [{"$ref": "#/$defs/P"}, place]}), values(), "exactly one"),
        ("oneOf beside anyOf", json!({"oneOf": [person, place], "anyOf": [person, place]}), values(), "oneOf ["),
        ("not", json!({"not": person}), values(), "not {"),
        ("not behind a reference", json!({"not": {"$ref": "#/$defs/P"}}), values(), "not {"),
        ("not of a list", json!({"not": {"items": person, "type": "array"}}), vec![json!([{}]), json!([])], "not {"),
        (
            "condition",
            json!({"if": person, "then": {"required": ["a"]}, "else": {"minProperties": 0}}),
            values(),
            "then {\"required\":[\"a\"]}",
        ),
        (
            "contains",
            json!({"type": "array", "contains": person, "maxContains": 1}),
            vec![json!([{"@t": "Person"}, {"@t": "Place"}])],
            "maxContains 1",
        ),
        ("dependentSchemas", json!({"dependentSchemas": {"@t": {"not": person}}}), values(), "not {"),
        ("patternProperties", json!({"patternProperties": {"^k": {"not": person}}}), vec![json!({"k": {}})], "not {"),
        (
            "unevaluatedProperties",
            json!({"allOf": [person], "unevaluatedProperties": false}),
            values(),
            "unevaluatedProperties false",
        ),
        (
            "unevaluatedProperties behind a reference",
            json!({"$ref": "#/$defs/P", "unevaluatedProperties": false}),
            values(),
            "unevaluatedProperties false",
        ),
        (
            "not of an array whose items nothing evaluates",
            json!({"not": {"type": "array", "prefixItems": [{}], "unevaluatedItems": false}}),
            vec![json!([1, 2])],
            "unevaluatedItems",
        ),
    ]
}

#[test]
fn keyword_that_would_narrow_without_an_odd_name_becomes_a_rule() {
    for (case, schema, values, text) in odd_names() {
        let schema = json!({"type": "object", "properties": {"a": schema}, "$defs": {
            "P": {"type": "object", "required": ["@t"], "properties": {"@t": {"const": "Person"}}}}});
        for wire in ["anthropic", "openai-chat", "openai-responses"] {
            let (parameters, described) = sent(wire, &schema);
            for call in values.iter().map(|value| json!({ "a": value })).filter(|call| accepts(&schema, call)) {
                assert!(accepts(&parameters, &call), "{case} {wire} {call}\n{parameters:#}");
            }
            let described = described.replace("\\\"", "\"");
            assert!(described.contains(text), "{case} {wire}: {described}");
        }
    }
}

#[test]
fn merged_keywords_keep_their_meaning() {
    let rows = [
        // `[1, 2]` satisfies each `contains` with a different item.
        (json!({"contains": {"const": 1}}), json!({"contains": {"const": 2}}), json!([1, 2])),
        (
            json!({"prefixItems": [{"const": 1}]}),
            json!({"prefixItems": [{}, {"const": 2}], "items": {"const": 3}}),
            json!([1, 2]),
        ),
        (json!({"if": {"const": 1}}), json!({"then": {"const": 2}}), json!(1)),
        (json!({"enum": [1, 3]}), json!({"enum": [1.0, 4]}), json!(1)),
        (
            json!({"properties": {"a": {}}, "unevaluatedProperties": {"type": "integer"}}),
            json!({"properties": {"b": {}}, "unevaluatedProperties": {"const": 1}}),
            json!({"a": 1, "b": 5}),
        ),
    ];
    for (one, two, value) in rows {
        let member = |schema: &Value| json!({"properties": {"p": schema}});
        let schema = json!({"type": "object", "allOf": [member(&one), member(&two)]});
        let call = json!({ "p": value });
        assert!(accepts(&schema, &call), "{schema}");
        let (sent, _) = sent("anthropic", &schema);
        assert!(accepts(&sent, &call), "{schema}\n{sent}");
    }
}

#[test]
fn names_of_patterns_stay_beside_closed_alternatives() {
    let closed = json!({"anyOf": [
        {"type": "object", "patternProperties": {"^x": {}}, "additionalProperties": false},
        {"type": "object", "properties": {"a": {}}, "additionalProperties": false}]});
    let described =
        json!({"type": "object", "patternProperties": {"^x": {}}, "additionalProperties": {"type": "integer"}});
    for schema in [closed, described] {
        for wire in ["anthropic", "gemini"] {
            assert!(accepts(&sent(wire, &schema).0, &json!({"x": "text"})), "{wire} {schema}");
        }
    }
}

#[test]
fn reference_to_a_changed_root_means_the_original() {
    let schema = json!({"properties": {"p": {"$ref": "#"}, "q": {"not": {"$ref": "#"}}}});
    let (sent, _) = sent("anthropic", &schema);
    // The root schema has no `type`, so it accepts each value that is not an object.
    for call in [json!({"p": 5}), json!({"q": {"q": 5}})] {
        assert!(accepts(&schema, &call) && accepts(&sent, &call), "{call}\n{sent:#}");
    }
    assert!(!accepts(&sent, &json!({"q": {}})), "{sent:#}");
}

#[test]
fn required_odd_name_without_a_declaration_is_described() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "object", "required": ["y z"]}}});
    for wire in ["anthropic", "gemini"] {
        let (parameters, text) = sent(wire, &schema);
        assert_eq!(violation(SchemaDialect::of_wire(wire).unwrap(), &parameters), None, "{wire} {parameters}");
        assert!(text.contains("y z"), "{wire} {text}");
    }
}
