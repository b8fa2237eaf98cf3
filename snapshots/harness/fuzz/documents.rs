//! Fuzz targets for whole files and whole projects.

use rye_compiler::compile::{CompileRequest, compile};
use rye_compiler::edit::{FormatRefusal, Formatted, format as format_directive, format_data, format_knowledge};
use rye_compiler::report::render::html::render;
use rye_compiler::report::summary::PlanSummary;
use rye_compiler::world::Space;
use rye_engine::scripts::SyntaxTreeReader;
use rye_engine::tool::builtin::html_to_text;
use rye_grammar::knowledge::KnowledgeFormat;
use rye_grammar::tool_header::{ScriptReader, ToolLanguage};
use rye_grammar::{
    ItemId, SourceId, directive as directives, hooks, knowledge as items, tool_header, xml as elements, yaml,
};

use super::small::{assert_errors_displayable, text};
use crate::harness::case::check;
use crate::harness::space::standard_library;

const SOURCE: SourceId = SourceId(0);
/// Largest project in bytes; the other targets cover larger single files.
const MAX_PROJECT_BYTES: usize = 20_000;

pub fn config(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let parsed = yaml::parse(SOURCE, text);
    assert_errors_displayable(text, &parsed.errors);
    let _ = parsed.tree.to_value();
}

pub fn directive(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    assert_errors_displayable(text, &directives::parse(SOURCE, text).errors);
}

pub fn knowledge(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    for format in [KnowledgeFormat::Markdown, KnowledgeFormat::Yaml] {
        assert_errors_displayable(text, &items::parse(SOURCE, text, format).errors);
    }
}

pub fn tool(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    for language in [ToolLanguage::Yaml, ToolLanguage::Shell] {
        assert_errors_displayable(
            text,
            &tool_header::parse(SOURCE, text, language, &tool_header::NoScriptReader).errors,
        );
    }
}

pub fn python(bytes: &[u8]) {
    script(bytes, &[ToolLanguage::Python]);
}

pub fn javascript(bytes: &[u8]) {
    script(bytes, &[ToolLanguage::JavaScript, ToolLanguage::TypeScript]);
}

fn script(bytes: &[u8], languages: &[ToolLanguage]) {
    let Some(text) = text(bytes) else { return };
    for language in languages {
        assert_errors_displayable(text, &SyntaxTreeReader.read(SOURCE, text, *language).errors);
        assert_errors_displayable(text, &tool_header::parse(SOURCE, text, *language, &SyntaxTreeReader).errors);
    }
}

pub fn xml(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    assert_errors_displayable(text, &elements::parse(SOURCE, text, 0..text.len(), &[]).errors);
}

pub fn hooks_xml(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let parsed = elements::parse(SOURCE, text, 0..text.len(), &[]);
    assert_errors_displayable(text, &parsed.errors);
    if let Some(element) = &parsed.tree {
        assert_errors_displayable(text, &hooks::from_xml(element).errors);
    }
}

/// Converts a web page to text, and checks the length of the output and that scripts stay invisible.
pub fn html(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let read = html_to_text(text);
    assert!(read.len() <= text.len().saturating_mul(4).saturating_add(64), "{} bytes of {}", read.len(), text.len());
    assert_eq!(html_to_text(&format!("<script>{}</script>", text.replace('<', " "))).trim(), "");
}

/// Renders the page of `rye plan --format html`, and checks that the text of a directive never becomes markup.
pub fn page(bytes: &[u8]) {
    let Some(text) = text(bytes).filter(|text| text.len() < MAX_PROJECT_BYTES) else { return };
    let made = |body: &str| {
        let mut world = standard_library();
        let file = format!(
            "```xml\n<directive name=\"d\"><metadata><description>x</description></metadata></directive>\n```\n\n{body}\n"
        );
        world.insert(Space::Project, ".ai/directives/d.md", file);
        let request = CompileRequest::new(ItemId::parse("d").ok()?);
        let compilation = compile(&world, &request).value?;
        let summary = PlanSummary::new(&world, None, &compilation).ok()?;
        Some(render(&compilation, &summary))
    };
    let (Some(plain), Some(page)) = (made("Say x."), made(text)) else { return };
    for markup in ["<script", "<img", "<iframe", "<link", "<svg", "<style", "<a ", "<form", " onerror=\"", " onload=\""]
    {
        assert_eq!(page.matches(markup).count(), plain.matches(markup).count(), "{markup}");
    }
    assert!(!page.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')), "a control character");
}

/// Checks a hook file together with the standard library.
pub fn hooks_yaml(bytes: &[u8]) {
    let Some(text) = text(bytes).filter(|text| text.len() < MAX_PROJECT_BYTES) else { return };
    check_project(&[(".ai/config/agent/hooks.yaml", text)]);
}

type FormatFn = fn(&str) -> Result<Formatted, FormatRefusal>;

/// Checks that formatting a formatted file changes nothing.
pub fn format(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let layouts: [FormatFn; 3] =
        [format_directive, format_data, |text| format_knowledge(text, KnowledgeFormat::Markdown)];
    for layout in layouts {
        let Ok(once) = layout(text) else { continue };
        let Ok(twice) = layout(&once.text) else { panic!("what was laid out cannot be laid out again") };
        assert_eq!(twice.text, once.text);
    }
}

/// Checks a project of several files, each after a line `@@ path`, and plans its first directive.
pub fn project(bytes: &[u8]) {
    let Some(text) = text(bytes).filter(|text| text.len() < MAX_PROJECT_BYTES) else { return };
    let mut files: Vec<(&str, &str)> = Vec::new();
    for part in text.split("@@ ").skip(1) {
        let Some((path, content)) = part.split_once('\n') else { continue };
        if path.starts_with(".ai/") && path.len() < 200 {
            files.push((path, content));
        }
    }
    check_project(&files);
}

fn check_project(files: &[(&str, &str)]) {
    let mut world = standard_library();
    for (path, content) in files {
        world.insert(Space::Project, path, content);
    }
    let (diagnostics, sources) = check(&world);
    for diagnostic in diagnostics.iter() {
        let places = diagnostic.labels();
        for label in &places {
            let inside = sources.get(label.span.source).is_some_and(|s| s.text.get(label.span.range()).is_some());
            assert!(inside, "{}: {label:?} lies outside", diagnostic.code());
        }
        assert!(!diagnostic.message().ends_with('.'), "{}", diagnostic.message());
    }
    let id = files.iter().find_map(|(path, _)| path.strip_prefix(".ai/directives/")?.strip_suffix(".md"));
    let Some(id) = id.and_then(|id| ItemId::parse(id).ok()) else { return };
    let request = CompileRequest::new(id);
    let (one, two) = (compile(&world, &request), compile(&world, &request));
    assert_eq!(one.value.map(|c| c.plan_id), two.value.map(|c| c.plan_id), "two plans of one project");
}
