//! Hostile inputs: invalid UTF-8, unbounded nesting, files of fifty megabytes, noise. Every parser returns in time
//! linear in the input's length, on a thread with a small stack.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rye_grammar::condition::{from_data, parse_inline, parse_path};
use rye_grammar::knowledge::KnowledgeFormat;
use rye_grammar::source::decode;
use rye_grammar::tool_header::ToolLanguage;
use rye_grammar::{
    InvalidUtf8, ItemId, SourceId, SyntaxError, capability, directive, hooks, knowledge, signature, template,
    tool_header, xml, yaml,
};

const SOURCE: SourceId = SourceId(0);
/// Languages that this crate parses itself; `engine` parses Python and JavaScript.
const LANGUAGES: [ToolLanguage; 2] = [ToolLanguage::Yaml, ToolLanguage::Shell];

/// Runs every parser on a text and returns all errors.
fn everything(text: &str) -> Vec<SyntaxError> {
    let mut errors = Vec::new();
    errors.extend(parse_inline(SOURCE, text, 0).err());
    errors.extend(parse_path(SOURCE, text, 0).err());
    errors.extend(template::parse(SOURCE, text, 0).err());
    errors.extend(template::parse_inputs(SOURCE, text, 0).err());
    errors.extend(capability::parse(SOURCE, text, 0).err());
    if let Err(bad) = ItemId::parse(text) {
        assert!(text.get(bad.offset..).is_some() && bad.reason.len() < 400, "{bad:?}");
    }
    let scanned = template::scan_knowledge(SOURCE, text, 0);
    assert!(scanned.parts.len() <= text.len() + 1);
    let _ = (capability::is_literal(text), signature::parse(SOURCE, text));
    let data = yaml::parse(SOURCE, text);
    errors.extend(data.errors);
    errors.extend(from_data(&data.tree).errors);
    let element = xml::parse(SOURCE, text, 0..text.len(), &[]);
    errors.extend(element.errors);
    if let Some(element) = &element.tree {
        errors.extend(hooks::from_xml(element).errors);
    }
    errors.extend(directive::parse(SOURCE, text).errors);
    errors.extend(knowledge::parse(SOURCE, text, KnowledgeFormat::Markdown).errors);
    errors.extend(knowledge::parse(SOURCE, text, KnowledgeFormat::Yaml).errors);
    for language in LANGUAGES {
        errors.extend(tool_header::parse(SOURCE, text, language, &tool_header::NoScriptReader).errors);
    }
    errors
}

fn check(text: &str) {
    for error in everything(text) {
        for (span, label) in error.labels() {
            assert!(text.get(span.range()).is_some(), "{error:?}");
            assert!(!label.is_empty());
        }
        let message = error.to_string();
        assert!(!message.is_empty() && !message.ends_with('.') && !message.contains('\n'), "{message:?}");
        assert!(message.len() < 400, "{} bytes: {}", message.len(), error.code());
        assert!(!message.chars().any(char::is_control), "{message:?}");
    }
}

#[test]
fn invalid_utf8_is_rejected() {
    assert_eq!(decode(b"\xEF\xBB\xBFa\r\n").unwrap(), "a\r\n");
    assert_eq!(decode(b"ab\xFFc"), Err(InvalidUtf8 { offset: 2, line: 1, column: 3, is_utf16: false }));
    assert_eq!(decode(b"\xEF\xBB\xBFab\xC3"), Err(InvalidUtf8 { offset: 5, line: 1, column: 3, is_utf16: false }));
    assert_eq!(decode(b"a\n\xC3\xA9\xFF"), Err(InvalidUtf8 { offset: 4, line: 2, column: 2, is_utf16: false }));
    assert!(decode(b"\xFF\xFEa\0").is_err_and(|invalid| invalid.is_utf16));
    assert_eq!(decode(b"").unwrap(), "");
    assert_eq!(decode("\u{feff}\u{feff}".as_bytes()).unwrap(), "\u{feff}");
}

#[test]
fn control_characters_are_reported() {
    for c in ['\0', '\u{1}', '\u{7}', '\u{1b}'] {
        let fence = format!("```xml\n<directive name=\"x{c}\"/>\n```\n");
        assert_eq!(directive::parse(SOURCE, &fence).errors.len(), 1, "{c:?}");
        assert!(yaml::parse(SOURCE, &format!("a: {c}")).errors.len() == 1, "{c:?}");
        assert!(parse_inline(SOURCE, &format!("a == '{c}'"), 0).is_err(), "{c:?}");
        assert!(capability::parse(SOURCE, &format!("rye.{c}"), 0).is_err(), "{c:?}");
        assert!(ItemId::parse(&format!("a/{c}")).is_err(), "{c:?}");
    }
}

