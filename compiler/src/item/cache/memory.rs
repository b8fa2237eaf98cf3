//! What one look at a world leaves for the next: items that were read, and what each reader of them depends on. The world
//! is asked again for its lists, and for every file that was read and that it does not know to be untouched; what it gives
//! is compared, never believed.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use rye_grammar::{ItemId, SourceId};

use super::{About, Cache, HOOK_FILES, Items};
use crate::world::{Entry, ItemKind, Located, State, World, WorldError};

/// Something that an answer depends on. Settings are not among them: on those everything depends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Read {
    /// What an item says, or that there is none.
    Item(ItemKind, ItemId),
    /// Whether there is an item.
    Exists(ItemKind, ItemId),
    /// Which items of a kind there are.
    List(ItemKind),
    /// Whether a capability pattern reaches anything.
    Pattern(String),
    /// What the tools come to that some patterns let be called.
    Palette(Arc<[String]>),
}

/// What was read while something was asked, sorted, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reads(Vec<Read>);

/// What is not as it was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Settings, or nothing is known of before: every answer has to be asked for again.
    pub everything: bool,
    pub reads: BTreeSet<Read>,
}

/// A cache between two looks.
#[derive(Default)]
pub struct Remembered {
    cache: Cache,
    log: Log,
}

/// Who asked the world for what.
#[derive(Default)]
pub(super) struct Log {
    given: RefCell<[HashMap<ItemId, Given>; 4]>,
    /// The texts of each item that was opened, and the item of each text.
    opened: RefCell<HashMap<(ItemKind, ItemId), Vec<SourceId>>>,
    items: RefCell<HashMap<SourceId, (ItemKind, ItemId)>>,
    /// The world's own account of when this was.
    state: Option<State>,
    frames: RefCell<Vec<Vec<Read>>>,
    /// Texts that nothing speaks of any more.
    dead: Cell<usize>,
}

type Given = Result<Vec<Located>, WorldError>;

/// Texts that nothing speaks of are kept up to here, and up to as many as the others.
const MOST_DEAD: usize = 1000;

impl Reads {
    pub fn contains(&self, read: &Read) -> bool {
        self.0.binary_search(read).is_ok()
    }
}

impl<'r> FromIterator<&'r Reads> for Reads {
    /// What several answers depend on.
    fn from_iter<I: IntoIterator<Item = &'r Self>>(several: I) -> Self {
        let mut all: Vec<&Read> = several.into_iter().flat_map(|reads| &reads.0).collect();
        all.sort_unstable();
        all.dedup();
        Self(all.into_iter().cloned().collect())
    }
}

impl Changes {
    /// Whether anything of this has changed.
    pub fn touch(&self, reads: &Reads) -> bool {
        self.everything || self.reads.iter().any(|read| reads.contains(read))
    }

    pub fn touch_list(&self, kind: ItemKind) -> bool {
        self.everything || self.reads.contains(&Read::List(kind))
    }
}

impl<'w> Items<'w> {
    /// The items of a world of which something may have been read before, and what has changed since.
    pub fn recall(world: &'w dyn World, remembered: Remembered) -> (Self, Changes) {
        let Remembered { mut cache, mut log } = remembered;
        let changes = changes(world, &cache, &log).filter(|_| {
            let live = cache.sources.borrow().len().saturating_sub(log.dead());
            log.dead() <= live.max(MOST_DEAD)
        });
        let Some((changes, lists)) = changes else {
            let (cache, log) = (Cache::default(), Some(Log { state: world.state(), ..Log::default() }));
            return (Self { world, cache, log }, Changes { everything: true, reads: BTreeSet::new() });
        };
        for read in &changes.reads {
            if let Read::Item(kind, id) = read {
                forget(&cache, &log, *kind, id);
                if *kind == ItemKind::Config && HOOK_FILES.contains(&id.as_str()) {
                    cache.hooks.take();
                }
            }
        }
        cache.parsed.set(0);
        cache.lists = lists.map(Into::into);
        log.state = world.state();
        (Self { world, cache, log: Some(log) }, changes)
    }

