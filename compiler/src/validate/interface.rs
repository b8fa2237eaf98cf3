//! Checks of inputs: undeclared placeholders, unused declarations, and calls with wrong parameters (`language.md` 2 and
//! 6).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use rye_grammar::condition::{Path, Segment};
use rye_grammar::template::{InputPlaceholder, WhenMissing};
use rye_grammar::{ItemId, Span, Spanned};
use serde_json::{Map, Value};

use crate::compose::{Composed, ComposedHook, HookScope, compose_all};
use crate::diagnostics::{Diagnostics, InterfaceError, WordList, closest};
use crate::hook::PlanVerdict;
use crate::item::directive::fields;
use crate::item::{Dependency, FieldDecl, HookDecl, Items, shorten};
use crate::plan::FieldType;
use crate::resolve::{Inputs, Launch};
use crate::semantics::hook_point::{self, PathMeaning};
use crate::semantics::template;
use crate::semantics::value::are_equal;
use crate::tool_spec::RESOLVED_CONFIG;
use crate::world::{ItemKind, Space};

use super::incremental::Merge;
use super::mistyped_placeholders;
use super::undeclared_fields::{DeclaredFields, FieldReads};
use crate::semantics::value_bounds::violated_bound;

/// The inputs that directives declare, and their use: the spans of the used declarations, the spans of the unused
/// declarations, and the declared types. Also contains the declared types of outputs.
#[derive(Default)]
pub struct InputUses {
    used: BTreeSet<Span>,
    unused: BTreeMap<Span, String>,
    declared: DeclaredFields,
}

/// A memo of the inputs that hooks read, by the hook's span.
#[derive(Default)]
pub struct HookInputs {
    by_hook: HashMap<Span, Arc<ReadInputs>>,
}

#[derive(Default)]
struct ReadInputs {
    names: Vec<String>,
    /// True if the hook reads `inputs` as a whole.
    all: bool,
}

impl ReadInputs {
    fn add_path(&mut self, path: &Path) {
        let mut segments = path.segments.iter();
        if segments.next() != Some(&Segment::Name("inputs".into())) {
            return;
        }
        match segments.next() {
            Some(Segment::Name(name)) => self.names.push(name.clone()),
            Some(Segment::Number(_)) => {}
            None => self.all = true,
        }
    }

    fn reads(&self, name: &str) -> bool {
        self.all || self.names.iter().any(|n| n == name)
    }
}

impl InputUses {
    /// Records the inputs and outputs that a composition declares. For each input that a directive of the project
    /// declares, also records whether the body or a hook uses the input.
    pub fn add(&mut self, items: &Items<'_>, composed: &Composed, of_hooks: &mut HookInputs) {
        self.declared.add_composed(composed);
        self.declared.is_incomplete |= composed.chain.iter().any(|link| items.is_broken(link.file.source));
        let Some(leaf) = composed.leaf().filter(|_| !composed.inputs.is_empty()) else { return };
        // Hooks are analyzed only if the body does not read the input.
        let mut hooks: Option<Vec<Arc<ReadInputs>>> = None;
        for (name, field) in &composed.inputs {
            let in_project = composed.chain.iter().any(|d| {
                d.file.space == Space::Project && d.inputs.get(name).is_some_and(|f| f.span == field.value.span)
            });
            if !in_project {
                continue;
            }
            // A file with errors may use any input.
            let used = items.is_broken(leaf.file.source)
                || template::input_placeholders(&leaf.body_template).any(|h| h.name == *name)
                // A mistyped placeholder of the input has its own diagnostic, so the input counts as used.
                || mistyped_placeholders::find_mistyped(leaf, &|input| input == name).iter().any(|l| l.input.is_some())
                || hooks.get_or_insert_with(|| of_hooks.of_hooks(items, composed)).iter().any(|h| h.reads(name));
            if used { self.used(field.value.span) } else { self.unused(field.value.span, name) }
        }
    }

    /// Records that a directive could not be composed on at least one route. The directive may declare any input, so
    /// undeclared inputs are not reported.
    pub fn add_uncomposed(&mut self) {
        self.declared.is_incomplete = true;
    }

    fn used(&mut self, span: Span) {
        self.unused.remove(&span);
        self.used.insert(span);
    }

