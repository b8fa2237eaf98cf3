//! Tests of confinement: paths out of the project, hidden and protected paths, races.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use tempfile::TempDir;

use super::*;

/// A project, and a folder beside it that no path may reach.
struct ConfinedFolder {
    _base: TempDir,
    root: PathBuf,
    outside: PathBuf,
}

fn world() -> ConfinedFolder {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("project");
    let outside = base.path().join("outside");
    for dir in [".ai/state/threads", ".ai/directives", ".ai/data", ".git", "src/deep"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    fs::create_dir_all(&outside).unwrap();
    fs::write(root.join("a.txt"), "a").unwrap();
    fs::write(root.join("src/b.txt"), "b").unwrap();
    fs::write(root.join(".env"), "KEY=1").unwrap();
    fs::write(root.join(".git/config"), "g").unwrap();
    fs::write(root.join(".ai/state/threads/t.jsonl"), "secret").unwrap();
    fs::write(root.join(".ai/directives/d.md"), "d").unwrap();
    fs::write(outside.join("secret.txt"), "secret").unwrap();
    ConfinedFolder { root, outside, _base: base }
}

impl ConfinedFolder {
    fn project(&self) -> ProjectFiles {
        ProjectFiles::open(&self.root, Vec::new()).unwrap()
    }

    fn read(&self, path: &str) -> Result<String, String> {
        let project = self.project();
        let place = project.locate(path).map_err(|e| e.to_string())?;
        let (file, _) = project.open_file(&place).map_err(|e| e.to_string())?;
        Ok(std::io::read_to_string(file).unwrap())
    }

    fn write(&self, path: &str, grants: &[&[&str]]) -> Result<WriteEffect, String> {
        let grants = grants.iter().map(|l| l.iter().map(|s| (*s).to_owned()).collect()).collect();
        let project = ProjectFiles::open(&self.root, grants).unwrap();
        let place = project.locate(path).map_err(|e| e.to_string())?;
        project.replace(&place, b"new", None).map_err(|e| e.to_string())
    }
}

#[test]
fn locate_accepts_every_spelling_of_a_path_inside() {
    let w = world();
    let absolute = w.root.join("src/b.txt");
    for path in
        ["src/b.txt", "./src/b.txt", "src//b.txt", "src/./b.txt", "src/deep/../b.txt", absolute.to_str().unwrap()]
    {
        assert_eq!(w.read(path).unwrap(), "b", "{path}");
    }
    assert_eq!(w.project().locate(".").unwrap().path.to_string(), ".");
    assert_eq!(w.project().locate("src/..").unwrap().path.to_string(), ".");
    assert_eq!(w.project().locate("src/deep/").unwrap().path.to_string(), "src/deep");
}

#[test]
fn paths_that_leave_are_refused() {
    let w = world();
    let absolute = w.outside.join("secret.txt");
    let dotted = format!("{}/../outside/secret.txt", w.root.display());
    for path in [
        "../outside/secret.txt",
        "src/../../outside/secret.txt",
        "/etc/passwd",
        "..",
        absolute.to_str().unwrap(),
        &dotted,
    ] {
        let e = w.read(path).unwrap_err();
        assert!(e.contains("not inside the project"), "{path}: {e}");
        assert!(w.write(path, &[]).is_err(), "{path}");
    }
    assert_eq!(fs::read_to_string(absolute).unwrap(), "secret");
}

#[test]
fn locate_refuses_a_sibling_with_the_same_prefix() {
    let w = world();
    let twin = w.root.with_file_name("project-twin");
    fs::create_dir(&twin).unwrap();
    fs::write(twin.join("x"), "secret").unwrap();
    assert!(w.read(twin.join("x").to_str().unwrap()).unwrap_err().contains("not inside"));
}

#[test]
fn links_inside_are_followed_and_links_out_refused() {
    let w = world();
    symlink("src", w.root.join("inner")).unwrap();
    symlink(w.root.join("a.txt"), w.root.join("absolute")).unwrap();
    symlink("../../outside/secret.txt", w.root.join("src/out")).unwrap();
    symlink(&w.outside, w.root.join("away")).unwrap();
    symlink("loop2", w.root.join("loop1")).unwrap();
    symlink("loop1", w.root.join("loop2")).unwrap();
    assert_eq!(w.read("inner/b.txt").unwrap(), "b");
    assert_eq!(w.read("absolute").unwrap(), "a");
    for path in ["src/out", "away/secret.txt", "inner/out"] {
        let e = w.read(path).unwrap_err();
        assert!(e.contains("leads out of the project"), "{path}: {e}");
        assert!(w.write(path, &[]).is_err());
    }
    assert!(w.read("loop1").unwrap_err().contains("loop"));
    assert_eq!(fs::read_to_string(w.outside.join("secret.txt")).unwrap(), "secret");
}

#[test]
fn state_is_hidden_under_every_name() {
    let w = world();
    symlink(".ai/state", w.root.join("s")).unwrap();
    symlink("../.ai/state/threads/t.jsonl", w.root.join("src/t")).unwrap();
    fs::hard_link(w.root.join(".ai/state/threads/t.jsonl"), w.root.join("hard")).unwrap();
    fs::hard_link(w.root.join("a.txt"), w.root.join("fine")).unwrap();
    for path in [
        ".ai/state",
        ".ai/state/threads/t.jsonl",
        ".ai/state/nothing",
        ".ai//state/",
        ".ai/./state",
        "src/../.ai/state",
        "s",
        "s/threads/t.jsonl",
        "src/t",
        "hard",
    ] {
        let e = w.read(path).unwrap_err();
        assert!(e.contains("is hidden from tools"), "{path}: {e}");
    }
    assert_eq!(w.read("fine").unwrap(), "a");
}

#[test]
fn file_tools_never_read_or_write_keys_and_trust() {
    let w = world();
    for (path, text) in
        [(".ai/keys/private.pem", "key"), (".ai/trust/x.json", "{}"), ("sub/.ai/keys/private.pem", "key")]
    {
        fs::create_dir_all(w.root.join(path).parent().unwrap()).unwrap();
        fs::write(w.root.join(path), text).unwrap();
    }
    symlink(".ai/keys", w.root.join("k")).unwrap();
    symlink("../.ai/trust/x.json", w.root.join("src/t")).unwrap();
    fs::hard_link(w.root.join(".ai/keys/private.pem"), w.root.join("hard")).unwrap();
    for path in [
        ".ai/keys",
        ".ai/keys/private.pem",
        ".AI/Keys/private.pem",
        ".ai/trust/x.json",
        "sub/.ai/keys/private.pem",
        "src/../.ai/keys/private.pem",
        "k/private.pem",
        "src/t",
        "hard",
    ] {
        let e = w.read(path).unwrap_err();
        assert!(e.contains("is hidden from tools"), "{path}: {e}");
    }
    for path in [".ai/keys/private.pem", ".ai/keys/trusted/new.pem", ".ai/trust/x.json", "k/new", "src/t"] {
        let e = w.write(path, &[&["rye.*"]]).unwrap_err();
        assert!(e.contains("is hidden from tools"), "{path}: {e}");
    }
    assert_eq!(fs::read_to_string(w.root.join(".ai/keys/private.pem")).unwrap(), "key");
}

#[test]
fn missing_state_is_hidden_too() {
    let w = world();
    fs::remove_dir_all(w.root.join(".ai")).unwrap();
    assert!(w.read(".ai/state/x").unwrap_err().contains("is hidden from tools"));
    assert!(w.write(".ai/state/x", &[]).is_err());
    assert!(!w.root.join(".ai").exists());
}

#[test]
fn protected_paths_are_read_only_under_every_name() {
    let w = world();
    symlink(".git", w.root.join("g")).unwrap();
    symlink("../.env", w.root.join("src/e")).unwrap();
    for path in
        [".git/config", ".git/hooks/new", ".env", ".env.local", ".ai/config/agent/hooks.yaml", "g/config", "src/e"]
    {
        assert!(w.write(path, &[]).unwrap_err().contains("read-only"), "{path}");
    }
    assert_eq!(w.read(".env").unwrap(), "KEY=1");
    assert_eq!(w.read("g/config").unwrap(), "g");
    assert_eq!(w.write(".ai/data/x/y.json", &[]).unwrap(), WriteEffect::Created);
}

#[test]
fn write_that_completes_a_bare_repository_is_refused() {
    for last in ["b/HEAD", "b/objects/x", "b/refs/heads/x", "b/head"] {
        let w = world();
        let parts = ["b/HEAD", "b/objects/x", "b/refs/heads/x"];
        for part in parts.iter().filter(|part| !part.eq_ignore_ascii_case(last)) {
            w.write(part, &[]).unwrap();
        }
        assert!(w.write(last, &[]).unwrap_err().contains("is a git repository"), "{last}");
        assert!(!w.root.join(last).exists(), "{last}");
        assert_eq!(w.write("b/config", &[]).unwrap(), WriteEffect::Created);
    }
    let w = world();
    for folder in ["b/objects", "b/refs", "worktree"] {
        fs::create_dir_all(w.root.join(folder)).unwrap();
    }
    fs::write(w.root.join("b/HEAD"), "ref: refs/heads/main").unwrap();
    for path in ["b/config", "b/hooks/pre-commit", "b/HEAD"] {
        assert!(w.write(path, &[]).unwrap_err().contains("is a git repository"), "{path}");
    }
    w.write("worktree/HEAD", &[]).unwrap();
    assert!(w.write("worktree/commondir", &[]).is_err());
    assert_eq!(w.write("objects/refs/HEAD", &[]).unwrap(), WriteEffect::Created);
}

#[test]
fn items_are_written_only_with_every_links_grant() {
    let w = world();
    let own = "rye.sign.directive.d";
    let e = w.write(".ai/directives/d.md", &[]).unwrap_err();
    assert_eq!(
        e,
        "writing `.ai/directives/d.md` needs the capability `rye.sign.directive.d`, which this thread does not have"
    );
    assert!(w.write(".ai/directives/d.md", &[&["rye.sign.tool.*"]]).is_err());
    assert!(w.write(".ai/directives/d.md", &[&[own], &[]]).is_err());
    assert!(w.write(".ai/directives/d.md", &[&[own], &["rye.sign.*"]]).is_ok());
    assert!(w.write(".ai/directives/d.txt", &[&["rye.*"]]).unwrap_err().contains("read-only"));
}

#[test]
fn only_regular_files_are_opened() {
    let w = world();
    rustix::fs::mkfifoat(rustix::fs::CWD, w.root.join("pipe"), Mode::from_raw_mode(0o600)).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(w.root.join("socket")).unwrap();
    assert!(w.read("pipe").unwrap_err().contains("is a pipe"));
    assert!(w.read("socket").unwrap_err().contains("is a socket"));
    assert!(w.write("pipe", &[]).unwrap_err().contains("is a pipe"));
    assert!(w.read("src").unwrap_err().contains("is a folder"));
    assert!(w.read("a.txt/").unwrap_err().contains("is not a folder"));
    assert!(w.read("a.txt/x").unwrap_err().contains("is not a folder"));
    assert!(w.read("nothing").unwrap_err().contains("does not exist"));
    assert!(w.read("").is_err());
    assert!(w.read("a\0b").is_err());
    assert!(w.read(&"x/".repeat(5000)).is_err());
    assert!(w.read(&"x".repeat(300)).is_err());
}

#[test]
fn replace_keeps_the_mode_and_other_hard_links() {
    let w = world();
    let script = w.root.join("run.sh");
    fs::write(&script, "old").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o750)).unwrap();
    fs::hard_link(&script, w.outside.join("other")).unwrap();
    symlink("run.sh", w.root.join("link")).unwrap();
    assert_eq!(w.write("link", &[]).unwrap(), WriteEffect::Replaced);
    assert_eq!(fs::read_to_string(&script).unwrap(), "new");
    assert_eq!(fs::metadata(&script).unwrap().permissions().mode() & 0o7777, 0o750);
    assert_eq!(fs::read_to_string(w.outside.join("other")).unwrap(), "old");
    assert!(fs::symlink_metadata(w.root.join("link")).unwrap().is_symlink());
    assert_eq!(w.write("new/folder/x", &[]).unwrap(), WriteEffect::Created);
    assert!(w.write("a.txt/x", &[]).is_err());
    assert!(w.write("new/../y/../z", &[]).is_err());
    fs::set_permissions(&script, fs::Permissions::from_mode(0o444)).unwrap();
    assert!(w.write("run.sh", &[]).unwrap_err().contains("write-protected"));
    let left: Vec<_> =
        fs::read_dir(&w.root).unwrap().flatten().filter(|e| e.file_name().to_string_lossy().contains(".tmp")).collect();
    assert!(left.is_empty());
}

