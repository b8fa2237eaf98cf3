//! Checks of grants: patterns that match nothing, that exceed the grants of a base (an ancestor with sealed
//! permissions), or whose risk is not acknowledged (`language.md` 9). Match results are memoized by pattern, because
//! many directives have equal grants.

use std::collections::{BTreeMap, HashMap};

use rye_grammar::capability::{Pattern, is_literal, normalize};
use rye_grammar::data::Node;
use rye_grammar::{ItemId, Span};

use super::groups::{self, CapabilityGroup};
use super::sealed_openings::SealedBase;
use super::void_bound::{self, complete_openings};
use crate::compose::Composed;
use crate::diagnostics::{CapabilityError, Diagnostics, closest};
use crate::item::{Dependency, GrantDecl, Items, Permissions, Tool};
use crate::lower::cache::{LowerContext, PaletteEntry};
use crate::lower::capabilities::{initial_capabilities, merge_grants};
use crate::palette::{SizedTool, unmet_need};
use crate::plan::Grant;
use crate::sandbox::{Opening, SandboxKind, unused_opening};
use crate::semantics::capability::{ItemType, Primary};
use crate::semantics::glob::{Coverage, Glob, covers};
use crate::semantics::needs::{suggest_host, write_path_error};
use crate::semantics::risk::{Policy, Tier};
use crate::tool_spec::{ServerSandbox, ToolKind};
use crate::world::World;

/// Start of the capabilities to execute a tool.
const TOOL_HEAD: &str = "rye.execute.tool.";

/// Checks grants against the items and against sealed `<permissions>`. Stores the results by pattern, so that equal
/// grants of several directives are checked once.
#[derive(Default)]
pub struct PatternMatcher {
    /// Dotted ids by type, sorted; filled on first use.
    ids: HashMap<ItemType, Vec<String>>,
    reaches: HashMap<String, PatternMatch>,
    /// Capability groups, for suggestions; `None` until a pattern that matches nothing needs a suggestion.
    groups: Option<Vec<CapabilityGroup>>,
    /// Results of checking that sealed `<permissions>` of an ancestor cover a pattern. The key is the span of these
    /// `<permissions>`, and the pattern.
    covered: HashMap<(Span, String), Coverage>,
}

/// The results of matching patterns against all items, by pattern. Kept from one check to the next.
#[derive(Default)]
pub struct PatternMemo(HashMap<String, PatternMatch>);

impl PatternMemo {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Evicts patterns that are no longer in use.
    pub fn evict_unused(&mut self, is_in_use: impl Fn(&Dependency) -> bool) {
        self.0.retain(|pattern, _| is_in_use(&Dependency::Pattern(pattern.clone())));
    }
}

/// The result of matching a pattern against all items: the pattern matches an item, or it matches none and a similar
/// pattern may be suggested.
#[derive(Clone, PartialEq, Eq)]
enum PatternMatch {
    Reaches,
    Nothing { suggestion: Option<String> },
}

impl PatternMatcher {
    /// Checks the `<permissions>` that the leaf of the chain declares: patterns, risks, acknowledgements, and the
    /// granted folders and hosts.
    pub fn check_leaf(&mut self, shared: &LowerContext<'_, '_>, composed: &Composed, found: &mut Diagnostics) {
        let Some(permissions) = composed.leaf().and_then(|leaf| leaf.permissions.as_ref()) else { return };
        self.check_patterns(shared.items, permissions.grants.iter().map(|g| (&g.pattern, g.span)), found);
        let grants = merge_grants(permissions);
        let has_wildcard = permissions.grants.iter().any(is_tool_wildcard);
        let palette = (has_wildcard && !permissions.has_errors)
            .then(|| shared.palette(composed, &initial_capabilities(composed, None)));
        for grant in &permissions.grants {
            // The risk of a misspelt pattern does not show the risk of the intended grant.
            if !matches!(self.reaches.get(&grant.pattern.0), Some(PatternMatch::Nothing { .. })) {
                check_risk(shared, &grant.pattern.0, grant.span, permissions, found);
            }
            check_openings(shared.items, grant, found);
            let is_dead = check_needs(shared.items, grant, permissions, &grants, found);
            if let Some(palette) = palette.as_ref().filter(|_| is_tool_wildcard(grant)) {
                check_wildcard_needs(palette, grant, found);
            }
            // A grant that matches nothing or allows no call has already been reported.
            if !is_dead && matches!(self.reaches.get(&grant.pattern.0), Some(PatternMatch::Reaches)) {
                check_unused_openings(shared.items, grant, found);
            }
        }
        void_bound::check(shared.items, permissions, found);
        check_acknowledgements(shared, permissions, found);
    }

