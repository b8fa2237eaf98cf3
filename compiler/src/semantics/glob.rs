//! Capability patterns as text patterns: matching is Python 3.11's `fnmatchcase` on the whole string (`language.md` 9).

pub mod inclusion;

use std::sync::OnceLock;

pub use inclusion::{Coverage, covers};

/// A pattern that is ready to match.
#[derive(Debug, Clone)]
pub struct Glob {
    pattern: Box<str>,
    shape: GlobShape,
    /// The tokens, computed the first time that [`GlobShape`] does not decide a match.
    tokens: OnceLock<Vec<Token>>,
}

/// The form of a pattern. The common forms, `Exact` and `Prefix`, match without parsing the pattern into tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GlobShape {
    /// A pattern without wildcards.
    Exact,
    /// A pattern whose only wildcard is one `*` at the end.
    Prefix,
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Literal(char),
    /// `?`: any single character.
    One,
    /// `*`: any number of any characters. Two of these tokens never follow each other.
    Run,
    /// `[seq]`, `[!seq]`: a single character inside or outside of inclusive ranges.
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

impl Token {
    fn accepts(&self, c: char) -> bool {
        match self {
            Self::Literal(literal) => *literal == c,
            Self::One | Self::Run => true,
            Self::Class { negated, ranges } => ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated,
        }
    }
}

impl GlobShape {
    fn of(pattern: &str) -> Self {
        let special = |c: char| matches!(c, '*' | '?' | '[');
        match pattern.find(special) {
            None => Self::Exact,
            Some(at) if at + 1 == pattern.len() && pattern.ends_with('*') => Self::Prefix,
            Some(_) => Self::Other,
        }
    }
}

/// Returns true if a whole text matches a pattern. To match a pattern several times, use a [`Glob`], which is faster.
pub fn matches(pattern: &str, text: &str) -> bool {
    match GlobShape::of(pattern) {
        GlobShape::Exact => pattern == text,
        GlobShape::Prefix => pattern.strip_suffix('*').is_some_and(|prefix| text.starts_with(prefix)),
        GlobShape::Other => Glob::new(pattern).matches(text),
    }
}

impl Glob {
    pub fn new(pattern: &str) -> Self {
        Self { pattern: pattern.into(), shape: GlobShape::of(pattern), tokens: OnceLock::new() }
    }

    /// Returns true if the pattern matches exactly one text.
    pub fn is_literal(&self) -> bool {
        match self.shape {
            GlobShape::Exact => true,
            GlobShape::Prefix => false,
            GlobShape::Other => self.parse_tokens().iter().all(|token| matches!(token, Token::Literal(_))),
        }
    }

    /// Counts the literal characters of the pattern. A pattern with more literal characters is more specific.
    pub(crate) fn literal_chars(&self) -> usize {
        match self.shape {
            GlobShape::Exact => self.pattern.chars().count(),
            GlobShape::Prefix => self.pattern.chars().count() - 1,
            GlobShape::Other => self.parse_tokens().iter().filter(|token| matches!(token, Token::Literal(_))).count(),
        }
    }

    fn parse_tokens(&self) -> &[Token] {
        self.tokens.get_or_init(|| tokens(&self.pattern))
    }

    /// Returns true if the whole text matches.
    pub fn matches(&self, text: &str) -> bool {
        match self.shape {
            GlobShape::Exact => *self.pattern == *text,
            GlobShape::Prefix => self.pattern.strip_suffix('*').is_some_and(|prefix| text.starts_with(prefix)),
            GlobShape::Other => self.matches_tokens(text),
        }
    }

