//! Messages that the state and its requests share, with their cached encodings.
//!
//! A conversation only grows, so each message is encoded once for each wire format. A request only copies the encoded
//! bytes.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde::{Serialize, Serializer};

use super::{ContentBlock, Message, ProviderMessage};

/// A message of a conversation, shared by the state and its requests.
#[derive(Clone)]
pub struct SharedMessage(Arc<MessageEntry>);

struct MessageEntry {
    message: Message,
    /// The message as user content, if providers do not accept messages of its kind (such as summaries). Requests send
    /// this content in place of the message.
    converted: OnceLock<Vec<ContentBlock>>,
    /// The last encoding of the message. Encodings for earlier wires are not kept, because a thread rarely changes its
    /// wire.
    encoded: Mutex<Option<(WireEncoding, Arc<[u8]>)>>,
    /// The last copy of the message with other call ids, made by [`SharedMessage::renamed`].
    renamed: Mutex<Option<SharedMessage>>,
}

/// A form in which a wire encodes a message. The encoding does not depend on the neighboring messages, so that it can
/// be cached with the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireEncoding {
    Anthropic,
    /// The encoding for the `anthropic` wire, with a cache breakpoint on the last block.
    AnthropicWithBreakpoint,
    OpenaiChat,
    OpenaiResponses,
    Gemini,
    /// Like `Gemini`, but calls that another model made carry a thought signature, because some Gemini models require
    /// one.
    GeminiSigned,
}

impl SharedMessage {
    pub fn new(message: Message) -> Self {
        let (converted, encoded, renamed) = (OnceLock::new(), Mutex::default(), Mutex::default());
        Self(Arc::new(MessageEntry { message, converted, encoded, renamed }))
    }

    /// Returns the message as providers receive it; `None` for a command of the user that is hidden from the model
    /// (`!!`).
    pub fn for_provider(&self) -> Option<ProviderMessage<'_>> {
        Some(match &self.0.message {
            Message::User { content } => ProviderMessage::User { content },
            Message::Assistant { content } => ProviderMessage::Assistant { content },
            Message::ToolResult { call_id, name, content, is_error } => {
                ProviderMessage::ToolResult { call_id, name, content, is_error: *is_error }
            }
            Message::Bash { excluded: true, .. } => return None,
            message @ (Message::Custom { .. }
            | Message::Bash { .. }
            | Message::CompactionSummary { .. }
            | Message::BranchSummary { .. }) => {
                let text = || vec![ContentBlock::Text { text: message.user_text().unwrap_or_default().into() }];
                ProviderMessage::User { content: self.0.converted.get_or_init(text) }
            }
        })
    }

    /// Changes the message. Requests that share the message keep the earlier version.
    pub fn edit(&mut self, edit: impl FnOnce(&mut Message)) {
        let mut message = self.0.message.clone();
        edit(&mut message);
        *self = Self::new(message);
    }

    /// Returns the encoding of the message: the last encoding if it was for the same wire, else the result of `encode`.
    pub fn encoded(&self, encoding: WireEncoding, encode: impl FnOnce(ProviderMessage<'_>) -> Vec<u8>) -> Arc<[u8]> {
        let mut slot = self.0.encoded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, bytes)) = &*slot
            && *known == encoding
        {
            return Arc::clone(bytes);
        }
        let bytes: Arc<[u8]> = self.for_provider().map(encode).unwrap_or_default().into();
        *slot = Some((encoding, Arc::clone(&bytes)));
        bytes
    }

    /// Returns a copy of the message with other call ids. If `is_same` accepts the stored copy, returns this copy.
    /// Otherwise creates a copy with `rename`, stores it and returns it.
    #[must_use]
    pub fn renamed(&self, is_same: impl FnOnce(&Message) -> bool, rename: impl FnOnce(&Message) -> Message) -> Self {
        let mut slot = self.0.renamed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = slot.as_ref().filter(|known| is_same(known)) {
            return known.clone();
        }
        slot.insert(Self::new(rename(&self.0.message))).clone()
    }
}

#[cfg(test)]
impl SharedMessage {
    /// Returns the last encoding of the message; `None` if the message was never encoded. If a copy with replaced call
    /// ids exists (see `renamed`), returns the last encoding of this copy.
    pub fn cached_encoding(&self) -> Option<Arc<[u8]>> {
        let renamed = self.0.renamed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let kept = renamed.as_ref().unwrap_or(self).0.encoded.lock().unwrap_or_else(PoisonError::into_inner).clone();
        kept.map(|(_, bytes)| bytes)
    }
}

impl Deref for SharedMessage {
    type Target = Message;

    fn deref(&self) -> &Message {
        &self.0.message
    }
}

impl From<Message> for SharedMessage {
    fn from(message: Message) -> Self {
        Self::new(message)
    }
}

impl PartialEq for SharedMessage {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.message == other.0.message
    }
}

impl fmt::Debug for SharedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.message.fmt(f)
    }
}

impl Serialize for SharedMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.message.serialize(serializer)
    }
}
