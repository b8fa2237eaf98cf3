//! Requests of `rye eval` about capabilities, coverage, risk and patterns.

use rye_grammar::ItemId;
use rye_grammar::capability::normalize;
use serde_json::{Value, json};

use super::{EvalError, EvalResult, check_keys, expect_object, expect_text, expect_texts};
use crate::semantics::capability::{CapabilityRequest, CapabilitySet, ItemType, Primary, authorize};
use crate::semantics::glob::{self, Coverage, inclusion::covers_all};
use crate::semantics::risk::RiskTable;

pub(super) fn answer_capability(body: &Value) -> EvalResult {
    let body = expect_object(body, "capability")?;
    check_keys(body, "capability", &["grants", "primary", "item_type", "item_id"])?;
    let links = body.get("grants").and_then(Value::as_array).ok_or_else(|| {
        EvalError::request("`grants` has to be a list of lists of patterns, with the leaf's list first")
    })?;
    let chain = links
        .iter()
        .map(|link| expect_texts(Some(link), "grants").map(CapabilitySet::new))
        .collect::<Result<Vec<_>, _>>()?;
    let primary = Primary::parse(expect_text(body.get("primary"), "primary")?)
        .ok_or_else(|| EvalError::new("capability", "a primary must be `execute`, `fetch` or `sign`"))?;
    let item_type = ItemType::parse(expect_text(body.get("item_type"), "item_type")?)
        .ok_or_else(|| EvalError::new("capability", "an item type must be `tool`, `directive` or `knowledge`"))?;
    let item_id = match body.get("item_id") {
        None => None,
        Some(id) => {
            let id = expect_text(Some(id), "item_id")?;
            Some(ItemId::parse(id).map_err(|error| EvalError::new("syntax::reference", error.to_string()))?)
        }
    };
    let decision = authorize(&chain, &CapabilityRequest { primary, item_type, item_id: item_id.as_ref(), space: None });
    Ok(json!({ "allow": decision.allow, "by": decision.by }))
}

pub(super) fn covers(body: &Value) -> EvalResult {
    let body = expect_object(body, "covers")?;
    check_keys(body, "covers", &["parent", "child"])?;
    let patterns = |key: &str| -> Result<Vec<String>, EvalError> {
        Ok(expect_texts(body.get(key), key)?.into_iter().map(|pattern| normalize(pattern).0).collect())
    };
    let (parent, child) = (patterns("parent")?, patterns("child")?);
    let parent: Vec<&str> = parent.iter().map(String::as_str).collect();
    let child: Vec<&str> = child.iter().map(String::as_str).collect();
    match covers_all(&parent, &child) {
        Coverage::Covered => Ok(json!({ "covered": true })),
        Coverage::Counterexample(example) => Ok(json!({ "covered": false, "example": example })),
        Coverage::TooComplex => {
            Err(EvalError::new("capability::too-complex", "the patterns are too complex to compare"))
        }
    }
}

pub(super) fn answer_risk(body: &Value, table: Option<&Value>) -> EvalResult {
    let capability = expect_text(Some(body), "risk")?;
    let table = match table {
        Some(table) => {
            RiskTable::from_value(table).map_err(|fault| EvalError::new("capability_risk", fault.to_string()))?
        }
        None => RiskTable::default(),
    };
    let risk = table.classify(capability);
    Ok(json!({ "tier": risk.tier.as_str(), "policy": risk.policy.as_str(), "pattern": risk.pattern }))
}

pub(super) fn answer_glob(body: &Value) -> EvalResult {
    let body = expect_object(body, "glob")?;
    check_keys(body, "glob", &["pattern", "text"])?;
    Ok(Value::Bool(glob::matches(expect_text(body.get("pattern"), "pattern")?, expect_text(body.get("text"), "text")?)))
}
