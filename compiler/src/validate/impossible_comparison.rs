//! Finds comparisons in conditions that are false for every value of a fact or an input because of the type of the fact
//! or input: an integer that is compared with a text, or the length of a number (`language.md` 7).

use std::collections::BTreeMap;

use indexmap::IndexMap;
use rye_grammar::Span;
use rye_grammar::condition::{ArithmeticOp, CompareOp, Expr, ExprKind, Path, Segment};
use serde_json::Value;

use super::hook::{condition_paths, required_tools};
use crate::compose::{Composed, WithOrigin};
use crate::diagnostics::closest;
use crate::item::{FieldDecl, HookDecl, Items};
use crate::plan::FieldType;
use crate::semantics::condition::{Condition, Implication, PathValues, known_type};
use crate::semantics::hook_point::{self, FAILURE_RULE, HookPointRow, PathMeaning};
use crate::semantics::value::Type;

/// Facts that hold an id or are absent. They are never an empty text.
const ID_FACTS: [&str; 4] = ["thread_id", "parent_thread_id", "previous_thread_id", "call.id"];

/// Facts that hold a list of objects.
const OBJECT_LISTS: [&str; 2] = ["messages", "images"];

/// The types of the facts, inputs and call parameters that a condition may read.
pub struct ValueTypes<'a> {
    point: &'a HookPointRow,
    /// The inputs of the directive.
    inputs: &'a IndexMap<String, WithOrigin<FieldDecl>>,
    /// The declared outputs of the directive.
    outputs: &'a IndexMap<String, WithOrigin<FieldDecl>>,
    /// The types of the parameters of the tools for whose calls the condition can be true. Empty if the condition can
    /// be true for calls of any tool.
    parameters: BTreeMap<String, Type>,
}

/// The part of a condition that makes it false, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImpossiblePart {
    pub reason: String,
    pub span: Span,
}

/// Returns the part of a hook's condition that is false for a directive because of the types of its values.
pub fn impossible_part(items: &Items<'_>, composed: &Composed, hook: &HookDecl) -> Option<ImpossiblePart> {
    ValueTypes::of_directive(items, composed, hook).impossible_part(&hook.condition.as_ref()?.node)
}

/// Returns the part of a condition of the error classification that is false for every failure because of the types of
/// the facts.
pub fn impossible_part_of_failure(condition: &Expr) -> Option<ImpossiblePart> {
    let (fields, parameters) = (IndexMap::new(), BTreeMap::new());
    ValueTypes { point: &FAILURE_RULE, inputs: &fields, outputs: &fields, parameters }.impossible_part(condition)
}

impl<'a> ValueTypes<'a> {
    /// Returns the types of the values that a hook's condition reads in a directive.
    pub fn of_directive(items: &Items<'_>, composed: &'a Composed, hook: &HookDecl) -> Self {
        let condition = hook.condition.as_ref().map(|condition| &condition.node);
        let parameters = condition.map(|condition| parameter_types(items, condition)).unwrap_or_default();
        Self { point: hook_point::row_of(hook.event), inputs: &composed.inputs, outputs: &composed.outputs, parameters }
    }

    /// Returns the part that makes a condition false for all values; `None` if the types of the values allow the
    /// condition to be true.
    pub fn impossible_part(&self, condition: &Expr) -> Option<ImpossiblePart> {
        match &condition.kind {
            ExprKind::All(parts) => {
                let part = parts.iter().find_map(|part| self.impossible_part(part));
                part.or_else(|| self.contradiction(parts))
            }
            ExprKind::Any(parts) => {
                let mut all = parts.iter().map(|part| self.impossible_part(part));
                let first = all.next()??;
                all.all(|part| part.is_some()).then_some(ImpossiblePart { span: condition.span, ..first })
            }
            ExprKind::Compare { op, left, right } => {
                let reason = self.impossible_reason(*op, left, right)?;
                Some(ImpossiblePart { reason, span: condition.span })
            }
            ExprKind::Path(path) | ExprKind::Exists(path) => {
                Some(ImpossiblePart { reason: self.without_fields(path)?, span: condition.span })
            }
            ExprKind::Length(_) | ExprKind::Negate(_) | ExprKind::Arithmetic { .. } => {
                let reason = "a number is never true: compare it with another value".to_owned();
                Some(ImpossiblePart { reason, span: condition.span })
            }
            ExprKind::Literal(_) | ExprKind::List(_) | ExprKind::Not(_) => None,
        }
    }