    /// Reports patterns that match no item of any space.
    pub fn check_patterns<'p>(
        &mut self,
        items: &Items<'_>,
        patterns: impl Iterator<Item = (&'p Pattern, Span)>,
        found: &mut Diagnostics,
    ) {
        for (pattern, span) in patterns {
            let text = &pattern.0;
            items.record_read(|| Dependency::Pattern(text.clone()));
            if !self.reaches.contains_key(text) {
                // An incremental check depends on the match result (`Dependency::Pattern`), not on the item lists that
                // the search reads.
                let answer = items.untracked(|| self.match_pattern(items, text));
                self.reaches.insert(text.clone(), answer);
            }
            if let Some(PatternMatch::Nothing { suggestion }) = self.reaches.get(text) {
                let suggestion = suggestion.clone();
                found.push(CapabilityError::MatchesNothing { pattern: text.clone(), span, suggestion });
            }
        }
    }

    /// Compares the grants of the leaf with the sealed `<permissions>` of the nearest ancestor that has them. Reports
    /// each grant that these `<permissions>` do not cover. The permissions of ancestors without a seal are only
    /// defaults, so the leaf may grant more.
    pub fn check_against_base(&mut self, items: &Items<'_>, composed: &Composed, found: &mut Diagnostics) {
        let mut links = composed.chain.iter().rev();
        let Some(leaf) = links.next() else { return };
        let Some(own) = &leaf.permissions else { return };
        let Some((base, granted)) = links.find_map(|d| d.permissions.as_ref().filter(|p| p.sealed).map(|p| (d, p)))
        else {
            return;
        };
        let (leaf_id, base_id) = (leaf.id().to_string(), base.id().to_string());
        let sealed = SealedBase { leaf: &leaf_id, base: &base_id, permissions: granted };
        for grant in &own.grants {
            sealed.check_openings(items, grant, found);
            let pattern = &grant.pattern.0;
            if is_trivially_covered(granted, pattern) {
                continue;
            }
            let parents = || granted.grants.iter().map(|g| g.pattern.0.as_str()).collect::<Vec<_>>();
            let key = (granted.span, pattern.clone());
            let coverage = self.covered.entry(key).or_insert_with(|| covers(&parents(), pattern));
            match coverage {
                Coverage::Covered => {}
                Coverage::Counterexample(example) => found.push(CapabilityError::ExceedsBase {
                    leaf: leaf_id.clone(),
                    base: base_id.clone(),
                    pattern: pattern.clone(),
                    example: example.clone(),
                    span: grant.span,
                    base_span: granted.span,
                }),
                Coverage::TooComplex => found.push(CapabilityError::TooComplex {
                    pattern: pattern.clone(),
                    span: grant.span,
                    base_span: granted.span,
                }),
            }
        }
    }

    fn match_pattern(&mut self, items: &Items<'_>, pattern: &str) -> PatternMatch {
        if self.matches(items, pattern) {
            return PatternMatch::Reaches;
        }
        let suggestion = self.suggest_plain(items, pattern);
        let suggestion = suggestion.or_else(|| self.suggest(items, pattern));
        let suggestion = suggestion.or_else(|| self.suggest_group(items, pattern));
        PatternMatch::Nothing { suggestion }
    }

    /// Creates a matcher from the match results of an earlier check. If the item lists have changed since, matches
    /// every pattern of these results again. Also returns the patterns whose result has changed.
    pub fn from_memo(memo: PatternMemo, items: &Items<'_>, lists_changed: bool) -> (Self, Vec<String>) {
        if !lists_changed {
            return (Self { reaches: memo.0, ..Self::default() }, Vec::new());
        }
        let mut reach = Self::default();
        let mut changed = Vec::new();
        for (pattern, before) in memo.0.into_iter().collect::<BTreeMap<_, _>>() {
            let now = reach.match_pattern(items, &pattern);
            if now != before {
                changed.push(pattern.clone());
            }
            reach.reaches.insert(pattern, now);
        }
        (reach, changed)
    }

