//! Attacks on the sandbox and on the supervisor, as root and as an ordinary user, and the language runtimes that still
//! work.
#![allow(clippy::print_stderr, reason = "a test that is skipped says why")]

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::sandboxes::{Machine, PATH, SANDBOXED_MODE, is_offered};
use super::{OWNER_MODE, UNSUPERVISED_MODE, ends};

pub const TESTS: [(&str, fn()); 12] = [
    ("attacks: every attempt is refused", every_attempt_is_refused),
    ("attacks: every attempt is refused to an ordinary user", every_attempt_is_refused_to_a_user),
    ("attacks: a daemon does not outlive limits set on the helper", limits_on_the_supervisor),
    ("attacks: a daemon does not outlive too many processes", too_many_processes),
    ("attacks: a daemon does not hide behind its name", a_name_that_is_no_text),
    ("attacks: a daemon does not hide below a reaper of its own", a_reaper_of_its_own),
    ("attacks: a daemon that changes its process ID is ended", daemon_that_changes_its_pid),
    ("attacks: ended orphans leave the process table", ended_orphans),
    ("attacks: a daemon ends with an owner that is killed", an_owner_that_is_killed),
    ("attacks: inherited descriptors reach no program", inherited_descriptors),
    ("runtimes: bash, python3, node, git and cargo work", runtimes_work),
    ("runtimes: a static program with musl works", musl_works),
];

const SCRIPT: &str = include_str!("attacks.py");
/// Functions that the attack scripts import.
pub const ATTEMPTS: &str = include_str!("attempts.py");
pub const PYTHON: &str = "/usr/bin/python3";
/// Id of an ordinary user that is not in the user database.
pub const USER: u32 = 54_321;
const MIN_ATTEMPTS: usize = 150;

/// Python functions that start daemons.
const DAEMON: &str = r"
import ctypes, os, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def detach():
    if os.fork() > 0:
        return True
    os.setsid()
    if os.fork() > 0:
        os._exit(0)
    for fd in range(3):
        os.dup2(os.open('/dev/null', os.O_RDWR), fd)
    return False
def announce():
    with open('out/pid', 'w') as file:
        file.write(str(os.getpid()))
def announced():
    while not (os.path.exists('out/pid') and open('out/pid').read()):
        time.sleep(0.01)
";

pub fn has_python() -> bool {
    let found = Path::new(PYTHON).exists();
    if !found {
        eprintln!("skipped: {PYTHON} is not installed");
    }
    found
}

fn machine() -> Machine {
    let machine = Machine::new();
    fs::create_dir_all(machine.at("project/out")).unwrap();
    machine
}

/// Kills its process when dropped.
struct Victim(Child);

impl Victim {
    fn new(uid: u32) -> Self {
        use std::os::unix::process::CommandExt;
        Self(Command::new("sleep").arg("600").uid(uid).stdin(Stdio::null()).spawn().unwrap())
    }

