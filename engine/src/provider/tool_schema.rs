//! Tests of the conversion of tool schemas against the rules of the wires and the engine's validation of calls.

mod corpus;
mod random;
mod rules;
mod tests;
