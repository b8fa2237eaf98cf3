//! Converts hooks in XML to the data nodes of hooks in YAML, so that one reader handles both.
//!
//! The conversion checks only the syntax: unknown names become keys with their spans, and the compiler reports them.
//! Attributes are text. If the YAML form of an attribute is a boolean, a number or a list, the text of the attribute is
//! parsed as that type.

use serde_json::{Number, Value};

use crate::Parsed;
use crate::data::{Entry, Kind, Node};
use crate::error::{SyntaxError, SyntaxKind};
use crate::span::{Span, Spanned};
use crate::text::shorten;
use crate::xml::{Attribute, Element, XmlNode};

/// Converts a `<hooks>` element to a list of hook mappings with the keys of the YAML form (`language.md`, Hooks).
///
/// The `value` of a condition and the text of a `<param>` are read as JSON if they are valid JSON (`3`, `true`,
/// `["a"]`, `"3"`), and otherwise as text. The pattern of the operator `matches` is always text.
pub fn from_xml(hooks: &Element) -> Parsed<Node> {
    let mut reader = XmlHookReader { errors: Vec::new() };
    reader.reject_text(hooks);
    let mut items = Vec::new();
    for child in hooks.elements() {
        if child.name.node == "hook" {
            items.push(reader.hook(child));
        } else {
            let help = "write `<hook id=\"…\" event=\"…\">`";
            reader.syntax_error(
                child.name.span,
                format!("`<{}>` is not a hook", name(child)),
                "expected `<hook>`",
                help,
            );
        }
    }
    for attribute in &hooks.attributes {
        let message = format!("`<hooks>` has no attribute `{}`", shorten(&attribute.name.node));
        reader.syntax_error(attribute.name.span, message, "unknown attribute", "put the attribute on a `<hook>`");
    }
    Parsed { tree: Node::new(Kind::List(items), hooks.span), errors: reader.errors }
}

/// The type of an attribute or of an element's text.
#[derive(Clone, Copy)]
enum AttributeType {
    Text,
    Boolean,
    Number,
    /// Words separated by commas or spaces.
    Words,
    /// A JSON value if the text of the attribute is valid JSON, else the text itself.
    Json,
}

fn attribute_type(attribute: &str) -> AttributeType {
    match attribute {
        "wrap" | "enabled" | "display" | "is_error" => AttributeType::Boolean,
        "layer" | "n" | "delay_ms" => AttributeType::Number,
        "grants" | "kinds" => AttributeType::Words,
        "value" | "details" | "messages" => AttributeType::Json,
        _ => AttributeType::Text,
    }
}

/// Returns the field that the text of an action's element sets: the text of `<block>` sets `reason`. `None` for actions
/// without such a field.
fn text_field(action: &str) -> Option<&'static str> {
    match action {
        "transform" | "system_prompt" => Some("text"),
        "message" | "inject" | "modify" | "follow_up" => Some("content"),
        "replace" => Some("messages"),
        "drop" => Some("kinds"),
        "keep_last" => Some("n"),
        "block" => Some("reason"),
        "retry" => Some("delay_ms"),
        "terminate" | "fail" | "abort" => Some("error"),
        _ => None,
    }
}

struct XmlHookReader {
    errors: Vec<SyntaxError>,
}

impl XmlHookReader {
    fn syntax_error(&mut self, span: Span, message: String, label: &str, help: &str) {
        self.errors.push(SyntaxKind::Xml.error(span, message, label).with_help(help));
    }

