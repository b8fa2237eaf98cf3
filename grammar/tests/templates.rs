//! Templates: placeholders, plain text, and malformed placeholders.
#![allow(clippy::unwrap_used, reason = "tests")]

use rye_grammar::SourceId;
use rye_grammar::template::{self, InputsPart, Template, TemplatePart, WhenMissing};

const SOURCE: SourceId = SourceId(0);

fn show(template: &Template) -> Vec<String> {
    let part = |part: &TemplatePart| match part {
        TemplatePart::Text(text) => format!("{text:?}"),
        TemplatePart::Placeholder(placeholder) => match &placeholder.fallback {
            Some(fallback) => format!("{} or {fallback:?}", placeholder.path),
            None => placeholder.path.to_string(),
        },
    };
    template.parts.iter().map(part).collect()
}

#[test]
fn placeholders_and_text_are_separated() {
    for (text, parts) in [
        ("", vec![]),
        ("plain $ $$ { } #{a}", vec![r#""plain $ $$ { } #{a}""#]),
        ("${cost.spend}", vec!["cost.spend"]),
        ("a${ b.0.c-d }c", vec![r#""a""#, "b.0.c-d", r#""c""#]),
        (r#"${a||"x"}${b || "é ${a} } \" \n"}"#, vec![r#"a or "x""#, r#"b or "é ${a} } \" \n""#]),
        ("$${a}", vec![r#""${a}""#]),
        ("x$${$${${0}$", vec![r#""x${${""#, "0", r#""$""#]),
        ("$$${a}", vec![r#""$${a}""#]),
    ] {
        assert_eq!(template::parse(SOURCE, text, 0).map(|t| show(&t)).unwrap(), parts, "{text}");
    }
}

#[test]
fn placeholder_has_its_span() {
    let template = template::parse(SOURCE, "ab ${ x } c", 10).unwrap();
    let Some(TemplatePart::Placeholder(placeholder)) = template.parts.get(1) else { panic!("no placeholder") };
    assert_eq!((placeholder.span.start, placeholder.span.end, placeholder.raw.as_str()), (13, 19, "${ x }"));
}

#[test]
fn malformed_placeholders_are_reported() {
    for (text, at, message) in [
        ("a ${}", 4, "empty placeholder"),
        ("${  }", 4, "empty placeholder"),
        ("x ${a", 2, "never closed"),
        ("${a\n}", 0, "never closed"),
        ("${a || b}", 7, "double quotes"),
        ("${a || 'b'}", 7, "double quotes"),
        ("${a ||}", 6, "double quotes"),
        (r#"${a || "b}"#, 7, "double quotes"),
        (r#"${a || "b" c}"#, 11, "double quotes"),
        (r#"${a || "\q"}"#, 2, "is not a valid placeholder"),
        ("${inputs.}", 9, "is not a valid placeholder"),
        ("${a b}", 4, "is not a valid placeholder"),
        ("${list.-1}", 7, "is not a valid placeholder"),
        ("${a.01}", 4, "is not a valid placeholder"),
        ("${.a}", 2, "is not a valid placeholder"),
        ("${99999999999999999999999}", 2, "is not a valid placeholder"),
        ("${é}", 2, "is not a valid placeholder"),
        ("${a + 1}", 4, "is not a valid placeholder"),
    ] {
        let error = template::parse(SOURCE, text, 100).expect_err(text);
        assert_eq!((error.span.start, error.code()), (100 + at, "syntax::template"), "{text}: {error}");
        assert!(error.to_string().contains(message), "{text}: {error}");
    }
}

#[test]
fn knowledge_keeps_text_that_is_no_placeholder() {
    for (text, parts) in [
        ("${a} ${} ${b", vec!["a", r#"" ${} ${b""#]),
        ("${a b} ${${c}", vec![r#""${a b} ${""#, "c"]),
        ("sh: ${HOME:-x} $${HOME:-x} $(a)", vec![r#""sh: ${HOME:-x} $${HOME:-x} $(a)""#]),
        ("$${a} $${a b}", vec![r#""${a} $${a b}""#]),
        (r#"${a || "x"} ${a || x}"#, vec![r#"a or "x""#, r#"" ${a || x}""#]),
        (r#"${a || "\q"}"#, vec![r#""${a || \"\\q\"}""#]),
    ] {
        assert_eq!(show(&template::scan_knowledge(SOURCE, text, 0)), parts, "{text}");
    }
}

fn inputs(text: &str) -> Result<Vec<String>, rye_grammar::SyntaxError> {
    let parsed = template::parse_inputs(SOURCE, text, 100)?;
    let part = |part: &InputsPart| match part {
        InputsPart::Text(text) => format!("{text:?}"),
        InputsPart::Input(placeholder) => match &placeholder.when_missing {
            WhenMissing::Refuse => placeholder.name.clone(),
            WhenMissing::Empty => format!("{}?", placeholder.name),
            WhenMissing::Default(text) => format!("{} or {text:?}", placeholder.name),
        },
    };
    Ok(parsed.parts.iter().map(part).collect())
}

#[test]
fn inputs_and_text() {
    for (text, parts) in [
        ("", vec![]),
        ("${a} {input} { input:a} {INPUT:a}", vec![r#""${a} {input} { input:a} {INPUT:a}""#]),
        ("{input:a}{input:_b1?}", vec!["a", "_b1?"]),
        ("{input:a:x|y}{input:a|x:y}{input:a:}", vec![r#"a or "x|y""#, r#"a or "x:y""#, r#"a or """#]),
        ("{input:a:two\nlines é}}", vec![r#"a or "two\nlines é""#, r#""}""#]),
        (r"x\{input:a}\\{input:b}", vec![r#""x{input:a}\\{input:b}""#]),
        ("{{input:a}}", vec![r#""{""#, "a", r#""}""#]),
    ] {
        assert_eq!(inputs(text).unwrap(), parts, "{text}");
    }
}

#[test]
fn malformed_input_placeholders_are_reported() {
    for (text, at) in [
        ("{input:}", 7),
        ("a{input:1}", 8),
        ("{input:a-b}", 8),
        ("{input:a?x}", 9),
        ("{input: a}", 7),
        ("{input:a", 0),
        ("{input:a:b", 0),
        ("{input:a{input:b}", 8),
    ] {
        let error = inputs(text).expect_err(text);
        assert_eq!(error.span.start, 100 + at, "{text}: {error}");
    }
}
