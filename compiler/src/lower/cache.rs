//! State shared by all directives of one compilation: the provider catalog, the risk table, the settings frozen into
//! plans, and the list of tools. Each is read on first use, once.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use rye_grammar::data::{Kind, Node};
use rye_grammar::{ItemId, Span};
use serde_json::Value;

use crate::compose::Composed;
use crate::diagnostics::{ConfigError, Diagnostics, ModelError, PaletteError, PlanError, closest};
use crate::item::{Dependencies, Dependency, Invalidation, Items, ModelRequest};
use crate::mcp_servers::{ConfiguredServers, ServerDrift, report_drift};
use crate::model::{self, ModelOverride, ModelSettings, ProviderCatalog};
use crate::palette::{self, OpeningSize, Palette, PreloadSettings, SizedTool, ToolIndex, UnmetNeed};
use crate::plan::graph::{Graph, GraphNeeds, build_graph};
use crate::plan::verify::verify_graph;
use crate::plan::{
    Capabilities, DroppedTool, Grant, PaletteTool, PlanSettings, PlannedModel, TextSize, Tokenizer, ToolUse,
};
use crate::semantics::glob::Glob;
use crate::semantics::risk::{Risk, RiskTable};
use crate::tool_spec::{ToolKind, ToolSpec};
use crate::wire_tool::SchemaDialect;
use crate::world::{ItemKind, Space};

/// The settings that a run reads, by their key in `Plan::settings`.
pub(crate) const FROZEN_SETTINGS: [&str; 4] = ["resilience", "coordination", "error_classification", "capability_risk"];
/// Id prefix of provider files.
pub const PROVIDER_PREFIX: &str = "agent/providers/";

/// A palette with its diagnostics and dependencies.
pub struct PaletteEntry {
    pub palette: Palette,
    pub diagnostics: Diagnostics,
    /// Tools whose definitions exceed the token budget, each with its number of tokens. Each tool is reported once for
    /// each `<permissions>` element that grants it.
    heavy: Vec<(String, u64)>,
    /// Tools that are left out, because the settings of their MCP server refuse every call.
    refused: Vec<(ItemId, ServerDrift)>,
    /// Tools that are left out, because they need a folder, a host or a right that no grant gives.
    dead: Vec<(DroppedTool, UnmetNeed)>,
    /// Granted tools that could not be read.
    unread: Vec<ItemId>,
    /// Everything that was read to build the palette.
    reads: Dependencies,
    /// Total size of the definitions of all tools in the palette, by the form in which a request contains them.
    openings: RefCell<BTreeMap<DefinitionForm, OpeningSize>>,
}

/// The schema of a tool, and the size of the tool's definition in one [`DefinitionForm`]. The cache finds this pair by the
/// address of the schema. The pair keeps the schema alive, because another schema could get the address of a freed one.
type SharedDefinition = (Arc<Value>, TextSize);

/// The three properties that determine the size of a tool definition: the schema dialect of the wire format (`None` if
/// it sends no schema), native or textual tool use, and the tokenizer.
type DefinitionForm = (Option<SchemaDialect>, ToolUse, Tokenizer);

fn definition_form(model: &PlannedModel) -> DefinitionForm {
    (SchemaDialect::of_wire(&model.wire), model.tool_use, model.counted_by)
}

/// Maximum number of cached models. A lookup compares the requests one by one, so a longer list would be slow.
const MAX_SHARED_MODELS: usize = 32;

impl PaletteEntry {
    /// Reports each MCP server whose settings refuse every call of its granted tools. A server is reported once.
    pub(crate) fn report_refused(&self, items: &Items<'_>, found: &mut Diagnostics) {
        report_drift(items, &self.refused, found);
    }

    /// Returns the tools that `pattern` matches, each with the need that no grant meets, if none of these tools can be
    /// called. The result is empty if a matching tool can be called.
    pub(crate) fn dead_tools(&self, pattern: &str) -> Vec<&(DroppedTool, UnmetNeed)> {
        if self.dead.is_empty() {
            return Vec::new();
        }
        let glob = Glob::new(pattern);
        let matches = |id: &ItemId| glob.matches(&format!("rye.execute.tool.{}", id.dotted()));
        let dead: Vec<_> = self.dead.iter().filter(|(tool, _)| matches(&tool.item_id)).collect();
        let is_dead = |id: &ItemId| dead.iter().any(|(tool, _)| tool.item_id == *id);
        let offered = self.palette.tools.iter().filter_map(|tool| tool.item_id.as_ref());
        let dropped = self.palette.dropped.iter().map(|tool| &tool.item_id).filter(|id| !is_dead(id));
        if offered.chain(dropped).chain(&self.unread).any(matches) { Vec::new() } else { dead }
    }

