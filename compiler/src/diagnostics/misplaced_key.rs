//! The help for elements, keys and texts at a wrong place, and the search for diagnostics that only follow from another
//! diagnostic.

#![expect(clippy::wildcard_enum_match_arm, reason = "few diagnostics are a consequence of others")]

use std::collections::BTreeSet;

use rye_grammar::{SourceId, Span};

use super::{CapabilityError, ConfigError, Diagnostic, InterfaceError, ItemError, LimitError, ModelError};

/// The keys of the prices of a model.
const PRICES: [&str; 4] = ["input", "output", "cache_read", "cache_write"];

/// Returns the help for an unknown element, key, attribute or text, such as the place where the element belongs. `what`
/// is `element`, `key`, `attribute` or `text`. `key` is the name. `of` is the element or file that contains the name.
/// `None` if no help is known.
pub(super) fn help(what: &str, key: &str, of: &str) -> Option<String> {
    match (what, of) {
        (_, _) if invisible_character(key).is_some() => invisible_character(key).map(|c| {
            format!("the {what} contains the invisible character U+{:04X}: remove it, or write a space", u32::from(c))
        }),
        ("element", "`<permissions>`" | "`<context>`")
            if matches!(key, "hooks" | "limits" | "model" | "context" | "permissions") =>
        {
            Some(format!("the element belongs in `<metadata>`, beside {of}"))
        }
        ("element", "`<context>`") if matches!(key, "system_prompt" | "system-prompt") => {
            Some("did you mean `system`?".to_owned())
        }
        ("element", "`<metadata>`") if matches!(key, "inputs" | "outputs") => {
            Some("the element belongs in `<directive>`, beside `<metadata>`".to_owned())
        }
        ("key", of) if of.starts_with("`models.") && PRICES.contains(&key) => {
            Some("prices belong together: `prices: { input: \"2\", output: \"10\" }`".to_owned())
        }
        ("element", "`<limits>`") => Some(format!("limits are attributes: `<limits {key}=\"…\"/>`")),
        ("element", "`<permissions>`") if matches!(key, "tool" | "directive" | "knowledge") => {
            Some(format!("choose a primary: `<execute><{key}>…</{key}></execute>`, `<fetch>` or `<sign>`"))
        }
        ("key", "`limits` of `agent/agent`") if crate::semantics::limits::LimitName::parse(key).is_some() => {
            Some(format!(
                "to set a default, write `limits: {{ {key}: … }}` in `agent/resilience`; to bound every directive, write `limits: {{ max: {{ {key}: … }} }}` here"
            ))
        }
        ("key", "`check.yaml`") if key.contains("::") => {
            Some(format!("severities belong under `levels`: `levels: {{ \"{key}\": allow }}`"))
        }
        ("key", "`check.yaml`") if matches!(key, "severity" | "severities" | "rules" | "codes" | "allow") => {
            Some("severities of codes belong under `levels`: `levels: { \"item::shadows\": allow }`".to_owned())
        }
        ("text", "`<limits>`") => Some("limits are attributes: `<limits turns=\"10\" spend=\"0.50\"/>`".to_owned()),
        ("text", "`<context>`") => {
            Some(format!("an item of a context is an element: `<before>{key}</before>`, `<after>` or `<system>`"))
        }
        ("text", "`<inputs>`") => Some("an input is an element: `<input name=\"topic\">what it is</input>`".to_owned()),
        ("text", "`<outputs>`") => {
            Some("an output is an element: `<output name=\"url\">what it is</output>`".to_owned())
        }
        ("element", "`<permissions>`") if matches!(key, "allow" | "grant" | "tools" | "allowed" | "allowed-tools") => {
            Some("write a grant: `<execute><tool>rye.file-system.read</tool></execute>`".to_owned())
        }
        ("element", "`<permissions>`") if matches!(key, "deny" | "disallow" | "block" | "ask" | "denied") => {
            Some(format!(
                "remove `<{key}>`: a call without a grant is denied; a hook on `tool_call` blocks single calls, and the risk tier of a grant decides if calls need an approval"
            ))
        }
        ("key", "an action") if key == "type" => Some("did you mean `primary`?".to_owned()),
        ("text", "`<model>`") => Some(format!("a model is named by attributes: `<model tier=\"{key}\"/>`")),
        ("element", "`<input>`" | "`<output>`") if matches!(key, "enum" | "values" | "choices" | "options") => {
            Some("the allowed values are an attribute: `enum=\"a,b\"`".to_owned())
        }
        ("attribute", "`<metadata>`") => Some(format!("write an element: `<metadata><{key}>…</{key}></metadata>`")),
        _ => None,
    }
}

fn invisible_character(text: &str) -> Option<char> {
    let is_invisible = |c: &char| matches!(u32::from(*c), 0xA0 | 0xAD | 0x2000..=0x200F | 0x2028..=0x202F | 0x205F..=0x2064 | 0x3000 | 0xFEFF);
    text.chars().find(is_invisible)
}

