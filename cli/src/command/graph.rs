//! `rye graph ID`: the graph that a run of a directive follows, to be drawn.

use clap::{Args, ValueEnum};
use rye_compiler::compile::compile_showing;
use rye_compiler::plan::render;
use rye_grammar::Sources;

use crate::Failure;
use crate::args::{Format, Global};
use crate::call::{CallArgs, directive};
use crate::command::plan::refuse;
use crate::exit::Exit;
use crate::report::Report;
use crate::space::Spaces;

#[derive(Debug, Args)]
pub struct GraphArgs {
    /// The directive
    #[arg(value_name = "ID")]
    directive: String,
    /// The language of the drawing [default: mermaid; with `--format json` nodes and edges as JSON]
    #[arg(long, value_enum, value_name = "LANGUAGE")]
    to: Option<Language>,
    #[command(flatten)]
    call: CallArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Language {
    Mermaid,
    Dot,
}

pub fn run(args: &GraphArgs, global: &Global, report: &Report) -> Result<Exit, Failure> {
    let id = directive(&args.directive)?;
    let world = Spaces::find(global.project.as_deref())?.open()?;
    let request = args.call.request(id, &world)?;
    let mut sources = Sources::default();
    let compiled = compile_showing(&world, &request, &mut sources);
    let Some(compilation) = compiled.value else {
        refuse(&args.directive, &compiled.diagnostics, &sources, report)?;
        return Ok(Exit::Failed);
    };
    let drawing = match (args.to, report.format()) {
        (None, Format::Json) => {
            report.json(&render::json::graph(&compilation))?;
            return Ok(Exit::Fine);
        }
        (None | Some(Language::Mermaid), _) => render::mermaid::render(&compilation.plan.graph),
        (Some(Language::Dot), _) => render::dot::render(&compilation.plan.graph),
    };
    report.line(drawing.trim_end())?;
    Ok(Exit::Fine)
}
