//! Inheritance along an extends chain: the value of the last directive applies, else the value of its nearest ancestor
//! that has one (`language.md`, Composition, step 6).

use std::sync::Arc;

use indexmap::IndexMap;
use rye_grammar::Spanned;

use super::{LimitLayers, WithOrigin};
use crate::item::{DeclaredLimit, DeclaredOrigin, Directive, FieldDecl, Items, Permissions, SettingsLimits};
use crate::semantics::limits::LimitSetting;

/// Searches the chain from its last directive to its root, and returns the first value it finds, or `None` if no
/// directive has a value. The origin points at the directive with the value.
pub fn inherit_value<T>(chain: &[Arc<Directive>], of: impl Fn(&Directive) -> Option<T>) -> Option<WithOrigin<T>> {
    chain
        .iter()
        .rev()
        .find_map(|d| of(d).map(|value| WithOrigin { value, origin: DeclaredOrigin::directive(d, d.span) }))
}

/// Searches the chain from its last directive to its root, and returns the first value it finds, or `None` if no
/// directive has a value. The origin points at the value itself.
pub fn inherit_spanned_value<T: Clone>(
    chain: &[Arc<Directive>],
    of: impl Fn(&Directive) -> Option<&Spanned<T>>,
) -> Option<WithOrigin<T>> {
    chain.iter().rev().find_map(|d| {
        of(d).map(|value| WithOrigin { value: value.node.clone(), origin: DeclaredOrigin::directive(d, value.span) })
    })
}

pub fn inherit_permissions(chain: &[Arc<Directive>]) -> Option<WithOrigin<Permissions>> {
    chain.iter().rev().find_map(|d| {
        let value = d.permissions.clone()?;
        Some(WithOrigin { origin: DeclaredOrigin::directive(d, value.span), value })
    })
}

/// Merges fields by name, in the order of the chain, root first. If several directives declare a field, the declaration
/// that is nearest to the last directive of the chain applies.
pub fn merge_fields(
    chain: &[Arc<Directive>],
    of: impl Fn(&Directive) -> &IndexMap<String, FieldDecl>,
) -> IndexMap<String, WithOrigin<FieldDecl>> {
    let mut merged = IndexMap::new();
    for directive in chain {
        for (name, field) in of(directive) {
            let origin = DeclaredOrigin::directive(directive, field.span);
            merged.insert(name.clone(), WithOrigin { value: field.clone(), origin });
        }
    }
    merged
}

pub fn layer_limits(items: &Items<'_>, chain: &[Arc<Directive>]) -> LimitLayers {
    let SettingsLimits { defaults, ceilings, session: _ } = items.settings_limits();
    let mut layers = LimitLayers { defaults: defaults.clone(), ceilings: ceilings.clone(), ..LimitLayers::default() };
    // The chain is root first, so the value of a later directive replaces the value of an earlier one.
    for directive in chain {
        let setting = |limit: &DeclaredLimit| {
            let source = DeclaredOrigin::directive(directive, limit.name.span.join(limit.value.span));
            LimitSetting { name: limit.name.node.clone(), written: limit.value.node.clone(), source }
        };
        layers.session.extend(directive.session_limits.iter().map(setting));
        for setting in directive.limits.iter().map(setting) {
            match layers.directive.iter_mut().find(|s| s.name == setting.name) {
                Some(slot) => *slot = setting,
                None => layers.directive.push(setting),
            }
        }
    }
    layers
}
