//! Checks of settings files against their [`schema`]: unknown keys, wrong values, and files that nothing reads. If
//! several spaces have the same file, the merged values are checked, and each error points to the file of the space
//! that sets the value. Only `agent/agent` is checked in each space separately.

mod failure_rules;
mod plausible;
mod provider;
pub mod schema;
mod without_effect;

use std::collections::BTreeSet;

use rye_grammar::capability::Pattern;
use rye_grammar::condition::{self, Path, Segment};
use rye_grammar::data::{Entry, Kind, Node};
use rye_grammar::{ItemId, Sources, Span, capability};

use crate::diagnostics::{ConfigError, Diagnostic, Diagnostics, ItemError, closest};
use crate::item::{Items, data};
use crate::key_bindings::{BOUND_ACTIONS, KEYS_FILE, check_bindings};
use crate::lower::cache::PROVIDER_PREFIX;
use crate::plan::PlanMode;
use crate::semantics::classify::{FAILURE_FACTS, fact_type};
use crate::semantics::condition::{Condition, PatternBudget};
use crate::semantics::money::Nanos;
use crate::world::{ItemKind, Space, World};
use schema::{FILES, MAX_SECONDS, RENAMED_KEYS, SettingField, SettingShape};

/// Number of nano-units in a unit.
const BILLIONTHS: u64 = 1_000_000_000;
/// The settings file that is checked in each space separately. The limits of all spaces bound a run, so the value of
/// one space must be checked even if another space has a value for the same key.
const LAYERED_FILE: &str = "agent/agent";
const CHAT_FILE: &str = "agent/chat";
/// The settings files that every run reads, besides the files of hooks and providers.
const RUN_FILES: [&str; 6] = [
    LAYERED_FILE,
    "agent/capability_risk",
    "agent/coordination",
    "agent/error_classification",
    "agent/models",
    "agent/resilience",
];

/// Locations and files whose schema errors have been reported, so that the readers of settings files do not report them
/// again.
#[derive(Debug, Default)]
pub(crate) struct ReportedPlaces {
    spans: BTreeSet<Span>,
    files: BTreeSet<String>,
    /// Patterns of the risk tables, with their spans. Patterns of capability groups are not included, because a group
    /// may name items that do not exist yet.
    pub patterns: Vec<(Pattern, Span)>,
}

impl ReportedPlaces {
    /// Returns true if the schema check has already reported the fault `error`, which another reader of the settings
    /// file found. If the reader refused a whole table, any schema error in the file counts, because the reader reports
    /// only the first error of the table.
    pub fn contains(&self, error: &ConfigError) -> bool {
        match error {
            ConfigError::Invalid { span, .. } => span.is_some_and(|span| self.spans.contains(&span)),
            ConfigError::Refused { file, .. } => self.files.contains(file),
            ConfigError::UnknownFile { .. }
            | ConfigError::OfProject { .. }
            | ConfigError::ChangesNothing { .. }
            | ConfigError::AssertsNothing { .. }
            | ConfigError::Implausible { .. }
            | ConfigError::NeverMatches { .. }
            | ConfigError::UnknownGate { .. }
            | ConfigError::Servers { .. }
            | ConfigError::LockFile { .. }
            | ConfigError::Script { .. }
            | ConfigError::MissingScript { .. }
            | ConfigError::ScriptBranch { .. }
            | ConfigError::StaleServer { .. } => false,
        }
    }
}

