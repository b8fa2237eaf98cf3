//! The projects that the test edits: one with every kind of guard, and examples of the repository.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rye_compiler::world::{MapWorld, Space};

pub struct EditedProject {
    pub name: &'static str,
    /// The directive that is compared.
    pub directive: &'static str,
    pub files: BTreeMap<String, String>,
}

impl EditedProject {
    /// Returns the world of the project with changed files.
    pub fn world<'w>(&self, library: &'w MapWorld<'static>, changes: &[(String, String)]) -> MapWorld<'w> {
        let mut world = MapWorld::with_fallback(library);
        let mut files = self.files.clone();
        files.extend(changes.iter().cloned());
        for (path, text) in files {
            // An empty text removes the file.
            if !text.is_empty() {
                world.insert(Space::Project, &path, text);
            }
        }
        world
    }
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Reads the files below a folder by their path from `.ai`.
fn read_files(root: &Path, folder: &Path, files: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_files(root, &path, files);
        } else if let Ok(text) = fs::read_to_string(&path) {
            files.insert(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned(), text);
        }
    }
}

/// Returns the items of the standard library that the project with guards names, so that a check is short.
pub fn small_library() -> MapWorld<'static> {
    let is_setting =
        |path: &str| path.starts_with(".ai/config/agent/") && !path.contains("/providers/") && !path.contains("hook");
    library_of(|path| {
        is_setting(path) || ["/anthropic.", "/file-system/", "/bash/"].iter().any(|name| path.contains(name))
    })
}

/// Returns the files of the standard library with selected paths.
pub fn library_of(is_selected: impl Fn(&str) -> bool) -> MapWorld<'static> {
    let (root, mut files) = (repository().join("stdlib"), BTreeMap::new());
    read_files(&root, &root.join(".ai"), &mut files);
    files.retain(|path, _| is_selected(path));
    files.into_iter().fold(MapWorld::new(), |world, (path, text)| world.with(Space::System, &path, text))
}

pub fn all() -> Vec<EditedProject> {
    let example = |name: &str, directive| {
        let (root, mut files) = (repository().join("examples").join(name), BTreeMap::new());
        read_files(&root, &root.join(".ai"), &mut files);
        EditedProject { name: "example", directive, files }
    };
    vec![guarded(), family(), example("deploy", "deploy_staging"), example("review", "review")]
}

fn directive(name: &str, extends: &str, metadata: &str, rest: &str) -> String {
    format!(
        "# {name}\n\n```xml\n<directive name=\"{name}\" version=\"1.0.0\"{extends}>\n<metadata>\n\
         <description>Does {name}.</description>\n{metadata}\n</metadata>\n{rest}\n</directive>\n```\n\nDo {name} for {{input:target}}.\n"
    )
}

