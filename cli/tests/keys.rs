//! Tests of keys and signatures: generating, trusting and revoking keys, and altered files, which every command
//! refuses.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use std::os::unix::fs::PermissionsExt;

use rye::TestProject;
use serde_json::json;

const DIRECTIVE: &str = "Talks.\n\n```xml\n<directive name=\"NAME\" version=\"1.0.0\"EXTENDS>\n<metadata><description>Talk.</description>\
    <model provider=\"scripted\" tier=\"fast\"/><context><before>note</before></context>\
    <permissions><execute><tool>mine</tool></execute><acknowledge risk=\"elevated\">t</acknowledge></permissions></metadata>\n</directive>\n```\n\nTalk.\n";

/// Returns a project with a directive with an extends parent, knowledge, hooks, settings and a tool.
fn place() -> TestProject {
    let place = TestProject::own();
    let directive = |name: &str, extends: &str| DIRECTIVE.replace("NAME", name).replace("EXTENDS", extends);
    place.write(".ai/directives/talk.md", &directive("talk", " extends=\"base\""));
    place.write(".ai/directives/base.md", &directive("base", ""));
    place.write(".ai/knowledge/note.md", "A note.\n");
    place.write(".ai/config/agent/hooks.yaml", "hooks: []\n");
    place.write(".ai/config/agent/resilience.yaml", "limits: { turns: 4 }\n");
    place.write(".ai/tools/mine.yaml", "description: Mine.\nkind: builtin\nbuiltin: ls\n");
    place.write("script.yaml", "steps:\n  - text: Hello.\n  - text: Hello.\n");
    place
}

const FILES: [&str; 6] = [
    ".ai/directives/talk.md",
    ".ai/directives/base.md",
    ".ai/knowledge/note.md",
    ".ai/config/agent/hooks.yaml",
    ".ai/config/agent/resilience.yaml",
    ".ai/tools/mine.yaml",
];

#[test]
fn key_is_generated_once_with_private_permissions() {
    let place = place();
    let (code, none) = place.json(&["keys", "list"]);
    assert_eq!((code, &none["keys"]), (Some(0), &json!([])));
    assert_eq!(place.rye(&["sign", "talk"]).code, Some(1), "there is no key yet");
    let (_, made) = place.json(&["keys", "generate"]);
    let key = &made["keys"][0];
    assert_eq!((key["own"].as_bool(), key["key_id"].as_str().unwrap().len()), (Some(true), 16));
    let rights = std::fs::metadata(key["file"].as_str().unwrap()).unwrap().permissions().mode();
    assert_eq!(rights & 0o777, 0o600);
    let (_, again) = place.json(&["keys", "generate"]);
    assert_eq!(made, again);
    let id = key["key_id"].as_str().unwrap();
    assert_eq!(place.rye(&["keys", "revoke", id]).code, Some(2), "the own key is not revoked");
    assert_eq!(place.rye(&["keys", "revoke", "0000000000000000"]).code, Some(2));
}

#[test]
fn altered_signed_file_is_refused_by_every_command() {
    let place = place();
    place.run_ok(&["keys", "generate"]);
    place.run_ok(&["sign", "*"]);
    let (code, stands) = place.json(&["verify"]);
    let states: Vec<_> = stands["files"].as_array().unwrap().iter().map(|f| f["state"].as_str().unwrap()).collect();
    assert_eq!((code, states), (Some(0), vec!["signed"; 6]));
    assert_eq!(place.rye(&["run", "talk"]).code, Some(0));
    for file in FILES {
        let whole = place.read(file);
        place.write(file, &format!("{whole}# more\n"));
        let (code, refused) = place.json(&["run", "talk"]);
        assert_eq!(code, Some(5), "{file}: {refused}");
        let codes: Vec<_> = refused["diagnostics"].as_array().unwrap().iter().map(|d| d["code"].clone()).collect();
        assert!(codes.contains(&json!("rye::item::signature")), "{file}: {codes:?}");
        assert_eq!(place.rye(&["plan", "talk"]).code, Some(5), "{file}");
        assert_eq!(place.rye(&["check"]).code, Some(1), "{file}");
        let (code, stands) = place.json(&["verify", file]);
        assert_eq!(
            (code, &stands["files"][0]["because"]),
            (Some(5), &json!("the content does not match the signature"))
        );
        place.write(file, &whole);
    }
    assert_eq!(place.rye(&["run", "talk"]).code, Some(0));
    // Signing again accepts the change.
    place.write(FILES[0], &format!("{}More.\n", place.read(FILES[0])));
    place.run_ok(&["sign", "directive:talk"]);
    assert_eq!(place.rye(&["run", "talk"]).code, Some(0));
}

