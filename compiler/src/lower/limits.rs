//! The limits of a thread: resolves the layers and records the source of each value (`language.md` 11).

use rye_grammar::{Sources, Span};

use super::origin;
use crate::compose::{self, LimitLayers};
use crate::diagnostics::{Diagnostics, LimitError, closest};
use crate::plan::{Origin, Origins};
use crate::semantics::limits::{
    LimitName, LimitResolutionError, LimitSetting, LimitSource, LimitValue, Limits, parse_limit_value, resolve,
};

/// The source of a limit: its origin, its span and its text.
#[derive(Clone)]
struct LimitOrigin {
    origin: Origin,
    span: Option<Span>,
    shown: String,
}

/// Returns the `spend` limit that the directive or its caller requests explicitly, in nano-dollars, regardless of the
/// parent's; `None` if there is no such request.
pub fn requested_spend(layers: &LimitLayers, overrides: &[(String, LimitValue)]) -> Option<u64> {
    let spend = |name: &str, written: &LimitValue| {
        let named = LimitName::parse(name).filter(|name| *name == LimitName::Spend)?;
        parse_limit_value(named, written).ok()
    };
    let given = overrides.iter().rev().find_map(|(name, written)| spend(name, written));
    given.or_else(|| layers.directive.iter().rev().find_map(|setting| spend(&setting.name, &setting.written)))
}

/// Returns the effective limits; `None` if a layer is invalid. Records each value's source as `limit.<name>`. Reports
/// only errors of the overrides; errors of files are reported when the file is checked.
pub fn lower(
    layers: &LimitLayers,
    overrides: &[(String, LimitValue)],
    parent: Option<&Limits>,
    sources: &Sources,
    origins: &mut Origins,
    diagnostics: &mut Diagnostics,
) -> Option<Limits> {
    let layer = |settings: &[LimitSetting<compose::DeclaredOrigin>]| -> Vec<LimitSetting<LimitOrigin>> {
        settings.iter().map(|setting| with_source(setting, sources)).collect()
    };
    let given: Vec<LimitSetting<LimitOrigin>> = overrides
        .iter()
        .map(|(name, written)| LimitSetting {
            name: name.clone(),
            written: written.clone(),
            source: LimitOrigin {
                origin: origin::origin_without_place(origin::GIVEN_WITH_CALL),
                span: None,
                shown: shown(written),
            },
        })
        .collect();
    let ceiling = LimitOrigin {
        origin: origin::origin_without_place("the parent thread has no more"),
        span: None,
        shown: "used up".to_owned(),
    };
    let parent = parent.map_or_else(Vec::new, |p| p.to_settings(&ceiling));
    match resolve(&layer(&layers.defaults), &layer(&layers.directive), &given, &parent) {
        Ok(mut resolved) => {
            let overridden: Vec<LimitName> = overrides.iter().filter_map(|(name, _)| LimitName::parse(name)).collect();
            for ceiling in layer(&layers.ceilings) {
                // Errors of the file are reported when the file is checked.
                let name = LimitName::parse(&ceiling.name).filter(|name| !overridden.contains(name));
                let Some((name, value)) =
                    name.and_then(|name| Some((name, parse_limit_value(name, &ceiling.written).ok()?)))
                else {
                    continue;
                };
                if resolved.limits.lower_to(name, value) {
                    resolved.sources.insert(name, LimitSource::Written(ceiling.source));
                }
            }
            for (name, source) in resolved.sources {
                let origin = match source {
                    LimitSource::BuiltIn => origin::origin_without_place("built in"),
                    LimitSource::Written(writer) | LimitSource::Parent(writer) => writer.origin,
                };
                origins.insert(format!("limit.{name}"), origin);
            }
            Some(resolved.limits)
        }
        Err(faults) => {
            let told_elsewhere = |fault: &LimitResolutionError<LimitOrigin>| match fault {
                LimitResolutionError::Unknown { source, .. }
                | LimitResolutionError::Invalid { source, .. }
                | LimitResolutionError::TooDeep { source } => source.span.is_some(),
            };
            diagnostics.extend(faults.into_iter().filter(|f| !told_elsewhere(f)).map(to_limit_error));
            None
        }
    }
}

fn with_source(setting: &LimitSetting<compose::DeclaredOrigin>, sources: &Sources) -> LimitSetting<LimitOrigin> {
    let source = LimitOrigin {
        origin: origin::plan_origin(sources, &setting.source),
        span: setting.source.span,
        shown: shown(&setting.written),
    };
    LimitSetting { name: setting.name.clone(), written: setting.written.clone(), source }
}

fn shown(written: &LimitValue) -> String {
    let text = match written {
        LimitValue::Json(value) => value.to_string(),
        LimitValue::Text(text) => text.clone(),
        LimitValue::Kept(value) => value.to_string(),
    };
    format!("`{}`", text.chars().take(40).collect::<String>())
}

fn to_limit_error(fault: LimitResolutionError<LimitOrigin>) -> LimitError {
    match fault {
        LimitResolutionError::Unknown { name, source } => {
            let suggestion = closest(&name, LimitName::ALL.iter().map(|n| n.as_str()));
            let known = LimitName::ALL.map(|name| name.to_string()).to_vec();
            LimitError::Unknown { name, span: source.span, suggestion, known }
        }
        LimitResolutionError::Invalid { name, why, source } => {
            let own = format!("`{name}` ");
            let why = why.strip_prefix(&own).map_or_else(|| format!("has to fit: {why}"), str::to_owned);
            LimitError::Invalid { name: name.to_string(), found: source.shown, why, span: source.span }
        }
        LimitResolutionError::TooDeep { source } => LimitError::Invalid {
            name: LimitName::Depth.to_string(),
            found: source.shown,
            why: "has to be above 0 in the parent for it to have children".to_owned(),
            span: source.span,
        },
    }
}
