//! `rye check --watch`: the same check again whenever a file of a space changes. The system tells which one (inotify), and only what
//! depends on it is checked again; where it cannot tell, files are looked at, so that what an editor, a mount or a
//! container does to them is the same here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rye_compiler::validate::Memory;
use rye_compiler::world::Space;
use rye_engine::disk_world::{Changed, KeptWorld, Watcher};

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
/// More files than that are not looked at one by one.
const MOST_FILES: usize = 50_000;
/// Folders whose files are items.
const FOLDERS: [&str; 4] = ["directives", "knowledge", "tools", "config"];

type Stamps = BTreeMap<PathBuf, (Option<SystemTime>, u64)>;

/// Runs until the process is interrupted or nobody reads any more.
pub fn run(args: &CheckArgs, spaces: &Spaces, asked: Asked, report: &Report) -> Result<Exit, Failure> {
    // Before the first look, so that what changes while it runs is seen.
    let mut watch = Watch::begin(spaces);
    let mut world = KeptWorld::new(spaces.open()?);
    let mut memory = Memory::new();
    loop {
        let found = look(args, spaces, &world, |world, selection| memory.check(world, selection))?;
        show(&found, asked, report)?;
        let work = found.report.work;
        report.detail(&format!("files parsed: {}, directives checked: {}", work.parsed, work.composed));
        drop(found);
        if world.has_links() {
            watch.watcher = None;
        }
        if !world.look_again(&watch.wait(spaces)) {
            world = KeptWorld::new(spaces.open()?);
        }
    }
}

/// Who tells what has changed.
struct Watch {
    /// `None` where the system does not tell, or not of so many folders.
    watcher: Option<Watcher>,
    /// All files as they were looked at last; `None` where the system has told of a change since.
    seen: Option<Stamps>,
    /// When they are looked at again, where the system tells what changes.
    next: Instant,
    pause: Duration,
}

impl Watch {
    fn begin(spaces: &Spaces) -> Self {
        let roots = std::iter::once((Space::Project, spaces.project.clone()));
        let roots = roots.chain(spaces.user.iter().map(|user| (Space::User, user.clone()))).collect();
        let mut watch = Self { watcher: Watcher::new(roots).ok(), seen: None, next: Instant::now(), pause: LOOK };
        watch.look(spaces);
        watch
    }

    /// Looks at all files; whether they are others than they were.
    fn look(&mut self, spaces: &Spaces) -> bool {
        let begin = Instant::now();
        let now = stamps(spaces);
        self.pause = LOOK.max(begin.elapsed() * TIMES);
        self.next = Instant::now() + self.pause;
        let is_new = self.seen.as_ref().is_some_and(|before| *before != now);
        self.seen = Some(now);
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
                self.seen = None;
                self.next = Instant::now() + self.pause;
                return changed;
            }
            if self.watcher.is_some() && Instant::now() < self.next {
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

fn stamps(spaces: &Spaces) -> Stamps {
    let mut stamps = Stamps::new();
    for root in std::iter::once(&spaces.project).chain(&spaces.user) {
        for folder in FOLDERS {
            walk(&root.join(".ai").join(folder), &mut stamps);
        }
    }
    stamps
}

fn walk(root: &Path, stamps: &mut Stamps) {
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        // A folder that is gone or closed is a change like any other; the check says what is wrong with it.
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            // A link is what it leads to, but none is followed into a folder, so that no walk is without an end.
            let Ok(own) = entry.metadata() else { continue };
            if own.is_dir() {
                folders.push(entry.path());
                continue;
            }
            let metadata = if own.is_symlink() { std::fs::metadata(entry.path()).unwrap_or(own) } else { own };
            if stamps.len() < MOST_FILES {
                stamps.insert(entry.path(), (metadata.modified().ok(), metadata.len()));
            }
        }
    }
}
