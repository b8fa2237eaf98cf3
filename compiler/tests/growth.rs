//! Hostile projects: the work of `check`, `assert`, `lock`, renderings, comparisons, `fmt` and calls of templates,
//! counted in allocations, and the memory that they use at once grow linearly with the size of a file. The bounds of
//! the language are reported.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::format_collect, reason = "tests")]

#[path = "growth/counting_world.rs"]
mod counting_world;

use std::cell::Cell;

use counting_world::CountingWorld;
use rye_compiler::assertion::{MAX_STARTS, assert};
use rye_compiler::compile::{Compilation, CompileRequest, compile};
use rye_compiler::edit::{format, format_data};
use rye_compiler::expand::expand;
use rye_compiler::item::Items;
use rye_compiler::item_graph::item_graph;
use rye_compiler::report::closure::{StartGraph, compile_reachable};
use rye_compiler::report::diff::{DiffSide, diff, diff_trees};
use rye_compiler::report::lock::{entry_of, lock_entries};
use rye_compiler::report::matrix::build_matrix;
use rye_compiler::report::render::{self, dot, graph_page, mermaid};
use rye_compiler::report::summary::PlanSummary;
use rye_compiler::report::why::explain;
use rye_compiler::report::workspace_trust::requirements_of_workspace;
use rye_compiler::semantics::glob::inclusion::MAX_STEPS;
use rye_compiler::semantics::glob::{Coverage, covers};
use rye_compiler::validate::{Selection, check};
use rye_compiler::world::{ItemKind, MapWorld, Space, World};
use rye_grammar::ItemId;
use rye_grammar::capability::MAX_WILDCARDS;

/// A project with a number of hostile parts.
type Shape = fn(usize) -> MapWorld<'static>;

/// A command on a project.
type ProjectRun = fn(&MapWorld<'_>);

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

/// Returns directives, each of which grants a tool of its own.
fn tools_by_name(parts: usize) -> MapWorld<'static> {
    let tool = "version: 1.0.0\ndescription: A tool.\nkind: command\ncommand: [\"true\"]\n";
    (0..parts).fold(MapWorld::new(), |world, i| {
        let grant = granted(&format!("<tool>t{i}</tool>"));
        let world = world.project(&format!(".ai/tools/t{i}.yaml"), tool);
        world.project(&format!(".ai/directives/d{i}.md"), directive(&format!("d{i}"), &grant, "", "text"))
    })
}

/// Returns directives that all include the same knowledge with repeated paragraphs. Each body repeats one paragraph of
/// the knowledge.
fn shared_paragraphs(parts: usize) -> MapWorld<'static> {
    let paragraph = |i: usize| format!("{}\n\n", format!("Rule {} of the house holds. ", i % 25).repeat(10));
    let world = MapWorld::new().project(".ai/knowledge/k.md", repeat(100, paragraph));
    (0..parts).fold(world, |world, i| {
        let context = "<context><system>k</system></context>";
        let body = format!("Part {i}.\n\n{}", paragraph(i));
        world.project(&format!(".ai/directives/d{i}.md"), directive(&format!("d{i}"), context, "", &body))
    })
}

/// Returns directives that may all start each other.
fn mutual_starts(parts: usize) -> MapWorld<'static> {
    let metadata = granted("<directive>d*</directive>");
    (0..parts).fold(MapWorld::new(), |world, i| {
        world.project(&format!(".ai/directives/d{i}.md"), directive(&format!("d{i}"), &metadata, "", "text"))
    })
}

/// Returns the number of allocations of one call.
fn allocations(call: impl FnOnce()) -> u64 {
    allocation_counter::measure(call).count_total
}

/// Maximum memory that an analysis or rendering of a hostile project of this file uses at once, in bytes.
const MAX_PEAK_BYTES: u64 = 48 << 20;

/// Asserts that four times the parts cost at most six times the allocations, and at most six times the memory at once.
fn assert_linear(name: &str, world: impl Fn(usize) -> MapWorld<'static>, run: impl Fn(&MapWorld<'_>)) {
    let cost = |parts: usize| {
        let world = world(parts);
        let measured = allocation_counter::measure(|| run(&world));
        (measured.count_total, measured.bytes_max)
    };
    let ((small, low), (large, high)) = (cost(PARTS), cost(4 * PARTS));
    assert!(large <= 6 * small, "{name}: {small} allocations for {PARTS} parts, {large} for {}", 4 * PARTS);
    assert_bounded_memory(name, low, high);
}

