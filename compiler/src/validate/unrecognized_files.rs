//! Files and folders under `.ai/` that nothing reads: an unknown folder, a name that is not an item id, or an extension
//! that the kind does not have (`language.md` 1). Names that start with a dot are ignored, except `.ai/.env`. In the
//! project's root, names that are nearly `AGENTS.md`, `CLAUDE.md` or `.mcp.json` are reported.

use crate::diagnostics::{Diagnostics, ItemError, closest};
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::item::{Items, Tool, shorten};
use crate::world::{CLAUDE_AGENTS, CLAUDE_SETTINGS, ItemKind, MCP_FILE, Space, UnrecognizedFile, meant_root_file};

/// Folders of `.ai/` without items: state of runs, and data of tools.
const OTHER_FOLDERS: [&str; 2] = ["state", "data"];

/// The lock file: the only file that is read directly in the `.ai/` of a project.
const LOCKFILE: &str = "lock.json";

/// The reason in the diagnostic for a misplaced file of MCP servers.
const MCP_PLACES: &str = "MCP servers are read from `.mcp.json` in the project's root and from `.ai/config/mcp.yaml`";

/// Folders that package managers, interpreters and compilers create.
const TOOL_FOLDERS: [&str; 3] = ["node_modules", "__pycache__", "target"];

/// Names of folders that other clients use, or of folders that belong to another place in `.ai/`. Each entry has
/// several names, and the place where such content belongs.
const OTHER_FOLDER_NAMES: [(&str, &str); 6] = [
    ("agents agent subagents workflows workflow actions", ".ai/directives/"),
    ("hooks hook", ".ai/config/agent/hooks.yaml"),
    ("providers provider models", ".ai/config/agent/providers/"),
    ("commands command", ".ai/prompts/"),
    ("context docs memory memories rules notes", ".ai/knowledge/"),
    ("scripts bin functions plugins", ".ai/tools/"),
];

/// Extensions that are commonly used instead of a supported one.
const EQUIVALENT_EXTENSIONS: [(&str, &str); 13] = [
    ("bash", "sh"),
    ("cjs", "js"),
    ("jsx", "js"),
    ("markdown", "md"),
    ("mdown", "md"),
    ("mdx", "md"),
    ("mts", "ts"),
    ("py3", "py"),
    ("pyw", "py"),
    ("tsx", "ts"),
    ("txt", "md"),
    ("yml", "yaml"),
    ("zsh", "sh"),
];

/// Words in file names that mark a JSON, TOML or XML file beside a tool as data of the tool.
const DATA_NAMES: [&str; 12] = [
    "schema", "config", "data", "setting", "package", "tsconfig", "fixture", "template", "example", "sample",
    "manifest", "lock",
];

/// Extensions of files that cannot be tools by themselves: programs in languages that need a YAML declaration, and data
/// formats (JSON, TOML, XML) in which a tool cannot be declared.
const PROGRAM_EXTENSIONS: [&str; 38] = [
    "awk", "bat", "c", "cc", "clj", "cmd", "cpp", "cs", "dart", "ex", "exe", "exs", "fish", "go", "groovy", "hs",
    "java", "jl", "json", "json5", "jsonc", "kt", "lua", "nim", "nu", "php", "pl", "ps1", "r", "rb", "rs", "scala",
    "swift", "tcl", "toml", "wasm", "xml", "zig",
];

/// Reports the files of these spaces that are settings under a wrong name.
pub fn check_settings(items: &Items<'_>, spaces: &[Space], found: &mut Diagnostics) {
    for file in items.misplaced_settings().into_iter().filter(|file| spaces.contains(&file.space)) {
        let explanation = explain_unrecognized(&file);
        if let Some((reason, suggestion)) = explanation.filter(|(_, suggestion)| is_settings_file(suggestion.as_ref()))
        {
            found.push(unrecognized_error(&file, reason, suggestion));
        }
    }
}

fn is_settings_file(suggestion: Option<&String>) -> bool {
    suggestion.is_some_and(|meant| meant.starts_with(ItemKind::Config.folder()) || meant == MCP_FILE)
}

fn unrecognized_error(file: &UnrecognizedFile, reason: String, suggestion: Option<String>) -> ItemError {
    let slash = if file.is_folder { "/" } else { "" };
    let path = format!("{}{slash}", shorten(&file.space.display(&file.path)));
    ItemError::Unrecognized { path, reason, suggestion }
}

