//! Tests of trust: it applies to one content, project and user, and any change revokes it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::os::unix::fs::PermissionsExt;

use rye_compiler::trust::TrustRequirementKind;
use rye_compiler::world::ItemKind;

use super::*;

fn command_requirement(id: &str, sha256: &str, programs: &[&str]) -> TrustRequirement {
    TrustRequirement {
        kind: TrustRequirementKind::Tool,
        name: id.into(),
        what: "starts".into(),
        subjects: vec![Subject { kind: ItemKind::Tool, id: id.into(), sha256: sha256.into() }],
        programs: programs.iter().map(|p| (*p).to_owned()).collect(),
        place: None,
    }
}

struct TestSpaces {
    folder: tempfile::TempDir,
}

impl TestSpaces {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["user", "project", "other"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    fn project(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("project")
    }

    fn trust(&self) -> Trust {
        Trust::recorded(&self.folder.path().join("user"), &self.project(), BTreeSet::new)
    }

    fn is_trusted(&self, one: &TrustRequirement) -> bool {
        self.trust().snapshot().unwrap().missing(std::slice::from_ref(one)).unwrap().is_empty()
    }
}

#[test]
fn what_was_allowed_is_trusted_until_it_changes() {
    let spaces = TestSpaces::new();
    let (one, two) = (command_requirement("a/b", "11", &[]), command_requirement("c", "22", &[]));
    assert!(!spaces.is_trusted(&one));
    spaces.trust().record_trust(&[one.clone(), two.clone()]).unwrap();
    assert!(spaces.is_trusted(&one) && spaces.is_trusted(&two));
    assert!(!spaces.is_trusted(&command_requirement("a/b", "12", &[])));
    assert!(!spaces.is_trusted(&command_requirement("a/c", "11", &[])));
    // Trust in a changed file replaces the trust in the earlier version.
    spaces.trust().record_trust(&[command_requirement("a/b", "12", &[])]).unwrap();
    assert!(!spaces.is_trusted(&one) && spaces.is_trusted(&two));
    let other = Trust::recorded(&spaces.folder.path().join("user"), &spaces.folder.path().join("other"), BTreeSet::new);
    assert_eq!(other.snapshot().unwrap().missing(std::slice::from_ref(&two)).unwrap().len(), 1);
    assert!(spaces.trust().delete_record().unwrap() && !spaces.trust().delete_record().unwrap());
    assert!(!spaces.is_trusted(&two));
}

#[test]
fn files_that_a_command_names_are_part_of_it() {
    let spaces = TestSpaces::new();
    let script = spaces.project().join("run.sh");
    fs::write(&script, "echo good").unwrap();
    std::os::unix::fs::symlink("/etc/hostname", spaces.project().join("out")).unwrap();
    let one = command_requirement("t", "11", &["bash", "run.sh", "later.sh", "out", "-c"]);
    spaces.trust().record_trust(std::slice::from_ref(&one)).unwrap();
    assert!(spaces.is_trusted(&one));
    fs::write(&script, "echo bad").unwrap();
    assert!(!spaces.is_trusted(&one));
    fs::write(&script, "echo good").unwrap();
    assert!(spaces.is_trusted(&one));
    // A named file that did not exist when trust was recorded revokes the trust.
    fs::write(spaces.project().join("later.sh"), "").unwrap();
    assert!(!spaces.is_trusted(&one));
}

#[test]
fn what_came_with_the_program_is_trusted_as_it_came() {
    let spaces = TestSpaces::new();
    let one = command_requirement("t", "11", &["run.sh"]);
    let subjects = one.subjects.clone();
    let trust =
        Trust::recorded(&spaces.folder.path().join("user"), &spaces.project(), || subjects.into_iter().collect());
    let missing = |one: &TrustRequirement| trust.snapshot().unwrap().missing(std::slice::from_ref(one)).unwrap().len();
    assert_eq!((missing(&one), missing(&command_requirement("t", "12", &[]))), (0, 1));
    fs::write(spaces.project().join("run.sh"), "echo not shipped").unwrap();
    assert_eq!(missing(&one), 1);
}

#[test]
fn shipped_files_are_not_hashed_for_recorded_requirements() {
    let spaces = TestSpaces::new();
    let one = command_requirement("t", "11", &[]);
    spaces.trust().record_trust(std::slice::from_ref(&one)).unwrap();
    let user = spaces.folder.path().join("user");
    let trust = Trust::recorded(&user, &spaces.project(), || panic!("the record covers the requirement"));
    assert!(trust.snapshot().unwrap().missing(std::slice::from_ref(&one)).unwrap().is_empty());
}

#[test]
fn the_record_is_the_users_alone() {
    let spaces = TestSpaces::new();
    let one = command_requirement("t", "11", &[]);
    spaces.trust().record_trust(std::slice::from_ref(&one)).unwrap();
    let trust = spaces.trust();
    let path = trust.path().unwrap();
    assert!(path.starts_with(spaces.folder.path().join("user")));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(path), mode(path.parent().unwrap())), (0o600, 0o700));
    fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(matches!(trust.snapshot(), Err(TrustError::Exposed { .. })));
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    for broken in ["", "{}", "{\"format\":2,\"project\":\"\",\"trusted\":[]}", "[1]"] {
        fs::write(path, broken).unwrap();
        assert!(matches!(trust.snapshot(), Err(TrustError::Unreadable { .. })), "{broken}");
    }
    assert!(matches!(Trust::Nothing.record_trust(&[one]), Err(TrustError::NoUserSpace)));
}

