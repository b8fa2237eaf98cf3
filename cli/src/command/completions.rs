//! `rye completions SHELL`: prints the shell's completion script. The script calls this binary for each word
//! (`complete.rs`), so that ids of directives, items and threads are completed too.

use std::io::Write;

use clap::Args;
use clap_complete::Shell;
use clap_complete::env::Shells;

use crate::CommandError;
use crate::exit::Exit;

/// The variable that the scripts of `rye completions` set.
pub const COMPLETE_VARIABLE: &str = "RYE_COMPLETE";

/// Replacements in the Bash script of `clap_complete`: each old text with the new text. Bash splits a word at `:` and
/// `=`; the new text joins the parts, so that `hook::al` and `--limit=tu` are one word.
const BASH_WORDS: [(&str, &str); 3] = [
    ("local _CLAP_COMPLETE_INDEX=${COMP_CWORD}\n", "local _CLAP_COMPLETE_INDEX=0\n"),
    (
        r#"    local words=("${COMP_WORDS[@]}")
    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
        words[COMP_CWORD]="$2"
    fi
"#,
        r#"    local words=() word prefix="" joins=0 i
    for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
        word="${COMP_WORDS[i]}"
        if [[ ${#words[@]} -gt 0 && ( $joins -eq 1 || "$word" =~ ^[:=]+$ ) ]]; then
            [[ $i -eq $COMP_CWORD ]] && prefix="${words[${#words[@]}-1]}"
            words[${#words[@]}-1]+="$word"
        else
            words+=("$word")
        fi
        [[ "$word" =~ ^[:=]+$ ]] && joins=1 || joins=0
        if [[ $i -eq $COMP_CWORD ]]; then
            [[ "$word" =~ ^[:=]+$ ]] && prefix+="$word"
            _CLAP_COMPLETE_INDEX=$((${#words[@]}-1))
        fi
    done
"#,
    ),
    (
        "    if [[ $? != 0 ]]; then\n        unset COMPREPLY\n",
        "    if [[ $? != 0 ]]; then\n        unset COMPREPLY\n    elif [[ -n \"$prefix\" ]]; then\n        \
         COMPREPLY=(\"${COMPREPLY[@]#\"$prefix\"}\")\n        compopt -o nospace 2> /dev/null\n",
    ),
];

fn join_bash_words(script: &str) -> String {
    BASH_WORDS.iter().fold(script.to_owned(), |script, (from, to)| script.replacen(from, to, 1))
}

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Shell that the script is for
    #[arg(value_enum)]
    shell: Shell,
}

pub fn run(args: &CompletionsArgs) -> Result<Exit, CommandError> {
    let name = args.shell.to_string();
    let shells = Shells::builtins();
    let Some(shell) = shells.completer(&name) else {
        return Err(CommandError::usage(format!("no completion script for `{name}`")));
    };
    let mut script = Vec::new();
    shell.write_registration(COMPLETE_VARIABLE, "rye", "rye", "rye", &mut script)?;
    if args.shell == Shell::Bash {
        script = join_bash_words(&String::from_utf8_lossy(&script)).into_bytes();
    }
    std::io::stdout().lock().write_all(&script)?;
    Ok(Exit::Success)
}