    fn impossible_reason(&self, op: CompareOp, left: &Expr, right: &Expr) -> Option<String> {
        match op {
            CompareOp::Eq => self.unequal(left, right).or_else(|| self.unequal(right, left)),
            CompareOp::Lt | CompareOp::Lte | CompareOp::Gt | CompareOp::Gte => {
                self.unordered(left, right).or_else(|| self.unordered(right, left))
            }
            CompareOp::In => {
                let ExprKind::List(items) = &right.kind else { return self.not_contained(right, left) };
                let mut all = items.iter().map(|item| self.unequal(left, item));
                let first = all.next()??;
                all.all(|reason| reason.is_some()).then_some(first)
            }
            CompareOp::Contains => self.not_contained(left, right),
            CompareOp::Matches => {
                let (ExprKind::Path(path), ExprKind::Literal(pattern)) = (&left.kind, &right.kind) else { return None };
                self.without_fields(path).or_else(|| {
                    let kind = self.type_of(path).filter(|kind| *kind != Type::String && pattern.is_string())?;
                    let meant =
                        if kind == Type::Object { format!(": match a field of `{path}`") } else { String::new() };
                    Some(format!("`{path}` is {}, which matches no pattern{meant}", with_article(kind)))
                })
            }
            CompareOp::Ne => None,
        }
    }

    /// Returns the reason why `whole` never contains `part`: only a text contains a text, and only a list contains
    /// other values.
    fn not_contained(&self, whole: &Expr, part: &Expr) -> Option<String> {
        if let ExprKind::Path(path) = &whole.kind
            && let Some(reason) = self.without_fields(path)
        {
            return Some(reason);
        }
        let types = |path: &Path| self.type_of(path);
        let (outer, inner) = (known_type(whole, &types)?, known_type(part, &types)?);
        let (name, value) = (operand_text(whole)?, operand_text(part)?);
        match outer {
            Type::Integer | Type::Number | Type::Boolean => {
                Some(format!("{name} is {}, which cannot contain a value", with_article(outer)))
            }
            Type::String if inner == Type::Array => {
                Some(format!("{name} is a string, which contains no list: compare with each text, joined by `||`"))
            }
            Type::String if inner != Type::String => {
                Some(format!("{name} is a string, but {value} is {}", with_article(inner)))
            }
            Type::Array => {
                let element = self.element_type(whole)?;
                let is_number = |kind: Type| matches!(kind, Type::Integer | Type::Number);
                let fits = element == inner || (is_number(element) && is_number(inner)) || inner == Type::Null;
                if fits {
                    return self.not_an_element(whole, part);
                }
                Some(format!(
                    "each element of {name} is {}, but {value} is {}",
                    with_article(element),
                    with_article(inner)
                ))
            }
            Type::Object => self.not_a_field(whole, part),
            Type::String | Type::Null => None,
        }
    }

    /// Returns the reason why an object never contains a literal: `contains` looks for a field, and the object has no
    /// field of this name.
    fn not_a_field(&self, object: &Expr, literal: &Expr) -> Option<String> {
        let (ExprKind::Path(path), ExprKind::Literal(Value::String(name))) = (&object.kind, &literal.kind) else {
            return None;
        };
        let mut field = path.clone();
        field.segments.push(Segment::Name(name.clone()));
        (self.point.resolve_path(&field) == PathMeaning::Nothing)
            .then(|| format!("`{path}` is an object without a field `{name}`: compare a field of `{path}`"))
    }

