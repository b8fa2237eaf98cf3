//! The harness of the case folders: a case is a real project, and what `check`, `plan` and `run` say about it. Reads
//! folders and renders text; comparing it with what was expected is the test's business. And the parsers as functions of
//! bytes (`fuzz`).

mod harness {
    pub mod case;
    pub mod fuzz;
    pub mod render;
    pub mod run;
    pub mod space;
    mod told;
}

pub use harness::case::{Case, Settings, check, discover};
pub use harness::fuzz;
pub use harness::render::render_diagnostics;
pub use harness::space::standard_library;
