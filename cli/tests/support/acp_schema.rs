//! Validates the lines of a connection against the schema of the Agent Client Protocol, version 1. The library of the
//! protocol derives the schema from its types.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::OnceLock;

use agent_client_protocol::v1::schema as v1;
use jsonschema::Validator;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

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

/// Returns the definitions of all messages of the protocol, by type name.
fn definitions() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    generator.subschema_for::<v1::ClientRequest>();
    generator.subschema_for::<v1::ClientResponse>();
    generator.subschema_for::<v1::ClientNotification>();
    generator.subschema_for::<v1::AgentRequest>();
    generator.subschema_for::<v1::AgentResponse>();
    generator.subschema_for::<v1::AgentNotification>();
    generator.subschema_for::<v1::ProtocolLevelNotification>();
    generator.subschema_for::<v1::Error>();
    Value::Object(generator.take_definitions(true))
}

/// Returns the schema of a JSON-RPC message: a request, a notification, a result or an error.
fn envelope() -> Value {
    let id = json!({"type": ["string", "integer", "null"]});
    let version = json!({"const": "2.0"});
    let message = |required: &[&str], mut properties: Value| {
        properties["jsonrpc"] = version.clone();
        json!({"type": "object", "required": required, "properties": properties, "additionalProperties": false})
    };
    json!({"oneOf": [
        message(&["jsonrpc", "id", "method"], json!({"id": id, "method": {"type": "string"}, "params": {}})),
        message(&["jsonrpc", "method"], json!({"method": {"type": "string"}, "params": {}})),
        message(&["jsonrpc", "id", "result"], json!({"id": id, "result": {}})),
        message(&["jsonrpc", "id", "error"], json!({"id": id, "error": {"type": "object"}})),
    ]})
}

impl AcpSchema {
    /// Returns the schema, which is compiled once for a process.
    pub fn get() -> &'static Self {
        static PARSED: OnceLock<AcpSchema> = OnceLock::new();
        PARSED.get_or_init(|| {
            let definitions = definitions();
            let of = |name: &str| {
                let reference = format!("#/$defs/{name}");
                jsonschema::validator_for(&json!({"$ref": reference, "$defs": definitions})).unwrap()
            };
            let mut methods: BTreeMap<String, MethodSchema> = BTreeMap::new();
            for (name, definition) in definitions.as_object().unwrap() {
                let Some(method) = definition["x-method"].as_str() else { continue };
                let method = methods.entry(method.to_owned()).or_default();
                if name.ends_with("Response") {
                    method.result = Some(of(name));
                } else {
                    method.params = Some(of(name));
                }
            }
            Self { line: jsonschema::validator_for(&envelope()).unwrap(), error: of("Error"), methods }
        })
    }

    /// Fails unless a line is a valid message. For a response, `method` is the method of the request that the response
    /// answers.
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
