//! Tests of the files that code in an argument, an escaped path and a linked package load.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;

use rye_compiler::command_files::files_of_tool;

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
    let rows: [(&[&str], &str); 13] = [
        (&["python3", "-m", "unittest", "-v", "lib.sub.x"], "lib/sub/x.py"),
        (&["python3", "-mtimeit", "-n1", "from lib.sub import x"], "lib/sub/x.py"),
        (&["python3", "-m", "pydoc", "lib.x"], "lib/x.py"),
        (&["python3", "-m", "trace", "--module", "lib.sub.x"], "lib/sub/x.py"),
        (&["bash", "-c", "cd lib; python3 -m inspect sub.x"], "lib/sub/x.py"),
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
        for folder in ["lib/sub", "packages/part", "node_modules"] {
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
        ("run-parts --regex=^a lib", "lib/x"),
        ("prove -v", "t/a.t"),
        ("read f < list; sudo -u root $f", "lib/x"),
        ("read f < list; exec -a n $f", "lib/x"),
        ("read f < list; env -u X A=b \"$f\"", "lib/x"),
        ("read f < list; timeout -k 1 0.5 flock /tmp/l $f", "lib/x"),
        ("read f < list; flock /tmp/l bash $f", "lib/x"),
        ("read f < list; flock l -c \"$f\"", "lib/x"),
        ("read f < list; S='sudo -u root'; $S $f", "lib/x"),
        ("read f < list; O='-u root'; sudo $O $f", "lib/x"),
        ("read f < list; run() { sudo -u root \"$@\"; }; run $f", "lib/x"),
        ("read f < list; bash -c \"cd lib; . $f\"", "lib/x"),
        ("read d < list; sh -c \"cd $d && make -s\"", "lib/Makefile"),
        ("gcc -c @lib/options a.c", "lib/options"),
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
        ("read f < list; sudo -u root cat $f; timeout 5 grep -c a \"$f\"; env -u X wc \"$f\"", "lib/x.sh"),
        ("read f < list; bash -c \"git log $f\"; flock -n l git add $f", "lib/x.sh"),
        ("read f < list; timeout \"$f\" cargo test; nice -n $f git gc", "lib/x.sh"),
    ] {
        assert!(!ends_with_a_change_of(SHELL, text, changed), "{text}: {changed}");
    }
}

const PYTHON: &str = ".ai/tools/ops/main.py";

#[test]
fn file_that_python_executes_in_a_computed_folder_or_environment_is_part_of_it() {
    for (text, changed) in [
        ("d = p + '/li' + 'b'\nsubprocess.run(['make', '-s'], cwd=d, check=True)", "lib/Makefile"),
        ("subprocess.run(['./run'], cwd=folder)", "lib/run"),
        ("os.chdir(folder)\nsubprocess.run(['bash', 'x'])", "lib/x"),
        ("subprocess.run('make all', shell=True, cwd=folder)", "lib/Makefile"),
        ("subprocess.run(['helper'], env={'PATH': project_path + '/b' + 'in'})", "bin/helper"),
        ("os.environ['PATH'] = os.path.join(project_path, 'b' + 'in')\nsubprocess.run(['git', 'log'])", "bin/git"),
        ("subprocess.run(['git', 'q'], env=dict(os.environ, GIT_CONFIG_GLOBAL='cf' + 'g'))", "cfg"),
        ("os.environ.setdefault('LD_PRELOAD', name)\nsubprocess.run(['git', 'q'])", "lib/x.so"),
        ("os.environ['PYTHONPATH'] = str(Path(__file__).parent / 'lib')\nsubprocess.run(['git', 'q'])", "lib/x.txt"),
        ("types.FunctionType(compile(open('x.txt').read(), 'x', 'exec'), {})()", "x.txt"),
        ("exec_ = FunctionType(code, {})", "x.txt"),
        ("timeit.timeit(open('x.txt').read(), number=1)", "x.txt"),
        ("cProfile.run(code)", "x.txt"),
        ("pydoc.importfile('x.txt')", "x.txt"),
        ("import unittest\nunittest.defaultTestLoader.discover('tests')", "tests/test_a.py"),
        ("import unittest\nunittest.TestLoader().discover(folder)", "tests/test_a.py"),
        ("ctypes.CDLL(None).system(b'. ./x.txt')", "x.txt"),
        ("ctypes.CDLL('lib/x.so')", "lib/x.so"),
        ("logging.config.fileConfig('log.ini')", "log.ini"),
        ("subprocess.run(['run-parts', 'plug'])", "plug/a"),
        ("subprocess.run(['prove', '-v', 'tests'])", "tests/a.t"),
    ] {
        let text = format!("import os, subprocess\n{text}\n");
        assert!(ends_with_a_change_of(PYTHON, &text, changed), "{text}: {changed}");
    }
    for text in [
        "subprocess.run(['make'], cwd=project_path)",
        "ROOT = Path(__file__).resolve().parents[2]\nsubprocess.run(['bash', 'lib/run'], cwd=ROOT)",
        "subprocess.run(['git', 'log', name], cwd=folder)",
        "os.chdir(os.path.dirname(os.path.abspath(__file__)))\nsubprocess.run(['bash', 'lib/run'])",
        "subprocess.run(['bash', 'lib/run'], env={**os.environ, 'PATH': '/usr/bin:/bin', 'PAGER': 'cat'})",
        "if name == 'PATH':\n    print(os.environ['PATH'])\nsubprocess.run(['git', 'log'])",
        "env = {'PATH': os.environ['PATH'], 'LANG': lang}\nsubprocess.run(['git', 'log'], env=env)",
        "PATTERN = re.compile(text)\ndef compile(text): pass",
        "timeit.timeit('f()', number=3); cProfile.run('main()')",
        "ctypes.CDLL(ctypes.util.find_library('c'))",
        "service.discover(name)",
    ] {
        let text = format!("import os, re, subprocess\n{text}\n");
        assert!(!ends_with_a_change_of(PYTHON, &text, "src/any.txt"), "{text}");
    }
}

