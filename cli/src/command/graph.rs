//! `rye graph [ID]`: draws how the items of the project depend on each other. For the graph of a run see `rye plan ID
//! --graph`.

use clap::{Args, ValueEnum};
use rye_compiler::drawing::Drawing;
use rye_compiler::item_graph::{ItemGraph, item_graph};
use rye_compiler::report::render::{dot, mermaid, svg};
use rye_compiler::world::{ItemKind, World};

use crate::CommandError;
use crate::exit::Exit;
use crate::options::{Format, Global};
use crate::report::{Printer, printable};
use crate::run_request::parse_directive_id;
use crate::workspace::Spaces;

#[derive(Debug, Args)]
pub struct GraphArgs {
    /// Only what this directive reaches
    #[arg(value_name = "ID")]
    directive: Option<String>,
    /// Output language [default: mermaid; with `--format json` nodes and edges as JSON]
    #[arg(long, value_enum, value_name = "LANGUAGE")]
    to: Option<GraphLanguage>,
}

/// The output language of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GraphLanguage {
    Mermaid,
    Dot,
    /// An image with layout
    Svg,
}

pub fn run(args: &GraphArgs, global: &Global, report: &Printer) -> Result<Exit, CommandError> {
    let world = Spaces::find(global.project.as_deref())?.open()?;
    let only = args.directive.as_deref().map(parse_directive_id).transpose()?;
    if let Some(id) = &only {
        let found = world.candidates(ItemKind::Directive, id)?;
        if found.is_empty() {
            return Err(CommandError::failed(format!("unknown directive `{id}`")));
        }
    }
    let graph: ItemGraph = item_graph(&world, only.as_ref());
    match (args.to, report.format()) {
        (None, Format::Json) => report.json(&graph)?,
        (to, _) => print_drawing(&graph.drawing(), to.unwrap_or(GraphLanguage::Mermaid), report)?,
    }
    Ok(Exit::Fine)
}

/// Prints a drawing.
pub fn print_drawing(drawing: &Drawing, language: GraphLanguage, report: &Printer) -> Result<(), CommandError> {
    let text = match language {
        GraphLanguage::Mermaid => mermaid::render(drawing),
        GraphLanguage::Dot => dot::render(drawing),
        GraphLanguage::Svg => svg::render(drawing).map_err(|error| CommandError::failed(error.to_string()))?,
    };
    report.line(printable(&text).trim_end())
}