    /// Returns true if `other` certainly yields the same check results as this palette, for every directive.
    fn is_equivalent(&self, other: &Self) -> bool {
        let is_counted = !Tokenizer::O200k.available().is_estimate();
        self.diagnostics.is_empty()
            && other.diagnostics.is_empty()
            && self.heavy.is_empty() == other.heavy.is_empty()
            && self.dead == other.dead
            && self.unread == other.unread
            && self.palette.tokens() == other.palette.tokens()
            && (!is_counted || self.palette.tools == other.palette.tools)
    }
}

type Grants = Arc<[Grant]>;

/// Results of a compilation that a later compilation may reuse, if the files that they were computed from did not
/// change.
#[derive(Default)]
pub(crate) struct LowerCache {
    tools: OnceCell<ToolIndex>,
    sized: RefCell<BTreeMap<ItemId, Option<SizedTool>>>,
    /// Palettes by grants: directives with the same grants share a palette.
    palettes: RefCell<BTreeMap<Grants, Rc<PaletteEntry>>>,
    proofs: RefCell<BTreeMap<GraphNeeds, (Graph, Vec<PlanError>)>>,
}

impl LowerCache {
    /// Returns the number of cached palettes.
    pub(crate) fn palette_count(&self) -> usize {
        self.palettes.borrow().len()
    }

    /// Evicts palettes that are no longer in use.
    pub(crate) fn evict_palettes(&mut self, is_in_use: impl Fn(&Dependency) -> bool) {
        self.palettes.get_mut().retain(|grants, _| is_in_use(&Dependency::Palette(grants.clone())));
    }

    /// Evicts the results that the changes invalidate. Keeps palettes, which `LowerContext::revalidate_palettes`
    /// rebuilds, unless everything has changed.
    pub fn invalidate(&mut self, changes: &Invalidation) {
        if changes.everything {
            *self = Self::default();
        }
        if changes.affects_list(ItemKind::Tool) {
            self.tools.take();
        }
        for read in &changes.reads {
            if let Dependency::Item(ItemKind::Tool, id) = read {
                self.sized.get_mut().remove(id);
            }
        }
    }
}

/// The state that the directives of one compilation or of one check share (see the module comment).
pub struct LowerContext<'i, 'w> {
    pub items: &'i Items<'w>,
    catalog: OnceCell<ProviderCatalog<'i>>,
    risk: OnceCell<RiskTable>,
    preload: OnceCell<PreloadSettings>,
    frozen: OnceCell<PlanSettings>,
    servers: OnceCell<ConfiguredServers>,
    risks: RefCell<BTreeMap<String, Risk>>,
    /// Memo of the resolved models, by the model that a directive requests. The list is short, because most directives
    /// of a project request one of a few models.
    models: RefCell<Vec<(Option<ModelRequest>, Rc<PlannedModel>)>>,
    /// Memo of the sizes of tool definitions, by the address of the tool's schema and the form of the definition in a
    /// request. A schema that many palettes share is counted once.
    definitions: RefCell<BTreeMap<(*const Value, DefinitionForm), SharedDefinition>>,
    /// Palettes with errors, by the span of the `<permissions>` element in which the errors are reported.
    faulty: RefCell<BTreeMap<Span, Rc<PaletteEntry>>>,
    kept: LowerCache,
    found: Rc<RefCell<Diagnostics>>,
}

impl<'i, 'w> LowerContext<'i, 'w> {
    pub fn new(items: &'i Items<'w>) -> Self {
        Self::with_cache(items, LowerCache::default())
    }

    /// Creates a context that reuses the valid results of an earlier compilation.
    pub(crate) fn with_cache(items: &'i Items<'w>, kept: LowerCache) -> Self {
        Self {
            items,
            kept,
            catalog: OnceCell::new(),
            risk: OnceCell::new(),
            preload: OnceCell::new(),
            frozen: OnceCell::new(),
            servers: OnceCell::new(),
            risks: RefCell::default(),
            models: RefCell::default(),
            definitions: RefCell::default(),
            faulty: RefCell::default(),
            found: Rc::default(),
        }
    }

    pub(crate) fn into_cache(self) -> LowerCache {
        self.kept
    }

