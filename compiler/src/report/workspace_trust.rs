//! The trust requirements of a whole project, for `rye trust`.

use std::collections::BTreeSet;

use rye_grammar::{ItemId, Span};

use crate::commands::read_commands;
use crate::compile::{CompileRequest, compile_with_context};
use crate::context_files::{SETTINGS as CHAT_FILE, appended_layers};
use crate::diagnostics::Diagnostics;
use crate::item::{HookDecl, Items};
use crate::lower::cache::LowerContext;
use crate::lower::origin::plan_place;
use crate::model::{self, ModelOverride, Provider};
use crate::plan::{Layer, Plan};
use crate::semantics::hook_point;
use crate::trust::reach::{
    appended, appended_of_user, described, fetches_of_user, inherited_permissions, of_continuation, of_grants,
    of_links, of_scripts, script_of, shadowing,
};
use crate::trust::{
    MODELS_FILE, PROVIDER_PREFIX, RESILIENCE_FILE, RISK_FILE, Subject, TrustRequirement, TrustRequirementKind,
    describe_effect, describe_steering, estimated_spend, files_of_point, is_redirected, model_choice,
    requirement_of_settings, requirement_of_tool, risk_table_requirement, with_refused_server,
};
use crate::world::{ItemKind, RecordingWorld, Space, World};

/// Lists the trust requirements of everything in the project that can need trust: tools, directives, hooks, provider
/// files and other settings, items that shadow an item of another space, and knowledge that is appended to the system
/// prompt of chats. Skips unreadable files, which `rye check` reports.
pub fn requirements_of_workspace(world: &dyn World) -> Vec<TrustRequirement> {
    let recording = RecordingWorld::new(world);
    let items = Items::new(&recording);
    let scan = WorkspaceScan { items: &items, recording: &recording };
    let mut found = scan.hooks();
    found.extend(scan.tools());
    found.extend(scan.providers());
    items.config_by_name(MODELS_FILE);
    let of_models = scan.subjects(ItemKind::Config, &[MODELS_FILE]);
    if !of_models.is_empty() {
        found.push(model_choice(of_models));
    }
    items.config_by_name(RISK_FILE);
    let risk = scan.subjects(ItemKind::Config, &[RISK_FILE]);
    if !risk.is_empty() {
        found.push(risk_table_requirement(risk));
    }
    let settings = items.config_by_name(RESILIENCE_FILE);
    let outcome = settings.as_ref().and_then(|file| file.get("budget")?.get("unknown_outcome")?.as_str());
    let resilience = scan.subjects(ItemKind::Config, &[RESILIENCE_FILE]);
    if outcome == Some("estimate") && !resilience.is_empty() {
        found.push(estimated_spend(resilience));
    }
    found.extend(scan.directives());
    found.extend(scan.shadowing_items());
    found.extend(scan.appended_knowledge());
    found
}

/// Returns the trust requirements of the scripts that the provider files of all spaces name, because `--model` can
/// select any of them. The scripts need not exist. Their paths are relative to the project, also in a file of another
/// space.
pub fn scripts_of_providers(world: &dyn World) -> Vec<TrustRequirement> {
    let items = Items::new(world);
    let list = items.list(ItemKind::Config);
    let providers = list.iter().filter_map(|entry| read_provider(&items, &entry.id));
    providers.filter(|file| file.wire == model::SCRIPTED_WIRE).filter_map(|file| script_of(&file.connection)).collect()
}

/// Reads a provider file; `None` if the id is not that of a provider, or if the file cannot be read.
fn read_provider(items: &Items<'_>, id: &ItemId) -> Option<Provider> {
    let name = id.as_str().strip_prefix(PROVIDER_PREFIX)?;
    model::read_provider(name, &*items.config(id)?, &items.sources(), &mut Diagnostics::new())
}

struct WorkspaceScan<'l, 'w> {
    items: &'l Items<'w>,
    recording: &'l RecordingWorld<&'w dyn World>,
}

impl WorkspaceScan<'_, '_> {
    fn hooks(&self) -> Vec<TrustRequirement> {
        let files = self.items.hook_files();
        // The diagnostics of the commands are dropped, because `rye check` reports them. The commands are read before
        // the requirements are listed: only a file that was read is a subject of a requirement.
        let commands = read_commands(self.items, &mut Diagnostics::new());
        let own = files.project.iter().chain(&files.infra).filter(|hook| hook.space == Space::Project);
        let mut found: Vec<TrustRequirement> = own.filter_map(|hook| self.hook(hook, None)).collect();
        let commands = commands.iter().map(|command| &command.hook).filter(|hook| hook.space == Space::Project);
        found.extend(commands.filter_map(|hook| self.hook(hook, None)));
        for id in self.of_project(ItemKind::Directive) {
            let Some(directive) = self.items.directive(&id) else { continue };
            let subjects = self.subjects(ItemKind::Directive, &[id.as_str()]);
            found.extend(directive.hooks.iter().filter_map(|hook| self.hook(hook, Some(&subjects))));
        }
        found
    }

