//! The standard library as data, compiled into the binary: the system space of every project.

use include_dir::{Dir, DirEntry, include_dir};

static FILES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/.ai");

/// Every file of the system space as (path, bytes), sorted by path; paths begin with `.ai/` and use forward slashes.
pub fn files() -> Vec<(String, &'static [u8])> {
    let mut found = Vec::new();
    let mut folders = vec![&FILES];
    while let Some(folder) = folders.pop() {
        for entry in folder.entries() {
            match entry {
                DirEntry::Dir(inner) => folders.push(inner),
                DirEntry::File(file) => {
                    found.push((format!(".ai/{}", file.path().to_string_lossy().replace('\\', "/")), file.contents()));
                }
            }
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    #[test]
    fn holds_the_bases() {
        let files = super::files();
        let has = |path: &str| files.iter().any(|(p, bytes)| p == path && !bytes.is_empty());
        assert!(has(".ai/directives/rye/agent/core/base.md"));
        assert!(has(".ai/knowledge/rye/agent/core/protocol/execute.md"));
        assert!(has(".ai/config/agent/resilience.yaml"));
    }
}
