//! Sandboxed programs on this machine's kernel: their attempts and results.
#![allow(clippy::print_stderr, reason = "a test that is skipped says why")]

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rye_engine::tool::process::{Program, Sandbox, detect_support, run};

/// Makes this binary run one sandboxed command: `__walled PROJECT WRITE NET COMMAND`; lists are separated by commas.
pub const SANDBOXED_MODE: &str = "__walled";

/// System programs only: the home folder of the tests contains no programs.
pub const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

pub const TESTS: [(&str, fn()); 15] = [
    ("sandbox: nothing outside the project is read", nothing_outside_is_read),
    ("sandbox: nothing is written ungranted", nothing_is_written_ungranted),
    ("sandbox: only granted folders are writable", what_is_granted_is_written),
    ("sandbox: a grant of everything does not reach protected paths", protected_paths_are_not_writable),
    ("sandbox: thread files are not readable", thread_files_are_not_readable),
    ("sandbox: keys and trust are out of reach in every project", keys_are_out_of_reach),
    ("sandbox: links give no new access", links_lead_nowhere_new),
    ("sandbox: no socket unless granted", no_socket_unless_granted),
    ("sandbox: the owner's environment and memory are not read", the_owner_is_not_read),
    ("sandbox: outside processes get no signals", outside_processes_get_no_signals),
    ("sandbox: temporary files are private and gone afterwards", temporary_files_are_private),
    ("sandbox: usual programs run", usual_programs_run),
    ("sandbox: a fork bomb ends", a_fork_bomb_ends),
    ("sandbox: processes of other programs do not count", other_programs_processes_do_not_count),
    ("sandbox: in bubblewrap modes and times stay, and what is granted is there", in_bubblewrap_modes_stay),
];

/// Runs the process that was started with [`SANDBOXED_MODE`].
pub fn run_sandboxed(project: &str, write: &str, net: &str, command: &str) {
    let write = write.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let net: Vec<String> = net.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect();
    if let Some(bubblewrap) = std::env::var_os(BUBBLEWRAP) {
        rye_engine::tool::process::use_bubblewrap(Path::new(&bubblewrap));
    }
    let program = Program {
        program: "bash".into(),
        arguments: vec!["-c".into(), command.into()],
        folder: project.into(),
        thread_id: "t-1".into(),
        timeout: Duration::from_secs(40),
        halt: rye_engine::tool::cancellation::CancellationToken::never(),
        sandbox: Some(Sandbox::new(Path::new(project), write, &net)),
        input: Vec::new(),
        environment: Vec::new(),
        streams: rye_engine::tool::process::StderrMode::Together,
        written: rye_engine::tool::process::SharedOutput::default(),
    };
    let finished = super::runtime().block_on(run(&program)).unwrap();
    std::io::stdout().write_all(finished.output.text.as_bytes()).unwrap();
}

/// A simulated machine in a folder: a home with secrets, a user space, a project with protected paths.
pub struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    pub fn new() -> Self {
        let machine = Self { folder: tempfile::tempdir().unwrap() };
        for (path, text) in [
            ("home/.ssh/id_ed25519", "the secret key"),
            ("home/.netrc", "the password"),
            ("home/.cargo/credentials.toml", "the token"),
            ("home/.gitconfig", "[user]\n\tname = Ada\n"),
            ("user/.ai/keys/private.pem", "the private key"),
            ("user/.ai/trust/x.json", "the trust"),
            ("user/.ai/knowledge/x.md", "what the user knows"),
            ("project/src/main.txt", "source"),
            ("project/top.txt", "top"),
            ("project/.env", "FROM_PROJECT=1"),
            ("project/.git/config", "[core]"),
            ("project/.git/hooks/pre-commit", "#!/bin/sh"),
            ("project/sub/deep/.git/config", "[core]"),
            ("project/sub/deep/code.txt", "code"),
            ("project/.ai/config/agent/hooks.yaml", "hooks: []"),
            ("project/.ai/directives/a.md", "# A"),
            ("project/.ai/data/x.json", "{}"),
            ("project/.ai/state/threads/t/transcript.jsonl", "the record"),
            ("other/file.txt", "somebody else's"),
        ] {
            let path = machine.at(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        machine
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(path)
    }

    /// Returns the output of a sandboxed command with these grants.
    pub fn run(&self, write: &str, net: &str, command: &str) -> String {
        let project = self.at("project");
        self.run_this_binary(&[SANDBOXED_MODE, project.to_str().unwrap(), write, net, command])
    }

    /// Starts this binary in this machine with these arguments; returns its output.
    pub fn run_this_binary(&self, arguments: &[&str]) -> String {
        let own = std::env::current_exe().unwrap();
        let done = Command::new(own)
            .args(arguments)
            .env("HOME", self.at("home"))
            .env("PATH", PATH)
            .env("RYE_USER_SPACE", self.at("user"))
            .env("SECRET_API_KEY", "sk-of-the-owner")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr))
    }

    fn run_unsandboxed(&self, command: &str) -> String {
        self.run("", "", command)
    }
}

