//! Checks of a single hook: the facts, items and parameters that the hook names must exist (`language.md` 7). For hooks
//! that never fire see `hook_use`.

use std::collections::BTreeSet;

use rye_grammar::condition::{ArithmeticOp, CompareOp, Expr, ExprKind, Path, Segment};
use rye_grammar::{ItemId, Span, Spanned, template};
use serde_json::Value;

use super::interface::listed_parameters;
use crate::compose::{Composed, report_unknown};
use crate::diagnostics::{Diagnostics, ExtendsError, HookError, InterfaceError, ItemError, WordList, closest};
use crate::hook::{HookAction, HookPoint, HookSource};
use crate::item::directive::FieldDecl;
use crate::item::{HookDecl, Items};
use crate::palette::tool_name;
use crate::plan::FieldType;
use crate::semantics;
use crate::semantics::capability::{CapabilityRequest, CapabilitySet, ItemType, Primary};
use crate::semantics::condition::Condition;
use crate::semantics::hook_point::{self, HookPointRow, PathMeaning};
use crate::tool_spec::{ScriptLanguage, ToolKind};
use crate::world::ItemKind;

/// Checks the facts that the condition of a hook reads. `own` is the composition of the directive that declares the
/// hook; `None` if a settings file declares the hook.
pub fn check_condition_facts(hook: &HookDecl, own: Option<&Composed>, found: &mut Diagnostics) {
    let Some(condition) = &hook.condition else { return };
    let point = hook_point::row_of(hook.event);
    let mut unquoted = Vec::new();
    collect_unquoted_texts(&condition.node, point, &mut unquoted);
    for (path, span) in condition_paths(&condition.node) {
        if !unquoted.iter().any(|(_, text): &(String, Span)| text.start <= span.start && span.end <= text.end) {
            check_fact(path, span, false, (point, own), found);
        }
    }
    found.extend(unquoted.into_iter().map(|(text, span)| HookError::UnquotedText { text, span }));
}

/// Checks a hook. `own` is the composition of the directive that declares the hook; `None` if a settings file declares
/// the hook.
pub fn check(items: &Items<'_>, hook: &HookDecl, own: Option<&Composed>, found: &mut Diagnostics) {
    if !hook.enabled {
        return;
    }
    let point = hook_point::row_of(hook.event);
    check_condition_facts(hook, own, found);
    for placeholder in &hook.placeholders.facts {
        check_fact(&placeholder.path, placeholder.span, true, (point, own), found);
    }
    if let Some(own) = own {
        for placeholder in &hook.placeholders.inputs {
            check_input(&placeholder.name, placeholder.span, own, found);
        }
        check_input_types(hook, own, found);
        check_grants(hook, own, found);
        if let (false, Some(grant)) = (hook.grants.is_empty(), hook.grants.first()) {
            found.push(ItemError::InvalidValue {
                what: "`grants`".into(),
                found: "set in a hook that a directive declares".into(),
                expected: "no grants: the hook of a directive uses the directive's `<permissions>`".into(),
                span: grant.span,
            });
        }
    }
    super::hook_value::check(items, hook, found);
    super::hook_effect::check(hook, found);
    super::mistyped_placeholders::check_hook(hook, found);
    super::chat_hooks::check(hook, own, found);
    check_untrusted_parameters(items, hook, found);
    if let Some(action) = &hook.action {
        check_names(items, hook, &action.node, found);
    }
}

/// Returns every path of a condition with its span.
pub fn condition_paths(expr: &Expr) -> Vec<(&Path, Span)> {
    let mut all = Vec::new();
    collect_paths(expr, &mut all);
    all
}

