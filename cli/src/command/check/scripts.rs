//! Checks of the scripts that replace a model: the file that a provider with the wire `scripted` names, relative to the
//! root of the project.

use std::path::Path;

use rye_compiler::diagnostics::{ConfigError, closest};
use rye_compiler::item::Items;
use rye_compiler::validate::CheckReport;
use rye_compiler::world::{ItemKind, Space, World};
use rye_engine::provider::scripted::read_script;
use rye_grammar::ItemId;

/// Folder of the provider files, as the start of their ids.
const PROVIDERS: &str = "agent/providers/";

/// Reports scripts that cannot be read, and branches of scripts for directives that do not exist. The script of a
/// provider file of the user space or the standard library is checked only if a directive of the project names the
/// provider and the script exists: `--script` can replace the script.
pub fn check_scripts(world: &dyn World, project: &Path, report: &mut CheckReport) {
    let items = Items::new(world);
    let mut known: Option<Vec<String>> = None;
    let mut checked: Vec<String> = Vec::new();
    for (provider, is_own) in providers(&items) {
        let Ok(id) = ItemId::parse(&format!("{PROVIDERS}{provider}")) else { continue };
        let Some(path) = items.config(&id).and_then(|node| {
            let is_scripted = node.get("wire")?.as_str() == Some("scripted");
            node.get("script")?.as_str().filter(|_| is_scripted).map(str::to_owned)
        }) else {
            continue;
        };
        let file = project.join(&path);
        if checked.contains(&path) || !(is_own || (file.exists() && is_named(&items, &provider))) {
            continue;
        }
        checked.push(path.clone());
        match read_script(&file) {
            Err(why) => report.diagnostics.push(ConfigError::Script { path, provider, why }),
            Ok(script) => {
                let known = known.get_or_insert_with(|| {
                    items.list(ItemKind::Directive).iter().map(|entry| entry.id.to_string()).collect()
                });
                for branch in script.threads.keys() {
                    let directive = branch.split('#').next().unwrap_or(branch).to_owned();
                    if !known.contains(&directive) {
                        let suggestion = closest(&directive, known.iter().map(String::as_str));
                        let path = path.clone();
                        report.diagnostics.push(ConfigError::ScriptBranch { path, directive, suggestion });
                    }
                }
            }
        }
    }
}

/// Returns the names of all provider files, each with true if the project has the file.
fn providers(items: &Items<'_>) -> Vec<(String, bool)> {
    let list = items.list(ItemKind::Config);
    let mut all: Vec<(String, bool)> = Vec::new();
    for entry in list.iter() {
        let Some(name) = entry.id.as_str().strip_prefix(PROVIDERS) else { continue };
        if all.iter().all(|(known, _)| known != name) {
            all.push((name.to_owned(), entry.space == Space::Project));
        }
    }
    all
}

/// Returns true if a directive of the project names the provider.
fn is_named(items: &Items<'_>, provider: &str) -> bool {
    let list = items.list(ItemKind::Directive);
    let own = list.iter().filter(|entry| entry.space == Space::Project);
    own.filter_map(|entry| items.directive(&entry.id)).any(|directive| {
        let named = directive.model.as_ref().and_then(|model| model.provider.as_ref());
        named.is_some_and(|named| named.node == provider)
    })
}
