//! Diagnostics as SARIF 2.1.0, for code scanning.

use std::collections::BTreeMap;

use rye_compiler::diagnostics::codes;
use serde_json::{Map, Value, json};

use super::diagnostic::{DiagnosticOutput, EditOutput, LabelOutput};

/// Location of a diagnostic that concerns no single file.
const PROJECT_FOLDER: &str = ".ai/config";

/// Returns a log of one run. Lists only rules with results, sorted by code.
pub fn build_log(shown: &[DiagnosticOutput]) -> Value {
    let mut rules: BTreeMap<&str, usize> = shown.iter().map(|one| (one.code.as_str(), 0)).collect();
    for (index, slot) in rules.values_mut().enumerate() {
        *slot = index;
    }
    let described: Vec<Value> = rules.keys().map(|code| build_rule(code)).collect();
    let mut occurrences: BTreeMap<String, usize> = BTreeMap::new();
    let mut numbered = |one: &DiagnosticOutput| {
        let occurrence = occurrences.entry(compute_fingerprint(one)).or_default();
        *occurrence += 1;
        build_result(one, rules.get(one.code.as_str()), *occurrence)
    };
    let results: Vec<Value> = shown.iter().map(&mut numbered).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "rye", "version": env!("CARGO_PKG_VERSION"), "rules": described } },
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn build_rule(code: &str) -> Value {
    let page = codes::explain_page(code).unwrap_or_default();
    let plain: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).map(str::trim).collect();
    json!({
        "id": code,
        "shortDescription": { "text": first_sentence(&plain).unwrap_or_else(|| code.to_owned()) },
        "help": { "text": plain.join("\n").trim(), "markdown": page },
    })
}

/// Returns a result; `occurrence` counts the results with the same fingerprint, from 1.
fn build_result(shown: &DiagnosticOutput, rule: Option<&usize>, occurrence: usize) -> Value {
    let level = match shown.severity.as_str() {
        "error" => "error",
        "warning" => "warning",
        _ => "note",
    };
    let text = match &shown.help {
        Some(help) => format!("{}\n{help}", shown.message),
        None => shown.message.clone(),
    };
    let mut result = Map::new();
    result.insert("ruleId".into(), json!(shown.code));
    result.insert("ruleIndex".into(), json!(rule));
    result.insert("level".into(), json!(level));
    result.insert("message".into(), json!({ "text": text }));
    let mut places: Vec<Value> = shown.labels.iter().map(build_location).collect();
    if places.is_empty() {
        // Code scanning refuses a log in which a result has no location.
        let file = shown.file.as_deref().unwrap_or(PROJECT_FOLDER);
        let region = build_region(1, 1, 1, 1);
        places.push(json!({ "physicalLocation": { "artifactLocation": build_artifact(file), "region": region } }));
    }
    if let Some((first, others)) = places.split_first() {
        result.insert("locations".into(), json!([first]));
        if !others.is_empty() {
            result.insert("relatedLocations".into(), json!(others));
        }
    }
    result.insert(
        "partialFingerprints".into(),
        json!({ "ryeDiagnostic/v1": format!("{}:{occurrence}", compute_fingerprint(shown)) }),
    );
    if let (Some(label), false) = (shown.labels.first(), shown.fix.is_empty()) {
        let replacements: Vec<Value> = shown.fix.iter().map(build_replacement).collect();
        let changed = json!({ "artifactLocation": build_artifact(&label.file), "replacements": replacements });
        result.insert("fixes".into(), json!([{ "artifactChanges": [changed] }]));
    }
    Value::Object(result)
}

/// Returns the first sentence of a page's text.
fn first_sentence(lines: &[&str]) -> Option<String> {
    let paragraph: Vec<&str> =
        lines.iter().skip_while(|line| line.is_empty()).take_while(|line| !line.is_empty()).copied().collect();
    let text = paragraph.join(" ");
    let end = text.find(". ").map_or(text.len(), |at| at + 1);
    text.get(..end).filter(|sentence| !sentence.is_empty()).map(str::to_owned)
}

/// Returns a hash of code, file and message, which does not depend on the line (FNV-1a).
fn compute_fingerprint(shown: &DiagnosticOutput) -> String {
    let file = shown.labels.first().map(|label| label.file.as_str()).or(shown.file.as_deref()).unwrap_or_default();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in [shown.code.as_str(), file, shown.message.as_str()].join("\n").bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{hash:016x}")
}

fn build_location(label: &LabelOutput) -> Value {
    let region = build_region(label.line, label.column, label.end_line, label.end_column);
    json!({
        "physicalLocation": { "artifactLocation": build_artifact(&label.file), "region": region },
        "message": { "text": label.text },
    })
}

fn build_replacement(edit: &EditOutput) -> Value {
    let region = build_region(edit.line, edit.column, edit.end_line, edit.end_column);
    json!({ "deletedRegion": region, "insertedContent": { "text": edit.text } })
}

fn build_region(line: u32, column: u32, end_line: u32, end_column: u32) -> Value {
    json!({ "startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column })
}

/// Returns the location of a file. A file of the project has a path relative to the root; any other file has a URI with
/// the name of its space as the scheme.
fn build_artifact(file: &str) -> Value {
    match file.split_once(':').filter(|(space, _)| matches!(*space, "user" | "system")) {
        Some((space, path)) => json!({ "uri": format!("{space}:{}", encode_path(path)) }),
        None => json!({ "uri": encode_path(file), "uriBaseId": "%SRCROOT%" }),
    }
}

fn encode_path(path: &str) -> String {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"/-_.~".contains(b);
    path.bytes().map(|b| if plain(&b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}
