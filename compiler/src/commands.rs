//! Commands of a chat: the `commands:` of `agent/chat`. A command is a hook at the point `command` whose condition
//! names the command, so the rules of hooks apply to its trust, grants, placeholders and checks.

use std::sync::Arc;

use rye_grammar::data::{Entry, Kind, Node};
use rye_grammar::{ItemId, Span, Spanned};

use crate::compose::ComposedHook;
use crate::diagnostics::{Diagnostics, ItemError, TemplateError};
use crate::hook::{HookSource, PlanVerdict};
pub use crate::item::BUILT_IN_COMMANDS;
use crate::item::hook::read::{check_unique_ids, read_hooks};
use crate::item::{HookDecl, Items, OrderedHooks, data};
use crate::plan::PlanMode;
use crate::world::Space;

/// The settings file that declares commands.
pub(crate) const COMMAND_FILE: &str = "agent/chat";

/// A command of a chat that a hook declares.
#[derive(Debug, Clone)]
pub struct ChatCommand {
    /// The hook that runs the command. The id of the hook is the name of the command.
    pub hook: Arc<HookDecl>,
    /// A hint that tells the user which arguments can follow the command's name.
    pub argument_hint: Option<String>,
}

/// Returns the commands of all spaces. If several commands have the same name, the command of the highest space is
/// used.
pub fn read_commands(items: &Items<'_>, found: &mut Diagnostics) -> Vec<ChatCommand> {
    let Ok(settings) = ItemId::parse(COMMAND_FILE) else { return Vec::new() };
    let mut commands: Vec<ChatCommand> = Vec::new();
    for (space, file) in items.config_layers(&settings).iter() {
        // The check of the settings reports a value that is not a list, and entries without their keys.
        let Some(list) = file.get("commands") else { continue };
        let entries: Vec<&Node> = list.items().iter().filter(|entry| is_complete(entry, found)).collect();
        let hooks = Node::new(Kind::List(entries.iter().map(|entry| to_hook(entry)).collect()), list.span);
        let source = match space {
            Space::Project => HookSource::Project,
            Space::User => HookSource::User,
            Space::System => HookSource::Builtin,
        };
        let hooks = read_hooks(&hooks, &source, *space, found);
        check_unique_ids("commands", &hooks, found);
        for hook in hooks {
            if commands.iter().any(|known| known.hook.id.node == hook.id.node) {
                continue;
            }
            let entry = entries.iter().find(|entry| entry.get("id").is_some_and(|id| id.span == hook.id.span));
            let argument_hint = entry.and_then(|entry| entry.get("argument_hint")?.as_str()).map(str::to_owned);
            commands.push(ChatCommand { hook, argument_hint });
        }
    }
    commands
}

/// Returns the commands that settings declare, in the form of hooks of a plan. Empty for a run, because only a chat has
/// commands.
pub(crate) fn composed_commands(items: &Items<'_>, mode: PlanMode, found: &mut Diagnostics) -> Vec<ComposedHook> {
    match mode {
        PlanMode::Run => return Vec::new(),
        PlanMode::Chat => {}
    }
    let commands = read_commands(items, found);
    let ordered = OrderedHooks::new(commands.into_iter().map(|command| command.hook).collect());
    let place = |place: &crate::semantics::hook_table::HookPlace| {
        let decl = Arc::clone(ordered.hooks.get(place.index)?);
        let (layer, source) = (place.layer, decl.source.clone());
        let verdict = PlanVerdict::Depends { on: vec!["name".to_owned()] };
        Some(ComposedHook { decl, layer, source, verdict, knowledge: None })
    };
    ordered.places.iter().filter_map(place).collect()
}

/// Returns the name and the arguments of a typed text; `None` if the first word cannot be a command.
pub fn split_command(text: &str) -> Option<(&str, &str)> {
    let rest = text.strip_prefix('/')?;
    let (name, arguments) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    is_command_name(name).then_some((name, arguments.trim()))
}

