//! Whole files: directives, knowledge, tools, and hooks in both spellings.
#![allow(clippy::unwrap_used, reason = "tests")]

use rye_grammar::data::{Kind, Node};
use rye_grammar::directive::{self, DirectiveTree};
use rye_grammar::knowledge::{self, KnowledgeFormat, KnowledgeTree};
use rye_grammar::tool_header::{self, Constant, Script, ScriptReader, ToolLanguage};
use rye_grammar::{ItemId, Parsed, SourceId, Span, Spanned, SyntaxError, hooks, xml, yaml};
use serde_json::{Value, json};

const SOURCE: SourceId = SourceId(0);

fn directive(text: &str) -> Parsed<DirectiveTree> {
    directive::parse(SOURCE, text)
}

fn codes(errors: &[SyntaxError]) -> Vec<&str> {
    errors.iter().map(SyntaxError::code).collect()
}

const DIRECTIVE: &str = "<!-- rye:signed:2026-02-14T00:27:54Z:ab:cd:ef -->\n# Deploy it\n\nDeploys é.\n\n```xml\n\
    <directive name=\"deploy\">\n  <process>do it</process>\n</directive>\n```\n\n\n  Body {input:x}\n\n```xml\n<other/>\n```\nend  \n\n";

#[test]
fn directive_file_parses_into_all_parts() {
    for text in [DIRECTIVE.to_owned(), DIRECTIVE.replace('\n', "\r\n")] {
        let parsed = directive(&text);
        assert_eq!(parsed.errors, [], "{text:?}");
        let tree = parsed.tree;
        assert_eq!(tree.signature.unwrap().node.key_id, "ef");
        let title = tree.title.unwrap();
        assert_eq!((title.node.as_str(), text.get(title.span.range())), ("Deploy it", Some("Deploy it")));
        let prose = tree.prose.unwrap();
        assert_eq!((prose.node.as_str(), text.get(prose.span.range())), ("Deploys é.", Some("Deploys é.")));
        let root = tree.root.unwrap();
        assert_eq!(root.attribute("name").unwrap().node, "deploy");
        assert_eq!(root.elements().next().unwrap().text().node, "do it");
        assert!(text.get(tree.fence.unwrap().range()).unwrap().starts_with("```xml"));
        let body = tree.body;
        assert_eq!(Some(body.node.as_str()), text.get(body.span.range()));
        assert!(body.node.starts_with("  Body {input:x}") && body.node.ends_with("end"));
    }
}

#[test]
fn a_comment_in_a_script_is_no_title() {
    let parsed = directive("```sh\n# a comment\n```\n# The title\n\n```xml\n<directive/>\n```\n");
    assert_eq!(parsed.tree.title.unwrap().node, "The title");
}

#[test]
fn directive_without_optional_parts_parses() {
    let parsed = directive("```xml\n<directive/>\n```");
    assert_eq!(parsed.errors, []);
    assert_eq!((parsed.tree.title, parsed.tree.prose, parsed.tree.body.node.as_str()), (None, None, ""));
}

/// A second fence with a directive is found anywhere in the file, and both positions are reported.
#[test]
fn second_directive_fence_is_reported() {
    let real = "```xml\n<directive name=\"real\"/>\n```\n";
    for other in [
        "```xml\n<directive name=\"evil\"/>\n```\n",
        "```XML\n<!-- x --><directive>\n</directive>\n```\n",
        "~~~xml\n<directive/>\n~~~\n",
        "`````xml extra words\n<directive/>\n`````\n",
        "   ```xml\n   <directive/>\n   ```\n",
        "        ```xml\n        <directive/>\n        ```\n",
        "- ```xml\n  <directive/>\n  ```\n",
        "1. ~~~  xml\n   <?p?> <directive/>\n   ~~~\n",
        "```xml\r\n<directive/>\r\n```\r\n",
    ] {
        for text in [format!("{other}\n{real}"), format!("{real}\nbody\n{other}")] {
            let parsed = directive(&text);
            assert_eq!(codes(&parsed.errors), ["syntax::fence"], "{text}");
            let labels = parsed.errors.first().unwrap().labels();
            let [(second, _), (first, _)] = labels.as_slice() else { panic!("two labels: {labels:?}") };
            assert!(first.start < second.start, "{text}: {labels:?}");
            let line = text.get(second.range()).unwrap();
            assert!(line.to_lowercase().contains("xml") && !line.contains('\n'), "{text}: {line}");
        }
    }
}