    /// Converts the matcher to a memo of its results, which a later check reuses.
    pub fn into_memo(self) -> PatternMemo {
        PatternMemo(self.reaches)
    }

    fn matches(&mut self, items: &Items<'_>, pattern: &str) -> bool {
        let glob = Glob::new(pattern);
        for primary in Primary::ALL {
            for kind in ItemType::ALL {
                let head = format!("rye.{primary}.{kind}");
                if !items.is_listed(kind.kind()) && is_compatible_with_head(pattern, &head) {
                    return true;
                }
                // A query has no id, so the pattern may end at the item type (such as `rye.fetch.knowledge`).
                if glob.matches(&head) {
                    return true;
                }
                // Avoid listing kinds that the pattern cannot match.
                if !is_compatible_with_head(pattern, &head) {
                    continue;
                }
                // A grant of all skills is valid in projects without skills too.
                if kind == ItemType::Skill && pattern == "rye.fetch.skill.*" {
                    return true;
                }
                if kind == ItemType::Knowledge && matches_exports(&glob, pattern, &head) {
                    return true;
                }
                let ids = self.ids(items, kind);
                let found = match literal_tail(pattern, &head) {
                    Some(PatternTail::Exact(id)) => ids.binary_search_by(|i| i.as_str().cmp(id)).is_ok(),
                    Some(PatternTail::Prefix(prefix)) => {
                        let at = ids.partition_point(|i| i.as_str() < prefix);
                        ids.get(at).is_some_and(|i| i.starts_with(prefix))
                    }
                    None => ids.iter().any(|id| glob.matches(&format!("{head}.{id}"))),
                };
                if found {
                    return true;
                }
            }
        }
        false
    }

    fn ids(&mut self, items: &Items<'_>, kind: ItemType) -> &[String] {
        self.ids.entry(kind).or_insert_with(|| {
            let mut ids: Vec<String> = items.list(kind.kind()).iter().map(|e| e.id.dotted()).collect();
            ids.sort();
            ids.dedup();
            ids
        })
    }

    /// Suggests a pattern for a grant that names a capability group where an item is expected: the first pattern of the
    /// group that matches an item. `None` if there is no such group or pattern.
    fn suggest_group(&mut self, items: &Items<'_>, pattern: &str) -> Option<String> {
        let name = pattern.splitn(4, '.').nth(3)?;
        let groups = self.groups.get_or_insert_with(|| groups::all_groups(items));
        let patterns = groups::find_group(groups, name.strip_suffix(".*").unwrap_or(name))?.patterns.clone();
        patterns.into_iter().find(|p| p != pattern && self.matches(items, p))
    }

    /// Suggests a shorter pattern of an item if a part of the written pattern is superfluous. Such parts are a second
    /// capability inside the first, the folder below `.ai/` at the start, and the extension of the file at the end.
    /// `None` if the shorter pattern matches no item.
    fn suggest_plain(&mut self, items: &Items<'_>, pattern: &str) -> Option<String> {
        let head_end = pattern.match_indices('.').nth(2)?.0;
        let (head, item) = (pattern.get(..head_end)?, pattern.get(head_end + 1..)?);
        let inner = item
            .strip_prefix("rye.")
            .filter(|inner| inner.split('.').next().is_some_and(|primary| Primary::parse(primary).is_some()));
        if inner.is_some() {
            // The pattern contains a whole capability, so this inner capability was probably meant.
            return Some(item.to_owned()).filter(|own| self.matches(items, own));
        }
        let item = item.strip_prefix(".ai.").or_else(|| item.strip_prefix("ai.")).unwrap_or(item);
        let item = ["tools.", "directives.", "knowledge."].iter().find_map(|f| item.strip_prefix(f)).unwrap_or(item);
        let stem = ["yaml", "yml", "md", "py", "js", "ts", "sh", "json"]
            .iter()
            .find_map(|ending| item.strip_suffix(ending)?.strip_suffix('.'))
            .unwrap_or(item);
        let plain = format!("{head}.{stem}");
        (plain != pattern && self.matches(items, &plain)).then_some(plain)
    }

