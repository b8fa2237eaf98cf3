//! The request `rewind` of a session: continues from the state before a prompt, and restores the files that file tools
//! have changed since the prompt started.

use rye_engine::session::rewind::{FileRewind, plan_rewind, restore_files};
use rye_engine::thread_id::ThreadId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::requests::RequestHandler;

/// The treatment of changed files during a rewind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RewindFiles {
    /// Leaves the files as they are.
    #[default]
    Keep,
    /// Lists the files, and changes neither the files nor the conversation.
    Preview,
    /// Restores the files that have not changed since the last recorded write, then continues from the state before the
    /// prompt.
    Restore,
    /// Restores the files and keeps the conversation.
    Only,
}

impl RequestHandler {
    /// Rewinds the conversation, the files or both to the state before a prompt, as `files` requests. With `Preview`,
    /// only lists the files that a rewind would restore. Returns the data of the response. Unless `files` is `Keep`,
    /// the data contains the files and their states.
    pub(super) async fn rewind(&self, prompt: u64, files: RewindFiles) -> Result<Option<Value>, String> {
        if files == RewindFiles::Keep {
            return self.fork(Some(prompt), None).await;
        }
        let live = self.idle_state().await?;
        let thread = ThreadId::parse(live.thread_id().unwrap_or_default()).map_err(|invalid| invalid.reason)?;
        let (threads, project) = (self.engine.threads(), self.spaces.project.clone());
        let work = move || {
            let found = plan_rewind(&threads, &project, &thread, prompt).map_err(|error| error.to_string())?;
            let found: FileRewind = found.ok_or_else(|| format!("the conversation has no prompt {prompt}"))?;
            if files == RewindFiles::Preview {
                return Ok(found);
            }
            restore_files(threads.objects(), &project, found).map_err(|error| error.to_string())
        };
        let rewind: Result<FileRewind, String> =
            tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())?;
        let rewind = rewind?;
        let mut data = if files == RewindFiles::Restore {
            self.fork(Some(prompt), None).await?.unwrap_or_else(|| json!({}))
        } else {
            json!({})
        };
        if let Value::Object(fields) = &mut data {
            if files == RewindFiles::Preview {
                fields.insert("preview".into(), json!(prompt));
            }
            fields.insert("files".into(), json!(rewind.files));
            fields.insert("not_undone".into(), json!(rewind.not_undone));
        }
        Ok(Some(data))
    }
}