    /// Returns true if the tokens match the whole text. The match takes at most pattern length × text length steps, and
    /// allocates nothing.
    fn matches_tokens(&self, text: &str) -> bool {
        let tokens = self.parse_tokens();
        let mut rest = text.chars();
        let mut token = 0;
        // The index of the token after the last `*`, and the rest of the text at which this token was last tried.
        let mut retry: Option<(usize, std::str::Chars<'_>)> = None;
        loop {
            let before = rest.clone();
            match (tokens.get(token), rest.next()) {
                (Some(Token::Run), _) => {
                    token += 1;
                    if token == tokens.len() {
                        return true;
                    }
                    retry = Some((token, before.clone()));
                    rest = before;
                }
                (Some(expected), Some(c)) if expected.accepts(c) => token += 1,
                (None, None) => return true,
                // The text ends before the pattern, so a longer match of the `*` cannot help.
                (Some(_), None) => return false,
                (Some(_) | None, Some(_)) => {
                    let Some((behind, from)) = &mut retry else { return false };
                    if from.next().is_none() {
                        return false;
                    }
                    token = *behind;
                    rest = from.clone();
                }
            }
        }
    }
}

impl PartialEq for Glob {
    fn eq(&self, other: &Self) -> bool {
        self.parse_tokens() == other.parse_tokens()
    }
}

impl Eq for Glob {}

fn tokens(pattern: &str) -> Vec<Token> {
    let chars: Vec<char> = pattern.chars().collect();
    let mut tokens = Vec::with_capacity(chars.len());
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        at += 1;
        match c {
            '*' => {
                if tokens.last() != Some(&Token::Run) {
                    tokens.push(Token::Run);
                }
            }
            '?' => tokens.push(Token::One),
            '[' => {
                if let Some((class, after)) = parse_class(&chars, at) {
                    tokens.push(class);
                    at = after;
                } else {
                    tokens.push(Token::Literal('['));
                }
            }
            literal => tokens.push(Token::Literal(literal)),
        }
    }
    tokens
}

/// Parses a character class (`[a-z]`) whose `[` precedes `start`. Returns the class and the position after its `]`;
/// `None` if the class never closes.
fn parse_class(chars: &[char], start: usize) -> Option<(Token, usize)> {
    let is = |at: usize, c: char| chars.get(at) == Some(&c);
    let mut close = start;
    if is(close, '!') {
        close += 1;
    }
    // A `]` directly after `[` or `[!` is a member of the class.
    if is(close, ']') {
        close += 1;
    }
    while !is(close, ']') {
        chars.get(close)?;
        close += 1;
    }
    Some((read_class(chars.get(start..close)?), close + 1))
}

/// Reads the text between the brackets as Python does: hyphens split the text into chunks, and a hyphen between two
/// chunks is a range from the last character of the first chunk to the first character of the second chunk. If such a
/// range is empty, both of its ends are removed.
fn read_class(inside: &[char]) -> Token {
    let mut chunks = hyphen_chunks(inside);
    let mut at = chunks.len();
    while at > 1 {
        at -= 1;
        let (Some(left), Some(right)) = (chunks.get(at - 1), chunks.get(at)) else { continue };
        if let (Some(low), Some(high)) = (left.last(), right.first())
            && low > high
        {
            let joined = left.iter().take(left.len() - 1).chain(right.iter().skip(1)).copied().collect();
            if let Some(slot) = chunks.get_mut(at - 1) {
                *slot = joined;
            }
            chunks.remove(at);
        }
    }
    let mut negated = false;
    if let Some(first) = chunks.first_mut()
        && first.first() == Some(&'!')
    {
        negated = true;
        first.remove(0);
    }
    let mut ranges = Vec::new();
    let mut open: Option<char> = None;
    for (i, chunk) in chunks.iter().enumerate() {
        let mut members = chunk.iter().copied();
        if let Some(low) = open.take() {
            match members.next() {
                Some(high) => ranges.push((low, high)),
                None => ranges.push((low, low)),
            }
        }
        let mut members: Vec<char> = members.collect();
        if i + 1 < chunks.len() {
            open = members.pop();
        }
        ranges.extend(members.into_iter().map(|c| (c, c)));
    }
    Token::Class { negated, ranges }
}

fn hyphen_chunks(inside: &[char]) -> Vec<Vec<char>> {
    let find = |from: usize| (from..inside.len()).find(|at| inside.get(*at) == Some(&'-'));
    let part = |from: usize, to: usize| inside.get(from..to).unwrap_or_default().to_vec();
    let mut chunks = Vec::new();
    let mut from = 0;
    let mut search = if inside.first() == Some(&'!') { 2 } else { 1 };
    while let Some(hyphen) = find(search) {
        chunks.push(part(from, hyphen));
        from = hyphen + 1;
        search = hyphen + 3;
    }
    let rest = part(from, inside.len());
    if rest.is_empty() {
        // A hyphen at the end is a member of the class.
        match chunks.last_mut() {
            Some(last) => last.push('-'),
            None => chunks.push(rest),
        }
    } else {
        chunks.push(rest);
    }
    chunks
}
