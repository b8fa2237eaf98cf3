//! Parts of conditions that are never true although the whole condition can be true: an operand of `||`, or a member of
//! the list of `in`. The types and the possible values of facts and inputs exclude such a part (`language.md` 7).
//! Limits and grants do not count, because a condition may name calls and costs beyond them as a precaution.

use rye_grammar::Span;
use rye_grammar::condition::{CompareOp, Expr, ExprKind, Path};
use serde_json::Value;

use super::domain;
use super::impossible_comparison::{ImpossiblePart, ValueTypes};
use crate::compose::Composed;
use crate::item::{HookDecl, Items};
use crate::resolve::KnownFacts;
use crate::semantics::condition::{Condition, Fuel, Verdict};
use crate::semantics::hook_point::{self, HookPointRow, PathMeaning};
use crate::semantics::value::Type;

/// Maximum number of pairs of operands of one `&&` that are compared.
const MAX_PAIRS: usize = 64;

/// The operand of an `&&`, or two operands, that make a condition false.
struct FalsePart {
    span: Span,
    condition: Condition,
    /// The texts of two operands that are never true together; `None` if one operand is never true.
    together: Option<[String; 2]>,
}

/// The parts of one condition that are never true, for the directives that were added so far.
#[derive(Debug, Clone, Default)]
pub struct FalseParts(Vec<ImpossiblePart>);

impl FalseParts {
    /// Returns the parts of a hook's condition that are never true for a directive. `among` limits the search to the
    /// parts that are never true for earlier directives; `None` for the first directive.
    pub fn of_directive(
        items: &Items<'_>,
        composed: &Composed,
        hook: &HookDecl,
        known: &mut KnownFacts<'_>,
        among: Option<&Self>,
    ) -> Self {
        let Some(condition) = &hook.condition else { return Self::default() };
        let mut candidates = Vec::new();
        collect_candidates(&condition.node, &mut candidates);
        let is_open = |part: &Expr| among.is_none_or(|among| among.0.iter().any(|known| known.span == part.span));
        candidates.retain(is_open);
        if candidates.is_empty() {
            return Self::default();
        }
        let point = hook_point::row_of(hook.event);
        let types = ValueTypes::of_directive(items, composed, hook);
        let mut parts: Vec<ImpossiblePart> = Vec::new();
        for part in candidates {
            // If a part is reported, the parts inside it are not reported again.
            if parts.iter().any(|outer| outer.span.start <= part.span.start && part.span.end <= outer.span.end) {
                continue;
            }
            let reason = types.impossible_part(&part).map(|found| found.reason);
            let reason = reason.or_else(|| {
                let compiled = Condition::compile(&part).ok()?;
                let domain = |path: &Path| domain::fact_domain(point, path, Some(composed));
                let verdict = known.condition_verdict_over(&compiled, &domain, &mut Fuel::share(1));
                (verdict == Verdict::False).then(|| describe_false_part(point, &part, &compiled))
            });
            parts.extend(reason.map(|reason| ImpossiblePart { reason, span: part.span }));
        }
        Self(parts)
    }

