//! Composed to Plan: the last phase of the compiler. Everything that a run must not decide again is decided here.

pub mod capabilities;
pub mod facts;
pub mod hooks;
pub mod interface;
pub mod limits;
pub mod origin;
pub mod prompt;
mod words;
