//! Inputs that a directive requires and that the command line does not contain: the client asks its user for the
//! values.

use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    BooleanPropertySchema, ClientCapabilities, CreateElicitationRequest, ElicitationAction, ElicitationCapabilities,
    ElicitationContentValue, ElicitationFormMode, ElicitationPropertySchema, ElicitationRequestScope,
    ElicitationSchema, IntegerPropertySchema, NumberPropertySchema, RequestId, StringPropertySchema,
};
use agent_client_protocol::{Client, Error};
use rye_compiler::compile::declared_fields;
use rye_compiler::plan::{FieldType, InterfaceField};
use rye_compiler::semantics::value::parse_json;
use serde_json::{Map, Value};

use super::agent::invalid;
use crate::CommandError;
use crate::run_request::{RunRequestArgs, parse_directive_id};
use crate::workspace::Spaces;

/// The name and the declaration of a required input that has no value.
type MissingInput = (String, InterfaceField);

/// Returns the required inputs of a directive that have no value on the command line. Returns an empty list if the
/// inputs of the directive cannot be read, because its compilation reports the errors.
pub fn missing(directive: &str, call: &RunRequestArgs, spaces: &Spaces) -> Result<Vec<MissingInput>, CommandError> {
    let world = spaces.open()?;
    let id = parse_directive_id(directive)?;
    let given = call.request(id.clone(), &world)?.inputs.unwrap_or_default();
    let fields = declared_fields(&world, &id, &given).unwrap_or_default();
    let is_missing = |(name, field): &MissingInput| {
        field.required && field.default.is_none() && given.get(name).is_none_or(Value::is_null)
    };
    Ok(fields.into_iter().filter(is_missing).collect())
}

/// Asks the client's user for inputs in a form. Returns the values by the names of the inputs.
///
/// # Errors
/// The client does not support forms, its user does not answer, or an answer is not valid for its input.
pub async fn request(
    directive: &str,
    missing: Vec<MissingInput>,
    id: RequestId,
    client: &ClientCapabilities,
    connection: &ConnectionTo<Client>,
) -> Result<Map<String, Value>, Error> {
    let names: Vec<String> = missing.iter().map(|(name, _)| format!("`{name}`")).collect();
    let refused = || {
        let names = names.join(", ");
        let help = "start the agent with `rye acp --input NAME=VALUE`";
        invalid(&format!("`{directive}` needs values for these inputs: {names}; {help}"))
    };
    if !client.elicitation.as_ref().is_some_and(ElicitationCapabilities::supports_form) {
        return Err(refused());
    }
    let mut form = ElicitationSchema::new();
    for (name, field) in &missing {
        form = form.property(name.clone(), property(name, field), true);
    }
    let message = format!("The directive `{directive}` needs these inputs.");
    let mode = ElicitationFormMode::new(ElicitationRequestScope::new(id), form);
    let answered = connection.send_request(CreateElicitationRequest::new(mode, message)).block_task().await?;
    let ElicitationAction::Accept(accepted) = answered.action else { return Err(refused()) };
    let mut content = accepted.content.unwrap_or_default();
    let mut given = Map::new();
    for (name, field) in missing {
        let value = content.remove(&name).ok_or_else(refused)?;
        let value = input_value(&field, value).map_err(|reason| invalid(&format!("the input `{name}` {reason}")))?;
        given.insert(name, value);
    }
    Ok(given)
}

/// Returns the form field of an input. The protocol has no field types for lists and objects, so the user types such a
/// value as JSON into a text field.
fn property(name: &str, field: &InterfaceField) -> ElicitationPropertySchema {
    let about = (!field.description.is_empty()).then(|| field.description.clone());
    let title = Some(name.to_owned());
    match field.kind {
        FieldType::String => {
            let choices: Vec<String> = field.choices.iter().filter_map(Value::as_str).map(str::to_owned).collect();
            let choices = Some(choices).filter(|choices| !choices.is_empty());
            StringPropertySchema::new().title(title).description(about).enum_values(choices).into()
        }
        FieldType::Integer => IntegerPropertySchema::new().title(title).description(about).into(),
        FieldType::Number => NumberPropertySchema::new().title(title).description(about).into(),
        FieldType::Boolean => BooleanPropertySchema::new().title(title).description(about).into(),
        FieldType::Array | FieldType::Object => {
            let about = format!("{} (JSON)", field.description);
            StringPropertySchema::new().title(title).description(about.trim().to_owned()).into()
        }
    }
}

/// Converts the client's answer to the value of the input `field`. An array or an object arrives as JSON text. The type
/// of the value is not checked here, because the compilation checks the type.
fn input_value(field: &InterfaceField, value: ElicitationContentValue) -> Result<Value, String> {
    let value = serde_json::to_value(value).map_err(|error| error.to_string())?;
    let has_parts = matches!(field.kind, FieldType::Array | FieldType::Object);
    match value.as_str().filter(|_| has_parts) {
        Some(text) => parse_json(text).map_err(|error| format!("is not valid JSON: {error}")),
        None => Ok(value),
    }
}