/// Asserts that the memory for four times the parts is at most six times the memory for the parts, and bounded.
fn assert_bounded_memory(name: &str, low: u64, high: u64) {
    assert!(high <= 6 * low + (1 << 20), "{name}: {low} bytes at once for {PARTS} parts, {high} for {}", 4 * PARTS);
    assert!(high <= MAX_PEAK_BYTES, "{name}: {high} bytes at once");
}

/// Returns directives that share a text of a hook with placeholders.
fn shared_hook_text(directives: usize, placeholders: usize) -> MapWorld<'static> {
    let hook = "hooks:\n  - { id: h, event: thread_started, position: after, action: { primary: fetch, item_type: knowledge, item_id: k } }\n";
    let text = format!("# K\n\n{}\n", repeat(placeholders, |_| "${thread_id} ".to_owned()));
    let world = MapWorld::new().project(".ai/knowledge/k.md", text).project(".ai/config/agent/hooks.yaml", hook);
    let body = "A rule of the house holds.\n".repeat(400);
    (0..directives).fold(world, |world, i| {
        world.project(&format!(".ai/directives/d{i}.md"), directive(&format!("d{i}"), "", "", &body))
    })
}

#[test]
fn check_reads_the_text_of_a_hook_once_for_all_directives() {
    let cost = |directives: usize, placeholders: usize| {
        let world = shared_hook_text(directives, placeholders);
        i64::try_from(allocations(|| drop(check(&world, &Selection::All)))).unwrap()
    };
    // The placeholders cost the same for 60 directives and for 20.
    let of_placeholders = |directives| cost(directives, 200) - cost(directives, 0);
    let more = of_placeholders(60) - of_placeholders(20);
    assert!(more < 40 * 200, "{more} allocations for 40 more directives");
}

#[test]
fn check_stores_no_hooks_for_directives_that_their_conditions_exclude() {
    let cost = |directives: usize, hooks: usize| {
        let hook = |i| {
            format!(
                "  - id: h{i}\n    event: thread_started\n    position: after\n    condition: 'directive contains \"other{i}/\"'\n    \
                 action: {{ primary: fetch, item_type: knowledge, item_id: k }}\n"
            )
        };
        let world = shared_hook_text(directives, 0);
        let world = world.project(".ai/config/agent/hooks.yaml", format!("hooks:\n{}", repeat(hooks, hook)));
        let measured = allocation_counter::measure(|| drop(check(&world, &Selection::All)));
        i64::try_from(measured.bytes_total).unwrap()
    };
    let of_hooks = |directives| cost(directives, 200) - cost(directives, 1);
    let more = of_hooks(60) - of_hooks(20);
    assert!(more < 40 * 1_000, "{more} bytes for 40 more directives");
}

#[test]
fn check_converts_the_definition_of_a_tool_once_for_all_palettes() {
    let cost = |directives: usize, properties: usize| {
        let property = |i| format!("    p{i}: {{ type: string }}\n");
        let schema = format!(
            "parameters:\n  type: object\n  properties:\n    p: {{ type: string }}\n{}",
            repeat(properties, property)
        );
        let tool = "version: 1.0.0\ndescription: A tool.\nkind: command\ncommand: [\"true\"]\n";
        let world = plannable(MapWorld::new()).project(".ai/tools/big.yaml", format!("{tool}{schema}"));
        let world = (0..directives).fold(world, |world, i| {
            let grant = granted(&format!("<tool>big</tool><tool>t{i}</tool>"));
            let world = world.project(&format!(".ai/tools/t{i}.yaml"), tool);
            world.project(&format!(".ai/directives/d{i}.md"), directive(&format!("d{i}"), &grant, "", "text"))
        });
        i64::try_from(allocations(|| drop(check(&world, &Selection::All)))).unwrap()
    };
    let of_properties = |directives| cost(directives, 100) - cost(directives, 0);
    let more = of_properties(60) - of_properties(20);
    assert!(more < 40 * 100, "{more} allocations for 40 more directives");
}

