//! `rye mcp`: lists the configured MCP servers, updates the items of their tools, and serves a directive over MCP.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use rye_compiler::item::Items;
use rye_compiler::tool_spec::ServerSandbox;
use rye_compiler::trust::TrustRequirement;
use rye_engine::rooted_dir::RootedDir;
use rye_engine::tool::mcp::config::SandboxOpenings;
use rye_engine::tool::mcp::{McpConnection, McpServer, config, listing};
use rye_engine::trust::{InspectedRequirement, WrittenFile};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::runtime::Runtime;

use self::accepted::{AcceptedItems, HeldTrust, inspect_server};
use self::difference::{McpDifference, differences_of};
use super::run::sandbox;
use super::run::watch::StopSignals;
use super::trust;
use crate::CommandError;
use crate::exit::Exit;
use crate::file_set::FileSet;
use crate::options::{Format, Global};
use crate::present::format_count;
use crate::report::{Printer, printable};
use crate::runtime::{WORKERS_FOR_SEVERAL_THREADS, start_runtime};
use crate::typed_input::ask_yes_no_async;
use crate::workspace::Spaces;

mod accepted;
mod add;
mod difference;
mod serve;

/// Maximum size in bytes of an existing item that is compared with its new text. A larger item is written again.
const MAX_ITEM_BYTES: u64 = 64 << 20;

#[derive(Debug, Args)]
pub struct McpArgs {
    #[command(subcommand)]
    command: McpCommand,
}

#[derive(Debug, Subcommand)]
enum McpCommand {
    /// List the servers of `.mcp.json` and `.ai/config/mcp.yaml`, with the number of their items
    List,
    /// Add a server to `.mcp.json`, start it, and write an item for each of its tools
    Add(add::AddArgs),
    /// Start servers, and write an item for each of their tools
    Refresh {
        /// Servers to refresh (default: all servers)
        #[arg(value_name = "SERVER")]
        servers: Vec<String>,
        /// Print the changes without writing them; exit with code 1 if there are any
        #[arg(long)]
        dry_run: bool,
    },
    /// Serve a directive to MCP clients on stdin and stdout or over HTTP: the calls of a session run in a thread of the
    /// directive
    Serve(serve::ServeArgs),
}

/// Output of `rye mcp … --format json`: a server.
#[derive(Debug, Serialize, JsonSchema)]
pub struct McpServerOutput {
    pub server: String,
    /// The command that starts the server, or the URL of the server.
    pub runs: String,
    /// The file that configures the server: `.mcp.json` or `.ai/config/mcp.yaml`.
    pub origin: String,
    /// Kind of the server's sandbox: `net` (a URL), `process` (sandboxed) or `none` (no sandbox).
    pub sandbox: &'static str,
    /// True if the user trusts the current definition and program of the server (`list` only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trusted: Option<bool>,
    /// Ids of the server's items.
    pub items: Vec<String>,
    /// Ids of the items that `refresh` created, changed and removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<McpChanges>,
    /// Error message if the server could not be started, or its tools could not be listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct McpChanges {
    pub added: Vec<String>,
    pub changed: Vec<String>,
    pub removed: Vec<String>,
    /// Differences between the changed items and the current tools.
    pub differences: Vec<McpDifference>,
}

impl McpChanges {
    fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }
}

/// The way in which a refresh writes the items of a server.
#[derive(Debug)]
enum WriteMode<'f> {
    /// Print the changes only.
    DryRun,
    /// Ask at a terminal before tools that differ from existing items are accepted.
    AskIfChanged,
    /// Write into this file set without a question. The caller asks the user, and keeps or undoes the changes.
    Write(&'f mut FileSet),
}

