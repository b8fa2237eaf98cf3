//! The states that an interruption before each operation leaves, and the results of recovering them. One run yields all
//! states: before every operation the disk is copied and the copy's power fails. Equal states are followed once: the
//! same files byte for byte, and a registry with the same rows after it is opened. This covers redb's repair of a
//! commit interrupted at any of its writes.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::scenarios::CrashScenario;
use super::{CrashWorld, undisturbed};
use crate::store::disk::{Disk, DiskFault, SimulatedDisk, Survival};
use crate::store::layout::REGISTRY;
use crate::store::registry::Registry;

/// Every operation of a run, and each distinct state that an interruption leaves, with the first operation that leaves
/// it.
#[derive(Default)]
struct RemainingStates {
    /// The index of the first operation; `to` is the index after the last.
    from: Option<u64>,
    to: u64,
    seen: BTreeSet<u64>,
    left: Vec<(u64, SimulatedDisk)>,
    /// The hash of the rows of each registry, by the hash of the registry's bytes.
    registries: BTreeMap<u64, u64>,
}

/// Interrupts a run before every operation, recovers a sample of the states until nothing is left to do, and compares the
/// results; `RYE_EVERY_CRASH` recovers each state. Reports all failures together. With `again`, the first recovery is interrupted too, that many operations later.
pub fn at_each(scenario: &'static CrashScenario, survival: fn(u64) -> Survival, again: Option<fn(u64) -> u64>) {
    let whole = undisturbed(scenario).final_state;
    let (world, RemainingStates { from, to, left, .. }) = remaining_states(scenario, survival);
    let (operations, different) = (to - from.unwrap(), left.len());
    let follow = |(at, disk): (u64, SimulatedDisk)| {
        let broken = followed(scenario, &world, disk, (survival(at), again.map(|again| again(at))));
        let held = broken.and_then(|(after, kills)| {
            let state = after.read_final_state(scenario)?;
            if survival(at) == Survival::All {
                state.check_artifacts()?;
            }
            whole.holds(scenario, &state, kills)
        });
        held.err().map(|error| format!("broken off before operation {at}: {error}"))
    };
    let wrong: Vec<String> = sample(left).into_iter().filter_map(follow).collect();
    let first: Vec<&str> = wrong.iter().take(3).map(String::as_str).collect();
    let (name, count) = (scenario.name, wrong.len());
    assert!(wrong.is_empty(), "{name}: {count} of {different}, of {operations} operations\n{}", first.join("\n"));
    // Each synced file is new or has new contents, so that a power failure after the sync leaves another state.
    let syncs = usize::try_from(world.simulated.counters().syncs).unwrap();
    assert!(operations > 100 && different > syncs, "{name}: {different} of {operations} operations, {syncs} syncs");
}

/// Runs a scenario and returns the state that an interruption before each of its operations leaves.
fn remaining_states(scenario: &'static CrashScenario, survival: fn(u64) -> Survival) -> (CrashWorld, RemainingStates) {
    remaining_states_of(CrashWorld::new(scenario, &[]), scenario, survival)
}

/// Returns the disk that a kill before each operation of a run in `world` leaves, with the number of the operation.
pub fn killed_disks(world: CrashWorld, scenario: &'static CrashScenario) -> Vec<(u64, SimulatedDisk)> {
    remaining_states_of(world, scenario, |_| Survival::All).1.left
}

fn remaining_states_of(
    world: CrashWorld,
    scenario: &'static CrashScenario,
    survival: fn(u64) -> Survival,
) -> (CrashWorld, RemainingStates) {
    let whole = undisturbed(scenario).final_state;
    let all = Arc::new(Mutex::new(RemainingStates::default()));
    let recorded = Arc::clone(&all);
    world.simulated.before_operations(move |at, disk| {
        disk.restart(survival(at));
        recorded.lock().unwrap().add(at, disk);
    });
    world.process(scenario).unwrap();
    whole.holds(scenario, &world.read_final_state(scenario).unwrap(), 0).unwrap();
    let states = std::mem::take(&mut *all.lock().unwrap());
    (world, states)
}