/// Returns true if this kernel has the features a test needs; reports a skip otherwise.
pub fn is_offered(landlock: u8, sockets: bool) -> bool {
    let offers = detect_support();
    let enough = offers.landlock >= landlock && (offers.sockets || !sockets);
    if !enough {
        eprintln!("skipped: it needs Landlock {landlock} and sockets refused = {sockets}; this machine has {offers:?}");
    }
    enough
}

/// Environment variable with the path of bubblewrap, for the process that is started with [`SANDBOXED_MODE`].
const BUBBLEWRAP: &str = "TEST_BUBBLEWRAP";

fn in_bubblewrap_modes_stay() {
    let works =
        Command::new("bwrap").args(["--ro-bind", "/", "/", "--proc", "/proc", "--unshare-pid", "true"]).output();
    if !is_offered(1, true) || !works.is_ok_and(|done| done.status.success()) {
        eprintln!("skipped: bubblewrap is not installed, or may not make namespaces here");
        return;
    }
    let machine = Machine::new();
    let project = machine.at("project");
    let run = |command: &str| {
        let own = std::env::current_exe().unwrap();
        let mut started = Command::new(own);
        started.args([SANDBOXED_MODE, project.to_str().unwrap(), "out,src", "", command]);
        started.env("HOME", machine.at("home")).env("PATH", PATH).env(BUBBLEWRAP, "bwrap").stdin(Stdio::null());
        let done = started.output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr))
    };
    let mode =
        |path: &str| std::os::unix::fs::PermissionsExt::mode(&fs::metadata(machine.at(path)).unwrap().permissions());
    let before = [mode("home/.ssh/id_ed25519"), mode("project/.ai/directives/a.md")];
    let output = run(
        "chmod 777 ~/.ssh/id_ed25519 .ai/directives/a.md; touch -d 2001-01-01 .env; cat ~/.ssh/id_ed25519; echo made > out/new; \
        echo more >> src/main.txt; echo x > \"$TMPDIR/t\" && cat \"$TMPDIR/t\"; touch top2; ls -d /proc/[0-9]* | wc -l",
    );
    assert_eq!([mode("home/.ssh/id_ed25519"), mode("project/.ai/directives/a.md")], before, "{output}");
    assert!(!output.contains("the secret key") && output.contains("Read-only file system"), "{output}");
    assert_eq!(fs::read_to_string(machine.at("project/out/new")).unwrap_or_default(), "made\n", "{output}");
    assert_eq!(fs::read_to_string(machine.at("project/src/main.txt")).unwrap(), "sourcemore\n", "{output}");
    assert!(!machine.at("project/top2").exists());
    // The program sees only its own processes.
    let seen: usize = output.lines().last().unwrap_or_default().trim().parse().unwrap_or(usize::MAX);
    assert!(output.contains("\nx\n") && seen < 10, "{output}");
}

