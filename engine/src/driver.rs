//! The driver acts (`engine.md` 1): it asks the machine what is to be done, writes what was decided before doing it, does
//! it, and hands what came of it back. Nothing is decided here.

pub mod control;
pub mod embedded;
pub mod journal;
pub mod live;
mod stream;

use std::sync::Arc;

use rye_compiler::plan::Plan;
use tokio::task::{JoinError, JoinSet};

use crate::event::{Ended, Letter, Settled};
use crate::machine::{self, Effect, Fact, Signal, State, StepKey};
use crate::provider::BoxFuture;
use crate::store::StoreError;
use crate::thread::{Cost, Status};
use crate::thread_id::ThreadId;
use crate::tool::stop::Halt;
use crate::trust::TrustError;
pub use control::{Control, Post, Sender};
pub use journal::Journal;
pub use live::{Live, LiveEvents, Outlet};
pub use stream::{Piece, Streamed};

/// Something that carries out effects. Object-safe: the embedded one does it in this process, others may journal it as
/// durable operations of their own, by the key.
pub trait Driver: Send + Sync {
    /// Does it, and answers what came of it.
    fn perform(&self, step: Step) -> BoxFuture<'_, Result<Signal, DriveError>>;
    /// Milliseconds since 1970.
    fn now(&self) -> i64;
    /// Hears of every cancellation and kill that is passed on from now on.
    fn halt(&self) -> Halt;
    /// Hands a cancellation or a kill on to children, and to calls under way.
    fn pass_on(&self, children: &[String], letter: &Letter);
    /// Writes what readers find of a thread that is over. Outputs: that they cannot be written stops nothing.
    fn publish<'a>(&'a self, thread: &'a Thread, ended: &'a Ended, paper: Paper) -> BoxFuture<'a, ()>;
    /// Mail from disk was recorded durably: it can go.
    fn consumed<'a>(&'a self, mail: &'a str) -> BoxFuture<'a, ()>;
}

/// What is published of a thread that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paper {
    /// The knowledge that `rye fetch` finds: before the hooks of the end.
    Export,
    /// `thread.json` with the result, after the last event.
    Snapshot,
    Both,
}

/// One effect with its stable name, and what the store keeps of the thread beside it.
#[derive(Debug)]
pub struct Step {
    pub key: StepKey,
    pub effect: Effect,
    pub cost: Cost,
    /// Events known to be on the disk.
    pub synced: u64,
    /// What the ledger has not been told yet, so that a long step can tell it.
    pub unsettled: Vec<Settled>,
    /// Told when the thread is cancelled after this was decided, be it before anything of it has begun.
    pub halt: Halt,
}

/// Why a thread cannot be driven on. It is not over: it can be recovered.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the machine stands still at `{step}`")]
    Stalled { step: String },
    #[error("a task of the thread ended without an answer: {0}")]
    Lost(String),
    #[error("the plan cannot be used: {0}")]
    Plan(String),
    /// `list` holds the untrusted requirements of the project, one line each.
    #[error("`{directive}` requires what you do not trust yet: {}", list.join("; "))]
    Untrusted { directive: String, list: Vec<String> },
    /// A record was made from other files, or not here; `list` is what no file says now.
    #[error("the record of `{directive}` would execute what no file says now: {}", list.join("; "))]
    Changed { directive: String, list: Vec<String> },
    /// No key of the user signed the record of a thread, and the user did not accept the record.
    #[error("the record of `{thread}` cannot be verified: {reason}")]
    Unverified { thread: String, reason: String },
    /// The plan check of the engine's options does not let the plan start.
    #[error("{reason}")]
    Refused { reason: String },
    #[error(transparent)]
    Trust(#[from] TrustError),
}

