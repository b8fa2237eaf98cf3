//! `spawn::*`: spawns that will be refused, or that do not do what the author meant.

use rye_grammar::Span;
use thiserror::Error;

use super::{Label, Problem, Severity, did_you_mean, new_label, quote_list, quote_list_up_to};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpawnError {
    /// Directives that can start each other without end, so that only the default limit `depth` ends the recursion.
    /// `circle` begins and ends with the same directive. Each of `spans` names the next directive of the circle.
    #[error("{}, and only the default limit `depth` ends the recursion", describe_cycle(circle))]
    Cycle { circle: Vec<String>, spans: Vec<Span> },
    /// A child that grants more than its spawn parent has. `capability` is a shortest capability that the child grants
    /// and the parent does not have. `verb` is `starts`, or `may start` if only a grant names the child.
    #[error("`{parent}` {verb} `{child}`, which grants `{capability}`, but `{parent}` lacks this capability")]
    ExceedsParent {
        parent: String,
        child: String,
        verb: &'static str,
        capability: String,
        span: Span,
        grant: Span,
        granted: Span,
    },
    /// A child with a grant that opens a host or folder which no grant of its spawn parent opens. `attribute` names the
    /// host or folder: `net="docs.rs"`. `pattern` is the pattern of the child's grant.
    #[error(
        "`{parent}` {verb} `{child}`, which grants `{attribute}` for `{pattern}`, but the grants of `{parent}` do not"
    )]
    OpensMore {
        parent: String,
        child: String,
        verb: &'static str,
        attribute: String,
        pattern: String,
        span: Span,
        grant: Span,
        granted: Span,
    },
    /// The limit `limit` (`depth` or `spawns`) of the parent is 0, so the parent can have no children. `limit_span` is
    /// the declaration of the limit, if a file declares it.
    #[error("`{parent}` starts `{child}`, but the limit `{limit}` of `{parent}` is 0: no child is allowed")]
    NoChildren { parent: String, child: String, limit: &'static str, span: Span, limit_span: Option<Span> },
    /// A child that requests more money than its spawn parent can give. Amounts are decimal dollars. If the parent's
    /// own limit would be enough, `above` is the directive that starts the parent with too little money.
    #[error("`{child}` requests {requested}, but `{parent}` can give at most {most}{}", above.as_ref().map(|(id, _)| format!(" when `{id}` starts `{parent}`")).unwrap_or_default())]
    NoBudget {
        parent: String,
        child: String,
        requested: String,
        most: String,
        span: Span,
        /// True if only a grant names the child, so that neither the body nor a hook starts the child.
        is_grant: bool,
        asked_span: Option<Span>,
        above: Option<(String, Span)>,
    },
    /// A directive that starts a child at a depth that an ancestor does not allow. `above` is the ancestor whose
    /// `depth` is used up.
    #[error("`{above}` starts `{parent}`, which starts `{child}`: deeper than the limit `depth` of `{above}` allows")]
    TooDeep { parent: String, child: String, above: String, span: Span, limit_span: Option<Span> },
    /// A directive whose named children together exceed its limit. `limit` is `spawns` or `spend`. `requested` is the
    /// total that all children request.
    #[error(
        "the children of `{parent}` ({children}) request {requested} in total, but the `{limit}` of `{parent}` is {most}"
    )]
    OverBudget {
        parent: String,
        children: usize,
        limit: &'static str,
        requested: String,
        most: String,
        span: Span,
        limit_span: Option<Span>,
    },
    /// The child's explicit limit is above the parent's limit, which also bounds the child.
    #[error("`{child}` sets `{limit}` to {requested}, but `{parent}` starts it with at most {most}")]
    ClippedLimit {
        parent: String,
        child: String,
        limit: &'static str,
        requested: u64,
        most: u64,
        span: Span,
        asked_span: Option<Span>,
    },
    /// A body that reads an output which none of its children declares. `children` are the directives that the body
    /// starts.
    #[error("no directive that `{parent}` starts has an output `{name}`")]
    UnknownOutput {
        parent: String,
        name: String,
        children: Vec<String>,
        span: Span,
        suggestion: Option<String>,
        declared: Vec<String>,
    },
}

/// Maximum number of steps of a cycle to show.
const MAX_SHOWN_STEPS: usize = 12;

fn describe_cycle(circle: &[String]) -> String {
    match circle {
        [one, _] => format!("`{one}` starts itself"),
        [ids @ .., _] => format!("{} start each other", quote_list_up_to(ids, MAX_SHOWN_STEPS)),
        [] => String::new(),
    }
}

