//! Recovery of interrupted threads: the transcript is folded into a state, and the machine continues from it.

use crate::store::spilled::take_event;
use crate::store::thread_files::remove_unfinished;
use std::sync::Arc;

use super::continuation::PriorOwner;
use super::{MAX_CHAIN_THREADS, stored_plan};
use crate::context::{EngineContext, RunningThread, ThreadHandle};
use crate::driver::DrivenThread;
use crate::error::DriveError;
use crate::error::EngineError;
use crate::event::{ControlMessage, Event, ThreadHead, ThreadOrigin};
use crate::journal::Journal;
use crate::live;
use crate::live::EventSink;
use crate::machine::retained_messages::InheritedMessages;
use crate::machine::{Fact, Signal, ThreadState, apply};
use crate::session::verified::VerifiedTranscript;
use crate::store::uuid::new_uuid_v7;
use crate::store::{self, StoreError, ThreadRow, Transcript, layout, mailbox, transcript};
use crate::thread::Status;
use crate::thread_count::blocking;
use crate::thread_id::ThreadId;

/// The part of a thread that another thread continues: the events up to the point from which the other thread starts.
struct ContinuedThread {
    events: Vec<Event>,
    /// Id of the plan with which a handoff starts the other thread; `None` if the other thread is a resume, fork or
    /// replan.
    handoff_plan: Option<String>,
}

/// Returns the state that results from folding `events`. The thread starts with the messages `inherited`.
fn replay(inherited: InheritedMessages, events: &[Event]) -> ThreadState {
    let mut state = ThreadState::inheriting(inherited);
    for event in events {
        apply(&mut state, event);
    }
    state
}

impl EngineContext {
    /// Delivers the given control messages to a thread, and recovers it. The thread must be running, suspended or a
    /// closed session. Fails if the thread has ended. The recovery runs in a task of its own. The task continues if the
    /// caller is dropped, so every acquired lease belongs to a thread that runs or is released again.
    pub(crate) async fn recover_root(
        self: &Arc<Self>,
        thread: &ThreadId,
        messages: Vec<ControlMessage>,
    ) -> Result<ThreadHandle, EngineError> {
        let (engine, thread, recovering) = (Arc::clone(self), thread.clone(), self.await_child_guard());
        let recovery = tokio::spawn(async move {
            let _recovering = recovering;
            engine.recover_last(&thread, messages).await
        });
        recovery.await.map_err(DriveError::from)?
    }

    /// Recovers the last thread of a continuation chain. If the future of the caller can be dropped, the caller must
    /// run this function in a task of its own.
    async fn recover_last(
        self: &Arc<Self>,
        thread: &ThreadId,
        messages: Vec<ControlMessage>,
    ) -> Result<ThreadHandle, EngineError> {
        let row = self.last_row(thread).await?;
        let thread = &row.id;
        if row.status.has_ended() && !row.status.is_parked() {
            return Err(EngineError::Over { thread: thread.to_string() });
        }
        let end = messages.iter().find_map(ControlMessage::end_status);
        if end.is_none()
            && let Some((ancestor, status)) = self.stopped_ancestor(&row).await?
        {
            return Err(EngineError::AncestorStopped { thread: thread.clone(), ancestor, status });
        }
        let (sink, events) = live::event_channel();
        let sink = Arc::new(sink);
        match (self.recover(thread, Arc::clone(&sink), messages).await, end) {
            (Ok(Some(running)), _) => Ok(ThreadHandle::new(thread.clone(), events, running)),
            (Ok(None), _) => Err(EngineError::NeverStarted { thread: thread.to_string() }),
            (Err(error), Some(status)) if error.is_transcript_fault() => {
                self.finalize(thread, status, &error, &sink).await?;
                Err(EngineError::Closed { thread: thread.to_string(), why: error.to_string() })
            }
            (Err(error), _) => Err(error.into()),
        }
    }