    /// Returns the reason why a list never contains a literal: the declaration lists the possible elements.
    fn not_an_element(&self, list: &Expr, literal: &Expr) -> Option<String> {
        let (ExprKind::Path(path), ExprKind::Literal(literal)) = (&list.kind, &literal.kind) else { return None };
        let choices = &self.declared_field(path)?.parts.items.as_ref()?.choices;
        let is_text = literal.is_string() && choices.iter().all(Value::is_string);
        (is_text && !choices.is_empty() && !choices.contains(literal))
            .then(|| format!("each element of `{path}` is one of {}", list_choices(choices)))
    }

    /// Returns the type of the elements of a list; `None` if it is not declared.
    fn element_type(&self, list: &Expr) -> Option<Type> {
        let ExprKind::Path(path) = &list.kind else { return None };
        if OBJECT_LISTS.contains(&path.to_string().as_str()) && self.point.resolve_path(path) != PathMeaning::Input {
            return Some(Type::Object);
        }
        self.declared_field(path)?.parts.items.as_ref().map(|part| part.kind.value_type())
    }

    /// Returns the operand of an `&&` that contradicts another operand: `a contains "secret" && !(a contains "sec")`.
    fn contradiction(&self, operands: &[Expr]) -> Option<ImpossiblePart> {
        let values = |path: &Path| PathValues { domain: None, kind: self.type_of(path) };
        for operand in operands {
            let ExprKind::Not(inner) = &operand.kind else { continue };
            let Ok(inner) = Condition::compile(inner) else { continue };
            for other in operands.iter().filter(|other| other.span != operand.span) {
                let Ok(other) = Condition::compile(other) else { continue };
                if other.implies_any(&[&inner], &values) == Implication::Holds {
                    let (other, inner) = (other.text(&ToString::to_string), inner.text(&ToString::to_string));
                    let reason = format!("`{inner}` is true whenever `{other}` is true");
                    return Some(ImpossiblePart { reason, span: operand.span });
                }
            }
        }
        None
    }

    /// Returns the reason why a path reads nothing: it names a field of an input or output that is a text, a number or
    /// a boolean, or a field that an object does not declare.
    fn without_fields(&self, path: &Path) -> Option<String> {
        let [root, name, inside, ..] = path.segments.as_slice() else { return None };
        let whole = Path { segments: vec![root.clone(), name.clone()] };
        let declared = self.declared_field(&whole)?;
        let kind = declared.kind.value_type();
        let fields = &declared.parts.fields;
        if let (Type::Object, Segment::Name(field)) = (kind, inside)
            && !fields.is_empty()
            && !fields.contains_key(field)
        {
            let near = closest(field, fields.keys().map(String::as_str));
            let meant = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            return Some(format!("`{whole}` declares no field `{field}`{meant}"));
        }
        matches!(kind, Type::String | Type::Integer | Type::Number | Type::Boolean)
            .then(|| format!("`{whole}` is {}, which has no fields", with_article(kind)))
    }

    /// Returns the reason why a value is never equal to a literal.
    fn unequal(&self, value: &Expr, literal: &Expr) -> Option<String> {
        let ExprKind::Literal(literal) = &literal.kind else { return None };
        let ExprKind::Path(path) = &value.kind else {
            let reason = self.without_length(value).or_else(|| length_mismatch(value, literal));
            let reason = reason.or_else(|| no_remainder(value, literal));
            return reason.filter(|_| !literal.is_null());
        };
        if let Some(reason) = self.without_fields(path).filter(|_| !literal.is_null()) {
            return Some(reason);
        }
        let name = path.to_string();
        if let (true, Some(text)) = (self.is_id(path, &name), literal.as_str()) {
            if text.is_empty() {
                return Some(format!("`{name}` is an id or absent, and never empty: write `!exists({name})`"));
            }
            if text.contains('/') {
                return Some(format!("`{name}` is an id of a run, not the id of an item"));
            }
        }
        self.mismatch(path, literal).or_else(|| self.not_a_choice(path, literal))
    }

