//! Money and the thread's row: one registry commit a step, each operation under the key its fold gives it.

use rye_compiler::semantics::ledger::{Answer, Refusal};

use super::Embedded;
use crate::driver::DriveError;
use crate::event::{Ended, Settled};
use crate::machine::{Fact, Reservation};
use crate::store::{Answered, Change, LedgerStep, RowUpdate};
use crate::thread::{Cost, Status};

impl Embedded {
    /// Books what earlier attempts came to and sets the worst case of the next aside, in one commit.
    pub(super) async fn reserve(&self, reservation: &Reservation, cost: Cost, synced: u64) -> Result<Fact, DriveError> {
        let mut changes = self.settlements(&reservation.settle);
        let Reservation { turn, attempt, amount, .. } = *reservation;
        let status = Some(Status::Running);
        changes.push(self.update(RowUpdate { status, cost: Some(cost), synced: Some(synced), ..RowUpdate::default() }));
        changes.push(Change::Ledger(LedgerStep::issue(&self.id, turn, attempt, amount)));
        match self.engine.writer.commit(changes).await?.pop() {
            Some(Answered::Ledger(Answer::Refused { refusal })) => {
                let left = if let Refusal::MoreThanIsLeft { left, .. } = refusal { left.to_u64() } else { 0 };
                Ok(Fact::NotReserved { remaining: left })
            }
            Some(_) | None => Ok(Fact::Reserved),
        }
    }

    /// Books what is open while a step takes long; booking it again later changes nothing.
    pub(super) async fn settle_alone(&self, unsettled: &[Settled]) -> Result<(), DriveError> {
        let changes = self.settlements(unsettled);
        if !changes.is_empty() {
            self.engine.writer.commit(changes).await?;
        }
        Ok(())
    }

    /// The end: what is open is booked, the account closed, the row says how it ended.
    pub(super) async fn finish(&self, settle: &[Settled], ended: &Ended, synced: u64) -> Result<Fact, DriveError> {
        let mut changes = self.settlements(settle);
        let (status, cost) = (Some(ended.status), Some(ended.cost));
        changes.push(self.update(RowUpdate { status, cost, synced: Some(synced), ..RowUpdate::default() }));
        changes.push(Change::Ledger(LedgerStep::end(&self.id)));
        self.engine.writer.commit(changes).await?;
        Ok(Fact::Tick)
    }

    pub(crate) fn settlements(&self, settle: &[Settled]) -> Vec<Change> {
        let step = |s: &Settled| Change::Ledger(LedgerStep::settle(&self.id, s.turn, s.attempt, s.amount));
        settle.iter().map(step).collect()
    }

    fn update(&self, update: RowUpdate) -> Change {
        Change::Update { thread: self.id.clone(), update: Box::new(update), now: self.engine.clock.now() }
    }
}
