//! Grants: patterns that reach nothing, more than the base has, or something risky (`language.md` 9). Every question
//! about a pattern is asked once, however many directives grant it.

use std::collections::{BTreeMap, HashMap};

use rye_grammar::Span;
use rye_grammar::capability::{Pattern, is_plain};

use super::groups::{self, Group};
use crate::compose::Composed;
use crate::diagnostics::{CapabilityError, Diagnostics, closest};
use crate::item::{GrantDecl, Items, Permissions, Read, Tool};
use crate::lower::shared::Shared;
use crate::semantics::capability::{ItemType, Primary};
use crate::semantics::glob::{Coverage, Glob, covers};
use crate::semantics::needs::opens_nothing;
use crate::semantics::risk::{Policy, Tier};
use crate::wall::WallKind;

/// What patterns reach, remembered.
#[derive(Default)]
pub struct Reach {
    /// Dotted ids by type, sorted; filled at the first question.
    ids: HashMap<ItemType, Vec<String>>,
    reaches: HashMap<String, Answer>,
    /// Read at the first pattern that reaches nothing.
    groups: Option<Vec<Group>>,
    /// By the base's `<permissions>` and the pattern.
    covered: HashMap<(Span, String), Coverage>,
}

/// What was asked of patterns, for a later look.
#[derive(Default)]
pub struct Answers(HashMap<String, Answer>);

impl Answers {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Forgets patterns that nobody asks about any more.
    pub fn keep_asked(&mut self, is_asked: impl Fn(&Read) -> bool) {
        self.0.retain(|pattern, _| is_asked(&Read::Pattern(pattern.clone())));
    }
}

/// Whether a pattern matches any item.
#[derive(Clone, PartialEq, Eq)]
enum Answer {
    Reaches,
    Nothing { suggestion: Option<String> },
}

impl Reach {
    /// The leaf's own `<permissions>`: what they reach, and at what risk.
    pub fn own(&mut self, shared: &Shared<'_, '_>, composed: &Composed, found: &mut Diagnostics) {
        let Some(permissions) = composed.leaf().and_then(|leaf| leaf.permissions.as_ref()) else { return };
        self.patterns(shared.items, permissions.grants.iter().map(|g| (&g.pattern, g.span)), found);
        for grant in &permissions.grants {
            risk(shared, &grant.pattern.0, grant.span, permissions, found);
            openings(shared.items, grant, found);
        }
        acknowledged(shared, permissions, found);
    }

    /// Patterns that match no item of any space.
    pub fn patterns<'p>(
        &mut self,
        items: &Items<'_>,
        patterns: impl Iterator<Item = (&'p Pattern, Span)>,
        found: &mut Diagnostics,
    ) {
        for (pattern, span) in patterns {
            let text = &pattern.0;
            items.depends(|| Read::Pattern(text.clone()));
            if !self.reaches.contains_key(text) {
                // It is the answer that counts, and not the lists it was found in.
                let answer = items.apart(|| self.answer(items, text));
                self.reaches.insert(text.clone(), answer);
            }
            if let Some(Answer::Nothing { suggestion }) = self.reaches.get(text) {
                let suggestion = suggestion.clone();
                found.push(CapabilityError::MatchesNothing { pattern: text.clone(), span, suggestion });
            }
        }
    }

