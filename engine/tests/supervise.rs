//! Tests of supervised programs: this binary starts itself again as the supervisor.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "supervise/attacks.rs"]
mod attacks;
#[path = "supervise/file_attacks.rs"]
mod file_attacks;
#[path = "supervise/folders.rs"]
mod folders;
#[path = "supervise/sandboxes.rs"]
mod sandboxes;
#[cfg(feature = "mcp")]
#[path = "supervise/tools.rs"]
mod tools;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use rye_engine::tool::process::{
    Program, ProgramExit, ProgramResult, StderrMode, run, supervise_if_requested, wait_programs_ended,
};

/// Makes this binary run one command as an owner and exit: `__own COMMAND`.
const OWNER_MODE: &str = "__own";

/// Makes this binary start one command without the supervisor, as the engine starts git: `__direct COMMAND`.
const UNSUPERVISED_MODE: &str = "__direct";

fn main() -> ExitCode {
    if let Some(code) = supervise_if_requested() {
        return code;
    }
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, own, command] = arguments.as_slice()
        && own == OWNER_MODE
    {
        done(command, Duration::from_mins(1));
        return ExitCode::SUCCESS;
    }
    if let [_, direct, command] = arguments.as_slice()
        && direct == UNSUPERVISED_MODE
    {
        Command::new("bash").args(["-c", command]).status().unwrap();
        return ExitCode::SUCCESS;
    }
    if let [_, first, project, write, net, command] = arguments.as_slice()
        && first == sandboxes::SANDBOXED_MODE
    {
        sandboxes::run_sandboxed(project, write, net, command);
        return ExitCode::SUCCESS;
    }
    #[cfg(feature = "mcp")]
    if let [_, first, project, write, net, file, parameters] = arguments.as_slice()
        && first == tools::TOOL_MODE
    {
        tools::call(project, write, net, file, parameters);
        return ExitCode::SUCCESS;
    }
    let trials = [
        ("ends as the program ends", ends_as_the_program_ends as fn()),
        ("passes both streams and no input", passes_both_streams_and_no_input),
        ("passes long input to the program", hands_the_input_on),
        ("missing program is named in the output", names_a_program_that_is_not_there),
        ("lets a polite program clean up", lets_a_polite_program_clean_up),
        ("ends processes in their own session", ends_what_escaped),
        ("ends everything when its owner is killed", ends_everything_when_its_owner_is_killed),
        ("survives a stopped supervisor", survives_a_stopped_helper),
        ("dropping the run ends all processes", dropping_the_run_ends_all_processes),
        ("programs end before a runtime of one worker", programs_end_before_a_runtime_of_one_worker),
    ];
    let trials = trials
        .into_iter()
        .chain(sandboxes::TESTS)
        .chain(attacks::TESTS)
        .chain(file_attacks::TESTS)
        .chain(folders::TESTS);
    #[cfg(feature = "mcp")]
    let trials = trials.chain(tools::TESTS);
    let trials = trials.map(|(name, test)| {
        Trial::test(name, move || {
            test();
            Ok::<(), Failed>(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

fn done(command: &str, timeout: Duration) -> ProgramResult {
    let program = Program {
        program: "bash".into(),
        arguments: vec!["-c".into(), command.into()],
        folder: std::env::temp_dir(),
        thread_id: "t-1".into(),
        timeout,
        halt: rye_engine::tool::cancellation::CancellationToken::never(),
        sandbox: None,
        input: Vec::new(),
        environment: Vec::new(),
        streams: StderrMode::Together,
        written: rye_engine::tool::process::SharedOutput::default(),
    };
    runtime().block_on(run(&program)).unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Returns a runtime for programs that read and write in tasks of their own.
#[cfg(feature = "mcp")]
fn multi_thread_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|s| !s.trim().is_empty() && !s.trim_start().starts_with('Z'))
}

fn ends(pid: &str) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(5) {
        if !is_alive(pid) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

fn ends_as_the_program_ends() {
    let minute = Duration::from_mins(1);
    assert_eq!(done("exit 0", minute).exit, ProgramExit::Code(0));
    assert_eq!(done("exit 42", minute).exit, ProgramExit::Code(42));
    assert_eq!(done("kill -9 $$", minute).exit, ProgramExit::Signal(9));
    assert_eq!(done("kill -6 $$", minute).exit, ProgramExit::Signal(6));
    assert_eq!(done("sleep 60", Duration::from_millis(200)).exit, ProgramExit::TimedOut);
}

fn passes_both_streams_and_no_input() {
    let f = done("cat; echo a; echo b >&2; env | cut -d= -f1 | sort | tr '\\n' ' '", Duration::from_mins(1));
    assert_eq!(f.output.text, "a\nb\nHOME LANG PATH PWD RYE_PARENT_THREAD_ID SHLVL TERM _ ");
}

fn hands_the_input_on() {
    let mut program = Program {
        program: "bash".into(),
        arguments: vec!["-c".into(), "wc -c; echo log >&2".into()],
        folder: std::env::temp_dir(),
        thread_id: "t-1".into(),
        timeout: Duration::from_secs(20),
        halt: rye_engine::tool::cancellation::CancellationToken::never(),
        sandbox: None,
        input: vec![b'x'; 300_000],
        environment: Vec::new(),
        streams: StderrMode::Apart,
        written: rye_engine::tool::process::SharedOutput::default(),
    };
    let finished = runtime().block_on(run(&program)).unwrap();
    assert_eq!((finished.output.text.trim(), finished.errors.text.trim()), ("300000", "log"));
    // A program that never reads its input does not block the run.
    program.arguments = vec!["-c".into(), "exit 4".into()];
    assert_eq!(runtime().block_on(run(&program)).unwrap().exit, ProgramExit::Code(4));
}

fn names_a_program_that_is_not_there() {
    let program = Program {
        program: "no-such-program-here".into(),
        arguments: Vec::new(),
        folder: std::env::temp_dir(),
        thread_id: "t-1".into(),
        timeout: Duration::from_mins(1),
        halt: rye_engine::tool::cancellation::CancellationToken::never(),
        sandbox: None,
        input: Vec::new(),
        environment: Vec::new(),
        streams: StderrMode::Together,
        written: rye_engine::tool::process::SharedOutput::default(),
    };
    let f = runtime().block_on(run(&program)).unwrap();
    assert_eq!(f.exit, ProgramExit::Code(127));
    assert!(f.output.text.starts_with("`no-such-program-here` cannot be started: "), "{}", f.output.text);
}

fn lets_a_polite_program_clean_up() {
    let f = done("trap 'sleep 0.6; echo bye; exit 0' TERM; while :; do sleep 0.05; done", Duration::from_millis(300));
    assert_eq!(f.exit, ProgramExit::TimedOut);
    assert!(f.output.text.ends_with("bye\n"), "{}", f.output.text);
}

fn ends_what_escaped() {
    let start = Instant::now();
    let f = done("setsid bash -c 'echo $$; exec sleep 300' & wait -n; sleep 0.2", Duration::from_millis(1500));
    let pid = f.output.text.trim().to_owned();
    assert!(ends(&pid), "{pid} lives");
    let f = done("setsid bash -c 'echo $$; sleep 300' & sleep 0.2", Duration::from_mins(1));
    assert_eq!(f.exit, ProgramExit::Code(0));
    assert!(ends(f.output.text.trim()), "{} lives", f.output.text);
    assert!(start.elapsed() < Duration::from_secs(20));
}

fn ends_everything_when_its_owner_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pids");
    let command = format!(
        "(setsid sleep 300 & echo $! >> {0}); sleep 300 & echo $! >> {0}; echo $$ >> {0}; wait",
        file.display()
    );
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args([OWNER_MODE, &command])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let pids = loop {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        if text.lines().count() == 3 {
            break text;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "never started");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(pids.lines().all(is_alive));
    owner.kill().unwrap();
    owner.wait().unwrap();
    for pid in pids.lines() {
        assert!(ends(pid), "{pid} lives");
    }
}

fn survives_a_stopped_helper() {
    let start = Instant::now();
    let f = done("kill -STOP $PPID; echo $$; sleep 300", Duration::from_millis(300));
    assert_eq!(f.exit, ProgramExit::TimedOut);
    assert!(ends(f.output.text.trim()), "{} lives", f.output.text);
    assert!(start.elapsed() < Duration::from_secs(15));
}

/// Returns a program that writes two process ids to a file and then sleeps; one of them has a session of its own.
fn sleepers(file: &Path) -> Program {
    let command = format!("(setsid sleep 300 & echo $! >> {0}); echo $$ >> {0}; sleep 300", file.display());
    Program {
        program: "bash".into(),
        arguments: vec!["-c".into(), command.into()],
        folder: std::env::temp_dir(),
        thread_id: "t-1".into(),
        timeout: Duration::from_mins(1),
        halt: rye_engine::tool::cancellation::CancellationToken::never(),
        sandbox: None,
        input: Vec::new(),
        environment: Vec::new(),
        streams: StderrMode::Together,
        written: rye_engine::tool::process::SharedOutput::default(),
    }
}

async fn wait_for_sleepers(file: &Path) {
    while std::fs::read_to_string(file).unwrap_or_default().lines().count() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn programs_end_before_a_runtime_of_one_worker() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pids");
    let workers = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    workers.block_on(async {
        assert!(wait_programs_ended().await, "no program runs yet");
        let program = sleepers(&file);
        let mut call = tokio::task::JoinSet::new();
        call.spawn(async move { run(&program).await });
        wait_for_sleepers(&file).await;
        // The only worker is busy when the call is dropped, so the task of the call is not dropped at once.
        tokio::spawn(async { std::thread::sleep(Duration::from_millis(200)) });
        drop(call);
        assert!(wait_programs_ended().await);
    });
    workers.shutdown_background();
    for pid in std::fs::read_to_string(&file).unwrap().lines() {
        assert!(!is_alive(pid), "{pid} lives");
    }
}

fn dropping_the_run_ends_all_processes() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pids");
    runtime().block_on(async {
        let program = sleepers(&file);
        let task = tokio::spawn(async move { run(&program).await });
        wait_for_sleepers(&file).await;
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    });
    for pid in std::fs::read_to_string(&file).unwrap().lines() {
        assert!(ends(pid), "{pid} lives");
    }
}
