//! Inputs and outputs in a plan report.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::compile::Compilation;
use crate::plan::source::SourceReport;

/// An input or output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FieldReport {
    pub name: String,
    /// The type in words: `string`, `array of object {file: string, line?: integer}`.
    pub r#type: String,
    /// True if a value must be given or returned.
    pub required: bool,
    /// The default of an input; null if there is none.
    pub default: Option<Value>,
    /// The value in this plan; null if it is unknown, and for outputs.
    pub value: Option<Value>,
    /// JSON Schema of the values.
    pub schema: Value,
    /// The origin of the declaration, in words.
    pub via: String,
    pub source: Option<SourceReport>,
}

/// Returns the inputs (`kind` is `input`) or outputs (`output`) of a plan.
pub fn fields(compilation: &Compilation, kind: &str) -> Vec<FieldReport> {
    let interface = &compilation.plan.interface;
    let is_input = kind == "input";
    let declared = if is_input { &interface.inputs } else { &interface.outputs };
    let report = |(name, field): (&String, &crate::plan::InterfaceField)| {
        let (via, source) = super::report_origin(compilation, &format!("{kind}.{name}"));
        FieldReport {
            name: name.clone(),
            r#type: field.describe_type(),
            required: field.required,
            default: field.default.clone(),
            value: interface.values.get(name).filter(|_| is_input).cloned(),
            schema: field.json_schema(),
            via,
            source,
        }
    };
    declared.iter().map(report).collect()
}
