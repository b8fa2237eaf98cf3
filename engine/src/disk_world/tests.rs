//! Tests of the disk world: precedence, refusals, and omitted files.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;

fn id(text: &str) -> ItemId {
    ItemId::parse(text).unwrap()
}

fn world(project: &Path, user: Option<&Path>) -> DiskWorld {
    let system: [(String, &[u8]); 2] =
        [(".ai/knowledge/shared.md".to_owned(), b"system"), (".ai/knowledge/only.md".to_owned(), b"system only")];
    DiskWorld::open(Some(project), user, system, TrustStore::default()).unwrap()
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn candidates_are_ordered_by_space_precedence() {
    let (project, user) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(project.path(), ".ai/knowledge/shared.md", "project");
    write(user.path(), ".ai/knowledge/shared.yaml", "user");
    let world = world(project.path(), Some(user.path()));
    for listed_first in [false, true] {
        if listed_first {
            assert_eq!(world.list(ItemKind::Knowledge).unwrap().len(), 4);
        }
        let found = world.candidates(ItemKind::Knowledge, &id("shared")).unwrap();
        let texts: Vec<_> = found.iter().map(|l| String::from_utf8_lossy(&l.bytes).into_owned()).collect();
        assert_eq!(texts, ["project", "user", "system"]);
        assert!(world.candidates(ItemKind::Knowledge, &id("nothing")).unwrap().is_empty());
    }
}

#[test]
fn worlds_of_one_process_share_the_system_files() {
    let project = tempfile::tempdir().unwrap();
    let system = SystemFiles::from([(".ai/knowledge/only.md".to_owned(), b"system only".as_slice())]);
    let open = || DiskWorld::open(Some(project.path()), None, system.clone(), TrustStore::default()).unwrap();
    let (one, other) = (open(), open());
    assert!(std::sync::Arc::ptr_eq(&one.system.0, &other.system.0));
    assert_eq!(other.candidates(ItemKind::Knowledge, &id("only")).unwrap().len(), 1);
}

#[test]
fn two_files_of_one_id_are_refused() {
    let project = tempfile::tempdir().unwrap();
    write(project.path(), ".ai/tools/a/b.yaml", "");
    write(project.path(), ".ai/tools/a/b.sh", "");
    let found = world(project.path(), None).candidates(ItemKind::Tool, &id("a/b"));
    assert!(matches!(found, Err(WorldError::Ambiguous { .. })));
}

#[test]
fn prompts_and_skills_of_other_clients_have_lower_precedence() {
    let (project, user) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let files = [
        ".ai/skills/s/SKILL.md",
        ".ai/skills/a/b/c/s/SKILL.md",
        ".agents/skills/s/SKILL.md",
        ".claude/skills/s/SKILL.md",
        ".ai/prompts/p/q.md",
        ".claude/commands/p/q.md",
    ];
    for path in files.into_iter().chain([".claude/skills/a/b/c/d/deep/SKILL.md", ".claude/skills/.x/hidden/SKILL.md"]) {
        write(project.path(), path, path);
    }
    write(user.path(), ".claude/skills/s/SKILL.md", "user");
    for remaining in 1..=4 {
        let world = world(project.path(), Some(user.path()));
        let found = world.candidates(ItemKind::Skill, &id("s")).unwrap();
        let texts: Vec<_> = found.iter().map(|l| String::from_utf8_lossy(&l.bytes).into_owned()).collect();
        assert_eq!(texts, [files[remaining - 1], "user"]);
        assert_eq!(world.list(ItemKind::Skill).unwrap().len(), 4 - remaining + 2, "neither deeper nor hidden ones");
        fs::remove_file(project.path().join(files[remaining - 1])).unwrap();
    }
    let world = world(project.path(), None);
    let found = world.candidates(ItemKind::Prompt, &id("p/q")).unwrap();
    assert_eq!(found.iter().map(|file| file.path.as_ref()).collect::<Vec<_>>(), [".ai/prompts/p/q.md"]);
    assert_eq!(world.list(ItemKind::Prompt).unwrap().len(), 2);
}

#[test]
fn links_of_other_clients_that_leave_the_space_are_no_items() {
    let (project, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(outside.path(), "SKILL.md", "secret");
    write(project.path(), ".agents/skills/s/SKILL.md", "inside");
    fs::create_dir_all(project.path().join(".claude/skills")).unwrap();
    symlink("../../.agents/skills/s", project.path().join(".claude/skills/linked")).unwrap();
    symlink(outside.path(), project.path().join(".claude/skills/leak")).unwrap();
    let world = world(project.path(), None);
    let listed = world.list(ItemKind::Skill).unwrap();
    assert_eq!(listed.iter().map(|entry| entry.id.as_str()).collect::<Vec<_>>(), ["linked", "s"]);
    assert!(world.candidates(ItemKind::Skill, &id("leak")).unwrap().is_empty());
    let unrecognized = world.unrecognized_files().unwrap();
    assert!(
        unrecognized.iter().any(|unrecognized_file| unrecognized_file.path.as_ref() == ".claude/skills/leak"),
        "{unrecognized:?}"
    );
}

#[test]
fn links_leaving_the_space_are_refused() {
    let (project, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(outside.path().join("secret.md"), "secret").unwrap();
    write(project.path(), ".ai/knowledge/real.md", "here");
    symlink("real.md", project.path().join(".ai/knowledge/same.md")).unwrap();
    let inside = world(project.path(), None);
    assert_eq!(inside.candidates(ItemKind::Knowledge, &id("same")).unwrap().first().unwrap().bytes.as_ref(), b"here");
    assert!(inside.list(ItemKind::Knowledge).is_ok());

    symlink(outside.path().join("secret.md"), project.path().join(".ai/knowledge/leak.md")).unwrap();
    symlink(outside.path(), project.path().join(".ai/knowledge/folder")).unwrap();
    symlink("nowhere.md", project.path().join(".ai/knowledge/gone.md")).unwrap();
    let world = world(project.path(), None);
    for (name, escapes) in [("leak", true), ("folder/secret", true), ("gone", false)] {
        let error = world.candidates(ItemKind::Knowledge, &id(name)).unwrap_err();
        assert_eq!(matches!(error, WorldError::Escapes { .. }), escapes, "{name}: {error}");
    }
    assert!(world.list(ItemKind::Knowledge).is_err());
}

#[test]
fn an_item_that_leads_to_a_key_is_refused() {
    let (project, user) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for root in [project.path(), user.path()] {
        write(root, ".ai/keys/private.pem", "key");
        write(root, ".ai/trust/x.json", "{}");
        write(root, ".ai/knowledge/fine.md", "text");
        symlink("../keys/private.pem", root.join(".ai/knowledge/link.md")).unwrap();
        symlink("../trust/x.json", root.join(".ai/knowledge/record.yaml")).unwrap();
        fs::hard_link(root.join(".ai/keys/private.pem"), root.join(".ai/knowledge/hard.md")).unwrap();
    }
    for (first, second) in [(project.path(), None), (tempfile::tempdir().unwrap().path(), Some(user.path()))] {
        let world = world(first, second);
        for name in ["link", "record", "hard"] {
            let error = world.candidates(ItemKind::Knowledge, &id(name)).unwrap_err();
            assert!(error.to_string().contains("`.ai/keys` or `.ai/trust`"), "{name}: {error}");
        }
        assert_eq!(world.candidates(ItemKind::Knowledge, &id("fine")).unwrap().len(), 1);
    }
}

#[test]
fn special_file_is_refused_without_blocking() {
    let project = tempfile::tempdir().unwrap();
    write(project.path(), ".ai/knowledge/x.md", "");
    let pipe = project.path().join(".ai/knowledge/pipe.md");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600), 0)
        .unwrap();
    fs::create_dir(project.path().join(".ai/knowledge/folder.md")).unwrap();
    let world = world(project.path(), None);
    for name in ["pipe", "folder"] {
        let found = world.candidates(ItemKind::Knowledge, &id(name));
        assert!(matches!(found, Err(WorldError::Unreadable { .. })), "{name}");
    }
}

#[test]
fn oversized_file_is_refused_unread() {
    let project = tempfile::tempdir().unwrap();
    write(project.path(), ".ai/knowledge/huge.md", "");
    // The file is sparse and takes no space on disk.
    let file = fs::File::options().write(true).open(project.path().join(".ai/knowledge/huge.md")).unwrap();
    file.set_len(1 << 40).unwrap();
    let found = world(project.path(), None).candidates(ItemKind::Knowledge, &id("huge"));
    assert!(
        matches!(&found, Err(WorldError::Unreadable { reason, .. }) if reason.contains("larger than 64 MiB")),
        "{found:?}"
    );
}

#[test]
fn invalid_signature_refuses_the_file() {
    let project = tempfile::tempdir().unwrap();
    let key = "0".repeat(16);
    let line = format!("<!-- rye:signed:2026-02-14T00:27:54Z:{}:{}:{key} -->\n", "a".repeat(64), "A".repeat(86));
    write(project.path(), ".ai/knowledge/signed.md", &format!("{line}text"));
    let found = world(project.path(), None).candidates(ItemKind::Knowledge, &id("signed"));
    assert!(matches!(found, Err(WorldError::Signature { .. })), "{found:?}");
}

#[test]
fn missing_user_space_is_empty_but_missing_project_fails() {
    let project = tempfile::tempdir().unwrap();
    let gone = project.path().join("gone");
    assert_eq!(world(project.path(), Some(&gone)).list(ItemKind::Knowledge).unwrap().len(), 2);
    let system: [(String, &[u8]); 0] = [];
    assert!(DiskWorld::open(Some(&gone), None, system, TrustStore::default()).is_err());
}

#[test]
fn dangling_link_is_reported_and_missing_folder_is_empty() {
    let (project, user) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(project.path(), ".ai/knowledge/a/real.md", "here");
    symlink("nowhere.md", project.path().join(".ai/knowledge/a/lost.md")).unwrap();
    symlink("nowhere", project.path().join(".ai/knowledge/gone")).unwrap();
    let world = world(project.path(), Some(user.path()));
    for _ in 0..2 {
        assert!(world.candidates(ItemKind::Knowledge, &id("b/none")).unwrap().is_empty());
        assert!(world.candidates(ItemKind::Knowledge, &id("gone/none")).unwrap().is_empty());
        assert!(world.candidates(ItemKind::Knowledge, &id("a/none")).unwrap().is_empty());
        assert_eq!(world.candidates(ItemKind::Knowledge, &id("a/real")).unwrap().len(), 1);
        assert!(matches!(world.candidates(ItemKind::Knowledge, &id("a/lost")), Err(WorldError::Unreadable { .. })));
    }
}

#[test]
fn cached_world_rereads_reported_changes() {
    let project = tempfile::tempdir().unwrap();
    let root = project.path();
    write(root, ".ai/knowledge/a.md", "one");
    write(root, ".ai/knowledge/folder/b.md", "b");
    let mut watcher = Watcher::new(vec![(Space::Project, root.to_owned())]).unwrap();
    let mut kept = CachedWorld::new(world(root, None));
    let text = |kept: &CachedWorld, item: &str| {
        let found = kept.candidates(ItemKind::Knowledge, &id(item)).unwrap();
        found.first().map(|l| String::from_utf8_lossy(&l.bytes).into_owned())
    };
    let count = |kept: &CachedWorld| kept.list(ItemKind::Knowledge).unwrap().len();
    assert_eq!(
        (text(&kept, "a").as_deref(), text(&kept, "folder/b").as_deref(), count(&kept)),
        (Some("one"), Some("b"), 4)
    );
    assert_eq!(watcher.take_changes().unwrap(), []);

    // The file is edited in place: only its content changes.
    write(root, ".ai/knowledge/a.md", "two");
    assert_eq!(text(&kept, "a").as_deref(), Some("one"));
    let changed = watcher.take_changes().unwrap();
    assert_eq!(changed, [FileChange::File { space: Space::Project, path: ".ai/knowledge/a.md".into(), listed: false }]);
    assert!(kept.invalidate(&changed));
    assert_eq!(text(&kept, "a").as_deref(), Some("two"));

    // The file is replaced by another file, as most editors save.
    write(root, ".ai/knowledge/a.md~", "three");
    fs::rename(root.join(".ai/knowledge/a.md~"), root.join(".ai/knowledge/a.md")).unwrap();
    assert!(kept.invalidate(&watcher.take_changes().unwrap()));
    assert_eq!((text(&kept, "a").as_deref(), count(&kept)), (Some("three"), 4));

    // A folder is created, moved and removed.
    write(root, ".ai/tools/t.yaml", "kind: command");
    assert!(kept.invalidate(&watcher.take_changes().unwrap()));
    assert_eq!(kept.list(ItemKind::Tool).unwrap().len(), 1);
    write(root, ".ai/tools/t.yaml", "kind: builtin");
    assert!(kept.invalidate(&watcher.take_changes().unwrap()));
    assert_eq!(kept.candidates(ItemKind::Tool, &id("t")).unwrap().first().unwrap().bytes.as_ref(), b"kind: builtin");
    fs::rename(root.join(".ai/knowledge/folder"), root.join(".ai/knowledge/other")).unwrap();
    assert!(kept.invalidate(&watcher.take_changes().unwrap()));
    assert_eq!((text(&kept, "folder/b"), text(&kept, "other/b").as_deref()), (None, Some("b")));
    // A folder moved out of the space is no longer watched.
    fs::rename(root.join(".ai/knowledge/other"), root.join("other")).unwrap();
    assert!(kept.invalidate(&watcher.take_changes().unwrap()));
    assert_eq!((text(&kept, "other/b"), count(&kept)), (None, 3));
    write(root, "other/b.md", "elsewhere");
    assert_eq!(watcher.take_changes().unwrap(), []);

    // Changes of the settings that decide which files are read need a new world.
    write(root, ".ai/config/agent/agent.yaml", "signing: { require: all }");
    assert!(!kept.invalidate(&watcher.take_changes().unwrap()));
    write(root, ".ai/config/agent/agent.yaml", "signing: { require: none }");
    assert!(!kept.invalidate(&watcher.take_changes().unwrap()));
}

#[test]
fn cached_world_detects_links() {
    let project = tempfile::tempdir().unwrap();
    write(project.path(), ".ai/knowledge/real.md", "here");
    let kept = CachedWorld::new(world(project.path(), None));
    kept.list(ItemKind::Knowledge).unwrap();
    assert!(!kept.has_links());
    symlink("real.md", project.path().join(".ai/knowledge/same.md")).unwrap();
    let kept = CachedWorld::new(world(project.path(), None));
    kept.list(ItemKind::Knowledge).unwrap();
    assert!(kept.has_links());
}

#[test]
fn file_that_its_folder_does_not_name_is_not_looked_up() {
    let (project, user) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(project.path(), ".ai/knowledge/a/real.md", "here");
    let first = world(project.path(), Some(user.path()));
    let found = |world: &DiskWorld, item: &str| world.candidates(ItemKind::Knowledge, &id(item)).unwrap().len();
    assert_eq!((found(&first, "a/real"), found(&first, "a/none"), found(&first, "b/none")), (1, 0, 0));
    // These files are created after the names in their folders were cached, so `first` does not find them.
    write(project.path(), ".ai/knowledge/a/none.md", "new");
    write(project.path(), ".ai/knowledge/b/none.md", "new");
    write(user.path(), ".ai/knowledge/a/real.md", "new");
    assert_eq!((found(&first, "a/real"), found(&first, "a/none"), found(&first, "b/none")), (1, 0, 0));
    let second = world(project.path(), Some(user.path()));
    assert_eq!((found(&second, "a/real"), found(&second, "a/none"), found(&second, "b/none")), (2, 1, 1));
}

#[test]
fn listed_file_is_read_without_reading_the_names_of_its_folder_again() {
    let project = tempfile::tempdir().unwrap();
    write(project.path(), ".ai/knowledge/a/real.md", "here");
    write(project.path(), ".ai/knowledge/a/gone.md", "here");
    let world = world(project.path(), None);
    assert_eq!(world.list(ItemKind::Knowledge).unwrap().len(), 4);
    fs::remove_file(project.path().join(".ai/knowledge/a/gone.md")).unwrap();
    let found = |item: &str| world.candidates(ItemKind::Knowledge, &id(item)).unwrap().len();
    assert_eq!((found("a/real"), found("a/gone"), found("a/none")), (1, 0, 0));
    assert!(!world.folders.has_read(".ai/knowledge/a"));
    let unlisted = self::world(project.path(), None);
    assert_eq!(unlisted.candidates(ItemKind::Knowledge, &id("a/real")).unwrap().len(), 1);
    assert!(unlisted.folders.has_read(".ai/knowledge/a"), "the test sees which folders are read");
}

#[test]
fn files_of_a_large_folder_are_found_without_a_listing() {
    let project = tempfile::tempdir().unwrap();
    for n in 0..600 {
        write(project.path(), &format!(".ai/knowledge/a/n{n}.md"), "here");
    }
    symlink("nowhere.md", project.path().join(".ai/knowledge/a/lost.md")).unwrap();
    let world = world(project.path(), None);
    for n in [0, 299, 599] {
        assert_eq!(world.candidates(ItemKind::Knowledge, &id(&format!("a/n{n}"))).unwrap().len(), 1);
    }
    assert!(world.candidates(ItemKind::Knowledge, &id("a/none")).unwrap().is_empty());
    assert!(matches!(world.candidates(ItemKind::Knowledge, &id("a/lost")), Err(WorldError::Unreadable { .. })));
}

#[test]
fn context_files_come_from_the_root_of_the_git_repository_to_the_project() {
    use std::os::unix::fs::PermissionsExt;
    let (outer, user) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let project = outer.path().join("repository/part/project");
    write(user.path(), ".ai/AGENTS.md", "user");
    write(outer.path(), "AGENTS.md", "outside of the repository");
    write(outer.path(), "repository/.git/HEAD", "");
    write(outer.path(), "repository/CLAUDE.md", "root");
    write(outer.path(), "repository/part/AGENTS.md", "part");
    write(outer.path(), "repository/part/AGENTS.override.md", "override");
    write(&project, "AGENTS.md", "own");
    for path in ["repository/CLAUDE.md", "repository/part/AGENTS.md", "repository/part/AGENTS.override.md"] {
        fs::set_permissions(outer.path().join(path), fs::Permissions::from_mode(0o644)).unwrap();
    }
    let found = world(&project, Some(user.path())).context_files().unwrap();
    let shown: Vec<(&str, String)> =
        found.iter().map(|file| (&*file.path, String::from_utf8_lossy(&file.bytes).into_owned())).collect();
    let own = |path: &'static str, text: &str| (path, text.to_owned());
    let expected = [
        own(".ai/AGENTS.md", "user"),
        own("../../CLAUDE.md", "root"),
        own("../AGENTS.override.md", "override"),
        own("AGENTS.md", "own"),
    ];
    assert_eq!(shown, expected);
    // Another user could have written this file.
    fs::set_permissions(outer.path().join("repository/CLAUDE.md"), fs::Permissions::from_mode(0o666)).unwrap();
    assert!(matches!(world(&project, None).context_files(), Err(WorldError::Unreadable { .. })));
    // Without a repository, only the project counts.
    fs::remove_dir_all(outer.path().join("repository/.git")).unwrap();
    let alone = world(&project, None).context_files().unwrap();
    assert_eq!(alone.iter().map(|file| &*file.path).collect::<Vec<_>>(), ["AGENTS.md"]);
}

#[test]
fn other_context_files_of_a_folder_are_listed_unless_they_are_links_to_the_used_file() {
    let repository = tempfile::tempdir().unwrap();
    write(repository.path(), ".git/HEAD", "");
    write(repository.path(), "AGENTS.md", "root");
    write(repository.path(), "CLAUDE.md", "another");
    let project = repository.path().join("project");
    write(&project, "AGENTS.md", "own");
    std::os::unix::fs::symlink("AGENTS.md", project.join("CLAUDE.md")).unwrap();
    let ignored = || -> Vec<Vec<String>> {
        let files = world(&project, None).context_files().unwrap();
        files.iter().map(|file| file.ignored.iter().map(ToString::to_string).collect()).collect()
    };
    assert_eq!(ignored(), [vec!["../CLAUDE.md".to_owned()], Vec::new()]);
    // A file that cannot be read is not used, so it is no error.
    fs::remove_file(project.join("CLAUDE.md")).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", project.join("CLAUDE.md")).unwrap();
    assert_eq!(ignored().last(), Some(&Vec::new()));
}

#[test]
fn context_file_far_above_a_project_is_found() {
    let repository = tempfile::tempdir().unwrap();
    write(repository.path(), ".git/HEAD", "");
    write(repository.path(), "AGENTS.md", "root");
    let project = repository.path().join("deep/".repeat(100));
    write(&project, "AGENTS.md", "own");
    let found = world(&project, None).context_files().unwrap();
    assert_eq!(found.iter().map(|file| &*file.bytes).collect::<Vec<_>>(), [&b"root"[..], b"own"]);
}

#[test]
fn link_of_a_context_file_above_the_project_cannot_leave_the_repository() {
    let (outside, user) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let repository = outside.path().join("repository");
    let project = repository.join("part");
    write(&repository, ".git/HEAD", "");
    write(&project, "notes.md", "notes");
    write(outside.path(), "secret.md", "secret");
    write(user.path(), ".ai/keys/private.pem", "key");
    let link = repository.join("AGENTS.md");
    let secret = user.path().join(".ai/keys/private.pem");
    for target in ["/proc/self/environ", "../secret.md", outside.path().join("secret.md").to_str().unwrap()] {
        symlink(target, &link).unwrap();
        let error = world(&project, Some(user.path())).context_files().unwrap_err();
        assert!(matches!(&error, WorldError::Unreadable { path, .. } if path == "../AGENTS.md"), "{target}: {error}");
        fs::remove_file(&link).unwrap();
    }
    fs::hard_link(&secret, &link).unwrap();
    assert!(world(&project, Some(user.path())).context_files().unwrap_err().to_string().contains(".ai/keys"));
    fs::remove_file(&link).unwrap();
    symlink("part/notes.md", &link).unwrap();
    let found = world(&project, Some(user.path())).context_files().unwrap();
    assert_eq!(found.iter().map(|file| &*file.bytes).collect::<Vec<_>>(), [b"notes"]);
}

#[test]
fn link_to_a_protected_file_reaches_no_model() {
    let (outside, user) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let repository = outside.path().join("repository");
    let project = repository.join("part");
    for (root, path) in [
        (&repository, ".git/config"),
        (&repository, ".env"),
        (&repository, "part/.ai/state/objects/x"),
        (&project, ".git/config"),
        (&project, ".env"),
        (&project, ".ENV.local"),
        (&project, "deep/.envrc"),
        (&project, ".ai/state/objects/x"),
        (&project, ".ai/keys/trusted/x"),
        (&project, ".ai/trust/x"),
        (&project, "notes.md"),
        (&project, ".ai/knowledge/real.md"),
        (&project, ".ai/prompts/real.md"),
        (&project, ".agents/skills/s/SKILL.md"),
        (&project, ".agents/skills/s/.env"),
    ] {
        write(root, path, "secret");
    }
    let protected = [
        ".git/config",
        ".env",
        ".ENV.local",
        "deep/.envrc",
        ".ai/state/objects/x",
        ".ai/keys/trusted/x",
        ".ai/trust/x",
    ];
    let is_refused = |error: &WorldError| matches!(error, WorldError::Unreadable { reason, .. } if reason.contains("links to") || reason.contains(".ai/keys"));
    for target in protected {
        for (link, up) in [("AGENTS.md", ""), ("CLAUDE.md", ""), ("alias.md", "")] {
            symlink(format!("{up}{target}"), project.join(link)).unwrap();
            if link == "alias.md" {
                symlink("alias.md", project.join("AGENTS.md")).unwrap();
            }
            let error = world(&project, Some(user.path())).context_files().unwrap_err();
            assert!(is_refused(&error), "{link} -> {target}: {error}");
            fs::remove_file(project.join(link)).unwrap();
            fs::remove_file(project.join("AGENTS.md")).ok();
        }
        for (folder, kind) in
            [("knowledge", ItemKind::Knowledge), ("directives", ItemKind::Directive), ("tools", ItemKind::Tool)]
        {
            let link = project.join(".ai").join(folder).join(if kind == ItemKind::Tool { "x.yaml" } else { "x.md" });
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            symlink(format!("../../{target}"), &link).unwrap();
            // The file is found by its id, and by its listing.
            let direct = world(&project, None).candidates(kind, &id("x")).unwrap_err();
            let listed = world(&project, None);
            listed.list(kind).unwrap();
            let listed = listed.candidates(kind, &id("x")).unwrap_err();
            assert!(is_refused(&direct) && is_refused(&listed), "{folder} -> {target}: {direct} {listed}");
            fs::remove_file(link).unwrap();
        }
    }
    // A folder on the way may be the link.
    symlink("../state/objects", project.join(".ai/knowledge/folder")).unwrap();
    write(&project, ".ai/state/objects/y.md", "secret");
    for is_listed in [false, true] {
        let world = world(&project, None);
        if is_listed {
            world.list(ItemKind::Knowledge).unwrap();
        }
        assert!(is_refused(&world.candidates(ItemKind::Knowledge, &id("folder/y")).unwrap_err()), "{is_listed}");
    }
    fs::remove_dir_all(project.join(".git")).unwrap();
    for target in [".git/config", ".env", "part/.ai/state/objects/x"] {
        symlink(target, repository.join("AGENTS.md")).unwrap();
        let error = world(&project, None).context_files().unwrap_err();
        assert!(is_refused(&error), "../AGENTS.md -> {target}: {error}");
        fs::remove_file(repository.join("AGENTS.md")).unwrap();
    }
    let world = |project: &Path| world(project, None);
    symlink(".env", project.join(".agents/skills/s/more.md")).unwrap();
    let skills = world(&project);
    let skill = skills.candidates(ItemKind::Skill, &id("s")).unwrap().remove(0);
    assert!(is_refused(&skills.read_skill_file(&skill, &SkillPath::parse("more.md").unwrap()).unwrap_err()));
    // A link to any other file of the project is allowed.
    symlink("notes.md", project.join("AGENTS.md")).unwrap();
    assert_eq!(world(&project).context_files().unwrap().len(), 1);
    symlink("../../notes.md", project.join(".ai/knowledge/notes.md")).unwrap();
    assert_eq!(world(&project).candidates(ItemKind::Knowledge, &id("notes")).unwrap().len(), 1);
}

#[test]
fn link_of_a_context_file_cannot_leave_the_project() {
    let (outside, project) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(outside.path(), "secret.md", "secret");
    fs::create_dir_all(project.path().join(".ai")).unwrap();
    symlink(outside.path().join("secret.md"), project.path().join("AGENTS.md")).unwrap();
    assert!(world(project.path(), None).context_files().is_err());
    fs::remove_file(project.path().join("AGENTS.md")).unwrap();
    write(project.path(), "AGENTS.md", "own");
    symlink("AGENTS.md", project.path().join("CLAUDE.md")).unwrap();
    assert_eq!(world(project.path(), None).context_files().unwrap().len(), 1);
}

#[test]
fn files_of_a_skill_are_read_only_inside_of_its_folder() {
    let (project, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(outside.path(), "key", "secret");
    for (path, text) in [
        (".env", "TOKEN=1"),
        ("SKILL.md", "root"),
        (".agents/skills/s/SKILL.md", "s"),
        (".agents/skills/s/more/order.md", "order"),
        (".agents/skills/other/SKILL.md", "other"),
        (".agents/skills/other/own.md", "own"),
    ] {
        write(project.path(), path, text);
    }
    let folder = project.path().join(".agents/skills/s");
    symlink("../../../.env", folder.join("env.md")).unwrap();
    symlink("../other/own.md", folder.join("foreign.md")).unwrap();
    symlink(outside.path().join("key"), folder.join("key.md")).unwrap();
    symlink("more/order.md", folder.join("linked.md")).unwrap();
    fs::create_dir_all(project.path().join(".claude/skills")).unwrap();
    symlink("../../.agents/skills/other", project.path().join(".claude/skills/linked")).unwrap();
    symlink("../..", project.path().join(".claude/skills/root")).unwrap();
    let world = world(project.path(), None);
    let read = |skill: &str, path: &str| {
        let file = world.candidates(ItemKind::Skill, &id(skill)).unwrap().remove(0);
        world.read_skill_file(&file, &SkillPath::parse(path).unwrap())
    };
    let text = |skill: &str, path: &str| String::from_utf8(read(skill, path).unwrap().unwrap()).unwrap();
    assert_eq!(text("s", "more/order.md"), "order");
    assert_eq!(text("s", "linked.md"), "order");
    assert_eq!(text("linked", "own.md"), "own");
    assert_eq!(read("s", "more/none.md"), Ok(None));
    for path in ["env.md", "foreign.md", "key.md"] {
        assert!(read("s", path).is_err(), "{path}");
    }
    if world.candidates(ItemKind::Skill, &id("root")).is_ok_and(|found| !found.is_empty()) {
        assert!(matches!(read("root", "SKILL.md"), Err(WorldError::Escapes { .. })));
    }
    for path in ["../x", "/etc/passwd", "a/../b", ".env", "a/.git/config", "", "a\\b"] {
        assert_eq!(SkillPath::parse(path), None, "{path}");
    }
}
