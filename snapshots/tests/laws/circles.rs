//! Circles between the top-level modules of a crate: two modules must not use each other, directly or through others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::house::{root, sources};

/// Uses of each top-level module: the modules that are named in its sources, tests excluded.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// Modules that lie on a circle, by crate. Only `args` and `command` of the command line do, because clap's derive ties
/// them together.
const KNOWN_CIRCLES: [(&str, &[&str]); 4] =
    [("grammar", &[]), ("compiler", &[]), ("engine", &[]), ("cli", &["args", "command"])];

/// Returns the code of a source without comments and without the test module at its end.
fn code(text: &str) -> String {
    let code = text.split("#[cfg(test)]\n#[allow").next().unwrap_or_default();
    let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Returns the first names after every `crate::` in a text, also in `use crate::{a, b::C}`.
fn names(code: &str) -> BTreeSet<String> {
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut found = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        let Some(list) = rest.strip_prefix('{') else {
            found.insert(name(rest));
            continue;
        };
        let mut depth = 0;
        let mut first = true;
        for (at, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => first = true,
                c if first && depth == 0 && !c.is_whitespace() => {
                    found.insert(name(&list[at..]));
                    first = false;
                }
                _ => {}
            }
        }
    }
    found
}

/// Reads the uses of a crate's modules from its folder of sources.
fn read_uses(src: &Path) -> Uses {
    let files = sources(src, ".rs");
    let module = |path: &Path| {
        let inside = path.strip_prefix(src).unwrap().to_string_lossy().replace('\\', "/");
        inside.split('/').next().unwrap_or_default().trim_end_matches(".rs").to_owned()
    };
    let is_test = |path: &Path| {
        let inside = path.strip_prefix(src).unwrap().to_string_lossy().into_owned();
        inside
            .split('/')
            .any(|part| matches!(part, "tests" | "tests.rs" | "crash_tests.rs" | "fixture.rs" | "corpus.rs"))
    };
    let modules: BTreeSet<String> = files.iter().map(|file| module(file)).collect();
    let mut uses = Uses::new();
    for file in files.iter().filter(|file| !is_test(file)) {
        let own = module(file);
        if matches!(own.as_str(), "lib" | "main") {
            continue;
        }
        let named = names(&code(&fs::read_to_string(file).unwrap()));
        uses.entry(own.clone())
            .or_default()
            .extend(named.into_iter().filter(|name| *name != own && modules.contains(name)));
    }
    uses
}

/// Returns the modules that reach themselves through other modules.
fn on_circles(uses: &Uses) -> BTreeSet<&str> {
    let reaches_itself = |start: &str| {
        let mut seen = BTreeSet::new();
        let mut open: Vec<&str> = vec![start];
        while let Some(module) = open.pop() {
            for next in uses.get(module).into_iter().flatten() {
                if next == start {
                    return true;
                }
                if seen.insert(next.as_str()) {
                    open.push(next);
                }
            }
        }
        false
    };
    uses.keys().map(String::as_str).filter(|module| reaches_itself(module)).collect()
}

#[test]
fn modules_form_no_circles() {
    for (name, known) in KNOWN_CIRCLES {
        let uses = read_uses(&root().join(name).join("src"));
        assert!(uses.len() > 5, "{name}: the law must see the modules it judges");
        let found = on_circles(&uses);
        let known: BTreeSet<&str> = known.iter().copied().collect();
        let new: Vec<_> = found.difference(&known).collect();
        let left: Vec<_> = known.difference(&found).collect();
        assert!(new.is_empty(), "{name}: on a circle of modules: {new:?}");
        assert!(left.is_empty(), "{name}: no longer on a circle, remove from the list: {left:?}");
    }
}

#[test]
fn circles_are_found_through_lists_and_other_modules() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    put("a.rs", "use crate::{b::{X, Y}, d};\n");
    put("b.rs", "fn f() { crate::c::g() }\n");
    put("c.rs", "// crate::d\nuse crate::a::X;\n#[cfg(test)]\nmod tests {\n    use crate::d;\n}\n");
    put("d.rs", "");
    let uses = read_uses(folder.path());
    assert_eq!(uses["a"], ["b", "d"].map(String::from).into());
    assert_eq!(uses["c"], ["a"].map(String::from).into());
    assert_eq!(on_circles(&uses), ["a", "b", "c"].into());
}
