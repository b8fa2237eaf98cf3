//! Property tests of composition (`language.md` 8): composing a chain equals applying the rules by hand, composing a
//! composed directive changes nothing, and the order of files is irrelevant.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::format_collect, reason = "tests")]

use std::collections::BTreeSet;
use std::fmt::Write as _;

use proptest::prelude::*;
use rye_compiler::compose::{Composed, ContextItem, compose};
use rye_compiler::item::Items;
use rye_compiler::resolve::{Inputs, Launch};
use rye_compiler::world::{MapWorld, Space};
use rye_grammar::ItemId;

/// Number of knowledge items.
const ITEMS: usize = 7;
const PLACES: [&str; 3] = ["system", "before", "after"];

/// The declarations of one file of a chain: items by place, and suppressed items.
#[derive(Debug, Clone)]
struct ChainFile {
    places: [Vec<usize>; 3],
    suppressed: Vec<usize>,
    limit: Option<u64>,
    permissions: bool,
    inputs: Vec<usize>,
}

fn link() -> impl Strategy<Value = ChainFile> {
    let items = || prop::collection::vec(0..ITEMS, 0..4);
    let suppressed = prop::collection::vec(0..ITEMS, 0..2);
    let inputs = prop::collection::vec(0..4_usize, 0..3);
    (items(), items(), items(), suppressed, prop::option::of(1..20_u64), any::<bool>(), inputs).prop_map(
        |(system, before, after, suppressed, limit, permissions, mut inputs)| {
            inputs.sort_unstable();
            inputs.dedup();
            ChainFile { places: [system, before, after], suppressed, limit, permissions, inputs }
        },
    )
}

/// Renders a link, which extends its parent.
fn text(name: &str, parent: Option<&str>, link: &ChainFile) -> String {
    let mut context = String::new();
    for (place, items) in PLACES.iter().zip(&link.places) {
        for item in items {
            let _ = write!(context, "<{place}>k{item}</{place}>");
        }
    }
    for item in &link.suppressed {
        let _ = write!(context, "<suppress>k{item}</suppress>");
    }
    let extends = parent.map(|parent| format!(" extends=\"{parent}\"")).unwrap_or_default();
    let limits = link.limit.map(|turns| format!("<limits turns=\"{turns}\"/>")).unwrap_or_default();
    let permissions = if link.permissions {
        format!("<permissions><execute><tool>of.{name}</tool></execute></permissions>")
    } else {
        String::new()
    };
    let inputs: String =
        link.inputs.iter().map(|n| format!("<input name=\"i{n}\" default=\"{name}\">what</input>")).collect();
    format!(
        "```xml\n<directive name=\"{name}\" version=\"1.0.0\"{extends}><metadata>{limits}{permissions}<context>{context}</context></metadata><inputs>{inputs}</inputs></directive>\n```\n\nBody of {name}.\n"
    )
}

/// Renders the files of a chain, whose root is called `d0`.
fn files(chain: &[ChainFile]) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> =
        (0..ITEMS).map(|n| (format!(".ai/knowledge/k{n}.md"), format!("Item {n}.\n"))).collect();
    for (n, link) in chain.iter().enumerate() {
        let parent = n.checked_sub(1).map(|above| format!("d{above}"));
        files.push((format!(".ai/directives/d{n}.md"), text(&format!("d{n}"), parent.as_deref(), link)));
    }
    files
}

fn world(files: &[(String, String)]) -> MapWorld<'static> {
    let mut world = MapWorld::new();
    for (path, text) in files {
        world.insert(Space::Project, path, text);
    }
    world
}

/// The compared parts of a composition: items by place, the limit `turns`, grants and inputs. Grants and inputs contain
/// the name of the file that declares them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ComparedParts {
    places: [Vec<String>; 3],
    turns: Option<String>,
    grants: Option<Vec<String>>,
    inputs: Vec<(String, String)>,
}