#[test]
fn text_that_javascript_executes_covers_the_project() {
    for text in [
        "(0, eval)(text)",
        "const run = eval;\nrun(text)",
        "globalThis.eval(text)",
        "Function(text)()",
        "new Function('a', text)",
        "[].constructor.constructor(text)()",
        "const F = Object.getPrototypeOf(async function () {}).constructor",
        "const F = (async () => {}).constructor",
        "const m = new Module('x'); m._compile(text, 'x')",
        "import repl from 'node:repl'",
        "import {execFileSync} from 'child_process'\nprocess.env.PATH = folder\nexecFileSync('git', ['log'])",
        "import {execFileSync} from 'child_process'\nexecFileSync('git', ['log'], { env: { PATH: folder } })",
    ] {
        assert!(ends_with_a_change_of(JAVASCRIPT, text, "src/any.txt"), "{text}");
    }
    for text in [
        "const root = typeof self == 'object' && self || Function('return this')()",
        "if (isFunction(value)) value.constructor.name",
        "model.eval(); class A { constructor() {} }",
        "import {execFileSync} from 'child_process'\nexecFileSync('git', ['log'], { env: { PATH: '/usr/bin' } })",
        "import {execFileSync} from 'child_process'\nexecFileSync('git', ['log'], { env: { PATH: process.env.PATH } })",
    ] {
        assert!(!ends_with_a_change_of(JAVASCRIPT, text, "src/any.txt"), "{text}");
    }
}

