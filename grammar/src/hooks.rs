//! Hooks in XML become the same data nodes as hooks in YAML, so that one reader gives them meaning.
