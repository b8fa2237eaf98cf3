//! A tool item: its file and what it declares.

use std::sync::Arc;

use super::FileRef;
use crate::tool_spec::ToolSpec;

#[derive(Debug, Clone)]
pub struct Tool {
    pub file: FileRef,
    pub spec: Arc<ToolSpec>,
}
