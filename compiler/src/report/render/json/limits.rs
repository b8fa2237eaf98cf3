//! The limits of a plan in its JSON report: the limits of a run or of each prompt, and the limits of a whole chat.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::report_origin;
use crate::compile::Compilation;
use crate::lower::session_limits::SESSION_LIMIT;
use crate::plan::source::SourceReport;
use crate::semantics::limits::{LimitName, Limits};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LimitReport {
    /// The value, in dollars for `spend`.
    pub value: Value,
    pub via: String,
    pub source: Option<SourceReport>,
}

pub(crate) fn report_limits(compilation: &Compilation) -> BTreeMap<String, LimitReport> {
    report(compilation, &Limits::from(compilation.plan.limits), ("limit", &LimitName::ALL))
}

/// Returns the limits of a whole chat; empty for a run.
pub(crate) fn report_session_limits(compilation: &Compilation) -> BTreeMap<String, LimitReport> {
    let session = compilation.plan.session_limits.map(Limits::from);
    session.map(|limits| report(compilation, &limits, (SESSION_LIMIT, &LimitName::OF_SESSION))).unwrap_or_default()
}

/// Reports the limits `names`. `kind` is the start of their keys in the origins, such as `limit` in `limit.spend`.
fn report(
    compilation: &Compilation,
    limits: &Limits,
    (kind, names): (&str, &[LimitName]),
) -> BTreeMap<String, LimitReport> {
    let of_name = |name: &LimitName| {
        let (via, source) = report_origin(compilation, &format!("{kind}.{name}"));
        (name.to_string(), LimitReport { value: limits.get(*name), via, source })
    };
    names.iter().map(of_name).collect()
}