#[test]
fn file_that_a_build_file_executes_by_a_computed_name_is_part_of_it() {
    let ends = |name: &str, text: &str, changed: &str| {
        let spaces = TestSpaces::new();
        let project = spaces.project();
        for folder in ["conf.d", "scripts", "src", "build"] {
            fs::create_dir(project.join(folder)).unwrap();
        }
        fs::write(project.join(name), text).unwrap();
        fs::write(project.join(changed), "1").unwrap();
        let one = command_requirement("t", "11", &[name]);
        spaces.trust().record_trust(std::slice::from_ref(&one)).unwrap();
        assert!(spaces.is_trusted(&one), "{text}");
        fs::write(project.join(changed), "2").unwrap();
        !spaces.is_trusted(&one)
    };
    for (text, changed) in [
        ("include conf.d/*.mk\n", "conf.d/a.mk"),
        ("-include $(wildcard conf.d/*)\n", "conf.d/a"),
        ("FILES := $(wildcard conf.d/*)\ninclude $(FILES)\n", "conf.d/a"),
        ("include $(wildcard *.inc)\n", "a.inc"),
        ("out-%: scripts/%.sh ; @sh $<\n", "scripts/x.sh"),
        ("out-%: scripts/%\n\t@bash -e $< > $@\n", "scripts/x"),
        ("out: scripts/x\n\t./$<\n", "scripts/x"),
        ("all: ;@for s in scripts/*; do sh $$s; done\n", "scripts/a"),
        ("S = $(wildcard scripts/*)\nall:\n\tset -e; \\\n\tfor s in $(S); do sh $$s; done\n", "scripts/a"),
        ("all:\n\tfor s in $(shell ls); do sh $$s; done\n", "scripts/a"),
        ("D := scripts\nall:\n\t@for s in a b; do sh $(D)/$$s; done\n", "scripts/a"),
    ] {
        assert!(ends("Makefile", text, changed), "{text}: {changed}");
    }
    assert!(ends("justfile", "all:\n  for s in $(ls); do sh $s; done\n", "scripts/a"));
    for (text, changed) in [
        ("SRC := $(wildcard src/*.c)\nOBJ := $(SRC:src/%.c=build/%.o)\nall: $(OBJ)\n\t$(CC) -o app $^\n", "src/a.c"),
        ("build/%.js: src/%.ts\n\ttsc $<\n-include $(wildcard build/*.d)\n", "src/a.ts"),
        ("-include $(DEPS)\nall:\n\t$(MAKE) -C $(DIR) $(call flags,a b) && $(Q)cp src/*.c build\n", "src/a.c"),
        ("V := $(shell git describe)\nall:\n\t@echo $(V) $$(date) > build/v; rm -f build/*.o\n", "build/a"),
        ("PY ?= python3\nall:\n\t@if [ -n \"$(X)\" ]; then $(PY) scripts/x.py $(ARGS); fi\n", "scripts/y.py"),
        ("all: $(addprefix build/,a b)\nbuild/%:\n\tmkdir -p $(@D) $(dir $@)\n\t{ cat src/* ; } > $@\n", "src/a"),
    ] {
        assert!(!ends("Makefile", text, changed), "{text}: {changed}");
    }
    assert!(!ends("justfile", "test name:\n  cargo test {{name}}\n  bash scripts/x.sh {{name}}\n", "scripts/y.sh"));
}

#[test]
fn file_that_perl_ruby_lua_or_php_loads_by_a_computed_name_is_part_of_it() {
    for (main, text) in [
        ("a.pl", "use strict;\nmy $f = shift;\ndo $f;"),
        ("a.pl", "use strict;\nfor my $f (glob 'l*/*') { require $f }"),
        ("a.pl", "use strict;\ndo \"./$ARGV[0]\" or die;"),
        ("a.pl", "use strict;\ndo File::Spec->catfile($d, 'x');"),
        ("a.pl", "use strict;\neval $text;"),
        ("a.pl", "use lib $ENV{MODULES};"),
        ("a.pl", "use strict;\nunshift @INC, $d;"),
        ("a.pl", "use strict;\nsystem(\"bash $f\");"),
        ("a.pl", "use strict;\nsystem 'bash', $f;"),
        ("a.pl", "use strict;\nmy $o = `bash $f`;"),
        ("a.pl", "use strict;\nmy $o = qx{sh $f};"),
        ("a.pl", "use strict;\nopen(my $h, '-|', $command) or die;"),
        ("a.pl", "use strict;\nopen(H, \"$command |\");"),
        ("a.pl", "use strict;\nexec @ARGV;"),
        ("a.pl", "use strict;\n$ENV{PATH} = $d;\nsystem('git log');"),
        ("a.pl", "use strict;\nchdir $d;\nsystem('make');"),
        ("a.rb", "load ARGV[0]"),
        ("a.rb", "Dir['l*/*.rb'].each { |f| require f }"),
        ("a.rb", "Dir.glob('*/x').each do |f|\n  load f\nend"),
        ("a.rb", "require_relative \"#{name}\""),
        ("a.rb", "Kernel.load(path)"),
        ("a.rb", "eval(File.read(path))"),
        ("a.rb", "Object.class_eval(text)"),
        ("a.rb", "system(\"bash #{f}\")"),
        ("a.rb", "system 'bash', f"),
        ("a.rb", "out = `sh #{f}`"),
        ("a.rb", "out = %x(sh #{f})"),
        ("a.rb", "Open3.capture2e(*command)"),
        ("a.rb", "$LOAD_PATH.unshift(folder)"),
        ("a.rb", "ENV['RUBYLIB'] = folder\nsystem('ruby -rx -e 1')"),
        ("a.lua", "dofile(arg[1])"),
        ("a.lua", "loadfile(name)()"),
        ("a.lua", "local m = require(\"plugins.\" .. name)"),
        ("a.lua", "local r = require\nr(name)"),
        ("a.lua", "package.path = arg[1] .. package.path"),
        ("a.lua", "os.execute(\"bash \" .. f)"),
        ("a.lua", "local p = io.popen(command, 'r')"),
        ("a.php", "<?php\ninclude $argv[1];"),
        ("a.php", "<?php foreach (glob('l*/*') as $f) { require_once $f; }"),
        ("a.php", "<?php\nrequire(__DIR__ . \"/$name\");"),
        ("a.php", "<?php\neval($text);"),
        ("a.php", "<?php\nexec(\"bash $f\", $lines);"),
        ("a.php", "<?php\n$p = proc_open(['bash', $f], [], $pipes);"),
    ] {
        let main = format!(".ai/tools/ops/{main}");
        assert!(ends_with_a_change_of(&main, text, "src/any.txt"), "{text}");
    }
    for (main, text, changed) in [
        ("a.php", "<?php\ninclude __DIR__ . '/part.inc';", ".ai/tools/ops/part.inc"),
        ("a.pl", "use FindBin;\ndo \"$FindBin::Bin/part.inc\";", ".ai/tools/ops/part.inc"),
        ("a.lua", "os.execute('sh lib/x ' .. name)", "lib/x"),
        ("a.rb", "system('sh', 'lib/x', name)", "lib/x"),
    ] {
        let main = format!(".ai/tools/ops/{main}");
        assert!(ends_with_a_change_of(&main, text, changed), "{text}: {changed}");
    }
}

