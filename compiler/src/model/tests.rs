//! Tests of model resolution over a small catalog of hand-written provider files.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;

use rye_grammar::{Source, SourceId, Sources, yaml};

use super::*;
use crate::diagnostics::{Diagnostics, Problem};

const ALPHA: &str = r#"
wire: anthropic
base_url: https://alpha.test
default_tier: general
tiers: { fast: a-small, general: a-large }
models:
  - { id: a-small, context_window: 1000, max_output: 100, prices: { input: "0.10", output: 0.5 } }
  - id: a-large
    context_window: 2000
    max_output: 200
    tool_use: text_parsed
    prices: { input: "2", output: "10", long_prompt: { above: 10, input: "4", output: "20" } }
"#;
const BETA: &str = "
wire: openai-chat
tiers: { general: b-one, odd: b-one }
models: [{ id: b-one, context_window: 10, max_output: 5 }]
";
const SCRIPT: &str = "{ wire: scripted, script: play.yaml, tiers: { general: scripted } }";
const SETTINGS: &str = "{ default_provider: alpha, default_tier: general, aliases: { haiku: fast } }";

fn read(path: &str, text: &str) -> (Node, Sources) {
    let mut sources = Sources::default();
    let source = sources.add(Source::new(path, text));
    (yaml::parse(source, text).tree, sources)
}

use rye_grammar::data::Node;

fn load(id: &str, text: &str) -> (Option<Provider>, Diagnostics) {
    let (node, sources) = read("system:.ai/config/agent/providers/x.yaml", text);
    let mut diagnostics = Diagnostics::new();
    let provider = read_provider(id, &node, &sources, &mut diagnostics);
    (provider, diagnostics)
}

fn resolve(requested: &[(&str, &str)], instead: &ModelOverride) -> Result<PlannedModel, ModelError> {
    let word = |key| {
        let found = requested.iter().find(|(k, _)| *k == key);
        found.map(|(_, v)| Spanned::new((*v).to_owned(), Span::new(SourceId(0), 3, 4)))
    };
    let request = ModelRequest {
        tier: word("tier"),
        id: word("id"),
        provider: word("provider"),
        fallback: word("fallback"),
        ..ModelRequest::default()
    };
    let files = BTreeMap::from([("alpha", ALPHA), ("beta", BETA), ("scripted", SCRIPT)]);
    let mut diagnostics = Diagnostics::new();
    let settings = read_settings(&read("models.yaml", SETTINGS).0, &mut diagnostics);
    let names = files.keys().map(|k| (*k).to_owned()).collect();
    let loader: ProviderLoader<'_> = Box::new(move |id| files.get(id).and_then(|text| load(id, text).0));
    ProviderCatalog::new(settings, names, loader).resolve(Some(&request), instead)
}

fn chosen(requested: &[(&str, &str)]) -> String {
    let model = resolve(requested, &ModelOverride::default()).unwrap();
    format!("{}/{}", model.provider, model.id)
}

#[test]
fn resolve_follows_ids_tiers_aliases_and_defaults() {
    assert_eq!(chosen(&[]), "alpha/a-large");
    assert_eq!(chosen(&[("tier", "fast")]), "alpha/a-small");
    assert_eq!(chosen(&[("tier", "haiku")]), "alpha/a-small");
    assert_eq!(chosen(&[("tier", "odd")]), "beta/b-one");
    assert_eq!(chosen(&[("id", "b-one"), ("tier", "fast")]), "beta/b-one");
    assert_eq!(chosen(&[("provider", "beta"), ("tier", "general")]), "beta/b-one");
    assert_eq!(chosen(&[("provider", "scripted"), ("tier", "general")]), "scripted/scripted");
    assert_eq!(chosen(&[("provider", "beta")]), "beta/b-one");
}

