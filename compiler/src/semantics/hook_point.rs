//! The table of hook points (`language.md` 7): name, mode, facts with their types, allowed actions. The compiler
//! rejects hooks that violate the table, and the engine combines the answers of hooks by the mode of their point. The
//! table does not define when a point fires.

use rye_grammar::condition::{Path, Segment};

use super::value::Type;
use crate::hook::HookPoint;

/// The rule that combines the answers of the hooks of a hook point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Stops at the first hook whose condition is true.
    FirstMatch,
    /// Runs all hooks and joins their text.
    Collect,
    /// Runs all hooks; each gets the result of the previous one.
    Chain,
    /// The first hook that blocks decides.
    FirstBlock,
    /// Runs the hooks up to the first non-empty answer, which decides. Infrastructure hooks (layer 4) always run, and
    /// their answers are ignored.
    Control,
    /// Runs all hooks and ignores their results.
    Observe,
}

/// An action by name, without its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActionName {
    SetExtends,
    Fetch,
    Execute,
    Sign,
    Transform,
    Handled,
    Message,
    SystemPrompt,
    Drop,
    KeepLast,
    Inject,
    Replace,
    Block,
    Modify,
    Retry,
    Continue,
    Terminate,
    Escalate,
    Raise,
    Handoff,
    Compact,
    FollowUp,
}

/// A fact of a hook point: its name and the shape of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HookFact {
    pub name: &'static str,
    pub shape: FactShape,
}

/// The shape of a fact and of the paths below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactShape {
    /// A plain value without fields.
    Plain(Type),
    /// An object with exactly these fields.
    Fields(&'static [HookFact]),
    /// The declared inputs of the directive.
    Inputs,
    /// A value whose fields or elements are not declared: a list, or any JSON. Holds the type of the whole value;
    /// `None` if the type is unknown.
    Open(Option<Type>),
}

/// A hook point: its event name, its mode, its facts and its allowed actions.
#[derive(Debug, Clone, Copy)]
pub struct HookPointRow {
    pub point: HookPoint,
    pub name: &'static str,
    pub mode: Mode,
    /// The facts of this point, without [`COMMON_FACTS`].
    pub facts: &'static [HookFact],
    pub actions: &'static [ActionName],
}

/// The meaning that a path of a condition or placeholder, such as `inputs.name`, has at a hook point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathMeaning {
    /// A fact, with its type if known.
    Fact(Option<Type>),
    /// A declared input, or a path inside an input; the directive declares the type of the input.
    Input,
    /// A path that only a run can resolve: a part of a fact whose fields are not declared, or a field of a transcript
    /// event.
    Open,
    /// No fact: the first segment of the path names no fact of the hook point, or a later segment names no field of the
    /// fact.
    Nothing,
}

const fn text(name: &'static str) -> HookFact {
    HookFact { name, shape: FactShape::Plain(Type::String) }
}
const fn integer(name: &'static str) -> HookFact {
    HookFact { name, shape: FactShape::Plain(Type::Integer) }
}
const fn number(name: &'static str) -> HookFact {
    HookFact { name, shape: FactShape::Plain(Type::Number) }
}
const fn boolean(name: &'static str) -> HookFact {
    HookFact { name, shape: FactShape::Plain(Type::Boolean) }
}
const fn list(name: &'static str) -> HookFact {
    HookFact { name, shape: FactShape::Open(Some(Type::Array)) }
}
const fn open_object(name: &'static str) -> HookFact {
    HookFact { name, shape: FactShape::Open(Some(Type::Object)) }
}
const fn any(name: &'static str) -> HookFact {
    HookFact { name, shape: FactShape::Open(None) }
}
const fn object(name: &'static str, fields: &'static [HookFact]) -> HookFact {
    HookFact { name, shape: FactShape::Fields(fields) }
}

/// The facts that every hook point has.
pub const COMMON_FACTS: &[HookFact] = &[text("thread_id"), text("directive"), text("category"), text("model")];