pub fn run(args: &McpArgs, global: &Global, report: &Printer) -> Result<Exit, CommandError> {
    let spaces = Spaces::find(global.project.as_deref())?;
    let world = spaces.open()?;
    let configured =
        || config::read_servers(&Items::new(&world)).map_err(|error| CommandError::failed(error.with_line()));
    match &args.command {
        McpCommand::List => list(&spaces, &configured()?, report),
        McpCommand::Refresh { servers, dry_run } => {
            spaces.print_project(report);
            let wanted = select_servers(&configured()?, servers)?;
            let starts: Vec<TrustRequirement> = wanted.iter().filter_map(config::trust_requirement).collect();
            trust::require_trust(&starts, false, &world, &spaces, report)?;
            let held = HeldTrust::read(&world, &spaces)?;
            sandbox::apply_run_settings(&world, &spaces)?;
            let mode = if *dry_run { WriteMode::DryRun } else { WriteMode::AskIfChanged };
            let runtime = start_runtime(WORKERS_FOR_SEVERAL_THREADS)?;
            let mut accepted = AcceptedItems::default();
            let exit = refresh_items(&spaces.project, &wanted, (mode, &mut accepted), (&runtime, &mut None), report)?;
            held.record(&accepted, &spaces)?;
            Ok(exit)
        }
        McpCommand::Add(args) => {
            spaces.print_project(report);
            sandbox::apply_run_settings(&world, &spaces)?;
            let held = HeldTrust::read(&world, &spaces)?;
            add_and_trust(args, &configured()?, held, &spaces, report)
        }
        McpCommand::Serve(serve) => {
            spaces.print_project(report);
            serve::run(serve, &spaces, report)
        }
    }
}

/// Adds a server: writes its entry and the items of its tools, and records trust in the server and the items. At a
/// terminal, asks the user before recording the trust. Without a terminal, the typed command or address counts as the
/// user's consent. A server that a file of the project already configures is refused, because its name is no consent to
/// a command that others wrote. If the server cannot be started, if the user refuses, or if a signal stops the command,
/// the files are restored.
fn add_and_trust(
    args: &add::AddArgs,
    configured: &BTreeMap<String, McpServer>,
    held: HeldTrust,
    spaces: &Spaces,
    report: &Printer,
) -> Result<Exit, CommandError> {
    let runtime = start_runtime(WORKERS_FOR_SEVERAL_THREADS)?;
    let mut stops = runtime.block_on(async { StopSignals::install(report) });
    // Dropping the files without `keep` restores `.mcp.json` and removes the items.
    let mut files = FileSet::open(&spaces.project, report)?;
    let server = add::add_server(args, configured, spaces, &mut files)?;
    // The files that the user trusts with the answer are those from which the server starts now.
    let inspected = inspect_server(&server, spaces)?;
    let servers = std::slice::from_ref(&server);
    let mut accepted = AcceptedItems::default();
    let mode = (WriteMode::Write(&mut files), &mut accepted);
    let exit = refresh_items(&spaces.project, servers, mode, (&runtime, &mut stops), report);
    let not_added = format!("`{}` was not added", server.name);
    if !matches!(exit, Ok(Exit::Success)) {
        report.note(&not_added);
        return exit;
    }
    if let Some(text) = describe_openings(&server) {
        report.note(&text);
    }
    if let Some(text) = describe_covered_files(&server, &inspected) {
        report.note(&text);
    }
    if !spaces.own && trust::can_ask(report) {
        let question = printable(&format!("Trust the server `{}` and these tools? [y/N] ", server.name));
        let answer = runtime.block_on(async {
            tokio::select! {
                answer = ask_yes_no_async(question) => Some(answer),
                () = next_stop(&mut stops) => None,
            }
        });
        let Some(answer) = answer else {
            // The cursor is behind the question.
            writeln!(anstream::stderr().lock()).ok();
            report.note(&not_added);
            return Ok(Exit::Cancelled);
        };
        if !answer? {
            report.note(&not_added);
            return Ok(Exit::Refused);
        }
    }
    accepted.written = files.written().to_vec();
    held.record_with_server(inspected, &accepted, spaces)?;
    files.keep();
    report.note(&format!("grant the tools of the server with {}", format_grant(&server)));
    exit
}

/// Waits for a signal that stops the process. Never returns if no handler is installed.
async fn next_stop(stops: &mut Option<StopSignals>) {
    match stops {
        Some(stops) => drop(stops.next().await),
        None => std::future::pending().await,
    }
}

/// Describes what the sandbox of an added server allows: folders to write, and hosts. `None` for a server without a
/// sandbox.
fn describe_openings(server: &McpServer) -> Option<String> {
    if server.isolation() != ServerSandbox::Process {
        return None;
    }
    let SandboxOpenings { write, net, read } = server.required_openings();
    let list = |words: &[String], none: &str| if words.is_empty() { none.to_owned() } else { words.join(", ") };
    let reads = if read.is_empty() { String::new() } else { format!("also reads {}; ", read.join(", ")) };
    Some(printable(&format!(
        "{}: {reads}writes {}; network: {}",
        server.name,
        list(&write, "nothing in the project (`--write FOLDER/` opens a folder)"),
        list(&net, "none (`--net HOST` opens the network)")
    )))
}

