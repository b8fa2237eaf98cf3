//! Check: every directive of the project composed along every route it could take, every hook and settings file read,
//! everything that is wrong in one pass (`language.md` 1, 2, 7–9), and whether each could be lowered to a plan.

mod capability;
mod context;
mod continuation;
mod directive;
mod domain;
pub mod groups;
mod hook;
mod hook_use;
mod interface;
mod knowledge_use;
mod limit;
mod prefix;
pub mod settings;
mod shadow;
mod spawn;
mod stray;
mod told;
mod vacuous;

use rye_grammar::{ItemId, SourceId, Sources};

use crate::compose::{Composed, compose_all};
use crate::diagnostics::{ConfigError, Diagnostic, Diagnostics, ItemError, Severity};
use crate::hook::HookSource;
use crate::item::{Items, ModelRequest};
use crate::levels::Levels;
use crate::lower::audit;
use crate::lower::shared::{FROZEN, Shared};
use crate::model::ModelOverride;
use crate::resolve::{Inputs, Launch};
use crate::world::{ItemKind, Space, World};

/// Where the exports of finished threads lie, among the knowledge.
const EXPORTS: &str = "agent/threads/";

/// What to check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Selection {
    /// The whole project.
    #[default]
    All,
    /// What is wrong with these files and with the chains of these directives: paths as diagnostics print them; a
    /// folder stands for everything in it.
    Paths(Vec<String>),
}

/// The answer of [`check`], with the texts its spans point into.
#[derive(Debug, Clone)]
pub struct CheckReport {
    pub diagnostics: Diagnostics,
    pub sources: Sources,
    /// Files read.
    pub files: usize,
    /// Directives of the project (or of the selection).
    pub directives: usize,
    /// How loud each code is, as `check.yaml` says.
    pub levels: Levels,
}

impl CheckReport {
    pub fn errors(&self) -> usize {
        self.diagnostics.count(Severity::Error)
    }

    pub fn warnings(&self) -> usize {
        self.diagnostics.count(Severity::Warning)
    }
}

/// Checks a world.
pub fn check(world: &dyn World, selection: &Selection) -> CheckReport {
    let items = Items::new(world);
    let (mut diagnostics, directives) = check_items(&items, selection);
    let levels = Levels::read(&items, &mut diagnostics);
    let files = items.parsed_files();
    let sources = items.into_sources();
    diagnostics.sort(&sources);
    CheckReport { diagnostics, sources, files, directives, levels }
}

/// [`check`] over items that may have been read before; the diagnostics are not sorted yet.
pub fn check_items(items: &Items<'_>, selection: &Selection) -> (Diagnostics, usize) {
    // Everything is read anyway, and what is listed is not searched for: no look for a file that is not there.
    for kind in ItemKind::ALL {
        items.list(kind);
    }
    let mut check = Check::new(items);
    check.settings();
    let ids = project_ids(items, ItemKind::Directive);
    let mut checked = 0;
    let mut selected_sources: Vec<SourceId> = Vec::new();
    for id in &ids {
        let chain = check.directive(id);
        let Selection::Paths(paths) = selection else {
            checked += 1;
            continue;
        };
        let path = items.directive(id).map_or_else(|| format!(".ai/directives/{id}.md"), |d| d.file.path.to_string());
        if is_under(&path, paths) {
            checked += 1;
            selected_sources.extend(chain);
        }
    }
    check.other_items();
    let mut found = check.finish();
    found.append(items.diagnostics());
    stray::check(items, &mut found);
    if let Selection::Paths(paths) = selection {
        let sources = items.sources();
        found.retain(|diagnostic| {
            if let Diagnostic::Item(ItemError::Stray { path, .. })
            | Diagnostic::Config(ConfigError::UnknownFile { path, .. }) = diagnostic
            {
                return is_under(path, paths);
            }
            let labels = diagnostic.labels();
            let inside = |source: SourceId| {
                let path = sources.get(source).map(|s| s.path.as_ref()).unwrap_or_default();
                selected_sources.contains(&source) || is_under(path, paths)
            };
            labels.is_empty() || labels.iter().any(|l| inside(l.span.source))
        });
    }
    (found, checked)
}

