//! Literal arguments of calls in prose: `(path="a", n=3)`, `({"path": "a"})` and `parameters={"path": "a"}`, in the
//! spellings of Python and JSON. Values that are not literals, such as placeholders, are unknown.

use serde_json::{Map, Value};

/// Maximum nesting of literals; deeper values are unknown.
const MAX_DEPTH: usize = 16;

/// The arguments of one call, as far as its text states them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallArguments {
    pub list: Vec<CallArgument>,
    /// True if the text lists every argument; false if it contains a `…` that stands for further arguments.
    pub complete: bool,
}

/// An argument of a call, with the byte offsets of its name and value from the opening parenthesis.
#[derive(Debug, Clone, PartialEq)]
pub struct CallArgument {
    pub name: String,
    pub name_at: usize,
    pub value: ArgumentValue,
    pub at: usize,
    pub len: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ArgumentValue {
    Literal(Value),
    /// A mapping with an [`ArgumentValue`] for each key.
    Mapping(CallArguments),
    Open,
}

impl ArgumentValue {
    /// Returns the value; `None` if a part of the value is known only at run time.
    pub fn literal(&self) -> Option<Value> {
        match self {
            Self::Literal(value) => Some(value.clone()),
            Self::Mapping(inner) => inner.literal(),
            Self::Open => None,
        }
    }
}

impl CallArguments {
    /// Reads the arguments of a call; `text` starts at the opening parenthesis. Returns `None` if an argument has no
    /// name, or if the arguments cannot be read.
    pub fn read(text: &str) -> Option<Self> {
        let mut reader = ArgumentReader { text, at: 0 };
        reader.take("(").then_some(())?;
        reader.skip_space();
        if !reader.rest().starts_with('{') {
            return reader.arguments(')', 0);
        }
        match reader.value(0) {
            ArgumentValue::Mapping(inner) => Some(inner),
            ArgumentValue::Literal(_) | ArgumentValue::Open => None,
        }
    }

    /// Returns the first argument that has one of these names; `None` if no argument has one of them.
    pub fn named(&self, names: &[&str]) -> Option<&CallArgument> {
        self.list.iter().find(|argument| names.contains(&argument.name.as_str()))
    }

    fn literal(&self) -> Option<Value> {
        if !self.complete {
            return None;
        }
        let entry = |argument: &CallArgument| Some((argument.name.clone(), argument.value.literal()?));
        self.list.iter().map(entry).collect::<Option<Map<String, Value>>>().map(Value::Object)
    }
}

/// Returns the place of the first argument of a call if the argument is a literal without a name: its offset from the
/// opening parenthesis and its length, in bytes. `None` for any other argument.
pub fn unnamed_argument(text: &str) -> Option<(usize, usize)> {
    let mut reader = ArgumentReader { text, at: 0 };
    reader.take("(").then_some(())?;
    reader.skip_space();
    let at = reader.at;
    if reader.rest().starts_with(['"', '\'']) { reader.string().map(drop) } else { reader.literal(0).map(drop) }?;
    let len = reader.at - at;
    reader.skip_space();
    // A single mapping without a name holds all arguments of the call: `({"path": "a"})`.
    let is_mapping = text.get(at..).is_some_and(|rest| rest.starts_with('{'));
    let follows = if is_mapping { reader.rest().starts_with(',') } else { reader.rest().starts_with([',', ')']) };
    follows.then_some((at, len))
}

/// A reader over the text of one call.
struct ArgumentReader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> ArgumentReader<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.rest().starts_with(word);
        if found {
            self.at += word.len();
        }
        found
    }

    /// Reads named arguments up to and including `end`, such as `a: 1, b = 2)`. `None` if the text has another form,
    /// for example if an argument has no name.
    fn arguments(&mut self, end: char, depth: usize) -> Option<CallArguments> {
        let mut read = CallArguments { list: Vec::new(), complete: true };
        loop {
            self.skip_space();
            if self.rest().starts_with(end) {
                self.at += end.len_utf8();
                return Some(read);
            }
            if ["...", "…"].iter().any(|word| self.take(word)) {
                read.complete = false;
            } else {
                let (name, name_at) = self.name()?;
                self.skip_space();
                if !(self.take(":") || self.take("=")) {
                    return None;
                }
                self.skip_space();
                let at = self.at;
                let value = self.value(depth + 1);
                read.list.push(CallArgument { name, name_at, value, at, len: self.at - at });
            }
            self.skip_space();
            if !self.take(",") && !self.rest().starts_with(end) {
                return None;
            }
        }
    }

    fn name(&mut self) -> Option<(String, usize)> {
        if self.rest().starts_with(['"', '\'']) {
            let at = self.at + 1;
            return self.string().map(|name| (name, at));
        }
        let (at, rest) = (self.at, self.rest());
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).filter(|name| !name.is_empty()).map(|name| (name.to_owned(), at))
    }

    fn value(&mut self, depth: usize) -> ArgumentValue {
        let start = self.at;
        let read = if depth > MAX_DEPTH { None } else { self.literal(depth) };
        self.skip_space();
        // A literal must be the whole value: if other text follows, the value is not literal.
        let ends = self.rest().is_empty() || self.rest().starts_with([',', ')', ']', '}']);
        read.filter(|_| ends).unwrap_or_else(|| {
            self.at = start;
            self.skip_open();
            ArgumentValue::Open
        })
    }

    fn literal(&mut self, depth: usize) -> Option<ArgumentValue> {
        let rest = self.rest();
        if rest.starts_with(['"', '\'']) {
            return self.string().filter(|text| is_literal_text(text)).map(|text| ArgumentValue::Literal(text.into()));
        }
        if rest.starts_with('{') {
            self.at += 1;
            return self.arguments('}', depth).map(ArgumentValue::Mapping);
        }
        if rest.starts_with('[') {
            self.at += 1;
            return self.list(depth).map(ArgumentValue::Literal);
        }
        let end =
            rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+'))).unwrap_or(rest.len());
        let word = rest.get(..end)?;
        let value = match word {
            "true" | "True" => Value::Bool(true),
            "false" | "False" => Value::Bool(false),
            "null" | "None" => Value::Null,
            _ => serde_json::from_str(word).ok().filter(Value::is_number)?,
        };
        self.at += end;
        Some(ArgumentValue::Literal(value))
    }

    fn list(&mut self, depth: usize) -> Option<Value> {
        let mut items = Vec::new();
        loop {
            self.skip_space();
            if self.take("]") {
                return Some(Value::Array(items));
            }
            items.push(self.value(depth + 1).literal()?);
            self.skip_space();
            if !self.take(",") && !self.rest().starts_with(']') {
                return None;
            }
        }
    }

    /// Reads a text in quotes, up to and including the closing quote; `None` if it is never closed. Unknown escapes
    /// stay as written.
    fn string(&mut self) -> Option<String> {
        let rest = self.rest();
        let quote = rest.chars().next()?;
        let (mut text, mut escaped) = (String::new(), false);
        for (at, c) in rest.char_indices().skip(1) {
            if escaped {
                match c {
                    'n' => text.push('\n'),
                    't' => text.push('\t'),
                    '"' | '\'' | '\\' | '/' => text.push(c),
                    other => text.extend(['\\', other]),
                }
                escaped = false;
            } else if c == '\\' {
                escaped = true;
            } else if c == quote {
                self.at += at + c.len_utf8();
                return Some(text);
            } else {
                text.push(c);
            }
        }
        None
    }

    /// Skips a value that is not a literal, up to the comma or bracket that ends it.
    fn skip_open(&mut self) {
        let (mut depth, mut quote) = (0_usize, None);
        for (at, c) in self.rest().char_indices() {
            match (quote, c) {
                (Some(open), c) if open == c => quote = None,
                (None, '"') => quote = Some(c),
                (None, '(' | '[' | '{') => depth += 1,
                (None, ',') if depth == 0 => return self.at += at,
                (None, ')' | ']' | '}') => match depth.checked_sub(1) {
                    Some(outer) => depth = outer,
                    None => return self.at += at,
                },
                (Some(_) | None, _) => {}
            }
        }
        self.at = self.text.len();
    }
}

