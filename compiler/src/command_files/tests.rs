//! Tests of the words that name project files.

#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;

fn argv(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|part| (*part).to_owned()).collect()
}

fn listed(parts: &[&str]) -> Vec<String> {
    files_of_tool(&argv(parts), ".ai/tools/t.yaml", None)
}

fn called(parts: &[&str], parameters: &Value) -> Vec<String> {
    let environment = BTreeMap::new();
    let parameters = parameters.as_object().unwrap();
    files_of_tool(&argv(parts), ".ai/tools/t.yaml", Some(CallValues { parameters, environment: &environment }))
}

#[test]
fn every_spelling_of_a_path_is_covered() {
    // Each command executes `scripts/x.sh`; the second column is a word that covers it.
    for (command, covers) in [
        (&["scripts/x.sh"][..], "scripts/x.sh"),
        (&["bash", "scripts/x.sh"], "scripts/x.sh"),
        (&["bash", "./scripts/x.sh"], "./scripts/x.sh"),
        (&["bash", "{project_path}/scripts/x.sh"], "./scripts/x.sh"),
        (&["{project_path}/scripts/x.sh"], "./scripts/x.sh"),
        (&["bash", "scripts/{n}.sh"], "scripts/"),
        (&["scripts/{n}"], "scripts/"),
        (&["mytool", "scripts/{n}.sh"], "scripts/"),
        (&["bash", "{script}"], "."),
        (&["{program}", "x"], "."),
        (&["env", "A=b", "python3.12", "-u", "{script}"], "."),
        (&["timeout", "5", "bash", "{script}"], "."),
        (&["bash", "${WHERE}/x.sh"], "."),
        (&["sh", "-c", "scripts/x.sh"], "scripts/x.sh"),
        (&["sh", "-c", "true&&scripts/x.sh"], "scripts/x.sh"),
        (&["sh", "-c", "true;scripts/x.sh"], "scripts/x.sh"),
        (&["sh", "-c", "true |\tscripts/x.sh\t"], "scripts/x.sh"),
        (&["sh", "-c", "'scripts/x.sh'"], "scripts/x.sh"),
        (&["sh", "-c", "\"scripts\"/x.sh"], "scripts/x.sh"),
        (&["sh", "-c", "scr''ipts/x.sh"], "scripts/x.sh"),
        (&["sh", "-c", "scripts\\/x.sh"], "scripts/x.sh"),
        (&["sh", "-c", "scri\\\npts/x.sh"], "scripts/x.sh"),
        (&["sh", "-c", "(scripts/x.sh)"], "scripts/x.sh"),
        (&["sh", "-c", "bash<scripts/x.sh"], "scripts/x.sh"),
        (&["sh", "-c", "cat scripts/x.sh | bash"], "scripts/x.sh"),
        (&["sh", "-c", "cd scripts && ./x.sh"], "scripts"),
        (&["sh", "-c", "D=scripts; $D/x.sh"], "."),
        (&["sh", "-c", "cd $D && ./x.sh"], "."),
        (&["sh", "-c", "for f in scripts/*.sh; do bash $f; done"], "scripts/"),
        (&["sh", "-c", "bash scripts/{{x,y}}.sh"], "scripts/"),
        (&["sh", "-c", "bash scripts/?.sh"], "scripts/"),
        (&["sh", "-c", "bash $(dirname scripts/a)/x.sh"], "."),
        (&["sh", "-c", "$(dirname {tool_path})/../../scripts/x.sh"], "."),
        (&["sh", "-c", "bash `echo scripts/x.sh`"], "scripts/x.sh"),
        (&["sh", "-c", "bash $${NOPE:-scripts/x.sh}"], "scripts/x.sh"),
        (&["sh", "-c", "eval \"$(cat scripts/x.sh)\""], "scripts/x.sh"),
        (&["sh", "-c", ". scripts/x.sh"], "scripts/x.sh"),
        (&["sh", "-c", "sh -c \"sh -c 'scripts/x.sh'\""], "scripts/x.sh"),
        (&["bash", "-c", "# a # don't; bash scripts/x.sh"], "scripts/x.sh"),
        (&["bash", "-c", "cat <<E\n$(bash scripts/x.sh)\nE"], "scripts/x.sh"),
        (&["sh", "-c", "exec \"$@\"", "sh", "x"], "."),
        (&["sh", "-c", "bash {script}"], "."),
        (&["python3", "-m", "scripts.x"], "scripts/x"),
        (&["python3", "scripts"], "scripts"),
        (&["python3", "."], "."),
        (&["run-parts", "scripts"], "scripts"),
        (&["node", "--require=./scripts/x.sh", "a.js"], "./scripts/x.sh"),
        (&["bash", "-O", "extglob", "-c", "bash scripts/+(x).sh"], "scripts/"),
        (&["bash", "-O", "extglob", "-c", ". scripts/@(x|y).sh"], "scripts/"),
        (&["bash", "-O", "extglob", "-c", "bash scripts/!(y).sh"], "scripts/"),
        (&["bash", "-c", "cat ./*/*.sh | bash"], "."),
        (&["bash", "-c", "cat ./s*/x.sh | bash -s -- a"], "."),
        (&["bash", "-c", "cat [s]cripts/x.sh | (bash)"], "."),
        (&["bash", "-c", "git show HEAD:scripts/x.sh | bash"], "."),
        (&["bash", "-c", "base64 -d <<< c2NyaXB0cy94LnNo | xargs bash"], "."),
        (&["bash", "-c", "base64 -d <<< ZWNobw== | python3 -"], "."),
        (&["bash", "-c", "find . -type f -name x.sh | xargs -r bash"], "."),
        (&["bash", "-c", "echo */x.sh | xargs -I% sh -c %"], "."),
        (&["bash", "-c", "ls -d */x.sh | xargs -I% %"], "."),
        (&["bash", "-c", "git ls-files | parallel bash"], "."),
        (&["find", "-name", "*.s?", "-exec", "bash", "{{}}", ";"], "."),
        (&["find", ".", "-name", "x.sh", "-exec", "bash", "{{}}", "+"], "."),
        (&["find", "scripts", "-name", "x.sh", "-exec", "bash", "{{}}", "+"], "scripts"),
        (&["xargs", "-a", "list.txt", "bash"], "."),
        (&["sh"], "."),
        (&["make"], "Makefile"),
        (&["make", "-Cscripts"], "scripts"),
        (&["find", "scripts", "-exec", "{program}", ";"], "."),
        // Assignments to `PATH`.
        (&["bash", "-c", "PATH=$PWD/scripts:$PATH x.sh"], "."),
        (&["bash", "-c", "PATH=$PWD/scripts:/usr/bin:/bin; x.sh"], "."),
        (&["bash", "-c", "D=$PWD/scripts; export PATH=\"$D:$PATH\"; x.sh"], "."),
        (&["bash", "-c", "PATH=scripts:$PATH x.sh"], "scripts"),
        (&["env", "PATH=${WHERE}/scripts:/bin", "x.sh"], "."),
        (&["bash", "-c", "PYTHONPATH=$PWD/scripts python3 -m x"], "."),
        // Options that are joined in one word.
        (&["python3", "-Wignore", "-Bc", "import runpy"], "."),
        (&["python3", "-um", "scripts.x"], "scripts/x"),
        (&["perl", "-we", "do './scr'.'ipts/x.sh'"], "."),
        (&["perl", "-lane", "do './scr'.'ipts/x.sh'"], "."),
        // Code for an interpreter in a shell text.
        (&["bash", "-c", "python3 <<E\nimport x\nE"], "."),
        (&["bash", "-c", "python3 2> log.txt <<< 'import x'"], "."),
        (&["bash", "-c", "python3 - < scripts/x.py"], "."),
        (&["bash", "-c", "python3 < scripts/x.py"], "."),
        (&["bash", "-c", "bash -c 'perl -ne \"do name\"'"], "."),
        // The language of a file and the working folder.
        (&["bash", "scripts/x"], "\0executed by bash\0scripts/x"),
        (&["bash", "-euo", "pipefail", "scripts/x"], "\0executed by bash\0scripts/x"),
        (&["bash", "-c", "timeout 5 python3 -X dev scripts/x"], "\0executed by python\0scripts/x"),
        (&["env", "BASH_ENV=scripts/x", "bash", "-c", "true"], "\0executed by sh\0scripts/x"),
        (&["python3", "-m", "scripts.x"], "\0module scripts/x"),
        (&["bash", "-c", "cd scripts; python3 -um x"], "\0module x"),
        (&["bash", "-c", "PYTHONPATH=$PWD/scripts python3 x.py"], "\0searched scripts"),
        // Code of other programs.
        (&["git", "-c", "alias.z=!scripts/x.sh", "z"], "scripts/x.sh"),
        (&["git", "-c", "alias.z=!scr$()ipts/x.sh", "z"], "."),
        (&["git", "-c", "core.pager=scr''ipts/x.sh", "log"], "scripts/x.sh"),
        (&["awk", "BEGIN{{system(\"bash scr\" \"ipts/x.sh\")}}"], "."),
        (&["gawk", "BEGIN{{f = \"sys\" \"tem\"; @f(\"scr\" \"ipts/x.sh\")}}"], "."),
        (&["awk", "BEGIN{{\"scr\" \"ipts/x.sh\" | getline l; print l}}"], "."),
        (&["make", "-s", "--eval=all:;@bash scr$()ipts/x.sh"], "."),
        (&["make", "-s", "--eval", "all:;@scr$()ipts/x.sh"], "."),
        (&["make", "X=$(shell scr\"\"ipts/x.sh)"], "."),
        (&["sqlite3", ":memory:", ".shell bash scr\"\"ipts/x.sh"], "."),
        (&["sqlite3", ":memory:", ".sy sc\\ripts/x.sh"], "."),
        (&["ex", "-s", "-c", "!bash scr\\ipts/x.sh", "-c", "q!", "guest.txt"], "."),
        (&["vim", "-c", "call system('scr' . 'ipts/x.sh')"], "."),
        (&["sed", "-n", "s/g/bash scr\"\"ipts\\/x.sh/ep", "guest.txt"], "."),
        (&["sed", "-n", "-e", "p", "-e", "1e scr''ipts/x.sh", "guest.txt"], "."),
        (&["sed", "-ne1e scr''ipts/x.sh", "guest.txt"], "."),
        (&["bash", "-c", "sed 's/g/scr\"\"ipts\\/x.sh/e' guest.txt"], "."),
        (&["m4", "-DX=esyscmd(`scr'`ipts/x.sh')", "a.m4"], "."),
        (&["psql", "-c", "\\! scr''ipts/x.sh"], "scripts/x.sh"),
        (&["env", "awk", "BEGIN{{system(\"scr\" \"ipts/x.sh\")}}"], "."),
        (&["bash", "-c", "timeout 5 gdb -batch -ex 'shell scr\"\"ipts/x.sh'"], "."),
    ] {
        let words = listed(command);
        assert!(words.iter().any(|word| word == covers), "{command:?}: {words:?}");
    }
}

