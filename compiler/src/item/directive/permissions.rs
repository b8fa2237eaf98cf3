//! `<permissions>`: grants as full patterns, and acknowledgments (`language.md`, Directives and Capabilities).

use std::collections::HashMap;

use rye_grammar::capability::{self, Pattern};
use rye_grammar::xml::Element;
use rye_grammar::{Span, Spanned};

use super::{Acknowledgment, GrantDecl, Permissions};
use crate::diagnostics::{CapabilityError, Diagnostics, ItemError, help_for_tool};
use crate::item::xml::{check_attributes, check_children, quote_tag, reject_text, shorten};
use crate::semantics::needs;
use crate::semantics::risk::Tier;

const PERMISSION_ELEMENTS: [&str; 6] = ["execute", "fetch", "sign", "search", "load", "acknowledge"];
const ITEM_ELEMENTS: [&str; 3] = ["tool", "directive", "knowledge"];
/// The elements of `<fetch>`. In addition to items, `<fetch>` also grants skills.
const FETCH_ELEMENTS: [&str; 4] = ["tool", "directive", "knowledge", "skill"];

/// Maximum number of grants in one `<permissions>`.
const MAX_GRANTS: usize = 1_000;

pub fn read(element: &Element, found: &mut Diagnostics) -> Permissions {
    let before = found.len();
    check_attributes(found, element, &["seal"]);
    check_children(found, element, &PERMISSION_ELEMENTS);
    let mut permissions = Permissions {
        span: element.span,
        sealed: read_seal(element, found),
        grants: Vec::new(),
        acknowledged: Vec::new(),
        has_errors: false,
    };
    if let Some(span) = wildcard_span(element, found) {
        permissions.grants.push(grant_of_pattern(Pattern("rye.*".into()), span));
    }
    for child in element.elements() {
        match child.name.node.as_str() {
            "acknowledge" => permissions.acknowledged.push(acknowledge(child, found)),
            "execute" => read_primary(child, "execute", &mut permissions.grants, found),
            "fetch" | "search" | "load" => read_primary(child, "fetch", &mut permissions.grants, found),
            "sign" => read_primary(child, "sign", &mut permissions.grants, found),
            _ => {}
        }
    }
    if permissions.grants.len() > MAX_GRANTS {
        found.push(ItemError::InvalidValue {
            what: "`<permissions>`".into(),
            found: format!("{} grants", permissions.grants.len()),
            expected: format!("at most {MAX_GRANTS}; a pattern such as `a.b.*` covers several items"),
            span: element.span,
        });
        permissions.grants.truncate(MAX_GRANTS);
    }
    permissions.has_errors = found.len() > before;
    report_repeated(&mut permissions, found);
    permissions
}

/// Removes and reports grants and acknowledgements that repeat an earlier grant or acknowledgement. Grants are equal
/// only if their folders and hosts are equal too, and acknowledgements only if their reasons are equal too. A repeated
/// acknowledgement without a reason is only removed, because the missing reason is reported.
fn report_repeated(permissions: &mut Permissions, found: &mut Diagnostics) {
    let mut firsts = HashMap::new();
    permissions.grants.retain(|grant| {
        let first =
            *firsts.entry((grant.pattern.0.clone(), grant.net.clone(), grant.write.clone())).or_insert(grant.span);
        if first != grant.span {
            let what = format!("the grant `{}`", grant.pattern.0);
            found.push(CapabilityError::Repeated { what, first, second: grant.span });
        }
        first == grant.span
    });
    let mut firsts = HashMap::new();
    permissions.acknowledged.retain(|one| {
        let first = *firsts.entry((one.risk.node.clone(), one.why.clone())).or_insert(one.risk.span);
        if first != one.risk.span && !one.why.is_empty() {
            let what = format!("the acknowledgement of the risk `{}`", one.risk.node);
            found.push(CapabilityError::Repeated { what, first, second: one.risk.span });
        }
        first == one.risk.span
    });
}

/// Reads the attribute `seal`. Reports a value other than `true` and `false`.
fn read_seal(element: &Element, found: &mut Diagnostics) -> bool {
    let Some(seal) = element.attribute("seal") else { return false };
    let value = seal.node.trim();
    if !matches!(value, "true" | "false") {
        found.push(ItemError::InvalidValue {
            what: "`seal`".into(),
            found: format!("`{}`", shorten(value)),
            expected: "`true` or `false`".into(),
            span: seal.span,
        });
    }
    value == "true"
}

