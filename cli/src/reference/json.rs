//! The generated part of `docs/reference/json.md`: a table for each JSON output and each type that outputs share.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::ValueEnum;
use serde_json::{Map, Value};

use super::fields::FIELD_MEANINGS;
use super::{check_page, escape_cell};
use crate::command::schema::SchemaOutput;

/// Types by name, as the schemas define them under `$defs`.
type Definitions = BTreeMap<String, Value>;

/// Returns the commands that print an output.
fn printed_by(output: SchemaOutput) -> &'static str {
    match output {
        SchemaOutput::Approvals => "`rye threads approvals`",
        SchemaOutput::Assert => "`rye assert`",
        SchemaOutput::Chat => "`rye chat --format json`, a request or a response",
        SchemaOutput::Check => "`rye check`, and `rye run` if the directive has errors",
        SchemaOutput::Detach => "`rye run --detach`",
        SchemaOutput::Doctor => "`rye doctor`",
        SchemaOutput::Error => "every command that fails before it prints another output",
        SchemaOutput::Explain => "`rye explain`",
        SchemaOutput::Hits => "`rye fetch TYPE --query …`",
        SchemaOutput::Keys => "`rye keys`",
        SchemaOutput::Plan => "`rye plan ID`",
        SchemaOutput::PlanDiff => "`rye plan ID --diff REV`",
        SchemaOutput::PlanDiffRoutes => "`rye plan ID --diff REV` if unknown inputs decide the route",
        SchemaOutput::PlanGraph => "`rye plan ID --graph`",
        SchemaOutput::PlanPrompt => "`rye plan ID --prompt`",
        SchemaOutput::PlanRoutes => "`rye plan ID` if unknown inputs decide the route",
        SchemaOutput::Proof => "`rye threads prove THREAD`",
        SchemaOutput::NoPlan => "`rye plan ID` if the directive has errors",
        SchemaOutput::Providers => "`rye providers list`",
        SchemaOutput::ProviderTest => "`rye providers test`",
        SchemaOutput::Why => "`rye why THING`",
        SchemaOutput::Diagnostic => "outputs that contain diagnostics",
        SchemaOutput::Eval => "`rye eval`, one line for each request",
        SchemaOutput::Event => "`rye run --events` and `rye threads tail`, one line for each event",
        SchemaOutput::Fetch => "`rye fetch TYPE ID`",
        SchemaOutput::Fmt => "`rye fmt`",
        SchemaOutput::Graph => "`rye graph`",
        SchemaOutput::Init => "`rye init`",
        SchemaOutput::InputSchemas => "`rye schema --inputs`",
        SchemaOutput::Repair => "`rye threads repair`",
        SchemaOutput::Lock => "`rye lock`",
        SchemaOutput::LockFile => "the file `.ai/lock.json`",
        SchemaOutput::Matrix => "`rye plan ID --all`",
        #[cfg(feature = "mcp")]
        SchemaOutput::Mcp => "`rye mcp list`",
        SchemaOutput::New => "`rye new`",
        SchemaOutput::Run => "`rye run`",
        SchemaOutput::Search => "`rye threads search`",
        SchemaOutput::Thread => "`rye threads show THREAD`",
        SchemaOutput::Threads => "`rye threads list`, `status`, `cancel`, `kill`, `chain`, `prune`",
        SchemaOutput::Signatures => "`rye sign`, `rye verify`",
        SchemaOutput::Transcript => "`rye threads transcript THREAD`",
        SchemaOutput::Trust => "`rye trust`",
        SchemaOutput::TrustedProjects => "`rye trust --list` outside of a project",
        SchemaOutput::Verify => "`rye threads verify`",
        SchemaOutput::Wait => "`rye threads wait`, `rye threads results`",
    }
}

