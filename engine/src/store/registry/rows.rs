//! The row of a thread: what is shown of it without reading its transcript.

use serde::{Deserialize, Serialize};

use crate::store::owner::OwnerId;
use crate::thread::{Cost, Status};
use crate::thread_id::ThreadId;

/// What the registry knows of a thread. Times are in milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadRow {
    pub id: ThreadId,
    pub directive: String,
    /// The tool that it is a run of, which `directive` did not wait for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    pub status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ThreadId>,
    /// The parent's n-th child, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spawn: Option<u64>,
    /// Threads that may be spawned below it in all, and those that were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spawns: Option<u64>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spawned: u64,
    /// The root of its tree: itself unless it has a parent.
    pub root: ThreadId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_id: Option<String>,
    pub created_at: i64,
    pub updated_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<OwnerId>,
    #[serde(default)]
    pub cost: Cost,
    /// How many events of its transcript were known to be on the disk when the row was written.
    #[serde(default)]
    pub synced: u64,
    /// The thread it goes on from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<ThreadId>,
    /// The thread that goes on from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continued_by: Option<ThreadId>,
}

impl ThreadRow {
    /// The row of a new root thread.
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

/// Fields of a row that change; what is `None` stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowUpdate {
    pub status: Option<Status>,
    pub plan_id: Option<String>,
    pub cost: Option<Cost>,
    pub synced: Option<u64>,
    pub continued_by: Option<ThreadId>,
    /// The limit of threads below it.
    pub spawns: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl RowUpdate {
    /// Makes the changes, at a time in milliseconds since 1970.
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

/// Whether a thread is being worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    Over,
    /// Its owner's lock is held.
    Alive,
    /// It is not over and nobody works on it: it can be recovered.
    Orphaned,
}
