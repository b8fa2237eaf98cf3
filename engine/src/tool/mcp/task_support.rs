//! The field `execution.taskSupport` of listed tools (protocol 2025-11-25). `rmcp` drops the field, so a reader copies
//! it to the metadata of the tool before `rmcp` parses the message.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rmcp::model::Tool;
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncRead, BufReader, ReadBuf};

/// The key under which a tool's field `execution.taskSupport` is copied to its metadata.
const META_KEY: &str = "rye/taskSupport";
/// Maximum bytes of a message in which the field `execution.taskSupport` is searched.
pub(super) const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// Returns true if the server runs the tool only as a task.
pub(super) fn requires_task(tool: &Tool) -> bool {
    tool.meta.as_ref().and_then(|meta| meta.get(META_KEY)).is_some_and(|support| support == "required")
}

/// Copies the field `execution.taskSupport` of each tool in a list of tools to the metadata of the tool. `message` is
/// the server's message with the list. Returns the changed message; `None` if the message contains no such field.
pub(super) fn copy_task_support(message: &[u8]) -> Option<Vec<u8>> {
    const FIELD: &[u8] = b"\"taskSupport\"";
    if !message.windows(FIELD.len()).any(|part| part == FIELD) {
        return None;
    }
    let mut value: Value = serde_json::from_slice(message).ok()?;
    for tool in value.pointer_mut("/result/tools")?.as_array_mut()? {
        let Some(support) = tool.pointer("/execution/taskSupport").cloned() else { continue };
        let metadata = tool.as_object_mut().map(|tool| tool.entry("_meta").or_insert_with(|| json!({})));
        if let Some(metadata) = metadata.and_then(Value::as_object_mut) {
            metadata.insert(META_KEY.to_owned(), support);
        }
    }
    let mut copied = value.to_string().into_bytes();
    copied.push(b'\n');
    Some(copied)
}

/// A reader of a server's messages, one on each line. It copies the field `execution.taskSupport` of each listed tool
/// to the metadata of the tool.
pub(super) struct TaskSupportReader<R> {
    inner: BufReader<R>,
    line: Vec<u8>,
    /// Number of bytes of `line` that the reader has already returned; `None` until `line` is complete.
    returned: Option<usize>,
}

impl<R: AsyncRead> TaskSupportReader<R> {
    pub fn new(inner: R) -> Self {
        Self { inner: BufReader::new(inner), line: Vec::new(), returned: None }
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
                && let Some(copied) = copy_task_support(&this.line)
            {
                this.line = copied;
            }
            // A message that is too long, or that does not end with a newline, is passed on unchanged.
            if end.is_some() || count == 0 || this.line.len() >= MAX_MESSAGE_BYTES {
                this.returned = Some(0);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    async fn read(text: &str) -> String {
        let mut read = String::new();
        TaskSupportReader::new(text.as_bytes()).read_to_string(&mut read).await.unwrap();
        read
    }

    #[tokio::test]
    async fn field_is_copied_and_every_other_byte_is_passed_on() {
        let plain = "{\"result\": {\"tools\": []}}\n\n{\"taskSupport\": 1}\n{\"x\": \"\\\"taskSupport\\\"\"}\nno JSON \"taskSupport\"\nend";
        assert_eq!(read(plain).await, plain);
        let listed = r#"{"id":1,"result":{"tools":[{"name":"a","execution":{"taskSupport":"required"}},{"name":"b","_meta":{"k":1},"execution":{"taskSupport":"optional"}},{"name":"c"}]}}"#;
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
}
