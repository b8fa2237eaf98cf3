//! One test per case folder.

fn main() {}
