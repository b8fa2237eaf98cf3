//! The warning before a prompt that sends cached tokens again uncached. The user can then choose to send the prompt
//! once without the part of the context that causes the cache loss.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rye_compiler::cache_guard::cache_guard;
use rye_compiler::compile::Compilation;
use rye_compiler::report::render::table::group_thousands;
use rye_compiler::semantics::money::Nanos;
use rye_engine::event::{Delivery, UserInput};
use rye_engine::live_state::LiveState;
use rye_engine::preview::{CacheLoss, RequestPartChange, preview};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::replan::{PlanRequest, compare_with_session, compile_current, recompile, send_stored_plan};
use super::requests::{ENDED, RequestHandler};
use crate::present::format_money;

/// Time after which the provider of the wire `anthropic` drops a cached prefix that no request has read.
const ANTHROPIC_CACHE_LIFETIME: Duration = Duration::from_mins(5);

/// Maximum wait for the start of a prompt. During this wait, no other change of the plan can be sent.
const PROMPT_START_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of changed parts that a warning names.
const MAX_NAMED_PARTS: usize = 3;

/// A warning that a prompt sends cached tokens again uncached, at an extra cost above the setting `cache_guard`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheWarning {
    pub loss: CacheLoss,
    /// A line that names the changed parts with their places, the tokens and the extra cost.
    pub text: String,
    /// The added parts of the context. Without them, the prompt keeps the cached prefix. Empty if leaving out the added
    /// parts does not keep the prefix.
    pub without: Vec<String>,
}

impl CacheWarning {
    /// Converts the warning to JSON, for the data of a response.
    pub fn to_json(&self) -> Value {
        let cost = self.loss.cost.map(|nanos| Nanos::from_u64(nanos).to_json());
        json!({"tokens": self.loss.tokens, "cost": cost, "parts": self.loss.parts, "text": self.text})
    }

    /// Returns the parts that can be left out, as a list for a question.
    pub fn name_without(&self) -> String {
        self.without.iter().map(|part| format!("`{part}`")).collect::<Vec<_>>().join(", ")
    }
}

impl RequestHandler {
    /// Returns the warning for a message that would be the next prompt; `None` if its request keeps the cached prefix,
    /// if the extra cost is not above the setting, or if a prompt runs. The text of the message is not expanded.
    pub fn cache_warning(&self, input: &UserInput) -> Option<CacheWarning> {
        let live = self.control.live_state().filter(LiveState::is_settled)?;
        let loss = preview(&live, input).cache_loss?;
        let cost = loss.cost.map(Nanos::from_u64)?;
        if is_expired(&live) || cost <= cache_guard(&self.spaces.open().ok()?) {
            return None;
        }
        let compilation = compile_current(&self.spaces, &live).ok().map(|(compilation, _)| compilation);
        let text = describe(&loss, cost, compilation.as_ref());
        let added: Vec<String> = loss.added_parts().into_iter().map(str::to_owned).collect();
        let without = if self.keeps_cache_without(&live, input, &added) { added } else { Vec::new() };
        Some(CacheWarning { loss, text, without })
    }

    /// Returns true if a message without these parts of the context keeps the cached prefix.
    fn keeps_cache_without(&self, live: &LiveState, input: &UserInput, parts: &[String]) -> bool {
        if parts.is_empty() {
            return false;
        }
        let omitted = live.plan.omitted.iter().chain(parts).cloned().collect();
        let compiled = recompile(&self.spaces, &live.plan, &PlanRequest::Omit(omitted));
        let plan = compiled.map(|compilation| LiveState { plan: Arc::new(compilation.plan), ..live.clone() });
        plan.is_ok_and(|live| preview(&live, input).cache_loss.is_none())
    }

    /// Expands the skill or prompt template of a message, and returns the warning for the expanded message. `None` also
    /// if the expansion fails.
    pub async fn cache_warning_expanded(&self, input: &UserInput) -> Option<CacheWarning> {
        let text = self.engine.expand(&input.text).await.ok()?.text?;
        self.cache_warning(&UserInput { text, ..input.clone() })
    }

    /// Submits a message as a prompt without these parts of the context. After the prompt, the session uses its current
    /// plan again. Returns the data of the response: the id of the message.
    ///
    /// # Errors
    /// Returns the reason why the session cannot continue without the parts.
    pub async fn submit_without(&self, input: UserInput, parts: &[String]) -> Result<Value, String> {
        let mut last = Arc::clone(&self.sent_plan).lock_owned().await;
        let live = self.control.started_state().await;
        let (plan, plan_id) = self.plan_to_change(last.as_ref(), &live);
        let omitted = plan.omitted.iter().chain(parts).cloned().collect();
        let compilation = recompile(&self.spaces, &plan, &PlanRequest::Omit(omitted))?;
        let changes = compare_with_session(&self.spaces, &**self.engine.disk(), &live, &compilation);
        if changes.widens {
            let lines = changes.lines.join("\n");
            return Err(format!(
                "not sent: the files have changed; /reload continues with the changed files:\n{lines}"
            ));
        }
        let replaced = self.send_plan(&compilation, &mut last).await?;
        self.control.settled(&replaced).await;
        let sent = self.control.submit(input, Delivery::Prompt).ok_or(ENDED)?;
        let (control, id) = (self.control.clone(), sent.clone());
        // The task holds the lock until it has sent the original plan. The next change therefore starts from the plan
        // with all parts.
        tokio::spawn(async move {
            // The session changes its plan at the next idle step, so the prompt must have started.
            timeout(PROMPT_START_TIMEOUT, control.started(&id)).await.ok();
            send_stored_plan(&control, (plan, plan_id), &mut last).ok();
        });
        Ok(json!({"input": sent}))
    }
}

/// Returns true if the provider has dropped the last request from its cache. The lifetime is known for the wire
/// `anthropic` only.
fn is_expired(live: &LiveState) -> bool {
    let Some(last) = live.last_request().filter(|_| live.plan.model.wire == "anthropic") else { return false };
    let used = u64::try_from(last.state.clock.now).map(Duration::from_millis).unwrap_or_default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(used) > ANTHROPIC_CACHE_LIFETIME
}

fn describe(loss: &CacheLoss, cost: Nanos, compilation: Option<&Compilation>) -> String {
    let name = |id: &str, change: RequestPartChange| {
        let change = match change {
            RequestPartChange::Added => "added",
            RequestPartChange::Changed => "changed",
            RequestPartChange::Removed => "removed",
        };
        let origins = compilation.map(|compilation| &compilation.origins);
        let keys = [format!("hook.{id}"), format!("layer.{id}"), format!("tool.{id}")];
        let place = origins.and_then(|origins| keys.iter().find_map(|key| origins.get(key)?.place.as_ref()));
        let file = id.strip_prefix("context/").filter(|_| change != "removed");
        let place =
            place.map(|place| format!("{}:{}", place.file, place.line)).or(file.map(|file| format!("{file}:1")));
        format!("`{id}` {change}{}", place.map_or_else(String::new, |place| format!(" ({place})")))
    };
    let mut parts: Vec<String> =
        loss.parts.iter().take(MAX_NAMED_PARTS).map(|part| name(&part.id, part.change)).collect();
    let more = loss.parts.len().saturating_sub(MAX_NAMED_PARTS);
    if more > 0 {
        parts.push(format!("{more} more"));
    }
    let cause = if parts.is_empty() { "the start of the request has changed".to_owned() } else { parts.join(", ") };
    format!(
        "{cause}: {} cached tokens are lost, which costs {} more",
        group_thousands(loss.tokens),
        format_money(cost.to_u64())
    )
}
