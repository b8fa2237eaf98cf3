//! Events whose largest fields are stored as objects, because a line of the transcript has a maximum length.

use serde_json::Value;

use super::{ObjectId, Objects, StoreError, TranscriptRecord};
use crate::event::Event;
use crate::thread_id::ThreadId;

/// The key under which a transcript line lists the fields of its event that are stored as objects, because they are too
/// large for the line.
pub(crate) const SPILLED_KEY: &str = "spilled";

/// Returns the event of a line, including the fields that are stored as objects.
pub(crate) fn restore_event(
    record: &TranscriptRecord,
    thread: &ThreadId,
    objects: &Objects,
) -> Result<Event, StoreError> {
    take_event(&mut record.clone(), thread, objects)
}

/// Variant of [`restore_event`] that moves the fields out of the record and leaves the body of the record empty. The
/// fields of a long transcript are therefore not in memory twice.
pub(crate) fn take_event(
    record: &mut TranscriptRecord,
    thread: &ThreadId,
    objects: &Objects,
) -> Result<Event, StoreError> {
    if !record.body.contains_key(SPILLED_KEY) {
        return record.take_event(thread);
    }
    let spilled = record.body.shift_remove(SPILLED_KEY).unwrap_or_default();
    for (key, place) in spilled.as_object().into_iter().flatten() {
        let id = ObjectId::parse(place.get("sha256").and_then(Value::as_str).unwrap_or_default())?;
        let bytes = objects.get(&id)?;
        let value = serde_json::from_slice(&bytes).map_err(|_| StoreError::Altered {
            path: id.as_str().into(),
            reason: "its content is not the JSON value of an event field".into(),
        })?;
        record.body.insert(key.clone(), value);
    }
    record.take_event(thread)
}
