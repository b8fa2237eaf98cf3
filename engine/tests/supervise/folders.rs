//! Protected paths that a sandboxed program creates in a granted folder, and paths beside the project.

use std::fs;
use std::process::{Command, Stdio};

use super::sandboxes::{Machine, PATH, SANDBOXED_MODE, is_offered};

pub const TESTS: [(&str, fn()); 4] = [
    ("leftovers: protected paths in a granted folder are renamed and reported", protected_paths_are_renamed),
    ("leftovers: a cancelled program leaves none", cancelled_program_leaves_none),
    ("folders: settings with credentials are not read", settings_with_credentials_are_not_read),
    ("folders: the record is not read wherever the project lies", state_is_not_read_in_any_place),
];

fn protected_paths_are_renamed() {
    if !is_offered(1, false) {
        return;
    }
    let machine = Machine::new();
    let output = machine.run(
        "src/",
        "",
        "cd src; git init -q . && git config core.fsmonitor ./x; mkdir -p d/x d/.AI/tools; mv d/x d/.git; echo A=1 > .env; \
         git init -q --bare b; ln -s /etc e; (sleep 0.05; mkdir late .late; mv late .git2) & echo done",
    );
    assert!(output.contains("done"), "{output}");
    for path in ["src/.git", "src/d/.git", "src/d/.AI", "src/.env", "src/b/HEAD"] {
        assert!(output.contains(&format!("`{path}`")), "{path}: {output}");
        assert!(fs::symlink_metadata(machine.at(&format!("project/{path}"))).is_err(), "{path}");
    }
    assert!(machine.at("project/src/refused-git/config").exists());
    assert!(machine.at("project/src/main.txt").exists() && machine.at("project/.git/config").exists());
    let again = machine.run("src/", "", "echo fine > src/x");
    assert_eq!(again, "", "nothing is reported twice");
}

fn cancelled_program_leaves_none() {
    if !is_offered(1, false) {
        return;
    }
    let machine = Machine::new();
    // The program ends the group that it is in, itself included.
    machine.run("src/", "", "mkdir src/.git; kill -9 0");
    assert!(!machine.at("project/src/.git").exists() && machine.at("project/src/refused-git").exists());
}

fn settings_with_credentials_are_not_read() {
    if !is_offered(1, false) {
        return;
    }
    let machine = Machine::new();
    for (path, text) in [
        ("home/.gitconfig", "[user]\n\tname = Ada\n[http]\n\textraHeader = \"A: the-secret\"\n"),
        ("home/.cargo/config.toml", "[registry]\ntoken = \"the-secret\"\n[net]\noffline = true\n"),
        ("home/.local/share/uv/credentials/x", "the-secret"),
        ("home/go/src/private/x", "the-secret"),
        ("home/.pyenv/x", "the-secret"),
        ("home/.npm/_logs/x", "the-secret"),
        ("home/go/bin/tool", "code"),
        ("home/.local/share/uv/tools/x/y", "code"),
        ("home/.cargo/registry/src/x", "code"),
    ] {
        let path = machine.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let output = machine.run(
        "",
        "",
        "cat ~/.gitconfig ~/.cargo/config.toml ~/.cargo/credentials.toml ~/.local/share/uv/credentials/x ~/go/src/private/x \
         ~/.pyenv/x ~/.npm/_logs/x $GIT_CONFIG_GLOBAL $CARGO_HOME/config.toml 2>/dev/null; git config user.name; \
         cat ~/go/bin/tool ~/.local/share/uv/tools/x/y $CARGO_HOME/registry/src/x",
    );
    assert!(!output.contains("secret") && output.contains("offline = true"), "{output}");
    assert!(output.ends_with("Ada\ncodecodecode"), "{output}");
}

fn state_is_not_read_in_any_place() {
    if !is_offered(1, false) {
        return;
    }
    // Each case is the folder of the project, and the folders that precede the usual folders in `PATH`. Folders below
    // `opt` are in the machine, the others are relative.
    for (place, path) in [
        ("home/go/src/p", ""),
        ("home/go/pkg/mod/p", ""),
        ("home/go/bin", ""),
        ("home/.cargo/registry/src/p", ""),
        ("home/.local/lib/p", ""),
        ("opt/p", "opt:"),
        ("opt/p", "opt/p:"),
        ("opt/p", "opt/p/.ai/state:"),
        ("opt/p", ".:"),
        ("opt/p", "bin:.ai/state:"),
    ] {
        let machine = Machine::new();
        let project = machine.at(place);
        for (file, text) in
            [(".ai/state/x", "the-record"), (".ai/keys/k", "the-key"), ("bin/evil", "#!/bin/sh\necho evil\n")]
        {
            let file = project.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, text).unwrap();
            Command::new("chmod").arg("+x").arg(&file).status().unwrap();
        }
        let folders: Vec<String> =
            path.split_terminator(':')
                .map(|folder| {
                    if folder.starts_with("opt") { machine.at(folder).display().to_string() } else { folder.to_owned() }
                })
                .chain([PATH.to_owned()])
                .collect();
        let command = "cat .ai/state/x .ai/keys/k; ls .ai/state .ai/keys >/dev/null; evil; cat bin/evil; echo $PATH";
        let output = Command::new(std::env::current_exe().unwrap())
            .args([SANDBOXED_MODE, project.to_str().unwrap(), "", "", command])
            .env("HOME", machine.at("home"))
            .env("PATH", folders.join(":"))
            .env("RYE_USER_SPACE", machine.at("user"))
            .current_dir(&project)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!output.contains("the-record") && !output.contains("the-key"), "{place} {path}: {output}");
        assert!(output.contains("#!/bin/sh") && !output.contains("\nevil\n"), "{place} {path}: {output}");
        let search = output.lines().last().unwrap_or_default();
        assert!(search.split(':').all(|folder| folder.starts_with('/')), "{place} {path}: {search}");
    }
}
