//! The branches of a session: its tree, and the requests that go back to an earlier prompt or to another branch.

use rye_engine::event::{ControlMessage, Delivery, InputSource, UserInput};
use rye_engine::session_tree::{SessionPrompt, SessionThread, current_prompts, session_tree};
use rye_engine::thread::Status;
use rye_engine::thread_id::ThreadId;
use serde_json::{Value, json};

use super::requests::{ENDED, RequestHandler};

impl RequestHandler {
    /// Continues the session from the state before the prompt with the number `prompt`. If `thread` is given, the
    /// prompt belongs to the branch of that thread. If only `thread` is given, the session continues from the end of
    /// the thread. The data of the response contains the text of the prompt.
    pub(super) async fn fork(&self, prompt: Option<u64>, thread: Option<String>) -> Result<Option<Value>, String> {
        if let Some(thread) = thread {
            return self.fork_in_branch(&thread, prompt).await;
        }
        let prompt = prompt.ok_or("missing field `prompt` or `thread`")?;
        let prompts = self.control.started_state().await.state.chat.as_ref().map_or(0, |chat| chat.prompts);
        if !(1..=prompts).contains(&prompt) {
            return Err(format!("no prompt {prompt}: the number of the last prompt is {prompts}"));
        }
        let text = self.prompt_of_session(prompt).await?.map(|prompt| prompt.text);
        let id = self.control.send_with_id(ControlMessage::Fork { prompt, thread: None }).ok_or(ENDED)?;
        Ok(Some(json!({"message": id, "text": text})))
    }

    /// Continues the session in the branch of `thread`, from the state before the prompt with the number `prompt`. If
    /// `prompt` is `None`, continues from the end of `thread`.
    async fn fork_in_branch(&self, thread: &str, prompt: Option<u64>) -> Result<Option<Value>, String> {
        let tree = self.tree_of_session().await?;
        let at = tree.iter().position(|one| one.thread_id == thread);
        let at = at.ok_or_else(|| format!("the session has no thread `{thread}`: /tree lists its threads"))?;
        let branch = current_prompts(tree.get(..=at).unwrap_or_default());
        let end = branch.first().map_or(1, |(_, last)| last.number.saturating_add(1));
        let number = prompt.unwrap_or(end);
        let found = branch.iter().find(|(_, one)| one.number == number);
        if found.is_none() && number != end {
            return Err(format!("no prompt {number} in `{thread}`: the number of its last prompt is {}", end - 1));
        }
        let message = ControlMessage::Fork { prompt: number, thread: Some(thread.to_owned()) };
        let id = self.control.send_with_id(message).ok_or(ENDED)?;
        let text = found.map(|(_, prompt)| prompt.text.clone());
        Ok(Some(json!({"message": id, "text": text, "after_prompt": number - 1, "thread": thread})))
    }

    /// Sends the last prompt again: resets the conversation to its state before that prompt, and submits the prompt as
    /// a new message. Returns the id of the new message as the data of the response.
    pub(super) async fn retry(&self) -> Result<Option<Value>, String> {
        let last = self.idle_state().await?.state.chat.as_ref().map_or(0, |chat| chat.prompts);
        let Some(prompt) = self.prompt_of_session(last).await? else {
            return Err("the session has no prompt yet".to_owned());
        };
        self.control.send_with_id(ControlMessage::Fork { prompt: last, thread: None }).ok_or(ENDED)?;
        let SessionPrompt { text, images, bounds, .. } = prompt;
        let input = UserInput { images, bounds, source: InputSource::Rpc, ..UserInput::text(text) };
        let id = self.control.submit(input, Delivery::Prompt).ok_or(ENDED)?;
        Ok(Some(json!({"input": id})))
    }

    /// Returns the prompt with this number in the current conversation; `None` if the conversation has no such prompt.
    async fn prompt_of_session(&self, number: u64) -> Result<Option<SessionPrompt>, String> {
        let threads = self.tree_of_session().await?;
        let found = current_prompts(&threads).into_iter().find(|(_, prompt)| prompt.number == number);
        Ok(found.map(|(_, prompt)| prompt.clone()))
    }

    pub(super) async fn tree(&self) -> Result<Option<Value>, String> {
        serde_json::to_value(self.tree_of_session().await?).map(Some).map_err(|error| error.to_string())
    }

    async fn tree_of_session(&self) -> Result<Vec<SessionThread>, String> {
        let live = self.control.started_state().await;
        let thread = ThreadId::parse(live.thread_id().unwrap_or_default()).map_err(|invalid| invalid.reason)?;
        let mut tree = session_tree(&self.engine.threads(), &thread).map_err(|error| error.to_string())?;
        if let Some(current) = tree.iter_mut().find(|one| one.thread_id == thread.as_str() && live.state.is_idle()) {
            current.status = Status::Idle;
        }
        Ok(tree)
    }
}
