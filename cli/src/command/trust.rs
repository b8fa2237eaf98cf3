//! `rye trust`: lists the trust requirements of a project and trusts its current files. Also asks for the confirmation
//! before the first `rye run` in a folder.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use clap::Args;
use rye_compiler::command_files::WHOLE_PROJECT;
use rye_compiler::report::workspace_trust::{requirements_of_workspace, scripts_of_providers};
use rye_compiler::trust::{TrustRequirement, TrustRequirementKind};
use rye_compiler::world::World;
use rye_engine::trust::{ApprovedCommands, Trust, TrustError, TrustRecord, TrustSnapshot};
use schemars::JsonSchema;
use serde::Serialize;

use crate::CommandError;
use crate::exit::Exit;
use crate::options::{Format, Global};
use crate::present::wrap::{OutputStream, fold, fold_for_stderr, fold_width};
use crate::report::{Printer, mask_controls, printable};
use crate::typed_input::ask_yes_no;
use crate::workspace::{Spaces, user_root};

#[derive(Debug, Args)]
pub struct TrustArgs {
    /// List the trust requirements of the project and their state; trust nothing
    #[arg(long, conflicts_with = "revoke")]
    list: bool,
    /// Revoke the trust in this project, or only one approval: a capability, or the start of commands such as `git
    /// push`
    // An empty text is the option without a value.
    #[arg(long, value_name = "APPROVAL", num_args = 0..=1, default_missing_value = "")]
    revoke: Option<String>,
}

/// Output of `rye trust --format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TrustOutput {
    pub project: String,
    /// Trust requirements of the project: programs and requests that it executes on its own, and grants of its
    /// directives.
    pub requirements: Vec<TrustRequirementOutput>,
    /// Capabilities that threads of this project may use without another approval.
    pub capabilities: Vec<String>,
    /// Commands that threads of this project may run without another approval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<ApprovedCommandsOutput>,
}

/// Simple commands that need no further approval.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ApprovedCommandsOutput {
    /// The capability of the calls that run these commands.
    pub capability: String,
    /// The words with which each of these commands starts.
    pub starts_with: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct TrustRequirementOutput {
    /// Kind of the requirement: `hook`, `tool`, `server`, `provider`, `risk`, `grants`, `user_space` or `script`.
    pub kind: &'static str,
    pub name: String,
    /// Description of the effect that needs trust, such as the program that a hook starts.
    pub what: String,
    /// Path of the file that contains the requirement, relative to the project.
    pub file: Option<String>,
    pub line: Option<u32>,
    /// True if the requirement is trusted after this command.
    pub trusted: bool,
}

pub fn run(args: &TrustArgs, global: &Global, report: &Printer) -> Result<Exit, CommandError> {
    crate::workspace::check_user_root()?;
    let spaces = match Spaces::find(global.project.as_deref()) {
        Err(_) if args.list && global.project.is_none() => return list_projects(report),
        Err(failure) if !args.list && global.project.is_none() => {
            return Err(failure.with_help("`rye trust --list` lists the projects that you trust"));
        }
        found => found?,
    };
    spaces.print_project(report);
    let trust = spaces.trust();
    match args.revoke.as_deref() {
        None => {}
        Some("") => {
            let there = trust.delete_record()?;
            report.note(if there { "trust in this project revoked" } else { "nothing was trusted" });
        }
        Some(approval) => revoke_approval(approval, &trust, report)?,
    }
    let all = trust_requirements(&spaces.open()?, &spaces);
    if !args.list && args.revoke.is_none() && !spaces.own {
        trust.record_trust(&all)?;
    }
    show(&all, &trust.snapshot()?, &spaces, report)?;
    if !args.list && args.revoke.is_none() && !all.is_empty() {
        report.note("trusted the current files; changed files need trust again; revoke with `rye trust --revoke`");
    }
    Ok(Exit::Success)
}