/// Number of files of the project that the note about an added server lists by name.
const LISTED_FILES: usize = 5;

/// Returns a note that lists the files of the project that trust in an added server covers; `None` if there are none.
/// The user typed the command, but others may have written these files.
fn describe_covered_files(server: &McpServer, inspected: &[InspectedRequirement]) -> Option<String> {
    let files: Vec<&str> = inspected.iter().flat_map(InspectedRequirement::covered_files).collect();
    let listed: Vec<String> = files.iter().take(LISTED_FILES).map(|file| format!("`{file}`")).collect();
    let more = match files.len().saturating_sub(LISTED_FILES) {
        0 => String::new(),
        more => format!(" and {}", format_count(more as u64, "more file")),
    };
    let text = || printable(&format!("{}: trust includes {}{more}, as now", server.name, listed.join(", ")));
    (!files.is_empty()).then(text)
}

/// Returns a grant for all tools of a server, with the folders and hosts that the server needs.
fn format_grant(server: &McpServer) -> String {
    let SandboxOpenings { write, net, read: _ } = server.required_openings();
    let attribute = |name: &str, words: &[String]| {
        if words.is_empty() { String::new() } else { format!(" {name}=\"{}\"", words.join(" ")) }
    };
    let needs = [attribute("write", &write), attribute("net", &net)].concat();
    printable(&format!("<execute><tool{needs}>mcp.{}.*</tool></execute>", server.name))
}

fn select_servers(configured: &BTreeMap<String, McpServer>, named: &[String]) -> Result<Vec<McpServer>, CommandError> {
    if named.is_empty() {
        return Ok(configured.values().cloned().collect());
    }
    let one = |name: &String| {
        configured.get(name).cloned().ok_or_else(|| {
            let known: Vec<&str> = configured.keys().map(String::as_str).collect();
            CommandError::usage(format!("no MCP server `{}` is configured", name.escape_debug())).with_help(
                if known.is_empty() {
                    "add the server: `rye mcp add NAME -- COMMAND`".to_owned()
                } else {
                    format!("available: {}", known.join(", "))
                },
            )
        })
    };
    named.iter().map(one).collect()
}

fn list(spaces: &Spaces, configured: &BTreeMap<String, McpServer>, report: &Printer) -> Result<Exit, CommandError> {
    let mut output = Vec::new();
    for server in configured.values() {
        let items =
            existing_items(&spaces.project, server)?.into_keys().map(|file| tool_item_id(server, &file)).collect();
        output.push(McpServerOutput { trusted: Some(is_trusted(server, spaces)?), ..server_output(server, items) });
    }
    if report.format() == Format::Json {
        report.json(&output)?;
        return Ok(Exit::Success);
    }
    if output.is_empty() {
        report.note("no MCP server is configured in `.mcp.json` or `.ai/config/mcp.yaml`");
    }
    for server in &output {
        let trust = if server.trusted == Some(false) { "; not trusted: run `rye trust`" } else { "" };
        let count = match server.items.len() {
            0 => format!("no items; create them with `rye mcp refresh {}`", server.server),
            1 => "1 item".to_owned(),
            n => format!("{n} items"),
        };
        let sandbox = match server.sandbox {
            "none" => "; NO SANDBOX",
            _ => "",
        };
        report.line(&printable(&format!(
            "{}  {}  ({}{sandbox}; {count}{trust})",
            server.server, server.runs, server.origin
        )))?;
    }
    Ok(Exit::Success)
}

fn is_trusted(server: &McpServer, spaces: &Spaces) -> Result<bool, CommandError> {
    let Some(requirement) = config::trust_requirement(server).filter(|_| !spaces.own) else { return Ok(true) };
    Ok(spaces.trust().snapshot()?.missing(std::slice::from_ref(&requirement))?.is_empty())
}

