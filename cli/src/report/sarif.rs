//! Diagnostics as SARIF 2.1.0, for code scanning.

use std::collections::BTreeMap;

use rye_compiler::diagnostics::codes;
use serde_json::{Map, Value, json};

use super::diagnostic::{DiagnosticOutput, EditOutput, LabelOutput};

/// Maximum number of results of a run that code scanning accepts.
const MAX_RESULTS: usize = 25_000;
/// Maximum number of related locations of a result. GitHub code scanning accepts 1,000 locations and shows 100.
const MAX_RELATED_LOCATIONS: usize = 100;
/// Maximum length of a description of a rule, in characters; code scanning accepts 1,024.
const MAX_DESCRIPTION_CHARS: usize = 1_000;

/// Location of a diagnostic that concerns no single file.
const PROJECT_FOLDER: &str = ".ai/config";

/// Returns a log of one run. Lists only rules with results, sorted by code. Beyond [`MAX_RESULTS`], the most severe
/// results are kept, and a notification states the number of the others.
pub fn build_log(shown: &[DiagnosticOutput]) -> Value {
    let total = shown.len();
    let mut shown: Vec<&DiagnosticOutput> = shown.iter().collect();
    if total > MAX_RESULTS {
        shown.sort_by_key(|one| severity_rank(&one.severity));
        shown.truncate(MAX_RESULTS);
    }
    let mut levels: BTreeMap<&str, &str> = BTreeMap::new();
    for one in &shown {
        let level = levels.entry(one.code.as_str()).or_insert(&one.severity);
        if severity_rank(&one.severity) < severity_rank(level) {
            *level = &one.severity;
        }
    }
    let rules: BTreeMap<&str, usize> = levels.keys().enumerate().map(|(index, code)| (*code, index)).collect();
    let described: Vec<Value> = levels.iter().map(|(code, severity)| build_rule(code, severity)).collect();
    let mut occurrences: BTreeMap<String, usize> = BTreeMap::new();
    let mut numbered = |one: &DiagnosticOutput| {
        let occurrence = occurrences.entry(compute_fingerprint(one)).or_default();
        *occurrence += 1;
        build_result(one, rules.get(one.code.as_str()), *occurrence)
    };
    let results: Vec<Value> = shown.iter().map(|one| numbered(one)).collect();
    let omitted = total.saturating_sub(MAX_RESULTS);
    let notifications: Vec<Value> = (omitted > 0)
        .then(|| json!({ "level": "warning", "message": { "text": format!("omitted results: {omitted}") } }))
        .into_iter()
        .collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "rye", "version": env!("CARGO_PKG_VERSION"), "rules": described } },
            "columnKind": "unicodeCodePoints",
            "originalUriBaseIds": { "%SRCROOT%": { "description": { "text": "the folder of the project" } } },
            "invocations": [{ "executionSuccessful": true, "toolExecutionNotifications": notifications }],
            "results": results,
        }],
    })
}

/// Returns the rule of a code; `severity` is the highest severity of its results.
fn build_rule(code: &str, severity: &str) -> Value {
    let page = codes::find_code(code).map(codes::Code::titled_page).unwrap_or_default();
    let plain: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).map(str::trim).collect();
    let paragraph = first_paragraph(&plain).unwrap_or_else(|| code.to_owned());
    let problem = match level_of(severity) {
        "note" => "recommendation",
        level => level,
    };
    let topic = code.trim_start_matches("rye::").split("::").next().unwrap_or_default();
    json!({
        "id": code,
        "name": rule_name(code),
        "shortDescription": { "text": shorten(cut_after_sentence(&paragraph)) },
        "fullDescription": { "text": shorten(&paragraph) },
        "help": { "text": plain.join("\n").trim(), "markdown": page },
        "defaultConfiguration": { "level": level_of(severity) },
        "properties": { "tags": ["rye", topic], "precision": "high", "problem.severity": problem },
    })
}

/// Returns the name of a rule in Pascal case: `ExtendsCycle`.
fn rule_name(code: &str) -> String {
    let words = code.trim_start_matches("rye::").split([':', '-']).filter(|word| !word.is_empty());
    let capital = |word: &str| {
        let mut chars = word.chars();
        chars.next().map(|first| first.to_uppercase().chain(chars).collect::<String>()).unwrap_or_default()
    };
    words.map(capital).collect()
}

fn level_of(severity: &str) -> &'static str {
    match severity {
        "error" => "error",
        "warning" => "warning",
        _ => "note",
    }
}

/// Returns the rank of a severity: 0 is the most severe.
fn severity_rank(severity: &str) -> u8 {
    match severity {
        "error" => 0,
        "warning" => 1,
        _ => 2,
    }
}

/// Returns the SARIF result of a diagnostic. `rule` is the index of its rule. `occurrence` counts the results with the
/// same fingerprint, from 1.
fn build_result(shown: &DiagnosticOutput, rule: Option<&usize>, occurrence: usize) -> Value {
    let text = match &shown.help {
        Some(help) => format!("{}\n{help}", shown.message),
        None => shown.message.clone(),
    };
    let mut result = Map::new();
    result.insert("ruleId".into(), json!(shown.code));
    result.insert("ruleIndex".into(), json!(rule));
    result.insert("level".into(), json!(level_of(&shown.severity)));
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
            let related = others.get(..MAX_RELATED_LOCATIONS).unwrap_or(others);
            result.insert("relatedLocations".into(), json!(related));
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

/// Returns the first paragraph of a page's text, on one line; `None` if the page is empty.
fn first_paragraph(lines: &[&str]) -> Option<String> {
    let paragraph: Vec<&str> =
        lines.iter().skip_while(|line| line.is_empty()).take_while(|line| !line.is_empty()).copied().collect();
    Some(paragraph.join(" ")).filter(|text| !text.is_empty())
}

/// Returns the start of a description, in the length that code scanning accepts.
fn shorten(text: &str) -> String {
    text.chars().take(MAX_DESCRIPTION_CHARS).collect()
}

fn cut_after_sentence(paragraph: &str) -> &str {
    let end = paragraph.find(". ").map_or(paragraph.len(), |at| at + 1);
    paragraph.get(..end).unwrap_or(paragraph)
}

/// Returns the FNV-1a hash of code, file and message. The hash does not depend on the line, so it stays the same if the
/// diagnostic moves within the file.
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