/// Checks one settings file; [`SettingShape::Opaque`] files are checked by their own readers.
pub(crate) fn check_file(items: &Items<'_>, id: &ItemId, reported: &mut ReportedPlaces, found: &mut Diagnostics) {
    let Some(file) = schema::find_file(id.as_str()).filter(|file| !matches!(file.shape, SettingShape::Opaque)) else {
        return;
    };
    if let SettingShape::Documentation(about) = file.shape {
        check_documentation_file(items, id, about, found);
        return;
    }
    let Some(node) = items.config(id) else { return };
    let mut walk = SettingsWalk {
        file: id.as_str(),
        found: Diagnostics::new(),
        patterns: Vec::new(),
        regexes: PatternBudget::default(),
    };
    if id.as_str() == KEYS_FILE {
        for (space, layer) in items.config_layers(id).iter().filter(|(space, _)| *space != Space::System) {
            if *space == Space::Project && !items.project_is_user_space() {
                let path = items.sources().get(layer.span.source).map(|source| source.path.to_string());
                walk.found.push(ConfigError::OfProject { path: path.unwrap_or_default(), span: layer.span });
            } else {
                walk.value(layer, &file.shape, "");
            }
        }
    } else if id.as_str() == LAYERED_FILE {
        for (_, layer) in items.config_layers(id).iter().filter(|(space, _)| *space != Space::System) {
            walk.value(layer, &file.shape, "");
        }
    } else {
        walk.value(&node, &file.shape, "");
    }
    if id.as_str().starts_with(PROVIDER_PREFIX) {
        let sources = items.sources();
        let place = |span: Span| {
            let source = sources.get(span.source)?;
            Some(format!("{}:{}", source.path, source.position(span.start).line))
        };
        provider::check(id.as_str(), &node, &place, &mut walk.found);
        plausible::check(id.as_str(), &node, &mut walk.found);
        without_effect::check_provider(id.as_str(), &node, &mut walk.found);
    }
    let is_own = |span: Span| items.sources().get(span.source).is_some_and(|s| !s.path.starts_with("system:"));
    if id.as_str() == "agent/resilience" {
        plausible::check_result_size(id.as_str(), &node, &mut walk.found);
        plausible::check_first_delay(id.as_str(), &node, &is_own, &mut walk.found);
    }
    plausible::check_delays(id.as_str(), &node, &is_own, &mut walk.found);
    if id.as_str() == "agent/capability_risk" {
        without_effect::check_tiers(id.as_str(), &node, &is_own, &mut walk.found);
    }
    if id.as_str() == "agent/error_classification" {
        failure_rules::check(items, &node, &mut walk.found);
        without_effect::check_backoff(id.as_str(), &node, &is_own, &mut walk.found);
    }
    if id.as_str() == "agent/chat" {
        without_effect::check_cache_guard(items, id.as_str(), &mut walk.found);
    }
    if walk.found.has_errors() {
        reported.files.insert(id.as_str().to_owned());
        reported.spans.extend(walk.found.iter().filter_map(|d| d.labels().into_iter().next()).map(|l| l.span));
    }
    if id.as_str() == "agent/capability_risk" {
        reported.patterns.append(&mut walk.patterns);
    }
    found.append(walk.found);
}

/// Reports a settings file of the project or the user that replaces a documentation file of the standard library. The
/// replacement has no effect, because documentation files are never read. `about` is a clause that describes the file.
fn check_documentation_file(items: &Items<'_>, id: &ItemId, about: &'static str, found: &mut Diagnostics) {
    let layers = items.config_layers(id);
    // If the standard library has no file of this id, the file does not override a description.
    if !layers.iter().any(|(space, _)| *space == Space::System) {
        return;
    }
    let written = layers.iter().filter(|(space, _)| *space != Space::System);
    for (_, node) in written.filter(|(_, node)| !matches!(node.kind, Kind::Null)) {
        let span = node.entries().first().map_or(node.span, |entry| entry.key.span);
        let path = items.sources().get(span.source).map_or_else(|| id.to_string(), |source| source.path.to_string());
        found.push(ConfigError::ChangesNothing { path, about, span });
    }
}