    /// Returns the reason why a value has no order relative to a literal.
    fn unordered(&self, value: &Expr, literal: &Expr) -> Option<String> {
        let ExprKind::Literal(literal) = &literal.kind else { return None };
        let ExprKind::Path(path) = &value.kind else {
            return self.without_length(value).or_else(|| length_mismatch(value, literal));
        };
        self.without_fields(path).or_else(|| self.mismatch(path, literal))
    }

    /// Returns the reason why the `length` of a value does not exist.
    fn without_length(&self, value: &Expr) -> Option<String> {
        let ExprKind::Length(inner) = &value.kind else { return None };
        let ExprKind::Path(path) = &inner.kind else { return None };
        let kind = self.type_of(path)?;
        matches!(kind, Type::Integer | Type::Number | Type::Boolean)
            .then(|| format!("`{path}` is {}, which has no length", with_article(kind)))
    }

    fn mismatch(&self, path: &Path, literal: &Value) -> Option<String> {
        type_mismatch(path, self.type_of(path)?, literal)
    }

    fn not_a_choice(&self, path: &Path, literal: &Value) -> Option<String> {
        let choices = &self.declared_field(path)?.choices;
        if choices.is_empty() || literal.is_null() || choices.contains(literal) {
            return None;
        }
        let is_number = choices.iter().all(Value::is_number);
        // Numbers compare by value: `2` is equal to `2.0`.
        (!is_number).then(|| format!("`{path}` is one of {}", list_choices(choices)))
    }

    fn is_id(&self, path: &Path, name: &str) -> bool {
        ID_FACTS.contains(&name) && matches!(self.point.resolve_path(path), PathMeaning::Fact(_))
    }

    /// Returns the type of a fact or an input; `None` if the value may have several types.
    fn type_of(&self, path: &Path) -> Option<Type> {
        match self.point.resolve_path(path) {
            PathMeaning::Input => Some(self.declared_field(path)?.kind.value_type()),
            // The status of a failed request is a number, or absent.
            PathMeaning::Fact(None) | PathMeaning::Open if path.to_string() == "error.status" => Some(Type::Integer),
            PathMeaning::Fact(kind) => kind.filter(|kind| *kind != Type::Null),
            PathMeaning::Open => match hook_point::declared_output(self.point.point, path) {
                Some((name, inside)) => {
                    let field = &self.outputs.get(name)?.value;
                    field.parts.kind_at(field.kind, inside).map(FieldType::value_type)
                }
                None => self.parameters.get(call_parameter(path)?).copied(),
            },
            PathMeaning::Nothing => None,
        }
    }

    /// Returns the declaration of the input or output that a path reads as a whole; `None` for any other path.
    fn declared_field(&self, path: &Path) -> Option<&FieldDecl> {
        let [_, Segment::Name(name)] = path.segments.as_slice() else { return None };
        match self.point.resolve_path(path) {
            PathMeaning::Input => Some(&self.inputs.get(name)?.value),
            PathMeaning::Open if hook_point::declared_output(self.point.point, path).is_some() => {
                Some(&self.outputs.get(name)?.value)
            }
            PathMeaning::Open | PathMeaning::Fact(_) | PathMeaning::Nothing => None,
        }
    }
}

/// Returns the reason why a fact of a type is never equal to a literal of another type.
pub fn type_mismatch(path: &Path, kind: Type, literal: &Value) -> Option<String> {
    let other = Type::of(literal);
    let is_number = |kind: Type| matches!(kind, Type::Integer | Type::Number);
    if other == Type::Null || kind == other || (is_number(kind) && is_number(other)) {
        return None;
    }
    let meant = match (literal.as_str(), kind) {
        (Some(word @ ("true" | "false")), Type::Boolean) => format!(": write `{word}`"),
        (Some(text), Type::Integer | Type::Number) if text.parse::<f64>().is_ok() => format!(": write `{text}`"),
        (Some(text), Type::Array) => format!(": write `{path} contains \"{text}\"`"),
        (_, Type::Object) => format!(": compare a field of `{path}`"),
        _ => String::new(),
    };
    Some(format!("`{path}` is {}, but `{literal}` is {}{meant}", with_article(kind), with_article(other)))
}

