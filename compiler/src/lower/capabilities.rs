//! The capabilities of a directive: declared by its chain or inherited from the spawner (`language.md`, Capabilities).

use std::collections::BTreeMap;

use rye_grammar::Sources;

use super::cache::LowerContext;
use super::origin;
use crate::compose::{Composed, WithOrigin};
use crate::item::Permissions;
use crate::plan::{Capabilities, Grant, Origin, OriginCause, Origins};
use crate::semantics::risk::Policy;

/// Returns the initial capabilities of a thread. If the chain declares no permissions, these are the capabilities of
/// the parent; a thread without a parent then has none.
pub(crate) fn initial_capabilities(composed: &Composed, parent: Option<&Capabilities>) -> Capabilities {
    let Some(WithOrigin { value: permissions, .. }) = &composed.permissions else {
        let mut inherited = parent.cloned().unwrap_or_else(|| Capabilities {
            declared: false,
            from: None,
            grants: Vec::new(),
            acknowledged: BTreeMap::new(),
        });
        inherited.declared = false;
        inherited.from = None;
        return inherited;
    };
    let from = composed.chain.iter().rev().find(|link| link.permissions.is_some()).map(|link| link.id().clone());
    Capabilities {
        declared: true,
        from,
        grants: merge_grants(permissions),
        acknowledged: acknowledged_risks(permissions),
    }
}

/// Returns the result of `initial_capabilities`, and adds the origin of each grant to `origins`.
pub fn lower(
    composed: &Composed,
    parent: Option<&Capabilities>,
    sources: &Sources,
    origins: &mut Origins,
) -> Capabilities {
    let set = initial_capabilities(composed, parent);
    let Some(WithOrigin { value: permissions, origin: by }) = &composed.permissions else {
        for grant in &set.grants {
            origins.insert(
                format!("capability.{}", grant.pattern),
                origin::origin_without_place(OriginCause::InheritedGrant),
            );
        }
        return set;
    };
    let from = origin::plan_origin(sources, by);
    for grant in &permissions.grants {
        let place = origin::plan_place(sources, grant.span);
        let key = format!("capability.{}", grant.pattern.0);
        if origins.get(&key).is_none() {
            origins.insert(key, Origin { place, cause: from.cause.clone() });
        }
    }
    set
}

/// Returns the grants in file order. Grants of the same pattern are merged.
pub(crate) fn merge_grants(permissions: &Permissions) -> Vec<Grant> {
    let mut grants: Vec<Grant> = Vec::new();
    for declared in &permissions.grants {
        let known = grants.iter_mut().find(|g| g.pattern == declared.pattern.0);
        if let Some(grant) = known {
            grant.net.extend(declared.net.iter().filter(|n| !grant.net.contains(n)).cloned().collect::<Vec<_>>());
            grant.write.extend(declared.write.iter().filter(|w| !grant.write.contains(w)).cloned().collect::<Vec<_>>());
        } else {
            let pattern = declared.pattern.0.clone();
            grants.push(Grant { pattern, net: declared.net.clone(), write: declared.write.clone() });
        }
    }
    grants
}

fn acknowledged_risks(permissions: &Permissions) -> BTreeMap<String, String> {
    permissions.acknowledged.iter().map(|a| (a.risk.node.clone(), a.why.clone())).collect()
}

/// Returns the grants whose risk requires an acknowledgement that is missing.
pub(crate) fn unacknowledged_grants<'c>(
    capabilities: &'c Capabilities,
    shared: &LowerContext<'_, '_>,
) -> Vec<&'c Grant> {
    let needs_approval = |grant: &&Grant| {
        let risk = shared.risk_of(&grant.pattern);
        risk.policy == Policy::AcknowledgeRequired && !capabilities.acknowledged.contains_key(risk.tier.as_str())
    };
    capabilities.grants.iter().filter(needs_approval).collect()
}

/// Returns the capabilities in one line, for the fact `capabilities_summary`.
pub fn capabilities_summary(capabilities: &Capabilities) -> String {
    if capabilities.grants.is_empty() {
        return "none".to_owned();
    }
    let patterns: Vec<&str> = capabilities.grants.iter().map(|g| g.pattern.as_str()).collect();
    patterns.join(", ")
}
