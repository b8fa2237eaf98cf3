//! The writer of `live.jsonl`, from which other processes read a streaming reply. Pieces are buffered briefly and
//! written together. Pieces beyond the buffer's size are dropped and counted. The file is removed when the attempt
//! ends.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use crate::exchange::Delta;
use crate::store::{Disk, LiveWriter};
use crate::thread_id::ThreadId;

/// A line of `live.jsonl`, with a piece of the streaming reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveLine {
    pub turn: u64,
    pub attempt: u32,
    #[serde(flatten)]
    pub piece: LivePiece,
    /// Number of pieces that were dropped since the previous write to the file. Only the first line of a write has this
    /// number.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LivePiece {
    Text { text: String },
    Thinking { text: String },
    ToolCall { id: String, name: String },
    ToolInput { id: String, text: String },
}

impl From<&Delta> for LivePiece {
    fn from(delta: &Delta) -> Self {
        match delta {
            Delta::Text(text) => Self::Text { text: text.clone() },
            Delta::Thinking(text) => Self::Thinking { text: text.clone() },
            Delta::ToolCallStarted { id, name } => Self::ToolCall { id: id.clone(), name: name.clone() },
            Delta::ToolCallInput { id, fragment } => Self::ToolInput { id: id.clone(), text: fragment.clone() },
        }
    }
}

