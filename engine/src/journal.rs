//! The driver's writer of a transcript. Events are buffered until an effect is performed, and then written together.
//! Before an effect with side effects, the events are also synced.

use std::io;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::error::DriveError;
use crate::event::{Durability, Event, EventBody, event_row};
use crate::live::{EventSink, StreamEvent};
use crate::signer::{CheckpointPosition, Signer};
use crate::store::event_fields::{FieldVisitor, visit_fields};
use crate::store::spilled::SPILLED_KEY;
use crate::store::transcript::{ChainHash, LineSigner};
use crate::store::{ObjectId, Objects, StoreError, Transcript};
use crate::thread_count::ThreadCount;
use crate::thread_id::ThreadId;

#[derive(Debug)]
pub struct Journal {
    thread: ThreadId,
    /// The transcript of the thread; `None` only while a blocking task has it.
    transcript: Option<Transcript>,
    objects: Arc<Objects>,
    signer: Arc<Signer>,
    sink: Arc<EventSink>,
    thread_count: ThreadCount,
    /// Events that are folded but not written yet.
    pending: Vec<Arc<Event>>,
    /// The number of the next event.
    next: u64,
    synced: u64,
    /// True if an event has to be synced before the next side effect.
    dirty: bool,
}

impl Journal {
    pub fn new(
        thread: ThreadId,
        transcript: Transcript,
        objects: Arc<Objects>,
        signer: Arc<Signer>,
        sink: Arc<EventSink>,
        thread_count: ThreadCount,
    ) -> Self {
        let (next, synced) = (transcript.count(), transcript.barrier());
        Self {
            thread,
            transcript: Some(transcript),
            objects,
            signer,
            sink,
            thread_count,
            pending: Vec::new(),
            next,
            synced,
            // If lines on disk are not synced yet, the next barrier syncs them.
            dirty: synced < next,
        }
    }

    /// Adds an event, to be written with the next [`Journal::flush`]. `ts` is in milliseconds since 1970.
    pub fn push(&mut self, ts: i64, body: EventBody) -> Arc<Event> {
        let event = Arc::new(Event { seq: self.next, ts, body });
        self.next += 1;
        self.dirty |= event_row(event.body.kind()).durability == Durability::Barrier;
        self.pending.push(Arc::clone(&event));
        event
    }

    /// Returns the time of the buffered events; `None` if no event is buffered. Further events get the same time until
    /// the buffer is written.
    pub fn pending_time(&self) -> Option<i64> {
        self.pending.last().map(|event| event.ts)
    }

    /// Returns the number of written events and the hash of the last written event; `None` while a blocking task has
    /// the transcript.
    pub fn head(&self) -> Option<(u64, ChainHash)> {
        self.transcript.as_ref().map(|transcript| (transcript.count(), transcript.head()))
    }

    /// Returns the number of events known to be on disk.
    pub fn synced(&self) -> u64 {
        self.synced
    }

    /// Returns true if every event so far is on disk or can be derived again after a crash.
    pub fn is_durable(&self) -> bool {
        !self.dirty
    }

    /// Writes the buffered events. With `barrier`, also syncs the transcript if an event since the last sync must
    /// survive a power failure.
    pub async fn flush(&mut self, barrier: bool) -> Result<(), DriveError> {
        let sync = barrier && self.dirty;
        if self.pending.is_empty() && !sync {
            return Ok(());
        }
        let Some(mut transcript) = self.transcript.take() else {
            return Err(DriveError::Lost("the transcript".into()));
        };
        let (mut events, objects) = (std::mem::take(&mut self.pending), Arc::clone(&self.objects));
        let (thread, signer) = (self.thread.clone(), Arc::clone(&self.signer));
        if !sync {
            // Without a sync, the write only copies to the page cache. This is faster than passing the work to a
            // blocking task.
            let written = write(&mut transcript, &objects, (&thread, &signer), &mut events);
            return self.written(transcript, events, written);
        }
        let work = move || {
            let written = write(&mut transcript, &objects, (&thread, &signer), &mut events);
            let written = written.and_then(|()| transcript.sync());
            (transcript, events, written)
        };
        let (transcript, events, written) = self.thread_count.run_blocking(work).await?;
        self.written(transcript, events, written)?;
        self.dirty = false;
        Ok(())
    }

    /// Takes back the transcript after the write of `events`. If the write succeeded, notifies the watchers of the
    /// events.
    fn written(
        &mut self,
        transcript: Transcript,
        events: Vec<Arc<Event>>,
        written: Result<(), StoreError>,
    ) -> Result<(), DriveError> {
        self.synced = transcript.barrier();
        self.transcript = Some(transcript);
        written?;
        for event in events {
            tracing::debug!(thread = %self.thread, seq = event.seq, event = event.body.reader_name(), "event written");
            self.sink.emit(StreamEvent::Event { thread: self.thread.clone(), event });
        }
        Ok(())
    }
}

/// Appends events with one write. The last line gets a seal, because recovery cuts all lines after the last seal.
fn write(
    transcript: &mut Transcript,
    objects: &Objects,
    signs: (&ThreadId, &Signer),
    events: &mut [Arc<Event>],
) -> Result<(), StoreError> {
    if let Err(error) = stage(transcript, objects, signs, events) {
        transcript.discard_staged();
        return Err(error);
    }
    transcript.write_staged()
}

