//! Reads a project at a revision of its git repository. Git only reads objects: no hook, filter, file system monitor or
//! transport of the repository's configuration starts.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use rye_compiler::world::{CONTEXT_FILE_NAMES, ContextFile, ItemKind, MCP_JSON, MapWorld, Space, World};

use rye_engine::process::find_program;

use crate::CommandError;

/// Maximum size of a file, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Maximum total size of a revision's files, in bytes.
const MAX_REVISION_BYTES: u64 = 512 << 20;

/// The item files, `.mcp.json` and the context files of a git revision, by path relative to the folder of the project.
pub struct Revision {
    /// The id of the commit.
    pub commit: String,
    files: Vec<(String, Vec<u8>)>,
    /// The context files (`AGENTS.md` or `CLAUDE.md`). Each folder from the root of the repository to the project has
    /// at most one context file. The outermost folder is first.
    context: Vec<ContextFile>,
}

impl Revision {
    /// Reads the files of a revision, such as a commit, a tag, a branch or `HEAD~3`.
    pub fn read(project: &Path, revision: &str) -> Result<Self, CommandError> {
        if revision.starts_with('-') || revision.chars().any(char::is_control) {
            return Err(CommandError::usage(format!("`{}` is not a valid revision", revision.escape_debug())));
        }
        let wanted = format!("{revision}^{{commit}}");
        let commit = git_output_text(project, &["rev-parse", "--verify", "--quiet", "--end-of-options", &wanted]);
        let commit = commit.map_err(|stderr| {
            if stderr.contains("not a git repository") {
                return CommandError::usage(format!(
                    "`{revision}` is a git revision, but this project has no git repository"
                ))
                .with_help("create a repository with `git init`, and commit the project");
            }
            let failure = CommandError::usage(format!("unknown git revision `{revision}`"));
            if stderr.is_empty() { failure } else { failure.with_help(stderr) }
        })?;
        let commit = commit.trim().to_owned();
        if commit.len() < 40 || !commit.chars().all(|c| c.is_ascii_hexdigit()) {
            return Err(CommandError::failed(format!("git cannot resolve `{revision}` to a commit")));
        }
        let prefix = git_output_text(project, &["rev-parse", "--show-prefix"]).map_err(CommandError::failed)?;
        let prefix = prefix.trim_end_matches('\n');
        let folders: Vec<String> = ItemKind::ALL
            .iter()
            .flat_map(|kind| kind.folders())
            .chain([&MCP_JSON])
            .map(|path| format!("{prefix}{path}"))
            .collect();
        let arguments = ["--literal-pathspecs", "ls-tree", "-r", "-z", "--full-tree", &commit, "--"];
        let arguments: Vec<&str> = arguments.into_iter().chain(folders.iter().map(String::as_str)).collect();
        // With `--literal-pathspecs`, wildcards in a path have no special meaning.
        let listed = git_output(project, &arguments).map_err(CommandError::failed)?;
        let wanted: Vec<(String, String)> =
            listed.split(|b| *b == 0).filter_map(|line| parse_tree_line(line, prefix)).collect();
        let files = read_objects(project, &wanted)?;
        let (wanted, ignored): (Vec<_>, Vec<_>) = context_objects(project, &commit, prefix)?.into_iter().unzip();
        let context = read_objects(project, &wanted)?.into_iter().map(|(path, content)| {
            let ignored = wanted.iter().zip(&ignored).find(|((known, _), _)| *known == path);
            let ignored = ignored.map(|(_, ignored)| ignored.clone()).unwrap_or_default();
            ContextFile { space: Space::Project, path: path.into(), bytes: content.into(), ignored }
        });
        let context = context.collect();
        Ok(Self { commit, files, context })
    }