/// Checks the settings files that a run reads. `rye plan`, `rye run` and sessions call this function. Without this
/// check, a value or key that cannot be read would count as absent, and an absent bound permits everything. Reports the
/// errors that `rye check` reports for these files. `loaded` are the names of the providers whose files were read.
pub(crate) fn check_run_settings<'p>(
    items: &Items<'_>,
    mode: PlanMode,
    loaded: impl IntoIterator<Item = &'p str>,
    reported: &mut ReportedPlaces,
    found: &mut Diagnostics,
) {
    let loaded: BTreeSet<&str> = loaded.into_iter().collect();
    let is_read = |id: &str| match id.strip_prefix(PROVIDER_PREFIX) {
        Some(provider) => loaded.contains(provider),
        None => RUN_FILES.contains(&id) || ([CHAT_FILE, KEYS_FILE].contains(&id) && mode == PlanMode::Chat),
    };
    for id in super::user_written_ids(items, ItemKind::Config).iter().filter(|id| is_read(id.as_str())) {
        check_file(items, id, reported, found);
    }
    let mut misplaced = Diagnostics::new();
    check_unread_files(items, &mut misplaced);
    misplaced.retain(Diagnostic::is_error);
    found.append(misplaced);
    super::unrecognized_files::check_settings(items, &[Space::Project, Space::User], found);
}

/// Returns the errors of the settings files that every run reads, with the sources of their spans. The check is needed
/// before a stored plan runs, because a stored plan does not contain the settings of approvals and of the sandbox.
pub fn run_settings_errors(world: &dyn World) -> (Diagnostics, Sources) {
    let items = Items::new(world);
    let mut found = Diagnostics::new();
    check_run_settings(&items, PlanMode::Chat, [], &mut ReportedPlaces::default(), &mut found);
    found.append(items.diagnostics());
    found.retain(Diagnostic::is_error);
    found.sort(&items.sources());
    (found, items.into_sources())
}

/// Reports settings files of the project and of the user that nothing reads. In `agent/`, every file with an unknown
/// name is reported. Elsewhere, a file may hold the settings of a tool, so it is reported only if its name resembles
/// that of a known file.
pub(crate) fn check_unread_files(items: &Items<'_>, found: &mut Diagnostics) {
    for entry in items.list(ItemKind::Config).iter().filter(|e| e.space != Space::System) {
        let id = entry.id.as_str();
        if schema::find_file(id).is_some() {
            continue;
        }
        let suggestion = suggest_file(id);
        if suggestion.is_some() || id.starts_with("agent/") {
            found.push(ConfigError::UnknownFile {
                path: entry.space.display(&entry.path),
                suggestion: suggestion.map(|s| format!("{}{s}.yaml", ItemKind::Config.folder())),
            });
        }
    }
}

/// Names that other systems give to a settings file, each with the id of the file that rye reads for this purpose.
const OTHER_NAMES: [(&str, &str); 8] = [
    ("limit limits budget budgets retry retries concurrency timeouts", "agent/resilience"),
    ("permissions permission risk risks capabilities capability", "agent/capability_risk"),
    ("model defaults tiers", "agent/models"),
    ("approvals approval sandbox compaction settings setting config agents", "agent/agent"),
    ("assert asserts properties", "agent/assertions"),
    ("errors classification", "agent/error_classification"),
    ("lint lints diagnostics warnings levels", "check"),
    ("servers mcpservers mcp_servers mcp-servers", "mcp"),
];

