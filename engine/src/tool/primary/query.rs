//! The query language of `rye_fetch`: words, `"phrases"`, `wild*cards`, `field:word`, `AND`, `OR`, `NOT` (or `-`),
//! parentheses. If words have no operator between them, an item that contains any of the words matches. An item that
//! contains more of the words ranks higher.

use rye_compiler::semantics::glob::Glob;

/// Maximum number of words and phrases in a query.
const MAX_QUERY_TERMS: usize = 32;
/// Maximum depth of parentheses.
const MAX_QUERY_DEPTH: usize = 16;
/// Maximum points of one matching word in all fields together.
const MAX_FIELD_POINTS: u32 = 47;
/// Points of an item for each word of the query that it contains, in addition to the points for the fields that contain
/// the word. The value exceeds the field points of all words of a query together, so that an item with more of the
/// words always ranks higher.
const POINTS_PER_WORD: u32 = 32 * MAX_FIELD_POINTS + 1;
const _: () = assert!(MAX_QUERY_TERMS == 32, "`POINTS_PER_WORD` depends on the number of words");

/// A parsed search query.
#[derive(Debug)]
pub enum Query {
    Term(Term),
    /// At least one part must match.
    Any(Vec<Query>),
    /// Every part must match.
    All(Vec<Query>),
    Not(Box<Query>),
}

/// A word or phrase to search for, in one field or in any field.
#[derive(Debug)]
pub struct Term {
    field: Option<QueryField>,
    what: TermPattern,
}

#[derive(Debug)]
enum TermPattern {
    /// Text that may occur anywhere, also inside a word.
    Text(String),
    /// A pattern for a whole word.
    Word(Glob),
}

/// A field of an item that a query can search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryField {
    Name,
    Category,
    Title,
    Description,
    Tags,
    Body,
}

/// The texts of an item that a query searches, in lowercase.
#[derive(Debug, Default)]
pub struct SearchableTexts {
    pub name: String,
    pub category: String,
    pub title: String,
    pub description: String,
    pub tags: String,
    pub body: String,
}

impl QueryField {
    const ALL: [Self; 6] = [Self::Name, Self::Category, Self::Title, Self::Tags, Self::Description, Self::Body];

    fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Category => "category",
            Self::Title => "title",
            Self::Description => "description",
            Self::Tags => "tags",
            Self::Body => "body",
        }
    }

    fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|f| f.as_str() == word).or(match word {
            "id" => Some(Self::Name),
            "tag" => Some(Self::Tags),
            _ => None,
        })
    }

    fn text(self, texts: &SearchableTexts) -> &str {
        match self {
            Self::Name => &texts.name,
            Self::Category => &texts.category,
            Self::Title => &texts.title,
            Self::Description => &texts.description,
            Self::Tags => &texts.tags,
            Self::Body => &texts.body,
        }
    }
}

impl Query {
    /// Parses a query. `AND`, `OR` and `NOT` are operators only in capitals; `and`, `or` and `not` are words.
    ///
    /// # Errors
    /// A message for the model: an unclosed quote or parenthesis, an unknown field, or no search word.
    pub fn parse(text: &str) -> Result<Self, String> {
        let tokens = tokens(text)?;
        if tokens.iter().filter(|t| matches!(t, QueryToken::Term(_))).count() > MAX_QUERY_TERMS {
            return Err(format!("`query` has more than {MAX_QUERY_TERMS} words"));
        }
        let mut parser = QueryParser { tokens: tokens.into_iter().peekable(), depth: 0 };
        let query = parser.parse_any()?;
        if parser.tokens.next().is_some() {
            return Err("`query` has an unmatched `)`".into());
        }
        query.ok_or_else(|| "`query` contains no search word".into())
    }

    /// Returns the score of an item, which is higher for a better match; `None` if the item does not match.
    pub fn score(&self, texts: &SearchableTexts) -> Option<u32> {
        match self {
            Self::Term(term) => Some(term.points(texts)).filter(|p| *p > 0),
            Self::Any(parts) => {
                let found: Vec<u32> = parts.iter().filter_map(|p| p.score(texts)).collect();
                // An excluded word rules an item out, whatever else matches.
                let excluded = parts.iter().any(|p| matches!(p, Self::Not(_)) && p.score(texts).is_none());
                (!excluded && !found.is_empty()).then(|| found.iter().sum())
            }
            Self::All(parts) => parts.iter().map(|p| p.score(texts)).sum(),
            Self::Not(part) => part.score(texts).is_none().then_some(0),
        }
    }
}

impl Term {
    /// Returns the points of this word or phrase for an item: [`POINTS_PER_WORD`], plus the points of the fields that
    /// contain the word, at most [`MAX_FIELD_POINTS`]. 0 if no field contains the word.
    fn points(&self, texts: &SearchableTexts) -> u32 {
        let fields: &[QueryField] = self.field.as_ref().map_or(&QueryField::ALL, std::slice::from_ref);
        let points: u32 = fields.iter().map(|field| self.what.points(*field, field.text(texts))).sum();
        if points == 0 { 0 } else { POINTS_PER_WORD + points.min(MAX_FIELD_POINTS) }
    }
}

