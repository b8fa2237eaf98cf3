//! Masking of secrets in tool results, errors of providers, events and exports, before they are stored, hashed, written
//! to the transcript or sent to a model.
//!
//! Finds keys in common formats. Also finds the values of secret variables of this process and of the user's `.env`,
//! even if a value is encoded (such as base 64) or wrapped over several lines. Masking is not complete: a secret in an
//! unknown format passes.

mod streams;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use regex::{Captures, Regex};
use rye_compiler::plan::hex;
use serde_json::Value;
use streams::{EscapeKind, MAX_ROUNDS, Stream};

/// Name and regular expression of each key format. Each format starts with one of [`KEY_PREFIXES`].
const KEY_FORMATS: [(&str, &str); 12] = [
    ("private key", r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\z)"),
    ("Anthropic key", r"(?-u:\b)sk-ant-[A-Za-z0-9_-]{20,}"),
    ("API key", r"(?-u:\b)sk-(?:proj-|or-v1-|svcacct-)?[A-Za-z0-9_-]{20,}"),
    ("Stripe key", r"(?-u:\b)[rs]k_live_[A-Za-z0-9]{20,}"),
    ("GitHub token", r"(?-u:\b)(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,})"),
    ("GitLab token", r"(?-u:\b)glpat-[A-Za-z0-9_-]{20,}"),
    ("AWS key id", r"(?-u:\b)(?:AKIA|ASIA)[0-9A-Z]{16}(?-u:\b)"),
    ("Google key", r"(?-u:\b)AIza[0-9A-Za-z_-]{35}"),
    ("Slack token", r"(?-u:\b)xox[abeprs]-[A-Za-z0-9-]{10,}"),
    ("Hugging Face token", r"(?-u:\b)hf_[A-Za-z0-9]{30,}"),
    ("registry token", r"(?-u:\b)(?:npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50,})"),
    ("JSON web token", r"(?-u:\b)eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
];
/// Prefixes of all key formats. In a text without any of them, no regular expression is run.
const KEY_PREFIXES: [&str; 19] = [
    "-----BEGIN ",
    "sk-",
    "sk_live_",
    "rk_live_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "AKIA",
    "ASIA",
    "AIza",
    "xox",
    "hf_",
    "npm_",
    "pypi-",
    "eyJ",
];
/// Parts of a variable's name that mark its value as a secret.
const SECRET_NAME_PARTS: [&str; 6] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"];
/// Endings of variable names. If the name ends in one of them and the value begins with `/`, the value is a path and is
/// not masked.
const PATH_NAME_ENDS: [&str; 8] = ["_FILE", "_PATH", "_DIR", "_HOME", "_ROOT", "_SOCK", "_SOCKET", "_CONTROL"];
/// Minimum length in bytes of a masked value. Shorter values occur in ordinary text by chance, and their base 64 forms
/// are too short to be recognized reliably.
const MIN_SECRET_BYTES: usize = 8;

/// A regular expression for all formats in `KEY_FORMATS`, with one capture group for each format.
static KEY_FORMATS_REGEX: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let groups: Vec<String> = KEY_FORMATS.iter().map(|(_, shape)| format!("({shape})")).collect();
    Regex::new(&groups.join("|")).ok()
});

/// The values of secret variables: the variables in the environment of this process, and the variables that
/// `add_secrets` has added.
static KNOWN_SECRETS: LazyLock<RwLock<Arc<KnownSecrets>>> = LazyLock::new(|| {
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    RwLock::new(Arc::new(KnownSecrets::new(secret_variables(variables))))
});

/// The values of secret variables, in the forms that are searched for.
#[derive(Debug, Default)]
struct KnownSecrets {
    /// The name of each secret variable, by the variable's value.
    values: BTreeMap<String, String>,
    /// The values without encoding.
    plain: Needles,
    /// The forms of the values that [`compact_forms`] returns. These forms are searched for in [`Stream::compact`].
    compact: Needles,
    /// The values in hexadecimal, which are searched for in [`Stream::hex_digits`].
    hex: Needles,
}

/// Byte strings that are searched for together, each with the name of the variable that holds the secret.
#[derive(Debug, Default)]
struct Needles {
    names: BTreeMap<Vec<u8>, String>,
    any: Option<regex::bytes::Regex>,
}

