//! Masking of secrets in tool results, before they are stored, hashed, written to the transcript or sent to a model.
//! Detects common key formats, and the values of secret variables of this process or the user's `.env`, plain and in
//! common encodings. Not complete: a secret in an unknown format passes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use regex::{Captures, Regex};
use rye_compiler::plan::hex;
use serde_json::Value;

/// Name and expression of each key format. Each starts with one of [`KEY_PREFIXES`].
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
/// Prefixes of all key formats: a text without any of them needs no regular expression.
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
/// Minimum length in bytes of a masked value; shorter values would give false positives.
const MIN_SECRET_BYTES: usize = 12;

/// An expression for all formats, with a group for each format.
static KEY_FORMATS_REGEX: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let groups: Vec<String> = KEY_FORMATS.iter().map(|(_, shape)| format!("({shape})")).collect();
    Regex::new(&groups.join("|")).ok()
});

/// Values of secret variables; initially those of this process.
static KNOWN_SECRETS: LazyLock<RwLock<Arc<KnownSecrets>>> = LazyLock::new(|| {
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    RwLock::new(Arc::new(KnownSecrets::new(secret(variables))))
});

/// Known values, in every form that is searched for.
#[derive(Debug, Default)]
struct KnownSecrets {
    /// The name of the variable for each form of its value.
    forms: BTreeMap<String, String>,
    any: Option<Regex>,
}

/// Adds the values of these variables to the masked ones; ignores variables whose name marks no secret.
pub fn learn(variables: impl Iterator<Item = (String, String)>) {
    let more = KnownSecrets::forms(secret(variables));
    let mut own = KNOWN_SECRETS.write().unwrap_or_else(PoisonError::into_inner);
    if more.keys().any(|form| !own.forms.contains_key(form)) {
        let mut forms = own.forms.clone();
        forms.extend(more);
        *own = Arc::new(KnownSecrets::of(forms));
    }
}

/// Returns the text with every secret replaced by its name.
pub fn mask(text: &str) -> Cow<'_, str> {
    let own = Arc::clone(&KNOWN_SECRETS.read().unwrap_or_else(PoisonError::into_inner));
    mask_with(text, &own)
}

impl KnownSecrets {
    fn new(values: Vec<(String, String)>) -> Self {
        Self::of(Self::forms(values))
    }

    fn of(forms: BTreeMap<String, String>) -> Self {
        let mut longest_first: Vec<&String> = forms.keys().collect();
        longest_first.sort_by_key(|form| std::cmp::Reverse(form.len()));
        let all: Vec<String> = longest_first.into_iter().map(|form| regex::escape(form)).collect();
        let any = if all.is_empty() { None } else { Regex::new(&all.join("|")).ok() };
        Self { forms, any }
    }

    fn forms(values: Vec<(String, String)>) -> BTreeMap<String, String> {
        let each =
            values.into_iter().flat_map(|(name, value)| forms(&value).into_iter().map(move |f| (f, name.clone())));
        each.collect()
    }

    fn mask<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let Some(any) = &self.any else { return Cow::Borrowed(text) };
        let name = |found: &Captures<'_>| {
            let form = found.get(0).map_or("", |found| found.as_str());
            format!("[masked: {}]", self.forms.get(form).map_or("secret", String::as_str))
        };
        any.replace_all(text, name)
    }
}

/// Returns the forms of a value: plain, in JSON, percent-encoded, in base 16, and in base 64 at every alignment.
fn forms(value: &str) -> Vec<String> {
    let bytes = value.as_bytes();
    let json = Value::from(value).to_string();
    let json = json.trim_matches('"').to_owned();
    let encoded = |upper: bool| -> String {
        let byte = |b: &u8| match b {
            b if b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~') => char::from(*b).to_string(),
            b if upper => format!("%{b:02X}"),
            b => format!("%{b:02x}"),
        };
        bytes.iter().map(byte).collect()
    };
    let hex = hex(bytes);
    let mut all = vec![value.to_owned(), json, encoded(true), encoded(false), hex.to_uppercase(), hex];
    for before in 0..3_usize {
        let shifted: Vec<u8> = std::iter::repeat_n(0, before).chain(bytes.iter().copied()).collect();
        // Skip characters that also depend on neighboring bytes.
        let from = [0, 2, 3].get(before).copied().unwrap_or(0);
        for text in [STANDARD_NO_PAD.encode(&shifted), URL_SAFE_NO_PAD.encode(&shifted)] {
            let to = text.len() - usize::from(!shifted.len().is_multiple_of(3));
            all.extend(text.get(from..to).map(str::to_owned));
        }
    }
    all
}

