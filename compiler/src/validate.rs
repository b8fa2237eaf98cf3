//! Check: composes every directive of the project on every route it could take, and reads every hook and settings file.
//! Also checks that each directive could be lowered to a plan. Reports all diagnostics in one pass (`language.md` 1, 2,
//! 7–9).

mod assertion_use;
mod blocked_grant;
mod body;
mod body_calls;
mod cache_prefix;
mod call_arguments;
mod calls_by_name;
mod capability;
mod chat_hooks;
mod context;
mod continuation;
mod directive;
pub(crate) mod domain;
mod fact_bounds;
mod false_parts;
pub mod groups;
mod hidden_tools;
mod hook;
mod hook_effect;
mod hook_grants;
mod hook_use;
mod hook_value;
mod impossible_comparison;
mod incremental;
mod interface;
mod item_texts;
mod knowledge_text;
mod knowledge_use;
mod limit;
mod literal_places;
mod literal_returns;
mod merge_conflict;
mod mistyped_placeholders;
mod model;
mod pattern_form;
mod plan_errors;
mod raises;
pub(crate) mod reached_calls;
mod repeated_text;
mod sealed_openings;
mod selection;
pub mod settings;
mod shadowed_hooks;
mod shadowing;
mod skill_tools;
mod spawn;
pub(crate) mod undeclared_fields;
mod unreachable_limits;
mod unrecognized_files;
mod void_bound;

use std::cell::OnceCell;
use std::collections::BTreeSet;

use rye_grammar::{ItemId, Sources, Span};

use crate::assertion_file;
use crate::commands::{ChatCommand, read_commands};
use crate::compose::{Composed, HookScope, compose_all_with};
use crate::context_files::{appended_layers, context_layers};
use crate::diagnostics::{ContextError, Diagnostic, Diagnostics, Severity, TemplateError};
use crate::hook::{HookSource, PlanVerdict};
use crate::item::{BUILT_IN_COMMANDS, DeferredDrop, Dependency, Invalidation, Items, ModelRequest};
use crate::lower::cache::{LowerCache, LowerContext};
use crate::lower::{check_provider_keys, try_lower};
use crate::mcp_servers;
use crate::plan::Tokenizer;
use crate::resolve::{Inputs, Launch};
use crate::semantics::condition::Fuel;
use crate::semantics::risk;
use crate::severity_overrides::SeverityOverrides;
use crate::skill_list::SkillList;
use crate::world::{Entry, ItemKind, Space, World};
use body::EmptyDirectives;
use cache_prefix::{CachePrefixChecks, TextFrequencies};
use capability::PatternMatcher;
pub use capability::find_unmatched_pattern;
pub(crate) use capability::granted_places;
use context::SuppressionUses;
use continuation::LostKnowledge;
pub(crate) use fact_bounds::may_apply;
use hook_use::HookUses;
pub(crate) use hook_use::may_fire_in;
pub use incremental::CheckSession;
use incremental::{CheckCache, Merge, ProjectAnalyses, UNIT_KINDS, UnitLists, UnitReport, units};
use interface::InputUses;
use knowledge_use::{KnowledgeUses, UnreferencedKnowledge};
use raises::RaiseUses;
use repeated_text::{ParagraphCache, RepeatedParagraphs};
use selection::SelectedDirectives;
pub use selection::Selection;
use spawn::Spawns;

/// Prefix of the ids of the knowledge items to which finished threads are exported.
const EXPORT_PREFIX: &str = "agent/threads/";

/// The result of [`check`], with the sources that its spans refer to.
#[derive(Debug, Clone)]
pub struct CheckReport {
    pub diagnostics: Diagnostics,
    pub sources: Sources,
    /// Number of project files that hold an item, without exports of threads.
    pub files: usize,
    /// Number of directives of the project (or of the selection).
    pub directives: usize,
    /// Severity overrides from `check.yaml`.
    pub levels: SeverityOverrides,
    /// Numbers of the files and directives that this check processed.
    pub work: CheckStats,
    _rest: DeferredDrop,
}

/// Statistics of one check. Results that this check reused from an earlier check are not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckStats {
    /// Number of files that were parsed.
    pub parsed: usize,
    /// Number of directives that were composed and checked.
    pub composed: usize,
}

