//! `rye plan ID --diff REV[..REV]`: compares two plans of a directive. Each side is a git revision, a plan file, or the
//! current files.

mod other_inputs;
pub mod routes;

use std::path::Path;

use anstyle::{AnsiColor, Style};
use rye_compiler::compile::{Compilation, compile_with_sources};
use rye_compiler::report::alternatives::compile_routes;
use rye_compiler::report::diff::{DiffSide, PlanDiff, diff, diff_trees};
use rye_compiler::report::render::diff::{DiffLine, DiffTone, format_markdown, lines};
use rye_compiler::report::render::json::{PlanReport, render};
use rye_compiler::world::{ItemKind, World};
use rye_engine::disk_world::DiskWorld;
use rye_grammar::{ItemId, Sources};

use self::other_inputs::OtherInputs;
use super::PlanArgs;
use crate::CommandError;
use crate::command::plan::print_no_plan;
use crate::exit::Exit;
use crate::git::Revision;
use crate::options::{Format, Global, OutputFormat};
use crate::report::{Printer, printable};
use crate::workspace::Spaces;

/// The source of a plan that is compared: the current files, a git revision, or a plan file.
enum ComparedSide {
    Files,
    Revision(String),
    Plan(String),
}

/// The world of a side; `None` if the side is a plan file.
type SideWorld<'w> = Option<Box<dyn World + 'w>>;

/// The plan on one side of a comparison: `Printed` from a plan file, `Compiled` from files of items. `Nothing` if the
/// directive does not exist on this side, `Refused` if it has errors.
enum SidePlan {
    Printed(Box<PlanReport>),
    Compiled(Box<Compilation>),
    Nothing,
    Refused(Exit),
}

impl SidePlan {
    /// Returns the plan in its printed form; `None` if this side has no plan.
    fn report(&self) -> Option<PlanReport> {
        match self {
            Self::Printed(plan) => Some((**plan).clone()),
            Self::Compiled(compilation) => Some(render(compilation, Vec::new())),
            Self::Nothing | Self::Refused(_) => None,
        }
    }

    /// Returns the compiled plan of this side with the world of its files. `None` if the side has no compiled plan or
    /// no world.
    fn tree<'a>(&'a self, world: &'a SideWorld<'_>) -> Option<DiffSide<'a>> {
        match (self, world) {
            (Self::Compiled(compilation), Some(world)) => Some(DiffSide { world: &**world, compilation }),
            (Self::Printed(_) | Self::Compiled(_) | Self::Nothing | Self::Refused(_), _) => None,
        }
    }
}

pub fn run(requested: &str, args: &PlanArgs, global: &Global, report: &Printer) -> Result<Exit, CommandError> {
    if global.format == OutputFormat::Html {
        return Err(CommandError::usage("`--diff` prints no HTML page")
            .with_help("use `--format markdown`, or compare the pages of both plans: `rye plan ID --format html`"));
    }
    let (before, after) = parse_sides(requested)?;
    let id = args.directive.as_deref().map(crate::run_request::parse_directive_id).transpose()?;
    let is_printed = |side: &ComparedSide| matches!(side, ComparedSide::Plan(_));
    let spaces = (!is_printed(&before) || !is_printed(&after)).then(|| Spaces::find(global.project.as_deref()));
    let spaces = spaces.transpose()?;
    let others = spaces.as_ref().map(Spaces::open_without_project).transpose()?;
    let sides = [&before, &after];
    let mut worlds = Vec::new();
    for side in sides {
        worlds.push(open(side, spaces.as_ref(), others.as_ref(), report)?);
    }
    let is_open = !args.call.has_inputs();
    let uses_defaults = is_open && !args.unknown_inputs && has_default_inputs(&sides, &worlds, id.as_ref(), args)?;
    if let (true, [Some(old), Some(new)], Some(id)) = (is_open && !uses_defaults, worlds.as_slice(), &id)
        && let Some(exit) = routes::compare((&**old, &**new), id, args, global, report)?
    {
        return Ok(exit);
    }
    let mut found = Vec::new();
    for (side, world) in sides.iter().zip(&worlds) {
        let one = compile_side(side, world.as_deref(), id.as_ref(), args, uses_defaults, report)?;
        if let SidePlan::Refused(exit) = one {
            return Ok(exit);
        }
        found.push(one);
    }
    let ([before, after], [old, new]) = (found.as_slice(), worlds.as_slice()) else { return Ok(Exit::Failed) };
    let (was, is) = (before.report(), after.report());
    if was.is_none() && is.is_none() {
        let id = id.map(|id| id.to_string()).unwrap_or_default();
        return Err(CommandError::failed(format!("neither side has a directive `{id}`")));
    }
    if let (Some(was), Some(is)) = (&was, &is)
        && was.directive != is.directive
    {
        let message = format!("the plans are of different directives: `{}` and `{}`", was.directive, is.directive);
        return Err(CommandError::usage(message));
    }
    let is_from_files = !matches!(before, SidePlan::Printed(_)) && !matches!(after, SidePlan::Printed(_));
    let mut found =
        if is_from_files { diff_trees(before.tree(old), after.tree(new))? } else { diff(was.as_ref(), is.as_ref()) };
    if let (true, true, Some(id), Some(old), Some(new)) = (uses_defaults, is_from_files, &id, old, new) {
        found = OtherInputs::new((&**old, &**new), id, args).extend(found, report)?;
    }
    print(&found, global.format, report)?;
    Ok(if found.widened { Exit::PermissionsWidened } else { Exit::Success })
}

