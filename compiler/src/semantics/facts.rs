//! The facts that a condition or a template can read: known values, and paths that are still unknown (`language.md` 4).

use rye_grammar::condition::{Path, Segment};
use serde_json::{Map, Value};

/// The facts of one evaluation. Some paths are unknown in a check and in a plan; in a run, all facts are known.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    known: Map<String, Value>,
    unknown: Vec<UnknownPath>,
}

/// The result of looking up the value of a path.
#[derive(Debug, Clone, PartialEq)]
pub enum Lookup<'a> {
    Known(&'a Value),
    /// The path has no value.
    Absent,
    /// The value is not known yet. The list holds the declared paths that make this path unknown, in order of
    /// declaration.
    Unknown(Vec<&'a str>),
}

#[derive(Debug, Clone)]
struct UnknownPath {
    declared: String,
    segments: Vec<Segment>,
}

impl Facts {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn from_map(known: Map<String, Value>) -> Self {
        Self { known, unknown: Vec::new() }
    }

    /// Sets a value at a dotted path of names. Missing objects are created, and other values on the path are replaced
    /// by objects.
    pub fn set(&mut self, path: &str, value: Value) {
        let mut names: Vec<&str> = path.split('.').collect();
        let Some(last) = names.pop() else { return };
        let mut map = &mut self.known;
        for name in names {
            let slot = map.entry(name).or_insert_with(|| Value::Object(Map::new()));
            if !slot.is_object() {
                *slot = Value::Object(Map::new());
            }
            let Value::Object(next) = slot else { return };
            map = next;
        }
        map.insert(last.to_owned(), value);
    }

    /// Declares a dotted path unknown, even if a value is known there.
    pub fn declare_unknown(&mut self, path: &str) {
        if self.unknown.iter().all(|u| u.declared != path) {
            self.unknown.push(UnknownPath {
                declared: path.to_owned(),
                segments: path.split('.').map(parse_segment).collect(),
            });
        }
    }

    /// Returns all known facts as one object.
    pub fn known(&self) -> &Map<String, Value> {
        &self.known
    }

    /// Looks up the value at a path. The result is unknown if [`Self::declare_unknown`] was called for this path, for a
    /// path below this path, or for a path above this path.
    pub fn lookup(&self, path: &Path) -> Lookup<'_> {
        if !self.unknown.is_empty() {
            let hit: Vec<&str> = self
                .unknown
                .iter()
                .filter(|u| path.segments.iter().zip(&u.segments).all(|(a, b)| a == b))
                .map(|u| u.declared.as_str())
                .collect();
            if !hit.is_empty() {
                return Lookup::Unknown(hit);
            }
        }
        let mut segments = path.segments.iter();
        let Some(mut value) = segments.next().and_then(|first| key_of(&self.known, first)) else {
            return Lookup::Absent;
        };
        for segment in segments {
            let next = match value {
                Value::Object(map) => key_of(map, segment),
                Value::Array(items) => match segment {
                    Segment::Number(n) => usize::try_from(*n).ok().and_then(|n| items.get(n)),
                    Segment::Name(_) => None,
                },
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
            };
            let Some(next) = next else { return Lookup::Absent };
            value = next;
        }
        Lookup::Known(value)
    }
}

/// Maximum number of keys of an object for which a lookup compares the keys one by one. For few keys, this is faster
/// than a hash.
const MAX_COMPARED_KEYS: usize = 8;

fn key_of<'a>(map: &'a Map<String, Value>, segment: &Segment) -> Option<&'a Value> {
    match segment {
        Segment::Name(name) if map.len() <= MAX_COMPARED_KEYS => {
            map.iter().find(|(key, _)| *key == name).map(|(_, value)| value)
        }
        Segment::Name(name) => map.get(name),
        Segment::Number(n) => map.get(&n.to_string()),
    }
}

/// Parses one segment of a valid path: digits without a leading zero are a number, any other text is a name.
pub(crate) fn parse_segment(text: &str) -> Segment {
    let numeric =
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    match text.parse() {
        Ok(n) if numeric => Segment::Number(n),
        _ => Segment::Name(text.to_owned()),
    }
}

/// Returns the main name of the fact at a path. `cost.current` and `loop_count` are aliases of other facts.
pub(super) fn first_name(path: &str) -> &str {
    match path {
        "cost.current" => "cost.spend",
        "loop_count" => "cost.turns",
        _ => path,
    }
}
