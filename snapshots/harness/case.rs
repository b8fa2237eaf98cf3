//! A test case: a folder, its settings, and its rendered output.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use rye_compiler::compile::{CompileRequest, compile};
use rye_compiler::diagnostics::Diagnostics;
use rye_compiler::report::render::{text, view};
use rye_compiler::report::summary::PlanSummary;
use rye_compiler::validate::{self, Selection};
use rye_compiler::world::World;
use rye_engine::disk_world::DiskWorld;
use rye_engine::keys::TrustStore;
use rye_grammar::data::{Kind, Node};
use rye_grammar::{ItemId, SourceId, Sources, yaml};
use serde_json::{Map, Value};

use super::render::render_diagnostics;
use super::run::{CaseRun, run_case};

/// A folder `<topic>/<case>` with `.ai/`, an optional `user/.ai/`, an optional `case.yaml`, and `expected.snap`.
#[derive(Debug, Clone)]
pub struct Case {
    /// `<topic>/<case>`.
    pub name: String,
    pub folder: PathBuf,
    pub settings: CaseSettings,
}

/// The settings of a case, from `case.yaml`. Unknown keys are an error.
#[derive(Debug, Clone, Default)]
pub struct CaseSettings {
    /// The project's folder, relative to the case. Set for the examples, whose projects are outside of the case
    /// folders.
    pub project: Option<String>,
    /// The directive to plan; `None` for a case that plans none.
    pub plan: Option<ItemId>,
    /// Beginnings of the headings of the plan sections to show; if empty, all sections are shown.
    pub sections: Vec<String>,
    /// True if the texts that would be sent are shown below the plan.
    pub prompt: bool,
    /// The directive to run, with the script or with the plan's own models; `None` for a case that runs none.
    pub run: Option<ItemId>,
    /// The script of the run, relative to the project's folder.
    pub script: Option<String>,
    /// Inputs of `plan` and `run`.
    pub inputs: Map<String, Value>,
}

/// Lists every case under a folder, sorted by name.
///
/// # Errors
/// Fails if a folder cannot be read or a `case.yaml` is invalid.
pub fn discover(root: &Path) -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    for topic in folders(root)? {
        for folder in folders(&topic)? {
            let name = format!("{}/{}", file_name(&topic), file_name(&folder));
            let settings = CaseSettings::read(&folder).map_err(|error| format!("{name}/case.yaml: {error}"))?;
            cases.push(Case { name, folder, settings });
        }
    }
    Ok(cases)
}

