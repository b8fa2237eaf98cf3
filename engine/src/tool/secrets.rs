//! Secrets in what tools answer: masked before a result is stored, hashed, recorded or shown to a model. Known shapes of
//! keys, and the very values that this process has in variables that are called keys. Not a proof: a secret in a shape
//! nobody knows passes.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::Value;

/// What a shape is called, and its expression. Each begins with one of [`BEGINNINGS`].
const SHAPES: [(&str, &str); 12] = [
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
/// What every shape begins with: a text that holds none of them holds no known key, and needs no expression.
const BEGINNINGS: [&str; 19] = [
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
/// Parts of a variable's name that make its value a secret.
const NAMES: [&str; 6] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"];
/// A shorter value is masked nowhere: too much would be taken for it.
const SHORTEST: usize = 12;

/// One expression for all shapes, a group for each.
static KNOWN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let groups: Vec<String> = SHAPES.iter().map(|(_, shape)| format!("({shape})")).collect();
    Regex::new(&groups.join("|")).ok()
});

/// Values of this process's variables that nobody is to see, longest first.
static OWN: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    secret(variables)
});

/// The text with every secret replaced by what it is.
pub fn mask(text: &str) -> Cow<'_, str> {
    mask_with(text, &OWN)
}

/// The same for every string of a value; keys stay.
pub fn mask_value(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(masked) = mask(text) {
                *text = masked;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask_value),
        Value::Object(map) => map.values_mut().for_each(mask_value),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn mask_with<'t>(text: &'t str, own: &[(String, String)]) -> Cow<'t, str> {
    let mut text = Cow::Borrowed(text);
    for (name, value) in own {
        if text.contains(value.as_str()) {
            text = Cow::Owned(text.replace(value.as_str(), &format!("[masked: {name}]")));
        }
    }
    if !BEGINNINGS.iter().any(|beginning| text.contains(beginning)) {
        return text;
    }
    let Some(known) = KNOWN.as_ref() else { return text };
    let name = |found: &Captures<'_>| {
        let group = (1..=SHAPES.len()).find(|group| found.get(*group).is_some());
        let word = group.and_then(|group| SHAPES.get(group - 1)).map_or("secret", |(word, _)| word);
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
        value.len() >= SHORTEST && !value.starts_with('/') && NAMES.iter().any(|part| name.contains(part))
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
    fn every_shape_begins_with_what_is_looked_for() {
        let hirs = SHAPES.map(|(word, shape)| (word, regex_syntax::parse(shape).expect(word)));
        for (word, hir) in hirs {
            let beginnings = regex_syntax::hir::literal::Extractor::new().extract(&hir);
            let literals = beginnings.literals().expect(word);
            assert!(!literals.is_empty(), "{word}");
            for literal in literals {
                let literal = String::from_utf8_lossy(literal.as_bytes()).into_owned();
                let found = BEGINNINGS.iter().any(|beginning| literal.starts_with(beginning));
                assert!(found, "{word}: `{literal}` begins with nothing that is looked for");
            }
        }
    }

    #[test]
    fn known_shapes_are_masked_wherever_they_stand() {
        // Put together here, so that this file holds none.
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
            let masked = mask_with(&format!("key={key}"), &[]).into_owned();
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
            assert!(matches!(mask_with(text, &[]), Cow::Borrowed(_)), "{text}");
        }
    }

    #[test]
    fn the_process_own_secrets_are_masked_by_value() {
        let variables = [
            ("MY_API_KEY", "correct horse battery"),
            ("TOKEN", "short"),
            ("KEY_FILE", "/a/path/to/something"),
            ("PATH", "horse battery staple"),
        ];
        let own = secret(variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(own.len(), 1);
        assert_eq!(mask_with("a correct horse battery staple", &own), "a [masked: MY_API_KEY] staple");
        let mut value = json!({"a": ["nothing", {"b": format!("sk-ant-{}", "x".repeat(30))}], "n": 1});
        mask_value(&mut value);
        assert_eq!(value, json!({"a": ["nothing", {"b": "[masked: Anthropic key]"}], "n": 1}));
    }
}