impl CheckReport {
    pub fn errors(&self) -> usize {
        self.diagnostics.count(Severity::Error)
    }

    pub fn warnings(&self) -> usize {
        self.diagnostics.count(Severity::Warning)
    }
}

/// Checks a world once, without a cache; [`CheckSession::check`] returns the same result incrementally.
pub fn check(world: &dyn World, selection: &Selection) -> CheckReport {
    let items = Items::new(world);
    let checked = run_checks(&items, Invalidation::default(), CheckCache::default(), selection);
    let parsed = items.parsed_file_count();
    let (sources, rest) = items.into_parts();
    checked.report(parsed, sources, rest)
}

/// The result of one run of all checks. The diagnostics are not sorted yet.
struct CheckOutcome {
    found: Diagnostics,
    levels: SeverityOverrides,
    files: usize,
    directives: usize,
    composed: usize,
    known: CheckCache,
}

impl CheckOutcome {
    fn report(self, parsed: usize, sources: Sources, rest: DeferredDrop) -> CheckReport {
        let Self { found: mut diagnostics, levels, files, directives, composed, known: _ } = self;
        diagnostics.group_untrusted_keys();
        diagnostics.sort(&sources);
        CheckReport {
            diagnostics,
            sources,
            files,
            directives,
            levels,
            work: CheckStats { parsed, composed },
            _rest: rest,
        }
    }
}

/// Checks a project. A unit is an item of the project that is checked on its own; results in `known` are reused for
/// units that did not change. If `items` records dependencies, the results of each unit are stored separately, so that
/// the next check can reuse them. Otherwise, the results of all units are merged at once.
fn run_checks(items: &Items<'_>, mut changes: Invalidation, known: CheckCache, selection: &Selection) -> CheckOutcome {
    // Every item is read anyway, so list all of them first: lookups then need no search for missing files.
    for kind in ItemKind::ALL {
        items.list(kind);
    }
    let lists: UnitLists = UNIT_KINDS.map(|kind| items.list(kind));
    let [directives, ..] = &lists;
    let directives = project_ids(directives).count();
    let (mut known, reach) = known.invalidate(items, &mut changes, directives);
    let mut check = Checker::new(items, reach, std::mem::take(&mut known.lowered));
    let ((), settings) = items.tracked(|| check.check_settings());
    check.lowering.revalidate_palettes(&mut changes, |read| known.reports.depends_on(read));
    let mut chosen = SelectedDirectives::new(selection);
    let mut composed = 0;
    let fuel = known.fuel;
    let mut ask = |kind: ItemKind, id: &ItemId, share: &mut UnitReport| match kind {
        ItemKind::Directive => {
            composed += 1;
            check.check_directive(id, fuel, share);
        }
        ItemKind::Knowledge => check.check_knowledge(id, share),
        ItemKind::Tool | ItemKind::Config => {
            if let Some(tool) = items.tool(id) {
                check_provider_keys(items, &tool, &mut share.found);
            }
        }
        ItemKind::Prompt => {
            items.prompt_template(id);
        }
        ItemKind::Skill => {
            items.skill(id);
        }
    };
    let (mut all, mut unnamed) = (UnitReport::default(), UnreferencedKnowledge::default());
    let (reports, unnamed) = if items.is_tracking() {
        known.reports.update(items, &lists, &changes, ask);
        if *selection == Selection::All {
            chosen.directives = directives;
        } else {
            for (id, chain) in known.reports.chains() {
                chosen.add(items, id, chain);
            }
        }
        let is_of_share = |read: &Dependency| known.reports.depends_on(read);
        let is_in_use = |read: &Dependency| {
            incremental::is_unit(&lists, read)
                || settings.contains(read)
                || is_of_share(read)
                || check.lowering.is_in_palette(read, is_of_share)
        };
        let forgotten = items.retain_live(is_in_use);
        check.lowering.evict_tools(&forgotten);
        (known.reports.merged_chunks(), &known.reports.unnamed)
    } else {
        for (kind, id) in units(&lists) {
            all.chain.clear();
            ask(kind, id, &mut all);
            if kind == ItemKind::Directive {
                chosen.add(items, id, &all.chain);
            }
        }
        unnamed.replace(None, &all.knowledge);
        let [_, knowledge, ..] = &lists;
        unnamed.set_list(knowledge);
        (vec![&all], &unnamed)
    };
    let (mut found, reach, lowered) = check.finish(&reports, unnamed, &mut known.analyses);
    found.append(items.diagnostics());
    unrecognized_files::check(items, &mut found);
    chosen.retain_selected(items, &mut found);
    let levels = SeverityOverrides::read(items, &mut found);
    (known.memo, known.lowered) = (reach.into_memo(), lowered);
    if items.is_tracking() {
        known.evict_unused(&settings);
    }
    let files = ItemKind::ALL.into_iter().map(|kind| project_file_count(items, kind)).sum();
    CheckOutcome { found, levels, files, directives: chosen.directives, composed, known }
}

