//! Tests of a full disk, a read-only folder and a transcript of a newer program: the error is explained, and no data is
//! lost. The first two mount a file system, and are skipped where that is not allowed.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rye::{ProcessResult, TestProject};

/// Runs a script with a small file system mounted at `m/`; `None` if mounting is not allowed.
fn in_small_system(place: &TestProject, size: &str, script: &str) -> Option<ProcessResult> {
    let folder = place.project().join("m");
    std::fs::create_dir_all(&folder).unwrap();
    let script = format!("mount -t tmpfs -o size={size} none {} && cd {0} || exit 77\n{script}", folder.display());
    let rye = std::path::Path::new(env!("CARGO_BIN_EXE_rye"));
    let path = format!("{}:{}", rye.parent().unwrap().display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).env("RYE_USER_SPACE", place.user()).env("PATH", path);
    let done = ProcessResult::from(command.output().ok()?);
    let allowed = done.code != Some(77) && !done.stderr.contains("unshare");
    allowed.then_some(done)
}

#[test]
fn full_disk_is_reported_and_threads_resume_later() {
    let place = TestProject::own();
    // Runs with increasing free space, from none to enough. After each run, every started thread is resumed.
    let script = r#"
rye init --example hello >/dev/null 2>&1 || exit 1
rye run hello >/dev/null 2>&1 || exit 1
for room in 0 4 8 16 24 32 48 64 128 256; do
  left=$(df --output=avail -k . | tail -1); count=$((left - room)); [ "$count" -lt 0 ] && count=0
  head -c "${count}k" /dev/zero > fill 2>/dev/null
  rye run hello --limit spend=1 >/dev/null 2>../said; code=$?
  rm -f fill
  echo "room $room code $code $(grep -c 'No space left.*free some space' ../said)"
  # A root without a first line cannot be resumed.
  if grep -q 'was not started' ../said && grep -q 'threads resume' ../said; then echo "wrong help"; cat ../said; fi
  for thread in $(rye threads list --format plain | cut -f1); do
    rye threads show "$thread" >/dev/null 2>../shown || { echo "not shown $thread"; cat ../shown; }
  done
  for thread in $(rye threads list --active --format plain | cut -f1); do
    # Of one that did not get as far as its first line nothing was promised.
    rye threads resume "$thread" >/dev/null 2>../said || grep -q 'never started' ../said || { echo "lost $thread"; cat ../said; }
  done
done
rye threads list --active --format plain
rye threads verify --format plain
echo "verify $?"
"#;
    let Some(done) = in_small_system(&place, "6m", script) else { return };
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    assert!(done.stdout.contains("room 0 code 1 1"), "{}", done.stdout);
    assert!(done.stdout.contains("room 256 code 0"), "{}", done.stdout);
    for line in done.stdout.lines().filter(|line| line.starts_with("room ")) {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(words[3] == "0" || words[4] != "0", "a failure that is not explained: {line}\n{}", done.stdout);
    }
    assert!(!done.stdout.contains("wrong help") && !done.stdout.contains("not shown"), "{}", done.stdout);
    assert!(!done.stdout.contains("lost ") && done.stdout.ends_with("verify 0\n"), "{}", done.stdout);
}

/// Ids of a user that owns no other process.
const OTHER_USER: u32 = 61_743;

#[test]
fn too_few_processes_end_every_command_with_an_error_that_names_the_limit() {
    let place = TestProject::own();
    place.run_ok(&["init", "--example", "hello"]);
    place.run_ok(&["trust"]);
    // Only users other than root are limited. For the own user, the limit also counts the processes of other programs.
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        let owner = format!("{OTHER_USER}:{OTHER_USER}");
        let folder = place.project().parent().unwrap().to_owned();
        assert!(Command::new("chown").args(["-R", &owner]).arg(&folder).status().unwrap().success());
    }
    let mut ran = Vec::new();
    for count in 1..=12 {
        for args in [&["check"][..], &["run", "hello"], &["chat", "hello"], &["acp", "hello"], &["threads", "list"]] {
            let mut command = Command::new(if is_root { "setpriv" } else { "env" });
            if is_root {
                let id = OTHER_USER.to_string();
                command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
            }
            let script = format!("ulimit -u {count}; exec \"$0\" \"$@\"");
            command.args(["sh", "-c", &script, env!("CARGO_BIN_EXE_rye")]).args(args);
            command.env("RYE_USER_SPACE", place.user()).env("HOME", place.user()).current_dir(place.project());
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            let mut process = command.spawn().unwrap();
            let started = Instant::now();
            while process.try_wait().unwrap().is_none() && started.elapsed() < Duration::from_mins(1) {
                std::thread::sleep(Duration::from_millis(5));
            }
            // A process that has ended is not killed.
            process.kill().ok();
            let done = ProcessResult::from(process.wait_with_output().unwrap());
            let shown = format!("{args:?} with {count} processes: {:?} {}", done.code, done.stderr);
            assert!(!done.stderr.contains("panicked"), "{shown}");
            if done.code == Some(0) {
                ran.push((count, args));
            } else {
                assert!(done.stderr.contains("EAGAIN") && done.stderr.contains("ulimit -u"), "{shown}");
            }
        }
    }
    assert!(!is_root || ran.contains(&(12, &["run", "hello"])), "{ran:?}");
}

