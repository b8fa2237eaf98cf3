//! The parts of a hook: event, condition, action. The table of hook points is in `semantics::hook_point`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::world::{ItemKind, Space};

/// Every event that a hook can name (`language.md`, Hooks), in the order of `semantics::hook_point::HOOK_POINTS`. The
/// variants from `CognitionIn` on are transcript events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookPoint {
    ResolveExtends,
    BuildSystemPrompt,
    ThreadStarted,
    ThreadContinued,
    Input,
    Command,
    BeforeAgentStart,
    Context,
    ToolCall,
    ToolExecutionStart,
    ToolExecutionEnd,
    ToolResult,
    AfterStep,
    Limit,
    Error,
    ContextLimitReached,
    DirectiveReturn,
    AgentEnd,
    AfterComplete,
    CognitionIn,
    CognitionOut,
    ToolCallResult,
    ThreadCompleted,
    ThreadError,
    ThreadCancelled,
    ThreadResumed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Position {
    Before,
    After,
}

/// The source of a hook. The source and [`PlannedHook::layer`] determine the position of the hook in the evaluation
/// order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum HookSource {
    User,
    /// The directive that declares the hook.
    Directive {
        id: String,
    },
    Builtin,
    Project,
    Infrastructure,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    Warn,
    Fail,
}

/// The kinds of messages in a conversation, by the names that the hook actions `drop` and `replace` use.
pub const MESSAGE_KINDS: [&str; 7] =
    ["user", "assistant", "tool_result", "custom", "bash", "compaction_summary", "branch_summary"];

/// The end statuses that `terminate` may set. `success` is an alias of `completed`.
pub const END_STATUSES: [&str; 5] = ["completed", "success", "error", "cancelled", "suspended"];

/// The scopes of `terminate` in a chat: only the current prompt ends, or the whole session. A run has no scopes.
pub const TERMINATE_SCOPES: [&str; 2] = ["prompt", SESSION_SCOPE];

/// The scope of a `terminate` that ends the session of a chat.
pub const SESSION_SCOPE: &str = "session";

/// The effect of a hook. Strings may be `${…}` templates, which are filled when the hook fires. The compiler has
/// checked the syntax of the templates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum HookAction {
    SetExtends {
        item_id: String,
    },
    Fetch {
        item_type: ItemKind,
        item_id: String,
        params: Value,
    },
    Execute {
        item_type: ItemKind,
        item_id: String,
        params: Value,
    },
    Sign {
        item_type: ItemKind,
        item_id: String,
    },
    Transform {
        text: String,
        /// The new images of the message, as a list; `None` keeps the images. An element is an image of the message, a
        /// path in the project, `{path: …}`, or `{data: …}` with the bytes in base64.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        images: Option<Value>,
    },
    Handled {
        /// The text that the user sees in place of an answer of the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply: Option<String>,
    },
    Message {
        content: String,
        custom_type: String,
        display: bool,
    },
    SystemPrompt {
        text: Option<String>,
        append: Option<String>,
    },
    Drop {
        kinds: Vec<String>,
        n: Option<u64>,
    },
    KeepLast {
        n: u64,
    },
    Inject {
        content: String,
        position: Position,
    },
    Replace {
        messages: Value,
    },
    Block {
        reason: String,
    },
    Modify {
        content: Option<Value>,
        is_error: Option<bool>,
        details: Option<Value>,
    },
    Retry {
        delay_ms: Option<u64>,
    },
    Continue,
    Terminate {
        status: Option<String>,
        error: Option<String>,
        /// Scope of the end, one of [`TERMINATE_SCOPES`]; `None` means `prompt`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scope: Option<String>,
    },
    Escalate,
    Raise {
        limit: String,
        value: Value,
    },
    Handoff,
    Compact,
    FollowUp {
        content: String,
    },
}

