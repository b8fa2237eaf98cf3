//! Attacks on files, local services and privileges outside of the sandbox, as root and as an ordinary user. The test
//! compares everything outside of the granted folder before and after the attempts.
#![allow(clippy::print_stderr, reason = "a test that is skipped says why")]

use std::collections::BTreeMap;
use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

use super::attacks::{ATTEMPTS, USER, attack, can_become_user, count_refused, give_to, has_python};
use super::sandboxes::{Machine, is_offered};

pub const TESTS: [(&str, fn()); 2] = [
    ("attacks: every file, service and privilege stays out of reach", everything_stays_out_of_reach),
    ("attacks: every file, service and privilege stays out of reach of an ordinary user", out_of_reach_of_a_user),
];

const SCRIPT: &str = include_str!("file_attacks.py");
const MIN_ATTEMPTS: usize = 350;
/// Files of a home folder that hold credentials or private data.
const CREDENTIALS: [&str; 59] = [
    ".ssh/id_ed25519",
    ".ssh/config",
    ".netrc",
    ".aws/credentials",
    ".azure/accessTokens.json",
    ".kube/config",
    ".config/gcloud/application_default_credentials.json",
    ".config/gh/hosts.yml",
    ".config/rclone/rclone.conf",
    ".config/op/config",
    ".config/pip/pip.conf",
    ".config/uv/uv.toml",
    ".config/containers/auth.json",
    ".config/git/credentials",
    ".docker/config.json",
    ".git-credentials",
    ".gnupg/private-keys-v1.d/x.key",
    ".password-store/x.gpg",
    ".local/share/keyrings/login.keyring",
    ".local/share/uv/credentials/x",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".pip/pip.conf",
    ".condarc",
    ".gem/credentials",
    ".bundle/config",
    ".composer/auth.json",
    ".m2/settings.xml",
    ".gradle/gradle.properties",
    ".sbt/credentials",
    ".cargo/credentials.toml",
    ".cargo/config.toml",
    ".terraform.d/credentials.tfrc.json",
    ".vault-token",
    ".pgpass",
    ".my.cnf",
    ".bash_history",
    ".python_history",
    ".node_repl_history",
    ".mozilla/firefox/x/logins.json",
    ".config/google-chrome/Default/Cookies",
    ".thunderbird/x",
    ".env",
    ".envrc",
    ".profile",
    ".bashrc",
    ".nvm/.cache/x",
    ".pyenv/x",
    ".rustup/x",
    ".deno/x",
    ".npm/_logs/x",
    ".asdf/x",
    ".bun/x",
    "go/src/private/x",
    ".config/hub",
    ".config/rye/x",
    ".codex/auth.json",
    ".config/helm/x",
];
/// Variables of the shell that starts the engine.
const VARIABLES: [&str; 9] = [
    "ANTHROPIC_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "BASH_ENV",
    "DBUS_SESSION_BUS_ADDRESS",
    "GITHUB_TOKEN",
    "GIT_SSH_COMMAND",
    "NODE_OPTIONS",
    "PYTHONPATH",
    "SSH_AUTH_SOCK",
];

fn everything_stays_out_of_reach() {
    attempt_all(None);
}

fn out_of_reach_of_a_user() {
    if can_become_user() {
        attempt_all(Some(USER));
    }
}

fn machine() -> Machine {
    let machine = Machine::new();
    let planted = [
        ("project/attacks.py", SCRIPT.to_owned()),
        ("project/attempts.py", ATTEMPTS.to_owned()),
        ("project/credentials.txt", CREDENTIALS.join("\n")),
        ("project/out/.keep", String::new()),
        ("project/.ai/tools/x.yaml", "kind: builtin".to_owned()),
        ("project/.ai/keys/k", "the private key".to_owned()),
        ("home/.bashrc", "the settings".to_owned()),
        ("run/.keep", String::new()),
    ];
    let credentials = CREDENTIALS.map(|path| (format!("home/{path}"), "the secret key".to_owned()));
    for (path, text) in planted.into_iter().map(|(path, text)| (path.to_owned(), text)).chain(credentials) {
        let path = machine.at(&path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    for folder in ["project/empty", "project/.ai/empty"] {
        fs::create_dir(machine.at(folder)).unwrap();
    }
    machine
}

/// Returns the content of every file outside of the granted folder.
fn content(machine: &Machine) -> BTreeMap<String, Vec<u8>> {
    fn collect(folder: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let text = if kind.is_file() { fs::read(&path).unwrap() } else { format!("{kind:?}").into_bytes() };
            found.insert(path.display().to_string(), text);
            if kind.is_dir() && !path.ends_with("project/out") {
                collect(&path, found);
            }
        }
    }
    let mut found = BTreeMap::new();
    collect(&machine.at(""), &mut found);
    found
}

/// Runs all attempts as the user `uid`, or as the current user if `uid` is `None`; without and with a grant of the
/// network.
fn attempt_all(uid: Option<u32>) {
    if !is_offered(6, true) || !has_python() {
        return;
    }
    let machine = machine();
    let name = format!("rye-attack-{}-{}", std::process::id(), uid.unwrap_or_default());
    let listeners = [
        UnixListener::bind(machine.at("home/.ssh/agent.sock")).unwrap(),
        UnixListener::bind(machine.at("run/bus")).unwrap(),
        UnixListener::bind(machine.at("project/out/service.sock")).unwrap(),
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap(),
    ];
    if let Some(uid) = uid {
        give_to(&machine.at(""), uid);
    }
    if rustix::process::getuid().is_root() {
        let program = machine.at("project/setuid-id");
        fs::copy("/usr/bin/id", &program).unwrap();
        let owner = if uid.is_some() { 0 } else { USER };
        chown(&program, Some(owner), Some(owner)).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    }
    let before = content(&machine);
    for net in ["", "example.com"] {
        let kind = if net.is_empty() { "none" } else { "net" };
        let mut run = attack(&machine, &format!("{} {name} {kind}", machine.at("").display()), net, uid);
        run.env("RYE_USER_SPACE", machine.at("user")).envs(VARIABLES.map(|name| (name, "/of-the-owner")));
        let refused = count_refused(run);
        assert!(refused >= MIN_ATTEMPTS, "{refused} attempts, net: {net:?}");
        let after = content(&machine);
        let changed: Vec<&String> =
            before.keys().chain(after.keys()).filter(|path| before.get(*path) != after.get(*path)).collect();
        assert_eq!(changed, [""; 0], "net: {net:?}");
        for listener in &listeners {
            listener.set_nonblocking(true).unwrap();
            assert!(listener.accept().is_err(), "{listener:?} has a client");
        }
    }
}
