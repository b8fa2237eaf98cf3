//! Tests of the registry: use by several threads and processes, recovery after the death of a process, and the version
//! of the format.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStderr, Command, Stdio};

use tempfile::TempDir;

use super::super::disk::{DiskFault, RealDisk, SimulatedDisk};
use super::super::owner::{OwnerId, OwnerLock};
use super::*;
use crate::thread::{Cost, Status};
use crate::thread_id::ThreadId;

fn id(text: &str) -> ThreadId {
    ThreadId::parse(text).unwrap()
}

fn row(text: &str) -> ThreadRow {
    ThreadRow::new(id(text), "hello", 1_000)
}

fn put(text: &str) -> Change {
    Change::Put(Box::new(row(text)))
}

fn folder() -> (TempDir, Arc<dyn Disk>) {
    let folder = TempDir::new().unwrap();
    let disk = RealDisk::open(folder.path()).unwrap();
    (folder, Arc::new(disk))
}

fn status(thread: &str, status: Status) -> Change {
    let update = RowUpdate { status: Some(status), ..RowUpdate::default() };
    Change::Update { thread: id(thread), update: Box::new(update), now: 2_000 }
}

/// Runs a test on a real disk and on the simulated one.
fn on_each_disk(test: impl Fn(Arc<dyn Disk>)) {
    let (_folder, real) = folder();
    test(real);
    test(Arc::new(SimulatedDisk::new()));
}

#[test]
fn rows_survive_reopening() {
    on_each_disk(|disk| {
        {
            let registry = Registry::open(Arc::clone(&disk)).unwrap();
            let before = registry.commits();
            let answers = registry.commit(&[put("b/x-2"), put("a-1"), status("a-1", Status::Running)]).unwrap();
            assert_eq!(answers, [ChangeResult::Done, ChangeResult::Done, ChangeResult::Done]);
            assert_eq!(registry.commits() - before, 1);
        }
        let registry = Registry::open(disk).unwrap();
        assert_eq!(registry.commits(), 0, "opening an existing registry commits nothing");
        let ids: Vec<String> = registry.threads().unwrap().iter().map(|row| row.id.to_string()).collect();
        assert_eq!(ids, ["a-1", "b/x-2"]);
        let changed = registry.thread(&id("a-1")).unwrap().unwrap();
        assert_eq!((changed.status, changed.created_at, changed.updated_at), (Status::Running, 1_000, 2_000));
        assert_eq!(registry.thread(&id("c-1")).unwrap(), None);
    });
}

#[test]
fn active_lists_threads_that_have_not_ended() {
    on_each_disk(|disk| {
        let registry = Registry::open(disk).unwrap();
        registry.commit(&[put("a-1"), put("a-2"), put("a-3"), status("a-2", Status::Completed)]).unwrap();
        let active = |registry: &Registry| -> Vec<String> {
            registry.active().unwrap().iter().map(|row| row.id.to_string()).collect()
        };
        assert_eq!(active(&registry), ["a-1", "a-3"]);
        // `active` lists no suspended threads: a suspended thread continues only after an approval.
        registry.commit(&[status("a-2", Status::Running), status("a-1", Status::Suspended)]).unwrap();
        assert_eq!(active(&registry), ["a-2", "a-3"]);
    });
}

#[test]
fn a_refused_change_ends_its_list() {
    on_each_disk(|disk| {
        let registry = Registry::open(disk).unwrap();
        let first = [put("a-1"), status("b-1", Status::Running), put("a-2")];
        let second = [put("a-3")];
        let answers = registry.commit_all(&[&first, &second]).unwrap();
        assert_eq!(answers, [vec![ChangeResult::Done, ChangeResult::NoThread(id("b-1"))], vec![ChangeResult::Done]]);
        assert_eq!(registry.thread(&id("a-2")).unwrap(), None);
        assert!(registry.thread(&id("a-3")).unwrap().is_some());
    });
}

