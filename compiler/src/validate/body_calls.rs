//! Checks of the calls that a body tells the model to make: calls of primaries such as `rye_execute(item_id="…")`, and
//! calls of tools by their palette names. The item must exist, and the grants of the directive must allow the call
//! (`language.md` 9 and 10).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;
use rye_grammar::{ItemId, Span, Spanned};
use serde_json::Value;

use super::call_arguments::{ArgumentValue, CallArguments, unnamed_argument};
use super::interface::{
    InputDefault, LiteralArgument, LiteralCall, check_directive_call, check_tool_call, expected_by_schema,
};
use super::literal_places::check_places;
use super::literal_returns::check_return;
use super::spawn::{BodySpawns, SpawnEdge, SpawnSource};
use crate::compose::Composed;
use crate::diagnostics::{CapabilityError, Diagnostics, InterfaceError, ItemError, RouteOfGrants, closest, quote_list};
use crate::item::{Dependency, Directive, Items, shorten};
use crate::palette::tool_name;
use crate::primary::DIRECTIVE_RETURN_TOOL;
use crate::semantics::capability::{CapabilityRequest, CapabilitySet, ItemType, Primary};
use crate::world::ItemKind;

/// Maximum distance in characters between a call's name and its arguments.
const MAX_ARGUMENT_DISTANCE: usize = 2000;

/// Id of the tool that starts a thread of the directive that its argument names.
const THREAD_DIRECTIVE: &str = "rye/agent/threads/thread_directive";

/// The regular expression that finds an argument with an item's id or type, as written in prose, Python or JSON.
static ARGUMENT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"(?-u:\b)(item_type|item_id|directive_name)["']?\s*[=:]\s*(?:"([^"\n]*)"|'([^'\n]*)')"#).ok()
});

/// A checker of the calls in bodies. Holds the ids of all tools by the name that a model calls, listed on first use.
#[derive(Default)]
pub struct BodyCallChecker {
    names: Option<BTreeMap<String, ItemId>>,
}