const INPUTS: HookFact = HookFact { name: "inputs", shape: FactShape::Inputs };
/// The fact `cost`. `cost.current` equals `cost.spend`, and `cost.limit` is the limit `spend`. The fact `loop_count`
/// equals `cost.turns`.
const COST: HookFact = object(
    "cost",
    &[
        integer("turns"),
        integer("input_tokens"),
        integer("output_tokens"),
        integer("cached_tokens"),
        number("spend"),
        number("elapsed_seconds"),
        number("current"),
        number("limit"),
    ],
);
const LOOP_COUNT: HookFact = integer("loop_count");
const LIMITS: HookFact = object(
    "limits",
    &[
        integer("turns"),
        integer("tokens"),
        number("spend"),
        integer("spawns"),
        integer("depth"),
        number("duration_seconds"),
        integer("output"),
    ],
);
const CALL: HookFact = object("call", &[text("id"), text("name"), text("item_id"), open_object("input")]);
const RESULT_SIZE: HookFact = object("result", &[integer("bytes"), boolean("is_error"), number("duration_ms")]);
const RESULT: HookFact = object("result", &[text("content"), boolean("is_error"), any("details")]);
const ERROR: HookFact = object("error", &[text("type"), text("message"), any("code"), any("status"), text("tool")]);
/// The facts of a rule of the error classification, in the form of a hook point.
pub(crate) const FAILURE_RULE: HookPointRow = HookPointRow {
    point: HookPoint::Error,
    name: "error_classification",
    mode: Mode::FirstMatch,
    facts: &[
        text("stage"),
        integer("status"),
        open_object("headers"),
        object("error", &[text("type"), text("message"), any("code")]),
        integer("attempt"),
    ],
    actions: &[],
};
const CLASSIFICATION: HookFact = object("classification", &[text("name"), text("category"), boolean("retryable")]);

const STARTED: &[HookFact] = &[
    text("directive_body"),
    LIMITS,
    INPUTS,
    text("project_path"),
    integer("depth"),
    text("parent_thread_id"),
    number("spend_limit"),
    integer("max_turns"),
    text("capabilities_summary"),
];
const CONTINUED: &[HookFact] = &[
    text("directive_body"),
    LIMITS,
    INPUTS,
    text("project_path"),
    integer("depth"),
    text("parent_thread_id"),
    number("spend_limit"),
    integer("max_turns"),
    text("capabilities_summary"),
    text("previous_thread_id"),
];

use ActionName as A;
const EXECUTE_ONLY: &[ActionName] = &[A::Execute];
const COLLECTED: &[ActionName] = &[A::Fetch, A::Execute];
const STEP: &[ActionName] = &[A::Retry, A::Continue, A::Terminate, A::Execute];
/// The mode of the hook points that are transcript events. The facts of these points are the fields of the event.
const EVENT_MODE: Mode = Mode::Observe;