/// Adds the values of these variables to the masked values. Ignores variables whose name does not mark a secret.
pub fn add_secrets(variables: impl Iterator<Item = (String, String)>) {
    let more = secret_variables(variables);
    let mut own = KNOWN_SECRETS.write().unwrap_or_else(PoisonError::into_inner);
    if more.iter().any(|(_, value)| !own.values.contains_key(value)) {
        let known = own.values.iter().map(|(value, name)| (name.clone(), value.clone()));
        *own = Arc::new(KnownSecrets::new(known.chain(more).collect()));
    }
}

/// Returns the text with every secret replaced by `[masked: NAME]`. `NAME` is the name of the variable that holds the
/// secret, or the name of the key format.
pub fn mask_secrets(text: &str) -> Cow<'_, str> {
    let own = Arc::clone(&KNOWN_SECRETS.read().unwrap_or_else(PoisonError::into_inner));
    mask_with(text, &own)
}

/// Masks `value` under the name `name`, also in every encoding that this module finds. Then masks all other secrets. A
/// `value` of fewer than `MIN_SECRET_BYTES` bytes is masked only where it occurs without encoding.
pub(crate) fn mask_one(text: &str, name: &str, value: &str) -> String {
    let own = KnownSecrets::new(vec![(name.to_owned(), value.to_owned())]);
    mask_secrets(&own.mask(text)).into_owned()
}

/// Replaces each exact occurrence of `value` in the text by `[masked: NAME]`, where `NAME` is `name`. Does not find
/// encoded forms of the value. Ignores a value of fewer than `MIN_SECRET_BYTES` bytes.
pub(crate) fn mask_exact(text: &mut String, name: &str, value: &str) {
    if value.len() >= MIN_SECRET_BYTES && text.contains(value) {
        *text = text.replace(value, &format!("[masked: {name}]"));
    }
}

impl Needles {
    fn new(names: BTreeMap<Vec<u8>, String>) -> Self {
        let mut longest_first: Vec<&Vec<u8>> = names.keys().filter(|needle| !needle.is_empty()).collect();
        longest_first.sort_by_key(|needle| std::cmp::Reverse(needle.len()));
        let literal = |needle: &Vec<u8>| needle.iter().fold(String::new(), |all, byte| all + &format!("\\x{byte:02x}"));
        let all: Vec<String> = longest_first.into_iter().map(literal).collect();
        let expression = format!("(?-u){}", all.join("|"));
        let any = if all.is_empty() { None } else { regex::bytes::Regex::new(&expression).ok() };
        Self { names, any }
    }

    /// Searches `stream` for the byte strings of `self`. The stream is a text after decoding, or without its
    /// separators. For each match, adds to `found` the range of the match in the original text, and the name of the
    /// variable that holds the secret.
    fn find<'n>(&'n self, stream: &Stream, found: &mut Vec<(Range<usize>, &'n str)>) {
        let Some(any) = &self.any else { return };
        for hit in any.find_iter(&stream.bytes) {
            let name = self.names.get(hit.as_bytes());
            if let Some(range) = stream.range(&hit.range()) {
                found.push((range, name.map_or("secret", String::as_str)));
            }
        }
    }
}

impl KnownSecrets {
    fn new(variables: Vec<(String, String)>) -> Self {
        let values: BTreeMap<String, String> = variables.into_iter().map(|(name, value)| (value, name)).collect();
        let (mut compact, mut hexed) = (BTreeMap::new(), BTreeMap::new());
        for (value, name) in values.iter().filter(|(value, _)| value.len() >= MIN_SECRET_BYTES) {
            let forms = compact_forms(value).into_iter().filter(|form| form.len() >= MIN_SECRET_BYTES);
            compact.extend(forms.map(|form| (form, name.clone())));
            hexed.insert(hex(value.as_bytes()).into_bytes(), name.clone());
        }
        let plain =
            Needles::new(values.iter().map(|(value, name)| (value.clone().into_bytes(), name.clone())).collect());
        Self { values, plain, compact: Needles::new(compact), hex: Needles::new(hexed) }
    }

    fn mask<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.values.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut found = Vec::new();
        let whole = Stream::of(text);
        self.plain.find(&whole, &mut found);
        self.find_encoded(&whole, &mut found);
        for kind in EscapeKind::ALL {
            let mut stream = Cow::Borrowed(&whole);
            for _ in 0..MAX_ROUNDS {
                let decoded = stream.decoded(kind);
                if decoded.bytes == stream.bytes {
                    break;
                }
                self.find_encoded(&decoded, &mut found);
                stream = Cow::Owned(decoded);
            }
        }
        replace_ranges(text, found)
    }

    fn find_encoded<'n>(&'n self, stream: &Stream, found: &mut Vec<(Range<usize>, &'n str)>) {
        self.compact.find(&stream.compact(), found);
        self.hex.find(&stream.hex_digits(), found);
    }
}

