//! Control messages between processes: one file per message in the thread's `inbox/`, written by any process and
//! consumed by the thread's owner (`engine.md` 4). The owner first records the event `mail{id}` and then removes the
//! file. After a crash in between, the message appears again, and the fold recognizes its id.

use std::io;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::disk::Disk;
use super::uuid::new_uuid_v7;
use super::{StoreError, layout};
use crate::thread_id::ThreadId;

/// Maximum size of a message, in bytes.
const MAX_MESSAGE_BYTES: usize = 16 << 20;

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
        Err(_) if !is_folder(disk, thread)? => {
            // A link or a file in the place of the folder would keep every message from the thread.
            disk.remove(&inbox).map_err(StoreError::io("remove", &inbox))?;
            disk.create_dir(&inbox).map_err(StoreError::io("create the folder", &inbox))?;
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

/// Returns the messages of a thread, oldest first. A file that cannot be read as a message, such as a link, a pipe or a
/// file above `MAX_MESSAGE_BYTES`, is returned as a message of the kind `unreadable`, so that the owner can record and
/// remove the file. If the inbox is not a folder, logs a warning and returns no messages.
pub fn list(disk: &dyn Disk, thread: &ThreadId) -> Result<Vec<MailboxMessage>, StoreError> {
    let inbox = layout::inbox(thread);
    let entries = match disk.list(&inbox) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) if is_lasting(&error) => {
            tracing::warn!(%thread, %error, "the mailbox is not a folder and is ignored");
            return Ok(Vec::new());
        }
        listed => listed.map_err(StoreError::io("list", &inbox))?,
    };
    // The files behind a link are not messages, and consuming them would delete them.
    if !entries.is_empty() && !is_folder(disk, thread)? {
        tracing::warn!(%thread, "the mailbox is a link and is ignored");
        return Ok(Vec::new());
    }
    let mut mail = Vec::new();
    for entry in entries {
        let Some(id) = entry.name.strip_suffix(".json").filter(|id| !id.starts_with('.') && !entry.is_dir) else {
            continue;
        };
        let path = inbox.join(&entry.name);
        let body = match disk.read_range(&path, 0, MAX_MESSAGE_BYTES + 1) {
            Ok(bytes) if bytes.len() > MAX_MESSAGE_BYTES => {
                unreadable(&format!("the file is larger than {} MiB", MAX_MESSAGE_BYTES >> 20))
            }
            Ok(bytes) => serde_json::from_slice(&bytes)
                .unwrap_or_else(|error| unreadable(&format!("the file is not JSON: {error}"))),
            // The message was consumed after the folder was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) if is_lasting(&error) => unreadable(&format!("the file cannot be read: {error}")),
            Err(error) => {
                tracing::warn!(%thread, %error, "the control message `{id}` cannot be read now");
                continue;
            }
        };
        mail.push(MailboxMessage { id: id.to_string(), body });
    }
    Ok(mail)
}

/// Returns the body of the message that is returned in place of an unreadable file.
fn unreadable(reason: &str) -> Value {
    json!({ "kind": "unreadable", "reason": reason })
}

/// Returns true if a later attempt would fail too, because of the file itself: it is a pipe or a folder, it is a link
/// out of the project, or this user may not read it.
fn is_lasting(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, IsADirectory, NotADirectory, PermissionDenied};
    matches!(error.kind(), InvalidInput | IsADirectory | NotADirectory | PermissionDenied)
        || error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

/// Returns true if the inbox of a thread is a folder, and false if it is missing, a link or a file.
fn is_folder(disk: &dyn Disk, thread: &ThreadId) -> Result<bool, StoreError> {
    let (folder, inbox) = (layout::thread_folder(thread), layout::inbox(thread));
    let entries = disk.list(&folder).map_err(StoreError::io("list", &folder))?;
    Ok(entries.iter().any(|entry| entry.is_dir && inbox.file_name().is_some_and(|name| name == entry.name.as_str())))
}

/// Returns true if the message is still in the thread's inbox. The owner may not have recorded such a message yet.
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
