//! `extends::*`: chains that cannot be resolved.

use rye_grammar::{ItemId, Span};
use thiserror::Error;

use super::{Label, Problem, did_you_mean, new_label};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ExtendsError {
    /// The extends parent `id` does not exist. `by_hook` is the `resolve_extends` hook that set the parent; `None` if a
    /// directive declares the parent.
    #[error("unknown parent directive `{id}`")]
    Unknown { id: String, span: Span, suggestion: Option<String>, by_hook: Option<String> },
    /// The directives of the cycle, each with the span that names its extends parent, in chain order, beginning with
    /// the smallest id.
    #[error("`extends` forms a cycle: {}", format_cycle(links))]
    Cycle { links: Vec<(ItemId, Span)> },
    #[error("the extends chain of `{leaf}` has more than {limit} directives")]
    TooDeep { leaf: ItemId, limit: usize, span: Span },
}

/// Formats a cycle for the message: `a → b → a`.
fn format_cycle(links: &[(ItemId, Span)]) -> String {
    let ids = links.iter().chain(links.first()).map(|(id, _)| format!("`{id}`"));
    ids.collect::<Vec<_>>().join(" → ")
}

impl Problem for ExtendsError {
    fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "extends::unknown",
            Self::Cycle { .. } => "extends::cycle",
            Self::TooDeep { .. } => "extends::too-deep",
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            Self::Unknown { id, suggestion, .. } => did_you_mean(suggestion.as_ref(), || {
                Some(format!("create `.ai/directives/{id}.md`, or extend a directive that exists"))
            }),
            Self::Cycle { links } if links.len() == 1 => {
                Some("remove this `extends`, or name the directive that was meant".into())
            }
            Self::Cycle { .. } => Some("remove one of these `extends`, so that the chain has a root".into()),
            Self::TooDeep { limit, .. } => Some(format!("flatten the chain to {limit} directives or fewer")),
        }
    }

    fn labels(&self) -> Vec<Label> {
        match self {
            Self::Unknown { span, by_hook, .. } => {
                let text = by_hook.as_ref().map_or_else(
                    || "no directive has this id".to_owned(),
                    |hook| format!("set by the hook `{hook}`; no directive has this id"),
                );
                vec![new_label(*span, text)]
            }
            Self::Cycle { links } => {
                let count = links.len();
                let parents = links.iter().cycle().skip(1);
                links
                    .iter()
                    .zip(parents)
                    .take(count)
                    .map(|((id, span), (parent, _))| new_label(*span, format!("`{id}` extends `{parent}`")))
                    .collect()
            }
            Self::TooDeep { span, limit, .. } => {
                vec![new_label(*span, format!("this would be directive {} of the chain", limit + 1))]
            }
        }
    }
}
