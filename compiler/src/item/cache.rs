//! Everything a compilation has read, parsed once and shared: nothing is opened before somebody needs it.

use std::cell::{Cell, OnceCell, Ref, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use rye_grammar::data::{Kind, Node};
use rye_grammar::knowledge::KnowledgeFormat;
use rye_grammar::{ItemId, Source, SourceId, Sources, Span, SyntaxKind, source, yaml};
use sha2::{Digest, Sha256};

use super::hook::read as hook_reader;
use super::{Directive, FileRef, HookDecl, HookLine, Knowledge, Tool, config, data, directive, knowledge, tool};
use crate::diagnostics::{Diagnostics, ItemError, closest};
use crate::hook::HookSource;
use crate::plan::hex;
use crate::world::{Entry, ItemKind, Located, Space, Stray, World, WorldError};

/// The items of a world, read lazily and once.
pub struct Items<'w> {
    world: &'w dyn World,
    sources: RefCell<Sources>,
    /// By the file they are about; what is about no file stands under `None`.
    found: RefCell<BTreeMap<Option<SourceId>, Diagnostics>>,
    directives: Cache<Directive>,
    knowledge: Cache<Knowledge>,
    tools: Cache<Tool>,
    configs: Cache<Node>,
    hooks: OnceCell<HookFiles>,
    lists: [OnceCell<Arc<[Entry]>>; 4],
    /// Kinds whose list could not be read; said once.
    unlisted: RefCell<BTreeSet<ItemKind>>,
    all_signed: OnceCell<bool>,
    parsed: Cell<usize>,
}

type Cache<T> = RefCell<HashMap<ItemId, Option<Arc<T>>>>;

/// The hooks of the settings files, by source, each in file order.
#[derive(Debug, Clone, Default)]
pub struct HookFiles {
    pub user: Vec<Arc<HookDecl>>,
    /// Built-in and context hooks of the standard library.
    pub builtin: Vec<Arc<HookDecl>>,
    pub project: Vec<Arc<HookDecl>>,
    /// `infra_hooks` of any space: layer 4 whatever number they carry.
    pub infra: Vec<Arc<HookDecl>>,
    /// All of them, as they stand for a directive that has none of its own.
    pub line: HookLine,
    /// Those that route such a directive, in evaluation order.
    pub routing: Vec<Arc<HookDecl>>,
}

impl<'w> Items<'w> {
    pub fn new(world: &'w dyn World) -> Self {
        Self {
            world,
            sources: RefCell::default(),
            found: RefCell::default(),
            directives: RefCell::default(),
            knowledge: RefCell::default(),
            tools: RefCell::default(),
            configs: RefCell::default(),
            hooks: OnceCell::new(),
            lists: Default::default(),
            unlisted: RefCell::default(),
            all_signed: OnceCell::new(),
            parsed: Cell::new(0),
        }
    }

    /// The directive of an id in the highest space that has it; `None` where none has, or where its file holds no
    /// readable directive.
    pub fn directive(&self, id: &ItemId) -> Option<Arc<Directive>> {
        self.cached(&self.directives, ItemKind::Directive, id, parse_directive)
    }

    /// The standard library's own directive of an id, whatever stands in front of it.
    pub fn system_directive(&self, id: &ItemId) -> Option<Arc<Directive>> {
        let highest = self.directive(id)?;
        if highest.file.space == Space::System {
            return Some(highest);
        }
        self.of_system(ItemKind::Directive, id, parse_directive)
    }

    /// [`Items::system_directive`] for knowledge.
    pub fn system_knowledge(&self, id: &ItemId) -> Option<Arc<Knowledge>> {
        let highest = self.knowledge(id)?;
        if highest.file.space == Space::System {
            return Some(highest);
        }
        self.of_system(ItemKind::Knowledge, id, |file, text, found| Some(parse_knowledge(file, text, found)))
    }

    fn of_system<T>(
        &self,
        kind: ItemKind,
        id: &ItemId,
        parse: impl FnOnce(FileRef, &str, &mut Diagnostics) -> Option<T>,
    ) -> Option<Arc<T>> {
        let located = self.candidates(kind, id).into_iter().find(|l| l.space == Space::System)?;
        self.open(located, parse).map(Arc::new)
    }