    /// Returns the row of a thread. If a handoff continued the thread, returns the row of the thread after the last
    /// handoff instead.
    async fn last_row(&self, thread: &ThreadId) -> Result<ThreadRow, DriveError> {
        let mut next = thread.clone();
        for _ in 0..MAX_CHAIN_THREADS {
            let of = next.clone();
            let row = self.read_registry(move |registry| registry.thread(&of)).await?;
            let Some(row) = row else { return Err(StoreError::UnknownThread { thread: next.to_string() }.into()) };
            match &row.continued_by {
                Some(by) if row.status == Status::Continued => next = by.clone(),
                Some(_) | None => return Ok(row),
            }
        }
        Err(DriveError::Plan(format!(
            "more than {MAX_CHAIN_THREADS} threads continue `{thread}`, or the threads form a cycle"
        )))
    }

    /// Acquires the lease of a thread and runs the thread; `None` if the thread has no transcript and cannot be
    /// started. If the recovery fails, releases the lease and restores the status.
    ///
    /// # Errors
    ///
    /// [`StoreError::Owned`]: another process or task works on the thread.
    pub(crate) async fn recover(
        self: &Arc<Self>,
        thread: &ThreadId,
        sink: Arc<EventSink>,
        messages: Vec<ControlMessage>,
    ) -> Result<Option<RunningThread>, DriveError> {
        let Some(_taking) = self.reserve_recovery(thread) else {
            return Err(StoreError::Owned { thread: thread.to_string(), pid: std::process::id() }.into());
        };
        let was = self.acquire(thread).await?;
        let recovered = Box::pin(self.recover_leased(thread, sink, messages)).await;
        if recovered.is_err() {
            self.release(thread, Some(was)).await;
        }
        recovered
    }

    /// Recovers a thread whose lease this process holds; `None` if the thread has no transcript and cannot be started.
    async fn recover_leased(
        self: &Arc<Self>,
        thread: &ThreadId,
        sink: Arc<EventSink>,
        messages: Vec<ControlMessage>,
    ) -> Result<Option<RunningThread>, DriveError> {
        let (engine, id, out) = (Arc::clone(self), thread.clone(), Arc::clone(&sink));
        let fold = move || {
            let folded = engine.fold_transcript(&id, out)?;
            // The partial stream of the interrupted call is discarded.
            store::LiveWriter::new(Arc::clone(&engine.disk), &id).clear()?;
            if let Some((thread, _)) = &folded {
                remove_unfinished(&*engine.disk, &thread.plan.directive, &id)?;
                let launched = thread.state.launch.as_ref().and_then(|launch| launch.grants.first());
                engine.check_recovery(&thread.plan, launched.unwrap_or(&thread.plan.capabilities.grants))?;
            }
            Ok((folded, mailbox::list(&*engine.disk, &id)?))
        };
        let (folded, inbox) = blocking(fold).await?;
        let Some((mut folded, cut_bytes)) = folded else {
            let inbox = inbox.into_iter().map(|mail| ControlMessage::from_file(mail.body));
            return self.restart(thread, sink, messages, inbox.collect()).await;
        };
        let owner = self.owner.id().to_string();
        let at = self.clock.now();
        folded.record_signal(Signal { at, fact: Fact::Recovered { owner, cut_bytes } });
        // The messages in the inbox are delivered now. Their files are removed once the messages are recorded.
        for mail in inbox {
            let message = ControlMessage::from_file(mail.body);
            folded.record_signal(Signal { at, fact: Fact::Mail { id: mail.id, message } });
        }
        let mut unrecorded = Vec::new();
        for message in messages {
            let fact = Fact::Mail { id: new_uuid_v7(at)?, message: message.clone() };
            if folded.record_signal(Signal { at, fact }) == 0 {
                // The thread has already ended, so the message is for its continuation, which the dead process did not
                // start.
                unrecorded.push(message);
            }
        }
        if folded.state.is_idle() {
            // The interrupted prompt no longer pays for the work of its children, so they are cancelled.
            let awaited = folded.state.living_children().filter(|(_, child)| !child.detached);
            let awaited: Vec<String> = awaited.filter_map(|(_, child)| child.thread_id.clone()).collect();
            if !awaited.is_empty() {
                Box::pin(self.cancel_children(thread, &awaited, &sink)).await?;
            }
        }
        // A thread that ends now ends its children itself.
        let is_ending = folded.state.mailbox.killed || folded.state.mailbox.cancelled;
        let children = if is_ending { Vec::new() } else { super::watch_detached::detached_children(&folded.state) };
        let running = self.spawn_task(folded, Arc::clone(&sink), None)?;
        for message in unrecorded {
            running.control.send(message);
        }
        for (spawn, child) in children {
            self.watch_detached(thread, spawn, &child, &sink);
        }
        Ok(Some(running))
    }