#[test]
fn command_of_a_wrapper_and_file_with_options_are_covered() {
    for (command, covers) in [
        (&["timeout", "0.5", "{program}"][..], "."),
        (&["flock", "/tmp/l", "{program}"], "."),
        (&["sudo", "-D", "/tmp", "-u", "root", "{program}"], "."),
        (&["gosu", "root", "{program}"], "."),
        (&["gcc", "-c", "@scripts/x.sh"], "scripts/x.sh"),
        (&["gcc", "-Wl,@scripts/x.sh"], "scripts/x.sh"),
    ] {
        let words = listed(command);
        assert!(words.iter().any(|word| word == covers), "{command:?}: {words:?}");
    }
}

#[test]
fn word_that_a_shell_expands_and_built_in_that_loads_a_file_cover_the_project() {
    for command in [
        &["bash", "-c", "{{source,./scripts/x.sh}}"][..],
        &["bash", "-c", "{{.,./scripts/x.sh}}"],
        &["bash", "-c", "./{{scripts,lib}}/x.sh"],
        &["bash", "-c", "~+/scripts/x.sh"],
        &["tar", "cf", "a.tar", "--checkpoint-action=exec=. ./scr*/x.sh", "a"],
        &["tar", "cf", "a.tar", "--to-command=source './scr'ipts/x.sh", "a"],
    ] {
        let words = listed(command);
        assert!(words.iter().any(|word| word == PROJECT_WORD), "{command:?}: {words:?}");
    }
}