    fn unused(&mut self, span: Span, name: &str) {
        if !self.used.contains(&span) {
            self.unused.entry(span).or_insert_with(|| name.to_owned());
        }
    }
}

impl Merge for InputUses {
    fn merge(&mut self, other: &Self) {
        self.declared.merge(&other.declared);
        for span in &other.used {
            self.used(*span);
        }
        for (span, name) in &other.unused {
            self.unused(*span, name);
        }
    }
}

/// Reports the inputs that no directive uses. Each element of `several` covers a part of the directives: an input that
/// is unused in one part can be used in another.
pub fn report_unused_inputs(several: &[&InputUses], found: &mut Diagnostics) {
    let mut unused: BTreeMap<Span, &String> =
        several.iter().flat_map(|uses| &uses.unused).map(|(span, name)| (*span, name)).collect();
    for uses in several {
        if uses.used.len() < unused.len() {
            for span in &uses.used {
                unused.remove(span);
            }
        } else {
            unused.retain(|span, _| !uses.used.contains(span));
        }
    }
    found.extend(unused.into_iter().map(|(span, name)| InterfaceError::UnusedInput { name: name.clone(), span }));
}

/// Checks the hooks of the project's files that read inputs or outputs. Each element of `several` covers a part of the
/// directives.
pub fn check_hook_files(items: &Items<'_>, several: &[&InputUses], found: &mut Diagnostics) {
    let reads = FieldReads::of_hook_files(items, &|_| true);
    if reads.is_empty() {
        return;
    }
    let mut declared = DeclaredFields::default();
    for uses in several {
        declared.merge(&uses.declared);
    }
    // Hooks of the project's files also apply to directives of the other spaces.
    for entry in items.list(ItemKind::Directive).iter().filter(|entry| entry.space != Space::Project) {
        if let Some(directive) = items.directive(&entry.id) {
            declared.add_directive(&directive);
        }
    }
    reads.report(&declared, found);
}

pub fn undeclared_input<'d>(name: &str, span: Span, declared: impl Iterator<Item = &'d String>) -> InterfaceError {
    let declared: Vec<String> = declared.cloned().collect();
    let suggestion = closest(name, declared.iter().map(String::as_str));
    InterfaceError::UndeclaredInput { name: name.to_owned(), span, suggestion, declared }
}

/// Returns the name of each input that a hook's condition and action read, with the span of the path or placeholder
/// that reads the input. At an event without inputs, such a path is an unknown fact.
pub fn read_inputs(hook: &HookDecl) -> Vec<(&str, Span)> {
    let point = hook_point::row_of(hook.event);
    let in_condition = hook.condition.iter().flat_map(|c| super::hook::condition_paths(&c.node));
    let read =
        in_condition.chain(hook.placeholders.facts.iter().map(|placeholder| (&placeholder.path, placeholder.span)));
    let of_paths = read.filter(|(path, _)| point.resolve_path(path) == PathMeaning::Input);
    of_paths
        .filter_map(|(path, span)| Some((input_of(path)?, span)))
        .chain(hook.placeholders.inputs.iter().map(|placeholder| (placeholder.name.as_str(), placeholder.span)))
        .collect()
}

/// Returns the name of the input that a path reads; `None` for other paths.
pub fn input_of(path: &Path) -> Option<&str> {
    match path.segments.as_slice() {
        [Segment::Name(root), Segment::Name(name), ..] if root == "inputs" => Some(name),
        _ => None,
    }
}

/// Reports inputs and outputs of the last directive of the chain whose type is neither the type that the nearest
/// ancestor declares nor narrower. The hooks and the callers of the ancestor rely on the declared type.
pub fn check_retyped(composed: &Composed, found: &mut Diagnostics) {
    let Some((leaf, ancestors)) = composed.chain.split_last() else { return };
    let pairs = [("input", &leaf.inputs), ("output", &leaf.outputs)];
    for (what, fields) in pairs {
        for (name, field) in fields {
            let declarations = ancestors.iter().rev().filter_map(|link| {
                let fields = if what == "input" { &link.inputs } else { &link.outputs };
                Some((link.id().to_string(), fields.get(name)?))
            });
            let Some((base, declared)) = { declarations }.next() else { continue };
            let kind = declared.kind;
            let is_narrower = kind == field.kind || (kind == FieldType::Number && field.kind == FieldType::Integer);
            if !is_narrower || !field.parts.fits(&declared.parts) {
                found.push(InterfaceError::Retyped {
                    what,
                    name: name.clone(),
                    found: field.parts.describe(field.kind),
                    expected: declared.parts.describe(kind),
                    base,
                    span: field.span,
                    base_span: declared.span,
                });
            }
        }
    }
}

