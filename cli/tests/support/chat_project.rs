//! Files of projects with a chat: commands of the settings, and a provider whose model is a recording server.

#![allow(dead_code, reason = "each test file uses a part of it")]

use crate::recorder::{ApiFormat, Recorder};
use crate::rye::TestProject;

/// Commands whose answers are shown, and sent with the next prompt.
const COMMANDS: &str = r#"commands:
  - id: where
    execute: { item_type: tool, item_id: team/answer, params: { action: show, text: "of ${args}" } }
  - id: later
    execute: { item_type: tool, item_id: team/answer, params: { action: next_turn, text: "Also ${args}." } }
"#;
const ANSWER: &str = r#"#!/bin/sh
# rye: {description: Answers a command., parameters: {type: object, properties: {action: {type: string}, text: {type: string}}}}
printf '{"action":"%s","text":"%s"}' "$RYE_PARAM_action" "$RYE_PARAM_text"
"#;

/// Declares the commands `/where`, whose answer is shown, and `/later`, whose answer is sent with the next prompt.
pub fn write_commands(place: &TestProject) {
    place.write(".ai/config/agent/chat.yaml", COMMANDS);
    place.write(".ai/tools/team/answer.sh", ANSWER);
}

/// Adds layers to the system prompt: an appended knowledge item, and the tool `team/words` with a snippet and a guideline.
pub fn write_system_layers(place: &TestProject) {
    place.write(".ai/config/agent/chat.yaml", &format!("{COMMANDS}append_system: team/rules\n"));
    place.write(".ai/knowledge/team/rules.md", "Rules of the team.\n");
    place.write(
        ".ai/tools/team/words.yaml",
        "description: Counts words.\nkind: command\ncommand: [wc, -w]\nsnippet: Count words\n\
         guidelines: [Count before you write.]\n",
    );
}

/// Declares the provider `local`, whose model is the server.
pub fn write_provider(place: &TestProject, server: &Recorder, wire: ApiFormat) {
    let (wire, url) = (wire.names().0, &server.url);
    place.write(
        ".ai/config/agent/providers/local.yaml",
        &format!(
            "id: local\nwire: {wire}\nbase_url: {url}\ndefault_tier: fast\ntiers: {{ fast: m }}\nmodels:\n  \
             - {{ id: m, context_window: 200000, max_output: 2000, tool_use: native, prices: {{ input: \"1\", output: \"5\" }} }}\n",
        ),
    );
}
