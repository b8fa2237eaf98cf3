//! Hint about a limit that stopped a thread: the origin of the limit, the option that overrides the limit, and the
//! command that continues the conversation in a new thread.

use rye_compiler::compile::Compilation;
use rye_compiler::plan::OriginCause;

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

/// Formats the hint for `thread`, which `limit` stopped. `places` contains the origin of each limit, by the limit's
/// name.
pub fn limit_hint((thread, limit): &(String, String), places: &[(String, String)]) -> String {
    let place = places.iter().find(|(name, _)| name == limit);
    let stands = place.map(|(_, place)| {
        let change = if place == FROM_OPTION { "" } else { "override it for a run with `--limit {limit}=N`; " };
        format!("the limit `{limit}`{place}; {}", change.replace("{limit}", limit))
    });
    format!(
        "{}continue in a new thread with the full limits: `rye threads resume {thread} --message TEXT`",
        stands.unwrap_or_default()
    )
}
