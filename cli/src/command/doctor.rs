//! `rye doctor`: diagnoses the environment: machine, user and project, with a fix for each problem. Changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{MetadataExt, PermissionsExt as _};
use std::path::Path;

use clap::Args;
use rye_compiler::approvals::HeadlessPolicy;
use rye_compiler::diagnostics::Diagnostics;
use rye_compiler::item::Items;
use rye_compiler::model;
use rye_compiler::sandbox::SandboxKind;
use rye_compiler::validate::{Selection, check};
use rye_compiler::world::{ItemKind, Space, World};
use rye_engine::disk_world::{DiskWorld, SignaturePolicy};
use rye_engine::keys::SignatureStatus;
use rye_engine::provider::environment::ProviderEnvironment;
use rye_engine::threads::Threads;
use rye_engine::tool::process::{SandboxSupport, detect_support};
use rye_grammar::ItemId;
use schemars::JsonSchema;
use serde::Serialize;

use super::keys::user_keys;
use super::run::sandbox::{BubblewrapState, bubblewrap_state};
use super::trust::trust_requirements;
use crate::CommandError;
use crate::exit::Exit;
use crate::node_version::typescript_problem;
use crate::options::{Format, Global};
use crate::present::wrap::{OutputStream, fold, fold_width};
use crate::present::{format_count, join_names};
use crate::report::{Printer, printable};
use crate::workspace::{self, Spaces};
use places::{MissingPlace, missing_places};
use runtimes::{Probe, probe_runtimes};

mod places;
mod runtimes;

#[derive(Debug, Args)]
pub struct DoctorArgs {}

/// Output of `rye doctor --format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DoctorOutput {
    pub findings: Vec<Finding>,
    /// The sandbox of every tool, on this machine.
    pub sandboxes: Vec<SandboxOutput>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Finding {
    /// Subject of the finding: `version`, `spaces`, `provider`, `keys`, `signing`, `trust`, `approvals`, `sandbox`,
    /// `runtime`, `store`, `project` or `places`.
    pub about: &'static str,
    pub state: FindingState,
    pub text: String,
    /// The fix; null if none is needed.
    pub fix: Option<String>,
}

/// State of a finding. `note` means that the inspected part works but could be improved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FindingState {
    Fine,
    Note,
    Wrong,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct SandboxOutput {
    pub tool: String,
    /// Kind of the sandbox: `engine`, `files`, `requests`, `process` or `none`.
    pub kind: &'static str,
    pub text: String,
}

pub fn run(global: &Global, report: &Printer) -> Result<Exit, CommandError> {
    let (spaces, has_project) = Spaces::find_or_here(global.project.as_deref())?;
    if has_project {
        spaces.print_project(report);
    }
    let mut found = Findings(Vec::new());
    found.add_success(
        "version",
        format!("rye {} on {} {}", env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH),
    );
    found.spaces(&spaces, has_project);
    let offers = detect_support();
    let mut sandboxes = Vec::new();
    found.keys();
    match spaces.open() {
        Ok(world) => {
            found.providers(&world, &spaces);
            found.signatures(&world);
            found.trust(&world, &spaces);
            found.approvals(&world);
            if has_project {
                found.project(&world);
                found.places(&world, &spaces);
            }
            found.sandbox(offers, &bubblewrap_state(&world, &spaces));
            sandboxes = tool_sandboxes(&world, offers);
        }
        Err(failure) => {
            found.wrong("project", failure.message, failure.help.as_deref());
            // The settings cannot be read, which the finding `project` reports. The finding `sandbox` then assumes that
            // the settings do not request bubblewrap.
            found.sandbox(offers, &BubblewrapState::NotProbed);
        }
    }
    found.runtimes(&spaces);
    if has_project {
        found.store(&spaces);
    }
    let wrong = found.0.iter().any(|finding| finding.state == FindingState::Wrong);
    show(found.0, sandboxes, report)?;
    Ok(if wrong { Exit::Failed } else { Exit::Success })
}

struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, about: &'static str, state: FindingState, text: String, fix: Option<&str>) {
        self.0.push(Finding { about, state, text, fix: fix.map(str::to_owned) });
    }

    fn add_success(&mut self, about: &'static str, text: String) {
        self.add(about, FindingState::Fine, text, None);
    }

    fn wrong(&mut self, about: &'static str, text: String, fix: Option<&str>) {
        self.add(about, FindingState::Wrong, text, fix);
    }

    fn spaces(&mut self, spaces: &Spaces, has_project: bool) {
        if has_project {
            self.add_success("spaces", format!("the project is {}", spaces.project.display()));
        } else {
            let text = "no project found here".to_owned();
            self.add(
                "spaces",
                FindingState::Note,
                text,
                Some("create a project with `rye init`, or select a project with `--project DIR`"),
            );
        }
        match (&spaces.user, workspace::user_root()) {
            _ if spaces.own => self.add_success("spaces", "the project is your user space itself".to_owned()),
            (Some(user), _) => self.add_success("spaces", format!("your user space is {}", user.display())),
            (None, Some(root)) => {
                let text = format!("no user space: {} has no `.ai`", root.display());
                self.add(
                    "spaces",
                    FindingState::Note,
                    text,
                    Some("create the user space with `rye keys generate` or `rye trust`"),
                );
            }
            (None, None) => {
                let home = std::env::var("HOME").unwrap_or_default();
                let text = if home.is_empty() {
                    "the location of the user space is unknown: `HOME` is not set".to_owned()
                } else {
                    format!("the location of the user space is unknown: `HOME` names `{home}`, which is not a folder")
                };
                self.wrong("spaces", text, Some("set `HOME` or `RYE_USER_SPACE` to an existing folder"));
            }
        }
    }

    fn keys(&mut self) {
        let listed = user_keys().and_then(|keys| Ok(keys.list()?));
        match listed {
            Ok(keys) => {
                let own = keys.iter().find(|key| key.own);
                let others = keys.len() - usize::from(own.is_some());
                match own {
                    Some(key) => self
                        .add_success("keys", format!("your key is {}; trusted keys of others: {others}", key.key_id)),
                    None => self.add(
                        "keys",
                        FindingState::Note,
                        format!("no signing key found; trusted keys of others: {others}"),
                        Some("create a key with `rye keys generate`"),
                    ),
                }
            }
            Err(failure) => self.wrong("keys", failure.message, failure.help.as_deref()),
        }
    }

    fn providers(&mut self, world: &DiskWorld, spaces: &Spaces) {
        let environment = match ProviderEnvironment::read(spaces.user.as_deref()) {
            Ok(environment) => environment,
            Err(error) => return self.wrong("provider", format!("your `.env` cannot be read: {error}"), None),
        };
        let dotenv = spaces.user.as_deref().map(|folder| folder.join(".env"));
        if let Some(mode) = dotenv.and_then(|file| Some(std::fs::metadata(file).ok()?.permissions().mode() & 0o777))
            && mode & 0o077 != 0
        {
            let text = format!("your `.env` has the mode {mode:o}: other users of this machine may read its keys");
            self.add("provider", FindingState::Note, text, Some("run `chmod 600` on `.env` of your user space"));
        }
        let items = Items::new(world);
        let mut without_key: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        let ids = item_ids(world, ItemKind::Config);
        for id in ids.iter().filter(|id| id.as_str().starts_with("agent/providers/")) {
            let name = id.as_str().trim_start_matches("agent/providers/");
            let Some(node) = items.config(id) else { continue };
            let read = model::read_provider(name, &node, &items.sources(), &mut Diagnostics::new());
            let Some(provider) = read else {
                self.wrong(
                    "provider",
                    format!("{name}: the provider file cannot be used"),
                    Some("run `rye check` for the details"),
                );
                continue;
            };
            let Some(variable) = provider.connection.get("key_env").and_then(serde_json::Value::as_str) else {
                self.add_success("provider", format!("{name}: needs no key"));
                continue;
            };
            if environment.get(variable).is_some() {
                self.add_success("provider", format!("{name}: `{variable}` is set"));
            } else {
                without_key.entry(variable.to_owned()).or_default().push(name);
            }
        }
        for (variable, names) in without_key {
            let fix = format!("export {variable}=…, or put it into `.env` of your user space");
            let text = format!("{}: `{variable}` is not set", names.join(", "));
            self.add("provider", FindingState::Note, text, Some(&fix));
        }
    }

    fn signatures(&mut self, world: &DiskWorld) {
        let policy = match world.signature_policy() {
            Ok(SignaturePolicy::None) => "none",
            Ok(SignaturePolicy::Shared) => "shared",
            Ok(SignaturePolicy::All) => "all",
            Err(error) => {
                let fix = Some("write `signing: { require: shared }` into `.ai/config/agent/agent.yaml`");
                return self.wrong("signing", error.to_string(), fix);
            }
        };
        let (mut signed, mut refused) = (0_usize, Vec::new());
        for file in ItemKind::ALL.into_iter().flat_map(|kind| world.file_signatures(kind).unwrap_or_default()) {
            match file.status {
                Ok(SignatureStatus::Signed { .. }) => signed += 1,
                Ok(SignatureStatus::Unsigned) if policy != "all" => {}
                Ok(SignatureStatus::Unsigned) | Err(_) => refused.push(file.space.display(&file.path)),
            }
        }
        if refused.is_empty() {
            self.add_success(
                "signing",
                format!("`signing.require` is `{policy}`; {} signed, all valid", pluralize_are(signed)),
            );
        } else {
            let text = format!(
                "{} ignored, because the signature is invalid, untrusted or missing: {}",
                pluralize_are(refused.len()),
                join_names(&refused)
            );
            self.wrong("signing", text, Some("run `rye verify` for the details; `rye sign` signs intended changes"));
        }
    }

    fn trust(&mut self, world: &DiskWorld, spaces: &Spaces) {
        let all = trust_requirements(world, spaces);
        let trust = spaces.trust();
        let missing = trust.snapshot().and_then(|now| Ok(now.missing(&all)?.len()));
        match missing {
            Ok(0) => {
                let text =
                    format!("{} of this project, all trusted", format_count(all.len() as u64, "trust requirement"));
                self.add_success("trust", text);
            }
            Ok(count) => {
                let text =
                    format!("{} of this project not trusted yet", format_count(count as u64, "trust requirement"));
                self.add(
                    "trust",
                    FindingState::Note,
                    text,
                    Some("`rye trust --list` lists the requirements, `rye trust` trusts them"),
                );
            }
            Err(error) => self.wrong("trust", error.to_string(), None),
        }
    }

    fn approvals(&mut self, world: &DiskWorld) {
        let unattended = HeadlessPolicy::from_settings(world);
        let text = format!(
            "risky calls without `<acknowledge>` need approval at the terminal; without a terminal: {} (`approvals.headless: {}`)",
            unattended.describe(),
            unattended.as_str()
        );
        match unattended {
            HeadlessPolicy::Queue | HeadlessPolicy::Deny => self.add_success("approvals", text),
            HeadlessPolicy::Allow => {
                let fix =
                    "write `approvals: { headless: queue }` into `.ai/config/agent/agent.yaml` of your user space";
                self.add("approvals", FindingState::Note, text, Some(fix));
            }
        }
    }

    fn sandbox(&mut self, offers: SandboxSupport, requested: &BubblewrapState) {
        let sockets = if offers.sockets { "sockets refused unless granted" } else { "sockets not refused" };
        let around = match requested {
            BubblewrapState::At(program) => format!(", within bubblewrap ({})", program.display()),
            BubblewrapState::Missing => {
                let fix = "install bubblewrap, or remove the setting from `agent/agent.yaml`";
                let text = "`sandbox: bubblewrap` is set, but `bwrap` is not in `PATH`: no program can run";
                return self.wrong("sandbox", text.to_owned(), Some(fix));
            }
            BubblewrapState::NotProbed => String::new(),
        };
        let text = format!("Landlock {}, {sockets}{around}", offers.landlock);
        let gaps = offers.missing();
        if gaps.is_empty() {
            return self.add_success("sandbox", text);
        }
        let state = if offers.landlock == 0 { FindingState::Wrong } else { FindingState::Note };
        self.add(
            "sandbox",
            state,
            format!("{text}: {}", gaps.join("; ")),
            Some("a newer kernel supports this restriction"),
        );
    }

    fn runtimes(&mut self, spaces: &Spaces) {
        let probes = match probe_runtimes(&spaces.project) {
            Ok(probes) => probes,
            Err(failure) => return self.wrong("runtime", failure.message, failure.help.as_deref()),
        };
        for probe in probes {
            match probe {
                Probe::Works { program, printed } => {
                    self.add_success("runtime", format!("`{program}` runs in the sandbox: {printed}"));
                    if program == "node"
                        && let Some(problem) = typescript_problem(&printed)
                    {
                        let fix = Some("install a newer Node.js if you use TypeScript tools");
                        self.add("runtime", FindingState::Note, problem, fix);
                    }
                }
                Probe::Missing { program, needed_by } => {
                    let text = format!("`{program}` is not in `PATH`: {needed_by} cannot run");
                    self.add("runtime", FindingState::Note, text, Some("install the program if you use such tools"));
                }
                Probe::Fails { program, reason } => {
                    let fix = "install the program below a folder that the sandbox can read, such as `/usr` (docs/explanation/security.md)";
                    let text = format!("`{program}` cannot run in the sandbox: {reason}");
                    self.add("runtime", FindingState::Note, text, Some(fix));
                }
            }
        }
    }

    fn places(&mut self, world: &dyn World, spaces: &Spaces) {
        for missing in missing_places(world, &spaces.project) {
            let (state, text, nearest) = match missing {
                MissingPlace::Program { tool, program, nearest } => (
                    FindingState::Wrong,
                    format!("the program `{program}` of the tool `{tool}` does not exist"),
                    nearest,
                ),
                MissingPlace::Command { tool, program } => {
                    (FindingState::Note, format!("the program `{program}` of the tool `{tool}` is not in `PATH`"), None)
                }
                MissingPlace::Folder { directive, folder, nearest } => {
                    let text = format!("`{directive}` grants writes to `{folder}`, which does not exist");
                    (FindingState::Note, text, Some(nearest))
                }
            };
            let fix = nearest.map(|nearest| format!("did you mean `{nearest}`?"));
            self.add("places", state, text, fix.as_deref());
        }
    }

    fn store(&mut self, spaces: &Spaces) {
        let read = Threads::open(&spaces.project).and_then(|threads| threads.list());
        if let Some(text) = unwritable_store(&spaces.project) {
            let fix = "run `rye` as the owner of the folder, or change its owner or permissions";
            return self.wrong("store", text, Some(fix));
        }
        match read {
            Ok(threads) => {
                self.add_success("store", format!("{} in .ai/state", format_count(threads.len() as u64, "thread")));
            }
            Err(error) => {
                let fix = "close other programs that lock `.ai/state`; without the registry, threads are read from their transcripts";
                self.wrong("store", format!("the thread registry cannot be read: {error}"), Some(fix));
            }
        }
    }

    fn project(&mut self, world: &dyn World) {
        let report = check(world, &Selection::All);
        let text = format!(
            "{} and {} in {}",
            format_count(report.errors() as u64, "error"),
            format_count(report.warnings() as u64, "warning"),
            format_count(report.files as u64, "file")
        );
        if report.errors() > 0 {
            self.wrong("project", text, Some("`rye check` shows them"));
        } else {
            self.add_success("project", text);
        }
    }
}