/// Returns false for a text that stands in for another text: a placeholder, `<path>` or an ellipsis.
fn is_literal_text(text: &str) -> bool {
    let marks = ["{input:", "${", "{{", "…", "..."];
    !(marks.iter().any(|mark| text.contains(mark)) || (text.contains('<') && text.contains('>')))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Vec<(String, Option<Value>)> {
        let read = CallArguments::read(text).unwrap();
        read.list.iter().map(|argument| (argument.name.clone(), argument.value.literal())).collect()
    }

    #[test]
    fn literals_are_read_in_both_spellings() {
        let all = [("a".to_owned(), Some(json!("x, y"))), ("n".to_owned(), Some(json!([1, true, null])))];
        assert_eq!(read(r#"(a="x, y", n=[1, True, None])"#), all);
        assert_eq!(read(r#"({"a": "x, y", 'n': [1, true, null,]}) and more"#), all);
        assert_eq!(read(r#"(p={"a": {"b": -1.5}})"#), [("p".to_owned(), Some(json!({"a": {"b": -1.5}})))]);
        assert_eq!(read("()"), []);
    }

    #[test]
    fn other_values_stay_open() {
        let open = |text: &str| read(text).into_iter().map(|(_, value)| value).collect::<Vec<_>>();
        for value in
            ["path", "{input:x}", "\"{input:x}\"", "\"<path>\"", "f(1, 2)", "the \"one, two\"", "[x]", "1 of 2"]
        {
            assert_eq!(open(&format!("(a={value}, b=2)")), [None, Some(json!(2))], "{value}");
        }
        assert!(!CallArguments::read("(a=1, …)").unwrap().complete);
        for text in ["(the path)", "(3)", "(\"x\", a=1)", "(a 1)", "(a=\"x", "x"] {
            assert_eq!(CallArguments::read(text).map(|read| read.list.len()), None, "{text}");
        }
    }

    #[test]
    fn only_literals_are_arguments_without_a_name() {
        for (text, at) in [
            ("(\"tool\", \"t\", {})", Some((1, 6))),
            ("( 'a.txt' )", Some((2, 7))),
            ("(\"{input:f}\")", Some((1, 11))),
            ("(3, 4)", Some((1, 1))),
            ("({\"a\": 1}, 2)", Some((1, 8))),
            ("({\"a\": 1})", None),
            ("(a=\"x\")", None),
            ("()", None),
            ("(the \"tool\")", None),
            ("(3 calls)", None),
            ("(\"quoted\" words)", None),
            ("\"x\")", None),
        ] {
            assert_eq!(unnamed_argument(text), at, "{text}");
        }
    }

    #[test]
    fn deep_nesting_is_bounded() {
        let deep = format!("(a={}1{})", "[".repeat(5_000), "]".repeat(5_000));
        assert_eq!(read(&deep), [("a".to_owned(), None)]);
    }
}
