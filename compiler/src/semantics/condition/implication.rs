//! Implication between conditions, decided by trying every value that the comparisons can distinguish. Patterns,
//! arithmetic and comparisons of two paths have no finite list of values to try. Each of them is assumed to be true or
//! false independently of all values. An implication that holds under this assumption holds for real values. If the
//! implication fails only because of the assumption, the result is `Unproved`, unless a text that a pattern matches
//! refutes the implication.

use std::collections::{BTreeMap, BTreeSet};

use rye_grammar::condition::Path;
use serde_json::{Map, Number, Value};

use super::pattern::Pattern;
use super::samples::boundary_values;
use super::{Comparison, CompiledNode, Condition, Domain, Verdict, evaluate};
use crate::semantics::facts::{Facts, first_name};
use crate::semantics::value::Type;

/// The result of [`Condition::implies_any`].
#[derive(Debug, Clone, PartialEq)]
pub enum Implication {
    Holds,
    /// The implication fails for the facts in `example`: the condition holds, and none of the other conditions holds.
    Fails {
        example: String,
    },
    /// Neither [`Self::Holds`] nor [`Self::Fails`] could be proved.
    Unproved,
}

/// The possible values and the type of a path, as far as they are known before a run. An unknown field is `None`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PathValues {
    pub domain: Option<Domain>,
    pub kind: Option<Type>,
}

/// Maximum number of combinations of truth values that are tried. If there are more, the result is `Unproved`.
const MAX_ASSIGNMENTS: usize = 1 << 16;
/// Maximum number of substrings that the comparisons of one path may search for. Above the maximum, a proof assumes
/// that each comparison of the path is true or false independently of the other comparisons. A search for an example
/// tries values with none, one and all of the substrings.
const MAX_PARTS: usize = 8;
/// Maximum number of pairs of an alternative of the condition and an alternative of the other conditions. Above the
/// maximum, no pair is compared on its own.
const MAX_PAIRS: usize = 1 << 12;
/// The magnitude below which `f64` represents every integer exactly: 2⁵³.
const EXACT: f64 = 9_007_199_254_740_992.0;
/// Separator of the substrings in an example value: a character that occurs in no substring that a condition compares
/// with.
const SEPARATOR: char = '\u{1}';

/// The structure of a condition. An atom is represented by its index in the list of atoms.
#[derive(PartialEq)]
enum Tree {
    Const(bool),
    Atom(usize),
    Not(Box<Tree>),
    All(Vec<Tree>),
    Any(Vec<Tree>),
}

/// A part of a condition that is treated as a single truth value. `path` is the path whose value decides the part. If
/// `path` is `None`, the part is assumed to be true or false independently of all values.
struct Atom<'n> {
    node: &'n CompiledNode,
    key: String,
    path: Option<&'n Path>,
    /// The path and the pattern of a `matches`. Sample texts of the path can only refute an implication.
    pattern: Option<(&'n Path, &'n Pattern)>,
}

impl<'n> Atom<'n> {
    /// Returns the path whose sample values decide the part; `None` if the part is independent of all values.
    fn path(&self, goal: Goal) -> Option<&'n Path> {
        match goal {
            Goal::Proof => self.path,
            Goal::Example => self.path.or_else(|| self.pattern.map(|(path, _)| path)),
        }
    }
}

/// The atoms of one path, and the combinations of truth values that these atoms can have. Each row holds a combination
/// and a value of the path that leads to this combination; `None` stands for an absent value.
struct Choice {
    path: String,
    atoms: Vec<usize>,
    rows: Vec<(Vec<bool>, Option<Value>)>,
}