    /// Folds a transcript into a thread. Returns the thread, and the number of bytes that were cut from a torn tail.
    /// `None` if there is no transcript, or if the transcript names no plan: the thread then had no effect, and the
    /// transcript is removed.
    fn fold_transcript(
        &self,
        thread: &ThreadId,
        sink: Arc<EventSink>,
    ) -> Result<Option<(DrivenThread, u64)>, DriveError> {
        let Some(verified) = self.take_verified(thread)? else { return Ok(None) };
        let VerifiedTranscript { reading, events, synced, transcript_trust } = verified;
        let Some(plan_id) = ThreadHead::of(&events).plan_id else {
            // A transcript without a plan id is so short that the thread has had no effect.
            let path = layout::transcript(thread);
            self.disk.remove(&path).map_err(StoreError::io("remove", &path))?;
            return Ok(None);
        };
        let plan = Arc::new(stored_plan(self, plan_id)?);
        self.check_launch(thread, &events, &plan, transcript_trust)?;
        self.verify_stored_plan(&plan)?;
        let state = replay(self.history(&events, MAX_CHAIN_THREADS)?, &events);
        self.check_state(thread, &state, &plan, transcript_trust)?;
        let transcript = Transcript::open_read(Arc::clone(&self.disk), thread, &reading, synced)?;
        let (objects, signer) = (Arc::clone(&self.objects), Arc::clone(&self.signer));
        let journal = Journal::new(thread.clone(), transcript, objects, signer, sink, self.thread_count.clone());
        let cut = reading.torn.map_or(0, |torn| torn.bytes);
        Ok(Some((DrivenThread { id: thread.clone(), plan, state, journal, unconfirmed: Vec::new() }, cut)))
    }

    /// Returns the messages that a thread inherits from the thread that it continues. Fails if the chain of continued
    /// threads has more than `most` threads.
    fn history(&self, events: &[Event], most: usize) -> Result<InheritedMessages, DriveError> {
        let mut inherited = InheritedMessages::default();
        // A loop instead of a recursion: a chain can have more threads than a stack has room for.
        for before in self.continued_threads(events, most)?.iter().rev() {
            let state = replay(inherited, &before.events);
            inherited = match &before.handoff_plan {
                Some(plan_id) => InheritedMessages::after_handoff(&stored_plan(self, plan_id)?, &state),
                None => InheritedMessages::whole(&state),
            };
        }
        Ok(inherited)
    }

    /// Reads the chain of threads that a thread continues, newest first. Fails if the chain has more than `most`
    /// threads.
    fn continued_threads(&self, events: &[Event], most: usize) -> Result<Vec<ContinuedThread>, DriveError> {
        let mut chain: Vec<ContinuedThread> = Vec::new();
        loop {
            let head = ThreadHead::of(chain.last().map_or(events, |before| &before.events));
            let Some(continues) = head.continues else { return Ok(chain) };
            let id = ThreadId::parse(&continues.thread).map_err(|e| DriveError::Plan(e.reason))?;
            if chain.len() >= most {
                let reason = format!(
                    "more than {MAX_CHAIN_THREADS} continued threads lead to `{id}`, or the threads form a cycle"
                );
                return Err(DriveError::Plan(reason));
            }
            let is_handoff = head.opened.is_some_and(|opened| opened.origin == ThreadOrigin::Handoff);
            let handoff_plan = is_handoff.then(|| head.plan_id.unwrap_or_default().to_owned());
            let (events, hash) = self.events_until(&id, continues.at_seq)?;
            if hash != continues.at_h {
                let reason = "the line changed after another thread continued it".to_owned();
                let (path, line) = (layout::transcript(&id), continues.at_seq.saturating_add(1));
                return Err(StoreError::Damaged { path, line, reason }.into());
            }
            chain.push(ContinuedThread { events, handoff_plan });
        }
    }