fn nothing_outside_is_read() {
    if !is_offered(1, false) {
        return;
    }
    let machine = Machine::new();
    for path in [
        "home/.ssh/id_ed25519",
        "home/.netrc",
        "home/.cargo/credentials.toml",
        "user/.ai/keys/private.pem",
        "user/.ai/trust/x.json",
        "other/file.txt",
    ] {
        let output = machine.run_unsandboxed(&format!("cat {}", machine.at(path).display()));
        assert!(output.contains("Permission denied"), "{path}: {output}");
    }
    assert!(machine.run_unsandboxed("ls ~/.ssh").contains("Permission denied"));
    let shadow = machine.run_unsandboxed("cat /etc/shadow");
    assert!(shadow.contains("Permission denied") || shadow.contains("No such file"), "{shadow}");
    for (path, text) in [
        ("user/.ai/knowledge/x.md", "what the user knows"),
        ("project/src/main.txt", "source"),
        ("project/.env", "FROM_PROJECT"),
        ("project/.ai/directives/a.md", "# A"),
    ] {
        let output = machine.run_unsandboxed(&format!("cat {}", machine.at(path).display()));
        assert!(output.contains(text), "{path}: {output}");
    }
    assert_eq!(machine.run_unsandboxed("echo $SECRET_API_KEY"), "\n");
}

/// Tests that no program reads the keys, trust records and state of the user space and of the project. The project lies
/// beside, inside, above or at the place of the user space or the home folder.
fn keys_are_out_of_reach() {
    if !is_offered(3, false) {
        return;
    }
    let machine = Machine::new();
    for (path, text) in [
        ("project/.ai/keys/private.pem", "the private key"),
        ("home/.ai/keys/private.pem", "the private key"),
        ("home/.ai/trust/x.json", "the trust"),
        ("home/go/src/app/.ai/state/x", "the record"),
        ("home/go/src/app/main.txt", "source"),
        ("dotfiles/ai/keys/private.pem", "the private key"),
        ("dotfiles/ai/config/x.yaml", "a setting"),
    ] {
        let path = machine.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fs::create_dir(machine.at("linked")).unwrap();
    symlink(machine.at("dotfiles/ai"), machine.at("linked/.ai")).unwrap();
    let cases = [
        ("project", "user", "user/.ai/keys/private.pem", "project/top.txt"),
        ("project", "user", "project/.ai/keys/private.pem", "project/top.txt"),
        // The project is the user space.
        ("user", "user", "user/.ai/keys/private.pem", "user/.ai/knowledge/x.md"),
        ("user", "user", "user/.ai/trust/x.json", "user/.ai/knowledge/x.md"),
        ("home", "user", "home/.ai/keys/private.pem", "home/.netrc"),
        ("home", "user", "home/.ai/trust/x.json", "home/.netrc"),
        // The project contains the user space.
        ("", "user", "user/.ai/keys/private.pem", "other/file.txt"),
        ("", "user", "user/.ai/trust/x.json", "user/.ai/knowledge/x.md"),
        ("", "user", "home/.ai/keys/private.pem", "home/.netrc"),
        // The project contains the folder that the user's `.ai` is a link to.
        ("dotfiles", "linked", "dotfiles/ai/keys/private.pem", "dotfiles/ai/config/x.yaml"),
        // The project lies in a folder that programs may read.
        ("home/go/src/app", "user", "home/go/src/app/.ai/state/x", "home/go/src/app/main.txt"),
        ("project", "user", "home/.ai/keys/private.pem", "project/top.txt"),
    ];
    for (project, user, secret, readable) in cases {
        let run = |write: &str, command: &str| {
            let own = std::env::current_exe().unwrap();
            let mut started = Command::new(own);
            started.args([SANDBOXED_MODE, machine.at(project).to_str().unwrap(), write, "", command]);
            started.env("HOME", machine.at("home")).env("PATH", PATH).env("RYE_USER_SPACE", machine.at(user));
            let done = started.stdin(Stdio::null()).output().unwrap();
            format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr))
        };
        let case = format!("{secret} from `{project}`");
        let path = machine.at(secret);
        let before = fs::read(&path).unwrap();
        let (folder, secret) = (path.parent().unwrap().display(), path.display());
        let attacks = format!(
            "base64 {secret}; echo x > {secret}; echo x > {folder}/new; rm {secret}; mv {folder} {folder}2; ln {secret} out/key; cat out/key"
        );
        for write in ["", ".,.ai,.ai/keys,ai,ai/keys,user,home,out"] {
            let output = run(write, &attacks);
            for refused in [format!("{secret}: Permission denied"), format!("{folder}/new: Permission denied")] {
                assert!(output.contains(&refused), "{case}: {output}");
            }
            assert_eq!(output.matches(&format!("{secret}: Permission denied")).count(), 2, "{case}: {output}");
            assert!(!output.contains("the private key") && !output.contains("the trust"), "{case}: {output}");
            assert!(!output.contains("dGhlI"), "{case}: base64: {output}");
            assert_eq!(fs::read(&path).unwrap(), before, "{case}");
            assert!(!path.with_file_name("new").exists(), "{case}");
        }
        let output = run("out", &format!("cat {}; echo made > out/new; cat out/new", machine.at(readable).display()));
        assert!(!output.contains("denied") && output.ends_with("made\n"), "{case}: {output}");
    }
}