fn format_outputs() -> String {
    let mut definitions = Definitions::new();
    let mut out = String::new();
    let mut variants: Vec<(String, SchemaOutput)> = SchemaOutput::value_variants()
        .iter()
        .filter_map(|output| Some((output.to_possible_value()?.get_name().to_owned(), *output)))
        .collect();
    variants.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (name, output) in variants {
        let schema = serde_json::to_value(output.schema()).unwrap();
        for (name, definition) in object_entries(&schema, "$defs") {
            let known = definitions.entry(name.clone()).or_insert_with(|| definition.clone());
            assert!(known == definition, "two types have the name `{name}` in schemas");
        }
        let _ = write!(out, "\n### {name}\n\nPrinted by: {}.\n", printed_by(output));
        describe(&name, &schema, &mut out);
    }
    out.push_str("\n## Shared types\n");
    for (name, definition) in &definitions {
        let _ = write!(out, "\n### type {name}\n");
        describe(name, definition, &mut out);
    }
    out
}

/// Describes a type: its meaning, and a table of its fields, values or forms.
fn describe(name: &str, schema: &Value, out: &mut String) {
    let text = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    // The page lists the commands that print an output, so a description that only names a command is left out.
    let is_new = !text.starts_with("Output of `rye") || text.contains(':');
    if is_new && !text.is_empty() {
        let _ = write!(out, "\n{}\n", text.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    let rows = format_table(name, schema);
    out.push_str(&rows);
    let forms = schema_alternatives(schema);
    if !forms.is_empty() && forms.iter().all(is_value) {
        out.push_str("\n| value | meaning |\n|---|---|\n");
        for form in forms {
            let _ = writeln!(out, "| {} | {} |", type_of(form), meaning(form));
        }
    } else if !forms.is_empty() {
        let lead = if rows.is_empty() {
            "One of these forms"
        } else {
            "The fields above, and the fields of one of these forms"
        };
        let _ = write!(out, "\n{lead}:\n");
        for (n, form) in forms.iter().enumerate() {
            let (rows, text) = (format_table(name, form), meaning(form));
            let text = if text.is_empty() && rows.is_empty() { type_of(form) } else { text };
            let colon = if text.is_empty() { "" } else { ": " };
            let _ = write!(out, "\nForm {}{colon}{text}\n{rows}", n + 1);
        }
    } else if rows.is_empty() {
        let _ = write!(out, "\nType: {}.\n", type_of(schema));
    }
}

/// Renders the fields of a type as a table; the result is empty without fields.
fn format_table(name: &str, schema: &Value) -> String {
    let mut rows = String::new();
    write_fields(name, schema, "", &mut rows);
    if rows.is_empty() { rows } else { format!("\n| field | type | meaning |\n|---|---|---|\n{rows}") }
}

/// Renders a row for each field of an object, and for each field of the unnamed objects in it.
fn write_fields(of: &str, schema: &Value, prefix: &str, rows: &mut String) {
    let required: Vec<&str> = list_elements(schema, "required").iter().filter_map(Value::as_str).collect();
    for (name, field) in object_entries(schema, "properties") {
        let path = format!("{prefix}{name}");
        let optional = if required.contains(&name.as_str()) { "" } else { ", optional" };
        let _ = writeln!(rows, "| `{path}` | {}{optional} | {} |", type_of(field), field_meaning(of, name, field));
        write_nested_fields(of, field, &path, rows);
    }
    for part in list_elements(schema, "allOf") {
        write_fields(of, part, prefix, rows);
    }
}

/// Renders the fields of an unnamed object. The object is the value of a field, an element of a list or a value of a
/// map.
fn write_nested_fields(of: &str, field: &Value, path: &str, rows: &mut String) {
    write_fields(of, field, &format!("{path}."), rows);
    if let Some(items) = field.get("items") {
        write_nested_fields(of, items, &format!("{path}[]"), rows);
    }
    if let Some(values) = field.get("additionalProperties") {
        write_nested_fields(of, values, &format!("{path}.<name>"), rows);
    }
}

/// Returns the description of a field: its doc comment, or else its entry in [`FIELD_MEANINGS`]. Empty for a constant
/// without a doc comment. Panics if a field has neither, so that no field stays without a description.
fn field_meaning(of: &str, name: &str, field: &Value) -> String {
    let own = meaning(field);
    if !own.is_empty() || is_value(field) {
        return own;
    }
    let typed = format!("{of}.{name}");
    let known = |wanted: &str| FIELD_MEANINGS.iter().find(|(known, _)| *known == wanted);
    let (_, text) = known(&typed).or_else(|| known(name)).unwrap_or_else(|| {
        panic!("`{typed}` has no meaning: add a doc comment, or a line to cli/src/reference/fields.rs");
    });
    to_sentence(text)
}

/// Returns a text as a sentence: with a capital letter at the start and a period at the end.
fn to_sentence(text: &str) -> String {
    let mut rest = text.chars();
    let first: String = rest.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}.", rest.as_str())
}

/// Returns the description of a field, escaped for a cell of a Markdown table; empty if the field has no description.
fn meaning(field: &Value) -> String {
    field.get("description").and_then(Value::as_str).map(escape_cell).unwrap_or_default()
}

/// Returns the alternatives of a schema: its `oneOf`, else its `anyOf`.
fn schema_alternatives(schema: &Value) -> &[Value] {
    let (one, any) = (list_elements(schema, "oneOf"), list_elements(schema, "anyOf"));
    if one.is_empty() { any } else { one }
}

/// Returns true if a schema lists the allowed values: a constant (`const`) or several constants (`enum`).
fn is_value(schema: &Value) -> bool {
    schema.get("const").is_some() || schema.get("enum").is_some()
}

fn type_of(schema: &Value) -> String {
    if let Some(name) = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix("#/$defs/")) {
        return format!("[{name}](#type-{})", name.to_lowercase());
    }
    if let Some(value) = schema.get("const") {
        return format!("`{value}`");
    }
    let values = list_elements(schema, "enum");
    if !values.is_empty() {
        return values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(" or ");
    }
    let forms = schema_alternatives(schema);
    if !forms.is_empty() {
        return forms.iter().map(type_of).collect::<Vec<_>>().join(" or ");
    }
    match schema.get("type") {
        Some(Value::String(name)) => named_type(name, schema),
        Some(Value::Array(names)) => {
            let names = names.iter().filter_map(Value::as_str).map(|name| named_type(name, schema));
            names.collect::<Vec<_>>().join(" or ")
        }
        Some(_) | None => "any JSON".to_owned(),
    }
}

