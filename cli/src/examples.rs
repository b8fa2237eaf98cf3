//! Files that are compiled into this program: the examples of `rye init --example`, and the files of a new project.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use include_dir::{Dir, DirEntry, include_dir};
use rye_compiler::plan::hex;
use rye_compiler::trust::{Subject, script_requirement};
use rye_compiler::world::ItemKind;
use rye_engine::trust::shipped_file;
use sha2::{Digest, Sha256};

use crate::input_schemas;

static EXAMPLES: Dir<'static> = include_dir!("$OUT_DIR/examples");

/// The names of the examples whose files are compiled into this program.
const EXAMPLE_NAMES: [&str; 4] = ["hello", "review", "deploy", "classic-hooks"];

/// Contents of files, by path relative to the project.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Returns the files of a new project.
pub fn starter_files() -> Files {
    let file = |path: &str, text: &str| (path.to_owned(), text.as_bytes().to_vec());
    Files::from([
        file(".ai/directives/first.md", include_str!("examples/first.md")),
        file("script.yaml", include_str!("examples/script.yaml")),
    ])
}

/// Returns the files of an example. The option `--project examples/NAME` is removed from the commands in the README,
/// because the folder exists only in this repository.
fn example_files(name: &str) -> Files {
    let elsewhere = format!(" --project examples/{name}");
    let mut files = Files::new();
    let mut folders: Vec<&Dir<'static>> = EXAMPLES.get_dir(name).into_iter().collect();
    while let Some(folder) = folders.pop() {
        for entry in folder.entries() {
            match entry {
                DirEntry::Dir(inner) => folders.push(inner),
                DirEntry::File(file) => {
                    let Ok(path) = file.path().strip_prefix(name) else { continue };
                    let bytes = match file.contents_utf8() {
                        Some(text) if path == Path::new("README.md") => text.replace(&elsewhere, "").into_bytes(),
                        Some(_) | None => file.contents().to_vec(),
                    };
                    files.insert(path.to_string_lossy().into_owned(), bytes);
                }
            }
        }
    }
    files
}

/// Returns the files of an example, with comments that name the schemas of YAML files.
pub fn annotated_files(name: &str) -> Files {
    let annotate = |(path, bytes): (String, Vec<u8>)| {
        let bytes = match String::from_utf8(bytes) {
            Ok(text) => input_schemas::annotate(&path, text).into_bytes(),
            Err(error) => error.into_bytes(),
        };
        (path, bytes)
    };
    example_files(name).into_iter().map(annotate).collect()
}

/// Returns the trust subjects of the files of the examples and of a new project. A file of an example has two forms:
/// unchanged, and as `rye init` writes the file. All of these files are trusted, because they are compiled into this
/// program.
pub fn example_subjects() -> BTreeSet<Subject> {
    let mut found: BTreeSet<Subject> = BTreeSet::new();
    let mut files: Vec<(String, Vec<u8>)> = starter_files().into_iter().collect();
    for name in EXAMPLE_NAMES {
        let unchanged = example_files(name);
        // Most files have no comment that names a schema, so their two forms are equal. Such files are added once.
        files.extend(annotated_files(name).into_iter().filter(|(path, bytes)| unchanged.get(path) != Some(bytes)));
        files.extend(unchanged);
    }
    found.extend(files.iter().map(|(path, bytes)| subject_of_file(path, bytes)));
    found.extend(script_requirement("script.yaml").subjects);
    found
}

fn subject_of_file(path: &str, bytes: &[u8]) -> Subject {
    let sha256 = hex(&Sha256::digest(bytes));
    match ItemKind::of_path(path) {
        Some((kind, id)) => Subject { kind, id: id.to_string(), sha256 },
        None => shipped_file(path, &sha256),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_of_examples_contain_both_forms_of_each_file() {
        let (subjects, mut annotated) = (example_subjects(), 0);
        for name in EXAMPLE_NAMES {
            let unchanged = example_files(name);
            for (path, bytes) in annotated_files(name) {
                annotated += usize::from(unchanged.get(&path) != Some(&bytes));
                assert!(subjects.contains(&subject_of_file(&path, &bytes)), "{name}: {path}");
            }
            for (path, bytes) in unchanged {
                assert!(subjects.contains(&subject_of_file(&path, &bytes)), "{name}: {path}");
            }
        }
        assert!(annotated > 0);
    }
}
