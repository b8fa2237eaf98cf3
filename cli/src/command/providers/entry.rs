//! Writes entries of models into the provider files of the user space. Edits the text of a file, so that its other
//! lines stay unchanged.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use rye_compiler::diagnostics::{Diagnostic, Diagnostics};
use rye_compiler::item::Items;
use rye_compiler::model;
use rye_grammar::data::Node;
use rye_grammar::{SourceId, yaml};
use serde_json::{Map, Value};

use super::PROVIDER_FOLDER;
use crate::CommandError;
use crate::file_set::FileSet;
use crate::report::Printer;
use crate::workspace::{Spaces, user_root};

/// Maximum size in bytes of an existing provider file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The fields of new or changed model entries. A key is the id of a provider and the id of a model.
pub type Entries = BTreeMap<(String, String), Map<String, Value>>;

/// Writes the entries into the provider files of the user space, then checks them together with the project's files. If
/// a file is invalid or an entry has no effect, the old contents of all files are restored.
pub fn write_entries(entries: &Entries, spaces: &Spaces, report: &Printer) -> Result<(), CommandError> {
    let root = user_root().ok_or_else(|| {
        CommandError::failed("no user space was found")
            .with_help("set `RYE_USER_SPACE` to the folder that contains your `.ai`")
    })?;
    let mut set = FileSet::create_root(&root, report)?;
    let mut files: BTreeMap<PathBuf, String> = BTreeMap::new();
    for ((provider, id), fields) in entries {
        let path = PathBuf::from(format!(".ai/config/{PROVIDER_FOLDER}{provider}.yaml"));
        let failed = |why: String| {
            let file = root.join(&path);
            let lines = format!("models:\n  - {}", format_entry(id, fields));
            CommandError::failed(format!("`{}` cannot be changed: {why}", file.display()))
                .with_help(format!("write the entry by hand:\n{lines}"))
        };
        let text = match files.remove(&path) {
            Some(text) => Some(text),
            None => set
                .read(&path, MAX_FILE_BYTES)?
                .map(String::from_utf8)
                .transpose()
                .map_err(|e| failed(e.to_string()))?,
        };
        let text = with_entry(text.as_deref(), provider, id, fields).map_err(failed)?;
        files.insert(path, text);
    }
    files.iter().try_for_each(|(path, text)| set.replace(path, text.as_bytes()).map(drop))?;
    check_entries(entries, spaces)?;
    set.keep();
    Ok(())
}

/// Completes the prices of an entry. An entry is merged with `listed`, the existing entry of the model (possibly of
/// another space), and the merge keeps each old price that `prices` does not set. To prevent this, the function sets a
/// missing `cache_read` or `cache_write` to the price `input`, and a missing `long_prompt` to `none` if `listed` has a
/// `long_prompt`.
pub fn complete_prices(mut prices: Map<String, Value>, listed: Option<&Node>) -> Value {
    if let Some(input) = prices.get("input").cloned() {
        for key in ["cache_read", "cache_write"] {
            prices.entry(key).or_insert_with(|| input.clone());
        }
    }
    if listed.and_then(|model| model.get("prices")?.get("long_prompt")).is_some() {
        prices.entry("long_prompt").or_insert_with(|| "none".into());
    }
    prices.into()
}