/// Checks the declarations of one composed directive: limits, hooks, permissions and placeholders. Used by `plan` and
/// `run`, which check no other directive.
pub(crate) fn check_composed(shared: &LowerContext<'_, '_>, composed: &Composed, found: &mut Diagnostics) {
    let items = shared.items;
    let mut check = Checker::new(items, PatternMatcher::default(), LowerCache::default());
    limit::check_defaults(items, &mut check.found);
    for link in composed.chain.iter().rev().skip(1) {
        limit::check_declared(link, &mut check.found);
    }
    for hook in composed.hooks.iter().filter(|h| h.is_live()) {
        let own = matches!(hook.source, HookSource::Directive { .. }).then_some(composed);
        hook::check(items, &hook.decl, own, &mut check.found);
        hook::check_content(items, &hook.decl, own, &mut check.found);
        check.capabilities.check_patterns(items, hook.decl.grants.iter().map(|g| (&g.node, g.span)), &mut check.found);
    }
    // A hook may never fire because its condition reads a fact that does not exist.
    let unreached = composed.hooks.iter().filter(|hook| matches!(hook.verdict, PlanVerdict::Never { .. }));
    for hook in unreached.filter(|hook| !matches!(hook.source, HookSource::Directive { .. })) {
        hook::check_condition_facts(&hook.decl, None, &mut check.found);
    }
    directive::check(items, composed, &mut check.found);
    check.capabilities.check_leaf(shared, composed, &mut check.found);
    check.capabilities.check_against_base(items, composed, &mut check.found);
    interface::check_placeholders(composed, &mut check.found);
    let mut spawns = Spawns::default();
    spawns.add(composed, &spawn::BodySpawns::default(), None);
    spawn::check_permissions(items, &[&spawns], &mut check.found);
    found.append(check.found);
}

/// Returns the ids of the entries that belong to the project.
fn project_ids(list: &[Entry]) -> impl Iterator<Item = &ItemId> {
    list.iter().filter(|e| e.space == Space::Project).map(|e| &e.id)
}

/// Returns the number of project files that hold an item of a kind.
fn project_file_count(items: &Items<'_>, kind: ItemKind) -> usize {
    project_ids(&items.list(kind)).filter(|id| !is_export(kind, id)).count()
}

fn is_export(kind: ItemKind, id: &ItemId) -> bool {
    kind == ItemKind::Knowledge && id.as_str().starts_with(EXPORT_PREFIX)
}

/// Returns true if a span is in a file of the project; paths of other spaces start with the space's name.
fn is_in_project(items: &Items<'_>, span: Span) -> bool {
    let sources = items.sources();
    sources.get(span.source).is_some_and(|s| !s.path.starts_with("user:") && !s.path.starts_with("system:"))
}

/// Returns the ids that the project or the user wrote; the standard library is checked in its own build.
fn user_written_ids(items: &Items<'_>, kind: ItemKind) -> Vec<ItemId> {
    let mut ids: Vec<ItemId> =
        items.list(kind).iter().filter(|e| e.space != Space::System).map(|e| e.id.clone()).collect();
    ids.dedup();
    ids
}

