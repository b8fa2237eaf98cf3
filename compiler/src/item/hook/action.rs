//! Reads the `action` of a hook: its name, its fields, and every placeholder in its strings. The engine also calls
//! [`read`] for the actions that `execute` hooks return.

use rye_grammar::data::{Entry, Kind, Node};
use rye_grammar::template::{InputsPart, TemplatePart};
use rye_grammar::{Span, Spanned, SyntaxError, template};
use serde_json::Value;

use super::{HookFactPlaceholder, HookInputPlaceholder, HookLookalike, HookPlaceholders, lookalikes};
use crate::diagnostics::{Diagnostics, HookError, ItemError, LimitError, closest};
use crate::hook::{END_STATUSES, HookAction, MESSAGE_KINDS, Position, TERMINATE_SCOPES};
use crate::item::{data, id};
use crate::semantics::capability::ItemType;
use crate::semantics::hook_point::{ActionName, HookPointRow};
use crate::semantics::limits::{LimitName, LimitValue, describe_value_error, parse_limit_value};
use crate::world::ItemKind;

/// Reads an action of a hook at `point`, and records its placeholders. `None` if the action is unknown, is not allowed
/// at this point or lacks a required field, which is reported.
pub fn read(
    node: &Node,
    point: &HookPointRow,
    placeholders: &mut HookPlaceholders,
    found: &mut Diagnostics,
) -> Option<HookAction> {
    let shape = split_action(node, point, found)?;
    let action = ActionName::from_word(&shape.word.node);
    let Some(name) = action.filter(|action| point.accepted_actions().any(|one| one == *action)) else {
        found.push(wrong_action_error(&shape.word, point, action.is_some()));
        return None;
    };
    let mut fields =
        ActionReader { name, of: format!("`{}`", name.as_str()), entries: shape.fields, placeholders, found };
    fields.action(shape.word.span)
}

fn wrong_action_error(word: &Spanned<String>, point: &HookPointRow, exists: bool) -> HookError {
    let words: Vec<&str> = point.accepted_actions().map(ActionName::as_str).collect();
    HookError::WrongAction {
        action: word.node.clone(),
        event: point.name.to_owned(),
        span: word.span,
        suggestion: if exists { None } else { closest(&word.node, words.iter().copied()) },
        allowed: words.into_iter().map(str::to_owned).collect(),
    }
}

/// The name and the fields of an action, in one form for all spellings. `word` is the name as the author wrote it.
struct SplitAction {
    word: Spanned<String>,
    fields: Vec<Entry>,
}

/// Splits an action into its name and its fields. The action can have any of these spellings: `terminate`, `{primary:
/// execute, …}`, `{action: block, …}`, `{block: {…}}`, `{block: text}`. Reports any other value and returns `None`.
fn split_action(node: &Node, point: &HookPointRow, found: &mut Diagnostics) -> Option<SplitAction> {
    let entries = match &node.kind {
        Kind::String(word) => {
            return Some(SplitAction { word: Spanned::new(word.clone(), node.span), fields: Vec::new() });
        }
        Kind::Map(entries) => entries,
        Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::List(_) => {
            data::report_invalid(found, "action", node, "an action and its fields, such as `{ block: { reason: … } }`");
            return None;
        }
    };
    if let Some(named) = entries.iter().find(|e| matches!(e.key.node.as_str(), "primary" | "action")) {
        let word = data::read_string(found, &named.key.node, &named.value)?;
        let fields = entries.iter().filter(|e| e.key.node != named.key.node).cloned().collect();
        return Some(SplitAction { word, fields });
    }
    let [only] = entries.as_slice() else {
        let allowed = point.accepted_actions().map(|action| action.as_str().to_owned()).collect::<Vec<_>>();
        let unknown = entries.iter().find(|e| ActionName::from_word(&e.key.node).is_none());
        match unknown {
            Some(entry) => found.push(ItemError::UnknownKey {
                what: "key",
                key: entry.key.node.clone(),
                of: "an action".into(),
                span: entry.key.span,
                suggestion: closest(&entry.key.node, ["primary", "item_type", "item_id", "params"]),
                known: std::iter::once("primary".to_owned()).chain(allowed).collect(),
            }),
            None => data::report_invalid(found, "action", node, "exactly one action"),
        }
        return None;
    };
    let word = Spanned::new(only.key.node.clone(), only.key.span);
    let fields = match &only.value.kind {
        Kind::Map(fields) => fields.clone(),
        Kind::Null => Vec::new(),
        Kind::Bool(true) if default_field(&word.node).is_none() => Vec::new(),
        Kind::Bool(_) | Kind::Number(_) | Kind::String(_) | Kind::List(_) => match default_field(&word.node) {
            Some(field) => {
                let key = Spanned::new(field.to_owned(), only.value.span);
                vec![Entry { key, value: only.value.clone() }]
            }
            None if ActionName::from_word(&word.node).is_some() => {
                data::report_invalid(found, &word.node, &only.value, "a mapping with the fields of the action");
                return None;
            }
            None => Vec::new(),
        },
    };
    Some(SplitAction { word, fields })
}

