//! Files that a JavaScript program loads through packages: the `package.json` that maps its imports to files, the
//! folders to which patterns in a `package.json` lead, and packages of the project to which links in `node_modules`
//! lead.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::program::{Language, PACKAGE_FILE, PACKAGE_FOLDERS, PROGRAM_ENDINGS};
use super::{NamedPaths, quoted_texts, text_of};

/// Name of the folder with the packages that a program imports by their names.
const MODULES_FOLDER: &str = "node_modules";

impl NamedPaths {
    /// Adds the files that a text loads through packages. For a JavaScript program, these are the `package.json` that
    /// maps its imports to files, and linked packages. For a `package.json`, these are the folders to which patterns in
    /// its `exports` and `imports` lead.
    pub(super) fn add_package(&mut self, language: Language, own: &Path, text: &str, project: &Path) {
        if language == Language::Package {
            self.add_exports(own, text, project);
        } else if language == Language::JavaScript {
            let above = own.ancestors().take_while(|folder| folder.starts_with(project));
            let package = above.map(|folder| folder.join(PACKAGE_FILE)).find(|file| file.is_file());
            self.files.extend(package.filter(|file| selects_modules(file, text)));
            self.add_linked_packages(own, text, project);
        }
    }

    /// Adds the packages that the text names (`import "part"`) and that links in `node_modules` lead to, if they lie in
    /// the project. Every program in the folder of such a package counts.
    fn add_linked_packages(&mut self, own: &Path, text: &str, project: &Path) {
        let above = own.ancestors().take_while(|folder| folder.starts_with(project));
        let modules: Vec<PathBuf> = above.map(|folder| folder.join(MODULES_FOLDER)).filter(|it| it.is_dir()).collect();
        if modules.is_empty() {
            return;
        }
        let names: BTreeSet<String> = quoted_texts(text).filter_map(package_name).collect();
        for place in modules.iter().flat_map(|folder| names.iter().map(|name| folder.join(name))) {
            let with_ending =
                PROGRAM_ENDINGS.iter().map(|ending| PathBuf::from(format!("{}.{ending}", place.display())));
            for place in std::iter::once(place.clone()).chain(with_ending) {
                let Some(real) = place.canonicalize().ok().filter(|real| real.starts_with(project)) else { continue };
                if real.iter().any(|part| PACKAGE_FOLDERS.iter().any(|folder| part == *folder)) {
                    continue;
                }
                if real.is_dir() {
                    self.program_folders.insert(real);
                } else {
                    self.files.insert(real);
                }
            }
        }
    }

    /// Adds the folders to which patterns in the `exports` and `imports` of a `package.json` lead: `"./*":
    /// "./src/*.js"`.
    fn add_exports(&mut self, own: &Path, text: &str, project: &Path) {
        let Ok(package) = serde_json::from_str::<Value>(text) else { return };
        let mut waiting: Vec<&Value> = ["exports", "imports"].iter().filter_map(|key| package.get(key)).collect();
        while let Some(value) = waiting.pop() {
            let Some((folder, _)) = value.as_str().and_then(|target| target.split_once('*')) else {
                waiting.extend(value.as_array().into_iter().flatten());
                waiting.extend(value.as_object().into_iter().flat_map(|object| object.values()));
                continue;
            };
            let folder = own.join(folder.rsplit_once('/').map_or("", |(folder, _)| folder)).canonicalize();
            match folder {
                Ok(folder) if folder == project => self.whole_project = Some("exports every file of its folder"),
                Ok(folder) if folder.is_dir() => drop(self.folders.insert(folder)),
                Ok(_) | Err(_) => {}
            }
        }
    }
}

/// Returns the name of the package that an import names: `part` for `part/lib.js`, `@scope/part` for `@scope/part`.
fn package_name(import: &str) -> Option<String> {
    let parts = if import.starts_with('@') { 2 } else { 1 };
    let name: Vec<&str> = import.split('/').take(parts).collect();
    let is_name = name.iter().all(|part| !part.is_empty() && !part.starts_with('.'));
    is_name.then(|| name.join("/"))
}

/// Returns true if a JavaScript text contains a name that the file `package` maps to a file: a string that starts with
/// `#`, or the name of the package.
fn selects_modules(package: &Path, text: &str) -> bool {
    let name = text_of(package)
        .and_then(|text| serde_json::from_str::<Value>(&text).ok()?.get("name")?.as_str().map(str::to_owned));
    ["\"#", "'#", "`#"].iter().any(|start| text.contains(start)) || name.is_some_and(|name| text.contains(&name))
}
