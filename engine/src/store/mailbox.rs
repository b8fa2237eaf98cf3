//! Control messages between processes: one file per message in the thread's `inbox/`, written by any process and
//! consumed by the thread's owner (`engine.md` 4). The owner first records the event `mail{id}` and then removes the
//! file. After a crash in between, the message appears again, and the fold recognizes its id.

use std::io;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::disk::Disk;
use super::uuid::new_uuid_v7;
use super::{StoreError, layout};
use crate::thread_id::ThreadId;

/// Id of a message: a time-ordered UUID, so that ids sort in the order of sending.
pub type MessageId = String;

/// A message in an inbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MailboxMessage {
    pub id: MessageId,
    pub body: Value,
}

/// Writes a message into a thread's inbox, durably. `now` is in milliseconds since 1970.
pub fn send(disk: &dyn Disk, thread: &ThreadId, body: &Value, now: i64) -> Result<MessageId, StoreError> {
    let folder = layout::thread_folder(thread);
    if !disk.exists(&folder).map_err(StoreError::io("access", &folder))? {
        return Err(StoreError::UnknownThread { thread: thread.to_string() });
    }
    let inbox = layout::inbox(thread);
    match disk.create_dir(&inbox) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(StoreError::io("create the folder", &inbox)(error));
        }
        Ok(()) | Err(_) => {}
    }
    // The name is synced even if the inbox exists: its creator may have died before the sync.
    disk.sync_dir(&folder).map_err(StoreError::io("sync", &folder))?;
    let id = new_uuid_v7(now)?;
    let path = inbox.join(format!("{id}.json"));
    let temporary = super::disk::temporary_beside(&path);
    let bytes = serde_json::to_vec(body)
        .map_err(|error| StoreError::Altered { path: path.clone(), reason: error.to_string() })?;
    disk.create(&temporary, &bytes)
        .and_then(|()| disk.sync(&temporary))
        .and_then(|()| disk.rename(&temporary, &path))
        .and_then(|()| disk.sync_dir(&inbox))
        .map_err(StoreError::io("write", &path))?;
    Ok(id)
}

/// Returns the messages of a thread, oldest first. A message that is not JSON is returned as its text, so that the
/// owner can record and remove it.
pub fn list(disk: &dyn Disk, thread: &ThreadId) -> Result<Vec<MailboxMessage>, StoreError> {
    let inbox = layout::inbox(thread);
    let entries = match disk.list(&inbox) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.map_err(StoreError::io("list", &inbox))?,
    };
    let mut mail = Vec::new();
    for entry in entries {
        let Some(id) = entry.name.strip_suffix(".json").filter(|id| !id.starts_with('.') && !entry.is_dir) else {
            continue;
        };
        let path = inbox.join(&entry.name);
        let bytes = match disk.read(&path) {
            // The message was consumed after the folder was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            read => read.map_err(StoreError::io("read", &path))?,
        };
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        mail.push(MailboxMessage { id: id.to_string(), body });
    }
    Ok(mail)
}

/// Returns true if the message is still in the thread's inbox, so that its record may be missing.
pub fn is_waiting(disk: &dyn Disk, thread: &ThreadId, id: &str) -> Result<bool, StoreError> {
    let path = layout::inbox(thread).join(format!("{id}.json"));
    disk.exists(&path).map_err(StoreError::io("access", &path))
}

/// Removes a message from the thread's inbox. The event that records the message must be synced before. A missing
/// message is not an error.
pub fn consume(disk: &dyn Disk, thread: &ThreadId, id: &str) -> Result<(), StoreError> {
    if id.contains(['/', '\\', '\0']) {
        return Err(StoreError::InvalidId { reason: format!("`{}` is not a message id", id.escape_debug()) });
    }
    let path = layout::inbox(thread).join(format!("{id}.json"));
    match disk.remove(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io("remove", &path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests;
