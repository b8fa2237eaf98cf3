//! XML: trees with spans, several errors per file, and agreement with another parser.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::format_push_string,
    clippy::format_collect,
    reason = "tests"
)]

use proptest::prelude::*;
use rye_grammar::xml::{self, Element, XmlNode};
use rye_grammar::{Parsed, SourceId};

fn read(text: &str) -> Parsed<Option<Element>> {
    xml::parse(SourceId(0), text, 0..text.len(), &[])
}

fn show(element: &Element) -> String {
    let mut out = format!("<{}", element.name.node);
    for a in &element.attributes {
        out.push_str(&format!(" {}={:?}", a.name.node, a.value.node));
    }
    out.push('>');
    for child in &element.children {
        match child {
            XmlNode::Element(inner) => out.push_str(&show(inner)),
            XmlNode::Text(text) => out.push_str(&format!("{:?}", text.node)),
            XmlNode::Comment(text) => out.push_str(&format!("<!--{}-->", text.node)),
        }
    }
    out + "</>"
}

/// Renders the other parser's tree in the same format. The other parser splits texts that this parser joins.
fn show_other(node: roxmltree::Node<'_, '_>) -> String {
    let mut out = format!("<{}", node.tag_name().name());
    for a in node.attributes() {
        out.push_str(&format!(" {}={:?}", a.name(), a.value()));
    }
    out.push('>');
    let mut text = String::new();
    for child in node.children() {
        if child.is_pi() {
            continue;
        }
        if child.is_text() {
            text.push_str(child.text().unwrap_or_default());
            continue;
        }
        if !text.is_empty() {
            out.push_str(&format!("{text:?}"));
            text.clear();
        }
        if child.is_element() {
            out.push_str(&show_other(child));
        } else if child.is_comment() {
            out.push_str(&format!("<!--{}-->", child.text().unwrap_or_default()));
        }
    }
    if !text.is_empty() {
        out.push_str(&format!("{text:?}"));
    }
    out + "</>"
}

