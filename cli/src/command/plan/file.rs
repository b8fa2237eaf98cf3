//! Plan files: the output of `rye plan ID --format json`.

use rye_compiler::report::render::json::PlanReport;
use rye_compiler::semantics::value::parse_json;
use rye_engine::rooted_dir::read_user_file;

use crate::CommandError;

/// Maximum size of a plan file in bytes.
const MAX_PLAN_BYTES: u64 = 64 << 20;

/// Reads the plan in a plan file. Fails if the file is too large, or does not contain a plan as JSON.
pub fn read_plan(path: &str) -> Result<PlanReport, CommandError> {
    let shown = path.escape_debug();
    let read = read_user_file(path.as_ref(), MAX_PLAN_BYTES);
    let text = read.map_err(|error| CommandError::usage(format!("the plan `{shown}` cannot be read: {error}")))?;
    let value = parse_json(text.trim_start_matches('\u{feff}'))
        .map_err(|error| CommandError::usage(format!("`{shown}` is not valid JSON: {error}")))?;
    serde_json::from_value(value).map_err(|error| {
        CommandError::usage(format!("`{shown}` is not a plan: {error}"))
            .with_help("write a plan with `rye plan ID --format json`")
    })
}
