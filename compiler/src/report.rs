//! Reports on plans and compilations: rendering, comparison, contexts, cost estimates, derivations and the lock file.
//! Reports read plans; no plan contains a report.

pub mod access;
pub mod alternatives;
pub mod cache_map;
pub mod closure;
pub mod continuation;
pub mod diff;
pub(crate) mod forecast;
pub mod intake;
mod limit_lattice;
pub mod lock;
pub mod matrix;
mod missing_grant;
pub(crate) mod omissions;
pub(crate) mod project_checks;
pub mod provenance;
pub mod render;
pub mod run_bounds;
pub mod summary;
pub mod why;
pub mod workspace_trust;
