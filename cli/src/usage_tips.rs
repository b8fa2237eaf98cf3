//! Tips for words and options of a command line that are not expected: values without `=`, short options and options of
//! other programs, inputs that are not passed with `--input`.

use clap::error::ErrorKind;
use rye_compiler::diagnostics::closest;

/// Options of other programs, each with the corresponding option of `rye`.
const OTHER_OPTIONS: [(&str, &str); 12] = [
    ("-m", "--model PROVIDER/ID"),
    ("-i", "--input NAME=VALUE"),
    ("-f", "--format json"),
    ("-o", "--format json"),
    ("-j", "--format json"),
    ("--json", "--format json"),
    ("--output", "--format json"),
    ("--output-format", "--format json"),
    ("--inputs-file", "--inputs FILE"),
    ("--max-turns", "--limit turns=10"),
    ("--budget", "--limit spend=0.50"),
    ("--max-tokens", "--limit output=4096"),
];

/// Options whose value has the form `NAME=VALUE`.
const ASSIGNMENTS: [&str; 2] = ["--limit", "--input"];

/// Returns the command that a mistyped command probably means: `run` for `rn`. `commands` are the names of all
/// commands.
pub fn meant_command<'c>(typed: &str, commands: impl Iterator<Item = &'c str>) -> Option<String> {
    closest(typed, commands)
}

/// Returns the tip for a mistake that users often make on the command line; `None` for any other error. `kind` is the
/// kind of the error, and `unexpected` is the word that caused it. `words` are the words after the program's name.
/// `options` are the long options of the command, without dashes. `is_file` returns true if a path is a file.
pub fn slip_tip(
    kind: ErrorKind,
    words: &[String],
    unexpected: &str,
    options: &[String],
    is_file: &dyn Fn(&str) -> bool,
) -> Option<String> {
    if kind == ErrorKind::InvalidSubcommand {
        let is_directive = is_file(&format!(".ai/directives/{unexpected}.md"));
        return is_directive.then(|| format!("`rye run {unexpected}` runs the directive `{unexpected}`"));
    }
    if kind == ErrorKind::ArgumentConflict {
        let has = |names: &[&str]| {
            words.iter().any(|word| names.iter().any(|name| word == name || word.starts_with(&format!("{name}="))))
        };
        let reopens = words.first().is_some_and(|word| word == "chat") && has(&["--resume", "--continue", "-c"]);
        return (reopens && has(&["--model"])).then(|| "open the session first, then type `/model NAME`".to_owned());
    }
    if kind != ErrorKind::UnknownArgument {
        return None;
    }
    let graph_language = words.iter().skip_while(|word| *word != "--graph").nth(1);
    if let Some(value) = graph_language
        && (unexpected == value || words.last().is_some_and(|last| last == unexpected))
    {
        return Some(format!("write the language of the graph after a `=`: `--graph={value}`"));
    }
    let at = words.iter().position(|word| word == unexpected || word.starts_with(&format!("{unexpected}=")))?;
    let before = |distance: usize| at.checked_sub(distance).and_then(|at| words.get(at)).map(String::as_str);
    if let (Some(option), Some(name)) = (before(2), before(1))
        && ASSIGNMENTS.contains(&option)
        && !name.contains('=')
    {
        return Some(format!("write one argument without spaces: `{option} {name}={unexpected}`"));
    }
    if let Some((_, meant)) = OTHER_OPTIONS.iter().find(|(other, _)| *other == unexpected) {
        return Some(format!("write `{meant}`"));
    }
    let takes_inputs = words.iter().any(|word| matches!(word.as_str(), "run" | "plan" | "chat"));
    if !takes_inputs {
        return None;
    }
    if let Some(name) = unexpected.strip_prefix("--")
        && let Some(meant) = closest(name, options.iter().map(String::as_str))
    {
        return Some(format!("a similar option exists: `--{meant}`"));
    }
    let value = words.get(at + 1).filter(|next| !next.starts_with('-')).map_or("VALUE", String::as_str);
    match unexpected.strip_prefix("--") {
        Some(name) => Some(format!("an input is passed as `--input {name}={value}`")),
        None if !unexpected.starts_with('-') => Some(format!("an input is passed as `--input NAME={unexpected}`")),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_command_line_have_a_tip() {
        for (line, unexpected, tip) in [
            ("run d a.txt", "a.txt", Some("an input is passed as `--input NAME=a.txt`")),
            ("run d --f a.txt", "--f", Some("an input is passed as `--input f=a.txt`")),
            ("plan d --limit turns 3", "3", Some("write one argument without spaces: `--limit turns=3`")),
            ("plan d -m fast", "-m", Some("write `--model PROVIDER/ID`")),
            ("check --json", "--json", Some("write `--format json`")),
            ("plan d --graph svg", "svg", Some("write the language of the graph after a `=`: `--graph=svg`")),
            ("check -x", "-x", None),
            ("chat --modle x", "--modle", Some("a similar option exists: `--model`")),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let options = ["model", "limit", "format"].map(str::to_owned);
            let found = slip_tip(ErrorKind::UnknownArgument, &words, unexpected, &options, &|_| false);
            assert_eq!(found.as_deref(), tip, "{line}");
        }
        assert_eq!(meant_command("rn", ["run", "plan", "man"].into_iter()).as_deref(), Some("run"));
        assert_eq!(meant_command("deploy", ["run", "plan"].into_iter()), None);
        let words = ["first".to_owned()];
        let conflict = ["chat", "--resume", "talk-1", "--model", "small"].map(str::to_owned);
        let found = slip_tip(ErrorKind::ArgumentConflict, &conflict, "--resume <THREAD>", &[], &|_| false);
        assert_eq!(found.as_deref(), Some("open the session first, then type `/model NAME`"));
        let is_directive = |path: &str| path == ".ai/directives/first.md";
        let found = slip_tip(ErrorKind::InvalidSubcommand, &words, "first", &[], &is_directive);
        assert_eq!(found.as_deref(), Some("`rye run first` runs the directive `first`"));
        assert_eq!(slip_tip(ErrorKind::InvalidSubcommand, &words, "first", &[], &|_| false), None);
    }
}
