//! The command `rye check --watch`: checks again whenever a file of a space changes. Changed files are reported by
//! inotify, and only results that depend on them are computed again. A periodic scan finds changes that inotify does
//! not report, for example on some mounts.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rye_compiler::validate::CheckSession;
use rye_engine::disk_world::{CachedWorld, FileChange, Watcher};

use super::fingerprints::{Fingerprints, space_roots};
use super::scripts::script_files;
use super::{CheckArgs, print_result, run_check};
use crate::CommandError;
use crate::exit::Exit;
use crate::options::OutputFormat;
use crate::report::Printer;
use crate::workspace::Spaces;

/// Interval between two checks for changes. Each check reads the changes that inotify has reported, and compares the
/// few files that scans leave out (`Fingerprints::of_other_files`). Without inotify, this is also the minimum interval
/// between two scans.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Time to wait after a change, because an editor writes a file in several steps.
const DEBOUNCE: Duration = Duration::from_millis(30);
/// Minimum interval between two scans for changes while inotify works. Scans continue, because not every file system
/// supports inotify.
const MIN_SCAN_INTERVAL: Duration = Duration::from_secs(5);
/// Minimum interval between two scans while inotify works, as a multiple of the duration of the last scan.
const SCAN_INTERVAL_FACTOR: u32 = 200;
/// Minimum interval between two scans without inotify, as a multiple of the duration of the last scan.
const SCAN_INTERVAL_FACTOR_WITHOUT_INOTIFY: u32 = 50;

/// Checks the project now and after each change of its files, until the process is interrupted or the output is closed.
pub fn run(args: &CheckArgs, spaces: &Spaces, requested: OutputFormat, report: &Printer) -> Result<Exit, CommandError> {
    let mut spaces = spaces.clone();
    // Start watching before the first check, so that no change is missed.
    let mut watch = ChangeDetector::begin(&spaces);
    let mut world = CachedWorld::new(spaces.open()?);
    let mut memory = CheckSession::new();
    loop {
        watch.follow_scripts(script_files(&world, &spaces.project), &spaces);
        let found = run_check(args, &spaces, &world, |world, selection| memory.check(world, selection))?;
        print_result(&found, requested, report)?;
        let work = found.report.work;
        report.detail(&format!("files parsed: {}, directives checked: {}", work.parsed, work.composed));
        report.explain_hint();
        drop(found);
        if world.has_links() {
            watch.disable_inotify();
        }
        if !world.invalidate(&watch.wait(&spaces)) {
            // The user space may have been created, and a removed project folder may have been restored.
            spaces = wait_for_project(&spaces, report);
            watch.restart(&spaces);
            world = CachedWorld::new(spaces.open()?);
        }
    }
}

/// Finds the spaces of the project again. If the project folder does not contain `.ai` any more, reports this as a
/// check does, and waits until the folder is back.
fn wait_for_project(spaces: &Spaces, report: &Printer) -> Spaces {
    let mut is_reported = false;
    loop {
        match Spaces::find(Some(&spaces.project)) {
            Ok(found) => return found,
            Err(failure) if !is_reported => {
                report.failure(&failure);
                is_reported = true;
            }
            Err(_) => {}
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// A detector of changed files: inotify, if it is available, and periodic scans.
struct ChangeDetector {
    /// The watcher that receives changes from inotify; `None` if inotify is unavailable, or there are too many folders.
    watcher: Option<Watcher>,
    /// Fingerprints of the files that can hold items. Later scans compare the files with these fingerprints, to find
    /// changes that inotify does not report. The fingerprints are taken before the files are read, so that no change in
    /// between is missed.
    seen: Fingerprints,
    beside: Fingerprints,
    /// The scripts of providers. A script can be outside of the project.
    scripts: BTreeSet<PathBuf>,
    /// Time of the next scan.
    next: Instant,
    pause: Duration,
}

impl ChangeDetector {
    fn begin(spaces: &Spaces) -> Self {
        let watcher = Watcher::new(space_roots(spaces).collect()).ok();
        let (seen, beside) = (Fingerprints::default(), Fingerprints::default());
        let (scripts, next) = (BTreeSet::new(), Instant::now());
        let mut watch = Self { watcher, seen, beside, scripts, next, pause: MIN_SCAN_INTERVAL };
        watch.beside = Fingerprints::of_other_files(spaces, &watch.scripts);
        watch.scan(spaces);
        watch
    }

    /// Sets the scripts to watch. The next check reads them afterwards, so that no change in between is missed.
    fn follow_scripts(&mut self, scripts: BTreeSet<PathBuf>, spaces: &Spaces) {
        if self.scripts != scripts {
            self.scripts = scripts;
            self.beside = Fingerprints::of_other_files(spaces, &self.scripts);
        }
    }

    /// Stops using inotify, because the project contains links: the target of a link changes without an event, and only
    /// a scan detects the change.
    fn disable_inotify(&mut self) {
        if self.watcher.take().is_some() {
            self.next = Instant::now();
        }
    }

    /// Watches the folders again and takes new fingerprints. The caller reads all files again afterwards, so that no
    /// change in between is missed.
    fn restart(&mut self, spaces: &Spaces) {
        if self.watcher.is_some() {
            self.watcher = Watcher::new(space_roots(spaces).collect()).ok();
        }
        self.beside = Fingerprints::of_other_files(spaces, &self.scripts);
        self.scan(spaces);
    }

    /// Takes the fingerprints of the files that can hold items, and sets the time of the next scan. Returns true if one
    /// of these files has changed since the last scan.
    fn scan(&mut self, spaces: &Spaces) -> bool {
        let begin = Instant::now();
        let now = Fingerprints::of_items(spaces);
        let took = begin.elapsed();
        self.pause = if self.watcher.is_some() {
            MIN_SCAN_INTERVAL.max(took * SCAN_INTERVAL_FACTOR)
        } else {
            POLL_INTERVAL.max(took * SCAN_INTERVAL_FACTOR_WITHOUT_INOTIFY)
        };
        self.next = Instant::now() + self.pause;
        let is_new = self.seen != now;
        self.seen = now;
        is_new
    }

    /// Waits for changes of files. Returns them together with the changes that follow shortly after.
    fn wait(&mut self, spaces: &Spaces) -> Vec<FileChange> {
        loop {
            std::thread::sleep(POLL_INTERVAL);
            let mut changed = self.reported_changes();
            if !changed.is_empty() {
                for _ in 0..10 {
                    std::thread::sleep(DEBOUNCE);
                    let more = self.reported_changes();
                    if more.is_empty() {
                        break;
                    }
                    changed.extend(more);
                }
                self.seen.update(spaces, &changed);
                self.next = Instant::now() + self.pause;
                return changed;
            }
            if self.beside != Fingerprints::of_other_files(spaces, &self.scripts) {
                return vec![FileChange::Everything];
            }
            if Instant::now() < self.next {
                continue;
            }
            if self.scan(spaces) {
                // Wait until two scans agree.
                for _ in 0..10 {
                    std::thread::sleep(DEBOUNCE);
                    if !self.scan(spaces) {
                        break;
                    }
                }
                return vec![FileChange::Everything];
            }
        }
    }

    fn reported_changes(&mut self) -> Vec<FileChange> {
        let Some(watcher) = &mut self.watcher else { return Vec::new() };
        watcher.take_changes().unwrap_or_else(|_| {
            // inotify failed; only scan from now on.
            self.watcher = None;
            vec![FileChange::Everything]
        })
    }
}