    /// Returns the trust requirement of a hook; `None` if the hook needs no trust of its own. `directive` is the
    /// directive that declares the hook; `None` if a settings file does.
    fn hook(&self, hook: &HookDecl, directive: Option<&[Subject]>) -> Option<TrustRequirement> {
        let action = hook.action.as_ref().filter(|_| hook.enabled)?;
        let grants: Vec<String> = hook.grants.iter().map(|grant| grant.node.0.clone()).collect();
        let at = |what: &str| format!("at {}: {what}", hook_point::row_of(hook.event).name);
        let (kind, what) = if let Some(what) = describe_effect(hook.event, &action.node, &grants) {
            (TrustRequirementKind::Hook, at(&what))
        } else if let Some(what) = fetches_of_user(self.items, &action.node) {
            (TrustRequirementKind::UserSpace, what)
        } else {
            // A hook file changes texts in the threads of all directives. A hook of a directive does not, so a changed
            // text needs no requirement there.
            let how = describe_steering(&action.node).filter(|_| directive.is_none())?;
            (
                TrustRequirementKind::Hook,
                at(&format!("{how}, even in threads of directives that can use a shell or the network")),
            )
        };
        Some(TrustRequirement {
            kind,
            name: hook.id.node.clone(),
            what,
            subjects: directive
                .map_or_else(|| self.subjects(ItemKind::Config, files_of_point(hook.event)), <[Subject]>::to_vec),
            programs: crate::trust::files_of_hook(&action.node),
            place: self.place(hook.span),
        })
    }

    /// Lists the knowledge, the directives and the tools of the project that shadow items of the user or of the
    /// standard library.
    fn shadowing_items(&self) -> Vec<TrustRequirement> {
        let mut found = Vec::new();
        for kind in [ItemKind::Knowledge, ItemKind::Directive, ItemKind::Tool] {
            let entries = self.items.list(kind);
            for same in entries.chunk_by(|one, next| one.id == next.id) {
                let [first, _, ..] = same else { continue };
                if first.space != Space::Project {
                    continue;
                }
                let is_readable = match kind {
                    ItemKind::Knowledge => self.items.knowledge(&first.id).is_some(),
                    ItemKind::Directive => self.items.directive(&first.id).is_some(),
                    // A tool that cannot be read still shadows the tool of the other space.
                    ItemKind::Tool => true,
                    ItemKind::Config | ItemKind::Prompt | ItemKind::Skill => false,
                };
                if is_readable {
                    let id = first.id.as_str();
                    found.push(shadowing(kind, id, "", self.subjects(kind, &[id])));
                }
            }
        }
        found
    }

    /// Lists the knowledge of the project that is appended to the system prompt of chats, and the settings of the
    /// project that append knowledge of the user space.
    fn appended_knowledge(&self) -> Vec<TrustRequirement> {
        let of_settings = || self.subjects(ItemKind::Config, &[CHAT_FILE]);
        let layers = appended_layers(self.items, &mut Diagnostics::new());
        let of_one = |layer: Layer| {
            let subjects = self.subjects(ItemKind::Knowledge, &[layer.id.as_str()]);
            (!subjects.is_empty()).then(|| appended(&layer.id, " of chats", subjects))
        };
        let of_user = (!layers.is_empty()).then(|| appended_of_user(self.items, of_settings())).flatten();
        layers.into_iter().filter_map(of_one).chain(of_user).collect()
    }

    fn tools(&self) -> Vec<TrustRequirement> {
        let of_one = |id: ItemId| {
            let tool = self.items.tool(&id)?;
            let sha256 = self.recording.sha256(ItemKind::Tool, &id, Space::Project)?;
            let subjects = self.subjects(ItemKind::Tool, &[id.as_str()]);
            let steering = || described(id.as_str(), " of directives that can use a shell or the network", subjects);
            // A tool that shadows another tool is listed by `shadowing_items`.
            let is_alone = self.items.list(ItemKind::Tool).iter().filter(|entry| entry.id == id).count() == 1;
            let found = requirement_of_tool(&tool, sha256, &self.items.sources());
            let found = found.map(|found| with_refused_server(self.items, &tool, found));
            found.or_else(|| is_alone.then(steering))
        };
        let mut found: Vec<TrustRequirement> = self.of_project(ItemKind::Tool).into_iter().filter_map(of_one).collect();
        if self.items.list(ItemKind::Config).iter().any(|entry| entry.space == Space::Project) {
            let all: BTreeSet<ItemId> = self.items.list(ItemKind::Tool).iter().map(|entry| entry.id.clone()).collect();
            let settings = |id: &ItemId| requirement_of_settings(self.recording, &*self.items.tool(id)?);
            found.extend(all.iter().filter_map(settings));
        }
        found
    }