/// Collects the sides of comparisons that probably are item ids without quotes. Such a side contains only arithmetic
/// operators and at least two paths, none of which is a fact.
fn collect_unquoted_texts(expr: &Expr, point: &HookPointRow, all: &mut Vec<(String, Span)>) {
    match &expr.kind {
        ExprKind::Compare { left, right, .. } => {
            for side in [left, right] {
                let paths = condition_paths(side);
                let is_unknown = |(path, _): &(&Path, Span)| point.resolve_path(path) == PathMeaning::Nothing;
                if let Some(text) = unquoted_text(side).filter(|_| paths.len() > 1 && paths.iter().all(is_unknown)) {
                    all.push((text, side.span));
                }
            }
        }
        ExprKind::List(items) | ExprKind::All(items) | ExprKind::Any(items) => {
            for item in items {
                collect_unquoted_texts(item, point, all);
            }
        }
        ExprKind::Length(inner) | ExprKind::Not(inner) | ExprKind::Negate(inner) => {
            collect_unquoted_texts(inner, point, all);
        }
        ExprKind::Literal(_) | ExprKind::Path(_) | ExprKind::Exists(_) | ExprKind::Arithmetic { .. } => {}
    }
}

/// Returns the text of an expression that consists only of paths and arithmetic operators. The author of such an
/// expression probably forgot quotes: `rye/bash/bash` without quotes reads as two divisions. `None` for any other
/// expression.
fn unquoted_text(expr: &Expr) -> Option<String> {
    match &expr.kind {
        ExprKind::Path(path) => Some(path.to_string()),
        ExprKind::Arithmetic { op, left, right } => {
            let sign = match op {
                ArithmeticOp::Add => '+',
                ArithmeticOp::Subtract => '-',
                ArithmeticOp::Multiply => '*',
                ArithmeticOp::Divide => '/',
                ArithmeticOp::Remainder => '%',
            };
            Some(format!("{}{sign}{}", unquoted_text(left)?, unquoted_text(right)?))
        }
        ExprKind::Literal(_)
        | ExprKind::Exists(_)
        | ExprKind::List(_)
        | ExprKind::All(_)
        | ExprKind::Any(_)
        | ExprKind::Length(_)
        | ExprKind::Not(_)
        | ExprKind::Negate(_)
        | ExprKind::Compare { .. } => None,
    }
}

fn collect_paths<'e>(expr: &'e Expr, all: &mut Vec<(&'e Path, Span)>) {
    match &expr.kind {
        ExprKind::Literal(_) => {}
        ExprKind::Path(path) | ExprKind::Exists(path) => all.push((path, expr.span)),
        ExprKind::List(items) | ExprKind::All(items) | ExprKind::Any(items) => {
            for item in items {
                collect_paths(item, all);
            }
        }
        ExprKind::Length(inner) | ExprKind::Not(inner) | ExprKind::Negate(inner) => collect_paths(inner, all),
        ExprKind::Compare { left, right, .. } | ExprKind::Arithmetic { left, right, .. } => {
            collect_paths(left, all);
            collect_paths(right, all);
        }
    }
}

/// Checks that the fact at `path` exists at this hook point. If `is_placeholder` is true, a placeholder reads the fact;
/// otherwise a condition does. `own` is the directive that declares the hook; `None` if a settings file declares the
/// hook.
fn check_fact(
    path: &Path,
    span: Span,
    is_placeholder: bool,
    (point, own): (&HookPointRow, Option<&Composed>),
    found: &mut Diagnostics,
) {
    match point.resolve_path(path) {
        PathMeaning::Fact(_) => {}
        PathMeaning::Open => {
            let name = output_name(point, path).or_else(|| {
                // A directive without outputs may be the base of others, which declare them.
                output_at_end(point, path).filter(|_| own.is_some_and(|own| !own.outputs.is_empty()))
            });
            if let (Some(own), Some(name)) = (own, name)
                && !own.outputs.contains_key(name)
            {
                found.push(unknown_output(name, Some(own.id.to_string()), span, own.outputs.keys()));
            }
        }
        PathMeaning::Input => {
            if let (Some(own), Some(Segment::Name(name))) = (own, path.segments.get(1)) {
                check_input(name, span, own, found);
            }
        }
        PathMeaning::Nothing => {
            let facts = point.fact_names();
            let is_argument = point.point == HookPoint::Command
                && matches!(path.to_string().as_str(), "input" | "arguments" | "text");
            let near = closest(&path.to_string(), facts.iter().map(String::as_str));
            found.push(HookError::UnknownFact {
                path: path.to_string(),
                event: point.name.to_owned(),
                span,
                is_placeholder,
                suggestion: is_argument.then(|| "args".to_owned()).or(near),
                facts,
                elsewhere: if is_argument { Vec::new() } else { events_with_fact(path) },
            });
        }
    }
}

