//! Copies the examples for `rye init --example`, without the files that runs create.

use std::path::Path;
use std::{env, fs, io};

/// Files that a run writes into an example; the example's own files never have these names.
const LEFTOVERS: [&str; 4] = [".ai/state", ".ai/knowledge/agent/threads", "reports", "deployments.log"];

fn main() -> io::Result<()> {
    let from = Path::new(&variable("CARGO_MANIFEST_DIR")?).join("../examples");
    let to = Path::new(&variable("OUT_DIR")?).join("examples");
    if to.exists() {
        fs::remove_dir_all(&to)?;
    }
    for example in ["classic-hooks", "deploy", "hello", "review"] {
        copy(&from.join(example), &to.join(example), Path::new(""))?;
    }
    println!("cargo:rerun-if-changed=build.rs");
    Ok(())
}

fn variable(name: &str) -> io::Result<String> {
    env::var(name).map_err(io::Error::other)
}

/// Watch each file on its own: watching a folder would cause a rebuild after every run of an example.
fn copy(from: &Path, to: &Path, inside: &Path) -> io::Result<()> {
    fs::create_dir_all(to.join(inside))?;
    for entry in fs::read_dir(from.join(inside))? {
        let entry = entry?;
        let path = inside.join(entry.file_name());
        if LEFTOVERS.iter().any(|leftover| path == Path::new(leftover)) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            copy(from, to, &path)?;
        } else {
            fs::copy(from.join(&path), to.join(&path))?;
            println!("cargo:rerun-if-changed={}", from.join(&path).display());
        }
    }
    Ok(())
}
