//! The request `compact` of a session: states the effect and the price of a compaction, and requests it.

use rye_compiler::report::render::table::group_thousands;
use rye_compiler::semantics::money::Nanos;
use rye_engine::event::ControlMessage;
use rye_engine::preview::{CompactionPreview, preview_compaction};
use serde_json::{Value, json};

use super::requests::RequestHandler;
use crate::present::{format_count, format_money};

impl RequestHandler {
    /// Returns the effect and the price of a compaction. If `preview` is false, also requests the compaction. Fails if
    /// the session has no messages.
    pub(super) async fn compact(&self, focus: Option<String>, preview: bool) -> Result<Option<Value>, String> {
        let live = self.control.started_state().await;
        let Some(shown) = preview_compaction(&live, focus.clone()) else {
            return Err("nothing to compact: the session has no conversation yet".to_owned());
        };
        let mut data = json!({"compaction": compaction_json(&shown), "text": describe_compaction(&shown)});
        let sent = if preview { None } else { self.send(ControlMessage::Compact { focus: focus.clone() })? };
        if let Value::Object(fields) = &mut data {
            if let Some(Value::Object(sent)) = sent {
                fields.extend(sent);
            } else {
                fields.insert("preview".to_owned(), true.into());
                fields.insert("focus".to_owned(), focus.into());
            }
        }
        Ok(Some(data))
    }
}

fn compaction_json(shown: &CompactionPreview) -> Value {
    let dollars = |nanos: Option<u64>| nanos.map(|nanos| Nanos::from_u64(nanos).to_json());
    json!({
        "messages": shown.messages,
        "tokens": shown.tokens,
        "kept_messages": shown.kept_messages,
        "kept_tokens": shown.kept_tokens,
        "system_tokens": shown.system_tokens,
        "expected": dollars(shown.expected),
        "worst_case": dollars(shown.worst_case),
    })
}

/// Describes the effect and the price of a compaction in three lines.
fn describe_compaction(shown: &CompactionPreview) -> String {
    let part = |messages: usize, tokens: u64| {
        format!("{} ({} tokens)", format_count(messages as u64, "message"), group_thousands(tokens))
    };
    let leaves = if shown.messages == 0 {
        "replaced by a summary: nothing, because all messages fit into the part that is kept; the summary is added, so the \
         context becomes longer"
            .to_owned()
    } else {
        format!("replaced by a summary: {}", part(shown.messages, shown.tokens))
    };
    let stays = format!(
        "kept: system prompt with context files, and tools ({} tokens), {}",
        group_thousands(shown.system_tokens),
        part(shown.kept_messages, shown.kept_tokens)
    );
    let price = match (shown.expected, shown.worst_case) {
        (Some(expected), Some(most)) => format!("about {}, at most {}", format_money(expected), format_money(most)),
        _ => "unknown".to_owned(),
    };
    format!("{leaves}\n{stays}\nprice of the summary: {price}")
}

/// If the data of a response is the preview of a compaction, returns the focus and the text of the preview. Returns
/// `None` for other data.
pub fn previewed_compaction(data: &Value) -> Option<(Option<String>, String)> {
    data.get("compaction")?;
    data.get("preview").filter(|preview| **preview == true)?;
    let focus = data.get("focus").and_then(Value::as_str).map(str::to_owned);
    Some((focus, data.get("text")?.as_str()?.to_owned()))
}