#[test]
fn repeated_spawn_returns_the_same_child() {
    on_each_disk(|disk| {
        let registry = Registry::open(disk).unwrap();
        registry.commit(&[put("p-1")]).unwrap();
        let spawn = |spawn, child: &str| Change::Spawn { parent: id("p-1"), spawn, child: Box::new(row(child)) };
        let ask = |n, child| registry.commit(&[spawn(n, child)]).unwrap();
        assert_eq!(ask(1, "c-1"), [ChangeResult::Child(id("c-1"))]);
        assert_eq!(ask(1, "c-1-2"), [ChangeResult::Child(id("c-1"))]);
        assert_eq!(ask(2, "c-1-2"), [ChangeResult::Child(id("c-1-2"))]);
        assert_eq!(ask(1, "c-9"), [ChangeResult::Child(id("c-1"))]);
        assert_eq!(registry.children(&id("p-1")).unwrap(), [(1, id("c-1")), (2, id("c-1-2"))]);
        assert_eq!(registry.child(&id("p-1"), 2).unwrap(), Some(id("c-1-2")));
        assert_eq!(registry.child(&id("p-1"), 3).unwrap(), None);
        assert_eq!(registry.children(&id("p-10")).unwrap(), []);
        assert_eq!(registry.thread(&id("c-9")).unwrap(), None);
        let child = registry.thread(&id("c-1")).unwrap().unwrap();
        assert_eq!((child.parent, child.spawn), (Some(id("p-1")), Some(1)));
    });
}

#[test]
fn files_of_dead_owners_are_removed_by_the_next_process() {
    on_each_disk(|disk| {
        let files = || {
            let entries = disk.list(Path::new(layout::OWNERS)).unwrap();
            entries.into_iter().map(|entry| entry.name).collect::<Vec<String>>()
        };
        let live = OwnerLock::acquire(Arc::clone(&disk), 1_000, 0).unwrap();
        // A killed process leaves its lock file with its description, or an empty lock file if the process was just
        // starting.
        let dead = Path::new(layout::OWNERS).join("00000000-0400-7000-8000-000000000001");
        let starting = Path::new(layout::OWNERS).join("00000000-0400-7000-8000-000000000002");
        disk.create(&dead, b"{}").unwrap();
        disk.create(&starting, b"").unwrap();
        let next = OwnerLock::acquire(Arc::clone(&disk), 2_000, 0).unwrap();
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut expected = vec![live.id().to_string(), next.id().to_string(), name(&starting)];
        expected.sort();
        assert_eq!(files(), expected);
        drop(OwnerLock::acquire(Arc::clone(&disk), 100_000, 0).unwrap());
        expected.retain(|file| *file != name(&starting));
        assert_eq!(files(), expected);
        live.remove_file();
        next.remove_file();
        assert_eq!(files(), Vec::<String>::new());
    });
}

#[test]
fn thread_has_at_most_one_live_owner() {
    on_each_disk(|disk| {
        let registry = Registry::open(Arc::clone(&disk)).unwrap();
        let first = OwnerLock::acquire(Arc::clone(&disk), 1, 0).unwrap();
        let second = OwnerLock::acquire(Arc::clone(&disk), 2, 0).unwrap();
        let own = |lock: &OwnerLock| Change::Own { thread: id("a-1"), owner: lock.id().clone(), now: 5 };
        assert_eq!(registry.commit(&[own(&first)]).unwrap(), [ChangeResult::NoThread(id("a-1"))]);
        registry.commit(&[put("a-1")]).unwrap();
        let liveness = || registry.liveness(&registry.thread(&id("a-1")).unwrap().unwrap()).unwrap();
        assert_eq!(liveness(), Liveness::Orphaned);
        assert_eq!(registry.commit(&[own(&first)]).unwrap(), [ChangeResult::Done]);
        assert_eq!(registry.commit(&[own(&first)]).unwrap(), [ChangeResult::Done]);
        assert_eq!(liveness(), Liveness::Alive);
        let refused = registry.commit(&[own(&second), put("a-2")]).unwrap();
        assert_eq!(refused, [ChangeResult::OwnedBy(first.id().clone())]);
        assert_eq!(owner::live_owners(&*disk).unwrap(), [first.id().clone(), second.id().clone()]);
        assert_eq!(owner::read_owner_info(&*disk, first.id()).unwrap().unwrap().pid, std::process::id());
        drop(first);
        assert_eq!(liveness(), Liveness::Orphaned);
        assert_eq!(registry.commit(&[own(&second)]).unwrap(), [ChangeResult::Done]);
        assert_eq!(liveness(), Liveness::Alive);
        registry.commit(&[status("a-1", Status::Error)]).unwrap();
        assert_eq!(registry.commit(&[own(&second)]).unwrap(), [ChangeResult::HasEnded]);
        assert_eq!(liveness(), Liveness::Over);
    });
}

