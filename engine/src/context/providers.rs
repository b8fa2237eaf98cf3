//! Connections to the providers that plans name. Endpoint and key come from the current provider files, not from the
//! plan, because a plan can come from an unknown origin.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rye_compiler::diagnostics::Diagnostics;
use rye_compiler::item::Items;
use rye_compiler::model;
use rye_compiler::plan::PlannedModel;
use rye_compiler::trust::script_of;
use rye_grammar::ItemId;
use serde_json::Value;

use super::{OpenWorld, Providers};
use crate::exchange::{CallError, FailedStage};
use crate::provider::catalog::connection_settings;
use crate::provider::environment::ProviderEnvironment;
use crate::provider::{Provider, connect_provider};
use crate::trust::Trust;

/// Connections to the providers that plans name.
pub(crate) struct PlanProviders {
    pub environment: ProviderEnvironment,
    pub project: PathBuf,
    pub trust: Trust,
    pub world: OpenWorld,
    /// Provider files by id, each read when it is first needed; `None` for a file that is missing or invalid.
    pub present: Mutex<BTreeMap<String, Option<model::Provider>>>,
}

impl PlanProviders {
    /// Returns the provider as its current files define it. A plan can come from a transcript of unknown origin, so the
    /// plan must not determine where the key is sent.
    fn provider_from_files(&self, model: &PlannedModel) -> Result<model::Provider, CallError> {
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        if !present.contains_key(&model.provider) {
            let world = (self.world)().map_err(|error| CallError::new(FailedStage::Setup, error))?;
            let items = Items::new(&*world);
            let node = items.config_by_name(&format!("agent/providers/{}", model.provider));
            let read = node.and_then(|node| {
                model::read_provider(&model.provider, &node, &items.sources(), &mut Diagnostics::new())
            });
            present.insert(model.provider.clone(), read);
        }
        let found = present.get(&model.provider).cloned().flatten();
        found.filter(|provider| provider.wire == model.wire).ok_or_else(|| {
            let (id, wire) = (&model.provider, &model.wire);
            let message = format!(
                "the plan needs provider `{id}` with wire format `{wire}`, but no valid provider file declares it now"
            );
            CallError::new(FailedStage::Setup, message)
        })
    }
}

/// The code of an error of a provider that the user does not trust.
const UNTRUSTED: &str = "untrusted_provider";

impl PlanProviders {
    /// Checks that the user trusts the content of the script that `connection` names. Otherwise, or if the trust cannot
    /// be read, returns an error with the code [`UNTRUSTED`].
    fn admit_script(&self, connection: &Value) -> Result<(), CallError> {
        let Some(script) = script_of(connection) else { return Ok(()) };
        let fail =
            |text: String| CallError { code: Some(UNTRUSTED.to_owned()), ..CallError::new(FailedStage::Setup, text) };
        let now = self.trust.snapshot().map_err(|error| fail(error.to_string()))?;
        let missing = now.missing(std::slice::from_ref(&script)).map_err(|error| fail(error.to_string()))?;
        if missing.is_empty() {
            return Ok(());
        }
        Err(fail(format!("the script `{}` is not trusted; inspect it, then trust it with `rye trust`", script.name)))
    }
}

impl Providers for PlanProviders {
    fn reads_scripts(&self, _directive: &ItemId) -> bool {
        true
    }

    fn connect(&self, model: &PlannedModel) -> Result<Arc<dyn Provider>, CallError> {
        let model::Provider { connection, from_project, .. } = self.provider_from_files(model)?;
        if model.wire == model::SCRIPTED_WIRE {
            self.admit_script(&connection)?;
        }
        let mut settings = connection_settings(&connection, &self.environment, &self.project)?;
        let trusted = || self.trust.snapshot().is_ok_and(|trusted| trusted.trusts_provider(&model.provider));
        if !from_project.is_empty() && settings.key.is_some() && !trusted() {
            // The project changed this provider (for example, its URL), and the user does not trust the change. The key
            // could be sent to an unknown server.
            settings.key = None;
            let message = format!(
                "the project sets `{}` of provider `{}`, which could send your API key to another server; \
                 review the provider file, then trust it with `rye trust`",
                from_project.join("`, `"),
                model.provider
            );
            return Err(CallError { code: Some(UNTRUSTED.to_owned()), ..CallError::new(FailedStage::Setup, message) });
        }
        connect_provider(&settings)
    }
}
