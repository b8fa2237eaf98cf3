//! Contract cases of the language, answered by `eval` and compared as their README describes. The comparison shares no
//! code with `eval`: it compares numbers itself and checks coverage examples with its own matcher.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, reason = "a test reads its cases")]

use std::path::Path;

use rye_compiler::semantics::eval::answer;
use serde_json::Value;

/// Number of contract cases; a lost case is a failure too.
const LINES: usize = 3494;

#[test]
fn eval_agrees_with_every_contract_case() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../snapshots/contract");
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    let (mut lines, mut failures) = (0, Vec::new());
    for file in files {
        for line in std::fs::read_to_string(&file).unwrap().lines() {
            lines += 1;
            let case: Value = serde_json::from_str(line).unwrap();
            let mut request = case["in"].clone();
            request["id"] = case["id"].clone();
            let given: Value = serde_json::from_str(&answer(&request.to_string())).unwrap();
            if given["id"] != case["id"] || !agrees(&case["in"], &case["want"], &given) {
                failures.push(format!("{}\n  want {}\n  got  {given}", case["in"], case["want"]));
            }
        }
    }
    assert_eq!(lines, LINES);
    assert!(failures.is_empty(), "{} of {lines} differ:\n{}", failures.len(), failures.join("\n"));
}

/// Returns true if the case allows the answer.
fn agrees(request: &Value, want: &Value, given: &Value) -> bool {
    if let Some(allowed) = want.get("one_of") {
        return allowed.as_array().unwrap().iter().any(|want| agrees(request, want, given));
    }
    if want.get("error").is_some() {
        return is_error(given);
    }
    let (Some(want), Some(given)) = (want.get("ok"), given.get("ok")) else { return false };
    if let Some(covers) = request.get("covers") {
        return agrees_on_coverage(covers, want, given);
    }
    if request.get("ledger").is_some() {
        let (want, given) = (want.as_array().unwrap(), given.as_array().unwrap());
        return want.len() == given.len()
            && want.iter().zip(given).all(|(w, g)| if w.get("error").is_some() { is_error(g) } else { same(w, g) });
    }
    if request.get("capability").is_some() || request.get("classify").is_some() {
        return want.as_object().unwrap().iter().all(|(key, want)| given.get(key).is_some_and(|g| same(want, g)));
    }
    if let (Some(want), Some(given)) = (want.get("unknown"), given.get("unknown")) {
        let sorted = |paths: &Value| {
            let mut paths: Vec<String> =
                paths.as_array().unwrap().iter().map(|p| p.as_str().unwrap().to_owned()).collect();
            paths.sort();
            paths
        };
        return sorted(want) == sorted(given);
    }
    same(want, given)
}

fn is_error(given: &Value) -> bool {
    let text = |key: &str| given["error"][key].as_str().is_some_and(|text| !text.is_empty());
    given.get("ok").is_none() && text("code") && text("message")
}

fn agrees_on_coverage(request: &Value, want: &Value, given: &Value) -> bool {
    if want["covered"] != given["covered"] {
        return false;
    }
    if want["covered"] == Value::Bool(true) {
        return given.get("example").is_none();
    }
    let example = given["example"].as_str().unwrap();
    let matched = |key: &str| {
        request[key].as_array().unwrap().iter().any(|pattern| {
            let pattern: Vec<char> = pattern.as_str().unwrap().replace('/', ".").chars().collect();
            matches(&pattern, &example.chars().collect::<Vec<char>>())
        })
    };
    is_well_formed(example) && matched("child") && !matched("parent")
}

fn is_well_formed(capability: &str) -> bool {
    let segments: Vec<&str> = capability.split('.').collect();
    let [root, primary, item_type, rest @ ..] = segments.as_slice() else { return false };
    *root == "rye"
        && ["execute", "fetch", "sign"].contains(primary)
        && ["tool", "directive", "knowledge"].contains(item_type)
        && rest.iter().all(|s| !s.is_empty() && s.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'))
}

/// Matches like `fnmatchcase`, by plain recursion. The patterns of the contract are short and have no descending range.
fn matches(pattern: &[char], text: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['*', rest @ ..] => (0..=text.len()).any(|skip| matches(rest, &text[skip..])),
        ['?', rest @ ..] => !text.is_empty() && matches(rest, &text[1..]),
        ['[', inside @ ..] => {
            let from = usize::from(inside.first() == Some(&'!'));
            let close = inside.iter().skip(from + 1).position(|c| *c == ']').map(|at| at + from + 1);
            let Some(close) = close else { return text.first() == Some(&'[') && matches(inside, &text[1..]) };
            let Some(c) = text.first() else { return false };
            let (members, mut at, mut found) = (&inside[from..close], 0, false);
            while at < members.len() {
                let range = at + 2 < members.len() && members[at + 1] == '-';
                let high = if range { members[at + 2] } else { members[at] };
                found |= (members[at]..=high).contains(c);
                at += if range { 3 } else { 1 };
            }
            found != (from == 1) && matches(&inside[close + 1..], &text[1..])
        }
        [literal, rest @ ..] => text.first() == Some(literal) && matches(rest, &text[1..]),
    }
}

/// Compares JSON values deeply. Numbers are compared by their exact value, as digits and a power of ten.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => decimal(&a.to_string()) == decimal(&b.to_string()),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

/// Returns the sign, the digits without zeros at either end, and the power of ten of the last digit.
fn decimal(text: &str) -> (bool, String, i64) {
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut exponent = exponent.parse::<i64>().unwrap() - i64::try_from(fraction.len()).unwrap();
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let trimmed = digits.trim_end_matches('0');
    exponent += i64::try_from(digits.len() - trimmed.len()).unwrap();
    if trimmed.is_empty() { (false, String::new(), 0) } else { (negative, trimmed.to_owned(), exponent) }
}

#[test]
fn comparison_rejects_different_answers() {
    let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert!(same(&value("[1, 2.50]"), &value("[1.0, 2.5]")));
    assert!(same(&value("1e-9"), &value("0.000000001")));
    assert!(!same(&value("9007199254740993"), &value("9007199254740992.0")));
    assert!(!same(&value("1"), &value("true")));
    assert!(!same(&value("{\"a\":1}"), &value("{\"a\":1,\"b\":1}")));
    assert!(!is_error(&value("{\"error\":{\"code\":\"x\"}}")));
    let chars = |text: &str| text.chars().collect::<Vec<char>>();
    assert!(matches(&chars("r*.[!a-c]x?"), &chars("rye.dxz")));
    assert!(!matches(&chars("r*.[!a-c]x?"), &chars("rye.bxz")));
    assert!(matches(&chars("[]"), &chars("[]")));
}
