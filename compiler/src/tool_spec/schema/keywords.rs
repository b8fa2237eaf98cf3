//! The keywords of JSON Schema 2020-12, with those of older drafts, and the shapes of their values.

use regex_syntax::ast::ErrorKind;

/// Types of JSON Schema.
pub(super) const TYPES: [&str; 7] = ["string", "integer", "number", "boolean", "array", "object", "null"];

/// Keywords that may occur at the top of a parameter schema. Any other key there suggests that `properties` was
/// forgotten.
pub(super) const TOP_LEVEL_KEYWORDS: [&str; 33] = [
    "$id",
    "$anchor",
    "$schema",
    "$comment",
    "$defs",
    "definitions",
    "$ref",
    "type",
    "title",
    "description",
    "properties",
    "required",
    "additionalProperties",
    "unevaluatedProperties",
    "patternProperties",
    "propertyNames",
    "const",
    "enum",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "default",
    "examples",
    "deprecated",
];

/// The values that a keyword of JSON Schema may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Any,
    Text,
    Bool,
    Number,
    PositiveNumber,
    Bound,
    Count,
    List,
    Names,
    NameLists,
    Type,
    Pattern,
    Reference,
    Schema,
    SchemaOrList,
    Schemas,
    SchemaMap,
    Properties,
    Dependencies,
}

/// Every keyword with the shape of its value.
pub(super) const KEYWORDS: [(&str, Shape); 62] = [
    ("$id", Shape::Text),
    ("$schema", Shape::Text),
    ("$comment", Shape::Text),
    ("$anchor", Shape::Text),
    ("$dynamicAnchor", Shape::Text),
    ("$vocabulary", Shape::Any),
    ("$ref", Shape::Reference),
    ("$dynamicRef", Shape::Reference),
    ("$recursiveRef", Shape::Reference),
    ("$recursiveAnchor", Shape::Any),
    ("$defs", Shape::SchemaMap),
    ("definitions", Shape::SchemaMap),
    ("type", Shape::Type),
    ("enum", Shape::List),
    ("const", Shape::Any),
    ("title", Shape::Text),
    ("description", Shape::Text),
    ("default", Shape::Any),
    ("examples", Shape::Any),
    ("deprecated", Shape::Bool),
    ("readOnly", Shape::Bool),
    ("writeOnly", Shape::Bool),
    ("format", Shape::Text),
    ("contentEncoding", Shape::Text),
    ("contentMediaType", Shape::Text),
    ("contentSchema", Shape::Schema),
    ("minLength", Shape::Count),
    ("maxLength", Shape::Count),
    ("pattern", Shape::Pattern),
    ("minimum", Shape::Number),
    ("maximum", Shape::Number),
    ("exclusiveMinimum", Shape::Bound),
    ("exclusiveMaximum", Shape::Bound),
    ("multipleOf", Shape::PositiveNumber),
    ("items", Shape::SchemaOrList),
    ("additionalItems", Shape::Schema),
    ("prefixItems", Shape::Schemas),
    ("unevaluatedItems", Shape::Schema),
    ("contains", Shape::Schema),
    ("minContains", Shape::Count),
    ("maxContains", Shape::Count),
    ("minItems", Shape::Count),
    ("maxItems", Shape::Count),
    ("uniqueItems", Shape::Bool),
    ("properties", Shape::Properties),
    ("patternProperties", Shape::SchemaMap),
    ("additionalProperties", Shape::Schema),
    ("unevaluatedProperties", Shape::Schema),
    ("propertyNames", Shape::Schema),
    ("required", Shape::Names),
    ("minProperties", Shape::Count),
    ("maxProperties", Shape::Count),
    ("dependentRequired", Shape::NameLists),
    ("dependentSchemas", Shape::SchemaMap),
    ("dependencies", Shape::Dependencies),
    ("allOf", Shape::Schemas),
    ("anyOf", Shape::Schemas),
    ("oneOf", Shape::Schemas),
    ("not", Shape::Schema),
    ("if", Shape::Schema),
    ("then", Shape::Schema),
    ("else", Shape::Schema),
];