/// Returns a project with guards, licenses, tools, settings, a base, a child and a grandchild.
pub fn family() -> EditedProject {
    let root = "<model provider=\"anthropic\" tier=\"general\" fallback=\"fast\"/>\n\
        <limits turns=\"20\" tokens=\"300000\" spend=\"0.90\" spawns=\"6\" depth=\"3\" duration_seconds=\"500\" output=\"4096\"/>\n\
        <context><system>style</system><before>rules</before><after>done</after></context>\n\
        <permissions>\n<execute>\n<tool>p.*</tool>\n<tool>rye.file-system.read</tool>\n\
        <tool write=\"out/,log/\">rye.file-system.write</tool>\n<tool net=\"*.a.test,b.test\" write=\"out/\">rye.bash.*</tool>\n\
        <directive>child</directive>\n<directive>grandchild</directive>\n</execute>\n\
        <fetch><knowledge>team.*</knowledge></fetch>\n<acknowledge risk=\"elevated\">Deploys.</acknowledge>\n</permissions>\n\
        <hooks>\n<hook id=\"own_guard\" event=\"tool_call\"><when>call.item_id == \"p/deploy\" &amp;&amp; turn &gt; 6</when>\
        <block reason=\"too late\"/></hook>\n</hooks>";
    let inputs = "<inputs>\n<input name=\"target\" type=\"string\" enum=\"staging,canary,test\" default=\"staging\">where</input>\n\
        <input name=\"count\" type=\"integer\" default=\"3\">how many</input>\n</inputs>\n\
        <outputs>\n<output name=\"url\" type=\"string\" required=\"true\">where it answers</output>\n</outputs>";
    let child = "<model provider=\"anthropic\" tier=\"fast\"/>\n<limits turns=\"6\" spend=\"0.20\"/>\n\
        <permissions>\n<execute>\n<tool>p.probe</tool>\n<tool net=\"*.b.test\">rye.bash.bash</tool>\n<directive>grandchild</directive>\n</execute>\n</permissions>";
    let grandchild = "<model provider=\"anthropic\" tier=\"fast\"/>\n<limits turns=\"4\"/>\n\
        <permissions><execute><tool>p.probe</tool></execute></permissions>";
    let base = "<context><before>house</before></context>";
    let target = "<inputs><input name=\"target\" type=\"string\" default=\"staging\">where</input></inputs>";
    let hooks = "hooks:\n\
        \x20 - { id: no_rm, event: tool_call, condition: 'call.input.command contains \"rm -r\"', action: { block: { reason: no } } }\n\
        \x20 - { id: ask, event: tool_call, condition: 'call.item_id in [\"p/deploy\", \"p/probe\"] && turn > 3', action: { block: { reason: ask } } }\n\
        \x20 - { id: wait, event: limit, condition: 'limit_code == \"spend_exceeded\"', action: escalate }\n\
        \x20 - { id: enough, event: after_step, condition: 'cost.turns >= 9', action: terminate }\n\
        \x20 - { id: more, event: limit, condition: 'limit_code == \"turns_exceeded\"', action: { raise: { limit: turns, value: 30 } } }\n\
        \x20 - { id: again, event: error, condition: 'attempt < 4', action: { retry: { delay_ms: 10 } } }\n\
        \x20 - { id: note, event: after_complete, condition: 'cost.turns > 2', action: { primary: execute, item_type: tool, item_id: p/probe } }\n\
        \x20 - { id: hide, event: tool_result, condition: 'call.item_id == \"p/probe\"', action: { modify: { content: hidden } } }\n\
        \x20 - { id: remind, event: agent_end, condition: 'turn < 3', action: { follow_up: { content: 'Check it.' } } }\n\
        \x20 - { id: off, event: tool_call, enabled: false, condition: 'turn > 5', action: { block: { reason: late } } }\n";
    let deploy = "description: Deploys.\nkind: command\ncommand: [deploy, staging]\ntimeout_seconds: 60\nenvironment: [REGION, TOKEN]\n\
        needs: { net: [a.test, b.test], write: [out/] }\nparameters:\n  type: object\n  properties:\n\
        \x20   size: { type: integer, minimum: 1, maximum: 9 }\n    mode: { type: string, enum: [a, b, c], maxLength: 20 }\n";
    let files = [
        (".ai/directives/root.md", directive("root", " extends=\"base\"", root, inputs)),
        (".ai/directives/base.md", directive("base", "", base, target)),
        (".ai/directives/child.md", directive("child", "", child, target)),
        (".ai/directives/grandchild.md", directive("grandchild", "", grandchild, target)),
        (".ai/config/agent/hooks.yaml", hooks.to_owned()),
        (".ai/tools/p/deploy.yaml", deploy.to_owned()),
        (".ai/tools/p/probe.sh", "# rye: { description: Probes. }\necho one\n".to_owned()),
        (
            ".ai/config/agent/resilience.yaml",
            "retry: { max_retries: 5 }\nconcurrency: { max_concurrent_children: 6 }\ntool_result: { max_bytes: 20000 }\n".to_owned(),
        ),
        (".ai/config/agent/agent.yaml", "approvals: { headless: allow }\nsigning: { require: none }\n".to_owned()),
        (".ai/knowledge/rules.md", "Be careful.\n".to_owned()),
        (".ai/knowledge/house.md", "Be polite.\n".to_owned()),
        (".ai/knowledge/style.md", "Be short.\n".to_owned()),
        (".ai/knowledge/done.md", "Say what you did.\n".to_owned()),
        (".ai/knowledge/team/people.md", "Ann and Bob.\n".to_owned()),
    ];
    let files = files.into_iter().map(|(path, text)| (path.to_owned(), text)).collect();
    EditedProject { name: "family", directive: "root", files }
}

/// Returns the project of [`family`] without children, so that a comparison is short.
pub fn guarded() -> EditedProject {
    let mut files = family().files;
    files.retain(|path, _| !path.contains("child"));
    let root = files.get_mut(".ai/directives/root.md").unwrap();
    *root = root.replace("<directive>child</directive>\n<directive>grandchild</directive>\n", "");
    EditedProject { name: "guarded", directive: "root", files }
}