#[test]
fn an_example_in_a_longer_fence_is_text() {
    let text = "````markdown\n```xml\n<directive name=\"example\"/>\n```\n````\n\n```xml\n<directive name=\"real\"/>\n```\n\
        ~~~\n```xml\n<directive/>\n```\n~~~\n> ```xml\n> <directive/>\n> ```\n";
    let parsed = directive(text);
    assert_eq!(parsed.errors, []);
    assert_eq!(parsed.tree.root.unwrap().attribute("name").unwrap().node, "real");
}

/// Each row: the text, a part of the message, the underlined bytes.
#[test]
fn malformed_fences_are_reported() {
    for (text, message, under) in [
        ("", "needs one ```xml fence", ""),
        ("# only prose\nmore", "needs one ```xml fence", "# only prose"),
        ("```\n<directive/>\n```\n", "needs one ```xml fence", "```"),
        ("```sh\nls\n\n```xml\n<directive/>\n", "needs one ```xml fence", "```sh"),
        ("```xml\n<directive>\n</directive>\nbody", "never closed", "```xml"),
        ("```xml\n<note/>\n```\n", "contains `<note>`", "note"),
        ("```xml\n<Directive/>\n```\n", "contains `<Directive>`", "Directive"),
        ("a\0b\n```xml\n<directive/>\n```\n", "U+0000", "\0"),
        ("```xml\n<directive/>\n```\nx\u{1b}[31m", "U+001B", "\u{1b}"),
    ] {
        let parsed = directive(text);
        assert_eq!(codes(&parsed.errors), ["syntax::fence"], "{text}: {:?}", parsed.errors);
        let error = parsed.errors.first().unwrap();
        assert!(error.to_string().contains(message), "{text}: {error}");
        assert_eq!(text.get(error.span.range()), Some(under), "{text}: {error}");
    }
}

#[test]
fn a_broken_fence_still_gives_a_tree() {
    let parsed = directive("```xml\n<directive name='x'><metadata>1 < 2</directive>\n```\nbody");
    assert_eq!(codes(&parsed.errors), ["syntax::xml", "syntax::xml"]);
    assert_eq!(parsed.tree.body.node, "body");
    assert_eq!(parsed.tree.root.unwrap().attribute("name").unwrap().node, "x");
    let empty = directive("```xml\n\n```\n");
    assert_eq!(codes(&empty.errors), ["syntax::xml"]);
}

fn knowledge(text: &str) -> Parsed<KnowledgeTree> {
    knowledge::parse(SOURCE, text, KnowledgeFormat::Markdown)
}

#[test]
fn knowledge_in_markdown() {
    let meta = Some(json!({"name": "X", "tags": ["a"]}));
    for (text, metadata, body) in [
        ("```yaml\nname: X\ntags: [a]\n```\n\n# Title\n\nText.\n", meta.clone(), "# Title\n\nText."),
        ("\n# Title\n<!-- c -->\n~~~yml\nname: X\ntags: [a]\n~~~\nText", meta.clone(), "# Title\n<!-- c -->\n\nText"),
        ("---\nname: X\ntags: [a]\n---\n\nText\n\n---\n", meta.clone(), "Text\n\n---"),
        ("---\r\nname: X\r\ntags: [a]\r\n...\r\nText\r\n", meta.clone(), "Text"),
        ("<!-- rye:signed:t:a:b:c -->\n```yaml\nname: X\ntags: [a]\n```\nText", meta, "Text"),
        (
            "Only text, ${x} and {input:y}.\n\n```yaml\nname: X\n```\n",
            None,
            "Only text, ${x} and {input:y}.\n\n```yaml\nname: X\n```",
        ),
        ("```sh\nls\n```\n```yaml\na: 1\n```\n", None, "```sh\nls\n```\n```yaml\na: 1\n```"),
        ("```yaml\n# nothing\n```\nText", None, "Text"),
        ("", None, ""),
        ("```yaml\nname: X\n```", Some(json!({"name": "X"})), ""),
    ] {
        let parsed = knowledge(text);
        assert_eq!(parsed.errors, [], "{text}");
        assert_eq!(parsed.tree.metadata.map(|m| m.to_value()), metadata, "{text}");
        assert_eq!(parsed.tree.body.node, body, "{text}");
    }
}

