//! Whose a thread is: taken for this process, given back where it cannot be gone on with, closed where it never will be.
//! A thread that somebody has taken is either worked on or one of these: it never stays taken and stands still.

use std::sync::Arc;

use super::blocking;
use crate::driver::DriveError;
use crate::engine::Inner;
use crate::event::{Ended, EventBody};
use crate::machine::{State, apply};
use crate::session::verified::VerifiedTranscript;
use crate::store::transcript::Hash;
use crate::store::{Answered, Change, LedgerStep, RowUpdate, StoreError, Transcript};
use crate::thread::{RunError, Status};
use crate::thread_id::ThreadId;

impl Inner {
    /// Makes this process the owner of a thread that is not over, or suspended; answers what it was.
    ///
    /// # Errors
    /// [`StoreError::Owned`] where another process that lives has it.
    pub(super) async fn claim(&self, thread: &ThreadId) -> Result<Status, DriveError> {
        let unknown = || StoreError::UnknownThread { thread: thread.to_string() };
        let id = thread.clone();
        let row = self.read(move |registry| registry.thread(&id)).await?.ok_or_else(unknown)?;
        let now = self.clock.now();
        let update = Box::new(RowUpdate { status: Some(Status::Running), ..RowUpdate::default() });
        let own = vec![
            Change::Own { thread: thread.clone(), owner: self.owner.id().clone(), now },
            Change::Update { thread: thread.clone(), update, now },
        ];
        match self.writer.commit(own).await?.into_iter().next() {
            Some(Answered::OwnedBy(owner)) => {
                let disk = Arc::clone(&self.disk);
                let info = blocking(move || Ok(crate::store::owner::info(&*disk, &owner)?)).await?;
                let pid = info.map_or(0, |info| info.pid);
                Err(StoreError::Owned { thread: thread.to_string(), pid }.into())
            }
            Some(Answered::NoThread(_)) => Err(unknown().into()),
            Some(_) | None => Ok(row.status),
        }
    }

    /// Gives a thread back that this process has and does not work on: whoever looks sees that nobody does, and anybody can take
    /// it up. `was`: what it was before it was claimed. Whoever calls this has an error to tell, which this one never replaces.
    pub(super) async fn give_up(&self, thread: &ThreadId, was: Option<Status>) {
        let (owner, now) = (self.owner.id().clone(), self.clock.now());
        let back = Change::Disown { thread: thread.clone(), owner, status: was, now };
        if let Err(error) = self.writer.commit(vec![back]).await {
            tracing::debug!(%thread, %error, "it is given back when this process ends");
        }
    }

    /// Ends a thread by its row alone, with its account: one that never began, or that cannot be taken up.
    pub(super) async fn bury(&self, thread: &ThreadId, status: Status) -> Result<(), DriveError> {
        let of = thread.clone();
        let row = self.read(move |registry| registry.thread(&of)).await?;
        let update = RowUpdate { status: Some(status), ..RowUpdate::default() };
        let now = self.clock.now();
        let buried = Change::Update { thread: thread.clone(), update: Box::new(update), now };
        let mut lists = vec![vec![buried], vec![Change::Ledger(LedgerStep::end(thread))]];
        if let Some(before) = row.and_then(|row| row.continues) {
            lists.push(vec![Change::Unlink { thread: before, next: thread.clone(), now }]);
        }
        self.writer.commit_lists(lists).await?;
        Ok(())
    }

    /// Ends a thread that was to end and cannot be taken up: in its record, where that can be written, and in its row. What was
    /// set aside for attempts under way counts as spent.
    pub(super) async fn close(
        self: &Arc<Self>,
        thread: &ThreadId,
        status: Status,
        why: &DriveError,
    ) -> Result<(), DriveError> {
        self.claim(thread).await?;
        let (engine, id, message) = (Arc::clone(self), thread.clone(), why.to_string());
        let written = blocking(move || engine.write_end(&id, status, message)).await;
        if let Err(error) = written {
            // A record that cannot be read cannot be ended either: its row says how it ended.
            tracing::debug!(%thread, %error, "its record stays as it is");
        }
        self.bury(thread, status).await
    }

    /// The last line of a record, from its own events alone.
    fn write_end(&self, thread: &ThreadId, status: Status, message: String) -> Result<(), DriveError> {
        // What this process signs, it vouches for: nothing is added to a record that it does not accept.
        let Some(VerifiedTranscript { reading, events, synced, .. }) = self.verified(thread)? else { return Ok(()) };
        let mut state = State::new();
        for event in &events {
            apply(&mut state, event);
        }
        if matches!(events.last().map(|event| &event.body), None | Some(EventBody::Ended(_))) {
            return Ok(());
        }
        let error = Some(RunError { code: "cannot_go_on".into(), message });
        let ended = Ended { status, result: None, outputs: None, missing: Vec::new(), error, cost: state.cost };
        let seal = |seq: u64, link: Hash| self.sealer.line(thread, seq, link);
        let mut transcript = Transcript::open_read(Arc::clone(&self.disk), thread, &reading, synced)?;
        transcript.append_sealed(&[EventBody::Ended(Box::new(ended))], self.clock.now(), Some(&seal))?;
        transcript.sync()?;
        Ok(())
    }
}
