//! `rye lock [ID…]`: writes the plans of directives to `.ai/lock.json`; with `--check`, verifies that they are
//! unchanged.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use rye_compiler::report::closure::{NoPlan, StartGraph};
use rye_compiler::report::lock::{
    Drift, LOCK_FORMAT, Lock, LockEntry, entry_of, hash_checks, list_check_drift, list_drift,
};
use rye_compiler::world::{ItemKind, Space, World};
use rye_grammar::ItemId;
use schemars::JsonSchema;
use serde::Serialize;

use crate::CommandError;
use crate::exit::Exit;
use crate::lockfile;
use crate::options::{Format, Global};
use crate::report::{Printer, printable};
use crate::run_request::{existing_directives, parse_directive_id};
use crate::workspace::Spaces;

/// The value of `Drift::what` if a whole directive was added, removed or is invalid.
const DIRECTIVE: &str = "the directive";

#[derive(Debug, Args)]
pub struct LockArgs {
    /// Directives to lock (default: all directives of the project; with `--check`, all locked directives)
    #[arg(value_name = "ID")]
    directives: Vec<String>,
    /// Write nothing; list the drift, and fail if there is any
    #[arg(long)]
    check: bool,
}

/// Output of `rye lock --format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LockOutput {
    /// Ids of the locked plans, by the id of their directive.
    pub locked: BTreeMap<String, Vec<String>>,
    pub drift: Vec<Drift>,
}

pub fn run(args: &LockArgs, global: &Global, report: &Printer) -> Result<Exit, CommandError> {
    let spaces = Spaces::find(global.project.as_deref())?;
    if !args.check {
        spaces.print_project(report);
    }
    let world = spaces.open()?;
    let known = lockfile::read(&spaces.project)?;
    let mut ids = directive_ids(args, known.as_ref(), &world)?;
    let mut lock = known.clone().unwrap_or_default();
    lock.format = LOCK_FORMAT;
    if args.directives.is_empty() && !args.check {
        // Drops the entries of removed directives.
        lock.directives.clear();
    }
    let mut output = LockOutput { locked: BTreeMap::new(), drift: Vec::new() };
    let of_directive =
        |id: &ItemId, how: &str| Drift { directive: id.to_string(), what: DIRECTIVE.to_owned(), how: how.to_owned() };
    if args.check {
        let (existing, removed) = ids.into_iter().partition(|id| exists(&world, id));
        ids = existing;
        output.drift.extend(removed.iter().map(|id: &ItemId| of_directive(id, "removed")));
    }
    let (entries, invalid) = lock_entries(&ids, &world)?;
    if args.check {
        output.drift.extend(invalid.iter().map(|(id, _)| of_directive(id, "invalid")));
    } else if let Some((id, why)) = invalid.into_iter().next() {
        return Err(lockfile::no_plan_failure(&id, why));
    }
    for (id, now) in &entries {
        if args.check {
            let was = known.as_ref().and_then(|lock| lock.directives.get(id.as_str()));
            match was {
                Some(was) => output.drift.extend(list_drift(id.as_str(), was, now)),
                None => output.drift.push(of_directive(id, "new")),
            }
        }
        output.locked.insert(id.to_string(), now.iter().map(|plan| plan.plan_id.clone()).collect());
        lock.directives.insert(id.to_string(), now.clone());
    }
    if args.check && args.directives.is_empty() {
        output.drift.extend(known.iter().flat_map(|lock| list_check_drift(lock, &hash_checks(&world))));
    }
    if !args.check {
        if args.directives.is_empty() || known.is_none() {
            lock.checks = Some(hash_checks(&world));
        }
        lockfile::write(&spaces.project, &lock)?;
    }
    match report.format() {
        Format::Json => report.json(&output)?,
        Format::Human | Format::Plain => {
            for one in &output.drift {
                let change = match (one.what.as_str(), one.how.as_str()) {
                    (DIRECTIVE, "new") => "the directive is not in the lock file".to_owned(),
                    (DIRECTIVE, "invalid") => {
                        "the directive has errors, so it has no plan: `rye check` lists them".to_owned()
                    }
                    (DIRECTIVE, _) => "the directive is in the lock file but does not exist".to_owned(),
                    (what, how) => format!("{what} {how}"),
                };
                let of = if one.directive.is_empty() { "the checks" } else { one.directive.as_str() };
                report.line(&printable(&format!("{of}: {change}")))?;
            }
            let count = crate::present::format_count(entries.len() as u64, "directive");
            report.note(&match (args.check, output.drift.is_empty()) {
                (true, true) => format!("checked {count}: no difference from the lock file"),
                (true, false) => format!("checked {count}: differences from the lock file"),
                (false, _) => format!("locked {count} in {}", lockfile::PATH),
            });
        }
    }
    Ok(if output.drift.is_empty() { Exit::Success } else { Exit::Refused })
}

/// The lock entries of each directive, and the directives that have no plan, each with the reason.
type LockedPlans = (BTreeMap<ItemId, Vec<LockEntry>>, Vec<(ItemId, NoPlan)>);

/// Returns true if a directive exists in any space.
fn exists(world: &dyn World, id: &ItemId) -> bool {
    world.list(ItemKind::Directive).is_ok_and(|all| all.iter().any(|entry| entry.id == *id))
}

/// Returns the lock entries of the directives `ids`, and of every directive in any space that these directives can
/// start. A locked run refuses to start a directive without an entry. A directive with errors has no entry. If `ids`
/// contains such a directive, the second list of the result contains it with the reason; otherwise, the directive is
/// omitted.
fn lock_entries(ids: &[ItemId], world: &dyn World) -> Result<LockedPlans, CommandError> {
    let mut graph = StartGraph::new(world, |plans| plans.map(|plans| entry_of(&plans)))?;
    graph.compile_closures(ids);
    let wanted: BTreeSet<&ItemId> = ids.iter().collect();
    let mut entries = BTreeMap::new();
    let mut invalid = Vec::new();
    for (id, plans) in graph.into_values() {
        match plans {
            Ok(plans) => {
                entries.insert(id, plans);
            }
            Err(why) if wanted.contains(&id) => invalid.push((id, why)),
            Err(_) => {}
        }
    }
    Ok((entries, invalid))
}

fn directive_ids(args: &LockArgs, known: Option<&Lock>, world: &dyn World) -> Result<Vec<ItemId>, CommandError> {
    if !args.directives.is_empty() {
        return existing_directives(&args.directives, world);
    }
    if args.check {
        let known =
            known.ok_or_else(|| CommandError::failed("no lock file").with_help("`rye lock` writes the lock file"))?;
        return known.directives.keys().map(|id| parse_directive_id(id)).collect();
    }
    let all = world.list(ItemKind::Directive)?;
    Ok(all.into_iter().filter(|entry| entry.space == Space::Project).map(|entry| entry.id).collect())
}
