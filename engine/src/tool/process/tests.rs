//! Tests of processes: large output, timeouts, groups, and an owner that dies.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Instant as Clock;

use super::*;

fn bash(command: &str, timeout: Duration) -> Program {
    Program {
        program: "bash".into(),
        arguments: vec!["-c".into(), command.into()],
        folder: std::env::temp_dir(),
        thread_id: "t-1".into(),
        timeout,
        halt: CancellationToken::never(),
        sandbox: None,
        input: Vec::new(),
        environment: Vec::new(),
        streams: StderrMode::Together,
        written: SharedOutput::default(),
    }
}

async fn done(command: &str) -> ProgramResult {
    run(&bash(command, Duration::from_secs(20))).await.unwrap()
}

fn is_alive(pid: i32) -> bool {
    // A zombie does not run any more.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|s| !s.trim().is_empty() && !s.trim_start().starts_with('Z'))
}

async fn gone(pid: i32) -> bool {
    for _ in 0..100 {
        if !is_alive(pid) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    false
}

#[tokio::test]
async fn output_of_both_streams_in_order_and_the_code() {
    let f = done("echo a; echo b >&2; echo c; exit 3").await;
    assert_eq!((f.output.text.as_str(), f.exit), ("a\nb\nc\n", ProgramExit::Code(3)));
    assert_eq!(done("kill -9 $$").await.exit, ProgramExit::Signal(9));
}

#[tokio::test]
async fn program_gets_no_input_and_a_minimal_environment() {
    let f = done("cat; env | cut -d= -f1 | sort | tr '\\n' ' '; echo $TERM $RYE_PARENT_THREAD_ID").await;
    assert_eq!(f.output.text, "HOME LANG PATH PWD RYE_PARENT_THREAD_ID SHLVL TERM _ dumb t-1\n");
}

#[tokio::test]
async fn output_beyond_the_limit_is_counted_and_dropped() {
    let f = done("head -c 50000000 /dev/zero | tr '\\0' x; echo end").await;
    assert_eq!(f.output.total, 50_000_004);
    assert!(f.output.text.len() < 2 * MAX_KEPT_BYTES + 100);
    assert!(f.output.text.ends_with("xend\n"));
}

#[tokio::test]
async fn timeout_kills_grandchildren_that_ignore_sigterm() {
    let start = Clock::now();
    let command =
        "trap '' TERM; (trap '' TERM; echo $BASHPID; while :; do sleep 0.1; done) & wait; while :; do sleep 0.1; done";
    let f = run(&bash(command, Duration::from_millis(300))).await.unwrap();
    assert_eq!(f.exit, ProgramExit::TimedOut);
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
    let pid: i32 = f.output.text.trim().parse().unwrap();
    assert!(gone(pid).await);
}

#[tokio::test]
async fn timeout_lets_a_program_clean_up_after_sigterm() {
    let f = run(&bash("trap 'echo bye; exit 0' TERM; while :; do sleep 0.05; done", Duration::from_millis(300)))
        .await
        .unwrap();
    assert_eq!(f.exit, ProgramExit::TimedOut);
    assert!(f.output.text.ends_with("bye\n"), "{}", f.output.text);
}

#[tokio::test]
async fn background_processes_end_with_the_command() {
    let start = Clock::now();
    let f = done("sleep 300 & echo $!").await;
    assert_eq!(f.exit, ProgramExit::Code(0));
    assert!(start.elapsed() < Duration::from_secs(5));
    let pid: i32 = f.output.text.trim().parse().unwrap();
    assert!(gone(pid).await);
}

#[tokio::test]
async fn run_does_not_wait_for_an_escaped_process_that_holds_the_output() {
    let start = Clock::now();
    let f = done("setsid sleep 30 & echo started").await;
    assert_eq!((f.output.text.as_str(), f.exit), ("started\n", ProgramExit::Code(0)));
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn dropping_the_future_ends_the_group() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pid");
    let command = format!("sleep 300 & echo $! > {}; wait", file.display());
    let program = bash(&command, Duration::from_mins(1));
    let task = tokio::spawn(async move { run(&program).await });
    let mut pid = None;
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        pid = std::fs::read_to_string(&file).ok().and_then(|s| s.trim().parse().ok());
        if pid.is_some() {
            break;
        }
    }
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert!(gone(pid.unwrap()).await);
}

#[tokio::test]
async fn a_program_that_is_not_there_is_an_error() {
    let mut program = bash("", Duration::from_secs(1));
    program.program = "no-such-program-here".into();
    assert_eq!(run(&program).await.unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[tokio::test]
async fn input_of_any_length_is_read_while_output_is_written() {
    let mut program = bash("cat; echo end", Duration::from_secs(20));
    program.input = vec![b'x'; 300_000];
    let f = run(&program).await.unwrap();
    assert_eq!((f.output.total, f.exit), (300_004, ProgramExit::Code(0)));
    program.program = "true".into();
    assert_eq!(run(&program).await.unwrap().exit, ProgramExit::Code(0));
}

#[tokio::test]
async fn streams_can_be_kept_apart_and_variables_declared() {
    let mut program = bash("echo log >&2; echo $GIVEN $TERM", Duration::from_secs(20));
    program.streams = StderrMode::Apart;
    program.environment = vec![("GIVEN".into(), "yes".into()), ("TERM".into(), "other".into())];
    let f = run(&program).await.unwrap();
    assert_eq!((f.output.text.as_str(), f.errors.text.as_str()), ("yes dumb\n", "log\n"));
}
