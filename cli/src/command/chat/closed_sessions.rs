//! The closed sessions of a project, as `/resume` lists them.

use rye_engine::session_tree::listed_session_title;
use rye_engine::thread::Status;
use serde_json::{Value, json};

use super::requests::RequestHandler;
use crate::thread_reader::ThreadReader;

/// Maximum number of listed sessions with a title. Older sessions are listed without a title.
const MAX_TITLES: usize = 200;

/// Maximum number of sessions whose transcripts are read to find a title. Sessions without a prompt have no title.
const MAX_READ_SESSIONS: usize = 1_000;

impl RequestHandler {
    /// Returns the closed sessions of the project, newest first, as the data of the response.
    pub(super) fn closed_sessions(&self) -> Result<Option<Value>, String> {
        let reader = ThreadReader::open(&self.spaces.project).map_err(|error| error.to_string())?;
        let listed = reader.list().map_err(|error| error.to_string())?;
        let mut sessions = listed.clone();
        sessions.retain(|entry| entry.row.status == Status::Idle && entry.row.parent.is_none());
        sessions.sort_by_key(|entry| std::cmp::Reverse(entry.row.updated_at));
        let threads = self.engine.threads();
        let mut titles = 0;
        let rows = sessions.into_iter().enumerate().filter_map(|(n, entry)| {
            // A session with a damaged transcript is listed without a title. The damage is reported when the session is
            // opened.
            let is_read = titles < MAX_TITLES && n < MAX_READ_SESSIONS;
            let title = is_read.then(|| listed_session_title(&threads, &listed, &entry.row.id));
            if matches!(title, Some(Ok(None))) {
                // Nothing was typed in this session.
                return None;
            }
            titles += 1;
            let title = title.and_then(Result::ok).flatten();
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
