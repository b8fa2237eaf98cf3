//! Verification of the artifacts: `thread.json`, `capabilities.md` and the knowledge export. A missing artifact is
//! reported as a note, and an artifact that contradicts the transcript as a fault.

use std::io::ErrorKind;
use std::path::Path;

use rye_grammar::ItemId;
use serde_json::{Map, Value};

use super::signatures::KeyKind;
use super::{TranscriptView, Verifier, text_field};
use crate::event::{Ended, EventBody};
use crate::store::thread_files::SNAPSHOT_VERSION;
use crate::store::thread_files::{SIGNATURE, canonical_json, with_exact_integers};
use crate::store::{StoreError, layout};
use crate::thread::{PrintedCost, Status};

impl Verifier<'_> {
    pub(super) fn check_artifacts(&mut self, view: &TranscriptView<'_>) -> Result<(), StoreError> {
        let ended = match view.events.last().map(|event| &event.body) {
            Some(EventBody::Ended(ended)) => Some(&**ended),
            Some(_) | None => None,
        };
        self.check_snapshot(view, ended)?;
        self.check_capabilities(view)?;
        self.check_export(view, ended)
    }

    pub(super) fn check_snapshot(
        &mut self,
        view: &TranscriptView<'_>,
        ended: Option<&Ended>,
    ) -> Result<(), StoreError> {
        let path = layout::snapshot(self.thread);
        let Some(bytes) = self.read_artifact(&path)? else { return Ok(()) };
        let Ok(mut fields) = serde_json::from_slice::<Map<String, Value>>(&bytes) else {
            self.fault(&path, None, "it is not a JSON object");
            return Ok(());
        };
        let version = fields.get("version").and_then(Value::as_u64).unwrap_or(0);
        if version > SNAPSHOT_VERSION {
            let newer = StoreError::Newer { path: path.clone(), found: version, supported: SNAPSHOT_VERSION };
            self.fault(&path, None, newer.to_string());
            return Ok(());
        }
        let signed = match fields.shift_remove(SIGNATURE) {
            None if version > 0 => Err("its signature is missing".to_owned()),
            None => Ok(None),
            Some(Value::String(mark)) => match canonical_json(&path, &fields) {
                Ok(bytes) => self.signatures.mark(&bytes, &mark).map(Some),
                Err(error) => Err(error.to_string()),
            },
            Some(_) => Err("its signature is not a string".to_owned()),
        };
        match signed {
            Ok(None) => self.note("`thread.json` is not signed"),
            Ok(Some(_)) => self.check_snapshot_fields(&path, &fields, view, ended),
            Err(reason) => self.fault(&path, None, reason),
        }
        Ok(())
    }

    /// Checks the fields of a signed snapshot against the transcript.
    fn check_snapshot_fields(
        &mut self,
        path: &Path,
        fields: &Map<String, Value>,
        view: &TranscriptView<'_>,
        ended: Option<&Ended>,
    ) {
        // A suspended thread may continue. After a power failure, `thread.json` can still describe the suspension. It
        // is then compared with the `ended` event of the suspension: the last event that `thread.json` counts.
        let events = fields.get("transcript").and_then(|head| head.get("events")).and_then(Value::as_u64);
        let last = events.and_then(|events| usize::try_from(events).ok()?.checked_sub(1));
        let ended = match last.and_then(|last| view.events.get(last)).map(|event| &event.body) {
            Some(EventBody::Ended(signed_end)) => Some(signed_end.as_ref()),
            Some(_) | None => ended,
        };
        let status = ended.map(|ended| ended.status.as_str());
        let over = text_field(fields, "status").filter(|status| *status != Status::Running.as_str());
        let expected = [
            ("thread_id", Some(self.thread.as_str())),
            ("directive", view.head.opened.map(|opened| opened.directive.as_str())),
            ("plan_id", view.head.plan_id),
            // A snapshot with status `running` was written before the thread ended, so its status is not compared.
            ("status", status.filter(|_| over.is_some())),
        ];
        for (name, expected) in expected {
            if let Some(expected) = expected
                && text_field(fields, name) != Some(expected)
            {
                let found = text_field(fields, name).unwrap_or_default();
                self.fault(path, None, format!("its `{name}` is `{found}`, but `{expected}` in the transcript"));
            }
        }
        if let Some(ended) = ended.filter(|_| over.is_some()) {
            let cost = serde_json::to_value(PrintedCost::from(ended.cost)).unwrap_or(Value::Null);
            let outputs = ended.outputs.clone().map_or(Value::Null, Value::Object);
            for (name, expected) in [("cost", with_exact_integers(&cost)), ("outputs", with_exact_integers(&outputs))] {
                if fields.get(name).is_some_and(|found| *found != expected) {
                    self.fault(path, None, format!("its `{name}` differs from the transcript"));
                }
            }
        }
        self.check_head(path, fields, view, over.is_some());
    }

    /// Compares the last line that `thread.json` covers with the transcript: `thread.json` states the number and the
    /// hash of the line. If `over` is false (the thread had not ended), a missing line is a note, not a fault.
    fn check_head(&mut self, path: &Path, fields: &Map<String, Value>, view: &TranscriptView<'_>, over: bool) {
        let events = fields.get("transcript").and_then(|head| head.get("events")).and_then(Value::as_u64);
        let hash = fields.get("transcript").and_then(|head| head.get("h")).and_then(Value::as_str);
        let (Some(events), Some(hash)) = (events, hash) else { return };
        let last = usize::try_from(events).unwrap_or(usize::MAX).checked_sub(1);
        match last.and_then(|last| view.reading.records.get(last)) {
            Some(record) if record.hash.to_string() == hash => {
                self.found.signed_events = self.found.signed_events.max(events);
            }
            Some(_) => {
                let reason = format!("the line does not match the hash in `{}`", path.display());
                self.fault(&layout::transcript(self.thread), Some(events), reason);
            }
            None if over => {
                let reason = format!("the transcript ends before this line, which `{}` refers to", path.display());
                self.fault(&layout::transcript(self.thread), Some(events), reason);
            }
            None => self.note("`thread.json` covers events that the transcript lacks, as after a power failure"),
        }
    }

    fn check_capabilities(&mut self, view: &TranscriptView<'_>) -> Result<(), StoreError> {
        let path = layout::capabilities(self.thread);
        let Some(bytes) = self.read_artifact(&path)? else { return Ok(()) };
        match self.signatures.file(&bytes) {
            Ok(None) => self.fault(&path, None, "its signature line is missing"),
            Ok(Some(_)) => {
                let text = String::from_utf8_lossy(&bytes);
                let says = |line: &str| text.lines().take(6).any(|found| found == line);
                if !says(&format!("thread_id: {}", self.thread)) {
                    self.fault(&path, None, "it belongs to another thread");
                } else if !view.head.plan_id.is_none_or(|plan| says(&format!("plan_id: {plan}"))) {
                    self.fault(&path, None, "it belongs to another plan");
                }
            }
            Err(reason) => self.fault(&path, None, reason),
        }
        Ok(())
    }

    fn check_export(&mut self, view: &TranscriptView<'_>, ended: Option<&Ended>) -> Result<(), StoreError> {
        let speaks = view.head.opened.filter(|opened| opened.call.is_none());
        let directive = speaks.and_then(|opened| ItemId::parse(&opened.directive).ok());
        let due = ended.is_some_and(|ended| !ended.status.is_parked());
        let Some(directive) = directive.filter(|_| due) else { return Ok(()) };
        let path = layout::export(&directive, self.thread);
        let Some(bytes) = self.read_artifact(&path)? else { return Ok(()) };
        match self.signatures.file(&bytes) {
            Ok(None) if self.signatures.best() == Some(KeyKind::Trusted) => {
                self.fault(&path, None, "its signature line is missing");
            }
            Ok(None) => self.note("the export is not signed"),
            Ok(Some(_)) => {
                let title = format!("title: Thread {}", self.thread);
                if !String::from_utf8_lossy(&bytes).lines().take(4).any(|line| line == title) {
                    self.fault(&path, None, "it belongs to another thread");
                }
            }
            Err(reason) => self.fault(&path, None, reason),
        }
        Ok(())
    }

    /// Reads an artifact. If it is missing, adds a note and returns `None`.
    fn read_artifact(&mut self, path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
        match self.disk.read(path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.note(format!("`{}` is missing", path.display()));
                Ok(None)
            }
            Err(error) => Err(StoreError::io("read", path)(error)),
        }
    }
}
