//! Registry rows: the state of threads that can be shown without reading transcripts.

use serde::{Deserialize, Serialize};

use crate::store::owner::OwnerId;
use crate::thread::{Cost, Status};
use crate::thread_id::ThreadId;

/// The registry's row of a thread. Times are in milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadRow {
    pub id: ThreadId,
    pub directive: String,
    /// The tool that this thread executes as an asynchronous tool call; `None` if the thread runs a directive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    pub status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ThreadId>,
    /// Spawn number of the thread; `None` if the thread has no parent. Calls of the parent use numbers from 1. `rye run
    /// --parent` and hooks use higher ranges (see `FIRST_OUTSIDE_SPAWN` and `FIRST_HOOK_SPAWN`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spawn: Option<u64>,
    /// Maximum number of descendants of this thread; `None` if they are not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spawns: Option<u64>,
    /// Number of descendants of this thread so far.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spawned: u64,
    /// Root of the thread's tree: the thread itself if it has no parent.
    pub root: ThreadId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_id: Option<String>,
    pub created_at: i64,
    pub updated_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<OwnerId>,
    #[serde(default)]
    pub cost: Cost,
    /// Number of transcript events known to be durable when the row was written.
    #[serde(default)]
    pub synced: u64,
    /// The thread that this thread continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<ThreadId>,
    /// The thread that continues this thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continued_by: Option<ThreadId>,
}

impl ThreadRow {
    /// Creates the row of a new root thread; `now` is in milliseconds since 1970.
    pub fn new(id: ThreadId, directive: impl Into<String>, now: i64) -> Self {
        Self {
            root: id.clone(),
            id,
            directive: directive.into(),
            tool: None,
            status: Status::Created,
            parent: None,
            spawn: None,
            spawns: None,
            spawned: 0,
            plan_id: None,
            created_at: now,
            updated_at: now,
            owner: None,
            cost: Cost::default(),
            synced: 0,
            continues: None,
            continued_by: None,
        }
    }
}

/// Changed fields of a row; `None` leaves a field unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowUpdate {
    pub status: Option<Status>,
    pub plan_id: Option<String>,
    pub cost: Option<Cost>,
    pub synced: Option<u64>,
    pub continued_by: Option<ThreadId>,
    /// Maximum number of descendants of this thread.
    pub spawns: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl RowUpdate {
    /// Applies the changes; `now` is in milliseconds since 1970.
    pub fn apply(&self, row: &mut ThreadRow, now: i64) {
        row.updated_at = now;
        if let Some(status) = self.status {
            row.status = status;
        }
        if let Some(plan_id) = &self.plan_id {
            row.plan_id = Some(plan_id.clone());
        }
        if let Some(cost) = self.cost {
            row.cost = cost;
        }
        if let Some(synced) = self.synced {
            row.synced = synced;
        }
        if let Some(spawns) = self.spawns {
            row.spawns = Some(spawns);
        }
        if let Some(thread) = &self.continued_by {
            row.continued_by = Some(thread.clone());
        }
    }
}

/// State of a thread's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    Over,
    /// A live process holds the owner's lock.
    Alive,
    /// The thread has not ended and has no live owner, so that it can be recovered.
    Orphaned,
}
