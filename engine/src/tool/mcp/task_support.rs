//! The lists of tools of a server, before `rmcp` parses them. `rmcp` drops the field `execution.taskSupport` of a tool
//! (protocol 2025-11-25), so it is copied to the metadata of the tool. `rmcp` refuses the whole list if one schema is
//! not an object, so such a schema is replaced by one that makes only its tool unusable.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use rmcp::model::Tool;
use rye_compiler::semantics::value::Type;
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncRead, BufReader, ReadBuf};

/// The key under which a tool's field `execution.taskSupport` is copied to its metadata.
const META_KEY: &str = "rye/taskSupport";
/// Maximum size in bytes of a message from which the field `execution.taskSupport` is copied.
pub(super) const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// Returns true if the server runs the tool only as a task.
pub(super) fn requires_task(tool: &Tool) -> bool {
    tool.meta.as_ref().and_then(|meta| meta.get(META_KEY)).is_some_and(|support| support == "required")
}

/// Copies the field `execution.taskSupport` of each tool in a list of tools to the metadata of the tool, and replaces
/// schemas that are not objects. `message` is the server's message with the list. Returns the changed message; `None`
/// if nothing has to be changed.
pub(super) fn adapt_tool_list(message: &[u8]) -> Option<Vec<u8>> {
    memchr::memmem::find(message, b"\"tools\"")?;
    let mut value: Value = serde_json::from_slice(message).ok()?;
    let mut is_changed = false;
    for tool in value.pointer_mut("/result/tools")?.as_array_mut()? {
        let support = tool.pointer("/execution/taskSupport").cloned();
        let Some(tool) = tool.as_object_mut() else { continue };
        let schema = tool.get("inputSchema").unwrap_or(&Value::Null);
        if !schema.is_object() {
            let replaced = json!({ "type": Type::of(schema).name() });
            tool.insert("inputSchema".to_owned(), replaced);
            is_changed = true;
        }
        let metadata = support.is_some().then(|| tool.entry("_meta").or_insert_with(|| json!({})));
        if let (Some(metadata), Some(support)) = (metadata.and_then(Value::as_object_mut), support) {
            metadata.insert(META_KEY.to_owned(), support);
            is_changed = true;
        }
    }
    if !is_changed {
        return None;
    }
    let mut copied = value.to_string().into_bytes();
    copied.push(b'\n');
    Some(copied)
}

/// Maximum number of characters that an error quotes of a line that is not a message.
const MAX_SHOWN_CHARS: usize = 100;

/// The last dropped message of a server: the time, and the reason. The reader of the messages and the calls share it.
#[derive(Debug, Clone, Default)]
pub(super) struct DroppedMessage(Arc<Mutex<Option<(Instant, String)>>>);

impl DroppedMessage {
    fn record(&self, reason: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), reason));
    }

    /// Returns the reason why a message was dropped after `start`, as the end of an error message; empty if no message
    /// was dropped.
    pub fn cause_since(&self, start: Instant) -> String {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().filter(|(at, _)| *at >= start).map(|(_, reason)| format!("; {reason}")).unwrap_or_default()
    }
}

/// A reader of a server's messages, one on each line. The reader changes lists of tools as [`adapt_tool_list`] does.
pub(super) struct TaskSupportReader<R> {
    inner: BufReader<R>,
    line: Vec<u8>,
    /// Number of bytes of `line` that the reader has already returned; `None` until `line` is complete.
    returned: Option<usize>,
    /// True if the start of the current message was passed on already, because the message is too long.
    is_too_long: bool,
    dropped: DroppedMessage,
}

impl<R: AsyncRead> TaskSupportReader<R> {
    pub fn new(inner: R, dropped: DroppedMessage) -> Self {
        Self { inner: BufReader::new(inner), line: Vec::new(), returned: None, is_too_long: false, dropped }
    }