impl HookInputs {
    fn of_hooks(&mut self, items: &Items<'_>, composed: &Composed) -> Vec<Arc<ReadInputs>> {
        let is_evaluated = |h: &&ComposedHook| h.is_live() || matches!(h.verdict, PlanVerdict::Never { .. });
        let mut read: Vec<_> =
            composed.hooks.iter().filter(is_evaluated).map(|h| self.inputs_read_by(items, &h.decl)).collect();
        if composed.scope == HookScope::Possible {
            // A hook that the composition leaves out, because it never fires for this directive, also counts as a
            // reader of its inputs.
            let line = &items.hook_files().line;
            let excluded = line.excluded(composed.id.as_str());
            let hooks = line.hooks.iter().zip(excluded).filter(|(_, is_excluded)| *is_excluded);
            read.extend(hooks.map(|(hook, _)| self.inputs_read_by(items, hook)));
        }
        read
    }

    /// Returns the inputs that a hook's condition, action and fetched knowledge read.
    fn inputs_read_by(&mut self, items: &Items<'_>, hook: &HookDecl) -> Arc<ReadInputs> {
        if let Some(known) = self.by_hook.get(&hook.span) {
            if let Some(id) = &hook.fetched {
                items.record_read(|| Dependency::Item(ItemKind::Knowledge, id.clone()));
            }
            return known.clone();
        }
        let mut named = ReadInputs::default();
        for path in hook.compiled.iter().flat_map(|c| c.paths()) {
            named.add_path(path);
        }
        for placeholder in &hook.placeholders.facts {
            named.add_path(&placeholder.path);
        }
        named.names.extend(hook.placeholders.inputs.iter().map(|h| h.name.clone()));
        if let Some(knowledge) = hook.fetched.as_ref().and_then(|id| items.knowledge(id)) {
            let body = &knowledge.body;
            let content = rye_grammar::template::scan_knowledge(body.span.source, &body.node, body.span.start as usize);
            for placeholder in template::placeholders(&content) {
                named.add_path(&placeholder.path);
            }
        }
        let named = Arc::new(named);
        self.by_hook.insert(hook.span, named.clone());
        named
    }
}

/// Reports placeholders of the body that name no input.
pub fn check_placeholders(composed: &Composed, found: &mut Diagnostics) {
    let Some(leaf) = composed.leaf() else { return };
    for placeholder in template::input_placeholders(&leaf.body_template) {
        super::hook::check_input(&placeholder.name, placeholder.span, composed, found);
        if let Some(field) = composed.inputs.get(&placeholder.name) {
            check_default(placeholder, &field.value, found);
        }
    }
}

/// Compares the default of a placeholder with the declaration of its input.
fn check_default(placeholder: &InputPlaceholder, field: &FieldDecl, found: &mut Diagnostics) {
    let (name, span, declared) = (placeholder.name.clone(), placeholder.span, field.span);
    // The default starts with an operator of another template language (`:-`), which has its own diagnostic.
    if let WhenMissing::Default(default) = &placeholder.when_missing
        && default.starts_with(['|', '-', '='])
    {
        return;
    }
    match (&placeholder.when_missing, &field.default) {
        (WhenMissing::Default(default), Some(_)) => {
            let (default, why) = (shorten(default), "has a default");
            found.push(InterfaceError::UnusedDefault { name, default, why, span, declared });
        }
        (WhenMissing::Default(default), None) if field.required => {
            let (default, why) = (shorten(default), "is required");
            found.push(InterfaceError::UnusedDefault { name, default, why, span, declared });
        }
        (WhenMissing::Empty, Some(_)) => {
            found.push(InterfaceError::UnusedOptional { name, why: "has a default", span, declared });
        }
        (WhenMissing::Empty, None) if field.required => {
            found.push(InterfaceError::UnusedOptional { name, why: "is required", span, declared });
        }
        (WhenMissing::Default(text), None) if is_wrong_scalar(field.kind, text) => {
            found.extend(fields::check(field, &Value::String(text.clone()), Some(placeholder.span)));
        }
        (WhenMissing::Refuse, None) if field.is_marked_optional => {
            found.push(InterfaceError::NeededInput { name, span, declared });
        }
        (WhenMissing::Default(_) | WhenMissing::Refuse | WhenMissing::Empty, _) => {}
    }
}