impl BodyCallChecker {
    /// Checks the calls in the body of the composed directive, without the bodies of its ancestors. Returns the
    /// directives that the body spawns.
    pub fn check(&mut self, items: &Items<'_>, composed: &Composed, found: &mut Diagnostics) -> BodySpawns {
        let mut starts = BodySpawns::default();
        let Some(leaf) = composed.leaf() else { return starts };
        let body = leaf.body.node.as_str();
        for (at, _) in body.match_indices("rye_") {
            let before = body.get(..at).and_then(|b| b.chars().next_back());
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
                continue;
            }
            let rest = body.get(at..).unwrap_or_default();
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
            let Some((name, after)) = rest.split_at_checked(end) else { continue };
            let called = after.starts_with('(');
            let primary = name.strip_prefix("rye_").and_then(Primary::parse);
            if let Some(primary) = primary.filter(|_| called) {
                check_parameters_type(leaf, primary, at + end, after, found);
                check_primary_arguments(leaf, primary, at + end, after, found);
                check_argument_names(leaf, primary.tool_name(), at + end, after, found);
                for call in primary_calls(primary, after) {
                    let span = body_span(leaf, at + end + call.at, call.id.len());
                    starts.add_call(items, &call, span);
                    check_call(items, composed, &call, span, found);
                    if let Some(arguments) = &call.arguments {
                        let call_of = literal_call(leaf, at + end, arguments, arguments.complete, span);
                        check_arguments(items, composed, call.kind, &call.id, &call_of, found);
                    }
                }
            } else if name == DIRECTIVE_RETURN_TOOL && called {
                let span = body_span(leaf, at, name.len());
                check_return(composed, leaf, (at + end, after), span, found);
            } else if primary.is_none() && (called || !is_negated(body.get(..at).unwrap_or_default())) {
                let span = body_span(leaf, at, name.len());
                // A word without parentheses or a backtick may be an ordinary word instead of the name of a tool.
                let is_marked = called || before == Some('`');
                let tool = self.check_tool_name(items, composed, (name, is_marked), span, found);
                if let Some(id) = tool.as_ref().filter(|_| called) {
                    check_argument_names(leaf, id.as_str(), at + end, after, found);
                }
                if let Some((id, arguments)) = tool.zip(CallArguments::read(bounded(after))) {
                    // Empty parentheses only mark a name as a call. They do not mean that the call has no arguments.
                    let complete = arguments.complete && !arguments.list.is_empty();
                    let call = literal_call(leaf, at + end, &arguments, complete, span);
                    check_arguments(items, composed, ItemType::Tool, id.as_str(), &call, found);
                }
                if let Some(call) = thread_tool_call(name, after).filter(|_| called) {
                    let span = body_span(leaf, at + end + call.at, call.id.len());
                    starts.add_call(items, &call, span);
                    check_call(items, composed, &call, span, found);
                }
            }
        }
        starts
    }

    fn names(&mut self, items: &Items<'_>) -> &BTreeMap<String, ItemId> {
        items.record_read(|| Dependency::List(ItemKind::Tool));
        self.names.get_or_insert_with(|| {
            items.list(ItemKind::Tool).iter().map(|e| (tool_name(&e.id), e.id.clone())).collect()
        })
    }

    /// Returns the id of the tool that a model calls by this name; `None` if there is none.
    pub(super) fn tool_named(&mut self, items: &Items<'_>, name: &str) -> Option<&ItemId> {
        if items.is_listed(ItemKind::Tool) { self.names(items).get(name) } else { None }
    }

    /// Checks that the tool with the name `name` is granted. Reports an unknown name only if `is_marked` is true,
    /// because the text then marks the name as the name of a tool. Returns the id of the tool; `None` if no item has
    /// the name.
    fn check_tool_name(
        &mut self,
        items: &Items<'_>,
        composed: &Composed,
        (name, is_marked): (&str, bool),
        span: Span,
        found: &mut Diagnostics,
    ) -> Option<ItemId> {
        if name == DIRECTIVE_RETURN_TOOL || !items.is_listed(ItemKind::Tool) {
            return None;
        }
        let names = self.names(items);
        match names.get(name) {
            Some(id) => {
                check_granted(composed, Primary::Execute, ItemType::Tool, id, span, found);
                return Some(id.clone());
            }
            None if !is_marked => {}
            None => found.push(ItemError::UnknownCall {
                what: "tool",
                id: name.to_owned(),
                span,
                suggestion: closest(name, names.keys().map(String::as_str)),
                other: None,
            }),
        }
        None
    }
}

struct BodyCall {
    primary: Primary,
    kind: ItemType,
    id: String,
    /// Byte offset of the id, from the opening parenthesis.
    at: usize,
    /// True for a call of the tool `thread_directive`, which accepts limits beside the inputs.
    by_tool: bool,
    /// The literal parameters, with offsets from the opening parenthesis; `None` if the call lists none in a readable
    /// form.
    arguments: Option<CallArguments>,
}

impl BodySpawns {
    fn add_call(&mut self, items: &Items<'_>, call: &BodyCall, span: Span) {
        if call.kind != ItemType::Directive || call.primary != Primary::Execute {
            return;
        }
        match ItemId::parse(&call.id) {
            Ok(to) if items.exists(ItemKind::Directive, &to) => {
                self.named.push(SpawnEdge { to, span, by: SpawnSource::Body { free: call.by_tool } });
            }
            Ok(_) | Err(_) => self.open = true,
        }
    }
}

