//! Incremental checking: after any edit, a re-check reports exactly what a check from scratch reports. Edits add,
//! change, remove and rename directives, knowledge, tools and settings, in the project and the user space. The tests
//! also bound the work of a re-check.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rye_compiler::diagnostics::Diagnostic;
use rye_compiler::validate::{CheckReport, CheckSession, CheckStats, Selection, check};
use rye_compiler::world::{MapWorld, Space};
use rye_engine::disk_world::{CachedWorld, DiskWorld, Watcher};
use rye_engine::keys::TrustStore;
use rye_snapshots::standard_library;

/// Number of edits of one run. After each edit, the project is checked incrementally and from scratch.
const EDITS: usize = 30;
const RUNS: u64 = 3;

type SpaceFiles = BTreeMap<(Space, String), Vec<u8>>;

/// A seeded pseudo-random generator (splitmix64).
struct SeededRng(u64);

impl SeededRng {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % n as u64).unwrap()
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

fn files_of(root: &Path, folder: &Path, into: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_of(root, &path, into);
        } else if path.starts_with(root.join(".ai")) {
            into.insert(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap());
        }
    }
}

fn project(name: &str) -> BTreeMap<String, Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let mut files = BTreeMap::new();
    files_of(&root, &root.join(".ai"), &mut files);
    files
}

/// Files whose contents affect the diagnostics of other files.
const RELATED_FILES: [(&str, &str); 12] = [
    (
        ".ai/tools/mill/probe.yaml",
        "description: Probes.\nkind: command\ncommand: [echo, hi]\nparameters: {type: object}\n",
    ),
    (".ai/tools/mill/probe.yaml", "description: Probes much.\nkind: command\ncommand: [echo\n"),
    (".ai/knowledge/mill/rules.yaml", "name: rules\ndescription: Twice there.\n"),
    (".ai/knowledge/mill/unheard.md", "Nobody asks for me."),
    (".ai/knowledge/agent/threads/t-1.md", "---\nname: [\n---\n\nAn export that does not parse."),
    (".ai/knowledge/rye/agent/core/Identity.md", "Somebody else: ${inputs.a}."),
    (".ai/directives/rye/agent/core/base.md", "```xml\n<directive name=\"base\"/>\n```\n\nShadowing.\n"),
    (
        ".ai/directives/starter.md",
        "```xml\n<directive name=\"starter\"><metadata><description>Starts.</description><limits spend=\"0.20\"/><permissions><execute><directive>mill.*</directive><tool>mill.*</tool></execute><fetch><knowledge>mill.*</knowledge></fetch></permissions></metadata><outputs><output name=\"url\"/></outputs></directive>\n```\n\nCall `rye_execute(item_type=\"directive\", item_id=\"mill/greedy\")`, then read `result.outputs.url`; use `rye_mill_probe(x)`.\n",
    ),
    (
        ".ai/directives/mill/child.md",
        "```xml\n<directive name=\"child\" extends=\"starter\"><metadata><description>x</description><limits spend=\"5\" depth=\"1\"/></metadata><inputs><input name=\"a\" enum=\"x,y\"/></inputs></directive>\n```\n\nDo {input:b?}.\n",
    ),
    (
        ".ai/config/agent/hooks.yaml",
        "hooks:\n  - {id: n, event: thread_started, condition: 'inputs.a == \"z\"', action: {primary: fetch, item_type: knowledge, item_id: mill/unheard}}\n  - {id: v, event: build_system_prompt, position: before, action: {primary: fetch, item_type: knowledge, item_id: rye/agent/core/Identity}}\n",
    ),
    (".ai/config/agent/resilience.yaml", "limits: {turns: 3, spend: 0.01}\ntool_preload: {max_tokens: 50}\n"),
    (".ai/config/check.yaml", "levels: {hook::always: allow, hook::nonsense: error}\n"),
];

struct ProjectEditor {
    rng: SeededRng,
    files: SpaceFiles,
    /// Texts that edits insert: texts of earlier files, and variants.
    pool: Vec<(String, Vec<u8>)>,
}