#[test]
fn a_tree_with_spans() {
    let text = "..<a x = \"1 &lt; 2\">é &#x41;<![CDATA[<b>]]><b y='\r\n'/> </a >..";
    let parsed = xml::parse(SourceId(0), text, 2..text.len() - 2, &[]);
    assert_eq!(parsed.errors, []);
    let root = parsed.tree.unwrap();
    assert_eq!(show(&root), r#"<a x="1 < 2">"é A<b>"<b y=" "></>" "</>"#);
    let slice = |span: rye_grammar::Span| text.get(span.range()).unwrap();
    assert_eq!(slice(root.span), &text[2..text.len() - 2]);
    assert_eq!(slice(root.name.span), "a");
    assert_eq!(slice(root.attributes.first().unwrap().value.span), "1 &lt; 2");
    assert_eq!(slice(root.elements().next().unwrap().span), "<b y='\r\n'/>");
    assert_eq!(slice(root.text().span), "é &#x41;<![CDATA[<b>]]>");
}

#[test]
fn the_text_of_an_element_is_trimmed_with_its_span() {
    let text = "<a>\n  some text\n</a>";
    let inner = read(text).tree.unwrap().text();
    assert_eq!((inner.node.as_str(), text.get(inner.span.range())), ("some text", Some("some text")));
}

/// Each row: the text, then for each error the bytes under it and a part of its message.
#[test]
fn malformed_documents_are_reported_at_their_place() {
    let cases: &[(&str, &[(&str, &str)])] = &[
        ("", &[("", "no element")]),
        ("  \n", &[("  \n", "no element")]),
        ("text", &[("text", "before the root")]),
        ("<a/>text", &[("text", "after the root")]),
        ("<a/><b/>", &[("b", "second root")]),
        ("<a>", &[("a", "never closed")]),
        ("<a><b></a>", &[("b", "`<b>` is never closed")]),
        ("<a></b></a>", &[("</b>", "unmatched")]),
        ("<a><b><c></a>", &[("c", "never closed"), ("b", "never closed")]),
        ("<a", &[("<a", "tag is never closed")]),
        ("<a x=\"1>", &[("\"", "quote in this tag is never closed"), ("a", "never closed")]),
        ("<a><!-- x</a>", &[("<!-- x</a>", "comment is never closed")]),
        ("<a><![CDATA[ x</a>", &[("<![CDATA[", "CDATA section is never closed")]),
        ("<a>1 < 2</a>", &[("<", "must be escaped")]),
        ("<a>1 <2</a>", &[("<", "must be escaped")]),
        ("<a>x<y && z</a>", &[("&", "is not allowed in a tag")]),
        ("<a>x<y and z</a>", &[("and", "no value")]),
        ("<a>x && y</a>", &[("&&", "`&` in text must be escaped")]),
        ("<a>&nbsp;&bad</a>", &[("&nbsp;", "unknown reference"), ("&", "must be escaped")]),
        ("<a>&#0;</a>", &[("&#0;", "unknown reference")]),
        ("<a x=1/>", &[("1", "not in quotes")]),
        ("<a x/>", &[("x", "no value")]),
        ("<a x='1' x='2'/>", &[("x", "given twice")]),
        ("<a x='1'y='2'/>", &[("y", "separated")]),
        ("<a x='<'/>", &[("<", "is not allowed in an attribute")]),
        ("<a x='&y'/>", &[("&", "must be escaped")]),
        ("<a 1='2'/>", &[("1", "is not allowed in a tag")]),
        ("<a>]]></a>", &[("]]>", "is not allowed in text")]),
        ("<a><!-- -- --></a>", &[("--", "is not allowed in a comment")]),
        ("<!DOCTYPE a [<!ENTITY x 'y'>]><a/>", &[("<!DOCTYPE a [<!ENTITY x 'y'>]>", "document type")]),
        ("<a><?xml version='1.0'?></a>", &[("<?xml version='1.0'?>", "at the start")]),
        ("<x:a/>", &[("x:a", "not declared")]),
        ("<a x:y='1'/>", &[("x:y", "not declared")]),
        ("<a>\u{1}</a>", &[("\u{1}", "is not allowed in XML")]),
        ("<a>\0</a>", &[("\0", "is not allowed in XML")]),
        ("<a>\u{FFFE}</a>", &[("\u{FFFE}", "is not allowed in XML")]),
        ("<a>1 < 2 && 3 <4</a>", &[("< 2 && 3 <", "`<` and `&` in text must be escaped")]),
        ("<a>1 < 2<b>3 < 4</b></a>", &[("<", "must be escaped"), ("<", "must be escaped")]),
        ("<a><b x='1 y='2'/></a>", &[("'", "quote in this tag is never closed")]),
        ("<a><b></a></b>", &[("b", "`</b>` comes after the end tag of its parent element")]),
        ("<a><items>x</item></a>", &[("</item>", "`</item>` does not end `<items>`")]),
        ("<a><items>x<items></a>", &[("items", "`<items>` is inside `<items>`, and neither is closed")]),
        ("<a></ a></a>", &[("</ a>", "not an end tag")]),
        ("<a><></a>", &[("<", "must be escaped")]),
    ];
    for (text, want) in cases {
        let parsed = read(text);
        let got: Vec<(&str, String)> =
            parsed.errors.iter().map(|e| (text.get(e.span.range()).unwrap(), e.to_string())).collect();
        assert_eq!(got.len(), want.len(), "{text}: {got:?}");
        for ((under, message), (want_under, want_message)) in got.iter().zip(*want) {
            assert_eq!(under, want_under, "{text}: {got:?}");
            assert!(message.contains(want_message), "{text}: {got:?}");
        }
    }
}

/// Each row: the text, the only error's message, its help, and the name of the inner element.
#[test]
fn different_tags_of_one_element_are_one_error_that_names_both() {
    for (text, message, help, name) in [
        ("<a><tol>x</tool></a>", "`<tol>` is closed by `</tool>`", "did you mean `<tool>`?", "tool"),
        ("<a><tool>x</tol></a>", "`</tol>` does not end `<tool>`", "write `</tool>`", "tool"),
        ("<a><tool>x</skill></a>", "`<tool>` is closed by `</skill>`", "write `</tool>` here, or `<skill>`", "tool"),
        ("<a><b>x</tool></a>", "`<b>` is closed by `</tool>`", "write `</b>` here, or `<tool>`", "b"),
        ("<a><tool>x</skill>", "`<tool>` is closed by `</skill>`", "write `</tool>` here", "tool"),
    ] {
        let parsed = xml::parse(SourceId(0), text, 0..text.len(), &["a", "tool", "skill"]);
        let errors: Vec<_> = parsed.errors.iter().filter(|error| !error.message.contains("`<a>`")).collect();
        let [error] = errors.as_slice() else { panic!("{text}: {:?}", parsed.errors) };
        assert!(
            error.message == message && error.help.as_deref().is_some_and(|h| h.contains(help)),
            "{text}: {error:?}"
        );
        assert_eq!(parsed.tree.unwrap().elements().next().unwrap().name.node, name, "{text}");
    }
}

#[test]
fn a_comparison_in_text_gets_the_hint() {
    let help = |text: &str| read(text).errors.first().unwrap().help.clone().unwrap();
    assert!(help("<when>cost.turns < 3</when>").contains("&lt;"));
    assert!(help("<when>cost.turns<limit && x</when>").contains("&amp;"));
    assert!(help("<when>a && b</when>").contains("`and`"));
}

/// Each row: the text, then the text that the replacements of its errors give.
#[test]
fn replacements_correct_unescaped_characters_and_misspelled_end_tags() {
    for (text, want) in [
        ("<a>1 < 2 && x</a>", "<a>1 &lt; 2 &amp;&amp; x</a>"),
        ("<a><items>x</item></a>", "<a><items>x</items></a>"),
        ("<a><![CDATA[1 < 2</a>", "<a><![CDATA[1 < 2]]></a>"),
    ] {
        let mut all: Vec<_> = read(text).errors.into_iter().flat_map(|error| error.replacements.into_vec()).collect();
        all.sort_by_key(|(span, _)| span.start);
        let mut fixed = text.to_owned();
        for (span, instead) in all.iter().rev() {
            fixed.replace_range(span.range(), instead);
        }
        assert_eq!(fixed, want);
        assert_eq!(read(&fixed).errors, [], "{fixed}");
    }
}

#[test]
fn lost_content_is_marked() {
    let loses = |text: &str| read(text).errors.iter().any(|error| error.loses_content);
    assert!(loses("<a><b></a>") && loses("<a><!-- x</a>") && loses("<a x='1/>"));
    assert!(!loses("<a>1 < 2</a>") && !loses("<a x='1' x='2'/>") && !loses("<a><items></item></a>"));
}

#[test]
fn valid_parts_are_kept_after_an_error() {
    let tree = |text: &str| show(&read(text).tree.unwrap());
    assert_eq!(tree("<a>1 < 2<b/></a>"), r#"<a>"1 < 2"<b></></>"#);
    assert_eq!(tree("<a><b>x</a>"), r#"<a><b>"x"</></>"#);
    assert_eq!(tree("<a><b x='1' x='2'>y</b>"), r#"<a><b x="1">"y"</></>"#);
}

#[test]
fn depth_and_size_limits_are_reported() {
    let nested = |depth: usize| format!("{}{}", "<a>".repeat(depth), "</a>".repeat(depth));
    assert_eq!(read(&nested(64)).errors, []);
    let deep = read(&nested(10_000));
    assert_eq!(deep.errors.len(), 1);
    assert!(deep.errors.first().unwrap().to_string().contains("64 deep"));
    assert!(deep.tree.is_some());
    let unclosed = read(&"<a>".repeat(10_000));
    assert!(!unclosed.errors.is_empty() && unclosed.errors.len() <= 20);
    let attributes: String = (0..65).map(|i| format!(" a{i}='x'")).collect();
    assert!(read(&format!("<a{attributes}/>")).errors.first().unwrap().to_string().contains("64 attributes"));
    assert!(read(&"<a/>".repeat(10_000)).errors.len() <= 20);
    for many in ["& ", "< "] {
        let errors = read(&format!("<a>{}</a>", many.repeat(1_000_000))).errors;
        assert!(errors.len() == 1 && errors.iter().all(|error| error.replacements.is_empty()), "{many}");
    }
}

/// Generates documents from fragments of valid and invalid markup.
fn documents() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "<a>",
        "</a>",
        "<b x='1'>",
        "</b>",
        "<c/>",
        "text ",
        "é",
        "&lt;",
        "&#10;",
        "&x;",
        "&",
        "<",
        ">",
        "\"",
        "'",
        "\r\n",
        "<![CDATA[",
        "]]>",
        "<!--",
        "-->",
        "--",
        "<?p q?>",
        "<a:b>",
        "</a:b>",
        " x=\"&amp;\"",
        "<d y='<'>",
        "</d>",
        "=",
        "/",
        "<!DOCTYPE a>",
        "<e  z = '\t'  />",
        "<?xml version='1.0'?>",
        "\u{1}",
        "]",
        "!",
        "</",
        "<d",
        "</c >",
    ]);
    prop::collection::vec(pieces, 0..14).prop_map(|p| p.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Both parsers accept the same documents and produce equal trees, except that only this parser rejects document
    /// types.
    #[test]
    fn agrees_with_roxmltree(inner in documents()) {
        for text in [inner.clone(), format!("<r>{inner}</r>")] {
            let ours = read(&text);
            let options = roxmltree::ParsingOptions { allow_dtd: true, ..roxmltree::ParsingOptions::default() };
            let theirs = roxmltree::Document::parse_with_options(&text, options);
            let refused_here = text.contains("<!DOCTYPE");
            prop_assert!(refused_here || ours.errors.is_empty() == theirs.is_ok(), "{text:?}: {:?} {:?}", ours.errors, theirs.err());
            if let (true, Ok(theirs), Some(root)) = (ours.errors.is_empty(), theirs, ours.tree) {
                prop_assert_eq!(show(&root), show_other(theirs.root_element()), "{:?}", text);
            }
        }
    }

    #[test]
    fn spans_fit_the_text(inner in documents()) {
        let parsed = read(&inner);
        for error in &parsed.errors {
            prop_assert!(inner.get(error.span.range()).is_some(), "{inner:?}: {error:?}");
        }
        let mut open: Vec<&Element> = parsed.tree.iter().collect();
        while let Some(element) = open.pop() {
            prop_assert!(inner.get(element.span.range()).is_some());
            prop_assert_eq!(inner.get(element.name.span.range()), Some(element.name.node.as_str()));
            open.extend(element.elements());
        }
    }
}
