//! The tools of requests as JSON in a wire format. Every request of a thread contains the same tools, and the
//! conversion of their schemas is expensive, so each list is converted only once.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::encode::EncodedItems;
use crate::exchange::ToolDefinition;

/// Maximum number of lists that are kept. Threads of one directive share a list.
const MAX_LISTS: usize = 16;

/// A list of tools with its JSON in one wire format.
struct EncodedTools {
    wire: &'static str,
    tools: Vec<ToolDefinition>,
    json: EncodedItems,
}

/// The lists that were encoded last, the most recent one at the end.
static KNOWN: Mutex<Vec<EncodedTools>> = Mutex::new(Vec::new());

/// Returns the JSON of a list of tools in a wire format; `None` for an empty list. `convert` must depend on its
/// argument and the wire only, and is called only if the list is not among the lists in `KNOWN`.
pub(in crate::provider) fn encode_tools(
    wire: &'static str,
    tools: &[ToolDefinition],
    convert: impl FnOnce(&[ToolDefinition]) -> Value,
) -> Option<EncodedItems> {
    if tools.is_empty() {
        return None;
    }
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(at) = known.iter().rposition(|known| known.wire == wire && are_same(&known.tools, tools)) {
        return known.get(at).map(|known| Arc::clone(&known.json));
    }
    let json: EncodedItems = convert(tools).to_string().into_bytes().into();
    if known.len() == MAX_LISTS {
        known.remove(0);
    }
    known.push(EncodedTools { wire, tools: tools.to_vec(), json: Arc::clone(&json) });
    Some(json)
}

/// Returns true if the texts and schemas of two lists have the same addresses. `KNOWN` keeps each of these values
/// alive, so no other value gets its address.
fn are_same(one: &[ToolDefinition], other: &[ToolDefinition]) -> bool {
    let is_same = |(a, b): (&ToolDefinition, &ToolDefinition)| {
        Arc::ptr_eq(&a.name, &b.name)
            && Arc::ptr_eq(&a.description, &b.description)
            && Arc::ptr_eq(&a.schema, &b.schema)
    };
    one.len() == other.len() && one.iter().zip(other).all(is_same)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(name: &str) -> ToolDefinition {
        let schema = Arc::new(json!({"type": "object", "properties": {name: {"type": "string"}}}));
        ToolDefinition { name: name.into(), description: "Does it.".into(), schema }
    }

    #[test]
    fn shared_list_of_tools_is_converted_once_for_each_wire() {
        let mut converted = 0;
        let mut encode = |wire, tools: &[ToolDefinition]| {
            let names = |tools: &[ToolDefinition]| tools.iter().map(|tool| Value::from(&*tool.name)).collect();
            encode_tools(wire, tools, |tools| {
                converted += 1;
                names(tools)
            })
        };
        let tools = [definition("one"), definition("two")];
        for _ in 0..3 {
            assert_eq!(encode("a", &tools.clone()).as_deref(), Some(br#"["one","two"]"#.as_slice()));
        }
        assert_eq!(encode("b", &tools).as_deref(), Some(br#"["one","two"]"#.as_slice()));
        assert_eq!(encode("a", &tools[..1]).as_deref(), Some(br#"["one"]"#.as_slice()));
        assert_eq!(encode("a", &[definition("one")]).as_deref(), Some(br#"["one"]"#.as_slice()));
        assert_eq!(encode("a", &[]), None);
        assert_eq!(converted, 4);
    }
}