/// The item that a hook action fetches, executes or signs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum HookCall<'a> {
    Fetch { item_type: ItemKind, item_id: &'a str },
    Execute { item_type: ItemKind, item_id: &'a str, params: &'a Value },
    Sign { item_type: ItemKind, item_id: &'a str },
}

impl HookAction {
    /// Returns the item that the action fetches, executes or signs; `None` for other actions.
    pub fn call(&self) -> Option<HookCall<'_>> {
        match self {
            Self::Fetch { item_type, item_id, .. } => Some(HookCall::Fetch { item_type: *item_type, item_id }),
            Self::Execute { item_type, item_id, params } => {
                Some(HookCall::Execute { item_type: *item_type, item_id, params })
            }
            Self::Sign { item_type, item_id } => Some(HookCall::Sign { item_type: *item_type, item_id }),
            Self::SetExtends { .. }
            | Self::Transform { .. }
            | Self::Handled { .. }
            | Self::Message { .. }
            | Self::SystemPrompt { .. }
            | Self::Drop { .. }
            | Self::KeepLast { .. }
            | Self::Inject { .. }
            | Self::Replace { .. }
            | Self::Block { .. }
            | Self::Modify { .. }
            | Self::Retry { .. }
            | Self::Continue
            | Self::Terminate { .. }
            | Self::Escalate
            | Self::Raise { .. }
            | Self::Handoff
            | Self::Compact
            | Self::FollowUp { .. } => None,
        }
    }

    /// Returns the id that `set_extends` sets as the parent; `None` for other actions.
    pub fn parent(&self) -> Option<&str> {
        if let Self::SetExtends { item_id } = self { Some(item_id) } else { None }
    }

    /// Returns true if the action replaces the system prompt by a text without the placeholder `${system_prompt}`, so
    /// that the earlier system prompt is lost.
    pub(crate) fn replaces_system_prompt(&self) -> bool {
        let Self::SystemPrompt { text: Some(text), .. } = self else { return false };
        !text.contains("${system_prompt")
    }

    /// Returns the kind and id of the item that the action fetches, executes or signs; `None` for other actions.
    pub fn item(&self) -> Option<(ItemKind, &str)> {
        self.call().map(|call| match call {
            HookCall::Fetch { item_type, item_id }
            | HookCall::Execute { item_type, item_id, .. }
            | HookCall::Sign { item_type, item_id } => (item_type, item_id),
        })
    }

    /// Returns true if no part of the action can fail, provided that its texts contain no placeholders.
    pub(crate) fn cannot_fail(&self) -> bool {
        match self {
            Self::Block { .. }
            | Self::Continue
            | Self::Terminate { .. }
            | Self::Escalate
            | Self::Compact
            | Self::Message { .. }
            | Self::FollowUp { .. }
            | Self::Drop { .. }
            | Self::KeepLast { .. } => true,
            Self::SetExtends { .. }
            | Self::Fetch { .. }
            | Self::Execute { .. }
            | Self::Sign { .. }
            | Self::Transform { .. }
            | Self::Handled { .. }
            | Self::SystemPrompt { .. }
            | Self::Inject { .. }
            | Self::Replace { .. }
            | Self::Modify { .. }
            // `retry` and `handoff` fail where they have no effect.
            | Self::Retry { .. }
            | Self::Handoff
            | Self::Raise { .. } => false,
        }
    }

    /// Returns true if the only effect of the action is an answer at its hook point. False for an action with an item,
    /// and for `continue`, with which a hook only records that it fired.
    pub(crate) fn only_answers(&self) -> bool {
        self.item().is_none() && !matches!(self, Self::Continue)
    }

    /// Returns the id of the knowledge that the action fetches; `None` for other actions.
    pub fn knowledge(&self) -> Option<&str> {
        if let Self::Fetch { item_type: ItemKind::Knowledge, item_id, .. } = self { Some(item_id) } else { None }
    }
}

/// A hook of a plan. A plan lists its hooks in evaluation order, and also contains suppressed and replaced hooks with
/// their verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedHook {
    pub id: String,
    pub event: HookPoint,
    pub layer: f64,
    pub source: HookSource,
    pub space: Space,
    pub position: Position,
    pub wrap: bool,
    /// The condition as written, as data or as one-line text; `None` means that the hook always fires. The condition is
    /// compiled once when the plan is loaded.
    pub condition: Option<Value>,
    pub action: HookAction,
    pub grants: Vec<String>,
    pub on_failure: OnFailure,
    /// The result of the hook's condition, as far as it is known before the run.
    pub verdict: PlanVerdict,
}

/// The result of evaluating the condition of a hook at compile time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum PlanVerdict {
    /// The condition is true in every run.
    Fires,
    /// The condition is false in every run. `because` names the operand that makes the condition false.
    Never { because: String },
    /// The condition depends on facts that are known only in a run.
    Depends { on: Vec<String> },
    /// The hook is removed before its condition is evaluated, for one of these reasons:
    ///
    /// - The hook is suppressed, replaced or disabled.
    /// - An earlier hook always fires, and only the first match acts at the event.
    /// - The answers of hooks in the hook's layer are ignored.
    Removed { because: String },
}

impl PlannedHook {
    /// Returns true if a run has to evaluate this hook.
    pub fn is_live(&self) -> bool {
        matches!(self.verdict, PlanVerdict::Fires | PlanVerdict::Depends { .. })
    }
}