/// Returns the id that the author of an unknown settings file probably meant: the same name in another folder, or a
/// similar name in a similar folder. `None` if there is no such file.
pub(super) fn suggest_file(id: &str) -> Option<String> {
    let (folder, name) = id.rsplit_once('/').unwrap_or(("", id));
    let files = || FILES.iter().map(|f| f.id).filter(|id| !id.ends_with('/'));
    let last = |id: &'static str| id.rsplit('/').next().unwrap_or(id);
    let near_folder = folder.is_empty() || folder == "agent" || closest(folder, ["agent"]).is_some();
    // `check` and `mcp` are common names, so that a file of a tool may have them.
    let is_common = |id: &str| !id.contains('/');
    if let Some(same) = files().find(|id| last(id) == name && (near_folder || !is_common(id))) {
        return Some(same.to_owned());
    }
    // The author probably used the name of a single file as a folder: `agent/hooks/guards`.
    let of_folder = id.rsplit_once('/').map(|(folder, _)| folder);
    let in_folder = of_folder.and_then(|folder| {
        let single =
            |id: &&'static str| *id == folder || last(id) == folder || (folder == "hook" && *id == "agent/hooks");
        files().filter(|id| !is_common(id) && *id != "agent/agent").find(|id| single(id))
    });
    if let Some(single) = in_folder {
        return Some(single.to_owned());
    }
    // A file with such a general name directly in `.ai/config/` may belong to a tool.
    let is_general =
        folder.is_empty() && ["settings", "setting", "config", "agents", "errors", "properties"].contains(&name);
    if near_folder && !is_general {
        if let Some((_, meant)) = OTHER_NAMES.iter().find(|(words, _)| words.split(' ').any(|w| w == name)) {
            return Some((*meant).to_owned());
        }
        // The author probably wrote a single file in place of a folder of files.
        let of_many = FILES.iter().filter_map(|f| f.id.strip_suffix('/')).find(|folder| last(folder) == name);
        if let Some(of_many) = of_many.or_else(|| (name == "provider").then_some("agent/providers")) {
            return Some(format!("{of_many}/NAME"));
        }
        // `mcp` is too short for a guess.
        if let Some(near) = closest(name, files().map(last).filter(|name| *name != "mcp")) {
            return files().find(|id| last(id) == near).map(str::to_owned);
        }
    }
    // Checks for a typo in the name of a folder that may contain any number of files.
    let folders = FILES.iter().filter_map(|f| f.id.strip_suffix('/'));
    closest(folder, folders).map(|near| format!("{near}/{name}"))
}

struct SettingsWalk<'f> {
    file: &'f str,
    found: Diagnostics,
    patterns: Vec<(Pattern, Span)>,
    /// The total size that the remaining patterns of `matches` in this file may have.
    regexes: PatternBudget,
}

