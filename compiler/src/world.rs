//! The world that a compilation reads: items and settings of three spaces behind one trait, with a recording wrapper
//! that makes the manifest. No I/O here: the engine implements the trait on the disk, tests in memory.

mod map;
mod recording;

use std::collections::BTreeSet;
use std::sync::Arc;

use rye_grammar::ItemId;
use rye_grammar::tool_header::ScriptReader;
use serde::{Deserialize, Serialize};

pub use map::MapWorld;
pub use recording::{ContextFileRead, ManifestEntry, RecordingWorld};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Space {
    Project,
    User,
    System,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemKind {
    Directive,
    Knowledge,
    Tool,
    Config,
    /// A prompt template that a user calls as `/name`.
    Prompt,
    /// A folder with a `SKILL.md`, by the Agent Skills specification.
    Skill,
}

/// Maximum number of folders from the folder of skills to a `SKILL.md`, including the skill's own folder.
pub const MAX_SKILL_DEPTH: usize = 4;

/// Names of context files, highest precedence first. The first one in a folder is read.
pub const CONTEXT_FILE_NAMES: [&str; 3] = ["AGENTS.override.md", "AGENTS.md", "CLAUDE.md"];

/// Returns the name of the context file that a misspelled file name means: `AGENTS.md` for `agents.md` and `AGENT.md`.
/// `None` if the name is spelled correctly, or is not similar to the name of a context file.
pub(crate) fn meant_context_file(name: &str) -> Option<&'static str> {
    let (stem, extension) = name.rsplit_once('.')?;
    if CONTEXT_FILE_NAMES.contains(&name) || !extension.eq_ignore_ascii_case("md") {
        return None;
    }
    match stem.to_ascii_lowercase().as_str() {
        "agents.override" => Some("AGENTS.override.md"),
        "agents" | "agent" => Some("AGENTS.md"),
        "claude" => Some("CLAUDE.md"),
        _ => None,
    }
}

/// The file of the MCP servers of a project, which other clients read too.
pub const MCP_FILE: &str = ".mcp.json";

/// The settings of Claude Code in a project, which rye does not read.
pub const CLAUDE_SETTINGS: &str = ".claude/settings.json";

/// The folder of the agents of Claude Code in a project, which rye does not read.
pub const CLAUDE_AGENTS: &str = ".claude/agents";

/// Returns the correct name for a misspelled file name in the project's root: the name of a context file, or
/// [`MCP_FILE`] for `mcp.json`. `None` if the name does not look like a misspelling of these names.
pub fn meant_root_file(name: &str) -> Option<&'static str> {
    let is_mcp = matches!(name.to_ascii_lowercase().as_str(), "mcp.json" | ".mcp.jsonc" | ".mcp.json5" | ".mcps.json")
        || (name != MCP_FILE && name.eq_ignore_ascii_case(MCP_FILE));
    meant_context_file(name).or_else(|| is_mcp.then_some(MCP_FILE))
}

/// The context file of the user space.
pub const USER_CONTEXT_FILE: &str = ".ai/AGENTS.md";

/// Instructions for agents, which a chat adds to its system prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextFile {
    pub space: Space,
    /// Path of the file, relative to the space's root: `AGENTS.md`, `../AGENTS.md`.
    pub path: Arc<str>,
    pub bytes: Arc<[u8]>,
    /// Paths of the folder's other context files whose text differs from this file. A chat does not use these other
    /// files.
    pub ignored: Vec<Arc<str>>,
}

/// The file in the project's root that configures MCP servers, in the format of other clients.
pub const MCP_JSON: &str = ".mcp.json";

/// Name of the file that makes a folder a skill.
pub const SKILL_FILE: &str = "SKILL.md";

/// Formats bytes as lowercase hex.
pub fn hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(bytes.len() * 2);
    let halves = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits.extend(halves.filter_map(|half| char::from_digit(half.into(), 16)));
    digits
}

impl Space {
    pub const ALL: [Self; 3] = [Self::Project, Self::User, Self::System];

    /// Returns `project`, `user` or `system`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::User => "user",
            Self::System => "system",
        }
    }

    /// Returns a path of this space as diagnostics print it: unchanged for the project, with the prefix `user:` or
    /// `system:` for another space.
    pub fn display(self, path: &str) -> String {
        match self {
            Self::Project => path.to_owned(),
            Self::User | Self::System => format!("{}:{path}", self.as_str()),
        }
    }
}

impl ItemKind {
    pub const ALL: [Self; 6] = [Self::Directive, Self::Knowledge, Self::Tool, Self::Config, Self::Prompt, Self::Skill];