#[test]
fn a_newer_format_is_refused() {
    on_each_disk(|disk| {
        let registry = Registry::open(Arc::clone(&disk)).unwrap();
        registry
            .write(|transaction| {
                let mut meta = transaction.open_table(tables::META).unwrap();
                meta.insert(tables::FORMAT, REGISTRY_FORMAT + 6).unwrap();
                Ok(())
            })
            .unwrap();
        drop(registry);
        let read = Registry::open_read_only(Arc::clone(&disk)).map(|registry| registry.is_some());
        for opened in [Registry::open(disk).map(|_| true), read] {
            match opened {
                Err(error @ StoreError::Newer { found: 7, supported: 1, .. }) => {
                    assert!(error.to_string().contains("install a newer `rye`"), "{error}");
                }
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn readers_need_no_writer_and_follow_one() {
    on_each_disk(|disk| {
        assert!(Registry::open_read_only(Arc::clone(&disk)).unwrap().is_none());
        drop(Registry::open(Arc::clone(&disk)).unwrap());
        let reader = Registry::open_read_only(Arc::clone(&disk)).unwrap().unwrap();
        assert_eq!(reader.threads().unwrap(), []);
    });
    let (_folder, disk) = folder();
    let writer = Registry::open(Arc::clone(&disk)).unwrap();
    let reader = Registry::open_read_only(Arc::clone(&disk)).unwrap().unwrap();
    writer.commit(&[put("a-1")]).unwrap();
    assert_eq!(reader.threads().unwrap().len(), 1);
    assert!(matches!(reader.commit(&[put("a-2")]), Err(StoreError::Registry { .. })));
    let other = Registry::open(disk).unwrap();
    other.commit(&[put("a-3")]).unwrap();
    assert_eq!((reader.threads().unwrap().len(), writer.threads().unwrap().len()), (2, 2));
}

#[test]
fn invalid_registry_file_suggests_repair() {
    let (folder, disk) = folder();
    layout::create_folders(&*disk).unwrap();
    std::fs::write(folder.path().join(REGISTRY), b"no database").unwrap();
    for opened in [Registry::open(Arc::clone(&disk)).map(|_| ()), Registry::open_read_only(disk).map(|_| ())] {
        let error = opened.unwrap_err();
        assert!(error.to_string().contains("run `rye threads repair` to rebuild it"), "{error}");
    }
}

/// The disk gets full at every possible point of a commit. Repeated calls must report the full disk too, although the
/// database forgets its first error.
#[test]
fn full_disk_is_reported_on_every_commit() {
    let mut failed = 0;
    for at in 0..200 {
        let disk = Arc::new(SimulatedDisk::new());
        let registry = Registry::open(Arc::clone(&disk) as Arc<dyn Disk>).unwrap();
        let begun = disk.operations();
        disk.fail_at(begun + at, DiskFault::Fails(io::ErrorKind::StorageFull));
        let Err(first) = registry.commit(&[put("a-1")]) else {
            if disk.operations() - begun <= at {
                break;
            }
            // The commit succeeded although a write failed. Such a write only speeds up a later opening.
            continue;
        };
        failed += 1;
        let again = registry.commit(&[put("b-1")]).unwrap_err();
        for error in [&first, &again] {
            let StoreError::Io { source, .. } = error else { panic!("{error}") };
            assert_eq!(source.kind(), io::ErrorKind::StorageFull);
        }
        let words = again.to_string();
        assert!(words.contains("registry.redb`: made to fail; free some space, then repeat"), "{words}");
        // After the failed commit, reopening the registry finds the state before or after the change.
        drop(registry);
        let registry = Registry::open(disk).unwrap();
        assert!(registry.threads().unwrap().len() <= 1);
        registry.commit(&[put("b-1")]).unwrap();
    }
    assert!(failed > 3, "{failed}");
}

/// Commits the spawn of a child that may have 9 descendants.
fn spawn(registry: &Registry, parent: &str, spawn: u64, child: &str) -> ChangeResult {
    let child = Box::new(ThreadRow { spawns: Some(9), ..row(child) });
    registry.commit(&[Change::Spawn { parent: id(parent), spawn, child }]).unwrap().pop().unwrap()
}

#[test]
fn continuation_has_the_spawns_that_all_descendants_leave() {
    on_each_disk(|disk| {
        let registry = Registry::open(disk).unwrap();
        let root = Change::Put(Box::new(ThreadRow { spawns: Some(4), ..row("root-1") }));
        registry.commit(&[root]).unwrap();
        spawn(&registry, "root-1", 1, "child-1");
        spawn(&registry, "child-1", 1, "low-1");
        let update =
            RowUpdate { status: Some(Status::Continued), continued_by: Some(id("root-2")), ..RowUpdate::default() };
        let next = ThreadRow { spawned: 7, continues: Some(id("root-1")), ..row("root-2") };
        let handoff = [
            Change::Update { thread: id("root-1"), update: Box::new(update), now: 2_000 },
            Change::PutContinuation { thread: id("root-1"), row: Box::new(next) },
        ];
        registry.commit(&handoff).unwrap();
        let counted = || registry.thread(&id("root-2")).unwrap().map(|row| (row.spawns, row.spawned)).unwrap();
        assert_eq!(counted(), (Some(2), 0));
        // `child-1` started before the handoff and still runs. Its new spawn counts against the limit of the
        // continuation `root-2`.
        assert_eq!(spawn(&registry, "child-1", 2, "low-2"), ChangeResult::Child(id("low-2")));
        assert_eq!(spawn(&registry, "root-2", 1, "child-2"), ChangeResult::Child(id("child-2")));
        assert_eq!(counted(), (Some(2), 2));
        for parent in ["child-1", "child-2", "root-2"] {
            let refused = ChangeResult::TooMany { thread: id("root-2"), limit: 2 };
            assert_eq!(spawn(&registry, parent, 9, "late-1"), refused, "{parent}");
        }
        assert_eq!(registry.thread(&id("root-1")).unwrap().unwrap().spawned, 2);
        let missing = Change::PutContinuation { thread: id("none-1"), row: Box::new(row("none-2")) };
        assert_eq!(registry.commit(&[missing]).unwrap(), [ChangeResult::NoThread(id("none-1"))]);
    });
}

#[test]
fn threads_share_a_registry() {
    let (_folder, disk) = folder();
    // Two handles represent two processes: only the file's locks connect them.
    let registries: Vec<Registry> = (0..2).map(|_| Registry::open(Arc::clone(&disk)).unwrap()).collect();
    registries[0].commit(&[put("p-1")]).unwrap();
    let answers = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (registry, answers) = (&registries[worker % 2], &answers);
            scope.spawn(move || {
                for n in 1..=25 {
                    let child = Box::new(row(&format!("c-{worker}-{n}")));
                    let asked = Change::Spawn { parent: id("p-1"), spawn: n, child };
                    let answer = registry.commit(&[asked]).unwrap();
                    let [ChangeResult::Child(child)] = answer.as_slice() else { panic!("{answer:?}") };
                    answers.lock().unwrap().push((n, child.clone()));
                }
            });
        }
    });
    let mut answers = answers.into_inner().unwrap();
    answers.sort();
    answers.dedup();
    assert_eq!(answers.len(), 25, "every spawn has one child");
    assert_eq!(registries[1].children(&id("p-1")).unwrap(), answers);
    assert_eq!(registries[1].threads().unwrap().len(), 26);
}

#[test]
fn continuous_writer_lets_other_processes_commit() {
    use std::sync::atomic::AtomicBool;
    let (_folder, disk) = folder();
    // Two handles represent two processes: only the file's locks connect them.
    let registries: Vec<Registry> = (0..2).map(|_| Registry::open(Arc::clone(&disk)).unwrap()).collect();
    let done = AtomicBool::new(false);
    let first_commit = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                registries[0].commit(&[put(&format!("busy-{n}"))]).unwrap();
                if n == 0 {
                    first_commit.wait();
                }
            }
        });
        first_commit.wait();
        let answers: Vec<_> = (1..=6).map(|n| registries[1].commit(&[put(&format!("late-{n}"))])).collect();
        done.store(true, Ordering::Relaxed);
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    });
    assert!(registries[0].threads().unwrap().len() > 6);
}

