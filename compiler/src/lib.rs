//! The compiler from item trees to plans. Every result is a pure function of a [`world::World`]: no files, no clock, no
//! processes.

pub mod approvals;
pub mod assertion;
pub(crate) mod assertion_file;
pub mod commands;
pub mod compile;
pub mod compose;
pub mod context_files;
pub mod diagnostics;
pub mod drawing;
pub mod edit;
pub mod expand;
pub mod extends;
pub mod hook;
pub mod input_schema;
pub mod item;
pub mod item_graph;
pub mod lower;
pub mod mcp_servers;
pub mod model;
pub mod palette;
pub mod plan;
pub mod primary;
pub mod report;
pub mod request;
pub mod resolve;
pub mod sandbox;
pub mod semantics;
pub mod severity_overrides;
pub mod skill_list;
pub mod tool_guidance;
pub mod tool_spec;
pub mod trust;
pub mod validate;
pub mod wire_tool;
pub mod world;
