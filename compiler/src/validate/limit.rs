//! Checks of the limits that directives and settings files declare: names and values of each declaration, before the
//! declarations are combined (`language.md` 11).

use rye_grammar::Span;

use super::is_in_project;
use super::unreachable_limits::above_project_ceiling;
use crate::diagnostics::{ConfigError, Diagnostics, LimitError, closest};
use crate::item::{Directive, Items, shorten};
use crate::lower::session_limits::unknown_session_limit;
use crate::semantics::limits::{LimitName, LimitValue, describe_value_error, parse_limit_value};

/// Checks the `limits` of `agent/resilience`.
pub fn check_defaults(items: &Items<'_>, found: &mut Diagnostics) {
    let Some(config) = items.config_by_name("agent/resilience") else { return };
    let Some(limits) = config.get("limits") else { return };
    if !matches!(limits.kind, rye_grammar::data::Kind::Map(_)) {
        found.push(ConfigError::Invalid {
            file: "agent/resilience".into(),
            key: "limits".into(),
            found: limits.describe().into(),
            expected: "a mapping of limits".into(),
            span: Some(limits.span),
        });
    }
    for entry in limits.entries() {
        let written = LimitValue::Json(entry.value.to_value());
        let span = entry.key.span.join(entry.value.span);
        check(&entry.key.node, &written, span, found);
        // The project's maximum bounds the defaults of the standard library on purpose, so only limits that the project
        // declares are reported.
        let declared = LimitName::parse(&entry.key.node).filter(|_| is_in_project(items, span));
        let declared = declared.and_then(|name| Some((name, parse_limit_value(name, &written).ok()?)));
        found.extend(
            declared.and_then(|one| above_project_ceiling(items, &items.settings_limits().ceilings, one, span)),
        );
    }
}

/// Checks the `<limits>` and the `<session>` of one directive.
pub fn check_declared(directive: &Directive, found: &mut Diagnostics) {
    for limit in &directive.limits {
        check(&limit.name.node, &limit.value.node, limit.name.span.join(limit.value.span), found);
    }
    for limit in &directive.session_limits {
        let span = limit.name.span.join(limit.value.span);
        if LimitName::OF_SESSION.iter().any(|name| name.as_str() == limit.name.node) {
            check(&limit.name.node, &limit.value.node, span, found);
        } else {
            found.push(unknown_session_limit(limit.name.node.clone(), Some(span)));
        }
    }
}

fn check(name: &str, written: &LimitValue, span: Span, found: &mut Diagnostics) {
    let Some(limit) = LimitName::parse(name) else {
        found.push(unknown_limit_error(name, span));
        return;
    };
    if let Err(why) = parse_limit_value(limit, written) {
        let why = describe_value_error(limit, &why);
        found.push(LimitError::Invalid {
            name: name.to_owned(),
            found: format_limit_value(written),
            why,
            span: Some(span),
        });
    }
}

/// Returns the error for an unknown limit, in a declaration of limits or in the `raise` action of a hook.
pub fn unknown_limit_error(name: &str, span: Span) -> LimitError {
    LimitError::Unknown {
        name: name.to_owned(),
        span: Some(span),
        suggestion: closest(name, LimitName::ALL.iter().map(|l| l.as_str())).or_else(|| affixed_limit(name)),
        known: LimitName::ALL.iter().map(ToString::to_string).collect(),
    }
}

/// Returns the limit that a word names with `max` or `limit` added, such as `turns` for `max_turn`; `None` for any
/// other word. `duration_seconds` and `output` are never returned, because such a word may stand for a value in another
/// unit.
fn affixed_limit(word: &str) -> Option<String> {
    let plain: String = word.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let is_affixed = |limit: &str| {
        let stem = limit.trim_end_matches('s');
        [limit, stem].iter().any(|name| {
            plain == format!("max{name}") || plain == format!("{name}limit") || plain == format!("{name}max")
        })
    };
    let units = |limit: &LimitName| !matches!(limit, LimitName::DurationSeconds | LimitName::Output);
    LimitName::ALL.iter().filter(|limit| units(limit)).map(|l| l.as_str()).find(|l| is_affixed(l)).map(str::to_owned)
}

fn format_limit_value(written: &LimitValue) -> String {
    let text = match written {
        LimitValue::Json(value) => value.to_string(),
        LimitValue::Text(text) => text.clone(),
        LimitValue::Kept(value) => value.to_string(),
    };
    format!("`{}`", shorten(&text))
}