    pub fn knowledge(&self, id: &ItemId) -> Option<Arc<Knowledge>> {
        self.cached(&self.knowledge, ItemKind::Knowledge, id, |file, text, found| {
            Some(parse_knowledge(file, text, found))
        })
    }

    /// The tool of an id; `None` also where its metadata cannot be read.
    pub fn tool(&self, id: &ItemId) -> Option<Arc<Tool>> {
        let scripts = self.world.scripts();
        self.cached(&self.tools, ItemKind::Tool, id, |file, text, found| tool::read(file, text, scripts, found))
    }

    /// A settings file merged over the spaces, highest last: `agent/resilience`.
    pub fn config(&self, id: &ItemId) -> Option<Arc<Node>> {
        if let Some(known) = self.configs.borrow().get(id) {
            return known.clone();
        }
        let mut merged: Option<Node> = None;
        // Lowest first, so that each file lies on those below it.
        for located in self.candidates(ItemKind::Config, id).into_iter().rev() {
            // A file of comments alone says nothing, so it takes nothing away.
            let Some(node) = self.parse_yaml(located).filter(|node| !matches!(node.kind, Kind::Null)) else { continue };
            merged = Some(match merged {
                Some(under) => config::merge(node, under),
                None => node,
            });
        }
        let merged = merged.map(Arc::new);
        self.configs.borrow_mut().insert(id.clone(), merged.clone());
        merged
    }

    /// A settings file of the highest space that has it, as it stands there.
    pub fn config_of_highest(&self, id: &ItemId) -> Option<Node> {
        self.candidates(ItemKind::Config, id).into_iter().next().and_then(|located| self.parse_yaml(located))
    }

    /// A settings file of every space that has it, the highest first, none laid on another.
    pub fn config_of_each(&self, id: &ItemId) -> Vec<(Space, Node)> {
        let files = self.candidates(ItemKind::Config, id).into_iter();
        files.filter_map(|located| Some((located.space, self.parse_yaml(located)?))).collect()
    }

    /// [`Items::config`] by text; `None` also where the text is no id.
    pub fn config_named(&self, name: &str) -> Option<Arc<Node>> {
        self.config(&ItemId::parse(name).ok()?)
    }

    /// The hooks of every hook file, read once.
    pub fn hook_files(&self) -> &HookFiles {
        self.hooks.get_or_init(|| self.read_hook_files())
    }

    /// Whether any space has an item; reads nothing.
    pub fn exists(&self, kind: ItemKind, id: &ItemId) -> bool {
        if self.list(kind).binary_search_by(|e| e.id.cmp(id)).is_ok() {
            return true;
        }
        // Without a list the one file is asked for; one that cannot be read is there.
        self.unlisted.borrow().contains(&kind)
            && self.world.candidates(kind, id).map_or(true, |files| !files.is_empty())
    }

    /// Whether the list of a kind is whole: where it could not be read, nothing can be said about what is missing.
    pub fn is_listed(&self, kind: ItemKind) -> bool {
        self.list(kind);
        !self.unlisted.borrow().contains(&kind)
    }

    /// Every item of a kind, sorted by id, then by space.
    pub fn list(&self, kind: ItemKind) -> Arc<[Entry]> {
        let Some(slot) = self.lists.get(kind as usize) else { return Arc::new([]) };
        slot.get_or_init(|| match self.world.list(kind) {
            Ok(entries) => entries.into(),
            Err(error) => {
                self.report(None, world_error(kind, error));
                self.unlisted.borrow_mut().insert(kind);
                Arc::new([])
            }
        })
        .clone()
    }

    /// What the project holds beside items; nothing where that cannot be told, because then a list could not be read
    /// either.
    pub fn strays(&self) -> Vec<Stray> {
        self.world.strays().unwrap_or_default()
    }

    /// The id nearest to a text that names none.
    pub fn nearest(&self, kind: ItemKind, text: &str) -> Option<String> {
        closest(text, self.list(kind).iter().map(|e| e.id.as_str()))
    }

    /// How many files were parsed so far.
    pub fn parsed_files(&self) -> usize {
        self.parsed.get()
    }

