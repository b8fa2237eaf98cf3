//! Tests of settings with errors: a run is refused with the diagnostics of the check.

use std::collections::BTreeSet;

use super::*;
use crate::approvals::HeadlessPolicy;
use crate::compile::tests::world::stdlib_world;
use crate::diagnostics::Severity;
use crate::report::diff::{DiffSide, diff_trees};
use crate::sandbox::requires_bubblewrap;
use crate::semantics::limits::{LimitValue, Limits};
use crate::validate::settings::run_settings_errors;
use crate::validate::{Selection, check};

const AGENT: &str = ".ai/config/agent/agent.yaml";
const RESILIENCE: &str = ".ai/config/agent/resilience.yaml";
const CHAT: &str = ".ai/config/agent/chat.yaml";

/// Files with one error each.
const SLIPS: [(&str, &str); 38] = [
    (AGENT, "approvals: { headless: Deny }"),
    (AGENT, "approvals: { headles: deny }"),
    (AGENT, "approvals: deny"),
    (AGENT, "approvals: { timeout_seconds: 0 }"),
    (AGENT, "approval: { headless: deny }"),
    (AGENT, "limits: { max: { spend: \"0.0001\" } }"),
    (AGENT, "limits: { max: { spnd: 1 } }"),
    (AGENT, "limits: { max: { turns: 0 } }"),
    (AGENT, "limits: { max: { tokens: 1.5 } }"),
    (AGENT, "limits: { max: { duration_seconds: 99999999999999999999 } }"),
    (AGENT, "limits: { maximum: { turns: 1 } }"),
    (AGENT, "limits: { max: { spend: -1 } }"),
    (AGENT, "limits: { max: { spend: 0 } }"),
    (AGENT, "limits: { max: { spend: 0.0000000001 } }"),
    (AGENT, "limits: { max: { spend: 1e30 } }"),
    (AGENT, "limits: { max: { spend: .nan } }"),
    (AGENT, "sandbox: bubblwrap"),
    (AGENT, "sandbox: { bubblewrap: true }"),
    (AGENT, "signing: { require: everything }"),
    (AGENT, "signing: { requires: all }"),
    (AGENT, "- sandbox: bubblewrap"),
    (AGENT, "approvals: { headless: deny"),
    (RESILIENCE, "session_limits: { spend: 0 }"),
    (RESILIENCE, "session_limits: { spend: 1e30 }"),
    (RESILIENCE, "session_limits: { turns: 0 }"),
    (RESILIENCE, "session_limit: { turns: 1 }"),
    (RESILIENCE, "limits: { spend: 0 }"),
    (RESILIENCE, "retry: { max_seconds: 1e300 }"),
    (".ai/config/agent/coordination.yaml", "wait_threads: { default_timeout: 1e300 }"),
    (".ai/config/agent/coordination.yaml", "continuation: { trigger_threshold: 0.0000000001 }"),
    (".ai/config/agent/capability_risk.yaml", "classification: []"),
    (".ai/config/agent/hooks.yaml", "hook: []"),
    (".ai/config/agent/models.yaml", "default_providr: scripted"),
    (".ai/config/agent/agents.yaml", "approvals: { headless: deny }"),
    (".ai/config/agent/hook.yaml", "hooks: []"),
    (".ai/config/agent.yaml", "approvals: { headless: deny }"),
    (".ai/config/agent/agent.yml", "approvals: { headless: deny }"),
    (".ai/agent.yaml", "approvals: { headless: deny }"),
];

fn error_codes(diagnostics: &Diagnostics) -> BTreeSet<String> {
    let errors = diagnostics.iter().filter(|one| one.severity() == Severity::Error);
    errors.map(|one| format!("{}: {}", one.code(), one.message())).collect()
}