impl TermPattern {
    fn points(&self, field: QueryField, text: &str) -> u32 {
        let (count, whole) = match self {
            Self::Text(word) => (text.matches(word.as_str()).take(4).count(), text == word),
            Self::Word(glob) => (words(text).filter(|w| glob.matches(w)).take(4).count(), glob.matches(text)),
        };
        if count == 0 {
            return 0;
        }
        match field {
            QueryField::Name if whole => 20,
            QueryField::Name => 10,
            QueryField::Category => 4,
            QueryField::Title => 8,
            QueryField::Tags => 6,
            QueryField::Description => 5,
            QueryField::Body => u32::try_from(count).unwrap_or(0),
        }
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty())
}

enum QueryToken {
    Term(Term),
    And,
    Or,
    Not,
    Open,
    Close,
}

/// Splits a query into tokens. The terms are in lowercase.
fn tokens(text: &str) -> Result<Vec<QueryToken>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        match first {
            '(' | ')' => {
                tokens.push(if first == '(' { QueryToken::Open } else { QueryToken::Close });
                rest = rest.get(1..).unwrap_or_default();
            }
            '-' | '!' => {
                tokens.push(QueryToken::Not);
                rest = rest.get(1..).unwrap_or_default();
            }
            '"' => {
                let (phrase, after) = quoted(rest)?;
                tokens.extend(phrase_of(phrase, None));
                rest = after;
            }
            _ => {
                let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | '"')).unwrap_or(rest.len());
                let (word, after) = rest.split_at(end);
                rest = after;
                match word {
                    "NOT" => tokens.push(QueryToken::Not),
                    "OR" | "|" | "||" => tokens.push(QueryToken::Or),
                    "AND" | "&" | "&&" | "+" => tokens.push(QueryToken::And),
                    word => {
                        if let Some((name, value)) =
                            word.split_once(':').filter(|(n, _)| n.chars().all(char::is_alphabetic))
                        {
                            let field = QueryField::of(&name.to_lowercase()).ok_or_else(|| {
                                let known: Vec<&str> = QueryField::ALL.map(QueryField::as_str).to_vec();
                                format!("`query`: unknown field `{name}`; expected one of {}", known.join(", "))
                            })?;
                            if value.is_empty() && rest.starts_with('"') {
                                let (phrase, after) = quoted(rest)?;
                                tokens.extend(phrase_of(phrase, Some(field)));
                                rest = after;
                            } else {
                                terms(value, Some(field), &mut tokens);
                            }
                        } else {
                            terms(word, None, &mut tokens);
                        }
                    }
                }
            }
        }
        rest = rest.trim_start();
    }
    Ok(tokens)
}

fn quoted(from: &str) -> Result<(&str, &str), String> {
    from.get(1..).and_then(|inside| inside.split_once('"')).ok_or_else(|| "`query` has an unclosed quote".into())
}

fn phrase_of(phrase: &str, field: Option<QueryField>) -> Option<QueryToken> {
    let text = phrase.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ");
    if text.is_empty() { None } else { Some(QueryToken::Term(Term { field, what: TermPattern::Text(text) })) }
}

/// Adds the terms of a word to `into`: one pattern if the word contains `*` or `?`, else one term for each part between
/// punctuation marks.
fn terms(word: &str, field: Option<QueryField>, into: &mut Vec<QueryToken>) {
    let word = &word.to_lowercase();
    if word.contains(['*', '?']) && word.chars().any(char::is_alphanumeric) {
        into.push(QueryToken::Term(Term { field, what: TermPattern::Word(Glob::new(word)) }));
        return;
    }
    for part in word.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|p| !p.is_empty()) {
        into.push(QueryToken::Term(Term { field, what: TermPattern::Text(part.to_owned()) }));
    }
}

struct QueryParser {
    tokens: std::iter::Peekable<std::vec::IntoIter<QueryToken>>,
    depth: usize,
}

impl QueryParser {
    /// Parses a query whose parts are adjacent or joined by `OR`: at least one part must match. Both forms bind weaker
    /// than `AND`. `None` if there are no words.
    fn parse_any(&mut self) -> Result<Option<Query>, String> {
        let mut parts = Vec::new();
        loop {
            match self.tokens.peek() {
                None | Some(QueryToken::Close) => break,
                Some(QueryToken::Or) => {
                    self.tokens.next();
                }
                Some(QueryToken::And | QueryToken::Not | QueryToken::Open | QueryToken::Term(_)) => {
                    parts.extend(self.parse_all()?);
                }
            }
        }
        Ok(joined(parts, Query::Any))
    }

    fn parse_all(&mut self) -> Result<Option<Query>, String> {
        let mut parts: Vec<Query> = self.parse_one()?.into_iter().collect();
        while matches!(self.tokens.peek(), Some(QueryToken::And)) {
            self.tokens.next();
            parts.extend(self.parse_one()?);
        }
        Ok(joined(parts, Query::All))
    }

