//! File access of commands within one folder. The folder's contents are untrusted: access never leaves the folder,
//! never writes through a link, and never blocks on a pipe. For files of tools see `tool::confine`, and for files of
//! threads see `store`.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, Metadata, OpenOptions, OpenOptionsExt, Permissions};
use rustix::fs::OFlags;

use crate::path_policy::{PathAccess, path_access};

/// Folders in which the system lists the open file descriptors of this process.
const OPEN_FILES: [&str; 2] = ["/dev/fd", "/proc/self/fd"];

/// Access to a folder and everything below it. A path or a link that leads out of the folder is refused.
#[derive(Debug)]
pub struct RootedDir(Dir);

impl RootedDir {
    /// Opens a folder.
    ///
    /// # Errors
    /// Fails if the folder does not exist.
    pub fn open(root: &Path) -> io::Result<Self> {
        Dir::open_ambient_dir(root, ambient_authority()).map(Self)
    }

    /// Reads a whole regular file; `None` if there is none.
    ///
    /// # Errors
    /// Fails if the path leaves the folder, the file is not regular, is longer than `most` bytes, or cannot be read.
    pub fn read(&self, path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
        let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
        let file = match self.0.open_with(path, OpenOptions::new().read(true).custom_flags(nonblocking)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if !file.metadata()?.is_file() {
            return Err(other("it is not a regular file"));
        }
        let mut bytes = Vec::new();
        file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > most { Err(other("it is too large")) } else { Ok(Some(bytes)) }
    }

    /// Creates a file and its missing parent folders. The file gets its name only when its content is complete, so that
    /// a full disk leaves no partial file.
    ///
    /// # Errors
    ///
    /// Fails with [`io::ErrorKind::AlreadyExists`] if the name exists, even as a link. Also fails if the path leaves
    /// the folder.
    pub fn create(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.make_room(path)?;
        let beside = temporary_path(path)?;
        let written = self.write_new(&beside, bytes, None).and_then(|()| self.0.hard_link(&beside, &self.0, path));
        self.0.remove_file(&beside).ok();
        match written {
            // A file system without hard links, such as FAT, returns one of these errors.
            Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) => {
                self.write_new(path, bytes, None)
            }
            written => written,
        }
    }