    /// Returns a world whose project contains the files of this revision, and whose other spaces are those of `spaces`.
    pub fn over_spaces<'w>(&self, spaces: &'w dyn World) -> MapWorld<'w> {
        let mut world = MapWorld::with_fallback(spaces);
        for (path, content) in &self.files {
            world.insert(Space::Project, path, content);
        }
        // If the user's context files cannot be read, the world `spaces` reports the error.
        if let Ok(mut context) = spaces.context_files() {
            context.retain(|file| file.space != Space::Project);
            world.set_context_files(context.into_iter().chain(self.context.iter().cloned()).collect());
        }
        world
    }
}

/// A file of a commit: its path, relative to the project, and the id of its git object.
type CommitFile = (String, String);

/// A context file of a commit, with the paths of the ignored files in its folder.
type FileOfFolder = (CommitFile, Vec<Arc<str>>);

/// Lists the context files of a commit, at most one for each folder, outermost first. Each file comes with the paths of
/// the ignored files: other context files in its folder with different text. `prefix` is the path of the project in the
/// repository. If `prefix` is not empty, it ends with a slash.
fn context_objects(project: &Path, commit: &str, prefix: &str) -> Result<Vec<FileOfFolder>, CommandError> {
    let ends = prefix.match_indices('/').map(|(at, _)| at + 1);
    let folders: Vec<&str> = std::iter::once(0).chain(ends).filter_map(|end| prefix.get(..end)).collect();
    let all = |folder: &&str| CONTEXT_FILE_NAMES.map(|name| format!("{folder}{name}"));
    let paths: Vec<String> = folders.iter().flat_map(all).collect();
    let arguments = ["--literal-pathspecs", "ls-tree", "-z", "--full-tree", commit, "--"];
    let arguments: Vec<&str> = arguments.into_iter().chain(paths.iter().map(String::as_str)).collect();
    let listed = git_output(project, &arguments).map_err(CommandError::failed)?;
    let files: Vec<(&str, &str)> = listed.split(|b| *b == 0).filter_map(parse_file_line).collect();
    let highest = |(index, folder): (usize, &&str)| {
        let up = "../".repeat(folders.len() - 1 - index);
        let mut found = CONTEXT_FILE_NAMES.iter().filter_map(|name| {
            let path = format!("{folder}{name}");
            let (_, object) = files.iter().find(|(known, _)| *known == path)?;
            Some((format!("{up}{name}"), (*object).to_owned()))
        });
        let used = found.next()?;
        let ignored = found.filter(|(_, object)| *object != used.1).map(|(path, _)| path.into()).collect();
        Some((used, ignored))
    };
    Ok(folders.iter().enumerate().filter_map(highest).collect())
}

/// Parses a line of `ls-tree`. Returns the path without `prefix`, and the id of the git object, if the line is a
/// regular file below `prefix` that is an item or `.mcp.json`. `None` for any other line.
fn parse_tree_line(line: &[u8], prefix: &str) -> Option<(String, String)> {
    let (path, object) = parse_file_line(line)?;
    let path = path.strip_prefix(prefix)?;
    (path == MCP_JSON || ItemKind::of_path(path).is_some()).then(|| (path.to_owned(), object.to_owned()))
}

/// Parses a line `mode type object\tpath`. Returns path and object if the line is a regular file, else `None`. Links
/// are skipped, because they could lead out of the project.
fn parse_file_line(line: &[u8]) -> Option<(&str, &str)> {
    let line = std::str::from_utf8(line).ok()?;
    let (head, path) = line.split_once('\t')?;
    let mut head = head.split(' ');
    let (mode, kind, object) = (head.next()?, head.next()?, head.next()?);
    (matches!(mode, "100644" | "100755") && kind == "blob").then_some((path, object))
}

