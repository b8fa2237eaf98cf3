//! Checks of the scripts that replace a model: the file that a provider with the wire `scripted` names, relative to the
//! root of the project.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rye_compiler::diagnostics::{ConfigError, closest};
use rye_compiler::item::Items;
use rye_compiler::palette::tool_name;
use rye_compiler::primary::{DIRECTIVE_RETURN_TOOL, Primary};
use rye_compiler::validate::CheckReport;
use rye_compiler::world::{ItemKind, Space, World};
use rye_engine::provider::scripted::{Script, ScriptStep, read_script};
use rye_grammar::{ItemId, Source, Span, Spanned};

/// Folder of the provider files, as the start of their ids.
const PROVIDERS: &str = "agent/providers/";

/// Reports scripts that cannot be read, and branches of scripts for directives that do not exist. The script of a
/// provider file of the user space or the standard library is checked only if a directive of the project can use the
/// provider and the script exists. A missing script is no error there, because `--script` can replace it.
pub fn check_scripts(world: &dyn World, project: &Path, report: &mut CheckReport) {
    let items = Items::new(world);
    let mut known: Option<Vec<String>> = None;
    let mut checked: Vec<String> = Vec::new();
    for (provider, is_own) in providers(&items) {
        let Ok(id) = ItemId::parse(&format!("{PROVIDERS}{provider}")) else { continue };
        let Some((path, span)) = items.config(&id).and_then(|node| {
            let is_scripted = node.get("wire")?.as_str() == Some("scripted");
            let script = node.get("script").filter(|_| is_scripted)?;
            Some((script.as_str()?.to_owned(), script.span))
        }) else {
            continue;
        };
        let file = project.join(&path);
        if checked.contains(&path) || !(is_own || (file.exists() && is_named(&items, &provider))) {
            continue;
        }
        checked.push(path.clone());
        if !file.exists() {
            report_missing_script(&items, (&file, &path), &provider, span, report);
            continue;
        }
        match read_script(&file) {
            Err(why) => report.diagnostics.push(ConfigError::Script { path, provider, why }),
            Ok(script) => {
                check_calls(&items, &file, &path, &script, report);
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

/// Reports a script that does not exist. `span` is the place of its path in the provider file.
fn report_missing_script(
    items: &Items<'_>,
    (file, path): (&Path, &str),
    provider: &str,
    span: Span,
    report: &mut CheckReport,
) {
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let entries = file.parent().and_then(|folder| std::fs::read_dir(folder).ok());
    let files = entries.into_iter().flatten().flatten().filter(|entry| entry.path().is_file());
    let mut names: Vec<String> = files.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    let near = closest(&name, names.iter().map(String::as_str));
    let suggestion = near.map(|near| path.replace(&name, &near));
    let (path, provider) = (path.to_owned(), provider.to_owned());
    // `span` refers to the sources of `items`, so the source is copied into the sources of the report.
    let sources = items.sources();
    let Some(source) = sources.get(span.source) else { return };
    let copy = report.sources.add(Source::new(source.path.to_string(), source.text.to_string()));
    let span = Span { source: copy, ..span };
    report.diagnostics.push(ConfigError::MissingScript { path, provider, suggestion, span });
}

/// Returns the files of the scripts that provider files name, whether or not a check reads them.
pub fn script_files(world: &dyn World, project: &Path) -> BTreeSet<PathBuf> {
    let items = Items::new(world);
    let script_of = |provider: &str| {
        let node = items.config(&ItemId::parse(&format!("{PROVIDERS}{provider}")).ok()?)?;
        let is_scripted = node.get("wire")?.as_str() == Some("scripted");
        node.get("script")?.as_str().filter(|_| is_scripted).map(|path| project.join(path))
    };
    providers(&items).iter().filter_map(|(provider, _)| script_of(provider)).collect()
}

/// Reports calls of tools that do not exist and whose name resembles that of a tool. Each name is reported once.
fn check_calls(items: &Items<'_>, file: &Path, path: &str, script: &Script, report: &mut CheckReport) {
    let steps = script.steps.iter().chain(script.threads.values().flatten());
    let replies = steps.filter_map(|step| if let ScriptStep::Reply(reply) = step { Some(reply) } else { None });
    let called: BTreeSet<&str> = replies.flat_map(|reply| &reply.tool_calls).map(|call| call.name.as_str()).collect();
    let own = Primary::ALL.map(Primary::tool_name).into_iter().chain([DIRECTIVE_RETURN_TOOL]).map(str::to_owned);
    let tools = items.list(ItemKind::Tool);
    let known: BTreeSet<String> = own.chain(tools.iter().map(|entry| tool_name(&entry.id))).collect();
    let Ok(text) = std::fs::read_to_string(file) else { return };
    for name in called.into_iter().filter(|name| !known.contains(*name)) {
        let Some(near) = closest(name, known.iter().map(String::as_str)) else { continue };
        let Some(at) = text.find(name) else { continue };
        let source = report.sources.add(Source::new(path.to_owned(), text.clone()));
        report.diagnostics.push(ConfigError::Implausible {
            file: path.to_owned(),
            key: "tool_calls".to_owned(),
            why: format!("no tool has the name `{name}`"),
            help: format!("did you mean `{near}`?"),
            span: Span::new(source, at, at + name.len()),
        });
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

/// Returns true if a directive of the project names the provider (`provider="P"`, `id="P/MODEL"`, `tier="P/TIER"`), or
/// if `default_provider` names the provider, which directives without a provider then use.
fn is_named(items: &Items<'_>, provider: &str) -> bool {
    let settings = ItemId::parse("agent/models").ok().and_then(|id| items.config(&id));
    let default = settings.as_ref().and_then(|node| node.get("default_provider")?.as_str());
    if default == Some(provider) {
        return true;
    }
    let is_prefix = |text: &str| text.split_once('/').is_some_and(|(named, _)| named == provider);
    let list = items.list(ItemKind::Directive);
    let own = list.iter().filter(|entry| entry.space == Space::Project);
    own.filter_map(|entry| items.directive(&entry.id)).any(|directive| {
        directive.model.as_ref().is_some_and(|model| {
            let has = |text: &Option<Spanned<String>>, names: &dyn Fn(&str) -> bool| {
                text.as_ref().is_some_and(|text| names(&text.node))
            };
            has(&model.provider, &|named| named == provider)
                || has(&model.id, &is_prefix)
                || has(&model.tier, &is_prefix)
        })
    })
}