/// Returns the names of the events that have a fact of this name, at most the first four.
fn events_with_fact(path: &Path) -> Vec<&'static str> {
    const MOST: usize = 4;
    let rows = hook_point::HOOK_POINTS.iter().filter(|row| !row.is_transcript_event());
    let with_fact = rows.filter(|row| matches!(row.resolve_path(path), PathMeaning::Fact(_)));
    with_fact.map(|row| row.name).take(MOST).collect()
}

/// Returns the name of the declared output that a path reads at this hook point; `None` for other paths. Only the hook
/// point `directive_return` has outputs.
fn output_name<'p>(point: &HookPointRow, path: &'p Path) -> Option<&'p str> {
    hook_point::declared_output(point.point, path).map(|(name, _)| name)
}

/// Returns the name of the output that a path reads at the hook point `agent_end`; `None` for other paths. At this hook
/// point, `outputs` holds the outputs that the thread has returned so far.
fn output_at_end<'p>(point: &HookPointRow, path: &'p Path) -> Option<&'p str> {
    match path.segments.as_slice() {
        [Segment::Name(root), Segment::Name(name), ..] if point.point == HookPoint::AgentEnd && root == "outputs" => {
            Some(name)
        }
        _ => None,
    }
}

pub fn unknown_output<'d>(
    name: &str,
    directive: Option<String>,
    span: Span,
    declared: impl Iterator<Item = &'d String>,
) -> InterfaceError {
    let declared: Vec<String> = declared.cloned().collect();
    let suggestion = closest(name, declared.iter().map(String::as_str));
    InterfaceError::UnknownOutput { name: name.to_owned(), directive, span, suggestion, declared }
}

/// Returns the name of each output that a hook reads, with the span of the path or placeholder that reads the output.
pub fn read_outputs(hook: &HookDecl) -> Vec<(&str, Span)> {
    let point = hook_point::row_of(hook.event);
    let in_condition = hook.condition.iter().flat_map(|c| condition_paths(&c.node));
    let read =
        in_condition.chain(hook.placeholders.facts.iter().map(|placeholder| (&placeholder.path, placeholder.span)));
    let name = |path| output_name(point, path).or_else(|| output_at_end(point, path));
    read.filter_map(|(path, span)| Some((name(path)?, span))).collect()
}

/// Checks the placeholders in the knowledge that a hook fetches. `own` is the directive that declares the hook; `None`
/// if a settings file declares the hook. The check reads the knowledge, so the compilation of a plan calls this
/// function only for live hooks.
pub fn check_content(items: &Items<'_>, hook: &HookDecl, own: Option<&Composed>, found: &mut Diagnostics) {
    let point = hook_point::row_of(hook.event);
    for (path, span) in content_facts(items, hook) {
        check_fact(&path, span, true, (point, own), found);
    }
}

/// Returns the facts that the knowledge of a fetching hook reads, with the place of each placeholder. Only a
/// placeholder whose first segment is a fact of the hook point counts; the model gets any other `${…}` as text.
pub fn content_facts(items: &Items<'_>, hook: &HookDecl) -> Vec<(Path, Span)> {
    let point = hook_point::row_of(hook.event);
    let knowledge = hook.fetched.as_ref().filter(|_| hook.enabled).and_then(|id| items.knowledge(id));
    let Some(knowledge) = knowledge.filter(|knowledge| knowledge.body.node.contains("${")) else { return Vec::new() };
    let body = &knowledge.body;
    let verbatim = body.span.len() == body.node.len();
    let read = template::scan_knowledge(body.span.source, &body.node, body.span.start as usize);
    let facts = semantics::template::placeholders(&read).filter(
        |placeholder| matches!(placeholder.path.segments.first(), Some(Segment::Name(root)) if point.has_fact(root)),
    );
    facts.map(|one| (one.path.clone(), if verbatim { one.span } else { body.span })).collect()
}