    /// Suggests a correction of a pattern; `None` if no correction is found. The correction contains the nearest
    /// existing id or folder in place of the pattern's item. If the pattern is only an id, the correction is the id
    /// with a primary and a type before it.
    fn suggest(&mut self, items: &Items<'_>, pattern: &str) -> Option<String> {
        let mut segments = pattern.splitn(4, '.');
        let (rye, primary) = (segments.next()?, segments.next());
        let Some(primary) = primary.filter(|primary| Primary::parse(primary).is_some()) else {
            return self.suggest_with_primary(items, pattern);
        };
        let kind = ItemType::parse(segments.next()?)?;
        let item = segments.next()?;
        let (literal, rest) = match item.strip_suffix(".*") {
            Some(literal) => (literal, ".*"),
            None => (item, ""),
        };
        if !is_literal(literal) {
            return None;
        }
        // The item may be of another type than the pattern.
        if let Some(other) = self.suggest_with_primary(items, item) {
            return Some(other);
        }
        let ids = self.ids(items, kind);
        let folders = ids.iter().flat_map(|id| {
            let ends = id.match_indices('.').map(|(at, _)| at);
            ends.filter_map(|at| id.get(..at))
        });
        let near =
            if rest.is_empty() { closest(literal, ids.iter().map(String::as_str)) } else { closest(literal, folders) };
        // The item of an MCP server does not exist before `rye mcp refresh`.
        let near = near.filter(|near| !literal.starts_with("mcp.") || near.starts_with("mcp."));
        near.map(|near| format!("{rye}.{primary}.{kind}.{near}{rest}"))
    }

    /// Returns the pattern that was probably meant by `id`, a pattern without primary and item type:
    /// `rye.execute.tool.rye.bash.bash` for `rye.bash.bash`. `None` if no such pattern matches an item.
    fn suggest_with_primary(&mut self, items: &Items<'_>, id: &str) -> Option<String> {
        const HEADS: [&str; 3] = ["rye.execute.tool", "rye.execute.directive", "rye.fetch.knowledge"];
        let own = id.strip_prefix("rye.").unwrap_or(id);
        let candidates = HEADS.iter().flat_map(|head| [id, own].map(|id| format!("{head}.{id}")));
        candidates.collect::<Vec<_>>().into_iter().find(|candidate| self.matches(items, candidate))
    }
}

/// A capability pattern that matches no item of any space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmatchedPattern {
    pub pattern: String,
    /// A similar pattern that matches an item; `None` if there is none.
    pub suggestion: Option<String>,
}

/// Returns the first of `patterns` that matches no item of any space.
pub fn find_unmatched_pattern(world: &dyn World, patterns: &[String]) -> Option<UnmatchedPattern> {
    let (items, mut matcher) = (Items::new(world), PatternMatcher::default());
    patterns.iter().find_map(|pattern| match matcher.match_pattern(&items, &normalize(pattern).0) {
        PatternMatch::Reaches => None,
        PatternMatch::Nothing { suggestion } => Some(UnmatchedPattern { pattern: pattern.clone(), suggestion }),
    })
}

/// Reports a grant whose risk is not acknowledged, if the policy for the risk is `block` or `acknowledge_required`.
fn check_risk(
    shared: &LowerContext<'_, '_>,
    pattern: &str,
    span: Span,
    permissions: &Permissions,
    found: &mut Diagnostics,
) {
    let risk = shared.risk_of(pattern);
    let tier = risk.tier.as_str();
    // A misspelled tier has its own diagnostic, so it counts as the tier of this grant.
    let is_meant = |written: &str| written == tier || Tier::parse(written).is_none();
    if permissions.acknowledged.iter().any(|a| is_meant(&a.risk.node)) {
        return;
    }
    let (pattern, tier) = (pattern.to_owned(), tier.to_owned());
    match risk.policy {
        Policy::Allow => {}
        Policy::AcknowledgeRequired => found.push(CapabilityError::Unacknowledged { pattern, tier, span }),
        Policy::Block => {
            let table = replaced_table(shared, &pattern);
            found.push(CapabilityError::Blocked { pattern, tier, span, table });
        }
    }
}