impl ProjectEditor {
    fn new(seed: u64) -> Self {
        let (forty, twin) = (project("cases/planted/forty"), project("cases/planted/twin"));
        let deploy = project("../examples/deploy");
        let more = RELATED_FILES.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()));
        let pool = forty.clone().into_iter().chain(twin.clone()).chain(deploy).chain(more).collect();
        let begin = if seed.is_multiple_of(2) { forty } else { twin };
        let files = begin.into_iter().map(|(path, bytes)| ((Space::Project, path), bytes)).collect();
        Self { rng: SeededRng(seed), files, pool }
    }

    fn world<'b>(&self, system: &'b MapWorld<'b>) -> MapWorld<'b> {
        let mut world = MapWorld::with_fallback(system);
        for ((space, path), bytes) in &self.files {
            world.insert(*space, path, bytes);
        }
        world
    }

    fn space(&mut self) -> Space {
        if self.rng.below(5) == 0 { Space::User } else { Space::Project }
    }

    /// Applies a random edit; returns a description of it.
    fn edit(&mut self) -> String {
        let keys: Vec<_> = self.files.keys().cloned().collect();
        let at = self.rng.of(&keys).clone();
        match self.rng.below(10) {
            0 => {
                self.files.remove(&at);
                format!("removed {at:?}")
            }
            1 => {
                let bytes = self.files.remove(&at).unwrap();
                let renamed = match self.rng.below(3) {
                    0 => self.rng.of(&keys).1.clone(),
                    1 => at.1.replacen("mill", "mil", 1),
                    _ => at.1.replace(".md", "_2.md"),
                };
                let to = (self.space(), renamed);
                self.files.insert(to.clone(), bytes);
                format!("renamed {at:?} to {to:?}")
            }
            2 => {
                let from = self.rng.of(&keys).clone();
                self.files.insert(at.clone(), self.files[&from].clone());
                format!("copied {from:?} over {at:?}")
            }
            3..=6 => {
                let (path, bytes) = self.rng.of(&self.pool).clone();
                let to = (self.space(), path);
                self.files.insert(to.clone(), bytes);
                format!("wrote another {to:?}")
            }
            _ => {
                let mut text: Vec<String> =
                    String::from_utf8_lossy(&self.files[&at]).lines().map(str::to_owned).collect();
                if text.is_empty() {
                    text.push(String::new());
                }
                let (a, b) = (self.rng.below(text.len()), self.rng.below(text.len()));
                match self.rng.below(4) {
                    0 => drop(text.remove(a)),
                    1 => text.swap(a, b),
                    2 => text[a] = text[a].replacen("mill/", "mil/", 1),
                    _ => {
                        let (_, other) = self.rng.of(&self.pool).clone();
                        let other = String::from_utf8_lossy(&other).into_owned();
                        let lines: Vec<&str> = other.lines().collect();
                        if !lines.is_empty() {
                            text.insert(a, (*self.rng.of(&lines)).to_owned());
                        }
                    }
                }
                let mut bytes = (text.join("\n") + "\n").into_bytes();
                if self.rng.below(25) == 0 {
                    bytes.push(0xff);
                }
                self.files.insert(at.clone(), bytes);
                format!("changed {at:?}")
            }
        }
    }
}

/// Renders a report with texts and file positions instead of source numbers.
fn render_report(report: &CheckReport) -> Vec<String> {
    let one = |diagnostic: &Diagnostic| {
        let labels = diagnostic.labels().into_iter().map(|label| {
            let path = report.sources.get(label.span.source).unwrap().path.clone();
            format!(
                "{path}:{}..{} `{}` {}",
                label.span.start,
                label.span.end,
                report.sources.slice(label.span),
                label.text
            )
        });
        let labels: Vec<String> = labels.collect();
        let (code, severity, help) = (diagnostic.code(), diagnostic.severity(), diagnostic.help());
        format!("{code} {severity:?} {} {labels:?} {help:?}", diagnostic.message())
    };
    report.diagnostics.iter().map(one).collect()
}

fn same(again: &CheckReport, anew: &CheckReport, history: &[String]) {
    let (again_told, anew_told) = (render_report(again), render_report(anew));
    let only = |a: &[String], b: &[String]| a.iter().filter(|t| !b.contains(t)).cloned().collect::<Vec<_>>();
    assert_eq!(
        (only(&again_told, &anew_told), only(&anew_told, &again_told)),
        (vec![], vec![]),
        "again and anew differ after {history:#?}"
    );
    assert_eq!(again_told, anew_told, "another order after {history:#?}");
    assert_eq!(
        (again.files, again.directives, &again.levels),
        (anew.files, anew.directives, &anew.levels),
        "after {history:#?}"
    );
}

