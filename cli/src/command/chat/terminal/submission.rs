//! Submission of the text in the editor: as a command, or as a message with the images that it names.

use std::path::PathBuf;

use rye_engine::event::{ControlMessage, Delivery, EventBody, UserInput};
use rye_engine::session_tree::{SessionThread, current_prompts, other_branches};
use serde_json::Value;

use super::questions::KeyQuestion;
use super::{ChatTerminal, QueuedMessage};
use crate::command::chat::clipboard_image::{
    file_names, image_words, missing_file_notes, paste_image, sent_images_note,
};
use crate::command::chat::commands::{TypedText, response_note};
use crate::command::chat::compaction::previewed_compaction;
use crate::command::chat::json::{ChatResponse, ChatVerb};
use crate::command::chat::overlay::{Entry, Overlay, Replaced};
use crate::present::format_date;

/// A message whose images are read and stored before it is submitted.
#[derive(Debug)]
pub(super) struct PendingMessage {
    text: String,
    delivery: Delivery,
    /// Names of the files with the images.
    images: Vec<String>,
}

/// A message that waits until the commands before it have taken effect.
#[derive(Debug)]
pub(super) struct DelayedMessage {
    input: UserInput,
    text: String,
    delivery: Delivery,
}

impl DelayedMessage {
    /// Returns the delivery and the text that the list of queued messages shows.
    pub(super) fn shown(&self) -> (Delivery, &String) {
        (self.delivery, &self.text)
    }
}

/// Returns an entry for each closed session, newest first: the command that opens the session, with date and title as a
/// note.
fn session_entries(data: &Value) -> Vec<Entry> {
    let entry = |session: &Value| {
        let thread = session.get("thread_id")?.as_str()?;
        let updated = session.get("updated_at").and_then(Value::as_i64).map(format_date).unwrap_or_default();
        let title = session.get("title").and_then(Value::as_str).unwrap_or("title not read");
        Some(Entry { text: format!("/resume {thread} "), note: format!("{updated}  {title}") })
    };
    data.as_array().into_iter().flatten().filter_map(entry).collect()
}

/// Returns the list entries for `/tree`: `/fork THREAD` for each other branch, then `/fork NUMBER` for each prompt of
/// the current conversation, oldest first. The note of an entry contains the text of a prompt.
fn branch_entries(data: &Value) -> Vec<Entry> {
    let threads: Vec<SessionThread> = serde_json::from_value(data.clone()).unwrap_or_default();
    let branch = |thread: &SessionThread| {
        let last = thread.prompts.last().map_or("", |prompt| prompt.text.as_str());
        Entry { text: format!("/fork {} ", thread.thread_id), note: format!("return to the end of the branch: {last}") }
    };
    let mut entries: Vec<Entry> = other_branches(&threads).into_iter().map(branch).collect();
    let current = current_prompts(&threads).into_iter().rev();
    entries.extend(
        current.map(|(_, prompt)| Entry { text: format!("/fork {} ", prompt.number), note: prompt.text.clone() }),
    );
    entries
}

/// Returns the list entries for `/rewind`: `/rewind NUMBER` for each prompt of the current conversation, oldest first.
fn rewind_entries(data: &Value) -> Vec<Entry> {
    let threads: Vec<SessionThread> = serde_json::from_value(data.clone()).unwrap_or_default();
    let prompts = current_prompts(&threads).into_iter().rev();
    prompts
        .map(|(_, prompt)| Entry { text: format!("/rewind {} ", prompt.number), note: prompt.text.clone() })
        .collect()
}

impl ChatTerminal {
    /// Puts unsent messages before the text in the editor.
    pub(super) fn return_to_editor(&mut self, text: &str) {
        let written = self.editor.text();
        self.editor.restore(&if written.is_empty() { text.to_owned() } else { format!("{text}\n{written}") });
        self.edited();
    }

    /// Puts the texts of the withdrawn messages before the text in the editor.
    pub(super) fn restore_returned(&mut self) {
        let texts = std::mem::take(&mut self.returned);
        if !texts.is_empty() {
            self.return_to_editor(&texts.join("\n"));
        }
    }

    /// Requests the list of the prompts to rewind to.
    pub(super) fn list_rewinds(&mut self) {
        self.offers_rewinds = true;
        self.commands.perform(ChatVerb::Tree {});
    }

