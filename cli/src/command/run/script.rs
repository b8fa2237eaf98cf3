//! `--script FILE`: a script replaces every model of the plan.

use std::path::Path;
use std::sync::Arc;

use rye_compiler::plan::PlannedModel;
use rye_engine::engine::Providers;
use rye_engine::exchange::CallError;
use rye_engine::provider::Provider;
use rye_engine::provider::scripted::{Scripted, read_script};

use crate::CommandError;

/// A parsed script, used for every model.
pub struct ScriptedProviders(Arc<Scripted>);

impl ScriptedProviders {
    pub fn read(path: &Path) -> Result<Self, CommandError> {
        let shown = path.display();
        let script =
            read_script(path).map_err(|error| CommandError::usage(format!("the script `{shown}`: {error}")))?;
        Ok(Self(Arc::new(Scripted::new(script))))
    }
}

impl Providers for ScriptedProviders {
    fn connect(&self, _model: &PlannedModel) -> Result<Arc<dyn Provider>, CallError> {
        Ok(Arc::clone(&self.0) as Arc<dyn Provider>)
    }
}