/// Returns the ids of all items of a kind, without duplicates.
fn item_ids(world: &dyn World, kind: ItemKind) -> Vec<ItemId> {
    let mut ids: Vec<ItemId> = world.list(kind).unwrap_or_default().into_iter().map(|entry| entry.id).collect();
    ids.dedup();
    ids
}

fn tool_sandboxes(world: &dyn World, offers: SandboxSupport) -> Vec<SandboxOutput> {
    let items = Items::new(world);
    let mut sandboxes = Vec::new();
    for tool in item_ids(world, ItemKind::Tool).iter().filter_map(|id| items.tool(id)) {
        let kind = SandboxKind::of(&tool.spec.kind);
        let text = match kind {
            SandboxKind::Engine => "runs inside the engine, without access to the machine".to_owned(),
            SandboxKind::Files => "project files only".to_owned(),
            SandboxKind::Requests => {
                "the engine sends HTTP requests to granted hosts only, without access to the machine".to_owned()
            }
            SandboxKind::Process => process_sandbox(offers),
            SandboxKind::None => {
                "NO SANDBOX: an MCP server with `sandbox: none` in its settings; the server has all your permissions"
                    .to_owned()
            }
        };
        let space = if tool.file.space == Space::System { "" } else { tool.file.space.as_str() };
        let name = if space.is_empty() { tool.file.id.to_string() } else { format!("{} ({space})", tool.file.id) };
        sandboxes.push(SandboxOutput { tool: name, kind: kind.as_str(), text });
    }
    sandboxes
}

