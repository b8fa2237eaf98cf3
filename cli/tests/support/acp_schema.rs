//! Validates the lines of a connection against the official schema of the Agent Client Protocol, version 1.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::OnceLock;

use jsonschema::Validator;
use serde_json::{Value, json};

const SCHEMA: &str = include_str!("../fixtures/acp/schema.json");

/// The validators of one method.
#[derive(Default)]
struct MethodSchema {
    params: Option<Validator>,
    result: Option<Validator>,
}

/// The schema of the protocol.
pub struct AcpSchema {
    line: Validator,
    error: Validator,
    methods: BTreeMap<String, MethodSchema>,
}

impl AcpSchema {
    /// Returns the schema, which is compiled once for a process.
    pub fn get() -> &'static Self {
        static PARSED: OnceLock<AcpSchema> = OnceLock::new();
        PARSED.get_or_init(|| {
            let whole: Value = serde_json::from_str(SCHEMA).unwrap();
            let of = |name: &str| {
                let reference = format!("#/$defs/{name}");
                jsonschema::validator_for(&json!({"$ref": reference, "$defs": whole["$defs"]})).unwrap()
            };
            let mut methods: BTreeMap<String, MethodSchema> = BTreeMap::new();
            for (name, definition) in whole["$defs"].as_object().unwrap() {
                let Some(method) = definition["x-method"].as_str() else { continue };
                let method = methods.entry(method.to_owned()).or_default();
                if name.ends_with("Response") {
                    method.result = Some(of(name));
                } else {
                    method.params = Some(of(name));
                }
            }
            Self { line: jsonschema::validator_for(&whole).unwrap(), error: of("Error"), methods }
        })
    }

    /// Fails unless a line is a valid message. `method` is that of the request which a response answers.
    pub fn check(&self, line: &Value, method: Option<&str>) {
        let fail = |what: &str, fault: String| panic!("{what}: {fault}\n{line:.2000}");
        assert_eq!(line["jsonrpc"], "2.0", "{line}");
        if let Err(fault) = self.line.validate(line) {
            fail("no message", fault.to_string());
        }
        let of = |method: &str| {
            let known = self.methods.get(method);
            known.unwrap_or_else(|| panic!("the protocol has no method `{method}`"))
        };
        let (what, validator, value) = if let Some(method) = line["method"].as_str() {
            // The schema leaves the parameters of extensions open.
            if method.starts_with('_') {
                return;
            }
            (method, of(method).params.as_ref(), &line["params"])
        } else if line.get("error").is_some() {
            ("error", Some(&self.error), &line["error"])
        } else {
            let method = method.expect("a response answers a request");
            if method.starts_with('_') {
                return;
            }
            (method, of(method).result.as_ref(), &line["result"])
        };
        let Some(validator) = validator else { panic!("`{what}` is no such message: {line}") };
        let faults: Vec<String> =
            validator.iter_errors(value).map(|fault| format!("{}: {fault}", fault.instance_path())).collect();
        if !faults.is_empty() {
            fail(what, faults.join("; "));
        }
    }
}
