//! The request to compile one directive.

use rye_grammar::ItemId;
use serde_json::{Map, Value};

use crate::model::ModelOverride;
use crate::plan::{AppendedText, Capabilities, PlanLimits, PlanMode};
use crate::semantics::limits::LimitValue;

/// A request to compile one directive.
#[derive(Debug, Clone)]
pub struct CompileRequest {
    pub directive: ItemId,
    /// Input values; `None` if not known, so that every `{input:…}` stays pending. Given values are checked, and
    /// defaults fill in the rest.
    pub inputs: Option<Map<String, Value>>,
    /// Limits that the caller sets, by name; they override the limits that the directive declares.
    pub limits: Vec<(String, LimitValue)>,
    /// Limits of a whole chat that the caller sets, by name; they replace the limits that files set.
    pub session_limits: Vec<(String, LimitValue)>,
    /// A text that the caller appends to the system prompt of a chat.
    pub appended: Option<AppendedText>,
    pub model: ModelOverride,
    /// The bounds of the thread that spawns the thread of the plan; `None` for a root thread.
    pub parent: Option<SpawnParent>,
    pub mode: PlanMode,
    /// Ids of parts that the user leaves out of the requests of a session: context items, hooks, skills, tools.
    pub omitted: Vec<String>,
    /// The route that the plan takes if the inputs do not decide the route; `None` if the inputs must decide it.
    pub route: Option<AssumedRoute>,
}

/// A route that a plan assumes. If the inputs decide the route, the assumption has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssumedRoute {
    /// The parent that a routing hook sets, or the declared parent; `None` if the directive has no parent.
    pub parent: Option<ItemId>,
}

/// The bounds that a thread puts on a child that it starts.
#[derive(Debug, Clone, PartialEq)]
pub struct SpawnParent {
    pub limits: PlanLimits,
    /// Capabilities that apply if the child's chain declares no permissions.
    pub capabilities: Capabilities,
}

impl CompileRequest {
    /// Creates a request without inputs, overrides or a parent.
    pub fn new(directive: ItemId) -> Self {
        Self {
            directive,
            inputs: None,
            limits: Vec::new(),
            session_limits: Vec::new(),
            appended: None,
            model: ModelOverride::default(),
            parent: None,
            mode: PlanMode::Run,
            omitted: Vec::new(),
            route: None,
        }
    }

    /// Requests the plan of a chat.
    #[must_use]
    pub fn chat(mut self) -> Self {
        self.mode = PlanMode::Chat;
        self
    }

    /// Sets the inputs.
    #[must_use]
    pub fn with_inputs(mut self, inputs: Map<String, Value>) -> Self {
        self.inputs = Some(inputs);
        self
    }
}