fn process_sandbox(offers: SandboxSupport) -> String {
    if offers.landlock == 0 {
        return "a separate process without a sandbox: this kernel does not support one".to_owned();
    }
    let sockets = if offers.sockets {
        "no network unless `net` is granted; a grant for one host opens the whole network"
    } else {
        "the network is open"
    };
    format!(
        "a process in a Landlock {} sandbox: reads the project and the system, writes only what `write` grants; {sockets}",
        offers.landlock
    )
}

fn show(findings: Vec<Finding>, sandboxes: Vec<SandboxOutput>, report: &Printer) -> Result<(), CommandError> {
    if report.format() == Format::Json {
        return report.json(&DoctorOutput { findings, sandboxes });
    }
    let plain = report.format() == Format::Plain;
    for finding in &findings {
        let word = match finding.state {
            FindingState::Fine => "fine",
            FindingState::Note => "note",
            FindingState::Wrong => "wrong",
        };
        let fix = finding.fix.as_deref().unwrap_or_default();
        if plain {
            report.line(&printable(&format!("{word}\t{}\t{}\t{fix}", finding.about, finding.text)))?;
            continue;
        }
        report.line(&printable(&format!("{word:<5}  {:<9}  {}", finding.about, finding.text)))?;
        if !fix.is_empty() {
            report.line(&printable(&format!("                  fix: {fix}")))?;
        }
    }
    if !plain {
        report.line("\nTool sandboxes")?;
    }
    if plain {
        for sandbox in &sandboxes {
            report.line(&printable(&format!("sandbox\t{}\t{}\t{}", sandbox.tool, sandbox.kind, sandbox.text)))?;
        }
        return Ok(());
    }
    // Many tools have the same sandbox, so its description is printed once.
    let mut seen = BTreeSet::new();
    for SandboxOutput { text, .. } in sandboxes.iter().filter(|sandbox| seen.insert(sandbox.text.as_str())) {
        let tools: Vec<&str> = sandboxes.iter().filter(|one| one.text == *text).map(|one| one.tool.as_str()).collect();
        report.line(&printable(&format!("  {text}:")))?;
        let tools = printable(&format!("    {}", tools.join(", ")));
        report.line(&fold_width(OutputStream::Out).map_or_else(|| tools.clone(), |width| fold(&tools, width)))?;
    }
    Ok(())
}

