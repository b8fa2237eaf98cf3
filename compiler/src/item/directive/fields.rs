//! `<inputs>` and `<outputs>`: names, types, defaults and choices, with each value converted to its field's type.

use indexmap::IndexMap;
use rye_grammar::xml::Element;
use rye_grammar::{Span, Spanned};
use serde_json::Value;

use super::FieldDecl;
use crate::diagnostics::{Diagnostics, InterfaceError, ItemError, closest};
use crate::item::xml::{check_attributes, check_children, reject_text, shorten, single_child};
use crate::plan::{FieldType, PartType, ValueParts};
use crate::semantics::value::{are_equal, parse_json};

/// Maximum number of inputs, and of outputs, of one directive.
const MAX_FIELDS: usize = 500;
/// Maximum nesting depth of declared types.
const MAX_PARTS_DEPTH: usize = 8;

/// Reads `<inputs>` (`name` is `input`) or `<outputs>` (`output`).
pub fn read(element: &Element, name: &str, found: &mut Diagnostics) -> IndexMap<String, FieldDecl> {
    check_attributes(found, element, &[]);
    check_children(found, element, &[name]);
    reject_text(found, element);
    let mut fields: IndexMap<String, FieldDecl> = IndexMap::new();
    for child in element.elements().filter(|e| e.name.node == name) {
        if fields.len() == MAX_FIELDS {
            found.push(ItemError::InvalidValue {
                what: format!("`<{name}s>`"),
                found: format!("more than {MAX_FIELDS} {name}s"),
                expected: format!("at most {MAX_FIELDS}; a field of the type `object` can hold several values"),
                span: child.span,
            });
            break;
        }
        let Some(field) = read_field(child, name, found) else { continue };
        if let Some(first) = fields.get(&field.name.node) {
            found.push(ItemError::Repeated {
                what: format!("the {name} `{}`", field.name.node),
                first: first.name.span,
                second: field.name.span,
            });
            continue;
        }
        fields.insert(field.name.node.clone(), field);
    }
    fields
}

fn read_field(element: &Element, word: &str, found: &mut Diagnostics) -> Option<FieldDecl> {
    // An output has no default: a value that the model does not return stays absent.
    let known: &[&str] = if word == "output" {
        &["name", "type", "required", "enum"]
    } else {
        &["name", "type", "required", "default", "enum"]
    };
    check_attributes(found, element, known);
    let name = field_name(element, word, found);
    let label = name.as_ref().map_or_else(|| format!("an {word}"), |name| format!("`{}`", name.node));
    // A field of an unknown type is declared as a string.
    let written_type = element.attribute("type");
    let known_type = written_type.and_then(|t| field_type(t, found));
    let kind = known_type.unwrap_or(FieldType::String);
    let written = element.attribute("required").map(|r| read_bool(r, found));
    let (required, is_marked_optional) = (written == Some(true), written == Some(false));
    // The parts of an unknown type cannot be checked.
    let has_unknown_type = written_type.is_some() && known_type.is_none();
    let parts = if has_unknown_type { ValueParts::default() } else { read_parts(element, kind, 0, found) };
    let description = element.text().node;
    let choices = element.attribute("enum").map(|e| read_choices(e, kind, &label, found)).unwrap_or_default();
    let default = element.attribute("default").and_then(|text| {
        let value = value(&text.node, kind);
        let fault = value.as_ref().and_then(|value| parts.find_fault(value));
        if let Some(fault) = fault {
            found.push(InterfaceError::Part {
                what: format!("the default of {label}{}", at_path(&fault.path)),
                problem: fault.problem.to_string(),
                span: Some(text.span),
                declared: element.attribute("type").map(|t| t.span),
            });
            return None;
        }
        let fits = value.as_ref().is_some_and(|v| is_choice(v, &choices));
        if !fits {
            found.push(InterfaceError::Type {
                what: format!("the default of {label}"),
                expected: expected(kind, &choices),
                found: format!("`{}`", shorten(&text.node)),
                span: Some(text.span),
                declared: element.attribute("type").map(|t| t.span),
            });
        }
        value.filter(|_| fits)
    });
    let span = element.span;
    Some(FieldDecl { name: name?, kind, required, is_marked_optional, default, choices, description, parts, span })
}