/// Returns true if `kind` is the type integer, number or boolean, and `text` is not a value of this type.
fn is_wrong_scalar(kind: FieldType, text: &str) -> bool {
    let value: Value = serde_json::from_str(text.trim()).unwrap_or_default();
    match kind {
        FieldType::Integer => value.as_i64().is_none(),
        FieldType::Number => !value.is_number(),
        FieldType::Boolean => !value.is_boolean(),
        FieldType::String | FieldType::Array | FieldType::Object => false,
    }
}

/// A call in a hook or a body, with its arguments. Only literal arguments can be checked before the run.
pub struct LiteralCall {
    pub arguments: Vec<LiteralArgument>,
    /// True if no other arguments can follow, so that a missing argument is an error.
    pub complete: bool,
    /// The span of the id of the called item.
    pub span: Span,
}

/// An argument of a call; `value` is `None` if the value is known only at run time.
pub struct LiteralArgument {
    pub name: Spanned<String>,
    pub value: Option<Value>,
    /// The value of an argument that is one placeholder `{input:name}`, if the caller passes no value for this input.
    pub by_default: Option<InputDefault>,
    pub span: Span,
}

/// The default of an input whose placeholder is the whole value of an argument.
pub struct InputDefault {
    pub input: String,
    pub value: Value,
    /// The span of the declaration of the input.
    pub span: Span,
}

impl LiteralCall {
    /// Converts the parameters of a hook to the arguments of a call. `places` holds the name of each parameter and the
    /// span of its value; `span` is the span of the called item's id.
    pub fn of_hook(params: &Map<String, Value>, places: &[(Spanned<String>, Span)], span: Span) -> Self {
        let argument = |(name, value): (&String, &Value)| {
            let place = places.iter().find(|(written, _)| written.node == *name);
            let text = value.to_string();
            LiteralArgument {
                name: place.map_or_else(|| Spanned::new(name.clone(), span), |(written, _)| written.clone()),
                value: Some(value.clone()).filter(|_| !text.contains("${") && !text.contains("{input:")),
                by_default: None,
                span: place.map_or(span, |(_, at)| *at),
            }
        };
        Self { arguments: params.iter().map(argument).collect(), complete: true, span }
    }

    fn lacks(&self, name: &str) -> bool {
        self.complete && !self.arguments.iter().any(|argument| argument.name.node == name)
    }
}

/// Checks the arguments of a call of a directive: unknown inputs, wrong values, and required inputs without a value.
pub fn check_directive_call(items: &Items<'_>, id: &ItemId, call: &LiteralCall, found: &mut Diagnostics) {
    let launch = Launch { inputs: Inputs::Unknown, model: &|_| None };
    // Errors of the called directive are reported when that directive itself is checked.
    let (routes, _) = compose_all(items, id, &launch, &mut Diagnostics::new());
    let Some(callee) = routes.first() else { return };
    for argument in &call.arguments {
        let name = &argument.name.node;
        let Some(field) = callee.inputs.get(name) else {
            if callee.chain.iter().any(|link| link.is_incomplete) {
                continue;
            }
            found.push(InterfaceError::UnknownInput {
                name: name.clone(),
                directive: id.to_string(),
                span: Some(argument.name.span),
                suggestion: closest(name, callee.inputs.keys().map(String::as_str)),
                declared: WordList::new(callee.inputs.keys()),
            });
            continue;
        };
        if let Some(value) = &argument.value {
            found.extend(fields::check(&field.value, value, Some(argument.span)));
        }
    }
    for (name, field) in &callee.inputs {
        if field.value.required && field.value.default.is_none() && call.lacks(name) {
            found.push(InterfaceError::MissingInput {
                name: name.clone(),
                directive: id.to_string(),
                declared: Some(field.value.span),
                used: Some(call.span),
            });
        }
    }
}

