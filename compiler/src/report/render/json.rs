//! The type of `rye plan ID --format json`. Its derived schema documents the fields for programs.

mod call;
mod cost;
mod graph;
mod interface;
mod limits;
mod manifest;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::trust::{SandboxReport, TrustRequirementReport};
use super::view::{self, LayerView, MessageView, PlaceholderView};
use crate::approvals::{ApprovalRequired, HeadlessPolicy};
use crate::compile::{Compilation, Note};
use crate::hook::{PlanVerdict, PlannedHook};
use crate::lower::HookTrace;
use crate::plan::prompt::{LayerKind, RuntimePlaceholder};
use crate::plan::source::SourceReport;
use crate::plan::{DroppedTool, Origin, PaletteTool, PlannedModel};
use crate::report::continuation::ContinuationItem;
use crate::report::provenance::{self, DerivationStep, Omission};
use crate::report::summary::PlanSummary;
use crate::semantics::hook_point;
use crate::semantics::money::Nanos;
pub use call::CallReport;
use cost::per_turn;
pub use cost::{
    AssumptionsReport, CacheStepReport, ForecastReport, PerTurnReport, PrefixReport, RunEstimateReport,
    ThreadBoundReport, TurnBoundsReport, WorstCaseReport,
};
pub use graph::{GraphReport, report_graph};
pub use interface::FieldReport;
pub use limits::LimitReport;

