//! Checks that capability patterns cover other patterns, by searching a product of automata (`language.md` 9). Only
//! well-formed capabilities are compared.

use std::collections::{HashSet, VecDeque};
use std::sync::LazyLock;

use super::{Glob, Token};

/// Maximum number of states to explore before the result is "too complex".
pub(crate) const MAX_STATES: usize = 20_000;

/// Maximum number of steps of one search. A step moves one position of one pattern over one character, so the number of
/// steps grows with the number and the length of the patterns.
pub const MAX_STEPS: usize = 5_000_000;

/// The result of checking that the patterns of parents cover the pattern of a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Coverage {
    Covered,
    /// A shortest well-formed capability that the pattern of the child matches and no pattern of a parent matches.
    /// Names a skill only if there is no other counterexample.
    Counterexample(String),
    /// The search reached `MAX_STATES` or [`MAX_STEPS`]. The pattern of the child then counts as not covered.
    TooComplex,
}

/// The result of `witness`. `Found` holds a well-formed capability that every included pattern and no excluded
/// pattern matches. `None` means that no such capability exists. `TooComplex` means that the search reached
/// `MAX_STATES` or [`MAX_STEPS`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Witness {
    Found(String),
    None,
    TooComplex,
}

/// Checks that the parents together match every well-formed capability that `child` matches.
pub fn covers(parents: &[&str], child: &str) -> Coverage {
    covers_all(parents, &[child])
}

/// Checks that the parents together match every well-formed capability that any of the children matches.
pub(crate) fn covers_all(parents: &[&str], children: &[&str]) -> Coverage {
    let excluded: Vec<Glob> = parents.iter().map(|p| Glob::new(p)).collect();
    let included: Vec<Vec<Glob>> =
        children.iter().filter(|child| !parents.contains(child)).map(|child| vec![Glob::new(child)]).collect();
    match InclusionSearch::new(&included, &excluded).run() {
        Witness::None => Coverage::Covered,
        Witness::Found(example) => Coverage::Counterexample(example),
        Witness::TooComplex => Coverage::TooComplex,
    }
}

/// Finds a shortest well-formed capability that every `included` pattern matches and no `excluded` pattern matches.
/// Returns the capability of a skill only if there is no other result.
pub(crate) fn witness(included: &[&Glob], excluded: &[&Glob]) -> Witness {
    let included = vec![included.iter().map(|g| (*g).clone()).collect()];
    let excluded: Vec<Glob> = excluded.iter().map(|g| (*g).clone()).collect();
    InclusionSearch::new(&included, &excluded).run()
}

/// Every character of a well-formed capability, in the preferred order for examples.
const ALPHABET: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";

/// The starts of well-formed capabilities. One or more segments (`.segment`) follow a start, except for a query:
/// `rye.fetch.<type>` is a capability by itself.
const HEADS: [&str; 9] = [
    "rye.execute.tool",
    "rye.execute.directive",
    "rye.execute.knowledge",
    "rye.fetch.tool",
    "rye.fetch.directive",
    "rye.fetch.knowledge",
    "rye.sign.tool",
    "rye.sign.directive",
    "rye.sign.knowledge",
];

/// The starts of the capabilities of skills, in the form of [`HEADS`]. The search tries these starts last, so that an
/// example names a skill only if there is no other example.
const SKILL_HEADS: [&str; 1] = ["rye.fetch.skill"];

/// The index in [`TRIE`] of the root for [`HEADS`].
const ROOT: u32 = 0;
/// The index in [`TRIE`] of the root for [`SKILL_HEADS`].
const SKILL_ROOT: u32 = 1;

/// A position in the text of a well-formed capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CapabilityPosition {
    /// Inside or at the end of an entry of [`HEADS`] or [`SKILL_HEADS`]. The number is the index of a node of [`TRIE`]:
    /// the node that the characters before the position lead to.
    Head(u32),
    /// After a dot: a segment character must follow.
    SegmentStart,
    InSegment,
}

