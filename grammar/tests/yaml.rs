//! YAML: values, byte spans, and the errors of rejected input.
#![allow(clippy::unwrap_used, clippy::format_push_string, clippy::format_collect, reason = "tests")]

use rye_grammar::data::{Kind, Node};
use rye_grammar::{Parsed, SourceId, yaml};
use serde_json::{Value, json};

fn read(text: &str) -> Parsed<Node> {
    yaml::parse(SourceId(0), text)
}

fn value(text: &str) -> Value {
    let parsed = read(text);
    assert_eq!(parsed.errors, [], "{text}");
    parsed.tree.to_value()
}

#[test]
fn scalars_have_their_types() {
    for (text, want) in [
        ("", json!(null)),
        ("# only a comment\n", json!(null)),
        ("a: 1\nb: [true, no, ~, 1.5, 0x1F]\n", json!({"a": 1, "b": [true, "no", null, 1.5, 31]})),
        (
            "a: 007\nb: 1_000\nc: '1'\n1: x\ntrue: y\n",
            json!({"a": "007", "b": "1_000", "c": "1", "1": "x", "true": "y"}),
        ),
        ("a: -9223372036854775808\nb: 18446744073709551615", json!({"a": i64::MIN, "b": u64::MAX})),
        ("a: 1.0\nb: 1e3\nc: 1e400x", json!({"a": 1.0, "b": 1000.0, "c": "1e400x"})),
        ("a: &x {b: 1}\nc: *x\nd: {<<: *x, e: 2}", json!({"a": {"b": 1}, "c": {"b": 1}, "d": {"e": 2, "b": 1}})),
        ("a: |\n  two\n  lines\nb: >-\n  one\n  line\n", json!({"a": "two\nlines\n", "b": "one line"})),
        ("a: 1\r\nb:\r\n  - é\r\n", json!({"a": 1, "b": ["é"]})),
        ("---\na: 1\n...\n", json!({"a": 1})),
        ("a: 2024-01-01\nb: 12:30", json!({"a": "2024-01-01", "b": "12:30"})),
    ] {
        assert_eq!(value(text), want, "{text}");
    }
}

fn find<'n>(node: &'n Node, path: &[&str]) -> &'n Node {
    path.iter().fold(node, |node, key| match key.parse::<usize>() {
        Ok(index) => node.items().get(index).unwrap(),
        Err(_) => node.get(key).unwrap(),
    })
}

#[test]
fn spans_are_bytes() {
    let text =
        "é: 'wörld' # ö\nlist: [1, {c: \"x\\u00e9\"}, [] ] # end\nblock:\n  - a b\n  - {k: v\n    }\nlast: |\n  hi\n";
    let tree = read(text).tree;
    let slice = |path: &[&str]| text.get(find(&tree, path).span.range()).unwrap();
    assert_eq!(slice(&["é"]), "wörld");
    assert_eq!(slice(&["list"]), "[1, {c: \"x\\u00e9\"}, [] ]");
    assert_eq!(slice(&["list", "0"]), "1");
    assert_eq!(slice(&["list", "1"]), "{c: \"x\\u00e9\"}");
    assert_eq!(slice(&["list", "1", "c"]), "\"x\\u00e9\"");
    assert_eq!(slice(&["list", "2"]), "[]");
    assert_eq!(slice(&["block", "0"]), "a b");
    assert_eq!(slice(&["block", "1"]), "{k: v\n    }");
    assert_eq!(slice(&["last"]), "hi\n");
    let keys: Vec<&str> = tree.entries().iter().map(|e| text.get(e.key.span.range()).unwrap()).collect();
    assert_eq!(keys, ["é", "list", "block", "last"]);
}

#[test]
fn an_embedded_document_keeps_its_place() {
    let parsed = yaml::parse_at(SourceId(7), "a: [x, y", 100);
    assert_eq!(parsed.tree.kind, Kind::Null);
    let span = parsed.errors.first().unwrap().span;
    assert_eq!((span.source, span.start), (SourceId(7), 103));
    let tree = yaml::parse_at(SourceId(7), "a: [x]", 100).tree;
    assert_eq!((tree.get("a").unwrap().span.start, tree.get("a").unwrap().span.end), (103, 106));
}

