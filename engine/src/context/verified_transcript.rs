//! A transcript that was checked before its thread is resumed, recovered, forked or continued.

use crate::event::Event;
use crate::store::TranscriptContents;
use crate::thread_id::ThreadId;

/// A transcript whose signatures were verified.
#[derive(Debug)]
pub(crate) struct VerifiedTranscript {
    /// The contents of the transcript. Lines that an interrupted write left after the last seal are removed. The bodies
    /// of the records are empty, because `events` contains the fields of each event.
    pub reading: TranscriptContents,
    pub events: Vec<Event>,
    /// Number of events that are known to be on the disk.
    pub synced: u64,
    pub transcript_trust: TranscriptTrust,
}

/// A verified transcript that the next recovery of its thread uses if the file has not changed.
#[derive(Debug)]
pub(crate) struct InspectedTranscript {
    pub thread: ThreadId,
    /// Length of the file in bytes when it was read.
    pub length: u64,
    pub verified: VerifiedTranscript,
}

/// The reason why a transcript may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TranscriptTrust {
    /// The user's own key signed the whole transcript.
    Signed,
    /// The user accepted the transcript, although no key of the user signed it.
    Accepted,
    /// The user has no key. A temporary key signed the transcript, so anyone could have written it. The thread
    /// continues only if the plan grants no more than the current directive declares.
    Bounded,
}