/// Reads a call of the tool `rye/agent/threads/thread_directive`. Returns it as a call of the directive that the
/// argument `directive_name` names; `None` for a call of another tool, or without this argument. `name` is the name of
/// the called tool, and `after` is the text from the opening parenthesis of the call.
fn thread_tool_call(name: &str, after: &str) -> Option<BodyCall> {
    let is_tool = name.strip_prefix("rye_").is_some_and(|n| n == "agent_threads_thread_directive");
    let pattern = ARGUMENT.as_ref().filter(|_| is_tool)?;
    let value = pattern.captures_iter(parenthesized(after)).find_map(|found| {
        found.get(1).filter(|name| name.as_str() == "directive_name")?;
        found.get(2).or_else(|| found.get(3))
    })?;
    let (id, at) = (value.as_str().to_owned(), value.start());
    let arguments = CallArguments::read(bounded(after)).and_then(|read| mapping(&read, &["inputs"]));
    Some(BodyCall { primary: Primary::Execute, kind: ItemType::Directive, id, at, by_tool: true, arguments })
}

/// Returns the items that the arguments after a primary's name refer to.
fn primary_calls(primary: Primary, after: &str) -> Vec<BodyCall> {
    let Some(pattern) = ARGUMENT.as_ref() else { return Vec::new() };
    let arguments = parenthesized(after);
    let mut kind = match primary {
        Primary::Execute => Some(ItemType::Tool),
        Primary::Fetch => Some(ItemType::Knowledge),
        Primary::Sign => None,
    };
    let mut item = None;
    let mut started = None;
    for found in pattern.captures_iter(arguments) {
        let Some(value) = found.get(2).or_else(|| found.get(3)) else { continue };
        let here = (value.as_str().to_owned(), value.start());
        match found.get(1).map(|m| m.as_str()) {
            Some("item_type") => kind = ItemType::parse(value.as_str()),
            Some("item_id") => item = item.or(Some(here)),
            _ => started = Some(here),
        }
    }
    let parameters = CallArguments::read(bounded(after)).and_then(|read| mapping(&read, &["parameters", "params"]));
    let inputs = parameters.as_ref().and_then(|read| mapping(read, &["inputs"]));
    let is_start = item.as_ref().is_some_and(|(id, _)| id == THREAD_DIRECTIVE);
    let arguments = parameters.filter(|_| primary == Primary::Execute);
    // Another check reports the type `skill` in a call that accepts no skill.
    let kind = kind.filter(|kind| primary == Primary::Fetch || *kind != ItemType::Skill);
    let item = kind.zip(item).map(|(kind, (id, at))| BodyCall { primary, kind, id, at, by_tool: false, arguments });
    let started = started.filter(|_| is_start).map(|(id, at)| BodyCall {
        primary,
        kind: ItemType::Directive,
        id,
        at,
        by_tool: true,
        arguments: inputs,
    });
    item.into_iter().chain(started).collect()
}

/// Returns the text from its first character, an opening parenthesis, up to the parenthesis that closes it. If none
/// closes it within [`MAX_ARGUMENT_DISTANCE`] characters, returns these characters.
pub(super) fn parenthesized(text: &str) -> &str {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices().take(MAX_ARGUMENT_DISTANCE) {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return text.get(..at).unwrap_or(text);
        }
    }
    bounded(text)
}

/// Returns the first [`MAX_ARGUMENT_DISTANCE`] characters of a text, or the whole text if it is shorter.
pub(super) fn bounded(text: &str) -> &str {
    // A body can hold thousands of calls, so the usual text is not read character by character.
    match text.as_bytes().get(..MAX_ARGUMENT_DISTANCE) {
        None => return text,
        Some(start) if start.is_ascii() => return text.get(..MAX_ARGUMENT_DISTANCE).unwrap_or(text),
        Some(_) => {}
    }
    text.char_indices().nth(MAX_ARGUMENT_DISTANCE).and_then(|(at, _)| text.get(..at)).unwrap_or(text)
}

/// Returns the value of the first argument that has one of these names, if the value is a mapping; otherwise `None`.
fn mapping(arguments: &CallArguments, names: &[&str]) -> Option<CallArguments> {
    match &arguments.named(names)?.value {
        ArgumentValue::Mapping(inner) => Some(inner.clone()),
        ArgumentValue::Literal(_) | ArgumentValue::Open => None,
    }
}