/// Environment variable that makes the test program a writer process. The value is the folder of the registry.
const CHILD: &str = "RYE_TEST_REGISTRY_WRITER";

#[test]
fn killed_writers_lose_nothing() {
    if let Some(folder) = std::env::var_os(CHILD) {
        write_until_killed(Path::new(&folder));
    }
    let (folder, disk) = folder();
    drop(Registry::open(Arc::clone(&disk)).unwrap());
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        let mut writers = [WriterProcess::start(folder.path()), WriterProcess::start(folder.path())];
        for writer in &mut writers {
            writer.wait_for(4 + round);
        }
        let [first, second] = writers;
        acknowledged.extend(first.kill());
        if round > 0 {
            // After the first writer was killed, the test process can still open the registry and write.
            let own = Registry::open(Arc::clone(&disk)).unwrap();
            let thread = format!("own-{round}");
            own.commit(&[put(&thread)]).unwrap();
            acknowledged.push(id(&thread));
        }
        acknowledged.extend(second.kill());
        // All writers are dead: a reader gets the recovered registry.
        let reader = Registry::open_read_only(Arc::clone(&disk)).unwrap().unwrap();
        for thread in &acknowledged {
            let row = reader.thread(thread).unwrap().unwrap();
            assert_eq!(reader.liveness(&row).unwrap(), Liveness::Orphaned);
        }
    }
    assert!(acknowledged.len() > 20, "{} commits are too few to show anything", acknowledged.len());
    assert_eq!(owner::live_owners(&*disk).unwrap(), Vec::<OwnerId>::new());
    drop(OwnerLock::acquire(Arc::clone(&disk), 0, 0).unwrap());
    assert_eq!(disk.list(Path::new(layout::OWNERS)).unwrap(), []);
}

