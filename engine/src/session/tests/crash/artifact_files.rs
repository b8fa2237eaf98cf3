//! The artifacts of ended threads after a kill: `thread.json` in its last state, the export, and no unfinished copies.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rye_grammar::ItemId;
use serde_json::{Map, Value};

use super::scenarios::{self, CrashScenario};
use super::{CrashWorld, crash_points};
use crate::event::{Event, EventBody};
use crate::store::disk::{DiskStep, SimulatedDisk, StepDecision, SyncSkippingDisk};
use crate::store::registry::Registry;
use crate::store::{Disk, ThreadRow, layout};
use crate::threads::Threads;

/// Returns what is wrong with the artifacts of a thread that has ended.
pub fn find_artifact_faults(disk: &dyn Disk, row: &ThreadRow, events: &[Event]) -> Vec<String> {
    let mut faults = Vec::new();
    let id = &row.id;
    let bytes = disk.read(&layout::snapshot(id)).unwrap_or_default();
    let snapshot: Map<String, Value> = serde_json::from_slice(&bytes).unwrap_or_default();
    let written = (snapshot.get("status").cloned(), snapshot.get("transcript").map(|head| head["events"].clone()));
    let wanted = (Some(row.status.as_str().into()), Some(events.len().into()));
    if written != wanted {
        faults.push(format!("`thread.json` of {id} has {written:?} instead of {wanted:?}"));
    }
    let Some(EventBody::Opened(opened)) = events.first().map(|event| &event.body) else { return faults };
    let directive = ItemId::parse(&opened.directive).unwrap();
    let export = layout::export(&directive, id);
    if opened.call.is_none() && !row.status.is_parked() && !disk.exists(&export).unwrap() {
        faults.push(format!("{id} has no export"));
    }
    for folder in [layout::thread_folder(id).as_path(), export.parent().unwrap()] {
        let names = disk.list(folder).unwrap_or_default().into_iter().map(|entry| entry.name);
        let own = format!(".{}.md.", id.as_str().rsplit('/').next().unwrap());
        let is_unfinished = |name: &String| {
            Path::new(name).extension().is_some_and(|end| end == "tmp")
                && (name.starts_with(&own)
                    || name.starts_with(".thread.json.")
                    || name.starts_with(".capabilities.md."))
        };
        faults.extend(names.filter(is_unfinished).map(|name| format!("`{name}` is left")));
    }
    faults
}

/// Delays each change of an artifact, so that a commit that does not wait for the artifacts comes before them.
fn delay_artifacts(step: DiskStep<'_>) -> StepDecision {
    let is_artifact = |path: &Path| {
        path.starts_with(".ai/knowledge")
            || path.file_name().is_some_and(|name| name.to_string_lossy().contains("thread.json"))
    };
    if let DiskStep::Change(path) = step
        && is_artifact(path)
    {
        std::thread::sleep(Duration::from_millis(30));
    }
    StepDecision::Done
}

/// Checks the artifacts of the threads that have ended in the registry of `left`.
fn check_ended_rows(left: SimulatedDisk) -> Result<usize, String> {
    let disk: Arc<dyn Disk> = Arc::new(left);
    if !disk.exists(layout::REGISTRY.as_ref()).unwrap() {
        return Ok(0);
    }
    // A registry whose creation was interrupted has no rows.
    let Ok(registry) = Registry::open(Arc::clone(&disk)) else { return Ok(0) };
    let threads = Threads::new(Arc::clone(&disk), Some(Arc::new(registry)));
    let mut ended = 0;
    for listed in threads.list().map_err(|error| error.to_string())? {
        let events = threads.transcript(&listed.row.id).unwrap_or_default();
        if !listed.row.status.has_ended() || events.is_empty() {
            continue;
        }
        ended += 1;
        let faults = find_artifact_faults(&*disk, &listed.row, &events);
        if !faults.is_empty() {
            return Err(faults.join("; "));
        }
    }
    Ok(ended)
}

#[test]
fn thread_that_has_ended_has_its_artifacts_after_a_kill_at_any_operation() {
    let scenario: &'static CrashScenario = &scenarios::CHILDREN;
    let mut world = CrashWorld::new(scenario, &[]);
    world.disk = Arc::new(SyncSkippingDisk::new(Arc::clone(&world.disk), delay_artifacts));
    let mut ended = 0;
    for (at, left) in crash_points::killed_disks(world, scenario) {
        ended += check_ended_rows(left).map_err(|error| format!("killed before operation {at}: {error}")).unwrap();
    }
    assert!(ended > 20, "only {ended} rows of ended threads were examined");
}
