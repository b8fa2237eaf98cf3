//! Schemas of tools for tests: hand-written schemas with valid calls, and generated schemas.

#![allow(clippy::too_many_lines, clippy::needless_pass_by_value, reason = "tables of tests")]

use proptest::prelude::*;
use serde_json::{Value, json};

/// A schema with calls that it accepts and calls that it refuses.
pub struct SchemaCase {
    pub name: String,
    pub schema: Value,
    pub valid: Vec<Value>,
    pub invalid: Vec<Value>,
}

fn case(name: &'static str, schema: Value, valid: Value, invalid: Value) -> SchemaCase {
    let list = |value: Value| if let Value::Array(list) = value { list } else { panic!("{name}: a list") };
    SchemaCase { name: name.to_owned(), schema, valid: list(valid), invalid: list(invalid) }
}

fn of(property: Value) -> Value {
    json!({"type": "object", "properties": {"a": property}, "required": ["a"]})
}

/// Returns schemas in the shapes that MCP servers and Python frameworks produce.
pub fn hand_written() -> Vec<SchemaCase> {
    let nested = json!({
        "type": "object",
        "properties": {
            "filter": {"$ref": "#/$defs/Filter", "description": "What to find."},
            "order": {"anyOf": [{"$ref": "#/$defs/Order"}, {"type": "null"}], "default": null},
            "pages": {"type": "array", "items": {"$ref": "#/$defs/Page"}},
        },
        "required": ["filter"],
        "$defs": {
            "Filter": {"type": "object", "title": "Filter", "required": ["field", "values"], "additionalProperties": false,
                "properties": {"field": {"type": "string"}, "values": {"type": "array", "items": {"type": ["string", "integer"]}}}},
            "Order": {"enum": ["up", "down"], "type": "string"},
            "Page": {"allOf": [{"$ref": "#/$defs/Sized"}, {"properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}]},
            "Sized": {"type": "object", "properties": {"size": {"type": "integer", "maximum": 100}}},
        },
    });
    let tree = json!({
        "type": "object",
        "properties": {"root": {"$ref": "#/definitions/Node"}},
        "required": ["root"],
        "definitions": {"Node": {"type": "object", "required": ["value"], "properties": {
            "value": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/definitions/Node"}}}}},
    });
    let own_tree = json!({"type": "object", "properties": {"name": {"type": "string"}, "parts": {"type": "array", "items": {"$ref": "#"}}}});
    let filter = json!({
        "type": "object",
        "properties": {"where": {"$ref": "#/$defs/Expr"}},
        "$defs": {"Expr": {"oneOf": [
            {"type": "object", "properties": {"op": {"const": "and"}, "all": {"type": "array", "items": {"$ref": "#/$defs/Expr"}}}, "required": ["op", "all"]},
            {"type": "object", "properties": {"op": {"const": "is"}, "field": {"type": "string"}, "value": {}}, "required": ["op", "field", "value"]},
        ]}},
    });
    let edits = json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": false,
        "properties": {"path": {"type": "string"}, "edits": {"type": "array", "items": {"type": "object",
            "properties": {"oldText": {"type": "string"}, "newText": {"type": "string"}}, "required": ["oldText", "newText"], "additionalProperties": false}},
            "dryRun": {"type": "boolean", "default": false}}, "required": ["path", "edits"]});
    let graph = json!({"type": "object", "properties": {"entities": {"type": "array", "items": {"type": "object", "properties": {
        "name": {"type": "string", "description": "The name of the entity"}, "entityType": {"type": "string"},
        "observations": {"type": "array", "items": {"type": "string"}}}, "required": ["name", "entityType", "observations"]}}}, "required": ["entities"]});
    let thinking = json!({"type": "object", "properties": {"thought": {"type": "string"}, "nextThoughtNeeded": {"type": "boolean"},
        "thoughtNumber": {"type": "integer", "minimum": 1}, "totalThoughts": {"type": "integer", "minimum": 1}, "branchId": {"type": "string"}},
        "required": ["thought", "nextThoughtNeeded", "thoughtNumber", "totalThoughts"]});
    let fetch = json!({"type": "object", "title": "Fetch", "description": "Parameters for fetching a URL.", "properties": {
        "url": {"type": "string", "format": "uri", "minLength": 1, "title": "Url"},
        "max_length": {"type": "integer", "default": 5000, "exclusiveMinimum": 0, "exclusiveMaximum": 1_000_000},
        "start_index": {"type": "integer", "default": 0, "minimum": 0}, "raw": {"type": "boolean"}}, "required": ["url"]});
    let git = json!({"type": "object", "properties": {"repo_path": {"type": "string"}, "files": {"type": "array", "items": {"type": "string"}},
        "since": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null}, "max_count": {"type": "integer", "default": 10}}, "required": ["repo_path"]});
    vec![
        case(
            "nested models",
            nested,
            json!([{"filter": {"field": "a", "values": ["x", 1]}, "order": null, "pages": [{"n": 1, "size": 5}]},
            {"filter": {"field": "a", "values": []}, "order": "up"}]),
            json!([{"filter": {"field": "a"}}, {"filter": {"field": "a", "values": []}, "order": "left"},
            {"filter": {"field": "a", "values": []}, "pages": [{"size": 5}]}]),
        ),
        case(
            "recursion by definition",
            tree,
            json!([{"root": {"value": "a"}}, {"root": {"value": "a", "children": [{"value": "b", "children": [{"value": "c", "children": [{"value": "d", "children": [{"value": "e"}]}]}]}]}}]),
            json!([{"root": {"value": "a", "children": [{"value": "b", "children": [{"value": "c", "children": [{"value": "d", "children": [{"value": 5}]}]}]}]}}]),
        ),
        case(
            "recursion by root",
            own_tree,
            json!([{"name": "a", "parts": [{"name": "b", "parts": []}]}]),
            json!([{"parts": [{"name": 1}]}]),
        ),
        case(
            "recursive union",
            filter,
            json!([{"where": {"op": "and", "all": [{"op": "is", "field": "a", "value": [1]}]}}]),
            json!([{"where": {"op": "or"}}]),
        ),
        case(
            "edit_file",
            edits,
            json!([{"path": "a", "edits": [{"oldText": "a", "newText": "b"}], "dryRun": true}]),
            json!([{"path": "a", "edits": [{"oldText": "a"}]}]),
        ),
        case(
            "create_entities",
            graph,
            json!([{"entities": [{"name": "a", "entityType": "b", "observations": ["c"]}]}]),
            json!([{"entities": [{"name": "a"}]}]),
        ),
        case(
            "sequentialthinking",
            thinking,
            json!([{"thought": "a", "nextThoughtNeeded": true, "thoughtNumber": 1, "totalThoughts": 2}]),
            json!([{"thought": "a"}]),
        ),
        case(
            "fetch",
            fetch,
            json!([{"url": "https://example.com", "max_length": 10}]),
            json!([{"url": ""}, {"url": "a", "max_length": 0}]),
        ),
        case(
            "git_log",
            git,
            json!([{"repo_path": ".", "since": null}, {"repo_path": ".", "since": "today", "files": ["a"]}]),
            json!([{"repo_path": ".", "since": 1}]),
        ),
        case(
            "open union at the root",
            json!({"anyOf": [{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
                {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}]}),
            json!([{"a": "x"}, {"b": 1}, {"a": "x", "b": "y"}, {"a": "x", "b": null}, {"b": 1, "a": 2}]),
            json!([{"a": 1}, {"b": "x"}, {}]),
        ),
        case(
            "union at the root with typed other properties",
            json!({"anyOf": [{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
                "additionalProperties": {"type": "boolean"}},
                {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"], "additionalProperties": false},
                {"type": "object", "properties": {"c": {"type": "null"}}, "required": ["c"], "additionalProperties": false}]}),
            json!([{"a": "x", "b": true, "c": false}, {"b": 1}, {"c": null}]),
            json!([{"a": "x", "b": 1}, {"b": 1, "c": null}]),
        ),
        case(
            "union at the root with named patterns",
            json!({"oneOf": [{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
                "patternProperties": {"^b": {"type": "array"}}, "additionalProperties": false},
                {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}]}),
            json!([{"a": "x", "b": []}, {"b": 1}, {"b": 1, "a": 2}, {"a": "x", "b": 1}]),
            json!([{"b": "x"}]),
        ),
        case(
            "property of one branch of a condition",
            json!({"type": "object", "properties": {"kind": {"type": "string"}}, "if": {"properties": {"kind": {"const": "n"}}, "required": ["kind"]},
                "then": {"properties": {"value": {"type": "integer"}}}, "else": {"properties": {"other": {"type": "string"}}}}),
            json!([{"kind": "n", "value": 1, "other": 2}, {"kind": "s", "value": "x"}]),
            json!([{"kind": "n", "value": "x"}, {"kind": "s", "other": 1}]),
        ),
        case("no properties", json!({"type": "object"}), json!([{}]), json!([])),
        case("nothing", json!({}), json!([{}]), json!([])),
        case("closed", json!({"type": "object", "additionalProperties": false}), json!([{}]), json!([{"a": 1}])),
        case(
            "free-form",
            json!({"type": "object", "additionalProperties": {"type": "integer"}}),
            json!([{"a": 1}]),
            json!([{"a": "b"}]),
        ),
        case(
            "patterned names",
            json!({"type": "object", "patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": false}),
            json!([{"x-a": "b"}]),
            json!([{"y": "b"}]),
        ),
        case(
            "root reference",
            json!({"$ref": "#/$defs/Args", "$defs": {"Args": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}}}),
            json!([{"a": "b"}]),
            json!([{}]),
        ),
        case(
            "root allOf",
            json!({"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, {"properties": {"b": {"type": "integer"}}}]}),
            json!([{"a": "x", "b": 1}]),
            json!([{"b": 1}]),
        ),
        case(
            "root anyOf",
            json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            json!([{"a": "x"}, {"b": "y"}]),
            json!([{}]),
        ),
        case(
            "root oneOf",
            json!({"oneOf": [{"type": "object", "properties": {"kind": {"const": "url"}, "url": {"type": "string"}}, "required": ["kind", "url"]},
            {"type": "object", "properties": {"kind": {"const": "file"}, "path": {"type": "string"}}, "required": ["kind", "path"]}]}),
            json!([{"kind": "url", "url": "a"}, {"kind": "file", "path": "b"}]),
            json!([{"kind": "url", "path": "b"}, {"kind": "other"}]),
        ),
        case(
            "root condition",
            json!({"type": "object", "properties": {"mode": {"enum": ["a", "b"]}}, "if": {"properties": {"mode": {"const": "a"}}, "required": ["mode"]}, "then": {"properties": {"x": {"type": "integer"}}, "required": ["x"]}}),
            json!([{"mode": "a", "x": 1}, {"mode": "b"}]),
            json!([{"mode": "a"}]),
        ),
        case(
            "root not",
            json!({"type": "object", "properties": {"a": {}, "b": {}}, "not": {"required": ["a", "b"]}}),
            json!([{"a": 1}]),
            json!([{"a": 1, "b": 2}]),
        ),
        case(
            "references into merged parts",
            json!({"allOf": [{"type": "object", "properties": {"a": {"$ref": "#/allOf/0/properties/b"}, "b": {"type": "string"}}}]}),
            json!([{"a": "x", "b": "y"}]),
            json!([{"a": 1}]),
        ),
        case(
            "odd names",
            json!({"type": "object", "additionalProperties": false, "properties": {"$filter": {"type": "string"}, "a/b": {"type": "integer"}, "plain": {"type": "boolean"}, "é": {}}, "required": ["$filter", "plain"]}),
            json!([{"$filter": "x", "plain": true, "a/b": 1}]),
            json!([{"plain": true}, {"$filter": 1, "plain": true}]),
        ),
        case(
            "odd nested names",
            of(
                json!({"type": "object", "properties": {"x y": {"type": "string"}}, "required": ["x y"], "additionalProperties": false}),
            ),
            json!([{"a": {"x y": "z"}}]),
            json!([{"a": {}}, {"a": {"x y": 1}}]),
        ),
        case(
            "a long name",
            json!({"type": "object", "properties": {"n".repeat(65): {"type": "string"}}}),
            json!([{"n".repeat(65): "x"}]),
            json!([{"n".repeat(65): 1}]),
        ),
        case(
            "draft 7 tuple",
            of(json!({"type": "array", "items": [{"type": "string"}, {"type": "integer"}], "additionalItems": false})),
            json!([{"a": ["x", 1]}]),
            json!([{"a": [1]}, {"a": ["x", 1, 2]}]),
        ),
        case(
            "draft 4 bounds",
            of(json!({"type": "integer", "minimum": 0, "exclusiveMinimum": true})),
            json!([{"a": 1}]),
            json!([{"a": 0}]),
        ),
        case(
            "undeclared required",
            json!({"type": "object", "properties": {}, "required": ["a"]}),
            json!([{"a": 1}]),
            json!([{}]),
        ),
        case(
            "parameters named like keywords",
            json!({"type": "object", "properties": {"type": {"type": "string"}, "properties": {"type": "object"}, "items": {"type": "array"}, "required": {"type": "boolean"}, "enum": {}}, "required": ["type"]}),
            json!([{"type": "a", "properties": {"b": 1}, "items": [1], "required": true, "enum": 1}]),
            json!([{"type": 1}]),
        ),
    ]
}

/// Returns schemas of a single parameter, each with values that it accepts and values that it refuses.
pub fn parameter_schemas() -> Vec<SchemaCase> {
    let rows = [
        ("untyped", json!({}), json!([1, "x", null, [], {}]), json!([])),
        ("untyped and described", json!({"description": "Anything."}), json!([1, "x", {}]), json!([])),
        ("true", json!(true), json!([1]), json!([])),
        (
            "text",
            json!({"type": "string", "minLength": 2, "maxLength": 3, "pattern": "^a"}),
            json!(["ab"]),
            json!(["a", "bb", 1]),
        ),
        ("format", json!({"type": "string", "format": "uri"}), json!(["https://a.example"]), json!([1])),
        ("date", json!({"type": "string", "format": "date-time"}), json!(["2026-01-01T00:00:00Z"]), json!([1])),
        ("lookahead", json!({"type": "string", "pattern": "^(?!\\.)[a-z.]+$"}), json!(["a.b"]), json!([".a", 1])),
        (
            "number",
            json!({"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.5}),
            json!([0.5, 2]),
            json!([0, 0.3]),
        ),
        ("integer", json!({"type": "integer", "minimum": -5, "maximum": 5}), json!([-5, 0]), json!([6, 0.5])),
        ("nullable", json!({"type": ["string", "null"]}), json!(["x", null]), json!([1])),
        (
            "several types",
            json!({"type": ["string", "integer", "boolean"], "minLength": 2}),
            json!(["xy", 1, true]),
            json!(["x", null, []]),
        ),
        ("several types and null", json!({"type": ["object", "array", "null"]}), json!([{}, [1], null]), json!([1])),
        ("text choices", json!({"enum": ["a", "b"]}), json!(["a"]), json!(["c"])),
        ("integer choices", json!({"type": "integer", "enum": [1, 2, 3]}), json!([2]), json!([4, "1"])),
        ("number choices", json!({"enum": [0.5, 1]}), json!([0.5, 1]), json!([2])),
        ("boolean choice", json!({"enum": [true]}), json!([true]), json!([false, "true"])),
        ("null choice", json!({"enum": ["a", null]}), json!(["a", null]), json!(["b"])),
        ("only null", json!({"type": "null"}), json!([null]), json!([1])),
        (
            "mixed choices",
            json!({"enum": ["a", 1, 2.5, true, null, {"x": 1}, [1]], "description": "Mixed."}),
            json!(["a", 1, 2.5, true, null, {"x": 1}, [1]]),
            json!(["b", 3, false, {}]),
        ),
        ("constant", json!({"const": "v1"}), json!(["v1"]), json!(["v2"])),
        ("constant object", json!({"const": {"a": [1]}}), json!([{"a": [1]}]), json!([{}])),
        ("array without items", json!({"type": "array"}), json!([[1, "x"]]), json!([1])),
        (
            "array of anything",
            json!({"type": "array", "items": true, "uniqueItems": true}),
            json!([[1, 2]]),
            json!([[1, 1]]),
        ),
        ("array of nothing", json!({"type": "array", "items": false}), json!([[]]), json!([[1]])),
        (
            "tuple",
            json!({"type": "array", "prefixItems": [{"type": "string"}, {"enum": [1, 2]}], "items": false, "minItems": 2}),
            json!([["x", 1]]),
            json!([["x", 3], ["x", 1, 1]]),
        ),
        (
            "contains",
            json!({"type": "array", "items": {"type": "integer"}, "contains": {"const": 7}}),
            json!([[1, 7]]),
            json!([[1]]),
        ),
        ("object without properties", json!({"type": "object"}), json!([{"x": 1}]), json!([1])),
        (
            "map",
            json!({"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}}),
            json!([{"x": ["y"]}]),
            json!([{"x": "y"}]),
        ),
        (
            "names",
            json!({"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}, "minProperties": 1}),
            json!([{"x": 1}]),
            json!([{}, {"X": 1}]),
        ),
        (
            "dependent",
            json!({"type": "object", "properties": {"x": {}, "y": {}}, "dependentRequired": {"x": ["y"]}}),
            json!([{"x": 1, "y": 1}, {"y": 1}]),
            json!([{"x": 1}]),
        ),
        (
            "optional model",
            json!({"anyOf": [{"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}, {"type": "null"}], "default": null, "title": "Model"}),
            json!([{"x": 1}, null]),
            json!([{}, 1]),
        ),
        (
            "union",
            json!({"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}], "description": "One or several."}),
            json!(["x", ["x"]]),
            json!([1]),
        ),
        (
            "union of constants",
            json!({"oneOf": [{"const": "a", "description": "first"}, {"const": "b"}]}),
            json!(["a", "b"]),
            json!(["c"]),
        ),
        (
            "constraints beside a union",
            json!({"type": "object", "properties": {"x": {"type": "integer"}}, "anyOf": [{"required": ["x"]}, {"properties": {"y": {"type": "string"}}, "required": ["y"]}]}),
            json!([{"x": 1}, {"y": "z"}]),
            json!([{}, {"x": "z"}]),
        ),
        (
            "nested unions",
            json!({"anyOf": [{"anyOf": [{"type": "string"}, {"type": "integer"}]}, {"type": "null"}]}),
            json!(["x", 1, null]),
            json!([true]),
        ),
        (
            "all of",
            json!({"allOf": [{"type": "object", "properties": {"x": {"type": "number", "minimum": 1}}}, {"properties": {"x": {"type": "integer", "maximum": 3}}, "required": ["x"]}]}),
            json!([{"x": 2}]),
            json!([{"x": 4}, {}]),
        ),
        (
            "all of patterns",
            json!({"type": "string", "allOf": [{"pattern": "a"}, {"pattern": "b"}]}),
            json!(["ab"]),
            json!(["a"]),
        ),
        ("not", json!({"type": "string", "not": {"const": "x"}}), json!(["y"]), json!(["x"])),
        (
            "condition",
            json!({"type": "object", "properties": {"k": {"type": "string"}}, "if": {"properties": {"k": {"const": "a"}}}, "then": {"required": ["v"]}}),
            json!([{"k": "a", "v": 1}, {"k": "b"}]),
            json!([{"k": "a"}]),
        ),
        (
            "annotations",
            json!({"type": "string", "deprecated": true, "readOnly": false, "x-order": 1, "example": "x", "nullable": true, "contentMediaType": "text/html"}),
            json!(["x"]),
            json!([1]),
        ),
        ("implied object", json!({"properties": {"x": {"type": "integer"}}}), json!([{"x": 1}]), json!([{"x": "y"}])),
        ("implied array", json!({"items": {"type": "integer"}}), json!([[1]]), json!([["x"]])),
    ];
    rows.into_iter()
        .map(|(name, schema, valid, invalid)| {
            let calls = |values: Value| -> Value {
                values.as_array().into_iter().flatten().map(|value| json!({ "a": value })).collect()
            };
            case(name, of(schema), calls(valid), calls(invalid))
        })
        .collect()
}

/// A name, and a function that nests a schema in the schema of a tool. The function gets a schema and a value that the
/// schema accepts. The function returns the schema of the tool, and the arguments of a call that contain the value.
type Nesting = (&'static str, fn(Value, Value) -> (Value, Value));

const NESTINGS: [Nesting; 8] = [
    ("in an object", |schema, value| {
        let object =
            json!({"type": "object", "properties": {"v": schema}, "required": ["v"], "additionalProperties": false});
        (of(object), json!({"a": {"v": value}}))
    }),
    ("in an array", |schema, value| {
        (of(json!({"type": "array", "items": schema, "minItems": 1})), json!({"a": [value]}))
    }),
    ("in a map", |schema, value| {
        (of(json!({"type": "object", "additionalProperties": schema})), json!({"a": {"k": value}}))
    }),
    ("in a tuple", |schema, value| {
        let tuple =
            json!({"type": "array", "prefixItems": [{"type": "string"}, schema], "items": false, "minItems": 2});
        (of(tuple), json!({"a": ["x", value]}))
    }),
    ("behind a reference", |schema, value| {
        let mut around = of(json!({"$ref": "#/$defs/Part", "description": "A part."}));
        around["$defs"] = json!({"Part": schema});
        (around, json!({"a": value}))
    }),
    ("beside a constraint", |schema, value| {
        (of(json!({"allOf": [schema, {"description": "Both."}]})), json!({"a": value}))
    }),
    ("in a branch", |schema, value| {
        let branch =
            json!({"type": "object", "properties": {"kind": {"const": "v"}, "v": schema}, "required": ["kind", "v"]});
        let other = json!({"type": "object", "properties": {"kind": {"const": "w"}}, "required": ["kind"]});
        (of(json!({"oneOf": [branch, other]})), json!({"a": {"kind": "v", "v": value}}))
    }),
    ("deep", |schema, value| {
        let inner =
            json!({"type": "object", "properties": {"list": {"type": "array", "items": schema}}, "required": ["list"]});
        (
            of(json!({"type": "object", "properties": {"one": inner}, "required": ["one"]})),
            json!({"a": {"one": {"list": [value]}}}),
        )
    }),
];

/// Returns every schema of [`parameter_schemas`] nested in each place below the root of a parameter's schema.
pub fn nested_schemas() -> Vec<SchemaCase> {
    let mut found = Vec::new();
    for case in parameter_schemas() {
        for (place, around) in NESTINGS {
            let inner = case.schema["properties"]["a"].clone();
            let calls = |list: &[Value]| list.iter().map(|call| around(inner.clone(), call["a"].clone()).1).collect();
            found.push(SchemaCase {
                name: format!("{} {place}", case.name),
                schema: around(inner.clone(), Value::Null).0,
                valid: calls(&case.valid),
                invalid: calls(&case.invalid),
            });
        }
    }
    found
}

/// Returns a strategy that generates a schema for one value, and a value that the schema accepts.
pub fn schema_with_value() -> impl Strategy<Value = (Value, Value)> {
    let leaf = prop_oneof![
        (0usize..4).prop_map(|n| (json!({"type": "string", "minLength": n, "pattern": "^x*$"}), json!("x".repeat(n)))),
        (-3i64..4).prop_map(|n| (json!({"type": "integer", "minimum": n, "exclusiveMaximum": n + 2}), json!(n))),
        (1u32..9).prop_map(|n| (json!({"type": "number", "multipleOf": 0.5}), json!(f64::from(n) / 2.0))),
        any::<bool>().prop_map(|value| (json!({"type": "boolean"}), json!(value))),
        Just((json!({"type": "null"}), Value::Null)),
        Just((json!({}), json!({"deep": [1, null]}))),
        Just((json!(true), json!("free"))),
        Just((json!({"type": "array"}), json!([1, "x"]))),
        Just((json!({"type": "object"}), json!({"k": 1}))),
        Just((json!({"$ref": "#/$defs/Tree"}), json!({"value": 1, "next": {"next": null}}))),
        Just((json!({"$ref": "#/$defs/Choice", "description": "A choice."}), json!(2))),
        (0usize..5).prop_map(|n| {
            let values = [json!("a"), json!(1), json!(1.5), json!(null), json!(false)];
            (json!({ "enum": values }), values[n].clone())
        }),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            (inner.clone(), 0usize..3).prop_map(|((schema, value), n)| {
                (json!({"type": "array", "items": schema, "maxItems": 4}), Value::Array(vec![value; n]))
            }),
            prop::collection::vec((inner.clone(), any::<bool>()), 0..3).prop_map(object),
            prop::collection::vec(inner.clone(), 1..3).prop_map(|parts| {
                let schemas: Vec<Value> = parts.iter().map(|(schema, _)| schema.clone()).collect();
                (json!({ "anyOf": schemas }), parts[0].1.clone())
            }),
            (inner.clone(), inner.clone()).prop_map(|((one, first), (two, second))| {
                let part = |name: &str, schema: Value| {
                    json!({"type": "object", "properties": {name: schema}, "required": [name]})
                };
                (json!({"allOf": [part("l", one), part("r", two)]}), json!({"l": first, "r": second}))
            }),
            inner.clone().prop_map(|(schema, value)| (json!({"anyOf": [schema, {"type": "null"}]}), value)),
            (inner.clone(), inner).prop_map(|((one, first), (two, second))| {
                (json!({"type": "array", "prefixItems": [one, two], "items": false}), json!([first, second]))
            }),
        ]
    })
}

fn object(members: Vec<((Value, Value), bool)>) -> (Value, Value) {
    let names = ["name", "$odd name", "type"];
    let (mut properties, mut required, mut value) = (json!({}), Vec::new(), json!({}));
    for (name, ((schema, sample), needed)) in names.iter().zip(members) {
        properties[*name] = schema;
        value[*name] = sample;
        if needed {
            required.push(*name);
        }
    }
    (json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false}), value)
}

/// Returns the schema of all parameters of a tool, and a value that this schema accepts. An element of `members` holds
/// the schema of one parameter, a value of the parameter, and true if the parameter is required. `combined` selects the
/// keyword that is put around the schema: `allOf` (1), `anyOf` (2), `oneOf` (3) or none (0).
pub fn parameters_around(members: Vec<((Value, Value), bool)>, combined: usize) -> (Value, Value) {
    let (mut schema, value) = object(members);
    let combination = ["allOf", "anyOf", "oneOf"].get(combined.wrapping_sub(1));
    if let Some(key) = combination {
        schema = json!({ *key: [schema] });
    }
    schema["$defs"] = json!({
        "Tree": {"type": "object", "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "null"}]}}},
        "Choice": {"enum": [1, 2, 3], "type": "integer"},
    });
    (schema, value)
}