pub fn check(items: &Items<'_>, found: &mut Diagnostics) {
    let mut tools = None;
    for unrecognized_file in items.unrecognized_files() {
        // Of the user space, only settings are checked: its other files belong to all projects of the user.
        if unrecognized_file.space == Space::User {
            continue;
        }
        if let Some((content, place)) = explain_other_client(&unrecognized_file.path) {
            found.push(ItemError::OtherClient { path: shorten(&unrecognized_file.path), content, place });
            continue;
        }
        let mut uses = |path: &str| tools.get_or_insert_with(|| ToolFiles::read(items)).uses(path);
        if let Some(declaration) = find_declaration(&unrecognized_file, &mut uses) {
            found.push(ItemError::UnrecognizedProgram { path: shorten(&unrecognized_file.path), declaration });
        } else if let Some((reason, suggestion)) = explain_unrecognized(&unrecognized_file) {
            found.push(unrecognized_error(&unrecognized_file, reason, suggestion));
        }
    }
    check_settings(items, &[Space::User], found);
}

/// Returns the content of another client's file as a phrase, and a help text with the place for this content in rye.
/// `None` if no other client has a file at `path`.
fn explain_other_client(path: &str) -> Option<(&'static str, &'static str)> {
    match path {
        CLAUDE_SETTINGS => Some((
            "permissions and hooks",
            "for the same rules in rye, write permissions in `<permissions>` of a directive and hooks in `.ai/config/agent/hooks.yaml`",
        )),
        CLAUDE_AGENTS => Some((
            "agents",
            "in rye, an agent is a directive: `rye new directive NAME`, started by a grant `<directive>NAME</directive>`",
        )),
        _ => None,
    }
}

/// Returns the reason why nothing reads a file, and a suggestion of what its author meant, if there is one. `None` if
/// the file is allowed.
fn explain_unrecognized(unrecognized_file: &UnrecognizedFile) -> Option<(String, Option<String>)> {
    if let Some(kind) =
        ItemKind::ALL.into_iter().find(|kind| kind.has_precedence() && is_in_folder(*kind, &unrecognized_file.path))
    {
        return explain_called_item(kind, &unrecognized_file.path);
    }
    if let Some(meant) = meant_root_file(&unrecognized_file.path) {
        let reason = if meant == MCP_FILE { MCP_PLACES.to_owned() } else { format!("a chat reads `{meant}`") };
        return Some((reason, Some(meant.to_owned())));
    }
    let inside = unrecognized_file.path.strip_prefix(".ai/")?;
    if inside == ".env" {
        let reason = "variables of providers are read from the environment and from `.ai/.env` of the user space";
        return Some((reason.to_owned(), Some("~/.ai/.env".to_owned())));
    }
    if inside == MCP_FILE {
        return Some((MCP_PLACES.to_owned(), Some(servers_file(inside))));
    }
    let mut parts = inside.split('/');
    if parts.clone().any(|part| part.starts_with('.') || TOOL_FOLDERS.contains(&part)) || is_for_readers(inside) {
        return None;
    }
    let folder = parts.next()?;
    if parts.next().is_none() {
        return explain_top_level(folder, unrecognized_file.is_folder);
    }
    let kind = ItemKind::ALL.into_iter().find(|kind| unrecognized_file.path.starts_with(kind.folder()))?;
    let (stem, extension) = unrecognized_file.path.rsplit_once('.')?;
    let endings = kind.extensions();
    if endings.contains(&extension) {
        let id = stem.strip_prefix(kind.folder()).unwrap_or(stem);
        let reason = format!("`{}` is not a valid item id", shorten(id));
        return Some((reason, Some(format!("{}{}.{extension}", kind.folder(), as_id(id)))));
    }
    let lower = extension.to_lowercase();
    let alike =
        EQUIVALENT_EXTENSIONS.iter().find(|(other, _)| *other == lower).map_or(lower.as_str(), |(_, ours)| *ours);
    let meant = endings.iter().find(|e| **e == alike);
    // The folder of a tool may hold other files that the tool uses.
    if kind == ItemKind::Tool && meant.is_none() {
        return None;
    }
    let all: Vec<String> = endings.iter().map(|e| format!("`.{e}`")).collect();
    let reason = format!("a {} file ends in {}", kind.as_str(), all.join(" or "));
    Some((reason, meant.map(|ending| format!("{stem}.{ending}"))))
}

/// The data that shows which other files the project's tools use: the folders of the tool files, and the texts of the
/// tool files. The text of a tool file may contain the name of a used file.
struct ToolFiles {
    folders: BTreeSet<String>,
    texts: Vec<String>,
}