/// State shared while the directives are checked one by one. Each directive adds its results to a [`UnitReport`].
struct Checker<'i, 'w> {
    items: &'i Items<'w>,
    found: Diagnostics,
    shadowed: BTreeSet<Span>,
    of_hooks: interface::HookInputs,
    capabilities: PatternMatcher,
    settings: settings::ReportedPlaces,
    continuation: OnceCell<continuation::ContinuationSettings>,
    body_calls: body_calls::BodyCallChecker,
    matching: fact_bounds::MatchingCalls,
    paragraphs: ParagraphCache,
    frequencies: TextFrequencies,
    lowering: LowerContext<'i, 'w>,
}

impl<'i, 'w> Checker<'i, 'w> {
    fn new(items: &'i Items<'w>, capabilities: PatternMatcher, kept: LowerCache) -> Self {
        Self {
            items,
            found: Diagnostics::new(),
            shadowed: BTreeSet::new(),
            of_hooks: interface::HookInputs::default(),
            capabilities,
            settings: settings::ReportedPlaces::default(),
            continuation: OnceCell::new(),
            body_calls: body_calls::BodyCallChecker::default(),
            matching: fact_bounds::MatchingCalls::default(),
            paragraphs: ParagraphCache::default(),
            frequencies: TextFrequencies::default(),
            lowering: LowerContext::with_cache(items, kept),
        }
    }

    /// Checks each hook that a settings file declares, independently of the directives to which the hook applies.
    fn check_hook_files(&mut self) {
        let commands = read_commands(self.items, &mut self.found);
        self.check_hidden_templates(&commands);
        let commands = commands.iter().map(|command| ("command", &command.hook));
        let files = self.items.hook_files();
        let hooks = [&files.user, &files.builtin, &files.project, &files.infra].into_iter().flatten();
        for (what, hook) in hooks.map(|hook| ("hook", hook)).chain(commands) {
            hook::check(self.items, hook, None, &mut self.found);
            if hook.space == Space::Project {
                hook_grants::check(what, hook, &mut self.found);
            }
            self.capabilities.check_patterns(
                self.items,
                hook.grants.iter().map(|g| (&g.node, g.span)),
                &mut self.found,
            );
        }
    }

    /// Reports each prompt template of the project that has the same name as a command of the settings, because users
    /// can then call only the command. Also reads the templates of the project and of the user that have the name of a
    /// built-in command: the reader of templates reports them. A check of a project reads no other templates of the
    /// user.
    fn check_hidden_templates(&mut self, commands: &[ChatCommand]) {
        for id in BUILT_IN_COMMANDS.iter().filter_map(|name| ItemId::parse(name).ok()) {
            self.items.prompt_template(&id);
        }
        for name in commands.iter().map(|command| &command.hook.id.node) {
            let id = ItemId::parse(&name.replace(':', "/")).ok();
            let template = id.and_then(|id| self.items.prompt_template(&id));
            if let Some(template) = template.filter(|template| template.file.space == Space::Project) {
                let span = Span::new(template.file.source, 0, 0);
                self.found.push(TemplateError::Hidden { name: name.clone(), is_built_in: false, span });
            }
        }
    }

    /// Checks the settings files, including the files that declare hooks.
    fn check_settings(&mut self) {
        self.check_hook_files();
        let files = self.items.hook_files();
        // `check_hook_files` has reported the faults of the commands.
        let commands = read_commands(self.items, &mut Diagnostics::new());
        let commands = commands.iter().map(|command| &command.hook);
        for hook in [&files.user, &files.builtin, &files.project, &files.infra].into_iter().flatten().chain(commands) {
            hook::check_content(self.items, hook, None, &mut self.found);
            hook::call(self.items, hook, &mut self.found);
            hook::check_call_parameters(self.items, hook, &mut self.found);
        }
        mcp_servers::check_servers(self.items, &mut self.found);
        self.shadowed = shadowed_hooks::check(files, &mut self.found);
        hook_value::check_removals(files, &mut self.found);
        hook_value::check_replacements(files, &mut self.found);
        // Also checks assertions, so that every error `rye assert` would report is found early.
        let written = assertion_file::read(self.items, &mut self.found);
        for assertion in &written.list {
            let patterns = assertion.patterns();
            let patterns = patterns.iter().map(|pattern| (pattern, assertion.span));
            self.capabilities.check_patterns(self.items, patterns, &mut self.found);
        }
        limit::check_defaults(self.items, &mut self.found);
        self.lowering.read_settings();
        for id in user_written_ids(self.items, ItemKind::Config) {
            if !matches!(id.as_str(), "agent/hooks" | "agent/hook_conditions") {
                self.items.config(&id);
                settings::check_file(self.items, &id, &mut self.settings, &mut self.found);
                self.lowering.check_provider_file(&id);
            }
        }
        self.lowering.check_tiers(&mut self.found);
        // Skip patterns of a user's own risk table, which may target another project, and patterns of the built-in
        // table, which may name future items.
        let rated = self.settings.patterns.iter().map(|(pattern, span)| (pattern, *span));
        let own =
            rated.filter(|(pattern, span)| !risk::is_built_in_pattern(pattern) && is_in_project(self.items, *span));
        self.capabilities.check_patterns(self.items, own, &mut self.found);
        settings::check_unread_files(self.items, &mut self.found);
    }