    /// What a later look can begin with; nothing where nobody kept an account.
    pub fn remember(self) -> Remembered {
        self.log.map(|log| Remembered { cache: self.cache, log }).unwrap_or_default()
    }

    /// What is asked meanwhile; empty where nobody keeps an account.
    pub fn during<T>(&self, ask: impl FnOnce() -> T) -> (T, Reads) {
        let Some(log) = &self.log else { return (ask(), Reads::default()) };
        log.frames.borrow_mut().push(Vec::new());
        let answer = ask();
        let mut frames = log.frames.borrow_mut();
        let mut reads = frames.pop().unwrap_or_default();
        reads.sort_unstable();
        reads.dedup();
        if let Some(outer) = frames.last_mut() {
            outer.extend(reads.iter().cloned());
        }
        (answer, Reads(reads))
    }

    /// What is asked meanwhile is no part of what is asked around it: for answers that are depended on as such.
    pub fn apart<T>(&self, ask: impl FnOnce() -> T) -> T {
        let Some(log) = &self.log else { return ask() };
        let around = std::mem::take(&mut *log.frames.borrow_mut());
        let answer = ask();
        *log.frames.borrow_mut() = around;
        answer
    }

    /// Whether anybody keeps an account of what is read.
    pub fn is_remembering(&self) -> bool {
        self.log.is_some()
    }

    /// Says that an answer depends on something whose value was at hand.
    pub fn depends(&self, read: impl FnOnce() -> Read) {
        self.note(read);
    }

    /// The same for everything that an answer at hand was made of.
    pub fn depends_on(&self, reads: &Reads) {
        if let Some(log) = &self.log {
            for read in &reads.0 {
                log.note(|| read.clone());
            }
        }
    }

    /// Forgets what was found wrong with items that nobody asks for any more; answers which items those were.
    pub fn keep_asked(&self, is_asked: impl Fn(&Read) -> bool) -> Vec<(ItemKind, ItemId)> {
        let Some(log) = &self.log else { return Vec::new() };
        let mut with_fault: Vec<(ItemKind, ItemId)> = {
            let found = self.cache.found.borrow();
            let items = log.items.borrow();
            let of = |about: &About| match about {
                About::Item(kind, id) => Some((*kind, id.clone())),
                About::Source(source) => items.get(source).cloned(),
                About::List(_) => None,
            };
            found.keys().filter_map(of).collect()
        };
        with_fault.retain(|(kind, id)| *kind != ItemKind::Config && !is_asked(&Read::Item(*kind, id.clone())));
        for (kind, id) in &with_fault {
            forget(&self.cache, log, *kind, id);
        }
        with_fault
    }
}

impl Log {
    /// Where nobody is listening, not even the name is made.
    pub(super) fn note(&self, read: impl FnOnce() -> Read) {
        if let Some(frame) = self.frames.borrow_mut().last_mut() {
            frame.push(read());
        }
    }

    pub(super) fn given(&self, kind: ItemKind, id: &ItemId, given: &Given) {
        if let Some(of_kind) = self.given.borrow_mut().get_mut(kind as usize) {
            of_kind.insert(id.clone(), given.clone());
        }
    }

    pub(super) fn dead(&self) -> usize {
        self.dead.get()
    }

    pub(super) fn opened(&self, kind: ItemKind, id: &ItemId, source: SourceId) {
        self.opened.borrow_mut().entry((kind, id.clone())).or_default().push(source);
        self.items.borrow_mut().insert(source, (kind, id.clone()));
    }
}

type Lists = [Arc<[Entry]>; 4];

