//! A tool item: its file and what it declares.

use std::sync::Arc;

use rye_grammar::Span;
use rye_grammar::tool_header::{self, ToolLanguage};

use super::FileRef;
use crate::diagnostics::{Diagnostics, ItemError};
use crate::tool_spec::{ToolFaultCode, ToolSpec};

#[derive(Debug, Clone)]
pub struct Tool {
    pub file: FileRef,
    pub spec: Arc<ToolSpec>,
}

/// From the text of a tool file.
pub fn read(file: FileRef, text: &str, found: &mut Diagnostics) -> Option<Tool> {
    let Some(language) = language(&file.path) else {
        let ending = file.path.rsplit('.').next().unwrap_or_default().to_owned();
        let span = Span::new(file.source, 0, 0);
        found.push(ItemError::Unsupported { id: file.id.to_string(), ending, span });
        return None;
    };
    let parsed = tool_header::parse(file.source, text, language);
    let unread = !parsed.errors.is_empty();
    found.syntax(parsed.errors);
    match ToolSpec::read(&parsed.tree.metadata) {
        Ok(spec) => Some(Tool { file, spec: Arc::new(spec) }),
        Err(faults) => {
            // What could not be parsed has no keys; saying so as well would only hide the first error.
            if !unread {
                for fault in faults {
                    let (message, span, label, help) = (fault.message, fault.span, fault.label, fault.help);
                    found.push(match fault.code {
                        ToolFaultCode::UnknownKey => ItemError::ToolKey { message, span, label, help },
                        ToolFaultCode::MissingKey => ItemError::ToolMissing { message, span, label, help },
                        ToolFaultCode::BadValue => ItemError::ToolValue { message, span, label, help },
                    });
                }
            }
            None
        }
    }
}

/// `None` for languages whose metadata has no reader yet: nothing is guessed from their text.
fn language(path: &str) -> Option<ToolLanguage> {
    match path.rsplit('.').next() {
        Some("yaml" | "yml") => Some(ToolLanguage::Yaml),
        Some("sh") => Some(ToolLanguage::Shell),
        Some(_) | None => None,
    }
}