#[test]
fn malformed_knowledge_is_reported() {
    for (text, code, under) in [
        ("```yaml\nname: X\n", "syntax::fence", "```yaml"),
        ("---\nname: X\n", "syntax::fence", "---"),
        ("```yaml\n- x\n```\n", "syntax::yaml", "- x"),
        ("```yaml\nname: [X\n```\n", "syntax::yaml", "["),
        ("a\0", "syntax::fence", "\0"),
    ] {
        let parsed = knowledge(text);
        assert_eq!(codes(&parsed.errors), [code], "{text}: {:?}", parsed.errors);
        let under_it = text.get(parsed.errors.first().unwrap().span.range()).unwrap();
        assert!(under_it == under || under.starts_with('-') && under_it.len() <= 3, "{text}: {under_it:?}");
    }
}

#[test]
fn knowledge_in_yaml() {
    let text = "# rye:signed:t:a:b:c\nname: X\nitems:\n  - 1\n";
    let parsed = knowledge::parse(SOURCE, text, KnowledgeFormat::Yaml);
    assert_eq!(parsed.errors, []);
    assert_eq!(parsed.tree.metadata.unwrap().to_value(), json!({"name": "X", "items": [1]}));
    assert_eq!(parsed.tree.body.node, "name: X\nitems:\n  - 1");
    assert!(parsed.tree.signature.is_some());
}

fn tool(text: &str, language: ToolLanguage) -> (Value, Vec<SyntaxError>) {
    let parsed = tool_header::parse(SOURCE, text, language, &tool_header::NoScriptReader);
    (parsed.tree.metadata.to_value(), parsed.errors)
}

#[test]
fn headers_of_scripts_describe_tools() {
    let want = json!({"description": "it's", "parameters": {"a": 1}});
    for text in [
        "#!/bin/sh\n# rye: {description: it's, parameters: {a: 1}}\n# more\nls\n",
        "# rye:signed:t:a:b:c\n#!/bin/sh\n\n#  rye: {description: \"it's\",\n#   parameters: {a: 1}}\nls\n",
        "#!/bin/sh\r\n# rye: {description: \"it's\",\r\n#   parameters: {a: 1}}\r\n",
        "# rye:\n#   description: it's\n#   parameters:\n#     a: 1\n# not this\n",
    ] {
        assert_eq!(tool(text, ToolLanguage::Shell), (want.clone(), vec![]), "{text}");
    }
    assert_eq!(tool("description: it's\nparameters: {a: 1}\n", ToolLanguage::Yaml), (want, vec![]));
    for text in ["ls\n# rye: {a: 1}\n", "", "#!/bin/sh\n# rye:later\nls\n", "# rye:signed:a:b:c:d\n# rye:signed:x\n"] {
        assert_eq!(tool(text, ToolLanguage::Shell), (json!({}), vec![]), "{text}");
    }
    // Without a script reader, a script is an error and not an empty declaration.
    for language in [ToolLanguage::Python, ToolLanguage::JavaScript, ToolLanguage::TypeScript] {
        let (value, errors) = tool("__version__ = '1'\n", language);
        assert_eq!((value, codes(&errors)), (json!({}), vec!["syntax::script"]));
    }
}

/// A script reader that returns fixed constants.
struct FixedScriptReader(Vec<Constant>);

impl ScriptReader for FixedScriptReader {
    fn read(&self, _: SourceId, _: &str, _: ToolLanguage) -> Parsed<Script> {
        Parsed::ok(Script { constants: self.0.clone(), names: vec!["execute".into()], entry: None })
    }
}