    pub fn sources(&self) -> Ref<'_, Sources> {
        self.sources.borrow()
    }

    /// The texts, once nothing more is to be read.
    pub fn into_sources(self) -> Sources {
        self.sources.into_inner()
    }

    /// What was wrong with the files read so far, each said once.
    pub fn diagnostics(&self) -> Diagnostics {
        let mut all = Diagnostics::new();
        for found in self.found.borrow().values() {
            all.append(found.clone());
        }
        all
    }

    /// Whether a file that was read has an error of its own.
    pub fn is_broken(&self, source: SourceId) -> bool {
        self.found.borrow().get(&Some(source)).is_some_and(Diagnostics::has_errors)
    }

    /// The texts of the files with errors of their own: what they would have said can only be guessed from them.
    pub fn broken_texts(&self) -> Vec<Arc<str>> {
        let (found, sources) = (self.found.borrow(), self.sources.borrow());
        let broken = found.iter().filter(|(_, d)| d.has_errors()).filter_map(|(source, _)| sources.get((*source)?));
        broken.map(|source| source.text.clone()).collect()
    }

    fn cached<T>(
        &self,
        cache: &Cache<T>,
        kind: ItemKind,
        id: &ItemId,
        parse: impl FnOnce(FileRef, &str, &mut Diagnostics) -> Option<T>,
    ) -> Option<Arc<T>> {
        if let Some(known) = cache.borrow().get(id) {
            return known.clone();
        }
        let located = self.candidates(kind, id).into_iter().next();
        let item = located.and_then(|located| self.open(located, parse)).map(Arc::new);
        cache.borrow_mut().insert(id.clone(), item.clone());
        item
    }

    fn candidates(&self, kind: ItemKind, id: &ItemId) -> Vec<Located> {
        match self.world.candidates(kind, id) {
            Ok(found) => found,
            Err(error) => {
                self.report(None, world_error(kind, error));
                Vec::new()
            }
        }
    }

    /// Makes a source of a file and parses it, unless it is no text or its signature does not fit.
    fn open<T>(&self, located: Located, parse: impl FnOnce(FileRef, &str, &mut Diagnostics) -> Option<T>) -> Option<T> {
        let path = located.space.display(&located.path);
        let text: Arc<str> = match source::decode(&located.bytes) {
            Ok(text) => text.into(),
            Err(invalid) => {
                self.report(None, ItemError::Unreadable { path, reason: invalid.to_string() });
                return None;
            }
        };
        let source = self.sources.borrow_mut().add(Source::new(path.as_str(), text.clone()));
        if let Some(error) = broken_signature(source, path.clone(), &text) {
            self.report(Some(source), error);
            return None;
        }
        if located.space != Space::System && rye_grammar::signature::parse(source, &text).is_none() && self.all_signed()
        {
            let reason = "it is not signed, and `signing.require` asks for every file to be".to_owned();
            self.report(Some(source), ItemError::Signature { path, reason, span: Some(Span::new(source, 0, 0)) });
            return None;
        }
        self.parsed.set(self.parsed.get() + 1);
        let file = FileRef { kind: located.kind, id: located.id, space: located.space, path: located.path, source };
        let mut found = Diagnostics::new();
        let item = parse(file, &text, &mut found);
        if !found.is_empty() {
            self.found.borrow_mut().entry(Some(source)).or_default().append(found);
        }
        item
    }

    /// Whether a space asks for signatures on every file (`language.md` 3). The strictest counts: a project cannot take
    /// back what its user wants.
    fn all_signed(&self) -> bool {
        *self.all_signed.get_or_init(|| {
            let Ok(id) = ItemId::parse("agent/agent") else { return false };
            let files = self.world.candidates(ItemKind::Config, &id).unwrap_or_default();
            files.iter().filter_map(|located| source::decode(&located.bytes).ok()).any(|text| {
                let tree = yaml::parse(SourceId(u32::MAX), text).tree;
                tree.get("signing").and_then(|s| s.get("require")).and_then(Node::as_str) == Some("all")
            })
        })
    }

    fn parse_yaml(&self, located: Located) -> Option<Node> {
        self.open(located, |file, text, found| {
            let parsed = yaml::parse(file.source, text);
            found.syntax(parsed.errors);
            Some(parsed.tree)
        })
    }

    fn report(&self, source: Option<SourceId>, error: ItemError) {
        self.found.borrow_mut().entry(source).or_default().push(error);
    }

    fn read_hook_files(&self) -> HookFiles {
        let mut files = HookFiles::default();
        for name in ["agent/hook_conditions", "agent/hooks"] {
            let Ok(id) = ItemId::parse(name) else { continue };
            for located in self.candidates(ItemKind::Config, &id) {
                let space = located.space;
                self.open(located, |file, text, found| {
                    let parsed = yaml::parse(file.source, text);
                    found.syntax(parsed.errors);
                    read_hook_file(&parsed.tree, space, &mut files, found);
                    Some(())
                });
            }
        }
        let mut found = Diagnostics::new();
        for space in Space::ALL {
            let all = [&files.user, &files.builtin, &files.project, &files.infra].into_iter().flatten();
            let of_space: Vec<_> = all.filter(|h| h.space == space).cloned().collect();
            hook_reader::unique(&of_space, &mut found);
        }
        for diagnostic in found {
            let source = diagnostic.labels().first().map(|l| l.span.source);
            self.found.borrow_mut().entry(source).or_default().push(diagnostic);
        }
        let all = || [&files.user, &files.builtin, &files.project, &files.infra].into_iter().flatten();
        (files.line, files.routing) = (HookLine::new(all().cloned().collect()), HookLine::routing(all()));
        files
    }
}

