//! The typed lines that a session had not handled when it ended.

use rye_engine::control::ControlSender;

/// The lines of a session whose effect is not known yet.
#[derive(Debug, Default)]
pub struct UnsentLines {
    /// The line that is being handled.
    current: Option<String>,
    /// Ids and texts of the messages that were sent to the session, oldest first.
    sent: Vec<(String, String)>,
}

impl UnsentLines {
    /// Records that the session starts to handle a line.
    pub fn start(&mut self, line: &str) {
        self.current = Some(line.to_owned());
    }

    /// Records that the current line is handled. `message` is the id of the message that the line has sent; `None` if
    /// the line has sent none.
    pub fn finish(&mut self, message: Option<String>, control: &ControlSender) {
        self.sent.retain(|(id, _)| control.is_waiting(id));
        self.sent.extend(message.zip(self.current.take()));
    }

    /// Returns the lines that the session has neither handled nor sent to the model, oldest first.
    pub fn list(&self, control: &ControlSender) -> Vec<String> {
        let waiting = self.sent.iter().filter(|(id, _)| control.is_waiting(id)).map(|(_, text)| text);
        waiting.chain(&self.current).cloned().collect()
    }
}