impl ToolFiles {
    fn read(items: &Items<'_>) -> Self {
        let list = items.list(ItemKind::Tool);
        let own = list.iter().filter(|entry| entry.space == Space::Project);
        let folders = own.clone().filter_map(|entry| Some(entry.path.rsplit_once('/')?.0.to_owned())).collect();
        let sources = items.sources();
        let text = |tool: Arc<Tool>| sources.get(tool.file.source).map(|source| source.text.to_string());
        let texts = own.filter_map(|entry| items.tool(&entry.id)).filter_map(text).collect();
        Self { folders, texts }
    }

    /// Returns true if a tool of the project probably uses the file: the text of a tool contains the name of the file,
    /// or the file looks like data in a folder of tools. A file looks like data if it is JSON, TOML or XML, and either
    /// the text of a tool contains its extension or its name is usual for data ([`DATA_NAMES`]).
    fn uses(&self, path: &str) -> bool {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let is_data = name.rsplit_once('.').is_some_and(|(_, ending)| matches!(ending, "json" | "toml" | "xml"));
        let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
        let reads_ending = |text: &String| text.contains(&format!(".{ending}"));
        let is_named_as_data = DATA_NAMES.iter().any(|word| name.to_ascii_lowercase().contains(word));
        let is_read =
            is_data && self.folders.contains(folder) && (is_named_as_data || self.texts.iter().any(reads_ending));
        is_read || self.texts.iter().any(|text| text.contains(name))
    }
}

/// Returns the path of a YAML file that would make an unrecognized program a tool. `None` if the file is not a program
/// in the folder of tools, or if `uses` states that a tool already uses it.
fn find_declaration(unrecognized_file: &UnrecognizedFile, uses: &mut dyn FnMut(&str) -> bool) -> Option<String> {
    let folder = ItemKind::Tool.folder();
    let inside = unrecognized_file.path.strip_prefix(folder)?;
    if inside.split('/').any(|part| part.starts_with('.') || TOOL_FOLDERS.contains(&part)) || is_for_readers(inside) {
        return None;
    }
    let (stem, extension) = inside.rsplit_once('.')?;
    let extension = extension.to_ascii_lowercase();
    if !PROGRAM_EXTENSIONS.contains(&extension.as_str()) || uses(&unrecognized_file.path) {
        return None;
    }
    Some(format!("{folder}{stem}.yaml"))
}

/// Returns true for a file name without extension that other clients use for the file that lists MCP servers.
fn is_servers_name(stem: &str) -> bool {
    let plain: String = stem.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    matches!(plain.as_str(), "mcp" | "mcps" | "mcpserver" | "mcpservers" | "mcpconfig" | "mcpsettings")
}

/// Returns the file to which the MCP servers of a misplaced file belong: `.ai/config/mcp.yaml` for a name with a YAML
/// extension, else `.mcp.json`.
fn servers_file(name: &str) -> String {
    let is_yaml = name.rsplit_once('.').is_some_and(|(_, extension)| matches!(extension, "yaml" | "yml"));
    if is_yaml { format!("{}mcp.yaml", ItemKind::Config.folder()) } else { MCP_FILE.to_owned() }
}

/// Returns true if the file at `path` is in a folder that holds items of this kind.
fn is_in_folder(kind: ItemKind, path: &str) -> bool {
    kind.folders().iter().any(|folder| path.starts_with(folder))
}