/// Reports a hook whose action executes or signs an item that the grants of its directive do not allow. If the chain
/// declares no permissions, the grants of the spawn parent apply, so nothing is reported.
fn check_grants(hook: &HookDecl, own: &Composed, found: &mut Diagnostics) {
    let (Some(action), Some(permissions)) = (&hook.action, &own.permissions) else { return };
    let Some((kind, id)) = action.node.item() else { return };
    let primary = if matches!(action.node, HookAction::Execute { .. }) {
        Primary::Execute
    } else if matches!(action.node, HookAction::Sign { .. }) {
        Primary::Sign
    } else {
        return;
    };
    let Some(id) = ItemId::parse(id).ok().filter(|_| hook.has_static_id()) else { return };
    let Some(item_type) = ItemType::of(kind) else { return };
    let capability = CapabilityRequest { primary, item_type, item_id: Some(&id), space: None }.capability();
    let grants = CapabilitySet::new(permissions.value.grants.iter().map(|g| g.pattern.0.as_str()));
    if grants.first_match(&capability).is_none() {
        let (id, granted) = (hook.id.node.clone(), permissions.origin.span);
        found.push(HookError::Beyond { id, capability, span: hook.item_span(), granted });
    }
}

/// Checks the types in the condition of a hook: compiles the condition again, now with the types of the directive's
/// inputs and outputs.
fn check_input_types(hook: &HookDecl, own: &Composed, found: &mut Diagnostics) {
    let kind_at = |field: &FieldDecl, inside: &[Segment]| field.parts.kind_at(field.kind, inside);
    let input = |name: &str, inside: &[Segment]| kind_at(&own.inputs.get(name)?.value, inside);
    let output = |name: &str, inside: &[Segment]| kind_at(&own.outputs.get(name)?.value, inside);
    check_condition_types(hook, &input, &output, found);
}

/// Reports the errors in a hook's condition that only the types of inputs and outputs reveal. `input` and `output` take
/// the name of an input or output, and a path inside its value (empty for the whole value). Both functions return the
/// type at the path; `None` if the type is unknown.
pub fn check_condition_types(
    hook: &HookDecl,
    input: &dyn Fn(&str, &[Segment]) -> Option<FieldType>,
    output: &dyn Fn(&str, &[Segment]) -> Option<FieldType>,
    found: &mut Diagnostics,
) {
    let point = hook_point::row_of(hook.event);
    let Some(condition) = &hook.condition else { return };
    let typed = |path: &Path| point.resolve_path(path) == PathMeaning::Input || output_name(point, path).is_some();
    if !condition_paths(&condition.node).iter().any(|(path, _)| typed(path)) {
        return;
    }
    let kind_of = |path: &Path| match (point.resolve_path(path), path.segments.as_slice()) {
        (PathMeaning::Fact(kind), _) => kind,
        (PathMeaning::Input, [_, Segment::Name(name), inside @ ..]) => input(name, inside).map(FieldType::value_type),
        (PathMeaning::Open, [_, Segment::Name(_), inside @ ..]) => {
            output(output_name(point, path)?, inside).map(FieldType::value_type)
        }
        (PathMeaning::Input | PathMeaning::Open | PathMeaning::Nothing, _) => None,
    };
    if let Err(faults) = Condition::compile_typed(&condition.node, &kind_of) {
        found.syntax(crate::item::hook::condition_errors(faults));
    }
}

/// Maximum number of errors for which the closest name is searched as a suggestion.
const MAX_SUGGESTIONS: usize = 1_000;

/// Reports an input that the directive's chain does not declare. Reports nothing if declarations of the chain may be
/// missing because of syntax errors.
pub fn check_input(name: &str, span: Span, own: &Composed, found: &mut Diagnostics) {
    if !own.inputs.contains_key(name) && !own.chain.iter().any(|link| link.is_incomplete) {
        // Each search compares all names, so searches for thousands of unknown names would be slow.
        let near = || closest(name, own.inputs.keys().map(String::as_str));
        found.push(InterfaceError::UnknownInput {
            name: name.to_owned(),
            directive: own.id.to_string(),
            span: Some(span),
            suggestion: (found.len() < MAX_SUGGESTIONS).then(near).flatten(),
            declared: WordList::new(own.inputs.keys()),
        });
    }
}

