//! Ledger operations of a thread, and updates of the thread's row in the registry. Each step makes one registry commit.
//! A repeated operation has no further effect, because the ledger recognizes its key, which is computed from the
//! transcript.

use std::sync::{Arc, MutexGuard, PoisonError};

use crate::machine::effect::ContinuationRow;
use rye_compiler::plan::Plan;
use rye_compiler::semantics::ledger::{LedgerReply, Refusal};

use super::EmbeddedDriver;
use crate::error::DriveError;
use crate::event::{Ended, Settled};
use crate::machine::{Fact, Reservation};
use crate::store::{Change, ChangeResult, LedgerStep, ObjectId, RowUpdate, StoreError, ThreadRow};
use crate::thread::{Cost, Status};
use crate::thread_count::blocking;
use crate::thread_id::ThreadId;

/// Maximum age, in milliseconds, of the registry row of a session that serves an MCP client. An older row is updated
/// even if the client keeps making calls.
const MAX_ROW_AGE_MS: i64 = 1_000;
/// Time in milliseconds without a call of an MCP client, after which the registry row of the client's session is
/// updated.
const IDLE_BEFORE_ROW_UPDATE_MS: u64 = 100;

impl EmbeddedDriver {
    /// Books the settlements of earlier attempts and reserves the worst case of the next, in one commit. Returns
    /// `Fact::NotReserved` with the remaining money if the reservation is refused. Reserves nothing if an MCP client
    /// makes the calls in place of a model.
    pub(super) async fn reserve(&self, reservation: &Reservation, cost: Cost, synced: u64) -> Result<Fact, DriveError> {
        if self.is_unbilled(reservation) {
            let last = {
                let mut update = self.row_update();
                update.1 = true;
                update.0
            };
            if self.engine.clock.now().saturating_sub(last) >= MAX_ROW_AGE_MS {
                self.update_row(cost, synced).await?;
            }
            return Ok(Fact::Reserved);
        }
        let mut changes = self.settlements(&reservation.settle);
        let Reservation { turn, attempt, amount, raised, .. } = *reservation;
        let status = Some(Status::Running);
        let (cost, synced, spawns) = (Some(cost), Some(synced), raised.map(|limits| limits.spawns));
        changes.push(self.update(RowUpdate { status, cost, synced, spawns, ..RowUpdate::default() }));
        // The raise is applied once; a repeated raise returns the first answer.
        changes.extend(raised.map(|limits| Change::Ledger(LedgerStep::raise(&self.id, limits.spend))));
        changes.push(Change::Ledger(LedgerStep::issue(&self.id, turn, attempt, amount)));
        match self.engine.writer.commit(changes).await?.pop() {
            Some(ChangeResult::Ledger(LedgerReply::Refused { refusal })) => {
                let left = if let Refusal::MoreThanIsLeft { left, .. } = refusal { left.to_u64() } else { 0 };
                Ok(Fact::NotReserved { remaining: left })
            }
            Some(_) | None => Ok(Fact::Reserved),
        }
    }

    /// Returns true if a reservation and its settlements need no ledger. This is so if an MCP client makes the calls in
    /// place of a model and no limit was raised, because such calls cost nothing.
    fn is_unbilled(&self, reservation: &Reservation) -> bool {
        let Reservation { turn: _, attempt: _, amount: _, settle, raised } = reservation;
        raised.is_none() && settle.iter().all(is_free) && self.has_client()
    }

    /// Returns true if the calls of this thread come from an MCP client instead of a model. Connects the provider to
    /// determine this. The next effect needs the connection anyway.
    fn has_client(&self) -> bool {
        let provider = self.connection(false).as_ref();
        provider.is_ok_and(|provider| provider.serves_client(self.plan.directive.as_str()))
    }

    /// Waits for the next call of an MCP client. If no call arrives for [`IDLE_BEFORE_ROW_UPDATE_MS`] and the registry
    /// row of the thread is outdated, updates the row while waiting.
    pub(super) async fn update_row_meanwhile(
        &self,
        mut call: impl Future<Output = Fact> + Unpin,
        cost: Cost,
        synced: u64,
    ) -> Result<Fact, DriveError> {
        if !self.row_update().1 {
            return Ok(call.await);
        }
        tokio::select! {
            biased;
            fact = &mut call => return Ok(fact),
            () = self.engine.clock.elapse(IDLE_BEFORE_ROW_UPDATE_MS) => {}
        }
        Box::pin(self.update_row(cost, synced)).await?;
        Ok(call.await)
    }

    async fn update_row(&self, cost: Cost, synced: u64) -> Result<(), DriveError> {
        let (status, cost, synced) = (Some(Status::Running), Some(cost), Some(synced));
        self.engine
            .writer
            .commit(vec![self.update(RowUpdate { status, cost, synced, ..RowUpdate::default() })])
            .await?;
        *self.row_update() = (self.engine.clock.now(), false);
        Ok(())
    }

