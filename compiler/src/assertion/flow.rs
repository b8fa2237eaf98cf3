//! The flow of text between threads.
//!
//! A thread reads the results of its calls and hooks, the message of its parent, and the outputs of its children. Any
//! text that a thread reads can become part of any text that the thread writes. So a text can rise from a child to its
//! spawn parent, unless the child declassifies its outputs. From a parent, a text can reach each child. Threads with
//! equal states have equal descendants, so the search examines states ([`super::threads`]) instead of single threads.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rye_grammar::ItemId;

use super::threads::{PossibleThread, ReachMemo};

/// The properties of a state that determine the flow of text. Threads with equal states share these properties.
pub struct FlowState {
    pub directive: ItemId,
    /// True if the outputs of the directive contain no untrusted text.
    pub declassifies: bool,
    /// The numbers that identify the states of the threads that a thread with this state can start.
    pub children: BTreeSet<usize>,
}

/// The flow of texts through the states of threads. The default value has no sources of text, so no text flows.
#[derive(Default)]
pub struct TextFlow {
    states: BTreeMap<usize, FlowState>,
    sources: Vec<TextSource>,
}

/// The texts that a use of the capability `pattern` returns.
struct TextSource {
    pattern: String,
    /// The states whose threads can use a capability that matches `pattern`, each with this capability.
    capabilities: BTreeMap<usize, String>,
    /// For each state, the length of the shortest path down to a state in `capabilities`, counted in starts of child
    /// threads. Paths through declassifying directives do not count. A state without a path has no entry.
    distances: BTreeMap<usize, usize>,
}

/// A path that a text can take: the capability where the path starts, the directives that the path passes, and the
/// capability where the path ends.
pub struct FlowPath {
    pub from: String,
    pub through: Vec<String>,
    pub to: String,
}

impl TextFlow {
    /// Creates the flow of texts through `states`. Each source is a pattern of capabilities, with the states that can
    /// use a matching capability.
    pub fn new(states: BTreeMap<usize, FlowState>, sources: Vec<(String, BTreeMap<usize, String>)>) -> Self {
        let mut parents: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (parent, state) in &states {
            let is_open = |child: &&usize| states.get(child).is_some_and(|child| !child.declassifies);
            for child in state.children.iter().filter(is_open) {
                parents.entry(*child).or_default().push(*parent);
            }
        }
        let sources = sources.into_iter().map(|(pattern, capabilities)| {
            let mut distances: BTreeMap<usize, usize> = capabilities.keys().map(|state| (*state, 0)).collect();
            let mut queue: VecDeque<(usize, usize)> = distances.keys().map(|state| (*state, 0)).collect();
            while let Some((state, distance)) = queue.pop_front() {
                for parent in parents.get(&state).into_iter().flatten() {
                    if !distances.contains_key(parent) {
                        distances.insert(*parent, distance + 1);
                        queue.push_back((*parent, distance + 1));
                    }
                }
            }
            TextSource { pattern, capabilities, distances }
        });
        let sources = sources.collect();
        Self { states, sources }
    }

    /// Returns, for each source, true if its text reaches a thread with this state. `above` is the result for the
    /// parent of the thread, empty for a thread without a parent.
    pub fn texts_at(&self, above: &[bool], state: usize) -> Vec<bool> {
        let reaches = |(at, source): (usize, &TextSource)| {
            above.get(at).is_some_and(|is_above| *is_above) || source.distances.contains_key(&state)
        };
        self.sources.iter().enumerate().map(reaches).collect()
    }

    /// Returns a shortest path on which text can flow from a use of the capability `from` in any thread to a use of the
    /// capability `to` in `thread`; `None` if there is none.
    pub fn find(&self, thread: &PossibleThread, from: &str, to: &str, memo: &mut ReachMemo) -> Option<FlowPath> {
        let source = self.sources.iter().find(|source| source.pattern == from)?;
        // The text rises to a thread of the spawn chain, and follows the chain down to the thread.
        let chain = thread.states();
        let lengths = chain.iter().enumerate().filter_map(|(at, state)| {
            let distance = source.distances.get(state)?;
            Some((distance + chain.len() - at, at, *state))
        });
        let (_, at, top) = lengths.min()?;
        let to = thread.uses(to, memo)?;
        let mut rising = vec![top];
        while let Some(next) = rising.last().and_then(|state| self.next_below(source, *state)) {
            rising.push(next);
        }
        let from = source.capabilities.get(rising.last()?)?.clone();
        let path = rising.iter().rev().chain(chain.iter().skip(at + 1));
        let through = path.filter_map(|state| self.states.get(state)).map(|state| state.directive.to_string());
        Some(FlowPath { from, through: through.collect(), to })
    }

    /// Returns the next state on a shortest way from a state down to the source; `None` if the state is the source.
    fn next_below(&self, source: &TextSource, state: usize) -> Option<usize> {
        let distance = source.distances.get(&state)?.checked_sub(1)?;
        let children = self.states.get(&state)?.children.iter().copied();
        let is_open = |child: &usize| self.states.get(child).is_some_and(|child| !child.declassifies);
        children.filter(is_open).find(|child| source.distances.get(child) == Some(&distance))
    }
}
