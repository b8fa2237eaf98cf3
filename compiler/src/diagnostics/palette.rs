//! `palette::*`: tools that cannot be offered to the model, and protocol items that do not match the granted primaries.

use rye_grammar::Span;
use thiserror::Error;

use super::{Label, Problem, Severity, new_label};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PaletteError {
    /// Two items have the same tool name `name`. A tool name is the id of the item, with `_` for each character other
    /// than letters and digits. `span` is the grant that reaches both items; `None` if no file contains the grant.
    #[error("`{first}` and `{second}` would both have the tool name `{name}`")]
    Collision { name: String, first: String, second: String, span: Option<Span> },
    /// A protocol item (knowledge that explains a primary to the model) describes a primary that no grant allows.
    #[error("`{item}` describes `{primary}`, which this directive is not granted")]
    DescribesUngranted { item: String, primary: String, span: Span },
    #[error("the directive is granted `{primary}`, but no protocol item describes it")]
    Undescribed { primary: String, item: String, span: Span },
    #[error("providers do not accept the tool name `{name}`")]
    Name { name: String, item: String, span: Option<Span> },
    /// A body that calls a granted tool by its name in the palette. The tool is not in the palette, because
    /// `tool_preload.enabled` is false. `setting` is the place of this setting.
    #[error("`{name}` is not in the palette, because `tool_preload.enabled` is false")]
    Hidden { name: String, item: String, span: Span, setting: Span },
    /// Granted tools that do not fit into the token budget of the palette. `tools` are these tools, each with the
    /// tokens of its definition.
    #[error("{} of the granted tools {} into the palette of {max_tokens} tokens", tools.len(), if tools.len() == 1 { "does not fit" } else { "do not fit" })]
    Dropped { tools: Vec<(String, u64)>, max_tokens: u64, span: Span },
}

impl Problem for PaletteError {
    fn code(&self) -> &'static str {
        match self {
            Self::Collision { .. } => "palette::collision",
            Self::DescribesUngranted { .. } => "palette::describes-ungranted",
            Self::Undescribed { .. } => "palette::undescribed",
            Self::Name { .. } => "palette::name",
            Self::Dropped { .. } | Self::Hidden { .. } => "palette::dropped",
        }
    }

    fn severity(&self) -> Severity {
        match self {
            Self::Collision { .. } | Self::Name { .. } => Severity::Error,
            Self::DescribesUngranted { .. } | Self::Undescribed { .. } | Self::Dropped { .. } | Self::Hidden { .. } => {
                Severity::Warning
            }
        }
    }

    fn help(&self) -> Option<String> {
        Some(match self {
            Self::Collision { .. } => "rename one of the tools, or grant only one of them".into(),
            Self::DescribesUngranted { item, .. } => {
                format!("suppress the item with `<suppress>{item}</suppress>`, or grant the primary")
            }
            Self::Undescribed { item, .. } => format!("add `<before>{item}</before>` to `<context>`"),
            Self::Dropped { tools, .. } => {
                let shown: Vec<String> =
                    tools.iter().take(8).map(|(id, tokens)| format!("`{id}` ({tokens})")).collect();
                let more = tools.len().saturating_sub(shown.len());
                let more = if more == 0 { String::new() } else { format!(" and {more} more") };
                format!(
                    "tools left out of the palette, callable only through `rye_execute`: {}{more}; grant fewer tools, or raise `tool_preload.max_tokens`",
                    shown.join(", ")
                )
            }
            Self::Hidden { item, .. } => format!(
                "write `rye_execute(item_type=\"tool\", item_id=\"{item}\", parameters={{…}})`, or enable `tool_preload`"
            ),
            Self::Name { .. } => "give the tool an id of at most 64 characters, folders included".into(),
        })
    }

    fn labels(&self) -> Vec<Label> {
        match self {
            Self::Collision { span, .. } => span.iter().map(|s| new_label(*s, "this grant reaches both")).collect(),
            Self::DescribesUngranted { primary, span, .. } => {
                vec![new_label(*span, format!("`{primary}` is described but not granted"))]
            }
            Self::Undescribed { primary, span, .. } => {
                vec![new_label(*span, format!("`{primary}` is granted, but no text of the prompt explains it"))]
            }
            Self::Dropped { span, .. } => vec![new_label(*span, "the granted tools do not all fit")],
            Self::Hidden { span, setting, .. } => {
                vec![new_label(*span, "an unknown tool for the model"), new_label(*setting, "disabled here")]
            }
            Self::Name { span, .. } => span.iter().map(|s| new_label(*s, "this grant reaches it")).collect(),
        }
    }
}
