//! The atoms of a condition: its parts that `all`, `any` and `not` combine. Each atom is a condition with a text of its
//! own.

use std::fmt;

use rye_grammar::condition::{ArithmeticOp, Path};
use serde_json::Value;

use super::{Comparison, CompiledNode, Condition};

impl Condition {
    /// Returns the atoms of the condition (the parts that `all`, `any` and `not` combine), in the order of the
    /// condition.
    pub fn atoms(&self) -> Vec<Self> {
        let mut nodes = Vec::new();
        collect_atoms(&self.root, &mut nodes);
        nodes.into_iter().map(|node| Self::of(node.clone())).collect()
    }

    /// Returns the condition as text in one line, such as `a == 1 && exists(b)`. `name` returns the text of a path.
    pub fn text(&self, name: &dyn Fn(&Path) -> String) -> String {
        NodeText { node: &self.root, name }.to_string()
    }

    /// Returns every literal of the condition, in order.
    pub fn literals(&self) -> Vec<&Value> {
        let mut literals = Vec::new();
        visit_nodes(&self.root, &mut |node| {
            if let CompiledNode::Literal(value) = node {
                literals.push(value);
            }
        });
        literals
    }

    /// Returns texts that the patterns of the condition probably match, a few for each pattern.
    pub fn pattern_samples(&self) -> Vec<String> {
        let mut samples = Vec::new();
        visit_nodes(&self.root, &mut |node| {
            if let CompiledNode::Matches { pattern, .. } = node {
                samples.extend(pattern.samples());
            }
        });
        samples
    }
}

fn collect_atoms<'n>(node: &'n CompiledNode, atoms: &mut Vec<&'n CompiledNode>) {
    match node {
        CompiledNode::All(nodes) | CompiledNode::Any(nodes) => {
            for node in nodes {
                collect_atoms(node, atoms);
            }
        }
        CompiledNode::Not(inner) => collect_atoms(inner, atoms),
        CompiledNode::Literal(_)
        | CompiledNode::List(_)
        | CompiledNode::Path(_)
        | CompiledNode::Exists(_)
        | CompiledNode::Length(_)
        | CompiledNode::Negate(_)
        | CompiledNode::Compare { .. }
        | CompiledNode::Matches { .. }
        | CompiledNode::Arithmetic { .. } => atoms.push(node),
    }
}

fn visit_nodes<'n>(node: &'n CompiledNode, visit: &mut dyn FnMut(&'n CompiledNode)) {
    visit(node);
    match node {
        CompiledNode::Literal(_) | CompiledNode::Path(_) | CompiledNode::Exists(_) => {}
        CompiledNode::List(nodes) | CompiledNode::All(nodes) | CompiledNode::Any(nodes) => {
            for node in nodes {
                visit_nodes(node, visit);
            }
        }
        CompiledNode::Length(inner)
        | CompiledNode::Not(inner)
        | CompiledNode::Negate(inner)
        | CompiledNode::Matches { left: inner, .. } => visit_nodes(inner, visit),
        CompiledNode::Compare { left, right, .. } | CompiledNode::Arithmetic { left, right, .. } => {
            visit_nodes(left, visit);
            visit_nodes(right, visit);
        }
    }
}

struct NodeText<'n> {
    node: &'n CompiledNode,
    name: &'n dyn Fn(&Path) -> String,
}

