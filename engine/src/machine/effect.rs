//! What the machine asks for: closed data, derived from the state whenever it is asked.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rye_compiler::hook::HookPoint;
use rye_compiler::plan::{Asked, PlanLimits};
use serde_json::{Map, Value};

use super::gate::{Allowed, Dispatch};
use crate::event::{ChildIntended, Ended, Settled};
use crate::provider::Request;

#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Nothing to do: the machine has decided something and wants it written. Answer with the time.
    Record,
    Reserve(Reservation),
    CallModel {
        turn: u64,
        attempt: u32,
        /// The plan's fallback is asked.
        fallback: bool,
        request: Box<Request>,
    },
    /// Calls of one group; each is answered by a signal of its own.
    RunTools(Vec<Allowed<Dispatch>>),
    RunHooks(Box<HookRun>),
    /// Make the child threads of a group, or find those that these spawns made before; answered by one signal.
    Spawn(Vec<Allowed<Box<SpawnChild>>>),
    /// Wait for children; each is answered by a signal of its own.
    Await(Vec<AwaitedChild>),
    /// Until this time, in milliseconds since 1970.
    Sleep {
        until: i64,
    },
    Ask {
        asked: Asked,
        what: String,
    },
    /// The thread is over: book what is open and give up the reservation. Those below it end with it where there is
    /// `cancel`, which names the children that its record knows; another thread goes on with what it `leaves`.
    Done {
        settle: Vec<Settled>,
        ended: Box<Ended>,
        cancel: Option<Vec<String>>,
        leaves: Option<PlanLimits>,
    },
}

/// The worst case of an attempt, and what earlier attempts came to: one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    pub turn: u64,
    pub attempt: u32,
    /// Nano-dollars.
    pub amount: u64,
    pub settle: Vec<Settled>,
    /// The limits, where some were raised since the thread began: the ledger and the registry are told first.
    pub raised: Option<PlanLimits>,
}

/// The hooks of one point are to be considered with these facts.
#[derive(Debug, Clone, PartialEq)]
pub struct HookRun {
    pub point: HookPoint,
    /// A call id, or an event's number.
    pub subject: Option<String>,
    pub facts: Map<String, Value>,
    /// The turn, and what the thread has left of its duration in milliseconds.
    pub turn: u64,
    pub left_ms: u64,
    /// The thread's own values.
    pub store: Arc<BTreeMap<String, Value>>,
    /// Hook points that were considered before this one: the same run of the same hook is known by it.
    pub nth: u64,
    /// What bounds the directives that the hooks start.
    pub bounds: HookBounds,
    /// What the thread came to, at the points of its end.
    pub ended: Option<Box<Ended>>,
}

/// What a hook that starts a directive has to keep to: a child of a hook is a child of the thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookBounds {
    pub limits: PlanLimits,
    /// Children so far, those of hooks included.
    pub spawned: u64,
    /// Nano-dollars of one more turn of the thread; none where it is over.
    pub keep_back: u64,
    /// What the ledger has not been told yet.
    pub unsettled: Vec<Settled>,
}

/// A child to be made, and what its parent needs for itself.
#[derive(Debug, Clone, PartialEq)]
pub struct SpawnChild {
    pub child: ChildIntended,
    /// Children of the same group that are still to be made, this one included: they share what is left.
    pub sharing: u64,
    /// Nano-dollars of one more turn of the parent: no child gets them.
    pub keep_back: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwaitedChild {
    pub spawn: u64,
    pub thread_id: String,
}

/// The stable name of a step: the same in every run of the same thread, so that a journal can tell what it has done.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepKey(pub String);

impl fmt::Display for StepKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Effect {
    /// The key of this effect; of a group, that of its first member. `events` counts the events folded so far and
    /// tells apart what has no number of its own.
    pub fn key(&self, events: u64) -> StepKey {
        StepKey(match self {
            Self::Record => format!("record.{events}"),
            Self::Reserve(r) => format!("reserve.{}.{}", r.turn, r.attempt),
            Self::CallModel { turn, attempt, .. } => format!("model.{turn}.{attempt}"),
            Self::RunTools(calls) => {
                calls.first().map_or_else(|| format!("tool.{events}"), |c| format!("tool.{}.{}", c.turn, c.index))
            }
            Self::RunHooks(run) => format!("hooks.{events}.{:?}", run.point),
            Self::Spawn(children) => {
                children.first().map_or_else(|| format!("spawn.{events}"), |c| format!("spawn.{}", c.child.spawn))
            }
            Self::Await(children) => {
                children.first().map_or_else(|| format!("await.{events}"), |c| format!("await.{}", c.spawn))
            }
            Self::Sleep { .. } => format!("sleep.{events}"),
            Self::Ask { .. } => format!("ask.{events}"),
            Self::Done { .. } => "done".to_owned(),
        })
    }

    /// Whether performing it changes or tells anything outside the thread, so that its intent must be durable first.
    pub fn has_side_effects(&self) -> bool {
        match self {
            Self::Record | Self::Sleep { .. } | Self::Await(_) => false,
            Self::Reserve(_)
            | Self::CallModel { .. }
            | Self::RunTools(_)
            | Self::RunHooks(_)
            | Self::Spawn(_)
            | Self::Ask { .. }
            | Self::Done { .. } => true,
        }
    }
}