impl SettingsWalk<'_> {
    fn invalid(&mut self, key: &str, found: &str, expected: String, span: Span) {
        self.found.push(ConfigError::Invalid {
            file: self.file.to_owned(),
            key: key.to_owned(),
            found: found.to_owned(),
            expected,
            span: Some(span),
        });
    }

    fn report_wrong_value(&mut self, key: &str, node: &Node, shape: &SettingShape) {
        let found = match node.as_str() {
            Some(text) if is_quoted_value(text, shape) => format!("the text `\"{text}\"`"),
            _ => data::describe(node),
        };
        self.invalid(key, &found, shape.expected(), node.span);
    }

    fn value(&mut self, node: &Node, shape: &SettingShape, key: &str) {
        match shape {
            SettingShape::Opaque | SettingShape::Documentation(_) => {}
            SettingShape::Text if node.as_str().is_some_and(|t| !t.trim().is_empty()) => {}
            SettingShape::Bool if node.as_bool().is_some() => {}
            SettingShape::Integer { least } if as_integer(node).is_some_and(|n| n >= *least) => {}
            SettingShape::Seconds if as_number(node).is_some_and(|n| (0.0..=MAX_SECONDS).contains(&n)) => {}
            SettingShape::Dollars if as_nanos(node).is_some_and(|amount| amount.to_u64() > 0) => {}
            SettingShape::Fraction if as_nanos(node).is_some_and(|part| (1..=BILLIONTHS).contains(&part.to_u64())) => {}
            SettingShape::Price if is_price(node) => {}
            SettingShape::Text
            | SettingShape::Bool
            | SettingShape::Integer { .. }
            | SettingShape::Seconds
            | SettingShape::Dollars
            | SettingShape::Fraction
            | SettingShape::Price => {
                self.report_wrong_value(key, node, shape);
            }
            SettingShape::OneOf(words) => self.check_word(node, words, shape, key),
            SettingShape::MapOr(word, _) if node.as_str() == Some(*word) => {}
            SettingShape::Map(fields) | SettingShape::MapOr(_, fields) => self.map(node, fields, shape, key),
            SettingShape::Names(value) => {
                if self.mapping(node, shape, key) {
                    for entry in node.entries() {
                        self.value(&entry.value, value, &join(key, &entry.key.node));
                    }
                }
            }
            SettingShape::NamedValues(names, value) => {
                if self.mapping(node, shape, key) {
                    let place = self.place(key);
                    data::check_keys(&mut self.found, node.entries(), names, &place);
                    for entry in node.entries().iter().filter(|e| names.contains(&e.key.node.as_str())) {
                        self.value(&entry.value, value, &join(key, &entry.key.node));
                    }
                }
            }
            SettingShape::KeyBindings => {
                if self.mapping(node, shape, key) {
                    let place = self.place(key);
                    data::check_keys(&mut self.found, node.entries(), &BOUND_ACTIONS.map(|one| one.id), &place);
                    check_bindings(node, &mut self.found);
                }
            }
            SettingShape::List(item) => {
                if !matches!(node.kind, Kind::List(_)) {
                    self.report_wrong_value(key, node, shape);
                }
                for (i, node) in node.items().iter().enumerate() {
                    let id = node.get("id").and_then(Node::as_str);
                    self.value(node, item, &join(key, &id.map_or_else(|| i.to_string(), str::to_owned)));
                }
            }
            // A condition without a value is true for every failure.
            SettingShape::Failure if node.to_value().is_null() => self.report_wrong_value(key, node, shape),
            SettingShape::Failure => self.check_failure_condition(node, key),
            SettingShape::Pattern => {
                let Some(text) = node.as_str() else { return self.report_wrong_value(key, node, shape) };
                match capability::parse(node.span.source, text, node.content_start()) {
                    Ok(pattern) => self.patterns.push((pattern, node.span)),
                    Err(error) => self.found.push(if node.is_verbatim() { error } else { error.within(node.span) }),
                }
            }
        }
    }

    fn check_word(&mut self, node: &Node, words: &[&str], shape: &SettingShape, key: &str) {
        match node.as_str() {
            Some(word) if words.contains(&word) => {}
            Some(_) | None => self.report_wrong_value(key, node, shape),
        }
    }

    fn mapping(&mut self, node: &Node, shape: &SettingShape, key: &str) -> bool {
        match node.kind {
            Kind::Map(_) => true,
            // A file that contains only comments is empty.
            Kind::Null if key.is_empty() => false,
            Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::String(_) | Kind::List(_) => {
                self.report_wrong_value(key, node, shape);
                false
            }
        }
    }

    fn map(&mut self, node: &Node, fields: &[SettingField], shape: &SettingShape, key: &str) {
        if !self.mapping(node, shape, key) {
            return;
        }
        let known: Vec<&str> = fields.iter().map(|f| f.key).collect();
        let place = self.place(key);
        let (renamed, others): (Vec<_>, Vec<_>) =
            node.entries().iter().cloned().partition(|entry| self.new_name(key, entry).is_some());
        for entry in &renamed {
            self.found.push(ItemError::UnknownKey {
                what: "key",
                key: entry.key.node.clone(),
                of: place.clone(),
                span: entry.key.span,
                suggestion: self.new_name(key, entry).map(str::to_owned),
                known: Vec::new(),
            });
        }
        data::check_keys(&mut self.found, &others, &known, &place);
        for field in fields {
            let at = join(key, field.key);
            match node.get(field.key) {
                Some(value) => self.value(value, &field.shape, &at),
                None if field.is_required => {
                    let span = node.get("id").map_or(node.span, |id| id.span);
                    self.invalid(&at, "missing", field.shape.expected(), span);
                }
                None => {}
            }
        }
    }

    /// Returns the current name of a setting that is written under its old name; `None` for any other setting. The
    /// setting is `entry` of the mapping at the path `key`.
    fn new_name(&self, key: &str, entry: &Entry) -> Option<&'static str> {
        let path = join(key, &entry.key.node);
        let renamed = RENAMED_KEYS.iter().find(|(file, old, _)| *file == self.file && *old == path);
        renamed.map(|(_, _, new)| *new)
    }

    /// Returns the words that name the mapping at `key` in a message; an empty `key` stands for the whole file.
    fn place(&self, key: &str) -> String {
        if key.is_empty() { format!("`{}`", self.file) } else { format!("`{key}` of `{}`", self.file) }
    }

    fn check_failure_condition(&mut self, node: &Node, key: &str) {
        let parsed = condition::from_data(node);
        let broken = !parsed.errors.is_empty();
        self.found.syntax(parsed.errors);
        let Some(expr) = parsed.tree.filter(|_| !broken) else { return };
        match Condition::compile_within(&expr, &fact_type, &mut self.regexes) {
            Ok(_) => {}
            Err(faults) => self.found.syntax(crate::item::hook::condition_errors(faults)),
        }
        for (path, span) in super::hook::condition_paths(&expr) {
            if !is_fact(path) {
                let found = format!("a condition on `{path}`");
                let known: Vec<String> = FAILURE_FACTS.iter().map(|f| format!("`{f}`")).collect();
                self.invalid(
                    key,
                    &found,
                    format!("one of the facts that a condition can read: {}", known.join(", ")),
                    span,
                );
            }
        }
    }
}