fn nothing_is_written_ungranted() {
    if !is_offered(3, false) {
        return;
    }
    let machine = Machine::new();
    for path in [
        "project/new.txt",
        "project/src/main.txt",
        "project/src/new.txt",
        "other/file.txt",
        "other/new",
        "home/.bashrc",
        "user/.ai/knowledge/x.md",
        "project/.git/hooks/pre-commit",
    ] {
        let output = machine.run_unsandboxed(&format!("echo x > {}", machine.at(path).display()));
        assert!(output.contains("Permission denied"), "{path}: {output}");
    }
    for command in [
        "truncate -s 0 src/main.txt",
        "rm src/main.txt",
        "mkdir src/x",
        "mv src/main.txt src/b.txt",
        "ln -s /etc src/l",
    ] {
        let output = machine.run_unsandboxed(command);
        assert!(
            output.contains("Permission denied") || output.contains("Invalid cross-device link"),
            "{command}: {output}"
        );
    }
    assert_eq!(fs::read_to_string(machine.at("project/src/main.txt")).unwrap(), "source");
}

fn what_is_granted_is_written() {
    if !is_offered(3, false) {
        return;
    }
    let machine = Machine::new();
    let output = machine.run(
        "out/,src",
        "",
        "echo a > out/a && echo b >> src/main.txt && mkdir src/d && mv src/main.txt src/d/m && cat src/d/m out/a",
    );
    assert_eq!(output, "sourceb\na\n");
    assert!(machine.run("out/", "", "echo x > top.txt").contains("Permission denied"));
    assert!(machine.run("out/", "", "echo x > sub/x").contains("Permission denied"));
    for outside in ["../other", "/", "out/../../other", "", "./.."] {
        let output = machine.run(outside, "", "echo x > ../other/x; echo x > top.txt");
        assert_eq!(output.matches("Permission denied").count(), 2, "{outside}: {output}");
        assert!(!machine.at("other/x").exists());
    }
    assert_eq!(machine.run("top.txt", "", "echo more >> top.txt; cat top.txt"), "topmore\n");
    assert_eq!(machine.run(".ai/data/", "", "echo 1 > .ai/data/y && cat .ai/data/y"), "1\n");
}

