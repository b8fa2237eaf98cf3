//! Replays the seeds of every fuzz target and some mutations of each: no parser panics, and every target has its file
//! for libFuzzer.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;

use rye_snapshots::fuzz::mutate::{SplitMix, mutate};
use rye_snapshots::fuzz::{FuzzTarget, TARGETS, seeds};

/// Number of mutated inputs per target, in addition to the seeds.
const MUTATIONS: usize = 400;
/// Number of mutated inputs for a target that checks a whole project with the standard library each time.
const PROJECT_MUTATIONS: usize = 40;

#[test]
fn seeds_and_their_mutations_never_panic() {
    for target in &TARGETS {
        let seeds = seeds(target.name).unwrap();
        assert!(seeds.len() >= 3, "{} has {} seeds", target.name, seeds.len());
        for (_, bytes) in &seeds {
            (target.run)(bytes);
        }
        around(target, &seeds.into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>());
    }
}

fn around(target: &FuzzTarget, seeds: &[Vec<u8>]) {
    let mut rng = SplitMix::new(7);
    let count = if matches!(target.name, "project" | "hooks_yaml") { PROJECT_MUTATIONS } else { MUTATIONS };
    for _ in 0..count {
        let input = mutate(seeds, &mut rng);
        let survived = std::panic::catch_unwind(|| (target.run)(&input)).is_ok();
        assert!(survived, "{} panics over {:?}", target.name, String::from_utf8_lossy(&input));
    }
}

#[test]
fn every_target_has_its_file_and_its_corpus() {
    assert!(TARGETS.is_sorted_by_key(|target| target.name));
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    let names = |folder: &str, ending: &str| {
        let mut names: Vec<String> = fs::read_dir(fuzz.join(folder))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().trim_end_matches(ending).to_owned())
            .collect();
        names.sort();
        names
    };
    let targets: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names("fuzz_targets", ".rs"), targets);
    assert_eq!(names("corpus", ""), targets);
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    for target in targets {
        let file = fs::read_to_string(fuzz.join(format!("fuzz_targets/{target}.rs"))).unwrap();
        assert!(file.contains(&format!("run(\"{target}\", data)")), "{target}");
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{target}.rs\"")), "{target}");
    }
}