impl Condition {
    /// Checks the implication: whenever this condition is true, at least one of `others` is true. Different facts may
    /// make different conditions of `others` true. `values` returns the values that the fact at a path can have.
    pub fn implies_any(&self, others: &[&Self], values: &dyn Fn(&Path) -> PathValues) -> Implication {
        let mut atoms: Vec<Atom<'_>> = Vec::new();
        let mut open = lower(&self.root, &mut atoms).into_alternatives();
        let right: Vec<Tree> =
            others.iter().flat_map(|other| lower(&other.root, &mut atoms).into_alternatives()).collect();
        // An alternative that `right` repeats is implied without trying values.
        open.retain(|one| !one.is_repeated(&right));
        if open.is_empty() {
            return Implication::Holds;
        }
        let comparison = Conditions { atoms: &atoms, values };
        let whole = comparison.decide(&open, &right, Goal::Proof);
        if whole != Implication::Unproved {
            return whole;
        }
        // A pair of alternatives has fewer atoms than all alternatives together, so a pair may stay below the maximum
        // of combinations.
        if right.len() > 1 && open.len().saturating_mul(right.len()) <= MAX_PAIRS {
            let is_within = |one: &Tree, other: &Tree| {
                let pair = comparison.decide(std::slice::from_ref(one), std::slice::from_ref(other), Goal::Proof);
                pair == Implication::Holds
            };
            open.retain(|one| !right.iter().any(|other| is_within(one, other)));
            if open.is_empty() {
                return Implication::Holds;
            }
        }
        comparison.decide(&open, &right, Goal::Example)
    }
}

/// The purpose for which values of the paths are tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Goal {
    /// The tried values represent all values, so they can prove an implication.
    Proof,
    /// The tried values are a selection, so they can only refute an implication.
    Example,
}

/// The atoms of the compared conditions, and the function that returns the possible values of a path.
struct Conditions<'c, 'n> {
    atoms: &'c [Atom<'n>],
    values: &'c dyn Fn(&Path) -> PathValues,
}

impl Conditions<'_, '_> {
    /// Checks whether one tree of `right` is true whenever one of `left` is true. With [`Goal::Example`], the result is
    /// never `Holds`.
    fn decide(&self, left: &[Tree], right: &[Tree], goal: Goal) -> Implication {
        let mut used = BTreeSet::new();
        left.iter().chain(right).for_each(|tree| tree.collect_atoms(&mut used));
        let mut groups: BTreeMap<String, (&Path, Vec<usize>)> = BTreeMap::new();
        let mut free: Vec<usize> = Vec::new();
        for n in used {
            match self.atoms.get(n).and_then(|atom| atom.path(goal)) {
                Some(path) => {
                    let name = first_name(&path.to_string()).to_owned();
                    groups.entry(name).or_insert_with(|| (path, Vec::new())).1.push(n);
                }
                None => free.push(n),
            }
        }
        let mut choices = Vec::new();
        let mut is_exact = true;
        for (text, (path, members)) in &groups {
            let of_path = members.iter().filter_map(|n| self.atoms.get(*n));
            let Some(candidates) = candidates(of_path, &(self.values)(path), goal) else {
                free.extend(members);
                continue;
            };
            is_exact &= groups.values().all(|(other, _)| other == path || !is_related(other, path));
            choices.push(choice(text, members, candidates, (self.atoms, goal)));
        }
        is_exact &= free.is_empty();
        let mut total = 1_usize.checked_shl(u32::try_from(free.len()).unwrap_or(u32::MAX)).unwrap_or(usize::MAX);
        if free.len() >= 16 {
            total = usize::MAX;
        }
        let total = choices.iter().fold(total, |product, choice| product.saturating_mul(choice.rows.len()));
        if total > MAX_ASSIGNMENTS {
            return Implication::Unproved;
        }
        let mut truths = vec![false; self.atoms.len()];
        for n in 0..total {
            let mut rest = n;
            let mut example = Vec::new();
            for choice in &choices {
                let Some((row, value)) = choice.rows.get(rest % choice.rows.len().max(1)) else { continue };
                rest /= choice.rows.len().max(1);
                for (atom, truth) in choice.atoms.iter().zip(row) {
                    if let Some(slot) = truths.get_mut(*atom) {
                        *slot = *truth;
                    }
                }
                example.push((&choice.path, value));
            }
            for atom in &free {
                if let Some(slot) = truths.get_mut(*atom) {
                    *slot = rest % 2 == 1;
                }
                rest /= 2;
            }
            let is_true = |trees: &[Tree]| trees.iter().any(|tree| tree.is_true(&truths));
            if is_true(left) && !is_true(right) {
                return if is_exact {
                    Implication::Fails { example: format_example(&example) }
                } else {
                    Implication::Unproved
                };
            }
        }
        match goal {
            Goal::Proof => Implication::Holds,
            Goal::Example => Implication::Unproved,
        }
    }
}