#[test]
fn code_in_an_argument_is_read_if_the_interpreter_certainly_executes_it() {
    for (command, covers) in [
        // Code that is read like a script.
        (&["python3", "-c", "import runpy"][..], "\0code of python\0import runpy"),
        (&["/usr/bin/python3", "-uBc", "import runpy", "x"], "\0code of python\0import runpy"),
        (&["timeout", "5", "python3", "-I", "-c", "import x"], "\0code of python\0import x"),
        (&["node", "--no-warnings", "-e", "require('./x')"], "\0code of node\0require('./x')"),
        (&["bash", "-c", "python3 -c \"import x\""], "\0code of python\0import x"),
        (&["bash", "-c", "cd lib && python3 -c 'import x'"], "\0code of python\0import x"),
        (&["bash", "-c", "node -e 'require(name)'"], "\0code of node\0require(name)"),
        // Code that is open, or that other options, another quoting or a program of the project can change.
        (&["python3", "-c", "import {module}"], "."),
        (&["python3", "-c", "{code}"], "."),
        (&["python3", "-c"], "."),
        (&["python3", "-ic", "import x"], "."),
        (&["python3", "-W", "", "-c", "import x"], "."),
        (&["bin/python3", "-c", "import x"], "."),
        (&["env", "A=b", "python3", "-c", "import x"], "."),
        (&["xargs", "python3", "-c", "import x"], "."),
        (&["node", "-e", "1", "-e", "require(x)"], "."),
        (&["node", "-p", "-e", "require(x)"], "."),
        (&["node", "-r", "./x", "-e", "1"], "."),
        (&["node", "-e", "1", "--import", "./x"], "."),
        (&["bash", "-c", "python3 -c \"import $X\""], "."),
        (&["bash", "-c", "python3 -c \"f('\\x78')\""], "."),
        // A quote in a comment or in a here-document hides nothing.
        (&["bash", "-c", "# don't\ncat lib/data | bash\n# isn't"], "."),
        (&["bash", "-c", "cat <<E\ndon't\nE\nperl -e 'do name'\n# isn't"], "."),
        (&["bash", "-c", "cat <<-'E' >/dev/null\n\tdon't\n\tE\nls */x | xargs bash\n: isn't"], "."),
        (&["bash", "-c", ": $((1 << 2)) # don't\nls */x | xargs bash\n: isn't"], "."),
        (&["python3", "-uc", "import runpy"], "\0code of python\0import runpy"),
        (&["python3", "-Ic", "import runpy"], "\0code of python\0import runpy"),
    ] {
        let words = listed(command);
        assert!(words.iter().any(|word| word == covers), "{command:?}: {words:?}");
        assert!(covers == PROJECT_WORD || !words.iter().any(|word| word == PROJECT_WORD), "{command:?}: {words:?}");
    }
}