/// Reports literal `parameters` of `rye_execute` that are not an object, such as an object in quotes. `after` is the
/// text from the opening parenthesis, which is at `start` in the body.
fn check_parameters_type(leaf: &Directive, primary: Primary, start: usize, after: &str, found: &mut Diagnostics) {
    let Some(arguments) = CallArguments::read(bounded(after)).filter(|_| primary == Primary::Execute) else { return };
    let Some(argument) = arguments.named(&["parameters"]) else { return };
    if let ArgumentValue::Literal(value) = &argument.value
        && !value.is_object()
    {
        found.push(InterfaceError::Type {
            what: format!("the argument `parameters` of `{}`", primary.tool_name()),
            expected: "an object".to_owned(),
            found: format!("`{}`", shorten(&value.to_string())),
            span: Some(body_span(leaf, start + argument.at, argument.len)),
            declared: None,
        });
    }
}

/// Reports arguments that a primary does not accept, and item types that do not exist. `after` is the text from the
/// opening parenthesis, which is at `start` in the body.
fn check_primary_arguments(leaf: &Directive, primary: Primary, start: usize, after: &str, found: &mut Diagnostics) {
    let Some(arguments) = CallArguments::read(bounded(after)) else { return };
    let schema = primary.complete_schema();
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    let known: Vec<&str> = properties.keys().map(String::as_str).collect();
    let item_types = properties.get("item_type").and_then(|property| property.get("enum")).and_then(Value::as_array);
    let item_types: Vec<&str> = item_types.into_iter().flatten().filter_map(Value::as_str).collect();
    for argument in &arguments.list {
        if !known.contains(&argument.name.as_str()) {
            found.push(InterfaceError::UnknownParameter {
                name: argument.name.clone(),
                tool: primary.tool_name().to_owned(),
                span: body_span(leaf, start + argument.name_at, argument.name.len()),
                is_refused: true,
                suggestion: intended_argument(&argument.name, &known),
                known: known.iter().map(|name| (*name).to_owned()).collect(),
            });
        }
        // `item_type` and `parameters` have checks of their own.
        let property =
            properties.get(&argument.name).filter(|_| !matches!(argument.name.as_str(), "item_type" | "parameters"));
        if let (Some(property), Some(value)) = (property, argument.value.literal())
            && let Some(expected) = expected_by_schema(property, &value)
        {
            found.push(InterfaceError::Type {
                what: format!("the argument `{}` of `{}`", argument.name, primary.tool_name()),
                expected,
                found: format!("`{}`", shorten(&value.to_string())),
                span: Some(body_span(leaf, start + argument.at, argument.len)),
                declared: None,
            });
        }
    }
    if let Some(argument) = arguments.named(&["item_type"])
        && let ArgumentValue::Literal(Value::String(text)) = &argument.value
        && !item_types.contains(&text.as_str())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-/.".contains(c))
    {
        found.push(InterfaceError::Type {
            what: format!("the argument `item_type` of `{}`", primary.tool_name()),
            expected: format!("one of {}", quote_list(&item_types)),
            found: format!("`{}`", shorten(text)),
            span: Some(body_span(leaf, start + argument.at, argument.len)),
            declared: None,
        });
    }
}

/// Returns the argument name in `known` that the unknown name of a primary's argument probably means; `None` if no
/// known name is similar.
fn intended_argument(name: &str, known: &[&str]) -> Option<String> {
    const MEANINGS: [(&str, &str); 4] = [
        ("params", "parameters"),
        ("id item tool name item_name tool_name tool_id directive directive_id knowledge knowledge_id", "item_id"),
        ("type kind", "item_type"),
        ("q search text", "query"),
    ];
    let is_of = |words: &str| words.split(' ').any(|word| word == name);
    let meant = MEANINGS.iter().find(|(words, meant)| is_of(words) && known.contains(meant));
    let parameters = ["args", "arguments", "input", "inputs", "param", "kwargs"].contains(&name);
    let meant = meant.map(|(_, meant)| *meant).or_else(|| Some("parameters").filter(|_| parameters));
    meant.filter(|meant| known.contains(meant)).map(str::to_owned).or_else(|| closest(name, known.iter().copied()))
}