fn pluralize_are(files: usize) -> String {
    if files == 1 { "1 file is".to_owned() } else { format!("{files} files are") }
}

/// Returns a message if this user has no write access to a folder in which threads are stored; otherwise `None`. If
/// `.ai/state` does not exist, checks the nearest folder above that exists, because a run creates the missing folders
/// there.
fn unwritable_store(project: &Path) -> Option<String> {
    let below = ["threads", "owners", "objects"].map(|folder| format!(".ai/state/{folder}"));
    let mut folders = vec![".", ".ai", ".ai/state"];
    folders.extend(below.iter().map(String::as_str));
    let existing: Vec<&str> = folders.into_iter().filter(|folder| project.join(folder).is_dir()).collect();
    // A new folder below an existing one needs no access to the folders above.
    let first = existing.iter().position(|folder| *folder == ".ai/state").unwrap_or(existing.len().saturating_sub(1));
    let denied = existing
        .get(first..)?
        .iter()
        .find(|folder| rustix::fs::access(project.join(folder), rustix::fs::Access::WRITE_OK).is_err())?;
    let owner = std::fs::metadata(project.join(denied)).map(|folder| folder.uid()).ok();
    let other = owner.filter(|owner| *owner != rustix::process::geteuid().as_raw());
    let whose = other.map(|owner| format!(", which belongs to another user (uid {owner})")).unwrap_or_default();
    Some(format!("no thread can be written: no write access to `{denied}`{whose}"))
}
