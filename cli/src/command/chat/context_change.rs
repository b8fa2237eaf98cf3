//! Changes of the context of a session: the user leaves a part out of the requests, or adds it again. The effect on
//! tokens and costs is shown before the change is applied with a new plan.

use std::sync::Arc;

use rye_compiler::diagnostics::closest;
use rye_compiler::plan::prompt::render_layer;
use rye_compiler::plan::{Layer, Plan, RuntimePlaceholder};
use rye_compiler::report::render::table::group_thousands;
use rye_compiler::semantics::money::Nanos;
use rye_engine::preview::{PlanComparison, compare_plans, context_parts};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::replan::{PlanChanges, PlanRequest, compare_with_session, recompile};
use super::requests::RequestHandler;
use crate::present::format_count;

/// Maximum number of references that are listed for a part of the context. A reference is a hook or a layer that names
/// the part.
const MAX_REFERENCES: usize = 8;

/// The effect of leaving out a part of the context, or of adding a part that is left out.
#[derive(Debug, Serialize, Deserialize)]
pub struct ContextChange {
    pub part: String,
    /// True if the change leaves the part out, false if it adds the part again.
    pub omits: bool,
    #[serde(flatten)]
    pub comparison: PlanComparison,
    /// The hooks and layers that name the part, at most `MAX_REFERENCES`.
    pub references: Vec<String>,
    /// The lines of `rye plan --diff` if the new plan allows more than the current plan; else empty.
    pub widens: Vec<String>,
    /// True if the change is applied at the next idle step.
    pub applied: bool,
}

impl RequestHandler {
    /// Returns the effect of leaving out a part of the context or, if the part is left out now, of adding it again.
    /// With `confirm`, also applies the change, and returns the id of the message that requests it.
    pub(super) async fn change_context(&self, part: String, confirm: bool) -> Result<Option<Value>, String> {
        let mut sent = self.sent_plan.lock().await;
        let live = self.control.started_state().await;
        let (plan, _) = self.plan_to_change(sent.as_ref(), &live);
        let mut omitted = plan.omitted.clone();
        let omits = !omitted.contains(&part);
        if omits {
            omitted.push(part.clone());
        } else {
            omitted.retain(|one| *one != part);
        }
        let compilation = recompile(&self.spaces, &plan, &PlanRequest::Omit(omitted))?;
        let after = Arc::new(compilation.plan.clone());
        // The current plan is recompiled too, so that changes of the files affect both plans. The plans then differ
        // only if leaving out the part has an effect.
        let before = recompile(&self.spaces, &plan, &PlanRequest::Same)?.plan;
        if omits && (Plan { omitted: before.omitted.clone(), ..compilation.plan.clone() }) == before {
            let parts = context_parts(&live);
            let near = closest(&part, parts.iter().map(|one| one.id.as_str()));
            let help = near.map_or_else(String::new, |near| format!("did you mean `{near}`? "));
            return Err(format!(
                "the request has no part `{part}` that can be left out; {help}`/context` lists the parts"
            ));
        }
        let PlanChanges { widens, lines } =
            compare_with_session(&self.spaces, &**self.engine.disk(), &live, &compilation);
        let mut change = ContextChange {
            references: references(if omits { &live.plan } else { &after }, &part),
            part,
            omits,
            comparison: compare_plans(&live, &after),
            widens: if widens { lines } else { Vec::new() },
            applied: confirm,
        };
        change.references.truncate(MAX_REFERENCES);
        let mut data = serde_json::to_value(&change).map_err(|error| error.to_string())?;
        if confirm {
            let id = self.send_plan(&compilation, &mut sent).await?;
            if let Value::Object(fields) = &mut data {
                fields.insert("message".to_owned(), json!(id));
            }
        }
        Ok(Some(data))
    }
}

/// Lists the hooks and layers of a plan that name a part of the context, such as a skill or knowledge. A hook is listed
/// if it is live and its action names the part. A layer is listed if its text contains the name of the part.
fn references(plan: &Plan, part: &str) -> Vec<String> {
    let name = part.strip_prefix("context/").or_else(|| part.strip_prefix("skill/")).unwrap_or(part);
    let hooks = plan.hooks.iter().filter(|hook| hook.is_live() && hook.id != part);
    let hooks = hooks.filter(|hook| hook.action.item().is_some_and(|(_, id)| id == name));
    let mut found: Vec<String> = hooks.map(|hook| format!("the hook `{}`", hook.id)).collect();
    let layers = plan.prompt.system.iter().chain(&plan.prompt.first_message);
    let names =
        |layer: &&Layer| layer.id != part && render_layer(layer, &mut RuntimePlaceholder::marker).contains(name);
    found.extend(layers.filter(names).map(|layer| format!("the layer `{}`", layer.id)));
    found
}

/// Formats `data`, a [`ContextChange`] as JSON, for human output. Other data is returned as JSON.
pub fn format_context_change(data: &Value) -> String {
    let Ok(change) = serde_json::from_value::<ContextChange>(data.clone()) else { return data.to_string() };
    let ContextChange { part, omits, comparison: of, references, widens, applied } = &change;
    let more_or_less = |before: u64, after: u64, show: &dyn Fn(u64) -> String| match after.checked_sub(before) {
        Some(0) => "no change".to_owned(),
        Some(more) => format!("{} more", show(more)),
        None => format!("{} less", show(before - after)),
    };
    let tokens = |count: u64| format!("{} tokens", group_thousands(count));
    let dollars = |nanos: u64| format!("${}", Nanos::from_u64(nanos));
    let mut lines = vec![format!(
        "{} `{part}`: {}, so {} in the next request",
        if *omits { "without" } else { "with" },
        more_or_less(of.tokens, of.tokens_after, &tokens),
        tokens(of.tokens_after)
    )];
    if let (Some(next), Some(next_after), Some(later), Some(later_after)) =
        (of.next, of.next_after, of.later, of.later_after)
    {
        let lost = of.resent_tokens > 0;
        let cache = if lost { format!("; {} must be cached again", tokens(of.resent_tokens)) } else { String::new() };
        lines.push(format!("next request: {}{cache}", more_or_less(next, next_after, &dollars)));
        let turns = of.turns_per_prompt;
        let prompt = more_or_less(later.saturating_mul(turns), later_after.saturating_mul(turns), &dollars);
        let each = more_or_less(later, later_after, &dollars);
        lines.push(format!("each later request: {each}; a prompt of {}: {prompt}", format_count(turns, "turn")));
    }
    if !references.is_empty() {
        lines.push(format!("also named by {}", references.join(", ")));
    }
    if !widens.is_empty() {
        lines.push("the new plan allows more:".to_owned());
        lines.extend(widens.iter().cloned());
    }
    lines.push(if *applied {
        "applied: the session continues with the new plan".to_owned()
    } else {
        format!("nothing is changed yet: `/context {part} confirm` applies the change")
    });
    lines.join("\n")
}