#[test]
fn nothing_is_trusted_without_files_that_say_so() {
    let spaces = TestSpaces::new();
    let mut one = command_requirement("t", "11", &[]);
    one.subjects.clear();
    spaces.trust().record_trust(std::slice::from_ref(&one)).unwrap();
    assert!(!spaces.is_trusted(&one));
    let all = [command_requirement("t", "11", &[])];
    assert_eq!(Trust::Nothing.snapshot().unwrap().missing(&all).unwrap().len(), 1);
    assert!(Trust::Everything.snapshot().unwrap().missing(&all).unwrap().is_empty());
}

#[test]
fn a_remembered_answer_is_one_capability_in_one_project() {
    let spaces = TestSpaces::new();
    let (bash, other) = ("rye.execute.tool.rye.bash.bash", "rye.execute.tool.rye.bash.other");
    assert!(!spaces.trust().snapshot().unwrap().allows(bash));
    spaces.trust().record_trust(&[command_requirement("t", "11", &[])]).unwrap();
    spaces.trust().record_capability(bash).unwrap();
    spaces.trust().record_capability(bash).unwrap();
    let trust = spaces.trust();
    let now = trust.snapshot().unwrap();
    assert_eq!(now.capabilities(), [bash]);
    assert!(now.allows(bash) && !now.allows(other) && !now.allows("rye.execute.*"));
    assert!(spaces.is_trusted(&command_requirement("t", "11", &[])), "beside what was allowed");
    // Recording trust in unchanged files keeps the approvals.
    spaces.trust().record_trust(&[command_requirement("t", "11", &[])]).unwrap();
    assert!(spaces.trust().snapshot().unwrap().allows(bash));
    let commands =
        ApprovedCommands { capability: other.into(), starts_with: vec!["cargo".to_owned(), "test".to_owned()] };
    spaces.trust().record_commands(commands.clone()).unwrap();
    spaces.trust().record_commands(commands.clone()).unwrap();
    assert_eq!(spaces.trust().snapshot().unwrap().commands(), [commands]);
    assert!(!spaces.trust().snapshot().unwrap().allows(other));
    spaces.trust().record_trust(&[command_requirement("t", "12", &[])]).unwrap();
    assert!(!spaces.trust().snapshot().unwrap().allows(bash));
    assert!(spaces.trust().snapshot().unwrap().commands().is_empty());
    spaces.trust().record_capability(bash).unwrap();
    spaces.trust().delete_record().unwrap();
    assert!(!spaces.trust().snapshot().unwrap().allows(bash));
}

#[test]
fn former_texts_of_a_directive_stay_trusted_until_trust_is_revoked() {
    let spaces = TestSpaces::new();
    let with = |sha256: &str| {
        let subjects = vec![Subject { kind: ItemKind::Directive, id: "d".into(), sha256: sha256.into() }];
        TrustRequirement { kind: TrustRequirementKind::Grants, subjects, ..command_requirement("d", sha256, &[]) }
    };
    spaces.trust().record_trust(&[with("11")]).unwrap();
    spaces.trust().record_trust(&[with("12")]).unwrap();
    assert!(spaces.is_trusted(&with("11")) && spaces.is_trusted(&with("12")) && !spaces.is_trusted(&with("13")));
    spaces.trust().delete_record().unwrap();
    assert!(!spaces.is_trusted(&with("11")));
}

#[test]
fn a_script_is_trusted_by_its_content_wherever_it_lies() {
    use rye_compiler::trust::script_requirement;
    let spaces = TestSpaces::new();
    assert!(spaces.is_trusted(&script_requirement("script.yaml")), "a script that does not exist simulates nothing");
    for path in ["script.yaml", "../other/script.yaml"] {
        let file = spaces.project().join(path);
        fs::write(&file, "steps: [one]").unwrap();
        assert!(!spaces.is_trusted(&script_requirement(path)), "{path}");
        spaces.trust().record_trust(&[script_requirement(path)]).unwrap();
        assert!(spaces.is_trusted(&script_requirement(path)), "{path}");
        fs::write(&file, "steps: [two]").unwrap();
        assert!(!spaces.is_trusted(&script_requirement(path)), "{path}");
    }
}