fn composed(files: &[(String, String)], leaf: &str) -> ComparedParts {
    let world = world(files);
    let items = Items::new(&world);
    let launch = Launch { inputs: Inputs::Unknown, model: &|_| None };
    let composed: Composed = compose(&items, &ItemId::parse(leaf).unwrap(), &launch).value.unwrap();
    let ids = |items: &[ContextItem]| items.iter().map(|item| item.id.to_string()).collect();
    let text =
        |value: &Option<serde_json::Value>| value.as_ref().and_then(|v| v.as_str()).unwrap_or_default().to_owned();
    ComparedParts {
        places: [ids(&composed.system), ids(&composed.before), ids(&composed.after)],
        turns: composed.limits.directive.iter().find(|s| s.name == "turns").map(|s| format!("{:?}", s.written)),
        grants: composed.permissions.map(|p| p.value.grants.iter().map(|g| g.pattern.0.clone()).collect()),
        inputs: composed.inputs.iter().map(|(name, field)| (name.clone(), text(&field.value.default))).collect(),
    }
}

/// Applies the rules of section 8 one after the other.
fn apply_rules(chain: &[ChainFile]) -> [Vec<String>; 3] {
    let suppressed: BTreeSet<usize> = chain.iter().flat_map(|link| link.suppressed.iter().copied()).collect();
    let mut seen = suppressed;
    let mut places: [Vec<String>; 3] = Default::default();
    for (place, list) in places.iter_mut().enumerate() {
        for link in chain {
            list.extend(link.places[place].iter().filter(|item| seen.insert(**item)).map(|item| format!("k{item}")));
        }
    }
    places
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn composition_matches_the_rules_applied_by_hand(chain in prop::collection::vec(link(), 1..6)) {
        let leaf = format!("d{}", chain.len() - 1);
        let shape = composed(&files(&chain), &leaf);
        prop_assert_eq!(&shape.places, &apply_rules(&chain));
        let nearest = chain.iter().rposition(|link| link.permissions);
        prop_assert_eq!(shape.grants, nearest.map(|n| vec![format!("rye.execute.tool.of.d{n}")]));
        for (name, from) in &shape.inputs {
            let n: usize = name[1..].parse().unwrap();
            let nearest = chain.iter().rposition(|link| link.inputs.contains(&n)).unwrap();
            prop_assert_eq!(from, &format!("d{nearest}"));
        }
    }

    /// A directive without a parent that declares the composed items of a chain composes to the same items.
    #[test]
    fn composition_is_idempotent(chain in prop::collection::vec(link(), 1..6)) {
        let leaf = format!("d{}", chain.len() - 1);
        let mut files = files(&chain);
        let once = composed(&files, &leaf);
        let numbers = |ids: &Vec<String>| ids.iter().map(|id| id[1..].parse().unwrap()).collect::<Vec<usize>>();
        let flat = ChainFile {
            places: [numbers(&once.places[0]), numbers(&once.places[1]), numbers(&once.places[2])],
            suppressed: Vec::new(),
            limit: None,
            permissions: false,
            inputs: Vec::new(),
        };
        files.push((".ai/directives/flat.md".into(), text("flat", None, &flat)));
        prop_assert_eq!(composed(&files, "flat").places, once.places.clone());
        // A directive that adds nothing to the chain composes to the same result too.
        let nothing = ChainFile { places: Default::default(), ..flat };
        files.push((".ai/directives/more.md".into(), text("more", Some(&leaf), &nothing)));
        prop_assert_eq!(composed(&files, "more"), once);
    }

    #[test]
    fn composition_ignores_file_order(
        chain in prop::collection::vec(link(), 1..6),
        other in link(),
        keys in prop::collection::vec(any::<u32>(), 32),
    ) {
        let leaf = format!("d{}", chain.len() - 1);
        let straight = files(&chain);
        let mut thrown: Vec<(u32, (String, String))> = straight.iter().cloned().zip(&keys).map(|(f, k)| (*k, f)).collect();
        thrown.sort();
        let mut thrown: Vec<(String, String)> = thrown.into_iter().map(|(_, file)| file).collect();
        let wanted = composed(&straight, &leaf);
        prop_assert_eq!(composed(&thrown, &leaf), wanted.clone());
        // A directive outside the chain has no effect.
        thrown.push((".ai/directives/a0.md".into(), text("a0", Some("d0"), &other)));
        prop_assert_eq!(composed(&thrown, &leaf), wanted);
    }
}