/// Formats the path of a part inside an input or output as the end of a message. Returns an empty text for an empty
/// path.
fn at_path(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!(" at `{path}`") }
}

/// Reads the types of the values inside an array (`<item>`) or an object (`<field>`).
fn read_parts(element: &Element, kind: FieldType, depth: usize, found: &mut Diagnostics) -> ValueParts {
    let known: &[&str] = match kind {
        FieldType::Array => &["item"],
        FieldType::Object => &["field"],
        FieldType::String | FieldType::Integer | FieldType::Number | FieldType::Boolean => &[],
    };
    check_parts(element, kind, known, found);
    let mut parts = ValueParts::default();
    if element.elements().next().is_some() && depth == MAX_PARTS_DEPTH {
        found.push(ItemError::InvalidValue {
            what: format!("`<{}>`", element.name.node),
            found: "nested this deeply".into(),
            expected: format!("at most {MAX_PARTS_DEPTH} levels of nested types"),
            span: element.span,
        });
        return parts;
    }
    if known == ["item"] {
        let item = single_child(found, element, "item");
        parts.items = item.map(|item| Box::new(read_part(item, &["type", "enum"], "an item", depth, found)));
    }
    let mut spans: IndexMap<String, Span> = IndexMap::new();
    for child in element.elements().filter(|child| known == ["field"] && child.name.node == "field") {
        if spans.len() == MAX_FIELDS {
            found.push(ItemError::InvalidValue {
                what: format!("`<{}>`", element.name.node),
                found: format!("more than {MAX_FIELDS} fields"),
                expected: format!("at most {MAX_FIELDS}"),
                span: child.span,
            });
            break;
        }
        let name = field_name(child, "field", found);
        let label = name.as_ref().map_or_else(|| "a field".to_owned(), |name| format!("`{}`", name.node));
        let field = read_part(child, &["name", "type", "required", "enum"], &label, depth, found);
        let Some(name) = name else { continue };
        if let Some(first) = spans.get(&name.node) {
            let what = format!("the field `{}`", name.node);
            found.push(ItemError::Repeated { what, first: *first, second: name.span });
            continue;
        }
        spans.insert(name.node.clone(), name.span);
        parts.fields.insert(name.node, field);
    }
    parts
}

/// Reads the type of a `<item>` or `<field>`, including the types inside it. `known` are the allowed attributes,
/// `label` names the value in messages, and `depth` counts the nesting.
fn read_part(element: &Element, known: &[&str], label: &str, depth: usize, found: &mut Diagnostics) -> PartType {
    check_attributes(found, element, known);
    let kind = element.attribute("type").and_then(|t| field_type(t, found)).unwrap_or(FieldType::String);
    PartType {
        kind,
        required: element.attribute("required").is_some_and(|required| read_bool(required, found)),
        choices: element.attribute("enum").map(|e| read_choices(e, kind, label, found)).unwrap_or_default(),
        description: element.text().node.trim().to_owned(),
        parts: read_parts(element, kind, depth + 1, found),
    }
}

/// Reports child elements that a declaration of the type `kind` must not have. The elements `<item>` and `<field>` are
/// allowed if `known` contains their name, and no other element is allowed.
fn check_parts(element: &Element, kind: FieldType, known: &[&str], found: &mut Diagnostics) {
    let is_part = |name: &str| matches!(name, "item" | "field");
    for child in element.elements().filter(|child| is_part(&child.name.node) && !known.contains(&&*child.name.node)) {
        let (word, owner) = if child.name.node == "item" { ("item", "array") } else { ("field", "object") };
        found.push(ItemError::InvalidValue {
            what: format!("`<{}>` of type `{}`", element.name.node, kind.name()),
            found: format!("`<{word}>`"),
            expected: format!("`type=\"{owner}\"`"),
            span: child.name.span,
        });
    }
    check_children(found, element, &["item", "field"]);
}

