//! Repairs of the registries of random trees: after the end of a tree, and after a process died at any operation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rye_compiler::compile::{CompileRequest, SpawnParent, compile};
use rye_compiler::semantics::ledger::{Account, AccountStatus};
use rye_grammar::ItemId;

use super::provider::{CallLog, ModelBehavior};
use super::tree::Project;
use crate::context::StartOptions;
use crate::engine::Engine;
use crate::event::ControlMessage;
use crate::keys::TrustStore;
use crate::store::ThreadRow;
use crate::store::disk::{Disk, SimulatedDisk, SplitMix};
use crate::store::registry::{Liveness, Registry, repair};
use crate::thread_id::ThreadId;
use crate::threads::Threads;

/// Number of actions of a user on a tree.
const ACTIONS: usize = 6;
/// The operation before which the process dies is one of so many.
const MAX_OPERATIONS: u64 = 240;
/// Maximum number of recoveries after the death of a process.
const MAX_RECOVERIES: usize = 40;

/// Plays a random tree with a user who cancels, kills, hands over and starts threads. Returns the differences between
/// the registries before and after a repair.
pub async fn differences_after_repair(behavior: ModelBehavior, seed: u64) -> Vec<String> {
    let project = Project::of(behavior);
    let mut random = SplitMix::new(seed);
    let disk = Arc::new(SimulatedDisk::new());
    let killed: Arc<Mutex<Option<SimulatedDisk>>> = Arc::default();
    let (at, copy) = (random.next(MAX_OPERATIONS), Arc::clone(&killed));
    disk.before_operations(move |operation, before| {
        if operation == at {
            *copy.lock().unwrap() = Some(before);
        }
    });
    let engine = project.open(behavior, &disk, &Arc::<CallLog>::default()).unwrap();
    let handle = engine.start(&project.root(behavior), StartOptions::default()).await.unwrap();
    for _ in 0..ACTIONS {
        for _ in 0..random.next(60) {
            tokio::task::yield_now().await;
        }
        act(project, &engine, &mut random).await;
    }
    handle.join().await;
    engine.wait_idle().await;
    let mut found = differences(disk.fork(), true);
    let Some(killed) = killed.lock().unwrap().take() else { return found };
    // A handoff may have an account whose thread never started; all other booked amounts stay.
    found.extend(differences(killed.fork(), false).into_iter().map(|fault| format!("killed: {fault}")));
    let disk = Arc::new(killed);
    repair(&(Arc::clone(&disk) as Arc<dyn Disk>)).unwrap();
    let engine = project.open(behavior, &disk, &Arc::<CallLog>::default()).unwrap();
    for _ in 0..MAX_RECOVERIES {
        let listed = engine.threads().list().unwrap();
        let orphan = listed.into_iter().find(|listed| listed.liveness == Liveness::Orphaned);
        let Some(orphan) = orphan else { break };
        // A thread that cannot be recovered is finalized.
        if let Ok(handle) = engine.recover(&orphan.row.id).await {
            handle.join().await;
        }
        engine.wait_idle().await;
    }
    found.extend(differences(disk.fork(), true).into_iter().map(|fault| format!("recovered: {fault}")));
    found
}

/// Cancels, kills or hands over a random thread, or starts a child below it as `rye run --parent` does.
async fn act(project: &'static Project, engine: &Engine, random: &mut SplitMix) {
    let running = engine.running_threads();
    if running.is_empty() {
        return;
    }
    let thread = &running[usize::try_from(random.next(running.len() as u64)).unwrap()];
    let is_root = engine.threads().show(thread).unwrap().is_none_or(|shown| shown.row.parent.is_none());
    match random.next(6) {
        0 if !is_root => _ = engine.send_to(thread, &ControlMessage::Cancel),
        1 if !is_root => _ = engine.send_to(thread, &ControlMessage::Kill),
        2 => _ = engine.send_to(thread, &ControlMessage::Handoff),
        3..6 => {
            let Ok(Some(parent)) = engine.inspect(thread).await else { return };
            let mut request =
                CompileRequest::new(ItemId::parse("test/child").unwrap()).with_inputs(serde_json::Map::new());
            let (limits, capabilities) = (parent.launch.limits, parent.plan.capabilities.clone());
            request.parent = Some(SpawnParent { limits, capabilities });
            let Some(compiled) = compile(&*project.world(), &request).value else { return };
            // A parent without money, or one that has ended meanwhile, refuses the child.
            _ = engine.start(&compiled, StartOptions { parent: Some(parent), ..StartOptions::default() }).await;
        }
        _ => {}
    }
}

