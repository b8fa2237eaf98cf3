//! Generator of projects from a seed: chains, routes, conditions, hooks of both spellings, inputs, suppression,
//! placeholders and children, combined so that each project compiles. Equal seeds produce equal projects.

#[path = "../../../compiler/tests/differential/rng.rs"]
mod rng;

use std::fmt::Write as _;

use rng::Rng;
use serde_json::{Map, Value, json};

/// A generated project and the inputs of its run.
pub struct GeneratedProject {
    /// Text by path inside the project.
    pub files: Vec<(String, String)>,
    /// Inputs of the directive `main`.
    pub inputs: Map<String, Value>,
    /// The script that the run plays (`docs/reference/scripted.md`).
    pub script: String,
}

const NOTE_COUNT: usize = 6;

const FILLER_WORDS: [&str; 16] = [
    "amber",
    "birch",
    "`code`",
    "dänisch",
    "</directive>",
    "ember",
    "${thread_id}",
    "$${",
    "\\{input:topic}",
    "<b>",
    "ōsaka",
    "\"quoted\"",
    "100 %",
    "a\tb",
    "</Note>",
    "last",
];

/// Conditions in both spellings: known at compile time, known only at run time, always true, never true.
const CONDITIONS: [&str; 14] = [
    "'directive == \"main\"'",
    "'directive != \"main\"'",
    "'inputs.topic == \"tea\"'",
    "'inputs.count >= 3 || !(inputs.topic contains \"e\")'",
    "'exists(inputs.topic) && length(inputs.topic) > 3'",
    "'model matches \"^claude\"'",
    "'category == \"\" or category == \"parts\"'",
    "'limits.turns > 5 && limits.spend <= 0.5'",
    "'depth > 0'",
    "'thread_id contains \"main\"'",
    "{ path: directive, op: in, value: [main, other] }",
    "{ any: [ { path: inputs.count, op: gt, value: 4 }, { path: directive, value: helper } ] }",
    "{ not: { path: inputs.topic, op: exists } }",
    "{ all: [ { path: capabilities_summary, op: exists }, { path: parent_thread_id, op: exists, value: false } ] }",
];

/// Number of conditions at the start of `CONDITIONS` whose facts exist at every event.
const UNIVERSAL_CONDITIONS: usize = 8;

pub fn project(seed: u64) -> GeneratedProject {
    let rng = &mut Rng::new(1_000 + seed);
    let mut files: Vec<(String, String)> = (0..NOTE_COUNT).map(|n| note(rng, n)).collect();
    let has_child = rng.once_in(2);
    let has_outputs = rng.once_in(3);
    let links = 1 + rng.below(4);
    for link in 0..links - 1 {
        let parent = match link.checked_sub(1) {
            Some(above) => format!("parts/base{above}"),
            None if rng.once_in(2) => "rye/agent/core/base".to_owned(),
            None => String::new(),
        };
        files.push(directive(rng, &format!("parts/base{link}"), &parent, "", "Never sent."));
    }
    files.push(directive(rng, "parts/other", "", "", "Never sent either."));
    let parent = links.checked_sub(2).map(|above| format!("parts/base{above}")).unwrap_or_default();
    let mut interface = String::from(
        "  <inputs>\n    <input name=\"topic\" type=\"string\" required=\"true\">what about</input>\n    \
         <input name=\"count\" type=\"integer\" default=\"2\">how many</input>\n    \
         <input name=\"spare\" type=\"string\">perhaps</input>\n  </inputs>\n",
    );
    if has_outputs {
        interface.push_str(
            "  <outputs><output name=\"answer\" type=\"string\" required=\"true\">what was found</output></outputs>\n",
        );
    }
    let body = format!(
        "Write {{input:count}} lines about {{input:topic}} {}\nand {{input:spare?}}, {{input:spare:or nothing}} {}",
        sentence(rng),
        sentence(rng)
    );
    files.push(directive(rng, "main", &parent, &interface, &body));
    let helper = format!("Help a little. {}", sentence(rng));
    let above = if rng.once_in(2) { "parts/other" } else { "" };
    files.push(directive(rng, "helper", above, "", &helper));
    files.push((".ai/config/agent/hooks.yaml".into(), hooks(rng)));
    files.push(("plain.txt".into(), format!("{}\n", sentence(rng))));
    let mut inputs = Map::from_iter([(
        "topic".to_owned(),
        json!(rng.one_of(&["tea", "${turn}", "</directive> {input:count}", "ß"])),
    )]);
    if rng.once_in(2) {
        inputs.insert("count".into(), json!(rng.below(7)));
    }
    if rng.once_in(3) {
        inputs.insert("spare".into(), json!(sentence(rng)));
    }
    GeneratedProject { files, inputs, script: script(has_child, has_outputs) }
}

fn sentence(rng: &mut Rng) -> String {
    let words: Vec<&str> = (0..2 + rng.below(6)).map(|_| rng.one_of(&FILLER_WORDS)).collect();
    // Some words look like placeholders, escapes or markup.
    words.join(" ")
}

