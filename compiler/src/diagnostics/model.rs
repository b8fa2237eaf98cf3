//! `model::*`: models and tiers that no provider file lists, or that do not fit their use.

use rye_grammar::Span;
use thiserror::Error;

use super::foreign_words::{self, WordPlace};
use super::{Label, Problem, Severity, did_you_mean, new_label, quote_list};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ModelError {
    /// A model or tier that no provider file lists. `requested` is the tier or the model id. `span` is `None` if the
    /// command line names it.
    #[error("{}", describe_unknown(requested, provider.as_deref()))]
    Unknown {
        requested: String,
        /// The provider that the request names; `None` if the request names no provider.
        provider: Option<String>,
        /// True if the provider replays a script, so that no model can be added to its file.
        is_scripted: bool,
        span: Option<Span>,
        suggestion: Option<String>,
        known: Vec<String>,
    },
    /// The user's `--model` names a model that the provider file does not list.
    #[error(
        "`{provider}` does not list `{model}`: its price is unknown, and {context_window} tokens of context and {max_output} of output are assumed"
    )]
    Unlisted { model: String, provider: String, context_window: u64, max_output: u64, suggestion: Option<String> },
    /// A provider without a provider file. The provider is requested by a directive, by the command line (`span` is
    /// then `None`), or as the `default_provider` of `agent/models`. `of` is the whole requested name, such as
    /// `PROVIDER/MODEL`, if the provider is a part of a name. `known` lists the providers that have a file.
    #[error("unknown provider `{requested}`{}", of.as_ref().map(|name| format!(" in `{name}`")).unwrap_or_default())]
    NoProvider {
        requested: String,
        span: Option<Span>,
        of: Option<String>,
        suggestion: Option<String>,
        known: Vec<String>,
    },
    /// A tier that the settings name and no provider has.
    #[error("no provider has a tier `{requested}`")]
    NoTier { requested: String, span: Span, suggestion: Option<String>, known: Vec<String> },
    /// The default provider of the settings does not have the tier `tier`, and the directive names no model.
    #[error("the default provider `{provider}` has no tier `{tier}`, so a directive without `<model>` has no model")]
    NoDefault { provider: String, tier: String, span: Span, known: Vec<String> },
    /// A `<model>` with an id and with a tier that stands for another model.
    #[error("the `<model>` names two models: the `id` names `{id}`, and the tier `{tier}` names `{model}`")]
    TwoModels { id: String, tier: String, model: String, span: Span, id_span: Span },
    /// A directive requests a tier that only another provider than the default provider has.
    #[error("the default provider `{default}` has no tier `{tier}`: the model is `{model}` of `{provider}`")]
    OtherProvider { tier: String, default: String, provider: String, model: String, span: Span, default_span: Span },
    /// The `fallback` resolves to `model`, the same model that the fallback is meant to replace.
    #[error("the fallback `{fallback}` is the model itself: `{model}`")]
    SameFallback { fallback: String, model: String, span: Span },
    /// The `spend` limit does not pay for the first request to the fallback.
    #[error("the fallback `{fallback}` (`{model}`) cannot replace the model: {why}")]
    UnfitFallback { fallback: String, model: String, why: String, span: Span },
    /// By an estimate, the first request is larger than the context window of the model. The request is sent
    /// nevertheless (decision 0024), and the provider may accept or refuse it.
    #[error(
        "the context window of `{model}` may be too small: by the estimate, the first request has {prompt} tokens, the \
         reply up to {reply}, and the window {window}"
    )]
    SmallWindow { model: String, prompt: u64, reply: u64, window: u64, span: Span },
    /// By an estimate, the first request is larger than the context window of the fallback. The request is sent
    /// nevertheless (decision 0024), and the provider of the fallback may accept or refuse it.
    #[error(
        "the fallback `{fallback}` (`{model}`) may be too small: by the estimate, the first request has {prompt} tokens, \
         the reply up to {reply}, and its context window {window}"
    )]
    SmallFallback { fallback: String, model: String, prompt: u64, reply: u64, window: u64, span: Span },
    /// The fallback accepts no images, so a message with images is refused before it is sent to either model.
    #[error("the fallback `{fallback}` (`{model}`) accepts no images, so messages with images are refused")]
    FallbackWithoutImages { fallback: String, model: String, span: Span },
    #[error("`{model}` has no price: its tokens are counted, but not its cost")]
    Unpriced { model: String, provider: String, span: Option<Span> },
}

