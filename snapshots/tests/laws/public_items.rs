//! The public interface of the lower crates: functions, constants and modules that no other crate uses are not public.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::house::{root, sources};

/// Crates whose interface the law checks, with the maximum number of unused functions, constants and modules, and of
/// types that only signatures name.
const CRATES: [(&str, usize, usize); 3] = [("grammar", 0, 1), ("compiler", 0, 162), ("engine", 0, 192)];

/// Folders whose Rust files use the interfaces, beside the tests and benches of each crate.
const FOLDERS: [&str; 7] = ["grammar", "compiler", "engine", "rye", "cli", "snapshots", "fuzz"];

/// The sources of the workspace by path.
type Texts = BTreeMap<PathBuf, String>;

fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Returns the kind and the name of the item that a line declares with `pub`.
fn public_item(line: &str) -> Option<(&str, &str)> {
    let mut words = line.trim_start().strip_prefix("pub ")?.split(' ').peekable();
    loop {
        let kind = words.next()?;
        match kind {
            "async" | "unsafe" => {}
            "const" if words.peek() == Some(&"fn") => {}
            "fn" | "const" | "static" | "mod" | "struct" | "enum" | "trait" | "type" => {
                return Some((kind, identifiers(words.next()?).next()?));
            }
            _ => return None,
        }
    }
}

/// Returns whether every module down to a file is declared with `pub mod`.
fn is_public_module(src: &Path, path: &Path, texts: &Texts) -> bool {
    let module = path.strip_prefix(src).unwrap().with_extension("");
    let (mut parent, mut folder) = (src.join("lib.rs"), src.to_path_buf());
    module == Path::new("lib")
        || module.iter().all(|part| {
            let declaration = format!("pub mod {};", part.to_string_lossy());
            let is_public = texts.get(&parent).is_some_and(|text| text.lines().any(|line| line.trim() == declaration));
            folder.push(part);
            parent = folder.with_extension("rs");
            is_public
        })
}

/// Returns the public items below `src` whose name no source outside of `src` contains: the file, the kind and the
/// name. An item in a private module is public if a `pub use` names the item.
fn unused_items<'t>(src: &Path, texts: &'t Texts) -> Vec<(&'t Path, &'t str, &'t str)> {
    let (own, others): (Vec<_>, Vec<_>) = texts.iter().partition(|(path, _)| path.starts_with(src));
    let named: BTreeSet<&str> = others.iter().flat_map(|(_, text)| identifiers(text)).collect();
    let uses = |text: &'t String| text.split("pub use ").skip(1).filter_map(|rest| rest.split(';').next());
    let exported: BTreeSet<&str> = own.iter().flat_map(|(_, text)| uses(text)).flat_map(identifiers).collect();
    let mut found = Vec::new();
    for (path, text) in own {
        let is_public = is_public_module(src, path, texts);
        let items = text.lines().filter_map(public_item).filter(|(_, name)| !named.contains(name));
        let items = items.filter(|(_, name)| is_public || exported.contains(name));
        found.extend(items.map(|(kind, name)| (path.as_path(), kind, name)));
    }
    found
}

fn read(folder: &Path) -> Texts {
    let paths = FOLDERS.iter().flat_map(|name| sources(&folder.join(name), ".rs"));
    paths.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn public_items_are_used_by_another_crate() {
    let texts = read(&root());
    for (name, max_functions, max_types) in CRATES {
        let src = root().join(name).join("src");
        let found = unused_items(&src, &texts);
        let is_type = |kind: &str| matches!(kind, "struct" | "enum" | "trait" | "type");
        let (types, functions): (Vec<_>, Vec<_>) = found.into_iter().partition(|(_, kind, _)| is_type(kind));
        assert!(
            functions.len() <= max_functions,
            "{name}: {} items, at most {max_functions}: {functions:#?}",
            functions.len()
        );
        assert!(types.len() <= max_types, "{name}: {} types, at most {max_types}: {types:#?}", types.len());
    }
}

#[test]
fn unused_public_items_are_found_in_public_modules_and_reexports() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("grammar/src/lib.rs", "pub mod a;\nmod b;\npub use b::{Shown,\n    Used};\npub(crate) const OWN: u8 = 1;\n");
    put("grammar/src/a.rs", "pub const fn lone() {}\npub fn called() {}\nfn own() {}\n    pub async fn method() {}\n");
    put("grammar/src/b.rs", "pub struct Shown;\npub struct Used;\npub struct Hidden;\n");
    put("grammar/src/b/c.rs", "pub fn deep() {}\n");
    put("cli/src/main.rs", "fn main() { called(Used) }\n");
    let texts = read(folder.path());
    let found = unused_items(&folder.path().join("grammar/src"), &texts);
    assert_eq!(found.iter().map(|(_, _, name)| *name).collect::<Vec<_>>(), ["lone", "method", "Shown", "a"]);
}
