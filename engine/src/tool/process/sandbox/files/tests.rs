//! Tests of the search for protected paths.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::cell::Cell;
use std::fs;

use super::*;

thread_local! {
    /// Number of handles that [`open`] has requested on this thread.
    pub static OPENED: Cell<usize> = const { Cell::new(0) };
}

#[test]
fn searches_open_folders_only() {
    let folder = tempfile::tempdir().unwrap();
    for inner in ["a", "b/c"] {
        fs::create_dir_all(folder.path().join(inner)).unwrap();
        for n in 0..100 {
            fs::write(folder.path().join(inner).join(n.to_string()), "").unwrap();
        }
    }
    let sandbox = Sandbox {
        project: folder.path().to_path_buf(),
        user: None,
        read: Vec::new(),
        write: Vec::new(),
        hidden: Vec::new(),
        write_only: Vec::new(),
        net: false,
        scratch: None,
        outer: None,
    };
    let root = open(CWD, folder.path().as_os_str(), OFlags::empty()).unwrap().unwrap();
    OPENED.set(0);
    let mut rules = FileRules::new(&sandbox, None);
    assert!(rules.is_public(&root, 0).unwrap());
    assert_eq!((rules.entries, OPENED.take()), (203, 3));
    let mut rules = FileRules::new(&sandbox, None);
    assert!(rules.is_unprotected(&root, &["out".into()]).unwrap());
    assert_eq!((rules.entries, OPENED.take()), (203, 3));
    fs::create_dir(folder.path().join("b/c/.ai")).unwrap();
    assert!(!rules.is_unprotected(&root, &["out".into()]).unwrap());
    fs::set_permissions(folder.path().join("a/7"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert!(!rules.is_public(&root, 0).unwrap());
}
