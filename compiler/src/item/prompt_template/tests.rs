//! Tests of prompt templates: reading, arguments and placeholders.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use rye_grammar::ItemId;

use super::*;
use crate::diagnostics::Diagnostic;
use crate::item::Items;
use crate::world::{MapWorld, Space};

/// Template, arguments as typed, and the expected text.
const CASES: [(&str, &str, &str); 67] = [
    // Numbered arguments.
    ("$1", "a", "a"),
    ("$1 and $2", "a b", "a and b"),
    ("$2 before $1", "a b", "b before a"),
    ("$1$2", "a b", "ab"),
    ("$1$1", "a", "aa"),
    ("${1}0", "a", "a0"),
    ("$10", "1 2 3 4 5 6 7 8 9 ten", "ten"),
    ("${10}", "1 2 3 4 5 6 7 8 9 ten", "ten"),
    ("$01", "a", "a"),
    ("$1.", "a", "a."),
    ("x$1y", "ä", "xäy"),
    ("$1", "", ""),
    ("[$3]", "a b", "[]"),
    ("$0", "a", "$0"),
    ("${0}", "a", "${0}"),
    ("$99999999999999999999999", "a", "$99999999999999999999999"),
    // All arguments.
    ("$@", "a b c", "a b c"),
    ("$ARGUMENTS", "a b c", "a b c"),
    ("<$@>", "", "<>"),
    ("<$ARGUMENTS>", "", "<>"),
    ("$ARGUMENTS_X $ARGUMENTS2 $ARGUMENT", "a", "$ARGUMENTS_X $ARGUMENTS2 $ARGUMENT"),
    ("$ARGUMENTS.", "a", "a."),
    ("$@$@", "a", "aa"),
    // Slices.
    ("${@:2}", "a b c", "b c"),
    ("${@:1}", "a b c", "a b c"),
    ("${@:0}", "a b c", "a b c"),
    ("<${@:4}>", "a b c", "<>"),
    ("${@:2:1}", "a b c", "b"),
    ("${@:2:9}", "a b c", "b c"),
    ("<${@:2:0}>", "a b c", "<>"),
    ("${@:}", "a", "${@:}"),
    ("${@:x}", "a", "${@:x}"),
    ("${@:1:}", "a", "${@:1:}"),
    ("${@:1:2:3}", "a", "${@:1:2:3}"),
    // Defaults.
    ("${2:-x}", "a b", "b"),
    ("${2:-x}", "a", "x"),
    ("${1:-two words}", "", "two words"),
    ("${1:-x}", "''", "x"),
    ("${1:-}", "", ""),
    ("${1:-$2}", "", "$2"),
    ("${1:-a\nb}", "", "a\nb"),
    ("${1:x}", "a", "${1:x}"),
    // Dollars that are text.
    ("$$1", "a", "$1"),
    ("$$$1", "a", "$a"),
    ("$$", "", "$"),
    ("5$", "", "5$"),
    ("$x $ {1}", "a", "$x $ {1}"),
    ("${x}", "a", "${x}"),
    ("${", "a", "${"),
    ("${1", "a", "${1"),
    ("${@:1 $1", "a", "${@:1 a"),
    ("${1:-x $1", "a", "${1:-x a"),
    ("${1:-${1:-", "a", "${1:-${1:-"),
    // Placeholders in arguments and defaults stay text.
    ("$1 $2", "'$2' b", "$2 b"),
    ("$@", "'${1:-x}' $$", "${1:-x} $$"),
    // Quoting.
    ("[$1][$2]", "a \"b c\"", "[a][b c]"),
    ("[$1][$2]", "'a b' c", "[a b][c]"),
    ("[$1][$2]", "a\\ b c", "[a b][c]"),
    ("[$1]", "a'b'\"c\"", "[abc]"),
    ("[$1][$2]", "'' b", "[][b]"),
    ("[$1]", "\"a \\\"b\\\" \\x\"", "[a \"b\" \\x]"),
    ("[$1]", "'a\\'", "[a\\]"),
    ("$@", "don't break it", "don't break it"),
    ("$@", "a \"b", "a \"b"),
    ("[$1]", "a\\", "[a\\]"),
    ("[$1][$2]", "  a \t\n b  ", "[a][b]"),
    ("[$1]", "\"a\nb\"", "[a\nb]"),
];

