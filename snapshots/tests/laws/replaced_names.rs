//! Names that the glossary replaced: no declaration and no file uses them again.

use std::fs;
use std::path::Path;

use super::house::{root, sources};

/// Replaced names of types, traits and constants.
const TYPES: [&str; 75] = [
    "About",
    "Above",
    "Acted",
    "Acts",
    "AskedGrant",
    "Asker",
    "Audit",
    "Beginning",
    "Block",
    "Book",
    "Brought",
    "Built",
    "By",
    "Caller",
    "Changes",
    "Considered",
    "Course",
    "Crew",
    "Dark",
    "Deed",
    "Draw",
    "Effort",
    "Executes",
    "FAREWELL",
    "Gathering",
    "Halt",
    "Halting",
    "HookAnswer",
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
    "Live",
    "Log",
    "Looked",
    "OF_THREADS",
    "Outlet",
    "PATIENCE",
    "Pace",
    "Paper",
    "Papers",
    "PatternAnswers",
    "People",
    "Place",
    "Post",
    "Reads",
    "Remembered",
    "Rest",
    "Rows",
    "Ruling",
    "Said",
    "Sealer",
    "Share",
    "Shared",
    "Shares",
    "Sourced",
    "Stirred",
    "Stray",
    "TURN",
    "Told",
    "ToldError",
    "Unattended",
    "Unnamed",
    "Unread",
    "Wall",
    "Why",
    "Within",
    "Work",
    "Zone",
];

/// Replaced names of functions.
const FUNCTIONS: [&str; 51] = [
    "acting_thread",
    "announce",
    "apart",
    "books_nothing",
    "brought_once",
    "bury",
    "compile_showing",
    "complain",
    "depends",
    "fitting",
    "forget_former",
    "gaps",
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
    "left_ms",
    "look",
    "manual",
    "move_to",
    "must_leave",
    "named_spend",
    "needed",
    "palettes_again",
    "pass_on",
    "replied",
    "room_above",
    "said",
    "say_model",
    "seal",
    "sharing",
    "speaks",
    "starts_afresh",
    "succeed",
    "take_back",
    "take_up",
    "tell_all",
    "told",
    "twice",
    "weigh",
    "with_other",
    "write_certificate",
    "yield_to",
];

/// Replaced names of modules and files.
const MODULES: [&str; 35] = [
    "act",
    "attend",
    "book",
    "caught",
    "claim",
    "complaint",
    "crew",
    "go_on",
    "keep",
    "law",
    "levels",
    "lifted",
    "lookalike",
    "memory",
    "one_line",
    "orchestrate",
    "outer",
    "papers",
    "people",
    "planned",
    "prefix",
    "published",
    "seal",
    "sound",
    "soup",
    "stamps",
    "standing",
    "storm",
    "stray",
    "told",
    "vacuous",
    "vouch",
    "wall",
    "walls",
    "within",
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

/// Returns the replaced names among the folders and the file of a path.
fn replaced_files(path: &Path) -> Vec<&'static str> {
    let stems: Vec<_> = path.iter().filter_map(|part| Path::new(part).file_stem()).collect();
    MODULES.into_iter().filter(|name| stems.iter().any(|stem| stem == name)).collect()
}

#[test]
fn replaced_files_are_found_in_each_part_of_a_path() {
    assert_eq!(replaced_files(Path::new("engine/src/soup/wall.rs")), ["soup", "wall"]);
    assert_eq!(replaced_files(Path::new("engine/src/soups/drywall.rs")), Vec::<&str>::new());
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
            let replaced = replaced_files(path.strip_prefix(root()).unwrap_or(&path));
            found.extend(replaced.into_iter().map(|part| format!("{}: `{part}`", path.display())));
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
