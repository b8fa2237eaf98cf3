//! `rye plan ID`: prints the requests and actions of a run, with the origin of each part.

pub mod diff;
pub mod file;
mod matrix;
pub mod routes;

use clap::Args;
use rye_compiler::compile::{Compilation, CompileRequest, compile_with_sources};
use rye_compiler::diagnostics::Diagnostics;
use rye_compiler::drawing::Drawing;
use rye_compiler::plan::PlanMode;
use rye_compiler::report::alternatives::{RoutedPlan, compile_routes, compile_routes_with_default_inputs};
use rye_compiler::report::render;
use rye_compiler::report::summary::PlanSummary;
use rye_compiler::trust::TrustRequirement;
use rye_engine::trust::TrustError;
use rye_grammar::Sources;
use schemars::JsonSchema;
use serde::Serialize;

use crate::CommandError;
use crate::command::graph::{self, GraphLanguage};
use crate::command::run::of_own_files;
use crate::exit::Exit;
use crate::lockfile;
use crate::options::{Format, Global, OutputFormat, format_option};
use crate::present::wrap::{self, OutputStream};
use crate::report::bounded::{self, OmittedDiagnostics};
use crate::report::diagnostic::DiagnosticOutput;
use crate::report::{Printer, printable};
use crate::run_request::{ChatRequestArgs, RunRequestArgs, parse_directive_id};
use crate::workspace::Spaces;

#[derive(Debug, Args)]
#[command(arg = format_option(&[OutputFormat::Markdown, OutputFormat::Html]))]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct PlanArgs {
    /// Id of the directive; optional only when comparing two plan files
    #[arg(value_name = "ID", required_unless_present = "diff")]
    directive: Option<String>,
    #[command(flatten)]
    call: RunRequestArgs,
    #[command(flatten)]
    session: ChatRequestArgs,
    /// Treat inputs that are not given as unknown, instead of using their defaults
    #[arg(long, conflicts_with_all = ["input", "inputs"])]
    unknown_inputs: bool,
    /// Compare with a git revision, or compare two; a side may also be a JSON plan file
    #[arg(long, value_name = "REV[..REV]", conflicts_with_all = ["all", "graph"])]
    diff: Option<String>,
    /// Plan a session of `rye chat` instead of a run
    #[arg(long)]
    chat: bool,
    /// List the plans that the directive has for different inputs, each with the conditions that select it
    #[arg(long, conflicts_with = "graph")]
    all: bool,
    /// Draw the graph of the run
    #[arg(long, value_enum, value_name = "LANGUAGE", num_args = 0..=1, require_equals = true, default_missing_value = "mermaid")]
    graph: Option<GraphLanguage>,
    /// Print the first request as it is sent: system prompt, first message, tools; margins name the source of each
    /// part, `--format plain` omits them
    #[arg(long, conflicts_with_all = ["diff", "all", "graph"])]
    prompt: bool,
}

impl PlanArgs {
    fn mode(&self) -> PlanMode {
        if self.chat { PlanMode::Chat } else { PlanMode::Run }
    }

    /// Sets the mode of a request (run or chat) and adds the arguments that concern a whole session. Fails if a session
    /// argument is given without `--chat`.
    pub(super) fn add_session(&self, request: &mut CompileRequest) -> Result<(), CommandError> {
        if !self.chat && !self.session.is_empty() {
            return Err(CommandError::usage(
                "`--session-limit` and `--append-system` need `--chat`: a run has no session",
            ));
        }
        request.mode = self.mode();
        self.session.add_to(request)
    }
}

/// Output of `rye plan ID --format json` if the directive has errors, so that there is no plan.
#[derive(Debug, Serialize, JsonSchema)]
pub struct NoPlanOutput {
    /// Always null, because there is no plan.
    pub plan_id: Option<String>,
    pub directive: String,
    pub diagnostics: Vec<DiagnosticOutput>,
    /// Number of omitted diagnostics (all after the first 100) for each file and code.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub omitted: Vec<OmittedDiagnostics>,
}

