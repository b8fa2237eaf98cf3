//! The error that prevents the plan of one side of a comparison.

use rye_grammar::Sources;

use crate::diagnostics::Diagnostics;
use crate::plan::source::SourceReport;

/// The first error of a directive without a plan, and its location.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SideError {
    pub text: String,
    pub source: Option<SourceReport>,
}

impl SideError {
    /// Returns the first error of `diagnostics`, whose spans refer to `sources`.
    pub fn find(diagnostics: &Diagnostics, sources: &Sources) -> Self {
        let Some(error) = diagnostics.iter().find(|diagnostic| diagnostic.is_error()) else {
            return Self { text: "no plan".to_owned(), source: None };
        };
        let labels = error.labels();
        let source = labels.first().and_then(|label| {
            let source = sources.get(label.span.source)?;
            let position = source.position(label.span.start);
            let file = source.path.to_string();
            Some(SourceReport { file, line: position.line, column: position.column })
        });
        let source =
            source.or_else(|| error.file().map(|file| SourceReport { file: file.to_owned(), line: 1, column: 1 }));
        Self { text: format!("{}: {}", error.code(), error.message()), source }
    }
}