#[test]
fn open_file_rejects_a_link_swapped_in_after_locate() {
    let w = world();
    let project = w.project();
    let place = project.locate("a.txt").unwrap();
    fs::remove_file(w.root.join("a.txt")).unwrap();
    symlink(w.outside.join("secret.txt"), w.root.join("a.txt")).unwrap();
    assert!(matches!(project.open_file(&place), Err(FileAccessError::Changed { .. })));
    // A write replaces the link itself.
    project.replace(&place, b"new", None).unwrap();
    assert_eq!(fs::read_to_string(w.outside.join("secret.txt")).unwrap(), "secret");
}

#[test]
fn replace_rejects_a_changed_file() {
    let w = world();
    let project = w.project();
    let place = project.locate("a.txt").unwrap();
    let ResolvedKind::File { stat, .. } = &place.found else { panic!("a file") };
    let version = FileVersion::of(stat);
    fs::write(w.root.join("a.txt"), "has changed since it was read").unwrap();
    assert!(matches!(project.replace(&place, b"new", Some(version)), Err(FileAccessError::Changed { .. })));
    assert_eq!(fs::read_to_string(w.root.join("a.txt")).unwrap(), "has changed since it was read");
}

#[test]
fn names_with_control_characters_stay_on_one_line() {
    let w = world();
    fs::write(w.root.join("x\n.env  99"), "x").unwrap();
    let e = w.read("y\n\u{1b}[31m").unwrap_err();
    assert!(!e.contains('\n') && !e.contains('\u{1b}'), "{e}");
    assert_eq!(w.project().locate("x\n.env  99").unwrap().path.to_string(), "x\\n.env  99");
}

