//! Consequences of a part that could not be read: an unclosed fence, an element in a wrong place, an invalid value, a
//! provider file under a wrong name. Only the part itself is reported.

#![expect(clippy::wildcard_enum_match_arm, reason = "few diagnostics are a consequence of others")]

use std::collections::BTreeSet;

use rye_grammar::{SourceId, Span, SyntaxKind};

use super::{
    CapabilityError, ConfigError, Diagnostic, HookError, InterfaceError, ItemError, LimitError, ModelError, SpawnError,
};

/// Returns the indexes of diagnostics that disappear once the part that could not be read is corrected. An error
/// disappears only in favor of another error, so a directive with an error never has a plan.
pub(super) fn consequences(all: &[Diagnostic]) -> BTreeSet<usize> {
    let parts = UnreadCauses::of(all);
    all.iter().enumerate().filter(|(_, one)| parts.explain(one)).map(|(index, _)| index).collect()
}

/// The causes of parts that could not be read. Other reports of the same parts are consequences of these causes.
#[derive(Default)]
struct UnreadCauses {
    /// Files whose metadata fence is never closed.
    unclosed: BTreeSet<SourceId>,
    /// Files with an `<input>` outside of `<inputs>`.
    stray_inputs: BTreeSet<SourceId>,
    /// Places of invalid values.
    values: Vec<Span>,
    /// Places of `required` attributes with an invalid value.
    required: Vec<Span>,
    /// Places of limits that do not pay for one turn.
    unaffordable: Vec<Span>,
    /// Providers whose file has a wrong name or place.
    providers: BTreeSet<String>,
    /// Places of errors in the files of MCP servers.
    servers: Vec<Span>,
    /// Places of texts that are probably meant as a list.
    text_lists: Vec<Span>,
    /// Places of syntax errors in XML.
    xml: Vec<Span>,
}

impl UnreadCauses {
    fn of(all: &[Diagnostic]) -> Self {
        let mut parts = Self::default();
        for one in all {
            match one {
                Diagnostic::Syntax(error) if error.kind == SyntaxKind::Fence => {
                    parts.unclosed.extend(one.labels().first().map(|label| label.span.source));
                }
                Diagnostic::Syntax(error) if error.kind == SyntaxKind::Xml => parts.xml.push(error.span),
                Diagnostic::Item(ItemError::UnknownKey { key, of, span, .. })
                    if key == "input" && of == "`<directive>`" =>
                {
                    parts.stray_inputs.insert(span.source);
                }
                Diagnostic::Item(ItemError::InvalidValue { what, span, .. }) => {
                    parts.values.push(*span);
                    if what == "`required`" {
                        parts.required.push(*span);
                    }
                }
                Diagnostic::Limit(LimitError::CannotAffordOneTurn { span: Some(span), .. }) => {
                    parts.unaffordable.push(*span);
                }
                Diagnostic::Config(ConfigError::UnknownFile { suggestion: Some(meant), .. })
                | Diagnostic::Item(ItemError::Unrecognized { suggestion: Some(meant), .. }) => {
                    let provider = meant.strip_prefix(".ai/config/agent/providers/");
                    parts.providers.extend(provider.and_then(|name| name.strip_suffix(".yaml")).map(str::to_owned));
                }
                Diagnostic::Config(ConfigError::Servers { span: Some(span), .. }) => parts.servers.push(*span),
                Diagnostic::Hook(HookError::TextList { span, .. }) => parts.text_lists.push(*span),
                _ => {}
            }
        }
        parts
    }

    fn explain(&self, one: &Diagnostic) -> bool {
        match one {
            Diagnostic::Capability(CapabilityError::Unacknowledged { span, .. }) => {
                self.unclosed.contains(&span.source)
            }
            Diagnostic::Interface(InterfaceError::UnknownInput { span: Some(span), .. }) => {
                self.stray_inputs.contains(&span.source)
            }
            // A syntax error inside an element changes the text of the element, which is the name of the action.
            Diagnostic::Item(ItemError::InvalidValue { what, span, .. }) => {
                what == "`action`" && self.xml.iter().any(|text| contains(span, text))
            }
            Diagnostic::Interface(InterfaceError::NeededInput { declared, .. }) => {
                self.required.iter().any(|value| contains(declared, value))
            }
            Diagnostic::Hook(HookError::NoEffect { span, .. }) => self.values.iter().any(|value| contains(span, value)),
            Diagnostic::Hook(HookError::UnknownCall { span, .. } | HookError::UnknownValue { span, .. }) => {
                self.text_lists.contains(span)
            }
            // If the limit of the parent does not pay for one turn, no money remains for a child.
            Diagnostic::Spawn(SpawnError::NoBudget { span, .. }) => {
                self.unaffordable.iter().any(|limit| limit.source == span.source)
            }
            Diagnostic::Model(
                ModelError::NoProvider { requested, .. } | ModelError::Unknown { provider: Some(requested), .. },
            ) => self.providers.contains(requested),
            Diagnostic::Config(ConfigError::Implausible { span, .. }) => self.servers.contains(span),
            _ => false,
        }
    }
}

fn contains(outer: &Span, inner: &Span) -> bool {
    outer.source == inner.source && outer.start <= inner.start && inner.end <= outer.end
}