/// Checks a call of a tool against its schema: unknown and missing parameters, and literals of a wrong type or outside
/// of an `enum`.
pub fn check_tool_call(id: &ItemId, schema: &Value, call: &LiteralCall, found: &mut Diagnostics) {
    let properties = schema.get("properties").and_then(Value::as_object);
    let known: Vec<String> = properties.into_iter().flat_map(|map| map.keys().cloned()).collect();
    let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    let lists_all = listed_parameters(schema).is_some();
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let missing: Vec<&str> = required.filter(|name| *name != RESOLVED_CONFIG && call.lacks(name)).collect();
    let unknown = call.arguments.iter().filter(|argument| !known.contains(&argument.name.node)).count();
    // A single unknown name probably means the single parameter without a value.
    let meant = missing.first().filter(|_| missing.len() == 1 && unknown == 1);
    for argument in &call.arguments {
        let name = &argument.name.node;
        let Some(property) = properties.and_then(|map| map.get(name)) else {
            // If a required parameter is missing, the call is refused anyway, so an unknown one is reported only if the
            // schema forbids it.
            if is_closed || (lists_all && missing.is_empty()) {
                found.push(InterfaceError::UnknownParameter {
                    name: name.clone(),
                    tool: id.to_string(),
                    span: argument.name.span,
                    is_refused: is_closed,
                    suggestion: meant
                        .map(|meant| (*meant).to_owned())
                        .or_else(|| closest(name, known.iter().map(String::as_str))),
                    known: known.clone(),
                });
            }
            continue;
        };
        let Some(value) = &argument.value else { continue };
        if let Some(expected) = expected_by_schema(property, value) {
            found.push(InterfaceError::Type {
                what: format!("the parameter `{name}` of the tool `{id}`"),
                expected,
                found: format!("`{}`", shorten(&value.to_string())),
                span: Some(argument.span),
                declared: None,
            });
        }
    }
    for name in missing {
        found.push(InterfaceError::MissingParameter { name: name.to_owned(), tool: id.to_string(), span: call.span });
    }
}

/// Returns the parameters in `properties` of a tool's schema; `None` if there are none, or if a keyword of the schema
/// may allow other parameters. A missing `additionalProperties` does not count as such a keyword: the schema then
/// accepts other parameters, but no caller can know them.
pub fn listed_parameters(schema: &Value) -> Option<&Map<String, Value>> {
    const OPEN: [&str; 9] = [
        "patternProperties",
        "unevaluatedProperties",
        "allOf",
        "anyOf",
        "oneOf",
        "$ref",
        "if",
        "dependentSchemas",
        "propertyNames",
    ];
    let is_open = schema.get("additionalProperties").is_some_and(|other| *other != Value::Bool(false))
        || OPEN.iter().any(|keyword| schema.get(keyword).is_some());
    schema.get("properties").and_then(Value::as_object).filter(|_| !is_open)
}

/// Describes the values that a schema allows by its type, its `enum` and the bounds of numbers, texts and lists; `None`
/// if no such keyword excludes `value`. Other keywords are validated at run time.
pub fn expected_by_schema(schema: &Value, value: &Value) -> Option<String> {
    expected_type(schema, value).or_else(|| violated_bound(schema, value))
}

fn expected_type(schema: &Value, value: &Value) -> Option<String> {
    let choices = schema.get("enum").and_then(Value::as_array);
    // An empty `enum` has an error of its own.
    if let Some(choices) = choices.filter(|choices| !choices.is_empty()) {
        let fits = choices.iter().any(|choice| are_equal(choice, value));
        let words = choices
            .iter()
            .map(|choice| format!("`{}`", choice.as_str().map_or_else(|| choice.to_string(), str::to_owned)));
        return (!fits).then(|| format!("one of {}", words.collect::<Vec<_>>().join(", ")));
    }
    let types: Vec<&str> = match schema.get("type")? {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return None,
    };
    let fits = |name: &&str| match FieldType::ALL.into_iter().find(|kind| kind.name() == *name) {
        Some(kind) => kind.fits(value),
        None => *name != "null" || value.is_null(),
    };
    let phrase = |name: &&str| match FieldType::ALL.into_iter().find(|kind| kind.name() == *name) {
        Some(kind) => fields::expected(kind, &[]),
        None => (*name).to_owned(),
    };
    let phrases: Vec<String> = types.iter().map(phrase).collect();
    (!types.is_empty() && !types.iter().any(fits)).then(|| phrases.join(" or "))
}
