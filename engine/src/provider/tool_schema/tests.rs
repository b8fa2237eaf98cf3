//! Laws of the conversion: the result obeys the rules of its wire, loses no constraint and narrows nothing; the engine
//! validates each call against the original schema.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::borrow::Cow;

use proptest::prelude::*;
use rye_compiler::tool_spec::upgrade_schema;
use rye_compiler::wire_tool::{SchemaDialect, WireTool, convert_tool};
use serde_json::{Map, Value, json};

use super::corpus::{
    SchemaCase, hand_written, nested_schemas, parameter_schemas, parameters_around, schema_with_value,
};
use super::rules::violation;
use crate::tool::schema::ToolSchema;

const DIALECTS: [SchemaDialect; 2] = [SchemaDialect::Complete, SchemaDialect::Subset];

fn cases() -> Vec<SchemaCase> {
    hand_written().into_iter().chain(parameter_schemas()).chain(nested_schemas()).collect()
}

fn accepts(schema: &Value, call: &Value) -> bool {
    jsonschema::options().with_draft(jsonschema::Draft::Draft202012).build(schema).unwrap().is_valid(call)
}

/// Returns the original schema in the form against which the engine validates calls.
fn original(schema: &Value) -> Value {
    let mut schema = schema.clone();
    upgrade_schema(&mut schema);
    schema
}

fn converted(schema: &Value, dialect: SchemaDialect) -> (Value, String) {
    let wire = match dialect {
        SchemaDialect::Complete => "anthropic",
        SchemaDialect::Subset => "gemini",
    };
    let WireTool { description, parameters } = convert_tool(wire, "Does it.", schema);
    let none = || json!({"type": "object", "properties": {}});
    (parameters.map_or_else(none, Cow::into_owned), description.into_owned())
}

#[test]
fn corpus_is_varied_and_converted_alike_on_wires_of_one_dialect() {
    let mut schemas: Vec<String> = cases().iter().map(|case| case.schema.to_string()).collect();
    schemas.sort();
    schemas.dedup();
    assert!(schemas.len() >= 200, "{}", schemas.len());
    for case in cases() {
        let tool = convert_tool("anthropic", "Does it.", &case.schema);
        for wire in ["openai-chat", "openai-responses"] {
            let other = convert_tool(wire, "Does it.", &case.schema);
            assert_eq!(other.description, tool.description, "{} {wire}", case.name);
            let text = |tool: &WireTool<'_>| tool.parameters.as_deref().map(ToString::to_string);
            assert!(text(&other) == text(&tool) || tool.parameters.is_none() || other.parameters.is_none(), "{wire}");
        }
    }
}

#[test]
fn converted_schema_obeys_the_rules_of_its_wire() {
    for case in cases() {
        for dialect in DIALECTS {
            let (schema, _) = converted(&case.schema, dialect);
            assert_eq!(violation(dialect, &schema), None, "{} {dialect:?}\n{schema:#}", case.name);
        }
    }
}

#[test]
fn converted_schema_accepts_every_valid_call() {
    for case in cases() {
        for dialect in DIALECTS {
            let (schema, _) = converted(&case.schema, dialect);
            for call in &case.valid {
                assert!(accepts(&schema, call), "{} {dialect:?} {call}\n{schema:#}", case.name);
            }
        }
    }
}

#[test]
fn calls_are_checked_against_the_original_schema() {
    for case in cases() {
        let schema = ToolSchema::new(original(&case.schema));
        for call in &case.valid {
            assert_eq!(schema.check(call), Ok(()), "{} {call}", case.name);
        }
        for call in &case.invalid {
            let error = schema.check(call).expect_err(&case.name);
            assert!(matches!(error, crate::tool::schema::SchemaError::Mismatch(_)), "{}: {error}", case.name);
        }
    }
}

