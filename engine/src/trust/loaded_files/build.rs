//! Finds the files that a build file executes or includes by computed names, such as `$(DIR)/run.sh`. The build file is
//! converted to a shell script with the same variables, and the script is searched for file names.

use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;
use rye_compiler::command_files::files_of_computed_names;

use super::NamedPaths;

/// Placeholder for an escaped dollar sign (`$$`) while the variables of the build file are replaced.
const DOLLAR: &str = "\u{E005}";
/// A shell variable that replaces an expression whose value is unknown.
const OPEN_VARIABLE: &str = "${_}";
static INCLUDE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^ *(?:-|s)?include\s+(.+)$").ok());
static ASSIGNMENT: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^ *(?:export\s+|override\s+)*(\w+)\s*(?:[:?+!]|::)?=\s*(.*)$").ok());
static WILDCARD: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\$[({]wildcard\s+([^)}]*)[)}]").ok());
static VARIABLE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\$[({](\w+)[)}]").ok());
/// Matches an expression of a `justfile`, such as `{{name}}`.
static EXPRESSION: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\{\{[^}]*\}\}").ok());
/// Matches the parts of a Makefile whose value is not read here: a call of a function, a variable with a substitution
/// (`$(X:.c=.o)`), or an automatic variable (`$@`).
static OPEN_PART: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\$\(shell\s|\$[({][\w.-]+(?:[:\s,][^()$]*)?[)}]|\$[({][\w.-]+\s|\$[@<^?*+%]").ok());
/// Matches a recipe that executes a prerequisite of its rule, such as `sh $<`.
static EXECUTED_PREREQUISITE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let programs = r"sh|bash|dash|zsh|ksh|source|\.|python[\d.]*|node|perl|ruby|lua|php";
    let launched = format!(r#"(?:^|[\s;&|@(+-])(?:{programs})(?:\s+-\S+)*\s+["']?\$[<^?+]"#);
    Regex::new(&format!(r#"{launched}|^[\s@+-]*["']?(?:\./)?\$[<^?+]"#)).ok()
});

impl NamedPaths {
    /// Adds the files that a `Makefile`, a `*.mk` file or a `justfile` includes or executes by computed names.
    pub(super) fn add_build(&mut self, file: &Path, text: &str, folders: [&Path; 2]) {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_lowercase();
        let is_rules = file.extension().is_some_and(|ending| ending == "mk");
        if !is_rules && !name.ends_with("makefile") && !name.ends_with("justfile") {
            return;
        }
        let words = files_of_computed_names(&if name.ends_with("justfile") {
            shell_text_of_just(text)
        } else {
            shell_text_of(text)
        });
        let [_, project] = folders;
        self.add_computed(&words, project);
        for word in words.iter().filter(|word| !word.contains('\0')) {
            for place in folders.map(|folder| folder.join(word.trim_start_matches('/'))) {
                if word.ends_with('/') && place.is_dir() {
                    self.folders.insert(place);
                } else if place.is_file() {
                    self.files.insert(place);
                }
            }
        }
    }
}

/// Returns the recipes of a `justfile` as a shell script.
fn shell_text_of_just(text: &str) -> String {
    let recipes = text.lines().filter(|line| line.starts_with(['\t', ' ']));
    let recipes: Vec<&str> = recipes.map(|line| line.trim_start_matches([' ', '\t', '@', '-'])).collect();
    let joined = recipes.join("\n");
    EXPRESSION.as_ref().map_or_else(String::new, |part| part.replace_all(&joined, "$${_}").into_owned())
}

/// Returns the recipes of a `Makefile` as a shell script. Each assignment becomes a `for` loop over the value, so that
/// the variable can have every value that the file assigns. Each included file and each executed prerequisite becomes a
/// `source` command.
fn shell_text_of(text: &str) -> String {
    let mut script = String::new();
    let mut prerequisites: Vec<&str> = Vec::new();
    let joined = text.replace("\\\n", " ");
    for line in joined.lines() {
        let is_recipe = line.starts_with(['\t', ' ']);
        let found = |pattern: &LazyLock<Option<Regex>>| pattern.as_ref().and_then(|pattern| pattern.captures(line));
        let mut recipe = is_recipe.then_some(line);
        if line.starts_with('\t') {
        } else if let Some(included) = found(&INCLUDE).and_then(|found| found.get(1)) {
            script.extend(sourced(&plain(included.as_str())));
            recipe = None;
        } else if let Some((name, value)) = found(&ASSIGNMENT).and_then(|found| Some((found.get(1)?, found.get(2)?))) {
            script.extend(["for ", name.as_str(), " in ", &plain(value.as_str()), "\n"]);
            recipe = None;
        } else if let Some((_, behind)) = line.split_once(':').filter(|_| !is_recipe) {
            let (sources, own) = behind.split_once(';').map_or((behind, None), |(sources, own)| (sources, Some(own)));
            prerequisites = sources.split_whitespace().filter(|source| *source != "|").collect();
            recipe = own;
        }
        let Some(recipe) = recipe else { continue };
        if EXECUTED_PREREQUISITE.iter().any(|executed| executed.is_match(recipe)) {
            script.extend(sourced(&plain(&prerequisites.join(" ")).replace('%', "*")));
        }
        script.push_str(plain(recipe.trim_start_matches([' ', '\t', '@', '-', '+'])).trim_end());
        script.push('\n');
    }
    script
}

/// Returns a `source` command for each word in `words`. Leaves out `*.d` files, because the build itself generates
/// them.
fn sourced(words: &str) -> impl Iterator<Item = String> {
    let is_output = |word: &&str| Path::new(word).extension().is_some_and(|ending| ending == "d");
    words.split_whitespace().filter(move |word| !is_output(word)).map(|word| format!(". {word}\n"))
}

/// Replaces the variables and functions of make in a text by shell syntax.
fn plain(text: &str) -> String {
    let mut text = text.replace("$$", DOLLAR);
    for (pattern, by) in [(&WILDCARD, "$1"), (&VARIABLE, "$${$1}")] {
        text = pattern.as_ref().map_or_else(String::new, |pattern| pattern.replace_all(&text, by).into_owned());
    }
    let open = |found: &regex::Captures<'_>| match found.get(0).map_or("", |found| found.as_str()) {
        variable if VARIABLE.iter().any(|known| known.is_match(variable)) => variable.to_owned(),
        shell if shell.starts_with("$(shell") => "$(".to_owned(),
        call if call.ends_with(char::is_whitespace) => format!("{OPEN_VARIABLE} "),
        _ => OPEN_VARIABLE.to_owned(),
    };
    let text = OPEN_PART.as_ref().map_or_else(String::new, |part| part.replace_all(&text, open).into_owned());
    text.replace(DOLLAR, "$")
}
