//! The Plan: the value that `plan` prints and the machine runs. It contains space-relative ids and content hashes only:
//! no absolute paths, times or line numbers. [`Origins`] holds the source locations of its parts.

pub mod bound;
pub mod cost;
pub mod count;
pub mod graph;
pub mod narrow;
pub mod note;
pub mod origin;
pub mod parts;
pub mod prompt;
pub mod settings;
pub mod source;
mod text_size;
mod tool_thread;
pub mod verify;

use std::collections::BTreeMap;
use std::sync::Arc;

use indexmap::IndexMap;
use rye_grammar::ItemId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::hook::{HookCall, PlannedHook};
use crate::semantics::capability::may_spawn;
use crate::semantics::limits::{LimitName, Limits};
use crate::semantics::money::Nanos;
use crate::semantics::value::Type;
use crate::tool_spec::Idempotence;
pub use crate::world::{ContextFileRead, ManifestEntry, hex};
use crate::world::{ItemKind, Space};
pub(crate) use cost::RequestTokens;
pub use cost::{LongPromptPrices, Prices, Tokens};
pub use count::Tokenizer;
pub use graph::{ApprovalOrigin, Graph, Node, Outcome};
pub use origin::{Origin, OriginCause, OriginKind};
pub use parts::{PartFault, PartProblem, PartType, ValueParts};
pub use prompt::{Layer, LayerKind, Prompt, RuntimePlaceholder, Segment};
pub use settings::{PlanSettings, RunSettings};
pub use text_size::{TextSize, TextSizes};

/// The format version that this build writes. Plans of older versions are read, and plans of newer versions are
/// refused.
pub const PLAN_FORMAT: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub format: u32,
    #[serde(default, skip_serializing_if = "PlanMode::is_run")]
    pub mode: PlanMode,
    pub directive: ItemId,
    pub category: String,
    pub description: String,
    /// The extends chain: the root first, the directive itself last.
    pub chain: Vec<ChainLink>,
    /// The hook that set the route of the chain; `None` if no hook did.
    pub route: Option<String>,
    pub graph: Graph,
    pub prompt: Prompt,
    pub palette: Vec<PaletteTool>,
    pub dropped_tools: Vec<DroppedTool>,
    pub capabilities: Capabilities,
    /// The effective limits: of the run, or of each prompt of a chat. The limits of a child are already within the
    /// limits of its parent.
    pub limits: PlanLimits,
    /// The limits of a whole chat; `None` for a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_limits: Option<PlanLimits>,
    /// The ceilings of the settings (`limits.max`): no hook raises a limit above its ceiling. Nano-dollars for `spend`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limit_ceilings: BTreeMap<LimitName, u64>,
    /// The hooks, in evaluation order.
    pub hooks: Vec<PlannedHook>,
    pub interface: Interface,
    pub model: PlannedModel,
    pub nudge: NudgePolicy,
    pub continuation_directive: Option<ItemId>,
    /// The settings that a run reads, by the name of their file: `resilience`, `coordination`, `error_classification`
    /// and `capability_risk`. The values are merged over the spaces and fixed in the plan.
    pub settings: PlanSettings,
    /// Every file that was read, and every lookup that found nothing.
    pub manifest: Vec<ManifestEntry>,
    /// The context files that were read, outermost first; empty for a plan without context files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context_files: Vec<ContextFileRead>,
    /// Ids of the parts that the user leaves out of the requests of a session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub omitted: Vec<String>,
    /// The text that the user appends to the system prompt of a session with `--append-system`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub appended: Option<AppendedText>,
}

/// A text that the user appends to the system prompt of a chat. The plan stores the text, because the file is read only
/// when the session starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AppendedText {
    /// The name of the file, without its folder.
    pub name: String,
    pub text: String,
}

impl Plan {
    /// Returns the limits of a whole thread of this plan. In a chat, these are the limits of the session.
    pub fn thread_limits(&self) -> PlanLimits {
        self.session_limits.unwrap_or(self.limits)
    }

    /// Returns the limits of a run or, in a chat, of one prompt. The limits of a prompt are at most those of the
    /// session.
    pub(crate) fn prompt_limits(&self) -> PlanLimits {
        let mut limits = Limits::from(self.limits);
        if let Some(session) = self.session_limits.map(Limits::from) {
            for name in LimitName::OF_SESSION {
                limits.lower_to(name, session.number(name));
            }
        }
        limits.into()
    }

    /// Returns true if a thread of this plan may start another thread: by a grant, or by a hook that runs a directive or
    /// a tool for threads.
    pub fn can_start_threads(&self) -> bool {
        let runs = |hook: &PlannedHook| match hook.action.call() {
            Some(HookCall::Execute { item_type, item_id, .. }) => {
                item_type == ItemKind::Directive || item_id.starts_with("rye/agent/threads/") || item_id.contains('$')
            }
            Some(HookCall::Fetch { .. } | HookCall::Sign { .. }) | None => false,
        };
        self.capabilities.grants.iter().any(|grant| may_spawn(&grant.pattern)) || self.hooks.iter().any(runs)
    }
}

