//! Checks of inputs: undeclared placeholders, unused declarations, and calls with wrong parameters (`language.md` 2 and
//! 6).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use rye_grammar::condition::{Path, Segment};
use rye_grammar::{ItemId, Span, Spanned};
use serde_json::{Map, Value};

use crate::compose::{Composed, ComposedHook, compose_all};
use crate::diagnostics::{Diagnostics, InterfaceError, closest};
use crate::hook::PlanVerdict;
use crate::item::directive::fields;
use crate::item::{Dependency, HookDecl, Items};
use crate::resolve::{Inputs, Launch};
use crate::semantics::template;
use crate::tool_spec::RESOLVED_CONFIG;
use crate::world::{ItemKind, Space};

use super::incremental::Merge;
use super::mistyped_placeholders;

/// Declarations of inputs by span: those that some directive uses, and the names of those that none uses. Also every
/// declared output.
#[derive(Default)]
pub struct InputUses {
    used: BTreeSet<Span>,
    unused: BTreeMap<Span, String>,
    outputs: BTreeSet<String>,
}

/// A memo of the inputs that hooks read, by the hook's span.
#[derive(Default)]
pub struct HookInputs {
    by_hook: HashMap<Span, Arc<ReadInputs>>,
}

/// The inputs that a hook reads.
#[derive(Default)]
struct ReadInputs {
    names: Vec<String>,
    /// Set if the hook reads `inputs` as a whole.
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
    /// Records the inputs that a composition uses.
    pub fn add(&mut self, items: &Items<'_>, composed: &Composed, of_hooks: &mut HookInputs) {
        self.outputs
            .extend(composed.outputs.keys().filter(|name| !self.outputs.contains(*name)).cloned().collect::<Vec<_>>());
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
                // A mistyped placeholder is reported on its own.
                || mistyped_placeholders::find_mistyped(leaf, &|input| input == name).iter().any(|l| l.input.is_some())
                || hooks.get_or_insert_with(|| of_hooks.of_hooks(items, composed)).iter().any(|h| h.reads(name));
            if used { self.used(field.value.span) } else { self.unused(field.value.span, name) }
        }
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
        for name in &other.outputs {
            if !self.outputs.contains(name) {
                self.outputs.insert(name.clone());
            }
        }
        for span in &other.used {
            self.used(*span);
        }
        for (span, name) in &other.unused {
            self.unused(*span, name);
        }
    }
}

/// Reports inputs that no directive uses.
pub fn report_unused_inputs(several: &[&InputUses], found: &mut Diagnostics) {
    let mut unused: BTreeMap<Span, &String> =
        several.iter().flat_map(|uses| &uses.unused).map(|(span, name)| (*span, name)).collect();
    for uses in several {
        // Iterates over the shorter of the two.
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

/// Reports outputs that a hook of the project's files reads and no directive declares.
pub fn check_hook_outputs(items: &Items<'_>, several: &[&InputUses], found: &mut Diagnostics) {
    let hooks = items.hook_files().project.iter().filter(|h| h.enabled);
    let read: Vec<(&str, Span)> = hooks.flat_map(|hook| super::hook::read_outputs(hook)).collect();
    if read.is_empty() {
        return;
    }
    let declared: BTreeSet<&String> = several.iter().flat_map(|uses| &uses.outputs).collect();
    for (name, span) in read {
        if !declared.iter().any(|known| *known == name) {
            found.push(super::hook::unknown_output(name, None, span, declared.iter().copied()));
        }
    }
}

impl HookInputs {
    fn of_hooks(&mut self, items: &Items<'_>, composed: &Composed) -> Vec<Arc<ReadInputs>> {
        let asked = |h: &&ComposedHook| h.is_live() || matches!(h.verdict, PlanVerdict::Never { .. });
        composed.hooks.iter().filter(asked).map(|h| self.inputs_read_by(items, &h.decl)).collect()
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
        for hole in &hook.holes.facts {
            named.add_path(&hole.path);
        }
        named.names.extend(hook.holes.inputs.iter().map(|h| h.name.clone()));
        if let Some(knowledge) = hook.fetched.as_ref().and_then(|id| items.knowledge(id)) {
            let body = &knowledge.body;
            let content = rye_grammar::template::scan_knowledge(body.span.source, &body.node, body.span.start as usize);
            for hole in template::placeholders(&content) {
                named.add_path(&hole.path);
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
    for hole in template::input_placeholders(&leaf.body_template) {
        super::hook::check_input(&hole.name, hole.span, composed, found);
    }
}

/// Checks a call of a directive with literal parameters. `places` are the parameters' names and values as written,
/// `span` the id that is called.
pub fn call(
    items: &Items<'_>,
    id: &ItemId,
    params: &Map<String, Value>,
    places: &[(Spanned<String>, Span)],
    span: Span,
    found: &mut Diagnostics,
) {
    let launch = Launch { inputs: Inputs::Unknown, model: &|_| None };
    // Errors of the called directive are reported where that directive is checked.
    let (routes, _) = compose_all(items, id, &launch, &mut Diagnostics::new());
    let Some(callee) = routes.first() else { return };
    for (name, value) in params {
        let place = places.iter().find(|(written, _)| written.node == *name);
        let Some(field) = callee.inputs.get(name) else {
            found.push(InterfaceError::UnknownInput {
                name: name.clone(),
                directive: id.to_string(),
                span: Some(place.map_or(span, |(written, _)| written.span)),
                suggestion: closest(name, callee.inputs.keys().map(String::as_str)),
                declared: callee.inputs.keys().cloned().collect(),
            });
            continue;
        };
        let open = value.as_str().is_some_and(|s| s.contains("${") || s.contains("{input:"));
        if !open {
            found.extend(fields::check(&field.value, value, Some(place.map_or(span, |(_, at)| *at))));
        }
    }
    for (name, field) in &callee.inputs {
        if field.value.required && field.value.default.is_none() && !params.contains_key(name) {
            found.push(InterfaceError::MissingInput {
                name: name.clone(),
                directive: id.to_string(),
                declared: Some(field.value.span),
                used: Some(span),
            });
        }
    }
}

/// Checks the parameter names of a tool call: unknown ones and missing required ones. Values are checked at run time,
/// with placeholders filled in.
pub fn check_tool_call(
    id: &ItemId,
    schema: &Value,
    params: &Map<String, Value>,
    places: &[(Spanned<String>, Span)],
    span: Span,
    found: &mut Diagnostics,
) {
    let properties = schema.get("properties").and_then(Value::as_object);
    let known: Vec<String> = properties.into_iter().flat_map(|map| map.keys().cloned()).collect();
    if schema.get("additionalProperties") == Some(&Value::Bool(false)) {
        for name in params.keys().filter(|name| !known.contains(name)) {
            let place = places.iter().find(|(written, _)| written.node == *name);
            found.push(InterfaceError::UnknownParameter {
                name: name.clone(),
                tool: id.to_string(),
                span: place.map_or(span, |(written, _)| written.span),
                suggestion: closest(name, known.iter().map(String::as_str)),
                known: known.clone(),
            });
        }
    }
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    for name in required.filter(|name| *name != RESOLVED_CONFIG && !params.contains_key(*name)) {
        found.push(InterfaceError::MissingParameter { name: name.to_owned(), tool: id.to_string(), span });
    }
}