/// Reads the contents of git objects, with one git process. `wanted` has the path and the object of each file. The
/// result has the path and the contents of each file, in the same order.
fn read_objects(project: &Path, wanted: &[(String, String)]) -> Result<Vec<(String, Vec<u8>)>, CommandError> {
    let lost = || CommandError::failed("git exited before sending all data");
    let mut child = git_command(project, &["cat-file", "--batch"])
        .map_err(CommandError::failed)?
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| git_start_failure(&error))?;
    let mut requests = child.stdin.take().ok_or_else(lost)?;
    let mut answers = BufReader::new(child.stdout.take().ok_or_else(lost)?);
    let process = BoundedProcess::new(child, GIT_TIMEOUT);
    let mut files = Vec::with_capacity(wanted.len());
    let mut total = 0u64;
    for (path, object) in wanted {
        // Send the requests one at a time, so that no side blocks on a full pipe.
        writeln!(requests, "{object}").and_then(|()| requests.flush()).map_err(|_| lost())?;
        let mut head = String::new();
        answers.read_line(&mut head)?;
        let mut head = head.trim_end().split(' ').skip(1);
        let (kind, size) = (head.next(), head.next().and_then(|size| size.parse::<u64>().ok()));
        let (Some("blob"), Some(size)) = (kind, size) else {
            return Err(CommandError::failed(format!("git cannot read `{path}` of the requested revision")));
        };
        total = total.saturating_add(size);
        if size > MAX_FILE_BYTES || total > MAX_REVISION_BYTES {
            return Err(CommandError::failed(format!(
                "`{path}` is larger than {} MiB, or the files of the revision are larger than {} MiB in total",
                MAX_FILE_BYTES >> 20,
                MAX_REVISION_BYTES >> 20
            )));
        }
        let mut content = Vec::new();
        answers.by_ref().take(size + 1).read_to_end(&mut content)?;
        if content.pop() != Some(b'\n') || content.len() as u64 != size {
            return Err(lost());
        }
        files.push((path.clone(), content));
    }
    drop(requests);
    process.wait()?;
    Ok(files)
}

/// Maximum time of a git process. A pipe in place of a file of the repository would make git wait for ever.
const GIT_TIMEOUT: Duration = Duration::from_mins(1);
/// Time between two checks for the end of a process, after the process has closed its output.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A process that is killed after a timeout, or when this value is dropped.
struct BoundedProcess {
    child: Arc<Mutex<Child>>,
    /// Dropping the sender ends the OS thread that would kill the process after the timeout.
    _ended: mpsc::Sender<()>,
}

impl BoundedProcess {
    fn new(child: Child, timeout: Duration) -> Self {
        let (ended, end) = mpsc::channel();
        let child = Arc::new(Mutex::new(child));
        let watched = Arc::clone(&child);
        std::thread::spawn(move || {
            if end.recv_timeout(timeout) == Err(mpsc::RecvTimeoutError::Timeout) {
                // The process may have ended already.
                lock(&watched).kill().ok();
            }
        });
        Self { child, _ended: ended }
    }

