//! References to environment variables in the settings of servers.

/// Fills in `${NAME}` and `${NAME:-default}` from this process's environment.
///
/// # Errors A variable without a default is not set, or a `${` is never closed.
pub(super) fn expand_variables(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, from)) = rest.split_once("${") {
        out.push_str(before);
        let Some((inside, after)) = from.split_once('}') else {
            return Err("has an unclosed `${`".to_owned());
        };
        let (name, otherwise) = inside.split_once(":-").map_or((inside, None), |(n, o)| (n, Some(o)));
        match (std::env::var(name), otherwise) {
            (Ok(value), _) => out.push_str(&value),
            (Err(_), Some(otherwise)) => out.push_str(otherwise),
            (Err(_), None) => return Err(format!("the environment variable `{name}` is not set")),
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}
