//! Checks of a transcript. The checks run before the thread of the transcript is resumed, recovered, forked or
//! continued, and before its limits and grants bound a child. A project and its transcripts can be of unknown origin.
//! Signatures identify the author of a transcript, and the claims of a transcript about its thread must match the
//! thread's plan and spawn chain.

use crate::store::spilled::{restore_event, take_event};
use rye_compiler::compile::{CompileRequest, compile};
use rye_compiler::plan::{Grant, Plan, PlanLimits};

use std::sync::{MutexGuard, PoisonError};

use super::{MAX_CHAIN_THREADS, stored_plan};
use crate::context::EngineContext;
use crate::context::verified_transcript::InspectedTranscript;
pub(crate) use crate::context::verified_transcript::{TranscriptTrust, VerifiedTranscript};
use crate::error::DriveError;
use crate::event::{Approval, Continues, ControlMessage, Event, Opened, ThreadHead, ThreadOrigin};
use crate::keys::{KeyFolder, TrustStore};
use crate::machine::ThreadState;
use crate::parent_thread::ParentThread;
use crate::store::{StoreError, TranscriptContents, layout, mailbox, transcript};
use crate::thread::FIRST_HOOK_SPAWN;
use crate::thread_id::ThreadId;
use crate::threads::verify::resume::{SignatureHolder, list_signers};

/// The statements of a transcript about the start of its thread. They are checked against the plan of the thread and
/// against other threads.
struct ThreadClaims {
    opened: Opened,
    plan_id: String,
    plan: Plan,
    continues: Option<Continues>,
}

impl EngineContext {
    /// Reads a transcript and verifies its last seal and `thread.json`; `None` if nothing was recorded. Changes
    /// nothing. Blocks.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] and [`StoreError::Altered`]: a signature does not verify, or the files contradict each
    /// other. [`DriveError::Unverified`]: no key of this user signed the transcript, and the user did not accept the
    /// transcript.
    pub(crate) fn read_verified(&self, thread: &ThreadId) -> Result<Option<VerifiedTranscript>, DriveError> {
        let synced = self.writer.registry().thread(thread)?.map_or(0, |row| row.synced);
        let mut reading = match transcript::read(&*self.disk, thread, synced) {
            Err(StoreError::UnknownThread { .. }) if synced == 0 => return Ok(None),
            Err(StoreError::UnknownThread { .. }) => {
                let reason = format!("the transcript is missing, but {synced} of its events were synced");
                return Err(StoreError::Damaged { path: layout::transcript(thread), line: 1, reason }.into());
            }
            read => read?,
        };
        let sealed = reading.cut_unsealed(synced);
        let whole = |record| take_event(record, thread, &self.objects);
        let events: Vec<Event> = reading.records.iter_mut().map(whole).collect::<Result<_, _>>()?;
        let transcript_trust = if reading.records.is_empty() {
            TranscriptTrust::Signed
        } else {
            let trust = match self.keys.as_ref().map(KeyFolder::trust_store).transpose() {
                Ok(trust) => trust.unwrap_or_default(),
                Err(error) => {
                    self.require_acceptance(thread, format!("your keys cannot be read: {error}"))?;
                    TrustStore::default()
                }
            };
            let transcript_trust = self.transcript_trust(thread, &trust, &reading, &events)?;
            debug_assert!(
                sealed || transcript_trust == TranscriptTrust::Accepted,
                "a thread with unsealed lines must have an owner process"
            );
            transcript_trust
        };
        Ok(Some(VerifiedTranscript { reading, events, synced, transcript_trust }))
    }