/// Returns the field that the value of the action `word` sets if the value is not a mapping: in `{block: text}`, the
/// text becomes `reason`. `None` if the action is unknown or has no such field.
fn default_field(word: &str) -> Option<&'static str> {
    Some(match ActionName::from_word(word)? {
        ActionName::SetExtends | ActionName::Fetch | ActionName::Execute | ActionName::Sign => "item_id",
        ActionName::Transform | ActionName::SystemPrompt => "text",
        ActionName::Message | ActionName::Inject | ActionName::Modify | ActionName::FollowUp => "content",
        ActionName::Replace => "messages",
        ActionName::Drop => "kinds",
        ActionName::KeepLast => "n",
        ActionName::Block => "reason",
        ActionName::Retry => "delay_ms",
        ActionName::Terminate => "error",
        ActionName::Raise => "limit",
        ActionName::Handled
        | ActionName::Continue
        | ActionName::Escalate
        | ActionName::Handoff
        | ActionName::Compact => return None,
    })
}

struct ActionReader<'f> {
    name: ActionName,
    of: String,
    entries: Vec<Entry>,
    placeholders: &'f mut HookPlaceholders,
    found: &'f mut Diagnostics,
}

impl ActionReader<'_> {
    fn action(&mut self, span: Span) -> Option<HookAction> {
        data::check_keys(self.found, &self.entries, self.name.fields(), &self.of);
        Some(match self.name {
            ActionName::SetExtends => HookAction::SetExtends { item_id: self.static_id(span)? },
            ActionName::Fetch => {
                let (item_type, item_id, params) = self.item(span)?;
                HookAction::Fetch { item_type, item_id, params }
            }
            ActionName::Execute => {
                let (item_type, item_id, params) = self.item(span)?;
                HookAction::Execute { item_type, item_id, params }
            }
            ActionName::Sign => {
                let (item_type, item_id, _) = self.item(span)?;
                HookAction::Sign { item_type, item_id }
            }
            ActionName::Transform => {
                let (text, images) = (self.required_text("text", span)?, self.value("images"));
                self.check_images();
                HookAction::Transform { text, images }
            }
            ActionName::Handled => HookAction::Handled { reply: self.text("reply") },
            ActionName::Message => HookAction::Message {
                content: self.required_text("content", span)?,
                custom_type: self.text("type").unwrap_or_else(|| "hook".into()),
                display: self.boolean("display").unwrap_or(true),
            },
            ActionName::SystemPrompt => {
                let (text, append) = (self.text("text"), self.text("append"));
                if text.is_none() && append.is_none() {
                    self.missing("text", span);
                    return None;
                }
                HookAction::SystemPrompt { text, append }
            }
            ActionName::Drop => {
                if self.get("kinds").is_none() {
                    self.missing("kinds", span);
                }
                HookAction::Drop { kinds: self.message_kinds(), n: self.positive_count("n", "0 drops nothing") }
            }
            ActionName::KeepLast => {
                if self.get("n").is_none() {
                    self.missing("n", span);
                }
                let n = self.positive_count("n", "a model call needs at least one message")?;
                HookAction::KeepLast { n }
            }
            ActionName::Inject => HookAction::Inject {
                content: self.required_text("content", span)?,
                position: self.position().unwrap_or(Position::After),
            },
            ActionName::Replace => {
                let messages = self.required_value("messages", span)?;
                self.check_messages();
                HookAction::Replace { messages }
            }
            ActionName::Block => HookAction::Block { reason: self.required_text("reason", span)? },
            ActionName::Modify => HookAction::Modify {
                content: self.value("content"),
                is_error: self.boolean("is_error"),
                details: self.value("details"),
            },
            ActionName::Retry => HookAction::Retry { delay_ms: self.count("delay_ms") },
            ActionName::Continue => HookAction::Continue,
            ActionName::Terminate => {
                let (status, error) = (self.known_word("status", &END_STATUSES), self.text("error"));
                HookAction::Terminate { status, error, scope: self.known_word("scope", &TERMINATE_SCOPES) }
            }
            ActionName::Escalate => HookAction::Escalate,
            ActionName::Raise => {
                self.placeholders.item = self.get("limit").map(|node| node.span);
                // If `limit` is a number, the author may have exchanged the values of `limit` and `value`.
                if let Some(node) = self.get("limit").filter(|node| matches!(node.kind, Kind::Number(_))) {
                    self.report_not_one_of("limit", &node, &LimitName::ALL.map(LimitName::as_str));
                    return None;
                }
                let (limit, value) = (self.required_text("limit", span)?, self.required_value("value", span)?);
                self.check_limit_value(&limit, &value);
                HookAction::Raise { limit, value }
            }
            ActionName::Handoff => HookAction::Handoff,
            ActionName::Compact => HookAction::Compact,
            ActionName::FollowUp => HookAction::FollowUp { content: self.required_text("content", span)? },
        })
    }

    fn get(&self, key: &str) -> Option<Node> {
        self.entries.iter().find(|e| e.key.node == key).map(|e| e.value.clone())
    }

    fn missing(&mut self, what: &str, span: Span) {
        self.found.push(ItemError::Missing {
            what: format!("`{what}`"),
            of: self.of.clone(),
            span,
            help: format!("add `{what}: …` to the action"),
        });
    }

    fn text(&mut self, key: &str) -> Option<String> {
        let node = self.get(key)?;
        let text = data::read_string(self.found, key, &node)?.node;
        self.record_placeholders(&node, key);
        Some(text)
    }

    fn required_text(&mut self, key: &str, span: Span) -> Option<String> {
        if self.get(key).is_none() {
            self.missing(key, span);
        }
        self.text(key)
    }

    fn value(&mut self, key: &str) -> Option<Value> {
        let node = self.get(key)?;
        self.record_placeholders(&node, key);
        Some(node.to_value())
    }

    fn required_value(&mut self, key: &str, span: Span) -> Option<Value> {
        if self.get(key).is_none() {
            self.missing(key, span);
        }
        self.value(key)
    }

    fn boolean(&mut self, key: &str) -> Option<bool> {
        let node = self.get(key)?;
        data::read_bool(self.found, key, &node)
    }

    fn count(&mut self, key: &str) -> Option<u64> {
        let node = self.get(key)?;
        data::read_count(self.found, key, &node)
    }

    /// Reads a count. `None` if the field is missing or is not a count. A count of 0 is returned too, but is reported
    /// with the reason `why`.
    fn positive_count(&mut self, key: &str, why: &str) -> Option<u64> {
        let count = self.count(key)?;
        if let (0, Some(node)) = (count, self.get(key)) {
            data::report_invalid(self.found, key, &node, &format!("a whole number above 0: {why}"));
        }
        Some(count)
    }

    fn word_list(&mut self, key: &str) -> Vec<String> {
        let Some(node) = self.get(key) else { return Vec::new() };
        match &node.kind {
            Kind::String(text) => text.split([',', ' ']).filter(|s| !s.is_empty()).map(str::to_owned).collect(),
            Kind::List(items) => {
                items.iter().filter_map(|i| data::read_string(self.found, key, i)).map(|s| s.node).collect()
            }
            Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::Map(_) => {
                data::report_invalid(self.found, key, &node, "a list of words");
                Vec::new()
            }
        }
    }

    /// Reads the field `kinds`: the kinds of the messages that the action drops. Reports an empty field and unknown
    /// kinds.
    fn message_kinds(&mut self) -> Vec<String> {
        let kinds = self.word_list("kinds");
        let is_empty = |node: &Node| matches!(node.kind, Kind::String(_) | Kind::List(_)) && node.items().is_empty();
        if let Some(node) = self.get("kinds").filter(|node| kinds.is_empty() && is_empty(node)) {
            self.found.push(ItemError::InvalidValue {
                what: "`kinds`".into(),
                found: "empty".into(),
                expected: format!("one or more of `{}`", MESSAGE_KINDS.join("`, `")),
                span: node.span,
            });
        }
        if let (Some(node), Some(wrong)) =
            (self.get("kinds"), kinds.iter().find(|kind| !MESSAGE_KINDS.contains(&kind.as_str())))
        {
            let at = node.items().iter().find(|item| item.as_str() == Some(wrong)).unwrap_or(&node);
            self.report_not_one_of("kinds", at, &MESSAGE_KINDS);
        }
        kinds
    }

    /// Reads the text of a key that must be one of `words`. Also returns any other text. Reports such a text if it
    /// contains no placeholder. `None` if the key is missing or its value is not a text.
    fn known_word(&mut self, key: &str, words: &[&str]) -> Option<String> {
        let node = self.get(key)?;
        let word = self.text(key)?;
        if !has_placeholder(&word) && !words.contains(&word.as_str()) {
            self.report_not_one_of(key, &node, words);
        }
        Some(word)
    }

    /// Checks the images that an action names literally: paths that stay within the project, or mappings. Placeholders
    /// for images are not checked.
    fn check_images(&mut self) {
        const EXPECTED: &str = "a list of images: `${images.N}`, a path in the project, or `{ path: … }`";
        let Some(node) = self.get("images") else { return };
        let single = [node.clone()];
        let images = if let Kind::List(images) = &node.kind { images.as_slice() } else { &single };
        for image in images {
            let path = image.get("path").unwrap_or(image);
            match &path.kind {
                Kind::String(text) if has_placeholder(text) => {}
                Kind::String(text) if is_inside_project(text) => {}
                Kind::String(_) => {
                    data::report_invalid(self.found, "images", path, "a relative path that stays in the project");
                }
                Kind::Map(entries)
                    if entries.iter().any(|entry| matches!(entry.key.node.as_str(), "data" | "sha256")) => {}
                Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::List(_) | Kind::Map(_) => {
                    data::report_invalid(self.found, "images", image, EXPECTED);
                }
            }
        }
    }

    /// Checks the value of a limit against the range of that limit. In a text with placeholders, the digit 1 stands in
    /// place of each placeholder.
    fn check_limit_value(&mut self, limit: &str, value: &Value) {
        let (Some(name), Some(node)) = (LimitName::parse(limit), self.get("value")) else { return };
        let written = match value.as_str() {
            Some(text) if has_placeholder(text) => match fill_placeholders(text, &node) {
                Some(filled) => LimitValue::Text(filled),
                None => return,
            },
            Some(text) => LimitValue::Text(text.to_owned()),
            None => LimitValue::Json(value.clone()),
        };
        if let Err(why) = parse_limit_value(name, &written) {
            let mut why = describe_value_error(name, &why);
            if value.as_str().is_some_and(has_placeholder) {
                // `why` quotes the text with digits in place of the placeholders, so the quotation is removed.
                why.truncate(why.find(", not `").unwrap_or(why.len()));
            }
            let span = Some(node.span);
            self.found.push(LimitError::Invalid { name: name.to_string(), found: data::describe(&node), why, span });
        }
    }

    /// Checks the messages that an action contains literally: each is a mapping with a known `kind`. Placeholders for
    /// messages are not checked.
    fn check_messages(&mut self) {
        let Some(node) = self.get("messages") else { return };
        match &node.kind {
            Kind::String(text) if has_placeholder(text) => {}
            Kind::List(messages) => {
                for message in messages {
                    match message.get("kind") {
                        Some(kind) if kind.as_str().is_some_and(|word| MESSAGE_KINDS.contains(&word)) => {}
                        Some(kind) => self.report_not_one_of("kind", kind, &MESSAGE_KINDS),
                        None if message.as_str().is_some_and(has_placeholder) => {}
                        None => data::report_invalid(self.found, "messages", message, "a message with its `kind`"),
                    }
                }
            }
            Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::String(_) | Kind::Map(_) => {
                data::report_invalid(self.found, "messages", &node, "a list of messages");
            }
        }
    }

    fn report_not_one_of(&mut self, what: &str, node: &Node, words: &[&str]) {
        data::report_invalid(self.found, what, node, &format!("one of `{}`", words.join("`, `")));
    }

    fn position(&mut self) -> Option<Position> {
        let node = self.get("position")?;
        super::read::read_position(&node, self.found)
    }

    /// Reads the id that `set_extends` sets; `None` if it is missing or invalid, which is reported. Placeholders are
    /// not allowed in this id, because the extends chain is resolved before the run knows any fact.
    fn static_id(&mut self, span: Span) -> Option<String> {
        let Some(node) = self.get("item_id") else {
            self.missing("item_id", span);
            return None;
        };
        let text = data::read_string(self.found, "set_extends", &node)?;
        self.placeholders.item = Some(text.span);
        id::read(self.found, &text).map(|id| id.node.to_string())
    }

    fn item(&mut self, span: Span) -> Option<(ItemKind, String, Value)> {
        let kind = match self.get("item_type") {
            None => {
                self.missing("item_type", span);
                None
            }
            Some(node) => {
                let word = data::read_string(self.found, "item_type", &node)?;
                let kind = ItemKind::from_word(&word.node).filter(|kind| ItemType::of(*kind).is_some());
                if kind.is_none() {
                    data::report_invalid(self.found, "item_type", &node, "`tool`, `directive` or `knowledge`");
                }
                kind
            }
        };
        let item_id = match self.get("item_id") {
            None => {
                self.missing("item_id", span);
                None
            }
            Some(node) => {
                let text = data::read_string(self.found, "item_id", &node)?;
                self.placeholders.item = Some(text.span);
                let before = (self.placeholders.facts.len(), self.placeholders.inputs.len(), self.found.len());
                self.record_placeholders(&node, "item_id");
                if before == (self.placeholders.facts.len(), self.placeholders.inputs.len(), self.found.len()) {
                    id::read(self.found, &text).map(|id| id.node.to_string())
                } else {
                    Some(text.node)
                }
            }
        };
        let takes_params = self.name.fields().contains(&"params");
        let params = match self.get("params").filter(|_| takes_params) {
            None => Value::Object(serde_json::Map::new()),
            Some(node) => {
                if !matches!(node.kind, Kind::Map(_) | Kind::Null) {
                    data::report_invalid(self.found, "params", &node, "a mapping of parameters");
                    return None;
                }
                self.record_placeholders(&node, "params");
                self.placeholders.params = node.entries().iter().map(|e| (e.key.clone(), e.value.span)).collect();
                if matches!(node.kind, Kind::Null) { Value::Object(serde_json::Map::new()) } else { node.to_value() }
            }
        };
        Some((kind?, item_id?, params))
    }

    /// Records every placeholder in every string of a value. Keys are not templates.
    fn record_placeholders(&mut self, node: &Node, field: &str) {
        match &node.kind {
            Kind::String(text) => self.record_text_placeholders(node, text, field),
            Kind::List(items) => {
                for (i, item) in items.iter().enumerate() {
                    self.record_placeholders(item, &format!("{field}.{i}"));
                }
            }
            Kind::Map(entries) => {
                for entry in entries {
                    self.record_placeholders(&entry.value, &format!("{field}.{}", entry.key.node));
                }
            }
            Kind::Null | Kind::Bool(_) | Kind::Number(_) => {}
        }
    }

    fn record_text_placeholders(&mut self, node: &Node, text: &str, field: &str) {
        let (source, base) = (node.span.source, node.content_start());
        let place = |span: Span| if node.is_verbatim() { span } else { node.span };
        // A `$` in a parameter may be a variable of the executed program.
        let may_be_variable = field.starts_with("params");
        for (range, path) in lookalikes::find(text) {
            let written = text.get(range.clone()).unwrap_or_default().to_owned();
            if !(may_be_variable && written.starts_with('$')) {
                let span = place(Span::new(source, base + range.start, base + range.end));
                self.placeholders.lookalikes.push(HookLookalike { text: written, path, span });
            }
        }
        if !has_placeholder(text) {
            return;
        }
        let mut complain = |error: SyntaxError| {
            self.found.push(if node.is_verbatim() { error } else { error.within(node.span) });
        };
        let read = template::read(source, text, base);
        self.placeholders.facts.extend(read.tree.parts.into_iter().filter_map(|part| match part {
            TemplatePart::Placeholder(placeholder) => Some(HookFactPlaceholder {
                path: placeholder.path,
                span: place(placeholder.span),
                field: field.to_owned(),
            }),
            TemplatePart::Text(_) => None,
        }));
        read.errors.into_iter().for_each(&mut complain);
        let read = template::read_inputs(source, text, base);
        self.placeholders.inputs.extend(read.tree.parts.into_iter().filter_map(|part| match part {
            InputsPart::Input(placeholder) => Some(HookInputPlaceholder {
                name: placeholder.name,
                span: place(placeholder.span),
                field: field.to_owned(),
            }),
            InputsPart::Text(_) => None,
        }));
        read.errors.into_iter().for_each(&mut complain);
    }
}