/// A process that writes until it is killed and prints each commit.
struct WriterProcess {
    process: Child,
    stderr: BufReader<ChildStderr>,
    committed: Vec<ThreadId>,
}

impl WriterProcess {
    fn start(folder: &Path) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "store::registry::tests::killed_writers_lose_nothing", "--nocapture"])
            .env(CHILD, folder)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(process.stderr.take().unwrap());
        Self { process, stderr, committed: Vec::new() }
    }

    /// Waits until the process has reported `commits` more commits.
    fn wait_for(&mut self, commits: usize) {
        let until = self.committed.len() + commits;
        while self.committed.len() < until {
            assert!(self.read_line(), "it ended by itself");
        }
    }

    /// Reads the next line of the output, and records the thread that the line reports as committed. Returns false at
    /// the end of the output.
    fn read_line(&mut self) -> bool {
        let mut line = String::new();
        let read = self.stderr.read_line(&mut line).unwrap();
        let whole = line.strip_prefix("committed ").and_then(|line| line.strip_suffix(".\n"));
        self.committed.extend(whole.map(id));
        read > 0
    }

    /// Kills the process and returns the threads that it reported as committed.
    fn kill(mut self) -> Vec<ThreadId> {
        self.process.kill().unwrap();
        while self.read_line() {}
        self.process.wait().unwrap();
        self.committed
    }
}