    fn transcript_trust(
        &self,
        thread: &ThreadId,
        trust: &TrustStore,
        reading: &TranscriptContents,
        events: &[Event],
    ) -> Result<TranscriptTrust, DriveError> {
        let found = list_signers(&self.disk, thread, trust, reading, events)?;
        let mut transcript_trust = TranscriptTrust::Signed;
        let snapshot = found.snapshot.map(|signer| (signer, "`thread.json`"));
        for (signer, what) in [(found.transcript, "the transcript")].into_iter().chain(snapshot) {
            let reason = match signer {
                SignatureHolder::Trusted(key) if key == self.signer.key_name() => continue,
                SignatureHolder::Temporary if self.signer.is_keyless() => {
                    transcript_trust = TranscriptTrust::Bounded;
                    continue;
                }
                SignatureHolder::Trusted(key) => {
                    format!("{what} is signed with the trusted key `{key}`, which is not your own")
                }
                SignatureHolder::Unknown(key) => format!("{what} is signed with the key `{key}`, which is not yours"),
                SignatureHolder::Temporary => format!("{what} is signed with a temporary key, not with yours"),
                SignatureHolder::Unsigned { line } => format!("{what} has no signature from line {line} on"),
            };
            self.require_acceptance(thread, reason)?;
            return Ok(TranscriptTrust::Accepted);
        }
        if transcript_trust == TranscriptTrust::Bounded && self.accepts_unverified() {
            transcript_trust = TranscriptTrust::Accepted;
        }
        Ok(transcript_trust)
    }

    /// Returns an error with `reason` if the user has not accepted the unverified transcript of this thread.
    fn require_acceptance(&self, thread: &ThreadId, reason: String) -> Result<(), DriveError> {
        if self.accepts_unverified() {
            return Ok(());
        }
        Err(DriveError::Unverified { thread: thread.to_string(), reason })
    }

    /// Checks the start of a thread against its plan, the thread that it continues and its spawn chain. Blocks.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`]: the transcript claims more than the plan and the spawn chain grant.
    /// [`DriveError::Unverified`]: only the user can decide whether to accept the transcript.
    pub(crate) fn check_launch(
        &self,
        thread: &ThreadId,
        events: &[Event],
        plan: &Plan,
        transcript_trust: TranscriptTrust,
    ) -> Result<(), DriveError> {
        let head = ThreadHead::of(events);
        let (Some(opened), Some(plan_id)) = (head.opened, head.plan_id) else {
            return Err(invalid_claim(thread, "it does not start with the events `opened` and `plan_bound`"));
        };
        let launched = ThreadClaims {
            opened: opened.clone(),
            plan_id: plan_id.to_owned(),
            plan: plan.clone(),
            continues: head.continues.cloned(),
        };
        check_own(thread, &launched)?;
        let here = self.project.display().to_string();
        if opened.project_path != here {
            let reason = format!("it was written for the project `{}`", opened.project_path);
            self.require_acceptance(thread, reason)?;
        }
        match transcript_trust {
            // Only processes of this user can have written a transcript that the user's key signed.
            TranscriptTrust::Signed => Ok(()),
            TranscriptTrust::Accepted | TranscriptTrust::Bounded => {
                self.check_lineage(thread, launched, transcript_trust)
            }
        }
    }

    /// Checks the recorded start of a thread (`ThreadClaims`) against the thread that it continues and against its
    /// parent. Then checks the start of the continued thread in the same way, and so on up to the root of the tree.
    /// After a thread that continues no other thread, or continues a session with another plan, its parent is checked
    /// next.
    fn check_lineage(
        &self,
        thread: &ThreadId,
        launched: ThreadClaims,
        transcript_trust: TranscriptTrust,
    ) -> Result<(), DriveError> {
        let (mut thread, mut now) = (thread.clone(), launched);
        for _ in 0..MAX_CHAIN_THREADS {
            check_own(&thread, &now)?;
            let parent = now.opened.parent.as_ref().map(|link| self.read_head(&link.thread_id)).transpose()?;
            let before = now.continues.as_ref().map(|continues| self.read_head(&continues.thread)).transpose()?;
            if let Some((_, before)) = before.as_ref().filter(|_| now.opened.origin != ThreadOrigin::Replan) {
                check_continued(&thread, &now, before, parent.as_ref().map(|(_, parent)| parent))?;
                if transcript_trust == TranscriptTrust::Bounded
                    && let Some(limit) = now.plan.limits.exceeding(&before.plan.limits).next()
                {
                    let reason = format!(
                        "its limit `{limit}` is higher than in the thread that it continues, and it is not signed \
                         with a permanent key"
                    );
                    self.require_acceptance(&thread, reason)?;
                }
            }
            if let Some((_, parent)) = &parent {
                check_child(&thread, &now, parent, before.is_some())?;
            }
            let before = before.filter(|_| now.opened.origin != ThreadOrigin::Replan);
            let Some((id, next)) = before.or(parent) else {
                return match transcript_trust {
                    TranscriptTrust::Signed | TranscriptTrust::Accepted => Ok(()),
                    TranscriptTrust::Bounded => self.check_declared(&thread, &now.plan),
                };
            };
            (thread, now) = (id, next);
        }
        Err(invalid_claim(&thread, "the chain of parents and continued threads of this thread is too long"))
    }

