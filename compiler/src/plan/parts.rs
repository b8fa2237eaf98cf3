//! Types of the values inside inputs and outputs: the elements of an array, and the fields of an object.

use indexmap::IndexMap;
use rye_grammar::condition::Segment;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{FieldType, InterfaceField};
use crate::semantics::value::are_equal;

/// The types of the values inside an array or an object; empty if any value is allowed there.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ValueParts {
    /// The type of an array's items; `None` if any value is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<Box<PartType>>,
    /// The fields of an object. If fields are declared, the object may have no other fields.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub fields: IndexMap<String, PartType>,
}

/// The type of a value inside an array or an object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartType {
    pub kind: FieldType,
    /// True for a field that every object must have; unused for the items of an array.
    pub required: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<Value>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    #[serde(default, skip_serializing_if = "ValueParts::is_empty")]
    pub parts: ValueParts,
}

/// A contradiction between a value and its declaration: a wrong type, a value that is none of the choices, or a missing
/// or undeclared field.
#[derive(Debug, Clone, PartialEq)]
pub struct PartFault {
    /// Path below the input or output: `[2].severity`; empty for the whole value.
    pub path: String,
    pub problem: PartProblem,
}

#[derive(Debug, Clone, PartialEq)]
pub enum PartProblem {
    /// The type of the value is not the declared type.
    Kind { expected: FieldType, found: Value },
    /// The value is none of the choices.
    Choice { choices: Vec<Value>, found: Value },
    /// A required field is missing.
    Missing { name: String },
    /// The object has a field that is not declared.
    Undeclared { name: String, declared: Vec<String> },
}

impl ValueParts {
    pub fn is_empty(&self) -> bool {
        self.items.is_none() && self.fields.is_empty()
    }

    /// Returns the first fault inside `value`; `None` if there is no fault. The caller has already checked the type of
    /// `value` itself.
    pub fn find_fault(&self, value: &Value) -> Option<PartFault> {
        self.find_fault_at(value, &mut String::new())
    }

    fn find_fault_at(&self, value: &Value, path: &mut String) -> Option<PartFault> {
        match (value, &self.items) {
            (Value::Array(list), Some(item)) => list.iter().enumerate().find_map(|(i, one)| {
                let length = path.len();
                path.extend(["[", i.to_string().as_str(), "]"]);
                let fault = item.find_fault_at(one, path);
                path.truncate(length);
                fault
            }),
            (Value::Object(map), _) if !self.fields.is_empty() => self.find_field_fault(map, path),
            (
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_),
                _,
            ) => None,
        }
    }

    fn find_field_fault(&self, map: &Map<String, Value>, path: &mut String) -> Option<PartFault> {
        let fault = |path: &str, problem| Some(PartFault { path: path.to_owned(), problem });
        if let Some(name) = map.keys().find(|name| !self.fields.contains_key(*name)) {
            let declared = self.fields.keys().cloned().collect();
            return fault(path, PartProblem::Undeclared { name: name.clone(), declared });
        }
        self.fields.iter().find_map(|(name, field)| match map.get(name).filter(|value| !value.is_null()) {
            None if field.required => fault(path, PartProblem::Missing { name: name.clone() }),
            None => None,
            Some(value) => {
                let length = path.len();
                path.push('.');
                path.push_str(name);
                let found = field.find_fault_at(value, path);
                path.truncate(length);
                found
            }
        })
    }

    /// Adds the types of the elements and fields to the JSON Schema of a value. `kind` is the type of the value itself.
    fn add_to_schema(&self, kind: FieldType, schema: &mut Map<String, Value>) {
        if kind == FieldType::Array {
            // Some providers reject an array without `items`.
            schema.insert("items".into(), self.items.as_ref().map_or_else(|| json!({}), |item| item.json_schema()));
        }
        if self.fields.is_empty() {
            return;
        }
        let properties: Map<String, Value> =
            self.fields.iter().map(|(name, field)| (name.clone(), field.json_schema())).collect();
        let required: Vec<&String> =
            self.fields.iter().filter(|(_, field)| field.required).map(|(name, _)| name).collect();
        schema.insert("properties".into(), Value::Object(properties));
        if !required.is_empty() {
            schema.insert("required".into(), json!(required));
        }
        schema.insert("additionalProperties".into(), Value::Bool(false));
    }

    /// Returns true if every value that fits these types also fits the types of `wider`.
    pub fn fits(&self, wider: &Self) -> bool {
        let items = match (&self.items, &wider.items) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(own), Some(wider)) => own.fits(wider),
        };
        let fields = wider.fields.is_empty()
            || (!self.fields.is_empty()
                && self.fields.iter().all(|(name, own)| wider.fields.get(name).is_some_and(|wider| own.fits(wider)))
                && wider
                    .fields
                    .iter()
                    .filter(|(_, field)| field.required)
                    .all(|(name, _)| self.fields.get(name).is_some_and(|own| own.required)));
        items && fields
    }

    /// Returns the type of the value at a path inside a value of type `kind`; `None` if any type is allowed at the
    /// path, or if no value can exist there.
    pub(crate) fn kind_at(&self, kind: FieldType, path: &[Segment]) -> Option<FieldType> {
        let Some((first, rest)) = path.split_first() else { return Some(kind) };
        let part = match first {
            Segment::Number(_) => self.items.as_deref()?,
            Segment::Name(name) => self.fields.get(name)?,
        };
        part.parts.kind_at(part.kind, rest)
    }

    /// Describes a type: `array of object {file: string, line?: integer}`.
    pub fn describe(&self, kind: FieldType) -> String {
        let mut text = kind.name().to_owned();
        if let Some(item) = &self.items {
            text.push_str(" of ");
            text.push_str(&item.describe());
        }
        if !self.fields.is_empty() {
            let field = |(name, field): (&String, &PartType)| {
                format!("{name}{}: {}", if field.required { "" } else { "?" }, field.describe())
            };
            let fields: Vec<String> = self.fields.iter().map(field).collect();
            text.extend([" {", fields.join(", ").as_str(), "}"]);
        }
        text
    }
}