#[test]
fn id_may_name_its_provider() {
    assert_eq!(chosen(&[("id", "beta/b-one")]), "beta/b-one");
    assert_eq!(chosen(&[("tier", "beta/general")]), "beta/b-one");
    let unknown = resolve(&[("id", "beta/b-onne")], &ModelOverride::default()).unwrap_err();
    let ModelError::Unknown { provider, suggestion, span, .. } = unknown else { panic!("{unknown:?}") };
    assert_eq!((provider.as_deref(), suggestion.as_deref(), span.is_some()), (Some("beta"), Some("b-one"), true));
    let unknown = resolve(&[("id", "betta/b-one")], &ModelOverride::default()).unwrap_err();
    assert!(matches!(unknown, ModelError::NoProvider { .. }), "{unknown:?}");
}

#[test]
fn override_ignores_the_directives_provider() {
    let requested = [("provider", "scripted"), ("tier", "general")];
    let with = |model: Option<&str>, provider: Option<&str>| {
        let instead =
            ModelOverride { provider: provider.map(Into::into), ..ModelOverride::of_user(model.map(Into::into)) };
        resolve(&requested, &instead).map(|m| format!("{}/{}", m.provider, m.id))
    };
    assert_eq!(with(Some("general"), None).unwrap(), "alpha/a-large");
    assert_eq!(with(Some("beta/general"), None).unwrap(), "beta/b-one");
    assert_eq!(with(Some("a-small"), None).unwrap(), "alpha/a-small");
    assert_eq!(with(None, Some("beta")).unwrap(), "beta/b-one");
    assert!(matches!(with(Some("nope"), None), Err(ModelError::Unknown { span: None, .. })));
}

#[test]
fn user_may_name_a_model_that_the_provider_does_not_list() {
    let named =
        |text: &str, unlisted| resolve(&[], &ModelOverride { model: Some(text.into()), provider: None, unlisted });
    let model = named("alpha/new", UnlistedModels::Accept).unwrap();
    assert_eq!((model.provider.as_str(), model.id.as_str()), ("alpha", "new"));
    assert_eq!((model.context_window, model.max_output, model.prices), (1000, 100, None));
    // Refused: a model named by a call, a name without its provider, an unknown provider, a provider without models.
    assert!(named("alpha/new", UnlistedModels::Refuse).is_err());
    for text in ["new", "gamma/new", "scripted/new"] {
        assert!(named(text, UnlistedModels::Accept).is_err(), "{text}");
    }
}

#[test]
fn unknown_provider_of_a_model_is_reported_with_suggestion() {
    let error = |text: &str| resolve(&[], &ModelOverride::of_user(Some(text.into()))).unwrap_err();
    let ModelError::NoProvider { requested, of, suggestion, known, .. } = error("alpah/general") else { panic!() };
    assert_eq!((requested.as_str(), of.as_deref()), ("alpah", Some("alpah/general")));
    assert_eq!(suggestion.as_deref(), Some("alpha/general"));
    assert!(known.contains(&"beta".to_owned()), "{known:?}");
    let other = error("local/general");
    let help = other.help().unwrap();
    assert!(help.contains("--model PROVIDER/local/general"), "{help}");
}

#[test]
fn known_names_include_only_aliases_of_tiers_that_a_searched_provider_has() {
    for (text, has_alias) in [("beta/nosuch", false), ("alpha/nosuch", true)] {
        let instead = ModelOverride { unlisted: UnlistedModels::Refuse, ..ModelOverride::of_user(Some(text.into())) };
        let ModelError::Unknown { known, .. } = resolve(&[], &instead).unwrap_err() else { panic!("{text}") };
        assert_eq!(known.contains(&"haiku".to_owned()), has_alias, "{text}: {known:?}");
    }
}

#[test]
fn scripted_provider_has_no_unlisted_models() {
    let error = resolve(&[], &ModelOverride::of_user(Some("scripted/genral".into()))).unwrap_err();
    let ModelError::Unknown { provider, is_scripted: true, suggestion, .. } = &error else { panic!("{error:?}") };
    assert_eq!((provider.as_deref(), suggestion.as_deref()), (Some("scripted"), Some("general")));
    assert_eq!(error.to_string(), "the provider `scripted` has no model or tier `genral`");
}

