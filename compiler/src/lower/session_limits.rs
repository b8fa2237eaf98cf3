//! The limits of a whole chat: the values of the settings, bounded by each `<session>` of the chain and by the ceilings
//! of `limits.max`, and replaced by the values of the call (`language.md`, Limits).

use super::cache::LowerContext;
use super::limits::{format_limit_value, parsed_ceilings};
use super::origin;
use crate::compose::Composed;
use crate::diagnostics::{Diagnostics, LimitError, closest};
use crate::item::DeclaredOrigin;
use crate::plan::settings::SessionLimits;
use crate::plan::{OriginCause, Origins, PlanLimits, PlanMode};
use crate::request::CompileRequest;
use crate::semantics::limits::{LimitName, Limits, describe_value_error, parse_limit_value};
use crate::semantics::money::Nanos;

/// The start of the keys of session limits in the origins, such as `session_limit.spend`.
pub(crate) const SESSION_LIMIT: &str = "session_limit";

/// Computes the limits of a whole chat, and records the source of each value; `None` for a run. The limits on depth and
/// on the output of a request are copied from `prompt`, the limits of one prompt. The number of spawns is not limited.
/// Reports only errors of the call, because errors of files are reported when the file is checked.
pub(crate) fn lower(
    shared: &LowerContext<'_, '_>,
    composed: &Composed,
    request: &CompileRequest,
    prompt: &Limits,
    origins: &mut Origins,
    diagnostics: &mut Diagnostics,
) -> Option<PlanLimits> {
    if request.mode == PlanMode::Run {
        return None;
    }
    let SessionLimits { turns, tokens, spend, duration_seconds } = shared.frozen_settings().values().session_limits;
    let spend = Nanos::from_u64(spend);
    let mut session = Limits { turns, tokens, spend, duration_seconds, spawns: PlanLimits::UNLIMITED, ..*prompt };
    let of_settings = &shared.items.settings_limits().session;
    let sources = shared.items.sources();
    for name in LimitName::OF_SESSION {
        let declared = of_settings.iter().find(|setting| setting.name == name.as_str());
        let source = declared.map_or_else(DeclaredOrigin::built_in, |setting| setting.source.clone());
        origins.insert(format!("{SESSION_LIMIT}.{name}"), origin::plan_origin(&sources, &source));
    }
    let given = |name: LimitName| request.session_limits.iter().any(|(written, _)| written == name.as_str());
    let bounds = parsed_ceilings(&composed.limits.session).chain(parsed_ceilings(&composed.limits.ceilings));
    for (name, most, bound) in bounds.filter(|(name, ..)| LimitName::OF_SESSION.contains(name) && !given(*name)) {
        if session.lower_to(name, most) {
            origins.insert(format!("{SESSION_LIMIT}.{name}"), origin::plan_origin(&sources, &bound.source));
        }
    }
    for (written, value) in &request.session_limits {
        let Some(name) = LimitName::parse(written).filter(|name| LimitName::OF_SESSION.contains(name)) else {
            diagnostics.push(unknown_session_limit(written.clone(), None));
            continue;
        };
        match parse_limit_value(name, value) {
            Ok(value) => session.set(name, value),
            Err(why) => diagnostics.push(LimitError::Invalid {
                name: name.to_string(),
                found: format_limit_value(value),
                why: describe_value_error(name, &why),
                span: None,
            }),
        }
        let origin = origin::origin_without_place(OriginCause::GivenWithCall);
        origins.insert(format!("{SESSION_LIMIT}.{name}"), origin);
    }
    Some(session.into())
}

/// Returns the error for a limit that a whole chat does not have.
pub(crate) fn unknown_session_limit(name: String, span: Option<rye_grammar::Span>) -> LimitError {
    let known = LimitName::OF_SESSION.map(LimitName::as_str);
    let suggestion = closest(&name, known);
    LimitError::UnknownOfSession { name, span, suggestion, known: known.map(str::to_owned).to_vec() }
}
