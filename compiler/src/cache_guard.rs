//! The setting `cache_guard`: an amount of money. If cached tokens have to be sent again without the cache, and the
//! extra cost exceeds this amount, a chat asks the user before it sends the request.

use rye_grammar::data::Kind;
use rye_grammar::{ItemId, Span};

use crate::item::Items;
use crate::semantics::money::Nanos;
use crate::world::{Space, World};

/// The value of `cache_guard` if no settings file contains it: $0.02.
const DEFAULT_CACHE_GUARD: Nanos = Nanos(20_000_000);

/// Reads `cache_guard` of `agent/chat`: the user's amount, else the default. A project can only lower the amount, unless
/// the project is the user space itself.
pub fn cache_guard(world: &dyn World) -> Nanos {
    let amounts = GuardAmounts::read(&Items::new(world), world.project_is_user_space());
    amounts.project.map_or(amounts.base, |(project, _)| project.min(amounts.base))
}

/// Returns the effective amount and the place of the project's setting, if the project sets a higher amount. Such a
/// setting has no effect. `None` if the project sets no higher amount.
pub(crate) fn ineffective_project_amount(items: &Items<'_>) -> Option<(Nanos, Span)> {
    let amounts = GuardAmounts::read(items, items.project_is_user_space());
    let (_, span) = amounts.project.filter(|(project, _)| *project > amounts.base)?;
    Some((amounts.base, span))
}

struct GuardAmounts {
    /// The amount that the user sets, else the default amount.
    base: Nanos,
    /// The amount that the project sets, with its place; `None` if the project sets none, or if the project is the user
    /// space.
    project: Option<(Nanos, Span)>,
}

impl GuardAmounts {
    fn read(items: &Items<'_>, is_own: bool) -> Self {
        let layers = ItemId::parse("agent/chat").map(|id| items.config_layers(&id)).unwrap_or_default();
        let amount_of = |space: Space| {
            let (_, node) = layers.iter().find(|(of, _)| *of == space)?;
            // The check of the settings reports an invalid amount.
            let amount = node.get("cache_guard").filter(|node| matches!(node.kind, Kind::Number(_)))?;
            Some((Nanos::from_json(&amount.to_value()).ok()?, amount.span))
        };
        let user = amount_of(if is_own { Space::Project } else { Space::User });
        let base = user.or_else(|| amount_of(Space::System)).map_or(DEFAULT_CACHE_GUARD, |(amount, _)| amount);
        Self { base, project: amount_of(Space::Project).filter(|_| !is_own) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::MapWorld;

    #[test]
    fn cache_guard_of_a_project_is_only_lowered() {
        const CHAT: &str = ".ai/config/agent/chat.yaml";
        let guard = |user: &str, project: &str| {
            let world = MapWorld::new().with(Space::User, CHAT, user).project(CHAT, project);
            cache_guard(&world).to_string()
        };
        let none = "skills: { max_tokens: 9 }";
        for (user, project, expected) in [
            (none, none, "0.02"),
            (none, "cache_guard: 0.01", "0.01"),
            (none, "cache_guard: 0.5", "0.02"),
            ("cache_guard: 1", none, "1"),
            ("cache_guard: 0.3", "cache_guard: 0.5", "0.3"),
            ("cache_guard: 1", "cache_guard: 0.5", "0.5"),
        ] {
            assert_eq!(guard(user, project), expected, "{user} {project}");
        }
    }
}
