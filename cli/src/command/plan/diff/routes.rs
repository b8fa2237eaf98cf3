//! `rye plan ID --diff REV` if the route depends on unknown inputs: compares the plans of each route.

use rye_compiler::diagnostics::Checked;
use rye_compiler::report::alternatives::{RoutedPlan, compile_routes, describe_when};
use rye_compiler::report::diff::{RouteDiff, RoutedSide, diff_routes};
use rye_compiler::report::render::diff::format_markdown;
use rye_compiler::world::{ItemKind, World};
use rye_grammar::{ItemId, Sources};
use schemars::JsonSchema;
use serde::Serialize;

use super::print;
use crate::CommandError;
use crate::command::plan::PlanArgs;
use crate::exit::Exit;
use crate::options::{Format, Global, OutputFormat};
use crate::report::{Printer, printable};

/// Output of `rye plan ID --diff REV --format json` if the route depends on unknown inputs.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RouteDiffsOutput {
    pub directive: String,
    /// True if the plan of a route, or a directive that the plan can start, may do or spend more than before, or if the
    /// comparison cannot exclude this.
    pub widened: bool,
    /// A comparison for each pair of routes: the route that a call takes before the change, and the route that the call
    /// takes after the change.
    pub routes: Vec<RouteDiff>,
}

/// Compares the plans of both sides for each route, and prints the comparisons. Returns `None`, and prints nothing, if
/// the directive is missing or has errors on one side, or if each side has a single plan for all inputs.
pub fn compare(
    (old, new): (&dyn World, &dyn World),
    id: &ItemId,
    args: &PlanArgs,
    global: &Global,
    report: &Printer,
) -> Result<Option<Exit>, CommandError> {
    let plans = |world: &dyn World| -> Result<Option<Vec<RoutedPlan>>, CommandError> {
        if world.candidates(ItemKind::Directive, id)?.is_empty() {
            return Ok(None);
        }
        let mut request = args.call.request(id.clone(), world)?;
        request.mode = args.mode();
        let Checked { value, .. } = compile_routes(world, &request, &mut Sources::default());
        Ok(value)
    };
    let (Some(before), Some(after)) = (plans(old)?, plans(new)?) else { return Ok(None) };
    if before.len() == 1 && after.len() == 1 {
        return Ok(None);
    }
    let routes = diff_routes(RoutedSide { world: old, plans: &before }, RoutedSide { world: new, plans: &after })?;
    let widened = routes.iter().any(|route| route.diff.widened);
    if global.format.format() == Format::Json {
        report.json(&RouteDiffsOutput { directive: id.to_string(), widened, routes })?;
        return Ok(Some(if widened { Exit::PermissionsWidened } else { Exit::Success }));
    }
    for route in &routes {
        let heading = format!("When {}:", describe_when(&route.when));
        if global.format == OutputFormat::Markdown {
            report.line(printable(&format!("{heading}\n\n{}", format_markdown(&route.diff))).trim_end())?;
        } else {
            report.line(&printable(&heading))?;
            print(&route.diff, global.format, report)?;
        }
        report.line("")?;
    }
    Ok(Some(if widened { Exit::PermissionsWidened } else { Exit::Success }))
}
