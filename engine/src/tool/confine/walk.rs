//! A deterministic walk over the files of a folder through directory handles. Skips ignored files, links and `.git`.
//! Other dotfiles are visited only if the caller requests them ([`Dotfiles`]).

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{AtFlags, FileType};

use super::{FileAccessError, ProjectFiles, ProjectPath, open_folder_at};
use crate::path_policy::{self, PathAccess};
use crate::tool::cancellation::StopCondition;

/// Maximum number of entries of one walk.
const MAX_ENTRIES: usize = 250_000;
/// Maximum depth of the folders that a walk enters; deeper folders are left out.
const MAX_DEPTH: usize = 64;
/// Maximum bytes read of one ignore file.
const MAX_IGNORE_FILE: u64 = 1 << 20;

/// The treatment of dotfiles in a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dotfiles {
    Skip,
    /// Visits all dotfiles but `.git`.
    Visit,
}

/// A visited file.
pub struct VisitedFile<'w> {
    pub parent: &'w Dir,
    pub name: &'w OsStr,
    /// Path relative to the project root.
    pub path: &'w ProjectPath,
    /// Path relative to the folder where the walk started.
    pub below: &'w Path,
}

/// The reason why the walk through a folder ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalkEnd {
    Complete,
    /// The visitor stopped the walk.
    Enough,
    /// The walk reached the entry limit or the time limit.
    CutShort,
}

type Visit<'v> = dyn FnMut(&VisitedFile<'_>) -> ControlFlow<()> + 'v;

struct FolderWalk<'w> {
    project: &'w ProjectFiles,
    dotfiles: Dotfiles,
    stop: &'w StopCondition,
    left: usize,
    /// The ignore rules of the folders from the project root down, outermost first.
    rules: Vec<Gitignore>,
}

impl ProjectFiles {
    /// Visits every regular file below `start`, in byte order of names. Respects ignore files (`.gitignore`, `.ignore`,
    /// `.git/info/exclude`) from the project root down; does not follow links.
    pub fn walk(
        &self,
        start: &ProjectPath,
        dir: &Dir,
        dotfiles: Dotfiles,
        stop: &StopCondition,
        visit: &mut Visit,
    ) -> Result<WalkEnd, FileAccessError> {
        let mut walk = FolderWalk { project: self, dotfiles, stop, left: MAX_ENTRIES, rules: Vec::new() };
        let fail = |e: std::io::Error| FileAccessError::io(start, e);
        let mut here = self.root.try_clone().map_err(fail)?;
        let mut at = PathBuf::new();
        walk.rules.extend(read_exclude_file(&here));
        for segment in &start.0 {
            walk.rules.extend(rules_of(&here, &at));
            here = open_folder_at(&here, segment).map_err(|e| fail(e.into()))?;
            at.push(segment);
        }
        Ok(match walk.folder(dir, start, &PathBuf::new(), 0, visit) {
            ControlFlow::Continue(()) => WalkEnd::Complete,
            ControlFlow::Break(ended) => ended,
        })
    }

    /// Opens a visited file.
    pub(crate) fn open_visited(&self, seen: &VisitedFile<'_>) -> Result<std::fs::File, FileAccessError> {
        self.open_file_at(seen.parent, seen.name, seen.path).map(|f| f.0)
    }
}

impl FolderWalk<'_> {
    fn folder(
        &mut self,
        dir: &Dir,
        path: &ProjectPath,
        below: &Path,
        depth: usize,
        visit: &mut Visit,
    ) -> ControlFlow<WalkEnd> {
        let full: PathBuf = path.0.iter().collect();
        let added: Vec<Gitignore> = rules_of(dir, &full).into_iter().collect();
        let before = self.rules.len();
        self.rules.extend(added);
        let flow = self.entries(dir, path, below, depth, visit);
        self.rules.truncate(before);
        flow
    }

    fn entries(
        &mut self,
        dir: &Dir,
        path: &ProjectPath,
        below: &Path,
        depth: usize,
        visit: &mut Visit,
    ) -> ControlFlow<WalkEnd> {
        // An unreadable folder is skipped.
        let Ok(listing) = dir.entries() else { return ControlFlow::Continue(()) };
        let mut names: Vec<OsString> = Vec::new();
        for entry in listing.flatten() {
            if self.left == 0 || self.stop.is_due() {
                return ControlFlow::Break(WalkEnd::CutShort);
            }
            self.left -= 1;
            names.push(entry.file_name());
        }
        names.sort_unstable();
        for name in names {
            if self.stop.is_due() {
                return ControlFlow::Break(WalkEnd::CutShort);
            }
            let dotted = name.as_encoded_bytes().starts_with(b".");
            if name == ".git" || (dotted && self.dotfiles == Dotfiles::Skip) {
                continue;
            }
            let path = path.join(&name);
            if path_policy::path_access(&path.0) == PathAccess::Hidden {
                continue;
            }
            let Ok(stat) = rustix::fs::statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let kind = FileType::from_raw_mode(stat.st_mode);
            let is_folder = kind == FileType::Directory;
            if self.is_ignored(&path, is_folder) {
                continue;
            }
            let below = below.join(&name);
            if is_folder {
                if depth + 1 < MAX_DEPTH
                    && self.project.reject_alias(&path, &stat).is_ok()
                    && let Ok(inner) = open_folder_at(dir, &name)
                {
                    self.folder(&inner, &path, &below, depth + 1, visit)?;
                }
            } else if kind == FileType::RegularFile {
                let seen = VisitedFile { parent: dir, name: &name, path: &path, below: &below };
                if visit(&seen).is_break() {
                    return ControlFlow::Break(WalkEnd::Enough);
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Returns true if the ignore rules exclude a path. The innermost rule that matches decides.
    fn is_ignored(&self, path: &ProjectPath, is_folder: bool) -> bool {
        let path: PathBuf = path.0.iter().collect();
        let verdict = self.rules.iter().rev().map(|r| r.matched(&path, is_folder)).find(|m| !m.is_none());
        verdict.is_some_and(|m| m.is_ignore())
    }
}

/// Reads the ignore rules of a folder (`.gitignore` and `.ignore`); `None` if the folder contains neither file. Skips
/// invalid lines, as git does.
fn rules_of(dir: &Dir, at: &Path) -> Option<Gitignore> {
    let mut builder = GitignoreBuilder::new(at);
    let mut any = false;
    for name in [".gitignore", ".ignore"] {
        any |= add(&mut builder, dir, name);
    }
    if any { builder.build().ok() } else { None }
}

fn read_exclude_file(root: &Dir) -> Option<Gitignore> {
    let info = open_folder_at(root, ".git".as_ref()).and_then(|git| open_folder_at(&git, "info".as_ref())).ok()?;
    let mut builder = GitignoreBuilder::new("");
    if add(&mut builder, &info, "exclude") { builder.build().ok() } else { None }
}

fn add(builder: &mut GitignoreBuilder, dir: &Dir, name: &str) -> bool {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let Ok(fd) = rustix::fs::openat(dir, name, flags, Mode::empty()) else { return false };
    let file = std::fs::File::from(fd);
    if !file.metadata().is_ok_and(|m| m.is_file()) {
        return false;
    }
    let mut any = false;
    for line in BufReader::new(file.take(MAX_IGNORE_FILE)).split(b'\n') {
        let Ok(line) = line else { break };
        if let Ok(line) = std::str::from_utf8(&line) {
            any |= builder.add_line(None, line.trim_end_matches('\r')).is_ok();
        }
    }
    any
}
