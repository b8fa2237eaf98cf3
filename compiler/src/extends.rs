//! Resolves the extends chain of a directive (`language.md`, Composition), in which no directive may occur twice. The
//! caller has already selected the route.

use std::iter;
use std::sync::Arc;

use rye_grammar::{ItemId, Span, Spanned};

use crate::diagnostics::{Diagnostics, ExtendsError};
use crate::item::{Directive, Items};
use crate::world::ItemKind;

/// Maximum number of directives in an extends chain.
pub const MAX_LINKS: usize = 64;

/// The extends parent that a `resolve_extends` hook sets in place of the declared parent.
#[derive(Debug, Clone)]
pub struct RoutedParent {
    pub parent: Spanned<ItemId>,
    pub hook: String,
}

/// Returns the resolved extends chain, root first; `None` if the chain cannot be resolved. The parser has already
/// reported an unreadable parent.
pub(crate) fn resolve_chain(
    items: &Items<'_>,
    leaf: Arc<Directive>,
    routed: Option<&RoutedParent>,
    found: &mut Diagnostics,
) -> Option<Vec<Arc<Directive>>> {
    // `parents` holds the span that names the extends parent of each directive in `chain`. For the leaf, this span can
    // be in a hook.
    let mut chain: Vec<Arc<Directive>> = vec![leaf];
    let mut parents: Vec<Span> = Vec::new();
    loop {
        let link = chain.last()?;
        let routed = routed.filter(|_| chain.len() == 1);
        let Some(parent) = routed.map(|r| &r.parent).or(link.extends.as_ref()) else { break };
        if let Some(start) = chain.iter().position(|d| *d.id() == parent.node) {
            parents.push(parent.span);
            let circle = chain.iter().zip(&parents).skip(start).map(|(d, span)| (d.id().clone(), *span)).collect();
            found.push(ExtendsError::Cycle { links: start_at_smallest_id(circle) });
            return None;
        }
        if chain.len() == MAX_LINKS {
            let leaf = chain.first()?.id().clone();
            found.push(ExtendsError::TooDeep { leaf, limit: MAX_LINKS, span: parent.span });
            return None;
        }
        let Some(directive) = items.directive(&parent.node) else {
            if !items.exists(ItemKind::Directive, &parent.node) {
                found.push(ExtendsError::Unknown {
                    id: parent.node.to_string(),
                    span: parent.span,
                    suggestion: items.nearest(ItemKind::Directive, parent.node.as_str()),
                    by_hook: routed.map(|r| r.hook.clone()),
                });
            }
            return None;
        };
        parents.push(parent.span);
        chain.push(directive);
    }
    chain.reverse();
    Some(chain)
}

/// Returns the directive `id` and its declared ancestors, leaf first, without the routes of hooks. The walk ends after
/// one directive more than a chain may have, so that the work for a cycle or a longer chain is bounded.
pub(crate) fn declared_chain(items: &Items<'_>, id: &ItemId) -> impl Iterator<Item = Arc<Directive>> {
    iter::successors(items.directive(id), |link| items.directive(&link.extends.as_ref()?.node)).take(MAX_LINKS + 1)
}

/// Rotates a cycle to begin with its smallest id, so that the result does not depend on the directive at which the walk
/// started.
fn start_at_smallest_id(mut circle: Vec<(ItemId, Span)>) -> Vec<(ItemId, Span)> {
    let smallest = circle.iter().enumerate().min_by(|(_, (a, _)), (_, (b, _))| a.cmp(b)).map_or(0, |(i, _)| i);
    circle.rotate_left(smallest);
    circle
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::world::MapWorld;

    fn world(links: &[(&str, Option<&str>)]) -> MapWorld<'static> {
        let mut world = MapWorld::new();
        for (id, parent) in links {
            let extends = parent.map(|p| format!(" extends=\"{p}\"")).unwrap_or_default();
            let text = format!("```xml\n<directive name=\"{id}\"{extends}/>\n```\n");
            world = world.project(&format!(".ai/directives/{id}.md"), text);
        }
        world
    }

    fn walked(world: &MapWorld<'_>, leaf: &str) -> (Vec<String>, Diagnostics) {
        let items = Items::new(world);
        let leaf = items.directive(&ItemId::parse(leaf).unwrap()).unwrap();
        let mut found = Diagnostics::new();
        let chain = resolve_chain(&items, leaf, None, &mut found).unwrap_or_default();
        (chain.iter().map(|d| d.id().to_string()).collect(), found)
    }

    #[test]
    fn chain_is_returned_root_first() {
        let (chain, found) = walked(&world(&[("a", None), ("b", Some("a")), ("c", Some("b"))]), "c");
        assert_eq!(chain, ["a", "b", "c"]);
        assert!(found.is_empty());
    }

    #[test]
    fn cycle_labels_every_extends_from_any_entry() {
        let world = world(&[("a", Some("b")), ("b", Some("c")), ("c", Some("a")), ("x", Some("b"))]);
        let (_, from_a) = walked(&world, "a");
        let cycle = from_a.iter().next().unwrap();
        assert_eq!(cycle.code(), "extends::cycle");
        assert_eq!(cycle.labels().len(), 3);
        assert_eq!(cycle.message(), "`extends` forms a cycle: `a` → `b` → `c` → `a`");
        assert_eq!(walked(&world, "x").1.iter().next().unwrap().message(), cycle.message());
        assert_eq!(walked(&self::world(&[("s", Some("s"))]), "s").1.codes().len(), 1);
    }

    #[test]
    fn unknown_parent_is_reported_with_suggestion() {
        let (_, found) = walked(&world(&[("base", None), ("x", Some("bse"))]), "x");
        let unknown = found.iter().next().unwrap();
        assert_eq!((unknown.code(), unknown.help().unwrap().as_str()), ("extends::unknown", "did you mean `base`?"));
    }

    #[test]
    fn chain_of_64_links_resolves_and_65_fails() {
        let names: Vec<String> = (0..=MAX_LINKS).map(|i| format!("d{i}")).collect();
        let mut links: Vec<(&str, Option<&str>)> = Vec::new();
        for (i, name) in names.iter().enumerate() {
            links.push((name, names.get(i + 1).map(String::as_str)));
        }
        let world = world(&links);
        assert_eq!(walked(&world, "d1").0.len(), MAX_LINKS);
        assert_eq!(walked(&world, "d0").1.iter().next().unwrap().code(), "extends::too-deep");
    }

    #[test]
    fn walk_of_declared_ancestors_is_bounded() {
        let names: Vec<String> = (0..300).map(|i| format!("d{i}")).collect();
        let parents = names.iter().skip(1).map(|name| Some(name.as_str())).chain([Some("d0")]);
        let links: Vec<(&str, Option<&str>)> = names.iter().map(String::as_str).zip(parents).collect();
        let world = world(&links);
        let items = Items::new(&world);
        let lengths = |id: &str| declared_chain(&items, &ItemId::parse(id).unwrap()).count();
        assert_eq!((lengths("d0"), lengths("d299"), lengths("none")), (MAX_LINKS + 1, MAX_LINKS + 1, 0));
        let of_directives: usize = names.iter().map(|name| lengths(name)).sum();
        assert_eq!(of_directives, names.len() * (MAX_LINKS + 1), "the work grows with the number of directives");
    }
}
