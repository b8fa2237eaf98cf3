//! In-memory worlds of the standard library and the deploy example.

use crate::world::{MapWorld, Space};

macro_rules! files {
    ($root:literal, $($path:literal),* $(,)?) => {
        &[$((concat!(".ai/", $path), include_str!(concat!("../../../../", $root, "/.ai/", $path)))),*]
    };
}

const STDLIB: &[(&str, &str)] = files![
    "stdlib",
    "config/agent/capability_risk.yaml",
    "config/agent/coordination.yaml",
    "config/agent/hook_conditions.yaml",
    "config/agent/models.yaml",
    "config/agent/providers/anthropic.yaml",
    "config/agent/providers/openai.yaml",
    "config/agent/providers/scripted.yaml",
    "config/agent/resilience.yaml",
    "directives/rye/agent/core/base.md",
    "directives/rye/agent/core/continuation.md",
    "knowledge/rye/agent/core/Behavior.md",
    "knowledge/rye/agent/core/DirectiveInstruction.md",
    "knowledge/rye/agent/core/Environment.md",
    "knowledge/rye/agent/core/Identity.md",
    "knowledge/rye/agent/core/protocol/execute.md",
    "knowledge/rye/agent/core/protocol/fetch.md",
    "knowledge/rye/agent/core/protocol/sign.md",
    "tools/rye/bash/bash.yaml",
    "tools/rye/file-system/edit.yaml",
    "tools/rye/file-system/glob.yaml",
    "tools/rye/file-system/grep.yaml",
    "tools/rye/file-system/ls.yaml",
    "tools/rye/file-system/read.yaml",
    "tools/rye/file-system/write.yaml",
];

pub const DEPLOY: &[(&str, &str)] = files![
    "examples/deploy",
    "config/agent/hooks.yaml",
    "directives/deploy_staging.md",
    "directives/project/deploy/base.md",
    "knowledge/project/deploy/canary-rules.md",
    "knowledge/project/deploy/completion-checklist.md",
    "knowledge/project/deploy/environment-rules.md",
    "knowledge/rye/agent/core/Identity.md",
    "tools/project/deploy/rollout.yaml",
];

/// Returns a world with only the standard library, as the system space.
pub fn stdlib_world() -> MapWorld<'static> {
    STDLIB.iter().fold(MapWorld::new(), |world, (path, text)| world.with(Space::System, path, text))
}

/// Returns the deploy chain of the specification, over the standard library.
pub fn deploy_world() -> MapWorld<'static> {
    DEPLOY.iter().fold(stdlib_world(), |world, (path, text)| world.project(path, text))
}

/// Returns a small world that does not depend on the standard library.
pub fn minimal_world() -> MapWorld<'static> {
    let world = MapWorld::new().with(
        Space::System,
        ".ai/config/agent/models.yaml",
        "{ default_provider: main, default_tier: general, aliases: { sonnet: general } }",
    );
    let world = world.with(
        Space::System,
        ".ai/config/agent/providers/main.yaml",
        "wire: anthropic\nbase_url: https://main.test\ntiers: { fast: small, general: large }\nmodels:\n\
         - { id: small, context_window: 1000, max_output: 100, prices: { input: 1, output: 5 } }\n\
         - { id: large, context_window: 2000, max_output: 500, prices: { input: 2, output: 10 } }\n",
    );
    let world = world.with(
        Space::System,
        ".ai/config/agent/resilience.yaml",
        "limits: { turns: 15, tokens: 200000, spend: 0.50, spawns: 10, depth: 5, duration_seconds: 600, output: 8192 }\n\
         tool_preload: { enabled: true, max_tokens: 100 }\n",
    );
    world.with(Space::System, ".ai/tools/rye/look.yaml", tool("Look at it.")).with(
        Space::System,
        ".ai/tools/rye/touch.yaml",
        tool("Touch it."),
    )
}

/// Returns the text of a tool file.
pub fn tool(description: &str) -> String {
    format!("description: {description}\nkind: builtin\nbuiltin: read\nparameters: {{ type: object }}\n")
}

/// Returns the text of a directive file with these root attributes, metadata and body.
pub fn directive_file(id: &str, attributes: &str, inside: &str, body: &str) -> String {
    let name = id.rsplit('/').next().unwrap_or(id);
    format!(
        "# Title\n\n```xml\n<directive name=\"{name}\" version=\"1.0.0\"{attributes}>\n{inside}\n</directive>\n```\n\n{body}\n"
    )
}

/// Adds directives to a project.
pub fn with_directives<'w>(world: MapWorld<'w>, all: &[(&str, &str, &str, &str)]) -> MapWorld<'w> {
    all.iter().fold(world, |world, (id, attributes, inside, body)| {
        world.project(&format!(".ai/directives/{id}.md"), directive_file(id, attributes, inside, body))
    })
}
