//! The compile request of a plan, complete enough to repeat the compilation.

use std::collections::BTreeMap;

use rye_grammar::ItemId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::compile::CompileRequest;
use crate::model::ModelOverride;
use crate::plan::AppendedText;
use crate::semantics::limits::LimitValue;

/// Inputs and overrides of a request. Limits inherited from a parent thread are not included.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallReport {
    /// Null if no inputs were given; the plan then treats them as unknown.
    pub inputs: Option<Map<String, Value>>,
    /// Limits that the call requests, by name, in the form in which they were written.
    pub limits: BTreeMap<String, Value>,
    /// The limits of a whole chat that the call sets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub session_limits: BTreeMap<String, Value>,
    /// The text that the call appends to the system prompt of a chat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append_system: Option<AppendedText>,
    pub model: Option<String>,
    pub provider: Option<String>,
}

impl CallReport {
    pub fn of(request: &CompileRequest) -> Self {
        let written = |written: &LimitValue| match written {
            LimitValue::Json(value) => value.clone(),
            LimitValue::Text(text) => Value::from(text.as_str()),
            LimitValue::Kept(kept) => Value::from(kept.to_string()),
        };
        Self {
            inputs: request.inputs.clone(),
            limits: request.limits.iter().map(|(name, value)| (name.clone(), written(value))).collect(),
            session_limits: request.session_limits.iter().map(|(name, value)| (name.clone(), written(value))).collect(),
            append_system: request.appended.clone(),
            model: request.model.model.clone(),
            provider: request.model.provider.clone(),
        }
    }

    /// Rebuilds the compile request from this report.
    pub fn request(&self, directive: ItemId) -> CompileRequest {
        let mut request = CompileRequest::new(directive);
        request.inputs.clone_from(&self.inputs);
        request.model = ModelOverride { provider: self.provider.clone(), ..ModelOverride::of_user(self.model.clone()) };
        let written = |value: &Value| {
            value.as_str().map_or_else(|| LimitValue::Json(value.clone()), |t| LimitValue::Text(t.into()))
        };
        request.limits = self.limits.iter().map(|(name, value)| (name.clone(), written(value))).collect();
        request.session_limits =
            self.session_limits.iter().map(|(name, value)| (name.clone(), written(value))).collect();
        request.appended.clone_from(&self.append_system);
        request
    }
}
