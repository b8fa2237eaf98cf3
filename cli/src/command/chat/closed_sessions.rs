//! The closed sessions of a project, as `/resume` lists them.

use rye_engine::session_tree::session_title;
use rye_engine::thread::Status;
use serde_json::{Value, json};

use super::requests::RequestHandler;
use crate::thread_reader::ThreadReader;

/// Maximum number of closed sessions whose titles are read.
const MAX_TITLES: usize = 30;

impl RequestHandler {
    /// Returns the closed sessions of the project, newest first, as the data of the response.
    pub(super) fn closed_sessions(&self) -> Result<Option<Value>, String> {
        let reader = ThreadReader::open(&self.spaces.project).map_err(|error| error.to_string())?;
        let mut sessions = reader.list().map_err(|error| error.to_string())?;
        sessions.retain(|entry| entry.row.status == Status::Idle && entry.row.parent.is_none());
        sessions.sort_by_key(|entry| std::cmp::Reverse(entry.row.updated_at));
        let threads = self.engine.threads();
        let rows = sessions.into_iter().enumerate().filter_map(|(n, entry)| {
            // A session with a damaged transcript is listed without a title. The damage is reported when the session is
            // opened.
            let title = if n < MAX_TITLES { session_title(&threads, &entry.row.id) } else { Ok(Some(String::new())) };
            if matches!(title, Ok(None)) {
                // Nothing was typed in this session.
                return None;
            }
            let title = title.ok().flatten().filter(|title| !title.is_empty());
            Some(json!({
                "thread_id": entry.row.id.as_str(),
                "directive": entry.row.directive,
                "updated_at": entry.row.updated_at,
                "title": title,
            }))
        });
        Ok(Some(rows.collect()))
    }
}