impl Problem for ModelError {
    fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } | Self::NoProvider { .. } | Self::NoTier { .. } | Self::NoDefault { .. } => {
                "model::unknown"
            }
            Self::OtherProvider { .. } => "model::other-provider",
            Self::TwoModels { .. } => "model::two-models",
            Self::SameFallback { .. } => "model::same-fallback",
            Self::UnfitFallback { .. } | Self::SmallFallback { .. } | Self::FallbackWithoutImages { .. } => {
                "model::unfit-fallback"
            }
            Self::SmallWindow { .. } => "model::small-window",
            Self::Unlisted { .. } | Self::Unpriced { .. } => "model::unpriced",
        }
    }

    fn severity(&self) -> Severity {
        match self {
            Self::Unknown { .. } | Self::NoProvider { .. } | Self::NoTier { .. } | Self::NoDefault { .. } => {
                Severity::Error
            }
            Self::OtherProvider { .. }
            | Self::TwoModels { .. }
            | Self::SameFallback { .. }
            | Self::UnfitFallback { .. }
            | Self::SmallFallback { .. }
            | Self::SmallWindow { .. }
            | Self::Unlisted { .. }
            | Self::Unpriced { .. } => Severity::Warning,
            Self::FallbackWithoutImages { .. } => Severity::Advice,
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            Self::Unknown { requested, provider, is_scripted, span, suggestion, known } => {
                let help = suggest_name(requested, suggestion.as_ref(), known)?;
                let other = match (suggestion, provider, span) {
                    (None, Some(provider), _) if !is_scripted => {
                        format!("; add a model with `rye providers add {provider}/{requested}`")
                    }
                    (None, None, None) => {
                        format!("; for another model, name its provider: `--model PROVIDER/{requested}`")
                    }
                    (Some(_), _, _) | (None, Some(_), _) | (None, None, Some(_)) => String::new(),
                };
                Some(help + &other)
            }
            Self::NoProvider { of: Some(name), suggestion, known, span, .. } => {
                did_you_mean(suggestion.as_ref(), || {
                    let other = if span.is_none() {
                        format!("; if `{name}` is the id of a model, name its provider: `--model PROVIDER/{name}`")
                    } else {
                        "; a new provider is a file in `.ai/config/agent/providers/`".to_owned()
                    };
                    Some(format!("known: {}{other}", quote_list(known)))
                })
            }
            Self::NoProvider { requested, suggestion, known, of: None, .. }
            | Self::NoTier { requested, suggestion, known, .. } => suggest_name(requested, suggestion.as_ref(), known),
            Self::Unlisted { model, provider, suggestion, .. } => {
                let add = format!("add its window and prices: `rye providers add {provider}/{model}`");
                let near = suggestion.as_ref().map(|near| format!("did you mean `{provider}/{near}`? otherwise "));
                Some(near.unwrap_or_default() + &add)
            }
            Self::NoDefault { provider, tier, known, .. } => {
                let tiers = if known.is_empty() {
                    format!("add `tiers: {{ {tier}: MODEL }}` to `agent/providers/{provider}`")
                } else {
                    format!("set `default_tier` to one of its tiers: {}", quote_list(known))
                };
                Some(format!("{tiers}; or select a model with `<model>`"))
            }
            Self::TwoModels { .. } => Some("remove the `id` or the tier: the `id` decides".into()),
            Self::OtherProvider { tier, default, provider, .. } => Some(format!(
                "if this is intended, write `provider=\"{provider}\"`; otherwise add `{tier}` to the `tiers` of `agent/providers/{default}`"
            )),
            Self::SameFallback { .. } => Some("name another tier or model, or remove `fallback`".into()),
            Self::UnfitFallback { .. } => {
                Some("name a fallback with lower prices, send less in the first request, or raise `spend`".into())
            }
            Self::SmallFallback { .. } => {
                Some("name a fallback with a larger context window, or send less in the first request".into())
            }
            Self::SmallWindow { .. } => Some(
                "select a model with a larger context window, or send less: let the model fetch knowledge when it needs it".into(),
            ),
            Self::FallbackWithoutImages { .. } => {
                Some("if messages of this directive can contain images, name a fallback that accepts images".into())
            }
            Self::Unpriced { model, provider, .. } => Some(format!(
                "add its prices with `rye providers add {provider}/{model}`, or write `prices: none` into `agent/providers/{provider}` if the model is free"
            )),
        }
    }

    fn labels(&self) -> Vec<Label> {
        match self {
            Self::Unknown { span, .. } => span.iter().map(|s| new_label(*s, "requested here")).collect(),
            Self::Unlisted { .. } => Vec::new(),
            Self::NoProvider { span, .. } => {
                span.iter().map(|s| new_label(*s, "no file in `agent/providers/` has this name")).collect()
            }
            Self::NoTier { span, .. } => vec![new_label(*span, "named here")],
            Self::NoDefault { span, .. } => vec![new_label(*span, "the default provider")],
            Self::TwoModels { span, id_span, .. } => {
                vec![new_label(*span, "without effect"), new_label(*id_span, "decides")]
            }
            Self::OtherProvider { span, default_span, .. } => {
                vec![new_label(*span, "requested here"), new_label(*default_span, "the default provider")]
            }
            Self::SameFallback { span, .. } => vec![new_label(*span, "this is the same model")],
            Self::UnfitFallback { span, .. } => {
                vec![new_label(*span, "this model is too expensive for the limit `spend`")]
            }
            Self::SmallWindow { span, .. } => vec![new_label(*span, "its first request may not fit")],
            Self::SmallFallback { span, .. } => vec![new_label(*span, "may not fit")],
            Self::FallbackWithoutImages { span, .. } => vec![new_label(*span, "accepts text only")],
            Self::Unpriced { span, .. } => {
                span.iter().map(|s| new_label(*s, "this selects a model without a price")).collect()
            }
        }
    }
}

fn describe_unknown(requested: &str, provider: Option<&str>) -> String {
    match provider {
        Some(provider) => format!("the provider `{provider}` has no model or tier `{requested}`"),
        None => format!("no provider has a model or tier `{requested}`"),
    }
}

/// Returns the help for a model, tier or provider that does not exist: the equivalent in this system if `requested` is
/// a word of another system, else the suggestion, else the known names. `None` if there is nothing to suggest.
fn suggest_name(requested: &str, suggestion: Option<&String>, known: &[String]) -> Option<String> {
    let translated = foreign_words::help_for(WordPlace::ModelName, requested).map(str::to_owned);
    let listed = || (!known.is_empty()).then(|| format!("known: {}", quote_list(known)));
    translated.or_else(|| did_you_mean(suggestion, listed))
}