/// The kind of thread that a plan is compiled for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanMode {
    /// A single prompt, from the start of the thread to its end.
    #[default]
    Run,
    /// Any number of prompts; between two of them the thread is idle.
    Chat,
}

impl PlanMode {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field by reference")]
    fn is_run(&self) -> bool {
        *self == Self::Run
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainLink {
    pub id: ItemId,
    pub space: Space,
    pub sha256: String,
}

/// A tool as it is offered to the model. The texts of the tool are in an `Arc`, because all requests of all threads of
/// the plan contain them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PaletteTool {
    /// The flattened name, by which the model calls the tool: `rye_file_system_read` for `rye/file-system/read`.
    pub name: Arc<str>,
    pub primary: PalettePrimary,
    /// The item behind the name; `None` for the primaries and `rye_directive_return`.
    pub item_id: Option<ItemId>,
    pub description: Arc<str>,
    /// JSON Schema of the arguments.
    pub schema: Arc<Value>,
    /// True if calls of this tool in one reply may run in parallel. The tool declares this value
    /// (`ToolSpec::parallel`); for `rye_fetch` it is true.
    pub parallel: bool,
    /// The calls that may be repeated if a crash left their outcome unknown. The tool declares them
    /// (`ToolSpec::idempotent`); for `rye_fetch`, these are all calls.
    pub idempotent: Idempotence,
    /// Tokens of schema and description as they are sent, counted for the plan's model.
    pub tokens: u64,
    pub bytes: u64,
}

/// The primary that a palette entry calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PalettePrimary {
    Execute,
    Fetch,
    Sign,
    /// The tool `rye_directive_return`.
    Return,
}

/// A granted tool that was left out of the palette.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedTool {
    pub item_id: ItemId,
    /// Estimated tokens of the tool's definition: characters / 4 for every model, because `tool_preload.max_tokens`
    /// limits the sum of these estimates.
    pub tokens: u64,
    pub bytes: u64,
    pub because: String,
    /// True if every call of the tool is refused, for the reason in `because`. False if the tool is only left out of
    /// the palette, so that `rye_execute` can still call it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
}

/// The directive's own capability set, before it is combined with the spawn chain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Capabilities {
    /// False if no link of the chain has `<permissions>`: a child then inherits its parent's set, and a root has no
    /// capability.
    pub declared: bool,
    /// The directive that declares the `<permissions>`; `None` if no directive of the chain does.
    pub from: Option<ItemId>,
    pub grants: Vec<Grant>,
    /// The author's reason for each acknowledged risk tier, from `<acknowledge>`.
    pub acknowledged: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Grant {
    /// The pattern with its prefix: `rye.execute.tool.rye.file-system.*`.
    pub pattern: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub net: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<String>,
}

impl Grant {
    /// Describes the hosts and folders of the grant, for humans: `net a.test; write out/`. Empty if there are none.
    pub fn needs(&self) -> String {
        let named = |word: &str, list: &[String]| (!list.is_empty()).then(|| format!("{word} {}", list.join(", ")));
        let needs = [named("net", &self.net), named("write", &self.write)];
        needs.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

/// The limits of a thread, resolved by `semantics::limits`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanLimits {
    pub turns: u64,
    pub tokens: u64,
    /// Maximum spend, in nano-dollars.
    pub spend: u64,
    pub spawns: u64,
    pub depth: u64,
    pub duration_seconds: u64,
    /// Maximum output tokens of one request.
    pub output: u64,
}

impl PlanLimits {
    /// The value of a limit without a bound: the largest integer that JSON represents exactly.
    pub const UNLIMITED: u64 = u64::MAX >> 11;

