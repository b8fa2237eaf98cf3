//! What `rye_fetch` and `rye_sign` do once the gate has let them through. `rye_execute` is the driver's: it starts tools
//! and threads. The definitions stand in the compiler, which puts them into the palette.

mod fetch;
mod item_text;
mod query;
mod search;
mod sign;

pub use fetch::{Library, fetch};
pub use item_text::{ItemText, item_text};
pub use query::{Query, Texts};
pub use sign::sign;