    /// Returns `directive`, `knowledge`, `tool`, `config`, `prompt` or `skill`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Directive => "directive",
            Self::Knowledge => "knowledge",
            Self::Tool => "tool",
            Self::Config => "config",
            Self::Prompt => "prompt",
            Self::Skill => "skill",
        }
    }

    /// Returns the kind for a value of `item_type`, such as `directive`; `None` for any other word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// Returns the folder of the kind in `.ai/`, with the trailing slash: `.ai/directives/`.
    pub fn folder(self) -> &'static str {
        match self {
            Self::Directive => ".ai/directives/",
            Self::Knowledge => ".ai/knowledge/",
            Self::Tool => ".ai/tools/",
            Self::Config => ".ai/config/",
            Self::Prompt => ".ai/prompts/",
            Self::Skill => ".ai/skills/",
        }
    }

    /// Returns all folders of the kind, highest precedence first: the folder in `.ai/`, then the folders of other
    /// clients.
    pub fn folders(self) -> &'static [&'static str] {
        match self {
            Self::Directive => &[".ai/directives/"],
            Self::Knowledge => &[".ai/knowledge/"],
            Self::Tool => &[".ai/tools/"],
            Self::Config => &[".ai/config/"],
            Self::Prompt => &[".ai/prompts/", ".claude/commands/"],
            Self::Skill => &[".ai/skills/", ".agents/skills/", ".claude/skills/"],
        }
    }

    /// Returns true if a space may hold several files with the same id; [`ItemKind::highest`] selects the file that is
    /// read. For other kinds, a second file is the error [`WorldError::Ambiguous`].
    pub fn has_precedence(self) -> bool {
        self.folders().len() > 1
    }

    /// Returns the path that takes precedence among paths that lead to the same id in the same space. The path in the
    /// folder that `folders` lists first precedes; in the same folder, the path with fewer `/`, then the first in
    /// alphabetical order. `None` if there are no paths.
    pub fn highest<P: AsRef<str>>(self, paths: impl IntoIterator<Item = P>) -> Option<P> {
        paths.into_iter().min_by(|one, other| self.rank(one.as_ref()).cmp(&self.rank(other.as_ref())))
    }

    fn rank(self, path: &str) -> (usize, usize, &str) {
        let folders = self.folders();
        let folder = folders.iter().position(|folder| path.starts_with(folder)).unwrap_or(folders.len());
        (folder, path.matches('/').count(), path)
    }

    /// Returns true for a path in a folder of the kind, and for the path of a folder that contains a folder of the
    /// kind.
    pub fn covers_path(self, path: &str) -> bool {
        let path = format!("{path}/");
        self.folders().iter().any(|folder| path.starts_with(folder) || folder.starts_with(&path))
    }

    /// Returns the file extensions of the kind (`language.md` 1).
    pub fn extensions(self) -> &'static [&'static str] {
        match self {
            Self::Directive | Self::Prompt | Self::Skill => &["md"],
            Self::Knowledge => &["md", "yaml", "yml"],
            Self::Tool => &["yaml", "yml", "py", "js", "mjs", "ts", "sh"],
            Self::Config => &["yaml"],
        }
    }

    /// Returns the kind and id of the item at `path`, which is relative to the root of a space. `None` if the file is
    /// not an item, because of its folder, its extension or its name. The id of a skill is the name of its folder.
    pub fn of_path(path: &str) -> Option<(Self, ItemId)> {
        Self::ALL.into_iter().find_map(|kind| {
            let inside = kind.folders().iter().find_map(|folder| path.strip_prefix(folder))?;
            if kind == Self::Skill {
                return skill_id(inside).map(|id| (kind, id));
            }
            let (stem, extension) = inside.rsplit_once('.')?;
            let known = kind.extensions().contains(&extension);
            known.then(|| ItemId::parse(stem).ok()).flatten().map(|id| (kind, id))
        })
    }
}

/// Returns the id of a skill by the path of its `SKILL.md` inside the folder of skills; `None` if the path is no skill.
/// Skills in packages that a skill installs (`node_modules`) are no skills of the project.
fn skill_id(inside: &str) -> Option<ItemId> {
    let folder = inside.strip_suffix(SKILL_FILE)?.strip_suffix('/')?;
    let path = ItemId::parse(folder).ok()?;
    let mut segments = path.as_str().split('/');
    let fits = segments.clone().count() <= MAX_SKILL_DEPTH && segments.all(|segment| segment != "node_modules");
    fits.then(|| ItemId::parse(path.name()).ok()).flatten()
}