fn filled(body: &str, typed: &str) -> FilledTemplate {
    fill(body, &split_arguments(typed))
}

#[test]
fn fill_replaces_each_placeholder_of_the_table() {
    for (body, typed, expected) in CASES {
        assert_eq!(filled(body, typed).text.as_deref(), Some(expected), "{body:?} with {typed:?}");
    }
}

#[test]
fn fill_reports_missing_and_unused_arguments() {
    let numbers = |body: &str, typed: &str| {
        let filled = filled(body, typed);
        (filled.missing.into_iter().collect::<Vec<_>>(), filled.unused.into_iter().collect::<Vec<_>>())
    };
    assert_eq!(numbers("$1 $3 $3", "a b"), (vec![3], vec![2]));
    assert_eq!(numbers("$1 ${2:-x}", "a"), (vec![], vec![]));
    assert_eq!(numbers("${2}", ""), (vec![2], vec![]));
    assert_eq!(numbers("$ARGUMENTS", ""), (vec![], vec![]));
    assert_eq!(numbers("${@:2:1}", "a b c"), (vec![], vec![1, 3]));
    assert_eq!(numbers("no placeholder $$1", "a b"), (vec![], vec![1, 2]));
}

#[test]
fn fill_bounds_the_text_and_is_linear() {
    let long = "x".repeat(1 << 20);
    assert_eq!(fill(&"$1".repeat(100_000), std::slice::from_ref(&long)).text, None);
    assert_eq!(fill(&"$@".repeat(100_000), &vec![long; 40]).text, None);
    for body in ["${1:-".repeat(200_000), "${".repeat(500_000), "$".repeat(1_000_001), "${@:1:".repeat(200_000)] {
        assert!(fill(&body, &[]).text.is_some());
    }
    for typed in ["'".repeat(1_000_001), "\"\\".repeat(500_000), "\\".repeat(1_000_001), "a'".repeat(500_001)] {
        assert!(!split_arguments(&typed).is_empty());
    }
}

fn read_template(path: &str, text: impl AsRef<[u8]>) -> (Option<PromptTemplate>, Vec<Diagnostic>) {
    let world = MapWorld::new().project(path, text);
    let items = Items::new(&world);
    let template = items.prompt_template(&ItemId::parse("t").unwrap()).map(|template| (*template).clone());
    (template, items.diagnostics().into_iter().collect())
}

fn codes(found: &[Diagnostic]) -> Vec<&'static str> {
    found.iter().map(Diagnostic::code).collect()
}

#[test]
fn front_matter_is_read_and_left_out_of_the_body() {
    let text = "---\ndescription: Reviews a file\nargument-hint: \"[file]\"\n---\n\nReview $1.\n";
    let (template, found) = read_template(".ai/prompts/t.md", text);
    let template = template.unwrap();
    assert_eq!(found, []);
    assert_eq!(template.description.as_deref(), Some("Reviews a file"));
    assert_eq!(template.argument_hint.as_deref(), Some("[file]"));
    assert_eq!(template.body.node, "Review $1.");
    assert_eq!(template.file.space, Space::Project);
    assert_eq!(template.command(), "t");
    assert_eq!(template.sha256.len(), 64);
}

#[test]
fn a_yaml_fence_of_a_template_is_text() {
    let (template, found) = read_template(".ai/prompts/t.md", "```yaml\na: b\n```\n$1");
    assert_eq!(found, []);
    assert_eq!(template.unwrap().body.node, "```yaml\na: b\n```\n$1");
}

#[test]
fn templates_in_ai_have_a_closed_vocabulary() {
    let (_, found) = read_template(".ai/prompts/t.md", "---\ndescripton: x\n---\ny");
    assert_eq!(codes(&found), ["item::unknown-key"]);
    let (_, found) = read_template(".ai/prompts/t.md", "---\ndescription: [a]\n---\ny");
    assert_eq!(codes(&found), ["item::invalid-value"]);
    let (_, found) = read_template(".ai/prompts/t.md", "---\ndescription: a\n\ny");
    assert_eq!(codes(&found), ["syntax::fence"]);
}

