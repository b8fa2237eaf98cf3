//! The semantics of the small languages: values, conditions, templates, patterns, limits, money, the table of hook
//! points (`language.md` 4–7, 9, 11).
//!
//! Check, plan and run share this one implementation. Nothing here resolves items, composes chains or lowers plans, and
//! after compilation nothing here fails on user input.

pub mod address;
pub mod capability;
pub(crate) mod change_frequency;
pub mod classify;
pub mod condition;
pub mod decimal;
pub mod eval;
pub mod facts;
pub mod glob;
pub mod hook_point;
pub(crate) mod hook_table;
pub mod ledger;
pub mod limits;
pub mod money;
pub mod needs;
pub mod risk;
pub mod template;
pub mod value;
pub(crate) mod value_bounds;
