//! Changed settings, value by value, and the calls that need approval on each side.

use std::collections::{BTreeMap, BTreeSet};

use rye_grammar::ItemId;
use rye_grammar::data::{Kind, Node};
use serde_json::Value;

use super::change::{ChangeArea, DiffSides, Direction, PlanChange};
use crate::approvals::HeadlessPolicy;
use crate::compile::Compilation;
use crate::item::Items;
use crate::lower::cache::{FROZEN_SETTINGS, PROVIDER_PREFIX};
use crate::lower::origin;
use crate::plan::Plan;
use crate::plan::source::SourceReport;
use crate::semantics::capability::CapabilitySet;
use crate::semantics::risk::{Policy, RiskTable, Tier};
use crate::world::ItemKind;

/// The settings files with hooks.
const HOOK_FILES: [&str; 2] = ["agent/hooks", "agent/hook_conditions"];
const RISKS: &str = "agent/capability_risk";
/// The settings file `agent/agent`, with settings of the agent system such as approvals and signing. Plans do not
/// contain it.
const AGENT: &str = "agent/agent";

pub fn compare_settings(trees: &DiffSides<'_>) -> Vec<PlanChange> {
    let mut changes = compare_approvals(trees);
    for name in settings_files(trees) {
        let (mut was, mut is) = (setting_values(&trees.old, &name), setting_values(&trees.new, &name));
        if HOOK_FILES.contains(&name.as_str()) {
            merge_members_of_one_side(&mut was, &is);
            merge_members_of_one_side(&mut is, &was);
        }
        let paths: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
        for path in paths {
            let (before, after) = (was.get(path), is.get(path));
            if before.map(|(value, _)| value) == after.map(|(value, _)| value) {
                continue;
            }
            let value = |side: Option<&(Value, Node)>| side.map(|(value, _)| value.clone());
            let shown = |side| value(side).map_or_else(|| "–".to_owned(), |value| value.to_string());
            let direction = setting_direction(&name, path, value(before).as_ref(), value(after).as_ref());
            let place = match (after, before) {
                (Some((_, node)), _) => origin::plan_place(&trees.new.sources(), node.span),
                (None, Some((_, node))) => origin::plan_place(&trees.old.sources(), node.span),
                (None, None) => None,
            };
            let file = ItemId::parse(&name).ok().and_then(|id| trees.file(ItemKind::Config, &id));
            changes.push(PlanChange {
                area: ChangeArea::Setting,
                what: format!("{name} {path} {} → {}", shown(before), shown(after)),
                direction,
                source: place.as_ref().map(SourceReport::from).or(file),
            });
        }
    }
    changes
}

/// Returns the ids of the settings files to compare: those that every plan contains, those that either plan read, and
/// `agent/agent`.
fn settings_files(trees: &DiffSides<'_>) -> BTreeSet<String> {
    let frozen = FROZEN_SETTINGS.iter().map(|name| format!("agent/{name}"));
    let reads = [&trees.before, &trees.after].into_iter().flat_map(|tree| &tree.compilation.plan.manifest);
    let read = reads.filter(|read| read.kind == ItemKind::Config).map(|read| read.id.clone());
    frozen.chain(read).chain([AGENT.to_owned()]).collect()
}

/// Replaces the values of each hook that `other` does not have by one value, the id of the hook, because such a hook is
/// compared as a whole.
fn merge_members_of_one_side(side: &mut BTreeMap<String, (Value, Node)>, other: &BTreeMap<String, (Value, Node)>) {
    let member = |path: &str| path.split('.').take(2).collect::<Vec<_>>().join(".");
    let known: BTreeSet<String> = other.keys().map(|path| member(path)).collect();
    let own: Vec<String> = side.keys().filter(|path| !known.contains(&member(path))).cloned().collect();
    for path in own {
        let Some(value) = side.remove(&path) else { continue };
        let whole = member(&path);
        if path == format!("{whole}.id") {
            side.insert(whole, value);
        }
    }
}

