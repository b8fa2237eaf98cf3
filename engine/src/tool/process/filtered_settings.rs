//! The settings of git and cargo for sandboxed programs. The user's own settings files can hold tokens, so the sandbox
//! hides them, and the programs read copies in their temporary folder that contain only listed keys. The copies are
//! necessary, because git and cargo fail if a settings file exists but is unreadable.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The keys that are copied from the user's configuration of git, in lower case. None of the keys holds a secret, or
/// names a program or a file.
const GIT_KEYS: [&str; 15] = [
    "user.name",
    "user.email",
    "init.defaultbranch",
    "core.autocrlf",
    "core.eol",
    "core.quotepath",
    "core.precomposeunicode",
    "color.ui",
    "commit.verbose",
    "diff.algorithm",
    "diff.renames",
    "merge.conflictstyle",
    "pull.rebase",
    "push.default",
    "rebase.autosquash",
];
/// Maximum size in bytes of a configuration file. A larger file is ignored.
const MAX_BYTES: usize = 1 << 20;
/// The keys that are copied from the user's configuration of cargo, in any table. None of them holds a secret.
const CARGO_KEYS: [&str; 14] = [
    "default",
    "directory",
    "git-fetch-with-cli",
    "index",
    "jobs",
    "linker",
    "local-registry",
    "offline",
    "protocol",
    "registry",
    "replace-with",
    "rustflags",
    "target",
    "target-dir",
];
/// The parts of the user's `.cargo` that the temporary copy of `.cargo` contains as symbolic links.
const CARGO_PARTS: [&str; 3] = ["bin", "git", "registry"];

/// Writes the settings files into a temporary folder. Returns the environment variables that name the files, each with
/// the path of its file.
pub(super) fn write_in(folder: &Path) -> io::Result<Vec<(&'static str, PathBuf)>> {
    let git = folder.join(".gitconfig");
    fs::write(&git, git_files().iter().filter_map(|file| read(file)).map(|text| safe_git(&text)).collect::<String>())?;
    let mut variables = vec![("GIT_CONFIG_GLOBAL", git)];
    let own = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    let settings = own.as_ref().and_then(|own| ["config.toml", "config"].iter().find_map(|name| read(&own.join(name))));
    if let (Some(own), Some(settings)) = (own, settings) {
        let copy = folder.join(".cargo");
        fs::create_dir(&copy)?;
        fs::write(copy.join("config.toml"), safe_cargo(&settings))?;
        for part in CARGO_PARTS.iter().filter(|part| own.join(part).exists()) {
            symlink(own.join(part), copy.join(part))?;
        }
        variables.push(("CARGO_HOME", copy));
    }
    Ok(variables)
}

fn read(file: &Path) -> Option<String> {
    let text = fs::read(file).ok().filter(|text| text.len() <= MAX_BYTES)?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Returns the tables of cargo's settings with only the safe keys. A key is kept only if its value is complete on one
/// line and contains no URL with a user name.
fn safe_cargo(text: &str) -> String {
    let mut kept = String::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') && line.ends_with(']') && !line.contains('=') {
            kept.push_str(line);
            kept.push('\n');
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let (key, value) = (key.trim(), value.trim());
        let is_whole = value.matches('[').count() == value.matches(']').count()
            && !value.contains(['{', '@'])
            && !value.contains("\"\"\"")
            && !value.contains("'''");
        if CARGO_KEYS.contains(&key) && is_whole {
            kept.extend([key, " = ", value, "\n"]);
        }
    }
    kept
}

/// Returns the paths from which git reads the user's configuration.
fn git_files() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(file) = variable("GIT_CONFIG_GLOBAL") {
        return vec![file];
    }
    let home = variable("HOME");
    let settings = variable("XDG_CONFIG_HOME").or_else(|| home.as_ref().map(|home| home.join(".config")));
    let files = [settings.map(|folder| folder.join("git/config")), home.map(|home| home.join(".gitconfig"))];
    files.into_iter().flatten().collect()
}

/// Returns the sections of a configuration with only the safe keys. Values that continue on another line are left out.
fn safe_git(text: &str) -> String {
    let (mut kept, mut section) = (String::new(), None);
    let mut continues = false;
    for line in text.lines() {
        let is_rest = std::mem::replace(&mut continues, line.ends_with('\\'));
        let line = line.trim();
        if is_rest || continues {
            continue;
        }
        if let Some(header) = line.strip_prefix('[') {
            // A section with a subsection (`[url "…"]`) holds no safe key.
            section = header.strip_suffix(']').map(|name| name.trim().to_lowercase());
            continue;
        }
        let Some(section) = &section else { continue };
        let Some((key, value)) = line.split_once('=') else { continue };
        let key = key.trim().to_lowercase();
        if GIT_KEYS.contains(&format!("{section}.{key}").as_str()) {
            kept.extend(["[", section, "]\n\t", &key, " =", value, "\n"]);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_safe_keys_are_copied() {
        let text = "[user]\n\tname = Ada Lovelace\n\tEmail=ada@example.org\n\tsigningkey = ABC\n[core]\n\tfsmonitor = ./run\n\
            \tautocrlf = input\n\tpager = x \\\nname = y\n[url \"https://token@example.org\"]\n\tinsteadOf = x\n[user \"x\"]\n\
            name = z\n[credential]\n\thelper = store\n[include]\n\tpath = ~/other\n[http]\n\textraHeader = \"A: token\"\n\
            [alias]\n\tst = !run\n[user]\n\tname = B \\\n C\n";
        assert_eq!(
            safe_git(text),
            "[user]\n\tname = Ada Lovelace\n[user]\n\temail =ada@example.org\n[core]\n\tautocrlf = input\n"
        );
    }

    #[test]
    fn cargo_settings_are_copied_without_credentials() {
        let text = "[registries.mine]\nindex = \"sparse+https://example.org/\"\ntoken = \"secret\"\n[source.x]\n\
            registry = \"https://user:secret@example.org\"\nreplace-with = \"y\"\n[registry]\n\
            token = \"secret\"\ndefault = \"mine\"\n[env]\nKEY = \"secret\"\n[build]\nrustflags = [\n  \"-C\"\n]\njobs = 2\n";
        assert_eq!(
            safe_cargo(text),
            "[registries.mine]\nindex = \"sparse+https://example.org/\"\n[source.x]\nreplace-with = \"y\"\n[registry]\n\
             default = \"mine\"\n[env]\n[build]\njobs = 2\n"
        );
    }
}