/// Returns the size of a delta in bytes, as counted towards `MAX_PIECE_BYTES`.
fn delta_bytes(delta: &Delta) -> usize {
    match delta {
        Delta::Text(text) | Delta::Thinking(text) => text.len(),
        Delta::ToolCallStarted { .. } => 64,
        Delta::ToolCallInput { fragment, .. } => fragment.len(),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl LiveLine {
    /// Returns the piece of the reply's text that the line holds; `None` if the line holds thinking or a tool call.
    pub fn text(&self) -> Option<&str> {
        if let LivePiece::Text { text } = &self.piece { Some(text) } else { None }
    }
}

/// Time between two writes to `live.jsonl`.
const WRITE_INTERVAL: Duration = Duration::from_millis(60);
/// Maximum number of buffered pieces. `MAX_PIECE_BYTES` bounds their total size.
const MAX_PIECES: usize = 4096;
const MAX_PIECE_BYTES: usize = 512 * 1024;

/// A writer of the file `live.jsonl`, for the streamed pieces of one attempt.
pub(crate) struct AttemptStream {
    shared: Arc<AttemptStreamState>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

struct AttemptStreamState {
    thread: ThreadId,
    turn: u64,
    attempt: u32,
    gathered: Mutex<PieceBuffer>,
    file: Mutex<LiveFile>,
}

/// The file `live.jsonl`, locked during a write.
struct LiveFile {
    live: LiveWriter,
    /// True once the attempt has ended. Nothing is written to the file after that.
    is_closed: bool,
}

#[derive(Default)]
struct PieceBuffer {
    pieces: Vec<LivePiece>,
    bytes: usize,
    dropped: u64,
    /// True if the writer task has already taken pieces of this attempt to write them.
    is_started: bool,
}

impl AttemptStream {
    pub fn new(disk: Arc<dyn Disk>, thread: ThreadId, turn: u64, attempt: u32) -> Self {
        Self { shared: Arc::new(AttemptStreamState::new(disk, thread, turn, attempt)), writer: Mutex::default() }
    }

    /// Buffers a delta. Does not wait for I/O.
    pub fn push(&self, delta: &Delta) {
        self.shared.buffer(delta);
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.is_none() {
            *writer = Some(tokio::spawn(write(Arc::clone(&self.shared))));
        }
    }

    /// Ends the stream of the attempt and removes the file `live.jsonl`, because the transcript contains the result.
    pub async fn end(self) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(writer) = writer else { return };
        writer.abort();
        if !self.shared.close() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        // Taking the lock waits for a write in progress, so it happens in a blocking task.
        let cut = tokio::task::spawn_blocking(move || {
            let mut file = shared.file();
            file.is_closed = true;
            file.live.clear()
        });
        if let Ok(Err(error)) = cut.await {
            tracing::warn!(thread = %self.shared.thread, %error, "live.jsonl stays");
        }
    }
}

impl AttemptStreamState {
    fn new(disk: Arc<dyn Disk>, thread: ThreadId, turn: u64, attempt: u32) -> Self {
        let file = Mutex::new(LiveFile { live: LiveWriter::new(disk, &thread), is_closed: false });
        Self { thread, turn, attempt, gathered: Mutex::default(), file }
    }

    fn file(&self) -> MutexGuard<'_, LiveFile> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Discards the buffered pieces. Returns true if a write of earlier pieces has started, so that the file
    /// `live.jsonl` may exist.
    fn close(&self) -> bool {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        gathered.pieces.clear();
        gathered.is_started
    }

    fn buffer(&self, delta: &Delta) {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        let gathered = &mut *gathered;
        let (piece, size) = (LivePiece::from(delta), delta_bytes(delta));
        if gathered.bytes + size > MAX_PIECE_BYTES || gathered.pieces.len() >= MAX_PIECES {
            gathered.dropped += 1;
            return;
        }
        gathered.bytes += size;
        match (gathered.pieces.last_mut(), piece) {
            (Some(LivePiece::Text { text }), LivePiece::Text { text: more })
            | (Some(LivePiece::Thinking { text }), LivePiece::Thinking { text: more }) => text.push_str(&more),
            (Some(LivePiece::ToolInput { id, text }), LivePiece::ToolInput { id: same, text: more }) if *id == same => {
                text.push_str(&more);
            }
            (_, piece) => gathered.pieces.push(piece),
        }
    }

    fn take(&self) -> Vec<LiveLine> {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        let is_started = gathered.is_started || !gathered.pieces.is_empty();
        let PieceBuffer { pieces, dropped, .. } =
            std::mem::replace(&mut *gathered, PieceBuffer { is_started, ..PieceBuffer::default() });
        drop(gathered);
        let (turn, attempt) = (self.turn, self.attempt);
        let mut dropped = Some(dropped);
        let line = |piece| LiveLine { turn, attempt, piece, dropped: dropped.take().unwrap_or(0) };
        pieces.into_iter().map(line).collect()
    }
}

/// Appends the buffered pieces to `live.jsonl` once per `WRITE_INTERVAL`, until the task is aborted.
async fn write(shared: Arc<AttemptStreamState>) {
    loop {
        tokio::time::sleep(WRITE_INTERVAL).await;
        let pieces = shared.take();
        if pieces.is_empty() {
            continue;
        }
        let of = Arc::clone(&shared);
        let append = move || {
            let mut file = of.file();
            if file.is_closed { Ok(()) } else { file.live.append(&pieces) }
        };
        match tokio::task::spawn_blocking(append).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(thread = %shared.thread, %error, "live.jsonl cannot be written"),
            Err(error) => tracing::warn!(thread = %shared.thread, %error, "live.jsonl was not written"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::store::disk::SimulatedDisk;

    fn shared() -> AttemptStreamState {
        AttemptStreamState::new(Arc::new(SimulatedDisk::new()), ThreadId::parse("a-1").unwrap(), 1, 0)
    }

    #[test]
    fn adjacent_pieces_of_one_kind_become_one_line() {
        let shared = shared();
        for text in ["a", "b"] {
            shared.buffer(&Delta::Text(text.into()));
        }
        shared.buffer(&Delta::Thinking("c".into()));
        shared.buffer(&Delta::Text("d".into()));
        let lines = shared.take();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines.iter().filter_map(LiveLine::text).collect::<Vec<_>>(), ["ab", "d"]);
        let line = serde_json::to_string(&lines.first()).unwrap();
        assert_eq!(line, "{\"turn\":1,\"attempt\":0,\"kind\":\"text\",\"text\":\"ab\"}");
    }

    #[test]
    fn pieces_beyond_the_buffer_are_dropped_and_counted() {
        let shared = shared();
        let long = "x".repeat(100_000);
        for _ in 0..8 {
            shared.buffer(&Delta::Text(long.clone()));
        }
        let lines = shared.take();
        assert_eq!(lines.iter().map(|line| line.dropped).sum::<u64>(), 3);
        shared.buffer(&Delta::Text("again".into()));
        assert_eq!(shared.take().iter().map(|line| line.dropped).sum::<u64>(), 0);
    }
}