/// The table of hook points: one row for each, in the order of [`HookPoint`].
pub const HOOK_POINTS: &[HookPointRow] = &[
    row(
        HookPoint::ResolveExtends,
        "resolve_extends",
        Mode::FirstMatch,
        &[boolean("has_extends"), INPUTS],
        &[A::SetExtends],
    ),
    row(
        HookPoint::BuildSystemPrompt,
        "build_system_prompt",
        Mode::Collect,
        &[text("directive_body"), LIMITS, INPUTS],
        COLLECTED,
    ),
    row(HookPoint::ThreadStarted, "thread_started", Mode::Collect, STARTED, COLLECTED),
    row(HookPoint::ThreadContinued, "thread_continued", Mode::Collect, CONTINUED, COLLECTED),
    row(
        HookPoint::Input,
        "input",
        Mode::Chain,
        &[text("text"), list("images"), text("source"), text("delivery")],
        &[A::Transform, A::Handled, A::Continue, A::Execute],
    ),
    row(
        HookPoint::Command,
        "command",
        Mode::FirstMatch,
        &[text("name"), text("args"), text("source"), text("delivery")],
        EXECUTE_ONLY,
    ),
    row(
        HookPoint::BeforeAgentStart,
        "before_agent_start",
        Mode::Chain,
        &[text("prompt"), text("system_prompt"), list("images")],
        &[A::Message, A::SystemPrompt, A::Terminate, A::Execute],
    ),
    row(
        HookPoint::Context,
        "context",
        Mode::Chain,
        &[list("messages"), integer("turn"), number("usage_ratio"), COST, LOOP_COUNT],
        &[A::Drop, A::KeepLast, A::Inject, A::Replace, A::Execute],
    ),
    row(
        HookPoint::ToolCall,
        "tool_call",
        Mode::FirstBlock,
        &[CALL, integer("turn"), COST, LOOP_COUNT],
        &[A::Block, A::Execute],
    ),
    row(HookPoint::ToolExecutionStart, "tool_execution_start", Mode::Observe, &[CALL], EXECUTE_ONLY),
    row(HookPoint::ToolExecutionEnd, "tool_execution_end", Mode::Observe, &[CALL, RESULT_SIZE], EXECUTE_ONLY),
    row(HookPoint::ToolResult, "tool_result", Mode::Chain, &[CALL, RESULT], &[A::Modify, A::Execute]),
    row(HookPoint::AfterStep, "after_step", Mode::Control, &[COST, LOOP_COUNT, integer("turn")], STEP),
    row(
        HookPoint::Limit,
        "limit",
        Mode::Control,
        &[text("limit_code"), number("current_value"), number("current_max"), COST, LOOP_COUNT],
        &[A::Retry, A::Continue, A::Terminate, A::Escalate, A::Raise, A::Handoff, A::Execute],
    ),
    row(HookPoint::Error, "error", Mode::Control, &[ERROR, CLASSIFICATION, integer("attempt")], STEP),
    row(
        HookPoint::ContextLimitReached,
        "context_limit_reached",
        Mode::Control,
        &[number("usage_ratio"), integer("tokens_used"), integer("tokens_limit")],
        &[A::Handoff, A::Compact, A::Terminate, A::Execute],
    ),
    row(
        HookPoint::DirectiveReturn,
        "directive_return",
        Mode::Observe,
        &[any("outputs"), COST, LOOP_COUNT],
        EXECUTE_ONLY,
    ),
    row(
        HookPoint::AgentEnd,
        "agent_end",
        Mode::Control,
        &[COST, LOOP_COUNT, integer("turn"), text("result"), any("outputs")],
        &[A::FollowUp, A::Block, A::Terminate, A::Execute],
    ),
    row(
        HookPoint::AfterComplete,
        "after_complete",
        Mode::Observe,
        &[text("status"), COST, LOOP_COUNT, text("project_path")],
        EXECUTE_ONLY,
    ),
    row(HookPoint::CognitionIn, "cognition_in", EVENT_MODE, &[], EXECUTE_ONLY),
    row(HookPoint::CognitionOut, "cognition_out", EVENT_MODE, &[], EXECUTE_ONLY),
    row(HookPoint::ToolCallResult, "tool_call_result", EVENT_MODE, &[], EXECUTE_ONLY),
    row(HookPoint::ThreadCompleted, "thread_completed", EVENT_MODE, &[], EXECUTE_ONLY),
    row(HookPoint::ThreadError, "thread_error", EVENT_MODE, &[], EXECUTE_ONLY),
    row(HookPoint::ThreadCancelled, "thread_cancelled", EVENT_MODE, &[], EXECUTE_ONLY),
    row(HookPoint::ThreadResumed, "thread_resumed", EVENT_MODE, &[], EXECUTE_ONLY),
];

const fn row(
    point: HookPoint,
    name: &'static str,
    mode: Mode,
    facts: &'static [HookFact],
    actions: &'static [ActionName],
) -> HookPointRow {
    HookPointRow { point, name, mode, facts, actions }
}

/// Returns the table row of a hook point.
pub fn row_of(point: HookPoint) -> &'static HookPointRow {
    // A test checks that the table holds every point, so this fallback is never used.
    const FIRST: &HookPointRow = &row(HookPoint::ResolveExtends, "resolve_extends", Mode::FirstMatch, &[], &[]);
    HOOK_POINTS.iter().find(|p| p.point == point).unwrap_or(FIRST)
}

/// Returns the hook point with the name that the key `event` of a hook contains; `None` if there is no such point.
pub(crate) fn by_name(name: &str) -> Option<&'static HookPointRow> {
    HOOK_POINTS.iter().find(|p| p.name == name)
}

/// Returns every event name, in the order of the table of hook points.
pub(crate) fn event_names() -> Vec<&'static str> {
    HOOK_POINTS.iter().map(|p| p.name).collect()
}

impl HookPointRow {
    /// Returns true if the point is a transcript event: its facts are the fields of the event, and [`HOOK_POINTS`]
    /// lists none of them.
    pub(crate) fn is_transcript_event(&self) -> bool {
        self.point >= HookPoint::CognitionIn
    }