    /// Parses the text of an attribute as a value of a type. If the text is not a value of the type, the result is a
    /// string, and the compiler reports the wrong type.
    fn parse_typed(&mut self, text: &Spanned<String>, r#type: AttributeType) -> Node {
        let word = text.node.trim();
        let kind = match r#type {
            AttributeType::Text => None,
            AttributeType::Boolean => match word {
                "true" => Some(Kind::Bool(true)),
                "false" => Some(Kind::Bool(false)),
                _ => None,
            },
            AttributeType::Number => serde_json::from_str::<Number>(word).ok().map(Kind::Number),
            AttributeType::Words => {
                let words = word.split([',', ' ', '\t', '\n', '\r']).filter(|w| !w.is_empty());
                Some(Kind::List(words.map(|w| Node::new(Kind::String(w.to_owned()), text.span)).collect()))
            }
            AttributeType::Json => serde_json::from_str::<Value>(word).ok().map(|value| {
                if is_inexact_integer(&value, word) {
                    let message = format!("the number `{}` is out of range", shorten(word));
                    let help = "whole numbers go from -9223372036854775808 to 18446744073709551615";
                    self.syntax_error(text.span, message, "out of range", help);
                }
                from_json(value, text.span)
            }),
        };
        Node::new(kind.unwrap_or_else(|| Kind::String(text.node.clone())), text.span)
    }

    /// Converts the attributes of an element to entries. The name of an attribute determines the type of its value.
    fn attributes(&mut self, element: &Element) -> Vec<Entry> {
        element
            .attributes
            .iter()
            .map(|a| entry_of_attribute(a, self.parse_typed(&a.value, attribute_type(&a.name.node))))
            .collect()
    }

    /// Reports text where only elements are allowed.
    fn reject_text(&mut self, element: &Element) {
        for child in &element.children {
            if let XmlNode::Text(text) = child
                && !text.node.trim().is_empty()
            {
                let span = element.text().span;
                let message = format!("text is not allowed in `<{}>`", name(element));
                let word = text.node.trim();
                let is_action =
                    element.name.node == "action" && word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
                let help = if is_action {
                    format!(
                        "the action is an element: write `<{}/>` with its attributes in place of `<action>`",
                        shorten(word)
                    )
                } else {
                    "put the text into the element that it belongs to".to_owned()
                };
                self.syntax_error(span, message, "this text is not inside a child element", &help);
                return;
            }
        }
    }

    fn hook(&mut self, hook: &Element) -> Node {
        self.reject_text(hook);
        let mut entries = self.attributes(hook);
        let mut actions: Vec<Entry> = Vec::new();
        let mut action_span: Option<Span> = None;
        for child in hook.elements() {
            let (key, value) = match child.name.node.as_str() {
                "condition" | "when" => ("condition", self.condition(child)),
                "description" => ("description", text(child)),
                "action" => {
                    action_span = Some(action_span.map_or(child.span, |s| s.join(child.span)));
                    let fields = self.action(child);
                    self.append_unique(&mut actions, fields);
                    continue;
                }
                _ => {
                    action_span = Some(action_span.map_or(child.span, |s| s.join(child.span)));
                    let fields = self.named_action(child);
                    self.append_unique(&mut actions, fields);
                    continue;
                }
            };
            let new = Entry { key: Spanned::new(key.to_owned(), child.name.span), value };
            self.append_unique(&mut entries, vec![new]);
        }
        if let Some(span) = action_span {
            let key = Spanned::new("action".to_owned(), span);
            self.append_unique(&mut entries, vec![Entry { key, value: Node::new(Kind::Map(actions), span) }]);
        }
        Node::new(Kind::Map(entries), hook.span)
    }

    /// Appends entries and reports repeated keys, because XML elements may repeat and mapping keys may not.
    fn append_unique(&mut self, into: &mut Vec<Entry>, new: Vec<Entry>) {
        for entry in new {
            if into.iter().any(|e| e.key.node == entry.key.node) {
                let message = format!("`{}` is given twice", shorten(&entry.key.node));
                self.syntax_error(entry.key.span, message, "second time", "keep one of the two values");
            } else {
                into.push(entry);
            }
        }
    }

    /// Reads a `<condition>`, which has the attributes `path`, `op` and `value`, or a text such as `a == 1`.
    fn condition(&mut self, element: &Element) -> Node {
        for child in element.elements() {
            let message = format!("`<{}>` is not allowed in a condition", name(child));
            let help = "write the condition on one line: `a == 1 && !(b contains \"x\")`";
            self.syntax_error(child.name.span, message, "only text or attributes are allowed here", help);
        }
        if element.attributes.is_empty() {
            return text(element);
        }
        self.reject_text(element);
        let pattern = matches!(element.attribute("op").map(|op| op.node.as_str()), Some("regex" | "matches"));
        let json = |a: &Attribute| a.name.node == "value" && !pattern;
        let field = |a| {
            entry_of_attribute(
                a,
                self.parse_typed(&a.value, if json(a) { AttributeType::Json } else { AttributeType::Text }),
            )
        };
        Node::new(Kind::Map(element.attributes.iter().map(field).collect()), element.span)
    }

    /// Reads `<action primary="" item_type="" item_id="" set_extends=""><param name="">…</param></action>`.
    fn action(&mut self, element: &Element) -> Vec<Entry> {
        self.reject_text(element);
        let mut fields = self.attributes(element);
        let mut params: Vec<Entry> = Vec::new();
        let mut params_at: Option<(Span, Span)> = None;
        for child in element.elements() {
            if child.name.node != "param" {
                let value = self.element_fields(child);
                self.append_unique(&mut fields, vec![Entry { key: child.name.clone(), value }]);
                continue;
            }
            let (_, whole) = params_at.unwrap_or((child.name.span, child.span));
            params_at = Some((child.name.span, whole.join(child.span)));
            if let Some(param) = self.param(child) {
                self.append_unique(&mut params, vec![param]);
            }
        }
        if let Some((key, whole)) = params_at {
            let value = Node::new(Kind::Map(params), whole);
            self.append_unique(&mut fields, vec![Entry { key: Spanned::new("params".to_owned(), key), value }]);
        }
        fields
    }

    fn param(&mut self, element: &Element) -> Option<Entry> {
        for child in element.elements() {
            let message = format!("`<{}>` is not allowed in a parameter", name(child));
            self.syntax_error(child.name.span, message, "a parameter contains text", "write lists and objects as JSON");
        }
        for other in element.attributes.iter().filter(|a| a.name.node != "name") {
            let message = format!("a parameter has no attribute `{}`", shorten(&other.name.node));
            self.syntax_error(other.name.span, message, "unknown attribute", "write `<param name=\"…\">value</param>`");
        }
        let Some(key) = element.attribute("name") else {
            let help = "write `<param name=\"…\">value</param>`";
            self.syntax_error(element.name.span, "a parameter needs a `name`".into(), "the name is missing", help);
            return None;
        };
        Some(Entry { key: key.clone(), value: self.parse_typed(&element.text(), AttributeType::Json) })
    }

    /// Reads an action whose element has the name of the action or primary, such as `<block reason=""/>`,
    /// `<set_extends>id</set_extends>` or `<fetch item_type="" item_id=""/>`.
    fn named_action(&mut self, element: &Element) -> Vec<Entry> {
        let key = element.name.clone();
        match key.node.as_str() {
            "fetch" | "execute" | "sign" | "load" | "search" => {
                let primary = Node::new(Kind::String(key.node.clone()), key.span);
                let mut fields = vec![Entry { key: Spanned::new("primary".to_owned(), key.span), value: primary }];
                let rest = self.action(element);
                self.append_unique(&mut fields, rest);
                fields
            }
            "set_extends" if element.attributes.is_empty() => vec![Entry { key, value: text(element) }],
            _ => {
                let value = self.element_fields(element);
                vec![Entry { key, value }]
            }
        }
    }

    /// Converts an element's attributes, child elements and text to the fields of a mapping.
    fn element_fields(&mut self, element: &Element) -> Node {
        let mut fields = self.attributes(element);
        for child in element.elements() {
            let value = if child.attributes.is_empty() && child.elements().next().is_none() {
                self.parse_typed(&child.text(), attribute_type(&child.name.node))
            } else {
                self.element_fields(child)
            };
            self.append_unique(&mut fields, vec![Entry { key: child.name.clone(), value }]);
        }
        let inner = element.text();
        if !inner.node.is_empty() {
            let Some(field) = text_field(&element.name.node) else {
                if fields.is_empty() {
                    return text(element);
                }
                self.reject_text(element);
                return Node::new(Kind::Map(fields), element.span);
            };
            let key = Spanned::new(field.to_owned(), inner.span);
            let value = self.parse_typed(&inner, attribute_type(field));
            self.append_unique(&mut fields, vec![Entry { key, value }]);
        }
        Node::new(Kind::Map(fields), element.span)
    }
}