    /// Returns the names of the limits that are higher than in `most`, in the order of `LimitName::ALL`.
    pub fn exceeding(&self, most: &Self) -> impl Iterator<Item = LimitName> + use<> {
        let (limits, most) = (Limits::from(*self), Limits::from(*most));
        LimitName::ALL.into_iter().filter(move |name| limits.number(*name) > most.number(*name))
    }
}

impl From<Limits> for PlanLimits {
    fn from(limits: Limits) -> Self {
        let Limits { turns, tokens, spend, spawns, depth, duration_seconds, output } = limits;
        Self { turns, tokens, spend: spend.to_u64(), spawns, depth, duration_seconds, output }
    }
}

impl From<PlanLimits> for Limits {
    fn from(limits: PlanLimits) -> Self {
        let PlanLimits { turns, tokens, spend, spawns, depth, duration_seconds, output } = limits;
        Self { turns, tokens, spend: Nanos::from_u64(spend), spawns, depth, duration_seconds, output }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interface {
    pub inputs: IndexMap<String, InterfaceField>,
    pub outputs: IndexMap<String, InterfaceField>,
    /// The inputs of the compilation, with defaults filled in.
    pub values: serde_json::Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InterfaceField {
    pub kind: FieldType,
    pub required: bool,
    pub default: Option<Value>,
    pub choices: Vec<Value>,
    pub description: String,
    /// The types of the values inside an array or an object.
    #[serde(default, skip_serializing_if = "ValueParts::is_empty")]
    pub parts: ValueParts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldType {
    String,
    Integer,
    Number,
    Boolean,
    Array,
    Object,
}

impl FieldType {
    /// All types, in the order of the language reference.
    pub const ALL: [Self; 6] = [Self::String, Self::Integer, Self::Number, Self::Boolean, Self::Array, Self::Object];

    /// Returns the [`Type`] of the values that a field of this type accepts.
    pub(crate) const fn value_type(self) -> Type {
        match self {
            Self::String => Type::String,
            Self::Integer => Type::Integer,
            Self::Number => Type::Number,
            Self::Boolean => Type::Boolean,
            Self::Array => Type::Array,
            Self::Object => Type::Object,
        }
    }

    /// Returns the name of the type in declarations, which is also its name in JSON Schema.
    pub const fn name(self) -> &'static str {
        self.value_type().name()
    }

    /// Returns the type with its article, for messages.
    pub const fn phrase(self) -> &'static str {
        match self {
            Self::String => "a string",
            Self::Integer => "an integer",
            Self::Number => "a number",
            Self::Boolean => "a boolean",
            Self::Array => "an array",
            Self::Object => "an object",
        }
    }

    /// Returns true if a value has this type. `2.0` is an integer, because numbers compare by value.
    pub fn fits(self, value: &Value) -> bool {
        Type::of(value).fits(self.value_type())
    }
}

/// The resolved model: everything a request and its price need.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedModel {
    /// The provider file's id: `anthropic`.
    pub provider: String,
    pub wire: String,
    /// The provider's own model id.
    pub id: String,
    /// The tier or model id that was requested; the default if none was requested.
    pub requested: String,
    /// The fallback if the provider refuses or no longer offers this model. A fallback has no fallback of its own.
    pub fallback: Option<Box<PlannedModel>>,
    /// Size of the context window in tokens.
    pub context_window: u64,
    pub max_output: u64,
    /// The prices; `None` if the provider file names none.
    pub prices: Option<Prices>,
    /// The tokenizer for estimates before the provider reports usage.
    #[serde(default, skip_serializing_if = "Tokenizer::is_estimate")]
    pub counted_by: Tokenizer,
    /// The exact tokenizer that the provider file names; `None` if the file names none. A build without this tokenizer
    /// counts with the estimate in `counted_by` instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<Tokenizer>,
    pub tool_use: ToolUse,
    /// True if messages may contain images.
    #[serde(default = "default_true", skip_serializing_if = "Clone::clone")]
    pub images: bool,
    #[serde(default, skip_serializing_if = "Sampling::is_empty")]
    pub sampling: Sampling,
    /// The provider file, merged, without its models: base URL and variable names, never a key.
    pub connection: Value,
    /// The keys of `connection` that a file of the project set. If there are any, the API key is sent only after `rye
    /// trust`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from_project: Vec<String>,
}

fn default_true() -> bool {
    true
}

/// Sampling parameters declared by the directive. Undeclared parameters are not sent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<serde_json::Number>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<serde_json::Number>,
}

impl Sampling {
    pub fn is_empty(&self) -> bool {
        self.temperature.is_none() && self.top_p.is_none()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolUse {
    Native,
    TextParsed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NudgePolicy {
    Auto,
    Never,
    Always,
}

/// The source of every limit, capability, hook, layer and tool. The sources are stored separately from the plan, and
/// the plan's hash does not cover them. Examples of keys: `limit.spend`, `capability.<pattern>`, `hook.<id>`,
/// `layer.<id>`, `tool.<name>`, `model`, `input.<name>`, `output.<name>`. For each directive of the `extends` chain,
/// `link.<directive>` is its file, and `extends.<directive>` is its `extends` attribute, if it has one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Origins(pub IndexMap<String, Origin>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SourcePlace {
    /// Path of the file, in the form that diagnostics show.
    pub file: String,
    /// The line number, from 1.
    pub line: u32,
    /// The column, from 1, in characters.
    pub column: u32,
}

impl Origins {
    pub fn get(&self, key: &str) -> Option<&Origin> {
        self.0.get(key)
    }

    pub fn insert(&mut self, key: impl Into<String>, origin: Origin) {
        self.0.insert(key.into(), origin);
    }
}

impl std::fmt::Display for SourcePlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl Plan {
    /// Serializes the plan as JSON: fields in the order of their declaration in the struct, and entries of maps in a
    /// fixed order. Equal plans therefore have equal bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// Returns the SHA-256 of [`Plan::to_bytes`] in lowercase hex.
    pub fn id(&self) -> Result<String, serde_json::Error> {
        Ok(hex(&Sha256::digest(self.to_bytes()?)))
    }
}