/// What is wrong with one composed directive and with what it reaches: for plan and run, which look at no other.
pub fn check_composed(shared: &Shared<'_, '_>, composed: &Composed, found: &mut Diagnostics) {
    let items = shared.items;
    let mut check = Check::new(items);
    limit::defaults(items, &mut check.found);
    for name in FROZEN.iter().chain(&["models"]) {
        if let Ok(id) = ItemId::parse(&format!("agent/{name}")) {
            settings::file(items, &id, &mut check.settings, &mut check.found);
        }
    }
    for link in composed.chain.iter().rev().skip(1) {
        limit::declared(link, &mut check.found);
    }
    for hook in composed.hooks.iter().filter(|h| h.is_live()) {
        let own = matches!(hook.source, HookSource::Directive { .. }).then_some(composed);
        hook::check(items, &hook.decl, own, &mut check.found);
        hook::content(items, &hook.decl, &mut check.found);
        check.capabilities.patterns(items, hook.decl.grants.iter().map(|g| (&g.node, g.span)), &mut check.found);
    }
    directive::check(items, composed, &mut check.found);
    check.capabilities.own(shared, composed, &mut check.found);
    check.capabilities.against_base(composed, &mut check.found);
    interface::holes(composed, &mut check.found);
    check.spawns.add(composed, &spawn::BodyStarts::default(), None);
    check.spawns.proofs(items, &mut check.found);
    found.append(check.found);
}