#[test]
fn fallback_is_resolved_unless_it_is_the_model() {
    let model = resolve(&[("tier", "general"), ("fallback", "fast")], &ModelOverride::default()).unwrap();
    assert_eq!(model.fallback.unwrap().id, "a-small");
    let model = resolve(&[("tier", "fast"), ("fallback", "odd")], &ModelOverride::default()).unwrap();
    assert_eq!(model.fallback.unwrap().provider, "beta");
    let model = resolve(&[("tier", "fast"), ("fallback", "haiku")], &ModelOverride::default()).unwrap();
    assert_eq!(model.fallback, None);
}

#[test]
fn fallback_may_name_its_provider() {
    for (fallback, found) in
        [("beta/general", "beta/b-one"), ("beta/b-one", "beta/b-one"), ("alpha/general", "alpha/a-large")]
    {
        let model = resolve(&[("tier", "fast"), ("fallback", fallback)], &ModelOverride::default()).unwrap();
        let fallback = model.fallback.unwrap();
        assert_eq!(format!("{}/{}", fallback.provider, fallback.id), found);
    }
    let unknown = resolve(&[("tier", "fast"), ("fallback", "beta/none")], &ModelOverride::default()).unwrap_err();
    assert!(matches!(unknown, ModelError::Unknown { span: Some(_), .. }), "{unknown:?}");
}

#[test]
fn unknown_model_is_reported_with_suggestion() {
    let unknown = |requested: &[(&str, &str)]| resolve(requested, &ModelOverride::default()).unwrap_err();
    let ModelError::Unknown { suggestion, span, known, .. } = unknown(&[("tier", "genral")]) else { panic!() };
    assert_eq!((suggestion.as_deref(), span.map(|s| s.start)), (Some("general"), Some(3)));
    assert!(known.contains(&"a-small".to_owned()) && known.contains(&"haiku".to_owned()), "{known:?}");
    let ModelError::NoProvider { suggestion, requested, span, .. } = unknown(&[("tier", "fast"), ("provider", "alpa")])
    else {
        panic!()
    };
    assert_eq!((requested.as_str(), suggestion.as_deref()), ("alpa", Some("alpha")));
    assert!(span.is_some());
}

#[test]
fn provider_file_yields_exact_prices_and_connection() {
    let (provider, diagnostics) = load("alpha", ALPHA);
    assert_eq!(diagnostics.len(), 0);
    let provider = provider.unwrap();
    let prices = provider.models[1].prices.unwrap();
    assert_eq!((prices.input, prices.cache_write), (2_000_000_000, 2_000_000_000));
    assert_eq!(prices.long_prompt.unwrap().output, 20_000_000_000);
    assert_eq!(
        provider.connection,
        serde_json::json!({"wire": "anthropic", "base_url": "https://alpha.test", "id": "alpha"})
    );
    assert_eq!(provider.from_project, Vec::<String>::new());
    let (node, sources) = read(".ai/config/agent/providers/alpha.yaml", ALPHA);
    let mine = super::read_provider("alpha", &node, &sources, &mut Diagnostics::new()).unwrap();
    assert_eq!(mine.from_project, ["wire", "base_url", "prices"]);
}

#[test]
fn invalid_provider_file_reports_its_key() {
    for (text, key) in [
        ("{}", "wire"),
        ("{ wire: telegraph }", "wire"),
        ("{ wire: gemini, tiers: { fast: gone } }", "tiers.fast"),
        ("{ wire: gemini, tiers: [a] }", "tiers"),
        ("{ wire: gemini, models: [{}] }", "models"),
        ("{ wire: gemini, models: [{ id: m, context_window: 0, max_output: 1 }] }", "models.m.context_window"),
        ("{ wire: gemini, models: [{ id: m, context_window: 9, max_output: -1 }] }", "models.m.max_output"),
        (
            "{ wire: gemini, models: [{ id: m, context_window: 9, max_output: 1, prices: { input: x, output: 1 } }] }",
            "models.m.prices.input",
        ),
        (
            "{ wire: gemini, models: [{ id: m, context_window: 9, max_output: 1, prices: { input: 1 } }] }",
            "models.m.prices",
        ),
    ] {
        let (_, diagnostics) = load("x", text);
        let messages: Vec<String> = diagnostics.iter().map(ToString::to_string).collect();
        assert!(messages.len() == 1 && messages[0].starts_with(&format!("`{key}` in ")), "{text}: {messages:?}");
    }
}
