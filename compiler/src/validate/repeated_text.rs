//! Reports paragraphs that two texts of one request have in common, because their tokens are sent twice.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hasher as _};
use std::rc::Rc;

use rye_grammar::{SourceId, Span, Spanned};

use super::incremental::Merge;
use crate::compose::{Composed, ComposedHook};
use crate::diagnostics::{ContextError, Diagnostics};
use crate::hook::{HookPoint, PlanVerdict};
use crate::item::{Directive, Items, Knowledge};
use crate::plan::Tokenizer;
use crate::world::Space;

/// Minimum tokens of a paragraph that is reported. Shorter paragraphs are headings, list markers and common phrases.
const MIN_TOKENS: u64 = 40;

/// A paragraph of a text: lines without a blank line between them.
struct Paragraph {
    /// Hash of the words of the paragraph, so that line breaks and indentation do not matter.
    hash: u64,
    span: Span,
    tokens: u64,
}

/// A paragraph of a text that a request may contain.
#[derive(Clone, Copy)]
struct Occurrence {
    span: Span,
    tokens: u64,
    /// The position of the paragraph in its text, from 0.
    index: usize,
    /// True if a hook decides at run time whether the text is sent.
    depends: bool,
    space: Space,
}

/// The identity of a text that a request may contain: its source, its space, and whether the text is sent only in some
/// runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct SentText {
    source: SourceId,
    depends: bool,
    space: Space,
}

/// The paragraphs of a list of knowledge items, and the repetitions among them.
#[derive(Default)]
struct ParagraphIndex {
    first: HashMap<u64, Occurrence>,
    repeated: Vec<(Occurrence, Occurrence)>,
}

struct TextParagraphs {
    list: Vec<Paragraph>,
    /// True if a paragraph of this text occurs twice in the text, or also in the text of another knowledge item.
    is_repeated: Cell<bool>,
}

/// A cache of the paragraphs of each text, and of the repetitions in each list of texts (`ParagraphIndex`). Most
/// directives share the knowledge of the directives that they extend. With the cache, the work grows with the size of
/// the texts, not with the number of directives.
#[derive(Default)]
pub struct ParagraphCache {
    texts: RefCell<HashMap<SourceId, Rc<TextParagraphs>>>,
    /// For each paragraph of knowledge, by the paragraph's hash: the text of the first knowledge that contains the
    /// paragraph.
    first: RefCell<HashMap<u64, Rc<TextParagraphs>>>,
    indexes: RefCell<HashMap<Vec<SentText>, Rc<ParagraphIndex>>>,
}

/// The texts that the first request of a directive contains twice. The key of an entry holds the spans of both texts.
/// The value holds the token count of one text, and the first directive whose first request contains both.
#[derive(Default)]
pub struct RepeatedParagraphs {
    found: BTreeMap<(Span, Span), (u64, String)>,
}

impl RepeatedParagraphs {
    /// Adds the repetitions among the texts of the first request of a directive.
    pub fn add(&mut self, items: &Items<'_>, cache: &ParagraphCache, composed: &Composed) {
        let chain = composed.system.iter().chain(&composed.before).chain(&composed.after);
        let of_chain = chain.map(|item| (&item.knowledge, false));
        let hooks = composed.hooks.iter().filter(|hook| is_sent(hook));
        let of_hooks = hooks.filter_map(|hook| Some((hook.knowledge.as_ref()?, hook.verdict != PlanVerdict::Fires)));
        let sent = || of_chain.clone().chain(of_hooks.clone());
        // Reading a text compares it with the texts read before, so one pass finds every common paragraph.
        let mut is_repeated = false;
        for (knowledge, _) in sent() {
            is_repeated |= cache.read_knowledge(items, knowledge).is_repeated.get();
        }
        let body = composed.leaf().map(|leaf| (leaf, cache.read_body(items, leaf)));
        if !is_repeated && !body.as_ref().is_some_and(|(_, body)| cache.is_repeated_in_body(&body.list)) {
            return;
        }
        let mut texts = Vec::new();
        let mut seen = HashSet::new();
        for (knowledge, depends) in sent() {
            let text = SentText { source: knowledge.body.span.source, depends, space: knowledge.file.space };
            if seen.insert(text.source) {
                texts.push(text);
            }
        }
        let index = cache.index(&texts);
        let mut repeated = index.repeated.clone();
        if let Some((leaf, body)) = body {
            let mut own = HashMap::new();
            for (hash, second) in occurrences(&body.list, false, leaf.file.space) {
                let first = index.first.get(&hash).or_else(|| own.get(&hash)).copied();
                repeated.extend(first.map(|first| (first, second)));
                own.entry(hash).or_insert(second);
            }
        }
        for (first, second, tokens) in join_neighbors(&repeated) {
            self.found.entry((first, second)).or_insert_with(|| (tokens, composed.id.to_string()));
        }
    }