#[test]
fn check_of_hostile_files_is_linear() {
    let run = |world: &MapWorld<'_>| {
        check(world, &Selection::All);
    };
    let shapes: [(&str, Shape); 12] = [
        ("directives that grant one tool each", tools_by_name),
        ("directives that share knowledge with repeated paragraphs", shared_paragraphs),
        ("repeated paragraphs", |n| {
            single("", "", &format!("{}\n\n", "A word of a rule that every answer keeps to. ".repeat(8)).repeat(n))
        }),
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

/// Returns patterns with different literals, each with the maximum number of wildcards of a pattern.
fn starred_patterns(parts: usize) -> Vec<String> {
    let literals = |i: usize| format!("*{}", char::from(b'a' + u8::try_from(i % 26).unwrap()));
    (0..parts).map(|i| format!("{}{i}", literals(i).repeat(MAX_WILDCARDS))).collect()
}

#[test]
fn patterns_with_the_most_wildcards_cost_a_bounded_number_of_operations_each() {
    let grants = |parts: usize| {
        let tools = |pattern: &String| format!("<tool>{pattern}</tool>");
        granted(&starred_patterns(parts).iter().map(tools).collect::<String>())
    };
    let world = |parts: usize| {
        let child = directive("d", &grants(parts), "", "text").replacen("version=", "extends=\"base\" version=", 1);
        let base =
            directive("base", &grants(parts).replace("<permissions>", "<permissions seal=\"true\">"), "", "text");
        plannable(MapWorld::new().project(".ai/directives/d.md", child).project(".ai/directives/base.md", base))
    };
    let runs: [(&str, ProjectRun); 3] = [
        ("check", |world| drop(check(world, &Selection::All))),
        ("plan", |world| drop(compile(world, &CompileRequest::new(ItemId::parse("d").unwrap())))),
        ("assert", |world| drop(assert(world, &[]))),
    ];
    for (name, run) in runs {
        let count = |parts: usize| {
            let world = world(parts);
            allocations(|| run(&world))
        };
        let (small, large) = (count(3), count(12));
        assert!(large <= 6 * small, "{name}: {small} and {large} allocations");
    }
}

#[test]
fn search_with_many_patterns_stops_after_a_bounded_number_of_operations() {
    let patterns: Vec<String> = starred_patterns(200).iter().map(|one| format!("rye.execute.tool.{one}")).collect();
    let parents: Vec<&str> = patterns.iter().map(String::as_str).collect();
    let child = format!("rye.execute.tool.{}*", "*z".repeat(MAX_WILDCARDS - 1));
    let mut found = None;
    let operations = allocations(|| found = Some(covers(&parents, &child)));
    assert_eq!(found, Some(Coverage::TooComplex));
    assert!(operations <= 2 * u64::try_from(MAX_STEPS).unwrap(), "{operations}");
}

#[test]
fn patterns_with_hundreds_of_wildcards_are_refused_without_a_search() {
    let long = |letter: &str| format!("<tool>*{}</tool>", format!("*{letter}").repeat(200));
    let world = plannable(single(&granted(&(long("a") + &long("b"))), "", "text"));
    let mut codes = String::new();
    let operations = allocations(|| {
        let report = check(&world, &Selection::All);
        codes = report.diagnostics.iter().map(|one| format!("{}: {one}\n", one.code())).collect();
        drop(compile(&world, &CompileRequest::new(ItemId::parse("d").unwrap())));
        drop(assert(&world, &[]));
    });
    assert_eq!(codes.matches("syntax::capability").count(), 2, "{codes}");
    assert!(operations < 100_000, "{operations} allocations");
}

/// Combinations of inputs share the parsed files of one plan, so that each costs a fraction of a compilation.
#[test]
fn combinations_of_inputs_share_the_parsed_files() {
    let world = |words: usize| {
        let words: Vec<String> = (0..words).map(|i| format!("\"w{i}\"")).collect();
        let condition = format!("inputs.a in [{}]", words.join(", "));
        let hook = format!(
            "hooks:\n  - {{ id: h, event: thread_started, condition: '{condition}', action: {{ primary: fetch, item_type: knowledge, item_id: k }} }}\n"
        );
        let inputs = "<inputs><input name=\"a\" required=\"true\"/></inputs>";
        let metadata = format!(
            "<hooks>{}</hooks>",
            repeat(40, |i| {
                format!("<hook id=\"own{i}\" event=\"after_step\"><when>turn == {}</when><continue/></hook>", i + 1)
            })
        );
        let world = single(&metadata, inputs, "{input:a}").project(".ai/knowledge/k.md", "A rule.");
        plannable(world.project(".ai/config/agent/hooks.yaml", hook))
    };
    let reads = |words: usize| {
        let world = CountingWorld { world: world(words), reads: Cell::new(0) };
        build_matrix(&world, &CompileRequest::new(ItemId::parse("d").unwrap())).unwrap();
        world.reads.get()
    };
    // Files are read for each context, whatever the number of combinations is.
    assert_eq!(reads(64), reads(16));
    let cost = |words: usize| {
        let world = world(words);
        allocations(|| {
            let found = build_matrix(&world, &CompileRequest::new(ItemId::parse("d").unwrap())).unwrap();
            assert_eq!((found.combinations, found.contexts.len()), (words + 1, 2));
        })
    };
    let one = {
        let (world, mut inputs) = (world(64), serde_json::Map::new());
        inputs.insert("a".to_owned(), "w1".into());
        let request = CompileRequest { inputs: Some(inputs), ..CompileRequest::new(ItemId::parse("d").unwrap()) };
        allocations(|| assert!(compile(&world, &request).value.is_some()))
    };
    let more = cost(64) - cost(16);
    // Without shared files, each combination costs more than a compilation.
    assert!(3 * more < 2 * 48 * one, "{more} allocations for 48 more combinations, {one} for a compilation");
}

#[test]
fn assert_of_directives_that_start_each_other_is_bounded() {
    let run = |world: &MapWorld<'_>| {
        assert(world, &[]);
    };
    // The number of considered starts is bounded, whatever the number of directives.
    assert_linear("mutual starts", |n| mutual_starts(n * 2), run);
    let report = assert(&mutual_starts(500), &[]).report;
    assert!(report.incomplete, "the report says that the search was cut off");
    assert!(report.threads <= 500 + MAX_STARTS, "{}", report.threads);
}