/// A plan with explanations. Money is in dollars. `tokens.estimator` names the token counter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanReport {
    /// SHA-256 of the stored plan.
    pub plan_id: String,
    pub directive: String,
    /// The summary: model, costs, turns, access and the difference from the lock; filled in by the printer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<PlanSummary>,
    /// The parameters of the compilation.
    pub call: CallReport,
    pub description: String,
    /// Directive ids, root first.
    pub chain: Vec<String>,
    /// The hook that set the extends parent of the directive; null if the declared parent applies.
    pub route: Option<String>,
    pub system: SystemReport,
    pub first_message: FirstMessageReport,
    /// The text that `thread_continued` hooks add to the last user message of a continuation.
    pub continued: SystemReport,
    /// The parts of the first request, each with its state after a handoff.
    #[serde(default)]
    pub continuation: Vec<ContinuationItem>,
    pub palette: Vec<ToolReport>,
    pub dropped_tools: Vec<DroppedReport>,
    /// The hooks, in evaluation order.
    pub hooks: Vec<HookReport>,
    /// False if no directive of the extends chain has `<permissions>`. A child thread then has the capabilities of its
    /// parent, and a root thread has none.
    pub permissions_declared: bool,
    /// Parts of the plan that need the user's trust before they take effect.
    #[serde(default, alias = "executes")]
    pub trust_requirements: Vec<TrustRequirementReport>,
    pub capabilities: Vec<CapabilityReport>,
    /// Grants whose calls need approval, because their risk is not acknowledged.
    #[serde(default, alias = "asked")]
    pub approvals_required: Vec<ApprovalRequired>,
    /// The policy for calls that need approval when there is no approver.
    #[serde(default = "policy_of_0_1", alias = "unattended")]
    pub headless_policy: HeadlessPolicy,
    /// True if tool programs run in bubblewrap.
    #[serde(default)]
    pub bubblewrap: bool,
    pub limits: BTreeMap<String, LimitReport>,
    /// The limits of a whole chat, for all of its prompts together; missing for a run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub session_limits: BTreeMap<String, LimitReport>,
    /// The inputs, with the values of this plan.
    #[serde(default)]
    pub inputs: Vec<FieldReport>,
    /// The outputs that the directive declares.
    #[serde(default)]
    pub outputs: Vec<FieldReport>,
    pub model: ModelReport,
    pub graph: GraphReport,
    pub tokens: TokensReport,
    pub cost: ForecastReport,
    /// Items that files declare and the plan omits, each with the reason.
    pub absent: Vec<AbsentReport>,
    /// Every file that was read, and every lookup that found nothing.
    pub manifest: Vec<ReadReport>,
    /// Notes about parts that were omitted or changed: suppressed, shadowed, deduplicated, escaped.
    pub notes: Vec<NoteReport>,
    /// Diagnostics as `rye check --format json` prints them; filled in by the printer.
    pub diagnostics: Vec<Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SystemReport {
    /// The text that is sent, with a marker such as `${thread_id}` for every placeholder.
    pub text: String,
    pub layers: Vec<LayerReport>,
    pub pending: Vec<PendingReport>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FirstMessageReport {
    pub text: String,
    pub before: Vec<LayerReport>,
    pub body: Option<LayerReport>,
    pub after: Vec<LayerReport>,
    pub pending: Vec<PendingReport>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LayerReport {
    /// Id of the knowledge item, of the hook that returned the text, or of the directive (for its body).
    pub id: String,
    pub tokens: u64,
    pub bytes: usize,
    /// Byte offset of the layer in the message's text.
    pub offset: usize,
    /// Cost in each request; null if the model has no price.
    pub cost_per_turn: Option<PerTurnReport>,
    /// The source of the layer as text: `hook ID`, `body`, `palette`, or a directive of the extends chain.
    pub via: String,
    pub source: Option<SourceReport>,
    /// The reasons why the prompt contains the layer, step by step.
    pub reasons: Vec<ReasonReport>,
    /// The hook whose condition decides at run time whether the layer is sent; null if the layer is sent in every run.
    pub depends_on: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PendingReport {
    /// Byte offset of the marker in the message's text.
    pub offset: usize,
    pub bytes: usize,
    /// The path of a fact (`inputs.service`), or `hook ID` for the text of a hook.
    #[serde(alias = "hole")]
    pub placeholder: String,
    /// The text that is sent if the fact is missing.
    pub fallback: Option<String>,
    pub why: String,
}

/// A step of a derivation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReasonReport {
    pub text: String,
    pub source: Option<SourceReport>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AbsentReport {
    /// The reason for the omission: `suppressed`, `shadowed`, `deduplicated`, `condition_false`, `removed`,
    /// `dropped_for_size` or `refused`.
    pub why: String,
    pub id: String,
    pub text: String,
    /// Token estimate, if known.
    pub tokens: Option<u64>,
    pub source: Option<SourceReport>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReadReport {
    /// The kind of the file: `directive`, `knowledge`, `tool`, `config`, `prompt` or `skill`; `context` for a context
    /// file, whose id is its path.
    pub kind: String,
    pub id: String,
    /// The space of the file that was read. If no space has the id, `space` and `sha256` are null.
    pub space: Option<String>,
    pub sha256: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolReport {
    /// The id of the item. For primaries and `rye_directive_return`, the tool name.
    pub id: String,
    pub name: String,
    pub tokens: u64,
    pub bytes: u64,
    /// Cost in each request; null if the model has no price.
    pub cost_per_turn: Option<PerTurnReport>,
    pub via: String,
    pub source: Option<SourceReport>,
    /// The reasons why the palette contains the tool, step by step.
    pub reasons: Vec<ReasonReport>,
    pub description: String,
    /// JSON Schema of the parameters.
    pub schema: Arc<Value>,
    /// The definition in the form of the model's wire. Null if it equals `description` and `schema`, or if the system
    /// prompt contains the definitions.
    #[serde(default)]
    pub sent: Option<SentToolReport>,
    #[serde(default, alias = "wall")]
    pub sandbox: Option<SandboxReport>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SentToolReport {
    pub description: String,
    /// JSON Schema of the parameters; null if the wire sends none for a tool without parameters.
    pub schema: Option<Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DroppedReport {
    pub id: String,
    pub tokens: u64,
    pub bytes: u64,
    pub because: String,
    /// True if every call of the tool is refused; false if `rye_execute` can still call it.
    #[serde(default)]
    pub refused: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HookReport {
    pub id: String,
    pub event: String,
    pub layer: f64,
    pub verdict: VerdictReport,
    pub because: String,
    /// Capability patterns that the hook may use in addition to the thread's own grants.
    pub grants: Vec<String>,
    /// Description of what the hook itself starts or signs, such as a program; null if it starts and signs nothing.
    #[serde(default)]
    pub starts: Option<String>,
    /// True if a run with this hook is refused unless the user trusts the project.
    #[serde(default)]
    pub needs_trust: bool,
    pub source: Option<SourceReport>,
}

/// The verdict before a run: `fires` and `never` are certain; `depends` is decided at run time; `removed` means
/// suppressed, replaced, disabled or shadowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerdictReport {
    Fires,
    Never,
    Depends,
    Removed,
}

impl From<&PlanVerdict> for VerdictReport {
    fn from(verdict: &PlanVerdict) -> Self {
        match verdict {
            PlanVerdict::Fires => Self::Fires,
            PlanVerdict::Never { .. } => Self::Never,
            PlanVerdict::Depends { .. } => Self::Depends,
            PlanVerdict::Removed { .. } => Self::Removed,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CapabilityReport {
    pub pattern: String,
    pub net: Vec<String>,
    pub write: Vec<String>,
    pub via: String,
    pub source: Option<SourceReport>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelReport {
    pub provider: String,
    pub id: String,
    pub wire: String,
    /// The model tier or the model id that the directive or the call requests.
    pub requested: String,
    pub context_window: u64,
    pub max_output: u64,
    /// Prices in dollars per million tokens; null if the provider file names none.
    pub prices: Option<PricesReport>,
    /// The fallback, as `provider/model`; null if the model has none.
    pub fallback: Option<String>,
    pub via: String,
    pub source: Option<SourceReport>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PricesReport {
    pub input: Value,
    pub output: Value,
    pub cache_read: Value,
    pub cache_write: Value,
}

/// Tokens of the first request. A placeholder counts as its marker, such as `${thread_id}`, because a plan does not
/// contain the value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TokensReport {
    /// The token counter: `characters / 4`, or the name of the exact tokenizer.
    pub estimator: String,
    /// The exact tokenizer for the model, if this build of rye lacks it; else null.
    #[serde(default)]
    pub exact: Option<String>,
    pub system: u64,
    pub first_message: u64,
    pub palette: u64,
    /// Tokens of system prompt, first message and palette together.
    pub input: u64,
    /// Upper bound on the input tokens. A run reserves money for this many tokens.
    #[serde(default)]
    pub input_bound: u64,
    /// Maximum output tokens of the request.
    pub output: u64,
    /// Dollars for the input; null if the model has no price.
    pub input_cost: Option<Value>,
    /// Dollars for the input bound and the maximum output: the amount that a run reserves; null if the model has no
    /// price.
    pub worst_case_cost: Option<Value>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NoteReport {
    /// The kind of the note: `suppressed`, `shadowed`, `deduplicated` or `escaped`.
    pub note: String,
    pub id: String,
    pub text: String,
    pub source: Option<SourceReport>,
}

/// Formats an amount of a report for humans: `$0.0000039`.
pub fn dollars(value: &Value) -> String {
    Nanos::from_json(value).map_or_else(|_| value.to_string(), |amount| format!("${amount}"))
}

impl PlanReport {
    /// Adds the summary. Omitted items without a token estimate get the estimate from the summary.
    #[must_use]
    pub fn with_summary(mut self, summary: PlanSummary) -> Self {
        for absent in &mut self.absent {
            absent.tokens = absent.tokens.or_else(|| summary.omitted_tokens.get(&absent.why, &absent.id));
        }
        self.summary = Some(summary);
        self
    }
}

/// Builds the report of a compilation. `diagnostics` are the compilation's diagnostics as JSON, which the caller's
/// printer renders.
pub fn render(compilation: &Compilation, diagnostics: Vec<Value>) -> PlanReport {
    let plan = &compilation.plan;
    let (system, first, continued) = view::view_prompt(plan, &compilation.origins);
    PlanReport {
        plan_id: compilation.plan_id.clone(),
        directive: plan.directive.to_string(),
        summary: None,
        call: CallReport::of(&compilation.request),
        description: plan.description.clone(),
        chain: plan.chain.iter().map(|link| link.id.to_string()).collect(),
        route: plan.route.clone(),
        tokens: report_tokens(compilation, &system, &first),
        cost: ForecastReport::new(
            plan.forecast(&plan.count_viewed_tokens(&system, &first)),
            &plan.cache_map(&compilation.origins, &system, &first),
        ),
        absent: provenance::list_omissions(compilation).iter().map(report_absent).collect(),
        manifest: manifest::reads(plan),
        system: report_message(compilation, system),
        first_message: first_message(compilation, first),
        continued: report_message(compilation, continued),
        continuation: plan.continuation_items(),
        palette: plan.palette.iter().map(|tool| report_tool(compilation, tool)).collect(),
        dropped_tools: plan.dropped_tools.iter().map(report_dropped).collect(),
        hooks: plan.hooks.iter().zip(&compilation.hooks).map(|(h, trace)| report_hook(h, trace)).collect(),
        permissions_declared: plan.capabilities.declared,
        trust_requirements: compilation.trust_requirements.iter().map(TrustRequirementReport::from).collect(),
        capabilities: report_capabilities(compilation),
        approvals_required: compilation.approvals_required.clone(),
        headless_policy: compilation.headless_policy,
        bubblewrap: compilation.bubblewrap,
        limits: limits::report_limits(compilation),
        session_limits: limits::report_session_limits(compilation),
        inputs: interface::fields(compilation, "input"),
        outputs: interface::fields(compilation, "output"),
        model: report_model(compilation, &plan.model),
        graph: report_graph(compilation),
        notes: compilation.notes.iter().map(report_note).collect(),
        diagnostics,
    }
}

/// Returns the headless policy of reports of version 0.1, which have no field for the policy. Without an approver,
/// version 0.1 allowed calls that need approval.
fn policy_of_0_1() -> HeadlessPolicy {
    HeadlessPolicy::Allow
}

fn report_source(origin: Option<&Origin>) -> Option<SourceReport> {
    origin?.place.as_ref().map(SourceReport::from)
}

/// Returns the origin of a part of the plan: the reason why the plan contains the part, and the source line that
/// declares the part. `key` is the key of the part in the origins, such as `limit.spend`. If no origin is recorded, the
/// reason is empty and the line is `None`.
fn report_origin(compilation: &Compilation, key: &str) -> (String, Option<SourceReport>) {
    let origin = compilation.origins.get(key);
    (origin.map(|o| o.cause.to_string()).unwrap_or_default(), report_source(origin))
}

fn report_message(compilation: &Compilation, view: MessageView) -> SystemReport {
    SystemReport {
        text: view.text,
        layers: view.layers.iter().map(|view| report_layer(compilation, view)).collect(),
        pending: view.pending.iter().map(report_pending).collect(),
    }
}

fn first_message(compilation: &Compilation, view: MessageView) -> FirstMessageReport {
    let layer = |view: &LayerView| report_layer(compilation, view);
    let at = view.layers.iter().position(|l| l.layer.kind == LayerKind::Body).unwrap_or(view.layers.len());
    FirstMessageReport {
        before: view.layers.iter().take(at).map(layer).collect(),
        body: view.layers.get(at).map(layer),
        after: view.layers.iter().skip(at + 1).map(layer).collect(),
        pending: view.pending.iter().map(report_pending).collect(),
        text: view.text,
    }
}

fn report_layer(compilation: &Compilation, view: &LayerView) -> LayerReport {
    LayerReport {
        cost_per_turn: per_turn(&compilation.plan.model, view.tokens),
        reasons: provenance::derive_layer(compilation, &view.layer).iter().map(report_reason).collect(),
        id: view.layer.id.clone(),
        tokens: view.tokens,
        bytes: view.bytes,
        offset: view.offset,
        via: view.via.clone(),
        source: view.place.as_ref().map(SourceReport::from),
        depends_on: view.layer.hook.clone().filter(|_| view.layer.depends),
    }
}

fn report_pending(placeholder: &PlaceholderView) -> PendingReport {
    let (name, fallback) = match &placeholder.pending {
        RuntimePlaceholder::Fact { path, fallback } => (path.clone(), fallback.clone()),
        RuntimePlaceholder::Hook { id } => (format!("hook {id}"), None),
    };
    PendingReport {
        offset: placeholder.offset,
        bytes: placeholder.bytes,
        placeholder: name,
        fallback,
        why: placeholder.why.clone(),
    }
}

fn report_tool(compilation: &Compilation, tool: &PaletteTool) -> ToolReport {
    let key = format!("tool.{}", tool.name);
    let (via, source) = report_origin(compilation, &key);
    ToolReport {
        cost_per_turn: per_turn(&compilation.plan.model, tool.tokens),
        reasons: provenance::derive(compilation, &key).iter().map(report_reason).collect(),
        id: tool.item_id.as_ref().map_or_else(|| tool.name.to_string(), ToString::to_string),
        name: tool.name.to_string(),
        tokens: tool.tokens,
        bytes: tool.bytes,
        via,
        source,
        description: tool.description.to_string(),
        schema: Arc::clone(&tool.schema),
        sent: sent_tool(&compilation.plan.model, tool),
        sandbox: compilation.sandboxes.iter().find(|one| *one.name == *tool.name).map(SandboxReport::from),
    }
}

fn sent_tool(model: &PlannedModel, tool: &PaletteTool) -> Option<SentToolReport> {
    let sent = model.wire_tool(tool);
    // Compares texts, because JSON values are equal even if the order of their keys differs.
    let is_as_written = sent.text() == format!("{}{}", tool.schema, tool.description);
    let (description, schema) = (sent.description.into_owned(), sent.parameters.map(Cow::into_owned));
    (!is_as_written).then_some(SentToolReport { description, schema })
}

fn report_dropped(tool: &DroppedTool) -> DroppedReport {
    let DroppedTool { item_id, tokens, bytes, because, refused } = tool.clone();
    DroppedReport { id: item_id.to_string(), tokens, bytes, because, refused }
}

fn report_hook(hook: &PlannedHook, trace: &HookTrace) -> HookReport {
    HookReport {
        id: hook.id.clone(),
        event: hook_point::row_of(hook.event).name.to_owned(),
        layer: hook.layer,
        verdict: (&hook.verdict).into(),
        because: trace.because.clone(),
        grants: hook.grants.clone(),
        starts: crate::trust::describe_start(&hook.action, &[]),
        needs_trust: crate::trust::needs_trust(hook),
        source: trace.place.as_ref().map(SourceReport::from),
    }
}

fn report_capabilities(compilation: &Compilation) -> Vec<CapabilityReport> {
    let report = |grant: &crate::plan::Grant| {
        let (via, source) = report_origin(compilation, &format!("capability.{}", grant.pattern));
        CapabilityReport {
            pattern: grant.pattern.clone(),
            net: grant.net.clone(),
            write: grant.write.clone(),
            via,
            source,
        }
    };
    compilation.plan.capabilities.grants.iter().map(report).collect()
}

fn report_model(compilation: &Compilation, model: &PlannedModel) -> ModelReport {
    let (via, source) = report_origin(compilation, "model");
    let dollars = |nanos: u64| Nanos::from_u64(nanos).to_json();
    ModelReport {
        provider: model.provider.clone(),
        id: model.id.clone(),
        wire: model.wire.clone(),
        requested: model.requested.clone(),
        context_window: model.context_window,
        max_output: model.max_output,
        prices: model.prices.map(|p| PricesReport {
            input: dollars(p.input),
            output: dollars(p.output),
            cache_read: dollars(p.cache_read),
            cache_write: dollars(p.cache_write),
        }),
        fallback: model.fallback.as_ref().map(|f| format!("{}/{}", f.provider, f.id)),
        via,
        source,
    }
}

fn report_tokens(compilation: &Compilation, system: &MessageView, first: &MessageView) -> TokensReport {
    let plan = &compilation.plan;
    let weight = plan.count_viewed_tokens(system, first);
    let priced = plan.model.prices;
    let tokens = crate::plan::Tokens { input: weight.input(), ..Default::default() };
    TokensReport {
        estimator: plan.model.counted_by.to_string(),
        exact: plan.model.missing_tokenizer().map(|tokenizer| tokenizer.to_string()),
        system: weight.system,
        first_message: weight.first_message,
        palette: weight.palette,
        input: weight.input(),
        input_bound: weight.input_bound,
        output: weight.output,
        input_cost: priced.and_then(|p| p.cost(&tokens)).map(Nanos::to_json),
        worst_case_cost: priced.map(|p| p.worst_case(weight.input_bound, weight.output).to_json()),
    }
}

fn report_reason(reason: &DerivationStep) -> ReasonReport {
    ReasonReport { text: reason.text.clone(), source: reason.place.as_ref().map(SourceReport::from) }
}

fn report_absent(absent: &Omission) -> AbsentReport {
    AbsentReport {
        why: absent.why.as_str().to_owned(),
        id: absent.id.clone(),
        text: absent.text.clone(),
        tokens: absent.tokens,
        source: absent.place.as_ref().map(SourceReport::from),
    }
}

fn report_note(note: &Note) -> NoteReport {
    NoteReport {
        note: note.kind().to_owned(),
        id: note.id().to_owned(),
        text: note.to_string(),
        source: report_source(note.origin()),
    }
}
