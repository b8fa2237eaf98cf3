//! Converts the tree of a directive file to a [`Directive`], element by element. Reports elements and attributes
//! outside the closed vocabulary (`language.md`, Directives).

use rye_grammar::directive::DirectiveTree;
use rye_grammar::template::{InputsPart, InputsText};
use rye_grammar::xml::{Element, XmlNode};
use rye_grammar::{Span, Spanned, template};

use super::{ContextDecl, DeclaredLimit, Directive, ModelRequest, fields, permissions};
use crate::diagnostics::{Diagnostics, ItemError};
use crate::item::xml::{check_attributes, check_children, quote_tag, read_text, reject_text, shorten, single_child};
use crate::item::{FileRef, hook, id};
use crate::plan::{NudgePolicy, Sampling, TextSizes};
use crate::semantics::limits::LimitValue;

const ROOT_ELEMENTS: [&str; 8] =
    ["metadata", "inputs", "outputs", "process", "context", "permissions", "limits", "hooks"];
const METADATA_ELEMENTS: [&str; 11] = [
    "description",
    "category",
    "author",
    "model",
    "limits",
    "session",
    "context",
    "permissions",
    "hooks",
    "continuation_directive",
    "nudge",
];

/// Returns the directive, or `None` if the file has no readable `<directive>`; the grammar has already reported why.
pub fn read(file: FileRef, tree: DirectiveTree, found: &mut Diagnostics) -> Option<Directive> {
    let root = tree.root?;
    check_attributes(found, &root, &["name", "version", "extends"]);
    check_children(found, &root, &ROOT_ELEMENTS);
    reject_text(found, &root);
    let name_span = read_name(&file, &root, found);
    if let Some(version) = root.attribute("version").filter(|version| !is_version(version.node.trim())) {
        found.push(ItemError::Version { found: shorten(&version.node), span: version.span });
    }
    let metadata = MetadataSections::find(&root, found);

    let description = metadata.element("description", found).map(|e| read_text(found, e, &[]).node);
    let described = description.filter(|d| !d.is_empty());
    let title = tree.title.clone();
    let description = described
        .or_else(|| tree.prose.map(|p| p.node))
        .or_else(|| title.as_ref().map(|t| t.node.clone()))
        .unwrap_or_default();

    let category = metadata.element("category", found).map(|e| read_text(found, e, &[]));
    if let Some(written) = &category
        && written.node != file.id.category()
    {
        found.push(ItemError::NameMismatch {
            field: "category",
            written: written.node.clone(),
            expected: file.id.category().to_owned(),
            span: written.span,
        });
    }
    let author = metadata.element("author", found).map(|e| read_text(found, e, &[]));
    let model = metadata.element("model", found).map(|e| read_model(e, found));
    let limits = metadata.element("limits", found).map(|e| read_limits(e, &LIMIT_ALIASES, found)).unwrap_or_default();
    let session = metadata.element("session", found).map(|e| read_limits(e, &[], found)).unwrap_or_default();
    let context = metadata.element("context", found).map(|e| read_context(e, found)).unwrap_or_default();
    let permissions = metadata.element("permissions", found).map(|e| permissions::read(e, found));
    let hooks = match metadata.element("hooks", found) {
        Some(e) => hook::from_xml(e, &file, found),
        None => Vec::new(),
    };
    let continuation = metadata
        .element("continuation_directive", found)
        .map(|e| read_text(found, e, &[]))
        .and_then(|text| id::read(found, &text));
    let nudge = metadata.element("nudge", found).and_then(|e| read_nudge(e, found));
    let declarations = single_child(found, &root, "inputs");
    let inputs = declarations.map(|e| fields::read(e, "input", found)).unwrap_or_default();
    // An `<input>` that cannot be read is missing in `inputs`, so the declared names are not all known.
    let is_incomplete = tree.is_incomplete || declarations.is_some_and(|e| inputs.len() < e.elements().count());
    let outputs = single_child(found, &root, "outputs").map(|e| fields::read(e, "output", found)).unwrap_or_default();
    let (body, body_template) = read_body(&root, &tree.body, found);
    Some(Directive {
        span: name_span,
        version: root.attribute("version").cloned(),
        extends: root.attribute("extends").and_then(|text| id::read(found, text)),
        title,
        description,
        category,
        author,
        model,
        limits,
        session_limits: session,
        context,
        permissions,
        hooks,
        continuation,
        nudge,
        inputs,
        outputs,
        body,
        body_sizes: TextSizes::default(),
        body_template,
        is_incomplete,
        file,
    })
}