/// Variant of [`explain_unrecognized`] for a file in a folder of prompt templates or skills. Returns the reason why
/// nothing reads the file, and a suggested path, if there is one; `None` if the file is allowed. A skill may have any
/// files beside its `SKILL.md`.
fn explain_called_item(kind: ItemKind, path: &str) -> Option<(String, Option<String>)> {
    let folder = kind.folders().iter().find(|folder| path.starts_with(**folder))?;
    let inside = path.strip_prefix(folder)?;
    let name = inside.rsplit('/').next().unwrap_or(inside);
    if inside.split('/').any(|part| part.starts_with('.') || TOOL_FOLDERS.contains(&part)) || is_for_readers(inside) {
        return None;
    }
    let (stem, extension) = inside.rsplit_once('.').unwrap_or((inside, ""));
    if kind == ItemKind::Skill {
        return match inside.split_once('/') {
            Some((parents, _)) if name == "SKILL.md" => {
                let own = inside.trim_end_matches("/SKILL.md").rsplit('/').next().unwrap_or(parents);
                let reason = format!(
                    "the folder of a skill must have a valid id as its name, and be at most 4 levels below `{folder}`"
                );
                Some((reason, Some(format!("{folder}{}/SKILL.md", as_id(own)))))
            }
            Some((_, _)) if name.eq_ignore_ascii_case("SKILL.md") => {
                let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
                Some(("the file of a skill is named `SKILL.md`".to_owned(), Some(format!("{parent}/SKILL.md"))))
            }
            Some(_) => None,
            None => {
                let meant = (extension == "md").then(|| format!("{folder}{}/SKILL.md", as_id(stem)));
                let mut reason = "a skill is a folder with a `SKILL.md`".to_owned();
                if extension.is_empty() {
                    reason.push_str("; a link that leaves its space is not followed");
                }
                Some((reason, meant))
            }
        };
    }
    if extension == "md" && as_id(stem) == stem {
        return Some(("the file is a link out of its space; links out of a space are not followed".to_owned(), None));
    }
    if extension == "md" {
        let reason = format!("`{}` is not a valid item id", shorten(stem));
        return Some((reason, Some(format!("{folder}{}.md", as_id(stem)))));
    }
    let alike = EQUIVALENT_EXTENSIONS.iter().any(|(other, ours)| *other == extension && *ours == "md");
    let meant = (alike || extension.eq_ignore_ascii_case("md")).then(|| format!("{folder}{stem}.md"));
    Some(("a prompt template is a file that ends in `.md`".to_owned(), meant))
}

/// Returns the reason why nothing reads a file or folder directly in `.ai/`, and a suggestion of what its author meant,
/// if there is one. `None` if the file or folder is allowed.
fn explain_top_level(name: &str, is_folder: bool) -> Option<(String, Option<String>)> {
    let kinds = ItemKind::ALL.map(|kind| kind.folder().trim_start_matches(".ai/").trim_end_matches('/'));
    if !is_folder {
        if name == LOCKFILE {
            return None;
        }
        if let Some(meant) = ["AGENTS.md", "CLAUDE.md"].into_iter().find(|file| file.eq_ignore_ascii_case(name)) {
            let reason = format!("a chat reads `{meant}` beside the folder `.ai/`");
            return Some((reason, Some(meant.to_owned())));
        }
        let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        if is_servers_name(stem) {
            return Some((MCP_PLACES.to_owned(), Some(servers_file(name))));
        }
        let general =
            matches!(stem, "settings" | "setting" | "config" | "configuration").then(|| "agent/agent".to_owned());
        let setting = general
            .or_else(|| super::settings::suggest_file(stem))
            .map(|id| format!("{}{id}.yaml", ItemKind::Config.folder()));
        let directive = || {
            (name.rsplit_once('.').map(|(_, ending)| ending) == Some("md"))
                .then(|| format!("{}{}.md", ItemKind::Directive.folder(), as_id(stem)))
        };
        let meant = setting.or_else(directive);
        return Some(("items belong in the folder of their kind".to_owned(), meant));
    }
    let known = || kinds.into_iter().chain(OTHER_FOLDERS);
    if known().any(|k| k == name) {
        return None;
    }
    let foreign = OTHER_FOLDER_NAMES.iter().find(|(words, _)| words.split(' ').any(|word| word == name));
    if let Some((_, meant)) = foreign {
        let reason = format!("`.ai/` may contain only the folders `{}`", known().collect::<Vec<_>>().join("`, `"));
        return Some((reason, Some((*meant).to_owned())));
    }
    let meant =
        closest(name, known()).or_else(|| kinds.into_iter().find(|k| *k == format!("{name}s")).map(str::to_owned));
    let reason = format!("`.ai/` may contain only the folders `{}`", known().collect::<Vec<_>>().join("`, `"));
    Some((reason, meant.map(|m| format!(".ai/{m}/"))))
}

fn is_for_readers(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_uppercase();
    ["README", "LICENSE", "CHANGELOG"].iter().any(|word| name == *word || name.starts_with(&format!("{word}.")))
}

