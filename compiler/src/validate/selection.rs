//! The part of a project to report on: the whole project, or some files and the chains of some directives.

use rye_grammar::{ItemId, SourceId};

use super::plan_errors::PlanErrors;
use crate::diagnostics::{ConfigError, Diagnostic, Diagnostics, ItemError};
use crate::item::Items;

/// The part of a project whose diagnostics a check reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Selection {
    /// The whole project.
    #[default]
    All,
    /// The diagnostics of the files at these paths, the diagnostics of the extends chains of the directives among these
    /// files, and the errors in other files that prevent the plans of these directives. A folder stands for all files
    /// in it. The paths have the form that diagnostics print.
    Paths(Vec<String>),
}

/// Number of the selected directives; if paths select the directives, also their ids and the files of their chains.
pub struct SelectedDirectives<'s> {
    selection: &'s Selection,
    pub directives: usize,
    ids: Vec<ItemId>,
    sources: Vec<SourceId>,
}

impl<'s> SelectedDirectives<'s> {
    pub fn new(selection: &'s Selection) -> Self {
        Self { selection, directives: 0, ids: Vec::new(), sources: Vec::new() }
    }

    /// Counts a directive of the project if the selection contains the directive. If paths select the directives, also
    /// adds `chain`, the files of the directive's chain.
    pub fn add(&mut self, items: &Items<'_>, id: &ItemId, chain: &[SourceId]) {
        let Selection::Paths(paths) = self.selection else {
            self.directives += 1;
            return;
        };
        let path = items.directive(id).map_or_else(|| format!(".ai/directives/{id}.md"), |d| d.file.path.to_string());
        if is_under(&path, paths) {
            self.directives += 1;
            self.ids.push(id.clone());
            self.sources.extend(chain);
        }
    }

    /// Removes the diagnostics that do not belong to the selection.
    pub fn retain_selected(&self, items: &Items<'_>, found: &mut Diagnostics) {
        let Selection::Paths(paths) = self.selection else { return };
        let sources = items.sources();
        let plan_errors = PlanErrors::find(items.world(), &self.ids);
        found.retain(|diagnostic| {
            if let Diagnostic::Item(ItemError::Unrecognized { path, .. } | ItemError::OtherClient { path, .. })
            | Diagnostic::Config(ConfigError::UnknownFile { path, .. }) = diagnostic
            {
                return is_under(path, paths);
            }
            let labels = diagnostic.labels();
            let inside = |source: SourceId| {
                let path = sources.get(source).map(|s| s.path.as_ref()).unwrap_or_default();
                self.sources.contains(&source) || is_under(path, paths)
            };
            labels.is_empty()
                || labels.iter().any(|l| inside(l.span.source))
                || plan_errors.contains(diagnostic, &sources)
        });
    }
}

fn is_under(path: &str, selected: &[String]) -> bool {
    selected.iter().any(|s| {
        let s = s.trim_start_matches("./").trim_end_matches('/');
        s.is_empty() || s == "." || path.strip_prefix(s).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}