/// Returns the keywords and literals of a schema that constrain values.
fn constraints(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let literal = matches!(
                    key.as_str(),
                    "pattern"
                        | "minLength"
                        | "maxLength"
                        | "multipleOf"
                        | "default"
                        | "const"
                        | "minProperties"
                        | "exclusiveMinimum"
                );
                if literal && !value.is_object() && !value.is_array() {
                    found.push(value.as_str().map_or_else(|| value.to_string(), str::to_owned));
                }
                constraints(value, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| constraints(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn no_constraint_is_lost() {
    for case in cases() {
        let mut expected = Vec::new();
        constraints(&original(&case.schema), &mut expected);
        for dialect in DIALECTS {
            let (schema, description) = converted(&case.schema, dialect);
            let sent = format!("{schema}{description}").replace("\\\\", "\\").replace("\\\\", "\\");
            for constraint in &expected {
                let constraint = constraint.replace("\\\\", "\\");
                assert!(sent.contains(&constraint), "{} {dialect:?} {constraint}\n{sent}", case.name);
            }
        }
    }
}

#[test]
fn plain_schema_is_sent_as_written() {
    let schema = json!({"type": "object", "additionalProperties": false, "required": ["path"], "properties": {
        "path": {"type": "string", "minLength": 1, "format": "uri"}, "deep": {"$ref": "#/$defs/Deep"}},
        "$defs": {"Deep": {"type": "object", "properties": {"n": {"type": "integer", "exclusiveMinimum": 0}}}}});
    assert_eq!(converted(&schema, SchemaDialect::Complete), (schema, "Does it.".to_owned()));
}

#[test]
fn subset_carries_types_and_describes_the_rest() {
    let schema = json!({
        "type": "object",
        "properties": {
            "level": {"type": "integer", "enum": [1, 2]},
            "any": {},
            "code": {"type": "string", "pattern": "^[A-Z]+$", "description": "The code."},
            "model": {"anyOf": [{"$ref": "#/$defs/M"}, {"type": "null"}], "description": "The model."},
        },
        "$defs": {"M": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}},
    });
    let expected = json!({
        "type": "object",
        "properties": {
            "level": {"type": "integer", "enum": [1, 2]},
            "any": {},
            "code": {"type": "string", "description": "The code.\nRules: pattern \"^[A-Z]+$\"."},
            "model": {"type": ["object", "null"], "properties": {"x": {"type": "integer"}}, "required": ["x"], "description": "The model."},
        },
    });
    assert_eq!(converted(&schema, SchemaDialect::Subset).0, expected);
}

#[test]
fn recursion_ends_with_a_description() {
    let tree = &hand_written()[1].schema;
    let (schema, _) = converted(tree, SchemaDialect::Subset);
    let third = "/properties/root/properties/children/items/properties/children/items";
    assert_eq!(schema.pointer(third).unwrap()["properties"]["value"], json!({"type": "string"}));
    let end = schema.pointer(&format!("{third}/properties/children/items")).unwrap();
    assert_eq!(end, &json!({"type": "object", "description": "Continues like `Node` above."}));
}

#[test]
fn mutual_recursion_stays_small() {
    let names: Vec<String> = (0..12).map(|n| format!("T{n}")).collect();
    let mut schema = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/T0"}}, "$defs": {}});
    for name in &names {
        let properties: Map<String, Value> =
            names.iter().map(|other| (other.clone(), json!({"$ref": format!("#/$defs/{other}")}))).collect();
        schema["$defs"][name] = json!({"type": "object", "properties": properties});
    }
    let (converted, _) = converted(&schema, SchemaDialect::Subset);
    assert_eq!(violation(SchemaDialect::Subset, &converted), None);
    assert!(converted.to_string().len() < 400_000, "{}", converted.to_string().len());
}

#[test]
fn deep_schema_is_cut() {
    let mut schema = json!({"type": "string"});
    for _ in 0..100 {
        schema = json!({"type": "object", "properties": {"a": schema}});
    }
    for dialect in DIALECTS {
        assert_eq!(violation(dialect, &converted(&schema, dialect).0), None, "{dialect:?}");
    }
}

#[test]
fn rules_refuse_what_the_wires_refuse() {
    let both = [
        json!({}),
        json!({"type": "object"}),
        json!({"type": "object", "properties": {}, "anyOf": [{}]}),
        json!({"type": "object", "properties": {"a b": {}}}),
        json!({"type": "object", "properties": {"a": {"type": "array"}}}),
        json!({"type": "object", "properties": {"a": true}}),
        json!({"type": "object", "properties": {"a": {"minimum": "1"}}}),
    ];
    for schema in both {
        for dialect in DIALECTS {
            assert!(violation(dialect, &schema).is_some(), "{dialect:?} {schema}");
        }
    }
    let dangling = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}});
    assert!(violation(SchemaDialect::Complete, &dangling).is_some());
    for property in [
        json!({"$ref": "#"}),
        json!({"const": 1}),
        json!({"enum": [true]}),
        json!({"type": ["string", "integer"]}),
        json!({"anyOf": [{"type": "string"}], "description": "x"}),
        json!({"type": "object", "properties": {}, "required": ["x"]}),
    ] {
        let schema = json!({"type": "object", "properties": {"a": property}});
        assert!(violation(SchemaDialect::Subset, &schema).is_some(), "{schema}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn generated_schemas_convert_without_loss(
        members in prop::collection::vec((schema_with_value(), any::<bool>()), 0..4),
        combined in 0usize..4,
    ) {
        let (schema, call) = parameters_around(members, combined);
        prop_assert_eq!(ToolSchema::new(original(&schema)).check(&call), Ok(()), "{}", schema);
        for dialect in DIALECTS {
            let (converted, _) = converted(&schema, dialect);
            prop_assert_eq!(violation(dialect, &converted), None, "{:?} {}\n{}", dialect, schema, converted);
            prop_assert!(accepts(&converted, &call), "{:?} {}\n{}\n{}", dialect, schema, converted, call);
        }
    }
}