/// Converts a text to a valid id: replaces each character that an id cannot contain by `_`.
fn as_id(text: &str) -> String {
    let segment = |s: &str| -> String {
        s.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' }).collect()
    };
    text.split('/').map(segment).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// Returns the suggestion, empty if there is none, or `fine` if nothing is reported.
    fn suggested(path: &str) -> String {
        let is_folder = path.ends_with('/');
        let path = path.trim_end_matches('/').into();
        let explanation = explain_unrecognized(&UnrecognizedFile { space: Space::Project, path, is_folder });
        explanation.map_or("fine".to_owned(), |(_, suggestion)| suggestion.unwrap_or_default())
    }

    #[test]
    fn mistyped_paths_get_a_suggestion() {
        for (path, meant) in [
            (".ai/directive/", ".ai/directives/"),
            (".ai/AGENTS.md", "AGENTS.md"),
            (".ai/skills/a/b/c/d/e/notes/SKILL.md", ".ai/skills/notes/SKILL.md"),
            (".ai/tool/", ".ai/tools/"),
            (".ai/hooks.yaml", ".ai/config/agent/hooks.yaml"),
            (".ai/config/agent/hooks.yml", ".ai/config/agent/hooks.yaml"),
            (".ai/directives/my plan.md", ".ai/directives/my_plan.md"),
            (".ai/directives/v1.2/a.md", ".ai/directives/v1_2/a.md"),
            (".ai/knowledge/notes.txt", ".ai/knowledge/notes.md"),
            (".ai/knowledge/notes.MD", ".ai/knowledge/notes.md"),
            (".ai/tools/run.bash", ".ai/tools/run.sh"),
            (".ai/skill/", ".ai/skills/"),
            (".ai/agents/", ".ai/directives/"),
            (".ai/hooks/", ".ai/config/agent/hooks.yaml"),
            (".ai/review.md", ".ai/directives/review.md"),
            (".ai/prompts/fix it.md", ".ai/prompts/fix_it.md"),
            (".claude/commands/fix.MD", ".claude/commands/fix.md"),
            (".ai/skills/pdf.md", ".ai/skills/pdf/SKILL.md"),
            (".agents/skills/my pdf/SKILL.md", ".agents/skills/my_pdf/SKILL.md"),
            (".ai/skills/pdf/skill.md", ".ai/skills/pdf/SKILL.md"),
            (".claude/skills/a/b/c/d/e/SKILL.md", ".claude/skills/e/SKILL.md"),
            (".ai/.env", "~/.ai/.env"),
            ("mcp.json", ".mcp.json"),
            (".MCP.json", ".mcp.json"),
            (".ai/mcp.json", ".mcp.json"),
            (".ai/.mcp.json", ".mcp.json"),
            (".ai/mcp_servers.json", ".mcp.json"),
            (".ai/mcp.yaml", ".ai/config/mcp.yaml"),
            (".ai/checks.yaml", ".ai/config/check.yaml"),
            ("agents.md", "AGENTS.md"),
            ("AGENT.md", "AGENTS.md"),
            ("Claude.MD", "CLAUDE.md"),
        ] {
            assert_eq!(suggested(path), meant, "{path}");
        }
        assert_eq!(suggested(".ai/recipes/"), "");
        assert_eq!(suggested(".ai/directives/a.json"), "");
        // A file with a valid name is listed only if it is a link out of its space.
        assert_eq!(suggested(".claude/commands/foo.md"), "");
    }

    #[test]
    fn settings_and_agents_of_another_client_are_reported_as_advice() {
        let world = crate::world::MapWorld::new().project(CLAUDE_SETTINGS, "{}").project(".claude/agents/x.md", "x");
        let report = crate::validate::check(&world, &crate::validate::Selection::All);
        let found: Vec<_> = report.diagnostics.iter().map(|one| (one.code(), one.severity(), one.message())).collect();
        let advice = crate::diagnostics::Severity::Advice;
        let text = |what: &str| format!("{what} of another client do not apply to rye");
        assert_eq!(
            found,
            [
                ("item::stray", advice, format!("`{CLAUDE_AGENTS}` is not read: {}", text("agents"))),
                ("item::stray", advice, format!("`{CLAUDE_SETTINGS}` is not read: {}", text("permissions and hooks"))),
            ]
        );
    }

    #[test]
    fn allowed_files_are_not_reported() {
        for path in [
            ".ai/state/",
            ".ai/data/",
            ".ai/lock.json",
            ".ai/README.md",
            ".ai/tools/lib/schema.json",
            ".ai/tools/x/node_modules/a b.js",
            ".ai/knowledge/.obsidian/a.json",
            ".ai/prompts/",
            ".ai/skills/",
            ".ai/skills/README.md",
            ".ai/skills/pdf/references/forms.md",
            ".claude/skills/.system/pdf/SKILL.md",
            ".agents/skills/pdf/node_modules/x/SKILL.md",
            ".claude/settings.json",
            ".claude/commands/README.md",
            ".ai/.gitignore",
            ".mcp.json",
            "AGENTS.md",
            "CLAUDE.md",
            "agents.txt",
            "agents/agents.md",
        ] {
            assert_eq!(suggested(path), "fine", "{path}");
        }
    }
}
