//! The limits of a thread: merges the layers and records the source of each value (`language.md`, Limits).

use std::collections::BTreeMap;

use rye_grammar::{Sources, Span};

use super::origin;
use crate::compose::LimitLayers;
use crate::diagnostics::{Diagnostics, LimitError, closest};
use crate::item::DeclaredOrigin;
use crate::plan::{Origin, OriginCause, OriginKind, Origins};
use crate::semantics::limits::{
    LimitName, LimitResolutionError, LimitSetting, LimitSource, LimitValue, Limits, describe_value_error,
    parse_limit_value, resolve, resolve_declared,
};
use crate::semantics::money::Nanos;

/// The source of a limit: its origin in the plan, its span if a file declares it, and its description for messages.
#[derive(Clone)]
struct LimitOrigin {
    origin: Origin,
    span: Option<Span>,
    shown: String,
}

/// Returns the `spend` limit that the directive or its caller requests explicitly, in nano-dollars, regardless of the
/// parent's limit; `None` if neither requests one.
pub fn requested_spend(layers: &LimitLayers, overrides: &[(String, LimitValue)]) -> Option<u64> {
    let spend = |name: &str, written: &LimitValue| {
        let named = LimitName::parse(name).filter(|name| *name == LimitName::Spend)?;
        parse_limit_value(named, written).ok()
    };
    let given = overrides.iter().rev().find_map(|(name, written)| spend(name, written));
    given.or_else(|| layers.directive.iter().rev().find_map(|setting| spend(&setting.name, &setting.written)))
}

/// Returns the limits of a directive without overrides and without a parent, within the ceilings of `limits.max`.
/// `None` if a default or a limit of the directive is invalid; an invalid ceiling is ignored.
pub(crate) fn declared_limits(layers: &LimitLayers) -> Option<Limits> {
    let mut limits = resolve_declared(&layers.defaults, &layers.directive)?;
    for (name, value, _) in parsed_ceilings(&layers.ceilings) {
        limits.lower_to(name, value);
    }
    Some(limits)
}

/// Returns the ceiling that lowers the `spend` limit to the amount `spend`. `None` if no ceiling has this amount, or if
/// the limit without ceilings is at most this amount already.
pub(crate) fn spend_ceiling(layers: &LimitLayers, spend: Nanos) -> Option<&LimitSetting<DeclaredOrigin>> {
    let without = resolve_declared(&layers.defaults, &layers.directive)?.spend;
    let mut bounding =
        parsed_ceilings(&layers.ceilings).filter(|(name, ..)| *name == LimitName::Spend && without > spend);
    bounding.find(|(_, value, _)| Nanos::from_u64(*value) == spend).map(|(.., ceiling)| ceiling)
}

/// Returns the location of the declaration whose value applies: in the chain, else in the defaults. `is_effective`
/// returns true for the value that applies. `None` if no file declares this value, for example because a caller set the
/// limit.
pub(crate) fn span_of(layers: &LimitLayers, name: LimitName, is_effective: impl Fn(u64) -> bool) -> Option<Span> {
    let written = layers.directive.iter().chain(layers.defaults.iter()).filter(|limit| limit.name == name.as_str());
    let mut effective = written.filter(|limit| parse_limit_value(name, &limit.written).is_ok_and(&is_effective));
    effective.find_map(|limit| limit.source.span)
}

/// Returns the smallest ceiling of each limit that has a ceiling. The ceiling of `spend` is in nano-dollars.
pub(crate) fn smallest_ceilings(layers: &LimitLayers) -> BTreeMap<LimitName, u64> {
    let mut smallest: BTreeMap<LimitName, u64> = BTreeMap::new();
    for (name, value, _) in parsed_ceilings(&layers.ceilings) {
        let least = smallest.entry(name).or_insert(value);
        *least = (*least).min(value);
    }
    smallest
}

/// Returns the ceilings that can be read. The check of the settings file reports ceilings that cannot be read.
pub(super) fn parsed_ceilings<S>(
    written: &[LimitSetting<S>],
) -> impl Iterator<Item = (LimitName, u64, &LimitSetting<S>)> {
    written.iter().filter_map(|ceiling| {
        let name = LimitName::parse(&ceiling.name)?;
        Some((name, parse_limit_value(name, &ceiling.written).ok()?, ceiling))
    })
}