/// Runs on a stack of two megabytes, the default of threads other than the main one.
#[test]
fn deep_nesting_is_rejected_without_overflow() {
    let repeated = [
        "(",
        "[",
        "!",
        "! ",
        "not ",
        "-",
        "- ",
        "a + (",
        "exists(",
        "length(",
        "a || (",
        "a && !(",
        "1+",
        "a.",
        "{",
        "<a>",
        "<a b='",
        "</a>",
        "<",
        "&",
        "${",
        "${a || \"",
        "{input:",
        "{input:a:",
        "$",
        "\\",
        "\"",
        "'",
        "`",
        "```xml\n",
        "~~~\n",
        "- ",
        "? ",
        "[{",
        "a: {",
        "a: [",
        "&a [",
        "*a",
        "<!--",
        "<![CDATA[",
        "---\n",
        "# rye: {\n",
        "#",
        "rye.",
        "*",
        "[!",
        "../",
        "a/",
        "\n",
        "\r",
        "\t",
        "é",
        "<hooks><hook>",
        "1 < ",
        "a == ",
        "in ",
        "!!seq ",
        "<<: ",
        "> ",
        "|\n",
    ];
    for piece in repeated {
        check(&piece.repeat(10_000));
    }
    let indented: String = (0..10_000).fold(String::new(), |mut text, depth| {
        text.extend(std::iter::repeat_n(' ', depth));
        text.push_str("a:\n");
        text
    });
    assert!(!yaml::parse(SOURCE, &indented).errors.is_empty());
}

#[test]
fn conditions_are_bounded_in_depth_and_length() {
    let nested = |depth: usize| format!("{}a{}", "(".repeat(depth), ")".repeat(depth));
    assert!(parse_inline(SOURCE, &nested(64), 0).is_ok());
    assert!(parse_inline(SOURCE, &nested(65), 0).is_err());
    assert!(parse_inline(SOURCE, &format!("{}a", "!".repeat(63)), 0).is_ok());
    assert!(parse_inline(SOURCE, &format!("{}a", "!".repeat(64)), 0).is_err());
    assert!(parse_inline(SOURCE, &format!("{}1", "- ".repeat(64)), 0).is_ok());
    assert!(parse_inline(SOURCE, &format!("a{} == 1", " + 1".repeat(70)), 0).is_err());
    assert!(parse_inline(SOURCE, &format!("a{}", " || a".repeat(10_000)), 0).is_ok());
    assert!(parse_inline(SOURCE, &format!("a{}", " && a".repeat(20_000)), 0).is_err());
    let strings = format!("a in [{}'']", "'((((', \"[[[\\\"[[\", ".repeat(500));
    assert!(parse_inline(SOURCE, &strings, 0).is_ok());
    let mapping = |depth: usize| format!("{}{{path: a, value: 1}}{}", "{not: ".repeat(depth), "}".repeat(depth));
    assert_eq!(from_data(&yaml::parse(SOURCE, &mapping(60)).tree).errors, []);
    assert!(!yaml::parse(SOURCE, &mapping(70)).errors.is_empty());
}

/// Returns the processor time of this thread, so that a busy machine causes no failure; elapsed time where it is
/// unavailable.
fn processor_time() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = schedstat.and_then(|text| text.split_whitespace().next()?.parse().ok());
    nanoseconds.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

fn timed(what: &str, work: impl FnOnce()) {
    let start = processor_time();
    work();
    let took = processor_time().saturating_sub(start);
    assert!(took < Duration::from_secs(30), "{what} took {took:?}");
}