    /// Waits for the end of a process whose output has ended.
    fn wait(&self) -> std::io::Result<ExitStatus> {
        loop {
            if let Some(status) = lock(&self.child).try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for BoundedProcess {
    fn drop(&mut self) {
        let mut child = lock(&self.child);
        // The process may have ended already.
        child.kill().ok();
        child.wait().ok();
    }
}

fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a git command that ignores all configuration that could run programs.
///
/// # Errors
/// No git is installed outside of the project.
fn git_command(project: &Path, args: &[&str]) -> Result<Command, String> {
    let git = find_program("git", project).ok_or("git is not in `PATH`, or only in folders of the project")?;
    let mut command = Command::new(git);
    let fixed = [
        "--no-pager",
        "--no-replace-objects",
        "--no-optional-locks",
        "-c",
        "core.fsmonitor=false",
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "core.attributesFile=/dev/null",
        "-c",
        "protocol.allow=never",
        "-c",
        "credential.helper=",
    ];
    command.arg("-C").arg(project).args(fixed).args(args);
    // Remove variables that select another repository or configure programs.
    for name in [
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_NAMESPACE",
        "GIT_CONFIG_PARAMETERS",
        "GIT_CONFIG_COUNT",
        "GIT_EXTERNAL_DIFF",
        "GIT_SSH",
        "GIT_SSH_COMMAND",
        "GIT_TRACE",
    ] {
        command.env_remove(name);
    }
    // Do not fetch missing objects: fetching runs programs that the repository configures.
    command.env("GIT_NO_LAZY_FETCH", "1").env("GIT_ALLOW_PROTOCOL", "none").env("GIT_TERMINAL_PROMPT", "0");
    command.env("GIT_PAGER", "cat").env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

fn git_start_failure(error: &std::io::Error) -> CommandError {
    CommandError::failed(format!("git cannot be started: {error}"))
}

fn git_output(project: &Path, args: &[&str]) -> Result<Vec<u8>, String> {
    bounded_output(git_command(project, args)?, GIT_TIMEOUT)
}

/// Runs a command and returns its output. Kills the command after `timeout`.
///
/// # Errors
/// Returns the first line of the error output, or the reason why the command did not run to its end.
fn bounded_output(mut command: Command, timeout: Duration) -> Result<Vec<u8>, String> {
    let mut child = command.spawn().map_err(|error| git_start_failure(&error).message)?;
    let (mut stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let started = Instant::now();
    let process = BoundedProcess::new(child, timeout);
    // The error output is read at the same time, so that git never blocks on a full pipe.
    let errors = std::thread::spawn(move || {
        let mut text = Vec::new();
        stderr.map(|stderr| stderr.take(MAX_ERROR_BYTES).read_to_end(&mut text)).transpose().map(|_| text)
    });
    let failed = |error: std::io::Error| format!("the output of git cannot be read: {error}");
    let mut output = Vec::new();
    if let Some(stdout) = &mut stdout {
        stdout.read_to_end(&mut output).map_err(failed)?;
    }
    let status = process.wait().map_err(failed)?;
    if status.success() {
        return Ok(output);
    }
    if let Some(signal) = status.signal() {
        let seconds = timeout.as_secs();
        return Err(if signal == SIGKILL && started.elapsed() >= timeout {
            format!("git did not answer within {seconds} s: a file of the repository may be a pipe")
        } else {
            format!("git was ended by the signal {signal}")
        });
    }
    let errors = errors.join().unwrap_or_else(|_| Ok(Vec::new())).unwrap_or_default();
    Err(String::from_utf8_lossy(&errors).lines().next().unwrap_or_default().to_owned())
}

/// Maximum size of the error output of git that is read.
const MAX_ERROR_BYTES: u64 = 64 << 10;
/// The signal that kills a process after the timeout.
const SIGKILL: i32 = 9;

fn git_output_text(project: &Path, args: &[&str]) -> Result<String, String> {
    String::from_utf8(git_output(project, args)?).map_err(|_| "git returned output that is not UTF-8".to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn git_that_waits_for_a_pipe_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let run = |program: &str, args: &[&str]| {
            let done = Command::new(program).args(args).current_dir(folder.path()).output().unwrap();
            assert!(done.status.success(), "{program} {args:?}: {done:?}");
        };
        run("git", &["init", "-q"]);
        let head = ["rev-parse", "--verify", "--quiet", "HEAD"];
        assert!(bounded_output(git_command(folder.path(), &["rev-parse", "--git-dir"]).unwrap(), GIT_TIMEOUT).is_ok());
        assert_eq!(bounded_output(git_command(folder.path(), &head).unwrap(), GIT_TIMEOUT), Err(String::new()));
        std::fs::remove_file(folder.path().join(".git/config")).unwrap();
        run("mkfifo", &[".git/config"]);
        let mut killed = Command::new("sh");
        killed.args(["-c", "kill -9 $$"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let killed = bounded_output(killed, GIT_TIMEOUT);
        assert_eq!(killed, Err("git was ended by the signal 9".to_owned()));
        let waited =
            bounded_output(git_command(folder.path(), &head).unwrap(), Duration::from_millis(300)).unwrap_err();
        assert!(waited.contains("may be a pipe"), "{waited}");
    }
}