mod any_path {
    use proptest::prelude::*;

    use super::*;

    fn segment() -> impl Strategy<Value = &'static str> {
        let words = [
            "a.txt", "src", "b.txt", "deep", ".ai", "state", "threads", "t.jsonl", "..", ".", "", "up", "home",
            "hidden", "self", "OUT",
        ];
        prop::sample::select(words.to_vec())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(150))]

        /// An opened file is the file that the kernel finds at that path, inside the project and outside its state.
        #[test]
        fn locate_agrees_with_the_kernel(words in prop::collection::vec(segment(), 1..7), absolute: bool) {
            let w = world();
            symlink("..", w.root.join("src/up")).unwrap();
            symlink(&w.outside, w.root.join("OUT")).unwrap();
            symlink(&w.root, w.root.join("home")).unwrap();
            symlink("../.ai/state", w.root.join("src/hidden")).unwrap();
            symlink(".", w.root.join("src/self")).unwrap();
            let joined = words.join("/");
            let path = if absolute { format!("{}/{joined}", w.root.display()) } else { joined };
            let real = if path.starts_with('/') { PathBuf::from(&path) } else { w.root.join(&path) }.canonicalize();
            let root = w.root.canonicalize().unwrap();
            let project = w.project();
            match project.locate(&path) {
                Ok(place) if !matches!(place.found, ResolvedKind::Missing { .. }) => {
                    let real = real.unwrap();
                    prop_assert_eq!(place.path.below(&root), real.clone());
                    prop_assert!(real.starts_with(&root) && !real.starts_with(root.join(".ai/state")));
                }
                Ok(_) => prop_assert!(real.is_err()),
                // A path that leaves the project on its way is refused, even if it leads back.
                Err(FileAccessError::Outside { .. } | FileAccessError::LeadsOut { .. }) => {}
                Err(FileAccessError::Hidden { .. }) => prop_assert!(path.contains("state") || path.contains("hidden")),
                Err(_) => prop_assert!(real.is_err() || path.is_empty()),
            }
        }
    }
}
