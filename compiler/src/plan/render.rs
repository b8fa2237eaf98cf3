//! A plan for people and programs: text, JSON, DOT, Mermaid. Strings only; who prints them decides on colours.

pub mod diff;
pub mod dot;
pub mod drawing;
pub mod html;
pub mod json;
pub mod mermaid;
pub mod svg;
pub mod table;
pub mod text;
pub mod trust;
pub mod view;