pub fn run(args: &PlanArgs, global: &Global, report: &Printer) -> Result<Exit, CommandError> {
    if let Some(requested) = &args.diff {
        return diff::run(requested, args, global, report);
    }
    let requested = args.directive.as_deref().unwrap_or_default();
    let id = parse_directive_id(requested)?;
    let spaces = Spaces::find_and_print(global.project.as_deref(), report)?;
    report.detail(&spaces.to_string());
    let world = spaces.open()?;
    let mut request = args.call.request(id, &world)?;
    args.add_session(&mut request)?;
    if args.all {
        refuse_document_format("--all", global.format)?;
        // An input name that the directive does not declare is reported once, not once for each plan of the list.
        if args.call.has_inputs() {
            let mut sources = Sources::default();
            let found = compile_with_sources(&world, &request, &mut sources).diagnostics;
            if found.iter().any(|one| one.code() == "interface::unknown-input" && one.labels().is_empty()) {
                print_no_plan(requested, &found, &sources, report)?;
                return Ok(Exit::Failed);
            }
        }
        return matrix::run(&world, &request, report);
    }
    let mut sources = Sources::default();
    let compiled = if args.unknown_inputs {
        compile_routes(&world, &request, &mut sources)
    } else {
        compile_routes_with_default_inputs(&world, request, &mut sources)
    };
    let Some(plans) = compiled.value else {
        print_no_plan(requested, &compiled.diagnostics, &sources, report)?;
        let signature = compiled.diagnostics.iter().any(|one| one.code() == "item::signature");
        return Ok(if signature { Exit::Refused } else { Exit::Failed });
    };
    let lock = lockfile::read(&spaces.project)?;
    let [plan] = plans.as_slice() else { return routes::print(args, global, &world, lock.as_ref(), plans, report) };
    let RoutedPlan { compilation, diagnostics, .. } = plan;
    let diagnostics = of_own_files(diagnostics.clone(), &compilation.sources);
    if args.prompt {
        return print_prompt(compilation, &diagnostics, global, report);
    }
    let mut summary = PlanSummary::new(&world, lock.as_ref(), compilation)?;
    match trust_states(&spaces, &compilation.trust_requirements) {
        Ok(states) => summary.trusted = Some(states),
        Err(error) => report.note(&format!("the states of the trust requirements are unknown: {error}")),
    }
    match (args.graph, global.format) {
        (Some(_), OutputFormat::Json) => report.json(&render::json::report_graph(compilation))?,
        (Some(language), format) => {
            refuse_document_format("--graph", format)?;
            graph::print_drawing(&Drawing::of_plan(&compilation.plan.graph), language, report)?;
        }
        (None, OutputFormat::Html) => report.line(render::html::render(compilation, &summary).trim_end())?,
        (None, OutputFormat::Markdown) => return Err(CommandError::usage("`--format markdown` requires `--diff`")),
        (
            None,
            OutputFormat::Human | OutputFormat::Plain | OutputFormat::Json | OutputFormat::Sarif | OutputFormat::Github,
        ) => {
            show(compilation, summary, &diagnostics, report)?;
        }
    }
    Ok(Exit::Success)
}

/// Fails if `format` is a format of a whole document (Markdown, HTML, SARIF or GitHub annotations), because the option
/// `option` supports no such format.
fn refuse_document_format(option: &str, format: OutputFormat) -> Result<(), CommandError> {
    match format {
        OutputFormat::Human | OutputFormat::Plain | OutputFormat::Json => Ok(()),
        OutputFormat::Html | OutputFormat::Markdown | OutputFormat::Sarif | OutputFormat::Github => {
            Err(CommandError::usage(format!("`{option}` supports only the formats `human`, `plain` and `json`")))
        }
    }
}

/// Returns for each trust requirement true if the user trusts the requirement.
fn trust_states(spaces: &Spaces, requirements: &[TrustRequirement]) -> Result<Vec<bool>, TrustError> {
    let trust = spaces.trust();
    let now = trust.snapshot()?;
    let state = |one: &TrustRequirement| Ok(now.missing(std::slice::from_ref(one))?.is_empty());
    requirements.iter().map(state).collect()
}

/// Prints the first request of a plan. Human output has a margin that names the source of each part; plain output has
/// none.
fn print_prompt(
    compilation: &Compilation,
    diagnostics: &Diagnostics,
    global: &Global,
    report: &Printer,
) -> Result<Exit, CommandError> {
    match global.format {
        OutputFormat::Json => report.json(&render::prompt::collect(compilation))?,
        OutputFormat::Human => {
            report.brief_diagnostics(diagnostics, &compilation.sources);
            let text = render::prompt::render(compilation, wrap::fold_width(OutputStream::Out));
            report.line(printable(&text).trim_end())?;
        }
        OutputFormat::Plain => {
            report.brief_diagnostics(diagnostics, &compilation.sources);
            report.line(printable(&render::prompt::render_bare(compilation)).trim_end())?;
        }
        format @ (OutputFormat::Html | OutputFormat::Markdown | OutputFormat::Sarif | OutputFormat::Github) => {
            refuse_document_format("--prompt", format)?;
        }
    }
    Ok(Exit::Success)
}

fn show(
    compilation: &Compilation,
    summary: PlanSummary,
    diagnostics: &Diagnostics,
    report: &Printer,
) -> Result<(), CommandError> {
    report.detail(&format!("files parsed: {}", compilation.parsed_files));
    match report.format() {
        Format::Json => {
            let shown =
                diagnostics.iter().map(|one| serde_json::to_value(DiagnosticOutput::new(one, &compilation.sources)));
            let shown = shown.collect::<Result<_, _>>().map_err(std::io::Error::other)?;
            report.json(&render::json::render(compilation, shown).with_summary(summary))
        }
        Format::Human | Format::Plain => {
            report.brief_diagnostics(diagnostics, &compilation.sources);
            report.text(printable(&render::text::render(compilation, &summary)).trim_end())
        }
    }
}

/// Prints the diagnostics of a directive that has no plan.
pub fn print_no_plan(
    requested: &str,
    diagnostics: &Diagnostics,
    sources: &Sources,
    report: &Printer,
) -> Result<(), CommandError> {
    match report.format() {
        Format::Json => {
            let (diagnostics, omitted) = bounded::diagnostic_outputs(diagnostics, sources);
            report.json(&NoPlanOutput { plan_id: None, directive: requested.to_owned(), diagnostics, omitted })
        }
        Format::Human | Format::Plain => {
            report.diagnostics(diagnostics, sources);
            // If the directive does not exist, the printed diagnostic is enough.
            if diagnostics.iter().any(|one| one.code() != "item::unknown" || !one.labels().is_empty()) {
                report.note(&format!("`{}` has errors, so it has no plan", printable(requested)));
            }
            Ok(())
        }
    }
}
