//! Tests of the process table.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

#[test]
fn living_parent_skips_brackets_in_names() {
    assert_eq!(living_parent("12 (a) b) S 7 12 12 0"), Some(7));
    assert_eq!(living_parent("12 (x) Z 7 12"), None);
    assert_eq!(living_parent(""), None);
    assert_eq!(living_parent("12 (x"), None);
}