impl PartType {
    fn find_fault_at(&self, value: &Value, path: &mut String) -> Option<PartFault> {
        let fault = |problem| Some(PartFault { path: path.clone(), problem });
        if !self.kind.fits(value) {
            return fault(PartProblem::Kind { expected: self.kind, found: value.clone() });
        }
        if !self.choices.is_empty() && !self.choices.iter().any(|choice| are_equal(choice, value)) {
            return fault(PartProblem::Choice { choices: self.choices.clone(), found: value.clone() });
        }
        self.parts.find_fault_at(value, path)
    }

    fn json_schema(&self) -> Value {
        json_schema(self.kind, &self.parts, &self.description, &self.choices)
    }

    fn fits(&self, wider: &Self) -> bool {
        let choices = wider.choices.is_empty()
            || (!self.choices.is_empty()
                && self.choices.iter().all(|own| wider.choices.iter().any(|choice| are_equal(choice, own))));
        self.kind.value_type().fits(wider.kind.value_type()) && choices && self.parts.fits(&wider.parts)
    }

    fn describe(&self) -> String {
        let text = self.parts.describe(self.kind);
        if self.choices.is_empty() {
            return text;
        }
        let choices: Vec<String> =
            self.choices.iter().map(|c| c.as_str().map_or_else(|| c.to_string(), str::to_owned)).collect();
        format!("{text} ({})", choices.join("|"))
    }
}

impl InterfaceField {
    /// Returns the JSON Schema of the values of an input or output.
    pub(crate) fn json_schema(&self) -> Value {
        json_schema(self.kind, &self.parts, &self.description, &self.choices)
    }

    /// Describes the type: `string`, `array of object {file: string}`.
    pub(crate) fn describe_type(&self) -> String {
        self.parts.describe(self.kind)
    }
}

fn json_schema(kind: FieldType, parts: &ValueParts, description: &str, choices: &[Value]) -> Value {
    let mut schema = Map::new();
    schema.insert("type".into(), Value::String(kind.name().into()));
    parts.add_to_schema(kind, &mut schema);
    if !description.is_empty() {
        schema.insert("description".into(), Value::String(description.to_owned()));
    }
    if !choices.is_empty() {
        schema.insert("enum".into(), Value::Array(choices.to_vec()));
    }
    Value::Object(schema)
}