/// Reports a literal argument without a name at the start of a call: `rye_execute("tool", "t", {…})`. `after` is the
/// text from the opening parenthesis, which is at `start` in the body. Any other text is not reported, because the
/// parentheses may contain prose.
fn check_argument_names(leaf: &Directive, tool: &str, start: usize, after: &str, found: &mut Diagnostics) {
    if let Some((at, len)) = unnamed_argument(bounded(after)) {
        let span = body_span(leaf, start + at, len);
        found.push(InterfaceError::UnnamedArgument { tool: tool.to_owned(), span });
    }
}

/// Converts the arguments of a call in the text of a body to the form in which they are checked. The positions in
/// `arguments` are relative to `start`, an offset in the body. `complete` is true if no other arguments can follow, so
/// that a missing argument is an error.
pub(super) fn literal_call(
    leaf: &Directive,
    start: usize,
    arguments: &CallArguments,
    complete: bool,
    span: Span,
) -> LiteralCall {
    let argument = |argument: &super::call_arguments::CallArgument| LiteralArgument {
        name: Spanned::new(argument.name.clone(), body_span(leaf, start + argument.name_at, argument.name.len())),
        value: argument.value.literal(),
        by_default: leaf
            .body
            .node
            .get(start + argument.at..start + argument.at + argument.len)
            .and_then(|written| input_default(leaf, written)),
        span: body_span(leaf, start + argument.at, argument.len),
    };
    LiteralCall { arguments: arguments.list.iter().map(argument).collect(), complete, span }
}

/// Returns the default of the input that an argument names as its whole value, such as `"{input:report}"`. `None` if
/// the argument has another value, or if the directive itself does not declare a default for the input.
fn input_default(leaf: &Directive, written: &str) -> Option<InputDefault> {
    let name = written.trim().trim_matches(['"', '\'']).strip_prefix("{input:")?.strip_suffix('}')?;
    let field = leaf.inputs.get(name)?;
    let value = field.default.as_ref()?;
    Some(InputDefault { input: name.to_owned(), value: value.clone(), span: field.span })
}

/// Checks the parameters of a call. A call of an unknown item is reported elsewhere.
pub(super) fn check_arguments(
    items: &Items<'_>,
    composed: &Composed,
    kind: ItemType,
    id: &str,
    call: &LiteralCall,
    found: &mut Diagnostics,
) {
    let Some(id) = ItemId::parse(id).ok().filter(|id| items.exists(kind.kind(), id)) else { return };
    match kind {
        ItemType::Directive => check_directive_call(items, &id, call, found),
        ItemType::Tool => {
            if let Some(tool) = items.tool(&id) {
                check_tool_call(&id, &tool.spec.parameters, call, found);
                check_places(composed, &tool, call, found);
            }
        }
        ItemType::Knowledge | ItemType::Skill => {}
    }
}

fn check_call(items: &Items<'_>, composed: &Composed, call: &BodyCall, span: Span, found: &mut Diagnostics) {
    let kind = call.kind.kind();
    // An id with a placeholder cannot be looked up.
    let Ok(id) = ItemId::parse(&call.id) else {
        if is_literal_id(&call.id) && items.is_listed(kind) {
            let meant = guess_misspelled_id(&call.id);
            let nearest = || {
                let words = call.id.replace('.', "/");
                items.nearest(kind, meant.as_ref().map_or(words.as_str(), ItemId::as_str))
            };
            found.push(ItemError::UnknownCall {
                what: kind.as_str(),
                id: call.id.clone(),
                span,
                suggestion: meant
                    .as_ref()
                    .filter(|id| items.exists(kind, id))
                    .map(ToString::to_string)
                    .or_else(nearest),
                other: None,
            });
        }
        return;
    };
    if !items.is_listed(kind) {
        return;
    }
    // The thread tools are built into the engine, so no tool file has to exist.
    let built_in = id.as_str().starts_with("rye/agent/threads/");
    if !built_in && !items.exists(kind, &id) {
        found.push(ItemError::UnknownCall {
            what: kind.as_str(),
            id: id.to_string(),
            span,
            suggestion: items.nearest(kind, id.as_str()),
            other: other_kind(items, call.kind, &id),
        });
        return;
    }
    check_granted(composed, call.primary, call.kind, &id, span, found);
}