/// The path of a file in the folder of a skill: relative, without `..`, and without hidden files and folders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillPath(String);

impl SkillPath {
    /// Maximum length of a path, in bytes.
    const MAX_BYTES: usize = 1024;

    /// Parses a path; `None` if the path could lead out of the folder of the skill, could name a hidden file, or is too
    /// long.
    pub fn parse(path: &str) -> Option<Self> {
        let path = path.strip_prefix("./").unwrap_or(path);
        let is_plain = |segment: &str| !segment.is_empty() && !segment.starts_with('.');
        let fits = path.len() <= Self::MAX_BYTES && !path.contains(['\0', '\\']) && path.split('/').all(is_plain);
        fits.then(|| Self(path.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A file of one space, with its whole content.
#[derive(Debug, Clone)]
pub struct LocatedFile {
    pub space: Space,
    pub kind: ItemKind,
    pub id: ItemId,
    /// Path of the file, relative to the space's root, with forward slashes: `.ai/directives/hello.md`.
    pub path: Arc<str>,
    pub bytes: Arc<[u8]>,
}

/// An item that exists, without its content.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub id: ItemId,
    pub space: Space,
    pub path: Arc<str>,
}

/// A file or folder of a space that is not an item. Folders are listed only directly in `.ai/`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnrecognizedFile {
    pub space: Space,
    /// Path of the file or folder, relative to the root of its space, without a trailing slash.
    pub path: Arc<str>,
    pub is_folder: bool,
}

/// The failure of a look-up. Callers must not treat it as a missing item.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorldError {
    #[error("`{path}` cannot be read: {reason}")]
    Unreadable { path: String, reason: String },
    #[error("`{id}` has two files: `{first}` and `{second}`")]
    Ambiguous { id: String, first: String, second: String },
    #[error("`{path}` leaves its space")]
    Escapes { path: String },
    /// The signature is not by a trusted key, or does not match the content: the file is not parsed.
    #[error("the signature of `{path}` is invalid: {reason}")]
    Signature { path: String, reason: String },
    /// The file has no signature, and the settings require one: the file is not parsed.
    #[error("`{path}` is not signed, but `signing.require` is `all`")]
    Unsigned { path: String },
    /// The signature is by a key that the user does not trust: the file is not parsed.
    #[error("`{path}` is signed with the key `{key_id}`, which is not trusted")]
    UntrustedKey { path: String, key_id: String },
}

/// A token that identifies one state of a world that caches its files. A token equals only its own clones.
#[derive(Debug, Clone, Default)]
pub struct WorldState(Arc<()>);

impl PartialEq for WorldState {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for WorldState {}

/// The results of [`World::list`] and [`World::candidates`] that may have changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangedAnswers {
    pub lists: BTreeSet<ItemKind>,
    pub items: BTreeSet<(ItemKind, ItemId)>,
}

/// The files that a compilation may read. Every method covers all spaces, highest precedence first.
pub trait World {
    /// Returns the files with this id, at most one for each space, highest space first.
    fn candidates(&self, kind: ItemKind, id: &ItemId) -> Result<Vec<LocatedFile>, WorldError>;
    /// Returns all items of a kind, sorted by id, then by space. An id with several files in a space has an entry for
    /// each, sorted by path.
    fn list(&self, kind: ItemKind) -> Result<Vec<Entry>, WorldError>;
    /// Returns true if [`World::candidates`] would now return a result that is equal to `given`. A caching world
    /// compares `given` with the cached result and copies nothing.
    fn candidates_unchanged(&self, kind: ItemKind, id: &ItemId, given: &Result<Vec<LocatedFile>, WorldError>) -> bool {
        same_candidates(given, &self.candidates(kind, id))
    }
    /// Returns true if [`World::list`] would now return a list that is equal to `given`.
    fn list_unchanged(&self, kind: ItemKind, given: &[Entry]) -> bool {
        self.list(kind).is_ok_and(|list| list == given)
    }
    /// Returns the current state for [`World::changed_since`]; `None` if the world does not track changes.
    fn state(&self) -> Option<WorldState> {
        None
    }
    /// Returns the results of [`World::list`] and [`World::candidates`] that may differ from those at the state
    /// `_before`; `None` if any result may differ.
    fn changed_since(&self, _before: &WorldState) -> Option<&ChangedAnswers> {
        None
    }
    /// Returns the paths that are not items, sorted. In the user space, only the paths that
    /// [`Self::misplaced_settings`] returns. In the project:
    ///
    /// - the folders and files directly in `.ai/`,
    /// - the files in item folders that are not items,
    /// - the files in the root that [`meant_root_file`] accepts,
    /// - [`CLAUDE_SETTINGS`] and [`CLAUDE_AGENTS`].
    fn unrecognized_files(&self) -> Result<Vec<UnrecognizedFile>, WorldError>;
    /// Returns the paths of the project and of the user space that may be misnamed settings files, sorted. These are
    /// the folders and files directly in `.ai/`, and the files in the settings folder that are not valid items.
    fn misplaced_settings(&self) -> Result<Vec<UnrecognizedFile>, WorldError>;
    /// Returns the context files, outermost first: the user's, then those from the root of the git repository to the
    /// project.
    fn context_files(&self) -> Result<Vec<ContextFile>, WorldError>;
    /// Returns the content of the project's `.mcp.json`; `None` if there is none. Implementations must not follow a
    /// symbolic link to the file. Plans do not record the file.
    fn mcp_json(&self) -> Result<Option<Arc<[u8]>>, WorldError>;
    /// Returns a file in the folder of a skill; `None` if there is none. Implementations must not follow a symbolic
    /// link out of the folder. Plans do not record these files. The default implementation has no files.
    fn read_skill_file(&self, _skill: &LocatedFile, _path: &SkillPath) -> Result<Option<Vec<u8>>, WorldError> {
        Ok(None)
    }
    /// Returns the reader of constants in Python and JavaScript tools. The result of the reader depends only on the
    /// text that it reads (decision 0006).
    fn scripts(&self) -> &dyn ScriptReader;
    /// Returns true if the project is the user space itself, so that its settings are the user's own.
    fn project_is_user_space(&self) -> bool;
}

/// Returns true if two results of [`World::candidates`] have the same files with the same content, or the same error.
pub fn same_candidates(
    one: &Result<Vec<LocatedFile>, WorldError>,
    other: &Result<Vec<LocatedFile>, WorldError>,
) -> bool {
    match (one, other) {
        (Ok(one), Ok(other)) => {
            let same = |(a, b): (&LocatedFile, &LocatedFile)| {
                a.space == b.space && a.path == b.path && (Arc::ptr_eq(&a.bytes, &b.bytes) || a.bytes == b.bytes)
            };
            one.len() == other.len() && one.iter().zip(other).all(same)
        }
        (Err(one), Err(other)) => one == other,
        (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
    }
}

impl<W: World + ?Sized> World for &W {
    fn candidates(&self, kind: ItemKind, id: &ItemId) -> Result<Vec<LocatedFile>, WorldError> {
        (**self).candidates(kind, id)
    }
    fn list(&self, kind: ItemKind) -> Result<Vec<Entry>, WorldError> {
        (**self).list(kind)
    }
    fn candidates_unchanged(&self, kind: ItemKind, id: &ItemId, given: &Result<Vec<LocatedFile>, WorldError>) -> bool {
        (**self).candidates_unchanged(kind, id, given)
    }
    fn list_unchanged(&self, kind: ItemKind, given: &[Entry]) -> bool {
        (**self).list_unchanged(kind, given)
    }
    fn state(&self) -> Option<WorldState> {
        (**self).state()
    }
    fn changed_since(&self, before: &WorldState) -> Option<&ChangedAnswers> {
        (**self).changed_since(before)
    }
    fn unrecognized_files(&self) -> Result<Vec<UnrecognizedFile>, WorldError> {
        (**self).unrecognized_files()
    }
    fn misplaced_settings(&self) -> Result<Vec<UnrecognizedFile>, WorldError> {
        (**self).misplaced_settings()
    }
    fn context_files(&self) -> Result<Vec<ContextFile>, WorldError> {
        (**self).context_files()
    }
    fn mcp_json(&self) -> Result<Option<Arc<[u8]>>, WorldError> {
        (**self).mcp_json()
    }
    fn read_skill_file(&self, skill: &LocatedFile, path: &SkillPath) -> Result<Option<Vec<u8>>, WorldError> {
        (**self).read_skill_file(skill, path)
    }
    fn scripts(&self) -> &dyn ScriptReader {
        (**self).scripts()
    }
    fn project_is_user_space(&self) -> bool {
        (**self).project_is_user_space()
    }
}

#[cfg(test)]
mod tests {
    use super::hex;

    #[test]
    fn hex_writes_two_digits_for_each_byte() {
        assert_eq!(hex(&[0, 0x0a, 0x9f, 0xff]), "000a9fff");
    }
}