/// Returns the place of the list `classifications` in the settings of the project or the user, if none of its patterns
/// matches the capability. This list replaces the standard list, so the capability then has no classification. `None`
/// if a pattern matches, or if the standard list applies.
fn replaced_table(shared: &LowerContext<'_, '_>, capability: &str) -> Option<Span> {
    let table = shared.items.config_by_name("agent/capability_risk")?;
    let list = table.get("classifications")?;
    let is_own = shared.items.sources().get(list.span.source).is_some_and(|file| !file.path.starts_with("system:"));
    let patterns = list.items().iter().filter_map(|entry| entry.get("patterns")).flat_map(Node::items);
    let is_listed = patterns.filter_map(Node::as_str).any(|pattern| Glob::new(pattern).matches(capability));
    (is_own && !is_listed).then_some(list.span)
}

/// Reports acknowledgements of a risk that no grant of the same `<permissions>` has.
fn check_acknowledgements(shared: &LowerContext<'_, '_>, permissions: &Permissions, found: &mut Diagnostics) {
    // A grant that could not be read may have the risk.
    for one in permissions.acknowledged.iter().filter(|_| !permissions.has_errors) {
        let tier = &one.risk;
        // Only the tier is compared: the policy of a tier may differ in another user's table.
        let is_granted = |grant: &GrantDecl| shared.risk_of(&grant.pattern.0).tier.as_str() == tier.node;
        if Tier::parse(&tier.node).is_some() && !permissions.grants.iter().any(is_granted) {
            found.push(CapabilityError::AcknowledgesNothing { tier: tier.node.clone(), span: tier.span });
        }
    }
}

/// Reports each path of `write` that cannot be granted as a folder. Also reports two kinds of grants that the sandbox
/// of a program cannot apply as they are written. If single hosts are granted, the program reaches the whole network.
/// If the folder of the project is granted, the program can change existing entries of the folder, but cannot create
/// entries.
fn check_openings(items: &Items<'_>, grant: &GrantDecl, found: &mut Diagnostics) {
    for path in &grant.write {
        if let Some(why) = write_path_error(path) {
            found.push(CapabilityError::OpensNothing { path: path.clone(), why, span: grant.span });
        }
    }
    let hosts = !grant.net.is_empty() && !grant.net.iter().any(|host| host == "*");
    let folder = grant.write.iter().any(|path| matches!(path.trim_end_matches('/'), "." | ""));
    if !(hosts || folder) {
        return;
    }
    let reached = Glob::new(&grant.pattern.0);
    let uses = |tool: &Tool, opening, entries: &[String]| {
        SandboxKind::of(&tool.spec.kind) == SandboxKind::Process
            && entries.iter().any(|entry| unused_opening(&tool.spec, opening, entry).is_none())
    };
    let tools = items.list(ItemType::Tool.kind());
    let tools = tools.iter().filter(|entry| reached.matches(&format!("rye.execute.tool.{}", entry.id.dotted())));
    let program = |opening, entries: &[String]| {
        let mut tools = tools.clone().filter(|entry| items.tool(&entry.id).is_some_and(|t| uses(&t, opening, entries)));
        tools.next().map(|entry| entry.id.to_string())
    };
    let span = grant.span;
    if let Some(tool) = program(Opening::Net, &grant.net).filter(|_| hosts) {
        found.push(CapabilityError::WholeNetwork { tool, hosts: grant.net.join(", "), span });
    }
    if let Some(tool) = program(Opening::Write, &grant.write).filter(|_| folder) {
        found.push(CapabilityError::OnlyWhatIsThere { tool, span });
    }
}