/// Returns true if a path is relative and does not lead out of the project. Examines only the text of the path, not the
/// disk.
fn is_inside_project(path: &str) -> bool {
    !path.trim().is_empty() && !path.starts_with(['/', '~']) && !path.split('/').any(|name| name == "..")
}

/// Returns a text with the digit 1 in place of each placeholder; `None` if a placeholder cannot be read.
fn fill_placeholders(text: &str, node: &Node) -> Option<String> {
    let facts = template::read(node.span.source, text, 0);
    let inputs = template::read_inputs(node.span.source, text, 0);
    if !(facts.errors.is_empty() && inputs.errors.is_empty()) {
        return None;
    }
    let facts = facts.tree.parts.iter().filter_map(|part| match part {
        TemplatePart::Placeholder(placeholder) => Some(placeholder.span),
        TemplatePart::Text(_) => None,
    });
    let inputs = inputs.tree.parts.iter().filter_map(|part| match part {
        InputsPart::Input(placeholder) => Some(placeholder.span),
        InputsPart::Text(_) => None,
    });
    let mut spans: Vec<Span> = facts.chain(inputs).collect();
    spans.sort_by_key(|span| std::cmp::Reverse(span.start));
    let mut filled = text.to_owned();
    for span in spans {
        filled.get(span.range())?;
        filled.replace_range(span.range(), "1");
    }
    Some(filled)
}

/// Returns true if a text contains a placeholder that only a run can fill.
fn has_placeholder(text: &str) -> bool {
    text.contains("${") || text.contains("{input:")
}