/// Calls `check` with the worlds that interruptions leave, a sample of them unless `RYE_EVERY_CRASH` is set. Reports all
/// failures together.
pub fn for_each_state(scenario: &'static CrashScenario, check: impl Fn(&CrashWorld) -> Result<(), String>) {
    let (world, RemainingStates { left, .. }) = remaining_states(scenario, |_| Survival::All);
    let checked = sample(left).into_iter().map(|(at, disk)| {
        let left = CrashWorld::over(scenario, disk, world.lab.path());
        check(&left).map_err(|error| format!("broken off before operation {at}: {error}"))
    });
    let checked: Vec<Result<(), String>> = checked.collect();
    let wrong: Vec<&String> = checked.iter().filter_map(|one| one.as_ref().err()).collect();
    let first: Vec<&str> = wrong.iter().take(3).map(|error| error.as_str()).collect();
    assert!(wrong.is_empty(), "{}: {} of {}\n{}", scenario.name, wrong.len(), checked.len(), first.join("\n"));
    assert!(checked.len() >= SAMPLED_STATES / 2, "{}: {} states", scenario.name, checked.len());
}

/// Maximum number of states in the sample of a normal test run.
const SAMPLED_STATES: usize = 24;

/// Returns evenly spaced states or steps of a run; all of them if `RYE_EVERY_CRASH` is set.
pub fn sample<T>(all: Vec<T>) -> Vec<T> {
    let is_whole = std::env::var_os("RYE_EVERY_CRASH").is_some();
    let step = if is_whole { 1 } else { all.len().div_ceil(SAMPLED_STATES).max(1) };
    all.into_iter().step_by(step).collect()
}

/// Recovers a disk until nothing is left to do. Returns the world and the number of processes that died.
fn followed(
    scenario: &'static CrashScenario,
    first: &CrashWorld,
    left: SimulatedDisk,
    (survival, again): (Survival, Option<u64>),
) -> Result<(CrashWorld, usize), String> {
    let world = CrashWorld::over(scenario, left, first.lab.path());
    let mut kills = 1;
    if let Some(again) = again {
        world.simulated.fail_at(world.simulated.operations() + again, DiskFault::PowerFailure);
        let done = world.process(scenario);
        world.simulated.restart(survival);
        kills += usize::from(done.is_err());
    }
    world.process(scenario).map_err(|error| format!("it cannot be taken up: {error}"))?;
    Ok((world, kills))
}

impl RemainingStates {
    fn add(&mut self, at: u64, disk: SimulatedDisk) {
        // No operation is skipped.
        assert!(self.from.is_none() || at == self.to, "{at} after {}", self.to);
        self.from.get_or_insert(at);
        self.to = at + 1;
        let fingerprint = self.fingerprint(&disk);
        if self.seen.insert(fingerprint) {
            self.left.push((at, disk));
        }
    }

    fn fingerprint(&mut self, disk: &SimulatedDisk) -> u64 {
        let mut hasher = DefaultHasher::new();
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            for entry in disk.list(&folder).unwrap() {
                let path = folder.join(&entry.name);
                path.hash(&mut hasher);
                if entry.is_dir {
                    folders.push(path);
                } else if path == Path::new(REGISTRY) {
                    self.registry(disk).hash(&mut hasher);
                } else {
                    disk.read(&path).unwrap().hash(&mut hasher);
                }
            }
        }
        hasher.finish()
    }

    /// Hashes the rows of the registry; hashes its bytes if it cannot be opened.
    fn registry(&mut self, disk: &SimulatedDisk) -> u64 {
        let hash = |value: &dyn Fn(&mut DefaultHasher)| {
            let mut hasher = DefaultHasher::new();
            value(&mut hasher);
            hasher.finish()
        };
        let bytes = disk.read(Path::new(REGISTRY)).unwrap();
        let key = hash(&|hasher| bytes.hash(hasher));
        if let Some(known) = self.registries.get(&key) {
            return *known;
        }
        // Opening repairs the registry, so a copy is opened: the repair is part of the recovery under test.
        let copy: Arc<dyn Disk> = Arc::new(disk.fork());
        let Ok(contents) = Registry::open(copy).and_then(|registry| registry.dump()) else { return key };
        let held = hash(&|hasher| contents.hash(hasher));
        self.registries.insert(key, held);
        held
    }
}
