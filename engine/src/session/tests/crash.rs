//! Runs that are broken off anywhere and taken up again come to the same as if nobody had disturbed them: a dozen scenarios, the
//! power failing at every operation of a simulated disk, with all, nothing or any part of what was not synced surviving ([`left`]).
//! [`killed`] does it to real processes on a real disk; [`mutants`] leaves syncs out, which must not go unnoticed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::Lab;
use crate::store::Disk;
use crate::store::disk::{Fault, Pass, SimulatedDisk, Step, Survival, SyncKind, Tampered};
use outside::Outside;
use picture::Picture;
use scenarios::Scenario;

mod killed;
mod left;
mod mutants;
mod outside;
mod picture;
mod scenarios;
mod user;

/// The disk of one run, and what is there beside it.
struct World {
    simulated: Arc<SimulatedDisk>,
    outside: Outside,
    lab: Lab,
    /// What the engine writes to.
    disk: Arc<dyn Disk>,
}

impl World {
    /// What a run that was broken off left, in the project where it ran.
    fn over(scenario: &'static Scenario, left: SimulatedDisk, project: PathBuf) -> Self {
        let simulated = Arc::new(left);
        let disk = Arc::clone(&simulated) as Arc<dyn Disk>;
        let lab = outside::lab(scenario, &disk, Some(project));
        Self { simulated, outside: Outside::new(Arc::clone(&disk)), lab, disk }
    }

    fn new(scenario: &'static Scenario, left_out: &'static [SyncKind]) -> Self {
        let simulated = Arc::new(SimulatedDisk::new());
        let raw = Arc::clone(&simulated) as Arc<dyn Disk>;
        let outside = Outside::new(Arc::clone(&raw));
        outside.prepare();
        let lab = outside::lab(scenario, &raw, None);
        let disk = if left_out.is_empty() { raw } else { Arc::new(Tampered::without(raw, left_out)) };
        Self { simulated, outside, lab, disk }
    }

    /// One process: it works until nothing is left to do or its disk fails, and then all of it is gone.
    fn process(&self, scenario: &'static Scenario) -> Result<(), String> {
        process(scenario, &self.lab, &self.outside, &self.disk)
    }

    fn picture(&self, scenario: &Scenario) -> Result<Picture, String> {
        let engine = outside::open(scenario, &self.lab, &self.outside, &self.disk)?;
        picture::picture(scenario, &engine, &self.outside)
    }
}

/// A run that takes longer stands still; one that is looked at before each operation takes its time.
const PATIENCE: Duration = Duration::from_mins(10);

fn process(scenario: &'static Scenario, lab: &Lab, outside: &Outside, disk: &Arc<dyn Disk>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let engine = outside::open(scenario, lab, outside, disk)?;
        let work = Box::pin(user::work(scenario, lab, &engine, outside));
        tokio::time::timeout(PATIENCE, work).await.map_err(|_| "it stands still".to_owned())?
    })
}

/// A run that nobody disturbs, and where it can be broken off.
#[derive(Debug, Clone)]
struct Whole {
    picture: Picture,
    /// For the mutants: every operation outside of the registry's file, and of those within it the ends of the commits and
    /// some others.
    places: Vec<u64>,
}

fn undisturbed(scenario: &'static Scenario) -> Whole {
    static KNOWN: Mutex<BTreeMap<&str, Whole>> = Mutex::new(BTreeMap::new());
    if let Some(whole) = KNOWN.lock().unwrap().get(scenario.name) {
        return whole.clone();
    }
    let mut world = World::new(scenario, &[]);
    let places = Arc::new(Mutex::new(Vec::new()));
    let (told, simulated) = (Arc::clone(&places), Arc::clone(&world.simulated));
    world.disk = Arc::new(Tampered::new(Arc::clone(&world.disk), move |step| {
        let at = simulated.operations();
        let inside = matches!(step, Step::Change(path) if path.to_string_lossy().contains("registry.redb"));
        if !inside || at % 16 == 0 {
            told.lock().unwrap().push(at);
        }
        Pass::Done
    }));
    let known = |error: String| format!("{}: {error}", scenario.name);
    world.process(scenario).map_err(known).unwrap();
    let places = std::mem::take(&mut *places.lock().unwrap());
    let picture = world.picture(scenario).map_err(known).unwrap();
    picture.is_whole(scenario).unwrap();
    let whole = Whole { picture, places };
    KNOWN.lock().unwrap().insert(scenario.name, whole.clone());
    whole
}

/// Where and how a run is broken off.
#[derive(Debug, Clone, Copy)]
struct Break {
    /// The operation, from 0.
    at: u64,
    survival: Survival,
    left_out: &'static [SyncKind],
}

impl Break {
    fn at(at: u64, survival: Survival) -> Self {
        Self { at, survival, left_out: &[] }
    }
}

/// Breaks a run off, has it taken up until nothing is left to do, and compares.
fn broken_off(scenario: &'static Scenario, how: Break) -> Result<(), String> {
    let whole = undisturbed(scenario).picture;
    let world = World::new(scenario, how.left_out);
    world.simulated.fail_at(how.at, Fault::PowerFailure);
    let mut done = world.process(scenario);
    world.simulated.restart(how.survival);
    if done.is_err() {
        done = world.process(scenario);
    }
    done.map_err(|error| format!("it cannot be taken up: {error}"))?;
    whole.holds(scenario, &world.picture(scenario)?, 1)
}

macro_rules! scenarios {
    ($($name:ident $scenario:ident),* $(,)?) => {$(
        mod $name {
            use super::*;

            #[test]
            fn killed_at_every_operation() {
                left::at_each(&scenarios::$scenario, |_| Survival::All, None);
            }

            #[test]
            fn without_power_at_every_operation() {
                left::at_each(&scenarios::$scenario, |_| Survival::Nothing, None);
            }

            #[test]
            fn with_any_part_of_what_was_not_synced() {
                left::at_each(&scenarios::$scenario, |at| Survival::Some(at * 7 + 1), None);
            }

            #[test]
            fn killed_again_while_it_is_taken_up() {
                left::at_each(&scenarios::$scenario, |_| Survival::All, Some(|at| at * 5 % 41));
            }

            #[test]
            fn processes_killed_at_every_step() {
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
}
