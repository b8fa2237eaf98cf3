//! Inheritance along a chain: the leaf's value, else the nearest ancestor's (`language.md` 8, step 6).

use std::sync::Arc;

use indexmap::IndexMap;
use rye_grammar::data::{Entry, Node};
use rye_grammar::{ItemId, Spanned};

use super::{DeclaredOrigin, LimitLayers, WithOrigin};
use crate::item::{Directive, FieldDecl, Items, Permissions};
use crate::plan::OriginKind;
use crate::semantics::limits::{LimitSetting, LimitValue};

/// Returns the value of the link nearest to the leaf that has a value; the origin points at the directive of the link.
pub fn inherit_value<T>(chain: &[Arc<Directive>], of: impl Fn(&Directive) -> Option<T>) -> Option<WithOrigin<T>> {
    chain
        .iter()
        .rev()
        .find_map(|d| of(d).map(|value| WithOrigin { value, origin: DeclaredOrigin::directive(d, d.span) }))
}

/// Returns the value of the link nearest to the leaf that has a value; the origin points at the value itself.
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

/// Merges fields by name, in root-first order; the declaration nearest to the leaf wins.
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

/// Returns the limits in a mapping of a settings file.
fn settings_of(id: &ItemId, node: &Node) -> Vec<LimitSetting<DeclaredOrigin>> {
    let setting = |entry: &Entry| {
        let span = Some(entry.key.span.join(entry.value.span));
        let source = DeclaredOrigin { by: OriginKind::Config(id.clone()), span };
        LimitSetting { name: entry.key.node.clone(), written: LimitValue::Json(entry.value.to_value()), source }
    };
    node.entries().iter().map(setting).collect()
}

/// The limits of the settings files: the layers of every directive below its own limits.
pub struct SettingsLimits {
    defaults: Arc<[LimitSetting<DeclaredOrigin>]>,
    ceilings: Arc<[LimitSetting<DeclaredOrigin>]>,
}

impl SettingsLimits {
    pub fn read(items: &Items<'_>) -> Self {
        let mut defaults = Vec::new();
        if let Ok(id) = ItemId::parse("agent/resilience")
            && let Some(config) = items.config(&id)
            && let Some(limits) = config.get("limits")
        {
            defaults = settings_of(&id, limits);
        }
        let mut ceilings = Vec::new();
        if let Ok(id) = ItemId::parse("agent/agent") {
            // Every space can lower a bound, so the bounds of all spaces apply.
            for (_, config) in items.config_layers(&id).iter() {
                let written = config.get("limits").and_then(|limits| limits.get("max"));
                ceilings.extend(written.into_iter().flat_map(|node| settings_of(&id, node)));
            }
        }
        Self { defaults: defaults.into(), ceilings: ceilings.into() }
    }
}

pub fn layer_limits(items: &Items<'_>, chain: &[Arc<Directive>]) -> LimitLayers {
    let SettingsLimits { defaults, ceilings } = items.settings_limits();
    let mut layers = LimitLayers { defaults: defaults.clone(), ceilings: ceilings.clone(), directive: Vec::new() };
    // Root first: a nearer link's value replaces a farther one's.
    for directive in chain {
        for limit in &directive.limits {
            let source = DeclaredOrigin::directive(directive, limit.name.span.join(limit.value.span));
            let setting = LimitSetting { name: limit.name.node.clone(), written: limit.value.node.clone(), source };
            match layers.directive.iter_mut().find(|s| s.name == setting.name) {
                Some(slot) => *slot = setting,
                None => layers.directive.push(setting),
            }
        }
    }
    layers
}