    fn providers(&self) -> Vec<TrustRequirement> {
        let of_one = |(id, read): (ItemId, Provider)| {
            let name = id.as_str().strip_prefix(PROVIDER_PREFIX)?.to_owned();
            let subjects = self.subjects(ItemKind::Config, &[id.as_str()]);
            let redirected = is_redirected(&read.wire, &read.from_project);
            redirected.then(|| crate::trust::provider(&name, &read.connection, &read.from_project, subjects))
        };
        self.provider_files().filter_map(of_one).collect()
    }

    /// Returns the provider files of the project that can be read.
    fn provider_files(&self) -> impl Iterator<Item = (ItemId, Provider)> {
        self.of_project(ItemKind::Config).into_iter().filter_map(|id| {
            let read = read_provider(self.items, &id)?;
            Some((id, read))
        })
    }

    /// Lists the trust requirements of the project's directives: their grants, the items of the user space that they
    /// reach, the texts of their continuation directives, and the scripts that simulate their models. Each directive is
    /// compiled as a root without inputs.
    ///
    /// The requirement of a directive that inherits its permissions is listed only if a directive with more permissions
    /// could start it: the user has directives, or a directive of the project has more grants than an untrusted project
    /// may use.
    fn directives(&self) -> Vec<TrustRequirement> {
        let shared = LowerContext::new(self.items);
        let (mut found, mut heirs, mut scripts) = (Vec::new(), Vec::new(), Vec::new());
        let default = shared.catalog().resolve(None, &ModelOverride::default());
        scripts.extend(
            default.ok().filter(|model| model.wire == model::SCRIPTED_WIRE).and_then(|m| script_of(&m.connection)),
        );
        // `--model` can select any provider of the project, so the scripts of all providers are listed.
        let scripted = self.provider_files().filter(|(_, file)| file.wire == model::SCRIPTED_WIRE);
        scripts.extend(scripted.filter_map(|(_, file)| script_of(&file.connection)));
        for id in self.of_project(ItemKind::Directive) {
            let Some(plan) = self.plan(&shared, id) else { continue };
            found.extend(of_grants(&plan, &plan.capabilities.grants));
            found.extend(of_links(self.items, &plan));
            scripts.extend(of_scripts(&plan));
            let text = plan.continuation_directive.clone().and_then(|id| self.plan(&shared, id));
            found.extend(text.and_then(|text| of_continuation(&plan, &plan.capabilities.grants, &text)));
            heirs.extend(inherited_permissions(&plan));
        }
        let by_user = self.items.list(ItemKind::Directive).iter().any(|entry| entry.space == Space::User);
        if by_user || found.iter().any(|one| one.kind == TrustRequirementKind::Grants) {
            found.extend(heirs);
        }
        for script in scripts {
            if !found.contains(&script) {
                found.push(script);
            }
        }
        found
    }

    fn plan(&self, shared: &LowerContext<'_, '_>, directive: ItemId) -> Option<Plan> {
        let mut plan = compile_with_context(shared, &CompileRequest::new(directive), &mut Diagnostics::new())?.plan;
        plan.settings.clone_from(shared.frozen_settings());
        for link in &mut plan.chain {
            link.sha256 = self.recording.sha256(ItemKind::Directive, &link.id, link.space).unwrap_or_default();
        }
        Some(plan)
    }

    fn of_project(&self, kind: ItemKind) -> Vec<ItemId> {
        let entries = self.items.list(kind);
        entries.iter().filter(|entry| entry.space == Space::Project).map(|entry| entry.id.clone()).collect()
    }

    fn subjects(&self, kind: ItemKind, ids: &[&str]) -> Vec<Subject> {
        let of_one = |id: &&str| {
            let item = ItemId::parse(id).ok()?;
            let sha256 = self.recording.sha256(kind, &item, Space::Project)?;
            Some(Subject { kind, id: (*id).to_owned(), sha256 })
        };
        ids.iter().filter_map(of_one).collect()
    }

    fn place(&self, span: Span) -> Option<crate::plan::SourcePlace> {
        plan_place(&self.items.sources(), span)
    }
}