/// Returns the values of the settings file `name` in all spaces, by dotted path.
fn setting_values(items: &Items<'_>, name: &str) -> BTreeMap<String, (Value, Node)> {
    if !HOOK_FILES.contains(&name) {
        return leaf_values(items.config_by_name(name).as_deref());
    }
    // The hooks of every space apply. A hook replaces the hook with its id in a lower space.
    let layers = ItemId::parse(name).map(|id| items.config_layers(&id)).unwrap_or_default();
    let mut found = BTreeMap::new();
    for (_, file) in layers.iter() {
        let of_layer = leaf_values(Some(file));
        let member = |path: &str| path.split('.').take(2).collect::<Vec<_>>().join(".");
        let known: BTreeSet<String> = found.keys().map(|path: &String| member(path)).collect();
        found.extend(of_layer.into_iter().filter(|(path, _)| !known.contains(&member(path))));
    }
    found
}

/// Returns the values of a settings file by dotted path. List members are named by their id, else by their index.
fn leaf_values(node: Option<&Node>) -> BTreeMap<String, (Value, Node)> {
    let mut found = BTreeMap::new();
    if let Some(node) = node {
        collect(String::new(), node, &mut found);
    }
    found
}

fn collect(path: String, node: &Node, found: &mut BTreeMap<String, (Value, Node)>) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match &node.kind {
        Kind::Map(entries) if !entries.is_empty() => {
            for entry in entries {
                collect(below(&entry.key.node), &entry.value, found);
            }
        }
        Kind::List(items) if !items.is_empty() => {
            for (n, item) in items.iter().enumerate() {
                let id = item.get("id").and_then(Node::as_str).map_or_else(|| n.to_string(), str::to_owned);
                collect(below(&id), item, found);
            }
        }
        Kind::Map(_) | Kind::List(_) | Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::String(_) => {
            found.insert(path, (node.to_value(), node.clone()));
        }
    }
}

/// Returns the direction of the change of one setting: widened if a run may do more than before. `name` is the id of
/// the settings file, and `path` the dotted path of the value in it. Changes in the files of hooks, models and risks,
/// and changes of the default limits in `agent/resilience`, are neutral here, because their effects are compared
/// elsewhere.
fn setting_direction(name: &str, path: &str, before: Option<&Value>, after: Option<&Value>) -> Direction {
    let bound = || match (before.and_then(Value::as_f64), after.and_then(Value::as_f64)) {
        (Some(was), Some(is)) => Direction::of_bound(&was, &is),
        _ => Direction::Unknown,
    };
    let section = path.split('.').next().unwrap_or_default();
    let last = path.rsplit('.').next().unwrap_or_default();
    // The direction is unknown, because each tool defines the effect of its own settings.
    if !name.starts_with("agent/") {
        return Direction::Unknown;
    }
    if last == "description" || last == "name" {
        return Direction::Neutral;
    }
    match name {
        "agent/hooks" | "agent/hook_conditions" | "agent/models" | RISKS => Direction::Neutral,
        "agent/coordination" => match section {
            "wait_threads" | "continuation" => Direction::Neutral,
            _ => Direction::Unknown,
        },
        "agent/resilience" => match (section, path) {
            ("limits" | "tool_preload", _) | (_, "retry.base_seconds" | "retry.max_seconds") => Direction::Neutral,
            ("session_limits", _)
            | (_, "retry.max_retries" | "tool_result.max_bytes" | "concurrency.max_concurrent_children") => bound(),
            _ => Direction::Unknown,
        },
        "agent/error_classification" => match (last, after) {
            ("max_retries", _) => bound(),
            ("base_seconds" | "max_seconds", _) => Direction::Neutral,
            ("retryable", Some(Value::Bool(true))) => Direction::Widened,
            ("category", Some(Value::String(word))) if word != "permanent" && word != "cancelled" => Direction::Widened,
            ("retryable", Some(Value::Bool(false))) | ("category", Some(Value::String(_))) => Direction::Narrowed,
            _ => Direction::Unknown,
        },
        AGENT if path.starts_with("limits.max.") => {
            let ceiling = |value: Option<&Value>| value.map_or(Some(f64::INFINITY), Value::as_f64);
            match (ceiling(before), ceiling(after)) {
                (Some(was), Some(is)) => Direction::of_bound(&was, &is),
                _ => Direction::Unknown,
            }
        }
        // The effective policy is compared in [`compare_approvals`].
        AGENT if path == "approvals.headless" => Direction::Neutral,
        AGENT if path == "signing.require" => {
            let rank = |value: Option<&Value>| {
                let word = value.and_then(Value::as_str);
                ["all", "shared", "none"].iter().position(|known| Some(*known) == word)
            };
            match (rank(before), rank(after)) {
                (Some(was), Some(is)) => Direction::of_bound(&was, &is),
                _ => Direction::Unknown,
            }
        }
        _ if name.starts_with(PROVIDER_PREFIX) => Direction::Neutral,
        _ => Direction::Unknown,
    }
}