struct TrieNode {
    edges: Vec<(char, u32)>,
    /// True if the characters from the root of the trie to this node form an entry of [`HEADS`].
    head: bool,
    /// True if the characters from the root of the trie to this node form an entry of [`HEADS`] or [`SKILL_HEADS`].
    query: bool,
}

static TRIE: LazyLock<Vec<TrieNode>> = LazyLock::new(|| {
    let node = || TrieNode { edges: Vec::new(), head: false, query: false };
    let mut trie = vec![node(), node()];
    let roots = HEADS.iter().map(|head| (ROOT, head)).chain(SKILL_HEADS.iter().map(|head| (SKILL_ROOT, head)));
    for (root, head) in roots {
        let mut at = root;
        for c in head.chars() {
            let next = u32::try_from(trie.len()).unwrap_or(u32::MAX);
            let Some(edges) = trie.get_mut(at as usize).map(|node| &mut node.edges) else { break };
            if let Some((_, to)) = edges.iter().find(|(edge, _)| *edge == c) {
                at = *to;
            } else {
                edges.push((c, next));
                trie.push(node());
                at = next;
            }
        }
        if let Some(node) = trie.get_mut(at as usize) {
            node.head = true;
            node.query = head.starts_with("rye.fetch.");
        }
    }
    trie
});

impl CapabilityPosition {
    fn step(self, c: char) -> Option<Self> {
        let after_segment = if c == '.' { Self::SegmentStart } else { Self::InSegment };
        match self {
            Self::Head(at) => {
                let node = TRIE.get(at as usize)?;
                if node.head {
                    return (c == '.').then_some(Self::SegmentStart);
                }
                node.edges.iter().find(|(edge, _)| *edge == c).map(|(_, to)| Self::Head(*to))
            }
            Self::SegmentStart => (c != '.').then_some(Self::InSegment),
            Self::InSegment => Some(after_segment),
        }
    }

    fn is_complete(self) -> bool {
        match self {
            Self::Head(at) => TRIE.get(at as usize).is_some_and(|node| node.query),
            Self::SegmentStart => false,
            Self::InSegment => true,
        }
    }

    fn code(self) -> u32 {
        match self {
            Self::Head(at) => at,
            Self::SegmentStart => u32::MAX - 1,
            Self::InSegment => u32::MAX - 2,
        }
    }
}

/// The possible positions in a pattern. If a `*` is among the positions, all positions before this `*` are dropped: the
/// `*` matches everything that an earlier position could still match.
type Positions = Vec<u32>;

fn start_positions(glob: &Glob) -> Positions {
    epsilon_closure(glob, vec![0])
}

fn advance_positions(glob: &Glob, positions: &[u32], c: char) -> Positions {
    let mut next = Vec::with_capacity(positions.len() + 1);
    for at in positions {
        match glob.parse_tokens().get(*at as usize) {
            Some(Token::Run) => next.push(*at),
            Some(token) if token.accepts(c) => next.push(at + 1),
            Some(_) | None => {}
        }
    }
    epsilon_closure(glob, next)
}

fn epsilon_closure(glob: &Glob, mut positions: Positions) -> Positions {
    let mut i = 0;
    while let Some(at) = positions.get(i).copied() {
        if glob.parse_tokens().get(at as usize) == Some(&Token::Run) {
            positions.push(at + 1);
        }
        i += 1;
    }
    positions.sort_unstable();
    positions.dedup();
    let last_run = positions.iter().rposition(|at| glob.parse_tokens().get(*at as usize) == Some(&Token::Run));
    if let Some(last_run) = last_run {
        positions.drain(..last_run);
    }
    positions
}

fn accepts(glob: &Glob, positions: &[u32]) -> bool {
    positions.last().is_some_and(|at| *at as usize == glob.parse_tokens().len())
}