/// Reports a hook that passes text of the model or of a tool as a parameter of a command, because the text could inject
/// a command.
fn check_untrusted_parameters(items: &Items<'_>, hook: &HookDecl, found: &mut Diagnostics) {
    let Some(HookAction::Execute { item_type: ItemKind::Tool, item_id, .. }) = hook.action.as_ref().map(|a| &a.node)
    else {
        return;
    };
    for placeholder in hook.placeholders.facts.iter().filter(|h| hook_point::is_untrusted(&h.path)) {
        let Some(parameter) = placeholder.field.strip_prefix("params.") else { continue };
        let parameter = parameter.split('.').next().unwrap_or(parameter);
        let tool = ItemId::parse(item_id).ok().filter(|_| hook.has_static_id()).and_then(|id| items.tool(&id));
        let command = match tool.as_ref().map(|t| &t.spec.kind) {
            // A command tool gets its parameters as arguments, and a shell script as variables, so each parameter can
            // become part of a command.
            Some(ToolKind::Command { .. } | ToolKind::Script { language: ScriptLanguage::Shell, .. }) => true,
            Some(ToolKind::Builtin { .. } | ToolKind::Script { .. } | ToolKind::Http(_) | ToolKind::Mcp { .. })
            | None => parameter == "command",
        };
        if command {
            found.push(HookError::UntrustedParameter {
                id: hook.id.node.clone(),
                path: placeholder.path.to_string(),
                parameter: parameter.to_owned(),
                span: placeholder.span,
            });
        }
    }
}

/// Checks that the item, the extends parent and the limit that an action names exist. If the id of the item contains a
/// placeholder, instead checks that a hook of a settings file has grants.
fn check_names(items: &Items<'_>, hook: &HookDecl, action: &HookAction, found: &mut Diagnostics) {
    let span = hook.item_span();
    if let Some(parent) = action.parent().and_then(|id| ItemId::parse(id).ok()) {
        if !items.exists(ItemKind::Directive, &parent) {
            found.push(ExtendsError::Unknown {
                id: parent.to_string(),
                span,
                suggestion: items.nearest(ItemKind::Directive, parent.as_str()),
                by_hook: Some(hook.id.node.clone()),
            });
        }
        return;
    }
    if let HookAction::Raise { limit, .. } = action
        && crate::semantics::limits::LimitName::parse(limit).is_none()
    {
        found.push(super::limit::unknown_limit_error(limit, hook.item_span()));
    }
    let Some((kind, id)) = action.item() else { return };
    if !hook.has_static_id() {
        let own = matches!(hook.source, HookSource::Directive { .. });
        if hook.grants.is_empty() && !own {
            found.push(HookError::Ungranted { id: hook.id.node.clone(), span: hook.item_span() });
        }
        return;
    }
    let Ok(id) = ItemId::parse(id) else { return };
    if action.knowledge().is_some() {
        if items.knowledge(&id).is_none() {
            report_unknown(items, &Spanned::new(id, span), Some(&hook.id.node), found);
        }
        return;
    }
    if !items.exists(kind, &id) {
        let suggestion = items.nearest(kind, id.as_str());
        found.push(ItemError::Unknown { kind, id: id.to_string(), span: Some(span), suggestion });
    }
}

/// Checks the parameters that a hook passes to a directive or a tool. The check composes the called directive, but the
/// plan does not depend on it.
pub fn call(items: &Items<'_>, hook: &HookDecl, found: &mut Diagnostics) {
    let Some(action) = hook.action.as_ref().filter(|_| hook.enabled && hook.has_static_id()) else { return };
    let HookAction::Execute { item_type, item_id, params: Value::Object(params) } = &action.node else { return };
    let Some(id) = ItemId::parse(item_id).ok().filter(|id| items.exists(*item_type, id)) else { return };
    let call = super::interface::LiteralCall::of_hook(params, &hook.placeholders.params, hook.item_span());
    if *item_type == ItemKind::Directive {
        super::interface::check_directive_call(items, &id, &call, found);
    } else if let Some(tool) = items.tool(&id) {
        super::interface::check_tool_call(&id, &tool.spec.parameters, &call, found);
    }
}