/// Returns true for numbers with dots, such as `1.0.0`, optionally with a leading `v` and a suffix after `-` or `+`.
fn is_version(text: &str) -> bool {
    let numbers = text.strip_prefix('v').unwrap_or(text).split(['-', '+']).next().unwrap_or_default();
    // A date such as `2026-11-27` has no dots.
    let is_date = text.len() == 10
        && text.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    !is_date && numbers.split('.').all(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The sections of a directive's metadata. A section is an element in `<metadata>`. The elements in [`ROOT_ELEMENTS`]
/// may also be directly under the root.
struct MetadataSections<'e> {
    root: &'e Element,
    metadata: Option<&'e Element>,
}

impl<'e> MetadataSections<'e> {
    fn find(root: &'e Element, found: &mut Diagnostics) -> Self {
        let metadata = single_child(found, root, "metadata");
        if let Some(element) = metadata {
            check_attributes(found, element, &[]);
            check_children(found, element, &METADATA_ELEMENTS);
            reject_text(found, element);
        }
        Self { root, metadata }
    }

    fn element(&self, name: &str, found: &mut Diagnostics) -> Option<&'e Element> {
        let inside = self.metadata.and_then(|m| single_child(found, m, name));
        let aliased = ROOT_ELEMENTS.contains(&name);
        let outside = if aliased { single_child(found, self.root, name) } else { None };
        if let (Some(first), Some(second)) = (inside, outside) {
            found.push(ItemError::Repeated {
                what: quote_tag(first),
                first: first.name.span,
                second: second.name.span,
            });
        }
        inside.or(outside)
    }
}

/// Checks the attribute `name`. Returns the place at which diagnostics about the whole directive are shown: the span of
/// the attribute, or the span of the element's name if the attribute is missing.
fn read_name(file: &FileRef, root: &Element, found: &mut Diagnostics) -> Span {
    let Some(name) = root.attribute("name") else {
        found.push(ItemError::Missing {
            what: "`name`".into(),
            of: "`<directive>`".into(),
            span: root.name.span,
            help: format!("write `name=\"{}\"`, the last part of its id", file.id.name()),
        });
        return root.name.span;
    };
    if name.node != file.id.name() {
        found.push(ItemError::NameMismatch {
            field: "name",
            written: name.node.clone(),
            expected: file.id.name().to_owned(),
            span: name.span,
        });
    }
    name.span
}

fn read_model(element: &Element, found: &mut Diagnostics) -> ModelRequest {
    check_attributes(found, element, &["tier", "id", "provider", "fallback", "temperature", "top_p"]);
    check_children(found, element, &[]);
    reject_text(found, element);
    let mut read = |name: &str| {
        let value = element.attribute(name)?;
        let text = value.node.trim();
        if text.is_empty() {
            found.push(ItemError::InvalidValue {
                what: format!("`{name}` of `<model>`"),
                found: "empty".into(),
                expected: "a name from the provider files, or no attribute".into(),
                span: value.span,
            });
            return None;
        }
        Some(Spanned::new(text.to_owned(), value.span))
    };
    let (tier, id, provider, fallback) = (read("tier"), read("id"), read("provider"), read("fallback"));
    let sampling = Sampling {
        temperature: read_sampling_value(element, "temperature", 2.0, found),
        top_p: read_sampling_value(element, "top_p", 1.0, found),
    };
    ModelRequest { tier, id, provider, fallback, sampling }
}

/// Reads the attribute `name`, a number from 0 to `most`, and keeps the spelling of the number. Reports any other
/// value. `None` if the attribute is missing or invalid.
fn read_sampling_value(
    element: &Element,
    name: &str,
    most: f64,
    found: &mut Diagnostics,
) -> Option<serde_json::Number> {
    let value = element.attribute(name)?;
    let number = serde_json::from_str::<serde_json::Number>(value.node.trim()).ok();
    let number = number.filter(|n| n.as_f64().is_some_and(|n| (0.0..=most).contains(&n)));
    if number.is_none() {
        found.push(ItemError::InvalidValue {
            what: format!("`{name}` of `<model>`"),
            found: format!("`{}`", value.node),
            expected: format!("a number from 0 to {most}, or no attribute"),
            span: value.span,
        });
    }
    number
}

/// Aliases of limits in `<limits>`, each with the name of the limit.
const LIMIT_ALIASES: [(&str, &str); 2] = [("max_turns", "turns"), ("max_tokens", "tokens")];

/// Reads the limits of an element, and replaces aliases by the names of the limits. Names and values are checked later,
/// against the limit table.
fn read_limits(element: &Element, aliases: &[(&str, &str)], found: &mut Diagnostics) -> Vec<DeclaredLimit> {
    check_children(found, element, &[]);
    reject_text(found, element);
    let mut limits: Vec<DeclaredLimit> = Vec::new();
    for attribute in &element.attributes {
        let written = attribute.name.node.as_str();
        let name = aliases.iter().find(|(alias, _)| *alias == written).map_or(written, |(_, name)| *name);
        if let Some(first) = limits.iter().find(|l| l.name.node == name) {
            let (first, second) = (first.name.span, attribute.name.span);
            found.push(ItemError::Repeated { what: format!("the limit `{name}`"), first, second });
            continue;
        }
        limits.push(DeclaredLimit {
            name: Spanned::new(name.to_owned(), attribute.name.span),
            value: attribute.value.clone().map(|v| LimitValue::Text(v.trim().to_owned())),
        });
    }
    limits
}