    /// Returns the diagnostics of the settings that were read so far.
    pub fn diagnostics(&self) -> Diagnostics {
        self.found.borrow().clone()
    }

    /// Returns the graph of a directive with these needs, and the invariants that the graph violates. Memoized, because
    /// many directives have equal needs.
    pub fn graph(&self, needs: GraphNeeds) -> (Graph, Vec<PlanError>) {
        let mut proofs = self.kept.proofs.borrow_mut();
        if let Some(proved) = proofs.get(&needs) {
            return proved.clone();
        }
        let graph = build_graph(&needs);
        let broken = verify_graph(&graph);
        let proved = (graph, broken);
        proofs.insert(needs, proved.clone());
        proved
    }

    /// Returns the providers and their models.
    pub fn catalog(&self) -> &ProviderCatalog<'i> {
        self.catalog.get_or_init(|| {
            let (items, found) = (self.items, Rc::clone(&self.found));
            let mut settings = items
                .config_by_name("agent/models")
                .map_or_else(ModelSettings::default, |node| model::read_settings(&node, &mut found.borrow_mut()));
            let chosen = settings.default_provider.as_ref().is_some_and(|provider| self.is_user_written(provider.span));
            settings.is_provider_chosen = chosen;
            let names = items.list(ItemKind::Config);
            let names = names.iter().filter_map(|e| e.id.as_str().strip_prefix(PROVIDER_PREFIX));
            let names: Vec<String> = names.filter(|name| !name.contains('/')).map(str::to_owned).collect();
            // If no provider exists, each directive that requests a model reports the missing provider.
            if let Some(default) =
                settings.default_provider.as_ref().filter(|d| !names.is_empty() && !names.contains(&d.node))
            {
                found.borrow_mut().push(ModelError::NoProvider {
                    requested: default.node.clone(),
                    span: Some(default.span),
                    of: None,
                    suggestion: closest(&default.node, names.iter().map(String::as_str)),
                    known: names.clone(),
                });
            }
            let load = move |name: &str| {
                let node = items.config_by_name(&format!("{PROVIDER_PREFIX}{name}"))?;
                model::read_provider(name, &node, &items.sources(), &mut found.borrow_mut())
            };
            ProviderCatalog::new(settings, names, Box::new(load))
        })
    }

    /// Reads the settings that all directives share, so that their errors are reported even if no directive uses them.
    pub(crate) fn read_settings(&self) {
        self.catalog();
        self.preload();
        self.risk();
    }

    /// Reads a provider file even if no directive uses it; its errors are part of [`LowerContext::diagnostics`].
    pub(crate) fn check_provider_file(&self, id: &ItemId) {
        if let Some(name) = id.as_str().strip_prefix(PROVIDER_PREFIX) {
            self.catalog().load(name);
        }
    }

    /// Reports tiers that `agent/models` names and no provider has, and aliases that have the name of a tier. Does
    /// nothing if neither the project nor the user has a file `agent/models`, because the check reads all provider
    /// files.
    pub(crate) fn check_tiers(&self, found: &mut Diagnostics) {
        let Ok(id) = ItemId::parse("agent/models") else { return };
        let written = self.items.list(ItemKind::Config).iter().any(|e| e.id == id && e.space != Space::System);
        let Some(node) = self.items.config(&id).filter(|_| written && self.catalog().has_any()) else { return };
        let known = self.catalog().tiers();
        let aliases = node.get("aliases").map(Node::entries).unwrap_or_default();
        for alias in aliases.iter().filter(|alias| known.contains(&alias.key.node)) {
            if alias.value.as_str().is_some_and(|tier| tier != alias.key.node) {
                found.push(ConfigError::Implausible {
                    file: "agent/models".to_owned(),
                    key: format!("aliases.{}", alias.key.node),
                    why: "the alias has the name of a tier, so the tier cannot be selected".to_owned(),
                    help: "give the alias another name".to_owned(),
                    span: alias.key.span,
                });
            }
        }
        let aliases = aliases.iter().map(|e| &e.value);
        for value in node.get("default_tier").into_iter().chain(aliases) {
            if let Some(tier) = value.as_str().filter(|t| !known.iter().any(|k| k == t)) {
                found.push(ModelError::NoTier {
                    requested: tier.to_owned(),
                    span: value.span,
                    suggestion: closest(tier, known.iter().map(String::as_str)),
                    known: known.clone(),
                });
            }
        }
    }

    fn risk(&self) -> &RiskTable {
        self.risk.get_or_init(|| {
            let Some(node) = self.items.config_by_name("agent/capability_risk") else { return RiskTable::default() };
            RiskTable::from_value(&node.to_value()).unwrap_or_else(|fault| {
                self.found.borrow_mut().push(ConfigError::Refused {
                    file: "agent/capability_risk".to_owned(),
                    key: fault.at.clone(),
                    why: fault.message.clone(),
                    span: Some(node_at_path(&node, &fault.at).span),
                });
                RiskTable::default()
            })
        })
    }

    /// Resolves the model that a directive requests, without an override by a user or a parent. Equal requests share
    /// the result.
    ///
    /// # Errors
    /// There is no provider, model or tier of that name.
    pub(crate) fn declared_model(&self, requested: Option<&ModelRequest>) -> Result<Rc<PlannedModel>, ModelError> {
        let is_same = |known: &Option<ModelRequest>| match (known, requested) {
            (Some(known), Some(requested)) => known.names_same_model(requested),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if let Some((_, model)) = self.models.borrow().iter().find(|(known, _)| is_same(known)) {
            return Ok(Rc::clone(model));
        }
        let model = Rc::new(self.catalog().resolve(requested, &ModelOverride::default())?);
        let mut models = self.models.borrow_mut();
        if models.len() < MAX_SHARED_MODELS {
            models.push((requested.cloned(), Rc::clone(&model)));
        }
        Ok(model)
    }

    /// Returns the size of a palette's tools in a request to a model.
    pub fn opening(&self, entry: &PaletteEntry, model: &PlannedModel) -> OpeningSize {
        let form = definition_form(model);
        let size_of = |tool: &PaletteTool| {
            let key = (Arc::as_ptr(&tool.schema), form);
            let known = self.definitions.borrow().get(&key).map(|(_, size)| *size);
            known.unwrap_or_else(|| {
                let size = model.definition_size(tool);
                self.definitions.borrow_mut().insert(key, (Arc::clone(&tool.schema), size));
                size
            })
        };
        *entry.openings.borrow_mut().entry(form).or_insert_with(|| entry.palette.opening(model, &size_of))
    }

    /// Returns the palette for the capabilities of a composed directive, without the return tool.
    pub fn palette(&self, composed: &Composed, capabilities: &Capabilities) -> Rc<PaletteEntry> {
        let key = composed.permissions.as_ref().map(|p| p.value.span);
        if let Some(known) = key.and_then(|key| self.faulty.borrow().get(&key).cloned()) {
            self.items.record_reads(&known.reads);
            return known;
        }
        // Do not warn about tools that are dropped from a wildcard grant of the standard library; the plan lists them.
        let written = key.filter(|span| self.is_user_written(*span));
        // Without `<permissions>`, all primaries are offered; with an empty `<permissions>`, none. Neither has grants,
        // so the palette without `<permissions>` is not cached by grants.
        let has_grants = capabilities.declared || !capabilities.grants.is_empty();
        let grants: Option<Grants> = has_grants.then(|| capabilities.grants.as_slice().into());
        if let Some(grants) = &grants
            && let Some(known) = self.kept.palettes.borrow().get(grants)
            && (written.is_none() || known.heavy.is_empty())
        {
            self.items.record_read(|| Dependency::Palette(grants.clone()));
            return Rc::clone(known);
        }
        let place = |pattern: &str| {
            let grants = &composed.permissions.as_ref()?.value.grants;
            grants.iter().find(|g| g.pattern.0 == pattern).map(|g| g.span)
        };
        // The directive depends on the resulting palette, not on the reads that the palette was built from.
        let mut built = self.items.untracked(|| self.build_palette(grants.as_deref(), &place));
        if let Some(span) = written.filter(|_| !built.heavy.is_empty()) {
            let (tools, max_tokens) = (built.heavy.clone(), self.preload().max_tokens);
            built.diagnostics.push(PaletteError::Dropped { tools, max_tokens, span });
        }
        let built = Rc::new(built);
        if let Some(grants) = grants.filter(|_| built.diagnostics.is_empty()) {
            self.items.record_read(|| Dependency::Palette(grants.clone()));
            self.kept.palettes.borrow_mut().insert(grants, Rc::clone(&built));
        } else {
            self.items.record_reads(&built.reads);
            // The diagnostics point at this `<permissions>` element, so the palette cannot be shared with other
            // directives.
            if let Some(key) = key.filter(|_| !built.diagnostics.is_empty()) {
                self.faulty.borrow_mut().insert(key, Rc::clone(&built));
            }
        }
        built
    }

    /// Updates the cached palettes that `changes` affects: rebuilds the palettes that `is_in_use` accepts, and drops
    /// all other palettes. If a rebuilt palette differs from its earlier version, adds it to `changes`, so that the
    /// results computed from the earlier version are invalidated.
    pub(crate) fn revalidate_palettes(&self, changes: &mut Invalidation, is_in_use: impl Fn(&Dependency) -> bool) {
        let palettes = self.kept.palettes.borrow();
        let touched = palettes.iter().filter(|(_, built)| changes.affects(&built.reads));
        let touched: Vec<(Grants, Rc<PaletteEntry>)> =
            touched.map(|(grants, built)| (grants.clone(), Rc::clone(built))).collect();
        drop(palettes);
        for (grants, before) in touched {
            self.kept.palettes.borrow_mut().remove(&grants);
            if !is_in_use(&Dependency::Palette(grants.clone())) {
                continue;
            }
            let now = self.build_palette(Some(&grants), &|_| None);
            if now.is_equivalent(&before) {
                self.kept.palettes.borrow_mut().insert(grants, Rc::new(now));
            } else {
                changes.reads.insert(Dependency::Palette(grants));
            }
        }
    }

    /// Evicts the cached sizes and palettes of tools whose diagnostics were dropped, so that the next use reports the
    /// diagnostics again.
    pub(crate) fn evict_tools(&self, forgotten: &[(ItemKind, ItemId)]) {
        for (_, id) in forgotten.iter().filter(|(kind, _)| *kind == ItemKind::Tool) {
            self.kept.sized.borrow_mut().remove(id);
            let read = Dependency::Item(ItemKind::Tool, id.clone());
            self.kept.palettes.borrow_mut().retain(|_, built| !built.reads.contains(&read));
        }
    }

    /// Returns true if a cached palette that is still in use was computed from `read`. `is_in_use` returns true if a
    /// current result depends on the given palette.
    pub(crate) fn is_in_palette(&self, read: &Dependency, is_in_use: impl Fn(&Dependency) -> bool) -> bool {
        let palettes = self.kept.palettes.borrow();
        palettes
            .iter()
            .any(|(grants, built)| built.reads.contains(read) && is_in_use(&Dependency::Palette(grants.clone())))
    }

    fn build_palette(&self, grants: Option<&[Grant]>, place: &dyn Fn(&str) -> Option<Span>) -> PaletteEntry {
        let mut diagnostics = Diagnostics::new();
        let (mut refused, mut dead, mut unread) = (Vec::new(), Vec::new(), Vec::new());
        let patterns: Option<Vec<String>> =
            grants.map(|grants| grants.iter().map(|grant| grant.pattern.clone()).collect());
        let (mut palette, reads) = self.items.tracked(|| {
            let preload = self.preload();
            let possible = |pattern: &str| self.items.possible_primaries(pattern);
            let primaries = palette::granted_primaries(patterns.as_deref(), possible);
            let granted = patterns.as_deref().filter(|_| preload.enabled);
            let mut reached = Vec::new();
            for one in granted.map_or_else(Vec::new, |patterns| self.tools().reached(patterns)) {
                // A tool that cannot be read was already reported by the parser.
                let Some(tool) = self.sized_tool(&one.id) else {
                    unread.push(one.id);
                    continue;
                };
                let (tokens, bytes) = (tool.tokens, tool.bytes);
                let drop = |because| DroppedTool { item_id: one.id.clone(), tokens, bytes, because, refused: true };
                let drift = self.server_drift(&tool.tool.spec).filter(ServerDrift::refuses_calls);
                if let Some(drift) = drift {
                    refused.push((drop(drift.to_string()), drift));
                } else if let Some(unmet) = palette::unmet_need(&tool.tool, grants.unwrap_or_default()) {
                    dead.push((drop(format!("it needs {}, which no grant gives", unmet.need)), unmet));
                } else {
                    reached.push((one, tool));
                }
            }
            palette::build(&primaries, &reached, preload, place, &mut diagnostics)
        });
        let heavy = palette
            .dropped
            .iter()
            .filter(|d| d.tokens > 0 && palette::tool_name(&d.item_id).len() <= palette::MAX_TOOL_NAME_BYTES);
        let heavy = heavy.map(|d| (d.item_id.to_string(), d.tokens)).collect();
        palette.dropped.extend(refused.iter().map(|(dropped, _)| dropped.clone()));
        palette.dropped.extend(dead.iter().map(|(dropped, _): &(DroppedTool, UnmetNeed)| dropped.clone()));
        let refused = refused.into_iter().map(|(dropped, drift)| (dropped.item_id, drift)).collect();
        PaletteEntry { palette, diagnostics, heavy, refused, dead, unread, reads, openings: RefCell::default() }
    }

    /// Compares an MCP tool with the settings of its server; `None` if they agree, or if the tool is not an MCP tool.
    /// The settings of all servers are read at the first call for an MCP tool.
    fn server_drift(&self, spec: &ToolSpec) -> Option<ServerDrift> {
        if !matches!(spec.kind, ToolKind::Mcp { .. }) {
            return None;
        }
        self.servers.get_or_init(|| ConfiguredServers::read(self.items)).drift_of(spec)
    }

    /// Returns true if a span is in a file of the project or the user.
    fn is_user_written(&self, span: Span) -> bool {
        self.items.sources().get(span.source).is_some_and(|source| !source.path.starts_with("system:"))
    }

    /// Returns a tool with the tokens of its definition; `None` if the tool cannot be read, which the parser reported.
    fn sized_tool(&self, id: &ItemId) -> Option<SizedTool> {
        self.items.record_read(|| Dependency::Item(ItemKind::Tool, id.clone()));
        if let Some(known) = self.kept.sized.borrow().get(id) {
            return known.clone();
        }
        let sized = self.items.tool(id).map(SizedTool::of);
        self.kept.sized.borrow_mut().insert(id.clone(), sized.clone());
        sized
    }

    /// Returns the risk of a grant.
    pub(crate) fn risk_of(&self, pattern: &str) -> Risk {
        if let Some(known) = self.risks.borrow().get(pattern) {
            return known.clone();
        }
        let risk = self.risk().classify_grant(pattern);
        self.risks.borrow_mut().insert(pattern.to_owned(), risk.clone());
        risk
    }

    fn preload(&self) -> PreloadSettings {
        *self.preload.get_or_init(|| {
            let node = self.items.config_by_name("agent/resilience");
            let section = node.as_ref().and_then(|n| n.get("tool_preload"));
            section.map_or_else(PreloadSettings::default, |section| read_preload(section, &mut self.found.borrow_mut()))
        })
    }

    /// Returns the merged settings that a run reads.
    pub(crate) fn frozen_settings(&self) -> &PlanSettings {
        self.frozen.get_or_init(|| {
            let value = |name: &&str| {
                let node = self.items.config_by_name(&format!("agent/{name}"))?;
                Some(((*name).to_owned(), node.to_value()))
            };
            PlanSettings::new(FROZEN_SETTINGS.iter().filter_map(value).collect())
        })
    }

    fn tools(&self) -> &ToolIndex {
        self.items.record_read(|| Dependency::List(ItemKind::Tool));
        self.kept.tools.get_or_init(|| ToolIndex::new(self.items.list(ItemKind::Tool).iter().map(|e| e.id.clone())))
    }
}