#[test]
fn recheck_after_any_edit_equals_check_from_scratch() {
    let system = standard_library();
    let (mut least, mut composed, mut anew_composed) = (usize::MAX, 0, 0);
    for seed in 0..RUNS {
        let mut editor = ProjectEditor::new(seed);
        let mut memory = CheckSession::new();
        let mut history = vec![format!("run {seed}")];
        for step in 0..EDITS {
            if step > 0 {
                // Sometimes two edits happen between two checks.
                for _ in 0..=usize::from(editor.rng.below(4) == 0) {
                    history.push(editor.edit());
                }
            }
            let world = editor.world(&system);
            let selection = if editor.rng.below(4) == 0 {
                Selection::Paths(vec![".ai/directives/mill".to_owned()])
            } else {
                Selection::All
            };
            let (again, anew) = (memory.check(&world, &selection), check(&world, &selection));
            same(&again, &anew, &history);
            if step > 0 {
                least = least.min(again.work.composed);
                composed += again.work.composed;
                anew_composed += anew.work.composed;
            }
        }
    }
    // The re-checks have reported the same diagnostics with less work.
    assert_eq!(least, 0);
    assert!(composed * 2 < anew_composed, "{composed} of {anew_composed} directives were composed again");
}

/// Writes only the files that differ, so that the kernel reports no other file as changed.
fn sync(roots: &[(Space, PathBuf); 2], before: &SpaceFiles, now: &SpaceFiles) {
    for ((space, path), bytes) in now {
        if before.get(&(*space, path.clone())) != Some(bytes) {
            let file = roots.iter().find(|(of, _)| of == space).unwrap().1.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, bytes).unwrap();
        }
    }
    for (space, path) in before.keys().filter(|key| !now.contains_key(*key)) {
        fs::remove_file(roots.iter().find(|(of, _)| of == space).unwrap().1.join(path)).unwrap();
    }
}

/// Runs the same edits on a disk, with a world that caches files until the kernel reports a change.
#[test]
fn cached_world_with_watcher_equals_a_new_world() {
    let (mut kept_looks, mut anew) = (0, 0);
    for seed in 0..RUNS {
        let folder = tempfile::tempdir().unwrap();
        let roots = [(Space::Project, folder.path().join("project")), (Space::User, folder.path().join("user"))];
        let mut editor = ProjectEditor::new(seed + 10);
        let mut on_disk = SpaceFiles::new();
        for (_, root) in &roots {
            fs::create_dir_all(root.join(".ai")).unwrap();
        }
        let open = || {
            let [(_, project), (_, user)] = &roots;
            DiskWorld::open(Some(project), Some(user), rye_stdlib::files(), TrustStore::default()).unwrap()
        };
        sync(&roots, &on_disk, &editor.files);
        on_disk.clone_from(&editor.files);
        let mut watcher = Watcher::new(roots.to_vec()).unwrap();
        let mut kept = CachedWorld::new(open());
        let mut memory = CheckSession::new();
        let mut history = vec![format!("run {seed}")];
        for step in 0..EDITS {
            if step > 0 {
                for _ in 0..=usize::from(editor.rng.below(4) == 0) {
                    // Replacing a folder by a file is not covered here.
                    let before = editor.files.clone();
                    let what = editor.edit();
                    let is_folder =
                        |path: &str| editor.files.keys().any(|(_, other)| other.starts_with(&format!("{path}/")));
                    if editor.files.keys().any(|(_, path)| is_folder(path)) {
                        editor.files = before;
                    } else {
                        history.push(what);
                    }
                }
                sync(&roots, &on_disk, &editor.files);
                on_disk.clone_from(&editor.files);
                if kept.invalidate(&watcher.take_changes().unwrap()) {
                    kept_looks += 1;
                } else {
                    kept = CachedWorld::new(open());
                    anew += 1;
                }
            }
            let (again, fresh) = (memory.check(&kept, &Selection::All), check(&open(), &Selection::All));
            same(&again, &fresh, &history);
            // A re-check without changes does no work.
            assert_eq!(memory.check(&kept, &Selection::All).work, CheckStats::default(), "after {history:#?}");
        }
    }
    assert!(kept_looks > anew, "{kept_looks} looks at what was kept, {anew} at a new world");
}

