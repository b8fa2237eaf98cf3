//! Explains why a plan does not allow an action: the most similar grants, the difference of each from the needed
//! capability, and the line to add.

use rye_grammar::ItemId;

use super::provenance::DerivationStep;
use super::why::Explanation;
use crate::compile::Compilation;
use crate::item::{Directive, Items};
use crate::lower::cache::LowerContext;
use crate::lower::origin;
use crate::palette::missing_needs;
use crate::plan::SourcePlace;
use crate::semantics::capability::{CapabilitySet, ItemType, Primary};
use crate::semantics::risk::Policy;
use crate::world::{ItemKind, World};

/// Maximum number of grants that an explanation compares.
const MAX_GRANTS: usize = 3;

/// An action for which a grant may be missing: a primary, a kind of item, and an id.
struct Action {
    primary: Primary,
    item_type: ItemType,
    /// The id, with dots in place of slashes; `None` for a capability without an id, such as `rye.fetch.knowledge`,
    /// which allows queries.
    id: Option<String>,
}

impl Action {
    /// Parses a capability such as `rye.execute.tool.rye.bash.bash`; `None` for any other text.
    fn parse(capability: &str) -> Option<Self> {
        let mut parts = capability.strip_prefix("rye.")?.splitn(3, '.');
        let (primary, item_type) = (Primary::parse(parts.next()?)?, ItemType::parse(parts.next()?)?);
        Some(Self { primary, item_type, id: parts.next().map(|id| id.replace('/', ".")) })
    }

    fn capability(&self) -> String {
        let stem = format!("rye.{}.{}", self.primary, self.item_type);
        self.id.as_ref().map_or_else(|| stem.clone(), |id| format!("{stem}.{id}"))
    }
}

/// Explains why the plan does not allow the actions that `name` stands for. A capability stands for one action; the id
/// of an item can stand for several. Actions that the plan allows are left out.
pub fn explain_missing_grants(world: &dyn World, compilation: &Compilation, name: &str) -> Vec<Explanation> {
    let items = Items::new(world);
    let plan = &compilation.plan;
    let granted = CapabilitySet::new(plan.capabilities.grants.iter().map(|grant| grant.pattern.clone()));
    let actions =
        actions_of(&items, name).into_iter().filter(|action| granted.first_match(&action.capability()).is_none());
    actions.map(|action| explain_missing(&items, compilation, &action)).collect()
}

/// Returns the actions that a name stands for. A capability is one action. An id stands for up to three actions,
/// depending on the items that exist: run the tool, run the directive and fetch the knowledge with this id.
fn actions_of(items: &Items<'_>, name: &str) -> Vec<Action> {
    if let Some(action) = Action::parse(name) {
        return vec![action];
    }
    let Ok(id) = ItemId::parse(name) else { return Vec::new() };
    let kinds = [
        (ItemKind::Tool, Primary::Execute, ItemType::Tool),
        (ItemKind::Directive, Primary::Execute, ItemType::Directive),
        (ItemKind::Knowledge, Primary::Fetch, ItemType::Knowledge),
    ];
    let known = kinds.into_iter().filter(|(kind, ..)| items.exists(*kind, &id));
    known.map(|(_, primary, item_type)| Action { primary, item_type, id: Some(id.dotted()) }).collect()
}

fn explain_missing(items: &Items<'_>, compilation: &Compilation, action: &Action) -> Explanation {
    let plan = &compilation.plan;
    let wanted = action.capability();
    let declaring = plan.capabilities.from.as_ref().and_then(|id| items.directive(id));
    let mut steps: Vec<DerivationStep> = Vec::new();
    let mut grants: Vec<(usize, &str)> = plan
        .capabilities
        .grants
        .iter()
        .map(|grant| (common_segments(&grant.pattern, &wanted), &*grant.pattern))
        .collect();
    grants.sort_by_key(|(common, _)| std::cmp::Reverse(*common));
    for (_, pattern) in grants.into_iter().take(MAX_GRANTS) {
        let place = compilation.origins.get(&format!("capability.{pattern}")).and_then(|origin| origin.place.clone());
        steps.push(DerivationStep::new(format!("`{pattern}` {}", describe_difference(pattern, &wanted)), place));
    }
    let reason = match &declaring {
        Some(by) => format!("not granted: no grant of `{}` matches `{wanted}`", by.id()),
        None => {
            "not granted: no directive of the extends chain declares `<permissions>`, and a root thread inherits none"
                .to_owned()
        }
    };
    steps.extend(grant_fixes(items, compilation, action, declaring.as_deref()));
    let subject = format!("capability.{wanted}");
    Explanation { subject, reason, place: declaring.and_then(|by| permissions_place(items, &by)), steps }
}