    fn parse_one(&mut self) -> Result<Option<Query>, String> {
        let mut negated = false;
        while matches!(self.tokens.peek(), Some(QueryToken::Not)) {
            self.tokens.next();
            negated = !negated;
        }
        let inner = match self.tokens.peek() {
            Some(QueryToken::Open) => {
                self.tokens.next();
                self.depth += 1;
                if self.depth > MAX_QUERY_DEPTH {
                    return Err(format!("`query` nests more than {MAX_QUERY_DEPTH} deep"));
                }
                let inside = self.parse_any()?;
                if !matches!(self.tokens.next(), Some(QueryToken::Close)) {
                    return Err("`query` has an unclosed `(`".into());
                }
                self.depth -= 1;
                inside
            }
            Some(QueryToken::Term(_)) => {
                self.tokens.next().and_then(|t| if let QueryToken::Term(t) = t { Some(Query::Term(t)) } else { None })
            }
            Some(QueryToken::And | QueryToken::Or | QueryToken::Not | QueryToken::Close) | None => None,
        };
        Ok(inner.map(|q| if negated { Query::Not(Box::new(q)) } else { q }))
    }
}

fn joined(mut parts: Vec<Query>, join: impl Fn(Vec<Query>) -> Query) -> Option<Query> {
    if parts.len() > 1 { Some(join(parts)) } else { parts.pop() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn item() -> SearchableTexts {
        SearchableTexts {
            name: "deploy_staging".into(),
            category: "team/ops".into(),
            title: "how to deploy".into(),
            description: "puts a build on staging".into(),
            tags: "release cloud".into(),
            body: "first build it. then push the build to the cloud.".into(),
        }
    }

    fn points(query: &str) -> Option<u32> {
        Query::parse(query).unwrap().score(&item())
    }

    #[test]
    fn plain_words_are_optional_and_operators_are_not() {
        assert!(points("deploy").is_some() && points("deploy nothing").is_some());
        assert!(points("deploy staging") > points("deploy nothing"));
        assert!(points("deploy AND staging").is_some() && points("deploy AND nothing").is_none());
        assert!(points("nothing OR (deploy AND NOT moon)").is_some());
        assert!(points("deploy -cloud").is_none() && points("deploy NOT cloud").is_none());
        assert!(points("-moon").is_some() && points("NOT NOT deploy").is_some());
        // Lowercase `and` and `or` are ordinary words.
        assert!(points("nothing and deploy").is_some() && points("or").is_none());
    }

    #[test]
    fn each_operator_in_capitals_is_one_and_each_lowercase_word_is_a_word() {
        assert!(points("deploy AND (nothing and staging)").is_some());
        assert!(points("(deploy OR moon) AND (moon or cloud)").is_some());
        assert!(points("deploy AND NOT moon not cloud").is_some());
        assert_eq!(points("DEPLOY AND Title:DEPLOY"), points("deploy AND title:deploy"));
    }

    #[test]
    fn item_with_more_of_the_words_ranks_higher_whatever_the_fields() {
        let numbered = |count: usize| (0..count).map(|n| format!("w{n:02}")).collect::<Vec<_>>().join(" ");
        let texts = |text: &str| SearchableTexts {
            name: text.into(),
            category: text.into(),
            title: text.into(),
            description: text.into(),
            tags: text.into(),
            body: format!("{text} ").repeat(4),
        };
        let query = Query::parse(&format!("{} z", numbered(31))).unwrap();
        for words in 1..31 {
            let strong = numbered(words);
            let weak = SearchableTexts { body: format!("{strong} z"), ..SearchableTexts::default() };
            assert!(query.score(&weak) > query.score(&texts(&strong)), "{words}");
        }
    }

    #[test]
    fn phrases_wildcards_and_fields() {
        assert!(points("\"push the  build\"").is_some() && points("\"build the push\"").is_none());
        assert!(
            points("rel*").is_some()
                && points("*ease").is_some()
                && points("cl?ud").is_some()
                && points("clo?").is_none()
        );
        assert!(points("tags:cloud").is_some() && points("title:cloud").is_none());
        assert!(points("title:\"how to\" AND category:ops").is_some());
        assert!(points("id:deploy_staging") > points("id:deploy"));
        assert!(points("name:deploy*").is_some());
    }

    #[test]
    fn invalid_queries_return_messages() {
        for (query, message) in [
            ("", "no search word"),
            ("()", "no search word"),
            ("AND", "no search word"),
            ("-", "no search word"),
            ("\"open", "an unclosed quote"),
            ("(a", "an unclosed `(`"),
            ("a)", "an unmatched `)`"),
            ("colour:red", "unknown field `colour`; expected one of name"),
        ] {
            assert!(Query::parse(query).unwrap_err().contains(message), "{query}");
        }
        assert!(Query::parse(&"(".repeat(100_000)).is_err());
        assert!(Query::parse(&"a ".repeat(100)).is_err());
        assert!(Query::parse(&"- ".repeat(100_000)).is_err());
        assert!(points("* ? c++").is_some());
    }
}
