//! The artifacts of a thread (`engine.md` 4): `thread.json`, `capabilities.md` and the knowledge export. The engine
//! never reads them as inputs and never syncs them. A failed write is logged and does not stop the thread.

mod export;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::context::EngineContext;
use crate::context::capabilities::with_front_matter;
use crate::driver::{Artifact, DrivenThread};
use crate::event::{Ended, Opened};
use crate::store::StoreError;
use crate::store::thread_files::{
    SNAPSHOT_VERSION, with_exact_integers, write_capabilities, write_export, write_snapshot,
};
use crate::thread::{PrintedCost, Status, dollars};
use crate::thread_id::ThreadId;

impl EngineContext {
    /// Writes the initial `thread.json` and `capabilities.md` when a thread starts or is recovered.
    pub(crate) async fn write_initial(self: &Arc<Self>, thread: &DrivenThread) {
        let fields = self.snapshot_of(thread, None);
        let (engine, id, plan) = (Arc::clone(self), thread.id.clone(), Arc::clone(&thread.plan));
        let plan_id = thread.state.plan_id.clone();
        let grants = thread.state.launch.as_deref().map(|launch| launch.grants.clone()).unwrap_or_default();
        let now = self.clock.now();
        self.write_artifact(&thread.id, "thread.json", move || {
            write_snapshot(&*engine.disk, &id, &fields, Some(&|bytes: &[u8]| engine.signer.sign(bytes)))?;
            let list = engine.capabilities_cache.list(&plan, &plan_id, &grants, &engine.project);
            let text = with_front_matter(&id, &plan_id, &list.text);
            write_capabilities(&*engine.disk, &id, &engine.signer.file(&text, &time(now)))
        })
        .await;
    }

    /// Writes the final `thread.json` and the knowledge export of an ended thread. If the process has only a temporary
    /// key, the export is not signed, because `rye fetch` rejects a file whose signature cannot be verified.
    pub(crate) async fn write_final(self: &Arc<Self>, thread: &DrivenThread, ended: &Ended, artifact: Artifact) {
        let now = self.clock.now();
        // A detached tool run has no conversation. The thread that receives the result of the run exports the result.
        let speaks = thread.state.launch.as_ref().is_none_or(|launch| launch.call.is_none());
        let exports = speaks && matches!(artifact, Artifact::Export | Artifact::Both);
        let export = exports.then(|| export::render_export(thread, ended, &time(now)));
        let fields =
            matches!(artifact, Artifact::Snapshot | Artifact::Both).then(|| self.snapshot_of(thread, Some(ended)));
        let (engine, id, directive) = (Arc::clone(self), thread.id.clone(), thread.plan.directive.clone());
        self.write_artifact(&thread.id, "the artifacts of an ended thread", move || {
            let mut written = Ok(());
            if let Some(text) = export {
                let [head, result, rest] = text.parts();
                let signature = match engine.signer.fallback_reason() {
                    None => engine.signer.signature_line(&[head, result, rest], &time(now)),
                    Some(_) => String::new(),
                };
                let parts = [signature.as_bytes(), head, result, rest];
                written = write_export(&*engine.disk, &directive, &id, &parts).map(drop);
            }
            // A failed export does not prevent the snapshot.
            let sign = |bytes: &[u8]| engine.signer.sign(bytes);
            fields.map_or(Ok(()), |fields| write_snapshot(&*engine.disk, &id, &fields, Some(&sign))).and(written)
        })
        .await;
    }

    async fn write_artifact(
        &self,
        thread: &ThreadId,
        what: &'static str,
        write: impl FnOnce() -> Result<(), StoreError> + Send + 'static,
    ) {
        match self.thread_count.run_blocking(write).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%thread, %error, "{what} cannot be written"),
            Err(error) => tracing::warn!(%thread, %error, "{what} was not written"),
        }
    }

    /// Builds the fields of `thread.json`.
    fn snapshot_of(&self, thread: &DrivenThread, ended: Option<&Ended>) -> Map<String, Value> {
        let state = &thread.state;
        let launch = state.launch.as_deref();
        let status = ended.map_or(Status::Running, |ended| ended.status);
        let own = launch.and_then(|launch| launch.grants.first());
        let capabilities: Vec<&str> = own.into_iter().flatten().map(|grant| grant.pattern.as_str()).collect();
        let limits = &state.limits;
        let head = thread.journal.head().map(|(events, hash)| json!({"events": events, "h": hash.to_string()}));
        let fields = json!({
            "thread_id": thread.id.as_str(),
            "directive": thread.plan.directive.as_str(),
            "status": status.as_str(),
            "created_at": time(state.clock.started_at),
            "updated_at": time(self.clock.now()),
            "model": state.model(&thread.plan).id,
            "limits": {
                "turns": limits.turns, "tokens": limits.tokens, "spend": dollars(limits.spend),
                "spawns": limits.spawns, "depth": limits.depth, "duration_seconds": limits.duration_seconds,
            },
            "capabilities": capabilities,
            "parent": launch.and_then(|launch| launch.parent.as_ref()).map(|parent| parent.thread_id.clone()),
            "plan_id": state.plan_id,
            "transcript": head,
            "version": SNAPSHOT_VERSION,
        });
        let mut fields = if let Value::Object(map) = with_exact_integers(&fields) { map } else { Map::new() };
        if let Some(tool) = launch.and_then(Opened::tool) {
            fields.insert("tool".into(), tool.into());
        }
        if let Some(ended) = ended {
            let cost = serde_json::to_value(PrintedCost::from(ended.cost)).unwrap_or(Value::Null);
            fields.insert("cost".into(), with_exact_integers(&cost));
            let outputs = ended.outputs.clone().map_or(Value::Null, Value::Object);
            fields.insert("outputs".into(), with_exact_integers(&outputs));
        }
        fields
    }
}

/// Formats milliseconds since 1970 as RFC 3339.
fn time(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map(|t| t.to_string()).unwrap_or_default()
}
