//! Conditions: the tree of each spelling, and the error of each mistake.
#![allow(clippy::unwrap_used, reason = "tests")]

use rye_grammar::condition::{self, ArithmeticOp, CompareOp, Expr, ExprKind};
use rye_grammar::{SourceId, SyntaxError, yaml};

const SOURCE: SourceId = SourceId(3);

fn read(text: &str) -> Result<Expr, SyntaxError> {
    condition::parse_inline(SOURCE, text, 0)
}

/// Renders a tree with every operator in parentheses, to show precedence.
fn show(expr: &Expr) -> String {
    let all = |items: &[Expr], by: &str| items.iter().map(show).collect::<Vec<_>>().join(by);
    match &expr.kind {
        ExprKind::Literal(value) => value.to_string(),
        ExprKind::List(items) => format!("[{}]", all(items, ", ")),
        ExprKind::Path(path) => path.to_string(),
        ExprKind::Exists(path) => format!("exists({path})"),
        ExprKind::Length(inner) => format!("length({})", show(inner)),
        ExprKind::Not(inner) => format!("(! {})", show(inner)),
        ExprKind::Negate(inner) => format!("(- {})", show(inner)),
        ExprKind::All(items) => format!("({})", all(items, " && ")),
        ExprKind::Any(items) => format!("({})", all(items, " || ")),
        ExprKind::Compare { op, left, right } => {
            let op = match op {
                CompareOp::Eq => "==",
                CompareOp::Ne => "!=",
                CompareOp::Lt => "<",
                CompareOp::Lte => "<=",
                CompareOp::Gt => ">",
                CompareOp::Gte => ">=",
                CompareOp::In => "in",
                CompareOp::Contains => "contains",
                CompareOp::Matches => "matches",
            };
            format!("({} {op} {})", show(left), show(right))
        }
        ExprKind::Arithmetic { op, left, right } => {
            let op = match op {
                ArithmeticOp::Add => "+",
                ArithmeticOp::Subtract => "-",
                ArithmeticOp::Multiply => "*",
                ArithmeticOp::Divide => "/",
                ArithmeticOp::Remainder => "%",
            };
            format!("({} {op} {})", show(left), show(right))
        }
    }
}