    /// Checks one directive on every route.
    fn check_directive(&mut self, id: &ItemId, mut fuel: Fuel, share: &mut UnitReport) {
        let model = |requested: Option<&ModelRequest>| {
            self.lowering.declared_model(requested).ok().map(|model| model.id.clone())
        };
        let launch = Launch { inputs: Inputs::Unknown, model: &model };
        let found = &mut share.found;
        let scope = if self.items.is_tracking() { HookScope::All } else { HookScope::Possible };
        let (all, routes) = compose_all_with(self.items, id, &launch, scope, found);
        for (i, composed) in all.iter().enumerate() {
            // Checks of the file itself have the same result on every route.
            if i == 0 {
                directive::check(self.items, composed, found);
                self.capabilities.check_leaf(&self.lowering, composed, found);
                hook_value::check_disabled(composed, found);
                if let Some(leaf) = composed.leaf() {
                    shadowed_hooks::check_own(leaf, found);
                }
                for hook in composed.leaf().iter().flat_map(|leaf| &leaf.hooks) {
                    hook::check_content(self.items, hook, Some(composed), found);
                    hook::call(self.items, hook, found);
                    hook::check_call_parameters(self.items, hook, found);
                }
            }
            if routes == 1 {
                blocked_grant::check(self.items, composed, found);
            }
            self.capabilities.check_against_base(self.items, composed, found);
            model::check_fallback(self.lowering.catalog(), composed, found);
            model::check_provider(self.lowering.catalog(), composed, found);
            // Without any provider, no directive can be lowered to a plan.
            let audit = self.lowering.catalog().has_any().then(|| try_lower(&self.lowering, composed, found));
            let audit = audit.flatten();
            if let Some(audit) = &audit {
                unreachable_limits::check(self.items, composed, audit, found);
                unreachable_limits::check_session(self.items, composed, found);
                directive::check_reminders(composed, audit, found);
                let settings = self.continuation.get_or_init(|| continuation::ContinuationSettings::read(self.items));
                share.continuations.add(composed, &audit.limits, &audit.model, settings);
                share.prefixes.add(composed, &audit.model, &self.frequencies);
                share.raises.add(self.items, composed, &audit.limits);
            }
            interface::check_placeholders(composed, found);
            interface::check_retyped(composed, found);
            mistyped_placeholders::check(composed, found);
            knowledge_text::check_chain(composed, found);
            share.interface.add(self.items, composed, &mut self.of_hooks);
            share.hooks.add(self.items, composed, &launch, &self.matching, &mut fuel);
            share.knowledge.add(composed);
            let started = self.body_calls.check(self.items, composed, found);
            calls_by_name::check(&mut self.body_calls, self.items, composed, found);
            hidden_tools::check(&mut self.body_calls, self.items, composed, found);
            if let Some(audit) = &audit {
                unreachable_limits::check_child_grants(composed, audit, !started.named.is_empty(), found);
            }
            share.spawns.add(composed, &started, audit.as_ref());
            share.context.add(composed);
            share.repeated.add(self.items, &self.paragraphs, composed);
            share.bodies.add(self.items, composed);
            share.chain.extend(composed.chain.iter().map(|d| d.file.source));
        }
        if all.len() < routes {
            share.interface.add_uncomposed();
            share.hooks.add_uncomposed(self.items, id);
            share.knowledge.add_uncomposed(self.items.directive(id).as_deref());
            share.bodies.add_uncomposed(self.items.directive(id).as_deref());
            share.chain.extend(self.items.directive(id).map(|d| d.file.source));
        }
    }

