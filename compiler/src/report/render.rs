//! Renderers of a plan: text, JSON, HTML, DOT, Mermaid, SVG. They produce strings only; the caller decides on terminal
//! colors.

pub mod diff;
pub mod dot;
pub mod graph_page;
pub mod html;
pub mod json;
pub mod mermaid;
pub mod prompt;
pub mod svg;
pub mod table;
pub mod text;
pub mod trust;
pub(crate) mod turn_hooks;
pub mod view;
