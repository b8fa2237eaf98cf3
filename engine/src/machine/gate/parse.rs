//! Parses calls of palette tools and of primaries into actions.

use rye_compiler::diagnostics::closest;
use rye_compiler::palette::tool_name;
use rye_compiler::plan::{DroppedTool, PalettePrimary as Action, PaletteTool, Plan};
use rye_compiler::primary::{ExecuteRequest, FetchRequest, ItemType, SignRequest};
use rye_grammar::ItemId;
use serde_json::{Map, Value};

use super::start::{self, THREAD_DIRECTIVE};
use super::{ChildStart, ParsedCall, is_system_tool};
use crate::machine::state_store::{self, STATE_TOOL};

/// Parses the arguments `input` of a call of the palette tool `tool`.
///
/// # Errors
///
/// Returns the reason why the arguments are invalid, as a text for the model.
pub(super) fn parse_call(plan: &Plan, tool: &PaletteTool, input: &Value) -> Result<ParsedCall, String> {
    match (tool.primary, &tool.item_id) {
        (_, Some(item_id)) => parse_tool_call(plan, item_id.clone(), input.clone()),
        (Action::Execute, None) => {
            let request = ExecuteRequest::read(input).map_err(|e| e.0)?;
            let detached = request.is_async;
            match request.item_type {
                ItemType::Knowledge if detached => Err(
                    "rye_execute: `async` is for directives and tools; knowledge is read at once: leave `async` out"
                        .into(),
                ),
                ItemType::Tool if detached => parse_async_tool_call(plan, request.item_id, request.parameters),
                ItemType::Tool => parse_tool_call(plan, request.item_id, Value::Object(request.parameters)),
                ItemType::Knowledge => Ok(ParsedCall::Knowledge { item_id: request.item_id }),
                ItemType::Skill => Err("rye_execute: a skill is read with rye_fetch".into()),
                ItemType::Directive => {
                    let (directive, inputs) = (request.item_id, request.parameters);
                    let (model, limit_overrides, tool) = (None, Map::new(), false);
                    let start = ChildStart { directive, inputs, model, limit_overrides, detached, tool };
                    Ok(ParsedCall::Start { start, by_tool: false })
                }
            }
        }
        (Action::Fetch, None) => FetchRequest::read(input).map(ParsedCall::Fetch).map_err(|e| e.0),
        (Action::Sign, None) => SignRequest::read(input).map(ParsedCall::Sign).map_err(|e| e.0),
        (Action::Return, None) => Err("this directive declares no outputs to return".into()),
    }
}

/// Parses a tool call. The engine itself executes the calls of two tools: a call of `THREAD_DIRECTIVE` becomes the
/// start of a child, and a call of `STATE_TOOL` becomes an operation on the values that the thread stores.
fn parse_tool_call(plan: &Plan, item_id: ItemId, parameters: Value) -> Result<ParsedCall, String> {
    if is_system_tool(plan, &item_id, THREAD_DIRECTIVE) {
        return start::parse_child_start(&parameters).map(|start| ParsedCall::Start { start, by_tool: true });
    }
    if is_system_tool(plan, &item_id, STATE_TOOL) {
        return state_store::parse_state_op(&parameters).map(ParsedCall::Keep);
    }
    Ok(ParsedCall::Tool { item_id, parameters })
}

/// Parses a tool call whose caller does not wait for the result.
fn parse_async_tool_call(plan: &Plan, directive: ItemId, inputs: Map<String, Value>) -> Result<ParsedCall, String> {
    if is_system_tool(plan, &directive, THREAD_DIRECTIVE) {
        let start = start::parse_child_start(&Value::Object(inputs))?;
        return Ok(ParsedCall::Start { start: ChildStart { detached: true, ..start }, by_tool: true });
    }
    if is_system_tool(plan, &directive, STATE_TOOL) {
        return Err(format!("rye_execute: `{STATE_TOOL}` answers at once; leave `async` out"));
    }
    let (model, limit_overrides) = (None, Map::new());
    let start = ChildStart { directive, inputs, model, limit_overrides, detached: true, tool: true };
    Ok(ParsedCall::Start { start, by_tool: false })
}

/// Returns the error message for a call of a tool that is not in the palette. The message states why calls of the tool
/// are refused or, for an unknown tool, suggests a name and lists the available tools.
pub(super) fn describe_unknown_tool(plan: &Plan, name: &str) -> String {
    let is_meant =
        |tool: &&DroppedTool| tool.refused && (tool_name(&tool.item_id) == name || tool.item_id.as_str() == name);
    if let Some(tool) = plan.dropped_tools.iter().find(is_meant) {
        return format!("every call of `{name}` is refused: {}", tool.because);
    }
    let known: Vec<&str> = plan.palette.iter().map(|tool| &*tool.name).collect();
    let meant = closest(name, known.iter().copied()).map(|name| format!("did you mean `{name}`? ")).unwrap_or_default();
    let known = if known.is_empty() {
        "no tools are available".to_owned()
    } else {
        format!("available tools: {}", known.join(", "))
    };
    format!("unknown tool `{name}`; {meant}{known}")
}
