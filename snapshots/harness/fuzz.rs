//! Fuzz targets: every parser as a function of bytes, for libFuzzer (`fuzz/`), the mutation loop of
//! `bin/mutation_fuzz`, and the replay of the corpus. A target panics if the parser panics or if its errors cannot be
//! shown. Other tests check the parsers' results.

mod documents;
pub mod mutate;
mod small;
mod streams;

use std::fs;
use std::path::{Path, PathBuf};

/// A parser under test.
#[derive(Clone, Copy)]
pub struct FuzzTarget {
    /// Name of the target's corpus and of its file in `fuzz/fuzz_targets`.
    pub name: &'static str,
    pub run: fn(&[u8]),
}

/// All targets, sorted by name.
pub const TARGETS: [FuzzTarget; 27] = [
    FuzzTarget { name: "capability", run: small::capability },
    FuzzTarget { name: "condition_line", run: small::condition_line },
    FuzzTarget { name: "condition_mapping", run: small::condition_mapping },
    FuzzTarget { name: "config", run: documents::config },
    FuzzTarget { name: "directive", run: documents::directive },
    FuzzTarget { name: "eval", run: small::eval },
    FuzzTarget { name: "format", run: documents::format },
    FuzzTarget { name: "glob", run: small::glob },
    FuzzTarget { name: "hooks_xml", run: documents::hooks_xml },
    FuzzTarget { name: "hooks_yaml", run: documents::hooks_yaml },
    FuzzTarget { name: "html", run: documents::html },
    FuzzTarget { name: "inputs", run: small::inputs },
    FuzzTarget { name: "item_id", run: small::item_id },
    FuzzTarget { name: "javascript", run: documents::javascript },
    FuzzTarget { name: "knowledge", run: documents::knowledge },
    FuzzTarget { name: "page", run: documents::page },
    FuzzTarget { name: "path", run: small::path },
    FuzzTarget { name: "project", run: documents::project },
    FuzzTarget { name: "python", run: documents::python },
    FuzzTarget { name: "query", run: small::query },
    FuzzTarget { name: "script", run: streams::script },
    FuzzTarget { name: "signature", run: small::signature },
    FuzzTarget { name: "stream", run: streams::stream },
    FuzzTarget { name: "template", run: small::template },
    FuzzTarget { name: "tool", run: documents::tool },
    FuzzTarget { name: "transcript", run: streams::transcript },
    FuzzTarget { name: "xml", run: documents::xml },
];

/// Looks up a target by name.
pub fn target(name: &str) -> Option<FuzzTarget> {
    TARGETS.into_iter().find(|target| target.name == name)
}

/// Runs the target with this name on an input. The programs in `fuzz/` call this function.
pub fn run(name: &str, bytes: &[u8]) {
    match target(name) {
        Some(target) => (target.run)(bytes),
        None => panic!("there is no target `{name}`"),
    }
}

/// Returns the folder of a target's seeds.
pub fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name)
}

/// Reads the seeds of a target, by file name.
///
/// # Errors
/// Fails if the folder cannot be read.
pub fn seeds(name: &str) -> Result<Vec<(String, Vec<u8>)>, String> {
    let folder = corpus(name);
    let describe_error = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut seeds = Vec::new();
    for entry in fs::read_dir(&folder).map_err(describe_error)? {
        let path = entry.map_err(describe_error)?.path();
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        seeds.push((file, fs::read(&path).map_err(describe_error)?));
    }
    seeds.sort();
    Ok(seeds)
}
