//! Refinement of unknown verdicts: if the facts of a condition have few possible values, tries all of them, so that an
//! unknown verdict can become true or false (`language.md` 5 and 7). This module chooses the values and passes each
//! combination to the shared evaluator.

use rye_grammar::condition::Path;
use serde_json::{Number, Value};

use super::samples::boundary_values;
use super::{Condition, Verdict};
use crate::semantics::facts::{Facts, Lookup};

/// The possible values of a fact.
#[derive(Debug, Clone, PartialEq)]
pub enum Domain {
    /// Any of these values; `None` is an absent fact.
    Values(Vec<Option<Value>>),
    /// Any number from `least` to `most`, where `None` means no bound. Contains only integers if `whole` is true, and
    /// also an absent fact if `optional` is true. A condition is evaluated for a few of these numbers only: the numbers
    /// that it compares with, and numbers between, below and above them.
    Number { whole: bool, least: Option<i32>, most: Option<f64>, optional: bool },
}

/// Maximum number of combinations of fact values that are tried for one condition. If there are more, the verdict stays
/// unknown.
const MAX_COMBINATIONS: usize = 4096;

/// The number of evaluations that may still be made in order to decide unknown verdicts. Several conditions can share
/// this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fuel(usize);

impl Default for Fuel {
    fn default() -> Self {
        Self(1 << 20)
    }
}

impl Fuel {
    /// Returns the fuel of each condition if `among` conditions share the total. `among` is rounded up to a power of
    /// two, so that the fuel, and with it a verdict, rarely changes when a condition is added. For up to 1,024
    /// conditions, the fuel of each condition is enough for `MAX_COMBINATIONS`.
    pub fn share(among: usize) -> Self {
        Self((MAX_COMBINATIONS << 10) / among.next_power_of_two().max(1 << 10))
    }
}

impl Condition {
    /// Evaluates like [`Condition::evaluate`]. If the verdict is unknown, evaluates the condition for all combinations
    /// of the possible values of the unknown facts, and returns the verdict that all combinations have. The verdict
    /// stays unknown if verdicts differ, or if there are too many combinations. `domain` returns the possible values of
    /// a fact.
    pub fn evaluate_over(&self, facts: &Facts, domain: &dyn Fn(&Path) -> Option<Domain>, fuel: &mut Fuel) -> Verdict {
        let plain = self.evaluate(facts);
        let Verdict::Unknown(_) = plain else { return plain };
        let paths = self.paths();
        let mut base = Facts::new();
        let mut open: Vec<(String, Vec<Option<Value>>)> = Vec::new();
        let mut product = 1_usize;
        for path in &paths {
            let text = path.to_string();
            match facts.lookup(path) {
                Lookup::Known(value) => base.set(&text, value.clone()),
                Lookup::Absent => {}
                Lookup::Unknown(_) => match domain(path).and_then(|d| self.representative_values(path, d)) {
                    Some(values) if is_independent(path, &paths) => {
                        product = product.saturating_mul(values.len());
                        open.push((text, values));
                    }
                    Some(_) | None => base.declare_unknown(&text),
                },
            }
        }
        if open.is_empty() || product > MAX_COMBINATIONS || product > fuel.0 {
            return plain;
        }
        fuel.0 -= product;
        let mut always: Option<bool> = None;
        for n in 0..product {
            let mut facts = base.clone();
            let mut rest = n;
            for (path, values) in &open {
                if let Some(Some(value)) = values.get(rest % values.len()) {
                    facts.set(path, value.clone());
                }
                rest /= values.len();
            }
            let here = match self.evaluate(&facts) {
                Verdict::True => true,
                Verdict::False => false,
                Verdict::Unknown(_) => return plain,
            };
            if *always.get_or_insert(here) != here {
                return plain;
            }
        }
        match always {
            Some(true) => Verdict::True,
            Some(false) => Verdict::False,
            None => plain,
        }
    }

    /// Returns sample values of a `domain`, where `None` stands for an absent value. If the condition has the same
    /// result for all samples, it has this result for every value of the domain. Returns `None` if no such samples are
    /// known (for example, because a pattern reads the path).
    fn representative_values(&self, path: &Path, domain: Domain) -> Option<Vec<Option<Value>>> {
        let (whole, least, most, optional) = match domain {
            Domain::Values(values) => return Some(values).filter(|v| !v.is_empty()),
            Domain::Number { whole, least, most, optional } => (whole, least, most, optional),
        };
        let samples = self.samples().into_iter().find(|samples| samples.path == *path)?;
        if samples.is_nonlinear || !samples.parts.is_empty() {
            return None;
        }
        let mut against = samples.numbers()?;
        against.extend(samples.crossings.iter().flatten());
        let mut numbers = boundary_values(&against, whole);
        numbers.push(least.map_or(0.0, f64::from));
        numbers.extend(most);
        numbers.retain(|n| least.is_none_or(|least| *n >= f64::from(least)) && most.is_none_or(|most| *n <= most));
        numbers.sort_by(f64::total_cmp);
        numbers.dedup();
        let mut values: Vec<Option<Value>> = Vec::new();
        for number in numbers {
            values.push(Some(Value::Number(Number::from_f64(number)?)));
        }
        if samples.crossings.is_some() {
            // Arithmetic with the largest numbers is rounded or has no result.
            let largest = [Value::from(i64::MAX), Value::from(i64::MIN), Value::from(1e308), Value::from(-1e308)];
            let is_inside = |value: &Value| {
                let number = value.as_f64().unwrap_or_default();
                least.is_none_or(|least| number >= f64::from(least)) && most.is_none_or(|most| number <= most)
            };
            values.extend(largest.into_iter().filter(is_inside).map(Some));
        }
        values.extend(optional.then_some(None));
        Some(values)
    }
}

