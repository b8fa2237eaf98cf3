//! The request that a plan was compiled for, complete enough to repeat it.

use std::collections::BTreeMap;

use rye_grammar::ItemId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::compile::Request;
use crate::model::ModelOverride;
use crate::semantics::limits::Written;

/// Inputs and overrides of a request. Limits inherited from a parent thread are not included.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallReport {
    /// Null if no inputs were given; the plan then treats them as unknown.
    pub inputs: Option<Map<String, Value>>,
    /// Requested limits, as written.
    pub limits: BTreeMap<String, Value>,
    pub model: Option<String>,
    pub provider: Option<String>,
}

impl CallReport {
    pub fn of(request: &Request) -> Self {
        let written = |written: &Written| match written {
            Written::Json(value) => value.clone(),
            Written::Text(text) => Value::from(text.as_str()),
            Written::Kept(kept) => Value::from(kept.to_string()),
        };
        Self {
            inputs: request.inputs.clone(),
            limits: request.limits.iter().map(|(name, value)| (name.clone(), written(value))).collect(),
            model: request.model.model.clone(),
            provider: request.model.provider.clone(),
        }
    }

    /// Rebuilds the request.
    pub fn request(&self, directive: ItemId) -> Request {
        let mut request = Request::new(directive);
        request.inputs.clone_from(&self.inputs);
        request.model = ModelOverride { model: self.model.clone(), provider: self.provider.clone() };
        let written =
            |value: &Value| value.as_str().map_or_else(|| Written::Json(value.clone()), |t| Written::Text(t.into()));
        request.limits = self.limits.iter().map(|(name, value)| (name.clone(), written(value))).collect();
        request
    }
}