/// Replaces each range of a text by `[masked: NAME]`. Overlapping ranges are replaced together, with the name of the
/// first range.
fn replace_ranges<'t>(text: &'t str, mut found: Vec<(Range<usize>, &str)>) -> Cow<'t, str> {
    if found.is_empty() {
        return Cow::Borrowed(text);
    }
    found.sort_by_key(|(range, _)| (range.start, std::cmp::Reverse(range.end)));
    let mut masked = String::with_capacity(text.len());
    let mut end = 0;
    for (range, name) in found {
        // A match can begin or end inside a multi-byte character. This character belongs to the value, so it is masked
        // as a whole.
        let start = (0..=range.start).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let stop = (range.end..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
        if start >= end {
            masked.push_str(text.get(end..start).unwrap_or_default());
            masked.push_str("[masked: ");
            masked.push_str(name);
            masked.push(']');
        }
        end = end.max(stop);
    }
    masked.push_str(text.get(end..).unwrap_or_default());
    Cow::Owned(masked)
}

/// Returns the forms in which a text without white space can contain a value: the value itself, the value in a URL with
/// `+` for blanks, and the value in base 64. Base 64 encodes groups of 3 bytes, so there is one form for each position
/// of the value's start in a group.
fn compact_forms(value: &str) -> Vec<Vec<u8>> {
    let bytes = value.as_bytes();
    let mut all = vec![Stream::of(value).compact().bytes, Stream::of(&value.replace(' ', "+")).compact().bytes];
    for before in 0..3_usize {
        let shifted: Vec<u8> = std::iter::repeat_n(0, before).chain(bytes.iter().copied()).collect();
        // Skip the base 64 characters at both ends if they also depend on bytes before or after the value.
        let from = [0, 2, 3].get(before).copied().unwrap_or(0);
        let text = STANDARD_NO_PAD.encode(&shifted);
        let to = text.len() - usize::from(!shifted.len().is_multiple_of(3));
        all.extend(text.get(from..to).map(|form| form.as_bytes().to_vec()));
    }
    all
}

/// Masks every string of a value, and the keys of its mappings.
pub fn mask_value(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(masked) = mask_secrets(text) {
                *text = masked;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask_value),
        Value::Object(map) => {
            map.values_mut().for_each(mask_value);
            if map.keys().any(|key| matches!(mask_secrets(key), Cow::Owned(_))) {
                let masked =
                    std::mem::take(map).into_iter().map(|(key, value)| (mask_secrets(&key).into_owned(), value));
                *map = masked.collect();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn mask_with<'t>(text: &'t str, own: &KnownSecrets) -> Cow<'t, str> {
    let text = own.mask(text);
    if !KEY_PREFIXES.iter().any(|beginning| text.contains(beginning)) {
        return text;
    }
    let Some(known) = KEY_FORMATS_REGEX.as_ref() else { return text };
    let name = |found: &Captures<'_>| {
        let group = (1..=KEY_FORMATS.len()).find(|group| found.get(*group).is_some());
        let word = group.and_then(|group| KEY_FORMATS.get(group - 1)).map_or("secret", |(word, _)| word);
        format!("[masked: {word}]")
    };
    if !known.is_match(&text) {
        return text;
    }
    Cow::Owned(known.replace_all(&text, name).into_owned())
}

fn secret_variables(variables: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    let trimmed = |(name, value): (String, String)| (name, value.trim().to_owned());
    let is_secret = |(name, value): &(String, String)| {
        let name = name.to_uppercase();
        let is_path = value.starts_with('/')
            && (PATH_NAME_ENDS.iter().any(|end| name.ends_with(end)) || Path::new(value).exists());
        value.len() >= MIN_SECRET_BYTES && !is_path && SECRET_NAME_PARTS.iter().any(|part| name.contains(part))
    };
    let mut own: Vec<(String, String)> = variables.map(trimmed).filter(is_secret).collect();
    own.sort_by(|a, b| b.1.len().cmp(&a.1.len()).then_with(|| a.cmp(b)));
    own
}

#[cfg(test)]
mod tests;
