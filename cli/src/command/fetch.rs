//! `rye fetch TYPE [ID]`: prints an item as the model reads it, lists the items that match a query, or copies an item
//! to another space. Calls the same function as the tool `rye_fetch`.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, ValueEnum};
use rye_compiler::item::Items;
use rye_compiler::primary::{FetchRequest, ItemType};
use rye_compiler::world::{Space, World};
use rye_engine::rooted_dir::RootedDir;
use rye_engine::store::{ObjectId, StoreError};
use rye_engine::tool::guard::ObjectStore;
use rye_engine::tool::primary::{FetchSources, fetch};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::CommandError;
use crate::exit::Exit;
use crate::options::{Format, Global};
use crate::report::{Printer, printable};
use crate::run_request::parse_item_id;
use crate::workspace::Spaces;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["id", "query"]))]
#[command(override_usage = "rye fetch [OPTIONS] <TYPE> <ID>\n       rye fetch [OPTIONS] <TYPE> --query <WORDS>")]
pub struct FetchArgs {
    /// Type of the item
    #[arg(value_enum, value_name = "TYPE")]
    item_type: FetchItemType,
    /// The item's id
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Search for items: words, "phrases", wild*cards, title:word, AND, OR, NOT
    #[arg(short = 's', long, value_name = "WORDS")]
    query: Option<String>,
    /// Only ids that match: `project/*`, `rye.fetch.knowledge.project.*`
    #[arg(long, value_name = "PATTERN", requires = "query")]
    scope: Option<String>,
    /// Maximum number of hits (default 10, at most 50)
    #[arg(long, value_name = "N", requires = "query", value_parser = clap::value_parser!(u64).range(1..=50))]
    limit: Option<u64>,
    /// Copy the item's file into this space instead of printing it; the copy shadows lower spaces
    #[arg(long, value_enum, value_name = "SPACE", requires = "id")]
    copy_to: Option<CopyTarget>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FetchItemType {
    Directive,
    Knowledge,
    Tool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CopyTarget {
    Project,
    User,
}

/// Output of `rye fetch --format json` for an item.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FetchOutput {
    pub item_type: String,
    pub item_id: String,
    /// Space of the item: `project`, `user` or `system`.
    pub space: String,
    /// Path of the item's file, relative to the root of its space.
    pub path: String,
    /// Text that the model reads; absent if the file was copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Path of the copy, if the item was copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copied_to: Option<String>,
}

/// Output of `rye fetch --format json` for a query.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub struct HitsOutput {
    pub item_type: String,
    /// Hits, best first.
    pub hits: Vec<HitOutput>,
    /// Total number of hits, including those not shown.
    pub total: u64,
    /// Number of items that could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<u64>,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub struct HitOutput {
    pub item_id: String,
    /// Space of the item: `project`, `user` or `system`.
    pub space: String,
    pub description: String,
}

impl From<FetchItemType> for ItemType {
    fn from(value: FetchItemType) -> Self {
        match value {
            FetchItemType::Directive => Self::Directive,
            FetchItemType::Knowledge => Self::Knowledge,
            FetchItemType::Tool => Self::Tool,
        }
    }
}

