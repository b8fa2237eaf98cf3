//! The order of hooks (`language.md` 7): layers, replacement by id, disabled hooks. Callers supply the hooks and
//! evaluate their conditions.

use std::collections::HashMap;

use crate::hook::{HookPoint, HookSource};
use crate::semantics::hook_point::{self, Mode};

/// The properties of a hook that determine its place in the evaluation order. A list of candidates is ordered by
/// source: hooks of the user, of the extends chain (the directive itself first), built-in hooks, hooks of the project,
/// infrastructure hooks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HookCandidate<'h> {
    pub id: &'h str,
    /// The declared `layer`. If it is `None`, `default_layer` returns the layer of the hook for its `source`.
    pub layer: Option<f64>,
    pub source: &'h HookSource,
    pub enabled: bool,
}

/// The position of a hook in the evaluation order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HookPlace {
    /// Index of the hook in the `candidates` of `order_hooks`.
    pub index: usize,
    pub layer: f64,
    pub removed: Option<RemovalReason>,
}

/// The reason why a hook is removed before any condition is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalReason {
    /// The hook has `enabled: false`.
    Disabled,
    /// Another hook with the same id replaces the hook. `by` is the index of the replacing hook among the candidates.
    Replaced { by: usize },
}

/// Returns the layer of hooks that come from a source and declare no layer.
pub(crate) fn default_layer(source: &HookSource) -> f64 {
    match source {
        HookSource::User => 0.0,
        HookSource::Directive { .. } => 1.0,
        HookSource::Builtin => 2.0,
        HookSource::Project => 3.0,
        HookSource::Infrastructure => INFRASTRUCTURE_LAYER,
    }
}

/// The layer of the `infra_hooks`. The hooks of this layer always run, and their results never decide at a hook point.
pub(crate) const INFRASTRUCTURE_LAYER: f64 = 4.0;

/// Returns true if the answer of a hook is ignored. At a hook point of the mode `control`, hooks of the infrastructure
/// layer and above run, but only hooks of lower layers answer.
pub(crate) fn is_answer_ignored(event: HookPoint, layer: f64) -> bool {
    hook_point::row_of(event).mode == Mode::Control && layer >= INFRASTRUCTURE_LAYER
}

/// Returns the layer of a hook that replaces no built-in hook. `infra_hooks` have the layer of the infrastructure, even
/// if they declare another one.
pub(crate) fn layer_of(source: &HookSource, declared: Option<f64>) -> f64 {
    let is_movable = !matches!(source, HookSource::Infrastructure);
    declared.filter(|_| is_movable).unwrap_or_else(|| default_layer(source))
}

/// Returns the hooks of `candidates` in evaluation order, each as its index. Removed hooks are included, with the
/// reason of the removal.
pub(crate) fn order_hooks(candidates: &[HookCandidate<'_>]) -> Vec<HookPlace> {
    let named = HooksById::new(candidates);
    let mut keyed: Vec<((f64, usize), HookPlace)> = Vec::with_capacity(candidates.len());
    for (index, candidate) in candidates.iter().enumerate() {
        let own = layer_of(candidate.source, candidate.layer);
        let (layer, rank) = match named.replaced_built_in(candidate) {
            // A replacement takes the place of the built-in hook, unless it declares its own layer.
            Some((built_in, its_layer)) if candidate.layer.is_none() => (its_layer, built_in),
            Some(_) | None => (own, index),
        };
        let removed = match named.replacement(candidate) {
            Some(by) => Some(RemovalReason::Replaced { by }),
            None if !candidate.enabled => Some(RemovalReason::Disabled),
            None => None,
        };
        keyed.push(((layer, rank), HookPlace { index, layer, removed }));
    }
    // The sort is stable: equal places stay in source order.
    keyed.sort_by(|((a, i), _), ((b, j), _)| a.total_cmp(b).then(i.cmp(j)));
    keyed.into_iter().map(|(_, place)| place).collect()
}

/// For each source, a map from the id of a hook to the first hook with this id. Directives and the infrastructure have
/// no map, because their hooks replace no hook of another source.
struct HooksById<'h> {
    built_in: HashMap<&'h str, (usize, f64)>,
    project: HashMap<&'h str, usize>,
    user: HashMap<&'h str, usize>,
}

