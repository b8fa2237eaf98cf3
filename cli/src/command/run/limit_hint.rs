//! Hint about a limit that stopped a thread: the origin of the limit, the option that overrides the limit, and the
//! command that continues the conversation in a new thread.

use rye_compiler::compile::Compilation;
use rye_compiler::plan::OriginCause;
use rye_compiler::semantics::limits::LimitName;
use rye_engine::thread_id::ThreadId;

/// Returns the limits by name, each with its origin: ` comes from .ai/directives/deploy.md:6 (declared by `deploy`)`.
pub fn limit_origins(compilation: &Compilation) -> Vec<(String, String)> {
    let named_origin = |key: &String| {
        let name = key.strip_prefix("limit.")?;
        let origin = compilation.origins.get(key)?;
        let place = match &origin.place {
            None if origin.cause == OriginCause::GivenWithCall => FROM_OPTION.to_owned(),
            Some(place) => format!(" comes from {}:{} ({})", place.file, place.line, origin.cause),
            None => format!(": {}", origin.cause),
        };
        Some((name.to_owned(), place))
    };
    compilation.origins.0.keys().filter_map(named_origin).collect()
}

/// The text that names the origin of a limit if the command line sets the limit.
const FROM_OPTION: &str = " comes from `--limit`";

/// Returns the origin of each limit, by the name of the limit, for a thread that continues `thread`. `given` contains
/// the names of the limits that the command line sets.
pub fn resumed_limit_origins(thread: &ThreadId, given: &[String]) -> Vec<(String, String)> {
    let named_origin = |name: LimitName| {
        let is_given = given.iter().any(|one| one == name.as_str());
        let place =
            if is_given { FROM_OPTION.to_owned() } else { format!(" comes from the continued thread `{thread}`") };
        (name.to_string(), place)
    };
    LimitName::ALL.into_iter().map(named_origin).collect()
}

/// Formats the hint for `thread`, which `limit` stopped. `places` contains the origin of each limit, by the limit's
/// name. `is_handed_over` is true if an earlier thread of the run has used a part of the limit.
pub fn limit_hint((thread, limit): &(String, String), places: &[(String, String)], is_handed_over: bool) -> String {
    let place = places.iter().find(|(name, _)| name == limit);
    let used = if is_handed_over { ", and the threads before the handoff have used a part of it" } else { "" };
    let stands = place.map(|(_, place)| format!("the limit `{limit}`{place}{used}; ")).unwrap_or_default();
    let value = if limit == "spend" { "DOLLARS" } else { "N" };
    format!(
        "{stands}continue in a new thread, which counts from 0 with the same limits: `rye threads resume {thread} \
         --message TEXT`; for another limit, add `--limit {limit}={value}`, which `rye run` accepts too"
    )
}