/// Compares approvals: the risk table, acknowledgements, and the policy for calls without an approver.
fn compare_approvals(trees: &DiffSides<'_>) -> Vec<PlanChange> {
    let mut changes = Vec::new();
    let (before, after) = (trees.before.compilation, trees.after.compilation);
    let mut add = |what: String, direction, source| {
        changes.push(PlanChange { area: ChangeArea::Approval, what, direction, source });
    };
    let table = |plan: &Plan| plan.settings.get("capability_risk").cloned();
    let strictness = compare_strictness(&before.plan, &after.plan);
    if table(&before.plan) != table(&after.plan) {
        let source = ItemId::parse(RISKS).ok().and_then(|id| trees.file(ItemKind::Config, &id));
        add("the risk table changed".into(), strictness.overall(), first_difference(trees).or(source));
    }
    let (was, is) = (&before.plan.capabilities.acknowledged, &after.plan.capabilities.acknowledged);
    for tier in was.keys().chain(is.keys()).collect::<BTreeSet<_>>() {
        let direction = strictness.of_tier(tier);
        let (what, direction) = match (was.get(tier), is.get(tier)) {
            (Some(old), Some(new)) if old == new => continue,
            (Some(_), Some(_)) => (format!("the reason for acknowledging `{tier}` changed"), Direction::Neutral),
            (None, _) => (format!("`{tier}` is acknowledged: its calls need no approval"), direction),
            (Some(_), None) => (format!("`{tier}` is no longer acknowledged"), direction),
        };
        let is_there = is.contains_key(tier);
        let source = if is_there {
            find_acknowledgment(&trees.new, after, tier)
        } else {
            find_acknowledgment(&trees.old, before, tier)
        };
        add(what, direction, source.or_else(|| trees.directive()));
    }
    if before.headless_policy != after.headless_policy {
        let (was, is): (HeadlessPolicy, HeadlessPolicy) = (before.headless_policy, after.headless_policy);
        let what = format!("approvals without a terminal: {} → {}", was.as_str(), is.as_str());
        let direction = if is < was { Direction::Widened } else { Direction::Narrowed };
        let node = trees.new.config_by_name(AGENT);
        let node = node.as_deref().and_then(|node| node.get("approvals")?.get("headless"));
        let place = node.and_then(|node| origin::plan_place(&trees.new.sources(), node.span));
        let file = ItemId::parse(AGENT).ok().and_then(|id| trees.file(ItemKind::Config, &id));
        add(what, direction, place.as_ref().map(SourceReport::from).or(file));
    }
    if before.bubblewrap != after.bubblewrap {
        let source = ItemId::parse(AGENT).ok().and_then(|id| trees.file(ItemKind::Config, &id));
        add("the setting `sandbox` changed: programs run in another sandbox".into(), Direction::Unknown, source);
    }
    changes
}

/// Returns the first line of the new risk table whose value differs from the old one; `None` if there is none.
fn first_difference(trees: &DiffSides<'_>) -> Option<SourceReport> {
    let (old, new) = (trees.old.config_by_name(RISKS), trees.new.config_by_name(RISKS));
    let was = leaf_values(old.as_deref());
    let is = leaf_values(new.as_deref());
    let differs = |(path, (value, _)): &(&String, &(Value, Node))| was.get(*path).map(|(old, _)| old) != Some(value);
    let (_, (_, node)) = is.iter().find(differs)?;
    origin::plan_place(&trees.new.sources(), node.span).as_ref().map(SourceReport::from)
}