/// Returns the kind of an existing item that has this id but another kind than `named`; `None` if there is no such
/// item.
fn other_kind(items: &Items<'_>, named: ItemType, id: &ItemId) -> Option<&'static str> {
    let kinds = [ItemType::Directive, ItemType::Tool, ItemType::Knowledge];
    kinds.into_iter().find(|kind| *kind != named && items.exists(kind.kind(), id)).map(ItemType::as_str)
}

/// Returns true if a text that is not a valid id was meant as an id. Returns false for a placeholder, such as
/// `{input:x}`, `<id>` or `...`.
fn is_literal_id(text: &str) -> bool {
    let is_id_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    text.chars().all(is_id_char) && text.contains(|c: char| c.is_ascii_alphanumeric())
}

/// Returns the id that a text with dots probably means: the text with slashes for dots (`rye/bash/bash` for
/// `rye.bash.bash`), else the text as a path without its extension. `None` if neither of the two is an id.
fn guess_misspelled_id(text: &str) -> Option<ItemId> {
    if let Some(id) = ItemId::from_dotted(text) {
        return Some(id);
    }
    let (path, _) = text.rsplit_once('.').filter(|(_, extension)| !extension.contains('/'))?;
    ItemId::parse(path).ok()
}

/// Returns true if the words between the start of the sentence and a tool's name tell the model not to use the tool.
/// `before` is the text before the name.
pub(super) fn is_negated(before: &str) -> bool {
    let start = before.rfind(['.', '!', '?', '\n', ';', ':']).map_or(0, |at| at + 1);
    let sentence = before.get(start..).unwrap_or_default().to_ascii_lowercase();
    let mut words = sentence.split(|c: char| !(c.is_alphanumeric() || c == '\''));
    words.any(|word| matches!(word, "not" | "never" | "no" | "without" | "avoid" | "instead") || word.ends_with("n't"))
}

/// Reports a call that is not granted. If the chain declares no permissions, the permissions of the spawner apply, so
/// nothing is reported.
pub(super) fn check_granted(
    composed: &Composed,
    primary: Primary,
    item_type: ItemType,
    id: &ItemId,
    span: Span,
    found: &mut Diagnostics,
) {
    let Some(permissions) = &composed.permissions else { return };
    let capability = CapabilityRequest { primary, item_type, item_id: Some(id), space: None }.capability();
    if !grants_capability(composed, &capability) && !id.as_str().starts_with("rye/agent/threads/internal/") {
        let parent = composed.chain.iter().rev().nth(1).map(|link| link.id().to_string());
        let route = composed.route.as_ref().zip(parent);
        let route = route.map(|(route, parent)| RouteOfGrants { hook: route.hook.id.node.clone(), parent });
        found.push(CapabilityError::UngrantedCall { capability, span, granted: permissions.value.span, route });
    }
}

fn grants_capability(composed: &Composed, capability: &str) -> bool {
    composed.permissions.as_ref().is_none_or(|permissions| {
        let patterns = || permissions.value.grants.iter().map(|grant| grant.pattern.0.as_str());
        // Most grants are the literal capability, so the patterns are compiled only if none of them is.
        patterns().any(|pattern| pattern == capability)
            || CapabilitySet::new(patterns()).first_match(capability).is_some()
    })
}

/// Returns true if the grants allow calls of a tool, or if the chain declares no permissions.
pub fn is_granted(composed: &Composed, id: &ItemId) -> bool {
    let (primary, item_type) = (Primary::Execute, ItemType::Tool);
    let request = CapabilityRequest { primary, item_type, item_id: Some(id), space: None };
    grants_capability(composed, &request.capability())
}

/// Returns the span of `length` bytes at the byte offset `at` of the body. Returns the span of the whole body if the
/// body is not a verbatim copy of the file's text, because offsets then do not match.
pub(super) fn body_span(leaf: &Directive, at: usize, length: usize) -> Span {
    let body = leaf.body.span;
    if body.len() != leaf.body.node.len() {
        return body;
    }
    let start = body.range().start + at;
    Span::new(body.source, start, start + length)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn ids(primary: Primary, after: &str) -> Vec<(ItemType, String)> {
        primary_calls(primary, after).into_iter().map(|c| (c.kind, c.id)).collect()
    }

    #[test]
    fn arguments_are_read_in_any_spelling() {
        let execute = |text: &str| ids(Primary::Execute, text);
        let bash = vec![(ItemType::Tool, "rye/bash/bash".to_owned())];
        assert_eq!(execute(r#"(item_id="rye/bash/bash")"#), bash);
        assert_eq!(execute("(item_type = 'tool', item_id = 'rye/bash/bash', parameters={'x': ')'})"), bash);
        assert_eq!(execute(r#"({"item_type": "tool", "item_id": "rye/bash/bash"})"#), bash);
        assert_eq!(execute(r#"(item_type="directive", item_id="a/b")"#), [(ItemType::Directive, "a/b".to_owned())]);
        assert_eq!(execute(r#"(query="x") then (item_id="rye/bash/bash")"#), []);
        let start =
            execute(r#"(item_id="rye/agent/threads/thread_directive", parameters={"directive_name": "my/flow"})"#);
        assert_eq!(start.last().unwrap(), &(ItemType::Directive, "my/flow".to_owned()));
        assert_eq!(ids(Primary::Fetch, "(item_id='a')"), [(ItemType::Knowledge, "a".to_owned())]);
        assert_eq!(ids(Primary::Sign, "(item_id='a')"), []);
    }

    #[test]
    fn dotted_ids_and_paths_are_corrected() {
        let meant = |text: &str| guess_misspelled_id(text).map(|id| id.to_string());
        assert_eq!(meant("rye.bash.bash").as_deref(), Some("rye/bash/bash"));
        assert_eq!(meant("project/count.py").as_deref(), Some("project/count"));
        for text in ["{input:tool}", "rye/${x}", "../a", "a/.b/c"] {
            assert_eq!(meant(text), None, "{text}");
        }
    }

    #[test]
    fn placeholders_are_no_literal_ids() {
        for text in ["rye/file.system/read", "./rye/bash/bash", "../x", "/a"] {
            assert!(is_literal_id(text), "{text}");
        }
        for text in ["{input:tool}", "rye/${x}", "...", "…", "<id>", "rye/file-system/*", ""] {
            assert!(!is_literal_id(text), "{text}");
        }
    }

    #[test]
    fn skill_is_no_type_of_an_executed_item() {
        assert_eq!(ids(Primary::Execute, "(item_type='skill', item_id='sum')"), []);
        assert_eq!(ids(Primary::Fetch, "(item_type='skill', item_id='sum')"), [(ItemType::Skill, "sum".to_owned())]);
    }

    #[test]
    fn negated_names_are_no_calls() {
        for text in ["Do not use ", "Never call `", "Don't run ", "Use the shell instead of "] {
            assert!(is_negated(text), "{text}");
        }
        for text in ["Use ", "Do not guess. Use ", "Note: call ", ""] {
            assert!(!is_negated(text), "{text}");
        }
    }

    #[test]
    fn unclosed_parenthesis_is_bounded() {
        let long = format!("({}", "é".repeat(10_000));
        assert_eq!(parenthesized(&long).chars().count(), MAX_ARGUMENT_DISTANCE);
        assert_eq!(parenthesized("(a(b)c)d"), "(a(b)c");
    }
}
