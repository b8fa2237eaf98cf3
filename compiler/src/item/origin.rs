//! Origins of composed values: the directive, hook or settings file that declares a value. Also reads the limits in
//! settings files.

use std::sync::Arc;

use rye_grammar::data::{Entry, Node};
use rye_grammar::{ItemId, Span};

use super::{Directive, HookDecl, Items};
use crate::plan::OriginKind;
use crate::semantics::limits::{LimitSetting, LimitValue};

/// The declaration that a composed value comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct DeclaredOrigin {
    pub by: OriginKind,
    /// The span of the declaration; `None` for built-in values.
    pub span: Option<Span>,
}

impl DeclaredOrigin {
    /// Returns the origin of a built-in value.
    pub fn built_in() -> Self {
        Self { by: OriginKind::BuiltIn, span: None }
    }

    /// Returns the origin of a hook.
    pub fn hook(hook: &HookDecl) -> Self {
        Self { by: OriginKind::Hook(hook.id.node.clone()), span: Some(hook.span) }
    }

    /// Returns the origin of a part of a directive.
    pub fn directive(directive: &Directive, span: Span) -> Self {
        Self { by: OriginKind::Directive(directive.id().clone()), span: Some(span) }
    }
}

/// Returns the limits in a mapping of a settings file.
fn settings_of(id: &ItemId, node: &Node) -> Vec<LimitSetting<DeclaredOrigin>> {
    let setting = |entry: &Entry| {
        let span = Some(entry.key.span.join(entry.value.span));
        let source = DeclaredOrigin { by: OriginKind::Config(id.clone()), span };
        LimitSetting { name: entry.key.node.clone(), written: LimitValue::Json(entry.value.to_value()), source }
    };
    node.entries().iter().map(setting).collect()
}

/// The limits that settings files declare. They apply to every directive, with a lower precedence than the directive's
/// own limits.
pub struct SettingsLimits {
    pub defaults: Arc<[LimitSetting<DeclaredOrigin>]>,
    pub ceilings: Arc<[LimitSetting<DeclaredOrigin>]>,
    /// The limits of a whole chat, from `session_limits` of `agent/resilience`.
    pub session: Arc<[LimitSetting<DeclaredOrigin>]>,
}

impl SettingsLimits {
    /// Reads the default limits and the session limits in `agent/resilience`, and the ceilings (`limits.max`) in `agent/agent`.
    pub fn read(items: &Items<'_>) -> Self {
        let (mut defaults, mut session) = (Vec::new(), Vec::new());
        if let Ok(id) = ItemId::parse("agent/resilience")
            && let Some(config) = items.config(&id)
        {
            let limits = |key: &str| config.get(key).map(|node| settings_of(&id, node)).unwrap_or_default();
            (defaults, session) = (limits("limits"), limits("session_limits"));
        }
        let mut ceilings = Vec::new();
        if let Ok(id) = ItemId::parse("agent/agent") {
            // Every space can lower a bound, so the bounds of all spaces apply.
            for (_, config) in items.config_layers(&id).iter() {
                let written = config.get("limits").and_then(|limits| limits.get("max"));
                ceilings.extend(written.into_iter().flat_map(|node| settings_of(&id, node)));
            }
        }
        Self { defaults: defaults.into(), ceilings: ceilings.into(), session: session.into() }
    }
}
