//! `rye graph [ID]`: draws how the items of the project depend on each other. For the graph of a run see `rye plan ID
//! --graph`.

use clap::{Args, ValueEnum};
use rye_compiler::diagnostics::closest;
use rye_compiler::drawing::Drawing;
use rye_compiler::item_graph::{DetailLevel, ItemGraph, RelationFilter, item_graph};
use rye_compiler::report::render::{dot, graph_page, mermaid, svg};
use rye_compiler::world::{ItemKind, World};

use crate::CommandError;
use crate::exit::Exit;
use crate::options::{Format, Global};
use crate::report::{Printer, printable};
use crate::run_request::parse_directive_id;
use crate::workspace::Spaces;

#[derive(Debug, Args)]
pub struct GraphArgs {
    /// Draw only this directive and the items that it depends on or can start
    #[arg(value_name = "ID")]
    directive: Option<String>,
    /// Draw only these relations
    #[arg(long, value_enum, value_name = "RELATIONS")]
    only: Option<RelationsArg>,
    /// Draw only this item and the items around it: an id, such as `team/rules` or `tool team/count`
    #[arg(long, value_name = "ITEM")]
    focus: Option<String>,
    /// With `--focus`: the maximum distance from the item, in relations [default: 1]
    #[arg(long, value_name = "N", requires = "focus")]
    depth: Option<usize>,
    /// Level of detail [default: the finest one with a readable number of boxes]
    #[arg(long, value_enum, value_name = "LEVEL")]
    detail: Option<DetailArg>,
    /// Output language [default: mermaid; with `--format json` nodes and edges as JSON]
    #[arg(long, value_enum, value_name = "LANGUAGE")]
    to: Option<ItemGraphLanguage>,
}

/// The output language of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GraphLanguage {
    Mermaid,
    Dot,
    /// A rendered image
    Svg,
}

/// The output language of a graph of items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ItemGraphLanguage {
    Mermaid,
    Dot,
    /// A rendered image
    Svg,
    /// A searchable page with the image and the relations of every item
    Html,
}

/// Values of `--only`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RelationsArg {
    /// Directives that start others
    Spawns,
    /// Extends chains, knowledge, suppressions
    Context,
    /// Grants of tools
    Tools,
}

impl From<RelationsArg> for RelationFilter {
    fn from(relations: RelationsArg) -> Self {
        match relations {
            RelationsArg::Spawns => Self::Spawns,
            RelationsArg::Context => Self::Context,
            RelationsArg::Tools => Self::Tools,
        }
    }
}

/// Values of `--detail`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DetailArg {
    /// Every item, those of the standard library too
    Full,
    /// Every item; the standard library is one box
    Items,
    /// Directives one by one, other items by folder
    Mixed,
    /// A box for each folder
    Folders,
    /// A box for each top-level folder
    Top,
}

impl From<DetailArg> for DetailLevel {
    fn from(detail: DetailArg) -> Self {
        match detail {
            DetailArg::Full => Self::Full,
            DetailArg::Items => Self::Items,
            DetailArg::Mixed => Self::Mixed,
            DetailArg::Folders => Self::Folders,
            DetailArg::Top => Self::Top,
        }
    }
}

pub fn run(args: &GraphArgs, global: &Global, report: &Printer) -> Result<Exit, CommandError> {
    let spaces = Spaces::find_and_print(global.project.as_deref(), report)?;
    let world = spaces.open()?;
    let only = args.directive.as_deref().map(parse_directive_id).transpose()?;
    if let Some(id) = &only {
        let found = world.candidates(ItemKind::Directive, id)?;
        if found.is_empty() {
            return Err(CommandError::failed(format!("unknown directive `{id}`")));
        }
    }
    let mut graph: ItemGraph = item_graph(&world, only.as_ref());
    if let Some(relations) = args.only {
        graph = graph.only(relations.into());
    }
    if let Some(item) = &args.focus {
        let center = graph.find_nodes(item);
        if center.is_empty() {
            let near = closest(item, graph.nodes.iter().map(|node| node.name.as_str()));
            let failure = CommandError::failed(format!("no item `{item}` in this graph"));
            return Err(match near {
                Some(near) => failure.with_help(format!("did you mean `{near}`?")),
                None => failure,
            });
        }
        graph = graph.around(&center, args.depth.unwrap_or(1));
    }
    // With `--focus`, few items are drawn, so the items of the standard library are drawn one by one.
    let around = args.focus.as_ref().map(|_| DetailLevel::Full);
    let detail = args.detail.map(DetailLevel::from).or(around).unwrap_or_else(|| graph.readable_detail());
    let language = match (args.to, report.format()) {
        (None, Format::Json) => {
            report.json(&graph)?;
            return Ok(Exit::Success);
        }
        (Some(ItemGraphLanguage::Html), _) => {
            let name = spaces.project.file_name().map_or_else(|| "project".into(), |name| name.to_string_lossy());
            report.line(graph_page::render(&graph, detail, &name).trim_end())?;
            return Ok(Exit::Success);
        }
        (None | Some(ItemGraphLanguage::Mermaid), _) => GraphLanguage::Mermaid,
        (Some(ItemGraphLanguage::Dot), _) => GraphLanguage::Dot,
        (Some(ItemGraphLanguage::Svg), _) => GraphLanguage::Svg,
    };
    print_drawing(&graph.draw(detail), language, report)?;
    Ok(Exit::Success)
}

/// Renders a drawing in the language `language`, and prints it to stdout.
pub fn print_drawing(drawing: &Drawing, language: GraphLanguage, report: &Printer) -> Result<(), CommandError> {
    let text = match language {
        GraphLanguage::Mermaid => mermaid::render(drawing),
        GraphLanguage::Dot => dot::render(drawing),
        GraphLanguage::Svg => svg::render(drawing).map_err(|error| CommandError::failed(error.to_string()))?,
    };
    report.line(printable(&text).trim_end())
}
