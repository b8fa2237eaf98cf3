//! The arguments of the primaries, parsed into types. The gate and the dispatcher use this parser, so that the call
//! that is checked is the call that is executed. An unknown key or a wrong type is an error whose message tells the
//! model how to fix the call.

use rye_grammar::ItemId;
use serde_json::{Map, Value};

use super::{ItemType, Primary};

/// The reason why arguments are invalid, as a sentence for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidArguments(pub String);

/// The arguments of `rye_execute`.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecuteRequest {
    pub item_type: ItemType,
    pub item_id: ItemId,
    /// The parameters of the call, as an object; empty if they are left out.
    pub parameters: Map<String, Value>,
    pub is_async: bool,
}

/// The arguments of `rye_fetch`: exactly one of these forms.
#[derive(Debug, Clone, PartialEq)]
pub enum FetchRequest {
    /// Reads an item's body. `offset` and `limit` are in bytes.
    Item { item_type: ItemType, item_id: ItemId, offset: u64, limit: Option<u64> },
    /// Reads the `SKILL.md` of a skill, or the file at `path` in its folder. `offset` and `limit` are in bytes.
    Skill { skill: ItemId, path: Option<String>, offset: u64, limit: Option<u64> },
    /// Searches items. `limit` is the maximum number of hits. `scope` is a pattern that the dotted ids of the hits
    /// match.
    Query { item_type: ItemType, query: String, scope: Option<String>, limit: Option<u64> },
    /// Reads a page of a stored result of this thread. `offset` and `limit` are in bytes.
    Object { sha256: String, offset: u64, limit: Option<u64> },
}

/// The arguments of `rye_sign`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignRequest {
    pub item_type: ItemType,
    pub item_id: ItemId,
}

impl ExecuteRequest {
    pub fn read(arguments: &Value) -> Result<Self, InvalidArguments> {
        let a = Arguments::parse(arguments, Primary::Execute, &["item_type", "item_id", "parameters", "async"])?;
        Ok(Self {
            item_type: a.item_type()?,
            item_id: a.item_id()?,
            parameters: match a.value("parameters") {
                None => Map::new(),
                Some(Value::Object(map)) => map.clone(),
                Some(other) => return Err(a.wrong_type("parameters", "an object", other)),
            },
            is_async: match a.value("async") {
                None => false,
                Some(Value::Bool(b)) => *b,
                Some(other) => return Err(a.wrong_type("async", "a boolean", other)),
            },
        })
    }
}

impl FetchRequest {
    pub fn read(arguments: &Value) -> Result<Self, InvalidArguments> {
        const KEYS: [&str; 8] = ["item_type", "item_id", "path", "query", "scope", "object", "offset", "limit"];
        let a = Arguments::parse(arguments, Primary::Fetch, &KEYS)?;
        let given: Vec<&str> = ["item_id", "query", "object"].into_iter().filter(|k| a.value(k).is_some()).collect();
        match given.as_slice() {
            ["item_id"] if a.text("item_type")?.as_deref() == Some(ItemType::Skill.as_str()) => {
                a.reject_key("scope", "item_id")?;
                Ok(Self::Skill {
                    skill: a.item_id()?,
                    path: a.text("path")?,
                    offset: a.number("offset")?.unwrap_or(0),
                    limit: a.positive("limit")?,
                })
            }
            ["item_id"] => {
                a.reject_key("scope", "item_id")?;
                if a.value("path").is_some() {
                    return Err(InvalidArguments("rye_fetch: `path` is only for skills".into()));
                }
                Ok(Self::Item {
                    item_type: a.item_type()?,
                    item_id: a.item_id()?,
                    offset: a.number("offset")?.unwrap_or(0),
                    limit: a.positive("limit")?,
                })
            }
            ["query"] => {
                a.reject_key("offset", "query")?;
                a.reject_key("path", "query")?;
                let query = a.text("query")?.unwrap_or_default();
                if query.trim().is_empty() {
                    return Err(InvalidArguments("rye_fetch: `query` is empty".into()));
                }
                Ok(Self::Query {
                    item_type: a.item_type()?,
                    query,
                    scope: a.text("scope")?,
                    limit: a.positive("limit")?,
                })
            }
            ["object"] => {
                a.reject_key("scope", "object")?;
                a.reject_key("path", "object")?;
                let sha256 = a.text("object")?.unwrap_or_default();
                let is_hash = sha256.len() == 64 && sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
                if !is_hash {
                    return Err(InvalidArguments(
                        "rye_fetch: `object` must be the 64 hex digits of a stored result".into(),
                    ));
                }
                Ok(Self::Object { sha256, offset: a.number("offset")?.unwrap_or(0), limit: a.positive("limit")? })
            }
            [] => Err(InvalidArguments("rye_fetch: give one of `item_id`, `query` or `object`".into())),
            more => Err(InvalidArguments(format!(
                "rye_fetch: give one of `item_id`, `query` or `object`, not {}",
                more.join(" and ")
            ))),
        }
    }
}