#[test]
fn write_beyond_the_file_size_limit_is_reported() {
    let place = TestProject::own();
    place.run_ok(&["init", "--example", "hello"]);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 8; exec \"$0\" run hello", env!("CARGO_BIN_EXE_rye")]);
    let output = command.env("RYE_USER_SPACE", place.user()).current_dir(place.project()).output().unwrap();
    let done = ProcessResult::from(output);
    assert_eq!(done.code, Some(1), "{}{}", done.stdout, done.stderr);
    assert!(done.stderr.contains("File too large"), "{}", done.stderr);
}

#[test]
fn full_disk_leaves_no_part_of_a_file() {
    let place = TestProject::own();
    let script = r#"
rye init --bare >/dev/null 2>&1 && rye new directive greet >/dev/null 2>&1 || exit 1
rye new tool before >/dev/null 2>&1 || exit 1
head -c 100m /dev/zero > fill 2>/dev/null
find . -type f ! -name fill | sort > /dev/shm/rye-room-$$
rye new tool after >/dev/null 2>../said; echo "new: $?"
grep -c 'No space left' ../said
rye new knowledge after >/dev/null 2>&1; echo "knowledge: $?"
rye init --example hello >/dev/null 2>&1; echo "init: $?"
find . -type f ! -name fill | sort | diff /dev/shm/rye-room-$$ - && echo same
rm -f /dev/shm/rye-room-$$
find .ai -size 0 -type f -newer .ai/tools/before*
"#;
    let Some(done) = in_small_system(&place, "4m", script) else { return };
    assert_eq!(done.stdout, "new: 1\n1\nknowledge: 1\ninit: 1\nsame\n", "{}", done.stderr);
}

/// An MCP server with twelve tools.
const SERVER: &str = r#"import json, sys
tools = [{"name": f"t{n}", "description": "x" * 3000, "inputSchema": {"type": "object"}} for n in range(12)]
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        result = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "s", "version": "1"}}
    elif asked.get("method") == "tools/list":
        result = {"tools": tools}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"#;

#[test]
fn command_that_fills_the_disk_leaves_nothing_and_is_repeated() {
    let place = TestProject::own();
    place.write("server.py", SERVER);
    // Each command fails with too little free space, and succeeds with enough. `$user` is on the same disk.
    let script = r#"
mkdir user && export RYE_USER_SPACE=$PWD/user && mkdir project && cd project && cp ../../server.py .
rye keys generate >/dev/null 2>&1; rye init --bare >/dev/null 2>&1; rye new directive greet >/dev/null 2>&1 || exit 1
state() { (cd ..; find . ! -name fill | sort; find . -type f ! -name fill -print0 | sort -z | xargs -0 cat | sha256sum); }
attempt() {
  for room in 0 4 8 16 24; do
    state > /dev/shm/rye-before-$$
    left=$(df --output=avail -k . | tail -1); count=$((left - room)); [ "$count" -lt 0 ] && count=0
    head -c "${count}k" /dev/zero > ../fill 2>/dev/null
    "$@" >/dev/null 2>/dev/shm/rye-said-$$; code=$?
    rm -f ../fill
    [ "$code" = 0 ] && break
    state | diff /dev/shm/rye-before-$$ - || echo "changed by $*: $room"
    grep -q 'error.*`.*No space left' /dev/shm/rye-said-$$ && grep -q 'free some space, then repeat' /dev/shm/rye-said-$$ \
      || { echo "not explained: $* $room"; cat /dev/shm/rye-said-$$; }
  done
  [ "$code" = 0 ] || "$@" >/dev/null 2>/dev/shm/rye-said-$$ || { echo "not repeated: $*"; cat /dev/shm/rye-said-$$; }
  echo "$2 $3 done"
}
attempt rye mcp add neu -- python3 server.py
attempt rye new tool after
attempt rye init ../other/folder
attempt rye providers add anthropic/new --context-window 1000 --max-output 100 --input-price 1 --output-price 5
attempt rye lock
rm -f /dev/shm/rye-before-$$ /dev/shm/rye-said-$$
"#;
    let Some(done) = in_small_system(&place, "4m", script) else { return };
    let expected = "mcp add done\nnew tool done\ninit ../other/folder done\nproviders add done\nlock  done\n";
    assert_eq!(done.stdout, expected, "{}", done.stderr);
}

#[test]
fn read_only_project_allows_reading_only() {
    let place = TestProject::own();
    let script = r#"
rye init --example hello >/dev/null 2>&1 && rye run hello >/dev/null 2>&1 || exit 1
mount -o remount,ro . || exit 77
for command in "check" "plan hello" "threads list" "threads verify" "fetch knowledge --query Untrusted"; do
  rye $command >/dev/null 2>&1; echo "$command: $?"
done
rye run hello; echo "run: $?"
"#;
    let Some(done) = in_small_system(&place, "8m", script) else { return };
    for fine in ["check", "plan hello", "threads list", "threads verify", "fetch knowledge --query Untrusted"] {
        assert!(done.stdout.contains(&format!("{fine}: 0\n")), "{fine}\n{}{}", done.stdout, done.stderr);
    }
    assert!(done.stdout.ends_with("run: 1\n"), "{}", done.stdout);
    assert!(done.stderr.contains("Read-only file system") && done.stderr.contains(".ai/state"), "{}", done.stderr);
}