fn read_primary(element: &Element, word: &str, grants: &mut Vec<GrantDecl>, found: &mut Diagnostics) {
    check_attributes(found, element, &[]);
    let elements: &[&str] = if word == "fetch" { &FETCH_ELEMENTS } else { &ITEM_ELEMENTS };
    check_children(found, element, elements);
    if let Some(span) = wildcard_span(element, found) {
        grants.push(grant_of_pattern(Pattern(format!("rye.{word}.*")), span));
    }
    for child in element.elements() {
        let kind = child.name.node.as_str();
        if !elements.contains(&kind) {
            continue;
        }
        let text = child.text();
        if let Some(written) = misplaced_pattern(child, &text.node) {
            found.push(ItemError::Missing {
                what: "text".into(),
                of: quote_tag(child),
                span: written.span,
                help: format!("the pattern is the text of the element: `<{kind}>{}</{kind}>`", shorten(&written.node)),
            });
            continue;
        }
        check_attributes(found, child, if kind == "tool" { &["net", "write"] } else { &[] });
        check_children(found, child, &[]);
        match capability::parse_item(text.span.source, &text.node, text.span.start as usize) {
            Ok(Pattern(item)) => {
                // Only `<tool>` can have these attributes. On other elements, `check_attributes` has reported them.
                let mut read = |name| if kind == "tool" { list(child, name, found) } else { Vec::new() };
                let (net, write) = (read("net"), read("write"));
                check_hosts(child, &net, found);
                let pattern = Pattern(format!("rye.{word}.{kind}.{item}"));
                grants.push(GrantDecl { pattern, span: text.span, net, write });
            }
            Err(error) => {
                let help = text.node.contains('(').then(|| help_for_tool(&text.node)).flatten();
                let error = if let Some(help) = help { error.with_help(help) } else { error };
                found.push(if text.span.len() == text.node.len() { error } else { error.within(text.span) });
            }
        }
    }
}

/// Returns the attribute value that was probably meant as the pattern of an element without a text: `t` in `<tool
/// name="t"/>`. `None` if the element has content, or has neither a `name` nor an `id`.
fn misplaced_pattern<'e>(element: &'e Element, text: &str) -> Option<&'e Spanned<String>> {
    let is_empty = text.trim().is_empty() && element.elements().next().is_none();
    ["name", "id"].into_iter().find_map(|name| element.attribute(name)).filter(|_| is_empty)
}

/// Reports values of `net` that cannot be the host of a call. The paths of `write` are checked with the tools that use
/// them.
fn check_hosts(element: &Element, net: &[String], found: &mut Diagnostics) {
    let Some(span) = element.attribute("net").map(|attribute| attribute.span) else { return };
    for host in net {
        if let Some(meant) = needs::suggest_host(host) {
            found.push(ItemError::InvalidValue {
                what: "`net` of `<tool>`".into(),
                found: format!("`{}`", shorten(host)),
                expected: needs::host_help(host, &meant),
                span,
            });
        }
    }
}

fn grant_of_pattern(pattern: Pattern, span: Span) -> GrantDecl {
    GrantDecl { pattern, span, net: Vec::new(), write: Vec::new() }
}

/// Returns the span of the text `*` of an element, which grants everything; `None` if the element has no such text.
/// Other text is reported.
fn wildcard_span(element: &Element, found: &mut Diagnostics) -> Option<Span> {
    let text = element.text();
    match text.node.as_str() {
        "" => None,
        "*" => Some(text.span),
        other => {
            if element.elements().next().is_some() {
                reject_text(found, element);
            } else {
                found.push(ItemError::InvalidValue {
                    what: quote_tag(element),
                    found: format!("`{}`", shorten(other)),
                    expected:
                        "`*` for everything, or elements such as `<execute><tool>rye.file-system.*</tool></execute>`"
                            .into(),
                    span: text.span,
                });
            }
            None
        }
    }
}

/// Reads a comma-separated list from an attribute. A list without an entry is reported as an error. It must not count
/// as a missing attribute, because a grant without the attribute has no bound and would grant more than the author
/// wrote.
fn list(element: &Element, name: &str, found: &mut Diagnostics) -> Vec<String> {
    let Some(value) = element.attribute(name) else { return Vec::new() };
    let entries: Vec<String> =
        value.node.split(',').map(str::trim).filter(|s| !s.is_empty()).map(str::to_owned).collect();
    if entries.is_empty() {
        let entry = if name == "net" { "a host, such as `api.example.com`" } else { "a folder, such as `out/`" };
        found.push(ItemError::InvalidValue {
            what: format!("`{name}` of `<tool>`"),
            found: "empty".into(),
            expected: entry.into(),
            span: value.span,
        });
    }
    entries
}

fn acknowledge(element: &Element, found: &mut Diagnostics) -> Acknowledgment {
    check_attributes(found, element, &["risk"]);
    check_children(found, element, &[]);
    let why = element.text();
    let Some(risk) = element.attribute("risk") else {
        found.push(ItemError::Missing {
            what: "`risk`".into(),
            of: "`<acknowledge>`".into(),
            span: element.name.span,
            help: "write the tier that is acknowledged: `risk=\"elevated\"`".into(),
        });
        // The acknowledgment is kept without a tier, so that the grants are not reported as unacknowledged too.
        return Acknowledgment { risk: Spanned::new(String::new(), element.name.span), why: why.node };
    };
    if why.node.is_empty() {
        found.push(ItemError::Missing {
            what: "reason".into(),
            of: "`<acknowledge>`".into(),
            span: element.name.span,
            help: "write why the grant is needed, between the tags".into(),
        });
    }
    if Tier::parse(risk.node.trim()).is_none() {
        let tiers = Tier::ALL.map(|tier| format!("`{}`", tier.as_str()));
        found.push(ItemError::InvalidValue {
            what: "`risk`".into(),
            found: format!("`{}`", shorten(risk.node.trim())),
            expected: format!("one of {}", tiers.join(", ")),
            span: risk.span,
        });
    }
    Acknowledgment { risk: Spanned::new(risk.node.trim().to_owned(), risk.span), why: why.node }
}