#[test]
fn templates_of_other_clients_are_read_as_far_as_possible() {
    let text = "---\nallowed-tools: Bash\nargument-hint: [file]\ndescription: x\n---\n$1";
    let (template, found) = read_template(".claude/commands/t.md", text);
    assert_eq!(found, []);
    assert_eq!(template.unwrap().argument_hint.as_deref(), Some("[file]"));
    let text = "---\nargument-hint: [file] [priority]\ndescription: \"Use when: asked\"\n---\n$1 $2";
    let (template, found) = read_template(".claude/commands/t.md", text);
    let template = template.unwrap();
    assert!(!found.is_empty() && found.iter().all(|d| d.code() == "item::invalid-value" && !d.is_error()), "{found:?}");
    assert_eq!(template.argument_hint.as_deref(), Some("[file] [priority]"));
    assert_eq!(template.description.as_deref(), Some("Use when: asked"));
    assert_eq!(template.body.node, "$1 $2");
}

#[test]
fn hint_with_more_arguments_than_the_text_uses_is_reported() {
    let codes_of = |body: &str| {
        let text = format!("---\nargument-hint: \"[crop] [bed] [day]\"\n---\n{body}");
        codes(&read_template(".ai/prompts/t.md", &text).1).join(" ")
    };
    assert_eq!(codes_of("Sow $1."), "template::arguments");
    for clean in ["Sow $1 in $2 on $3.", "Sow $ARGUMENTS.", "Sow $1 with ${@:2}."] {
        assert_eq!(codes_of(clean), "", "{clean}");
    }
}

#[test]
fn shell_commands_and_imports_are_reported_where_they_are() {
    let text = "---\ndescription: d\n---\nStatus: !`git status`\n@docs/a.md\n@import b\n@alice, look at a!`b`\n```\n@app.route\n!`x`\n```\n";
    let (template, found) = read_template(".ai/prompts/t.md", text);
    let mut places: Vec<(&str, &str)> =
        found.iter().map(|d| (d.code(), d.labels().first().map_or("", |l| &text[l.span.range()]))).collect();
    places.sort_unstable();
    assert_eq!(
        places,
        [("template::import", "@docs/a.md"), ("template::import", "@import b"), ("template::shell", "!`git status`")]
    );
    assert!(found.iter().all(|d| !d.is_error()));
    assert!(template.unwrap().body.node.starts_with("Status: !`git status`\n@docs/a.md\n@import b\n"));
}

#[test]
fn files_named_inside_a_line_are_reported_and_other_words_with_an_at_sign_are_not() {
    let body =
        "See @script.yaml, then (@docs/rules.md).\nAsk @alice or a@b.md about @app.route, @types/node and `@x.md`.\n";
    let text = format!("---\ndescription: d\n---\n{body}");
    let (_, found) = read_template(".ai/prompts/t.md", &text);
    let mut places: Vec<&str> =
        found.iter().map(|d| d.labels().first().map_or("", |l| &text[l.span.range()])).collect();
    places.sort_unstable();
    assert_eq!(places, ["@docs/rules.md", "@script.yaml"]);
    assert!(found.iter().all(|d| d.code() == "template::import"));
}

#[test]
fn hostile_files_are_reported_and_never_panic() {
    let (template, found) = read_template(".ai/prompts/t.md", vec![b'$'; 10 << 20]);
    assert!(template.is_none());
    assert_eq!(codes(&found), ["item::unreadable"]);
    let (template, found) = read_template(".ai/prompts/t.md", b"a\xff\xfe$1");
    assert!(template.is_none());
    assert_eq!(codes(&found), ["item::unreadable"]);
    let (template, found) = read_template(".ai/prompts/t.md", "a\0$1");
    assert_eq!(template.unwrap().body.node, "a\0$1");
    assert_eq!(codes(&found), ["syntax::fence"]);
    for text in
        ["", "---", "---\n---", "---\n---\n", "!`", "@", "\u{feff}---\ndescription: x\n---\ny", "---\n- a\n---\nx"]
    {
        for path in [".ai/prompts/t.md", ".claude/commands/t.md"] {
            assert!(read_template(path, text).0.is_some(), "{text:?}");
        }
    }
}