    /// Returns the state of a thread after the event `at_seq`, with the chain hash of this event. Fails if the chain of
    /// this thread and the threads that it continues has more than `most` threads.
    pub(super) fn state_at(
        &self,
        thread: &ThreadId,
        at_seq: u64,
        most: usize,
    ) -> Result<(ThreadState, String), DriveError> {
        let (events, hash) = self.events_until(thread, at_seq)?;
        let inherited = self.history(&events, most.saturating_sub(1))?;
        Ok((replay(inherited, &events), hash))
    }

    /// Returns the events of a thread up to and including the event `at_seq`, with the chain hash of that event. Fails
    /// if the thread has fewer events.
    fn events_until(&self, thread: &ThreadId, at_seq: u64) -> Result<(Vec<Event>, String), DriveError> {
        // These lines were on disk when the other thread recorded them, so none of them is part of a torn tail.
        let mut reading = transcript::read(&*self.disk, thread, at_seq.saturating_add(1))?;
        let count = usize::try_from(at_seq).unwrap_or(usize::MAX).saturating_add(1);
        let found = reading.records.len() as u64;
        let records = reading.records.get_mut(..count).ok_or_else(|| StoreError::Damaged {
            path: layout::transcript(thread),
            line: found.saturating_add(1),
            reason: "the line is missing, but another thread continues this thread from this line or a later line"
                .to_owned(),
        })?;
        let events: Vec<Event> =
            records.iter_mut().map(|record| take_event(record, thread, &self.objects)).collect::<Result<_, _>>()?;
        Ok((events, records.last().map(|record| record.hash.to_string()).unwrap_or_default()))
    }

    /// Handles a thread whose process died before the thread's first event. Such a thread had no effect. Starts the
    /// thread again and returns it if another thread depends on it: if it is a child or the continuation of a handoff.
    /// Finalizes the row of any other thread and returns `None`. Also finalizes a child if a message in `messages` or
    /// `inbox` ends the child.
    async fn restart(
        self: &Arc<Self>,
        thread: &ThreadId,
        sink: Arc<EventSink>,
        messages: Vec<ControlMessage>,
        inbox: Vec<ControlMessage>,
    ) -> Result<Option<RunningThread>, DriveError> {
        let end = messages.iter().chain(&inbox).find_map(ControlMessage::end_status);
        let id = thread.clone();
        let row = self.read_registry(move |registry| registry.thread(&id)).await?;
        let running = match row {
            Some(ThreadRow { continues: Some(before), .. }) => {
                let of = before.clone();
                let row = self.read_registry(move |registry| registry.thread(&of)).await?;
                let handed =
                    row.is_some_and(|row| row.status == Status::Continued && row.continued_by.as_ref() == Some(thread));
                if handed {
                    Some(Box::pin(self.start_handoff(&before, thread, PriorOwner::Unknown, sink)).await?)
                } else {
                    None
                }
            }
            Some(row) if end.is_none() => Box::pin(self.restart_child(row, sink)).await?,
            Some(_) | None => None,
        };
        let Some(running) = running else {
            self.finalize_row(thread, end.unwrap_or(Status::Error)).await?;
            return Ok(None);
        };
        for message in messages {
            running.control.send(message);
        }
        Ok(Some(running))
    }
}