fn note(rng: &mut Rng, n: usize) -> (String, String) {
    let name = if rng.once_in(3) { "name: Note\n" } else { "" };
    let placeholders = [
        "${directive}",
        "${inputs.topic}",
        "${thread_id}",
        "${nothing.here || \"none\"}",
        "${inputs.count || \"many\"}",
        "{input:topic}",
        "",
    ];
    let text = format!("Note {n}: {} {} {}", sentence(rng), rng.one_of(&placeholders), rng.one_of(&placeholders));
    (format!(".ai/knowledge/notes/n{n}.md"), format!("---\n{name}description: Note {n}.\n---\n\n{text}\n"))
}

fn directive(rng: &mut Rng, id: &str, parent: &str, interface: &str, body: &str) -> (String, String) {
    let name = id.rsplit('/').next().unwrap();
    let extends = if parent.is_empty() { String::new() } else { format!(" extends=\"{parent}\"") };
    let mut metadata = String::new();
    if !rng.once_in(4) {
        metadata.push_str("    <context>");
        for place in ["system", "before", "after"] {
            for _ in 0..rng.below(3) {
                let _ = write!(metadata, "<{place}>notes/n{}</{place}>", rng.below(NOTE_COUNT));
            }
        }
        if rng.once_in(3) {
            let _ = write!(
                metadata,
                "<suppress>{}</suppress>",
                rng.one_of(&["notes/n1", "notes/n4", "hook0", "hook3", "rye/agent/core/Identity"])
            );
        }
        // The standard library's text about a thread contains placeholders in every thread.
        if matches!(name, "main" | "helper") && !rng.once_in(3) {
            metadata.push_str("<suppress>ctx_environment</suppress>");
        }
        metadata.push_str("</context>\n");
    }
    if name == "main" {
        metadata.push_str("    <permissions><execute><directive>helper</directive><tool>rye.file-system.read</tool></execute><fetch><knowledge>notes.*</knowledge></fetch></permissions>\n    <nudge>never</nudge>\n");
    } else if rng.once_in(4) {
        metadata.push_str("    <permissions><execute><tool>rye.file-system.read</tool></execute></permissions>\n");
    }
    if rng.once_in(4) {
        let _ = writeln!(metadata, "    <limits turns=\"{}\" spend=\"0.2\"/>", 4 + rng.below(8));
    }
    if rng.once_in(3) {
        let _ = writeln!(
            metadata,
            "    <hooks><hook id=\"own_{name}\" event=\"thread_started\" position=\"{}\" wrap=\"{}\"><when>{}</when><fetch item_type=\"knowledge\" item_id=\"notes/n{}\"/></hook></hooks>",
            rng.one_of(&["before", "after"]),
            rng.one_of(&["true", "false"]),
            rng.one_of(&["true", "directive contains \"a\"", "depth == 0", "limits.turns &lt; 9"]),
            rng.below(NOTE_COUNT),
        );
    }
    let text = format!(
        "# {name}\n\n```xml\n<directive name=\"{name}\" version=\"1.0.0\"{extends}>\n  <metadata>\n    <description>The {name}.</description>\n{metadata}  </metadata>\n{interface}</directive>\n```\n\n{body}\n"
    );
    (format!(".ai/directives/{id}.md"), text)
}

fn hooks(rng: &mut Rng) -> String {
    let mut text = String::from("hooks:\n");
    if rng.once_in(3) {
        let condition = rng.one_of(&["'inputs.topic == \"tea\"'", "'directive == \"helper\"'", "'inputs.count > 2'"]);
        let _ = write!(
            text,
            "  - id: route\n    event: resolve_extends\n    condition: {condition}\n    action: {{ set_extends: parts/other }}\n"
        );
    }
    for n in 0..=rng.below(6) {
        let event = rng.one_of(&["thread_started", "thread_started", "build_system_prompt", "thread_continued"]);
        let _ =
            write!(text, "  - id: hook{n}\n    event: {event}\n    position: {}\n", rng.one_of(&["before", "after"]));
        if rng.once_in(3) {
            let _ = writeln!(text, "    layer: {}", rng.one_of(&["0", "1", "2.5", "3"]));
        }
        if rng.once_in(3) {
            text.push_str("    wrap: false\n");
        }
        if !rng.once_in(3) {
            let known = if event == "thread_started" { CONDITIONS.len() } else { UNIVERSAL_CONDITIONS };
            let _ = writeln!(text, "    condition: {}", CONDITIONS[rng.below(known)]);
        }
        if event == "thread_started" && rng.once_in(4) {
            text.push_str("    action: { primary: execute, item_type: tool, item_id: rye/file-system/read, params: { path: plain.txt } }\n");
        } else {
            let _ = writeln!(
                text,
                "    action: {{ primary: fetch, item_type: knowledge, item_id: notes/n{} }}",
                rng.below(NOTE_COUNT)
            );
        }
    }
    text
}

fn script(has_child: bool, has_outputs: bool) -> String {
    let mut text = String::from("threads:\n  helper:\n    - Helped.\n    - Helped again.\n  main:\n");
    if has_child {
        text.push_str(
            "    - tool_calls:\n        - { name: rye_execute, input: { item_type: directive, item_id: helper } }\n",
        );
    }
    if has_outputs {
        text.push_str(
            "    - tool_calls:\n        - { name: rye_directive_return, input: { status: success, answer: found } }\n",
        );
    }
    text.push_str("    - Done.\n    - Done again.\nsteps:\n  - Done.\n");
    text
}