    /// Returns the id of another thread of this project, and the claims that its transcript makes about its start. Only
    /// the first lines of the transcript are read.
    fn read_head(&self, thread: &str) -> Result<(ThreadId, ThreadClaims), DriveError> {
        let id = ThreadId::parse(thread).map_err(|invalid| DriveError::Plan(invalid.reason))?;
        let reading = transcript::read_head(&*self.disk, &id)?;
        let whole = |record| restore_event(record, &id, &self.objects);
        let events: Vec<Event> = reading.records.iter().take(3).map(whole).collect::<Result<_, _>>()?;
        let head = ThreadHead::of(&events);
        let (Some(opened), Some(plan_id)) = (head.opened, head.plan_id) else {
            return Err(invalid_claim(&id, "it does not start with the events `opened` and `plan_bound`"));
        };
        let plan = stored_plan(self, plan_id)?;
        let (opened, plan_id, continues) = (opened.clone(), plan_id.to_owned(), head.continues.cloned());
        Ok((id, ThreadClaims { opened, plan_id, plan, continues }))
    }

    /// Checks that the stored plan of an unverified root thread grants and acknowledges no more than its directive
    /// currently declares. Otherwise, the user must accept the transcript.
    fn check_declared(&self, thread: &ThreadId, plan: &Plan) -> Result<(), DriveError> {
        let world = (self.world)().map_err(DriveError::Plan)?;
        let mut request = CompileRequest::new(plan.directive.clone()).with_inputs(plan.interface.values.clone());
        request.mode = plan.mode;
        let Some(now) = compile(&*world, &request).value else {
            return self.require_acceptance(thread, format!("`{}` no longer compiles", plan.directive));
        };
        let declared = &now.plan.capabilities;
        let wider = plan.capabilities.grants.iter().find(|grant| !declared.grants.contains(grant));
        if let Some(grant) = wider {
            let reason = format!("its plan grants `{}`, which `{}` no longer declares", grant.pattern, plan.directive);
            return self.require_acceptance(thread, reason);
        }
        let settled = |(tier, _): &(&String, &String)| !declared.acknowledged.contains_key(*tier);
        if let Some((tier, _)) = plan.capabilities.acknowledged.iter().find(settled) {
            let reason =
                format!("its plan acknowledges the risk `{tier}`, which `{}` no longer acknowledges", plan.directive);
            return self.require_acceptance(thread, reason);
        }
        Ok(())
    }