fn protected_paths_are_not_writable() {
    if !is_offered(3, false) {
        return;
    }
    let machine = Machine::new();
    for write in [".", "./", "sub,.git,.ai,.ai/config,.env,.ai/directives,."] {
        for path in [
            ".git/config",
            ".git/hooks/pre-commit",
            ".git/hooks/new",
            ".env",
            ".env.local",
            ".ai/config/agent/hooks.yaml",
            ".ai/directives/a.md",
            ".ai/directives/b.md",
            "sub/deep/.git/config",
            ".ai/state/x",
            "new.txt",
        ] {
            let output = machine.run(write, "", &format!("echo x > {path}"));
            assert!(output.contains("Permission denied"), "{write}: {path}: {output}");
        }
        for (path, command) in [
            (".git", "mv .git out"),
            (".git", "rm -rf .git"),
            (".env", "rm .env"),
            (".ai", "mv .ai src/ai"),
            ("sub/deep/.git", "mv sub/deep src/deep"),
        ] {
            machine.run(write, "", command);
            assert!(machine.at("project").join(path).exists(), "{write}: {command}");
        }
        let output = machine.run(write, "", "echo 1 > src/ok && echo 2 > top.txt && echo 3 > sub/deep/code.txt && echo 4 > .ai/data/z && cat src/ok top.txt sub/deep/code.txt .ai/data/z");
        assert_eq!(output, "1\n2\n3\n4\n", "{write}");
    }
}

fn thread_files_are_not_readable() {
    if !is_offered(1, false) {
        return;
    }
    let machine = Machine::new();
    for write in ["", ".", ".ai/data"] {
        let output = machine.run(write, "", "cat .ai/state/threads/t/transcript.jsonl; grep -r record .");
        assert!(output.contains("Permission denied") && !output.contains("the record"), "{write}: {output}");
    }
}

fn links_lead_nowhere_new() {
    if !is_offered(1, false) {
        return;
    }
    let machine = Machine::new();
    symlink(machine.at("home/.ssh"), machine.at("project/keys")).unwrap();
    symlink(machine.at("other"), machine.at("project/out")).unwrap();
    symlink(machine.at("project/.git"), machine.at("project/src/git")).unwrap();
    assert!(machine.run_unsandboxed("cat keys/id_ed25519").contains("Permission denied"));
    assert!(
        machine.run("keys/,out/,.", "", "cat keys/id_ed25519; echo x > out/x").matches("Permission denied").count()
            == 2
    );
    assert!(machine.run("src/", "", "echo x > src/git/config").contains("Permission denied"));
    // A hard link into a writable folder would make a protected path writable.
    let output = machine.run("src/", "", "ln .git/config src/config; ln .env src/env; echo x > src/config");
    assert_eq!(fs::read_to_string(machine.at("project/.git/config")).unwrap(), "[core]", "{output}");
}