/// Uses a tool of the user space that only a grant matches: only the palette reads the tool.
#[test]
fn fault_of_a_palette_tool_is_reported_by_every_check() {
    let system = standard_library();
    let mut files = areas(2);
    let broken = "description: Probes.\nkind: command\ncommand: [echo\n";
    files.insert((Space::User, ".ai/tools/area1/other.yaml".into()), broken.as_bytes().to_vec());
    let mut editor = ProjectEditor { rng: SeededRng(0), files, pool: Vec::new() };
    let mut memory = CheckSession::new();
    for text in ["One.", "Two.", "Two."] {
        editor.files.insert((Space::Project, ".ai/knowledge/area0/note1.md".into()), text.as_bytes().to_vec());
        let world = editor.world(&system);
        let again = memory.check(&world, &Selection::All);
        assert!(render_report(&again).iter().any(|line| line.contains("user:.ai/tools/area1/other.yaml")), "{text}");
        same(&again, &check(&world, &Selection::All), &[text.to_owned()]);
    }
}

/// Faults in user-space items are reported while a project item reads the items, and not if it only names them.
#[test]
fn user_space_faults_are_reported_while_a_project_item_reads_them() {
    let system = standard_library();
    let directive = |inside: &str, body: &str| {
        format!(
            "```xml\n<directive name=\"a\"><metadata><description>x</description>{inside}</metadata></directive>\n```\n\n{body}\n"
        )
    };
    let grant = "<permissions><execute><tool>ut</tool></execute></permissions>";
    let named = directive(grant, "Do it.");
    let nothing = directive("<permissions/>", "Do it.");
    let called = directive("<permissions/>", "Call `rye_execute(item_type=\"tool\", item_id=\"ut\")`.");
    let brought = directive("<context><before>uk</before></context>", "Do it.");
    let fetched = directive("", "Call `rye_fetch(item_type=\"knowledge\", item_id=\"uk\")`.");
    let mut files = SpaceFiles::new();
    let tool = "description: x\nkind: nope\nbogus: 1\ncommand: [echo]\nparameters: {type: object}\n";
    files.insert((Space::User, ".ai/tools/ut.yaml".into()), tool.as_bytes().to_vec());
    files.insert((Space::User, ".ai/knowledge/uk.md".into()), b"---\nname: [\n---\n\nText.".to_vec());
    let mut editor = ProjectEditor { rng: SeededRng(0), files, pool: Vec::new() };
    let mut memory = CheckSession::new();
    let mut history = Vec::new();
    let texts =
        [&named, &nothing, &named, &called, &named, &nothing, &brought, &fetched, &brought, &nothing, &fetched, &named];
    for text in texts {
        editor.files.insert((Space::Project, ".ai/directives/a.md".into()), text.as_bytes().to_vec());
        history.push(text.clone());
        let world = editor.world(&system);
        let (again, anew) = (memory.check(&world, &Selection::All), check(&world, &Selection::All));
        same(&again, &anew, &history);
        let is_read = text == &named || text == &brought;
        assert_eq!(
            render_report(&anew).iter().any(|line| line.contains("user:")),
            is_read,
            "{:#?}",
            render_report(&anew)
        );
    }
}

/// Uses more patterns and palettes than the cache keeps: evicted entries are computed again.
#[test]
fn evicted_patterns_are_evaluated_again() {
    let system = standard_library();
    let mut editor = ProjectEditor { rng: SeededRng(0), files: areas(2), pool: Vec::new() };
    let mut memory = CheckSession::new();
    for round in (0..120).chain([3, 119, 0]) {
        let tools = format!("<tool>area0.*</tool><tool>rye.file-system.read{round}</tool><tool>areas{round}.*</tool>");
        let text = format!(
            "```xml\n<directive name=\"wide\"><metadata><description>x</description><permissions><execute>{tools}</execute></permissions></metadata></directive>\n```\n\nDo it.\n"
        );
        editor.files.insert((Space::Project, ".ai/directives/wide.md".into()), text.into_bytes());
        if round == 119 {
            // The grant of an evicted pattern matches a tool now.
            let probe = "description: Probes.\nkind: command\ncommand: [echo, hi]\nparameters: {type: object}\n";
            editor.files.insert((Space::Project, ".ai/tools/areas119/probe.yaml".into()), probe.as_bytes().to_vec());
        }
        let world = editor.world(&system);
        let (again, anew) = (memory.check(&world, &Selection::All), check(&world, &Selection::All));
        same(&again, &anew, &[format!("round {round}")]);
    }
}

