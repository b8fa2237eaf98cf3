//! Repository-wide tests: conventions that hold for the whole source tree.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod laws {
    pub mod circles;
    pub mod codes;
    pub mod help_texts;
    pub mod house;
    pub mod lifecycle;
    pub mod links;
    pub mod map;
    pub mod page;
    pub mod public_items;
    pub mod recipes;
    pub mod replaced_names;
    pub mod shown;
    pub mod standard;
    pub mod texts;
    pub mod types;
    pub mod words;
}