fn write_until_killed(folder: &Path) -> ! {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(folder).unwrap());
    let registry = Registry::open(Arc::clone(&disk)).unwrap();
    let owner = OwnerLock::acquire(disk, 1, 0).unwrap();
    for n in 1_u64.. {
        let thread = format!("t-{}-{n}", std::process::id());
        let own = Change::Own { thread: id(&thread), owner: owner.id().clone(), now: 1 };
        assert_eq!(registry.commit(&[put(&thread), own]).unwrap(), [ChangeResult::Done, ChangeResult::Done]);
        // The pause exceeds the poll interval of other writers, so that they can write in between.
        std::thread::sleep(Duration::from_millis(10));
        eprintln!("committed {thread}.");
    }
    unreachable!("it is killed long before")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_tasks_share_commits() {
    let (_folder, disk) = folder();
    let writer = Arc::new(RegistryWriter::new(Arc::new(Registry::open(disk).unwrap()), GroupCommit::default()));
    writer.set_running_threads(200);
    let before = writer.registry().commits();
    let tasks: Vec<_> = (0..200)
        .map(|n| {
            let writer = Arc::clone(&writer);
            tokio::spawn(async move {
                let cost = Cost { turns: n, ..Cost::default() };
                let update = RowUpdate { cost: Some(cost), ..RowUpdate::default() };
                let thread = format!("t-{n}");
                let update = Change::Update { thread: id(&thread), update: Box::new(update), now: 3 };
                writer.commit(vec![put(&thread), update]).await.unwrap()
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), [ChangeResult::Done, ChangeResult::Done]);
    }
    assert_eq!(writer.registry().threads().unwrap().len(), 200);
    let commits = writer.registry().commits() - before;
    assert!(commits <= 50, "200 tasks took {commits} commits");
    assert_eq!(writer.registry().thread(&id("t-7")).unwrap().unwrap().cost.turns, 7);
}

#[tokio::test]
async fn single_task_commits_inline_unless_another_process_writes() {
    let (_folder, disk) = folder();
    let writer =
        Arc::new(RegistryWriter::new(Arc::new(Registry::open(Arc::clone(&disk)).unwrap()), GroupCommit::default()));
    // The future is ready at the first poll: the commit did not wait.
    let mut scan = std::task::Context::from_waker(std::task::Waker::noop());
    let alone = std::pin::pin!(writer.commit(vec![put("t-1")]));
    assert!(alone.poll(&mut scan).is_ready());
    let other = Registry::open(disk).unwrap();
    let Some(OpenDatabase::Write(database)) = &other.database else { panic!("opened to write") };
    let held = database.begin_write().unwrap();
    let mut waiting = std::pin::pin!(writer.commit(vec![put("t-2")]));
    assert!(waiting.as_mut().poll(&mut scan).is_pending());
    held.abort().unwrap();
    assert_eq!(waiting.await.unwrap(), [ChangeResult::Done]);
    assert_eq!(writer.registry().threads().unwrap().len(), 2);
}

#[tokio::test]
async fn commit_does_not_overtake_one_whose_caller_stopped_waiting() {
    let (_folder, disk) = folder();
    let registry = Arc::new(Registry::open(Arc::clone(&disk)).unwrap());
    let writer = RegistryWriter::new(registry, GroupCommit::default());
    writer.commit(vec![put("t-1")]).await.unwrap();
    let set = |status: Status| {
        let update = RowUpdate { status: Some(status), ..RowUpdate::default() };
        vec![Change::Update { thread: id("t-1"), update: Box::new(update), now: 3 }]
    };
    let other = Registry::open(disk).unwrap();
    let Some(OpenDatabase::Write(database)) = &other.database else { panic!("opened to write") };
    let held = database.begin_write().unwrap();
    let mut scan = std::task::Context::from_waker(std::task::Waker::noop());
    {
        let mut dropped = std::pin::pin!(writer.commit(set(Status::Running)));
        assert!(dropped.as_mut().poll(&mut scan).is_pending());
    }
    held.abort().unwrap();
    writer.commit(set(Status::Killed)).await.unwrap();
    assert_eq!(writer.registry().thread(&id("t-1")).unwrap().unwrap().status, Status::Killed);
    let registry = Arc::clone(writer.registry());
    // Dropping the writer waits for its thread, so no commit is pending afterwards.
    drop(writer);
    assert_eq!(registry.thread(&id("t-1")).unwrap().unwrap().status, Status::Killed);
}