    fn row_update(&self) -> MutexGuard<'_, (i64, bool)> {
        self.row_update.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Books open settlements during a long step. Booking a settlement twice has no further effect.
    pub(super) async fn commit_settlements(&self, unsettled: &[Settled]) -> Result<(), DriveError> {
        let changes = self.settlements(unsettled);
        if !changes.is_empty() {
            self.engine.writer.commit(changes).await?;
        }
        Ok(())
    }

    /// Commits the end of the thread: books open settlements, writes the end status and closes the account. The account
    /// of a suspended thread or of a closed session is not closed. A suspended child returns its unused money to its
    /// parent. A closed account still books the cost of children that have not ended.
    ///
    /// The row and the account of a continuation are created in the same commit, so that after a crash either this
    /// thread or the continuation can be resumed.
    pub(super) async fn finish(
        &self,
        settle: &[Settled],
        ended: &Ended,
        synced: u64,
        leaves: Option<Box<ContinuationRow>>,
    ) -> Result<Fact, DriveError> {
        let mut changes = self.settlements(settle);
        let next = match leaves {
            Some(row) => Some((self.engine.allocate(&self.plan).await?, row)),
            None => None,
        };
        let (status, cost) = (Some(ended.status), Some(ended.cost));
        let continued_by = next.as_ref().map(|(next, _)| next.clone());
        changes.push(self.update(RowUpdate {
            status,
            cost,
            continued_by,
            synced: Some(synced),
            ..RowUpdate::default()
        }));
        let mut lists = vec![changes];
        if !ended.status.is_parked() {
            match &next {
                Some((next, row)) => lists.extend(self.continuation(next, row).await?),
                None => lists.push(vec![Change::Ledger(LedgerStep::end(&self.id))]),
            }
        }
        // The parent of a suspended thread keeps running and needs the money that the thread does not use.
        if ended.status == Status::Suspended && self.launch.parent.is_some() {
            lists.push(vec![Change::Ledger(LedgerStep::suspend(&self.id, synced))]);
        }
        self.engine.writer.commit_lists(lists).await?;
        Ok(Fact::Tick)
    }

    /// Returns the changes that close this thread's account and create the row and account of its continuation. The
    /// account of the continuation gets the rest of the reservation. The rest is computed from the ledger, because the
    /// ledger also counts descendants that the transcript of this thread does not record. The reservation is handed
    /// over and not released, because a parent that has ended could not reserve the money again.
    async fn continuation(
        &self,
        next: &ThreadId,
        ContinuationRow { limits, plan_id, withheld }: &ContinuationRow,
    ) -> Result<Vec<Vec<Change>>, DriveError> {
        let id = self.id.clone();
        let row = self.engine.read_registry(move |registry| registry.thread(&id)).await?;
        let mut row = row.ok_or_else(|| StoreError::UnknownThread { thread: self.id.to_string() })?;
        if row.parent.is_none() {
            row.root = next.clone();
        }
        let now = self.engine.clock.now();
        let row = ThreadRow {
            status: Status::Running,
            owner: Some(self.engine.owner.id().clone()),
            continues: Some(self.id.clone()),
            created_at: now,
            updated_at: now,
            plan_id: plan_id.clone().or(row.plan_id.clone()),
            ..ThreadRow { id: next.clone(), continued_by: None, cost: Cost::default(), synced: 0, ..row }
        };
        let most = match plan_id.clone() {
            Some(plan_id) => limits.spend.min(self.spend_limit_of(plan_id).await?.saturating_sub(*withheld)),
            None => limits.spend,
        };
        let put = Change::PutContinuation { thread: self.id.clone(), row: Box::new(row) };
        Ok(vec![vec![Change::Ledger(LedgerStep::hand_off(&self.id, next, most)), put]])
    }

    /// Returns the spend limit, in nano-dollars, of the plan with which a session continues. The account of the
    /// continuation gets at most this amount. With more money, the account would exceed the limit that the transcript
    /// of the continuation records.
    async fn spend_limit_of(&self, plan_id: String) -> Result<u64, DriveError> {
        let engine = Arc::clone(&self.engine);
        blocking(move || {
            let bytes = engine.objects.get(&ObjectId::parse(&plan_id)?)?;
            let plan: Plan = serde_json::from_slice(&bytes).map_err(|error| DriveError::Plan(error.to_string()))?;
            Ok(plan.thread_limits().spend)
        })
        .await
    }

    pub(crate) fn settlements(&self, settle: &[Settled]) -> Vec<Change> {
        if !settle.is_empty() && settle.iter().all(is_free) && self.has_client() {
            return Vec::new();
        }
        let step = |s: &Settled| Change::Ledger(LedgerStep::settle(&self.id, s.turn, s.attempt, s.amount));
        settle.iter().map(step).collect()
    }

    fn update(&self, update: RowUpdate) -> Change {
        Change::Update { thread: self.id.clone(), update: Box::new(update), now: self.engine.clock.now() }
    }
}

fn is_free(settled: &Settled) -> bool {
    settled.amount == 0 && settled.overspent == 0
}