/// Returns the name of a field. If the name is missing, or if a placeholder cannot contain it, reports an error and
/// returns `None`.
fn field_name(element: &Element, word: &str, found: &mut Diagnostics) -> Option<Spanned<String>> {
    let Some(name) = element.attribute("name") else {
        found.push(ItemError::Missing {
            what: "`name`".into(),
            of: format!("`<{word}>`"),
            span: element.name.span,
            help: "add a `name` of letters, digits and `_`".into(),
        });
        return None;
    };
    if !is_name(&name.node) {
        found.push(ItemError::InvalidValue {
            what: format!("the name in `<{word}>`"),
            found: format!("`{}`", shorten(&name.node)),
            expected: "letters, digits and `_`, not starting with a digit".into(),
            span: name.span,
        });
        return None;
    }
    Some(name.clone())
}

/// Returns true if `{input:…}` can reference a field of this name.
pub fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn field_type(text: &Spanned<String>, found: &mut Diagnostics) -> Option<FieldType> {
    let kind = FieldType::ALL.into_iter().find(|kind| kind.name() == text.node.trim());
    if kind.is_none() {
        let near = closest(text.node.trim(), FieldType::ALL.map(FieldType::name));
        found.push(ItemError::InvalidValue {
            what: "`type`".into(),
            found: format!("`{}`", shorten(&text.node)),
            expected: near.map_or_else(
                || "`string`, `integer`, `number`, `boolean`, `array` or `object`".to_owned(),
                |word| format!("`{word}`"),
            ),
            span: text.span,
        });
    }
    kind
}

fn read_bool(text: &Spanned<String>, found: &mut Diagnostics) -> bool {
    match text.node.trim() {
        "true" => true,
        "false" => false,
        other => {
            found.push(ItemError::InvalidValue {
                what: "`required`".into(),
                found: format!("`{}`", shorten(other)),
                expected: "`true` or `false`".into(),
                span: text.span,
            });
            false
        }
    }
}

fn read_choices(text: &Spanned<String>, kind: FieldType, of: &str, found: &mut Diagnostics) -> Vec<Value> {
    let mut values = Vec::new();
    let (parts, empty): (Vec<&str>, Vec<&str>) = text.node.split(',').map(str::trim).partition(|part| !part.is_empty());
    if !empty.is_empty() && !parts.is_empty() {
        found.push(ItemError::InvalidValue {
            what: format!("`enum` of {of}"),
            found: format!("`{}`, with an empty choice", shorten(&text.node)),
            expected: format!("`{}`", shorten(&parts.join(","))),
            span: text.span,
        });
    }
    for part in if parts.is_empty() { &empty } else { &parts } {
        match value(part, kind) {
            Some(value) if !part.is_empty() => values.push(value),
            Some(_) | None => found.push(InterfaceError::Type {
                what: format!("a choice of {of}"),
                expected: expected(kind, &[]),
                found: if part.is_empty() { "empty".into() } else { format!("`{}`", shorten(part)) },
                span: Some(text.span),
                declared: None,
            }),
        }
    }
    report_odd_choices(text, kind, of, &values, found);
    values
}