/// Checks that the merged provider files are valid, and that no provider file of the project overrides an entry.
fn check_entries(entries: &Entries, spaces: &Spaces) -> Result<(), CommandError> {
    let world = spaces.open()?;
    let items = Items::new(&world);
    let mut diagnostics = Diagnostics::new();
    for ((provider, id), fields) in entries {
        let node = items.config_by_name(&format!("{PROVIDER_FOLDER}{provider}"));
        if let Some(node) = &node {
            model::read_provider(provider, node, &items.sources(), &mut diagnostics);
        }
        let models = node.as_ref().and_then(|node| node.get("models")).map(Node::items).unwrap_or_default();
        let entry = models.iter().find(|m| m.get("id").and_then(Node::as_str) == Some(id));
        let has = |(key, value): (&String, &Value)| {
            entry.and_then(|e| e.get(key)).map(Node::to_value).as_ref() == Some(value)
        };
        if !fields.iter().all(has) {
            let message = format!("a provider file of the project overrides these values of `{provider}/{id}`");
            return Err(CommandError::failed(message).with_help(format!(
                "change the values in `.ai/config/{PROVIDER_FOLDER}{provider}.yaml` of the project"
            )));
        }
    }
    diagnostics.append(items.diagnostics());
    match diagnostics.iter().find(|one| one.is_error()).map(Diagnostic::message) {
        Some(message) => Err(CommandError::failed(message)),
        None => Ok(()),
    }
}

/// Returns the text of a provider file in which the model `id` has the given fields. A model that the file does not
/// list is added. `text` is the current text; `None` if the file does not exist. Fails with a reason if the text cannot
/// be edited without changes to other entries.
fn with_entry(text: Option<&str>, provider: &str, id: &str, fields: &Map<String, Value>) -> Result<String, String> {
    let Some(text) = text else {
        return Ok(format!("id: {}\nmodels:\n  - {}\n", Value::from(provider), format_entry(id, fields)));
    };
    let old = parse(text)?;
    let models = old.get("models");
    let listed = models.map(Node::items).unwrap_or_default();
    let mut expected: Vec<Value> = listed.iter().map(Node::to_value).collect();
    let at = listed.iter().position(|m| m.get("id").and_then(Node::as_str) == Some(id));
    let new = match (at.and_then(|at| listed.get(at).zip(expected.get_mut(at))), models) {
        (Some((node, Value::Object(merged))), _) => {
            merged.extend(fields.clone());
            merged.shift_remove("id");
            let entry = format_entry(id, merged);
            merged.insert("id".into(), id.into());
            match block_item(text, node) {
                Some((_, range)) => replace(text, range, &format!("- {entry}")),
                None => replace(text, node.span.range(), &entry),
            }
        }
        (Some(_), _) => return Err("the model is not a mapping".to_owned()),
        (None, models) => {
            let entry = format_entry(id, fields);
            let mut value = fields.clone();
            value.insert("id".into(), id.into());
            expected.push(value.into());
            match models {
                None => format!("{}\nmodels:\n  - {entry}\n", text.trim_end()),
                Some(list) => with_item(text, list, &entry).ok_or("`models` is not a list with entries")?,
            }
        }
    };
    let read = parse(&new)?;
    let others = |node: &Node| -> Vec<(String, Value)> {
        let entries = node.entries().iter().filter(|e| e.key.node != "models");
        entries.map(|e| (e.key.node.clone(), e.value.to_value())).collect()
    };
    let found: Vec<Value> =
        read.get("models").map(Node::items).unwrap_or_default().iter().map(Node::to_value).collect();
    if found == expected && others(&read) == others(&old) {
        Ok(new)
    } else {
        Err("its YAML layout is not supported".to_owned())
    }
}

fn parse(text: &str) -> Result<Node, String> {
    let parsed = yaml::parse(SourceId(0), text);
    match parsed.errors.first() {
        Some(error) => Err(error.to_string()),
        None => Ok(parsed.tree),
    }
}

/// Returns `text` with `entry` added at the end of the list `models`. The list can be in block style (`- a`) or in flow
/// style (`[a, b]`). `None` if the list is empty or has another layout.
fn with_item(text: &str, models: &Node, entry: &str) -> Option<String> {
    let (first, last) = (models.items().first()?, models.items().last()?);
    if text.get(models.span.range())?.starts_with('[') {
        let end = last.span.range().end;
        return Some(replace(text, end..end, &format!(", {entry}")));
    }
    let (indent, _) = block_item(text, first)?;
    let (_, range) = block_item(text, last)?;
    Some(replace(text, range.end..range.end, &format!("\n{}- {entry}", " ".repeat(indent))))
}

