//! Copies the examples for `rye init --example`, without the files that runs create.

use std::path::Path;
use std::process::Command;
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
    println!("cargo:rustc-env=BUILD_COMMIT={}", commit()?);
    println!("cargo:rustc-env=BUILD_FEATURES={}", features());
    Ok(())
}

/// Returns the commit of a release build with its date. Other builds name no commit: they would have to be linked again
/// after each commit, or the commit would be out of date.
fn commit() -> io::Result<String> {
    if variable("PROFILE")? != "release" {
        return Ok("none (not a release build)".to_owned());
    }
    // The log changes with every commit; the path depends on the kind of checkout.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={log}");
    }
    Ok(git(&["show", "-s", "--format=%h (%cs)", "HEAD"]).unwrap_or_else(|| "unknown".to_owned()))
}

/// Runs git in the folder of the crate; `None` if it fails, as in a source archive.
fn git(words: &[&str]) -> Option<String> {
    let done = Command::new("git").args(words).output().ok().filter(|done| done.status.success())?;
    Some(String::from_utf8(done.stdout).ok()?.trim().to_owned())
}

/// Returns the optional features of this build.
fn features() -> String {
    let on = |name: &&str| env::var_os(format!("CARGO_FEATURE_{}", name.to_uppercase())).is_some();
    let all: Vec<&str> = ["acp", "mcp", "tokenizers"].into_iter().filter(on).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

fn variable(name: &str) -> io::Result<String> {
    env::var(name).map_err(io::Error::other)
}

/// Copies the files of an example. Cargo watches each file on its own: watching a folder would cause a rebuild after
/// every run of an example.
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
