//! I/O baseline for benchmarks: the minimal cost of the I/O that a benchmarked command needs, so that results can be
//! stated as multiples of this cost.
//!
//! `floor DIR`: reads every file of a project under `.ai/`, validates UTF-8 and hashes it, as a checker must. `floor
//! DIR TURNS`: for each tool turn, appends and syncs two lines and commits one row, as a run must.

use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rye_engine::store::{Change, RealDisk, Registry, ThreadRow, layout};
use rye_engine::thread_id::ThreadId;
use sha2::{Digest, Sha256};

/// Approximate size, in bytes, of the lines that one sync of a transcript covers. A tool turn has two syncs.
const LINE_BYTES: usize = 1_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("usage: floor DIR [TURNS]")?);
    match arguments.next() {
        Some(turns) => durable(&folder, turns.parse()?),
        None => reading(&folder),
    }
}

fn durable(folder: &Path, turns: u32) -> Result<(), Box<dyn Error>> {
    let disk = Arc::new(RealDisk::open(folder)?);
    layout::create_folders(&*disk)?;
    let registry = Registry::open(disk)?;
    let mut log = OpenOptions::new().create(true).append(true).open(folder.join(".ai/state/floor.log"))?;
    let thread = ThreadId::parse("floor-1").map_err(|invalid| invalid.reason)?;
    for turn in 0..turns {
        for _ in 0..2 {
            log.write_all(&[b'x'; LINE_BYTES])?;
            log.sync_data()?;
        }
        let row = ThreadRow::new(thread.clone(), "floor", i64::from(turn));
        registry.commit(&[Change::Put(Box::new(row))])?;
    }
    Ok(())
}

fn reading(folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut folders = vec![folder.join(".ai")];
    let mut hash = Sha256::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else {
                let bytes = fs::read(entry.path())?;
                std::str::from_utf8(&bytes)?;
                hash.update(Sha256::digest(&bytes));
            }
        }
    }
    if hash.finalize().iter().all(|b| *b == 0) {
        return Err("a hash of zeroes".into());
    }
    Ok(())
}