    /// Checks the state of a thread before the thread is recovered. The check passes if the user's own key signed
    /// the transcript, or if the user has accepted the transcript. Otherwise, the check fails if the state gives the
    /// thread more freedom than its plan:
    ///
    /// - a limit is higher than in the plan,
    /// - a call that has not run is approved,
    /// - the thread was started without an approver, but this process has one,
    /// - a control message waits that does more than stop the thread.
    pub(crate) fn check_state(
        &self,
        thread: &ThreadId,
        state: &ThreadState,
        plan: &Plan,
        transcript_trust: TranscriptTrust,
    ) -> Result<(), DriveError> {
        match transcript_trust {
            TranscriptTrust::Signed | TranscriptTrust::Accepted => return Ok(()),
            TranscriptTrust::Bounded => {}
        }
        if let Some(limit) = state.thread_limits.exceeding(&plan.thread_limits()).next() {
            let reason = format!(
                "its limit `{limit}` is higher than in its plan, and the raise is not signed with a permanent key"
            );
            return self.require_acceptance(thread, reason);
        }
        let pending = state
            .calls
            .list
            .iter()
            .find(|call| call.answer.is_some_and(Approval::is_approved) && call.result.is_none());
        if let Some(call) = pending {
            let reason = format!(
                "the approval of its call of `{}` is not signed with the permanent key of a user",
                call.call.name
            );
            return self.require_acceptance(thread, reason);
        }
        let attended = state.launch.as_ref().is_none_or(|launch| launch.attended);
        if !attended && self.approvals.has_approver() {
            let reason = "the thread was started without a terminal, so it would not ask you for approvals".to_owned();
            return self.require_acceptance(thread, reason);
        }
        // The author of the project may have added the waiting messages. Messages that arrive from now on come from the
        // user's processes.
        let waiting = mailbox::list(&*self.disk, thread)?;
        if let Some(mail) =
            waiting.into_iter().find(|mail| needs_signed_transcript(&ControlMessage::from_file(mail.body.clone())))
        {
            let reason = format!("no key proves the sender of the control message `{}` in the mailbox", mail.id);
            return self.require_acceptance(thread, reason);
        }
        Ok(())
    }

    /// Verifies a thread, and returns its start event and its plan, which bound a child of the thread. `None` if the
    /// transcript records no start or no plan. Blocks.
    pub(crate) fn read_parent(&self, thread: &ThreadId) -> Result<Option<ParentThread>, DriveError> {
        let Some(verified) = self.read_verified(thread)? else { return Ok(None) };
        self.parent_of_verified(thread, &verified)
    }

    /// Verifies a thread before its recovery and returns it as a `ParentThread`; `None` if the transcript is missing or
    /// has no start event or plan yet. Keeps the read transcript, which the recovery then uses. Blocks.
    pub(crate) fn inspect(&self, thread: &ThreadId) -> Result<Option<ParentThread>, DriveError> {
        let length = self.transcript_length(thread)?;
        let Some(verified) = self.read_verified(thread)? else { return Ok(None) };
        let parent = self.parent_of_verified(thread, &verified)?;
        *self.inspected() = Some(InspectedTranscript { thread: thread.clone(), length, verified });
        Ok(parent)
    }

    /// Calls `read` with the events of this thread's transcript if the last inspection read this thread. Otherwise
    /// returns `None`.
    pub(crate) fn read_inspected<T>(&self, thread: &ThreadId, read: impl FnOnce(&[Event]) -> T) -> Option<T> {
        let inspected = self.inspected();
        inspected
            .as_ref()
            .filter(|inspected| inspected.thread == *thread)
            .map(|inspected| read(&inspected.verified.events))
    }

    /// Returns the verified transcript of a thread; `None` if nothing was recorded. If the last inspection read this
    /// thread and the transcript is unchanged since, returns the inspected transcript. Otherwise reads the transcript
    /// again. Blocks.
    pub(crate) fn take_verified(&self, thread: &ThreadId) -> Result<Option<VerifiedTranscript>, DriveError> {
        let inspected = self.inspected().take().filter(|inspected| inspected.thread == *thread);
        if let Some(InspectedTranscript { length, verified, .. }) = inspected {
            let synced = self.writer.registry().thread(thread)?.map_or(0, |row| row.synced);
            if length == self.transcript_length(thread)? && synced == verified.synced {
                return Ok(Some(verified));
            }
        }
        self.read_verified(thread)
    }

    fn transcript_length(&self, thread: &ThreadId) -> Result<u64, DriveError> {
        let path = layout::transcript(thread);
        match self.disk.length(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            length => Ok(length.map_err(StoreError::io("read", &path))?),
        }
    }

