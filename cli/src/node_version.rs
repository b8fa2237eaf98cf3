//! The version of the installed `node`, which runs JavaScript and TypeScript tools. TypeScript tools need version 22.13
//! or newer.

use std::path::Path;
use std::process::{Command, Stdio};

use rye_compiler::world::{ItemKind, Space, World};
use rye_engine::process::find_program;

/// The first version of node, as major and minor number, that strips the types of TypeScript.
const FIRST_FOR_TYPESCRIPT: (u64, u64) = (22, 13);
const NEED: &str = "TypeScript tools need node 22.13 or newer";

/// Returns the reason why TypeScript tools cannot run with a node that prints `printed` as its version; `None` if they
/// can, or if the version cannot be read.
pub fn typescript_problem(printed: &str) -> Option<String> {
    let mut numbers = printed.trim().strip_prefix('v')?.split('.').map(str::parse);
    let version: (u64, u64) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    (version < FIRST_FOR_TYPESCRIPT).then(|| format!("{NEED}; `node` is {}", printed.trim()))
}

/// Starts the installed node and returns the reason why TypeScript tools cannot run; `None` if they can, or if the
/// version cannot be read.
pub fn installed_typescript_problem(project: &Path) -> Option<String> {
    let Some(program) = find_program("node", project) else {
        return Some(format!("{NEED}; `node` is not in `PATH`"));
    };
    let started = Command::new(program).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output();
    started.ok().and_then(|output| typescript_problem(&String::from_utf8_lossy(&output.stdout)))
}

/// Returns the reason why the TypeScript tools of the project and the user cannot run on this machine. `None` if they
/// can run, or if there are no such tools.
pub fn problem_of_tools(world: &dyn World, project: &Path) -> Option<String> {
    let tools = world.list(ItemKind::Tool).unwrap_or_default();
    let first = tools.into_iter().find(|entry| entry.space != Space::System && entry.path.ends_with(".ts"))?;
    installed_typescript_problem(project).map(|problem| format!("{problem}: `{}` cannot run on this machine", first.id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_22_13_cannot_run_typescript() {
        for (version, is_problem) in [
            ("v20.20.2\n", true),
            ("v22.12.0", true),
            ("v22.13.0", false),
            ("v24.0.1", false),
            ("20", false),
            ("", false),
        ] {
            assert_eq!(typescript_problem(version).is_some(), is_problem, "{version}");
        }
    }
}