/// Reports each entry of a grant's `write` and `net` that none of the tools matched by the grant uses.
fn check_unused_openings(items: &Items<'_>, grant: &GrantDecl, found: &mut Diagnostics) {
    let is_folder = |path: &&String| write_path_error(path).is_none();
    let is_host = |host: &&String| suggest_host(host).is_none();
    let write: Vec<&String> = grant.write.iter().filter(is_folder).collect();
    let net: Vec<&String> = grant.net.iter().filter(is_host).collect();
    if write.is_empty() && net.is_empty() {
        return;
    }
    let reached = Glob::new(&grant.pattern.0);
    let tools = items.list(ItemType::Tool.kind());
    let tools = tools.iter().filter(|entry| reached.matches(&format!("rye.execute.tool.{}", entry.id.dotted())));
    for (opening, mut unused) in [(Opening::Write, write), (Opening::Net, net)] {
        let mut first: Option<(String, String, Option<String>)> = None;
        for entry in tools.clone() {
            if unused.is_empty() {
                break;
            }
            // A tool that cannot be read may use every entry.
            let Some(tool) = items.tool(&entry.id) else {
                unused.clear();
                break;
            };
            let mut reason = None;
            unused.retain(|value| {
                let why = unused_opening(&tool.spec, opening, value);
                let is_unused = why.is_some();
                reason = reason.take().or(why);
                is_unused
            });
            if let (None, Some(reason)) = (&first, reason) {
                first = Some((entry.id.to_string(), reason, server_in_sandbox(&tool)));
            }
        }
        if unused.is_empty() {
            continue;
        }
        let entries = unused.iter().map(|entry| entry.as_str()).collect::<Vec<_>>().join(",");
        let (tool, why, server) =
            first.map_or((None, None, None), |(tool, why, server)| (Some(tool), Some(why), server));
        let (opening, span) = (opening.as_str(), grant.span);
        found.push(CapabilityError::UnusedOpening { opening, entries, tool, why, server, span });
    }
}

/// Returns the name of the MCP server of a tool if the server runs in a sandbox. The settings of the server name the
/// folders and hosts of this sandbox.
fn server_in_sandbox(tool: &Tool) -> Option<String> {
    match &tool.spec.kind {
        ToolKind::Mcp { server, sandbox: ServerSandbox::Process, .. } => Some(server.clone()),
        ToolKind::Mcp { .. }
        | ToolKind::Builtin { .. }
        | ToolKind::Command { .. }
        | ToolKind::Script { .. }
        | ToolKind::Http(_) => None,
    }
}

/// Reports a grant that names a single tool if the tool needs a folder, a host or a right that no grant gives. Every
/// call of the tool is then refused. `grants` are the grants of `permissions`. Returns true if the grant was reported.
fn check_needs(
    items: &Items<'_>,
    grant: &GrantDecl,
    permissions: &Permissions,
    grants: &[Grant],
    found: &mut Diagnostics,
) -> bool {
    let pattern = &grant.pattern.0;
    let id = pattern.strip_prefix(TOOL_HEAD).filter(|id| is_literal(id));
    let Some(tool) = id.and_then(|id| find_tool(items, id)).and_then(|id| items.tool(&id)) else { return false };
    // A grant that could not be read may allow signing, so a missing right to sign is then not reported.
    let Some(unmet) = unmet_need(&tool, grants).filter(|unmet| !unmet.is_signature || !permissions.has_errors) else {
        return false;
    };
    found.push(CapabilityError::DeadGrant {
        pattern: pattern.clone(),
        item: tool.file.id.to_string(),
        why: format!("it needs {}", unmet.need),
        add: Some(complete_openings(grant, unmet.add)),
        tokens: SizedTool::of(tool).tokens,
        span: grant.span,
    });
    true
}

/// Returns true if the pattern of a grant contains wildcards and matches only tools.
fn is_tool_wildcard(grant: &GrantDecl) -> bool {
    grant.pattern.0.starts_with(TOOL_HEAD) && !is_literal(&grant.pattern.0)
}

/// Reports a grant with wildcards if each tool that it matches needs a folder, a host or a right that no grant gives.
fn check_wildcard_needs(palette: &PaletteEntry, grant: &GrantDecl, found: &mut Diagnostics) {
    let pattern = &grant.pattern.0;
    let dead = palette.dead_tools(pattern);
    let Some((first, unmet)) = dead.first() else { return };
    let why = match dead.len() {
        1 => format!("it needs {}", unmet.need),
        _ => format!("`{}` needs {}", first.item_id, unmet.need),
    };
    let items: Vec<String> = dead.iter().map(|(tool, _)| tool.item_id.to_string()).collect();
    found.push(CapabilityError::DeadGrant {
        pattern: pattern.clone(),
        item: items.join("`, `"),
        why,
        add: Some(unmet.add.clone()),
        tokens: dead.iter().fold(0, |sum: u64, (tool, _)| sum.saturating_add(tool.tokens)),
        span: grant.span,
    });
}

