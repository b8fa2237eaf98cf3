//! Permission decisions: the gate's decision over the whole spawn chain (`language.md` 9). Proofs about patterns are in
//! [`super::glob`].

use std::fmt;

use rye_grammar::ItemId;
use rye_grammar::capability::normalize;
use serde::{Deserialize, Serialize};

use super::glob::{self, Glob};
use crate::world::{ItemKind, Space};

/// An action on an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Primary {
    Execute,
    Fetch,
    Sign,
}

impl Primary {
    pub const ALL: [Self; 3] = [Self::Execute, Self::Fetch, Self::Sign];

    /// Parses a primary; `search` and `load` are aliases of `fetch`. `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "execute" => Some(Self::Execute),
            "fetch" | "search" | "load" => Some(Self::Fetch),
            "sign" => Some(Self::Sign),
            _ => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Execute => "execute",
            Self::Fetch => "fetch",
            Self::Sign => "sign",
        }
    }
}

impl fmt::Display for Primary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The kinds of items in capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ItemType {
    Tool,
    Directive,
    Knowledge,
    /// A skill. The only action on skills is to fetch their files.
    Skill,
}

impl ItemType {
    pub const ALL: [Self; 4] = [Self::Tool, Self::Directive, Self::Knowledge, Self::Skill];

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// Converts the kind of an item that a hook names to the type in capabilities. `None` for the kinds that no hook
    /// can name: settings, prompt templates and skills.
    pub fn of(kind: ItemKind) -> Option<Self> {
        match kind {
            ItemKind::Tool => Some(Self::Tool),
            ItemKind::Directive => Some(Self::Directive),
            ItemKind::Knowledge => Some(Self::Knowledge),
            ItemKind::Config | ItemKind::Prompt | ItemKind::Skill => None,
        }
    }

    pub fn kind(self) -> ItemKind {
        match self {
            Self::Tool => ItemKind::Tool,
            Self::Directive => ItemKind::Directive,
            Self::Knowledge => ItemKind::Knowledge,
            Self::Skill => ItemKind::Skill,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Directive => "directive",
            Self::Knowledge => "knowledge",
            Self::Skill => "skill",
        }
    }
}

impl fmt::Display for ItemType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Returns true if a pattern matches a whole capability. The pattern need not be normalized. To match a pattern several
/// times, use a [`CapabilitySet`], which compiles its patterns once.
pub fn pattern_matches(pattern: &str, capability: &str) -> bool {
    // No capability has a `/` or the prefix of an alias, so only a pattern that contains one of these is normalized.
    if pattern.contains('/') || pattern.starts_with("rye.search") || pattern.starts_with("rye.load") {
        return glob::matches(&normalize(pattern).0, capability);
    }
    glob::matches(pattern, capability)
}

/// The capability patterns of one thread of the spawn chain.
#[derive(Debug, Clone, Default)]
pub struct CapabilitySet {
    patterns: Vec<(String, Glob)>,
}

impl CapabilitySet {
    /// Creates a set from patterns in grant order. For matching, `search` and `load` become `fetch`, and `/` becomes
    /// `.` (`language.md` 9).
    pub fn new<S: Into<String>>(patterns: impl IntoIterator<Item = S>) -> Self {
        let compile = |written: String| {
            let glob = Glob::new(&normalize(&written).0);
            (written, glob)
        };
        Self { patterns: patterns.into_iter().map(Into::into).map(compile).collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Returns the patterns as written.
    pub fn patterns(&self) -> impl Iterator<Item = &str> {
        self.patterns.iter().map(|(written, _)| written.as_str())
    }

    /// Returns the first pattern of the set that matches the whole capability, as the pattern was written; `None` if
    /// none matches.
    pub fn first_match(&self, capability: &str) -> Option<&str> {
        self.patterns.iter().find(|(_, glob)| glob.matches(capability)).map(|(written, _)| written.as_str())
    }
}

/// An action to authorize. The id is validated: the action is dispatched with exactly this id, never with unchecked
/// text of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapabilityRequest<'a> {
    pub primary: Primary,
    pub item_type: ItemType,
    /// The id of the item; `None` for a query, which can find any item of the type.
    pub item_id: Option<&'a ItemId>,
    /// The space that the id resolved to; `None` if the id was not looked up. The space matters only for actions that
    /// need no grant: the tool of such an action must be in the system space.
    pub space: Option<Space>,
}

impl CapabilityRequest<'_> {
    /// Returns the capability that this action needs.
    pub fn capability(&self) -> String {
        let parts = ["rye.", self.primary.as_str(), ".", self.item_type.as_str()];
        let id = self.item_id.map_or("", ItemId::as_str);
        // Built without intermediate strings, because the gate runs for every call.
        let mut capability = String::with_capacity(parts.iter().map(|part| part.len()).sum::<usize>() + 1 + id.len());
        capability.extend(parts);
        if self.item_id.is_some() {
            capability.push('.');
            capability.extend(id.chars().map(|c| if c == '/' { '.' } else { c }));
        }
        capability
    }

    /// Returns true for the actions that need no grant: the execution of `rye_directive_return`, and of the thread
    /// tools that are internal to the engine. In both cases, the id must resolve to the system space.
    fn is_exception(&self) -> bool {
        self.primary == Primary::Execute
            && self.item_type == ItemType::Tool
            && self.space == Some(Space::System)
            && self.item_id.is_some_and(|id| {
                id.as_str().starts_with("rye/agent/threads/internal/") || id.as_str() == "rye_directive_return"
            })
    }
}

/// The gate's decision, with the reason if the call is denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapabilityDecision {
    pub allow: bool,
    /// The first pattern of the thread itself that allows the action, if there is one.
    pub by: Option<String>,
    /// The requested capability.
    pub capability: String,
    /// The position of the first thread in the spawn chain that has no matching pattern: 0 is the thread itself, 1 its
    /// spawn parent. `None` if the call is allowed.
    pub denied_by: Option<usize>,
}

