//! Tests of trust: it applies to one content, project and user, and any change revokes it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::os::unix::fs::PermissionsExt;

use rye_compiler::command_files::LOADED_BY;
use rye_compiler::trust::TrustRequirementKind;
use rye_compiler::world::ItemKind;

use super::*;

pub(super) fn command_requirement(id: &str, sha256: &str, programs: &[&str]) -> TrustRequirement {
    TrustRequirement {
        kind: TrustRequirementKind::Tool,
        name: id.into(),
        what: "starts".into(),
        subjects: vec![Subject { kind: ItemKind::Tool, id: id.into(), sha256: sha256.into() }],
        programs: programs.iter().map(|p| (*p).to_owned()).collect(),
        place: None,
    }
}

pub(super) struct TestSpaces {
    folder: tempfile::TempDir,
}

impl TestSpaces {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["user", "project", "other"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    pub(super) fn project(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("project")
    }

    pub(super) fn trust(&self) -> Trust {
        Trust::recorded(&self.folder.path().join("user"), &self.project(), BTreeSet::new)
    }

    pub(super) fn is_trusted(&self, one: &TrustRequirement) -> bool {
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
fn program_of_more_than_256_mib_is_hashed_whole() {
    use std::io::{Seek, SeekFrom, Write};
    let spaces = TestSpaces::new();
    let program = spaces.project().join("big");
    let mut file = fs::File::create(&program).unwrap();
    file.set_len((256 << 20) + 4096).unwrap();
    let one = command_requirement("t", "11", &["./big"]);
    spaces.trust().record_trust(std::slice::from_ref(&one)).unwrap();
    assert!(spaces.is_trusted(&one));
    file.seek(SeekFrom::End(-1)).unwrap();
    file.write_all(b"x").unwrap();
    assert!(!spaces.is_trusted(&one), "the last byte belongs to the program");
}

/// Returns true if trust in the tool `.ai/tools/ops/main` with this text ends after `changed` gets another content.
pub(super) fn ends_with_a_change_of(main: &str, text: &str, changed: &str) -> bool {
    let spaces = TestSpaces::new();
    let write = |path: &str, text: &str| {
        let path = spaces.project().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(".ai/tools/ops/pkg/inner.py", "from ..shared import x\nimport deep_module\n");
    write(".ai/tools/ops/next.mjs", "export * from './last.mjs';\n");
    write(".ai/tools/ops/next.sh", ". \"$(dirname \"$0\")/last.sh\"\n");
    write(main, text);
    write(changed, "before\n");
    let one = command_requirement("ops/main", "11", &[&format!("{LOADED_BY}{main}")]);
    spaces.trust().record_trust(std::slice::from_ref(&one)).unwrap();
    assert!(spaces.is_trusted(&one), "{text}");
    write(changed, "after\n");
    !spaces.is_trusted(&one)
}

#[test]
fn files_that_a_script_loads_are_part_of_it() {
    let python = ".ai/tools/ops/main.py";
    let javascript = ".ai/tools/ops/main.mjs";
    let shell = ".ai/tools/ops/main.sh";
    let rows = [
        (python, "import helper", ".ai/tools/ops/helper.py"),
        (python, "def f():\n    from helper import (a,\n b)", ".ai/tools/ops/helper.py"),
        (python, "import importlib; importlib.import_module('helper')", ".ai/tools/ops/helper.py"),
        (python, "import pkg.inner", ".ai/tools/ops/pkg/inner2.py"),
        (python, "import pkg.inner", ".ai/tools/ops/shared.py"),
        (python, "import pkg.inner", ".ai/tools/ops/deep_module.py"),
        (python, "import sys; sys.path.insert(0, 'lib')", "lib/anything.py"),
        (python, "import subprocess; subprocess.run(['bash', 'scripts/x.sh'])", "scripts/x.sh"),
        (javascript, "import { a } from './next.mjs';", ".ai/tools/ops/next.mjs"),
        (javascript, "import { a } from './next.mjs';", ".ai/tools/ops/last.mjs"),
        (javascript, "const a = await import(\"../lib/a.js\");", ".ai/tools/lib/a.js"),
        (javascript, "require('./old')", ".ai/tools/ops/old.cjs"),
        (javascript, "require('./folder')", ".ai/tools/ops/folder/index.js"),
        (javascript, "await import(`./plugins/${name}.mjs`)", ".ai/tools/ops/plugins/new.mjs"),
        (javascript, "import './[id].mjs';", ".ai/tools/ops/[id].mjs"),
        (javascript, "import './my helper.mjs';", ".ai/tools/ops/my helper.mjs"),
        (javascript, "require(\"./lib.txt\")", ".ai/tools/ops/lib.txt"),
        (javascript, "import '#part';", "package.json"),
        (python, "import héllo", ".ai/tools/ops/helper.py"),
        (python, "import site; site.addsitedir('lib')", "lib/anything.py"),
        (shell, "source lib/common", "lib/common"),
        (shell, ". 'lib/my q.sh'", "lib/my q.sh"),
        (shell, ". lib/q\\(1\\).sh", "lib/q(1).sh"),
        (shell, "for f in lib/*.sh; do . \"$f\"; done", "lib/new.sh"),
        (shell, "cd lib && bash q.sh", "lib/q.sh"),
        (shell, "cat data/notes.txt", "data/notes.txt"),
        (shell, ". .ai/tools/ops/next.sh", ".ai/tools/ops/last.sh"),
        (shell, "bash scripts/x.sh", "scripts/x.sh"),
        (shell, "python3 \"$RYE_PROJECT/scripts/x.py\"", "scripts/x.py"),
        (shell, "D=lib; . \"$D/q.inc\"", "lib/q.inc"),
        (shell, "D=lib; N=q; . \"$D/$N.sh\"", "lib/q.sh"),
        (shell, "for f in */q.sh; do . \"$f\"; done", "lib/q.sh"),
        (shell, "cat lib/q.txt | bash", "lib/q.txt"),
        (shell, "eval \"$(cat lib/q)\"", "lib/q"),
        (shell, "python3 -m lib.m", "lib/m.py"),
        (shell, "perl -Ilib -MQ -e1", "lib/Q.pm"),
        (shell, "python3 lib", "lib/__main__.py"),
        (shell, "node lib", "lib/index.js"),
        (shell, "cd lib; cd sub; bash q.sh", "lib/sub/q.sh"),
        (shell, "cd lib && cd sub && ./run", "lib/sub/run"),
        (shell, "cd \"$(dirname \"$0\")/sub\"; . ./c", ".ai/tools/ops/sub/c"),
        (shell, ". ~+/lib/common", "lib/common"),
        (shell, "find . -name common -exec bash {} \\;", "lib/common"),
        (shell, "PYTHONPATH=pp python3 lib/m.py", "pp/re.py"),
        (shell, "export NODE_PATH=\"$PWD/mods\"; node lib/m.js", "mods/dep.js"),
        (shell, "python3 -c 'import lib.h'", "lib/h.py"),
        (shell, "python3 <<E\nimport lib.h\nE", "lib/h.py"),
        (shell, "node -e 'require(name)'", "lib/h.js"),
        (shell, "python3 -um lib.m", "re.py"),
        (shell, "cd lib; python3 -m m", "lib/re.py"),
        (python, "import subprocess; subprocess.run(['bash', f'./{name}/q.sh'])", "lib/q.sh"),
        (javascript, "await import(`./${name}.mjs`)", ".ai/tools/ops/new.mjs"),
        (javascript, "await import(`./${name}/h.mjs`)", ".ai/tools/ops/plugin/h.mjs"),
        (python, "from sys import argv, path", "lib/anything.py"),
        (python, "from sys import (argv,\n    path)", "lib/anything.py"),
        (python, "import sys as s; s.path.insert(0, 'lib')", "lib/anything.py"),
        (python, "import sys; s = sys; s.path.insert(0, 'lib')", "lib/anything.py"),
        (python, "import sys; sys . path.insert(0, 'lib')", "lib/anything.py"),
        (python, "import sys; (sys\n.path.insert(0, 'lib'))", "lib/anything.py"),
        (python, "import sys; getattr(sys, 'path').insert(0, 'lib')", "lib/anything.py"),
        (python, "import_module('my-mod')", ".ai/tools/ops/my-mod.py"),
        (python, "__import__('q@1')", ".ai/tools/ops/q@1.py"),
        (python, "__import__('my mod')", ".ai/tools/ops/my mod.py"),
        (python, "import subprocess; subprocess.run(['bash', 'lib/' + name + '.sh'])", "lib/q.sh"),
        (python, "import subprocess; subprocess.run(['bash', 'lib/run'])", "lib/run"),
        (python, "import subprocess; subprocess.run(['bash', 'q.sh'], cwd='lib')", "lib/q.sh"),
        (python, "import subprocess; subprocess.run(['python3', '-m', 'lib.m'])", "lib/m.py"),
        (python, "import subprocess; subprocess.run('cd lib && bash run', shell=True)", "lib/run"),
        (python, "import subprocess; subprocess.run(command)", "src/any.txt"),
        (python, "import importlib; importlib.import_module(name)", "src/any.txt"),
        (python, "exec(open(path).read())", "src/any.txt"),
        (javascript, "import {execFileSync} from 'child_process'; execFileSync('bash', ['lib/run'])", "lib/run"),
        (javascript, "import {execSync} from 'child_process'; execSync('bash lib/run')", "lib/run"),
        (javascript, "import {execSync} from 'child_process'; execSync(command)", "src/any.txt"),
        (javascript, "await import(name)", "src/any.txt"),
        (javascript, "require(path.join(a, 'b'))", "src/any.txt"),
    ];
    for (main, text, changed) in rows {
        assert!(ends_with_a_change_of(main, text, changed), "{text}: {changed}");
    }
    // What a script does not load, and data that it reads, can change.
    for (main, text, changed) in [
        (python, "import helper", ".ai/tools/ops/other.py"),
        (python, "import json", "src/json.py"),
        (python, "open('data/notes.txt')", "data/notes.txt"),
        (python, "import subprocess; subprocess.run(['git', 'log', name])", "src/any.txt"),
        (python, "import subprocess; subprocess.run(['bash', 'lib/run'])", "lib/other"),
        (javascript, "import {execFileSync} from 'child_process'; execFileSync('git', ['log', x])", "src/any.txt"),
        (javascript, "import fs from 'node:fs';", "fs.js"),
        (shell, "pytest tests", "tests/test_x.py"),
        (shell, "date >> out/log", "out/log"),
        (shell, "O=out; date > \"$O/log\"", "out/log"),
        (shell, "date > \"out/$(date +%s).txt\"", "out/1.txt"),
        (python, "open('out/' + name, 'w')", "out/result.txt"),
        (python, "import os, sys; os.path.join(sys.argv[1], 'path')", "lib/anything.py"),
        (javascript, "`${a}/${b}`", "lib/anything.js"),
        (shell, "python3 -V && command -v node", "lib/anything.py"),
        (shell, "#!/usr/bin/env perl\nprint 1;", "lib/anything.py"),
        (shell, "echo x | python3 -m json.tool > out/x.json", "lib/re.py"),
    ] {
        assert!(!ends_with_a_change_of(main, text, changed), "{text}: {changed}");
    }
}

/// Returns true if trust in a command that starts `lib/main.py` ends with these files.
fn command_ends_with(text: &str, added: &str) -> bool {
    let spaces = TestSpaces::new();
    let write = |path: &str, text: &str| {
        let path = spaces.project().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("lib/main.py", text);
    write("lib/helper.py", "");
    write("lib/package/__init__.py", "");
    let one = command_requirement("t", "11", &["python3", "lib/main.py"]);
    spaces.trust().record_trust(std::slice::from_ref(&one)).unwrap();
    assert!(spaces.is_trusted(&one), "{text}");
    write(added, "");
    !spaces.is_trusted(&one)
}

#[test]
fn new_file_that_replaces_a_module_of_a_command_is_part_of_it() {
    for (text, added) in [
        ("import helper", "lib/__pycache__/helper.cpython-311.pyc"),
        ("import package", "lib/package/__pycache__/__init__.cpython-311.pyc"),
        ("", "lib/__pycache__/main.cpython-311.pyc"),
        ("import json", "lib/re.py"),
        ("import json", "lib/re/__init__.py"),
        ("import json", "lib/re.cpython-311-x86_64-linux-gnu.so"),
    ] {
        assert!(command_ends_with(text, added), "{text}: {added}");
    }
    for (text, added) in [("import json", "src/re.py"), ("import json", "lib/data/notes.txt")] {
        assert!(!command_ends_with(text, added), "{text}: {added}");
    }
}

/// Returns true if trust in a command ends after a change of `changed`. `file` has this text.
fn command_reads(command: &[&str], file: (&str, &str), changed: &str) -> bool {
    ends_with_change(command, file, changed, changed != file.0)
}

/// Returns true if trust in a command ends with a new file `added`. `file` has this text.
fn ends_with_new_file(command: &[&str], file: (&str, &str), added: &str) -> bool {
    ends_with_change(command, file, added, false)
}

fn ends_with_change(command: &[&str], (file, text): (&str, &str), changed: &str, exists: bool) -> bool {
    let spaces = TestSpaces::new();
    let write = |path: &str, text: &str| {
        let path = spaces.project().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("start.sh", "python3 lib/run\n");
    write(file, text);
    if exists {
        write(changed, "before\n");
    }
    let words: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
    let words = rye_compiler::command_files::files_of_argv(&words);
    let one = command_requirement("t", "11", &words.iter().map(String::as_str).collect::<Vec<_>>());
    spaces.trust().record_trust(std::slice::from_ref(&one)).unwrap();
    assert!(spaces.is_trusted(&one), "{command:?}: {text}");
    write(changed, "after\n");
    !spaces.is_trusted(&one)
}

#[test]
fn scripts_that_build_files_start_are_part_of_a_command() {
    let (make, npm): (&[&str], &[&str]) = (&["make", "x"], &["npm", "run", "x"]);
    for (command, file, text, changed) in [
        (make, "Makefile", "x:\n\t@bash lib/x.sh\n", "lib/x.sh"),
        (make, "Makefile", "x:\n\tbash lib/x\n", "lib/x"),
        (make, "GNUmakefile", "include lib/rules.mk\n", "lib/rules.mk"),
        (make, "Makefile", "D = lib\nx:\n\tbash $(D)/x.sh\n", "lib/x.sh"),
        (&["just"], "justfile", "x:\n  python3 tools/x.py\n", "tools/x.py"),
        (npm, "package.json", r#"{"scripts": {"x": "bash lib/x.sh"}}"#, "lib/x.sh"),
        (npm, "package.json", r#"{"scripts": {"x": "bash lib/x"}}"#, "lib/x"),
        (npm, "package.json", r#"{"scripts": {"x": "node ."}, "main": "src/x.js"}"#, "src/x.js"),
        (npm, "package.json", r#"{"exports": {"./*": {"import": "./src/*.js"}}}"#, "src/deep/x.js"),
        (npm, "package.json", r##"{"imports": {"#*": "./*.js"}}"##, "any.js"),
        (npm, "package.json", "{}", ".npmrc"),
        (npm, ".npmrc", "script-shell=tools/sh\n", "tools/sh"),
    ] {
        assert!(command_reads(command, (file, text), changed), "{text}: {changed}");
    }
    for (command, file, text, changed) in [
        (make, "Makefile", "out/x: src/x.c\n\tcc -o out/x src/x.c\n", "out/x"),
        (make, "Makefile", "out/x: src/x.c\n\tcc -o out/x src/x.c\n", "src/x.c"),
        (npm, "package.json", r#"{"scripts": {"x": "tsc -p ."}, "files": ["dist/"]}"#, "dist/index.js"),
    ] {
        assert!(!command_reads(command, (file, text), changed), "{text}: {changed}");
    }
}

#[test]
fn modules_of_the_working_folder_are_part_of_a_command() {
    let module = ("lib/m.py", "import json\n");
    for (command, file, added) in [
        (&["python3", "-m", "lib.m"][..], module, "re.py"),
        (&["python3", "-m", "lib.m"], module, "re/__init__.py"),
        (&["python3", "-mlib.m"], module, "re.py"),
        (&["python3", "-um", "lib.m"], module, "re.py"),
        (&["python3", "-m", "lib.m"], module, "lib/__pycache__/m.cpython-311.pyc"),
        (&["python3", "-m", "lib.m"], module, "lib/__init__.py"),
        (&["python3", "-m", "lib"], ("lib/__main__.py", "import json\n"), "re.py"),
        (&["python3", "-m", "json.tool", "data.json"], ("data.json", "{}"), "re.py"),
        (&["bash", "-c", "python3 - < lib/m.py"], module, "re.py"),
        (&["bash", "-c", "python3 -m lib.m"], module, "re.py"),
        (&["bash", "run.sh"], ("run.sh", "python3 -m lib.m\n"), "re.py"),
        (&["bash", "run.sh"], ("run.sh", "python3 <<E\nimport json\nE\n"), "re.py"),
    ] {
        assert!(ends_with_new_file(command, file, added), "{command:?}: {added}");
    }
    for (command, added) in [(&["python3", "-m", "lib.m"][..], "src/re.py"), (&["python3", "lib/m.py"], "re.py")] {
        assert!(!ends_with_new_file(command, module, added), "{command:?}: {added}");
    }
}

#[test]
fn script_without_an_ending_is_read_in_the_language_of_its_interpreter() {
    for (command, file, text, changed) in [
        (&["bash", "lib/run"][..], "lib/run", ". lib/q.sh", "lib/q.sh"),
        (&["bash", "-e", "lib/run"], "lib/run", ". lib/q.sh", "lib/q.sh"),
        (&["sh", "-euo", "pipefail", "lib/run.ksh"], "lib/run.ksh", "exec python3 lib/srv.py", "lib/srv.py"),
        (&["bash", "-c", "bash lib/run"], "lib/run", ". lib/q.sh", "lib/q.sh"),
        (&["env", "BASH_ENV=lib/e", "bash", "-c", "true"], "lib/e", ". lib/f", "lib/f"),
        (&["python3", "lib/run"], "lib/run", "import h", "lib/h.py"),
        (&["python3", "-u", "lib/run"], "lib/run", "#!/usr/bin/env python3\nimport h", "lib/h.py"),
        (&["python3", "lib/m.pyw"], "lib/m.pyw", "import h", "lib/h.py"),
        (&["node", "lib/run"], "lib/run", "require('./h')", "lib/h.js"),
        (&["perl", "-w", "lib/run"], "lib/run", "require './lib/q.pl';", "lib/q.pl"),
        (&["bash", "start.sh"], "lib/run", "import h", "lib/h.py"),
    ] {
        assert!(command_reads(command, (file, text), changed), "{command:?}: {text}");
    }
    assert!(ends_with_new_file(&["python3", "lib/run"], ("lib/run", "import json"), "lib/re.py"));
    assert!(!command_reads(&["python3", "lib/run", "lib/data"], ("lib/data", ". lib/q.sh"), "lib/q.sh"));
}

#[test]
fn program_too_large_to_read_is_trusted_with_the_project() {
    let long = "#".repeat((1 << 20) + 1);
    assert!(ends_with_a_change_of(".ai/tools/ops/main.py", &long, "src/any.txt"));
}

#[test]
fn interpreter_that_a_script_starts_imports_from_the_folder_of_its_program() {
    let text = "import subprocess; subprocess.run(['python3', 'lib/m.py'])";
    let spaces = TestSpaces::new();
    let write = |path: &str, text: &str| {
        let path = spaces.project().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(".ai/tools/t.py", text);
    write("lib/m.py", "import json\n");
    let one = command_requirement("t", "11", &[&format!("{LOADED_BY}.ai/tools/t.py")]);
    spaces.trust().record_trust(std::slice::from_ref(&one)).unwrap();
    write("lib/re.py", "");
    assert!(!spaces.is_trusted(&one));
}

#[test]
fn program_beyond_a_bound_is_trusted_with_the_project_for_a_reason() {
    let folders = (0..101).map(|n| format!("cd d{n}; cd ..")).collect::<Vec<_>>().join("\n");
    let rows: [(&str, &str, &str, usize); 3] = [
        ("names more than 100 folders", ".ai/tools/t.sh", &folders, 101),
        (
            "has a glob for a folder with more than 1,000 entries",
            ".ai/tools/t.sh",
            "for f in */q.sh; do . $f; done",
            1_001,
        ),
        (
            "starts a program or loads a file whose name is computed",
            ".ai/tools/t.py",
            "import subprocess; subprocess.run(x)",
            0,
        ),
    ];
    for (reason, tool, text, count) in rows {
        let spaces = TestSpaces::new();
        let project = spaces.project();
        for n in 0..count {
            fs::create_dir(project.join(format!("d{n}"))).unwrap();
        }
        fs::create_dir_all(project.join(".ai/tools")).unwrap();
        fs::write(project.join(tool), text).unwrap();
        let one = command_requirement("t", "11", &[&format!("{LOADED_BY}{tool}")]);
        spaces.trust().record_trust(std::slice::from_ref(&one)).unwrap();
        let trust = spaces.trust();
        let found = trust.snapshot().unwrap().whole_project_reason(&one);
        assert_eq!(found, Some(format!("`{tool}` {reason}")));
        fs::write(project.join("any.txt"), "").unwrap();
        assert!(!spaces.is_trusted(&one), "{reason}");
    }
    let spaces = TestSpaces::new();
    let trust = spaces.trust();
    assert_eq!(trust.snapshot().unwrap().whole_project_reason(&command_requirement("t", "11", &["run.sh"])), None);
}

#[test]
fn changed_search_path_covers_the_files_that_python_imports_and_names_what_changed() {
    let spaces = TestSpaces::new();
    let project = spaces.project();
    fs::create_dir_all(project.join("vendor/part")).unwrap();
    fs::create_dir_all(project.join(".ai/tools")).unwrap();
    fs::write(project.join(".ai/tools/t.py"), "import sys; sys.path[:0] = folders(); import late").unwrap();
    let one = command_requirement("t", "11", &[&format!("{LOADED_BY}.ai/tools/t.py")]);
    spaces.trust().record_trust(std::slice::from_ref(&one)).unwrap();
    for data in ["notes.txt", "vendor/data.csv", ".ai/lock.json", ".ai/tools/server.yaml"] {
        fs::write(project.join(data), "new").unwrap();
        assert!(spaces.is_trusted(&one), "{data}");
    }
    for added in ["vendor/part/late.py", "late.so", "vendor/x.pth", "vendor/part/__pycache__.pyc"] {
        fs::write(project.join(added), "").unwrap();
        assert!(!spaces.is_trusted(&one), "{added}");
        assert_eq!(spaces.trust().snapshot().unwrap().changed_files(&one), [added]);
        fs::remove_file(project.join(added)).unwrap();
    }
    assert_eq!(spaces.trust().snapshot().unwrap().changed_files(&one), [""; 0]);
}

#[test]
fn file_behind_a_link_counts_towards_the_size_of_a_folder() {
    let spaces = TestSpaces::new();
    let project = spaces.project();
    fs::File::create(project.join("big")).unwrap().set_len((4 << 30) + 1).unwrap();
    fs::create_dir(project.join("data")).unwrap();
    std::os::unix::fs::symlink("../big", project.join("data/link")).unwrap();
    let one = command_requirement("t", "11", &["data/"]);
    assert!(matches!(spaces.trust().record_trust(&[one]), Err(TrustError::TooLarge { .. })));
}

#[test]
fn scripts_that_load_each_other_are_read_once() {
    assert!(ends_with_a_change_of(
        ".ai/tools/ops/main.sh",
        "bash .ai/tools/ops/main.sh; . ./next.sh",
        ".ai/tools/ops/next.sh"
    ));
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