/// Returns true if the glob matches the text read so far and every continuation of this text. `positions` are the
/// possible positions in the glob after this text.
fn accepts_everything(glob: &Glob, positions: &[u32]) -> bool {
    let len = glob.parse_tokens().len();
    positions.iter().any(|at| *at as usize + 1 == len && glob.parse_tokens().last() == Some(&Token::Run))
}

struct InclusionSearch<'a> {
    included: &'a [Vec<Glob>],
    excluded: &'a [Glob],
    characters: Vec<char>,
    states: Vec<SearchState>,
    /// Number of steps so far. The search ends when this number exceeds [`MAX_STEPS`].
    steps: usize,
    seen: HashSet<Vec<u32>>,
    queue: VecDeque<usize>,
}

struct SearchState {
    group: usize,
    shape: CapabilityPosition,
    included: Vec<Positions>,
    excluded: Vec<Positions>,
    reached_from: Option<(usize, char)>,
}

enum Visit {
    Witness(usize),
    Continue,
    Full,
}

impl<'a> InclusionSearch<'a> {
    fn new(included: &'a [Vec<Glob>], excluded: &'a [Glob]) -> Self {
        Self {
            included,
            excluded,
            characters: representatives(included.iter().flatten().chain(excluded)),
            states: Vec::new(),
            steps: 0,
            seen: HashSet::new(),
            queue: VecDeque::new(),
        }
    }

    /// Searches for a capability that no pattern in `excluded` matches. Every pattern of at least one list in
    /// `included` must match the capability. Searches the capabilities of skills last.
    fn run(mut self) -> Witness {
        match self.search_from(ROOT) {
            Witness::None => self.search_from(SKILL_ROOT),
            found @ (Witness::Found(_) | Witness::TooComplex) => found,
        }
    }

    /// Searches breadth first, and from all lists in `included` at once, so that the first capability found is a
    /// shortest one.
    fn search_from(&mut self, root: u32) -> Witness {
        for (group, globs) in self.included.iter().enumerate() {
            let state = SearchState {
                group,
                shape: CapabilityPosition::Head(root),
                included: globs.iter().map(start_positions).collect(),
                excluded: self.excluded.iter().map(start_positions).collect(),
                reached_from: None,
            };
            match self.visit(state) {
                Visit::Witness(at) => return Witness::Found(self.path_text(at)),
                Visit::Continue => {}
                Visit::Full => return Witness::TooComplex,
            }
        }
        while let Some(at) = self.queue.pop_front() {
            for i in 0..self.characters.len() {
                if self.steps > MAX_STEPS {
                    return Witness::TooComplex;
                }
                let Some(c) = self.characters.get(i).copied() else { continue };
                let Some(next) = self.successor(at, c) else { continue };
                match self.visit(next) {
                    Visit::Witness(at) => return Witness::Found(self.path_text(at)),
                    Visit::Continue => {}
                    Visit::Full => return Witness::TooComplex,
                }
            }
        }
        Witness::None
    }

    fn successor(&mut self, at: usize, c: char) -> Option<SearchState> {
        let state = self.states.get(at)?;
        let shape = state.shape.step(c)?;
        self.steps += state.included.iter().chain(&state.excluded).map(|positions| positions.len() + 1).sum::<usize>();
        let globs = self.included.get(state.group)?;
        let included: Vec<Positions> =
            globs.iter().zip(&state.included).map(|(glob, at)| advance_positions(glob, at, c)).collect();
        let excluded =
            self.excluded.iter().zip(&state.excluded).map(|(glob, at)| advance_positions(glob, at, c)).collect();
        Some(SearchState { group: state.group, shape, included, excluded, reached_from: Some((at, c)) })
    }