    pub(super) fn send(&mut self, is_follow_up: bool) {
        if self.editor.text().trim().is_empty() {
            return;
        }
        let text = self.editor.take();
        self.history.add(&text);
        self.draft_due = None;
        self.draft.write("");
        let typed = TypedText::parse(&text);
        if !matches!(typed, TypedText::Message(_) | TypedText::Delivered(..) | TypedText::Leave(_)) {
            self.echo(&text);
        }
        self.offers_rewinds = text.trim() == "/rewind";
        match typed {
            TypedText::Help(topic) => self.help(topic.as_deref()),
            TypedText::Leave(None) => self.leave(),
            TypedText::Leave(Some(children)) => self.close(children),
            TypedText::Invalid(reason) => self.note(&reason),
            TypedText::Request(verb) => self.commands.perform(verb),
            TypedText::Inquiry(inquiry) => self.commands.inquire(inquiry),
            TypedText::Switch(verb, children) => self.switch(verb, children),
            TypedText::Message(input) if is_follow_up => self.submit(input, text, Delivery::FollowUp),
            TypedText::Message(input) => self.submit(input, text, Delivery::Steer),
            TypedText::Delivered(input, delivery) => self.submit(input, text, delivery),
        }
    }

    /// Submits a message. `text` is the text that the user typed. If the message is refused, `text` returns to the
    /// editor.
    pub(super) fn submit(&mut self, input: UserInput, text: String, delivery: Delivery) {
        if self.commands.is_changing() || !self.delayed.is_empty() {
            // A command before the message changes the model, the limits or the thread of the message.
            self.delayed.push_back(DelayedMessage { input, text, delivery });
            return self.commands.report_release();
        }
        self.submit_now(input, text, delivery);
    }

    /// Submits the oldest delayed message.
    pub(super) fn submit_delayed(&mut self) {
        if let Some(DelayedMessage { input, text, delivery }) = self.delayed.pop_front() {
            self.submit_now(input, text, delivery);
            self.is_dirty = true;
        }
    }

    fn submit_now(&mut self, input: UserInput, text: String, delivery: Delivery) {
        if let Err(reason) = self.session.requests.check_input(&input) {
            self.note(&reason);
            return self.return_to_editor(&text);
        }
        match self.session.requests.cache_warning(&input) {
            Some(warning) => self.ask_cache(input, text, delivery, warning),
            None => self.submit_checked(input, text, delivery, Vec::new()),
        }
    }

    /// Submits a message whose bounds are valid. If `without` names parts of the context, the message is sent once
    /// without them.
    pub(super) fn submit_checked(&mut self, input: UserInput, text: String, delivery: Delivery, without: Vec<String>) {
        // A message with bounds is a prompt of its own.
        let delivery = if input.bounds.is_empty() { delivery } else { Delivery::Prompt };
        let missing = missing_file_notes(&input.text, &self.session.requests.spaces.project);
        let images: Vec<PathBuf> = match image_words(&input.text, &self.session.requests.spaces.project) {
            Ok(images) => images,
            Err(reason) => {
                self.note(&reason);
                return self.return_to_editor(&text);
            }
        };
        let names = file_names(&images);
        if !without.is_empty() {
            self.pending.push_back(PendingMessage { text, delivery: Delivery::Prompt, images: names });
            return self.commands.submit_without(input, images, without);
        }
        if !images.is_empty() {
            self.pending.push_back(PendingMessage { text, delivery, images: names });
            return self.commands.submit(input, images, delivery);
        }
        let id = self.session.requests.control.submit(input, delivery);
        self.submitted(id, text, delivery);
        for note in &missing {
            self.note(note);
        }
    }

    /// Shows a submitted message: in the list of queued messages while a prompt runs, else as the next prompt.
    fn submitted(&mut self, id: Option<String>, text: String, delivery: Delivery) {
        let waits = self.is_running || self.is_busy_while_idle();
        // While the session is idle, a message becomes the next prompt.
        let delivery = if self.is_running { delivery } else { Delivery::Prompt };
        match id.filter(|_| waits) {
            Some(id) => self.queue.push(QueuedMessage { id, text, delivery }),
            None => self.echo(&text),
        }
    }

