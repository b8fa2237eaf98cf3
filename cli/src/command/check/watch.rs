//! `rye check --watch`: the same check again whenever a file of a space changes. Files are looked at, not listened to:
//! what an editor, a mount or a container does to its files is the same here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::{CheckArgs, look, show};
use crate::Failure;
use crate::args::Asked;
use crate::exit::Exit;
use crate::report::Report;
use crate::space::Spaces;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(200);
/// More files than that are not looked at one by one.
const MOST_FILES: usize = 50_000;
/// Folders whose files are items.
const FOLDERS: [&str; 4] = ["directives", "knowledge", "tools", "config"];

type Stamps = BTreeMap<PathBuf, (Option<SystemTime>, u64)>;

/// Runs until the process is interrupted or nobody reads any more.
pub fn run(args: &CheckArgs, spaces: &Spaces, asked: Asked, report: &Report) -> Result<Exit, Failure> {
    loop {
        // Before the check, so that what changes while it runs is seen.
        let seen = stamps(spaces);
        show(&look(args, spaces)?, asked, report)?;
        loop {
            std::thread::sleep(PAUSE);
            let now = stamps(spaces);
            if now != seen {
                settle(spaces, now);
                break;
            }
        }
    }
}

/// Waits until two looks agree: an editor writes a file in steps.
fn settle(spaces: &Spaces, mut last: Stamps) {
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(30));
        let now = stamps(spaces);
        if now == last {
            return;
        }
        last = now;
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
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                folders.push(entry.path());
            } else if stamps.len() < MOST_FILES {
                stamps.insert(entry.path(), (metadata.modified().ok(), metadata.len()));
            }
        }
    }
}