/// Stages events for the next write, in groups of consecutive events with equal times. A checkpoint starts a new group,
/// because its signature needs the hashes of all lines before it.
fn stage(
    transcript: &mut Transcript,
    objects: &Objects,
    (thread, signer): (&ThreadId, &Signer),
    events: &mut [Arc<Event>],
) -> Result<(), StoreError> {
    let follows = |a: &Arc<Event>, b: &Arc<Event>| a.ts == b.ts && !matches!(b.body, EventBody::Checkpoint(_));
    let seal = |seq: u64, link: ChainHash| signer.seal_line(thread, seq, link);
    let last = events.last().map(|event| event.seq);
    for moment in events.chunk_by_mut(follows) {
        let ends = moment.last().map(|event| event.seq) == last;
        let line_signer: Option<LineSigner<'_>> = if ends { Some(&seal) } else { None };
        let Some(first) = moment.first_mut() else { continue };
        let ts = first.ts;
        if matches!(first.body, EventBody::Checkpoint(_))
            && let Event { seq, body: EventBody::Checkpoint(checkpoint), .. } = Arc::make_mut(first)
        {
            let place = CheckpointPosition { thread, turn: checkpoint.turn, seq: *seq, before: transcript.head() };
            signer.key_name().clone_into(&mut checkpoint.key_id);
            checkpoint.signature = signer.sign_checkpoint(&place);
        }
        let bodies: Vec<&EventBody> = moment.iter().map(|event| &event.body).collect();
        match transcript.stage(&bodies, ts, line_signer) {
            Ok(()) => {}
            Err(StoreError::LineTooLong { limit, .. }) => {
                let lines: Result<Vec<_>, _> =
                    moment.iter().map(|event| spill_large_fields(event, limit, objects)).collect();
                transcript.stage(&lines?, ts, line_signer)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Maximum bytes of a transcript line besides the fields of the event: number, time, hash and signature.
const MAX_ENVELOPE_BYTES: usize = 512;

/// Returns the fields of an event for a line of the transcript. Stores the largest fields as objects until the line has
/// at most `limit` bytes. A field that is stored is never copied, because a reply can have many megabytes.
fn spill_large_fields(event: &Event, limit: usize, objects: &Objects) -> Result<Map<String, Value>, StoreError> {
    let too_long = |bytes| StoreError::LineTooLong { bytes, limit };
    let mut measured = FieldSizes::default();
    visit_fields(&event.body, &mut measured).map_err(|_| too_long(0))?;
    let FieldSizes(mut sizes) = measured;
    sizes.sort();
    let mut total: usize = sizes.iter().map(|(size, key)| size + key.len() + 4).sum::<usize>() + MAX_ENVELOPE_BYTES;
    let mut spilled = Map::new();
    while total > limit {
        let Some((size, key)) = sizes.pop() else { return Err(too_long(total)) };
        let mut stored = StoredField { objects, name: &key, result: Err(too_long(total)) };
        visit_fields(&event.body, &mut stored).map_err(|_| too_long(total))?;
        let id = stored.result?;
        spilled.insert(key, json!({"sha256": id.as_str(), "bytes": size}));
        total = total.saturating_sub(size) + 128;
    }
    let mut kept = KeptFields { spilled: &spilled, fields: Map::new() };
    visit_fields(&event.body, &mut kept).map_err(|_| too_long(total))?;
    let mut fields = kept.fields;
    if !spilled.is_empty() {
        fields.insert(SPILLED_KEY.into(), Value::Object(spilled));
    }
    Ok(fields)
}

/// The size of each field of an event, in bytes of JSON, and the name of the field.
#[derive(Default)]
struct FieldSizes(Vec<(usize, String)>);

impl FieldVisitor for FieldSizes {
    fn visit_field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), serde_json::Error> {
        self.0.push((json_bytes(value)?, name.to_owned()));
        Ok(())
    }
}

/// A visitor of an event's fields that writes the value of the field `name` to the object store.
struct StoredField<'a> {
    objects: &'a Objects,
    name: &'a str,
    result: Result<ObjectId, StoreError>,
}

impl FieldVisitor for StoredField<'_> {
    fn visit_field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), serde_json::Error> {
        if name == self.name {
            self.result = self.objects.put_json(value);
        }
        Ok(())
    }
}

/// Collects the fields of an event that stay in its transcript line, because they are not stored as objects.
struct KeptFields<'a> {
    spilled: &'a Map<String, Value>,
    fields: Map<String, Value>,
}

impl FieldVisitor for KeptFields<'_> {
    fn visit_field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), serde_json::Error> {
        if !self.spilled.contains_key(name) {
            self.fields.insert(name.to_owned(), serde_json::to_value(value)?);
        }
        Ok(())
    }
}

/// Returns the number of bytes of a value as JSON text.
fn json_bytes<T: Serialize + ?Sized>(value: &T) -> Result<usize, serde_json::Error> {
    struct Counter(usize);
    impl io::Write for Counter {
        fn write(&mut self, part: &[u8]) -> io::Result<usize> {
            self.0 += part.len();
            Ok(part.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, value)?;
    Ok(counter.0)
}