    /// Atomically writes a whole file, replacing a regular file if there is one and keeping its permissions.
    ///
    /// # Errors
    /// Fails without changing anything if the name belongs to something other than a regular file, or if the path
    /// leaves the folder.
    pub fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.make_room(path)?;
        let permissions = self.permissions(path)?;
        let beside = temporary_path(path)?;
        let written = self.write_new(&beside, bytes, permissions).and_then(|()| self.0.rename(&beside, &self.0, path));
        if written.is_err() {
            self.0.remove_file(&beside).ok();
        }
        written
    }

    /// Creates, writes and syncs a file. Fails if the name already exists. If the write or the sync fails, removes the
    /// new file.
    fn write_new(&self, path: &Path, bytes: &[u8], permissions: Option<Permissions>) -> io::Result<()> {
        let mut file = self.0.open_with(path, OpenOptions::new().write(true).create_new(true))?;
        let written = file
            .write_all(bytes)
            .and_then(|()| permissions.map_or(Ok(()), |permissions| file.set_permissions(permissions)))
            .and_then(|()| file.sync_all());
        if written.is_err() {
            self.0.remove_file(path).ok();
        }
        written
    }

    /// Removes the file or the symbolic link at `path`, relative to this folder.
    ///
    /// # Errors
    /// Fails if nothing has this path, or if the path leaves this folder.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove_file(path)
    }

    /// Creates a folder and its missing parent folders, and adds each created folder to `created`, outermost first.
    ///
    /// # Errors
    /// Fails if the path leaves this folder, or belongs to something other than a folder.
    pub fn create_folder(&self, folder: &Path, created: &mut Vec<PathBuf>) -> io::Result<()> {
        let mut folders: Vec<&Path> = folder.ancestors().filter(|folder| !folder.as_os_str().is_empty()).collect();
        folders.reverse();
        for folder in folders {
            match self.0.create_dir(folder) {
                Ok(()) => created.push(folder.to_owned()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && self.0.is_dir(folder) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes an empty folder.
    ///
    /// # Errors
    /// Fails if the folder is not empty or does not exist, or if the path leaves this folder.
    pub fn remove_folder(&self, folder: &Path) -> io::Result<()> {
        self.0.remove_dir(folder)
    }

    /// Fails if a folder of the path is a symbolic link. The last component of the path is not checked.
    fn check_no_link(&self, path: &Path) -> io::Result<()> {
        for folder in path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty()) {
            if self.0.symlink_metadata(folder).is_ok_and(|metadata| metadata.is_symlink()) {
                return Err(other(&format!("`{}` is a link", folder.display())));
            }
        }
        Ok(())
    }

    /// Checks that [`Self::replace`] may write a file at this path.
    ///
    /// # Errors
    /// The path belongs to something other than a regular file, or leaves this folder.
    pub fn check_replaceable(&self, path: &Path) -> io::Result<()> {
        self.permissions(path).map(drop)
    }

    /// Returns the permissions of the regular file with this name; `None` if nothing has this name. Fails if the name
    /// belongs to something other than a regular file.
    fn permissions(&self, path: &Path) -> io::Result<Option<Permissions>> {
        match self.0.symlink_metadata(path) {
            Ok(metadata) if metadata.is_file() => Ok(Some(metadata.permissions())),
            Ok(_) => Err(other("it is not a regular file")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn make_room(&self, path: &Path) -> io::Result<()> {
        match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => self.0.create_dir_all(folder),
            Some(_) | None => Ok(()),
        }
    }
}

/// Returns an unpredictable temporary name in the folder of `path`.
fn temporary_path(path: &Path) -> io::Result<PathBuf> {
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random).map_err(|error| other(&error.to_string()))?;
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{:016x}.tmp", u64::from_le_bytes(random)));
    Ok(path.with_file_name(name))
}

/// Writes a file that the user named, and creates its missing parent folders. Replaces a regular file as a whole, so
/// that a failure leaves no part of a new file and does not change an existing file. Writes directly to anything else,
/// such as a pipe.
///
/// A relative path without `..` names a file in the working directory, whose contents are untrusted: no link is
/// followed. For any other path, links are followed.
///
/// # Errors
///
/// The file cannot be written, or a link leads the relative path elsewhere.
pub fn write_user_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        return write_in_folder(Path::new("."), path, bytes);
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    match std::fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => return std::fs::write(path, bytes),
        Ok(_) | Err(_) => {}
    }
    // A link is followed: the file that it names is replaced.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or_else(|| other("the path has no file name"))?;
    RootedDir::open(folder)?.replace(Path::new(name), bytes)
}

/// Creates a file that the user named in a command of a session. A relative `path` starts at the project. Inside the
/// project, whose contents are untrusted, the function follows no link and creates missing parent folders. Outside of
/// the project, the function follows links to the parent folder, which must exist.
///
/// # Errors
///
/// The file exists, a link leads elsewhere, or the path is protected (such as `.git/hooks/x`): `rye` or git could run
/// the file or read it as settings.
pub fn create_user_file(project: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = without_parent_parts(&project.join(path));
    if let Ok(within) = path.strip_prefix(project) {
        check_ordinary(within)?;
        let root = RootedDir::open(project)?;
        root.check_no_link(within)?;
        return root.create(within, bytes);
    }
    let name = path.file_name().ok_or_else(|| other("the path has no file name"))?;
    let folder = path.parent().unwrap_or(Path::new("/")).canonicalize()?;
    check_ordinary(&folder.join(name))?;
    RootedDir::open(&folder)?.create(Path::new(name), bytes)
}

/// Removes `.` and `..` from an absolute path, without following links.
fn without_parent_parts(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => plain.push(part),
        }
    }
    plain
}

fn check_ordinary(path: &Path) -> io::Result<()> {
    let names = path.components().filter(|part| matches!(part, Component::Normal(_)));
    let names: Vec<OsString> = names.map(|part| part.as_os_str().to_owned()).collect();
    if path_access(&names) == PathAccess::Ordinary {
        return Ok(());
    }
    Err(other("rye or git could use a file at this place; name a file outside of `.ai`, `.git` and `.env*`"))
}