/// Returns the indexes of the diagnostics that only follow from another diagnostic:
///
/// - an unknown input, if `<inputs>` is at the wrong place, or if the `name` and the `type` of the input are exchanged,
/// - each further price of a model, if its prices are at the wrong place, and the report that the model has no prices,
/// - a grant or an assertion that matches no directive, if the file of a directive has a wrong name,
/// - an undeclared variable of a tool, if the tool declares its variables under another key than `environment`,
/// - an invalid tier, if two models of the provider have the same id,
/// - a default provider without a tier, if no provider has this tier.
pub(super) fn consequences(all: &[Diagnostic]) -> BTreeSet<usize> {
    let causes = Causes::of(all);
    all.iter().enumerate().filter(|(index, one)| causes.explain(*index, one)).map(|(index, _)| index).collect()
}

/// The mistakes that explain other diagnostics.
#[derive(Default)]
struct Causes {
    /// Files with `<inputs>` at the wrong place.
    inputs: BTreeSet<SourceId>,
    /// Invalid values of `type`, each with its file. If an input's `name` and `type` are exchanged, the value is the
    /// name of the input.
    types: BTreeSet<(SourceId, String)>,
    /// Models with prices at the wrong place, in the form in which the message names them, each with the index of the
    /// diagnostic for the first price.
    prices: Vec<(String, usize)>,
    /// The ids of directives whose files have a wrong name.
    directives: BTreeSet<String>,
    /// Files of tools that declare variables under another key than `environment`.
    variables: BTreeSet<SourceId>,
    /// Provider files with two models of one id.
    models: BTreeSet<SourceId>,
    /// Tiers that no provider has.
    tiers: BTreeSet<String>,
}

impl Causes {
    fn of(all: &[Diagnostic]) -> Self {
        let mut causes = Self::default();
        for (index, one) in all.iter().enumerate() {
            match one {
                Diagnostic::Item(ItemError::UnknownKey { what: "element", key, span, .. }) if key == "inputs" => {
                    causes.inputs.insert(span.source);
                }
                Diagnostic::Item(ItemError::UnknownKey { what: "key", key, of, .. })
                    if of.starts_with("`models.")
                        && PRICES.contains(&key.as_str())
                        && causes.prices.iter().all(|(known, _)| known != of) =>
                {
                    causes.prices.push((of.clone(), index));
                }
                Diagnostic::Item(ItemError::InvalidValue { what, found, span, .. }) if what == "`type`" => {
                    causes.types.insert((span.source, found.trim_matches('`').to_owned()));
                }
                Diagnostic::Item(ItemError::Unrecognized { suggestion: Some(path), .. }) => {
                    let id = path.strip_prefix(".ai/directives/").and_then(|id| id.strip_suffix(".md"));
                    causes.directives.extend(id.map(str::to_owned));
                }
                Diagnostic::Item(ItemError::ToolKey { help: Some(help), span, .. })
                    if help.starts_with("did you mean `environment`") =>
                {
                    causes.variables.insert(span.source);
                }
                Diagnostic::Item(ItemError::Repeated { what, second, .. }) if what.starts_with("the model `") => {
                    causes.models.insert(second.source);
                }
                Diagnostic::Model(ModelError::Unknown { requested, .. } | ModelError::NoTier { requested, .. }) => {
                    causes.tiers.insert(requested.clone());
                }
                _ => {}
            }
        }
        causes
    }

    fn explain(&self, index: usize, one: &Diagnostic) -> bool {
        let of_price = |model: &str| self.prices.iter().any(|(of, _)| of.starts_with(&format!("`models.{model}`")));
        match one {
            Diagnostic::Interface(InterfaceError::UnknownInput { name, span: Some(Span { source, .. }), .. }) => {
                self.inputs.contains(source) || self.types.contains(&(*source, name.clone()))
            }
            Diagnostic::Item(ItemError::UnknownKey { what: "key", key, of, .. }) if PRICES.contains(&key.as_str()) => {
                self.prices.iter().any(|(known, first)| known == of && *first != index)
            }
            Diagnostic::Limit(LimitError::Unpriced { model, .. })
            | Diagnostic::Model(ModelError::Unpriced { model, .. }) => of_price(model),
            Diagnostic::Capability(CapabilityError::MatchesNothing { pattern, .. }) => {
                let id = pattern.strip_prefix("rye.execute.directive.");
                id.is_some_and(|id| self.directives.contains(&id.replace('.', "/")))
            }
            Diagnostic::Config(ConfigError::AssertsNothing { why, .. }) => {
                !self.directives.is_empty() && why == "`for` selects no directive"
            }
            Diagnostic::Item(ItemError::ToolValue { message, span, .. }) => {
                self.variables.contains(&span.source) && message.ends_with("is not a variable that this tool declares")
            }
            Diagnostic::Config(ConfigError::Invalid { key, span: Some(span), .. }) => {
                key.starts_with("tiers.") && self.models.contains(&span.source)
            }
            Diagnostic::Model(ModelError::NoDefault { tier, .. }) => self.tiers.contains(tier),
            _ => false,
        }
    }
}