/// Returns the reason why a length is never equal to a literal that is no number.
fn length_mismatch(value: &Expr, literal: &Value) -> Option<String> {
    let ExprKind::Length(inner) = &value.kind else { return None };
    let ExprKind::Path(path) = &inner.kind else { return None };
    if literal.is_number() || literal.is_null() {
        return None;
    }
    let number = literal.as_str().filter(|text| text.parse::<f64>().is_ok());
    let meant = number.map_or_else(String::new, |text| format!(": write `{text}`"));
    Some(format!("`length({path})` is an integer, but `{literal}` is {}{meant}", with_article(Type::of(literal))))
}

/// Returns the reason why a remainder (`turn % 5`) is never equal to a number: a remainder is smaller than the divisor.
fn no_remainder(value: &Expr, literal: &Value) -> Option<String> {
    let ExprKind::Arithmetic { op: ArithmeticOp::Remainder, left, right } = &value.kind else { return None };
    let (ExprKind::Path(path), ExprKind::Literal(divisor)) = (&left.kind, &right.kind) else { return None };
    let (size, number) = (divisor.as_u64()?, literal.as_u64()?);
    (size > 0 && number >= size).then(|| format!("`{path} % {size}` is at most {}", size - 1))
}

fn list_choices(choices: &[Value]) -> String {
    let known = choices.iter().map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned));
    format!("`{}`", known.collect::<Vec<_>>().join("`, `"))
}

fn with_article(kind: Type) -> String {
    let article = if matches!(kind, Type::Integer | Type::Array | Type::Object) { "an" } else { "a" };
    format!("{article} {kind}")
}

/// Returns the text of an operand for a message; `None` if the operand is not a path, a literal or a list.
fn operand_text(operand: &Expr) -> Option<String> {
    match &operand.kind {
        ExprKind::Path(path) => Some(format!("`{path}`")),
        ExprKind::Literal(literal) => Some(format!("`{literal}`")),
        ExprKind::List(_) => Some("the list".to_owned()),
        ExprKind::Exists(_)
        | ExprKind::Length(_)
        | ExprKind::Not(_)
        | ExprKind::Negate(_)
        | ExprKind::All(_)
        | ExprKind::Any(_)
        | ExprKind::Compare { .. }
        | ExprKind::Arithmetic { .. } => None,
    }
}

/// Returns the name of the call parameter that a path reads: `command` for `call.input.command`. `None` for other
/// paths.
fn call_parameter(path: &Path) -> Option<&str> {
    match path.segments.as_slice() {
        [Segment::Name(call), Segment::Name(input), Segment::Name(name)] if call == "call" && input == "input" => {
            Some(name)
        }
        _ => None,
    }
}

/// Returns the types of the call parameters that a condition reads, if the condition is true only for calls of certain
/// tools, and all of these tools declare the parameter with the same single type.
fn parameter_types(items: &Items<'_>, condition: &Expr) -> BTreeMap<String, Type> {
    let paths = condition_paths(condition);
    let mut names = paths.iter().filter_map(|(path, _)| call_parameter(path)).peekable();
    if names.peek().is_none() {
        return BTreeMap::new();
    }
    let Some(ids) = required_tools(items, condition) else { return BTreeMap::new() };
    let Some(tools) = ids.iter().map(|id| items.tool(id)).collect::<Option<Vec<_>>>() else { return BTreeMap::new() };
    let declared = |name: &str| {
        let types = tools.iter().map(|tool| {
            let schema = tool.spec.parameters.get("properties")?.get(name)?;
            Type::parse(schema.get("type")?.as_str()?)
        });
        let mut types = types.collect::<Option<Vec<_>>>()?;
        types.dedup();
        let &[kind] = types.as_slice() else { return None };
        Some(kind)
    };
    names.filter_map(|name| Some((name.to_owned(), declared(name)?))).collect()
}
