//! Validates the lines of `rye chat --format json` in both directions against the schemas of `rye schema`, and the fields
//! of each event against the table of events.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::OnceLock;

use jsonschema::Validator;
use rye_engine::event::EVENT_TABLE;
use serde_json::Value;

use crate::rye::TestProject;

/// The validators of the lines.
pub struct ChatSchema {
    chat: Validator,
    event: Validator,
    run: Validator,
    /// Fields of an event, by the names of its type.
    fields: BTreeMap<&'static str, &'static [&'static str]>,
}

impl ChatSchema {
    /// Returns the schemas, which are read once for a process.
    pub fn get() -> &'static Self {
        static READ: OnceLock<ChatSchema> = OnceLock::new();
        READ.get_or_init(|| {
            let place = TestProject::new();
            let of = |name: &str| {
                let schema: Value = serde_json::from_str(&place.run_ok(&["schema", name])).unwrap();
                jsonschema::validator_for(&schema).unwrap()
            };
            let names = EVENT_TABLE.iter().flat_map(|row| [(row.name, row.fields), (row.reader_name, row.fields)]);
            Self { chat: of("chat"), event: of("event"), run: of("run"), fields: names.collect() }
        })
    }

    /// Fails unless a line of stdin is a request.
    pub fn check_request(&self, line: &Value) {
        assert!(line.get("type").is_some_and(|kind| kind != "response"), "{line}");
        validate(&self.chat, line);
    }

    /// Fails unless a line of stdout is a response, an event, a piece of a reply, or the last line.
    pub fn check_output(&self, line: &Value) {
        if line["type"] == "response" {
            validate(&self.chat, line);
        } else if line.get("event").is_some() {
            validate(&self.event, line);
            self.check_event(&line["event"]);
        } else {
            validate(&self.run, line);
        }
    }

    fn check_event(&self, event: &Value) {
        let kind = event["type"].as_str().unwrap();
        if kind == "token_delta" {
            return;
        }
        let known = self.fields.get(kind).unwrap_or_else(|| panic!("no such event: {event}"));
        let unknown: Vec<&String> =
            event.as_object().unwrap().keys().filter(|key| *key != "type" && !known.contains(&key.as_str())).collect();
        assert!(unknown.is_empty(), "the table has no fields {unknown:?}: {event}");
    }
}

fn validate(validator: &Validator, line: &Value) {
    let faults: Vec<String> =
        validator.iter_errors(line).map(|fault| format!("{}: {fault}", fault.instance_path())).collect();
    assert!(faults.is_empty(), "{}\n{line:.2000}", faults.join("; "));
}