    /// Returns the actions that a hook of this point may have: those of the table, and `sign` wherever `execute` is,
    /// because both act on exactly one named item.
    pub fn accepted_actions(&self) -> impl Iterator<Item = ActionName> + '_ {
        let sign = self.actions.contains(&A::Execute).then_some(A::Sign);
        self.actions.iter().copied().chain(sign)
    }

    /// Returns true if `root`, the first segment of a path, is the name of a fact of this hook point.
    pub(crate) fn has_fact(&self, root: &str) -> bool {
        self.all_facts().any(|f| f.name == root)
    }

    /// Returns the names of the facts. For a fact with declared fields, returns the paths of the fields instead, such
    /// as `cost.turns`.
    pub fn fact_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for fact in self.all_facts() {
            match fact.shape {
                FactShape::Fields(fields) => names.extend(fields.iter().map(|f| format!("{}.{}", fact.name, f.name))),
                FactShape::Plain(_) | FactShape::Inputs | FactShape::Open(_) => names.push(fact.name.to_owned()),
            }
        }
        names
    }

    /// Returns the meaning of a path at this point.
    pub(crate) fn resolve_path(&self, path: &Path) -> PathMeaning {
        let mut segments = path.segments.iter();
        let Some(Segment::Name(root)) = segments.next() else { return PathMeaning::Nothing };
        let Some(mut fact) = self.all_facts().find(|f| f.name == root) else {
            return if self.is_transcript_event() { PathMeaning::Open } else { PathMeaning::Nothing };
        };
        loop {
            let next = segments.next();
            match (fact.shape, next) {
                (FactShape::Plain(kind), None) => return PathMeaning::Fact(Some(kind)),
                (FactShape::Fields(_) | FactShape::Inputs, None) => return PathMeaning::Fact(Some(Type::Object)),
                (FactShape::Fields(fields), Some(Segment::Name(name))) => {
                    match fields.iter().find(|f| f.name == name) {
                        Some(inner) => fact = inner,
                        None => return PathMeaning::Nothing,
                    }
                }
                (FactShape::Plain(_), Some(_)) | (FactShape::Fields(_), Some(Segment::Number(_))) => {
                    return PathMeaning::Nothing;
                }
                (FactShape::Inputs, Some(_)) => return PathMeaning::Input,
                (FactShape::Open(kind), None) => return PathMeaning::Fact(kind),
                (FactShape::Open(_), Some(_)) => return PathMeaning::Open,
            }
        }
    }

    fn all_facts(&self) -> impl Iterator<Item = &'static HookFact> + use<> {
        COMMON_FACTS.iter().chain(self.facts)
    }
}

impl ActionName {
    pub const ALL: [Self; 22] = [
        A::SetExtends,
        A::Fetch,
        A::Execute,
        A::Sign,
        A::Transform,
        A::Handled,
        A::Message,
        A::SystemPrompt,
        A::Drop,
        A::KeepLast,
        A::Inject,
        A::Replace,
        A::Block,
        A::Modify,
        A::Retry,
        A::Continue,
        A::Terminate,
        A::Escalate,
        A::Raise,
        A::Handoff,
        A::Compact,
        A::FollowUp,
    ];

    /// Returns the name of the action in hook files, such as `set_extends`.
    pub fn as_str(self) -> &'static str {
        match self {
            A::SetExtends => "set_extends",
            A::Fetch => "fetch",
            A::Execute => "execute",
            A::Sign => "sign",
            A::Transform => "transform",
            A::Handled => "handled",
            A::Message => "message",
            A::SystemPrompt => "system_prompt",
            A::Drop => "drop",
            A::KeepLast => "keep_last",
            A::Inject => "inject",
            A::Replace => "replace",
            A::Block => "block",
            A::Modify => "modify",
            A::Retry => "retry",
            A::Continue => "continue",
            A::Terminate => "terminate",
            A::Escalate => "escalate",
            A::Raise => "raise",
            A::Handoff => "handoff",
            A::Compact => "compact",
            A::FollowUp => "follow_up",
        }
    }

    /// Returns the aliases of an action: other names that a hook may use for the action.
    pub fn aliases(self) -> &'static [&'static str] {
        match self {
            A::Fetch => &["load", "search"],
            A::Terminate => &["fail", "abort"],
            A::SetExtends
            | A::Execute
            | A::Sign
            | A::Transform
            | A::Handled
            | A::Message
            | A::SystemPrompt
            | A::Drop
            | A::KeepLast
            | A::Inject
            | A::Replace
            | A::Block
            | A::Modify
            | A::Retry
            | A::Continue
            | A::Escalate
            | A::Raise
            | A::Handoff
            | A::Compact
            | A::FollowUp => &[],
        }
    }

    /// Returns the names of the fields of an action.
    pub fn fields(self) -> &'static [&'static str] {
        match self {
            A::SetExtends => &["item_id"],
            A::Fetch | A::Execute => &["item_type", "item_id", "params"],
            A::Sign => &["item_type", "item_id"],
            A::Transform => &["text", "images"],
            A::Handled => &["reply"],
            A::Message => &["content", "type", "display"],
            A::SystemPrompt => &["text", "append"],
            A::Drop => &["kinds", "n"],
            A::KeepLast => &["n"],
            A::Inject => &["content", "position"],
            A::Replace => &["messages"],
            A::Block => &["reason"],
            A::Modify => &["content", "is_error", "details"],
            A::Retry => &["delay_ms"],
            A::Terminate => &["status", "error", "scope"],
            A::Raise => &["limit", "value"],
            A::FollowUp => &["content"],
            A::Continue | A::Escalate | A::Handoff | A::Compact => &[],
        }
    }

    /// Returns the action with this name or alias; `None` if there is no such action.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.as_str() == word || a.aliases().contains(&word))
    }
}

