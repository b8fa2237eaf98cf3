//! `rye why THING`: prints the origin of a part of a plan, or the reason why the part is absent.

use std::collections::BTreeSet;

use clap::Args;
use indexmap::IndexMap;
use rye_compiler::compile::{Compilation, CompileRequest};
use rye_compiler::diagnostics::closest;
use rye_compiler::plan::{PlanMode, SourcePlace};
use rye_compiler::report::alternatives::{RoutedPlan, compile_routes_with_default_inputs, describe_when};
use rye_compiler::report::provenance::StepKind;
use rye_compiler::report::why::{Explanation, NotInPlan, explain, explain_with_missing_grants};
use rye_compiler::world::{ItemKind, Space, World, WorldError};
use rye_grammar::{ItemId, Sources};
use schemars::JsonSchema;
use serde::Serialize;

use crate::CommandError;
use crate::command::chat::DEFAULT_DIRECTIVE;
use crate::command::plan::print_no_plan;
use crate::exit::Exit;
use crate::options::{Format, Global};
use crate::present::join_names;
use crate::report::{Printer, printable};
use crate::run_request::parse_directive_id;
use crate::workspace::Spaces;

#[derive(Debug, Args)]
pub struct WhyArgs {
    /// A part of a plan: limit.spend, a hook's id, an item's id, a tool, a capability, model, extends
    thing: String,
    /// Only in the plan of this directive (default: in every plan of the project)
    #[arg(long, value_name = "ID")]
    of: Option<String>,
    /// Explain the plan of a chat instead of the plan of a run; without `--of`, the plan of `rye/agent/chat`
    #[arg(long)]
    chat: bool,
}

