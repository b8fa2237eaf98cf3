//! The registry rebuilt from transcripts equals the one that was there.