impl Problem for SpawnError {
    fn code(&self) -> &'static str {
        match self {
            Self::Cycle { .. } => "spawn::cycle",
            Self::ExceedsParent { .. } | Self::OpensMore { .. } => "spawn::exceeds-parent",
            Self::NoChildren { .. } | Self::TooDeep { .. } => "spawn::no-children",
            Self::OverBudget { .. } => "spawn::over-budget",
            Self::ClippedLimit { .. } => "spawn::clipped-limit",
            Self::NoBudget { .. } => "spawn::no-budget",
            Self::UnknownOutput { .. } => "spawn::unknown-output",
        }
    }

    fn severity(&self) -> Severity {
        // A body may name several children and start only one of them.
        if matches!(self, Self::OverBudget { .. }) { Severity::Advice } else { Severity::Warning }
    }

    fn help(&self) -> Option<String> {
        match self {
            Self::Cycle { .. } => Some(
                "limit the depth with `<limits depth=\"…\"/>` in one directive, or let one directive do the work itself"
                    .into(),
            ),
            Self::ExceedsParent { parent, child, .. } => {
                Some(format!("the child's call will be denied: grant the capability in `{parent}` too, or grant less in `{child}`"))
            }
            Self::OpensMore { parent, child, attribute, .. } => Some(format!(
                "the attribute has no effect in the child: add `{attribute}` to the grant of `{parent}`, or remove the attribute from `{child}`"
            )),
            Self::NoChildren { limit, child, .. } => {
                Some(format!("the call will be denied: raise `{limit}`, or do not start `{child}`"))
            }
            Self::TooDeep { above, parent, .. } => {
                Some(format!("raise `depth` in `{above}`, or let `{parent}` do the work itself"))
            }
            Self::OverBudget { limit, parent, .. } => {
                Some(format!("raise `{limit}` in `{parent}`, or lower what the children request"))
            }
            Self::ClippedLimit { limit, parent, child, .. } => {
                Some(format!("raise `{limit}` in `{parent}`, or lower it in `{child}`"))
            }
            Self::NoBudget { above, parent, child, .. } => {
                let first = above.as_ref().map_or(parent, |(id, _)| id);
                Some(format!(
                    "raise `spend` in `{first}`, or lower it in `{child}`; a child without `spend` gets the remaining amount"
                ))
            }
            Self::UnknownOutput { suggestion, declared, children, .. } => did_you_mean(suggestion.as_ref(), || {
                Some(if declared.is_empty() {
                    format!(
                        "no outputs are declared by {}: read `result`, the text of the answer, instead",
                        quote_list(children)
                    )
                } else {
                    format!("declared: {}", quote_list(declared))
                })
            }),
        }
    }

    fn labels(&self) -> Vec<Label> {
        match self {
            Self::Cycle { circle, spans } => {
                let next = circle.iter().skip(1).take(MAX_SHOWN_STEPS);
                next.zip(spans).map(|(id, span)| new_label(*span, format!("starts `{id}`"))).collect()
            }
            Self::ExceedsParent { parent, child, verb, span, grant, granted, .. } => vec![
                new_label(*span, format!("`{parent}` {verb} `{child}` here")),
                new_label(*grant, "this will be refused"),
                new_label(*granted, format!("`{parent}` is granted only this")),
            ],
            Self::OpensMore { parent, child, verb, span, grant, granted, .. } => vec![
                new_label(*span, format!("`{parent}` {verb} `{child}` here")),
                new_label(*grant, "this has no effect"),
                new_label(*granted, format!("`{parent}` is granted only this")),
            ],
            Self::NoChildren { span, limit_span, .. } => {
                let limit = limit_span.iter().map(|span| new_label(*span, "no children"));
                std::iter::once(new_label(*span, "will be refused")).chain(limit).collect()
            }
            Self::TooDeep { span, limit_span, .. } => {
                let limit =
                    limit_span.iter().map(|span| new_label(*span, "this limit also bounds the children of children"));
                std::iter::once(new_label(*span, "will be refused")).chain(limit).collect()
            }
            Self::OverBudget { span, limit_span, .. } => {
                let limit = limit_span.iter().map(|span| new_label(*span, "bounds all children together"));
                std::iter::once(new_label(*span, "the last child")).chain(limit).collect()
            }
            Self::ClippedLimit { span, asked_span, .. } => {
                let requested = asked_span.iter().map(|span| new_label(*span, "no effect"));
                std::iter::once(new_label(*span, "bounded here")).chain(requested).collect()
            }
            Self::NoBudget { span, is_grant, asked_span, above, parent, .. } => {
                let refused =
                    if *is_grant { "the call is refused, unless it lowers `spend`" } else { "will be refused" };
                let requested = asked_span.iter().map(|span| new_label(*span, "requested here"));
                let above = above.iter().map(|(_, span)| new_label(*span, format!("`{parent}` is started here")));
                std::iter::once(new_label(*span, refused)).chain(requested).chain(above).collect()
            }
            Self::UnknownOutput { span, .. } => vec![new_label(*span, "no directive returns this")],
        }
    }
}