/// Returns the node at a dotted path; if a segment does not exist, returns the node at the path before that segment.
fn node_at_path<'n>(node: &'n Node, path: &str) -> &'n Node {
    let mut here = node;
    for segment in path.split('.') {
        let next = segment.parse().ok().and_then(|i: usize| here.items().get(i)).or_else(|| here.get(segment));
        let Some(next) = next else { break };
        here = next;
    }
    here
}

fn read_preload(section: &Node, found: &mut Diagnostics) -> PreloadSettings {
    let mut preload = PreloadSettings::default();
    for entry in section.entries() {
        let expected = match (entry.key.node.as_str(), &entry.value.kind) {
            ("enabled", Kind::Bool(enabled)) => {
                preload.enabled = *enabled;
                continue;
            }
            ("max_tokens", Kind::Number(number)) if number.as_u64().is_some() => {
                preload.max_tokens = number.as_u64().unwrap_or_default();
                continue;
            }
            ("enabled", _) => "`true` or `false`",
            ("max_tokens", _) => "a whole number of tokens",
            _ => continue,
        };
        found.push(ConfigError::Invalid {
            file: "agent/resilience".to_owned(),
            key: format!("tool_preload.{}", entry.key.node),
            found: entry.value.describe().to_owned(),
            expected: expected.to_owned(),
            span: Some(entry.value.span),
        });
    }
    preload
}