impl DriveError {
    /// Whether it lies in what a record says, or in what belongs to it: trying again comes to the same until somebody has
    /// mended that, while everything else may go on.
    pub fn is_of_the_record(&self) -> bool {
        match self {
            Self::Store(error) => match error {
                StoreError::Damaged { .. }
                | StoreError::Altered { .. }
                | StoreError::Newer { .. }
                | StoreError::UnknownThread { .. }
                | StoreError::InvalidId { .. } => true,
                StoreError::Io { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
                StoreError::LineTooLong { .. }
                | StoreError::NoEvent
                | StoreError::Poisoned { .. }
                | StoreError::Owned { .. }
                | StoreError::Busy { .. }
                | StoreError::Registry { .. }
                | StoreError::RegistryLost { .. }
                | StoreError::InUse { .. } => false,
            },
            Self::Plan(_)
            | Self::Untrusted { .. }
            | Self::Changed { .. }
            | Self::Unverified { .. }
            | Self::Refused { .. } => true,
            Self::Stalled { .. } | Self::Lost(_) | Self::Trust(_) => false,
        }
    }
}

impl From<JoinError> for DriveError {
    fn from(lost: JoinError) -> Self {
        Self::Lost(lost.to_string())
    }
}

/// A thread in the hands of a driver.
#[derive(Debug)]
pub struct Thread {
    pub id: ThreadId,
    pub plan: Arc<Plan>,
    pub state: State,
    pub journal: Journal,
}

impl Thread {
    /// Records a signal and folds it; answers how many events that were.
    pub fn take(&mut self, signal: Signal) -> usize {
        let at = signal.at;
        let bodies = machine::absorb(&self.plan, &self.state, signal);
        let count = bodies.len();
        for body in bodies {
            let event = self.journal.push(at, body);
            machine::apply(&mut self.state, &event);
        }
        count
    }

    fn step(&self, effect: Effect, halt: Halt) -> Step {
        Step {
            key: effect.key(self.state.events),
            effect,
            cost: self.state.cost,
            synced: self.journal.synced(),
            unsettled: self.state.unsettled.clone(),
            halt,
        }
    }
}

/// Drives a thread to its end.
pub async fn drive(thread: &mut Thread, driver: &Arc<dyn Driver>, control: &mut Control) -> Result<Ended, DriveError> {
    let mut settled = Vec::new();
    let mut exported = false;
    loop {
        while let Some(post) = control.try_next() {
            settled.extend(receive(thread, driver, post));
        }
        match machine::next(&thread.plan, &thread.state) {
            Effect::Record => {
                let at = thread.journal.same_moment().unwrap_or_else(|| driver.now());
                if thread.take(Signal { at, fact: Fact::Tick }) == 0 {
                    return Err(DriveError::Stalled { step: format!("{:?}", thread.state.position) });
                }
            }
            Effect::Done { settle, ended, cancel, leaves } => {
                thread.journal.flush(true).await?;
                let end = (*ended).clone();
                let both = !exported && end.status != Status::Suspended;
                let paper = if both { Paper::Both } else { Paper::Snapshot };
                let step = thread.step(Effect::Done { settle, ended, cancel, leaves }, driver.halt());
                // The commit waits for others that end now, and not for what readers are given.
                let ((), done) = tokio::join!(driver.publish(thread, &end, paper), driver.perform(step));
                done?;
                discard(driver, &mut settled).await;
                return Ok(end);
            }
            effect @ (Effect::Reserve(_)
            | Effect::CallModel { .. }
            | Effect::RunTools(_)
            | Effect::RunHooks(_)
            | Effect::Spawn(_)
            | Effect::Await(_)
            | Effect::Sleep { .. }
            | Effect::Ask { .. }) => {
                thread.journal.flush(effect.has_side_effects()).await?;
                if thread.journal.is_durable() {
                    discard(driver, &mut settled).await;
                }
                if let Effect::RunHooks(run) = &effect
                    && let Some(ended) = run.ended.as_deref().filter(|_| !exported)
                {
                    driver.publish(thread, ended, Paper::Export).await;
                    exported = true;
                }
                perform(thread, driver, control, effect, &mut settled).await?;
            }
        }
    }
}

/// How long an effect is under way, whatever comes meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// A wait ends with any letter.
    AnyLetter,
    /// A call ends with a kill alone.
    Killed,
    /// Children that are being made are all made or none is: who is killed ends them afterwards.
    Done,
}

