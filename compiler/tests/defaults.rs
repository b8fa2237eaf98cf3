//! The built-in defaults equal the values in the standard library's settings files.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, reason = "a test reads its files")]

use std::path::Path;

use rye_compiler::semantics::classify::{Backoff, Category, ClassifyTable, Failure, built_in, read_backoff};
use rye_compiler::semantics::limits::{LimitSetting, Limits, resolve};
use rye_compiler::semantics::risk::RiskTable;
use rye_grammar::SourceId;
use serde_json::Value;

fn config(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stdlib/.ai/config/agent").join(name);
    let parsed = rye_grammar::yaml::parse(SourceId(0), &std::fs::read_to_string(path).unwrap());
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    parsed.tree.to_value()
}

#[test]
fn error_classification_is_the_built_in_table() {
    let file = config("error_classification.yaml");
    assert_eq!(file, built_in());
    ClassifyTable::from_value(&file, Backoff::default()).unwrap();
}

#[test]
fn capability_risk_is_the_built_in_table() {
    let file = RiskTable::from_value(&config("capability_risk.yaml")).unwrap();
    let built_in = RiskTable::default();
    for capability in [
        "rye.execute.tool.rye.file-system.read",
        "rye.execute.tool.rye.file-system.write",
        "rye.execute.tool.rye.bash.bash",
        "rye.execute.tool.rye.web.fetch",
        "rye.execute.directive.x",
        "rye.fetch.knowledge",
        "rye.sign.tool.x",
        "rye",
        "rye.*",
    ] {
        assert_eq!(file.classify(capability), built_in.classify(capability));
        assert_eq!(file.classify_grant(capability), built_in.classify_grant(capability));
    }
}

#[test]
fn resilience_holds_the_built_in_limits() {
    let file = config("resilience.yaml");
    let settings: Vec<LimitSetting<()>> = file["limits"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| LimitSetting::json(name, value.clone(), ()))
        .collect();
    assert_eq!(settings.len(), 7);
    assert_eq!(resolve(&settings, &[], &[], &[]).unwrap().limits, Limits::default());
    assert_eq!(
        read_backoff(&file["retry"], "retry", Backoff { base_ms: 0, max_ms: 0, max_retries: 0 }),
        Ok(Backoff::default())
    );
}

#[test]
fn failure_classes_match_engine_md() {
    let retryable = |failure: Failure| {
        let class = ClassifyTable::built_in().classify(&failure);
        assert_eq!(class.retryable, matches!(class.category, Category::RateLimited | Category::Transient));
        class.retryable
    };
    let status = |status| Failure { status: Some(status), ..Failure::default() };
    for code in 100..=599u16 {
        let want =
            matches!(code, 408 | 409 | 425 | 429) || ((500..=599).contains(&code) && ![501, 505, 511].contains(&code));
        assert_eq!(retryable(status(code)), want, "{code}");
        for permanent in ["insufficient_quota", "invalid_api_key", "billing_hard_limit_reached", "authentication_error"]
        {
            assert!(!retryable(Failure { code: Some(permanent.into()), ..status(code) }), "{code} {permanent}");
            assert!(!retryable(Failure { error_type: Some(permanent.into()), ..status(code) }), "{code} {permanent}");
        }
    }
    for (stage, want) in [
        ("setup", false),
        ("connect", true),
        ("timeout", true),
        ("stream_error", true),
        ("truncated", true),
        ("protocol", true),
    ] {
        assert_eq!(retryable(Failure { stage: Some(stage.into()), ..Failure::default() }), want, "{stage}");
    }
    let overloaded = Failure {
        stage: Some("stream_error".into()),
        error_type: Some("overloaded_error".into()),
        ..Failure::default()
    };
    assert_eq!(ClassifyTable::built_in().classify(&overloaded).name, "overloaded");
    for (code, want) in [
        ("ECONNRESET", true),
        ("ConnectError", true),
        ("ServerDisconnectedError", true),
        ("EPIPE", true),
        ("ETIMEDOUT", true),
        ("ReadTimeout", true),
        ("timed_out", true),
        ("cancelled", false),
        ("invalid_request_error", false),
    ] {
        assert_eq!(retryable(Failure { code: Some(code.into()), ..Failure::default() }), want, "{code}");
        assert_eq!(retryable(Failure { error_type: Some(code.into()), ..Failure::default() }), want, "{code}");
    }
}