    /// Checks the references and the text of a knowledge item of the project, even if no directive uses the item.
    fn check_knowledge(&self, id: &ItemId, share: &mut UnitReport) {
        if let Some(knowledge) = self.items.knowledge(id) {
            knowledge_use::check_references(self.items, &knowledge, &mut share.found);
            knowledge_text::check(self.items, &knowledge, &mut share.found);
        }
    }

    /// Runs the checks that need the results of all items (`reports`). Returns the diagnostics of these checks and of
    /// `reports`, the pattern matcher with the resolved patterns, and the lowering cache.
    fn finish(
        self,
        reports: &[&UnitReport],
        unnamed: &UnreferencedKnowledge,
        analyses: &mut ProjectAnalyses,
    ) -> (Diagnostics, PatternMatcher, LowerCache) {
        let (items, mut found) = (self.items, self.found);
        // Faults of the file were reported with the settings.
        assertion_use::check(items, &assertion_file::read(items, &mut Diagnostics::new()), &mut found);
        for share in reports {
            found.append(share.found.clone());
        }
        let of = || reports.iter();
        let inputs: Vec<&InputUses> = of().map(|s| &s.interface).collect();
        // The fault of a condition is reported first, so that the condition is not reported as constant too.
        interface::check_hook_files(items, &inputs, &mut found);
        let hooks = HookUses::together(of().map(|s| &s.hooks));
        hooks.report_unreached_routes(items, &self.shadowed, &mut found);
        hooks.report_constant_conditions(items, &self.shadowed, &mut analyses.verdicts, &mut found);
        RaiseUses::together(of().map(|s| &s.raises)).report(&mut found);
        interface::report_unused_inputs(&inputs, &mut found);
        SuppressionUses::together(of().map(|s| &s.context)).report_unused(items, &mut found);
        let knowledge: Vec<&KnowledgeUses> = of().map(|s| &s.knowledge).collect();
        knowledge_use::report_unreached(items, &knowledge, unnamed, &mut analyses.mentions, &mut found);
        knowledge_use::drop_misspelled(&mut found);
        let settings = self.continuation.get_or_init(|| continuation::ContinuationSettings::read(items));
        LostKnowledge::together(of().map(|s| &s.continuations)).report_lost(items, settings, &mut found);
        CachePrefixChecks::together(of().map(|s| &s.prefixes)).finish(&mut found);
        RepeatedParagraphs::together(of().map(|s| &s.repeated)).report(&mut found);
        let bodies: Vec<&EmptyDirectives> = of().map(|s| &s.bodies).collect();
        body::report_empty(&bodies, &mut found);
        let spawns: Vec<&Spawns> = of().map(|s| &s.spawns).collect();
        spawn::check(items, &spawns, &mut found);
        shadowing::check(items, &mut found);
        // The skills of a user differ between machines, and their tokens are no defect of the project.
        SkillList::read(items, &[Space::Project], Tokenizer::Characters, &|_| false).report_dropped(&mut found);
        skill_tools::check(items, &mut found);
        item_texts::check(items, &mut found);
        // Context files of the user and above the project differ between machines.
        context_layers(items, &[Space::Project], Tokenizer::Characters, &mut found);
        let appended = appended_layers(items, &mut found);
        knowledge_use::drop_misspelled(&mut found);
        let is_appended = |id: &str| appended.iter().any(|layer| layer.id == id);
        found.retain(|one| !matches!(one, Diagnostic::Context(ContextError::Unreached { id, .. }) if is_appended(id)));
        let mut read = self.lowering.diagnostics();
        read.retain(|d| !matches!(d, Diagnostic::Config(error) if self.settings.contains(error)));
        found.append(read);
        (found, self.capabilities, self.lowering.into_cache())
    }
}

#[cfg(test)]
mod tests;
