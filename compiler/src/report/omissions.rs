//! Token estimates for omitted items. A plan does not contain the estimates, so they cannot change its hash.

use std::collections::BTreeMap;
use std::sync::Arc;

use rye_grammar::ItemId;
use rye_grammar::tool_header::ScriptReader;

use crate::compile::Compilation;
use crate::item::Items;
use crate::plan::Tokenizer;
use crate::plan::note::OmissionReason;
use crate::report::provenance::{Omission, list_omissions};
use crate::world::{ContextFile, Entry, ItemKind, LocatedFile, Space, UnrecognizedFile, World, WorldError};

/// Estimated tokens of the items that a plan omits, by the reason for the omission and the item's id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OmittedTokens(BTreeMap<(&'static str, String), u64>);

impl OmittedTokens {
    /// Estimates the tokens of every omitted item. Reads the items from `world`, because the plan does not contain
    /// them. Leaves out items whose tokens cannot be estimated.
    pub fn estimate(world: &dyn World, compilation: &Compilation) -> Self {
        let items = Items::new(world);
        let by = compilation.plan.model.counted_by;
        let mut omitted_tokens = BTreeMap::new();
        for one in list_omissions(compilation) {
            let tokens = one.tokens.or_else(|| match one.why {
                OmissionReason::Suppressed | OmissionReason::Deduplicated => {
                    of_knowledge(&items, &one.id, by).or_else(|| of_hook(&items, compilation, &one.id))
                }
                OmissionReason::ConditionFalse | OmissionReason::Removed => of_hook(&items, compilation, &one.id),
                OmissionReason::Shadowed => shadowed_tokens(world, compilation, &one),
                OmissionReason::DroppedForSize | OmissionReason::Refused => None,
            });
            if let Some(tokens) = tokens {
                omitted_tokens.insert((one.why.as_str(), one.id), tokens);
            }
        }
        Self(omitted_tokens)
    }

    /// Returns the estimated tokens of an omitted item, if an estimate exists. `why` is the reason, as
    /// [`OmissionReason::as_str`] returns it.
    pub fn get(&self, why: &str, id: &str) -> Option<u64> {
        self.0.iter().find(|((reason, of), _)| *reason == why && of == id).map(|(_, tokens)| *tokens)
    }
}

fn of_knowledge(items: &Items<'_>, id: &str, by: Tokenizer) -> Option<u64> {
    let id = ItemId::parse(id).ok().filter(|id| items.exists(ItemKind::Knowledge, id))?;
    Some(by.count(&items.knowledge(&id)?.body.node))
}

/// Returns the tokens of the knowledge that an omitted hook would have added; `None` if the hook fetches no knowledge,
/// or if the hook or the knowledge does not exist.
fn of_hook(items: &Items<'_>, compilation: &Compilation, id: &str) -> Option<u64> {
    let hook = compilation.plan.hooks.iter().find(|hook| hook.id == id)?;
    of_knowledge(items, hook.action.knowledge()?, compilation.plan.model.counted_by)
}

/// Returns the tokens of the body of the shadowed knowledge or directive. `None` for items of other kinds, and if the
/// shadowed item cannot be read.
fn shadowed_tokens(world: &dyn World, compilation: &Compilation, one: &Omission) -> Option<u64> {
    let id = ItemId::parse(&one.id).ok()?;
    let read = compilation.plan.manifest.iter().find(|read| read.id == one.id && read.space.is_some())?;
    let found = world.candidates(read.kind, &id).ok()?;
    let hidden = found.iter().filter(|located| Some(located.space) != read.space).map(|l| l.space).min()?;
    let alone = OneSpace { world, space: hidden };
    let items = Items::new(&alone);
    let by = compilation.plan.model.counted_by;
    match read.kind {
        ItemKind::Knowledge => Some(by.count(&items.knowledge(&id)?.body.node)),
        ItemKind::Directive => Some(by.count(&items.directive(&id)?.body.node)),
        ItemKind::Tool | ItemKind::Config | ItemKind::Prompt | ItemKind::Skill => None,
    }
}

/// A world that contains the items of one space only.
struct OneSpace<'w> {
    world: &'w dyn World,
    space: Space,
}

impl World for OneSpace<'_> {
    fn candidates(&self, kind: ItemKind, id: &ItemId) -> Result<Vec<LocatedFile>, WorldError> {
        let mut found = self.world.candidates(kind, id)?;
        found.retain(|located| located.space == self.space);
        Ok(found)
    }

    fn list(&self, kind: ItemKind) -> Result<Vec<Entry>, WorldError> {
        let mut entries = self.world.list(kind)?;
        entries.retain(|entry| entry.space == self.space);
        Ok(entries)
    }

    fn unrecognized_files(&self) -> Result<Vec<UnrecognizedFile>, WorldError> {
        Ok(Vec::new())
    }

    fn misplaced_settings(&self) -> Result<Vec<UnrecognizedFile>, WorldError> {
        Ok(Vec::new())
    }

    fn context_files(&self) -> Result<Vec<ContextFile>, WorldError> {
        self.world.context_files()
    }

    fn mcp_json(&self) -> Result<Option<Arc<[u8]>>, WorldError> {
        self.world.mcp_json()
    }

    fn scripts(&self) -> &dyn ScriptReader {
        self.world.scripts()
    }

    fn project_is_user_space(&self) -> bool {
        self.world.project_is_user_space()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::compile::tests::world::deploy_world;
    use crate::compile::{CompileRequest, compile};

    #[test]
    fn omitted_items_get_token_estimates_outside_the_manifest() {
        let world = deploy_world();
        let request = CompileRequest::new(ItemId::parse("deploy_staging").unwrap());
        let inputs = serde_json::json!({"service": "billing"});
        let request = request.with_inputs(inputs.as_object().unwrap().clone());
        let compilation = compile(&world, &request).value.unwrap();
        let before = compilation.plan.manifest.clone();
        assert!(
            list_omissions(&compilation)
                .iter()
                .any(|one| one.why == OmissionReason::Suppressed && one.tokens.is_none())
        );
        let tokens = OmittedTokens::estimate(&world, &compilation);
        let all = list_omissions(&compilation);
        let weight = |why: OmissionReason| tokens.get(why.as_str(), &all.iter().find(|one| one.why == why)?.id);
        assert!(
            weight(OmissionReason::Suppressed) > Some(10) && weight(OmissionReason::Shadowed) > Some(10),
            "{all:?}"
        );
        assert_eq!(compilation.plan.manifest, before);
    }
}