#[test]
fn operators_bind_by_precedence() {
    for (text, tree) in [
        ("a || b && c", "(a || (b && c))"),
        ("a or b or c and not d", "(a || b || (c && (! d)))"),
        ("(a || b) || c", "((a || b) || c)"),
        ("!a == 1", "(! (a == 1))"),
        ("not !a", "(! (! a))"),
        ("!a && b", "((! a) && b)"),
        ("a + 1 * 2 == -b - 3", "((a + (1 * 2)) == ((- b) - 3))"),
        ("a - b - c == 8 / 2 / 2", "(((a - b) - c) == ((8 / 2) / 2))"),
        ("a-b == 1", "((a - b) == 1)"),
        ("- -1 == 1", "(1 == 1)"),
        ("--a == 1", "((- (- a)) == 1)"),
        ("-9223372036854775808 == a", "(-9223372036854775808 == a)"),
        ("18446744073709551615 == 1.5e3", "(18446744073709551615 == 1500.0)"),
        ("(a == 1) == true", "((a == 1) == true)"),
        ("a == (!b)", "(a == (! b))"),
        ("x.and.0.true in [1, 'a', [b]]", r#"(x.and.0.true in [1, "a", [b]])"#),
        ("android or order and inner", "(android || (order && inner))"),
        ("length(a + [1]) > 2 and exists( a.b )", "((length((a + [1])) > 2) && exists(a.b))"),
        (r#"a matches "^\u0041\n" "#, r#"(a matches "^A\n")"#),
        (r"a contains 'it\n'", r#"(a contains "it\\n")"#),
        ("a\n  &&\tb\r\n", "(a && b)"),
    ] {
        assert_eq!(read(text).as_ref().map(show), Ok(tree.to_owned()), "{text}");
    }
}

#[test]
fn spans_are_offsets_into_the_source() {
    let expr = condition::parse_inline(SOURCE, " a == 'é' ", 100).unwrap();
    assert_eq!((expr.span.start, expr.span.end), (101, 110));
    let ExprKind::Compare { right, .. } = expr.kind else { panic!("a comparison") };
    assert_eq!((right.span.source, right.span.start, right.span.end), (SOURCE, 106, 110));
}

/// Each row: the text, the underlined bytes, a word of the message, a word of the help.
#[test]
fn one_line_mistakes_are_reported_at_their_place() {
    for (text, under, message, help) in [
        ("", 0..0, "empty", "leave"),
        ("   ", 0..3, "empty", "leave"),
        ("a = 1", 2..3, "not expected", "`==`"),
        ("a === 1", 4..5, "missing", "`==`"),
        ("== 1", 0..2, "missing", ""),
        ("a & b", 2..3, "not expected", "`&&`"),
        ("a | b", 2..3, "not expected", "`||`"),
        ("a AND b", 2..5, "not expected", "`&&`"),
        ("a <> b", 3..4, "missing", "`!=`"),
        ("a b", 2..3, "not expected", ""),
        ("a 'x'", 2..3, "not expected", "operator"),
        ("1 < a < 3", 6..7, "chain", "1 < a && a < 3"),
        ("a in [1] in [true]", 9..11, "chain", "&&"),
        ("a == !b", 5..7, "lower precedence", "(!b)"),
        ("a == not b", 5..10, "lower precedence", "(!b)"),
        ("-!a == 1", 1..8, "lower precedence", ""),
        ("a == \"open", 5..10, "never closed", "\""),
        ("a == 'open", 5..10, "never closed", "'"),
        ("(a == 1", 0..1, "never closed", ")"),
        ("[1, 2", 0..1, "never closed", "]"),
        ("a)", 1..2, "unmatched", ""),
        ("a &&", 3..4, "ends", ""),
        ("a.", 1..2, "empty segment", "segment"),
        ("a..b", 1..2, "empty segment", "segment"),
        ("a.01", 1..2, "empty segment", ""),
        ("exists(", 6..7, "ends", ""),
        ("length()", 7..8, "missing", ""),
        ("exists(1)", 7..8, "needs a path", ""),
        ("${a} == 1", 0..1, "missing", "without"),
        ("a == \"\\q\"", 5..9, "JSON", "escapes"),
        ("a == 18446744073709551616", 5..25, "number", "18446744073709551615"),
        ("a == -9223372036854775809", 5..25, "number", "-9223372036854775808"),
        ("a == 1e999", 5..10, "number", ""),
        ("a == 01", 5..7, "not a number", ""),
        ("a matches b", 10..11, "literal string", "quotes"),
        ("a matches 5", 10..11, "literal string", "quotes"),
        ("a == \u{0}", 5..6, "control", "escape"),
        ("a == é", 5..7, "missing", ""),
        ("and == 1", 0..3, "missing", ""),
    ] {
        let error = read(text).expect_err(text);
        let span = error.span.start as usize..error.span.end as usize;
        assert_eq!(span, under, "{text}: {error}");
        let all = format!("{error} {}", error.labels().into_iter().map(|l| l.1).collect::<String>());
        assert!(all.contains(message), "{text}: {all}");
        assert!(error.help.as_deref().unwrap_or_default().contains(help), "{text}: {error} {:?}", error.help);
        assert_eq!(error.code(), "syntax::condition");
    }
}

fn from_yaml(text: &str) -> (Option<String>, Vec<SyntaxError>) {
    let data = yaml::parse(SOURCE, text);
    assert_eq!(data.errors, [], "{text}");
    let parsed = condition::from_data(&data.tree);
    (parsed.tree.as_ref().map(show), parsed.errors)
}

#[test]
fn both_spellings_produce_the_same_tree() {
    for (mapping, tree) in [
        ("{path: a.b, op: eq, value: 1}", "(a.b == 1)"),
        ("{path: a, value: null}", "(a == null)"),
        ("{path: file-path.0, op: regex, value: '^x'}", r#"(file-path.0 matches "^x")"#),
        ("{path: a, op: exists}", "exists(a)"),
        ("{path: a, op: exists, value: false}", "(! exists(a))"),
        ("{any: [{path: a, value: 1}, 'b > 2']}", "((a == 1) || (b > 2))"),
        ("{all: []}", "()"),
        ("{not: {all: [{}]}}", "(! (()))"),
        ("'a || b'", "(a || b)"),
        ("false", "false"),
    ] {
        assert_eq!(from_yaml(mapping), (Some(tree.to_owned()), Vec::new()), "{mapping}");
    }
    for nothing in ["", "{}", "null", "~"] {
        assert_eq!(from_yaml(nothing), (None, Vec::new()), "{nothing}");
    }
}

#[test]
fn malformed_condition_mappings_are_reported() {
    for (mapping, message, help) in [
        ("[]", "a mapping or a string", ""),
        ("''", "empty", ""),
        ("5", "a mapping or a string", ""),
        ("{any: x}", "list of conditions", ""),
        ("{all: {path: a}}", "list of conditions", ""),
        ("{any: [], all: []}", "cannot be combined", "nest"),
        ("{any: [], path: a}", "cannot be combined", "all:"),
        ("{not: []}", "a mapping or a string", ""),
        ("{not: null}", "a mapping or a string", ""),
        ("{path: a, op: eq}", "needs a `value`", "exists"),
        ("{path: a, op: contain, value: 1}", "unknown operator", "did you mean `contains`"),
        ("{path: a, op: EQ, value: 1}", "unknown operator", "did you mean `eq`"),
        ("{path: a, op: 1, value: 1}", "a word", ""),
        ("{path: a, op: exists, value: 1}", "`true` or `false`", ""),
        ("{path: a, op: regex, value: 1}", "a pattern must be a string", ""),
        ("{path: a, vaule: 1}", "unknown key", "did you mean `value`"),
        ("{op: eq, value: 1}", "needs a `path`", ""),
        ("{path: [a], value: 1}", "a path must be a string", ""),
        ("{path: '', value: 1}", "not a path", ""),
        ("{path: a..b, value: 1}", "not a path", ""),
        ("{path: a.01, value: 1}", "not a path", ""),
        ("{path: a.-1, value: 1}", "not a path", ""),
        ("{path: a b, value: 1}", "not a path", ""),
        ("{path: 99999999999999999999.a, value: 1}", "not a path", ""),
    ] {
        let (tree, errors) = from_yaml(mapping);
        assert_eq!(tree, None, "{mapping}");
        let first = errors.first().unwrap_or_else(|| panic!("{mapping} is read"));
        assert!(first.to_string().contains(message), "{mapping}: {first}");
        assert!(first.help.as_deref().unwrap_or_default().contains(help), "{mapping}: {:?}", first.help);
    }
}

#[test]
fn mapping_reports_all_its_errors() {
    let (_, errors) = from_yaml("all: [{path: a, op: nope, value: 1}, {any: x}, 'b =', {path: '', vlue: 1}]");
    assert_eq!(errors.len(), 5, "{errors:#?}");
}

#[test]
fn spans_survive_quotes_and_escapes() {
    let text = "when: 'a = 1'\nfold: >\n  a\n  = 1\n";
    let data = yaml::parse(SOURCE, text).tree;
    let error = |key: &str| condition::from_data(data.get(key).unwrap()).errors.first().unwrap().span;
    assert_eq!(text.get(error("when").range()), Some("="));
    assert!(text.get(error("fold").range()).unwrap().starts_with("a\n"));
}

#[test]
fn path_segments_are_names_or_plain_numbers() {
    for text in ["a", "_a.b-c.D_1", "list.0.10", "a.in.not"] {
        assert_eq!(condition::parse_path(SOURCE, text, 0).unwrap().to_string(), text);
    }
    for text in ["", ".", "a.", ".a", "a..b", "a.01", "a.1x", "a b", "-a", "a.-b", "a[0]", "ä"] {
        assert!(condition::parse_path(SOURCE, text, 0).is_err(), "{text:?}");
    }
    // In the one-line form, `-` is an operator, and keywords after a dot are keys.
    assert_eq!(show(&read("a-b == 1").unwrap()), show(&read("a - b == 1").unwrap()));
    assert_eq!(show(&read("a.in.not == true").unwrap()), "(a.in.not == true)");
}

/// Returns the help of the first error of a condition in mapping form.
fn help_of(text: &str) -> String {
    let (_, errors) = from_yaml(text);
    errors.first().and_then(|error| error.help.clone()).unwrap_or_default()
}

#[test]
fn suggestions_never_turn_a_condition_into_its_opposite() {
    for (word, meant) in [
        ("and", "all"),
        ("AND", "all"),
        ("or", "any"),
        ("&&", "all"),
        ("operator", "op"),
        ("valeu", "value"),
        ("All", "all"),
    ] {
        assert_eq!(help_of(&format!("{{ \"{word}\": [] }}")), format!("did you mean `{meant}`?"), "{word}");
    }
    for (word, meant) in [
        ("neq", "ne"),
        ("!=", "ne"),
        ("==", "eq"),
        ("equals", "eq"),
        ("ge", "gte"),
        (">=", "gte"),
        ("le", "lte"),
        ("<", "lt"),
        ("EQ", "eq"),
        ("contians", "contains"),
        ("regexp", "regex"),
    ] {
        let help = help_of(&format!("{{ path: a, op: \"{word}\", value: 1 }}"));
        assert_eq!(help, format!("did you mean `{meant}`?"), "{word}");
    }
    for word in ["like", "none", "nin", "not_in", "gtt", "between"] {
        let help = help_of(&format!("{{ path: a, op: \"{word}\", value: 1 }}"));
        assert!(help.starts_with("the operators are"), "{word}: {help}");
    }
}
