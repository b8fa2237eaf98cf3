//! Tests of trust: it is bound to content, project and user, and any change revokes it.

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

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
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
        Trust::recorded(&self.folder.path().join("user"), &self.project(), BTreeSet::new())
    }

    fn is_trusted(&self, one: &TrustRequirement) -> bool {
        self.trust().snapshot().unwrap().missing(std::slice::from_ref(one)).unwrap().is_empty()
    }
}

#[test]
fn what_was_allowed_is_trusted_until_it_changes() {
    let place = Place::new();
    let (one, two) = (command_requirement("a/b", "11", &[]), command_requirement("c", "22", &[]));
    assert!(!place.is_trusted(&one));
    place.trust().record_trust(&[one.clone(), two.clone()]).unwrap();
    assert!(place.is_trusted(&one) && place.is_trusted(&two));
    assert!(!place.is_trusted(&command_requirement("a/b", "12", &[])));
    assert!(!place.is_trusted(&command_requirement("a/c", "11", &[])));
    // An allowed change replaces the earlier version, which is not trusted any more.
    place.trust().record_trust(&[command_requirement("a/b", "12", &[])]).unwrap();
    assert!(!place.is_trusted(&one) && place.is_trusted(&two));
    let other = Trust::recorded(&place.folder.path().join("user"), &place.folder.path().join("other"), BTreeSet::new());
    assert_eq!(other.snapshot().unwrap().missing(std::slice::from_ref(&two)).unwrap().len(), 1);
    assert!(place.trust().delete_record().unwrap() && !place.trust().delete_record().unwrap());
    assert!(!place.is_trusted(&two));
}

#[test]
fn files_that_a_command_names_are_part_of_it() {
    let place = Place::new();
    let script = place.project().join("run.sh");
    fs::write(&script, "echo good").unwrap();
    std::os::unix::fs::symlink("/etc/hostname", place.project().join("out")).unwrap();
    let one = command_requirement("t", "11", &["bash", "run.sh", "later.sh", "out", "-c"]);
    place.trust().record_trust(std::slice::from_ref(&one)).unwrap();
    assert!(place.is_trusted(&one));
    fs::write(&script, "echo bad").unwrap();
    assert!(!place.is_trusted(&one));
    fs::write(&script, "echo good").unwrap();
    assert!(place.is_trusted(&one));
    // A file that did not exist when trust was recorded.
    fs::write(place.project().join("later.sh"), "").unwrap();
    assert!(!place.is_trusted(&one));
}

#[test]
fn what_came_with_the_program_is_trusted_as_it_came() {
    let place = Place::new();
    let one = command_requirement("t", "11", &["run.sh"]);
    let trust =
        Trust::recorded(&place.folder.path().join("user"), &place.project(), one.subjects.iter().cloned().collect());
    let missing = |one: &TrustRequirement| trust.snapshot().unwrap().missing(std::slice::from_ref(one)).unwrap().len();
    assert_eq!((missing(&one), missing(&command_requirement("t", "12", &[]))), (0, 1));
    fs::write(place.project().join("run.sh"), "echo not shipped").unwrap();
    assert_eq!(missing(&one), 1);
}

#[test]
fn the_record_is_the_users_alone() {
    let place = Place::new();
    let one = command_requirement("t", "11", &[]);
    place.trust().record_trust(std::slice::from_ref(&one)).unwrap();
    let trust = place.trust();
    let path = trust.path().unwrap();
    assert!(path.starts_with(place.folder.path().join("user")));
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
    let place = Place::new();
    let mut one = command_requirement("t", "11", &[]);
    one.subjects.clear();
    place.trust().record_trust(std::slice::from_ref(&one)).unwrap();
    assert!(!place.is_trusted(&one));
    let all = [command_requirement("t", "11", &[])];
    assert_eq!(Trust::Nothing.snapshot().unwrap().missing(&all).unwrap().len(), 1);
    assert!(Trust::Everything.snapshot().unwrap().missing(&all).unwrap().is_empty());
}

#[test]
fn a_remembered_answer_is_one_capability_in_one_project() {
    let place = Place::new();
    let (bash, other) = ("rye.execute.tool.rye.bash.bash", "rye.execute.tool.rye.bash.other");
    assert!(!place.trust().snapshot().unwrap().allows(bash));
    place.trust().record_trust(&[command_requirement("t", "11", &[])]).unwrap();
    place.trust().record_capability(bash).unwrap();
    place.trust().record_capability(bash).unwrap();
    let trust = place.trust();
    let now = trust.snapshot().unwrap();
    assert_eq!(now.capabilities(), [bash]);
    assert!(now.allows(bash) && !now.allows(other) && !now.allows("rye.execute.*"));
    assert!(place.is_trusted(&command_requirement("t", "11", &[])), "beside what was allowed");
    // The same files again change nothing; another text, or another clone in this folder, takes the approval back.
    place.trust().record_trust(&[command_requirement("t", "11", &[])]).unwrap();
    assert!(place.trust().snapshot().unwrap().allows(bash));
    place.trust().record_trust(&[command_requirement("t", "12", &[])]).unwrap();
    assert!(!place.trust().snapshot().unwrap().allows(bash));
    place.trust().record_capability(bash).unwrap();
    place.trust().delete_record().unwrap();
    assert!(!place.trust().snapshot().unwrap().allows(bash));
}

#[test]
fn former_texts_of_a_directive_stay_trusted_until_trust_is_revoked() {
    let place = Place::new();
    let with = |sha256: &str| {
        let subjects = vec![Subject { kind: ItemKind::Directive, id: "d".into(), sha256: sha256.into() }];
        TrustRequirement { kind: TrustRequirementKind::Grants, subjects, ..command_requirement("d", sha256, &[]) }
    };
    place.trust().record_trust(&[with("11")]).unwrap();
    place.trust().record_trust(&[with("12")]).unwrap();
    assert!(place.is_trusted(&with("11")) && place.is_trusted(&with("12")) && !place.is_trusted(&with("13")));
    place.trust().delete_record().unwrap();
    assert!(!place.is_trusted(&with("11")));
}

#[test]
fn a_script_is_trusted_by_its_content_wherever_it_lies() {
    use rye_compiler::trust::script_requirement;
    let place = Place::new();
    assert!(place.is_trusted(&script_requirement("script.yaml")), "a script that does not exist simulates nothing");
    for path in ["script.yaml", "../other/script.yaml"] {
        let file = place.project().join(path);
        fs::write(&file, "steps: [one]").unwrap();
        assert!(!place.is_trusted(&script_requirement(path)), "{path}");
        place.trust().record_trust(&[script_requirement(path)]).unwrap();
        assert!(place.is_trusted(&script_requirement(path)), "{path}");
        fs::write(&file, "steps: [two]").unwrap();
        assert!(!place.is_trusted(&script_requirement(path)), "{path}");
    }
}