fn read_context(element: &Element, found: &mut Diagnostics) -> ContextDecl {
    check_attributes(found, element, &[]);
    check_children(found, element, &["system", "before", "after", "suppress"]);
    reject_text(found, element);
    let mut context = ContextDecl::default();
    for child in element.elements() {
        match child.name.node.as_str() {
            "system" => context.system.extend(read_item_id(child, found)),
            "before" => context.before.extend(read_item_id(child, found)),
            "after" => context.after.extend(read_item_id(child, found)),
            // The id can be a knowledge id or a hook id. A hook id has a single segment, so both parse as an item id.
            "suppress" => context.suppress.extend(read_item_id(child, found).map(|i| i.map(|id| id.to_string()))),
            _ => {}
        }
    }
    context
}

fn read_item_id(element: &Element, found: &mut Diagnostics) -> Option<Spanned<rye_grammar::ItemId>> {
    // A common mistake: the id is an attribute (`<before id="rules"/>`), not the text of the element.
    let misplaced = element.attributes.first().filter(|_| element.children.is_empty());
    if let Some(attribute) = misplaced {
        let tag = &element.name.node;
        found.push(ItemError::Missing {
            what: "id".into(),
            of: format!("`<{tag}>`"),
            span: attribute.name.span,
            help: format!(
                "an id is the text of the element: `<{tag}>{}</{tag}>`",
                shorten(attribute.value.node.trim())
            ),
        });
        return None;
    }
    let text = read_text(found, element, &[]);
    id::read(found, &text)
}

fn read_nudge(element: &Element, found: &mut Diagnostics) -> Option<Spanned<NudgePolicy>> {
    let text = read_text(found, element, &[]);
    let policy = match text.node.as_str() {
        "auto" => NudgePolicy::Auto,
        "never" => NudgePolicy::Never,
        "always" => NudgePolicy::Always,
        other => {
            found.push(ItemError::InvalidValue {
                what: "`<nudge>`".into(),
                found: format!("`{other}`"),
                expected: "`auto`, `never` or `always`".into(),
                span: text.span,
            });
            return None;
        }
    };
    Some(Spanned::new(policy, text.span))
}

/// Returns the body of a directive: the text of `<process>`, followed by the text after the metadata block.
fn read_body(root: &Element, after: &Spanned<String>, found: &mut Diagnostics) -> (Spanned<String>, InputsText) {
    let mut parts = Vec::new();
    let mut text = String::new();
    for element in root.elements().filter(|e| e.name.node == "process") {
        check_attributes(found, element, &[]);
        let process = read_process(element);
        if process.node.is_empty() {
            continue;
        }
        inputs_text(&mut parts, &process, found);
        parts.push(InputsPart::Text("\n\n".into()));
        text.push_str(&process.node);
        text.push_str("\n\n");
    }
    inputs_text(&mut parts, after, found);
    if after.node.is_empty() && parts.last() == Some(&InputsPart::Text("\n\n".into())) {
        parts.pop();
        text.truncate(text.trim_end().len());
    }
    text.push_str(&after.node);
    (Spanned::new(text, after.span), InputsText { parts })
}

fn inputs_text(parts: &mut Vec<InputsPart>, text: &Spanned<String>, found: &mut Diagnostics) {
    let mut read = template::read_inputs(text.span.source, &text.node, text.span.start as usize);
    parts.append(&mut read.tree.parts);
    let inside = text.span.len() == text.node.len();
    found.extend(read.errors.into_iter().map(|error| if inside { error } else { error.within(text.span) }));
}

/// Returns the text of a `<process>`; the result keeps elements inside it, because they belong to the prompt.
fn read_process(element: &Element) -> Spanned<String> {
    if element.elements().next().is_none() {
        return element.text();
    }
    let mut text = String::new();
    write_children(element, &mut text);
    Spanned::new(text.trim().to_owned(), element.span)
}

fn write_children(element: &Element, out: &mut String) {
    for child in &element.children {
        match child {
            XmlNode::Text(text) => out.push_str(&text.node),
            XmlNode::Comment(_) => {}
            XmlNode::Element(inner) => {
                out.push('<');
                out.push_str(&inner.name.node);
                for attribute in &inner.attributes {
                    for piece in [" ", &attribute.name.node, "=\"", &attribute.value.node, "\""] {
                        out.push_str(piece);
                    }
                }
                if inner.children.is_empty() {
                    out.push_str("/>");
                } else {
                    out.push('>');
                    write_children(inner, out);
                    for piece in ["</", &inner.name.node, ">"] {
                        out.push_str(piece);
                    }
                }
            }
        }
    }
}