fn named_type(name: &str, schema: &Value) -> String {
    match (name, schema.get("items"), schema.get("additionalProperties")) {
        ("array", Some(items), _) => format!("list of {}", type_of(items)),
        ("array", None, _) => "list".to_owned(),
        ("object", _, Some(values)) if values.is_object() => format!("map of {}", type_of(values)),
        ("null", ..) => "`null`".to_owned(),
        (name, ..) => name.to_owned(),
    }
}

/// Returns the entries of the object under the key `key` of `schema`; empty if there is no such object.
fn object_entries<'s>(schema: &'s Value, key: &str) -> impl Iterator<Item = (&'s String, &'s Value)> {
    schema.get(key).and_then(Value::as_object).into_iter().flat_map(Map::iter)
}

/// Returns the elements of the array under a key of a schema; empty if there is no array.
fn list_elements<'s>(schema: &'s Value, key: &str) -> &'s [Value] {
    schema.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[test]
fn json_page_matches_the_schemas() {
    check_page("json.md", &[("outputs", format_outputs())]);
}

#[test]
fn types_are_rendered_with_their_parts() {
    let schema = serde_json::json!({
        "type": "object",
        "required": ["a"],
        "properties": {
            "a": { "type": ["array", "null"], "items": { "$ref": "#/$defs/Part" }, "description": "x | y" },
            "b": { "type": "object", "additionalProperties": { "type": "integer" }, "description": "z" },
        },
    });
    let mut rows = String::new();
    write_fields("x", &schema, "", &mut rows);
    assert_eq!(
        rows,
        "| `a` | list of [Part](#type-part) or `null` | x \\| y |\n| `b` | map of integer, optional | z |\n"
    );
}