fn is_command_name(name: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.bytes().next().is_some_and(is_word) && name.bytes().all(|b| is_word(b) || matches!(b, b':' | b'_' | b'-'))
}

/// Returns true if an entry has the keys that a command needs and a usable name. Reports a name that cannot be typed or
/// that a built-in command has.
fn is_complete(entry: &Node, found: &mut Diagnostics) -> bool {
    let (Some(id), Some(execute)) = (entry.get("id"), entry.get("execute")) else { return false };
    let Some(name) = id.as_str() else { return false };
    if !is_command_name(name) || BUILT_IN_COMMANDS.contains(&name) {
        found.push(ItemError::InvalidValue {
            what: "the `id` of a command".into(),
            found: format!("`{name}`"),
            expected: match name.trim_start_matches('/') {
                plain if plain != name && is_command_name(plain) => format!("`{plain}`, without a slash"),
                _ => "a name of `a-z`, `0-9`, `:`, `_` and `-` that no built-in command has".into(),
            },
            span: id.span,
        });
        return false;
    }
    if !matches!(execute.kind, Kind::Map(_)) {
        data::report_invalid(found, "execute", execute, "a mapping with `item_type`, `item_id` and `params`");
        return false;
    }
    check_arguments(name, entry, execute, found);
    true
}

/// Placeholders of other clients for the text after a command's name.
const FOREIGN_ARGUMENTS: [&str; 3] = ["$ARGUMENTS", "{args}", "{arguments}"];

/// Reports a command that ignores its arguments, although it has an `argument_hint` or contains a placeholder of
/// another client for the arguments.
fn check_arguments(name: &str, entry: &Node, execute: &Node, found: &mut Diagnostics) {
    let mut texts = Vec::new();
    collect_texts(execute, &mut texts);
    if texts.iter().any(|text| text.contains("${args")) {
        return;
    }
    let written = FOREIGN_ARGUMENTS.into_iter().find(|written| texts.iter().any(|text| text.contains(written)));
    if written.is_none() && entry.get("argument_hint").is_none() {
        return;
    }
    let (name, written) = (name.to_owned(), written.map(str::to_owned));
    found.push(TemplateError::IgnoredArguments { name, written, span: execute.span });
}

fn collect_texts<'n>(node: &'n Node, texts: &mut Vec<&'n str>) {
    texts.extend(node.as_str());
    for item in node.items() {
        collect_texts(item, texts);
    }
    for entry in node.entries() {
        collect_texts(&entry.value, texts);
    }
}

/// Converts an entry of `commands:` to a hook at the point `command`, whose condition requires the name of the command.
fn to_hook(entry: &Node) -> Node {
    let key = |name: &str, span: Span| Spanned::new(name.to_owned(), span);
    let text = |value: &str, span: Span| Node::new(Kind::String(value.to_owned()), span);
    let pair = |name: &str, value: Node| Entry { key: key(name, value.span), value };
    let mut hook = Vec::new();
    for part in entry.entries() {
        let (name, value) = (part.key.node.as_str(), &part.value);
        match name {
            "id" => {
                let condition = vec![
                    pair("path", text("name", value.span)),
                    pair("op", text("eq", value.span)),
                    pair("value", value.clone()),
                ];
                hook.push(part.clone());
                hook.push(pair("event", text("command", value.span)));
                hook.push(pair("condition", Node::new(Kind::Map(condition), value.span)));
            }
            "execute" => {
                let mut action = vec![pair("primary", text("execute", value.span))];
                action.extend(value.entries().iter().cloned());
                hook.push(pair("action", Node::new(Kind::Map(action), value.span)));
            }
            "description" | "grants" => hook.push(part.clone()),
            _ => {}
        }
    }
    Node::new(Kind::Map(hook), entry.span)
}

#[cfg(test)]
mod tests;