#[test]
fn data_of_a_call_names_no_program() {
    for command in [
        &["wc", "-l", "{path}"][..],
        &["cat", "scripts/x.sh"],
        &["pandoc", "{from}", "-o", "{to}"],
        &["python3", "tool.py", "{message}"],
        &["bash", "run/it.sh", "{message}", "--all={more}"],
        &["sh", "-c", "grep -c \"$1\" notes.txt", "sh", "{word}"],
        &["cargo", "test", "{package}"],
        &["jq", ".[] | .x", "{path}"],
        &["jq", ". as $x | . / 2", "{path}"],
        &["git", "commit", "-m", "source code of the parser"],
        &["awk", "{{print $1}}", "notes.txt"],
        &["sed", "-E", "s/(a+) b/$1/", "notes.txt"],
        &["sh", "-c", "jq '.[] | .x' notes.json | awk '{{print $1}}'"],
        &["sh", "-c", "cd . && cargo test"],
        &["sh", "-c", "cat scripts/x.sh | bash"],
        &["sh", "-c", "command -v python3 && bash scripts/x.sh"],
        &["sh", "-c", "echo ls | sh"],
        &["sh", "-c", "find . -name '*.md' | xargs grep -l todo"],
        &["xargs", "-a", "list.txt", "wc", "-l"],
        &["bash", "--version"],
        &["bash", "-c", "python3 -V && node --version && ruby -v"],
        &["bash", "-c", "python3 -W ignore tool.py < notes.txt > out.txt 2>&1"],
        &["bash", "-c", "cat notes.json | python3 -m json.tool"],
        &["python3", "-X", "dev", "-u", "tool.py", "{message}"],
        &["awk", "-F:", "$1 == \"a\" || $2 != 0 {{ print }}", "notes.txt"],
        &["sed", "-i", "-e", "/^the end$/,$d; 1,3!s/one/the other/gI; y/ab/cd/", "notes.txt"],
        &["sed", "/a/{{p;q}}", "notes.txt"],
        &["git", "log", "--format=%h %s (%an)", "--", ":!docs"],
        &["git", "commit", "-m", "Fix the system shell of node and bash!"],
        &["jq", "select(.a != 1) | .exec", "{path}"],
        &["sqlite3", "a.db", "select a, b from t where a != 1"],
        &["gh", "issue", "list", "--search", "is:open label:\"shell\""],
        &["sh", "-c", "PATH=/usr/bin:$PATH cargo test"],
        &["sh", "-c", "export PATH=\"$PATH:/opt/bin\"; cargo test"],
        &["gosu", "root", "pandoc", "{from}"],
        &["stdbuf", "-oL", "/usr/bin/pandoc", "{from}"],
    ] {
        let words = listed(command);
        assert!(!words.iter().any(|word| word == "." || word.ends_with('/')), "{command:?}: {words:?}");
        let values = json!({"path": "tests", "from": "tests/a.md", "to": "tests", "message": "run the tests now",
            "more": "tests", "word": "tests", "package": "tests"});
        let words = called(command, &values);
        assert!(!words.iter().any(|word| word.starts_with("tests")), "{command:?}: {words:?}");
    }
}