/// Returns a directive that repeats a long default value this many times.
fn repeated_value(bytes: usize, times: usize) -> MapWorld<'static> {
    let value = "v".repeat(bytes);
    let inputs = format!("<inputs><input name=\"x\" type=\"string\" default=\"{value}\">x</input></inputs>");
    let fetch = "hooks:\n  - id: h\n    event: thread_started\n    position: before\n    action: { primary: fetch, item_type: knowledge, item_id: k }\n";
    single("", &inputs, &"{input:x}".repeat(times))
        .project(".ai/knowledge/k.md", format!("# K\n\n{}\n", "${inputs.x}".repeat(times)))
        .project(".ai/config/agent/hooks.yaml", fetch)
}

/// Adds limits and a model, so that the project has plans.
fn plannable(world: MapWorld<'static>) -> MapWorld<'static> {
    let file = |world: MapWorld<'static>, name: &str, text: &'static str| {
        world.with(Space::System, &format!(".ai/config/agent/{name}.yaml"), text)
    };
    let world = file(world, "models", "{ default_provider: main, default_tier: general }");
    let world = file(
        world,
        "providers/main",
        "wire: anthropic\nbase_url: https://main.test\ntiers: { general: m }\nmodels:\n  - { id: m, context_window: \
         9000000, max_output: 500, prices: { input: 1, output: 5 } }\n",
    );
    file(
        world,
        "resilience",
        "limits: { turns: 15, tokens: 9000000, spend: 500, spawns: 10, depth: 5, duration_seconds: 600, output: 500 }\n",
    )
}

fn plan(world: &MapWorld<'_>) -> Compilation {
    let request = CompileRequest::new(ItemId::parse("d").unwrap()).with_inputs(serde_json::Map::new());
    let checked = compile(world, &request);
    let codes: Vec<String> = checked.diagnostics.iter().map(|one| format!("{}: {one}", one.code())).collect();
    checked.value.unwrap_or_else(|| panic!("{codes:?}"))
}

#[test]
fn renderings_of_hostile_plans_are_linear() {
    let inputs = |n: usize| {
        let input = |i| format!("<input name=\"x{i}\" type=\"string\" default=\"y\">x</input>");
        single("", &format!("<inputs>{}</inputs>", repeat(n, input)), &repeat(n, |i| format!("{{input:x{i}}} ")))
    };
    let shapes: [(&str, &dyn Fn(usize) -> MapWorld<'static>); 5] = [
        ("hooks", &|n| hooks(n)),
        ("inputs", &inputs),
        ("one long line", &|n| single("", "", &"word ".repeat(n * 100))),
        ("many lines", &|n| single("", "", &"word\n".repeat(n * 100))),
        ("values", &|n| repeated_value(100, n * 10)),
    ];
    let render = |name: &str, world: &MapWorld<'_>, compilation: &Compilation| -> usize {
        let summary = || PlanSummary::new(world, None, compilation).unwrap();
        let json = || render::json::render(compilation, Vec::new());
        match name {
            "text" => render::text::render(compilation, &summary()).len(),
            "html" => render::html::render(compilation, &summary()).len(),
            "json" => serde_json::to_string(&json()).unwrap().len(),
            "prompt" => render::prompt::render(compilation, Some(80)).len(),
            "diff" => serde_json::to_string(&diff(Some(&json()), None)).unwrap().len(),
            _ => explain(world, compilation, "d").map_or(0, |found| found.len()),
        }
    };
    for (shape, world) in shapes {
        let sizes = [PARTS, 4 * PARTS].map(|parts| {
            let world = plannable(world(parts));
            let compilation = plan(&world);
            (world, compilation)
        });
        for name in ["text", "html", "json", "prompt", "diff", "why"] {
            let [(small, low, short), (large, high, long)] = [0, 1].map(|at: usize| {
                let (world, compilation) = &sizes[at];
                let mut length = 0;
                let measured = allocation_counter::measure(|| length = render(name, world, compilation));
                (measured.count_total, measured.bytes_max, length)
            });
            assert_bounded_memory(&format!("{shape}, {name}"), low, high);
            assert!(large <= 6 * small + 1_000, "{shape}, {name}: {small} and {large} allocations");
            assert!(long <= 6 * short + 10_000, "{shape}, {name}: {short} and {long} bytes");
        }
    }
}

/// Returns the id of the project's first directive.
fn first_directive(world: &MapWorld<'_>) -> ItemId {
    let mut listed = world.list(ItemKind::Directive).unwrap().into_iter();
    listed.find(|entry| entry.space == Space::Project).unwrap().id
}

#[test]
fn graph_trust_list_and_the_plan_of_a_directive_are_linear() {
    let shapes: [(&str, Shape); 3] = [
        ("directives that grant one tool each", tools_by_name),
        ("directives that share knowledge with repeated paragraphs", shared_paragraphs),
        ("hooks", hooks),
    ];
    let graph = |world: &MapWorld<'_>| {
        let graph = item_graph(world, None);
        let drawing = graph.draw(graph.readable_detail());
        let page = graph_page::render(&graph, graph.readable_detail(), "p");
        assert!(mermaid::render(&drawing).len() + dot::render(&drawing).len() + page.len() > 0);
    };
    let trust = |world: &MapWorld<'_>| drop(requirements_of_workspace(world));
    let plan = |world: &MapWorld<'_>| assert!(compile_reachable(world, &first_directive(world)).is_ok());
    let lock = |world: &MapWorld<'_>| assert!(lock_entries(world, &first_directive(world)).is_ok());
    let runs: [(&str, ProjectRun); 4] = [("graph", graph), ("trust", trust), ("plan", plan), ("lock", lock)];
    for (shape, world) in shapes {
        for (name, run) in runs {
            assert_linear(&format!("{shape}, {name}"), |parts| plannable(world(parts)), run);
        }
    }
}