/// Returns the steps of an explanation that state how to allow the action: the grant to add, and the file to add the
/// grant to.
fn grant_fixes(
    items: &Items<'_>,
    compilation: &Compilation,
    action: &Action,
    declaring: Option<&Directive>,
) -> Vec<DerivationStep> {
    let plan = &compilation.plan;
    let line = grant_line(items, action);
    let place = declaring.and_then(|by| permissions_place(items, by));
    let is_own = place.as_ref().is_some_and(|place| !place.file.contains(':'));
    let leaf = compilation.origins.get(&format!("link.{}", plan.directive)).and_then(|origin| origin.place.clone());
    let add = match declaring {
        Some(by) if is_own => {
            DerivationStep::new_fix(format!("add `{line}` to the `<permissions>` of `{}`", by.id()), place)
        }
        Some(by) => {
            let text = format!(
                "add `<permissions>{line}</permissions>` to `{}`; this element replaces the grants of `{}`, so repeat the grants that you still need",
                plan.directive,
                by.id()
            );
            DerivationStep::new_fix(text, leaf)
        }
        None => {
            let text = format!("add `<permissions>{line}</permissions>` to the `<metadata>` of `{}`", plan.directive);
            DerivationStep::new_fix(text, leaf)
        }
    };
    let mut steps = vec![add];
    if line.contains(" net=\"host\"") {
        let text = "replace `host` in `net` with the hosts that calls may reach: without `net`, every call is refused";
        steps.push(DerivationStep::new_fix(text.to_owned(), None));
    }
    let risk = LowerContext::new(items).risk_of(&action.capability());
    if risk.policy == Policy::AcknowledgeRequired && !plan.capabilities.acknowledged.contains_key(risk.tier.as_str()) {
        let tier = risk.tier.as_str();
        let text = format!(
            "the risk of the call is `{tier}`: without `<acknowledge risk=\"{tier}\">REASON</acknowledge>`, each call needs an approval"
        );
        steps.push(DerivationStep::new_fix(text, None));
    }
    let ancestors = plan.chain.iter().rev().skip(1).filter_map(|link| items.directive(&link.id));
    let sealed = ancestors.filter(|link| link.permissions.as_ref().is_some_and(|permissions| permissions.sealed));
    for link in sealed.filter(|link| declaring.is_none_or(|by| by.id() != link.id())) {
        let text = format!(
            "`{}` seals its permissions: `rye check` warns about the grant until `{}` grants the capability too",
            link.id(),
            link.id()
        );
        steps.push(DerivationStep::new_fix(text, permissions_place(items, &link)));
    }
    steps
}

/// Returns the grant that allows the action, as it is written in `<permissions>`, with the attributes `net` and `write`
/// that the tool needs.
fn grant_line(items: &Items<'_>, action: &Action) -> String {
    let (primary, item_type) = (action.primary, action.item_type);
    let id = action.id.clone().unwrap_or_else(|| "*".to_owned());
    let item = ItemId::parse(&id.replace('.', "/")).ok().filter(|_| item_type == ItemType::Tool);
    let needs = item.and_then(|id| items.tool(&id)).and_then(|tool| missing_needs(&tool, &[], &[]));
    let attributes = needs.map(|needs| format!(" {needs}")).unwrap_or_default();
    format!("<{primary}><{item_type}{attributes}>{id}</{item_type}></{primary}>")
}

fn permissions_place(items: &Items<'_>, directive: &Directive) -> Option<SourcePlace> {
    origin::plan_place(&items.sources(), directive.permissions.as_ref()?.span)
}

/// Returns the number of equal segments at the start of a pattern and a capability.
fn common_segments(pattern: &str, wanted: &str) -> usize {
    pattern.split('.').zip(wanted.split('.')).take_while(|(a, b)| a == b).count()
}

/// Describes the difference between a pattern and a capability that it does not match.
fn describe_difference(pattern: &str, wanted: &str) -> String {
    let common = common_segments(pattern, wanted);
    let rest = |text: &str| text.split('.').skip(common).collect::<Vec<_>>().join(".");
    let (has, needs) = (rest(pattern), rest(wanted));
    let first = |text: &str| text.split('.').next().unwrap_or_default().to_owned();
    match (common, has.is_empty(), needs.is_empty()) {
        (1, ..) => format!("grants the primary {}, not {}", first(&has), first(&needs)),
        (2, ..) => format!("grants items of the kind {}, not {}", first(&has), first(&needs)),
        (_, true, _) => format!("does not end with `{needs}`"),
        (_, _, true) => format!("requires `{has}` after `{wanted}`"),
        _ => format!("has `{has}` where `{needs}` is needed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lack_names_the_first_difference() {
        let wanted = "rye.execute.tool.rye.bash.bash";
        for (pattern, text) in [
            ("rye.fetch.tool.rye.bash.bash", "grants the primary fetch, not execute"),
            ("rye.execute.directive.*", "grants items of the kind directive, not tool"),
            ("rye.execute.tool.rye.file-system.*", "has `file-system.*` where `bash.bash` is needed"),
            ("rye.execute.tool.rye.bash", "does not end with `bash`"),
            ("rye.execute.tool.rye.bash.bash.x", "requires `x` after `rye.execute.tool.rye.bash.bash`"),
        ] {
            assert_eq!(describe_difference(pattern, wanted), text);
        }
    }
}
