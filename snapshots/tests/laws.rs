//! The laws of the house: what must hold of the whole tree, whatever it does.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod laws {
    pub mod codes;
    pub mod house;
    pub mod lifecycle;
    pub mod links;
    pub mod page;
    pub mod shown;
    pub mod standard;
}
