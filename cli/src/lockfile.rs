//! The lock file `.ai/lock.json`: the plans of the project's directives when they were locked. Only `rye lock` writes
//! it.

use std::path::Path;

use rye_compiler::plan::Plan;
use rye_compiler::report::closure::NoPlan;
use rye_compiler::report::lock::{
    Drift, LOCK_FORMAT, Lock, LockEntry, LockMismatch, check_plan, list_drift, lock_entries,
};
use rye_compiler::report::matrix::MatrixError;
use rye_compiler::world::World;
use rye_engine::rooted_dir::RootedDir;
use rye_grammar::ItemId;

use crate::CommandError;
use crate::exit::Exit;

/// Path of the lock file, relative to the project.
pub const PATH: &str = ".ai/lock.json";
/// Maximum size of the lock file in bytes.
const MAX_LOCK_BYTES: u64 = 64 << 20;

/// Reads the lock file of a project; `None` if the project has no lock file.
pub fn read(project: &Path) -> Result<Option<Lock>, CommandError> {
    let read = RootedDir::open(project).and_then(|within| within.read(Path::new(PATH), MAX_LOCK_BYTES));
    let Some(text) = read.map_err(|error| CommandError::failed(format!("`{PATH}` cannot be read: {error}")))? else {
        return Ok(None);
    };
    let lock: Lock = serde_json::from_slice(&text)
        .map_err(|error| CommandError::failed(format!("`{PATH}` is not a valid lock file: {error}")))?;
    if lock.format > LOCK_FORMAT {
        let message = format!(
            "`{PATH}` has format {}, but this version of rye supports formats up to {LOCK_FORMAT}",
            lock.format
        );
        return Err(CommandError::failed(message));
    }
    Ok(Some(lock))
}

/// Writes the lock, replacing an older one atomically.
pub fn write(project: &Path, lock: &Lock) -> Result<(), CommandError> {
    let failed = |error: std::io::Error| CommandError::failed(format!("`{PATH}` cannot be written: {error}"));
    let mut text = serde_json::to_string_pretty(lock).map_err(std::io::Error::other).map_err(failed)?;
    text.push('\n');
    let written = RootedDir::open(project).and_then(|within| within.replace(Path::new(PATH), text.as_bytes()));
    written.map_err(failed)
}

/// Reads the lock file of a project.
///
/// # Errors
/// There is no lock file, or the lock file cannot be read.
pub fn read_required(project: &Path) -> Result<Lock, CommandError> {
    read(project)?.ok_or_else(|| CommandError::failed("no lock file").with_help("`rye lock` writes the lock file"))
}

/// Returns the differences between a directive and its lock entry.
///
/// # Errors
/// The lock has no entry for the directive, or the directive has no plan now.
pub fn find_drift(lock: &Lock, world: &dyn World, id: &ItemId) -> Result<Vec<Drift>, CommandError> {
    let Some(locked) = lock.directives.get(id.as_str()) else {
        return Err(not_locked(id));
    };
    Ok(list_drift(id.as_str(), locked, &current_entry(world, id)?))
}

/// Returns the error for a directive that cannot start, because the lock file has no entry for it.
fn not_locked(id: &ItemId) -> CommandError {
    let failure = CommandError { exit: Exit::Refused, ..CommandError::failed(format!("`{id}` is not locked")) };
    failure.with_help(format!("lock the directive with `rye lock {id}`"))
}

/// Returns the entries that a directive would have in the lock file now, one for each of its plans.
pub fn current_entry(world: &dyn World, id: &ItemId) -> Result<Vec<LockEntry>, CommandError> {
    lock_entries(world, id).map_err(|why| no_plan_failure(id, why))
}

/// Returns the error for a directive that has no plan, because of `why`.
pub fn no_plan_failure(id: &ItemId, why: NoPlan) -> CommandError {
    match why {
        NoPlan::Errors(_) => CommandError::failed(format!("`{id}` has errors, so it has no plan"))
            .with_help("run `rye check` for the details"),
        NoPlan::Matrix(error) => {
            let failure = CommandError::failed(format!("`{id}`: {error}"));
            match error {
                MatrixError::Broken(_) => failure,
                MatrixError::TooMany(_) => failure.with_help(
                    "a lock file has an entry for each plan: read fewer inputs in the conditions of hooks, or declare `enum` for them",
                ),
            }
        }
    }
}

/// Checks that the plan of a thread matches the lock.
///
/// # Errors
/// Returns a refusal that states the directive, the drift, and the command that locks the directive.
pub fn verify_plan(lock: &Lock, world: &dyn World, plan: &Plan) -> Result<(), CommandError> {
    let id = &plan.directive;
    let Err(why) = check_plan(world, lock, plan) else { return Ok(()) };
    let failure = match why {
        LockMismatch::NotLocked => not_locked(id),
        LockMismatch::NoPlan(why) => no_plan_failure(id, why),
        LockMismatch::Drifted(drifts) => drift_refusal(&drifts),
    };
    Err(CommandError { exit: Exit::Refused, ..failure })
}

/// Returns the error with which a command refuses to start a directive that differs from the lock file. The message
/// lists the first 20 differences.
pub fn drift_refusal(drifts: &[Drift]) -> CommandError {
    const MOST: usize = 20;
    let named: Vec<String> = drifts.iter().take(MOST).map(|d| format!("{} {}", d.what, d.how)).collect();
    let more = drifts.len().saturating_sub(MOST);
    let more = if more == 0 { String::new() } else { format!(", and {more} more") };
    let directive = drifts.first().map(|d| d.directive.as_str()).unwrap_or_default();
    CommandError {
        exit: Exit::Refused,
        ..CommandError::failed(format!("`{directive}` differs from the lock file: {}{more}", named.join(", ")))
    }
    .with_help(format!(
        "run `rye plan {directive} --diff REV` to see the difference, `rye lock {directive}` to accept it"
    ))
}