fn talk(world: MapWorld<'_>) -> MapWorld<'_> {
    with_directives(world, &[("talk", "", "<metadata><model tier=\"fast\"/></metadata>", "Talk.")])
}

#[test]
fn settings_with_errors_refuse_every_run_with_the_errors_of_the_check() {
    for (path, text) in SLIPS {
        for space in [Space::User, Space::Project] {
            let world = talk(stdlib_world()).with(space, path, text);
            let checked = error_codes(&check(&world, &Selection::All).diagnostics);
            for request in [CompileRequest::new(item_id("talk")), CompileRequest::new(item_id("talk")).chat()] {
                let compiled = compile(&world, &request.with_inputs(Map::new()));
                let found = error_codes(&compiled.diagnostics);
                assert!(compiled.value.is_none(), "{space:?} {path}: {text}");
                assert_eq!(found, checked, "{space:?} {path}: {text}");
            }
        }
    }
}

#[test]
fn settings_of_chats_are_checked_in_chats() {
    for text in ["context_files: { max_token: 1 }", "append_systm: x", "skills: { max_tokens: -1 }"] {
        let world = talk(stdlib_world()).with(Space::User, CHAT, text);
        let request = CompileRequest::new(item_id("talk")).chat().with_inputs(Map::new());
        assert!(compile(&world, &request).value.is_none(), "{text}");
    }
}

#[test]
fn providers_of_the_run_are_checked_and_others_are_not() {
    let models = "models: [{ id: m, context_window: 1000, max_output: 100, price: { input: 1, output: 1 } }]";
    let provider = format!("wire: openai-chat\nbase_url: http://localhost:1\ntiers: {{ fast: m }}\n{models}\n");
    let world = talk(stdlib_world()).with(Space::User, ".ai/config/agent/providers/own.yaml", &provider);
    let mut request = CompileRequest::new(item_id("talk")).with_inputs(Map::new());
    request.model.provider = Some("own".into());
    let errors = messages(&world, &request);
    assert!(errors.iter().any(|error| error.contains("price")), "{errors:?}");
    request.model.provider = Some("scripted".into());
    assert!(compile(&world, &request).value.is_some());
}

#[test]
fn valid_value_of_the_project_hides_no_invalid_value_of_the_user() {
    let project = "approvals: { headless: allow }\nlimits: { max: { spend: 5 } }\nsandbox: landlock\n";
    for slip in ["approvals: { headless: Deny }", "limits: { max: { spend: -1 } }", "sandbox: bubblwrap"] {
        let world = talk(stdlib_world()).project(AGENT, project).with(Space::User, AGENT, slip);
        let request = CompileRequest::new(item_id("talk")).with_inputs(Map::new());
        assert!(compile(&world, &request).value.is_none(), "{slip}");
        let checked = check(&world, &Selection::All);
        assert!(checked.errors() > 0, "{slip}");
        let (errors, sources) = run_settings_errors(&world);
        let place = errors.iter().flat_map(crate::diagnostics::Diagnostic::labels).next().unwrap().span.source;
        assert!(sources.get(place).unwrap().path.starts_with("user:"), "{slip}");
    }
}

#[test]
fn readers_of_invalid_values_take_the_strictest_meaning() {
    for text in ["approvals: { headless: Deny }", "approvals: { headless: [] }", "approvals: deny"] {
        for space in [Space::User, Space::Project] {
            let world = stdlib_world().with(space, AGENT, text);
            assert_eq!(HeadlessPolicy::from_settings(&world), HeadlessPolicy::Deny, "{text}");
        }
    }
    for (text, required) in [("sandbox: bubblwrap", true), ("sandbox: true", true), ("sandbox: landlock", false)] {
        assert_eq!(requires_bubblewrap(&stdlib_world().with(Space::User, AGENT, text)), required, "{text}");
    }
}

#[test]
fn smallest_ceiling_of_spend_permits_no_call() {
    let world = talk(stdlib_world()).with(Space::User, AGENT, "limits: { max: { spend: 0.000000001 } }");
    let request = CompileRequest::new(item_id("talk")).with_inputs(Map::new());
    let errors = messages(&world, &request);
    assert!(errors.iter().all(|one| one.starts_with("limit::cannot-afford-one-turn")), "{errors:?}");
    assert_eq!(errors.len(), 1);
}

#[test]
fn fractions_of_a_second_round_up() {
    let file = ".ai/config/agent/coordination.yaml";
    for (written, seconds) in [("0", 0), ("0.2", 1), ("120.0", 120), ("90", 90)] {
        let text = format!("wait_threads: {{ default_timeout: {written} }}");
        let world = talk(stdlib_world()).with(Space::User, file, text);
        let request = CompileRequest::new(item_id("talk")).with_inputs(Map::new());
        let settings = expect_compilation(&world, &request).plan.settings;
        assert_eq!(settings.values().wait_threads_seconds, seconds, "{written}");
    }
}

const SESSION_LIMITS: &str = "session_limits: { turns: 40, spend: 2 }";

fn session_limits(world: &MapWorld<'_>, request: CompileRequest) -> (Limits, Compilation) {
    let compiled = compile(world, &request.with_inputs(Map::new())).value.unwrap();
    (compiled.plan.session_limits.unwrap().into(), compiled)
}

#[test]
fn session_element_lowers_the_limits_of_a_chat_and_never_raises_them() {
    let root = "<metadata><model tier=\"fast\"/><session spend=\"3\" turns=\"20\"/></metadata>";
    let leaf = "<metadata><session spend=\"0.5\" turns=\"30\"/></metadata>";
    let world =
        with_directives(stdlib_world(), &[("root", "", root, "Root."), ("leaf", " extends=\"root\"", leaf, "Talk.")])
            .project(RESILIENCE, SESSION_LIMITS);
    let (limits, compiled) = session_limits(&world, CompileRequest::new(item_id("leaf")).chat());
    assert_eq!((limits.turns, limits.spend.to_string().as_str()), (20, "0.5"));
    assert_eq!((limits.tokens, limits.duration_seconds), (10_000_000, 28_800));
    let cause = |name: &str| compiled.origins.get(name).unwrap().cause.to_string();
    assert_eq!(cause("session_limit.turns"), "declared by `root`");
    assert_eq!(cause("session_limit.spend"), "declared by `leaf`");
    assert_eq!(cause("session_limit.tokens"), "built in");
    let (limits, compiled) = session_limits(&world, CompileRequest::new(item_id("root")).chat());
    assert_eq!(limits.spend.to_string(), "2");
    assert_eq!(compiled.origins.get("session_limit.spend").unwrap().cause.to_string(), "set in `agent/resilience`");
    let run = compile(&world, &CompileRequest::new(item_id("leaf")).with_inputs(Map::new())).value.unwrap();
    assert_eq!(run.plan.session_limits, None);
}

#[test]
fn session_limits_of_the_call_replace_those_of_files() {
    let leaf = "<metadata><model tier=\"fast\"/><session spend=\"0.5\"/></metadata>";
    let world = with_directives(stdlib_world(), &[("leaf", "", leaf, "Talk.")]).with(
        Space::User,
        AGENT,
        "limits: { max: { spend: 1 } }",
    );
    let mut request = CompileRequest::new(item_id("leaf")).chat();
    request.session_limits = vec![("spend".to_owned(), LimitValue::Text("7.5".to_owned()))];
    let (limits, compiled) = session_limits(&world, request.clone());
    assert_eq!(limits.spend.to_string(), "7.5");
    assert_eq!(compiled.origins.get("session_limit.spend").unwrap().cause.to_string(), "set by the caller");
    for (name, value, message) in [
        ("spawns", "3", "limit::unknown: a session has no limit `spawns`"),
        ("turn", "3", "limit::unknown: a session has no limit `turn`"),
        ("turns", "none", "limit::invalid: the limit `turns` cannot be `none`"),
    ] {
        request.session_limits = vec![(name.to_owned(), LimitValue::Text(value.to_owned()))];
        assert_eq!(messages(&world, &request), [message]);
    }
}

#[test]
fn diff_of_chats_reports_a_raised_session_limit() {
    let world = talk(stdlib_world()).project(RESILIENCE, SESSION_LIMITS);
    let request = || CompileRequest::new(item_id("talk")).chat();
    let (_, before) = session_limits(&world, request());
    let raised = talk(stdlib_world()).project(RESILIENCE, "session_limits: { turns: 50, spend: 2 }");
    let (_, after) = session_limits(&raised, request());
    let [old, new] = [(&world, &before), (&raised, &after)].map(|(world, compilation)| DiffSide { world, compilation });
    let diff = diff_trees(Some(old), Some(new)).unwrap();
    let changed: Vec<_> = diff.limits.iter().map(|one| (one.name.as_str(), one.raised)).collect();
    assert_eq!((diff.widened, changed), (true, vec![("session_limit.turns", true)]));
}
