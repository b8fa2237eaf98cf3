//! The words of a command whose files the command may execute. Wrappers such as `sudo` and `timeout` execute the
//! command in their arguments. This inner command follows the options of the wrapper, the values of the options, and
//! the operands of the wrapper.

use super::shell_words::is_variable_name;
use super::{CODE_OPTIONS, EXPANSION, PATH_OR_TEXT, VALUE_START, is_launcher, is_taken, name_of};

/// A program that executes the command in its arguments.
struct Wrapper {
    name: &'static str,
    /// Letters of the short options with a value. The value is the rest of the word, or the next word.
    value_letters: &'static str,
    /// Names of the long options whose value can be the next word.
    value_options: &'static [&'static str],
    /// Number of arguments before the command, such as the duration of `timeout`.
    operands: usize,
    /// Letters of the short options whose value is a shell text.
    code_letters: &'static str,
    /// Names of the long options whose value is a shell text.
    code_options: &'static [&'static str],
}

/// The positions of the command and of the shell text in the words of a wrapper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrappedCommand {
    /// The position of the first word of the command; the number of words if the arguments contain no command.
    pub at: usize,
    /// The position of the word with a shell text.
    pub code: Option<usize>,
}

const fn plain(name: &'static str, value_letters: &'static str, operands: usize) -> Wrapper {
    Wrapper { name, value_letters, value_options: &[], operands, code_letters: "", code_options: &[] }
}

const fn with_options(
    name: &'static str,
    value_letters: &'static str,
    value_options: &'static [&'static str],
    operands: usize,
) -> Wrapper {
    Wrapper { value_options, ..plain(name, value_letters, operands) }
}

const WRAPPERS: [Wrapper; 50] = [
    plain("!", "", 0),
    plain("builtin", "", 0),
    plain("busybox", "", 0),
    plain("caffeinate", "tw", 0),
    plain("catchsegv", "", 0),
    with_options("chroot", "", &["groups", "userspec"], 1),
    plain("chpst", "bcdefglmnopru", 0),
    with_options("chrt", "DPT", &["sched-deadline", "sched-period", "sched-runtime"], 1),
    plain("command", "", 0),
    plain("coproc", "", 0),
    plain("dbus-run-session", "", 0),
    plain("doas", "Cua", 0),
    plain("dumb-init", "r", 0),
    Wrapper {
        code_letters: "S",
        code_options: &["split-string"],
        ..with_options("env", "CPau", &["argv0", "chdir", "unset"], 0)
    },
    plain("exec", "a", 0),
    with_options("fakeroot", "bils", &["faked", "lib"], 0),
    plain("faketime", "f", 1),
    Wrapper {
        code_letters: "c",
        code_options: &["command"],
        ..with_options("flock", "Ew", &["conflict-exit-code", "timeout", "wait"], 1)
    },
    plain("gosu", "", 1),
    with_options("ionice", "Ppcnu", &["class", "classdata", "pgid", "pid", "uid"], 0),
    plain("ltrace", "FADSaelnopsuwx", 0),
    with_options("nice", "n", &["adjustment"], 0),
    plain("nohup", "", 0),
    with_options("nsenter", "GStW", &["setgid", "setuid", "target"], 0),
    with_options("numactl", "CNPilmpw", &["cpunodebind", "interleave", "membind", "physcpubind", "preferred"], 0),
    plain("prlimit", "", 0),
    plain("proxychains", "f", 0),
    plain("rlwrap", "CDHMPSbfhlmpqstwz", 0),
    Wrapper {
        code_letters: "c",
        code_options: &["command", "session-command"],
        ..with_options("runuser", "Ggsuw", &["group", "shell", "supp-group", "user"], 0)
    },
    Wrapper { code_letters: "c", code_options: &["command"], ..plain("script", "BEIOTmot", 1) },
    plain("setarch", "", 1),
    with_options(
        "setpriv",
        "",
        &[
            "ambient-caps",
            "apparmor-profile",
            "bounding-set",
            "egid",
            "euid",
            "groups",
            "inh-caps",
            "pdeathsig",
            "regid",
            "reuid",
            "rgid",
            "ruid",
            "securebits",
            "selinux-label",
        ],
        0,
    ),
    plain("setsid", "", 0),
    plain("setuidgid", "", 1),
    Wrapper { code_letters: "c", ..plain("sg", "", 1) },
    plain("softlimit", "acdflmoprst", 0),
    plain("ssh-agent", "EOPat", 0),
    with_options("stdbuf", "eio", &["error", "input", "output"], 0),
    plain("strace", "EIOPSUXabeopsu", 0),
    Wrapper {
        code_letters: "c",
        code_options: &["command", "session-command"],
        ..with_options("su", "Ggsw", &["group", "shell", "supp-group"], 1)
    },
    plain("su-exec", "", 1),
    with_options(
        "sudo",
        "CDRTUacghprtu",
        &[
            "chdir",
            "chroot",
            "close-from",
            "command-timeout",
            "group",
            "host",
            "other-user",
            "prompt",
            "role",
            "type",
            "user",
        ],
        0,
    ),
    with_options("systemd-run", "EHMpu", &["description", "host", "machine", "property", "setenv", "slice", "unit"], 0),
    plain("taskset", "", 1),
    with_options("time", "fo", &["format", "output"], 0),
    with_options("timeout", "ks", &["kill-after", "signal"], 1),
    plain("tini", "egp", 0),
    with_options("unshare", "GRSw", &["map-group", "map-user", "root", "setgid", "setuid", "wd"], 0),
    with_options("watch", "nqs", &["equexit", "interval", "shotsdir"], 0),
    with_options("xvfb-run", "efnpsw", &["error-file", "auth-file", "server-args", "server-num", "wait"], 0),
];

