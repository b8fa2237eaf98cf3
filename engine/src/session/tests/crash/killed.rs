//! The crash scenarios as real processes on a real disk. Each is killed with `SIGKILL` before a sample of the changes
//! and syncs of the store and of the outside world (before each of them with `just crash`), and recovered by this
//! process. The long processes of trees are only killed before steps that write a transcript, a message or an effect;
//! the simulated disk covers the other steps.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::super::Lab;
use super::crash_points;
use super::external_world::{self, Outside};
use super::final_state::{FinalState, read_final_state};
use super::process;
use super::scenarios::CrashScenario;
use crate::process::{EndSignal, end_process};
use crate::store::Disk;
use crate::store::disk::{DiskStep, RealDisk, StepDecision, SyncSkippingDisk};

/// The environment variable that holds the index of the step before which a process is killed. The variable `PROJECT`
/// holds the path of the project.
const AT: &str = "RYE_TEST_KILLED_AT";
const PROJECT: &str = "RYE_TEST_KILLED_IN";

pub fn at_every_step(scenario: &'static CrashScenario, name: &str) {
    if let (Some(at), Some(project)) = (std::env::var_os(AT), std::env::var_os(PROJECT)) {
        run_and_kill_self(scenario, at.to_str().unwrap().parse().unwrap(), PathBuf::from(project));
    }
    let first = KilledProject::new(scenario);
    let steps = Arc::new(Mutex::new(Vec::new()));
    let counting = Arc::clone(&steps);
    let counted: Arc<dyn Disk> = Arc::new(SyncSkippingDisk::new(first.disk(), move |step| {
        counting.lock().unwrap().push(!scenario.is_tree || is_position(step));
        StepDecision::Done
    }));
    process(scenario, &first.lab, &Outside::new(Arc::clone(&counted)), &counted).unwrap();
    let whole = first.read_final_state(scenario).unwrap();
    whole.is_whole(scenario).unwrap();
    let steps = std::mem::take(&mut *steps.lock().unwrap());
    let total = steps.len();
    let mut wrong = Vec::new();
    let places: Vec<(u64, bool)> = (0..).zip(steps).filter(|(_, is_place)| *is_place).collect();
    for (at, _) in crash_points::sample(places) {
        let place = KilledProject::new(scenario);
        let killed = place.run_until_killed(name, at);
        let taken_up = process(scenario, &place.lab, &Outside::new(place.disk()), &place.disk());
        let held = taken_up.and_then(|()| {
            let state = place.read_final_state(scenario)?;
            state.check_artifacts()?;
            whole.holds(scenario, &state, 1)
        });
        // The last steps may be missing if this run batched more writes than the counted run.
        if let Err(error) = held {
            wrong.push(format!("step {at} of {total}, killed: {killed}: {error}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {total}\n{}",
        wrong.len(),
        wrong.iter().take(3).cloned().collect::<Vec<_>>().join("\n")
    );
}

/// Returns true for a step that writes a transcript, a message or an outside effect.
fn is_position(step: DiskStep<'_>) -> bool {
    match step {
        DiskStep::Change(path) | DiskStep::Sync(path) => {
            path.ends_with("transcript.jsonl")
                || path == Path::new(external_world::LOG)
                || path.parent().is_some_and(|folder| folder.ends_with("inbox"))
        }
        DiskStep::SyncFolder(_) => true,
    }
}

/// A project and the temporary files that a killed process leaves behind.
struct KilledProject {
    folder: tempfile::TempDir,
    scrap: tempfile::TempDir,
    lab: Lab,
}

impl KilledProject {
    fn new(scenario: &'static CrashScenario) -> Self {
        let (folder, scrap) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(folder.path()).unwrap());
        Outside::new(Arc::clone(&disk)).prepare();
        std::fs::create_dir_all(folder.path().join(".ai/directives/test")).unwrap();
        let lab = external_world::lab(scenario, &disk, Some(folder.path().to_path_buf()));
        Self { folder, scrap, lab }
    }

    fn disk(&self) -> Arc<dyn Disk> {
        Arc::new(RealDisk::open(self.folder.path()).unwrap())
    }

    fn read_final_state(&self, scenario: &CrashScenario) -> Result<FinalState, String> {
        let (disk, outside) = (self.disk(), Outside::new(self.disk()));
        read_final_state(scenario, &external_world::open(scenario, &self.lab, &outside, &disk)?, &outside)
    }

    fn run_until_killed(&self, name: &str, at: u64) -> bool {
        let test = format!("session::tests::crash::{name}::killed_process_recovers");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", &test, "--nocapture"]).env(AT, at.to_string()).env(PROJECT, self.folder.path());
        command.env("TMPDIR", self.scrap.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let status = command.status().unwrap();
        status.signal() == Some(9)
    }
}

/// Runs the scenario in this process, which kills itself before a step.
fn run_and_kill_self(scenario: &'static CrashScenario, at: u64, project: PathBuf) -> ! {
    let steps = AtomicU64::new(0);
    let real: Arc<dyn Disk> = Arc::new(RealDisk::open(&project).unwrap());
    let disk: Arc<dyn Disk> = Arc::new(SyncSkippingDisk::new(real, move |_| {
        if steps.fetch_add(1, Ordering::Relaxed) == at {
            end_process(std::process::id(), EndSignal::Force).unwrap();
            loop {
                std::thread::park();
            }
        }
        StepDecision::Done
    }));
    let lab = external_world::lab(scenario, &disk, Some(project));
    let done = process(scenario, &lab, &Outside::new(Arc::clone(&disk)), &disk);
    std::process::exit(i32::from(done.is_err()));
}