impl SignRequest {
    pub fn read(arguments: &Value) -> Result<Self, InvalidArguments> {
        let a = Arguments::parse(arguments, Primary::Sign, &["item_type", "item_id"])?;
        Ok(Self { item_type: a.item_type()?, item_id: a.item_id()? })
    }
}

/// The arguments of a call. All keys are known. An argument with the value null counts as left out.
struct Arguments<'a> {
    map: &'a Map<String, Value>,
    tool: &'static str,
}

impl<'a> Arguments<'a> {
    fn parse(value: &'a Value, primary: Primary, keys: &[&str]) -> Result<Self, InvalidArguments> {
        let tool = primary.tool_name();
        let Value::Object(map) = value else {
            return Err(InvalidArguments(format!("{tool}: the arguments must be an object")));
        };
        if let Some(unknown) = map.keys().find(|k| !keys.contains(&k.as_str())) {
            return Err(InvalidArguments(format!(
                "{tool}: unknown key `{}`; expected one of {}",
                shorten(unknown),
                keys.join(", ")
            )));
        }
        Ok(Self { map, tool })
    }

    fn value(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|v| !v.is_null())
    }

    fn item_type(&self) -> Result<ItemType, InvalidArguments> {
        let text = self.text("item_type")?.ok_or_else(|| self.missing("item_type"))?;
        ItemType::parse(&text).filter(|kind| *kind != ItemType::Skill).ok_or_else(|| {
            InvalidArguments(format!(
                "{}: `item_type` is tool, directive or knowledge, not `{}`",
                self.tool,
                shorten(&text)
            ))
        })
    }

    fn item_id(&self) -> Result<ItemId, InvalidArguments> {
        let text = self.text("item_id")?.ok_or_else(|| self.missing("item_id"))?;
        ItemId::parse(&text).map_err(|e| InvalidArguments(format!("{}: {}", self.tool, shorten(&e.reason))))
    }

    fn text(&self, key: &str) -> Result<Option<String>, InvalidArguments> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::String(s)) => Ok(Some(s.clone())),
            Some(other) => Err(self.wrong_type(key, "a string", other)),
        }
    }

    fn number(&self, key: &str) -> Result<Option<u64>, InvalidArguments> {
        match self.value(key) {
            None => Ok(None),
            Some(v) => v.as_u64().map(Some).ok_or_else(|| self.wrong_type(key, "a whole number", v)),
        }
    }

    fn positive(&self, key: &str) -> Result<Option<u64>, InvalidArguments> {
        match self.number(key)? {
            Some(0) => Err(InvalidArguments(format!("{}: `{key}` must be at least 1", self.tool))),
            other => Ok(other),
        }
    }

    fn reject_key(&self, key: &str, with: &str) -> Result<(), InvalidArguments> {
        if self.value(key).is_none() {
            return Ok(());
        }
        Err(InvalidArguments(format!("{}: `{key}` cannot be combined with `{with}`", self.tool)))
    }

    fn missing(&self, key: &str) -> InvalidArguments {
        InvalidArguments(format!("{}: `{key}` is missing", self.tool))
    }

    fn wrong_type(&self, key: &str, wanted: &str, found: &Value) -> InvalidArguments {
        InvalidArguments(format!("{}: `{key}` must be {wanted}, not `{}`", self.tool, shorten(&found.to_string())))
    }
}