/// Annotations that other systems, such as `OpenAPI` and editors, add to a schema. An annotation that resembles a
/// keyword is not reported as a misspelled keyword.
const ANNOTATIONS: [&str; 12] = [
    "id",
    "example",
    "nullable",
    "discriminator",
    "xml",
    "externalDocs",
    "propertyOrdering",
    "enumNames",
    "enumDescriptions",
    "markdownDescription",
    "errorMessage",
    "optional",
];

/// Returns the shape of a keyword's value; `None` if there is no such keyword.
pub(super) fn shape_of(key: &str) -> Option<Shape> {
    KEYWORDS.iter().find(|(keyword, _)| *keyword == key).map(|(_, shape)| *shape)
}

/// Returns the keyword that an unknown key resembles; `None` if there is none, or if the key is a known annotation.
pub(super) fn misspelled_keyword(key: &str) -> Option<&'static str> {
    if key.starts_with("x-") || ANNOTATIONS.contains(&key) {
        return None;
    }
    let plain: String = key.chars().filter(|c| !matches!(c, '_' | '-')).collect();
    let distance = |keyword: &str| {
        if keyword.eq_ignore_ascii_case(&plain) { 0 } else { strsim::damerau_levenshtein(key, keyword) }
    };
    let nearest = KEYWORDS.iter().map(|(keyword, _)| (distance(keyword), *keyword)).min();
    nearest.filter(|(distance, keyword)| *distance <= (keyword.len() / 4).clamp(1, 2)).map(|(_, keyword)| keyword)
}

/// Returns the reason why a pattern is not a valid regular expression; `None` if the pattern is valid. Lookarounds and
/// backreferences are valid.
pub(super) fn pattern_fault(pattern: &str) -> Option<String> {
    let plain = without_ecma_escapes(pattern);
    let error = regex_syntax::ast::parse::Parser::new().parse(&plain).err()?;
    let other_dialect = matches!(error.kind(), ErrorKind::UnsupportedLookAround | ErrorKind::UnsupportedBackreference);
    (!other_dialect).then(|| error.kind().to_string())
}

/// Replaces regular expression escapes that exist only in ECMAScript (`\cJ`, `\k<name>`) by a letter, so that the rest
/// of the pattern can be checked.
fn without_ecma_escapes(pattern: &str) -> String {
    let mut plain = String::with_capacity(pattern.len());
    let mut rest = pattern.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '\\' {
            plain.push(c);
            continue;
        }
        match (rest.next(), rest.peek()) {
            (Some('c'), Some(letter)) if letter.is_ascii_alphabetic() => {
                rest.next();
                plain.push('c');
            }
            (Some('k'), Some('<')) => {
                while rest.next().is_some_and(|c| c != '>') {}
                plain.push('k');
            }
            (Some('/'), _) => plain.push('/'),
            (Some(escaped), _) => plain.extend(['\\', escaped]),
            (None, _) => plain.push('\\'),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_other_dialects_are_valid() {
        for pattern in
            ["^a+$", r"^\d{3}-\w+\/$", r"^(?!\.)(?=x)[a-z]+$", r"(a)\1", r"\cJ", r"(?<n>a)\k<n>", r"\p{L}", ""]
        {
            assert_eq!(pattern_fault(pattern), None, "{pattern}");
        }
        for pattern in ["[a-z", "(", "a{2,1}", "*", r"\", "(?P<n"] {
            assert!(pattern_fault(pattern).is_some(), "{pattern}");
        }
    }

    #[test]
    fn misspelled_keyword_is_found_by_distance() {
        let table = [
            ("minlength", Some("minLength")),
            ("min_length", Some("minLength")),
            ("requird", Some("required")),
            ("propertis", Some("properties")),
            ("desciption", Some("description")),
            ("item", Some("items")),
            ("types", Some("type")),
            ("example", None),
            ("nullable", None),
            ("x-type", None),
            ("widget", None),
        ];
        for (key, meant) in table {
            assert_eq!(misspelled_keyword(key), meant, "{key}");
        }
    }
}