/// Output of `rye why THING --format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct WhyOutput {
    pub thing: String,
    /// The files with the id `thing`, highest precedence first; the first file of each kind is used.
    pub items: Vec<ItemOutput>,
    pub answers: Vec<AnswerOutput>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct ItemOutput {
    /// Kind of the item: `directive`, `knowledge`, `tool` or `config`.
    pub kind: String,
    /// Space of the item: `project`, `user` or `system`.
    pub space: String,
    pub path: String,
    /// True if a file of a higher space shadows this file.
    pub shadowed: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct AnswerOutput {
    /// The directives to whose plans this answer applies.
    pub directives: Vec<String>,
    pub subject: String,
    pub reason: String,
    pub source: Option<SourceOutput>,
    /// The derivation, step by step.
    pub steps: Vec<StepOutput>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct StepOutput {
    /// `cause`: a reason for the value. `fix`: an edit that would change the value, or a condition of the edit.
    pub kind: StepKind,
    pub text: String,
    pub source: Option<SourceOutput>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct SourceOutput {
    pub file: String,
    pub line: u32,
    pub column: u32,
}

impl From<SourcePlace> for SourceOutput {
    fn from(place: SourcePlace) -> Self {
        Self { file: place.file, line: place.line, column: place.column }
    }
}

pub fn run(args: &WhyArgs, global: &Global, report: &Printer) -> Result<Exit, CommandError> {
    let world = Spaces::find_and_print(global.project.as_deref(), report)?.open()?;
    let items = item_files(&args.thing, &world)?;
    let of = args.of.as_deref().or(args.chat.then_some(DEFAULT_DIRECTIVE));
    let (answers, suggestion) = match of {
        Some(of) => {
            let mut sources = Sources::default();
            let mut request = CompileRequest::new(parse_directive_id(of)?);
            request.mode = if args.chat { PlanMode::Chat } else { PlanMode::Run };
            let compiled = compile_routes_with_default_inputs(&world, request, &mut sources);
            let Some(plans) = compiled.value else {
                print_no_plan(of, &compiled.diagnostics, &sources, report)?;
                return Ok(Exit::Failed);
            };
            let explained = |compilation: &Compilation| explain_with_missing_grants(&world, compilation, &args.thing);
            merge_answers(answers_of_routes(of, &plans, &explained))
        }
        None => answers_of_all_directives(&args.thing, &world)?,
    };
    if items.is_empty() && answers.is_empty() {
        let place = of.map_or_else(|| "this project".to_owned(), |of| format!("the plan of `{of}`"));
        let failure = CommandError::failed(format!("no part of {place} is named `{}`", args.thing));
        return Err(match nearest_name(&args.thing, suggestion, &world) {
            None if of.is_none() && args.thing.starts_with("rye.") => failure.with_help(
                "no directive grants this capability; `rye why CAPABILITY --of ID` shows the grant that a \
                 directive lacks",
            ),
            Some(near) => failure.with_help(format!("did you mean `{near}`?")),
            None => failure,
        });
    }
    let output = WhyOutput { thing: args.thing.clone(), items, answers };
    match report.format() {
        Format::Json => report.json(&output)?,
        Format::Human | Format::Plain => report.text(printable(&output.to_string()).trim_end())?,
    }
    Ok(Exit::Success)
}

/// Returns the answer about a part of one plan as lines.
///
/// # Errors
/// Returns the reason if the plan has no such part.
pub fn explain_in_plan(world: &dyn World, compilation: &Compilation, thing: &str) -> Result<String, String> {
    let of = compilation.plan.directive.to_string();
    let (answers, suggestion) = merge_answers([(of.clone(), explain_with_missing_grants(world, compilation, thing))]);
    let items = item_files(thing, world).map_err(|error| error.to_string())?;
    if items.is_empty() && answers.is_empty() {
        let near = nearest_name(thing, suggestion, world).map(|near| format!("; did you mean `{near}`?"));
        return Err(format!("no part of the plan of `{of}` is named `{thing}`{}", near.unwrap_or_default()));
    }
    let output = WhyOutput { thing: thing.to_owned(), items, answers };
    Ok(printable(&output.to_string()).trim_end().to_owned())
}

/// Returns the files of the items with the id `thing`, of every kind; empty if `thing` is no valid id.
fn item_files(thing: &str, world: &dyn World) -> Result<Vec<ItemOutput>, WorldError> {
    let mut items = Vec::new();
    let Ok(id) = ItemId::parse(thing) else { return Ok(items) };
    for kind in ItemKind::ALL {
        let found = world.candidates(kind, &id)?;
        items.extend(found.iter().enumerate().map(|(rank, located)| ItemOutput {
            kind: kind.as_str().to_owned(),
            space: space_name(located.space).to_owned(),
            path: located.space.display(&located.path),
            // Settings are merged, so none shadows another.
            shadowed: rank > 0 && kind != ItemKind::Config,
        }));
    }
    Ok(items)
}

/// Returns the name that is most similar to `thing` among the ids of all items and `of_plans`; `None` if no name is
/// similar. `of_plans` is the most similar name in the plans.
fn nearest_name(thing: &str, of_plans: Option<String>, world: &dyn World) -> Option<String> {
    let entries = ItemKind::ALL.into_iter().flat_map(|kind| world.list(kind).unwrap_or_default());
    let names: BTreeSet<String> = entries.map(|entry| entry.id.to_string()).chain(of_plans).collect();
    closest(thing, names.iter().map(String::as_str))
}

fn space_name(space: Space) -> &'static str {
    match space {
        Space::Project => "project",
        Space::User => "user",
        Space::System => "system",
    }
}

/// Returns the explanations of `thing` in the plans of all directives of the project that compile. If no plan contains
/// `thing`, returns a similar name that a plan contains, if there is one.
fn answers_of_all_directives(
    thing: &str,
    world: &dyn World,
) -> Result<(Vec<AnswerOutput>, Option<String>), CommandError> {
    let entries = world.list(ItemKind::Directive)?;
    let ids = entries.into_iter().filter(|entry| entry.space == Space::Project).map(|entry| entry.id);
    let requested = ids.filter_map(|id| {
        let request = CompileRequest::new(id.clone());
        let plans = compile_routes_with_default_inputs(world, request, &mut Sources::default()).value?;
        Some(answers_of_routes(id.as_str(), &plans, &|compilation| explain(world, compilation, thing)))
    });
    Ok(merge_answers(requested.flatten()))
}

type NamedAnswer = (String, Result<Vec<Explanation>, NotInPlan>);

/// Returns an answer for each route of a directive, named after the directive and the conditions of the route. If the
/// answers of all routes are equal, returns a single answer, named after the directive.
fn answers_of_routes(
    directive: &str,
    plans: &[RoutedPlan],
    explained: &dyn Fn(&Compilation) -> Result<Vec<Explanation>, NotInPlan>,
) -> Vec<NamedAnswer> {
    let mut answers: Vec<NamedAnswer> = Vec::new();
    for plan in plans {
        let name = format!("{directive} when {}", describe_when(&plan.when));
        answers.push((name, explained(&plan.compilation)));
    }
    let shown = |answer: &NamedAnswer| {
        answer.1.as_ref().map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap_or_default()
    };
    if answers.iter().all(|answer| answers.first().is_some_and(|first| shown(first) == shown(answer))) {
        answers.truncate(1);
        for (name, _) in &mut answers {
            directive.clone_into(name);
        }
    }
    answers
}

/// Merges equal answers. Each merged answer lists the directives that the answer applies to.
fn merge_answers(
    requested: impl IntoIterator<Item = (String, Result<Vec<Explanation>, NotInPlan>)>,
) -> (Vec<AnswerOutput>, Option<String>) {
    let mut answers: IndexMap<String, AnswerOutput> = IndexMap::new();
    let mut near = Vec::new();
    let mut thing = String::new();
    for (directive, answer) in requested {
        let found = match answer {
            Ok(found) => found,
            Err(missing) => {
                near.extend(missing.suggestion);
                thing = missing.thing;
                continue;
            }
        };
        for one in found {
            let answer = answers.entry(one.to_string()).or_insert_with(|| AnswerOutput {
                directives: Vec::new(),
                subject: one.subject,
                reason: one.reason,
                source: one.place.map(SourceOutput::from),
                steps: one
                    .steps
                    .into_iter()
                    .map(|step| StepOutput {
                        kind: step.kind,
                        text: step.text,
                        source: step.place.map(SourceOutput::from),
                    })
                    .collect(),
            });
            // A plan can have an answer twice, for example about a tool of two layers.
            if answer.directives.last() != Some(&directive) {
                answer.directives.push(directive.clone());
            }
        }
    }
    let suggestion = closest(&thing, near.iter().map(String::as_str));
    (answers.into_values().collect(), suggestion)
}

impl std::fmt::Display for WhyOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for item in &self.items {
            let hidden = if item.shadowed { ", shadowed" } else { "" };
            writeln!(f, "{} {}: {} ({} space{hidden})", item.kind, self.thing, item.path, item.space)?;
        }
        for answer in &self.answers {
            writeln!(f, "{}: {}", answer.subject, answer.reason)?;
            if let Some(source) = &answer.source {
                writeln!(f, "  {}:{}:{}", source.file, source.line, source.column)?;
            }
            for step in &answer.steps {
                writeln!(f, "  {} {}", step.kind.lead(), step.text)?;
                if let Some(source) = &step.source {
                    writeln!(f, "    {}:{}:{}", source.file, source.line, source.column)?;
                }
            }
            let directives: Vec<String> = answer.directives.iter().map(|id| format!("`{id}`")).collect();
            writeln!(f, "  in the plan of {}", join_names(&directives))?;
        }
        Ok(())
    }
}