fn revoke_approval(approval: &str, trust: &Trust, report: &Printer) -> Result<(), CommandError> {
    if trust.remove_approval(approval)? {
        report.note(&printable(&format!("`{approval}` needs approval again in this project")));
        return Ok(());
    }
    let failure = CommandError::usage(format!("`{}` is not approved for this project", approval.escape_debug()));
    let now = trust.snapshot()?;
    let commands = now.commands().iter().map(|approved| approved.starts_with.join(" "));
    let known: Vec<String> = now.capabilities().iter().cloned().chain(commands).map(|one| format!("`{one}`")).collect();
    Err(if known.is_empty() { failure } else { failure.with_help(format!("approved: {}", known.join(", "))) })
}

/// Output of `rye trust --list --format json` outside of a project.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TrustedProjectsOutput {
    /// Projects with a trust record, by path.
    pub projects: Vec<TrustedProject>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct TrustedProject {
    /// Path of the project.
    pub project: String,
    /// Number of trusted items and files.
    pub trusted: usize,
    /// Capabilities that threads of the project may use without another approval.
    pub capabilities: Vec<String>,
    /// Number of approved command starts, such as `git status`. Threads of the project may run simple commands with
    /// these starts without another approval.
    pub commands: usize,
    /// False if the project's folder is missing.
    pub exists: bool,
}

/// Lists the projects that the user trusts.
fn list_projects(report: &Printer) -> Result<Exit, CommandError> {
    let records = user_root().map(|user| Trust::read_records(&user)).transpose()?.unwrap_or_default();
    let project = |record: TrustRecord| TrustedProject {
        exists: Path::new(&record.project).join(".ai").is_dir(),
        project: record.project,
        trusted: record.trusted.len(),
        capabilities: record.capabilities,
        commands: record.commands.len(),
    };
    let projects: Vec<TrustedProject> = records.into_iter().map(project).collect();
    match report.format() {
        Format::Json => report.json(&TrustedProjectsOutput { projects })?,
        Format::Human if projects.is_empty() => report.line("no project is trusted")?,
        Format::Human | Format::Plain => {
            for one in &projects {
                let missing = if one.exists { "" } else { ", missing" };
                let trusted = crate::present::format_count(one.trusted as u64, "trusted item");
                let allowed = one.capabilities.len() + one.commands;
                let allowed = crate::present::format_count(allowed as u64, "allowed call");
                report.line(&printable(&format!("{}  {trusted}, {allowed}{missing}", one.project)))?;
            }
        }
    }
    Ok(Exit::Success)
}

/// Returns the trust requirements of the project's items, of the scripts next to them, and of the MCP servers in its
/// settings.
pub fn trust_requirements(world: &dyn World, spaces: &Spaces) -> Vec<TrustRequirement> {
    let mut all = requirements_of_workspace(world);
    let scripts: Vec<TrustRequirement> =
        scripts_of_providers(world).into_iter().filter(|script| !all.contains(script)).collect();
    all.extend(scripts);
    let is_there = |path: &str| spaces.project.join(path).symlink_metadata().is_ok();
    all.retain(|one| one.kind != TrustRequirementKind::Script || is_there(&one.name));
    all.extend(server_requirements(world));
    all
}

/// Returns the requirements of the project's MCP servers; none if the settings cannot be read, which is reported when a
/// server is used.
#[cfg(feature = "mcp")]
fn server_requirements(world: &dyn World) -> Vec<TrustRequirement> {
    let configured = rye_engine::tool::mcp::config::read_servers(&rye_compiler::item::Items::new(world));
    configured.unwrap_or_default().values().filter_map(rye_engine::tool::mcp::config::trust_requirement).collect()
}

#[cfg(not(feature = "mcp"))]
fn server_requirements(_: &dyn World) -> Vec<TrustRequirement> {
    Vec::new()
}