fn refresh_items(
    project: &Path,
    servers: &[McpServer],
    (mut mode, accepted): (WriteMode<'_>, &mut AcceptedItems),
    (runtime, stops): (&Runtime, &mut Option<StopSignals>),
    report: &Printer,
) -> Result<Exit, CommandError> {
    let mut output = Vec::new();
    let (mut failed, mut differs, mut refused) = (false, false, false);
    for server in servers {
        report.note(&printable(&format!("{}: {}", server.name, server.describe())));
        if server.isolation() == ServerSandbox::None {
            report.note(&format!("{}: no sandbox, the server has all your permissions", server.name));
        }
        let missing = add::missing_program(server);
        let listed = runtime.block_on(async {
            if let Some(program) = &missing {
                return Err(format!("no program `{program}` in `PATH`: install the server `{}` first", server.name));
            }
            let list = async {
                let connection = McpConnection::open(server, project).await.map_err(|e| e.to_string())?;
                listing::server_items(server, &connection.definitions().await)
            };
            tokio::select! {
                listed = list => listed.map(Some),
                () = next_stop(stops) => Ok(None),
            }
        });
        let Some(listed) = listed.transpose() else { return Ok(Exit::Cancelled) };
        let done = listed.and_then(|listed| {
            for warning in &listed.warnings {
                report.note(&printable(&format!("warning: {warning}")));
            }
            compare_items(project, server, &listed.files).map_err(|e| e.message).map(|changes| (listed.files, changes))
        });
        let one = match done {
            Ok((files, changes)) => {
                differs |= !changes.is_empty();
                let items = files.keys().map(|file| tool_item_id(server, file)).collect();
                let output = McpServerOutput { changes: Some(changes), error: None, ..server_output(server, items) };
                show(&output, report)?;
                match &mut mode {
                    WriteMode::DryRun => {}
                    WriteMode::Write(set) => write_items(project, server, &files, (set, accepted))?,
                    WriteMode::AskIfChanged if accepts_changes(&output, project, server, report)? => {
                        let mut set = FileSet::open(project, report)?;
                        write_items(project, server, &files, (&mut set, accepted))?;
                        accepted.written.extend_from_slice(set.written());
                        set.keep();
                    }
                    WriteMode::AskIfChanged => refused = true,
                }
                output
            }
            Err(error) => {
                failed = true;
                let output = McpServerOutput { changes: None, error: Some(error), ..server_output(server, Vec::new()) };
                show(&output, report)?;
                output
            }
        };
        // The error names the sandbox if the sandbox can be the cause.
        let may_be_sandbox = one.error.as_ref().is_some_and(|error| error.contains("sandbox"));
        if may_be_sandbox && missing.is_none() && server.isolation() == ServerSandbox::Process {
            report.note(&sandbox_hint(&server.name));
        }
        output.push(one);
    }
    if report.format() == Format::Json {
        report.json(&output)?;
    }
    Ok(match (failed, refused) {
        (true, _) => Exit::Failed,
        (false, true) => Exit::Refused,
        (false, false) if matches!(mode, WriteMode::DryRun) && differs => Exit::Failed,
        (false, false) => Exit::Success,
    })
}

/// Asks, at a terminal, whether to accept tools that differ from the items of a server. A server without items is
/// accepted without a question: the user has just asked for its tools.
fn accepts_changes(
    output: &McpServerOutput,
    project: &Path,
    server: &McpServer,
    report: &Printer,
) -> Result<bool, CommandError> {
    let is_changed = output.changes.as_ref().is_some_and(|changes| !changes.is_empty());
    if !is_changed || existing_items(project, server)?.is_empty() {
        return Ok(true);
    }
    let accepted = trust::confirm(&format!("Accept these changes of the server `{}`?", server.name), report)?;
    if !accepted {
        report.note(&format!(
            "the items of `{}` are unchanged; calls of its changed tools are refused until you accept the change",
            server.name
        ));
    }
    Ok(accepted)
}

/// Returns a hint for a sandboxed server that does not start: the settings that open the sandbox.
fn sandbox_hint(name: &str) -> String {
    format!(
        "help: `{name}` runs in a sandbox: it reads the project and the system, writes its own `TMPDIR`, and has no network; if this is the cause, \
         add the server again with `rye mcp add {name} --read /PATH --write FOLDER/ --net HOST`, or set `needs: {{ read, write, net }}` of the \
         server where it is configured; repeat `write` and `net` in the grants of its tools; or set `sandbox: none`"
    )
}

fn show(server: &McpServerOutput, report: &Printer) -> Result<(), CommandError> {
    if report.format() == Format::Json {
        return Ok(());
    }
    if let Some(error) = &server.error {
        report.note(&printable(&format!("error: {error}")));
    }
    if let Some(changes) = &server.changes {
        for (mark, ids) in [("+", &changes.added), ("~", &changes.changed), ("-", &changes.removed)] {
            for id in ids {
                report.line(&format!("{mark} {id}"))?;
                for line in changes.differences.iter().filter(|one| one.item == *id).flat_map(McpDifference::lines) {
                    report.line(&printable(&line))?;
                }
            }
        }
    }
    if server.error.is_none() {
        report.note(&format!("{}: {}", server.server, format_count(server.items.len() as u64, "tool")));
    }
    Ok(())
}

fn server_output(server: &McpServer, items: Vec<String>) -> McpServerOutput {
    McpServerOutput {
        server: server.name.clone(),
        runs: server.describe(),
        origin: server.origin.clone(),
        sandbox: server.isolation().as_str(),
        trusted: None,
        items,
        changes: None,
        error: None,
    }
}

fn item_folder(server: &McpServer) -> String {
    format!(".ai/tools/mcp/{}", server.name)
}

fn tool_item_id(server: &McpServer, file: &str) -> String {
    format!("mcp/{}/{}", server.name, file.trim_end_matches(".yaml"))
}

/// Returns the texts of the items that exist for a server, by file name. The text of an unreadable item is empty.
fn existing_items(project: &Path, server: &McpServer) -> Result<BTreeMap<String, String>, CommandError> {
    let mut found = BTreeMap::new();
    let within = RootedDir::open(project)?;
    let entries = match fs::read_dir(project.join(item_folder(server))) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(found),
        Err(e) => return Err(CommandError::failed(format!("`{}` cannot be read: {e}", item_folder(server)))),
    };
    for entry in entries {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if Path::new(&name).extension().is_some_and(|e| e == "yaml") && entry.file_type()?.is_file() {
            // An unreadable item is written again.
            let read = within.read(&Path::new(&item_folder(server)).join(&name), MAX_ITEM_BYTES).unwrap_or_default();
            found.insert(name, String::from_utf8(read.unwrap_or_default()).unwrap_or_default());
        }
    }
    Ok(found)
}