fn wrapper(word: &str) -> Option<&'static Wrapper> {
    let name = name_of(word);
    WRAPPERS.iter().find(|wrapper| wrapper.name == name)
}

/// Finds the command in the arguments of a wrapper, which the first of `words` names. Returns `None` if this word names
/// no wrapper.
pub fn wrapped_command(words: &[impl AsRef<str>]) -> Option<WrappedCommand> {
    let wrapper = wrapper(words.first()?.as_ref())?;
    let (mut at, mut operands, mut code) = (1, wrapper.operands, None);
    while let Some(word) = words.get(at).map(AsRef::as_ref) {
        let (takes_value, takes_code) = if word == "--" {
            at += 1 + operands;
            break;
        } else if let Some(name) = word.strip_prefix("--") {
            let (name, value) = name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
            let is_one = |options: &[&str]| options.iter().any(|option| option.starts_with(name));
            let is_code = is_one(wrapper.code_options);
            code = code.or((is_code && value.is_some()).then_some(at));
            (value.is_none() && is_one(wrapper.value_options), is_code && value.is_none())
        } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            let is_code = |letter: char| wrapper.code_letters.contains(letter);
            let decisive = letters
                .char_indices()
                .find(|(_, letter)| is_code(*letter) || wrapper.value_letters.contains(*letter))
                .map(|(place, letter)| (is_code(letter), place + letter.len_utf8() < letters.len()));
            code = code.or((decisive == Some((true, true))).then_some(at));
            (decisive == Some((false, false)), decisive == Some((true, false)))
        } else if word == "-" || word.split_once('=').is_some_and(|(name, _)| is_variable_name(name)) {
            (false, false)
        } else if operands > 0 {
            operands -= 1;
            (false, false)
        } else {
            break;
        };
        at += 1;
        code = code.or(takes_code.then_some(at));
        at += usize::from(takes_value || takes_code);
    }
    Some(WrappedCommand { at: at.min(words.len()), code })
}

/// Returns one flag for each word of a command: true if the command may execute the file that the word names. This
/// holds for the program itself. It also holds for the words after a launcher (a program that executes the file that
/// its argument names), up to and including the first path or text, and for the command of a wrapper such as `timeout`.
/// The words after the text of `sh -c` are only parameters of that text, so their flag is false.
pub fn launched_words(words: &[String]) -> Vec<bool> {
    let (mut launches, mut has_text, mut before) = (false, false, "");
    let mut wrapped = 0;
    let mut states = Vec::with_capacity(words.len());
    for (index, word) in words.iter().enumerate() {
        states.push(launches || index == wrapped);
        if (launches || index == wrapped)
            && let Some(command) = wrapped_command(words.get(index..).unwrap_or_default())
        {
            wrapped = index + command.at;
        }
        let is_open = word.contains([VALUE_START, EXPANSION]);
        has_text |= is_taken(word) || (launches && CODE_OPTIONS.contains(&before) && !is_open);
        if has_text {
            launches = false;
        } else if is_launcher(word) || (index == 0 && (is_open || word == ".")) {
            launches = true;
        } else if !is_open && word.contains(|c: char| PATH_OR_TEXT.contains(c)) {
            launches = false;
        }
        before = word;
    }
    states
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_of_a_wrapper_follows_its_options_and_operands() {
        for (text, command) in [
            ("sudo -u root run", "run"),
            ("sudo -uroot -n run", "run"),
            ("sudo --user root -- run", "run"),
            ("sudo A=1 run", "run"),
            ("exec -a n run", "run"),
            ("exec -cla n run", "run"),
            ("/usr/bin/timeout -k 1 2 run", "run"),
            ("timeout --signal=KILL 0.5 run", "run"),
            ("timeout --sig KILL -- 0.5 run", "run"),
            ("env -u X A=b run", "run"),
            ("env -i - run", "run"),
            ("flock -n l run", "run"),
            ("nice -n 5 run", "run"),
            ("chroot --userspec=a:b root run", "run"),
            ("taskset -c 0,1 run", "run"),
            ("time -p run", "run"),
            ("nohup run", "run"),
        ] {
            let words: Vec<&str> = text.split(' ').collect();
            let found = wrapped_command(&words).unwrap();
            assert_eq!((words.get(found.at), found.code), (Some(&command), None), "{text}");
        }
        for (text, code) in [
            ("env -S code a", "code"),
            ("env -Scode", "-Scode"),
            ("flock l -c code", "code"),
            ("flock --command=code l", "--command=code"),
            ("su root -c code", "code"),
            ("script -qec code out", "code"),
        ] {
            let words: Vec<&str> = text.split(' ').collect();
            let found = wrapped_command(&words).unwrap();
            assert_eq!(found.code.and_then(|at| words.get(at)), Some(&code), "{text}");
        }
        assert_eq!(wrapped_command(&["cat", "run"]), None);
        assert_eq!(wrapped_command(&["timeout", "--"]), Some(WrappedCommand { at: 2, code: None }));
    }
}