impl NodeText<'_> {
    fn of<'n>(&'n self, node: &'n CompiledNode) -> NodeText<'n> {
        NodeText { node, name: self.name }
    }

    fn list(&self, f: &mut fmt::Formatter<'_>, nodes: &[CompiledNode], by: &str) -> fmt::Result {
        for (n, node) in nodes.iter().enumerate() {
            if n > 0 {
                f.write_str(by)?;
            }
            self.operand(f, node)?;
        }
        Ok(())
    }

    /// Writes an operand; an operation is enclosed in parentheses.
    fn operand(&self, f: &mut fmt::Formatter<'_>, node: &CompiledNode) -> fmt::Result {
        match node {
            CompiledNode::Literal(_)
            | CompiledNode::List(_)
            | CompiledNode::Path(_)
            | CompiledNode::Exists(_)
            | CompiledNode::Length(_) => write!(f, "{}", self.of(node)),
            CompiledNode::Not(_)
            | CompiledNode::Negate(_)
            | CompiledNode::All(_)
            | CompiledNode::Any(_)
            | CompiledNode::Compare { .. }
            | CompiledNode::Matches { .. }
            | CompiledNode::Arithmetic { .. } => write!(f, "({})", self.of(node)),
        }
    }

    fn operation(&self, f: &mut fmt::Formatter<'_>, sides: (&CompiledNode, &CompiledNode), by: &str) -> fmt::Result {
        let is_sum = |node: &CompiledNode| matches!(node, CompiledNode::Arithmetic { .. });
        // Arithmetic binds tighter than comparisons.
        for (n, side) in [sides.0, sides.1].into_iter().enumerate() {
            if n > 0 {
                write!(f, " {by} ")?;
            }
            if is_sum(side) && matches!(self.node, CompiledNode::Compare { .. }) {
                write!(f, "{}", self.of(side))?;
            } else {
                self.operand(f, side)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for NodeText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            CompiledNode::Literal(value) => write!(f, "{value}"),
            CompiledNode::List(nodes) => {
                f.write_str("[")?;
                self.list(f, nodes, ", ")?;
                f.write_str("]")
            }
            CompiledNode::Path(path) => f.write_str(&(self.name)(path)),
            CompiledNode::Exists(path) => write!(f, "exists({})", (self.name)(path)),
            CompiledNode::Length(inner) => write!(f, "length({})", self.of(inner)),
            CompiledNode::Not(inner) => {
                f.write_str("!")?;
                self.operand(f, inner)
            }
            CompiledNode::Negate(inner) => {
                f.write_str("-")?;
                self.operand(f, inner)
            }
            CompiledNode::All(nodes) if nodes.is_empty() => f.write_str("true"),
            CompiledNode::Any(nodes) if nodes.is_empty() => f.write_str("false"),
            CompiledNode::All(nodes) => self.list(f, nodes, " && "),
            CompiledNode::Any(nodes) => self.list(f, nodes, " || "),
            CompiledNode::Compare { op, left, right } => self.operation(f, (left, right), comparison(*op)),
            CompiledNode::Matches { left, pattern } => {
                self.operand(f, left)?;
                write!(f, " matches {}", Value::from(pattern.source()))
            }
            CompiledNode::Arithmetic { op, left, right } => self.operation(f, (left, right), arithmetic(*op)),
        }
    }
}

fn comparison(op: Comparison) -> &'static str {
    match op {
        Comparison::Eq => "==",
        Comparison::Ne => "!=",
        Comparison::Lt => "<",
        Comparison::Lte => "<=",
        Comparison::Gt => ">",
        Comparison::Gte => ">=",
        Comparison::In => "in",
        Comparison::Contains => "contains",
    }
}

fn arithmetic(op: ArithmeticOp) -> &'static str {
    match op {
        ArithmeticOp::Add => "+",
        ArithmeticOp::Subtract => "-",
        ArithmeticOp::Multiply => "*",
        ArithmeticOp::Divide => "/",
        ArithmeticOp::Remainder => "%",
    }
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

    #[test]
    fn atoms_and_their_texts_are_those_of_the_condition() {
        let whole = condition("(inputs.a > 1 || !exists(b.c)) && !(length(d) + 2 * e == 3 && f matches '^x\"') && g");
        let texts: Vec<String> = whole.atoms().iter().map(|atom| atom.text(&Path::to_string)).collect();
        assert_eq!(texts, ["inputs.a > 1", "exists(b.c)", "length(d) + (2 * e) == 3", "f matches \"^x\\\"\"", "g"]);
        let again = condition(&whole.text(&Path::to_string));
        assert_eq!(again.text(&Path::to_string), whole.text(&Path::to_string));
    }

    #[test]
    fn samples_of_patterns_match_them() {
        for pattern in ["^te[aA]$", "a{2,3}|b+", "(?i)prod", "^[^x]+\\d$", "^$", "\\bword\\b"] {
            let one = condition(&format!("a matches '{pattern}'"));
            let samples = one.pattern_samples();
            assert!(!samples.is_empty(), "{pattern}");
            let matches = regex::Regex::new(pattern).unwrap();
            assert!(samples.iter().any(|sample| matches.is_match(sample)), "{pattern}: {samples:?}");
        }
    }
}
