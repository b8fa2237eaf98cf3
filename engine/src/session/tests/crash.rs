//! Crash recovery: an interrupted run, once recovered, must have the same result as an undisturbed run. A dozen
//! scenarios run on a simulated disk whose power fails at every operation. All, none or a random part of the unsynced
//! data survives ([`crash_points`]). [`killed`] repeats the scenarios with real processes on a real disk. [`mutants`]
//! checks that a power failure reveals each kind of skipped sync.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::Lab;
use crate::store::Disk;
use crate::store::disk::{DiskFault, DiskStep, SimulatedDisk, StepDecision, Survival, SyncKind, SyncSkippingDisk};
use external_world::Outside;
use final_state::FinalState;
use scenarios::CrashScenario;

mod artifact_files;
mod crash_points;
mod external_world;
mod final_state;
mod interventions;
mod killed;
mod mutants;
mod scenarios;
mod user;

/// The disk and the surroundings of one run.
struct CrashWorld {
    simulated: Arc<SimulatedDisk>,
    outside: Outside,
    lab: Lab,
    /// The disk that the engine uses.
    disk: Arc<dyn Disk>,
}

impl CrashWorld {
    /// Creates the world that an interrupted run left, in the project where it ran.
    fn over(scenario: &'static CrashScenario, left: SimulatedDisk, project: PathBuf) -> Self {
        let simulated = Arc::new(left);
        let disk = Arc::clone(&simulated) as Arc<dyn Disk>;
        let lab = external_world::lab(scenario, &disk, Some(project));
        Self { simulated, outside: Outside::new(Arc::clone(&disk)), lab, disk }
    }

    fn new(scenario: &'static CrashScenario, left_out: &'static [SyncKind]) -> Self {
        let simulated = Arc::new(SimulatedDisk::new());
        let raw = Arc::clone(&simulated) as Arc<dyn Disk>;
        let outside = Outside::new(Arc::clone(&raw));
        outside.prepare();
        let lab = external_world::lab(scenario, &raw, None);
        let disk = if left_out.is_empty() { raw } else { Arc::new(SyncSkippingDisk::without(raw, left_out)) };
        Self { simulated, outside, lab, disk }
    }

    /// Simulates one process: the process works until nothing is left to do or its disk fails; its state in memory is
    /// then dropped.
    fn process(&self, scenario: &'static CrashScenario) -> Result<(), String> {
        process(scenario, &self.lab, &self.outside, &self.disk)
    }

    fn read_final_state(&self, scenario: &CrashScenario) -> Result<FinalState, String> {
        let engine = external_world::open(scenario, &self.lab, &self.outside, &self.disk)?;
        final_state::read_final_state(scenario, &engine, &self.outside)
    }
}

/// Maximum duration of a run; a run that takes longer hangs. The duration includes the checks before each operation.
const RUN_TIMEOUT: Duration = Duration::from_mins(10);

fn process(scenario: &'static CrashScenario, lab: &Lab, outside: &Outside, disk: &Arc<dyn Disk>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let engine = external_world::open(scenario, lab, outside, disk)?;
        let work = Box::pin(user::work(scenario, lab, &engine, outside));
        tokio::time::timeout(RUN_TIMEOUT, work).await.map_err(|_| "it stands still".to_owned())?
    })
}

/// An undisturbed run, and the operations at which it can be interrupted.
#[derive(Debug, Clone)]
struct UndisturbedRun {
    final_state: FinalState,
    /// The operations at which the mutants are interrupted: every operation outside the registry's file; of the
    /// operations inside that file, the ends of the commits and some others.
    places: Vec<u64>,
}

fn undisturbed(scenario: &'static CrashScenario) -> UndisturbedRun {
    static KNOWN: Mutex<BTreeMap<&str, UndisturbedRun>> = Mutex::new(BTreeMap::new());
    if let Some(whole) = KNOWN.lock().unwrap().get(scenario.name) {
        return whole.clone();
    }
    let mut world = CrashWorld::new(scenario, &[]);
    let places = Arc::new(Mutex::new(Vec::new()));
    let (recorded, simulated) = (Arc::clone(&places), Arc::clone(&world.simulated));
    world.disk = Arc::new(SyncSkippingDisk::new(Arc::clone(&world.disk), move |step| {
        let at = simulated.operations();
        let inside = matches!(step, DiskStep::Change(path) if path.to_string_lossy().contains("registry.redb"));
        if !inside || at % 16 == 0 {
            recorded.lock().unwrap().push(at);
        }
        StepDecision::Done
    }));
    let known = |error: String| format!("{}: {error}", scenario.name);
    world.process(scenario).map_err(known).unwrap();
    let places = std::mem::take(&mut *places.lock().unwrap());
    let final_state = world.read_final_state(scenario).map_err(known).unwrap();
    final_state.is_whole(scenario).unwrap();
    let whole = UndisturbedRun { final_state, places };
    KNOWN.lock().unwrap().insert(scenario.name, whole.clone());
    whole
}

/// The place and the manner of an interruption.
#[derive(Debug, Clone, Copy)]
struct Interruption {
    /// The index of the operation, from 0.
    at: u64,
    survival: Survival,
    left_out: &'static [SyncKind],
}

impl Interruption {
    fn at(at: u64, survival: Survival) -> Self {
        Self { at, survival, left_out: &[] }
    }
}

/// Interrupts a run, recovers it until nothing is left to do, and compares the result.
fn check_interrupted_run(scenario: &'static CrashScenario, how: Interruption) -> Result<(), String> {
    let whole = undisturbed(scenario).final_state;
    let world = CrashWorld::new(scenario, how.left_out);
    world.simulated.fail_at(how.at, DiskFault::PowerFailure);
    let mut done = world.process(scenario);
    world.simulated.restart(how.survival);
    if done.is_err() {
        done = world.process(scenario);
    }
    done.map_err(|error| format!("it cannot be taken up: {error}"))?;
    if how.left_out.contains(&SyncKind::Registry) {
        // Closing the registry syncs it. Only a power failure after that shows that the sync was skipped.
        world.simulated.restart(how.survival);
    }
    whole.holds(scenario, &world.read_final_state(scenario)?, 1)
}

macro_rules! scenarios {
    ($($name:ident $scenario:ident),* $(,)?) => {$(
        mod $name {
            use super::*;

            #[test]
            fn killed_run_recovers() {
                crash_points::at_each(&scenarios::$scenario, |_| Survival::All, None);
            }

            #[test]
            fn run_without_power_recovers() {
                crash_points::at_each(&scenarios::$scenario, |_| Survival::Nothing, None);
            }

            #[test]
            fn power_failure_with_any_part_of_unsynced_data() {
                crash_points::at_each(&scenarios::$scenario, |at| Survival::Some(at * 7 + 1), None);
            }

            #[test]
            fn killed_again_during_recovery() {
                crash_points::at_each(&scenarios::$scenario, |_| Survival::All, Some(|at| at * 5 % 41));
            }

            #[test]
            fn killed_process_recovers() {
                killed::at_every_step(&scenarios::$scenario, stringify!($name));
            }
        }
    )*};
}

scenarios! {
    tools TOOLS,
    parallel PARALLEL,
    children CHILDREN,
    detached ASYNC,
    apart APART,
    handoff HANDOFF,
    retry RETRY,
    approval APPROVAL,
    cancel CANCEL,
    budget BUDGET,
    resumed RESUMED,
    survivor SURVIVOR,
    survivor_handoff SURVIVOR_HANDOFF,
    cut CUT,
}