impl<'h> HooksById<'h> {
    fn new(candidates: &[HookCandidate<'h>]) -> Self {
        let mut named = Self { built_in: HashMap::new(), project: HashMap::new(), user: HashMap::new() };
        for (index, candidate) in candidates.iter().enumerate() {
            match candidate.source {
                HookSource::Builtin => {
                    let layer = candidate.layer.unwrap_or_else(|| default_layer(candidate.source));
                    named.built_in.entry(candidate.id).or_insert((index, layer));
                }
                HookSource::Project => {
                    named.project.entry(candidate.id).or_insert(index);
                }
                HookSource::User => {
                    named.user.entry(candidate.id).or_insert(index);
                }
                HookSource::Directive { .. } | HookSource::Infrastructure => {}
            }
        }
        named
    }

    /// Returns the index and the layer of the built-in hook that a project or user hook replaces: the built-in hook
    /// with the same id. `None` if there is none.
    fn replaced_built_in(&self, hook: &HookCandidate<'_>) -> Option<(usize, f64)> {
        if !can_replace(hook.source) {
            return None;
        }
        self.built_in.get(hook.id).copied()
    }

    /// Returns the index of the hook that replaces a candidate; `None` if no hook replaces it. A built-in hook is
    /// replaced by the project's hook with the same id, else by the user's hook with the same id. If both exist, the
    /// project's hook also replaces the user's hook.
    fn replacement(&self, hook: &HookCandidate<'_>) -> Option<usize> {
        let project = || self.project.get(hook.id).copied();
        match hook.source {
            HookSource::Builtin => project().or_else(|| self.user.get(hook.id).copied()),
            // The project takes precedence over the user, as for all items.
            HookSource::User if self.built_in.contains_key(hook.id) => project(),
            HookSource::User | HookSource::Directive { .. } | HookSource::Project | HookSource::Infrastructure => None,
        }
    }
}

fn can_replace(source: &HookSource) -> bool {
    matches!(source, HookSource::Project | HookSource::User)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAF: fn() -> HookSource = || HookSource::Directive { id: "x".into() };

    /// Formats hooks given as `(id, layer, source, enabled)` as `id@layer`, with a mark for removed ones.
    fn ordered(hooks: &[(&str, Option<f64>, HookSource, bool)]) -> Vec<String> {
        let candidates: Vec<_> = hooks
            .iter()
            .map(|(id, layer, source, enabled)| HookCandidate { id, layer: *layer, source, enabled: *enabled })
            .collect();
        let show = |p: &HookPlace| {
            let mark = match p.removed {
                None => "",
                Some(RemovalReason::Disabled) => " off",
                Some(RemovalReason::Replaced { .. }) => " replaced",
            };
            candidates.get(p.index).map(|c| format!("{}@{}{mark}", c.id, p.layer)).unwrap_or_default()
        };
        order_hooks(&candidates).iter().map(show).collect()
    }

    #[test]
    fn hooks_sort_by_layer_then_source() {
        let hooks = [
            ("u", None, HookSource::User, true),
            ("d", None, LEAF(), true),
            ("b", None, HookSource::Builtin, true),
            ("p", None, HookSource::Project, true),
            ("p2", Some(2.0), HookSource::Project, true),
            ("i", Some(0.0), HookSource::Infrastructure, true),
        ];
        assert_eq!(ordered(&hooks), ["u@0", "d@1", "b@2", "p2@2", "p@3", "i@4"]);
    }

    #[test]
    fn declared_layer_overrides_source_layer() {
        let hooks = [
            ("u", Some(2.5), HookSource::User, true),
            ("b", None, HookSource::Builtin, true),
            ("p", Some(-1.0), HookSource::Project, true),
        ];
        assert_eq!(ordered(&hooks), ["p@-1", "b@2", "u@2.5"]);
    }

    #[test]
    fn project_hook_replaces_built_in_in_place() {
        let hooks = [
            ("a", Some(3.5), HookSource::Builtin, true),
            ("z", Some(3.5), HookSource::Builtin, true),
            ("p", None, HookSource::Project, true),
            ("a", None, HookSource::Project, true),
        ];
        assert_eq!(ordered(&hooks), ["p@3", "a@3.5 replaced", "a@3.5", "z@3.5"]);
        let moved = [("a", None, HookSource::Builtin, true), ("a", Some(0.5), HookSource::Project, true)];
        assert_eq!(ordered(&moved), ["a@0.5", "a@2 replaced"]);
    }

    #[test]
    fn project_replacement_wins_over_user() {
        let hooks = [
            ("a", None, HookSource::User, true),
            ("a", None, HookSource::Builtin, true),
            ("a", None, HookSource::Project, true),
        ];
        assert_eq!(ordered(&hooks), ["a@2 replaced", "a@2 replaced", "a@2"]);
    }

    #[test]
    fn disabled_hook_also_removes_the_replaced_one() {
        let hooks = [("a", None, HookSource::Builtin, true), ("a", None, HookSource::Project, false)];
        assert_eq!(ordered(&hooks), ["a@2 replaced", "a@2 off"]);
    }

    #[test]
    fn directive_and_infrastructure_hooks_are_not_replaced() {
        let hooks = [
            ("a", None, LEAF(), true),
            ("a", None, HookSource::Project, true),
            ("a", None, HookSource::Infrastructure, true),
        ];
        assert_eq!(ordered(&hooks), ["a@1", "a@3", "a@4"]);
    }
}
