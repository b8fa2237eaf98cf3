//! `rye plan ID --diff REV[..REV]`: what a change does to a plan. A side is a revision of git, a plan that was written to
//! a file, or the files as they are.

use std::path::Path;

use anstyle::{AnsiColor, Style};
use rye_compiler::compile::compile_showing;
use rye_compiler::plan::diff::{PlanDiff, diff};
use rye_compiler::plan::render::diff::{Line, Tone, lines, markdown};
use rye_compiler::plan::render::json::{PlanReport, render};
use rye_compiler::world::{ItemKind, World};
use rye_engine::disk_world::DiskWorld;
use rye_grammar::{ItemId, Sources};

use super::PlanArgs;
use crate::Failure;
use crate::args::{Asked, Format, Global};
use crate::command::plan::refuse;
use crate::exit::Exit;
use crate::git::Revision;
use crate::report::{Report, printable};
use crate::space::Spaces;

/// One side of a comparison.
enum Side {
    Files,
    Revision(String),
    Plan(String),
}

/// What a side is: the plan, nothing where the directive is not there, or an exit code where it has errors.
enum Found {
    Plan(Box<PlanReport>),
    Nothing,
    Refused(Exit),
}

pub fn run(asked: &str, args: &PlanArgs, global: &Global, report: &Report) -> Result<Exit, Failure> {
    let (before, after) = sides(asked)?;
    let id = args.directive.as_deref().map(crate::call::directive).transpose()?;
    let mut found = Vec::new();
    for side in [&before, &after] {
        match look(side, id.as_ref(), args, global, report)? {
            Found::Plan(plan) => found.push(Some(plan)),
            Found::Nothing => found.push(None),
            Found::Refused(exit) => return Ok(exit),
        }
    }
    let (after, before) = (found.pop().flatten(), found.pop().flatten());
    if before.is_none() && after.is_none() {
        let id = id.map(|id| id.to_string()).unwrap_or_default();
        return Err(Failure::failed(format!("neither side has a directive `{id}`")));
    }
    if let (Some(before), Some(after)) = (&before, &after)
        && before.directive != after.directive
    {
        let message = format!("these are plans of two directives: `{}` and `{}`", before.directive, after.directive);
        return Err(Failure::usage(message));
    }
    let found = diff(before.as_deref(), after.as_deref());
    print(&found, global.format, report)?;
    Ok(if found.widened { Exit::Widened } else { Exit::Fine })
}

fn print(diff: &PlanDiff, asked: Asked, report: &Report) -> Result<(), Failure> {
    match (asked, asked.format()) {
        (Asked::Markdown, _) => report.line(printable(&markdown(diff)).trim_end()),
        (_, Format::Json) => report.json(diff),
        (_, Format::Human | Format::Plain) => {
            for Line { tone, text } in lines(diff) {
                let style = match tone {
                    Tone::Heading => crate::view::BOLD,
                    Tone::Plain => Style::new(),
                    Tone::Wider => crate::view::coloured(AnsiColor::Red),
                    Tone::Narrower => crate::view::coloured(AnsiColor::Green),
                };
                report.line(&format!("{style}{}{style:#}", printable(&text)))?;
            }
            Ok(())
        }
    }
}

/// `BEFORE..AFTER`; without an after, the files as they are. What exists as a file is one, whatever its name.
fn sides(asked: &str) -> Result<(Side, Side), Failure> {
    let side = |text: &str| {
        if text.is_empty() {
            Side::Files
        } else if Path::new(text).extension().is_some_and(|e| e == "json") || Path::new(text).is_file() {
            Side::Plan(text.to_owned())
        } else {
            Side::Revision(text.to_owned())
        }
    };
    if Path::new(asked).is_file() {
        return Ok((side(asked), Side::Files));
    }
    if asked.contains("...") {
        return Err(Failure::usage(format!("`{asked}` has three dots: write `BEFORE..AFTER`")));
    }
    match asked.split_once("..") {
        Some(("", after)) => Ok((Side::Revision("HEAD".to_owned()), side(after))),
        Some((before, after)) => Ok((side(before), side(after))),
        None => Ok((side(asked), Side::Files)),
    }
}

fn look(side: &Side, id: Option<&ItemId>, args: &PlanArgs, global: &Global, report: &Report) -> Result<Found, Failure> {
    if let Side::Plan(path) = side {
        return super::file::read(path).map(|plan| Found::Plan(Box::new(plan)));
    }
    let id =
        id.ok_or_else(|| Failure::usage("name the directive: only two plan files say by themselves what they are of"))?;
    let spaces = Spaces::find(global.project.as_deref())?;
    match side {
        Side::Revision(revision) => {
            let revision = Revision::read(&spaces.project, revision)?;
            report.detail(&format!("revision: {}", revision.commit));
            let others = spaces.open_others()?;
            compiled(&revision.over(&others), id, args, report)
        }
        Side::Files | Side::Plan(_) => {
            let world: DiskWorld = spaces.open()?;
            compiled(&world, id, args, report)
        }
    }
}

fn compiled(world: &dyn World, id: &ItemId, args: &PlanArgs, report: &Report) -> Result<Found, Failure> {
    let there = world.candidates(ItemKind::Directive, id)?;
    if there.is_empty() {
        return Ok(Found::Nothing);
    }
    let request = args.call.request(id.clone(), world)?;
    let mut sources = Sources::default();
    let compiled = compile_showing(world, &request, &mut sources);
    let Some(compilation) = compiled.value else {
        refuse(id.as_str(), &compiled.diagnostics, &sources, report)?;
        return Ok(Found::Refused(Exit::Failed));
    };
    Ok(Found::Plan(Box::new(render(&compilation, Vec::new()))))
}
