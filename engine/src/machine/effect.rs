//! Effects: requests of the machine to the driver. An effect is plain data that the machine derives from the state.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rye_compiler::hook::{HookAction, HookCall, HookPoint};
use rye_compiler::plan::{ApprovalOrigin, Plan, PlanLimits};
use rye_compiler::sandbox::is_standard_read_tool;
use rye_grammar::ItemId;
use serde_json::{Map, Value};

use super::gate::{Allowed, Dispatch, GatedCall};
use crate::event::{ChildIntended, Ended, ImpliedRaise, Settled};

#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// No action, because the machine only has events to write. The driver answers with the current time.
    Record,
    Reserve(Reservation),
    CallModel {
        turn: u64,
        attempt: u32,
        /// True if the plan's fallback model is called.
        fallback: bool,
        /// The parameters from which `crate::machine::build_request` builds the request.
        call: ModelCall,
    },
    /// Tool calls of one group, which run at the same time. The driver answers with a signal for each call.
    RunTools(Vec<Allowed<Dispatch>>),
    RunHooks(Box<HookRun>),
    /// A shell command that the user submitted in a chat. `id` is the id of the control message that submitted the
    /// command. The driver runs the command concurrently with the current effect.
    RunCommand {
        id: String,
        call: Box<Allowed<Dispatch>>,
    },
    /// Children to create for one group of calls, which run in parallel. Creating a child again returns the existing
    /// child. The driver answers with one signal for all children.
    Spawn(Vec<Allowed<Box<SpawnChild>>>),
    /// Children to wait for. The driver answers with a signal for each child.
    Await(Vec<AwaitedChild>),
    /// A wait until this time, in milliseconds since 1970.
    Sleep {
        until: i64,
    },
    Ask {
        origin: ApprovalOrigin,
        what: String,
        /// The call to approve; `None` if the request is about a reached limit.
        call: Option<Box<CallToApprove>>,
        /// The raise of the reached limit that an approval implies; `None` if an approval implies no raise.
        raise: Option<ImpliedRaise>,
    },
    /// A wait for the next prompt of a chat. Any control message ends the wait. Before the wait, the driver books the
    /// open settlements.
    Wait,
    /// The end of the thread. The driver books the open settlements and releases the reservation. If `cancel` is given,
    /// the driver also ends the descendants of the thread. `cancel` lists the recorded children. `leaves` holds the
    /// data that the registry needs about the continuation, and is `None` if there is no continuation.
    Done {
        settle: Vec<Settled>,
        ended: Arc<Ended>,
        cancel: Option<Vec<String>>,
        leaves: Option<Box<ContinuationRow>>,
    },
}

/// The data of a continuation that the registry needs before the continuation starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContinuationRow {
    pub limits: PlanLimits,
    /// The id of the continuation's plan; `None` if the continuation has the plan of this thread.
    pub plan_id: Option<String>,
    /// Nano-dollars that are reserved for the children that the continuation takes over. The spend limit of the
    /// continuation contains this amount, but its account does not.
    pub withheld: u64,
}

/// The parameters of a model request that can differ between two attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelCall {
    /// Maximum number of output tokens.
    pub max_output: u64,
    /// True if the call requests a summary of the conversation.
    pub compacts: bool,
}

/// A call that needs an approval.
#[derive(Debug, Clone, PartialEq)]
pub struct CallToApprove {
    pub capability: String,
    /// The tool that the call runs, in this thread or as a child; `None` if the call runs no tool.
    pub tool: Option<ItemId>,
    /// The parameters of the tool; null if the call runs no tool.
    pub parameters: Value,
    /// The arguments of the call, as the model wrote them.
    pub input: Value,
    /// Number of this approval request among the approval requests of the reply, from 1.
    pub number: usize,
    /// Number of all approval requests that the calls of the reply lead to.
    pub count: usize,
}

/// A reservation of the worst-case cost of an attempt, with the settlements of earlier attempts. The driver commits the
/// reservation and the settlements together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    pub turn: u64,
    pub attempt: u32,
    /// The worst case of the attempt, in nano-dollars.
    pub amount: u64,
    pub settle: Vec<Settled>,
    /// The current limits of the thread if a limit was raised since the thread started, else `None`. The driver writes
    /// these limits to the ledger and the registry before it reserves `amount`.
    pub raised: Option<PlanLimits>,
}

/// A request to evaluate the hooks of the hook point `point`. The conditions of the hooks read `facts`.
#[derive(Debug, Clone, PartialEq)]
pub struct HookRun {
    pub point: HookPoint,
    /// The subject of the hooks, depending on the hook point: the index of a call, the id of a message (`resume` for
    /// the message of a resumed thread), or the number of an event that the hooks only observe. `None` at a point
    /// without a subject.
    pub subject: Option<String>,
    pub facts: Map<String, Value>,
    /// Number of the last turn whose reply has arrived; 0 before the first reply.
    pub turn: u64,
    /// The owned time, in milliseconds, that the thread has left until it reaches its duration limit.
    pub remaining_ms: u64,
    /// The values of the thread's store.
    pub store: Arc<BTreeMap<String, Value>>,
    /// Number of hook points that were evaluated before this hook point. A hook run that is repeated after a crash has
    /// the same number.
    pub nth: u64,
    /// Bounds of the directives that the hooks start.
    pub bounds: HookBounds,
    /// The thread's result, at the hook points of its end; `None` at any other point.
    pub ended: Option<Arc<Ended>>,
    /// False at a limit if a handoff would not help, because the continuation would reach the same limit.
    pub can_hand_off: bool,
}

