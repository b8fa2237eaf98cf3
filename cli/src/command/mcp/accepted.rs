//! The trust that `rye mcp add` and `rye mcp refresh` record: in the items that they wrote, and in the requirements
//! whose files they changed. Nothing else of the project becomes trusted.

use std::collections::BTreeSet;

use rye_compiler::report::workspace_trust::requirements_of_workspace;
use rye_compiler::trust::{Subject, TrustRequirement};
use rye_compiler::world::World;
use rye_engine::tool::mcp::{McpServer, config};
use rye_engine::trust::{InspectedRequirement, WrittenFile};

use crate::CommandError;
use crate::command::trust::trust_requirements;
use crate::workspace::Spaces;

/// The items of the servers' current tools.
#[derive(Debug, Default)]
pub struct AcceptedItems {
    /// The items, with the hashes of the contents that the command wrote or compared.
    pub items: BTreeSet<Subject>,
    pub written: Vec<WrittenFile>,
}

/// The trusted requirements of the project before the command writes a file.
#[derive(Debug)]
pub struct HeldTrust {
    requirements: Vec<InspectedRequirement>,
}

impl HeldTrust {
    pub fn read(world: &dyn World, spaces: &Spaces) -> Result<Self, CommandError> {
        let mut all = trust_requirements(world, spaces);
        all.retain(|one| !one.programs.is_empty());
        Ok(Self { requirements: spaces.trust().snapshot()?.held(&all)? })
    }

    /// Records trust in a new server and its items. If there is a terminal, the caller has asked the user before.
    pub fn record_with_server(
        mut self,
        server: Vec<InspectedRequirement>,
        accepted: &AcceptedItems,
        spaces: &Spaces,
    ) -> Result<(), CommandError> {
        if spaces.own {
            return Ok(());
        }
        spaces.trust().record_inspected(&server)?;
        self.requirements.extend(server);
        self.record(accepted, spaces)
    }

    /// Records trust in the items of a refresh. No question is needed: the user already trusts the servers, and has
    /// accepted the changes of their tools. An item that another program has changed since then stays untrusted.
    pub fn record(&self, accepted: &AcceptedItems, spaces: &Spaces) -> Result<(), CommandError> {
        if spaces.own {
            return Ok(());
        }
        let is_accepted = |one: &TrustRequirement| {
            one.programs.is_empty()
                && !one.subjects.is_empty()
                && one.subjects.iter().all(|file| accepted.items.contains(file))
        };
        let mut items = requirements_of_workspace(&spaces.open()?);
        items.retain(is_accepted);
        let trust = spaces.trust();
        if !items.is_empty() {
            trust.record_trust(&items)?;
        }
        if !accepted.written.is_empty() {
            trust.record_written(&self.requirements, &accepted.written)?;
        }
        Ok(())
    }
}

/// Reads the files of a new server before it starts.
pub fn inspect_server(server: &McpServer, spaces: &Spaces) -> Result<Vec<InspectedRequirement>, CommandError> {
    if spaces.own {
        return Ok(Vec::new());
    }
    Ok(spaces.trust().inspect(config::trust_requirement(server).as_slice())?)
}
