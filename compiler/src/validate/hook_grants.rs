//! Reports grants of hooks and commands that their actions do not use.

use serde_json::Value;

use crate::diagnostics::{CapabilityError, Diagnostics};
use crate::hook::{HookAction, HookSource};
use crate::item::HookDecl;
use crate::semantics::glob::Glob;
use crate::world::ItemKind;

/// The capability to read files of the project, which the image of a message needs.
const READ_FILES: &str = "rye.execute.tool.rye.file-system.read";

/// Reports the grants of a hook whose action needs no grant. These actions need no grant:
///
/// - An action that uses no item. One exception: an action whose `images` may be files of the project needs a grant to
///   read files.
/// - In a settings file, an action with an item that is not a directive and whose id contains no placeholder.
///
/// `what` names the declaration in the report: a hook or a command.
pub fn check(what: &'static str, hook: &HookDecl, found: &mut Diagnostics) {
    let Some(action) = hook.action.as_ref().filter(|_| hook.enabled) else { return };
    let starts = matches!(action.node, HookAction::Execute { item_type: ItemKind::Directive, .. });
    let own = matches!(hook.source, HookSource::Directive { .. });
    let why = match action.node.item() {
        None => format!("the action of the {what} uses no item"),
        Some(_) if starts || own || !hook.has_static_id() => return,
        Some((_, id)) => format!("the {what} names its item `{id}`, so it needs no grant"),
    };
    let reads_image = matches!(&action.node, HookAction::Transform { images: Some(images), .. } if names_file(images));
    for grant in &hook.grants {
        if reads_image && Glob::new(&grant.node.0).matches(READ_FILES) {
            continue;
        }
        let (hook, pattern, why) = (hook.id.node.clone(), grant.node.0.clone(), why.clone());
        found.push(CapabilityError::UnusedHookGrant { what, hook, pattern, why, span: grant.span });
    }
}

/// Returns true if `images` of an action can name a file of the project: a path, or a text with a placeholder.
fn names_file(images: &Value) -> bool {
    match images {
        Value::String(text) => !text.starts_with("${images"),
        Value::Array(parts) => parts.iter().any(names_file),
        Value::Object(fields) => fields.contains_key("path"),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
