//! Thread ownership: acquire, release, finalize. After this process has acquired the lease of a thread, it runs the
//! thread, releases the lease or finalizes the thread. This process never keeps the lease of a thread that it does not
//! run.

use std::sync::Arc;

use crate::context::EngineContext;
use crate::error::DriveError;
use crate::event::{Ended, EventBody};
use crate::live::EventSink;
use crate::machine::{ThreadState, apply};
use crate::session::verified::VerifiedTranscript;
use crate::store::transcript::ChainHash;
use crate::store::{Change, ChangeResult, LedgerStep, RowUpdate, StoreError, Transcript};
use crate::thread::{RunError, Status};
use crate::thread_count::blocking;
use crate::thread_id::ThreadId;

impl EngineContext {
    /// Acquires the lease of an unfinished thread, a suspended thread or a closed session. Returns the status that the
    /// thread had before.
    ///
    /// # Errors
    /// [`StoreError::Owned`]: a live process holds the lease, or a task of this process has ended the thread meanwhile.
    pub(super) async fn acquire(&self, thread: &ThreadId) -> Result<Status, DriveError> {
        let unknown = || StoreError::UnknownThread { thread: thread.to_string() };
        let id = thread.clone();
        let row = self.read_registry(move |registry| registry.thread(&id)).await?.ok_or_else(unknown)?;
        let now = self.clock.now();
        let update = Box::new(RowUpdate { status: Some(Status::Running), ..RowUpdate::default() });
        let mut own = vec![
            Change::Own { thread: thread.clone(), owner: self.owner.id().clone(), now },
            Change::Update { thread: thread.clone(), update, now },
        ];
        if row.status == Status::Suspended && row.parent.is_some() {
            // The parent may have spent the reserved money meanwhile. The thread continues nevertheless: a call with an
            // answered approval request runs, and the ledger refuses the next model call.
            own.push(Change::Ledger(LedgerStep::reopen(thread, row.synced)));
        }
        match self.writer.commit(own).await?.into_iter().next() {
            Some(ChangeResult::OwnedBy(owner)) => {
                let disk = Arc::clone(&self.disk);
                let info = blocking(move || Ok(crate::store::owner::read_owner_info(&*disk, &owner)?)).await?;
                let pid = info.map_or(0, |info| info.pid);
                Err(StoreError::Owned { thread: thread.to_string(), pid }.into())
            }
            Some(ChangeResult::HasEnded) => {
                Err(StoreError::Owned { thread: thread.to_string(), pid: std::process::id() }.into())
            }
            Some(ChangeResult::NoThread(_)) => Err(unknown().into()),
            Some(_) | None => Ok(row.status),
        }
    }

    /// Releases the lease of a thread that this process has acquired but does not run, so that any process can recover
    /// the thread. `was` is the status before the acquisition. Errors are only logged, because the caller already has
    /// an error to return.
    pub(super) async fn release(&self, thread: &ThreadId, was: Option<Status>) {
        let (owner, now) = (self.owner.id().clone(), self.clock.now());
        let back = Change::Disown { thread: thread.clone(), owner, status: was, now };
        if let Err(error) = self.writer.commit(vec![back]).await {
            tracing::debug!(%thread, %error, "the lease is released when this process ends");
        }
    }

    /// Finalizes the registry row and the account of a thread that never started or cannot be recovered. Leaves the
    /// transcript unchanged.
    pub(super) async fn finalize_row(&self, thread: &ThreadId, status: Status) -> Result<(), DriveError> {
        let of = thread.clone();
        let row = self.read_registry(move |registry| registry.thread(&of)).await?;
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

    /// Finalizes a thread that must end but cannot be recovered: ends its descendants, appends `ended` to the
    /// transcript if possible, and finalizes the row. Reservations of pending attempts count as spent.
    pub(super) async fn finalize(
        self: &Arc<Self>,
        thread: &ThreadId,
        status: Status,
        why: &DriveError,
        sink: &Arc<EventSink>,
    ) -> Result<(), DriveError> {
        self.acquire(thread).await?;
        self.end_descendants(thread, status, sink).await?;
        let (engine, id, message) = (Arc::clone(self), thread.clone(), why.to_string());
        let written = blocking(move || engine.write_end(&id, status, message)).await;
        if let Err(error) = written {
            // If the transcript cannot be extended, the row alone holds the end status.
            tracing::debug!(%thread, %error, "the transcript stays unchanged");
        }
        self.finalize_row(thread, status).await
    }

    /// Appends the event `ended` to the transcript of a thread, with totals computed from the earlier events. Does
    /// nothing if the transcript contains no event or already ends with `ended`.
    fn write_end(&self, thread: &ThreadId, status: Status, message: String) -> Result<(), DriveError> {
        // A signature confirms all lines before it, so a transcript that fails verification is not extended.
        let Some(VerifiedTranscript { reading, events, synced, .. }) = self.read_verified(thread)? else {
            return Ok(());
        };
        let mut state = ThreadState::new();
        for event in &events {
            apply(&mut state, event);
        }
        if matches!(events.last().map(|event| &event.body), None | Some(EventBody::Ended(_))) {
            return Ok(());
        }
        let error = Some(RunError { code: "unrecoverable".into(), message });
        let ended = Ended {
            status,
            result: None,
            outputs: None,
            missing: Vec::new(),
            stop_reason: state.stop_reason.clone(),
            unread: state.conversation.unread.names(),
            error,
            cost: state.cost,
        };
        let seal = |seq: u64, link: ChainHash| self.signer.seal_line(thread, seq, link);
        let mut transcript = Transcript::open_read(Arc::clone(&self.disk), thread, &reading, synced)?;
        transcript.append_sealed(&[EventBody::Ended(Arc::new(ended))], self.clock.now(), Some(&seal))?;
        transcript.sync()?;
        Ok(())
    }
}
