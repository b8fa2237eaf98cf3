//! Execution of `rye_fetch` and `rye_sign` after the gate has authorized them. The driver handles `rye_execute`, which
//! starts tools and threads. The compiler defines the primaries and puts them into the palette.

mod fetch;
mod item_text;
mod query;
mod search;
mod sign;

pub use fetch::{FetchSources, fetch};
pub use item_text::{ItemText, item_text};
pub use query::{Query, SearchableTexts};
pub use sign::sign;