    pub fn report(self, found: &mut Diagnostics) {
        found.extend(self.found.into_iter().map(|((first, second), (tokens, directive))| {
            ContextError::RepeatedParagraph { tokens, directive, first, second }
        }));
    }
}

impl Merge for RepeatedParagraphs {
    fn merge(&mut self, other: &Self) {
        for (places, repetition) in &other.found {
            self.found.entry(*places).or_insert_with(|| repetition.clone());
        }
    }
}

impl ParagraphCache {
    fn read_knowledge(&self, items: &Items<'_>, knowledge: &Knowledge) -> Rc<TextParagraphs> {
        if let Some(known) = self.texts.borrow().get(&knowledge.body.span.source) {
            return Rc::clone(known);
        }
        let text = self.read(items, &knowledge.body);
        let mut all = self.first.borrow_mut();
        for paragraph in &text.list {
            let first = all.entry(paragraph.hash).or_insert_with(|| Rc::clone(&text));
            let is_first =
                Rc::ptr_eq(first, &text) && text.list.iter().filter(|p| p.hash == paragraph.hash).count() == 1;
            if !is_first {
                first.is_repeated.set(true);
                text.is_repeated.set(true);
            }
        }
        text
    }

    fn read_body(&self, items: &Items<'_>, directive: &Directive) -> Rc<TextParagraphs> {
        if let Some(known) = self.texts.borrow().get(&directive.body.span.source) {
            return Rc::clone(known);
        }
        self.read(items, &directive.body)
    }

    /// Returns true if a body contains a paragraph twice, or a paragraph that a text of knowledge contains too.
    fn is_repeated_in_body(&self, body: &[Paragraph]) -> bool {
        let first = self.first.borrow();
        let mut own = HashSet::new();
        body.iter().any(|paragraph| first.contains_key(&paragraph.hash) || !own.insert(paragraph.hash))
    }

    fn read(&self, items: &Items<'_>, text: &Spanned<String>) -> Rc<TextParagraphs> {
        // If the text is not a verbatim part of its file, its paragraphs have no positions there and are skipped.
        let is_verbatim = items.sources().slice(text.span) == text.node;
        let list = if is_verbatim { split_paragraphs(&text.node, text.span) } else { Vec::new() };
        let read = Rc::new(TextParagraphs { list, is_repeated: Cell::new(false) });
        self.texts.borrow_mut().insert(text.span.source, Rc::clone(&read));
        read
    }

    fn index(&self, texts: &[SentText]) -> Rc<ParagraphIndex> {
        if let Some(known) = self.indexes.borrow().get(texts) {
            return Rc::clone(known);
        }
        let mut index = ParagraphIndex::default();
        let read = self.texts.borrow();
        for text in texts {
            let paragraphs = read.get(&text.source).map(|text| text.list.as_slice()).unwrap_or_default();
            for (hash, second) in occurrences(paragraphs, text.depends, text.space) {
                match index.first.get(&hash) {
                    // Two hooks whose conditions depend on the run may exclude each other.
                    Some(first) if first.depends && second.depends && first.span.source != second.span.source => {}
                    Some(first) => index.repeated.push((*first, second)),
                    None => drop(index.first.insert(hash, second)),
                }
            }
        }
        let index = Rc::new(index);
        self.indexes.borrow_mut().insert(texts.to_vec(), Rc::clone(&index));
        index
    }
}

/// Returns true if the first request of a thread can contain the knowledge of a hook.
fn is_sent(hook: &ComposedHook) -> bool {
    hook.is_live() && matches!(hook.decl.event, HookPoint::BuildSystemPrompt | HookPoint::ThreadStarted)
}

fn occurrences(
    paragraphs: &[Paragraph],
    depends: bool,
    space: Space,
) -> impl Iterator<Item = (u64, Occurrence)> + use<'_> {
    paragraphs.iter().enumerate().map(move |(index, paragraph)| {
        let Paragraph { hash, span, tokens } = *paragraph;
        (hash, Occurrence { span, tokens, index, depends, space })
    })
}

/// Splits a text into its paragraphs, without those shorter than [`MIN_TOKENS`].
fn split_paragraphs(text: &str, span: Span) -> Vec<Paragraph> {
    let mut paragraphs = Vec::new();
    let mut start = None;
    let mut offset = 0;
    let mut end = 0;
    // Hashing all words in one write is faster than one write for each word.
    let mut joined = Vec::new();
    let mut close = |start: &mut Option<usize>, end: usize| {
        let Some(range) = start.take().map(|start| start..end) else { return };
        let words = text.get(range.clone()).unwrap_or_default();
        let tokens = Tokenizer::Characters.count(words);
        if tokens < MIN_TOKENS {
            return;
        }
        let mut hasher = DefaultHasher::new();
        joined.clear();
        join_words(words, &mut joined);
        hasher.write(&joined);
        let base = span.range().start;
        let span = Span::new(span.source, base + range.start, base + range.end);
        paragraphs.push(Paragraph { hash: hasher.finish(), span, tokens });
    };
    for line in text.split_inclusive('\n') {
        if line.trim().is_empty() {
            close(&mut start, end);
        } else {
            let indent = line.len() - line.trim_start().len();
            start = start.or(Some(offset + indent));
            end = offset + line.trim_end().len();
        }
        offset += line.len();
    }
    close(&mut start, end);
    paragraphs
}