fn is_under(path: &str, selected: &[String]) -> bool {
    selected.iter().any(|s| {
        let s = s.trim_start_matches("./").trim_end_matches('/');
        s.is_empty() || s == "." || path.strip_prefix(s).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

fn project_ids(items: &Items<'_>, kind: ItemKind) -> Vec<ItemId> {
    items.list(kind).iter().filter(|e| e.space == Space::Project).map(|e| e.id.clone()).collect()
}

/// What the project or the user wrote: the standard library is checked where it is made.
fn written_ids(items: &Items<'_>, kind: ItemKind) -> Vec<ItemId> {
    let mut ids: Vec<ItemId> =
        items.list(kind).iter().filter(|e| e.space != Space::System).map(|e| e.id.clone()).collect();
    ids.dedup();
    ids
}

/// Everything that is known while the directives are gone through one by one.
struct Check<'i, 'w> {
    items: &'i Items<'w>,
    found: Diagnostics,
    hooks: hook_use::HookUses,
    interface: interface::InputUses,
    context: context::SuppressionUses,
    capabilities: capability::Reach,
    spawns: spawn::Spawns,
    settings: settings::Told,
    knowledge: knowledge_use::KnowledgeUses,
    continuations: continuation::Continuations,
    prefixes: prefix::Prefixes,
    told: told::Told,
    lowering: Shared<'i, 'w>,
}

impl<'i, 'w> Check<'i, 'w> {
    fn new(items: &'i Items<'w>) -> Self {
        Self {
            items,
            found: Diagnostics::new(),
            hooks: hook_use::HookUses::default(),
            interface: interface::InputUses::default(),
            context: context::SuppressionUses::default(),
            capabilities: capability::Reach::default(),
            spawns: spawn::Spawns::default(),
            settings: settings::Told::default(),
            knowledge: knowledge_use::KnowledgeUses::default(),
            continuations: continuation::Continuations::default(),
            prefixes: prefix::Prefixes::default(),
            told: told::Told::default(),
            lowering: Shared::new(items),
        }
    }

    /// The hooks of the settings files, each by itself.
    fn hook_files(&mut self) {
        let files = self.items.hook_files();
        for hook in [&files.user, &files.builtin, &files.project, &files.infra].into_iter().flatten() {
            hook::check(self.items, hook, None, &mut self.found);
            self.capabilities.patterns(self.items, hook.grants.iter().map(|g| (&g.node, g.span)), &mut self.found);
        }
    }

    /// Hook files and settings.
    fn settings(&mut self) {
        self.hook_files();
        let files = self.items.hook_files();
        for hook in [&files.user, &files.builtin, &files.project, &files.infra].into_iter().flatten() {
            hook::content(self.items, hook, &mut self.found);
            hook::call(self.items, hook, &mut self.found);
        }
        self.hooks.shadowed(files, &mut self.found);
        limit::defaults(self.items, &mut self.found);
        // The table is read at the first question, and a wrong one is wrong whether or not anybody asks.
        self.lowering.risk_of("rye.*");
        for id in written_ids(self.items, ItemKind::Config) {
            if !matches!(id.as_str(), "agent/hooks" | "agent/hook_conditions") {
                self.items.config(&id);
                settings::file(self.items, &id, &mut self.settings, &mut self.found);
                self.lowering.provider_file(&id);
            }
        }
        self.lowering.tiers(&mut self.found);
        settings::unread(self.items, &mut self.found);
    }

    /// One directive along every route; answers the sources of its chains.
    fn directive(&mut self, id: &ItemId) -> Vec<SourceId> {
        let model = |asked: Option<&ModelRequest>| {
            let found = self.lowering.catalog().resolve(asked, &ModelOverride::default());
            found.ok().map(|model| model.id)
        };
        let launch = Launch { inputs: Inputs::Unknown, model: &model };
        let (all, routes) = compose_all(self.items, id, &launch, &mut self.found);
        let mut sources = Vec::new();
        for (i, composed) in all.iter().enumerate() {
            // What the file says by itself is the same on every route.
            if i == 0 {
                directive::check(self.items, composed, &mut self.found);
                self.capabilities.own(&self.lowering, composed, &mut self.found);
                for hook in composed.leaf().iter().flat_map(|leaf| &leaf.hooks) {
                    hook::content(self.items, hook, &mut self.found);
                    hook::call(self.items, hook, &mut self.found);
                }
            }
            self.capabilities.against_base(composed, &mut self.found);
            // A world without any provider plans nothing.
            let audit = self.lowering.catalog().has_any().then(|| audit(&self.lowering, composed, &mut self.found));
            let audit = audit.flatten();
            if let Some(audit) = &audit {
                vacuous::check(composed, audit, spawn::may_start(composed), &mut self.found);
                self.continuations.add(self.items, composed, &audit.limits, &audit.model);
                self.prefixes.add(composed, &audit.model, &mut self.found);
            }
            interface::holes(composed, &mut self.found);
            self.interface.add(self.items, composed);
            self.hooks.add(composed, &launch);
            self.knowledge.add(composed);
            let started = self.told.check(self.items, composed, &mut self.found);
            self.spawns.add(composed, &started, audit.as_ref());
            self.context.add(composed);
            sources.extend(composed.chain.iter().map(|d| d.file.source));
        }
        if all.len() < routes {
            self.hooks.alone(self.items, id);
            self.knowledge.alone(self.items.directive(id).as_deref());
            sources.extend(self.items.directive(id).map(|d| d.file.source));
        }
        sources
    }

    /// Knowledge and tools of the project that nothing names are read too. Exports of finished threads are not the
    /// author's files.
    fn other_items(&mut self) {
        for id in project_ids(self.items, ItemKind::Knowledge) {
            if !id.as_str().starts_with(EXPORTS) {
                self.items.knowledge(&id);
            }
        }
        for id in project_ids(self.items, ItemKind::Tool) {
            self.items.tool(&id);
        }
    }

    /// What only all directives together can tell.
    fn finish(mut self) -> Diagnostics {
        self.hooks.finish(self.items, &mut self.found);
        for hook in self.items.hook_files().project.iter().filter(|h| h.enabled) {
            hook::outputs(hook, &self.interface.outputs, &mut self.found);
        }
        self.interface.finish(&mut self.found);
        self.context.finish(self.items, &mut self.found);
        self.knowledge.finish(self.items, &mut self.found);
        self.continuations.finish(self.items, &mut self.found);
        self.spawns.finish(self.items, &mut self.found);
        shadow::check(self.items, &mut self.found);
        let mut read = self.lowering.diagnostics();
        read.retain(|d| !matches!(d, Diagnostic::Config(error) if self.settings.knows(error)));
        self.found.append(read);
        self.found
    }
}

#[cfg(test)]
mod tests;