impl Tree {
    /// Returns the alternatives of the tree: the tree is true if one of them is true.
    fn into_alternatives(self) -> Vec<Self> {
        match self {
            Self::Any(any) => any.into_iter().flat_map(Self::into_alternatives).collect(),
            one @ (Self::Const(_) | Self::Atom(_) | Self::Not(_) | Self::All(_)) => vec![one],
        }
    }

    /// Returns true if `others` contains this tree or, for an `All`, one of its members.
    fn is_repeated(&self, others: &[Self]) -> bool {
        others.contains(self) || matches!(self, Self::All(all) if all.iter().any(|one| one.is_repeated(others)))
    }

    fn collect_atoms(&self, found: &mut BTreeSet<usize>) {
        match self {
            Self::Const(_) => {}
            Self::Atom(n) => drop(found.insert(*n)),
            Self::Not(inner) => inner.collect_atoms(found),
            Self::All(all) | Self::Any(all) => all.iter().for_each(|one| one.collect_atoms(found)),
        }
    }

    fn is_true(&self, truths: &[bool]) -> bool {
        match self {
            Self::Const(truth) => *truth,
            Self::Atom(n) => truths.get(*n).copied().unwrap_or_default(),
            Self::Not(inner) => !inner.is_true(truths),
            Self::All(all) => all.iter().all(|one| one.is_true(truths)),
            Self::Any(any) => any.iter().any(|one| one.is_true(truths)),
        }
    }
}

/// Renders the facts of an example. `…` stands for other text.
fn format_example(example: &[(&String, &Option<Value>)]) -> String {
    let shown = |value: &Value| match value.as_f64() {
        Some(number) if number.fract() == 0.0 && number.abs() < EXACT => format!("{number:.0}"),
        _ => value.to_string().replace("\\u0001", "…"),
    };
    let one = |(path, value): &(&String, &Option<Value>)| match value {
        Some(value) => format!("{path} is {}", shown(value)),
        None => format!("{path} is absent"),
    };
    example.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn lower<'n>(node: &'n CompiledNode, atoms: &mut Vec<Atom<'n>>) -> Tree {
    match node {
        CompiledNode::Literal(value) => Tree::Const(*value == Value::Bool(true)),
        CompiledNode::Not(inner) => Tree::Not(Box::new(lower(inner, atoms))),
        CompiledNode::All(all) => Tree::All(all.iter().map(|one| lower(one, atoms)).collect()),
        CompiledNode::Any(any) => Tree::Any(any.iter().map(|one| lower(one, atoms)).collect()),
        CompiledNode::Path(path) | CompiledNode::Exists(path) => atom(node, Some(path), atoms),
        CompiledNode::Compare { .. } => atom(node, compared_path(node), atoms),
        CompiledNode::List(_)
        | CompiledNode::Length(_)
        | CompiledNode::Negate(_)
        | CompiledNode::Matches { .. }
        | CompiledNode::Arithmetic { .. } => atom(node, None, atoms),
    }
}

fn atom<'n>(node: &'n CompiledNode, path: Option<&'n Path>, atoms: &mut Vec<Atom<'n>>) -> Tree {
    // The key of a pattern is its source, because the debug text also depends on whether the pattern is already built.
    let key = if let CompiledNode::Matches { left, pattern } = node {
        format!("{left:?} matches {}", pattern.source())
    } else {
        format!("{node:?}")
    };
    let known = atoms.iter().position(|atom| atom.key == key);
    Tree::Atom(known.unwrap_or_else(|| {
        let pattern = if let CompiledNode::Matches { left, pattern } = node
            && let CompiledNode::Path(path) = left.as_ref()
        {
            Some((path, pattern))
        } else {
            None
        };
        atoms.push(Atom { node, key, path, pattern });
        atoms.len() - 1
    }))
}

