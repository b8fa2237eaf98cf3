//! What the small languages mean: the one implementation behind check, plan and run. No resolving, composing or
//! lowering here.

pub mod hook_point;