    /// Retains the parts that are also never true in `other`.
    pub fn intersect(&mut self, other: &Self) {
        self.0.retain(|part| other.0.iter().any(|found| found.span == part.span));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn into_parts(self) -> Vec<ImpossiblePart> {
        self.0
    }
}

/// Collects the operands of each `||`, and a comparison for each member of the list of an `in`. Parts below a `!` do
/// not count, because their falseness makes the condition true.
fn collect_candidates(condition: &Expr, parts: &mut Vec<Expr>) {
    match &condition.kind {
        ExprKind::All(operands) => operands.iter().for_each(|operand| collect_candidates(operand, parts)),
        ExprKind::Any(operands) => {
            for operand in operands {
                parts.push(operand.clone());
                collect_candidates(operand, parts);
            }
        }
        ExprKind::Compare { op: CompareOp::In, left, right } => {
            let members = if let ExprKind::List(members) = &right.kind { members.as_slice() } else { &[] };
            // A member with the span of the whole condition has no place of its own.
            let members = members.iter().filter(|member| member.span != condition.span);
            parts.extend(members.map(|member| Expr {
                kind: ExprKind::Compare { op: CompareOp::Eq, left: left.clone(), right: Box::new(member.clone()) },
                span: member.span,
            }));
        }
        ExprKind::Literal(_)
        | ExprKind::List(_)
        | ExprKind::Path(_)
        | ExprKind::Exists(_)
        | ExprKind::Length(_)
        | ExprKind::Not(_)
        | ExprKind::Negate(_)
        | ExprKind::Compare { .. }
        | ExprKind::Arithmetic { .. } => {}
    }
}

/// Explains why a part is false for all values of its facts.
fn describe_false_part(point: &HookPointRow, part: &Expr, compiled: &Condition) -> String {
    let paths = compiled.paths();
    let closed = paths.iter().find_map(|path| closed_values(point, path));
    match (closed, paths.first(), &part.kind) {
        (Some(values), ..) => values,
        (None, _, ExprKind::Literal(Value::Bool(_))) => "it is the literal `false`".to_owned(),
        (None, Some(path), _) => format!("it is false for each value of `{path}`"),
        (None, None, _) => "it is false for all facts".to_owned(),
    }
}

fn closed_values(point: &HookPointRow, path: &Path) -> Option<String> {
    let path = path.to_string();
    let words = domain::closed_vocabulary(point, &path)?;
    Some(format!("`{path}` is one of `{}`", words.join("`, `")))
}

/// Explains why the condition of a hook is always false. Returns the explanation and the span of the cause: the first
/// operand of an `&&` that is false by itself, else the whole condition. The explanation lists the possible values of a
/// fact with a closed vocabulary, or names a boolean fact that is compared with the text `true` or `false`.
pub fn describe_constant_false(hook: &HookDecl, span: Span) -> (String, Span) {
    let point = hook_point::row_of(hook.event);
    let part = hook.condition.as_ref().and_then(|condition| false_part(point, &condition.node));
    let paths = match &part {
        Some(part) => part.condition.paths(),
        None => hook.compiled.iter().flat_map(|c| c.paths()).collect(),
    };
    let closed = paths.iter().find_map(|path| {
        let path = path.to_string();
        domain::closed_vocabulary(point, &path).map(|words| (path, words))
    });
    let because = match (&part, paths.first()) {
        (Some(FalsePart { together: Some([one, other]), .. }), _) => {
            format!("`{one}` and `{other}` are never true together")
        }
        (Some(_), Some(path)) => format!("the part with `{path}` is false for all facts"),
        (Some(_) | None, _) => "its condition is false for all facts".to_owned(),
    };
    let quoted = hook.condition.as_ref().and_then(|condition| quoted_boolean(point, &condition.node));
    let values = match (closed, quoted) {
        (Some((path, words)), _) => format!("; `{path}` is one of `{}`", words.join("`, `")),
        (None, Some((path, word))) => format!("; `{path}` is a boolean, but `\"{word}\"` is a string: write `{word}`"),
        (None, None) => String::new(),
    };
    (format!("{because}{values}"), part.map_or(span, |part| part.span))
}

/// Returns the first boolean fact that a condition compares with the text `true` or `false`, and this text; `None` if
/// there is none.
fn quoted_boolean<'e>(point: &HookPointRow, condition: &'e Expr) -> Option<(&'e Path, &'e str)> {
    match &condition.kind {
        ExprKind::Compare { left, right, .. } => [(left, right), (right, left)].into_iter().find_map(|(fact, text)| {
            let (ExprKind::Path(path), ExprKind::Literal(literal)) = (&fact.kind, &text.kind) else { return None };
            let word = literal.as_str().filter(|word| matches!(*word, "true" | "false"))?;
            (point.resolve_path(path) == PathMeaning::Fact(Some(Type::Boolean))).then_some((path, word))
        }),
        ExprKind::List(parts) | ExprKind::All(parts) | ExprKind::Any(parts) => {
            parts.iter().find_map(|part| quoted_boolean(point, part))
        }
        ExprKind::Length(inner) | ExprKind::Not(inner) | ExprKind::Negate(inner) => quoted_boolean(point, inner),
        ExprKind::Literal(_) | ExprKind::Path(_) | ExprKind::Exists(_) | ExprKind::Arithmetic { .. } => None,
    }
}

/// Returns the first operand of a `&&` that is false for all values of the facts, with its span. If there is none,
/// returns the first two operands that are never true together, with the span of the second one. `None` if there are
/// none either, or if the condition is no `&&`.
fn false_part(point: &HookPointRow, condition: &Expr) -> Option<FalsePart> {
    let ExprKind::All(parts) = &condition.kind else { return None };
    let is_false = |compiled: &Condition| {
        let domain = |path: &Path| domain::fact_domain(point, path, None);
        let verdict = KnownFacts::empty().condition_verdict_over(compiled, &domain, &mut Fuel::share(1));
        verdict == Verdict::False
    };
    let compiled: Vec<(&Expr, Condition)> =
        parts.iter().filter_map(|part| Some((part, Condition::compile(part).ok()?))).collect();
    if let Some((part, condition)) = compiled.iter().find(|(_, condition)| is_false(condition)) {
        return Some(FalsePart { span: part.span, condition: condition.clone(), together: None });
    }
    let pairs =
        compiled.iter().enumerate().flat_map(|(at, second)| compiled.iter().take(at).map(move |first| (first, second)));
    pairs.take(MAX_PAIRS).find_map(|((first, one), (second, other))| {
        let kind = ExprKind::All(vec![(*first).clone(), (*second).clone()]);
        let condition = Condition::compile(&Expr { kind, span: second.span }).ok().filter(is_false)?;
        let texts = [one, other].map(|condition| condition.text(&ToString::to_string));
        Some(FalsePart { span: second.span, condition, together: Some(texts) })
    })
}
