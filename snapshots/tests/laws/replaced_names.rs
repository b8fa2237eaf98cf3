//! Names that the glossary replaced: no declaration and no file uses them again.

use std::fs;
use std::path::Path;

use super::house::{root, sources};

/// Replaced names of types, traits and constants.
const TYPES: [&str; 48] = [
    "About",
    "Acted",
    "Acts",
    "AskedGrant",
    "Asker",
    "Beginning",
    "Block",
    "Brought",
    "By",
    "Considered",
    "Course",
    "Deed",
    "Draw",
    "Effort",
    "Executes",
    "FAREWELL",
    "Gathering",
    "Halt",
    "Halting",
    "HookLine",
    "How",
    "Judged",
    "Keep",
    "Kept",
    "KeptWorld",
    "Known",
    "LAST_WORDS",
    "LOOK",
    "Letter",
    "Looked",
    "PATIENCE",
    "Pace",
    "Paper",
    "Papers",
    "PatternAnswers",
    "People",
    "Place",
    "Remembered",
    "Ruling",
    "Said",
    "Sealer",
    "Stirred",
    "Stray",
    "TURN",
    "ToldError",
    "Unattended",
    "Wall",
    "Why",
];

/// Replaced names of functions.
const FUNCTIONS: [&str; 42] = [
    "acting_thread",
    "apart",
    "books_nothing",
    "brought_once",
    "bury",
    "compile_showing",
    "complain",
    "fitting",
    "forget_former",
    "give_up",
    "give_way",
    "go_on",
    "hand_over",
    "heard",
    "helped",
    "is_law",
    "join_some",
    "keep_asked",
    "keep_back",
    "leave_out_ungranted_protocols",
    "leaves",
    "look",
    "move_to",
    "must_leave",
    "palettes_again",
    "pass_on",
    "replied",
    "room_above",
    "said",
    "say_model",
    "seal",
    "speaks",
    "starts_afresh",
    "succeed",
    "take_back",
    "take_up",
    "tell_all",
    "told",
    "twice",
    "weigh",
    "write_certificate",
    "yield_to",
];

/// Replaced names of modules and files.
const MODULES: [&str; 24] = [
    "attend",
    "book",
    "caught",
    "complaint",
    "crew",
    "go_on",
    "lifted",
    "lookalike",
    "one_line",
    "orchestrate",
    "outer",
    "papers",
    "people",
    "seal",
    "sound",
    "soup",
    "stamps",
    "standing",
    "storm",
    "stray",
    "told",
    "vacuous",
    "wall",
    "walls",
];

/// Replaced names of local variables.
const VARIABLES: [&str; 18] = [
    "asks",
    "complaint",
    "deed",
    "dice",
    "goes_on",
    "heard",
    "looked",
    "patience",
    "said",
    "stamps",
    "standing",
    "stray",
    "strays",
    "talk",
    "told",
    "trouble",
    "vouched",
    "walls",
];

/// Returns the name that a line declares, with the replaced names of its kind.
fn declared_name(line: &str) -> Option<(&str, &'static [&'static str])> {
    let mut words = line.split("//").next()?.split_whitespace().peekable();
    loop {
        let replaced: &[&str] = match words.next()? {
            "pub" | "async" | "unsafe" => continue,
            word if word.starts_with("pub(") => continue,
            "const" if words.peek() == Some(&"fn") => continue,
            "struct" | "enum" | "trait" | "type" | "union" | "const" | "static" => &TYPES,
            "fn" => &FUNCTIONS,
            "mod" => &MODULES,
            _ => return None,
        };
        let name = words.next()?.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
        return Some((name, replaced));
    }
}

/// Returns the declarations of a source whose name is replaced.
fn replaced_declarations(text: &str) -> Vec<&str> {
    text.lines()
        .filter_map(declared_name)
        .filter(|(name, replaced)| replaced.contains(name))
        .map(|(name, _)| name)
        .collect()
}

/// Returns the replaced names that a `let`, a `for` or a closure of a source declares.
fn replaced_variables(text: &str) -> Vec<&'static str> {
    let declares = |name: &&str| {
        let forms = ["let {} ", "let {}:", "let mut {} ", "let mut {}:", "for {} in ", "|{}|"];
        forms.iter().any(|form| text.contains(&form.replace("{}", name)))
    };
    VARIABLES.into_iter().filter(declares).collect()
}

#[test]
fn declarations_and_files_exclude_replaced_names() {
    let mut found = Vec::new();
    for folder in ["grammar", "compiler", "engine", "stdlib", "rye", "cli", "snapshots"] {
        for path in sources(&root().join(folder), ".rs") {
            let is_law = path.ends_with("laws/replaced_names.rs");
            let text = fs::read_to_string(&path).unwrap();
            let declared = replaced_declarations(&text).into_iter().filter(|_| !is_law);
            found.extend(declared.map(|name| format!("{}: `{name}`", path.display())));
            let variables = replaced_variables(&text).into_iter().filter(|_| !is_law);
            found.extend(variables.map(|name| format!("{}: `{name}`", path.display())));
            let parts = path.strip_prefix(root()).unwrap_or(&path).iter().map(|part| Path::new(part).file_stem());
            let replaced = parts.flatten().filter(|part| MODULES.iter().any(|name| *part == *name));
            found.extend(replaced.map(|part| format!("{}: `{}`", path.display(), part.display())));
        }
    }
    assert!(found.is_empty(), "names that the glossary replaced:\n{}", found.join("\n"));
}

#[test]
fn replaced_variables_are_found_where_they_are_declared() {
    assert_eq!(
        replaced_variables("let told = 1;\nlet mut said: u8 = 2;\nfor stray in 0..1 {}"),
        ["said", "stray", "told"]
    );
    assert_eq!(replaced_variables("all.map(|heard| heard + 1)"), ["heard"]);
    assert_eq!(replaced_variables("let tolds = said(told); // told"), Vec::<&str>::new());
}

#[test]
fn replaced_names_are_found_in_declarations_only() {
    let source = "pub(super) struct Stray<T>(T);\n    pub const fn take_up() {}\nmod wall;\nconst TURN: u8 = 1;\n\
                  // fn told() {}\nlet look = told(1);\nstruct Strays;\nfn look_up() {}\nasync fn told(&self) {}\n";
    assert_eq!(replaced_declarations(source), ["Stray", "take_up", "wall", "TURN", "told"]);
}