/// Returns the indentation in spaces of an item of a list in block style, and the item's byte range from the dash to
/// the end of its last line. `None` if anything but spaces precedes the dash in its line.
fn block_item(text: &str, item: &Node) -> Option<(usize, Range<usize>)> {
    let start = item.span.range().start;
    let line_start = text.get(..start)?.rfind('\n').map_or(0, |at| at + 1);
    let indent = text.get(line_start..start)?.strip_suffix("- ")?;
    if !indent.chars().all(|c| c == ' ') {
        return None;
    }
    let (mut end, mut at) = (start, line_start);
    for line in text.get(line_start..)?.split_inclusive('\n') {
        let content = line.trim();
        let depth = line.len() - line.trim_start().len();
        let is_content = !content.is_empty() && !content.starts_with('#');
        if at > line_start && is_content && depth <= indent.len() {
            break;
        }
        if is_content {
            end = at + line.trim_end().len();
        }
        at += line.len();
    }
    Some((indent.len(), line_start + indent.len()..end))
}

fn replace(text: &str, range: Range<usize>, with: &str) -> String {
    let mut new = text.to_owned();
    new.replace_range(range, with);
    new
}

/// Writes a model as a mapping in flow style.
fn format_entry(id: &str, fields: &Map<String, Value>) -> String {
    let mut all = Map::from_iter([("id".to_owned(), Value::from(id))]);
    all.extend(fields.clone());
    format_flow(&Value::Object(all))
}

fn format_flow(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let parts: Vec<String> = map.iter().map(|(key, value)| format!("{key}: {}", format_flow(value))).collect();
            format!("{{ {} }}", parts.join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(format_flow).collect::<Vec<_>>().join(", ")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(text: Option<&str>, id: &str, fields: &Value) -> Result<String, String> {
        with_entry(text, "alpha", id, fields.as_object().unwrap())
    }

    #[test]
    fn entries_are_written_in_the_style_of_the_file() {
        let fields = json!({"context_window": 9, "prices": {"input": "1"}});
        let entry = "{ id: \"new\", context_window: 9, prices: { input: \"1\" } }";
        assert_eq!(written(None, "new", &fields).unwrap(), format!("id: \"alpha\"\nmodels:\n  - {entry}\n"));
        for (before, after) in [
            ("# mine\nid: alpha\n", format!("# mine\nid: alpha\nmodels:\n  - {entry}\n")),
            (
                "models:\n- id: old\n  context_window: 5 # tokens\ntiers: { a: old }\n",
                format!("models:\n- id: old\n  context_window: 5 # tokens\n- {entry}\ntiers: {{ a: old }}\n"),
            ),
            (
                "models:\n    - { id: old }\n\n# end\nid: alpha",
                format!("models:\n    - {{ id: old }}\n    - {entry}\n\n# end\nid: alpha"),
            ),
            ("{ models: [{ id: old }] }", format!("{{ models: [{{ id: old }}, {entry}] }}")),
        ] {
            assert_eq!(written(Some(before), "new", &fields).unwrap(), after);
        }
    }

    #[test]
    fn an_entry_of_the_file_gets_the_new_fields_and_its_neighbors_stay() {
        let fields = json!({"prices": {"input": "2"}, "priced_at": "2026-01-02"});
        let before = "models:\n  - id: a # first\n    images: false\n    prices: { input: \"1\" }\n  # second\n  - id: b\n    images: true\n";
        let entry = "{ id: \"a\", images: false, prices: { input: \"2\" }, priced_at: \"2026-01-02\" }";
        let after = format!("models:\n  - {entry}\n  # second\n  - id: b\n    images: true\n");
        assert_eq!(written(Some(before), "a", &fields).unwrap(), after);
    }

    #[test]
    fn forms_that_cannot_be_changed_are_refused() {
        for text in ["models: none", "models: []", "models: [x", "{ id: alpha }", "- a"] {
            assert!(written(Some(text), "new", &json!({})).is_err(), "{text}");
        }
    }
}