    /// Shows a message that another process sent to the session.
    pub(super) fn show_foreign_message(&mut self, body: &EventBody) {
        let EventBody::Mail(mail) = body else { return };
        if self.session.requests.control.has_sent(&mail.id) {
            return;
        }
        let (text, delivery) = if let ControlMessage::Submit { input, delivery } = &mail.message {
            (&input.text, *delivery)
        } else if let ControlMessage::Steer { text } = &mail.message {
            (text, Delivery::Steer)
        } else if let ControlMessage::FollowUp { text } = &mail.message {
            (text, Delivery::FollowUp)
        } else {
            return;
        };
        self.submitted(Some(mail.id.clone()), text.clone(), delivery);
    }

    /// Handles the response to a message with images. Shows the message if its images are stored; otherwise prints the
    /// error and returns the text of the message to the editor.
    fn images_sent(&mut self, response: &ChatResponse) {
        let Some(PendingMessage { text, delivery, images }) = self.pending.pop_front() else { return };
        if let Some(error) = &response.error {
            self.note(error);
            return self.return_to_editor(&text);
        }
        let id = response.data.as_ref().and_then(|data| data.get("input")?.as_str()).map(str::to_owned);
        self.submitted(id, text, delivery);
        if let Some(note) = sent_images_note(&images) {
            self.note(&note);
        }
    }

    /// Saves the image of the clipboard as a file, and inserts the name of the file into the text.
    pub(super) fn paste_image(&mut self) {
        match paste_image(&self.session.requests.spaces.project) {
            Ok(name) => {
                self.editor.paste(&format!("@{name} "));
                self.edited();
            }
            Err(reason) => self.note(&reason),
        }
    }

    /// Opens a list for a response, unless the editor contains text: the closed sessions for `/resume`, or the prompts
    /// for `/tree` and `/rewind`. Returns true if the list shows the whole response, so that the response need not be
    /// printed. This is the case for `/resume` and `/rewind`. The list for `/tree` does not show the threads of the
    /// prompts.
    fn offer_list(&mut self, response: &ChatResponse) -> bool {
        let Some(data) = response.data.as_ref().filter(|_| self.editor.is_empty()) else { return false };
        let rewinds = response.command == Some("tree") && std::mem::take(&mut self.offers_rewinds);
        let entries = match response.command {
            Some("tree") if rewinds => rewind_entries(data),
            Some("resume") => session_entries(data),
            Some("tree") => branch_entries(data),
            Some(_) | None => return false,
        };
        self.overlay = Overlay::open(entries, Replaced::Text);
        if let (Some(overlay), Some("tree")) = (&mut self.overlay, response.command) {
            overlay.select_last();
        }
        self.overlay.is_some() && (rewinds || response.command == Some("resume"))
    }

    /// Prints the response to a typed command.
    pub(super) fn print_response(&mut self, response: &ChatResponse) {
        self.is_dirty = true;
        if response.command == Some("prompt") {
            return self.images_sent(response);
        }
        let data = response.data.as_ref();
        let preview =
            data.and_then(|data| data.get("preview")?.as_u64()).filter(|_| response.command == Some("rewind"));
        if let (Some(Value::String(text)), Some("copy")) = (data, response.command) {
            self.copy(text);
        } else if let (Some(data), Some(prompt)) = (data, preview) {
            self.ask_rewind(data, prompt);
        } else if let Some((focus, text)) = data.and_then(previewed_compaction) {
            self.note(&text);
            self.question = Some(KeyQuestion::Compact { focus });
        } else if self.offer_list(response) {
            // The list replaces the printed response.
        } else if let Some(note) = response_note(response) {
            self.note(&note);
        }
        // The conversation continues from the state before a prompt, and the user can edit the text of that prompt.
        let text = response.data.as_ref().and_then(|data| data.get("text")?.as_str());
        if let Some(text) = text.filter(|_| matches!(response.command, Some("fork" | "rewind"))) {
            self.return_to_editor(text);
        }
    }
}

/// Returns true if a text consists of a `/` and at most one word.
pub(super) fn is_slash_word(text: &str) -> bool {
    text.strip_prefix('/').is_some_and(|rest| !rest.starts_with('/') && !rest.contains(char::is_whitespace))
}