/// Reports parameters of a call (`call.input.NAME`) that a hook reads although no tool has them. If the condition of
/// the hook is true only for calls of certain tools, only the parameters of these tools count. The function reads the
/// tools, so only `rye check` calls it.
pub fn check_call_parameters(items: &Items<'_>, hook: &HookDecl, found: &mut Diagnostics) {
    let Some(condition) = hook.condition.as_ref().filter(|_| hook.enabled) else { return };
    let placeholders = hook.placeholders.facts.iter().map(|placeholder| (&placeholder.path, placeholder.span));
    let parameter = |(path, span): (&Path, Span)| match path.segments.as_slice() {
        [Segment::Name(call), Segment::Name(input), Segment::Name(name), ..] if call == "call" && input == "input" => {
            Some((name.clone(), span))
        }
        _ => None,
    };
    let paths = condition_paths(&condition.node).into_iter().chain(placeholders);
    let mut read: Vec<(String, Span, bool)> =
        paths.filter_map(parameter).map(|(name, span)| (name, span, false)).collect();
    collect_searched_parameters(&condition.node, &mut read);
    if read.is_empty() {
        return;
    }
    let required = required_tools(items, &condition.node);
    let Some(known) = known_parameters(items, required.as_deref()) else { return };
    let tool = required.iter().flatten().next();
    for (name, span, is_searched) in read.into_iter().filter(|(name, ..)| !known.names.contains(name)) {
        let suggestion = closest(&name, known.names.iter().map(String::as_str));
        // A tool that accepts any parameter may accept this one, unless the name resembles a declared parameter.
        if !known.is_complete && suggestion.is_none() {
            continue;
        }
        found.push(HookError::UnknownParameter {
            id: hook.id.node.clone(),
            tool: tool.map(ToString::to_string),
            name,
            is_searched,
            span,
            suggestion,
            known: known.names.iter().filter(|_| tool.is_some()).cloned().collect(),
        });
    }
}

/// Adds the names of parameters that a condition looks for in `call.input`, such as `command` in `call.input contains
/// "command"`. Each name is added with its span and with `true`, because the condition searches for the name.
fn collect_searched_parameters(expr: &Expr, all: &mut Vec<(String, Span, bool)>) {
    match &expr.kind {
        ExprKind::List(parts) | ExprKind::All(parts) | ExprKind::Any(parts) => {
            for part in parts {
                collect_searched_parameters(part, all);
            }
        }
        ExprKind::Not(inner) => collect_searched_parameters(inner, all),
        ExprKind::Compare { op: op @ (CompareOp::Contains | CompareOp::In), left, right } => {
            let (whole, part) = if *op == CompareOp::In { (right, left) } else { (left, right) };
            if let (ExprKind::Path(path), ExprKind::Literal(Value::String(name))) = (&whole.kind, &part.kind)
                && path.to_string() == "call.input"
            {
                all.push((name.clone(), part.span, true));
            }
        }
        ExprKind::Literal(_)
        | ExprKind::Path(_)
        | ExprKind::Exists(_)
        | ExprKind::Length(_)
        | ExprKind::Negate(_)
        | ExprKind::Compare { .. }
        | ExprKind::Arithmetic { .. } => {}
    }
}

struct KnownParameters {
    names: BTreeSet<String>,
    /// True if `names` lists every parameter that a call can have.
    is_complete: bool,
}