    fn visit(&mut self, state: SearchState) -> Visit {
        let Some(globs) = self.included.get(state.group) else { return Visit::Continue };
        let hopeless = state.included.iter().any(Vec::is_empty)
            || self.excluded.iter().zip(&state.excluded).any(|(glob, at)| accepts_everything(glob, at));
        if hopeless || !self.seen.insert(state_key(&state)) {
            return Visit::Continue;
        }
        if self.states.len() >= MAX_STATES {
            return Visit::Full;
        }
        let found = state.shape.is_complete()
            && globs.iter().zip(&state.included).all(|(glob, at)| accepts(glob, at))
            && !self.excluded.iter().zip(&state.excluded).any(|(glob, at)| accepts(glob, at));
        let at = self.states.len();
        self.states.push(state);
        if found {
            return Visit::Witness(at);
        }
        self.queue.push_back(at);
        Visit::Continue
    }

    fn path_text(&self, at: usize) -> String {
        let mut letters = Vec::new();
        let mut at = at;
        while let Some((from, c)) = self.states.get(at).and_then(|state| state.reached_from) {
            letters.push(c);
            at = from;
        }
        letters.iter().rev().collect()
    }
}

fn state_key(state: &SearchState) -> Vec<u32> {
    let mut key = vec![u32::try_from(state.group).unwrap_or(u32::MAX), state.shape.code()];
    for positions in state.included.iter().chain(&state.excluded) {
        key.extend(positions);
        key.push(u32::MAX);
    }
    key
}

/// Returns one character for each set of characters that neither the patterns nor the entries of [`HEADS`] and
/// [`SKILL_HEADS`] distinguish. A search need only try these characters.
fn representatives<'g>(globs: impl Iterator<Item = &'g Glob>) -> Vec<char> {
    let mut classes: Vec<&Token> = Vec::new();
    let mut spelled: Vec<char> = HEADS.iter().chain(&SKILL_HEADS).flat_map(|head| head.chars()).collect();
    for token in globs.flat_map(Glob::parse_tokens) {
        match token {
            Token::Literal(c) => spelled.push(*c),
            Token::Class { .. } => {
                if !classes.contains(&token) {
                    classes.push(token);
                }
            }
            Token::One | Token::Run => {}
        }
    }
    let mut kinds: Vec<Vec<bool>> = Vec::new();
    ALPHABET
        .chars()
        .filter(|c| {
            if spelled.contains(c) {
                return true;
            }
            let kind: Vec<bool> = classes.iter().map(|class| class.accepts(*c)).collect();
            let new = !kinds.contains(&kind);
            if new {
                kinds.push(kind);
            }
            new
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::semantics::capability::ItemType;

    #[test]
    fn every_item_type_has_its_heads() {
        let types = |action: &str| -> BTreeSet<&str> {
            let heads = HEADS.iter().chain(&SKILL_HEADS);
            heads.filter_map(|head| head.strip_prefix("rye.")?.strip_prefix(action)?.strip_prefix('.')).collect()
        };
        let all = ItemType::ALL.map(ItemType::as_str);
        assert_eq!(types("fetch"), BTreeSet::from(all));
        let without_skills = all.into_iter().filter(|kind| *kind != "skill").collect::<BTreeSet<_>>();
        assert_eq!(types("execute"), without_skills);
        assert_eq!(types("sign"), without_skills);
    }

    #[test]
    fn patterns_of_skills_are_compared_like_those_of_other_items() {
        let glob = Glob::new;
        let outside = |inner: &str, outer: &str| witness(&[&glob(inner)], &[&glob(outer)]);
        for (inner, outer) in [
            ("rye.fetch.skill.notes", "rye.fetch.knowledge.*"),
            ("rye.fetch.skill.*", "rye.fetch.skill.notes"),
            ("rye.fetch.*", "rye.fetch.knowledge.*"),
        ] {
            assert_ne!(outside(inner, outer), Witness::None, "{inner} is not covered by {outer}");
        }
        for outer in ["rye.fetch.skill.*", "rye.fetch.*", "rye.*"] {
            assert_eq!(outside("rye.fetch.skill.notes", outer), Witness::None, "{outer}");
        }
    }
}