#[test]
fn value_of_a_call_that_is_data_is_no_code() {
    for command in [
        &["mytool", "{n}"][..],
        &["mytool", "--message={n}"],
        &["python3", "tool.py", "{n}"],
        &["awk", "{{print $1}}", "{n}"],
        &["sed", "s/a/b/", "{n}"],
        &["git", "commit", "-m", "{n}"],
    ] {
        let words = called(command, &json!({"n": "python x | system(1); e !y exec(z)"}));
        assert!(!words.contains(&".".to_owned()), "{command:?}: {words:?}");
    }
    // A value inside the `sed` script is part of the script.
    let words = called(&["sed", "s/a/{n}/"], &json!({"n": "b/e; s/a/b"}));
    assert!(words.contains(&".".to_owned()), "{words:?}");
}

#[test]
fn value_of_a_call_names_its_file() {
    for (command, value, names) in [
        (&["bash", "scripts/{n}.sh"][..], "x", "scripts/x.sh"),
        (&["bash", "scripts/{n}.sh"], "../other/x", "scripts/../other/x.sh"),
        (&["bash", "{n}"], "scripts/x.sh", "scripts/x.sh"),
        (&["sh", "-c", "bash {n}"], "a; scripts/x.sh", "scripts/x.sh"),
        (&["sh", "-c", "echo {n}"], "a; scripts/x.sh", "scripts/x.sh"),
        (&["sh", "-c", "echo {n}"], "$(scripts/x.sh)", "scripts/x.sh"),
        (&["{n}"], "scripts/x.sh", "scripts/x.sh"),
    ] {
        let words = called(command, &json!({"n": value}));
        assert!(words.iter().any(|word| word == names), "{command:?}: {words:?}");
    }
    let words = called(&["bash", "{all}"], &json!({"all": ["scripts/x.sh", "y.sh"]}));
    assert!(words.contains(&"scripts/x.sh".to_owned()), "{words:?}");
}