    /// Returns everything about the process that a system call of another process can change.
    fn state(&self) -> String {
        let file = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", self.0.id())).unwrap_or_default();
        let status = file("status");
        let kept =
            status.lines().filter(|line| ["State", "Cpus_allowed", "TracerPid"].iter().any(|k| line.starts_with(k)));
        let stat = file("stat");
        let priorities = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(15).take(2);
        format!("{}{:?}{:?}", file("limits"), kept.collect::<Vec<_>>(), priorities.collect::<Vec<_>>())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

pub fn give_to(folder: &Path, uid: u32) {
    std::os::unix::fs::lchown(folder, Some(uid), Some(uid)).unwrap();
    if folder.is_dir() {
        for entry in fs::read_dir(folder).unwrap() {
            give_to(&entry.unwrap().path(), uid);
        }
    } else {
        chown(folder, Some(uid), Some(uid)).unwrap();
    }
}

/// Returns the command that runs `attacks.py` of a project in a sandbox where `out/` is writable.
pub fn attack(machine: &Machine, arguments: &str, net: &str, uid: Option<u32>) -> Command {
    use std::os::unix::process::CommandExt;
    let command = format!("{PYTHON} -B attacks.py {arguments}; echo end");
    let mut run = Command::new(std::env::current_exe().unwrap());
    run.args([SANDBOXED_MODE, machine.at("project").to_str().unwrap(), "out", net, &command]);
    run.env("HOME", machine.at("home")).env("PATH", PATH).stdin(Stdio::null());
    if let Some(uid) = uid {
        run.uid(uid).gid(uid);
    }
    run
}

/// Runs attempts, none of which may pass, and counts the attempts that the sandbox refused.
pub fn count_refused(mut run: Command) -> usize {
    let done = run.output().unwrap();
    let printed = String::from_utf8_lossy(&done.stdout);
    assert!(printed.ends_with("end\n"), "{printed}{}", String::from_utf8_lossy(&done.stderr));
    let passed: Vec<&str> =
        printed.lines().filter(|line| !line.starts_with("refused ") && !line.starts_with("missing ")).collect();
    assert_eq!(passed, ["end"], "{run:?}");
    printed.matches("refused ").count()
}

/// Runs all attempts as the user `uid`, or as the current user if `uid` is `None`.
fn attempt_all(uid: Option<u32>) {
    if !is_offered(6, true) || !has_python() {
        return;
    }
    let machine = machine();
    fs::write(machine.at("project/attacks.py"), SCRIPT).unwrap();
    fs::write(machine.at("project/attempts.py"), ATTEMPTS).unwrap();
    if let Some(uid) = uid {
        give_to(&machine.at(""), uid);
    }
    let own_uid = rustix::process::getuid().as_raw();
    for net in ["", "example.com"] {
        let victim = Victim::new(uid.unwrap_or(own_uid));
        // The victim must have become `sleep` before its state is read.
        let name = format!("/proc/{}/comm", victim.0.id());
        while fs::read_to_string(&name).unwrap_or_default() != "sleep\n" {
            std::thread::yield_now();
        }
        let mut before = victim.state();
        while !before.contains("(sleeping)") {
            std::thread::yield_now();
            before = victim.state();
        }
        let kind = if net.is_empty() { "none" } else { "net" };
        let run = attack(&machine, &format!("$PPID {} {kind}", victim.0.id()), net, uid);
        let refused = count_refused(run);
        assert!(refused >= MIN_ATTEMPTS, "{refused} attempts, net: {net:?}");
        assert_eq!(victim.state(), before, "net: {net:?}");
    }
}

fn every_attempt_is_refused() {
    attempt_all(None);
}

fn every_attempt_is_refused_to_a_user() {
    if can_become_user() {
        attempt_all(Some(USER));
    }
}

/// Returns true if this process can start itself as an ordinary user; reports a skip otherwise.
pub fn can_become_user() -> bool {
    let own = std::env::current_exe().unwrap();
    let is_root = rustix::process::getuid().is_root();
    let is_reachable = is_root && {
        use std::os::unix::process::CommandExt;
        Command::new(&own).arg("--list").uid(USER).gid(USER).output().is_ok_and(|done| done.status.success())
    };
    if !is_reachable {
        eprintln!("skipped: only root can become another user, who can start {}", own.display());
    }
    is_reachable
}

/// Runs a Python program that leaves a daemon, which writes its process ID; the daemon must be gone afterwards.
fn daemon_ends(program: &str) {
    if !is_offered(3, true) || !has_python() {
        return;
    }
    let machine = machine();
    fs::write(machine.at("project/daemon.py"), format!("{DAEMON}{program}")).unwrap();
    let project = machine.at("project");
    let output = machine.run_this_binary(&[
        SANDBOXED_MODE,
        project.to_str().unwrap(),
        "out",
        "",
        &format!("{PYTHON} -B daemon.py $PPID"),
    ]);
    let pid = fs::read_to_string(machine.at("project/out/pid")).unwrap_or_else(|error| panic!("{error}: {output}"));
    assert!(ends(&pid), "{pid} lives: {output}");
}

fn limits_on_the_supervisor() {
    daemon_ends(
        r"
if detach():
    announced()
    nr = 302 if os.uname().machine == 'x86_64' else 261
    import struct
    for resource in (7, 0, 1, 6):
        libc.syscall(nr, int(sys.argv[1]), resource, struct.pack('QQ', 0, 0), None)
else:
    announce()
    time.sleep(300)
",
    );
}

/// Regression test: the supervisor ended itself with the process group of a program that has too many processes.
fn too_many_processes() {
    daemon_ends(
        r"
if detach():
    announced()
    for _ in range(900):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
    time.sleep(60)
else:
    announce()
    time.sleep(300)
",
    );
}

fn a_name_that_is_no_text() {
    daemon_ends(
        r"
if detach():
    announced()
else:
    libc.prctl(15, b'\xff\xfe) Z 1', 0, 0, 0)
    announce()
    time.sleep(300)
",
    );
}

fn a_reaper_of_its_own() {
    daemon_ends(
        r"
if detach():
    announced()
else:
    libc.prctl(36, 1, 0, 0, 0)
    if os.fork() > 0:
        time.sleep(300)
    os.setsid()
    if os.fork() > 0:
        os._exit(0)
    announce()
    time.sleep(300)
",
    );
}

/// Tests a daemon that forks all the time: between the listing and the signal its process ID changes.
fn daemon_that_changes_its_pid() {
    if !is_offered(3, true) || !has_python() {
        return;
    }
    let machine = machine();
    let program = r"
if detach():
    while not os.path.exists('out/pid'):
        time.sleep(0.01)
else:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    file = os.open('out/pid', os.O_CREAT | os.O_WRONLY)
    while True:
        os.pwrite(file, b'%d' % os.getpid(), 0)
        if os.fork() > 0:
            os._exit(0)
        os.setsid()
";
    fs::write(machine.at("project/daemon.py"), format!("{DAEMON}{program}")).unwrap();
    let project = machine.at("project");
    machine.run_this_binary(&[SANDBOXED_MODE, project.to_str().unwrap(), "out", "", &format!("{PYTHON} -B daemon.py")]);
    let last = || fs::read_to_string(machine.at("project/out/pid")).unwrap();
    let pid = last();
    assert!(ends(&pid), "{pid} lives");
    assert_eq!(last(), pid);
}

/// Tests processes that end after each fork: ended orphans must not fill the machine's process table.
fn ended_orphans() {
    if !is_offered(3, true) || !has_python() {
        return;
    }
    let machine = machine();
    let program = r"
import os, time
def stat(pid):
    return open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()[:2]
# The helper is the parent of this process, or of the shell that started it.
helpers = [os.getppid(), int(stat(os.getppid())[1])]
STARTERS, FORKS = 4, 1000
for starter in range(STARTERS):
    if os.fork() == 0:
        os.setsid()
        for _ in range(FORKS):
            if os.fork() > 0:
                os._exit(0)
        open(f'out/done{starter}', 'w').close()
        os._exit(0)
for _ in range(STARTERS):
    os.wait()
while len(os.listdir('out')) < STARTERS:
    time.sleep(0.01)
def orphans():
    found = 0
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            state, parent = stat(pid)
        except OSError:
            continue
        found += state == 'Z' and int(parent) in helpers
    return found
for _ in range(200):
    left = orphans()
    if left == 0:
        break
    time.sleep(0.05)
print('ended orphans:', left)
";
    fs::write(machine.at("project/forks.py"), program).unwrap();
    let project = machine.at("project");
    let output = machine.run_this_binary(&[
        SANDBOXED_MODE,
        project.to_str().unwrap(),
        "out",
        "",
        &format!("{PYTHON} -B forks.py"),
    ]);
    assert!(output.contains("ended orphans: 0"), "{output}");
}

fn an_owner_that_is_killed() {
    if !is_offered(3, true) || !has_python() {
        return;
    }
    let machine = machine();
    let program = "
if detach():
    time.sleep(300)
else:
    announce()
    time.sleep(300)
";
    fs::write(machine.at("project/daemon.py"), format!("{DAEMON}{program}")).unwrap();
    let temporary = tempfile::tempdir().unwrap();
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args([SANDBOXED_MODE, machine.at("project").to_str().unwrap(), "out", "", &format!("{PYTHON} -B daemon.py")])
        .env("HOME", machine.at("home"))
        .env("PATH", PATH)
        .env("TMPDIR", temporary.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = loop {
        let text = fs::read_to_string(machine.at("project/out/pid")).unwrap_or_default();
        if !text.is_empty() {
            break text;
        }
        assert_eq!(owner.try_wait().unwrap(), None, "never started");
        std::thread::yield_now();
    };
    let folders = || fs::read_dir(temporary.path()).unwrap().count();
    assert_eq!(folders(), 1);
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(ends(&pid), "{pid} lives");
    let start = Instant::now();
    while folders() > 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "the folder for temporary files stays");
        std::thread::yield_now();
    }
}

/// Tests inherited descriptors: descriptor 9 of the shell that starts this binary stays open across `exec`.
fn inherited_descriptors() {
    let machine = machine();
    let own = std::env::current_exe().unwrap();
    let secret = machine.at("home/.ssh/id_ed25519");
    let out = machine.at("project/out/read");
    let read = format!("cat <&9 > {0}; cat /proc/self/fd/9 >> {0}", out.display());
    let project = machine.at("project");
    let confined = [SANDBOXED_MODE, project.to_str().unwrap(), "out", "", &read];
    for arguments in [confined.as_slice(), &[OWNER_MODE, &read], &[UNSUPERVISED_MODE, &read]] {
        let mut started = Command::new("bash");
        started.args(["-c", "exec 9< \"$1\"; shift; exec \"$@\"", "bash"]).arg(&secret).arg(&own).args(arguments);
        let done = started.env("HOME", machine.at("home")).env("PATH", PATH).stdin(Stdio::null()).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        assert_eq!(fs::read_to_string(&out).unwrap(), "", "{}", arguments[0]);
        fs::remove_file(&out).unwrap();
    }
}

fn runtimes_work() {
    // The test uses the toolchains of the user who runs it, because `rustup` keeps them in the home folder.
    let (home, path) = (std::env::var("HOME").unwrap_or_default(), std::env::var("PATH").unwrap_or_default());
    let machine = machine();
    let run = |path: &str, home: &str, command: &str| {
        let mut started = Command::new(std::env::current_exe().unwrap());
        started.args([SANDBOXED_MODE, machine.at("project").to_str().unwrap(), "out", "", command]);
        let done = started.env("HOME", home).env("PATH", path).stdin(Stdio::null()).output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr))
    };
    let own_home = machine.at("home");
    let own_home = own_home.to_str().unwrap();
    let threads = r#"
