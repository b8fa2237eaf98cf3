//! The tools that a grant reaches: every pattern is matched against the tools once, even if many directives grant it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use rye_grammar::ItemId;
use rye_grammar::capability::is_literal;

use super::{ReachedTool, Specificity};
use crate::primary::{ItemType, Primary, format_capability};
use crate::semantics::glob::Glob;

/// The tools of a world, each with the capability that executes it.
#[derive(Debug, Default)]
pub(crate) struct ToolIndex {
    /// The capability and the id of each tool, sorted by capability.
    tools: Vec<(String, ItemId)>,
    matches: RefCell<BTreeMap<String, Rc<PatternMatches>>>,
}

/// The tools that one pattern reaches, as indices into [`ToolIndex::tools`].
#[derive(Debug)]
struct PatternMatches {
    specific: Specificity,
    places: Vec<usize>,
}

impl ToolIndex {
    pub fn new(ids: impl IntoIterator<Item = ItemId>) -> Self {
        let named = |id: ItemId| (format_capability(Primary::Execute, ItemType::Tool, Some(&id)), id);
        let mut tools: Vec<(String, ItemId)> = ids.into_iter().map(named).collect();
        tools.sort();
        tools.dedup();
        Self { tools, matches: RefCell::default() }
    }

    /// Returns the tools that patterns reach, most specific pattern first, then by id.
    pub fn reached(&self, patterns: &[String]) -> Vec<ReachedTool> {
        let mut best: BTreeMap<usize, (Specificity, &str)> = BTreeMap::new();
        for pattern in patterns {
            let matches = self.matches(pattern);
            for place in &matches.places {
                let here = (matches.specific, pattern.as_str());
                let known = best.entry(*place).or_insert(here);
                // Of two equally specific patterns, the first in alphabetical order is used, so that the order in the
                // file makes no difference.
                if here.0 > known.0 || (here.0 == known.0 && here.1 < known.1) {
                    *known = here;
                }
            }
        }
        let reached = best.into_iter().filter_map(|(place, (specific, grant))| {
            let (_, id) = self.tools.get(place)?;
            Some(ReachedTool { id: id.clone(), grant: grant.to_owned(), specific })
        });
        let mut reached: Vec<ReachedTool> = reached.collect();
        reached.sort_by(|a, b| b.specific.cmp(&a.specific).then_with(|| a.id.cmp(&b.id)));
        reached
    }

    fn matches(&self, pattern: &str) -> Rc<PatternMatches> {
        if let Some(known) = self.matches.borrow().get(pattern) {
            return Rc::clone(known);
        }
        let glob = Glob::new(pattern);
        let prefix = pattern.strip_suffix('*').filter(|prefix| is_literal(prefix));
        let places = match prefix {
            // The tools are sorted, so a prefix matches one contiguous range.
            Some(prefix) => {
                let from = self.tools.partition_point(|(c, _)| c.as_str() < prefix);
                let rest = self.tools.get(from..).unwrap_or_default();
                let count = rest.iter().take_while(|(c, _)| c.starts_with(prefix)).count();
                (from..from + count).collect()
            }
            None if glob.is_literal() => {
                self.tools.binary_search_by(|(c, _)| c.as_str().cmp(pattern)).into_iter().collect()
            }
            None => {
                let all = self.tools.iter().enumerate();
                all.filter(|(_, (c, _))| glob.matches(c)).map(|(place, _)| place).collect()
            }
        };
        let found = Rc::new(PatternMatches { specific: Specificity::of(&glob), places });
        self.matches.borrow_mut().insert(pattern.to_owned(), Rc::clone(&found));
        found
    }
}