#[test]
fn default_of_a_variable_in_the_command_of_a_server_is_covered() {
    for (command, covers) in [
        (&["python3", "${NOPE:-scripts/srv.py}"][..], "scripts/srv.py"),
        (&["sh", "-c", "exec python3 ${NOPE:-scripts/srv.py}"], "scripts/srv.py"),
    ] {
        let words = files_of_argv(&argv(command));
        assert!(words.iter().any(|word| word == covers || word == "."), "{command:?}: {words:?}");
    }
}

#[test]
fn computed_name_of_a_program_is_read_from_the_values_of_a_shell_text() {
    for (text, covers) in [
        ("find . -name x | while read f; do . $f; done", COMPUTED),
        ("find . -name x | while IFS= read -r f; do\n  bash \"$f\"\ndone", COMPUTED),
        ("for f in $(find . -name x); do . $f; done", COMPUTED),
        ("for f in $(ls l*b/*); do bash $f; done", COMPUTED),
        ("for f in *; do . ./$f; done", COMPUTED),
        ("for f in {a,b}; do sh ./$f; done", COMPUTED),
        ("for f in */; do . $f/x; done", "\0in any folder x"),
        ("for d in $(ls); do bash \"$d/lib/x.sh\"; done", "\0in any folder lib/x.sh"),
        ("for d in */; do (cd $d && ./build); done", "\0in any folder build"),
        ("for d in */; do (cd \"$d\"; make -s); done", "\0in any folder Makefile"),
        ("mapfile -t a < list\n\"${a[0]}\"", COMPUTED),
        ("readarray -t F < <(ls)\n. ${F[0]}", COMPUTED),
        ("files=($(ls)); for f in \"${files[@]}\"; do bash \"$f\"; done", COMPUTED),
        ("P=./l; P+=ib/x; . $P", COMPUTED),
        ("p=lib/x.bak; bash ${p%.bak}", COMPUTED),
        ("f=$(cat list); $f", COMPUTED),
        ("f=$(cat list); g=./$f; if true; then exec \"$g\"; fi", COMPUTED),
        ("f=$(cat list); run() { bash \"$f\"; }; run", COMPUTED),
        ("read -r c < list; eval \"$c\"", COMPUTED),
        ("read -r c < list; bash -c \"$c\"", COMPUTED),
        ("read -r f < list; bash < \"$f\"", COMPUTED),
        ("read -r f < list; PYTHON=$(command -v python3); $PYTHON -u \"$f\"", COMPUTED),
        ("read -r f < list; ${PYTHON:-python3} \"$f\"", COMPUTED),
        (". \"$(ls */x)\"", COMPUTED),
        ("for f in $(<list); do . $f; done", COMPUTED),
        ("one() { bash \"$1\"; }; find . -name x | while read f; do one \"$f\"; done", COMPUTED),
        ("function one { . \"$2\"; }\nread f; one a \"$f\"", COMPUTED),
        ("run() {\n  echo \"$@\"\n  \"$@\"\n}\nread f; run bash \"$f\"", COMPUTED),
        ("read f < list\ncase a in\n  a) $f ;;\n  *) . \"$f\" ;;\nesac", COMPUTED),
        ("read f < list; case a in a) ;; esac | $f", COMPUTED),
        ("read f < list; (echo a\\;; $f)", COMPUTED),
        ("read f < list; (case a in a) ;; esac; $f)", COMPUTED),
        ("r=q; declare -n r; . $r", COMPUTED),
        ("while read f; do . lib/$f; done", "lib/"),
        ("for f in \"$DIR\"/lib/*; do . \"$f\"; done", "lib/"),
        (". \"${PWD}/l\"\"ib/x\"", "lib/x"),
        ("D=l; D2=ib; . ./$D$D2/x", "./lib/x"),
        ("for n in a b; do bash \"$PWD/test-$n\"; done", "test-b"),
        ("C='python3 -u'; $C lib/x", "python3"),
    ] {
        let words = files_of_shell_text(text);
        assert!(words.iter().any(|word| word == covers), "{text}: {words:?}");
    }
    for text in [
        "DIR=\"$(cd \"$(dirname \"$0\")\" && pwd)\"; . \"$DIR/lib.sh\"",
        "ROOT=$(git rev-parse --show-toplevel)\ncd \"$ROOT\"\nbash \"$ROOT/scripts/x.sh\" \"$(cat VERSION)\"",
        "SELF=$(readlink -f \"$0\"); DIR=${SELF%/*}; cd \"$DIR/..\"; ./run",
        "PYTHON=$(command -v python3); $PYTHON x.py",
        "PYTHON=${PYTHON:-python3}; \"$PYTHON\" x.py",
        "\"$@\"",
        "\"$1\"; bash \"$1\"; . \"${2:-x.sh}\"",
        "for f in a.sh b.sh; do bash \"$f\"; done",
        "for f in lib/*.sh; do . \"$f\"; done",
        "for f in $(git ls-files '*.md'); do grep -n todo \"$f\"; done",
        "find . -name '*.sh' | while read -r f; do shellcheck \"$f\" || exit 1; done",
        "while read -r line; do if [[ -n $line && $line != \\#* ]]; then echo \"$line\"; fi; done < list",
        "n=$(wc -l < list); echo $(( $n + 1 )); if (( $n > 3 )); then exit 1; fi",
        "case \"$1\" in\n  -h|--help) usage ;;\n  *.sh|[yY]*) bash x.sh ;;\n  *) exit 2 ;;\nesac",
        "case $x in\n  (*[!:]:) a ;; (\"$y\"|*.\"$z\".*) b ;;\nesac",
        "log() { echo \"$1\"; }; run() { bash \"$1\"; \"$2\"; }\nlog \"$(date)\"; run a.sh \"$PWD/x.sh\"; bash \"$1\"",
        "die() { printf '%s' \"$@\" >&2; exit 1; }; [ -f x ] || die \"$(cat x)\"",
        "files=($(git diff --name-only)); prettier \"${files[@]}\"",
        "cmd=(cargo test); cmd+=(--all \"$(cat list)\"); \"${cmd[@]}\"",
        "OPTIONS=-v; OPTIONS+=\" --all\"; OPTIONS=\"$OPTIONS -q\"; cargo test $OPTIONS",
        "CMD=\"cargo test\"; CMD=\"$CMD --all\"; $CMD",
        "SUDO=; [ \"$(id -u)\" = 0 ] || SUDO=sudo; $SUDO bash x.sh",
        "T=$(mktemp -d); (cd \"$T\" && make)",
        "{ echo a; echo b; } > out; [ -f a ] && [ -f b ] || exit 1",
        "read -r name; cat <<E\n$name is the name\nE",
        "# $f is `read`\nread -r f",
        "map[$key]=1; a[0]=x; [ -n \"${a[0]}\" ]",
        "export V=$(date +%s) W; echo \"$V\"; eval \"$(ssh-agent -s)\"",
        "time cargo test; exec > >(tee log); trap 'rm -f \"$T\"' EXIT",
    ] {
        let words = files_of_shell_text(text);
        assert!(!words.iter().any(|word| word == COMPUTED || word.starts_with(IN_ANY_FOLDER)), "{text}: {words:?}");
    }
}