/// Returns the parameters of the calls for which a hook can fire. `required` lists the tools that the condition of the
/// hook names (see [`required_tools`]).
///
/// - If `required` is set, returns the parameters of these tools. `None` if the list is empty, or if a tool does not
///   exist or accepts parameters that its schema does not list.
/// - If `required` is not set, returns the parameters of all tools and primaries, and the inputs of all directives,
///   because calls can start directives too.
fn known_parameters(items: &Items<'_>, required: Option<&[ItemId]>) -> Option<KnownParameters> {
    if let Some(required) = required {
        let tools: Vec<_> = required.iter().map(|id| items.tool(id)).collect::<Option<_>>()?;
        let names: Option<Vec<_>> = tools.iter().map(|tool| listed_parameters(&tool.spec.parameters)).collect();
        let names: BTreeSet<String> = names?.into_iter().flat_map(|properties| properties.keys().cloned()).collect();
        return (!tools.is_empty()).then_some(KnownParameters { names, is_complete: true });
    }
    let (tools, directives) = (items.list(ItemKind::Tool), items.list(ItemKind::Directive));
    let tools = tools.iter().filter_map(|entry| items.tool(&entry.id));
    let schemas = tools.map(|tool| tool.spec.parameters.clone());
    let primaries = Primary::ALL.into_iter().map(|primary| primary.definition().schema);
    let directives = directives.iter().filter_map(|entry| items.directive(&entry.id));
    let names = directives.flat_map(|directive| directive.inputs.keys().cloned().collect::<Vec<_>>()).collect();
    let mut known = KnownParameters { names, is_complete: true };
    for schema in schemas.chain(primaries) {
        known.is_complete &= listed_parameters(&schema).is_some();
        let properties = schema.get("properties").and_then(Value::as_object);
        known.names.extend(properties.into_iter().flat_map(|properties| properties.keys().cloned()));
    }
    Some(known)
}

/// Returns the tools for whose calls a condition can be true; `None` if the condition can be true for calls of any
/// tool. A comparison (`==` or `in`) of `call.item_id` or `call.name` with literals limits the tools. An `&&` limits
/// the tools if one of its parts does, and an `||` if all of its parts do.
pub fn required_tools(items: &Items<'_>, expr: &Expr) -> Option<Vec<ItemId>> {
    match &expr.kind {
        ExprKind::All(parts) => parts.iter().find_map(|part| required_tools(items, part)),
        ExprKind::Any(parts) => {
            let all: Option<Vec<_>> = parts.iter().map(|part| required_tools(items, part)).collect();
            all.map(|all| all.concat()).filter(|all| !all.is_empty())
        }
        ExprKind::Compare { op: CompareOp::Eq, left, right } => {
            if let ExprKind::Path(path) = &left.kind {
                return named_tools(items, path, right);
            }
            if let ExprKind::Path(path) = &right.kind { named_tools(items, path, left) } else { None }
        }
        ExprKind::Compare { op: CompareOp::In, left, right } => {
            if let ExprKind::Path(path) = &left.kind {
                named_tools(items, path, right)
            } else {
                None
            }
        }
        ExprKind::Compare { .. }
        | ExprKind::Literal(_)
        | ExprKind::Path(_)
        | ExprKind::Exists(_)
        | ExprKind::List(_)
        | ExprKind::Length(_)
        | ExprKind::Not(_)
        | ExprKind::Negate(_)
        | ExprKind::Arithmetic { .. } => None,
    }
}

fn literal_text(expr: &Expr) -> Option<&str> {
    if let ExprKind::Literal(Value::String(text)) = &expr.kind { Some(text) } else { None }
}

/// Returns the tools that a condition names by comparing `fact` with `compared`, a literal text or a list of literal
/// texts. The texts are ids if the fact is `call.item_id`, and names of tools if the fact is `call.name`. `None` for
/// any other fact, for any other form of `compared`, and if a text is not a valid id or not the name of a tool.
fn named_tools(items: &Items<'_>, fact: &Path, compared: &Expr) -> Option<Vec<ItemId>> {
    let by_name = match fact.to_string().as_str() {
        "call.item_id" => false,
        "call.name" => true,
        _ => return None,
    };
    let texts: Vec<&str> = if let ExprKind::List(all) = &compared.kind {
        all.iter().map(literal_text).collect::<Option<_>>()?
    } else if let ExprKind::Literal(Value::Array(all)) = &compared.kind {
        all.iter().map(Value::as_str).collect::<Option<_>>()?
    } else {
        vec![literal_text(compared)?]
    };
    let find = |text: &&str| {
        if by_name {
            items.list(ItemKind::Tool).iter().find(|entry| tool_name(&entry.id) == **text).map(|entry| entry.id.clone())
        } else {
            ItemId::parse(text).ok()
        }
    };
    texts.iter().map(find).collect()
}