/// Reports a choice that occurs twice, and choices that are separated by a sign other than a comma.
fn report_odd_choices(text: &Spanned<String>, kind: FieldType, of: &str, values: &[Value], found: &mut Diagnostics) {
    let span = text.span;
    let repeated =
        values.iter().enumerate().find(|(at, value)| values.iter().take(*at).any(|one| are_equal(one, value)));
    if let Some((_, value)) = repeated {
        let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let why = format!("has the choice `{shown}` twice");
        found.push(InterfaceError::Choices { of: of.to_owned(), why, help: "remove one of them".to_owned(), span });
    }
    let written = text.node.trim();
    if let Some(inside) = written.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let choices: Vec<&str> = inside.split(',').map(|part| part.trim().trim_matches(['"', '\''])).collect();
        let help = format!("write the choices without brackets and quotes: `{}`", choices.join(","));
        let why = format!("has the choices `{}`, with the brackets of a list", shorten(written));
        found.push(InterfaceError::Choices { of: of.to_owned(), why, help, span });
        return;
    }
    let [Value::String(only)] = values else { return };
    let separated = ['|', ';', '/'].into_iter().find_map(|sign| {
        let parts: Vec<&str> = only.split(sign).map(str::trim).collect();
        let are_words = parts.iter().all(|part| !part.is_empty() && !part.contains(char::is_whitespace));
        // One slash without spaces can be a part of a value, as in `text/plain`.
        let separates = sign != '/' || parts.len() > 2 || only.contains(" / ");
        (parts.len() > 1 && are_words && separates).then_some(parts)
    });
    if let Some(parts) = separated.filter(|_| kind == FieldType::String) {
        let help = format!("separate choices by commas: `{}`", parts.join(","));
        found.push(InterfaceError::Choices { of: of.to_owned(), why: format!("has one choice, `{only}`"), help, span });
        return;
    }
    let words: Vec<&str> = only.split_whitespace().collect();
    if words.len() > 1 && kind == FieldType::String {
        let why = format!("has only the choice `{}`", shorten(only));
        let help = format!("separate choices by commas: `{}`", words.join(","));
        found.push(InterfaceError::Choices { of: of.to_owned(), why, help, span });
    }
}

/// Converts a text to a value of the type `kind`; `None` if the text is not a value of this type. A value of the type
/// `string` is the text itself. For any other type, the text is parsed as JSON.
pub fn value(text: &str, kind: FieldType) -> Option<Value> {
    let value = match kind {
        FieldType::String => Some(Value::String(text.to_owned())),
        FieldType::Integer | FieldType::Number | FieldType::Boolean | FieldType::Array | FieldType::Object => {
            parse_json(text.trim()).ok()
        }
    };
    value.filter(|v| kind.fits(v))
}

fn is_choice(value: &Value, choices: &[Value]) -> bool {
    choices.is_empty() || choices.iter().any(|choice| are_equal(choice, value))
}

/// Describes the values of a field: "an integer", "one of `a`, `b`".
pub fn expected(kind: FieldType, choices: &[Value]) -> String {
    if !choices.is_empty() {
        let words = choices.iter().map(|c| format!("`{}`", c.as_str().map_or_else(|| c.to_string(), str::to_owned)));
        return format!("one of {}", words.collect::<Vec<_>>().join(", "));
    }
    match kind {
        FieldType::String => "a string",
        FieldType::Integer => "an integer",
        FieldType::Number => "a number",
        FieldType::Boolean => "`true` or `false`",
        FieldType::Array => "a JSON list",
        FieldType::Object => "a JSON object",
    }
    .to_owned()
}

/// Returns the error for a value that a field does not allow; `None` if the field allows the value. `span` is the
/// location of the value; `None` for a value that is in no file.
pub fn check(field: &FieldDecl, value: &Value, span: Option<Span>) -> Option<InterfaceError> {
    let allowed = field.kind.fits(value) && is_choice(value, &field.choices);
    if allowed {
        return field.parts.find_fault(value).map(|fault| InterfaceError::Part {
            what: format!("`{}{}`", field.name.node, fault.path),
            problem: fault.problem.to_string(),
            span,
            declared: Some(field.span),
        });
    }
    Some(InterfaceError::Type {
        what: format!("`{}`", field.name.node),
        expected: expected(field.kind, &field.choices),
        found: format!("`{}`", shorten(&value.to_string())),
        span,
        declared: Some(field.span),
    })
}