/// The registry's data about a thread, without the times, the owner and the progress of its writer.
struct Recorded {
    row: ThreadRow,
    account: Option<Account>,
    /// Number of descendants without an event. A repair does not know them, and does not count them.
    without_events: u64,
}

fn recorded(disk: &Arc<dyn Disk>) -> Vec<Recorded> {
    let registry = Registry::open(Arc::clone(disk)).unwrap();
    let threads = Threads::new(Arc::clone(disk), None);
    let rows = registry.threads().unwrap().into_iter();
    // A thread without an event is unknown after a repair.
    let (rows, unknown): (Vec<_>, Vec<_>) =
        rows.partition(|row| threads.transcript(&row.id).is_ok_and(|events| !events.is_empty()));
    let parent_of = |id: &ThreadId| rows.iter().find(|row| row.id == *id).and_then(|row| row.parent.clone());
    let mut without_events = BTreeMap::<ThreadId, u64>::new();
    for row in &unknown {
        let mut next = row.parent.clone();
        while let Some(above) = next {
            next = parent_of(&above);
            *without_events.entry(above).or_default() += 1;
        }
    }
    rows.into_iter()
        .map(|row| {
            let account = registry.account(&row.id).unwrap();
            let without_events = without_events.get(&row.id).copied().unwrap_or_default();
            let row = ThreadRow { created_at: 0, updated_at: 0, owner: None, synced: 0, ..row };
            Recorded { row, account, without_events }
        })
        .collect()
}

/// Returns the booked amounts of a thread and its descendants, in nano-dollars. The account of a released child is part of
/// the account of its parent. A kill during a handoff can leave a released account whose transcript has not ended, so
/// that a repair opens the account again: the amount then moves from the parent to the child.
fn booked_in_tree(recorded: &[Recorded], thread: &ThreadId) -> u64 {
    let account = |id: &ThreadId| recorded.iter().find(|one| one.row.id == *id).and_then(|one| one.account.as_ref());
    let is_live = |id: &ThreadId| account(id).is_some_and(|child| child.status() != AccountStatus::Released);
    let is_child = |id: &ThreadId| account(id).and_then(Account::parent) == Some(thread.as_str());
    let children = recorded.iter().map(|one| &one.row.id).filter(|id| is_child(id) && is_live(id));
    let own = account(thread).map_or(0, |account| account.spent().to_u64());
    own + children.map(|child| booked_in_tree(recorded, child)).sum::<u64>()
}

/// Rebuilds the registry of a disk, and returns the differences to the registry before. Compares rows and accounts if all
/// threads have ended, otherwise only that no booked amount is lost.
pub fn differences(disk: SimulatedDisk, has_ended: bool) -> Vec<String> {
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let before = recorded(&disk);
    let repaired = repair(&disk).unwrap();
    let mut found: Vec<String> =
        repaired.refused.iter().map(|(thread, refusal)| format!("{thread}: {refusal:?}")).collect();
    let after = recorded(&disk);
    for Recorded { row, account, without_events } in &before {
        let Some(now) = after.iter().find(|now| now.row.id == row.id) else {
            found.push(format!("{}: no row", row.id));
            continue;
        };
        let known = ThreadRow { spawned: row.spawned.saturating_sub(*without_events), ..row.clone() };
        if has_ended && (&known, account) != (&now.row, &now.account) {
            found.push(format!("before {row:?} {account:?}\nafter {:?} {:?}", now.row, now.account));
        }
        if booked_in_tree(&before, &row.id) > booked_in_tree(&after, &row.id) {
            found.push(format!("{}: booked less: {account:?}, now {:?}", row.id, now.account));
        }
    }
    let is_new = |now: &&Recorded| !before.iter().any(|recorded| recorded.row.id == now.row.id);
    found.extend(after.iter().filter(is_new).map(|now| format!("new row {:?} {:?}", now.row, now.account)));
    if has_ended {
        let registry = Arc::new(Registry::open(Arc::clone(&disk)).unwrap());
        let threads = Threads::new(disk, Some(registry));
        let ids: Vec<ThreadId> = before.iter().map(|recorded| recorded.row.id.clone()).collect();
        let verified = threads.verify_all(&ids, &TrustStore::default()).unwrap();
        found.extend(verified.into_iter().flat_map(|one| one.faults).map(|fault| fault.reason));
    }
    found
}