/// Parses fifty megabytes of text, and five megabytes of texts for which a parser allocates every few bytes. The time
/// limit is far above linear time in a debug build and far below quadratic time.
#[test]
fn large_files_parse_in_linear_time() {
    const SIZE: usize = 50_000_000;
    let fill = |piece: &str| piece.repeat(SIZE / piece.len());
    let tenth = |piece: &str| piece.repeat(SIZE / 10 / piece.len());
    timed("a body", || {
        let text = format!("```xml\n<directive name=\"x\"/>\n```\n{}", fill("some text, {input:x} and ${y}\n"));
        let parsed = directive::parse(SOURCE, &text);
        assert_eq!(parsed.errors, []);
        assert!(parsed.tree.body.node.len() > SIZE - 100);
    });
    timed("elements", || {
        let text = format!("```xml\n<directive>{}</directive>\n```\n", tenth("<a b=\"c\">text &lt;</a>\n"));
        assert_eq!(directive::parse(SOURCE, &text).errors, []);
    });
    timed("fences", || {
        assert!(!directive::parse(SOURCE, &tenth("```\n```sh\n~~~\n")).errors.is_empty());
    });
    timed("knowledge", || {
        let text = fill("# heading\n<!-- -->\n");
        let parsed = knowledge::parse(SOURCE, &text, KnowledgeFormat::Markdown);
        assert_eq!((parsed.errors.len(), parsed.tree.body.node.len()), (0, text.len() - 1));
        assert_eq!(knowledge::parse(SOURCE, &tenth("```\n- ~~~\n"), KnowledgeFormat::Markdown).errors, []);
    });
    timed("openings of placeholders in knowledge", || {
        assert_eq!(template::scan_knowledge(SOURCE, &tenth("${a${a $${"), 0).parts.len(), 1);
    });
    timed("placeholders", || {
        let text = "${a} text ".repeat(100_000);
        assert_eq!(template::parse(SOURCE, &text, 0).unwrap().parts.len(), 200_000);
    });
    timed("a template without placeholders", || assert!(template::parse(SOURCE, &fill("{no hole} $ "), 0).is_ok()));
    timed("an input that is never closed", || assert!(template::parse_inputs(SOURCE, &fill("{input:a "), 0).is_err()));
    timed("one YAML string", || {
        let text = format!("a: \"{}\"", fill("text "));
        assert_eq!(yaml::parse(SOURCE, &text).errors, []);
    });
    timed("a condition", || assert!(parse_inline(SOURCE, &fill("a && "), 0).is_err()));
    timed("broken XML", || {
        let text = tenth("<a b=<");
        assert!(xml::parse(SOURCE, &text, 0..text.len(), &[]).errors.len() <= 20);
    });
    timed("a shell header", || {
        let text = format!("# rye: {{\n{}", tenth("# a: {\n"));
        assert!(
            !tool_header::parse(SOURCE, &text, ToolLanguage::Shell, &tool_header::NoScriptReader).errors.is_empty()
        );
    });
}

/// Random sequences of tokens that some parser treats specially.
fn token_noise() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "```xml\n",
        "```\n",
        "~~~xml\n",
        "````",
        "<directive",
        " name=\"a\"",
        ">",
        "/>",
        "</directive>",
        "<hooks>",
        "<hook",
        "<when>",
        "</when>",
        "<action",
        "<param name='x'>",
        "&lt;",
        "&",
        "<![CDATA[",
        "]]>",
        "<!--",
        "-->",
        "---\n",
        "a: ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ": ",
        ", ",
        "'",
        "\"",
        "\\",
        "&x ",
        "*x",
        "!t ",
        "|\n  ",
        ">-\n  ",
        "# rye: {",
        "#",
        "${",
        "$${",
        "}",
        "{input:",
        "?",
        "|",
        "||",
        "&&",
        "!",
        "==",
        "<",
        "<=",
        "in ",
        "not ",
        "contains ",
        "matches ",
        "exists(",
        "length(",
        "(",
        ")",
        ".",
        "..",
        "/",
        "*",
        "1",
        "0",
        "01",
        "1.5",
        "1e999",
        "99999999999999999999",
        "true",
        "null",
        "path: ",
        "op: ",
        "value: ",
        "any: ",
        "é",
        "\u{feff}",
        "\u{2028}",
        "\0",
        "\u{1b}",
        "\r\n",
        "\n",
        "\t",
        " ",
        "  ",
        "rye.",
        "search.",
        "`",
        "~",
        "<!-- rye:signed:a:b:c:d -->\n",
    ]);
    prop::collection::vec(pieces, 0..24).prop_map(|p| p.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn token_noise_never_panics(text in token_noise()) {
        check(&text);
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(text) = decode(&bytes) {
            check(text);
        }
        check(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn random_text_never_panics(text in any::<String>()) {
        check(&text);
    }

    /// Text that is not a placeholder is kept byte for byte.
    #[test]
    fn knowledge_without_escapes_is_kept(text in "[a-z${}|\" .\n]{0,40}") {
        prop_assume!(!text.contains("$$"));
        let parts = template::scan_knowledge(SOURCE, &text, 0).parts;
        let joined: String = parts
            .into_iter()
            .map(|part| match part {
                template::TemplatePart::Text(text) => text,
                template::TemplatePart::Placeholder(placeholder) => placeholder.raw,
            })
            .collect();
        prop_assert_eq!(joined, text);
    }
}