/// Returns the path that a comparison compares with a literal, if finitely many sample values of the path decide the
/// comparison. `None` if the comparison has no path or no literal, orders texts, or searches a literal text for the
/// path's value.
fn compared_path(node: &CompiledNode) -> Option<&Path> {
    let (op, path, first, value) = parts_of(node)?;
    let has_text = matches!(value, Value::String(_));
    let is_decided = match op {
        Comparison::Eq | Comparison::Ne => true,
        Comparison::Lt | Comparison::Lte | Comparison::Gt | Comparison::Gte => !has_text,
        // Any part of the literal text may be the value of the path, so no list of values decides the comparison.
        Comparison::In => !(first && has_text),
        Comparison::Contains => first || !has_text,
    };
    is_decided.then_some(path)
}

/// Returns the parts of a comparison between a path and a literal: the operator, the path, a flag that is true if the
/// path is the left operand, and the literal. `None` for any other node.
fn parts_of(node: &CompiledNode) -> Option<(Comparison, &Path, bool, Value)> {
    let CompiledNode::Compare { op, left, right } = node else { return None };
    match (left.as_ref(), right.as_ref()) {
        (CompiledNode::Path(path), other) => Some((*op, path, true, other.literal()?)),
        (other, CompiledNode::Path(path)) => Some((*op, path, false, other.literal()?)),
        _ => None,
    }
}

/// Returns sample values of one path; an inner `None` stands for an absent value. If the samples are for a proof, they
/// lead to every possible result of every comparison. Returns `None` if a number is too large to be exact, or if a
/// proof would need too many samples.
fn candidates<'n>(
    atoms: impl Iterator<Item = &'n Atom<'n>>,
    known: &PathValues,
    goal: Goal,
) -> Option<Vec<Option<Value>>> {
    let (mut values, mut parts): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
    let mut matching: Vec<Vec<String>> = Vec::new();
    for atom in atoms {
        matching.extend(atom.pattern.map(|(_, pattern)| pattern.samples()));
        let Some((op, _, first, value)) = parts_of(atom.node) else { continue };
        match (op, value) {
            (Comparison::In, Value::Array(items)) if first => values.extend(items),
            (Comparison::In, value) if first => values.push(value),
            (Comparison::In, value) => parts.push(value),
            (Comparison::Contains, value) if first => parts.push(value),
            (Comparison::Contains, Value::Array(items)) => values.extend(items),
            (_, value) => values.push(value),
        }
    }
    if let Some(Domain::Values(all)) = &known.domain {
        return Some(all.clone());
    }
    let numbers: Option<Vec<f64>> = values
        .iter()
        .filter_map(|value| if let Value::Number(number) = value { Some(number) } else { None })
        .map(|number| number.as_f64().filter(|number| number.abs() < EXACT))
        .collect();
    let numbers = numbers?;
    let number = |number: f64| Number::from_f64(number).map(Value::Number);
    if let Some(Domain::Number { whole, least, most, optional }) = known.domain {
        let mut around = boundary_values(&numbers, whole);
        around.push(least.map_or(0.0, f64::from));
        around.extend(most);
        around.retain(|n| least.is_none_or(|least| *n >= f64::from(least)) && most.is_none_or(|most| *n <= most));
        let values = around.into_iter().filter_map(number).map(Some);
        return Some(values.chain(optional.then_some(None)).collect());
    }
    let count = parts.len();
    let chosen: Vec<Vec<usize>> = if count <= MAX_PARTS {
        (0..1_usize << count).map(|set| (0..count).filter(|n| set >> n & 1 == 1).collect()).collect()
    } else if goal == Goal::Example {
        [Vec::new(), (0..count).collect()].into_iter().chain((0..count).map(|n| vec![n])).collect()
    } else {
        return None;
    };
    let mut all = vec![Value::Null, true.into(), false.into(), 0.into()];
    all.extend(boundary_values(&numbers, known.kind == Some(Type::Integer)).into_iter().filter_map(number));
    all.extend(values);
    // The texts for each pattern, and one text that joins the first text of each pattern.
    let together: Vec<&str> = matching.iter().filter_map(|texts| texts.first()).map(String::as_str).collect();
    let together = together.join(&SEPARATOR.to_string());
    let matching: Vec<String> =
        matching.into_iter().flatten().chain([together]).filter(|text| !text.is_empty()).collect();
    all.extend(matching.iter().cloned().map(Value::String));
    for chosen in chosen {
        let some: Vec<&Value> = chosen.iter().filter_map(|n| parts.get(*n)).collect();
        let texts: Vec<&str> = some.iter().filter_map(|part| part.as_str()).collect();
        let text = texts.iter().fold(SEPARATOR.to_string(), |text, part| format!("{text}{part}{SEPARATOR}"));
        let keys: Map<String, Value> = texts
            .iter()
            .map(|text| (*text).to_owned())
            .chain([SEPARATOR.to_string()])
            .map(|k| (k, Value::Null))
            .collect();
        all.extend(matching.iter().map(|matched| Value::String(format!("{text}{matched}"))));
        let own = Value::String(SEPARATOR.to_string());
        all.push(Value::Array(some.into_iter().cloned().chain([own]).collect()));
        all.extend([Value::String(text), Value::Object(keys)]);
    }
    all.retain(|value| known.kind.is_none_or(|kind| Type::of(value).fits(kind)));
    Some(all.into_iter().map(Some).chain([None]).collect())
}

