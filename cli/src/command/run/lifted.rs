//! What is said of a limit that stopped a thread: where it stands, and how the thread goes on beyond it.

use rye_compiler::compile::Compilation;

/// Limits by name, each with where it stands: `.ai/directives/deploy.md:6 (declared by `deploy`)`.
pub fn places(compilation: &Compilation) -> Vec<(String, String)> {
    let told = |key: &String| {
        let name = key.strip_prefix("limit.")?;
        let origin = compilation.origins.get(key)?;
        let place = match &origin.place {
            Some(place) => format!("{}:{} ({})", place.file, place.line, origin.because),
            None => origin.because.clone(),
        };
        Some((name.to_owned(), place))
    };
    compilation.origins.0.keys().filter_map(told).collect()
}

/// What to say of a thread that stopped at this limit.
pub fn told((thread, limit): &(String, String), places: &[(String, String)]) -> String {
    let place = places.iter().find(|(name, _)| name == limit);
    let stands = place.map(|(_, place)| {
        format!("the limit `{limit}` comes from {place}; `--limit {limit}=N` sets another for one run; ")
    });
    format!(
        "{}`rye threads resume {thread} --message TEXT` goes on from here with new limits",
        stands.unwrap_or_default()
    )
}