/// Appends each word of a text to `joined`, followed by one space, whatever white space separates the words in the
/// text.
fn join_words(text: &str, joined: &mut Vec<u8>) {
    let mut append = |word: &[u8]| {
        joined.extend_from_slice(word);
        joined.push(b' ');
    };
    if text.is_ascii() {
        // Bytes are compared faster than characters.
        let is_space = |byte: &u8| matches!(byte, b'\t'..=b'\r' | b' ');
        text.as_bytes().split(is_space).filter(|word| !word.is_empty()).for_each(append);
    } else {
        text.split_whitespace().for_each(|word| append(word.as_bytes()));
    }
}

/// Joins repetitions whose paragraphs follow each other in both places into one repetition. Omits repetitions within
/// the standard library. Returns the two spans and the number of tokens of each joined repetition.
fn join_neighbors(repeated: &[(Occurrence, Occurrence)]) -> Vec<(Span, Span, u64)> {
    let mut joined: Vec<(Span, Span, u64)> = Vec::new();
    let mut last: Option<(Occurrence, Occurrence)> = None;
    for (first, second) in repeated.iter().filter(|(a, b)| a.space != Space::System || b.space != Space::System) {
        let follows = last.is_some_and(|(a, b)| {
            a.span.source == first.span.source
                && b.span.source == second.span.source
                && a.index + 1 == first.index
                && b.index + 1 == second.index
        });
        last = Some((*first, *second));
        match joined.last_mut().filter(|_| follows) {
            Some((one, other, tokens)) => {
                *one = one.join(first.span);
                *other = other.join(second.span);
                *tokens = tokens.saturating_add(second.tokens);
            }
            None => joined.push((first.span, second.span, second.tokens)),
        }
    }
    joined
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use crate::compile::tests::world::{minimal_world, with_directives};
    use crate::validate::{Selection, check};

    const LONG: &str = "Every answer names the file and the line that it speaks about, and quotes the words that matter. An \
                        answer without a place is sent back, because no reader can check it in the time that a review has.";

    /// Returns the tokens of each reported repetition, for a body and the knowledge `a` and `b` in `<before>`.
    fn repeated(body: &str, a: &str, b: &str) -> Vec<String> {
        let inside = "<metadata><context><before>a</before><before>b</before></context></metadata>";
        let world = with_directives(minimal_world(), &[("leaf", "", inside, body)]);
        let world = world.project(".ai/knowledge/a.md", a).project(".ai/knowledge/b.md", b);
        let report = check(&world, &Selection::All);
        let found = report.diagnostics.iter().filter(|one| one.code() == "context::repeated-paragraph");
        found.map(crate::diagnostics::Diagnostic::message).collect()
    }

    #[test]
    fn repeated_paragraph_is_reported_across_and_within_texts() {
        let two = format!("# A\n\n{LONG}\n\n# B\n\nShort.\n");
        let wrapped = LONG.replace(". An answer", ".\n  An answer");
        assert_eq!(repeated("Work.", &two, &format!("Other.\n\n{wrapped}\n")).len(), 1);
        assert_eq!(repeated(&format!("Work.\n\n{LONG}"), &two, "Other.").len(), 1);
        assert_eq!(repeated("Work.", &format!("{two}\n{LONG}\n"), "Other.").len(), 1);
        assert_eq!(repeated("Work.", &two, "Short.\n\nOther.\n").len(), 0);
    }

    #[test]
    fn words_are_joined_by_the_white_space_of_characters() {
        for text in ["", " a\tb\u{b}c\u{c}\r\nd  e\u{1c}f ", "a\u{a0}é\u{2003} b"] {
            let mut joined = Vec::new();
            super::join_words(text, &mut joined);
            let words: String = text.split_whitespace().flat_map(|word| [word, " "]).collect();
            assert_eq!(String::from_utf8(joined).unwrap(), words);
        }
    }

    #[test]
    fn neighboring_paragraphs_are_one_report() {
        let other = LONG.replace("answer", "report");
        let both = format!("{LONG}\n\n{other}\n");
        let found = repeated("Work.", &both, &both);
        assert_eq!(found.len(), 1, "{found:?}");
    }
}