/// Describes a fault. The text completes the phrase "`findings[2]` …".
impl std::fmt::Display for PartProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kind { expected, found } => write!(f, "must be {}, not `{found}`", expected.phrase()),
            Self::Choice { choices, found } => {
                let choices: Vec<String> = choices.iter().map(|choice| format!("`{choice}`")).collect();
                write!(f, "must be one of {}, not `{found}`", choices.join(", "))
            }
            Self::Missing { name } => write!(f, "lacks the field `{name}`"),
            Self::Undeclared { name, declared } => {
                let declared: Vec<String> = declared.iter().map(|name| format!("`{name}`")).collect();
                write!(f, "has the undeclared field `{name}`; declared are {}", declared.join(", "))
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn part(kind: FieldType, required: bool, parts: ValueParts) -> PartType {
        PartType { kind, required, choices: Vec::new(), description: String::new(), parts }
    }

    fn findings() -> ValueParts {
        let severity = PartType {
            choices: vec![json!("low"), json!("high")],
            ..part(FieldType::String, true, ValueParts::default())
        };
        let fields = IndexMap::from([
            ("file".to_owned(), part(FieldType::String, true, ValueParts::default())),
            ("line".to_owned(), part(FieldType::Integer, false, ValueParts::default())),
            ("severity".to_owned(), severity),
        ]);
        let object = part(FieldType::Object, true, ValueParts { items: None, fields });
        ValueParts { items: Some(Box::new(object)), fields: IndexMap::new() }
    }

    #[test]
    fn faults_carry_the_path_of_the_value() {
        let parts = findings();
        let fault = |value: Value| parts.find_fault(&value).map(|fault| format!("{} {}", fault.path, fault.problem));
        assert_eq!(fault(json!([])), None);
        assert_eq!(fault(json!([{"file": "a", "severity": "low", "line": null}])), None);
        for (value, expected) in [
            (json!(["a"]), "[0] must be an object, not `\"a\"`"),
            (json!([{"severity": "low"}]), "[0] lacks the field `file`"),
            (json!([{"file": null, "severity": "low"}]), "[0] lacks the field `file`"),
            (
                json!([{"file": "a", "severity": "low"}, {"file": "a", "severity": "bad"}]),
                "[1].severity must be one of `\"low\"`, `\"high\"`, not `\"bad\"`",
            ),
            (json!([{"file": "a", "severity": "low", "line": "1"}]), "[0].line must be an integer, not `\"1\"`"),
            (
                json!([{"file": "a", "severity": "low", "row": 1}]),
                "[0] has the undeclared field `row`; declared are `file`, `line`, `severity`",
            ),
        ] {
            assert_eq!(fault(value).unwrap(), expected);
        }
    }

    #[test]
    fn path_inside_a_value_has_the_type_of_its_part() {
        let parts = findings();
        let name = |name: &str| Segment::Name(name.into());
        let kind = |path: &[Segment]| parts.kind_at(FieldType::Array, path);
        assert_eq!(kind(&[]), Some(FieldType::Array));
        assert_eq!(kind(&[Segment::Number(0)]), Some(FieldType::Object));
        assert_eq!(kind(&[Segment::Number(3), name("line")]), Some(FieldType::Integer));
        assert_eq!(kind(&[Segment::Number(3), name("row")]), None);
        assert_eq!(kind(&[name("line")]), None);
    }

    #[test]
    fn parts_fit_only_wider_parts() {
        let (none, whole) = (ValueParts::default(), findings());
        assert!(whole.fits(&none) && whole.fits(&whole) && !none.fits(&whole));
        let mut less = findings();
        less.items.as_mut().unwrap().parts.fields.shift_remove("line");
        assert!(less.fits(&whole) && !whole.fits(&less));
        let mut optional = findings();
        optional.items.as_mut().unwrap().parts.fields.get_mut("file").unwrap().required = false;
        assert!(whole.fits(&optional) && !optional.fits(&whole));
        let mut open = findings();
        open.items.as_mut().unwrap().parts.fields.get_mut("severity").unwrap().choices.clear();
        assert!(whole.fits(&open) && !open.fits(&whole));
    }

    #[test]
    fn schema_and_description_hold_every_part() {
        let field = InterfaceField {
            kind: FieldType::Array,
            required: true,
            default: None,
            choices: Vec::new(),
            description: "defects".into(),
            parts: findings(),
        };
        assert_eq!(
            field.describe_type(),
            "array of object {file: string, line?: integer, severity: string (low|high)}"
        );
        assert_eq!(
            field.json_schema(),
            json!({"type": "array", "description": "defects", "items": {"type": "object",
                "properties": {"file": {"type": "string"}, "line": {"type": "integer"},
                    "severity": {"type": "string", "enum": ["low", "high"]}},
                "required": ["file", "severity"], "additionalProperties": false}})
        );
    }
}