/// Returns true if a condition on a failure may read this path: a fact of a failure, or any response header, because
/// the headers depend on the provider.
fn is_fact(path: &Path) -> bool {
    let names: Vec<&str> = path
        .segments
        .iter()
        .map(|s| match s {
            Segment::Name(name) => name.as_str(),
            Segment::Number(_) => "",
        })
        .collect();
    match names.as_slice() {
        ["headers", ..] | ["error"] => true,
        [only] => FAILURE_FACTS.contains(only),
        ["error", field] => FAILURE_FACTS.iter().any(|f| f.strip_prefix("error.") == Some(field)),
        _ => false,
    }
}

/// Returns true if a text would be a valid value without its quotes.
fn is_quoted_value(text: &str, shape: &SettingShape) -> bool {
    match shape {
        SettingShape::Bool => matches!(text, "true" | "false"),
        SettingShape::Integer { least } => text.parse::<u64>().is_ok_and(|number| number >= *least),
        SettingShape::Seconds => text.parse::<f64>().is_ok_and(|number| (0.0..=MAX_SECONDS).contains(&number)),
        SettingShape::Dollars => Nanos::parse(text).is_ok_and(|amount| amount.to_u64() > 0),
        SettingShape::Fraction => text.parse::<f64>().is_ok_and(|number| number > 0.0 && number <= 1.0),
        SettingShape::Opaque
        | SettingShape::Documentation(_)
        | SettingShape::Text
        | SettingShape::Price
        | SettingShape::OneOf(_)
        | SettingShape::MapOr(..)
        | SettingShape::Map(_)
        | SettingShape::Names(_)
        | SettingShape::NamedValues(..)
        | SettingShape::List(_)
        | SettingShape::KeyBindings
        | SettingShape::Failure
        | SettingShape::Pattern => false,
    }
}

fn join(key: &str, name: &str) -> String {
    if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") }
}

fn as_integer(node: &Node) -> Option<u64> {
    if let Kind::Number(number) = &node.kind { number.as_u64() } else { None }
}

fn as_nanos(node: &Node) -> Option<Nanos> {
    if let Kind::Number(_) = &node.kind { Nanos::from_json(&node.to_value()).ok() } else { None }
}

fn as_number(node: &Node) -> Option<f64> {
    if let Kind::Number(number) = &node.kind { number.as_f64().filter(|n| n.is_finite()) } else { None }
}

fn is_price(node: &Node) -> bool {
    let price = match &node.kind {
        Kind::String(text) => Nanos::parse(text).ok(),
        Kind::Number(_) => Nanos::from_json(&node.to_value()).ok(),
        Kind::Null | Kind::Bool(_) | Kind::List(_) | Kind::Map(_) => None,
    };
    price.is_some_and(|p| !p.is_negative())
}