    /// The leaf's grants against the nearest ancestor's that has any.
    pub fn against_base(&mut self, composed: &Composed, found: &mut Diagnostics) {
        let mut links = composed.chain.iter().rev();
        let Some(leaf) = links.next() else { return };
        let Some(own) = &leaf.permissions else { return };
        let Some((base, granted)) = links.find_map(|d| d.permissions.as_ref().map(|p| (d, p))) else { return };
        for grant in &own.grants {
            let pattern = &grant.pattern.0;
            if plainly_covered(granted, pattern) {
                continue;
            }
            let parents = || granted.grants.iter().map(|g| g.pattern.0.as_str()).collect::<Vec<_>>();
            let key = (granted.span, pattern.clone());
            let coverage = self.covered.entry(key).or_insert_with(|| covers(&parents(), pattern));
            match coverage {
                Coverage::Covered => {}
                Coverage::Counterexample(example) => found.push(CapabilityError::ExceedsBase {
                    leaf: leaf.id().to_string(),
                    base: base.id().to_string(),
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

    fn answer(&mut self, items: &Items<'_>, pattern: &str) -> Answer {
        if self.matches(items, pattern) {
            return Answer::Reaches;
        }
        let suggestion = self.suggest(items, pattern).or_else(|| self.group(items, pattern));
        Answer::Nothing { suggestion }
    }

    /// Answers of an earlier look, and the patterns that have another one now. Where the lists they were found in are
    /// the same, none has.
    pub fn recall(answers: Answers, items: &Items<'_>, lists_changed: bool) -> (Self, Vec<String>) {
        if !lists_changed {
            return (Self { reaches: answers.0, ..Self::default() }, Vec::new());
        }
        let mut reach = Self::default();
        let mut changed = Vec::new();
        for (pattern, before) in answers.0.into_iter().collect::<BTreeMap<_, _>>() {
            let now = reach.answer(items, &pattern);
            if now != before {
                changed.push(pattern.clone());
            }
            reach.reaches.insert(pattern, now);
        }
        (reach, changed)
    }

    /// What a later look can begin with.
    pub fn remember(self) -> Answers {
        Answers(self.reaches)
    }

    fn matches(&mut self, items: &Items<'_>, pattern: &str) -> bool {
        let glob = Glob::new(pattern);
        for primary in Primary::ALL {
            for kind in ItemType::ALL {
                let head = format!("rye.{primary}.{kind}");
                if !items.is_listed(kind.kind()) && can_begin_with(pattern, &head) {
                    return true;
                }
                // A query needs no id.
                if glob.matches(&head) {
                    return true;
                }
                // No list of a kind is asked for that the pattern cannot be about.
                if !can_begin_with(pattern, &head) {
                    continue;
                }
                if kind == ItemType::Knowledge && is_of_exports(&glob, pattern, &head) {
                    return true;
                }
                let ids = self.ids(items, kind);
                let found = match literal_tail(pattern, &head) {
                    Some(Tail::Exact(id)) => ids.binary_search_by(|i| i.as_str().cmp(id)).is_ok(),
                    Some(Tail::Prefix(prefix)) => {
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

    /// What the group has whose name stands where an item's should: the first of its patterns that reaches something.
    fn group(&mut self, items: &Items<'_>, pattern: &str) -> Option<String> {
        let name = pattern.splitn(4, '.').nth(3)?;
        let groups = self.groups.get_or_insert_with(|| groups::all(items));
        let patterns = groups::named(groups, name.strip_suffix(".*").unwrap_or(name))?.patterns.clone();
        patterns.into_iter().find(|p| p != pattern && self.matches(items, p))
    }

    /// The pattern with its literal part replaced by the nearest id or folder that exists.
    fn suggest(&mut self, items: &Items<'_>, pattern: &str) -> Option<String> {
        let mut segments = pattern.splitn(4, '.');
        let (rye, primary, kind) = (segments.next()?, segments.next()?, segments.next()?);
        let item = segments.next()?;
        let kind = ItemType::parse(kind)?;
        let (literal, rest) = match item.strip_suffix(".*") {
            Some(literal) => (literal, ".*"),
            None => (item, ""),
        };
        if !is_plain(literal) {
            return None;
        }
        let ids = self.ids(items, kind);
        let folders = ids.iter().flat_map(|id| {
            let ends = id.match_indices('.').map(|(at, _)| at);
            ends.filter_map(|at| id.get(..at))
        });
        let near =
            if rest.is_empty() { closest(literal, ids.iter().map(String::as_str)) } else { closest(literal, folders) };
        near.map(|near| format!("{rye}.{primary}.{kind}.{near}{rest}"))
    }
}

/// A grant of a risk that its policy does not let pass, and that nobody acknowledged.
fn risk(shared: &Shared<'_, '_>, pattern: &str, span: Span, permissions: &Permissions, found: &mut Diagnostics) {
    let risk = shared.risk_of(pattern);
    let tier = risk.tier.as_str();
    if permissions.acknowledged.iter().any(|a| a.risk.node == tier) {
        return;
    }
    let (pattern, tier) = (pattern.to_owned(), tier.to_owned());
    match risk.policy {
        Policy::Allow => {}
        Policy::AcknowledgeRequired => found.push(CapabilityError::Unacknowledged { pattern, tier, span }),
        Policy::Block => found.push(CapabilityError::Blocked { pattern, tier, span }),
    }
}

/// Acknowledgements of a risk that no grant beside them has.
fn acknowledged(shared: &Shared<'_, '_>, permissions: &Permissions, found: &mut Diagnostics) {
    for one in &permissions.acknowledged {
        let tier = &one.risk;
        // Whether its policy asks for a word may be another in another's table.
        let is_granted = |grant: &GrantDecl| shared.risk_of(&grant.pattern.0).tier.as_str() == tier.node;
        if Tier::parse(&tier.node).is_some() && !permissions.grants.iter().any(is_granted) {
            found.push(CapabilityError::AcknowledgesNothing { tier: tier.node.clone(), span: tier.span });
        }
    }
}

/// A grant of hosts, or of the project's folder, that a program gets otherwise than it is written: `plan` shows its wall.
fn openings(items: &Items<'_>, grant: &GrantDecl, found: &mut Diagnostics) {
    for path in &grant.write {
        if let Some(why) = opens_nothing(path) {
            found.push(CapabilityError::OpensNothing { path: path.clone(), why, span: grant.span });
        }
    }
    let hosts = !grant.net.is_empty() && !grant.net.iter().any(|host| host == "*");
    let folder = grant.write.iter().any(|path| matches!(path.trim_end_matches('/'), "." | ""));
    if !(hosts || folder) {
        return;
    }
    let reached = Glob::new(&grant.pattern.0);
    let is_program = |tool: &Tool| WallKind::of(&tool.spec.kind) == WallKind::Process;
    let tools = items.list(ItemType::Tool.kind());
    let mut tools = tools.iter().filter(|entry| reached.matches(&format!("rye.execute.tool.{}", entry.id.dotted())));
    let Some(program) = tools.find(|entry| items.tool(&entry.id).is_some_and(|tool| is_program(&tool))) else { return };
    let (tool, span) = (program.id.to_string(), grant.span);
    if hosts {
        found.push(CapabilityError::WholeNetwork { tool: tool.clone(), hosts: grant.net.join(", "), span });
    }
    if folder {
        found.push(CapabilityError::OnlyWhatIsThere { tool, span });
    }
}

/// Whether a pattern is about what threads leave behind: there is none before the first of them has ended.
fn is_of_exports(glob: &Glob, pattern: &str, head: &str) -> bool {
    let exports = super::EXPORTS.replace('/', ".");
    let inside = pattern.strip_prefix(head).and_then(|rest| rest.strip_prefix('.'));
    inside.is_some_and(|inside| inside.starts_with(&exports)) || glob.matches(&format!("{head}.{exports}x"))
}

/// What follows `head.` in a pattern without other wildcards than one `*` at its end.
enum Tail<'p> {
    Exact(&'p str),
    Prefix(&'p str),
}

fn literal_tail<'p>(pattern: &'p str, head: &str) -> Option<Tail<'p>> {
    let item = pattern.strip_prefix(head)?.strip_prefix('.')?;
    if is_plain(item) {
        return Some(Tail::Exact(item));
    }
    let prefix = item.strip_suffix('*')?;
    is_plain(prefix).then_some(Tail::Prefix(prefix))
}

/// Whether the literal beginning of a pattern agrees with a head.
fn can_begin_with(pattern: &str, head: &str) -> bool {
    let literal = pattern.split(['*', '?', '[']).next().unwrap_or_default();
    let common = literal.len().min(head.len());
    literal.get(..common) == head.get(..common)
}

/// The common case without automata: the base has the same pattern, or `prefix*` over what the pattern begins with.
pub(super) fn plainly_covered(base: &Permissions, pattern: &str) -> bool {
    let literal = pattern.split(['*', '?', '[']).next().unwrap_or_default();
    base.grants.iter().any(|grant| {
        let wide = grant.pattern.0.as_str();
        wide == pattern || wide.strip_suffix('*').is_some_and(|p| is_plain(p) && literal.starts_with(p))
    })
}