#[test]
fn foreign_signature_is_valid_while_trusted() {
    let (mine, other) = (place(), place());
    other.run_ok(&["keys", "generate"]);
    other.run_ok(&["sign", "talk"]);
    mine.write(FILES[0], &other.read(FILES[0]));
    let refused = mine.rye(&["run", "talk"]);
    assert_eq!(refused.code, Some(5));
    assert!(refused.stderr.contains("which is not trusted"), "{}", refused.stderr);
    assert!(refused.stderr.contains("rye keys trust FILE"), "{}", refused.stderr);
    let (_, keys) = other.json(&["keys", "list"]);
    let id = keys["keys"][0]["key_id"].as_str().unwrap();
    let public = std::path::Path::new(keys["keys"][0]["file"].as_str().unwrap()).with_file_name("public.pem");

    // Keys that the project ships are ignored.
    for shipped in [".ai/keys/trusted/k.pem", ".ai/keys/public.pem", ".ai/trust/k.pem"] {
        mine.write(shipped, &std::fs::read_to_string(&public).unwrap());
    }
    assert_eq!(mine.rye(&["run", "talk"]).code, Some(5));

    mine.run_ok(&["keys", "trust", public.to_str().unwrap()]);
    assert_eq!(mine.rye(&["run", "talk"]).code, Some(0));
    mine.run_ok(&["keys", "revoke", id]);
    assert_eq!(mine.rye(&["run", "talk"]).code, Some(5));
    mine.write("not-a-key.pem", "hello");
    assert_eq!(mine.rye(&["keys", "trust", "not-a-key.pem"]).code, Some(1));
}

#[test]
fn required_signing_refuses_unsigned_items() {
    let place = place();
    place.run_ok(&["keys", "generate"]);
    place.write(".ai/config/agent/agent.yaml", "signing: { require: sometimes }\n");
    assert_ne!(place.rye(&["run", "talk"]).code, Some(0), "a word that means nothing is not the loosest");
    place.write(".ai/config/agent/agent.yaml", "signing: { require: all }\n");
    let refused = place.rye(&["run", "talk"]);
    assert_eq!(refused.code, Some(5), "{}", refused.stderr);
    assert_eq!(place.json(&["verify"]).0, Some(5));
    place.run_ok(&["sign", "*"]);
    assert_eq!(place.rye(&["run", "talk"]).code, Some(0));
}

#[test]
fn invalid_names_are_rejected() {
    let place = place();
    place.run_ok(&["keys", "generate"]);
    assert_eq!(place.rye(&["sign", "nothing/like/it"]).code, Some(2));
    assert_eq!(place.rye(&["verify", "tool:talk"]).code, Some(2));
    std::os::unix::fs::symlink(place.project().join("script.yaml"), place.project().join(".ai/knowledge/l.yaml"))
        .unwrap();
    assert_eq!(place.rye(&["sign", "knowledge:l"]).code, Some(1), "what a link leads to is not signed");
}

/// A project whose files all have signatures of one unknown key needs one decision, so it gets one diagnostic.
#[test]
fn unknown_key_of_many_files_is_reported_once() {
    let (mine, other) = (place(), place());
    other.run_ok(&["keys", "generate"]);
    for name in ["a", "b", "c"] {
        other.write(&format!(".ai/knowledge/team/{name}.md"), "Be kind.\n");
        other.run_ok(&["sign", &format!("knowledge:team/{name}")]);
        let path = format!(".ai/knowledge/team/{name}.md");
        mine.write(&path, &other.read(&path));
    }
    let (code, checked) = mine.json(&["check"]);
    let found: Vec<&serde_json::Value> =
        checked["diagnostics"].as_array().unwrap().iter().filter(|one| one["code"] == "rye::item::signature").collect();
    assert_eq!((code, found.len()), (Some(1), 1), "{checked}");
    let message = found[0]["message"].as_str().unwrap();
    assert!(message.starts_with("`.ai/knowledge/team/a.md` and 2 other files are signed with the key"), "{message}");
    let help = found[0]["help"].as_str().unwrap();
    assert!(help.contains("rye keys trust FILE") && help.contains("`.ai/knowledge/team/c.md`"), "{help}");
}