    fn inspected(&self) -> MutexGuard<'_, Option<InspectedTranscript>> {
        self.inspected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn parent_of_verified(
        &self,
        thread: &ThreadId,
        verified: &VerifiedTranscript,
    ) -> Result<Option<ParentThread>, DriveError> {
        let head = ThreadHead::of(&verified.events);
        let (Some(launch), Some(plan_id)) = (head.opened, head.plan_id) else { return Ok(None) };
        let plan = stored_plan(self, plan_id)?;
        self.check_launch(thread, &verified.events, &plan, verified.transcript_trust)?;
        Ok(Some(ParentThread { id: thread.clone(), launch: launch.clone(), plan }))
    }
}

fn needs_signed_transcript(message: &ControlMessage) -> bool {
    match message {
        ControlMessage::Cancel
        | ControlMessage::Kill
        | ControlMessage::Interrupt
        | ControlMessage::Close
        | ControlMessage::Retract { .. }
        | ControlMessage::Name { .. }
        | ControlMessage::Unreadable { .. } => false,
        ControlMessage::Approve { .. }
        | ControlMessage::Raise { .. }
        | ControlMessage::Steer { .. }
        | ControlMessage::FollowUp { .. }
        | ControlMessage::Submit { .. }
        | ControlMessage::Shell { .. }
        | ControlMessage::Compact { .. }
        | ControlMessage::Replan { .. }
        | ControlMessage::Mode { .. }
        | ControlMessage::Fork { .. }
        | ControlMessage::Handoff => true,
    }
}

/// Checks the claims of a transcript about its own thread, without reading other threads.
fn check_own(thread: &ThreadId, ThreadClaims { opened, plan, continues, .. }: &ThreadClaims) -> Result<(), DriveError> {
    if opened.thread_id != thread.as_str() {
        return Err(invalid_claim(thread, &format!("it is the transcript of `{}`", opened.thread_id)));
    }
    if opened.directive != plan.directive.as_str() {
        return Err(invalid_claim(
            thread,
            &format!("its directive is `{}`, but its plan is for `{}`", opened.directive, plan.directive),
        ));
    }
    if opened.parent.is_none() && opened.root != thread.as_str() {
        let reason = format!("its root is `{}`, but a thread without a parent is its own root", opened.root);
        return Err(invalid_claim(thread, &reason));
    }
    let is_linked = matches!(opened.origin, ThreadOrigin::Resume | ThreadOrigin::Handoff | ThreadOrigin::Fork);
    // `is_linked` does not contain `Replan`, because a thread with another plan has the grants and limits of that plan.
    if continues.is_some() && !is_linked && opened.origin != ThreadOrigin::Replan {
        let reason = "it continues another thread, but its origin is not a resume, handoff, fork or replan";
        return Err(invalid_claim(thread, reason));
    }
    if opened.parent.is_some() || is_linked {
        return Ok(());
    }
    let own = opened.grants.first().filter(|_| opened.grants.len() == 1);
    if own != Some(&plan.capabilities.grants) {
        let wider = own.into_iter().flatten().find(|grant| !plan.capabilities.grants.contains(grant));
        let what = wider.map_or_else(String::new, |grant| format!(": `{}`", grant.pattern));
        return Err(invalid_claim(thread, &format!("its grants differ from the grants of its plan{what}")));
    }
    match opened.limits.exceeding(&plan.thread_limits()).next() {
        Some(limit) => Err(invalid_claim(thread, &format!("its limit `{limit}` is higher than in its plan"))),
        None => Ok(()),
    }
}

