//! `rye check --watch`: the same check again whenever a file of a space changes. The system tells which one (inotify), and only what
//! depends on it is checked again; where it cannot tell, files are looked at, so that what an editor, a mount or a
//! container does to them is the same here.

use std::time::{Duration, Instant};

use rye_compiler::validate::Memory;
use rye_engine::disk_world::{Changed, KeptWorld, Watcher};

use super::stamps::{Stamps, roots};
use super::{CheckArgs, look, show};
use crate::Failure;
use crate::args::Asked;
use crate::exit::Exit;
use crate::report::Report;
use crate::space::Spaces;

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(200);
/// An editor writes a file in steps: it is read once nothing has happened for so long.
const SETTLED: Duration = Duration::from_millis(30);
/// Between two looks at all files, where the system tells what changes (it does not for every file system): as long at least,
/// and so many times as long as a look takes.
const LOOK: Duration = Duration::from_secs(5);
const TIMES: u32 = 200;
/// The same where it does not tell.
const TIMES_ALONE: u32 = 50;

/// Runs until the process is interrupted or nobody reads any more.
pub fn run(args: &CheckArgs, spaces: &Spaces, asked: Asked, report: &Report) -> Result<Exit, Failure> {
    let mut spaces = spaces.clone();
    // Before the first look, so that what changes while it runs is seen.
    let mut watch = Watch::begin(&spaces);
    let mut world = KeptWorld::new(spaces.open()?);
    let mut memory = Memory::new();
    loop {
        let found = look(args, &spaces, &world, |world, selection| memory.check(world, selection))?;
        show(&found, asked, report)?;
        let work = found.report.work;
        report.detail(&format!("files parsed: {}, directives checked: {}", work.parsed, work.composed));
        drop(found);
        if world.has_links() {
            watch.look_alone();
        }
        if !world.look_again(&watch.wait(&spaces)) {
            // There may be a user space now; a project whose folder is gone may come back.
            spaces = Spaces::find(Some(&spaces.project)).unwrap_or(spaces);
            watch.renew(&spaces);
            world = KeptWorld::new(spaces.open()?);
        }
    }
}

/// Who tells what has changed.
struct Watch {
    /// `None` where the system does not tell, or not of so many folders.
    watcher: Option<Watcher>,
    /// All files as they were before they were read, so that no change is lost of which nobody told.
    seen: Stamps,
    beside: Stamps,
    /// When all files are looked at again.
    next: Instant,
    pause: Duration,
}

impl Watch {
    fn begin(spaces: &Spaces) -> Self {
        let watcher = Watcher::new(roots(spaces).collect()).ok();
        let (seen, beside) = (Stamps::default(), Stamps::default());
        let mut watch = Self { watcher, seen, beside, next: Instant::now(), pause: LOOK };
        watch.beside = Stamps::beside(spaces);
        watch.look(spaces);
        watch
    }

    /// What links lead to changes without a word: from now on files are looked at.
    fn look_alone(&mut self) {
        if self.watcher.take().is_some() {
            self.next = Instant::now();
        }
    }

    /// Begins anew, before everything is read anew.
    fn renew(&mut self, spaces: &Spaces) {
        if self.watcher.is_some() {
            self.watcher = Watcher::new(roots(spaces).collect()).ok();
        }
        self.beside = Stamps::beside(spaces);
        self.look(spaces);
    }

    /// Looks at all files; whether they are others than they were.
    fn look(&mut self, spaces: &Spaces) -> bool {
        let begin = Instant::now();
        let now = Stamps::of_items(spaces);
        let took = begin.elapsed();
        self.pause = if self.watcher.is_some() { LOOK.max(took * TIMES) } else { PAUSE.max(took * TIMES_ALONE) };
        self.next = Instant::now() + self.pause;
        let is_new = self.seen != now;
        self.seen = now;
        is_new
    }

    /// Waits for a change.
    fn wait(&mut self, spaces: &Spaces) -> Vec<Changed> {
        loop {
            std::thread::sleep(PAUSE);
            let mut changed = self.told();
            if !changed.is_empty() {
                for _ in 0..10 {
                    std::thread::sleep(SETTLED);
                    let more = self.told();
                    if more.is_empty() {
                        break;
                    }
                    changed.extend(more);
                }
                self.seen.again(spaces, &changed);
                self.next = Instant::now() + self.pause;
                return changed;
            }
            if self.beside != Stamps::beside(spaces) {
                return vec![Changed::Everything];
            }
            if Instant::now() < self.next {
                continue;
            }
            if self.look(spaces) {
                // Until two looks agree.
                for _ in 0..10 {
                    std::thread::sleep(SETTLED);
                    if !self.look(spaces) {
                        break;
                    }
                }
                return vec![Changed::Everything];
            }
        }
    }

    fn told(&mut self) -> Vec<Changed> {
        let Some(watcher) = &mut self.watcher else { return Vec::new() };
        watcher.changed().unwrap_or_else(|_| {
            // It cannot tell any more; from now on files are looked at.
            self.watcher = None;
            vec![Changed::Everything]
        })
    }
}