/// Compares the existing items of a server with `files`, the items of the server's current tools.
fn compare_items(
    project: &Path,
    server: &McpServer,
    files: &BTreeMap<String, String>,
) -> Result<McpChanges, CommandError> {
    let before = existing_items(project, server)?;
    let mut changes = McpChanges::default();
    for (file, text) in files {
        let id = tool_item_id(server, file);
        match before.get(file) {
            Some(old) if is_item(old, text) => {}
            Some(old) => {
                changes.differences.extend(differences_of(&id, without_signature(old), text));
                changes.changed.push(id);
            }
            None => changes.added.push(id),
        }
    }
    let removed = before.keys().filter(|file| !files.contains_key(*file));
    changes.removed = removed.map(|file| tool_item_id(server, file)).collect();
    Ok(changes)
}

/// Writes `files`, the items of the current tools of a server, and removes the server's other items.
fn write_items(
    project: &Path,
    server: &McpServer,
    files: &BTreeMap<String, String>,
    (set, accepted): (&mut FileSet, &mut AcceptedItems),
) -> Result<(), CommandError> {
    let before = existing_items(project, server)?;
    let place = |file: &str| PathBuf::from(item_folder(server)).join(file);
    for (file, text) in files {
        let written = match before.get(file).filter(|old| is_item(old, text)) {
            Some(old) => WrittenFile::new(file.clone(), None, Some(old.as_bytes())),
            None => set.replace(&place(file), text.as_bytes())?,
        };
        accepted.items.extend(written.tool(tool_item_id(server, file)));
    }
    before.keys().filter(|file| !files.contains_key(*file)).try_for_each(|file| set.remove(&place(file)))
}

/// Returns true if the existing item `old` has the definition `text`. The signature line of `old` is ignored.
fn is_item(old: &str, text: &str) -> bool {
    without_signature(old) == text
}

fn without_signature(text: &str) -> &str {
    text.strip_prefix("# rye:signed:").and_then(|rest| rest.split_once('\n')).map_or(text, |(_, rest)| rest)
}