/// Evaluates the comparisons of one path for each candidate value of the path. `members` are the indexes of these
/// comparisons in `atoms`. Returns each combination of results once, with the first value that leads to it.
fn choice(path: &str, members: &[usize], candidates: Vec<Option<Value>>, (atoms, goal): (&[Atom<'_>], Goal)) -> Choice {
    // The comparisons may refer to one fact by several names.
    let names: BTreeSet<String> =
        members.iter().filter_map(|n| atoms.get(*n)?.path(goal)).map(ToString::to_string).collect();
    let mut rows: Vec<(Vec<bool>, Option<Value>)> = Vec::new();
    for value in candidates {
        let mut facts = Facts::new();
        if let Some(value) = &value {
            for name in &names {
                facts.set(name, value.clone());
            }
        }
        let is_true = |atom: &Atom<'_>| evaluate::evaluate_root(atom.node, &facts, None) == Verdict::True;
        let row: Vec<bool> = members.iter().filter_map(|n| atoms.get(*n)).map(is_true).collect();
        if rows.iter().all(|(known, _)| *known != row) {
            rows.push((row, value));
        }
    }
    Choice { path: path.to_owned(), atoms: members.to_vec(), rows }
}

/// Returns true if one of the paths is a prefix of the other.
fn is_related(one: &Path, other: &Path) -> bool {
    one.segments.iter().zip(&other.segments).all(|(a, b)| a == b)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use rye_grammar::SourceId;
    use rye_grammar::condition::parse_inline;

    use super::*;

    fn condition(text: &str) -> Condition {
        Condition::compile(&parse_inline(SourceId(0), text, 0).unwrap()).unwrap()
    }

    fn implies(one: &str, others: &[&str]) -> Implication {
        let values = |path: &Path| match path.to_string().as_str() {
            "turn" => PathValues {
                domain: Some(Domain::Number { whole: true, least: Some(0), most: None, optional: false }),
                kind: Some(Type::Integer),
            },
            "name" | "t" => PathValues { domain: None, kind: Some(Type::String) },
            _ => PathValues::default(),
        };
        let others: Vec<Condition> = others.iter().map(|text| condition(text)).collect();
        condition(one).implies_any(&others.iter().collect::<Vec<_>>(), &values)
    }

    #[test]
    fn implies_any_holds_where_the_others_are_weaker() {
        let many: Vec<String> = (1..=20).map(|n| format!("t contains 'a{n}'")).collect();
        let many_as_one = many.join(" || ");
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for (one, others) in [
            ("t contains 'rm -rf /'", &["t contains 'rm'"][..]),
            ("t contains 'rm' && turn > 3", &["t contains 'rm'"]),
            ("turn > 5", &["turn >= 6"]),
            ("turn >= 3", &["turn == 3", "turn > 3"]),
            ("name in ['a', 'b']", &["name == 'a'", "name == 'b'", "name == 'c'"]),
            ("name == 'sudo rm x'", &["name contains 'rm'"]),
            ("name matches '^a' && turn > 1", &["name matches '^a'"]),
            ("turn < 0", &[]),
            ("exists(c) && !(c contains 'x')", &["exists(c)"]),
            ("a.b == 1 && turn > 2", &["turn > 1"]),
            ("'x' in c", &["c contains 'x'"]),
            // Two names of one fact.
            ("cost.current > 0.02", &["cost.spend > 0.01"]),
            ("loop_count > 3 || cost.turns > 2", &["cost.turns > 2"]),
            // The text has more alternatives than the values of one path can distinguish.
            ("t contains 'a1' || t contains 'a2'", &many[..]),
            ("t contains 'a1b' || t contains 'a12 '", &many[..]),
            ("name matches '^b' || t contains 'a1'", &["name matches '^b'", "turn > 3", &many_as_one]),
        ] {
            assert_eq!(implies(one, others), Implication::Holds, "{one} => {others:?}");
        }
    }

    #[test]
    fn implies_any_fails_with_an_example_where_values_decide() {
        let many: Vec<String> = (1..=20).map(|n| format!("t contains 'a{n}'")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for (one, others) in [
            ("t contains 'b'", &many[..]),
            ("t contains 'rm'", &["t contains 'rm -rf /'"][..]),
            ("t contains 'rm' || t contains 'dd'", &["t contains 'rm'"]),
            ("turn >= 5", &["turn >= 6"]),
            ("name != 'a'", &["name == 'b'"]),
            ("turn > 1", &[]),
            ("c == 1.5", &["c > 1 && c < 1.2"]),
            ("exists(c)", &["c contains 'x'"]),
            // A text that a pattern matches, or does not match, refutes the implication.
            ("name matches 'env'", &[]),
            ("name matches 'env'", &["name matches 'env' && turn > 1"]),
            ("name matches '^(ab|cd)$'", &["name matches '^ab$'"]),
            ("t contains 'rm'", &["t matches '^rm'"]),
            ("name == 'a' && turn > 2", &["name == 'b' && t matches 'env'"]),
            ("name matches 'a' && name matches 'b'", &["name contains 'c'"]),
        ] {
            let answer = implies(one, others);
            assert!(matches!(answer, Implication::Fails { .. }), "{one} => {others:?}: {answer:?}");
        }
        let Implication::Fails { example } = implies("t contains 'rm'", &["t contains 'rm -rf /'"]) else { panic!() };
        assert!(example.starts_with("t is \"") && example.contains("rm"), "{example}");
    }

    #[test]
    fn implies_any_is_unproved_where_no_list_of_values_decides() {
        for (one, others) in [
            ("name matches '^a'", &["name matches '^(a|b)'"][..]),
            ("turn + 1 > 3", &["turn > 2"]),
            // No text matches the pattern.
            ("name matches 'a^b'", &[]),
            ("name < 'b'", &["name < 'c'"]),
            ("a == b", &["b == a"]),
            ("a.b == 1", &["exists(a)"]),
        ] {
            assert_eq!(implies(one, others), Implication::Unproved, "{one} => {others:?}");
        }
    }
}