fn no_socket_unless_granted() {
    if !is_offered(4, true) {
        return;
    }
    let machine = Machine::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for (kind, command) in [
        ("tcp", format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo open")),
        ("udp", format!("exec 3<>/dev/udp/127.0.0.1/{port} && echo x >&3 && echo open")),
    ] {
        let output = machine.run(".", "", &command);
        assert!(output.contains("Permission denied") && !output.contains("open"), "{kind}: {output}");
        assert!(machine.run("", "127.0.0.1", &command).contains("open"), "{kind} granted");
    }
    let python = "/usr/bin/python3";
    if Path::new(python).exists() {
        for family in ["AF_UNIX", "AF_INET6", "AF_NETLINK"] {
            let output =
                machine.run_unsandboxed(&format!("{python} -c 'import socket; socket.socket(socket.{family})'"));
            assert!(output.contains("PermissionError"), "{family}: {output}");
        }
        // A grant of hosts does not open local services: containers, session buses, key agents.
        let probe =
            |family: &str| format!("{python} -c 'import socket; socket.socket(socket.{family}); print(\"open\")'");
        for (family, opens) in
            [("AF_INET", true), ("AF_INET6", true), ("AF_NETLINK", true), ("AF_UNIX", false), ("AF_PACKET", false)]
        {
            let probe = if family == "AF_NETLINK" || family == "AF_PACKET" {
                probe(family).replace(family, &format!("{family}, socket.SOCK_RAW"))
            } else {
                probe(family)
            };
            let output = machine.run("", "example.com", &probe);
            assert!(
                output.contains("open") == opens && output.contains("PermissionError") != opens,
                "{family}: {output}"
            );
        }
        let pair = "import socket; a, b = socket.socketpair(); a.send(b\"hi\"); print(b.recv(2))";
        assert_eq!(machine.run_unsandboxed(&format!("{python} -c '{pair}'")), "b'hi'\n");
    }
}

fn the_owner_is_not_read() {
    if !is_offered(1, false) {
        return;
    }
    let machine = Machine::new();
    let own = std::process::id();
    for file in ["environ", "maps", "mem"] {
        let output = machine.run_unsandboxed(&format!(
            "cat /proc/{own}/{file} | tr '\\0' '\\n' | head -3; cat /proc/$PPID/{file} | head -c 100"
        ));
        assert!(output.matches("Permission denied").count() == 2, "{file}: {output}");
    }
}

fn outside_processes_get_no_signals() {
    if !is_offered(6, false) {
        return;
    }
    let machine = Machine::new();
    let output = machine.run_unsandboxed(&format!(
        "kill -0 {}; kill -STOP $PPID; kill -KILL $PPID; echo still here",
        std::process::id()
    ));
    assert_eq!(output.matches("Operation not permitted").count(), 3, "{output}");
    assert!(output.ends_with("still here\n"));
}

fn temporary_files_are_private() {
    if !is_offered(1, false) {
        return;
    }
    let machine = Machine::new();
    let output = machine
        .run_unsandboxed("f=$(mktemp) && echo 1 > $f && cat $f && stat -c %a $TMPDIR && cat <<< here && echo $TMPDIR");
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines.get(..3), Some(["1", "700", "here"].as_slice()), "{output}");
    assert!(!Path::new(lines[3]).exists(), "{output}");
    assert!(machine.run_unsandboxed("ls /tmp; echo x > /tmp/rye-wall-test").contains("Permission denied"));
}

fn usual_programs_run() {
    let machine = Machine::new();
    let output = machine.run_unsandboxed("ls src && sort top.txt && sh -c 'echo sh' && date > /dev/null && cat /proc/self/status | grep -c NoNewPrivs && id -u > /dev/null && echo end");
    assert_eq!(output, "main.txt\ntop\nsh\n1\nend\n");
    if Command::new("git").arg("--version").output().is_ok() {
        assert_eq!(machine.run_unsandboxed("git config user.name"), "Ada\n");
    }
    assert!(machine.run_unsandboxed("no-such-program").contains("command not found"));
    assert!(machine.run_unsandboxed("ulimit -c; ulimit -n").starts_with("0\n"));
}

/// Tests a fork bomb. Without supervision, the bomb ends at 4,095 processes, so that it does not harm other users of
/// this machine.
fn a_fork_bomb_ends() {
    let machine = Machine::new();
    let start = Instant::now();
    let bomb =
        "bomb() { if [ $1 -gt 0 ]; then bomb $(($1 - 1)) & bomb $(($1 - 1)) & fi; sleep 30; }; bomb 11; echo all of it";
    let output = machine.run_unsandboxed(bomb);
    assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
    let tail: String = output.chars().rev().take(400).collect::<Vec<_>>().into_iter().rev().collect();
    assert!(output.contains("processes at once") || output.contains("Resource temporarily unavailable"), "{tail}");
    assert!(!output.contains("all of it"), "{tail}");
}

/// Tests that the processes of other programs do not count against this program's limit.
fn other_programs_processes_do_not_count() {
    let machine = Machine::new();
    let output = std::thread::scope(|scope| {
        let program = scope.spawn(|| machine.run_unsandboxed("for i in $(seq 30); do sleep 0.05; done; echo done"));
        std::thread::sleep(Duration::from_millis(400));
        for _ in 0..700 {
            let crowd = std::thread::Builder::new().stack_size(64 * 1024);
            crowd.spawn_scoped(scope, || std::thread::sleep(Duration::from_millis(700))).unwrap();
        }
        program.join().unwrap()
    });
    assert_eq!(output, "done\n");
}