fn name(element: &Element) -> String {
    shorten(&element.name.node)
}

fn text(element: &Element) -> Node {
    let text = element.text();
    Node::new(Kind::String(text.node), text.span)
}

fn entry_of_attribute(attribute: &Attribute, value: Node) -> Entry {
    Entry { key: attribute.name.clone(), value }
}

/// Returns true if a whole number in JSON text was too large to be exact and became a float.
fn is_inexact_integer(value: &Value, written: &str) -> bool {
    match value {
        Value::Number(number) => number.is_f64() && !written.contains(['.', 'e', 'E']),
        Value::Array(items) => items.iter().any(|item| is_inexact_integer(item, written)),
        Value::Object(map) => map.values().any(|item| is_inexact_integer(item, written)),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

fn from_json(value: Value, span: Span) -> Kind {
    match value {
        Value::Null => Kind::Null,
        Value::Bool(b) => Kind::Bool(b),
        Value::Number(n) => Kind::Number(n),
        Value::String(s) => Kind::String(s),
        Value::Array(items) => {
            Kind::List(items.into_iter().map(|item| Node::new(from_json(item, span), span)).collect())
        }
        Value::Object(map) => Kind::Map(
            map.into_iter()
                .map(|(key, value)| Entry {
                    key: Spanned::new(key, span),
                    value: Node::new(from_json(value, span), span),
                })
                .collect(),
        ),
    }
}
