//! `rye plan ID` if the route depends on unknown inputs: prints a plan for each route.

use rye_compiler::drawing::Drawing;
use rye_compiler::report::alternatives::{RoutedPlan, describe_when};
use rye_compiler::report::lock::Lock;
use rye_compiler::report::render;
use rye_compiler::report::render::json::PlanReport;
use rye_compiler::report::summary::PlanSummary;
use rye_compiler::world::World;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{PlanArgs, print_prompt, show};
use crate::CommandError;
use crate::command::graph::{self, GraphLanguage};
use crate::command::run::of_own_files;
use crate::exit::Exit;
use crate::options::{Global, OutputFormat};
use crate::report::diagnostic::DiagnosticOutput;
use crate::report::{Printer, printable};

/// Output of `rye plan ID --format json` if the route depends on unknown inputs.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RoutesOutput {
    pub directive: String,
    /// The plans, one for each route that a call can take.
    pub routes: Vec<RouteOutput>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct RouteOutput {
    /// Conditions on the inputs: a call has this plan if one of them holds.
    pub when: Vec<String>,
    /// The plan of every call of the directive for which a condition of `when` holds. The plan treats the inputs as
    /// unknown.
    pub plan: PlanReport,
}

pub fn print(
    args: &PlanArgs,
    global: &Global,
    world: &dyn World,
    lock: Option<&Lock>,
    plans: Vec<RoutedPlan>,
    report: &Printer,
) -> Result<Exit, CommandError> {
    let is_json = global.format == OutputFormat::Json;
    if let Some(language) = args.graph {
        return print_graphs(language, is_json, &plans, report);
    }
    let is_text = matches!(global.format, OutputFormat::Human | OutputFormat::Plain);
    if !is_json && !is_text || is_json && args.prompt {
        let conditions: Vec<String> = plans.iter().map(|plan| describe_when(&plan.when)).collect();
        return Err(CommandError::usage("this format prints a single plan, but the route depends on the inputs")
            .with_help(format!("select a route with `--input`: {}", printable(&conditions.join(", or ")))));
    }
    let mut routes = Vec::new();
    for RoutedPlan { when, compilation, diagnostics, .. } in plans {
        let diagnostics = of_own_files(diagnostics, &compilation.sources);
        if is_json {
            let summary = PlanSummary::new(world, lock, &compilation)?;
            let shown =
                diagnostics.iter().map(|one| serde_json::to_value(DiagnosticOutput::new(one, &compilation.sources)));
            let shown = shown.collect::<Result<_, _>>().map_err(std::io::Error::other)?;
            let plan = render::json::render(&compilation, shown).with_summary(summary);
            routes.push((compilation.plan.directive.to_string(), RouteOutput { when, plan }));
            continue;
        }
        report.line(&printable(&heading(&when, &compilation.plan)))?;
        report.line("")?;
        if args.prompt {
            print_prompt(&compilation, &diagnostics, global, report)?;
        } else {
            show(&compilation, PlanSummary::new(world, lock, &compilation)?, &diagnostics, report)?;
        }
        report.line("")?;
    }
    if is_json {
        let directive = routes.first().map(|(directive, _)| directive.clone()).unwrap_or_default();
        report.json(&RoutesOutput { directive, routes: routes.into_iter().map(|(_, route)| route).collect() })?;
    }
    Ok(Exit::Success)
}

/// Returns the line to print above the plan of a route: the condition of the route, and the extends parent.
fn heading(when: &[String], plan: &rye_compiler::plan::Plan) -> String {
    let parent = plan.chain.iter().rev().nth(1).map(|link| format!(", extends {}", link.id)).unwrap_or_default();
    format!("When {}{parent}:", describe_when(when))
}

/// Prints the graph of each route. If all routes have the same graph, prints it once.
fn print_graphs(
    language: GraphLanguage,
    is_json: bool,
    plans: &[RoutedPlan],
    report: &Printer,
) -> Result<Exit, CommandError> {
    let Some(first) = plans.first() else { return Ok(Exit::Failed) };
    let is_same = plans.iter().all(|plan| plan.compilation.plan.graph == first.compilation.plan.graph);
    if is_json && !is_same {
        let graphs = plans.iter().map(|plan| {
            let graph = serde_json::to_value(render::json::report_graph(&plan.compilation));
            Ok(serde_json::json!({ "when": plan.when, "graph": graph.map_err(std::io::Error::other)? }))
        });
        let graphs: Vec<Value> = graphs.collect::<Result<_, CommandError>>()?;
        report.json(&serde_json::json!({ "routes": graphs }))?;
        return Ok(Exit::Success);
    }
    if is_json {
        report.json(&render::json::report_graph(&first.compilation))?;
        return Ok(Exit::Success);
    }
    let comment = match language {
        GraphLanguage::Mermaid => "%%",
        GraphLanguage::Dot => "//",
        GraphLanguage::Svg if !is_same => {
            return Err(CommandError::usage("an SVG file shows a single graph, but the route depends on the inputs")
                .with_help(printable(&format!("select a route with `--input`: {}", describe_when(&first.when)))));
        }
        GraphLanguage::Svg => "",
    };
    for plan in plans.iter().take(if is_same { 1 } else { plans.len() }) {
        if !is_same {
            report.line(&printable(&format!("{comment} {}", heading(&plan.when, &plan.compilation.plan))))?;
        }
        graph::print_drawing(&Drawing::of_plan(&plan.compilation.plan.graph), language, report)?;
    }
    Ok(Exit::Success)
}
