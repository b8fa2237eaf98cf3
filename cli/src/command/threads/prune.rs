//! `rye threads prune`: removes threads that ended long ago, together with their whole trees and continuation chains.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use clap::Args;
use rye_engine::store::prune::prune;
use rye_engine::store::registry::Liveness;
use rye_engine::thread_id::ThreadId;
use rye_engine::threads::ListedThread;

use super::control::print_with_costs;
use crate::CommandError;
use crate::exit::Exit;
use crate::options::Format;
use crate::present::{format_count, now};
use crate::report::Printer;
use crate::thread_reader::ThreadReader;

#[derive(Debug, Args)]
pub struct PruneArgs {
    /// Minimum age in days since the end of a thread
    #[arg(long, value_name = "DAYS", default_value_t = 30.0)]
    older_than: f64,
    /// Only threads of this directive, with their trees and chains
    #[arg(long, value_name = "ID")]
    directive: Option<String>,
    /// Print what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: &PruneArgs, reader: &ThreadReader, report: &Printer) -> Result<Exit, CommandError> {
    if !args.older_than.is_finite() || args.older_than < 0.0 {
        return Err(CommandError::usage(format!("`--older-than {}` is not a number of days", args.older_than)));
    }
    #[expect(clippy::cast_possible_truncation, reason = "a float that is too large becomes the largest integer")]
    let before = now().saturating_sub((args.older_than * 86_400_000.0) as i64);
    let (entries, _) = reader.list_readable()?;
    let mut going: Vec<ListedThread> = Vec::new();
    for family in group_related(entries) {
        let wanted = args.directive.as_ref().is_none_or(|id| family.iter().any(|entry| entry.row.directive == *id));
        let mut over = wanted;
        for entry in &family {
            over &= reader.liveness(&entry.row)? == Liveness::Over && !entry.row.status.is_parked();
            over &= entry.row.updated_at <= before;
        }
        if over {
            going.extend(family);
        }
    }
    // The costs are read before the removal of the accounts.
    let costs = match report.format() {
        Format::Json => reader.tree_costs(&going.iter().map(|entry| &entry.row).collect::<Vec<_>>())?,
        Format::Human | Format::Plain => HashMap::new(),
    };
    let mut objects = 0;
    if !args.dry_run {
        let ids: Vec<ThreadId> = going.iter().map(|entry| entry.row.id.clone()).collect();
        objects = prune(&reader.shared_disk(), &ids)?;
    }
    let cost = |entry: &ListedThread| Ok(costs.get(&entry.row.id).copied().unwrap_or(entry.row.cost));
    print_with_costs(&going, cost, report)?;
    let what = format_count(going.len() as u64, "thread");
    let alone = format_count(objects as u64, "object");
    report.note(&if args.dry_run { format!("{what} would be removed") } else { format!("{what} and {alone} removed") });
    Ok(Exit::Success)
}

/// Groups related threads: threads of the same tree, and threads of the same continuation chain.
pub fn group_related(entries: Vec<ListedThread>) -> Vec<Vec<ListedThread>> {
    let mut of: BTreeMap<ThreadId, BTreeSet<ThreadId>> = BTreeMap::new();
    for entry in &entries {
        let row = &entry.row;
        for other in [Some(&row.root), row.parent.as_ref(), row.continues.as_ref(), row.continued_by.as_ref()] {
            let Some(other) = other else { continue };
            of.entry(row.id.clone()).or_default().insert(other.clone());
            of.entry(other.clone()).or_default().insert(row.id.clone());
        }
    }
    let mut left: BTreeMap<ThreadId, ListedThread> =
        entries.into_iter().map(|entry| (entry.row.id.clone(), entry)).collect();
    let mut families = Vec::new();
    while let Some((id, first)) = left.pop_first() {
        let (mut family, mut next) = (vec![first], vec![id]);
        while let Some(id) = next.pop() {
            for other in of.get(&id).into_iter().flatten() {
                if let Some(entry) = left.remove(other) {
                    next.push(other.clone());
                    family.push(entry);
                }
            }
        }
        families.push(family);
    }
    families
}
