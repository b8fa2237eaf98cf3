//! Benchmarks of frequent decisions: composing a chain, evaluating a hook's condition, authorizing a call.
//! `cargo bench -p rye-compiler` prints them; `docs/explanation/performance.md` quotes them beside their aims.

#![expect(clippy::print_stderr, reason = "a bench that cannot go on says why")]

use std::fmt::Display;

use divan::{Bencher, black_box};
use rye_compiler::compose::compose;
use rye_compiler::item::Items;
use rye_compiler::resolve::{Inputs, Launch};
use rye_compiler::semantics::capability::{CapabilityRequest, CapabilitySet, ItemType, Primary, authorize};
use rye_compiler::semantics::condition::Condition;
use rye_compiler::semantics::facts::Facts;
use rye_compiler::world::MapWorld;
use rye_grammar::condition::parse_inline;
use rye_grammar::{ItemId, SourceId};
use serde_json::{Map, Value, json};

fn main() {
    divan::main();
}

fn fail(error: &dyn Display) -> ! {
    eprintln!("the bench cannot go on: {error}");
    std::process::exit(1)
}

fn id(text: &str) -> ItemId {
    ItemId::parse(text).unwrap_or_else(|invalid| fail(&invalid.reason))
}

/// Links of the chain, each with knowledge of its own and a grant.
const LINKS: usize = 50;

fn chain() -> MapWorld<'static> {
    (0..LINKS).fold(MapWorld::new(), |world, link| {
        let extends = if link == 0 { String::new() } else { format!(" extends=\"link{}\"", link - 1) };
        let directive = format!(
            "# Link\n\n```xml\n<directive name=\"link{link}\" version=\"1.0.0\"{extends}>\n  <metadata>\n    <description>One link.</description>\n    \
             <context><before>note{link}</before><system>rule{link}</system></context>\n    \
             <permissions><execute><tool>area{link}.*</tool></execute></permissions>\n  </metadata>\n  \
             <inputs><input name=\"in{link}\" type=\"string\">one input</input></inputs>\n</directive>\n```\n\nDo it.\n"
        );
        world
            .project(&format!(".ai/directives/link{link}.md"), directive)
            .project(&format!(".ai/knowledge/note{link}.md"), format!("---\nname: note{link}\n---\n\nA note.\n"))
            .project(&format!(".ai/knowledge/rule{link}.md"), format!("---\nname: rule{link}\n---\n\nA rule.\n"))
    })
}

fn composed(items: &Items<'_>, leaf: &ItemId) -> usize {
    let given = Map::new();
    let launch = Launch { inputs: Inputs::Given(&given), model: &|_| None };
    match compose(items, leaf, &launch).value {
        Some(composed) => composed.chain.len() + composed.before.len(),
        None => fail(&"the chain does not compose"),
    }
}

/// Composes a chain whose files were read and parsed before.
#[divan::bench]
fn compose_a_chain_of_50(bencher: Bencher<'_, '_>) {
    let (world, leaf) = (chain(), id(&format!("link{}", LINKS - 1)));
    let items = Items::new(&world);
    if composed(&items, &leaf) != 2 * LINKS {
        fail(&"the chain is not whole");
    }
    bencher.bench_local(|| composed(&items, &leaf));
}

/// Reads and parses the 150 files of a chain, and composes the chain.
#[divan::bench]
fn read_and_compose_a_chain_of_50(bencher: Bencher<'_, '_>) {
    let (world, leaf) = (chain(), id(&format!("link{}", LINKS - 1)));
    bencher.bench_local(|| composed(&Items::new(&world), &leaf));
}

fn facts() -> Facts {
    let known = json!({
        "thread_id": "deploy_staging-1739820456", "directive": "project/deploy/deploy_staging", "category": "project/deploy",
        "model": "fast-1", "turn": 4, "call": { "id": "c1", "name": "rye_bash_bash", "item_id": "rye/bash/bash",
        "input": { "command": "ls" } }, "cost": { "turns": 4, "spend": 0.01 },
    });
    let Value::Object(known) = known else { fail(&"the facts are no object") };
    Facts::from_map(known)
}

fn condition(text: &str) -> Condition {
    let Ok(tree) = parse_inline(SourceId(0), text, 0) else { fail(&"the condition does not parse") };
    Condition::compile(&tree).unwrap_or_else(|_| fail(&"the condition does not compile"))
}

#[divan::bench(args = [
    "call.item_id == \"rye/bash/bash\"",
    "directive contains \"deploy\"",
    "cost.turns >= 3 && !(model contains \"haiku\")",
])]
fn hook_condition(bencher: Bencher<'_, '_>, text: &str) {
    let (condition, facts) = (condition(text), facts());
    bencher.bench_local(|| condition.evaluate(black_box(&facts)));
}

/// Authorizes a call by the set of its thread, with a dozen patterns of which the last one matches, and by the set of
/// the parent.
#[divan::bench]
fn gate_decision(bencher: Bencher<'_, '_>) {
    let wide =
        ["rye.fetch.*", "rye.sign.directive.project.*", "rye.execute.tool.rye.file-system.*", "rye.execute.tool.*"];
    let own = (0..8).map(|n| format!("rye.execute.tool.area{n}.*")).chain(wide.map(str::to_owned));
    let chain = [CapabilitySet::new(own), CapabilitySet::new(["rye.execute.*"])];
    let bash = id("rye/bash/bash");
    let request =
        CapabilityRequest { primary: Primary::Execute, item_type: ItemType::Tool, item_id: Some(&bash), space: None };
    bencher.bench_local(|| authorize(black_box(&chain), black_box(&request)));
}