/// What differs from what was read, with the lists as they are now; `None` where no comparison is worth having.
fn changes(world: &dyn World, cache: &Cache, log: &Log) -> Option<(Changes, Lists)> {
    if !cache.unlisted.borrow().is_empty() {
        return None;
    }
    let mut changes = Changes::default();
    let mut lists: Lists = std::array::from_fn(|_| Arc::default());
    let touched = log.state.as_ref().and_then(|before| world.touched_since(before));
    for ((kind, slot), (known, given)) in
        ItemKind::ALL.into_iter().zip(&mut lists).zip(cache.lists.iter().zip(log.given.borrow().iter()))
    {
        let before = known.get()?;
        let mut moved = BTreeSet::new();
        *slot = before.clone();
        let may_differ = touched.is_none_or(|touched| touched.lists.contains(&kind));
        if may_differ && !world.still_lists(kind, before) {
            let now = world.list(kind).ok()?;
            moved = differing(before, &now);
            changes.reads.extend(moved.iter().map(|id| Read::Exists(kind, id.clone())));
            *slot = now.into();
        }
        if !moved.is_empty() {
            changes.reads.insert(Read::List(kind));
        }
        let mut look = |id: &ItemId, given: &Given| {
            // What was not there is in no list, or in that of what moved.
            let was_there = given.as_ref().map_or(true, |files| !files.is_empty());
            if was_there && !moved.contains(id) && !world.still_gives(kind, id, given) {
                moved.insert(id.clone());
            }
        };
        match touched {
            Some(touched) => {
                let of_kind = touched.items.iter().filter(|(of, _)| *of == kind);
                of_kind.filter_map(|(_, id)| given.get_key_value(id)).for_each(|(id, given)| look(id, given));
            }
            None => given.iter().for_each(|(id, given)| look(id, given)),
        }
        if kind == ItemKind::Config && !moved.is_empty() {
            changes.everything = true;
            if moved.iter().any(|id| id.as_str() == SIGNING) {
                return None;
            }
            // They are read together.
            if HOOK_FILES.iter().any(|file| moved.iter().any(|id| id.as_str() == *file)) {
                moved.extend(HOOK_FILES.iter().filter_map(|file| ItemId::parse(file).ok()));
            }
        }
        changes.reads.extend(moved.into_iter().map(|id| Read::Item(kind, id)));
    }
    Some((changes, lists))
}

/// The settings that say which files are read at all.
const SIGNING: &str = "agent/agent";

/// The ids that two sorted lists do not agree on.
fn differing(before: &[Entry], now: &[Entry]) -> BTreeSet<ItemId> {
    let (mut before, mut now) = (before.iter().peekable(), now.iter().peekable());
    let mut ids = BTreeSet::new();
    loop {
        let only = match (before.peek(), now.peek()) {
            (Some(old), Some(new)) if old == new => {
                before.next();
                now.next();
                continue;
            }
            (Some(old), Some(new)) if old < new => before.next(),
            (_, Some(_)) => now.next(),
            (Some(_), None) => before.next(),
            (None, None) => return ids,
        };
        ids.extend(only.map(|entry| entry.id.clone()));
    }
}

/// Takes an item out of everything but the hooks of files.
fn forget(cache: &Cache, log: &Log, kind: ItemKind, id: &ItemId) {
    match kind {
        ItemKind::Directive => {
            cache.directives.borrow_mut().remove(id);
            cache.hidden_directives.borrow_mut().remove(id);
        }
        ItemKind::Knowledge => {
            cache.knowledge.borrow_mut().remove(id);
            cache.hidden_knowledge.borrow_mut().remove(id);
        }
        ItemKind::Tool => {
            cache.tools.borrow_mut().remove(id);
        }
        ItemKind::Config => {
            cache.configs.borrow_mut().remove(id);
            cache.layers.borrow_mut().remove(id);
        }
    }
    let mut found = cache.found.borrow_mut();
    found.remove(&About::Item(kind, id.clone()));
    for source in log.opened.borrow_mut().remove(&(kind, id.clone())).unwrap_or_default() {
        found.remove(&About::Source(source));
        log.items.borrow_mut().remove(&source);
        log.dead.set(log.dead() + 1);
    }
    if let Some(of_kind) = log.given.borrow_mut().get_mut(kind as usize) {
        of_kind.remove(id);
    }
}
