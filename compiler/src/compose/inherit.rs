//! Inheritance along a chain: the leaf's value, else the nearest ancestor's (`language.md` 8, step 6).

use std::sync::Arc;

use indexmap::IndexMap;
use rye_grammar::{ItemId, Spanned};

use super::{By, LimitLayers, Origin, WithOrigin};
use crate::item::{Directive, FieldDecl, Items, Permissions};
use crate::semantics::limits::{Setting, Written};

/// Returns the nearest link's value; the origin points at the directive itself.
pub fn nearest<T>(chain: &[Arc<Directive>], of: impl Fn(&Directive) -> Option<T>) -> Option<WithOrigin<T>> {
    chain.iter().rev().find_map(|d| of(d).map(|value| WithOrigin { value, origin: Origin::directive(d, d.span) }))
}

/// Returns the nearest link's value; the origin points at the value.
pub fn inherit_spanned_value<T: Clone>(
    chain: &[Arc<Directive>],
    of: impl Fn(&Directive) -> Option<&Spanned<T>>,
) -> Option<WithOrigin<T>> {
    chain.iter().rev().find_map(|d| {
        of(d).map(|value| WithOrigin { value: value.node.clone(), origin: Origin::directive(d, value.span) })
    })
}

pub fn permissions(chain: &[Arc<Directive>]) -> Option<WithOrigin<Permissions>> {
    chain.iter().rev().find_map(|d| {
        let value = d.permissions.clone()?;
        Some(WithOrigin { origin: Origin::directive(d, value.span), value })
    })
}

/// Merges fields by name, in root-first order; the declaration nearest to the leaf wins.
pub fn fields(
    chain: &[Arc<Directive>],
    of: impl Fn(&Directive) -> &IndexMap<String, FieldDecl>,
) -> IndexMap<String, WithOrigin<FieldDecl>> {
    let mut merged = IndexMap::new();
    for directive in chain {
        for (name, field) in of(directive) {
            let origin = Origin::directive(directive, field.span);
            merged.insert(name.clone(), WithOrigin { value: field.clone(), origin });
        }
    }
    merged
}

pub fn limits(items: &Items<'_>, chain: &[Arc<Directive>]) -> LimitLayers {
    let mut layers = LimitLayers::default();
    if let Ok(id) = ItemId::parse("agent/resilience")
        && let Some(config) = items.config(&id)
        && let Some(defaults) = config.get("limits")
    {
        layers.defaults = defaults
            .entries()
            .iter()
            .map(|e| {
                let source = Origin { by: By::Config(id.clone()), span: Some(e.key.span.join(e.value.span)) };
                Setting { name: e.key.node.clone(), written: Written::Json(e.value.to_value()), source }
            })
            .collect();
    }
    // Root first: a nearer link's value replaces a farther one's.
    for directive in chain {
        for limit in &directive.limits {
            let source = Origin::directive(directive, limit.name.span.join(limit.value.span));
            let setting = Setting { name: limit.name.node.clone(), written: limit.value.node.clone(), source };
            match layers.directive.iter_mut().find(|s| s.name == setting.name) {
                Some(slot) => *slot = setting,
                None => layers.directive.push(setting),
            }
        }
    }
    layers
}