fn parse_directive(file: FileRef, text: &str, found: &mut Diagnostics) -> Option<Directive> {
    let mut debris = Diagnostics::new();
    let parsed = rye_grammar::directive::parse(file.source, text);
    // Where the XML is broken, what was read of it would give rise to complaints about its own debris.
    let broken = parsed.errors.iter().any(|e| e.kind == SyntaxKind::Xml);
    // Which of two blocks is meant is not for us to say: neither is compiled.
    let twice = parsed.errors.iter().any(|e| e.kind == SyntaxKind::Fence && e.other.is_some());
    found.syntax(parsed.errors);
    if twice {
        return None;
    }
    directive::read(file, parsed.tree, if broken { &mut debris } else { found })
}

fn parse_knowledge(file: FileRef, text: &str, found: &mut Diagnostics) -> Knowledge {
    let format = if file.path.ends_with(".md") { KnowledgeFormat::Markdown } else { KnowledgeFormat::Yaml };
    let parsed = rye_grammar::knowledge::parse(file.source, text, format);
    found.syntax(parsed.errors);
    knowledge::read(file, parsed.tree, found)
}

fn read_hook_file(node: &Node, space: Space, files: &mut HookFiles, found: &mut Diagnostics) {
    let entries = match &node.kind {
        Kind::Null => return,
        Kind::Map(entries) => entries,
        Kind::Bool(_) | Kind::Number(_) | Kind::String(_) | Kind::List(_) => {
            data::invalid(found, "hooks", node, "a mapping with a list `hooks`");
            return;
        }
    };
    data::keys(found, entries, &["hooks", "builtin_hooks", "context_hooks", "infra_hooks"], "a hook file");
    for entry in entries {
        let (source, into) = match (entry.key.node.as_str(), space) {
            ("infra_hooks", _) => (HookSource::Infrastructure, &mut files.infra),
            ("hooks" | "builtin_hooks" | "context_hooks", Space::User) => (HookSource::User, &mut files.user),
            ("hooks" | "builtin_hooks" | "context_hooks", Space::Project) => (HookSource::Project, &mut files.project),
            ("hooks" | "builtin_hooks" | "context_hooks", Space::System) => (HookSource::Builtin, &mut files.builtin),
            _ => continue,
        };
        into.extend(hook_reader::list(&entry.value, &source, space, found));
    }
}

fn world_error(kind: ItemKind, error: WorldError) -> ItemError {
    match error {
        WorldError::Unreadable { path, reason } => ItemError::Unreadable { path, reason },
        WorldError::Ambiguous { id, first, second } => ItemError::Ambiguous { kind, id, first, second },
        WorldError::Escapes { path } => ItemError::Unreadable { path, reason: "it leads out of its space".into() },
        WorldError::Signature { path, reason } => ItemError::Signature { path, reason, span: None },
    }
}

/// The content of a signed file has to be what was signed; whether the key is trusted is the world's business.
fn broken_signature(source: SourceId, path: String, text: &str) -> Option<ItemError> {
    let line = rye_grammar::signature::parse(source, text)?;
    let content = text.as_bytes().get(line.node.content_start..).unwrap_or_default();
    let fits = hex(&Sha256::digest(content)) == line.node.sha256;
    (!fits).then(|| ItemError::Signature {
        path,
        reason: "the content is not what was signed".into(),
        span: Some(Span { ..line.span }),
    })
}