/// Checks that a thread agrees with the thread `before` that it continues. The inputs must be equal, and the plans may
/// differ only in the model and the limits. The grant sets must be those of `before`. If the thread has another parent
/// than `before`, the grant sets of this parent must follow. The limits must not exceed the limits of the plan, except
/// after a handoff.
fn check_continued(
    thread: &ThreadId,
    now: &ThreadClaims,
    before: &ThreadClaims,
    parent: Option<&ThreadClaims>,
) -> Result<(), DriveError> {
    // A resume may name another model and other limits.
    let (model, limits) = (before.plan.model.clone(), before.plan.limits);
    let same_plan = now.plan_id == before.plan_id || Plan { model, limits, ..now.plan.clone() } == before.plan;
    if !same_plan || now.opened.inputs != before.opened.inputs {
        return Err(invalid_claim(thread, "its plan or its inputs differ from those of the thread that it continues"));
    }
    let rest = now.opened.grants.strip_prefix(before.opened.grants.as_slice());
    let of_parent = parent.map_or(&[][..], |parent| parent.opened.grants.as_slice());
    let keeps = now.opened.parent == before.opened.parent || now.opened.parent.is_none();
    if rest.is_none_or(|rest| !(rest.is_empty() && keeps || rest == of_parent)) {
        return Err(invalid_claim(thread, "its grants differ from the grants of the thread that it continues"));
    }
    if now.opened.origin != ThreadOrigin::Handoff
        && let Some(limit) = now.opened.limits.exceeding(&now.plan.thread_limits()).next()
    {
        return Err(invalid_claim(thread, &format!("its limit `{limit}` is higher than in its plan")));
    }
    Ok(())
}

/// Checks that a child belongs to the tree of its parent, and that its limits and grants lie within those of the
/// parent.
fn check_child(
    thread: &ThreadId,
    now: &ThreadClaims,
    parent: &ThreadClaims,
    continues: bool,
) -> Result<(), DriveError> {
    let (opened, above) = (&now.opened, &parent.opened);
    if opened.root != above.root || opened.ceiling != Some(above.limits) {
        let reason = "its root is not its parent's root, or its ceiling is not equal to its parent's limits";
        return Err(invalid_claim(thread, reason));
    }
    let most = PlanLimits { depth: above.limits.depth.saturating_sub(1), output: u64::MAX, ..above.limits };
    if opened.call.is_none()
        && opened.origin != ThreadOrigin::Handoff
        && let Some(limit) = opened.limits.exceeding(&most).next()
    {
        return Err(invalid_claim(thread, &format!("its limit `{limit}` is higher than its parent allows")));
    }
    if continues {
        return Ok(());
    }
    if opened.call.is_some() && parent.plan.for_call().id().ok().as_deref() != Some(now.plan_id.as_str()) {
        let reason = "it runs a tool call of its parent, but not with the plan that its parent has for calls";
        return Err(invalid_claim(thread, reason));
    }
    let declares = now.plan.capabilities.declared && opened.call.is_none();
    let (own, inherited) = opened.grants.split_at_checked(usize::from(declares)).unwrap_or_default();
    let hooks = opened.parent.as_ref().is_some_and(|link| link.spawn >= FIRST_HOOK_SPAWN);
    let by_hook = |grant: &Grant| {
        hooks && parent.plan.hooks.iter().any(|hook| hook.is_live() && hook.grants.contains(&grant.pattern))
    };
    // If a prompt narrows the grants of the parent, the child inherits one more grant set than the parent has. The
    // additional set can only deny more.
    let narrows = inherited.len() == above.grants.len().saturating_add(1);
    let inherited = inherited.get(usize::from(narrows)..).unwrap_or_default();
    let within = |(set, of): (&Vec<Grant>, &Vec<Grant>)| set.iter().all(|grant| of.contains(grant) || by_hook(grant));
    let is_bounded = inherited.len() == above.grants.len()
        && inherited.iter().zip(&above.grants).all(within)
        && own.iter().all(|set| *set == now.plan.capabilities.grants);
    if is_bounded {
        Ok(())
    } else {
        Err(invalid_claim(thread, "its grants differ from those of its plan or its parent"))
    }
}

/// Returns the error for a transcript with a false, excessive or missing statement about its thread. The error names
/// line 1 of the transcript, because the transcript starts with these statements.
fn invalid_claim(thread: &ThreadId, reason: &str) -> DriveError {
    StoreError::Damaged { path: layout::transcript(thread), line: 1, reason: reason.to_owned() }.into()
}
