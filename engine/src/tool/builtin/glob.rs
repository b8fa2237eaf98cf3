//! `rye/file-system/glob`: finds files by a pattern over their path.

use std::ops::ControlFlow;

use globset::{GlobBuilder, GlobMatcher};
use serde::Deserialize;

use super::text::format_count;
use super::{MAX_RESULT_BYTES, ToolFailure, ToolOutcome, ToolResult};
use crate::tool::cancellation::StopCondition;
use crate::tool::confine::ProjectFiles;
use crate::tool::confine::walk::{Dotfiles, WalkEnd};

/// Maximum number of returned paths if the call sets no maximum.
const DEFAULT_MAX_PATHS: usize = 200;
/// Maximum size of a pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GlobParameters {
    pattern: String,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    limit: Option<usize>,
}

/// A pattern over paths below a folder. A pattern without a slash matches names at any depth.
pub struct PathPattern {
    matcher: GlobMatcher,
    names_only: bool,
    pub dotfiles: Dotfiles,
}

impl PathPattern {
    pub fn read(text: &str) -> Result<Self, String> {
        if text.len() > MAX_PATTERN_BYTES {
            return Err("the pattern is too long".into());
        }
        let pattern = text.strip_prefix("./").unwrap_or(text);
        if pattern.starts_with('/') || pattern.split('/').any(|s| s == "..") {
            return Err(format!("`{text}` leads out of the folder; patterns are relative to `path`"));
        }
        let glob = GlobBuilder::new(pattern).literal_separator(true).backslash_escape(true).build();
        let matcher = glob.map_err(|e| format!("`{text}` is not a valid pattern: {}", e.kind()))?.compile_matcher();
        let dotted = pattern.split('/').any(|s| s.starts_with('.'));
        Ok(Self {
            matcher,
            names_only: !pattern.contains('/'),
            dotfiles: if dotted { Dotfiles::Visit } else { Dotfiles::Skip },
        })
    }

    pub fn matches(&self, below: &std::path::Path) -> bool {
        if self.names_only {
            return below.file_name().is_some_and(|n| self.matcher.is_match(n));
        }
        self.matcher.is_match(below)
    }
}

pub fn run(project: &ProjectFiles, parameters: &GlobParameters, stop: &StopCondition) -> ToolResult {
    let pattern = PathPattern::read(&parameters.pattern)?;
    let place = project.locate(parameters.path.as_deref().unwrap_or("."))?;
    let dir = place.folder()?;
    let limit = parameters.limit.unwrap_or(DEFAULT_MAX_PATHS).max(1);
    let mut text = String::new();
    let (mut shown, mut found) = (0_usize, 0_usize);
    let ended = project.walk(&place.path, dir, pattern.dotfiles, stop, &mut |seen| {
        if pattern.matches(seen.below) {
            found += 1;
            let line = format!("{}\n", seen.path);
            if found <= limit && text.len() + line.len() <= MAX_RESULT_BYTES && shown + 1 == found {
                text.push_str(&line);
                shown += 1;
            }
        }
        ControlFlow::Continue(())
    })?;
    if found == 0 {
        text.push_str("[no file matches]\n");
    } else if shown < found {
        text.extend([format!("[{shown} of {}; narrow the pattern]\n", format_count(found, "file"))]);
    }
    if ended == WalkEnd::CutShort {
        text.push_str("[stopped before all files were checked; name a smaller folder in `path`]\n");
    }
    if text.is_empty() {
        return Err(ToolFailure("every path that matches is too long for the result".into()));
    }
    Ok(ToolOutcome::ok(text))
}
