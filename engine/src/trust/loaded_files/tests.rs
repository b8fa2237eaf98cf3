//! Tests of the files that code in an argument, an escaped path and a linked package load.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;

use rye_compiler::trust::command_files::files_of_tool;

use super::super::tests::{TestSpaces, command_requirement, ends_with_a_change_of};

const JAVASCRIPT: &str = ".ai/tools/ops/main.mjs";
const SHELL: &str = ".ai/tools/ops/main.sh";

#[test]
fn escaped_path_of_an_import_is_part_of_a_script() {
    for text in [
        r#"import "./\u0068.mjs""#,
        r#"import x from "./\x68.mjs""#,
        r"export * from './\u{68}.mjs'",
        r#"import "./\h\.mjs""#,
        "import \"./\\\nh.mjs\"",
    ] {
        assert!(ends_with_a_change_of(JAVASCRIPT, text, ".ai/tools/ops/h.mjs"), "{text}");
        assert!(!ends_with_a_change_of(JAVASCRIPT, text, "notes.txt"), "{text}");
    }
    for text in [r"r\u0065quire(name)", r"\u0065val(text)", "require(/* don't */ name)"] {
        assert!(ends_with_a_change_of(JAVASCRIPT, text, "notes.txt"), "{text}");
    }
}

#[test]
fn package_of_the_project_behind_a_link_is_part_of_a_script() {
    for (import, link) in [("part", "part"), ("@own/part/lib/a.mjs", "@own/part"), ("./x.mjs", "part")] {
        let spaces = TestSpaces::new();
        let project = spaces.project();
        let write = |path: &str| {
            fs::create_dir_all(project.join(path).parent().unwrap()).unwrap();
            fs::write(project.join(path), "1").unwrap();
        };
        write("packages/part/lib/a.mjs");
        write("packages/part/README.md");
        write("node_modules/@own/installed/index.js");
        let target = project.join("packages/part");
        std::os::unix::fs::symlink(target, project.join("node_modules").join(link)).unwrap();
        fs::create_dir_all(project.join(".ai/tools/ops")).unwrap();
        fs::write(project.join(JAVASCRIPT), format!("import '{import}'; import '@own/installed'")).unwrap();
        let one = command_requirement("t", "11", &[&format!("\0loaded by {JAVASCRIPT}")]);
        spaces.trust().record_trust(std::slice::from_ref(&one)).unwrap();
        for changed in ["packages/part/README.md", "node_modules/@own/installed/index.js"] {
            fs::write(project.join(changed), "2").unwrap();
            assert!(spaces.is_trusted(&one), "{import}: {changed}");
        }
        fs::write(project.join("packages/part/lib/a.mjs"), "2").unwrap();
        assert_eq!(spaces.is_trusted(&one), import == "./x.mjs", "{import}");
    }
}