fn folders(of: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(of).map_err(|error| format!("{}: {error}", of.display()))?;
    let mut found: Vec<PathBuf> = entries.filter_map(|e| e.ok().map(|e| e.path())).filter(|p| p.is_dir()).collect();
    found.sort();
    Ok(found)
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

impl CaseSettings {
    fn read(folder: &Path) -> Result<Self, String> {
        let Ok(text) = fs::read_to_string(folder.join("case.yaml")) else { return Ok(Self::default()) };
        let parsed = yaml::parse(SourceId(0), &text);
        if let Some(error) = parsed.errors.first() {
            return Err(error.to_string());
        }
        let mut settings = Self::default();
        for entry in parsed.tree.entries() {
            match entry.key.node.as_str() {
                "project" => settings.project = Some(text_of(&entry.value)?),
                "plan" => settings.plan = Some(id_of(&entry.value)?),
                "sections" => settings.sections = entry.value.items().iter().map(text_of).collect::<Result<_, _>>()?,
                "prompt" => settings.prompt = entry.value.as_bool().ok_or("`prompt` is true or false")?,
                "run" => settings.run = Some(id_of(&entry.value)?),
                "script" => settings.script = Some(text_of(&entry.value)?),
                "inputs" => match (&entry.value.kind, entry.value.to_value()) {
                    (Kind::Map(_), Value::Object(inputs)) => settings.inputs = inputs,
                    _ => return Err("`inputs` is a mapping".into()),
                },
                other => return Err(format!("unknown key `{other}`")),
            }
        }
        Ok(settings)
    }
}

fn text_of(node: &Node) -> Result<String, String> {
    node.as_str().map(str::to_owned).ok_or_else(|| format!("{} stands where a text is expected", node.describe()))
}

fn id_of(node: &Node) -> Result<ItemId, String> {
    let text = text_of(node)?;
    ItemId::parse(&text).map_err(|_| format!("`{text}` is not an item id"))
}

impl Case {
    /// Returns the project's folder.
    pub fn project(&self) -> PathBuf {
        self.settings.project.as_ref().map_or_else(|| self.folder.clone(), |path| self.folder.join(path))
    }

    /// Opens the case's spaces, including the standard library.
    ///
    /// # Errors
    /// Fails if a file cannot be read.
    pub fn world(&self) -> Result<DiskWorld, String> {
        let user = self.folder.join("user");
        DiskWorld::open(Some(&self.project()), Some(&user), rye_stdlib::files(), TrustStore::default())
            .map_err(|error| error.to_string())
    }

    /// Runs `check` on the case.
    ///
    /// # Errors
    /// Fails if a file cannot be read.
    pub fn check(&self) -> Result<(Diagnostics, Sources), String> {
        Ok(check(&self.world()?))
    }

    /// Renders the contents of `expected.snap`: one section per step.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or if the plan has no section that the case selects.
    pub fn output(&self) -> Result<String, String> {
        let world = self.world()?;
        let (diagnostics, sources) = check(&world);
        let mut out = format!("── check\n\n{}", render_diagnostics(&diagnostics, &sources));
        if let Some(directive) = &self.settings.plan {
            let _ = write!(out, "\n── plan {directive}\n\n{}", self.plan(&world, directive)?);
        }
        if let Some(directive) = &self.settings.run {
            let _ = write!(out, "\n── run {directive}\n\n{}", self.run(directive)?);
        }
        Ok(out)
    }

    fn run(&self, directive: &ItemId) -> Result<String, String> {
        run_case(&CaseRun {
            project: &self.project(),
            user: &self.folder.join("user"),
            directive,
            inputs: &self.settings.inputs,
            script: self.settings.script.as_deref(),
            whole: self.settings.prompt,
        })
    }

    /// Renders the plan as `rye plan` prints it, or the errors that prevent it. Other diagnostics are part of the check
    /// section.
    fn plan(&self, world: &dyn World, directive: &ItemId) -> Result<String, String> {
        let request = CompileRequest::new(directive.clone()).with_inputs(self.settings.inputs.clone());
        let compiled = compile(world, &request);
        Ok(match compiled.value {
            // The plan id is not shown: it hashes every byte read, so it would change with each edit of the standard
            // library.
            Some(compilation) => {
                let summary = PlanSummary::new(world, None, &compilation).map_err(|error| error.to_string())?;
                let short = compilation.plan_id.get(..12).unwrap_or_default();
                let mut out = self.shown(&text::render(&compilation, &summary).replace(short, "<id>"))?;
                if self.settings.prompt {
                    let (system, first, _) = view::view_prompt(&compilation.plan, &compilation.origins);
                    let _ = write!(out, "\n── system\n\n{}\n\n── first message\n\n{}\n", system.text, first.text);
                }
                out
            }
            None => compiled.diagnostics.iter().fold("there is no plan\n".to_owned(), |mut out, found| {
                let _ = writeln!(out, "  {}: {}", found.full_code(), found.message());
                out
            }),
        })
    }
}

impl Case {
    /// Returns the selected sections of a plan: paragraphs whose first line begins with a configured heading.
    fn shown(&self, plan: &str) -> Result<String, String> {
        let sections = &self.settings.sections;
        if sections.is_empty() {
            return Ok(plan.to_owned());
        }
        let mut parts: Vec<&str> = plan.split("\n\n").map(|part| part.trim_matches('\n')).collect();
        let has = |heading: &&String| parts.iter().any(|part| part.starts_with(heading.as_str()));
        if let Some(heading) = sections.iter().find(|heading| !has(heading)) {
            return Err(format!("{}: the plan has no section `{heading}`", self.name));
        }
        parts.retain(|part| sections.iter().any(|heading| part.starts_with(heading.as_str())));
        Ok(format!("{}\n", parts.join("\n\n")))
    }
}

/// Runs `rye check` on a world.
pub fn check(world: &dyn World) -> (Diagnostics, Sources) {
    let report = validate::check(world, &Selection::All);
    (report.diagnostics, report.sources)
}