/// Returns the tool whose id, written with dots, is `dotted`; `None` if no space has such a tool.
fn find_tool(items: &Items<'_>, dotted: &str) -> Option<ItemId> {
    ItemId::from_dotted(dotted).filter(|id| items.exists(ItemType::Tool.kind(), id))
}

/// Returns the folders that the grants of a tool make writable, and the hosts that these grants allow.
pub(crate) fn granted_places<'p>(permissions: &'p Permissions, tool: &ItemId) -> (Vec<&'p str>, Vec<&'p str>) {
    let capability = format!("rye.execute.tool.{}", tool.dotted());
    let reaches = |grant: &&GrantDecl| Glob::new(&grant.pattern.0).matches(&capability);
    let grants: Vec<&GrantDecl> = permissions.grants.iter().filter(reaches).collect();
    let write = grants.iter().flat_map(|grant| grant.write.iter().map(String::as_str)).collect();
    (write, grants.iter().flat_map(|grant| grant.net.iter().map(String::as_str)).collect())
}

/// Returns the folders in which the grants let a file tool write. Empty if a matching grant names no folder: the tool
/// may then write in the whole project.
pub fn write_bound<'p>(permissions: &'p Permissions, tool: &ItemId) -> Vec<&'p str> {
    let capability = format!("rye.execute.tool.{}", tool.dotted());
    let reaches = |grant: &&GrantDecl| Glob::new(&grant.pattern.0).matches(&capability);
    let grants: Vec<&GrantDecl> = permissions.grants.iter().filter(reaches).collect();
    if grants.iter().any(|grant| grant.write.is_empty()) {
        return Vec::new();
    }
    grants.iter().flat_map(|grant| grant.write.iter().map(String::as_str)).collect()
}

/// Returns true if a pattern matches knowledge that finished threads export. Such knowledge does not exist before the
/// first thread has finished. `head` is the start of the capabilities for knowledge, such as `rye.fetch.knowledge`.
fn matches_exports(glob: &Glob, pattern: &str, head: &str) -> bool {
    let exports = super::EXPORT_PREFIX.replace('/', ".");
    let inside = pattern.strip_prefix(head).and_then(|rest| rest.strip_prefix('.'));
    inside.is_some_and(|inside| inside.starts_with(&exports)) || glob.matches(&format!("{head}.{exports}x"))
}

/// The result of `literal_tail`: the part of a pattern that follows a given head and a dot. `Exact` is a part without
/// wildcards. `Prefix` is the part before a `*` at the end of the pattern, if this `*` is the only wildcard.
enum PatternTail<'p> {
    Exact(&'p str),
    Prefix(&'p str),
}

fn literal_tail<'p>(pattern: &'p str, head: &str) -> Option<PatternTail<'p>> {
    let item = pattern.strip_prefix(head)?.strip_prefix('.')?;
    if is_literal(item) {
        return Some(PatternTail::Exact(item));
    }
    let prefix = item.strip_suffix('*')?;
    is_literal(prefix).then_some(PatternTail::Prefix(prefix))
}

/// Returns true if a pattern may match a text that begins with `head`. Only the literal prefix of the pattern is
/// compared: the prefix and `head` must be equal up to the end of the shorter of the two.
fn is_compatible_with_head(pattern: &str, head: &str) -> bool {
    let literal = pattern.split(['*', '?', '[']).next().unwrap_or_default();
    let common = literal.len().min(head.len());
    literal.get(..common) == head.get(..common)
}

/// Returns true if the grants of `base` obviously cover a pattern: `base` grants the same pattern, or it grants
/// `prefix*` and the part of the pattern before its first wildcard starts with `prefix`. In these common cases, no
/// automaton has to prove that the grants cover the pattern.
pub(super) fn is_trivially_covered(base: &Permissions, pattern: &str) -> bool {
    let literal = pattern.split(['*', '?', '[']).next().unwrap_or_default();
    base.grants.iter().any(|grant| {
        let wide = grant.pattern.0.as_str();
        wide == pattern || wide.strip_suffix('*').is_some_and(|p| is_literal(p) && literal.starts_with(p))
    })
}