fn show(
    all: &[TrustRequirement],
    now: &TrustSnapshot<'_>,
    spaces: &Spaces,
    report: &Printer,
) -> Result<(), CommandError> {
    let mut requirements = Vec::with_capacity(all.len());
    for one in all {
        let trusted = now.missing(std::slice::from_ref(one))?.is_empty();
        requirements.push(TrustRequirementOutput {
            kind: one.kind.as_str(),
            name: one.name.clone(),
            what: what_of(one, now),
            file: one.place.as_ref().map(|place| place.file.clone()),
            line: one.place.as_ref().map(|place| place.line),
            trusted,
        });
    }
    match report.format() {
        Format::Json => {
            return report.json(&TrustOutput {
                project: spaces.project.display().to_string(),
                requirements,
                capabilities: now.capabilities().to_vec(),
                commands: now.commands().iter().map(commands_output).collect(),
            });
        }
        Format::Human if requirements.is_empty() => {
            report.line("this project has no trust requirements")?;
        }
        Format::Human | Format::Plain => {}
    }
    for (one, shown) in all.iter().zip(&requirements) {
        let state = if shown.trusted { "trusted" } else { "not trusted" };
        match report.format() {
            Format::Plain => {
                let place = one.place.as_ref().map(ToString::to_string).unwrap_or_default();
                report.line(&printable(&format!("{state}\t{}\t{}\t{}\t{place}", shown.kind, one.name, shown.what)))?;
            }
            Format::Human | Format::Json => {
                let text = format!("{state:<11}  {}", format_requirement(one, &shown.what));
                report.line(&fold_width(OutputStream::Out).map_or_else(|| text.clone(), |width| fold(&text, width)))?;
            }
        }
    }
    let commands = now.commands().iter().map(format_commands);
    for capability in now.capabilities().iter().cloned().chain(commands) {
        match report.format() {
            Format::Plain => report.line(&printable(&format!("allowed\tcapability\t{capability}")))?,
            Format::Human | Format::Json => {
                report.line(&printable(&format!("allowed      capability {capability}")))?;
            }
        }
    }
    Ok(())
}

fn commands_output(approved: &ApprovedCommands) -> ApprovedCommandsOutput {
    let ApprovedCommands { capability, starts_with } = approved.clone();
    ApprovedCommandsOutput { capability, starts_with }
}

/// Formats approved commands: the capability, and the words with which the commands start.
pub fn format_commands(approved: &ApprovedCommands) -> String {
    format!("{} for simple commands that start with `{}`", approved.capability, approved.starts_with.join(" "))
}

/// Formats a requirement: `hook lint  at thread_started: executes … (.ai/config/agent/hooks.yaml:3)`.
fn format_requirement(one: &TrustRequirement, what: &str) -> String {
    let place = one.place.as_ref().map(|place| format!("  ({place})")).unwrap_or_default();
    match what.strip_prefix("at command: ").filter(|_| one.kind == TrustRequirementKind::Hook) {
        Some(what) => printable(&format!("command /{}  {what}{place}", one.name)),
        None => printable(&format!("{} {}  {what}{place}", one.kind.as_str(), one.name)),
    }
}

/// Number of changed files that a requirement lists by name.
const LISTED_CHANGES: usize = 3;

