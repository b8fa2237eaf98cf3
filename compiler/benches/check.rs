//! A check of a project from nothing, and again after one file was edited. `cargo bench -p rye-compiler --bench check` prints both
//! for projects in memory; with `RYE_BENCH_PROJECT` set, for the project in that folder. `docs/explanation/performance.md` quotes them.

#![expect(clippy::print_stderr, reason = "a bench that cannot go on says why")]
#![expect(clippy::disallowed_methods, reason = "a bench reads its project from a disk; what it measures does not")]

use std::fmt::Display;
use std::path::{Path, PathBuf};

use divan::Bencher;
use rye_compiler::validate::{CheckSession, Selection, check};
use rye_compiler::world::{MapWorld, Space};

fn main() {
    divan::main();
}

fn fail(error: &dyn Display) -> ! {
    eprintln!("the bench cannot go on: {error}");
    std::process::exit(1)
}

/// Adds the path of every file below a folder.
fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| fail(&error));
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() { files(&path, into) } else { into.push(path) }
    }
}

fn load(mut world: MapWorld<'static>, space: Space, root: &Path) -> MapWorld<'static> {
    let mut all = Vec::new();
    files(&root.join(".ai"), &mut all);
    all.sort();
    for path in all {
        let text = std::fs::read(&path).unwrap_or_else(|error| fail(&error));
        let inside = path.strip_prefix(root).ok().and_then(Path::to_str).unwrap_or_else(|| fail(&path.display()));
        // Scripts need a reader that only the engine has.
        let is_script = path.extension().is_some_and(|ending| ending == "py" || ending == "js");
        if !is_script {
            world.insert(space, inside, text);
        }
    }
    world
}

/// Adds directives in areas, as the program `generate` of the crate `snapshots` writes them: each area has a base, and
/// leaves with a note and a palette of their own.
fn areas(mut world: MapWorld<'static>, directives: usize) -> MapWorld<'static> {
    for area in 0..directives.div_ceil(20) {
        let base = format!(
            "```xml\n<directive name=\"base\" version=\"1.0.0\" extends=\"rye/agent/core/base_execute_only\"><metadata><description>What \
             area {area} shares.</description><context><before>area{area}/rules</before></context></metadata></directive>\n```\n\nContext only.\n"
        );
        world.insert(Space::Project, &format!(".ai/directives/area{area}/base.md"), base);
        world.insert(
            Space::Project,
            &format!(".ai/knowledge/area{area}/rules.md"),
            "Ask before you restart anything.\n",
        );
        let probe = "description: Asks a service.\nkind: command\ncommand: [echo, hi]\nparameters: {type: object}\n";
        world.insert(Space::Project, &format!(".ai/tools/area{area}/probe.yaml"), probe);
        for leaf in 0..19 {
            world.insert(Space::Project, &format!(".ai/directives/area{area}/task{leaf}.md"), task(area, leaf));
            let note = "The service restarts on Sundays.\n".repeat(5);
            world.insert(Space::Project, &format!(".ai/knowledge/area{area}/note{leaf}.md"), note);
        }
    }
    world
}

fn task(area: usize, leaf: usize) -> String {
    format!(
        "```xml\n<directive name=\"task{leaf}\" version=\"1.0.0\" extends=\"area{area}/base\"><metadata><description>Look at one service.</description>\
         <model tier=\"fast\"/><limits turns=\"9\" spend=\"0.10\"/><context><before>area{area}/note{leaf}</before></context><permissions><execute>\
         <tool>rye.file-system.read</tool><tool>area{area}.*</tool></execute><acknowledge risk=\"elevated\">It only reads.</acknowledge></permissions></metadata>\
         <inputs><input name=\"service\" type=\"string\" required=\"true\">which</input></inputs>\
         <outputs><output name=\"healthy\" type=\"boolean\" required=\"true\">whether</output></outputs></directive>\n```\n\nProbe {{input:service}}.\n{}",
        "Note what you saw, in the order in which you saw it.\n".repeat(6)
    )
}

fn project(directives: usize) -> MapWorld<'static> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let world = load(MapWorld::new(), Space::System, &here.join("../stdlib"));
    match std::env::var_os("RYE_BENCH_PROJECT") {
        Some(folder) => load(world, Space::Project, Path::new(&folder)),
        None => areas(world, directives),
    }
}

#[divan::bench(args = [1_000, 10_000], sample_count = 10)]
fn from_nothing(bencher: Bencher<'_, '_>, directives: usize) {
    let world = project(directives);
    bencher.bench_local(|| check(&world, &Selection::All).diagnostics.len());
}

#[divan::bench(args = [1_000, 10_000], sample_count = 20, sample_size = 1)]
fn after_one_edit(bencher: Bencher<'_, '_>, directives: usize) {
    let mut world = project(directives);
    let mut memory = CheckSession::new();
    memory.check(&world, &Selection::All);
    let mut edits = 0;
    bencher.bench_local(|| {
        edits += 1;
        let text = format!("{}Edit {edits}.\n", task(3, 2));
        world.insert(Space::Project, ".ai/directives/area3/task2.md", text);
        let report = memory.check(&world, &Selection::All);
        if report.work.parsed != 1 || report.work.composed != 1 {
            fail(&format!("{:?}", report.work));
        }
        report.diagnostics.len()
    });
}