/// Creates a project of areas, each with a base, rules that the base provides, and leaves with one note each.
fn areas(count: usize) -> SpaceFiles {
    let mut files = SpaceFiles::new();
    let mut put = |path: String, text: String| files.insert((Space::Project, path), text.into_bytes());
    for area in 0..count {
        put(format!(".ai/knowledge/area{area}/rules.md"), format!("Rules of area {area}."));
        put(
            format!(".ai/directives/area{area}/base.md"),
            format!(
                "```xml\n<directive name=\"base\" extends=\"rye/agent/core/base_execute_only\"><metadata><description>Area {area}.</description><context><before>area{area}/rules</before></context></metadata></directive>\n```\n\nContext only.\n"
            ),
        );
        put(
            format!(".ai/tools/area{area}/probe.yaml"),
            "description: Probes.\nkind: command\ncommand: [echo, hi]\nparameters: {type: object}\n".to_owned(),
        );
        for leaf in 0..9 {
            put(format!(".ai/knowledge/area{area}/note{leaf}.md"), format!("Note {leaf}."));
            put(
                format!(".ai/directives/area{area}/task{leaf}.md"),
                format!(
                    "```xml\n<directive name=\"task{leaf}\" extends=\"area{area}/base\"><metadata><description>Task {leaf}.</description><context><before>area{area}/note{leaf}</before></context><permissions><execute><tool>area{area}.*</tool></execute><fetch><knowledge>area{area}.*</knowledge></fetch></permissions></metadata></directive>\n```\n\nDo it.\n"
                ),
            );
        }
    }
    files
}

#[test]
fn recheck_recomputes_only_dependents() {
    let system = standard_library();
    let mut editor = ProjectEditor { rng: SeededRng(0), files: areas(20), pool: Vec::new() };
    let mut memory = CheckSession::new();
    let mut scan = |editor: &ProjectEditor| memory.check(&editor.world(&system), &Selection::All).work;
    let first = scan(&editor);
    assert_eq!(first.composed, 200);
    assert!(first.parsed > 420, "{first:?}");
    assert_eq!(scan(&editor), CheckStats { parsed: 0, composed: 0 });
    let mut after = |path: &str, change: &dyn Fn(String) -> Option<String>| {
        let key = (Space::Project, path.to_owned());
        let text = editor.files.remove(&key).map(|bytes| String::from_utf8(bytes).unwrap()).unwrap_or_default();
        if let Some(text) = change(text) {
            editor.files.insert(key, text.into_bytes());
        }
        let work = scan(&editor);
        (work.parsed, work.composed)
    };
    let louder = |text: String| Some(text + "\nLouder.\n");
    assert_eq!(after(".ai/directives/area3/task2.md", &louder), (1, 1));
    assert_eq!(after(".ai/knowledge/area3/note2.md", &louder), (1, 1));
    assert_eq!(after(".ai/knowledge/area3/rules.md", &louder), (1, 10));
    assert_eq!(after(".ai/directives/area3/base.md", &louder), (1, 10));
    // The leaves of the tool's area depend on the tool, and so do all bases, because a base may use every tool.
    assert_eq!(after(".ai/tools/area3/probe.yaml", &|text| Some(text.replace("Probes.", "Probes much."))), (1, 29));
    // A new file changes a list of names, which few items depend on.
    assert_eq!(after(".ai/knowledge/area3/more.md", &|_| Some("More.".to_owned())), (1, 0));
    assert_eq!(after(".ai/knowledge/area3/more.md", &|_| None), (0, 0));
    let copy = String::from_utf8(areas(1)[&(Space::Project, ".ai/directives/area0/task1.md".into())].clone()).unwrap();
    assert_eq!(after(".ai/directives/area9/task1.md", &|_| Some(copy.clone())), (1, 1));
    assert_eq!(after(".ai/directives/area9/task1.md", &|_| None), (0, 0));
    // Everything depends on settings, but only the settings files of both spaces are parsed again.
    assert_eq!(after(".ai/config/agent/resilience.yaml", &|_| Some("limits: {turns: 9}\n".to_owned())), (2, 199));
}
