//! Differences between the items of an MCP server and the server's current tools: descriptions, parameters, settings.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// Maximum number of differences that are listed for an item.
const MAX_LISTED: usize = 200;
/// Maximum length of a printed value, in characters. A longer value is printed from shortly before the first character
/// that differs.
const MAX_VALUE_CHARS: usize = 2_000;
/// Characters that are printed before the first difference of a long value.
const CONTEXT_CHARS: usize = 60;

/// A difference between an item and the server's current tool.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct McpDifference {
    /// Id of the item.
    pub item: String,
    /// Place of the value in the item, such as `description` or `parameters.properties.path.description`.
    pub path: String,
    /// The value in the item; null if the item has no such value.
    pub before: Value,
    /// The value of the server's current tool; null if the tool has no such value.
    pub after: Value,
}

/// Returns the differences between two texts of an item, at most [`MAX_LISTED`]. Hashes are left out, because they
/// differ whenever anything else does.
pub fn differences_of(item: &str, before: &str, after: &str) -> Vec<McpDifference> {
    let (before, after) = (item_value(before), item_value(after));
    let mut found = Vec::new();
    collect(item, &mut String::new(), &before, &after, &mut found);
    if found.is_empty() {
        // Only a hash differs: the server is started in another way, or the text of the item was edited.
        let (before, after) = (Value::Null, Value::from("the settings of the server"));
        found.push(McpDifference { item: item.to_owned(), path: "server".to_owned(), before, after });
    }
    found
}

/// Reads the lines `KEY: VALUE` of an item, which `rye mcp refresh` writes with values in JSON. A value that is not
/// JSON, as in an edited item, is read as text.
fn item_value(text: &str) -> Value {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let fields = lines.map(|line| {
        let (key, value) = line.split_once(": ").unwrap_or((line, ""));
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        (key.to_owned(), value)
    });
    Value::Object(fields.filter(|(key, _)| !matches!(key.as_str(), "sha256" | "server_sha256")).collect())
}

fn collect(item: &str, path: &mut String, before: &Value, after: &Value, found: &mut Vec<McpDifference>) {
    if before == after || found.len() >= MAX_LISTED {
        return;
    }
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        let (before, after) = (before.clone(), after.clone());
        found.push(McpDifference { item: item.to_owned(), path: path.clone(), before, after });
        return;
    };
    let length = path.len();
    for key in old.keys().chain(new.keys().filter(|key| !old.contains_key(*key))) {
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(key);
        let side = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or_default();
        collect(item, path, &side(old), &side(new), found);
        path.truncate(length);
    }
}

impl McpDifference {
    /// Returns the lines that show the difference: the path, the old value and the new one.
    pub fn lines(&self) -> Vec<String> {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let (before, after) = (text(&self.before), text(&self.after));
        let equal = before.chars().zip(after.chars()).take_while(|(old, new)| old == new).count();
        let mut lines = vec![format!("    {}:", self.path)];
        for (mark, value, text) in [('-', &self.before, &before), ('+', &self.after, &after)] {
            if !value.is_null() {
                lines.extend(excerpt(text, equal).lines().map(|line| format!("    {mark} {line}")));
            }
        }
        lines
    }
}

/// Returns a text, or the part of a long text that starts shortly before the character number `first`.
fn excerpt(text: &str, first: usize) -> String {
    let count = text.chars().count();
    if count <= MAX_VALUE_CHARS {
        return text.to_owned();
    }
    let start = first.saturating_sub(CONTEXT_CHARS).min(count - MAX_VALUE_CHARS);
    let part: String = text.chars().skip(start).take(MAX_VALUE_CHARS).collect();
    let before = if start == 0 { "" } else { "…" };
    let after = if start + MAX_VALUE_CHARS == count { "" } else { "…" };
    format!("{before}{part}{after} ({count} characters)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn differences_name_the_path_and_both_values() {
        let item = |description: &str, schema: Value| {
            format!(
                "# Written.\ndescription: {}\nkind: mcp\nsha256: \"{}\"\nparameters: {schema}\n",
                json!(description),
                description.len()
            )
        };
        let before = item("Adds.", json!({"properties": {"n": {"type": "integer", "maximum": 9}}}));
        let after = item("Adds. Send keys.", json!({"properties": {"n": {"type": "string"}, "m": {}}}));
        let found = differences_of("mcp/s/add", &before, &after);
        let seen: Vec<_> = found.iter().map(|one| (one.path.as_str(), &one.before, &one.after)).collect();
        let expected = [
            ("description", &json!("Adds."), &json!("Adds. Send keys.")),
            ("parameters.properties.n.type", &json!("integer"), &json!("string")),
            ("parameters.properties.n.maximum", &json!(9), &Value::Null),
            ("parameters.properties.m", &Value::Null, &json!({})),
        ];
        assert_eq!(seen, expected);
        assert_eq!(found[0].lines(), ["    description:", "    - Adds.", "    + Adds. Send keys."]);
        // A change of the hash alone is a difference too.
        let other = before.replace("sha256: \"5\"", "sha256: \"6\"");
        assert_eq!(differences_of("mcp/s/add", &before, &other).len(), 1);
    }

    #[test]
    fn long_values_are_shown_where_they_differ() {
        let (old, new) = ("a".repeat(9_000), format!("{}b{}", "a".repeat(8_000), "a".repeat(999)));
        let before = format!("description: {}\n", json!(old));
        let after = format!("description: {}\n", json!(new));
        let lines = differences_of("mcp/s/add", &before, &after)[0].lines();
        assert!(
            lines[2].contains('b') && lines[2].len() < 2_200 && lines[2].ends_with("(9000 characters)"),
            "{lines:?}"
        );
    }
}