/// Bounds of a directive that a hook starts as a child of the thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookBounds {
    pub limits: PlanLimits,
    /// Number of children that the run, or the current prompt of a chat, has started so far, including the children
    /// that hooks started.
    pub spawned: u64,
    /// Worst-case cost of one more turn of the thread, in nano-dollars. The child cannot reserve this amount. 0 at the
    /// hook points of the thread's end.
    pub turn_reserve: u64,
    /// Settlements that are not in the ledger yet.
    pub unsettled: Vec<Settled>,
    /// Nano-dollars that the current prompt of a chat may still spend; `None` in a run.
    pub prompt_spend: Option<u64>,
}

/// A child to create, and the bounds of its reservation.
#[derive(Debug, Clone, PartialEq)]
pub struct SpawnChild {
    pub child: ChildIntended,
    /// Number of children that the group of calls still has to create, including this child. These children share the
    /// available spend.
    pub siblings: u64,
    /// Worst-case cost of one more turn of the parent, in nano-dollars. The children cannot reserve this amount.
    pub turn_reserve: u64,
    /// Nano-dollars that the current prompt of a chat may still spend; `None` in a run.
    pub prompt_spend: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwaitedChild {
    pub spawn: u64,
    pub thread_id: String,
}

/// The stable name of a step. A repeated run of the same thread produces the same names, so that a driver with a
/// journal recognizes the steps that are already performed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepKey(pub String);

impl fmt::Display for StepKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Effect {
    /// Returns the key of this effect. An effect on several calls or children has the key of the first of them. Where
    /// the effect has no turn, index or id of its own, the key contains `events`, the number of events folded so far.
    pub fn key(&self, events: u64) -> StepKey {
        StepKey(match self {
            Self::Record => format!("record.{events}"),
            Self::Reserve(r) => format!("reserve.{}.{}", r.turn, r.attempt),
            Self::CallModel { turn, attempt, .. } => format!("model.{turn}.{attempt}"),
            Self::RunTools(calls) => {
                calls.first().map_or_else(|| format!("tool.{events}"), |c| format!("tool.{}.{}", c.turn, c.index))
            }
            Self::RunCommand { id, .. } => format!("command.{id}"),
            Self::RunHooks(run) => format!("hooks.{events}.{:?}", run.point),
            Self::Spawn(children) => {
                children.first().map_or_else(|| format!("spawn.{events}"), |c| format!("spawn.{}", c.child.spawn))
            }
            Self::Await(children) => {
                children.first().map_or_else(|| format!("await.{events}"), |c| format!("await.{}", c.spawn))
            }
            Self::Sleep { .. } => format!("sleep.{events}"),
            Self::Ask { .. } => format!("ask.{events}"),
            Self::Wait => format!("wait.{events}"),
            Self::Done { .. } => "done".to_owned(),
        })
    }

    /// Returns true for an effect whose calls only read items, stored results or files of the project. Such an effect
    /// can be repeated after a crash.
    pub(crate) fn only_reads(&self, plan: &Plan) -> bool {
        let reads = |call: &Allowed<Dispatch>| match &call.call {
            GatedCall::Tool { item_id, .. } => is_standard_read_tool(plan, item_id),
            GatedCall::Knowledge { .. } | GatedCall::Fetch(_) => true,
            GatedCall::Sign(_) | GatedCall::Directive(_) => false,
        };
        matches!(self, Self::RunTools(calls) if calls.iter().all(reads))
    }

    /// Returns true if the effect acts outside the thread, so that its intent must be durable first. Hooks without an
    /// execute or sign action have no such effect, because they only read. They run again after a crash.
    pub(crate) fn has_side_effects(&self, plan: &Plan) -> bool {
        match self {
            Self::Record | Self::Sleep { .. } | Self::Await(_) => false,
            Self::RunHooks(run) => {
                let acts = |action: &HookAction| match action.call() {
                    Some(HookCall::Execute { .. } | HookCall::Sign { .. }) => true,
                    Some(HookCall::Fetch { .. }) | None => false,
                };
                // At the end of a thread, the driver writes the export before it runs the hooks. The export is a side
                // effect.
                let is_end = run.ended.is_some();
                is_end || plan.hooks.iter().any(|hook| hook.event == run.point && hook.is_live() && acts(&hook.action))
            }
            Self::Reserve(_)
            | Self::CallModel { .. }
            | Self::RunTools(_)
            | Self::RunCommand { .. }
            | Self::Spawn(_)
            | Self::Ask { .. }
            | Self::Wait
            | Self::Done { .. } => true,
        }
    }
}
