//! Test harness for case folders: a case is a project together with the expected output of `check`, `plan` and `run`.
//! The harness reads folders and renders text; the tests compare. The `fuzz` module contains the parsers as fuzz
//! targets.

mod harness {
    pub mod bounds;
    pub mod case;
    mod format_event;
    pub mod fuzz;
    pub mod render;
    pub mod run;
    pub mod space;
}

pub use harness::bounds::{RunTotals, check_run_bounds};
pub use harness::case::{Case, CaseSettings, check, discover};
pub use harness::fuzz;
pub use harness::render::render_diagnostics;
pub use harness::space::standard_library;
