//! The `rye` command.

fn main() {}