/// Performs an effect, and records mail that comes meanwhile.
async fn perform(
    thread: &mut Thread,
    driver: &Arc<dyn Driver>,
    control: &mut Control,
    effect: Effect,
    settled: &mut Vec<String>,
) -> Result<(), DriveError> {
    let until = match effect {
        Effect::Sleep { .. } | Effect::Ask { .. } => Until::AnyLetter,
        Effect::Spawn(_) => Until::Done,
        Effect::Record
        | Effect::Reserve(_)
        | Effect::CallModel { .. }
        | Effect::RunTools(_)
        | Effect::RunHooks(_)
        | Effect::Await(_)
        | Effect::Done { .. } => Until::Killed,
    };
    let halt = driver.halt();
    let mut parts = split(effect);
    if parts.len() == 1
        && let Some(part) = parts.pop()
    {
        // One alone needs no task of its own.
        let performed = driver.perform(thread.step(part, halt));
        return alone(thread, driver, control, performed, until, settled).await;
    }
    let mut running = JoinSet::new();
    for part in parts {
        let (driver, step) = (Arc::clone(driver), thread.step(part, halt.clone()));
        running.spawn(async move { driver.perform(step).await });
    }
    while !running.is_empty() {
        tokio::select! {
            Some(done) = running.join_next() => {
                let signal = done??;
                thread.take(signal);
                if !running.is_empty() {
                    thread.journal.flush(false).await?;
                }
            }
            Some(post) = control.next() => {
                if interrupts(thread, driver, post, until, settled).await? {
                    running.shutdown().await;
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

/// The same for an effect that is no group: dropping it ends it.
async fn alone(
    thread: &mut Thread,
    driver: &Arc<dyn Driver>,
    control: &mut Control,
    mut performed: BoxFuture<'_, Result<Signal, DriveError>>,
    until: Until,
    settled: &mut Vec<String>,
) -> Result<(), DriveError> {
    loop {
        tokio::select! {
            done = &mut performed => {
                thread.take(done?);
                return Ok(());
            }
            Some(post) = control.next() => {
                if interrupts(thread, driver, post, until, settled).await? {
                    return Ok(());
                }
            }
        }
    }
}

/// Records what came while an effect is under way; answers whether that ends it.
async fn interrupts(
    thread: &mut Thread,
    driver: &Arc<dyn Driver>,
    post: Post,
    until: Until,
    settled: &mut Vec<String>,
) -> Result<bool, DriveError> {
    let letter = if let Post::Letter { letter, .. } = &post { Some(letter.clone()) } else { None };
    settled.extend(receive(thread, driver, post));
    thread.journal.flush(true).await?;
    discard(driver, settled).await;
    Ok(match until {
        Until::AnyLetter => letter.is_some(),
        Until::Killed => letter == Some(Letter::Kill),
        Until::Done => false,
    })
}

/// Records a letter and hands it on to living children; answers the id of a file that can go once this is durable.
fn receive(thread: &mut Thread, driver: &Arc<dyn Driver>, post: Post) -> Option<String> {
    let (id, letter, on_disk) = match post {
        Post::Letter { id, letter, on_disk } => (id, letter, on_disk),
        Post::ChildEnded { spawn, thread_id, status, cost } => {
            let fact = Fact::ChildEnded { spawn, thread_id, status, cost, answer: None };
            thread.take(Signal { at: driver.now(), fact });
            return None;
        }
    };
    if matches!(letter, Letter::Cancel | Letter::Kill) {
        let living = thread.state.children.values().filter(|child| child.ended.is_none());
        let children: Vec<String> = living.filter_map(|child| child.thread_id.clone()).collect();
        driver.pass_on(&children, &letter);
    }
    thread.take(Signal { at: driver.now(), fact: Fact::Mail { id: id.clone(), letter } });
    on_disk.then_some(id)
}

async fn discard(driver: &Arc<dyn Driver>, mail: &mut Vec<String>) {
    for id in mail.drain(..) {
        driver.consumed(&id).await;
    }
}

/// The members of a group, each of which is performed and recorded by itself.
fn split(effect: Effect) -> Vec<Effect> {
    match effect {
        Effect::RunTools(calls) => calls.into_iter().map(|call| Effect::RunTools(vec![call])).collect(),
        Effect::Await(children) => children.into_iter().map(|child| Effect::Await(vec![child])).collect(),
        single @ (Effect::Record
        | Effect::Reserve(_)
        | Effect::CallModel { .. }
        | Effect::RunHooks(_)
        | Effect::Spawn(_)
        | Effect::Sleep { .. }
        | Effect::Ask { .. }
        | Effect::Done { .. }) => vec![single],
    }
}