/// Each row: the text, the underlined bytes, a part of the message.
#[test]
fn rejected_constructs_are_reported_at_their_place() {
    for (text, under, message) in [
        ("a: 1\nb: 2\na: 3\n", "a", "`a` is given twice"),
        ("1: a\n'1': b\n", "'1'", "`1` is given twice"),
        ("é: [ö, *x]", "*", "unknown anchor"),
        ("a: b: c", ":", "mapping values are not allowed"),
        ("a: [1,\n  2", "[", "unclosed bracket `[`"),
        ("--- 1\n--- 2\n", "2", "one YAML document"),
        ("~: 1", "~", "a key cannot be null"),
        ("? [a]\n: 1", "[", "a key must be a name"),
        ("a: 18446744073709551616", "18446744073709551616", "out of range"),
        ("a: [-9223372036854775809]", "-9223372036854775809", "out of range"),
        ("a: 1e999", "1e999", "not finite"),
        ("a: .nan", ".nan", "not finite"),
        ("a: -.inf", "-.inf", "not finite"),
        ("a: !foo 3", "3", "unsupported tag `!foo`"),
        ("a: 'open", "'", "unclosed quote"),
        ("a: @x", "@", "unexpected character: `@`"),
        ("a: \0", "\0", "a NUL character is not allowed"),
        ("\ta: x\nb: y\n", "\t", "a tab cannot indent here"),
        ("- a: x\n\tb: y", "\t", "a tab cannot indent here"),
        ("a:\n  b:\u{a0}x\n  c: y\n", "\u{a0}", "the character U+00A0 does not separate a value"),
        ("a: \"x matches '\\.env'\"", "\\.", "`\\.` is not an escape of a double-quoted text"),
        ("a: \"\\n\\d\"", "\\d", "`\\d` is not an escape"),
        ("a: [1, \"]\" # ]\nb: don't\n", "[", "this `[` is never closed"),
        ("a: 'x\nb: y'", "b", "a quoted string continues on this line"),
        ("&a [*a]", "*a", "its own parent"),
        ("a:\n  - b\n c: d", "c", "did not find expected key"),
    ] {
        let parsed = read(text);
        let error = parsed.errors.first().unwrap_or_else(|| panic!("{text} is read"));
        assert_eq!(text.get(error.span.range()), Some(under), "{text}: {error}");
        assert!(error.to_string().contains(message), "{text}: {error}");
        assert_eq!(error.code(), "syntax::yaml");
        assert!(!error.to_string().ends_with('.') && !error.to_string().contains("Option"), "{error}");
    }
}

#[test]
fn depth_and_size_limits_are_reported() {
    let bomb = |width: usize| {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..width {
            let inner = format!("*a{}, ", level - 1).repeat(10);
            text.push_str("k: v\n".replace('k', &format!("b{level}")).as_str());
            text.push_str(&format!("a{level}: &a{level} [{inner}]\n"));
        }
        text
    };
    let message = |text: &str| read(text).errors.first().map(ToString::to_string).unwrap_or_default();
    assert!(message(&bomb(9)).contains("at most"), "{}", message(&bomb(9)));
    assert!(message(&format!("a: &a 1\nb: [{}]", "*a, ".repeat(1_001))).contains("at most 1000 aliases"));
    assert!(message(&"- 1\n".repeat(250_001)).contains("at most 250000 values"));
    for deep in ["[", "{a: ", "- ", "? ", "a: [", "!!seq ["] {
        let text = deep.repeat(10_000);
        assert!(!read(&text).errors.is_empty(), "{deep}");
    }
    let block: String = (0..10_000).map(|i| format!("{}a:\n", " ".repeat(i))).collect();
    assert!(message(&block).contains("at most 64 deep"));
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(read(&nested(63)).errors, []);
    assert!(!read(&nested(65)).errors.is_empty());
}