/// Computes the effective limits of a thread from `layers`, the overrides of the call, and the limits of the spawn
/// parent. `None` if a value other than a ceiling is invalid. Records the source of each value as the origin
/// `limit.<name>`. Reports only errors of the overrides, because errors of files are reported when the file is checked.
pub fn lower(
    layers: &LimitLayers,
    overrides: &[(String, LimitValue)],
    parent: Option<&Limits>,
    sources: &Sources,
    origins: &mut Origins,
    diagnostics: &mut Diagnostics,
) -> Option<Limits> {
    let layer = |settings: &[LimitSetting<DeclaredOrigin>]| -> Vec<LimitSetting<LimitOrigin>> {
        settings.iter().map(|setting| with_source(setting, sources)).collect()
    };
    let given: Vec<LimitSetting<LimitOrigin>> = overrides
        .iter()
        .map(|(name, written)| LimitSetting {
            name: name.clone(),
            written: written.clone(),
            source: LimitOrigin {
                origin: origin::origin_without_place(OriginCause::GivenWithCall),
                span: None,
                shown: format_limit_value(written),
            },
        })
        .collect();
    let ceiling = LimitOrigin {
        origin: origin::origin_without_place(OriginCause::ParentLimit),
        span: None,
        shown: "no depth is left".to_owned(),
    };
    let parent = parent.map_or_else(Vec::new, |p| p.to_settings(&ceiling));
    match resolve(&layer(&layers.defaults), &layer(&layers.directive), &given, &parent) {
        Ok(mut resolved) => {
            let overridden: Vec<LimitName> = overrides.iter().filter_map(|(name, _)| LimitName::parse(name)).collect();
            let bounding = layer(&layers.ceilings);
            for (name, value, ceiling) in parsed_ceilings(&bounding).filter(|(name, ..)| !overridden.contains(name)) {
                if resolved.limits.lower_to(name, value) {
                    resolved.sources.insert(name, LimitSource::Written(ceiling.source.clone()));
                }
            }
            for (name, source) in resolved.sources {
                let origin = match source {
                    LimitSource::BuiltIn => origin::origin_without_place(OriginCause::Declared(OriginKind::BuiltIn)),
                    LimitSource::Written(writer) | LimitSource::Parent(writer) => writer.origin,
                };
                origins.insert(format!("limit.{name}"), origin);
            }
            Some(resolved.limits)
        }
        Err(faults) => {
            let is_reported_elsewhere = |fault: &LimitResolutionError<LimitOrigin>| match fault {
                LimitResolutionError::Unknown { source, .. }
                | LimitResolutionError::Invalid { source, .. }
                | LimitResolutionError::TooDeep { source } => source.span.is_some(),
            };
            diagnostics.extend(faults.into_iter().filter(|f| !is_reported_elsewhere(f)).map(to_limit_error));
            None
        }
    }
}

/// Returns `limits` with the limits that `overrides` names replaced.
///
/// # Errors
/// Returns the first unknown name or invalid value.
pub fn override_limits(limits: Limits, overrides: &[(String, LimitValue)]) -> Result<Limits, LimitError> {
    let mut overridden = limits;
    for (name, written) in overrides {
        let Some(known) = LimitName::parse(name) else { return Err(unknown_limit(name.clone(), None)) };
        let value = parse_limit_value(known, written).map_err(|why| LimitError::Invalid {
            name: known.to_string(),
            found: format_limit_value(written),
            why: describe_value_error(known, &why),
            span: None,
        })?;
        overridden.set(known, value);
    }
    Ok(overridden)
}

fn unknown_limit(name: String, span: Option<Span>) -> LimitError {
    let suggestion = closest(&name, LimitName::ALL.iter().map(|n| n.as_str()));
    let known = LimitName::ALL.map(|name| name.to_string()).to_vec();
    LimitError::Unknown { name, span, suggestion, known }
}

fn with_source(setting: &LimitSetting<DeclaredOrigin>, sources: &Sources) -> LimitSetting<LimitOrigin> {
    let source = LimitOrigin {
        origin: origin::plan_origin(sources, &setting.source),
        span: setting.source.span,
        shown: format_limit_value(&setting.written),
    };
    LimitSetting { name: setting.name.clone(), written: setting.written.clone(), source }
}

pub(super) fn format_limit_value(written: &LimitValue) -> String {
    let text = match written {
        LimitValue::Json(value) => value.to_string(),
        LimitValue::Text(text) => text.clone(),
        LimitValue::Kept(value) => value.to_string(),
    };
    format!("`{}`", text.chars().take(40).collect::<String>())
}

fn to_limit_error(fault: LimitResolutionError<LimitOrigin>) -> LimitError {
    match fault {
        LimitResolutionError::Unknown { name, source } => unknown_limit(name, source.span),
        LimitResolutionError::Invalid { name, why, source } => {
            let why = describe_value_error(name, &why);
            LimitError::Invalid { name: name.to_string(), found: source.shown, why, span: source.span }
        }
        LimitResolutionError::TooDeep { source } => LimitError::Invalid {
            name: LimitName::Depth.to_string(),
            found: source.shown,
            why: "has to be above 0 in the parent thread, otherwise the parent can have no children".to_owned(),
            span: source.span,
        },
    }
}