    /// Records the message that ends with the bytes in `line` if `rmcp` drops it.
    fn record_dropped(&mut self, is_complete: bool) {
        if self.is_too_long || self.line.len() >= MAX_MESSAGE_BYTES {
            self.dropped
                .record(format!("it sent a message of more than {} MiB, which was dropped", MAX_MESSAGE_BYTES >> 20));
        } else if is_complete && serde_json::from_slice::<serde::de::IgnoredAny>(&self.line).is_err() {
            let line = String::from_utf8_lossy(&self.line);
            let shown: String = line.trim().chars().take(MAX_SHOWN_CHARS).collect();
            if !shown.is_empty() {
                self.dropped.record(format!("it sent a line that is not JSON: {}", shown.escape_debug()));
            }
        }
        self.is_too_long = !is_complete;
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for TaskSupportReader<R> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if let Some(from) = this.returned {
                let rest = this.line.get(from..).unwrap_or_default();
                let part = rest.get(..buffer.remaining()).unwrap_or(rest);
                if !part.is_empty() {
                    buffer.put_slice(part);
                    this.returned = Some(from + part.len());
                    return Poll::Ready(Ok(()));
                }
                this.line.clear();
                this.returned = None;
            }
            let available = ready!(Pin::new(&mut this.inner).poll_fill_buf(context))?;
            let end = available.iter().position(|byte| *byte == b'\n');
            let count = end.map_or(available.len(), |end| end + 1);
            this.line.extend(available.iter().take(count));
            Pin::new(&mut this.inner).consume(count);
            if count == 0 && this.line.is_empty() {
                return Poll::Ready(Ok(()));
            }
            if end.is_some()
                && let Some(copied) = adapt_tool_list(&this.line)
            {
                this.line = copied;
            }
            // A message that is too long, or that does not end with a newline, is passed on unchanged.
            if end.is_some() || count == 0 || this.line.len() >= MAX_MESSAGE_BYTES {
                this.record_dropped(end.is_some());
                this.returned = Some(0);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    async fn read(text: &str) -> String {
        let mut read = String::new();
        TaskSupportReader::new(text.as_bytes(), DroppedMessage::default()).read_to_string(&mut read).await.unwrap();
        read
    }

    #[tokio::test]
    async fn field_is_copied_and_every_other_byte_is_passed_on() {
        let plain = "{\"result\": {\"tools\": []}}\n\n{\"taskSupport\": 1}\n{\"x\": \"\\\"taskSupport\\\"\"}\nno JSON \"taskSupport\"\nend";
        assert_eq!(read(plain).await, plain);
        let listed = r#"{"id":1,"result":{"tools":[{"name":"a","inputSchema":{},"execution":{"taskSupport":"required"}},{"name":"b","inputSchema":{},"_meta":{"k":1},"execution":{"taskSupport":"optional"}},{"name":"c","inputSchema":{}}]}}"#;
        let text = read(&format!("{listed}\nnext\n")).await;
        let (first, rest) = text.split_once('\n').unwrap();
        let value: Value = serde_json::from_str(first).unwrap();
        let support = |at: usize| value.pointer(&format!("/result/tools/{at}/_meta")).cloned();
        assert_eq!(
            [support(0), support(1), support(2)],
            [Some(json!({META_KEY: "required"})), Some(json!({"k": 1, META_KEY: "optional"})), None]
        );
        assert_eq!(rest, "next\n");
    }

    #[tokio::test]
    async fn schema_that_is_no_object_is_replaced_and_the_others_are_kept() {
        let listed = r#"{"id":1,"result":{"tools":[{"name":"a","inputSchema":true},{"name":"b","inputSchema":[]},{"name":"c","inputSchema":null},{"name":"d"},{"name":"e","inputSchema":{"type":"object"}}]}}"#;
        let value: Value = serde_json::from_str(&read(&format!("{listed}\n")).await).unwrap();
        let tools: Vec<Tool> = serde_json::from_value(value["result"]["tools"].clone()).unwrap();
        let types: Vec<&Value> = tools.iter().map(|tool| &tool.input_schema["type"]).collect();
        assert_eq!(types, ["boolean", "array", "null", "null", "object"]);
    }
}
