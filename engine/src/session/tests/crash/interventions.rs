//! Actions of a user after a crash other than recovery: stopping the orphaned tree, or repairing the registry first.

use std::sync::Arc;

use rye_compiler::semantics::ledger::AccountStatus;

use super::scenarios::{self, CrashScenario};
use super::{CrashWorld, RUN_TIMEOUT, crash_points, external_world, undisturbed};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::event::ControlMessage;
use crate::keys::{KeyFolder, TrustStore};
use crate::store::layout::REGISTRY;
use crate::store::registry::{Liveness, repair};
use crate::thread_id::ThreadId;

/// Stops the orphaned threads, the roots first, until none is left.
async fn stop_orphans(engine: &Engine, message: &ControlMessage) -> Result<(), String> {
    for _ in 0..24 {
        let listed = engine.threads().list().map_err(|error| error.to_string())?;
        let orphans = listed.iter().filter(|listed| listed.liveness == Liveness::Orphaned);
        let Some(orphan) = orphans.min_by_key(|listed| listed.row.parent.is_some()) else { return Ok(()) };
        match engine.recover_with(&orphan.row.id, vec![message.clone()]).await {
            // The thread had no effect, or has been finalized.
            Err(EngineError::NeverStarted { .. } | EngineError::Closed { .. }) => {}
            Err(error) => return Err(error.to_string()),
            Ok(handle) => {
                handle.join().await;
                engine.wait_idle().await;
            }
        }
    }
    Err("there is always another orphan".into())
}

/// Checks that every thread has ended, that no account is open, and that the ledger matches the transcripts.
fn check_stopped(world: &CrashWorld, engine: &Engine) -> Result<(), String> {
    let threads = engine.threads();
    let listed = threads.list().map_err(|error| error.to_string())?;
    for listed in &listed {
        let account = engine.account(&listed.row.id).map_err(|error| error.to_string())?;
        let is_open = account.as_ref().is_some_and(|account| account.status() != AccountStatus::Released);
        if listed.liveness != Liveness::Over || is_open {
            return Err(format!("{} is {:?}, its account {account:?}", listed.row.id, listed.row.status));
        }
    }
    let trust = world.lab.keys.as_ref().map_or_else(|| Ok(TrustStore::default()), KeyFolder::trust_store);
    let ids: Vec<ThreadId> = listed.into_iter().map(|listed| listed.row.id).collect();
    let verified = threads.verify_all(&ids, &trust.map_err(|error| error.to_string())?);
    let faults: Vec<String> = verified
        .map_err(|error| error.to_string())?
        .into_iter()
        .flat_map(|one| one.faults)
        .map(|fault| format!("{}: {}", fault.file, fault.reason))
        .collect();
    if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
}

fn stopped_after_each(scenario: &'static CrashScenario, message: &ControlMessage) {
    crash_points::for_each_state(scenario, |world| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let engine = external_world::open(scenario, &world.lab, &world.outside, &world.disk)?;
            let stopped = tokio::time::timeout(RUN_TIMEOUT, Box::pin(stop_orphans(&engine, message))).await;
            stopped.map_err(|_| "it stands still".to_owned())??;
            check_stopped(world, &engine)
        })
    });
}

/// Repairs the registry of each state, recovers the threads, and compares the result with an undisturbed run.
fn repaired_after_each(scenario: &'static CrashScenario) {
    let whole = undisturbed(scenario).final_state;
    crash_points::for_each_state(scenario, |world| {
        if world.disk.exists(REGISTRY.as_ref()).map_err(|error| error.to_string())? {
            repair(&Arc::clone(&world.disk)).map_err(|error| format!("it cannot be repaired: {error}"))?;
        }
        world.process(scenario).map_err(|error| format!("it cannot be recovered: {error}"))?;
        whole.holds(scenario, &world.read_final_state(scenario)?, 1)
    });
}

#[test]
fn orphaned_tree_is_killed_after_a_crash_at_any_operation() {
    for scenario in [&scenarios::CHILDREN, &scenarios::SURVIVOR, &scenarios::HANDOFF] {
        stopped_after_each(scenario, &ControlMessage::Kill);
    }
}

#[test]
fn orphaned_tree_is_cancelled_after_a_crash_at_any_operation() {
    for scenario in [&scenarios::CHILDREN, &scenarios::SURVIVOR_HANDOFF, &scenarios::CUT] {
        stopped_after_each(scenario, &ControlMessage::Cancel);
    }
}

#[test]
fn repair_after_a_crash_at_any_operation_changes_no_result() {
    for scenario in [&scenarios::HANDOFF, &scenarios::CHILDREN, &scenarios::RESUMED] {
        repaired_after_each(scenario);
    }
}

#[test]
fn repair_after_a_crash_restores_the_continuation_of_a_detached_child() {
    repaired_after_each(&scenarios::SURVIVOR_HANDOFF);
}