#[test]
fn newer_transcript_format_is_rejected() {
    let place = TestProject::example("hello");
    let id = place.json(&["run", "hello"]).1["thread_id"].as_str().unwrap().to_owned();
    let path = format!(".ai/state/threads/{id}/transcript.jsonl");
    let record = place.read(&path);
    let (first, rest) = record.split_once("{\"v\":1,\"seq\":7,").unwrap();
    place.write(&path, &format!("{first}{{\"v\":2,\"seq\":7,{rest}"));
    let resume = ["run", "--resume", &id, "--message", "more"];
    for args in [&["threads", "show", &id][..], &["threads", "transcript", &id], &resume] {
        let done = place.rye(args);
        assert_eq!(done.code, Some(1), "{args:?}");
        let words = "format version 2, but this `rye` reads up to 1; install a newer `rye`";
        assert!(done.stderr.contains(words), "{args:?}: {}", done.stderr);
    }
    let done = place.rye(&["threads", "verify", &id]);
    assert_eq!(done.code, Some(1));
    assert!(done.stdout.contains("install a newer `rye`"), "{}", done.stdout);
    // The other files are unchanged.
    place.write(&path, &record);
    place.run_ok(&["threads", "verify", "--strict"]);
}

#[test]
fn full_disk_in_a_chat_keeps_the_typed_text_and_names_the_cause() {
    let place = TestProject::own();
    let script = r#"
rye init --bare >/dev/null 2>&1 || exit 1
echo 'steps: [{ text: One. }, { text: Two. }]' > s.yaml
mkfifo lines
rye chat --script s.yaml --format json < lines > ../out 2> ../said & chat=$!
exec 3> lines
echo '{"id": 1, "type": "prompt", "message": "first"}' >&3
for n in $(seq 200); do grep -q prompt_ended ../out && break; sleep 0.05; done
head -c 100m /dev/zero > fill 2>/dev/null
echo '{"id": 2, "type": "prompt", "message": "the second text"}' >&3
exec 3>&-
wait $chat; echo "code $?"
rm -f fill
grep -q 'No space left.*free some space' ../out ../said && echo "cause named"
grep -q '"id":2,"command":"prompt","success":true' ../out && echo acknowledged
printf '/tree\nthird\n' | rye chat -c --script s.yaml > ../again 2> ../said2; echo "again $?"
grep -q '  2  the second text' ../said2 && echo kept
rye threads verify >/dev/null 2>&1; echo "verify $?"
"#;
    let Some(done) = in_small_system(&place, "6m", script) else { return };
    let shown = format!("{}{}", done.stdout, done.stderr);
    assert!(done.stdout.starts_with("code 1\ncause named\n"), "{shown}");
    // A text that was acknowledged is in the session when it is opened again.
    assert_eq!(done.stdout.contains("acknowledged"), done.stdout.contains("kept"), "{shown}");
    assert!(done.stdout.contains("again 0\n") && done.stdout.ends_with("verify 0\n"), "{shown}");
}

#[test]
fn full_disk_in_the_terminal_of_a_chat_keeps_the_typed_text_and_names_the_cause() {
    let place = TestProject::own();
    let script = r#"
rye init --bare >/dev/null 2>&1 || exit 1
echo 'steps: [{ text: One. }, { text: Two. }]' > s.yaml
export TERM=xterm-256color
chat() { script -qefc "stty cols 100 rows 24; exec rye chat $1 --script s.yaml" "../$2" < "../$3" > /dev/null; }
shown() { for n in $(seq 2400); do grep -qs "$2" "../$1" && return; sleep 0.05; done; echo "not shown: $2"; }
mkfifo ../keys ../more
chat "" out keys & chat=$!
exec 3> ../keys
shown out 'Enter sends'; printf 'first\r' >&3; shown out 'prompt 1 done'
head -c 100m /dev/zero > fill 2>/dev/null
printf 'the second text' >&3; shown out 'second text'; printf '\r' >&3
shown out 'No space'
wait $chat; echo "code $?"
grep -q 'help: open the session again with `rye chat --resume' ../out || echo "no help"
exec 3>&-
rm -f fill
chat -c again more & chat=$!
exec 3> ../more
shown again 'the second text'; shown again 'Enter sends'
printf '\004' >&3
wait $chat; echo "again $?"
exec 3>&-
rye threads verify >/dev/null 2>&1; echo "verify $?"
"#;
    let Some(done) = in_small_system(&place, "6m", script) else { return };
    // The second chat ends with the code of the interrupted prompt.
    assert_eq!(done.stdout, "code 1\nagain 130\nverify 0\n", "{}", done.stderr);
}