/// Decides whether every thread of the spawn chain allows the action. The chain starts with the thread itself. An empty
/// chain allows nothing.
pub fn authorize(chain: &[CapabilitySet], request: &CapabilityRequest<'_>) -> CapabilityDecision {
    authorize_links(chain, request, CapabilitySet::first_match)
}

/// Authorizes like [`authorize`], with a chain of any type: one element for each thread of the spawn chain, the thread
/// itself first. `first_match` returns the first pattern of an element that matches a capability; `None` if no pattern
/// matches.
pub fn authorize_links<'c, L>(
    chain: &'c [L],
    request: &CapabilityRequest<'_>,
    first_match: impl Fn(&'c L, &str) -> Option<&'c str>,
) -> CapabilityDecision {
    let capability = request.capability();
    if request.is_exception() {
        return CapabilityDecision { allow: true, by: None, capability, denied_by: None };
    }
    let mut matches = chain.iter().map(|link| first_match(link, &capability));
    let by = matches.next().flatten().map(str::to_owned);
    let denied_by = if by.is_none() { Some(0) } else { matches.position(|found| found.is_none()).map(|link| link + 1) };
    match (denied_by, by) {
        (None, Some(by)) => CapabilityDecision { allow: true, by: Some(by), capability, denied_by: None },
        (denied_by, _) => CapabilityDecision { allow: false, by: None, capability, denied_by: denied_by.or(Some(0)) },
    }
}

/// The prefixes of capabilities that start directives.
const SPAWN_PREFIXES: [&str; 2] = ["rye.execute.directive.", "rye.execute.tool.rye.agent.threads."];

/// Returns true if a pattern could allow starting a directive. The result may be true for a pattern that allows no
/// start, but is never false for a pattern that allows one.
pub(crate) fn may_spawn(pattern: &str) -> bool {
    SPAWN_PREFIXES.iter().any(|prefix| may_match_prefix(pattern, prefix))
}

/// Returns true if a pattern could allow running a tool. The result may be true for a pattern that allows no tool, but
/// is never false for a pattern that allows one.
pub(crate) fn may_run_tools(pattern: &str) -> bool {
    may_match_prefix(pattern, "rye.execute.tool.")
}

/// Returns true if a pattern could allow signing knowledge. The result may be true for a pattern that allows none, but
/// is never false for a pattern that allows some.
pub(crate) fn may_sign_knowledge(pattern: &str) -> bool {
    may_match_prefix(pattern, "rye.sign.knowledge.")
}

fn may_match_prefix(pattern: &str, prefix: &str) -> bool {
    let literal = pattern.split(['*', '?', '[']).next().unwrap_or_default();
    prefix.starts_with(literal) || literal.starts_with(prefix)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn tool(id: &ItemId, space: Option<Space>) -> CapabilityRequest<'_> {
        CapabilityRequest { primary: Primary::Execute, item_type: ItemType::Tool, item_id: Some(id), space }
    }

    #[test]
    fn capability_needs_a_match_in_every_link() {
        let id = ItemId::parse("rye/bash/bash").unwrap();
        let all = CapabilitySet::new(["rye.*"]);
        let files = CapabilitySet::new(["rye.execute.tool.rye.file-system.*"]);
        assert!(authorize(std::slice::from_ref(&all), &tool(&id, None)).allow);
        let denied = authorize(&[all, files], &tool(&id, None));
        assert_eq!((denied.allow, denied.by, denied.denied_by), (false, None, Some(1)));
        assert_eq!(denied.capability, "rye.execute.tool.rye.bash.bash");
        assert!(!authorize(&[], &tool(&id, None)).allow);
        assert!(!authorize(&[CapabilitySet::default()], &tool(&id, None)).allow);
    }

    #[test]
    fn query_needs_a_grant_for_the_whole_type() {
        let query =
            CapabilityRequest { primary: Primary::Fetch, item_type: ItemType::Knowledge, item_id: None, space: None };
        assert!(!authorize(&[CapabilitySet::new(["rye.fetch.knowledge.*"])], &query).allow);
        assert!(authorize(&[CapabilitySet::new(["rye.search.knowledge"])], &query).allow);
        assert!(authorize(&[CapabilitySet::new(["rye/load/*"])], &query).allow);
    }

    #[test]
    fn exceptions_apply_only_in_the_system_space() {
        let control = ItemId::parse("rye/agent/threads/internal/control").unwrap();
        assert!(authorize(&[], &tool(&control, Some(Space::System))).allow);
        assert!(!authorize(&[], &tool(&control, Some(Space::Project))).allow);
        assert!(!authorize(&[], &tool(&control, None)).allow);
        let beside = ItemId::parse("rye/agent/threads/internals/control").unwrap();
        assert!(!authorize(&[], &tool(&beside, Some(Space::System))).allow);
        let fetch = CapabilityRequest { primary: Primary::Fetch, ..tool(&control, Some(Space::System)) };
        assert!(!authorize(&[], &fetch).allow);
    }

    #[test]
    fn could_start_detects_spawning_patterns() {
        for pattern in [
            "rye.*",
            "*",
            "rye.execute.directive.a.b",
            "rye.exec*",
            "rye.execute.tool.rye.agent.threads.*",
            "rye.?xecute.x",
        ] {
            assert!(may_spawn(pattern), "{pattern}");
        }
        for pattern in
            ["rye.fetch.*", "rye.execute.tool.rye.file-system.*", "rye.execute.knowledge.*", "rye.sign.directive.*"]
        {
            assert!(!may_spawn(pattern), "{pattern}");
        }
    }
}