pub fn run(args: &FetchArgs, global: &Global, report: &Printer) -> Result<Exit, CommandError> {
    let spaces = Spaces::find_and_print(global.project.as_deref(), report)?;
    let world = spaces.open()?;
    let item_type = ItemType::from(args.item_type);
    let Some(id) = &args.id else {
        let query = args.query.clone().unwrap_or_default();
        let request = FetchRequest::Query { item_type, query, scope: args.scope.clone(), limit: args.limit };
        return print_hits(fetch_value(&world, &request)?, report);
    };
    let id = parse_item_id(id, item_type.kind())?;
    let found = world.candidates(item_type.kind(), &id)?;
    let Some(first) = found.first() else {
        let search = format!("search for the item: `rye fetch {} --query WORDS`", item_type.as_str());
        let near = Items::new(&world).nearest(item_type.kind(), id.as_str());
        let help = near.map_or(search, |near| format!("did you mean `{near}`?"));
        return Err(CommandError::failed(format!("unknown {} `{id}`", item_type.as_str())).with_help(help));
    };
    let mut output = FetchOutput {
        item_type: item_type.as_str().to_owned(),
        item_id: id.to_string(),
        space: first.space.as_str().to_owned(),
        path: first.path.to_string(),
        content: None,
        copied_to: None,
    };
    if let Some(target) = args.copy_to {
        let path = copy_item(&spaces, target, first.space, &first.path, &first.bytes)?;
        output.copied_to = Some(path.display().to_string());
        match report.format() {
            Format::Json => report.json(&output)?,
            Format::Human | Format::Plain => report.line(&printable(&path.display().to_string()))?,
        }
        return Ok(Exit::Success);
    }
    let request = FetchRequest::Item { item_type, item_id: id, offset: 0, limit: None };
    let content = fetch_value(&world, &request)?.as_str().unwrap_or_default().to_owned();
    match report.format() {
        Format::Json => {
            output.content = Some(content);
            report.json(&output)?;
        }
        Format::Human | Format::Plain => {
            report.detail(&format!("{}: {}", output.space, output.path));
            report.line(&printable(content.trim_end()))?;
        }
    }
    Ok(Exit::Success)
}

fn fetch_value(world: &dyn World, request: &FetchRequest) -> Result<Value, CommandError> {
    let (objects, own_objects) = (NoObjects, BTreeSet::new());
    let outcome =
        fetch(&FetchSources { world, objects: &objects, own_objects: &own_objects, user_space: &|| Ok(()) }, request);
    if outcome.is_error {
        return Err(CommandError::failed(outcome.content.as_str().unwrap_or_default()));
    }
    Ok(outcome.content)
}

fn print_hits(answer: Value, report: &Printer) -> Result<Exit, CommandError> {
    let answer: HitsOutput = serde_json::from_value(answer).map_err(std::io::Error::other)?;
    if report.format() == Format::Json {
        report.json(&answer)?;
        return Ok(Exit::Success);
    }
    let width = answer.hits.iter().map(|hit| hit.item_id.len()).max().unwrap_or(0);
    for HitOutput { item_id, space, description } in &answer.hits {
        report.line(printable(&format!("{item_id:width$}  {space:7}  {description}")).trim_end())?;
    }
    match answer.hits.len() as u64 {
        0 => report.note("no matches"),
        shown if shown < answer.total => {
            report.note(&format!("{shown} of {} matches shown; `--limit` shows more", answer.total));
        }
        _ => {}
    }
    if let Some(unreadable) = answer.unreadable {
        report.note(&format!("items that could not be read: {unreadable}; run `rye check` for the details"));
    }
    Ok(Exit::Success)
}

/// Copies the file to `target`, under the same id. Never overwrites a file.
fn copy_item(
    spaces: &Spaces,
    target: CopyTarget,
    from: Space,
    path: &str,
    bytes: &[u8],
) -> Result<PathBuf, CommandError> {
    let (space, root) = match target {
        CopyTarget::Project => (Space::Project, Some(spaces.project.as_path())),
        CopyTarget::User => (Space::User, spaces.user.as_deref()),
    };
    let Some(root) = root else {
        return Err(CommandError::failed("no user space: no `.ai/` in the home folder")
            .with_help("create `.ai/` in the home folder, or set `RYE_USER_SPACE`"));
    };
    if space == from {
        return Err(CommandError::failed(format!("the item is already in the {} space", space.as_str())));
    }
    let place = root.join(path);
    match RootedDir::open(root)?.create(Path::new(path), bytes) {
        Ok(()) => Ok(place),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            Err(CommandError::failed(format!("`{}` already exists", place.display())))
        }
        Err(e) => Err(CommandError::failed(format!("`{}` cannot be written: {e}", place.display()))),
    }
}

/// An object store that is empty, because without a thread there are no stored results.
struct NoObjects;

impl ObjectStore for NoObjects {
    fn put(&self, bytes: &[u8]) -> Result<String, StoreError> {
        Ok(ObjectId::of(bytes).to_string())
    }

    fn get(&self, _: &str) -> Result<Vec<u8>, StoreError> {
        Err(StoreError::InvalidId { reason: "no such thread".into() })
    }
}
