//! One case: a folder, its settings, and the text it comes to.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use rye_compiler::diagnostics::Diagnostics;
use rye_compiler::item::Items;
use rye_compiler::world::{ItemKind, MapWorld, Space, World};
use rye_grammar::data::{Kind, Node};
use rye_grammar::{ItemId, SourceId, Sources, yaml};
use serde_json::{Map, Value};

use super::render::render_diagnostics;
use super::space::{load, standard_library};

/// A folder `<topic>/<case>` with `.ai/`, an optional `user/.ai/`, an optional `case.yaml`, and `expected.snap`.
#[derive(Debug, Clone)]
pub struct Case {
    /// `<topic>/<case>`.
    pub name: String,
    pub folder: PathBuf,
    pub settings: Settings,
}

/// What `case.yaml` may say; its vocabulary is closed.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The folder of the project, from this one: for the examples, which stand elsewhere.
    pub project: Option<String>,
    /// The directive to plan.
    pub plan: Option<ItemId>,
    /// The directive to run, by the scripted provider.
    pub run: Option<ItemId>,
    /// The script that the run plays, from the project's folder.
    pub script: Option<String>,
    /// Inputs of `plan` and `run`.
    pub inputs: Map<String, Value>,
}

/// Every case under a folder, sorted by name.
///
/// # Errors
/// A folder that cannot be read, a `case.yaml` that says what this harness does not know.
pub fn discover(root: &Path) -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    for topic in folders(root)? {
        for folder in folders(&topic)? {
            let name = format!("{}/{}", file_name(&topic), file_name(&folder));
            let settings = Settings::read(&folder).map_err(|error| format!("{name}/case.yaml: {error}"))?;
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

impl Settings {
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
                "run" => settings.run = Some(id_of(&entry.value)?),
                "script" => settings.script = Some(text_of(&entry.value)?),
                "inputs" => match (&entry.value.kind, entry.value.to_value()) {
                    (Kind::Map(_), Value::Object(inputs)) => settings.inputs = inputs,
                    _ => return Err("`inputs` is a mapping".into()),
                },
                other => return Err(format!("`{other}` means nothing here")),
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
    ItemId::parse(&text).map_err(|_| format!("`{text}` is no item id"))
}

impl Case {
    /// The project's folder.
    pub fn project(&self) -> PathBuf {
        self.settings.project.as_ref().map_or_else(|| self.folder.clone(), |path| self.folder.join(path))
    }

    /// The case's spaces, the standard library included.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn world(&self) -> Result<MapWorld<'static>, String> {
        let mut world = standard_library();
        let loaded = load(&mut world, Space::Project, &self.project());
        loaded.and_then(|()| load(&mut world, Space::User, &self.folder.join("user"))).map_err(|e| e.to_string())?;
        Ok(world)
    }

    /// What `check` finds.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn check(&self) -> Result<(Diagnostics, Sources), String> {
        Ok(check(&self.world()?))
    }

    /// The text that `expected.snap` holds: a section for each step that was reached.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn output(&self) -> Result<String, String> {
        let (diagnostics, sources) = self.check()?;
        let mut out = format!("── check\n\n{}", render_diagnostics(&diagnostics, &sources));
        let _ = writeln!(out);
        Ok(out)
    }
}

/// What is wrong with every file by itself.
fn check(world: &dyn World) -> (Diagnostics, Sources) {
    let items = Items::new(world);
    for kind in ItemKind::ALL {
        for entry in items.list(kind).iter() {
            match kind {
                ItemKind::Directive => drop(items.directive(&entry.id)),
                ItemKind::Knowledge => drop(items.knowledge(&entry.id)),
                ItemKind::Tool => drop(items.tool(&entry.id)),
                ItemKind::Config => drop(items.config(&entry.id)),
            }
        }
    }
    let _ = items.hook_files();
    let mut diagnostics = items.diagnostics();
    diagnostics.sort(&items.sources());
    (diagnostics, items.into_sources())
}