#[test]
fn lock_of_directives_that_start_each_other_compiles_each_once() {
    let starts = granted("<directive>c*</directive>");
    let world = |parts: usize| {
        (0..parts).fold(MapWorld::new(), |world, i| {
            let name = format!("c{i}");
            world.project(&format!(".ai/directives/{name}.md"), directive(&name, &starts, "", "text"))
        })
    };
    let lock = |world: &MapWorld<'_>| {
        let ids: Vec<ItemId> = world.list(ItemKind::Directive).unwrap().into_iter().map(|entry| entry.id).collect();
        let mut graph = StartGraph::new(world, |plans| entry_of(&plans.unwrap())).unwrap();
        graph.compile_closures(&ids);
        assert_eq!(graph.into_values().len(), ids.len());
    };
    assert_linear("lock of directives that start each other", |parts| plannable(world(parts)), lock);
}

#[test]
fn comparison_of_hostile_plans_and_of_the_directives_that_they_start_is_linear() {
    let side = |parts: usize, text: &str| {
        let starts = granted("<directive>c*</directive>");
        let world = plannable(single(&starts, "", text));
        (0..parts).fold(world, |world, i| {
            let name = format!("c{i}");
            world.project(&format!(".ai/directives/{name}.md"), directive(&name, "", "", &format!("{text} {i}")))
        })
    };
    let cost = |parts: usize| {
        let (old, new) = (side(parts, "before"), side(parts, "after"));
        let (before, after) = (plan(&old), plan(&new));
        let (was, is) = (DiffSide { world: &old, compilation: &before }, DiffSide { world: &new, compilation: &after });
        let mut found = None;
        let measured = allocation_counter::measure(|| found = Some(diff_trees(Some(was), Some(is)).unwrap()));
        assert_eq!(found.unwrap().starts.len(), parts);
        (measured.count_total, measured.bytes_max)
    };
    let ((small, low), (large, high)) = (cost(PARTS / 2), cost(2 * PARTS));
    assert!(large <= 6 * small, "{small} and {large} allocations");
    assert_bounded_memory("comparison", low, high);
}