/// Returns the name of the declared output that a path reads at the hook point `directive_return`, and the rest of the
/// path. `None` for other paths. `None` at other hook points, because only `directive_return` has all outputs.
pub(crate) fn declared_output(point: HookPoint, path: &Path) -> Option<(&str, &[Segment])> {
    match path.segments.as_slice() {
        [Segment::Name(root), Segment::Name(name), inside @ ..]
            if point == HookPoint::DirectiveReturn && root == "outputs" =>
        {
            Some((name, inside))
        }
        _ => None,
    }
}

/// Returns true if a path leads to text written by the model or a tool (`language.md` 7). The errors of tools repeat
/// their arguments. `content`, `details` and `message` are fields of recorded events.
pub fn is_untrusted(path: &Path) -> bool {
    const ROOTS: [&str; 8] = ["call", "result", "outputs", "messages", "error", "content", "details", "message"];
    match path.segments.as_slice() {
        [Segment::Name(root), Segment::Name(field)] if root == "error" && field == "status" => false,
        [Segment::Name(root), ..] => ROOTS.contains(&root.as_str()),
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;

    fn path(text: &str) -> Path {
        let segments = text.split('.').map(|s| s.parse().map_or_else(|_| Segment::Name(s.into()), Segment::Number));
        Path { segments: segments.collect() }
    }

    #[test]
    fn table_has_every_point_in_order() {
        for (i, line) in HOOK_POINTS.iter().enumerate() {
            assert_eq!(line.point as usize, i);
            assert_eq!(row_of(line.point).name, line.name);
            assert_eq!(serde_json::to_value(line.point).unwrap(), line.name);
        }
        assert_eq!(HOOK_POINTS.len(), HookPoint::ThreadResumed as usize + 1);
    }

    #[test]
    fn paths_resolve_to_their_kind() {
        let step = by_name("after_step").unwrap();
        assert_eq!(step.resolve_path(&path("cost.turns")), PathMeaning::Fact(Some(Type::Integer)));
        assert_eq!(step.resolve_path(&path("cost.turn")), PathMeaning::Nothing);
        assert_eq!(step.resolve_path(&path("cost")), PathMeaning::Fact(Some(Type::Object)));
        assert_eq!(step.resolve_path(&path("turn.x")), PathMeaning::Nothing);
        assert_eq!(step.resolve_path(&path("directive")), PathMeaning::Fact(Some(Type::String)));
        let started = by_name("thread_started").unwrap();
        assert_eq!(started.resolve_path(&path("inputs.x.0")), PathMeaning::Input);
        assert_eq!(by_name("tool_call").unwrap().resolve_path(&path("call.input.command")), PathMeaning::Open);
        assert_eq!(by_name("thread_completed").unwrap().resolve_path(&path("anything.at.all")), PathMeaning::Open);
        assert_eq!(by_name("thread_begun").map(|p| p.name), None);
    }

    #[test]
    fn action_words_round_trip_and_have_aliases() {
        for action in ActionName::ALL {
            assert_eq!(ActionName::from_word(action.as_str()), Some(action));
        }
        assert_eq!(ActionName::from_word("abort"), Some(A::Terminate));
        assert_eq!(ActionName::from_word("load"), Some(A::Fetch));
    }

    #[test]
    fn model_written_facts_are_untrusted() {
        assert!(is_untrusted(&path("call.input.command")));
        assert!(is_untrusted(&path("messages.0")));
        assert!(is_untrusted(&path("outputs.branch")));
        assert!(is_untrusted(&path("error.message")));
        assert!(is_untrusted(&path("content.0.text")));
        assert!(!is_untrusted(&path("error.status")));
        assert!(!is_untrusted(&path("inputs.command")));
    }
}