import concurrent.futures, multiprocessing, os, resource, subprocess, sys, threading, time
def child(connection):
    connection.send(os.getpid())
if __name__ == "__main__":
    thread = threading.Thread(target=time.sleep, args=(0.01,))
    thread.start()
    thread.join()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(abs, [-1, -2])) == [1, 2]
    assert subprocess.run(["sh", "-c", "echo sub; nice -n 1 true"], capture_output=True).stdout == b"sub\n"
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
    for method in ("spawn", "fork"):
        context = multiprocessing.get_context(method)
        ours, theirs = context.Pipe()
        process = context.Process(target=child, args=(theirs,))
        process.start()
        assert ours.recv() == process.pid
        process.join()
    print("python works")
"#;
    let node = r#"
const { Worker } = require("node:worker_threads");
const { execSync, spawnSync } = require("node:child_process");
const fs = require("node:fs");
fs.watch("out").close();
if (execSync("echo sub").toString() !== "sub\n" || spawnSync("true").status !== 0) throw 1;
fs.promises.readFile("top.txt", "utf8").then((text) => {
  new Worker("require('node:worker_threads').parentPort.postMessage(1)", { eval: true }).on("message", () => console.log("node works", text));
});
"#;
    fs::write(machine.at("project/src/threads.py"), threads).unwrap();
    fs::write(machine.at("project/src/node.cjs"), node).unwrap();
    let crates = "mkdir -p out/c/src && cd out/c && printf '[package]\\nname=\"c\"\\nversion=\"0.1.0\"\\nedition=\"2021\"\\n[workspace]\\n' > Cargo.toml && \
        echo 'fn main() { std::thread::spawn(|| println!(\"cargo works\")).join().unwrap() }' > src/main.rs && \
        CARGO_HOME=$TMPDIR/cargo cargo run --offline --quiet";
    let cases: [(&str, bool, &str, &str); 5] = [
        (
            "bash",
            false,
            "bash works\n",
            "set -m; (sleep 0.01 & wait); ulimit -n 50; x=$(echo a | cat); coproc cat; nice true && echo bash works",
        ),
        ("python3", false, "python works\n", "python3 -B src/threads.py"),
        ("node", false, "node works top\n", "node src/node.cjs"),
        (
            "git",
            false,
            "git works\n",
            "cd $TMPDIR && git init -q r && cd r && echo 1 > f && git add f && git -c user.email=a@b commit -qm 'git works' && git gc -q && git log --format=%s",
        ),
        ("cargo", true, "cargo works\n", crates),
    ];
    for (program, is_of_home, wanted, command) in cases {
        let (path, home) = if is_of_home { (path.as_str(), home.as_str()) } else { (PATH, own_home) };
        if !Command::new(program).arg("--version").env("PATH", path).output().is_ok_and(|done| done.status.success()) {
            eprintln!("skipped: `{program}` is not installed");
            continue;
        }
        assert_eq!(run(path, home, command), wanted, "{program}");
    }
}

/// A program that is linked with musl.
const MUSL_PROGRAM: &str = include_str!("musl.c");

/// Compiles and runs a static program with musl. `RYE_TEST_MUSL_GCC` names the compiler; the default is `musl-gcc`.
fn musl_works() {
    let machine = machine();
    let compiler = std::env::var("RYE_TEST_MUSL_GCC").unwrap_or_else(|_| "musl-gcc".to_owned());
    let (source, program) = (machine.at("project/src/musl.c"), machine.at("project/src/musl"));
    fs::write(&source, MUSL_PROGRAM).unwrap();
    let built = Command::new(&compiler).args(["-static", "-o"]).arg(&program).arg(&source).output();
    if !built.is_ok_and(|built| built.status.success()) {
        eprintln!("skipped: `{compiler}` is not installed");
        return;
    }
    let mut started = Command::new(std::env::current_exe().unwrap());
    started.args([SANDBOXED_MODE, machine.at("project").to_str().unwrap(), "out", "", "src/musl"]);
    let done = started.env("PATH", PATH).stdin(Stdio::null()).output().unwrap();
    let printed = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert_eq!(printed, "musl works\n");
}
