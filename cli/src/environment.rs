//! The environment variables of `rye` itself, and a warning about misspelled ones: a misspelled variable has no effect.

use rye_compiler::diagnostics::closest;

/// The start of the names of `rye`'s own variables.
const PREFIX: &str = "RYE_";

/// Names of all environment variables with the prefix `RYE_` that the program reads.
pub const VARIABLES: [&str; 10] = [
    "RYE_COLOR",
    "RYE_COMPLETE",
    "RYE_FORMAT",
    "RYE_LOG",
    "RYE_MCP_TOKEN",
    "RYE_MODEL",
    "RYE_PARENT_THREAD_ID",
    "RYE_PROJECT",
    "RYE_UNATTENDED",
    "RYE_USER_SPACE",
];

/// Returns one warning for each variable with the prefix `RYE_` whose name resembles the name of a variable that the
/// program reads. A variable with any other name may belong to another program.
pub fn warn_of_misspelled(names: impl Iterator<Item = String>) -> Vec<String> {
    let foreign = names.filter(|name| name.starts_with(PREFIX) && !VARIABLES.contains(&name.as_str()));
    let mut warnings: Vec<String> = foreign
        .filter_map(|name| {
            let meant = closest(&name, VARIABLES)?;
            Some(format!("warning: the environment variable `{name}` is not read; did you mean `{meant}`?"))
        })
        .collect();
    warnings.sort();
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_nearly_a_variable_are_reported() {
        let names = ["RYE_UNATENDED", "RYE_UNATTENDED", "RYE_Project", "RYE_HOME", "RYE_RUNS", "PATH", "MY_RYE_LOG"];
        let warnings = warn_of_misspelled(names.into_iter().map(str::to_owned));
        let expected = [("RYE_Project", "RYE_PROJECT"), ("RYE_UNATENDED", "RYE_UNATTENDED")];
        let expected = expected.map(|(name, meant)| {
            format!("warning: the environment variable `{name}` is not read; did you mean `{meant}`?")
        });
        assert_eq!(warnings, expected);
    }
}