/// Masks every string of a value, and the keys of its mappings.
pub fn mask_value(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(masked) = mask(text) {
                *text = masked;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask_value),
        Value::Object(map) => {
            map.values_mut().for_each(mask_value);
            if map.keys().any(|key| matches!(mask(key), Cow::Owned(_))) {
                let masked = std::mem::take(map).into_iter().map(|(key, value)| (mask(&key).into_owned(), value));
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

fn secret(variables: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    let is_secret = |(name, value): &(String, String)| {
        let name = name.to_uppercase();
        value.len() >= MIN_SECRET_BYTES
            && !value.starts_with('/')
            && SECRET_NAME_PARTS.iter().any(|part| name.contains(part))
    };
    let mut own: Vec<(String, String)> = variables.filter(is_secret).collect();
    own.sort_by(|a, b| b.1.len().cmp(&a.1.len()).then_with(|| a.cmp(b)));
    own
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_key_format_starts_with_a_known_prefix() {
        let hirs = KEY_FORMATS.map(|(word, shape)| (word, regex_syntax::parse(shape).expect(word)));
        for (word, hir) in hirs {
            let beginnings = regex_syntax::hir::literal::Extractor::new().extract(&hir);
            let literals = beginnings.literals().expect(word);
            assert!(!literals.is_empty(), "{word}");
            for literal in literals {
                let literal = String::from_utf8_lossy(literal.as_bytes()).into_owned();
                let found = KEY_PREFIXES.iter().any(|beginning| literal.starts_with(beginning));
                assert!(found, "{word}: `{literal}` begins with nothing that is looked for");
            }
        }
    }

    #[test]
    fn known_key_formats_are_masked() {
        // Assembled here, so that this file contains no key.
        let long = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8";
        for (key, word) in [
            (format!("sk-ant-{long}"), "Anthropic key"),
            (format!("sk-proj-{long}"), "API key"),
            (format!("ghp_{long}"), "GitHub token"),
            (format!("glpat-{long}"), "GitLab token"),
            (format!("AKIA{}", "ABCDEFGH12345678"), "AWS key id"),
            (format!("AIza{}", long.get(..35).unwrap_or_default()), "Google key"),
            (format!("xoxb-{long}"), "Slack token"),
            (format!("eyJ{long}.eyJ{long}.{long}"), "JSON web token"),
            (
                format!("-----BEGIN OPENSSH {0}-----\n{long}\n{long}\n-----END OPENSSH {0}-----", "PRIVATE KEY"),
                "private key",
            ),
            (format!("-----BEGIN {}-----\n{long} cut off", "PRIVATE KEY"), "private key"),
        ] {
            let masked = mask_with(&format!("key={key}"), &KnownSecrets::default()).into_owned();
            assert_eq!(masked, format!("key=[masked: {word}]"));
        }
    }

    #[test]
    fn ordinary_text_stays_as_it_is() {
        for text in [
            "",
            "sk-short",
            "task-force-of-a-kind-that-is-long-enough",
            "let key = read()?;",
            "AKIA",
            "eyJ.eyJ.x",
            "ghp_x",
        ] {
            assert!(matches!(mask_with(text, &KnownSecrets::default()), Cow::Borrowed(_)), "{text}");
        }
    }

    #[test]
    fn process_secrets_are_masked_by_value() {
        let variables = [
            ("MY_API_KEY", "correct horse battery"),
            ("TOKEN", "short"),
            ("KEY_FILE", "/a/path/to/something"),
            ("PATH", "horse battery staple"),
        ];
        let own = secret(variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(own.len(), 1);
        let own = KnownSecrets::new(own);
        assert_eq!(mask_with("a correct horse battery staple", &own), "a [masked: MY_API_KEY] staple");
        let mut value = json!({"a": ["nothing", {"b": format!("sk-ant-{}", "x".repeat(30))}], "n": 1});
        mask_value(&mut value);
        assert_eq!(value, json!({"a": ["nothing", {"b": "[masked: Anthropic key]"}], "n": 1}));
    }

    #[test]
    fn known_value_is_masked_in_every_encoding() {
        let value = "p\u{e4}ss \"word\"/+0123";
        let own = KnownSecrets::new(vec![("MY_SECRET".to_owned(), value.to_owned())]);
        let hex = hex(value.as_bytes());
        for text in [
            value.to_owned(),
            json!({"a": value}).to_string(),
            "p%C3%A4ss%20%22word%22%2F%2B0123".to_owned(),
            "p%c3%a4ss%20%22word%22%2f%2b0123".to_owned(),
            hex.to_uppercase(),
            hex,
        ] {
            let masked = mask_with(&text, &own).into_owned();
            assert!(masked.contains("[masked: MY_SECRET]") && !masked.contains("0123"), "{masked}");
        }
        for before in ["", "u", "us", "use", "user:"] {
            for after in ["", "x", "xy", "xyz"] {
                let whole = format!("{before}{value}{after}");
                for text in [STANDARD_NO_PAD.encode(&whole), URL_SAFE_NO_PAD.encode(&whole)] {
                    let masked = mask_with(&text, &own).into_owned();
                    assert!(masked.contains("[masked: MY_SECRET]") && masked.len() < 32, "{before} {after}: {masked}");
                }
            }
        }
    }

    #[test]
    fn added_secrets_are_masked_in_keys_too() {
        let learnt = "learnt-in-a-test-and-nowhere-else";
        assert_eq!(mask(learnt), learnt);
        let variables = [("LEARNT_TOKEN", learnt), ("LEARNT_PATH", "nothing-that-is-a-secret-at-all")];
        learn(variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(mask(learnt), "[masked: LEARNT_TOKEN]");
        assert_eq!(mask("nothing-that-is-a-secret-at-all"), "nothing-that-is-a-secret-at-all");
        let mut value = json!({"a": 1, learnt: [learnt]});
        mask_value(&mut value);
        assert_eq!(value, json!({"a": 1, "[masked: LEARNT_TOKEN]": ["[masked: LEARNT_TOKEN]"]}));
    }
}