/// Describes a trust requirement: the effect that needs trust, and the files that have changed since the user trusted
/// it. If the trust covers every file of the project, the text also contains the reason.
fn what_of(one: &TrustRequirement, now: &TrustSnapshot<'_>) -> String {
    let reason = now.whole_project_reason(one);
    // A report of the tool itself can be the changed file.
    let hint = if reason.is_some() && one.kind == TrustRequirementKind::Tool {
        "; `needs: { write_only: [FOLDER/] }` of the tool excludes a folder that the tool only writes"
    } else {
        ""
    };
    let covers = reason.map_or_else(String::new, |reason| format!("; covers {WHOLE_PROJECT}, because {reason}"));
    let changed = now.changed_files(one);
    if changed.is_empty() {
        return format!("{}{covers}", one.what);
    }
    let named: Vec<String> = changed.iter().take(LISTED_CHANGES).map(|path| format!("`{path}`")).collect();
    let others = match changed.len() - named.len() {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    format!("{}{covers}; changed since it was trusted: {}{others}{hint}", one.what, named.join(", "))
}

/// Checks that all requirements of a plan are trusted. If a requirement is not trusted, asks the user to trust all
/// untrusted requirements of the project at once. Without a terminal, refuses the run. If `is_scripted` is true, the
/// user's script gives the replies of every model, so that files with replies in the project are not used and need no
/// trust.
pub fn require_trust(
    planned: &[TrustRequirement],
    is_scripted: bool,
    world: &dyn World,
    spaces: &Spaces,
    report: &Printer,
) -> Result<(), CommandError> {
    let planned = planned.iter().filter(|one| !is_scripted || one.kind != TrustRequirementKind::Script);
    let mut planned: Vec<TrustRequirement> = planned.cloned().collect();
    if planned.is_empty() {
        return Ok(());
    }
    let trust = spaces.trust();
    let now = trust.snapshot()?;
    // A tool of an MCP server requires trust in the server.
    if planned.iter().any(|one| one.name.starts_with("mcp/")) {
        let is_used = |server: &TrustRequirement| {
            planned.iter().any(|one| one.name.starts_with(&format!("mcp/{}/", server.name)))
        };
        let servers: Vec<TrustRequirement> = server_requirements(world).into_iter().filter(is_used).collect();
        planned.extend(servers);
    }
    if now.missing(&planned)?.is_empty() {
        return Ok(());
    }
    // List all requirements of the folder, not only those of the plan. If the folder and the plan have the same
    // requirement, use the text of the plan, because it names the grants of this thread.
    let is_same = |one: &TrustRequirement, other: &TrustRequirement| {
        one.kind == other.kind && one.name == other.name && one.subjects == other.subjects
    };
    let mut all = planned;
    for one in trust_requirements(world, spaces) {
        let is_replaced = is_scripted && one.kind == TrustRequirementKind::Script;
        if !is_replaced && !all.iter().any(|planned| is_same(planned, &one)) {
            all.push(one);
        }
    }
    let missing: Vec<TrustRequirement> = now.missing(&all)?.into_iter().cloned().collect();
    // Read before the list is printed: a file that changes after the question needs trust again.
    let inspected = if trust.path().is_some() { trust.inspect(&missing)? } else { Vec::new() };
    let mut shown: Vec<String> =
        missing.iter().map(|one| format!("  {}", format_requirement(one, &what_of(one, &now)))).collect();
    // Two requirements can have the same text but different hashes of their files. Print such a text once.
    let mut seen = BTreeSet::new();
    shown.retain(|line| seen.insert(line.clone()));
    let list = format!("this project has untrusted requirements:\n{}", shown.join("\n"));
    let refused = |message: String| {
        let error = CommandError { exit: Exit::Refused, ..CommandError::failed(message) };
        error.with_help(format!(
            "inspect these requirements, then trust them with `rye trust{}`",
            project_option(spaces)
        ))
    };
    if can_ask(report) && trust.path().is_some() {
        writeln!(anstream::stderr().lock(), "{}", mask_controls(&fold_for_stderr(&list)))?;
        if confirm("Trust the current files and run?", report)? {
            return Ok(trust.record_inspected(&inspected)?);
        }
        return Err(refused("nothing ran: this project is not trusted".to_owned()));
    }
    Err(refused(list))
}

/// Asks the user a question, and returns true if the answer is yes. Returns true without a question if there is no
/// terminal, or if the output is not for a person.
pub fn confirm(question: &str, report: &Printer) -> io::Result<bool> {
    if !can_ask(report) {
        return Ok(true);
    }
    ask_yes_no(&format!("{} [y/N] ", mask_controls(question)))
}

pub fn can_ask(report: &Printer) -> bool {
    report.format() == Format::Human && io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Returns the `--project` option that selects the project; empty if the working directory is in the project.
fn project_option(spaces: &Spaces) -> String {
    let here = std::env::current_dir().and_then(|here| here.canonicalize());
    let inside = here.is_ok_and(|here| here.starts_with(&spaces.project));
    if inside { String::new() } else { format!(" --project {}", spaces.project.display()) }
}

impl From<TrustError> for CommandError {
    fn from(error: TrustError) -> Self {
        Self::failed(error.to_string())
    }
}
