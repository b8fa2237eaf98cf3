//! Hostile projects: the work of `check` and `assert` grows linearly with the size of a file, counted in allocations,
//! and the bounds of the language are reported.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::format_collect, reason = "tests")]

use rye_compiler::assertion::assert;
use rye_compiler::validate::{Selection, check};
use rye_compiler::world::MapWorld;

/// A project with a number of hostile parts.
type Shape = fn(usize) -> MapWorld<'static>;

/// Size of the smaller project of each pair; the larger one has four times as many parts.
const PARTS: usize = 100;

/// Returns a directive file with this metadata, further elements and body.
fn directive(name: &str, metadata: &str, elements: &str, body: &str) -> String {
    format!(
        "# D\n\n```xml\n<directive name=\"{name}\" version=\"1.0.0\">\n<metadata>{metadata}</metadata>\n{elements}\n\
         </directive>\n```\n\n{body}\n"
    )
}

fn single(metadata: &str, elements: &str, body: &str) -> MapWorld<'static> {
    MapWorld::new().project(".ai/directives/d.md", directive("d", metadata, elements, body))
}

fn repeat(parts: usize, part: impl Fn(usize) -> String) -> String {
    (0..parts).map(part).collect()
}

fn granted(inside: &str) -> String {
    format!("<permissions><execute>{inside}</execute></permissions>")
}

fn hooks(parts: usize) -> MapWorld<'static> {
    let hook = |i| {
        format!(
            "  - id: h{i}\n    event: thread_started\n    position: before\n    condition: 'inputs.x == \"v{i}\"'\n    \
             action: {{ primary: fetch, item_type: knowledge, item_id: k }}\n"
        )
    };
    single("", "<inputs><input name=\"x\" type=\"string\" default=\"y\">x</input></inputs>", "{input:x}")
        .project(".ai/knowledge/k.md", "# K\n\ntext\n")
        .project(".ai/config/agent/hooks.yaml", format!("hooks:\n{}", repeat(parts, hook)))
}

/// Returns directives that may all start each other.
fn mutual_starts(parts: usize) -> MapWorld<'static> {
    let metadata = granted("<directive>d*</directive>");
    (0..parts).fold(MapWorld::new(), |world, i| {
        world.project(&format!(".ai/directives/d{i}.md"), directive(&format!("d{i}"), &metadata, "", "text"))
    })
}

/// Allocations of one call.
fn allocations(call: impl FnOnce()) -> u64 {
    allocation_counter::measure(call).count_total
}

/// Asserts that four times the parts cost at most six times the allocations.
fn assert_linear(name: &str, world: impl Fn(usize) -> MapWorld<'static>, run: impl Fn(&MapWorld<'_>)) {
    let count = |parts: usize| {
        let world = world(parts);
        allocations(|| run(&world))
    };
    let (small, large) = (count(PARTS), count(4 * PARTS));
    assert!(large <= 6 * small, "{name}: {small} allocations for {PARTS} parts, {large} for {}", 4 * PARTS);
}

#[test]
fn check_of_hostile_files_is_linear() {
    let run = |world: &MapWorld<'_>| {
        check(world, &Selection::All);
    };
    let shapes: [(&str, Shape); 9] = [
        ("unknown elements", |n| single(&repeat(n, |i| format!("<a{i}/>")), "", "text")),
        ("calls on one line", |n| {
            single("", "", &repeat(n, |i| format!("rye_execute(item_type=\"tool\", item_id=\"x/y{i}\") ")))
        }),
        ("calls on many lines", |n| {
            single("", "", &repeat(n, |i| format!("rye_execute(item_type=\"tool\", item_id=\"x/y{i}\")\n")))
        }),
        ("tool patterns", |n| single(&granted(&repeat(n, |i| format!("<tool>a{i}.*</tool>"))), "", "text")),
        ("overlapping patterns", |n| single(&granted(&repeat(n, |i| format!("<tool>*a*{i}*</tool>"))), "", "text")),
        ("placeholders", |n| {
            let inputs = "<inputs><input name=\"x\" type=\"string\" default=\"y\">x</input></inputs>";
            single("", inputs, &"{input:x}".repeat(n * 20))
        }),
        ("undeclared inputs", |n| single("", "", &repeat(n, |i| format!("{{input:x{i}}} ")))),
        ("inputs", |n| {
            let input = |i| format!("<input name=\"x{i}\" type=\"string\" default=\"y\">x</input>");
            single("", &format!("<inputs>{}</inputs>", repeat(n, input)), &repeat(n, |i| format!("{{input:x{i}}} ")))
        }),
        ("hooks", hooks),
    ];
    for (name, world) in shapes {
        assert_linear(name, world, run);
    }
}

#[test]
fn assert_of_directives_that_start_each_other_is_bounded() {
    let run = |world: &MapWorld<'_>| {
        assert(world, &[]);
    };
    // Each directive leads to a bounded number of threads, whatever the number of directives.
    assert_linear("mutual starts", |n| mutual_starts(n * 2), run);
    let report = assert(&mutual_starts(500), &[]).report;
    assert!(report.incomplete, "the report says that the search was cut off");
    assert!(report.threads <= 500 * 401, "{}", report.threads);
}

#[test]
fn files_beyond_the_bounds_are_reported() {
    let text = |world: &MapWorld<'_>| {
        let report = check(world, &Selection::All);
        report
            .diagnostics
            .iter()
            .map(|one| format!("{}: {one}; {:?}", one.code(), one.help()))
            .collect::<Vec<_>>()
            .join("\n")
    };
    let found = text(&single("", "", &"{input:x}".repeat(200_000)));
    assert!(found.contains("item::unreadable") && found.contains("1048576"), "{found}");
    let found = text(&hooks(1_001));
    assert!(found.contains("1001 hooks") && found.contains("at most 1000"), "{found}");
    let found = text(&single(&granted(&repeat(1_001, |i| format!("<tool>a{i}.*</tool>"))), "", "text"));
    assert!(found.contains("1001 grants") && found.contains("at most 1000"), "{found}");
    let input = |i| format!("<input name=\"x{i}\" type=\"string\" default=\"y\">x</input>");
    let found = text(&single("", &format!("<inputs>{}</inputs>", repeat(501, input)), "text"));
    assert!(found.contains("more than 500 inputs"), "{found}");
}