fn print(diff: &PlanDiff, requested: OutputFormat, report: &Printer) -> Result<(), CommandError> {
    match (requested, requested.format()) {
        (OutputFormat::Markdown, _) => report.line(printable(&format_markdown(diff)).trim_end()),
        (_, Format::Json) => report.json(diff),
        (_, Format::Human | Format::Plain) => {
            for DiffLine { tone, text } in lines(diff) {
                let style = match tone {
                    DiffTone::Heading => crate::present::BOLD,
                    DiffTone::Plain => Style::new(),
                    DiffTone::Wider => crate::present::color_style(AnsiColor::Red),
                    DiffTone::Narrower => crate::present::color_style(AnsiColor::Green),
                };
                report.line(&format!("{style}{}{style:#}", report.fold(&printable(&text))))?;
            }
            Ok(())
        }
    }
}

/// Parses `BEFORE..AFTER`. Without `BEFORE`, the first side is the revision `HEAD`; without `AFTER`, the second side is
/// the current files. A text without `..`, or the path of an existing file, is the first side, and the second side is
/// the current files.
fn parse_sides(requested: &str) -> Result<(ComparedSide, ComparedSide), CommandError> {
    let side = |text: &str| {
        if text.is_empty() {
            ComparedSide::Files
        } else if Path::new(text).extension().is_some_and(|e| e == "json") || Path::new(text).is_file() {
            ComparedSide::Plan(text.to_owned())
        } else {
            ComparedSide::Revision(text.to_owned())
        }
    };
    if Path::new(requested).is_file() {
        return Ok((side(requested), ComparedSide::Files));
    }
    if requested.contains("...") {
        return Err(CommandError::usage(format!("`{requested}` has three dots: write `BEFORE..AFTER`")));
    }
    match requested.split_once("..") {
        Some(("", after)) => Ok((ComparedSide::Revision("HEAD".to_owned()), side(after))),
        Some((before, after)) => Ok((side(before), side(after))),
        None => Ok((side(requested), ComparedSide::Files)),
    }
}

/// Opens the world of one side of the comparison; `None` for a plan file, which needs no world. `spaces` is `None` only
/// if both sides are plan files.
fn open<'w>(
    side: &ComparedSide,
    spaces: Option<&Spaces>,
    others: Option<&'w DiskWorld>,
    report: &Printer,
) -> Result<SideWorld<'w>, CommandError> {
    let (Some(spaces), Some(others)) = (spaces, others) else { return Ok(None) };
    Ok(match side {
        ComparedSide::Revision(revision) => {
            let revision = Revision::read(&spaces.project, revision)?;
            report.detail(&format!("revision: {}", revision.commit));
            Some(Box::new(revision.over_spaces(others)))
        }
        ComparedSide::Files => Some(Box::new(spaces.open()?)),
        ComparedSide::Plan(_) => None,
    })
}

/// Returns true if the defaults of the inputs suffice to plan every side. If they do not, the caller plans both sides
/// with unknown inputs, so that no difference comes from the inputs alone.
fn has_default_inputs(
    sides: &[&ComparedSide],
    worlds: &[SideWorld<'_>],
    id: Option<&ItemId>,
    args: &PlanArgs,
) -> Result<bool, CommandError> {
    for (side, world) in sides.iter().zip(worlds) {
        let has_inputs = match (side, world, id) {
            (ComparedSide::Plan(path), _, _) => super::file::read_plan(path)?.call.inputs.is_some(),
            (_, Some(world), Some(id)) if !world.candidates(ItemKind::Directive, id)?.is_empty() => {
                args.call.request(id.clone(), &**world)?.with_default_inputs(&**world).inputs.is_some()
            }
            (ComparedSide::Files | ComparedSide::Revision(_), _, _) => true,
        };
        if !has_inputs {
            return Ok(false);
        }
    }
    Ok(true)
}

fn compile_side(
    side: &ComparedSide,
    world: Option<&dyn World>,
    id: Option<&ItemId>,
    args: &PlanArgs,
    uses_defaults: bool,
    report: &Printer,
) -> Result<SidePlan, CommandError> {
    if let ComparedSide::Plan(path) = side {
        return super::file::read_plan(path).map(|plan| SidePlan::Printed(Box::new(plan)));
    }
    let id = id.ok_or_else(|| {
        CommandError::usage("missing directive: the argument is optional only when two plan files are compared")
    })?;
    let Some(world) = world else { return Ok(SidePlan::Nothing) };
    if world.candidates(ItemKind::Directive, id)?.is_empty() {
        return Ok(SidePlan::Nothing);
    }
    let mut request = args.call.request(id.clone(), world)?;
    args.add_session(&mut request)?;
    let request = if uses_defaults { request.with_default_inputs(world) } else { request };
    let mut sources = Sources::default();
    let compiled = compile_with_sources(world, &request, &mut sources);
    let Some(compilation) = compiled.value else {
        // If the inputs leave too many routes, the report of the routes names the bound.
        let mut shown = Sources::default();
        let routes = compile_routes(world, &request, &mut shown);
        let (found, sources) =
            if routes.value.is_none() { (routes.diagnostics, shown) } else { (compiled.diagnostics, sources) };
        print_no_plan(id.as_str(), &found, &sources, report)?;
        return Ok(SidePlan::Refused(Exit::Failed));
    };
    Ok(SidePlan::Compiled(Box::new(compilation)))
}
