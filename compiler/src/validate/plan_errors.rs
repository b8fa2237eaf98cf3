//! The errors that prevent the plans of some directives. They can be in any file that the plan of a directive reads: a
//! base, a knowledge item, a tool, a hook file or another settings file.

use std::collections::HashSet;

use rye_grammar::{ItemId, Sources};

use super::check_composed;
use super::settings::{ReportedPlaces, check_run_settings};
use crate::compose::compose_all;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::item::{Items, ModelRequest};
use crate::lower::cache::LowerContext;
use crate::lower::try_lower;
use crate::plan::PlanMode;
use crate::resolve::{Inputs, Launch};
use crate::world::World;

/// A set of errors of one state of a project. An error has the same identity in each check of this state.
#[derive(Default)]
pub(super) struct PlanErrors(HashSet<ErrorIdentity>);

/// The code, the message, and the path and byte range of the first label.
type ErrorIdentity = (&'static str, String, Option<(String, u32, u32)>);

impl PlanErrors {
    /// Finds the errors that `rye plan`, `rye run` or `rye chat` reports for one of the directives, on any route.
    pub fn find(world: &dyn World, directives: &[ItemId]) -> Self {
        if directives.is_empty() {
            return Self::default();
        }
        let items = Items::new(world);
        let shared = LowerContext::new(&items);
        let model = |requested: Option<&ModelRequest>| shared.declared_model(requested).ok().map(|one| one.id.clone());
        let launch = Launch { inputs: Inputs::Unknown, model: &model };
        let mut found = Diagnostics::new();
        for id in directives {
            let (all, _) = compose_all(&items, id, &launch, &mut found);
            for composed in &all {
                check_composed(&shared, composed, &mut found);
                try_lower(&shared, composed, &mut found);
                super::reached_calls::check(&items, composed, PlanMode::Chat, &mut found);
            }
        }
        super::undeclared_fields::check_project(&items, world, &mut found);
        for mode in [PlanMode::Run, PlanMode::Chat] {
            let loaded = shared.catalog().loaded();
            let loaded = loaded.iter().map(String::as_str);
            check_run_settings(&items, mode, loaded, &mut ReportedPlaces::default(), &mut found);
        }
        found.append(shared.diagnostics());
        shared.check_tiers(&mut found);
        found.append(items.diagnostics());
        let sources = items.sources();
        Self(found.iter().filter(|one| one.is_error()).map(|error| identity(error, &sources)).collect())
    }

    pub fn contains(&self, diagnostic: &Diagnostic, sources: &Sources) -> bool {
        diagnostic.is_error() && self.0.contains(&identity(diagnostic, sources))
    }
}

fn identity(error: &Diagnostic, sources: &Sources) -> ErrorIdentity {
    let labels = error.labels();
    let place = labels.first().and_then(|label| {
        let path = sources.get(label.span.source)?.path.to_string();
        Some((path, label.span.start, label.span.end))
    });
    (error.code(), error.message(), place)
}