/// Returns true if no other path of the condition is a prefix of this path or begins with this path.
fn is_independent(path: &Path, all: &[&Path]) -> bool {
    let related = |other: &&&Path| other.segments.iter().zip(&path.segments).all(|(a, b)| a == b);
    all.iter().filter(related).count() == 1
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use rye_grammar::SourceId;
    use rye_grammar::condition::parse_inline;

    use super::*;

    fn over(text: &str) -> Verdict {
        let condition = Condition::compile(&parse_inline(SourceId(0), text, 0).unwrap()).unwrap();
        let mut facts = Facts::new();
        for root in ["turn", "spend", "flag", "word", "open", "maybe"] {
            facts.declare_unknown(root);
        }
        let domain = |path: &Path| match path.to_string().as_str() {
            "turn" => Some(Domain::Number { whole: true, least: Some(0), most: None, optional: false }),
            "spend" => Some(Domain::Number { whole: false, least: Some(0), most: None, optional: false }),
            "maybe" => Some(Domain::Number { whole: false, least: None, most: None, optional: true }),
            "flag" => Some(Domain::Values(vec![Some(true.into()), Some(false.into())])),
            "word" => Some(Domain::Values(vec![Some("a".into()), Some("b".into())])),
            _ => None,
        };
        condition.evaluate_over(&facts, &domain, &mut Fuel::default())
    }

    #[test]
    fn conditions_decided_for_all_values_are_certain() {
        for never in [
            "turn > 5 && turn < 6",
            "turn > 5 && turn < 3",
            "turn < 0",
            "turn == 2.5",
            "spend > 0.5 && spend < 0.2",
            "flag && !flag",
            "word == 'c'",
            "word contains 'x' || turn in [-1, -2]",
            "maybe > 1 && !exists(maybe)",
            "open == 1 && turn < 0",
            "turn * 2 > 4 && turn < 2",
            "turn + 1 < turn",
            "2 * maybe - 1 > 5 && maybe < 3",
            "-turn > 0",
            "turn + 1 == 0",
            "length(open) < 0",
            "length(open) == 1.5",
        ] {
            assert_eq!(over(never), Verdict::False, "{never}");
        }
        for always in ["turn >= 0", "turn > 2 || turn <= 2", "flag || !flag", "word in ['a', 'b', 'c']", "spend >= 0"] {
            assert_eq!(over(always), Verdict::True, "{always}");
        }
    }

    #[test]
    fn upper_bound_decides_conditions_beyond_it() {
        let over = |text: &str| {
            let condition = Condition::compile(&parse_inline(SourceId(0), text, 0).unwrap()).unwrap();
            let mut facts = Facts::new();
            facts.declare_unknown("turn");
            let domain = Domain::Number { whole: true, least: Some(0), most: Some(10.0), optional: false };
            condition.evaluate_over(&facts, &|_| Some(domain.clone()), &mut Fuel::default())
        };
        assert_eq!(over("turn > 10"), Verdict::False);
        assert_eq!(over("turn <= 10"), Verdict::True);
        assert!(matches!(over("turn >= 10"), Verdict::Unknown(_)));
    }

    #[test]
    fn undecided_conditions_stay_unknown() {
        for open in [
            "turn > 5 && turn < 7",
            "spend > 0.2 && spend < 0.5",
            "spend < 0.1",
            "maybe < 0",
            "exists(maybe)",
            "turn * 2 > 4 && turn < 4",
            "spend * 3 > 1 && spend < 0.4",
            "turn + 1 > turn",
            "maybe * 2 == maybe * 3",
            "turn * turn < 0",
            "turn / 2 > 1 && turn < 2",
            "length(open) <= 0",
            "length(open) >= 0",
            "turn == spend",
            "open == 1",
            "word == 'a'",
            "open && flag",
            "turn > 9007199254740993",
        ] {
            assert!(matches!(over(open), Verdict::Unknown(_)), "{open}");
        }
    }

    #[test]
    fn too_many_combinations_stay_unknown() {
        let many: Vec<String> = (0..5).map(|n| format!("turn != {}", n * 10)).collect();
        let text = format!("({}) && spend > 1 && spend < 0 && word == 'c'", many.join(" && "));
        assert_eq!(over(&text), Verdict::False);
        let wide: Vec<String> = (0..3000).map(|n| format!("turn == {}", n * 3)).collect();
        assert!(matches!(over(&format!("({}) && turn < 0", wide.join(" || "))), Verdict::Unknown(_)));
    }
}
