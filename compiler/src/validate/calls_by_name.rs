//! Checks of the calls in a body that name a tool of the project or the user as a model does:
//! `ops_rollout(service="a")` for the tool `ops/rollout`. Calls of names that begin with `rye_` are checked with the
//! primaries.

use super::body_calls::{BodyCallChecker, bounded, check_arguments, check_granted, is_granted, literal_call};
use super::body_calls::{body_span, parenthesized};
use super::call_arguments::CallArguments;
use crate::compose::Composed;
use crate::diagnostics::Diagnostics;
use crate::item::Items;
use crate::semantics::capability::{ItemType, Primary};

/// Checks the calls in the body of a composed directive, without the bodies of its ancestors. A name counts as a call
/// only if named arguments in parentheses follow the name. A name of one word may also be a function of a program, so
/// an ungranted call of such a name is not reported.
pub fn check(checker: &mut BodyCallChecker, items: &Items<'_>, composed: &Composed, found: &mut Diagnostics) {
    let Some(leaf) = composed.leaf() else { return };
    let body = leaf.body.node.as_str();
    for (at, _) in body.match_indices('(') {
        let before = body.get(..at).unwrap_or_default();
        let start = before
            .rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .map_or(0, |last| last + before.get(last..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8));
        let name = before.get(start..).unwrap_or_default();
        if name.is_empty() || name.starts_with("rye_") {
            continue;
        }
        let after = body.get(at..).unwrap_or_default();
        if !parenthesized(after).contains(['=', ':']) {
            continue;
        }
        let Some(arguments) = CallArguments::read(bounded(after)).filter(|read| !read.list.is_empty()) else {
            continue;
        };
        let Some(id) = checker.tool_named(items, name).cloned() else { continue };
        let span = body_span(leaf, start, name.len());
        if !is_granted(composed, &id) && !name.contains('_') {
            continue;
        }
        check_granted(composed, Primary::Execute, ItemType::Tool, &id, span, found);
        let call = literal_call(leaf, at, &arguments, arguments.complete, span);
        check_arguments(items, composed, ItemType::Tool, id.as_str(), &call, found);
    }
}
