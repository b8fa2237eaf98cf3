//! What hooks start: through the same gate and the same path as the thread's own calls.

use rye_compiler::hook::HookAction;
use rye_compiler::primary::{FetchRequest, ItemType, SignRequest};
use rye_compiler::world::ItemKind;
use rye_grammar::ItemId;
use serde_json::{Map, Value};

use super::Embedded;
use crate::hooks::{Act, ReadyHook};
use crate::machine::HookRun;
use crate::machine::gate::{Call, ChildStart, HookCall, admit_hook};
use crate::provider::BoxFuture;
use crate::tool::ToolOutcome;

impl Act for Embedded {
    fn act<'a>(
        &'a self,
        hook: &'a ReadyHook,
        action: HookAction,
        run: &'a HookRun,
    ) -> BoxFuture<'a, Result<ToolOutcome, String>> {
        Box::pin(async move {
            let call = call(action)?;
            let asked = HookCall { call, turn: run.turn, left_ms: run.left_ms };
            let allowed = admit_hook(&self.plan, &self.launch, &hook.hook, hook.id_is_static, asked)?;
            if let Call::Directive(start) = &allowed.call {
                let key = format!("{}.{}", run.subject.as_deref().unwrap_or_default(), hook.hook.id);
                return self.engine.hook_child(self, &hook.hook, start.clone(), (run.point, run.turn, &key)).await;
            }
            self.dispatch(allowed).await.map_err(|error| error.to_string())
        })
    }
}

/// What the hook's line asks for, its id validated after its holes were filled.
fn call(action: HookAction) -> Result<Call, String> {
    let id = |text: &str| ItemId::parse(text).map_err(|invalid| invalid.reason);
    if let HookAction::Execute { item_type, item_id, params } = action {
        let item_id = id(&item_id)?;
        return match item_type {
            ItemKind::Tool => Ok(Call::Tool { item_id, parameters: params }),
            ItemKind::Knowledge => Ok(Call::Knowledge { item_id }),
            ItemKind::Directive => {
                let inputs = if let Value::Object(map) = params { map } else { Map::new() };
                let (model, limit_overrides) = (None, Map::new());
                Ok(Call::Directive(ChildStart { directive: item_id, inputs, model, limit_overrides }))
            }
            ItemKind::Config => Err("a hook cannot execute settings".into()),
        };
    }
    if let HookAction::Fetch { item_type, item_id, .. } = action {
        let (item_type, item_id) = (kind(item_type)?, id(&item_id)?);
        return Ok(Call::Fetch(FetchRequest::Item { item_type, item_id, offset: 0, limit: None }));
    }
    if let HookAction::Sign { item_type, item_id } = action {
        return Ok(Call::Sign(SignRequest { item_type: kind(item_type)?, item_id: id(&item_id)? }));
    }
    Err("this action starts nothing".into())
}

fn kind(kind: ItemKind) -> Result<ItemType, String> {
    match kind {
        ItemKind::Tool => Ok(ItemType::Tool),
        ItemKind::Directive => Ok(ItemType::Directive),
        ItemKind::Knowledge => Ok(ItemType::Knowledge),
        ItemKind::Config => Err("settings are no item of a hook".into()),
    }
}