#[test]
fn format_and_expansion_of_hostile_texts_are_linear() {
    let elements = |n: usize| directive("d", &repeat(n, |i| format!("<a{i}/>")), "", &"text ".repeat(n));
    let settings = |n: usize| repeat(n, |i| format!("k{i}:   [1,   2, {{a:   1}}]\n"));
    let count = |run: &dyn Fn(usize), parts: usize| allocations(|| run(parts));
    let expand_line = |n: usize| {
        let world =
            MapWorld::new().project(".ai/prompts/p.md", format!("---\ndescription: d\n---\n{}\n", "$1 ".repeat(n)));
        let typed = format!("/p {}", "argument ".repeat(n));
        assert!(expand(&Items::new(&world), &typed).text.is_some());
    };
    let runs: [(&str, &dyn Fn(usize)); 3] = [
        ("a directive", &|n| assert!(format(&elements(n)).is_ok())),
        ("settings", &|n| assert!(format_data(&settings(n)).is_ok())),
        ("a call", &expand_line),
    ];
    for (name, run) in runs {
        let (small, large) = (count(run, 5 * PARTS), count(run, 20 * PARTS));
        assert!(large <= 6 * small + 1_000, "{name}: {small} and {large} allocations");
    }
}

#[test]
fn values_that_a_prompt_repeats_too_often_are_refused_in_bounded_memory() {
    let plan = |bytes: usize, times: usize| {
        let world = plannable(repeated_value(bytes, times));
        let request = CompileRequest::new(ItemId::parse("d").unwrap()).with_inputs(serde_json::Map::new());
        let mut checked = None;
        let memory = allocation_counter::measure(|| checked = Some(compile(&world, &request)));
        let checked = checked.unwrap();
        let codes: Vec<String> = checked.diagnostics.iter().map(|one| format!("{}: {one}", one.code())).collect();
        (memory.bytes_max, checked.value.is_some(), codes.join("\n"))
    };
    let (_, has_plan, found) = plan(1_000, 1_000);
    assert!(has_plan, "{found}");
    // First the body alone, then the body with the knowledge of a hook.
    for (bytes, times) in [(40_000, 4_000), (3_000, 4_000)] {
        let (memory, has_plan, found) = plan(bytes, times);
        assert!(!has_plan && found.contains("limit::cannot-afford-one-turn"), "{found}");
        assert!(found.contains("more than 16 MiB of values"), "{found}");
        assert!(memory < 12 * (16 << 20), "{memory} bytes");
    }
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
    let condition = |i| format!("model matches \"(\\\\w{{90}}){{{}}}\"", 9 + i % 3);
    let any = |from: usize| (from..from + 40).map(condition).collect::<Vec<_>>().join(" || ");
    let hook = |i: usize| format!("  - {{ id: h{i}, event: after_step, condition: '{}', action: continue }}\n", any(i));
    let mut world = single("", "", "text");
    world.insert(Space::Project, ".ai/config/agent/hooks.yaml", format!("hooks:\n{}", repeat(50, hook)));
    let report = check(&world, &Selection::All);
    let messages = report.diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>();
    let together =
        messages.iter().filter(|one| one.contains("the patterns of this file are too large in total")).count();
    let built = messages.iter().filter(|one| one.contains("it is too large")).count();
    assert!(together > 0 && (1..=16).contains(&built), "{built} of {}", messages.len());
}