#[test]
fn constants_of_scripts() {
    let span = Span::new(SOURCE, 0, 1);
    let constant = |name: &str, value: Option<&str>| Constant {
        name: Spanned::new(name.to_owned(), span),
        value: value.map(|v| Node::new(Kind::String(v.to_owned()), span)).ok_or(span),
    };
    let says = FixedScriptReader(vec![
        constant("__tool_description__", Some("counts")),
        constant("own", None),
        constant("__version__", None),
        constant("__tool_description__", Some("again")),
    ]);
    let parsed = tool_header::parse(SOURCE, "x", ToolLanguage::Python, &says);
    assert_eq!(parsed.tree.metadata.to_value(), json!({"description": "counts"}));
    let messages: Vec<String> = parsed.errors.iter().map(ToString::to_string).collect();
    assert_eq!(messages, ["`__version__` is not constant", "`__tool_description__` is assigned twice"]);
    assert_eq!(codes(&parsed.errors), ["syntax::constant"; 2]);
    assert_eq!(parsed.tree.script.unwrap().names, ["execute"]);
}

#[test]
fn spans_of_a_shell_header() {
    let text = "#!/bin/sh\n# rye: {description: \"é\",\n#   kind: [command]}\nls\n";
    let tree = tool_header::parse(SOURCE, text, ToolLanguage::Shell, &tool_header::NoScriptReader).tree.metadata;
    assert_eq!(text.get(tree.get("kind").unwrap().span.range()), Some("[command]"));
    let text = "#!/bin/sh\n# rye: {a: 1,\n#   a: 2}\nls\n";
    let errors = tool(text, ToolLanguage::Shell).1;
    assert_eq!((codes(&errors), errors.first().unwrap().span.start), (vec!["syntax::yaml"], 28));
    assert_eq!(codes(&tool("- a\n", ToolLanguage::Yaml).1), ["syntax::yaml"]);
}

#[test]
fn further_shell_header_is_an_error() {
    let first = "#!/bin/sh\n# rye: description: d\n";
    for (rest, expected) in [
        ("# rye: version: 1\nls\n", 1),
        ("\n# a comment\n# rye: { version: 1 }\nls\n", 1),
        ("# rye:\n#   version: 1\n# rye:\nls\n", 1),
        ("# a comment\n# rye: is the engine\nls\n# rye: x\n", 1),
        ("# rye:signed:x\n# see rye: y\nls\n# rye: { version: 1 }\n", 0),
    ] {
        let errors = tool(&format!("{first}{rest}"), ToolLanguage::Shell).1;
        let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(messages, vec!["a script has only one `# rye:` comment"; expected], "{rest}");
    }
}

fn hooks_of(text: &str) -> Parsed<Node> {
    let parsed = xml::parse(SOURCE, text, 0..text.len(), &[]);
    assert_eq!(parsed.errors, [], "{text}");
    hooks::from_xml(&parsed.tree.unwrap())
}