/// Shortens a value that the model wrote, to quote it in an error.
fn shorten(text: &str) -> String {
    const MAX_CHARS: usize = 80;
    if text.chars().count() <= MAX_CHARS {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(MAX_CHARS).collect();
    short.push('…');
    short
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    fn execute(v: &Value) -> String {
        ExecuteRequest::read(v).unwrap_err().0
    }

    fn fetch(v: &Value) -> String {
        FetchRequest::read(v).unwrap_err().0
    }

    #[test]
    fn execute_rejects_unknown_keys_and_wrong_types() {
        let ok =
            ExecuteRequest::read(&json!({"item_type":"tool","item_id":"rye/bash/bash","parameters":{"item_id":"x"}}));
        let ok = ok.unwrap();
        assert_eq!((ok.item_type, ok.item_id.as_str(), ok.is_async), (ItemType::Tool, "rye/bash/bash", false));
        assert_eq!(
            execute(&json!({"item_type":"tool","item_id":"a","itemid":"b"})),
            "rye_execute: unknown key `itemid`; expected one of item_type, item_id, parameters, async"
        );
        assert_eq!(
            execute(&json!({"item_type":"tool","item_id":"a/../b"})),
            "rye_execute: `a/../b` points outside its space: `..` is not a segment of an item id"
        );
        assert_eq!(
            execute(&json!({"item_type":"config","item_id":"a"})),
            "rye_execute: `item_type` is tool, directive or knowledge, not `config`"
        );
        assert_eq!(execute(&json!({"item_type":"tool"})), "rye_execute: `item_id` is missing");
        assert_eq!(
            execute(&json!({"item_type":"tool","item_id":"a","parameters":"{}"})),
            "rye_execute: `parameters` must be an object, not `\"{}\"`"
        );
        assert_eq!(execute(&json!([])), "rye_execute: the arguments must be an object");
    }

    #[test]
    fn fetch_accepts_exactly_one_of_three_forms() {
        let hash = "0".repeat(64);
        assert!(matches!(
            FetchRequest::read(&json!({"item_type":"knowledge","item_id":"a"})),
            Ok(FetchRequest::Item { .. })
        ));
        assert!(matches!(
            FetchRequest::read(&json!({"item_type":"knowledge","query":"a","limit":3})),
            Ok(FetchRequest::Query { .. })
        ));
        assert!(matches!(
            FetchRequest::read(&json!({"object":hash,"offset":9})),
            Ok(FetchRequest::Object { offset: 9, .. })
        ));
        assert_eq!(fetch(&json!({"item_type":"tool"})), "rye_fetch: give one of `item_id`, `query` or `object`");
        assert_eq!(
            fetch(&json!({"item_id":"a","query":"b"})),
            "rye_fetch: give one of `item_id`, `query` or `object`, not item_id and query"
        );
        assert_eq!(fetch(&json!({"query":"a"})), "rye_fetch: `item_type` is missing");
        assert_eq!(
            fetch(&json!({"object":"../../etc/passwd"})),
            "rye_fetch: `object` must be the 64 hex digits of a stored result"
        );
        assert_eq!(fetch(&json!({"object":hash,"limit":0})), "rye_fetch: `limit` must be at least 1");
        assert_eq!(fetch(&json!({"object":hash,"offset":-1})), "rye_fetch: `offset` must be a whole number, not `-1`");
        assert_eq!(fetch(&json!({"item_type":"tool","query":"  "})), "rye_fetch: `query` is empty");
    }

    #[test]
    fn long_values_are_shortened_in_errors() {
        let long = "x".repeat(10_000);
        assert!(execute(&json!({ long.clone(): 1 })).len() < 300);
        assert!(execute(&json!({"item_type": "tool", "item_id": format!("{long}!{long}")})).len() < 300);
    }
}