fn find_acknowledgment(items: &Items<'_>, compilation: &Compilation, tier: &str) -> Option<SourceReport> {
    let directive = items.directive(compilation.plan.capabilities.from.as_ref()?)?;
    let permissions = directive.permissions.as_ref()?;
    let found = permissions.acknowledged.iter().find(|one| one.risk.node == tier)?;
    origin::plan_place(&items.sources(), found.risk.span).as_ref().map(SourceReport::from)
}

/// The changes between the approval rules of two plans.
struct Strictness {
    /// The direction of the change for each compared capability, with the tiers of the capability before and after.
    /// `None` if the rules cannot be compared.
    changes: Option<Vec<(Direction, [Tier; 2])>>,
}

impl Strictness {
    fn overall(&self) -> Direction {
        self.max(|_| true)
    }

    /// Returns the widest direction among the changes of capabilities that have this tier before or after the change.
    fn of_tier(&self, tier: &str) -> Direction {
        self.max(|tiers| tiers.iter().any(|one| one.as_str() == tier))
    }

    fn max(&self, concerns: impl Fn(&[Tier; 2]) -> bool) -> Direction {
        let Some(changes) = &self.changes else { return Direction::Unknown };
        let concerned = changes.iter().filter(|(_, tiers)| concerns(tiers));
        concerned.map(|(direction, _)| *direction).max().unwrap_or(Direction::Neutral)
    }
}

/// Compares the approval rules of two plans. The patterns of both risk tables and of all grants divide the capabilities
/// into regions. All capabilities of a region have the same approval rules, so one capability of each region is
/// compared. For capabilities that only the new plan grants, stricter rules do not count as a change.
fn compare_strictness<'p>(before: &'p Plan, after: &'p Plan) -> Strictness {
    let built_in = RiskTable::default();
    let unknown = Strictness { changes: None };
    let read = |plan: &'p Plan| plan.settings.risk().map(|table| table.unwrap_or(&built_in));
    let (Ok(old), Ok(new)) = (read(before), read(after)) else { return unknown };
    let grants = |plan: &Plan| -> Vec<String> {
        let hooks = plan.hooks.iter().filter(|hook| hook.is_live()).flat_map(|hook| hook.grants.iter().cloned());
        plan.capabilities.grants.iter().map(|grant| grant.pattern.clone()).chain(hooks).collect()
    };
    let (held, holds) = (grants(before), grants(after));
    let patterns: BTreeSet<&str> =
        old.patterns().chain(new.patterns()).chain(held.iter().chain(&holds).map(String::as_str)).collect();
    let mut capabilities = Vec::new();
    for pattern in patterns {
        let (literal, is_prefix) = pattern.strip_suffix('*').map_or((pattern, false), |literal| (literal, true));
        if literal.contains(['*', '?', '[']) {
            return unknown;
        }
        // No pattern continues the literal with a tilde, so no more specific pattern matches this capability.
        capabilities.push(if is_prefix { format!("{literal}~") } else { literal.to_owned() });
    }
    let (held, holds) = (CapabilitySet::new(held), CapabilitySet::new(holds));
    let mut changes = Vec::new();
    for one in capabilities {
        if holds.first_match(&one).is_none() {
            continue;
        }
        let rank = |table: &RiskTable, plan: &Plan| {
            let risk = table.classify(&one);
            match risk.policy {
                Policy::Allow => 0,
                _ if plan.capabilities.acknowledged.contains_key(risk.tier.as_str()) => 0,
                Policy::AcknowledgeRequired => 1,
                Policy::Block => 2,
            }
        };
        let (was, is) = (rank(old, before), rank(new, after));
        let tiers = [old.classify(&one).tier, new.classify(&one).tier];
        if is < was {
            changes.push((Direction::Widened, tiers));
        } else if is > was && held.first_match(&one).is_some() {
            changes.push((Direction::Narrowed, tiers));
        }
    }
    Strictness { changes: Some(changes) }
}