#[test]
fn ordinary_perl_ruby_lua_or_php_program_covers_only_the_files_that_it_names() {
    for (main, text) in [
        (
            "a.pl",
            "use strict;\nuse lib 'lib';\nuse Foo::Bar;\nrequire Foo;\nrequire 5.010;\ndo { $x++ } while ($x < 3);",
        ),
        ("a.pl", "use strict;\nmy $d = dirname(__FILE__);\nrequire \"$d/x.pl\";\neval { die }; $h->do($sql);"),
        ("a.pl", "use strict;\nsystem('git', 'log', $name); my $o = `git log $name`; print \"unknown system $name\";"),
        ("a.pl", "use strict;\nopen(my $h, '<', $file); $ENV{PATH} = '/usr/bin:/bin';\nchdir $d; system('git log');"),
        ("a.rb", "require 'json'\nrequire_relative 'lib/x'\nYAML.load(text); x.each do |y|\n  puts y\nend"),
        ("a.rb", "ROOT = File.expand_path('..', __dir__)\nrequire File.join(ROOT, 'lib', 'x')"),
        ("a.rb", "$LOAD_PATH.unshift(File.join(__dir__, 'lib'))\nload 'x.rb' if y\ngem 'a', require: false"),
        ("a.rb", "# load the_file\nputs \"please load #{name}\"\nraise \"no such option `#{name}'\"\ndb.exec(sql)"),
        ("a.rb", "text = <<E\nload the file first\nE\nsystem(\"git log #{name}\")\nsystem('make', chdir: 'lib')"),
        ("a.lua", "local json = require(\"json\")\nlocal ok, lfs = pcall(require, \"lfs\")\nwhile x do y = 1 end"),
        ("a.lua", "package.path = \"./lib/?.lua;\" .. package.path\nos.execute(\"git log \" .. name)\n-- load x\n"),
        ("a.php", "<?php\nrequire __DIR__ . '/vendor/x.php';\n$db->exec($sql); $this->load($x); curl_exec($c);"),
        (
            "a.php",
            "<?php\n$root = dirname(__FILE__);\nrequire_once $root . '/lib/x.php';\nfunction load($x) { return $x; }",
        ),
        ("a.php", "<?php\nexec('git log ' . escapeshellarg($name), $lines, $status);"),
    ] {
        let main = format!(".ai/tools/ops/{main}");
        assert!(!ends_with_a_change_of(&main, text, "src/any.txt"), "{text}");
    }
}