#[test]
fn code_in_an_argument_is_read_like_a_script() {
    let rows: [(&[&str], &str); 8] = [
        (&["python3", "-c", "import helper"], "helper.py"),
        (&["python3", "-c", "import json"], "re.py"),
        (&["python3", "-Bc", "import subprocess; subprocess.run(['bash', 'lib/x', name])"], "lib/x"),
        (&["node", "-e", "require('./lib/x')"], "lib/x.js"),
        (&["node", "-e", "await import('part')"], "packages/part/a.mjs"),
        (&["bash", "-c", "cd lib && python3 -c 'import helper'"], "lib/helper.py"),
        (&["sh", "-c", "set -e; node -p \"require('./x').version\""], "x.js"),
        (&["bash", "lib/start.sh"], "lib/helper.py"),
    ];
    let reason = "code in an argument starts a program or loads a file whose name is computed";
    let computed: [&[&str]; 3] = [
        &["python3", "-c", "import runpy; runpy.run_path(name)"],
        &["node", "-e", "require(process.argv[1])", "x"],
        &["bash", "-c", "python3 -c 'exec(open(name).read())'"],
    ];
    let place = || {
        let spaces = TestSpaces::new();
        for folder in ["lib", "packages/part", "node_modules"] {
            fs::create_dir_all(spaces.project().join(folder)).unwrap();
        }
        fs::write(spaces.project().join("lib/start.sh"), "cd lib\npython3 -c 'import helper'\n").unwrap();
        std::os::unix::fs::symlink("../packages/part", spaces.project().join("node_modules/part")).unwrap();
        spaces
    };
    let requirement = |command: &[&str]| {
        let argv: Vec<String> = command.iter().map(|part| (*part).to_owned()).collect();
        let words = files_of_tool(&argv, "t.yaml", None);
        command_requirement("t", "11", &words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    for (command, loaded) in rows {
        let (spaces, one) = (place(), requirement(command));
        fs::write(spaces.project().join(loaded), "1").unwrap();
        spaces.trust().record_trust(std::slice::from_ref(&one)).unwrap();
        fs::write(spaces.project().join("notes.txt"), "new").unwrap();
        assert!(spaces.is_trusted(&one), "{command:?}");
        fs::write(spaces.project().join(loaded), "2").unwrap();
        assert!(!spaces.is_trusted(&one), "{command:?}");
    }
    for command in computed {
        let (spaces, one) = (place(), requirement(command));
        spaces.trust().record_trust(std::slice::from_ref(&one)).unwrap();
        assert_eq!(spaces.trust().snapshot().unwrap().whole_project_reason(&one).as_deref(), Some(reason));
        fs::write(spaces.project().join("notes.txt"), "new").unwrap();
        assert!(!spaces.is_trusted(&one), "{command:?}");
    }
}

#[test]
fn quote_in_a_comment_or_a_document_hides_no_file_of_a_script() {
    for text in [
        "# don't\nperl -e 'do name'\n# isn't",
        "cat <<E\ndon't\nE\nperl -e 'do name'\n# isn't",
        "x=$((1<<2)) # don't\nperl -e 'do name'\n# isn't",
    ] {
        assert!(ends_with_a_change_of(SHELL, text, "notes.txt"), "{text}");
    }
}

#[test]
fn file_that_a_shell_script_executes_by_a_computed_name_is_part_of_it() {
    for (text, changed) in [
        ("find . -name x | while read f; do . $f; done", "lib/x"),
        ("for f in $(find . -name x); do . $f; done", "lib/x"),
        ("for f in */; do . $f/x; done", "lib/x"),
        ("for f in $(ls l*b/*); do bash $f; done", "lib/x"),
        ("for d in $(find . -type d); do . \"$d/x\"; done", "lib/sub/deep/x"),
        ("for d in */; do (cd \"$d\" && make); done", "lib/Makefile"),
        ("P=./l\nP+=ib/x\n. $P", "lib/x"),
        (". \"${PWD}/l\"\"ib/x\"", "lib/x"),
        ("D=l; . ./${D}ib/x", "lib/x"),
        ("for f in \"$PWD\"/lib/*; do . \"$f\"; done", "lib/x"),
        ("{source,./lib/x}", "lib/x"),
    ] {
        assert!(ends_with_a_change_of(SHELL, text, changed), "{text}: {changed}");
    }
    for (text, changed) in [
        ("DIR=\"$(cd \"$(dirname \"$0\")\" && pwd)\"; . \"$DIR/lib.sh\"", "lib/x.sh"),
        ("PYTHON=$(command -v python3); $PYTHON x.py", "lib/x.py"),
        ("bash \"$1\"; \"$@\"", "lib/x.sh"),
        ("for f in a.sh b.sh; do bash \"$f\"; done", "lib/x.sh"),
        ("for f in lib/*.sh; do . \"$f\"; done", "src/x.sh"),
        ("for f in */; do . $f/x; done", "lib/y"),
        ("find . -name '*.sh' | while read -r f; do shellcheck \"$f\"; done", "lib/x.sh"),
    ] {
        assert!(!ends_with_a_change_of(SHELL, text, changed), "{text}: {changed}");
    }
}
