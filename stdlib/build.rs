//! Rebuilds the crate when a file of the standard library changes: the macro alone does not watch the folder.

fn main() {
    println!("cargo:rerun-if-changed=.ai");
}