#[test]
fn hooks_in_both_spellings() {
    let xml = r#"<hooks>
      <hook id="route" event="resolve_extends" layer="2.5" enabled="false">
        <condition path="directive" op="contains" value="deploy"/>
        <action set_extends="project/deploy"/>
        <description>why</description>
      </hook>
      <hook id="env" event="thread_started" position="before" wrap="true">
        <when>cost.turns &gt;= 3</when>
        <action primary="fetch" item_type="knowledge" item_id="a/b"><param name="n">3</param><param name="t">${x}</param></action>
      </hook>
      <hook id="no" event="tool_call" grants="rye.fetch.*, rye.sign.*"><block reason="no shell"/></hook>
      <hook id="say" event="input"><condition path="n" op="in" value="[1, &quot;2&quot;]"/><transform>new text</transform></hook>
      <hook id="m" event="x"><condition>a == 1</condition><message type="note" display="false">hi</message></hook>
      <hook id="s" event="x"><condition path="n" op="matches" value="404"/><set_extends>a/b</set_extends></hook>
      <hook id="f" event="x"><fetch item_type="knowledge" item_id="k"/></hook>
      <hook id="h" event="x"><handled/></hook>
      <hook id="r" event="x"><retry delay_ms="250"/></hook>
      <hook id="d" event="x"><drop kinds="tool, custom"/></hook>
      <hook id="u" event="x" colour="red"><blok reason="x"/></hook>
    </hooks>"#;
    let want = "
- {id: route, event: resolve_extends, layer: 2.5, enabled: false, condition: {path: directive, op: contains, value: deploy}, action: {set_extends: project/deploy}, description: why}
- {id: env, event: thread_started, position: before, wrap: true, condition: 'cost.turns >= 3', action: {primary: fetch, item_type: knowledge, item_id: a/b, params: {n: 3, t: '${x}'}}}
- {id: 'no', event: tool_call, grants: [rye.fetch.*, rye.sign.*], action: {block: {reason: no shell}}}
- {id: say, event: input, condition: {path: n, op: in, value: [1, '2']}, action: {transform: {text: new text}}}
- {id: m, event: x, condition: a == 1, action: {message: {type: note, display: false, content: hi}}}
- {id: s, event: x, condition: {path: n, op: matches, value: '404'}, action: {set_extends: a/b}}
- {id: f, event: x, action: {primary: fetch, item_type: knowledge, item_id: k}}
- {id: h, event: x, action: {handled: {}}}
- {id: r, event: x, action: {retry: {delay_ms: 250}}}
- {id: d, event: x, action: {drop: {kinds: [tool, custom]}}}
- {id: u, event: x, colour: red, action: {blok: {reason: x}}}
";
    let parsed = hooks_of(xml);
    assert_eq!(parsed.errors, []);
    let yaml = yaml::parse(SOURCE, want);
    assert_eq!(yaml.errors, []);
    assert_eq!(parsed.tree.to_value(), yaml.tree.to_value());
    let unknown = parsed.tree.items().last().unwrap();
    let key = unknown.entries().iter().find(|e| e.key.node == "colour").unwrap();
    assert_eq!(xml.get(key.key.span.range()), Some("colour"));
    let Kind::String(id) = &unknown.get("id").unwrap().kind else { panic!("a string") };
    assert_eq!((id.as_str(), xml.get(unknown.get("id").unwrap().span.range())), ("u", Some("u")));
}

#[test]
fn malformed_hooks_are_reported() {
    for (xml, message) in [
        ("<hooks>stray<hook/></hooks>", "text is not allowed in `<hooks>`"),
        ("<hooks><hok/></hooks>", "`<hok>` is not a hook"),
        ("<hooks x='1'/>", "no attribute `x`"),
        ("<hooks><hook><when>a</when><condition>b</condition></hook></hooks>", "`condition` is given twice"),
        ("<hooks><hook><block/><block/></hook></hooks>", "`block` is given twice"),
        ("<hooks><hook><condition path='a'>b</condition></hook></hooks>", "text is not allowed in `<condition>`"),
        ("<hooks><hook><when><b/></when></hook></hooks>", "`<b>` is not allowed in a condition"),
        ("<hooks><hook><action><param>x</param></action></hook></hooks>", "needs a `name`"),
        ("<hooks><hook><action><param name='n'>[99999999999999999999]</param></action></hook></hooks>", "out of range"),
        ("<hooks><hook><action>x</action></hook></hooks>", "text is not allowed in `<action>`"),
        (
            "<hooks><hook id='a' description='b'><description>c</description></hook></hooks>",
            "`description` is given twice",
        ),
    ] {
        let parsed = hooks_of(xml);
        assert_eq!(codes(&parsed.errors), ["syntax::xml"], "{xml}");
        assert!(parsed.errors.first().unwrap().to_string().contains(message), "{xml}: {:?}", parsed.errors);
    }
}

#[test]
fn item_id_display_equals_its_text() {
    for text in ["a", "rye/agent/core/base", "A-b_9/0"] {
        let id = ItemId::parse(text).unwrap();
        assert_eq!((id.as_str(), id.dotted()), (text, text.replace('/', ".")));
        assert_eq!(ItemId::from_dotted(&id.dotted()), Some(id));
    }
    for text in
        ["", "/", "/a", "a/", "a//b", ".", "..", "a/./b", "a/../b", "a.b", "a/b.md", "a b", "ä", "a\\b", "C:/a", "a\0"]
    {
        assert!(ItemId::parse(text).is_err(), "{text:?}");
    }
}