/// Reads a whole text file that the user named. An open file of this process (`/dev/stdin`, or `/dev/fd/N`, which the
/// shell passes for `<(COMMAND)`) is read until its end.
///
/// # Errors
///
/// The file cannot be read, is longer than `most` bytes or not UTF-8. A pipe or device that is no open file of this
/// process is refused without being read, because a link in an untrusted repository can lead to a device without an end.
pub fn read_user_file(path: &Path, most: u64) -> io::Result<String> {
    let is_open_file = path == Path::new("/dev/stdin") || OPEN_FILES.iter().any(|folder| path.starts_with(folder));
    if !is_open_file && !std::fs::metadata(path)?.is_file() {
        return Err(other("it is not a regular file"));
    }
    read_bounded_text(&mut std::fs::File::open(path)?, most)
}

/// Reads a text to its end.
///
/// # Errors
/// The text cannot be read, is longer than `most` bytes or not UTF-8.
pub fn read_bounded_text(input: &mut dyn Read, most: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    input.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(other(&format!("it has more than {most} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not valid UTF-8"))
}

/// Writes a file below a folder without leaving the folder or writing through a link.
fn write_in_folder(folder: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let within = RootedDir::open(folder)?;
    let is_pipe = |metadata: &Metadata| !metadata.is_file() && !metadata.is_dir() && !metadata.is_symlink();
    if within.0.symlink_metadata(path).is_ok_and(|metadata| is_pipe(&metadata)) {
        return within.0.open_with(path, OpenOptions::new().write(true))?.write_all(bytes);
    }
    within.replace(path, bytes)
}

fn other(reason: &str) -> io::Error {
    io::Error::other(reason.to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Creates a project with links to a folder outside of it, and to a file in that folder.
    fn linked_folders() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let base = tempfile::tempdir().unwrap();
        let (root, outside) = (base.path().join("project"), base.path().join("outside"));
        fs::create_dir_all(&root).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("file"), "mine").unwrap();
        symlink(&outside, root.join("folder")).unwrap();
        symlink(outside.join("file"), root.join("link")).unwrap();
        (base, root, outside)
    }

    #[test]
    fn file_below_a_folder_is_not_written_through_a_link() {
        let (_base, root, outside) = linked_folders();
        for path in ["folder/new", "folder/file", "link"] {
            assert!(write_in_folder(&root, Path::new(path), b"x").is_err(), "{path}");
        }
        assert_eq!(fs::read(outside.join("file")).unwrap(), b"mine");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        write_in_folder(&root, Path::new("new/deep/file"), b"x").unwrap();
        assert_eq!(fs::read(root.join("new/deep/file")).unwrap(), b"x");
        // A path outside of the working directory is the user's choice, and its links are followed.
        write_user_file(&root.join("link"), b"y").unwrap();
        assert_eq!(fs::read(outside.join("file")).unwrap(), b"y");
    }

    #[test]
    fn links_out_of_the_folder_are_rejected() {
        let (_base, root, outside) = linked_folders();
        symlink(outside.join("absent"), root.join("dangling")).unwrap();
        let within = RootedDir::open(&root).unwrap();
        for path in ["folder/new", "link", "dangling", "folder/file", "../outside/new", "folder/more/new"] {
            let path = Path::new(path);
            assert!(within.create(path, b"x").is_err(), "{path:?}");
            assert!(within.replace(path, b"x").is_err(), "{path:?}");
        }
        for path in ["link", "folder/file", "../outside/file"] {
            assert!(within.read(Path::new(path), 100).is_err(), "{path}");
            assert!(path == "link" || within.remove(Path::new(path)).is_err(), "{path}");
        }
        within.remove(Path::new("link")).unwrap();
        assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "mine");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    }

    #[test]
    fn named_file_of_a_session_is_not_created_through_a_link_or_where_it_would_run() {
        let (base, root, outside) = linked_folders();
        let root = root.canonicalize().unwrap();
        fs::create_dir_all(root.join(".git/hooks")).unwrap();
        symlink(root.join("plain"), root.join("inner")).unwrap();
        fs::create_dir(root.join("plain")).unwrap();
        symlink(root.join(".git/hooks"), base.path().join("hooks")).unwrap();
        let through = root.join("folder/x.md");
        for path in [
            "folder/x.md",
            "inner/x.md",
            "plain/../folder/x.md",
            "../project/folder/x.md",
            through.to_str().unwrap(),
            "link",
            ".git/hooks/x.md",
            "sub/.GIT/hooks/x.md",
            ".ai/directives/evil.md",
            "sub/.ai/state/x.md",
            ".env.md",
            "../hooks/x.md",
            "../outside/file",
        ] {
            assert!(create_user_file(&root, Path::new(path), b"x").is_err(), "{path}");
        }
        assert_eq!(fs::read(outside.join("file")).unwrap(), b"mine");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        for path in ["new/x.md", "plain/x.md", "../outside/x.md", ".ai/data/x.md"] {
            create_user_file(&root, Path::new(path), b"x").unwrap();
            assert_eq!(fs::read(root.join(path)).unwrap(), b"x", "{path}");
        }
    }

    #[test]
    fn named_file_without_an_end_is_refused_and_an_open_pipe_is_read() {
        use std::os::fd::AsRawFd;

        let base = tempfile::tempdir().unwrap();
        let (pipe, device, file) = (base.path().join("pipe"), base.path().join("device"), base.path().join("file"));
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        symlink("/dev/zero", &device).unwrap();
        for path in [&pipe, &device, Path::new("/dev/zero"), base.path()] {
            assert!(read_user_file(path, 100).unwrap_err().to_string().contains("not a regular file"), "{path:?}");
        }
        fs::write(&file, "12345").unwrap();
        assert_eq!(read_user_file(&file, 5).unwrap(), "12345");
        assert!(read_user_file(&file, 4).unwrap_err().to_string().contains("more than 4 bytes"));
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"input").unwrap();
        drop(writer);
        let open = format!("/dev/fd/{}", reader.as_raw_fd());
        assert_eq!(read_user_file(Path::new(&open), 5).unwrap(), "input");
        let zeros = fs::File::open("/dev/zero").unwrap();
        let open = format!("/dev/fd/{}", zeros.as_raw_fd());
        assert!(read_user_file(Path::new(&open), 100).unwrap_err().to_string().contains("more than 100 bytes"));
    }

    #[test]
    fn read_rejects_pipes_folders_and_large_files() {
        let base = tempfile::tempdir().unwrap();
        let within = RootedDir::open(base.path()).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, base.path().join("pipe"), rustix::fs::Mode::RUSR).unwrap();
        assert!(within.read(Path::new("pipe"), 100).is_err());
        assert!(within.replace(Path::new("pipe"), b"x").is_err());
        fs::create_dir(base.path().join("folder")).unwrap();
        assert!(within.read(Path::new("folder"), 100).is_err());
        fs::write(base.path().join("large"), [b'x'; 101]).unwrap();
        assert!(within.read(Path::new("large"), 100).is_err());
        assert_eq!(within.read(Path::new("large"), 101).unwrap().map(|bytes| bytes.len()), Some(101));
        assert_eq!(within.read(Path::new("absent"), 1).unwrap(), None);
    }

    #[test]
    fn a_file_is_replaced_whole_and_keeps_its_permissions() {
        let base = tempfile::tempdir().unwrap();
        let within = RootedDir::open(base.path()).unwrap();
        let path = Path::new("a/b/c");
        within.create(path, b"one").unwrap();
        assert_eq!(within.create(path, b"two").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        fs::set_permissions(base.path().join(path), fs::Permissions::from_mode(0o640)).unwrap();
        within.replace(path, b"three").unwrap();
        assert_eq!(within.read(path, 9).unwrap().unwrap(), b"three");
        assert_eq!(fs::metadata(base.path().join(path)).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(base.path().join("a/b")).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn file_of_the_user_is_replaced_whole_through_links_and_pipes_are_written() {
        let base = tempfile::tempdir().unwrap();
        let (file, link, pipe) = (base.path().join("file"), base.path().join("link"), base.path().join("pipe"));
        write_user_file(&file, b"one").unwrap();
        symlink(&file, &link).unwrap();
        write_user_file(&link, b"two").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"two");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read(pipe).unwrap()
        });
        write_user_file(&pipe, b"three").unwrap();
        assert_eq!(reader.join().unwrap(), b"three");
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 3);
    }
}
